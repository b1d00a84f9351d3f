/* distillation: how far softmax of logits [N,V] is from a teacher's, mixed with cross entropy, and its gradient.
 * Relies on: kernel.h.
 * Relied on by: generated code; k_cross_entropy.c, which names its finish.
 *
 * Of a row, with x the logits and t the teacher's, H the heat, and both beside their largest: a = e^((x - most) / H),
 * b = e^((t - most_t) / H), p = a / Σa, q = b / Σb. The divergence of p from q is
 *     Σ q ((t - most_t) - (x - most)) / H + log Σa - log Σb,    d = (p - q) / H
 * its gradient in x; reverse: Σ p ((x - most) - (t - most_t)) / H + log Σb - log Σa, d = p (log p - log q - it) / H.
 * (Hinton, Vinyals and Dean 2015, arXiv 1503.02531, say why it counts H² times.) Cross entropy is computed as in
 * k_cross_entropy.c. A class to which p (reverse: q) gives nothing adds nothing, whatever the other logit.
 *
 * Parts write a row's stats; the finish adds the rows' losses up in order. */
#include "kernel.h"

typedef struct {
    const sc_tensor *x, *t, *targets; /* targets: NULL where all rows count */
    double hard, heat;
    real cold, cap, teacher_cap;
    int64_t ignore;
    bool reverse;
} pairs;
#define PAIRS(k)                                                                                                       \
    (pairs) {                                                                                                          \
        &(k)->logits, &(k)->teacher, sc_given(&(k)->targets), (k)->hard, (k)->heat, (real)(1 / (k)->heat),             \
            (real)(k)->softcap, (real)(k)->teacher_softcap, (k)->ignore, (k)->reverse != 0                             \
    }

static bool ignored(const pairs *p, int64_t row) {
    return p->targets && sc_index(p->targets, row) == p->ignore;
}

static int64_t target_of(const pairs *p, int64_t row) {
    int64_t c = p->hard > 0 ? sc_index(p->targets, row) : -1;
    return c < sc_cols(p->x) ? c : -1;
}

static void load(real *to, const sc_tensor *x, int64_t at, int64_t n, real cap) {
    sc_load(to, x, at, 1, n);
    if (!(cap > 0)) return;
    SC_ELEMENTWISE
    for (int64_t i = 0; i < n; i++) to[i] = cap * sc_tanh(to[i] / cap);
}

/* The largest logit of a row, 0 where all are -inf: what powers are relative to. */
static real most_of(const sc_tensor *x, int64_t at, real cap) {
    real v[SC_CHUNK], most = -(real)INFINITY;
    for (int64_t c = 0; c < sc_cols(x); c += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, sc_cols(x) - c);
        load(v, x, at + c, n, cap);
        real m = sc_chunk_max(v, n);
        if (!(m <= most)) most = m;
    }
    return most == -(real)INFINITY ? 0 : most;
}

static double own_of(const pairs *p, int64_t row, int64_t target) {
    real v;
    load(&v, p->x, sc_row(p->x, row) + target, 1, p->cap);
    return v;
}

static void row_stats(const pairs *p, int64_t row, double *s) {
    int64_t x_at = sc_row(p->x, row), t_at = sc_row(p->t, row), cols = sc_cols(p->x), target = target_of(p, row);
    real x[SC_CHUNK], t[SC_CHUNK], a[SC_CHUNK], b[SC_CHUNK], cold = p->cold;
    real most = most_of(p->x, x_at, p->cap), teacher_most = most_of(p->t, t_at, p->teacher_cap);
    double sum = 0, teacher_sum = 0, apart = 0, rest = 0;
    for (int64_t c = 0; c < cols; c += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, cols - c);
        load(x, p->x, x_at + c, n, p->cap);
        load(t, p->t, t_at + c, n, p->teacher_cap);
        SC_ELEMENTWISE
        for (int64_t i = 0; i < n; i++) {
            x[i] -= most;
            t[i] -= teacher_most;
            a[i] = sc_exp(x[i] * cold);
            b[i] = sc_exp(t[i] * cold);
        }
        sum += sc_chunk_sum(a, n);
        teacher_sum += sc_chunk_sum(b, n);
        const real *share = p->reverse ? a : b, *from = p->reverse ? t : x, *to = p->reverse ? x : t;
        SC_ELEMENTWISE
        for (int64_t i = 0; i < n; i++) b[i] = share[i] == 0 ? 0 : share[i] * (to[i] - from[i]);
        apart += sc_chunk_sum(b, n);
        if (!(p->hard > 0)) continue;
        SC_ELEMENTWISE
        for (int64_t i = 0; i < n; i++) a[i] = sc_exp(x[i]);
        if (target >= c && target < c + n) a[target - c] = 0;
        rest += sc_chunk_sum(a, n);
    }
    double log_ratio = log(sum) - log(teacher_sum), turn = p->reverse ? -1 : 1;
    s[SC_DISTILLED_MOST] = most;
    s[SC_DISTILLED_SUM] = sum;
    s[SC_DISTILLED_TEACHER_MOST] = teacher_most;
    s[SC_DISTILLED_TEACHER_SUM] = teacher_sum;
    s[SC_DISTILLED_APART] = apart / ((p->reverse ? sum : teacher_sum) * p->heat) + turn * log_ratio;
    s[SC_DISTILLED_REST] = rest;
    s[SC_DISTILLED_LOSS] = p->heat * p->heat * s[SC_DISTILLED_APART] * (1 - p->hard);
    if (!(p->hard > 0)) return;
    double d = target < 0 ? NAN : own_of(p, row, target) - (double)most;
    s[SC_DISTILLED_LOSS] += p->hard * ((d == 0 ? log1p(rest) : log(rest + exp(d))) - d);
}

