/* Random streams, initial values, the functions of schema/math.h (worst errors in ulp) and conversions.
 * Relies on: kernel_check.h, runtime/cpu's k_*.c (float build, or the whole with -DSC_FP64).
 * Relied on by: make test. */
#include "kernel_check.h"

/* ── random ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(random, philox_known_answers) { /* kat_vectors of the paper's own library */
    static const uint32_t in[3][6] = {
        {0, 0, 0, 0, 0, 0},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0},
    };
    static const uint32_t out[3][4] = {
        {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    for (int i = 0; i < 3; i++) {
        sc_block r = sc_philox((sc_block){{in[i][0], in[i][1], in[i][2], in[i][3]}}, in[i][4], in[i][5]);
        cr_assert(!memcmp(r.w, out[i], 16), "vector %d", i);
    }
}

Test(random, any_window_of_a_stream) {
    uint32_t all[300], some[300];
    sc_random(all, 300, 77, 3, 9, (1ull << 34) - 100);
    for (int first = 0; first < 9; first++)
        for (int n = 0; n < 290; n += 7) {
            sc_random(some, n, 77, 3, 9, (1ull << 34) - 100 + (uint64_t)first);
            cr_assert(!memcmp(some, all + first, (size_t)n * 4));
        }
}

#ifdef __AVX2__
Test(random, blocks_of_any_vector) {
    uint32_t all[320];
    const uint64_t first = (1ull << 32) - 37;
    for (int wide = 0; wide < 2; wide++) {
        if (wide && !__builtin_cpu_supports("avx512f")) continue;
        memset(all, 0xa5, sizeof all);
        (wide ? sc_philox_512 : sc_philox_256)(all, 288, first, 0xfffffff3u, 0x80000001u, 0xdeadbeefu, 0xfffffff0u);
        for (uint64_t j = 0; j < 72; j++) {
            uint64_t c = first + j;
            sc_block r = sc_philox((sc_block){{(uint32_t)c, (uint32_t)(c >> 32), 0xfffffff3u, 0x80000001u}},
                                   0xdeadbeefu, 0xfffffff0u);
            cr_assert(!memcmp(all + 4 * j, r.w, 16), "vector %d, block %d", wide, (int)j);
        }
        for (int i = 288; i < 320; i++) cr_assert_eq(all[i], 0xa5a5a5a5u);
    }
}
#endif

Test(random, dropout_statistics_and_scale) {
    sc_tensor x = filled(T_(FP32, 8, 25, 1001), 0, 1), y = T_(FP32, 8, 25, 1001);
    run(dropout, .y = y, .x = x, .key = 1234, .p = 0.3);
    int64_t n = sc_numel(&y), kept = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = val(&y, i);
        cr_assert(v == 0 || fabs(v - 1 / 0.7) < 1e-6);
        kept += v != 0;
    }
    double z = ((double)kept - 0.7 * (double)n) / sqrt(0.21 * (double)n);
    cr_assert(fabs(z) < 4, "kept %ld of %ld", (long)kept, (long)n);
    run(dropout, .y = y, .x = x, .key = 1234, .p = 1);
    for (int64_t i = 0; i < n; i++) cr_assert(val(&y, i) == 0);
}

Test(random, dropout_does_not_depend_on_the_split) {
    sc_tensor x = filled(T_(FP32, 6, 77), 1, 3), y = T_(FP32, 6, 77);
    run(dropout, .y = y, .x = x, .p = 0.5);
    for (int64_t b = 0; b < 6; b++) {
        sc_tensor xb = T_(FP32, 1, 77), yb = T_(FP32, 1, 77);
        memcpy(xb.p, (float *)x.p + b * 77, 77 * 4);
        record.first_sample += b;
        run(dropout, .y = yb, .x = xb, .p = 0.5);
        record.first_sample -= b;
        cr_assert(!memcmp(yb.p, (float *)y.p + b * 77, 77 * 4));
    }
    sc_tensor z = T_(FP32, 6, 77);
    run(dropout, .y = z, .x = x, .key = 1, .p = 0.5);
    cr_assert(memcmp(z.p, y.p, 6 * 77 * 4), "another key, another mask");
}

