/* Every kernel of the CUDA target but matmul, attention and those of test_order, test_updates and test_fp8, against
 * references in double: shapes, dtypes, strides.
 * Relies on: trial.h, runtime/cuda/k_*.cu.
 * Relied on by: make gpu-test. Arguments: a part of a trial's name (only those run), --bits (hashes of the results).
 *
 * `ok`/`FAIL` a trial, then `N passed, N failed`. bench_kernels.cu times the same kernels. */
#include "trial.h"

/* ── norms ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
struct rows_case {
    extents shape, stride;
    int64_t shift;
};
static const rows_case row_cases[] = {
    {{5, 768}, {}, 0},
    {{3, 1600}, {}, 0},
    {{2, 4096}, {}, 0},
    {{9, 64}, {}, 0},
    {{7, 33}, {}, 0},
    {{3, 8}, {}, 0},
    {{2, 20000}, {}, 0},
    {{11, 1}, {}, 0},
    {{2, 3, 768}, {5000, 1536, 1}, 0},
    {{4, 256}, {264, 1}, 8},
    {{4, 256}, {257, 1}, 0},
    {{3, 512}, {}, 1},
    {{2, 4, 3, 40}, {1000, 40, 160, 1}, 0},
};
static std::string name_of(const char *what, int d, const rows_case &c) {
    std::string s = std::string(what) + " " + dtype_text(d) + "[";
    for (size_t i = 0; i < c.shape.size(); i++) s += (i ? "," : "") + std::to_string(c.shape[i]);
    return s + (c.stride.empty() ? "]" : "] strided") + (c.shift ? " shifted" : "");
}

static void norm_trial(int d, const rows_case &c, bool centred, int weights) {
    pool p;
    int64_t cols = c.shape.back(), rows = 1;
    for (size_t i = 0; i + 1 < c.shape.size(); i++) rows *= c.shape[i];
    tensor &x = p.random(d, c.shape, c.stride, c.shift, 2, 0.5), &y = p.empty(d, c.shape);
    tensor &mean = p.empty(FP32, {rows}), &rstd = p.empty(FP32, {rows});
    tensor &w = p.random(d, {cols}, {}, 0, 0.5, 1), &b = p.random(d, {cols});
    double eps = 1e-5;
    numbers want(x.x.size()), means(rows), rstds(rows), h(x.x.size());
    for (int64_t r = 0; r < rows; r++) {
        const double *v = &x.x[r * cols];
        double s = 0, q = 0;
        for (int64_t i = 0; i < cols; i++) s += v[i];
        means[r] = centred ? s / cols : 0;
        for (int64_t i = 0; i < cols; i++) q += (v[i] - means[r]) * (v[i] - means[r]);
        rstds[r] = 1 / sqrt(q / cols + eps);
        for (int64_t i = 0; i < cols; i++) {
            h[r * cols + i] = (v[i] - means[r]) * rstds[r];
            want[r * cols + i] = h[r * cols + i] * (weights > 0 ? w.x[i] : 1) + (weights > 1 ? b.x[i] : 0);
        }
    }
    {
        sc_tensor scale = given(weights > 0, w), shift = given(weights > 1, b);
        sc_layer_norm_args layer = {
            .y = y.t, .mean = mean.t, .rstd = rstd.t, .x = x.t, .w = scale, .b = shift, .eps = eps};
        sc_rms_norm_args rms = {.y = y.t, .rstd = rstd.t, .x = x.t, .w = scale, .eps = eps};
        trial t = centred ? trial(name_of("layer_norm", d, c), layer) : trial(name_of("rms_norm", d, c), rms);
        t.run();
        t.expect("y", y, want, 1);
        if (centred) t.expect("mean", mean, means, 1);
        t.expect("rstd", rstd, rstds, cols == 1 ? 100 : 0, 3e-6);
    }
    fill(mean, [&, r = (int64_t)0]() mutable { return means[r++]; });
    fill(rstd, [&, r = (int64_t)0]() mutable { return rstds[r++]; });
    for (int in_place = 0; in_place < 2; in_place++) {
        tensor &g = p.random(d, c.shape, in_place ? extents{} : c.stride, in_place ? 0 : c.shift);
        tensor &dx = in_place ? g : p.empty(d, c.shape);
        for (int64_t r = 0; r < rows; r++) {
            double s = 0, q = 0;
            auto hg = [&](int64_t i) { return g.x[r * cols + i] * (weights > 0 ? w.x[i] : 1); };
            for (int64_t i = 0; i < cols; i++) {
                s += centred ? hg(i) : 0;
                q += hg(i) * (x.x[r * cols + i] - mean.x[r] * centred) * rstd.x[r];
            }
            for (int64_t i = 0; i < cols; i++)
                want[r * cols + i] =
                    rstd.x[r] * (hg(i) - s / cols - (x.x[r * cols + i] - mean.x[r] * centred) * rstd.x[r] * q / cols);
        }
        sc_tensor scale = given(weights > 0, w);
        std::string name = name_of(centred ? "layer_norm_grad" : "rms_norm_grad", d, c) + (in_place ? " in place" : "");
        sc_layer_norm_grad_args layer = {.dx = dx.t, .g = g.t, .x = x.t, .mean = mean.t, .rstd = rstd.t, .w = scale};
        sc_rms_norm_grad_args rms = {.dx = dx.t, .g = g.t, .x = x.t, .rstd = rstd.t, .w = scale};
        trial t = centred ? trial(name, layer) : trial(name, rms);
        t.run();
        t.expect("dx", dx, want, cols == 1 ? 1000 : 1, 4e-6);
    }
}

static void norm_weights_trial(int d, int64_t rows, int64_t cols, bool centred, int out, bool split, int pad) {
    pool p;
    extents stride = pad ? extents{cols + pad, 1} : extents{};
    tensor &x = p.random(d, {rows, cols}, stride), &g = p.random(d, {rows, cols}, stride);
    tensor &mean = p.random(FP32, {rows}), &rstd = p.random(FP32, {rows}, {}, 0, 0.2, 1);
    tensor &dw = p.empty(out, {cols}), &db = p.empty(out, {cols});
    tensor &work = p.work(split ? runs_of(cols, rows) * cols * 4 * (centred ? 2 : 1) : 0);
    numbers w(cols), b(cols);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < cols; i++) {
            double dy = g.x[r * cols + i];
            w[i] += dy * (x.x[r * cols + i] - (centred ? mean.x[r] : 0)) * rstd.x[r];
            b[i] += dy;
        }
    std::string name =
        text_of("%s_grad_w %s[%lld,%lld] to %s%s%s", centred ? "layer_norm" : "rms_norm", dtype_text(d),
                (long long)rows, (long long)cols, dtype_text(out), split ? " split" : "", pad ? " strided" : "");
    sc_layer_norm_grad_w_args layer = {
        .dw = dw.t, .db = db.t, .g = g.t, .x = x.t, .mean = mean.t, .rstd = rstd.t, .work = given(split, work)};
    sc_rms_norm_grad_w_args rms = {.dw = dw.t, .g = g.t, .x = x.t, .rstd = rstd.t, .work = given(split, work)};
    trial t = centred ? trial(name, layer) : trial(name, rms);
    t.run();
    t.expect("dw", dw, w, sqrt((double)rows), 1e-6);
    if (centred) t.expect("db", db, b, sqrt((double)rows), 1e-6);
}

static void norms() {
    if (!wanted("layer_norm rms_norm")) return;
    for (int d : floats)
        for (bool centred : {true, false}) {
            int k = 0;
            for (const rows_case &c : row_cases) norm_trial(d, c, centred, k++ % (centred ? 3 : 2));
            norm_weights_trial(d, 1000, 64, centred, d, true, 0);
            norm_weights_trial(d, 517, 768, centred, FP32, true, 0);
            norm_weights_trial(d, 517, 33, centred, FP32, true, 0);
            norm_weights_trial(d, 50, 264, centred, d, false, 0);
            norm_weights_trial(d, 300, 40, centred, d, true, 8);
            norm_weights_trial(d, 300, 40, centred, d, true, 3);
        }
}

/* ── softmax, cross entropy ───────────────────────────────────────────────────────────────────────────────────────────
 */
