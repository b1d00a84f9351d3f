/* The optimizers, ema, count_step, sum_squares, clip_coefficient: on this rank's slice of a unit's flat buffer.
 * One kernel serves all optimizers; it is a template over the update rule.
 * Relies on: magnitude.cuh, sc_optimizer.h (update rules, rounding, shared with the CPU); the record, read on the
 * device.
 * Relied on by: generated code.
 *
 * A row of the segment table (schema/segments.h) covers flat offsets; this rank holds [s·n, s·n + n), n = slice, s =
 * rank mod slices. The host intersects segments and slice; the pieces travel as an argument, 64 a launch, and blocks
 * take tiles of 2048 elements of them, each read and written once, 4 elements an access: those of one block of Philox.
 * Of moments in 8 bits (sc_moments8.h) a warp has a block of 256, so that it finds the largest by itself.
 * sum_squares: blocks of 4096 elements to the workspace, added up in double in a fixed order. clip: norm = √Σ,
 * coefficient = min(1, clip / (norm + 1e-6)). With a loss scale: as k_optimizer.c says. */
#include "../sc_optimizer.h"
#include "../sc_moments8.h"
#include "../schema/workspace.h"
#include "magnitude.cuh"
#include <initializer_list>

namespace {

enum { PIECES = 64, W = 4, U = 2, TILE = BLOCK * W * U, SQUARES = SC_SQUARES_BLOCK, JOIN_BLOCK = 1024 };

struct pieces {
    int n, tiles;
    int64_t begin[PIECES], end[PIECES]; /* in the slice */
    int group[PIECES], first[PIECES];   /* first: number of its first tile */
    int64_t origin[PIECES];             /* where its parameter begins, maybe before the slice */
    uint64_t key[PIECES];
    int matrix[PIECES]; /* whose largest magnitude is found; -1: none */
};

/* f(pieces) for the slice's part of the table, at most PIECES at a time. */
template <class F> void for_each_launch(const sc_task *t, const sc_operands &o, bool keyed, F f) {
    int64_t n = o.slice, low = n * t->coord[o.axis].at, expert = sc_expert_place(t, o.expert);
    bool finds = o.largest.p;
    pieces p = {};
    for (int64_t i = 0; i < sc_segments(o.ntable, keyed, finds); i++) {
        sc_segment s = sc_segment_at(o.table, i, keyed, finds);
        int64_t begin = s.begin - low, end = s.end - low;
        p.origin[p.n] = begin - expert * (end - begin);
        begin = begin > 0 ? begin : 0;
        end = end < n ? end : n;
        if (begin >= end) continue;
        p.begin[p.n] = begin;
        p.end[p.n] = end;
        p.group[p.n] = (int)s.group;
        p.key[p.n] = s.key;
        p.matrix[p.n] = (int)s.matrix;
        p.first[p.n++] = p.tiles;
        p.tiles += (int)ceil_div(end - begin / W * W, TILE);
        if (p.n < PIECES) continue;
        f(p);
        p.n = p.tiles = 0;
    }
    if (p.n) f(p);
}

SC_DEVICE int piece_of(const pieces &p, int tile) {
    int low = 0, high = p.n; /* first[low] <= tile < first[high] */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (p.first[middle] <= tile)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Moments of M are rounded by random words. */
template <class M> constexpr bool rounds = std::is_same_v<M, bf16>;

/* A tile's elements [begin, end); `whole`: all TILE of them, aligned, so that a thread's runs are U accesses (and, with
 * moments of bf16, whole blocks of random words). */
struct stretch {
    int64_t begin, end;
    bool whole;
};
template <class M> SC_DEVICE stretch stretch_of(const pieces &p, int piece, int tile) {
    int64_t begin = p.begin[piece], at = begin / W * W + (int64_t)(tile - p.first[piece]) * TILE, end = at + TILE;
    stretch s = {at < begin ? begin : at, end < p.end[piece] ? end : p.end[piece], false};
    s.whole = s.end - s.begin == TILE && s.begin % W == 0 && (!rounds<M> || p.origin[piece] % W == 0);
    return s;
}
SC_DEVICE int64_t run_at(const stretch &s, int u) {
    return s.begin + (u * BLOCK + (int)threadIdx.x) * W;
}

struct addresses { /* of an update's operands */
    const void *grad;
    void *master, *moment[2];
    const void *clip;
    int clip_dtype;
    const int64_t *step;
    const sc_record *record;
    int set; /* which of the record's optimizers it is */
    bool flag;
    int64_t slice; /* elements of a moment */
    void *wire;     /* or NULL */
    float *largest; /* likewise */
    int wire_dtype;
    bool may_skip;
};

/* Gradients are not finite: the step leaves everything as it was. */
SC_DEVICE bool skips(const addresses &a) {
    return a.may_skip && load_any(a.clip, a.clip_dtype, 1) != 0;
}

/* The largest magnitude of one matrix among the elements that a block updates, as bits. P: the master's dtype. All
 * threads of a block call `in` before a tile, and `end` behind the last one. */
template <class P> struct tally {
    int matrix = -1, most = 0;

    SC_DEVICE void in(const addresses &a, int m) {
        if (m == matrix) return;
        end(a);
        matrix = m, most = 0;
    }
    template <int V> SC_DEVICE void take(const float *x) {
#pragma unroll
        for (int k = 0; k < V; k++) most = max(most, magnitude_of(x[k]));
    }
    SC_DEVICE void end(const addresses &a) { /* rounding keeps the order: the largest is rounded alone */
        __shared__ int part[BLOCK / WARP];
        if (matrix < 0) return;
        note(part, most);
        __syncthreads();
        if (threadIdx.x == 0) {
            float x = P::get(P::put(sc_float((uint32_t)noted(part))));
            uint32_t wire;
            if (a.wire) store_any(&wire, a.wire_dtype, 0, x), x = load_any(&wire, a.wire_dtype, 0);
            atomicMax((int *)a.largest + matrix, magnitude_of(x));
        }
        __syncthreads();
    }
};

/* A skipped step leaves the wire shard what it is, the master in its dtype; written all the same: where state streams
 * through the device, what lies there now is not what goes back. */
template <class P, class M> SC_DEVICE void renew_wire(const pieces &p, const addresses &a) {
    tally<P> found;
    for (int tile = blockIdx.x; (a.wire || a.largest) && tile < p.tiles; tile += gridDim.x) {
        int piece = piece_of(p, tile);
        stretch at = stretch_of<M>(p, piece, tile);
        found.in(a, p.matrix[piece]);
        for (int64_t i = at.begin + threadIdx.x; i < at.end; i += BLOCK) {
            float x = P::get(((const typename P::type *)a.master)[i]);
            found.template take<1>(&x);
            if (a.wire) store_any(a.wire, a.wire_dtype, i, x);
        }
    }
    found.end(a);
}

/* V elements on their way through registers: W, or one. */
template <const sc_rule &R, class G, class P, class M, int V> struct run {
    static constexpr int N = R.moments;
    raw<G, V> g;
    raw<P, V> x;
    raw<M, V> m[2];

    SC_DEVICE void load(const addresses &a, int64_t at) {
        g.load((const typename G::type *)a.grad + at);
        x.load((const typename P::type *)a.master + at);
#pragma unroll
        for (int j = 0; j < N; j++) m[j].load((const typename M::type *)a.moment[j] + at);
    }
    /* `element`: number of the first within its parameter, a multiple of V. */
    SC_DEVICE void update(const addresses &a, int64_t at, const sc_constants &c, const sc_rounding &d, int64_t element,
                          tally<P> &found) {
        float x1[V], m1[2][V];
#pragma unroll
        for (int k = 0; k < V; k++) {
            x1[k] = x.get(k);
#pragma unroll
            for (int j = 0; j < N; j++) m1[j][k] = m[j].get(k);
            R.element(&c, g.get(k), &x1[k], &m1[0][k], &m1[1][k]);
        }
        if constexpr (rounds<M>) {
            static_assert(W == sizeof(sc_block) / sizeof(uint32_t), "a block of Philox serves a run");
            uint64_t block = (uint64_t)element / W;
            sc_block counter = {{(uint32_t)block, (uint32_t)(block >> 32), d.a, d.b}};
            sc_block words = sc_philox(counter, (uint32_t)d.key, (uint32_t)(d.key >> 32));
#pragma unroll
            for (int k = 1; k < W; k++)
                if (V == 1 && element % W == k) words.w[0] = words.w[k];
#pragma unroll
            for (int k = 0; k < N * V; k++)
                m1[k / V][k % V] = sc_round_bf16(m1[k / V][k % V], words.w[k % V] >> 16 * (k / V));
        }
        found.template take<V>(x1);
        x.put(x1);
        x.store((typename P::type *)a.master + at);
#pragma unroll
        for (int j = 0; j < N; j++) {
            m[j].put(m1[j]);
            m[j].store((typename M::type *)a.moment[j] + at);
        }
        if (std::is_same_v<P, fp32> && a.wire) store_run<V>(a.wire, a.wire_dtype, at, x1); /* launch sees to fp32 */
    }
};

/* One thread computes the step's constants. Adam's powers take long, so its first elements are loaded meanwhile; the
 * other rules load later and need fewer registers. */
template <const sc_rule &R, class G, class P, class M>
__global__ void __launch_bounds__(BLOCK) update(const __grid_constant__ pieces p, const __grid_constant__ addresses a) {
    constexpr bool early = R.moments > 1;
    __shared__ sc_constants shared;
    tally<P> found;
    bool have = false;
    if (skips(a)) {
        renew_wire<P, M>(p, a);
        return;
    }
    for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        int piece = piece_of(p, tile);
        stretch at = stretch_of<M>(p, piece, tile);
        found.in(a, p.matrix[piece]);
        run<R, G, P, M, W> runs[U];
        auto load = [&] {
#pragma unroll
            for (int u = 0; u < U; u++) runs[u].load(a, run_at(at, u));
        };
        if (at.whole && early) load();
        if (!have) {
            if (threadIdx.x == 0)
                shared = R.step(&a.record->of[a.set], a.step ? *a.step : 0, load_any(a.clip, a.clip_dtype, 0), a.flag);
            __syncthreads();
            have = true;
        }
        sc_constants c = R.group(shared, a.record, p.group[piece]);
        if constexpr (R.scaled) c.rate *= (float)sc_double((int64_t)p.key[piece]);
        sc_rounding d = {};
        if constexpr (rounds<M>) d = sc_rounding_of(a.record, p.key[piece]);
        if (at.whole && !early) load();
        if (at.whole) {
#pragma unroll
            for (int u = 0; u < U; u++) runs[u].update(a, run_at(at, u), c, d, run_at(at, u) - p.origin[piece], found);
        } else {
            for (int64_t i = at.begin + threadIdx.x; i < at.end; i += BLOCK) {
                run<R, G, P, M, 1> one;
                one.load(a, i);
                one.update(a, i, c, d, i - p.origin[piece], found);
            }
        }
    }
    found.end(a);
}

/* ── moments in 8 bits ────────────────────────────────────────────────────────────────────────────────────────────────
 */
enum { CODES = SC_MOMENTS8_CODES, BLOCK8 = SC_MOMENTS8_BLOCK };

/* Decades by a magnitude's exponent: an octave has a border between two of them, or none. A table of these takes a third of
 * the comparisons, and gives what sc_moments8_decade_of does. */
struct octave {
    float border, parts, more, n; /* from the border on `more` parts, twice the n */

