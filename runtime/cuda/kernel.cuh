/* What CUDA kernels share: element types, 16-byte accesses, rows of strided tensors, sums over warps and blocks.
 * Relies on: launch.cuh, schema/math.h.
 * Relied on by: the kernels k_*.cu.
 *
 * A kernel is a template over its element type; host code looks at the dtype once a launch (with_float). Arithmetic is
 * in float, rounded once where a value is stored. Memory is moved in `raw` runs of W elements, 16 bytes where layout
 * and alignment allow. Sums run in a fixed order that depends on shapes only: butterflies give every lane the same
 * bits. */
#ifndef SC_KERNEL_CUH
#define SC_KERNEL_CUH

#include "../schema/math.h"
#include "launch.cuh"
#include <type_traits>

enum { WARP = 32, BLOCK = 256 };

/* ── element types ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
SC_DEVICE uint32_t two_bf16(float a, float b) { /* a in the lower half */
#ifdef __CUDA_ARCH__
    uint32_t w;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(b), "f"(a));
    return w;
#else
    return sc_to_bf16(a) | (uint32_t)sc_to_bf16(b) << 16;
#endif
}
SC_DEVICE uint32_t two_fp16(float a, float b) {
#ifdef __CUDA_ARCH__
    uint32_t w;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(b), "f"(a));
    return w;
#else
    return sc_to_fp16(a) | (uint32_t)sc_to_fp16(b) << 16;
#endif
}

struct fp32 {
    typedef float type;
    static SC_DEVICE float get(type x) { return x; }
    static SC_DEVICE type put(float x) { return x; }
};
struct bf16 {
    typedef sc_bf16_t type;
    static SC_DEVICE float get(type x) { return sc_from_bf16(x); }
    static SC_DEVICE type put(float x) { return sc_to_bf16(x); }
    static SC_DEVICE float half(uint32_t w, int upper) { return sc_float(upper ? w & 0xffff0000u : w << 16); }
    static SC_DEVICE uint32_t two(float a, float b) { return two_bf16(a, b); }
};
struct fp16 {
    typedef sc_fp16_t type;
    static SC_DEVICE float get(type x) { return sc_from_fp16(x); }
    static SC_DEVICE type put(float x) { return sc_to_fp16(x); }
    static SC_DEVICE float half(uint32_t w, int upper) { return sc_from_fp16((sc_fp16_t)(upper ? w >> 16 : w)); }
    static SC_DEVICE uint32_t two(float a, float b) { return two_fp16(a, b); }
};
struct i32 {
    typedef int32_t type;
    static SC_DEVICE float get(type x) { return (float)x; }
    static SC_DEVICE type put(float x) { return (int32_t)x; }
};
struct i64 {
    typedef int64_t type;
    static SC_DEVICE float get(type x) { return (float)x; }
    static SC_DEVICE type put(float x) { return (int64_t)x; }
};
struct flag {
    typedef uint8_t type;
    static SC_DEVICE float get(type x) { return x != 0; }
    static SC_DEVICE type put(float x) { return x != 0; }
};

/* Elements in 16 bytes. */
template <class E> constexpr int wide = 16 / (int)sizeof(typename E::type);

static inline bool with_float_serves(int dtype) {
    return dtype == FP32 || dtype == BF16 || dtype == FP16;
}
/* f(fp32{}), f(bf16{}) or f(fp16{}). */
template <class F> static void with_float(const sc_task *t, int dtype, F f) {
    switch (dtype) {
    case FP32: f(fp32{}); break;
    case BF16: f(bf16{}); break;
    case FP16: f(fp16{}); break;
    default: sc_unsupported(t, "a kernel of the CUDA target", "its tensors must be fp32, bf16 or fp16");
    }
}
template <class F> static void with_number(const sc_task *t, int dtype, F f) {
    if (dtype == INT32)
        f(i32{});
    else if (dtype == INT64)
        f(i64{});
    else
        with_float(t, dtype, f);
}
template <int N> using constant = std::integral_constant<int, N>;

