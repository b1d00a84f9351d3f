/* fuse: gives kernels the layouts they take, and gathers pointwise ops into groups, each one generated kernel. After
 * this, numerics are frozen: which ops share a kernel no longer depends on any memory policy. Relies on: the traits in
 * ops.def, Op.region from the trace, remove_dead. Relied on by: recompute (clones groups whole), shard, the emitter
 * (Op.body, Op.group). */
#include "../ir/build.h"
#include "lower.h"
#include "lowering.h"

enum { MAX_GROUP_IN = 10, MAX_GROUP_OUT = 6, MAX_GROUP_BODY = 48, WINDOW = 32 };

/* ── layouts ────────────────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    Builder b;
    Op *user;
    const bool *written;
    Value **copy; /* by Value.id: a contiguous one, if there is */
} Layouts;

/* One copy of a value serves every later op, unless the value is a state that changes in between. */
static Value *contiguous(Layouts *l, Value *v) {
    if (l->copy[v->id]) return l->copy[v->id];
    Value *copy = build_one(&l->b, OP_copy, v);
    lower_join_region(copy->def, l->user);
    if (!l->written[value_root(v)->id]) l->copy[v->id] = copy;
    return copy;
}

/* A matrix as BLAS takes it: `inner` runs with stride 1, `outer` with a leading dimension that is long enough. */
static bool is_matrix(const Value *v, int outer, int inner) {
    int64_t n = v->shape[inner];
    return (n == 1 || v->stride[inner] == 1) && (v->shape[outer] == 1 || v->stride[outer] >= n);
}

/* Dims 0 .. last are one dim with the stride of `last`. */
static bool folds(const Value *v, int last) {
    int64_t stride = v->stride[last] * v->shape[last];
    for (int d = last - 1; d >= 0; d--) {
        if (v->shape[d] != 1 && v->stride[d] != stride) return false;
        stride *= v->shape[d];
    }
    return true;
}

/* A matrix of a product: as it stands, or transposed with its flag turned, or copied. `rows`: its leading dims are to
 * fold into its rows. */
static Value *lay_out_matrix(Layouts *l, Value *v, int64_t *trans, bool rows) {
    int row = v->dims - 2, col = v->dims - 1;
    if (v->dims < 2) return v;
    if (is_matrix(v, row, col) && (!rows || *trans || folds(v, row))) return v;
    if (rows || !is_matrix(v, col, row)) return contiguous(l, v);
    *trans ^= 1;
    int order[MAX_DIMS];
    for (int d = 0; d < row; d++) order[d] = d;
    order[row] = col;
    order[col] = row;
    Value *t = build_transpose(&l->b, v, order);
    lower_join_region(t->def, l->user);
    return t;
}

static void layouts(Graph *g, Program *p) {
    Layouts l = {.b = {.g = g, .p = p}, .written = lower_written_states(g, p)};
    l.copy = NEW_ARRAY(g->arena, Value *, g->values.n + 1);
    Program old = *p;
    memset(&p->ops, 0, sizeof p->ops);
    for (int i = 0; i < old.ops.n; i++) {
        Op *op = l.user = old.ops.at[i];
        build_for(&l.b, op, "l");
        l.b.phase = op->phase;
        l.b.origin = op->origin;
        bool any = op_is(op, T_POINTWISE | T_VIEW | T_STRIDED | T_ASSEMBLE | T_COPY); /* it takes any layout */
        int first = 0; /* operand whose layout is not settled */
        if (!any && op_is(op, T_PRODUCT)) {
            Value **a = &OPERAND_OF(op, a), **b = &OPERAND_OF(op, b);
            *a = lay_out_matrix(&l, *a, &INT_OF(op, trans_a), (*b)->dims == 2 && (*a)->dims > 2);
            *b = lay_out_matrix(&l, *b, &INT_OF(op, trans_b), false);
            first = SLOT_OF(op, b) + 1;
        }
        for (int k = first; k < op->nin && !any; k++) {
            Value *v = op->in[k];
            if (!v || op_updates(op, k)) continue;
            int last = v->dims - 1;
            bool row = last < 0 || v->shape[last] == 1 || v->stride[last] == 1;
            if (op_is(op, T_ROWS) ? !row : !value_contiguous(v)) op->in[k] = contiguous(&l, v);
        }
        push(&p->ops, g->arena, op);
    }
}

/* ── what both steps below know of an op ────────────────────────────────────────────────────────────────────────── */
typedef struct {
    int index; /* in the op list */
    bool done;
    bool tied; /* reads a state that changes: keeps its place */
    Module *unit;
    struct Fusion *fusion; /* the group that it is a member of */
} Node;