    SC_DEVICE static octave of(uint32_t exponent, int first) {
        float low = sc_float(exponent << 23), high = sc_float(exponent << 23 | 0x7fffffu);
        sc_moments8_decade d = sc_moments8_decade_of(exponent < 255 ? low : 0, first);
        octave o = {HUGE_VALF, d.parts, d.parts, d.n};
#define CROSSES(i, power)                                                                                              \
    if (SC_MOMENTS8_BORDER(i, power, first) > low && SC_MOMENTS8_BORDER(i, power, first) <= high)                      \
        o.border = SC_MOMENTS8_BORDER(i, power, first), o.more = SC_MOMENTS8_PARTS(power);
        SC_MOMENTS8_DECADES(CROSSES)
#undef CROSSES
        return o;
    }
    SC_DEVICE sc_moments8_decade decade(float a) const {
        bool above = a >= border;
        sc_moments8_decade d = {above ? n + n : n, above ? more : parts};
        return d;
    }
};

template <int N> struct code_tables { /* by moment */
    float value[N][CODES];
    octave by_exponent[N][256];

    SC_DEVICE void set() { /* each thread its part */
        int i = (int)threadIdx.x;
#pragma unroll
        for (int j = 0; j < N; j++) {
            value[j][i] = sc_moments8_value(i, j == 0);
            by_exponent[j][i] = octave::of((uint32_t)i, j == 0 ? 1 : 2);
        }
    }
    SC_DEVICE int code(int j, float x, float inverse) const {
        float y = x * inverse, a = __builtin_fabsf(y);
        sc_moments8_decade d = by_exponent[j][sc_bits(a) >> 23].decade(a);
        return j == 0 ? sc_moments8_code_signed(d, y) : sc_moments8_code_unsigned(d, y, x);
    }
};

SC_DEVICE uint32_t warp_largest(uint32_t x) {
#pragma unroll
    for (int k = WARP / 2; k; k /= 2) {
        uint32_t y = __shfl_xor_sync(SC_ALL, x, k);
        x = x > y ? x : y;
    }
    return x;
}

/* V codes as they lie in memory. */
template <int V> struct code_run {
    std::conditional_t<V == W, uint32_t, uint8_t> w;
    SC_DEVICE int get(int k) const { return w >> 8 * k & 0xff; }
};

/* A warp's block of the slice: elements [at, end), V at a time; V = 1 where it is not whole. Its moments are rounded when
 * the largest is known, and serve the master as they are. */
template <const sc_rule &R, class G, class P, int V>
SC_DEVICE void update_block(const addresses &a, int64_t at, int64_t end, const sc_constants &c,
                            const code_tables<R.moments> &tables, tally<P> &found) {
    constexpr int N = R.moments, RUNS = BLOCK8 / WARP / V;
    typedef code_run<V> codes;
    int lane = (int)threadIdx.x % WARP;
    int64_t block = at / BLOCK8;
    raw<G, V> g[RUNS];
    raw<P, V> x[RUNS];
    codes code[N][RUNS];
    float m1[2][RUNS][V], scale[N];
    uint32_t largest[N] = {};
    auto run_of = [&](int u) { return at + (u * WARP + lane) * V; };
#pragma unroll
    for (int j = 0; j < N; j++) scale[j] = sc_moments8_scales(a.moment[j], a.slice)[block];
#pragma unroll
    for (int u = 0; u < RUNS; u++) {
        int64_t i = run_of(u);
        if (V == 1 && i >= end) continue;
        g[u].load((const typename G::type *)a.grad + i);
        x[u].load((const typename P::type *)a.master + i);
#pragma unroll
        for (int j = 0; j < N; j++) code[j][u] = *(const codes *)((const uint8_t *)a.moment[j] + i);
    }
#pragma unroll
    for (int u = 0; u < RUNS; u++) {
        int64_t i = run_of(u);
        float x1[V];
        if (V == 1 && i >= end) continue;
#pragma unroll
        for (int k = 0; k < V; k++) {
            x1[k] = x[u].get(k);
#pragma unroll
            for (int j = 0; j < N; j++) m1[j][u][k] = tables.value[j][code[j][u].get(k)] * scale[j];
            R.element(&c, g[u].get(k), &x1[k], &m1[0][u][k], &m1[1][u][k]);
#pragma unroll
            for (int j = 0; j < N; j++) {
                uint32_t order = sc_moments8_order(m1[j][u][k]);
                largest[j] = largest[j] > order ? largest[j] : order;
            }
        }
        found.template take<V>(x1);
        x[u].put(x1);
        x[u].store((typename P::type *)a.master + i);
        if (std::is_same_v<P, fp32> && a.wire) store_run<V>(a.wire, a.wire_dtype, i, x1); /* launch sees to fp32 */
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        scale[j] = sc_float(warp_largest(largest[j]));
        float inverse = sc_moments8_inverse(scale[j]);
        if (lane == 0) sc_moments8_scales(a.moment[j], a.slice)[block] = scale[j];
#pragma unroll
        for (int u = 0; u < RUNS; u++) {
            int64_t i = run_of(u);
            codes to = {};
            if (V == 1 && i >= end) continue;
#pragma unroll
            for (int k = 0; k < V; k++) to.w |= (decltype(to.w))(tables.code(j, m1[j][u][k], inverse) << 8 * k);
            *(codes *)((uint8_t *)a.moment[j] + i) = to;
        }
    }
}

template <const sc_rule &R, class G, class P>
__global__ void __launch_bounds__(BLOCK)
    update_coded(const __grid_constant__ pieces p, const __grid_constant__ addresses a) {
    static_assert(BLOCK == CODES && BLOCK == 256 && TILE == BLOCK / WARP * BLOCK8, "a thread a code, a warp a block");
    __shared__ sc_constants shared;
    __shared__ code_tables<R.moments> tables;
    tally<P> found;
    if (skips(a)) {
        renew_wire<P, fp32>(p, a);
        return;
    }
    tables.set();
    if (threadIdx.x == 0)
        shared = R.step(&a.record->of[a.set], a.step ? *a.step : 0, load_any(a.clip, a.clip_dtype, 0), a.flag);
    __syncthreads();
    for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        int piece = piece_of(p, tile);
        int64_t at = p.begin[piece] + (int64_t)(tile - p.first[piece]) * TILE + (int)threadIdx.x / WARP * BLOCK8;
        int64_t end = p.end[piece];
        sc_constants c = R.group(shared, a.record, p.group[piece]);
        found.in(a, p.matrix[piece]);
        if (at + BLOCK8 <= end)
            update_block<R, G, P, W>(a, at, end, c, tables, found);
        else if (at < end)
            update_block<R, G, P, 1>(a, at, end, c, tables, found);
    }
    found.end(a);
}

