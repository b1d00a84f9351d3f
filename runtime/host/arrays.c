/* Arrays of the model's inputs as data. Each array is a file of the set, with the place of its first element; its rows
 * are converted to the input's dtype when they are read, and checked then.
 * Relies on: npy, npz, safetensors, records (what an input takes), file.h, die.
 * Relied on by: loader, run. */
#include "arrays.h"
#include "../file.h"
#include "../schema/formats.h"
#include "die.h"
#include "dtype.h"
#include "npy.h"
#include "npz.h"
#include "records.h"
#include "safetensors.h"
#include <errno.h>
#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 1 << 15 };

/* The input of INPUT=FILE, and where FILE begins; -1: the name is no such. */
static int input_of(const sc_build *b, const char *name, const char **file) {
    const char *equals = strchr(name, '=');
    for (int i = 0; equals && i < b->ninputs; i++)
        if (!b->inputs[i].sample_only && strlen(b->inputs[i].name) == (size_t)(equals - name) &&
            !strncmp(b->inputs[i].name, name, (size_t)(equals - name))) {
            *file = equals + 1;
            return i;
        }
    *file = name;
    return -1;
}

static bool is_archive(const char *path) {
    uint8_t head[SC_FORMAT_HEAD];
    struct stat st;
    char why[DATA_ERROR];
    int fd = sc_open_input(path, &st, why, sizeof why);
    if (fd < 0) return false;
    ssize_t n = pread(fd, head, sizeof head, 0);
    close(fd);
    const sc_format *f = n > 0 ? sc_format_of(head, (size_t)n) : NULL;
    return f && (f->also == sc_format_npz || f->also == sc_format_safetensors);
}

bool arrays_named(const sc_build *b, const char *option, char *const *names, int n) {
    const char *first[2] = {NULL, NULL};
    for (int i = 0; i < n; i++) {
        const char *file;
        glob_t g;
        bool arrays = input_of(b, names[i], &file) >= 0;
        if (!arrays && access(file, F_OK) && glob(file, GLOB_TILDE, NULL, &g) == 0) {
            arrays = is_archive(g.gl_pathv[0]);
            globfree(&g);
        } else if (!arrays) {
            arrays = is_archive(file);
        }
        if (!first[arrays]) first[arrays] = names[i];
    }
    if (first[0] && first[1])
        die("%s: %s holds arrays of inputs, and %s does not: give arrays alone (INPUT=FILE.npy, .npz, .safetensors), "
            "or "
            "token files alone",
            option, first[1], first[0]);
    return first[1] != NULL;
}

/* ── opening ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    TokenSet *set;
    const sc_build *b;
    const char *option;
} Opening;

static char *shape_text(int dims, const int64_t *shape) {
    char *text = need_text("[");
    for (int d = 0; d < dims; d++) {
        char *more = need_text("%s%s%lld", text, d ? "," : "", (long long)shape[d]);
        free(text);
        text = more;
    }
    char *whole = need_text("%s]", text);
    free(text);
    return whole;
}

/* f: path, kind, width, big_endian and `at` are filled; the file is opened once more for this array. */
static void add_array(const Opening *o, TokenFile f, const char *what, int input, int dims, const int64_t *shape) {
    const sc_input_info *in = &o->b->inputs[input];
    struct stat st;
    char why[DATA_ERROR / 2], *got = shape_text(dims, shape), *want = shape_text(in->dims - 1, in->shape + 1);
    bool fits = dims == in->dims, floats = f.kind == 'f' || f.kind == 'B';
    for (int d = 1; fits && d < dims; d++) fits = shape[d] == in->shape[d];
    if (!fits)
        die("%s: %s is %s, but a sample of '%s' is %s: its rows, along the first dimension, must be samples", f.path,
            what, got, in->name, want);
    if (floats && !host_dtype_float(in->dtype))
        die("%s: %s holds numbers with a fraction, and '%s' is %s; write it as integers", f.path, what, in->name,
            host_dtype_name(in->dtype));
    f.fd = sc_open_input(f.path, &st, why, sizeof why);
    if (f.fd < 0) die("%s: %s", f.path, why);
    f.device = st.st_dev;
    f.inode = st.st_ino;
    f.path = need_text("%s", f.path);
    f.is_signed = f.kind == 'i';
    f.input = input;
    f.windows = shape[0];
    f.tokens = 1;
    for (int d = 0; d < dims; d++) f.tokens *= (uint64_t)shape[d];
    TokenSet *s = o->set;
    s->files = realloc(s->files, (size_t)(s->n + 1) * sizeof f);
    if (!s->files) die("out of memory for a list of files");
    int at = s->n++;
    for (; at && s->files[at - 1].input > input; at--) s->files[at] = s->files[at - 1]; /* by input, then as named */
    s->files[at] = f;
    free(got);
    free(want);
}

