/* What the two halves of attention share: operands, tiles in shared memory, products of tiles, masks, dropout.
 * Relies on: mma.h, attention_cudnn.h (what is a window), schema/philox.h.
 * Relied on by: k_attention.cu, k_attention_grad.cu, k_attention_bias_grad.cu.
 *
 * A tile is some rows (queries or keys) of one head in shared memory, D elements wide: the larger of the head sizes of
 * k and v rounded up, the rest zeros. Rows are 16 bytes longer than D, so that eight rows of a column of 16-byte pieces
 * lie in different banks.
 *
 * bf16, fp16: 128 threads; a warp owns 16 or 32 rows, multiplies by mma.sync with fp32 sums, and powers e^(score - m)
 * are rounded to the operands' type before the second product, as every tensor-core attention does. fp32: 256 threads
 * as 16 × 16; thread (ty, tx) owns rows ty + 16 i and columns tx + 16 j, and everything is IEEE fp32 with fma. Tiles
 * depend on type and head size only, sums run in a fixed order, and no two blocks add to one element: so bits depend
 * neither on strides nor on alignment nor on the run. */
#ifndef SC_CUDA_ATTENTION_H
#define SC_CUDA_ATTENTION_H

#include "attention_cudnn.h"
#include "mma.h"

#include "../schema/math.h"
#include "../schema/philox.h"

#include <algorithm>

struct rows_of { /* a tensor [B, S, H, D or E]; strides in elements, that of D is 1 */
    void *p;
    int64_t batch, row, head;
    int wide; /* 16 bytes at a time: addresses, strides and head size allow it */
};

struct attention {
    rows_of q, k, v, o, go, dq, dk, dv;
    rows_of bias;             /* [B, H, S, T]; strides are 0 where it is one for all; p NULL: none */
    int64_t bias_key;         /* its stride from key to key */
    int bias_type;            /* FP32, BF16, FP16 */
    const int32_t *documents; /* NULL: none */
    int64_t document_batch, document_row;
    float *lse, *delta;                                   /* [B, H, S] */
    const float *dlse, *sinks;                            /* [B, H, S], [H]; NULL: none */
    int batch, queries, keys, heads, group, size, causal; /* group: query heads of one key head */
    int left, right;                                      /* query i sees keys i - left to i + right */
    float scale, softcap, cap_scale;                      /* softcap: 0: none */
    int value_size;                                       /* of a head of v and o; size: of q and k */
    float unit;              /* by which a score is multiplied: |scale|, 1 where it is capped or has a bias */
    bool more;               /* a window, a cap or a bias: the kernels with MORE */
    const sc_record *record; /* on the device */
    uint64_t key;            /* of dropout */
    uint32_t threshold;      /* a word below it drops */
    float keep;              /* 1 / (1 - p) */
    int drops;               /* p > 0 */
};

