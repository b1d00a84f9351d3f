/* What compiler and runtime call things: element types, streams, what a matmul does with its sums; and how much an
 * event can hold. Each stands here alone. Relies on: nothing. Relied on by: compiler/ir/ir.h, sc.h. */
#ifndef SC_SCHEMA_TYPES_H
#define SC_SCHEMA_TYPES_H

/* X(ID, name, bytes an element, name in safetensors, it is a float) */
#define SC_DTYPES(X)                                                                                                   \
    X(FP32, "fp32", 4, "F32", 1)                                                                                       \
    X(BF16, "bf16", 2, "BF16", 1)                                                                                      \
    X(FP16, "fp16", 2, "F16", 1)                                                                                       \
    X(FP64, "fp64", 8, "F64", 1)                                                                                       \
    X(FP8_E4M3, "fp8_e4m3", 1, "F8_E4M3", 1)                                                                           \
    X(FP8_E5M2, "fp8_e5m2", 1, "F8_E5M2", 1)                                                                           \
    X(INT32, "int32", 4, "I32", 0)                                                                                     \
    X(INT64, "int64", 8, "I64", 0)                                                                                     \
    X(BOOL, "bool", 1, "BOOL", 0)
#define SC_ID(ID, ...) ID,
typedef enum { SC_DTYPES(SC_ID) N_DTYPES } sc_dtype;

/* X(ID, name) */
#define SC_STREAM_LIST(X)                                                                                              \
    X(COMPUTE, "compute")                                                                                              \
    X(GATHER, "gather")                                                                                                \
    X(REDUCE, "reduce")                                                                                                \
    X(OFFLOAD, "offload")                                                                                              \
    X(FETCH, "fetch")                                                                                                  \
    X(HOST, "host")                                                                                                    \
    X(UPDATE, "update")
typedef enum { SC_STREAM_LIST(SC_ID) SC_STREAMS } sc_stream;
#define SC_STREAM_NAME(ID, NAME) NAME,
#define SC_STREAM_NAMES                                                                                                \
    { SC_STREAM_LIST(SC_STREAM_NAME) }

/* The function that a matmul applies to its sums (attribute i4 in ops.def), with further operands x and x2:
 * gelu_tanh, and the sum as a second result · times gelu_tanh's derivative at x · gelu_tanh · silu(x) times the sum,
 * and the sum as a second result · that without the sum · both results of silu_mul_grad, the sum being its g and x, x2
 * its gate and up. */
typedef enum { SC_IDENTITY, SC_GELU_TOO, SC_GELU_GRAD, SC_GELU, SC_GATED_TOO, SC_GATED, SC_GATE_GRADS } sc_epilogue;

/* Most dimensions of a tensor, operands (and results) of an op, numbers among an op's attributes. */
enum { SC_DIMS = 6, SC_OPERANDS = 16, SC_TENSORS = 2 * SC_OPERANDS + 1, SC_INTS = 12, SC_FLOATS = 6 };

#endif
