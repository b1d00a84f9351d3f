/* attention's bias: its gradient from go, q, k, v, o, lse.
 * Relies on: attention.h, k_attention_grad.c, k_blas.c, a workspace (work_attention).
 * Relied on by: generated code.
 *
 * The gradient is p·(dp - delta) as in k_attention_grad.c, without the factors scale and slope, summed over what the
 * bias is one for. A part takes whole tiles of the gradient: it walks over the samples, heads, tiles of queries and
 * tiles of keys that share a tile, in this order, and adds them up in its workspace. At the end it adds up the tile's
 * rows where the bias is one for all queries, and its columns where it is one for all keys. */
#include "attention.h"

typedef struct {
    int64_t begin, end;
} range;

/* All of them, or the one. */
static range shared(int64_t size, int64_t all, int64_t one) {
    return size == 1 ? (range){0, all} : (range){one, one + 1};
}

/* sum += the scores' gradient of one tile. */
static void add_tile(const sc_task *task, const sc_attention_bias_grad_args *k, const attention *a, attention_panels *p,
                     real *sum, int64_t b, int64_t h, int64_t i0, range tiles) {
    int64_t rows = sc_min(TILE, a->queries - i0), kv = h / (a->heads / a->kv_heads), ldq, ldg, ldk, ldv;
    const real *q = attention_rows(a->q, b, i0, rows, h, &ldq, p->q);
    const real *g = attention_rows(&k->g, b, i0, rows, h, &ldg, p->go);
    attention_statistics(a, p, &k->g, &k->o, &k->lse, sc_given(&k->dlse), b, h, i0, rows);
    int64_t begin = sc_max(attention_begin(a, i0), tiles.begin * KEYS), seen = attention_end(a, i0, rows);
    for (int64_t j0 = begin; j0 < sc_min(tiles.end * KEYS, seen); j0 += KEYS) {
        int64_t cols = sc_min(KEYS, seen - j0);
        if (!attention_meets(a, b, i0, rows, j0, cols)) continue;
        const real *keys = attention_rows(a->k, b, j0, cols, kv, &ldk, p->k);
        const real *values = attention_rows(a->v, b, j0, cols, kv, &ldv, p->v);
        sc_gemm(0, 1, rows, cols, a->size, a->scale, q, ldq, keys, ldk, 0, p->p, KEYS);
        sc_gemm(0, 1, rows, cols, a->value_size, 1, g, ldg, values, ldv, 0, p->ds, KEYS);
        for (int64_t r = 0; r < rows; r++) {
            attention_row_grad(task, a, p, b, h, i0 + r, r, j0, cols, true);
            SC_ELEMENTWISE
            for (int64_t j = 0; j < cols; j++) sum[r * KEYS + j] += p->ds[r * KEYS + j];
        }
    }
}

/* Row 0 becomes the sum of all rows; column 0 the sum of all columns. */
static void add_rows(real *sum) {
    for (int64_t r = 1; r < TILE; r++)
        for (int64_t j = 0; j < KEYS; j++) sum[j] += sum[r * KEYS + j];
}
static void add_columns(real *sum, int64_t rows) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 1; j < KEYS; j++) sum[r * KEYS] += sum[r * KEYS + j];
}

SC_KERNEL(attention_bias_grad) {
    attention a = attention_of(task, k);
    const int64_t *size = k->dbias.shape, *stride = k->dbias.stride;
    attention_panels p;
    p.q =
        (real *)((char *)k->work.p + task->part * sc_cpu_attention_bias_grad_bytes(a.size, a.value_size, sizeof(real)));
    p.go = p.q + TILE * a.size;
    p.k = p.go + TILE * a.value_size;
    p.v = p.k + KEYS * a.size;
    p.p = p.v + KEYS * a.value_size;
    p.ds = p.p + TILE * KEYS;
    real *sum = p.ds + TILE * KEYS;
    int64_t across = sc_ceil(size[3], KEYS), down = sc_ceil(size[2], TILE);
    int64_t query_tiles = sc_ceil(a.queries, TILE), key_tiles = sc_ceil(a.keys, KEYS);
    sc_range mine = sc_share(task, size[0] * size[1] * down * across, 1);
    for (int64_t u = mine.begin; u < mine.end; u++) {
        int64_t tj = u % across, ti = u / across % down, th = u / across / down % size[1],
                tb = u / across / down / size[1];
        range samples = shared(size[0], a.batch, tb), heads = shared(size[1], a.heads, th);
        range rows = shared(size[2], query_tiles, ti), columns = shared(size[3], key_tiles, tj);
        memset(sum, 0, TILE * KEYS * sizeof(real));
        for (int64_t b = samples.begin; b < samples.end; b++)
            for (int64_t h = heads.begin; h < heads.end; h++)
                for (int64_t i = rows.begin; i < rows.end; i++) add_tile(task, k, &a, &p, sum, b, h, i * TILE, columns);
        if (size[2] == 1) add_rows(sum);
        int64_t left = sc_min(TILE, size[2] - ti * TILE), at = tb * stride[0] + th * stride[1];
        if (size[3] == 1) add_columns(sum, left);
        for (int64_t r = 0; r < left; r++)
            sc_store(&k->dbias, at + (ti * TILE + r) * stride[2] + tj * KEYS, 1, sc_min(KEYS, size[3] - tj * KEYS),
                     sum + r * KEYS);
    }
}
