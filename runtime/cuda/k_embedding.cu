/* embedding: y[n,:] = w[index[n],:], and its gradient dw[v,:] = Σ_{index[n] = v} g[n,:]; coalesce: a rank's slice of
 * that gradient from the rows of all ranks' tokens, rounded as runtime/cpu/k_coalesce.c says. Relies on: kernel.cuh.
 * Relied on by: generated code. Contiguous operands.
 *
 * The gradient sorts the tokens by row of the table and adds them up in token order, so that it has the same bits in
 * every run. The sort is a counting sort: counts (integer atomics: no order in them), starts, slots in any order, then
 * each token's rank among those of its row, for rows of more than LONG tokens by a block that goes through all tokens
 * in order. A warp adds up a row of up to LONG tokens, columns by columns; longer rows (frequent words, padding) are
 * cut every LONG tokens from their first one on, into partial sums that are then added in order, so that a row's bits
 * depend on its own tokens only. The first sum of a row begins with c, if there is one; where dw lies in its place,
 * rows without tokens are not touched. An index outside the table reads NaN and is left out.
 *
 * coalesce does the same for the tokens of each rank, and so has the bits of gradients that every rank makes by itself.
 * A long row is a block's: its warps take pieces, its threads add the pieces up.
 *
 * Workspace (compiler/ir/rules_work.c; n tokens, V rows, D columns), int32: count [V], start [V+1], slot [n],
 * order [n]; then, but for coalesce, at a multiple of 16 bytes floats: partial [stretches][2][D]. */
#include "../schema/workspace.h"
#include "kernel.cuh"

namespace {

enum { LONG = SC_LONG_ROW, TILE = 4096, SCAN_BLOCK = 1024 };

struct lookup {
    const int32_t *index;
    int64_t n;
    int rows, cols;
};

SC_DEVICE bool valid(const lookup &a, int v) {
    return v >= 0 && v < a.rows;
}

/* A warp a token. Equal dtypes: bits are copied, W elements an access. */
template <class E, int W> __global__ void __launch_bounds__(BLOCK) take_rows(lookup a, const void *table, void *y) {
    typedef typename E::type type;
    int64_t n = my_row<WARP>();
    if (n >= a.n) return;
    int v = a.index[n];
    const type *from = (const type *)table + (int64_t)v * a.cols;
    type *to = (type *)y + n * a.cols;
    if (!valid(a, v)) {
        for (int c = threadIdx.x % WARP; c < a.cols; c += WARP) to[c] = E::put(NAN);
        return;
    }
#pragma unroll 4
    for (int c = threadIdx.x % WARP * W; c < a.cols; c += WARP * W) {
        raw<E, W> r;
        r.load(from + c);
        r.store(to + c);
    }
}

/* ── tokens by row ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
struct sorted {
    int32_t *count, *start, *slot, *order;
    float *partial;
};

__global__ void __launch_bounds__(BLOCK) clear_counts(int32_t *count, int n) {
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += gridDim.x * BLOCK) count[i] = 0;
}

__global__ void __launch_bounds__(BLOCK) count_tokens(lookup a, int32_t *count) {
    int64_t n = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (n >= a.n) return;
    int v = a.index[n];
    if (valid(a, v)) atomicAdd(&count[v], 1);
}

/* start[v] = Σ count[0..v). A block has a tile of rows; it adds up all counts before them first. */
__global__ void __launch_bounds__(SCAN_BLOCK) find_starts(const int32_t *count, int32_t *start, int rows) {
    __shared__ int warps[SCAN_BLOCK / WARP];
    enum { EACH = TILE / SCAN_BLOCK };
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, tile = blockIdx.x * TILE, before = 0;
#pragma unroll 8
    for (int v = threadIdx.x; v < tile; v += SCAN_BLOCK) before += count[v];
    before = group_sum<SCAN_BLOCK>(before);
    int mine[EACH], sum = 0, first = tile + threadIdx.x * EACH;
#pragma unroll
    for (int k = 0; k < EACH; k++) sum += mine[k] = first + k < rows ? count[first + k] : 0;
    int scan = warp_sum_so_far(sum, lane);
    if (lane == WARP - 1) warps[warp] = scan;
    __syncthreads();
    int at = before + scan - sum;
    for (int k = 0; k < warp; k++) at += warps[k];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        if (first + k < rows) start[first + k] = at;
        at += mine[k];
        if (first + k == rows - 1) start[rows] = at;
    }
}

