/* Rules of workspaces: bytes of staging memory that an op's kernel asks for, on the machine that will run it. They are
 * storages like any other, so that kernels never allocate.
 * Relies on: rules.h.
 * Relied on by: ops.def; the kernels of both targets, which divide the bytes as it is said here. */
#include "rules.h"

/* CPU: operands in the kernels' own `real`, and fp64, are multiplied where they lie. Others are converted panel by
 * panel: 4 MiB a thread, in which the kernel keeps panels of op(a), op(b) and the result in `real`. CUDA: what
 * cuBLASLt's algorithms may use; every product of a build has equally much, so that the same algorithm is chosen
 * wherever a shape stands. */
int64_t work_matmul(const Op *op, const Machine *m) {
    if (m->cuda) return 32 << 20;
    Dtype d = op->in[0]->dtype, y = op->out[0]->dtype;
    return ((d == FP32 && !m->wide) || d == FP64) && y == d ? 0 : (int64_t)m->threads * (4 << 20);
}

/* What cuDNN's backward uses for `samples` times `heads` key heads: 256 bytes; the softmax sum of every row, fp32; dS
 * in 16 bits where bits must repeat, else the sum of dQ in fp32; the gradients of keys of every query head where they
 * are grouped. Seen in 9.19; rows are rounded up further than there, and 64 KiB are to spare. */
static int64_t cudnn_backward_bytes(const Value *q, const Value *k, int64_t samples, int64_t heads, bool repeats) {
    int64_t rows = q->shape[1], keys = k->shape[1], size = q->shape[3], group = q->shape[2] / k->shape[2];
    int64_t all = samples * heads * group, bytes = round_up(all * rows * 4, 256) + (64 << 10);
    bytes += repeats ? all * round_up(rows, 128) * round_up(keys, 128) * 2 : all * rows * size * 4;
    return group > 1 ? bytes + 4 * all * keys * size : bytes;
}

/* Equal parts of the batch, or of one sample's key heads, two at a time, as large as 2.25 GiB permit, else the
 * smallest; the kernel takes the largest parts that fit. */
static int64_t cudnn_parts_bytes(const Value *q, const Value *k, bool repeats) {
    const int64_t most = (int64_t)9 << 28, samples = q->shape[0], heads = k->shape[2];
    int64_t bytes = 0;
    for (int64_t n = 1; n <= samples; n++) {
        if (samples % n) continue;
        bytes = (n > 1 ? 2 : 1) * cudnn_backward_bytes(q, k, samples / n, heads, repeats);
        if (bytes <= most) return bytes;
    }
    for (int64_t n = 2; n <= heads; n++) {
        if (heads % n) continue;
        bytes = 2 * cudnn_backward_bytes(q, k, 1, heads / n, repeats);
        if (bytes <= most) return bytes;
    }
    return bytes;
}

/* CPU, per thread, in `real` (fp32; fp64 in the test build, or for fp64 operands), T keys, D the head size; the
 * kernel's tiles have at most 128 queries and 128 keys:
 *   512 × D + 128 × 128          forward: q, k, v, o of a tile, its scores
 *   640 × D + 2 × 128 × 128      backward: and go, the scores' gradient
 *   2 × T × D                    backward: dk, dv of one key head
 * rounded up to 64 bytes; part p of the kernel uses the p-th slice.
 * CUDA, our own kernels: tiles live in shared memory; the backward keeps Σ_d go·o of every row, fp32 [B, H, S]. Where
 * cuDNN takes part (16-bit operands, head sizes in eights, 64 rows or more, neither dropout nor documents), what it
 * uses. */
