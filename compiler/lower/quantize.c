/* Quantize: linears, and products of routed experts, of units with matmul_dtype = "fp8" multiply in 8 bits. x and W
 * become e4m3 beside their scales: one a tensor, by the largest magnitude there is now (torchao calls it tensorwise,
 * Transformer Engine current scaling) or that of steps before, or one a block (DeepSeek-V3), of 128 of x and of 128 x
 * 128 of W. The rule of matmul does the rest for gradients. Relies on: units, precision, qkv_fusion (which looks for
 * products of parameters). Relied on by: autodiff (T_QUANTIZES). */
#include "../ir/amax_history.h"
#include "../ir/build.h"
#include "../ir/policy.h"
#include "../ir/training.h"
#include "lower.h"
#include "lowering.h"

/* GRAIN: what fp8 kernels of GPUs ask of sizes. LEAST: a product with a narrower side, such as that of an adapter,
 * takes no time, and would lose accuracy. */
enum { GRAIN = 16, LEAST = 64 };

typedef struct Copy Copy;
struct Copy { /* a value in 8 bits, made before */
    Op *made;
    int region;
    bool blocks, square;
    const Value *counts; /* of rows by group: others are nobody's; NULL: all count */
    Copy *next;
};

typedef struct { /* of what its counts take of a value */
    AmaxSite at;
    const Value *counts;
} Found;

typedef struct {
    Graph *g;
    Builder b;
    bool trains;
    Found *amax;   /* by Value.id, */
    Copy **copies; /* as are these */
} Quantize;

static const UnitPolicy *policy_of(const Op *op) {
    const Module *unit = op->call < 0 ? NULL : lower_unit_module(op->module);
    return unit ? unit->unit->policy : NULL;
}

static bool wide_enough(int64_t n) {
    return n >= LEAST && n % GRAIN == 0;
}

/* The linears of an nn.MoE itself score tokens for experts: what they round changes where tokens go. */
static bool routes(const Op *op) {
    const Module *parent = op->module->parent;
    return parent && parent->kind && !strcmp(parent->kind, "MoE");
}

static bool grouped(const Op *op) { /* before autodiff these are no gradients */
    return op_is(op, T_GROUPED);
}

/* The parameter that op multiplies x by, where it is one of x W, x Wᵀ, or each row by the matrix of its group, that the
 * unit wants in 8 bits; else NULL. */
static const Param *weight_of(const Op *op) {
    const UnitPolicy *policy = policy_of(op);
    bool experts = grouped(op), product = op_is(op, T_PRODUCT) && !routes(op);
    if (!policy || (!experts && !product)) return NULL;
    if ((experts ? policy->matmul_expert : policy->matmul) != MATMUL_FP8) return NULL;
    const Value *x = OPERAND_OF(op, a), *w = OPERAND_OF(op, b);
    const Param *p = value_root(w)->param;
    bool linear = p && !p->is_buffer && w->dims == (experts ? 3 : 2) && value_contiguous(w);
    if (!linear || (product && INT_OF(op, trans_a))) return NULL;
    bool known = dtype_float(x->dtype) && x->dtype != FP64 && dtype_size(x->dtype) > 1;
    return known && wide_enough(w->shape[w->dims - 2]) && wide_enough(w->shape[w->dims - 1]) ? p : NULL;
}

/* Where the largest magnitude of v stands: found now, or that of steps before. Training has a history; a loss that is
 * validated takes tensors as they are. So are parameters always: where they are gathered in 8 bits, every rank has the
 * magnitudes of the new ones when a step ends (shard/narrow.c). */
static AmaxSite amax_of(Quantize *c, Value *v, const Op *user, Value *counts) {
    Found *f = &c->amax[v->id];
    if (f->at.amax && f->counts == counts) return f->at;
    *f = (Found){.counts = counts};
    if (c->trains && policy_of(user)->recipe == RECIPE_DELAYED && !value_root(v)->param) {
        f->at = amax_history_site(c->g);
    } else {
        f->at.amax = BUILD(&c->b, absmax, .x = v, .counts = counts)->absmax.y;
        /* of a parameter it is kept, not made again */
        lower_join_region(f->at.amax->def, value_root(v)->param ? NULL : user);
    }
    return f->at;
}

