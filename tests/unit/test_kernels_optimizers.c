/* The optimizers' kernels, the norm of gradients and clipping, against the rules in double. Moments of bf16 are in
 * test_kernels_moments.c.
 * Relies on: kernel_check.h, runtime/cpu's k_optimizer.c.
 * Relied on by: make test. */
#include "kernel_check.h"

static const int64_t segments[] = {0, 700, 0, 768, 3000, 1, 3072, 4000, 0};
enum { NUMEL = 2048 }; /* a rank's slice, of two */
#define SEGMENTS .table = segments, .ntable = 9, .slice = NUMEL, .axis = 0

static void rates(void) {
    record.lr[0] = 0.01f, record.lr[1] = 0.02f;
    record.weight_decay[1] = 0.1f;
    record.of[0].beta1 = 0.9f, record.of[0].beta2 = 0.95f, record.of[0].eps = 0.125f, record.of[0].momentum = 0.9f,
    record.clip = 1;
}
static int group_of(int64_t flat) {
    for (int s = 0; s < 9; s += 3)
        if (flat >= segments[s] && flat < segments[s + 1]) return (int)segments[s + 2];
    return -1;
}

Test(kernels, ema) {
    FOR_DTYPES
    for (int steps = 1; steps < 4; steps++, release()) {
        sc_tensor p = filled(T_(d, NUMEL), 1, 0), average = filled(T_(SC_REAL, NUMEL), 1, 0), step = T_(INT64, 1);
        sc_tensor clip = T_(SC_REAL, 2);
        double old[NUMEL], decay = steps == 3 ? 0.25 : 0.75;
        for (int64_t i = 0; i < NUMEL; i++) old[i] = val(&average, i);
        *(int64_t *)step.p = steps;
        sc_set(&clip, 1, 1);
        run(ema, .master = p, .average = average, .step = step, .coefficient = clip, .decay = decay);
        for (int64_t i = 0; i < NUMEL; i++) same(&average, i, old[i]); /* skipped */
        sc_set(&clip, 1, 0);
        run(ema, .master = p, .average = average, .step = step, .coefficient = clip, .decay = decay);
        for (int64_t i = 0; i < NUMEL; i++) {
            double x = val(&p, i), want = steps == 1 ? x : decay * old[i] + (1 - decay) * x;
            cr_assert(fabs(val(&average, i) - want) <= 1e-6 * (fabs(old[i]) + fabs(x)), "step %d, element %ld", steps,
                      (long)i);
        }
    }
}

Test(kernels, adam) {
    rates();
    FOR_DTYPES
    for (int option = 0; option < 4; option++, release()) {
        int shard = option >> 1, decoupled = option & 1;
        sc_tensor g = filled(T_(d, NUMEL), 1, 0), p = filled(T_(d, NUMEL), 1, 0), clip = filled(T_(SC_REAL, 1), 0, 0.5);
        sc_tensor m = filled(T_(SC_REAL, NUMEL), 0.1, 0), v = filled(T_(SC_REAL, NUMEL), 0.1, 0.2), step = T_(INT64, 1);
        *(int64_t *)step.p = 3;
        double old[3][NUMEL];
        for (int64_t i = 0; i < NUMEL; i++) old[0][i] = val(&p, i), old[1][i] = val(&m, i), old[2][i] = val(&v, i);
        at_place[0] = (sc_coord){shard, 2};
        run(adam, .grad = g, .master = p, .coefficient = clip, .m = m, .v = v, .step = step, .decoupled = decoupled,
            SEGMENTS);
        for (int64_t i = 0; i < NUMEL; i++) {
            int group = group_of(i + shard * NUMEL);
            double x = old[0][i], gi = val(&g, i) * 0.5, lr = group ? 0.02 : 0.01, wd = group ? 0.1 : 0;
            if (group < 0) {
                same(&p, i, x), same(&m, i, old[1][i]), same(&v, i, old[2][i]);
                continue;
            }
            if (decoupled)
                x -= lr * wd * x;
            else
                gi += wd * x;
            double mi = 0.9 * old[1][i] + 0.1 * gi, vi = 0.95 * old[2][i] + 0.05 * gi * gi;
            x -= lr / (1 - pow(0.9, 3)) * mi / (sqrt(vi) / sqrt(1 - pow(0.95, 3)) + 0.125);
            double loose = sizeof(real) == 8 ? 1e-6 / tolerance(FP64) : 1; /* the record's rates are floats */
            near(&m, i, mi, loose, "adam m");
            near(&v, i, vi, loose, "adam v");
            near(&p, i, x, d == FP64 || d == FP32 ? loose : 1, "adam p");
        }
    }
}

/* What 1 - beta is made of has more digits than a float: of 0.999999 as a float it would be 4.6 % off. */
Test(kernels, adam_with_betas_near_one) {
    static const double betas[] = {0.9, 0.999, 0.9999, 0.999999, 0.9999999};
    for (size_t k = 0; k < sizeof betas / sizeof *betas; k++, release()) {
        rates();
        record.of[0].beta1 = betas[k], record.of[0].beta2 = betas[k], record.weight_decay[1] = 0;
        sc_tensor g = filled(T_(SC_REAL, NUMEL), 1, 0), p = filled(T_(SC_REAL, NUMEL), 0, 0);
        sc_tensor m = filled(T_(SC_REAL, NUMEL), 0, 0), v = filled(T_(SC_REAL, NUMEL), 0, 0), step = T_(INT64, 1);
        sc_tensor clip = filled(T_(SC_REAL, 1), 0, 1);
        *(int64_t *)step.p = 1;
        at_place[0] = (sc_coord){0, 2};
        run(adam, .grad = g, .master = p, .coefficient = clip, .m = m, .v = v, .step = step, .decoupled = 1, SEGMENTS);
        for (int64_t i = 0; i < 700; i++) {
            double x = val(&g, i);
            expect_relative(val(&m, i), (1 - betas[k]) * x, 3e-7, "first moment", (int)k, (int)i);
            expect_relative(val(&v, i), (1 - betas[k]) * x * x, 4e-7, "second moment", (int)k, (int)i);
            expect_relative(val(&p, i), -0.01 * x / (fabs(x) + 0.125), 1e-6, "parameter", (int)k, (int)i);
        }
    }
}

