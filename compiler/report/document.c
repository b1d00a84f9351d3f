/* JSON to nodes in one pass. jansson's tree of a plan takes a memory allocation for each value and twice the time.
 * Relies on: document.h.
 * Relied on by: read.c. */
#include "document.h"

#include <math.h>
#include <setjmp.h>
#include <stdlib.h>

enum { MAX_DEPTH = 64 };
#define MAX_BYTES (((size_t)1 << 29) - 1) /* so that counts fit a node */

typedef struct {
    Arena *a;
    const char *start, *p, *end;
    JsonNode *nodes;
    size_t n;
    int depth;
    JsonError *error;
    jmp_buf bad;
} Parser;

_Noreturn static void bad(Parser *s, const char *at, const char *text) {
    int line = 1;
    const char *begin = s->start;
    for (const char *c = s->start; c < at; c++)
        if (*c == '\n') {
            line++;
            begin = c + 1;
        }
    *s->error = (JsonError){text, line, (int)(at - begin) + 1};
    longjmp(s->bad, 1);
}

/* What stands at p is not what belongs there. */
_Noreturn static void unexpected(Parser *s, const char *wanted) {
    unsigned char c = s->p < s->end ? (unsigned char)*s->p : 0;
    const char *found = s->p == s->end        ? "the end of the text"
                        : c > ' ' && c < 0x7f ? arena_printf(s->a, "'%c'", c)
                                              : arena_printf(s->a, "byte 0x%02x", c);
    bad(s, s->p, arena_printf(s->a, "unexpected token: %s is wanted, not %s", wanted, found));
}

static size_t add(Parser *s, JsonType type) {
    s->nodes[s->n] = (JsonNode){.type = type, .size = 1};
    return s->n++;
}

static void skip_space(Parser *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r')) s->p++;
}

static bool take(Parser *s, char c) {
    skip_space(s);
    if (s->p == s->end || *s->p != c) return false;
    s->p++;
    return true;
}

/* ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────── */
static bool is_digit(const Parser *s) {
    return s->p < s->end && *s->p >= '0' && *s->p <= '9';
}

/* Appends digits to *value as long as they fit below 2^53 (else sets *fits false); returns how many there are. */
static int digits(Parser *s, uint64_t *value, bool *fits) {
    const char *from = s->p;
    if (!is_digit(s)) unexpected(s, "a digit");
    for (; is_digit(s); s->p++) {
        *fits = *fits && *value < ((uint64_t)1 << 53) / 10;
        if (*fits) *value = *value * 10 + (uint64_t)(*s->p - '0');
    }
    return (int)(s->p - from);
}

static const char *token(Parser *s, const char *from) {
    size_t n = (size_t)(s->p - from);
    return memcpy(arena_alloc(s->a, n + 1), from, n);
}

/* A number below 2^53 over a power of ten up to 10^22, both exact: one division rounds as strtod does. */
static double real_of(Parser *s, const char *from, uint64_t value, bool fits, int places) {
    static const double tens[] = {1,    1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (fits && places < (int)(sizeof tens / sizeof *tens)) {
        double x = (double)value / tens[places];
        return *from == '-' ? -x : x;
    }
    char text[64];
    size_t n = (size_t)(s->p - from);
    if (n >= sizeof text) return strtod(token(s, from), NULL);
    memcpy(text, from, n);
    text[n] = 0;
    return strtod(text, NULL);
}

static int64_t integer_of(Parser *s, const char *from, uint64_t value, bool fits) {
    if (fits) return *from == '-' ? -(int64_t)value : (int64_t)value;
    int64_t x = 0;
    for (const char *c = from + (*from == '-'); c < s->p; c++)
        if (__builtin_mul_overflow(x, 10, &x) || __builtin_sub_overflow(x, *c - '0', &x))
            bad(s, from, "an integer that is too large");
    if (*from != '-' && x == INT64_MIN) bad(s, from, "an integer that is too large");
    return *from == '-' ? x : -x;
}

static void number(Parser *s) {
    const char *from = s->p;
    uint64_t value = 0;
    bool fits = true, real = false;
    int places = 0;
    if (*s->p == '-') s->p++;
    const char *first = s->p;
    digits(s, &value, &fits);
    if (*first == '0' && s->p - first > 1) bad(s, from, "a number with a leading zero");
    if (s->p < s->end && *s->p == '.') {
        s->p++;
        real = true;
        places = digits(s, &value, &fits);
    }
    if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
        s->p++;
        real = true;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-')) s->p++;
        digits(s, &(uint64_t){0}, &(bool){false});
        fits = false;
    }
    size_t at = add(s, real ? J_REAL : J_INTEGER);
    if (!real) {
        s->nodes[at].integer = integer_of(s, from, value, fits);
        return;
    }
    double x = real_of(s, from, value, fits, places);
    if (isinf(x)) bad(s, from, "a number that is too large");
    s->nodes[at].real = x;
}

