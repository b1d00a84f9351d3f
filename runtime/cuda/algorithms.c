/* Tables of matmul algorithms as text.
 * Relies on: algorithms.h; the assembler's .incbin, run from the repository's root.
 * Relied on by: rank.c, calibrate/. */
#include "algorithms.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

__asm__(".section .rodata\n"
        ".globl sc_algorithms_built_in, sc_algorithms_built_in_end\n"
        "sc_algorithms_built_in:\n"
        ".incbin \"compiler/devices/h200.algorithms\"\n"
        "sc_algorithms_built_in_end:\n"
        ".byte 0\n"
        ".previous\n");

/* Every field of a key, in the order of a line: its offset, and whether it has eight bytes or one. */
#define WIDE(field)                                                                                                    \
    { offsetof(sc_matmul_key, field), 8 }
#define NARROW(field)                                                                                                  \
    { offsetof(sc_matmul_key, field), 1 }
static const struct {
    size_t at, size;
} fields[] = {
    WIDE(m),         WIDE(n),         WIDE(k),         WIDE(lda),       WIDE(ldb),
    WIDE(ldy),       WIDE(batches),   WIDE(stride_a),  WIDE(stride_b),  WIDE(stride_y),
    WIDE(workspace), NARROW(in),      NARROW(out),     NARROW(ta),      NARROW(tb),
    NARROW(bias),    NARROW(align_a), NARROW(align_b), NARROW(align_y), NARROW(align_bias),
    NARROW(add),     NARROW(f),       NARROW(align_c),
};
static const char *const scale_words[] = {[SC_MATMUL_BLOCKS] = "blocks", [SC_MATMUL_SQUARES_B] = "squares"};
enum { FIELDS = sizeof fields / sizeof *fields, WORDS = 8 };

static bool read_entry(const char *line, sc_matmul_choice *c) {
    char *end;
    memset(c, 0, sizeof *c);
    for (int i = 0; i < FIELDS; i++) {
        int64_t x = strtoll(line, &end, 10);
        if (end == line || (fields[i].size == 1 && (x < 0 || x > 255))) return false;
        if (fields[i].size == 1)
            *((uint8_t *)&c->key + fields[i].at) = (uint8_t)x;
        else
            memcpy((char *)&c->key + fields[i].at, &x, sizeof x);
        line = end;
    }
    for (int i = 0; i < WORDS; i++) {
        c->algorithm[i] = strtoull(line, &end, 16);
        if (end == line) return false;
        line = end;
    }
    line += strspn(line, " ");
    if (!strncmp(line, "apart", 5)) c->apart = 1, line += 5;
    for (int i = 1; i < (int)(sizeof scale_words / sizeof *scale_words); i++)
        if (!strncmp(line, scale_words[i], strlen(scale_words[i])))
            c->key.scales = (uint8_t)i, line += strlen(scale_words[i]);
    line += strspn(line, " \r");
    return !*line || *line == '#';
}

bool sc_algorithms_has(const sc_algorithms *t, const sc_matmul_key *key) {
    for (int i = 0; i < t->n; i++)
        if (!memcmp(&t->at[i].key, key, sizeof *key)) return true;
    return false;
}

void sc_algorithms_add(sc_algorithms *t, const sc_matmul_choice *c) {
    if (sc_algorithms_has(t, &c->key)) return;
    if (!(t->n & (t->n - 1))) { /* a power of two: full */
        sc_matmul_choice *more = realloc(t->at, sizeof *more * (size_t)(t->n ? 2 * t->n : 1));
        if (!more) sc_failed("malloc", "algorithms", "ENOMEM", "out of host memory", __FILE__, __LINE__);
        t->at = more;
    }
    t->at[t->n++] = *c;
    if (!t->hash) t->hash = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *c; i++) t->hash = (t->hash ^ ((const unsigned char *)c)[i]) * 1099511628211u;
}

int sc_algorithms_read(sc_algorithms *t, const char *text, size_t size, const char *gpu, int version) {
    bool for_gpu = false, for_version = false;
    const char *end = text + size;
    for (int number = 1; text < end; number++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        char line[1024];
        sc_matmul_choice c;
        size_t n = (size_t)((stop ? stop : end) - text);
        if (n >= sizeof line) return number;
        memcpy(line, text, n);
        line[n] = 0;
        text += n + 1;
        if (!line[strspn(line, " \r")] || *line == '#') continue;
        if (!strncmp(line, "gpu ", 4))
            for_gpu = !strcmp(line + 4, gpu);
        else if (!strncmp(line, "cublaslt ", 9))
            for_version = atoi(line + 9) == version;
        else if (!read_entry(line, &c))
            return number;
        else if (for_gpu && for_version)
            sc_algorithms_add(t, &c);
    }
    return 0;
}

void sc_algorithms_header(FILE *f, const char *gpu, int version) {
    fprintf(f, "gpu %s\ncublaslt %d\n", gpu, version);
}

void sc_algorithms_entry(FILE *f, const sc_matmul_choice *c, const char *remark) {
    for (int i = 0; i < FIELDS; i++) {
        int64_t x = *((const uint8_t *)&c->key + fields[i].at);
        if (fields[i].size == 8) memcpy(&x, (const char *)&c->key + fields[i].at, sizeof x);
        fprintf(f, "%" PRId64 " ", x);
    }
    for (int i = 0; i < WORDS; i++) fprintf(f, "%016" PRIx64 " ", c->algorithm[i]);
    fprintf(f, "%s%s%s# %s\n", c->apart ? "apart " : "", c->key.scales ? scale_words[c->key.scales] : "",
            c->key.scales ? " " : "", remark);
}