static void softmax_trial(int d, const rows_case &c) {
    pool p;
    int64_t cols = c.shape.back(), rows = 1;
    for (size_t i = 0; i + 1 < c.shape.size(); i++) rows *= c.shape[i];
    tensor &x = p.random(d, c.shape, c.stride, c.shift, 3), &y = p.empty(d, c.shape);
    numbers want(x.x.size());
    for (int64_t r = 0; r < rows; r++) {
        double most = -INFINITY, sum = 0;
        for (int64_t i = 0; i < cols; i++) most = fmax(most, x.x[r * cols + i]);
        for (int64_t i = 0; i < cols; i++) sum += want[r * cols + i] = exp(x.x[r * cols + i] - most);
        for (int64_t i = 0; i < cols; i++) want[r * cols + i] /= sum;
    }
    {
        trial t(name_of("softmax", d, c), sc_softmax_args{.y = y.t, .x = x.t});
        t.run();
        t.expect("y", y, want, 1e-4, 2e-6);
    }
    tensor &g = p.random(d, c.shape, c.stride, c.shift), &dx = c.stride.empty() && !c.shift ? g : p.empty(d, c.shape);
    for (int64_t r = 0; r < rows; r++) {
        double dot = 0;
        for (int64_t i = 0; i < cols; i++) dot += g.x[r * cols + i] * y.x[r * cols + i];
        for (int64_t i = 0; i < cols; i++) want[r * cols + i] = y.x[r * cols + i] * (g.x[r * cols + i] - dot);
    }
    trial t(name_of("softmax_grad", d, c), sc_softmax_grad_args{.dx = dx.t, .g = g.t, .y = y.t});
    t.run();
    t.expect("dx", dx, want, 4.0 / (double)cols, 2e-6);
}

/* kind 1: rows of very different sizes, some logits at minus infinity. */
static void cross_entropy_trial(int d, int64_t rows, int64_t cols, int kind, bool in_place, int shift = 0) {
    pool p;
    tensor &x = p.random(d, {rows, cols}, {}, shift, kind ? 20 : 2), &target = p.integers({rows}, 0, cols);
    if (kind)
        for (int64_t i = 0; i < count(x); i += 5) {
            encode(d, in_image(x, i), -INFINITY);
            x.x[i] = -INFINITY;
        }
    int ignore = -100;
    for (int64_t r = 3; r < rows; r += 4) {
        encode(INT32, in_image(target, r), ignore);
        target.x[r] = ignore;
    }
    for (int64_t r = 0; r < rows; r++) /* targets have finite logits */
        if (target.x[r] != ignore && std::isinf(x.x[r * cols + (int64_t)target.x[r]])) {
            encode(d, in_image(x, r * cols + (int64_t)target.x[r]), 1);
            x.x[r * cols + (int64_t)target.x[r]] = 1;
        }
    tensor &loss = p.empty(FP32, {}), &top = p.empty(FP32, {rows}), &rest = p.empty(FP32, {rows});
    tensor &work = p.work(rows * 4);
    numbers tops(rows), others(rows), total(1), dx(x.x.size());
    tensor &g = p.random(FP32, {});
    for (int64_t r = 0; r < rows; r++) {
        double most = -INFINITY, sum = 0;
        int64_t c = (int64_t)target.x[r];
        if (c == ignore) continue;
        for (int64_t i = 0; i < cols; i++) most = fmax(most, x.x[r * cols + i]);
        for (int64_t i = 0; i < cols; i++) sum += i == c ? 0 : exp(x.x[r * cols + i] - most);
        tops[r] = most, others[r] = sum;
        sum += exp(x.x[r * cols + c] - most);
        total[0] += (most + log(sum) - x.x[r * cols + c]) / record.count[1];
        for (int64_t i = 0; i < cols; i++)
            dx[r * cols + i] = (exp(x.x[r * cols + i] - most) / sum - (i == c)) * g.x[0] / record.count[1];
    }
    std::string shape = text_of(" %s[%lld,%lld]%s%s", dtype_text(d), (long long)rows, (long long)cols,
                                kind ? " of wide range" : "", shift ? " shifted" : "");
    {
        trial t("cross_entropy" + shape, sc_cross_entropy_args{.loss = loss.t,
                                                               .most = top.t,
                                                               .rest = rest.t,
                                                               .logits = x.t,
                                                               .targets = target.t,
                                                               .work = work.t,
                                                               .ignore = ignore,
                                                               .count = 1});
        t.run();
        t.expect("loss", loss, total, 1, 2e-6);
        t.expect("most", top, tops, -1);
        t.expect("rest", rest, others, 0, 5e-6);
    }
    tensor &to = in_place ? x : p.empty(d, {rows, cols});
    trial t("cross_entropy_grad" + shape + (in_place ? " in place" : ""),
            sc_cross_entropy_grad_args{.dlogits = to.t,
                                       .g = g.t,
                                       .logits = x.t,
                                       .targets = target.t,
                                       .most = top.t,
                                       .rest = rest.t,
                                       .ignore = ignore,
                                       .count = 1});
    t.run();
    t.expect("dx", to, dx, 1e-3, 5e-6);
}

