/* quantize: a tensor, or gelu, a gate or a norm of it, over a scale in 8 bits, as it lies, turned, or both;
 * quantize_gates: both gradients of a gate likewise; update_amax: the history that scales come from.
 * Relies on: magnitude.h, normed.h. Relied on by: generated code (products in 8 bits). */
#include "../sc_amax.h"
#include "magnitude.h"
#include "normed.h"

#include <math.h>

enum { PANEL = SC_SUMMED_ROWS, ACROSS = 64 };

/* ── what is quantized ───────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    const sc_tensor *x, *gate, *up; /* up: of gates' gradients, of which there are two results */
    int64_t f;
    const sc_tensor *counts;              /* of rows by group, behind which all is 0; NULL: all rows count */
    const sc_tensor *rstd, *mean, *w, *b; /* of a norm's result; NULL: x is no norm's, or it has none */
} source;

static void normed(const source *s, int64_t at, int64_t n, const real *x, real *y) {
    real bw[SC_CHUNK], bb[SC_CHUNK];
    int64_t cols = sc_cols(s->x);
    for (int64_t j = 0, m; j < n; j += m) {
        int64_t row = (at + j) / cols, c = (at + j) % cols;
        m = sc_min(n - j, cols - c);
        sc_normalise(y + j, x + j, m, s->mean ? (real)sc_get(s->mean, row) : 0, (real)sc_get(s->rstd, row),
                     s->w ? sc_in(s->w, c, m, bw) : NULL, s->b ? sc_in(s->b, c, m, bb) : NULL);
    }
}

static void values(const source *s, int64_t at, int64_t n, real *y, real *z) {
    real a[SC_CHUNK], b[SC_CHUNK], c[SC_CHUNK];
    const real *x = sc_in(s->x, at, n, a), *gate = s->gate ? sc_in(s->gate, at, n, b) : NULL;
    const real *up = s->up ? sc_in(s->up, at, n, c) : NULL;
    if (up) {
        SC_ELEMENTWISE
        for (int64_t j = 0; j < n; j++) sc_silu_mul_grad(x[j], gate[j], up[j], &y[j], &z[j]);
    } else if (s->rstd) {
        normed(s, at, n, x, y);
    } else if (s->f == SC_GATED) {
        SC_ELEMENTWISE
        for (int64_t j = 0; j < n; j++) y[j] = sc_silu_mul(gate[j], x[j]);
    } else if (s->f == SC_GELU) {
        SC_ELEMENTWISE
        for (int64_t j = 0; j < n; j++) y[j] = sc_gelu_tanh(x[j]);
    } else if (s->f) {
        SC_ELEMENTWISE
        for (int64_t j = 0; j < n; j++) y[j] = sc_gelu_tanh_grad(x[j], gate[j]);
    } else {
        memcpy(y, x, (size_t)n * sizeof *y);
    }
}

/* ── where it goes ───────────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    const sc_tensor *amax, *seen, *scale, *y, *turned; /* seen, y, turned: NULL: there is none */
    float by, most;                                    /* most: the largest magnitude that this part has met */
} target;

/* Rows of x that some group has. */
static int64_t rows_taken(const source *s) {
    int64_t rows = sc_rows(s->x), n = 0;
    for (int64_t g = 0; s->counts && g < sc_numel(s->counts); g++)
        n += sc_min(sc_max(sc_index(s->counts, g), 0), rows - n);
    return s->counts ? n : rows;
}

/* The largest magnitudes of all, where no step before has left any: each part finds them by itself. */
static void find(const source *s, int64_t n, target *t, int nt) {
    real y[SC_CHUNK], z[SC_CHUNK], *of[] = {y, z};
    for (int64_t at = 0; at < n; at += SC_CHUNK) {
        int64_t m = sc_min(SC_CHUNK, n - at);
        values(s, at, m, y, z);
        for (int o = 0; o < nt; o++) {
            SC_ELEMENTWISE
            for (int64_t j = 0; j < m; j++) of[o][j] = sc_abs(of[o][j]);
            t[o].most = sc_larger(t[o].most, sc_chunk_max(of[o], m));
        }
    }
}

static void scale(const sc_task *task, target *t, float widest) {
    float amax = (float)sc_get(t->amax, 0);
    if (amax == 0 && t->seen) {
        sc_raise((float *)t->seen->p, t->most);
        amax = (float)sc_get(t->seen, 0);
    }
    t->by = amax == 0 ? 1 : widest / amax;
    if (!task->part) sc_set(t->scale, 0, amax == 0 ? 1 : (double)(amax / widest));
}

