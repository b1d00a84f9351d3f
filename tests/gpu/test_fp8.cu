/* The kernels that find largest magnitudes and quantize to fp8, by tensors, with a history and by blocks, and products
 * of groups in fp8, against the same sums and roundings on the host.
 * Relies on: trial.h, runtime/cuda/k_amax.cu, k_norm.cu, k_quantize.cu, k_quantize_blocks.cu, k_quantize_shard.cu,
 * k_copy.cu, k_grouped.cu, k_grouped_hopper_fp8.cu. Relied on by: make gpu-test. Arguments as test_kernels.cu's. */
#include "trial.h"

#include "../../runtime/sc_amax.h"

/* ── magnitudes ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Of three parameters in a flat buffer that four ranks share; a fourth has an element that is no number. */
static void amax_trial(int d, int shard, int64_t slice) {
    pool p;
    const std::vector<int64_t> table = {1, 5, 6, 0, 5000, 9, 5120, 3, 9, 5376, 12000, 9, 17408, 2500, 9};
    tensor &x = p.random(d, {slice}), &y = p.empty(FP32, {6});
    int64_t low = shard * slice;
    fill(x, [&, i = low]() mutable { return i++ == 18000 ? (double)NAN : normal(); });
    numbers want(6);
    for (int k = 0; k < 4; k++)
        for (int64_t i = table[3 + 3 * k]; i < table[3 + 3 * k] + table[4 + 3 * k]; i++)
            if (i >= low && i < low + slice && !std::isnan(want[k]))
                want[k] = std::isnan(x.x[i - low]) ? NAN : fmax(want[k], fabs(x.x[i - low]));
    trial t(text_of("amax %s shard %d of %lld", dtype_text(d), shard, (long long)slice),
            sc_amax_args{.y = y.t, .shard = x.t, .table = table.data(), .ntable = (int64_t)table.size()});
    t.place[0].at = shard;
    t.run();
    t.expect("y", y, want, 0);
}

static void magnitudes() {
    if (!wanted("amax")) return;
    for (int d : floats)
        for (int shard = 0; shard < 4; shard++) amax_trial(d, shard, 5120);
}

/* ── 8 bits ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* The scale is that of `most`, which a test may set lower than the largest element: then y saturates. */
static void quantize_trial(int from, int to, const extents &shape, bool turn, bool both, int64_t shift, double most,
                           int64_t taken = -1) {
    pool p;
    int64_t cols = shape.back(), rows = 1;
    for (size_t d = 0; d + 1 < shape.size(); d++) rows *= shape[d];
    const extents turned = {cols, rows};
    tensor &x = p.random(from, shape, {}, shift, 3), &found = p.empty(FP32, {1}), &amax = p.empty(FP32, {1});
    tensor &y = p.empty(to, turn ? turned : shape), &scale = p.empty(FP32, {1}), &other = p.empty(to, turned);
    tensor &counts = p.integers({3}, 0, 1);
    fill(counts, [&, i = 0]() mutable { return i++ == 1 ? -5 : i == 1 ? taken / 3 : taken - taken / 3; });
    bool by_group = taken >= 0;
    if (!by_group) taken = rows;
    fill(x, [&, i = 0]() mutable {
        bool unused = i / cols >= taken;
        return i++ == 7 && most < 0 ? (double)NAN : unused ? (double)INFINITY : most == 0 ? 0 : 3 * normal();
    });
    for (int64_t i = taken * cols; i < rows * cols; i++) x.x[i] = 0; /* as it is taken */
    double largest = 0;
    for (double v : x.x) largest = std::isnan(v) || std::isnan(largest) ? (double)NAN : fmax(largest, fabs(v));
    fill(amax, [&] { return most > 0 ? most : largest; });
    float magnitude = (float)amax.x[0], top = to == FP8_E4M3 ? 448.0f : 57344.0f;
    float by = magnitude == 0 ? 1 : top / magnitude;
    numbers want(x.x.size()), across(x.x.size());
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            uint8_t bits;
            encode(to, &bits, (float)x.x[r * cols + c] * by);
            want[r * cols + c] = across[c * rows + r] = decode(to, &bits);
        }
    std::string name = text_of("%s to %s of %lld rows of %lld%s%s%s%s, most %g", dtype_text(from), dtype_text(to),
                               (long long)rows, (long long)cols, turn ? " turned" : "", both ? " both" : "",
                               shift ? " shifted" : "", by_group ? " by group" : "", most);
    trial t("absmax " + name, sc_absmax_args{.y = found.t, .x = x.t, .counts = given(by_group, counts)});
    t.run();
    t.expect("y", found, {largest}, 0);
    trial u("quantize " + name, sc_quantize_args{.y = y.t,
                                                 .scale = scale.t,
                                                 .turned = given(both, other),
                                                 .x = x.t,
                                                 .amax = amax.t,
                                                 .counts = given(by_group, counts),
                                                 .turn = turn,
                                                 .both = both});
    u.run();
    numbers scales = {magnitude == 0 ? 1.0 : (double)(magnitude / top)};
    u.expect("scale", scale, scales, std::isnan(magnitude) ? 0 : -1);
    u.expect("y", y, turn ? across : want, std::isnan(magnitude) ? 0 : -1);
    if (both) u.expect("turned", other, across, std::isnan(magnitude) ? 0 : -1);
}

