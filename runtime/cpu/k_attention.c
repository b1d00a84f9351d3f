/* attention, forward: o = dropout(softmax(scale · q kᵀ + mask)) v per head, and lse, the rows' log Σ e^score.
 * Relies on: attention.h, k_blas.c, a workspace (work_attention).
 * Relied on by: generated code, attention's gradient.
 *
 * A part takes whole tiles of queries and walks over tiles of keys with the running maximum m and sum l of each row
 * (Milakov and Gimelshein 2018; Dao et al. 2022): scores by sgemm, p = e^(score - m), and where m grows, what was
 * summed so far is scaled by e^(m_old - m_new). Tiles have a fixed size and order, so bits do not depend on the number
 * of parts. Query i sees key j if i - left <= j <= i + right and document[i] = document[j]; tiles that no query sees
 * are passed over. Query head h reads key head h / (H / Hkv). Dropout draws word (h·S + i)·T' + j of sample b, T' = T
 * rounded up to four. */
#include "attention.h"

attention attention_filled(const sc_task *task, attention a, double dropout, int64_t key) {
    a.batch = a.q->shape[0];
    a.queries = a.q->shape[1];
    a.heads = a.q->shape[2];
    a.size = a.q->shape[3];
    a.value_size = a.v->shape[3];
    a.keys = a.k->shape[1];
    a.kv_heads = a.k->shape[2];
    if (a.left < 0) a.left = a.queries;
    if (a.right < 0) a.right = a.keys;
    if (a.dropping) a.drop = sc_dropping_of(task, dropout, (uint64_t)key);
    return a;
}

const real *attention_rows(const sc_tensor *t, int64_t b, int64_t i0, int64_t rows, int64_t h, int64_t *ld,
                           real *panel) {
    int64_t size = t->shape[3], stride = t->stride[1], at = b * t->stride[0] + i0 * stride + h * t->stride[2];
    if (t->dtype == SC_REAL && (stride >= size || rows == 1)) {
        *ld = sc_max(stride, size);
        return (const real *)t->p + at;
    }
    for (int64_t i = 0; i < rows; i++) sc_load(panel + i * size, t, at + i * stride, 1, size);
    *ld = size;
    return panel;
}

void attention_store(const sc_tensor *t, int64_t b, int64_t i0, int64_t rows, int64_t h, const real *panel) {
    int64_t size = t->shape[3], at = b * t->stride[0] + i0 * t->stride[1] + h * t->stride[2];
    for (int64_t i = 0; i < rows; i++) sc_store(t, at + i * t->stride[1], 1, size, panel + i * size);
}

static const int32_t *document_of(const attention *a, int64_t b, int64_t i) {
    return (const int32_t *)a->documents->p + b * a->documents->stride[0] + i * a->documents->stride[1];
}

int attention_meets(const attention *a, int64_t b, int64_t i0, int64_t rows, int64_t j0, int64_t cols) {
    if (!a->documents) return 1;
    int32_t low[2] = {INT32_MAX, INT32_MAX}, high[2] = {INT32_MIN, INT32_MIN};
    for (int64_t n = 0; n < rows + cols; n++) {
        int side = n >= rows;
        int32_t d = *document_of(a, b, side ? j0 + n - rows : i0 + n);
        if (d < low[side]) low[side] = d;
        if (d > high[side]) high[side] = d;
    }
    return low[0] <= high[1] && low[1] <= high[0];
}

void attention_cap(const attention *a, int64_t cols, real *score, real *slope) {
    for (int64_t j = 0; j < cols; j++) {
        real t = sc_tanh(score[j] / a->softcap);
        score[j] = a->softcap * t;
        if (slope) slope[j] = 1 - t * t;
    }
}

void attention_bias(const attention *a, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t cols, real *score) {
    const int64_t *shape = a->bias->shape, *stride = a->bias->stride;
    int64_t at = (shape[0] > 1) * b * stride[0] + (shape[1] > 1) * h * stride[1] + (shape[2] > 1) * i * stride[2];
    int64_t step = shape[3] > 1 ? stride[3] : 0;
    real bias[KEYS];
    sc_load(bias, a->bias, at + j0 * step, step, cols);
    for (int64_t j = 0; j < cols; j++) score[j] += bias[j];
}

void attention_mask(const attention *a, int64_t b, int64_t i, int64_t j0, int64_t cols, real *score) {
    for (int64_t j = sc_max(0, i + a->right + 1 - j0); j < cols; j++) score[j] = -(real)INFINITY;
    for (int64_t j = 0; j < sc_min(cols, i - a->left - j0); j++) score[j] = -(real)INFINITY;
    if (!a->documents) return;
    int32_t own = *document_of(a, b, i);
    int64_t step = a->documents->stride[1];
    const int32_t *d = document_of(a, b, j0);
    for (int64_t j = 0; j < cols; j++) score[j] = d[j * step] == own ? score[j] : -(real)INFINITY;
}

