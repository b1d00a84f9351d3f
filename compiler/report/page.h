/* Pages for a browser: one HTML file that opens from disk. The page of a plan, and what it shares with the page of two
 * plans (diff_page.c): a plan as blocks of JSON, strings that cannot end a script, files with marks.
 * Relies on: plan.h, actual.h. Relied on by: page.c, page_blocks.c, diff_page.c, cli/inspect.c. */
#ifndef SHARDC_PAGE_H
#define SHARDC_PAGE_H

#include "actual.h"

/* Writes the page of all programs of p: the schedule, the memory and who holds it. Shapes of operands are in it where p
 * comes from a model, not from a plan.json. actual: a run whose times stand below the predicted ones, or NULL. */
typedef const char *const *const *Statements; /* [program][event]: the emitted text; NULL: it is not known */
void page_write(FILE *f, const Plan *p, const Actual *actual, Statements statements);

typedef struct {
    char *text;
    size_t n;
} PageText;

/* A file of report/page/, held in the program: page_NAME is a PageText. Make runs from the repository's root. */
#define PAGE_EMBED(name, file)                                                                                         \
    __asm__(".section .rodata\n"                                                                                       \
            "page_file_" #name ":\n"                                                                                   \
            ".incbin \"compiler/report/page/" file "\"\n"                                                              \
            "page_file_" #name "_end:\n"                                                                               \
            ".byte 0\n"                                                                                                \
            ".previous\n");                                                                                            \
    extern char page_file_##name[], page_file_##name##_end[]
#define PAGE_FILE(name) ((PageText){page_file_##name, (size_t)(page_file_##name##_end - page_file_##name)})

/* Writes the blocks that a page needs to draw program `shown` (-1: none) of p: <script id="PREFIXplan"> and
 * <script id="PREFIXprogram-N">. others: details of its events, and the blocks of the other programs, to be written
 * behind the page's script, so that the page is painted before they are read; the caller frees the text. Shapes of
 * operands are in it where p comes from a model, not from a plan.json. actual: a run, or NULL. */
void page_blocks(FILE *f, const Plan *p, const Actual *actual, Statements statements, const char *prefix, int shown,
                 PageText *others);

/* The program that a page shows first: the training program, else the one with the highest peak; -1: there is none. */
int page_first_shown(const Plan *p);

/* Adds text as a string of JSON that may stand between <script> and </script>: none of its bytes can end the element.
 */
void page_string(Str *s, const char *text);

void page_put(FILE *f, PageText text);

/* What all pages of plans share: the style ('c'), the script ('s'). */
void page_shared(FILE *f, char mark);

/* Writes a page whose marks "@@x" stand for what part(f, 'x', of) writes. */
void page_fill(FILE *f, PageText page, void (*part)(FILE *f, char mark, const void *of), const void *of);

#endif