/* v in e4m3: as it lies, or turned; both: its transpose, too. square: a parameter, whose blocks are squares. */
static const Op *copy_of(Quantize *c, Value *v, const Op *user, bool turn, bool both, bool square) {
    bool blocks = policy_of(user)->recipe == RECIPE_BLOCK, rows = grouped(user) && !square;
    Value *counts = rows ? OPERAND_OF(user, counts) : NULL;
    Copy *k = c->copies[v->id];
    while (k && (k->region != user->region || k->blocks != blocks || INT_OF(k->made, turn) != turn ||
                 k->square != square || k->counts != counts))
        k = k->next;
    if (!k) {
        k = NEW(c->g->arena, Copy);
        AmaxSite none = {NULL, NULL}, site = blocks ? none : amax_of(c, v, user, counts);
        Op *made = blocks ? BUILD(&c->b, quantize_blocks, .x = v, .square = square, .turn = turn)
                          : BUILD(&c->b, quantize, .x = v, .amax = site.amax, .seen = site.seen, .counts = counts,
                                  .dtype = FP8_E4M3, .turn = turn);
        lower_join_region(made, user);
        *k = (Copy){made, user->region, blocks, square, counts, c->copies[v->id]};
        c->copies[v->id] = k;
    }
    if (both && !INT_OF(k->made, both)) {
        INT_OF(k->made, both) = true;
        op_info[k->made->kind].infer(c->g, k->made);
    }
    return k->made;
}

/* A parameter that no rank gathers is quantized once for both directions; of one that is gathered again for the
 * backward no copy is kept. */
static bool kept_for_backward(const Op *op, bool trains) {
    const UnitPolicy *p = policy_of(op);
    const Module *unit = lower_unit_module(op->module);
    return trains && unit->unit->shard->size == 1 && !p->offload_params;
}

static void multiply_in_8_bits(Quantize *c, Op *op, bool trains) {
    Value **x = &OPERAND_OF(op, a), **w = &OPERAND_OF(op, b);
    build_for(&c->b, op, "q");
    c->b.phase = op->phase;
    const Op *a = copy_of(c, *x, op, false, trains, false);
    bool across = !INT_OF(op, trans_b), kept = kept_for_backward(op, trains);
    const Op *b = copy_of(c, *w, op, across && !kept, kept, true);
    bool other = across && kept; /* of two copies */
    INT_OF(op, dtype) = 1 + (int64_t)RESULT_OF(op, y)->dtype;
    INT_OF(op, trans_b) = true;
    if (!grouped(op)) INT_OF(op, square_b) = policy_of(op)->recipe == RECIPE_BLOCK;
    INT_OF(op, grad_e4m3) = policy_of(op)->matmul_grad == FP8_E4M3;
    INT_OF(op, grad_delayed) = policy_of(op)->recipe == RECIPE_DELAYED;
    *x = RESULT_OF(a, y);
    *w = other ? RESULT_OF(b, turned) : RESULT_OF(b, y);
    op_set(op, SLOT_OF(op, scale_a), RESULT_OF(a, scale));
    op_set(op, SLOT_OF(op, scale_b),
           other && policy_of(op)->recipe == RECIPE_BLOCK ? RESULT_OF(b, turned_scale) : RESULT_OF(b, scale));
    op_info[op->kind].infer(c->g, op);
}

static int64_t rows_of(const Op *op) {
    const Value *x = OPERAND_OF(op, a);
    return value_numel(x) / x->shape[x->dims - 1];
}

/* The first unit that asks for fp8; NULL. */
static const UnitPolicy *asks(const Graph *g) {
    for (int i = 0; i < g->units.n; i++) {
        const UnitPolicy *p = g->units.at[i]->policy;
        if (p && (p->matmul == MATMUL_FP8 || p->matmul_expert == MATMUL_FP8)) return p;
    }
    return NULL;
}

/* The option by which a unit does. */
static const char *option_of(const UnitPolicy *p) {
    return p->matmul == MATMUL_FP8 ? "matmul_dtype" : "matmul_expert_dtype";
}

/* A unit asks for fp8, or for a recipe of it, and no product of the program is one that can have it. few: one that has
 * a number of rows that does not fit, or NULL. */
