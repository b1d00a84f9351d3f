/* Kernels against naive references in double: odd sizes, strides, dtypes, and equal bits for 1, 2 and 3 parts.
 * Relies on: kernel_check.h, runtime/cpu's k_*.c (float build, or the whole with -DSC_FP64).
 * Relied on by: make test. */
#include "kernel_check.h"
#include <pthread.h>

/* ── tolerances ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef enum { RIGHT, BACKWARDS, FUSED, IN_BLOCKS, TF32, BF16_OPERANDS, BF16_SUM, A_TERM_SHORT, A_TERM_TWICE } way;

static real cut(real x, int bits) { /* to so many bits, to nearest */
    int e;
    double m = frexp((double)x, &e);
    return (real)ldexp(nearbyint(ldexp(m, bits)), e - bits);
}

static real summed(way w, const real *a, const real *b, int n) {
    real sum = 0, block = 0;
    for (int k = 0; k < n; k++) {
        int at = w == BACKWARDS ? n - 1 - k : k, bits = w == TF32 ? 11 : w == BF16_OPERANDS ? 8 : 53;
        real x = bits == 53 ? a[at] : cut(a[at], bits), y = bits == 53 ? b[at] : cut(b[at], bits);
        if (w == A_TERM_SHORT && k == n / 2) continue;
        if (w == FUSED)
            sum = sizeof(real) == 8 ? (real)fma(x, y, sum) : (real)fmaf((float)x, (float)y, (float)sum);
        else if (w == IN_BLOCKS)
            block += x * y;
        else
            sum += x * y;
        if (w == IN_BLOCKS && (k % 32 == 31 || k == n - 1)) sum += block, block = 0;
        if (w == A_TERM_TWICE && k == n / 2) sum += x * y;
        if (w == BF16_SUM) sum = cut(sum, 8);
    }
    return sum;
}

/* Whatever the order, a sum is within its tolerance; one that is made in a coarser type, or misses a term, is not. */
Test(kernels, tolerances_tell_rounding_from_mistakes) {
    static const int lengths[] = {2, 8, 65, 1100};
    enum { SUMS = 200 };
    for (way w = RIGHT; w <= A_TERM_TWICE; w++)
        for (int l = 0; l < 4; l++) {
            int n = lengths[l], outside = 0;
            for (int i = 0; i < SUMS; i++) {
                real a[1100], b[1100];
                double expected = 0, size = 0;
                for (int k = 0; k < n; k++) {
                    a[k] = (real)uniform(), b[k] = (real)uniform();
                    expected += (double)a[k] * (double)b[k], size += fabs((double)a[k] * (double)b[k]);
                }
                double off = fabs((double)summed(w, a, b, n) - expected);
                outside += off > limit_of(SC_REAL, expected, sum_error(n) * size);
            }
            if (w <= IN_BLOCKS)
                cr_assert_eq(outside, 0, "way %d, %d terms: %d sums outside", (int)w, n, outside);
            else
                cr_assert_gt(outside, SUMS / 4, "way %d, %d terms: only %d sums outside", (int)w, n, outside);
        }
}

/* ── matmul ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    int64_t batch, m, n, k;
    int ta, tb, bias, shared, pad; /* shared: b has 2 dims; pad: extra elements a row */
    int out;                       /* result dtype, or -1 */
} product;

static sc_tensor matrix(int d, int64_t batch, int64_t rows, int64_t cols, int pad) {
    int64_t ld = cols + pad;
    return tensor(d, batch ? 3 : 2, batch ? LIST(batch, rows, cols) : LIST(rows, cols),
                  batch ? LIST(rows * ld, ld, 1) : LIST(ld, 1));
}

static void check_product(int d, product p) {
    sc_tensor a = filled(p.ta ? matrix(d, p.batch, p.k, p.m, p.pad) : matrix(d, p.batch, p.m, p.k, p.pad), 1, 0);
    int64_t bb = p.shared ? 0 : p.batch, batches = p.batch ? p.batch : 1;
    sc_tensor b = filled(p.tb ? matrix(d, bb, p.n, p.k, p.pad) : matrix(d, bb, p.k, p.n, p.pad), 1, 0);
    sc_tensor y = matrix(p.out >= 0 ? p.out : d, p.batch, p.m, p.n, 0);
    sc_matmul_args k = {.y = y, .a = a, .b = b, .trans_a = p.ta, .trans_b = p.tb};
    if (p.bias) k.bias = filled(T_(d, p.n), 1, 0);
    if (d != SC_REAL || y.dtype != SC_REAL) k.work = workspace(3 * SC_CPU_MATMUL_BYTES);
    run_args(matmul, &k);
    for (int64_t c = 0; c < batches; c++)
        for (int64_t i = 0; i < p.m; i++)
            for (int64_t j = 0; j < p.n; j++) {
                double s = p.bias ? val(&k.bias, j) : 0, size = fabs(s);
                int64_t a0 = c * p.m * p.k, b0 = p.shared ? 0 : c * p.k * p.n;
                for (int64_t l = 0; l < p.k; l++) {
                    double x = val(&a, a0 + (p.ta ? l * p.m + i : i * p.k + l)) *
                               val(&b, b0 + (p.tb ? j * p.k + l : l * p.n + j));
                    s += x, size += fabs(x);
                }
                near_sum(&y, (c * p.m + i) * p.n + j, s, size, p.k + (p.bias != 0), "matmul");
            }
    release();
}

Test(kernels, matmul) {
    FOR_DTYPES
    for (int t = 0; t < 4; t++) {
        check_product(d, (product){0, 37, 53, 29, t & 1, t >> 1, 0, 0, 0, -1});
        check_product(d, (product){0, 130, 300, 65, t & 1, t >> 1, 1, 0, 5, -1});
        check_product(d, (product){3, 17, 9, 33, t & 1, t >> 1, 1, 0, 3, -1});
        check_product(d, (product){4, 7, 19, 11, t & 1, t >> 1, 0, 1, 0, -1});
        check_product(d, (product){0, 33, 20, 1100, t & 1, t >> 1, 1, 0, 0, sizeof(real) == 8 ? FP64 : FP32});
    }
    check_product(FP32, (product){0, 1, 40, 50, 0, 1, 1, 0, 0, -1});
    check_product(FP32, (product){0, 40, 1, 50, 0, 0, 0, 0, 0, -1});
    check_product(FP32, (product){0, 600, 270, 8, 0, 0, 0, 0, 0, -1});
}

Test(kernels, matmul_with_rows_that_repeat) {
    sc_tensor a = filled(tensor(SC_REAL, 2, LIST(5, 7), LIST(0, 1)), 1, 0), b = filled(T_(SC_REAL, 7, 3), 1, 0);
    sc_tensor y = T_(SC_REAL, 5, 3);
    run(matmul, .y = y, .a = a, .b = b);
    for (int64_t i = 0; i < 15; i++) {
        double s = 0, size = 0;
        for (int64_t l = 0; l < 7; l++) {
            double x = val(&a, l) * val(&b, l * 3 + i % 3);
            s += x, size += fabs(x);
        }
        near_sum(&y, i, s, size, 7, "matmul");
    }
}