/* ── on the host ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static inline int bytes_of(const sc_tensor *t) {
    return t->dtype == FP32 ? 4 : 2;
}

static inline rows_of rows_of_tensor(const sc_task *task, const sc_tensor *t) {
    if (t->dims != 4 || (t->shape[3] > 1 && t->stride[3] != 1))
        sc_unsupported(task, "attention", "an operand's last dimension is not contiguous");
    rows_of r = {t->p, t->shape[0] > 1 ? t->stride[0] : 0, t->shape[1] > 1 ? t->stride[1] : 0,
                 t->shape[2] > 1 ? t->stride[2] : 0, 0};
    int64_t all = r.batch | r.row | r.head | t->shape[3];
    r.wide = (uintptr_t)t->p % 16 == 0 && all * bytes_of(t) % 16 == 0;
    return r;
}

static inline rows_of bias_of_tensor(const sc_task *task, const sc_tensor *t, attention &a) {
    if (!t->p) return {};
    if (t->dtype != FP32 && t->dtype != BF16 && t->dtype != FP16)
        sc_unsupported(task, "attention", "the CUDA target reads a bias in fp32, bf16 and fp16");
    auto step = [&](int d) { return t->shape[d] > 1 ? t->stride[d] : 0; };
    a.bias_key = step(3);
    a.bias_type = t->dtype;
    return {t->p, step(0), step(2), step(1), 0};
}

/* k: the args of attention or of one of its gradients. */
template <class K> attention attention_of(const sc_task *task, const K *k) {
    const sc_tensor *q = &k->q;
    attention a = {};
    if (q->dtype != FP32 && q->dtype != BF16 && q->dtype != FP16)
        sc_unsupported(task, "attention", "the CUDA target computes attention in fp32, bf16 and fp16");
    if (q->shape[3] > 256 || k->v.shape[3] > 256)
        sc_unsupported(task, "attention", "head sizes go up to 256 on the CUDA target");
    a.q = rows_of_tensor(task, q);
    a.k = rows_of_tensor(task, &k->k);
    a.v = rows_of_tensor(task, &k->v);
    a.o = rows_of_tensor(task, &k->o);
    if (k->documents.p) {
        a.documents = (const int32_t *)k->documents.p;
        a.document_batch = k->documents.stride[0];
        a.document_row = k->documents.stride[1];
    }
    a.lse = (float *)k->lse.p;
    a.batch = (int)q->shape[0];
    a.queries = (int)q->shape[1];
    a.heads = (int)q->shape[2];
    a.size = (int)q->shape[3];
    a.value_size = (int)k->v.shape[3];
    a.keys = (int)k->k.shape[1];
    a.group = a.heads / (int)k->k.shape[2];
    a.causal = k->causal != 0;
    a.left = (int)(k->before > 0 ? std::min<int64_t>(k->before - 1, a.queries) : a.queries);
    a.right = a.causal ? 0 : (int)(k->after > 0 ? std::min<int64_t>(k->after - 1, a.keys) : a.keys);
    a.scale = (float)k->scale;
    a.softcap = (float)k->softcap;
    a.cap_scale = a.softcap > 0 ? a.scale / a.softcap : 0;
    a.bias = bias_of_tensor(task, &k->bias, a);
    a.unit = a.softcap > 0 || a.bias.p ? 1 : fabsf(a.scale);
    a.more = a.softcap > 0 || a.bias.p || sc_has_window(a.causal, k->before, k->after);
    a.record = task->record;
    a.key = (uint64_t)k->key;
    a.drops = k->dropout > 0;
    a.threshold = a.drops ? (uint32_t)(k->dropout * 4294967296.0) : 0;
    a.keep = a.drops ? (float)(1 / (1 - k->dropout)) : 1;
    return a;
}

static inline int wider_size(const attention &a) {
    return std::max(a.size, a.value_size);
}

static inline void need_shared(const sc_task *task, size_t bytes) {
    if (bytes > (size_t)sc_library(task)->shared_bytes)
        sc_unsupported(task, "attention", "this GPU has too little shared memory a block for this head size");
}

static inline int64_t ceil_of(int64_t n, int64_t step) {
    return (n + step - 1) / step;
}

/* ── tiles ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
template <class E, int D> constexpr int line = D + 16 / (int)sizeof(E); /* elements from row to row of a tile */

