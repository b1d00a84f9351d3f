/* simulate: when each event runs on the device profile: a timeline walked in issue order, which is a topological order
 * of the waits; and what a prediction is measured by. Relies on: timeline.h; the waits of sync.c. Relied on by:
 * pipeline.c, the reports. */
#include "../ir/training.h"
#include "timeline.h"

#include <math.h>

enum { WALKS = 5 }; /* of programs with copies both ways, which learn from the walk before when the others run */

static bool hides(Stream s) {
    return s == GATHER || s == REDUCE || s == OFFLOAD || s == FETCH;
}

/* Events in issue order, each when those that it waits for have ended. Exposed is communication that compute has to
 * wait for: while it idles for one of those streams, and after its last event. */
static void walk(Timeline *t, PlanProgram *p) {
    double total = 0;
    timeline_restart(t, true);
    p->exposed_us = 0;
    for (int i = 0; i < p->n; i++) {
        const Event *e = &p->events[i];
        double ready = t->free[e->stream], idle = 0;
        for (int k = 0; k < e->nwaits; k++) {
            double done = t->end[e->waits[k]];
            if (done <= ready) continue;
            ready = done;
            idle = hides(p->events[e->waits[k]].stream) ? ready - t->free[COMPUTE] : 0;
        }
        if (e->stream == COMPUTE) p->exposed_us += idle;
        total = fmax(total, timeline_run(t, i, ready));
    }
    double communication = 0;
    for (int s = 0; s < N_STREAMS; s++)
        if (hides((Stream)s)) communication = fmax(communication, t->free[s]);
    double busy = fmax(t->free[COMPUTE], fmax(t->free[HOST], t->free[UPDATE]));
    p->exposed_us = picoseconds(p->exposed_us + fmax(communication - busy, 0));
    p->step_us = picoseconds(total);
}

static void take_times(const Timeline *t, PlanProgram *p) {
    for (int i = 0; i < p->n; i++) {
        p->events[i].start_us = t->start[i];
        p->events[i].duration_us = picoseconds(t->end[i] - t->start[i]);
    }
}

/* A delayed collective takes nothing away from kernels meanwhile: they last as long as they did. */
void delay_collectives(Plan *plan, const double *delay_us) {
    for (int i = 0; i < plan->nprograms; i++) {
        PlanProgram *p = &plan->programs[i];
        for (int k = 0; k < p->n; k++)
            if (p->events[k].comm >= 0 && event_group(plan, &p->events[k]) > 1)
                p->events[k].duration_us += delay_us[p->events[k].stream];
        Arena *own = arena_new();
        Timeline *t = timeline_new(own, plan, p, NULL);
        walk(t, p);
        take_times(t, p);
        arena_free(own);
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
        Arena *own = arena_new();
        Timeline *t = timeline_new(own, plan, p, d);
        int walks = has_stream(p, FETCH) && has_stream(p, OFFLOAD) ? WALKS : 1;
        for (int k = 0; k < walks; k++) walk(t, p);
        take_times(t, p);
        arena_free(own);
    }
    if (plan->graph) measure_work(plan);
    measure_flops(plan, d);
    plan->device_usable = d->usable_bytes;
    footprint(plan, d);
}
