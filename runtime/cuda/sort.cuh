/* The order of elements, and sorting rows of items, in shared memory and by merging.
 * Relies on: kernel.cuh, schema/workspace.h.
 * Relied on by: k_sort.cu, k_gather.cu, k_scan.cu.
 *
 * An item is 64 bits: what the order is by in the upper half, an index in the lower. No two items of a row are equal,
 * so that a row has one order, which no way of sorting changes. Tiles of SC_SORT_TILE items are sorted in shared
 * memory by a bitonic network (Batcher 1968), then runs are merged, two at a time: a thread finds by bisection where
 * its MERGED items begin in both (merge path: Green, McColl, Bader 2012). */
#ifndef SC_SORT_CUH
#define SC_SORT_CUH

#include "../schema/workspace.h"
#include "kernel.cuh"

/* The order of elements as that of unsigned numbers of so many bits. */
template <class E> struct order;
template <> struct order<fp32> {
    static constexpr int bits = 32;
    static SC_DEVICE uint32_t of(float x) { return (uint32_t)sc_order_fp32(x); }
};
template <> struct order<bf16> {
    static constexpr int bits = 16;
    static SC_DEVICE uint32_t of(sc_bf16_t x) { return (uint32_t)sc_order_bf16(x); }
};
template <> struct order<fp16> {
    static constexpr int bits = 16;
    static SC_DEVICE uint32_t of(sc_fp16_t x) { return (uint32_t)sc_order_fp16(x); }
};
template <> struct order<i32> {
    static constexpr int bits = 32;
    static SC_DEVICE uint32_t of(int32_t x) { return (uint32_t)sc_order_int32(x); }
};

/* f(E{}) of a dtype that has an order. */
template <class F> static void with_sortable(const sc_task *t, int dtype, F f) {
    if (dtype == INT32)
        f(i32{});
    else
        with_float(t, dtype, f);
}

enum { SORT_BLOCK = 512, MERGED = 8 };
#define SC_LAST_ITEM (~(uint64_t)0)

SC_DEVICE uint64_t item_of(uint32_t order, uint32_t index) {
    return (uint64_t)order << 32 | index;
}

/* The least power of two that is at least n. */
SC_FN int power_for(int n) {
    int p = 1;
    while (p < n) p *= 2;
    return p;
}

/* Sorts n items, a power of two, in shared memory. The whole block calls it. */
SC_DEVICE void sort_shared(uint64_t *s, int n) {
    for (int size = 2; size <= n; size *= 2)
        for (int step = size / 2; step; step /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < n / 2; i += blockDim.x) {
                int low = 2 * i - (i & (step - 1)), high = low + step;
                uint64_t a = s[low], b = s[high];
                if ((a > b) == !(low & size)) s[low] = b, s[high] = a;
            }
        }
    __syncthreads();
}

/* A block a tile: items make(row, i) of a row of n, sorted, go to put(row, i, item). size: a tile's, a power of two. */
template <class MAKE, class PUT>
__global__ void __launch_bounds__(SORT_BLOCK) sort_tiles(MAKE make, PUT put, int64_t n, int64_t tiles, int size) {
    __shared__ uint64_t items[SC_SORT_TILE];
    int64_t row = blockIdx.x / tiles, first = (blockIdx.x - row * tiles) * size;
    for (int i = threadIdx.x; i < size; i += blockDim.x)
        items[i] = first + i < n ? make(row, first + i) : SC_LAST_ITEM;
    sort_shared(items, size);
    for (int i = threadIdx.x; i < size && first + i < n; i += blockDim.x) put(row, first + i, items[i]);
}

/* A thread MERGED items of a row, which lie in one pair of runs. */
template <class PUT>
__global__ void __launch_bounds__(BLOCK)
    merge_runs(const uint64_t *from, PUT put, int64_t rows, int64_t n, int64_t run) {
    int64_t each = (n + MERGED - 1) / MERGED, at = (int64_t)blockIdx.x * BLOCK + threadIdx.x, row = at / each;
    if (row >= rows) return;
    int64_t p = (at - row * each) * MERGED, first = p / (2 * run) * (2 * run);
    int64_t left = first + run < n ? run : n - first, right = n - first - left < run ? n - first - left : run;
    const uint64_t *a = from + row * n + first, *b = a + left;
    int64_t d = p - first, low = d > right ? d - right : 0, high = d < left ? d : left;
    while (low < high) { /* how many of the d items before p are a's */
        int64_t middle = (low + high) / 2;
        if (a[middle] < b[d - 1 - middle])
            low = middle + 1;
        else
            high = middle;
    }
    int64_t i = low, j = d - low;
    for (int k = 0; k < MERGED && i + j < left + right; k++)
        if (j == right || (i < left && a[i] < b[j]))
            put(row, p + k, a[i++]);
        else
            put(row, p + k, b[j++]);
}

struct to_items {
    uint64_t *items;
    int64_t n;
    SC_DEVICE void operator()(int64_t row, int64_t i, uint64_t item) const { items[row * n + i] = item; }
};

/* How often runs are merged. */
static inline int merges_of(int64_t n) {
    int count = 0;
    for (int64_t run = SC_SORT_TILE; run < n; run *= 2) count++;
    return count;
}

/* Sorts rows of n items. items [2][rows][n]: before the last merge they are in the half that its number tells, odd in
 * the first; NULL where no runs are merged. */
template <class MAKE, class PUT>
static void sort_rows(const sc_task *t, int64_t rows, int64_t n, uint64_t *items, MAKE make, PUT put) {
    int merges = merges_of(n), size = merges ? SC_SORT_TILE : power_for((int)n);
    int64_t tiles = ceil_div(n, size);
    int block = size / 2 < WARP ? WARP : size / 2 < SORT_BLOCK ? size / 2 : SORT_BLOCK;
    unsigned by_merged = blocks_for(rows * ceil_div(n, MERGED), BLOCK);
    to_items half[] = {{items, n}, {items + rows * n, n}};
    if (!merges) {
        SC_LAUNCH(t, (sort_tiles<MAKE, PUT>), (unsigned)(rows * tiles), block, make, put, n, tiles, size);
        return;
    }
    SC_LAUNCH(t, (sort_tiles<MAKE, to_items>), (unsigned)(rows * tiles), block, make, half[0], n, tiles, size);
    int64_t run = size;
    for (int k = 0; k < merges - 1; k++, run *= 2)
        SC_LAUNCH(t, (merge_runs<to_items>), by_merged, BLOCK, half[k % 2].items, half[(k + 1) % 2], rows, n, run);
    SC_LAUNCH(t, (merge_runs<PUT>), by_merged, BLOCK, half[(merges - 1) % 2].items, put, rows, n, run);
}

#endif
