/* QKV fusion: products of one input whose results are heads of one attention (queries, keys and values) become one
 * product, whose weights lie side by side: one kernel forward, one for the input's gradient, one for the weights'.
 * Products that meet in pointwise ops (gate and up) stay apart: each fills a GPU by itself, and pointwise kernels run
 * slower over halves of rows than over whole tensors, by more than the products gain
 * (bench/results/2026-11-22-h200-join.md). It stands before autodiff, so that the backward is that of one product, and
 * looks at data alone, never at a memory policy: what is joined is part of the program's numerics. Relies on: units,
 * precision (dtypes), matmul, rope and attention. Relied on by: autodiff and shard (Param.fused), concat in place
 * (gradients are written where they are joined).
 */
#include "../ir/build.h"
#include "../ir/policy.h"
#include "edit.h"
#include "lower.h"
#include "lowering.h"

enum { GRAIN = 8 /* elements: a part begins where kernels may load 16 bytes, also of 16-bit elements */ };

/* A product and what is done to its result alone: seen as heads, perhaps turned (or NULL), and read by an attention. */
typedef struct {
    Op *product, *heads, *turn, *read;
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
    Value **instead; /* by Value.id: of a branch's end its piece of all, which its users will read */
    int nvalues;     /* ... of the values that were there before this pass */
    Edit *edit;
} Ctx;

static int at(const Ctx *c, const Op *op) {
    return uses_position(c->uses, op);
}

/* ── products that could be joined ──────────────────────────────────────────────────────────────────────────────── */
static Param *param_of(const Value *v) {
    return v->param && v->param->value == v ? v->param : NULL;
}

static int64_t numel(const Param *p) {
    return value_numel(p->value);
}

/* Operands from this one on are weights: they stand without a gap, as bias is the only optional one of a traced
 * product. */
enum { WEIGHTS = SLOT(matmul, b) };

/* x Wᵀ (+ b): rows of such weights can lie one below the other. */
static bool is_linear(const Ctx *c, const Op *op) {
    if (op->kind != OP_matmul || op->phase != FORWARD) return false;
    if (op->matmul.trans_a || !op->matmul.trans_b || op->matmul.dtype) return false;
    if (op->matmul.b->dims != 2) return false;
    for (int k = WEIGHTS; k < op->nin; k++) {
        const Param *p = param_of(op->in[k]);
        if (!p || p->is_buffer || !p->unit || p->unit->policy->all_gather) return false;
        if (uses_count(c->uses, p->value) != 1 || numel(p) % GRAIN) return false;
    }
    return true;
}

static bool same_home(const Param *a, const Param *b) {
    return a->unit == b->unit && a->group == b->group && a->requires_grad == b->requires_grad;
}

/* Of one module, or of modules side by side. */
static bool siblings(const Op *a, const Op *b) {
    const Module *m = a->module, *n = b->module;
    bool near = m == n || (m->parent && m->parent == n->parent);
    if (!near || a->matmul.a != b->matmul.a || a->nin != b->nin) return false;
    for (int k = WEIGHTS; k < a->nin; k++)
        if (!same_home(a->in[k]->param, b->in[k]->param)) return false;
    return true;
}

/* ── what becomes of a product ──────────────────────────────────────────────────────────────────────────────────── */
/* The last dimension becomes two, [heads, width]. */
static bool shows_heads(const Op *op) {
    if (!op_is(op, T_VIEW) || op_is(op, T_NO_GRAD) || op->nout != 1) return false;
    const Value *x = op_operand(op), *y = op_result(op);
    if (y->dims != x->dims + 1 || !value_contiguous(x) || !value_contiguous(y)) return false;
    return !memcmp(x->shape, y->shape, sizeof *x->shape * (size_t)(x->dims - 1)) && value_numel(x) == value_numel(y);
}

