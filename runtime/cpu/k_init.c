/* init_param: a parameter's initial values, drawn by (seed, path's key, element): the same for every world size.
 * Relies on: schema/philox.h, kernel.h.
 * Relied on by: generated code.
 *
 * uniform: low + (high-low)·u, u = word / 2³².  normal: Box and Muller 1958 on the words of a block: pairs (w0,w1),
 * (w2,w3) give r·cos, r·sin with r = √(-2 log((w+½)/2³²)), angle 2π·w'/2³²; mean + std·z.  trunc_normal: z with |z| > 2
 * are drawn again, the attempt being a word of the counter. */
#include "../schema/philox.h"
#include "kernel.h"

/* Normal numbers of elements [first, first + n), both multiples of four. */
static void normals(real *z, int64_t n, uint64_t key, uint32_t attempt, uint64_t first) {
    uint32_t word[SC_CHUNK];
    double angle[SC_CHUNK / 2];
    real sine[SC_CHUNK / 2], cosine[SC_CHUNK / 2];
    sc_random(word, n, key, attempt, 0, first);
    for (int64_t i = 0; i < n / 2; i++) angle[i] = word[2 * i + 1] * (6.28318530717958647693 / 4294967296.0);
    sc_chunk_sincos(angle, sine, cosine, n / 2);
    for (int64_t i = 0; i < n / 2; i++) {
        real r = sc_sqrt(-2 * sc_log((real)((word[2 * i] + 0.5) / 4294967296.0)));
        z[2 * i] = r * cosine[i];
        z[2 * i + 1] = r * sine[i];
    }
}

static void truncate(real *z, int64_t n, uint64_t key, uint64_t first) {
    for (int64_t i = 0; i < n; i++)
        for (uint32_t attempt = 1; !(z[i] >= -2 && z[i] <= 2); attempt++) {
            real block[4];
            normals(block, 4, key, attempt, (first + (uint64_t)i) / 4 * 4);
            z[i] = block[(first + (uint64_t)i) % 4];
        }
}

/* Elements [first, first + n), first a multiple of four. */
static void draw(const sc_task *task, const sc_init_param_args *k, real *x, int64_t n, uint64_t first) {
    uint64_t key = sc_stream_key(task->record->seed, (uint64_t)k->key);
    uint32_t word[SC_CHUNK];
    double a = k->a, b = k->b;
    int64_t whole = sc_ceil(n, 4) * 4; /* n <= SC_CHUNK, a multiple of four */
    switch (k->kind) {
    case SC_ZEROS:
    case SC_ONES:
    case SC_CONSTANT:
        for (int64_t i = 0; i < n; i++) x[i] = k->kind == SC_CONSTANT ? (real)a : k->kind == SC_ONES;
        break;
    case SC_UNIFORM:
        sc_random(word, n, key, 0, 0, first);
        for (int64_t i = 0; i < n; i++) x[i] = (real)(a + (b - a) * (word[i] / 4294967296.0));
        break;
    default:
        normals(x, whole, key, 0, first);
        if (k->kind == SC_TRUNC_NORMAL) truncate(x, whole, key, first);
        for (int64_t i = 0; i < n; i++) x[i] = (real)(a + b * x[i]);
    }
}

SC_KERNEL(init_param) {
    int64_t flat = k->offset, numel = k->numel, low = k->slice < 0 ? 0 : task->coord[k->axis].at * k->slice;
    int64_t high = k->slice < 0 ? flat + numel : low + k->slice;
    int64_t part = sc_expert_place(task, k->expert) * numel; /* of the whole parameter's elements */
    int64_t begin = sc_max(flat, low) - flat + part, end = sc_min(flat + numel, high) - flat + part;
    real x[SC_CHUNK];
    int64_t from = begin / SC_CHUNK, until = sc_ceil(end, SC_CHUNK);
    if (begin >= end) return;
    sc_range mine = sc_share(task, until - from, 1);
    for (int64_t c = from + mine.begin; c < from + mine.end; c++) {
        int64_t first = c * SC_CHUNK, n = sc_min(SC_CHUNK, part + numel - first);
        int64_t skip = sc_max(begin - first, 0), stop = sc_min(n, end - first);
        draw(task, k, x, n, (uint64_t)first);
        sc_store(&k->state, flat - part + first + skip - low, 1, stop - skip, x + skip);
    }
}
