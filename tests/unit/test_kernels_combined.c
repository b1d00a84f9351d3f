/* Kernels of ops that epilogue fusion makes, against naive references in double.
 * Relies on: kernel_check.h, runtime/cpu's k_*.c (float build, or the whole with -DSC_FP64).
 * Relied on by: make test. */
#include "kernel_check.h"

/* ── matmul with an addend and gelu ──────────────────────────────────────────────────────────────────────────────────
 */
static double gelu_tanh(double x) {
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
static double gelu_tanh_slope(double x) {
    double t = tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
}

static double silu(double x) {
    return x / (1 + exp(-x));
}
static double silu_slope(double x) {
    double s = 1 / (1 + exp(-x));
    return s + x * s * (1 - s);
}

/* gelu's largest slope; what our mathematics is off by, of gelu, silu and their slopes, whatever the size of them. */
#define STEEPEST 1.13
#define MATH (8 * unit_roundoff)

/* f: an sc_epilogue of gelu, or 0. batch: products, each with a b. */
static void check_product(int d, int64_t batch, int64_t m, int64_t n, int64_t k, int bias, int add, int f) {
    sc_tensor y = T_(d, batch, m, n), z = T_(d, batch, m, n), a = filled(T_(d, batch, m, k), 1, 0);
    sc_tensor b = filled(batch > 1 ? T_(d, batch, k, n) : T_(d, k, n), 0.3, 0), v = filled(T_(d, n), 1, 0);
    sc_tensor c = filled(T_(d, batch, m, n), 1, 0), x = filled(T_(d, batch, m, n), 2, 0);
    sc_matmul_args args = {.y = y, .a = a, .b = b, .epilogue = f};
    if (SC_HAS(f, SC_GELU | SC_TOO)) args.aux = z;
    if (bias) args.bias = v;
    if (add) args.c = c;
    if (SC_HAS(f, SC_GELU | SC_GRADIENT)) args.x = x;
    if (d != SC_REAL) args.work = workspace(3 * SC_CPU_MATMUL_BYTES);
    run_args(matmul, &args);
    for (int64_t i = 0; i < batch * m * n; i++) {
        double s = (bias ? val(&v, i % n) : 0) + (add ? val(&c, i) : 0), size = fabs(s);
        for (int64_t l = 0; l < k; l++) {
            double p = val(&a, i / n * k + l) * val(&b, (i / (m * n) * k + l) * n + i % n);
            s += p, size += fabs(p);
        }
        double off = sum_error(k + bias + add) * size, slope = gelu_tanh_slope(val(&x, i));
        if (SC_HAS(f, SC_GELU | SC_TOO)) {
            near_within(&z, i, s, off, "gelu's argument");
            s = val(&z, i), off = 0;
        }
        if (SC_HAS(f, SC_GELU | SC_TOO) || f == SC_GELU)
            near_within(&y, i, gelu_tanh(s), STEEPEST * off + MATH * fabs(s), "gelu of a product");
        if (SC_HAS(f, SC_GELU | SC_GRADIENT))
            near_within(&y, i, s * slope, STEEPEST * off + MATH * fabs(s), "gelu's gradient of a product");
        if (!f) near_within(&y, i, s, off, "product and addend");
    }
    release();
}

/* f: an sc_epilogue of a gate. lent: the gate (1) or `up` (2) lends its bytes to result 0. */
static void check_gated(int d, int64_t batch, int64_t m, int64_t n, int64_t k, int bias, int f, int lent) {
    sc_tensor z = T_(d, batch, m, n), a = filled(T_(d, batch, m, k), 1, 0), v = filled(T_(d, n), 1, 0);
    sc_tensor b = filled(batch > 1 ? T_(d, batch, n, k) : T_(d, n, k), 0.3, 0), y = T_(d, batch, m, n);
    sc_tensor gate = filled(T_(d, batch, m, n), 2, 0), up = filled(T_(d, batch, m, n), 1, 0);
    sc_tensor gates = filled(T_(d, batch, m, n), 0, 0), ups = filled(T_(d, batch, m, n), 0, 0);
    for (int64_t i = 0; i < batch * m * n; i++) sc_set(&gates, i, val(&gate, i)), sc_set(&ups, i, val(&up, i));
    if (lent) y = lent == 1 ? gate : up;
    sc_matmul_args args = {.y = y, .a = a, .b = b, .gate = gate, .trans_b = 1, .epilogue = f};
    if (f != SC_GATED) args.aux = z;
    if (bias) args.bias = v;
    if (SC_HAS(f, SC_GATED | SC_GRADIENT)) args.up = up;
    if (d != SC_REAL) args.work = workspace(3 * SC_CPU_MATMUL_BYTES);
    run_args(matmul, &args);
    for (int64_t i = 0; i < batch * m * n; i++) {
        double s = bias ? val(&v, i % n) : 0, x = val(&gates, i), size = fabs(s);
        for (int64_t l = 0; l < k; l++) {
            double p = val(&a, i / n * k + l) * val(&b, (i / (m * n) * n + i % n) * k + l);
            s += p, size += fabs(p);
        }
        /* A gate takes sums as they are when they have been stored. */
        double off = sum_error(k + bias) * size, then = limit_of(d, s, off);
        if (SC_HAS(f, SC_GATED | SC_TOO)) {
            near_within(&z, i, s, off, "what is gated");
            s = val(&z, i), then = 0;
        }
        double math = MATH * (1 + fabs(x)) * fabs(s), up = val(&ups, i);
        if (SC_HAS(f, SC_GATED | SC_GRADIENT))
            near_within(&y, i, s * up * silu_slope(x), fabs(up) * (fabs(silu_slope(x)) * then + math), "dgate");
        near_within(SC_HAS(f, SC_GATED | SC_GRADIENT) ? &z : &y, i, s * silu(x), fabs(silu(x)) * then + math,
                    SC_HAS(f, SC_GATED | SC_GRADIENT) ? "dup" : "a gated product");
    }
    release();
}

Test(combined, gated_products) {
    static const int gates[] = {SC_GATED | SC_TOO, SC_GATED, SC_GATED | SC_GRADIENT};
    FOR_DTYPES
    for (int i = 0; i < 3; i++)
        for (int f = gates[i], lent = 0; lent < (f & SC_TOO ? 2 : f & SC_GRADIENT ? 3 : 1); lent++) {
            check_gated(d, 1, 37, 53, 29, !(f & SC_GRADIENT), f, lent);
            check_gated(d, 1, 130, 300, 65, 0, f, lent);
            check_gated(d, 1, 1, 24, 1100, !(f & SC_GRADIENT), f, lent);
            check_gated(d, 3, 37, 53, 29, !(f & SC_GRADIENT), f, lent);
        }
}

static void check_gate_grads(int d, int64_t n, int lent) {
    sc_tensor from[3] = {filled(T_(d, n), 1, 0), filled(T_(d, n), 2, 0), filled(T_(d, n), 1, 0)}, kept[3];
    for (int k = 0; k < 3; k++) {
        kept[k] = filled(T_(d, n), 0, 0);
        for (int64_t i = 0; i < n; i++) sc_set(&kept[k], i, val(&from[k], i));
    }
    sc_tensor dgate = T_(d, n), dup = T_(d, n);
    if (lent) dgate = from[lent - 1];
    run(silu_mul_grad, .dgate = dgate, .dup = dup, .g = from[0], .gate = from[1], .up = from[2]);
    for (int64_t i = 0; i < n; i++) {
        double g = val(&kept[0], i), x = val(&kept[1], i);
        near(&dgate, i, g * val(&kept[2], i) * silu_slope(x), 1, "dgate");
        near(&dup, i, g * silu(x), 1, "dup");
    }
    release();
}

Test(combined, a_gates_gradients) {
    FOR_DTYPES
    for (int lent = 0; lent < 4; lent++) {
        check_gate_grads(d, 7, lent);
        check_gate_grads(d, 5000, lent);
    }
}

Test(combined, matmul) {
    FOR_DTYPES
    for (int bias = 0; bias < 2; bias++) {
        check_product(d, 1, 37, 53, 29, bias, 1, 0);
        check_product(d, 1, 130, 300, 65, bias, 0, SC_GELU | SC_TOO);
        check_product(d, 1, 19, 270, 8, bias, 0, SC_GELU);
        check_product(d, 1, 1, 24, 1100, bias, 1, 0);
        check_product(d, 3, 37, 53, 29, bias, 1, 0);
        check_product(d, 3, 37, 53, 29, bias, 0, SC_GELU | SC_TOO);
    }
    FOR_DTYPES check_product(d, 1, 65, 40, 33, 0, 0, SC_GELU | SC_GRADIENT);
    FOR_DTYPES check_product(d, 3, 65, 40, 33, 0, 0, SC_GELU | SC_GRADIENT);
}

/* Rows that overlap: the obvious version. */
Test(combined, matmul_of_rows_that_repeat) {
    sc_tensor a = filled(tensor(SC_REAL, 2, LIST(5, 7), LIST(0, 1)), 1, 0), b = filled(T_(SC_REAL, 7, 3), 1, 0);
    sc_tensor y = T_(SC_REAL, 5, 3), c = filled(T_(SC_REAL, 5, 3), 1, 0);
    run(matmul, .y = y, .a = a, .b = b, .c = c);
    for (int64_t i = 0; i < 15; i++) {
        double s = val(&c, i), size = fabs(s);
        for (int64_t l = 0; l < 7; l++) {
            double p = val(&a, l) * val(&b, l * 3 + i % 3);
            s += p, size += fabs(p);
        }
        near_sum(&y, i, s, size, 8, "product and addend");
    }
    release();
}

/* y = a b + y, as where the terms of a weight's gradient are added up: also of rows that repeat. */
Test(combined, matmul_in_place_of_what_is_added) {
    FOR_DTYPES
    for (int repeats = 0; repeats < 2; repeats++) {
        int64_t m = 70, n = 300, k = 65;
        sc_tensor a = filled(tensor(d, 2, LIST(m, k), repeats ? LIST(0, 1) : NULL), 1, 0),
                  b = filled(T_(d, k, n), 1, 0);
        sc_tensor c = filled(T_(d, m, n), 3, 0), y = T_(d, m, n), sum = T_(d, m, n);
        run(copy, .y = sum, .a = c);
        run(matmul, .y = y, .a = a, .b = b, .c = c);
        run(matmul, .y = sum, .a = a, .b = b, .c = sum);
        for (int64_t i = 0; i < m * n; i++) {
            double size = fabs(val(&c, i));
            for (int64_t l = 0; l < k; l++)
                size += fabs(val(&a, i / n * (repeats ? 0 : k) + l) * val(&b, l * n + i % n));
            near_sum(&sum, i, val(&y, i), 2 * size, k + 1, "in place");
        }
    }
}

/* ── both gradients of a norm: what the two kernels give, c on top of dx, and the sums of its columns ────────────────
 */
static void check_grads(int d, int64_t cols, int centred, int weights, int add, int sum) {
    int64_t rows = 15;
    sc_tensor x = filled(T_(d, 3, 5, cols), 2, 0.5), g = filled(T_(d, 3, 5, cols), 1, 0.1);
    sc_tensor dx = T_(d, 3, 5, cols), apart = T_(SC_REAL, 3, 5, cols), c = filled(T_(d, 3, 5, cols), 1, 0);
    sc_tensor mean = filled(T_(SC_REAL, rows), 0.1, 0.5), rstd = filled(T_(SC_REAL, rows), 0.1, 0.7);
    sc_tensor w = filled(T_(d, cols), 0.5, 1), dw = T_(SC_REAL, cols), db = T_(SC_REAL, cols);
    sc_tensor dw2 = T_(SC_REAL, cols), db2 = T_(SC_REAL, cols);
    sc_tensor ds = T_(d, cols), ds2 = T_(d, cols), scale = weights ? w : absent;
    sc_layer_norm_grads_args layer = {.dx = dx, .dw = dw, .db = db, .g = g, .x = x, .mean = mean, .rstd = rstd};
    sc_rms_norm_grads_args rms = {.dx = dx, .dw = dw, .g = g, .x = x, .rstd = rstd};
    layer.w = rms.w = scale;
    if (sum) layer.ds = rms.ds = ds;
    if (add) layer.c = rms.c = c;
    if (centred) {
        run_args(layer_norm_grads, &layer);
        run(layer_norm_grad, .dx = apart, .g = g, .x = x, .mean = mean, .rstd = rstd, .w = scale);
        run(layer_norm_grad_w, .dw = dw2, .db = db2, .g = g, .x = x, .mean = mean, .rstd = rstd);
    } else {
        run_args(rms_norm_grads, &rms);
        run(rms_norm_grad, .dx = apart, .g = g, .x = x, .rstd = rstd, .w = scale);
        run(rms_norm_grad_w, .dw = dw2, .g = g, .x = x, .rstd = rstd);
    }
    run(sum, .y = ds2, .x = dx, .over = 3);
    for (int64_t i = 0; i < rows * cols; i++) near(&dx, i, val(&apart, i) + (add ? val(&c, i) : 0), 0.1, "dx");
    for (int64_t i = 0; i < cols; i++) {
        cr_assert(val(&dw, i) == val(&dw2, i), "dw[%ld]", (long)i);
        cr_assert(!centred || val(&db, i) == val(&db2, i), "db[%ld]", (long)i);
        cr_assert(!sum || val(&ds, i) == val(&ds2, i), "ds[%ld]", (long)i);
    }
    if (add) { /* dx where c was */
        layer.dx = rms.dx = c;
        if (centred)
            run_args(layer_norm_grads, &layer);
        else
            run_args(rms_norm_grads, &rms);
        for (int64_t i = 0; i < rows * cols; i++) cr_assert(val(&c, i) == val(&dx, i), "in place [%ld]", (long)i);
    }
    release();
}

Test(combined, norm_gradients) {
    static const int64_t cols[] = {3, 64, 129, 1500};
    FOR_DTYPES
    for (int n = 0; n < 4; n++)
        for (int kind = 0; kind < 16; kind++)
            check_grads(d, cols[n], kind & 1, kind >> 1 & 1, kind >> 2 & 1, kind >> 3);
}

/* ── cross_entropy and its gradient ──────────────────────────────────────────────────────────────────────────────────
 */
Test(combined, cross_entropy) {
    FOR_DTYPES {
        int64_t rows = 21, cols = 2305;
        sc_tensor x = filled(tensor(d, 2, LIST(rows, cols), LIST(cols + 3, 1)), 12, 5),
                  g = filled(T_(SC_REAL, 1), 0, 0.5);
        sc_tensor target = integers(T_(INT32, rows), 0, cols), loss = T_(SC_REAL, 1), most = T_(SC_REAL, rows);
        sc_tensor loss2 = T_(SC_REAL, 1), losses = T_(SC_REAL, rows), rest = T_(SC_REAL, rows);
        sc_tensor dx = T_(d, rows, cols), dx2 = T_(d, rows, cols);
        ((int32_t *)target.p)[4] = -100;
        sc_cross_entropy_grads_args both = {.dlogits = dx2,
                                            .loss = loss2,
                                            .losses = losses,
                                            .g = g,
                                            .logits = x,
                                            .targets = target,
                                            .ignore = -100,
                                            .count = 1};
        run(cross_entropy, .loss = loss, .most = most, .rest = rest, .logits = x, .targets = target, .ignore = -100,
            .count = 1);
        run(cross_entropy_grad, .dlogits = dx, .g = g, .logits = x, .targets = target, .most = most, .rest = rest,
            .ignore = -100, .count = 1);
        run_args(cross_entropy_grads, &both);
        cr_assert(val(&loss, 0) == val(&loss2, 0), "the loss");
        for (int64_t i = 0; i < rows * cols; i++) cr_assert(val(&dx, i) == val(&dx2, i), "gradient [%ld]", (long)i);
        both.dlogits = x; /* in place */
        run_args(cross_entropy_grads, &both);
        cr_assert(val(&loss, 0) == val(&loss2, 0), "the loss, in place");
        for (int64_t i = 0; i < rows * cols; i++) cr_assert(val(&dx, i) == val(&x, i), "in place [%ld]", (long)i);
    }
}

/* ── adam that writes the wire shard ─────────────────────────────────────────────────────────────────────────────────
 */
Test(combined, adam_and_its_wire_shard) {
    static const int64_t segments[] = {10, 300, 0, 300, 4000, 1};
    static const int wires[] = {BF16, FP16};
    record.of[0].beta1 = 0.9f, record.of[0].beta2 = 0.95f, record.of[0].eps = 1e-8f;
    record.lr[0] = 0.01f, record.lr[1] = 0.02f, record.weight_decay[1] = 0.1f;
    for (int w = 0; w < 2; w++, release()) {
        sc_tensor g = filled(T_(FP32, 3000), 1, 0), p = filled(T_(FP32, 3000), 1, 0),
                  clip = filled(T_(FP32, 1), 0, 0.5);
        sc_tensor m = filled(T_(FP32, 3000), 0.1, 0), v = filled(T_(FP32, 3000), 0.1, 0.2), step = T_(INT64, 1);
        sc_tensor wire = filled(T_(wires[w], 3000), 1, 0);
        *(int64_t *)step.p = 3;
        double old[3000];
        for (int64_t i = 0; i < 3000; i++) old[i] = val(&wire, i);
        run(adam, .grad = g, .master = p, .coefficient = clip, .m = m, .v = v, .step = step, .wire = wire,
            .decoupled = 1, .slice = 3000, .table = segments, .ntable = 6);
        for (int64_t i = 0; i < 3000; i++)
            if (i < 10)
                cr_assert(val(&wire, i) == old[i], "outside of all segments");
            else
                near(&wire, i, val(&p, i), 1e-3, "wire shard");
    }
}

/* By matrix: of two rows, one with a NaN; of one that none asks for; what is larger already stays. */
Test(combined, adam_and_largest_magnitudes) {
    static const int64_t segments[] = {10,   300,  0, 1, 300,  900,  1, -1, 900,  1000, 1, 1,
                                       1000, 1900, 0, 2, 1900, 2500, 1, 0,  2500, 4000, 1, 3};
    record.of[0].beta1 = 0.9f, record.of[0].beta2 = 0.95f, record.of[0].eps = 1e-8f;
    record.lr[0] = 0.01f, record.lr[1] = 0.02f, record.weight_decay[1] = 0.1f;
    for (int skipped = 0; skipped < 2; skipped++)
        for (int w = 0; w < 3; w++, release()) {
            sc_tensor g = filled(T_(FP32, 3000), 1, 0), p = filled(T_(w == 2 ? BF16 : FP32, 3000), 1, 0);
            sc_tensor m = filled(T_(FP32, 3000), 0.1, 0), v = filled(T_(FP32, 3000), 0.1, 0.2), step = T_(INT64, 1);
            sc_tensor wire = T_(BF16, 3000), largest = T_(FP32, 4), clip = T_(FP32, 2);
            *(int64_t *)step.p = 3;
            put(&clip, 0, 0.5), put(&clip, 1, skipped);
            put(&p, 1500, -(double)NAN);
            for (int k = 0; k < 4; k++) put(&largest, k, k == 3 ? 100 : 0);
            run(adam, .grad = g, .master = p, .coefficient = clip, .m = m, .v = v, .step = step,
                .wire = w == 1 ? wire : absent, .largest = largest, .decoupled = 1, .slice = 3000, .table = segments,
                .ntable = 24);
            double want[4] = {0, 0, NAN, 100};
            for (int64_t i = 10; i < 2500; i++) {
                int k = i < 300 || (i >= 900 && i < 1000) ? 1 : i >= 1900 ? 0 : -1;
                if (k >= 0) want[k] = fmax(want[k], fabs(val(w == 1 ? &wire : &p, i)));
            }
            for (int k = 0; k < 4; k++)
                cr_assert(isnan(want[k]) ? isnan(val(&largest, k)) : val(&largest, k) == (double)(float)want[k],
                          "largest[%d] = %g, not %g", k, val(&largest, k), want[k]);
        }
}
