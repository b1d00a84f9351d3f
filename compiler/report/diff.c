/* Computes what differs between two plans. Events and storages are joined by program and name, which a memory policy
 * does not change (compiler/ir/README.md); nothing is guessed.
 * Relies on: live.h. Relied on by: cli/diff.c; the tests compare it with a slow join of the two plan.json. */
#include "diff.h"

#include "../ir/training.h"
#include "../plan/live.h"

#include <math.h>
#include <stdlib.h>

const char *diff_event_change(EventChange c) {
    static const char *const names[] = {"added",        "removed", "other op", "other stream", "issued sooner",
                                        "issued later", "longer",  "shorter",  "other waits"};
    return names[c];
}

const char *diff_storage_change(StorageChange c) {
    static const char *const names[] = {"added",       "removed",     "grew",      "shrank",
                                        "other class", "other arena", "other life"};
    return names[c];
}

/* ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────── */
static bool differ(const char *a, const char *b) {
    return strcmp(a ? a : "", b ? b : "") != 0;
}

static bool other_group(const Diff *d, const Event *a, const Event *b) {
    if (a->comm < 0 || b->comm < 0) return a->comm != b->comm;
    const Comm *x = &d->a->comms[a->comm], *y = &d->b->comms[b->comm];
    return differ(x->name, y->name) || x->axis->size != y->axis->size || x->axis->stride != y->axis->stride;
}

static bool waits_for(const PlanProgram *p, const Event *e, const char *id) {
    for (int i = 0; i < e->nwaits; i++)
        if (!strcmp(p->events[e->waits[i]].id, id)) return true;
    return false;
}

static bool other_waits(const PlanProgram *p, const Event *a, const PlanProgram *q, const Event *b) {
    if (a->nwaits != b->nwaits) return true;
    for (int i = 0; i < a->nwaits; i++)
        if (!waits_for(q, b, p->events[a->waits[i]].id)) return true;
    return false;
}

static unsigned changes_of_event(const Diff *d, const PlanProgram *p, const Event *a, const PlanProgram *q,
                                 const Event *b) {
    unsigned out = 0;
    if (differ(a->op, b->op) || a->phase != b->phase || differ(a->module, b->module) || other_group(d, a, b))
        out |= 1u << EVENT_OP;
    if (a->stream != b->stream) out |= 1u << EVENT_STREAM;
    int64_t longer = llround(b->duration_us * 1e6) - llround(a->duration_us * 1e6);
    if (llabs(longer) >= DIFF_LEAST_PS) out |= 1u << (longer > 0 ? EVENT_LONGER : EVENT_SHORTER);
    if (other_waits(p, a, q, b)) out |= 1u << EVENT_WAITS;
    return out;
}

/* Which of B's events have kept their order: a sequence of the greatest weight that ascends in A, found by a Fenwick
 * tree of the best sequence that ends before a place. An event weighs so much that more events always outweigh fewer,
 * and of equally many those with more kernels do. at[i]: A's index of B's event i, -1: none. */
static bool *kept_events(Arena *a, const PlanProgram *q, const int *at, int na) {
    int64_t *weight = NEW_ARRAY(a, int64_t, q->n + 1);
    int *before = NEW_ARRAY(a, int, q->n + 1), *best = NEW_ARRAY(a, int, na + 2); /* events of B from 1; 0: none */
    for (int i = 0; i < q->n; i++) {
        if (at[i] < 0) continue;
        int last = 0;
        for (int k = at[i]; k > 0; k -= k & -k)
            if (weight[best[k]] > weight[last]) last = best[k];
        before[i + 1] = last;
        weight[i + 1] = weight[last] + q->n + 1 + (q->events[i].stream == COMPUTE);
        for (int k = at[i] + 1; k <= na; k += k & -k)
            if (weight[i + 1] > weight[best[k]]) best[k] = i + 1;
    }
    int last = 0;
    for (int i = 1; i <= q->n; i++)
        if (weight[i] > weight[last]) last = i;
    bool *kept = NEW_ARRAY(a, bool, q->n + 1);
    for (; last; last = before[last]) kept[last - 1] = true;
    return kept;
}

