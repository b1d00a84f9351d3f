/* `shardc predict --sweep`: all combinations of some keys' values, as a table, CSV, JSON and a picture.
 * Relies on: points.h, report/chart.h.
 * Relied on by: predict.c. */
#include "../plan/figures.h"
#include "../report/chart.h"
#include "number.h"
#include "points.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>

enum { MOST_POINTS = 4096 };

/* ── values ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    int64_t from, to, step;
    bool times;
} Range;

/* 8..64, 4..32+4, 1024..16384x2. False: it is no range, but a value. */
static bool range_of(Arena *a, const char *sweep, const char *text, Range *r) {
    const int64_t most = 1ll << 53;
    const char *dots = text + strspn(text, "+-");
    size_t digits = strspn(dots, "0123456789");
    dots += digits;
    if (!digits || strncmp(dots, "..", 2)) return false;
    const char *to = dots + 2, *by = to + strspn(to, "+-");
    by += strspn(by, "0123456789");
    *r = (Range){.step = 1, .times = *by == 'x'};
    bool good = sc_read_whole(arena_printf(a, "%.*s", (int)(dots - text), text), -most, most, &r->from) &&
                sc_read_whole(arena_printf(a, "%.*s", (int)(by - to), to), r->from, most, &r->to);
    if (good && *by) good = (*by == 'x' || *by == '+') && sc_read_whole(by + 1, r->times ? 2 : 1, most, &r->step);
    if (!good || (r->times && r->from < 1))
        fail_usage("--sweep %s: %s is no range; write 8..64, 4..32+4 (in steps of 4) or 1024..16384x2 (doubled), with "
                   "whole numbers of at most 2^53",
                   sweep, text);
    return true;
}

static PointKey key_of(Arena *a, const char *sweep) {
    const char *equals = strchr(sweep, '=');
    if (!equals || equals == sweep || !equals[1])
        fail_usage(
            "--sweep %s: KEY=VALUE,VALUE,... is wanted, for example --sweep batch=1,2,4 or --sweep world=8..64x2",
            sweep);
    char *name = arena_strdup(a, sweep), *values = name + (equals - sweep) + 1;
    values[-1] = 0;
    VEC(const char *) all = {0};
    for (char *value = values, *comma; value; value = comma) {
        comma = strchr(value, ',');
        if (comma) *comma++ = 0;
        if (!*value) fail_usage("--sweep %s: a value between commas is empty; leave out the comma", sweep);
        Range r;
        if (!range_of(a, sweep, value, &r)) {
            push(&all, a, value);
            continue;
        }
        for (int64_t x = r.from; all.n <= MOST_POINTS; x = r.times ? x * r.step : x + r.step) {
            push(&all, a, arena_printf(a, "%lld", (long long)x));
            if (r.times ? x > r.to / r.step : x > r.to - r.step) break; /* the next one is beyond the end */
        }
    }
    return (PointKey){name, all.at, all.n};
}

static bool given(const Options *o, const char *key) {
    size_t n = strlen(key);
    for (int i = 0; i < o->set.n; i++)
        if (!strncmp(o->set.at[i], key, n) && o->set.at[i][n] == '=') return true;
    return (o->world && !strcmp(key, "world")) || (o->nodes && !strcmp(key, "nodes")) ||
           (o->device && !strcmp(key, "device")) || (o->budget && !strcmp(key, "budget"));
}

/* The product, the last key running fastest. */
static Points points_of(Arena *a, const Options *o) {
    PointKey *keys = NEW_ARRAY(a, PointKey, o->sweep.n);
    int n = 1;
    for (int k = 0; k < o->sweep.n; k++) {
        keys[k] = key_of(a, o->sweep.at[k]);
        if (given(o, keys[k].name))
            fail_usage("--sweep %s: %s is given a single value too; leave that out", o->sweep.at[k], keys[k].name);
        for (int i = 0; i < k; i++)
            if (!strcmp(keys[i].name, keys[k].name))
                fail_usage("--sweep %s: %s is swept already; give all its values at once, with commas", o->sweep.at[k],
                           keys[k].name);
        if (keys[k].n > MOST_POINTS / n)
            fail_usage("--sweep %s: these are more than %d points; give fewer values, or sweep several times",
                       o->sweep.at[k], MOST_POINTS);
        n *= keys[k].n;
    }
    Points p = {o, keys, o->sweep.n, NEW_ARRAY(a, SweepPoint, n), n};
    for (int i = 0; i < n; i++) {
        p.at[i].values = NEW_ARRAY(a, const char *, p.nkeys);
        for (int k = p.nkeys - 1, rest = i; k >= 0; rest /= keys[k--].n)
            p.at[i].values[k] = keys[k].values[rest % keys[k].n];
        points_options(a, &p, &p.at[i]); /* to refuse it before any is compiled */
    }
    return p;
}

/* ── the picture ────────────────────────────────────────────────────────────────────────────────────────────────── */
/* The last key whose values are all numbers; -1. */
static int numeric_key(const Points *p) {
    for (int k = p->nkeys - 1; k >= 0; k--) {
        bool all = true;
        double x;
        for (int i = 0; i < p->keys[k].n; i++) all = all && sc_read_number(p->keys[k].values[i], &x);
        if (all) return k;
    }
    return -1;
}

