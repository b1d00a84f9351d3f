/* Moments of bf16: what is stored is a neighbour of what was computed, above as often as it should be, the same for any
 * cut over parts and ranks; small changes add up.
 * Relies on: kernel_check.h, runtime/sc_optimizer.h, runtime/cpu/k_optimizer.c.
 * Relied on by: make test. */
#include "../../runtime/sc_optimizer.h"
#include "kernel_check.h"

enum { N = 4096 };
static const int64_t keyed[] = {0, 1800, 0, 1234567, 1802, 2500, 1, -77, 2560, 4090, 0, INT64_MAX};
static const int64_t plain[] = {0, 1800, 0, 1802, 2500, 1, 2560, 4090, 0};
enum { ROWS = 3 };

static void rates(void) {
    record.lr[0] = 0.01f, record.lr[1] = 0.02f, record.weight_decay[1] = 0.1f;
    record.of[0].beta1 = 0.9f, record.of[0].beta2 = 0.999f, record.of[0].eps = 1e-8f, record.of[0].momentum = 0.9f;
    record.step = ((int64_t)3 << 32) + 7;
    record.seed = 99;
}

/* Which row of `keyed` a flat element belongs to; -1: to a gap. */
static int row_of(int64_t flat) {
    for (int s = 0; s < ROWS; s++)
        if (flat >= keyed[4 * s] && flat < keyed[4 * s + 1]) return s;
    return -1;
}

/* The word of an element, as sc_optimizer.h says it in words. */
static uint32_t word_at(int64_t path_key, int64_t element) {
    uint64_t key = sc_stream_key(record.seed, (uint64_t)path_key), block = (uint64_t)element / 4;
    sc_block c = {
        {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)record.step, (uint32_t)(record.step >> 32) | 1u << 31}};
    return sc_philox(c, (uint32_t)key, (uint32_t)(key >> 32)).w[element % 4];
}

/* Towards zero, or one bf16 further where what is cut off and the random half add up to a whole. */
static double rounded(double x, uint32_t half) {
    uint32_t cut = sc_bits((float)x) & 0xffff0000u, rest = sc_bits((float)x) & 0xffffu;
    return sc_float(rest + half >= 65536 ? cut + 65536 : cut);
}

/* ── the rounding ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Over all words the mean is the value itself, exactly. */
Test(moments, every_word_once_gives_the_value) {
    const float values[] = {1.0f,      1.00001f, -1.00001f, 0x1.fffffep0f, -0x1.01fffep-3f, 3e-39f,
                            -1.4e-45f, 1e-40f,   0.1f,      -12345.678f,   3e38f,           0x1.8p-127f};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        double sum = 0, x = values[i], low = INFINITY, high = -INFINITY;
        for (uint32_t w = 0; w < 65536; w++) {
            real y = sc_round_bf16(values[i], w | 0xabcd0000u);
            cr_assert_eq(sc_bits((float)y) & 0xffffu, 0);
            sum += y;
            low = fmin(low, y), high = fmax(high, y);
        }
        cr_assert_eq(sum, 65536 * x, "%g: mean %.17g", x, sum / 65536);
        uint32_t between = sc_bits((float)low) > sc_bits((float)high) ? sc_bits((float)low) - sc_bits((float)high)
                                                                      : sc_bits((float)high) - sc_bits((float)low);
        cr_assert(low <= x && x <= high && between <= 65536, "%g: between %g and %g", x, low, high);
    }
}

Test(moments, what_bf16_holds_stays) {
    for (uint32_t u = 0; u < 65536; u++)
        for (uint32_t w = 0; w < 65536; w += 4369) {
            float x = sc_float(u << 16);
            real y = sc_round_bf16(x, w);
            cr_assert(isnan(x) ? isnan(y) : sc_bits((float)y) == sc_bits(x), "%08x becomes %08x", u << 16,
                      sc_bits((float)y));
        }
    cr_assert(isnan(sc_round_bf16(sc_float(0x7f800001u), 0)) && isnan(sc_round_bf16(sc_float(0xffffffffu), 65535)));
    cr_assert_eq(sc_round_bf16(0x1.fffffep127f, 65535), INFINITY);
}

