/* Products of groups: each row of a times the matrix of its group; and its gradient, a product over each group's rows.
 * Sums are made in fp32, in the order of the inner dimension, and rounded once.
 * Relies on: groups.cuh, fp8.cuh, mma.h, grouped_hopper.h, which has faster kernels for compute capability 9.0.
 * Relied on by: generated code. Contiguous operands.
 *
 * A block has a tile of 64 × 64 of a result; counts are read on the device, and the grid is the most that any counts
 * need (groups.cuh). 16-bit operands are multiplied by mma.sync, fp32 by fma. Both operands go through shared memory
 * with the inner dimension contiguous, whichever way they lie. Those of 8 bits become fp16 there, which is exact: so
 * their sums are fp32's, which tensor cores that multiply 8 bits do not promise. */
#include "fp8.cuh"
#include "grouped_hopper.h"
#include "groups.cuh"
#include "mma.h"

namespace {

enum { TILE = 64, DEPTH = 32, THREADS = 128 };

struct fp8 { /* which of both, a `side` says */
    typedef uint8_t type;
};

/* What an element is in shared memory; mma: what it is multiplied as. */
template <class E> struct kept_of { typedef typename E::type type; };
template <> struct kept_of<fp8> { typedef uint16_t type; };
template <class E> struct mma_of;
template <> struct mma_of<bf16> { typedef sc_bf16 type; };
template <> struct mma_of<fp16> { typedef sc_fp16 type; };
template <> struct mma_of<fp8> { typedef sc_fp16 type; };

/* An operand: element (i, k) is p[i * ld + k], or where not `deep` p[k * ld + i]. */
struct side {
    const void *p;
    int64_t ld;
    bool deep, e5m2;