static sc_tensor initial(int kind, double a, double b, int64_t flat, int64_t numel, int64_t shard, int rank) {
    sc_tensor state = T_(FP32, shard < 0 ? numel : shard);
    at_place[1] = (sc_coord){rank, 3};
    run(init_param, .state = state, .kind = kind, .key = 4711, .offset = flat, .numel = numel, .slice = shard,
        .axis = 1, .a = a, .b = b);
    return state;
}

Test(random, initial_values_do_not_depend_on_the_world) {
    for (int kind = 0; kind < 6; kind++) {
        sc_tensor whole = initial(kind, 0.25, 2, 0, 5003, -1, 0);
        for (int rank = 0; rank < 3; rank++) {
            sc_tensor shard = initial(kind, 0.25, 2, 512, 5003, 2048, rank);
            for (int64_t i = 0; i < 2048; i++) {
                int64_t e = i + rank * 2048 - 512;
                uint32_t bits = ((uint32_t *)shard.p)[i],
                         expected = e < 0 || e >= 5003 ? ~0u : ((uint32_t *)whole.p)[e];
                cr_assert(bits == expected, "kind %d rank %d element %ld", kind, rank, (long)i);
            }
        }
        record.seed++;
        sc_tensor other = initial(kind, 0.25, 2, 0, 5003, -1, 0);
        cr_assert_eq(!memcmp(other.p, whole.p, 4 * 5003), kind < 3, "kind %d: another seed, other random values", kind);
        release();
    }
}

Test(random, initial_values_have_their_moments) {
    enum { N = 200000 };
    for (int kind = 3; kind < 6; kind++) { /* normal, uniform, trunc_normal */
        sc_tensor t = initial(kind, kind == 4 ? -1 : 0.5, kind == 4 ? 3 : 2, 0, N, -1, 0);
        double s = 0, s2 = 0, low = 1e9, high = -1e9;
        for (int64_t i = 0; i < N; i++) {
            double v = val(&t, i);
            s += v;
            s2 += v * v;
            low = fmin(low, v);
            high = fmax(high, v);
        }
        double mean = s / N, std = sqrt(s2 / N - mean * mean);
        double expected_mean = kind == 4 ? 1 : 0.5, expected_std = kind == 3   ? 2
                                                                   : kind == 4 ? 4 / sqrt(12)
                                                                               : 2 * 0.8796;
        cr_assert(fabs(mean - expected_mean) < 4 * expected_std / sqrt(N), "kind %d mean %g", kind, mean);
        cr_assert(fabs(std - expected_std) < 0.01 * expected_std, "kind %d std %g", kind, std);
        if (kind == 4) cr_assert(low >= -1 && high <= 3);
        if (kind == 5) cr_assert(low >= 0.5 - 4.0001 && high <= 0.5 + 4.0001);
    }
}

/* ── functions and conversions ───────────────────────────────────────────────────────────────────────────────────────
 */
#ifndef SC_FP64
static double ulps(float y, double expected) {
    float f = (float)expected;
    if (isnan(expected)) return isnan(y) ? 0 : 1e9;
    if (isinf(f) || isinf(y)) return y == f ? 0 : 1e9;
    return fabs(y - expected) / ((double)nextafterf(fabsf(f), INFINITY) - fabsf(f));
}
static double normal(double x) {
    return 0.5 * erfc(-x * M_SQRT1_2);
}
static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double tanh_argument(double x) {
    return 1.5957691216057308 * (x + 0.044715 * x * x * x);
}

/* All exponents, both signs; results below `floor` in size are not judged. */
#define SCAN(name, limit, floor, call, reference)                                                                      \
    Test(math, name) {                                                                                                 \
        double worst = 0, at = 0;                                                                                      \
        for (uint64_t u = 0; u <= 0xffffffffu; u += 4099) {                                                            \
            float x = sc_float((uint32_t)u);                                                                           \
            double v = x, expected = reference;                                                                        \
            (void)v;                                                                                                   \
            if (fabs(expected) < floor) continue;                                                                      \
            double e = ulps(call, expected);                                                                           \
            if (e > worst) worst = e, at = x;                                                                          \
        }                                                                                                              \
        cr_assert(worst <= limit, "%.2f ulp at %a", worst, at);                                                        \
    }
