/* entries: a choice as text of a policy file that a person could have written: runs of blocks, one entry each.
 * Relies on: entries.h.
 * Relied on by: planner.c. */
#include "entries.h"

typedef struct {
    const char *match;
    int first, n; /* blocks or units */
} Run;
typedef VEC(Run) Runs;

/* "h.{0-3}", "h.3", or "h.*" where the list ends there too. */
static const char *pattern(Arena *a, const char *list, int from, int to, bool whole) {
    const char *dot = *list ? "." : "";
    if (whole) return arena_printf(a, "%s%s*", list, dot);
    return from == to ? arena_printf(a, "%s%s%d", list, dot, from)
                      : arena_printf(a, "%s%s{%d-%d}", list, dot, from, to);
}

/* Neighbours in one list, in ascending order of numbers, with equal keys. */
static Runs find_runs(Arena *a, const Blocks *b, const int *key) {
    Runs runs = {0};
    for (int i = 0; i < b->at.n;) {
        const Block *x = &b->at.at[i];
        int n = 1, others = 0;
        for (; x->list && i + n < b->at.n; n++) {
            const Block *y = &b->at.at[i + n];
            if (!y->list || strcmp(x->list, y->list) || y->number != x->number + n || key[i + n] != key[i]) break;
        }
        for (int k = 0; x->list && k < b->at.n; k++)
            others += (k < i || k >= i + n) && b->at.at[k].list && !strcmp(b->at.at[k].list, x->list);
        const char *match = x->list ? pattern(a, x->list, x->number, x->number + n - 1, !others && n > 1) : x->path;
        push(&runs, a, ((Run){match, i, n}));
        i += n;
    }
    return runs;
}

static const BlockOption *option_of(const Blocks *b, const int *option, int block) {
    return &b->options.at[b->at.at[block].kind].at[option[block]];
}

/* Blocks of different kinds may have options of one number: runs go by both. */
static const int *keys(Arena *a, const Blocks *b, const int *option) {
    int *key = NEW_ARRAY(a, int, b->at.n + 1);
    for (int i = 0; i < b->at.n; i++) key[i] = b->at.at[i].kind << 8 | option[i];
    return key;
}

static void add_names(Str *s, const char *key, const char *const *names, int n) {
    str_addf(s, "%s = {", key);
    for (int i = 0; i < n; i++) str_addf(s, "%s \"%s\"", i ? "," : "", names[i]);
    str_add(s, n ? " }" : "}");
}

static void add_unit(Str *s, const char *match, const UnitSetting *u, bool root, bool host) {
    bool reshard = u->reshard != RESHARD_AS_MODEL && !root;
    if (!reshard && u->prefetch < 0 && u->state < 0) return;
    const char *comma = "";
    str_addf(s, "  { match = \"%s\", fully_shard = { ", match);
    if (reshard) str_addf(s, "reshard_after_forward = %s", u->reshard == STAY ? "false" : "true"), comma = ", ";
    if (u->prefetch >= 0)
        str_addf(s, "%sprefetch = { forward = %d, backward = %d }", comma, u->prefetch, u->prefetch), comma = ", ";
    if (u->state >= 0)
        str_addf(s, "%soffload = { params = %s, optimizer = %s }", comma, host ? "true" : "false",
                 host ? "true" : "false");
    str_add(s, " } },\n");
}

static bool is_unit(const Blocks *b, const char *path) {
    for (int i = 0; i < b->units.n; i++)
        if (!strcmp(b->units.at[i], path)) return true;
    return false;
}

static bool is_block(const Blocks *b, const char *path) {
    for (int i = 0; i < b->at.n; i++)
        if (!strcmp(b->at.at[i].path, path)) return true;
    return false;
}

