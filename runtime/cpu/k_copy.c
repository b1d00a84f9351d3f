/* copy, concat, pad_slice, reshard: elements from one strided layout to another, bits unchanged. pick: one row, in
 * fp32. Relies on: kernel.h. Relied on by: generated code.
 *
 * Neighbouring dimensions that both layouts walk alike are merged. What is left is copied as rectangles of the last
 * dimension and one other: the row before it, or, where the source's unit stride lies elsewhere (a transposition), that
 * one, in blocks that stay in the cache. */
#include "kernel.h"

typedef struct {
    int dims;
    int64_t shape[SC_DIMS + 1], to[SC_DIMS + 1], from[SC_DIMS + 1];
} walk;

static walk walk_of(const sc_tensor *to, const sc_tensor *from) {
    walk w = {
        .dims = 1, .shape = {1}, .to = {0}, .from = {0}}; /* begins with a dimension of one, so dims >= 2 at the end */
    for (int d = 0; d < to->dims; d++) {
        int64_t n = to->shape[d];
        if (n == 1) continue;
        int last = w.dims - 1;
        if (last > 0 && w.to[last] == n * to->stride[d] && w.from[last] == n * from->stride[d]) {
            w.shape[last] *= n;
            w.to[last] = to->stride[d];
            w.from[last] = from->stride[d];
        } else {
            w.shape[w.dims] = n;
            w.to[w.dims] = to->stride[d];
            w.from[w.dims++] = from->stride[d];
        }
    }
    if (w.dims == 1) {
        w.shape[1] = 1;
        w.to[1] = w.from[1] = 1;
        w.dims = 2;
    }
    return w;
}

/* n0 rows of n1 elements of one size. */
#define RECTANGLE(T)                                                                                                   \
    static void rectangle_##T(T *restrict to, const T *restrict from, int64_t n0, int64_t n1, int64_t t0, int64_t t1,  \
                              int64_t f0, int64_t f1) {                                                                \
        for (int64_t i = 0; i < n0; i++)                                                                               \
            for (int64_t j = 0; j < n1; j++) to[i * t0 + j * t1] = from[i * f0 + j * f1];                              \
    }
RECTANGLE(uint8_t)
RECTANGLE(uint16_t)
RECTANGLE(uint32_t)
RECTANGLE(uint64_t)

static void rectangle(int size, char *to, const char *from, int64_t n0, int64_t n1, int64_t t0, int64_t t1, int64_t f0,
                      int64_t f1) {
    if (t1 == 1 && f1 == 1) {
        for (int64_t i = 0; i < n0; i++) memcpy(to + i * t0 * size, from + i * f0 * size, (size_t)(n1 * size));
        return;
    }
    switch (size) {
    case 1: rectangle_uint8_t((uint8_t *)to, (const uint8_t *)from, n0, n1, t0, t1, f0, f1); break;
    case 2: rectangle_uint16_t((uint16_t *)to, (const uint16_t *)from, n0, n1, t0, t1, f0, f1); break;
    case 4: rectangle_uint32_t((uint32_t *)to, (const uint32_t *)from, n0, n1, t0, t1, f0, f1); break;
    default: rectangle_uint64_t((uint64_t *)to, (const uint64_t *)from, n0, n1, t0, t1, f0, f1); break;
    }
}

