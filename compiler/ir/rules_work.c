/* Rules of workspaces: bytes of staging memory that an op's kernel asks for, on the machine that will run it. They are
 * storages like any other, so that kernels never allocate.
 * Relies on: rules.h.
 * Relied on by: ops.def; the kernels of both targets, which divide the bytes as it is said here. */
#include "rules.h"

/* CPU: fp32 and fp64 operands are multiplied where they lie. Others are converted panel by panel: 4 MiB a thread, in
 * which the kernel keeps fp32 panels of op(a), op(b) and the result.
 * CUDA: what cuBLASLt's algorithms may use; every product of a build has equally much, so that the same algorithm is
 * chosen wherever a shape stands. */
int64_t work_matmul(const Op *op, const Machine *m) {
    if (m->cuda) return 32 << 20;
    Dtype d = op->in[0]->dtype, y = op->out[0]->dtype;
    return (d == FP32 || d == FP64) && y == d ? 0 : (int64_t)m->threads * (4 << 20);
}

/* CPU, per thread, in `real` (fp32, or fp64 for fp64 operands), T keys, D the head size; the kernel's tiles have at
 * most 128 queries and 128 keys: 512 × D + 128 × 128          forward: q, k, v, o of a tile, its scores 640 × D + 2 ×
 * 128 × 128      backward: and go, the scores' gradient 2 × T × D                    backward: dk, dv of one key head
 * rounded up to 64 bytes; part p of the kernel uses the p-th slice. */
int64_t work_attention(const Op *op, const Machine *m) {
    bool backward = op->kind == OP_ATTENTION_GRAD;
    const Value *q = op->in[backward], *k = op->in[backward + 1];
    int64_t d = q->shape[3], elements = backward ? 640 * d + 32768 + 2 * k->shape[1] * d : 512 * d + 16384;
    return m->threads * round_up(elements * dtype_size(stat_dtype(q->dtype)), 64);
}
