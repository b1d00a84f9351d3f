/* simulate: when each event runs on the device profile. An event starts when the one before it on its stream and those
 * that it waits for are finished; the text is a topological order, so one walk over it is the simulation. Relies on:
 * wait, cost. Relied on by: the reports. */
#include "passes.h"

#include <math.h>

enum { AGAIN = 4 }; /* walks in which copies up and down learn when the others run */

static bool hides(Stream s) {
    return s == GATHER || s == REDUCE || s == OFFLOAD || s == FETCH;
}

/* What runs beside kernels, a stream each: events that slow others down, in order, and the first not over yet. */
typedef struct {
    int *events, n, at;
} Beside;

/* Kernels from `start` on that take `left` by themselves: when they end, given what else runs. What starts later than
 * their event in the text is not known yet, and counts for those that follow. */
static double end_beside(const PlanProgram *p, const Device *d, Beside *b, double start, double left) {
    double t = start;
    for (;;) {
        double share = 0, next = t + 1e18;
        for (int s = 0; s < N_STREAMS; s++) {
            while (b[s].at < b[s].n) { /* compute's time only grows */
                const Event *e = &p->events[b[s].events[b[s].at]];
                double end = e->start_us + e->duration_us;
                if (end <= t) {
                    b[s].at++;
                    continue;
                }
                bool runs = e->start_us <= t;
                if (runs) share += event_slows_others(d, e);
                if ((runs ? end : e->start_us) < next) next = runs ? end : e->start_us;
                break;
            }
        }
        double done = (next - t) / (1 + share);
        if (done >= left) return t + left * (1 + share);
        left -= done;
        t = next;
    }
}

/* Copies one way, as they ran in the walk before, and the first not over yet. */
typedef struct {
    double *begin, *end;
    int n, at;
} Copies;

static Copies copies_of(const PlanProgram *p, Stream s, Arena *a) {
    Copies c = {NEW_ARRAY(a, double, p->n + 1), NEW_ARRAY(a, double, p->n + 1), 0, 0};
    for (int i = 0; i < p->n; i++) {
        if (p->events[i].stream != s) continue;
        c.begin[c.n] = p->events[i].start_us;
        c.end[c.n++] = p->events[i].start_us + p->events[i].duration_us;
    }
    return c;
}

/* When a copy from `start` on ends that takes `left` by itself, given those the other way. */
static double copy_end(Copies *c, double start, double left, double alone, double both) {
    double t = start;
    for (;;) {
        while (c->at < c->n && c->end[c->at] <= t) c->at++;
        bool beside = c->at < c->n && c->begin[c->at] <= t;
        double next = c->at == c->n ? t + 1e18
                      : beside      ? c->end[c->at]
                                    : c->begin[c->at],
               slower = beside ? both : alone;
        if ((next - t) / slower >= left) return t + left * slower;
        left -= (next - t) / slower;
        t = next;
    }
}

/* What a prediction cannot know is cut off: times of 17 digits take longer to write than all else of an event. */
static double picoseconds(double us) {
    return rint(us * 1e6) / 1e6;
}

/* Communication that compute has to wait for: while it idles for one of those streams, and after its last event. d
 * NULL: durations are there already. again: times are those of a walk before this. */
