/* Finds the iteration space of a pointwise kernel.
 * Relies on: space.h, rank.h.
 * Relied on by: cpu/pointwise.c, cuda/pointwise.cuh. */
#include "space.h"
#include "rank.h"

static bool contiguous(const sc_tensor *t) {
    int64_t expected = 1;
    for (int d = t->dims - 1; d >= 0; d--) {
        if (t->shape[d] != 1 && t->stride[d] != expected) return false;
        expected *= t->shape[d];
    }
    return true;
}

/* One dimension where every tensor is contiguous. Else dimensions of one element are dropped, and a dimension is merged
 * into the one outside it where every tensor allows that. */
void sc_space_of(sc_space *s, const sc_task *task) {
    const sc_tensor *t = task->args->t;
    int tensors = task->slots;
    bool flat = true;
    s->dims = 0;
    for (int k = 0; k < tensors && flat; k++) flat = contiguous(&t[k]);
    for (int d = 0; d < t->dims && !flat; d++) {
        int64_t n = t->shape[d];
        if (n == 1) continue;
        bool merge = s->dims > 0;
        for (int k = 0; k < tensors && merge; k++) merge = s->stride[k][s->dims - 1] == t[k].stride[d] * n;
        if (!merge) s->shape[s->dims++] = 1;
        s->shape[s->dims - 1] *= n;
        for (int k = 0; k < tensors; k++) s->stride[k][s->dims - 1] = t[k].stride[d];
    }
    if (s->dims) return;
    s->dims = 1;
    s->shape[0] = sc_numel(t);
    for (int k = 0; k < tensors; k++) s->stride[k][0] = 1;
}
