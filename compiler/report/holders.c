/* `predict --by`: who holds the bytes that are alive at one moment, as a table: modules, units or single storages.
 * Relies on: live.h, figures.h, lines.h.
 * Relied on by: cli/predict.c. */
#include "../plan/figures.h"
#include "../plan/lines.h"
#include "../plan/live.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>

enum { LARGEST = 3 };

/* ── when ────────────────────────────────────────────────────────────────────────────────────────────────────────── */
Moment report_moment(const Plan *p, const char *at) {
    Moment m = {live_largest_program(p), -1, true};
    if (!at || !strcmp(at, "peak")) {
        if (m.program >= 0) m.event = p->programs[m.program].peak_event;
        return m;
    }
    m = (Moment){-1, -1, false};
    for (int i = 0; i < p->nprograms && m.program < 0; i++)
        if (!strcmp(p->programs[i].name, "micro")) m.program = i;
    if (m.program < 0) return m;
    const PlanProgram *g = &p->programs[m.program];
    bool forward = !strcmp(at, "forward"); /* its last kernel */
    for (int e = 0; e < g->n && (forward || m.event < 0); e++) {
        const Event *x = &g->events[e];
        if (forward ? x->phase == FORWARD && purpose_pinned(x->purpose) : !strcmp(x->id, at)) m.event = e;
    }
    if (m.event < 0)
        fail_usage("--at %s: the program micro has no such event; `peak`, `forward` (its end), or an id that "
                   "`shardc inspect` shows",
                   at);
    return m;
}

/* ── who ─────────────────────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    const char *name; /* of several: their pattern, layers.*.mlp */
    int count;        /* modules or units that the row stands for; the figures below are of one */
    int64_t of[N_CLASSES], total;
    const Storage *largest[LARGEST];
} Row;
typedef VEC(Row) Rows;

/* Largest first; of equal ones layers.2 before layers.10. */
static int by_total(const void *a, const void *b) {
    const Row *x = a, *y = b;
    int64_t m = x->total * x->count, n = y->total * y->count;
    if (m != n) return m > n ? -1 : 1;
    return strverscmp(x->name, y->name);
}

static bool alike(const Row *x, const Row *y) {
    bool same = !memcmp(x->of, y->of, sizeof x->of);
    for (int i = 0; i < LARGEST && same; i++)
        same = !x->largest[i] == !y->largest[i] && (!x->largest[i] || x->largest[i]->size == y->largest[i]->size);
    return same;
}

/* Rows whose names differ in numbers alone, and whose figures do not, become one. */
static void fold(Rows *rows, Arena *a) {
    Map *patterns = map_new(a);
    int *last = NEW_ARRAY(a, int, rows->n + 1), *before = NEW_ARRAY(a, int, rows->n + 1), n = 0; /* rows from 1 */
    for (int i = 0; i < rows->n; i++) {
        Row *r = &rows->at[i];
        const char *pattern = live_path_pattern(a, r->name);
        int *latest = &last[map_index(patterns, pattern)], k = *latest;
        while (k && !alike(&rows->at[k - 1], r)) k = before[k];
        if (k) {
            rows->at[k - 1].name = pattern;
            rows->at[k - 1].count++;
            continue;
        }
        rows->at[n++] = *r;
        before[n] = *latest;
        *latest = n;
    }
    rows->n = n;
}

