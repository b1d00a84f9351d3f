/* Attention by definition, on the GPU in fp32 with sums in fp64: what large shapes are held against.
 * Relies on: check.h.
 * Relied on by: test_attention_shapes.cu.
 *
 * One block a row of queries (o, lse, delta, dq) or of keys (dk, dv); nothing is tiled, nothing is shared with the
 * kernels under test. 16-bit operands are read through their strides; results are contiguous fp32. */
#ifndef SC_GPU_ATTENTION_REFERENCE_H
#define SC_GPU_ATTENTION_REFERENCE_H

#include "check.h"

struct view { /* [B, rows, heads, D] of 16-bit elements, or contiguous fp32 */
    const void *p;
    int64_t batch, row, head;
    int dtype;
};
static inline view view_of(const sc_tensor &t) {
    return {t.p, t.stride[0], t.stride[1], t.stride[2], t.dtype};
}
static __device__ inline float at(const view &x, int b, int i, int h, int d) {
    int64_t e = b * x.batch + i * x.row + h * x.head + d;
    if (x.dtype == FP32) return ((const float *)x.p)[e];
    uint16_t bits = ((const uint16_t *)x.p)[e];
    if (x.dtype == BF16) return __uint_as_float((uint32_t)bits << 16);
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
    return y;
}

struct reference {
    view q, k, v, go;
    float *o, *lse, *delta, *dq, *dk, *dv; /* [B,S,H,E], [B,H,S] twice, [B,S,H,D], [B,T,KV,D], [B,T,KV,E] */
    int B, S, T, H, KV, D, E, causal;
    float scale;
};

enum { REFERENCE_THREADS = 256 };

template <class F> static __device__ float over_block(float x, F join) {
    __shared__ float part[REFERENCE_THREADS];
    part[threadIdx.x] = x;
    __syncthreads();
    for (int n = REFERENCE_THREADS / 2; n; n /= 2) {
        if ((int)threadIdx.x < n) part[threadIdx.x] = join(part[threadIdx.x], part[threadIdx.x + n]);
        __syncthreads();
    }
    x = part[0];
    __syncthreads();
    return x;
}

static __device__ inline float product(const float *shared_row, const view &x, int b, int i, int h, int D) {
    float sum = 0;
    for (int d = 0; d < D; d++) sum = fmaf(shared_row[d], at(x, b, i, h, d), sum);
    return sum;
}

/* Block (i, h, b); shared: T scores, then D elements of q. */
static __global__ void reference_forward(reference r) {
    extern __shared__ float s[];
    int i = blockIdx.x % r.S, h = blockIdx.x / r.S % r.H, b = blockIdx.x / r.S / r.H, kv = h / (r.H / r.KV);
    int end = r.causal ? min(i + 1, r.T) : r.T;
    float *q = s + r.T, top = -INFINITY, sum = 0;
    for (int d = threadIdx.x; d < r.D; d += REFERENCE_THREADS) q[d] = at(r.q, b, i, h, d);
    __syncthreads();
    for (int j = threadIdx.x; j < end; j += REFERENCE_THREADS)
        top = fmaxf(top, s[j] = product(q, r.k, b, j, kv, r.D) * r.scale);
    top = over_block(top, [](float x, float y) { return fmaxf(x, y); });
    for (int j = threadIdx.x; j < end; j += REFERENCE_THREADS) sum += s[j] = expf(s[j] - top);
    sum = over_block(sum, [](float x, float y) { return x + y; });
    if (threadIdx.x == 0) r.lse[((int64_t)b * r.H + h) * r.S + i] = top + logf(sum);
    for (int d = threadIdx.x; d < r.E; d += REFERENCE_THREADS) {
        double o = 0;
        for (int j = 0; j < end; j++) o += s[j] * at(r.v, b, j, kv, d);
        r.o[(((int64_t)b * r.S + i) * r.H + h) * r.E + d] = (float)(o / sum);
    }
}

