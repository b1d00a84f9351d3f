/* Cuts the iteration space of a pointwise kernel into rows and gives each part its share.
 * Relies on: sc_pointwise.h, common/space.h, common/rank.h (element sizes).
 * Relied on by: generated kernels. */
#include "../common/rank.h"
#include "../common/space.h"
#include "../sc_pointwise.h"

enum { GRAIN = 64 /* elements; a part begins on a cache line */ };

static void share(int64_t n, int64_t grain, int part, int parts, int64_t *begin, int64_t *end) {
    int64_t each = (n + parts - 1) / parts;
    each = (each + grain - 1) / grain * grain;
    *begin = each * part < n ? each * part : n;
    *end = *begin + each < n ? *begin + each : n;
}

static void move(sc_rows *w, int d, int64_t by) {
    for (int k = 0; k < w->tensors; k++) w->at[k] = (char *)w->at[k] + w->step[k][d] * by;
}

/* Many rows are shared by rows, few by elements. */
void sc_rows_begin(sc_rows *w, const sc_task *task) {
    const sc_tensor *t = task->args->t;
    sc_space s;
    sc_space_of(&s, task);
    int64_t n = s.shape[s.dims - 1], rows = 1, begin, end;
    w->tensors = task->slots;
    w->dims = s.dims - 1;
    for (int d = 0; d < w->dims; d++) {
        rows *= w->shape[d] = s.shape[d];
        w->index[d] = 0;
    }
    for (int k = 0; k < w->tensors; k++) {
        int64_t size = sc_size(t[k].dtype);
        w->at[k] = t[k].p;
        w->stride[k] = s.stride[k][s.dims - 1];
        for (int d = 0; d < w->dims; d++) w->step[k][d] = s.stride[k][d] * size;
    }
    bool by_rows = rows >= 4 * task->parts;
    share(by_rows ? rows : n, by_rows ? 1 : GRAIN, task->part, task->parts, &begin, &end);
    w->rows = by_rows ? end - begin : rows;
    w->n = by_rows ? n : end - begin;
    if (w->rows == 0) w->n = 0;
    if (!by_rows)
        for (int k = 0; k < w->tensors; k++) w->at[k] = (char *)w->at[k] + w->stride[k] * begin * sc_size(t[k].dtype);
    for (int d = w->dims - 1; d >= 0 && by_rows; d--) {
        w->index[d] = begin % w->shape[d];
        begin /= w->shape[d];
        move(w, d, w->index[d]);
    }
}

void sc_rows_next(sc_rows *w) {
    if (--w->rows <= 0) {
        w->n = 0;
        return;
    }
    for (int d = w->dims - 1; d >= 0; d--) {
        move(w, d, 1);
        if (++w->index[d] < w->shape[d]) return;
        move(w, d, -w->index[d]);
        w->index[d] = 0;
    }
}