    SC_DEVICE int64_t place(int64_t i, int64_t k) const { return deep ? i * ld + k : k * ld + i; }
};

template <class E> struct shared_tile {
    typedef typename kept_of<E>::type kept;
    static constexpr int row = DEPTH + (sizeof(kept) == 2 ? 8 : 1);
    kept at[TILE * row];
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

/* Of 8 bits, where all is deep. */
SC_DEVICE void load_bytes(shared_tile<fp8> &to, const uint8_t *p, const side &s, int rows, int depth) {
    enum { RUN = 8 };
    for (int v = threadIdx.x; v < TILE * DEPTH / RUN; v += THREADS) {
        int i = v / (DEPTH / RUN), k = v % (DEPTH / RUN) * RUN;
        const uint8_t *from = p + i * s.ld + k;
        uint32_t x[2] = {0, 0};
        if (i < rows && k + RUN <= depth && (uintptr_t)from % RUN == 0) {
            uint2 w = *(const uint2 *)from;
            x[0] = w.x, x[1] = w.y;
        } else {
            for (int u = 0; u < RUN; u++)
                if (i < rows && k + u < depth) x[u / 4] |= (uint32_t)from[u] << u % 4 * 8;
        }
        uint32_t *y = (uint32_t *)(to.at + i * shared_tile<fp8>::row + k);
#pragma unroll
        for (int u = 0; u < RUN / 2; u++) y[u] = two_from_fp8(s.e5m2, x[u / 2] >> u % 2 * 16);
    }
}

/* sums of this thread: elements (row, column) of which `place` says where. */
template <class E> struct sums_of {
    float c[TILE * TILE / THREADS];
    typedef typename kept_of<E>::type kept;
    static constexpr bool halves = sizeof(kept) == 2;

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
                    const kept *p = a.at + (warp / 2 * 32 + m * 16 + g) * ld + k + t;
                    uint32_t x[4] = {two(p), two(p + 8 * ld), two(p + 8), two(p + 8 * ld + 8)};
#pragma unroll
                    for (int n = 0; n < 4; n++) {
                        const kept *q = b.at + (warp % 2 * 32 + n * 8 + g) * ld + k + t;
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
    SC_DEVICE static uint32_t two(const kept *p) {
        return *(const uint32_t *)p;
    }
};

struct products {
    side a, b;
    void *y;
    const void *bias;               /* NULL: none */
    const float *scale_a, *scale_b; /* NULL: sums are as they are */
    const int32_t *counts;
    int64_t size; /* elements from a group's matrix to the next */
    int rows, groups, m, n, k, across, down, out, of_bias;
};

/* bias: where it begins, of p.bias; below 0: there is none. */
template <class E>
SC_DEVICE void multiply(const products &p, const side &a, const typename E::type *at_a, const side &b,
                        const typename E::type *at_b, int m, int n, int k, int64_t y0, int64_t bias) {
    __shared__ shared_tile<E> ta, tb;
    sums_of<E> sums;
    sums.clear();
    for (int k0 = 0; k0 < k; k0 += DEPTH) {
        __syncthreads();
        if constexpr (sizeof(typename E::type) == 1) {
            load_bytes(ta, at_a + k0, a, m, k - k0);
            load_bytes(tb, at_b + k0, b, n, k - k0);
        } else {
            load<E>(ta, at_a + a.place(0, k0), a, m, k - k0);
            load<E>(tb, at_b + b.place(0, k0), b, n, k - k0);
        }
        __syncthreads();
        sums.add(ta, tb);
    }
    float scale = p.scale_a ? *p.scale_a * *p.scale_b : 1;
#pragma unroll
    for (int i = 0; i < TILE * TILE / THREADS; i++) {
        int row, column;
        sums_of<E>::place(i, &row, &column);
        if (row >= m || column >= n) continue;
        float sum = sums.c[i] * scale;
        if (bias >= 0) sum += load_any(p.bias, p.of_bias, bias + column);
        store_any(p.y, p.out, y0 + (int64_t)row * p.n + column, sum);
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
    multiply<E>(p, p.a, (const type *)p.a.p + p.a.place(r.begin, 0), p.b,
                (const type *)p.b.p + r.group * p.size + p.b.place(c, 0), m, n, p.k, y0,
                p.bias ? (int64_t)r.group * p.n + c : -1);
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
    multiply<E>(p, p.a, (const type *)p.a.p + p.a.place(i, r.begin), p.b, (const type *)p.b.p + p.b.place(c, r.begin),
                within(p.m - i), within(p.n - c), r.end - r.begin, g * p.size + (int64_t)i * p.n + c, -1);
}

/* f(fp8{}) where there are scales, else as with_float. */
template <class F> void with_elements(const sc_task *task, const sc_tensor *a, const products &p, F f) {
    if (p.scale_a)
        f(fp8{});
    else
        with_float(task, a->dtype, f);
}

} // namespace

SC_KERNEL(grouped_matmul) {
    if (sc_grouped_hopper(task, k) || sc_grouped_hopper_fp8(task, k)) return;
    const sc_tensor *a = &k->a, *b = &k->b, *y = &k->y;
    bool turned = b->dims == 2, deep = turned || k->trans_b; /* turned: [n][groups k] */
    products p = {};
    p.rows = (int)a->shape[0], p.k = (int)a->shape[1], p.n = (int)y->shape[1], p.groups = (int)sc_numel(&k->counts);
    p.a = {a->p, p.k, true, a->dtype == FP8_E5M2};
    p.b = {b->p, turned ? (int64_t)p.groups * p.k : deep ? p.k : p.n, deep, b->dtype == FP8_E5M2};
    p.y = y->p, p.out = y->dtype, p.counts = (const int32_t *)k->counts.p;
    p.size = turned ? p.k : (int64_t)p.k * p.n;
    p.bias = k->bias.p, p.of_bias = k->bias.dtype;
    p.scale_a = (const float *)k->scale_a.p, p.scale_b = (const float *)k->scale_b.p;
    p.across = (int)ceil_div(p.n, TILE);
    if (!p.across || !p.rows) return;
    with_elements(task, a, p, [&](auto e) {
        SC_LAUNCH(task, by_rows<decltype(e)>, (unsigned)(sc_group_tiles(p.rows, p.groups, TILE) * p.across), THREADS,
                  p);
    });
}

SC_KERNEL(grouped_matmul_grad) {
    if (sc_grouped_hopper_grad(task, k) || sc_grouped_hopper_fp8_grad(task, k)) return;
    const sc_tensor *a = &k->a, *c = &k->c, *y = &k->y;
    bool turned = k->scale_a.p; /* a and c: [m][rows], [n][rows] */
    products p = {};
    p.rows = (int)a->shape[turned], p.m = (int)y->shape[1], p.n = (int)y->shape[2], p.groups = (int)y->shape[0];
    p.a = {a->p, turned ? p.rows : p.m, turned, a->dtype == FP8_E5M2};
    p.b = {c->p, turned ? p.rows : p.n, turned, c->dtype == FP8_E5M2};
    p.y = y->p, p.out = y->dtype, p.counts = (const int32_t *)k->counts.p, p.size = (int64_t)p.m * p.n;
    p.scale_a = (const float *)k->scale_a.p, p.scale_b = (const float *)k->scale_c.p;
    p.across = (int)ceil_div(p.n, TILE), p.down = (int)ceil_div(p.m, TILE);
    if (!p.across || !p.down) return;
    with_elements(task, a, p, [&](auto e) {
        SC_LAUNCH(task, over_rows<decltype(e)>, (unsigned)(p.groups * p.down * p.across), THREADS, p);
    });
}
