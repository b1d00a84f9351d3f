/* attention, backward: dq, dk, dv from go, q, k, v, o, lse.
 * Relies on: attention.h, a workspace of B·H·S floats.
 * Relied on by: generated code.
 *
 * With p = e^(scale q·k - lse), m the dropout mask (0 or 1/(1 - dropout)), delta_i = Σ_d go·o (Dao et al. 2022):
 *   dv = (p·m)ᵀ go,  dp = (go vᵀ)·m,  ds = p·(dp - delta),  dq = scale ds k,  dk = scale dsᵀ q;
 * where the score is capped, ds has the factor 1 - tanh² besides. A gradient of lse adds p·dlse to ds: delta loses it.
 * Three kernels: delta; then one walks, for a tile of keys, over the query heads of its group and their tiles of
 * queries and sums dk and dv; then one walks, for a tile of queries, over tiles of keys and sums dq. Scores and dp are
 * computed twice, so that every sum stays in the registers of one warp and needs no atomics: 7 products instead of 5.
 *
 * Both walks are one template. It keeps tiles x1, x2 and walks over tiles y1, y2:
 *   FOR_KEYS: x = k, v and y = q, go;  s = x1 y1ᵀ has keys as rows:  dk += ds y1,  dv += (p·m) y2;
 *   else:     x = q, go and y = k, v;  s = x1 y1ᵀ has queries as rows:  dq += ds y1.
 * The rows of s that a warp owns never leave its registers; the next y1, y2 are copied while these are multiplied. */
#include "../schema/workspace.h"
#include "attention.h"
#include "attention_hopper.h"


/* MT: 16-row tiles a warp; COLUMNS: rows of a y tile; STAGES: y tiles at a time; SPLIT: blocks that share the columns
 * of dk and dv where one block has too few registers for all of them. All fit the 99 KiB of the smallest GPUs. */
template <int MT_, int COLUMNS_, int STAGES_, int SPLIT_> struct grad_shape {
    static constexpr int MT = MT_, ROWS = 64 * MT, COLUMNS = COLUMNS_, STAGES = STAGES_, SPLIT = SPLIT_;
};
template <int D, bool FOR_KEYS> struct grad_of;
template <bool K> struct grad_of<64, K> : grad_shape<2, K ? 32 : 64, 2, 1> {};
template <bool K> struct grad_of<128, K> : grad_shape<1, 32, 2, 1> {};
template <bool K> struct grad_of<256, K> : grad_shape<1, 16, 1, K ? 2 : 1> {};

struct words { /* of one stage: of the rows of y, where they are queries; documents either way */
    float *lse, *delta;
    int32_t *documents;
};
template <int COLUMNS> SC_DEVICE words words_at(char *at, int stage) {
    float *p = (float *)at + stage * 3 * COLUMNS;
    return {p, p + COLUMNS, (int32_t *)(p + 2 * COLUMNS)};
}

template <class E, int D, int ROWS, int COLUMNS, int STAGES> constexpr size_t grad_bytes() {
    return (2 * ROWS + 2 * STAGES * COLUMNS) * line<E, D> * sizeof(E) + STAGES * 3 * COLUMNS * sizeof(float);
}

/* The walk over y: heads [head, heads), and of each the rows [first, end) in steps. */
struct walk {
    int head, heads, at, first, end, step;
    span own;
};
template <bool FOR_KEYS, bool MORE> SC_DEVICE walk walk_of(const attention &a, int b, int h, int r0, int rows, int step) {
    walk w = {h, h + 1, 0, 0, a.keys, step, {0, 0}};
    if (FOR_KEYS) {
        w.head = h * a.group;
        w.heads = w.head + a.group;
        /* queries before that see none of these keys, nor do queries from the end on */
        w.first = MORE ? max(0, r0 - a.right) / step * step : a.causal ? r0 / step * step : 0;
        w.end = MORE ? min(a.queries, r0 + rows + a.left) : a.queries;
    } else {
        w.first = first_seen<MORE>(a, r0) / step * step;
        w.end = last_seen<MORE>(a, r0 + rows - 1) + 1;
    }
    w.at = w.first;
    if (a.documents) w.own = document_span(a, b, r0, min(r0 + rows, FOR_KEYS ? a.keys : a.queries));
    return w;
}
/* Goes on from w.at to the first tile at or after it that matters; head == heads: there is none. */
SC_DEVICE void reach(const attention &a, walk &w, int b) {
    for (; w.head < w.heads; w.head++, w.at = w.first)
        for (; w.at < w.end; w.at += w.step)
            if (!a.documents || meet(w.own, document_span(a, b, w.at, min(w.at + w.step, w.end)))) return;
}

