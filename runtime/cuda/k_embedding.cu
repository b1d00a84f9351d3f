/* embedding: y[n,:] = w[index[n],:], and its gradient dw[v,:] = Σ_{index[n] = v} g[n,:]; coalesce: a rank's slice of
 * that gradient from the rows of all ranks' tokens, rounded as runtime/cpu/k_coalesce.c says. Relies on: kernel.cuh.
 * Relied on by: generated code. Contiguous operands.
 *
 * The gradient sorts the tokens by row of the table and adds them up in token order, so that it has the same bits in
 * every run. The sort is a counting sort: counts (integer atomics: no order in them), starts, slots in any order, then
 * each token's rank among those of its row, for rows of more than LONG tokens by a block that goes through all tokens
 * in order. A warp adds up a row of up to LONG tokens, columns by columns; longer rows (frequent words, padding) are
 * cut where the sorted list is, every LONG places, into partial sums that are then added in order: a piece of LONG
 * places meets at most two long rows. An index outside the table reads NaN and is left out.
 *
 * Workspace (compiler/ir/rules_work.c; n tokens, V rows, D columns), int32: count [V], start [V+1], slot [n],
 * order [n]; then at a multiple of 16 bytes floats: partial [pieces][2][D]. */
#include "kernel.cuh"

namespace {

enum { LONG = 128, TILE = 4096, SCAN_BLOCK = 1024 };

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
    int scan = sum; /* of this and the lanes before */
#pragma unroll
    for (int k = 1; k < WARP; k *= 2) {
        int x = __shfl_up_sync(SC_ALL, scan, k);
        if (lane >= k) scan += x;
    }
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

/* The long row that piece `piece` meets first (which = 0) or starts last (which = 1): its places; empty where none is.
 * A row of more than LONG tokens that begins before the piece is met at the piece's first place. `places`: tokens by
 * row, in any order within one. */
SC_DEVICE void long_row(const lookup &a, const sorted &s, const int32_t *places, int piece, int which, int *v,
                        int *begin, int *end) {
    int total = s.start[a.rows], first = piece * LONG, last = first + LONG - 1;
    last = last < total ? last : total - 1;
    *begin = *end = 0;
    *v = -1;
    if (first >= total) return;
    int of_first = a.index[places[first]], of_last = a.index[places[last]];
    if (which && of_last == of_first) return;
    *v = which ? of_last : of_first;
    *begin = s.start[*v];
    *end = s.start[*v + 1];
    if (*end - *begin <= LONG) *v = -1;
}

/* A block a (piece, which): the tokens of the long row that begins there. */
__global__ void __launch_bounds__(SCAN_BLOCK) order_long_rows(lookup a, sorted s) {
    __shared__ int warps[SCAN_BLOCK / WARP];
    enum { EACH = 4 };
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, piece = blockIdx.x / 2, v, begin, end;
    long_row(a, s, s.slot, piece, blockIdx.x % 2, &v, &begin, &end);
    if (v < 0 || begin < piece * LONG) return;
    for (int64_t first = 0; first < a.n; first += SCAN_BLOCK * EACH) {
        int64_t mine = first + threadIdx.x * EACH;
        bool hit[EACH];
        int hits = 0, at = begin;
#pragma unroll
        for (int k = 0; k < EACH; k++) hits += hit[k] = mine + k < a.n && a.index[mine + k] == v;
        int scan = hits; /* of this and the lanes before */
#pragma unroll
        for (int k = 1; k < WARP; k *= 2) {
            int x = __shfl_up_sync(SC_ALL, scan, k);
            if (lane >= k) scan += x;
        }
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
/* Columns c .. c+W of the tokens at places [begin, end), in order. The whole warp calls it. */
template <class E, int W>
SC_DEVICE void add_tokens(float *sum, const lookup &a, const int32_t *order, const void *g, int begin, int end, int c) {
    enum { U = 4 };
    typedef typename E::type type;
#pragma unroll
    for (int k = 0; k < W; k++) sum[k] = 0;
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

/* A warp a row and WARP·W columns (blockIdx.y). */
template <class E, int W>
__global__ void __launch_bounds__(BLOCK) sum_rows(lookup a, sorted s, const void *g, void *dw, int dtype) {
    int64_t v = my_row<WARP>();
    int c = (blockIdx.y * WARP + threadIdx.x % WARP) * W;
    if (v >= a.rows) return;
    int begin = s.start[v], end = s.start[v + 1];
    if (end - begin > LONG) return;
    float sum[W];
    add_tokens<E, W>(sum, a, s.order, g, begin, end, c);
    if (c < a.cols) store_run<W>(dw, dtype, v * a.cols + c, sum);
}

/* Warps: (piece, which), columns by blockIdx.y. */
template <class E, int W> __global__ void __launch_bounds__(BLOCK) sum_pieces(lookup a, sorted s, const void *g) {
    int64_t u = my_row<WARP>();
    int piece = (int)(u / 2), which = (int)(u % 2), v, begin, end;
    int c = (blockIdx.y * WARP + threadIdx.x % WARP) * W;
    long_row(a, s, s.order, piece, which, &v, &begin, &end);
    if (v < 0) return;
    begin = begin > piece * LONG ? begin : piece * LONG;
    end = end < (piece + 1) * LONG ? end : (piece + 1) * LONG;
    float sum[W];
    add_tokens<E, W>(sum, a, s.order, g, begin, end, c);
    if (c < a.cols) store_run<W>(s.partial, FP32, u * a.cols + c, sum);
}

/* The warp of the (piece, which) in which a long row begins adds its pieces up. */
template <int W> __global__ void __launch_bounds__(BLOCK) join_pieces(lookup a, sorted s, void *dw, int dtype) {
    int64_t u = my_row<WARP>();
    int piece = (int)(u / 2), which = (int)(u % 2), v, begin, end;
    int c = (blockIdx.y * WARP + threadIdx.x % WARP) * W;
    long_row(a, s, s.order, piece, which, &v, &begin, &end);
    if (v < 0 || begin < piece * LONG || c >= a.cols) return;
    raw<fp32, W> r;
    float sum[W];
    r.load(s.partial + u * a.cols + c);
#pragma unroll
    for (int k = 0; k < W; k++) sum[k] = r.get(k);
#pragma unroll 4
    for (int p = piece + 1; p * LONG < end; p++) {
        r.load(s.partial + (int64_t)p * 2 * a.cols + c);
#pragma unroll
        for (int k = 0; k < W; k++) sum[k] += r.get(k);
    }
    store_run<W>(dw, dtype, (int64_t)v * a.cols + c, sum);
}

/* ── rows of all ranks ────────────────────────────────────────────────────────────────────────────────────────────────
 */
struct slice {
    int64_t low, high;   /* elements of the table; the slice goes on to low + numel with zeros */
    int64_t numel, base; /* base: its first row */
    int tokens, ranks;   /* of a rank; of a group */
};

SC_DEVICE float rounded(int dtype, float x) {
    return dtype == FP16 ? sc_from_fp16(sc_to_fp16(x)) : dtype == BF16 ? sc_from_bf16(sc_to_bf16(x)) : x;
}

/* A warp a row of the slice and WARP columns (blockIdx.y): its tokens in order, an element a lane. */
template <class E>
__global__ void __launch_bounds__(BLOCK)
    coalesce_rows(lookup a, sorted s, slice p, const void *g, void *dw, int dtype) {
    int64_t v = p.base + my_row<WARP>();
    int c = blockIdx.y * WARP + threadIdx.x % WARP;
    int64_t at = v * a.cols + c;
    if (c >= a.cols || at < p.low || at >= p.low + p.numel) return;
    float of_rank = 0, of_group = 0, sum = 0;
    int end = at < p.high ? s.start[v + 1] : 0;
    for (int i = at < p.high ? s.start[v] : 0; i < end; i++) {
        int n = s.order[i], rank = n / p.tokens, after = i + 1 < end ? s.order[i + 1] / p.tokens : INT32_MAX;
        of_rank += E::get(((const typename E::type *)g)[(int64_t)n * a.cols + c]);
        if (after == rank) continue;
        of_group += rounded(dtype, of_rank);
        of_rank = 0;
        if (after / p.ranks == rank / p.ranks) continue;
        sum += rounded(dtype, of_group);
        of_group = 0;
    }
    store_any(dw, dtype, at - p.low, sum);
}

/* How the workspace is divided; -1: it is too small. */
int64_t divide(sorted *s, const lookup &a, const sc_tensor *workspace) {
    int64_t ints = 2 * (int64_t)a.rows + 1 + 2 * a.n, bytes = ceil_div(ints * 4, 16) * 16;
    int64_t pieces = ceil_div(a.n, LONG);
    int32_t *p = (int32_t *)workspace->p;
    *s = {p, p + a.rows, p + 2 * (int64_t)a.rows + 1, p + 2 * (int64_t)a.rows + 1 + a.n, (float *)((char *)p + bytes)};
    return workspace->shape[0] < bytes + pieces * 2 * a.cols * 4 ? -1 : pieces;
}

void sort_tokens(const sc_task *t, const lookup &a, const sorted &s, int64_t pieces) {
    unsigned by_token = blocks_for(a.n, BLOCK);
    SC_LAUNCH(t, clear_counts, filling(t, ceil_div(a.rows, BLOCK)), BLOCK, s.count, a.rows);
    SC_LAUNCH(t, count_tokens, by_token, BLOCK, a, s.count);
    SC_LAUNCH(t, find_starts, blocks_for(a.rows, TILE), SCAN_BLOCK, s.count, s.start, a.rows);
    SC_LAUNCH(t, fill_slots, by_token, BLOCK, a, s);
    SC_LAUNCH(t, put_in_order, by_token, BLOCK, a, s);
    if (a.n > LONG) SC_LAUNCH(t, order_long_rows, (unsigned)(pieces * 2), SCAN_BLOCK, a, s);
}

template <class E, int W>
void sum_tokens(const sc_task *t, const lookup &a, const sorted &s, int64_t pieces, const sc_tensor *g,
                const sc_tensor *dw) {
    unsigned wide_columns = blocks_for(a.cols, WARP * W);
    dim3 rows(blocks_for(a.rows, BLOCK / WARP), wide_columns), cut(blocks_for(pieces * 2, BLOCK / WARP), wide_columns);
    SC_LAUNCH(t, (sum_rows<E, W>), rows, BLOCK, a, s, g->p, dw->p, dw->dtype);
    if (a.n <= LONG) return; /* no row is long */
    SC_LAUNCH(t, (sum_pieces<E, W>), cut, BLOCK, a, s, g->p);
    SC_LAUNCH(t, join_pieces<W>, cut, BLOCK, a, s, dw->p, dw->dtype);
}

} // namespace

extern "C" void sc_k_embedding(const sc_task *t) {
    const sc_tensor *y = &t->t[0], *index = &t->t[1], *w = &t->t[2];
    lookup a = {(const int32_t *)index->p, numel_of(index), (int)w->shape[0], (int)w->shape[1]};
    if (y->dtype != w->dtype) sc_unsupported(t, "embedding", "the table and what is looked up must have one dtype");
    bool wide_enough = wide_rows(w) && aligned(y->p, 16);
    with_float(t, w->dtype, [&](auto e) {
        typedef decltype(e) E;
        if (wide_enough)
            SC_LAUNCH(t, (take_rows<E, wide<E>>), blocks_for(a.n, BLOCK / WARP), BLOCK, a, w->p, y->p);
        else
            SC_LAUNCH(t, (take_rows<E, 1>), blocks_for(a.n, BLOCK / WARP), BLOCK, a, w->p, y->p);
    });
}

extern "C" void sc_k_embedding_grad(const sc_task *t) {
    const sc_tensor *dw = &t->t[0], *index = &t->t[1], *g = &t->t[2];
    lookup a = {(const int32_t *)index->p, numel_of(index), (int)dw->shape[0], (int)dw->shape[1]};
    sorted s;
    int64_t pieces = t->nt < 4 ? -1 : divide(&s, a, &t->t[3]);
    if (pieces < 0) sc_unsupported(t, "embedding_grad", "its workspace is too small for the sorted tokens");
    if (a.n >= 1 << 30) sc_unsupported(t, "embedding_grad", "it serves fewer than 2^30 tokens");
    sort_tokens(t, a, s, pieces);
    with_float(t, g->dtype, [&](auto e) {
        typedef decltype(e) E;
        /* a run of W elements of g must be one of dw and of the partial sums too */
        if (wide_rows(g) && aligned(dw->p, 16) && (int64_t)a.cols * size_of(dw->dtype) % 16 == 0 && a.cols % 4 == 0)
            sum_tokens<E, wide<E>>(t, a, s, pieces, g, dw);
        else
            sum_tokens<E, 1>(t, a, s, pieces, g, dw);
    });
}

extern "C" void sc_k_coalesce(const sc_task *t) {
    const sc_tensor *dw = &t->t[0], *index = &t->t[1], *g = &t->t[2];
    lookup a = {(const int32_t *)index->p, numel_of(index), (int)t->i[0], (int)t->i[1]};
    int64_t all = t->i[0] * t->i[1], low = t->i[4] * (t->rank % t->i[5]), high = low + t->i[4];
    sorted s;
    int64_t pieces = t->nt < 4 ? -1 : divide(&s, a, &t->t[3]);
    if (pieces < 0) sc_unsupported(t, "coalesce", "its workspace is too small for the sorted tokens");
    if (a.n >= 1 << 30) sc_unsupported(t, "coalesce", "it serves fewer than 2^30 tokens");
    slice p = {low, high < all ? high : all, t->i[4], low / a.cols, (int)(a.n / (t->i[2] * t->i[3])), (int)t->i[2]};
    dim3 grid(blocks_for(ceil_div(high, a.cols) - p.base, BLOCK / WARP), blocks_for(a.cols, WARP));
    sort_tokens(t, a, s, pieces);
    with_float(t, g->dtype,
               [&](auto e) { SC_LAUNCH(t, coalesce_rows<decltype(e)>, grid, BLOCK, a, s, p, g->p, dw->p, dw->dtype); });
}
