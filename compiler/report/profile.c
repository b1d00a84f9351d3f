/* A device profile from a run: `shardc calibrate MODEL --from-trace`. Profiles are Lua, so the new one is the text of
 * that which predicted the run, and below it points that replace what it says of the kernels that ran. Every event is a
 * point. Time that passes between two events, while nothing else holds up the second, is part of one of them.
 * Relies on: actual.h, device.h (what the profile said).
 * Relied on by: cli/calibrate.c. */
#include "../ir/ops.h"
#include "actual.h"

#include <math.h>
#include <stdlib.h>

/* As devices/device.c reads it. Points with sizes stand alone; the others are a curve over bytes. */
typedef struct {
    const char *op, *variant;
    double flops, bytes, most, key[MAX_KEY], us; /* a curve is flat from `bytes` to `most` */
    int nkey, merged;                            /* merged: how many events it is the mean of */
} Sample;

typedef struct {
    const Actual *run;
    const Device *d;
    VEC(Sample) points;
    double host_bytes, host_us, least_us;
    bool alone[N_OPS], member[N_OPS]; /* kernels that are events, and members of fused groups */
} Profile;

/* The latest end of what holds an event up: what it waits for, and the event before it on its stream. */
static double ready_us(const PlanProgram *g, const ActualEvent *at, int e) {
    double ready = 0;
    int before = e - 1;
    while (before >= 0 && g->events[before].stream != g->events[e].stream) before--;
    if (before >= 0) ready = at[before].end_us;
    for (int i = 0; i < g->events[e].nwaits; i++) ready = fmax(ready, at[g->events[e].waits[i]].end_us);
    return ready;
}

/* A kernel: until the next one begins; the kernels of a step add up to what the median step took, which is more than
 * their medians where few of them hold each step up. Others: from when nothing held it up, so that what ranks wait for
 * each other is in it, until whoever waits for it alone begins. */
static double took_us(const Profile *w, const PlanProgram *g, const ActualEvent *at, int e) {
    double us = fmax(at[e].us, at[e].end_us - ready_us(g, at, e)), after = INFINITY;
    const Actual *x = w->run;
    double held_up = x->median_compute_us > 0 ? x->actual_compute_us / x->median_compute_us : 1;
    if (g->events[e].stream == COMPUTE) return at[e].us * held_up + x->gap_us;
    for (int v = e + 1; v < g->n; v++)
        for (int i = 0; i < g->events[v].nwaits; i++)
            if (g->events[v].waits[i] == e && ready_us(g, at, v) <= at[e].end_us)
                after = fmin(after, at[v].begin_us - at[e].end_us);
    return us + (isfinite(after) ? fmax(after, 0) : 0);
}

/* What a profile must say so that simulate takes as long as the run: there, what runs beside an event slows it. */
static double alone_us(const Profile *w, const PlanProgram *g, const ActualEvent *at, int event) {
    const Plan *p = w->run->plan;
    const Event *e = &g->events[event];
    int group = device_event_group(p, e);
    double us = device_event_us(w->d, e, group, device_event_here(p, e));
    if (group > 1) us /= 1 + w->d->beside[e->op_ir->kind].itself;
    double took = took_us(w, g, at, event);
    return fmax(e->duration_us > 0 ? us * took / e->duration_us : took, 1e-3);
}

static void add_event(Profile *w, const PlanProgram *g, const ActualEvent *at, int event) {
    const Plan *p = w->run->plan;
    const Event *e = &g->events[event];
    const Op *op = e->op_ir;
    if (e->stream == HOST) {
        w->host_bytes += e->bytes;
        w->host_us += at[event].us;
        return;
    }
    Sample x = {
        .op = op_info[op->kind].name, .variant = "", .bytes = e->bytes, .us = alone_us(w, g, at, event), .merged = 1};
    w->least_us = fmin(w->least_us, x.us);
    if (e->comm >= 0) {
        int group = device_event_group(p, e);
        if (group == 1 || device_event_here(p, e) < group) return; /* between machines a profile has no points */
        x.variant = arena_printf(p->arena, "%d ranks", group);
    } else if (op_info[op->kind].cost) {
        Cost c = op_info[op->kind].cost(op);
        x.variant = arena_strdup(p->arena, c.variant);
        x.nkey = c.nkey;
        memcpy(x.key, c.key, sizeof x.key);
        if (c.nkey) x.flops = c.flops, x.bytes = c.bytes;
    }
    w->alone[op->kind] = true;
    for (int i = 0; i < op->nbody; i++) w->member[op->body[i]->kind] = true;
    x.most = x.bytes;
    if (x.bytes > 0 || x.nkey) push(&w->points, p->arena, x);
}

