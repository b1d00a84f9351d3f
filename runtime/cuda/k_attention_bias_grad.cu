/* attention's bias: its gradient from go, q, k, v, o, lse.
 * Relies on: attention.h.
 * Relied on by: generated code.
 *
 * The gradient is p·(dp - delta) as in k_attention_grad.cu, without the factors scale and slope, summed over what the
 * bias is one for. A block takes a tile of the gradient. It walks over the samples, heads, tiles of queries and tiles of
 * keys that share the tile, in this order, and each thread adds up the elements that it holds in registers. At the end
 * the block adds up the tile's rows where the bias is one for all queries, and its columns where it is one for all keys.
 * So no two blocks add to one element. A block computes delta of its rows itself and needs no workspace. */
#include "attention.h"

struct bias_task {
    attention a;
    void *to;
    int type;         /* FP32, BF16, FP16 */
    int size[4];      /* of the gradient: [B, H, S, T], each may be 1; contiguous */
    int down, across; /* its tiles along S and along T */
};

/* Rows (queries) and columns (keys) of a tile. */
template <class E, int D> struct tile_of {
    static constexpr int ROWS = 64, COLUMNS = D <= 128 ? 64 : 16, THREADS = 128;
};
template <int D> struct tile_of<float, D> {
    static constexpr int ROWS = D <= 64 ? 64 : D <= 128 ? 32 : 16, COLUMNS = ROWS, THREADS = 256;
};
template <class E, int D> constexpr size_t bias_grad_bytes() {
    using X = tile_of<E, D>;
    return 2 * (X::ROWS + X::COLUMNS) * line<E, D> * sizeof(E) + 2 * X::ROWS * sizeof(float);
}

/* The elements of a tile that a thread holds: as the products of tiles in attention.h leave them. */
template <class E, int D> struct elements {
    static constexpr int NT = tile_of<E, D>::COLUMNS / 8, COUNT = NT * 4;
    float x[1][NT][4] = {};
    __device__ void multiply(const E *rows, const E *columns) {
        multiply_rows<E, D, 1, NT>(x, rows, (threadIdx.x >> 5) * 16, columns);
    }
    __device__ float &at(int n) { return x[0][n / 4][n % 4]; }
    __device__ int row(int n) const {
        return (int)(threadIdx.x >> 5) * 16 + (int)(threadIdx.x >> 2 & 7) + (n & 2) * 4;
    }
    __device__ int column(int n) const { return n / 4 * 8 + (int)(threadIdx.x & 3) * 2 + (n & 1); }
};
template <int D> struct elements<float, D> {
    static constexpr int M = tile_of<float, D>::ROWS / 16, COUNT = M * M;
    float x[M][M] = {};
    __device__ void multiply(const float *rows, const float *columns) { multiply_rows<D>(x, rows, columns); }
    __device__ float &at(int n) { return x[n / M][n % M]; }
    __device__ int row(int n) const { return (int)(threadIdx.x >> 4) + 16 * (n / M); }
    __device__ int column(int n) const { return (int)(threadIdx.x & 15) + 16 * (n % M); }
};

/* lse and delta of the rows of a tile, whose go lies in shared memory. */
template <class E, int D>
SC_DEVICE void row_statistics(const attention &a, const E *go, float *lse, float *delta, int b, int h, int i0) {
    constexpr int LANES = tile_of<E, D>::THREADS / tile_of<E, D>::ROWS;
    int row = threadIdx.x / LANES, lane = threadIdx.x % LANES, i = i0 + row;
    const E *o = (const E *)a.o.p + b * a.o.batch + i * a.o.row + h * a.o.head;
    float sum = 0;
    for (int d = lane; d < a.value_size; d += LANES)
        if (i < a.queries) sum = fmaf(sc_widen(go[row * line<E, D> + d]), sc_widen(o[d]), sum);
    for (int other = LANES / 2; other; other >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, other);
    if (lane || i >= a.queries) return;
    int64_t at = ((int64_t)b * a.heads + h) * a.queries + i;
    lse[row] = a.lse[at] == -INFINITY ? 0 : a.lse[at]; /* a row that sees nothing has hidden scores alone */
    delta[row] = a.dlse ? sum - a.dlse[at] : sum;
}