/* ── strings ──────────────────────────────────────────────────────────────────────────────────────────────── */
/* Length of the UTF-8 sequence at c, of 2 to 4 bytes; 0: it is none (cut off, too long, a surrogate, above U+10FFFF).
 */
static int sequence(const char *c, const char *end) {
    const unsigned char *u = (const unsigned char *)c;
    int n = *u >= 0xc2 && *u < 0xe0 ? 2 : *u >= 0xe0 && *u < 0xf0 ? 3 : *u >= 0xf0 && *u < 0xf5 ? 4 : 0;
    if (n > end - c) return 0;
    for (int i = 1; i < n; i++)
        if ((u[i] & 0xc0) != 0x80) return 0;
    bool wrong = (*u == 0xe0 && u[1] < 0xa0) || (*u == 0xed && u[1] >= 0xa0) || (*u == 0xf0 && u[1] < 0x90) ||
                 (*u == 0xf4 && u[1] >= 0x90);
    return wrong ? 0 : n;
}

/* The four digits after \u. */
static unsigned code_unit(Parser *s, const char *c) {
    unsigned x = 0;
    for (int i = 0; i < 4; i++) {
        const char *hex = "0123456789abcdef", *d = c + i < s->end && c[i] ? strchr(hex, c[i] | 0x20) : NULL;
        if (!d || (c[i] < '0')) bad(s, c - 2, "a \\u without four hexadecimal digits");
        x = x << 4 | (unsigned)(d - hex);
    }
    return x;
}

/* Writes the character of an escape that begins at c, returns where the text goes on. */
static const char *escape(Parser *s, const char *c, char **out) {
    static const char names[] = "\"\\/bfnrt", characters[] = "\"\\/\b\f\n\r\t";
    const char *known = c[1] && c[1] != 'u' ? strchr(names, c[1]) : NULL;
    if (known) {
        *(*out)++ = characters[known - names];
        return c + 2;
    }
    if (c[1] != 'u') bad(s, c, "an escape that JSON does not know");
    unsigned x = code_unit(s, c + 2);
    const char *next = c + 6;
    if (x >= 0xd800 && x < 0xdc00 && s->end - next > 2 && next[0] == '\\' && next[1] == 'u') {
        unsigned low = code_unit(s, next + 2);
        if (low >= 0xdc00 && low < 0xe000) {
            x = 0x10000 + ((x - 0xd800) << 10) + (low - 0xdc00);
            next += 6;
        }
    }
    if (x >= 0xd800 && x < 0xe000) bad(s, c, "half of a surrogate pair");
    if (!x) bad(s, c, "\\u0000 in a string");
    char *o = *out;
    if (x < 0x80) {
        *o++ = (char)x;
    } else if (x < 0x800) {
        *o++ = (char)(0xc0 | x >> 6);
        *o++ = (char)(0x80 | (x & 63));
    } else if (x < 0x10000) {
        *o++ = (char)(0xe0 | x >> 12);
        *o++ = (char)(0x80 | (x >> 6 & 63));
        *o++ = (char)(0x80 | (x & 63));
    } else {
        *o++ = (char)(0xf0 | x >> 18);
        *o++ = (char)(0x80 | (x >> 12 & 63));
        *o++ = (char)(0x80 | (x >> 6 & 63));
        *o++ = (char)(0x80 | (x & 63));
    }
    *out = o;
    return next;
}

/* p stands after the opening quote. */
static void string(Parser *s) {
    size_t at = add(s, J_STRING);
    const char *from = s->p;
    bool escapes = false;
    for (;;) {
        if (s->p == s->end) bad(s, from - 1, "a string without its closing quote");
        unsigned char c = (unsigned char)*s->p;
        if (c == '"') break;
        if (c < 0x20) bad(s, s->p, arena_printf(s->a, "the control character 0x%02x in a string", c));
        if (c == '\\') {
            escapes = true;
            s->p++; /* what is escaped is no quote; what it is, escape() looks at */
            if (s->p == s->end) continue;
            if ((unsigned char)*s->p >= 0x80) bad(s, s->p - 1, "an escape that JSON does not know");
            s->p++;
        } else if (c < 0x80) {
            s->p++;
        } else {
            int more = sequence(s->p, s->end);
            if (!more) bad(s, s->p, arena_printf(s->a, "byte 0x%02x, which is no UTF-8", c));
            s->p += more;
        }
    }
    const char *text = from, *end = s->p++;
    size_t n = (size_t)(end - from);
    if (escapes) {
        char *out = arena_alloc(s->a, n + 1); /* an escape is never shorter than what it stands for */
        text = out;
        while (from < end)
            if (*from == '\\')
                from = escape(s, from, &out);
            else
                *out++ = *from++;
        n = (size_t)(out - text);
    }
    s->nodes[at].text = text;
    s->nodes[at].n = (uint32_t)n & MAX_BYTES;
}

