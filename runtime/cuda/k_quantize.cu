/* quantize: a tensor, or gelu, a gate or a norm of it, over a scale in 8 bits, as it lies, turned, or both, in one
 * pass; absmax: its largest magnitude; quantize_gates, absmax_gates: of both gradients of a gate; update_amax: the
 * history that scales come from. Relies on: fp8.cuh, magnitude.cuh, sc_amax.h. Relied on by: generated code (products
 * in 8 bits).
 *
 * A block takes 128 rows of 64 columns, a thread 4 rows of 8 columns: 4 bytes of each column are a word of shared
 * memory, from where columns are written in runs of 128 bytes. */
#include "../sc_amax.h"
#include "fp8.cuh"
#include "magnitude.cuh"

namespace {

enum { ROWS = SC_SUMMED_ROWS, COLUMNS = 64, DEEP = 4, WORDS = ROWS / DEEP, LINE = WORDS + 1 };
enum { INFINITE = 0x7f800000 }; /* bits */
static_assert(WORDS * (COLUMNS / RUN) == BLOCK, "a thread for each part of a tile");

struct target {
    const float *amax;
    float *seen; /* NULL: amax is the tensor's own */
    float *scale;
    uint8_t *y, *turned; /* NULL: it is not wanted */
};
struct work {
    sources from;
    target to[2];
    float most, *sums; /* sums: NULL: they are not wanted */
    int e5m2;
    int64_t rows, cols, across;
    const int32_t *counts; /* of the groups that share the rows, behind which all is 0; NULL: all rows count */
    int64_t groups;
};

/* Where there is no history the largest magnitude has been found, and stands in `seen`. */
SC_DEVICE float amax_of(const target &t) {
    float amax = *t.amax;
    return amax == 0 && t.seen ? *(volatile float *)t.seen : amax;
}
/* What a thread reads. */
template <class E, int W, class P> struct operands {
    eight<E, W> x[P::IN + P::BY_COLUMN][DEEP]; /* by column: the first alone */
    float by_row[DEEP][P::BY_ROW + 1];

    /* Of `deep` rows from r on and `left` columns from c on. Where rows have statistics the last ones are taken again:
     * what is not there is not 0. With W > 1 all of DEEP rows are there, or none. */
    SC_DEVICE void load(const work &k, int64_t r, int deep, int64_t c, int left) {
        if (P::BY_ROW > 0 && W > 1 && deep <= 0) r += deep - DEEP;
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            int64_t row = r + (P::BY_ROW > 0 && W == 1 && d >= deep ? deep - 1 : d);
#pragma unroll
            for (int j = 0; j < P::IN; j++)
                x[j][d].load((const typename E::type *)k.from.x[j] + row * k.cols + c,
                             P::BY_ROW > 0 || d < deep ? left : 0);
#pragma unroll
            for (int j = 0; j < P::BY_ROW; j++) by_row[d][j] = k.from.row[j][row];
        }
#pragma unroll
        for (int j = 0; j < P::BY_COLUMN; j++)
#pragma unroll
            for (int i = 0; i < RUN / W; i++) {
                raw<E, W> *to = &x[P::IN + j][0].run[i];
                if (i * W < left)
                    load_column<P>(to, k.from, j, c + i * W);
                else
                    to->clear();
            }
    }
    SC_DEVICE void get(int d, int i, float *in) const {
#pragma unroll
        for (int j = 0; j < P::IN + P::BY_COLUMN; j++) in[j] = x[j][j < P::IN ? d : 0].get(i);
#pragma unroll
        for (int j = 0; j < P::BY_ROW; j++) in[P::IN + P::BY_COLUMN + j] = by_row[d][j];
    }
};

