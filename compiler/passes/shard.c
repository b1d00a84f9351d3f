/* shard: lays each unit's parameters out in one flat buffer, creates the persistent states, and turns the traced
 * training step into the programs of the build, with gathers before use, reduce-scatters after the last gradient, and
 * one optimizer event per unit on the rank's shard. Relies on: units, autodiff (Param.reached, Param.grad), fuse
 * (numbers of kernels), edit.h. Relied on by: pipeline.c; order derives storages and streams from what stands here. */
#include "../ir/build.h"
#include "edit.h"
#include "lowering.h"
#include "passes.h"

enum { FLAT_ALIGN = 256, METRIC_SLOTS = 64, COMM_SHARD = 0, COMM_REPLICATE = 1, COMM_WORLD = 2 };
enum { SLOT_LOSS = 0, SLOT_GRAD_NORM = 1 };

/* ── flat layout and states ───────────────────────────────────────────────────────────────────────────────────────────
 */
static bool trainable(const Param *p) {
    return p->reached && p->requires_grad && !p->is_buffer;
}

static int64_t numel(const Param *p) {
    int64_t n = 1;
    for (int d = 0; d < p->dims; d++) n *= p->shape[d];
    return n;
}

/* Trainable parameters by optimizer group, then by first use; offsets do not depend on the world, only the tail does.
 */
static void lay_out(Graph *g, Unit *u) {
    int64_t at = 0;
    VEC(Param *) flat = {0};
    for (int group = 0; group < g->optimizer->groups.n; group++)
        for (int i = 0; i < u->params.n; i++)
            if (trainable(u->params.at[i]) && u->params.at[i]->group == group) push(&flat, g->arena, u->params.at[i]);
    for (int i = 0; i < flat.n; i++) {
        flat.at[i]->flat_offset = at;
        at = round_up(at + numel(flat.at[i]), FLAT_ALIGN);
    }
    u->numel = round_up(at, (int64_t)u->shards * FLAT_ALIGN);
    at = 0;
    for (int i = 0; i < u->params.n; i++) {
        Param *p = u->params.at[i];
        if (trainable(p)) continue;
        p->flat_offset = at;
        at = round_up(at + numel(p), FLAT_ALIGN);
        push(&flat, g->arena, p);
    }
    u->frozen_numel = round_up(at, (int64_t)u->shards * FLAT_ALIGN);
    u->params.at = flat.at;
    u->params.n = u->params.cap = flat.n;
}

static const char *unit_name(const Unit *u) {
    return u->module->path[0] ? u->module->path : "(root)";
}

static State *unit_state(Graph *g, Unit *u, StateClass c, const char *what, Dtype d, int64_t n, bool on_host) {
    State *s = new_state(g, c, arena_printf(g->arena, "%s/%s", unit_name(u), what), d, n, u);
    s->on_host = s->value->on_host = on_host;
    return s;
}

/* offload.params: every copy of the parameters lies in host memory. offload.optimizer: what the update writes does, so
 * that it runs there. Gathers read the wire shard; it is the master itself unless the two differ in dtype or place. */
static void unit_states(Graph *g, Unit *u) {
    const UnitPolicy *p = u->policy;
    const Optimizer *o = g->optimizer;
    int64_t n = u->numel / u->shards, frozen = u->frozen_numel / u->shards;
    bool master_on_host = p->offload_params || p->offload_optimizer, cast = u->wire != u->dtype;
    if (n) {
        u->master = u->wire_shard = unit_state(g, u, S_MASTER, "master", u->dtype, n, master_on_host);
        if (cast || p->offload_params != master_on_host)
            u->wire_shard = unit_state(g, u, S_WIRE, "wire", u->wire, n, p->offload_params);
        if (o->kind != OPT_SGD || o->momentum > 0)
            u->m = unit_state(g, u, S_MOMENT1, "moment1", FP32, n, p->offload_optimizer);
        if (o->kind != OPT_SGD) u->v = unit_state(g, u, S_MOMENT2, "moment2", FP32, n, p->offload_optimizer);
        if (g->accumulate > 1) u->grad = unit_state(g, u, S_GRAD, "gradient", u->reduce, n, p->offload_grads);
    }
    if (frozen) {
        u->frozen = u->frozen_wire = unit_state(g, u, S_FROZEN, "frozen", u->dtype, frozen, p->offload_params);
        if (cast) u->frozen_wire = unit_state(g, u, S_WIRE, "frozen wire", u->wire, frozen, p->offload_params);
    }
}