/* ── movement ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(kernels, copy) {
    static const int64_t shape[] = {3, 70, 5, 41};
    static const int64_t strides[][4] = {
        {70 * 5 * 41, 5 * 41, 41, 1}, {1, 3, 210, 1050}, {41, 123, 8610, 1}, {0, 0, 0, 1},
        {70 * 5 * 41, 1, 70, 350},    {0, 1, 0, 70},     {40000, 410, 82, 2}};
    static const int kinds[] = {FP32, BF16, FP64};
    for (size_t s = 0; s < sizeof strides / sizeof *strides; s++)
        for (int c = 0; c < 3; c++, release()) {
            sc_tensor x = filled(tensor(kinds[c], 4, shape, strides[s]), 4, 0), y = tensor(kinds[c], 4, shape, NULL);
            run(copy, .y = y, .a = x);
            for (int64_t i = 0; i < sc_numel(&y); i++) same(&y, i, val(&x, i));
        }
    sc_tensor flags = T_(BOOL, 9, 4), turned = tensor(BOOL, 2, LIST(9, 4), LIST(1, 9));
    for (int i = 0; i < 36; i++) ((uint8_t *)turned.p)[i] = (uint8_t)(i % 2);
    run(copy, .y = flags, .a = turned);
    for (int64_t i = 0; i < 36; i++) cr_assert(((uint8_t *)flags.p)[i] == (i % 4 * 9 + i / 4) % 2);
}

Test(kernels, concat_and_pad_slice) {
    FOR_DTYPES
    for (int dim = 0; dim < 3; dim++) {
        int64_t sa[] = {4, 6, 5}, sb[] = {4, 6, 5}, sy[] = {4, 6, 5};
        sb[dim] = 3;
        sy[dim] += 3;
        sc_tensor a = filled(tensor(d, 3, sa, NULL), 1, 0), b = filled(tensor(d, 3, sb, LIST(100, 9, 1)), 1, 0);
        sc_tensor y = tensor(d, 3, sy, NULL), z = tensor(d, 3, sy, NULL);
        run(concat, .y = y, .x = {a, b}, .dim = dim);
        run(pad_slice, .y = z, .a = b, .dim = dim, .start = 2, .size = sy[dim]);
        for (int64_t i = 0; i < sc_numel(&y); i++) {
            int64_t x[3] = {i / (sy[1] * sy[2]), i / sy[2] % sy[1], i % sy[2]}, in_b = x[dim] - sa[dim];
            int64_t inside = x[dim] >= 2 && x[dim] < 5, at = x[dim];
            if (in_b >= 0) x[dim] = in_b;
            const sc_tensor *from = in_b >= 0 ? &b : &a;
            same(&y, i, val(from, (x[0] * from->shape[1] + x[1]) * from->shape[2] + x[2]));
            x[dim] = at - 2;
            same(&z, i, inside ? val(&b, (x[0] * sb[1] + x[1]) * sb[2] + x[2]) : 0);
        }
    }
}

Test(kernels, fill_and_store) {
    sc_tensor f = T_(BF16, 3000), n = T_(INT32, 2500), s = T_(FP32, 1), steps = T_(INT64, 1), z = T_(FP32, 1, 1000);
    run(full, .y = f, .value = 1.5);
    for (int64_t i = 0; i < 3000; i++) same(&f, i, 1.5);
    run(arange, .y = n, .start = -7, .step = 3);
    for (int64_t i = 0; i < 2500; i++) cr_assert(((int32_t *)n.p)[i] == -7 + 3 * i);
    run(grad_seed, .y = s);
    same(&s, 0, 0.25);
    *(int64_t *)steps.p = 41;
    run_once(count_step, &(sc_count_step_args){.step = steps});
    cr_assert(*(int64_t *)steps.p == 42);
    run(zero, .state = z);
    for (int64_t i = 0; i < 1000; i++) same(&z, i, 0);

    sc_tensor flat = filled(T_(FP32, 4000), 0, 1), gap = flat, gap2 = flat;
    gap.p = (float *)flat.p + 100;
    gap.shape[0] = 156;
    gap2.p = (float *)flat.p + 3000;
    gap2.shape[0] = 1000;
    run(zero_gaps, .y = {gap, gap2});
    for (int64_t i = 0; i < 4000; i++) same(&flat, i, !((i >= 100 && i < 256) || i >= 3000));

    sc_tensor value = filled(T_(BF16, 50, 30), 1, 0), state = filled(T_(FP32, 2000), 0, 2);
    run(store, .value = value, .state = state, .at = 200);
    for (int64_t i = 0; i < 2000; i++) same(&state, i, i < 200 || i >= 1700 ? 2 : val(&value, i - 200));
    run(store, .value = value, .state = state, .at = 200, .add = 1);
    for (int64_t i = 0; i < 1500; i++) same(&state, 200 + i, 2 * val(&value, i));
}

/* ── reductions ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int64_t reduced_index(const int64_t *shape, int64_t mask, int64_t linear) {
    int64_t x[4], to = 0;
    for (int d = 3; d >= 0; d--) {
        x[d] = linear % shape[d];
        linear /= shape[d];
    }
    for (int d = 0; d < 4; d++)
        if (!(mask >> d & 1)) to = to * shape[d] + x[d];
    return to;
}

Test(kernels, reductions) {
    static const int64_t shape[] = {5, 70, 3, 33};
    FOR_DTYPES
    for (int64_t mask = 0; mask < 16; mask++, release())
        for (int turned = 0; turned < 2; turned++) {
            int64_t kept = 1;
            for (int j = 0; j < 4; j++) kept *= mask >> j & 1 ? 1 : shape[j];
            int64_t n = 5 * 70 * 3 * 33, count = n / kept;
            sc_tensor x = filled(tensor(d, 4, shape, turned ? LIST(1, 5, 350, 1050) : NULL), 1, 0);
            sc_tensor sum = T_(d, kept), mean = T_(d, kept), most = T_(d, kept), g = filled(T_(d, kept), 1, 0);
            double *s = calloc((size_t)kept, 8), *size = calloc((size_t)kept, 8);
            double *m = malloc((size_t)kept * 8), *ties = calloc((size_t)kept, 8);
            for (int64_t i = 0; i < kept; i++) m[i] = -INFINITY;
            for (int64_t i = 0; i < n; i++) {
                int64_t r = reduced_index(shape, mask, i);
                double v = val(&x, i);
                s[r] += v, size[r] += fabs(v);
                ties[r] = v > m[r] ? 1 : ties[r] + (v == m[r]);
                m[r] = fmax(m[r], v);
            }
            run(sum, .y = sum, .x = x, .over = mask);
            run(mean, .y = mean, .x = x, .over = mask);
            run(max, .y = most, .x = x, .over = mask);
            for (int64_t i = 0; i < kept; i++) {
                near_sum(&sum, i, s[i], size[i], count, "sum");
                near_sum(&mean, i, s[i] / (double)count, size[i] / (double)count, count + 1, "mean");
                same(&most, i, m[i]);
            }
            if (!turned) {
                sc_tensor dx = tensor(d, 4, shape, NULL);
                run(max_grad, .dx = dx, .g = g, .x = x, .y = most, .over = mask);
                for (int64_t i = 0; i < n; i++) {
                    int64_t r = reduced_index(shape, mask, i);
                    near(&dx, i, val(&x, i) == m[r] ? val(&g, r) / ties[r] : 0, 0, "max_grad");
                }
            }
            free(s), free(size), free(m), free(ties);
        }
}

Test(kernels, max_keeps_nan) {
    for (int64_t n = 1; n < 3000; n += 331) {
        sc_tensor x = filled(T_(FP32, 1, n), 1, 0), y = T_(FP32, 1);
        put(&x, n / 2, NAN);
        run(max, .y = y, .x = x, .over = 3);
        cr_assert(isnan(val(&y, 0)));
    }
}

/* ── norms, softmax ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
static sc_tensor rows_of(int d, int64_t a, int64_t b, int64_t cols, int pad) { /* [a, b, cols], padded rows */
    return tensor(d, 3, LIST(a, b, cols), LIST(b * (cols + pad), cols + pad, 1));
}

