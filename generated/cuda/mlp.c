/* mlp: models/mlp.lua on 2 ranks of h200. Written by shardc; edits are lost.
 * One function a program, one statement an event. Addresses are bytes in the arena (34118400 in all, host arena 0);
 * T(dtype, address, shape) is a tensor, V a view with strides, H and VH lie in the host arena.
 * Relies on: runtime/sc.h, the kernels of the target, mlp_kernels. */
#include "sc.h"

sc_kernel sc_k_concat;
sc_kernel sc_k_full;
sc_kernel sc_k_grad_seed;
sc_kernel sc_k_sum;
sc_kernel sc_k_matmul;
sc_kernel sc_k_embedding;
sc_kernel sc_k_embedding_grad;
sc_kernel sc_k_cross_entropy;
sc_kernel sc_k_cross_entropy_grads;
sc_kernel sc_k_store;
sc_kernel sc_k_pick;
sc_kernel sc_k_zero_gaps;
sc_kernel sc_k_adam;
sc_kernel sc_k_sum_squares;
sc_kernel sc_k_clip_coefficient;
sc_kernel sc_k_count_step;
sc_kernel sc_k_init_param;
sc_kernel sc_k_zero;
sc_kernel sc_k_fused_0;
sc_kernel sc_k_fused_1;

static void program_init(sc_rank *r) {
    enum { zero2, zero0, zero6, zero7, zero9, zero10, i0, i1, i2, i3, i4 };

    /* ── init · mlp ──────────────────────────────────────────────────────────────────────── models/mlp.lua:43 ── */
    RUN(zero2, COMPUTE, zero, ATTR(0), T(INT64, 0x00000300, 1)); /* zero2: 8 B, mlp.lua:43 */
    RUN(zero0, COMPUTE, zero, ATTR(0), T(FP32, 0x00000000, 64)); /* zero0: 256 B, mlp.lua:43 */
    RUN(zero6, COMPUTE, zero, ATTR(0), T(FP32, 0x00000d00, 256)); /* zero6: 1.0 KiB, mlp.lua:43 */
    RUN(zero7, COMPUTE, zero, ATTR(0), T(FP32, 0x00001100, 12544)); /* zero7: 49.0 KiB, mlp.lua:30 */
    RUN(zero9, COMPUTE, zero, ATTR(0), T(FP32, 0x00013700, 12544)); /* zero9: 49.0 KiB, mlp.lua:30 */
    RUN(zero10, COMPUTE, zero, ATTR(0), T(FP32, 0x0001fb00, 12544)); /* zero10: 49.0 KiB, mlp.lua:30 */
    RUN(i0, COMPUTE, init_param, ATTR(.i = {3, 322263236266720810, 0, 4096, 12544, 2}, .f = {0.0, 1.0}),
        T(FP32, 0x00001100, 12544)); /* i0 embed: 16.0 KiB, mlp.lua:11 */
    RUN(i1, COMPUTE, init_param,
        ATTR(.i = {4, 2764186525739414950, 4096, 4096, 12544, 2}, .f = {-0.12499999999999999, 0.12499999999999999}),
        T(FP32, 0x00001100, 12544)); /* i1 up: 16.0 KiB, mlp.lua:12 */
    RUN(i2, COMPUTE, init_param, ATTR(.i = {4, 1314479649913731533, 8192, 64, 12544, 2}, .f = {-0.125, 0.125}),
        T(FP32, 0x00001100, 12544)); /* i2 up: 256 B, mlp.lua:12 */
    RUN(i3, COMPUTE, init_param,
        ATTR(.i = {4, 3325665735358413302, 8448, 16384, 12544, 2}, .f = {-0.12499999999999999, 0.12499999999999999}),
        T(FP32, 0x00001100, 12544)); /* i3 down: 49.0 KiB, mlp.lua:13 */
    RUN(i4, COMPUTE, init_param, ATTR(.i = {4, 3633928939402858047, 24832, 256, 12544, 2}, .f = {-0.125, 0.125}),
        T(FP32, 0x00001100, 12544)); /* i4 down: 1.0 KiB, mlp.lua:13 */
}

static void program_start(sc_rank *r) {
    enum { w0 };

    /* ── init · mlp ──────────────────────────────────────────────────────────────────────── models/mlp.lua:30 ── */
    RUN(w0, COMPUTE, store, ATTR(0), T(FP32, 0x00001100, 12544), T(BF16, 0x0000d500, 12544));
        /* w0: 98.0 KiB, mlp.lua:30 */
}

