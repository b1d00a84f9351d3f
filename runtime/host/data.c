/* Token files. llm.c: a header of 256 int32 (magic, version, tokens), then tokens: magic 20240520 version 1 holds
 * uint16, magic 20240801 version 7 uint32. LLM.Q: "BIN.TOK\n" and the same, of int32. NumPy: an array of integers, its
 * header first. Megatron: raw tokens, their type in the .idx beside. nanoGPT: raw tokens. Files are read with pread, so
 * one that shrinks under a run gives a message and not a signal. Relies on: schema/formats.h, npy, shuffle, die.
 * Relied on by: loader, main, the fuzzer. */
#include "data.h"
#include "../file.h"
#include "../schema/formats.h"
#include "die.h"
#include "npy.h"
#include "shuffle.h"
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { VERSION_UINT16 = 1, VERSION_UINT32 = 7, FIRST_BYTES = 12, CHUNK = 1 << 16, READ_BYTES = 1 << 15 };

#define WRONG(...) (snprintf(error, DATA_ERROR, __VA_ARGS__), false)

/* ── one file ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int32_t word(const uint8_t *head, int i) {
    return (int32_t)sc_format_word(head + 4 * i);
}

/* From f->at on there are f->tokens tokens, and nothing after them. */
static bool check_size(const TokenFile *f, uint64_t size, char *error) {
    uint64_t bytes, end;
    bool huge =
        __builtin_mul_overflow(f->tokens, (uint64_t)f->width, &bytes) || __builtin_add_overflow(bytes, f->at, &end);
    if (huge) return WRONG("its header says %llu tokens: damaged", (unsigned long long)f->tokens);
    if (size == end) return true;
    return WRONG("its header says %llu tokens of %d bytes, which is %llu bytes, but it has %llu: %s",
                 (unsigned long long)f->tokens, f->width, (unsigned long long)end, (unsigned long long)size,
                 size < end ? "truncated; copy it again" : "something was appended; write it again");
}

static bool check_llmc(TokenFile *f, const uint8_t *head, uint64_t size, bool half, char *error) {
    if (size < BIN_HEADER) return WRONG("%llu bytes, less than an llm.c header: truncated", (unsigned long long)size);
    int version = half ? VERSION_UINT16 : VERSION_UINT32;
    f->width = half ? 2 : 4;
    f->at = BIN_HEADER;
    if (word(head, 1) != version)
        return WRONG("an llm.c token file of version %d; this program reads version %d: write it again with llm.c's "
                     "current scripts or `shardc data`",
                     word(head, 1), version);
    if (word(head, 2) < 0) return WRONG("its header claims %d tokens: damaged", word(head, 2));
    f->tokens = (uint64_t)word(head, 2);
    return check_size(f, size, error);
}

/* "BIN.TOK\n", then int32: version, bytes a token, tokens; from version 2 on vocabulary, and whether masks follow. */
static bool check_llmq(TokenFile *f, const uint8_t *head, uint64_t size, char *error) {
    if (size < BIN_HEADER) return WRONG("%llu bytes, less than an LLM.Q header: truncated", (unsigned long long)size);
    int version = word(head, 2);
    if (version < 1 || version > 2)
        return WRONG("an LLM.Q token file of version %d; this program reads 1 and 2: write its tokens with numpy.save",
                     version);
    if (version == 2 && word(head, 6) == 1)
        return WRONG("an LLM.Q token file with masks, which this program does not read: write its tokens with "
                     "numpy.save, or feed records (--data -)");
    if (word(head, 3) != 4 || word(head, 4) < 0)
        return WRONG("its header claims %d tokens of %d bytes: damaged", word(head, 4), word(head, 3));
    f->width = 4;
    f->is_signed = true;
    f->at = BIN_HEADER;
    f->tokens = (uint64_t)word(head, 4);
    return check_size(f, size, error);
}

static bool check_npy(TokenFile *f, const uint8_t *head, uint64_t n, uint64_t size, char *error) {
    Npy a;
    char why[NPY_ERROR];
    int long_dims = 0;
    if (!npy_read(&a, head, n, why)) return WRONG("an array of NumPy: %s", why);
    bool fits = a.width == 1 || a.width == 2 || a.width == 4 || a.width == 8;
    if ((a.kind != 'i' && a.kind != 'u') || !fits)
        return WRONG("an array of NumPy of dtype %s'%c%d', not of integers: save tokens as x.astype(numpy.uint32)",
                     a.big_endian ? "big-endian " : "", a.kind, a.width);
    for (int i = 0; i < a.dims; i++) long_dims += a.shape[i] != 1;
    if (a.fortran && long_dims > 1)
        return WRONG("an array of NumPy in Fortran order, whose rows do not lie one after the other: save "
                     "numpy.ascontiguousarray(x)");
    f->width = a.width;
    f->is_signed = a.kind == 'i';
    f->big_endian = a.big_endian;
    f->at = a.at;
    f->tokens = (uint64_t)a.numel;
    f->row = long_dims > 1 ? a.shape[a.dims - 1] : 0;
    return check_size(f, size, error);
}

