/* scan and cummax: sums, linear recurrences and the place of the largest element so far along the last dimension.
 * Relies on: sort.cuh.
 * Relied on by: generated code. Contiguous operands; scan's x may have y's bytes.
 *
 * Each is a scan with an operation that is associative (Blelloch 1990). Of y[i] = a[i] y[i - 1] + x[i] an element is
 * the map y -> a y + x, and the operation applies one after the other. A block has a tile of a row. Where a row has
 * several, a first pass finds each tile's total, a second scans these, row by row, and a third begins each tile with
 * what was before it. Tiles depend on shapes only, and so do bits.
 *
 * Workspace: [rows][tiles], a total each. */
#include "sort.cuh"

namespace {

enum { EACH = SC_SCAN_TILE / BLOCK };

/* An operation: the value that changes nothing, joins (the left one comes first), what element i of the scan is, and
 * what becomes of the value there. Positions count from the first element of the scan, which `reverse` is the row's
 * last. */
template <class E> struct sum_of {
    typedef typename std::conditional<std::is_same<E, i32>::value, int32_t, float>::type type;
    const typename E::type *x;
    typename E::type *y;
    int64_t n;
    bool reverse;
    static SC_DEVICE type none() { return 0; }
    static SC_DEVICE type join(type left, type right) { return left + right; }
    SC_DEVICE int64_t place(int64_t row, int64_t i) const { return row * n + (reverse ? n - 1 - i : i); }
    SC_DEVICE type get(int64_t row, int64_t i) const {
        if constexpr (std::is_same<E, i32>::value)
            return x[place(row, i)];
        else
            return E::get(x[place(row, i)]);
    }
    SC_DEVICE void put(int64_t row, int64_t i, type v) const {
        if constexpr (std::is_same<E, i32>::value)
            y[place(row, i)] = v;
        else
            y[place(row, i)] = E::put(v);
    }
};

struct map {
    float a, x;
};
template <class E> struct recurrence {
    typedef map type;
    const typename E::type *x, *a;
    typename E::type *y;
    int64_t n;
    bool reverse;
    static SC_DEVICE map none() { return {1, 0}; }
    static SC_DEVICE map join(map left, map right) { return {left.a * right.a, sc_fma(right.a, left.x, right.x)}; }
    SC_DEVICE map get(int64_t row, int64_t i) const {
        int64_t at = row * n + (reverse ? n - 1 - i : i);
        return {i ? E::get(a[reverse ? at + 1 : at]) : 0, E::get(x[at])}; /* nothing is before the first */
    }
    SC_DEVICE void put(int64_t row, int64_t i, map v) const {
        y[row * n + (reverse ? n - 1 - i : i)] = E::put(v.x);
    }
};

template <class E> struct largest {
    typedef uint64_t type;
    const typename E::type *x;
    int32_t *y;
    int64_t n;
    bool smallest;
    static SC_DEVICE uint64_t none() { return 0; }
    static SC_DEVICE uint64_t join(uint64_t left, uint64_t right) { return right > left ? right : left; }
    SC_DEVICE uint64_t get(int64_t row, int64_t i) const {
        uint32_t v = order<E>::of(x[row * n + i]), most = (uint32_t)(((uint64_t)1 << order<E>::bits) - 1);
        bool nan = !std::is_same<E, i32>::value && v == most; /* above all, whichever way the order goes */
        return item_of(smallest && !nan ? ~v : nan ? ~0u : v, (uint32_t)i);
    }
    SC_DEVICE void put(int64_t row, int64_t i, uint64_t v) const { y[row * n + i] = (int32_t)(uint32_t)v; }
};

/* Of the totals of a row's tiles, in place. */
template <class OP> struct totals : OP {
    typedef typename OP::type type;
    type *total;
    SC_DEVICE type get(int64_t row, int64_t i) const { return total[row * this->n + i]; }
    SC_DEVICE void put(int64_t row, int64_t i, type v) const { total[row * this->n + i] = v; }
};

/* What the threads before this one hold, joined; *all: of the whole block. */
template <class OP> SC_DEVICE typename OP::type before_thread(typename OP::type mine, typename OP::type *all) {
    typedef typename OP::type type;
    __shared__ uint64_t room[BLOCK];
    static_assert(sizeof(type) <= sizeof *room, "there is room for each");
    type *held = (type *)room;
    int i = threadIdx.x, threads = blockDim.x;
    __syncthreads();
    held[i] = mine;
    for (int step = 1; step < threads; step *= 2) {
        __syncthreads();
        type left = i >= step ? held[i - step] : OP::none();
        __syncthreads();
        if (i >= step) held[i] = OP::join(left, held[i]);
    }
    __syncthreads();
    *all = held[threads - 1];
    return i ? held[i - 1] : OP::none();
}

/* Elements [first, first + EACH threads) of a scan of n, after `before`: f(i, value) for each of them. Returns the
 * value behind the last. */
template <class OP, class F>
SC_DEVICE typename OP::type scan_tile(const OP &op, int64_t row, int64_t first, int64_t n, typename OP::type before,
                                      F f) {
    typename OP::type v[EACH], all;
    int64_t mine = first + threadIdx.x * EACH;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        v[k] = mine + k < n ? op.get(row, mine + k) : OP::none();
        if (k) v[k] = OP::join(v[k - 1], v[k]);
    }
    typename OP::type left = OP::join(before, before_thread<OP>(v[EACH - 1], &all));
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (mine + k < n) f(mine + k, OP::join(left, v[k]));
    return OP::join(before, all);
}