/* f of the dtypes of gradient, master and moments (fp32 or bf16; without any, fp32). */
template <int MOMENTS, class F> void with_states(const sc_task *t, const sc_operands &o, F f) {
    with_float(t, o.grad.dtype, [&](auto g) {
        with_float(t, o.master.dtype, [&](auto p) {
            if constexpr (MOMENTS == 0)
                f(g, p, fp32{});
            else if (o.moment[0].dtype == FP32)
                f(g, p, fp32{});
            else if (o.moment[0].dtype == BF16)
                f(g, p, bf16{});
            else
                sc_unsupported(t, "an optimizer", "its moments must be fp32, bf16 or int8");
        });
    });
}

template <const sc_rule &R> void launch(const sc_task *t, const sc_operands &o) {
    addresses a = {};
    a.grad = o.grad.p, a.master = o.master.p, a.moment[0] = o.moment[0].p, a.moment[1] = o.moment[1].p;
    a.clip = o.coefficient.p, a.clip_dtype = o.coefficient.dtype, a.may_skip = sc_numel(&o.coefficient) > 1;
    a.step = (const int64_t *)o.step.p, a.record = t->record, a.flag = o.flag;
    a.set = (int)o.set, a.slice = o.slice;
    a.wire = o.wire.p, a.wire_dtype = o.wire.dtype, a.largest = (float *)o.largest.p;
    for (const void *p : {a.grad, (const void *)a.master, (const void *)a.moment[0], (const void *)a.moment[1]})
        if (!aligned(p, 16)) sc_unsupported(t, "an optimizer", "its shards must be aligned to 16 bytes");
    if (a.wire && (o.master.dtype != FP32 || !aligned(a.wire, 16)))
        sc_unsupported(t, "an optimizer", "it writes an aligned wire shard of an fp32 master");
    if (R.moments > 1 && o.moment[0].dtype != o.moment[1].dtype)
        sc_unsupported(t, "an optimizer", "its two moments must have one dtype");
    if constexpr (R.moments > 0) {
        if (o.moment[0].dtype == INT8) {
            with_float(t, o.grad.dtype, [&](auto g) {
                with_float(t, o.master.dtype, [&](auto p) {
                    for_each_launch(t, o, R.scaled, [&](const pieces &s) {
                        SC_LAUNCH(t, (update_coded<R, decltype(g), decltype(p)>), filling(t, s.tiles), BLOCK, s, a);
                    });
                });
            });
            return;
        }
    }
    with_states<R.moments>(t, o, [&](auto g, auto p, auto m) {
        for_each_launch(t, o, rounds<decltype(m)> || R.scaled, [&](const pieces &s) {
            SC_LAUNCH(t, (update<R, decltype(g), decltype(p), decltype(m)>), filling(t, s.tiles), BLOCK, s, a);
        });
    });
}

