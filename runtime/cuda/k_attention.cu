/* attention, forward: o = dropout(softmax(scale · q kᵀ + mask)) v per head, and lse, the rows' log Σ e^score.
 * Relies on: attention.h.
 * Relied on by: generated code, attention's gradient.
 *
 * One block takes a tile of queries of one head and walks over tiles of keys with the running maximum m and sum l of
 * each row (Milakov and Gimelshein 2018; Dao et al. 2022; the shape of the loop is that of FlashAttention-2, Dao 2023):
 *   s = q kᵀ,  m' = max(m, max s),  p = e^(scale (s - m')),  l = l e^(scale (m - m')) + Σ p,  o = o e^(..) + mask(p) v,
 *   at the end  o / (l (1 - dropout)),  lse = scale m + log l.
 * Query i sees key j if i - left <= j <= i + right and document[i] = document[j]. With a soft cap
 * s = cap tanh(s / cap); a bias is added to it. Query head h reads key head h / (H / Hkv). Tiles of keys that no query
 * of the block sees are passed over: they would add zeros. While scores are multiplied, v is on its way; while v is, the
 * next k. All this is for what neither the kernels for compute capability 9.0 (attention_hopper.h) nor cuDNN
 * (attention_cudnn.h) compute. */
#include "attention.h"
#include "attention_hopper.h"

template <int MT_, int KEYS_> struct forward_shape {
    static constexpr int MT = MT_, KEYS = KEYS_, QUERIES = 64 * MT; /* 4 warps of MT 16-row tiles */
};
template <int D> struct forward_of : forward_shape<2, 64> {};
template <> struct forward_of<256> : forward_shape<1, 32> {};

template <class E, int D> constexpr size_t forward_bytes() {
    using F = forward_of<D>;
    return (F::QUERIES + 2 * F::KEYS) * line<E, D> * sizeof(E) + 2 * F::KEYS * sizeof(int32_t);
}

/* Where the walk over keys begins or goes on: at `j`, or at the first tile after it that some query may see. */
struct walk {
    int step, end;
    span queries;
};
template <bool MORE> SC_DEVICE walk walk_of(const attention &a, int b, int i0, int rows, int step) {
    walk w = {step, last_seen<MORE>(a, i0 + rows - 1) + 1, {0, 0}};
    if (a.documents) w.queries = document_span(a, b, i0, min(i0 + rows, a.queries));
    return w;
}
SC_DEVICE int reach(const attention &a, const walk &w, int b, int j) {
    if (a.documents)
        while (j < w.end && !meet(w.queries, document_span(a, b, j, min(j + w.step, a.keys)))) j += w.step;
    return j;
}

/* ── bf16, fp16 ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
template <int MT, int CT> struct state { /* of this warp's rows; [0]: row g, [1]: row g + 8 of each 16 */
    float o[MT][CT][4], most[MT][2], sum[MT][2];
};

/* Scores become powers of two; o and the sums are brought to the new maximum. `unit`: log2(e) · |scale|. */
template <int MT, int NT, int CT> SC_DEVICE void soften(state<MT, CT> &w, float (&s)[MT][NT][4], float unit) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float most = w.most[m][half];
#pragma unroll
            for (int n = 0; n < NT; n++) most = fmaxf(most, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
            float base = most == -INFINITY ? 0 : most * unit; /* a row that has seen nothing yet */
            float shrink = sc_exp2(fmaf(w.most[m][half], unit, -base)), sum = 0;
            w.most[m][half] = most;
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; e++) {
                    s[m][n][e] = sc_exp2(fmaf(s[m][n][e], unit, -base));
                    sum += s[m][n][e];
                }
            w.sum[m][half] = fmaf(w.sum[m][half], shrink, sum); /* this lane's columns; the four meet at the end */
#pragma unroll
            for (int n = 0; n < CT; n++) {
                w.o[m][n][2 * half] *= shrink;
                w.o[m][n][2 * half + 1] *= shrink;
            }
        }
}

/* Sets to -inf what must not be seen. i: this warp's first query, j: the tile's first key. */
template <bool MORE, int MT, int NT>
SC_DEVICE void hide(const attention &a, float (&s)[MT][NT][4], int i, int j, const int (&own)[MT][2],
                    const int32_t *documents) {
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, first[MT][2], last[MT][2];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            first[m][half] = first_seen<MORE>(a, i + m * 16 + half * 8 + g) - j - 2 * t;
            last[m][half] = last_seen<MORE>(a, i + m * 16 + half * 8 + g) - j - 2 * t;
        }
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int d = a.documents ? documents[n * 8 + 2 * t + e] : 0;
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    bool seen = n * 8 + e <= last[m][half] && d == own[m][half] && (!MORE || n * 8 + e >= first[m][half]);
                    s[m][n][2 * half + e] = seen ? s[m][n][2 * half + e] : -INFINITY;
                }
        }
}

