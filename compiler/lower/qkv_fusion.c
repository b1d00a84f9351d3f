/* QKV fusion: the products that make queries, keys and values of one attention from one input become one product. Its
 * weights lie side by side: one kernel in the forward, one for the input's gradient, one for the weights' gradient.
 * Relies on: units, precision (dtypes), matmul, rope and attention. Relied on by: autodiff and shard (Param.fused),
 * concat in place (gradients are written where they are joined).
 *
 * Gate and up, whose results go to one pointwise op, stay two products. Each fills a GPU by itself, and a pointwise
 * kernel loses more over halves of rows than one product gains (bench/results/2026-11-22-h200-join.md).
 * The pass runs before autodiff, so that the backward is that of one product. It never looks at a memory policy: which
 * products are fused is part of the program's numerics. */
#include "../ir/build.h"
#include "../ir/policy.h"
#include "edit.h"
#include "lower.h"
#include "lowering.h"

enum { GRAIN = 8 /* elements: a part begins where kernels may load 16 bytes, also of 16-bit elements */ };

/* A product, the view of its result as heads, their rope (NULL: none), and the attention that alone reads them. */
typedef struct {
    Op *product, *heads, *rope, *attention;
} Branch;

typedef struct {
    Branch at[MAX_FUSED_PARAMS];
    int n;
} Family;

typedef struct {
    Graph *g;
    Program *p;
    Uses *uses;
    bool *taken;     /* by position: in a family */
    bool *alone;     /* by Value.id: of the products that read it, those that are left are no family */
    Value **instead; /* by Value.id of a branch's result: its piece of the fused result, which users will read */
    int nvalues;     /* before this pass: the length of `instead` */
    Edit *edit;
} QkvFusion;

static int at(const QkvFusion *c, const Op *op) {
    return uses_position(c->uses, op);
}

/* ── products that could be joined ──────────────────────────────────────────────────────────────────────────────── */
/* Operands from this one on are parameters: of a traced product only the bias, the last one, may be absent. */
enum { WEIGHTS = SLOT(matmul, b) };

/* x Wᵀ (+ b): rows of such weights can lie one below the other. */
static bool is_linear(const QkvFusion *c, const Op *op) {
    if (op->kind != OP_matmul || op->phase != FORWARD) return false;
    if (op->matmul.trans_a || !op->matmul.trans_b || op->matmul.dtype) return false;
    if (op->matmul.b->dims != 2) return false;
    for (int k = WEIGHTS; k < op->nin; k++) {
        const Param *p = op->in[k]->param;
        if (!p || p->value != op->in[k] || p->is_buffer || !p->unit || p->unit->policy->all_gather) return false;
        if (uses_count(c->uses, p->value) != 1 || value_numel(p->value) % GRAIN) return false;
    }
    return true;
}

/* Products of one input, in one module or in modules of one parent, whose parameters lie in one flat buffer. */
static bool siblings(const Op *a, const Op *b) {
    const Module *m = a->module, *n = b->module;
    bool near = m == n || (m->parent && m->parent == n->parent);
    if (!near || a->matmul.a != b->matmul.a || a->nin != b->nin) return false;
    for (int k = WEIGHTS; k < a->nin; k++) {
        const Param *p = a->in[k]->param, *q = b->in[k]->param;
        if (p->unit != q->unit || p->group != q->group || p->requires_grad != q->requires_grad) return false;
    }
    return true;
}

/* ── what reads a product ──────────────────────────────────────────────────────────────────────────────────── */
/* The last dimension becomes two, [heads, width]. */
static bool shows_heads(const Op *op) {
    if (!op_is(op, T_VIEW) || op_is(op, T_NO_GRAD) || op->nout != 1) return false;
    const Value *x = op_operand(op), *y = op_result(op);
    if (y->dims != x->dims + 1 || !value_contiguous(x) || !value_contiguous(y)) return false;
    return !memcmp(x->shape, y->shape, sizeof *x->shape * (size_t)(x->dims - 1)) && value_numel(x) == value_numel(y);
}

/* False where its result is not the heads of an attention, or something else reads it too. */
static bool branch_of(const QkvFusion *c, Op *product, Branch *b) {
    Op *view = uses_only(c->uses, product->matmul.y);
    Op *next = view && shows_heads(view) ? uses_only(c->uses, op_result(view)) : NULL;
    if (!next) return false;
    *b = (Branch){.product = product, .heads = view};
    const Value *heads = op_result(view);
    if (next->kind == OP_rope && heads->dims == 4 && next->rope.x == heads && !next->rope.heads) {
        b->rope = next;
        next = uses_only(c->uses, next->rope.y);
    }
    b->attention = next;
    return next && next->kind == OP_attention;
}