/* ── with a history ── */
enum { GATES = -1, RMS = -2, RMS_PLAIN = -3, LAYER = -4, LAYER_PLAIN = -5 }; /* plain: without weights */
struct source { /* what is quantized: x, gate and up, of which f, an sc_epilogue or one of these, may make two */
    tensor &x, &gate, &up, &rstd, &mean, &w, &b;
    int64_t f;
    bool grads = f == GATES, normed = f < GATES, centred = f <= LAYER, weighed = f == RMS || f == LAYER;
    int64_t epilogue() const { return f < 0 ? 0 : f; }
    int results() const { return grads ? 2 : 1; }
    bool reads_gate() const { return f == SC_GATED || (f > 0 && SC_HAS(f, SC_GRADIENT)); }
    float size(size_t i) const {
        return (float)fabs(grads ? x.x[i] * fmax(fabs(gate.x[i]), fabs(up.x[i])) : reads_gate() ? x.x[i] : 0);
    }
    float at(size_t i, int result) const {
        float a = (float)x.x[i], b = (float)gate.x[i], y[2] = {a, 0};
        if (grads)
            sc_silu_mul_grad(a, b, (float)up.x[i], &y[0], &y[1]);
        else if (normed)
            y[0] = norm(i, a);
        else if (f == SC_GATED)
            y[0] = sc_silu_mul(b, a);
        else if (f == SC_GELU)
            y[0] = sc_gelu_tanh(a);
        else if (f)
            y[0] = sc_gelu_tanh_grad(a, b);
        return y[result];
    }
    float norm(size_t i, float v) const {
        size_t row = i / w.x.size(), column = i % w.x.size();
        v = (centred ? v - (float)mean.x[row] : v) * (float)rstd.x[row];
        if (weighed) v = v * (float)w.x[column];
        return weighed && centred ? v + (float)this->b.x[column] : v;
    }
};

static void find_trial(const std::string &name, const source &s) {
    pool p;
    tensor &a = p.empty(FP32, {1}), &b = p.empty(FP32, {1});
    trial *t;
    if (s.grads)
        t = new trial("absmax_gates " + name,
                      sc_absmax_gates_args{.dgate = a.t, .dup = b.t, .g = s.x.t, .gate = s.gate.t, .up = s.up.t});
    else
        t = new trial("absmax " + name, sc_absmax_args{.y = a.t,
                                                       .x = s.x.t,
                                                       .gate = given(s.reads_gate(), s.gate),
                                                       .rstd = given(s.normed, s.rstd),
                                                       .mean = given(s.centred, s.mean),
                                                       .w = given(s.weighed, s.w),
                                                       .b = given(s.weighed && s.centred, s.b),
                                                       .f = s.epilogue()});
    t->run();
    for (int o = 0; o < s.results(); o++) {
        double most = 0;
        for (size_t i = 0; i < s.x.x.size(); i++) most = fmax(most, fabs(s.at(i, o)));
        t->expect("y", o ? b : a, {most}, 0);
    }
    delete t;
}

