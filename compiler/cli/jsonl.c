/* One pass over the line, by recursive descent. Strings are decoded where they stand: no escape is shorter than what it
 * means. Keys and values that nobody asked for are checked all the same, so that a broken line is not half read.
 * Relies on: schema/formats.h (UTF-8).
 * Relied on by: cli/data.c. */
#include "jsonl.h"
#include "schema/formats.h"

#include <stdio.h>

enum { MOST_DEPTH = 512, MOST_KEYS = 100 };

typedef struct {
    char *begin, *p, *end, *error;
} Line;

typedef struct {
    char *at;
    size_t n;
} Text;

#define WRONG(...) (snprintf(l->error, JSONL_ERROR, __VA_ARGS__), false)

static bool unexpected(Line *l, const char *wanted) {
    size_t column = (size_t)(l->p - l->begin) + 1;
    if (l->p == l->end) return WRONG("the line ends where %s is wanted: it is cut short, or no JSON", wanted);
    if (*l->p > ' ' && *l->p < 0x7f)
        return WRONG("column %zu: '%c' stands where %s is wanted: no JSON", column, *l->p, wanted);
    return WRONG("column %zu: byte 0x%02x stands where %s is wanted: no JSON", column, (unsigned char)*l->p, wanted);
}

static void skip(Line *l) {
    while (l->p < l->end && (*l->p == ' ' || *l->p == '\t' || *l->p == '\r' || *l->p == '\n')) l->p++;
}

static bool take(Line *l, char c) {
    skip(l);
    if (l->p == l->end || *l->p != c) return false;
    l->p++;
    return true;
}

/* Four hexadecimal digits after "\u"; -1: they are none. */
static int take_unit(Line *l) {
    int unit = 0;
    if (l->end - l->p < 6 || l->p[0] != '\\' || l->p[1] != 'u') return -1;
    for (int i = 2; i < 6; i++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF", *found = l->p[i] ? strchr(digits, l->p[i]) : NULL;
        if (!found) return -1;
        unit = unit << 4 | (int)((found - digits) & 15);
    }
    l->p += 6;
    return unit;
}

static char *put_utf8(char *to, uint32_t c) {
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    *to++ = (char)(0xff00 >> (more + 1) | c >> 6 * more);
    while (more--) *to++ = (char)(0x80 | (c >> 6 * more & 0x3f));
    return to;
}