static void compare_events(Arena *a, const Diff *d, DiffProgram *g) {
    const PlanProgram *p = g->a, *q = g->b;
    int na = p ? p->n : 0, nb = q ? q->n : 0, *at = NEW_ARRAY(a, int, nb + 1), *rank = NEW_ARRAY(a, int, na + 1);
    Map *ids = map_new(a);
    for (int i = 0; i < na; i++) map_index(ids, p->events[i].id);
    bool *found = NEW_ARRAY(a, bool, na + 1);
    for (int i = 0; i < nb; i++) {
        at[i] = map_find(ids, q->events[i].id);
        if (at[i] >= 0) found[at[i]] = true;
    }
    bool *kept = p && q ? kept_events(a, q, at, na) : NULL;
    for (int i = 0; i < nb; i++)
        if (at[i] >= 0) rank[at[i]] = kept[i];
    for (int i = 0, n = 0; i < na; i++) { /* how many that have not moved stand before it in A */
        int is = rank[i];
        rank[i] = n;
        n += is;
    }
    for (int i = 0, n = 0; i < nb; i++) {
        const Event *y = &q->events[i], *x = at[i] < 0 ? NULL : &p->events[at[i]];
        DiffEvent e = {x, y, x ? changes_of_event(d, p, x, q, y) : 1u << EVENT_ADDED, 0};
        if (x && !kept[i]) {
            e.places = n - rank[at[i]];
            e.changes |= 1u << (e.places < 0 ? EVENT_SOONER : EVENT_LATER);
        }
        n += x && kept[i];
        if (e.changes) push(&g->events, a, e);
    }
    for (int i = 0; i < na; i++)
        if (!found[i]) push(&g->events, a, ((DiffEvent){&p->events[i], NULL, 1u << EVENT_REMOVED, 0}));
}

/* ── storages ────────────────────────────────────────────────────────────────────────────────────────────────────── */
static const char *event_of(const PlanProgram *p, int e) {
    return p && e >= 0 && e < p->n ? p->events[e].id : "";
}

static unsigned changes_of_storage(const DiffProgram *g, const Storage *x, const Storage *y) {
    unsigned out = 0;
    if (x->size != y->size) out |= 1u << (y->size > x->size ? STORAGE_GREW : STORAGE_SHRANK);
    if (x->cls != y->cls || differ(x->owner, y->owner)) out |= 1u << STORAGE_CLASS;
    if (x->arena != y->arena) out |= 1u << STORAGE_ARENA;
    if (differ(event_of(g->a, x->first), event_of(g->b, y->first)) ||
        differ(event_of(g->a, x->last), event_of(g->b, y->last)))
        out |= 1u << STORAGE_LIFE;
    return out;
}

static int program_named(const Plan *p, const char *name) {
    for (int i = 0; i < p->nprograms; i++)
        if (!strcmp(p->programs[i].name, name)) return i;
    return -1;
}

static void compare_storages(Arena *a, const Diff *d, DiffProgram *g) {
    int in_a = *g->name ? program_named(d->a, g->name) : -1, in_b = *g->name ? program_named(d->b, g->name) : -1;
    bool has_a = !*g->name || g->a, has_b = !*g->name || g->b;
    Map *names = map_new(a), *seen = map_new(a);
    for (int i = 0; has_a && i < d->a->nstorages; i++) {
        Storage *s = &d->a->storages[i];
        if (s->program == in_a) map_put(names, s->name, s);
    }
    for (int i = 0; has_b && i < d->b->nstorages; i++) {
        const Storage *y = &d->b->storages[i];
        if (y->program != in_b) continue;
        const Storage *x = map_get(names, y->name);
        map_index(seen, y->name);
        unsigned changes = x ? changes_of_storage(g, x, y) : 1u << STORAGE_ADDED;
        if (changes) push(&g->storages, a, ((DiffStorage){x, y, changes}));
    }
    for (int i = 0; i < map_len(names); i++)
        if (map_find(seen, map_key(names, i)) < 0)
            push(&g->storages, a, ((DiffStorage){map_value(names, i), NULL, 1u << STORAGE_REMOVED}));
}

/* ── sums ────────────────────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    DiffRows *rows;
    Map *index;
    bool second; /* of B */
} Sums;

