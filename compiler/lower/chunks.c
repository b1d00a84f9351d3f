/* Chunks: where a loss is made chunk by chunk, each chunk's logits and loss stand just before their gradient, so that
 * the logits of one chunk alone are in memory. The order changes, and no bit. Relies on: autodiff, the hint `chunk` of
 * cross_entropy and distillation. Relied on by: epilogue_fusion (the loss and its gradient are neighbours).
 *
 * What is late: a chunk's loss; what the forward makes of it; and logits, a teacher's too, that nothing else of the
 * forward reads. */
#include "lower.h"
#include "lowering.h"

typedef struct {
    Program *p;
    Uses *uses;
    bool *late, *placed; /* by the place in the old order */
    VEC(Op *) order;
    Arena *arena;
} Chunks;

static bool is_late(const Chunks *c, const Op *op) {
    int at = op ? uses_position(c->uses, op) : -1;
    return at >= 0 && c->late[at];
}

static bool reads_late(const Chunks *c, const Op *op) {
    for (int k = 0; k < op->nin; k++)
        if (op->in[k] && (is_late(c, op->in[k]->def) || is_late(c, value_root(op->in[k])->def))) return true;
    return false;
}

/* Is v read by late ops and by the backward alone? */
static bool serves_late(const Chunks *c, const Value *v) {
    for (const User *u = uses_users(c->uses, v); u; u = u->next)
        if (u->op->phase == FORWARD && !is_late(c, u->op)) return false;
    return !v->state && !uses_is_result(c->uses, v);
}

static bool is_chunk(const Op *op) {
    return (op->kind == OP_cross_entropy && op->cross_entropy.chunk) ||
           (op->kind == OP_distillation && op->distillation.chunk);
}

/* The product that makes logits is late, and so are views and casts on the way. */
static void mark_logits(Chunks *c, const Value *v) {
    for (; v->def && serves_late(c, v); v = op_operand(v->def)) {
        bool passes = op_is(v->def, T_VIEW | T_PRODUCT) || (op_is(v->def, T_POINTWISE) && v->def->nin == 1);
        if (!passes || v->def->region) break;
        c->late[uses_position(c->uses, v->def)] = true;
        if (op_is(v->def, T_PRODUCT)) break;
    }
}

static bool mark(Chunks *c) {
    bool any = false;
    for (int i = 0; i < c->p->ops.n; i++) {
        const Op *op = c->p->ops.at[i];
        bool chunk = is_chunk(op) && !op->region;
        c->late[i] = op->phase == FORWARD && (chunk || reads_late(c, op));
        any |= chunk;
    }
    for (int i = c->p->ops.n - 1; i >= 0 && any; i--) {
        const Op *loss = c->p->ops.at[i];
        if (!c->late[i] || !is_chunk(loss)) continue;
        mark_logits(c, OPERAND_OF(loss, logits));
        if (loss->kind == OP_distillation) mark_logits(c, loss->distillation.teacher);
    }
    return any;
}

/* op, behind the late ops whose results it reads. */
static void put(Chunks *c, Op *op) {
    int at = uses_position(c->uses, op);
    if (c->placed[at]) return;
    c->placed[at] = true;
    for (int k = 0; k < op->nin; k++) {
        const Value *v = op->in[k], *root = v ? value_root(v) : NULL;
        if (v && is_late(c, root->def)) put(c, root->def);
        if (v && is_late(c, v->def)) put(c, v->def);
    }
    if (c->late[at]) op->phase = BACKWARD;
    push(&c->order, c->arena, op);
}

/* A sum of two products is finished by the later one, with the sum fused to it: what the earlier one reads, a chunk's
 * logits among it, is then free before the later chunk. */
static void later_first(const Chunks *c) {
    for (int i = 0; i < c->order.n; i++) uses_place(c->uses, c->order.at[i], i);
    for (int i = 0; i < c->order.n; i++) {
        Op *op = c->order.at[i];
        if (op->kind != OP_add || op->phase != BACKWARD) continue;
        Value *a = op->add.a, *b = op->add.b;
        if (!a->def || !b->def || !op_is(a->def, T_PRODUCT) || !op_is(b->def, T_PRODUCT)) continue;
        if (uses_position(c->uses, a->def) >= uses_position(c->uses, b->def)) continue;
        op->add.a = b;
        op->add.b = a;
    }
}

void lower_chunks(Graph *g, Program *p) {
    Chunks c = {.p = p, .uses = uses_new(g, p), .arena = g->arena};
    c.late = NEW_ARRAY(g->arena, bool, p->ops.n + 1);
    c.placed = NEW_ARRAY(g->arena, bool, p->ops.n + 1);
    if (mark(&c)) {
        for (int late = 0; late < 2; late++)
            for (int i = 0; i < p->ops.n; i++)
                if (c.late[i] == late) put(&c, p->ops.at[i]);
        memcpy(p->ops.at, c.order.at, sizeof *p->ops.at * (size_t)p->ops.n);
        later_first(&c);
    }
    uses_free(c.uses);
}
