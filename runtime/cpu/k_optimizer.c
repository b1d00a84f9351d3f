/* sgd, adam, count_step, sum_squares, clip_coefficient: on this rank's slice of a unit's flat buffer.
 * Relies on: kernel.h; learning rates and coefficients in the record.
 * Relied on by: generated code.
 *
 * A triple (begin, end, group) of the segment table covers flat offsets; this rank holds [shard·n, shard·n + n), n =
 * i1. c is the clip coefficient, lr and decay the group's. PyTorch's formulas, each line rounded as written: sgd:   g =
 * grad·c (+ decay·p);  b = momentum·b + g;  g = nesterov ? g + momentum·b : b;  p = p - lr·g adam:  g = grad·c;
 * decoupled: p = p·(1 - lr·decay), else g = g + decay·p; m = beta1·m + (1-beta1)·g;  v = beta2·v + (1-beta2)·g·g; p = p
 * - (lr / (1-beta1^t)) · (m / (√v / √(1-beta2^t) + eps)) sum_squares: blocks of 4096 elements, added up in order. clip:
 * norm = √Σ, coefficient = min(1, clip / (norm + 1e-6)). */
#include "kernel.h"

typedef struct { /* one chunk of a segment, as the update rules see it */
    int64_t at, n;
    int group;
} piece;
typedef void update(const sc_task *k, piece p, const void *constants);

/* This part's pieces of the rank's slice; the part's borders do not depend on the segments. */
static void for_each_piece(const sc_task *k, update *u, const void *constants) {
    int64_t n = k->i[1], first = n * k->shard;
    sc_range mine = sc_share(k, n, SC_CHUNK);
    for (int s = 0; s + 2 < k->ntable; s += 3) {
        int64_t begin = sc_max(k->table[s] - first, mine.begin), end = sc_min(k->table[s + 1] - first, mine.end);
        for (int64_t i = begin; i < end; i += SC_CHUNK)
            u(k, (piece){i, sc_min(SC_CHUNK, end - i), (int)k->table[s + 2]}, constants);
    }
}

typedef struct {
    real clip, momentum;
    int nesterov;
    const sc_tensor *buffer;
} sgd_constants;

static void sgd_piece(const sc_task *k, piece s, const void *constants) {
    const sgd_constants *c = constants;
    const sc_tensor *grad = &k->t[0], *master = &k->t[1];
    real lr = k->record->lr[s.group], decay = k->record->weight_decay[s.group], momentum = c->momentum;
    real bg[SC_CHUNK], bp[SC_CHUNK], bm[SC_CHUNK], bo[SC_CHUNK], g[SC_CHUNK];
    const real *dg = sc_in(grad, s.at, s.n, bg), *p = sc_in(master, s.at, s.n, bp);
    for (int64_t i = 0; i < s.n; i++) g[i] = dg[i] * c->clip;
    if (decay != 0)
        for (int64_t i = 0; i < s.n; i++) g[i] = g[i] + decay * p[i];
    if (c->buffer) {
        const real *b = sc_in(c->buffer, s.at, s.n, bm);
        real *out = sc_out(c->buffer, s.at, bm);
        SC_ELEMENTWISE
        for (int64_t i = 0; i < s.n; i++) {
            real v = momentum * b[i] + g[i];
            out[i] = v;
            g[i] = c->nesterov ? g[i] + momentum * v : v;
        }
        sc_put(c->buffer, s.at, s.n, out);
    }
    real *out = sc_out(master, s.at, bo);
    SC_ELEMENTWISE
    for (int64_t i = 0; i < s.n; i++) out[i] = p[i] - lr * g[i];
    sc_put(master, s.at, s.n, out);
}

void sc_k_sgd(const sc_task *k) {
    sgd_constants c = {.clip = (real)sc_get(&k->t[2], 0),
                       .momentum = k->record->momentum,
                       .nesterov = k->i[0] != 0,
                       .buffer = k->nt > 3 ? &k->t[3] : NULL};
    for_each_piece(k, sgd_piece, &c);
}