static void give_state(Graph *g, Value *v, StateClass c, const char *name) {
    if (!v || v->state) return;
    State *s = new_state(g, c, name, v->dtype, value_numel(v), NULL);
    s->value = v;
    v->state = s;
}

static void states(Graph *g) {
    g->record = new_state(g, S_RECORD, "record", INT64, 64, NULL);
    if (!g->metrics_state) g->metrics_state = new_state(g, S_METRICS, "metrics", FP32, METRIC_SLOTS, NULL);
    if (g->optimizer->kind != OPT_SGD) g->step_state = new_state(g, S_STEP, "adam step", INT64, 1, NULL);
    for (int i = 0; i < g->inputs.n; i++) {
        Input *in = g->inputs.at[i];
        give_state(g, in->value, S_INPUT, in->name);
        give_state(g, in->sample_value, S_INPUT, arena_printf(g->arena, "sample/%s", in->name));
        in->state = in->value ? in->value->state : in->sample_value ? in->sample_value->state : NULL;
    }
    for (int i = 0; i < g->params.n; i++) {
        Param *p = g->params.at[i];
        if (!p->is_buffer) continue;
        State *s = new_state(g, S_BUFFER, p->path, p->dtype, numel(p), NULL);
        s->param = p;
        if (p->value) { /* shaped as traced */
            p->value->state = s;
            s->value = p->value;
        }
    }
    if (g->sample) {
        const Value *v = g->sample->logits;
        new_state(g, S_OUTPUT, "logits", FP32, v->shape[v->dims - 1], NULL);
    }
    for (int i = 0; i < g->units.n; i++) unit_states(g, g->units.at[i]);
}

static State *state_of_class(const Graph *g, StateClass c) {
    for (int i = 0; i < g->states.n; i++)
        if (g->states.at[i]->cls == c) return g->states.at[i];
    return NULL;
}

/* ── building ops of this pass ────────────────────────────────────────────────────────────────────────────────────────
 */
static Op *unit_op(Graph *g, OpKind k, Unit *u, const char *id, Phase phase, Stream stream) {
    Op *op = new_op(g, k);
    op->id = id;
    op->unit = u;
    op->module = u ? u->module : g->root;
    op->src = u ? u->policy->src : g->optimizer->src;
    op->phase = phase;
    op->stream = stream;
    op->group = -1;
    return op;
}

static void add_in(Op *op, Value *v) {
    op->in[op->nin++] = v;
}

static Value *add_out(Graph *g, Op *op, Dtype d, int64_t n) {
    Value *v = new_value(g, d, 1, &n);
    v->def = op;
    op->out[op->nout++] = v;
    return v;
}

static Value *piece(Graph *g, Value *of, int64_t at, int64_t n) {
    int64_t stride = 1;
    return new_view(g, of, 1, &n, &stride, at);
}

static Op *store_op(Graph *g, Value *from, Value *to, const char *id, Phase phase, bool add, int64_t at, Unit *u) {
    Op *op = unit_op(g, OP_STORE, u, id, phase, COMPUTE);
    add_in(op, from);
    add_in(op, to);
    op->i[0] = add;
    op->i[1] = at;
    return op;
}

/* ── parameters in use: gathers, and operands as views into what was gathered ─────────────────────────────────────────
 */
typedef struct {       /* of one unit in one program */
    Value *full[2][2]; /* [trainable, frozen][forward, backward]: what operands are views of */
    int last_use;      /* position of the last op that reads a parameter */
    int first_grad, last_grad;
    Value *flat_grad;              /* what the backward writes; NULL: no gradients here */
    Value *shard_grad, *kept_grad; /* reduced; as the optimizer finds it, which may be in host memory */
} Use;

typedef struct { /* one program in the making */
    Graph *g;
    Program *p;
    Edit *edit;
    Use *uses; /* by Unit.id */
    Groups *groups;
} Ctx;

/* Unit u stays gathered between forward and backward. */
static bool stays(const Unit *u) {
    bool root = u->module->parent == NULL;
    bool in_place = u->shards == 1 && !u->policy->offload_params;
    return in_place || !u->policy->reshard_after_forward || (root && u->policy->root_default);
}

