/* A difference of two plans as text: figures, sums, and events and storages folded by equal layers ("h.*").
 * Relies on: diff.h, live.h (patterns of paths), figures.h, lines.h, report.h. Relied on by: cli/diff.c. */
#include "../plan/figures.h"
#include "../plan/lines.h"
#include "../plan/live.h"
#include "diff.h"
#include "report.h"

#include <math.h>
#include <stdlib.h>

typedef enum { AS_BYTES, AS_TIME, AS_COUNT, AS_SHARE } Measure;

enum {
    MOST_SUMS = 4,
    MOST_EVENTS = 6,
    MOST_STORAGES = 4,
    MOST_MODULES = 3
}; /* rows of a section, unless all are wanted */

static const char *amount(Arena *a, Measure u, double x) {
    switch (u) {
    case AS_BYTES: return figure_bytes(a, x);
    case AS_TIME: return figure_time(a, x);
    case AS_COUNT: return figure_grouped(a, x);
    default: return arena_printf(a, "%.3f", x);
    }
}

/* A difference that would be shown as 0 is none. */
static bool shown_same(Arena *a, Measure u, double from, double to) {
    return diff_row_same(&(DiffRow){"", from, to}) || !strcmp(amount(a, u, fabs(to - from)), amount(a, u, 0));
}

static const char *change(Arena *a, Measure u, double from, double to) {
    if (shown_same(a, u, from, to)) return arena_printf(a, "%s<0.1 us", to < from ? "-" : "+"); /* of bytes none is */
    const char *share = from != 0 ? arena_printf(a, " (%s)", figure_change(a, from, to, 2)) : "";
    return arena_printf(a, "%s%s%s", to < from ? "-" : "+", amount(a, u, fabs(to - from)), share);
}

/* ── sums ────────────────────────────────────────────────────────────────────────────────────────────────────────── */
enum { SUMS_FROM = 32, WHAT_FROM = 21 }; /* the columns at which figures and texts begin */

static void sum_line(FILE *f, Arena *a, Measure u, const char *name, double from, double to) {
    lines_open(f, SUMS_FROM, arena_printf(a, "  %s", name));
    fprintf(f, "%12s %11s  ", amount(a, u, from), amount(a, u, to));
    if (shown_same(a, u, from, to))
        fputs("the same\n", f);
    else if (from == 0)
        fprintf(f, "+%s\n", amount(a, u, to));
    else
        fprintf(f, "%s%-9s %10s\n", to < from ? "-" : "+", amount(a, u, fabs(to - from)),
                figure_change(a, from, to, 2));
}

/* What a row is of, and figures behind it: parted where two blanks or a comma stand. */
static void row_line(FILE *f, Arena *a, const char *label, const char *what, const char *figures) {
    Lines l = lines_open(f, WHAT_FROM, label);
    const char *text = arena_printf(a, "%s%s", what, figures);
    while (*text) {
        size_t blanks = strspn(text, " "), n = blanks;
        while (text[n] && strncmp(text + n, "  ", 2) && strncmp(text + n, ", ", 2)) n++;
        n += text[n] == ',';
        lines_piece(&l, arena_printf(a, "%.*s", (int)(n - (blanks > 0)), text + (blanks > 0)));
        text += n;
    }
    lines_close(&l);
}

static int by_change(const void *x, const void *y) {
    const DiffRow *a = x, *b = y;
    double m = fabs(a->b - a->a), n = fabs(b->b - b->a);
    return m != n ? (m < n) - (m > n) : strcmp(a->name, b->name);
}

static void sums(FILE *f, Arena *a, const char *title, Measure u, const DiffRows *rows, bool all) {
    DiffRows changed = {0};
    for (int i = 0; i < rows->n; i++)
        if (!diff_row_same(&rows->at[i]) && (all || !shown_same(a, u, rows->at[i].a, rows->at[i].b)))
            push(&changed, a, rows->at[i]);
    if (!changed.n) return;
    qsort(changed.at, (size_t)changed.n, sizeof *changed.at, by_change);
    fprintf(f, "%s\n", title);
    int n = all || changed.n <= MOST_SUMS + 1 ? changed.n : MOST_SUMS;
    DiffRow rest = {NULL, 0, 0};
    for (int i = 0; i < changed.n; i++) {
        const DiffRow *r = &changed.at[i];
        if (i < n) sum_line(f, a, u, r->name, r->a, r->b);
        rest.a += i < n ? 0 : r->a;
        rest.b += i < n ? 0 : r->b;
    }
    if (n < changed.n) sum_line(f, a, u, arena_printf(a, "%d others", changed.n - n), rest.a, rest.b);
}