__global__ void __launch_bounds__(BLOCK) fill_slots(lookup a, sorted s) {
    int64_t n = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (n >= a.n) return;
    int v = a.index[n];
    if (valid(a, v)) s.slot[s.start[v] + atomicSub(&s.count[v], 1) - 1] = (int32_t)n;
}

/* A token's place is its row's start + the number of the row's tokens before it, whatever slots they got. */
__global__ void __launch_bounds__(BLOCK) put_in_order(lookup a, sorted s) {
    int p = blockIdx.x * BLOCK + threadIdx.x;
    if (p >= s.start[a.rows]) return;
    int n = s.slot[p], v = a.index[n], begin = s.start[v], end = s.start[v + 1], rank = 0;
    if (end - begin > LONG) return;
#pragma unroll 8
    for (int q = begin; q < end; q++) rank += s.slot[q] < n;
    s.order[begin + rank] = n;
}

/* A piece of a long row: places [begin, end) of the sorted list. v = -1: none. */
struct piece {
    int v, begin, end;
};

/* Of all pieces at most two begin in a stretch of LONG places: one that is its row's first, and one that is not.
 * `places`: tokens by row, in any order within one. */
SC_DEVICE piece piece_at(const lookup &a, const sorted &s, const int32_t *places, int stretch, bool first) {
    int total = s.start[a.rows], low = stretch * LONG, high = low + LONG < total ? low + LONG : total;
    if (low >= total) return {-1, 0, 0};
    int v = a.index[places[first ? high - 1 : low]], row = s.start[v], end = s.start[v + 1];
    int begin = first ? row : row + (low - row + LONG - 1) / LONG * LONG;
    if (end - row <= LONG || first != (row >= low) || begin >= end) return {-1, 0, 0};
    return {v, begin, end < begin + LONG ? end : begin + LONG};
}

/* A block a stretch: the tokens of the long row that begins there. */
__global__ void __launch_bounds__(SCAN_BLOCK) order_long_rows(lookup a, sorted s) {
    __shared__ int warps[SCAN_BLOCK / WARP];
    enum { EACH = 4 };
    piece x = piece_at(a, s, s.slot, blockIdx.x, true);
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, v = x.v, begin = x.begin;
    if (v < 0) return;
    for (int64_t first = 0; first < a.n; first += SCAN_BLOCK * EACH) {
        int64_t mine = first + threadIdx.x * EACH;
        bool hit[EACH];
        int hits = 0, at = begin;
#pragma unroll
        for (int k = 0; k < EACH; k++) hits += hit[k] = mine + k < a.n && a.index[mine + k] == v;
        int scan = warp_sum_so_far(hits, lane);
        if (lane == WARP - 1) warps[warp] = scan;
        __syncthreads();
        at += scan - hits;
        for (int k = 0; k < SCAN_BLOCK / WARP; k++) {
            if (k < warp) at += warps[k];
            begin += warps[k];
        }
#pragma unroll
        for (int k = 0; k < EACH; k++)
            if (hit[k]) s.order[at++] = (int32_t)(mine + k);
        __syncthreads();
    }
}

/* ── sums ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Columns c .. c+W of the tokens at places [begin, end), in order, to sum. The whole warp calls it. */
template <class E, int W>
SC_DEVICE void add_tokens(float *sum, const lookup &a, const int32_t *order, const void *g, int begin, int end, int c) {
    enum { U = 4 };
    typedef typename E::type type;
    for (int first = begin; first < end; first += WARP) {
        int place = first + threadIdx.x % WARP, mine = place < end ? order[place] : 0;
        int count = end - first < WARP ? end - first : WARP;
        for (int j = 0; j < count; j += U) {
            raw<E, W> v[U];
#pragma unroll
            for (int u = 0; u < U; u++) {
                int64_t n = __shfl_sync(SC_ALL, mine, (j + u) % WARP);
                v[u].clear(); /* beyond the end: adds zero */
                if (j + u < count && c < a.cols) v[u].load((const type *)g + n * a.cols + c);
            }
#pragma unroll
            for (int u = 0; u < U; u++)
#pragma unroll
                for (int k = 0; k < W; k++) sum[k] += v[u].get(k);
        }
    }
}

