/* matmul: y[..., m, n] = f(op(a) · op(b) (+ bias[n]) (+ c)), computed in fp32, rounded once; f as ops.def says.
 * Relies on: cuBLASLt, a workspace (work_matmul), matmul.h, matmul_hopper.h, silu_mul.h, kernel.cuh, mma.h.
 * Relied on by: generated code.
 *
 * cuBLASLt counts in columns. A row-major y[m][n] with rows ldy apart is a column-major Y'[n][m] with the same leading
 * stride, and Y' = op(b)' · op(a)': so b goes first, a second, and a flag ta or tb stays what it is. The bias, one
 * value a column of y, is one value a row of Y': the library's BIAS epilogue. c is its C, with beta = 1. gelu and its
 * derivative are its epilogues too where y has 16 bits (the library's tanh is not exact to a float) and the table of
 * algorithms does not say `apart`; else they are a pass of our own over y.
 *
 * Leading dims fold into m where op(b) is shared and strides allow; else the innermost of them are the library's
 * strided batch and the rest is a loop. fp32 is IEEE fp32 (CUBLAS_COMPUTE_32F without TF32). Sums that are split over k
 * are put together in fp32 (REDUCTION_SCHEME_COMPUTE_TYPE), never in the result's type, so that there is one rounding.
 *
 * Products with gelu, a gate or their gradients that k_matmul_hopper.cu takes are its own, whatever a table says. Of
 * other gated ones the library makes the product alone, by the plan that the plain product has, where the second result
 * lies (the first may have the bytes of a gate); the gate is a pass of our own (k_silu_mul.cu).
 *
 * Operands of 8 bits have scales, by which the library multiplies sums before all else; its kernels of compute
 * capability 8.9 and later take op(a) and op(b) along k alone (ta = 0, tb = 1). Sums of e4m3 alone stay in the tensor
 * cores' own accumulators (FAST_ACCUM), as in Transformer Engine and torchao; a gradient's are added up in fp32. With
 * scales of blocks (VEC128, BLK128x128; Hopper alone) each 128 of k are, when both scales have multiplied them; m and n
 * are then multiples of 4.
 *
 * An algorithm is chosen once a key (matmul.h) on the host, from the table or else by the heuristic, and kept with the
 * descriptors. What the library does not take (rows that overlap, mixed types) a tiled kernel of our own computes. */
#include "matmul.h"

#include "kernel.cuh"
#include "matmul_hopper.h"
#include "mma.h"
#include "silu_mul.h"
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

enum { PLANS = 1024 };

typedef struct {
    sc_matmul_key key;
    int used, taken; /* taken: by the library */
    int apart, f;    /* f: what the library does of key.f */
    cublasLtMatmulDescOpaque_t what;
    cublasLtMatrixLayoutOpaque_t a, b, y;
    cublasLtMatmulAlgo_t algorithm;
} plan;

typedef struct {       /* sc_cuda.matmul */
    plan plans[PLANS]; /* by hash, then the next free one */
    int n;
    const sc_matmul_choice *table;
    int ntable;
} plans;

extern "C" void sc_matmul_start(sc_cuda *c) {
    c->matmul = calloc(1, sizeof(plans));
    if (!c->matmul) sc_failed("malloc", "sc_matmul_start", "ENOMEM", "out of host memory", __FILE__, __LINE__);
}
extern "C" void sc_matmul_stop(sc_cuda *c) {
    free(c->matmul);
    c->matmul = NULL;
}
extern "C" void sc_matmul_table(sc_cuda *c, const sc_matmul_choice *table, int n) {
    plans *p = (plans *)c->matmul;
    memset(p, 0, sizeof *p); /* choices made so far are forgotten */
    p->table = table;
    p->ntable = n;
}

/* ── the task as products of two matrices ───────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    int64_t size, a, b, y; /* extent; strides */
} loop;

typedef struct {
    const sc_tensor *y, *z, *a, *b, *bias, *c, *x, *x2, *work; /* z: aux; x: or gate; x2: up; NULL: there is none */
    const float *scale_a, *scale_b;                            /* of 8 bits, else NULL */
    int scales;                                                /* of blocks: an sc_matmul_scales */
    int64_t pitch_a, pitch_b;                                  /* between rows of these */
    int ta, tb, f;
    int64_t m, n, k, lda, ldb, ldy;
    int nloops; /* leading dims, outermost first; the innermost is a batch of the library's */
    loop loops[SC_DIMS];
} product;

