/* sgd, adam, count_step, sum_squares, clip_coefficient: on this rank's slice of a unit's flat buffer. With a loss scale
 * gradients are its multiples: the norm is of them over the scale, the coefficient undoes it, and where a gradient is
 * not finite the coefficient's second element says that nothing is to be written.
 * Relies on: kernel.h, sc_optimizer.h (update rules, rounding); learning rates and coefficients in the record.
 * Relied on by: generated code.
 *
 * A segment covers flat offsets; this rank holds [s·n, s·n + n), n = slice, s its place on the axis. sum_squares:
 * blocks of 4096 elements, added up in order. clip: norm = √Σ, coefficient = min(1, clip / (norm + 1e-6)), over the
 * scale. */
#include "../sc_optimizer.h"
#include "kernel.h"

/* Elements at a time: few, so that a processor that looks ahead has the next ones on their way while it draws random
 * words for these. */
enum { PIECE = 256 };

typedef struct { /* one piece of a segment, as the update rules see it */
    int64_t at, n;
    int group;
    uint64_t key, element; /* for moments of bf16: its parameter, and which element of it comes first */
} piece;
typedef void update(const sc_task *task, piece p, const void *constants);

typedef struct { /* what both optimizers' structs say of the rank's slice */
    const int64_t *table;
    int64_t ntable, slice, axis;
    bool keyed;
} range;

/* This part's pieces of the rank's slice; the part's borders do not depend on the segments. */
static void for_each_piece(const sc_task *task, range r, update *u, const void *constants) {
    int64_t first = r.slice * task->coord[r.axis].at;
    sc_range mine = sc_share(task, r.slice, SC_CHUNK);
    for (int64_t row = 0; row < sc_segments(r.ntable, r.keyed); row++) {
        sc_segment s = sc_segment_at(r.table, row, r.keyed);
        int64_t begin = sc_max(s.begin - first, mine.begin), end = sc_min(s.end - first, mine.end);
        for (int64_t i = begin; i < end; i += PIECE)
            u(task, (piece){i, sc_min(PIECE, end - i), (int)s.group, s.key, (uint64_t)(first + i - s.begin)},
              constants);
    }
}

static bool is_rounded(const sc_tensor *moment) {
    return moment->p && moment->dtype == BF16;
}
/* The upper halves of what rounding gives: moments as they are stored. v: NULL where there is none. */
static void put_rounded(const sc_task *task, piece s, const sc_tensor *m, const real *m1, const sc_tensor *v,
                        const real *v1) {
    uint32_t word[PIECE];
    sc_rounding d = sc_rounding_of(task->record, s.key);
    sc_bf16_t *restrict to = (sc_bf16_t *)m->p + s.at;
    sc_random(word, s.n, d.key, d.a, d.b, s.element);
    for (int64_t i = 0; i < s.n; i++) to[i] = (sc_bf16_t)(sc_rounded_bf16(m1[i], word[i]) >> 16);
    if (!v) return;
    to = (sc_bf16_t *)v->p + s.at;
    for (int64_t i = 0; i < s.n; i++) to[i] = (sc_bf16_t)(sc_rounded_bf16(v1[i], word[i] >> 16) >> 16);
}

/* Gradients are not finite: the step leaves everything as it was. */
static bool skips(const sc_tensor *coefficient) {
    return sc_numel(coefficient) > 1 && sc_get(coefficient, 1) != 0;
}

typedef struct {
    const sc_sgd_args *k;
    sc_sgd rule;
} sgd_constants;

static void sgd_piece(const sc_task *task, piece s, const void *constants) {
    const sgd_constants *a = constants;
    const sc_sgd c = a->rule;
    const sc_sgd_group group = sc_sgd_group_of(task->record, s.group);
    const sc_tensor *master = &a->k->master, *buffer = sc_given(&a->k->momentum);
    real bg[PIECE], bp[PIECE], bm[PIECE];
    const real *g = sc_in(&a->k->grad, s.at, s.n, bg), *p0 = sc_in(master, s.at, s.n, bp);
    const real *b0 = buffer ? sc_in(buffer, s.at, s.n, bm) : g;
    real *p1 = sc_out(master, s.at, bp), *b1 = buffer ? sc_out(buffer, s.at, bm) : bm;
    SC_ELEMENTWISE
    for (int64_t i = 0; i < s.n; i++) {
        real p = p0[i], b = b0[i];
        sc_sgd_update(&p, &b, g[i], c, group);
        p1[i] = p;
        b1[i] = b;
    }
    sc_put(master, s.at, s.n, p1);
    if (!buffer) return;
    if (is_rounded(buffer))
        put_rounded(task, s, buffer, b1, NULL, NULL);
    else
        sc_put(buffer, s.at, s.n, b1);
}