/* What a thread has read, in 8 bits. `mend`: what is infinite becomes NaN. */
template <class P, bool SUMS> struct narrow {
    uint32_t bytes[P::OUT][2][DEEP]; /* of the first four columns, of the others */
    int most[P::OUT];
    float sum[SUMS ? RUN : 1];

    template <class E, int W> SC_DEVICE void make(const operands<E, W, P> &x, const float *by, bool e5m2, bool mend) {
#pragma unroll
        for (int o = 0; o < P::OUT; o++) most[o] = 0;
#pragma unroll
        for (int j = 0; j < RUN && SUMS; j++) sum[j] = 0;
#pragma unroll
        for (int d = 0; d < DEEP; d++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float out[4][P::OUT];
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float in[P::ALL];
                    x.get(d, 4 * h + e, in);
                    P::of(in, out[e]);
                    if constexpr (SUMS) sum[4 * h + e] += out[e][0];
#pragma unroll
                    for (int o = 0; o < P::OUT; o++) {
                        most[o] = max(most[o], magnitude_of(out[e][o]));
                        if (mend && magnitude_of(out[e][o]) == INFINITE) out[e][o] = NAN;
                    }
                }
#pragma unroll
                for (int o = 0; o < P::OUT; o++)
                    bytes[o][h][d] = two_fp8(e5m2, out[0][o] * by[o], out[1][o] * by[o]) |
                                     two_fp8(e5m2, out[2][o] * by[o], out[3][o] * by[o]) << 16;
            }
    }
};

/* W: elements that are read at once, 8 bytes of y being written so too; 1: layouts of any kind. All is read before
 * anything is written: 3.87 instead of 3.2 TB/s of the 4.1 that a copy has (one H200, 2026-11-29, 32768 rows of 6400).
 * As many blocks an SM as registers allow without spilling: at 3 blocks a plain tensor had 2.85 TB/s within a step. */
template <class E, int W, class P, bool SUMS>
__global__ void __launch_bounds__(BLOCK, (P::IN == 1   ? 6
                                          : P::IN == 2 ? 4
                                                       : 3) -
                                             P::BY_ROW) quantize(const __grid_constant__ work k) {
    __shared__ uint32_t tile[COLUMNS * LINE];
    __shared__ int largest[P::OUT][BLOCK / WARP];
    int64_t r0 = blockIdx.x / k.across * ROWS, c0 = blockIdx.x % k.across * COLUMNS;
    int run = (int)threadIdx.x % (COLUMNS / RUN) * RUN, word = (int)threadIdx.x / (COLUMNS / RUN);
    bool counted = P::OUT == 1 && k.counts; /* of a gate's gradients none are */
    int64_t c = c0 + run, rows = counted ? sc_rows_taken(k.counts, k.groups, k.rows, threadIdx.x % WARP) : k.rows;
    int left = k.cols - c < RUN ? (int)(k.cols - c) : RUN, deep = rows - r0 < ROWS ? (int)(rows - r0) : ROWS;
    operands<E, W, P> x;
    float by[P::OUT];
    narrow<P, SUMS> n;
    x.load(k, r0 + word * DEEP, deep - word * DEEP, c, left);
#pragma unroll
    for (int o = 0; o < P::OUT; o++) {
        float amax = amax_of(k.to[o]);
        by[o] = amax == 0 ? 1 : k.most / amax;
        if (blockIdx.x == 0 && threadIdx.x == 0) *k.to[o].scale = amax == 0 ? 1 : amax / k.most;
    }
    n.make(x, by, k.e5m2, false);
    if (k.to[0].seen && (n.most[0] >= INFINITE || n.most[P::OUT - 1] >= INFINITE)) {
        x.load(k, r0 + word * DEEP, deep - word * DEEP, c, left); /* registers hold it no longer */
        n.make(x, by, k.e5m2, true);
    }
#pragma unroll
    for (int o = 0; o < P::OUT; o++)
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            int64_t r = r0 + word * DEEP + d;
            if (!k.to[o].y || r >= k.rows || left <= 0) continue;
            uint8_t *y = k.to[o].y + r * k.cols + c;
            if constexpr (W > 1) {
                *(uint2 *)y = make_uint2(n.bytes[o][0][d], n.bytes[o][1][d]);
            } else {
                for (int j = 0; j < RUN && j < left; j++) y[j] = byte_of(n.bytes[o][j / 4][d], j % 4);
            }
        }
