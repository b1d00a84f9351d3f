/* Bytes of workspaces: the compiler reserves them (compiler/ir/rules_work.c), the kernels divide them or check them.
 * Relies on: nothing.
 * Relied on by: compiler/ir/rules_work.c; kernels of both targets, and their tests. */
#ifndef SC_SCHEMA_WORKSPACE_H
#define SC_SCHEMA_WORKSPACE_H

#include <stdbool.h>
#include <stdint.h>

static inline int64_t sc_round_up(int64_t n, int64_t step) {
    return (n + step - 1) / step * step;
}

/* ── CPU: what one part of a kernel uses; part p has the p-th of `threads` such slices. `real`: bytes of an element ───
 */
/* Panels of op(a), op(b) and the result, in `real`. */
enum { SC_CPU_MATMUL_BYTES = 4 << 20 };

/* The queries and the keys of a tile. */
enum { SC_CPU_ATTENTION_QUERIES = 64, SC_CPU_ATTENTION_KEYS = 128 };

/* q and o, k and v of a tile; its scores. size: of a head of q and k, value_size: of v. */
static inline int64_t sc_cpu_attention_bytes(int64_t size, int64_t value_size, int64_t real) {
    const int64_t queries = SC_CPU_ATTENTION_QUERIES, keys = SC_CPU_ATTENTION_KEYS;
    return sc_round_up(((queries + keys) * (size + value_size) + queries * keys) * real, 64);
}

/* q, go and dq, k and v of a tile; its scores and their gradient; dk and dv of one key head, which has `all` keys. */
static inline int64_t sc_cpu_attention_grad_bytes(int64_t size, int64_t value_size, int64_t all, int64_t real) {
    const int64_t queries = SC_CPU_ATTENTION_QUERIES, keys = SC_CPU_ATTENTION_KEYS, both = size + value_size;
    return sc_round_up(((queries + keys + all) * both + queries * size + 2 * queries * keys) * real, 64);
}

/* q and go, k and v of a tile; its scores, their gradient, and the sum of these. */
static inline int64_t sc_cpu_attention_bias_grad_bytes(int64_t size, int64_t value_size, int64_t real) {
    const int64_t queries = SC_CPU_ATTENTION_QUERIES, keys = SC_CPU_ATTENTION_KEYS;
    return sc_round_up(((queries + keys) * (size + value_size) + 3 * queries * keys) * real, 64);
}

/* A matrix twice, X and the next one, and two squares of its shorter side. */
static inline int64_t sc_cpu_orthogonalize_bytes(int64_t shorter, int64_t longer, int64_t real) {
    return sc_round_up(2 * shorter * (shorter + longer) * real, 64);
}

/* int32: the first of `tokens` tokens for each of the table's rows in a slice of `numel` elements, which may begin and
 * end within a row; the next token of the same row for each token. */
static inline int64_t sc_cpu_coalesce_rows(int64_t numel, int64_t cols) {
    return numel / cols + 2;
}
static inline int64_t sc_cpu_coalesce_bytes(int64_t numel, int64_t cols, int64_t tokens) {
    return (sc_cpu_coalesce_rows(numel, cols) + tokens) * 4;
}

/* sort and topk: an item is an element's place in the order and its index. A row's items twice, from which they are
 * merged; the k first of a row. */
enum { SC_CPU_ITEM = 16 };
static inline int64_t sc_cpu_sort_bytes(int64_t cols) {
    return 2 * cols * SC_CPU_ITEM;
}
static inline int64_t sc_cpu_topk_bytes(int64_t k) {
    return k * SC_CPU_ITEM;
}

/* scatter_add: the sums before they are rounded, where the results are no reals. */
static inline int64_t sc_cpu_scatter_bytes(int64_t numel, int64_t real) {
    return numel * real;
}

/* ── order, both targets ──────────────────────────────────────────────────────────────────────────────────────────────
 */
/* The most elements that topk finds; rows of at most so many elements, of which a GPU's warp finds at most so many;
 * what a block of a GPU sorts in shared memory. */
enum { SC_MOST_TOPK = 1024, SC_TOPK_ROW = 1024, SC_TOPK_WARP = 32, SC_SORT_TILE = 2048 };

/* The most groups that slots are sorted by. Of each: where its next slot goes, and where its rows end, as int64. */
enum { SC_ROUTE_GROUPS = 1024 };
static inline int64_t sc_cpu_route_bytes(int64_t groups) {
    return 2 * groups * 8;
}

/* ── CUDA ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* A float a row: the losses of cross_entropy; the sums of go·o over the head size in attention_grad. */
static inline int64_t sc_cuda_row_sums_bytes(int64_t rows) {
    return rows * 4;
}

