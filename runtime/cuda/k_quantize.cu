/* quantize: a tensor, or gelu, a gate or a norm of it, over a scale in 8 bits, as it lies, turned, or both, in one
 * pass; absmax: its largest magnitude; quantize_gates, absmax_gates: of both gradients of a gate; quantize_rope: of
 * what rope makes; update_amax: the history that scales come from. Relies on: fp8.cuh, magnitude.cuh, rope.cuh,
 * sc_amax.h. Relied on by: generated code (products in 8 bits).
 *
 * A block takes 128 rows of 64 columns, a thread 4 rows of 8 columns: 4 bytes of each column are a word of shared
 * memory, from where columns are written in runs of 128 bytes. */
#include "../sc_amax.h"
#include "fp8.cuh"
#include "magnitude.cuh"
#include "rope.cuh"

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

/* Of pairs that turn, heads of columns being [2][half]: a thread has 4 columns and the 4 that they turn with. */
struct turned_pairs : values<1, 1> { /* of x, what it turns with, and what these are multiplied by */
    enum { ALL = 4, PAIRS = 1 };
    static SC_DEVICE void of(const float *x, float *y) { y[0] = x[0] * x[2] + x[1] * x[3]; }
};
struct pair_work : work {
    const int32_t *positions; /* NULL: places in the sequence */
    int64_t seq, pb, ps;      /* strides of batch, sequence */
    int64_t turned;           /* columns, from the first on */
    int half;
    float sign, scale, frequency[128];
};
template <class P> using work_of = typename std::conditional<P::PAIRS, pair_work, work>::type;

/* The first column of a tile, and how far behind it the tile's column j lies. */
template <class P> SC_DEVICE int64_t first_column(const work_of<P> &k, int64_t tile) {
    if constexpr (P::PAIRS) {
        int pair = (int)tile * (COLUMNS / 2);
        return pair / k.half * k.half + pair;
    }
    return tile * COLUMNS;
}
template <class P> SC_DEVICE int column_of(const work_of<P> &k, int j) {
    if constexpr (P::PAIRS) return j / RUN * 4 + j % 4 + (j & 4 ? k.half : 0);
    return j;
}

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

/* 8 bits tell no more of an angle than a GPU's own instructions do, once whole turns are taken off it. */
SC_DEVICE void sines_of(float angle, float *sine, float *cosine) {
#ifdef __CUDA_ARCH__
    float turns = angle * 0.159154943f + 12582912.0f - 12582912.0f; /* the nearest whole number */
    float r = sc_fma(turns, 1.74845553e-7f, sc_fma(turns, -6.28318548f, angle));
    *sine = __sinf(r), *cosine = __cosf(r);
#else
    sc_sincos((double)angle, sine, cosine);
#endif
}