typedef struct {
    Graph *g;
    Program *p;
    Uses *uses;             /* outside the group of the value's op, once it has one */
    Node *node;             /* by Op.serial */
    struct Fusion **reader; /* by Value.id: the last group that read it */
} Fusing;

static Node *node_of(const Fusing *c, const Op *op) {
    return &c->node[op->serial];
}
static bool is_pointwise(const Op *op) {
    return op_is(op, T_POINTWISE) && !op->body;
}

/* May the two be members of one group? Regions are recomputed whole, units are gathered apart. */
static bool compatible(const Fusing *c, const Op *a, const Op *b) {
    const Node *x = node_of(c, a), *y = node_of(c, b);
    return !x->tied && !y->tied && a->phase == b->phase && a->region == b->region && x->unit == y->unit &&
           value_same_shape(op_result(a), op_result(b));
}

static Op *maker(const Value *operand) { /* NULL: none is there, or nothing makes it */
    return operand ? operand->def : NULL;
}

/* ── order: views right before their first user, pointwise ops near their producers ─────────────────────────────── */
/* Operands that are views come first; anything else is there already. */
static void put(Fusing *c, Op *op) {
    if (node_of(c, op)->done) return;
    node_of(c, op)->done = true;
    for (int k = 0; k < op->nin; k++)
        if (maker(op->in[k])) put(c, maker(op->in[k]));
    push(&c->p->ops, c->g->arena, op);
}

static bool ready(const Fusing *c, const Op *op) {
    for (int k = 0; k < op->nin; k++) {
        const Op *def = maker(op->in[k]);
        while (def && op_is(def, T_VIEW) && !node_of(c, def)->done) def = maker(op_operand(def));
        if (def && !node_of(c, def)->done) return false;
    }
    return true;
}

/* After a pointwise op, those of its users that could join its group and have all they need: chains of gradients of one
 * tensor come together although the backward of other ops stands between them in the list. */
static void pull_users(Fusing *c, Op *first) {
    VEC(Op *) work = {0};
    push(&work, c->g->arena, first);
    for (int w = 0; w < work.n; w++) {
        const Op *op = work.at[w];
        int last = node_of(c, op)->index + WINDOW;
        for (const User *u = uses_users(c->uses, op_result(op)); u && node_of(c, u->op)->index <= last; u = u->next) {
            if (u->value != op_result(op) || node_of(c, u->op)->done) continue;
            if (!is_pointwise(u->op) || !compatible(c, op, u->op) || !ready(c, u->op)) continue;
            put(c, u->op);
            push(&work, c->g->arena, u->op);
        }
    }
}

static void reorder(Fusing *c) {
    Program old = *c->p;
    memset(&c->p->ops, 0, sizeof c->p->ops);
    int n = old.ops.n, flushed = 0;
    for (int i = 0; i <= n; i++) {
        Op *op = i < n ? old.ops.at[i] : NULL;
        if (!op || op->phase != old.ops.at[flushed]->phase) /* views stay within their phase */
            for (; flushed < i; flushed++) put(c, old.ops.at[flushed]);
        if (!op || op_is(op, T_VIEW) || node_of(c, op)->done) continue;
        put(c, op);
        if (is_pointwise(op)) pull_users(c, op);
    }
}

/* ── groups ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* A group is emitted where its last member stands, and is closed to more members as soon as an op outside uses one of
 * its results. So everything that a member needs stands before that place and everything that depends on a member after
 * it: no path leaves a group and comes back, and the list stays a valid order. */
typedef struct Fusion {
    VEC(Op *) members;
    Value *in[MAX_GROUP_IN];
    int nin, nout; /* nout: results that something outside the members so far reads */
    int last;
    bool closed;
} Fusion;

static Fusion *group_of(const Fusing *c, const Value *operand) {
    const Op *def = maker(operand);
    return def ? node_of(c, def)->fusion : NULL;
}

static bool reads(const Fusion *f, const Value *v) {
    for (int k = 0; k < f->nin; k++)
        if (f->in[k] == v) return true;
    return false;
}

/* The operands of op that are made in f are used less outside once op is inside. */
static int freed_results(const Fusing *c, const Fusion *f, const Op *op) {
    int freed = 0;
    for (int k = 0; k < op->nin; k++) {
        int here = 0;
        bool first = true;
        for (int j = 0; j < op->nin; j++) {
            here += op->in[j] == op->in[k];
            first &= j >= k || op->in[j] != op->in[k];
        }
        if (first && group_of(c, op->in[k]) == f) freed += uses_count(c->uses, op->in[k]) == here;
    }
    return freed;
}