/* Starts copying rows first.. of (b, h) into a tile; rows from `limit` on and columns from `size` on are zeros. */
template <class E, int D, int ROWS, int THREADS>
SC_DEVICE void load_tile(E *to, const rows_of &x, int b, int first, int h, int limit, int size) {
    constexpr int PIECE = 16 / (int)sizeof(E), ACROSS = D / PIECE, STEP = THREADS / ACROSS;
    static_assert(THREADS % ACROSS == 0 && ROWS % STEP == 0, "every thread copies one column of pieces");
    int row = threadIdx.x / ACROSS, column = threadIdx.x % ACROSS * PIECE, rows = limit - first;
    const E *base = (const E *)x.p + b * x.batch + h * x.head, *from = base + (first + row) * x.row + column;
    int64_t step = STEP * x.row;
    to += row * line<E, D> + column;
    if (x.wide) {
#pragma unroll
        for (int r = 0; r < ROWS; r += STEP, from += step) {
            bool inside = row + r < rows && column < size;
            sc_cp_async16(to + r * line<E, D>, inside ? from : base, inside);
        }
    } else {
#pragma unroll 1
        for (int r = 0; r < ROWS; r += STEP, from += step)
#pragma unroll 1
            for (int e = 0; e < PIECE; e++)
                to[r * line<E, D> + e] = row + r < rows && column + e < size ? from[e] : E{};
    }
}

/* Copies `rows` rows of a tile, from column c0 of the head on, out to (b, first.., h); `lane` of `lanes` threads. */
template <class E, int D, int COLUMNS>
SC_DEVICE void store_tile(const rows_of &x, int b, int first, int h, int limit, int size, int c0, const E *from,
                          int rows, int lane, int lanes) {
    constexpr int PIECE = 16 / (int)sizeof(E), ACROSS = COLUMNS / PIECE;
    E *to = (E *)x.p + b * x.batch + h * x.head;
    for (int u = lane; u < rows * ACROSS; u += lanes) {
        int row = u / ACROSS, column = u % ACROSS * PIECE, i = first + row;
        if (i >= limit || c0 + column >= size) continue;
        const E *piece = from + row * line<E, D> + column;
        E *target = to + i * x.row + c0 + column;
        if (x.wide)
            *(uint4 *)target = *(const uint4 *)piece;
        else
            for (int e = 0; e < PIECE && c0 + column + e < size; e++) target[e] = piece[e];
    }
}

/* Column values (document, lse, delta) of a tile's rows: a 4-byte copy each. */
SC_DEVICE void load_words(void *to, const void *from, int64_t stride, int first, int count, int limit) {
    for (int x = threadIdx.x; x < count; x += blockDim.x) {
        bool inside = first + x < limit;
        sc_cp_async4((uint32_t *)to + x, (const uint32_t *)from + (inside ? (first + x) * stride : 0), inside);
    }
}

/* ── documents: a tile of keys is passed over where no query of the block can share a document with one of it ───────
 */
struct span {
    int low, high;
};
SC_DEVICE const int32_t *documents_of(const attention &a, int b) {
    return a.documents + b * a.document_batch;
}
SC_DEVICE span document_span(const attention &a, int b, int first, int end) {
    span s = {INT32_MAX, INT32_MIN};
#pragma unroll 1
    for (int i = first + (int)(threadIdx.x & 31); i < end; i += 32) {
        int d = documents_of(a, b)[i * a.document_row];
        s.low = min(s.low, d);
        s.high = max(s.high, d);
    }
    return {__reduce_min_sync(0xffffffffu, s.low), __reduce_max_sync(0xffffffffu, s.high)};
}
SC_DEVICE bool meet(span x, span y) {
    return x.low <= y.high && y.low <= x.high;
}

/* The first and the last key that query i sees, documents aside. */
template <bool MORE> SC_DEVICE int first_seen(const attention &a, int i) {
    return MORE ? max(0, i - a.left) : 0;
}
template <bool MORE> SC_DEVICE int last_seen(const attention &a, int i) {
    if (MORE) return min(i + a.right, a.keys - 1);
    return a.causal ? min(i, a.keys - 1) : a.keys - 1;
}
/* tanh x = 1 - 2 / (e^2x + 1), by the fast power of two, off by some 1e-7 of 1: for operands of 16 bits. */
SC_DEVICE float fast_tanh(float x) {
    return fmaf(-2, sc_reciprocal(sc_exp2(x * 2.885390081777927f) + 1), 1);
}
/* A product of q and k, scaled and capped: c tanh(s / c); slope: 1 - tanh² there. */
template <class E> SC_DEVICE float capped(const attention &a, float s, float &slope) {
    float x = s * a.cap_scale, t = sizeof(E) == 4 ? sc_tanh(x) : fast_tanh(x);
    slope = fmaf(-t, t, 1.0f);
    return a.softcap * t;
}
/* A sink is one score more, whose value is 0. top: the largest score so far, sum: of the powers e^(score - top).
 * Returns what the powers shrink by. */