/* ── sum of squares, clipping ─────────────────────────────────────────────────────────────────────────────────────────
 */
template <class E>
__global__ void __launch_bounds__(BLOCK)
    square_blocks(const void *x, int64_t n, float *part, bool runs, const float *scale) {
    constexpr int V = wide<E>;
    int64_t first = (int64_t)blockIdx.x * SQUARES, end = first + SQUARES < n ? first + SQUARES : n;
    const typename E::type *from = (const typename E::type *)x;
    float sum = 0, inverse = scale ? 1 / *scale : 1;
    if (runs && end - first == SQUARES) {
        raw<E, V> v[SQUARES / BLOCK / V];
#pragma unroll
        for (int u = 0; u < SQUARES / BLOCK / V; u++) v[u].load(from + first + (u * BLOCK + (int)threadIdx.x) * V);
#pragma unroll
        for (int u = 0; u < SQUARES / BLOCK / V; u++)
#pragma unroll
            for (int k = 0; k < V; k++) {
                float g = v[u].get(k) * inverse;
                sum = sc_fma(g, g, sum);
            }
    } else {
        for (int64_t i = first + threadIdx.x; i < end; i += BLOCK) {
            float v = E::get(from[i]) * inverse;
            sum = sc_fma(v, v, sum);
        }
    }
    sum = group_sum<BLOCK>(sum);
    if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(JOIN_BLOCK) join_squares(const float *part, int64_t n, float *y) {
    double sum = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < n; i += JOIN_BLOCK) sum += part[i];
    sum = group_sum<JOIN_BLOCK>(sum);
    if (threadIdx.x == 0) *y = (float)sum;
}