/* known: the magnitude of steps before; 0: none, so what is seen counts, of which there is `before` from other
 * microbatches. One element is infinite where `infinite`. A value beside the middle of two numbers may be rounded to
 * either, by the last bit of f; so most elements have to be the wanted ones, and each near it. */
static void delayed_trial(int from, int to, int64_t f, int64_t rows, int64_t cols, float known, float before, bool both,
                          bool infinite) {
    pool p;
    const extents shape = {rows, cols}, turned = {cols, rows};
    source s = {p.random(from, shape, {}, 0, 3),  p.random(from, shape, {}, 0, 2),
                p.random(from, shape, {}, 0, 2),  p.random(FP32, {rows}),
                p.random(FP32, {rows}),           p.random(from, {cols}),
                p.random(from, {cols}, {}, 0, 9), f};
    bool grads = s.grads, sum = both && !s.normed;
    if (infinite) fill(s.x, [&, i = 0]() mutable { return i++ == 5 ? (double)INFINITY : normal(); });
    tensor *amax[2], *seen[2], *scale[2], *y[2], *other[2];
    tensor &sums = p.empty(FP32, {(rows + SC_SUMMED_ROWS - 1) / SC_SUMMED_ROWS, cols});
    for (int o = 0; o < 2; o++) {
        amax[o] = &p.empty(FP32, {1}), seen[o] = &p.empty(FP32, {1}), scale[o] = &p.empty(FP32, {1});
        y[o] = &p.empty(to, shape), other[o] = &p.empty(to, turned);
        fill(*amax[o], [&] { return known; });
        fill(*seen[o], [&] { return before; });
    }
    std::string name = text_of("%s to %s, f %lld of %lld rows of %lld, known %g, before %g%s%s", dtype_text(from),
                               dtype_text(to), (long long)f, (long long)rows, (long long)cols, known, before,
                               both ? " both" : "", infinite ? " infinite" : "");
    trial *t;
    if (grads)
        t = new trial("quantize_gates " + name, sc_quantize_gates_args{.dgate = y[0]->t,
                                                                       .dgate_scale = scale[0]->t,
                                                                       .dup = y[1]->t,
                                                                       .dup_scale = scale[1]->t,
                                                                       .dgate_turned = given(both, *other[0]),
                                                                       .dup_turned = given(both, *other[1]),
                                                                       .g = s.x.t,
                                                                       .gate = s.gate.t,
                                                                       .up = s.up.t,
                                                                       .dgate_amax = amax[0]->t,
                                                                       .dup_amax = amax[1]->t,
                                                                       .dgate_seen = seen[0]->t,
                                                                       .dup_seen = seen[1]->t,
                                                                       .both = both});
    else
        t = new trial("quantize " + name, sc_quantize_args{.y = y[0]->t,
                                                           .scale = scale[0]->t,
                                                           .turned = given(both, *other[0]),
                                                           .sums = given(sum, sums),
                                                           .x = s.x.t,
                                                           .gate = given(s.reads_gate(), s.gate),
                                                           .amax = amax[0]->t,
                                                           .seen = seen[0]->t,
                                                           .rstd = given(s.normed, s.rstd),
                                                           .mean = given(s.centred, s.mean),
                                                           .w = given(s.weighed, s.w),
                                                           .b = given(s.weighed && s.centred, s.b),
                                                           .both = both,
                                                           .sum = sum,
                                                           .f = s.epilogue()});
    t->run();
    find_trial(name, s);
    for (int o = 0; o < s.results(); o++) {
        float most = before, top = to == FP8_E4M3 ? 448.0f : 57344.0f;
        numbers total(count(sums));
        for (int64_t i = 0; i < rows * cols; i++) {
            float v = s.at(i, o);
            most = most >= fabsf(v) || std::isnan(most) ? most : fabsf(v);
            total[i / cols / SC_SUMMED_ROWS * cols + i % cols] += v;
        }
        float magnitude = known ? known : most, by = magnitude == 0 ? 1 : top / magnitude;
        t->expect("seen", *seen[o], {most}, 0);
        t->expect("scale", *scale[o], {magnitude == 0 ? 1.0 : (double)(magnitude / top)}, 0);
        int64_t off = 0, wrong = 0, unlike = 0;
        for (int64_t i = 0; i < rows * cols; i++) {
            float v = s.at(i, o), q = std::isinf(v) ? NAN : v * by;
            uint8_t bits, below, above;
            float slack = 1e-5f * fabsf(q) + 4e-5f * by * s.size(i); /* of derivatives by sc_gate */
            encode(to, &bits, q), encode(to, &below, q - slack), encode(to, &above, q + slack);
            double is = y[o]->x[i], want = decode(to, &bits);
            bool same = is == want || (std::isnan(is) && std::isnan(want));
            off += !same;
            wrong += !same && !(is >= decode(to, &below) && is <= decode(to, &above));
            unlike += both && other[o]->x[i % cols * rows + i / cols] != is && !std::isnan(is);
        }
        if (wrong) t->complain("elements are not near the wanted ones");
        if (unlike) t->complain("the transpose differs");
        if (off > rows * cols / 100) t->complain("more than 1 % of the elements are not the wanted ones");
        if (!grads && sum && !infinite) t->expect("sums", sums, total, 100);
    }
    delete t;
}

