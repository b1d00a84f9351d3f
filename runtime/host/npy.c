/* The header of a .npy file: "\x93NUMPY", version, length, then a dict of Python in text: {'descr': '<u2',
 * 'fortran_order': False, 'shape': (4000,), }. Source: numpy.lib.format.
 * Relies on: schema/formats.h.
 * Relied on by: data. */
#include "npy.h"
#include "../schema/formats.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define WRONG(...) (snprintf(error, NPY_ERROR, __VA_ARGS__), false)

static void skip(const char **p) {
    while (**p == ' ' || **p == '\n' || **p == '\t') ++*p;
}

static bool take(const char **p, const char *word) {
    skip(p);
    size_t n = strlen(word);
    if (strncmp(*p, word, n)) return false;
    *p += n;
    return true;
}

/* 'TEXT' or "TEXT". */
static bool take_text(const char **p, char *to, size_t most) {
    skip(p);
    char quote = **p;
    if (quote != '\'' && quote != '"') return false;
    const char *begin = ++*p;
    while (**p && **p != quote) ++*p;
    size_t n = (size_t)(*p - begin);
    if (!**p || n >= most) return false;
    memcpy(to, begin, n);
    to[n] = 0;
    ++*p;
    return true;
}

/* (4000,) or (3, 4) or (): old versions of Python wrote 3L. */
static bool take_shape(const char **p, Npy *a) {
    if (!take(p, "(")) return false;
    while (!take(p, ")")) {
        char *end;
        skip(p);
        if (!isdigit((unsigned char)**p) || a->dims == NPY_DIMS) return false;
        errno = 0;
        int64_t n = strtoll(*p, &end, 10);
        if (errno || __builtin_mul_overflow(a->numel, n, &a->numel)) return false;
        a->shape[a->dims++] = n;
        *p = end + (*end == 'L');
        if (!take(p, ",")) return take(p, ")");
    }
    return true;
}

static bool take_dtype(const char **p, Npy *a) {
    char text[32];
    if (!take_text(p, text, sizeof text)) return false;
    const char *at = text + (*text && strchr("<>=|", *text) ? 1 : 0);
    char *end;
    a->big_endian = *text == '>';
    a->kind = *at;
    a->width = isdigit((unsigned char)at[*at != 0]) ? (int)strtol(at + 1, &end, 10) : 0;
    return *at != 0;
}

static bool parse(Npy *a, const char *p, char *error) {
    bool dtype = false, order = false, shape = false;
    char key[32];
    a->numel = 1;
    if (!take(&p, "{")) return WRONG("its header is no dict of Python: damaged");
    while (!take(&p, "}")) {
        if (!take_text(&p, key, sizeof key) || !take(&p, ":")) return WRONG("its header is no dict of Python: damaged");
        if (!dtype && !strcmp(key, "descr")) {
            skip(&p);
            if (*p == '[') return WRONG("it holds records of several fields, not tokens; save the field of tokens");
            dtype = take_dtype(&p, a);
            if (!dtype) return WRONG("the dtype in its header cannot be read: damaged");
        } else if (!order && !strcmp(key, "fortran_order")) {
            a->fortran = take(&p, "True");
            order = a->fortran || take(&p, "False");
            if (!order) return WRONG("'fortran_order' in its header is neither True nor False: damaged");
        } else if (!shape && !strcmp(key, "shape")) {
            shape = take_shape(&p, a);
            if (!shape) return WRONG("the shape in its header cannot be read: damaged");
        } else {
            return WRONG("its header has '%s', which does not belong there or is there twice: damaged", key);
        }
        if (take(&p, ",")) continue;
        if (!take(&p, "}")) return WRONG("its header is no dict of Python: damaged");
        break;
    }
    skip(&p);
    if (*p) return WRONG("its header goes on after the dict: damaged");
    if (!dtype || !order || !shape)
        return WRONG("its header lacks '%s': damaged", !dtype ? "descr" : !order ? "fortran_order" : "shape");
    return true;
}

bool npy_read(Npy *a, const uint8_t *head, size_t n, char error[NPY_ERROR]) {
    char text[SC_FORMAT_HEAD + 1] = "";
    *a = (Npy){0};
    if (n < 12) return WRONG("%zu bytes, less than a header: truncated", n);
    if (head[6] < 1 || head[6] > 3) return WRONG("version %d.%d, and this program reads 1.0 to 3.0", head[6], head[7]);
    size_t begin = head[6] > 1 ? 12 : 10, length = sc_format_word(head + 8) & (head[6] > 1 ? UINT32_MAX : 0xffff);
    if (begin + length > SC_FORMAT_HEAD) return WRONG("its header claims to have %zu bytes: damaged", length);
    if (begin + length > n) return WRONG("it ends within its header: truncated");
    memcpy(text, head + begin, length);
    if (strlen(text) != length) return WRONG("its header holds a NUL: damaged");
    a->at = begin + length;
    return parse(a, text, error);
}
