/* sum, mean, max over any set of dimensions, and max's gradient.
 * Relies on: kernel.h.
 * Relied on by: generated code; k_norm.c.
 *
 * y[kept] = Σ x[kept, reduced] (mean: / count; max: the largest, a NaN wins), accumulated in real in blocks, their
 * totals in double, rounded once. Where the last dimension is kept, whole chunks of it are accumulated; where it is
 * reduced, chunks of it are folded. max_grad: dx = g / (number of elements equal to the maximum) at those, else 0. */
#include "kernel.h"

typedef enum { SUM, MEAN, MAX } operation;

typedef struct { /* dimensions of one kind: extents, and strides of x */
    int dims;
    int64_t shape[SC_DIMS], stride[SC_DIMS];
} space;

static int64_t space_size(const space *s) {
    int64_t n = 1;
    for (int d = 0; d < s->dims; d++) n *= s->shape[d];
    return n;
}
static int64_t space_at(const space *s, int64_t index) {
    int64_t at = 0;
    for (int d = s->dims - 1; d >= 0; d--) {
        at += index % s->shape[d] * s->stride[d];
        index /= s->shape[d];
    }
    return at;
}
static void space_add(space *s, int64_t n, int64_t stride) {
    s->shape[s->dims] = n;
    s->stride[s->dims++] = stride;
}

typedef struct {
    space outer, reduced;        /* kept and reduced dimensions, without the inner one */
    int inner_kept;              /* the last dimension of x with more than one element is kept */
    int64_t inner, inner_stride; /* that dimension */
} shape;

static shape shape_of(const sc_tensor *x, int64_t mask) {
    shape s = {.inner_kept = 1, .inner = 1, .inner_stride = 1};
    int last = x->dims - 1;
    while (last >= 0 && x->shape[last] == 1) last--;
    for (int d = 0; d < last; d++)
        if (x->shape[d] != 1) space_add(mask >> d & 1 ? &s.reduced : &s.outer, x->shape[d], x->stride[d]);
    if (last >= 0) {
        s.inner_kept = !(mask >> last & 1);
        s.inner = x->shape[last];
        s.inner_stride = x->stride[last];
    }
    return s;
}

static const real *chunk(const sc_tensor *x, int64_t at, int64_t stride, int64_t n, real *buffer) {
    if (stride == 1) return sc_in(x, at, n, buffer);
    sc_load(buffer, x, at, stride, n);
    return buffer;
}

/* `n` kept neighbours from `at`, over all reduced indices: blocks of 64 in real, their sums in double. */
static void down(const sc_tensor *x, const shape *s, operation op, int64_t at, int64_t n, real *result) {
    double total[SC_CHUNK];
    real block[SC_CHUNK], buffer[SC_CHUNK];
    int64_t count = space_size(&s->reduced);
    for (int64_t i = 0; i < n; i++) total[i] = 0;
    for (int64_t r = 0; r < count; r++) {
        const real *v = chunk(x, at + space_at(&s->reduced, r), s->inner_stride, n, buffer);
        if (op == MAX) {
            for (int64_t i = 0; i < n; i++)
                block[i] = r == 0 || (!(v[i] <= block[i]) && block[i] == block[i]) ? v[i] : block[i];
            continue;
        }
        if (r % 64 == 0)
            for (int64_t i = 0; i < n; i++) block[i] = v[i];
        else
            for (int64_t i = 0; i < n; i++) block[i] += v[i];
        if (r % 64 == 63 || r == count - 1)
            for (int64_t i = 0; i < n; i++) total[i] += block[i];
    }
    double divisor = op == MEAN ? (double)count : 1;
    for (int64_t i = 0; i < n; i++) result[i] = op == MAX ? block[i] : (real)(total[i] / divisor);
}

/* One result: the inner dimension is among the reduced. */
static real across(const sc_tensor *x, const shape *s, operation op, int64_t at) {
    real buffer[SC_CHUNK], most = 0;
    double total = 0;
    int64_t count = space_size(&s->reduced);
    for (int64_t r = 0; r < count; r++)
        for (int64_t i = 0; i < s->inner; i += SC_CHUNK) {
            int64_t n = sc_min(SC_CHUNK, s->inner - i), from = at + space_at(&s->reduced, r) + i * s->inner_stride;
            const real *v = chunk(x, from, s->inner_stride, n, buffer);
            if (op == MAX) {
                real m = sc_chunk_max(v, n);
                most = (r == 0 && i == 0) || (!(m <= most) && most == most) ? m : most;
            } else {
                total += sc_chunk_sum(v, n);
            }
        }
    return op == MAX ? most : (real)(op == MEAN ? total / (double)(count * s->inner) : total);
}

static void reduce(const sc_task *task, const sc_tensor *y, const sc_tensor *x, int64_t over, operation op) {
    shape s = shape_of(x, over);
    int64_t outer = space_size(&s.outer), width = s.inner_kept ? s.inner : 1;
    if (s.inner_kept) {
        int64_t grain = sc_min(SC_CHUNK, sc_max(64, sc_ceil(sc_ceil(width, 8), 64) * 64)),
                pieces = sc_ceil(width, grain);
        sc_range mine = sc_share(task, outer * pieces, 1);
        for (int64_t u = mine.begin; u < mine.end; u++) {
            real result[SC_CHUNK];
            int64_t i = u % pieces * grain, o = u / pieces, n = sc_min(grain, width - i);
            down(x, &s, op, space_at(&s.outer, o) + i * s.inner_stride, n, result);
            sc_store(y, o * width + i, 1, n, result);
        }
    } else {
        sc_range mine = sc_share(task, outer, 16);
        for (int64_t o = mine.begin; o < mine.end; o++) {
            real result = across(x, &s, op, space_at(&s.outer, o));
            sc_store(y, o, 1, 1, &result);
        }
    }
}

SC_KERNEL(sum) {
    reduce(task, &k->y, &k->x, k->over, SUM);
}
SC_KERNEL(mean) {
    reduce(task, &k->y, &k->x, k->over, MEAN);
}
SC_KERNEL(max) {
    reduce(task, &k->y, &k->x, k->over, MAX);
}

/* One kept element: counts the ties, then writes its column of dx. */
static void share_gradient(const sc_tensor *dx, const sc_tensor *x, const space *reduced, int64_t at, real g, real y) {
    int64_t ties = 0, count = space_size(reduced);
    real v;
    for (int64_t r = 0; r < count; r++) {
        sc_load(&v, x, at + space_at(reduced, r), 1, 1);
        ties += v == y;
    }
    real each = g / (real)ties, zero = 0;
    for (int64_t r = 0; r < count; r++) {
        int64_t to = at + space_at(reduced, r);
        sc_load(&v, x, to, 1, 1);
        sc_store(dx, to, 1, 1, v == y ? &each : &zero);
    }
}

SC_KERNEL(max_grad) {
    const sc_tensor *x = &k->x;
    space kept = {0}, reduced = {0};
    for (int d = 0; d < x->dims; d++) space_add(k->over >> d & 1 ? &reduced : &kept, x->shape[d], x->stride[d]);
    sc_range mine = sc_share(task, space_size(&kept), 16);
    for (int64_t o = mine.begin; o < mine.end; o++)
        share_gradient(&k->dx, x, &reduced, space_at(&kept, o), (real)sc_get(&k->g, o), (real)sc_get(&k->y, o));
}