/* Stride of the second last dimension; that of a single row is free, and the library wants it at least the width. */
static int64_t leading(const sc_tensor *t) {
    return t->shape[t->dims - 2] == 1 ? (t->shape[t->dims - 1] > 1 ? t->shape[t->dims - 1] : 1)
                                      : t->stride[t->dims - 2];
}

static int follows(const loop *outer, const loop *inner) {
    return outer->a == inner->size * inner->a && outer->b == inner->size * inner->b &&
           outer->y == inner->size * inner->y;
}

/* Takes the rows of a and y in, dim by dim from the inside, as long as one stride serves. */
static void fold_rows(product *p) {
    while (p->nloops) {
        loop *l = &p->loops[p->nloops - 1];
        if (p->m == 1) {
            p->lda = l->a;
            p->ldy = l->y;
        } else if (l->a != p->m * p->lda || l->y != p->m * p->ldy) {
            return;
        }
        p->m *= l->size;
        p->nloops--;
    }
}

static product product_of(const sc_matmul_args *k) {
    product p = {};
    p.f = (int)k->epilogue;
    p.y = &k->y;
    p.z = present(&k->aux);
    p.a = &k->a;
    p.b = &k->b;
    p.bias = present(&k->bias);
    p.c = present(&k->c);
    p.x = present(p.f & SC_GATED ? &k->gate : &k->x);
    p.x2 = present(&k->up);
    p.work = present(&k->work);
    p.scale_a = (const float *)k->scale_a.p;
    p.scale_b = (const float *)k->scale_b.p;
    if (k->scale_a.dims == 2) {
        p.scales = k->square_b ? SC_MATMUL_SQUARES_B : SC_MATMUL_BLOCKS;
        p.pitch_a = k->scale_a.shape[1], p.pitch_b = k->scale_b.shape[1];
    }
    p.ta = k->trans_a != 0;
    p.tb = k->trans_b != 0;
    int dims = p.y->dims;
    p.m = p.y->shape[dims - 2];
    p.n = p.y->shape[dims - 1];
    p.k = p.a->shape[dims - (p.ta ? 2 : 1)];
    p.lda = leading(p.a);
    p.ldb = leading(p.b);
    p.ldy = leading(p.y);
    for (int d = 0; d < dims - 2; d++) {
        loop l = {p.y->shape[d], p.a->stride[d], p.b->dims > 2 ? p.b->stride[d] : 0, p.y->stride[d]};
        if (l.size == 1) continue;
        if (p.nloops && follows(&p.loops[p.nloops - 1], &l)) l.size *= p.loops[--p.nloops].size;
        p.loops[p.nloops++] = l;
    }
    if (!p.ta && p.b->dims == 2) fold_rows(&p);
    return p;
}

/* What is gated, without its gate. */
static product ungated(const product *p) {
    product q = *p;
    if (!(p->f & SC_GATED)) return q;
    q.f = 0;
    q.x = q.x2 = q.z = NULL;
    if (p->z) q.y = p->z;
    return q;
}

/* ── choosing ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* log2 of what divides all of a tensor's addresses that the library is given. `which`: its stride in a loop. */
static uint8_t alignment(const product *p, const sc_tensor *t, int64_t loop::*which) {
    uint64_t bytes = (uint64_t)(uintptr_t)t->p;
    for (int d = 0; d < p->nloops && which; d++) bytes |= (uint64_t)(p->loops[d].*which * size_of(t->dtype));
    uint8_t log2 = 0;
    while (log2 < 8 && !(bytes >> log2 & 1)) log2++;
    return log2;
}

/* A bias of y's type is added by the library; another one afterwards, to fp32 sums. */
static int epilogue(const product *p) {
    if (p->scale_a && p->y->dtype == FP32) return 0; /* the library adds 16 bits to such sums */
    return p->bias && p->bias->dtype == p->y->dtype && (p->n == 1 || p->bias->stride[0] == 1);
}

