/* mlp: models/mlp.lua on 2 ranks of cpu. Written by shardc; edits are lost.
 * One function a program, one statement an event; a program begins with its events and with the storages that it
 * touches. Addresses are bytes in the arena (8952576 in all, host arena 0).
 * T(dtype, address, shape) is a tensor, V a view with strides; H and VH lie in the host arena.
 * RUN(kernel, event, stream, operands and attributes by name); an attribute that is 0 is left out. FUSED(kernel, ...)
 * runs a kernel of mlp_kernels. The number behind a collective's stream is its group in comms[], below. A statement
 * stands where its event is issued. Streams run their own events in order, beside each other: sc_wait(r, A, e) holds
 * back all later events of stream A until e, and with it all that e's stream ran before it, is finished.
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
SC_FUSED(relu, 1, 1)
SC_FUSED(relu_grad, 1, 2)

static void program_init(sc_rank *r) {
    enum { zero2, zero0, zero6, zero7, zero9, zero10, i0, i1, i2, i3, i4 };
    enum { /* where each storage begins; its size, the first and the last event that touch it */
        adam_step = 0x00000300, /* 256 B, persistent */
        p_metrics = 0x00000000, /* 256 B, persistent */
        p_logits = 0x00000d00, /* 1.0 KiB, persistent */
        root_master = 0x00001100, /* 49.0 KiB, persistent */
        root_moment1 = 0x00013700, /* 49.0 KiB, persistent */
        root_moment2 = 0x0001fb00, /* 49.0 KiB, persistent */
    };

    /* ── init · mlp ──────────────────────────────────────────────────────────────────────── models/mlp.lua:43 ── */
    RUN(zero, zero2, COMPUTE, .state = T(INT64, adam_step, 1)); /* zero2: 8 B, mlp.lua:43 */
    RUN(zero, zero0, COMPUTE, .state = T(FP32, p_metrics, 64)); /* zero0: 256 B, mlp.lua:43 */
    RUN(zero, zero6, COMPUTE, .state = T(FP32, p_logits, 256)); /* zero6: 1.0 KiB, mlp.lua:43 */
    RUN(zero, zero7, COMPUTE, .state = T(FP32, root_master, 12544)); /* zero7: 49.0 KiB, mlp.lua:30 */
    RUN(zero, zero9, COMPUTE, .state = T(FP32, root_moment1, 12544)); /* zero9: 49.0 KiB, mlp.lua:30 */
    RUN(zero, zero10, COMPUTE, .state = T(FP32, root_moment2, 12544)); /* zero10: 49.0 KiB, mlp.lua:30 */
    RUN(init_param, i0, COMPUTE, .state = T(FP32, root_master, 12544), .kind = SC_NORMAL,
        .key = 322263236266720810, .numel = 4096, .slice = 12544, .b = 1.0); /* i0 embed: 16.0 KiB, mlp.lua:11 */
    RUN(init_param, i1, COMPUTE, .state = T(FP32, root_master, 12544), .kind = SC_UNIFORM,
        .key = 2764186525739414950, .offset = 4096, .numel = 4096, .slice = 12544, .a = -0.12499999999999999,
        .b = 0.12499999999999999); /* i1 up: 16.0 KiB, mlp.lua:12 */
    RUN(init_param, i2, COMPUTE, .state = T(FP32, root_master, 12544), .kind = SC_UNIFORM,
        .key = 1314479649913731533, .offset = 8192, .numel = 64, .slice = 12544, .a = -0.125, .b = 0.125);
        /* i2 up: 256 B, mlp.lua:12 */
    RUN(init_param, i3, COMPUTE, .state = T(FP32, root_master, 12544), .kind = SC_UNIFORM,
        .key = 3325665735358413302, .offset = 8448, .numel = 16384, .slice = 12544, .a = -0.12499999999999999,
        .b = 0.12499999999999999); /* i3 down: 49.0 KiB, mlp.lua:13 */
    RUN(init_param, i4, COMPUTE, .state = T(FP32, root_master, 12544), .kind = SC_UNIFORM,
        .key = 3633928939402858047, .offset = 24832, .numel = 256, .slice = 12544, .a = -0.125, .b = 0.125);
        /* i4 down: 1.0 KiB, mlp.lua:13 */
}

static void program_start(sc_rank *r) {
    enum { w0 };
    enum { /* where each storage begins; its size, the first and the last event that touch it */
        root_master = 0x00001100, /* 49.0 KiB, persistent */
        root_wire = 0x0000d500, /* 24.5 KiB, persistent */
    };

    /* ── init · mlp ──────────────────────────────────────────────────────────────────────── models/mlp.lua:30 ── */
    RUN(store, w0, COMPUTE, .value = T(FP32, root_master, 12544), .state = T(BF16, root_wire, 12544));
        /* w0: 98.0 KiB, mlp.lua:30 */
}