SCAN(exp, 1.1, 0, sc_exp(x), exp(v))
SCAN(log, 0.8, 0, sc_log(x), log(v))
SCAN(tanh, 1.3, 0, sc_tanh(x), tanh(v))
SCAN(sigmoid, 2.3, 1e-37, sc_sigmoid(x), sigmoid(v))
SCAN(gelu, 6, 1e-36, sc_gelu(x), v == -INFINITY ? NAN : v * normal(v))
SCAN(gelu_grad, 3, 0.3, sc_gelu_grad(1, x), normal(v) + (fabs(v) > 40 ? 0 : v * exp(-v * v / 2) * 0.3989422804014327))
SCAN(gelu_tanh, 4.5, 1e-6, sc_gelu_tanh(x), v == -INFINITY ? NAN : v * sigmoid(tanh_argument(v)))
SCAN(gelu_tanh_grad, 3, 0.3, sc_gelu_tanh_grad(1, x),
     sigmoid(tanh_argument(v)) + (fabs(v) > 30 ? 0
                                               : v * sigmoid(tanh_argument(v)) * sigmoid(-tanh_argument(v)) *
                                                     1.5957691216057308 * (1 + 3 * 0.044715 * v * v)))
SCAN(silu_grad, 3, 0.3, sc_silu_grad(1, x), sigmoid(v) + (fabs(v) > 200 ? 0 : v * sigmoid(v) * sigmoid(-v)))
SCAN(expm1, 1.7, 0, sc_expm1(x), expm1(v))
SCAN(log1p, 1.5, 0, sc_log1p(x), log1p(v))
SCAN(tan, 2, 0, sc_tan(x), tan(v))
#define WIDE_SCAN(name, call) SCAN(name, 0.6, 0, call(x), name(v))
WIDE_SCAN(exp2, sc_two_to)
WIDE_SCAN(log2, sc_log2)
WIDE_SCAN(log10, sc_log10)
WIDE_SCAN(sinh, sc_sinh)
WIDE_SCAN(cosh, sc_cosh)
WIDE_SCAN(asinh, sc_asinh)
WIDE_SCAN(acosh, sc_acosh)
WIDE_SCAN(atanh, sc_atanh)
WIDE_SCAN(sin, sc_sin)
WIDE_SCAN(cos, sc_cos)
WIDE_SCAN(asin, sc_asin)
WIDE_SCAN(acos, sc_acos)
WIDE_SCAN(atan, sc_atan)
WIDE_SCAN(erf, sc_erf)
WIDE_SCAN(erfc, sc_erfc)
WIDE_SCAN(lgamma, sc_lgamma)
SCAN(erfinv, 1.2, 1e-36, (float)erf((double)sc_erfinv(x)), fabs(v) > 1 ? NAN : fabs(v) > 0.9 ? 0 : v)
SCAN(floor, 0, 0, sc_whole_below(x), floor(v))
SCAN(ceil, 0, 0, sc_whole_above(x), ceil(v))
SCAN(trunc, 0, 0, sc_whole_toward_zero(x), trunc(v))
SCAN(rint, 0, 0, sc_whole_nearest(x), rint(v))
SCAN(square, 0.6, 0, sc_pow(x, 2), v *v)
SCAN(cube, 0.6, 0, sc_pow(x, 3), v *v *v)
SCAN(reciprocal, 0.6, 0, sc_pow(x, -1), 1 / v)
SCAN(pow_fraction, 0.6, 0, sc_pow(x, 1.7f), pow(v, 1.7f))
SCAN(pow_root, 0.6, 0, sc_pow(x, -0.5f), v == 0 ? INFINITY : pow(v, -0.5))