/* ── lists and objects ────────────────────────────────────────────────────────────────────────────────────── */
static void value(Parser *s);

static bool goes_on(Parser *s, char end, const char *wanted) {
    if (take(s, ',')) return true;
    if (!take(s, end)) unexpected(s, wanted);
    return false;
}

static void list(Parser *s) {
    size_t at = add(s, J_LIST), n = 0;
    if (!take(s, ']')) do {
            value(s);
            n++;
        } while (goes_on(s, ']', "a comma or ]"));
    s->nodes[at].n = (uint32_t)n & MAX_BYTES;
    s->nodes[at].size = (uint32_t)(s->n - at);
}

static bool same_text(const JsonNode *a, const JsonNode *b) {
    return a->n == b->n && !memcmp(a->text, b->text, a->n);
}

/* The name at `k` among those of the object at `o` before it: a bit of `seen` each, so that most need no look. An
 * object of thousands of names is none of a plan's, and would take quadratic time. */
enum { MAX_NAMES = 4096 };
static void check_name(Parser *s, size_t o, size_t k, size_t n, uint64_t *seen, const char *where) {
    const JsonNode *name = &s->nodes[k];
    if (n == MAX_NAMES) bad(s, where, "an object of more than 4096 names");
    uint64_t h = name->n;
    for (uint32_t i = 0; i < name->n; i++) h = h * 31 + (unsigned char)name->text[i];
    uint64_t bit = (uint64_t)1 << (h & 63);
    if (*seen & bit) {
        const JsonNode *other = &s->nodes[o + 1];
        for (; other != name; other = after_node(other + 1))
            if (same_text(other, name))
                bad(s, where, arena_printf(s->a, "duplicate object key \"%.*s\"", (int)min64(name->n, 60), name->text));
    }
    *seen |= bit;
}

static void object(Parser *s) {
    size_t at = add(s, J_OBJECT), n = 0;
    uint64_t seen = 0;
    if (!take(s, '}')) do {
            skip_space(s);
            const char *where = s->p;
            if (!take(s, '"')) unexpected(s, "a name in quotes");
            size_t k = s->n;
            string(s);
            check_name(s, at, k, n++, &seen, where);
            if (!take(s, ':')) unexpected(s, "a colon");
            value(s);
        } while (goes_on(s, '}', "a comma or }"));
    s->nodes[at].n = (uint32_t)n & MAX_BYTES;
    s->nodes[at].size = (uint32_t)(s->n - at);
}

static bool word(Parser *s, const char *w, JsonType type) {
    size_t n = strlen(w);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, w, n)) return false;
    s->p += n;
    add(s, type);
    return true;
}

static void value(Parser *s) {
    if (++s->depth > MAX_DEPTH) bad(s, s->p, "lists and objects nested more than 64 deep");
    if (take(s, '{'))
        object(s);
    else if (take(s, '['))
        list(s);
    else if (take(s, '"'))
        string(s);
    else if (s->p < s->end && (*s->p == '-' || is_digit(s)))
        number(s);
    else if (!word(s, "null", J_NULL) && !word(s, "true", J_TRUE) && !word(s, "false", J_FALSE))
        unexpected(s, "a value");
    s->depth--;
}

static bool whole(Parser *s) {
    if (setjmp(s->bad)) return false;
    size_t n = (size_t)(s->end - s->start);
    if (n > MAX_BYTES) bad(s, s->start, "a text of more than 512 MiB is no plan");
    /* A value takes a byte and one that ends it, but for lists that are open and the last; what is not used costs
     * nothing. */
    s->nodes = NEW_ARRAY(s->a, JsonNode, n / 2 + MAX_DEPTH + 2);
    value(s);
    skip_space(s);
    if (s->p < s->end) unexpected(s, "the end of the text");
    return true;
}

const JsonNode *document_parse(Arena *a, const char *text, size_t n, JsonError *e) {
    Parser s = {.a = a, .start = text, .p = text, .end = text + n, .error = e};
    return whole(&s) ? s.nodes : NULL;
}