template <class E, int D, int COLUMNS, int THREADS, bool FOR_KEYS>
SC_DEVICE void load_stage(const attention &a, const walk &w, E *y1, E *y2, const words &to, int b) {
    int h = FOR_KEYS ? w.head : w.head / a.group, limit = FOR_KEYS ? a.queries : a.keys;
    load_tile<E, D, COLUMNS, THREADS>(y1, FOR_KEYS ? a.q : a.k, b, w.at, h, limit, a.size);
    load_tile<E, D, COLUMNS, THREADS>(y2, FOR_KEYS ? a.go : a.v, b, w.at, h, limit, a.value_size);
    if (a.documents) load_words(to.documents, documents_of(a, b), a.document_row, w.at, COLUMNS, limit);
    if (FOR_KEYS) {
        int64_t row = ((int64_t)b * a.heads + h) * a.queries;
        load_words(to.lse, a.lse + row, 1, w.at, COLUMNS, limit);
        load_words(to.delta, a.delta + row, 1, w.at, COLUMNS, limit);
    }
}

static constexpr float LOG2E = 1.4426950408889634f;
SC_DEVICE float visible_lse(float lse) { /* a row that sees nothing has -inf, and only hidden scores */
    return lse == -INFINITY ? 0 : lse;
}

/* ── delta ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Eight threads a row, eight elements at a time. */
template <class E> __global__ void __launch_bounds__(256) row_deltas(const __grid_constant__ attention a) {
    constexpr int PIECE = 16 / (int)sizeof(E);
    int64_t row = (int64_t)blockIdx.x * 32 + threadIdx.x / 8, rows = (int64_t)a.batch * a.queries * a.heads;
    int64_t at = min(row, rows - 1); /* all lanes take part in the sum */
    int h = (int)(at % a.heads), i = (int)(at / a.heads % a.queries), b = (int)(at / a.heads / a.queries);
    const E *x = (const E *)a.go.p + b * a.go.batch + i * a.go.row + h * a.go.head;
    const E *y = (const E *)a.o.p + b * a.o.batch + i * a.o.row + h * a.o.head;
    float sum = 0;
    for (int d = (threadIdx.x & 7) * PIECE; d < a.value_size; d += 8 * PIECE) {
        if (a.go.wide && a.o.wide) {
            uint4 u = *(const uint4 *)(x + d), v = *(const uint4 *)(y + d);
#pragma unroll
            for (int e = 0; e < PIECE; e++) sum = fmaf(sc_widen(((const E *)&u)[e]), sc_widen(((const E *)&v)[e]), sum);
        } else {
            for (int e = d; e < d + PIECE && e < a.value_size; e++) sum = fmaf(sc_widen(x[e]), sc_widen(y[e]), sum);
        }
    }
    for (int other = 4; other; other >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, other);
    int64_t to = ((int64_t)b * a.heads + h) * a.queries + i;
    if (row < rows && (threadIdx.x & 7) == 0) a.delta[to] = a.dlse ? sum - a.dlse[to] : sum;
}

/* ── bf16, fp16 ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
template <int MT> struct row_words { /* of the rows g and g + 8 of this lane's 16-row tiles */
    float lse[MT][2], delta[MT][2];
    int document[MT][2];
};

/* Scores s and products dp become p·m (without its factor) and ds. `row`: this warp's first, `column`: the tile's.
 * Columns that are queries past the last one need no hiding: their go, lse and delta are 0, so they add 0. */