static const int64_t micro_u0_table[] = {0, 8256, 0, 8448, 25088, 0};
static void program_micro(sc_rank *r) {
    enum { g0f, m_zero, e2, e3, e5, e6, e8, e9, e14, e15, e17, e18, e19, e22b0, e22, m_loss, m_sum, e19b0, z0, e19b3,
        e19b4, e18b0, e17b0, e17b3, e17b4, e15b0, r0, count, n0, norm_sum, clip, m_norm, u0 };

    /* ── forward · mlp ───────────────────────────────────────────────────────────────────── models/mlp.lua:30 ── */
    sc_all_gather(r, g0f, GATHER, 0, T(BF16, 0x02064700, 25088), T(BF16, 0x0000d500, 12544));
        /* g0f: 24.5 KiB on the wire, mlp.lua:30 */
    RUN(m_zero, COMPUTE, zero, ATTR(0), T(FP32, 0x00000000, 64)); /* m_zero: 256 B, mlp.lua:43 */
    RUN(e2, COMPUTE, full, ATTR(.i = {6, 2, 8, 1}), T(INT32, 0x0002c300, 8, 1)); /* e2: 32 B, mlp.lua:20 */
    RUN(e3, COMPUTE, concat, ATTR(.i = {1}), T(INT32, 0x0002bf00, 8, 32), T(INT32, 0x0002c300, 8, 1),
        V(INT32, 0x00000400, 2, SHAPE(8, 31), STRIDE(32, 1))); /* e3: 2.0 KiB, mlp.lua:20 */
    RUN(e5, COMPUTE, full, ATTR(.i = {6, 2, 8, 2}), T(INT32, 0x0002c700, 8, 2)); /* e5: 64 B, mlp.lua:20 */
    RUN(e6, COMPUTE, concat, ATTR(.i = {1}), T(INT32, 0x0002c300, 8, 32), T(INT32, 0x0002c700, 8, 2),
        V(INT32, 0x00000400, 2, SHAPE(8, 30), STRIDE(32, 1))); /* e6: 2.0 KiB, mlp.lua:20 */
    RUN(e8, COMPUTE, full, ATTR(.i = {6, 2, 8, 3}), T(INT32, 0x0002cb00, 8, 3)); /* e8: 96 B, mlp.lua:20 */
    RUN(e9, COMPUTE, concat, ATTR(.i = {1}), T(INT32, 0x0002c700, 8, 32), T(INT32, 0x0002cb00, 8, 3),
        V(INT32, 0x00000400, 2, SHAPE(8, 29), STRIDE(32, 1))); /* e9: 2.0 KiB, mlp.lua:20 */
    RUN(e14, COMPUTE, concat, ATTR(.i = {2}), T(INT32, 0x02088b00, 8, 32, 4), T(INT32, 0x00000400, 8, 32, 1),
        T(INT32, 0x0002bf00, 8, 32, 1), T(INT32, 0x0002c300, 8, 32, 1), T(INT32, 0x0002c700, 8, 32, 1));
        /* e14: 8.0 KiB, mlp.lua:23 */
    sc_wait(r, COMPUTE, g0f); /* all_gather mlp: bf16[25088] at 0x02064700 */
    RUN(e15, COMPUTE, embedding, ATTR(0), T(BF16, 0x02070b00, 8, 32, 4, 16), T(INT32, 0x02088b00, 8, 32, 4),
        T(BF16, 0x02064700, 256, 16)); /* e15 embed: 68.0 KiB, mlp.lua:23 */
    RUN(e17, COMPUTE, matmul, ATTR(.i = {0, 1}), T(BF16, 0x02078b00, 8, 32, 64), T(BF16, 0x02070b00, 8, 32, 64),
        T(BF16, 0x02066700, 64, 64), T(BF16, 0x02068700, 64), BYTES(0x0002bf00, 33554432));
        /* e17 up: 2.1 MFLOP, mlp.lua:24 */
    RUN(e18, COMPUTE, fused_0, ATTR(0), T(BF16, 0x02078b00, 8, 32, 64), T(BF16, 0x02078b00, 8, 32, 64));
        /* e18: relu, 64.0 KiB, mlp.lua:24 */
    RUN(e19, COMPUTE, matmul, ATTR(.i = {0, 1}), T(BF16, 0x0202bf00, 8, 32, 256), T(BF16, 0x02078b00, 8, 32, 64),
        T(BF16, 0x02068900, 256, 64), T(BF16, 0x02070900, 256), BYTES(0x0002bf00, 33554432));
        /* e19 down: 8.5 MFLOP, mlp.lua:24 */

    /* ── backward · mlp ──────────────────────────────────────────────────────────────────── models/mlp.lua:38 ── */
    RUN(e22b0, COMPUTE, grad_seed, ATTR(0), T(FP32, 0x0002c300)); /* e22b0: 4 B, mlp.lua:38 */
    RUN(e22, COMPUTE, cross_entropy_grads, ATTR(.i = {-100}), T(BF16, 0x0202bf00, 256, 256), T(FP32, 0x0002c400),
        T(FP32, 0x0002bf00, 256), T(FP32, 0x0002c300), T(BF16, 0x0202bf00, 256, 256), T(INT32, 0x00000900, 256));
        /* e22: 258.0 KiB, mlp.lua:38 */

    /* ── forward · mlp ───────────────────────────────────────────────────────────────────── models/mlp.lua:43 ── */
    RUN(m_loss, COMPUTE, store, ATTR(0), T(FP32, 0x0002c400), T(FP32, 0x00000000, 64)); /* m_loss: 8 B, mlp.lua:43 */
    sc_wait(r, REDUCE, m_loss); /* store mlp: fp32[64] at 0x00000000 */
    sc_all_reduce(r, m_sum, REDUCE, 2, T(FP32, 0x00000000, 64)); /* m_sum: 256 B on the wire, mlp.lua:43 */

    /* ── backward · mlp ──────────────────────────────────────────────────────────────────── models/mlp.lua:24 ── */
    RUN(e19b0, COMPUTE, matmul, ATTR(0), T(BF16, 0x02080b00, 8, 32, 64), T(BF16, 0x0202bf00, 8, 32, 256),
        T(BF16, 0x02068900, 256, 64), BYTES(0x0002bf00, 33554432)); /* e19b0 down: 8.4 MFLOP, mlp.lua:24 */
    RUN(z0, COMPUTE, zero_gaps, ATTR(0), T(FP32, 0x02054000, 192)); /* z0: 768 B, mlp.lua:30 */
    RUN(e19b3, COMPUTE, matmul, ATTR(.i = {1, 0, 1}), T(FP32, 0x02054300, 256, 64), T(BF16, 0x0202bf00, 256, 256),
        T(BF16, 0x02078b00, 256, 64), BYTES(0x0002bf00, 33554432)); /* e19b3 down: 8.4 MFLOP, mlp.lua:24 */
    RUN(e19b4, COMPUTE, sum, ATTR(.i = {3, 0, 1}), T(FP32, 0x02064300, 256), T(BF16, 0x0202bf00, 8, 32, 256),
        BYTES(0x0002bf00, 4096)); /* e19b4 down: 129.0 KiB, mlp.lua:24 */
    RUN(e18b0, COMPUTE, fused_1, ATTR(0), T(BF16, 0x02080b00, 8, 32, 64), T(BF16, 0x02080b00, 8, 32, 64),
        T(BF16, 0x02078b00, 8, 32, 64)); /* e18b0: relu_grad, 96.0 KiB, mlp.lua:24 */
    RUN(e17b0, COMPUTE, matmul, ATTR(0), T(BF16, 0x0202bf00, 8, 32, 64), T(BF16, 0x02080b00, 8, 32, 64),
        T(BF16, 0x02066700, 64, 64), BYTES(0x0002bf00, 33554432)); /* e17b0 up: 2.1 MFLOP, mlp.lua:24 */
    RUN(e17b3, COMPUTE, matmul, ATTR(.i = {1, 0, 1}), T(FP32, 0x0204ff00, 64, 64), T(BF16, 0x02080b00, 256, 64),
        T(BF16, 0x02070b00, 256, 64), BYTES(0x0002bf00, 33554432)); /* e17b3 up: 2.1 MFLOP, mlp.lua:24 */
    RUN(e17b4, COMPUTE, sum, ATTR(.i = {3, 0, 1}), T(FP32, 0x02053f00, 64), T(BF16, 0x02080b00, 8, 32, 64),
        BYTES(0x0002bf00, 1024)); /* e17b4 up: 32.2 KiB, mlp.lua:24 */
    RUN(e15b0, COMPUTE, embedding_grad, ATTR(.i = {256, 1}), T(FP32, 0x0204bf00, 256, 16),
        T(INT32, 0x02088b00, 8, 32, 4), T(BF16, 0x0202bf00, 8, 32, 4, 16), BYTES(0x0002bf00, 11280));
        /* e15b0 embed: 116.0 KiB, mlp.lua:23 */
    sc_wait(r, REDUCE, e15b0); /* embedding_grad embed: fp32[256,16] at 0x0204bf00 */
    sc_reduce_scatter(r, r0, REDUCE, 0, T(FP32, 0x0002bf00, 12544), T(FP32, 0x0204bf00, 25088));
        /* r0: 49.0 KiB on the wire, mlp.lua:30 */

    /* ── optimizer · mlp ─────────────────────────────────────────────────────────────────── models/mlp.lua:43 ── */
    RUN(count, COMPUTE, count_step, ATTR(0), T(INT64, 0x00000300, 1)); /* count: 8 B, mlp.lua:43 */
    sc_wait(r, COMPUTE, r0); /* reduce_scatter mlp: fp32[12544] at 0x0002bf00 */
    RUN(n0, COMPUTE, sum_squares, ATTR(0), T(FP32, 0x00038300, 1), T(FP32, 0x0002bf00, 12544),
        BYTES(0x00038400, 16)); /* n0: 49.0 KiB, mlp.lua:30 */
    sc_wait(r, REDUCE, n0); /* sum_squares mlp: fp32[1] at 0x00038300 */
    sc_all_reduce(r, norm_sum, REDUCE, 0, T(FP32, 0x00038300, 1)); /* norm_sum: 4 B on the wire, mlp.lua:43 */
    sc_wait(r, COMPUTE, norm_sum); /* all_reduce mlp: fp32[1] at 0x00038300 */
    RUN(clip, COMPUTE, clip_coefficient, ATTR(0), T(FP32, 0x00038400, 1), T(FP32, 0x00038500, 1),
        T(FP32, 0x00038300, 1)); /* clip: 12 B, mlp.lua:43 */
    RUN(m_norm, COMPUTE, store, ATTR(.i = {0, 1}), T(FP32, 0x00038500, 1), T(FP32, 0x00000000, 64));
        /* m_norm: 8 B, mlp.lua:43 */
    RUN(u0, COMPUTE, adam, ATTR(.i = {1, 12544, 2}, .table = micro_u0_table, .ntable = 6),
        T(FP32, 0x0002bf00, 12544), T(FP32, 0x00001100, 12544), T(FP32, 0x00038400, 1), T(FP32, 0x00013700, 12544),
        T(FP32, 0x0001fb00, 12544), T(INT64, 0x00000300, 1), T(BF16, 0x0000d500, 12544));
        /* u0: 392.0 KiB, mlp.lua:43 */
}