/* way: 1 the divergence the other way round, 2 with targets at a temperature, 4 of capped logits. */
static void distillation_trial(int d, int64_t rows, int64_t cols, int way, int shift = 0) {
    pool p;
    bool reverse = way & 1, mixed = way & 2;
    double heat = mixed ? 2.5 : 1, hard = mixed ? 0.25 : 0, cap = way & 4 ? 3 : 0;
    tensor &x = p.random(d, {rows, cols}, {}, shift, 4), &t = p.random(d, {rows, cols}, {}, shift, 4);
    tensor &target = p.integers({rows}, 0, cols), &loss = p.empty(FP32, {}), &g = p.random(FP32, {});
    tensor &stats = p.empty(FP32, {rows, SC_DISTILLED}), &total = p.random(FP32, {});
    sc_tensor targets = target.t;
    if (!mixed) targets.p = NULL;
    encode(INT32, in_image(target, 1), -100);
    target.x[1] = -100;
    encode(FP32, in_image(total, 0), 5);
    total.x[0] = 5;
    numbers sum(1), dx(x.x.size());
    for (int64_t r = 0; r < rows; r++) {
        const double *u = &x.x[r * cols], *v = &t.x[r * cols];
        std::vector<double> s(cols);
        double zs = 0, zt = 0, z = 0, apart = 0;
        int64_t c = mixed ? (int64_t)target.x[r] : 0;
        if (c < 0) continue;
        for (int64_t i = 0; i < cols; i++) {
            s[i] = cap > 0 ? cap * tanh(u[i] / cap) : u[i];
            zs += exp(s[i] / heat), zt += exp(v[i] / heat), z += exp(s[i]);
        }
        for (int64_t i = 0; i < cols; i++) {
            double a = s[i] / heat - log(zs), b = v[i] / heat - log(zt);
            apart += reverse ? exp(a) * (a - b) : exp(b) * (b - a);
        }
        sum[0] += ((1 - hard) * heat * heat * apart + (mixed ? hard * (log(z) - s[c]) : 0)) / total.x[0];
        for (int64_t i = 0; i < cols; i++) {
            double a = s[i] / heat - log(zs), b = v[i] / heat - log(zt);
            double y = heat * (1 - hard) * (reverse ? exp(a) * (a - b - apart) : exp(a) - exp(b));
            if (mixed) y += hard * (exp(s[i]) / z - (i == c));
            dx[r * cols + i] = y * (cap > 0 ? 1 - s[i] / cap * (s[i] / cap) : 1) * g.x[0] / total.x[0];
        }
    }
    std::string shape = text_of(" %s[%lld,%lld] way %d%s", dtype_text(d), (long long)rows, (long long)cols, way,
                                shift ? " shifted" : "");
    {
        trial t1("distillation" + shape, sc_distillation_args{.loss = loss.t,
                                                              .stats = stats.t,
                                                              .logits = x.t,
                                                              .teacher = t.t,
                                                              .targets = targets,
                                                              .total = total.t,
                                                              .reverse = reverse,
                                                              .ignore = -100,
                                                              .heat = heat,
                                                              .hard = hard,
                                                              .softcap = cap});
        t1.run();
        t1.expect("loss", loss, sum, 1, 4e-6);
    }
    trial t2("distillation_grad" + shape, sc_distillation_grad_args{.dlogits = t.t,
                                                                    .g = g.t,
                                                                    .logits = x.t,
                                                                    .teacher = t.t,
                                                                    .stats = stats.t,
                                                                    .targets = targets,
                                                                    .total = total.t,
                                                                    .reverse = reverse,
                                                                    .ignore = -100,
                                                                    .heat = heat,
                                                                    .hard = hard,
                                                                    .softcap = cap});
    t2.run();
    t2.expect("dx", t, dx, 1e-3, reverse ? 5e-5 : 1e-5); /* reverse: of a difference of logarithms */
}

static void losses() {
    if (!wanted("softmax cross_entropy distillation")) return;
    for (int d : floats) {
        for (int way = 0; way < 8; way++) distillation_trial(d, 5, way & 1 ? 50 : 1024, way);
        distillation_trial(d, 3, 9000, 2);
        distillation_trial(d, 3, 1024, 3, 1);
        for (const rows_case &c : row_cases) softmax_trial(d, c);
        cross_entropy_trial(d, 9, 50, 0, false);
        cross_entropy_trial(d, 13, 1000, 0, true);
        cross_entropy_trial(d, 5, 5037, 0, true);
        cross_entropy_trial(d, 5, 4096, 1, true);
        cross_entropy_trial(d, 6, 333, 1, false);
        cross_entropy_trial(d, 5, 1024, 0, false, 1);
        cross_entropy_trial(d, 5, 3, 0, true);
    }
    if (!quick) {
        cross_entropy_trial(BF16, 300, 50257, 0, true);
        cross_entropy_trial(BF16, 300, 50304, 0, true);
    }
    pool p; /* a target outside the table shows */
    tensor &x = p.random(BF16, {2, 9}), &target = p.integers({2}, 9, 10), &loss = p.empty(FP32, {});
    tensor &top = p.empty(FP32, {2}), &rest = p.empty(FP32, {2}), &work = p.work(8);
    trial t("cross_entropy with a target out of range",
            sc_cross_entropy_args{
                .loss = loss.t, .most = top.t, .rest = rest.t, .logits = x.t, .targets = target.t, .work = work.t});
    t.run();
    t.expect("loss", loss, {NAN}, 1);
}