/* unshard_in_backward = false is a promise about the model, and is held to it. */
static void need_promise(const Unit *u, const Param *p, const Op *reader) {
    if (u->policy->unshard_in_backward) return;
    fail(u->policy->src,
         "nn.fully_shard: unshard_in_backward = false, but the %s of %s:%d (%s) reads %s after the forward has "
         "resharded "
         "it; leave unshard_in_backward out, or write reshard_after_forward = false",
         phase_name(reader->phase), reader->src.file, reader->src.line, op_info[reader->kind].name, p->path);
}

static Value *unsharded(Ctx *c, Unit *u, State *shard, const char *id, Phase phase, int pos) {
    Value *v = shard->value;
    if (shard->on_host) {
        Op *op = unit_op(c->g, OP_FETCH, u, arena_printf(c->g->arena, "f%s", id), phase, FETCH);
        add_in(op, v);
        v = add_out(c->g, op, shard->dtype, shard->numel);
        edit_before(c->edit, pos, op);
    }
    if (u->shards > 1) {
        Op *op = unit_op(c->g, OP_ALL_GATHER, u, id, phase, GATHER);
        op->i[0] = COMM_SHARD;
        add_in(op, v);
        v = add_out(c->g, op, shard->dtype, shard->numel * u->shards);
        edit_before(c->edit, pos, op);
    }
    return v;
}

/* The unit's parameters as op, at position pos, finds them: gathered for the first op of each direction that reads any.
 */
static Value *gathered(Ctx *c, const Param *p, const Op *op, int pos) {
    Unit *u = p->unit;
    bool is_frozen = !trainable(p), second = op->phase != FORWARD && !stays(u);
    Value **slot = &c->uses[u->id].full[is_frozen][second];
    if (*slot) return *slot;
    if (second) need_promise(u, p, op);
    const char *id = arena_printf(c->g->arena, "g%d%s%s", u->id, is_frozen ? "z" : "", second ? "b" : "f");
    return *slot = unsharded(c, u, is_frozen ? u->frozen_wire : u->wire_shard, id, second ? BACKWARD : FORWARD, pos);
}

static void use_params(Ctx *c) {
    for (int i = 0; i < c->p->ops.n; i++) {
        Op *op = c->p->ops.at[i];
        for (int k = 0; k < op->nin; k++) {
            Value *v = op->in[k];
            const Param *p = value_root(v)->param;
            if (!p || p->is_buffer) continue;
            if (op_is(op, T_VIEW)) { /* its users are mapped straight to the gathered buffer */
                edit_remove(c->edit, i);
                break;
            }
            Value *full = gathered(c, p, op, i);
            replace_operand(op, v, new_view(c->g, full, v->dims, v->shape, v->stride, p->flat_offset + v->offset));
            c->uses[p->unit->id].last_use = i;
        }
    }
}

/* ── gradients: written straight into the flat buffer that reduce-scatter reads ───────────────────────────────────────
 */
static void zero_gaps(Ctx *c, Unit *u, Use *use) {
    Op *op = NULL;
    int made = 0;
    for (int i = 0; i < u->params.n && trainable(u->params.at[i]); i++) {
        Param *p = u->params.at[i];
        bool last = i + 1 == u->params.n || !trainable(u->params.at[i + 1]);
        int64_t from = p->flat_offset + numel(p), to = last ? u->numel : u->params.at[i + 1]->flat_offset;
        if (from == to) continue;
        if (!op || op->nout == MAX_IN) {
            const char *nth = made++ ? arena_printf(c->g->arena, ".%d", made) : "";
            op = unit_op(c->g, OP_ZERO_GAPS, u, arena_printf(c->g->arena, "z%d%s", u->id, nth), BACKWARD, COMPUTE);
            edit_before(c->edit, use->first_grad, op);
        }
        Value *gap = piece(c->g, use->flat_grad, from, to - from);
        gap->def = op;
        op->out[op->nout++] = gap;
    }
}

/* The program's copy of each parameter's gradient becomes a piece of its unit's flat buffer. */
static void place_gradients(Ctx *c, Value **grads) {
    Graph *g = c->g;
    for (int i = 0; i < g->units.n; i++) c->uses[i].first_grad = -1;
    for (int i = 0; i < c->p->ops.n; i++)
        for (int k = 0; k < c->p->ops.at[i]->nout; k++) c->p->ops.at[i]->out[k]->scratch = (void *)(intptr_t)(i + 1);
    for (int i = 0; i < g->params.n; i++) {
        Param *p = g->params.at[i];
        if (!trainable(p)) continue;
        Use *use = &c->uses[p->unit->id];
        int at = (int)(intptr_t)grads[i]->scratch - 1;
        if (use->first_grad < 0 || at < use->first_grad) use->first_grad = at;
        if (at > use->last_grad) use->last_grad = at;
        if (!use->flat_grad) use->flat_grad = new_value(g, p->unit->reduce, 1, &p->unit->numel);
        grads[i]->name = arena_printf(g->arena, "%s.grad", p->path);
        grads[i]->base = use->flat_grad;
        grads[i]->offset = p->flat_offset;
    }
}