template <class E, int W> struct operands<E, W, turned_pairs> {
    raw<E, 4> x[DEEP][2];
    float place[DEEP], frequency[4], sign, scale;

    SC_DEVICE void load(const pair_work &k, int64_t r, int deep, int64_t c, int) {
        bool turns = c < k.turned;
        sign = k.sign, scale = turns ? k.scale : 1;
        int64_t b = row_of(r, k.seq), s = r - b * k.seq;
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            const typename E::type *from = (const typename E::type *)k.from.x[0] + (r + d) * k.cols + c;
            place[d] = 0;
            x[d][0].clear(), x[d][1].clear();
            if (d >= deep) continue;
            x[d][0].load(from), x[d][1].load(from + k.half);
            place[d] = (float)(k.positions ? k.positions[b * k.pb + s * k.ps] : s);
            if (++s == k.seq) s = 0, b++;
        }
#pragma unroll
        for (int j = 0; j < 4; j++) frequency[j] = turns ? k.frequency[(int)c % k.half + j] : 0;
    }
    SC_DEVICE void get(int d, int i, float *in) const {
        float sine, cosine;
        sines_of(place[d] * frequency[i % 4], &sine, &cosine);
        in[0] = x[d][i / 4].get(i % 4), in[1] = x[d][1 - i / 4].get(i % 4);
        in[2] = cosine * scale, in[3] = (i < 4 ? -sine : sine) * (sign * scale);
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
__global__ void __launch_bounds__(BLOCK, (P::PAIRS     ? 4
                                          : P::IN == 1 ? 6
                                          : P::IN == 2 ? 4
                                                       : 3) -
                                             P::BY_ROW) quantize(const __grid_constant__ work_of<P> k) {
    __shared__ uint32_t tile[COLUMNS * LINE];
    __shared__ int largest[P::OUT][BLOCK / WARP];
    int64_t r0 = blockIdx.x / k.across * ROWS, c0 = first_column<P>(k, blockIdx.x % k.across);
    int run = (int)threadIdx.x % (COLUMNS / RUN) * RUN, word = (int)threadIdx.x / (COLUMNS / RUN);
    bool counted = P::OUT == 1 && k.counts; /* of a gate's gradients none are */
    int64_t c = c0 + column_of<P>(k, run),
            rows = counted ? sc_rows_taken(k.counts, k.groups, k.rows, threadIdx.x % WARP) : k.rows;
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
            if constexpr (P::PAIRS) {
                *(uint32_t *)y = n.bytes[o][0][d], *(uint32_t *)(y + k.half) = n.bytes[o][1][d];
            } else if constexpr (W > 1) {
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
            int64_t column = c0 + column_of<P>(k, u / WORDS), r = r0 + u % WORDS * DEEP;
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
        int64_t column = c0 + column_of<P>(k, threadIdx.x);
        if (threadIdx.x >= COLUMNS || column >= k.cols) return;
        float all = 0;
        for (int w = 0; w < BLOCK / WARP; w++) all += part[w][threadIdx.x];
        k.sums[r0 / ROWS * k.cols + column] = all;
    }
}

/* As find_magnitudes does. */
template <class E, int W, class P>
__global__ void __launch_bounds__(BLOCK) find_in_tiles(const __grid_constant__ work_of<P> k, int64_t tiles) {
    __shared__ int part[BLOCK / WARP];
    int run = (int)threadIdx.x % (COLUMNS / RUN) * RUN, word = (int)threadIdx.x / (COLUMNS / RUN), most = 0;
    if (*k.to[0].amax != 0) return;
    for (int64_t u = blockIdx.x; u < tiles; u += gridDim.x) {
        int64_t r = u / k.across * ROWS + word * DEEP, left = k.rows - r;
        operands<E, W, P> x;
        x.load(k, r, left < DEEP ? (int)left : DEEP, first_column<P>(k, u % k.across) + column_of<P>(k, run), RUN);
#pragma unroll
        for (int d = 0; d < DEEP; d++)
#pragma unroll
            for (int i = 0; i < RUN; i++) {
                float in[P::ALL], y;
                x.get(d, i, in);
                P::of(in, &y);
                most = max(most, magnitude_of(y));
            }
    }
    note(part, most);
    __syncthreads();
    if (threadIdx.x == 0) saw(k.to[0].seen, part);
}

target target_of(const sc_tensor *amax, const sc_tensor *seen, const sc_tensor *scale, const sc_tensor *y,
                 const sc_tensor *turned, bool turn) {
    return {(const float *)amax->p, (float *)seen->p, (float *)scale->p, turn ? NULL : (uint8_t *)y->p,
            (uint8_t *)(turn ? y->p : turned->p)};
}

/* w.cols: where they are not x's; else 0. */
template <class P> void start(const sc_task *task, const sc_tensor *x, int to, work_of<P> w) {
    w.e5m2 = to == FP8_E5M2;
    w.most = w.e5m2 ? 57344.0f : 448.0f;
    if (!w.cols) w.cols = cols_of(x);
    w.rows = w.cols ? sc_numel(x) / w.cols : 0;
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
    int64_t blocks = w.across * ceil_div(w.rows, ROWS);
    if constexpr (!P::PAIRS)
        if (m.to[0]) find_magnitudes<P>(task, x->dtype, m);
    with_runs(task, x->dtype, runs, [&](auto e, auto width) {
        constexpr int W = P::PAIRS ? wide<decltype(e)> : width.value;
        if constexpr (P::PAIRS)
            SC_LAUNCH(task, (find_in_tiles<decltype(e), W, P>), ceil_div(filling(task, blocks), 8), BLOCK, w, blocks);
        with_flag(w.sums, [&](auto sums) {
            constexpr bool SUMS = sums.value && P::OUT == 1 && P::BY_ROW == 0;
            sc_launch(quantize<decltype(e), W, P, SUMS>, blocks, BLOCK, 0, SC_STREAM(task), w);
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

SC_KERNEL(quantize_rope) {
    sc_rope_args turn = {};
    turn.frequencies = k->frequencies, turn.theta = k->theta, turn.factor = k->factor;
    turn.low = k->low, turn.high = k->high, turn.context = k->context;
    int64_t head = k->x.shape[3];
    pair_work w = {};
    w.from = {{k->x.p}, {}, {}};
    w.to[0] = target_of(&k->amax, &k->seen, &k->scale, &k->y, &k->turned, false);
    w.sums = (float *)k->sums.p;
    w.cols = k->x.shape[2] * head;
    w.positions = (const int32_t *)k->positions.p, w.seq = k->x.shape[1];
    if (w.positions) w.pb = k->positions.stride[0], w.ps = k->positions.stride[1];
    w.turned = (k->heads ? k->heads : k->x.shape[2]) * head;
    w.half = (int)(head / 2);
    w.sign = k->inverse ? -1 : 1;
    w.scale = k->amplitude != 0 ? (float)k->amplitude : 1;
    for (int i = 0; i < w.half; i++) w.frequency[i] = frequency_of(&turn, i, head);
    start<turned_pairs>(task, &k->x, k->y.dtype, w);
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
