/* full, arange, grad_seed, zero, zero_gaps, store: values that come from attributes, the record or another tensor.
 * Relies on: kernel.h.
 * Relied on by: generated code. All tensors but zero_gaps' are contiguous.
 *
 * full: y = f0.  arange: y[i] = f0 + i·f1.  grad_seed: y = record.grad_seed (× the scaler's scale).  store: state[i1 +
 * i] = value[i], converted, or (i0) state[i1 + i] += value[i]. */
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

static void fill(const sc_task *k, double first, double step) {
    sc_range mine = sc_share(k, sc_numel(&k->t[0]), SC_CHUNK);
    for (int64_t i = mine.begin; i < mine.end; i += SC_CHUNK)
        ramp(&k->t[0], i, sc_min(SC_CHUNK, mine.end - i), first, step);
}

void sc_k_full(const sc_task *k) {
    fill(k, k->f[0], 0);
}
void sc_k_arange(const sc_task *k) {
    fill(k, k->f[0], k->f[1]);
}
void sc_k_grad_seed(const sc_task *k) {
    double scale = k->nt > 1 ? ((const float *)k->t[1].p)[0] : 1;
    fill(k, k->record->grad_seed * scale, 0);
}

static void clear(const sc_task *k, const sc_tensor *t) {
    sc_range mine = sc_share(k, sc_numel(t), 1024);
    memset(sc_at(t, mine.begin), 0, (size_t)((mine.end - mine.begin) * sc_size(t->dtype)));
}

void sc_k_zero(const sc_task *k) {
    clear(k, &k->t[0]);
}
void sc_k_zero_gaps(const sc_task *k) {
    for (int j = 0; j < k->nt; j++) clear(k, &k->t[j]);
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

void sc_k_store(const sc_task *k) {
    const sc_tensor *value = &k->t[0], *state = &k->t[1];
    int add = k->i[0] != 0, exact = integer(value->dtype) && integer(state->dtype);
    real a[SC_CHUNK], b[SC_CHUNK];
    sc_range mine = sc_share(k, sc_numel(value), SC_CHUNK);
    for (int64_t i = mine.begin; i < mine.end; i += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, mine.end - i), at = k->i[1] + i;
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
