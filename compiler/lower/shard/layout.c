/* shard's flat layout: each unit's parameters in one buffer for those that train and one for the others; and the states
 * of the build. Relies on: shard.h. Relied on by: shard.c. */
#include "../../ir/policy.h"
#include "sc_amax.h"
#include "schema/record.h"
#include "shard.h"

typedef VEC(Param *) Params;

/* Appends p to the flat buffer at `at`, and returns the new end. Fused parameters are appended together, without a
 * gap, when the first of them comes. */
static int64_t append(Graph *g, const Unit *u, Params *flat, Param *p, int64_t at) {
    const FusedParams *j = p->fused;
    if (j && j->part[0] != p) return at;
    at = round_up(at, shard_flat_align(u, p));
    for (int k = 0; k < (j ? j->n : 1); k++) {
        Param *part = j ? j->part[k] : p;
        part->flat_offset = at;
        at += param_numel(part);
        push(flat, g->arena, part);
    }
    return at;
}

/* Trainable parameters by optimizer group, then by first use; offsets do not depend on the world, only the tail does.
 */
void shard_lay_out(Graph *g, Unit *u) {
    int64_t at = 0;
    Params flat = {0};
    for (int group = 0; group < g->training->optimizer->groups.n; group++)
        for (int i = 0; i < u->params.n; i++) {
            Param *p = u->params.at[i];
            if (shard_trainable(p) && p->group == group) at = append(g, u, &flat, p, at);
        }
    u->numel = round_up(at, u->shard->size * shard_slice_align(u));
    at = 0;
    for (int i = 0; i < u->params.n; i++)
        if (!shard_trainable(u->params.at[i])) at = append(g, u, &flat, u->params.at[i], at);
    u->frozen_numel = round_up(at, u->shard->size * shard_slice_align(u));
    u->params.at = flat.at;
    u->params.n = u->params.cap = flat.n;
}

/* Moments in 8 bits have a scale for each 256 elements of the flat buffer, whose layout no world changes. Where a mesh
 * spreads experts, they are 256 of the whole parameter too if each rank's part is a multiple of that. */
static void check_blocks(const Unit *u) {
    for (int i = 0; i < u->params.n && u->optimizer->moment_dtype == INT8; i++) {
        const Param *p = u->params.at[i];
        if (p->split == 1 || !shard_trainable(p) || param_numel(p) % SC_MOMENTS8_BLOCK == 0) continue;
        fail(
            u->optimizer->src,
            "optim.%s: moment_dtype = \"int8\": the mesh gives each rank %lld elements of the experts' %s, which is no "
            "multiple of %d, so that its blocks would be others on another mesh; give it another optimizer: "
            "groups = { { match = \"%s\", optimizer = optim.%s { moment_dtype = \"bf16\" } } }",
            u->optimizer->rule->lua, (long long)param_numel(p), p->path, SC_MOMENTS8_BLOCK, p->path,
            u->optimizer->rule->lua);
    }
}

static State *unit_state(Graph *g, Unit *u, StateClass c, const char *what, Dtype d, int64_t n, bool on_host) {
    State *s = state_new(g, c, arena_printf(g->arena, "%s/%s", u->name, what), d, n, u);
    s->on_host = s->value->on_host = on_host;
    return s;
}

/* reshard_after_backward = false, where there is something to keep. */
static bool stays_between(const Graph *g, const Unit *u) {
    return g->training->accumulate > 1 && u->policy->stay_gathered &&
           (u->shard->size > 1 || u->policy->offload_params || u->policy->all_gather);
}

/* Of the unit's matrices that products in 8 bits scale. */
static void scale_states(Graph *g, Unit *u, bool frozen) {
    int64_t n = shard_narrow_matrices(u, frozen);
    if (shard_travels_narrow(u))
        u->scales[frozen] =
            unit_state(g, u, S_WIRE, frozen ? "frozen scales" : "scales", FP32, SC_SCALES_APART * n, false);
    if (shard_keeps_largest(u, frozen))
        u->largest[frozen] =
            unit_state(g, u, S_WIRE, frozen ? "frozen largest" : "largest", FP32, round_up(n, 4), false);
}

/* offload.params: every copy of the parameters lies in host memory. offload.optimizer: all that the update reads and
 * writes but gradients does. Gathers read the wire shard; it is the master itself unless the two differ in dtype or
 * place. An extension reads what is stored. Nor is there a wire shard on the host where the master comes up for the
 * update anyway: gathers cast it, and in the backward it comes up once for both. */