template <class E, int MT, int NT, bool FOR_KEYS, bool DROP, bool MORE, bool BIAS>
SC_DEVICE void score_grad(const attention &a, const dropper &d, float (&s)[MT][NT][4], float (&dp)[MT][NT][4],
                          const row_words<MT> &rows, const words &columns, int row, int column, bool all_seen,
                          int64_t bias_head) {
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, bound[MT][2], other[MT][2];
    bool caps = MORE && a.softcap > 0;
    float unit = caps || BIAS ? LOG2E : a.scale * LOG2E, bias[MT][4];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) { /* the first query, or the last key; the window's other end */
            int x = row + m * 16 + half * 8 + g, first = MORE ? x - a.right : a.causal ? x : 0;
            bound[m][half] = (FOR_KEYS ? first : last_seen<MORE>(a, x)) - column - 2 * t;
            if (MORE) other[m][half] = (FOR_KEYS ? x + a.left : x - a.left) - column - 2 * t;
        }
#pragma unroll
    for (int n = 0; n < NT; n++) {
        int c = n * 8 + 2 * t;
        float2 lse = {}, delta = {};
        if (FOR_KEYS) {
            lse = *(const float2 *)(columns.lse + c);
            delta = *(const float2 *)(columns.delta + c);
            lse.x = visible_lse(lse.x) * LOG2E;
            lse.y = visible_lse(lse.y) * LOG2E;
        }
        if constexpr (BIAS)
            bias_fragment<FOR_KEYS>(a, bias_head, FOR_KEYS ? column + n * 8 : row, FOR_KEYS ? row : column + n * 8, bias);
        int2 document = a.documents ? *(const int2 *)(columns.documents + c) : int2{0, 0};
#pragma unroll
        for (int m = 0; m < MT; m++) {
            uint32_t stay = 15;
            if (DROP)
                stay = FOR_KEYS ? kept_fragment_of_keys(d, column + n * 8, row + m * 16)
                                : kept_fragment(d, row + m * 16, column + n * 8);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int half = e >> 1, y = n * 8 + (e & 1);
                float minus = FOR_KEYS ? (e & 1 ? lse.y : lse.x) : rows.lse[m][half];
                float mean = FOR_KEYS ? (e & 1 ? delta.y : delta.x) : rows.delta[m][half];
                float slope = 1, score = caps ? capped<E>(a, s[m][n][e], slope) : s[m][n][e];
                if constexpr (BIAS) score = (caps ? score : score * a.scale) + bias[m][e];
                float p = sc_exp2(fmaf(score, unit, -minus)), x = dp[m][n][e];
                if (!all_seen) {
                    bool inside = FOR_KEYS ? y >= bound[m][half] : y <= bound[m][half];
                    if (MORE) inside = inside && (FOR_KEYS ? y <= other[m][half] : y >= other[m][half]);
                    p = inside && rows.document[m][half] == (e & 1 ? document.y : document.x) ? p : 0;
                }
                bool stays = !DROP || (stay >> e & 1);
                if (DROP) x = stays ? x * a.keep : 0;
                dp[m][n][e] = p * (x - mean);
                if (MORE) dp[m][n][e] *= slope;
                s[m][n][e] = stays ? p : 0;
            }
        }
    }
}

