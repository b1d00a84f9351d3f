/* cross_entropy's losses and gradients where a row of logits is read once: long rows of 16-bit logits.
 * Relies on: cross_entropy.cuh, copies.cuh.
 * Relied on by: k_cross_entropy.cu, which says what they are.
 *
 * A row is held by a cluster of 1, 4 or 8 blocks. A thread has HELD accesses of 16 bytes in registers and up to
 * COPIED more in shared memory, where asynchronous copies put them and no other thread looks at them. Warp w takes its
 * largest logit m_w and s_w = Σ e^(x - m_w) without the target's, and sends both to every block of the cluster; after
 * the cluster's barrier each warp has most = max m_w and rest = Σ s_w e^(m_w - most), all in the same order. The
 * gradient is made from what is held. Every thread has read the target's logit before that barrier, so it may be
 * written over after it.
 *
 * While a block waits, others of its multiprocessor load or store: of MOST_THREADS threads there is room for two, of
 * fewer for more. Ignored rows are not read: that the others wait for their target before they load costs them 0.5 %.
 * Largest logits are found two at a time, in one instruction, also because the compiler keeps what it has unpacked, for
 * which there are no registers. */
#include "copies.cuh"
#include "cross_entropy.cuh"

namespace {

enum { HELD = 6, COPIED = 14, MOST_THREADS = 480, MOST_BLOCKS = 8, LEAST_COLS = 16384 };

struct held_rows {
    loss_task l;
    int accesses, copies; /* accesses of a row; of a thread, in shared memory */
};

/* ── clusters; before architecture 90 a block is one ──────────────────────────────────────────────────────────────────
 */
SC_DEVICE int cluster_blocks() {
    int n = 1;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
#endif
    return n;
}
SC_DEVICE int cluster_rank() {
    int rank = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}
SC_DEVICE void cluster_begin() { /* arrives, and orders nothing */
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}
SC_DEVICE void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
SC_DEVICE void cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}
/* To the same place in another block's shared memory. */
SC_DEVICE void send(float2 *to, int rank, float2 x) {
#if __CUDA_ARCH__ >= 900
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"((uint32_t)__cvta_generic_to_shared(to)), "r"(rank));
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(there), "f"(x.x), "f"(x.y) : "memory");
#endif
}

/* ── accesses ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
SC_DEVICE void store_once(uint4 *to, const uint32_t *w) { /* not to be read again soon */
    uint4 x = make_uint4(w[0], w[1], w[2], w[3]);
#ifdef __CUDA_ARCH__
    __stcs(to, x);
#else
    *to = x;
#endif
}

/* The larger of each half; of a NaN and a number the number. */
template <class E> SC_DEVICE uint32_t larger_two(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
    uint32_t m;
    if constexpr (std::is_same<E, bf16>::value)
        asm("max.bf16x2 %0, %1, %2;" : "=r"(m) : "r"(a), "r"(b));
    else
        asm("max.f16x2 %0, %1, %2;" : "=r"(m) : "r"(a), "r"(b));
    return m;
#else
    return E::two(fmaxf(E::half(a, 0), E::half(b, 0)), fmaxf(E::half(a, 1), E::half(b, 1)));
#endif
}

/* e^(x - most) = of(x) · rest: one fma and one power an element. most · log2 e is rounded to its own ulp; `rest`, of a
 * whole sum or row, makes up for that. */
struct fused_powers {
    float shift, rest;
    SC_DEVICE explicit fused_powers(float most) : shift(most * LOG2E) {
        rest = power_of_two(fmaf(-most, LOG2E, shift));
    }
    SC_DEVICE float of(float x) const { return power_of_two(fmaf(x, LOG2E, -shift)); }
};