static void program_eval(sc_rank *r) {
    enum { g0f, m_zero, e2, e3, e5, e6, e8, e9, e14, e15, e17, e18, e19, e22, m_loss, m_sum };

    /* ── forward · mlp ───────────────────────────────────────────────────────────────────── models/mlp.lua:30 ── */
    sc_all_gather(r, g0f, GATHER, 0, T(BF16, 0x0204bf00, 25088), T(BF16, 0x0000d500, 12544));
        /* g0f: 24.5 KiB on the wire, mlp.lua:30 */
    RUN(m_zero, COMPUTE, zero, ATTR(0), T(FP32, 0x00000000, 64)); /* m_zero: 256 B, mlp.lua:43 */
    RUN(e2, COMPUTE, full, ATTR(.i = {6, 2, 8, 1}), T(INT32, 0x0002bf00, 8, 1)); /* e2: 32 B, mlp.lua:20 */
    RUN(e3, COMPUTE, concat, ATTR(.i = {1}), T(INT32, 0x0002cf00, 8, 32), T(INT32, 0x0002bf00, 8, 1),
        V(INT32, 0x00000400, 2, SHAPE(8, 31), STRIDE(32, 1))); /* e3: 2.0 KiB, mlp.lua:20 */
    RUN(e5, COMPUTE, full, ATTR(.i = {6, 2, 8, 2}), T(INT32, 0x0002bf00, 8, 2)); /* e5: 64 B, mlp.lua:20 */
    RUN(e6, COMPUTE, concat, ATTR(.i = {1}), T(INT32, 0x0002d300, 8, 32), T(INT32, 0x0002bf00, 8, 2),
        V(INT32, 0x00000400, 2, SHAPE(8, 30), STRIDE(32, 1))); /* e6: 2.0 KiB, mlp.lua:20 */
    RUN(e8, COMPUTE, full, ATTR(.i = {6, 2, 8, 3}), T(INT32, 0x0002bf00, 8, 3)); /* e8: 96 B, mlp.lua:20 */
    RUN(e9, COMPUTE, concat, ATTR(.i = {1}), T(INT32, 0x0002d700, 8, 32), T(INT32, 0x0002bf00, 8, 3),
        V(INT32, 0x00000400, 2, SHAPE(8, 29), STRIDE(32, 1))); /* e9: 2.0 KiB, mlp.lua:20 */
    RUN(e14, COMPUTE, concat, ATTR(.i = {2}), T(INT32, 0x0002bf00, 8, 32, 4), T(INT32, 0x00000400, 8, 32, 1),
        T(INT32, 0x0002cf00, 8, 32, 1), T(INT32, 0x0002d300, 8, 32, 1), T(INT32, 0x0002d700, 8, 32, 1));
        /* e14: 8.0 KiB, mlp.lua:23 */
    sc_wait(r, COMPUTE, g0f); /* all_gather mlp: bf16[25088] at 0x0204bf00 */
    RUN(e15, COMPUTE, embedding, ATTR(0), T(BF16, 0x0202bf00, 8, 32, 4, 16), T(INT32, 0x0002bf00, 8, 32, 4),
        T(BF16, 0x0204bf00, 256, 16)); /* e15 embed: 68.0 KiB, mlp.lua:23 */
    RUN(e17, COMPUTE, matmul, ATTR(.i = {0, 1}), T(BF16, 0x02058300, 8, 32, 64), T(BF16, 0x0202bf00, 8, 32, 64),
        T(BF16, 0x0204df00, 64, 64), T(BF16, 0x0204ff00, 64), BYTES(0x0002bf00, 33554432));
        /* e17 up: 2.1 MFLOP, mlp.lua:24 */
    RUN(e18, COMPUTE, fused_0, ATTR(0), T(BF16, 0x02058300, 8, 32, 64), T(BF16, 0x02058300, 8, 32, 64));
        /* e18: relu, 64.0 KiB, mlp.lua:24 */
    RUN(e19, COMPUTE, matmul, ATTR(.i = {0, 1}), T(BF16, 0x0202bf00, 8, 32, 256), T(BF16, 0x02058300, 8, 32, 64),
        T(BF16, 0x02050100, 256, 64), T(BF16, 0x02058100, 256), BYTES(0x0002bf00, 33554432));
        /* e19 down: 8.5 MFLOP, mlp.lua:24 */
    RUN(e22, COMPUTE, cross_entropy, ATTR(.i = {-100}), T(FP32, 0x0002c700), T(FP32, 0x0002bf00, 256),
        T(BF16, 0x0202bf00, 256, 256), T(INT32, 0x00000900, 256), BYTES(0x0002c300, 1024));
        /* e22: 130.0 KiB, mlp.lua:38 */
    RUN(m_loss, COMPUTE, store, ATTR(0), T(FP32, 0x0002c700), T(FP32, 0x00000000, 64)); /* m_loss: 8 B, mlp.lua:43 */
    sc_wait(r, REDUCE, m_loss); /* store mlp: fp32[64] at 0x00000000 */
    sc_all_reduce(r, m_sum, REDUCE, 2, T(FP32, 0x00000000, 64)); /* m_sum: 256 B on the wire, mlp.lua:43 */
}

static void program_sample(sc_rank *r) {
    enum { g0f, e2, e3, e5, e6, e8, e9, e14, e15, e17, e18, e19, logits };

    /* ── forward · mlp ───────────────────────────────────────────────────────────────────── models/mlp.lua:30 ── */
    sc_all_gather(r, g0f, GATHER, 0, T(BF16, 0x0202bf00, 25088), T(BF16, 0x0000d500, 12544));
        /* g0f: 24.5 KiB on the wire, mlp.lua:30 */
    RUN(e2, COMPUTE, full, ATTR(.i = {6, 2, 1, 1}), T(INT32, 0x0002bf00, 1, 1)); /* e2: 4 B, mlp.lua:20 */
    RUN(e3, COMPUTE, concat, ATTR(.i = {1}), T(INT32, 0x0002c100, 1, 32), T(INT32, 0x0002bf00, 1, 1),
        T(INT32, 0x00000800, 1, 31)); /* e3: 256 B, mlp.lua:20 */
    RUN(e5, COMPUTE, full, ATTR(.i = {6, 2, 1, 2}), T(INT32, 0x0002bf00, 1, 2)); /* e5: 8 B, mlp.lua:20 */
    RUN(e6, COMPUTE, concat, ATTR(.i = {1}), T(INT32, 0x0002c200, 1, 32), T(INT32, 0x0002bf00, 1, 2),
        T(INT32, 0x00000800, 1, 30)); /* e6: 256 B, mlp.lua:20 */
    RUN(e8, COMPUTE, full, ATTR(.i = {6, 2, 1, 3}), T(INT32, 0x0002bf00, 1, 3)); /* e8: 12 B, mlp.lua:20 */
    RUN(e9, COMPUTE, concat, ATTR(.i = {1}), T(INT32, 0x0002c300, 1, 32), T(INT32, 0x0002bf00, 1, 3),
        T(INT32, 0x00000800, 1, 29)); /* e9: 256 B, mlp.lua:20 */
    RUN(e14, COMPUTE, concat, ATTR(.i = {2}), T(INT32, 0x0002bf00, 1, 32, 4), T(INT32, 0x00000800, 1, 32, 1),
        T(INT32, 0x0002c100, 1, 32, 1), T(INT32, 0x0002c200, 1, 32, 1), T(INT32, 0x0002c300, 1, 32, 1));
        /* e14: 1.0 KiB, mlp.lua:23 */
    sc_wait(r, COMPUTE, g0f); /* all_gather mlp: bf16[25088] at 0x0202bf00 */
    RUN(e15, COMPUTE, embedding, ATTR(0), T(BF16, 0x02038300, 1, 32, 4, 16), T(INT32, 0x0002bf00, 1, 32, 4),
        T(BF16, 0x0202bf00, 256, 16)); /* e15 embed: 8.5 KiB, mlp.lua:23 */
    RUN(e17, COMPUTE, matmul, ATTR(.i = {0, 1}), T(BF16, 0x0203c300, 1, 32, 64), T(BF16, 0x02038300, 1, 32, 64),
        T(BF16, 0x0202df00, 64, 64), T(BF16, 0x0202ff00, 64), BYTES(0x0002bf00, 33554432));
        /* e17 up: 264.2 kFLOP, mlp.lua:24 */
    RUN(e18, COMPUTE, fused_0, ATTR(0), T(BF16, 0x0203c300, 1, 32, 64), T(BF16, 0x0203c300, 1, 32, 64));
        /* e18: relu, 8.0 KiB, mlp.lua:24 */
    RUN(e19, COMPUTE, matmul, ATTR(.i = {0, 1}), T(BF16, 0x02038300, 1, 32, 256), T(BF16, 0x0203c300, 1, 32, 64),
        T(BF16, 0x02030100, 256, 64), T(BF16, 0x02038100, 256), BYTES(0x0002bf00, 33554432));
        /* e19 down: 1.1 MFLOP, mlp.lua:24 */
    RUN(logits, COMPUTE, pick, ATTR(0), T(BF16, 0x02038300, 1, 32, 256), T(FP32, 0x00000d00, 256));
        /* logits: 1.5 KiB, mlp.lua:43 */
}