template <class E, int MT, int NT> SC_DEVICE void cap(const attention &a, float (&s)[MT][NT][4]) {
    float slope;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[m][n][e] = capped<E>(a, s[m][n][e], slope);
}

/* Products of q and k become scores: scaled, capped where there is a cap, and the bias added. */
template <class E, int MT, int NT>
SC_DEVICE void add_bias(const attention &a, float (&s)[MT][NT][4], int b, int h, int i, int j) {
    float slope, bias[MT][4];
    int64_t at = bias_of_head(a, b, h);
#pragma unroll
    for (int n = 0; n < NT; n++) {
        bias_fragment<false>(a, at, i, j + n * 8, bias);
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[m][n][e] = (a.softcap > 0 ? capped<E>(a, s[m][n][e], slope) : s[m][n][e] * a.scale) + bias[m][e];
    }
}

template <int MT, int NT> SC_DEVICE void drop(const dropper &d, float (&s)[MT][NT][4], int i, int j) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++) {
            uint32_t stay = kept_fragment(d, i + m * 16, j + n * 8);
#pragma unroll
            for (int e = 0; e < 4; e++) s[m][n][e] = stay >> e & 1 ? s[m][n][e] : 0;
        }
}

template <int MT, int CT>
SC_DEVICE void finish(const attention &a, state<MT, CT> &w, float (&factor)[MT][2], int b, int h, int i) {
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = w.sum[m][half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            float most = w.most[m][half], top = most == -INFINITY ? most : most * a.unit, shrink = 1;
            if (a.sinks) shrink = add_sink(a, h, top, sum);
            factor[m][half] = sum == 0 ? 0 : a.keep * shrink / sum;
            int row = i + m * 16 + half * 8 + g;
            if (t == 0 && row < a.queries)
                a.lse[((int64_t)b * a.heads + h) * a.queries + row] =
                    a.sinks             ? top + logf(sum)
                    : most == -INFINITY ? -INFINITY
                                        : fmaf(most, a.unit, logf(sum));
        }
}

template <class E, int D, bool DROP, bool MORE, bool BIAS = false>
__global__ void __launch_bounds__(128, D <= 64 && !DROP && !MORE ? 3 : 2) forward(const __grid_constant__ attention a) {
    using F = forward_of<D>;
    constexpr int MT = F::MT, KEYS = F::KEYS, NT = KEYS / 8, CT = D / 8;
    SC_SHARED(shared);
    E *sq = (E *)shared, *sk = sq + F::QUERIES * line<E, D>, *sv = sk + KEYS * line<E, D>;
    int32_t *sd = (int32_t *)(sv + KEYS * line<E, D>); /* documents of the keys, of this tile and of the next */
    int tiles = (a.queries + F::QUERIES - 1) / F::QUERIES, tile = blockIdx.x % tiles;
    int h = blockIdx.x / tiles % a.heads, b = blockIdx.x / tiles / a.heads, kv = h / a.group;
    if (a.causal) tile = tiles - 1 - tile; /* the longest first */
    int i0 = tile * F::QUERIES, r0 = (threadIdx.x >> 5) * 16 * MT, i = i0 + r0, g = threadIdx.x >> 2 & 7;
    float unit = fmaxf(a.unit * 1.4426950408889634f, 1e-30f); /* not 0: what is hidden is -inf times this */
    walk w = walk_of<MORE>(a, b, i0, F::QUERIES, KEYS);
    dropper d = DROP ? dropper_of(a, b, h) : dropper{};
    state<MT, CT> x;
    int own[MT][2];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = i + m * 16 + half * 8 + g;
            x.most[m][half] = -INFINITY;
            x.sum[m][half] = 0;
            own[m][half] = document_of(a, b, row, a.queries);
#pragma unroll
            for (int n = 0; n < CT; n++) x.o[m][n][2 * half] = x.o[m][n][2 * half + 1] = 0;
        }

    int j = reach(a, w, b, first_seen<MORE>(a, i0) / KEYS * KEYS), parity = 0;
    load_tile<E, D, F::QUERIES, 128>(sq, a.q, b, i0, h, a.queries, a.size);
    if (j < w.end) {
        load_tile<E, D, KEYS, 128>(sk, a.k, b, j, kv, a.keys, a.size);
        if (a.documents) load_words(sd, documents_of(a, b), a.document_row, j, KEYS, a.keys);
    }
    while (j < w.end) {
        sc_cp_wait();
        __syncthreads(); /* k is here, the last v is done with */
        load_tile<E, D, KEYS, 128>(sv, a.v, b, j, kv, a.keys, a.value_size);
        /* no row of this warp sees any of these keys */
        bool blind = MORE ? j > last_seen<MORE>(a, i + 16 * MT - 1) || j + KEYS - 1 < first_seen<MORE>(a, i)
                          : a.causal && j > i + 16 * MT - 1;
        float s[MT][NT][4] = {};
        if (!blind) multiply_rows<E, D, MT, NT>(s, sq, r0, sk);
        int next = reach(a, w, b, j + KEYS);
        sc_cp_wait();
        __syncthreads(); /* v is here, k is done with */
        if (next < w.end) {
            load_tile<E, D, KEYS, 128>(sk, a.k, b, next, kv, a.keys, a.size);
            if (a.documents)
                load_words(sd + (parity ^ 1) * KEYS, documents_of(a, b), a.document_row, next, KEYS, a.keys);
        }
        if (!blind) {
            if (BIAS)
                add_bias<E>(a, s, b, h, i, j);
            else if (MORE && a.softcap > 0)
                cap<E>(a, s);
            else if (a.scale < 0)
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                    for (int n = 0; n < NT; n++)
#pragma unroll
                        for (int e = 0; e < 4; e++) s[m][n][e] = -s[m][n][e];
            bool all_seen = MORE ? j + KEYS - 1 <= last_seen<MORE>(a, i) && j >= first_seen<MORE>(a, i + 16 * MT - 1)
                                 : j + KEYS <= a.keys && (!a.causal || j + KEYS - 1 <= i);
            if (a.documents || !all_seen)
                hide<MORE>(a, s, i, j, own, sd + parity * KEYS);
            soften(x, s, unit);
            if (DROP) drop(d, s, i, j);
            multiply<E, D, MT, NT, CT>(x.o, s, sv, 0);
        }
        j = next;
        parity ^= 1;
    }
    sc_cp_wait();
    __syncthreads();
    float factor[MT][2];
    finish(a, x, factor, b, h, i);
    put_rows<E, D, MT, CT>(x.o, factor, sq + r0 * line<E, D>, a.o, b, i, h, a.queries, a.value_size, 0);
}

