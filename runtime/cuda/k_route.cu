/* Slots sorted by their group, rows of a tensor brought to the groups' order and back, and the gradient of their
 * weights. Relies on: groups.cuh, schema/workspace.h. Relied on by: generated code. Contiguous operands.
 *
 * Slots are cut into pieces, each a warp's. The first kernel counts the groups of each piece, the second adds these up
 * over the pieces and groups, so that each piece knows where its slots of each group begin, the third places them: 32
 * at a time, each behind those before it of its group. Integers, whose sums have no order: the same in every run.
 * Rows are moved 16 bytes at a time; sums are made in fp32, in the order of a token's slots, and rounded once.
 *
 * Workspace, int32: before [pieces][groups], starts [groups]. */
#include "../schema/workspace.h"
#include "groups.cuh"

namespace {

struct routing {
    const int32_t *index;
    int32_t *counts, *slots, *places, *before, *starts;
    int64_t n;
    int piece, pieces, groups, rows, most;
};

/* The lanes whose g is this lane's. */
SC_DEVICE unsigned alike(int g, int groups) {
    unsigned same = SC_ALL;
    for (int bit = 1; bit < 2 * groups; bit *= 2) {
        unsigned set = __ballot_sync(SC_ALL, (g & bit) != 0);
        same &= g & bit ? set : ~set;
    }
    return same;
}

/* f(slot, group, slots of the group before this one), a piece's slots 32 at a time; `at` [groups] counts on. */
template <class F> SC_DEVICE void each_slot(const routing &a, int *at, int lane, F f) {
    int64_t first = (int64_t)blockIdx.x * a.piece, last = first + a.piece, end = last < a.n ? last : a.n;
    for (int64_t i0 = first; i0 < end; i0 += WARP) {
        int64_t i = i0 + lane;
        int g = i < end ? a.index[i] : a.groups;
        bool outside = g < 0 || g >= a.groups;
        if (outside) g = a.groups;
        unsigned same = alike(g, a.groups), before = same & ((1u << lane) - 1);
        int rank = outside ? -1 : at[g] + __popc(before);
        __syncwarp();
        if (!outside && !before) at[g] += __popc(same);
        __syncwarp();
        if (i < end) f(i, g, rank);
    }
}

__global__ void __launch_bounds__(WARP) count_groups(routing a) {
    SC_SHARED(shared);
    int *at = (int *)shared, lane = threadIdx.x;
    for (int g = lane; g < a.groups; g += WARP) at[g] = 0;
    __syncwarp();
    each_slot(a, at, lane, [](int64_t, int, int) {});
    for (int g = lane; g < a.groups; g += WARP) a.before[(int64_t)blockIdx.x * a.groups + g] = at[g];
}

/* One block, a thread a group: slots of the group before each piece; how many rows it has; where they begin. */
__global__ void __launch_bounds__(SC_ROUTE_GROUPS) add_up(routing a) {
    __shared__ int64_t warps[SC_ROUTE_GROUPS / WARP];
    int g = threadIdx.x, lane = g % WARP, all = 0;
    for (int p = 0; p < a.pieces && g < a.groups; p++) {
        int32_t *at = a.before + (int64_t)p * a.groups + g;
        int n = *at;
        *at = all;
        all += n;
    }
    int rows = all < a.most ? all : a.most;
    int64_t sum = warp_sum_so_far((int64_t)rows, lane);
    if (lane == WARP - 1) warps[g / WARP] = sum;
    __syncthreads();
    for (int k = 0; k < g / WARP; k++) sum += warps[k];
    if (g >= a.groups) return;
    a.counts[g] = rows;
    a.starts[g] = (int)(sum - rows);
}

__global__ void __launch_bounds__(WARP) place_slots(routing a) {
    SC_SHARED(shared);
    int *at = (int *)shared, lane = threadIdx.x, last = a.groups - 1, total = a.starts[last] + a.counts[last];
    for (int g = lane; g < a.groups; g += WARP) at[g] = a.before[(int64_t)blockIdx.x * a.groups + g];
    __syncwarp();
    each_slot(a, at, lane, [&](int64_t i, int g, int rank) {
        int row = rank >= 0 && rank < a.counts[g] ? a.starts[g] + rank : -1;
        a.places[i] = row;
        if (row >= 0) a.slots[row] = (int32_t)i;
    });
    for (int r = total + blockIdx.x * WARP + lane; r < a.rows; r += a.pieces * WARP) a.slots[r] = -1;
}

struct moving {
    void *y;
    const void *x, *weights;
    const int32_t *slots, *places;
    int64_t rows;
    int cols, each, of_weights, limit; /* limit: of slots, or of rows */
};

/* A warp a token: its row of x is read once and written to the row of each of its slots. Further warps clear the rows
 * that no slot has, of 32 rows each. */
template <class E, int W> __global__ void __launch_bounds__(BLOCK) bring_rows(moving a, int64_t tokens) {
    typedef typename E::type type;
    int64_t token = my_row<WARP>();
    int lane = threadIdx.x % WARP;
    raw<E, W> r;
    if (token >= tokens) {
        int64_t row0 = (token - tokens) * WARP;
        bool empty = row0 + lane < a.rows && !(a.slots[row0 + lane] >= 0 && a.slots[row0 + lane] < a.limit);
        r.clear();
        for (unsigned left = __ballot_sync(SC_ALL, empty); left; left &= left - 1)
            for (int c = lane * W; c < a.cols; c += WARP * W)
                r.store((type *)a.y + (row0 + __ffs((int)left) - 1) * a.cols + c);
        return;
    }
    for (int c = lane * W; c < a.cols; c += WARP * W) {
        r.load((const type *)a.x + token * a.cols + c);
        for (int64_t slot = token * a.each; slot < (token + 1) * a.each; slot++) {
            int row = a.places[slot];
            if (row < 0 || row >= a.rows) continue;
            raw<E, W> y = r;
            if (a.weights) {
                float v[W], w = load_any(a.weights, a.of_weights, slot);
#pragma unroll
                for (int i = 0; i < W; i++) v[i] = w * r.get(i);
                y.put(v);
            }
            y.store((type *)a.y + (int64_t)row * a.cols + c);
        }
    }
}

template <class E, int W> __global__ void __launch_bounds__(BLOCK) sum_rows(moving a) {
    typedef typename E::type type;
    int64_t row = my_row<WARP>();
    if (row >= a.rows) return;
    type *y = (type *)a.y + row * a.cols;
    for (int c = threadIdx.x % WARP * W; c < a.cols; c += WARP * W) {
        float sum[W] = {};
        for (int64_t slot = row * a.each; slot < (row + 1) * a.each; slot++) {
            int from = a.places[slot];
            if (from < 0 || from >= a.limit) continue;
            float w = a.weights ? load_any(a.weights, a.of_weights, slot) : 1;
            raw<E, W> r;
            r.load((const type *)a.x + (int64_t)from * a.cols + c);
#pragma unroll
            for (int i = 0; i < W; i++) sum[i] = fmaf(w, r.get(i), sum[i]);
        }
        raw<E, W> r;
        r.put(sum);
        r.store(y + c);
    }
}

/* A warp a slot: its row of x times its token's row of y is its weight's gradient, in a.y. */
template <class E, int W> __global__ void __launch_bounds__(BLOCK) multiply_rows(moving a, const void *y) {
    typedef typename E::type type;
    int64_t slot = my_row<WARP>();
    if (slot >= a.rows) return;
    int from = a.places[slot];
    float sum = 0;
    if (from >= 0 && from < a.limit)
        for (int c = threadIdx.x % WARP * W; c < a.cols; c += WARP * W) {
            raw<E, W> r, s;
            r.load((const type *)a.x + (int64_t)from * a.cols + c);
            s.load((const type *)y + slot / a.each * a.cols + c);
#pragma unroll
            for (int i = 0; i < W; i++) sum = fmaf(r.get(i), s.get(i), sum);
        }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) store_any(a.y, a.of_weights, slot, sum);
}

