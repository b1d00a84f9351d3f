/* The kernels that draw numbers or update parameters (dropout, init_param, the optimizers, clipping) against references
 * in double.
 * Relies on: trial.h, runtime/cuda/k_*.cu.
 * Relied on by: make gpu-test. Arguments as test_kernels.cu's. */
#include "trial.h"

/* ── random ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static uint32_t word_of(uint64_t key, uint32_t a, uint32_t b, uint64_t element) {
    sc_block c = {{(uint32_t)(element / 4), (uint32_t)(element / 4 >> 32), a, b}};
    return sc_philox(c, (uint32_t)key, (uint32_t)(key >> 32)).w[element % 4];
}

static void dropout_trial(int d, const extents &shape, double rate, bool in_place) {
    pool p;
    tensor &x = p.random(d, shape), &y = in_place ? x : p.empty(d, shape);
    uint64_t key = sc_stream_key(record.seed, 1234);
    int64_t n = count(x) / shape[0];
    numbers want(x.x.size());
    for (int64_t i = 0; i < count(x); i++) {
        uint32_t word = word_of(key, (uint32_t)(record.first_sample + i / n), (uint32_t)record.step, (uint64_t)(i % n));
        want[i] = word >= (uint32_t)(rate * 4294967296.0) ? (float)x.x[i] * (float)(1 / (1 - rate)) : 0;
    }
    trial t(text_of("dropout %s of %lld samples of %lld, p %g%s", dtype_text(d), (long long)shape[0], (long long)n,
                    rate, in_place ? " in place" : ""),
            {&y, &x}, 1);
    t.t.f[0] = rate;
    t.t.i[0] = 1234;
    t.run(sc_k_dropout);
    t.expect("y", y, want, 0);
}

enum { ZEROS, ONES, CONSTANT, NORMAL, UNIFORM, TRUNC_NORMAL };

static double drawn(int kind, uint64_t key, double a, double b, int64_t i) {
    if (kind <= CONSTANT) return kind == CONSTANT ? a : kind;
    if (kind == UNIFORM) return a + (b - a) * (word_of(key, 0, 0, (uint64_t)i) / 4294967296.0);
    for (uint32_t attempt = 0;; attempt++) {
        double r = sqrt(-2 * log((word_of(key, attempt, 0, (uint64_t)(i / 2 * 2)) + 0.5) / 4294967296.0));
        double angle = 2 * M_PI / 4294967296.0 * word_of(key, attempt, 0, (uint64_t)(i / 2 * 2 + 1));
        double z = r * (i % 2 ? sin(angle) : cos(angle));
        if (kind == NORMAL || fabs(z) <= 2) return a + b * z;
    }
}

/* A parameter of 3001 elements at flat offset 512, of which this rank holds its slice. */
static void init_trial(int d, int kind, int shard, int64_t size) {
    pool p;
    int64_t flat = size < 0 ? 0 : 512, numel = 3001, low = size < 0 ? 0 : shard * size, n = size < 0 ? numel : size;
    tensor &y = p.random(d, {n});
    numbers want = y.x;
    uint64_t key = sc_stream_key(record.seed, 77);
    for (int64_t i = 0; i < numel; i++) {
        int64_t at = flat + i - low;
        if (at >= 0 && at < n) want[at] = drawn(kind, key, 0.25, 1.5, i);
    }
    trial t(text_of("init_param %s kind %d%s", dtype_text(d), kind,
                    size < 0 ? " a buffer" : text_of(" shard %d", shard).c_str()),
            {&y}, 1);
    t.t.i[0] = kind, t.t.i[1] = 77, t.t.i[2] = flat, t.t.i[3] = numel, t.t.i[4] = size, t.t.i[5] = 3;
    t.t.f[0] = 0.25, t.t.f[1] = 1.5;
    t.t.rank = shard;
    t.run(sc_k_init_param);
    t.expect("y", y, want, 1, 1e-6);
}

static void randoms() {
    if (!wanted("dropout init_param")) return;
    for (int d : floats) {
        dropout_trial(d, {3, 40, 16}, 0.1, false);
        dropout_trial(d, {5, 33}, 0.5, true);
        dropout_trial(d, {2, 4099}, 0.9, false);
        dropout_trial(d, {64}, 0.25, true);
        for (int kind = ZEROS; kind <= TRUNC_NORMAL; kind++) {
            init_trial(d, kind, 0, -1);
            for (int shard = 0; shard < 3; shard++) init_trial(d, kind, shard, 1281);
        }
    }
}