static void simulate_program(const Plan *plan, PlanProgram *p, const Device *d, bool again) {
    double end[N_STREAMS] = {0}, total = 0;
    bool deterministic = !plan->graph || plan->graph->deterministic;
    Arena *own = arena_new();
    Beside beside[N_STREAMS] = {0};
    for (int s = 0; s < N_STREAMS; s++) beside[s].events = NEW_ARRAY(own, int, p->n + 1);
    Copies other[N_STREAMS] = {0};
    if (again) other[FETCH] = copies_of(p, OFFLOAD, own), other[OFFLOAD] = copies_of(p, FETCH, own);
    p->exposed_us = 0;
    for (int i = 0; i < p->n; i++) {
        Event *e = &p->events[i];
        double start = end[e->stream];
        int cause = -1;
        for (int k = 0; k < e->nwaits; k++) {
            const Event *w = &p->events[e->waits[k]];
            double done = w->start_us + w->duration_us;
            if (done <= start) continue;
            start = done;
            cause = w->stream;
        }
        if (e->stream == COMPUTE && cause >= 0 && hides((Stream)cause)) p->exposed_us += start - end[COMPUTE];
        start = e->start_us = picoseconds(start);
        if (d) e->duration_us = event_duration_us(d, e, event_group(plan, e), event_here(plan, e), deterministic);
        double alone = d ? copy_slows(d, plan, e, false) : 1, both = d ? copy_slows(d, plan, e, true) : 1;
        if (alone != 1 || both != 1)
            e->duration_us = copy_end(&other[e->stream], start, e->duration_us, alone, both) - start;
        if (d && e->stream == COMPUTE)
            e->duration_us = end_beside(p, d, beside, start, e->duration_us) - start;
        else if (d && event_slows_others(d, e) > 0)
            beside[e->stream].events[beside[e->stream].n++] = i;
        e->duration_us = picoseconds(e->duration_us);
        end[e->stream] = start + e->duration_us;
        if (end[e->stream] > total) total = end[e->stream];
    }
    double communication = 0;
    for (int s = 0; s < N_STREAMS; s++)
        if (hides((Stream)s) && end[s] > communication) communication = end[s];
    double busy = end[COMPUTE] > end[HOST] ? end[COMPUTE] : end[HOST];
    if (end[UPDATE] > busy) busy = end[UPDATE];
    if (communication > busy) p->exposed_us += communication - busy;
    p->exposed_us = picoseconds(p->exposed_us);
    p->step_us = picoseconds(total);
    arena_free(own);
}

/* A delayed collective takes nothing away from kernels meanwhile: they last as long as they did. */
void delay_collectives(Plan *plan, const double *delay_us) {
    for (int i = 0; i < plan->nprograms; i++) {
        PlanProgram *p = &plan->programs[i];
        for (int k = 0; k < p->n; k++)
            if (p->events[k].comm >= 0 && event_group(plan, &p->events[k]) > 1)
                p->events[k].duration_us += delay_us[p->events[k].stream];
        simulate_program(plan, p, NULL, false);
    }
}

/* ── what the prediction is measured by ────────────────────────────────────────────────────────────────────── */
/* The first input decides, as in a run: samples are its rows, tokens its elements where it holds any. */
static void measure_work(Plan *plan) {
    const Graph *g = plan->graph;
    plan->tokens_per_step = plan->samples_per_step = 0;
    for (int i = 0; i < g->inputs.n; i++) {
        const Input *in = g->inputs.at[i];
        if (!in->value) continue;
        bool has_rows = in->dims > 1 || (in->dims && !in->tokens); /* tokens without rows are one sample */
        double rows = plan->world * (has_rows ? (double)in->shape[0] : 1), n = plan->world;
        for (int k = 0; k < in->dims; k++) n *= (double)in->shape[k];
        if (!plan->samples_per_step) plan->samples_per_step = rows;
        if (in->tokens && !plan->tokens_per_step) plan->tokens_per_step = n;
    }
}

/* Arithmetic that the model asks for: no recomputation, no optimizer. The peak is that of the dtype which does most. */
static void measure_flops(Plan *plan, const Device *d) {
    double by_dtype[N_DTYPES] = {0};
    Dtype most = FP32;
    plan->model_flops = 0;
    for (int i = 0; i < plan->nprograms; i++) {
        const PlanProgram *p = &plan->programs[i];
        if (strcmp(p->name, "micro")) continue;
        for (int k = 0; k < p->n; k++) {
            const Event *e = &p->events[k];
            if (e->phase != FORWARD && e->phase != BACKWARD) continue;
            plan->model_flops += e->flops;
            if (e->op_ir && e->op_ir->nin) by_dtype[op_operand(e->op_ir)->dtype] += e->flops;
        }
    }
    for (int t = 0; t < N_DTYPES; t++)
        if (by_dtype[t] > by_dtype[most]) most = (Dtype)t;
    plan->peak_flops = d->flops[most] > 0 ? d->flops[most] : d->flops[FP32];
}

static bool has_stream(const PlanProgram *p, Stream s) {
    for (int i = 0; i < p->n; i++)
        if (p->events[i].stream == s) return true;
    return false;
}

void simulate(Plan *plan, const Device *d) {
    for (int i = 0; i < plan->nprograms; i++) {
        PlanProgram *p = &plan->programs[i];
        simulate_program(plan, p, d, false);
        for (int again = 0; again < AGAIN && has_stream(p, FETCH) && has_stream(p, OFFLOAD); again++)
            simulate_program(plan, p, d, true);
    }
    if (plan->graph) measure_work(plan);
    measure_flops(plan, d);
    plan->device_usable = d->usable_bytes;
    footprint(plan, d);
}