SC_KERNEL(sgd) {
    sgd_constants c = {.k = k,
                       .rule = {.clip = (real)sc_get(&k->coefficient, 0),
                                .momentum = task->record->momentum,
                                .nesterov = k->nesterov != 0,
                                .has_momentum = k->momentum.p != NULL}};
    range r = {k->table, k->ntable, k->slice, k->axis, is_rounded(&k->momentum)};
    if (!skips(&k->coefficient)) for_each_piece(task, r, sgd_piece, &c);
}

typedef struct {
    const sc_adam_args *k;
    sc_adam rule;
} adam_constants;

static void wire_piece(const sc_task *task, piece s, const void *constants) {
    const sc_adam_args *k = ((const adam_constants *)constants)->k;
    real buffer[PIECE];
    sc_store(&k->wire, s.at, 1, s.n, sc_in(&k->master, s.at, s.n, buffer));
}

static void adam_piece(const sc_task *task, piece s, const void *constants) {
    const sc_adam_args *k = ((const adam_constants *)constants)->k;
    const sc_adam c = ((const adam_constants *)constants)->rule;
    const sc_adam_group group = sc_adam_group_of(task->record, &c, s.group);
    real bg[PIECE], bp[PIECE], bm[PIECE], bv[PIECE];
    const real *g = sc_in(&k->grad, s.at, s.n, bg), *p0 = sc_in(&k->master, s.at, s.n, bp);
    const real *m0 = sc_in(&k->m, s.at, s.n, bm), *v0 = sc_in(&k->v, s.at, s.n, bv);
    real *p1 = sc_out(&k->master, s.at, bp), *m1 = sc_out(&k->m, s.at, bm), *v1 = sc_out(&k->v, s.at, bv);
    SC_ELEMENTWISE
    for (int64_t i = 0; i < s.n; i++) {
        real p = p0[i], m = m0[i], v = v0[i];
        sc_adam_update(&p, &m, &v, g[i], &c, group);
        p1[i] = p;
        m1[i] = m;
        v1[i] = v;
    }
    sc_put(&k->master, s.at, s.n, p1);
    if (is_rounded(&k->m)) {
        put_rounded(task, s, &k->m, m1, &k->v, v1);
    } else {
        sc_put(&k->m, s.at, s.n, m1);
        sc_put(&k->v, s.at, s.n, v1);
    }
    if (k->wire.p) wire_piece(task, s, constants);
}

/* A skipped step leaves the wire shard what it is, the master in its dtype; written all the same: where state streams
 * through the device, what lies there now is not what goes back. */
SC_KERNEL(adam) {
    adam_constants c = {
        k, sc_adam_of(task->record, *(const int64_t *)k->step.p, (real)sc_get(&k->coefficient, 0), k->decoupled != 0)};
    range r = {k->table, k->ntable, k->slice, k->axis, is_rounded(&k->m)};
    if (!skips(&k->coefficient))
        for_each_piece(task, r, adam_piece, &c);
    else if (k->wire.p)
        for_each_piece(task, r, wire_piece, &c);
}

SC_KERNEL(count_step) {
    if (task->part == 0 && !(k->coefficient.p && skips(&k->coefficient))) *(int64_t *)k->step.p += 1;
}

SC_KERNEL(sum_squares) {
    enum { BLOCK = 4096 };
    if (task->part) return;
    bool scaled = k->scaler.p != NULL;
    int64_t numel = sc_numel(&k->x);
    real buffer[SC_CHUNK], unscaled[SC_CHUNK], inverse = scaled ? 1 / (real)sc_get(&k->scaler, 0) : 1;
    double total = 0;
    for (int64_t first = 0; first < numel; first += BLOCK) {
        double block = 0;
        for (int64_t i = first; i < sc_min(numel, first + BLOCK); i += SC_CHUNK) {
            int64_t n = sc_min(SC_CHUNK, numel - i);
            const real *v = sc_in(&k->x, i, n, buffer);
            for (int64_t j = 0; j < n && scaled; j++) unscaled[j] = v[j] * inverse;
            if (scaled) v = unscaled;
            block += sc_chunk_dot(v, v, n);
        }
        total += block;
    }
    sc_set(&k->y, 0, total);
}

SC_KERNEL(clip_coefficient) {
    if (task->part) return;
    double sum = 0;
    for (int64_t i = 0; i < sc_numel(&k->squares); i++) sum += sc_get(&k->squares, i);
    double coefficient = sc_coefficient(sum, task->record->clip);
    sc_set(&k->norm, 0, sqrt(sum));
    if (k->scaler.p) {
        bool skip = sc_not_finite(sum);
        coefficient = skip ? 0 : coefficient / sc_get(&k->scaler, 0);
        sc_set(&k->coefficient, 1, skip);
    }
    sc_set(&k->coefficient, 0, coefficient);
}