static void check_norm(int d, int64_t cols, int centred, int weights) {
    int64_t rows = 15;
    double eps = 1e-5;
    sc_tensor x = filled(rows_of(d, 3, 5, cols, 7), 2, 0.5), g = filled(rows_of(d, 3, 5, cols, 2), 1, 0.1);
    sc_tensor y = rows_of(d, 3, 5, cols, 0), dx = rows_of(d, 3, 5, cols, 0), mean = T_(SC_REAL, 3, 5),
              rstd = T_(SC_REAL, 3, 5);
    sc_tensor w = filled(T_(d, cols), 0.5, 1), b = filled(T_(d, cols), 1, 0), dw = T_(SC_REAL, cols),
              db = T_(SC_REAL, cols);
    sc_tensor scale = weights ? w : absent, bias = weights ? b : absent;
    if (centred) {
        run(layer_norm, .y = y, .mean = mean, .rstd = rstd, .x = x, .w = scale, .b = bias, .eps = eps);
        run(layer_norm_grad, .dx = dx, .g = g, .x = x, .mean = mean, .rstd = rstd, .w = scale);
        run(layer_norm_grad_w, .dw = dw, .db = db, .g = g, .x = x, .mean = mean, .rstd = rstd);
    } else {
        run(rms_norm, .y = y, .rstd = rstd, .x = x, .w = scale, .eps = eps);
        run(rms_norm_grad, .dx = dx, .g = g, .x = x, .rstd = rstd, .w = scale);
        run(rms_norm_grad_w, .dw = dw, .g = g, .x = x, .rstd = rstd);
    }
    double *sw = calloc((size_t)cols, 8), *sb = calloc((size_t)cols, 8); /* sums, and the sizes of their terms */
    double *zw = calloc((size_t)cols, 8), *zb = calloc((size_t)cols, 8);
    for (int64_t r = 0; r < rows; r++) {
        double m = 0, v = 0, h = 0, hx = 0;
        for (int64_t c = 0; c < cols; c++) m += centred ? val(&x, r * cols + c) / (double)cols : 0;
        for (int64_t c = 0; c < cols; c++) v += pow(val(&x, r * cols + c) - m, 2) / (double)cols;
        double rs = 1 / sqrt(v + eps);
        near(&rstd, r, rs, 1, "rstd");
        if (centred) near(&mean, r, m, 1, "mean");
        for (int64_t c = 0; c < cols; c++) {
            double hat = (val(&x, r * cols + c) - m) * rs, gi = val(&g, r * cols + c), wc = weights ? val(&w, c) : 1;
            near(&y, r * cols + c, hat * wc + (weights && centred ? val(&b, c) : 0), 2, "norm");
            h += centred ? gi * wc / (double)cols : 0;
            hx += gi * wc * hat / (double)cols;
            sw[c] += gi * hat, zw[c] += fabs(gi) * (fabs(val(&x, r * cols + c)) + fabs(m)) * rs;
            sb[c] += gi, zb[c] += fabs(gi);
        }
        for (int64_t c = 0; c < cols; c++) {
            double hat = (val(&x, r * cols + c) - m) * rs, gi = val(&g, r * cols + c) * (weights ? val(&w, c) : 1);
            near(&dx, r * cols + c, (gi - h - hat * hx) * rs, 2 * rs, "norm_grad");
        }
    }
    for (int64_t c = 0; c < cols; c++) {
        near_sum(&dw, c, sw[c], zw[c], rows + cols, "norm_grad_w dw"); /* mean and rstd are sums of cols terms */
        if (centred) near_sum(&db, c, sb[c], zb[c], rows, "norm_grad_w db");
    }
    free(sw), free(sb), free(zw), free(zb);
    release();
}

Test(kernels, norms) {
    static const int64_t cols[] = {3, 64, 129, 1024, 2500};
    FOR_DTYPES
    for (int c = 0; c < 5; c++)
        for (int kind = 0; kind < 4; kind++) check_norm(d, cols[c], kind & 1, kind >> 1);
}

Test(kernels, softmax) {
    static const int64_t cols[] = {1, 7, 64, 1500};
    FOR_DTYPES
    for (int c = 0; c < 4; c++, release()) {
        int64_t n = cols[c];
        sc_tensor x = filled(rows_of(d, 2, 4, n, 3), 8, 3), y = rows_of(d, 2, 4, n, 0),
                  g = filled(rows_of(d, 2, 4, n, 1), 1, 0);
        sc_tensor dx = rows_of(d, 2, 4, n, 0);
        put(&x, n - 1, -INFINITY);
        if (n == 1) put(&x, 0, 2);
        run(softmax, .y = y, .x = x);
        run(softmax_grad, .dx = dx, .g = g, .y = y);
        for (int64_t r = 0; r < 8; r++) {
            double sum = 0, dot = 0;
            for (int64_t i = 0; i < n; i++) sum += exp(val(&x, r * n + i));
            for (int64_t i = 0; i < n; i++) {
                near(&y, r * n + i, exp(val(&x, r * n + i)) / sum, 1e-3, "softmax");
                dot += val(&g, r * n + i) * val(&y, r * n + i);
            }
            for (int64_t i = 0; i < n; i++)
                near(&dx, r * n + i, val(&y, r * n + i) * (val(&g, r * n + i) - dot), 0.1, "softmax_grad");
        }
        run_once(softmax, (&(sc_softmax_args){.y = x, .x = x}));
        for (int64_t i = 0; i < 8 * n; i++) same(&x, i, val(&y, i));
    }
}

/* ── loss, embedding ─────────────────────────────────────────────────────────────────────────────────────────────────
 */
