/* simulate: when each event runs on the device profile, and what a prediction is measured by. Streams run at once: what
 * runs beside an event slows it for as long as both run, whichever was issued first. Relies on: timeline.h; the waits
 * of sync.c. Relied on by: pipeline.c, the reports. */
#include "../ir/rules.h"
#include "../ir/training.h"
#include "timeline.h"

#include <math.h>
#include <stdlib.h>

/* All streams side by side, from the end of one event to the next; what runs beside an event slows it meanwhile. */
static void run(Timeline *t, const PlanProgram *p) {
    int at[N_STREAMS] = {0};                   /* the event that runs, or the next one to be looked at */
    double left[N_STREAMS], slower[N_STREAMS]; /* left: us that it takes by itself; -1: none runs */
    for (int s = 0; s < N_STREAMS; s++) left[s] = -1;
    for (int i = 0; i < p->n; i++) t->end[i] = -1;
    for (double now = 0;;) {
        for (int s = 0; s < N_STREAMS; s++) {
            if (left[s] >= 0) continue;
            while (at[s] < p->n && ((int)p->events[at[s]].stream != s || t->end[at[s]] >= 0)) at[s]++;
            if (at[s] == p->n) continue;
            const Event *e = &p->events[at[s]];
            double start = t->free[s];
            int k = 0;
            for (; k < e->nwaits && (t->end[e->waits[k]] >= 0 || e->waits[k] > at[s]); k++)
                start = fmax(start, t->end[e->waits[k]]);
            if (k < e->nwaits) continue;
            t->start[at[s]] = start;
            left[s] = t->alone[at[s]];
        }
        int first = -1;
        for (int s = 0; s < N_STREAMS; s++) {
            if (left[s] < 0) continue;
            bool both = false;
            for (int x = 0; x < N_STREAMS; x++) both |= left[x] >= 0 && timeline_share(t, at[s], at[x]);
            slower[s] = both ? t->both[at[s]] : t->least[at[s]];
            for (int x = 0; x < N_STREAMS && s == COMPUTE; x++)
                if (x != COMPUTE && left[x] >= 0) slower[s] += t->share[at[x]];
            if (first < 0 || left[s] * slower[s] < left[first] * slower[first]) first = s;
        }
        if (first < 0) return;
        double step = left[first] * slower[first], start = t->start[at[first]];
        for (int s = 0; s < N_STREAMS; s++)
            if (left[s] >= 0) left[s] = fmax(left[s] - step / slower[s], 0);
        now = t->free[first] = t->end[at[first]] = start + cost_picoseconds(now + step - start);
        left[first] = -1;
    }
}

/* Communication is exposed while compute idles because it waits for it, and while it goes on after compute has ended.
 */
static void take_times(const Timeline *t, PlanProgram *p) {
    double total = 0, free[N_STREAMS] = {0};
    p->exposed_us = 0;
    for (int i = 0; i < p->n; i++) {
        Event *e = &p->events[i];
        double ready = free[e->stream], idle = 0;
        for (int k = 0; k < e->nwaits; k++) {
            double done = t->end[e->waits[k]];
            if (done <= ready) continue;
            ready = done;
            idle = stream_communicates(p->events[e->waits[k]].stream) ? ready - free[COMPUTE] : 0;
        }
        if (e->stream == COMPUTE) p->exposed_us += idle;
        e->start_us = t->start[i];
        e->duration_us = cost_picoseconds(t->end[i] - t->start[i]);
        total = fmax(total, free[e->stream] = t->end[i]);
    }
    double communication = 0;
    for (int s = 0; s < N_STREAMS; s++)
        if (stream_communicates((Stream)s)) communication = fmax(communication, free[s]);
    double busy = fmax(free[COMPUTE], fmax(free[HOST], free[UPDATE]));
    p->exposed_us = cost_picoseconds(p->exposed_us + fmax(communication - busy, 0));
    p->step_us = cost_picoseconds(total);
}

