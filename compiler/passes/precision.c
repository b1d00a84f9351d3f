/* precision: where values change dtype. Parameters take their unit's wire dtype; float values that enter a unit are
 * cast to its param_dtype, values that leave it to its output_dtype (FSDP2's mp_policy); mixed dtypes at one op are
 * promoted. Relies on: units (Param.unit, Module.unit), the front end's op order and Op.call (-1: outside every module
 * call). Relied on by: autodiff, which differentiates the casts like any other op; recompute. */
#include "../ir/build.h"
#include "lowering.h"
#include "passes.h"

typedef struct Made Made;
struct Made { /* a cast of a value that exists already; a list hangs off Value.scratch */
    const Module *at;
    Dtype to;
    Value *out;
    Made *next;
};

typedef struct {
    Graph *g;
    Builder b;
    Op *user;           /* the op that is being worked on */
    const char *letter; /* of inserted ops' ids */
} Ctx;

static bool is_unit(const Module *m) {
    return m->unit && m->unit->module == m;
}

Module *unit_module(Module *m) {
    while (m && !is_unit(m)) m = m->parent;
    return m;
}

static Module *outer_unit(const Module *m) {
    return unit_module(m->parent);
}

static Module *op_unit(const Op *op) {
    return op->call < 0 ? NULL : unit_module(op->module);
}

/* ── casts ──────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* The names of inserted ops derive from the op that wanted them, so that traced names stay as they are. */
static void name_inserted(Ctx *c, Op *op, const Op *region_of, int next_op) {
    op->id = arena_printf(c->g->arena, "%s%s%d", c->user->id, c->letter, c->b.k++);
    join_region(op, region_of);
    c->g->next_op = next_op;
}

/* The op whose checkpointed call a cast at the border of `at` belongs to. Where the value enters the call together with
 * the unit, the cast stands outside: what is kept is the cast value, which is the one that is used again. */
static const Op *region_of_cast(const Ctx *c, const Value *v, const Module *at) {
    if (!at || (v->def && v->def->region == c->user->region)) return c->user;
    for (const Module *m = at->parent; m; m = m->parent)
        if (m->checkpoint && m->checkpoint == c->user->checkpoint) return c->user;
    return NULL;
}

/* `at`: the unit whose border is crossed, or NULL for a promotion. Widening and narrowing again is left as it stands:
 * it is exact, and gradients are summed in the wide dtype between the two. */
static Value *cast_at(Ctx *c, Value *v, Dtype to, Module *at) {
    if (v->dtype == to || !dtype_float(v->dtype)) return v;
    for (Made *m = v->scratch; m; m = m->next)
        if (m->at == at && m->to == to) return m->out;
    int next = c->g->next_op;
    c->b.module = at ? at : c->user->module;
    Made *m = NEW(c->g->arena, Made);
    *m = (Made){at, to, build_cast(&c->b, v, to), v->scratch};
    name_inserted(c, m->out->def, region_of_cast(c, v, at), next);
    v->scratch = m;
    return m->out;
}

static Value *enter(Ctx *c, Value *v, Module *to, const Module *stop) {
    if (to == stop) return v;
    v = enter(c, v, outer_unit(to), stop);
    const UnitPolicy *p = to->unit->policy;
    return p->has_param_dtype && p->cast_forward_inputs ? cast_at(c, v, p->param_dtype, to) : v;
}

/* Takes v from where it was made to the unit `to`, a border at a time. */
static Value *cross(Ctx *c, Value *v, Module *to) {
    Value *root = value_root(v);
    const Param *param = root->param;
    if (!dtype_float(v->dtype) || (param && (param->is_buffer || !param->unit))) return v;
    Module *from = param ? param->unit->module : v->def ? op_unit(v->def) : NULL;
    while (from && !module_within(to, from)) {
        const UnitPolicy *p = from->unit->policy;
        if (p->has_output_dtype && !param) v = cast_at(c, v, p->output_dtype, from);
        from = outer_unit(from);
    }
    return enter(c, v, to, from);
}

static bool holds(Dtype wide, Dtype narrow) { /* every value of `narrow` is one of `wide` */
    return wide == narrow || wide == FP64 || (wide == FP32 && dtype_size(narrow) <= 2);
}

static bool takes_dtype(Value *v) {
    const Op *def = value_root(v)->def;
    return def && def->number;
}