static sc_matmul_key key_of(const product *p) {
    sc_matmul_key k;
    memset(&k, 0, sizeof k); /* also its padding: keys are compared as bytes */
    k.m = p->m, k.n = p->n, k.k = p->k;
    k.lda = p->lda, k.ldb = p->ldb, k.ldy = p->ldy;
    k.batches = 1;
    if (p->nloops) {
        const loop *l = &p->loops[p->nloops - 1];
        k.batches = l->size, k.stride_a = l->a, k.stride_b = l->b, k.stride_y = l->y;
    }
    k.workspace = p->work ? p->work->shape[0] : 0;
    k.in = sc_matmul_in(p->a->dtype, p->b->dtype), k.out = p->y->dtype;
    k.ta = (uint8_t)p->ta, k.tb = (uint8_t)p->tb, k.bias = (uint8_t)epilogue(p);
    k.align_a = alignment(p, p->a, &loop::a);
    k.align_b = alignment(p, p->b, &loop::b);
    k.align_y = alignment(p, p->y, &loop::y);
    k.align_bias = k.bias ? alignment(p, p->bias, NULL) : 0;
    k.scales = (uint8_t)p->scales;
    k.add = p->c != NULL;
    k.f = (uint8_t)(p->y->dtype == FP32 ? 0 : p->f);
    k.align_c = 8;
    for (const sc_tensor *t : {p->c, p->z, p->x, p->x2}) {
        uint8_t log2 = t ? alignment(p, t, NULL) : 8;
        k.align_c = log2 < k.align_c ? log2 : k.align_c;
    }
    return k;
}

static cudaDataType_t library_type(int dtype) {
    switch (dtype) {
    case FP32: return CUDA_R_32F;
    case BF16: return CUDA_R_16BF;
    case FP8_E4M3: return CUDA_R_8F_E4M3;
    case FP8_E5M2: return CUDA_R_8F_E5M2;
    default: return CUDA_R_16F;
    }
}

static bool has_8_bits(int dtype) {
    return dtype == FP8_E4M3 || dtype == FP8_E5M2;
}
static bool multiplies(int dtype) {
    return with_float_serves(dtype) || has_8_bits(dtype);
}

/* What the library asks of 8 bits: one of the two in e4m3, both along k, runs of 16 bytes. */
static bool library_takes_8_bits(const product *p) {
    bool known = has_8_bits(p->b->dtype) && (p->a->dtype == FP8_E4M3 || p->b->dtype == FP8_E4M3);
    bool along = !p->ta && p->tb && (p->k | p->lda | p->ldb) % 16 == 0 && p->ldy * size_of(p->y->dtype) % 16 == 0;
    if (p->scales && (p->m % 4 || p->n % 4 || p->nloops || !aligned(p->scale_a, 16) || !aligned(p->scale_b, 16)))
        return false;
    return known && along && aligned(p->a->p, 16) && aligned(p->b->p, 16) && aligned(p->y->p, 16) && !p->f;
}
/* With operands that 16-byte accesses do not fit, the library has kernels that round the sums before they add the bias
 * (seen with bf16 and cuBLASLt 13.1). */
static int bias_comes_first(const product *p) {
    uint64_t all = 0;
    for (const sc_tensor *t : {p->y, p->a, p->b}) all |= (uint64_t)(uintptr_t)t->p;
    all |= (uint64_t)((p->ldy * size_of(p->y->dtype)) | (p->lda * size_of(p->a->dtype)) | (p->ldb * size_of(p->b->dtype)));
    return p->bias && p->y->dtype != FP32 && all % 16;
}

/* Whether the library may be asked at all. */
static int library_takes(const product *p) {
    const sc_tensor *all[] = {p->y, p->a, p->b};
    const int64_t ld[] = {p->ldy, p->lda, p->ldb};
    for (int i = 0; i < 3; i++) {
        int64_t columns = all[i]->shape[all[i]->dims - 1];
        if (!multiplies(all[i]->dtype) || ld[i] < columns || (columns > 1 && all[i]->stride[all[i]->dims - 1] != 1))
            return 0;
    }
    if (p->bias && !epilogue(p) && p->y->dtype != FP32) return 0;
    if (bias_comes_first(p)) return 0;
    if (p->scale_a) return p->k > 0 && library_takes_8_bits(p);
    return p->k > 0 && p->a->dtype == p->b->dtype && (p->y->dtype == p->a->dtype || p->y->dtype == FP32);
}

template <class X> static void set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name, X x) {
    SC_LT(cublasLtMatmulDescSetAttribute(d, name, &x, sizeof x));
}
template <class X> static void set(cublasLtMatmulPreference_t d, cublasLtMatmulPreferenceAttributes_t name, X x) {
    SC_LT(cublasLtMatmulPreferenceSetAttribute(d, name, &x, sizeof x));
}

static void layout(cublasLtMatrixLayout_t l, int dtype, int64_t rows, int64_t columns, int64_t ld, int64_t batches,
                   int64_t stride) {
    SC_LT(cublasLtMatrixLayoutInit(l, library_type(dtype), (uint64_t)rows, (uint64_t)columns, ld));
    int32_t n = (int32_t)batches;
    SC_LT(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n));
    SC_LT(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
}

