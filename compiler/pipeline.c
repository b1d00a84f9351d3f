/* The way of a model through the compiler, one line a pass.
 * Relies on: every pass.
 * Relied on by: cli/input.c, the tests. */
#include "pipeline.h"
#include "cost/timeline.h"
#include "extension/extension.h"
#include "ir/rules.h"
#include "ir/training.h"
#include "lower/lower.h"
#include "schedule/schedule.h"
#include "verify/verify.h"

/* What the training program has after a pass, kernels as if each ran alone. */
static PassRecord measured(const Graph *g, const Device *d) {
    PassRecord x = {0};
    const Program *p = g->train;
    for (int i = 0; i < g->programs.n; i++)
        if (!strcmp(g->programs.at[i]->name, "micro")) p = g->programs.at[i];
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (op_is(op, T_VIEW | T_ASSEMBLE)) continue;
        x.events++;
        if (op_is(op, T_COLLECTIVE | T_COPY)) {
            x.transfers++;
            continue;
        }
        Cost c = op_info[op->kind].cost ? op_info[op->kind].cost(op) : (Cost){0};
        Event e = {.purpose = op->purpose,
                   .stream = op_stream(op),
                   .comm = -1,
                   .flops = c.flops,
                   .bytes = c.bytes,
                   .least_us = c.least_us,
                   .op_ir = op};
        x.flops += c.flops;
        x.bytes += c.bytes;
        x.kernel_us += device_event_us(d, &e, 1, 1);
    }
    return x;
}

static void record(const char *pass, Graph *g, const Device *d, const PipelineOptions *o) {
    PassRecord x = o->explain ? measured(g, d) : (PassRecord){0};
    x.name = pass;
    x.nops = g->nops;
    push(&g->passes, g->arena, x);
}

/* last: the later of two passes that --dump-after knows by one name, or NULL. */
static void after(const char *pass, const char *last, Graph *g, const Device *d, const PipelineOptions *o) {
    record(last ? last : pass, g, d, o);
    if (!o->quick) graph_check(g, pass);
    if (!o->dump_after || strcmp(o->dump_after, pass)) return;
    const Program *traced[] = {g->train, g->assign, g->eval, g->sample};
    for (int i = 0; i < 4 && !g->programs.n; i++)
        if (traced[i]) program_dump(stdout, g, traced[i]);
    for (int i = 0; i < g->programs.n; i++) program_dump(stdout, g, g->programs.at[i]);
}

static void each_traced(Graph *g, void (*pass)(Graph *, Program *)) {
    pass(g, g->train);
    if (g->assign) pass(g, g->assign);
    if (g->eval) pass(g, g->eval);
    if (g->sample) pass(g, g->sample);
}

static void each_program(Graph *g, void (*pass)(Graph *, Program *)) {
    for (int i = 0; i < g->programs.n; i++) pass(g, g->programs.at[i]);
}

static const char *target_of(const Device *d, const PipelineOptions *o) {
    return o->target ? o->target : d->target;
}

/* Staging memory that a kernel asks for is a storage like any other. */
static void workspaces(Graph *g, Program *p, const Machine *m) {
    for (int i = 0; i < p->ops.n; i++) {
        Op *op = p->ops.at[i];
        if (!op_info[op->kind].workspace) continue;
        int64_t bytes = op_info[op->kind].workspace(op, m);
        if (!bytes) continue;
        op->workspace = value_new(g, BOOL, 1, &bytes);
        op->workspace->def = op;
    }
}

static const char *arch_of(const Device *d, const PipelineOptions *o) {
    return o->arch ? o->arch : d->arch ? d->arch : "sm_90";
}

/* How long documents are, where the command says so, and what computes attention. */
static void assume(const Graph *g, const Program *p, int length, bool hopper) {
    for (int i = 0; i < p->ops.n; i++) {
        if (length) rule_assume_documents(p->ops.at[i], length);
        rule_assume_kernels(p->ops.at[i], hopper, !g->deterministic);
    }
}

