/* Moments in 8 bits: the codes' values are the published ones, an element gets the nearest of them, updates are those
 * of fp32 moments block by block, and the same for any cut over parts and ranks. Relies on: kernel_check.h,
 * runtime/sc_moments8.h, runtime/sc_optimizer.h, runtime/cpu/k_optimizer.c. Relied on by: make test. */
#include "../../runtime/sc_moments8.h"
#include "../../runtime/sc_optimizer.h"
#include "kernel_check.h"

enum { N = 4096, BLOCKED = SC_MOMENTS8_BLOCK };
/* Rows begin with a block; the last block of each is not whole. */
static const int64_t table[] = {0, 1800, 0, 2048, 2500, 1, 2560, 4090, 0};
enum { ROWS = sizeof table / sizeof *table / 3 };

static void rates(void) {
    record.lr[0] = 0.01f, record.lr[1] = 0.02f, record.weight_decay[1] = 0.1f;
    record.of[0].beta1 = 0.9f, record.of[0].beta2 = 0.999f, record.of[0].eps = 1e-8f, record.of[0].momentum = 0.9f;
}
static int row_of(int64_t flat) { /* -1: a gap */
    for (int s = 0; s < ROWS; s++)
        if (flat >= table[3 * s] && flat < table[3 * s + 1]) return s;
    return -1;
}

/* ── the codes ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
/* create_dynamic_map of bitsandbytes, in double: middles between equally spaced borders from 0.1 to 1. */
static void published(bool is_signed, double to[256]) {
    int n = 0;
    for (int i = 0; i < 7; i++) {
        int parts = 1 << (i + !is_signed);
        for (int k = 0; k < parts; k++) {
            double low = 0.1 + 0.9 * k / parts, high = 0.1 + 0.9 * (k + 1) / parts;
            double x = pow(10, i - 6) * (low + high) / 2;
            to[n++] = x;
            if (is_signed) to[n++] = -x;
        }
    }
    to[n++] = 0, to[n++] = 1;
    cr_assert_eq(n, 256);
    qsort(to, 256, sizeof *to, by_value);
}
Test(moments8, values_are_the_published_ones) {
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        double want[256];
        published(is_signed, want);
        for (int c = 0; c < 256; c++) {
            double got = sc_moments8_value(c, is_signed);
            cr_expect(fabs(got - want[c]) <= 1e-7 * fabs(want[c]), "code %d, signed %d: %.9g, not %.9g", c, is_signed,
                      got, want[c]);
        }
    }
}

static int code_of(float y, bool is_signed) {
    return sc_moments8_code(y, y, is_signed);
}
Test(moments8, a_value_has_its_own_code) {
    for (int is_signed = 0; is_signed < 2; is_signed++)
        for (int c = 0; c < 256; c++) cr_expect_eq(code_of(sc_moments8_value(c, is_signed), is_signed), c);
}

/* Of all floats from 0 to 1, every 997th, and all near the middle between two values. */
static void check_nearest(float y, bool is_signed) {
    int c = code_of(y, is_signed);
    double own = fabs((double)sc_moments8_value(c, is_signed) - y);
    for (int other = c > 0 ? c - 1 : c; other <= c + 1 && other < 256; other++) {
        double value = sc_moments8_value(other, is_signed), off = fabs(value - y);
        bool would_be_zero = !is_signed && other == 0 && y > 0;
        cr_assert(would_be_zero || own <= off + 1e-4 * fabs(value - sc_moments8_value(c, is_signed)),
                  "%.9g, signed %d: code %d (%.9g), nearer to %d (%.9g)", y, is_signed, c,
                  sc_moments8_value(c, is_signed), other, value);
    }
}
Test(moments8, the_nearest_value_is_taken) {
    for (uint32_t u = 0; u <= sc_bits(1); u += 997) {
        check_nearest(sc_float(u), false);
        check_nearest(sc_float(u), true);
        check_nearest(-sc_float(u), true);
    }
    for (int is_signed = 0; is_signed < 2; is_signed++)
        for (int c = 0; c < 255; c++) {
            float a = sc_moments8_value(c, is_signed), b = sc_moments8_value(c + 1, is_signed),
                  middle = a + (b - a) / 2;
            for (int up = -1; up < 2; up++) check_nearest(middle * (1 + (float)up * 0x1p-20f), is_signed);
        }
}
Test(moments8, a_second_moment_above_zero_stays_above) {
    cr_expect_eq(sc_moments8_code(0, 0, false), 0);
    for (float x = 1; x > 0; x /= 2) cr_expect_geq(sc_moments8_code(x, x, false), 1, "%g", x);
    cr_expect_eq(sc_moments8_code(0, 1e-45f, false), 1, "where the quotient is none");
    cr_expect_eq(code_of(1e-9f, true), SC_MOMENTS8_SIGNED_ZERO);
    cr_expect_eq(code_of(-1e-9f, true), SC_MOMENTS8_SIGNED_ZERO);
    cr_expect_eq(code_of(-1, true), 0);
    cr_expect_eq(code_of(1, true), 255);
}