static void assemble(Ctx *c, Unit *u, Use *use, Value **grads) {
    Op *op = unit_op(c->g, OP_ASSEMBLE, u, arena_printf(c->g->arena, "flat%d", u->id), BACKWARD, COMPUTE);
    for (int i = 0; i < u->params.n && op->nin < MAX_IN; i++)
        if (trainable(u->params.at[i])) add_in(op, grads[u->params.at[i]->id]);
    use->flat_grad->def = op;
    op->out[op->nout++] = use->flat_grad;
    edit_after(c->edit, use->last_grad, op);
}

static void reduce(Ctx *c, Unit *u, Use *use) {
    Graph *g = c->g;
    use->shard_grad = use->flat_grad;
    if (u->shards > 1) {
        Op *op = unit_op(g, OP_REDUCE_SCATTER, u, arena_printf(g->arena, "r%d", u->id), BACKWARD, REDUCE);
        op->i[0] = COMM_SHARD;
        add_in(op, use->flat_grad);
        use->shard_grad = add_out(g, op, u->reduce, u->numel / u->shards);
        edit_after(c->edit, use->last_grad, op);
    }
    if (u->replicas > 1) {
        Op *op = unit_op(g, OP_ALL_REDUCE, u, arena_printf(g->arena, "a%d", u->id), BACKWARD, REDUCE);
        op->i[0] = COMM_REPLICATE;
        add_in(op, use->shard_grad);
        edit_after(c->edit, use->last_grad, op);
    }
}

/* What was summed is each rank's gradient / world (GRAD_SEED): a divide factor of the unit's own takes the world's
 * place. Microbatches are averaged in any case. */
static void divide(Ctx *c, Unit *u, Use *use) {
    double factor = u->policy->gradient_divide_factor;
    if (factor == 0 || factor == c->g->world) return;
    const char *id = arena_printf(c->g->arena, "d%d", u->id);
    Op *op = unit_op(c->g, OP_FUSED, u, id, BACKWARD, COMPUTE);
    Op *scale = unit_op(c->g, OP_MUL_SCALAR, u, id, BACKWARD, COMPUTE);
    scale->f[0] = c->g->world / factor;
    add_in(scale, use->shard_grad);
    add_in(op, use->shard_grad);
    use->shard_grad = add_out(c->g, op, u->reduce, value_numel(use->shard_grad));
    scale->out[scale->nout++] = use->shard_grad;
    op->body = NEW_ARRAY(c->g->arena, Op *, 1);
    op->body[op->nbody++] = scale;
    set_group(c->groups, op);
    edit_after(c->edit, use->last_grad, op);
}

/* ── the end of the step ──────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef enum { ALONE, FIRST, MIDDLE, LAST } Role; /* of a micro program within the step */

static Op *host_copy(Ctx *c, Unit *u, Value *v) {
    Op *op = unit_op(c->g, OP_OFFLOAD, u, arena_printf(c->g->arena, "o_grad%d", u->id), BACKWARD, OFFLOAD);
    add_in(op, v);
    add_out(c->g, op, v->dtype, value_numel(v))->on_host = true;
    return op;
}

/* Until the optimizer runs, gradients lie in the sum over microbatches, or where offload.grads says so in host memory.
 */
static void keep(Ctx *c, Unit *u, Use *use, Role role) {
    Graph *g = c->g;
    use->kept_grad = use->shard_grad;
    if (role == ALONE && !u->policy->offload_grads) return;
    Op *op = role == ALONE ? host_copy(c, u, use->shard_grad)
                           : store_op(g, use->shard_grad, u->grad->value, arena_printf(g->arena, "acc%d", u->id),
                                      BACKWARD, role != FIRST, 0, u);
    use->kept_grad = role == ALONE ? op->out[0] : u->grad->value;
    if (role != ALONE) use->shard_grad = use->kept_grad;
    edit_after(c->edit, use->last_grad, op);
}