enum { FIVE = 1 }; /* of the record's counts */

Test(kernels, cross_entropy) {
    FOR_DTYPES {
        int64_t rows = 21, cols = 2305;
        sc_tensor x = filled(tensor(d, 2, LIST(rows, cols), LIST(cols + 3, 1)), 12, 5),
                  g = filled(T_(SC_REAL, 1), 0, 0.5);
        sc_tensor target = integers(T_(INT32, rows), 0, cols), loss = T_(SC_REAL, 1);
        sc_tensor most = T_(SC_REAL, rows), rest = T_(SC_REAL, rows), dx = T_(d, rows, cols);
        ((int32_t *)target.p)[4] = -100;
        run(cross_entropy, .loss = loss, .most = most, .rest = rest, .logits = x, .targets = target, .ignore = -100,
            .count = FIVE);
        sc_cross_entropy_grad_args grad = {.dlogits = dx,
                                           .g = g,
                                           .logits = x,
                                           .targets = target,
                                           .most = most,
                                           .rest = rest,
                                           .ignore = -100,
                                           .count = FIVE};
        run_args(cross_entropy_grad, &grad);
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) {
            double s = 0;
            int t = int_at(&target, r);
            for (int64_t c = 0; c < cols; c++) s += exp(val(&x, r * cols + c));
            if (t >= 0) sum += log(s) - val(&x, r * cols + t);
            for (int64_t c = 0; c < cols; c++)
                near(&dx, r * cols + c, t < 0 ? 0 : (exp(val(&x, r * cols + c)) / s - (c == t)) * 0.1, 1e-3, "grad");
        }
        near(&loss, 0, sum / 5, 1, "loss");
        grad.dlogits = x; /* in place */
        run_args(cross_entropy_grad, &grad);
        for (int64_t i = 0; i < rows * cols; i++) same(&x, i, val(&dx, i));
        ((int32_t *)target.p)[0] = (int32_t)cols;
        run(cross_entropy, .loss = loss, .most = most, .rest = rest, .logits = dx, .targets = target);
        cr_assert(isnan(val(&loss, 0)), "a target outside the classes");
    }
}

/* Both divergences, with and without targets, beside sums in double; the gradient where the teacher's logits lie. */
Test(kernels, distillation) {
    enum { ROWS = 9, COLS = 1500 };
    FOR_DTYPES for (int way = 0; way < 4; way++) {
        bool reverse = way & 1, mixed = way & 2;
        double heat = mixed ? 2.5 : 1, hard = mixed ? 0.25 : 0, cap = reverse ? 3 : 0;
        sc_tensor x = filled(tensor(d, 2, LIST(ROWS, COLS), LIST(COLS + 3, 1)), 12, 5),
                  t = filled(T_(d, ROWS, COLS), 7, 5);
        sc_tensor target = integers(T_(INT32, ROWS), 0, COLS), g = filled(T_(SC_REAL, 1), 0, 0.5),
                  loss = T_(SC_REAL, 1);
        sc_tensor stats = T_(SC_REAL, ROWS, SC_DISTILLED), dx = T_(d, ROWS, COLS);
        ((int32_t *)target.p)[4] = -100;
        if (!mixed) target.p = NULL;
        put(&t, 3, -INFINITY); /* a class that the teacher leaves out */
        if (reverse) put(&t, 3, -40);
        run(distillation, .loss = loss, .stats = stats, .logits = x, .teacher = t, .targets = target, .ignore = -100,
            .count = FIVE, .heat = heat, .hard = hard, .reverse = reverse, .softcap = cap);
        sc_distillation_grad_args grad = {.dlogits = dx,
                                          .g = g,
                                          .logits = x,
                                          .teacher = t,
                                          .stats = stats,
                                          .targets = target,
                                          .ignore = -100,
                                          .count = FIVE,
                                          .heat = heat,
                                          .hard = hard,
                                          .reverse = reverse,
                                          .softcap = cap};
        run_args(distillation_grad, &grad);
        double sum = 0;
        for (int64_t r = 0; r < ROWS; r++) {
            int c = mixed ? int_at(&target, r) : 0;
            double s[COLS], zs = 0, zt = 0, z = 0, apart = 0;
            for (int64_t i = 0; i < COLS; i++) {
                s[i] = cap > 0 ? cap * tanh(val(&x, r * COLS + i) / cap) : val(&x, r * COLS + i);
                zs += exp(s[i] / heat), zt += exp(val(&t, r * COLS + i) / heat), z += exp(s[i]);
            }
            for (int64_t i = 0; i < COLS; i++) {
                double p = exp(s[i] / heat) / zs, q = exp(val(&t, r * COLS + i) / heat) / zt;
                apart += reverse ? p * log(p / q) : q > 0 ? q * log(q / p) : 0;
            }
            if (c >= 0) sum += (1 - hard) * heat * heat * apart + (mixed ? hard * (log(z) - s[c]) : 0);
            for (int64_t i = 0; i < COLS; i++) {
                double p = exp(s[i] / heat) / zs, q = exp(val(&t, r * COLS + i) / heat) / zt;
                double dp = heat * (1 - hard) * (reverse ? p * (log(p / q) - apart) : p - q);
                if (mixed) dp += hard * (exp(s[i]) / z - (i == c));
                if (cap > 0) dp *= 1 - s[i] / cap * (s[i] / cap);
                near(&dx, r * COLS + i, c < 0 ? 0 : dp * 0.1, 1e-3, "grad");
            }
        }
        near(&loss, 0, sum / 5, 1, "loss");
        grad.dlogits = t; /* in place */
        run_args(distillation_grad, &grad);
        for (int64_t i = 0; i < ROWS * COLS; i++) same(&t, i, val(&dx, i));
    }
}

/* Losses and gradients to a few ulp of their own, however small they are or large the logits: nothing is rounded before
 * it is subtracted. The sums of powers are exact in double. */