/* route: pieces of the slots, each of which a warp sorts, and for each the slots of every group before it, as int32. */
static inline int64_t sc_cuda_route_piece(int64_t slots) {
    int64_t piece = sc_round_up((slots + 127) / 128, 32);
    return piece < 256 ? 256 : piece;
}
static inline int64_t sc_cuda_route_bytes(int64_t slots, int64_t groups) {
    int64_t piece = sc_cuda_route_piece(slots);
    return ((slots + piece - 1) / piece + 1) * groups * 4;
}

/* sum_squares: a float for each block of this many elements. */
enum { SC_SQUARES_BLOCK = 4096 };
static inline int64_t sc_cuda_sum_squares_bytes(int64_t numel) {
    return (numel + SC_SQUARES_BLOCK - 1) / SC_SQUARES_BLOCK * 4;
}

/* Tokens sorted by their row of a table, int32: count [rows], start [rows + 1], slot [tokens], order [tokens]. */
static inline int64_t sc_cuda_sorted_tokens_bytes(int64_t rows, int64_t tokens) {
    return sc_round_up((2 * rows + 1 + 2 * tokens) * 4, 16);
}

/* embedding_grad: the sorted tokens; then floats [⌈tokens / SC_LONG_ROW⌉][2][cols] for rows of more tokens than that.
 */
enum { SC_LONG_ROW = 128 };
static inline int64_t sc_cuda_embedding_grad_bytes(int64_t rows, int64_t tokens, int64_t cols) {
    return sc_cuda_sorted_tokens_bytes(rows, tokens) + (tokens + SC_LONG_ROW - 1) / SC_LONG_ROW * 2 * cols * 4;
}

/* sort: items of 8 bytes, twice, between which runs are merged; rows of a tile need none. */
static inline int64_t sc_cuda_sort_bytes(int64_t rows, int64_t cols) {
    return cols > SC_SORT_TILE ? 2 * rows * cols * 8 : 0;
}

/* scatter_add where more than this many elements of the source go to one column: the sorted items, twice. */
enum { SC_SCATTER_FEW = 32 };
static inline int64_t sc_cuda_scatter_bytes(int64_t each, int64_t numel) {
    return each > SC_SCATTER_FEW ? 2 * numel * 8 : 0;
}

/* scan: of each tile of a row that has several its total. */
enum { SC_SCAN_TILE = 2048 };
static inline int64_t sc_cuda_scan_bytes(int64_t rows, int64_t cols) {
    return cols > SC_SCAN_TILE ? rows * ((cols + SC_SCAN_TILE - 1) / SC_SCAN_TILE) * 8 : 0;
}

/* ── CUDA: attention's backward of our own on compute capability 9.0 ──────────────────────────────────────────────────
 */
/* The queries and the keys of a tile; the keys where heads are wider than 128. */
enum { SC_HOPPER_QUERIES = 64, SC_HOPPER_KEYS = 128, SC_HOPPER_KEYS_WIDE = 64 };

/* Where what lies, in bytes: dq's sums in fp32 of the lower and of the upper half of the keys (none where heads are
 * wider than 128, for which dq has a kernel of its own), those of dk and dv, lse and delta of every row (rows rounded
 * up to whole tiles), counters of parts of all sums, the next job, the blocks of keys that a tile of queries may share
 * documents with.
 *
 * block: keys of one. tiles: of queries. half: the first block of keys of the upper half, which tiles of queries from
 * `first` on see. Without causality, and in a window of less than half of the keys, all blocks of keys have about as
 * much to do: then there is no upper half. splits: jobs that share the query heads of a key head, so that a GPU of an
 * H100's 132 multiprocessors has enough of them; more than one: they add up dk and dv. The number depends on shapes
 * alone, as bits do. left: how many keys before its own a query sees. size: of a head of q and k, or of v where that is
 * wider. */
typedef struct {
    int64_t block, tiles, half, first, splits;
    int64_t lower, upper, of_keys, lse, delta, counters, key_counters, ticket, documents, all;
} sc_hopper_grad_room;

/* The fewest jobs for each key head, so that at most 15 % of the multiprocessors wait for the last; else those with
 * which the fewest do. */
static inline int64_t sc_hopper_splits(int64_t jobs, int64_t group) {
    int64_t best = 1;
    double most = 0;
    for (int64_t n = 1; n <= group && most < 0.85; n++) {
        int64_t rounds = (jobs * n + 131) / 132;
        double busy = group % n ? 0 : (double)(jobs * n) / (132 * (double)rounds);
        if (busy > most) best = n, most = busy;
    }
    return best;
}

