/* precision: where values change dtype. Parameters take their unit's wire dtype; float values that enter a unit are
 * cast to its param_dtype, values that leave it to its output_dtype (FSDP2's mp_policy): a module's arguments and
 * results, where the trace has marked them (Note.crossed). Mixed dtypes at one op are promoted. Relies on: units
 * (Param.unit, Module.unit), the front end's op order and Op.call (-1: outside every module call). Relied on by:
 * autodiff, which differentiates the casts like any other op; recompute. */
#include "../ir/build.h"
#include "../ir/notes.h"
#include "../ir/policy.h"
#include "lower.h"
#include "lowering.h"

typedef struct Made Made;
struct Made { /* a cast of a value that exists already */
    const Module *at;
    Dtype to;
    Value *out;
    Made *next;
};

typedef struct {
    Graph *g;
    const Notes *notes; /* the trace's */
    Builder b;
    VEC(Made *) made; /* by Value.id, as far as any was made */
    Op *user;         /* the op that is being worked on; names of inserted ops derive from it */
} Ctx;

static bool is_unit(const Module *m) {
    return m->unit && m->unit->module == m;
}

Module *lower_unit_module(Module *m) {
    while (m && !is_unit(m)) m = m->parent;
    return m;
}

static Module *outer_unit(const Module *m) {
    return lower_unit_module(m->parent);
}

static Module *op_unit(const Op *op) {
    return op->call < 0 ? NULL : lower_unit_module(op->module);
}

/* ── casts ──────────────────────────────────────────────────────────────────────────────────────────────────────── */
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
    while (c->made.n <= v->id) push(&c->made, c->g->arena, NULL);
    for (Made *m = c->made.at[v->id]; m; m = m->next)
        if (m->at == at && m->to == to) return m->out;
    c->b.module = at ? at : c->user->module;
    Made *m = NEW(c->g->arena, Made);
    *m = (Made){at, to, build_cast(&c->b, v, to), c->made.at[v->id]};
    lower_join_region(m->out->def, region_of_cast(c, v, at));
    c->made.at[v->id] = m;
    return m->out;
}

/* What the trace put between a value and its users, and precision takes out: borders, its promotions, and casts that
 * have nothing to change now that dtypes are known. */
static bool passes_on(const Ctx *c, const Value *v) {
    const Note *n = note_taken(c->notes, v);
    return v->def && (n->crossed || n->promotes || op_changes_nothing(v->def));
}

static Value *origin(const Ctx *c, Value *v) {
    while (passes_on(c, v)) v = op_operand(v->def);
    return v;
}

static Value *into(Ctx *c, Value *v, Module *unit) {
    const UnitPolicy *p = unit->unit->policy;
    return p->has_param_dtype && p->cast_forward_inputs ? cast_at(c, v, p->param_dtype, unit) : v;
}

static Value *out_of(Ctx *c, Value *v, Module *unit) {
    const UnitPolicy *p = unit->unit->policy;
    return p->has_output_dtype ? cast_at(c, v, p->output_dtype, unit) : v;
}

/* v, cast at each border that it crossed on its way. What a function reads without being given it has crossed none. */
static Value *cross(Ctx *c, Value *v) {
    const Note *n = note_taken(c->notes, v);
    if (!passes_on(c, v)) return v;
    v = cross(c, op_operand(v->def));
    if (!n->crossed) return v;
    return n->leaves ? out_of(c, v, n->crossed) : into(c, v, n->crossed);
}

/* A parameter that several units hold belongs to one round them, and is cast where it is used. */
static Value *enter_param(Ctx *c, Value *v, Module *to, const Module *owner) {
    return to == owner ? v : into(c, enter_param(c, v, outer_unit(to), owner), to);
}

static Value *operand(Ctx *c, Value *v, Module *to) {
    v = cross(c, v);
    const Param *p = value_root(v)->param;
    if (!p || p->is_buffer || !p->unit) return v;
    Module *from = p->unit->module;
    while (from && !module_within(to, from)) from = outer_unit(from);
    return enter_param(c, v, to, from);
}

static bool holds(Dtype wide, Dtype narrow) { /* every value of `narrow` is one of `wide` */
    return wide == narrow || wide == FP64 || (wide == FP32 && dtype_size(narrow) <= 2);
}

static bool takes_dtype(const Ctx *c, const Value *v) {
    return note_taken(c->notes, value_root(v))->number;
}

/* A number or a cast of integers, or its expansion. */
static void set_dtype(Graph *g, Value *v, Dtype d) {
    Op *made = value_root(v)->def;
    made->cast.dtype = d; /* a full has its own there too */
    op_info[made->kind].infer(g, made);
    if (v->def != made) op_info[v->def->kind].infer(g, v->def);
}