static const int64_t micro_u0_table[] = {0, 8256, 0, 8448, 25088, 0};
static void program_micro(sc_rank *r) {
    enum { g0f, m_zero, e2, e3, e5, e6, e8, e9, e14, e15, e17, e18, e19, e22b0, e22, m_loss, m_sum, e19b0, z0, e19b3,
        e19b4, e18b0, e17b0, e17b3, e17b4, e15b0, r0, count, n0, norm_sum, clip, m_norm, u0 };
    enum { /* where each storage begins; its size, the first and the last event that touch it */
        root_all_gather = 0x00864700, /* 49.0 KiB, g0f to e17b0 */
        root_wire = 0x0000d500, /* 24.5 KiB, persistent */
        p_metrics = 0x00000000, /* 256 B, persistent */
        full_y = 0x0002c300, /* 256 B, e2 to e3 */
        concat_y = 0x0002bf00, /* 1.0 KiB, e3 to e14 */
        p_tokens = 0x00000400, /* 1.0 KiB, persistent */
        full_y_e5 = 0x0002c700, /* 256 B, e5 to e6 */
        concat_y_e6 = 0x0002c300, /* 1.0 KiB, e6 to e14 */
        full_y_e8 = 0x0002cb00, /* 256 B, e8 to e9 */
        concat_y_e9 = 0x0002c700, /* 1.0 KiB, e9 to e14 */
        concat_y_e14 = 0x00888b00, /* 4.0 KiB, e14 to e15b0 */
        embed_y = 0x00870b00, /* 32.0 KiB, e15 to e17b3 */
        up_y = 0x00878b00, /* 32.0 KiB, e17 to e18b0 */
        e17_workspace = 0x0002bf00, /* 8.0 MiB, e17 to e17 */
        relu_y = up_y, /* e18, in its bytes */
        down_y = 0x0082bf00, /* 128.0 KiB, e19 to e19b4 */
        e19_workspace = 0x0002bf00, /* 8.0 MiB, e19 to e19 */
        grad_seed_y = 0x0002c300, /* 256 B, e22b0 to e22 */
        cross_entropy_dlogits = down_y, /* e22, in its bytes */
        cross_entropy_loss = 0x0002c400, /* 256 B, e22 to m_loss */
        cross_entropy_losses = 0x0002bf00, /* 1.0 KiB, e22 to e22 */
        p_targets = 0x00000900, /* 1.0 KiB, persistent */
        down_grad = 0x00880b00, /* 32.0 KiB, e19b0 to e17b4 */
        e19b0_workspace = 0x0002bf00, /* 8.0 MiB, e19b0 to e19b0 */
        root_grads = 0x0084bf00, /* 98.0 KiB, z0 to r0 */
        e19b3_workspace = 0x0002bf00, /* 8.0 MiB, e19b3 to e19b3 */
        relu_grad = down_grad, /* e18b0, in its bytes */
        up_grad = 0x0082bf00, /* 32.0 KiB, e17b0 to e15b0 */
        e17b0_workspace = 0x0002bf00, /* 8.0 MiB, e17b0 to e17b0 */
        e17b3_workspace = 0x0002bf00, /* 8.0 MiB, e17b3 to e17b3 */
        root_reduce_scatter = 0x0002bf00, /* 49.0 KiB, r0 to u0 */
        adam_step = 0x00000300, /* 256 B, persistent */
        n0_whole = 0x00038300, /* 256 B, n0 to clip */
        clip_coefficient = 0x00038400, /* 256 B, clip to u0 */
        clip_norm = 0x00038500, /* 256 B, clip to m_norm */
        root_master = 0x00001100, /* 49.0 KiB, persistent */
        root_moment1 = 0x00013700, /* 49.0 KiB, persistent */
        root_moment2 = 0x0001fb00, /* 49.0 KiB, persistent */
        /* parameters and gradients in the buffers of their units */
        embed_weight = root_all_gather + 0LL,
        up_weight = root_all_gather + 8192LL,
        up_bias = root_all_gather + 16384LL,
        down_weight = root_all_gather + 16896LL,
        down_bias = root_all_gather + 49664LL,
        down_weight_grad = root_grads + 33792LL,
        down_bias_grad = root_grads + 99328LL,
        up_weight_grad = root_grads + 16384LL,
        up_bias_grad = root_grads + 32768LL,
        embed_weight_grad = root_grads + 0LL,
    };

    /* ── forward · mlp ───────────────────────────────────────────────────────────────────── models/mlp.lua:30 ── */
    sc_all_gather(r, g0f, GATHER, 0, T(BF16, root_all_gather, 25088), T(BF16, root_wire, 12544));
        /* g0f: 24.5 KiB on the wire, mlp.lua:30 */
    RUN(zero, m_zero, COMPUTE, .state = T(FP32, p_metrics, 64)); /* m_zero: 256 B, mlp.lua:43 */
    RUN(full, e2, COMPUTE, .y = T(INT32, full_y, 8, 1)); /* e2: 32 B, mlp.lua:20 */
    RUN(concat, e3, COMPUTE, .y = T(INT32, concat_y, 8, 32), .x = {T(INT32, full_y, 8, 1),
        V(INT32, p_tokens, 2, SHAPE(8, 31), STRIDE(32, 1))}, .dim = 1); /* e3: 2.0 KiB, mlp.lua:20 */
    RUN(full, e5, COMPUTE, .y = T(INT32, full_y_e5, 8, 2)); /* e5: 64 B, mlp.lua:20 */
    RUN(concat, e6, COMPUTE, .y = T(INT32, concat_y_e6, 8, 32), .x = {T(INT32, full_y_e5, 8, 2),
        V(INT32, p_tokens, 2, SHAPE(8, 30), STRIDE(32, 1))}, .dim = 1); /* e6: 2.0 KiB, mlp.lua:20 */
    RUN(full, e8, COMPUTE, .y = T(INT32, full_y_e8, 8, 3)); /* e8: 96 B, mlp.lua:20 */
    RUN(concat, e9, COMPUTE, .y = T(INT32, concat_y_e9, 8, 32), .x = {T(INT32, full_y_e8, 8, 3),
        V(INT32, p_tokens, 2, SHAPE(8, 29), STRIDE(32, 1))}, .dim = 1); /* e9: 2.0 KiB, mlp.lua:20 */
    RUN(concat, e14, COMPUTE, .y = T(INT32, concat_y_e14, 8, 32, 4), .x = {T(INT32, p_tokens, 8, 32, 1),
        T(INT32, concat_y, 8, 32, 1), T(INT32, concat_y_e6, 8, 32, 1), T(INT32, concat_y_e9, 8, 32, 1)}, .dim = 2);
        /* e14: 8.0 KiB, mlp.lua:23 */
    sc_wait(r, COMPUTE, g0f); /* all_gather mlp has written root_all_gather */
    RUN(embedding, e15, COMPUTE, .y = T(BF16, embed_y, 8, 32, 4, 16), .index = T(INT32, concat_y_e14, 8, 32, 4),
        .w = T(BF16, embed_weight, 256, 16)); /* e15 embed: 68.0 KiB, mlp.lua:23 */
    RUN(matmul, e17, COMPUTE, .y = T(BF16, up_y, 8, 32, 64), .a = T(BF16, embed_y, 8, 32, 64),
        .b = T(BF16, up_weight, 64, 64), .bias = T(BF16, up_bias, 64), .work = BYTES(e17_workspace, 8388608),
        .trans_b = true); /* e17 up: 2.1 MFLOP, mlp.lua:24 */
    FUSED(relu, e18, COMPUTE, .y = {T(BF16, relu_y, 8, 32, 64)}, .x = {T(BF16, up_y, 8, 32, 64)});
        /* e18: relu, y in the bytes of x, 64.0 KiB, mlp.lua:24 */
    RUN(matmul, e19, COMPUTE, .y = T(BF16, down_y, 8, 32, 256), .a = T(BF16, relu_y, 8, 32, 64),
        .b = T(BF16, down_weight, 256, 64), .bias = T(BF16, down_bias, 256), .work = BYTES(e19_workspace, 8388608),
        .trans_b = true); /* e19 down: 8.5 MFLOP, mlp.lua:24 */

    /* ── backward · mlp ──────────────────────────────────────────────────────────────────── models/mlp.lua:38 ── */
    RUN(grad_seed, e22b0, COMPUTE, .y = T(FP32, grad_seed_y)); /* e22b0: 4 B, mlp.lua:38 */
    RUN(cross_entropy_grads, e22, COMPUTE, .dlogits = T(BF16, cross_entropy_dlogits, 256, 256),
        .loss = T(FP32, cross_entropy_loss), .losses = T(FP32, cross_entropy_losses, 256), .g = T(FP32, grad_seed_y),
        .logits = T(BF16, down_y, 256, 256), .targets = T(INT32, p_targets, 256), .ignore = -100);
        /* e22: dlogits in the bytes of logits, 258.0 KiB, mlp.lua:38 */
    RUN(store, m_loss, COMPUTE, .value = T(FP32, cross_entropy_loss), .state = T(FP32, p_metrics, 64));
        /* m_loss: 8 B, mlp.lua:43 */
    sc_wait(r, REDUCE, m_loss); /* store mlp has written p_metrics */
    sc_all_reduce(r, m_sum, REDUCE, 2, T(FP32, p_metrics, 64)); /* m_sum: 256 B on the wire, mlp.lua:43 */
    RUN(matmul, e19b0, COMPUTE, .y = T(BF16, down_grad, 8, 32, 64),
        .a = T(BF16, cross_entropy_dlogits, 8, 32, 256), .b = T(BF16, down_weight, 256, 64),
        .work = BYTES(e19b0_workspace, 8388608)); /* e19b0 down: 8.4 MFLOP, mlp.lua:24 */
    RUN(zero_gaps, z0, COMPUTE, .y = {T(FP32, root_grads + 33024LL, 192)}); /* z0: 768 B, mlp.lua:30 */
    RUN(matmul, e19b3, COMPUTE, .y = T(FP32, down_weight_grad, 256, 64),
        .a = T(BF16, cross_entropy_dlogits, 256, 256), .b = T(BF16, relu_y, 256, 64),
        .work = BYTES(e19b3_workspace, 8388608), .trans_a = true); /* e19b3 down: 8.4 MFLOP, mlp.lua:24 */
    RUN(sum, e19b4, COMPUTE, .y = T(FP32, down_bias_grad, 256), .x = T(BF16, cross_entropy_dlogits, 8, 32, 256),
        .over = 3); /* e19b4 down: 129.0 KiB, mlp.lua:24 */
    FUSED(relu_grad, e18b0, COMPUTE, .y = {T(BF16, relu_grad, 8, 32, 64)}, .x = {T(BF16, down_grad, 8, 32, 64),
        T(BF16, relu_y, 8, 32, 64)}); /* e18b0: relu_grad, y in the bytes of x[0], 96.0 KiB, mlp.lua:24 */
    RUN(matmul, e17b0, COMPUTE, .y = T(BF16, up_grad, 8, 32, 64), .a = T(BF16, relu_grad, 8, 32, 64),
        .b = T(BF16, up_weight, 64, 64), .work = BYTES(e17b0_workspace, 8388608));
        /* e17b0 up: 2.1 MFLOP, mlp.lua:24 */
    RUN(matmul, e17b3, COMPUTE, .y = T(FP32, up_weight_grad, 64, 64), .a = T(BF16, relu_grad, 256, 64),
        .b = T(BF16, embed_y, 256, 64), .work = BYTES(e17b3_workspace, 8388608), .trans_a = true);
        /* e17b3 up: 2.1 MFLOP, mlp.lua:24 */
    RUN(sum, e17b4, COMPUTE, .y = T(FP32, up_bias_grad, 64), .x = T(BF16, relu_grad, 8, 32, 64), .over = 3);
        /* e17b4 up: 32.2 KiB, mlp.lua:24 */
    RUN(embedding_grad, e15b0, COMPUTE, .dw = T(FP32, embed_weight_grad, 256, 16),
        .index = T(INT32, concat_y_e14, 8, 32, 4), .g = T(BF16, up_grad, 8, 32, 4, 16), .rows = 256);
        /* e15b0 embed: 116.0 KiB, mlp.lua:23 */
    sc_wait(r, REDUCE, e15b0);
        /* embedding_grad embed has written root_grads;
         * matmul up has written e17b3_workspace, whose bytes root_reduce_scatter takes */
    sc_reduce_scatter(r, r0, REDUCE, 0, T(FP32, root_reduce_scatter, 12544), T(FP32, root_grads, 25088));
        /* r0: 49.0 KiB on the wire, mlp.lua:30 */

    /* ── optimizer · mlp ─────────────────────────────────────────────────────────────────── models/mlp.lua:43 ── */
    RUN(count_step, count, COMPUTE, .step = T(INT64, adam_step, 1)); /* count: 8 B, mlp.lua:43 */
    sc_wait(r, COMPUTE, r0); /* reduce_scatter mlp has written root_reduce_scatter */
    RUN(sum_squares, n0, COMPUTE, .y = T(FP32, n0_whole, 1), .x = T(FP32, root_reduce_scatter, 12544));
        /* n0: 49.0 KiB, mlp.lua:30 */
    sc_wait(r, REDUCE, n0); /* sum_squares mlp has written n0_whole */
    sc_all_reduce(r, norm_sum, REDUCE, 0, T(FP32, n0_whole, 1)); /* norm_sum: 4 B on the wire, mlp.lua:43 */
    sc_wait(r, COMPUTE, norm_sum); /* all_reduce mlp has written n0_whole */
    RUN(clip_coefficient, clip, COMPUTE, .coefficient = T(FP32, clip_coefficient, 1),
        .norm = T(FP32, clip_norm, 1), .squares = T(FP32, n0_whole, 1)); /* clip: 12 B, mlp.lua:43 */
    RUN(store, m_norm, COMPUTE, .value = T(FP32, clip_norm, 1), .state = T(FP32, p_metrics, 64), .at = 1);
        /* m_norm: 8 B, mlp.lua:43 */
    RUN(adam, u0, COMPUTE, .grad = T(FP32, root_reduce_scatter, 12544), .master = T(FP32, root_master, 12544),
        .coefficient = T(FP32, clip_coefficient, 1), .m = T(FP32, root_moment1, 12544),
        .v = T(FP32, root_moment2, 12544), .step = T(INT64, adam_step, 1), .wire = T(BF16, root_wire, 12544),
        .decoupled = true, .slice = 12544, .table = micro_u0_table, .ntable = 6); /* u0: 392.0 KiB, mlp.lua:43 */
}