/* ── tables of the build ───────────────────────────────────────────────────────────────────────────────────────────── */

static const int waits_of_init[] = {
    0};

static const sc_access accesses_of_init[] = {
    {2, 0, 8},
    {0, 0, 256},
    {6, 0, 1024},
    {7, 0, 50176},
    {9, 0, 50176},
    {10, 0, 50176},
    {7, 0, 50176},
    {7, 0, 50176},
    {7, 0, 50176},
    {7, 0, 50176},
    {7, 0, 50176},
};

static const sc_event_info events_of_init[] = {
    {"zero2", "zero", "", "init", "models/mlp.lua", 43, COMPUTE, waits_of_init + 0, 0, accesses_of_init + 0, accesses_of_init + 0, 0, 1, 0x1},
    {"zero0", "zero", "", "init", "models/mlp.lua", 43, COMPUTE, waits_of_init + 0, 0, accesses_of_init + 1, accesses_of_init + 1, 0, 1, 0x1},
    {"zero6", "zero", "", "init", "models/mlp.lua", 43, COMPUTE, waits_of_init + 0, 0, accesses_of_init + 2, accesses_of_init + 2, 0, 1, 0x1},
    {"zero7", "zero", "", "init", "models/mlp.lua", 30, COMPUTE, waits_of_init + 0, 0, accesses_of_init + 3, accesses_of_init + 3, 0, 1, 0x1},
    {"zero9", "zero", "", "init", "models/mlp.lua", 30, COMPUTE, waits_of_init + 0, 0, accesses_of_init + 4, accesses_of_init + 4, 0, 1, 0x1},
    {"zero10", "zero", "", "init", "models/mlp.lua", 30, COMPUTE, waits_of_init + 0, 0, accesses_of_init + 5, accesses_of_init + 5, 0, 1, 0x1},
    {"i0", "init_param", "embed", "init", "models/mlp.lua", 11, COMPUTE, waits_of_init + 0, 0, accesses_of_init + 6, accesses_of_init + 6, 0, 1, 0x1},
    {"i1", "init_param", "up", "init", "models/mlp.lua", 12, COMPUTE, waits_of_init + 0, 0, accesses_of_init + 7, accesses_of_init + 7, 0, 1, 0x1},
    {"i2", "init_param", "up", "init", "models/mlp.lua", 12, COMPUTE, waits_of_init + 0, 0, accesses_of_init + 8, accesses_of_init + 8, 0, 1, 0x1},
    {"i3", "init_param", "down", "init", "models/mlp.lua", 13, COMPUTE, waits_of_init + 0, 0, accesses_of_init + 9, accesses_of_init + 9, 0, 1, 0x1},
    {"i4", "init_param", "down", "init", "models/mlp.lua", 13, COMPUTE, waits_of_init + 0, 0, accesses_of_init + 10, accesses_of_init + 10, 0, 1, 0x1},
};

static const int waits_of_start[] = {
    0};

static const sc_access accesses_of_start[] = {
    {7, 0, 50176},
    {8, 0, 25088},
};

static const sc_event_info events_of_start[] = {
    {"w0", "store", "", "init", "models/mlp.lua", 30, COMPUTE, waits_of_start + 0, 0, accesses_of_start + 0, accesses_of_start + 1, 1, 1, 0x2},
};

static const int waits_of_micro[] = {
    0,    15,    25,    26,    28,    29,};

static const sc_access accesses_of_micro[] = {
    {8, 0, 25088},
    {18, 0, 50176},
    {0, 0, 256},
    {11, 0, 32},
    {11, 0, 32},
    {3, 0, 1020},
    {12, 0, 1024},
    {13, 0, 64},
    {13, 0, 64},
    {3, 0, 1016},
    {14, 0, 1024},
    {15, 0, 96},
    {15, 0, 96},
    {3, 0, 1012},
    {16, 0, 1024},
    {3, 0, 1024},
    {12, 0, 1024},
    {14, 0, 1024},
    {16, 0, 1024},
    {17, 0, 4096},
    {17, 0, 4096},
    {18, 0, 8192},
    {19, 0, 32768},
    {19, 0, 32768},
    {18, 8192, 8192},
    {18, 16384, 128},
    {20, 0, 32768},
    {21, 0, 33554432},
    {20, 0, 32768},
    {20, 0, 32768},
    {20, 0, 32768},
    {18, 16896, 32768},
    {18, 49664, 512},
    {22, 0, 131072},
    {23, 0, 33554432},
    {24, 0, 4},
    {24, 0, 4},
    {22, 0, 131072},
    {5, 0, 1024},
    {22, 0, 131072},
    {25, 0, 4},
    {26, 0, 1024},
    {25, 0, 4},
    {0, 0, 4},
    {0, 0, 256},
    {0, 0, 256},
    {22, 0, 131072},
    {18, 16896, 32768},
    {27, 0, 32768},
    {28, 0, 33554432},
    {29, 33024, 768},
    {22, 0, 131072},
    {20, 0, 32768},
    {29, 33792, 65536},
    {30, 0, 33554432},
    {22, 0, 131072},
    {29, 99328, 1024},
    {31, 0, 4096},
    {27, 0, 32768},
    {20, 0, 32768},
    {27, 0, 32768},
    {27, 0, 32768},
    {18, 8192, 8192},
    {32, 0, 32768},
    {33, 0, 33554432},
    {27, 0, 32768},
    {19, 0, 32768},
    {29, 16384, 16384},
    {34, 0, 33554432},
    {27, 0, 32768},
    {29, 32768, 256},
    {35, 0, 1024},
    {17, 0, 4096},
    {32, 0, 32768},
    {29, 0, 16384},
    {36, 0, 11280},
    {29, 0, 100352},
    {37, 0, 50176},
    {2, 0, 8},
    {2, 0, 8},
    {37, 0, 50176},
    {38, 0, 4},
    {39, 0, 16},
    {38, 0, 4},
    {38, 0, 4},
    {38, 0, 4},
    {40, 0, 4},
    {41, 0, 4},
    {41, 0, 4},
    {0, 4, 4},
    {37, 0, 50176},
    {7, 0, 50176},
    {40, 0, 4},
    {9, 0, 50176},
    {10, 0, 50176},
    {2, 0, 8},
    {8, 0, 25088},
    {7, 0, 50176},
    {9, 0, 50176},
    {10, 0, 50176},
    {8, 0, 25088},
};

