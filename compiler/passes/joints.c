/* joints: products of one input whose results are heads of one attention (queries, keys and values) become one product,
 * whose weights lie side by side: one kernel forward, one for the input's gradient, one for the weights'. Products that
 * meet in pointwise ops (gate and up) stay apart: each fills a GPU by itself, and pointwise kernels run slower over
 * halves of rows than over whole tensors, by more than the products gain (bench/results/2026-11-22-h200-join.md). It
 * stands before autodiff, so that the backward is that of one product, and looks at data alone, never at a memory
 * policy: what is joined is part of the program's numerics. Relies on: units, precision (dtypes), matmul, rope and
 * attention. Relied on by: autodiff and shard (Param.joint), pieces (gradients are written where they are
 * joined).
 */
#include "../ir/build.h"
#include "../ir/policy.h"
#include "edit.h"
#include "lowering.h"
#include "passes.h"

enum { GRAIN = 8 /* elements: a part begins where kernels may load 16 bytes, also of 16-bit elements */ };

typedef VEC(Op *) Ops;

/* A product and what is done to its result alone: seen as heads, perhaps turned (or NULL), and read by an attention. */
typedef struct {
    Op *product, *heads, *turn, *read;
} Branch;

typedef struct {
    Branch at[MAX_JOINED];
    int n;
} Family;

typedef struct {
    Graph *g;
    Program *p;
    Ops *users;   /* by Value.id, an entry an operand; a view is a user of what it shows */
    bool *result; /* by Value.id */
    bool *taken;  /* by position: in a family */
    Edit *edit;
} Ctx;