/* Megatron: NAME.idx beside NAME.bin says the type of its tokens (magic, version 1, a code; then how many sequences and
 * documents; lengths and byte offsets of the sequences). false and no error: there is none. */
static bool check_megatron(TokenFile *f, uint64_t size, char *error) {
    static const char widths[] = {0, 1, 1, 2, 4, 8, 0, 0, 2}; /* by code; 6 and 7 are floats */
    size_t stem = strlen(f->path);
    uint8_t h[34], last[8], length[4];
    struct stat st;
    char why[DATA_ERROR / 2];
    if (stem < 4 || strcmp(f->path + stem - 4, ".bin")) return false;
    char *path = need_text("%.*s.idx", (int)stem - 4, f->path);
    int fd = sc_open_input(path, &st, why, sizeof why);
    free(path);
    bool good = fd >= 0 && sc_read_at(fd, h, sizeof h, 0) && !memcmp(h, "MMIDIDX\0", 9);
    if (!good) {
        if (fd >= 0) close(fd);
        return false;
    }
    uint64_t version, sequences, end = 0;
    memcpy(&version, h + 9, 8);
    memcpy(&sequences, h + 18, 8);
    int code = h[17];
    f->width = code < (int)sizeof widths ? widths[code] : 0;
    f->is_signed = code != 1 && code != 8;
    good = version == 1 && sequences > 0 && sequences <= (uint64_t)st.st_size / 12 &&
           sc_read_at(fd, length, 4, sizeof h + 4 * (sequences - 1)) &&
           sc_read_at(fd, last, 8, sizeof h + 4 * sequences + 8 * (sequences - 1));
    close(fd);
    if (!good) return WRONG("the .idx beside it, Megatron's, is damaged or not of version 1: write both again");
    if (!f->width) return WRONG("the .idx beside it says that it holds no integers: write its tokens again");
    memcpy(&end, last, 8);
    end += (uint64_t)sc_format_word(length) * (uint64_t)f->width;
    if (end != size)
        return WRONG("the .idx beside it says %llu bytes, but it has %llu: truncated, or another file's .idx",
                     (unsigned long long)end, (unsigned long long)size);
    f->tokens = size / (uint64_t)f->width;
    f->what = "Megatron's data";
    return true;
}

/* What the first bytes say the file is. */
static bool check_file(TokenFile *f, uint64_t size, int width, char *error) {
    uint8_t head[SC_FORMAT_HEAD] = {0};
    uint64_t n = size < FIRST_BYTES ? size : FIRST_BYTES;
    if (size == 0) return WRONG("an empty file");
    if (!sc_read_at(f->fd, head, n, 0)) return WRONG("cannot read it: %s", strerror(errno));
    for (ssize_t got = 1; got > 0 && n < sizeof head;
         n += (uint64_t)got) /* a file of the kernel has less than its size */
        if ((got = pread(f->fd, head + n, sizeof head - n, (off_t)n)) < 0) got = 0;
    const sc_format *format = sc_format_of(head, n);
    sc_form form = format ? format->form : SC_FOREIGN;
    if (format && SC_FORM_TOKENS(form)) {
        f->what = format->name;
        return form == SC_NPY    ? check_npy(f, head, n, size, error)
               : form == SC_LLMQ ? check_llmq(f, head, size, error)
                                 : check_llmc(f, head, size, form == SC_LLMC16, error);
    }
    if (format) return WRONG("it is %s, and not tokens: %s", format->name, format->remedy);
    uint64_t claimed = n >= BIN_HEADER && word(head, 2) > 0 ? (uint64_t)word(head, 2) : 0;
    if (claimed && (size == BIN_HEADER + 2 * claimed || size == BIN_HEADER + 4 * claimed))
        return WRONG(
            "it begins with %d, not 20240520 or 20240801, and goes on like an llm.c token file of %llu tokens: "
            "damaged, or of another version; write it again",
            word(head, 0), (unsigned long long)claimed);
    *error = 0;
    if (check_megatron(f, size, error)) return true;
    if (*error) return false;
    const char *name = basename(f->path);
    bool is16 = strstr(name, "uint16") || strstr(name, ".u16"), is32 = strstr(name, "uint32") || strstr(name, ".u32");
    f->width = width ? width : is16 ? 2 : is32 ? 4 : 0;
    if (!f->width)
        return WRONG(
            "not an llm.c token file (it begins with %d, not 20240520 or 20240801); if it holds raw tokens say "
            "--data-dtype uint16 or uint32; `shardc data FILE... -o train.bin` makes tokens from text",
            word(head, 0));
    if (size % (uint64_t)f->width)
        return WRONG("its %llu bytes are not a whole number of uint%d tokens: truncated, or another --data-dtype",
                     (unsigned long long)size, f->width * 8);
    f->tokens = size / (uint64_t)f->width;
    return true;
}