template <class E, int D, bool FOR_KEYS, bool DROP, bool MORE, bool BIAS = false>
__global__ void __launch_bounds__(128) gradient(const __grid_constant__ attention a) {
    using G = grad_of<D, FOR_KEYS>;
    constexpr int MT = G::MT, ROWS = G::ROWS, COLUMNS = G::COLUMNS, STAGES = G::STAGES, NT = COLUMNS / 8;
    constexpr int WIDTH = D / G::SPLIT, CT = WIDTH / 8, L = line<E, D>;
    SC_SHARED(shared);
    E *x1 = (E *)shared, *x2 = x1 + ROWS * L, *y = x2 + ROWS * L;
    char *word = (char *)(y + STAGES * 2 * COLUMNS * L);
    int limit = FOR_KEYS ? a.keys : a.queries, heads = FOR_KEYS ? a.heads / a.group : a.heads;
    int tiles = (limit + ROWS - 1) / ROWS, u = blockIdx.x;
    int c0 = u % G::SPLIT * WIDTH, tile = u / G::SPLIT % tiles, h = u / G::SPLIT / tiles % heads;
    int b = u / G::SPLIT / tiles / heads;
    if (a.causal && !FOR_KEYS) tile = tiles - 1 - tile; /* the longest first */
    int block0 = tile * ROWS, r0 = (threadIdx.x >> 5) * 16 * MT, row = block0 + r0, g = threadIdx.x >> 2 & 7;
    walk w = walk_of<FOR_KEYS, MORE>(a, b, h, block0, ROWS, COLUMNS);
    row_words<MT> own;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int r = row + m * 16 + half * 8 + g;
            int64_t at = ((int64_t)b * a.heads + h) * a.queries + r;
            own.document[m][half] = document_of(a, b, r, limit);
            own.lse[m][half] = !FOR_KEYS && r < limit ? visible_lse(a.lse[at]) * LOG2E : 0;
            own.delta[m][half] = !FOR_KEYS && r < limit ? a.delta[at] : 0;
        }
    float first[MT][CT][4] = {}, second[FOR_KEYS ? MT : 1][FOR_KEYS ? CT : 1][4] = {}; /* dk or dq; dv */

    load_tile<E, D, ROWS, 128>(x1, FOR_KEYS ? a.k : a.q, b, block0, h, limit, a.size);
    load_tile<E, D, ROWS, 128>(x2, FOR_KEYS ? a.v : a.go, b, block0, h, limit, a.value_size);
    reach(a, w, b);
    int stage = 0;
    if (STAGES == 2 && w.head < w.heads)
        load_stage<E, D, COLUMNS, 128, FOR_KEYS>(a, w, y, y + COLUMNS * L, words_at<COLUMNS>(word, 0), b);
    while (w.head < w.heads) {
        walk now = w;
        w.at += COLUMNS;
        reach(a, w, b);
        if (STAGES == 1) {
            __syncthreads(); /* the last stage is done with */
            load_stage<E, D, COLUMNS, 128, FOR_KEYS>(a, now, y, y + COLUMNS * L, words_at<COLUMNS>(word, 0), b);
        }
        sc_cp_wait();
        __syncthreads(); /* this stage is here; the other one is done with */
        E *y1 = y + stage * 2 * COLUMNS * L, *y2 = y1 + COLUMNS * L;
        words columns = words_at<COLUMNS>(word, stage);
        if (STAGES == 2) {
            stage ^= 1;
            E *next = y + stage * 2 * COLUMNS * L;
            if (w.head < w.heads)
                load_stage<E, D, COLUMNS, 128, FOR_KEYS>(a, w, next, next + COLUMNS * L, words_at<COLUMNS>(word, stage),
                                                         b);
        }
        int i = FOR_KEYS ? now.at : row, i_last = i + (FOR_KEYS ? COLUMNS : 16 * MT) - 1;
        int j = FOR_KEYS ? row : now.at, j_last = j + (FOR_KEYS ? 16 * MT : COLUMNS) - 1;
        /* none of this warp's rows meets these columns */
        if (MORE ? j > i_last + a.right || j_last < i - a.left : a.causal && j > i_last) continue;
        bool all_seen = !a.documents && (FOR_KEYS || j_last < a.keys) &&
                        (MORE ? j_last <= i + a.right && j >= i_last - a.left : !a.causal || j_last <= i);
        float s[MT][NT][4] = {}, dp[MT][NT][4] = {};
        multiply_rows<E, D, MT, NT>(s, x1, r0, y1);
        multiply_rows<E, D, MT, NT>(dp, x2, r0, y2);
        dropper d = DROP ? dropper_of(a, b, now.head) : dropper{};
        score_grad<E, MT, NT, FOR_KEYS, DROP, MORE, BIAS>(a, d, s, dp, own, columns, row, now.at, all_seen,
                                                          BIAS ? bias_of_head(a, b, now.head) : 0);
        if constexpr (FOR_KEYS) multiply<E, D, MT, NT, CT>(second, s, y2, c0);
        multiply<E, D, MT, NT, CT>(first, dp, y1, c0);
    }
    sc_cp_wait();
    __syncthreads();
    float scale[MT][2], keep[MT][2];
    for (int m = 0; m < MT; m++) {
        scale[m][0] = scale[m][1] = a.scale;
        keep[m][0] = keep[m][1] = a.keep;
    }
    put_rows<E, D, MT, CT>(first, scale, x1 + r0 * L, FOR_KEYS ? a.dk : a.dq, b, row, h, limit, a.size, c0);
    if constexpr (FOR_KEYS) put_rows<E, D, MT, CT>(second, keep, x2 + r0 * L, a.dv, b, row, h, limit, a.value_size, c0);
}

