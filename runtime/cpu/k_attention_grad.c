/* attention, backward: dq, dk, dv from go, q, k, v, o, lse.
 * Relies on: attention.h, k_blas.c, a workspace (work_attention).
 * Relied on by: generated code.
 *
 * With p = e^(score - lse), m the dropout mask (with its 1/(1-p)), delta_i = Σ_d go·o (Dao et al. 2022):
 *   dv = (p·m)ᵀ go,  dp = (go vᵀ)·m,  ds = p·(dp - delta)·scale·slope,  dq = ds k,  dk = dsᵀ q,
 * with the slope 1 - tanh² of a capped score, else 1. A gradient of lse adds p·dlse to ds: delta loses it. Where one
 * tile has all keys of a query, delta is Σ p·dp, which is the same but for rounding: ds then adds up to 0, so that what
 * equal keys have in common leaves dq. A part takes whole key heads: it walks over their query heads, tiles of queries,
 * tiles of keys, in this order, and adds dk and dv up in its workspace, where they stay in real until they are rounded
 * once. No two parts meet in a sum.
 */
#include "attention.h"

static attention_panels panels_of(const sc_task *task, const sc_tensor *work, const attention *a) {
    attention_panels p;
    int64_t size = a->size, value_size = a->value_size;
    p.q = (real *)((char *)work->p + task->part * sc_cpu_attention_grad_bytes(size, value_size, a->keys, sizeof(real)));
    p.go = p.q + TILE * size;
    p.dq = p.go + TILE * value_size;
    p.k = p.dq + TILE * size;
    p.v = p.k + KEYS * size;
    p.p = p.v + KEYS * value_size;
    p.ds = p.p + TILE * KEYS;
    p.dk = p.ds + TILE * KEYS;
    p.dv = p.dk + a->keys * size;
    return p;
}

void attention_statistics(const attention *a, attention_panels *p, const sc_tensor *go, const sc_tensor *o,
                          const sc_tensor *lse, const sc_tensor *dlse, int64_t b, int64_t h, int64_t i0, int64_t rows) {
    real bg[SC_CHUNK], bo[SC_CHUNK];
    for (int64_t r = 0; r < rows; r++) {
        int64_t g0 = b * go->stride[0] + (i0 + r) * go->stride[1] + h * go->stride[2];
        int64_t o0 = b * o->stride[0] + (i0 + r) * o->stride[1] + h * o->stride[2];
        real sum = 0;
        for (int64_t d = 0; d < a->value_size; d += SC_CHUNK) {
            int64_t n = sc_min(SC_CHUNK, a->value_size - d);
            sum += sc_chunk_dot(sc_in(go, g0 + d, n, bg), sc_in(o, o0 + d, n, bo), n);
        }
        int64_t row = (b * a->heads + h) * a->queries + i0 + r;
        p->dlse[r] = dlse ? (real)sc_get(dlse, row) : 0;
        p->delta[r] = sum - p->dlse[r];
        p->lse[r] = (real)sc_get(lse, row);
    }
}

/* Of the queries from i0 on: the tile of keys from j0 on. */
static bool holds_all_keys(const attention *a, int64_t i0, int64_t j0) {
    int64_t rows = sc_min(TILE, a->queries - i0);
    return j0 == attention_begin(a, i0) && attention_end(a, i0, rows) <= j0 + KEYS;
}

