/* shard: lays each unit's parameters out in one flat buffer, creates the persistent states, and turns the traced
 * training step into the programs of the build, with gathers before use, reduce-scatters after the last gradient, and
 * one optimizer event per unit on the rank's shard. Relies on: units, autodiff (Param.reached, Param.grad), fuse
 * (numbers of kernels), shard.h (its parts). Relied on by: pipeline.c; order derives storages and streams from it. */
#include "shard.h"
#include "passes.h"

/* ── building ops of this pass ────────────────────────────────────────────────────────────────────────────────────────
 */
Op *unit_op(Graph *g, OpKind k, Unit *u, const char *id, Phase phase, Stream stream) {
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

Op *collective(Graph *g, OpKind k, Unit *u, const char *id, Phase phase, Stream stream, int comm) {
    Op *op = unit_op(g, k, u, id, phase, stream);
    op->i[0] = comm;
    op->i[1] = g->comms.at[comm].n;
    return op;
}

void add_in(Op *op, Value *v) {
    op->in[op->nin++] = v;
}

Value *add_out(Graph *g, Op *op, Dtype d, int64_t n) {
    Value *v = new_value(g, d, 1, &n);
    v->def = op;
    op->out[op->nout++] = v;
    return v;
}

Value *out_into(Graph *g, Op *op, State *s) {
    Value *v = piece(g, s->value, 0, s->numel);
    v->def = op;
    return op->out[op->nout++] = v;
}

Value *piece(Graph *g, Value *of, int64_t at, int64_t n) {
    int64_t stride = 1;
    return new_view(g, of, 1, &n, &stride, at);
}

Op *fused_one(Ctx *c, Op *member, Value *x, Dtype d) {
    Op *op = unit_op(c->g, OP_FUSED, member->unit, member->id, member->phase, member->stream);
    add_in(op, x);
    add_in(member, x);
    member->out[member->nout++] = add_out(c->g, op, d, value_numel(x));
    op->body = NEW_ARRAY(c->g->arena, Op *, 1);
    op->body[op->nbody++] = member;
    set_group(c->groups, op);
    return op;
}

Op *store_op(Graph *g, Value *from, Value *to, const char *id, Phase phase, bool add, int64_t at, Unit *u) {
    Op *op = unit_op(g, OP_STORE, u, id, phase, COMPUTE);
    add_in(op, from);
    add_in(op, to);
    op->i[0] = add;
    op->i[1] = at;
    return op;
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

/* The loss goes where nn.log_metric's numbers go. The first program of a step begins with zeros: all slots are summed
 * over the ranks at its end, also those that it does not write. Returns the op that stores the loss. */
static Op *metrics(Graph *g, Program *p, bool add) {
    Value *slots = g->metrics_state->value;
    for (int i = 0; i < p->ops.n; i++) { /* nn.log_metric */
        Op *op = p->ops.at[i];
        if (op->nin == 2 && op_is(op, T_EFFECT) && op->in[1] == slots) op->i[0] = add;
    }
    Op *unscaled = scale_undo(g, p);
    Op *loss = store_op(g, unscaled ? unscaled->out[0] : p->loss, slots, "m_loss", FORWARD, add, SLOT_LOSS, NULL);
    int at = loss_position(p);
    insert(g, p, at, loss);
    if (unscaled) insert(g, p, at, unscaled);
    if (add) return loss;
    Op *zero = unit_op(g, OP_ZERO, NULL, "m_zero", FORWARD, COMPUTE);
    add_in(zero, slots);
    insert(g, p, 0, zero);
    return loss;
}

static void sum_metrics(Ctx *c) {
    if (c->g->world == 1) return;
    Op *op = collective(c->g, OP_ALL_REDUCE, NULL, "m_sum", OPTIMIZER, REDUCE, COMM_WORLD); /* nothing waits for it */
    add_in(op, c->g->metrics_state->value);
    edit_before(c->edit, c->p->ops.n, op);
}

/* ── programs ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static Ctx begin(Graph *g, Program *p, Role role) {
    return (Ctx){.g = g,
                 .p = p,
                 .role = role,
                 .keeping = role != ALONE,
                 .edit = edit_begin(g, p),
                 .uses = NEW_ARRAY(g->arena, Use, g->units.n),
                 .groups = groups_new(g)};
}

static void commit(Ctx *c) {
    edit_commit(c->edit);
    push(&c->g->programs, c->g->arena, c->p);
}

static void micro(Graph *g, const char *name, Role role) {
    Program *p = clone_program(g, g->train, name);
    Value **grads = NEW_ARRAY(g->arena, Value *, g->params.n);
    for (int i = 0; i < g->params.n; i++)
        if (trainable(g->params.at[i]) && g->params.at[i]->grad)
            grads[i] = g->params.at[i]->grad->scratch; /* the clone, while scratch is ours */
    Op *loss = metrics(g, p, role == MIDDLE || role == LAST);
    Ctx c = begin(g, p, role);
    place_gradients(&c, grads);
    use_params(&c);
    p->loss = loss->in[0];
    reduce_gradients(&c, grads);
    if (role == ALONE || role == LAST) {
        sum_metrics(&c);
        optimizer(&c);
    }
    commit(&c);
}

static void eval(Graph *g) {
    Program *p = clone_program(g, g->eval, "eval");
    Op *loss = metrics(g, p, false);
    Ctx c = begin(g, p, ALONE);
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
    Ctx c = begin(g, p, ALONE);
    use_params(&c);
    p->logits = pick->in[0];
    commit(&c);
}

void shard(Graph *g) {
    for (int i = 0; i < g->units.n; i++) lay_out(g, g->units.at[i]);
    make_states(g);
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