static void statistics_trial(int d, bool centred, int64_t rows, int64_t cols) {
    pool p;
    tensor &x = p.random(d, {rows, cols}, {}, 0, 3), &mean = p.empty(FP32, {rows}), &rstd = p.empty(FP32, {rows});
    numbers of_mean(rows), of_rstd(rows);
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0, square = 0;
        for (int64_t c = 0; c < cols && centred; c++) sum += x.x[r * cols + c];
        for (int64_t c = 0; c < cols; c++) square += pow(x.x[r * cols + c] - sum / cols, 2);
        of_mean[r] = sum / cols, of_rstd[r] = 1 / sqrt(square / cols + 1e-5);
    }
    trial t(text_of("norm_statistics %s of %lld rows of %lld%s", dtype_text(d), (long long)rows, (long long)cols,
                    centred ? ", centred" : ""),
            sc_norm_statistics_args{
                .rstd = rstd.t, .mean = given(centred, mean), .x = x.t, .centred = centred, .eps = 1e-5});
    t.run();
    t.expect("rstd", rstd, of_rstd, 1);
    if (centred) t.expect("mean", mean, of_mean, 3);
}

static void history_trial(int64_t sites, int64_t ranks, bool skips) {
    pool p;
    enum { ROW = 17 };
    tensor &all = p.empty(FP32, {ranks, sites}), &history = p.empty(FP32, {sites, ROW});
    tensor &coefficient = p.empty(FP32, {2});
    fill(all, [&, i = 0]() mutable { return i++ % sites == 3 ? (double)NAN : fabs(normal()); });
    fill(history, [&] { return fabs(normal()); });
    fill(coefficient, [&, i = 0]() mutable { return i++ && skips ? 1 : 0; });
    numbers want = history.x;
    for (int64_t s = 0; s < sites && !skips; s++) {
        double now = 0, most = 0;
        for (int64_t r = 0; r < ranks; r++)
            if (!std::isnan(now) && !(now >= all.x[r * sites + s])) now = all.x[r * sites + s];
        if (std::isnan(now)) continue;
        for (int i = ROW - 1; i > 0; i--) {
            want[s * ROW + i] = i == 1 ? now : want[s * ROW + i - 1];
            most = fmax(most, want[s * ROW + i]);
        }
        want[s * ROW] = 2 * most;
    }
    trial t(
        text_of("update_amax of %lld sites, %lld ranks%s", (long long)sites, (long long)ranks, skips ? " skipped" : ""),
        sc_update_amax_args{.all = all.t, .history = history.t, .coefficient = coefficient.t});
    t.run();
    t.expect("history", history, want, -1);
}

/* By blocks: what k_quantize_blocks.c says, of a tensor with blocks of nothing, of too little, of a NaN and infinities.
 */
