/* The part of cuBLASLt that runtime/cuda/k_matmul.cu uses, on plain memory and in the library's own (column-major)
 * words. Relies on: cublasLt.h. Relied on by: tests/gpu/test_matmul.cu, built without a GPU.
 *
 * An "algorithm" remembers the alignments that it was chosen for, and a product checks the addresses that it gets. */
#include "mma.h"
#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>

struct description {
    int transposed[2], epilogue, bias_type;
    const void *bias;
    void *aux; /* gelu's argument, of the result's type */
    int64_t aux_ld;
    const float *scale[2]; /* of a and b in 8 bits */
    int mode[2], fast;     /* how they lie; sums of all of k in the tensor cores */
};
struct matrix {
    int type, batches;
    uint64_t rows, columns;
    int64_t ld, stride;
};
struct wish {
    uint64_t workspace;
    uint32_t reductions, align[4];
};
struct algorithm {
    uint32_t index, align[4];
    uint64_t workspace;
};
static_assert(sizeof(description) <= sizeof(cublasLtMatmulDescOpaque_t) &&
                  sizeof(matrix) <= sizeof(cublasLtMatrixLayoutOpaque_t) &&
                  sizeof(wish) <= sizeof(cublasLtMatmulPreferenceOpaque_t) &&
                  sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t),
              "fits the library's own");