/* ── a row ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* What a thread has of a row: accesses i·step, the first HELD in registers, `copies` more in shared memory. */
template <class E> struct part {
    typedef raw<E, 8> access;
    access held[HELD];
    uint4 *copied;
    int copies, step;

    SC_DEVICE void load(const uint4 *x) {
        const uint4 *after = x + (int64_t)HELD * step;
#pragma unroll 4
        for (int i = 0; i < copies; i++) copy_start(copied + i * blockDim.x, after + (int64_t)i * step);
        copies_commit();
#pragma unroll
        for (int i = 0; i < HELD; i++) held[i].load(x + (int64_t)i * step);
    }
    SC_DEVICE access copy(int i) const {
        access v;
        v.load(copied + i * blockDim.x);
        return v;
    }
    static SC_DEVICE void raise(uint32_t *most, const access &v) {
#pragma unroll
        for (int k = 0; k < 4; k++) *most = larger_two<E>(*most, v.w[k]);
    }
    SC_DEVICE float most() const {
        uint32_t most = held[0].w[0];
#pragma unroll
        for (int i = 0; i < HELD; i++) raise(&most, held[i]);
        copies_wait<0>();
#pragma unroll 4
        for (int i = 0; i < copies; i++) raise(&most, copy(i));
        return fmaxf(E::half(most, 0), E::half(most, 1));
    }
    static SC_DEVICE void add(float *sum, const fused_powers &e, const access &v) {
#pragma unroll
        for (int k = 0; k < 8; k++) *sum += e.of(v.get(k));
    }
    static SC_DEVICE void add_others(float *sum, const fused_powers &e, const access &v, int at) {
#pragma unroll
        for (int k = 0; k < 8; k++) *sum += k == at ? 0 : e.of(v.get(k));
    }
    /* Of all but element `at` of access `target`, as this thread counts; -1: none of its. */
    SC_DEVICE float sum(float most, int target, int at) const {
        fused_powers e(or_zero(most));
        float sum = 0;
#pragma unroll
        for (int i = 0; i < HELD; i++) i *step == target ? add_others(&sum, e, held[i], at) : add(&sum, e, held[i]);
#pragma unroll 2
        for (int i = 0; i < copies; i++)
            (HELD + i) * step == target ? add_others(&sum, e, copy(i), at) : add(&sum, e, copy(i));
        return sum * e.rest;
    }
};

/* The cluster's largest (0 where all are -inf) and sum from each warp's, after cluster_begin. */
template <class E> SC_DEVICE float2 cluster_sums(float most, float sum) {
    __shared__ float2 sent[MOST_BLOCKS * (MOST_THREADS / WARP)];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    int blocks = cluster_blocks(), all = blocks * warps;
    if (blocks > 1) {
        cluster_wait(); /* they have begun */
        if (lane < blocks) send(&sent[cluster_rank() * warps + warp], lane, make_float2(most, sum));
        cluster_arrive();
        cluster_wait();
    } else {
        if (lane == 0) sent[warp] = make_float2(most, sum);
        __syncthreads();
    }
    most = -HUGE_VALF;
    for (int i = lane; i < all; i += WARP) most = fmaxf(most, sent[i].x);
    most = or_zero(warp_max(most));
    powers<E> e(most);
    sum = 0;
    for (int i = lane; i < all; i += WARP) sum += sent[i].y * e.of(sent[i].x);
    return make_float2(most, warp_sum(sum));
}

template <class E> struct gradient {
    fused_powers e;
    float each, at_target;
    int target, at; /* the target's access, as the thread counts; its place there */
    SC_DEVICE gradient(const slopes<E> &s, int target, int at)
        : e(s.e.shift), each(s.each * e.rest), at_target(s.at_target), target(target), at(at) {}

    SC_DEVICE void store(uint4 *dx, raw<E, 8> v, int access) const {
        float out[8];
#pragma unroll
        for (int k = 0; k < 8; k++) out[k] = e.of(v.get(k)) * each;
        if (access == target) {
#pragma unroll
            for (int k = 0; k < 8; k++) out[k] = k == at ? at_target : out[k];
        }
        v.put(out);
        store_once(dx, v.w);
    }
};

