/* Products of groups: each row of a times the matrix of its group; and its gradient, a product over each group's rows.
 * Sums are made in fp32, in the order of the inner dimension, and rounded once.
 * Relies on: groups.cuh, mma.h, grouped_hopper.h, which has faster kernels for compute capability 9.0.
 * Relied on by: generated code. Contiguous operands.
 *
 * A block has a tile of 64 × 64 of a result; counts are read on the device, and the grid is the most that any counts
 * need (groups.cuh). 16-bit operands are multiplied by mma.sync, fp32 by fma. Both operands go through shared memory
 * with the inner dimension contiguous, whichever way they lie. */
#include "grouped_hopper.h"
#include "groups.cuh"
#include "mma.h"

namespace {

enum { TILE = 64, DEPTH = 32, THREADS = 128 };

template <class E> struct mma_of;
template <> struct mma_of<bf16> { typedef sc_bf16 type; };
template <> struct mma_of<fp16> { typedef sc_fp16 type; };

/* An operand: element (i, k) is p[i * ld + k], or where not `deep` p[k * ld + i]. */
struct side {
    const void *p;
    int64_t ld;
    bool deep;
};

template <class E> struct shared_tile {
    static constexpr int row = DEPTH + (sizeof(typename E::type) == 2 ? 8 : 1);
    typename E::type at[TILE * row];
};

/* Elements (0.., 0..) of `s`, of which `rows` and `depth` are there, zeros beyond. */
template <class E>
SC_DEVICE void load(shared_tile<E> &to, const typename E::type *p, const side &s, int rows, int depth) {
    typedef typename E::type type;
    enum { RUN = 8 };
    for (int v = threadIdx.x; v < TILE * DEPTH / RUN; v += THREADS) {
        int i = s.deep ? v / (DEPTH / RUN) : v % (TILE / RUN) * RUN;
        int k = s.deep ? v % (DEPTH / RUN) * RUN : v / (TILE / RUN);
        const type *from = p + (s.deep ? i * s.ld + k : k * s.ld + i);
        type x[RUN];
        bool all = s.deep ? i < rows && k + RUN <= depth : k < depth && i + RUN <= rows;
        if (all && (uintptr_t)from % 16 == 0) {
            raw<E, RUN> r;
            r.load(from);
            memcpy(x, r.w, sizeof x);
        } else {
#pragma unroll
            for (int u = 0; u < RUN; u++) {
                bool there = s.deep ? i < rows && k + u < depth : k < depth && i + u < rows;
                x[u] = there ? from[u] : E::put(0);
            }
        }
#pragma unroll
        for (int u = 0; u < RUN; u++)
            to.at[s.deep ? i * shared_tile<E>::row + k + u : (i + u) * shared_tile<E>::row + k] = x[u];
    }
}

/* sums of this thread: elements (row, column) of which `place` says where. */
template <class E> struct sums_of {
    float c[TILE * TILE / THREADS];
    static constexpr bool halves = sizeof(typename E::type) == 2;

    SC_DEVICE void clear() {
#pragma unroll
        for (int i = 0; i < TILE * TILE / THREADS; i++) c[i] = 0;
    }
    /* Of 16 bits: a warp has 32 × 32, as 2 × 4 fragments of 16 × 8. Of fp32: a thread has 8 rows and 4 columns. */
    SC_DEVICE static void place(int i, int *row, int *column) {
        int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
        if (halves) {
            int fragment = i / 4, u = i % 4;
            *row = warp / 2 * 32 + fragment / 4 * 16 + lane / 4 + u / 2 * 8;
            *column = warp % 2 * 32 + fragment % 4 * 8 + lane % 4 * 2 + u % 2;
        } else {
            *row = threadIdx.x / 16 * 8 + i / 4;
            *column = threadIdx.x % 16 * 4 + i % 4;
        }
    }
    SC_DEVICE void add(const shared_tile<E> &a, const shared_tile<E> &b) {
        constexpr int ld = shared_tile<E>::row;
        if constexpr (halves) {
            typedef typename mma_of<E>::type half;
            int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4 * 2;
#pragma unroll
            for (int k = 0; k < DEPTH; k += 16)
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    const typename E::type *p = a.at + (warp / 2 * 32 + m * 16 + g) * ld + k + t;
                    uint32_t x[4] = {two(p), two(p + 8 * ld), two(p + 8), two(p + 8 * ld + 8)};
#pragma unroll
                    for (int n = 0; n < 4; n++) {
                        const typename E::type *q = b.at + (warp % 2 * 32 + n * 8 + g) * ld + k + t;
                        sc_mma<half>(*(float(*)[4])(c + (m * 4 + n) * 4), x, two(q), two(q + 8));
                    }
                }
        } else {
            int row = threadIdx.x / 16 * 8, column = threadIdx.x % 16 * 4;
#pragma unroll 4
            for (int k = 0; k < DEPTH; k++)
#pragma unroll
                for (int i = 0; i < 32; i++)
                    c[i] = fmaf(E::get(a.at[(row + i / 4) * ld + k]), E::get(b.at[(column + i % 4) * ld + k]), c[i]);
        }
    }
    SC_DEVICE static uint32_t two(const typename E::type *p) {
        return *(const uint32_t *)p;
    }
};

struct products {
    side a, b;
    void *y;
    const void *bias; /* NULL: none; of the dtype of a */
    const int32_t *counts;
    int64_t size; /* elements of a group's matrix */
    int rows, groups, m, n, k, across, down, out;
};