static void program_eval(sc_rank *r) {
    enum { g0f, m_zero, e2, e3, e5, e6, e8, e9, e14, e15, e17, e18, e19, e22, m_loss, m_sum };
    enum { /* where each storage begins; its size, the first and the last event that touch it */
        root_all_gather = 0x0084bf00, /* 49.0 KiB, g0f to e19 */
        root_wire = 0x0000d500, /* 24.5 KiB, persistent */
        p_metrics = 0x00000000, /* 256 B, persistent */
        full_y = 0x0002bf00, /* 256 B, e2 to e3 */
        concat_y = 0x0002cf00, /* 1.0 KiB, e3 to e14 */
        p_tokens = 0x00000400, /* 1.0 KiB, persistent */
        full_y_e5 = 0x0002bf00, /* 256 B, e5 to e6 */
        concat_y_e6 = 0x0002d300, /* 1.0 KiB, e6 to e14 */
        full_y_e8 = 0x0002bf00, /* 256 B, e8 to e9 */
        concat_y_e9 = 0x0002d700, /* 1.0 KiB, e9 to e14 */
        concat_y_e14 = 0x0002bf00, /* 4.0 KiB, e14 to e15 */
        embed_y = 0x0082bf00, /* 32.0 KiB, e15 to e17 */
        up_y = 0x00858300, /* 32.0 KiB, e17 to e19 */
        e17_workspace = 0x0002bf00, /* 8.0 MiB, e17 to e17 */
        relu_y = up_y, /* e18, in its bytes */
        down_y = 0x0082bf00, /* 128.0 KiB, e19 to e22 */
        e19_workspace = 0x0002bf00, /* 8.0 MiB, e19 to e19 */
        cross_entropy_loss = 0x0002c700, /* 256 B, e22 to m_loss */
        cross_entropy_most = 0x0002bf00, /* 1.0 KiB, e22 to e22 */
        cross_entropy_rest = 0x0002c300, /* 1.0 KiB, e22 to e22 */
        p_targets = 0x00000900, /* 1.0 KiB, persistent */
        /* parameters and gradients in the buffers of their units */
        embed_weight = root_all_gather + 0LL,
        up_weight = root_all_gather + 8192LL,
        up_bias = root_all_gather + 16384LL,
        down_weight = root_all_gather + 16896LL,
        down_bias = root_all_gather + 49664LL,
    };

    /* ── forward · mlp ───────────────────────────────────────────────────────────────────── models/mlp.lua:30 ── */
    sc_all_gather(r, g0f, GATHER, 0, T(BF16, root_all_gather, 25088), T(BF16, root_wire, 12544));
        /* g0f: 24.5 KiB on the wire, mlp.lua:30 */
    RUN(zero, m_zero, COMPUTE, .state = T(FP32, p_metrics, 64)); /* m_zero: 256 B, mlp.lua:43 */
    RUN(full, e2, COMPUTE, .y = T(INT32, full_y, 8, 1)); /* e2: 32 B, mlp.lua:20 */
    RUN(concat, e3, COMPUTE, .y = T(INT32, concat_y, 8, 32), .x = {T(INT32, full_y, 8, 1),
        V(INT32, p_tokens, 2, SHAPE(8, 31), STRIDE(32, 1))}, .dim = 1); /* e3: 2.0 KiB, mlp.lua:20 */
    RUN(full, e5, COMPUTE, .y = T(INT32, full_y_e5, 8, 2)); /* e5: 64 B, mlp.lua:20 */
    RUN(concat, e6, COMPUTE, .y = T(INT32, concat_y_e6, 8, 32), .x = {T(INT32, full_y_e5, 8, 2),
        V(INT32, p_tokens, 2, SHAPE(8, 30), STRIDE(32, 1))}, .dim = 1); /* e6: 2.0 KiB, mlp.lua:20 */
    RUN(full, e8, COMPUTE, .y = T(INT32, full_y_e8, 8, 3)); /* e8: 96 B, mlp.lua:20 */
    RUN(concat, e9, COMPUTE, .y = T(INT32, concat_y_e9, 8, 32), .x = {T(INT32, full_y_e8, 8, 3),
        V(INT32, p_tokens, 2, SHAPE(8, 29), STRIDE(32, 1))}, .dim = 1); /* e9: 2.0 KiB, mlp.lua:20 */
    RUN(concat, e14, COMPUTE, .y = T(INT32, concat_y_e14, 8, 32, 4), .x = {T(INT32, p_tokens, 8, 32, 1),
        T(INT32, concat_y, 8, 32, 1), T(INT32, concat_y_e6, 8, 32, 1), T(INT32, concat_y_e9, 8, 32, 1)}, .dim = 2);
        /* e14: 8.0 KiB, mlp.lua:23 */
    sc_wait(r, COMPUTE, g0f); /* all_gather mlp has written root_all_gather */
    RUN(embedding, e15, COMPUTE, .y = T(BF16, embed_y, 8, 32, 4, 16), .index = T(INT32, concat_y_e14, 8, 32, 4),
        .w = T(BF16, embed_weight, 256, 16)); /* e15 embed: 68.0 KiB, mlp.lua:23 */
    RUN(matmul, e17, COMPUTE, .y = T(BF16, up_y, 8, 32, 64), .a = T(BF16, embed_y, 8, 32, 64),
        .b = T(BF16, up_weight, 64, 64), .bias = T(BF16, up_bias, 64), .work = BYTES(e17_workspace, 8388608),
        .trans_b = true); /* e17 up: 2.1 MFLOP, mlp.lua:24 */
    FUSED(relu, e18, COMPUTE, .y = {T(BF16, relu_y, 8, 32, 64)}, .x = {T(BF16, up_y, 8, 32, 64)});
        /* e18: relu, y in the bytes of x, 64.0 KiB, mlp.lua:24 */
    RUN(matmul, e19, COMPUTE, .y = T(BF16, down_y, 8, 32, 256), .a = T(BF16, relu_y, 8, 32, 64),
        .b = T(BF16, down_weight, 256, 64), .bias = T(BF16, down_bias, 256), .work = BYTES(e19_workspace, 8388608),
        .trans_b = true); /* e19 down: 8.5 MFLOP, mlp.lua:24 */
    RUN(cross_entropy, e22, COMPUTE, .loss = T(FP32, cross_entropy_loss), .most = T(FP32, cross_entropy_most, 256),
        .rest = T(FP32, cross_entropy_rest, 256), .logits = T(BF16, down_y, 256, 256),
        .targets = T(INT32, p_targets, 256), .ignore = -100); /* e22: 131.0 KiB, mlp.lua:38 */
    RUN(store, m_loss, COMPUTE, .value = T(FP32, cross_entropy_loss), .state = T(FP32, p_metrics, 64));
        /* m_loss: 8 B, mlp.lua:43 */
    sc_wait(r, REDUCE, m_loss); /* store mlp has written p_metrics */
    sc_all_reduce(r, m_sum, REDUCE, 2, T(FP32, p_metrics, 64)); /* m_sum: 256 B on the wire, mlp.lua:43 */
}