struct in_blocks {
    numbers y, scales;
};
static in_blocks blocks_of(const numbers &x, int64_t rows, int64_t cols, bool square, bool turn) {
    auto at = [&](int64_t r, int64_t c) { return (float)(turn ? x[c * rows + r] : x[r * cols + c]); };
    int64_t across = (cols + 127) / 128, pitch = (across + 3) / 4 * 4, tall = square ? 128 : 1;
    in_blocks made = {numbers(x.size()), numbers(square ? (rows + 127) / 128 * pitch : across * rows)};
    for (int64_t r0 = 0; r0 < rows; r0 += tall)
        for (int64_t b = 0; b < across; b++) {
            float amax = 0;
            int64_t r1 = std::min(rows, r0 + tall), c1 = std::min(cols, b * 128 + 128);
            for (int64_t r = r0; r < r1; r++)
                for (int64_t c = b * 128; c < c1; c++) {
                    float m = fabsf(at(r, c));
                    amax = amax >= m || amax != amax ? amax : m;
                }
            float by = amax < 0x1p-117f ? 1 : 448 / amax;
            made.scales[square ? r0 / 128 * pitch + b : b * rows + r0] = amax < 0x1p-117f ? 1 : amax / 448;
            for (int64_t r = r0; r < r1; r++)
                for (int64_t c = b * 128; c < c1; c++) {
                    uint8_t bits;
                    encode(FP8_E4M3, &bits, at(r, c) * by);
                    made.y[r * cols + c] = decode(FP8_E4M3, &bits);
                }
        }
    return made;
}

static void blocks_trial(int from, const extents &shape, bool square, bool turn, bool both, int64_t shift, bool odd) {
    pool p;
    int64_t cols = shape.back(), rows = 1;
    for (size_t d = 0; d + 1 < shape.size(); d++) rows *= shape[d];
    const extents across = {cols, rows};
    tensor &x = p.random(from, shape, {}, shift, 3), &y = p.empty(FP8_E4M3, turn ? across : shape);
    fill(x, [&, i = 0]() mutable {
        int64_t r = i / cols, c = i++ % cols;
        if (r == 3 || (odd && c == 5)) return 0.0;
        if (odd && i == 7 * cols) return (double)NAN;
        if (odd && i == 9 * cols) return (double)INFINITY;
        return (r == 4 && from != FP16 ? 0x1p-120 : 3.0) * normal();
    });
    in_blocks lies = blocks_of(x.x, rows, cols, square, false), turned = blocks_of(x.x, cols, rows, square, true);
    auto scales = [&](int64_t r, int64_t c) {
        return square ? extents{(r + 127) / 128, (c + 511) / 512 * 4} : extents{(c + 127) / 128, r};
    };
    tensor &scale = p.empty(FP32, turn ? scales(cols, rows) : scales(rows, cols));
    tensor &other = p.empty(FP8_E4M3, across), &other_scale = p.empty(FP32, scales(cols, rows));
    trial t(text_of("quantize_blocks %s of %lld rows of %lld%s%s%s%s%s", dtype_text(from), (long long)rows,
                    (long long)cols, square ? " square" : "", turn ? " turned" : "", both ? " both" : "",
                    shift ? " shifted" : "", odd ? " odd" : ""),
            sc_quantize_blocks_args{.y = y.t,
                                    .scale = scale.t,
                                    .turned = given(both, other),
                                    .turned_scale = given(both, other_scale),
                                    .x = x.t,
                                    .square = square,
                                    .turn = turn,
                                    .both = both});
    t.run();
    double exact = odd ? 0 : -1; /* bytes of NaNs may differ */
    t.expect("y", y, turn ? turned.y : lies.y, exact);
    t.expect("scale", scale, turn ? turned.scales : lies.scales, exact);
    if (!both) return;
    t.expect("turned", other, turned.y, exact);
    t.expect("turned_scale", other_scale, turned.scales, exact);
}

static void blocks_of_8() {
    if (!wanted("quantize_blocks")) return;
    for (int from : floats)
        for (int square = 0; square < 2; square++) {
            blocks_trial(from, {2, 64, 128}, square, false, true, 0, false);
            blocks_trial(from, {144, 272}, square, true, false, 0, false);
            blocks_trial(from, {80, 208}, square, false, false, 0, false);
            blocks_trial(from, {131, 267}, square, false, true, 0, false);
            blocks_trial(from, {144, 136}, square, true, false, 1, false);
            blocks_trial(from, {144, 144}, square, false, true, 0, true);
            if (!quick) blocks_trial(from, {4096, 2048}, square, false, true, 0, false);
        }
}

/* ── units that are gathered in 8 bits ──────────────────────────────────────────────────────────────────────────────
 */