static void add(Arena *a, Sums *s, const char *name, double x) {
    int k = map_index(s->index, name);
    if (k == s->rows->n) push(s->rows, a, ((DiffRow){map_key(s->index, k), 0, 0}));
    *(s->second ? &s->rows->at[k].b : &s->rows->at[k].a) += x;
}

static const char *pattern_of(Arena *a, const char *path) {
    return *path ? live_path_pattern(a, path) : "(model)";
}

static bool in_step(const Plan *p, const char *name) {
    if (program_named(p, "micro_first") < 0) return !strcmp(name, "micro");
    return !strcmp(name, "micro_first") || !strcmp(name, "micro_last");
}

static void sum_time(Arena *a, const Plan *p, Sums *classes, Sums *modules) {
    for (int i = 0; i < p->nprograms; i++) {
        const PlanProgram *g = &p->programs[i];
        for (int k = 0; in_step(p, g->name) && k < g->n; k++) {
            const Event *e = &g->events[k];
            add(a, classes, arena_printf(a, "%s %s", stream_name(e->stream), phase_name(e->phase)), e->duration_us);
            add(a, modules, pattern_of(a, e->module), e->duration_us);
        }
    }
}

static double end_of(const Event *e) {
    return e->start_us + e->duration_us;
}

static void add_exposed(Arena *a, Sums *s, const Event *awaited, double us) {
    if (us < 1e-6) return; /* less than a picosecond: rounding */
    add(a, s, arena_printf(a, "%s %s", stream_name(awaited->stream), pattern_of(a, awaited->module)), us);
}

/* As cost/simulate.c counts it: compute idles for what it waits for, or communication goes on after compute's end. */
static void sum_exposed(Arena *a, const Plan *p, Sums *s) {
    for (int i = 0; i < p->nprograms; i++) {
        const PlanProgram *g = &p->programs[i];
        if (!in_step(p, g->name)) continue;
        double compute = 0, busy = 0;
        const Event *last = NULL;
        for (int k = 0; k < g->n; k++) {
            const Event *e = &g->events[k], *awaited = NULL;
            for (int w = 0; w < e->nwaits; w++) {
                const Event *x = &g->events[e->waits[w]];
                if (end_of(x) > (awaited ? end_of(awaited) : compute)) awaited = x;
            }
            if (e->stream == COMPUTE && awaited && stream_communicates(awaited->stream))
                add_exposed(a, s, awaited, end_of(awaited) - compute);
            if (e->stream == COMPUTE) compute = end_of(e);
            if (!stream_communicates(e->stream))
                busy = fmax(busy, end_of(e));
            else if (!last || end_of(e) > end_of(last))
                last = e;
        }
        if (last) add_exposed(a, s, last, end_of(last) - busy);
    }
}

static void sum_peak(Arena *a, const Plan *p, Sums *classes, Sums *modules) {
    int g = live_largest_program(p);
    if (g < 0) return;
    for (int i = 0; i < p->nstorages; i++) {
        const Storage *s = &p->storages[i];
        if (!live_storage(s, g, p->programs[g].peak_event)) continue;
        add(a, classes, storage_class_name(s->cls), (double)s->size);
        add(a, modules, pattern_of(a, s->owner), (double)s->size);
    }
}

static void figures_of(const Plan *p, double out[N_FIGURES]) {
    StepFigures s = live_step(p);
    double tolerance;
    out[FIGURE_PEAK] = (double)p->arena_bytes[ARENA_DEVICE];
    out[FIGURE_BOUND] = (double)p->bound_bytes[ARENA_DEVICE];
    out[FIGURE_HOST] = (double)p->arena_bytes[ARENA_HOST];
    out[FIGURE_LIBRARY] = live_library_bytes(p, &tolerance);
    out[FIGURE_STEP] = s.step_us;
    out[FIGURE_EXPOSED] = s.exposed_us;
    out[FIGURE_TOKENS] = s.tokens_per_second > 0 ? s.tokens_per_second : s.samples_per_second;
    out[FIGURE_MFU] = s.mfu_causal;
}

/* ── the whole ───────────────────────────────────────────────────────────────────────────────────────────────────── */
static void compare_setting(Arena *a, Diff *d, const char *name, const char *x, const char *y) {
    if (differ(x, y)) push(&d->settings, a, ((DiffSetting){name, x, y}));
}

