/* Writes JSON in one pass, a piece at a time: commas and quotes are its business, and little of the text is ever held.
 * Relies on: runtime/visible.h (UTF-8).
 * Relied on by: plan_json.h, report/. */
#include "json_writer.h"

#include "visible.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

void json_key(Json *j, const char *k) {
    if (j->comma) str_add(&j->s, ",");
    j->comma = false;
    if (k) {
        str_add(&j->s, "\"");
        str_add(&j->s, k);
        str_add(&j->s, "\":");
    }
}

void json_open(Json *j, const char *k, char bracket) {
    json_key(j, k);
    str_bytes(&j->s, &bracket, 1);
}

void json_close(Json *j, char bracket) {
    str_bytes(&j->s, &bracket, 1);
    j->comma = true;
}

void json_line(Json *j) { /* the next value starts on a line of its own */
    str_add(&j->s, j->comma ? ",\n" : "\n");
    j->comma = false;
    str_spill(&j->s, j->f);
}

void json_open_line(Json *j, const char *k, char bracket) {
    json_line(j);
    json_open(j, k, bracket);
}

void json_int(Json *j, const char *k, int64_t x) {
    json_key(j, k);
    str_int(&j->s, x);
    j->comma = true;
}

/* The shortest text of 15 or 17 digits that reads back as the same number. */
void json_real(Json *j, const char *k, double x) {
    if (fabs(x) < 1e15 && x == (double)(int64_t)x) {
        json_int(j, k, (int64_t)x);
        return;
    }
    char out[32];
    snprintf(out, sizeof out, "%.15g", isfinite(x) ? x : 0);
    if (strtod(out, NULL) != x && isfinite(x)) snprintf(out, sizeof out, "%.17g", x);
    json_key(j, k);
    str_add(&j->s, out);
    j->comma = true;
}

/* Simulated to the picosecond, for which 15 digits do. A time that is the double next to a whole number of picoseconds
 * is printed by way of that number: the same text, for a quarter of what %g takes. */
void json_time(Json *j, const char *k, double us) {
    int64_t ps = us >= 1 && us < 1e8 ? (int64_t)(us * 1e6 + 0.5) : 0;
    json_key(j, k);
    j->comma = true;
    if (!ps || (double)ps / 1e6 != us) {
        str_addf(&j->s, "%.15g", isfinite(us) ? us : 0);
        return;
    }
    char out[32];
    int n = snprintf(out, sizeof out, "%" PRId64 ".%06d", ps / 1000000, (int)(ps % 1000000));
    while (out[n - 1] == '0') n--;
    str_bytes(&j->s, out, (size_t)(out[n - 1] == '.' ? n - 1 : n));
}

void json_bool(Json *j, const char *k, bool x) {
    json_key(j, k);
    str_add(&j->s, x ? "true" : "false");
    j->comma = true;
}

/* JSON is UTF-8: a byte of a path that is not stands as U+FFFD. */
void json_escaped(Json *j, const char *s) {
    static const bool special[256] = {
        [0 ... 0x1f] = true, ['"'] = true, ['\\'] = true, [0x7f] = true, [0x80 ... 0xff] = true};
    for (size_t length;; s += length) {
        const char *from = s;
        while (!special[(unsigned char)*s]) s++;
        str_bytes(&j->s, from, (size_t)(s - from));
        if (!*s) return;
        unsigned char c = (unsigned char)*s;
        length = 1;
        if (c >= 0x80) length = sc_visible_character((const unsigned char *)s, strlen(s));
        if (c >= 0x80)
            str_bytes(&j->s, length ? s : "\xef\xbf\xbd", length ? length : 3);
        else
            str_addf(&j->s, c < 0x20 || c == 0x7f ? "\\u%04x" : "\\%c", c);
        length += !length;
    }
}

void json_str(Json *j, const char *k, const char *s) {
    json_key(j, k);
    j->comma = true;
    if (!s) {
        str_add(&j->s, "null");
        return;
    }
    str_add(&j->s, "\"");
    json_escaped(j, s);
    str_add(&j->s, "\"");
}

void json_start(Json *j, const char *format, int version) {
    json_open(j, NULL, '{');
    json_str(j, "format", format);
    json_int(j, "version", version);
    json_line(j);
}

void json_end(Json *j) {
    str_add(&j->s, "\n}\n");
    str_write(&j->s, j->f);
}
