/* The rules that rows of ops.def name, and what the rule files share.
 * Relies on: build.h, schema/ops.def.
 * Relied on by: ir/ops.c and ir/rules_*.c alone. */
#ifndef SHARDC_RULES_H
#define SHARDC_RULES_H

#include "build.h"

/* Every name in the rule columns of ops.def. */
typedef void InferRule(Graph *g, Op *op);
typedef void GradRule(Builder *b, Op *op, OpParts *d);
typedef Cost CostRule(const Op *op);
typedef int64_t WorkRule(const Op *op, const Machine *m);
typedef int64_t LimitRule(const Op *op);
#define TRAITS(t)
#define INFER(f) InferRule f;
#define GRAD(f) GradRule f;
#define COST(f) CostRule f;
#define WORKSPACE(f) WorkRule f;
#define LIMIT(f) LimitRule f;
#define EXPR(text)
#define TIMED_AS(op)
#define OP(name, notation, results, operands, integers, floats, ...) __VA_ARGS__
#include "schema/ops.def"
/* An op has no infer rule where its shapes follow from the mesh or the flat layout: its builder sets the results. */

/* ── for rules ───────────────────────────────────────────────────────────────────────────────────────────────────── */
/* A result (&op->matmul.y) as a contiguous tensor, or as a view of `of`. One that exists already (infer run again) is
 * updated in place, so that its uses stay valid. */
void rule_out(Graph *g, Op *op, Value **result, Dtype d, int dims, const int64_t *shape);
void rule_out_like(Graph *g, Op *op, Value **result, const Value *like);
void rule_view(Graph *g, Op *op, Value **result, Value *of, int dims, const int64_t *shape, const int64_t *stride,
               int64_t extra);

/* "name: message", then a line for every operand that is a parameter, then one for the module. Exits. */
_Noreturn void rule_fail(Graph *g, const Op *op, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
const char *rule_source_str(Arena *a, Source s); /* "llama3.lua:22" */
void rule_need_float(Graph *g, const Op *op, const Value *v, const char *letter);
void rule_need_int32(Graph *g, const Op *op, const Value *v, const char *what);
void rule_need_same_dtype(Graph *g, const Op *op, const Value *a, const char *na, const Value *b, const char *nb);

/* Kernels convert it, and do not compute with it. */
static inline bool rule_is_stored(Dtype d) {
    return d == FP8_E4M3 || d == FP8_E5M2 || d == INT8;
}
static inline bool rule_is_fp8(Dtype d) {
    return d == FP8_E4M3 || d == FP8_E5M2;
}
Dtype rule_stat_dtype(Dtype d); /* what a kernel keeps statistics of such operands in: fp32, or fp64 for fp64 */
Dtype rule_wider(int64_t wider, Dtype otherwise); /* of a WIDER attribute: its dtype, where it names one */
/* x yᵀ in dtype d of 8 bits and their scales; square: y's are of squares (rules_blocks.c). */
Value *rule_scaled_product(Builder *b, Value *x, Value *scale_x, Value *y, Value *scale_y, bool square, Dtype d);
bool rule_is_turned(const Value *copy); /* of a matrix in 8 bits: it is the transpose */
/* The gradient of a matrix from those of its copies in 8 bits: of that which lies as it does, and of its transpose, or
 * NULL. */
Value *rule_grad_of_copies(Builder *b, Value *straight, Value *across);
/* Sets d->matmul.a, b, bias of a product of what quantize_blocks has made (rules_blocks.c). */
void rule_grad_by_blocks(Builder *b, const Op *op, OpParts *d);
/* As many of `rows` rows as the route expects to have a group that made `routed`, its counts or slots
 * (rules_experts.c). */
double rule_expected_rows(const Value *routed, double rows);
double rule_touched_bytes(const Value *v); /* distinct bytes behind a value: expanded dims count once */
Value *rule_zeros_like(Builder *b,
                       const Value *v);        /* of its dtype and shape: the gradient of a result that nobody used */
Cost rule_traffic(const Op *op, double flops); /* all operands read, all results written */
typedef struct {
    const Value *q, *k, *v, *bias, *documents, *sinks, *dlse; /* from bias on NULL where there are none */
    int64_t document_length;
    double scale, dropout, softcap;
    bool causal, hopper; /* hopper: a GPU of compute capability 9.0 computes it */
    int64_t left, right; /* keys before and after a query that it sees; -1: all */
} Attention;
Attention rule_attention(const Op *op); /* what attention and its gradients have */
/* CUDA, what computes it: our kernels for compute capability 9.0, where that is the GPU's (schema/attention.h); else
 * cuDNN, as cuda/attention_cudnn.h has it, of the backward where any order will do: in a fixed order it keeps the
 * square of the scores; else our kernels for any GPU. */
typedef enum { NO_ATTENTION, ATTENTION_HOPPER, ATTENTION_CUDNN, ATTENTION_PORTABLE, N_ATTENTION } AttentionKernel;
AttentionKernel rule_attention_kernel(const Op *op);
const char *rule_attention_words(AttentionKernel k);              /* "cuDNN"; "" of other ops */
void rule_assume_documents(Op *op, int64_t length);               /* of an attention: documents of so many tokens */
void rule_assume_kernels(Op *op, bool hopper, bool any_order);    /* of an attention: its hints of these names */
int64_t rule_document_length(const Op *op, const Value *operand); /* tokens of a document; 0: it numbers none */
int64_t rule_rows(const Value *v);                                /* product of all dims but the last */

#endif
