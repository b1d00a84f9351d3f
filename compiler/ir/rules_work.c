/* Rules of workspaces: bytes of staging memory that an op's kernel asks for, on the machine that will run it. They are
 * storages like any other, so that kernels never allocate. What a kernel must know too is in schema/workspace.h.
 * Relies on: rules.h, schema/workspace.h.
 * Relied on by: ops.def. */
#include "rules.h"
#include "schema/matrices.h"
#include "schema/workspace.h"

/* CPU: operands in the dtype that the kernels compute in, and fp64, are multiplied where they lie. Others are converted
 * panel by panel. CUDA: what cuBLASLt's algorithms may use. All products of a build get the same workspace, so that
 * products of one shape get the same algorithm. */
enum { CUBLASLT_BYTES = 32 << 20 };

int64_t work_matmul(const Op *op, const Machine *m) {
    if (m->cuda) return CUBLASLT_BYTES;
    Dtype d = op->matmul.a->dtype, y = op->matmul.y->dtype;
    return ((d == FP32 && !m->wide) || d == FP64) && y == d ? 0 : (int64_t)m->threads * SC_CPU_MATMUL_BYTES;
}

int64_t work_matmul_quantize(const Op *op, const Machine *m) {
    return m->cuda ? CUBLASLT_BYTES : (int64_t)m->threads * SC_CPU_MATMUL_BYTES;
}

static int64_t cudnn_backward_bytes(const Value *q, const Value *k, int64_t samples, int64_t heads) {
    return SC_CUDNN_SPARE +
           sc_cudnn_backward_bytes(samples, heads, q->shape[2] / k->shape[2], q->shape[1], k->shape[1], q->shape[3]);
}

/* Equal parts of the batch, or of one sample's key heads, two at a time, as large as 2.25 GiB permit, else the
 * smallest; the kernel takes the largest parts that fit. */
static int64_t cudnn_parts_bytes(const Value *q, const Value *k) {
    const int64_t most = (int64_t)9 << 28, samples = q->shape[0], heads = k->shape[2];
    int64_t bytes = 0;
    for (int64_t n = 1; n <= samples; n++) {
        if (samples % n) continue;
        bytes = (n > 1 ? 2 : 1) * cudnn_backward_bytes(q, k, samples / n, heads);
        if (bytes <= most) return bytes;
    }
    for (int64_t n = 2; n <= heads; n++) {
        if (heads % n) continue;
        bytes = 2 * cudnn_backward_bytes(q, k, 1, heads / n);
        if (bytes <= most) return bytes;
    }
    return bytes;
}

static int64_t hopper_backward_bytes(Attention x) {
    const int64_t *q = x.q->shape, left = x.left < 0 ? q[1] : min64(x.left, q[1]);
    int64_t size = max64(q[3], x.v->shape[3]);
    return sc_hopper_grad_bytes(q[0], q[1], x.k->shape[1], q[2], x.k->shape[2], size, x.causal, left,
                                x.documents != NULL)
        .all;
}

/* CPU: a slice a thread, in fp32; in fp64 in the test build, or for fp64 operands.
 * CUDA, our own kernels: tiles live in shared memory; the backward keeps Σ_d go·o of every row, fp32 [B, H, S]. Where
 * cuDNN or the kernels for compute capability 9.0 take part, what these use. */
int64_t work_attention(const Op *op, const Machine *m) {
    bool backward = op->kind == OP_attention_grad;
    Attention x = rule_attention(op);
    const Value *q = x.q, *k = x.k;
    if (m->cuda) {
        int64_t ours = backward ? sc_cuda_row_sums_bytes(q->shape[0] * q->shape[1] * q->shape[2]) : 0;
        switch (rule_attention_kernel(op)) {
        case ATTENTION_HOPPER: return backward ? max64(hopper_backward_bytes(x), ours) : 0;
        case ATTENTION_CUDNN: return max64(backward ? cudnn_parts_bytes(q, k) : 4096, ours);
        default: return ours;
        }
    }
    int64_t real = dtype_size(m->wide ? FP64 : rule_stat_dtype(q->dtype));
    int64_t size = q->shape[3], value_size = x.v->shape[3];
    if (op->kind == OP_attention_bias_grad)
        return m->threads * sc_cpu_attention_bias_grad_bytes(size, value_size, real);
    return m->threads * (backward ? sc_cpu_attention_grad_bytes(size, value_size, k->shape[1], real)
                                  : sc_cpu_attention_bytes(size, value_size, real));
}

/* ── CUDA: reductions in two stages ──────────────────────────────────────────────────────────────────────────────── */
/* fp32 partial sums, `planes` for each of `results`. The `reduced` elements of a result are cut into runs, so that a
 * large GPU has work for all its threads. The number of runs depends on shapes only, and so do the sums' bits. */
static int64_t partial_bytes(int64_t results, int64_t reduced, int64_t planes) {
    int64_t n = min64((262144 + results - 1) / results, results > 64 ? 256 : 1024);
    n = min64(n, reduced / 64);
    return n > 1 ? n * results * planes * 4 : 0;
}

