/* Prints identifiers, literals, comments and amounts as C.
 * Relies on: text.h.
 * Relied on by: the rest of emit/. */
#include "text.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

void text_name(Str *t, const char *s) {
    if (isdigit((unsigned char)s[0])) str_add(t, "_");
    size_t from = t->n;
    str_add(t, s);
    for (char *p = t->s + from; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_') *p = '_';
}

/* Octal escapes end after three digits, so no following character can be drawn in; "?" is escaped against trigraphs. */
void text_in_string(Str *t, const char *s) {
    static const bool special[256] = {[0 ... 31] = true, ['"'] = true, ['\\'] = true, ['?'] = true, [127] = true};
    for (;; s++) {
        const char *from = s;
        while (!special[(unsigned char)*s]) s++;
        str_bytes(t, from, (size_t)(s - from));
        if (!*s) return;
        str_addf(t, "\\%03o", (unsigned char)*s);
    }
}

void text_string(Str *t, const char *s) {
    str_add(t, s ? "\"" : "NULL");
    if (!s) return;
    text_in_string(t, s);
    str_add(t, "\"");
}

void text_comment(Str *t, const char *s) {
    size_t from = t->n;
    str_add(t, s ? s : "");
    for (char *p = t->s + from; *p; p++) {
        if ((p[0] == '*' && p[1] == '/') || (p[0] == '/' && p[1] == '*')) p[1] = ' ';
        if ((unsigned char)*p < 32) *p = ' ';
    }
}

void text_float(Str *t, double x) {
    char out[400];
    if (isnan(x)) return str_add(t, "__builtin_nan(\"\")");
    if (isinf(x)) return str_add(t, x > 0 ? "__builtin_inf()" : "-__builtin_inf()");
    int digits = 6; /* the fewest that read back as the same number */
    do snprintf(out, sizeof out, "%.*g", digits++, x);
    while (strtod(out, NULL) != x);
    str_add(t, out);
    if (!strpbrk(out, ".e")) str_add(t, ".0");
}

void text_single(Str *t, float x) {
    char out[400];
    int digits = 6;
    do snprintf(out, sizeof out, "%.*g", digits++, (double)x);
    while ((float)strtod(out, NULL) != x);
    str_add(t, out);
}

void text_int(Str *t, int64_t x) {
    if (x == INT64_MIN)
        str_add(t, "INT64_MIN");
    else
        str_int(t, x);
}

void text_flags(Str *t, const char *const *words, uint64_t x) {
    const char *between = "";
    for (; x; x >>= 1, words++) {
        if (!(x & 1)) continue;
        str_add(t, between);
        str_add(t, *words);
        between = " | ";
    }
}

const char *c_name(Arena *a, const char *s) {
    Str t = {.arena = a};
    text_name(&t, s);
    return t.s;
}

const char *c_string(Arena *a, const char *s) {
    Str t = {.arena = a};
    text_string(&t, s);
    return t.s;
}

const char *c_comment(Arena *a, const char *s) {
    Str t = {.arena = a};
    text_comment(&t, s);
    return t.s;
}

const char *c_float(Arena *a, double x) {
    Str t = {.arena = a};
    text_float(&t, x);
    return t.s;
}

const char *c_dtype(Dtype d) {
#define ID(ID, ...) #ID,
    static const char *const names[] = {SC_DTYPES(ID)};
#undef ID
    return names[d];
}

const char *c_stream(Stream s) {
#define ID(ID, ...) #ID,
    static const char *const names[] = {SC_STREAM_LIST(ID)};
#undef ID
    return names[s];
}

void text_amount(Str *t, double x, const char *unit, double base, const char *const *scales) {
    int k = 0;
    while (x >= base * 0.9995 && k < 4) {
        x /= base;
        k++;
    }
    str_addf(t, k ? "%.1f %s%s" : "%.0f %s%s", x, scales[k], unit);
}

void text_size(Str *t, double bytes) {
    text_amount(t, bytes, "B", 1024, (const char *const[]){"", "Ki", "Mi", "Gi", "Ti"});
}
