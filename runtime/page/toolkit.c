/* Puts pages together from the files that the program holds.
 * Relies on: toolkit.h, visible.h.
 * Relied on by: run_page.c, the pages of compiler/report/. */
#include "toolkit.h"
#include "../visible.h"

#include <string.h>

PAGE_EMBED(toolkit_css, "runtime/page/toolkit.css");
PAGE_EMBED(toolkit_js, "runtime/page/toolkit.js");

void page_put(FILE *f, PageText text) {
    fwrite(text.text, 1, text.n, f);
}

void page_fill(FILE *f, PageText page, void (*part)(FILE *f, char mark, const void *of), const void *of) {
    for (char *at = page.text, *end = page.text + page.n; at < end;) {
        char *mark = strstr(at, "@@");
        page_put(f, (PageText){at, (size_t)((mark ? mark : end) - at)});
        if (!mark) break;
        at = mark + 3;
        if (mark[2] == 'c') page_put(f, PAGE_FILE(toolkit_css));
        if (mark[2] == 's') page_put(f, PAGE_FILE(toolkit_js));
        part(f, mark[2], of);
    }
}

size_t page_character(const char *text, PageCharacter shown, size_t *n) {
    unsigned char c = (unsigned char)*text;
    size_t read = 1;
    if (!c) {
        *n = 0;
        return 0;
    }
    if (c == '<' || c == '>' || c == '&' || c == '"' || c == '\\' || c < 0x20 || c == 0x7f) {
        *n = (size_t)snprintf(shown, sizeof(PageCharacter), "\\u%04x", c);
    } else if (c >= 0x80 && !(read = sc_visible_character((const unsigned char *)text, strnlen(text, 4)))) {
        *n = (size_t)snprintf(shown, sizeof(PageCharacter), "\\ufffd"); /* a name need not be UTF-8, JSON must be */
        read = 1;
    } else {
        memcpy(shown, text, *n = read);
    }
    return read;
}