/* Flat ranges by optimizer group. Gaps belong to none: they stay zero whatever the optimizer's formula gives for zeros.
 */
static const int64_t *segments(Graph *g, const Unit *u, int *n) {
    VEC(int64_t) t = {0};
    for (int i = 0; i < u->params.n && trainable(u->params.at[i]); i++) {
        const Param *p = u->params.at[i];
        int64_t end = p->flat_offset + numel(p);
        if (t.n && t.at[t.n - 1] == p->group && t.at[t.n - 2] == p->flat_offset) {
            t.at[t.n - 2] = end;
            continue;
        }
        push(&t, g->arena, p->flat_offset);
        push(&t, g->arena, end);
        push(&t, g->arena, p->group);
    }
    *n = t.n;
    return t.at;
}

/* Global norm: one slot a unit, summed over the shard group; then the coefficient. Returns the coefficient. */
static Value *norm(Ctx *c, int end) {
    Graph *g = c->g;
    int64_t n = g->units.n;
    Value *slots = new_value(g, FP32, 1, &n);
    Op *all = unit_op(g, OP_ASSEMBLE, NULL, "norms", OPTIMIZER, COMPUTE);
    for (int i = 0; i < n; i++) {
        Value *grad = c->uses[i].shard_grad;
        OpKind kind = grad ? OP_SUM_SQUARES : OP_ZERO_GAPS; /* no gradient: its slot is 0 */
        Op *op = unit_op(g, kind, g->units.at[i], arena_printf(g->arena, "n%d", i), OPTIMIZER, COMPUTE);
        if (grad) add_in(op, grad);
        op->out[op->nout++] = piece(g, slots, i, 1);
        op->out[0]->def = op;
        edit_before(c->edit, end, op);
        if (all->nin < MAX_IN) add_in(all, op->out[0]);
    }
    slots->def = all;
    all->out[all->nout++] = slots;
    edit_before(c->edit, end, all);
    if (g->units.at[0]->shards > 1) {
        Op *sum = unit_op(g, OP_ALL_REDUCE, NULL, "norm_sum", OPTIMIZER, REDUCE);
        sum->i[0] = COMM_SHARD;
        add_in(sum, slots);
        edit_before(c->edit, end, sum);
    }
    Op *clip = unit_op(g, OP_CLIP_COEFFICIENT, NULL, "clip", OPTIMIZER, COMPUTE);
    add_in(clip, slots);
    Value *coefficient = add_out(g, clip, FP32, 1), *total = add_out(g, clip, FP32, 1);
    edit_before(c->edit, end, clip);
    Value *metrics = g->metrics_state->value;
    edit_before(c->edit, end, store_op(g, total, metrics, "m_norm", OPTIMIZER, false, SLOT_GRAD_NORM, NULL));
    return coefficient;
}

static void update(Ctx *c, Unit *u, const Use *use, Value *coefficient, int pos) {
    Graph *g = c->g;
    const Optimizer *o = g->optimizer;
    const char *id = arena_printf(g->arena, "u%d", u->id);
    Op *op = unit_op(g, o->kind == OPT_SGD ? OP_SGD : OP_ADAM, u, id, OPTIMIZER, COMPUTE);
    op->src = o->src;
    op->i[0] = o->kind == OPT_SGD ? o->nesterov : o->kind == OPT_ADAMW;
    op->i[1] = u->numel / u->shards;
    op->table = segments(g, u, &op->ntable);
    add_in(op, use->kept_grad);
    add_in(op, u->master->value);
    add_in(op, coefficient);
    if (u->m) add_in(op, u->m->value);
    if (u->v) add_in(op, u->v->value);
    if (g->step_state) add_in(op, g->step_state->value);
    edit_before(c->edit, pos, op);
    if (u->wire_shard == u->master) return;
    const UnitPolicy *p = u->policy;
    bool on_device = !p->offload_params && !p->offload_grads && !p->offload_optimizer;
    if (o->kind != OPT_SGD && u->dtype == FP32 && on_device) {
        add_in(op, u->wire_shard->value); /* written as it goes */
        return;
    }
    id = arena_printf(g->arena, "w%d", u->id);
    edit_before(c->edit, pos, store_op(g, u->master->value, u->wire_shard->value, id, OPTIMIZER, false, 0, u));
}