static Rows rows_of(const Plan *p, Moment m, unsigned classes, bool single) {
    Rows out = {0};
    Map *index = map_new(p->arena);
    for (int i = 0; i < p->nstorages; i++) {
        const Storage *s = &p->storages[i];
        if (!(classes >> s->cls & 1) || !live_storage(s, m.program, m.event)) continue;
        const char *name = single ? s->name : *s->owner ? s->owner : "(model)";
        int k = map_index(index, name);
        if (k == out.n) push(&out, p->arena, ((Row){.name = name, .count = 1}));
        Row *r = &out.at[k];
        r->of[s->cls] += s->size;
        r->total += s->size;
        int place = 0;
        while (place < LARGEST && r->largest[place] && r->largest[place]->size >= s->size) place++;
        if (place == LARGEST) continue;
        memmove(&r->largest[place + 1], &r->largest[place], sizeof *r->largest * (size_t)(LARGEST - 1 - place));
        r->largest[place] = s;
    }
    if (out.n) qsort(out.at, (size_t)out.n, sizeof *out.at, by_total);
    if (!single) fold(&out, p->arena);
    if (out.n) qsort(out.at, (size_t)out.n, sizeof *out.at, by_total);
    return out;
}

static const char *life(const Plan *p, const Storage *s) {
    const PlanProgram *g = s->program < 0 ? NULL : &p->programs[s->program];
    return g ? arena_printf(p->arena, "%s to %s", g->events[s->first].id, g->events[s->last].id) : "always";
}

/* "12,288  h.*.mlp (12 × 1,024)", and below it what makes up one of them. */
static void row(FILE *f, const Plan *p, const Row *r, Holding by, int width) {
    Arena *a = p->arena;
    int from = 2 + width + 2;
    Lines l = lines_open(f, from, arena_printf(a, "  %*s  ", width, figure_grouped(a, (double)(r->total * r->count))));
    lines_piece(&l, r->name);
    if (r->count > 1) lines_piece(&l, arena_printf(a, "(%d × %s)", r->count, figure_grouped(a, (double)r->total)));
    if (by != BY_STORAGE) lines_next(&l);
    if (by == BY_STORAGE) {
        const Storage *s = r->largest[0];
        lines_words(&l, arena_printf(a, "  %s  %s  %s", storage_class_name(s->cls), life(p, s),
                                     *s->owner ? s->owner : "(model)"));
    }
    for (int c = 0; c < N_CLASSES && by == BY_UNIT; c++)
        if (r->of[c])
            lines_item(
                &l, arena_printf(a, "%s %s", storage_class_name((StorageClass)c), figure_grouped(a, (double)r->of[c])));
    for (int i = 0; i < LARGEST && r->largest[i] && by == BY_MODULE; i++)
        lines_item(&l, arena_printf(a, "%s %s (%s)", r->largest[i]->name, figure_bytes(a, (double)r->largest[i]->size),
                                    life(p, r->largest[i])));
    lines_close(&l);
}

void report_holders_text(FILE *f, const Plan *p, Moment m, Holding by) {
    if (m.program < 0) return;
    unsigned all = (1u << N_CLASSES) - 1, modules = CLASSES_OF_MODULES;
    unsigned classes = by == BY_MODULE ? modules : by == BY_UNIT ? all & ~modules : all;
    Rows rows = rows_of(p, m, classes, by == BY_STORAGE);
    const PlanProgram *g = &p->programs[m.program];
    const Event *e = m.event >= 0 && m.event < g->n ? &g->events[m.event] : NULL;
    int64_t total = 0;
    int width = 0;
    for (int i = 0; i < rows.n; i++) {
        int length = (int)strlen(figure_grouped(p->arena, (double)(rows.at[i].total * rows.at[i].count)));
        total += rows.at[i].total * rows.at[i].count;
        if (length > width) width = length;
    }
    const char *what = by == BY_MODULE ? "activations, temporaries and workspaces"
                       : by == BY_UNIT ? "what units hold"
                                       : "storages";
    const char *at =
        e ? arena_printf(p->arena, "%s %s%s%s", e->id, phase_name(e->phase), *e->module ? " " : "", e->module)
          : "its beginning";
    lines_print(
        f, 0, "",
        arena_printf(p->arena, "%s of %s at %s: %s bytes", what, g->name, at, figure_grouped(p->arena, (double)total)));
    for (int i = 0; i < rows.n; i++) row(f, p, &rows.at[i], by, width);
}