static int by_x(const void *a, const void *b) {
    const double *x = a, *y = b; /* of Mark */
    return (*x > *y) - (*x < *y);
}

typedef struct {
    double x;
    const SweepPoint *point;
} Mark;

/* Two charts over one key: how fast, and how large the arena is. A line for each combination of the other keys. */
static void draw(Arena *a, const Points *p, int key) {
    Map *names = map_new(a);
    for (int i = 0; i < p->n; i++) map_index(names, points_label(a, p, &p->at[i], key));
    int lines = map_len(names);
    ChartSeries *speed = NEW_ARRAY(a, ChartSeries, lines), *arena = NEW_ARRAY(a, ChartSeries, lines);
    bool tokens = false, gpu = false;
    double low = INFINITY, high = 0;
    for (int l = 0; l < lines; l++) {
        VEC(Mark) marks = {0};
        for (int i = 0; i < p->n; i++) {
            const SweepPoint *x = &p->at[i];
            Mark m = {0, x};
            if (x->error || strcmp(points_label(a, p, x, key), map_key(names, l))) continue;
            sc_read_number(x->values[key], &m.x);
            low = fmin(low, m.x);
            high = fmax(high, m.x);
            tokens |= x->is.tokens > 0;
            gpu |= x->is.gpu;
            push(&marks, a, m);
        }
        if (marks.n) qsort(marks.at, (size_t)marks.n, sizeof *marks.at, by_x);
        double *x = NEW_ARRAY(a, double, marks.n + 1), *y = NEW_ARRAY(a, double, marks.n + 1),
               *z = NEW_ARRAY(a, double, marks.n + 1);
        bool *hollow = NEW_ARRAY(a, bool, marks.n + 1);
        const char **label = NEW_ARRAY(a, const char *, marks.n + 1);
        for (int i = 0; i < marks.n; i++) {
            const SweepPoint *q = marks.at[i].point;
            x[i] = marks.at[i].x;
            y[i] = points_speed(q);
            z[i] = (double)q->is.arena / (1 << 30);
            hollow[i] = !q->is.fits;
            label[i] = arena_printf(a, "%s: arena %s, %s %s a second%s", points_label(a, p, q, -1),
                                    figure_bytes(a, (double)q->is.arena), figure_grouped(a, y[i]),
                                    q->is.tokens > 0 ? "tokens" : "samples", hollow[i] ? ", does not fit" : "");
        }
        const char *name = *map_key(names, l) ? map_key(names, l) : NULL;
        speed[l] = (ChartSeries){.name = name, .x = x, .y = y, .label = label, .n = marks.n, .hollow = hollow};
        arena[l] = (ChartSeries){.x = x, .y = z, .label = label, .n = marks.n, .hollow = hollow};
    }
    bool log_x = low > 0 && high >= 16 * low;
    const char *unit = arena_printf(a, "%s a second, each %s", tokens ? "tokens" : "samples", gpu ? "GPU" : "rank");
    const char *model = arena_printf(a, "%s: %s", basename(p->o->inputs.at[0]), unit);
    Chart charts[] = {{.title = model, .x = p->keys[key].name, .y = unit, .series = speed, .n = lines, .log_x = log_x},
                      {.title = "Arena (hollow: does not fit)",
                       .x = p->keys[key].name,
                       .y = "arena, GiB",
                       .series = arena,
                       .n = lines,
                       .log_x = log_x}};
    OutFile f = out_open(a, p->o->svg);
    chart_column(f.f, a, charts, 2);
    out_commit(&f);
}

/* ── the command ────────────────────────────────────────────────────────────────────────────────────────────────── */
int cli_sweep(Arena *a, const Options *o) {
    Points p = points_of(a, o);
    int key = o->svg ? numeric_key(&p) : -1, compiled = 0;
    if (o->svg && key < 0)
        fail_usage("--svg %s: a picture is drawn over a key whose values are numbers; sweep one, such as --sweep "
                   "batch=1,2,4",
                   o->svg);
    points_run(a, &p, POINT_FULL, "points");
    bool alike = true; /* every point fails for one reason: that is the message, not a table of it */
    for (int i = 0; i < p.n; i++) {
        compiled += !p.at[i].error;
        alike = alike && p.at[i].error && !strcmp(p.at[i].error, p.at[0].error);
    }
    if (alike) fail(NOWHERE, "no point of this sweep compiles: %s", p.at[0].error);
    if (o->svg) draw(a, &p, key);
    OutFile f = cli_output(a, o);
    if (cli_as_json(o)) {
        cJSON *all = cJSON_CreateObject();
        cJSON_AddStringToObject(all, "format", "shardc-sweep");
        cJSON_AddNumberToObject(all, "version", 1);
        cJSON_AddStringToObject(all, "model", points_utf8(a, o->inputs.at[0]));
        cJSON_AddItemToObject(all, "points", points_json(a, &p));
        points_print_json(f.f, all);
    } else if (cli_as_csv(o)) {
        points_csv(f.f, a, &p);
    } else {
        points_text(f.f, a, &p);
    }
    cli_output_done(o, &f);
    return compiled ? 0 : 1;
}