static void add_npy(const Opening *o, int fd, const char *path, const char *what, int input, uint64_t at,
                    uint64_t size) {
    uint8_t head[SC_FORMAT_HEAD];
    char why[NPY_ERROR];
    Npy a;
    uint64_t n = size < sizeof head ? size : sizeof head, bytes;
    if (!sc_read_at(fd, head, n, at)) die("%s: cannot read it: %s", path, strerror(errno));
    if (n < 6 || memcmp(head, "\x93NUMPY", 6)) die("%s: %s is no array of NumPy: write it with numpy.save", path, what);
    if (!npy_read(&a, head, n, why)) die("%s: %s: %s", path, what, why);
    bool known = (a.kind == 'f' && a.width <= 8 && a.width >= 2) || a.kind == 'b' || a.kind == 'i' || a.kind == 'u';
    if (!known || a.width > 8)
        die("%s: %s has dtype '%c%d', which is no number: save it as integers or floats", path, what, a.kind, a.width);
    if (a.fortran && a.dims > 1) die("%s: %s lies in Fortran order: save numpy.ascontiguousarray(x)", path, what);
    bool huge = __builtin_mul_overflow((uint64_t)a.numel, (uint64_t)a.width, &bytes) || bytes > size - a.at;
    if (huge || bytes != size - a.at)
        die("%s: %s has %llu bytes of elements, and its header says %lld elements of %d: truncated, or damaged", path,
            what, (unsigned long long)(size - a.at), (long long)a.numel, a.width);
    TokenFile f = {.path = (char *)path, .width = a.width, .kind = a.kind, .big_endian = a.big_endian, .at = at + a.at};
    add_array(o, f, what, input, a.dims, a.shape);
}

static int input_named(const sc_build *b, const char *name) {
    for (int i = 0; i < b->ninputs; i++)
        if (!b->inputs[i].sample_only && !strcmp(b->inputs[i].name, name)) return i;
    return -1;
}

/* Arrays that no input is named after are left out: files carry more than one model reads. What attention needs may be
 * among them (documents), so it is told, of the first file. */
static void leave_out(const char *path, const char *name) {
    note("%s: '%s' is left out: no input of the model has this name", path, name);
}

static void add_npz(const Opening *o, int fd, const char *path, uint64_t size) {
    NpzMember *members;
    char why[NPZ_ERROR];
    int n = npz_members(fd, size, &members, why);
    bool tells = !o->set->n;
    if (n < 0) die("%s: %s", path, why);
    for (int i = 0; i < n; i++) {
        int input = input_named(o->b, members[i].name);
        char *what = need_text("'%s'", members[i].name);
        if (input >= 0)
            add_npy(o, fd, path, what, input, members[i].at, members[i].size);
        else if (tells)
            leave_out(path, members[i].name);
        free(what);
    }
    npz_free(members, n);
}

static void add_safetensors(const Opening *o, const char *path) {
    static const struct {
        const char *dtype;
        char kind;
        int width;
    } known[] = {{"F64", 'f', 8}, {"F32", 'f', 4}, {"F16", 'f', 2}, {"BF16", 'B', 2}, {"I64", 'i', 8},
                 {"I32", 'i', 4}, {"I16", 'i', 2}, {"I8", 'i', 1},  {"U64", 'u', 8},  {"U32", 'u', 4},
                 {"U16", 'u', 2}, {"U8", 'u', 1},  {"BOOL", 'b', 1}};
    StFile st;
    char why[ST_ERROR];
    bool tells = !o->set->n;
    if (!st_open(&st, path, why)) die("%s: %s", path, why);
    for (const StTensor *t = st.tensors; t < st.tensors + st.n; t++) {
        size_t k = 0;
        int input = input_named(o->b, t->name);
        if (input < 0) {
            if (tells) leave_out(path, t->name);
            continue;
        }
        while (k < sizeof known / sizeof *known && strcmp(known[k].dtype, t->dtype)) k++;
        if (k == sizeof known / sizeof *known)
            die("%s: '%s' is %s, which is not read as data: save it as integers or floats", path, t->name, t->dtype);
        TokenFile f = {
            .path = (char *)path, .width = known[k].width, .kind = known[k].kind, .at = st.data_at + t->begin};
        char *what = need_text("'%s'", t->name);
        add_array(o, f, what, input, t->dims, t->shape);
        free(what);
    }
    st_close(&st);
}

static void add_file(const Opening *o, int input, const char *path) {
    struct stat st;
    char why[DATA_ERROR / 2];
    uint8_t head[SC_FORMAT_HEAD];
    int fd = sc_open_input(path, &st, why, sizeof why);
    if (fd < 0) die("%s: %s", path, why);
    ssize_t n = pread(fd, head, sizeof head, 0);
    const sc_format *f = n > 0 ? sc_format_of(head, (size_t)n) : NULL;
    if (input >= 0)
        add_npy(o, fd, path, "the file", input, 0, (uint64_t)st.st_size);
    else if (f && f->also == sc_format_npz)
        add_npz(o, fd, path, (uint64_t)st.st_size);
    else
        add_safetensors(o, path);
    close(fd);
}

