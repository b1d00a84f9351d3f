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

static void flat_space(sc_space *s, const sc_task *t) {
    s->dims = 1;
    s->shape[0] = sc_numel(&t->t[0]);
    for (int k = 0; k < t->nt; k++) s->stride[k][0] = 1;
}

/* Drops dimensions of one element and merges a dimension into the one outside it where every tensor allows. */
static void strided_space(sc_space *s, const sc_task *t) {
    s->dims = 0;
    for (int d = 0; d < t->t[0].dims; d++) {
        int64_t n = t->t[0].shape[d];
        if (n == 1) continue;
        bool merge = s->dims > 0;
        for (int k = 0; k < t->nt && merge; k++) merge = s->stride[k][s->dims - 1] == t->t[k].stride[d] * n;
        if (!merge) s->shape[s->dims++] = 1;
        s->shape[s->dims - 1] *= n;
        for (int k = 0; k < t->nt; k++) s->stride[k][s->dims - 1] = t->t[k].stride[d];
    }
    if (!s->dims) flat_space(s, t);
}

void sc_space_of(sc_space *s, const sc_task *t) {
    bool flat = true;
    for (int k = 0; k < t->nt && flat; k++) flat = contiguous(&t->t[k]);
    if (flat)
        flat_space(s, t);
    else
        strided_space(s, t);
}