#pragma unroll
    for (int o = 0; o < P::OUT; o++) {
        if (k.to[o].seen) note(largest[o], n.most[o]);
        if (!k.to[o].turned) continue;
        if (o) __syncthreads();
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t column[4];
            turn(n.bytes[o][h], column);
#pragma unroll
            for (int j = 0; j < 4; j++) tile[(run + 4 * h + j) * LINE + word] = column[j];
        }
        __syncthreads();
        for (int u = (int)threadIdx.x; u < COLUMNS * WORDS; u += BLOCK) {
            int64_t column = c0 + u / WORDS, r = r0 + u % WORDS * DEEP;
            uint32_t w = tile[u / WORDS * LINE + u % WORDS];
            if (column >= k.cols || r >= k.rows) continue;
            uint8_t *to = k.to[o].turned + column * k.rows + r;
            if constexpr (W > 1) {
                *(uint32_t *)to = w;
            } else {
                for (int d = 0; d < DEEP && r + d < k.rows; d++) to[d] = byte_of(w, d);
            }
        }
    }
    if (k.to[0].seen) {
        if (!k.to[0].turned) __syncthreads();
        if (threadIdx.x < P::OUT) saw(k.to[threadIdx.x].seen, largest[threadIdx.x]);
    }
    if constexpr (SUMS) {
        __shared__ float part[BLOCK / WARP][COLUMNS]; /* of 16 rows each */
#pragma unroll
        for (int j = 0; j < RUN; j++) {
            n.sum[j] += __shfl_xor_sync(SC_ALL, n.sum[j], 8);
            n.sum[j] += __shfl_xor_sync(SC_ALL, n.sum[j], 16);
            if (threadIdx.x % WARP < COLUMNS / RUN) part[threadIdx.x / WARP][run + j] = n.sum[j];
        }
        __syncthreads();
        if (threadIdx.x >= COLUMNS || c0 + threadIdx.x >= k.cols) return;
        float all = 0;
        for (int w = 0; w < BLOCK / WARP; w++) all += part[w][threadIdx.x];
        k.sums[r0 / ROWS * k.cols + c0 + threadIdx.x] = all;
    }
}

target target_of(const sc_tensor *amax, const sc_tensor *seen, const sc_tensor *scale, const sc_tensor *y,
                 const sc_tensor *turned, bool turn) {
    return {(const float *)amax->p, (float *)seen->p, (float *)scale->p, turn ? NULL : (uint8_t *)y->p,
            (uint8_t *)(turn ? y->p : turned->p)};
}

template <class P> void start(const sc_task *task, const sc_tensor *x, int to, work w) {
    w.e5m2 = to == FP8_E5M2;
    w.most = w.e5m2 ? 57344.0f : 448.0f;
    w.rows = rows_of(x);
    w.cols = cols_of(x);
    w.across = ceil_div(w.cols, COLUMNS);
    bool runs = w.cols % RUN == 0 && w.rows % DEEP == 0;
    magnitudes m = {};
    m.n = w.rows * w.cols;
    m.counts = w.counts, m.groups = w.groups, m.cols = w.cols;
    m.from = w.from;
    for (int j = 0; j < P::IN; j++) runs = runs && aligned(w.from.x[j], 16);
    for (int j = 0; j < P::BY_COLUMN; j++) runs = runs && aligned(w.from.column[j], 16);
    for (int o = 0; o < P::OUT; o++) {
        runs = runs && aligned(w.to[o].y, 8) && aligned(w.to[o].turned, 4);
        m.known[o] = w.to[o].amax, m.to[o] = w.to[o].seen;
    }
    if (m.to[0]) find_magnitudes<P>(task, x->dtype, m);
    with_runs(task, x->dtype, runs, [&](auto e, auto width) {
        int64_t blocks = w.across * ceil_div(w.rows, ROWS);
        with_flag(w.sums, [&](auto sums) {
            constexpr bool SUMS = sums.value && P::OUT == 1 && P::BY_ROW == 0;
            sc_launch(quantize<decltype(e), width.value, P, SUMS>, blocks, BLOCK, 0, SC_STREAM(task), w);
        });
    });
}

