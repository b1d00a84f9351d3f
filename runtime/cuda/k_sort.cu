/* sort and topk over the last dimension, and their gradient.
 * Relies on: sort.cuh.
 * Relied on by: generated code. Contiguous operands.
 *
 * topk, short rows: a warp holds a row's items in registers and takes the first of them k times. Longer ones: a block
 * counts the items by one digit after the other, from the highest on, until it knows of a number of digits which k
 * items are the first (radix selection); these are collected in any order, and sorted. The gradient is 0, then g is
 * put at the indices, which are different. */
#include "sort.cuh"

namespace {

template <class E> struct elements {
    const typename E::type *x;
    int64_t n;
    uint32_t turn; /* 0, or all bits of the order: the largest come first */
    SC_DEVICE uint64_t operator()(int64_t row, int64_t i) const {
        return item_of(order<E>::of(x[row * n + i]) ^ turn, (uint32_t)i);
    }
};
template <class E> elements<E> elements_of(const sc_tensor *x, bool turned) {
    return {(const typename E::type *)x->p, cols_of(x), turned ? (uint32_t)(((uint64_t)1 << order<E>::bits) - 1) : 0};
}

/* What items say, as values and indices; n: of a row of x, each: of a row of results. */
template <class E> struct to_results {
    typename E::type *values;
    int32_t *indices;
    const typename E::type *x;
    int64_t n, each;
    SC_DEVICE void operator()(int64_t row, int64_t i, uint64_t item) const {
        values[row * each + i] = x[row * n + (uint32_t)item];
        indices[row * each + i] = (int32_t)(uint32_t)item;
    }
};
template <class E> to_results<E> results_of(const sc_tensor *values, const sc_tensor *indices, const sc_tensor *x) {
    typedef typename E::type type;
    return {(type *)values->p, (int32_t *)indices->p, (const type *)x->p, cols_of(x), cols_of(values)};
}

/* ── topk ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* A warp a row of at most EACH WARP elements. */
template <class E, int EACH>
__global__ void __launch_bounds__(BLOCK) topk_by_warp(elements<E> x, to_results<E> put, int64_t rows) {
    int64_t row = my_row<WARP>();
    int lane = threadIdx.x % WARP;
    if (row >= rows) return;
    uint64_t item[EACH];
#pragma unroll
    for (int j = 0; j < EACH; j++) item[j] = j * WARP + lane < x.n ? x(row, j * WARP + lane) : SC_LAST_ITEM;
    for (int64_t i = 0; i < put.each; i++) {
        uint64_t first = item[0];
#pragma unroll
        for (int j = 1; j < EACH; j++) first = item[j] < first ? item[j] : first;
#pragma unroll
        for (int k = WARP / 2; k; k /= 2) {
            uint64_t other = __shfl_xor_sync(SC_ALL, first, k);
            first = other < first ? other : first;
        }
        if (lane == 0) put(row, i, first);
#pragma unroll
        for (int j = 0; j < EACH; j++) item[j] = item[j] == first ? SC_LAST_ITEM : item[j];
    }
}

enum { DIGIT = 8, DIGITS = 1 << DIGIT };

/* Warp 0: of the digits, by whose number of items `count` is, the one that the item after `before` others has. */
SC_DEVICE void find_digit(const int *count, int need, int *digit, int *before) {
    enum { EACH = DIGITS / WARP };
    int lane = threadIdx.x % WARP, sum = 0;
    for (int j = 0; j < EACH; j++) sum += count[lane * EACH + j];
    int at = sum;
    for (int k = 1; k < WARP; k *= 2) {
        int left = __shfl_up_sync(SC_ALL, at, k);
        if (lane >= k) at += left;
    }
    at -= sum;
    for (int j = 0; j < EACH; j++) {
        int n = count[lane * EACH + j];
        if (at < need && need <= at + n) *digit = lane * EACH + j, *before = at;
        at += n;
    }
}

/* A block a row. */
template <class E> __global__ void __launch_bounds__(SORT_BLOCK) topk_by_block(elements<E> x, to_results<E> put) {
    __shared__ uint64_t found[SC_MOST_TOPK];
    __shared__ int count[DIGITS], digit, before, collected;
    int64_t row = blockIdx.x;
    int need = (int)put.each, shift = 32 + order<E>::bits, size = power_for(need);
    uint64_t prefix = 0; /* the digits above the shift of the last item that is wanted */
    for (bool all = false; !all;) {
        shift -= DIGIT;
        for (int i = threadIdx.x; i < DIGITS; i += SORT_BLOCK) count[i] = 0;
        __syncthreads();
        for (int64_t i = threadIdx.x; i < x.n; i += SORT_BLOCK) {
            uint64_t item = x(row, i) >> shift;
            if (item >> DIGIT == prefix) atomicAdd(&count[item % DIGITS], 1);
        }
        __syncthreads();
        if (threadIdx.x < WARP) find_digit(count, need, &digit, &before);
        __syncthreads();
        prefix = prefix << DIGIT | digit;
        need -= before;
        all = need == count[digit];
        __syncthreads();
    }
    for (int i = threadIdx.x; i < size; i += SORT_BLOCK) found[i] = SC_LAST_ITEM;
    if (threadIdx.x == 0) collected = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < x.n; i += SORT_BLOCK) {
        uint64_t item = x(row, i);
        if (item >> shift <= prefix) found[atomicAdd(&collected, 1)] = item;
    }
    sort_shared(found, size);
    for (int i = threadIdx.x; i < put.each; i += SORT_BLOCK) put(row, i, found[i]);
}