/* False: its result is not the heads of an attention, or is read elsewhere too. */
static bool branch_of(const Ctx *c, Op *product, Branch *b) {
    Op *view = uses_only(c->uses, product->matmul.y);
    Op *next = view && shows_heads(view) ? uses_only(c->uses, op_result(view)) : NULL;
    if (!next) return false;
    *b = (Branch){.product = product, .heads = view};
    const Value *heads = op_result(view);
    if (next->kind == OP_rope && heads->dims == 4 && next->rope.x == heads && !next->rope.heads) {
        b->turn = next;
        next = uses_only(c->uses, next->rope.y);
    }
    b->read = next;
    return next && next->kind == OP_attention;
}

/* ── families ───────────────────────────────────────────────────────────────────────────────────────────────────── */
static bool turns_alike(const Op *a, const Op *b) {
    if (!a || !b) return true; /* those that do not turn stand behind */
    return a->rope.positions == b->rope.positions && !memcmp(a->i, b->i, sizeof a->i) &&
           !memcmp(a->f, b->f, sizeof a->f);
}

static bool heads_alike(const Value *a, const Value *b) {
    return a->dims == b->dims && a->shape[a->dims - 1] == b->shape[b->dims - 1];
}

/* Their results are read by one op, so that all of them live until that has run, and it makes all their gradients. */
static bool meet(const Branch *a, const Branch *b) {
    return a->read == b->read && heads_alike(op_result(a->heads), op_result(b->heads)) && turns_alike(a->turn, b->turn);
}

/* What turns stands in front: it is a run of heads. */
static void add(Family *f, Branch b) {
    int at = f->n++;
    for (; b.turn && at > 0 && !f->at[at - 1].turn; at--) f->at[at] = f->at[at - 1];
    f->at[at] = b;
}

static bool fits(const Family *f, const Branch *b) {
    for (int k = 0; k < f->n; k++)
        if (!siblings(f->at[k].product, b->product) || !meet(&f->at[k], b)) return false;
    return f->n < MAX_FUSED_PARAMS;
}

static Family family_of(const Ctx *c, const Op *first) {
    Family f = {0};
    for (const User *u = uses_users(c->uses, first->matmul.a); u; u = u->next) {
        Op *op = u->op;
        if (c->taken[at(c, op)] || !is_linear(c, op) || op->matmul.a != first->matmul.a) continue;
        Branch b;
        if (branch_of(c, op, &b) && fits(&f, &b)) add(&f, b);
    }
    return f;
}

/* ── parameters side by side ────────────────────────────────────────────────────────────────────────────────────── */
static bool is_fused(const Family *f, int operand, const FusedParams *j) {
    if (!j || j->n != f->n) return false;
    for (int k = 0; k < f->n; k++)
        if (j->part[k] != f->at[k].product->in[operand]->param) return false;
    return true;
}

/* The training program says which parameters lie side by side; the others join what it joins. */
static bool may_join(const Ctx *c, const Family *f) {
    if (f->n < 2) return false;
    for (int k = WEIGHTS; k < f->at[0].product->nin && c->p != c->g->train; k++)
        if (!is_fused(f, k, f->at[0].product->in[k]->param->fused)) return false;
    return true;
}