static cublasLtEpilogue_t library_epilogue(const sc_matmul_key *k, int f) {
    switch (f) {
    case SC_GELU | SC_TOO: return k->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case SC_GELU: return k->bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case SC_GELU | SC_GRADIENT: return CUBLASLT_EPILOGUE_DGELU;
    default: return k->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    }
}

/* Whether gelu's argument is stored, or read: what the library calls aux. */
static int has_argument(int f) {
    return f & SC_GELU && f & (SC_TOO | SC_GRADIENT);
}

/* May a pass of our own take 16 bytes of y, z, x and c at a time? */
static int fits_apart(const sc_matmul_key *k) {
    return has_argument(k->f) && k->m * k->n % 8 == 0 && k->align_y >= 4 && k->align_c >= 4;
}

/* The library's description of the product, but for the addresses of bias, gelu's argument and x. */
static void describe(plan *p) {
    const sc_matmul_key *k = &p->key;
    p->f = p->apart ? 0 : k->f;
    SC_LT(cublasLtMatmulDescInit(&p->what, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(&p->what, CUBLASLT_MATMUL_DESC_TRANSA, k->tb ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(&p->what, CUBLASLT_MATMUL_DESC_TRANSB, k->ta ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(&p->what, CUBLASLT_MATMUL_DESC_EPILOGUE, library_epilogue(k, p->f));
    if (has_argument(p->f)) set(&p->what, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, k->ldy);
    if (k->bias) set(&p->what, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, (int32_t)library_type(k->out));
    int8_t fast = sc_matmul_in_a(k) == FP8_E4M3 && sc_matmul_in_b(k) == FP8_E4M3 && !k->scales;
    if (fast) set(&p->what, CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast);
    if (k->scales) {
        bool square = k->scales == SC_MATMUL_SQUARES_B;
        set(&p->what, CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
            (int32_t)(square ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F : CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F));
        set(&p->what, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, (int32_t)CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
    }
    layout(&p->b, sc_matmul_in_b(k), k->tb ? k->k : k->n, k->tb ? k->n : k->k, k->ldb, k->batches, k->stride_b);
    layout(&p->a, sc_matmul_in_a(k), k->ta ? k->m : k->k, k->ta ? k->k : k->m, k->lda, k->batches, k->stride_a);
    layout(&p->y, k->out, k->n, k->m, k->ldy, k->batches, k->stride_y);
}

static void set_addresses(plan *x, const product *p) {
    if (x->key.bias) set(&x->what, CUBLASLT_MATMUL_DESC_BIAS_POINTER, (const void *)p->bias->p);
    if (p->scale_a) {
        set(&x->what, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, (const void *)p->scale_b);
        set(&x->what, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, (const void *)p->scale_a);
    }
    if (SC_HAS(x->f, SC_GELU | SC_TOO)) set(&x->what, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p->z->p);
    if (SC_HAS(x->f, SC_GELU | SC_GRADIENT)) set(&x->what, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p->x->p);
}

/* The heuristic's best `most`. What epilogues read counts by its address's alignment. */
static int candidates(const sc_cuda *c, plan *p, const product *of, cublasLtMatmulHeuristicResult_t *out, int most) {
    cublasLtMatmulPreferenceOpaque_t wish;
    uint8_t align_c = p->key.add ? p->key.align_c : p->key.align_y, align_d = p->key.align_y;
    if (p->apart && p->key.align_c < align_d) align_d = p->key.align_c;
    SC_LT(cublasLtMatmulPreferenceInit(&wish));
    set(&wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (uint64_t)p->key.workspace);
    set(&wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, (uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    set(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)1 << p->key.align_b);
    set(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)1 << p->key.align_a);
    set(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)1 << align_c);
    set(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)1 << align_d);
    set_addresses(p, of);
    int found = 0;
    cublasStatus_t s =
        cublasLtMatmulAlgoGetHeuristic(c->lt, &p->what, &p->b, &p->a, &p->y, &p->y, &wish, most, out, &found);
    if (s == CUBLAS_STATUS_NOT_SUPPORTED) return 0;
    SC_LT(s);
    int good = 0;
    for (int i = 0; i < found; i++)
        if (out[i].state == CUBLAS_STATUS_SUCCESS) out[good++] = out[i];
    return good;
}

/* The table's algorithm, if it has one that this library on this GPU accepts. */
static int from_table(const sc_cuda *c, plan *p) {
    const plans *all = (const plans *)c->matmul;
    for (int i = 0; i < all->ntable; i++) {
        if (memcmp(&all->table[i].key, &p->key, sizeof p->key)) continue;
        cublasLtMatmulHeuristicResult_t check;
        p->apart = all->table[i].apart && fits_apart(&p->key);
        if (p->apart) describe(p);
        memcpy(&p->algorithm, all->table[i].algorithm, sizeof p->algorithm);
        cublasStatus_t s = cublasLtMatmulAlgoCheck(c->lt, &p->what, &p->b, &p->a, &p->y, &p->y, &p->algorithm, &check);
        if (s == CUBLAS_STATUS_SUCCESS && check.workspaceSize <= (size_t)p->key.workspace) return 1;
        break;
    }
    if (p->apart) {
        p->apart = 0;
        describe(p);
    }
    return 0;
}

static void choose(const sc_cuda *c, plan *p, const product *of) {
    cublasLtMatmulHeuristicResult_t best;
    describe(p);
    p->used = 1;
    p->taken = 1;
    if (from_table(c, p)) return;
    p->taken = candidates(c, p, of, &best, 1);
    if (p->taken) p->algorithm = best.algo;
}

static uint64_t hash(const sc_matmul_key *k) {
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *k; i++) h = (h ^ ((const unsigned char *)k)[i]) * 1099511628211u;
    return h ^ h >> 32;
}

/* The plan for a key, made at its first use; `spare` serves where there are more keys than places. */
static plan *plan_for(const sc_cuda *c, const sc_matmul_key *key, const product *of, plan *spare) {
    plans *all = (plans *)c->matmul;
    size_t at = hash(key) % PLANS;
    while (all->plans[at].used && memcmp(&all->plans[at].key, key, sizeof *key)) at = (at + 1) % PLANS;
    plan *p = &all->plans[at];
    if (p->used) return p;
    if (all->n == PLANS - 1)
        p = spare;
    else
        all->n++;
    p->key = *key;
    choose(c, p, of);
    return p;
}

extern "C" int sc_matmul_candidates(const sc_task *t, sc_matmul_choice *out, int most) {
    cublasLtMatmulHeuristicResult_t found[64];
    product whole = product_of((const sc_matmul_args *)t->args), p = ungated(&whole);
    plan x = {};
    if (!library_takes(&p)) return 0;
    x.key = key_of(&whole);
    if (sc_matmul_hopper_takes(sc_library(t), &x.key)) return 0;
    x.key = key_of(&p);
    int both = fits_apart(&x.key), n = 0;
    most = most < 64 ? most : 64;
    for (x.apart = 0; x.apart <= both; x.apart++) {
        describe(&x);
        int more = candidates(sc_library(t), &x, &p, found, both && !x.apart ? (most + 1) / 2 : most - n);
        for (int i = 0; i < more; i++, n++) {
            out[n] = {};
            out[n].key = x.key;
            out[n].apart = (uint64_t)x.apart;
            memcpy(out[n].algorithm, &found[i].algo, sizeof out[n].algorithm);
        }
    }
    return n;
}

/* ── our own kernels ────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    void *p;
    int dtype;
    int64_t row, column; /* strides */
} matrix;

typedef struct {
    matrix y, a, b;   /* a[m][k], b[k][n]: as after op() */
    const void *bias; /* NULL: none */
    int bias_dtype;
    int64_t bias_stride, m, n, k, across; /* across: tiles from left to right */
    int only_bias;                        /* y += bias */
    const float *scale_a, *scale_b;       /* NULL: none */
    int scales;                           /* of blocks: an sc_matmul_scales */
    int64_t pitch_a, pitch_b, first_row;  /* of these; the number of y's first row among a's */
    const void *c, *x, *x2;               /* laid out as y, of its type */
    void *z;
    int f;
} own;

SC_DEVICE float element(const void *p, int dtype, int64_t i) {
    if (dtype == FP32) return ((const float *)p)[i];
    if (dtype == FP8_E4M3) return sc_from_fp8_e4m3(((const sc_fp8_e4m3_t *)p)[i]);
    if (dtype == FP8_E5M2) return sc_from_fp8_e5m2(((const sc_fp8_e5m2_t *)p)[i]);
    return dtype == BF16 ? sc_widen(((const sc_bf16 *)p)[i]) : sc_widen(((const sc_fp16 *)p)[i]);
}
SC_DEVICE void store(void *p, int dtype, int64_t i, float x) {
    if (dtype == FP32) ((float *)p)[i] = x;
    if (dtype == BF16) sc_narrow((sc_bf16 *)p + i, x);
    if (dtype == FP16) sc_narrow((sc_fp16 *)p + i, x);
}

SC_DEVICE float rounded(int dtype, float x) {
    return dtype == FP32 ? x : dtype == BF16 ? sc_as_bf16(x) : sc_from_fp16(sc_to_fp16(x));
}

/* f of what the sums gave: element `at` of y, z, x, x2. gelu is taken of its argument as it is stored, where it is;
 * what is gated is rounded first. */
SC_DEVICE float finished(const own &o, int64_t at, float s) {
    if (o.c) s += element(o.c, o.y.dtype, at);
    if (o.f & (SC_TOO | SC_GATED)) s = rounded(o.y.dtype, s);
    float x = o.x ? element(o.x, o.y.dtype, at) : 0, z = s, y;
    if (SC_HAS(o.f, SC_GATED | SC_GRADIENT)) sc_silu_mul_grad(s, x, element(o.x2, o.y.dtype, at), &y, &z);
    if (o.z) store(o.z, o.y.dtype, at, z);
    if (SC_HAS(o.f, SC_GATED | SC_GRADIENT)) return y;
    if (o.f & SC_GATED) return sc_silu_mul(x, s);
    if (SC_HAS(o.f, SC_GELU | SC_GRADIENT)) return sc_gelu_tanh_grad(s, x);
    return o.f ? sc_gelu_tanh(s) : s;
}

/* y = f(y), for fp32. */
static __global__ void __launch_bounds__(256) finish_fp32(const __grid_constant__ own o) {
    int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (at < o.m * o.n) ((float *)o.y.p)[at] = finished(o, at, ((float *)o.y.p)[at]);
}

/* y = f(from), for 16 bits, 8 elements a time: gelu of the argument, or y times its derivative at x. Grid: runs of
 * 2 × 256 × 8 elements. */
template <class T> static __global__ void __launch_bounds__(256) finish_16(const __grid_constant__ own o) {
    enum { U = 2, W = 8 };
    union run {
        uint4 all;
        T each[W];
        uint32_t two[W / 2];
    } s[U], x[U];
    int64_t first = ((int64_t)blockIdx.x * U * 256 + threadIdx.x) * W, end = o.m * o.n;
#pragma unroll
    for (int u = 0; u < U; u++) {
        int64_t at = first + u * 256 * W;
        if (at >= end) continue;
        s[u].all = *(const uint4 *)((const T *)(o.z ? o.z : o.y.p) + at);
        if (o.x) x[u].all = *(const uint4 *)((const T *)o.x + at);
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
        int64_t at = first + u * 256 * W;
        if (at >= end) continue;
        float r[W];
#pragma unroll
        for (int k = 0; k < W; k++)
            r[k] = o.x ? sc_gelu_tanh_grad(sc_widen(s[u].each[k]), sc_widen(x[u].each[k]))
                       : sc_gelu_tanh(sc_widen(s[u].each[k]));
#pragma unroll
        for (int k = 0; k < W / 2; k++) s[u].two[k] = sc_pack<T>(r[2 * k], r[2 * k + 1]);
        *(uint4 *)((T *)o.y.p + at) = s[u].all;
    }
}

enum { TILE = 64, DEPTH = 16, SIDE = 128 /* of blocks that have a scale */ };

SC_DEVICE float scale_of_block(const own &o, int64_t row, int64_t column, int64_t block) {
    float a = o.scale_a[block * o.pitch_a + o.first_row + row];
    return a * (o.scales == SC_MATMUL_SQUARES_B ? o.scale_b[column / SIDE * o.pitch_b + block]
                                                : o.scale_b[block * o.pitch_b + column]);
}

/* 256 threads as 16 × 16, thread (ty, tx) has rows ty + 16 i and columns tx + 16 j of a 64 × 64 tile of y. BLOCKS: sums
 * of 128 are multiplied by their scales and added up. */
template <int BLOCKS> static __global__ void __launch_bounds__(256) multiply(const __grid_constant__ own o) {
    SC_SHARED(shared);
    float(*a)[TILE + 1] = (float(*)[TILE + 1]) shared, (*b)[TILE + 1] = a + DEPTH;
    int64_t r0 = blockIdx.x / o.across * TILE, c0 = blockIdx.x % o.across * TILE;
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    float s[4][4] = {}, total[BLOCKS ? 4 : 1][BLOCKS ? 4 : 1] = {};
    for (int64_t k0 = 0; k0 < o.k; k0 += DEPTH) {
        for (int u = threadIdx.x; u < TILE * DEPTH; u += 256) {
            int64_t x = u / DEPTH, l = u % DEPTH, k = k0 + l;
            bool in_a = r0 + x < o.m && k < o.k, in_b = c0 + x < o.n && k < o.k;
            a[l][x] = in_a ? element(o.a.p, o.a.dtype, (r0 + x) * o.a.row + k * o.a.column) : 0;
            b[l][x] = in_b ? element(o.b.p, o.b.dtype, k * o.b.row + (c0 + x) * o.b.column) : 0;
        }
        __syncthreads();
#pragma unroll
        for (int l = 0; l < DEPTH; l++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) s[i][j] = fmaf(a[l][ty + 16 * i], b[l][tx + 16 * j], s[i][j]);
        __syncthreads();
        if constexpr (BLOCKS) {
            if ((k0 + DEPTH) % SIDE && k0 + DEPTH < o.k) continue;
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) {
                    int64_t r = r0 + ty + 16 * i, c = c0 + tx + 16 * j;
                    if (r < o.m && c < o.n) total[i][j] += s[i][j] * scale_of_block(o, r, c, k0 / SIDE);
                    s[i][j] = 0;
                }
        }
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            int64_t r = r0 + ty + 16 * i, c = c0 + tx + 16 * j, at = r * o.y.row + c * o.y.column;
            if (r >= o.m || c >= o.n) continue;
            if constexpr (BLOCKS)
                s[i][j] = total[i][j];
            else if (o.scale_a)
                s[i][j] *= *o.scale_a * *o.scale_b;
            if (o.only_bias) s[i][j] = element(o.y.p, o.y.dtype, at);
            if (o.bias) s[i][j] += element(o.bias, o.bias_dtype, c * o.bias_stride);
            store(o.y.p, o.y.dtype, at, finished(o, at, s[i][j]));
        }
}

