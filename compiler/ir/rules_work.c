/* Rules of workspaces: bytes of staging memory that an op's kernel asks for, on the machine that will run it. They are
 * storages like any other, so that kernels never allocate.
 * Relies on: rules.h.
 * Relied on by: ops.def; the kernels of both targets, which divide the bytes as it is said here. */
#include "rules.h"
#include "schema/workspace.h"

/* CPU: operands in the kernels' own `real`, and fp64, are multiplied where they lie. Others are converted panel by
 * panel: 4 MiB a thread, in which the kernel keeps panels of op(a), op(b) and the result in `real`. CUDA: what
 * cuBLASLt's algorithms may use; every product of a build has equally much, so that the same algorithm is chosen
 * wherever a shape stands. */
int64_t work_matmul(const Op *op, const Machine *m) {
    if (m->cuda) return 32 << 20;
    Dtype d = op->matmul.a->dtype, y = op->matmul.y->dtype;
    return ((d == FP32 && !m->wide) || d == FP64) && y == d ? 0 : (int64_t)m->threads * (4 << 20);
}

static int64_t cudnn_backward_bytes(const Value *q, const Value *k, int64_t samples, int64_t heads, bool repeats) {
    return SC_CUDNN_SPARE + sc_cudnn_backward_bytes(samples, heads, q->shape[2] / k->shape[2], q->shape[1], k->shape[1],
                                                    q->shape[3], repeats);
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
    bool backward = op->kind == OP_attention_grad;
    const Value *q = backward ? op->attention_grad.q : op->attention.q;
    const Value *k = backward ? op->attention_grad.k : op->attention.k;
    const Value *documents = backward ? op->attention_grad.documents : op->attention.documents;
    int64_t d = q->shape[3];
    if (m->cuda) {
        int64_t ours = backward ? q->shape[0] * q->shape[1] * q->shape[2] * 4 : 0;
        bool small = q->shape[1] < 64 || k->shape[1] < 64;
        if (dtype_size(q->dtype) != 2 || d % 8 || d > 256 || small || documents || op->attention.dropout > 0)
            return ours;
        int64_t cudnn = backward ? cudnn_parts_bytes(q, k, m->deterministic) : 4096;
        return cudnn > ours ? cudnn : ours;
    }
    int64_t elements = backward ? 640 * d + 32768 + 2 * k->shape[1] * d : 512 * d + 16384;
    Dtype real = m->wide ? FP64 : rule_stat_dtype(q->dtype);
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
    int64_t results = value_numel(op->sum.y);
    return m->cuda ? partial_bytes(results, value_numel(op->sum.x) / results, 1) : 0;
}

/* Floats: [runs][dw, and db where there is one][columns]. */
int64_t work_norm_grad_w(const Op *op, const Machine *m) {
    int64_t cols = value_numel(op->layer_norm_grad_w.dw);
    return m->cuda ? partial_bytes(cols, rule_rows(op->layer_norm_grad_w.x), op->nout) : 0;
}

/* Floats: [runs][dw, db and ds where there are such][columns]. Runs of blocks that take rows whole: two for each
 * multiprocessor, of 64 rows or more; where a block takes one row at a time, four (three with db), of 16 rows or more.
 */
int64_t work_norm_grads(const Op *op, const Machine *m) {
    const Value *x = op->layer_norm_grads.x; /* of either norm: the rows begin alike */
    int64_t cols = value_numel(op->layer_norm_grads.dw), rows = rule_rows(x);
    bool block = cols * dtype_size(x->dtype) > 2048;
    int each = !block ? 2 : op->kind == OP_rms_norm_grads ? 4 : 3;
    int64_t n = min64(each * m->multiprocessors, rows / (block ? 16 : 64));
    return m->cuda && n > 1 ? n * cols * (op->nout - 1) * 4 : 0;
}

/* The rows' losses, in fp32. */
int64_t work_cross_entropy(const Op *op, const Machine *m) {
    return m->cuda ? rule_rows(op->cross_entropy.logits) * 4 : 0;
}

/* The sums of 4096 squares each, in fp32. */
int64_t work_sum_squares(const Op *op, const Machine *m) {
    return m->cuda ? (value_numel(op->sum_squares.x) + 4095) / 4096 * 4 : 0;
}

/* For n tokens, V rows, D columns: int32 count [V], start [V+1], slot [n], order [n]; then, at a multiple of 16 bytes,
 * floats [⌈n / 128⌉][2][D] for rows of more than 128 tokens. */
int64_t work_embedding_grad(const Op *op, const Machine *m) {
    const Value *dw = op->embedding_grad.dw;
    int64_t n = value_numel(op->embedding_grad.index), rows = dw->shape[0], cols = dw->shape[1];
    if (!m->cuda) return 0;
    return round_up((2 * rows + 1 + 2 * n) * 4, 16) + (n + 127) / 128 * 2 * cols * 4;
}

/* As embedding_grad's without the floats. On the CPU int32: the first token of each row of the slice, and the next one
 * of each token. */
int64_t work_coalesce(const Op *op, const Machine *m) {
    int64_t n = value_numel(op->coalesce.index), rows = op->coalesce.rows;
    if (!m->cuda) return (op->coalesce.slice / op->coalesce.cols + 2 + n) * 4;
    return round_up((2 * rows + 1 + 2 * n) * 4, 16);
}