template <class E> __global__ void __launch_bounds__(MOST_THREADS, 2) held_losses_and_grads(held_rows h) {
    SC_SHARED(shared);
    const loss_task &a = h.l;
    int blocks = cluster_blocks(), mine = cluster_rank() * blockDim.x + threadIdx.x, step = blocks * blockDim.x;
    int64_t row = blockIdx.x / blocks;
    int target = a.target[row];
    auto gradient_at = [&] { return (uint4 *)a.dx + row_at(a.to, row) / 8 + mine; };
    if (target == a.ignore) { /* the whole cluster */
        uint4 *dx = gradient_at();
        if (mine == 0) a.losses[row] = 0;
        for (int i = mine; i < h.accesses; i += step, dx += step) *dx = make_uint4(0, 0, 0, 0);
        return;
    }
    if (blocks > 1) cluster_begin();
    part<E> p;
    p.copied = (uint4 *)shared + threadIdx.x;
    p.step = step;
    p.copies = h.copies - (mine + (HELD + h.copies - 1) * step >= h.accesses); /* the last may be missing */
    p.load((const uint4 *)a.x + row_at(a.rows, row) / 8 + mine);
    bool inside = target >= 0 && target < a.cols;
    float at_target = inside ? E::get(((const typename E::type *)a.x)[row_at(a.rows, row) + target]) : NAN;
    int own = inside ? target / 8 - mine : -1;
    float scale = scale_of(a, row);
    float largest = warp_max(p.most());
    float2 sums = cluster_sums<E>(largest, warp_sum(p.sum(largest, own, target % 8)));
    float power = inside ? powers<E>(sums.x).of(at_target) : 0;
    if (mine == 0) a.losses[row] = row_loss(a, sums.x, at_target, power, sums.y, 0);
    uint4 *dx = gradient_at();
    gradient<E> d(slopes<E>(a, sums.x, power, sums.y, scale), own, target % 8);
#pragma unroll
    for (int i = 0; i < HELD; i++) d.store(dx + (int64_t)i * step, p.held[i], i * step);
    dx += (int64_t)HELD * step;
#pragma unroll 2
    for (int i = 0; i < p.copies; i++) d.store(dx + (int64_t)i * step, p.copy(i), (HELD + i) * step);
}

} // namespace

/* Measured on an H200, bf16, us: a block that reads its row twice, this, and a pass that changes every access.
 *    65536 × 16384   1,399  1,072  1,066       8192 × 128256  1,494  1,117  1,043
 *    65536 × 50304   3,798  3,203  3,262      32768 × 151936  6,979  5,050  4,924
 *   32768 × 100352   4,539  3,363  3,254       8192 × 400000  4,665  3,478  3,242
 * Where one block is too few, four take 2,453 us and two 2,734 (16384 × 128256, behind products), eight 2,726; where
 * one is enough, four take 2,016 and one 1,804 (32768 × 50304). Shorter rows, fp32 and other GPUs were not tried. */
bool sc_cuda_loss_held(const sc_task *task, const sc_cross_entropy_grads_args *k, const loss_task &a) {
    const sc_tensor *x = &k->logits;
    bool sixteen = x->dtype == BF16 || x->dtype == FP16, hopper = sc_library(task) && sc_library(task)->major == 9;
    int accesses = a.cols / 8, each = HELD + COPIED, block = MOST_THREADS * each;
    int blocks = accesses <= block ? 1 : accesses <= 4 * block ? 4 : MOST_BLOCKS;
    bool fits = a.cols >= LEAST_COLS && accesses <= block * blocks;
    bool shaped = a.smoothing > 0 || a.cap > 0;
    if (!sixteen || !hopper || !fits || shaped || !wide_rows(x) || !wide_rows(&k->dlogits)) return false;
    int threads = (int)ceil_div(accesses, each * blocks * WARP) * WARP;
    int copies = (int)ceil_div(accesses, threads * blocks) - HELD;
    held_rows h = {a, accesses, copies};
    size_t shared = (size_t)threads * (size_t)copies * 16;
    sc_launch_clusters(x->dtype == BF16 ? held_losses_and_grads<bf16> : held_losses_and_grads<fp16>, rows_of(x), blocks,
                       threads, shared, SC_STREAM(task), h);
    return true;
}