/* A value as it holds: what a policy file overrides says so. NULL: there is none. */
static const char *setting_of(Arena *a, const Plan *p, const char *name) {
    for (int i = 0; i < p->noptions; i++) {
        const OptionValue *o = &p->options[i];
        if (strcmp(o->name, name)) continue;
        return o->overridden ? arena_printf(a, "as %s says", o->overridden) : o->text;
    }
    return NULL;
}

static const char *policies_of(Arena *a, const Plan *p) { /* NULL: there are none */
    Str s = {.arena = a};
    for (int i = 0; i < p->npolicies; i++) str_addf(&s, "%s%s", i ? ", then " : "", p->policies[i].name);
    return s.n ? s.s : NULL;
}

static void compare_settings(Arena *a, Diff *d) {
    const Plan *x = d->a, *y = d->b;
    compare_setting(a, d, "model", x->model, y->model);
    compare_setting(a, d, "target", x->target, y->target);
    compare_setting(a, d, "device", x->device, y->device);
    compare_setting(a, d, "world", arena_printf(a, "%d", x->world), arena_printf(a, "%d", y->world));
    compare_setting(a, d, "nodes", arena_printf(a, "%d", x->nodes), arena_printf(a, "%d", y->nodes));
    compare_setting(a, d, "policy", policies_of(a, x), policies_of(a, y));
    for (int i = 0; i < y->noptions; i++) {
        const char *name = y->options[i].name;
        compare_setting(a, d, name, setting_of(a, x, name), setting_of(a, y, name));
    }
    for (int i = 0; i < x->noptions; i++)
        if (!setting_of(a, y, x->options[i].name))
            push(&d->settings, a, ((DiffSetting){x->options[i].name, setting_of(a, x, x->options[i].name), NULL}));
}

static void add_program(Arena *a, Diff *d, const char *name) {
    int x = program_named(d->a, name), y = program_named(d->b, name);
    DiffProgram g = {.name = name, .a = x < 0 ? NULL : &d->a->programs[x], .b = y < 0 ? NULL : &d->b->programs[y]};
    if (*name) compare_events(a, d, &g);
    compare_storages(a, d, &g);
    push(&d->programs, a, g);
}

Diff *diff_plans(Arena *a, const Plan *x, const Plan *y) {
    static const char *const names[N_FIGURES] = {"peak", "bound",   "host",   "library",
                                                 "step", "exposed", "tokens", "mfu"};
    Diff *d = NEW(a, Diff);
    d->a = x;
    d->b = y;
    compare_settings(a, d);
    double of_a[N_FIGURES], of_b[N_FIGURES];
    figures_of(x, of_a);
    figures_of(y, of_b);
    for (int i = 0; i < N_FIGURES; i++) d->figures[i] = (DiffRow){names[i], of_a[i], of_b[i]};
    DiffRows *rows[] = {&d->peak_classes, &d->peak_modules, &d->time_classes, &d->time_modules, &d->exposed_modules};
    Sums sums[5];
    for (int i = 0; i < 5; i++) sums[i] = (Sums){rows[i], map_new(a), false};
    for (int second = 0; second < 2; second++) {
        const Plan *p = second ? y : x;
        for (int i = 0; i < 5; i++) sums[i].second = second;
        sum_peak(a, p, &sums[0], &sums[1]);
        sum_time(a, p, &sums[2], &sums[3]);
        sum_exposed(a, p, &sums[4]);
    }
    add_program(a, d, "");
    for (int i = 0; i < y->nprograms; i++) add_program(a, d, y->programs[i].name);
    for (int i = 0; i < x->nprograms; i++)
        if (program_named(y, x->programs[i].name) < 0) add_program(a, d, x->programs[i].name);
    d->same = !d->settings.n;
    for (int i = 0; i < N_FIGURES; i++) d->same = d->same && diff_row_same(&d->figures[i]);
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < rows[i]->n; k++) d->same = d->same && diff_row_same(&rows[i]->at[k]);
    for (int i = 0; i < d->programs.n; i++)
        d->same = d->same && !d->programs.at[i].events.n && !d->programs.at[i].storages.n &&
                  (i == 0 || (d->programs.at[i].a && d->programs.at[i].b));
    return d;
}