static void program_sample(sc_rank *r) {
    enum { g0f, e2, e3, e5, e6, e8, e9, e14, e15, e17, e18, e19, logits };
    enum { /* where each storage begins; its size, the first and the last event that touch it */
        root_all_gather = 0x0082bf00, /* 49.0 KiB, g0f to e19 */
        root_wire = 0x0000d500, /* 24.5 KiB, persistent */
        full_y = 0x0002bf00, /* 256 B, e2 to e3 */
        concat_y = 0x0002c100, /* 256 B, e3 to e14 */
        sample_tokens = 0x00000800, /* 256 B, persistent */
        full_y_e5 = 0x0002bf00, /* 256 B, e5 to e6 */
        concat_y_e6 = 0x0002c200, /* 256 B, e6 to e14 */
        full_y_e8 = 0x0002bf00, /* 256 B, e8 to e9 */
        concat_y_e9 = 0x0002c300, /* 256 B, e9 to e14 */
        concat_y_e14 = 0x0002bf00, /* 512 B, e14 to e15 */
        embed_y = 0x00838300, /* 4.0 KiB, e15 to e17 */
        up_y = 0x0083c300, /* 4.0 KiB, e17 to e19 */
        e17_workspace = 0x0002bf00, /* 8.0 MiB, e17 to e17 */
        relu_y = up_y, /* e18, in its bytes */
        down_y = 0x00838300, /* 16.0 KiB, e19 to logits */
        e19_workspace = 0x0002bf00, /* 8.0 MiB, e19 to e19 */
        p_logits = 0x00000d00, /* 1.0 KiB, persistent */
        /* parameters and gradients in the buffers of their units */
        embed_weight = root_all_gather + 0LL,
        up_weight = root_all_gather + 8192LL,
        up_bias = root_all_gather + 16384LL,
        down_weight = root_all_gather + 16896LL,
        down_bias = root_all_gather + 49664LL,
    };

    /* ── forward · mlp ───────────────────────────────────────────────────────────────────── models/mlp.lua:30 ── */
    sc_all_gather(r, g0f, GATHER, 0, T(BF16, root_all_gather, 25088), T(BF16, root_wire, 12544));
        /* g0f: 24.5 KiB on the wire, mlp.lua:30 */
    RUN(full, e2, COMPUTE, .y = T(INT32, full_y, 1, 1)); /* e2: 4 B, mlp.lua:20 */
    RUN(concat, e3, COMPUTE, .y = T(INT32, concat_y, 1, 32), .x = {T(INT32, full_y, 1, 1),
        T(INT32, sample_tokens, 1, 31)}, .dim = 1); /* e3: 256 B, mlp.lua:20 */
    RUN(full, e5, COMPUTE, .y = T(INT32, full_y_e5, 1, 2)); /* e5: 8 B, mlp.lua:20 */
    RUN(concat, e6, COMPUTE, .y = T(INT32, concat_y_e6, 1, 32), .x = {T(INT32, full_y_e5, 1, 2),
        T(INT32, sample_tokens, 1, 30)}, .dim = 1); /* e6: 256 B, mlp.lua:20 */
    RUN(full, e8, COMPUTE, .y = T(INT32, full_y_e8, 1, 3)); /* e8: 12 B, mlp.lua:20 */
    RUN(concat, e9, COMPUTE, .y = T(INT32, concat_y_e9, 1, 32), .x = {T(INT32, full_y_e8, 1, 3),
        T(INT32, sample_tokens, 1, 29)}, .dim = 1); /* e9: 256 B, mlp.lua:20 */
    RUN(concat, e14, COMPUTE, .y = T(INT32, concat_y_e14, 1, 32, 4), .x = {T(INT32, sample_tokens, 1, 32, 1),
        T(INT32, concat_y, 1, 32, 1), T(INT32, concat_y_e6, 1, 32, 1), T(INT32, concat_y_e9, 1, 32, 1)}, .dim = 2);
        /* e14: 1.0 KiB, mlp.lua:23 */
    sc_wait(r, COMPUTE, g0f); /* all_gather mlp has written root_all_gather */
    RUN(embedding, e15, COMPUTE, .y = T(BF16, embed_y, 1, 32, 4, 16), .index = T(INT32, concat_y_e14, 1, 32, 4),
        .w = T(BF16, embed_weight, 256, 16)); /* e15 embed: 8.5 KiB, mlp.lua:23 */
    RUN(matmul, e17, COMPUTE, .y = T(BF16, up_y, 1, 32, 64), .a = T(BF16, embed_y, 1, 32, 64),
        .b = T(BF16, up_weight, 64, 64), .bias = T(BF16, up_bias, 64), .work = BYTES(e17_workspace, 8388608),
        .trans_b = true); /* e17 up: 264.2 kFLOP, mlp.lua:24 */
    FUSED(relu, e18, COMPUTE, .y = {T(BF16, relu_y, 1, 32, 64)}, .x = {T(BF16, up_y, 1, 32, 64)});
        /* e18: relu, y in the bytes of x, 8.0 KiB, mlp.lua:24 */
    RUN(matmul, e19, COMPUTE, .y = T(BF16, down_y, 1, 32, 256), .a = T(BF16, relu_y, 1, 32, 64),
        .b = T(BF16, down_weight, 256, 64), .bias = T(BF16, down_bias, 256), .work = BYTES(e19_workspace, 8388608),
        .trans_b = true); /* e19 down: 1.1 MFLOP, mlp.lua:24 */
    RUN(pick, logits, COMPUTE, .logits = T(BF16, down_y, 1, 32, 256), .state = T(FP32, p_logits, 256));
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
    {21, 0, 8388608},
    {20, 0, 32768},
    {20, 0, 32768},
    {20, 0, 32768},
    {18, 16896, 32768},
    {18, 49664, 512},
    {22, 0, 131072},
    {23, 0, 8388608},
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
    {28, 0, 8388608},
    {29, 33024, 768},
    {22, 0, 131072},
    {20, 0, 32768},
    {29, 33792, 65536},
    {30, 0, 8388608},
    {22, 0, 131072},
    {29, 99328, 1024},
    {27, 0, 32768},
    {20, 0, 32768},
    {27, 0, 32768},
    {27, 0, 32768},
    {18, 8192, 8192},
    {31, 0, 32768},
    {32, 0, 8388608},
    {27, 0, 32768},
    {19, 0, 32768},
    {29, 16384, 16384},
    {33, 0, 8388608},
    {27, 0, 32768},
    {29, 32768, 256},
    {17, 0, 4096},
    {31, 0, 32768},
    {29, 0, 16384},
    {29, 0, 100352},
    {34, 0, 50176},
    {2, 0, 8},
    {2, 0, 8},
    {34, 0, 50176},
    {35, 0, 4},
    {35, 0, 4},
    {35, 0, 4},
    {35, 0, 4},
    {36, 0, 4},
    {37, 0, 4},
    {37, 0, 4},
    {0, 4, 4},
    {34, 0, 50176},
    {7, 0, 50176},
    {36, 0, 4},
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
    {"e19b4", "sum", "down", "backward", "models/mlp.lua", 24, COMPUTE, waits_of_micro + 2, 0, accesses_of_micro + 55, accesses_of_micro + 56, 1, 1, 0x1},
    {"e18b0", "relu_grad", "", "backward", "models/mlp.lua", 24, COMPUTE, waits_of_micro + 2, 0, accesses_of_micro + 57, accesses_of_micro + 59, 2, 1, 0x1},
    {"e17b0", "matmul", "up", "backward", "models/mlp.lua", 24, COMPUTE, waits_of_micro + 2, 0, accesses_of_micro + 60, accesses_of_micro + 62, 2, 2, 0x1},
    {"e17b3", "matmul", "up", "backward", "models/mlp.lua", 24, COMPUTE, waits_of_micro + 2, 0, accesses_of_micro + 64, accesses_of_micro + 66, 2, 2, 0x1},
    {"e17b4", "sum", "up", "backward", "models/mlp.lua", 24, COMPUTE, waits_of_micro + 2, 0, accesses_of_micro + 68, accesses_of_micro + 69, 1, 1, 0x1},
    {"e15b0", "embedding_grad", "embed", "backward", "models/mlp.lua", 23, COMPUTE, waits_of_micro + 2, 0, accesses_of_micro + 70, accesses_of_micro + 72, 2, 1, 0x1},
    {"r0", "reduce_scatter", "", "backward", "models/mlp.lua", 30, REDUCE, waits_of_micro + 2, 1, accesses_of_micro + 73, accesses_of_micro + 74, 1, 1, 0x1},
    {"count", "count_step", "", "optimizer", "models/mlp.lua", 43, COMPUTE, waits_of_micro + 3, 0, accesses_of_micro + 75, accesses_of_micro + 76, 1, 1, 0x1},
    {"n0", "sum_squares", "", "optimizer", "models/mlp.lua", 30, COMPUTE, waits_of_micro + 3, 1, accesses_of_micro + 77, accesses_of_micro + 78, 1, 1, 0x1},
    {"norm_sum", "all_reduce", "", "optimizer", "models/mlp.lua", 43, REDUCE, waits_of_micro + 4, 1, accesses_of_micro + 79, accesses_of_micro + 80, 1, 1, 0x1},
    {"clip", "clip_coefficient", "", "optimizer", "models/mlp.lua", 43, COMPUTE, waits_of_micro + 5, 1, accesses_of_micro + 81, accesses_of_micro + 82, 1, 2, 0x3},
    {"m_norm", "store", "", "optimizer", "models/mlp.lua", 43, COMPUTE, waits_of_micro + 6, 0, accesses_of_micro + 84, accesses_of_micro + 85, 1, 1, 0x2},
    {"u0", "adam", "", "optimizer", "models/mlp.lua", 43, COMPUTE, waits_of_micro + 6, 0, accesses_of_micro + 86, accesses_of_micro + 93, 7, 4, 0x5a},
};