static double as(int dtype, double x) {
    uint64_t bits = 0;
    encode(dtype, &bits, x);
    return decode(dtype, &bits);
}

/* A piece of a flat buffer of three matrices, the second of zeros; the last ends in another rank's piece. */
static void shard_trial(int from, int of, int shard, int64_t slice) {
    pool p;
    const std::vector<int64_t> table = {0, 0, 4096, 3, 4352, 1024, 4, 5632, 20480, 5};
    tensor &x = p.random(from, {slice}), &amax = p.empty(FP32, {4}), &y = p.empty(FP8_E4M3, {slice});
    tensor &scales = p.empty(FP32, {4 * SC_SCALES_APART});
    const float most[] = {2.7f, 0, 1.9f, 0};
    fill(x, [&, i = shard * slice]() mutable { return i++ >= 4352 && i <= 4352 + 1024 ? 0 : normal(); });
    fill(amax, [&, i = 0]() mutable { return most[i++]; });
    numbers want(slice), by;
    for (float m : most) by.insert(by.end(), SC_SCALES_APART, m == 0 ? 1 : (float)as(of, m) / 448.0f);
    for (int k = 0; k < 3; k++) {
        float times = most[k] == 0 ? 1 : 448.0f / (float)as(of, most[k]);
        for (int64_t i = table[1 + 3 * k]; i < table[1 + 3 * k] + table[2 + 3 * k]; i++)
            if (i >= shard * slice && i < (shard + 1) * slice)
                want[i - shard * slice] = as(FP8_E4M3, (float)as(of, x.x[i - shard * slice]) * times);
    }
    trial t(
        text_of("quantize_shard %s as %s, shard %d of %lld", dtype_text(from), dtype_text(of), shard, (long long)slice),
        sc_quantize_shard_args{.y = y.t,
                               .scales = scales.t,
                               .shard = x.t,
                               .amax = amax.t,
                               .table = table.data(),
                               .ntable = (int64_t)table.size(),
                               .of = of});
    t.place[0].at = shard;
    t.run();
    t.expect("y", y, want, -1);
    t.expect("scales", scales, by, -1);
}

/* rows x cols bytes, of lines `pitch` apart, as cols x rows. */
static void turned_trial(int64_t rows, int64_t cols, int64_t pitch, int64_t shift) {
    pool p;
    tensor &x = p.empty(FP8_E4M3, {cols, rows}, {1, pitch}, shift), &y = p.empty(FP8_E4M3, {cols, rows});
    fill(x, [&] { return floor(uniform() * 16); });
    trial t(text_of("copy of %lld rows of %lld bytes, %lld apart, turned%s", (long long)rows, (long long)cols,
                    (long long)pitch, shift ? text_of(", shifted by %lld", (long long)shift).c_str() : ""),
            sc_copy_args{.y = y.t, .a = x.t});
    t.run();
    t.expect("y", y, x.x, -1);
}

static void gathers_of_8() {
    if (!wanted("quantize_shard copy")) return;
    for (int from : floats)
        for (int of : floats)
            for (int shard = 0; shard < 3; shard++) shard_trial(from, of, shard, 8704);
    turned_trial(128, 64, 64, 0);
    turned_trial(260, 200, 256, 0);
    turned_trial(132, 72, 72, 8);
    turned_trial(132, 72, 72, 1); /* byte by byte: its source, ... */
    turned_trial(131, 72, 72, 0); /* ... its result, ... */
    turned_trial(64, 70, 72, 0);  /* ... its lines */
    if (!quick) turned_trial(4096, 2048, 2048, 0);
}