static inline sc_hopper_grad_room sc_hopper_grad_bytes(int64_t batch, int64_t queries, int64_t keys, int64_t heads,
                                                       int64_t key_heads, int64_t size, bool causal, int64_t left,
                                                       bool documents) {
    sc_hopper_grad_room r;
    int64_t n = batch * heads, wide = size > 128, d = wide ? 0 : size > 64 ? 128 : 64;
    r.block = wide ? SC_HOPPER_KEYS_WIDE : SC_HOPPER_KEYS;
    int64_t blocks = (keys + r.block - 1) / r.block;
    r.tiles = (queries + SC_HOPPER_QUERIES - 1) / SC_HOPPER_QUERIES;
    r.half = !wide && causal && left >= keys / 2 ? (blocks + 1) / 2 : blocks;
    r.first = r.half * (r.block / SC_HOPPER_QUERIES);
    if (r.half == blocks || r.first > r.tiles) r.first = r.tiles;
    r.splits = wide ? 1 : sc_hopper_splits(batch * key_heads * r.half, heads / key_heads);
    int64_t rows = n * r.tiles * SC_HOPPER_QUERIES, key_blocks = r.splits > 1 ? batch * key_heads * blocks : 0;
    r.lower = 0;
    r.upper = r.lower + rows * d * 4;
    r.of_keys = r.upper + n * (r.tiles - r.first) * SC_HOPPER_QUERIES * d * 4;
    r.lse = r.of_keys + key_blocks * r.block * d * 2 * 4;
    r.delta = r.lse + rows * 4;
    r.counters = r.delta + rows * 4;
    r.key_counters = r.counters + 2 * n * r.tiles * 4;
    r.ticket = sc_round_up(r.key_counters + key_blocks * 4 * 4, 256);
    r.documents = r.ticket + 256;
    r.all = r.documents + (documents ? sc_round_up(batch * r.tiles * 8, 256) : 0);
    return r;
}

/* ── CUDA: attention's backward by cuDNN ──────────────────────────────────────────────────────────────────────────────
 */
/* Bytes of one call over `samples` times `key_heads`, each of which `group` query heads share; rows: queries. Ours: the
 * softmax sum of every row and the sum of dQ in fp32, each a multiple of 256 bytes. cuDNN's, by
 * CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE of engine 6 in 9.19 on an H200: 256 bytes, and where query heads share a key
 * head the gradients of k and v in 16 bits for each query head. Bits do not repeat: where they do, cuDNN keeps the
 * square of the scores (bench/results/2026-11-20-h200-attention.md). */
static inline int64_t sc_cudnn_backward_bytes(int64_t samples, int64_t key_heads, int64_t group, int64_t rows,
                                              int64_t keys, int64_t head_size) {
    int64_t heads = samples * key_heads * group;
    int64_t bytes = sc_round_up(heads * rows * 4, 256) + sc_round_up(heads * rows * head_size * 4, 256) + 256;
    if (group > 1) bytes += 2 * heads * keys * head_size * 2;
    return sc_round_up(bytes, 256);
}

/* What the compiler reserves beyond that for each call, for versions that ask for more. */
enum { SC_CUDNN_SPARE = (64 << 10) - 256 };

/* orthogonalize: X and the next one, A and B, with rows of a multiple of 8 elements, bf16; partial sums of squares, and
 * the norm. How many matrices are computed at a time. */
enum { SC_ORTHOGONALIZE_PARTS = 256 };
static inline int64_t sc_cuda_orthogonalize_bytes(int64_t shorter, int64_t longer) {
    int64_t squares = 2 * shorter * sc_round_up(shorter, 8), wide = 2 * shorter * sc_round_up(longer, 8);
    return sc_round_up((squares + wide) * 2, 256) + (SC_ORTHOGONALIZE_PARTS + 64) * 4;
}
/* Where the kernels for compute capability 9.0 serve, a rank's matrices are computed together, as many as these bytes
 * hold, and at least one: X, A and B, bf16, and partial sums of squares. */
enum { SC_ORTHOGONALIZE_TOGETHER = 256 << 20 };
static inline int64_t sc_cuda_orthogonalize_together(int64_t rows, int64_t cols) {
    int64_t shorter = rows < cols ? rows : cols;
    return sc_round_up((rows * cols + 2 * shorter * shorter) * 2 + SC_ORTHOGONALIZE_PARTS * 4, 256);
}
static inline int64_t sc_cuda_orthogonalize_batch(int64_t shorter, int64_t longer, int64_t count) {
    int64_t fit = ((int64_t)64 << 20) / sc_cuda_orthogonalize_bytes(shorter, longer);
    return fit < 1 ? 1 : fit < count ? fit : count;
}

#endif