SC_DEVICE float add_sink(const attention &a, int h, float &top, float &sum) {
    float sink = a.sinks[h], larger = fmaxf(top, sink), shrink = expf(top - larger);
    sum = fmaf(sum, shrink, expf(sink - larger));
    top = larger;
    return shrink;
}
/* The document of row i of `limit`; 0 where there are none, so that all are equal. */
SC_DEVICE int document_of(const attention &a, int b, int i, int limit) {
    return a.documents && i < limit ? documents_of(a, b)[i * a.document_row] : 0;
}

/* ── bias ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
SC_DEVICE int64_t bias_of_head(const attention &a, int b, int h) {
    return b * a.bias.batch + h * a.bias.head;
}
/* Of query i and key j; at: the head's first. */
template <class B> SC_DEVICE float bias_at(const attention &a, int64_t at, int i, int j) {
    return sc_widen(((const B *)a.bias.p)[at + min(i, a.queries - 1) * a.bias.row + min(j, a.keys - 1) * a.bias_key]);
}
SC_DEVICE float bias_at(const attention &a, int64_t at, int i, int j) {
    return a.bias_type == FP32   ? bias_at<float>(a, at, i, j)
           : a.bias_type == BF16 ? bias_at<sc_bf16>(a, at, i, j)
                                 : bias_at<sc_fp16>(a, at, i, j);
}
/* Elements c0 to c3 that this lane holds of MT tiles of 16 × 8. Rows are queries from i, columns keys from j; or
 * (FOR_KEYS) rows are keys from j, columns queries from i. */
template <class B, bool FOR_KEYS, int MT>
SC_DEVICE void bias_fragment(const attention &a, int64_t at, int i, int j, float (&x)[MT][4]) {
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int row = m * 16 + (e >> 1) * 8 + g, column = 2 * t + (e & 1);
            x[m][e] = bias_at<B>(a, at, i + (FOR_KEYS ? column : row), j + (FOR_KEYS ? row : column));
        }
}
template <bool FOR_KEYS, int MT>
SC_DEVICE void bias_fragment(const attention &a, int64_t at, int i, int j, float (&x)[MT][4]) {
    if (a.bias_type == FP32)
        bias_fragment<float, FOR_KEYS>(a, at, i, j, x);
    else if (a.bias_type == BF16)
        bias_fragment<sc_bf16, FOR_KEYS>(a, at, i, j, x);
    else
        bias_fragment<sc_fp16, FOR_KEYS>(a, at, i, j, x);
}

/* ── dropout: word (h·S + i)·T' + j of the sample, T' = T rounded up to four; a Philox block is four keys of a query ──
 */
struct dropper {
    uint32_t k0, k1, sample, step, threshold;
    int64_t head, row; /* blocks before this head, blocks a row */
};
SC_DEVICE dropper dropper_of(const attention &a, int b, int h) {
    uint64_t key = sc_stream_key(a.record->seed, a.key);
    int64_t row = (a.keys + 3) / 4;
    return {(uint32_t)key,
            (uint32_t)(key >> 32),
            (uint32_t)(a.record->first_sample + b),
            (uint32_t)a.record->step,
            a.threshold,
            (int64_t)h * a.queries * row,
            row};
}
/* Bit w: key 4 block + w of query i stays. */
SC_DEVICE uint32_t kept(const dropper &d, int i, int block) {
    uint64_t c = (uint64_t)(d.head + i * d.row + block);
    sc_block r = {{(uint32_t)c, (uint32_t)(c >> 32), d.sample, d.step}};
    r = sc_philox(r, d.k0, d.k1);
    return (uint32_t)(r.w[0] >= d.threshold) | (uint32_t)(r.w[1] >= d.threshold) << 1 |
           (uint32_t)(r.w[2] >= d.threshold) << 2 | (uint32_t)(r.w[3] >= d.threshold) << 3;
}
SC_DEVICE bool keeps(const dropper &d, int i, int j) {
    return kept(d, i, j / 4) >> (j & 3) & 1;
}
/* Bits 0 to 3: whether the elements c0 to c3 that this lane holds of a 16 × 8 tile stay. Each lane draws one block and
 * hands on what its neighbours need. Rows are queries from i, columns keys from j: */