static void add_named(const Opening *o, const char *name) {
    const char *pattern;
    int input = input_of(o->b, name, &pattern);
    glob_t g;
    if (access(pattern, F_OK) == 0) {
        add_file(o, input, pattern);
        return;
    }
    if (glob(pattern, GLOB_TILDE, NULL, &g)) die("%s: no such file (%s %s)", pattern, o->option, name);
    for (size_t i = 0; i < g.gl_pathc; i++) add_file(o, input, g.gl_pathv[i]);
    globfree(&g);
}

TokenSet arrays_open(const sc_build *b, const char *option, char *const *names, int n, int64_t batch) {
    TokenSet s = {.arrays = true, .windows = -1};
    Opening o = {&s, b, option};
    const char *first = NULL;
    for (int i = 0; i < n; i++) add_named(&o, names[i]);
    for (int i = 0; i < b->ninputs; i++) {
        const sc_input_info *in = &b->inputs[i];
        int64_t rows = 0;
        bool there = false;
        if (in->sample_only) continue;
        if (!in->dims || in->shape[0] != batch)
            die("%s: the first dimension of input '%s' is not the batch of %lld samples, so it has no rows; feed "
                "records "
                "(--data -)",
                option, in->name, (long long)batch);
        for (TokenFile *f = s.files; f < s.files + s.n; f++) {
            if (f->input != i) continue;
            f->first = rows;
            rows += f->windows;
            s.tokens += f->tokens;
            there = true;
        }
        if (!there)
            die("%s: no array of input '%s'; give %s=FILE.npy, or a .npz or safetensors file with an array of that "
                "name",
                option, in->name, in->name);
        if (s.windows < 0) s.windows = rows, first = in->name;
        if (rows != s.windows)
            die("%s: '%s' has %lld rows, and '%s' has %lld: a sample is a row of each", option, first,
                (long long)s.windows, in->name, (long long)rows);
    }
    if (s.windows < 0) s.windows = 0;
    return s;
}

/* ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static uint64_t bits_of(const TokenFile *f, const uint8_t *p) {
    uint64_t x = 0;
    for (int i = 0; i < f->width; i++) x |= (uint64_t)p[f->big_endian ? f->width - 1 - i : i] << 8 * i;
    return x;
}

static double real_of(const TokenFile *f, uint64_t bits) {
    sc_dtype d = f->kind == 'B' ? BF16 : f->width == 2 ? FP16 : f->width == 4 ? FP32 : FP64;
    return host_get(d, &bits, 0);
}

/* One beyond int64 becomes its largest, which no input takes. */
static int64_t whole_of(const TokenFile *f, uint64_t bits) {
    int shift = 64 - 8 * f->width;
    if (f->kind == 'b') return bits != 0;
    if (f->is_signed) return (int64_t)(bits << shift) >> shift;
    return bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
}

void arrays_row(const TokenSet *s, const sc_build *b, int input, int64_t row, int64_t limit, void *dst, int64_t place) {
    const sc_input_info *in = &b->inputs[input];
    const TokenFile *f = s->files;
    uint8_t raw[CHUNK];
    int64_t n = 1, bound;
    while (f->input != input || row >= f->first + f->windows) f++;
    for (int d = 1; d < in->dims; d++) n *= in->shape[d];
    bool floats = f->kind == 'f' || f->kind == 'B';
    for (int64_t done = 0, k; done < n; done += k) {
        k = n - done < CHUNK / f->width ? n - done : CHUNK / f->width;
        uint64_t at = (uint64_t)((row - f->first) * n + done);
        if (!sc_read_at(f->fd, raw, (uint64_t)(k * f->width), f->at + at * (uint64_t)f->width))
            die("%s: cannot read row %lld: the file was cut short during the run", f->path,
                (long long)(row - f->first));
        for (int64_t i = 0; i < k; i++) {
            uint64_t bits = bits_of(f, raw + i * f->width);
            if (floats) {
                double x = real_of(f, bits);
                if (isnan(x))
                    die("%s: row %lld of '%s' holds a NaN at element %lld (from 0); remove the row, or repair it",
                        f->path, (long long)(row - f->first), in->name, (long long)(done + i));
                host_put(in->dtype, dst, place * n + done + i, x);
                continue;
            }
            int64_t x = whole_of(f, bits);
            bool fits = in->dtype != INT32 || (x >= INT32_MIN && x <= INT32_MAX);
            if (!fits || !input_takes(b, input, limit, x, &bound))
                die("%s: row %lld of '%s' holds %lld at element %lld (from 0), outside 0..%lld: another tokenizer or "
                    "other classes than the model's",
                    f->path, (long long)(row - f->first), in->name, (long long)x, (long long)(done + i),
                    (long long)(fits ? bound - 1 : INT32_MAX));
            host_put_int(in->dtype, dst, place * n + done + i, x);
        }
    }
}