SC_KERNEL(distillation) {
    pairs p = PAIRS(k);
    sc_range mine = sc_share(task, sc_rows(p.x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        double s[SC_DISTILLED] = {0};
        if (!ignored(&p, row)) row_stats(&p, row, s);
        for (int i = 0; i < SC_DISTILLED; i++) sc_set(&k->stats, row * SC_DISTILLED + i, s[i]);
        if (k->rows) sc_set(&k->loss, row, s[SC_DISTILLED_LOSS]);
    }
}

SC_FINISH(distillation) {
    double sum = 0;
    if (k->rows) return;
    for (int64_t row = 0; row < sc_rows(&k->logits); row++)
        sum += sc_get(&k->stats, row * SC_DISTILLED + SC_DISTILLED_LOSS);
    sc_set(&k->loss, 0, sum / sc_count(task, &k->total, k->count));
}

static void grad_row(const pairs *p, const sc_tensor *dx, int64_t row, const double *s, double g) {
    int64_t x_at = sc_row(p->x, row), t_at = sc_row(p->t, row), to = sc_row(dx, row), cols = sc_cols(p->x);
    int64_t target = target_of(p, row);
    real x[SC_CHUNK], t[SC_CHUNK], y[SC_CHUNK], d[SC_CHUNK], cold = p->cold, cap = p->cap;
    real most = (real)s[SC_DISTILLED_MOST], teacher_most = (real)s[SC_DISTILLED_TEACHER_MOST];
    double soft = p->heat * (1 - p->hard) * g, rest = s[SC_DISTILLED_REST];
    double own = target < 0 ? 0 : exp(own_of(p, row, target) - (double)most);
    real each = (real)(soft / s[SC_DISTILLED_SUM]), teacher_each = (real)(soft / s[SC_DISTILLED_TEACHER_SUM]);
    real hard_each = (real)(p->hard * g / (rest + own));
    real shift = (real)(log(s[SC_DISTILLED_SUM]) - log(s[SC_DISTILLED_TEACHER_SUM]) + s[SC_DISTILLED_APART]);
    for (int64_t c = 0; c < cols; c += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, cols - c);
        load(x, p->x, x_at + c, n, cap);
        load(t, p->t, t_at + c, n, p->teacher_cap);
        SC_ELEMENTWISE
        for (int64_t i = 0; i < n; i++) {
            real a = sc_exp((x[i] - most) * cold), b = sc_exp((t[i] - teacher_most) * cold);
            real apart = ((x[i] - most) - (t[i] - teacher_most)) * cold - shift;
            y[i] = !p->reverse ? a * each - b * teacher_each : a == 0 ? 0 : a * each * apart;
        }
        if (p->hard > 0) {
            SC_ELEMENTWISE
            for (int64_t i = 0; i < n; i++) d[i] = sc_exp(x[i] - most) * hard_each;
            if (target >= c && target < c + n) d[target - c] = (real)(-rest * hard_each);
            SC_ELEMENTWISE
            for (int64_t i = 0; i < n; i++) y[i] += d[i];
        }
        if (cap > 0) {
            SC_ELEMENTWISE
            for (int64_t i = 0; i < n; i++) y[i] *= 1 - x[i] / cap * (x[i] / cap);
        }
        sc_store(dx, to + c, 1, n, y);
    }
}

/* dlogits may be where the logits or the teacher's are: a chunk of these is read before it is written. */
SC_KERNEL(distillation_grad) {
    pairs p = PAIRS(k);
    double count = k->rows ? 1 : sc_count(task, &k->total, k->count);
    sc_range mine = sc_share(task, sc_rows(p.x), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        double s[SC_DISTILLED];
        for (int i = 0; i < SC_DISTILLED; i++) s[i] = sc_get(&k->stats, row * SC_DISTILLED + i);
        if (ignored(&p, row))
            memset(sc_at(&k->dlogits, sc_row(&k->dlogits, row)), 0,
                   (size_t)(sc_cols(&k->dlogits) * sc_size(k->dlogits.dtype)));
        else
            grad_row(&p, &k->dlogits, row, s, sc_get(&k->g, k->rows ? row : 0) / count);
    }
}
