/* The page of a plan for a browser, and what it shares with the page of two plans (diff_page.c): a plan as blocks of
 * JSON. Relies on: actual.h, runtime/page/toolkit.h. Relied on by: page.c, page_blocks.c, diff_page.c, cli/inspect.c.
 */
#ifndef SHARDC_PAGE_H
#define SHARDC_PAGE_H

#include "actual.h"
#include "page/toolkit.h"

/* Writes the page of all programs of p: the schedule, the memory and who holds it. Shapes of operands are in it where p
 * comes from a model, not from a plan.json. actual: a run whose times stand below the predicted ones, or NULL. */
typedef const char *const *const *Statements; /* [program][event]: the emitted text; NULL: it is not known */
void page_write(FILE *f, const Plan *p, const Actual *actual, Statements statements);

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

/* What all pages of plans share: the style ('c'), the script ('s'). */
void page_shared(FILE *f, char mark);

#endif