static int position(const Op *op) {
    return (int)(intptr_t)op->scratch - 1;
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
    if (op->matmul.b->dims != 2 || c->result[op->matmul.y->id]) return false;
    for (int k = WEIGHTS; k < op->nin; k++) {
        const Param *p = param_of(op->in[k]);
        if (!p || p->is_buffer || !p->unit || p->unit->policy->all_gather) return false;
        if (c->users[p->value->id].n != 1 || numel(p) % GRAIN) return false;
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
/* The one op that reads v, once; or NULL. */
static Op *reader(const Ctx *c, const Value *v) {
    const Ops *u = &c->users[v->id];
    return u->n == 1 && !c->result[v->id] ? u->at[0] : NULL;
}

/* The last dimension becomes two, [heads, width]. */
static bool shows_heads(const Op *op) {
    if (!op_is(op, T_VIEW) || op_is(op, T_NO_GRAD) || op->nout != 1) return false;
    const Value *x = op_operand(op), *y = op_result(op);
    if (y->dims != x->dims + 1 || !value_contiguous(x) || !value_contiguous(y)) return false;
    return !memcmp(x->shape, y->shape, sizeof *x->shape * (size_t)(x->dims - 1)) && value_numel(x) == value_numel(y);
}

/* False: its result is not the heads of an attention, or is read elsewhere too. */
static bool branch_of(const Ctx *c, Op *product, Branch *b) {
    Op *view = reader(c, product->matmul.y), *next = view && shows_heads(view) ? reader(c, op_result(view)) : NULL;
    if (!next) return false;
    *b = (Branch){.product = product, .heads = view};
    const Value *heads = op_result(view);
    if (next->kind == OP_rope && heads->dims == 4 && next->rope.x == heads && !next->rope.heads) {
        b->turn = next;
        next = reader(c, next->rope.y);
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
    return f->n < MAX_JOINED;
}

static Family family_of(const Ctx *c, const Op *first) {
    Family f = {0};
    const Ops *readers = &c->users[first->matmul.a->id];
    for (int i = 0; i < readers->n; i++) {
        Op *op = readers->at[i];
        if (c->taken[position(op)] || !is_linear(c, op) || op->matmul.a != first->matmul.a) continue;
        Branch b;
        if (branch_of(c, op, &b) && fits(&f, &b)) add(&f, b);
    }
    return f;
}

/* ── parameters side by side ────────────────────────────────────────────────────────────────────────────────────── */
static bool is_joint(const Family *f, int operand, const Joint *j) {
    if (!j || j->n != f->n) return false;
    for (int k = 0; k < f->n; k++)
        if (j->part[k] != f->at[k].product->in[operand]->param) return false;
    return true;
}

/* The training program says which parameters lie side by side; the others join what it joins. */
static bool may_join(const Ctx *c, const Family *f) {
    if (f->n < 2) return false;
    for (int k = WEIGHTS; k < f->at[0].product->nin && c->p != c->g->train; k++)
        if (!is_joint(f, k, f->at[0].product->in[k]->param->joint)) return false;
    return true;
}

static Joint *joint(Ctx *c, const Family *f, int operand) {
    const Value *v = f->at[0].product->in[operand];
    if (v->param->joint) return v->param->joint;
    Joint *j = NEW(c->g->arena, Joint);
    int64_t shape[2] = {0, v->shape[1]};
    j->n = f->n;
    for (int k = 0; k < f->n; k++) {
        j->part[k] = f->at[k].product->in[operand]->param;
        j->part[k]->joint = j;
        shape[0] += j->part[k]->shape[0];
    }
    j->value = new_value(c->g, v->dtype, v->dims, shape);
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
    int next = b->g->next_op;
    b->module = like->module;
    b->src = like->src;
    b->call = like->call;
    Op *op = build_op(b, k, parts);
    b->g->next_op = next;
    op->id = id;
    return op;
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
    for (int k = 0; k < f->n; k++) end_of(&f->at[k])->scratch = split->split.y[k];
    join_region(product, home_of(f));
    edit_after(c->edit, product_at, product);
    for (int i = 0; i < tail.ops.n; i++) {
        join_region(tail.ops.at[i], product);
        edit_after(c->edit, rest_at, tail.ops.at[i]);
    }
}

/* The product stands where the first did, so that whoever reads one of the results finds it; what shows heads and turns
 * them where the last of them did: one op reads them all, behind that. */
static void join_family(Ctx *c, const Family *f) {
    Program product = {0};
    Builder b = {.g = c->g, .p = &product, .phase = FORWARD};
    const Op *like = f->at[0].product;
    int first = position(like), last = first;
    for (int k = 0; k < f->n; k++) {
        const Op *ops[] = {f->at[k].product, f->at[k].heads, f->at[k].turn};
        if (position(ops[0]) < first) first = position(ops[0]);
        for (int i = 0; i < 3; i++) {
            if (!ops[i]) continue;
            edit_remove(c->edit, position(ops[i]));
            c->taken[position(ops[i])] = true;
            if (position(ops[i]) > last) last = position(ops[i]);
        }
    }
    OpParts all = like->parts;
    all.matmul.y = NULL;
    for (int k = WEIGHTS; k < like->nin; k++) all.in[k] = joint(c, f, k)->value;
    Op *op = appended(&b, like->kind, like, c->p->ops.at[first]->id, &all);
    op->module = together(c->g, f);
    replace(c, f, first, last, op);
}

static Ctx begin(Graph *g, Program *p) {
    Ctx c = {.g = g, .p = p, .edit = edit_begin(g, p), .result = value_flags(g)};
    c.users = NEW_ARRAY(g->arena, Ops, g->values.n + 1);
    c.taken = NEW_ARRAY(g->arena, bool, p->ops.n + 1);
    flag_results(g, p, c.result);
    for (int i = 0; i < g->values.n; i++) g->values.at[i]->scratch = NULL;
    for (int i = 0; i < p->ops.n; i++) {
        Op *op = p->ops.at[i];
        op->scratch = (void *)(intptr_t)(i + 1);
        for (int k = 0; k < op->nin; k++)
            if (op->in[k]) push(&c.users[op->in[k]->id], g->arena, op);
    }
    return c;
}

void joints(Graph *g, Program *p) {
    Ctx c = begin(g, p);
    bool any = false;
    for (int i = 0; i < p->ops.n; i++) {
        if (c.taken[i] || !is_linear(&c, p->ops.at[i])) continue;
        Family f = family_of(&c, p->ops.at[i]);
        if (!may_join(&c, &f)) continue;
        join_family(&c, &f);
        any = true;
    }
    if (!any) return;
    edit_commit(c.edit);
    for (int i = 0; i < p->ops.n; i++)
        for (int k = 0; k < p->ops.at[i]->nin; k++) {
            Value *v = p->ops.at[i]->in[k];
            if (v && v->scratch) p->ops.at[i]->in[k] = v->scratch;
        }
}