void attention_row_grad(const sc_task *task, const attention *a, attention_panels *p, int64_t b, int64_t h, int64_t i,
                        int64_t r, int64_t j0, int64_t cols, bool of_bias) {
    real *power = p->p + r * KEYS, *ds = p->ds + r * KEYS, lse = p->lse[r], delta = p->delta[r], scale = a->scale;
    real mask[KEYS], slope[KEYS];
    for (int64_t j = 0; j < cols; j++) mask[j] = slope[j] = 1;
    if (a->softcap > 0) attention_cap(a, cols, power, slope);
    if (a->bias) attention_bias(a, b, h, i, j0, cols, power);
    if (a->dropping) attention_drop(a, task, b, h, i, j0, cols, mask, mask);
    attention_mask(a, b, i, j0, cols, power);
    if (lse == -(real)INFINITY) lse = 0; /* a row that sees nothing: all scores are -inf */
    for (int64_t j = 0; j < cols; j++) {
        power[j] = sc_exp(power[j] - lse);
        ds[j] *= mask[j];
    }
    if (holds_all_keys(a, i - r, j0)) delta = sc_chunk_dot(power, ds, cols) - p->dlse[r];
    for (int64_t j = 0; j < cols; j++) {
        real score_grad = power[j] * (ds[j] - delta);
        ds[j] = of_bias ? score_grad : score_grad * scale * slope[j];
        power[j] *= mask[j];
    }
}

static void backward_tile(const sc_task *task, const sc_attention_grad_args *args, const attention *a,
                          attention_panels *p, int64_t b, int64_t h, int64_t i0) {
    int64_t rows = sc_min(TILE, a->queries - i0), kv = h / (a->heads / a->kv_heads), ldq, ldg, ldk, ldv;
    int64_t size = a->size, value_size = a->value_size;
    const real *q = attention_rows(a->q, b, i0, rows, h, &ldq, p->q);
    const real *g = attention_rows(&args->g, b, i0, rows, h, &ldg, p->go);
    attention_statistics(a, p, &args->g, &args->o, &args->lse, sc_given(&args->dlse), b, h, i0, rows);
    memset(p->dq, 0, (size_t)(rows * size) * sizeof(real));
    int64_t end = attention_end(a, i0, rows);
    for (int64_t j0 = attention_begin(a, i0); j0 < end; j0 += KEYS) {
        int64_t cols = sc_min(KEYS, end - j0);
        if (!attention_meets(a, b, i0, rows, j0, cols)) continue;
        const real *k = attention_rows(a->k, b, j0, cols, kv, &ldk, p->k);
        const real *v = attention_rows(a->v, b, j0, cols, kv, &ldv, p->v);
        sc_gemm(0, 1, rows, cols, size, a->scale, q, ldq, k, ldk, 0, p->p, KEYS);
        sc_gemm(0, 1, rows, cols, value_size, 1, g, ldg, v, ldv, 0, p->ds, KEYS);
        for (int64_t r = 0; r < rows; r++) attention_row_grad(task, a, p, b, h, i0 + r, r, j0, cols, false);
        sc_gemm(1, 0, cols, value_size, rows, 1, p->p, KEYS, g, ldg, 1, p->dv + j0 * value_size, value_size);
        sc_gemm(1, 0, cols, size, rows, 1, p->ds, KEYS, q, ldq, 1, p->dk + j0 * size, size);
        sc_gemm(0, 0, rows, size, cols, 1, p->ds, KEYS, k, ldk, 1, p->dq, size);
    }
    attention_store(&args->dq, b, i0, rows, h, p->dq);
}

SC_KERNEL(attention_grad) {
    attention a = attention_of(task, k);
    attention_panels p = panels_of(task, &k->work, &a);
    int64_t group = a.heads / a.kv_heads;
    sc_range mine = sc_share(task, a.batch * a.kv_heads, 1);
    for (int64_t u = mine.begin; u < mine.end; u++) {
        int64_t b = u / a.kv_heads, kv = u % a.kv_heads;
        memset(p.dk, 0, (size_t)(a.keys * (a.size + a.value_size)) * sizeof(real)); /* and dv, which follows */
        for (int64_t h = kv * group; h < (kv + 1) * group; h++)
            for (int64_t i0 = 0; i0 < a.queries; i0 += TILE) backward_tile(task, k, &a, &p, b, h, i0);
        attention_store(&k->dk, b, 0, a.keys, kv, p.dk);
        attention_store(&k->dv, b, 0, a.keys, kv, p.dv);
    }
}
