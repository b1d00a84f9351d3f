/* shard: lays each unit's parameters out in one flat buffer, creates the persistent states, and turns the traced training
 * step into the programs of the build, with gathers before use, reduce-scatters after the last gradient, and one optimizer
 * event per unit on the rank's shard.
 * Relies on: units, autodiff (Param.reached, Param.grad), edit.h.
 * Relied on by: pipeline.c; order derives storages and streams from what stands here. */
#include "../ir/build.h"
#include "edit.h"
#include "passes.h"

enum { FLAT_ALIGN = 256, METRIC_SLOTS = 64, COMM_SHARD = 0, COMM_REPLICATE = 1, COMM_WORLD = 2 };
enum { SLOT_LOSS = 0, SLOT_GRAD_NORM = 1 };

/* ── flat layout and states ─────────────────────────────────────────────────────────────────────────────────────────── */
static bool trainable(const Param *p) { return p->reached && p->requires_grad && !p->is_buffer; }

static int64_t numel(const Param *p) {
    int64_t n = 1;
    for (int d = 0; d < p->dims; d++) n *= p->shape[d];
    return n;
}

/* Trainable parameters by optimizer group, then by first use; offsets do not depend on the world, only the tail does. */
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

static const char *unit_name(const Unit *u) { return u->module->path[0] ? u->module->path : "(root)"; }

static State *unit_state(Graph *g, Unit *u, StateClass c, const char *what, Dtype d, int64_t n, bool on_host) {
    State *s = new_state(g, c, arena_printf(g->arena, "%s/%s", unit_name(u), what), d, n, u);
    s->on_host = s->value->on_host = on_host;
    return s;
}

static void unit_states(Graph *g, Unit *u) {
    const UnitPolicy *p = u->policy;
    int64_t n = u->numel / u->shards, frozen = u->frozen_numel / u->shards;
    const Optimizer *o = g->optimizer;
    /* Gathers read the wire shard; it is the master itself unless dtypes differ or the two lie in different arenas. */
    bool master_on_host = p->offload_optimizer || (p->offload_params && u->wire == u->dtype);
    bool wire_on_host = p->offload_params;
    if (n) {
        u->master = unit_state(g, u, S_MASTER, "master", u->dtype, n, master_on_host);
        bool own_wire = u->wire != u->dtype || wire_on_host != master_on_host;
        u->wire_shard = own_wire ? unit_state(g, u, S_WIRE, "wire", u->wire, n, wire_on_host) : u->master;
        if (o->kind != OPT_SGD || o->momentum > 0) u->m = unit_state(g, u, S_MOMENT1, "moment1", FP32, n, p->offload_optimizer);
        if (o->kind != OPT_SGD) u->v = unit_state(g, u, S_MOMENT2, "moment2", FP32, n, p->offload_optimizer);
        if (g->accumulate > 1) u->grad = unit_state(g, u, S_GRAD, "gradient", u->reduce, n, p->offload_grads);
    }
    if (frozen) {
        u->frozen = unit_state(g, u, S_FROZEN, "frozen", u->dtype, frozen, p->offload_params);
        u->frozen_wire = u->wire == u->dtype ? u->frozen
                                             : unit_state(g, u, S_WIRE, "frozen wire", u->wire, frozen, p->offload_params);
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
        in->state = in->value ? in->value->state : in->sample_value->state;
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
    for (int i = 0; i < g->units.n; i++) unit_states(g, g->units.at[i]);
}

/* ── building ops of this pass ──────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    Graph *g;
    Program *p;
    Edit *edit; /* NULL: append to p */
} Ctx;

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

static void add_in(Op *op, Value *v) { op->in[op->nin++] = v; }

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

/* ── parameters in use: gathers, and operands as views into what was gathered ───────────────────────────────────────── */
typedef struct { /* of one unit in one program */
    Value *full[2][2]; /* [trainable, frozen][forward, backward]: what operands are views of */
    int last_use;      /* position of the last op that reads a parameter */
    int first_grad, last_grad;
    Value *flat_grad, *shard_grad;
} Use;

static bool forward_phase(const Op *op) { return op->phase == FORWARD; }

