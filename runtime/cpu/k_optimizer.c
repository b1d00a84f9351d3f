/* sgd, adam, count_step, sum_squares, clip_coefficient: on this rank's slice of a unit's flat buffer. With a loss scale
 * gradients are its multiples: the norm is of them over the scale, the coefficient undoes it, and where a gradient is
 * not finite the coefficient's second element says that nothing is to be written.
 * Relies on: kernel.h, sc_optimizer.h (update rules, rounding); learning rates and coefficients in the record.
 * Relied on by: generated code.
 *
 * A row (begin, end, group) of the segment table covers flat offsets; this rank holds [s·n, s·n + n), n = i1, s =
 * rank mod i2. Where moments are bf16, a row is a parameter and ends with its path's key. sum_squares: blocks of 4096
 * elements, added up in order. clip: norm = √Σ, coefficient = min(1, clip / (norm + 1e-6)), over the scale. */
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
typedef void update(const sc_task *k, piece p, const void *constants);

/* This part's pieces of the rank's slice; the part's borders do not depend on the segments. */
static void for_each_piece(const sc_task *k, bool keyed, update *u, const void *constants) {
    int64_t n = k->i[1], first = n * sc_slice_of(k, k->i[2]);
    int row = keyed ? SC_KEYED_SEGMENT : SC_SEGMENT;
    sc_range mine = sc_share(k, n, SC_CHUNK);
    for (const int64_t *s = k->table; s + row <= k->table + k->ntable; s += row) {
        int64_t begin = sc_max(s[0] - first, mine.begin), end = sc_min(s[1] - first, mine.end);
        for (int64_t i = begin; i < end; i += PIECE)
            u(k,
              (piece){i, sc_min(PIECE, end - i), (int)s[2], keyed ? (uint64_t)s[3] : 0, (uint64_t)(first + i - s[0])},
              constants);
    }
}

static bool is_rounded(const sc_tensor *moment) {
    return moment && moment->dtype == BF16;
}
/* The upper halves of what rounding gives: moments as they are stored. v: NULL where there is none. */
static void put_rounded(const sc_task *k, piece s, const sc_tensor *m, const real *m1, const sc_tensor *v,
                        const real *v1) {
    uint32_t word[PIECE];
    sc_rounding d = sc_rounding_of(k->record, s.key);
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
    sc_sgd rule;
    const sc_tensor *buffer;
} sgd_constants;

static void sgd_piece(const sc_task *k, piece s, const void *constants) {
    const sgd_constants *a = constants;
    const sc_sgd c = a->rule;
    const sc_sgd_group group = sc_sgd_group_of(k->record, s.group);
    const sc_tensor *grad = &k->t[0], *master = &k->t[1];
    real bg[PIECE], bp[PIECE], bm[PIECE];
    const real *g = sc_in(grad, s.at, s.n, bg), *p0 = sc_in(master, s.at, s.n, bp);
    const real *b0 = a->buffer ? sc_in(a->buffer, s.at, s.n, bm) : g;
    real *p1 = sc_out(master, s.at, bp), *b1 = a->buffer ? sc_out(a->buffer, s.at, bm) : bm;
    SC_ELEMENTWISE
    for (int64_t i = 0; i < s.n; i++) {
        real p = p0[i], b = b0[i];
        sc_sgd_update(&p, &b, g[i], c, group);
        p1[i] = p;
        b1[i] = b;
    }
    sc_put(master, s.at, s.n, p1);
    if (is_rounded(a->buffer))
        put_rounded(k, s, a->buffer, b1, NULL, NULL);
    else if (a->buffer)
        sc_put(a->buffer, s.at, s.n, b1);
}

void sc_k_sgd(const sc_task *k) {
    sgd_constants c = {.rule = {.clip = (real)sc_get(&k->t[2], 0),
                                .momentum = k->record->momentum,
                                .nesterov = k->i[0] != 0,
                                .has_momentum = k->nt > 3},
                       .buffer = k->nt > 3 ? &k->t[3] : NULL};
    if (!skips(&k->t[2])) for_each_piece(k, is_rounded(c.buffer), sgd_piece, &c);
}