static bool escape(Line *l, char **to) {
    static const char names[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    const char *found = l->end - l->p > 1 && l->p[1] ? strchr(names, l->p[1]) : NULL;
    if (found) {
        *(*to)++ = means[found - names];
        l->p += 2;
        return true;
    }
    size_t column = (size_t)(l->p - l->begin) + 1;
    int high = take_unit(l);
    if (high < 0) return WRONG("column %zu: no escape of JSON", column);
    uint32_t c = (uint32_t)high;
    if (c >= 0xd800 && c < 0xe000) {
        int low = c < 0xdc00 ? take_unit(l) : -1;
        if (low < 0xdc00 || low > 0xdfff) return WRONG("column %zu: \\u%04x is half a character", column, c);
        c = 0x10000 + ((c - 0xd800) << 10 | ((uint32_t)low - 0xdc00));
    }
    *to = put_utf8(*to, c);
    return true;
}

static bool string(Line *l, Text *x) {
    if (!take(l, '"')) return unexpected(l, "a string");
    char *to = x->at = l->p;
    while (l->p < l->end && *l->p != '"') {
        size_t column = (size_t)(l->p - l->begin) + 1, left = (size_t)(l->end - l->p);
        size_t n = sc_utf8_length((const uint8_t *)l->p, left);
        if (*l->p == '\\') {
            if (!escape(l, &to)) return false;
            continue;
        }
        if ((unsigned char)*l->p < 0x20)
            return WRONG("column %zu: byte 0x%02x within a string, which JSON writes as an escape", column,
                         (unsigned char)*l->p);
        if (!n || n > left) return WRONG("column %zu: byte 0x%02x is no UTF-8", column, (unsigned char)*l->p);
        memmove(to, l->p, n);
        to += n;
        l->p += n;
    }
    if (l->p == l->end) return WRONG("the line ends within a string: it is cut short, or no JSON");
    x->n = (size_t)(to - x->at);
    l->p++;
    return true;
}

static bool digits(Line *l) {
    if (l->p == l->end || *l->p < '0' || *l->p > '9') return unexpected(l, "a digit");
    while (l->p < l->end && *l->p >= '0' && *l->p <= '9') l->p++;
    return true;
}

static bool number(Line *l) {
    if (*l->p == '-') l->p++;
    bool zero = l->p < l->end && *l->p == '0';
    if (zero)
        l->p++;
    else if (!digits(l))
        return false;
    if (l->p < l->end && *l->p == '.') {
        l->p++;
        if (!digits(l)) return false;
    }
    if (l->p < l->end && (*l->p == 'e' || *l->p == 'E')) {
        l->p++;
        if (l->p < l->end && (*l->p == '+' || *l->p == '-')) l->p++;
        return digits(l);
    }
    return true;
}

static bool word(Line *l, const char *w) {
    size_t n = strlen(w);
    if ((size_t)(l->end - l->p) < n || memcmp(l->p, w, n)) return unexpected(l, "a value");
    l->p += n;
    return true;
}

static bool value(Line *l, int depth);

static bool list(Line *l, int depth) {
    if (take(l, ']')) return true;
    do
        if (!value(l, depth)) return false;
    while (take(l, ','));
    return take(l, ']') || unexpected(l, "',' or ']'");
}

static bool object(Line *l, int depth) {
    Text key;
    if (take(l, '}')) return true;
    do {
        if (!string(l, &key)) return false;
        if (!take(l, ':')) return unexpected(l, "':'");
        if (!value(l, depth)) return false;
    } while (take(l, ','));
    return take(l, '}') || unexpected(l, "',' or '}'");
}

static bool value(Line *l, int depth) {
    Text x;
    skip(l);
    if (depth > MOST_DEPTH) return WRONG("lists and objects within each other, more than %d deep", MOST_DEPTH);
    switch (l->p < l->end ? *l->p : 0) {
    case '"': return string(l, &x);
    case '{': l->p++; return object(l, depth + 1);
    case '[': l->p++; return list(l, depth + 1);
    case 't': return word(l, "true");
    case 'f': return word(l, "false");
    case 'n': return word(l, "null");
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': return number(l);
    default: return unexpected(l, "a value");
    }
}

static const char *kind_of(char c) {
    return c == '{'               ? "an object"
           : c == '['             ? "a list"
           : c == 'n'             ? "null"
           : c == 't' || c == 'f' ? "a truth value"
                                  : "a number";
}

bool jsonl_blank(const char *line, size_t n) {
    Line l = {.p = (char *)line, .end = (char *)line + n};
    skip(&l);
    return l.p == l.end;
}

bool jsonl_text(char *line, size_t n, const char *key, char **text, size_t *length, char error[JSONL_ERROR]) {
    Line whole = {line, line, line + n, error}, *l = &whole;
    char names[MOST_KEYS] = "";
    bool found = false;
    Text x, name;
    if (!take(l, '{')) return unexpected(l, "an object, '{',");
    if (!take(l, '}')) {
        do {
            if (!string(l, &name)) return false;
            if (!take(l, ':')) return unexpected(l, "':'");
            skip(l);
            bool wanted = name.n == strlen(key) && !memcmp(name.at, key, name.n);
            if (wanted && found) return WRONG("it has \"%s\" twice", key);
            if (wanted && l->p < l->end && *l->p != '"') {
                char kind = *l->p;
                return value(l, 1) && WRONG("\"%s\" is %s, not a string", key, kind_of(kind));
            }
            if (wanted ? !string(l, &x) : !value(l, 1)) return false;
            found |= wanted;
            size_t at = strlen(names);
            if (at + name.n + 5 < sizeof names)
                snprintf(names + at, sizeof names - at, "%s\"%.*s\"", at ? ", " : "", (int)name.n, name.at);
        } while (take(l, ','));
        if (!take(l, '}')) return unexpected(l, "',' or '}'");
    }
    skip(l);
    if (l->p < l->end) return unexpected(l, "the line's end");
    if (!found)
        return WRONG("it has no \"%s\"%s%s; --key NAME says which member holds the text", key,
                     *names ? ", but " : ": it is empty", names);
    *text = x.at;
    *length = x.n;
    return true;
}