/* Raw tokens read in the wrong width, by the first of them: of uint32 read as uint16 every other one is 0 to 2, the
 * upper half of a token up to 196607; of uint16 read as uint32 most are above any vocabulary. */
static bool check_width(const TokenFile *f, char *error) {
    uint16_t x[1 << 12];
    int64_t n = f->tokens * (uint64_t)f->width < sizeof x ? (int64_t)(f->tokens * (uint64_t)f->width / 4) : 1 << 11;
    int64_t high = 0, low = 0, large = 0;
    if (f->at || n < 32 || !sc_read_at(f->fd, x, (uint64_t)n * 4, 0)) return true; /* who reads on says why it cannot */
    for (int64_t i = 0; i < n; i++) {
        low += x[2 * i] > 2;
        high += x[2 * i + 1] > 2;
        large += x[2 * i + 1] >= 1 << 4;
    }
    if (f->width == 2 && !high && low > n / 4 && f->tokens % 2 == 0)
        return WRONG(
            "every other of its uint16 tokens is 0, 1 or 2: it holds uint32, it seems; say --data-dtype uint32");
    if (f->width == 4 && large > n / 2)
        return WRONG("most of its uint32 tokens are above 1048575: it holds uint16, it seems; say --data-dtype uint16");
    return true;
}

bool token_file_open(TokenFile *f, const char *path, int width, char error[DATA_ERROR]) {
    char why[DATA_ERROR / 2];
    struct stat st;
    *f = (TokenFile){.fd = sc_open_input(path, &st, why, sizeof why)};
    if (f->fd < 0)
        return WRONG("%s%s", why,
                     errno == EISDIR   ? "; quote a pattern such as 'DIR/*.bin'"
                     : errno == ESPIPE ? "; records from a pipe come with --data -"
                                       : "");
    f->device = st.st_dev;
    f->inode = st.st_ino;
    f->path = need_text("%s", path);
    if (check_file(f, (uint64_t)st.st_size, width, error) && check_width(f, error)) return true;
    token_file_close(f);
    return false;
}

void token_file_close(TokenFile *f) {
    if (f->fd >= 0) close(f->fd);
    free(f->path);
    *f = (TokenFile){.fd = -1};
}

/* The integer there; one beyond int64 as its largest. */
static int64_t element(const TokenFile *f, const uint8_t *p) {
    uint64_t x = 0;
    int shift = 64 - 8 * f->width;
    for (int i = 0; i < f->width; i++) x |= (uint64_t)p[f->big_endian ? f->width - 1 - i : i] << 8 * i;
    if (f->is_signed) return (int64_t)(x << shift) >> shift;
    return x > INT64_MAX ? INT64_MAX : (int64_t)x;
}

bool token_read(const TokenFile *f, uint64_t at, int64_t n, uint32_t *out) {
    uint8_t raw[READ_BYTES];
    if (at + (uint64_t)n > f->tokens) return false;
    for (int64_t k; n > 0; n -= k, at += (uint64_t)k) {
        k = n < READ_BYTES / f->width ? n : READ_BYTES / f->width;
        if (!sc_read_at(f->fd, raw, (uint64_t)k * (uint64_t)f->width, f->at + at * (uint64_t)f->width)) return false;
        for (int64_t i = 0; i < k; i++) {
            int64_t x = element(f, raw + i * f->width);
            *out++ = x >= 0 && x < UINT32_MAX ? (uint32_t)x : UINT32_MAX;
        }
    }
    return true;
}

void token_refuse(const TokenFile *f, uint64_t at, const char *input, int64_t limit) {
    const char *quote = input ? "'" : "";
    uint8_t raw[8] = {0};
    sc_read_at(f->fd, raw, (uint64_t)f->width, f->at + at * (uint64_t)f->width);
    die("%s: token %llu is %lld, but %s%s%s ends at %lld: another tokenizer%s; or build with a larger `vocab`", f->path,
        (unsigned long long)at, (long long)element(f, raw), quote, input ? input : "the model's vocabulary", quote,
        (long long)limit - 1, f->what ? "" : ", or another --data-dtype");
}

/* ── several files ───────────────────────────────────────────────────────────────────────────────────────────────────
 */
static bool known(const TokenSet *s, const TokenFile *f) {
    for (int i = 0; i < s->n; i++)
        if (s->files[i].device == f->device && s->files[i].inode == f->inode) return true;
    return false;
}