/* Unit u stays gathered between forward and backward. */
static bool stays(const Unit *u) {
    bool root = u->module->parent == NULL;
    bool in_place = u->shards == 1 && !u->policy->offload_params;
    return in_place || !u->policy->reshard_after_forward || (root && u->policy->root_default);
}

static Value *gathered(Ctx *c, Use *use, Unit *u, bool is_frozen, bool fwd, int pos) {
    bool second = !fwd && !stays(u);
    Value **slot = &use->full[is_frozen][second];
    if (*slot) return *slot;
    State *shard = is_frozen ? u->frozen_wire : u->wire_shard;
    const char *id = arena_printf(c->g->arena, "g%d%s%s", u->id, is_frozen ? "z" : "", second ? "b" : "f");
    Phase phase = second ? BACKWARD : FORWARD;
    *slot = shard->value;
    if (shard->on_host) {
        Op *op = unit_op(c->g, OP_FETCH, u, arena_printf(c->g->arena, "f%s", id), phase, FETCH);
        add_in(op, *slot);
        *slot = add_out(c->g, op, shard->dtype, shard->numel);
        edit_before(c->edit, pos, op);
    }
    if (u->shards > 1) {
        Op *op = unit_op(c->g, OP_ALL_GATHER, u, id, phase, GATHER);
        op->i[0] = COMM_SHARD;
        add_in(op, *slot);
        *slot = add_out(c->g, op, shard->dtype, shard->numel * u->shards);
        edit_before(c->edit, pos, op);
    }
    return *slot;
}

static void resolve_params(Ctx *c, Use *uses) {
    for (int i = 0; i < c->p->ops.n; i++) {
        Op *op = c->p->ops.at[i];
        for (int k = 0; k < op->nin; k++) {
            Value *v = op->in[k], *root = value_root(v);
            Param *p = root->param;
            if (!p || p->is_buffer) continue;
            if (op_is(op, T_VIEW)) { /* its users are mapped straight to the gathered buffer */
                edit_remove(c->edit, i);
                break;
            }
            Use *use = &uses[p->unit->id];
            Value *full = gathered(c, use, p->unit, !trainable(p), forward_phase(op), i);
            Value *view = new_view(c->g, full, v->dims, v->shape, v->stride, p->flat_offset + v->offset);
            view->dtype = v->dtype;
            replace_operand(op, v, view);
            use->last_use = i;
        }
    }
}

/* ── gradients: written straight into the flat buffer that reduce-scatter reads ─────────────────────────────────────── */
static void zero_gaps(Ctx *c, Unit *u, Use *use) {
    Op *op = NULL;
    int made = 0;
    for (int i = 0; i < u->params.n && trainable(u->params.at[i]); i++) {
        Param *p = u->params.at[i];
        bool last = i + 1 == u->params.n || !trainable(u->params.at[i + 1]);
        int64_t from = p->flat_offset + numel(p), to = last ? u->numel : u->params.at[i + 1]->flat_offset;
        if (from == to) continue;
        if (!op || op->nout == MAX_IN) {
            op = unit_op(c->g, OP_ZERO_GAPS, u, arena_printf(c->g->arena, "z%d%s", u->id, made++ ? arena_printf(c->g->arena, ".%d", made) : ""), BACKWARD, COMPUTE);
            edit_before(c->edit, use->first_grad, op);
        }
        Value *gap = piece(c->g, use->flat_grad, from, to - from);
        gap->def = op;
        op->out[op->nout++] = gap;
    }
}

