/* What kernels share: the cut into parts, rows of strided tensors, and chunks of elements in type `real`.
 * Relies on: schema/math.h, sc.h.
 * Relied on by: the kernels k_*.c.
 *
 * A kernel computes in `real`, a chunk of at most SC_CHUNK elements at a time. sc_in() hands out a chunk of any dtype:
 * the tensor's own memory where it holds reals, else converted into the caller's buffer; sc_out() and sc_put() do the
 * same for results. So the dtype is looked at once a chunk and every inner loop is over reals. Sums over a chunk run in
 * fixed vector lanes that are folded in a fixed order: the same bits on any machine and for any number of parts. */
#ifndef SC_KERNEL_H
#define SC_KERNEL_H

#include "../sc_kernels.h"
#include "../schema/math.h"
#include <string.h>

#ifdef SC_FP64
enum { SC_REAL = FP64 };
#else
enum { SC_REAL = FP32 };
#endif
enum { SC_CHUNK = 1024 };

/* Elementwise loops may run in place: element i of the result depends on element i of the operands only. */
#define SC_ELEMENTWISE _Pragma("GCC ivdep")

typedef struct {
    int64_t begin, end;
} sc_range;

static inline int64_t sc_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t sc_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static inline int64_t sc_ceil(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* This part's share of n things, cut at multiples of `grain`. */
static inline sc_range sc_share(const sc_task *task, int64_t n, int64_t grain) {
    int64_t grains = sc_ceil(n, grain);
    return (sc_range){sc_min(n, grains * task->part / task->parts * grain),
                      sc_min(n, grains * (task->part + 1) / task->parts * grain)};
}

/* NULL where an optional operand is absent. */
static inline const sc_tensor *sc_given(const sc_tensor *t) {
    return t->p ? t : NULL;
}
static inline void *sc_at(const sc_tensor *t, int64_t offset) {
    return (char *)t->p + offset * sc_size(t->dtype);
}

/* Last dimension's extent (1 for a scalar), the number of rows before it, and where a row begins. */
static inline int64_t sc_cols(const sc_tensor *t) {
    return t->dims ? t->shape[t->dims - 1] : 1;
}
static inline int64_t sc_rows(const sc_tensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->dims - 1; d++) n *= t->shape[d];
    return n;
}
static inline int64_t sc_row(const sc_tensor *t, int64_t row) {
    int64_t at = 0;
    for (int d = t->dims - 2; d >= 0; d--) {
        at += row % t->shape[d] * t->stride[d];
        row /= t->shape[d];
    }
    return at;
}

/* ── chunks (k_chunk.c) ──────────────────────────────────────────────────────────────────────────────────────────────
 */
void sc_load(real *to, const sc_tensor *t, int64_t at, int64_t stride, int64_t n);
void sc_store(const sc_tensor *t, int64_t at, int64_t stride, int64_t n, const real *from);
double sc_get(const sc_tensor *t, int64_t at); /* one element of a float tensor */
/* Gradients are not finite: the step leaves everything as it was. coefficient: clip_coefficient's; none, or one of one
 * element, skips nothing. */
static inline bool sc_skips(const sc_tensor *coefficient) {
    return coefficient->p && sc_numel(coefficient) > 1 && sc_get(coefficient, 1) != 0;
}
void sc_set(const sc_tensor *t, int64_t at, double x);
int64_t sc_index(const sc_tensor *t, int64_t at);     /* one element of an integer tensor */
uint64_t sc_order_at(const sc_tensor *t, int64_t at); /* of one element: sc_order_fp32 and so on; of floats or int32 */

static inline const real *sc_in(const sc_tensor *t, int64_t at, int64_t n, real *buffer) {
    if (t->dtype == SC_REAL) return (const real *)t->p + at;
    sc_load(buffer, t, at, 1, n);
    return buffer;
}
static inline real *sc_out(const sc_tensor *t, int64_t at, real *buffer) {
    return t->dtype == SC_REAL ? (real *)t->p + at : buffer;
}
static inline void sc_put(const sc_tensor *t, int64_t at, int64_t n, const real *buffer) {
    if (t->dtype != SC_REAL) sc_store(t, at, 1, n, buffer);
}

