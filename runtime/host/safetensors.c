/* The safetensors format: 8 bytes little-endian length n, n bytes of JSON {name: {dtype, shape, data_offsets}}, the
 * data. A file comes from anywhere, so every figure in it is checked before it is used.
 * Relies on: file.h, jansson (refuses duplicate keys, NULs in strings, bad UTF-8, deep nesting, trailing text), zlib.
 * Relied on by: weights, checkpoint, resume, the fuzzers. */
#include "safetensors.h"
#include "../file.h"
#include "die.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { MAX_HEADER = 100 << 20, LENGTH = 8 };

static const struct {
    const char *name;
    int size, sc;
} types[] = {
    {"F32", 4, FP32},  {"BF16", 2, BF16}, {"F16", 2, FP16},         {"F64", 8, FP64},         {"I32", 4, INT32},
    {"I64", 8, INT64}, {"BOOL", 1, BOOL}, {"F8_E4M3", 1, FP8_E4M3}, {"F8_E5M2", 1, FP8_E5M2}, {"U8", 1, -1},
    {"I8", 1, INT8},   {"I16", 2, -1},    {"U16", 2, -1},           {"U32", 4, -1},           {"U64", 8, -1},
};

#define WRONG(...) (snprintf(error, ST_ERROR, __VA_ARGS__), false)

/* What people take for safetensors, by its first bytes. */
#define RESAVE "save its tensors with safetensors.torch.save_file, or the model with save_pretrained"
static const struct {
    const char *magic, *what;
    int n;
} foreign[] = {
    {"PK\3\4", "a file of torch.save or another zip archive: " RESAVE, 4},
    {"\x80\2", "a pickle, as older torch.save writes: " RESAVE, 2},
    {"\x89"
     "HDF",
     "an HDF5 file: " RESAVE, 4},
    {"\x93NUMPY", "an array of NumPy: save it with safetensors.numpy.save_file under a parameter's name", 6},
    {"GGUF", "a GGUF file, for inference: take the release in safetensors", 4},
    {"version https://git-lfs", "a pointer of Git LFS, not the file itself: git lfs pull fetches it", 23},
    {"<", "a page of HTML or XML, not the file itself: fetch it anew", 1},
    {"{", "JSON, such as a configuration: name the files of tensors, 'model-*.safetensors'", 1},
};

static const char *what_else(const uint8_t *bytes, uint64_t size) {
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (size >= (uint64_t)foreign[i].n && !memcmp(bytes, foreign[i].magic, (size_t)foreign[i].n))
            return foreign[i].what;
    return NULL;
}

/* ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static bool read_tensor(StTensor *t, json_t *info, uint64_t data, char *error) {
    const char *dtype = json_string_value(json_object_get(info, "dtype"));
    json_t *shape = json_object_get(info, "shape"), *offsets = json_object_get(info, "data_offsets");
    json_t *b = json_array_get(offsets, 0), *e = json_array_get(offsets, 1);
    size_t i = 0, ntypes = sizeof types / sizeof *types;
    if (!json_is_object(info)) return WRONG("tensor '%.80s' is not described by an object", t->name);
    if (!dtype) return WRONG("tensor '%.80s' has no dtype", t->name);
    while (i < ntypes && strcmp(types[i].name, dtype) != 0) i++;
    if (i == ntypes) return WRONG("tensor '%.80s' has the unknown dtype '%.20s'", t->name, dtype);
    t->dtype = types[i].name;
    t->sc_dtype = types[i].sc;
    if (!json_is_array(shape)) return WRONG("tensor '%.80s' has no shape", t->name);
    if (json_array_size(shape) > ST_DIMS)
        return WRONG("tensor '%.80s' has %zu dimensions, more than %d", t->name, json_array_size(shape), ST_DIMS);
    t->dims = (int)json_array_size(shape);
    t->numel = 1;
    for (int d = 0; d < t->dims; d++) {
        json_t *x = json_array_get(shape, (size_t)d);
        t->shape[d] = json_integer_value(x);
        if (!json_is_integer(x) || t->shape[d] < 0)
            return WRONG("dimension %d of tensor '%.80s' is not a whole number from 0", d, t->name);
        if (__builtin_mul_overflow(t->numel, t->shape[d], &t->numel))
            return WRONG("the shape of tensor '%.80s' overflows 64 bits", t->name);
    }
    if (json_array_size(offsets) != 2 || !json_is_integer(b) || !json_is_integer(e))
        return WRONG("tensor '%.80s' has no data_offsets [begin, end]", t->name);
    int64_t begin = json_integer_value(b), end = json_integer_value(e), bytes;
    if (begin < 0 || end < begin || (uint64_t)end > data)
        return WRONG("tensor '%.80s' lies at [%lld, %lld), outside the %llu bytes of data", t->name, (long long)begin,
                     (long long)end, (unsigned long long)data);
    if (__builtin_mul_overflow(t->numel, (int64_t)types[i].size, &bytes) || bytes != end - begin)
        return WRONG("tensor '%.80s': its shape and %s do not make the %lld bytes it has", t->name, t->dtype,
                     (long long)(end - begin));
    t->begin = (uint64_t)begin;
    t->end = (uint64_t)end;
    return true;
}

static int by_offset(const void *a, const void *b) {
    const StTensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const StTensor *)a)->name, ((const StTensor *)b)->name);
}

/* The header's JSON, for a file with `data` bytes of data: every byte of them belongs to one tensor. */
static bool parse_header(StFile *f, const char *text, size_t n, uint64_t data, char *error) {
    const char *key;
    json_t *info, *value;
    json_error_t e;
    uint64_t at = 0;
    if (n == 0 || text[0] != '{') return WRONG("its header does not begin with '{'");
    json_t *json = f->json = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!json) return WRONG("its header is not JSON: %s (byte %d)", e.text, e.position);
    json_t *metadata = json_object_get(json, "__metadata__");
    if (metadata && !json_is_object(metadata)) return WRONG("__metadata__ is not an object");
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value)) return WRONG("__metadata__ '%.80s' is not a string", key);
    }
    f->tensors = need(json_object_size(json), sizeof *f->tensors);
    json_object_foreach(json, key, info) {
        if (info == metadata) continue;
        f->tensors[f->n].name = key;
        if (!read_tensor(&f->tensors[f->n++], info, data, error)) return false;
    }
    qsort(f->tensors, (size_t)f->n, sizeof *f->tensors, by_offset);
    for (int i = 0; i < f->n; i++) {
        const StTensor *t = &f->tensors[i];
        if (t->begin < at) return WRONG("tensor '%.80s' overlaps the one before it", t->name);
        if (t->begin > at)
            return WRONG("%llu bytes before tensor '%.80s' belong to none", (unsigned long long)(t->begin - at),
                         t->name);
        at = t->end;
    }
    if (at != data) return WRONG("%llu bytes after the last tensor belong to none", (unsigned long long)(data - at));
    qsort(f->tensors, (size_t)f->n, sizeof *f->tensors, by_name);
    return true;
}

/* The length of the JSON, from the first bytes of a file of `size` bytes. */
static bool header_length(const uint8_t *bytes, uint64_t size, uint64_t *n, char *error) {
    *n = 0;
    for (int i = 0; i < LENGTH; i++) *n |= (uint64_t)bytes[i] << 8 * i;
    if (*n > MAX_HEADER) return WRONG("its header claims %llu bytes: not a safetensors file", (unsigned long long)*n);
    if (*n > size - LENGTH)
        return WRONG("its header claims %llu bytes, but only %llu follow: truncated, or not a safetensors file",
                     (unsigned long long)*n, (unsigned long long)(size - LENGTH));
    return true;
}

bool st_parse(StFile *f, const uint8_t *bytes, uint64_t size, char error[ST_ERROR]) {
    uint64_t n;
    *f = (StFile){.fd = -1};
    if (size < LENGTH) return WRONG("it has %llu bytes: not a safetensors file", (unsigned long long)size);
    if (!header_length(bytes, size, &n, error)) return false;
    f->data_at = LENGTH + n;
    if (parse_header(f, (const char *)bytes + LENGTH, n, size - LENGTH - n, error)) return true;
    st_close(f);
    return false;
}