static int64_t last_stride(const sc_tensor *t) {
    return t->stride[t->dims - 1];
}

static char *bytes_from(const sc_tensor *t, int64_t at) {
    return t ? (char *)t->p + at : NULL;
}

/* y's matrix as a product of ours, or (only_bias) the bias added to what is there. */
static void by_ourselves(const sc_task *t, const product *p, char *y, const char *a, const char *b, int only_bias) {
    own o = {};
    int64_t ca = last_stride(p->a), cb = last_stride(p->b);
    o.y = {y, p->y->dtype, p->ldy, last_stride(p->y)};
    o.a = {(void *)a, p->a->dtype, p->ta ? ca : p->lda, p->ta ? p->lda : ca};
    o.b = {(void *)b, p->b->dtype, p->tb ? cb : p->ldb, p->tb ? p->ldb : cb};
    if (p->bias) {
        o.bias = p->bias->p;
        o.bias_dtype = p->bias->dtype;
        o.bias_stride = p->bias->stride[0];
    }
    o.m = p->m, o.n = p->n, o.k = only_bias ? 0 : p->k;
    o.across = ceil_div(p->n, TILE);
    o.only_bias = only_bias;
    o.scale_a = p->scale_a, o.scale_b = p->scale_b, o.scales = only_bias ? 0 : p->scales;
    o.pitch_a = p->pitch_a, o.pitch_b = p->pitch_b;
    if (o.scales) o.first_row = (a - (const char *)p->a->p) / p->lda; /* a byte an element */
    if (!only_bias && (p->c || p->f)) { /* they are laid out as y */
        int64_t at = y - (char *)p->y->p;
        o.c = bytes_from(p->c, at);
        o.x = bytes_from(p->x, at);
        o.x2 = bytes_from(p->x2, at);
        o.z = bytes_from(p->z, at);
        o.f = p->f;
    }
    sc_launch(o.scales ? multiply<1> : multiply<0>, ceil_div(p->m, TILE) * o.across, 256,
              2 * DEPTH * (TILE + 1) * sizeof(float), SC_STREAM(t), o);
}