Test(kernels, cross_entropy_of_small_losses_and_large_logits) {
    enum { COLS = 2050 };
    static const struct {
        double target, second, others,
            first; /* logits: the target's, another's, the rest; the first 1025 where given */
        int at;    /* the target; -1: none */
    } rows[] = {{16, 0, 0, 0, 0},           {12.5, 0.25, 0, 0, 1300},    {60, 0, -1, 0, 2049},
                {1e7, 1e7, 1e7, 1e7, 3},    {-3e7, -3e7, -3e7, 0, 1024}, {4096, 4096, 0, 0, 1025},
                {1e4, 1e4, -1e30, 0, 7},    {0, 40, -5, 0, 1},           {-1e4, 1e4, 0, 0, 2000},
                {88, 88.25, 0, -1e9, 2048}, {3, 2, -INFINITY, 0, 2040},  {5, 1, 2, 0, -1},
                {-INFINITY, 0, 0, 0, 4},    {9, NAN, 0, 0, 12},          {NAN, 1, 0, 0, 30},
                {2, INFINITY, 0, 0, 5}};
    enum { ROWS = sizeof rows / sizeof *rows };
    FOR_DTYPES {
        sc_tensor x = T_(d, ROWS, COLS), target = T_(INT32, ROWS), g = filled(T_(SC_REAL, 1), 0, 5),
                  one = T_(SC_REAL, 1);
        sc_tensor most = T_(SC_REAL, ROWS), rest = T_(SC_REAL, ROWS), losses = T_(SC_REAL, ROWS), loss = T_(SC_REAL, 1);
        sc_tensor dx = T_(d, ROWS, COLS), again = T_(d, ROWS, COLS);
        for (int r = 0; r < ROWS; r++) {
            for (int c = 0; c < COLS; c++) {
                double v = c == (rows[r].at + 1) % COLS ? rows[r].second : rows[r].others;
                if (rows[r].first != 0 && c < 1025) v = rows[r].first;
                put(&x, r * COLS + c, c == rows[r].at ? rows[r].target : v);
            }
            ((int32_t *)target.p)[r] = rows[r].at;
        }
        run(cross_entropy, .loss = loss, .most = most, .rest = rest, .logits = x, .targets = target, .ignore = -100,
            .count = FIVE);
        run(cross_entropy_grad, .dlogits = dx, .g = g, .logits = x, .targets = target, .most = most, .rest = rest,
            .ignore = -100, .count = FIVE);
        run(cross_entropy_grads, .dlogits = again, .loss = one, .losses = losses, .g = g, .logits = x,
            .targets = target, .ignore = -100, .count = FIVE);
        double limit = d == BF16 ? 0.0045 : d == FP16 ? 6e-4 : 2e-6;
        for (int r = 0; r < ROWS; r++) {
            double top = -INFINITY, others = 0, own = 0;
            for (int c = 0; c < COLS; c++) top = val(&x, r * COLS + c) > top ? val(&x, r * COLS + c) : top;
            for (int c = 0; c < COLS; c++) *(c == rows[r].at ? &own : &others) += exp(val(&x, r * COLS + c) - top);
            double at_target = rows[r].at < 0 ? NAN : val(&x, r * COLS + rows[r].at) - top;
            double expected = at_target == 0 ? log1p(others) : log(own + others) - at_target;
            expect_relative(val(&losses, r), expected, 1e-6, "loss", r, 0);
            for (int c = 0; c < COLS; c++) {
                double p = exp(val(&x, r * COLS + c) - top) / (own + others);
                double slope = c == rows[r].at ? -others / (own + others) : p;
                bool small = d == FP16 ? fabs(slope) < 1e-4 : fabs(slope) < 1e-37; /* subnormal in this dtype */
                if (small) continue;
                expect_relative(val(&dx, r * COLS + c), slope, limit, "gradient", r, c);
                expect_relative(val(&again, r * COLS + c), slope, limit, "gradient of both", r, c);
            }
        }
    }
}

Test(kernels, embedding) {
    FOR_DTYPES
    for (int out = 0; out < 2; out++) {
        int64_t rows = 19, cols = 1100, tokens = 60;
        sc_tensor w = filled(T_(d, rows, cols), 1, 0), index = integers(T_(INT32, 6, 10), 0, rows),
                  y = T_(d, 6, 10, cols);
        run(embedding, .y = y, .index = index, .w = w);
        for (int64_t i = 0; i < tokens * cols; i++) same(&y, i, val(&w, int_at(&index, i / cols) * cols + i % cols));
        sc_tensor g = filled(T_(d, 6, 10, cols), 1, 0);
        for (int with = 0; with < 3; with++) { /* c: none, beside dw, in its place */
            sc_tensor dw = T_(out ? d : SC_REAL, rows, cols), c = filled(T_(out ? d : SC_REAL, rows, cols), 1, 0);
            double *s = calloc((size_t)(rows * cols), 8), *size = calloc((size_t)(rows * cols), 8);
            for (int64_t i = 0; with && i < rows * cols; i++) s[i] = val(&c, i), size[i] = fabs(s[i]);
            if (with == 2) dw = c;
            if (with)
                run(embedding_grad, .dw = dw, .index = index, .g = g, .c = c);
            else
                run(embedding_grad, .dw = dw, .index = index, .g = g);
            for (int64_t i = 0; i < tokens * cols; i++) {
                int64_t to = int_at(&index, i / cols) * cols + i % cols;
                s[to] += val(&g, i), size[to] += fabs(val(&g, i));
            }
            for (int64_t i = 0; i < rows * cols; i++) near_sum(&dw, i, s[i], size[i], tokens, "embedding_grad");
            free(s), free(size);
        }
        ((int32_t *)index.p)[3] = (int32_t)rows;
        run(embedding, .y = y, .index = index, .w = w);
        cr_assert(isnan(val(&y, 3 * cols)) && !isnan(val(&y, 4 * cols)));
    }
}

/* ── attention, rope ─────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    int64_t batch, queries, keys, heads, kv_heads, size, value_size;
    int causal, documents;
    double p;
} attention_case;

static double dropped(const attention_case *c, int64_t b, int64_t h, int64_t i, int64_t j) {
    uint32_t word;
    uint64_t e = (uint64_t)((h * c->queries + i) * ((c->keys + 3) / 4 * 4) + j);
    sc_random(&word, 1, sc_stream_key(record.seed, 555), (uint32_t)(record.first_sample + b), (uint32_t)record.step, e);
    return c->p == 0 ? 1 : word >= (uint32_t)(c->p * 4294967296.0) ? 1 / (1 - c->p) : 0;
}

/* One head in double: o, lse and, given go, the gradients (added to). */
typedef struct {
    double *o, *lse, *dq, *dk, *dv;
} reference;
static reference reference_new(int64_t queries, int64_t rows, int64_t keys) {
    return (reference){calloc((size_t)queries, 8), calloc((size_t)rows, 8), calloc((size_t)queries, 8),
                       calloc((size_t)keys, 8), calloc((size_t)keys, 8)};
}
static void reference_free(reference r) {
    free(r.o), free(r.lse), free(r.dq), free(r.dk), free(r.dv);
}

/* r: the values; off: how far a kernel in reals may be from them, to first order: each product's sum_error, carried
 * through what is made of it. */