void sc_copy_view(const sc_task *task, const sc_tensor *to, const sc_tensor *from) {
    enum { BLOCK = 32, RUN = 16384 };
    walk w = walk_of(to, from);
    int last = w.dims - 1, other = last - 1;
    if (w.from[last] != 1)
        for (int d = 1; d < last; d++)
            if (w.from[d] == 1) other = d;
    int64_t n0 = w.shape[other], n1 = w.shape[last], run = w.from[last] == 1 ? RUN : BLOCK;
    int64_t blocks0 = sc_ceil(n0, BLOCK), blocks1 = sc_ceil(n1, run), units = blocks0 * blocks1;
    for (int d = 0; d < last; d++)
        if (d != other) units *= w.shape[d];
    int size = sc_size(to->dtype);
    sc_range mine = sc_share(task, units, 1);
    for (int64_t u = mine.begin; u < mine.end; u++) {
        int64_t c = u % blocks1 * run, r = u / blocks1 % blocks0 * BLOCK, rest = u / blocks1 / blocks0;
        int64_t t = r * w.to[other] + c * w.to[last], f = r * w.from[other] + c * w.from[last];
        for (int d = last - 1; d >= 0; d--) {
            if (d == other) continue;
            t += rest % w.shape[d] * w.to[d];
            f += rest % w.shape[d] * w.from[d];
            rest /= w.shape[d];
        }
        rectangle(size, (char *)to->p + t * size, (const char *)from->p + f * size, sc_min(BLOCK, n0 - r),
                  sc_min(run, n1 - c), w.to[other], w.to[last], w.from[other], w.from[last]);
    }
}

/* `length` of t's dimension `dim` from `start`. */
static sc_tensor part_of(const sc_tensor *t, int64_t dim, int64_t start, int64_t length) {
    sc_tensor v = *t;
    v.p = sc_at(t, start * t->stride[dim]);
    v.shape[dim] = length;
    return v;
}

SC_KERNEL(copy) {
    sc_copy_view(task, &k->y, &k->a);
}

/* The time that it takes is the runtime's: it sleeps, or lets a virtual clock pass. */
SC_KERNEL(debug_sleep) {
    sc_copy_view(task, &k->y, &k->a);
}

int64_t sc_kernel_sleeps(sc_kernel *k, const void *args) {
    return k == sc_k_debug_sleep ? (int64_t)(((const sc_debug_sleep_args *)args)->ms * 1e6) : 0;
}

SC_KERNEL(concat) {
    int64_t start = 0;
    for (int j = 0; j < SC_OPERANDS && k->x[j].p; j++) {
        sc_tensor to = part_of(&k->y, k->dim, start, k->x[j].shape[k->dim]);
        sc_copy_view(task, &to, &k->x[j]);
        start += k->x[j].shape[k->dim];
    }
}

SC_KERNEL(pad_slice) {
    static const uint64_t zero = 0;
    int64_t length = k->a.shape[k->dim], end = k->start + length;
    sc_tensor middle = part_of(&k->y, k->dim, k->start, length);
    sc_tensor before = part_of(&k->y, k->dim, 0, k->start), after = part_of(&k->y, k->dim, end, k->size - end);
    sc_tensor zeros = {.dtype = k->y.dtype, .p = (void *)&zero}; /* one element, read with strides of zero */
    sc_copy_view(task, &middle, &k->a);
    sc_copy_view(task, &before, &zeros);
    sc_copy_view(task, &after, &zeros);
}

/* Copied as it lies, but for the dimension's stride. */
SC_KERNEL(flip) {
    sc_tensor from = part_of(&k->a, k->dim, k->a.shape[k->dim] - 1, k->a.shape[k->dim]);
    from.stride[k->dim] = -from.stride[k->dim];
    sc_copy_view(task, &k->y, &from);
}

/* state[v] = logits[.., record.position, v] */
SC_KERNEL(pick) {
    const sc_tensor *x = &k->logits;
    int64_t row = sc_row(x, task->record->position), step = x->stride[x->dims - 1];
    real buffer[SC_CHUNK];
    sc_range mine = sc_share(task, sc_cols(x), SC_CHUNK);
    for (int64_t i = mine.begin; i < mine.end; i += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, mine.end - i);
        sc_load(buffer, x, row + i * step, step, n);
        sc_store(&k->state, i, 1, n, buffer);
    }
}

/* y = the part of x that the rank's place tells */
SC_KERNEL(reshard) {
    int64_t n = sc_numel(&k->y), from = task->coord[k->axis].at * n;
    sc_range mine = sc_share(task, n, SC_CHUNK);
    memcpy(sc_at(&k->y, mine.begin), sc_at(&k->x, from + mine.begin),
           (size_t)((mine.end - mine.begin) * sc_size(k->y.dtype)));
}