/* ── folded rows of events and storages ──────────────────────────────────────────────────────────────────────────── */
typedef VEC(const Storage *) Storages;
typedef struct {
    int kind, count, rank; /* rank: among the rows of its kind, the largest first */
    const char *what;      /* "all_gather  forward layers.*" */
    double from, to;       /* microseconds of all; bytes: the most of them that are alive at once */
    int least, most;       /* places moved */
    bool in_turn;          /* of storages: not all are alive at once */
    Storages of[2];        /* in A, in B */
    const Event *like;     /* one of its events */
    int removed;           /* of a row that holds added and removed events of one op: how many are in A alone */
} Fold;
typedef struct {
    VEC(Fold) rows;
    Map *index;
    int counts[N_EVENT_CHANGES];
} Folds;

static Fold *fold(Arena *a, Folds *s, int kind, const char *what, double from, double to, int places) {
    int k = map_index(s->index, arena_printf(a, "%d %s", kind, what));
    if (k == s->rows.n) push(&s->rows, a, ((Fold){.kind = kind, .what = what, .least = places, .most = places}));
    Fold *row = &s->rows.at[k];
    row->count++;
    row->from += from;
    row->to += to;
    if (places < row->least) row->least = places;
    if (places > row->most) row->most = places;
    s->counts[kind]++;
    return row;
}

typedef struct {
    int place; /* in issue order */
    double bytes;
} Step;

