/* coalesce: a rank's slice of a table's gradient from the rows of all ranks' tokens.
 * Relies on: kernel.h.
 * Relied on by: generated code.
 *
 * dw[v,:] = Σ_groups Σ_ranks Σ_tokens rows[token,:], tokens of row v in their order; each of the three sums is rounded
 * to the slice's dtype, as where each rank's gradient is made, where shards are summed and where replicas are. Parts
 * own rows: a list of tokens for each row of the slice, by its first token and the next one of each. */
#include "../schema/workspace.h"
#include "kernel.h"

typedef struct {
    const sc_tensor *dw, *index, *rows;
    int64_t cols, tokens, slice, low, high; /* tokens of a rank; the slice is elements [low, high) of the table */
    int ranks;                              /* of a group */
    int32_t *first, *next;                  /* by row of the slice, by token; -1: none */
} table;

static real rounded(int dtype, real x) {
    return dtype == FP16 ? sc_from_fp16(sc_to_fp16(x)) : dtype == BF16 ? sc_from_bf16(sc_to_bf16(x)) : x;
}
static void flush(int dtype, real *restrict to, real *restrict from, int64_t m) {
    for (int64_t i = 0; i < m; i++) {
        to[i] += rounded(dtype, from[i]);
        from[i] = 0;
    }
}

/* Columns c .. c+m of row v of the table, whose first token is n. */
static void sum_row(const table *t, int64_t v, int32_t n, int64_t c, int64_t m) {
    real of_rank[SC_CHUNK] = {0}, of_group[SC_CHUNK] = {0}, sum[SC_CHUNK] = {0}, buffer[SC_CHUNK];
    int dtype = t->dw->dtype;
    while (n >= 0) {
        const real *x = sc_in(t->rows, n * t->cols + c, m, buffer);
        for (int64_t i = 0; i < m; i++) of_rank[i] += x[i];
        int64_t rank = n / t->tokens, after = t->next[n] < 0 ? INT64_MAX : t->next[n] / t->tokens;
        if (after != rank) flush(dtype, of_group, of_rank, m);
        if (after / t->ranks != rank / t->ranks) flush(dtype, sum, of_group, m);
        n = t->next[n];
    }
    sc_store(t->dw, v * t->cols + c - t->low, 1, m, sum);
}

static void list_tokens(const table *t, int64_t base, int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; v++) t->first[v - base] = -1;
    for (int64_t n = sc_numel(t->index) - 1; n >= 0; n--) {
        int64_t v = sc_index(t->index, n);
        if (v < begin || v >= end) continue;
        t->next[n] = t->first[v - base];
        t->first[v - base] = (int32_t)n;
    }
}

SC_KERNEL(coalesce) {
    sc_coord shard = task->coord[k->shard], replicate = task->coord[k->replicate];
    table t = {.dw = &k->y, .index = &k->index, .rows = &k->g, .cols = k->cols, .ranks = shard.of};
    int64_t all = k->rows * t.cols, size = sc_size(t.dw->dtype);
    t.slice = k->slice;
    t.tokens = sc_numel(t.index) / (shard.of * replicate.of);
    t.low = sc_min(all, t.slice * shard.at);
    t.high = sc_min(all, t.low + t.slice);
    int64_t base = t.low / t.cols, rows = sc_ceil(t.high, t.cols) - base;
    if (task->part == 0) {
        int64_t filled = t.high - t.low;
        memset((char *)t.dw->p + filled * size, 0, (size_t)((t.slice - filled) * size));
    }
    if (t.high == t.low) return;
    t.first = k->work.p;
    t.next = t.first + sc_cpu_coalesce_rows(t.slice, t.cols);
    sc_range mine = sc_share(task, rows, 1);
    list_tokens(&t, base, base + mine.begin, base + mine.end);
    for (int64_t v = base + mine.begin; v < base + mine.end; v++) {
        int64_t from = sc_max(v * t.cols, t.low) - v * t.cols, to = sc_min((v + 1) * t.cols, t.high) - v * t.cols;
        for (int64_t c = from; c < to; c += SC_CHUNK) sum_row(&t, v, t.first[v - base], c, sc_min(SC_CHUNK, to - c));
    }
}