/* ── fp32 ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
template <int D> struct plain_of { static constexpr int TILE = D <= 64 ? 64 : D <= 128 ? 32 : 16; };
template <int D> constexpr size_t plain_bytes() {
    constexpr int N = plain_of<D>::TILE;
    return grad_bytes<float, D, N, N, 1>() + N * (N + 4) * sizeof(float);
}

template <int D, bool FOR_KEYS, bool BIAS>
__global__ void __launch_bounds__(256) gradient_plain(const __grid_constant__ attention a) {
    constexpr int N = plain_of<D>::TILE, M = N / 16, L = line<float, D>;
    SC_SHARED(shared);
    float *x1 = (float *)shared, *x2 = x1 + N * L, *y1 = x2 + N * L, *y2 = y1 + N * L, *sp = y2 + N * L;
    words columns = words_at<N>((char *)(sp + N * (N + 4)), 0);
    int limit = FOR_KEYS ? a.keys : a.queries, heads = FOR_KEYS ? a.heads / a.group : a.heads;
    int tiles = (limit + N - 1) / N, tile = blockIdx.x % tiles, h = blockIdx.x / tiles % heads;
    int b = blockIdx.x / tiles / heads, tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    if (a.causal && !FOR_KEYS) tile = tiles - 1 - tile;
    int block0 = tile * N;
    walk w = walk_of<FOR_KEYS, true>(a, b, h, block0, N, N);
    float first[M][D / 16] = {}, second[M][D / 16] = {};
    load_tile<float, D, N, 256>(x1, FOR_KEYS ? a.k : a.q, b, block0, h, limit, a.size);
    load_tile<float, D, N, 256>(x2, FOR_KEYS ? a.v : a.go, b, block0, h, limit, a.value_size);
    for (reach(a, w, b); w.head < w.heads; w.at += N, reach(a, w, b)) {
        __syncthreads(); /* the last tile is done with */
        load_stage<float, D, N, 256, FOR_KEYS>(a, w, y1, y2, columns, b);
        sc_cp_wait();
        __syncthreads();
        dropper d = a.threshold ? dropper_of(a, b, w.head) : dropper{};
        float s[M][M] = {}, dp[M][M] = {};
        multiply_rows<D>(s, x1, y1);
        multiply_rows<D>(dp, x2, y2);
#pragma unroll
        for (int r = 0; r < M; r++)
#pragma unroll
            for (int c = 0; c < M; c++) {
                int x = block0 + ty + 16 * r, y = w.at + tx + 16 * c, i = FOR_KEYS ? y : x, j = FOR_KEYS ? x : y;
                int other = a.documents ? columns.documents[tx + 16 * c] : 0;
                int64_t at = ((int64_t)b * a.heads + w.head) * a.queries + min(i, a.queries - 1);
                float lse = FOR_KEYS ? columns.lse[tx + 16 * c] : a.lse[at];
                float delta = FOR_KEYS ? columns.delta[tx + 16 * c] : a.delta[at];
                bool seen = j >= first_seen<true>(a, i) && j <= last_seen<true>(a, i) && document_of(a, b, x, limit) == other;
                float slope = 1, score = a.softcap > 0 ? capped<float>(a, s[r][c], slope) : s[r][c];
                if (BIAS)
                    score = (a.softcap > 0 ? score : score * a.scale) + bias_at(a, bias_of_head(a, b, w.head), i, j);
                float p = seen ? expf(fmaf(score, a.softcap > 0 || BIAS ? 1 : a.scale, -visible_lse(lse))) : 0;
                bool stays = !a.threshold || keeps(d, i, j);
                s[r][c] = stays ? p : 0;
                dp[r][c] = p * ((stays ? dp[r][c] * a.keep : 0) - delta) * slope;
            }
        float *to = sp + ty * (N + 4) + tx; /* a warp reads the rows that it wrote */
        if (FOR_KEYS) {
            for (int r = 0; r < M; r++)
                for (int c = 0; c < M; c++) to[16 * r * (N + 4) + 16 * c] = s[r][c];
            __syncwarp();
            multiply<D, N>(second, sp, y2);
            __syncwarp();
        }
        for (int r = 0; r < M; r++)
            for (int c = 0; c < M; c++) to[16 * r * (N + 4) + 16 * c] = dp[r][c];
        __syncwarp();
        multiply<D, N>(first, sp, y1);
    }
    sc_cp_wait();
    float scale[M], keep[M];
    for (int r = 0; r < M; r++) {
        scale[r] = a.scale;
        keep[r] = a.keep;
    }
    put_rows<D>(first, scale, FOR_KEYS ? a.dk : a.dq, b, block0, h, limit, a.size);
    if (FOR_KEYS) put_rows<D>(second, keep, a.dv, b, block0, h, limit, a.value_size);
}