static const int waits_of_eval[] = {
    0,    14,};

static const sc_access accesses_of_eval[] = {
    {8, 0, 25088},
    {45, 0, 50176},
    {0, 0, 256},
    {38, 0, 32},
    {38, 0, 32},
    {3, 0, 1020},
    {39, 0, 1024},
    {40, 0, 64},
    {40, 0, 64},
    {3, 0, 1016},
    {41, 0, 1024},
    {42, 0, 96},
    {42, 0, 96},
    {3, 0, 1012},
    {43, 0, 1024},
    {3, 0, 1024},
    {39, 0, 1024},
    {41, 0, 1024},
    {43, 0, 1024},
    {44, 0, 4096},
    {44, 0, 4096},
    {45, 0, 8192},
    {46, 0, 32768},
    {46, 0, 32768},
    {45, 8192, 8192},
    {45, 16384, 128},
    {47, 0, 32768},
    {48, 0, 8388608},
    {47, 0, 32768},
    {47, 0, 32768},
    {47, 0, 32768},
    {45, 16896, 32768},
    {45, 49664, 512},
    {49, 0, 131072},
    {50, 0, 8388608},
    {49, 0, 131072},
    {5, 0, 1024},
    {51, 0, 4},
    {52, 0, 1024},
    {53, 0, 1024},
    {51, 0, 4},
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
    {"e22", "cross_entropy", "", "forward", "models/mlp.lua", 38, COMPUTE, waits_of_eval + 1, 0, accesses_of_eval + 35, accesses_of_eval + 37, 2, 3, 0x7},
    {"m_loss", "store", "", "forward", "models/mlp.lua", 43, COMPUTE, waits_of_eval + 1, 0, accesses_of_eval + 40, accesses_of_eval + 41, 1, 1, 0x2},
    {"m_sum", "all_reduce", "", "optimizer", "models/mlp.lua", 43, REDUCE, waits_of_eval + 1, 1, accesses_of_eval + 42, accesses_of_eval + 43, 1, 1, 0x1},
};