/* f(E{}, constant<W>{}) for runs of W elements: of 16 bytes, or of one element each. */
template <class F> static void with_runs(const sc_task *t, int dtype, bool wide_enough, F f) {
    with_float(t, dtype, [&](auto e) {
        if (wide_enough)
            f(e, constant<wide<decltype(e)>>{});
        else
            f(e, constant<1>{});
    });
}
/* f(constant<1>{}) or f(constant<0>{}). */
template <class F> static void with_flag(bool flag, F f) {
    if (flag)
        f(constant<1>{});
    else
        f(constant<0>{});
}

/* f(constant<N>{}) for the first of the ascending N... that is at least `need`. */
template <int N, int... MORE, class F> static void at_least(int need, F f) {
    if constexpr (sizeof...(MORE) > 0) {
        if (need > N) {
            at_least<MORE...>(need, f);
            return;
        }
    }
    f(constant<N>{});
}

/* One element of a tensor whose dtype is known at run time only: for what is read or written once. */
SC_DEVICE float load_any(const void *p, int dtype, int64_t i) {
    switch (dtype) {
    case FP32: return ((const float *)p)[i];
    case BF16: return sc_from_bf16(((const sc_bf16_t *)p)[i]);
    case FP16: return sc_from_fp16(((const sc_fp16_t *)p)[i]);
    case INT32: return (float)((const int32_t *)p)[i];
    case INT64: return (float)((const int64_t *)p)[i];
    case INT8: return (float)((const int8_t *)p)[i];
    default: return ((const uint8_t *)p)[i] != 0;
    }
}
SC_DEVICE void store_any(void *p, int dtype, int64_t i, float x) {
    switch (dtype) {
    case FP32: ((float *)p)[i] = x; break;
    case BF16: ((sc_bf16_t *)p)[i] = sc_to_bf16(x); break;
    case FP16: ((sc_fp16_t *)p)[i] = sc_to_fp16(x); break;
    case INT32: ((int32_t *)p)[i] = (int32_t)x; break;
    case INT64: ((int64_t *)p)[i] = (int64_t)x; break;
    case INT8: ((int8_t *)p)[i] = sc_to_int8(x); break;
    default: ((uint8_t *)p)[i] = x != 0; break;
    }
}

/* ── W elements as they lie in memory ─────────────────────────────────────────────────────────────────────────────────
 */
template <class E, int W> struct raw {
    static constexpr int bytes = W * (int)sizeof(typename E::type), words = bytes / 4;
    static_assert(bytes == 4 || bytes == 8 || bytes % 16 == 0, "no such access");
    uint32_t w[words];

    SC_DEVICE void load(const void *p) {
        if constexpr (bytes == 4) {
            w[0] = *(const uint32_t *)p;
        } else if constexpr (bytes == 8) {
            uint2 v = *(const uint2 *)p;
            w[0] = v.x, w[1] = v.y;
        } else {
#pragma unroll
            for (int k = 0; k < words; k += 4) {
                uint4 v = ((const uint4 *)p)[k / 4];
                w[k] = v.x, w[k + 1] = v.y, w[k + 2] = v.z, w[k + 3] = v.w;
            }
        }
    }
    SC_DEVICE void store(void *p) const {
        if constexpr (bytes == 4) {
            *(uint32_t *)p = w[0];
        } else if constexpr (bytes == 8) {
            *(uint2 *)p = make_uint2(w[0], w[1]);
        } else {
#pragma unroll
            for (int k = 0; k < words; k += 4) ((uint4 *)p)[k / 4] = make_uint4(w[k], w[k + 1], w[k + 2], w[k + 3]);
        }
    }
    SC_DEVICE void clear() {
#pragma unroll
        for (int k = 0; k < words; k++) w[k] = 0;
    }
    SC_DEVICE float get(int i) const {
        if constexpr (sizeof(typename E::type) == 4)
            return sc_float(w[i]);
        else
            return E::half(w[i / 2], i % 2);
    }
    SC_DEVICE void put(const float *x) {
        if constexpr (sizeof(typename E::type) == 4) {
#pragma unroll
            for (int k = 0; k < W; k++) w[k] = sc_bits(x[k]);
        } else {
#pragma unroll
            for (int k = 0; k < words; k++) w[k] = E::two(x[2 * k], x[2 * k + 1]);
        }
    }
};
template <class E> struct raw<E, 1> {
    typename E::type x;
    SC_DEVICE void load(const void *p) { x = *(const typename E::type *)p; }
    SC_DEVICE void store(void *p) const { *(typename E::type *)p = x; }
    SC_DEVICE void clear() { x = 0; }
    SC_DEVICE float get(int) const { return E::get(x); }
    SC_DEVICE void put(const float *v) { x = E::put(*v); }
};