/* ── launch ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
template <class E, int D, bool FOR_KEYS> static void launch_half(const sc_task *t, const attention &a) {
    using G = grad_of<D, FOR_KEYS>;
    size_t bytes = grad_bytes<E, D, G::ROWS, G::COLUMNS, G::STAGES>();
    int heads = FOR_KEYS ? a.heads / a.group : a.heads;
    int64_t blocks = ceil_of(FOR_KEYS ? a.keys : a.queries, G::ROWS) * heads * a.batch * G::SPLIT;
    need_shared(t, bytes);
    auto kernel = a.more ? (a.drops ? gradient<E, D, FOR_KEYS, true, true> : gradient<E, D, FOR_KEYS, false, true>)
                         : (a.drops ? gradient<E, D, FOR_KEYS, true, false> : gradient<E, D, FOR_KEYS, false, false>);
    if (a.bias.p)
        kernel = a.drops ? gradient<E, D, FOR_KEYS, true, true, true> : gradient<E, D, FOR_KEYS, false, true, true>;
    sc_launch(kernel, blocks, 128, bytes, SC_STREAM(t), a);
}
template <class E, int D> static void launch(const sc_task *t, const attention &a) {
    launch_half<E, D, true>(t, a);
    launch_half<E, D, false>(t, a);
}
template <int D> static void launch_plain(const sc_task *t, const attention &a) {
    constexpr int N = plain_of<D>::TILE;
    size_t bytes = plain_bytes<D>();
    need_shared(t, bytes);
    auto of_keys = a.bias.p ? gradient_plain<D, true, true> : gradient_plain<D, true, false>;
    auto of_queries = a.bias.p ? gradient_plain<D, false, true> : gradient_plain<D, false, false>;
    sc_launch(of_keys, ceil_of(a.keys, N) * (a.heads / a.group) * a.batch, 256, bytes, SC_STREAM(t), a);
    sc_launch(of_queries, ceil_of(a.queries, N) * a.heads * a.batch, 256, bytes, SC_STREAM(t), a);
}
template <class E> static void launch_for_size(const sc_task *t, const attention &a) {
    int size = wider_size(a);
    (size <= 64 ? launch<E, 64> : size <= 128 ? launch<E, 128> : launch<E, 256>)(t, a);
}

SC_KERNEL(attention_grad) {
    attention a = attention_of(task, k);
    int size = wider_size(a);
    a.dq = rows_of_tensor(task, &k->dq);
    a.dk = rows_of_tensor(task, &k->dk);
    a.dv = rows_of_tensor(task, &k->dv);
    a.go = rows_of_tensor(task, &k->g);
    a.delta = (float *)k->work.p;
    a.dlse = (const float *)k->dlse.p;
    int64_t rows = (int64_t)a.batch * a.heads * a.queries, blocks = ceil_of(rows, 32);
    if (rows == 0 || sc_attention_hopper_grad(task, a, k->q.dtype, k->work.p ? k->work.shape[0] : 0) ||
        sc_cudnn_attention(task, true))
        return;
    if (!k->work.p || k->work.shape[0] < sc_cuda_row_sums_bytes(rows))
        sc_unsupported(task, "attention_grad", "it needs a workspace of 4 bytes a query and head");
    switch (k->q.dtype) {
    case BF16:
        sc_launch(row_deltas<sc_bf16>, blocks, 256, 0, SC_STREAM(task), a);
        launch_for_size<sc_bf16>(task, a);
        break;
    case FP16:
        sc_launch(row_deltas<sc_fp16>, blocks, 256, 0, SC_STREAM(task), a);
        launch_for_size<sc_fp16>(task, a);
        break;
    default:
        sc_launch(row_deltas<float>, blocks, 256, 0, SC_STREAM(task), a);
        (size <= 64 ? launch_plain<64> : size <= 128 ? launch_plain<128> : launch_plain<256>)(task, a);
    }
}