/* A warp: the norms of the units, summed in double. */
__global__ void __launch_bounds__(WARP) clip_norm(const float *squares, int64_t n, const float *scale,
                                                  float *coefficient, float *norm, const sc_record *record) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += WARP) sum += squares[i];
    sum = warp_sum(sum);
    if (threadIdx.x) return;
    double c = sc_coefficient(sum, record->clip);
    *norm = (float)__builtin_sqrt(sum);
    if (scale) {
        bool skip = sc_not_finite(sum);
        c = skip ? 0 : c / *scale;
        coefficient[1] = skip;
    }
    *coefficient = (float)c;
}

template <class E>
__global__ void __launch_bounds__(BLOCK) average_each(const typename E::type *master, float *average, int64_t n,
                                                      const int64_t *step, const float *coefficient, float weight) {
    bool first = *step <= 1;
    if (coefficient && coefficient[1] != 0) return;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n; i += (int64_t)gridDim.x * BLOCK)
        average[i] = sc_ema(average[i], E::get(master[i]), weight, first);
}

__global__ void count_one(int64_t *step, const float *coefficient) {
    if (!coefficient || coefficient[1] == 0) *step += 1;
}

} // namespace

SC_KERNEL(sgd) {
    if (k->momentum.p)
        launch<sc_momentum>(task, sc_sgd_operands(k));
    else
        launch<sc_sgd>(task, sc_sgd_operands(k));
}

