/* Launches a generated pointwise kernel: a group's expression (Group::element, one element of every tensor) over the
 * iteration space that its tensors share, W elements a thread. A thread loads all operands of its elements before it
 * stores a result, since a result may share an operand's bytes.
 * Relies on: kernel.cuh, common/space.h.
 * Relied on by: generated NAME_kernels.cu. */
#ifndef SC_CUDA_POINTWISE_CUH
#define SC_CUDA_POINTWISE_CUH

#include "../common/space.h"
#include "kernel.cuh"
#include <utility>

/* Counts in runs of W elements; strides in elements from one run to the next along a dimension. */
template <int N> struct sc_runs {
    uint64_t n;
    int dims;
    uint32_t shape[SC_DIMS]; /* the outermost is never divided by */
    void *p[N];
    int64_t stride[N][SC_DIMS];
    int64_t inner[N]; /* within a run: 0 or 1; any where W is 1 */
};

/* ── a thread's elements of one tensor ──────────────────────────────────────────────────────────────────────────────── */
template <int BYTES> struct sc_words;
template <> struct sc_words<1> { typedef uint8_t type; };
template <> struct sc_words<2> { typedef uint16_t type; };
template <> struct sc_words<4> { typedef uint32_t type; };
template <> struct sc_words<8> { typedef uint2 type; };
template <> struct sc_words<16> { typedef uint4 type; };

template <int I, class T, int W> struct sc_few {
    enum { BYTES = W * (int)sizeof(T), CHUNK = BYTES < 16 ? BYTES : 16, CHUNKS = BYTES / CHUNK };
    typedef typename sc_words<CHUNK>::type word;
    union {
        T v[W];
        word w[CHUNKS];
    };

    __device__ __forceinline__ void load(const T *p, int64_t inner) {
        if (W > 1 && inner == 1) {
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) w[k] = ((const word *)p)[k];
        } else {
            T x = *p; /* one for all of the run */
#pragma unroll
            for (int k = 0; k < W; k++) v[k] = x;
        }
    }
    __device__ __forceinline__ void store(T *p) const {
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) ((word *)p)[k] = w[k];
    }
};

template <int W, class Indices, class... T> struct sc_thread;
template <int W, int... I, class... T> struct sc_thread<W, std::integer_sequence<int, I...>, T...> : sc_few<I, T, W>... {
    template <int RESULTS, int N>
    __device__ __forceinline__ void load(const sc_runs<N> &s, const int64_t *at) {
        ((I < RESULTS ? void() : sc_few<I, T, W>::load((const T *)s.p[I] + at[I], s.inner[I])), ...);
    }
    template <int RESULTS, int N>
    __device__ __forceinline__ void store(const sc_runs<N> &s, const int64_t *at) const {
        ((I < RESULTS ? sc_few<I, T, W>::store((T *)s.p[I] + at[I]) : void()), ...);
    }
    template <class Group> __device__ __forceinline__ void compute() {
#pragma unroll
        for (int k = 0; k < W; k++) Group::element(sc_few<I, T, W>::v[k]...);
    }
};

/* ── the kernel ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
template <class Group, int RESULTS, int W, bool FLAT, class... T>
static __global__ void __launch_bounds__(256) sc_pointwise_kernel(const __grid_constant__ sc_runs<sizeof...(T)> s) {
    enum { N = sizeof...(T) };
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t at[N];
    if (i >= s.n) return;
    if (FLAT) {
#pragma unroll
        for (int k = 0; k < N; k++) at[k] = (int64_t)i * s.stride[k][0];
    } else {
#pragma unroll
        for (int k = 0; k < N; k++) at[k] = 0;
        for (int d = s.dims - 1; d >= 0; d--) {
            uint64_t rest = 0, index = i;
            if (d) {
                if (i >> 32) {
                    rest = i / s.shape[d];
                } else {
                    rest = (uint32_t)i / s.shape[d];
                }
                index = i - rest * s.shape[d];
            }
#pragma unroll
            for (int k = 0; k < N; k++) at[k] += (int64_t)index * s.stride[k][d];
            i = rest;
        }
    }
    sc_thread<W, std::make_integer_sequence<int, N>, T...> mine;
    mine.template load<RESULTS>(s, at);
    mine.template compute<Group>();
    mine.template store<RESULTS>(s, at);
}

/* ── the launch ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* 16 bytes of the smallest type, but no more than 8 elements. */
template <class... T> constexpr int sc_width() {
    int least = 16;
    ((least = (int)sizeof(T) < least ? (int)sizeof(T) : least), ...);
    return least <= 2 ? 8 : 16 / least;
}

/* Can every tensor be taken W elements at a time? Results must be contiguous along the innermost dimension. */
static inline bool sc_runs_fit(const sc_space *s, const sc_task *t, const int *size, int results, int w) {
    int last = s->dims - 1;
    if (s->shape[last] % w) return false;
    for (int k = 0; k < t->slots; k++) {
        int64_t inner = s->stride[k][last], bytes = (int64_t)w * size[k], grain = bytes < 16 ? bytes : 16;
        if (inner == 0 && k >= results) continue;
        if (inner != 1 || (uintptr_t)t->args->t[k].p % (uintptr_t)grain) return false;
        for (int d = 0; d < last; d++)
            if (s->stride[k][d] * size[k] % grain) return false;
    }
    return true;
}

template <int N> static void sc_runs_of(sc_runs<N> *r, const sc_space *s, const sc_task *t, int w) {
    int last = s->dims - 1;
    r->n = 1;
    r->dims = s->dims;
    for (int d = 0; d <= last; d++) {
        int64_t n = d == last ? s->shape[d] / w : s->shape[d];
        if (d && n > UINT32_MAX) sc_unsupported(t, "a pointwise kernel", "more than 2^32 elements in a row");
        r->shape[d] = (uint32_t)n;
        r->n *= (uint64_t)n;
    }
    for (int k = 0; k < N; k++) {
        r->p[k] = t->args->t[k].p;
        r->inner[k] = s->stride[k][last];
        for (int d = 0; d <= last; d++) r->stride[k][d] = s->stride[k][d] * (d == last ? w : 1);
    }
}

template <class Group, int RESULTS, int W, class... T> static void sc_pointwise_launch(const sc_task *t, const sc_space *s) {
    sc_runs<sizeof...(T)> r;
    sc_runs_of(&r, s, t, W);
    if (!r.n) return;
    unsigned blocks = (unsigned)((r.n + 255) / 256);
    auto *kernel = r.dims == 1 ? sc_pointwise_kernel<Group, RESULTS, W, true, T...>
                               : sc_pointwise_kernel<Group, RESULTS, W, false, T...>;
    SC_LAUNCH(t, kernel, blocks, 256, r);
}

template <class Group, int RESULTS, class... T> static void sc_pointwise(const sc_task *t) {
    const int size[] = {(int)sizeof(T)...};
    sc_space s;
    sc_space_of(&s, t);
    if (t->slots != (int)sizeof...(T)) sc_unsupported(t, "a pointwise kernel", "another number of tensors");
    if (sc_runs_fit(&s, t, size, RESULTS, sc_width<T...>()))
        sc_pointwise_launch<Group, RESULTS, sc_width<T...>(), T...>(t, &s);
    else
        sc_pointwise_launch<Group, RESULTS, 1, T...>(t, &s);
}

#endif