/* ── embedding, rope ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
enum spread { EVEN, STEEP, ONE_WORD, OUTSIDE };

static void embedding_trial(int d, int64_t tokens, int64_t rows, int64_t cols, spread how, int out) {
    static const char *const names[] = {"", " steep", " one word", " some outside"};
    pool p;
    tensor &index = p.integers({tokens}, how == OUTSIDE ? -2 : 0, how == OUTSIDE ? rows + 2 : rows);
    if (how == STEEP || how == ONE_WORD)
        fill(index, [&] {
            double u = fabs(uniform());
            return how == ONE_WORD ? (double)(rows - 1) : floor((double)(rows - 1) * u * u * u * u * u * u);
        });
    tensor &w = p.random(d, {rows, cols}), &y = p.empty(d, {tokens, cols});
    std::string shape = text_of(" %s[%lld,%lld] of %lld tokens%s", dtype_text(d), (long long)rows, (long long)cols,
                                (long long)tokens, names[how]);
    {
        numbers want(tokens * cols);
        for (int64_t n = 0; n < tokens; n++)
            for (int64_t i = 0; i < cols; i++) {
                int64_t v = (int64_t)index.x[n];
                want[n * cols + i] = v < 0 || v >= rows ? NAN : w.x[v * cols + i];
            }
        trial t("embedding" + shape, sc_embedding_args{.y = y.t, .index = index.t, .w = w.t});
        t.run();
        t.expect("y", y, want, 0);
    }
    tensor &g = p.random(d, {tokens, cols}), &work = p.work(sc_cuda_embedding_grad_bytes(rows, tokens, cols));
    for (int with = 0; with < 3; with++) { /* c: none, beside dw, in its place */
        tensor &dw = with == 2 ? p.random(out, {rows, cols}) : p.empty(out, {rows, cols});
        tensor *c = with == 1 ? &p.random(out, {rows, cols}) : with == 2 ? &dw : NULL;
        numbers want(rows * cols);
        if (c) want = c->x;
        std::vector<int> times(rows);
        int most = 0;
        for (int64_t n = 0; n < tokens; n++) {
            int64_t v = (int64_t)index.x[n];
            if (v < 0 || v >= rows) continue;
            most = times[v] < most ? most : ++times[v];
            for (int64_t i = 0; i < cols; i++) want[v * cols + i] += g.x[n * cols + i];
        }
        sc_embedding_grad_args a = {.dw = dw.t, .index = index.t, .g = g.t, .work = work.t, .rows = rows};
        if (c) a.c = c->t;
        const char *how_added = with == 2 ? " in place" : with ? " and c" : "";
        trial t("embedding_grad" + shape + " to " + dtype_text(out) + how_added, a);
        t.run();
        t.expect("dw", dw, want, sqrt((double)most) + 1, 1e-6);
    }
}

struct rope_case {
    int64_t b, s, h, d;
    bool fused, positions, inverse, in_place;
    double factor;
    int64_t turned = 0, width = 0; /* heads, elements; 0: all */
    bool interleaved = false, sections = false;
    double scale = 0;
};
static void rope_trial(int d, rope_case c) {
    pool p;
    extents shape = {c.b, c.s, c.h, c.d}, stride;
    if (c.fused) stride = {c.s * c.h * c.d * 3, c.h * c.d * 3, c.d, 1};
    tensor &x = p.random(d, shape, stride, c.fused ? c.h * c.d : 0), &y = c.in_place ? x : p.empty(d, shape);
    extents rows = {c.b, c.s};
    if (c.sections) rows.insert(rows.begin(), 3);
    tensor &positions = p.integers(rows, 0, 9000);
    double theta = 500000, low = 1, high = 4, original = 8192, scale = c.scale != 0 ? c.scale : 1;
    numbers want = x.x;
    int64_t width = c.width ? c.width : c.d, half = width / 2;
    std::vector<float> list(2 * (size_t)half);
    for (int64_t r = 0; r < c.b * c.s * c.h; r++)
        for (int64_t i = 0; i < half; i++) {
            double f = (float)(1 / pow(theta, (double)((float)(2 * i) / (float)width))), wave = 2 * M_PI / f;
            double smooth = (original / wave - low) / (high - low);
            if (c.factor != 0 && wave >= original / high)
                f = (float)(wave > original / low ? f / c.factor : (1 - smooth) * f / c.factor + smooth * f);
            list[i] = (float)f, list[half + i] = (float)(i % 3);
            double at =
                c.positions ? positions.x[r / c.h + (c.sections ? i % 3 * c.b * c.s : 0)] : (double)(r / c.h % c.s);
            double a = (float)((float)at * (float)f), sn = c.inverse ? -sin(a) : sin(a), cs = cos(a);
            int64_t n0 = r * c.d + (c.interleaved ? 2 * i : i), n1 = n0 + (c.interleaved ? 1 : half);
            double u = x.x[n0], v = x.x[n1];
            if (c.turned && r % c.h >= c.turned) continue;
            want[n0] = (u * cs - v * sn) * scale;
            want[n1] = (v * cs + u * sn) * scale;
        }
    trial t(text_of("rope %s[%lld,%lld,%lld of %lld,%lld of %lld]%s%s%s%s%s%s%s", dtype_text(d), (long long)c.b,
                    (long long)c.s, (long long)(c.turned ? c.turned : c.h), (long long)c.h, (long long)width,
                    (long long)c.d, c.fused ? " fused" : "", c.positions ? " positions" : "",
                    c.inverse ? " inverse" : "", c.factor != 0 ? " scaled" : "", c.in_place ? " in place" : "",
                    c.interleaved ? " interleaved" : "", c.sections ? " sections" : ""),
            sc_rope_args{.y = y.t,
                         .x = x.t,
                         .positions = given(c.positions, positions),
                         .inverse = c.inverse,
                         .heads = c.turned,
                         .width = c.width,
                         .interleaved = c.interleaved,
                         .frequencies = {list.data(), c.sections ? 2 * half : 0},
                         .theta = theta,
                         .factor = c.factor,
                         .low = low,
                         .high = high,
                         .context = original,
                         .scale = c.scale});
    t.run();
    t.expect("y", y, want, 1);
}