/* A block a tile. */
template <class OP>
__global__ void __launch_bounds__(BLOCK) find_totals(OP op, int64_t tiles, typename OP::type *total) {
    int64_t row = blockIdx.x / tiles, tile = blockIdx.x - row * tiles;
    typename OP::type all =
        scan_tile(op, row, tile * SC_SCAN_TILE, op.n, OP::none(), [](int64_t, typename OP::type) {});
    if (threadIdx.x == 0) total[blockIdx.x] = all;
}

/* A block a row, one tile after the other. */
template <class OP> __global__ void __launch_bounds__(BLOCK) scan_rows(OP op) {
    typename OP::type before = OP::none();
    for (int64_t first = 0; first < op.n; first += EACH * blockDim.x)
        before = scan_tile(op, blockIdx.x, first, op.n, before,
                           [&](int64_t i, typename OP::type v) { op.put(blockIdx.x, i, v); });
}

/* A block a tile; total: of the row's tiles up to each. */
template <class OP>
__global__ void __launch_bounds__(BLOCK) scan_tiles(OP op, int64_t tiles, const typename OP::type *total) {
    int64_t row = blockIdx.x / tiles, tile = blockIdx.x - row * tiles;
    scan_tile(op, row, tile * SC_SCAN_TILE, op.n, tile ? total[blockIdx.x - 1] : OP::none(),
              [&](int64_t i, typename OP::type v) { op.put(row, i, v); });
}

template <class OP>
void scan_with(const sc_task *t, const char *name, const sc_tensor *work, int64_t rows, OP op) {
    typedef typename OP::type type;
    int64_t tiles = ceil_div(op.n, SC_SCAN_TILE);
    type *total = (type *)work->p;
    if (tiles == 1) {
        int block = WARP;
        while (block * EACH < op.n) block *= 2;
        SC_LAUNCH(t, scan_rows<OP>, (unsigned)rows, block, op);
        return;
    }
    if (!work->p || work->shape[0] < sc_cuda_scan_bytes(rows, op.n))
        sc_unsupported(t, name, "its workspace is too small for the tiles' totals");
    totals<OP> of_row = {op, total};
    of_row.n = tiles;
    SC_LAUNCH(t, find_totals<OP>, (unsigned)(rows * tiles), BLOCK, op, tiles, total);
    SC_LAUNCH(t, scan_rows<totals<OP>>, (unsigned)rows, BLOCK, of_row);
    SC_LAUNCH(t, scan_tiles<OP>, (unsigned)(rows * tiles), BLOCK, op, tiles, total);
}

} // namespace

SC_KERNEL(scan) {
    const sc_tensor *x = &k->x, *y = &k->y, *a = present(&k->a);
    int64_t rows = rows_of(x), n = cols_of(x);
    bool reverse = k->reverse;
    with_sortable(task, x->dtype, [&](auto e) {
        typedef decltype(e) E;
        typedef typename E::type type;
        if constexpr (!std::is_same<E, i32>::value) {
            if (a) {
                recurrence<E> op = {(const type *)x->p, (const type *)a->p, (type *)y->p, n, reverse};
                scan_with(task, "scan", &k->work, rows, op);
                return;
            }
        }
        scan_with(task, "scan", &k->work, rows, sum_of<E>{(const type *)x->p, (type *)y->p, n, reverse});
    });
}

SC_KERNEL(cummax) {
    const sc_tensor *x = &k->x;
    with_sortable(task, x->dtype, [&](auto e) {
        typedef decltype(e) E;
        largest<E> op = {(const typename E::type *)x->p, (int32_t *)k->indices.p, cols_of(x), k->smallest != 0};
        scan_with(task, "cummax", &k->work, rows_of(x), op);
    });
}