static const sc_event_info events_of_micro[] = {
    {"g0f", "all_gather", "", "forward", "models/mlp.lua", 30, GATHER, waits_of_micro + 0, 0, accesses_of_micro + 0, accesses_of_micro + 1, 1, 1, 0x1},
    {"m_zero", "zero", "", "forward", "models/mlp.lua", 43, COMPUTE, waits_of_micro + 0, 0, accesses_of_micro + 2, accesses_of_micro + 2, 0, 1, 0x1},
    {"e2", "full", "", "forward", "models/mlp.lua", 20, COMPUTE, waits_of_micro + 0, 0, accesses_of_micro + 3, accesses_of_micro + 3, 0, 1, 0x1},
    {"e3", "concat", "", "forward", "models/mlp.lua", 20, COMPUTE, waits_of_micro + 0, 0, accesses_of_micro + 4, accesses_of_micro + 6, 2, 1, 0x1},
    {"e5", "full", "", "forward", "models/mlp.lua", 20, COMPUTE, waits_of_micro + 0, 0, accesses_of_micro + 7, accesses_of_micro + 7, 0, 1, 0x1},
    {"e6", "concat", "", "forward", "models/mlp.lua", 20, COMPUTE, waits_of_micro + 0, 0, accesses_of_micro + 8, accesses_of_micro + 10, 2, 1, 0x1},
    {"e8", "full", "", "forward", "models/mlp.lua", 20, COMPUTE, waits_of_micro + 0, 0, accesses_of_micro + 11, accesses_of_micro + 11, 0, 1, 0x1},
    {"e9", "concat", "", "forward", "models/mlp.lua", 20, COMPUTE, waits_of_micro + 0, 0, accesses_of_micro + 12, accesses_of_micro + 14, 2, 1, 0x1},
    {"e14", "concat", "", "forward", "models/mlp.lua", 23, COMPUTE, waits_of_micro + 0, 0, accesses_of_micro + 15, accesses_of_micro + 19, 4, 1, 0x1},
    {"e15", "embedding", "embed", "forward", "models/mlp.lua", 23, COMPUTE, waits_of_micro + 0, 1, accesses_of_micro + 20, accesses_of_micro + 22, 2, 1, 0x1},
    {"e17", "matmul", "up", "forward", "models/mlp.lua", 24, COMPUTE, waits_of_micro + 1, 0, accesses_of_micro + 23, accesses_of_micro + 26, 3, 2, 0x1},
    {"e18", "relu", "", "forward", "models/mlp.lua", 24, COMPUTE, waits_of_micro + 1, 0, accesses_of_micro + 28, accesses_of_micro + 29, 1, 1, 0x1},
    {"e19", "matmul", "down", "forward", "models/mlp.lua", 24, COMPUTE, waits_of_micro + 1, 0, accesses_of_micro + 30, accesses_of_micro + 33, 3, 2, 0x1},
    {"e22b0", "grad_seed", "", "backward", "models/mlp.lua", 38, COMPUTE, waits_of_micro + 1, 0, accesses_of_micro + 35, accesses_of_micro + 35, 0, 1, 0x1},
    {"e22", "cross_entropy_grads", "", "backward", "models/mlp.lua", 38, COMPUTE, waits_of_micro + 1, 0, accesses_of_micro + 36, accesses_of_micro + 39, 3, 3, 0x7},
    {"m_loss", "store", "", "forward", "models/mlp.lua", 43, COMPUTE, waits_of_micro + 1, 0, accesses_of_micro + 42, accesses_of_micro + 43, 1, 1, 0x2},
    {"m_sum", "all_reduce", "", "optimizer", "models/mlp.lua", 43, REDUCE, waits_of_micro + 1, 1, accesses_of_micro + 44, accesses_of_micro + 45, 1, 1, 0x1},
    {"e19b0", "matmul", "down", "backward", "models/mlp.lua", 24, COMPUTE, waits_of_micro + 2, 0, accesses_of_micro + 46, accesses_of_micro + 48, 2, 2, 0x1},
    {"z0", "zero_gaps", "", "backward", "models/mlp.lua", 30, COMPUTE, waits_of_micro + 2, 0, accesses_of_micro + 50, accesses_of_micro + 50, 0, 1, 0x1},
    {"e19b3", "matmul", "down", "backward", "models/mlp.lua", 24, COMPUTE, waits_of_micro + 2, 0, accesses_of_micro + 51, accesses_of_micro + 53, 2, 2, 0x1},
    {"e19b4", "sum", "down", "backward", "models/mlp.lua", 24, COMPUTE, waits_of_micro + 2, 0, accesses_of_micro + 55, accesses_of_micro + 56, 1, 2, 0x1},
    {"e18b0", "relu_grad", "", "backward", "models/mlp.lua", 24, COMPUTE, waits_of_micro + 2, 0, accesses_of_micro + 58, accesses_of_micro + 60, 2, 1, 0x1},
    {"e17b0", "matmul", "up", "backward", "models/mlp.lua", 24, COMPUTE, waits_of_micro + 2, 0, accesses_of_micro + 61, accesses_of_micro + 63, 2, 2, 0x1},
    {"e17b3", "matmul", "up", "backward", "models/mlp.lua", 24, COMPUTE, waits_of_micro + 2, 0, accesses_of_micro + 65, accesses_of_micro + 67, 2, 2, 0x1},
    {"e17b4", "sum", "up", "backward", "models/mlp.lua", 24, COMPUTE, waits_of_micro + 2, 0, accesses_of_micro + 69, accesses_of_micro + 70, 1, 2, 0x1},
    {"e15b0", "embedding_grad", "embed", "backward", "models/mlp.lua", 23, COMPUTE, waits_of_micro + 2, 0, accesses_of_micro + 72, accesses_of_micro + 74, 2, 2, 0x1},
    {"r0", "reduce_scatter", "", "backward", "models/mlp.lua", 30, REDUCE, waits_of_micro + 2, 1, accesses_of_micro + 76, accesses_of_micro + 77, 1, 1, 0x1},
    {"count", "count_step", "", "optimizer", "models/mlp.lua", 43, COMPUTE, waits_of_micro + 3, 0, accesses_of_micro + 78, accesses_of_micro + 79, 1, 1, 0x1},
    {"n0", "sum_squares", "", "optimizer", "models/mlp.lua", 30, COMPUTE, waits_of_micro + 3, 1, accesses_of_micro + 80, accesses_of_micro + 81, 1, 2, 0x1},
    {"norm_sum", "all_reduce", "", "optimizer", "models/mlp.lua", 43, REDUCE, waits_of_micro + 4, 1, accesses_of_micro + 83, accesses_of_micro + 84, 1, 1, 0x1},
    {"clip", "clip_coefficient", "", "optimizer", "models/mlp.lua", 43, COMPUTE, waits_of_micro + 5, 1, accesses_of_micro + 85, accesses_of_micro + 86, 1, 2, 0x3},
    {"m_norm", "store", "", "optimizer", "models/mlp.lua", 43, COMPUTE, waits_of_micro + 6, 0, accesses_of_micro + 88, accesses_of_micro + 89, 1, 1, 0x2},
    {"u0", "adam", "", "optimizer", "models/mlp.lua", 43, COMPUTE, waits_of_micro + 6, 0, accesses_of_micro + 90, accesses_of_micro + 97, 7, 4, 0x5a},
};

static const int waits_of_eval[] = {
    0,    14,};

static const sc_access accesses_of_eval[] = {
    {8, 0, 25088},
    {49, 0, 50176},
    {0, 0, 256},
    {42, 0, 32},
    {42, 0, 32},
    {3, 0, 1020},
    {43, 0, 1024},
    {44, 0, 64},
    {44, 0, 64},
    {3, 0, 1016},
    {45, 0, 1024},
    {46, 0, 96},
    {46, 0, 96},
    {3, 0, 1012},
    {47, 0, 1024},
    {3, 0, 1024},
    {43, 0, 1024},
    {45, 0, 1024},
    {47, 0, 1024},
    {48, 0, 4096},
    {48, 0, 4096},
    {49, 0, 8192},
    {50, 0, 32768},
    {50, 0, 32768},
    {49, 8192, 8192},
    {49, 16384, 128},
    {51, 0, 32768},
    {52, 0, 33554432},
    {51, 0, 32768},
    {51, 0, 32768},
    {51, 0, 32768},
    {49, 16896, 32768},
    {49, 49664, 512},
    {53, 0, 131072},
    {54, 0, 33554432},
    {53, 0, 131072},
    {5, 0, 1024},
    {55, 0, 4},
    {56, 0, 1024},
    {57, 0, 1024},
    {55, 0, 4},
    {0, 0, 4},
    {0, 0, 256},
    {0, 0, 256},
};