template <class E>
SC_DEVICE void multiply(const products &p, const side &a, const typename E::type *at_a, const side &b,
                        const typename E::type *at_b, int m, int n, int k, int64_t y0, const typename E::type *bias) {
    __shared__ shared_tile<E> ta, tb;
    sums_of<E> sums;
    sums.clear();
    for (int k0 = 0; k0 < k; k0 += DEPTH) {
        __syncthreads();
        load<E>(ta, at_a + (a.deep ? k0 : k0 * a.ld), a, m, k - k0);
        load<E>(tb, at_b + (b.deep ? k0 : k0 * b.ld), b, n, k - k0);
        __syncthreads();
        sums.add(ta, tb);
    }
#pragma unroll
    for (int i = 0; i < TILE * TILE / THREADS; i++) {
        int row, column;
        sums_of<E>::place(i, &row, &column);
        float sum = bias && column < n ? sums.c[i] + E::get(bias[column]) : sums.c[i];
        if (row < m && column < n) store_any(p.y, p.out, y0 + (int64_t)row * p.n + column, sum);
    }
}

SC_DEVICE int within(int left) {
    return left < TILE ? left : TILE;
}

template <class E> __global__ void __launch_bounds__(THREADS) by_rows(const products p) {
    typedef typename E::type type;
    __shared__ sc_rows_of found;
    int c = blockIdx.x % p.across * TILE, lane = threadIdx.x % WARP;
    if (threadIdx.x < WARP) {
        sc_rows_of r = sc_find_rows(p.counts, p.groups, p.rows, TILE, blockIdx.x / p.across, lane);
        if (lane == 0) found = r;
    }
    __syncthreads();
    sc_rows_of r = found;
    int m = r.end - r.begin, n = within(p.n - c);
    if (m <= 0) return;
    int64_t y0 = (int64_t)r.begin * p.n + c;
    if (r.group < 0) {
        for (int i = threadIdx.x; i < m * TILE; i += THREADS)
            if (i % TILE < n) store_any(p.y, p.out, y0 + (int64_t)(i / TILE) * p.n + i % TILE, 0);
        return;
    }
    multiply<E>(p, p.a, (const type *)p.a.p + r.begin * p.a.ld, p.b,
                (const type *)p.b.p + r.group * p.size + (p.b.deep ? c * p.b.ld : c), m, n, p.k, y0,
                p.bias ? (const type *)p.bias + (int64_t)r.group * p.n + c : nullptr);
}

template <class E> __global__ void __launch_bounds__(THREADS) over_rows(const products p) {
    typedef typename E::type type;
    __shared__ sc_rows_of found;
    int u = blockIdx.x, c = u % p.across * TILE, i = u / p.across % p.down * TILE, g = u / p.across / p.down;
    if (threadIdx.x < WARP) {
        sc_rows_of r = sc_group_rows(p.counts, g, p.rows, threadIdx.x);
        if (threadIdx.x == 0) found = r;
    }
    __syncthreads();
    sc_rows_of r = found;
    multiply<E>(p, p.a, (const type *)p.a.p + r.begin * p.a.ld + i, p.b, (const type *)p.b.p + r.begin * p.b.ld + c,
                within(p.m - i), within(p.n - c), r.end - r.begin, g * p.size + (int64_t)i * p.n + c, nullptr);
}

} // namespace

SC_KERNEL(grouped_matmul) {
    if (sc_grouped_hopper(task, k)) return;
    const sc_tensor *a = &k->a, *b = &k->b, *y = &k->y;
    bool t = k->trans_b != 0;
    products p = {};
    p.rows = (int)a->shape[0], p.k = (int)a->shape[1], p.n = (int)y->shape[1], p.groups = (int)b->shape[0];
    p.a = {a->p, p.k, true};
    p.b = {b->p, t ? p.k : p.n, t};
    p.y = y->p, p.out = y->dtype, p.counts = (const int32_t *)k->counts.p, p.size = (int64_t)p.k * p.n;
    p.bias = k->bias.p;
    p.across = (int)ceil_div(p.n, TILE);
    if (!p.across || !p.rows) return;
    with_float(task, a->dtype, [&](auto e) {
        SC_LAUNCH(task, by_rows<decltype(e)>, (unsigned)(sc_group_tiles(p.rows, p.groups, TILE) * p.across), THREADS,
                  p);
    });
}

SC_KERNEL(grouped_matmul_grad) {
    if (sc_grouped_hopper_grad(task, k)) return;
    const sc_tensor *a = &k->a, *c = &k->c, *y = &k->y;
    products p = {};
    p.rows = (int)a->shape[0], p.m = (int)a->shape[1], p.n = (int)c->shape[1], p.groups = (int)y->shape[0];
    p.a = {a->p, p.m, false};
    p.b = {c->p, p.n, false};
    p.y = y->p, p.out = y->dtype, p.counts = (const int32_t *)k->counts.p, p.size = (int64_t)p.m * p.n;
    p.across = (int)ceil_div(p.n, TILE), p.down = (int)ceil_div(p.m, TILE);
    if (!p.across || !p.down) return;
    with_float(task, a->dtype, [&](auto e) {
        SC_LAUNCH(task, over_rows<decltype(e)>, (unsigned)(p.groups * p.down * p.across), THREADS, p);
    });
}