SC_DEVICE uint32_t kept_fragment(const dropper &d, int i, int j) {
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, odd = t & 1;
    uint32_t own = kept(d, i + g + 8 * odd, j / 4 + (t >> 1)), other = __shfl_xor_sync(0xffffffffu, own, 1);
    uint32_t upper = odd ? other : own, lower = odd ? own : other;
    return (upper >> 2 * odd & 3) | (lower >> 2 * odd & 3) << 2;
}
/* Rows are keys from j, columns queries from i: four lanes with one t share four blocks. */
SC_DEVICE uint32_t kept_fragment_of_keys(const dropper &d, int i, int j) {
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, which = g & 3;
    uint32_t four = kept(d, i + 2 * t + (which & 1), j / 4 + (g >> 2) + 2 * (which >> 1)) << 4 * which;
    four |= __shfl_xor_sync(0xffffffffu, four, 4);
    four |= __shfl_xor_sync(0xffffffffu, four, 8);
    four >>= which;
    return (four & 1) | (four >> 4 & 1) << 1 | (four >> 8 & 1) << 2 | (four >> 12 & 1) << 3;
}

/* ── products of tiles, 16-bit operands ─────────────────────────────────────────────────────────────────────────────
 */
/* s += x yᵀ for this warp's 16 MT rows of x from r0 on and 8 NT rows of y. */
template <class E, int D, int MT, int NT>
SC_DEVICE void multiply_rows(float (&s)[MT][NT][4], const E *x, int r0, const E *y) {
    constexpr int L = line<E, D>;
    int lane = threadIdx.x & 31;
    x += (r0 + (lane & 15)) * L + (lane >> 4) * 8;
    y += ((lane & 7) + (lane >> 4) * 8) * L + (lane >> 3 & 1) * 8;
#pragma unroll
    for (int d = 0; d < D; d += 16) {
        uint32_t a[MT][4], b[4];
#pragma unroll
        for (int m = 0; m < MT; m++) sc_ldmatrix(a[m], x + m * 16 * L + d);
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            sc_ldmatrix(b, y + n * 8 * L + d);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                sc_mma<E>(s[m][n], a[m], b[0], b[1]);
                sc_mma<E>(s[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* o += p y for p's 8 NT columns = rows of y; y from column c0 on, 8 CT columns. */
template <class E, int D, int MT, int NT, int CT>
SC_DEVICE void multiply(float (&o)[MT][CT][4], const float (&p)[MT][NT][4], const E *y, int c0) {
    constexpr int L = line<E, D>;
    int lane = threadIdx.x & 31;
    y += ((lane & 7) + (lane >> 3 & 1) * 8) * L + c0 + (lane >> 4) * 8;
#pragma unroll
    for (int k = 0; k < NT; k += 2) {
        uint32_t a[MT][4], b[4];
#pragma unroll
        for (int m = 0; m < MT; m++) {
            a[m][0] = sc_pack<E>(p[m][k][0], p[m][k][1]);
            a[m][1] = sc_pack<E>(p[m][k][2], p[m][k][3]);
            a[m][2] = sc_pack<E>(p[m][k + 1][0], p[m][k + 1][1]);
            a[m][3] = sc_pack<E>(p[m][k + 1][2], p[m][k + 1][3]);
        }
#pragma unroll
        for (int n = 0; n < CT; n += 2) {
            sc_ldmatrix_transposed(b, y + k * 8 * L + n * 8);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                sc_mma<E>(o[m][n], a[m], b[0], b[1]);
                sc_mma<E>(o[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* This warp's rows, times a factor a row, go out by way of its own rows of a tile that it alone still reads. */
template <class E, int D, int MT, int CT>
SC_DEVICE void put_rows(const float (&o)[MT][CT][4], const float (&factor)[MT][2], E *tile, const rows_of &to, int b,
                        int first, int h, int limit, int size, int c0) {
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < CT; n++) {
            E *at = tile + (m * 16 + g) * line<E, D> + n * 8 + 2 * t;
            *(uint32_t *)at = sc_pack<E>(o[m][n][0] * factor[m][0], o[m][n][1] * factor[m][0]);
            *(uint32_t *)(at + 8 * line<E, D>) = sc_pack<E>(o[m][n][2] * factor[m][1], o[m][n][3] * factor[m][1]);
        }
    __syncwarp();
    store_tile<E, D, CT * 8>(to, b, first, h, limit, size, c0, tile, MT * 16, lane, 32);
}

/* ── products of tiles, fp32 ────────────────────────────────────────────────────────────────────────────────────────
 */
template <int D, int RM, int CM> SC_DEVICE void multiply_rows(float (&s)[RM][CM], const float *x, const float *y) {
    constexpr int L = line<float, D>;
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    x += ty * L;
    y += tx * L;
#pragma unroll 4
    for (int d = 0; d < D; d += 4) {
        float4 a[RM], b[CM];
#pragma unroll
        for (int i = 0; i < RM; i++) a[i] = *(const float4 *)(x + 16 * i * L + d);
#pragma unroll
        for (int j = 0; j < CM; j++) b[j] = *(const float4 *)(y + 16 * j * L + d);
#pragma unroll
        for (int i = 0; i < RM; i++)
#pragma unroll
            for (int j = 0; j < CM; j++)
                s[i][j] =
                    fmaf(a[i].w, b[j].w, fmaf(a[i].z, b[j].z, fmaf(a[i].y, b[j].y, fmaf(a[i].x, b[j].x, s[i][j]))));
    }
}

/* o += p y, p in a tile of `columns` columns (rows C + 4 apart). */
template <int D, int C, int RM> SC_DEVICE void multiply(float (&o)[RM][D / 16], const float *p, const float *y) {
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    p += ty * (C + 4);
    y += tx * 4;
#pragma unroll 2
    for (int c = 0; c < C; c += 4) {
        float a[RM][4];
#pragma unroll
        for (int i = 0; i < RM; i++) {
            float4 x = *(const float4 *)(p + 16 * i * (C + 4) + c);
            a[i][0] = x.x, a[i][1] = x.y, a[i][2] = x.z, a[i][3] = x.w;
        }
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
            for (int n = 0; n < D / 16; n++) {
                float b = y[(c + e) * line<float, D> + n / 4 * 64 + n % 4];
#pragma unroll
                for (int i = 0; i < RM; i++) o[i][n] = fmaf(a[i][e], b, o[i][n]);
            }
    }
}

template <int D, int RM>
SC_DEVICE void put_rows(const float (&o)[RM][D / 16], const float (&factor)[RM], const rows_of &x, int b, int first,
                        int h, int limit, int size) {
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    for (int i = 0; i < RM; i++) {
        int row = first + ty + 16 * i;
        float *to = (float *)x.p + b * x.batch + h * x.head + row * x.row;
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            int d = tx * 4 + n / 4 * 64 + n % 4;
            if (row < limit && d < size) to[d] = o[i][n] * factor[i];
        }
    }
}

#endif