static const sc_event_info events_of_eval[] = {
    {"g0f", "all_gather", "", "forward", "models/mlp.lua", 30, GATHER, waits_of_eval + 0, 0, accesses_of_eval + 0, accesses_of_eval + 1, 1, 1, 0x1},
    {"m_zero", "zero", "", "forward", "models/mlp.lua", 43, COMPUTE, waits_of_eval + 0, 0, accesses_of_eval + 2, accesses_of_eval + 2, 0, 1, 0x1},
    {"e2", "full", "", "forward", "models/mlp.lua", 20, COMPUTE, waits_of_eval + 0, 0, accesses_of_eval + 3, accesses_of_eval + 3, 0, 1, 0x1},
    {"e3", "concat", "", "forward", "models/mlp.lua", 20, COMPUTE, waits_of_eval + 0, 0, accesses_of_eval + 4, accesses_of_eval + 6, 2, 1, 0x1},
    {"e5", "full", "", "forward", "models/mlp.lua", 20, COMPUTE, waits_of_eval + 0, 0, accesses_of_eval + 7, accesses_of_eval + 7, 0, 1, 0x1},
    {"e6", "concat", "", "forward", "models/mlp.lua", 20, COMPUTE, waits_of_eval + 0, 0, accesses_of_eval + 8, accesses_of_eval + 10, 2, 1, 0x1},
    {"e8", "full", "", "forward", "models/mlp.lua", 20, COMPUTE, waits_of_eval + 0, 0, accesses_of_eval + 11, accesses_of_eval + 11, 0, 1, 0x1},
    {"e9", "concat", "", "forward", "models/mlp.lua", 20, COMPUTE, waits_of_eval + 0, 0, accesses_of_eval + 12, accesses_of_eval + 14, 2, 1, 0x1},
    {"e14", "concat", "", "forward", "models/mlp.lua", 23, COMPUTE, waits_of_eval + 0, 0, accesses_of_eval + 15, accesses_of_eval + 19, 4, 1, 0x1},
    {"e15", "embedding", "embed", "forward", "models/mlp.lua", 23, COMPUTE, waits_of_eval + 0, 1, accesses_of_eval + 20, accesses_of_eval + 22, 2, 1, 0x1},
    {"e17", "matmul", "up", "forward", "models/mlp.lua", 24, COMPUTE, waits_of_eval + 1, 0, accesses_of_eval + 23, accesses_of_eval + 26, 3, 2, 0x1},
    {"e18", "relu", "", "forward", "models/mlp.lua", 24, COMPUTE, waits_of_eval + 1, 0, accesses_of_eval + 28, accesses_of_eval + 29, 1, 1, 0x1},
    {"e19", "matmul", "down", "forward", "models/mlp.lua", 24, COMPUTE, waits_of_eval + 1, 0, accesses_of_eval + 30, accesses_of_eval + 33, 3, 2, 0x1},
    {"e22", "cross_entropy", "", "forward", "models/mlp.lua", 38, COMPUTE, waits_of_eval + 1, 0, accesses_of_eval + 35, accesses_of_eval + 37, 2, 3, 0x3},
    {"m_loss", "store", "", "forward", "models/mlp.lua", 43, COMPUTE, waits_of_eval + 1, 0, accesses_of_eval + 40, accesses_of_eval + 41, 1, 1, 0x2},
    {"m_sum", "all_reduce", "", "optimizer", "models/mlp.lua", 43, REDUCE, waits_of_eval + 1, 1, accesses_of_eval + 42, accesses_of_eval + 43, 1, 1, 0x1},
};

static const int waits_of_sample[] = {
    0,};

static const sc_access accesses_of_sample[] = {
    {8, 0, 25088},
    {65, 0, 50176},
    {58, 0, 4},
    {58, 0, 4},
    {4, 0, 124},
    {59, 0, 128},
    {60, 0, 8},
    {60, 0, 8},
    {4, 0, 120},
    {61, 0, 128},
    {62, 0, 12},
    {62, 0, 12},
    {4, 0, 116},
    {63, 0, 128},
    {4, 0, 128},
    {59, 0, 128},
    {61, 0, 128},
    {63, 0, 128},
    {64, 0, 512},
    {64, 0, 512},
    {65, 0, 8192},
    {66, 0, 4096},
    {66, 0, 4096},
    {65, 8192, 8192},
    {65, 16384, 128},
    {67, 0, 4096},
    {68, 0, 33554432},
    {67, 0, 4096},
    {67, 0, 4096},
    {67, 0, 4096},
    {65, 16896, 32768},
    {65, 49664, 512},
    {69, 0, 16384},
    {70, 0, 33554432},
    {69, 0, 16384},
    {6, 0, 1024},
    {6, 0, 1024},
};

static const sc_event_info events_of_sample[] = {
    {"g0f", "all_gather", "", "forward", "models/mlp.lua", 30, GATHER, waits_of_sample + 0, 0, accesses_of_sample + 0, accesses_of_sample + 1, 1, 1, 0x1},
    {"e2", "full", "", "forward", "models/mlp.lua", 20, COMPUTE, waits_of_sample + 0, 0, accesses_of_sample + 2, accesses_of_sample + 2, 0, 1, 0x1},
    {"e3", "concat", "", "forward", "models/mlp.lua", 20, COMPUTE, waits_of_sample + 0, 0, accesses_of_sample + 3, accesses_of_sample + 5, 2, 1, 0x1},
    {"e5", "full", "", "forward", "models/mlp.lua", 20, COMPUTE, waits_of_sample + 0, 0, accesses_of_sample + 6, accesses_of_sample + 6, 0, 1, 0x1},
    {"e6", "concat", "", "forward", "models/mlp.lua", 20, COMPUTE, waits_of_sample + 0, 0, accesses_of_sample + 7, accesses_of_sample + 9, 2, 1, 0x1},
    {"e8", "full", "", "forward", "models/mlp.lua", 20, COMPUTE, waits_of_sample + 0, 0, accesses_of_sample + 10, accesses_of_sample + 10, 0, 1, 0x1},
    {"e9", "concat", "", "forward", "models/mlp.lua", 20, COMPUTE, waits_of_sample + 0, 0, accesses_of_sample + 11, accesses_of_sample + 13, 2, 1, 0x1},
    {"e14", "concat", "", "forward", "models/mlp.lua", 23, COMPUTE, waits_of_sample + 0, 0, accesses_of_sample + 14, accesses_of_sample + 18, 4, 1, 0x1},
    {"e15", "embedding", "embed", "forward", "models/mlp.lua", 23, COMPUTE, waits_of_sample + 0, 1, accesses_of_sample + 19, accesses_of_sample + 21, 2, 1, 0x1},
    {"e17", "matmul", "up", "forward", "models/mlp.lua", 24, COMPUTE, waits_of_sample + 1, 0, accesses_of_sample + 22, accesses_of_sample + 25, 3, 2, 0x1},
    {"e18", "relu", "", "forward", "models/mlp.lua", 24, COMPUTE, waits_of_sample + 1, 0, accesses_of_sample + 27, accesses_of_sample + 28, 1, 1, 0x1},
    {"e19", "matmul", "down", "forward", "models/mlp.lua", 24, COMPUTE, waits_of_sample + 1, 0, accesses_of_sample + 29, accesses_of_sample + 32, 3, 2, 0x1},
    {"logits", "pick", "", "forward", "models/mlp.lua", 43, COMPUTE, waits_of_sample + 1, 0, accesses_of_sample + 34, accesses_of_sample + 36, 2, 1, 0x2},
};

static const sc_program_info programs[] = {
    {"init", program_init, events_of_init, 11},
    {"start", program_start, events_of_start, 1},
    {"micro", program_micro, events_of_micro, 33},
    {"eval", program_eval, events_of_eval, 16},
    {"sample", program_sample, events_of_sample, 13},
};