/* ── running ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void by_library(const sc_task *t, const product *p, plan *x, char *y, const char *a, const char *b) {
    const float one = 1, beta = x->key.add ? 1 : 0;
    if (x->apart && p->z) y = (char *)p->z->p; /* gelu's argument */
    set_addresses(x, p);
    SC_LT(cublasLtMatmul(sc_library(t)->lt, &x->what, &one, b, &x->b, a, &x->a, &beta, p->c ? p->c->p : y, &x->y, y,
                         &x->y, &x->algorithm, p->work ? p->work->p : NULL, (size_t)x->key.workspace, SC_STREAM(t)));
}

/* f(y, a, b) for each matrix of the `n` outer loops. */
template <class F> static void for_each_matrix(const product *p, int n, F f) {
    int64_t calls = 1;
    for (int d = 0; d < n; d++) calls *= p->loops[d].size;
    for (int64_t u = 0; u < calls; u++) {
        int64_t a = 0, b = 0, y = 0, rest = u;
        for (int d = n - 1; d >= 0; d--) {
            int64_t i = rest % p->loops[d].size;
            rest /= p->loops[d].size;
            a += i * p->loops[d].a, b += i * p->loops[d].b, y += i * p->loops[d].y;
        }
        f((char *)p->y->p + y * size_of(p->y->dtype), (const char *)p->a->p + a * size_of(p->a->dtype),
          (const char *)p->b->p + b * size_of(p->b->dtype));
    }
}

