/* full, arange, grad_seed, zero, zero_gaps, store: values that come from attributes, the record or another tensor.
 * Relies on: kernel.cuh, k_copy.cu.
 * Relied on by: generated code. All tensors but zero_gaps' are contiguous.
 *
 * full: y = value.  arange: y[i] = start + i·step.  grad_seed: y = record.grad_seed (× the scaler's scale).  store:
 * state[at + i] = value[i], converted, or (add) state[at + i] += value[i]. */
#include "kernel.cuh"

namespace {

enum { RUN = 8 }; /* elements that a thread converts at a time: 16 bytes of a 16-bit dtype */

/* y[i] = first + step·i; integers exactly. */
__global__ void __launch_bounds__(BLOCK) ramp(void *y, int dtype, int64_t n, double first, double step) {
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n; i += (int64_t)gridDim.x * BLOCK) {
        double x = first + step * (double)i;
        if (dtype == INT32)
            ((int32_t *)y)[i] = (int32_t)x;
        else if (dtype == INT64)
            ((int64_t *)y)[i] = (int64_t)x;
        else
            store_any(y, dtype, i, (float)x);
    }
}

__global__ void seed(void *y, int dtype, int64_t n, const sc_record *record, const float *scale) {
    float x = scale ? record->grad_seed * *scale : record->grad_seed;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) store_any(y, dtype, i, x);
}

void fill(const sc_task *t, const sc_tensor *y, double first, double step) {
    int64_t n = sc_numel(y);
    if (y->dtype == FP64 || y->dtype == FP8_E4M3 || y->dtype == FP8_E5M2)
        sc_unsupported(t, "full", "the CUDA target has no such constants");
    SC_LAUNCH(t, ramp, filling(t, ceil_div(n, BLOCK)), BLOCK, y->p, y->dtype, n, first, step);
}

struct gaps {
    struct {
        char *p;
        int64_t bytes;
    } at[SC_OPERANDS];
};

/* A block a gap (blockIdx.y) and stretch of it. */
__global__ void __launch_bounds__(BLOCK) clear_gaps(const __grid_constant__ gaps g) {
    char *p = g.at[blockIdx.y].p;
    int64_t n = g.at[blockIdx.y].bytes, first = (int64_t)blockIdx.x * BLOCK + threadIdx.x,
            step = (int64_t)gridDim.x * BLOCK;
    bool words = (uintptr_t)p % 16 == 0;
    int64_t whole = words ? n / 16 : 0;
    for (int64_t i = first; i < whole; i += step) ((uint4 *)p)[i] = make_uint4(0, 0, 0, 0);
    for (int64_t i = whole * 16 + first; i < n; i += step) p[i] = 0;
}

/* y: the first ones of `most_gaps` that are there. */
void clear(const sc_task *t, const sc_tensor *y, int most_gaps) {
    gaps g = {};
    int64_t most = 0;
    int n = 0;
    for (; n < most_gaps && y[n].p; n++) {
        g.at[n].p = (char *)y[n].p;
        g.at[n].bytes = sc_numel(&y[n]) * size_of(y[n].dtype);
        most = g.at[n].bytes > most ? g.at[n].bytes : most;
    }
    SC_LAUNCH(t, clear_gaps, dim3(filling(t, ceil_div(most, 16 * BLOCK)), n), BLOCK, g);
}