static void unit_states(Graph *g, Unit *u) {
    const UnitPolicy *p = u->policy;
    const Optimizer *o = u->optimizer;
    if (g->training->ema_decay > 0 && u->numel && u->dtype != FP32)
        fail(p->src,
             "ema: the parameters of unit %s are stored in %s, which would round their average; store them in "
             "fp32, and let mp_policy = { param_dtype = \"%s\" } compute in %s",
             u->name, dtype_name(u->dtype), dtype_name(u->dtype), dtype_name(u->dtype));
    int64_t n = shard_slice(u), frozen = u->frozen_numel / u->shard->size;
    bool master_on_host = p->offload_params || p->offload_optimizer, cast = u->wire != u->dtype && !p->all_gather;
    bool casts_often = p->offload_params && !u->host_update && g->training->accumulate == 1;
    if (n) {
        u->master = u->wire_shard = unit_state(g, u, S_MASTER, "master", u->dtype, n, master_on_host);
        if ((cast && !casts_often) || p->offload_params != master_on_host)
            u->wire_shard = unit_state(g, u, S_WIRE, "wire", p->all_gather ? u->dtype : u->wire, n, p->offload_params);
        scale_states(g, u, false);
        int64_t many = training_moment_bytes(o, n) / dtype_size(o->moment_dtype); /* in 8 bits, scales too */
        if (training_moments(o) > 0)
            u->m = unit_state(g, u, S_MOMENT1, "moment1", o->moment_dtype, many, p->offload_optimizer);
        if (training_moments(o) > 1)
            u->v = unit_state(g, u, S_MOMENT2, "moment2", o->moment_dtype, many, p->offload_optimizer);
        if (u->m) check_blocks(u);
        if (g->training->ema_decay > 0)
            u->average = unit_state(g, u, S_AVERAGE, "average", FP32, n, p->offload_optimizer);
        if (g->training->accumulate > 1 && !p->defer_sync)
            u->grad = unit_state(g, u, S_GRAD, "gradient", u->sum, n, p->offload_grads);
        if (g->training->accumulate > 1 && p->defer_sync)
            u->whole_grad = unit_state(g, u, S_WHOLE_GRAD, "whole gradient", u->sum, u->numel, false);
        if (stays_between(g, u)) u->gathered[0] = unit_state(g, u, S_GATHERED, "gathered", u->wire, u->numel, false);
    }
    if (frozen) {
        u->frozen = u->frozen_wire = unit_state(g, u, S_FROZEN, "frozen", u->dtype, frozen, p->offload_params);
        if (cast) u->frozen_wire = unit_state(g, u, S_WIRE, "frozen wire", u->wire, frozen, p->offload_params);
        scale_states(g, u, true);
        if (stays_between(g, u))
            u->gathered[1] = unit_state(g, u, S_GATHERED, "gathered frozen", u->wire, u->frozen_numel, false);
    }
}

static void give_input_state(Graph *g, Value *v, const char *name) {
    if (!v || v->state) return;
    State *s = state_new(g, S_INPUT, name, v->dtype, value_numel(v), NULL);
    s->value = v;
    v->state = s;
}

void shard_make_states(Graph *g) {
    g->record = state_new(g, S_RECORD, "record", INT64, SC_RECORD_BYTES / 8, NULL);
    if (!g->metrics_state) g->metrics_state = state_new(g, S_METRICS, "metrics", FP32, SC_METRICS, NULL);
    if (training_counts_steps(g->training) || g->training->ema_decay > 0)
        g->step_state = state_new(g, S_STEP, "adam step", INT64, 1, NULL);
    for (int i = 0; i < g->inputs.n; i++) {
        Input *in = g->inputs.at[i];
        give_input_state(g, in->value, in->name);
        give_input_state(g, in->sample_value, arena_printf(g->arena, "sample/%s", in->name));
        in->state = in->value ? in->value->state : in->sample_value ? in->sample_value->state : NULL;
    }
    for (int i = 0; i < g->params.n; i++) {
        Param *p = g->params.at[i];
        if (!p->is_buffer) continue;
        State *s = state_new(g, S_BUFFER, p->path, p->dtype, param_numel(p), NULL);
        s->param = p;
        if (p->value) { /* shaped as traced */
            p->value->state = s;
            s->value = p->value;
        }
    }
    if (g->sample) {
        const Value *v = g->sample->logits;
        state_new(g, S_OUTPUT, "logits", FP32, v->shape[v->dims - 1], NULL);
    }
    for (int i = 0; i < g->units.n; i++) unit_states(g, g->units.at[i]);
}

State *shard_output(const Graph *g) {
    for (int i = 0; i < g->states.n; i++)
        if (g->states.at[i]->cls == S_OUTPUT) return g->states.at[i];
    return NULL;
}