/* y = f(y), where the library has made the sums: gelu of them, or times its derivative. */
static void finish(const sc_task *t, const product *p) {
    own o = {};
    int64_t n = p->m * p->n;
    o.y = {p->y->p, FP32, p->n, 1};
    o.m = p->m, o.n = p->n;
    o.x = p->x ? p->x->p : NULL;
    o.z = p->z ? p->z->p : NULL;
    o.f = p->f;
    if (p->y->dtype == FP32)
        sc_launch(finish_fp32, ceil_div(n, 256), 256, 0, SC_STREAM(t), o);
    else
        sc_launch(p->y->dtype == BF16 ? finish_16<sc_bf16> : finish_16<sc_fp16>, ceil_div(n, 4096), 256, 0,
                  SC_STREAM(t), o);
}

/* The library has made what is gated. */
static void gate(const sc_task *t, const product *p) {
    void *sums = p->z ? p->z->p : p->y->p;
    int64_t n = sc_numel(p->y);
    if (SC_HAS(p->f, SC_GATED | SC_GRADIENT))
        sc_silu_mul_grad_apart(t, p->y->dtype, n, p->y->p, sums, sums, p->x->p, p->x2->p);
    else
        sc_silu_mul_apart(t, p->y->dtype, n, p->y->p, p->x->p, sums);
}