/* ── families ───────────────────────────────────────────────────────────────────────────────────────────────────── */
/* One attention reads both, so all results live until it has run, and its gradient op makes all their gradients. */
static bool same_attention(const Branch *a, const Branch *b) {
    const Value *x = op_result(a->heads), *y = op_result(b->heads);
    if (a->attention != b->attention) return false;
    if (x->dims != y->dims || x->shape[x->dims - 1] != y->shape[y->dims - 1]) return false;
    if (!a->rope || !b->rope) return true;
    return a->rope->rope.positions == b->rope->rope.positions && !memcmp(a->rope->i, b->rope->i, sizeof a->rope->i) &&
           !memcmp(a->rope->f, b->rope->f, sizeof a->rope->f);
}

static bool fits(const Family *f, const Branch *b) {
    for (int k = 0; k < f->n; k++)
        if (!siblings(f->at[k].product, b->product) || !same_attention(&f->at[k], b)) return false;
    return f->n < MAX_FUSED_PARAMS;
}

static Family family_of(const QkvFusion *c, const Value *input) {
    Family f = {0};
    for (const User *u = uses_users(c->uses, input); u; u = u->next) {
        Op *op = u->op;
        if (c->taken[at(c, op)] || !is_linear(c, op) || op->matmul.a != input) continue;
        Branch b;
        if (!branch_of(c, op, &b) || !fits(&f, &b)) continue;
        int at = f.n++; /* branches with rope go in front of the others: one rope op serves them, the first heads */
        for (; b.rope && at > 0 && !f.at[at - 1].rope; at--) f.at[at] = f.at[at - 1];
        f.at[at] = b;
    }
    return f;
}

/* ── parameters side by side ────────────────────────────────────────────────────────────────────────────────────── */
/* The training program decides which parameters lie side by side; the others fuse the products of these alone. */
static bool may_fuse(const QkvFusion *c, const Family *f) {
    if (f->n < 2) return false;
    const Op *product = f->at[0].product;
    for (int k = WEIGHTS; k < product->nin && c->p != c->g->train; k++) {
        const FusedParams *fused = product->in[k]->param->fused;
        if (!fused || fused->n != f->n) return false;
        for (int i = 0; i < f->n; i++)
            if (fused->part[i] != f->at[i].product->in[k]->param) return false;
    }
    return true;
}

static FusedParams *fused_params(QkvFusion *c, const Family *f, int operand) {
    const Value *v = f->at[0].product->in[operand];
    if (v->param->fused) return v->param->fused;
    FusedParams *j = NEW(c->g->arena, FusedParams);
    int64_t shape[2] = {0, v->shape[1]};
    j->n = f->n;
    for (int k = 0; k < f->n; k++) {
        j->part[k] = f->at[k].product->in[operand]->param;
        j->part[k]->fused = j;
        shape[0] += j->part[k]->shape[0];
    }
    j->value = value_new(c->g, v->dtype, v->dims, shape);
    j->value->param = j->part[0];
    return j;
}

/* "layers.3.self_attn.q_proj+k_proj+v_proj": the module of the fused product, shared by all programs. */
static Module *fused_module(Graph *g, const Family *f) {
    Module *m = f->at[0].product->module;
    if (f->at[1].product->module == m) return m;
    const char *path = m->path;
    for (int k = 1; k < f->n; k++) {
        const char *next = f->at[k].product->module->path, *dot = strrchr(next, '.');
        path = arena_printf(g->arena, "%s+%s", path, dot ? dot + 1 : next);
    }
    for (int i = g->modules.n - 1; i >= 0; i--)
        if (!strcmp(g->modules.at[i]->path, path)) return g->modules.at[i];
    Module *all = NEW(g->arena, Module);
    *all = (Module){.id = g->modules.n, .path = path, .kind = m->kind, .made = m->made, .parent = m->parent};
    push(&g->modules, g->arena, all);
    return all;
}

/* ── one product for all ────────────────────────────────────────────────────────────────────────────────────────── */
static Op *appended(Builder *b, OpKind k, const Op *like, const char *id, const OpParts *parts) {
    b->module = like->module;
    b->src = like->src;
    b->call = like->call;
    b->id = id;
    return build_op(b, k, parts);
}

/* An op of the checkpointed call in which all of them were traced. NULL: of several calls; the fused product is then in
 * none, and its result is kept. Which products are fused must not depend on what is checkpointed. */
static const Op *common_region(const Family *f) {
    const Op *first = f->at[0].product;
    for (int k = 0; k < f->n; k++) {
        const Op *ops[] = {f->at[k].product, f->at[k].heads, f->at[k].rope};
        for (int i = 0; i < 3; i++)
            if (ops[i] && ops[i]->region != first->region) return NULL;
    }
    return first;
}