const char *entries_text(Arena *a, const Blocks *b, const int *option, UnitSetting u) {
    Str s = {.arena = a};
    int *host = NEW_ARRAY(a, int, b->at.n + 1), units = 0;
    str_add(&s, "return {\n");
    if (option) {
        Runs runs = find_runs(a, b, keys(a, b, option));
        for (int i = 0; i < runs.n; i++) {
            const BlockOption *o = option_of(b, option, runs.at[i].first);
            str_addf(&s, "  { match = \"%s\", %s", runs.at[i].match,
                     o->none ? "checkpoint = false },\n" : "replace = true, checkpoint = { ");
            if (o->none) continue;
            if (o->recompute) add_names(&s, "save", o->save.at, o->save.n);
            if (!o->recompute) str_add(&s, "recompute = false");
            if (o->offload.n) add_names(&s, ", offload", o->offload.at, o->offload.n);
            str_add(&s, " } },\n");
        }
    }
    for (int i = 0; i < b->at.n; i++) units += is_unit(b, b->at.at[i].path);
    for (int i = 0, k = 0; i < b->at.n; i++) { /* -1: no unit, and in a run of its own */
        bool unit = is_unit(b, b->at.at[i].path);
        host[i] = !unit ? -1 : u.state > 0 && (++k > units - units * u.state / ALL_STATE);
    }
    Runs runs = find_runs(a, b, host);
    for (int i = 0; i < runs.n; i++)
        if (host[runs.at[i].first] >= 0) add_unit(&s, runs.at[i].match, &u, false, host[runs.at[i].first]);
    for (int i = 0; i < b->units.n; i++)
        if (!is_block(b, b->units.at[i])) add_unit(&s, b->units.at[i], &u, !*b->units.at[i], u.state == ALL_STATE);
    str_add(&s, "}\n");
    return s.s;
}

/* "; keep a, b": nothing without names. */
static void say_names(Str *s, const char *what, const char *const *names, int n) {
    for (int i = 0; i < n; i++) str_addf(s, "%s%s%s", i ? ", " : s->n ? "; " : "", i ? "" : what, names[i]);
}

int entries_runs(Arena *a, const Blocks *b, const int *option, PlannedRun **out) {
    Runs runs = find_runs(a, b, keys(a, b, option));
    *out = NEW_ARRAY(a, PlannedRun, runs.n + 1);
    for (int i = 0; i < runs.n; i++) {
        const BlockOption *o = option_of(b, option, runs.at[i].first);
        Str s = {.arena = a};
        if (o->none) str_add(&s, "keep everything");
        if (o->recompute) say_names(&s, "keep ", o->save.at, o->save.n);
        say_names(&s, "offload ", o->offload.at, o->offload.n);
        if (o->recompute) str_add(&s, s.n ? "; recompute the rest" : "recompute everything");
        (*out)[i] = (PlannedRun){.match = runs.at[i].match, .blocks = runs.at[i].n, .what = s.s};
    }
    return runs.n;
}

const char *entries_units(Arena *a, UnitSetting u) {
    Str s = {.arena = a};
    if (u.reshard == STAY) str_add(&s, "stay gathered between forward and backward");
    if (u.reshard == RESHARD) str_add(&s, "reshard after the forward");
    if (u.prefetch == 0) str_addf(&s, "%sgathered when they are needed", s.n ? ", " : "");
    if (u.prefetch > 0)
        str_addf(&s, "%sgathered %d unit%s ahead", s.n ? ", " : "", u.prefetch, u.prefetch > 1 ? "s" : "");
    if (u.state == 0) str_addf(&s, "%sstate on the device", s.n ? ", " : "");
    if (u.state == ALL_STATE) str_addf(&s, "%sparameters and optimizer state on the host", s.n ? ", " : "");
    if (u.state > 0 && u.state < ALL_STATE)
        str_addf(&s, "%sparameters and optimizer state of the last %d %% of the blocks on the host", s.n ? ", " : "",
                 100 * u.state / ALL_STATE);
    return s.n ? s.s : "as the model says";
}
