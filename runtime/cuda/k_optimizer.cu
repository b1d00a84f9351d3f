/* sgd, adam, count_step, sum_squares, clip_coefficient: on this rank's slice of a unit's flat buffer.
 * Relies on: kernel.cuh, sc_optimizer.h (update rules, rounding, shared with the CPU); the record, read on the device.
 * Relied on by: generated code.
 *
 * A row of the segment table (schema/segments.h) covers flat offsets; this rank holds [s·n, s·n + n), n = slice, s =
 * rank mod slices. The host intersects segments and slice; the pieces travel as an argument, 64 a launch, and blocks
 * take tiles of 2048 elements of them, each read and written once, 4 elements an access: those of one block of Philox.
 * sum_squares: blocks of 4096 elements to the workspace, added up in double in a fixed order. clip: norm = √Σ,
 * coefficient = min(1, clip / (norm + 1e-6)). With a loss scale: as k_optimizer.c says. */
#include "../sc_optimizer.h"
#include "../schema/workspace.h"
#include "kernel.cuh"
#include <initializer_list>

namespace {

enum { PIECES = 64, W = 4, U = 2, TILE = BLOCK * W * U, SQUARES = SC_SQUARES_BLOCK, JOIN_BLOCK = 1024 };

struct pieces {
    int n, tiles;
    int64_t begin[PIECES], end[PIECES]; /* in the slice */
    int group[PIECES], first[PIECES];   /* first: number of its first tile */
    int64_t origin[PIECES];             /* where its segment begins, maybe before the slice */
    uint64_t key[PIECES];
};

/* f(pieces) for the slice's part of the table, at most PIECES at a time. k: the args of sgd or adam. */
template <class K, class F> void for_each_launch(const sc_task *t, const K *k, bool keyed, F f) {
    int64_t n = k->slice, low = n * t->coord[k->axis].at;
    pieces p = {};
    for (int64_t i = 0; i < sc_segments(k->ntable, keyed); i++) {
        sc_segment s = sc_segment_at(k->table, i, keyed);
        int64_t begin = s.begin - low, end = s.end - low;
        p.origin[p.n] = begin;
        begin = begin > 0 ? begin : 0;
        end = end < n ? end : n;
        if (begin >= end) continue;
        p.begin[p.n] = begin;
        p.end[p.n] = end;
        p.group[p.n] = (int)s.group;
        p.key[p.n] = s.key;
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
template <class E> SC_DEVICE void load_run(raw<E, W> *v, const void *p, int64_t at) {
    v->load((const typename E::type *)p + at);
}
template <class E> SC_DEVICE void store_values(void *p, const float *x, int64_t at) {
    raw<E, W> v;
    v.put(x);
    v.store((typename E::type *)p + at);
}
template <class E> SC_DEVICE float element(const void *p, int64_t i) {
    return E::get(((const typename E::type *)p)[i]);
}
template <class E> SC_DEVICE void set_element(void *p, int64_t i, float x) {
    ((typename E::type *)p)[i] = E::put(x);
}

struct update {
    const void *grad;
    void *master, *m, *v;
    const void *clip;
    int clip_dtype;
    const int64_t *step;
    const sc_record *record;
    bool flag;  /* decoupled (adam), nesterov (sgd) */
    void *wire; /* the master in its dtype, or NULL */
    int wire_dtype;
    bool may_skip;
};

/* Gradients are not finite: the step leaves everything as it was. */
SC_DEVICE bool skips(const update &a) {
    return a.may_skip && load_any(a.clip, a.clip_dtype, 1) != 0;
}

/* A skipped step leaves the wire shard what it is, the master in its dtype; written all the same: where state streams
 * through the device, what lies there now is not what goes back. */
template <class P, class M> SC_DEVICE void renew_wire(const pieces &p, const update &a) {
    for (int tile = blockIdx.x; a.wire && tile < p.tiles; tile += gridDim.x) {
        stretch at = stretch_of<M>(p, piece_of(p, tile), tile);
        for (int64_t i = at.begin + threadIdx.x; i < at.end; i += BLOCK)
            store_any(a.wire, a.wire_dtype, i, element<P>(a.master, i));
    }
}

/* Moments on their way to memory: of elements [element, element + W) of the piece's parameter, W dividing `element`;
 * and of one element. v: NULL where there is none. */
SC_DEVICE sc_block words_of(const sc_rounding &d, int64_t element) {
    uint64_t block = (uint64_t)element / W;
    sc_block c = {{(uint32_t)block, (uint32_t)(block >> 32), d.a, d.b}};
    return sc_philox(c, (uint32_t)d.key, (uint32_t)(d.key >> 32));
}
template <class M> SC_DEVICE void round_run(const sc_rounding &d, int64_t element, float *m, float *v) {
    if constexpr (rounds<M>) {
        static_assert(W == sizeof(sc_block) / sizeof(uint32_t), "a block of Philox serves a run");
        sc_block words = words_of(d, element);
#pragma unroll
        for (int k = 0; k < W; k++) {
            m[k] = sc_round_bf16(m[k], words.w[k]);
            if (v) v[k] = sc_round_bf16(v[k], words.w[k] >> 16);
        }
    }
}
template <class M> SC_DEVICE void round_one(const sc_rounding &d, int64_t element, float *m, float *v) {
    if constexpr (rounds<M>) {
        sc_block words = words_of(d, element);
        uint32_t word = words.w[0];
#pragma unroll
        for (int k = 1; k < W; k++)
            if (element % W == k) word = words.w[k];
        *m = sc_round_bf16(*m, word);
        if (v) *v = sc_round_bf16(*v, word >> 16);
    }
}
template <class M> SC_DEVICE sc_rounding rounding_of(const update &a, const pieces &p, int piece) {
    if constexpr (rounds<M>)
        return sc_rounding_of(a.record, p.key[piece]);
    else
        return {};
}

/* The step's constants are worked out by one thread while the first elements are on their way. */
template <class G, class P, class M>
__global__ void __launch_bounds__(BLOCK) adam(const __grid_constant__ pieces p, const __grid_constant__ update a) {
    __shared__ sc_adam shared;
    bool have = false;
    if (skips(a)) {
        renew_wire<P, M>(p, a);
        return;
    }
    for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        int piece = piece_of(p, tile);
        stretch at = stretch_of<M>(p, piece, tile);
        raw<G, W> g[U];
        raw<P, W> x[U];
        raw<M, W> m[U], v[U];
        if (at.whole) {
#pragma unroll
            for (int u = 0; u < U; u++) {
                load_run<G>(&g[u], a.grad, run_at(at, u));
                load_run<P>(&x[u], a.master, run_at(at, u));
                load_run<M>(&m[u], a.m, run_at(at, u));
                load_run<M>(&v[u], a.v, run_at(at, u));
            }
        }
        if (!have) {
            if (threadIdx.x == 0) shared = sc_adam_of(a.record, *a.step, load_any(a.clip, a.clip_dtype, 0), a.flag);
            __syncthreads();
            have = true;
        }
        const sc_adam c = shared;
        const sc_adam_group s = sc_adam_group_of(a.record, &c, p.group[piece]);
        const sc_rounding d = rounding_of<M>(a, p, piece);
        if (at.whole) {
#pragma unroll
            for (int u = 0; u < U; u++) {
                float x1[W], m1[W], v1[W];
#pragma unroll
                for (int k = 0; k < W; k++) {
                    x1[k] = x[u].get(k);
                    m1[k] = m[u].get(k);
                    v1[k] = v[u].get(k);
                    sc_adam_update(&x1[k], &m1[k], &v1[k], g[u].get(k), &c, s);
                }
                round_run<M>(d, run_at(at, u) - p.origin[piece], m1, v1);
                store_values<P>(a.master, x1, run_at(at, u));
                store_values<M>(a.m, m1, run_at(at, u));
                store_values<M>(a.v, v1, run_at(at, u));
                if (a.wire) store_run<W>(a.wire, a.wire_dtype, run_at(at, u), x1);
            }
        } else {
            for (int64_t i = at.begin + threadIdx.x; i < at.end; i += BLOCK) {
                float x1 = element<P>(a.master, i), m1 = element<M>(a.m, i), v1 = element<M>(a.v, i);
                sc_adam_update(&x1, &m1, &v1, element<G>(a.grad, i), &c, s);
                round_one<M>(d, i - p.origin[piece], &m1, &v1);
                set_element<P>(a.master, i, x1);
                set_element<M>(a.m, i, m1);
                set_element<M>(a.v, i, v1);
                if (a.wire) store_any(a.wire, a.wire_dtype, i, x1);
            }
        }
    }
}

template <class G, class P, class M>
__global__ void __launch_bounds__(BLOCK) sgd(const __grid_constant__ pieces p, const __grid_constant__ update a) {
    if (skips(a)) return;
    sc_sgd c = {load_any(a.clip, a.clip_dtype, 0), a.record->momentum, a.flag, a.m != NULL};
    for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        int piece = piece_of(p, tile);
        const sc_sgd_group s = sc_sgd_group_of(a.record, p.group[piece]);
        const sc_rounding d = rounding_of<M>(a, p, piece);
        stretch at = stretch_of<M>(p, piece, tile);
        if (at.whole) {
            raw<G, W> g[U];
            raw<P, W> x[U];
            raw<M, W> m[U];
#pragma unroll
            for (int u = 0; u < U; u++) {
                load_run<G>(&g[u], a.grad, run_at(at, u));
                load_run<P>(&x[u], a.master, run_at(at, u));
                m[u].clear();
                if (a.m) load_run<M>(&m[u], a.m, run_at(at, u));
            }
#pragma unroll
            for (int u = 0; u < U; u++) {
                float x1[W], m1[W];
#pragma unroll
                for (int k = 0; k < W; k++) {
                    x1[k] = x[u].get(k);
                    m1[k] = m[u].get(k);
                    sc_sgd_update(&x1[k], &m1[k], g[u].get(k), c, s);
                }
                round_run<M>(d, run_at(at, u) - p.origin[piece], m1, NULL);
                store_values<P>(a.master, x1, run_at(at, u));
                if (a.m) store_values<M>(a.m, m1, run_at(at, u));
            }
        } else {
            for (int64_t i = at.begin + threadIdx.x; i < at.end; i += BLOCK) {
                float x1 = element<P>(a.master, i), m1 = a.m ? element<M>(a.m, i) : 0;
                sc_sgd_update(&x1, &m1, element<G>(a.grad, i), c, s);
                round_one<M>(d, i - p.origin[piece], &m1, NULL);
                set_element<P>(a.master, i, x1);
                if (a.m) set_element<M>(a.m, i, m1);
            }
        }
    }
}

/* f of the dtypes of gradient, master and moments (fp32 or bf16). */
template <class F> void with_states(const sc_task *t, int grad, int master, int moments, F f) {
    with_float(t, grad, [&](auto g) {
        with_float(t, master, [&](auto p) {
            if (moments == FP32)
                f(g, p, fp32{});
            else if (moments == BF16)
                f(g, p, bf16{});
            else
                sc_unsupported(t, "an optimizer", "its moments must be fp32 or bf16");
        });
    });
}

void need_aligned(const sc_task *t, std::initializer_list<const void *> shards) {
    for (const void *p : shards)
        if (!aligned(p, 16)) sc_unsupported(t, "an optimizer", "its shards must be aligned to 16 bytes");
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

__global__ void count_one(int64_t *step, const float *coefficient) {
    if (!coefficient || coefficient[1] == 0) *step += 1;
}

/* k: the args of adam or sgd, but for the moments. */
template <class K> update update_of(const sc_task *t, const K *k, bool flag) {
    update a = {};
    a.grad = k->grad.p;
    a.master = k->master.p;
    a.clip = k->coefficient.p, a.clip_dtype = k->coefficient.dtype;
    a.record = t->record;
    a.flag = flag;
    a.may_skip = sc_numel(&k->coefficient) > 1;
    return a;
}

} // namespace

SC_KERNEL(adam) {
    update a = update_of(task, k, k->decoupled != 0);
    a.m = k->m.p, a.v = k->v.p;
    a.step = (const int64_t *)k->step.p;
    if (k->wire.p) a.wire = k->wire.p, a.wire_dtype = k->wire.dtype;
    need_aligned(task, {a.grad, a.master, a.m, a.v});
    if (a.wire && (k->master.dtype != FP32 || !aligned(a.wire, 16)))
        sc_unsupported(task, "adam", "it writes an aligned wire shard of an fp32 master");
    if (k->m.dtype != k->v.dtype) sc_unsupported(task, "adam", "its two moments must have one dtype");
    with_states(task, k->grad.dtype, k->master.dtype, k->m.dtype, [&](auto g, auto p, auto e) {
        for_each_launch(task, k, rounds<decltype(e)>, [&](const pieces &s) {
            SC_LAUNCH(task, (adam<decltype(g), decltype(p), decltype(e)>), filling(task, s.tiles), BLOCK, s, a);
        });
    });
}

SC_KERNEL(sgd) {
    update a = update_of(task, k, k->nesterov != 0);
    a.m = k->momentum.p;
    int moments = a.m ? (int)k->momentum.dtype : (int)FP32;
    need_aligned(task, {a.grad, a.master, a.m});
    with_states(task, k->grad.dtype, k->master.dtype, moments, [&](auto g, auto p, auto e) {
        for_each_launch(task, k, rounds<decltype(e)>, [&](const pieces &s) {
            SC_LAUNCH(task, (sgd<decltype(g), decltype(p), decltype(e)>), filling(task, s.tiles), BLOCK, s, a);
        });
    });
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