Test(kernels, sgd) {
    rates();
    FOR_DTYPES
    for (int option = 0; option < 3; option++, release()) { /* plain, momentum, nesterov */
        sc_tensor g = filled(T_(d, NUMEL), 1, 0), p = filled(T_(d, NUMEL), 1, 0), clip = filled(T_(SC_REAL, 1), 0, 0.5);
        sc_tensor buffer = filled(T_(SC_REAL, NUMEL), 1, 0);
        double old[2][NUMEL];
        for (int64_t i = 0; i < NUMEL; i++) old[0][i] = val(&p, i), old[1][i] = val(&buffer, i);
        at_place[0] = (sc_coord){1, 2};
        run(sgd, .grad = g, .master = p, .coefficient = clip, .momentum = option ? buffer : absent,
            .nesterov = option == 2, SEGMENTS);
        for (int64_t i = 0; i < NUMEL; i++) {
            int group = group_of(i + NUMEL);
            double x = old[0][i], gi = val(&g, i) * 0.5 + (group == 1 ? 0.1 * x : 0), lr = group ? 0.02 : 0.01;
            double b = 0.9 * old[1][i] + gi, loose = sizeof(real) == 8 ? 1e-6 / tolerance(FP64) : 1;
            if (group < 0) {
                same(&p, i, x);
                continue;
            }
            if (option) near(&buffer, i, b, loose, "momentum");
            if (option) gi = option == 2 ? gi + 0.9 * b : b;
            near(&p, i, x - lr * gi, d == FP64 || d == FP32 ? loose : 1, "sgd p");
        }
    }
}

Test(kernels, lion) {
    rates();
    FOR_DTYPES {
        sc_tensor g = filled(T_(d, NUMEL), 1, 0), p = filled(T_(d, NUMEL), 1, 0), clip = filled(T_(SC_REAL, 1), 0, 0.5);
        sc_tensor m = filled(T_(SC_REAL, NUMEL), 0.1, 0);
        double old[2][NUMEL], loose = sizeof(real) == 8 ? 1e-6 / tolerance(FP64) : 1;
        put(&g, 5, 0), put(&m, 5, 0); /* no direction at all */
        for (int64_t i = 0; i < NUMEL; i++) old[0][i] = val(&p, i), old[1][i] = val(&m, i);
        at_place[0] = (sc_coord){0, 2};
        run(lion, .grad = g, .master = p, .coefficient = clip, .m = m, SEGMENTS);
        for (int64_t i = 0; i < NUMEL; i++) {
            int group = group_of(i);
            double gi = val(&g, i) * 0.5, lr = group ? 0.02 : 0.01, wd = group ? 0.1 : 0;
            double between = 0.9 * old[1][i] + 0.1 * gi;
            if (group < 0) {
                same(&p, i, old[0][i]), same(&m, i, old[1][i]);
                continue;
            }
            double x = old[0][i] * (1 - lr * wd) - lr * ((between > 0) - (between < 0));
            near(&m, i, 0.95 * old[1][i] + 0.05 * gi, loose, "lion m");
            near(&p, i, x, d == FP64 || d == FP32 ? loose : 1, "lion p");
        }
    }
}

Test(kernels, norm_and_clipping) {
    rates();
    FOR_DTYPES {
        sc_tensor x = filled(T_(d, 10001), 1, 0), s = T_(SC_REAL, 3), one = s, c = T_(SC_REAL, 1),
                  norm = T_(SC_REAL, 1);
        double sum = 0;
        for (int64_t i = 0; i < 10001; i++) sum += val(&x, i) * val(&x, i);
        filled(s, 0, 4);
        one.p = sc_at(&s, 1);
        one.shape[0] = 1;
        run(sum_squares, .y = one, .x = x);
        near_sum(&s, 1, sum, sum, 10001, "sum_squares");
        run(clip_coefficient, .coefficient = c, .norm = norm, .squares = s);
        near(&norm, 0, sqrt(sum + 8), 1, "norm");
        near(&c, 0, 1 / (sqrt(sum + 8) + 1e-6), 0.1, "coefficient");
        record.clip = 1000;
        run(clip_coefficient, .coefficient = c, .norm = norm, .squares = s);
        same(&c, 0, 1);
        record.clip = 0;
        run(clip_coefficient, .coefficient = c, .norm = norm, .squares = s);
        same(&c, 0, 1);
        for (int i = 0; i < 3; i++) put(&s, i, i ? 0 : 1e-12);
        record.clip = 1e-6f;
        run(clip_coefficient, .coefficient = c, .norm = norm, .squares = s);
        near(&c, 0, 0.5, sizeof(real) == 8 ? 1e-6 / tolerance(FP64) : 1, "a norm as small as what is added to it");
        filled(s, 0, 4);
        run(sum_squares, .y = one, .x = x);
        record.clip = 1;
        put(&x, 5000, NAN);
        run(sum_squares, .y = one, .x = x);
        run(clip_coefficient, .coefficient = c, .norm = norm, .squares = s);
        cr_assert(isnan(val(&norm, 0)) && isnan(val(&c, 0)));
    }
}
