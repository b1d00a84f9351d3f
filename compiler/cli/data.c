/* `shardc data`: files become byte-level tokens in llm.c's .bin format (256 int32: 20240520, 1, count; then uint16
 * each). Relies on: base. Relied on by: main.c; runtime/host reads what this writes. */
#include "../report/figures.h"
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MAGIC = 20240520, HEADER = 256, CHUNK = 1 << 16 };

static void check_input(const char *path) {
    struct stat in;
    if (stat(path, &in)) fail(NOWHERE, "cannot read %s: %s", path, strerror(errno));
    if (S_ISDIR(in.st_mode))
        fail(NOWHERE, "cannot read %s: it is a folder; name its files, for example %s/*.txt", path, path);
    input_add(path);
}

/* A name of an input comes easily behind -o where a pattern stands for many. */
static void keep_others(const char *out) {
    unsigned char h[4] = {0};
    struct stat st;
    if (stat(out, &st) || !S_ISREG(st.st_mode) || !st.st_size) return;
    FILE *f = fopen(out, "rb");
    if (!f) fail(NOWHERE, "cannot read %s, which is there already: %s", out, strerror(errno));
    bool tokens = fread(h, 1, sizeof h, f) == sizeof h && (h[0] | h[1] << 8 | h[2] << 16 | h[3] << 24) == MAGIC;
    fclose(f);
    if (!tokens)
        fail(NOWHERE, "%s is there already, and holds no tokens: it stays as it is; give another name with -o", out);
}

static void put_tokens(FILE *to, const unsigned char *bytes, size_t n) {
    unsigned char out[2 * CHUNK];
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = bytes[i];
        out[2 * i + 1] = 0;
    }
    fwrite(out, 2, n, to);
}

static int64_t added(int64_t tokens, int64_t more) {
    if (more > INT32_MAX - tokens)
        fail(NOWHERE,
             "more than %d tokens, which one .bin file cannot hold; make several: the loader reads train_*.bin",
             INT32_MAX);
    return tokens + more;
}

/* What is too large is refused before it is read, where its size is known. */
static int64_t copy_file(FILE *to, const char *path, int64_t tokens) {
    unsigned char in[CHUNK];
    struct stat st;
    FILE *f = input_open(NOWHERE, path, &st);
    if (S_ISREG(st.st_mode)) added(tokens, st.st_size);
    for (size_t n; (n = fread(in, 1, sizeof in, f)) > 0; tokens = added(tokens, (int64_t)n)) put_tokens(to, in, n);
    if (ferror(f)) fail(NOWHERE, "cannot read %s: %s", path, strerror(errno));
    fclose(f);
    return tokens;
}

static void put_header(FILE *f, int64_t tokens) {
    unsigned char h[HEADER * 4] = {0};
    const uint32_t words[3] = {MAGIC, 1, (uint32_t)tokens};
    for (int i = 0; i < 12; i++) h[i] = (unsigned char)(words[i / 4] >> 8 * (i % 4));
    fwrite(h, 1, sizeof h, f);
}

int command_data(Arena *a, const Options *o) {
    if (!o->out) fail_usage("data wants the name of its output: shardc data FILE... -o train.bin");
    for (int i = 0; i < o->ninputs; i++) check_input(o->inputs[i]);
    input_keep(o->out);
    keep_others(o->out);
    OutFile out = out_open(a, o->out);
    if (!out.temp)
        fail(NOWHERE, "cannot write %s: the count of tokens goes to its beginning, so it must be a regular file",
             o->out);
    int64_t tokens = 0;
    put_header(out.f, 0);
    for (int i = 0; i < o->ninputs; i++) {
        int64_t before = tokens;
        tokens = copy_file(out.f, o->inputs[i], tokens);
        if (tokens > before && o->separator >= 0 && i + 1 < o->ninputs) {
            const unsigned char s[2] = {(unsigned char)o->separator, (unsigned char)(o->separator >> 8)};
            fwrite(s, 1, 2, out.f);
            tokens = added(tokens, 1);
        }
    }
    if (!tokens) fail(NOWHERE, "no tokens to write: %s is empty", o->ninputs == 1 ? o->inputs[0] : "every file given");
    if (fseeko(out.f, 0, SEEK_SET)) fail(NOWHERE, "cannot write %s: %s", o->out, strerror(errno));
    put_header(out.f, tokens);
    out_commit(&out);
    printf("%s: %s tokens from %d file%s, a byte each\n", o->out, figure_grouped(a, (double)tokens), o->ninputs,
           o->ninputs == 1 ? "" : "s");
    return 0;
}
