/* Writes the page of two plans, A over B: both as the blocks that the page of a plan has, and what differs between them
 * as a block of its own, which names events and storages by their places in the plans.
 * Relies on: diff.h, live.h, page.h. Relied on by: cli/diff.c. */
#include "../plan/live.h"
#include "diff.h"
#include "page.h"

#include <stdlib.h>

PAGE_EMBED(html, "compiler/report/page/diff.html");
PAGE_EMBED(style, "compiler/report/page/diff.css");
PAGE_EMBED(model, "compiler/report/page/diff.js");
PAGE_EMBED(draw, "compiler/report/page/diff_draw.js");
PAGE_EMBED(details, "compiler/report/page/diff_details.js");
PAGE_EMBED(main, "compiler/report/page/diff_page.js");

typedef struct {
    Arena *a;
    const Diff *d;
    const DiffBounds *bounds;
    PageText *others; /* of A and B */
} Page;

static void put_text(Str *s, const char *before, const char *text) { /* NULL: null */
    str_add(s, before);
    if (text)
        page_string(s, text);
    else
        str_add(s, "null");
}

/* [name, a, b] of each */
static void put_rows(Str *s, const DiffRow *rows, int n) {
    str_add(s, "[");
    for (int i = 0; i < n; i++) {
        put_text(s, i ? ",\n[" : "\n[", rows[i].name);
        str_addf(s, ",%.15g,%.15g]", rows[i].a, rows[i].b);
    }
    str_add(s, "]");
}

/* Events: [place in A, place in B, changes, places moved] of each in one list; storages: [place in A, in B, changes]. A
 * place is -1 where a plan has none of it. */
static void put_program(Str *s, FILE *f, const Diff *d, const DiffProgram *g) {
    put_text(s, "{\"name\":", g->name);
    str_addf(s, ",\"a\":%d,\"b\":%d,\"events\":[", g->a ? (int)(g->a - d->a->programs) : -1,
             g->b ? (int)(g->b - d->b->programs) : -1);
    for (int i = 0; i < g->events.n; i++) {
        const DiffEvent *e = &g->events.at[i];
        str_addf(s, "%s%d,%d,%u,%d", i ? "," : "", e->a ? (int)(e->a - g->a->events) : -1,
                 e->b ? (int)(e->b - g->b->events) : -1, e->changes, e->places);
        str_spill(s, f);
    }
    str_add(s, "],\"storages\":[");
    for (int i = 0; i < g->storages.n; i++) {
        const DiffStorage *x = &g->storages.at[i];
        str_addf(s, "%s%d,%d,%u", i ? "," : "", x->a ? (int)(x->a - d->a->storages) : -1,
                 x->b ? (int)(x->b - d->b->storages) : -1, x->changes);
        str_spill(s, f);
    }
    str_add(s, "]}");
}

/* Tokens of a step on all ranks, or samples where a model has no tokens. */
static double work(const Plan *p) {
    return live_step(p).microbatches * (p->tokens_per_step > 0 ? p->tokens_per_step : p->samples_per_step);
}

static void put_diff(FILE *f, const Page *w, int shown) {
    const Diff *d = w->d;
    const struct {
        const char *name;
        const DiffRows *rows;
    } sums[] = {{"peak_classes", &d->peak_classes},
                {"peak_modules", &d->peak_modules},
                {"time_classes", &d->time_classes},
                {"time_modules", &d->time_modules},
                {"exposed_modules", &d->exposed_modules}};
    Str s = {.arena = w->a};
    str_addf(
        &s,
        "<script id=\"diff\" type=\"application/json\">{\"format\":\"shardc-diff-page\",\"version\":1,\n\"same\":%s,"
        "\"shown\":%d,\"tokens\":%s",
        d->same ? "true" : "false", shown, d->a->tokens_per_step > 0 || d->b->tokens_per_step > 0 ? "true" : "false");
    str_addf(&s, ",\n\"work\":[%.15g,%.15g]", work(d->a), work(d->b));
    str_add(&s, ",\n\"settings\":[");
    for (int i = 0; i < d->settings.n; i++) {
        put_text(&s, i ? ",\n[" : "[", d->settings.at[i].name);
        put_text(&s, ",", d->settings.at[i].a);
        put_text(&s, ",", d->settings.at[i].b);
        str_add(&s, "]");
    }
    str_add(&s, "],\n\"bounds\":[");
    for (int i = 0; i < w->bounds->n; i++) {
        put_text(&s, i ? ",\n[" : "[", w->bounds->at[i].text);
        put_text(&s, ",", diff_missed(w->a, d, &w->bounds->at[i]));
        str_add(&s, "]");
    }
    str_add(&s, "],\n\"figures\":");
    put_rows(&s, d->figures, N_FIGURES);
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        str_addf(&s, ",\n\"%s\":", sums[i].name);
        put_rows(&s, sums[i].rows->at, sums[i].rows->n);
    }
    str_add(&s, ",\n\"event_changes\":[");
    for (int c = 0; c < N_EVENT_CHANGES; c++) put_text(&s, c ? "," : "", diff_event_change((EventChange)c));
    str_add(&s, "],\n\"storage_changes\":[");
    for (int c = 0; c < N_STORAGE_CHANGES; c++) put_text(&s, c ? "," : "", diff_storage_change((StorageChange)c));
    str_add(&s, "],\n\"programs\":[");
    for (int i = 0; i < d->programs.n; i++) {
        str_add(&s, i ? ",\n" : "\n");
        put_program(&s, f, d, &d->programs.at[i]);
    }
    str_add(&s, "]}</script>\n");
    str_write(&s, f);
}

/* Of the programs that differ or are the same: the one that trains. It is shown first. -1: there is none. */
static int first_shown(const Diff *d) {
    int in_a = page_first_shown(d->a), in_b = page_first_shown(d->b);
    for (int i = 0; i < d->programs.n; i++) {
        const DiffProgram *g = &d->programs.at[i];
        if (in_b >= 0 ? g->b == &d->b->programs[in_b] : in_a >= 0 && g->a == &d->a->programs[in_a]) return i;
    }
    return -1;
}

static void part(FILE *f, char mark, const void *of) {
    const Page *w = of;
    const Diff *d = w->d;
    page_shared(f, mark);
    if (mark == 'c') page_put(f, PAGE_FILE(style));
    if (mark == 'd') {
        int shown = first_shown(d);
        const DiffProgram *g = shown < 0 ? NULL : &d->programs.at[shown];
        page_blocks(f, d->a, NULL, NULL, "a-", g && g->a ? (int)(g->a - d->a->programs) : -1, &w->others[0]);
        page_blocks(f, d->b, NULL, NULL, "b-", g && g->b ? (int)(g->b - d->b->programs) : -1, &w->others[1]);
        put_diff(f, w, shown);
    }
    if (mark == 's') {
        page_put(f, PAGE_FILE(model));
        page_put(f, PAGE_FILE(draw));
        page_put(f, PAGE_FILE(details));
        page_put(f, PAGE_FILE(main));
    }
    if (mark == 'o') {
        page_put(f, w->others[0]);
        page_put(f, w->others[1]);
    }
}

void diff_page(FILE *f, Arena *a, const Diff *d, const DiffBounds *bounds) {
    PageText others[2] = {{NULL, 0}, {NULL, 0}};
    page_fill(f, PAGE_FILE(html), part, &(Page){a, d, bounds, others});
    for (int side = 0; side < 2; side++) free(others[side].text);
}