static void check_any(const Graph *g, const Op *few) {
    const UnitPolicy *p = few ? policy_of(few) : asks(g);
    for (int i = 0; i < g->units.n && !p; i++) {
        const UnitPolicy *u = g->units.at[i]->policy;
        if (u && u->recipe != RECIPE_TENSOR)
            fail(setting_source(&u->settings, "recipe", u->src),
                 "recipe = \"%s\": no unit multiplies in fp8; add matmul_dtype = \"fp8\" (--set matmul=fp8 in shardc's "
                 "models), or leave recipe out",
                 u->recipe == RECIPE_BLOCK ? "block" : "delayed");
    }
    if (!p) return;
    Source at = setting_source(&p->settings, option_of(p), p->src);
    if (few)
        fail(few->src,
             "%s: its unit multiplies in fp8 (%s, at %s:%d), which takes rows in multiples of %d, and at least %d, and "
             "its input has %lld; change the batch or the sequence, or leave %s out",
             few->module->path, option_of(p), at.file, at.line, GRAIN, LEAST, (long long)rows_of(few), option_of(p));
    fail(at,
         "%s = \"fp8\": no linear or routed expert of its units can multiply in fp8: inputs and outputs must be "
         "multiples of %d, and at least %d, and weights no int8; leave it out, or change the model's sizes",
         option_of(p), GRAIN, LEAST);
}

void lower_quantize(Graph *g, Program *p) {
    Quantize c = {.g = g, .b = {.g = g, .p = p, .phase = FORWARD}, .trains = p == g->train};
    c.amax = NEW_ARRAY(g->arena, Found, g->values.n + 1);
    c.copies = NEW_ARRAY(g->arena, Copy *, g->values.n + 1);
    const Op *few = NULL;
    bool any = false;
    Program old = *p;
    memset(&p->ops, 0, sizeof p->ops);
    for (int i = 0; i < old.ops.n; i++) {
        Op *op = old.ops.at[i];
        const Param *w = weight_of(op);
        if (w && wide_enough(rows_of(op))) { /* the gradient of a weight sums over rows */
            multiply_in_8_bits(&c, op, c.trains && w->requires_grad);
            any = true;
        } else if (w && !few) {
            few = op;
        }
        push(&p->ops, g->arena, op);
    }
    if (!any && c.trains) check_any(g, few);
}

/* One scale a tensor is what tensor cores multiply from compute capability 8.9 on. Of finer recipes, cuBLASLt has fp32
 * scales of 1x128 and 128x128 blocks on 9.0 alone; 10.0 (B200) has MXFP8 instead, a power of two for 32 elements
 * (cuBLAS, "Narrow Precision Data Types Usage"). The CPU emulates. */
void lower_quantize_check(const Graph *g, const Device *d, const char *arch) {
    const UnitPolicy *p = asks(g);
    int capability = device_capability(arch);
    if (!p) return;
    Source at = setting_source(&p->settings, option_of(p), p->src);
    if (capability && capability < FP8_CAPABILITY)
        fail(at,
             "%s = \"fp8\": %s (compute capability %d.%d) has no products in fp8, which begin with %d.%d; leave it out "
             "(--set matmul=plain in shardc's models), or give a --device that has them, as l40s, h100 or b200; "
             "--target cpu emulates them",
             option_of(p), d->name, capability / 10, capability % 10, FP8_CAPABILITY / 10, FP8_CAPABILITY % 10);
    for (int i = 0; i < g->units.n && capability != BLOCKS_CAPABILITY; i++) {
        const UnitPolicy *u = g->units.at[i]->policy;
        if (u && u->matmul == MATMUL_FP8 && u->recipe == RECIPE_BLOCK)
            fail(
                setting_source(&u->settings, "recipe", u->src),
                "recipe = \"block\": %s has no products with scales of blocks, which GPUs of compute capability 9.0 "
                "have; leave it out (--set recipe=tensor in shardc's models), or give another --device; the CPU target "
                "emulates them",
                d->name);
    }
    if (d->flops[FP8_E4M3] <= 0)
        fail(at,
             "%s = \"fp8\": the profile of %s does not say how fast products in fp8 are; add fp8_e4m3 to its `flops`, "
             "in FLOP/s, make it again with shardc calibrate, or leave it out",
             option_of(p), d->name);
}