/* The program's copy of each parameter's gradient is found by the op that defines it. */
static void place_gradients(Ctx *c, Use *uses, Value **grads) {
    Graph *g = c->g;
    for (int i = 0; i < g->units.n; i++) uses[i].first_grad = -1;
    for (int i = 0; i < c->p->ops.n; i++)
        for (int k = 0; k < c->p->ops.at[i]->nout; k++) c->p->ops.at[i]->out[k]->scratch = (void *)(intptr_t)(i + 1);
    for (int i = 0; i < g->params.n; i++) {
        Param *p = g->params.at[i];
        if (!trainable(p)) continue;
        Use *use = &uses[p->unit->id];
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

/* ── the end of the step ────────────────────────────────────────────────────────────────────────────────────────────── */
typedef enum { ALONE, FIRST, MIDDLE, LAST } Role; /* of a micro program within the step */

static void accumulate(Ctx *c, Unit *u, Use *use, Role role) {
    if (role == ALONE) return;
    Op *op = store_op(c->g, use->shard_grad, u->grad->value, arena_printf(c->g->arena, "acc%d", u->id), BACKWARD,
                      role != FIRST, 0, u);
    edit_after(c->edit, use->last_grad, op);
    use->shard_grad = u->grad->value;
}

static const int64_t *segments(Graph *g, const Unit *u, int *n) {
    VEC(int64_t) t = {0};
    for (int i = 0; i < u->params.n && trainable(u->params.at[i]); i++) {
        const Param *p = u->params.at[i];
        int64_t end = p->flat_offset + numel(p);
        if (t.n && t.at[t.n - 1] == p->group) {
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
static Value *norm(Ctx *c, Use *uses, int end) {
    Graph *g = c->g;
    int64_t n = g->units.n;
    Value *slots = new_value(g, FP32, 1, &n);
    Op *all = unit_op(g, OP_ASSEMBLE, NULL, "norms", OPTIMIZER, COMPUTE);
    for (int i = 0; i < n; i++) {
        Unit *u = g->units.at[i];
        Op *op = uses[i].shard_grad ? unit_op(g, OP_SUM_SQUARES, u, arena_printf(g->arena, "n%d", i), OPTIMIZER, COMPUTE)
                                    : unit_op(g, OP_ZERO_GAPS, u, arena_printf(g->arena, "n%d", i), OPTIMIZER, COMPUTE);
        if (uses[i].shard_grad) add_in(op, uses[i].shard_grad);
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
    Value *coefficient = add_out(g, clip, FP32, 1);
    Value *total = add_out(g, clip, FP32, 1);
    edit_before(c->edit, end, clip);
    edit_before(c->edit, end, store_op(g, total, g->metrics_state->value, "m_norm", OPTIMIZER, false, SLOT_GRAD_NORM, NULL));
    return coefficient;
}

static void update(Ctx *c, Unit *u, Use *use, Value *coefficient, int pos) {
    Graph *g = c->g;
    const Optimizer *o = g->optimizer;
    Op *op = unit_op(g, o->kind == OPT_SGD ? OP_SGD : OP_ADAM, u, arena_printf(g->arena, "u%d", u->id), OPTIMIZER, COMPUTE);
    op->src = o->src;
    op->i[0] = o->kind == OPT_SGD ? o->nesterov : o->kind == OPT_ADAMW;
    op->i[1] = u->numel / u->shards;
    op->table = segments(g, u, &op->ntable);
    add_in(op, use->shard_grad);
    add_in(op, u->master->value);
    add_in(op, coefficient);
    if (u->m) add_in(op, u->m->value);
    if (u->v) add_in(op, u->v->value);
    if (g->step_state) add_in(op, g->step_state->value);
    edit_before(c->edit, pos, op);
    if (u->wire_shard != u->master)
        edit_before(c->edit, pos, store_op(g, u->master->value, u->wire_shard->value, arena_printf(g->arena, "w%d", u->id), OPTIMIZER, false, 0, u));
}

/* Without clipping nothing holds a unit's update back but its own gradient and the last use of its parameters. */
static void optimizer(Ctx *c, Use *uses) {
    Graph *g = c->g;
    int end = c->p->ops.n;
    if (g->step_state) {
        Op *count = unit_op(g, OP_COUNT_STEP, NULL, "count", OPTIMIZER, COMPUTE);
        add_in(count, g->step_state->value);
        edit_before(c->edit, 0, count);
    }
    Value *one = NULL;
    if (g->clip_grad_norm <= 0) {
        Op *full = unit_op(g, OP_FULL, NULL, "one", OPTIMIZER, COMPUTE);
        full->f[0] = 1;
        full->i[0] = FP32;
        full->i[1] = full->i[2] = 1;
        one = add_out(g, full, FP32, 1);
        edit_before(c->edit, 0, full);
    }
    Value *coefficient = norm(c, uses, end);
    for (int i = 0; i < g->units.n; i++) {
        if (!uses[i].shard_grad) continue;
        int early = (int)max64(uses[i].last_grad, uses[i].last_use) + 1;
        update(c, g->units.at[i], &uses[i], one ? one : coefficient, one ? early : end);
    }
}

static void metrics(Ctx *c, int pos, bool add) {
    Graph *g = c->g;
    if (c->p->loss)
        edit_before(c->edit, pos, store_op(g, c->p->loss, g->metrics_state->value, "m_loss", FORWARD, add, SLOT_LOSS, NULL));
    for (int i = 0; i < c->p->ops.n; i++) { /* nn.log */
        Op *op = c->p->ops.at[i];
        if (op->nin == 2 && op_is(op, T_EFFECT) && op->in[1] == g->metrics_state->value) op->i[0] = add;
    }
}

static void sum_metrics(Ctx *c) {
    if (c->g->world == 1) return;
    Op *op = unit_op(c->g, OP_ALL_REDUCE, NULL, "m_sum", OPTIMIZER, REDUCE); /* nothing waits for it */
    op->i[0] = COMM_WORLD;
    add_in(op, c->g->metrics_state->value);
    edit_before(c->edit, c->p->ops.n, op);
}

/* ── programs ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
static int loss_position(const Program *p) { /* right after the op that makes the loss */
    for (int i = 0; i < p->ops.n; i++)
        for (int k = 0; k < p->ops.at[i]->nout; k++)
            if (p->ops.at[i]->out[k] == p->loss) return i + 1;
    return p->ops.n;
}

static void micro(Graph *g, const char *name, Role role) {
    Program *p = clone_program(g, g->train, name);
    Value **grads = NEW_ARRAY(g->arena, Value *, g->params.n);
    for (int i = 0; i < g->params.n; i++)
        if (trainable(g->params.at[i])) grads[i] = g->params.at[i]->grad->scratch; /* the clone, while scratch is ours */
    Ctx c = {g, p, edit_begin(g, p)};
    Use *uses = NEW_ARRAY(g->arena, Use, g->units.n);
    place_gradients(&c, uses, grads);
    resolve_params(&c, uses);
    for (int i = 0; i < g->units.n; i++) {
        Unit *u = g->units.at[i];
        Use *use = &uses[i];
        if (!use->flat_grad) continue;
        zero_gaps(&c, u, use);
        assemble(&c, u, use, grads);
        reduce(&c, u, use);
        accumulate(&c, u, use, role);
    }
    metrics(&c, loss_position(p), role == MIDDLE || role == LAST);
    if (role == ALONE || role == LAST) {
        sum_metrics(&c);
        optimizer(&c, uses);
    }
    edit_commit(c.edit);
    push(&g->programs, g->arena, p);
}

static void forward_only(Graph *g, const Program *traced, const char *name) {
    Program *p = clone_program(g, traced, name);
    Ctx c = {g, p, edit_begin(g, p)};
    Use *uses = NEW_ARRAY(g->arena, Use, g->units.n);
    resolve_params(&c, uses);
    if (p->loss) {
        metrics(&c, loss_position(p), false);
        sum_metrics(&c);
    }
    if (p->logits) {
        State *out = new_state(g, S_OUTPUT, "logits", FP32, value_numel(p->logits), NULL);
        edit_before(c.edit, p->ops.n, store_op(g, p->logits, out->value, "logits", FORWARD, false, 0, NULL));
    }
    edit_commit(c.edit);
    push(&g->programs, g->arena, p);
}

static void append(Graph *g, Program *p, Op *op) { push(&p->ops, g->arena, op); }

static void zero_state(Graph *g, Program *p, State *s) {
    if (!s) return;
    Op *op = unit_op(g, OP_ZERO, s->unit, arena_printf(g->arena, "zero%d", s->id), INIT, COMPUTE);
    add_in(op, s->value);
    append(g, p, op);
}

static void init_param(Graph *g, Program *p, const Param *param, Value *shard, int64_t flat_offset, int64_t shard_numel) {
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
        if (u->master && u->wire_shard != u->master)
            append(g, p, store_op(g, u->master->value, u->wire_shard->value, arena_printf(g->arena, "w%d", i), INIT, false, 0, u));
        if (u->frozen && u->frozen_wire != u->frozen)
            append(g, p, store_op(g, u->frozen->value, u->frozen_wire->value, arena_printf(g->arena, "wz%d", i), INIT, false, 0, u));
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
    if (g->eval) forward_only(g, g->eval, "eval");
    if (g->sample) forward_only(g, g->sample, "sample");
}
