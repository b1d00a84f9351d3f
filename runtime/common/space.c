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

static void flat_space(sc_space *s, int tensors, const sc_tensor *t) {
    s->dims = 1;
    s->shape[0] = sc_numel(t);
    for (int k = 0; k < tensors; k++) s->stride[k][0] = 1;
}

/* Drops dimensions of one element and merges a dimension into the one outside it where every tensor allows. */
static void strided_space(sc_space *s, int tensors, const sc_tensor *t) {
    s->dims = 0;
    for (int d = 0; d < t->dims; d++) {
        int64_t n = t->shape[d];
        if (n == 1) continue;
        bool merge = s->dims > 0;
        for (int k = 0; k < tensors && merge; k++) merge = s->stride[k][s->dims - 1] == t[k].stride[d] * n;
        if (!merge) s->shape[s->dims++] = 1;
        s->shape[s->dims - 1] *= n;
        for (int k = 0; k < tensors; k++) s->stride[k][s->dims - 1] = t[k].stride[d];
    }
    if (!s->dims) flat_space(s, tensors, t);
}

void sc_space_of(sc_space *s, const sc_task *task) {
    const sc_tensor *t = task->args->t;
    bool flat = true;
    for (int k = 0; k < task->slots && flat; k++) flat = contiguous(&t[k]);
    if (flat)
        flat_space(s, task->slots, t);
    else
        strided_space(s, task->slots, t);
}