/* A scale is the largest magnitude; zeros stay zeros, what is no number or infinite reaches the scale. */
Test(moments8, scales_of_odd_blocks) {
    float x[BLOCKED] = {0};
    uint8_t code[BLOCKED];
    cr_expect_eq(sc_moments8_code_block(code, x, BLOCKED, true), 0);
    for (int i = 0; i < BLOCKED; i++) cr_expect_eq(code[i], SC_MOMENTS8_SIGNED_ZERO);
    cr_expect_eq(sc_moments8_code_block(code, x, BLOCKED, false), 0);
    for (int i = 0; i < BLOCKED; i++) cr_expect_eq(code[i], 0);
    x[200] = -3.5f, x[3] = 2;
    cr_expect_eq(sc_moments8_code_block(code, x, BLOCKED, true), 3.5f);
    x[3] = 1e-40f, x[200] = 0;
    cr_expect_eq(sc_moments8_code_block(code, x, BLOCKED, true), 1e-40f);
    for (int i = 0; i < BLOCKED; i++) cr_expect_eq(code[i], SC_MOMENTS8_SIGNED_ZERO);
    x[200] = -INFINITY;
    cr_expect_eq(sc_moments8_code_block(code, x, BLOCKED, true), INFINITY);
    x[7] = NAN;
    cr_expect(isnan(sc_moments8_code_block(code, x, BLOCKED, true)));
    cr_expect(isnan(sc_moments8_code_block(code, x, BLOCKED, false)));
}

/* ── the kernels ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    sc_tensor g, p, clip, m, v, step;
} state;

static float read_moment(sc_tensor t, int64_t n, int64_t i, bool is_signed) {
    return sc_moments8_value(((const uint8_t *)t.p)[i], is_signed) * sc_moments8_scales(t.p, n)[i / BLOCKED];
}
static sc_tensor coded(int64_t n) {
    sc_tensor t = T_(INT8, sc_moments8_bytes(n)), some = filled(T_(FP32, n), 1, 0);
    for (int64_t i = 0; i < n; i++) ((uint8_t *)t.p)[i] = (uint8_t)(int)(val(&some, i) * 1e6);
    for (int64_t b = 0; b < n / BLOCKED; b++)
        sc_moments8_scales(t.p, n)[b] = b % 5 == 2 ? 0 : (float)ldexp(1.3, (int)b - 8);
    return t;
}
static sc_tensor decoded(sc_tensor t, bool is_signed) {
    sc_tensor y = T_(FP32, N);
    for (int64_t i = 0; i < N; i++) put(&y, i, read_moment(t, N, i, is_signed));
    return y;
}
static sc_tensor copy_as(int dtype, sc_tensor x, int64_t from, int64_t n) {
    sc_tensor y = T_(dtype, n);
    for (int64_t i = 0; i < n; i++) put(&y, i, val(&x, from + i));
    return y;
}
static sc_tensor slice_of_coded(sc_tensor t, int64_t from, int64_t n) {
    sc_tensor y = T_(INT8, sc_moments8_bytes(n));
    memcpy(y.p, (uint8_t *)t.p + from, (size_t)n);
    memcpy(sc_moments8_scales(y.p, n), sc_moments8_scales(t.p, N) + from / BLOCKED,
           (size_t)(n / BLOCKED) * sizeof(float));
    return y;
}
static state new_state(int grad) {
    state s = {filled(T_(grad, N), 1, 0),
               filled(T_(FP32, N), 1, 0),
               filled(T_(FP32, 1), 0, 0.5),
               coded(N),
               coded(N),
               T_(INT64, 1)};
    *(int64_t *)s.step.p = 3;
    return s;
}
static state slice_of(state s, int64_t from, int64_t n) {
    return (state){copy_as(s.g.dtype, s.g, from, n), copy_as(FP32, s.p, from, n),  s.clip,
                   slice_of_coded(s.m, from, n),     slice_of_coded(s.v, from, n), s.step};
}
#define TABLE .table = table, .ntable = ROWS * 3
static void adam(state s, int shards, int rank) {
    sc_adam_args k = {.grad = s.g, .master = s.p, .coefficient = s.clip, .m = s.m, .v = s.v, .step = s.step, TABLE};
    k.decoupled = 1, k.slice = N / shards, k.axis = 0;
    at_place[0] = (sc_coord){rank, shards};
    run_args(adam, &k);
}

/* What is stored is what the update with fp32 moments gives, coded by blocks; a gap has no part in them. */
static void check_stored(sc_tensor got, sc_tensor was, sc_tensor exact, bool is_signed) {
    for (int64_t at = 0; at < N; at += BLOCKED) {
        float x[BLOCKED], largest = 0;
        uint8_t code[BLOCKED];
        int held = 0;
        for (int i = 0; i < BLOCKED; i++)
            if (row_of(at + i) >= 0)
                x[held++] = (float)val(&exact, at + i), largest = fmaxf(largest, fabsf(x[held - 1]));
        sc_moments8_code_block(code, x, held, is_signed);
        cr_assert_eq(sc_moments8_scales(got.p, N)[at / BLOCKED],
                     held ? largest : sc_moments8_scales(was.p, N)[at / BLOCKED], "block %d", (int)(at / BLOCKED));
        for (int i = 0, k = 0; i < BLOCKED; i++) {
            uint8_t want = row_of(at + i) < 0 ? ((uint8_t *)was.p)[at + i] : code[k++];
            cr_assert_eq(((uint8_t *)got.p)[at + i], want, "element %d", (int)(at + i));
        }
    }
}
Test(moments8, adam_codes_what_it_computes) {
    rates();
    FOR_DTYPES {
        state s = new_state(d), was = slice_of(s, 0, N), exact = slice_of(s, 0, N);
        exact.m = decoded(s.m, true), exact.v = decoded(s.v, false);
        adam(exact, 1, 0);
        adam(s, 1, 0);
        for (int64_t i = 0; i < N; i++) same(&s.p, i, val(&exact.p, i));
        check_stored(s.m, was.m, exact.m, true);
        check_stored(s.v, was.v, exact.v, false);
    }
}
Test(moments8, the_others_code_their_momentum) {
    rates();
    for (int way = 0; way < 3; way++) {
        state s = new_state(BF16), was = slice_of(s, 0, N), exact = slice_of(s, 0, N);
        exact.m = decoded(s.m, true);
        sc_tensor update[2] = {T_(BF16, N), T_(BF16, N)};
        for (int narrow = 0; narrow < 2; narrow++) {
            state x = narrow ? s : exact;
            if (way == 0)
                run(sgd, .grad = x.g, .master = x.p, .coefficient = x.clip, .momentum = x.m, .nesterov = 1, .slice = N,
                    TABLE);
            if (way == 1) run(lion, .grad = x.g, .master = x.p, .coefficient = x.clip, .m = x.m, .slice = N, TABLE);
            if (way == 2)
                run(muon_momentum, .update = update[narrow], .grad = x.g, .coefficient = x.clip, .momentum = x.m,
                    .nesterov = 1, .slice = N, TABLE);
        }
        for (int64_t i = 0; i < N; i++) {
            same(&s.p, i, val(&exact.p, i));
            if (way == 2) same(&update[1], i, val(&update[0], i));
        }
        check_stored(s.m, was.m, exact.m, true);
    }
}