/* To the bit what rms_norm and rope make one after the other. */
struct norm_rope_case {
    int64_t b, s, h, d;
    bool fused, positions, weight;
    int64_t width = 0;
    bool interleaved = false;
};
static void norm_rope_trial(int d, norm_rope_case c) {
    pool p;
    extents shape = {c.b, c.s, c.h, c.d}, stride;
    if (c.fused) stride = {c.s * c.h * c.d * 3, c.h * c.d * 3, c.d, 1};
    tensor &x = p.random(d, shape, stride, c.fused ? c.h * c.d : 0), &w = p.random(d, {c.d}, {}, 0, 0.5, 1);
    tensor &y = p.empty(d, shape), &apart = p.empty(d, shape), &positions = p.integers({c.b, c.s}, 0, 9000);
    tensor &rstd = p.empty(FP32, {c.b * c.s * c.h}), &rstd2 = p.empty(FP32, {c.b * c.s * c.h});
    std::string about =
        text_of(" %s[%lld,%lld,%lld,%lld] of %lld%s%s%s%s", dtype_text(d), (long long)c.b, (long long)c.s,
                (long long)c.h, (long long)c.d, (long long)c.width, c.fused ? " fused" : "",
                c.positions ? " positions" : "", c.weight ? " w" : "", c.interleaved ? " interleaved" : "");
    sc_rms_norm_args norm = {.y = apart.t, .rstd = rstd2.t, .x = x.t, .w = given(c.weight, w), .eps = 1e-5};
    sc_rope_args turn = {.y = apart.t,
                         .x = apart.t,
                         .positions = given(c.positions, positions),
                         .width = c.width,
                         .interleaved = c.interleaved,
                         .theta = 500000,
                         .scale = 1.25};
    trial("rms_norm before" + about, norm).run();
    trial("rope behind" + about, turn).run();
    trial t("rms_norm_rope" + about, sc_rms_norm_rope_args{.y = y.t,
                                                           .rstd = rstd.t,
                                                           .x = x.t,
                                                           .w = norm.w,
                                                           .positions = turn.positions,
                                                           .width = c.width,
                                                           .interleaved = c.interleaved,
                                                           .eps = 1e-5,
                                                           .theta = 500000,
                                                           .scale = 1.25});
    t.run();
    t.expect("y", y, apart.x, -1);
    t.expect("rstd", rstd, rstd2.x, -1);
}

static void lookups() {
    if (!wanted("embedding rope")) return;
    for (int d : floats) {
        embedding_trial(d, 700, 50, 64, STEEP, d);
        embedding_trial(d, 700, 50, 72, STEEP, FP32);
        embedding_trial(d, 300, 1000, 33, EVEN, FP32);
        embedding_trial(d, 520, 9, 264, ONE_WORD, d);
        embedding_trial(d, 256, 40, 20, OUTSIDE, FP32);
        embedding_trial(d, 1, 5000, 8, EVEN, d);
        embedding_trial(d, 129, 3, 16, ONE_WORD, FP32);
        rope_trial(d, {2, 17, 3, 64, false, false, false, false, 0});
        rope_trial(d, {2, 9, 4, 128, true, false, true, false, 8});
        rope_trial(d, {5, 300, 2, 64, false, false, false, false, 0});
        rope_trial(d, {300, 3, 1, 32, false, false, false, false, 0});
        rope_trial(d, {1, 33, 2, 6, false, true, false, true, 0});
        rope_trial(d, {2, 5, 1, 128, false, true, false, false, 8});
        rope_trial(d, {1, 3, 2, 600, false, false, false, true, 0});
        rope_trial(d, {2, 17, 5, 64, false, false, false, false, 0, 4});
        rope_trial(d, {2, 17, 5, 64, false, true, true, true, 0, 3});
        rope_trial(d, {3, 9, 4, 6, true, false, false, false, 8, 1});
        rope_trial(d, {2, 17, 3, 128, false, false, false, false, 0, 2, 64});
        rope_trial(d, {2, 17, 3, 80, true, true, true, false, 8, 0, 32, false, false, 1.5});
        rope_trial(d, {2, 17, 3, 65, false, true, false, true, 0, 0, 24});
        rope_trial(d, {2, 17, 3, 65, false, true, false, false, 0, 2, 24});
        rope_trial(d, {2, 17, 5, 128, false, false, true, false, 0, 4, 0, true});
        rope_trial(d, {2, 5, 2, 600, true, true, false, true, 0, 0, 560, true, false, 0.5});
        rope_trial(d, {3, 9, 4, 14, false, false, false, false, 0, 0, 10, true});
        rope_trial(d, {2, 17, 3, 128, false, true, false, false, 0, 0, 0, false, true});
        rope_trial(d, {2, 5, 2, 600, false, true, true, true, 8, 0, 0, true, true, 1.25});
    }
    for (int d : floats) {
        norm_rope_trial(d, {2, 17, 3, 128, false, false, true});
        norm_rope_trial(d, {2, 9, 5, 64, true, true, true});
        norm_rope_trial(d, {7, 5, 2, 256, false, false, false});
        norm_rope_trial(d, {2, 9, 3, 128, true, true, true, 64});
        norm_rope_trial(d, {2, 9, 3, 128, false, true, false, 0, true});
        norm_rope_trial(d, {3, 9, 3, 64, false, false, true, 48, true});
        norm_rope_trial(d, {1, 33, 2, 96, false, false, true});
        norm_rope_trial(d, {1, 3, 2, 512, false, true, true});
    }
    if (!quick) {
        embedding_trial(BF16, 20000, 50304, 768, STEEP, FP32);
        embedding_trial(BF16, 5000, 128256, 256, EVEN, BF16);
        embedding_trial(BF16, 30000, 1000, 96, ONE_WORD, FP32);
    }
}