real sc_chunk_sum(const real *x, int64_t n);
real sc_chunk_dot(const real *x, const real *y, int64_t n);
real sc_chunk_deviation(const real *x, real mean, int64_t n);      /* Σ (x - mean)² */
real sc_chunk_max(const real *x, int64_t n);                       /* n > 0; a NaN wins */
real sc_chunk_exp(real *to, const real *x, real shift, int64_t n); /* to = exp(x - shift), in place or not; its sum */

/* Random words of elements [first, first + n) of stream `key` at (a, b): schema/philox.h. */
void sc_random(uint32_t *to, int64_t n, uint64_t key, uint32_t a, uint32_t b, uint64_t first);
#ifdef __AVX2__ /* n words of the blocks (c, a, b), (c + 1, a, b) .., n a multiple of 16 and, with AVX-512, of 32 */
void sc_philox_256(uint32_t *to, int64_t n, uint64_t c, uint32_t a, uint32_t b, uint32_t k0, uint32_t k1);
void sc_philox_512(uint32_t *to, int64_t n, uint64_t c, uint32_t a, uint32_t b, uint32_t k0, uint32_t k1);
#endif
/* Sine and cosine of angles (|x| < 1e9) in double, rounded to real. */
void sc_chunk_sincos(const double *angle, real *sine, real *cosine, int64_t n);

/* What a loss is divided by: `total`, where it is given, or a count of the record. */
static inline double sc_count(const sc_task *task, const sc_tensor *total, int64_t slot) {
    return total->p ? sc_get(total, 0) : (double)task->record->count[slot];
}

/* ── dropout: kept where the random word is at least p·2³², then scaled by 1/(1-p) ───────────────────────────────────
 */
typedef struct {
    uint64_t key;
    uint32_t step, threshold;
    real scale; /* 0 where everything is dropped */
} sc_dropping;
sc_dropping sc_dropping_of(const sc_task *task, double p, uint64_t key);
/* x[i] *= mask of element `first + i` of this rank's sample b. */
void sc_drop(const sc_dropping *d, const sc_task *task, int64_t b, uint64_t first, real *to, const real *x, int64_t n);

/* Copies this part's elements of `from` to its equal in shape and dtype, of any strides (k_copy.c). */
void sc_copy_view(const sc_task *task, const sc_tensor *to, const sc_tensor *from);

/* SC_FINISH(cross_entropy) { ... } defines a kernel's finish, sc_finish_cross_entropy, as SC_KERNEL does the kernel. */
#define SC_FINISH(name)                                                                                                \
    static void name##_finish(const sc_task *task, const sc_##name##_args *k);                                         \
    void sc_finish_##name(const sc_task *task) {                                                                       \
        name##_finish(task, (const sc_##name##_args *)task->args);                                                     \
    }                                                                                                                  \
    static void name##_finish(const sc_task *task, const sc_##name##_args *k)
sc_kernel sc_finish_cross_entropy, sc_finish_cross_entropy_grads; /* k_cross_entropy.c */
sc_kernel sc_finish_matmul_quantize;                              /* k_matmul_quantize.c */
sc_kernel sc_finish_distillation;                                 /* k_distillation.c */
sc_kernel sc_finish_layer_norm_grads, sc_finish_rms_norm_grads;   /* k_norm.c */

/* y and rstd of one row of x by rms_norm (k_norm.c). */
void sc_rms_norm_row(const sc_tensor *y, const sc_tensor *rstd, const sc_tensor *x, const sc_tensor *w, double eps,
                     int64_t row);

/* c = alpha op(a) op(b) + beta c, row-major, on the calling thread (k_blas.c). */
void sc_gemm(int ta, int tb, int64_t m, int64_t n, int64_t k, real alpha, const real *a, int64_t lda, const real *b,
             int64_t ldb, real beta, real *c, int64_t ldc);

#endif