/* ── fp32 ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
template <int QUERIES_, int KEYS_> struct plain_shape { static constexpr int QUERIES = QUERIES_, KEYS = KEYS_; };
template <int D> struct plain_of : plain_shape<64, 64> {};
template <> struct plain_of<128> : plain_shape<64, 32> {};
template <> struct plain_of<256> : plain_shape<32, 16> {};

template <int D> constexpr size_t plain_bytes() {
    using F = plain_of<D>;
    return ((F::QUERIES + 2 * F::KEYS) * line<float, D> + F::QUERIES * (F::KEYS + 4)) * sizeof(float);
}

/* Scores of this thread's row, as the element (ty + 16 i, tx + 16 j), become powers; returns what o shrinks by. */
template <bool BIAS, int CM>
SC_DEVICE float soften_row(const attention &a, float (&s)[CM], float &most, float &sum, int b, int h, int i, int j) {
    int first = first_seen<true>(a, i), last = last_seen<true>(a, i), d = document_of(a, b, i, a.queries);
    float top = most, slope;
#pragma unroll
    for (int n = 0; n < CM; n++) {
        int key = j + 16 * n;
        float score = a.softcap > 0 ? capped<float>(a, s[n], slope) : s[n] * a.scale;
        if (BIAS) score += bias_at(a, bias_of_head(a, b, h), i, key);
        s[n] = key >= first && key <= last && d == document_of(a, b, key, a.keys) ? score : -INFINITY;
        top = fmaxf(top, s[n]);
    }
    for (int other = 8; other; other >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, other));
    float base = top == -INFINITY ? 0 : top, shrink = expf(most - base);
    most = top;
    sum *= shrink;
#pragma unroll
    for (int n = 0; n < CM; n++) {
        s[n] = expf(s[n] - base);
        sum += s[n];
    }
    return shrink;
}