struct table {
    void *dw;
    const void *c; /* NULL, or what is added; dw: in place */
    int dtype;
};

/* W elements from i on of a tensor that is aligned for them. */
template <int W> SC_DEVICE void load_run(float *x, const void *p, int dtype, int64_t i) {
    auto read = [&](auto e) {
        typedef decltype(e) E;
        raw<E, W> r;
        r.load((const typename E::type *)p + i);
#pragma unroll
        for (int k = 0; k < W; k++) x[k] = r.get(k);
    };
    if (dtype == FP32)
        read(fp32());
    else if (dtype == BF16)
        read(bf16());
    else
        read(fp16());
}

/* What the sums of row v begin with. */
template <int W> SC_DEVICE void begin_sums(float *sum, const lookup &a, const table &t, int64_t v, int c) {
#pragma unroll
    for (int k = 0; k < W; k++) sum[k] = 0;
    if (t.c && c < a.cols) load_run<W>(sum, t.c, t.dtype, v * a.cols + c);
}

/* A warp a row, in place a place of the sorted list that may be a row's first one, and WARP·W columns (blockIdx.y). */
template <class E, int W>
__global__ void __launch_bounds__(BLOCK) sum_rows(lookup a, sorted s, const void *g, table t) {
    int64_t v = my_row<WARP>(), place = v;
    int c = (blockIdx.y * WARP + threadIdx.x % WARP) * W;
    bool in_place = t.c == t.dw;
    if (v >= (in_place ? s.start[a.rows] : a.rows)) return;
    if (in_place) v = a.index[s.order[place]];
    int begin = s.start[v], end = s.start[v + 1];
    if (end - begin > LONG || (in_place && begin != place)) return;
    float sum[W];
    begin_sums<W>(sum, a, t, v, c);
    add_tokens<E, W>(sum, a, s.order, g, begin, end, c);
    if (c < a.cols) store_run<W>(t.dw, t.dtype, v * a.cols + c, sum);
}

/* Warps: (stretch, first), columns by blockIdx.y. */
template <class E, int W>
__global__ void __launch_bounds__(BLOCK) sum_pieces(lookup a, sorted s, const void *g, table t) {
    int64_t u = my_row<WARP>();
    int c = (blockIdx.y * WARP + threadIdx.x % WARP) * W;
    piece x = piece_at(a, s, s.order, (int)(u / 2), u % 2);
    if (x.v < 0) return;
    float sum[W] = {};
    if (u % 2) begin_sums<W>(sum, a, t, x.v, c);
    add_tokens<E, W>(sum, a, s.order, g, x.begin, x.end, c);
    if (c < a.cols) store_run<W>(s.partial, FP32, u * a.cols + c, sum);
}

/* The warp of a long row's first piece adds its pieces up. */
template <int W> __global__ void __launch_bounds__(BLOCK) join_pieces(lookup a, sorted s, table t) {
    int64_t stretch = my_row<WARP>();
    int c = (blockIdx.y * WARP + threadIdx.x % WARP) * W;
    piece x = piece_at(a, s, s.order, (int)stretch, true);
    if (x.v < 0 || c >= a.cols) return;
    int end = s.start[x.v + 1];
    raw<fp32, W> r;
    float sum[W];
    r.load(s.partial + (stretch * 2 + 1) * a.cols + c);
#pragma unroll
    for (int k = 0; k < W; k++) sum[k] = r.get(k);
#pragma unroll 4
    for (int at = x.begin + LONG; at < end; at += LONG) {
        r.load(s.partial + (int64_t)(at / LONG) * 2 * a.cols + c);
#pragma unroll
        for (int k = 0; k < W; k++) sum[k] += r.get(k);
    }
    store_run<W>(t.dw, t.dtype, (int64_t)x.v * a.cols + c, sum);
}

