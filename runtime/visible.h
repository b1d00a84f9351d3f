/* Text that somebody else wrote, as a terminal may get it: what would move the cursor, colour or hide text is escaped.
 * Relies on: the C library.
 * Relied on by: the messages of the compiler and of training programs. */
#ifndef SC_VISIBLE_H
#define SC_VISIBLE_H

#include <stddef.h>
#include <stdio.h>

/* The bytes of the UTF-8 character at s, of n bytes; 0: none, or a control character other than tab and newline. */
static inline size_t sc_visible_character(const unsigned char *s, size_t n) {
    if (*s < 0x80) return *s == '\n' || *s == '\t' || (*s >= 0x20 && *s != 0x7f);
    size_t length = *s >= 0xf0 ? 4 : *s >= 0xe0 ? 3 : 2;
    if (*s < 0xc2 || *s > 0xf4 || length > n) return 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    return *s == 0xc2 && s[1] < 0xa0 ? 0 : length; /* U+0080 to U+009F: control characters too */
}

/* Other bytes come as \x1b. Standard error has no buffer, so pieces are put together here. */
static inline void sc_put_visible(FILE *f, const char *text, size_t n) {
    const unsigned char *s = (const unsigned char *)text;
    char out[4096];
    size_t k = 0;
    for (size_t i = 0; i < n;) {
        size_t length = sc_visible_character(s + i, n - i);
        for (size_t j = 0; j < length; j++) out[k++] = text[i + j];
        if (!length) k += (size_t)snprintf(out + k, sizeof out - k, "\\x%02x", s[i]);
        i += length ? length : 1;
        if (k + 8 > sizeof out || i >= n) {
            fwrite(out, 1, k, f);
            k = 0;
        }
    }
}

#endif