static Value *one(Ctx *c) {
    Op *op = unit_op(c->g, OP_FULL, NULL, "one", OPTIMIZER, COMPUTE);
    op->f[0] = 1;
    op->i[0] = FP32;
    op->i[1] = op->i[2] = 1;
    edit_before(c->edit, 0, op);
    return add_out(c->g, op, FP32, 1);
}

/* Without clipping nothing holds a unit's update back but its own gradient and the last use of its parameters. */
static void optimizer(Ctx *c) {
    Graph *g = c->g;
    int end = c->p->ops.n;
    if (g->step_state) {
        Op *count = unit_op(g, OP_COUNT_STEP, NULL, "count", OPTIMIZER, COMPUTE);
        add_in(count, g->step_state->value);
        edit_before(c->edit, 0, count);
    }
    Value *unclipped = g->clip_grad_norm > 0 ? NULL : one(c), *coefficient = norm(c, end);
    for (int i = 0; i < g->units.n; i++) {
        const Use *use = &c->uses[i];
        if (!use->flat_grad) continue;
        int early = (int)max64(use->last_grad, use->last_use) + 1;
        update(c, g->units.at[i], use, unclipped ? unclipped : coefficient, unclipped ? early : end);
    }
}

/* ── metrics ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void insert(Graph *g, Program *p, int pos, Op *op) {
    push(&p->ops, g->arena, op);
    memmove(p->ops.at + pos + 1, p->ops.at + pos, sizeof *p->ops.at * (size_t)(p->ops.n - 1 - pos));
    p->ops.at[pos] = op;
}

static int loss_position(const Program *p) { /* right after the op that makes the loss */
    for (int i = 0; i < p->ops.n; i++)
        for (int k = 0; k < p->ops.at[i]->nout; k++)
            if (p->ops.at[i]->out[k] == p->loss) return i + 1;
    return p->ops.n;
}

/* The loss goes where nn.log's numbers go. The first program of a step begins with zeros: all slots are summed over the
 * ranks at its end, also those that it does not write. Returns the op that stores the loss. */
static Op *metrics(Graph *g, Program *p, bool add) {
    Value *slots = g->metrics_state->value;
    for (int i = 0; i < p->ops.n; i++) { /* nn.log */
        Op *op = p->ops.at[i];
        if (op->nin == 2 && op_is(op, T_EFFECT) && op->in[1] == slots) op->i[0] = add;
    }
    Op *loss = store_op(g, p->loss, slots, "m_loss", FORWARD, add, SLOT_LOSS, NULL);
    insert(g, p, loss_position(p), loss);
    if (add) return loss;
    Op *zero = unit_op(g, OP_ZERO, NULL, "m_zero", FORWARD, COMPUTE);
    add_in(zero, slots);
    insert(g, p, 0, zero);
    return loss;
}

static void sum_metrics(Ctx *c) {
    if (c->g->world == 1) return;
    Op *op = unit_op(c->g, OP_ALL_REDUCE, NULL, "m_sum", OPTIMIZER, REDUCE); /* nothing waits for it */
    op->i[0] = COMM_WORLD;
    add_in(op, c->g->metrics_state->value);
    edit_before(c->edit, c->p->ops.n, op);
}

/* ── programs ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static Ctx begin(Graph *g, Program *p) {
    return (Ctx){g, p, edit_begin(g, p), NEW_ARRAY(g->arena, Use, g->units.n), groups_new(g)};
}

static void commit(Ctx *c) {
    edit_commit(c->edit);
    push(&c->g->programs, c->g->arena, c->p);
}

static void gradients(Ctx *c, Value **grads, Role role) {
    for (int i = 0; i < c->g->units.n; i++) {
        Unit *u = c->g->units.at[i];
        Use *use = &c->uses[i];
        if (!use->flat_grad) continue;
        zero_gaps(c, u, use);
        assemble(c, u, use, grads);
        reduce(c, u, use);
        divide(c, u, use);
        keep(c, u, use, role);
    }
}

static void micro(Graph *g, const char *name, Role role) {
    Program *p = clone_program(g, g->train, name);
    Value **grads = NEW_ARRAY(g->arena, Value *, g->params.n);
    for (int i = 0; i < g->params.n; i++)
        if (trainable(g->params.at[i]))
            grads[i] = g->params.at[i]->grad->scratch; /* the clone, while scratch is ours */
    Op *loss = metrics(g, p, role == MIDDLE || role == LAST);
    Ctx c = begin(g, p);
    place_gradients(&c, grads);
    use_params(&c);
    p->loss = loss->in[0];
    gradients(&c, grads, role);
    if (role == ALONE || role == LAST) {
        sum_metrics(&c);
        optimizer(&c);
    }
    commit(&c);
}