typedef struct {
    double correction1;                                /* 1 - beta1^t */
    real clip, beta1, rest1, beta2, rest2, root2, eps; /* root2 = √(1 - beta2^t) */
    int decoupled;
} adam_constants;

static void adam_piece(const sc_task *k, piece s, const void *constants) {
    const adam_constants c = *(const adam_constants *)constants;
    const sc_tensor *grad = &k->t[0], *master = &k->t[1], *first = &k->t[3], *second = &k->t[4];
    double lr = k->record->lr[s.group], decay = k->record->weight_decay[s.group];
    real step = (real)(lr / c.correction1), keep = c.decoupled ? (real)(1 - lr * decay) : 1;
    real coupled = c.decoupled ? 0 : (real)decay;
    real bg[SC_CHUNK], bp[SC_CHUNK], bm[SC_CHUNK], bv[SC_CHUNK];
    const real *dg = sc_in(grad, s.at, s.n, bg), *p0 = sc_in(master, s.at, s.n, bp), *m0 = sc_in(first, s.at, s.n, bm);
    const real *v0 = sc_in(second, s.at, s.n, bv);
    real *p1 = sc_out(master, s.at, bp), *m1 = sc_out(first, s.at, bm), *v1 = sc_out(second, s.at, bv);
    SC_ELEMENTWISE
    for (int64_t i = 0; i < s.n; i++) {
        real p = p0[i] * keep, g = dg[i] * c.clip + coupled * p0[i];
        real m = c.beta1 * m0[i] + c.rest1 * g;
        real v = c.beta2 * v0[i] + c.rest2 * (g * g);
        m1[i] = m;
        v1[i] = v;
        p1[i] = p - step * (m / (sc_sqrt(v) / c.root2 + c.eps));
    }
    sc_put(master, s.at, s.n, p1);
    sc_put(first, s.at, s.n, m1);
    sc_put(second, s.at, s.n, v1);
}

void sc_k_adam(const sc_task *k) {
    double beta1 = k->record->beta1, beta2 = k->record->beta2, t = (double)*(const int64_t *)k->t[5].p;
    adam_constants c = {.correction1 = 1 - pow(beta1, t),
                        .clip = (real)sc_get(&k->t[2], 0),
                        .beta1 = (real)beta1,
                        .rest1 = (real)(1 - beta1),
                        .beta2 = (real)beta2,
                        .rest2 = (real)(1 - beta2),
                        .root2 = (real)sqrt(1 - pow(beta2, t)),
                        .eps = k->record->eps,
                        .decoupled = k->i[0] != 0};
    for_each_piece(k, adam_piece, &c);
}

void sc_k_count_step(const sc_task *k) {
    if (k->part == 0) *(int64_t *)k->t[0].p += 1;
}

void sc_k_sum_squares(const sc_task *k) {
    enum { BLOCK = 4096 };
    if (k->part) return;
    const sc_tensor *x = &k->t[1];
    int64_t numel = sc_numel(x);
    real buffer[SC_CHUNK];
    double total = 0;
    for (int64_t first = 0; first < numel; first += BLOCK) {
        double block = 0;
        for (int64_t i = first; i < sc_min(numel, first + BLOCK); i += SC_CHUNK) {
            int64_t n = sc_min(SC_CHUNK, numel - i);
            const real *v = sc_in(x, i, n, buffer);
            block += sc_chunk_dot(v, v, n);
        }
        total += block;
    }
    sc_set(&k->t[0], 0, total);
}

void sc_k_clip_coefficient(const sc_task *k) {
    if (k->part) return;
    double sum = 0, clip = k->record->clip;
    for (int j = 2; j < k->nt; j++)
        for (int64_t i = 0; i < sc_numel(&k->t[j]); i++) sum += sc_get(&k->t[j], i);
    double norm = sqrt(sum), coefficient = clip > 0 ? clip / (norm + 1e-6) : 1;
    sc_set(&k->t[0], 0, coefficient > 1 ? 1 : coefficient);
    sc_set(&k->t[1], 0, norm);
}