static void adam_piece(const sc_task *k, piece s, const void *constants) {
    const sc_adam c = *(const sc_adam *)constants;
    const sc_adam_group group = sc_adam_group_of(k->record, &c, s.group);
    const sc_tensor *grad = &k->t[0], *master = &k->t[1], *first = &k->t[3], *second = &k->t[4];
    real bg[PIECE], bp[PIECE], bm[PIECE], bv[PIECE];
    const real *g = sc_in(grad, s.at, s.n, bg), *p0 = sc_in(master, s.at, s.n, bp), *m0 = sc_in(first, s.at, s.n, bm);
    const real *v0 = sc_in(second, s.at, s.n, bv);
    real *p1 = sc_out(master, s.at, bp), *m1 = sc_out(first, s.at, bm), *v1 = sc_out(second, s.at, bv);
    SC_ELEMENTWISE
    for (int64_t i = 0; i < s.n; i++) {
        real p = p0[i], m = m0[i], v = v0[i];
        sc_adam_update(&p, &m, &v, g[i], &c, group);
        p1[i] = p;
        m1[i] = m;
        v1[i] = v;
    }
    sc_put(master, s.at, s.n, p1);
    if (is_rounded(first)) {
        put_rounded(k, s, first, m1, second, v1);
    } else {
        sc_put(first, s.at, s.n, m1);
        sc_put(second, s.at, s.n, v1);
    }
    if (k->nt > 6) sc_store(&k->t[6], s.at, 1, s.n, sc_in(master, s.at, s.n, bp)); /* wire */
}

/* A skipped step leaves the wire shard what it is, the master in its dtype; written all the same: where state streams
 * through the device, what lies there now is not what goes back. */
static void wire_piece(const sc_task *k, piece s, const void *constants) {
    real buffer[PIECE];
    (void)constants;
    sc_store(&k->t[6], s.at, 1, s.n, sc_in(&k->t[1], s.at, s.n, buffer));
}

void sc_k_adam(const sc_task *k) {
    sc_adam c = sc_adam_of(k->record, *(const int64_t *)k->t[5].p, (real)sc_get(&k->t[2], 0), k->i[0] != 0);
    if (!skips(&k->t[2]))
        for_each_piece(k, is_rounded(&k->t[3]), adam_piece, &c);
    else if (k->nt > 6)
        for_each_piece(k, is_rounded(&k->t[3]), wire_piece, NULL);
}

void sc_k_count_step(const sc_task *k) {
    if (k->part == 0 && !(k->nt > 1 && skips(&k->t[1]))) *(int64_t *)k->t[0].p += 1;
}

void sc_k_sum_squares(const sc_task *k) {
    enum { BLOCK = 4096 };
    if (k->part) return;
    const sc_tensor *x = &k->t[1];
    int64_t numel = sc_numel(x);
    real buffer[SC_CHUNK], unscaled[SC_CHUNK], inverse = k->i[0] ? 1 / (real)sc_get(&k->t[2], 0) : 1;
    double total = 0;
    for (int64_t first = 0; first < numel; first += BLOCK) {
        double block = 0;
        for (int64_t i = first; i < sc_min(numel, first + BLOCK); i += SC_CHUNK) {
            int64_t n = sc_min(SC_CHUNK, numel - i);
            const real *v = sc_in(x, i, n, buffer);
            for (int64_t j = 0; j < n && k->i[0]; j++) unscaled[j] = v[j] * inverse;
            if (k->i[0]) v = unscaled;
            block += sc_chunk_dot(v, v, n);
        }
        total += block;
    }
    sc_set(&k->t[0], 0, total);
}

void sc_k_clip_coefficient(const sc_task *k) {
    if (k->part) return;
    double sum = 0;
    for (int64_t i = 0; i < sc_numel(&k->t[2]); i++) sum += sc_get(&k->t[2], i);
    double coefficient = sc_coefficient(sum, k->record->clip);
    sc_set(&k->t[1], 0, sqrt(sum));
    if (k->nt > 3) { /* a scaler */
        bool skip = sc_not_finite(sum);
        coefficient = skip ? 0 : coefficient / sc_get(&k->t[3], 0);
        sc_set(&k->t[0], 1, skip);
    }
    sc_set(&k->t[0], 0, coefficient);
}