static void reference_head(const attention_case *c, sc_tensor *t, int64_t b, int64_t h, double scale, reference r,
                           reference off) {
    sc_tensor *q = &t[0], *k = &t[1], *v = &t[2], *doc = &t[3], *go = &t[4];
    int64_t D = c->size, E = c->value_size, group = c->heads / c->kv_heads, kv = h / group;
    double u = unit_roundoff, over_keys = sum_error(c->keys + 2), over_queries = sum_error(group * c->queries + 2);
    double *p = malloc((size_t)c->keys * 8), *dp = malloc((size_t)c->keys * 8);
    double *off_p = malloc((size_t)c->keys * 8), *off_dp = malloc((size_t)c->keys * 8); /* off_p: relative */
    for (int64_t i = 0; i < c->queries; i++) {
        int64_t qi = ((b * c->queries + i) * c->heads + h) * D, row = (b * c->heads + h) * c->queries + i;
        int64_t oi = qi / D * E;
        double sum = 0, most = -INFINITY, least = INFINITY, delta = 0, off_delta = 0, worst = 0;
        for (int64_t j = 0; j < c->keys; j++) {
            int64_t kj = ((b * c->keys + j) * c->kv_heads + kv) * D;
            int hidden = (c->causal && j > i) ||
                         (c->documents && int_at(doc, b * c->keys + j) != int_at(doc, b * c->queries + i));
            double s = 0, size = 0;
            for (int64_t e = 0; e < D; e++) {
                double x = val(q, qi + e) * val(k, kj + e);
                s += x, size += fabs(x);
            }
            p[j] = hidden ? -INFINITY : s * scale;
            off_p[j] = hidden ? 0 : sum_error(D + 1) * size * scale;
            worst = fmax(worst, off_p[j]);
            most = fmax(most, p[j]);
            if (!hidden) least = fmin(least, p[j]);
        }
        for (int64_t j = 0; j < c->keys; j++) sum += exp(p[j] - most);
        double lse = most + log(sum), power = (8 + lse - least) * u; /* of e^x, whose argument was rounded too */
        r.lse[row] = lse;
        off.lse[row] = worst + power + over_keys + 4 * u * (fabs(most) + log(sum));
        for (int64_t j = 0; j < c->keys; j++) {
            int64_t vj = ((b * c->keys + j) * c->kv_heads + kv) * E;
            double m = dropped(c, b, h, i, j);
            p[j] = exp(p[j] - most) / sum;
            dp[j] = 0, off_dp[j] = 0;
            double off_softmax = off_p[j] + worst + 2 * power + 2 * over_keys;
            off_p[j] += off.lse[row] + power;
            for (int64_t e = 0; e < E; e++) {
                double x = m * val(go, oi + e) * val(v, vj + e);
                r.o[oi + e] += p[j] * m * val(v, vj + e);
                off.o[oi + e] += p[j] * m * fabs(val(v, vj + e)) * off_softmax;
                r.dv[vj + e] += p[j] * m * val(go, oi + e);
                off.dv[vj + e] += p[j] * m * fabs(val(go, oi + e)) * (off_p[j] + over_queries);
                dp[j] += x, off_dp[j] += sum_error(E + 1) * fabs(x);
            }
            delta += p[j] * dp[j];
        }
        for (int64_t e = 0; e < E; e++) { /* the kernel takes delta from o as it is stored */
            double size = fabs(val(go, oi + e)), o = fabs(r.o[oi + e]);
            off_delta += size * (o * (sum_error(E) + stored(go->dtype)) + off.o[oi + e]);
        }
        for (int64_t j = 0; j < c->keys; j++) {
            int64_t kj = ((b * c->keys + j) * c->kv_heads + kv) * D;
            double ds = p[j] * (dp[j] - delta) * scale;
            double off_ds = p[j] * scale * (off_dp[j] + off_delta) + fabs(ds) * (off_p[j] + 4 * u);
            for (int64_t e = 0; e < D; e++) {
                r.dq[qi + e] += ds * val(k, kj + e);
                off.dq[qi + e] += fabs(val(k, kj + e)) * (off_ds + fabs(ds) * over_keys);
                r.dk[kj + e] += ds * val(q, qi + e);
                off.dk[kj + e] += fabs(val(q, qi + e)) * (off_ds + fabs(ds) * over_queries);
            }
        }
    }
    free(p), free(dp), free(off_p), free(off_dp);
}

static void check_all(const sc_tensor *t, const double *expected, const double *off, const char *what) {
    for (int64_t i = 0; i < sc_numel(t); i++) near_within(t, i, expected[i], off[i], what);
}

static void check_attention(int d, attention_case c) {
    int64_t wider = c.size > c.value_size ? c.size : c.value_size, nq = c.batch * c.queries * c.heads * wider,
            nk = c.batch * c.keys * c.kv_heads * wider, rows = c.heads * c.size, E = c.value_size;
    double scale = 1 / sqrt((double)c.size);
    /* q strided as a slice of a fused projection, k and v with [B,H,T,D] memory */
    sc_tensor q = filled(
        tensor(d, 4, LIST(c.batch, c.queries, c.heads, c.size), LIST(c.queries * 3 * rows, 3 * rows, c.size, 1)), 2, 0);
    int64_t *kv_shape = LIST(c.batch, c.keys, c.kv_heads, c.size);
    int64_t *kv_stride = LIST(c.kv_heads * c.keys * c.size, c.size, c.keys * c.size, 1);
    int64_t *v_shape = LIST(c.batch, c.keys, c.kv_heads, E),
            *v_stride = LIST(c.kv_heads * c.keys * E, E, c.keys * E, 1);
    sc_tensor k = filled(tensor(d, 4, kv_shape, kv_stride), 2, 0), v = filled(tensor(d, 4, v_shape, v_stride), 1, 0);
    sc_tensor doc = integers(T_(INT32, c.batch, c.keys), 0, 1),
              go = filled(T_(d, c.batch, c.queries, c.heads, E), 1, 0);
    for (int64_t i = 0; i < c.batch * c.keys; i++)
        ((int32_t *)doc.p)[i] = (int32_t)(i % c.keys / 50 + (i / c.keys) * (i % 2));
    sc_tensor o = T_(d, c.batch, c.queries, c.heads, E), lse = T_(SC_REAL, c.batch, c.heads, c.queries);
    sc_tensor dq = T_(d, c.batch, c.queries, c.heads, c.size), dk = T_(d, c.batch, c.keys, c.kv_heads, c.size),
              dv = T_(d, c.batch, c.keys, c.kv_heads, E);
    int64_t real_size = sizeof(real);
    sc_tensor w = workspace(3 * sc_cpu_attention_bytes(c.size, E, real_size));
    sc_tensor wb = workspace(3 * sc_cpu_attention_grad_bytes(c.size, E, c.keys, real_size));
    sc_tensor documents = c.documents ? doc : absent;
    run(attention, .o = o, .lse = lse, .q = q, .k = k, .v = v, .documents = documents, .work = w, .causal = c.causal,
        .key = 555, .scale = scale, .dropout = c.p);
    run(attention_grad, .dq = dq, .dk = dk, .dv = dv, .g = go, .q = q, .k = k, .v = v, .o = o, .lse = lse,
        .documents = documents, .work = wb, .causal = c.causal, .key = 555, .scale = scale, .dropout = c.p);

    reference r = reference_new(nq, c.batch * c.heads * c.queries, nk);
    reference off = reference_new(nq, c.batch * c.heads * c.queries, nk);
    sc_tensor operands[] = {q, k, v, doc, go};
    for (int64_t b = 0; b < c.batch; b++)
        for (int64_t h = 0; h < c.heads; h++) reference_head(&c, operands, b, h, scale, r, off);
    check_all(&o, r.o, off.o, "attention o");
    check_all(&lse, r.lse, off.lse, "attention lse");
    check_all(&dq, r.dq, off.dq, "attention dq");
    check_all(&dk, r.dk, off.dk, "attention dk");
    check_all(&dv, r.dv, off.dv, "attention dv");
    reference_free(r), reference_free(off);
    release();
}

