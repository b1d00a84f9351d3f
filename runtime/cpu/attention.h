/* What the two halves of attention share: its operands, tiles, masks and panels.
 * Relies on: kernel.h.
 * Relied on by: k_attention.c, k_attention_grad.c, k_attention_bias_grad.c. */
#ifndef SC_ATTENTION_H
#define SC_ATTENTION_H

#include "../schema/workspace.h"
#include "kernel.h"

enum { TILE = SC_CPU_ATTENTION_QUERIES, KEYS = SC_CPU_ATTENTION_KEYS }; /* queries and keys of a tile */

typedef struct {
    const sc_tensor *q, *k, *v, *documents, *bias;                   /* from documents on NULL where there are none */
    int64_t batch, queries, keys, heads, kv_heads, size, value_size; /* size: of a head of q and k */
    int64_t left, right; /* query i sees keys i - left to i + right; -1: all */
    real scale, softcap; /* softcap: 0: none */
    sc_dropping drop;
    int dropping;
    real *work; /* this part's panels */
} attention;

/* k: the args of attention or of one of its gradients. */
#define attention_of(task, k)                                                                                          \
    attention_filled(task,                                                                                             \
                     (attention){.q = &(k)->q,                                                                         \
                                 .k = &(k)->k,                                                                         \
                                 .v = &(k)->v,                                                                         \
                                 .documents = sc_given(&(k)->documents),                                               \
                                 .bias = sc_given(&(k)->bias),                                                         \
                                 .left = (k)->before - 1,                                                              \
                                 .right = (k)->causal ? 0 : (k)->after - 1,                                            \
                                 .scale = (real)(k)->scale,                                                            \
                                 .softcap = (real)(k)->softcap,                                                        \
                                 .dropping = (k)->dropout > 0},                                                        \
                     (k)->dropout, (k)->key)
attention attention_filled(const sc_task *task, attention a, double dropout, int64_t key);

/* `rows` rows of t[b, i0.., h, :] as reals: in place, or converted into the panel. */
const real *attention_rows(const sc_tensor *t, int64_t b, int64_t i0, int64_t rows, int64_t h, int64_t *ld,
                           real *panel);
void attention_store(const sc_tensor *t, int64_t b, int64_t i0, int64_t rows, int64_t h, const real *panel);

/* The first tile of keys, and one past the last key, that one of queries i0.. i0+rows may see. */
static inline int64_t attention_begin(const attention *a, int64_t i0) {
    return sc_max(0, i0 - a->left) / KEYS * KEYS;
}
static inline int64_t attention_end(const attention *a, int64_t i0, int64_t rows) {
    return sc_min(a->keys, i0 + rows + a->right);
}
/* Whether some query of the tile may share a document with some key of it. */
int attention_meets(const attention *a, int64_t b, int64_t i0, int64_t rows, int64_t j0, int64_t cols);
/* Scores, capped; where slope is given, what the cap's slope is there. */
void attention_cap(const attention *a, int64_t cols, real *score, real *slope);
/* Adds the bias of query i and keys j0.. to their scores. */
void attention_bias(const attention *a, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t cols, real *score);
/* Sets the scores of keys j0.. that query i must not see to -inf. */
void attention_mask(const attention *a, int64_t b, int64_t i, int64_t j0, int64_t cols, real *score);
/* to = x · dropout mask of query i's keys j0... */
void attention_drop(const attention *a, const sc_task *task, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t cols,
                    real *to, const real *x);

/* ── what the gradients share ───────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    real *q, *go, *dq, *k, *v, *p, *ds, *dk, *dv;
    real lse[TILE], delta[TILE], dlse[TILE];
} attention_panels;

/* lse, dlse and delta of a tile's queries; dlse: NULL: none. */
void attention_statistics(const attention *a, attention_panels *p, const sc_tensor *go, const sc_tensor *o,
                          const sc_tensor *lse, const sc_tensor *dlse, int64_t b, int64_t h, int64_t i0, int64_t rows);
/* One row: products of q and k in p->p become p·mask, go vᵀ in p->ds the gradient of the products, or (of_bias) of what
 * the softmax takes. */
void attention_row_grad(const sc_task *task, const attention *a, attention_panels *p, int64_t b, int64_t h, int64_t i,
                        int64_t r, int64_t j0, int64_t cols, bool of_bias);

#endif