/* The widest dtype of the operands; bf16 and fp16 meet in fp32. N_DTYPES: none is a tensor of floats. */
static Dtype widest(const Ctx *c, const Op *op, bool weak) {
    Dtype d = N_DTYPES;
    for (int k = 0; k < op->nin; k++) {
        const Value *v = op->in[k];
        Dtype e = v->dtype;
        if (!dtype_float(e) || takes_dtype(c, v) || (!weak && note_taken(c->notes, v)->weak)) continue;
        d = d == N_DTYPES || holds(e, d) ? e : holds(d, e) ? d : FP32;
    }
    return d;
}

/* Mixed arithmetic is done in the widest dtype of its tensors; those without dims count where no other does. */
static void promote(Ctx *c, Op *op) {
    bool mixes = op_is(op, T_POINTWISE) || (op_is(op, T_STRIDED) && op->nin > 1);
    if (!mixes) return;
    Dtype d = widest(c, op, false);
    if (d == N_DTYPES) d = widest(c, op, true);
    for (int k = 0; k < op->nin && d != N_DTYPES; k++) {
        if (takes_dtype(c, op->in[k]))
            set_dtype(c->g, op->in[k], d);
        else
            op->in[k] = cast_at(c, op->in[k], d, NULL);
    }
}

/* ── the pass ───────────────────────────────────────────────────────────────────────────────────────────────────── */
/* What a cast laid out anew was a view's operand; without the cast it may lie otherwise. */
static void lay_out(Ctx *c, Op *op) {
    if (!op_needs_copy(op)) return;
    c->b.module = op->module;
    op->reshape.a = build_one(&c->b, OP_copy, op->reshape.a);
    lower_join_region(op->reshape.a->def, op);
}

static void visit(Ctx *c, Op *op) {
    const Note *n = op->nout ? note_taken(c->notes, op_result(op)) : NULL;
    if (n && (n->promotes || n->crossed)) return;
    c->user = op;
    build_for(&c->b, op, "c");
    Module *unit = op_unit(op);
    for (int k = 0; k < op->nin; k++) /* what is written in place stays itself */
        if (op->in[k]) op->in[k] = op_updates(op, k) ? origin(c, op->in[k]) : operand(c, op->in[k], unit);
    if (n && n->like) op->cast.dtype = operand(c, n->like, unit)->dtype;
    lay_out(c, op);
    promote(c, op);
    if (op_info[op->kind].infer) op_info[op->kind].infer(c->g, op);
    if (op_changes_nothing(op)) return;
    push(&c->b.p->ops, c->g->arena, op);
}

/* A result of the program, made by `def`, with what casts it at the borders that it crossed. */
static Value *result(Ctx *c, Value *v, Op *def) {
    if (!def) return origin(c, v);
    c->user = def;
    build_for(&c->b, def, "s");
    return cross(c, v);
}

/* The loss leaves every unit, as one fp32 number (fp64 in the test build). */
static void loss(Ctx *c, Program *p) {
    Value *v = origin(c, p->loss);
    Op *def = v->def;
    Source src = def ? def->src : NOWHERE;
    if (value_numel(v) != 1)
        fail(src, "the loss is %s, and must be one number; reduce it with nn.mean or nn.sum",
             value_str(c->g->arena, v));
    if (!dtype_float(v->dtype))
        fail(src, "the loss is %s, and must be floating point; cast it to \"fp32\"", value_str(c->g->arena, v));
    p->loss = v = result(c, p->loss, def);
    if (!def) return;
    if (v->dtype != FP64) v = cast_at(c, v, FP32, NULL);
    if (v->dims) {
        c->b.module = def->module;
        v = build_reshape(&c->b, v, 0, NULL);
        lower_join_region(v->def, def);
    }
    p->loss = v;
}

static void parameters(Graph *g) {
    for (int i = 0; i < g->params.n; i++) {
        Param *p = g->params.at[i];
        if (p->value && p->unit) p->value->dtype = p->is_buffer ? p->dtype : p->unit->wire;
    }
}

void lower_precision(Graph *g, Program *p) {
    parameters(g);
    Program old = *p;
    memset(&p->ops, 0, sizeof p->ops);
    Ctx c = {.g = g, .notes = p->notes, .b = {.g = g, .p = p, .phase = FORWARD}};
    for (int i = 0; i < old.ops.n; i++) visit(&c, old.ops.at[i]);
    if (p->logits) p->logits = result(&c, p->logits, origin(&c, p->logits)->def);
    if (p->loss) loss(&c, p);
    p->notes = NULL;
}