static int by_place(const void *x, const void *y) {
    const Step *a = x, *b = y;
    return a->place != b->place ? (a->place > b->place) - (a->place < b->place)
                                : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* The most bytes of a program's storages that are alive while an event is issued. *in_turn: less than all. */
static double most_at_once(Arena *a, const Storages *s, bool *in_turn) {
    Step *steps = arena_alloc(a, (size_t)(2 * s->n + 1) * sizeof *steps);
    for (int i = 0; i < s->n; i++) {
        const Storage *x = s->at[i];
        bool lasting = x->program < 0;
        steps[2 * i] = (Step){lasting ? 0 : x->first, (double)x->size};
        steps[2 * i + 1] = (Step){lasting ? INT32_MAX : x->last + 1, -(double)x->size};
    }
    qsort(steps, (size_t)(2 * s->n), sizeof *steps, by_place);
    double now = 0, most = 0, all = 0;
    for (int i = 0; i < 2 * s->n; i++) {
        now += steps[i].bytes;
        most = fmax(most, now);
        all += fmax(steps[i].bytes, 0);
    }
    *in_turn |= most < all;
    return most;
}

/* What rows of a kind are ordered by: how much longer or larger, or how far events have moved. */
static double size_of(const Fold *r) {
    bool moved = (r->kind == EVENT_SOONER || r->kind == EVENT_LATER) && (r->least || r->most); /* not of storages */
    return moved ? fmax(abs(r->least), abs(r->most)) : fabs(r->to - r->from);
}

static int by_size(const void *x, const void *y) {
    const Fold *a = x, *b = y;
    if (a->kind != b->kind) return a->kind - b->kind;
    double m = size_of(a), n = size_of(b);
    if (m != n) return (m < n) - (m > n);
    return a->count != b->count ? b->count - a->count : strcmp(a->what, b->what);
}

static int by_rank(const void *x, const void *y) {
    const Fold *a = x, *b = y;
    return a->rank != b->rank ? a->rank - b->rank : a->kind - b->kind;
}

/* The largest rows of each kind, every kind with one at least. Returns how many are left out. */
static int choose(Folds *s, int most) {
    if (!s->rows.n) return 0;
    qsort(s->rows.at, (size_t)s->rows.n, sizeof *s->rows.at, by_size);
    for (int i = 1; i < s->rows.n; i++)
        if (s->rows.at[i].kind == s->rows.at[i - 1].kind) s->rows.at[i].rank = s->rows.at[i - 1].rank + 1;
    int out = s->rows.n - most;
    if (out <= 1) return 0;
    qsort(s->rows.at, (size_t)s->rows.n, sizeof *s->rows.at, by_rank);
    while (most < s->rows.n && s->rows.at[most].rank == 0) most++;
    out = s->rows.n - most;
    s->rows.n = most;
    qsort(s->rows.at, (size_t)most, sizeof *s->rows.at, by_size);
    return out;
}

static void counts(FILE *f, Arena *a, const Folds *s, const char *title, int n, bool events) {
    Lines l = lines_open(f, 0, "");
    lines_hang(&l, WHAT_FROM);
    lines_words(&l, arena_printf(a, "%s:", title));
    int left = 0;
    for (int c = 0; c < n; c++) left += s->counts[c] != 0;
    for (int c = 0; c < n; c++)
        if (s->counts[c])
            lines_piece(&l,
                        arena_printf(a, "%d %s%s", s->counts[c],
                                     events ? diff_event_change((EventChange)c) : diff_storage_change((StorageChange)c),
                                     --left ? "," : ""));
    lines_close(&l);
}

static void left_out(FILE *f, int n) {
    if (n) fprintf(f, "  ... and %d more rows: --all shows them\n", n);
}

static bool same_op(const Event *x, const Event *y) {
    return !strcmp(x->op, y->op) && x->phase == y->phase && x->stream == y->stream;
}

static const char *module_of(Arena *a, const char *path) {
    return *path ? live_path_pattern(a, path) : "(model)";
}

/* What events of equal layers have in common; of an event that differs in it, both. */
static const char *what_event(Arena *a, const DiffEvent *e, EventChange c) {
    const Event *x = e->a ? e->a : e->b, *y = e->b ? e->b : e->a;
    const char *from = arena_printf(a, "%s  %s %s", x->op, phase_name(x->phase), module_of(a, x->module));
    const char *to = arena_printf(a, "%s  %s %s", y->op, phase_name(y->phase), module_of(a, y->module));
    if (c == EVENT_OP) return arena_printf(a, "%s  ->  %s", from, to);
    if (c == EVENT_STREAM)
        return arena_printf(a, "%s  from %s to %s", to, stream_name(x->stream), stream_name(y->stream));
    return arena_printf(a, "%s  on %s", to, stream_name(y->stream));
}

/* "h.*, (model)": the modules of those rows of a kind that are of one op. */
static const char *modules_of(Arena *a, const Folds *s, const Event *like) {
    Map *names = map_new(a);
    Str text = {.arena = a};
    for (int i = 0; i < s->rows.n; i++) {
        const Fold *r = &s->rows.at[i];
        if (r->kind <= EVENT_REMOVED && same_op(r->like, like)) map_index(names, module_of(a, r->like->module));
    }
    if (map_len(names) > MOST_MODULES) return arena_printf(a, "%d kinds of modules", map_len(names));
    for (int i = 0; i < map_len(names); i++) str_addf(&text, "%s%s", i ? ", " : "", map_key(names, i));
    return text.s;
}

/* Where events of one op were both added and removed, a row for all of them: what it comes to is their difference. */
static void join_exchanged(Arena *a, Folds *s) {
    Folds out = {.index = s->index};
    for (int i = 0; i < s->rows.n; i++) {
        Fold row = s->rows.at[i];
        int first[2] = {-1, -1}; /* EVENT_ADDED, EVENT_REMOVED */
        for (int k = 0; k < s->rows.n; k++) {
            const Fold *r = &s->rows.at[k];
            if (r->kind <= EVENT_REMOVED && row.kind <= EVENT_REMOVED && same_op(r->like, row.like) &&
                first[r->kind] < 0)
                first[r->kind] = k;
        }
        bool both = first[EVENT_ADDED] >= 0 && first[EVENT_REMOVED] >= 0;
        if (both && i != first[EVENT_ADDED]) continue;
        for (int k = 0; both && k < s->rows.n; k++) {
            const Fold *r = &s->rows.at[k];
            if (r->kind > EVENT_REMOVED || !same_op(r->like, row.like)) continue;
            if (r->kind == EVENT_REMOVED) row.removed += r->count;
            if (k == i) continue;
            if (r->kind == EVENT_ADDED) row.count += r->count;
            row.from += r->from;
            row.to += r->to;
        }
        if (both)
            row.what = arena_printf(a, "%s  %s %s  on %s", row.like->op, phase_name(row.like->phase),
                                    modules_of(a, s, row.like), stream_name(row.like->stream));
        push(&out.rows, a, row);
    }
    s->rows.at = out.rows.at;
    s->rows.n = out.rows.n;
}

static void program_events(FILE *f, Arena *a, const DiffProgram *g, bool all) {
    Folds s = {.index = map_new(a)};
    for (int i = 0; i < g->events.n; i++) {
        const DiffEvent *e = &g->events.at[i];
        for (int c = 0; c < N_EVENT_CHANGES; c++)
            if (e->changes >> c & 1)
                fold(a, &s, c, what_event(a, e, (EventChange)c), e->a ? e->a->duration_us : 0,
                     e->b ? e->b->duration_us : 0, e->places)
                    ->like = e->b ? e->b : e->a;
    }
    if (!s.rows.n) return;
    counts(f, a, &s, arena_printf(a, "events of %s", g->name), N_EVENT_CHANGES, true);
    if (!all) join_exchanged(a, &s);
    int out = choose(&s, all ? INT32_MAX - 1 : MOST_EVENTS);
    for (int i = 0; i < s.rows.n; i++) {
        const Fold *r = &s.rows.at[i];
        if (r->removed) {
            int net = r->count - r->removed;
            const char *sums = arena_printf(a, "+%d -%d, net %s%d", r->count, r->removed, net > 0 ? "+" : "", net);
            row_line(f, a, arena_printf(a, "  %s", sums), r->what,
                     arena_printf(a, ", %s -> %s, %s", figure_time(a, r->from), figure_time(a, r->to),
                                  r->from == r->to ? "as long" : change(a, AS_TIME, r->from, r->to)));
            continue;
        }
        const char *label = arena_printf(a, "  %4d %s", r->count, diff_event_change((EventChange)r->kind));
        const char *more = "";
        if (r->kind == EVENT_SOONER || r->kind == EVENT_LATER) {
            int x = abs(r->least), y = abs(r->most), low = x < y ? x : y, high = x < y ? y : x;
            more = arena_printf(a, ", past %s%d event%s", low == high ? "" : arena_printf(a, "%d to ", low), high,
                                high == 1 ? "" : "s");
        } else if (r->kind == EVENT_ADDED || r->kind == EVENT_REMOVED) {
            more = arena_printf(a, ", %s", figure_time(a, r->from + r->to));
        } else if (r->kind != EVENT_WAITS) {
            more = arena_printf(a, ", %s -> %s, %s", figure_time(a, r->from), figure_time(a, r->to),
                                change(a, AS_TIME, r->from, r->to));
        }
        row_line(f, a, label, r->what, more);
    }
    left_out(f, out);
}

static const char *what_storage(Arena *a, const DiffStorage *s, StorageChange c) {
    const Storage *x = s->a ? s->a : s->b, *y = s->b ? s->b : s->a;
    const char *to = arena_printf(a, "%s  %s", storage_class_name(y->cls), module_of(a, y->owner));
    if (c == STORAGE_CLASS)
        return arena_printf(a, "%s  %s  ->  %s", storage_class_name(x->cls), module_of(a, x->owner), to);
    if (c == STORAGE_ARENA)
        return arena_printf(a, "%s  %s", to, y->arena == ARENA_HOST ? "now on the host" : "now on the device");
    return to;
}

static void program_storages(FILE *f, Arena *a, const DiffProgram *g, bool all) {
    Folds s = {.index = map_new(a)};
    for (int i = 0; i < g->storages.n; i++) {
        const DiffStorage *x = &g->storages.at[i];
        for (int c = 0; c < N_STORAGE_CHANGES; c++)
            if (x->changes >> c & 1) {
                Fold *row = fold(a, &s, c, what_storage(a, x, (StorageChange)c), 0, 0, 0);
                if (x->a) push(&row->of[0], a, x->a);
                if (x->b) push(&row->of[1], a, x->b);
            }
    }
    for (int i = 0; i < s.rows.n; i++) {
        Fold *row = &s.rows.at[i];
        row->from = most_at_once(a, &row->of[0], &row->in_turn);
        row->to = most_at_once(a, &row->of[1], &row->in_turn);
    }
    if (!s.rows.n) return;
    counts(f, a, &s, arena_printf(a, "storages of %s", *g->name ? g->name : "all programs"), N_STORAGE_CHANGES, false);
    int out = choose(&s, all ? INT32_MAX - 1 : MOST_STORAGES);
    for (int i = 0; i < s.rows.n; i++) {
        const Fold *r = &s.rows.at[i];
        const char *at_once = r->in_turn ? " at most at once" : "";
        const char *label = arena_printf(a, "  %4d %s", r->count, diff_storage_change((StorageChange)r->kind)),
                   *more = "";
        if (r->kind == STORAGE_ADDED || r->kind == STORAGE_REMOVED)
            more = arena_printf(a, ", %s%s", figure_bytes(a, r->from + r->to), at_once);
        else if (r->kind == STORAGE_GREW || r->kind == STORAGE_SHRANK)
            more = arena_printf(a, ", %s -> %s%s, %s", figure_bytes(a, r->from), figure_bytes(a, r->to), at_once,
                                change(a, AS_BYTES, r->from, r->to));
        row_line(f, a, label, r->what, more);
    }
    left_out(f, out);
}

/* ── the whole ───────────────────────────────────────────────────────────────────────────────────────────────────── */
static void figures(FILE *f, Arena *a, const Diff *d) {
    bool tokens = d->a->tokens_per_step > 0 || d->b->tokens_per_step > 0;
    const struct {
        const char *title;
        Measure unit;
        bool always;
    } shown[N_FIGURES] = {
        [FIGURE_PEAK] = {"peak (device arena)", AS_BYTES, true},
        [FIGURE_BOUND] = {"its lower bound", AS_BYTES, false},
        [FIGURE_HOST] = {"host arena", AS_BYTES, false},
        [FIGURE_LIBRARY] = {"library", AS_BYTES, false},
        [FIGURE_STEP] = {"step", AS_TIME, true},
        [FIGURE_EXPOSED] = {"exposed communication", AS_TIME, true},
        [FIGURE_TOKENS] = {tokens ? "tok/s of a rank" : "samples/s of a rank", AS_COUNT, false},
        [FIGURE_MFU] = {"MFU, causal attention by half", AS_SHARE, false},
    };
    fprintf(f, "%*s%12s %11s  change\n", SUMS_FROM, "", "A", "B");
    for (int i = 0; i < N_FIGURES; i++)
        if (shown[i].always || !diff_row_same(&d->figures[i]))
            sum_line(f, a, shown[i].unit, shown[i].title, d->figures[i].a, d->figures[i].b);
}

void diff_text(FILE *f, Arena *a, const Diff *d, bool all) {
    if (d->same) {
        lines_print(f, 0, "",
                    arena_printf(a, "A and B are the same: %s for %s, world %d: no figure, event or storage differs",
                                 d->b->model, d->b->device, d->b->world));
        return;
    }
    Lines l = lines_open(f, 0, "");
    lines_words(
        &l, arena_printf(a, "%s for %s, world %d%s", d->b->model, d->b->device, d->b->world, d->settings.n ? ":" : ""));
    for (int i = 0; i < d->settings.n; i++) {
        const DiffSetting *s = &d->settings.at[i];
        const char *x = s->a ? *s->a ? s->a : "(empty)" : "(none)", *y = s->b ? *s->b ? s->b : "(empty)" : "(none)";
        lines_piece(&l, arena_printf(a, "%s %s -> %s%s", s->name, x, y, i + 1 < d->settings.n ? "," : ""));
    }
    lines_close(&l);
    figures(f, a, d);
    sums(f, a, "peak by class", AS_BYTES, &d->peak_classes, all);
    sums(f, a, "peak by module", AS_BYTES, &d->peak_modules, all);
    sums(f, a, "time of a step by stream and phase, all events", AS_TIME, &d->time_classes, all);
    sums(f, a, "time of a step by module, all events", AS_TIME, &d->time_modules, all);
    sums(f, a, "exposed by stream and module of what is waited for", AS_TIME, &d->exposed_modules, all);
    for (int i = 0; i < d->programs.n; i++) {
        const DiffProgram *g = &d->programs.at[i];
        if (*g->name && !(g->a && g->b)) {
            const PlanProgram *p = g->a ? g->a : g->b;
            lines_print(f, 0, "",
                        arena_printf(a, "program %s is only in %s: %d events, peak %s, %s", g->name, g->a ? "A" : "B",
                                     p->n, figure_bytes(a, (double)p->peak[ARENA_DEVICE]), figure_time(a, p->step_us)));
            if (!all) continue;
        }
        program_events(f, a, g, all);
        program_storages(f, a, g, all);
    }
}