/* ── reductions ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
enum operation { SUM, MEAN, MAX };
static const char *const operation_names[] = {"sum", "mean", "max"};

static void reduce_trial(operation op, int d, const extents &shape, const extents &stride, int mask, int out,
                         bool nan) {
    pool p;
    bool whole = d == INT32 || d == INT64;
    tensor &x = p.empty(d, shape, stride);
    fill(x, [&] { return whole ? floor(uniform() * 50) : normal(); });
    if (nan) {
        encode(d, in_image(x, 1), NAN);
        x.x[1] = NAN;
    }
    int64_t results = 1, dims = (int64_t)shape.size();
    extents kept;
    for (int k = 0; k < dims; k++)
        if (!(mask >> k & 1)) {
            kept.push_back(shape[k]);
            results *= shape[k];
        }
    int64_t reduced = count(x) / results;
    numbers want(results, op == MAX ? -INFINITY : 0);
    for (int64_t i = 0; i < count(x); i++) {
        int64_t rest = i, o = 0, step = 1;
        for (int k = (int)dims - 1; k >= 0; k--) {
            int64_t at = rest % shape[k];
            rest /= shape[k];
            if (mask >> k & 1) continue;
            o += at * step;
            step *= shape[k];
        }
        double v = x.x[i];
        if (op == MAX)
            want[o] = std::isnan(v) || std::isnan(want[o]) ? NAN : fmax(want[o], v);
        else
            want[o] += v / (op == MEAN ? (double)reduced : 1);
    }
    int64_t runs = runs_of(results, reduced);
    tensor &y = p.empty(out, kept), &work = p.work(runs * results * 4);
    std::string name = text_of("%s %s[", operation_names[op], dtype_text(d));
    for (int64_t n : shape) name += std::to_string(n) + ",";
    name.back() = ']';
    name += text_of(" over %x to %s%s%s%s", mask, dtype_text(out), stride.empty() ? "" : " strided",
                    runs > 1 ? " split" : "", nan ? " with a NaN" : "");
    sc_tensor part = given(runs > 1, work);
    trial t = op == SUM    ? trial(name, sc_sum_args{.y = y.t, .x = x.t, .work = part, .over = mask})
              : op == MEAN ? trial(name, sc_mean_args{.y = y.t, .x = x.t, .work = part, .over = mask})
                           : trial(name, sc_max_args{.y = y.t, .x = x.t, .work = part, .over = mask});
    t.run();
    t.expect("y", y, want, op == MAX ? 0 : sqrt((double)reduced) / (op == MEAN ? (double)reduced : 1), 1e-6);
}

static void max_grad_trial(int d) {
    pool p;
    extents shape = {3, 5, 4, 6}, kept = {3, 4};
    tensor &x = p.empty(d, shape), &g = p.random(d, kept), &y = p.empty(d, kept), &dx = p.empty(d, shape);
    fill(x, [&] { return floor(uniform() * 4); });
    numbers most(12, -INFINITY), ties(12), want(x.x.size());
    auto of = [](size_t i) { return i / 120 * 4 + i / 6 % 4; };
    for (size_t i = 0; i < x.x.size(); i++) most[of(i)] = fmax(most[of(i)], x.x[i]);
    for (size_t i = 0; i < x.x.size(); i++) ties[of(i)] += x.x[i] == most[of(i)];
    for (size_t i = 0; i < x.x.size(); i++) want[i] = x.x[i] == most[of(i)] ? g.x[of(i)] / ties[of(i)] : 0;
    fill(y, [&, i = 0]() mutable { return most[i++]; });
    trial t(text_of("max_grad %s", dtype_text(d)),
            sc_max_grad_args{.dx = dx.t, .g = g.t, .x = x.t, .y = y.t, .over = 10});
    t.run();
    t.expect("dx", dx, want, 1e-3);
}

static void reductions() {
    if (!wanted("sum mean max")) return;
    for (int d : floats) {
        for (operation op : {SUM, MEAN, MAX}) {
            int wide = op == SUM ? FP32 : d;
            reduce_trial(op, d, {600, 64}, {}, 1, wide, false); /* a bias gradient, split */
            reduce_trial(op, d, {37, 768}, {}, 1, d, false);
            reduce_trial(op, d, {130, 77}, {}, 1, wide, false);
            reduce_trial(op, d, {9, 1000}, {}, 2, d, false); /* rows, a block each */
            reduce_trial(op, d, {70, 100}, {}, 2, d, false); /* a warp each */
            reduce_trial(op, d, {21, 33}, {}, 2, d, op == MAX);
            reduce_trial(op, d, {33, 129}, {}, 3, wide, false);           /* a scalar */
            reduce_trial(op, d, {4, 6, 5, 8}, {}, 5, d, false);           /* 0 and 2 */
            reduce_trial(op, d, {4, 6, 5, 8}, {}, 10, d, op == MAX);      /* 1 and 3 */
            reduce_trial(op, d, {3, 40, 2, 64}, {}, 4, d, false);         /* a group of heads */
            reduce_trial(op, d, {50, 24, 16}, {16, 800, 1}, 1, d, false); /* transposed */
            reduce_trial(op, d, {12, 40}, {1, 12}, 2, d, false);
            reduce_trial(op, d, {12, 40}, {1, 12}, 1, d, false);
            reduce_trial(op, d, {8, 12, 40}, {0, 40, 1}, 1, wide, false); /* expanded */
            reduce_trial(op, d, {1, 5, 1}, {}, 5, d, false);
            reduce_trial(op, d, {64, 40, 8}, {}, 1, d, false); /* positions */
        }
        max_grad_trial(d);
    }
    for (int d : {INT32, INT64}) {
        reduce_trial(SUM, d, {30, 17}, {}, 1, d, false);
        reduce_trial(SUM, d, {300, 17}, {}, 3, d, false);
        reduce_trial(MAX, d, {30, 17}, {}, 2, d, false);
    }
#ifndef SC_EMULATE
    reduce_trial(SUM, BF16, {8192, 3072}, {}, 1, FP32, false);
    reduce_trial(SUM, BF16, {4096, 4096}, {}, 3, FP32, false);
#endif
}