/* ── optimizers ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
struct optimizer_case {
    int grad, master, moments;
    bool flag; /* decoupled, nesterov */
    int shard;
    int64_t shard_numel;
    std::vector<int64_t> table;
};
static std::string name_of(const char *what, const optimizer_case &c) {
    return text_of("%s %s/%s/%s%s shard %d of %lld, %d segments", what, dtype_text(c.grad), dtype_text(c.master),
                   dtype_text(c.moments), c.flag ? " with flag" : "", c.shard, (long long)c.shard_numel,
                   (int)c.table.size() / 3);
}
static int group_of(const optimizer_case &c, int64_t i) {
    for (size_t s = 0; s + 2 < c.table.size(); s += 3)
        if (i + c.shard * c.shard_numel >= c.table[s] && i + c.shard * c.shard_numel < c.table[s + 1])
            return (int)c.table[s + 2];
    return -1;
}
static void set_table(trial &t, const optimizer_case &c) {
    t.t.i[0] = c.flag, t.t.i[1] = c.shard_numel, t.t.i[2] = 4;
    t.t.table = c.table.data();
    t.t.ntable = (int)c.table.size();
    t.t.rank = c.shard;
}

static void adam_trial(const optimizer_case &c) {
    pool p;
    int64_t n = c.shard_numel;
    tensor &g = p.random(c.grad, {n}), &w = p.random(c.master, {n}), &m = p.random(c.moments, {n}, {}, 0, 0.1);
    tensor &v = p.empty(c.moments, {n}), &clip = p.empty(FP32, {1}), &step = p.empty(INT64, {1});
    fill(v, [&] { return fabs(normal()) * 0.01; });
    fill(clip, [] { return 0.7; });
    fill(step, [] { return 5.0; });
    numbers ww = w.x, wm = m.x, wv = v.x, start = w.x, start_m = m.x, start_v = v.x;
    double b1 = record.beta1, b2 = record.beta2;
    for (int64_t i = 0; i < n; i++) {
        int group = group_of(c, i);
        if (group < 0) continue;
        double lr = record.lr[group], decay = record.weight_decay[group];
        double d = g.x[i] * clip.x[0] + (c.flag ? 0 : decay * w.x[i]);
        wm[i] = b1 * m.x[i] + (1 - b1) * d;
        wv[i] = b2 * v.x[i] + (1 - b2) * d * d;
        ww[i] = w.x[i] * (c.flag ? 1 - lr * decay : 1) -
                lr / (1 - pow(b1, 5)) * wm[i] / (sqrt(wv[i]) / sqrt(1 - pow(b2, 5)) + record.eps);
    }
    for (int wire = -1; wire < 2; wire++) { /* none, bf16, fp16: the new master, rounded again, where a segment is */
        tensor &to = p.random(wire ? BF16 : FP16, {n});
        numbers want = to.x;
        std::vector<tensor *> all = {&g, &w, &clip, &m, &v, &step};
        if (wire >= 0) all.push_back(&to);
        if (wire >= 0 && c.master != FP32) break;
        trial t(name_of("adam", c) + (wire < 0 ? ""
                                      : wire   ? ", bf16 wire"
                                               : ", fp16 wire"),
                all, 2 + 8 + 16 + (wire < 0 ? 0 : 64));
        set_table(t, c);
        t.run(sc_k_adam);
        t.expect("master", w, ww, 0.05, 1e-6);
        t.expect("m", m, wm, 0.1, 1e-6);
        t.expect("v", v, wv, 1e-3, 1e-6);
        for (int64_t i = 0; i < n; i++)
            if (group_of(c, i) >= 0) want[i] = w.x[i];
        if (wire >= 0) t.expect("wire", to, want, 1e-3);
        fill(w, [&, i = (int64_t)0]() mutable { return start[i++]; });
        for (tensor *moment : {&m, &v}) {
            const numbers &x = moment == &m ? start_m : start_v;
            fill(*moment, [&, i = (int64_t)0]() mutable { return x[i++]; });
        }
    }
}