/* ── rows of all ranks ────────────────────────────────────────────────────────────────────────────────────────────────
 */
enum { MOST_RANKS = 1024, JOIN_BLOCK = 512, JOIN_WARPS = JOIN_BLOCK / WARP };

struct slice {
    int64_t low, numel, base;   /* elements [low, low + numel), of rows from base on; beyond the table they are zeros */
    int tokens, ranks, members; /* of a rank; of all, of a group */
};

SC_DEVICE float rounded(int dtype, float x) {
    return dtype == FP16 ? sc_from_fp16(sc_to_fp16(x)) : dtype == BF16 ? sc_from_bf16(sc_to_bf16(x)) : x;
}

/* Σ of ranks' sums in each group, Σ of groups, each summand rounded. */
template <int W> struct nested {
    float of_rank[W], of_group[W], all[W];

    SC_DEVICE nested() {
#pragma unroll
        for (int k = 0; k < W; k++) of_rank[k] = of_group[k] = all[k] = 0;
    }
    /* What follows is of rank `next`; the number of all ranks: nothing does. */
    SC_DEVICE void pass(const slice &p, int dtype, int *rank, int next) {
        bool passes = *rank / p.members != next / p.members;
#pragma unroll
        for (int k = 0; k < W; k++) {
            of_group[k] += rounded(dtype, of_rank[k]);
            of_rank[k] = 0;
            if (passes) all[k] += rounded(dtype, of_group[k]);
            if (passes) of_group[k] = 0;
        }
        *rank = next;
    }
};

/* A warp a row of the slice and WARP·W columns (blockIdx.y); long rows are left out. */
template <class E, int W>
__global__ void __launch_bounds__(BLOCK)
    coalesce_rows(lookup a, sorted s, slice p, const void *g, void *dw, int dtype) {
    enum { U = 4 };
    typedef typename E::type type;
    int64_t v = p.base + my_row<WARP>();
    int c = (blockIdx.y * WARP + threadIdx.x % WARP) * W, rank = 0;
    int begin = v < a.rows ? s.start[v] : 0, end = v < a.rows ? s.start[v + 1] : 0;
    int64_t at = v * a.cols + c - p.low;
    if (end - begin > LONG) return;
    nested<W> sum;
    for (int first = begin; first < end; first += WARP) {
        int place = first + threadIdx.x % WARP, mine = place < end ? s.order[place] : 0;
        int count = end - first < WARP ? end - first : WARP;
        for (int j = 0; j < count; j += U) {
            raw<E, W> x[U];
            int token[U];
#pragma unroll
            for (int u = 0; u < U; u++) {
                token[u] = __shfl_sync(SC_ALL, mine, (j + u) % WARP);
                if (j + u < count && c < a.cols) x[u].load((const type *)g + (int64_t)token[u] * a.cols + c);
            }
#pragma unroll
            for (int u = 0; u < U; u++) {
                if (j + u >= count || c >= a.cols) continue;
                if (token[u] / p.tokens != rank) sum.pass(p, dtype, &rank, token[u] / p.tokens);
#pragma unroll
                for (int k = 0; k < W; k++) sum.of_rank[k] += x[u].get(k);
            }
        }
    }
    sum.pass(p, dtype, &rank, p.ranks);
    if (c < a.cols && at >= 0 && at < p.numel) store_run<W>(dw, dtype, at, sum.all);
}

