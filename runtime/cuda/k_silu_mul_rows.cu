/* silu(gate) up of rows of groups, each times its slot's weight, and the gradients.
 * Relies on: kernel.cuh. Relied on by: generated code.
 * A warp a row, 16 bytes a lane at a time; computed in fp32 and rounded once. Further warps of the gradient write the
 * zeros of slots that have no row. */
#include "kernel.cuh"

namespace {

/* Of the gradient y and z are dgate and dup, and dw dweights. */
struct gated {
    void *y, *z, *dw;
    const void *g, *gate, *up, *weights;
    const int32_t *slots, *places;
    int64_t rows, n; /* n: slots */
    row_space to, and_to, of_g, of_gate, of_up;
    int cols, of_weights;
};

template <class E, int W, bool GRADS> __global__ void __launch_bounds__(BLOCK) gate_rows(gated a) {
    typedef typename E::type type;
    int64_t row = my_row<WARP>();
    int lane = threadIdx.x % WARP;
    if (row >= a.rows) {
        int64_t slot = (row - a.rows) * WARP + lane;
        if (GRADS && slot < a.n && a.places[slot] < 0) store_any(a.dw, a.of_weights, slot, 0);
        return;
    }
    int slot = a.slots[row];
    bool used = slot >= 0 && slot < a.n;
    float w = used ? load_any(a.weights, a.of_weights, slot) : 0, sum = 0;
    type *y = (type *)a.y + row_at(a.to, row), *z = (type *)a.z + row_at(a.and_to, row);
    const type *g0 = (const type *)a.g + row_at(a.of_g, row), *gate0 = (const type *)a.gate + row_at(a.of_gate, row),
               *up0 = (const type *)a.up + row_at(a.of_up, row);
    for (int c = lane * W; c < a.cols; c += WARP * W) {
        raw<E, W> g, gate, up;
        float dgate[W] = {}, dup[W] = {};
        if (used) {
            gate.load(gate0 + c);
            up.load(up0 + c);
            if constexpr (GRADS) g.load(g0 + c);
#pragma unroll
            for (int i = 0; i < W; i++) {
                if constexpr (GRADS) {
                    sc_silu_mul_grad(g.get(i), gate.get(i), up.get(i), &dgate[i], &dup[i]);
                    sum = fmaf(dup[i], up.get(i), sum);
                    dgate[i] *= w, dup[i] *= w;
                } else {
                    dgate[i] = sc_silu_mul(gate.get(i), up.get(i)) * w;
                }
            }
        }
        gate.put(dgate);
        gate.store(y + c);
        if constexpr (GRADS) {
            up.put(dup);
            up.store(z + c);
        }
    }
    if constexpr (GRADS) {
        sum = warp_sum(sum);
        if (used && lane == 0) store_any(a.dw, a.of_weights, slot, sum);
    }
}

/* What both have: k is either's arguments, y its first result. */
template <class K> gated gated_of(const K *k, const sc_tensor *y) {
    gated a = {};
    a.y = y->p, a.gate = k->gate.p, a.up = k->up.p, a.weights = k->weights.p, a.of_weights = k->weights.dtype;
    a.slots = (const int32_t *)k->slots.p, a.places = (const int32_t *)k->places.p;
    a.rows = rows_of(y), a.cols = (int)cols_of(y), a.n = sc_numel(&k->weights);
    a.to = row_space_of(y), a.of_gate = row_space_of(&k->gate), a.of_up = row_space_of(&k->up);
    return a;
}

} // namespace

SC_KERNEL(silu_mul_rows) {
    gated a = gated_of(k, &k->y);
    bool wide = wide_rows(&k->y) && wide_rows(&k->gate) && wide_rows(&k->up);
    with_runs(task, k->y.dtype, wide, [&](auto e, auto w) {
        SC_LAUNCH(task, (gate_rows<decltype(e), w.value, false>), blocks_for(a.rows, BLOCK / WARP), BLOCK, a);
    });
}

SC_KERNEL(silu_mul_rows_grad) {
    gated a = gated_of(k, &k->dgate);
    a.z = k->dup.p, a.dw = k->dweights.p, a.g = k->g.p;
    a.and_to = row_space_of(&k->dup), a.of_g = row_space_of(&k->g);
    bool wide =
        wide_rows(&k->g) && wide_rows(&k->gate) && wide_rows(&k->up) && wide_rows(&k->dgate) && wide_rows(&k->dup);
    int64_t warps = a.rows + ceil_div(a.n, WARP);
    with_runs(task, k->g.dtype, wide, [&](auto e, auto w) {
        SC_LAUNCH(task, (gate_rows<decltype(e), w.value, true>), blocks_for(warps, BLOCK / WARP), BLOCK, a);
    });
}