void attention_drop(const attention *a, const sc_task *task, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t cols,
                    real *to, const real *x) {
    uint64_t row = (uint64_t)(h * a->queries + i) * (uint64_t)(sc_ceil(a->keys, 4) * 4);
    sc_drop(&a->drop, task, b, row + (uint64_t)j0, to, x, cols);
}

typedef struct {
    real *q, *k, *v, *score, *o, most[TILE], sum[TILE];
} panels;

/* Scores of one row become powers; o's row and the sum are brought to the new maximum. */
static void soften(const attention *a, panels *p, int64_t r, int64_t cols) {
    real *score = p->score + r * KEYS, most = sc_chunk_max(score, cols), old = p->most[r];
    if (most == -(real)INFINITY) { /* nothing visible in this tile */
        memset(score, 0, (size_t)cols * sizeof(real));
        return;
    }
    if (!(most <= old)) {
        real shrink = sc_exp(old - most), *o = p->o + r * a->value_size;
        p->sum[r] *= shrink;
        SC_ELEMENTWISE
        for (int64_t d = 0; d < a->value_size; d++) o[d] *= shrink;
        p->most[r] = most;
    }
    p->sum[r] += sc_chunk_exp(score, score, p->most[r], cols);
}

static void forward_tile(const sc_task *task, const attention *a, panels *p, int64_t b, int64_t h, int64_t i0) {
    int64_t rows = sc_min(TILE, a->queries - i0), kv = h / (a->heads / a->kv_heads), ldq, ldk, ldv;
    const real *q = attention_rows(a->q, b, i0, rows, h, &ldq, p->q);
    for (int64_t r = 0; r < rows; r++) {
        p->most[r] = -(real)INFINITY;
        p->sum[r] = 0;
    }
    memset(p->o, 0, (size_t)(rows * a->value_size) * sizeof(real));
    int64_t end = attention_end(a, i0, rows);
    for (int64_t j0 = attention_begin(a, i0); j0 < end; j0 += KEYS) {
        int64_t cols = sc_min(KEYS, end - j0);
        if (!attention_meets(a, b, i0, rows, j0, cols)) continue;
        const real *k = attention_rows(a->k, b, j0, cols, kv, &ldk, p->k);
        const real *v = attention_rows(a->v, b, j0, cols, kv, &ldv, p->v);
        sc_gemm(0, 1, rows, cols, a->size, a->scale, q, ldq, k, ldk, 0, p->score, KEYS);
        for (int64_t r = 0; r < rows; r++) {
            real *score = p->score + r * KEYS;
            if (a->softcap > 0) attention_cap(a, cols, score, NULL);
            if (a->bias) attention_bias(a, b, h, i0 + r, j0, cols, score);
            attention_mask(a, b, i0 + r, j0, cols, score);
            soften(a, p, r, cols);
            if (a->dropping) attention_drop(a, task, b, h, i0 + r, j0, cols, score, score);
        }
        sc_gemm(0, 0, rows, a->value_size, cols, 1, p->score, KEYS, v, ldv, 1, p->o, a->value_size);
    }
}

/* A sink is one score more, whose value is 0. */
static void add_sink(panels *p, int64_t r, real sink) {
    real most = sink > p->most[r] ? sink : p->most[r];
    p->sum[r] = p->sum[r] * sc_exp(p->most[r] - most) + sc_exp(sink - most);
    p->most[r] = most;
}

static void finish_tile(const attention *a, panels *p, const sc_tensor *o, const sc_tensor *lse, const sc_tensor *sinks,
                        int64_t b, int64_t h, int64_t i0) {
    int64_t rows = sc_min(TILE, a->queries - i0);
    for (int64_t r = 0; r < rows; r++) {
        real before = p->most[r];
        if (sinks->p) add_sink(p, r, (real)sc_get(sinks, h));
        real *row = p->o + r * a->value_size, scale = p->sum[r] == 0 ? 0 : 1 / p->sum[r];
        if (before != p->most[r]) scale *= sc_exp(before - p->most[r]);
        SC_ELEMENTWISE
        for (int64_t d = 0; d < a->value_size; d++) row[d] *= scale;
        sc_set(lse, (b * a->heads + h) * a->queries + i0 + r, p->most[r] + sc_log(p->sum[r]));
    }
    attention_store(o, b, i0, rows, h, p->o);
}

SC_KERNEL(attention) {
    attention a = attention_of(task, k);
    panels p;
    p.q = (real *)((char *)k->work.p + task->part * sc_cpu_attention_bytes(a.size, a.value_size, sizeof(real)));
    p.k = p.q + TILE * a.size;
    p.v = p.k + KEYS * a.size;
    p.o = p.v + KEYS * a.value_size;
    p.score = p.o + TILE * a.value_size;
    int64_t tiles = sc_ceil(a.queries, TILE);
    sc_range mine = sc_share(task, a.batch * a.heads * tiles, 1);
    for (int64_t u = mine.begin; u < mine.end; u++) {
        int64_t i0 = u % tiles * TILE, h = u / tiles % a.heads, b = u / tiles / a.heads;
        forward_tile(task, &a, &p, b, h, i0);
        finish_tile(&a, &p, &k->o, &k->lse, &k->sinks, b, h, i0);
    }
}