/* ── the kernels ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    sc_tensor g, p, clip, m, v, step;
} state;

static sc_tensor copy_as(int dtype, sc_tensor x, int64_t from, int64_t n) {
    sc_tensor y = T_(dtype, n);
    for (int64_t i = 0; i < n; i++) put(&y, i, val(&x, from + i));
    return y;
}
static state new_state(int grad) {
    state s = {filled(T_(grad, N), 1, 0),   filled(T_(FP32, N), 1, 0),     filled(T_(FP32, 1), 0, 0.5),
               filled(T_(BF16, N), 0.1, 0), filled(T_(BF16, N), 0.1, 0.2), T_(INT64, 1)};
    *(int64_t *)s.step.p = 3;
    return s;
}
static state slice_of(state s, int moments, int64_t from, int64_t n) {
    return (state){copy_as(s.g.dtype, s.g, from, n), copy_as(FP32, s.p, from, n),    s.clip,
                   copy_as(moments, s.m, from, n),   copy_as(moments, s.v, from, n), s.step};
}
#define KEYED .table = keyed, .ntable = ROWS * 4
#define PLAIN .table = plain, .ntable = ROWS * 3
static sc_adam_args adam_of(state s, int shards) {
    sc_adam_args keys = {KEYED}, none = {PLAIN}, k = s.m.dtype == BF16 ? keys : none;
    k.grad = s.g, k.master = s.p, k.coefficient = s.clip, k.m = s.m, k.v = s.v, k.step = s.step;
    k.decoupled = 1, k.slice = N / shards, k.axis = 0;
    return k;
}
static void adam(state s, int shards, int rank) {
    sc_adam_args k = adam_of(s, shards);
    at_place[0] = (sc_coord){rank, shards};
    run_args(adam, &k);
}

/* Master and moments as with moments of fp32, these rounded by the words of their parameter. */
Test(moments, adam_rounds_what_it_computes) {
    rates();
    FOR_DTYPES {
        state s = new_state(d), exact = slice_of(s, FP32, 0, N);
        adam(exact, 1, 0);
        adam(s, 1, 0);
        for (int64_t i = 0; i < N; i++) {
            int row = row_of(i);
            same(&s.p, i, val(&exact.p, i));
            uint32_t word = row < 0 ? 0 : word_at(keyed[4 * row + 3], i - keyed[4 * row]);
            same(&s.m, i, rounded(val(&exact.m, i), word & 0xffff));
            same(&s.v, i, rounded(val(&exact.v, i), word >> 16));
        }
    }
}

Test(moments, sgd_rounds_its_momentum) {
    rates();
    state s = new_state(BF16), exact = slice_of(s, FP32, 0, N);
    run(sgd, .grad = exact.g, .master = exact.p, .coefficient = exact.clip, .momentum = exact.m, .nesterov = 1,
        .slice = N, PLAIN);
    run(sgd, .grad = s.g, .master = s.p, .coefficient = s.clip, .momentum = s.m, .nesterov = 1, .slice = N, KEYED);
    for (int64_t i = 0; i < N; i++) {
        int row = row_of(i);
        uint32_t word = row < 0 ? 0 : word_at(keyed[4 * row + 3], i - keyed[4 * row]);
        same(&s.p, i, val(&exact.p, i));
        same(&s.m, i, rounded(val(&exact.m, i), word & 0xffff));
    }
}

Test(moments, lion_rounds_its_momentum) {
    rates();
    state s = new_state(BF16), exact = slice_of(s, FP32, 0, N);
    sc_tensor wire = T_(BF16, N);
    run(lion, .grad = exact.g, .master = exact.p, .coefficient = exact.clip, .m = exact.m, .slice = N, PLAIN);
    run(lion, .grad = s.g, .master = s.p, .coefficient = s.clip, .m = s.m, .wire = wire, .slice = N, KEYED);
    for (int64_t i = 0; i < N; i++) {
        int row = row_of(i);
        uint32_t word = row < 0 ? 0 : word_at(keyed[4 * row + 3], i - keyed[4 * row]);
        same(&s.p, i, val(&exact.p, i));
        same(&s.m, i, rounded(val(&exact.m, i), word & 0xffff));
        if (row >= 0) same(&wire, i, sc_as_bf16((float)val(&s.p, i)));
    }
}

/* However many ranks hold the parameters; slices cut them anywhere. */
Test(moments, any_world_has_the_same_bits) {
    rates();
    state s = new_state(FP32), whole = slice_of(s, BF16, 0, N);
    adam(whole, 1, 0);
    for (int shards = 2; shards <= 8; shards *= 2)
        for (int rank = 0; rank < shards; rank++) {
            int64_t n = N / shards;
            state part = slice_of(s, BF16, rank * n, n);
            adam(part, shards, rank);
            for (int64_t i = 0; i < n; i++) {
                same(&part.p, i, val(&whole.p, rank * n + i));
                same(&part.m, i, val(&whole.m, rank * n + i));
                same(&part.v, i, val(&whole.v, rank * n + i));
            }
        }
}

static int differing(sc_tensor a, sc_tensor b) {
    int n = 0;
    for (int64_t i = 0; i < N; i++) n += val(&a, i) != val(&b, i);
    return n;
}