static int by_kind(const void *a, const void *b) {
    const Sample *x = a, *y = b;
    int c = strcmp(x->op, y->op);
    if (!c) c = strcmp(x->variant, y->variant);
    for (int k = 0; !c && k < x->nkey && k < y->nkey; k++) c = (x->key[k] > y->key[k]) - (x->key[k] < y->key[k]);
    return c ? c : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static bool same_curve(const Sample *x, const Sample *y) {
    return !strcmp(x->op, y->op) && !strcmp(x->variant, y->variant);
}

static bool one_point(const Sample *x, const Sample *y) {
    bool same = same_curve(x, y);
    for (int k = 0; same && k < x->nkey; k++) same = x->key[k] == y->key[k];
    return same && (x->nkey || x->most == y->bytes || y->us < x->us);
}

/* Equal sizes become one point, and neighbours on a curve whose times fall as bytes grow (pool adjacent violators, Ayer
 * et al. 1955). */
static void merge(Profile *w) {
    int n = 0;
    if (!w->points.n) return;
    qsort(w->points.at, (size_t)w->points.n, sizeof *w->points.at, by_kind);
    for (int i = 0; i < w->points.n; i++) {
        Sample x = w->points.at[i];
        for (; n && one_point(&w->points.at[n - 1], &x); n--) {
            const Sample *y = &w->points.at[n - 1];
            double all = x.merged + y->merged, share = x.merged / all;
            x.bytes = y->bytes;
            x.us = x.us * share + y->us * (1 - share);
            x.merged += y->merged;
        }
        w->points.at[n++] = x;
    }
    w->points.n = n;
}

static void put_head(FILE *f, const Profile *w, const char *name) {
    const Actual *x = w->run;
    fprintf(f,
            "device.name = \"%s\"\n"
            "device.source = \"measured in a run of %s, world %d, steps %lld to %lld; else \" .. device.source\n"
            "device.kernels_off = 0.15 -- where the kernels are those of the run\n"
            "device.kernels = device.kernels or {}\n",
            name, x->plan->model, x->plan->world, (long long)x->first_step, (long long)x->last_step);
    if (w->least_us < w->d->launch_us) fprintf(f, "device.launch_us = %.6g -- its shortest kernel\n", w->least_us);
    if (w->host_us > 0) fprintf(f, "device.host_optimizer_bandwidth = %.6g\n", w->host_bytes / w->host_us * 1e6);
    fputs("\n-- Points of a kernel's variant in place of those that it had.\n"
          "local function measured(op, variant, points)\n"
          "  local kept = {}\n"
          "  for _, p in ipairs(device.kernels[op] or {}) do\n"
          "    if (type(p[1]) == \"string\" and p[1] or \"\") ~= variant then kept[#kept + 1] = p end\n"
          "  end\n"
          "  for _, p in ipairs(points) do kept[#kept + 1] = p end\n"
          "  device.kernels[op] = kept\n"
          "end\n",
          f);
}

static void put_points(FILE *f, const Profile *w) {
    for (int k = 0; k < N_OPS; k++) /* their time is in that of the groups */
        if (w->member[k] && !w->alone[k] && w->d->kernels[k]) fprintf(f, "device.kernels.%s = nil\n", op_info[k].name);
    for (int i = 0; i < w->points.n; i++) {
        const Sample *p = &w->points.at[i];
        bool begins = !i || !same_curve(p - 1, p), ends = i + 1 == w->points.n || !same_curve(p, p + 1);
        if (begins) fprintf(f, "measured(\"%s\", \"%s\", {\n", p->op, p->variant);
        for (int flat = 0; flat < 1 + (p->most > p->bytes && !p->nkey); flat++) {
            fputs("  { ", f);
            if (*p->variant) fprintf(f, "\"%s\", ", p->variant);
            if (p->nkey) fprintf(f, "%.17g, ", p->flops);
            fprintf(f, "%.17g, ", flat ? p->most : p->bytes);
            for (int k = 0; k < p->nkey; k++) fprintf(f, "%.17g, ", p->key[k]);
            fprintf(f, "%.9g },\n", p->us);
        }
        if (ends) fputs("})\n", f);
    }
}

void actual_profile(FILE *f, const Actual *x, const Device *d, const char *name, const char *text, size_t n) {
    Profile w = {.run = x, .d = d, .least_us = INFINITY};
    for (int i = 0; i < x->plan->nprograms; i++) {
        const PlanProgram *g = &x->plan->programs[i];
        for (int e = 0; e < g->n && x->programs[i].runs; e++)
            if (g->events[e].phase != INIT) add_event(&w, g, x->programs[i].events, e);
    }
    merge(&w);
    fputs("-- Written by `shardc calibrate --from-trace`: a profile, then what a run took in place of what it says.\n"
          "local device = (function()\n",
          f);
    fwrite(text, 1, n, f);
    fputs("\nend)()\n\n", f);
    put_head(f, &w, name);
    put_points(f, &w);
    fputs("return device\n", f);
}