bool wide_enough(const sc_tensor *a, const sc_tensor *b) {
    return wide_rows(a) && wide_rows(b);
}

} // namespace

SC_KERNEL(route) {
    routing a = {};
    a.index = (const int32_t *)k->index.p, a.n = sc_numel(&k->index);
    a.counts = (int32_t *)k->counts.p, a.slots = (int32_t *)k->slots.p, a.places = (int32_t *)k->places.p;
    a.groups = (int)k->groups, a.rows = (int)k->slots.shape[0];
    a.most = k->capacity > 0 && k->capacity < a.n ? (int)k->capacity : (int)a.n;
    a.piece = (int)sc_cuda_route_piece(a.n), a.pieces = (int)ceil_div(a.n, a.piece);
    a.before = (int32_t *)k->work.p, a.starts = a.before + (int64_t)a.pieces * a.groups;
    size_t shared = (size_t)a.groups * sizeof(int);
    sc_launch(count_groups, a.pieces, WARP, shared, SC_STREAM(task), a);
    sc_launch(add_up, 1, SC_ROUTE_GROUPS, 0, SC_STREAM(task), a);
    sc_launch(place_slots, a.pieces, WARP, shared, SC_STREAM(task), a);
}

static moving moving_of(const sc_tensor *y, const sc_tensor *x, const sc_tensor *places, const sc_tensor *weights) {
    moving a = {};
    a.y = y->p, a.x = x->p, a.places = (const int32_t *)places->p, a.each = (int)cols_of(places);
    a.cols = (int)cols_of(x);
    if (weights) a.weights = weights->p, a.of_weights = weights->dtype;
    return a;
}

SC_KERNEL(dispatch) {
    moving a = moving_of(&k->y, &k->x, &k->places, &k->weights);
    a.slots = (const int32_t *)k->slots.p, a.rows = k->y.shape[0], a.limit = (int)sc_numel(&k->places);
    int64_t tokens = rows_of(&k->x), warps = tokens + ceil_div(a.rows, WARP);
    with_runs(task, k->x.dtype, wide_enough(&k->x, &k->y), [&](auto e, auto w) {
        SC_LAUNCH(task, (bring_rows<decltype(e), w.value>), blocks_for(warps, BLOCK / WARP), BLOCK, a, tokens);
    });
}

SC_KERNEL(combine) {
    moving a = moving_of(&k->y, &k->x, &k->places, &k->weights);
    a.rows = rows_of(&k->y), a.limit = (int)k->x.shape[0];
    with_runs(task, k->x.dtype, wide_enough(&k->x, &k->y), [&](auto e, auto w) {
        SC_LAUNCH(task, (sum_rows<decltype(e), w.value>), blocks_for(a.rows, BLOCK / WARP), BLOCK, a);
    });
}

SC_KERNEL(combine_weights) {
    moving a = moving_of(&k->dw, &k->x, &k->places, NULL);
    a.rows = sc_numel(&k->places), a.limit = (int)k->x.shape[0], a.of_weights = k->dw.dtype;
    with_runs(task, k->x.dtype, wide_enough(&k->x, &k->y), [&](auto e, auto w) {
        SC_LAUNCH(task, (multiply_rows<decltype(e), w.value>), blocks_for(a.rows, BLOCK / WARP), BLOCK, a, k->y.p);
    });
}