/* Rows [r0, r0 + rows) of `from` times t->by, as they lie and as columns. */
static void put(target *t, real from[PANEL][ACROSS], int64_t r0, int64_t rows, int64_t c0, int64_t n, int64_t all,
                int64_t cols) {
    real column[PANEL];
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t j = 0; j < n; j++) t->most = sc_larger(t->most, from[r][j]);
        SC_ELEMENTWISE
        for (int64_t j = 0; j < n; j++) {
            real x = from[r][j];
            if (t->seen && isinf(x)) x = (real)NAN; /* no amax tells of it */
            from[r][j] = (real)((float)x * t->by);
        }
        if (t->y) sc_store(t->y, (r0 + r) * cols + c0, 1, n, from[r]);
    }
    for (int64_t j = 0; j < n && t->turned; j++) {
        for (int64_t r = 0; r < rows; r++) column[r] = from[r][j];
        sc_store(t->turned, (c0 + j) * all + r0, 1, rows, column);
    }
}

static void quantize_all(const sc_task *task, const source *s, target *t, int nt, const sc_tensor *sums) {
    real block[2][PANEL][ACROSS];
    float widest = (t->y ? t->y : t->turned)->dtype == FP8_E4M3 ? 448 : 57344;
    int64_t cols = sc_cols(s->x), rows = sc_numel(s->x) / sc_max(cols, 1), taken = rows_taken(s);
    bool known = true;
    for (int o = 0; o < nt; o++) known = known && (!t[o].seen || sc_get(t[o].amax, 0) != 0);
    if (!known) find(s, taken * cols, t, nt);
    for (int o = 0; o < nt; o++) scale(task, &t[o], widest);
    sc_range mine = sc_share(task, rows, PANEL);
    for (int64_t r0 = mine.begin; r0 < mine.end; r0 += PANEL)
        for (int64_t c0 = 0; c0 < cols; c0 += ACROSS) {
            int64_t n = sc_min(ACROSS, cols - c0), m = sc_min(PANEL, mine.end - r0);
            real sum[ACROSS] = {0};
            for (int64_t r = 0; r < m; r++) {
                if (r0 + r < taken)
                    values(s, (r0 + r) * cols + c0, n, block[0][r], block[1][r]);
                else
                    memset(block[0][r], 0, sizeof block[0][r]);
                for (int64_t j = 0; j < n; j++) sum[j] += block[0][r][j];
            }
            if (sums) sc_store(sums, r0 / PANEL * cols + c0, 1, n, sum);
            for (int o = 0; o < nt; o++) put(&t[o], block[o], r0, m, c0, n, rows, cols);
        }
    for (int o = 0; o < nt; o++)
        if (t[o].seen) sc_raise((float *)t[o].seen->p, t[o].most);
}

SC_KERNEL(absmax) {
    source s = {
        &k->x,           sc_given(&k->gate), NULL, k->f, sc_given(&k->counts), sc_given(&k->rstd), sc_given(&k->mean),
        sc_given(&k->w), sc_given(&k->b)};
    target t = {.most = 0};
    if (task->part) return;
    find(&s, rows_taken(&s) * sc_cols(&k->x), &t, 1);
    sc_set(&k->y, 0, (double)t.most);
}

SC_KERNEL(absmax_gates) {
    source s = {.x = &k->g, .gate = &k->gate, .up = &k->up};
    target both[2] = {{.most = 0}, {.most = 0}};
    if (task->part) return;
    find(&s, sc_numel(&k->g), both, 2);
    sc_set(&k->dgate, 0, (double)both[0].most);
    sc_set(&k->dup, 0, (double)both[1].most);
}

SC_KERNEL(quantize) {
    source s = {
        &k->x,           sc_given(&k->gate), NULL, k->f, sc_given(&k->counts), sc_given(&k->rstd), sc_given(&k->mean),
        sc_given(&k->w), sc_given(&k->b)};
    target t = {&k->amax, sc_given(&k->seen), &k->scale, k->turn ? NULL : &k->y, k->turn ? &k->y : sc_given(&k->turned),
                .by = 1};
    quantize_all(task, &s, &t, 1, sc_given(&k->sums));
}

SC_KERNEL(quantize_gates) {
    source s = {.x = &k->g, .gate = &k->gate, .up = &k->up};
    target t[] = {
        {&k->dgate_amax, sc_given(&k->dgate_seen), &k->dgate_scale, &k->dgate, sc_given(&k->dgate_turned), .by = 1},
        {&k->dup_amax, sc_given(&k->dup_seen), &k->dup_scale, &k->dup, sc_given(&k->dup_turned), .by = 1}};
    quantize_all(task, &s, t, 2, NULL);
}

SC_KERNEL(update_amax) {
    int64_t row = sc_cols(&k->history), n = sc_rows(&k->history), ranks = sc_numel(&k->all) / n;
    if (task->part || sc_skips(&k->coefficient)) return;
    for (int64_t site = 0; site < n; site++) {
        float now = 0;
        for (int64_t r = 0; r < ranks; r++) now = sc_larger(now, (real)sc_get(&k->all, r * n + site));
        if (isfinite(now)) sc_amax_remember((float *)k->history.p + site * row, row, now);
    }
}