/* A delayed collective takes nothing away from kernels meanwhile: they last as long as they did. */
void cost_delay_collectives(Plan *plan, const double *delay_us) {
    for (int i = 0; i < plan->nprograms; i++) {
        PlanProgram *p = &plan->programs[i];
        for (int k = 0; k < p->n; k++)
            if (p->events[k].comm >= 0 && device_event_group(plan, &p->events[k]) > 1)
                p->events[k].duration_us += delay_us[p->events[k].stream];
        Arena *own = arena_new();
        Timeline *t = timeline_new(own, plan, p, NULL, 0);
        run(t, p);
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

/* Arithmetic that the model asks for: products, attention and what a model's own source declares; no recomputation, no
 * optimizer, no norms. The peak is that of the dtype which does most. */
static void measure_flops(Plan *plan, const Device *d) {
    double by_dtype[N_DTYPES] = {0};
    Dtype most = FP32;
    plan->model_flops = plan->model_flops_full = 0;
    for (int i = 0; i < plan->nprograms; i++) {
        const PlanProgram *p = &plan->programs[i];
        if (strcmp(p->name, "micro")) continue;
        for (int k = 0; k < p->n; k++) {
            const Event *e = &p->events[k];
            const Op *op = e->op_ir;
            if ((e->phase != FORWARD && e->phase != BACKWARD) || !op || !op->nin) continue;
            if (!device_event_is_arithmetic(e) && !op_is(op, T_FOREIGN)) continue;
            Cost c = op_info[op->kind].cost ? op_info[op->kind].cost(op) : (Cost){0};
            plan->model_flops += c.model_flops > 0 ? c.model_flops : e->flops;
            plan->model_flops_full += c.model_flops > 0 ? c.model_flops_full : e->flops;
            by_dtype[op_operand(op)->dtype] += e->flops;
        }
    }
    for (int t = 0; t < N_DTYPES; t++)
        if (by_dtype[t] > by_dtype[most]) most = (Dtype)t;
    plan->peak_dtype = d->flops[most] > 0 ? most : FP32;
    plan->peak_flops = d->flops[plan->peak_dtype];
}

static int by_time(const void *a, const void *b) {
    const Estimate *x = a, *y = b;
    return (x->us < y->us) - (x->us > y->us);
}

/* Kernels of the step whose times their own measurements do not tell, and what documents are taken for. */
static void measure_estimates(Plan *plan, const Device *d) {
    VEC(Estimate) found = {0};
    Map *known = map_new(plan->arena);
    bool measured = d->kernels_from != DATA_SHEET;
    for (int i = 0; i < plan->nprograms; i++) {
        const PlanProgram *p = &plan->programs[i];
        for (int k = 0; k < p->n && program_trains(p); k++) {
            const Event *e = &p->events[k];
            const char *as = "";
            if (!e->op_ir) continue;
            Cost c = op_info[e->op_ir->kind].cost ? op_info[e->op_ir->kind].cost(e->op_ir) : (Cost){0};
            if (c.document_length) {
                plan->document_length = c.document_length;
                plan->whole_documents = c.whole_documents;
            }
            Basis by = measured ? device_event_basis(d, e, &as) : MEASURED_ITSELF;
            if (by == MEASURED_ITSELF) continue;
            const char *key = arena_printf(plan->arena, "%s|%s", op_info[e->op_ir->kind].name, c.variant);
            Estimate *x = map_get(known, key);
            if (!x) {
                map_put(known, key, x = NEW(plan->arena, Estimate));
                *x = (Estimate){op_info[e->op_ir->kind].name, arena_strdup(plan->arena, c.variant), as, 0, 0};
            }
            x->us += e->duration_us;
            x->events++;
        }
    }
    for (int i = 0; i < map_len(known); i++) push(&found, plan->arena, *(Estimate *)map_value(known, i));
    if (found.n) qsort(found.at, (size_t)found.n, sizeof *found.at, by_time);
    plan->estimates = found.at;
    plan->nestimates = found.n;
}

/* What computes attention in a step. */
static void measure_attention(Plan *plan) {
    int n[N_ATTENTION] = {0};
    Str s = {.arena = plan->arena};
    for (int i = 0; i < plan->nprograms; i++)
        for (int k = 0; k < plan->programs[i].n && program_trains(&plan->programs[i]); k++) {
            const Op *op = plan->programs[i].events[k].op_ir;
            n[op ? rule_attention_kernel(op) : NO_ATTENTION]++;
        }
    for (int k = NO_ATTENTION + 1; k < N_ATTENTION; k++)
        if (n[k])
            str_addf(&s, "%s%s (%d event%s)", s.n ? " · " : "", rule_attention_words((AttentionKernel)k), n[k],
                     n[k] > 1 ? "s" : "");
    plan->attention = s.n && !strcmp(plan->target, "cuda") ? s.s : NULL;
}

static bool multiplies_fp8(const Op *op) {
    return op && op_info[op_timed_as(op->kind)].traits & (T_PRODUCT | T_GROUPED) && rule_is_fp8(op_operand(op)->dtype);
}

/* Products in fp8: of what throughput, and by what their times are told. The CPU multiplies what they round in fp32. */
static void measure_fp8(Plan *plan, const Device *d) {
    Arena *a = plan->arena;
    int n = 0, guessed = 0;
    double flops = d->flops[FP8_E4M3];
    for (int i = 0; i < plan->nprograms; i++)
        for (int k = 0; k < plan->programs[i].n && program_trains(&plan->programs[i]); k++) {
            const Event *e = &plan->programs[i].events[k];
            const char *as;
            if (!multiplies_fp8(e->op_ir)) continue;
            guessed += d->kernels_from == DATA_SHEET || device_event_basis(d, e, &as) == NOT_MEASURED;
            n++;
        }
    if (!n) return;
    const char *events = arena_printf(a, "%d event%s", n, n > 1 ? "s" : "");
    if (flops <= 0) {
        plan->fp8 = arena_printf(a, "%s, emulated: operands are rounded to fp8 and multiplied in fp32", events);
        return;
    }
    const char *peak = arena_printf(a, "%.4g TFLOP/s%s%s%s", flops * 1e-12, d->flops_source ? " (" : "",
                                    d->flops_source ? d->flops_source : "", d->flops_source ? ")" : "");
    const char *at = arena_printf(a, "flops and bytes, at %.2f of %s", d->matmul_efficiency, peak);
    if (guessed == n) {
        plan->fp8 = arena_printf(a, "%s, by %s", events, at);
        return;
    }
    const char *source = d->fp8_source ? d->fp8_source : "", *comma = *source ? ", " : "";
    const char *by = *source ? arena_printf(a, "kernels %s", source) : "measured kernels";
    if (d->kernels_from == DERIVED) by = arena_printf(a, "kernels scaled from %s's%s%s", d->like, comma, source);
    plan->fp8 = guessed ? arena_printf(a, "%s, by %s; %d of them by %s", events, by, guessed, at)
                        : arena_printf(a, "%s, by %s; the peak is %s", events, by, peak);
}

/* Kernels are as good as the profile says, and what no measurement tells as a data sheet's. Exposed communication is as
 * good as its links' figures: measured where the profile has curves of collectives and no group leaves its node. */
static void measure_trust(Plan *plan, const Device *d) {
    static const char *const words[] = {
        [MEASURED] = "measured kernels", [DERIVED] = "kernels scaled from", [DATA_SHEET] = NULL};
    double step = 0, exposed = 0;
    for (int i = 0; i < plan->nprograms; i++)
        if (program_trains(&plan->programs[i])) {
            step += plan->programs[i].step_us;
            exposed += plan->programs[i].exposed_us;
        }
    double share = step > 0 ? exposed / step : 0;
    plan->time_source = words[d->kernels_from];
    if (!plan->time_source) plan->time_source = strncmp(d->source, "data sheet", 10) ? "rough figures" : "data sheet";
    if (d->kernels_from == DERIVED)
        plan->time_source = arena_printf(plan->arena, "%s %s's measured ones", plan->time_source, d->like);
    if (plan->nodes > 1 && d->kernels_from != DATA_SHEET)
        plan->time_source = arena_printf(plan->arena, "%s, network by data sheet", plan->time_source);
    double kernels = plan->fp8 ? fmax(d->kernels_off, d->fp8_off) : d->kernels_off;
    plan->time_off = kernels * (1 - share) + (plan->nodes > 1 ? d->network_off : 2 * d->kernels_off) * share;
    double guessed = 0;
    for (int i = 0; i < plan->nestimates && step > 0; i++) guessed += plan->estimates[i].us / step;
    plan->time_off += fmin(guessed, 1) * fmax(UNMEASURED_OFF - kernels, 0);
    if (plan->nodes > 1) plan->time_off += 0.02; /* ranks that wait for each other: not modelled */
}

/* The CPU target has its activations in host memory already. */
static void measure_host(Plan *plan, const Device *d) {
    double ranks = plan->nodes > 1 ? plan->world / plan->nodes : plan->world;
    if (strcmp(d->target, "cuda")) return;
    plan->host_up = fmin(d->host_bandwidth, d->host_writes > 0 ? d->host_writes / ranks : INFINITY);
    plan->host_down = fmin(d->host_bandwidth, d->host_reads > 0 ? d->host_reads / ranks : INFINITY);
}

void cost_simulate(Plan *plan, const Device *d) {
    for (int i = 0; i < plan->nprograms; i++) {
        PlanProgram *p = &plan->programs[i];
        Arena *own = arena_new();
        Timeline *t = timeline_new(own, plan, p, d, 0);
        run(t, p);
        take_times(t, p);
        double idle = p->step_us - t->busy;
        if (d->power.watts > 0 && idle > 0.01 * p->step_us) { /* waiting leaves power: the clock is higher */
            t = timeline_new(own, plan, p, d, idle);
            run(t, p);
            take_times(t, p);
        }
        arena_free(own);
    }
    if (plan->graph) measure_work(plan);
    for (int i = 0; i < plan->nprograms; i++)
        for (int k = 0; k < plan->programs[i].n; k++) device_event_peaks(d, plan, &plan->programs[i].events[k]);
    measure_flops(plan, d);
    if (plan->graph) {
        measure_estimates(plan, d);
        measure_attention(plan);
        measure_fp8(plan, d);
    }
    measure_trust(plan, d);
    plan->microbatches = plan->graph && plan->graph->training ? plan->graph->training->accumulate : 0;
    plan->device_usable = d->usable_bytes;
    measure_host(plan, d);
    device_footprint(plan, d);
}