/* A query that sees one key takes that key's value whatever it is, so its gradient is 0 to the bit. */
Test(kernels, attention_to_one_key) {
    int64_t heads = 3, size = 40, real_size = sizeof(real), n = 70;
    sc_tensor q = filled(T_(FP32, 1, n, heads, size), 2, 0), k = filled(T_(FP32, 1, n, heads, size), 2, 0);
    sc_tensor v = filled(T_(FP32, 1, n, heads, size), 1, 0), go = filled(T_(FP32, 1, n, heads, size), 1, 0);
    sc_tensor o = T_(FP32, 1, n, heads, size), lse = T_(SC_REAL, 1, heads, n), dq = T_(FP32, 1, n, heads, size);
    sc_tensor dk = T_(FP32, 1, n, heads, size), dv = T_(FP32, 1, n, heads, size);
    sc_tensor w = workspace(3 * sc_cpu_attention_bytes(size, size, real_size));
    sc_tensor wb = workspace(3 * sc_cpu_attention_grad_bytes(size, size, n, real_size));
    run(attention, .o = o, .lse = lse, .q = q, .k = k, .v = v, .work = w, .causal = 1, .scale = 0.2);
    run(attention_grad, .dq = dq, .dk = dk, .dv = dv, .g = go, .q = q, .k = k, .v = v, .o = o, .lse = lse, .work = wb,
        .causal = 1, .scale = 0.2);
    for (int64_t i = 0; i < heads * size; i++) cr_assert_eq(val(&dq, i), 0, "%lld: %g", (long long)i, val(&dq, i));
    cr_expect_neq(val(&dq, heads * size), 0);
    release();
}

Test(kernels, attention) {
    FOR_DTYPES {
        check_attention(d, (attention_case){2, 67, 67, 4, 4, 24, 24, 1, 0, 0});
        check_attention(d, (attention_case){1, 150, 150, 4, 2, 16, 16, 1, 0, 0.25});
        check_attention(d, (attention_case){2, 40, 135, 2, 1, 9, 9, 0, 0, 0.1});
        check_attention(d, (attention_case){2, 201, 201, 2, 2, 8, 8, 1, 1, 0});
        check_attention(d, (attention_case){1, 130, 130, 3, 1, 33, 33, 0, 1, 0.5});
        check_attention(d, (attention_case){1, 5, 1, 2, 2, 64, 64, 0, 0, 0});
        check_attention(d, (attention_case){1, 70, 20, 1, 1, 4, 4, 1, 0, 0});
        check_attention(d, (attention_case){2, 20, 140, 4, 2, 24, 16, 1, 0, 0.1});
        check_attention(d, (attention_case){1, 130, 130, 2, 2, 9, 20, 0, 1, 0});
    }
}

static double rope_frequency(const sc_rope_args *k, int64_t i, int64_t head) {
    if (k->frequencies.n) return k->frequencies.at[i];
    double w = pow(k->theta, -2.0 * (double)i / (double)head), wave = 2 * M_PI / w;
    if (k->factor == 0 || wave < k->context / k->high) return w;
    if (wave > k->context / k->low) return w / k->factor;
    double smooth = (k->context / wave - k->low) / (k->high - k->low);
    return (1 - smooth) * w / k->factor + smooth * w;
}

/* Angle, of pair i of row `row` of x [B,S,...]. */
static double rope_angle(const sc_rope_args *k, int64_t row, int64_t i) {
    const sc_tensor *p = &k->positions, *x = &k->x;
    int64_t width = k->width ? k->width : x->shape[3], rows = x->shape[0] * x->shape[1], at = row;
    if (k->frequencies.n > width / 2) at += (int64_t)k->frequencies.at[width / 2 + i] * rows;
    return (p->p ? int_at(p, at) : (int)(row % x->shape[1])) * rope_frequency(k, i, width);
}

Test(kernels, rope) {
    static const float list[] = {1, 0.5f, 0.25f, 0, 0.1f, 0.01f, 0, 1, 2, 1, 0, 2};
    static const sc_rope_args settings[] = {{.theta = 10000},
                                            {.theta = 500000, .factor = 8, .low = 1, .high = 4, .context = 64},
                                            {.theta = 10000, .width = 14, .scale = 1.5},
                                            {.interleaved = true, .width = 12, .frequencies = {list, 6}},
                                            {.scale = 0.75, .width = 12, .frequencies = {list, 12}}};
    FOR_DTYPES
    for (int variant = 0; variant < 40; variant++) {
        sc_rope_args k = settings[variant % 5];
        bool inverse = variant / 5 & 1, given = variant / 10 & 1, sections = k.frequencies.n == 12;
        int64_t B = 2, S = 37, H = 3, D = 22, turned = variant / 20 ? 2 : H, width = k.width ? k.width : D;
        sc_tensor x = filled(tensor(d, 4, LIST(B, S, H, D), LIST(S * H * D * 2, H * D * 2, D, 1)), 1, 0),
                  y = T_(d, B, S, H, D);
        k.y = y, k.x = x;
        if (sections)
            k.positions = integers(T_(INT32, 3, B, S), 0, 300);
        else if (given)
            k.positions = integers(T_(INT32, B, S), 0, 300);
        k.inverse = inverse;
        k.heads = turned < H ? turned : 0;
        run_args(rope, &k);
        for (int64_t n = 0; n < B * S * H * D; n++) {
            int64_t e = n % D, row = n / D / H, half = width / 2;
            bool second = k.interleaved ? e % 2 : e >= half;
            int64_t i = k.interleaved ? e / 2 : e % half, other = n + (second ? -1 : 1) * (k.interleaved ? 1 : half);
            if (n / D % H >= turned || e >= width) {
                cr_assert(val(&y, n) == val(&x, n), "rope: an element that does not turn [%ld]", (long)n);
                continue;
            }
            double a = rope_angle(&k, row, i), scale = k.scale != 0 ? k.scale : 1;
            double sine = (inverse == second ? -1 : 1) * sin(a);
            near(&y, n, (val(&x, n) * cos(a) + val(&x, other) * sine) * scale, sizeof(real) == 8 && d == FP64 ? 30 : 8,
                 "rope");
        }
        k.y = x;
        run_args(rope, &k);
        for (int64_t n = 0; n < B * S * H * D; n++) cr_assert(val(&x, n) == val(&y, n), "in place [%ld]", (long)n);
    }
}