/* ── store ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
template <class F, class T, bool ADD>
__global__ void __launch_bounds__(BLOCK) store_runs(const typename F::type *from, typename T::type *to, int64_t n) {
    int64_t step = (int64_t)gridDim.x * BLOCK * RUN;
    for (int64_t i = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) * RUN; i < n; i += step) {
        if (i + RUN <= n) {
            raw<F, RUN> a;
            raw<T, RUN> b;
            float x[RUN];
            a.load(from + i);
            if (ADD) b.load(to + i);
#pragma unroll
            for (int k = 0; k < RUN; k++) x[k] = ADD ? a.get(k) + b.get(k) : a.get(k);
            b.put(x);
            b.store(to + i);
        } else {
            for (int64_t k = i; k < n; k++) to[k] = T::put(ADD ? F::get(from[k]) + T::get(to[k]) : F::get(from[k]));
        }
    }
}

SC_DEVICE int64_t integer_at(const void *p, int dtype, int64_t i) {
    return dtype == INT32 ? ((const int32_t *)p)[i] : ((const int64_t *)p)[i];
}

/* Any dtypes; between integers exactly. coefficient: NULL, or its second element says that the step is skipped. */
__global__ void __launch_bounds__(BLOCK)
    store_each(const void *from, int from_dtype, void *to, int to_dtype, int64_t at, int64_t n, bool add, bool exact,
               const float *coefficient) {
    if (coefficient && coefficient[1] != 0) return;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n; i += (int64_t)gridDim.x * BLOCK) {
        if (exact) {
            int64_t x = integer_at(from, from_dtype, i) + (add ? integer_at(to, to_dtype, at + i) : 0);
            if (to_dtype == INT32)
                ((int32_t *)to)[at + i] = (int32_t)x;
            else
                ((int64_t *)to)[at + i] = x;
        } else {
            float x = load_any(from, from_dtype, i);
            store_any(to, to_dtype, at + i, add ? x + load_any(to, to_dtype, at + i) : x);
        }
    }
}

bool integer(int dtype) {
    return dtype == INT32 || dtype == INT64;
}

void store_converted(const sc_task *t, const sc_tensor *value, const sc_tensor *state, int64_t at, bool add,
                     const float *coefficient) {
    int64_t n = sc_numel(value);
    char *to = (char *)state->p + at * size_of(state->dtype);
    if (!coefficient && with_float_serves(value->dtype) && with_float_serves(state->dtype) && aligned(value->p, 16) &&
        aligned(to, 16)) {
        unsigned grid = filling(t, ceil_div(n, BLOCK * RUN));
        with_float(t, value->dtype, [&](auto f) {
            with_float(t, state->dtype, [&](auto s) {
                typedef decltype(f) F;
                typedef decltype(s) S;
                with_flag(add, [&](auto adds) {
                    SC_LAUNCH(t, (store_runs<F, S, adds.value>), grid, BLOCK, (const typename F::type *)value->p,
                              (typename S::type *)to, n);
                });
            });
        });
        return;
    }
    bool exact = integer(value->dtype) && integer(state->dtype);
    SC_LAUNCH(t, store_each, filling(t, ceil_div(n, BLOCK)), BLOCK, value->p, value->dtype, state->p, state->dtype, at,
              n, add, exact, coefficient);
}

} // namespace

SC_KERNEL(full) {
    fill(task, &k->y, k->value, 0);
}
SC_KERNEL(arange) {
    fill(task, &k->y, k->start, k->step);
}
SC_KERNEL(grad_seed) {
    SC_LAUNCH(task, seed, 1, BLOCK, k->y.p, k->y.dtype, sc_numel(&k->y), task->record, (const float *)k->scaler.p);
}
SC_KERNEL(zero) {
    clear(task, &k->state, 1);
}
SC_KERNEL(zero_gaps) {
    clear(task, k->y, SC_OPERANDS);
}

SC_KERNEL(store) {
    const sc_tensor *value = &k->value, *state = &k->state;
    const float *coefficient = (const float *)k->coefficient.p;
    if (!k->add && !coefficient && value->dtype == state->dtype) {
        sc_tensor to = *value;
        to.p = (char *)state->p + k->at * size_of(state->dtype);
        sc_cuda_copy(task, &to, value);
    } else if (value->dtype == FP64 || state->dtype == FP64) {
        sc_unsupported(task, "store", "the CUDA target does not convert fp64");
    } else {
        store_converted(task, value, state, k->at, k->add != 0, coefficient);
    }
}