int64_t work_attention(const Op *op, const Machine *m) {
    bool backward = op->kind == OP_ATTENTION_GRAD;
    const Value *q = op->in[backward], *k = op->in[backward + 1];
    int64_t d = q->shape[3];
    if (m->cuda) {
        int64_t ours = backward ? q->shape[0] * q->shape[1] * q->shape[2] * 4 : 0;
        bool small = q->shape[1] < 64 || k->shape[1] < 64;
        if (dtype_size(q->dtype) != 2 || d % 8 || d > 256 || small || op->i[2] || op->f[1] > 0) return ours;
        int64_t cudnn = backward ? cudnn_parts_bytes(q, k, m->deterministic) : 4096;
        return cudnn > ours ? cudnn : ours;
    }
    int64_t elements = backward ? 640 * d + 32768 + 2 * k->shape[1] * d : 512 * d + 16384;
    Dtype real = m->wide ? FP64 : stat_dtype(q->dtype);
    return m->threads * round_up(elements * dtype_size(real), 64);
}

/* ── CUDA: reductions in two stages ──────────────────────────────────────────────────────────────────────────────────
 */
/* Runs into which `reduced` elements of each of `results` are cut, so that a large GPU has work for all its threads; 1:
 * none. They depend on shapes only, and so do the sums' bits. */
static int64_t runs(int64_t results, int64_t reduced) {
    int64_t n = (262144 + results - 1) / results, most = results > 64 ? 256 : 1024;
    if (n > most) n = most;
    if (n > reduced / 64) n = reduced / 64;
    return n > 1 ? n : 1;
}
static int64_t partial_bytes(int64_t results, int64_t reduced, int64_t planes) {
    int64_t n = runs(results, reduced);
    return n > 1 ? n * results * planes * 4 : 0;
}

/* Floats: [runs][results]. */
int64_t work_reduce(const Op *op, const Machine *m) {
    int64_t results = value_numel(op->out[0]);
    return m->cuda ? partial_bytes(results, value_numel(op->in[0]) / results, 1) : 0;
}

/* Floats: [runs][dw, and db where there is one][columns]. */
int64_t work_norm_grad_w(const Op *op, const Machine *m) {
    int64_t cols = value_numel(op->out[0]);
    return m->cuda ? partial_bytes(cols, rows_of(op->in[1]), op_info[op->kind].nout) : 0;
}

/* Floats: [runs][dw, db and ds where there are such][columns]. Runs of blocks that take rows whole: two for each of 132
 * multiprocessors, of 64 rows or more; where a block takes one row at a time, four (three with db), of 16 rows or more.
 */
int64_t work_norm_grads(const Op *op, const Machine *m) {
    int64_t cols = value_numel(op->out[1]), rows = rows_of(op->in[1]);
    bool block = cols * dtype_size(op->in[1]->dtype) > 2048;
    int64_t most = !block ? 264 : op->kind == OP_RMS_NORM_GRADS ? 528 : 396;
    int64_t n = min64(most, rows / (block ? 16 : 64));
    return m->cuda && n > 1 ? n * cols * (op->nout - 1) * 4 : 0;
}

/* The rows' losses, in fp32. */
int64_t work_cross_entropy(const Op *op, const Machine *m) {
    return m->cuda ? rows_of(op->in[0]) * 4 : 0;
}

/* The sums of 4096 squares each, in fp32. */
int64_t work_sum_squares(const Op *op, const Machine *m) {
    return m->cuda ? (value_numel(op->in[0]) + 4095) / 4096 * 4 : 0;
}

/* For n tokens, V rows, D columns: int32 count [V], start [V+1], slot [n], order [n]; then, at a multiple of 16 bytes,
 * floats [⌈n / 128⌉][2][D] for rows of more than 128 tokens. */
int64_t work_embedding_grad(const Op *op, const Machine *m) {
    int64_t n = value_numel(op->in[0]), rows = op->out[0]->shape[0], cols = op->out[0]->shape[1];
    if (!m->cuda) return 0;
    return round_up((2 * rows + 1 + 2 * n) * 4, 16) + (n + 127) / 128 * 2 * cols * 4;
}

/* As embedding_grad's without the floats. On the CPU int32: the first token of each row of the slice, and the next one
 * of each token. */
int64_t work_coalesce(const Op *op, const Machine *m) {
    int64_t n = value_numel(op->in[0]), rows = op->i[0], cols = op->i[1];
    if (!m->cuda) return (op->i[4] / cols + 2 + n) * 4;
    return round_up((2 * rows + 1 + 2 * n) * 4, 16);
}