static bool may_join(const Fusing *c, const Fusion *f, const Op *op, int pos) {
    if (!f || f->closed || pos - f->last > WINDOW || f->members.n >= MAX_GROUP_BODY) return false;
    if (!compatible(c, f->members.at[0], op)) return false;
    int nin = f->nin;
    for (int k = 0; k < op->nin; k++) {
        bool again = false;
        for (int j = 0; j < k; j++) again |= op->in[j] == op->in[k];
        nin += !again && group_of(c, op->in[k]) != f && !reads(f, op->in[k]);
    }
    return nin <= MAX_GROUP_IN && f->nout - freed_results(c, f, op) + 1 <= MAX_GROUP_OUT;
}

/* The group of a producer, the latest first; else one that reads the same tensor. */
static Fusion *choose(const Fusing *c, const Op *op, int pos) {
    Fusion *best = NULL;
    for (int pass = 0; pass < 2 && !best; pass++)
        for (int k = 0; k < op->nin; k++) {
            Fusion *f = pass ? c->reader[op->in[k]->id] : group_of(c, op->in[k]);
            if (may_join(c, f, op, pos) && (!best || f->last > best->last)) best = f;
        }
    return best;
}

static void join(Fusing *c, Fusion *f, Op *op, int pos) {
    f->nout -= freed_results(c, f, op);
    for (int k = 0; k < op->nin; k++) {
        Value *v = op->in[k];
        if (group_of(c, v) == f)
            uses_drop(c->uses, op, v);
        else if (!reads(f, v))
            f->in[f->nin++] = v;
        c->reader[v->id] = f;
    }
    f->nout++;
    f->last = pos;
    node_of(c, op)->fusion = f;
    push(&f->members, c->g->arena, op);
}

static void form_groups(Fusing *c) {
    for (int i = 0; i < c->p->ops.n; i++) {
        Op *op = c->p->ops.at[i];
        Fusion *f = NULL;
        if (is_pointwise(op)) {
            f = choose(c, op, i);
            if (!f) f = NEW(c->g->arena, Fusion);
            join(c, f, op, i);
        }
        for (int k = 0; k < op->nin; k++) { /* the groups whose results op uses from outside are complete */
            Fusion *made_by = group_of(c, op->in[k]);
            if (made_by && made_by != f) made_by->closed = true;
        }
    }
}

static Op *fused_op(Fusing *c, Fusion *f) {
    const Op *first = f->members.at[0];
    Op *op = op_new(c->g, OP_fused);
    op->id = first->id;
    op->module = first->module;
    op->src = first->src;
    op->phase = first->phase;
    op->origin = first->origin;
    op->call = first->call;
    lower_join_region(op, first);
    op->body = f->members.at;
    op->nbody = f->members.n;
    op->nin = f->nin;
    memcpy(op->in, f->in, sizeof(Value *) * (size_t)f->nin);
    for (int m = 0; m < f->members.n; m++) {
        Value *v = op_result(f->members.at[m]);
        v->internal = !uses_count(c->uses, v);
        if (v->internal) continue;
        v->def = op;
        op->out[op->nout++] = v;
    }
    return op;
}

static void emit_groups(Fusing *c) {
    Program old = *c->p;
    Groups *groups = groups_new(c->g);
    memset(&c->p->ops, 0, sizeof c->p->ops);
    for (int i = 0; i < old.ops.n; i++) {
        Op *op = old.ops.at[i];
        Fusion *f = node_of(c, op)->fusion;
        if (f && f->last != i) continue;
        if (f) {
            op = fused_op(c, f);
            groups_set(groups, op);
        }
        push(&c->p->ops, c->g->arena, op);
    }
}

void lower_fuse(Graph *g, Program *p) {
    layouts(g, p);
    lower_remove_dead(g, p);
    const bool *written = lower_written_states(g, p);
    Fusing c = {.g = g,
                .p = p,
                .uses = uses_new(g, p),
                .node = NEW_ARRAY(g->arena, Node, g->nops + 1),
                .reader = NEW_ARRAY(g->arena, struct Fusion *, g->values.n + 1)};
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        bool tied = lower_reads_flagged(op, written);
        *node_of(&c, op) = (Node){.index = i, .unit = lower_unit_module(op->module), .tied = tied};
    }
    reorder(&c);
    form_groups(&c);
    emit_groups(&c);
    uses_free(c.uses);
}