static const int waits_of_sample[] = {
    0,};

static const sc_access accesses_of_sample[] = {
    {8, 0, 25088},
    {61, 0, 50176},
    {54, 0, 4},
    {54, 0, 4},
    {4, 0, 124},
    {55, 0, 128},
    {56, 0, 8},
    {56, 0, 8},
    {4, 0, 120},
    {57, 0, 128},
    {58, 0, 12},
    {58, 0, 12},
    {4, 0, 116},
    {59, 0, 128},
    {4, 0, 128},
    {55, 0, 128},
    {57, 0, 128},
    {59, 0, 128},
    {60, 0, 512},
    {60, 0, 512},
    {61, 0, 8192},
    {62, 0, 4096},
    {62, 0, 4096},
    {61, 8192, 8192},
    {61, 16384, 128},
    {63, 0, 4096},
    {64, 0, 8388608},
    {63, 0, 4096},
    {63, 0, 4096},
    {63, 0, 4096},
    {61, 16896, 32768},
    {61, 49664, 512},
    {65, 0, 16384},
    {66, 0, 8388608},
    {65, 0, 16384},
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
    {"init", program_init, events_of_init, 11, 33000},
    {"start", program_start, events_of_start, 1, 3000},
    {"micro", program_micro, events_of_micro, 33, 295081},
    {"eval", program_eval, events_of_eval, 16, 110427},
    {"sample", program_sample, events_of_sample, 13, 39605},
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
    {"e2.y", 0x2c300, 256, 0, 2, 2, 3},
    {"e3.y", 0x2bf00, 1024, 0, 2, 3, 8},
    {"e5.y", 0x2c700, 256, 0, 2, 4, 5},
    {"e6.y", 0x2c300, 1024, 0, 2, 5, 8},
    {"e8.y", 0x2cb00, 256, 0, 2, 6, 7},
    {"e9.y", 0x2c700, 1024, 0, 2, 7, 8},
    {"e14.y", 0x888b00, 4096, 0, 2, 8, 25},
    {"g0f.y", 0x864700, 50176, 0, 2, 0, 22},
    {"e15.y", 0x870b00, 32768, 0, 2, 9, 23},
    {"e17.y", 0x878b00, 32768, 0, 2, 10, 21},
    {"e17.workspace", 0x2bf00, 8388608, 0, 2, 10, 10},
    {"e19.y", 0x82bf00, 131072, 0, 2, 12, 20},
    {"e19.workspace", 0x2bf00, 8388608, 0, 2, 12, 12},
    {"e22b0.y", 0x2c300, 256, 0, 2, 13, 14},
    {"e22.loss", 0x2c400, 256, 0, 2, 14, 15},
    {"e22.losses", 0x2bf00, 1024, 0, 2, 14, 14},
    {"e19b0.y", 0x880b00, 32768, 0, 2, 17, 24},
    {"e19b0.workspace", 0x2bf00, 8388608, 0, 2, 17, 17},
    {"z0.grads", 0x84bf00, 100352, 0, 2, 18, 26},
    {"e19b3.workspace", 0x2bf00, 8388608, 0, 2, 19, 19},
    {"e17b0.y", 0x82bf00, 32768, 0, 2, 22, 25},
    {"e17b0.workspace", 0x2bf00, 8388608, 0, 2, 22, 22},
    {"e17b3.workspace", 0x2bf00, 8388608, 0, 2, 23, 23},
    {"r0.y", 0x2bf00, 50176, 0, 2, 26, 32},
    {"n0.whole", 0x38300, 256, 0, 2, 28, 30},
    {"clip.coefficient", 0x38400, 256, 0, 2, 30, 32},
    {"clip.norm", 0x38500, 256, 0, 2, 30, 31},
    {"e2.y", 0x2bf00, 256, 0, 3, 2, 3},
    {"e3.y", 0x2cf00, 1024, 0, 3, 3, 8},
    {"e5.y", 0x2bf00, 256, 0, 3, 4, 5},
    {"e6.y", 0x2d300, 1024, 0, 3, 5, 8},
    {"e8.y", 0x2bf00, 256, 0, 3, 6, 7},
    {"e9.y", 0x2d700, 1024, 0, 3, 7, 8},
    {"e14.y", 0x2bf00, 4096, 0, 3, 8, 9},
    {"g0f.y", 0x84bf00, 50176, 0, 3, 0, 12},
    {"e15.y", 0x82bf00, 32768, 0, 3, 9, 10},
    {"e17.y", 0x858300, 32768, 0, 3, 10, 12},
    {"e17.workspace", 0x2bf00, 8388608, 0, 3, 10, 10},
    {"e19.y", 0x82bf00, 131072, 0, 3, 12, 13},
    {"e19.workspace", 0x2bf00, 8388608, 0, 3, 12, 12},
    {"e22.loss", 0x2c700, 256, 0, 3, 13, 14},
    {"e22.most", 0x2bf00, 1024, 0, 3, 13, 13},
    {"e22.rest", 0x2c300, 1024, 0, 3, 13, 13},
    {"e2.y", 0x2bf00, 256, 0, 4, 1, 2},
    {"e3.y", 0x2c100, 256, 0, 4, 2, 7},
    {"e5.y", 0x2bf00, 256, 0, 4, 3, 4},
    {"e6.y", 0x2c200, 256, 0, 4, 4, 7},
    {"e8.y", 0x2bf00, 256, 0, 4, 5, 6},
    {"e9.y", 0x2c300, 256, 0, 4, 6, 7},
    {"e14.y", 0x2bf00, 512, 0, 4, 7, 8},
    {"g0f.y", 0x82bf00, 50176, 0, 4, 0, 11},
    {"e15.y", 0x838300, 4096, 0, 4, 8, 9},
    {"e17.y", 0x83c300, 4096, 0, 4, 9, 11},
    {"e17.workspace", 0x2bf00, 8388608, 0, 4, 9, 9},
    {"e19.y", 0x838300, 16384, 0, 4, 11, 12},
    {"e19.workspace", 0x2bf00, 8388608, 0, 4, 11, 11},
};