template <class P> void find_all(const sc_task *task, const sc_tensor *x, magnitudes m) {
    m.n = sc_numel(x), m.cols = cols_of(x);
    for (int o = 0; o < P::OUT; o++) SC_CUDA(cudaMemsetAsync(m.to[o], 0, sizeof(float), SC_STREAM(task)));
    find_magnitudes<P>(task, x->dtype, m);
}

/* Of absmax and quantize: what they read, and f(plain{}) and so on. */
template <class K> sources sources_of(const K *k) {
    return {{k->x.p, k->gate.p}, {k->w.p, k->b.p}, {(const float *)k->rstd.p, (const float *)k->mean.p}};
}
template <class K, class F> void with_values(const K *k, F f) {
    if (k->mean.p)
        f(layer_normed{});
    else if (k->rstd.p)
        f(rms_normed{});
    else if (k->f == SC_GATED)
        f(gated{});
    else if (k->f == SC_GELU)
        f(gelu{});
    else if (k->f)
        f(gelu_grad{});
    else
        f(plain{});
}

/* One thread a site. */
__global__ void __launch_bounds__(BLOCK)
    update_amax(const float *all, int64_t ranks, int64_t n, float *history, int row, const float *coefficient) {
    int64_t site = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (site >= n || (coefficient && coefficient[1] != 0)) return;
    float now = 0;
    for (int64_t r = 0; r < ranks; r++) now = larger(now, all[r * n + site]);
    if (isfinite(now)) sc_amax_remember(history + site * row, row, now);
}

} // namespace

SC_KERNEL(absmax) {
    magnitudes m = {sources_of(k), {}, {(float *)k->y.p}, 0};
    m.counts = (const int32_t *)k->counts.p, m.groups = m.counts ? sc_numel(&k->counts) : 0;
    with_values(k, [&](auto p) { find_all<decltype(p)>(task, &k->x, m); });
}

SC_KERNEL(absmax_gates) {
    find_all<gate_grads>(task, &k->g,
                         {{{k->g.p, k->gate.p, k->up.p}, {}, {}}, {}, {(float *)k->dgate.p, (float *)k->dup.p}, 0});
}

SC_KERNEL(quantize) {
    work w = {};
    w.from = sources_of(k);
    w.to[0] = target_of(&k->amax, &k->seen, &k->scale, &k->y, &k->turned, k->turn);
    w.sums = (float *)k->sums.p;
    w.counts = (const int32_t *)k->counts.p, w.groups = w.counts ? sc_numel(&k->counts) : 0;
    with_values(k, [&](auto p) { start<decltype(p)>(task, &k->x, k->y.dtype, w); });
}

SC_KERNEL(quantize_gates) {
    work w = {};
    w.from = {{k->g.p, k->gate.p, k->up.p}, {}, {}};
    w.to[0] = target_of(&k->dgate_amax, &k->dgate_seen, &k->dgate_scale, &k->dgate, &k->dgate_turned, false);
    w.to[1] = target_of(&k->dup_amax, &k->dup_seen, &k->dup_scale, &k->dup, &k->dup_turned, false);
    start<gate_grads>(task, &k->g, k->dgate.dtype, w);
}

SC_KERNEL(update_amax) {
    int64_t n = rows_of(&k->history);
    bool may_skip = k->coefficient.p && sc_numel(&k->coefficient) > 1;
    SC_LAUNCH(task, update_amax, blocks_for(n, BLOCK), BLOCK, (const float *)k->all.p, sc_numel(&k->all) / n, n,
              (float *)k->history.p, (int)cols_of(&k->history), may_skip ? (const float *)k->coefficient.p : NULL);
}
