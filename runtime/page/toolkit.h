/* What all pages for a browser are made of: one HTML file that opens from disk, from files that the program holds. A
 * page has marks "@@x" where its style ('c'), its script ('s') and its data stand. Relies on: the assembler's .incbin,
 * run from the repository's root. Relied on by: run_page.c, compiler/report/page.h and the pages of plans. */
#ifndef SC_PAGE_TOOLKIT_H
#define SC_PAGE_TOOLKIT_H

#include <stddef.h>
#include <stdio.h>

typedef struct {
    char *text;
    size_t n;
} PageText;

/* A file of the repository, held in the program: PAGE_FILE(name) is its text. */
#define PAGE_EMBED(name, path)                                                                                         \
    __asm__(".section .rodata\n"                                                                                       \
            "page_file_" #name ":\n"                                                                                   \
            ".incbin \"" path "\"\n"                                                                                   \
            "page_file_" #name "_end:\n"                                                                               \
            ".byte 0\n"                                                                                                \
            ".previous\n");                                                                                            \
    extern char page_file_##name[], page_file_##name##_end[]
#define PAGE_FILE(name) ((PageText){page_file_##name, (size_t)(page_file_##name##_end - page_file_##name)})

void page_put(FILE *f, PageText text);

/* Writes a page whose marks stand for what part(f, 'x', of) writes. Toolkit.css and toolkit.js stand before that. */
void page_fill(FILE *f, PageText page, void (*part)(FILE *f, char mark, const void *of), const void *of);

/* The next character of a text as it may stand in a string of JSON between <script> and </script>: none of its bytes
 * can end the element. Sets *n to the bytes of `shown`; returns how many it has read, which are 0 at the end. */
typedef char PageCharacter[8];
size_t page_character(const char *text, PageCharacter shown, size_t *n);

#endif