/* To the bit what the two kernels make one after the other. */
Test(kernels, rms_norm_rope) {
    static const float list[] = {1, 0.5f, 0.25f, 0, 0.1f, 0.01f, 0, 1, 2, 1, 0, 2};
    FOR_DTYPES
    for (int variant = 0; variant < 4; variant++) {
        int64_t B = 2, S = 37, H = 3, D = 22;
        sc_tensor x = filled(tensor(d, 4, LIST(B, S, H, D), LIST(S * H * D * 2, H * D * 2, D, 1)), 1, 0);
        sc_tensor w = filled(T_(d, D), 0.5, 1), apart = T_(d, B, S, H, D), y = T_(d, B, S, H, D);
        sc_tensor rstd = T_(SC_REAL, B * S * H), rstd2 = T_(SC_REAL, B * S * H);
        sc_rms_norm_rope_args k = {.y = y, .rstd = rstd, .x = x, .eps = 1e-5, .theta = 10000};
        if (variant & 1) k.w = w, k.positions = integers(T_(INT32, B, S), 0, 300);
        if (variant & 2) k.width = 12, k.interleaved = true, k.frequencies = (sc_numbers){list, 6}, k.scale = 1.5;
        run_args(rms_norm_rope, &k);
        run(rms_norm, .y = apart, .rstd = rstd2, .x = x, .w = k.w, .eps = k.eps);
        run(rope, .y = apart, .x = apart, .positions = k.positions, .width = k.width, .interleaved = k.interleaved,
            .frequencies = k.frequencies, .theta = k.theta, .scale = k.scale);
        for (int64_t n = 0; n < B * S * H * D; n++) cr_assert(val(&y, n) == val(&apart, n), "y[%ld]", (long)n);
        for (int64_t n = 0; n < B * S * H; n++) cr_assert(val(&rstd, n) == val(&rstd2, n), "rstd[%ld]", (long)n);
    }
}

/* ── batch norm ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void check_batch_norm(int d, sc_tensor x, int training) {
    int64_t C = x.shape[1], inner = sc_numel(&x) / x.shape[0] / C, n = sc_numel(&x) / C;
    sc_tensor y = tensor(d, x.dims, x.shape, NULL), g = filled(tensor(d, x.dims, x.shape, NULL), 1, 0.2),
              dx = tensor(d, x.dims, x.shape, NULL);
    sc_tensor w = filled(T_(d, C), 0.5, 1), b = filled(T_(d, C), 1, 0), mean = T_(SC_REAL, C), rstd = T_(SC_REAL, C);
    sc_tensor rm = filled(T_(SC_REAL, C), 1, 0), rv = filled(T_(SC_REAL, C), 0.3, 1), dw = T_(SC_REAL, C),
              db = T_(SC_REAL, C);
    double m0 = val(&rm, 0), v0 = val(&rv, 0);
    sc_batch_norm_args k = {.y = y,
                            .mean = mean,
                            .rstd = rstd,
                            .x = x,
                            .w = w,
                            .b = b,
                            .running_mean = rm,
                            .running_var = rv,
                            .training = training,
                            .eps = 1e-5,
                            .momentum = 0.1};
    uint64_t running = SLOT(batch_norm, running_mean) | SLOT(batch_norm, running_var);
    run_writing(batch_norm, &k, training ? writes_batch_norm() : writes_batch_norm() & ~running);
    run(batch_norm_grad, .dx = dx, .dw = dw, .db = db, .g = g, .x = x, .w = w, .mean = mean, .rstd = rstd,
        .training = training);
    for (int64_t c = 0; c < C; c++) {
        double m = 0, v = 0, sg = 0, sgx = 0, size = 0, sizex = 0;
#define EACH for (int64_t j = 0, i; j < n && (i = (j / inner * C + c) * inner + j % inner, 1); j++)
        EACH m += val(&x, i) / (double)n;
        EACH v += pow(val(&x, i) - m, 2) / (double)n;
        if (c == 0 && training) {
            near(&rm, 0, 0.9 * m0 + 0.1 * m, 1, "running mean");
            near(&rv, 0, 0.9 * v0 + 0.1 * v * (double)n / (double)(n - 1), 1, "running variance");
        }
        if (!training) m = val(&rm, c), v = val(&rv, c);
        double r = 1 / sqrt(v + 1e-5), wc = val(&w, c);
        EACH {
            double hat = (val(&x, i) - m) * r;
            near(&y, i, hat * wc + val(&b, c), 2, "batch_norm");
            sg += val(&g, i), size += fabs(val(&g, i));
            sgx += val(&g, i) * hat, sizex += fabs(val(&g, i)) * (fabs(val(&x, i)) + fabs(m)) * r;
        }
        near_sum(&dw, c, sgx, sizex, 2 * n, "batch_norm dw"); /* mean and rstd are sums of n terms */
        near_sum(&db, c, sg, size, n, "batch_norm db");
        EACH {
            double hat = (val(&x, i) - m) * r, mid = training ? sg / (double)n + hat * sgx / (double)n : 0;
            near(&dx, i, (val(&g, i) - mid) * wc * r, 2, "batch_norm dx");
        }
    }
    k.keep_running = 1; /* a clone leaves the running statistics alone */
    if (training) run_writing(batch_norm, &k, writes_batch_norm() & ~running);
}

Test(kernels, batch_norm) {
    FOR_DTYPES
    for (int training = 0; training < 2; training++, release()) {
        check_batch_norm(d, filled(T_(d, 6, 5, 7, 3), 1, 0.3), training);
        check_batch_norm(d, filled(T_(d, 1300, 5), 1, 0.3), training);
        check_batch_norm(d, filled(T_(d, 2, 3, 1100), 1, 0.3), training);
    }
}

/* ── the library ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(library, warming_may_be_repeated) {
    sc_kernels_warm(4);
    sc_kernels_warm(2);
    check_product(FP32, (product){0, 37, 53, 29, 0, 0, 0, 0, 0, -1});
}

enum { SIDE = 16, PRODUCTS = 100000 };
static void *multiply(void *arg) {
    const real *a = arg;
    real expected[SIDE * SIDE], c[SIDE * SIDE];
    sc_kernels_warm(1);
    sc_gemm(0, 1, SIDE, SIDE, 8, 1, a, 8, a, 8, 0, expected, SIDE);
    for (int i = 0; i < PRODUCTS; i++) {
        sc_gemm(0, 1, SIDE, SIDE, 8, 1, a, 8, a, 8, 0, c, SIDE);
        if (memcmp(c, expected, sizeof c)) return arg;
    }
    return NULL;
}

Test(library, threads_do_not_share_buffers) { /* they do without blas_memory.c */
    real a[2][SIDE * 8];
    for (int i = 0; i < 2 * SIDE * 8; i++) a[i / (SIDE * 8)][i % (SIDE * 8)] = (real)uniform();
    pthread_t other;
    void *wrong = NULL;
    pthread_create(&other, NULL, multiply, a[1]);
    cr_assert(!multiply(a[0]));
    pthread_join(other, &wrong);
    cr_assert(!wrong);
}

Test(library, only_cross_entropy_has_a_finish) {
    cr_assert(sc_kernel_finish(sc_k_cross_entropy) && !sc_kernel_finish(sc_k_matmul));
}