static void bits_of_8() {
    if (!wanted("absmax quantize update_amax norm_statistics")) return;
    for (int d : floats)
        for (bool centred : {false, true}) {
            statistics_trial(d, centred, 33, 256);
            statistics_trial(d, centred, 5, 77);
        }
    for (bool skips : {false, true})
        for (int64_t ranks : {1, 3}) history_trial(300, ranks, skips);
    for (int from : floats)
        for (int to : {FP8_E4M3, FP8_E5M2})
            for (int64_t f : {0, (int)SC_GELU, SC_GELU | SC_GRADIENT, (int)SC_GATED, (int)GATES, (int)RMS,
                              (int)RMS_PLAIN, (int)LAYER, (int)LAYER_PLAIN}) {
                delayed_trial(from, to, f, 160, 192, 0, 0, true, false);
                delayed_trial(from, to, f, 128, 64, 0, 40, false, false);
                delayed_trial(from, to, f, 64, 80, 1.5f, 0.25f, true, false);
                delayed_trial(from, to, f, 67, 35, 9, 0, true, false);
                if (!f && from != FP16) delayed_trial(from, to, f, 32, 64, 9, 0, true, true);
                if (!quick) delayed_trial(from, to, f, 4096, 2048, 0, 0, true, false);
            }
    for (int from : floats)
        for (int to : {FP8_E4M3, FP8_E5M2}) {
            quantize_trial(from, to, {2, 64, 128}, false, true, 0, 9);
            quantize_trial(from, to, {144, 208}, true, false, 0, 0.5);
            quantize_trial(from, to, {48, 80}, false, false, 0, 20);
            quantize_trial(from, to, {131, 67}, false, true, 0, 9);
            quantize_trial(from, to, {32, 64}, true, false, 1, 9);
            quantize_trial(from, to, {32, 64}, false, true, 0, 0);
            quantize_trial(from, to, {16, 16}, false, true, 0, -1);
            quantize_trial(from, to, {144, 80}, false, true, 0, 9, 77);
            quantize_trial(from, to, {131, 67}, false, true, 0, 9, 130);
            quantize_trial(from, to, {64, 64}, true, false, 0, 9, 0);
            if (!quick) quantize_trial(from, to, {4096, 2048}, false, true, 0, 12);
        }
}

/* ── products of groups ───────────────────────────────────────────────────────────────────────────────────────────────
 */
struct groups {
    std::vector<int> counts;
    int64_t rows;

    int of(int64_t row) const { /* -1: no group's */
        int64_t end = 0;
        for (size_t g = 0; g < counts.size(); g++)
            if (row < (end += std::max(counts[g], 0))) return (int)g;
        return -1;
    }
};

/* How far sums may be off beside fp32's: tensor cores of compute capability 9.0 add up 32 products of 8 bits by some 14
 * bits of the largest one, which may be of the size of a sum here. */
static double of_hopper() {
    return library.major == 9 ? 4e-3 : 0;
}

/* With both kinds of kernels. Rows of no group and those of group `bad` (-1: none) are NaN: no other result may be. */
struct product_of_8 {
    pool p;
    groups who;
    int of_a, of_b, out, bad;
    tensor *counts, *scale_a, *scale_b;
    float scale;

    product_of_8(const groups &g, int a, int b, int y, int nan) : who(g), of_a(a), of_b(b), out(y), bad(nan) {
        counts = &p.integers({(int64_t)who.counts.size()}, 0, 1);
        fill(*counts, [&, i = 0]() mutable { return who.counts[i++]; });
        scale_a = &p.empty(FP32, {1}), scale_b = &p.empty(FP32, {1});
        fill(*scale_a, [] { return 0.0371f; });
        fill(*scale_b, [] { return 0.0042f; });
        scale = (float)scale_a->x[0] * (float)scale_b->x[0];
    }
    tensor &numbers_of(int d, const extents &shape, bool by_row, bool turned) { /* turned: rows are columns */
        tensor &t = p.empty(d, shape);
        fill(t, [&, i = 0]() mutable {
            int64_t row = turned ? i % shape[1] : i / shape[1];
            i++;
            int g = by_row ? who.of(row) : 0;
            return by_row && (g < 0 || g == bad) ? (double)NAN : 8 * normal();
        });
        return t;
    }
    std::string name(const char *what, int64_t m, int64_t n) const {
        return text_of("%s %s*%s>%s of %lld rows in %zu groups, %lld x %lld%s%s", what, dtype_text(of_a),
                       dtype_text(of_b), dtype_text(out), (long long)who.rows, who.counts.size(), (long long)m,
                       (long long)n, bad >= 0 ? " one NaN" : "", library.major == 9 ? " hopper" : "");
    }