static void need(bool good, const char *what) {
    if (good) return;
    fprintf(stderr, "cublasLt: %s\n", what);
    abort();
}
static double value(const void *p, int type, int64_t i) {
    if (type == CUDA_R_32F) return ((const float *)p)[i];
    if (type == CUDA_R_8F_E4M3) return sc_from_fp8_e4m3(((const uint8_t *)p)[i]);
    if (type == CUDA_R_8F_E5M2) return sc_from_fp8_e5m2(((const uint8_t *)p)[i]);
    uint16_t x = ((const uint16_t *)p)[i];
    return type == CUDA_R_16BF ? sc_from_bf16(x) : sc_from_fp16(x);
}
static void store(void *p, int type, int64_t i, float x) {
    if (type == CUDA_R_32F) ((float *)p)[i] = x;
    if (type == CUDA_R_16BF) ((uint16_t *)p)[i] = sc_to_bf16(x);
    if (type == CUDA_R_16F) ((uint16_t *)p)[i] = sc_to_fp16(x);
}
static bool has_bias(const description *d) {
    return d->epilogue == CUBLASLT_EPILOGUE_BIAS || d->epilogue == CUBLASLT_EPILOGUE_GELU_BIAS ||
           d->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
static bool has_aux(const description *d) {
    return d->epilogue == CUBLASLT_EPILOGUE_GELU_AUX || d->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
           d->epilogue == CUBLASLT_EPILOGUE_DGELU;
}
static bool has_8_bits(int type) {
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}
/* What kernels of 8 bits ask: one operand of e4m3, both along k, runs of 16 bytes. */
static bool fits_8_bits(const description *d, const matrix *a, const matrix *b, const matrix *y) {
    bool types =
        has_8_bits(b->type) && (a->type == CUDA_R_8F_E4M3 || b->type == CUDA_R_8F_E4M3) && !has_8_bits(y->type);
    return types && d->transposed[0] && !d->transposed[1] && a->rows % 16 == 0 && a->ld % 16 == 0 && b->ld % 16 == 0 &&
           d->scale[0] && d->scale[1] && !has_aux(d) && (!has_bias(d) || y->type != CUDA_R_32F);
}
/* What scales of blocks ask: e4m3 alone, one side of vectors at least, runs of 16 bytes, no sums without them. */
static bool fits_blocks(const description *d, const matrix *a, const matrix *b, const matrix *y) {
    const int blocks[] = {CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F};
    bool known = true, squares = true;
    for (int k = 0; k < 2; k++) {
        known &= d->mode[k] == blocks[0] || d->mode[k] == blocks[1];
        squares &= d->mode[k] == blocks[1];
    }
    if (!d->mode[0] && !d->mode[1]) return true;
    return known && !squares && !d->fast && a->type == CUDA_R_8F_E4M3 && b->type == CUDA_R_8F_E4M3 &&
           y->rows % 4 == 0 && y->columns % 4 == 0 && y->batches == 1;
}
/* Of row `row` of n of operand `side`, in block `block` of `depth`. */
static double scale_of(const description *d, int side, int64_t row, int64_t n, int64_t block, int64_t depth) {
    int64_t pitch = (depth + 511) / 512 * 4;
    if (d->mode[side] == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F) return d->scale[side][block * n + row];
    return d->mode[side] ? d->scale[side][row / 128 * pitch + block] : *d->scale[side];
}
static bool valid(const description *d, const matrix *a, const matrix *b, const matrix *y) {
    const matrix *all[] = {a, b, y};
    for (const matrix *m : all)
        if (m->ld < (int64_t)m->rows || m->batches != y->batches || m->rows == 0 || m->columns == 0) return false;
    if (has_8_bits(a->type) ? !fits_8_bits(d, a, b, y)
                            : a->type != b->type || (y->type != a->type && y->type != CUDA_R_32F))
        return false;
    if (has_8_bits(a->type) && !fits_blocks(d, a, b, y)) return false;
    if (has_bias(d) && (d->bias_type != y->type || !d->bias)) return false;
    if (has_aux(d) && (!d->aux || d->aux_ld < (int64_t)y->rows || y->type == CUDA_R_32F)) return false;
    uint64_t m = d->transposed[0] ? a->columns : a->rows, k = d->transposed[0] ? a->rows : a->columns;
    uint64_t n = d->transposed[1] ? b->rows : b->columns, k2 = d->transposed[1] ? b->columns : b->rows;
    return k == k2 && m == y->rows && n == y->columns;
}

extern "C" {
cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t d, size_t, cublasComputeType_t compute,
                                               cudaDataType_t scale) {
    need(compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F, "fp32 sums");
    memset((void *)d, 0, sizeof *d);
    ((description *)d)->bias_type = -1;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name,
                                              const void *x, size_t n) {
    description *to = (description *)d;
    bool a = name == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b = name == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER;
    bool pointer =
        a || b || name == CUBLASLT_MATMUL_DESC_BIAS_POINTER || name == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER;
    if (name == CUBLASLT_MATMUL_DESC_FAST_ACCUM)
        return need(n == 1, "size of a flag"), to->fast = *(const int8_t *)x, CUBLAS_STATUS_SUCCESS;
    if (name == CUBLASLT_MATMUL_DESC_A_SCALE_MODE) to->mode[0] = *(const int *)x;
    if (name == CUBLASLT_MATMUL_DESC_B_SCALE_MODE) to->mode[1] = *(const int *)x;
    if (a || b) to->scale[b] = *(const float *const *)x;
    need(n == (pointer || name == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD ? 8 : 4), "size of an attribute");
    if (name == CUBLASLT_MATMUL_DESC_BIAS_POINTER) to->bias = *(void *const *)x;
    if (name == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER) to->aux = *(void *const *)x;
    if (name == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD) to->aux_ld = *(const int64_t *)x;
    if (name == CUBLASLT_MATMUL_DESC_TRANSA) to->transposed[0] = *(const int *)x == CUBLAS_OP_T;
    if (name == CUBLASLT_MATMUL_DESC_TRANSB) to->transposed[1] = *(const int *)x == CUBLAS_OP_T;
    if (name == CUBLASLT_MATMUL_DESC_EPILOGUE) to->epilogue = *(const int *)x;
    if (name == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE) to->bias_type = *(const int *)x;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t l, size_t, cudaDataType type, uint64_t rows,
                                                 uint64_t columns, int64_t ld) {
    memset((void *)l, 0, sizeof *l);
    *(matrix *)l = {type, 1, rows, columns, ld, 0};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t name,
                                                const void *x, size_t n) {
    if (name == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) {
        need(n == 4, "size of the batch count");
        ((matrix *)l)->batches = *(const int32_t *)x;
    } else {
        need(n == 8 && name == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, "size of the batch stride");
        ((matrix *)l)->stride = *(const int64_t *)x;
    }
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t p, size_t) {
    memset((void *)p, 0, sizeof *p);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void *x,
                                                    size_t n) {
    wish *w = (wish *)p;
    int which = name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    need(n == (name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4), "size of a preference");
    if (name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) w->workspace = *(const uint64_t *)x;
    if (name == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) w->reductions = *(const uint32_t *)x;
    if (which >= 0 && which < 4) w->align[which] = *(const uint32_t *)x;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t y, cublasLtMatmulPreference_t p, int most,
                                              cublasLtMatmulHeuristicResult_t out[], int *found) {
    const wish *w = (const wish *)p;
    need(w->reductions == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE && c == y, "one rounding");
    *found = 0;
    if (!valid((description *)d, (matrix *)a, (matrix *)b, (matrix *)y)) return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < most && i < 3; i++) {
        algorithm g = {(uint32_t)i, {w->align[0], w->align[1], w->align[2], w->align[3]}, w->workspace};
        memset(&out[i], 0, sizeof out[i]);
        memcpy(&out[i].algo, &g, sizeof g);
        out[i].state = CUBLAS_STATUS_SUCCESS;
        (*found)++;
    }
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t *g, cublasLtMatmulHeuristicResult_t *r) {
    memset(r, 0, sizeof *r);
    return ((const algorithm *)g)->index < 3 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t what, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t la, const void *b, cublasLtMatrixLayout_t lb, const void *beta,
                              const void *c, cublasLtMatrixLayout_t lc, void *y, cublasLtMatrixLayout_t ly,
                              const cublasLtMatmulAlgo_t *algo, void *work, size_t bytes, cudaStream_t) {
    const description *d = (const description *)what;
    const matrix *ma = (const matrix *)la, *mb = (const matrix *)lb, *my = (const matrix *)ly;
    const algorithm *g = (const algorithm *)algo;
    float add = *(const float *)beta;
    need(*(const float *)alpha == 1 && (add == 0 || add == 1) && (add == 1 || c == y) && lc == ly, "y = a b (+ c)");
    need(valid(d, ma, mb, my), "descriptors");
    const void *given[] = {a, b, c, y};
    for (int i = 0; i < 4; i++) need((uintptr_t)given[i] % g->align[i] == 0, "an address is less aligned than said");
    for (int i = 0; i < 2; i++) need((uintptr_t)d->scale[i] % 16 == 0, "a scale is not at a multiple of 16 bytes");
    need(bytes <= g->workspace && (work || !bytes), "workspace");
    int depth = (int)(d->transposed[0] ? ma->rows : ma->columns);
    for (int64_t t = 0; t < my->batches; t++)
        for (int64_t i = 0; i < (int64_t)my->rows; i++)
            for (int64_t j = 0; j < (int64_t)my->columns; j++) {
                double s = 0, part = 0;
                for (int64_t k = 0; k < depth; k++) {
                    part += value(a, ma->type, t * ma->stride + (d->transposed[0] ? i * ma->ld + k : k * ma->ld + i)) *
                            value(b, mb->type, t * mb->stride + (d->transposed[1] ? k * mb->ld + j : j * mb->ld + k));
                    if ((k + 1) % 128 && k + 1 < depth) continue;
                    if (d->scale[0])
                        part *= scale_of(d, 0, i, my->rows, k / 128, depth) *
                                scale_of(d, 1, j, my->columns, k / 128, depth);
                    s += part;
                    part = 0;
                }
                if (has_bias(d)) s += value(d->bias, my->type, i);
                int64_t at = t * my->stride + j * my->ld + i, there = j * d->aux_ld + i;
                if (add == 1) s += value(c, my->type, at);
                if (d->epilogue == CUBLASLT_EPILOGUE_DGELU)
                    s = sc_gelu_tanh_grad((float)s, (float)value(d->aux, my->type, there));
                else if (has_aux(d))
                    store(d->aux, my->type, there, (float)s);
                if (d->epilogue != CUBLASLT_EPILOGUE_DGELU && d->epilogue & CUBLASLT_EPILOGUE_GELU)
                    s = sc_gelu_tanh((float)s);
                store(y, my->type, at, (float)s);
            }
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t *h) {
    *h = NULL;
    return CUBLAS_STATUS_SUCCESS;
}
const char *cublasLtGetStatusName(cublasStatus_t) {
    return "a status";
}
const char *cublasLtGetStatusString(cublasStatus_t) {
    return "a status";
}
}