/* s: a product of q and k, dp: of go and v; at: where the head's bias begins. */
template <class E>
SC_DEVICE float score_grad(const attention &a, const dropper &d, float s, float dp, float lse, float delta, int64_t at,
                           int i, int j) {
    float slope, score = (a.softcap > 0 ? capped<E>(a, s, slope) : s * a.scale) + bias_at(a, at, i, j);
    if (a.threshold) dp = keeps(d, i, j) ? dp * a.keep : 0;
    return expf(score - lse) * (dp - delta);
}

/* All of `all`, or the one. */
SC_DEVICE span shared_by(int size, int all, int one) {
    return size == 1 ? span{0, all} : span{one, one + 1};
}

SC_DEVICE void store(const bias_task &x, int64_t at, float value) {
    if (x.type == FP32)
        sc_narrow((float *)x.to + at, value);
    else if (x.type == BF16)
        sc_narrow((sc_bf16 *)x.to + at, value);
    else
        sc_narrow((sc_fp16 *)x.to + at, value);
}

/* Adds a tile's rows up, its columns up, or both, and writes what is left. */
template <int ROWS, int COLUMNS, int THREADS>
SC_DEVICE void put(const bias_task &x, float *tile, int tb, int th, int ti, int tj) {
    constexpr int L = COLUMNS + 1;
    int t = threadIdx.x, rows = min(ROWS, x.size[2] - ti * ROWS), columns = min(COLUMNS, x.size[3] - tj * COLUMNS);
    __syncthreads();
    if (x.size[2] == 1 && t < COLUMNS)
        for (int r = 1; r < ROWS; r++) tile[t] += tile[r * L + t];
    __syncthreads();
    if (x.size[3] == 1 && t < rows)
        for (int c = 1; c < COLUMNS; c++) tile[t * L] += tile[t * L + c];
    __syncthreads();
    int64_t head = ((int64_t)tb * x.size[1] + th) * x.size[2];
    for (int e = t; e < rows * columns; e += THREADS) {
        int r = e / columns, c = e % columns;
        store(x, (head + ti * ROWS + r) * x.size[3] + tj * COLUMNS + c, tile[r * L + c]);
    }
}