bool st_open(StFile *f, const char *path, char error[ST_ERROR]) {
    struct stat st;
    uint8_t length[32] = {0}; /* and more, if it is something else */
    uint64_t n;
    *f = (StFile){.fd = sc_open_input(path, &st, error, ST_ERROR)};
    if (f->fd < 0) return false;
    f->path = need_text("%s", path);
    uint64_t size = (uint64_t)st.st_size, head = size < sizeof length ? size : sizeof length;
    bool ok = size >= LENGTH || WRONG("it has %llu bytes: not a safetensors file", (unsigned long long)size);
    ok = ok && (sc_read_at(f->fd, length, head, 0) || WRONG("cannot read it: %s", strerror(errno)));
    bool huge = length[4] || length[5] || length[6] || length[7]; /* no header is 4 GiB long */
    const char *other = ok && huge ? what_else(length, head) : NULL;
    if (other) ok = WRONG("it is %s", other);
    if (ok && (ok = header_length(length, size, &n, error))) {
        char *text = need(n, 1);
        f->data_at = LENGTH + n;
        ok = sc_read_at(f->fd, text, n, LENGTH) ? parse_header(f, text, n, size - LENGTH - n, error)
                                                : WRONG("cannot read its header: %s", strerror(errno));
        f->head_sum = crc32(crc32(0, length, LENGTH), (const unsigned char *)text, (unsigned)n);
        free(text);
    }
    if (!ok) st_close(f);
    return ok;
}

void st_close(StFile *f) {
    if (f->fd >= 0) close(f->fd);
    free(f->path);
    free(f->tensors);
    json_decref(f->json);
    *f = (StFile){.fd = -1};
}

const StTensor *st_find(const StFile *f, const char *name) {
    StTensor key = {.name = name};
    return f->n ? bsearch(&key, f->tensors, (size_t)f->n, sizeof key, by_name) : NULL;
}

const char *st_metadata(const StFile *f, const char *key) {
    return json_string_value(json_object_get(json_object_get(f->json, "__metadata__"), key));
}

bool st_read(const StFile *f, const StTensor *t, int64_t at, int64_t n, void *dst) {
    uint64_t size = t->numel ? (t->end - t->begin) / (uint64_t)t->numel : 0;
    return sc_read_at(f->fd, dst, (uint64_t)n * size, f->data_at + t->begin + (uint64_t)at * size);
}

/* ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
void st_json_string(FILE *f, const char *s) {
    fputc('"', f);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c < 0x20)
            fprintf(f, "\\u%04x", c);
        else
            fputc(c, f);
    }
    fputc('"', f);
}

void st_head_begin(StHead *h, const char *const *metadata, size_t *at) {
    *h = (StHead){.first = true};
    h->out = open_memstream(&h->text, &h->size);
    if (!h->out) die("out of memory for a safetensors header");
    fwrite("\0\0\0\0\0\0\0\0{", 1, LENGTH + 1, h->out);
    if (!metadata) return;
    fputs("\"__metadata__\":{", h->out);
    for (int i = 0; metadata[i]; i += 2) {
        if (i) fputc(',', h->out);
        st_json_string(h->out, metadata[i]);
        fputc(':', h->out);
        if (at) at[i / 2] = (size_t)ftell(h->out) + 1; /* behind the quote */
        st_json_string(h->out, metadata[i + 1]);
    }
    fputc('}', h->out);
    h->first = false;
}

void st_head_add(StHead *h, const char *name, sc_dtype d, int dims, const int64_t *shape) {
    uint64_t bytes = (uint64_t)sc_size(d);
    if (!h->first) fputc(',', h->out);
    h->first = false;
    st_json_string(h->out, name);
    fprintf(h->out, ":{\"dtype\":\"%s\",\"shape\":[", host_dtype_st(d));
    for (int i = 0; i < dims; i++) {
        fprintf(h->out, "%s%lld", i ? "," : "", (long long)shape[i]);
        bytes *= (uint64_t)shape[i];
    }
    fprintf(h->out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)h->offset,
            (unsigned long long)(h->offset + bytes));
    h->offset += bytes;
}

char *st_head_end(StHead *h, size_t *size) {
    fputc('}', h->out);
    for (long n = ftell(h->out); n % 8; n++) fputc(' ', h->out); /* so that the data are aligned */
    bool whole = !ferror(h->out);
    if (fclose(h->out) != 0 || !whole || !h->text) die("out of memory for a safetensors header");
    for (int i = 0; i < LENGTH; i++) h->text[i] = (char)((uint64_t)(h->size - LENGTH) >> 8 * i);
    *size = h->size;
    return h->text;
}
