/* Token files. llm.c: a header of 256 int32 (magic, version, tokens), then tokens: magic 20240520 version 1 holds
 * uint16, magic 20240801 version 7 uint32. nanoGPT: raw tokens. Files are read with pread, so one that shrinks under a
 * run gives a message and not a signal. Relies on: shuffle, die. Relied on by: loader, main, the fuzzer. */
#include "data.h"
#include "../file.h"
#include "die.h"
#include "shuffle.h"
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MAGIC_UINT16 = 20240520, VERSION_UINT16 = 1, MAGIC_UINT32 = 20240801, VERSION_UINT32 = 7, CHUNK = 1 << 16 };

#define WRONG(...) (snprintf(error, DATA_ERROR, __VA_ARGS__), false)

/* ── one file ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* What the first bytes say the file is. */
static bool check_file(TokenFile *f, uint64_t size, int width, char *error) {
    int32_t head[3] = {0};
    if (size == 0) return WRONG("an empty file");
    if (!sc_read_at(f->fd, head, size < sizeof head ? size : sizeof head, 0))
        return WRONG("cannot read it: %s", strerror(errno));
    if (head[0] != MAGIC_UINT16 && head[0] != MAGIC_UINT32) {
        const char *name = basename(f->path);
        bool is16 = strstr(name, "uint16") || strstr(name, ".u16"),
             is32 = strstr(name, "uint32") || strstr(name, ".u32");
        f->width = width ? width : is16 ? 2 : is32 ? 4 : 0;
        if (!f->width)
            return WRONG("not an llm.c token file (it begins with %d, not %d or %d); if it holds raw tokens say "
                         "--data-dtype uint16 or uint32; `shardc data FILE... -o train.bin` makes tokens from text",
                         head[0], MAGIC_UINT16, MAGIC_UINT32);
        if (size % (uint64_t)f->width)
            return WRONG("its %llu bytes are not a whole number of uint%d tokens: truncated, or another --data-dtype",
                         (unsigned long long)size, f->width * 8);
        f->tokens = size / (uint64_t)f->width;
        return true;
    }
    if (size < BIN_HEADER) return WRONG("%llu bytes, less than an llm.c header: truncated", (unsigned long long)size);
    int version = head[0] == MAGIC_UINT16 ? VERSION_UINT16 : VERSION_UINT32;
    f->width = head[0] == MAGIC_UINT16 ? 2 : 4;
    f->at = BIN_HEADER;
    if (head[1] != version)
        return WRONG("an llm.c token file of version %d; this program reads version %d: write it again with llm.c's "
                     "current scripts or `shardc data`",
                     head[1], version);
    if (head[2] < 0) return WRONG("its header claims %d tokens: damaged", head[2]);
    f->tokens = (uint64_t)head[2];
    uint64_t expect = BIN_HEADER + f->tokens * (uint64_t)f->width;
    if (size != expect)
        return WRONG("its header says %llu tokens of uint%d, which is %llu bytes, but it has %llu: %s",
                     (unsigned long long)f->tokens, f->width * 8, (unsigned long long)expect, (unsigned long long)size,
                     size < expect ? "truncated; copy it again" : "something was appended; write it again");
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

bool token_read(const TokenFile *f, uint64_t at, int64_t n, uint32_t *out) {
    if (at + (uint64_t)n > f->tokens) return false;
    void *raw = f->width == 2 ? (void *)((uint16_t *)out + n) : out; /* the upper half; widened upwards below */
    if (!sc_read_at(f->fd, raw, (uint64_t)n * (uint64_t)f->width, f->at + at * (uint64_t)f->width)) return false;
    const uint16_t *half = (const uint16_t *)raw;
    if (f->width == 2)
        for (int64_t i = 0; i < n; i++) {
            uint16_t token;
            memcpy(&token, half + i, sizeof token);
            memcpy(out + i, &(uint32_t){token}, sizeof *out);
        }
    return true;
}

void token_refuse(const TokenFile *f, uint64_t at, int64_t token, const char *input, int64_t limit) {
    const char *quote = input ? "'" : "";
    die("%s: token %llu is %lld, but %s%s%s ends at %lld: another tokenizer, or another --data-dtype; or build with a "
        "larger `vocab`",
        f->path, (unsigned long long)at, (long long)token, quote, input ? input : "the model's vocabulary", quote,
        (long long)limit - 1);
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
        if (f->width == 2 && limit > UINT16_MAX) continue; /* no token of it can be above */
        for (uint64_t at = 0; at < f->tokens; at += CHUNK) {
            int64_t n = f->tokens - at < CHUNK ? (int64_t)(f->tokens - at) : CHUNK, i = 0;
            if (!token_read(f, at, n, buffer))
                die("%s: cannot read token %llu: %s", f->path, (unsigned long long)at, strerror(errno));
            while (i < n && buffer[i] < limit) i++;
            if (i < n) token_refuse(f, at + (uint64_t)i, buffer[i], NULL, limit);
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