static const sc_storage_info storages[] = {
    {"metrics", 0x0, 256, 0, -1, -1, 33},
    {"record", 0x100, 512, 0, -1, -1, 33},
    {"adam step", 0x300, 256, 0, -1, -1, 33},
    {"tokens", 0x400, 1024, 0, -1, -1, 33},
    {"sample/tokens", 0x800, 256, 0, -1, -1, 33},
    {"targets", 0x900, 1024, 0, -1, -1, 33},
    {"logits", 0xd00, 1024, 0, -1, -1, 33},
    {"(root)/master", 0x1100, 50176, 0, -1, -1, 33},
    {"(root)/wire", 0xd500, 25088, 0, -1, -1, 33},
    {"(root)/moment1", 0x13700, 50176, 0, -1, -1, 33},
    {"(root)/moment2", 0x1fb00, 50176, 0, -1, -1, 33},
    {"e2.0", 0x2c300, 256, 0, 2, 2, 3},
    {"e3.0", 0x2bf00, 1024, 0, 2, 3, 8},
    {"e5.0", 0x2c700, 256, 0, 2, 4, 5},
    {"e6.0", 0x2c300, 1024, 0, 2, 5, 8},
    {"e8.0", 0x2cb00, 256, 0, 2, 6, 7},
    {"e9.0", 0x2c700, 1024, 0, 2, 7, 8},
    {"e14.0", 0x2088b00, 4096, 0, 2, 8, 25},
    {"g0f.0", 0x2064700, 50176, 0, 2, 0, 22},
    {"e15.0", 0x2070b00, 32768, 0, 2, 9, 23},
    {"e17.0", 0x2078b00, 32768, 0, 2, 10, 21},
    {"e17.workspace", 0x2bf00, 33554432, 0, 2, 10, 10},
    {"e19.0", 0x202bf00, 131072, 0, 2, 12, 20},
    {"e19.workspace", 0x2bf00, 33554432, 0, 2, 12, 12},
    {"e22b0.0", 0x2c300, 256, 0, 2, 13, 14},
    {"e22.1", 0x2c400, 256, 0, 2, 14, 15},
    {"e22.2", 0x2bf00, 1024, 0, 2, 14, 14},
    {"e19b0.0", 0x2080b00, 32768, 0, 2, 17, 24},
    {"e19b0.workspace", 0x2bf00, 33554432, 0, 2, 17, 17},
    {"z0.0", 0x204bf00, 100352, 0, 2, 18, 26},
    {"e19b3.workspace", 0x2bf00, 33554432, 0, 2, 19, 19},
    {"e19b4.workspace", 0x2bf00, 4096, 0, 2, 20, 20},
    {"e17b0.0", 0x202bf00, 32768, 0, 2, 22, 25},
    {"e17b0.workspace", 0x2bf00, 33554432, 0, 2, 22, 22},
    {"e17b3.workspace", 0x2bf00, 33554432, 0, 2, 23, 23},
    {"e17b4.workspace", 0x2bf00, 1024, 0, 2, 24, 24},
    {"e15b0.workspace", 0x2bf00, 11520, 0, 2, 25, 25},
    {"r0.0", 0x2bf00, 50176, 0, 2, 26, 32},
    {"n0.0", 0x38300, 256, 0, 2, 28, 30},
    {"n0.workspace", 0x38400, 256, 0, 2, 28, 28},
    {"clip.0", 0x38400, 256, 0, 2, 30, 32},
    {"clip.1", 0x38500, 256, 0, 2, 30, 31},
    {"e2.0", 0x2bf00, 256, 0, 3, 2, 3},
    {"e3.0", 0x2cf00, 1024, 0, 3, 3, 8},
    {"e5.0", 0x2bf00, 256, 0, 3, 4, 5},
    {"e6.0", 0x2d300, 1024, 0, 3, 5, 8},
    {"e8.0", 0x2bf00, 256, 0, 3, 6, 7},
    {"e9.0", 0x2d700, 1024, 0, 3, 7, 8},
    {"e14.0", 0x2bf00, 4096, 0, 3, 8, 9},
    {"g0f.0", 0x204bf00, 50176, 0, 3, 0, 12},
    {"e15.0", 0x202bf00, 32768, 0, 3, 9, 10},
    {"e17.0", 0x2058300, 32768, 0, 3, 10, 12},
    {"e17.workspace", 0x2bf00, 33554432, 0, 3, 10, 10},
    {"e19.0", 0x202bf00, 131072, 0, 3, 12, 13},
    {"e19.workspace", 0x2bf00, 33554432, 0, 3, 12, 12},
    {"e22.0", 0x2c700, 256, 0, 3, 13, 14},
    {"e22.1", 0x2bf00, 1024, 0, 3, 13, 13},
    {"e22.workspace", 0x2c300, 1024, 0, 3, 13, 13},
    {"e2.0", 0x2bf00, 256, 0, 4, 1, 2},
    {"e3.0", 0x2c100, 256, 0, 4, 2, 7},
    {"e5.0", 0x2bf00, 256, 0, 4, 3, 4},
    {"e6.0", 0x2c200, 256, 0, 4, 4, 7},
    {"e8.0", 0x2bf00, 256, 0, 4, 5, 6},
    {"e9.0", 0x2c300, 256, 0, 4, 6, 7},
    {"e14.0", 0x2bf00, 512, 0, 4, 7, 8},
    {"g0f.0", 0x202bf00, 50176, 0, 4, 0, 11},
    {"e15.0", 0x2038300, 4096, 0, 4, 8, 9},
    {"e17.0", 0x203c300, 4096, 0, 4, 9, 11},
    {"e17.workspace", 0x2bf00, 33554432, 0, 4, 9, 9},
    {"e19.0", 0x2038300, 16384, 0, 4, 11, 12},
    {"e19.workspace", 0x2bf00, 33554432, 0, 4, 11, 11},
};

static const sc_param_info params[] = {
    {"embed.weight", "embed", FP32, 2, {256, 16}, 0, 1, 0, 0, 4096, 0, 0x0},
    {"up.weight", "up", FP32, 2, {64, 64}, 0, 1, 0, 4096, 4096, 0, 0x0},
    {"up.bias", "up", FP32, 1, {64}, 0, 1, 0, 8192, 64, 0, 0x0},
    {"down.weight", "down", FP32, 2, {256, 64}, 0, 1, 0, 8448, 16384, 0, 0x0},
    {"down.bias", "down", FP32, 1, {256}, 0, 1, 0, 24832, 256, 0, 0x0},
};

static const sc_comm_info comms[] = {
    {"shard", 2, 1},
    {"replicate", 1, 2},
    {"world", 2, 1},
};

static const sc_unit_info units[] = {
    {"", 2, 1, 12544, 0, FP32, BF16, FP32,
        0x1100, 0xd500, 0x13700, 0x1fb00, 0x0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0},
};

static const sc_input_info inputs[] = {
    {"tokens", "tokens", INT32, 2, {8, 32}, 0, 0x400, 1, 0, 0x800, 2, {1, 32}, 0, 0, 1},
    {"targets", "tokens", INT32, 2, {8, 32}, 1, 0x900, 0, 256, 0x0, 0, {0}, 0, 0, 1},
};

static const sc_count_info counts[] = {
    {1, -100},
};

static const char *const metrics[] = {
    "loss",
    "grad_norm",
};

static const sc_group_info groups[] = {
    {0.003, 0.0},
};