template <int D, bool BIAS>
__global__ void __launch_bounds__(256) forward_plain(const __grid_constant__ attention a) {
    using F = plain_of<D>;
    constexpr int RM = F::QUERIES / 16, KEYS = F::KEYS, CM = KEYS / 16;
    SC_SHARED(shared);
    float *sq = (float *)shared, *sk = sq + F::QUERIES * line<float, D>, *sv = sk + KEYS * line<float, D>;
    float *sp = sv + KEYS * line<float, D>;
    int tiles = (a.queries + F::QUERIES - 1) / F::QUERIES, tile = blockIdx.x % tiles;
    int h = blockIdx.x / tiles % a.heads, b = blockIdx.x / tiles / a.heads, kv = h / a.group;
    if (a.causal) tile = tiles - 1 - tile;
    int i0 = tile * F::QUERIES, tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    walk w = walk_of<true>(a, b, i0, F::QUERIES, KEYS);
    dropper d = a.threshold ? dropper_of(a, b, h) : dropper{};
    float o[RM][D / 16] = {}, most[RM], sum[RM] = {}, factor[RM];
    for (int r = 0; r < RM; r++) most[r] = -INFINITY;
    load_tile<float, D, F::QUERIES, 256>(sq, a.q, b, i0, h, a.queries, a.size);
    for (int j = reach(a, w, b, first_seen<true>(a, i0) / KEYS * KEYS); j < w.end; j = reach(a, w, b, j + KEYS)) {
        __syncthreads(); /* the last tile is done with */
        load_tile<float, D, KEYS, 256>(sk, a.k, b, j, kv, a.keys, a.size);
        load_tile<float, D, KEYS, 256>(sv, a.v, b, j, kv, a.keys, a.value_size);
        sc_cp_wait();
        __syncthreads();
        float s[RM][CM] = {};
        multiply_rows<D>(s, sq, sk);
#pragma unroll
        for (int r = 0; r < RM; r++) {
            int i = i0 + ty + 16 * r;
            float shrink = soften_row<BIAS>(a, s[r], most[r], sum[r], b, h, i, j + tx);
#pragma unroll
            for (int n = 0; n < D / 16; n++) o[r][n] *= shrink;
#pragma unroll
            for (int n = 0; n < CM; n++) {
                bool stays = !a.threshold || keeps(d, i, j + tx + 16 * n);
                sp[(ty + 16 * r) * (KEYS + 4) + tx + 16 * n] = stays ? s[r][n] : 0;
            }
        }
        __syncwarp(); /* a warp reads the rows that it wrote */
        multiply<D, KEYS>(o, sp, sv);
    }
    for (int r = 0; r < RM; r++) {
        int i = i0 + ty + 16 * r;
        for (int other = 8; other; other >>= 1) sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], other);
        float shrink = a.sinks ? add_sink(a, h, most[r], sum[r]) : 1;
        factor[r] = sum[r] == 0 ? 0 : a.keep * shrink / sum[r];
        if (tx == 0 && i < a.queries)
            a.lse[((int64_t)b * a.heads + h) * a.queries + i] =
                most[r] == -INFINITY ? -INFINITY : most[r] + logf(sum[r]);
    }
    put_rows<D>(o, factor, a.o, b, i0, h, a.queries, a.value_size);
}

/* ── launch ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
template <class E, int D> static void launch(const sc_task *t, const attention &a) {
    int64_t blocks = ceil_of(a.queries, forward_of<D>::QUERIES) * a.heads * a.batch;
    size_t bytes = forward_bytes<E, D>();
    need_shared(t, bytes);
    auto kernel = a.more ? (a.drops ? forward<E, D, true, true> : forward<E, D, false, true>)
                         : (a.drops ? forward<E, D, true, false> : forward<E, D, false, false>);
    if (a.bias.p) kernel = a.drops ? forward<E, D, true, true, true> : forward<E, D, false, true, true>;
    sc_launch(kernel, blocks, 128, bytes, SC_STREAM(t), a);
}
template <int D> static void launch_plain(const sc_task *t, const attention &a) {
    int64_t blocks = ceil_of(a.queries, plain_of<D>::QUERIES) * a.heads * a.batch;
    need_shared(t, plain_bytes<D>());
    auto kernel = a.bias.p ? forward_plain<D, true> : forward_plain<D, false>;
    sc_launch(kernel, blocks, 256, plain_bytes<D>(), SC_STREAM(t), a);
}
template <class E> static void launch_for_size(const sc_task *t, const attention &a) {
    int size = wider_size(a);
    (size <= 64 ? launch<E, 64> : size <= 128 ? launch<E, 128> : launch<E, 256>)(t, a);
}

SC_KERNEL(attention) {
    attention a = attention_of(task, k);
    int size = wider_size(a);
    a.sinks = (const float *)k->sinks.p;
    if (a.batch * a.heads * a.queries == 0 || sc_attention_hopper(task, a, k->q.dtype) ||
        sc_cudnn_attention(task, false))
        return;
    switch (k->q.dtype) {
    case BF16: launch_for_size<sc_bf16>(task, a); break;
    case FP16: launch_for_size<sc_fp16>(task, a); break;
    default: (size <= 64 ? launch_plain<64> : size <= 128 ? launch_plain<128> : launch_plain<256>)(task, a);
    }
}

/* cuDNN is loaded when the first task that it serves comes: a program without one does not need it. */
extern "C" void sc_attention_start(sc_cuda *c) {
    c->attention = NULL;
}
extern "C" void sc_attention_stop(sc_cuda *c) {
    sc_cudnn_attention_stop(c);
}