/* A number or a cast of integers, or its expansion. */
static void set_dtype(Graph *g, Value *v, Dtype d) {
    Op *made = value_root(v)->def;
    made->i[0] = d;
    op_info[made->kind].infer(g, made);
    if (v->def != made) op_info[v->def->kind].infer(g, v->def);
}

/* Mixed arithmetic is done in the widest dtype of its tensors; bf16 and fp16 meet in fp32. */
static void promote(Ctx *c, Op *op) {
    bool mixes = op_is(op, T_POINTWISE) || (op_is(op, T_STRIDED) && op->nin > 1);
    Dtype d = N_DTYPES;
    if (!mixes) return;
    for (int k = 0; k < op->nin; k++) {
        Dtype e = op->in[k]->dtype;
        if (!dtype_float(e) || takes_dtype(op->in[k])) continue;
        d = d == N_DTYPES || holds(e, d) ? e : holds(d, e) ? d : FP32;
    }
    for (int k = 0; k < op->nin && d != N_DTYPES; k++) {
        if (takes_dtype(op->in[k]))
            set_dtype(c->g, op->in[k], d);
        else
            op->in[k] = cast_at(c, op->in[k], d, NULL);
    }
}

/* ── the pass ───────────────────────────────────────────────────────────────────────────────────────────────────── */
/* What units compute in is known by now: the trace's promotions are made anew, and a cast may have nothing to change.
 */
static Value *uncast(Value *v) {
    while (v->def && (v->def->promotes || op_changes_nothing(v->def))) v = v->def->in[0];
    return v;
}

static void visit(Ctx *c, Op *op) {
    if (op->promotes) return;
    for (int k = 0; k < op->nin; k++) op->in[k] = uncast(op->in[k]);
    c->user = op;
    c->b.src = op->src;
    c->b.call = op->call;
    c->b.k = 0;
    Module *unit = op_unit(op);
    for (int k = 0; k < op->nin; k++) /* what is written in place stays itself */
        if (!op_updates(op, k)) op->in[k] = cross(c, op->in[k], unit);
    if (op->like) op->i[0] = cross(c, uncast(op->like), unit)->dtype;
    op->like = NULL;
    promote(c, op);
    if (op_info[op->kind].infer) op_info[op->kind].infer(c->g, op);
    if (op_changes_nothing(op)) return;
    push(&c->b.p->ops, c->g->arena, op);
}

/* The loss leaves every unit, as one fp32 number (fp64 in the test build). */
static void loss(Ctx *c, Program *p) {
    Value *v = uncast(p->loss);
    Op *def = v->def;
    Source src = def ? def->src : NOWHERE;
    if (value_numel(v) != 1)
        fail(src, "the loss is %s, and must be one number; reduce it with nn.mean or nn.sum",
             value_str(c->g->arena, v));
    if (!dtype_float(v->dtype))
        fail(src, "the loss is %s, and must be floating point; cast it to \"fp32\"", value_str(c->g->arena, v));
    p->loss = v;
    if (!def) return;
    c->user = def;
    c->letter = "s";
    c->b.src = src;
    c->b.call = def->call;
    c->b.k = 0;
    v = cross(c, v, NULL);
    if (v->dtype != FP64) v = cast_at(c, v, FP32, NULL);
    if (v->dims) {
        int next = c->g->next_op;
        c->b.module = def->module;
        v = build_reshape(&c->b, v, 0, NULL);
        name_inserted(c, v->def, def, next);
    }
    p->loss = v;
}

static void parameters(Graph *g) {
    for (int i = 0; i < g->params.n; i++) {
        Param *p = g->params.at[i];
        if (p->value && p->unit) p->value->dtype = p->is_buffer ? p->dtype : p->unit->wire;
    }
}

void precision(Graph *g, Program *p) {
    parameters(g);
    for (int i = 0; i < g->values.n; i++) g->values.at[i]->scratch = NULL;
    Program old = *p;
    memset(&p->ops, 0, sizeof p->ops);
    Ctx c = {.g = g, .b = {.g = g, .p = p, .phase = FORWARD}, .letter = "c"};
    for (int i = 0; i < old.ops.n; i++) visit(&c, old.ops.at[i]);
    if (p->logits) p->logits = uncast(p->logits);
    if (p->loss) loss(&c, p);
}