static void sgd_trial(const optimizer_case &c, bool momentum) {
    pool p;
    int64_t n = c.shard_numel;
    tensor &g = p.random(c.grad, {n}), &w = p.random(c.master, {n}), &b = p.random(c.moments, {n});
    tensor &clip = p.empty(FP32, {1});
    fill(clip, [] { return 0.7; });
    numbers ww = w.x, wb = b.x;
    for (int64_t i = 0; i < n; i++) {
        int group = group_of(c, i);
        if (group < 0) continue;
        double d = g.x[i] * clip.x[0] + record.weight_decay[group] * w.x[i];
        if (momentum) {
            wb[i] = record.momentum * b.x[i] + d;
            d = c.flag ? d + record.momentum * wb[i] : wb[i];
        }
        ww[i] = w.x[i] - record.lr[group] * d;
    }
    std::vector<tensor *> all = {&g, &w, &clip};
    if (momentum) all.push_back(&b);
    trial t(name_of(momentum ? "sgd with momentum" : "sgd", c), all, momentum ? 10 : 2);
    set_table(t, c);
    t.run(sc_k_sgd);
    t.expect("master", w, ww, 0.05, 1e-6);
    if (momentum) t.expect("momentum", b, wb, 0.1, 1e-6);
}

static void sum_squares_trial(int d, int64_t n, int64_t shift) {
    pool p;
    tensor &x = p.random(d, {n}, {}, shift), &y = p.empty(FP32, {1}), &work = p.work((n + 4095) / 4096 * 4);
    double sum = 0;
    for (double v : x.x) sum += v * v;
    trial t(text_of("sum_squares %s of %lld%s", dtype_text(d), (long long)n, shift ? " shifted" : ""), {&y, &x, &work},
            5);
    t.run(sc_k_sum_squares);
    t.expect("y", y, {sum}, 0);
}

static void optimizers() {
    if (!wanted("adam sgd sum_squares clip_coefficient count_step")) return;
    std::vector<int64_t> plain = {0, 9000, 1, 9216, 11111, 2, 11264, 20000, 0}, many;
    for (int64_t s = 0; s < 150; s++)
        for (int64_t x : {s * 256, s * 256 + 200 + s % 56, s % 3}) many.push_back(x);
    for (int grad : floats)
        for (int master : floats)
            for (int moments : {FP32, BF16}) {
                bool flag = (grad + master + moments) % 2;
                adam_trial({grad, master, moments, flag, 1, 5120, plain});
                sgd_trial({grad, master, moments, flag, 1, 5120, plain}, true);
                sgd_trial({grad, master, moments, flag, 0, 4096, plain}, false);
            }
    for (int shard = 0; shard < 4; shard++) {
        adam_trial({BF16, FP32, FP32, true, shard, 9728, many});
        sgd_trial({FP32, FP32, FP32, true, shard, 9728, many}, true);
        adam_trial({FP32, FP32, FP32, false, shard, 6000, {100, 17001, 3}});
    }
    for (int d : floats) {
        sum_squares_trial(d, 4096 * 3, 0);
        sum_squares_trial(d, 10001, 0);
        sum_squares_trial(d, 5000, 1);
    }
    pool p;
    tensor &coefficient = p.empty(FP32, {1}), &norm = p.empty(FP32, {1}), &sums = p.empty(FP32, {35});
    for (double size : {1.0, 0.001}) {
        double sum = 0;
        fill(sums, [&] { return size * fabs(normal()); });
        for (double v : sums.x) sum += v;
        trial t(text_of("clip_coefficient, norm %g", sqrt(sum)), {&coefficient, &norm, &sums}, 3);
        t.run(sc_k_clip_coefficient);
        t.expect("coefficient", coefficient, {fmin(1, record.clip / (sqrt(sum) + 1e-6))}, 0);
        t.expect("norm", norm, {sqrt(sum)}, 0);
    }
    tensor &step = p.integers({1}, 41, 42, INT64);
    trial t("count_step", {&step}, 1);
    t.run(sc_k_count_step);
    t.expect("step", step, {42}, -1);
}

int main(int argc, char **argv) {
    start(argc, argv);
    randoms();
    optimizers();
    return closing();
}