/* Seed, step and path each give other words: a value between two bf16 then often takes the other one. */
Test(moments, other_words_for_other_seeds_steps_and_paths) {
    rates();
    state s = new_state(FP32), all[4];
    const int64_t *table[] = {keyed, keyed, keyed, (int64_t[]){0, 1800, 0, 9, 1802, 2500, 1, 8, 2560, 4090, 0, 7}};
    for (int way = 0; way < 4; way++) {
        rates();
        all[way] = slice_of(s, BF16, 0, N);
        if (way == 1) record.seed++;
        if (way == 2) record.step++;
        sc_adam_args k = adam_of(all[way], 1);
        k.table = table[way];
        run_args(adam, &k);
        for (int other = 0; other < way; other++) {
            int m = differing(all[way].m, all[other].m), v = differing(all[way].v, all[other].v);
            cr_expect(m > N / 6 && m < N / 2 && v > N / 6 && v < N / 2, "%d and %d: %d and %d differ", way, other, m,
                      v);
        }
    }
}

Test(moments, a_skipped_step_leaves_them) {
    rates();
    state s = new_state(FP16);
    sc_tensor skip = T_(FP32, 2), wire = filled(T_(BF16, N), 1, 0);
    put(&skip, 0, 0), put(&skip, 1, 1);
    sc_adam_args adam = adam_of(s, 1);
    adam.coefficient = skip, adam.wire = wire;
    run_writing(adam, &adam, SLOT(adam, wire));
    sc_sgd_args sgd = {
        .grad = s.g, .master = s.p, .coefficient = skip, .momentum = s.m, .nesterov = 1, .slice = N, KEYED};
    run_writing(sgd, &sgd, 0);
}

/* ── statistics ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
enum { MANY = 1 << 20 };

/* One value in a million elements: how often each moment went up, and both together, within five standard deviations.
 */
Test(moments, ups_are_as_frequent_as_they_should_be) {
    static const int64_t table[] = {0, MANY, 0, 5};
    rates();
    sc_tensor g = T_(FP32, MANY), p = T_(FP32, MANY), clip = filled(T_(FP32, 1), 0, 1), step = T_(INT64, 1);
    sc_tensor m = T_(BF16, MANY), v = T_(BF16, MANY);
    *(int64_t *)step.p = 3;
    for (int64_t i = 0; i < MANY; i++) put(&g, i, 0.37), put(&p, i, 1), put(&m, i, 1), put(&v, i, 1);
    sc_adam_args k = {.grad = g,
                      .master = p,
                      .coefficient = clip,
                      .m = m,
                      .v = v,
                      .step = step,
                      .decoupled = 1,
                      .slice = MANY,
                      .table = table,
                      .ntable = 4};
    run_once(adam, &k);
    float x[2] = {record.of[0].beta1 + (float)(1 - (double)record.of[0].beta1) * 0.37f,
                  record.of[0].beta2 + (float)(1 - (double)record.of[0].beta2) * (0.37f * 0.37f)};
    int64_t ups[2] = {0, 0}, both = 0;
    for (int64_t i = 0; i < MANY; i++) {
        bool up[2] = {val(&m, i) > x[0], val(&v, i) > x[1]};
        for (int j = 0; j < 2; j++) ups[j] += up[j];
        both += up[0] && up[1];
    }
    double want[3], got[3] = {(double)ups[0] / MANY, (double)ups[1] / MANY, (double)both / MANY};
    for (int j = 0; j < 2; j++) want[j] = (sc_bits(x[j]) & 0xffffu) / 65536.0;
    want[2] = want[0] * want[1];
    for (int j = 0; j < 3; j++)
        cr_expect(fabs(got[j] - want[j]) < 5 * sqrt(want[j] * (1 - want[j]) / MANY), "%d: %g, not %g", j, got[j],
                  want[j]);
}

/* From 1 towards 0.5 by a thousandth a step, which to nearest stays 1 for good. */
Test(moments, small_changes_add_up) {
    rates();
    state s = new_state(FP32);
    enum { STEPS = 300 };
    float exact = 1;
    for (int64_t i = 0; i < N; i++) put(&s.v, i, 1), put(&s.g, i, 2 * sqrt(0.5));
    cr_assert_eq(sc_as_bf16(0.999f + 0.001f * 0.5f), 1);
    for (int n = 0; n < STEPS; n++, record.step++) {
        sc_adam_args k = adam_of(s, 1);
        run_once(adam, &k);
        exact = 0.999f * exact + 0.001f * 0.5f;
    }
    double sum = 0, squares = 0, count = 0;
    for (int64_t i = 0; i < N; i++) {
        if (row_of(i) < 0) continue;
        double off = val(&s.v, i) - exact;
        sum += off, squares += off * off, count++;
    }
    double deviation = sqrt(squares / count);
    cr_expect(fabs(sum / count) < 5 * deviation / sqrt(count), "mean off by %g, deviation %g", sum / count, deviation);
    cr_expect(deviation > 0 && deviation < 0.06, "elements deviate by %g", deviation);
    cr_expect(exact < 0.88f, "%g", (double)exact);
}
