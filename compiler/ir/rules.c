/* What the rule files share: results that may exist already, diagnostics with shapes, common checks, traffic.
 * Relies on: ir.h.
 * Relied on by: ir/rules_*.c. */
#include "rules.h"
#include "policy.h"

void rule_out(Graph *g, Op *op, Value **result, Dtype d, int dims, const int64_t *shape) {
    Value *v = *result;
    if (!v)
        op_set_result(op, result, value_new(g, d, dims, shape));
    else if (value_has_shape(v, dims, shape))
        v->dtype = d; /* a layout that a pass chose stays */
    else
        value_lay_out(v, d, dims, shape);
}

void rule_out_like(Graph *g, Op *op, Value **result, const Value *like) {
    rule_out(g, op, result, like->dtype, like->dims, like->shape);
}

void rule_view(Graph *g, Op *op, Value **result, Value *of, int dims, const int64_t *shape, const int64_t *stride,
               int64_t extra) {
    if (*result)
        value_lay_view(*result, of, dims, shape, stride, extra);
    else
        op_set_result(op, result, value_new_view(g, of, dims, shape, stride, extra));
}

/* ── diagnostics ─────────────────────────────────────────────────────────────────────────────────────────────────── */
const char *rule_source_str(Arena *a, Source s) {
    return s.file ? arena_printf(a, "%s:%d", s.file, s.line) : "an unknown place";
}

/* When units are known: which dtype a module's unit computes in, and who says so. */
static const char *unit_str(Arena *a, const Module *m) {
    while (m && !m->unit) m = m->parent;
    if (!m) return "";
    const UnitPolicy *p = m->unit->policy;
    Source at = setting_source(&p->settings, "param_dtype", p->src);
    return arena_printf(a, ", in the unit of %s, which computes in %s", rule_source_str(a, at),
                        dtype_name(m->unit->wire));
}

void rule_fail(Graph *g, const Op *op, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *message = arena_vprintf(g->arena, fmt, ap);
    va_end(ap);
    Str s = {.arena = g->arena};
    str_addf(&s, "%s: %s", op_info[op->kind].name, message);
    bool told = false; /* of the unit */
    for (int i = 0; i < op->nin; i++) {
        const Param *p = op->in[i] ? value_root(op->in[i])->param : NULL;
        if (!p) continue;
        told = true;
        str_addf(&s, "\n  %s %s%s is %s, made at %s%s", p->is_buffer ? "buffer" : "parameter", dtype_name(p->dtype),
                 value_shape_str(g->arena, p->dims, p->shape), p->path, rule_source_str(g->arena, p->src),
                 unit_str(g->arena, p->owner));
    }
    if (op->module && op->module->path && *op->module->path)
        str_addf(&s, "\n  in %s = %s, made at %s%s", op->module->path, op->module->kind,
                 rule_source_str(g->arena, op->module->made), told ? "" : unit_str(g->arena, op->module));
    fail(op->src, "%s", s.s);
}

void rule_need_float(Graph *g, const Op *op, const Value *v, const char *letter) {
    if (rule_is_fp8(v->dtype))
        rule_fail(g, op, "%s %s: nothing is computed in fp8 yet; cast it to \"bf16\" first", letter,
                  value_str(g->arena, v));
    if (!dtype_float(v->dtype))
        rule_fail(g, op, "%s %s must be floating point; cast it to \"fp32\" first", letter, value_str(g->arena, v));
}

void rule_need_int32(Graph *g, const Op *op, const Value *v, const char *what) {
    if (v->dtype != INT32)
        rule_fail(g, op, "%s %s must be int32; declare it as nn.input(\"int32\", ...) or cast it", what,
                  value_str(g->arena, v));
}

/* Before units have their policies, the model's own dtypes differ; afterwards only the policies can differ. */
void rule_need_same_dtype(Graph *g, const Op *op, const Value *a, const char *na, const Value *b, const char *nb) {
    if (a->dtype == b->dtype) return;
    const Module *m = op->module;
    while (m && !m->unit) m = m->parent;
    rule_fail(
        g, op, "%s %s and %s %s must have one dtype: %s ≠ %s; %s", na, value_str(g->arena, a), nb,
        value_str(g->arena, b), dtype_name(a->dtype), dtype_name(b->dtype),
        m ? "give their units one mp_policy.param_dtype, or cast what enters: output_dtype in the unit that makes "
            "it, or nn.cast(a, b)"
          : "nn.cast(a, b) gives one the dtype of the other");
}

/* ── shapes and dtypes ───────────────────────────────────────────────────────────────────────────────────────────── */
Dtype rule_stat_dtype(Dtype d) {
    return d == FP64 ? FP64 : FP32;
}

Dtype rule_wider(int64_t wider, Dtype otherwise) {
    return wider > 0 ? (Dtype)(wider - 1) : otherwise;
}

int64_t rule_rows(const Value *v) {
    return v->dims ? value_numel(v) / v->shape[v->dims - 1] : 1;
}

/* dx is laid out as x. */
void infer_gradient(Graph *g, Op *op) {
    rule_out_like(g, op, &RESULT_OF(op, dx), OPERAND_OF(op, x));
}

/* ── cost ────────────────────────────────────────────────────────────────────────────────────────────────────────── */
double rule_touched_bytes(const Value *v) {
    double n = dtype_size(v->dtype);
    for (int i = 0; i < v->dims; i++)
        if (v->stride[i]) n *= (double)v->shape[i];
    return n;
}

Cost rule_traffic(const Op *op, double flops) {
    Cost c = {.flops = flops};
    for (int i = 0; i < op->nin; i++)
        if (op->in[i]) c.bytes += rule_touched_bytes(op->in[i]);
    for (int i = 0; i < op->nout; i++) c.bytes += rule_touched_bytes(op->out[i]);
    return c;
}

/* The elements of the largest operand or result. */
static double largest_numel(const Op *op) {
    int64_t n = 0;
    for (int i = 0; i < op->nin; i++)
        if (op->in[i]) n = max64(n, value_numel(op->in[i]));
    for (int i = 0; i < op->nout; i++) n = max64(n, value_numel(op->out[i]));
    return (double)n;
}

Cost cost_none(const Op *op) {
    return (Cost){0};
}
Cost cost_pointwise(const Op *op) {
    return rule_traffic(op, largest_numel(op));
}
Cost cost_norm(const Op *op) {
    return rule_traffic(op, 8 * largest_numel(op)); /* mean, variance, scale, shift */
}

/* Only what leaves the group travels; inside it values stay in registers. */
Cost cost_fused(const Op *op) {
    double flops = 0;
    for (int i = 0; i < op->nbody; i++) flops += (double)value_numel(op_result(op->body[i]));
    return rule_traffic(op, flops);
}

/* Fills and copies; those without a result write the state that is their operand. */
Cost cost_copy(const Op *op) {
    if (op->nout) return rule_traffic(op, 0);
    if (op->kind == OP_store) return (Cost){.bytes = 2 * rule_touched_bytes(op->store.value)};
    double bytes = rule_touched_bytes(op_operand(op)); /* or the rank's slice, of which a parameter has a part */
    if (op->kind == OP_init_param) {
        double own = (double)op->init_param.numel * dtype_size(op->init_param.state->dtype);
        bytes = own < bytes ? own : bytes;
    }
    return (Cost){.bytes = bytes * op->nin};
}