static void eval(Graph *g) {
    Program *p = clone_program(g, g->eval, "eval");
    Op *loss = metrics(g, p, false);
    Ctx c = begin(g, p);
    use_params(&c);
    p->loss = loss->in[0];
    sum_metrics(&c);
    commit(&c);
}

/* Of all logits only those of one position are kept: record.position says which. */
static void sample(Graph *g) {
    Program *p = clone_program(g, g->sample, "sample");
    Op *pick = unit_op(g, OP_PICK, NULL, "logits", FORWARD, COMPUTE);
    add_in(pick, p->logits);
    add_in(pick, state_of_class(g, S_OUTPUT)->value);
    insert(g, p, p->ops.n, pick);
    Ctx c = begin(g, p);
    use_params(&c);
    p->logits = pick->in[0];
    commit(&c);
}

static void append(Graph *g, Program *p, Op *op) {
    push(&p->ops, g->arena, op);
}

static void zero_state(Graph *g, Program *p, State *s) {
    if (!s) return;
    Op *op = unit_op(g, OP_ZERO, s->unit, arena_printf(g->arena, "zero%d", s->id), INIT, COMPUTE);
    add_in(op, s->value);
    append(g, p, op);
}

static void init_param(Graph *g, Program *p, const Param *param, Value *shard, int64_t flat_offset,
                       int64_t shard_numel) {
    Op *op = unit_op(g, OP_INIT_PARAM, param->unit, arena_printf(g->arena, "i%d", param->id), INIT, COMPUTE);
    op->module = param->owner;
    op->src = param->src;
    add_in(op, shard);
    op->i[0] = param->init;
    op->i[1] = (int64_t)param->key;
    op->i[2] = flat_offset;
    op->i[3] = numel(param);
    op->i[4] = shard_numel;
    op->f[0] = param->init_a;
    op->f[1] = param->init_b;
    append(g, p, op);
}

static void init_program(Graph *g) {
    Program *p = NEW(g->arena, Program);
    p->name = "init";
    zero_state(g, p, g->step_state);
    zero_state(g, p, g->metrics_state);
    zero_state(g, p, state_of_class(g, S_OUTPUT));
    for (int i = 0; i < g->units.n; i++) {
        Unit *u = g->units.at[i];
        zero_state(g, p, u->master);
        zero_state(g, p, u->frozen);
        zero_state(g, p, u->m);
        zero_state(g, p, u->v);
        for (int k = 0; k < u->params.n; k++) {
            bool t = trainable(u->params.at[k]);
            State *s = t ? u->master : u->frozen;
            init_param(g, p, u->params.at[k], s->value, u->params.at[k]->flat_offset, s->numel);
        }
    }
    for (int i = 0; i < g->states.n; i++) {
        State *s = g->states.at[i];
        if (s->cls == S_BUFFER) init_param(g, p, s->param, s->value, 0, -1);
    }
    push(&g->programs, g->arena, p);
}

/* What training needs beyond what a checkpoint holds: the wire shards. */
static void start_program(Graph *g) {
    Program *p = NEW(g->arena, Program);
    p->name = "start";
    for (int i = 0; i < g->units.n; i++) {
        Unit *u = g->units.at[i];
        const char *trained = arena_printf(g->arena, "w%d", i), *frozen = arena_printf(g->arena, "wz%d", i);
        if (u->wire_shard != u->master)
            append(g, p, store_op(g, u->master->value, u->wire_shard->value, trained, INIT, false, 0, u));
        if (u->frozen_wire != u->frozen)
            append(g, p, store_op(g, u->frozen->value, u->frozen_wire->value, frozen, INIT, false, 0, u));
    }
    push(&g->programs, g->arena, p);
}

void shard(Graph *g) {
    for (int i = 0; i < g->units.n; i++) lay_out(g, g->units.at[i]);
    states(g);
    init_program(g);
    start_program(g);
    if (g->accumulate == 1) {
        micro(g, "micro", ALONE);
    } else {
        micro(g, "micro_first", FIRST);
        micro(g, "micro", MIDDLE);
        micro(g, "micro_last", LAST);
    }
    if (g->eval) eval(g);
    if (g->sample) sample(g);
}