    /* b: [groups][n][k], or turned, [n][groups k]. */
    void rows(int64_t k, int64_t n, bool turned, bool biased) {
        int64_t all = (int64_t)who.counts.size();
        tensor &a = numbers_of(of_a, {who.rows, k}, true, false), &y = p.empty(out, {who.rows, n});
        tensor &b = numbers_of(of_b, turned ? extents{n, all * k} : extents{all, n, k}, false, false);
        tensor &bias = p.random(out, {all, n});
        numbers want((size_t)(who.rows * n), 0);
        for (int64_t r = 0; r < who.rows; r++)
            for (int64_t j = 0, g = who.of(r); g >= 0 && j < n; j++) {
                double sum = 0;
                for (int64_t i = 0; i < k; i++)
                    sum += a.x[r * k + i] * b.x[turned ? (j * all + g) * k + i : (g * n + j) * k + i];
                want[r * n + j] = sum * scale + (biased ? bias.x[g * n + j] : 0);
            }
        trial t(name(biased   ? "grouped_matmul bias"
                     : turned ? "grouped_matmul turned"
                              : "grouped_matmul",
                     k, n),
                sc_grouped_matmul_args{.y = y.t,
                                       .a = a.t,
                                       .b = b.t,
                                       .counts = counts->t,
                                       .bias = given(biased, bias),
                                       .scale_a = scale_a->t,
                                       .scale_b = scale_b->t,
                                       .trans_b = !turned});
        t.run();
        t.expect("y", y, want, 64 * sqrt((double)k) * scale, of_hopper());
    }
    /* a: [m][rows], c: [n][rows]. */
    void over(int64_t m, int64_t n) {
        int64_t all = (int64_t)who.counts.size();
        tensor &a = numbers_of(of_a, {m, who.rows}, true, true), &c = numbers_of(of_b, {n, who.rows}, true, true);
        tensor &y = p.empty(out, {all, m, n});
        numbers want((size_t)(all * m * n), 0);
        for (int64_t r = 0; r < who.rows; r++)
            for (int64_t i = 0, g = who.of(r); g >= 0 && i < m; i++)
                for (int64_t j = 0; j < n; j++)
                    want[(g * m + i) * n + j] += a.x[i * who.rows + r] * c.x[j * who.rows + r] * scale;
        trial t(name("grouped_matmul_grad", m, n),
                sc_grouped_matmul_grad_args{
                    .y = y.t, .a = a.t, .c = c.t, .counts = counts->t, .scale_a = scale_a->t, .scale_c = scale_b->t});
        t.run();
        t.expect("y", y, want, 64 * sqrt((double)who.rows) * scale, of_hopper());
    }
};

static void groups_trials(const groups &who, int64_t k, int64_t n, int out) {
    for (int e5m2 = 0; e5m2 < 3; e5m2++)
        for (int bad : {-1, 1}) {
            int a = e5m2 == 1 ? FP8_E5M2 : FP8_E4M3, b = e5m2 == 2 ? FP8_E5M2 : FP8_E4M3;
            product_of_8 trials(who, a, b, out, bad);
            if (e5m2 < 2) trials.rows(k, n, e5m2 == 1, false);
            if (e5m2 < 2) trials.rows(k, n, e5m2 == 0, e5m2 == 0);
            trials.over(k, n);
        }
}

static void products_of_groups() {
    if (!wanted("grouped_matmul")) return;
    int here = library.major;
    for (int major : {8, here}) {
        library.major = major;
        groups_trials({{64, 0, 30, 50}, 160}, 96, 64, BF16);
        groups_trials({{17, 100, 3, 0, 8}, 128}, 64, 80, FP32);
        groups_trials({{0, 33, 0}, 64}, 144, 272, FP16);
        groups_trials({{100, 900}, 112}, 64, 64, BF16); /* more than there are */
        groups_trials({{5, 20, 6}, 33}, 35, 47, FP32);
        if (!quick) groups_trials({{700, 300, 0, 129, 511, 383}, 2048}, 512, 768, BF16);
        if (!quick) groups_trials({{700, 300, 0, 129, 511, 383}, 2048}, 400, 528, FP32);
        if (here != 9) break;
    }
    library.major = here;
}

int main(int argc, char **argv) {
    start(argc, argv);
    magnitudes();
    bits_of_8();
    blocks_of_8();
    products_of_groups();
    gathers_of_8();
    return closing();
}