/* ── movement, fills ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void copy_trial(int d, const extents &shape, const extents &stride, int64_t shift = 0) {
    pool p;
    tensor &x = p.empty(d, shape, stride, shift), &y = p.empty(d, shape);
    fill(x, [&] { return d == BOOL ? (double)(uniform() > 0) : floor(uniform() * 100); });
    std::string name = text_of("copy %s[", dtype_text(d));
    for (size_t k = 0; k < shape.size(); k++) name += text_of("%lld:%lld,", (long long)shape[k], (long long)stride[k]);
    name.back() = ']';
    trial t(name + (shift ? " shifted" : ""), sc_copy_args{.y = y.t, .a = x.t});
    t.run();
    t.expect("y", y, x.x, -1);
}

static void pieces_trial(int d, int dim, bool padded) {
    pool p;
    extents sa = {4, 6, 8}, sb = sa, sy = sa;
    sb[dim] = 3;
    sy[dim] += 3;
    tensor &a = p.random(d, sa), &b = p.random(d, sb, {100, 10, 1}), &y = p.empty(d, sy), &z = p.empty(d, sy);
    numbers joined(count(y)), framed(count(y));
    for (int64_t i = 0; i < count(y); i++) {
        int64_t x[3] = {i / (sy[1] * sy[2]), i / sy[2] % sy[1], i % sy[2]}, at = x[dim];
        bool second = at >= sa[dim];
        const extents &from = second ? sb : sa;
        x[dim] = second ? at - sa[dim] : at;
        joined[i] = (second ? b : a).x[(x[0] * from[1] + x[1]) * from[2] + x[2]];
        x[dim] = at - 2;
        if (at >= 2 && at < 5) framed[i] = b.x[(x[0] * sb[1] + x[1]) * sb[2] + x[2]];
    }
    if (padded) {
        trial t(text_of("pad_slice %s dim %d", dtype_text(d), dim),
                sc_pad_slice_args{.y = z.t, .a = b.t, .dim = dim, .start = 2, .size = sy[dim]});
        t.run();
        t.expect("y", z, framed, -1);
    } else {
        trial t(text_of("concat %s dim %d", dtype_text(d), dim), sc_concat_args{.y = y.t, .x = {a.t, b.t}, .dim = dim});
        t.run();
        t.expect("y", y, joined, -1);
    }
}

static void pick_trial(int d, bool strided) {
    pool p;
    int64_t v = 100;
    tensor &x = strided ? p.random(d, {1, 5, v}, {1, 1, 6}) : p.random(d, {1, 5, v}), &y = p.empty(FP32, {v});
    trial t(text_of("pick %s%s", dtype_text(d), strided ? " strided" : ""), sc_pick_args{.logits = x.t, .state = y.t});
    t.run();
    t.expect("y", y, numbers(x.x.begin() + record.position * v, x.x.begin() + (record.position + 1) * v), -1);
}

static void store_trial(int from, int to, bool add, int64_t n, int64_t at, int64_t shift) {
    pool p;
    bool whole = from == INT32 || from == INT64;
    tensor &value = p.empty(from, {n}, {}, shift), &state = p.empty(to, {at + n + 5});
    fill(value, [&] { return whole ? floor(uniform() * 1000) : normal(); });
    fill(state, [&] { return whole ? floor(uniform() * 1000) : normal(); });
    numbers want = state.x;
    for (int64_t i = 0; i < n; i++) want[at + i] = value.x[i] + (add ? want[at + i] : 0);
    trial t(text_of("store %s to %s%s at %lld%s", dtype_text(from), dtype_text(to), add ? " adding" : "", (long long)at,
                    shift ? " shifted" : ""),
            sc_store_args{.value = value.t, .state = state.t, .add = add, .at = at});
    t.run();
    t.expect("state", state, want, add ? 1e-2 : 0);
}

static void fill_trial(int d) {
    pool p;
    tensor &y = p.empty(d, {3, 333});
    int64_t n = count(y);
    {
        double value = d == BOOL ? 1 : -3;
        trial t(text_of("full %s", dtype_text(d)), sc_full_args{.y = y.t, .value = value});
        t.run();
        t.expect("y", y, numbers(n, value), -1);
    }
    if (d == BOOL) return;
    numbers want(n);
    for (int64_t i = 0; i < n; i++) want[i] = 5 + 2.0 * (double)i;
    y.t.dims = 1, y.t.shape[0] = n, y.t.stride[0] = 1;
    trial t(text_of("arange %s", dtype_text(d)), sc_arange_args{.y = y.t, .n = n, .start = 5, .step = 2});
    t.run();
    t.expect("y", y, want, 0);
}

static void movement() {
    if (!wanted("copy concat pad_slice pick")) return;
    for (int d : {FP32, BF16, INT64, BOOL}) {
        copy_trial(d, {3, 70, 5, 41}, {14350, 205, 41, 1});
        copy_trial(d, {3, 70, 5, 41}, {1, 3, 210, 1050});
        copy_trial(d, {3, 70, 5, 41}, {41, 123, 8610, 1});
        copy_trial(d, {3, 70, 5, 41}, {0, 0, 0, 1});
        copy_trial(d, {3, 70, 5, 41}, {14350, 1, 70, 350});
        copy_trial(d, {3, 70, 5, 41}, {0, 1, 0, 70});
        copy_trial(d, {3, 7, 5, 41}, {40000, 410, 82, 2});
        copy_trial(d, {2, 32, 64}, {12288, 192, 1}, 64);
        copy_trial(d, {2, 8, 12, 64}, {6144, 64, 512, 1});
        copy_trial(d, {100, 64}, {1, 100});
        copy_trial(d, {33, 64}, {65, 1}, 3);
        copy_trial(d, {}, {});
        copy_trial(d, {5}, {0});
    }
    for (int d : {FP32, FP16})
        for (int dim = 0; dim < 3; dim++) {
            pieces_trial(d, dim, false);
            pieces_trial(d, dim, true);
        }
    for (int d : floats) {
        pick_trial(d, false);
        pick_trial(d, true);
    }
}

static void fills() {
    if (!wanted("full arange grad_seed zero zero_gaps store")) return;
    for (int d : {FP32, BF16, FP16, INT32, INT64, BOOL}) fill_trial(d);
    {
        pool p;
        tensor &y = p.empty(FP32, {});
        trial t("grad_seed", sc_grad_seed_args{.y = y.t});
        t.run();
        t.expect("y", y, {0.25}, -1);
    }
    for (int d : {FP32, BF16, INT64}) {
        pool p;
        tensor &y = p.empty(d, {5001}), &a = p.empty(d, {3}, {}, 1), &b = p.empty(d, {256});
        {
            trial t(text_of("zero %s", dtype_text(d)), sc_zero_args{.state = y.t});
            t.run();
            t.expect("y", y, numbers(5001, 0), -1);
        }
        trial t(text_of("zero_gaps %s", dtype_text(d)), sc_zero_gaps_args{.y = {a.t, b.t, y.t}});
        t.run();
        t.expect("a", a, numbers(3, 0), -1);
        t.expect("b", b, numbers(256, 0), -1);
        t.expect("y", y, numbers(5001, 0), -1);
    }
    for (int from : floats)
        for (int to : floats)
            for (bool add : {false, true}) {
                store_trial(from, to, add, 3001, 8, 0);
                store_trial(from, to, add, 37, 3, 1);
            }
    store_trial(INT32, INT64, false, 20, 1, 0);
    store_trial(INT64, INT32, true, 20, 1, 0);
    store_trial(INT64, INT64, true, 20, 1, 0);
}

/* ── batch norm ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void batch_norm_trial(int d, const extents &shape, bool training, bool clone) {
    pool p;
    int64_t channels = shape[1], inner = 1;
    for (size_t k = 2; k < shape.size(); k++) inner *= shape[k];
    tensor &x = p.random(d, shape, {}, 0, 2, 0.5), &y = p.empty(d, shape), &g = p.random(d, shape),
           &dx = p.empty(d, shape);
    tensor &w = p.random(d, {channels}), &b = p.random(d, {channels}), &dw = p.empty(d, {channels});
    tensor &db = p.empty(d, {channels}), &mean = p.empty(FP32, {channels}), &rstd = p.empty(FP32, {channels});
    tensor &means = p.random(FP32, {channels}), &variances = p.empty(FP32, {channels});
    fill(variances, [&] { return 1 + fabs(normal()); });
    double n = (double)(shape[0] * inner), eps = 1e-5, momentum = 0.1;
    auto channel = [&](size_t i) { return (size_t)((int64_t)i / inner % channels); };
    numbers m = means.x, v = variances.x, rm = m, rv = v, r(channels), wy(x.x.size()), wdx(x.x.size());
    if (training) {
        m.assign(channels, 0);
        v.assign(channels, 0);
        for (size_t i = 0; i < x.x.size(); i++) m[channel(i)] += x.x[i] / n;
        for (size_t i = 0; i < x.x.size(); i++)
            v[channel(i)] += (x.x[i] - m[channel(i)]) * (x.x[i] - m[channel(i)]) / n;
    }
    for (int64_t c = 0; c < channels; c++) {
        r[c] = 1 / sqrt(v[c] + eps);
        if (!training || clone) continue;
        rm[c] = (1 - momentum) * rm[c] + momentum * m[c];
        rv[c] = (1 - momentum) * rv[c] + momentum * v[c] * n / (n - 1);
    }
    for (size_t i = 0; i < x.x.size(); i++)
        wy[i] = (x.x[i] - m[channel(i)]) * r[channel(i)] * w.x[channel(i)] + b.x[channel(i)];
    std::string shape_text = text_of(" %s[%lld,%lld,%lld]%s%s", dtype_text(d), (long long)shape[0], (long long)channels,
                                     (long long)inner, training ? " training" : "", clone ? " clone" : "");
    {
        trial t("batch_norm" + shape_text, sc_batch_norm_args{.y = y.t,
                                                              .mean = mean.t,
                                                              .rstd = rstd.t,
                                                              .x = x.t,
                                                              .w = w.t,
                                                              .b = b.t,
                                                              .running_mean = means.t,
                                                              .running_var = variances.t,
                                                              .training = training,
                                                              .keep_running = clone,
                                                              .eps = eps,
                                                              .momentum = momentum});
        t.run();
        t.expect("y", y, wy, 1);
        t.expect("mean", mean, m, 1);
        t.expect("rstd", rstd, r, 1);
        t.expect("running mean", means, rm, 1);
        t.expect("running variance", variances, rv, 1);
    }
    numbers sw(channels), sb(channels);
    for (size_t i = 0; i < x.x.size(); i++) {
        size_t c = channel(i);
        sb[c] += g.x[i];
        sw[c] += g.x[i] * (x.x[i] - mean.x[c]) * rstd.x[c];
    }
    for (size_t i = 0; i < x.x.size(); i++) {
        size_t c = channel(i);
        double h = (x.x[i] - mean.x[c]) * rstd.x[c];
        wdx[i] = w.x[c] * rstd.x[c] * (g.x[i] - (training ? sb[c] / n + h * sw[c] / n : 0));
    }
    trial t("batch_norm_grad" + shape_text, sc_batch_norm_grad_args{.dx = dx.t,
                                                                    .dw = dw.t,
                                                                    .db = db.t,
                                                                    .g = g.t,
                                                                    .x = x.t,
                                                                    .w = w.t,
                                                                    .mean = mean.t,
                                                                    .rstd = rstd.t,
                                                                    .training = training});
    t.run();
    t.expect("dx", dx, wdx, 1);
    t.expect("dw", dw, sw, sqrt(n), 1e-6);
    t.expect("db", db, sb, sqrt(n), 1e-6);
}

static void batch_norms() {
    if (!wanted("batch_norm")) return;
    for (int d : floats) {
        batch_norm_trial(d, {6, 5, 7, 9}, true, false);
        batch_norm_trial(d, {40, 70}, true, false);
        batch_norm_trial(d, {4, 3, 300}, true, true);
        batch_norm_trial(d, {6, 5, 7}, false, false);
        batch_norm_trial(d, {33, 5}, false, false);
    }
}

int main(int argc, char **argv) {
    start(argc, argv);
    norms();
    losses();
    lookups();
    reductions();
    movement();
    fills();
    batch_norms();
    return closing();
}
