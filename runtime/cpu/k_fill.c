/* full, arange, grad_seed, zero, zero_gaps, store: values that come from attributes, the record or another tensor.
 * Relies on: kernel.h.
 * Relied on by: generated code. All tensors but zero_gaps' are contiguous.
 *
 * full: y = value.  arange: y[i] = start + i·step.  grad_seed: y = record.grad_seed (× the scaler's scale).  store:
 * state[at + i] = value[i], converted, or (add) state[at + i] += value[i]. */
#include "kernel.h"

static int integer(int dtype) {
    return dtype == INT32 || dtype == INT64;
}

/* y[at .. at+n) = first + step·i; integers exactly. */
static void ramp(const sc_tensor *y, int64_t at, int64_t n, double first, double step) {
    real buffer[SC_CHUNK];
    for (int64_t i = 0; i < n; i++) {
        double x = first + step * (double)(at + i);
        if (y->dtype == INT32)
            ((int32_t *)y->p)[at + i] = (int32_t)x;
        else if (y->dtype == INT64)
            ((int64_t *)y->p)[at + i] = (int64_t)x;
        else if (y->dtype == FP64)
            ((double *)y->p)[at + i] = x;
        else
            buffer[i] = (real)x;
    }
    if (!integer(y->dtype) && y->dtype != FP64) sc_store(y, at, 1, n, buffer);
}

static void fill(const sc_task *task, const sc_tensor *y, double first, double step) {
    sc_range mine = sc_share(task, sc_numel(y), SC_CHUNK);
    for (int64_t i = mine.begin; i < mine.end; i += SC_CHUNK) ramp(y, i, sc_min(SC_CHUNK, mine.end - i), first, step);
}

SC_KERNEL(full) {
    fill(task, &k->y, k->value, 0);
}
SC_KERNEL(arange) {
    fill(task, &k->y, k->start, k->step);
}
SC_KERNEL(grad_seed) {
    double scale = k->scaler.p ? ((const sc_scaler *)k->scaler.p)->scale : 1;
    fill(task, &k->y, task->record->grad_seed * scale, 0);
}

static void clear(const sc_task *task, const sc_tensor *t) {
    sc_range mine = sc_share(task, sc_numel(t), 1024);
    memset(sc_at(t, mine.begin), 0, (size_t)((mine.end - mine.begin) * sc_size(t->dtype)));
}

SC_KERNEL(zero) {
    clear(task, &k->state);
}
SC_KERNEL(zero_gaps) {
    for (int j = 0; j < SC_OPERANDS && k->y[j].p; j++) clear(task, &k->y[j]);
}

static void store_integers(const sc_tensor *to, int64_t to_at, const sc_tensor *from, int64_t at, int64_t n, int add) {
    for (int64_t i = 0; i < n; i++) {
        int64_t x = sc_index(from, at + i);
        if (to->dtype == INT32) {
            int32_t *y = (int32_t *)to->p + to_at + i;
            *y = (int32_t)(add ? *y + x : x);
        } else {
            int64_t *y = (int64_t *)to->p + to_at + i;
            *y = add ? *y + x : x;
        }
    }
}

SC_KERNEL(store) {
    const sc_tensor *value = &k->value, *state = &k->state;
    int add = k->add != 0, exact = integer(value->dtype) && integer(state->dtype);
    real a[SC_CHUNK], b[SC_CHUNK];
    sc_range mine = sc_share(task, sc_numel(value), SC_CHUNK);
    if (sc_skips(&k->coefficient)) return;
    for (int64_t i = mine.begin; i < mine.end; i += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, mine.end - i), at = k->at + i;
        if (exact) {
            store_integers(state, at, value, i, n, add);
        } else if (!add && value->dtype == state->dtype) {
            memmove(sc_at(state, at), sc_at(value, i), (size_t)(n * sc_size(value->dtype)));
        } else {
            sc_load(a, value, i, 1, n);
            if (add) {
                sc_load(b, state, at, 1, n);
                for (int64_t j = 0; j < n; j++) a[j] += b[j];
            }
            sc_store(state, at, 1, n, a);
        }
    }
}
