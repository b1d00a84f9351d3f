/* The loss scale's kernels, and what it changes in others: seed, norm, coefficient, skipped updates.
 * Relies on: kernel_check.h, runtime/sc_optimizer.h, runtime/cpu's k_*.c.
 * Relied on by: make test. */
#include "../../runtime/sc_optimizer.h"
#include "kernel_check.h"

static sc_tensor scaler(float scale, float clean) {
    sc_tensor s = T_(FP32, 4);
    *(sc_scaler *)s.p = (sc_scaler){scale, clean, 0, 3};
    return s;
}
static sc_tensor coefficient(double c, double skip) {
    sc_tensor t = T_(FP32, 2);
    put(&t, 0, c);
    put(&t, 1, skip);
    return t;
}

Test(scale, multiplies_and_divides) {
    FOR_DTYPES {
        sc_tensor x = filled(T_(d, 3001), 1, 0), y = T_(d, 3001), z = T_(d, 3001), s = scaler(2, 0);
        run(sc_k_scale, TASK(y, x, s), 1);
        sc_task k = TASK(z, y, s);
        k.i[0] = 1;
        run(sc_k_scale, k, 1);
        for (int64_t i = 0; i < 3001; i++) cr_assert(val(&y, i) == 2 * val(&x, i) && val(&z, i) == val(&x, i));
    }
    sc_tensor seed = T_(FP32, 1);
    run(sc_k_grad_seed, TASK(seed, scaler(65536, 0)), 1);
    cr_assert_eq(val(&seed, 0), 16384);
}

static sc_scaler updated(float scale, float clean, double skip, int64_t interval) {
    sc_tensor s = scaler(scale, clean);
    sc_task k = TASK(coefficient(1, skip), s);
    k.f[0] = 2;
    k.f[1] = 0.5;
    k.i[0] = interval;
    run(sc_k_update_scale, k, 2);
    return *(sc_scaler *)s.p;
}

Test(scale, grows_and_backs_off) {
    const struct {
        float scale, clean;
        double skip;
        int64_t interval;
        sc_scaler after;
    } rows[] = {
        {8, 0, 0, 2, {8, 1, 0, 3}}, {8, 1, 0, 2, {16, 0, 0, 3}},
        {8, 1, 1, 2, {4, 0, 1, 4}}, {8, 0, 0, 1, {16, 0, 0, 3}},
        {8, 0, 1, 1, {4, 0, 1, 4}}, {3e38f, 0, 0, 1, {3e38f, 0, 0, 3}}, /* a scale that would be infinite stays */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sc_scaler s = updated(rows[i].scale, rows[i].clean, rows[i].skip, rows[i].interval);
        cr_expect(!memcmp(&s, &rows[i].after, sizeof s), "row %zu: %g %g %g %g", i, (double)s.scale, (double)s.clean,
                  (double)s.skipped, (double)s.skips);
    }
}

/* Norm and coefficient of scaled gradients are those of the gradients themselves, over the scale. */
Test(scale, norm_is_of_unscaled_gradients) {
    FOR_DTYPES {
        if (d == INT32 || d == INT64) continue;
        sc_tensor x = filled(T_(d, 10001), 1, 0), y = T_(d, 10001), s = scaler(4, 0), a = T_(FP32, 1), b = T_(FP32, 1);
        sc_tensor c = coefficient(0, 7), plain = T_(FP32, 1), norm = T_(FP32, 1);
        for (int64_t i = 0; i < 10001; i++) put(&y, i, 4 * val(&x, i));
        run(sc_k_sum_squares, TASK(a, x), 1);
        sc_task k = TASK(b, y, s);
        k.i[0] = 1;
        run(sc_k_sum_squares, k, 1);
        cr_assert_eq(val(&a, 0), val(&b, 0), "a power of two leaves every bit");
        record.clip = 1;
        run(sc_k_clip_coefficient, TASK(plain, norm, a), 3);
        run(sc_k_clip_coefficient, TASK(c, norm, b, s), 3);
        cr_assert(val(&c, 0) == val(&plain, 0) / 4 && val(&c, 1) == 0);
        put(&y, 7000, d == FP16 ? -INFINITY : NAN);
        run(sc_k_sum_squares, k, 1);
        run(sc_k_clip_coefficient, TASK(c, norm, b, s), 3);
        cr_assert(val(&c, 0) == 0 && val(&c, 1) == 1);
        record.clip = 0;
    }
}

Test(scale, a_skipped_step_writes_nothing) {
    static const int64_t table[] = {0, 3000, 0};
    sc_tensor g = filled(T_(FP16, 3000), 1, 0), p = filled(T_(FP32, 3000), 1, 0), m = filled(T_(FP32, 3000), 1, 0);
    sc_tensor v = filled(T_(FP32, 3000), 1, 2), wire = filled(T_(FP16, 3000), 1, 0), steps = T_(INT64, 1);
    sc_tensor skip = coefficient(0, 1), go = coefficient(0.5, 0);
    put(&g, 5, INFINITY);
    *(int64_t *)steps.p = 0;
    sc_task adam = TASK(g, p, skip, m, v, steps, wire), sgd = TASK(g, p, skip, m), count = TASK(steps, skip);
    adam.table = sgd.table = table;
    adam.ntable = sgd.ntable = 3;
    adam.i[1] = sgd.i[1] = 3000;
    run(sc_k_adam, adam, 1 << 6); /* none of its tensors may change; the wire shard is the master's */
    for (int64_t i = 0; i < 3000; i++) cr_assert_float_eq(val(&wire, i), val(&p, i), 5e-4 * fabs(val(&p, i)));
    run(sc_k_sgd, sgd, 0);
    run(sc_k_count_step, count, 0);
    count.parts = 1;
    count.t[1] = go;
    sc_k_count_step(&count);
    cr_assert_eq(*(int64_t *)steps.p, 1);
    put(&g, 5, 0);
    double old = val(&p, 9);
    sgd.t[2] = go;
    record.lr[0] = 0.1f;
    run(sc_k_sgd, sgd, 2 | 8);
    cr_assert_neq(val(&p, 9), old);
}