Test(math, derivatives_near_their_zeros) {
    for (float x = -4; x < 1; x += 0x1p-12f) {
        double v = x, z = tanh_argument(v);
        cr_assert(fabs(sc_gelu_grad(1, x) - (normal(v) + v * exp(-v * v / 2) * 0.3989422804014327)) < 2e-7);
        cr_assert(fabs(sc_silu_grad(1, x) - (sigmoid(v) + v * sigmoid(v) * sigmoid(-v))) < 2e-7);
        cr_assert(fabs(sc_gelu_tanh_grad(1, x) - (sigmoid(z) + v * sigmoid(z) * sigmoid(-z) * 1.5957691216057308 *
                                                                   (1 + 3 * 0.044715 * v * v))) < 3e-7);
    }
}

/* Any two floats, of all exponents, and special ones. */
Test(math, of_two) {
    static const float special[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 1, -1, 3};
    uint64_t z = 88172645463325252u;
    for (int i = 0; i < 1000000; i++) {
        z ^= z << 13, z ^= z >> 7, z ^= z << 17;
        float a = i < 64 ? special[i / 8] : sc_float((uint32_t)z), b = i < 64 ? special[i % 8] : sc_float(z >> 32);
        cr_assert(ulps(sc_fmod(a, b), fmod(a, b)) == 0, "fmod %a %a", a, b);
        cr_assert(ulps(sc_atan2(a, b), atan2(a, b)) <= 0.6, "atan2 %a %a", a, b);
        cr_assert(ulps(sc_hypot(a, b), hypot(a, b)) <= 0.6, "hypot %a %a", a, b);
        cr_assert(ulps(sc_pow(a, b), pow(a, b)) <= 0.6, "pow %a %a", a, b);
    }
}

Test(math, pow_specials) {
    cr_assert(sc_pow(0, 0) == 1 && sc_pow(INFINITY, 0) == 1 && isnan(sc_pow(-2, 0.5f)));
    cr_assert(sc_pow(-2, 3) == -8 && sc_pow(-2, 2) == 4 && sc_pow(0, -2) == INFINITY && sc_pow(0, 0.5f) == 0);
    cr_assert(sc_pow(-0.0f, -1) == -INFINITY && sc_pow(-0.0f, 2) == 0 && sc_pow(-INFINITY, 3) == -INFINITY);
}

Test(math, vectors_have_the_bits_of_scalars) {
    enum { N = 1021 };
    real x[N], y[N];
    double angle[N];
    real s[N], c[N];
    for (int i = 0; i < N; i++) x[i] = (real)(uniform() * 90);
    sc_chunk_exp(y, x, 0, N);
    for (int i = 0; i < N; i++) cr_assert(sc_bits(y[i]) == sc_bits(sc_exp(x[i])));
    for (int i = 0; i < N; i++) angle[i] = uniform() * (i < 500 ? 4 : 1e6);
    sc_chunk_sincos(angle, s, c, N);
    for (int i = 0; i < N; i++) cr_assert(ulps(s[i], sin(angle[i])) < 0.51 && ulps(c[i], cos(angle[i])) < 0.51);
}
#endif

Test(convert, every_fp16_and_bf16_survives) {
    for (uint32_t u = 0; u < 65536; u++) {
        _Float16 h;
        uint16_t bits = (uint16_t)u;
        memcpy(&h, &bits, 2);
        real a = sc_from_fp16(bits), b = sc_from_bf16(bits);
        cr_assert(isnan((float)h) ? isnan(a) && isnan(sc_from_fp16(sc_to_fp16(a)))
                                  : a == (real)h && sc_to_fp16(a) == bits);
        cr_assert(isnan(b) ? isnan(sc_from_bf16(sc_to_bf16(b))) : sc_to_bf16(b) == bits);
    }
}

Test(convert, rounds_to_nearest_even) {
    for (uint64_t u = 0; u <= 0xffffffffu; u += 997) {
        float x = sc_float((uint32_t)u);
        _Float16 h = (_Float16)x;
        uint16_t expected;
        memcpy(&expected, &h, 2);
        if (isnan(x)) continue;
        cr_assert(sc_to_fp16(x) == expected, "%a", x);
        uint32_t low = (uint32_t)u & 0xffff, up = low > 0x8000 || (low == 0x8000 && (u >> 16 & 1));
        cr_assert(sc_to_bf16(x) == (uint16_t)((u >> 16) + up), "%a", x);
    }
}