static void add_file(TokenSet *s, const char *path, int width) {
    char error[DATA_ERROR];
    TokenFile f;
    if (!token_file_open(&f, path, width, error)) die("%s: %s", path, error);
    if (known(s, &f)) {
        token_file_close(&f);
        return;
    }
    if (f.row && !s->told_rows)
        note("%s: an array of rows of %lld tokens; they are read one after the other, and windows cross them", path,
             (long long)f.row);
    if (width && f.what && f.width != width && !s->told_width)
        note("%s: %s, %d bytes a token; --data-dtype holds for files that do not say it themselves", path, f.what,
             f.width);
    s->told_rows |= f.row != 0;
    s->told_width |= width && f.what && f.width != width;
    f.first = s->windows;
    f.windows = f.tokens >= (uint64_t)s->span ? (int64_t)(f.tokens - (uint64_t)s->span) / s->stride + 1 : 0;
    s->windows += f.windows;
    s->tokens += f.tokens;
    s->files = realloc(s->files, (size_t)(s->n + 1) * sizeof f);
    if (!s->files) die("out of memory for a list of files");
    s->files[s->n++] = f;
}

/* A name that exists is taken as it is, even where it has characters of a pattern. */
static void add_pattern(TokenSet *s, const char *option, const char *pattern, int width) {
    glob_t g;
    if (access(pattern, F_OK) == 0) {
        add_file(s, pattern, width);
        return;
    }
    int rc = glob(pattern, GLOB_TILDE, NULL, &g);
    if (rc == GLOB_NOSPACE) die("out of memory for the files of '%s'", pattern);
    if (rc != 0) die("%s: no such file; %s takes files or quoted patterns such as 'data/*.bin'", pattern, option);
    for (size_t i = 0; i < g.gl_pathc; i++) add_file(s, g.gl_pathv[i], width);
    globfree(&g);
}

TokenSet token_set_open(const char *option, char *const *patterns, int n, int width, int64_t span, int64_t stride) {
    TokenSet s = {.span = span, .stride = stride};
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* there may be many */
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    for (int i = 0; i < n; i++) add_pattern(&s, option, patterns[i], width);
    return s;
}

void token_set_close(TokenSet *s) {
    for (int i = 0; i < s->n; i++) token_file_close(&s->files[i]);
    free(s->files);
    *s = (TokenSet){0};
}

uint64_t token_set_left(const TokenSet *s) {
    uint64_t left = 0;
    if (s->arrays) return 0;
    for (const TokenFile *f = s->files; f < s->files + s->n; f++)
        left += f->tokens - (f->windows ? (uint64_t)((f->windows - 1) * s->stride + s->span) : 0);
    return left;
}

bool token_sets_share(const TokenSet *a, const TokenSet *b, const char **path) {
    for (int i = 0; i < a->n; i++)
        if (known(b, &a->files[i])) {
            *path = a->files[i].path;
            return true;
        }
    return false;
}

void token_set_scan(const TokenSet *s, int64_t limit) {
    uint64_t bytes = 0;
    for (int i = 0; i < s->n; i++) bytes += s->files[i].tokens * (uint64_t)s->files[i].width;
    if (limit <= 0 || bytes > SCAN_BYTES) return;
    uint32_t *buffer = need(CHUNK, sizeof *buffer);
    for (const TokenFile *f = s->files; f < s->files + s->n; f++) {
        if (!f->is_signed && f->width < 4 && limit > UINT16_MAX) continue; /* no token of it can be above */
        for (uint64_t at = 0; at < f->tokens; at += CHUNK) {
            int64_t n = f->tokens - at < CHUNK ? (int64_t)(f->tokens - at) : CHUNK, i = 0;
            if (!token_read(f, at, n, buffer))
                die("%s: cannot read token %llu: %s", f->path, (unsigned long long)at, strerror(errno));
            while (i < n && buffer[i] < limit) i++;
            if (i < n) token_refuse(f, at + (uint64_t)i, NULL, limit);
        }
    }
    free(buffer);
}

/* ── windows ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
void token_window(const TokenSet *s, int64_t window, uint32_t *out, const TokenFile **file, uint64_t *at) {
    int k = s->n - 1; /* the last file whose first window is not above: one without windows loses to the next */
    while (k > 0 && s->files[k].first > window) k--;
    const TokenFile *f = *file = &s->files[k];
    *at = (uint64_t)((window - f->first) * s->stride);
    if (!token_read(f, *at, s->span, out))
        die("%s: cannot read token %llu: the file was cut short during the run", f->path, (unsigned long long)*at);
}

int64_t token_order(const TokenSet *s, uint64_t seed, int64_t sample) {
    return shuffle_at(seed, (uint64_t)(sample / s->windows), s->windows, sample % s->windows);
}
