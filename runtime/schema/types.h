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
    X(BOOL, "bool", 1, "BOOL", 0)                                                                                      \
    X(INT8, "int8", 1, "I8", 0) /* of stored parameters alone */
#define SC_ID(ID, ...) ID,
typedef enum { SC_DTYPES(SC_ID) N_DTYPES } sc_dtype;
#define SC_DTYPE_NAME(ID, NAME, ...) NAME,
#define SC_DTYPE_SIZE(ID, NAME, BYTES, ...) BYTES,
#define SC_DTYPE_ST(ID, NAME, BYTES, ST, ...) ST,
#define SC_DTYPE_NAMES                                                                                                 \
    { SC_DTYPES(SC_DTYPE_NAME) }
#define SC_DTYPE_SIZES                                                                                                 \
    { SC_DTYPES(SC_DTYPE_SIZE) }
#define SC_DTYPE_STS                                                                                                   \
    { SC_DTYPES(SC_DTYPE_ST) }

/* X(ID, name) */
#define SC_STREAM_LIST(X)                                                                                              \
    X(COMPUTE, "compute")                                                                                              \
    X(GATHER, "gather")                                                                                                \
    X(REDUCE, "reduce")                                                                                                \
    X(OFFLOAD, "offload")                                                                                              \
    X(FETCH, "fetch")                                                                                                  \
    X(HOST, "host")                                                                                                    \
    X(UPDATE, "update")                                                                                                \
    X(EXCHANGE, "exchange")
typedef enum { SC_STREAM_LIST(SC_ID) SC_STREAMS } sc_stream;
/* Collectives run on these streams. */
static inline int sc_stream_meets(sc_stream s) {
    return s == GATHER || s == REDUCE || s == EXCHANGE;
}
#define SC_STREAM_NAME(ID, NAME) NAME,
#define SC_STREAM_NAMES                                                                                                \
    { SC_STREAM_LIST(SC_STREAM_NAME) }

/* What a matmul makes of its sums s: flags. GELU: y = gelu_tanh(s). GATED: y = silu(gate) s. With TOO also aux = s.
 * With GRADIENT the gradient of that: of GELU y = s times gelu_tanh's derivative at x; of GATED y and aux are the two
 * results of silu_mul_grad of g = s, gate and up. With TOO gelu is taken of aux as it is stored; what is GATED is s as
 * if it had been stored. A bias and c are added first, where they are there. */
#define SC_EPILOGUES(X) X(SC_GELU) X(SC_GATED) X(SC_TOO) X(SC_GRADIENT)
#define SC_BIT_OF(ID) ID##_BIT,
#define SC_FLAG_OF(ID) ID = 1 << ID##_BIT,
enum { SC_EPILOGUES(SC_BIT_OF) };
typedef enum { SC_EPILOGUES(SC_FLAG_OF) } sc_epilogue;
#define SC_HAS(f, flags) (((f) & (flags)) == (flags))
enum { SC_SUMMED_ROWS = 128 }; /* of the partial sums that quantize makes of columns */

/* How a parameter begins. */
#define SC_INITS(X) X(SC_ZEROS) X(SC_ONES) X(SC_CONSTANT) X(SC_NORMAL) X(SC_UNIFORM) X(SC_TRUNC_NORMAL)
typedef enum { SC_INITS(SC_ID) SC_N_INITS } sc_init;

/* X(ID, name in Lua): how the frequencies of rotary positions were made of theta. */
#define SC_ROPE_SCALINGS(X)                                                                                            \
    X(SC_LLAMA3, "llama3")                                                                                             \
    X(SC_LINEAR, "linear")                                                                                             \
    X(SC_DYNAMIC, "dynamic")                                                                                           \
    X(SC_YARN, "yarn")                                                                                                 \
    X(SC_LONGROPE, "longrope")                                                                                         \
    X(SC_PROPORTIONAL, "proportional")
typedef enum { SC_ROPE_SCALINGS(SC_ID) SC_N_ROPE_SCALINGS } sc_rope_scaling;

/* What distillation keeps of a row: the largest logit, and the sum of the powers of all beside it, of the student and
 * of its teacher; how far they are apart; the sum that cross_entropy calls `rest`; the row's loss. */
enum {
    SC_DISTILLED_MOST,
    SC_DISTILLED_SUM,
    SC_DISTILLED_TEACHER_MOST,
    SC_DISTILLED_TEACHER_SUM,
    SC_DISTILLED_APART,
    SC_DISTILLED_REST,
    SC_DISTILLED_LOSS,
    SC_DISTILLED
};

/* Most dimensions of a tensor, operands (and results) of an op, integers and floats among its attributes; pieces of a
 * split, wires of an extension, numbers of a custom op. */
enum { SC_DIMS = 6, SC_OPERANDS = 16, SC_TENSORS = 2 * SC_OPERANDS + 1, SC_INTS = 12, SC_FLOATS = 7 };
enum { SC_SPLITS = 10, SC_WIRES = 4, SC_NUMBERS = 5 };

#endif
