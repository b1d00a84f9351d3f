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
        run(scale, .y = y, .x = x, .scaler = s);
        run(scale, .y = z, .x = y, .scaler = s, .inverse = 1);
        for (int64_t i = 0; i < 3001; i++) cr_assert(val(&y, i) == 2 * val(&x, i) && val(&z, i) == val(&x, i));
    }
    sc_tensor seed = T_(FP32, 1);
    run(grad_seed, .y = seed, .scaler = scaler(65536, 0));
    cr_assert_eq(val(&seed, 0), 16384);
}

static sc_scaler updated(float scale, float clean, double skip, int64_t interval) {
    sc_tensor s = scaler(scale, clean);
    run(update_scale, .coefficient = coefficient(1, skip), .scaler = s, .interval = interval, .growth = 2,
        .backoff = 0.5);
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
        run(sum_squares, .y = a, .x = x);
        run(sum_squares, .y = b, .x = y, .scaler = s);
        cr_assert_eq(val(&a, 0), val(&b, 0), "a power of two leaves every bit");
        record.clip = 1;
        run(clip_coefficient, .coefficient = plain, .norm = norm, .squares = a);
        run(clip_coefficient, .coefficient = c, .norm = norm, .squares = b, .scaler = s);
        cr_assert(val(&c, 0) == val(&plain, 0) / 4 && val(&c, 1) == 0);
        put(&y, 7000, d == FP16 ? -INFINITY : NAN);
        run(sum_squares, .y = b, .x = y, .scaler = s);
        run(clip_coefficient, .coefficient = c, .norm = norm, .squares = b, .scaler = s);
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
    sc_adam_args adam = {.grad = g,
                         .master = p,
                         .coefficient = skip,
                         .m = m,
                         .v = v,
                         .step = steps,
                         .wire = wire,
                         .table = table,
                         .ntable = 3,
                         .slice = 3000};
    sc_sgd_args sgd = {
        .grad = g, .master = p, .coefficient = skip, .momentum = m, .table = table, .ntable = 3, .slice = 3000};
    sc_count_step_args count = {.step = steps, .coefficient = skip};
    run_writing(adam, &adam, SLOT(adam, wire)); /* none of its tensors may change; the wire shard is the master's */
    for (int64_t i = 0; i < 3000; i++) cr_assert_float_eq(val(&wire, i), val(&p, i), 5e-4 * fabs(val(&p, i)));
    run_writing(sgd, &sgd, 0);
    run_writing(count_step, &count, 0);
    count.coefficient = go;
    run_once(count_step, &count);
    cr_assert_eq(*(int64_t *)steps.p, 1);
    put(&g, 5, 0);
    double old = val(&p, 9);
    sgd.coefficient = go;
    record.lr[0] = 0.1f;
    run_args(sgd, &sgd);
    cr_assert_neq(val(&p, 9), old);
}