/* However many ranks hold the parameters: slices cut between blocks. */
Test(moments8, any_world_has_the_same_bits) {
    rates();
    state s = new_state(FP32), whole = slice_of(s, 0, N);
    adam(whole, 1, 0);
    for (int shards = 2; shards <= 8; shards *= 2)
        for (int rank = 0; rank < shards; rank++) {
            int64_t n = N / shards;
            state part = slice_of(s, rank * n, n), want = slice_of(whole, rank * n, n);
            adam(part, shards, rank);
            for (int64_t i = 0; i < n; i++) same(&part.p, i, val(&want.p, i));
            cr_assert_eq(memcmp(part.m.p, want.m.p, (size_t)sc_moments8_bytes(n)), 0);
            cr_assert_eq(memcmp(part.v.p, want.v.p, (size_t)sc_moments8_bytes(n)), 0);
        }
}

Test(moments8, a_skipped_step_leaves_them) {
    rates();
    state s = new_state(FP16);
    sc_tensor skip = T_(FP32, 2), wire = filled(T_(BF16, N), 1, 0);
    put(&skip, 0, 0), put(&skip, 1, 1);
    sc_adam_args adam = {.grad = s.g, .master = s.p, .coefficient = skip, .m = s.m, .v = s.v, .step = s.step, TABLE};
    adam.decoupled = 1, adam.slice = N, adam.wire = wire;
    run_writing(adam, &adam, SLOT(adam, wire));
}

/* A gradient that is no number reaches its block alone, and stays. */
Test(moments8, nan_stays) {
    rates();
    state s = new_state(FP32);
    put(&s.g, 300, NAN);
    adam(s, 1, 0);
    put(&s.g, 300, 1);
    adam(s, 1, 0);
    for (int64_t i = 0; i < N; i++)
        cr_expect_eq(isnan(read_moment(s.m, N, i, true)) != 0, i / BLOCKED == 1 && row_of(i) >= 0, "element %d",
                     (int)i);
}