static FusedParams *fused_params(Ctx *c, const Family *f, int operand) {
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

/* "layers.3.self_attn.q_proj+k_proj+v_proj": a module for what several do at once. Programs share it. */
static Module *together(Graph *g, const Family *f) {
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

/* Whose checkpointed call they belong to: all were traced in one, or the product is in none and its result is kept.
 * Which products are joined must not depend on what is checkpointed. */
static const Op *home_of(const Family *f) {
    const Op *home = f->at[0].product;
    for (int k = 0; k < f->n; k++) {
        const Op *ops[] = {f->at[k].product, f->at[k].heads, f->at[k].turn};
        for (int i = 0; i < 3; i++)
            if (ops[i] && ops[i]->region != home->region) return NULL;
    }
    return home;
}

/* Heads of all, in one view; a run of them turned. Returns the value that the branches' results are pieces of. */
static Value *heads_of_all(Builder *b, const Family *f, Value *y) {
    const Op *view = f->at[0].heads;
    const Value *v = op_result(view);
    int64_t turned = 0, heads = 0;
    for (int k = 0; k < f->n; k++) {
        heads += op_result(f->at[k].heads)->shape[v->dims - 2];
        if (f->at[k].turn) turned = heads;
    }
    OpParts seen = {.reshape = {.a = y, .dims = v->dims}};
    memcpy(seen.reshape.shape, v->shape, sizeof *v->shape * (size_t)v->dims);
    seen.reshape.shape[v->dims - 2] = heads;
    y = op_result(appended(b, view->kind, view, view->id, &seen));
    const Op *turn = f->at[0].turn;
    if (!turn) return y;
    OpParts all = turn->parts;
    all.rope.y = NULL;
    all.rope.x = y;
    all.rope.heads = turned < heads ? turned : 0;
    return appended(b, turn->kind, turn, turn->id, &all)->rope.y;
}

static Value *end_of(const Branch *b) {
    return op_result(b->turn ? b->turn : b->heads);
}

static void replace(Ctx *c, const Family *f, int product_at, int rest_at, Op *product) {
    Program tail = {0};
    Builder b = {.g = c->g, .p = &tail, .phase = FORWARD};
    Value *all = heads_of_all(&b, f, product->matmul.y);
    int dim = all->dims - 2;
    OpParts pieces = {.split = {.a = all, .dim = dim, .pieces = f->n}};
    for (int k = 0; k < f->n; k++) pieces.split.sizes[k] = end_of(&f->at[k])->shape[dim];
    const char *id = arena_printf(c->g->arena, "%sj", product->id);
    Op *split = appended(&b, OP_split, product, id, &pieces);
    for (int k = 0; k < f->n; k++) c->instead[end_of(&f->at[k])->id] = split->split.y[k];
    lower_join_region(product, home_of(f));
    edit_after(c->edit, product_at, product);
    for (int i = 0; i < tail.ops.n; i++) {
        lower_join_region(tail.ops.at[i], product);
        edit_after(c->edit, rest_at, tail.ops.at[i]);
    }
}

/* The product stands where the first did, so that whoever reads one of the results finds it; what shows heads and turns
 * them where the last of them did: one op reads them all, behind that. */
static void join_family(Ctx *c, const Family *f) {
    Program product = {0};
    Builder b = {.g = c->g, .p = &product, .phase = FORWARD};
    const Op *like = f->at[0].product;
    int first = at(c, like), last = first;
    for (int k = 0; k < f->n; k++) {
        const Op *ops[] = {f->at[k].product, f->at[k].heads, f->at[k].turn};
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
    Op *op = appended(&b, like->kind, like, c->p->ops.at[first]->id, &all);
    op->module = together(c->g, f);
    replace(c, f, first, last, op);
}

static void use_pieces(Ctx *c, Op *op) {
    for (int k = 0; k < op->nin; k++) {
        const Value *v = op->in[k];
        if (v && v->id < c->nvalues && c->instead[v->id]) op->in[k] = c->instead[v->id];
    }
}

void lower_qkv_fusion(Graph *g, Program *p) {
    Ctx c = {.g = g, .p = p, .uses = uses_new(g, p), .nvalues = g->values.n, .edit = edit_begin(g, p)};
    c.taken = NEW_ARRAY(g->arena, bool, p->ops.n + 1);
    c.instead = NEW_ARRAY(g->arena, Value *, c.nvalues + 1);
    bool any = false;
    for (int i = 0; i < p->ops.n; i++) {
        if (c.taken[i] || !is_linear(&c, p->ops.at[i])) continue;
        Family f = family_of(&c, p->ops.at[i]);
        if (!may_join(&c, &f)) continue;
        join_family(&c, &f);
        any = true;
    }
    if (any) edit_commit(c.edit);
    for (int i = 0; any && i < p->ops.n; i++) use_pieces(&c, p->ops.at[i]);
    uses_free(c.uses);
}