static const sc_dump_info dumps[] = {
    {"mlp/g0f", 2, 0, {0x2064700, 0, BF16, 1, {25088}, {1}, 0}},
    {"mlp/e2", 2, 2, {0x2c300, 0, INT32, 2, {8, 1}, {1, 1}, 0}},
    {"mlp/e3", 2, 3, {0x2bf00, 0, INT32, 2, {8, 32}, {32, 1}, 0}},
    {"mlp/e5", 2, 4, {0x2c700, 0, INT32, 2, {8, 2}, {2, 1}, 0}},
    {"mlp/e6", 2, 5, {0x2c300, 0, INT32, 2, {8, 32}, {32, 1}, 0}},
    {"mlp/e8", 2, 6, {0x2cb00, 0, INT32, 2, {8, 3}, {3, 1}, 0}},
    {"mlp/e9", 2, 7, {0x2c700, 0, INT32, 2, {8, 32}, {32, 1}, 0}},
    {"mlp/e14", 2, 8, {0x2088b00, 0, INT32, 3, {8, 32, 4}, {128, 4, 1}, 0}},
    {"embed/e15", 2, 9, {0x2070b00, 0, BF16, 4, {8, 32, 4, 16}, {2048, 64, 16, 1}, 0}},
    {"up/e17", 2, 10, {0x2078b00, 0, BF16, 3, {8, 32, 64}, {2048, 64, 1}, 0}},
    {"mlp/e18", 2, 11, {0x2078b00, 0, BF16, 3, {8, 32, 64}, {2048, 64, 1}, 0}},
    {"down/e19", 2, 12, {0x202bf00, 0, BF16, 3, {8, 32, 256}, {8192, 256, 1}, 0}},
    {"mlp/e22b0", 2, 13, {0x2c300, 0, FP32, 0, {}, {}, 0}},
    {"mlp/e22", 2, 14, {0x202bf00, 0, BF16, 2, {256, 256}, {256, 1}, 0}},
    {"mlp/e22.1", 2, 14, {0x2c400, 0, FP32, 0, {}, {}, 0}},
    {"mlp/e22.2", 2, 14, {0x2bf00, 0, FP32, 1, {256}, {1}, 0}},
    {"down/e19b0", 2, 17, {0x2080b00, 0, BF16, 3, {8, 32, 64}, {2048, 64, 1}, 0}},
    {"mlp/z0", 2, 18, {0x2054000, 0, FP32, 1, {192}, {1}, 0}},
    {"down.weight.grad", 2, 19, {0x2054300, 0, FP32, 2, {256, 64}, {64, 1}, 0}},
    {"down.bias.grad", 2, 20, {0x2064300, 0, FP32, 1, {256}, {1}, 0}},
    {"mlp/e18b0", 2, 21, {0x2080b00, 0, BF16, 3, {8, 32, 64}, {2048, 64, 1}, 0}},
    {"up/e17b0", 2, 22, {0x202bf00, 0, BF16, 3, {8, 32, 64}, {2048, 64, 1}, 0}},
    {"up.weight.grad", 2, 23, {0x204ff00, 0, FP32, 2, {64, 64}, {64, 1}, 0}},
    {"up.bias.grad", 2, 24, {0x2053f00, 0, FP32, 1, {64}, {1}, 0}},
    {"embed.weight.grad", 2, 25, {0x204bf00, 0, FP32, 2, {256, 16}, {16, 1}, 0}},
    {"mlp/r0", 2, 26, {0x2bf00, 0, FP32, 1, {12544}, {1}, 0}},
    {"mlp/n0", 2, 28, {0x38300, 0, FP32, 1, {1}, {1}, 0}},
    {"mlp/clip", 2, 30, {0x38400, 0, FP32, 1, {1}, {1}, 0}},
    {"mlp/clip.1", 2, 30, {0x38500, 0, FP32, 1, {1}, {1}, 0}},
    {"eval/mlp/g0f", 3, 0, {0x204bf00, 0, BF16, 1, {25088}, {1}, 0}},
    {"eval/mlp/e2", 3, 2, {0x2bf00, 0, INT32, 2, {8, 1}, {1, 1}, 0}},
    {"eval/mlp/e3", 3, 3, {0x2cf00, 0, INT32, 2, {8, 32}, {32, 1}, 0}},
    {"eval/mlp/e5", 3, 4, {0x2bf00, 0, INT32, 2, {8, 2}, {2, 1}, 0}},
    {"eval/mlp/e6", 3, 5, {0x2d300, 0, INT32, 2, {8, 32}, {32, 1}, 0}},
    {"eval/mlp/e8", 3, 6, {0x2bf00, 0, INT32, 2, {8, 3}, {3, 1}, 0}},
    {"eval/mlp/e9", 3, 7, {0x2d700, 0, INT32, 2, {8, 32}, {32, 1}, 0}},
    {"eval/mlp/e14", 3, 8, {0x2bf00, 0, INT32, 3, {8, 32, 4}, {128, 4, 1}, 0}},
    {"eval/embed/e15", 3, 9, {0x202bf00, 0, BF16, 4, {8, 32, 4, 16}, {2048, 64, 16, 1}, 0}},
    {"eval/up/e17", 3, 10, {0x2058300, 0, BF16, 3, {8, 32, 64}, {2048, 64, 1}, 0}},
    {"eval/mlp/e18", 3, 11, {0x2058300, 0, BF16, 3, {8, 32, 64}, {2048, 64, 1}, 0}},
    {"eval/down/e19", 3, 12, {0x202bf00, 0, BF16, 3, {8, 32, 256}, {8192, 256, 1}, 0}},
    {"eval/mlp/e22", 3, 13, {0x2c700, 0, FP32, 0, {}, {}, 0}},
    {"eval/mlp/e22.1", 3, 13, {0x2bf00, 0, FP32, 1, {256}, {1}, 0}},
    {"sample/mlp/g0f", 4, 0, {0x202bf00, 0, BF16, 1, {25088}, {1}, 0}},
    {"sample/mlp/e2", 4, 1, {0x2bf00, 0, INT32, 2, {1, 1}, {1, 1}, 0}},
    {"sample/mlp/e3", 4, 2, {0x2c100, 0, INT32, 2, {1, 32}, {32, 1}, 0}},
    {"sample/mlp/e5", 4, 3, {0x2bf00, 0, INT32, 2, {1, 2}, {2, 1}, 0}},
    {"sample/mlp/e6", 4, 4, {0x2c200, 0, INT32, 2, {1, 32}, {32, 1}, 0}},
    {"sample/mlp/e8", 4, 5, {0x2bf00, 0, INT32, 2, {1, 3}, {3, 1}, 0}},
    {"sample/mlp/e9", 4, 6, {0x2c300, 0, INT32, 2, {1, 32}, {32, 1}, 0}},
    {"sample/mlp/e14", 4, 7, {0x2bf00, 0, INT32, 3, {1, 32, 4}, {128, 4, 1}, 0}},
    {"sample/embed/e15", 4, 8, {0x2038300, 0, BF16, 4, {1, 32, 4, 16}, {2048, 64, 16, 1}, 0}},
    {"sample/up/e17", 4, 9, {0x203c300, 0, BF16, 3, {1, 32, 64}, {2048, 64, 1}, 0}},
    {"sample/mlp/e18", 4, 10, {0x203c300, 0, BF16, 3, {1, 32, 64}, {2048, 64, 1}, 0}},
    {"sample/down/e19", 4, 11, {0x2038300, 0, BF16, 3, {1, 32, 256}, {8192, 256, 1}, 0}},
};

/* The plan itself, so that every reading command takes the binary too. */
__asm__(".pushsection .rodata\n"
        ".ascii \"SHARDC_PLAN_BEGIN\\n\"\n"
        "sc_plan_json_begin:\n"
        ".incbin \"" "mlp.plan.json" "\"\n"
        "sc_plan_json_end:\n"
        ".asciz \"\\nSHARDC_PLAN_END\"\n"
        ".popsection\n");
extern const char sc_plan_json_begin[], sc_plan_json_end[];

const sc_build sc_this_build = {
    .name = "mlp",
    .model_file = "models/mlp.lua",
    .target = "cuda",
    .arch = "sm_90",
    .deterministic = 1,
    .world = 2,
    .nodes = 1,
    .threads = 1,
    .accumulate = 1,
    .arena_bytes = 34118400,
    .host_bytes = 0,
    .library_bytes = 958598264,
    .programs = programs,
    .nprograms = 5,
    .storages = storages,
    .nstorages = 71,
    .params = params,
    .nparams = 5,
    .units = units,
    .nunits = 1,
    .comms = comms,
    .ncomms = 3,
    .inputs = inputs,
    .ninputs = 2,
    .counts = counts,
    .ncounts = 1,
    .metrics = metrics,
    .nmetrics = 2,
    .metric_sums = 0x0,
    .metrics_at = 0x0,
    .record_at = 0x100,
    .step_at = 0x300,
    .dumps = dumps,
    .ndumps = 55,
    .logits_program = 4,
    .logits_at = 0xd00,
    .logits_dtype = FP32,
    .logits_shape = {1, 32, 256},
    .optimizer = "adamw",
    .schedule = "cosine",
    .beta1 = 0.9,
    .beta2 = 0.999,
    .eps = 1e-08,
    .momentum = 0.0,
    .clip = 1.0,
    .warmup = 20,
    .total = 1000,
    .min_ratio = 0.1,
    .groups = groups,
    .ngroups = 1,
    .plan_hash = 0x804296f40376b7bdu,
    .plan_json = sc_plan_json_begin,
    .plan_json_end = sc_plan_json_end,
};