SC_KERNEL(adam) {
    launch<sc_adam>(task, sc_adam_operands(k));
}

SC_KERNEL(ema) {
    int64_t n = sc_numel(&k->average);
    if (k->average.dtype != FP32) sc_unsupported(task, "ema", "its average must be fp32");
    with_float(task, k->master.dtype, [&](auto e) {
        typedef decltype(e) E;
        SC_LAUNCH(task, average_each<E>, filling(task, ceil_div(n, BLOCK)), BLOCK,
                  (const typename E::type *)k->master.p, (float *)k->average.p, n, (const int64_t *)k->step.p,
                  (const float *)k->coefficient.p, (float)(1 - k->decay));
    });
}

SC_KERNEL(lion) {
    launch<sc_lion>(task, sc_lion_operands(k));
}

/* Zeros between segments too, and of a step that is skipped. */
SC_KERNEL(muon_momentum) {
    SC_CUDA(cudaMemsetAsync(k->update.p, 0, (size_t)k->slice * sizeof(uint16_t), SC_STREAM(task)));
    launch<sc_muon_momentum>(task, sc_muon_momentum_operands(k));
}

SC_KERNEL(muon) {
    launch<sc_muon>(task, sc_muon_operands(k));
}

SC_KERNEL(count_step) {
    SC_LAUNCH(task, count_one, 1, 1, (int64_t *)k->step.p, (const float *)k->coefficient.p);
}

SC_KERNEL(sum_squares) {
    const sc_tensor *x = &k->x;
    int64_t n = sc_numel(x), blocks = ceil_div(n, SQUARES);
    if (!k->work.p || k->work.shape[0] < sc_cuda_sum_squares_bytes(n))
        sc_unsupported(task, "sum_squares", "its workspace must hold a float for each 4096 elements");
    if (k->y.dtype != FP32) sc_unsupported(task, "sum_squares", "its result must be fp32");
    float *part = (float *)k->work.p;
    const float *scale = (const float *)k->scaler.p;
    with_float(task, x->dtype, [&](auto e) {
        SC_LAUNCH(task, square_blocks<decltype(e)>, (unsigned)blocks, BLOCK, x->p, n, part, aligned(x->p, 16), scale);
    });
    SC_LAUNCH(task, join_squares, 1, JOIN_BLOCK, part, blocks, (float *)k->y.p);
}

SC_KERNEL(clip_coefficient) {
    SC_LAUNCH(task, clip_norm, 1, WARP, (const float *)k->squares.p, sc_numel(&k->squares), (const float *)k->scaler.p,
              (float *)k->coefficient.p, (float *)k->norm.p, task->record);
}
