/* Writes the page of a plan: the files of report/page/, and the plan as blocks of JSON that the page's script reads.
 * Relies on: page_blocks.c, runtime/page/toolkit.h.
 * Relied on by: cli/inspect.c. */
#include "page.h"

#include <stdlib.h>

PAGE_EMBED(html, "compiler/report/page/page.html");
PAGE_EMBED(draw, "compiler/report/page/draw.js");
PAGE_EMBED(summary, "compiler/report/page/summary.js");
PAGE_EMBED(event_table, "compiler/report/page/event_table.js");
PAGE_EMBED(find, "compiler/report/page/find.js");
PAGE_EMBED(link, "compiler/report/page/link.js");
PAGE_EMBED(layer, "compiler/report/page/layer.js");
PAGE_EMBED(details, "compiler/report/page/details.js");
PAGE_EMBED(main, "compiler/report/page/page.js");

typedef struct {
    const Plan *plan;
    const Actual *actual; /* or NULL */
    Statements statements;
    PageText *others;
} Page;

static void part(FILE *f, char mark, const void *of) {
    const Page *w = of;
    page_shared(f, mark);
    if (mark == 'd') page_blocks(f, w->plan, w->actual, w->statements, "", page_first_shown(w->plan), w->others);
    const PageText scripts[] = {PAGE_FILE(summary), PAGE_FILE(layer), PAGE_FILE(event_table), PAGE_FILE(find),
                                PAGE_FILE(link),    PAGE_FILE(draw),  PAGE_FILE(details),     PAGE_FILE(main)};
    for (size_t i = 0; mark == 's' && i < sizeof scripts / sizeof *scripts; i++) page_put(f, scripts[i]);
    if (mark == 'o') page_put(f, *w->others);
}

void page_write(FILE *f, const Plan *p, const Actual *actual, Statements statements) {
    PageText others = {NULL, 0};
    page_fill(f, PAGE_FILE(html), part, &(Page){p, actual, statements, &others});
    free(others.text);
}