template <class E, int D>
__global__ void __launch_bounds__(tile_of<E, D>::THREADS) bias_gradient(const __grid_constant__ bias_task x) {
    using X = tile_of<E, D>;
    constexpr int ROWS = X::ROWS, COLUMNS = X::COLUMNS, THREADS = X::THREADS, L = line<E, D>;
    const attention &a = x.a;
    SC_SHARED(shared);
    E *q = (E *)shared, *go = q + ROWS * L, *k = go + ROWS * L, *v = k + COLUMNS * L;
    float *lse = (float *)(v + COLUMNS * L), *delta = lse + ROWS, *tile = (float *)shared;
    int u = blockIdx.x, tj = u % x.across, ti = u / x.across % x.down, th = u / x.across / x.down % x.size[1];
    int tb = u / x.across / x.down / x.size[1];
    span samples = shared_by(x.size[0], a.batch, tb), heads = shared_by(x.size[1], a.heads, th);
    span rows = shared_by(x.size[2], (a.queries + ROWS - 1) / ROWS, ti);
    span columns = shared_by(x.size[3], (a.keys + COLUMNS - 1) / COLUMNS, tj);
    elements<E, D> sum;
#pragma unroll 1
    for (int n = 0; n < (samples.high - samples.low) * (heads.high - heads.low) * (rows.high - rows.low); n++) {
        int i0 = (rows.low + n % (rows.high - rows.low)) * ROWS, across = n / (rows.high - rows.low);
        int h = heads.low + across % (heads.high - heads.low), b = samples.low + across / (heads.high - heads.low);
        int first = max(columns.low * COLUMNS, first_seen<true>(a, i0) / COLUMNS * COLUMNS);
        int end = min(columns.high * COLUMNS, last_seen<true>(a, i0 + ROWS - 1) + 1);
        if (first >= end) continue;
        dropper d = a.threshold ? dropper_of(a, b, h) : dropper{};
        int64_t head = bias_of_head(a, b, h);
        __syncthreads(); /* the last tiles are done with */
        load_tile<E, D, ROWS, THREADS>(q, a.q, b, i0, h, a.queries, a.size);
        load_tile<E, D, ROWS, THREADS>(go, a.go, b, i0, h, a.queries, a.value_size);
        sc_cp_wait();
        __syncthreads();
        row_statistics<E, D>(a, go, lse, delta, b, h, i0);
#pragma unroll 1
        for (int j0 = first; j0 < end; j0 += COLUMNS) {
            __syncthreads(); /* the last k and v are done with, the statistics are here */
            load_tile<E, D, COLUMNS, THREADS>(k, a.k, b, j0, h / a.group, a.keys, a.size);
            load_tile<E, D, COLUMNS, THREADS>(v, a.v, b, j0, h / a.group, a.keys, a.value_size);
            sc_cp_wait();
            __syncthreads();
            elements<E, D> s, dp;
            s.multiply(q, k);
            dp.multiply(go, v);
#pragma unroll
            for (int e = 0; e < sum.COUNT; e++) {
                int row = sum.row(e), i = i0 + row, j = j0 + sum.column(e);
                bool seen = i < a.queries && j >= first_seen<true>(a, i) && j <= last_seen<true>(a, i) &&
                            document_of(a, b, i, a.queries) == document_of(a, b, j, a.keys);
                if (seen) sum.at(e) += score_grad<E>(a, d, s.at(e), dp.at(e), lse[row], delta[row], head, i, j);
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < sum.COUNT; e++) tile[sum.row(e) * (COLUMNS + 1) + sum.column(e)] = sum.at(e);
    put<ROWS, COLUMNS, THREADS>(x, tile, tb, th, ti, tj);
}

template <class E, int D> static void launch(const sc_task *t, bias_task x) {
    using X = tile_of<E, D>;
    static_assert(X::ROWS * (X::COLUMNS + 1) * sizeof(float) <= bias_grad_bytes<E, D>(), "sums lie where tiles did");
    need_shared(t, bias_grad_bytes<E, D>());
    x.down = (int)ceil_of(x.size[2], X::ROWS);
    x.across = (int)ceil_of(x.size[3], X::COLUMNS);
    int64_t blocks = (int64_t)x.size[0] * x.size[1] * x.down * x.across;
    sc_launch(bias_gradient<E, D>, blocks, X::THREADS, bias_grad_bytes<E, D>(), SC_STREAM(t), x);
}
template <class E> static void launch_for_size(const sc_task *t, const bias_task &x) {
    int size = wider_size(x.a);
    (size <= 64 ? launch<E, 64> : size <= 128 ? launch<E, 128> : launch<E, 256>)(t, x);
}

SC_KERNEL(attention_bias_grad) {
    bias_task x = {};
    x.a = attention_of(task, k);
    x.a.go = rows_of_tensor(task, &k->g);
    x.a.dlse = (const float *)k->dlse.p;
    x.to = k->dbias.p;
    x.type = k->dbias.dtype;
    for (int i = 0; i < 4; i++) x.size[i] = (int)k->dbias.shape[i];
    switch (k->q.dtype) {
    case BF16: launch_for_size<sc_bf16>(task, x); break;
    case FP16: launch_for_size<sc_fp16>(task, x); break;
    default: launch_for_size<float>(task, x);
    }
}