/* W floats to elements i .. i+W of a result, aligned for W elements of its type. */
template <int W> SC_DEVICE void store_run(void *p, int dtype, int64_t i, const float *x) {
    if constexpr (W == 1) {
        store_any(p, dtype, i, *x);
    } else if (dtype == FP32) {
        raw<fp32, W> r;
        r.put(x);
        r.store((float *)p + i);
    } else if (dtype == BF16) {
        raw<bf16, W> r;
        r.put(x);
        r.store((sc_bf16_t *)p + i);
    } else {
        raw<fp16, W> r;
        r.put(x);
        r.store((sc_fp16_t *)p + i);
    }
}

/* ── tensors on the host ──────────────────────────────────────────────────────────────────────────────────────────────
 */
static inline int size_of(int dtype) {
    return (int)sc_size(dtype);
}
/* An optional operand: NULL where it is absent. */
static inline const sc_tensor *present(const sc_tensor *t) {
    return t->p ? t : NULL;
}
static inline int64_t cols_of(const sc_tensor *t) {
    return t->dims ? t->shape[t->dims - 1] : 1;
}
static inline int64_t rows_of(const sc_tensor *t) {
    return sc_numel(t) / (cols_of(t) ? cols_of(t) : 1);
}
static inline int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
static inline int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline bool aligned(const void *p, int64_t bytes) {
    return (uintptr_t)p % (uintptr_t)bytes == 0;
}
/* Blocks for n things at `each` a block, at least one. */
static inline unsigned blocks_for(int64_t n, int64_t each) {
    return (unsigned)(n > 0 ? ceil_div(n, each) : 1);
}
/* A grid that fills the device a few times over, for kernels that stride over their work. */
static inline unsigned filling(const sc_task *t, int64_t blocks) {
    int64_t most = (int64_t)(sc_library(t) ? sc_library(t)->multiprocessors : 132) * 16;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* Some dimensions of a tensor; neighbouring ones are merged where strides allow. Without dimensions all is zero. */
struct row_space {
    int dims;
    int64_t shape[SC_DIMS], stride[SC_DIMS];
};
static inline void add_dimension(row_space *r, int64_t n, int64_t stride) {
    int last = r->dims - 1;
    if (n == 1) return;
    if (last >= 0 && r->stride[last] == n * stride) {
        r->shape[last] *= n;
        r->stride[last] = stride;
    } else {
        r->shape[r->dims] = n;
        r->stride[r->dims++] = stride;
    }
}
/* Where rows begin: all dimensions but the last. */
static inline row_space row_space_of(const sc_tensor *t) {
    row_space r = {};
    for (int d = 0; d < t->dims - 1; d++) add_dimension(&r, t->shape[d], t->stride[d]);
    return r;
}
/* May rows be read in runs of 16 bytes? */
static inline bool wide_rows(const sc_tensor *t) {
    int64_t size = size_of(t->dtype);
    bool yes = aligned(t->p, 16) && cols_of(t) * size % 16 == 0;
    for (int d = 0; d < t->dims - 1 && yes; d++) yes = t->shape[d] == 1 || t->stride[d] * size % 16 == 0;
    return yes;
}
SC_DEVICE int64_t row_at(const row_space &r, int64_t row) {
    if (r.dims <= 1) return row * r.stride[0];
    int64_t at = 0;
    for (int d = r.dims - 1; d > 0; d--) {
        int64_t q = row / r.shape[d];
        at += (row - q * r.shape[d]) * r.stride[d];
        row = q;
    }
    return at + row * r.stride[0];
}

/* `to` = `from` (NULL: zeros), of equal shape and dtype, any strides (k_copy.cu). */
void sc_cuda_copy(const sc_task *t, const sc_tensor *to, const sc_tensor *from);

/* ── sums over a group of G threads: a warp, or the whole block; every thread gets the result ─────────────────────────
 */
#define SC_ALL 0xffffffffu
template <class R> SC_DEVICE R warp_sum(R x) {
#pragma unroll
    for (int k = WARP / 2; k; k /= 2) x += __shfl_xor_sync(SC_ALL, x, k);
    return x;
}
/* The sum of this lane's x and those of the lanes before it. */
template <class I> SC_DEVICE I warp_sum_so_far(I x, int lane) {
#pragma unroll
    for (int k = 1; k < WARP; k *= 2) {
        I before = __shfl_up_sync(SC_ALL, x, k);
        if (lane >= k) x += before;
    }
    return x;
}
/* The larger; a NaN, once met, stays. */
SC_DEVICE float larger(float m, float v) {
    return !(v <= m) && m == m ? v : m;
}
SC_DEVICE float warp_max(float x) {
#pragma unroll
    for (int k = WARP / 2; k; k /= 2) x = larger(x, __shfl_xor_sync(SC_ALL, x, k));
    return x;
}

template <int G, class R> SC_DEVICE R group_sum(R x) {
    x = warp_sum(x);
    if constexpr (G > WARP) {
        __shared__ R part[G / WARP];
        __syncthreads(); /* the part of the call before may still be read */
        if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = x;
        __syncthreads();
        x = part[0];
#pragma unroll
        for (int k = 1; k < G / WARP; k++) x += part[k];
    }
    return x;
}
template <int G> SC_DEVICE float group_max(float x) {
    x = warp_max(x);
    if constexpr (G > WARP) {
        __shared__ float part[G / WARP];
        __syncthreads();
        if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = x;
        __syncthreads();
        x = part[0];
#pragma unroll
        for (int k = 1; k < G / WARP; k++) x = larger(x, part[k]);
    }
    return x;
}

/* ── rows held in registers: G threads (a warp or a block), V accesses of 16 bytes each ──────────────────────────────
 */
template <int G> SC_DEVICE int64_t my_row() {
    return (int64_t)blockIdx.x * (BLOCK / G) + threadIdx.x / G;
}
/* f(G, V); V = 0: a block a row, which does not fit (more than 32 KiB, or not aligned) and is read again. */
template <class E, class F> static void with_shape(bool wide_enough, int cols, F f) {
    int accesses = cols / wide<E>;
    if (!wide_enough || accesses > 8 * BLOCK)
        f(constant<BLOCK>{}, constant<0>{});
    else if (accesses <= 8 * WARP)
        at_least<1, 2, 3, 4, 6, 8>((int)ceil_div(accesses, WARP), [&](auto v) { f(constant<WARP>{}, v); });
    else
        at_least<2, 4, 8>((int)ceil_div(accesses, BLOCK), [&](auto v) { f(constant<BLOCK>{}, v); });
}
/* Launches kernel_of(E{}, G, V), of which a group of G threads takes a row. A: its parameter, which has rows and cols. */
template <class A, class F>
static void launch_rows(const sc_task *t, int dtype, bool wide_enough, const A &a, F kernel_of) {
    if (!a.rows) return;
    with_float(t, dtype, [&](auto e) {
        with_shape<decltype(e)>(wide_enough, a.cols, [&](auto g, auto v) {
            SC_LAUNCH(t, kernel_of(e, g, v), blocks_for(a.rows, BLOCK / g.value), BLOCK, a);
        });
    });
}

#endif