/* The first of places [begin, end) whose token is not before n. */
SC_DEVICE int place_of(const int32_t *order, int begin, int end, int64_t n) {
    while (begin < end) {
        int middle = begin + (end - begin) / 2;
        if (order[middle] < n)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

/* A block a stretch in which a long row begins and WARP·W columns (blockIdx.y). */
template <class E, int W>
__global__ void __launch_bounds__(JOIN_BLOCK)
    coalesce_long_rows(lookup a, sorted s, slice p, const void *g, void *dw, int dtype) {
    __shared__ int place[MOST_RANKS + 1], number[MOST_RANKS + 1]; /* a rank's first one, its first piece's */
    __shared__ float partial[JOIN_WARPS][WARP * W];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    piece x = piece_at(a, s, s.order, blockIdx.x, true);
    int64_t row = (int64_t)x.v * a.cols, first_column = (int64_t)blockIdx.y * WARP * W;
    if (x.v < 0 || row + a.cols <= p.low || row >= p.low + p.numel) return;
    int end = s.start[x.v + 1];
    for (int r = threadIdx.x; r <= p.ranks; r += JOIN_BLOCK)
        place[r] = place_of(s.order, x.begin, end, (int64_t)r * p.tokens);
    __syncthreads();
    if (threadIdx.x == 0)
        for (int r = number[0] = 0; r < p.ranks; r++)
            number[r + 1] = number[r] + (place[r + 1] - place[r] + LONG - 1) / LONG;
    __syncthreads();
    nested<1> sum;
    int rank = 0, pieces = number[p.ranks];
    for (int done = 0, r = 0; done < pieces; done += JOIN_WARPS) {
        int mine = done + warp;
        if (mine < pieces) {
            while (number[r + 1] <= mine) r++;
            int begin = place[r] + (mine - number[r]) * LONG;
            float part[W] = {};
            add_tokens<E, W>(part, a, s.order, g, begin, begin + LONG < place[r + 1] ? begin + LONG : place[r + 1],
                             (int)first_column + lane * W);
#pragma unroll
            for (int k = 0; k < W; k++) partial[warp][lane * W + k] = part[k];
        }
        __syncthreads();
        for (int k = 0; k < JOIN_WARPS && done + k < pieces && threadIdx.x < WARP * W; k++) {
            while (number[rank + 1] <= done + k) sum.pass(p, dtype, &rank, rank + 1);
            sum.of_rank[0] += partial[k][threadIdx.x];
        }
        __syncthreads();
    }
    sum.pass(p, dtype, &rank, p.ranks);
    int64_t c = first_column + threadIdx.x, at = row + c - p.low;
    if (threadIdx.x < WARP * W && c < a.cols && at >= 0 && at < p.numel) store_any(dw, dtype, at, sum.all[0]);
}

/* A row's tokens in order, in the parts of a workspace of `need` bytes (sc_cuda_sorted_tokens_bytes or more). */
sorted sort_tokens(const sc_task *t, const char *op, const lookup &a, const sc_tensor *work, int64_t need) {
    if (!work->p || work->shape[0] < need) sc_unsupported(t, op, "its workspace is too small for the sorted tokens");
    if (a.n >= 1 << 30) sc_unsupported(t, op, "it serves fewer than 2^30 tokens");
    int32_t *p = (int32_t *)work->p, *slot = p + 2 * (int64_t)a.rows + 1;
    sorted s = {p, p + a.rows, slot, slot + a.n, (float *)((char *)p + sc_cuda_sorted_tokens_bytes(a.rows, a.n))};
    unsigned by_token = blocks_for(a.n, BLOCK);
    SC_LAUNCH(t, clear_counts, filling(t, ceil_div(a.rows, BLOCK)), BLOCK, s.count, a.rows);
    SC_LAUNCH(t, count_tokens, by_token, BLOCK, a, s.count);
    SC_LAUNCH(t, find_starts, blocks_for(a.rows, TILE), SCAN_BLOCK, s.count, s.start, a.rows);
    SC_LAUNCH(t, fill_slots, by_token, BLOCK, a, s);
    SC_LAUNCH(t, put_in_order, by_token, BLOCK, a, s);
    if (a.n > LONG) SC_LAUNCH(t, order_long_rows, blocks_for(a.n, LONG), SCAN_BLOCK, a, s);
    return s;
}

} // namespace

SC_KERNEL(embedding) {
    const sc_tensor *y = &k->y, *w = &k->w;
    lookup a = {(const int32_t *)k->index.p, sc_numel(&k->index), (int)w->shape[0], (int)w->shape[1]};
    if (y->dtype != w->dtype) sc_unsupported(task, "embedding", "the table and what is looked up must have one dtype");
    with_runs(task, w->dtype, wide_rows(w) && aligned(y->p, 16), [&](auto e, auto width) {
        SC_LAUNCH(task, (take_rows<decltype(e), width.value>), blocks_for(a.n, BLOCK / WARP), BLOCK, a, w->p, y->p);
    });
}

SC_KERNEL(embedding_grad) {
    const sc_tensor *dw = &k->dw, *g = &k->g;
    lookup a = {(const int32_t *)k->index.p, sc_numel(&k->index), (int)dw->shape[0], (int)dw->shape[1]};
    table to = {dw->p, k->c.p, dw->dtype};
    int64_t need = sc_cuda_embedding_grad_bytes(a.rows, a.n, a.cols);
    sorted s = sort_tokens(task, "embedding_grad", a, &k->work, need);
    /* a run of elements of g must be one of dw and of the partial sums too */
    bool runs = wide_rows(g) && aligned(dw->p, 16) && (int64_t)a.cols * size_of(dw->dtype) % 16 == 0 && a.cols % 4 == 0;
    runs = runs && aligned(to.c, 16);
    with_runs(task, g->dtype, runs, [&](auto e, auto w) {
        typedef decltype(e) E;
        constexpr int W = w.value;
        unsigned columns = blocks_for(a.cols, WARP * W);
        int64_t stretches = ceil_div(a.n, LONG), warps = BLOCK / WARP, rows = to.c == to.dw ? a.n : a.rows;
        dim3 by_row(blocks_for(rows, warps), columns), by_stretch(blocks_for(stretches, warps), columns);
        SC_LAUNCH(task, (sum_rows<E, W>), by_row, BLOCK, a, s, g->p, to);
        if (a.n <= LONG) return; /* no row is long */
        SC_LAUNCH(task, (sum_pieces<E, W>), dim3(blocks_for(stretches * 2, warps), columns), BLOCK, a, s, g->p, to);
        SC_LAUNCH(task, join_pieces<W>, by_stretch, BLOCK, a, s, to);
    });
}

SC_KERNEL(coalesce) {
    const sc_tensor *dw = &k->y, *g = &k->g;
    lookup a = {(const int32_t *)k->index.p, sc_numel(&k->index), (int)k->rows, (int)k->cols};
    sc_coord shard = task->coord[k->shard];
    int64_t ranks = shard.of * task->coord[k->replicate].of, low = k->slice * shard.at;
    slice p = {low, k->slice, low / a.cols, (int)(a.n / ranks), (int)ranks, shard.of};
    if (ranks > MOST_RANKS) sc_unsupported(task, "coalesce", "it serves at most 1024 ranks");
    sorted s = sort_tokens(task, "coalesce", a, &k->work, sc_cuda_sorted_tokens_bytes(a.rows, a.n));
    /* a run is one of a token's row, and lies in the slice or outside; g: rows one after another, of whatever shape */
    int64_t each = 16 / size_of(g->dtype);
    bool runs = aligned(g->p, 16) && a.cols % each == 0 && aligned(dw->p, 16) && p.numel % each == 0;
    with_runs(task, g->dtype, runs, [&](auto e, auto w) {
        typedef decltype(e) E;
        constexpr int W = w.value;
        unsigned columns = blocks_for(a.cols, WARP * W);
        dim3 by_row(blocks_for(ceil_div(p.low + p.numel, a.cols) - p.base, BLOCK / WARP), columns);
        dim3 by_stretch(blocks_for(a.n, LONG), columns);
        SC_LAUNCH(task, (coalesce_rows<E, W>), by_row, BLOCK, a, s, p, g->p, dw->p, dw->dtype);
        if (a.n <= LONG) return; /* no row is long */
        SC_LAUNCH(task, (coalesce_long_rows<E, W>), by_stretch, JOIN_BLOCK, a, s, p, g->p, dw->p, dw->dtype);
    });
}