void pipeline_lower(Graph *g, const Device *d, const PipelineOptions *o) {
    const Program *traced[] = {g->train, g->assign, g->eval, g->sample};
    bool hopper = !strcmp(target_of(d, o), "cuda") && !strcmp(arch_of(d, o), "sm_90");
    for (int i = 0; i < 4; i++)
        if (traced[i]) assume(g, traced[i], o->document_length, hopper);
    after("trace", NULL, g, d, o);
    lower_units(g);
    lower_scale_check(g);
    each_traced(g, lower_precision);
    record("precision", g, d, o);
    lower_inputs(g);
    after("precision", "inputs", g, d, o);
    extension_load(g, target_of(d, o)); /* the user's C is read and held against its use */
    each_traced(g, lower_qkv_fusion);
    record("qkv_fusion", g, d, o);
    each_traced(g, lower_epilogue_fusion_traced);
    after("qkv_fusion", "epilogue_fusion", g, d, o);
    if (!strcmp(target_of(d, o), "cuda")) lower_quantize_check(g, d, arch_of(d, o));
    each_traced(g, lower_quantize);
    lower_narrow(g);
    after("quantize", NULL, g, d, o);
    lower_autodiff(g, g->train);
    record("autodiff", g, d, o);
    lower_chunks(g, g->train);
    after("autodiff", "chunks", g, d, o);
    each_traced(g, lower_epilogue_fusion);
    each_traced(g, lower_quantize_fusion);
    after("epilogue_fusion", NULL, g, d, o);
    each_traced(g, lower_rematerialize);
    after("rematerialize", NULL, g, d, o);
    each_traced(g, lower_concat_in_place);
    after("concat_in_place", NULL, g, d, o);
    each_traced(g, lower_fuse); /* numerics are frozen from here on */
    after("fuse", NULL, g, d, o);
    lower_recompute(g, g->train);
    after("recompute", NULL, g, d, o);
    lower_place_updates(g, d);
    lower_shard(g);
    each_program(g, lower_accumulate);
    after("shard", NULL, g, d, o);
    each_program(g, lower_offload);
    after("offload", NULL, g, d, o);
    if (o->quick) graph_check(g, "the last pass");
    Machine m = {!strcmp(target_of(d, o), "cuda"), d->threads > 0 ? d->threads : 1, d->multiprocessors, o->wide};
    for (int i = 0; i < g->programs.n; i++) workspaces(g, g->programs.at[i], &m);
}

/* A plan that verify refuses is a defect of the compiler, never of the model. */
static void prove(const Plan *plan) {
    const Findings *f = verify(plan->arena, plan);
    if (!f->n) return;
    bug(NOWHERE, "the plan of this model is not sound: %s: %s (the first of %d findings)", f->at[0].rule, f->at[0].text,
        f->n);
}

Plan *pipeline_plan(const Graph *g, const Device *d, const PipelineOptions *o) {
    Plan *plan = NEW(g->arena, Plan);
    plan->arena = g->arena;
    plan->graph = g;
    plan->model = g->name;
    plan->target = target_of(d, o);
    plan->arch = arch_of(d, o);
    plan->device = d->name;
    plan->threads = d->threads;
    plan->world = g->world;
    plan->nodes = g->nodes;
    plan->options = g->training->options.at;
    plan->noptions = g->training->options.n;
    plan->policies = g->training->policies.at;
    plan->npolicies = g->training->policies.n;
    Schedule *s = schedule_order(g, d, plan);
    schedule_place(plan, s, o->redzone, o->estimate);
    schedule_sync(plan, s);
    if (!o->estimate) prove(plan);
    cost_simulate(plan, d);
    lower_unused(plan);
    if (strcmp(plan->target, d->target)) { /* a GPU's schedule on the CPU takes nothing of the GPU */
        plan->device_usable = 0;
        plan->nlibrary = 0;
    }
    return plan;
}
