/* What attention's backward needs of its workspace where cuDNN computes it: the compiler reserves it, the kernel
 * divides it. Relies on: nothing. Relied on by: compiler/ir/rules_work.c, runtime/cuda/k_attention_cudnn.cu,
 * tests/gpu/test_attention_shapes.cu. */
#ifndef SC_SCHEMA_WORKSPACE_H
#define SC_SCHEMA_WORKSPACE_H

#include <stdbool.h>
#include <stdint.h>

static inline int64_t sc_round_up(int64_t n, int64_t step) {
    return (n + step - 1) / step * step;
}

/* Bytes of one call over `samples` times `key_heads`, each of which `group` query heads share; rows: queries. Ours: the
 * softmax sum of every row in fp32, and where bits need not repeat the sum of dQ in fp32, each a multiple of 256 bytes.
 * cuDNN's, by CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE of engine 6 in 9.19 on an H200: 256 bytes; where bits repeat dS
 * in 16 bits, its rows rounded up to 64 and its keys to 128; where query heads share a key head the gradients of k and
 * v in 16 bits for each query head. At 1x8192, 32/8 heads of 128, that are the 4225 MiB of
 * bench/results/2026-11-20-h200-attention.md. */
static inline int64_t sc_cudnn_backward_bytes(int64_t samples, int64_t key_heads, int64_t group, int64_t rows,
                                              int64_t keys, int64_t head_size, bool repeats) {
    int64_t heads = samples * key_heads * group, bytes = sc_round_up(heads * rows * 4, 256) + 256;
    if (repeats)
        bytes += heads * sc_round_up(rows, 64) * sc_round_up(keys, 128) * 2;
    else
        bytes += sc_round_up(heads * rows * head_size * 4, 256);
    if (group > 1) bytes += 2 * heads * keys * head_size * 2;
    return sc_round_up(bytes, 256);
}

/* What the compiler reserves beyond that for each call, for versions that ask for more. */
enum { SC_CUDNN_SPARE = (64 << 10) - 256 };

#endif