/* One view of the product's result as heads, and one rope over the first of them. The branches' results are pieces of
 * the value that it returns. */
static Value *fused_heads(Builder *b, const Family *f, Value *y) {
    const Op *view = f->at[0].heads;
    const Value *v = op_result(view);
    int64_t roped = 0, heads = 0;
    for (int k = 0; k < f->n; k++) {
        heads += op_result(f->at[k].heads)->shape[v->dims - 2];
        if (f->at[k].rope) roped = heads;
    }
    OpParts seen = {.reshape = {.a = y, .dims = v->dims}};
    memcpy(seen.reshape.shape, v->shape, sizeof *v->shape * (size_t)v->dims);
    seen.reshape.shape[v->dims - 2] = heads;
    y = op_result(appended(b, OP_reshape, view, view->id, &seen));
    const Op *rope = f->at[0].rope;
    if (!rope) return y;
    OpParts all = rope->parts;
    all.rope.y = NULL;
    all.rope.x = y;
    all.rope.heads = roped < heads ? roped : 0;
    return appended(b, OP_rope, rope, rope->id, &all)->rope.y;
}

static Value *end_of(const Branch *b) {
    return op_result(b->rope ? b->rope : b->heads);
}

/* The fused product takes the first product's position. Its view, rope and split take the position of the branches'
 * last op: the attention, their only reader, comes behind that. */
static void fuse_family(QkvFusion *c, const Family *f) {
    Program made = {0}; /* product, view, rope, split */
    Builder b = {.g = c->g, .p = &made, .phase = FORWARD};
    const Op *like = f->at[0].product;
    int first = at(c, like), last = first;
    for (int k = 0; k < f->n; k++) {
        const Op *ops[] = {f->at[k].product, f->at[k].heads, f->at[k].rope};
        if (at(c, ops[0]) < first) first = at(c, ops[0]);
        for (int i = 0; i < 3; i++) {
            if (!ops[i]) continue;
            int here = at(c, ops[i]);
            edit_remove(c->edit, here);
            c->taken[here] = true;
            if (here > last) last = here;
        }
    }
    OpParts all = like->parts;
    all.matmul.y = NULL;
    for (int k = WEIGHTS; k < like->nin; k++) all.in[k] = fused_params(c, f, k)->value;
    Op *product = appended(&b, OP_matmul, like, c->p->ops.at[first]->id, &all);
    product->module = fused_module(c->g, f);
    Value *heads = fused_heads(&b, f, product->matmul.y);
    int dim = heads->dims - 2;
    OpParts pieces = {.split = {.a = heads, .dim = dim, .pieces = f->n}};
    for (int k = 0; k < f->n; k++) pieces.split.sizes[k] = end_of(&f->at[k])->shape[dim];
    Op *split = appended(&b, OP_split, product, arena_printf(c->g->arena, "%sj", product->id), &pieces);
    for (int k = 0; k < f->n; k++) c->instead[end_of(&f->at[k])->id] = split->split.y[k];
    const Op *region = common_region(f);
    for (int i = 0; i < made.ops.n; i++) {
        lower_join_region(made.ops.at[i], region);
        edit_after(c->edit, made.ops.at[i] == product ? first : last, made.ops.at[i]);
    }
}

void lower_qkv_fusion(Graph *g, Program *p) {
    QkvFusion c = {.g = g, .p = p, .uses = uses_new(g, p), .nvalues = g->values.n, .edit = edit_begin(g, p)};
    c.taken = NEW_ARRAY(g->arena, bool, p->ops.n + 1);
    c.alone = NEW_ARRAY(g->arena, bool, c.nvalues + 1);
    c.instead = NEW_ARRAY(g->arena, Value *, c.nvalues + 1);
    bool any = false;
    for (int i = 0; i < p->ops.n; i++) {
        if (c.taken[i] || !is_linear(&c, p->ops.at[i])) continue;
        const Value *input = p->ops.at[i]->matmul.a;
        if (c.alone[input->id]) continue;
        Family f = family_of(&c, input);
        c.alone[input->id] = !may_fuse(&c, &f);
        if (c.alone[input->id]) continue;
        fuse_family(&c, &f);
        any = true;
    }
    if (any) edit_commit(c.edit);
    for (int i = 0; any && i < p->ops.n; i++) {
        Op *op = p->ops.at[i];
        for (int k = 0; k < op->nin; k++) {
            const Value *v = op->in[k];
            if (v && v->id < c.nvalues && c.instead[v->id]) op->in[k] = c.instead[v->id];
        }
    }
    uses_free(c.uses);
}