template <class E>
__global__ void __launch_bounds__(BLOCK)
    put_at_indices(typename E::type *dx, const typename E::type *g, const int32_t *indices, int64_t n, int most,
                   int cols) {
    int64_t at = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (at >= n) return;
    int c = indices[at];
    if (c >= 0 && c < cols) dx[at / most * cols + c] = g[at];
}

} // namespace

SC_KERNEL(sort) {
    const sc_tensor *x = &k->x;
    int64_t rows = rows_of(x), cols = cols_of(x);
    if (cols > SC_SORT_TILE && (!k->work.p || k->work.shape[0] < sc_cuda_sort_bytes(rows, cols)))
        sc_unsupported(task, "sort", "its workspace is too small for the items");
    with_sortable(task, x->dtype, [&](auto e) {
        typedef decltype(e) E;
        sort_rows(task, rows, cols, (uint64_t *)k->work.p, elements_of<E>(x, k->descending),
                  results_of<E>(&k->values, &k->indices, x));
    });
}

SC_KERNEL(topk) {
    const sc_tensor *x = &k->x;
    int64_t rows = rows_of(x), cols = cols_of(x);
    with_sortable(task, x->dtype, [&](auto e) {
        typedef decltype(e) E;
        elements<E> from = elements_of<E>(x, !k->smallest);
        to_results<E> to = results_of<E>(&k->values, &k->indices, x);
        if (cols > SC_TOPK_ROW || k->k > SC_TOPK_WARP) {
            SC_LAUNCH(task, topk_by_block<E>, (unsigned)rows, SORT_BLOCK, from, to);
            return;
        }
        at_least<1, 2, 4, 8, 16, 32>((int)ceil_div(cols, WARP), [&](auto each) {
            SC_LAUNCH(task, (topk_by_warp<E, each.value>), blocks_for(rows, BLOCK / WARP), BLOCK, from, to, rows);
        });
    });
}

SC_KERNEL(sort_grad) {
    const sc_tensor *dx = &k->dx, *g = &k->g;
    int64_t n = sc_numel(g);
    sc_cuda_copy(task, dx, NULL);
    with_float(task, dx->dtype, [&](auto e) {
        typedef typename decltype(e)::type type;
        SC_LAUNCH(task, put_at_indices<decltype(e)>, blocks_for(n, BLOCK), BLOCK, (type *)dx->p, (const type *)g->p,
                  (const int32_t *)k->indices.p, n, (int)cols_of(g), (int)k->cols);
    });
}