static const void *bytes_of(const sc_tensor *t) {
    return t ? t->p : NULL;
}

/* y, and what is laid out as y, has no gaps; a batch of matrices may be gated, and nothing else. */
static int serves(const product *p) {
    int64_t all = 1;
    for (int d = p->y->dims - 1; d >= 0; all *= p->y->shape[d--])
        if (p->y->shape[d] > 1 && p->y->stride[d] != all) return 0;
    return !p->nloops || (p->f & SC_GATED && !p->c);
}

SC_KERNEL(matmul) {
    product p = product_of(k);
    if ((p.c || p.f) && !serves(&p))
        sc_unsupported(task, "matmul", "what is added to it or applied to it needs a result without gaps");
    if (!with_float_serves(p.y->dtype) || !multiplies(p.a->dtype) || !multiplies(p.b->dtype))
        sc_unsupported(task, "matmul", "the CUDA target multiplies fp32, bf16, fp16 and fp8");
    if (p.m * p.n == 0) return;
    for (int d = 0; d < p.nloops; d++)
        if (p.loops[d].size == 0) return;
    product sums = ungated(&p);
    plan spare = {}, *x = NULL;
    if (library_takes(&sums)) {
        sc_matmul_key key = key_of(&p);
        if (sc_matmul_hopper_takes(sc_library(task), &key)) {
            sc_matmul_hopper(task, &key, p.y->p, (void *)bytes_of(p.z), p.a->p, p.b->p, bytes_of(p.bias), bytes_of(p.x),
                             bytes_of(p.x2));
            return;
        }
        key = key_of(&sums);
        x = plan_for(sc_library(task), &key, &sums, &spare);
        if (!x->taken) x = NULL;
    }
    if (x) { /* the innermost loop is the library's batch */
        for_each_matrix(&sums, sums.nloops ? sums.nloops - 1 : 0,
                        [&](char *y, const char *a, const char *b) { by_library(task, &sums, x, y, a, b); });
        if (p.bias && !x->key.bias)
            for_each_matrix(&sums, sums.nloops,
                            [&](char *y, const char *, const char *) { by_ourselves(task, &sums, y, NULL, NULL, 1); });
    } else {
        for_each_matrix(&p, p.nloops,
                        [&](char *y, const char *a, const char *b) { by_ourselves(task, &p, y, a, b, 0); });
    }
    if (x && p.f & SC_GATED)
        gate(task, &p);
    else if (x && p.f && !x->f)
        finish(task, &p);
}