static const sc_param_info params[] = {
    {"embed.weight", "embed", FP32, 2, {256, 16}, 0, 1, 0, 0, 4096, 0, 0x0, 0, 0, 0},
    {"up.weight", "up", FP32, 2, {64, 64}, 0, 1, 0, 4096, 4096, 0, 0x0, 0, 0, 0},
    {"up.bias", "up", FP32, 1, {64}, 0, 1, 0, 8192, 64, 0, 0x0, 0, 0, 0},
    {"down.weight", "down", FP32, 2, {256, 64}, 0, 1, 0, 8448, 16384, 0, 0x0, 0, 0, 0},
    {"down.bias", "down", FP32, 1, {256}, 0, 1, 0, 24832, 256, 0, 0x0, 0, 0, 0},
};

static const sc_axis axes[] = {
    {"shard", 2, 1},
    {"replicate", 1, 2},
    {"world", 2, 1},
};

static const sc_comm_info comms[] = {
    {"shard", 0, 0},
    {"replicate", 1, 0},
    {"world", 2, 0},
};

static const sc_unit_info units[] = {
    {"", 0, 0, 12544, 0, FP32, BF16, FP32,
        0x1100, 0xd500, 0x13700, 0x1fb00, 0x0, 0x0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0},
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

static const sc_class_info peak[] = {
    {"parameters", 75264},
    {"optimizer state", 100608},
    {"inputs", 3328},
    {"record", 768},
    {"unsharded", 50176},
    {"unsharded gradients", 100352},
    {"activations", 200704},
    {"temporary", 32768},
    {"workspace", 8388608},
};

static const sc_dump_info dumps[] = {
    {"mlp/g0f", 2, 0, {0x864700, 0, BF16, 1, 1, {25088}, {1}, 0}},
    {"mlp/e2", 2, 2, {0x2c300, 0, INT32, 2, 1, {8, 1}, {1, 1}, 0}},
    {"mlp/e3", 2, 3, {0x2bf00, 0, INT32, 2, 1, {8, 32}, {32, 1}, 0}},
    {"mlp/e5", 2, 4, {0x2c700, 0, INT32, 2, 1, {8, 2}, {2, 1}, 0}},
    {"mlp/e6", 2, 5, {0x2c300, 0, INT32, 2, 1, {8, 32}, {32, 1}, 0}},
    {"mlp/e8", 2, 6, {0x2cb00, 0, INT32, 2, 1, {8, 3}, {3, 1}, 0}},
    {"mlp/e9", 2, 7, {0x2c700, 0, INT32, 2, 1, {8, 32}, {32, 1}, 0}},
    {"mlp/e14", 2, 8, {0x888b00, 0, INT32, 3, 1, {8, 32, 4}, {128, 4, 1}, 0}},
    {"embed/e15", 2, 9, {0x870b00, 0, BF16, 4, 1, {8, 32, 4, 16}, {2048, 64, 16, 1}, 0}},
    {"up/e17", 2, 10, {0x878b00, 0, BF16, 3, 1, {8, 32, 64}, {2048, 64, 1}, 0}},
    {"mlp/e18", 2, 11, {0x878b00, 0, BF16, 3, 1, {8, 32, 64}, {2048, 64, 1}, 0}},
    {"down/e19", 2, 12, {0x82bf00, 0, BF16, 3, 1, {8, 32, 256}, {8192, 256, 1}, 0}},
    {"mlp/e22b0", 2, 13, {0x2c300, 0, FP32, 0, 1, {}, {}, 0}},
    {"mlp/e22", 2, 14, {0x82bf00, 0, BF16, 2, 1, {256, 256}, {256, 1}, 0}},
    {"mlp/e22.1", 2, 14, {0x2c400, 0, FP32, 0, 1, {}, {}, 0}},
    {"mlp/e22.2", 2, 14, {0x2bf00, 0, FP32, 1, 1, {256}, {1}, 0}},
    {"down/e19b0", 2, 17, {0x880b00, 0, BF16, 3, 1, {8, 32, 64}, {2048, 64, 1}, 0}},
    {"mlp/z0", 2, 18, {0x854000, 0, FP32, 1, 1, {192}, {1}, 0}},
    {"down.weight.grad", 2, 19, {0x854300, 0, FP32, 2, 1, {256, 64}, {64, 1}, 0}},
    {"down.bias.grad", 2, 20, {0x864300, 0, FP32, 1, 1, {256}, {1}, 0}},
    {"mlp/e18b0", 2, 21, {0x880b00, 0, BF16, 3, 1, {8, 32, 64}, {2048, 64, 1}, 0}},
    {"up/e17b0", 2, 22, {0x82bf00, 0, BF16, 3, 1, {8, 32, 64}, {2048, 64, 1}, 0}},
    {"up.weight.grad", 2, 23, {0x84ff00, 0, FP32, 2, 1, {64, 64}, {64, 1}, 0}},
    {"up.bias.grad", 2, 24, {0x853f00, 0, FP32, 1, 1, {64}, {1}, 0}},
    {"embed.weight.grad", 2, 25, {0x84bf00, 0, FP32, 2, 1, {256, 16}, {16, 1}, 0}},
    {"mlp/r0", 2, 26, {0x2bf00, 0, FP32, 1, 1, {12544}, {1}, 0}},
    {"mlp/n0", 2, 28, {0x38300, 0, FP32, 1, 1, {1}, {1}, 0}},
    {"mlp/clip", 2, 30, {0x38400, 0, FP32, 1, 1, {1}, {1}, 0}},
    {"mlp/clip.1", 2, 30, {0x38500, 0, FP32, 1, 1, {1}, {1}, 0}},
    {"eval/mlp/g0f", 3, 0, {0x84bf00, 0, BF16, 1, 1, {25088}, {1}, 0}},
    {"eval/mlp/e2", 3, 2, {0x2bf00, 0, INT32, 2, 1, {8, 1}, {1, 1}, 0}},
    {"eval/mlp/e3", 3, 3, {0x2cf00, 0, INT32, 2, 1, {8, 32}, {32, 1}, 0}},
    {"eval/mlp/e5", 3, 4, {0x2bf00, 0, INT32, 2, 1, {8, 2}, {2, 1}, 0}},
    {"eval/mlp/e6", 3, 5, {0x2d300, 0, INT32, 2, 1, {8, 32}, {32, 1}, 0}},
    {"eval/mlp/e8", 3, 6, {0x2bf00, 0, INT32, 2, 1, {8, 3}, {3, 1}, 0}},
    {"eval/mlp/e9", 3, 7, {0x2d700, 0, INT32, 2, 1, {8, 32}, {32, 1}, 0}},
    {"eval/mlp/e14", 3, 8, {0x2bf00, 0, INT32, 3, 1, {8, 32, 4}, {128, 4, 1}, 0}},
    {"eval/embed/e15", 3, 9, {0x82bf00, 0, BF16, 4, 1, {8, 32, 4, 16}, {2048, 64, 16, 1}, 0}},
    {"eval/up/e17", 3, 10, {0x858300, 0, BF16, 3, 1, {8, 32, 64}, {2048, 64, 1}, 0}},
    {"eval/mlp/e18", 3, 11, {0x858300, 0, BF16, 3, 1, {8, 32, 64}, {2048, 64, 1}, 0}},
    {"eval/down/e19", 3, 12, {0x82bf00, 0, BF16, 3, 1, {8, 32, 256}, {8192, 256, 1}, 0}},
    {"eval/mlp/e22", 3, 13, {0x2c700, 0, FP32, 0, 1, {}, {}, 0}},
    {"eval/mlp/e22.1", 3, 13, {0x2bf00, 0, FP32, 1, 1, {256}, {1}, 0}},
    {"eval/mlp/e22.2", 3, 13, {0x2c300, 0, FP32, 1, 1, {256}, {1}, 0}},
    {"sample/mlp/g0f", 4, 0, {0x82bf00, 0, BF16, 1, 1, {25088}, {1}, 0}},
    {"sample/mlp/e2", 4, 1, {0x2bf00, 0, INT32, 2, 1, {1, 1}, {1, 1}, 0}},
    {"sample/mlp/e3", 4, 2, {0x2c100, 0, INT32, 2, 1, {1, 32}, {32, 1}, 0}},
    {"sample/mlp/e5", 4, 3, {0x2bf00, 0, INT32, 2, 1, {1, 2}, {2, 1}, 0}},
    {"sample/mlp/e6", 4, 4, {0x2c200, 0, INT32, 2, 1, {1, 32}, {32, 1}, 0}},
    {"sample/mlp/e8", 4, 5, {0x2bf00, 0, INT32, 2, 1, {1, 3}, {3, 1}, 0}},
    {"sample/mlp/e9", 4, 6, {0x2c300, 0, INT32, 2, 1, {1, 32}, {32, 1}, 0}},
    {"sample/mlp/e14", 4, 7, {0x2bf00, 0, INT32, 3, 1, {1, 32, 4}, {128, 4, 1}, 0}},
    {"sample/embed/e15", 4, 8, {0x838300, 0, BF16, 4, 1, {1, 32, 4, 16}, {2048, 64, 16, 1}, 0}},
    {"sample/up/e17", 4, 9, {0x83c300, 0, BF16, 3, 1, {1, 32, 64}, {2048, 64, 1}, 0}},
    {"sample/mlp/e18", 4, 10, {0x83c300, 0, BF16, 3, 1, {1, 32, 64}, {2048, 64, 1}, 0}},
    {"sample/down/e19", 4, 11, {0x838300, 0, BF16, 3, 1, {1, 32, 256}, {8192, 256, 1}, 0}},
};

static const sc_setting_info settings[] = {
    {"precision", "computes in bf16, gradients in fp32", 0},
    {"loss scale", "none", 0},
    {"nesterov", "false", 0},
    {"groups of the optimizer", "", 0},
    {"batch", "8", 1},
    {"dim", "16", 1},
    {"hidden", "64", 1},
    {"lr", "0.003", 1},
    {"precision", "bf16", 1},
    {"seq", "32", 1},
    {"vocab", "256", 1},
    {"window", "4", 1},
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

static const sc_option_info options[] = {
    {"batch", "8"},
    {"dim", "16"},
    {"hidden", "64"},
    {"lr", "0.003"},
    {"precision", "bf16"},
    {"seq", "32"},
    {"vocab", "256"},
    {"window", "4"},
};
const sc_build sc_this_build = {
    .name = "mlp",
    .model_file = "models/mlp.lua",
    .target = "cpu",
    .compiler = SC_COMPILER,
    .options = options,
    .noptions = 8,
    .deterministic = 1,
    .world = 2,
    .nodes = 1,
    .threads = 2,
    .accumulate = 1,
    .arena_bytes = 8952576,
    .host_bytes = 0,
    .peak = peak,
    .npeak = 9,
    .programs = programs,
    .nprograms = 5,
    .storages = storages,
    .nstorages = 67,
    .params = params,
    .nparams = 5,
    .units = units,
    .nunits = 1,
    .axes = axes,
    .naxes = 3,
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
    .ndumps = 56,
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
    .unproven = "square matrices [out,in]",
    .settings = settings,
    .nsettings = 12,
    .groups = groups,
    .ngroups = 1,
    .plan_hash = 0x804296f40376b7bdu,
    .plan_json = sc_plan_json_begin,
    .plan_json_end = sc_plan_json_end,
};