/* Floats: [runs][results]. */
int64_t work_reduce(const Op *op, const Machine *m) {
    int64_t results = value_numel(op_result(op));
    return m->cuda ? partial_bytes(results, value_numel(op_operand(op)) / results, 1) : 0;
}

/* Floats: [runs][dw, and db where there is one][columns]. */
int64_t work_norm_grad_w(const Op *op, const Machine *m) {
    int64_t cols = value_numel(RESULT_OF(op, dw));
    return m->cuda ? partial_bytes(cols, rule_rows(OPERAND_OF(op, x)), op->nout) : 0;
}

/* Floats: [runs][dw, db and ds where there are such][columns]. Runs of blocks that take rows whole: two for each
 * multiprocessor, of 64 rows or more; where a block takes one row at a time, four (three with db), of 16 rows or more.
 */
int64_t work_norm_grads(const Op *op, const Machine *m) {
    const Value *x = OPERAND_OF(op, x);
    int64_t cols = value_numel(RESULT_OF(op, dw)), rows = rule_rows(x);
    bool block = cols * dtype_size(x->dtype) > 2048;
    int each = !block ? 2 : op->kind == OP_rms_norm_grads ? 4 : 3;
    int64_t n = min64(each * m->multiprocessors, rows / (block ? 16 : 64));
    return m->cuda && n > 1 ? n * cols * (op->nout - 1) * 4 : 0;
}

int64_t work_cross_entropy(const Op *op, const Machine *m) {
    int64_t rows = rule_rows(op->cross_entropy.logits);
    if (op->cross_entropy.rows) return 0;
    if (m->cuda) return sc_cuda_row_sums_bytes(rows);
    /* The CPU's kernel finds the other losses again from a row's results. */
    return op->cross_entropy.smoothing > 0 ? rows * dtype_size(op->cross_entropy.loss->dtype) : 0;
}

int64_t work_sum_squares(const Op *op, const Machine *m) {
    return m->cuda ? sc_cuda_sum_squares_bytes(value_numel(op->sum_squares.x)) : 0;
}

int64_t work_embedding_grad(const Op *op, const Machine *m) {
    const Value *dw = op->embedding_grad.dw;
    int64_t tokens = value_numel(op->embedding_grad.index);
    return m->cuda ? sc_cuda_embedding_grad_bytes(dw->shape[0], tokens, dw->shape[1]) : 0;
}

int64_t work_coalesce(const Op *op, const Machine *m) {
    int64_t tokens = value_numel(op->coalesce.index);
    return m->cuda ? sc_cuda_sorted_tokens_bytes(op->coalesce.rows, tokens)
                   : sc_cpu_coalesce_bytes(op->coalesce.slice, op->coalesce.cols, tokens);
}

/* ── experts ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
int64_t work_route(const Op *op, const Machine *m) {
    int64_t slots = value_numel(op->route.index);
    return m->cuda ? sc_cuda_route_bytes(slots, op->route.groups) : m->threads * sc_cpu_route_bytes(op->route.groups);
}

/* CPU: panels as a product's, for whatever is not in the dtype that the kernels compute in. */
int64_t work_grouped_matmul(const Op *op, const Machine *m) {
    Dtype d = OPERAND_OF(op, a)->dtype, y = op_result(op)->dtype;
    if (m->cuda || ((d == FP64 || (d == FP32 && !m->wide)) && y == d)) return 0;
    return (int64_t)m->threads * SC_CPU_MATMUL_BYTES;
}

/* CPU: a thread has a matrix at a time. CUDA: as many of a row of the table at a time as fit into the bytes that its
 * largest matrix takes, or 64 MiB. */
/* Of the rank with the most, for the kernels of compute capability 9.0. */
static int64_t together_bytes(const Op *op) {
    int64_t most = 0, single = 0;
    for (int i = 0, rows = op->ntable / SC_MATRICES; i < rows; i++) {
        int64_t all = 0;
        for (int k = 0; k < rows; k++) {
            sc_matrices x = sc_matrices_at(op->table, k);
            int64_t one = sc_cuda_orthogonalize_together(x.rows, x.cols);
            single = max64(single, one);
            if (x.owner == sc_matrices_at(op->table, i).owner) all += x.count * one;
        }
        most = max64(most, all);
    }
    return max64(single, min64(most, SC_ORTHOGONALIZE_TOGETHER));
}

int64_t work_orthogonalize(const Op *op, const Machine *m) {
    int64_t bytes = m->cuda ? together_bytes(op) : 0;
    for (int i = 0; i < op->ntable / SC_MATRICES; i++) {
        sc_matrices x = sc_matrices_at(op->table, i);
        int64_t r = sc_matrices_short(x), c = sc_matrices_long(x);
        bytes = max64(bytes, m->cuda ? sc_cuda_orthogonalize_batch(r, c, x.count) * sc_cuda_orthogonalize_bytes(r, c)
                                     : m->threads * sc_cpu_orthogonalize_bytes(r, c, m->wide ? 8 : 4));
    }
    return bytes;
}