/* Block (i, h, b): delta and dq. Shared: T of ds, then q and go. */
static __global__ void reference_dq(reference r) {
    extern __shared__ float s[];
    int i = blockIdx.x % r.S, h = blockIdx.x / r.S % r.H, b = blockIdx.x / r.S / r.H, kv = h / (r.H / r.KV);
    int end = r.causal ? min(i + 1, r.T) : r.T;
    float *q = s + r.T, *go = q + r.D, delta = 0;
    for (int d = threadIdx.x; d < r.D; d += REFERENCE_THREADS) q[d] = at(r.q, b, i, h, d);
    for (int d = threadIdx.x; d < r.E; d += REFERENCE_THREADS) {
        go[d] = at(r.go, b, i, h, d);
        delta += go[d] * r.o[(((int64_t)b * r.S + i) * r.H + h) * r.E + d];
    }
    delta = over_block(delta, [](float x, float y) { return x + y; });
    int64_t row = ((int64_t)b * r.H + h) * r.S + i;
    if (threadIdx.x == 0) r.delta[row] = delta;
    for (int j = threadIdx.x; j < end; j += REFERENCE_THREADS) {
        float p = expf(product(q, r.k, b, j, kv, r.D) * r.scale - r.lse[row]);
        s[j] = p * (product(go, r.v, b, j, kv, r.E) - delta) * r.scale;
    }
    __syncthreads();
    for (int d = threadIdx.x; d < r.D; d += REFERENCE_THREADS) {
        double sum = 0;
        for (int j = 0; j < end; j++) sum += s[j] * at(r.k, b, j, kv, d);
        r.dq[(((int64_t)b * r.S + i) * r.H + h) * r.D + d] = (float)sum;
    }
}

/* Block (j, kv, b): dk and dv. Shared: S of ds, S of p, then k and v. */
static __global__ void reference_dkv(reference r) {
    extern __shared__ float s[];
    int j = blockIdx.x % r.T, kv = blockIdx.x / r.T % r.KV, b = blockIdx.x / r.T / r.KV, group = r.H / r.KV;
    int first = r.causal ? j : 0;
    float *p = s + r.S, *k = p + r.S, *v = k + r.D;
    double dk = 0, dv = 0; /* of column threadIdx.x: D and E are at most REFERENCE_THREADS */
    int column = threadIdx.x;
    for (int d = column; d < r.D; d += REFERENCE_THREADS) k[d] = at(r.k, b, j, kv, d);
    for (int d = column; d < r.E; d += REFERENCE_THREADS) v[d] = at(r.v, b, j, kv, d);
    __syncthreads();
    for (int h = kv * group; h < (kv + 1) * group; h++) {
        for (int i = first + threadIdx.x; i < r.S; i += REFERENCE_THREADS) {
            int64_t row = ((int64_t)b * r.H + h) * r.S + i;
            p[i] = expf(product(k, r.q, b, i, h, r.D) * r.scale - r.lse[row]);
            s[i] = p[i] * (product(v, r.go, b, i, h, r.E) - r.delta[row]) * r.scale;
        }
        __syncthreads();
        for (int i = first; i < r.S && column < r.D; i++) dk += s[i] * at(r.q, b, i, h, column);
        for (int i = first; i < r.S && column < r.E; i++) dv += p[i] * at(r.go, b, i, h, column);
        __syncthreads();
    }
    int64_t row = ((int64_t)b * r.T + j) * r.KV + kv;
    if (column < r.D) r.dk[row * r.D + column] = (float)dk;
    if (column < r.E) r.dv[row * r.E + column] = (float)dv;
}

/* ── differences ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
struct difference {
    double square, power;
    float most, top;
    unsigned long long not_finite;
};
static __global__ void differ(view x, const float *want, int rows, int heads, int D, int64_t n, difference *out) {
    double square = 0, power = 0;
    float most = 0, top = 0;
    unsigned long long bad = 0;
    for (int64_t e = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; e < n; e += (int64_t)gridDim.x * blockDim.x) {
        int d = (int)(e % D), h = (int)(e / D % heads), i = (int)(e / D / heads % rows),
            b = (int)(e / D / heads / rows);
        float is = at(x, b, i, h, d), off = fabsf(is - want[e]);
        if (!isfinite(is)) {
            bad++;
            continue;
        }
        square += (double)off * off;
        power += (double)want[e] * want[e];
        most = fmaxf(most, off);
        top = fmaxf(top, fabsf(want[e]));
    }
    atomicAdd(&out->square, square);
    atomicAdd(&out->power, power);
    atomicMax((int *)&out->most, __float_as_int(most)); /* of positive floats the order is that of their bits */
    atomicMax((int *)&out->top, __float_as_int(top));
    if (bad) atomicAdd(&out->not_finite, bad);
}

#endif
