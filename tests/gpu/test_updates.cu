/* The kernels that draw numbers or update parameters (dropout, init_param, the optimizers, clipping, the loss scale,
 * gradients of tables as rows) against references in double or, where they say in which order they round,
 * in that order; the optimizers' bits against the update rules on the host. Relies on: trial.h, sc_optimizer.h,
 * runtime/cuda/k_*.cu. Relied on by: make gpu-test. Arguments as test_kernels.cu's. */
#include "trial.h"

#include "../../runtime/sc_moments8.h"
#include "../../runtime/sc_optimizer.h"
#include "../../runtime/schema/matrices.h"
#include "../../runtime/schema/workspace.h"

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
            sc_dropout_args{.y = y.t, .x = x.t, .key = 1234, .p = rate});
    t.run();
    t.expect("y", y, want, 0);
}

static double drawn(int kind, uint64_t key, double a, double b, int64_t i) {
    if (kind <= SC_CONSTANT) return kind == SC_CONSTANT ? a : kind;
    if (kind == SC_UNIFORM) return a + (b - a) * (word_of(key, 0, 0, (uint64_t)i) / 4294967296.0);
    for (uint32_t attempt = 0;; attempt++) {
        double r = sqrt(-2 * log((word_of(key, attempt, 0, (uint64_t)(i / 2 * 2)) + 0.5) / 4294967296.0));
        double angle = 2 * M_PI / 4294967296.0 * word_of(key, attempt, 0, (uint64_t)(i / 2 * 2 + 1));
        double z = r * (i % 2 ? sin(angle) : cos(angle));
        if (kind == SC_NORMAL || fabs(z) <= 2) return a + b * z;
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
    trial t(
        text_of("init_param %s kind %d%s", dtype_text(d), kind,
                size < 0 ? " a buffer" : text_of(" shard %d", shard).c_str()),
        sc_init_param_args{
            .state = y.t, .kind = kind, .key = 77, .offset = flat, .numel = numel, .slice = size, .a = 0.25, .b = 1.5});
    t.place[0].at = shard;
    t.run();
    t.expect("y", y, want, 1, 1e-6);
}

static void randoms() {
    if (!wanted("dropout init_param")) return;
    for (int d : floats) {
        dropout_trial(d, {3, 40, 16}, 0.1, false);
        dropout_trial(d, {5, 33}, 0.5, true);
        dropout_trial(d, {2, 4099}, 0.9, false);
        dropout_trial(d, {64}, 0.25, true);
        for (int kind = SC_ZEROS; kind <= SC_TRUNC_NORMAL; kind++) {
            init_trial(d, kind, 0, -1);
            for (int shard = 0; shard < 3; shard++) init_trial(d, kind, shard, 1281);
        }
    }
    for (int kind : {SC_ZEROS, SC_ONES}) init_trial(INT32, kind, 0, -1);
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
static int64_t flat_of(const optimizer_case &c, int64_t i) {
    return i + c.shard * c.shard_numel;
}
static int segment_of(const optimizer_case &c, int64_t i) { /* -1: a gap */
    for (size_t s = 0; s + 2 < c.table.size(); s += 3)
        if (flat_of(c, i) >= c.table[s] && flat_of(c, i) < c.table[s + 1]) return (int)s;
    return -1;
}
static int group_of(const optimizer_case &c, int64_t i) {
    int s = segment_of(c, i);
    return s < 0 ? -1 : (int)c.table[(size_t)s + 2];
}
static int64_t key_of(size_t segment) {
    return (int64_t)sc_mix(segment + 1);
}
/* With moments of bf16 every segment is a parameter's and ends with its key. */
static std::vector<int64_t> rows_of(const optimizer_case &c) {
    if (c.moments != BF16) return c.table;
    std::vector<int64_t> rows;
    for (size_t s = 0; s + 2 < c.table.size(); s += 3)
        for (int64_t x : {c.table[s], c.table[s + 1], c.table[s + 2], key_of(s)}) rows.push_back(x);
    return rows;
}

/* A moment as it is stored, and the bits that the update rules give on the host, where element i is in a segment. */
static uint32_t rounding_word(const optimizer_case &c, int64_t i) {
    int s = segment_of(c, i);
    sc_rounding d = sc_rounding_of(&record, (uint64_t)key_of((size_t)s));
    return word_of(d.key, d.a, d.b, (uint64_t)(flat_of(c, i) - c.table[(size_t)s]));
}
static double stored(int dtype, double x) {
    unsigned char bytes[8];
    encode(dtype, bytes, x);
    return decode(dtype, bytes);
}
static void update_on_host(const optimizer_case &c, const sc_rule &rule, sc_constants step, int64_t i, double grad,
                           double *w, double *m, double *v) {
    float p = (float)*w, a = (float)*m, b = (float)*v;
    sc_constants constants = rule.group(step, &record, group_of(c, i));
    rule.element(&constants, (float)grad, &p, &a, &b);
    uint32_t word = rounding_word(c, i);
    *w = stored(c.master, p);
    *m = c.moments == BF16 ? sc_round_bf16(a, word) : a;
    *v = c.moments == BF16 ? sc_round_bf16(b, word >> 16) : b;
}

/* wide: gradients and moments that are 0 or of any size, from subnormals up; the bits only. */
static void adam_trial(const optimizer_case &c, bool wide = false) {
    pool p;
    int64_t n = c.shard_numel;
    tensor &g = p.random(c.grad, {n}), &w = p.random(c.master, {n}), &m = p.random(c.moments, {n}, {}, 0, 0.1);
    tensor &v = p.empty(c.moments, {n}), &clip = p.empty(FP32, {1}), &step = p.empty(INT64, {1});
    fill(v, [&] { return fabs(normal()) * 0.01; });
    auto any = [](int low, int high) {
        return fabs(uniform()) < 0.1 ? 0 : ldexp(uniform(), low + (int)(fabs(uniform()) * (high - low)));
    };
    if (wide) {
        fill(g, [&] { return fabs(uniform()) < 0.5 ? 0 : any(-140, 10); });
        fill(m, [&] { return any(-149, 80); });
        fill(v, [&] { return fabs(any(-149, 40)); });
    }
    fill(clip, [] { return 0.7; });
    fill(step, [] { return 5.0; });
    numbers ww = w.x, wm = m.x, wv = v.x, start = w.x, start_m = m.x, start_v = v.x;
    numbers hw = w.x, hm = m.x, hv = v.x; /* as the host's source has it */
    std::vector<int64_t> rows = rows_of(c);
    sc_constants step_5 = sc_adam.step(&record.of[0], 5, (float)clip.x[0], c.flag);
    double b1 = record.of[0].beta1, b2 = record.of[0].beta2;
    for (int64_t i = 0; i < n; i++) {
        int group = group_of(c, i);
        if (group < 0) continue;
        double lr = record.lr[group], decay = record.weight_decay[group];
        double d = g.x[i] * clip.x[0] + (c.flag ? 0 : decay * w.x[i]);
        wm[i] = b1 * m.x[i] + (1 - b1) * d;
        wv[i] = b2 * v.x[i] + (1 - b2) * d * d;
        ww[i] = w.x[i] * (c.flag ? 1 - lr * decay : 1) -
                lr / (1 - pow(b1, 5)) * wm[i] / (sqrt(wv[i]) / sqrt(1 - pow(b2, 5)) + record.of[0].eps);
        update_on_host(c, sc_adam, step_5, i, g.x[i], &hw[i], &hm[i], &hv[i]);
    }
    /* none, bf16, fp16: the new master, rounded again, where a segment is */
    for (int wire = -1; wire < (wide ? 0 : 2); wire++) {
        tensor &to = p.random(wire ? BF16 : FP16, {n});
        numbers want = to.x;
        if (wire >= 0 && c.master != FP32) break;
        const char *what = wide ? "adam, moments of any size" : "adam";
        trial t(name_of(what, c) + (wire < 0 ? ""
                                    : wire   ? ", bf16 wire"
                                             : ", fp16 wire"),
                sc_adam_args{.grad = g.t,
                             .master = w.t,
                             .coefficient = clip.t,
                             .m = m.t,
                             .v = v.t,
                             .step = step.t,
                             .wire = given(wire >= 0, to),
                             .table = rows.data(),
                             .ntable = (int64_t)rows.size(),
                             .decoupled = c.flag,
                             .slice = c.shard_numel});
        t.place[0].at = c.shard;
        t.run();
        double up = c.moments == BF16 ? 4e-3 : 0; /* to either neighbour, not the nearer */
        if (!wide) {
            t.expect("master", w, ww, 0.05, 1e-6);
            t.expect("m", m, wm, 0.1, 1e-6 + up);
            t.expect("v", v, wv, 1e-3, 1e-6 + up);
        }
        t.expect("master's bits", w, hw, -1);
        t.expect("m's bits", m, hm, -1);
        t.expect("v's bits", v, hv, -1);
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

static void lion_trial(const optimizer_case &c) {
    pool p;
    int64_t n = c.shard_numel;
    tensor &g = p.random(c.grad, {n}), &w = p.random(c.master, {n}), &m = p.random(c.moments, {n}, {}, 0, 0.1);
    tensor &clip = p.empty(FP32, {1}), &wire = p.random(BF16, {n});
    fill(clip, [] { return 0.7; });
    numbers ww = w.x, wm = m.x, hw = w.x, hm = m.x, none(1), want = wire.x;
    std::vector<int64_t> rows = rows_of(c);
    sc_constants step = sc_lion.step(&record.of[0], 0, (float)clip.x[0], c.flag);
    double b1 = record.of[0].beta1, b2 = record.of[0].beta2;
    for (int64_t i = 0; i < n; i++) {
        int group = group_of(c, i);
        if (group < 0) continue;
        double lr = record.lr[group], d = g.x[i] * clip.x[0], between = b1 * m.x[i] + (1 - b1) * d;
        wm[i] = b2 * m.x[i] + (1 - b2) * d;
        ww[i] = w.x[i] * (1 - lr * record.weight_decay[group]) - lr * ((between > 0) - (between < 0));
        update_on_host(c, sc_lion, step, i, g.x[i], &hw[i], &hm[i], &none[0]);
        want[i] = sc_from_bf16(sc_to_bf16((float)hw[i]));
    }
    trial t(name_of("lion", c), sc_lion_args{.grad = g.t,
                                             .master = w.t,
                                             .coefficient = clip.t,
                                             .m = m.t,
                                             .wire = given(c.master == FP32, wire),
                                             .table = rows.data(),
                                             .ntable = (int64_t)rows.size(),
                                             .slice = c.shard_numel});
    t.place[0].at = c.shard;
    t.run();
    t.expect("master", w, ww, 0.05, 1e-6);
    t.expect("master's bits", w, hw, -1);
    t.expect("momentum", m, wm, 0.1, 1e-6 + (c.moments == BF16 ? 4e-3 : 0));
    t.expect("momentum's bits", m, hm, -1);
    if (c.master == FP32) t.expect("wire", wire, want, -1);
}

static void muon_trial(const optimizer_case &c) {
    pool p;
    int64_t n = c.shard_numel;
    tensor &g = p.random(c.grad, {n}), &m = p.random(c.moments, {n}), &y = p.random(BF16, {n}),
           &clip = p.empty(FP32, {1});
    tensor &w = p.random(c.master, {n}), &wire = p.random(FP16, {n});
    fill(clip, [] { return 0.7; });
    numbers hm = m.x, hy(n, 0), hw = w.x, want = wire.x, none(1);
    std::vector<int64_t> rows = rows_of(c), scaled;
    for (size_t s = 0; s + 2 < c.table.size(); s += 3)
        for (int64_t x : {c.table[s], c.table[s + 1], c.table[s + 2], sc_bits64(0.25 + (double)s)}) scaled.push_back(x);
    sc_constants step = sc_muon.step(&record.of[0], 0, (float)clip.x[0], c.flag);
    optimizer_case before = c;
    before.master = BF16; /* what is orthogonalized takes the master's place */
    for (int64_t i = 0; i < n; i++) {
        int group = group_of(c, i);
        if (group < 0) continue;
        update_on_host(before, sc_muon_momentum, step, i, g.x[i], &hy[i], &hm[i], &none[0]);
        sc_constants own = sc_muon.group(step, &record, group);
        own.rate *= (float)(0.25 + segment_of(c, i));
        float x = (float)w.x[i], unused = 0;
        sc_muon.element(&own, (float)hy[i], &x, &unused, &unused);
        hw[i] = stored(c.master, x);
        want[i] = stored(FP16, x);
    }
    trial first(name_of("muon_momentum", c), sc_muon_momentum_args{.update = y.t,
                                                                   .grad = g.t,
                                                                   .coefficient = clip.t,
                                                                   .momentum = m.t,
                                                                   .table = rows.data(),
                                                                   .ntable = (int64_t)rows.size(),
                                                                   .nesterov = c.flag,
                                                                   .slice = n});
    first.place[0].at = c.shard;
    first.run();
    first.expect("momentum's bits", m, hm, -1);
    first.expect("update's bits", y, hy, -1);
    trial t(name_of("muon", c), sc_muon_args{.grad = y.t,
                                             .master = w.t,
                                             .coefficient = clip.t,
                                             .wire = given(c.master == FP32, wire),
                                             .table = scaled.data(),
                                             .ntable = (int64_t)scaled.size(),
                                             .slice = n});
    t.place[0].at = c.shard;
    t.run();
    t.expect("master's bits", w, hw, -1);
    if (c.master == FP32) t.expect("wire", wire, want, -1);
}

/* The steps in double with PyTorch's roundings; x [rows][cols]. */
static numbers orthogonalized(const numbers &x, int rows, int cols, int steps, const double *abc) {
    auto as = [](double v) { return stored(BF16, v); };
    int r = min(rows, cols), c = max(rows, cols);
    double squares = 0;
    for (double v : x) squares += v * v;
    double norm = max(as(sqrt(squares)), as(record.of[0].eps));
    numbers w((size_t)(r * c)), next = w, a((size_t)(r * r)), b = a, y = x;
    for (int i = 0; i < r; i++)
        for (int j = 0; j < c; j++) w[i * c + j] = as(x[rows > cols ? j * cols + i : i * cols + j] / norm);
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < r * r; i++) {
            double sum = 0;
            for (int k = 0; k < c; k++) sum += w[i / r * c + k] * w[i % r * c + k];
            a[i] = as(sum);
        }
        for (int i = 0; i < r * r; i++) {
            double sum = 0;
            for (int k = 0; k < r; k++) sum += a[i / r * r + k] * a[k * r + i % r];
            b[i] = as(abc[1] * a[i] + abc[2] * sum);
        }
        for (int i = 0; i < r * c; i++) {
            double sum = abc[0] * w[i];
            for (int k = 0; k < r; k++) sum += b[i / c * r + k] * w[k * c + i % c];
            next[i] = as(sum);
        }
        w.swap(next);
    }
    for (int i = 0; i < r; i++)
        for (int j = 0; j < c; j++) y[rows > cols ? j * cols + i : i * cols + j] = w[i * c + j];
    return y;
}

/* Rows of the table with gaps between them, every other one another rank's. */
static void orthogonalize_trial(std::vector<sc_matrices> all, int steps) {
    static const double abc[] = {3.4445, -4.7750, 2.0315};
    pool p;
    int64_t numel = 0, bytes = 0;
    std::vector<int64_t> table;
    for (size_t i = 0; i < all.size(); i++) {
        sc_matrices &m = all[i];
        int64_t r = sc_matrices_short(m), c = sc_matrices_long(m);
        m.at = numel, m.owner = (int64_t)i % 2;
        for (int64_t x : {m.at, m.count, m.rows, m.cols, m.owner}) table.push_back(x);
        numel += (m.count * m.rows * m.cols + 255) / 256 * 256;
        bytes = max(bytes, max(sc_cuda_orthogonalize_batch(r, c, m.count) * sc_cuda_orthogonalize_bytes(r, c),
                               sc_cuda_orthogonalize_together(m.rows, m.cols)));
    }
    tensor &x = p.random(BF16, {numel}), &y = p.random(BF16, {numel}), &work = p.empty(BOOL, {bytes});
    numbers want((size_t)numel, 0);
    for (const sc_matrices &m : all)
        for (int64_t j = 0, size = m.rows * m.cols; j < m.count && m.owner == 0; j++) {
            numbers one(x.x.begin() + m.at + j * size, x.x.begin() + m.at + (j + 1) * size);
            one = orthogonalized(one, (int)m.rows, (int)m.cols, steps, abc);
            std::copy(one.begin(), one.end(), want.begin() + m.at + j * size);
        }
    trial t(text_of("orthogonalize %lld matrices of %lld x %lld, %d steps", (long long)all[0].count,
                    (long long)all[0].rows, (long long)all[0].cols, steps),
            sc_orthogonalize_args{.y = y.t,
                                  .x = x.t,
                                  .work = work.t,
                                  .table = table.data(),
                                  .ntable = (int64_t)table.size(),
                                  .steps = steps,
                                  .abc = {abc[0], abc[1], abc[2]}});
    t.run();
    t.expect("y", y, want, 0.3, 0.05); /* what rounds to the other bf16 grows from step to step */
}

static void matrices() {
    if (!wanted("orthogonalize")) return;
    orthogonalize_trial({{0, 1, 24, 24, 0}, {0, 1, 8, 8, 0}, {0, 1, 1, 40, 0}}, 5);
    orthogonalize_trial({{0, 1, 17, 70, 0}}, 5);
    orthogonalize_trial({{0, 1, 70, 17, 0}}, 5);
    orthogonalize_trial({{0, 5, 12, 33, 0}}, 4);
    orthogonalize_trial({{0, 1, 130, 150, 0}}, 1); /* more than a tile, and a step through all three products */
    orthogonalize_trial({{0, 1, 264, 131, 0}}, 2);
    /* those that the kernels for compute capability 9.0 take, tall and wide ones together */
    orthogonalize_trial(
        {{0, 1, 128, 64, 0}, {0, 1, 64, 64, 0}, {0, 3, 64, 192, 0}, {0, 2, 64, 64, 0}, {0, 1, 256, 320, 0}}, 5);
    orthogonalize_trial({{0, 2, 320, 128, 0}}, 2);
}

static void sgd_trial(const optimizer_case &c, bool momentum) {
    pool p;
    int64_t n = c.shard_numel;
    tensor &g = p.random(c.grad, {n}), &w = p.random(c.master, {n}), &b = p.random(c.moments, {n});
    tensor &clip = p.empty(FP32, {1});
    fill(clip, [] { return 0.7; });
    numbers ww = w.x, wb = b.x, hw = w.x, hb = b.x, none(1);
    std::vector<int64_t> rows = momentum ? rows_of(c) : c.table;
    const sc_rule &rule = momentum ? sc_momentum : sc_sgd;
    sc_constants step = rule.step(&record.of[0], 0, (float)clip.x[0], c.flag);
    for (int64_t i = 0; i < n; i++) {
        int group = group_of(c, i);
        if (group < 0) continue;
        double d = g.x[i] * clip.x[0] + record.weight_decay[group] * w.x[i];
        if (momentum) {
            wb[i] = record.of[0].momentum * b.x[i] + d;
            d = c.flag ? d + record.of[0].momentum * wb[i] : wb[i];
        }
        ww[i] = w.x[i] - record.lr[group] * d;
        update_on_host(c, rule, step, i, g.x[i], &hw[i], &hb[i], &none[0]);
    }
    trial t(name_of(momentum ? "sgd with momentum" : "sgd", c), sc_sgd_args{.grad = g.t,
                                                                            .master = w.t,
                                                                            .coefficient = clip.t,
                                                                            .momentum = given(momentum, b),
                                                                            .table = rows.data(),
                                                                            .ntable = (int64_t)rows.size(),
                                                                            .nesterov = c.flag,
                                                                            .slice = c.shard_numel});
    t.place[0].at = c.shard;
    t.run();
    t.expect("master", w, ww, 0.05, 1e-6);
    t.expect("master's bits", w, hw, -1);
    if (!momentum) return;
    t.expect("momentum", b, wb, 0.1, 1e-6 + (c.moments == BF16 ? 4e-3 : 0));
    t.expect("momentum's bits", b, hb, -1);
}

/* ── moments in 8 bits ────────────────────────────────────────────────────────────────────────────────────────────────
 */
static tensor &coded(pool &p, int64_t n) {
    tensor &m = p.empty(INT8, {sc_moments8_bytes(n)});
    std::vector<float> scales;
    for (int64_t b = 0; b < n / SC_MOMENTS8_BLOCK; b++)
        scales.push_back(b % 7 == 3 ? 0 : (float)ldexp(1 + fabs(uniform()), (int)(40 * uniform()) - 20));
    fill(m, [&, i = (int64_t)0]() mutable {
        int8_t scale = i < n ? 0 : ((const int8_t *)scales.data())[i - n], code = (int8_t)(uniform() * 127.999);
        return (double)(i++ < n ? code : scale);
    });
    return m;
}
/* The update of a block of the rank's slice, written down once more. */
static void update_block_on_host(const optimizer_case &c, const sc_rule &rule, sc_constants step, int64_t at,
                                 const numbers &grad, numbers &w, numbers *moment) {
    int64_t n = c.shard_numel, block = at / SC_MOMENTS8_BLOCK;
    float x[2][SC_MOMENTS8_BLOCK], scale[2] = {}, unused;
    auto byte = [&](int j, int64_t i) { return (uint8_t)(int8_t)moment[j][i]; };
    for (int j = 0; j < rule.moments; j++) {
        for (int b = 0; b < 4; b++) ((uint8_t *)&scale[j])[b] = byte(j, n + block * 4 + b);
        for (int64_t i = 0; i < SC_MOMENTS8_BLOCK; i++)
            x[j][i] = sc_moments8_value(byte(j, at + i), j == 0) * scale[j];
        scale[j] = 0;
    }
    bool any = false;
    for (int64_t i = 0; i < SC_MOMENTS8_BLOCK; i++) {
        int group = group_of(c, at + i);
        if (group < 0) continue;
        float p = (float)w[at + i];
        sc_constants constants = rule.group(step, &record, group);
        rule.element(&constants, (float)grad[at + i], &p, &x[0][i], rule.moments > 1 ? &x[1][i] : &unused);
        w[at + i] = stored(c.master, p);
        for (int j = 0; j < rule.moments; j++) scale[j] = fmaxf(scale[j], fabsf(x[j][i]));
        any = true;
    }
    for (int j = 0; j < rule.moments && any; j++) {
        float inverse = scale[j] < 0x1p-126f ? 0 : 1 / scale[j];
        for (int b = 0; b < 4; b++) moment[j][n + block * 4 + b] = ((const int8_t *)&scale[j])[b];
        for (int64_t i = 0; i < SC_MOMENTS8_BLOCK; i++) {
            if (group_of(c, at + i) < 0) continue;
            int code = sc_moments8_code(x[j][i] * inverse, x[j][i], j == 0);
            moment[j][at + i] = (int8_t)code;
        }
    }
}
/* wide: gradients of any size, from subnormals up. */
static void coded_trial(const optimizer_case &c, const char *what, const sc_rule &rule, bool wide = false) {
    pool p;
    int64_t n = c.shard_numel;
    bool muon = !strcmp(what, "muon_momentum"), wired = c.master == FP32 && !muon && strcmp(what, "sgd");
    tensor &g = p.random(c.grad, {n}), &w = p.random(muon ? BF16 : c.master, {n}), &m = coded(p, n), &v = coded(p, n);
    tensor &clip = p.empty(FP32, {1}), &step = p.integers({1}, 5, 6, INT64), &wire = p.random(BF16, {n});
    fill(clip, [] { return 0.7; });
    fill(g, [&, i = (int64_t)0]() mutable {
        int power = wide ? (int)(fabs(uniform()) * 150) - 140 : -10;
        return i++ / SC_MOMENTS8_BLOCK % 7 == 3 ? 0 : ldexp(normal(), power);
    });
    if (muon) fill(w, [] { return 0.0; });
    numbers hw = w.x, moment[2] = {m.x, v.x}, want = wire.x;
    sc_constants constants = rule.step(&record.of[0], 5, (float)clip.x[0], c.flag);
    optimizer_case to = c;
    if (muon) to.master = BF16;
    for (int64_t at = 0; at < n; at += SC_MOMENTS8_BLOCK)
        update_block_on_host(to, rule, constants, at, g.x, hw, moment);
    for (int64_t i = 0; i < n; i++)
        if (group_of(c, i) >= 0) want[i] = sc_from_bf16(sc_to_bf16((float)hw[i]));
    const int64_t *table = c.table.data(), ntable = (int64_t)c.table.size();
    auto go = [&](trial t) {
        t.place[0].at = c.shard;
        t.run();
        t.expect("master's bits", w, hw, -1);
        t.expect("m's bits", m, moment[0], -1);
        if (rule.moments > 1) t.expect("v's bits", v, moment[1], -1);
        if (wired) t.expect("wire", wire, want, -1);
    };
    std::string name = name_of(what, c);
    if (!strcmp(what, "adam"))
        go(trial(name, sc_adam_args{.grad = g.t,
                                    .master = w.t,
                                    .coefficient = clip.t,
                                    .m = m.t,
                                    .v = v.t,
                                    .step = step.t,
                                    .wire = given(wired, wire),
                                    .table = table,
                                    .ntable = ntable,
                                    .decoupled = c.flag,
                                    .slice = n}));
    else if (!strcmp(what, "lion"))
        go(trial(name, sc_lion_args{.grad = g.t,
                                    .master = w.t,
                                    .coefficient = clip.t,
                                    .m = m.t,
                                    .wire = given(wired, wire),
                                    .table = table,
                                    .ntable = ntable,
                                    .slice = n}));
    else if (muon)
        go(trial(name, sc_muon_momentum_args{.update = w.t,
                                             .grad = g.t,
                                             .coefficient = clip.t,
                                             .momentum = m.t,
                                             .table = table,
                                             .ntable = ntable,
                                             .nesterov = c.flag,
                                             .slice = n}));
    else
        go(trial(name, sc_sgd_args{.grad = g.t,
                                   .master = w.t,
                                   .coefficient = clip.t,
                                   .momentum = m.t,
                                   .table = table,
                                   .ntable = ntable,
                                   .nesterov = c.flag,
                                   .slice = n}));
}
static void coded_trials(const std::vector<int64_t> &plain, const std::vector<int64_t> &many) {
    for (int grad : floats)
        for (int master : floats) {
            bool flag = (grad + master) % 2;
            coded_trial({grad, master, INT8, flag, 1, 5120, plain}, "adam", sc_adam);
            coded_trial({grad, master, INT8, flag, 1, 5120, plain}, "sgd", sc_momentum);
            coded_trial({grad, master, INT8, flag, 1, 5120, plain}, "lion", sc_lion);
            coded_trial({grad, master, INT8, flag, 1, 5120, plain}, "muon_momentum", sc_muon_momentum);
        }
    for (int shard = 0; shard < 4; shard++) coded_trial({BF16, FP32, INT8, true, shard, 9728, many}, "adam", sc_adam);
    for (bool wide : {false, true})
        coded_trial({FP32, FP32, INT8, true, 0, 204800, {0, 204799, 1}}, "adam", sc_adam, wide);
}

/* Gradients are not finite: a step that may be skipped leaves everything as it was, and writes the wire from it. */
static void skipped_trial(int d, int moments) {
    pool p;
    int64_t n = 5120;
    optimizer_case c = {d, FP32, moments, true, 1, n, {0, 9000, 1, 9216, 11111, 2}};
    std::vector<int64_t> rows = rows_of(c);
    int64_t many = moments == INT8 ? sc_moments8_bytes(n) : n;
    tensor &g = p.random(d, {n}), &w = p.random(FP32, {n}), &m = p.random(moments, {many});
    tensor &v = p.random(moments, {many}), &clip = p.empty(FP32, {2}), &step = p.integers({1}, 5, 6, INT64);
    tensor &wire = p.random(BF16, {n});
    fill(g, [] { return (double)NAN; });
    fill(clip, [k = 0]() mutable { return (double)k++; });
    numbers want = wire.x;
    for (int64_t i = 0; i < n; i++)
        if (group_of(c, i) >= 0) want[i] = sc_from_bf16(sc_to_bf16((float)w.x[i]));
    trial a(name_of("adam, skipped", c), sc_adam_args{.grad = g.t,
                                                      .master = w.t,
                                                      .coefficient = clip.t,
                                                      .m = m.t,
                                                      .v = v.t,
                                                      .step = step.t,
                                                      .wire = wire.t,
                                                      .table = rows.data(),
                                                      .ntable = (int64_t)rows.size(),
                                                      .decoupled = c.flag,
                                                      .slice = n});
    a.writes_only({&wire});
    a.place[0].at = c.shard;
    a.run();
    a.expect("wire", wire, want, -1);
    trial b(name_of("sgd, skipped", c), sc_sgd_args{.grad = g.t,
                                                    .master = w.t,
                                                    .coefficient = clip.t,
                                                    .momentum = m.t,
                                                    .table = rows.data(),
                                                    .ntable = (int64_t)rows.size(),
                                                    .nesterov = c.flag,
                                                    .slice = n});
    b.writes_only({});
    b.place[0].at = c.shard;
    b.run();
    trial counted("count_step, skipped", sc_count_step_args{.step = step.t, .coefficient = clip.t});
    counted.run();
    counted.expect("step", step, {5}, -1);
    fill(clip, [] { return 0.0; });
    trial taken("count_step, not skipped", sc_count_step_args{.step = step.t, .coefficient = clip.t});
    taken.run();
    taken.expect("step", step, {6}, -1);
}

/* Largest magnitudes: matrix 2 of two rows, the second with a NaN; none; matrix 0, below what is there already; matrix
 * 1, in tiles beside another's; 3 is nobody's. */
static void largest_trial(const char *what, int master, int wire, int moments, bool skipped) {
    pool p;
    int64_t n = 204800;
    optimizer_case c = {BF16,
                        master,
                        moments,
                        true,
                        1,
                        n,
                        {0, 204900, 1, 205056, 205067, 1, 205312, 250000, 0, 250112, 307200, 2, 307200, 409600, 1}};
    const int64_t matrix[] = {2, 2, -1, 0, 1};
    std::vector<int64_t> rows;
    for (size_t s = 0; s < 5; s++) {
        for (int k = 0; k < 3; k++) rows.push_back(c.table[3 * s + (size_t)k]);
        if (moments == BF16) rows.push_back(key_of(3 * s));
        rows.push_back(matrix[s]);
    }
    int64_t many = moments == INT8 ? sc_moments8_bytes(n) : n;
    tensor &g = p.random(BF16, {n}), &w = p.random(master, {n}), &m = p.random(moments, {many});
    tensor &v = p.random(moments, {many}), &clip = p.empty(FP32, {2}), &step = p.integers({1}, 5, 6, INT64);
    tensor &to = p.random(wire < 0 ? BF16 : wire, {n}), &largest = p.empty(FP32, {4});
    fill(v, [] { return 0.0; });
    if (moments == INT8) fill(m, [] { return 0.0; });
    fill(w, [i = 0]() mutable { return i++ == 260 ? (double)NAN : normal(); });
    fill(clip, [&, k = 0]() mutable { return k++ ? (double)skipped : 0.7; });
    fill(largest, [k = 0]() mutable { return k++ ? 0 : 1024.0; });
    sc_adam_args adam = {.grad = g.t,
                         .master = w.t,
                         .coefficient = clip.t,
                         .m = m.t,
                         .v = v.t,
                         .step = step.t,
                         .wire = given(wire >= 0, to),
                         .largest = largest.t,
                         .table = rows.data(),
                         .ntable = (int64_t)rows.size(),
                         .decoupled = true,
                         .slice = n};
    sc_sgd_args sgd = {.grad = g.t,
                       .master = w.t,
                       .coefficient = clip.t,
                       .momentum = m.t,
                       .largest = largest.t,
                       .table = rows.data(),
                       .ntable = (int64_t)rows.size(),
                       .slice = n};
    std::string name = text_of("%s finds largest magnitudes%s", name_of(what, c).c_str(), skipped ? ", skipped" : "");
    if (wire >= 0) name += text_of(", %s wire", dtype_text(wire));
    auto go = [&](trial t) {
        numbers want = {1024, 0, 0, 0};
        t.place[0].at = c.shard;
        t.run();
        for (int64_t i = 0; i < n; i++) {
            int s = segment_of(c, i), of = s < 0 ? -1 : (int)matrix[s / 3];
            double x = fabs(wire < 0 ? w.x[i] : stored(wire, w.x[i]));
            if (of >= 0 && !(x <= want[of]) && !std::isnan(want[of])) want[of] = x;
        }
        for (size_t k = 0; k < want.size(); k++)
            if (!(largest.x[k] == want[k] || (std::isnan(largest.x[k]) && std::isnan(want[k]))))
                t.complain(text_of("largest[%d] = %.9g, wanted %.9g", (int)k, largest.x[k], want[k]).c_str());
    };
    if (strcmp(what, "sgd"))
        go(trial(name, adam));
    else
        go(trial(name, sgd));
}

static void sum_squares_trial(int d, int64_t n, int64_t shift) {
    pool p;
    tensor &x = p.random(d, {n}, {}, shift), &y = p.empty(FP32, {1}), &work = p.work(sc_cuda_sum_squares_bytes(n));
    tensor &scale = p.empty(FP32, {1});
    double sum = 0;
    for (double v : x.x) sum += v * v;
    std::string shape = text_of("sum_squares %s of %lld%s", dtype_text(d), (long long)n, shift ? " shifted" : "");
    trial t(shape, sc_sum_squares_args{.y = y.t, .x = x.t, .work = work.t});
    t.run();
    t.expect("y", y, {sum}, 0);
    fill(scale, [] { return 1024.0; });
    trial u(shape + ", unscaled", sc_sum_squares_args{.y = y.t, .x = x.t, .scaler = scale.t, .work = work.t});
    u.run();
    u.expect("y", y, {sum / 1024 / 1024}, 0);
}

static void clip_trial(double size, bool scaled) {
    pool p;
    tensor &coefficient = p.empty(FP32, {scaled ? 2 : 1}), &norm = p.empty(FP32, {1}), &sums = p.empty(FP32, {35});
    tensor &scale = p.empty(FP32, {1});
    double sum = 0, s = scaled ? 1024 : 1;
    fill(sums, [&] { return size * fabs(normal()); });
    fill(scale, [&] { return s; });
    for (double v : sums.x) sum += v;
    trial t(text_of("clip_coefficient, norm %g%s", sqrt(sum), scaled ? ", scaled" : ""),
            sc_clip_coefficient_args{
                .coefficient = coefficient.t, .norm = norm.t, .squares = sums.t, .scaler = given(scaled, scale)});
    t.run();
    numbers want = {std::isfinite(sum) ? fmin(1, record.clip / (sqrt(sum) + 1e-6)) / s : 0};
    if (scaled) want.push_back(!std::isfinite(sum));
    t.expect("coefficient", coefficient, want, 0);
    t.expect("norm", norm, {sqrt(sum)}, 0);
}

static void optimizers() {
    if (!wanted("adam sgd lion muon muon_momentum sum_squares clip_coefficient count_step")) return;
    std::vector<int64_t> plain = {0, 9000, 1, 9216, 11111, 2, 11264, 20000, 0}, many;
    for (int64_t s = 0; s < 150; s++)
        for (int64_t x : {s * 256, s * 256 + 200 + s % 56, s % 3}) many.push_back(x);
    for (int grad : floats)
        for (int master : floats)
            for (int moments : {FP32, BF16}) {
                bool flag = (grad + master + moments) % 2;
                adam_trial({grad, master, moments, flag, 1, 5120, plain});
                sgd_trial({grad, master, moments, flag, 1, 5120, plain}, true);
                lion_trial({grad, master, moments, flag, 1, 5120, plain});
                muon_trial({grad, master, moments, flag, 1, 5120, plain});
                sgd_trial({grad, master, moments, flag, 0, 4096, plain}, false);
            }
    for (int shard = 0; shard < 4; shard++)
        for (int moments : {FP32, BF16}) {
            adam_trial({BF16, FP32, moments, true, shard, 9728, many});
            sgd_trial({FP32, FP32, moments, true, shard, 9728, many}, true);
            adam_trial({FP32, FP32, moments, false, shard, 6000, {100, 17001, 3}});
            adam_trial(
                {FP32, FP32, moments, true, shard, 6000, {3, 17001, 3}}); /* no run begins with a block of words */
        }
    for (int moments : {FP32, BF16})
        for (bool flag : {false, true}) adam_trial({FP32, FP32, moments, flag, 0, 200000, {0, 200000, 1}}, true);
    coded_trials(plain, many);
    for (int d : floats) {
        sum_squares_trial(d, 4096 * 3, 0);
        sum_squares_trial(d, 10001, 0);
        sum_squares_trial(d, 5000, 1);
    }
    for (int d : floats)
        for (int moments : {FP32, BF16, INT8}) skipped_trial(d, moments);
    for (bool skipped : {false, true}) {
        for (int moments : {FP32, BF16, INT8}) {
            for (int wire : {-1, (int)BF16, (int)FP16}) largest_trial("adam", FP32, wire, moments, skipped);
            largest_trial("adam", BF16, -1, moments, skipped);
        }
        largest_trial("sgd", FP32, -1, FP32, skipped);
    }
    for (double size : {1.0, 0.001}) clip_trial(size, false);
    for (double size : {1.0, 0.001, (double)INFINITY}) clip_trial(size, true);
    pool p;
    tensor &step = p.integers({1}, 41, 42, INT64);
    trial t("count_step", sc_count_step_args{.step = step.t});
    t.run();
    t.expect("step", step, {42}, -1);
}

/* ── the loss scale ───────────────────────────────────────────────────────────────────────────────────────────────────
 */
static tensor &scaler_at(pool &p, const sc_scaler &s) {
    tensor &a = p.empty(BOOL, {(int64_t)sizeof s});
    memcpy(in_image(a, 0), &s, sizeof s);
    upload(a);
    return a;
}

static void scale_trial(int d, int64_t n, bool over) {
    pool p;
    tensor &x = p.random(d, {n}), &y = p.empty(d, {n}), &scaler = scaler_at(p, {.scale = 768});
    numbers want(n);
    float factor = over ? 1 / 768.0f : 768.0f;
    for (int64_t i = 0; i < n; i++) {
        char rounded[8];
        encode(d, rounded, (float)x.x[i] * factor);
        want[i] = decode(d, rounded);
    }
    trial t(text_of("%s of %lld %s", over ? "over the scale" : "scale", (long long)n, dtype_text(d)),
            sc_scale_args{.y = y.t, .x = x.t, .scaler = scaler.t, .inverse = over});
    t.run();
    t.expect("y", y, want, -1);
}

/* What a step leaves of the scaler, in PyTorch's words: backoff where a gradient was not finite, growth after
 * `interval` clean steps, never to infinity. */
static void update_scale_trial(const char *name, sc_scaler from, bool found, int64_t interval, sc_scaler want) {
    pool p;
    tensor &coefficient = p.empty(FP32, {2}), &scaler = scaler_at(p, from);
    fill(coefficient, [&, k = 0]() mutable { return k++ ? (double)found : 0.25; });
    trial t(text_of("update_scale: %s", name),
            sc_update_scale_args{
                .coefficient = coefficient.t, .scaler = scaler.t, .interval = interval, .growth = 2, .backoff = 0.5});
    t.launch();
    sc_scaler got;
    SC_CUDA(cudaMemcpy(&got, scaler.t.p, sizeof got, cudaMemcpyDeviceToHost));
    if (memcmp(&got, &want, sizeof got)) t.complain("another state than wanted");
}

static void scales() {
    if (!wanted("scale update_scale")) return;
    for (int d : floats)
        for (bool over : {false, true}) {
            scale_trial(d, 1, over);
            scale_trial(d, 70001, over);
        }
    update_scale_trial("a clean step", {.scale = 512, .clean = 3}, false, 10, {.scale = 512, .clean = 4});
    update_scale_trial("grows", {.scale = 512, .clean = 9, .skips = 2}, false, 10, {.scale = 1024, .skips = 2});
    update_scale_trial("a skipped step", {.scale = 512, .clean = 9, .skips = 2}, true, 10,
                       {.scale = 256, .skipped = 1, .skips = 3});
    update_scale_trial("clean after skipped", {.scale = 256, .skipped = 1, .skips = 3}, false, 10,
                       {.scale = 256, .clean = 1, .skips = 3});
    update_scale_trial("not to infinity", {.scale = 0x1p127f, .clean = 9}, false, 10, {.scale = 0x1p127f});
    update_scale_trial("every step", {.scale = 2}, false, 1, {.scale = 4});
}

/* ── gradients of a table as rows ─────────────────────────────────────────────────────────────────────────────────────
 */
struct rows_case {
    int64_t tokens, rows, cols; /* of a rank; of the table */
    int members, groups;
    double often; /* share of tokens that are row 5 */
};

static float rounded_to(int d, float x) {
    char bytes[8];
    encode(d, bytes, x);
    return (float)decode(d, bytes);
}

/* What a rank makes by itself: tokens in order, of more than 128 each 128 by themselves. */
static std::vector<float> table_of_rank(const rows_case &c, const tensor &index, const tensor &g, int rank) {
    std::vector<float> sum(c.rows * c.cols), part(c.rows * c.cols);
    std::vector<int> seen(c.rows);
    auto join = [&](int64_t v) {
        for (int64_t i = v * c.cols; i < (v + 1) * c.cols; i++) sum[i] += part[i], part[i] = 0;
    };
    for (int64_t n = rank * c.tokens; n < (rank + 1) * c.tokens; n++) {
        int64_t v = (int64_t)index.x[n];
        if (v < 0 || v >= c.rows) continue;
        for (int64_t i = 0; i < c.cols; i++) part[v * c.cols + i] += (float)g.x[n * c.cols + i];
        if (++seen[v] % 128 == 0) join(v);
    }
    for (int64_t v = 0; v < c.rows; v++) join(v);
    return sum;
}

/* Every slice, against the tables that ranks make by themselves (as embedding_grad does, bit for bit) and the order in
 * which ranks and groups are added up and rounded. */
static void coalesce_trial(int from, int to, const rows_case &c) {
    pool p;
    int world = c.members * c.groups;
    int64_t n = world * c.tokens, all = c.rows * c.cols, slice = (all / c.members + 23) / 8 * 8;
    tensor &index = p.integers({n}, -1, c.rows + 1), &g = p.random(from, {n * c.cols}); /* as gathered */
    fill(index, [&] {
        return fabs(uniform()) < c.often ? 5 : floor((fabs(uniform()) * 0.9999999) * (double)(c.rows + 2)) - 1;
    });
    int64_t ints = ((2 * c.rows + 1 + 2 * c.tokens) * 4 + 15) / 16 * 16 + (c.tokens + 127) / 128 * 2 * c.cols * 4;
    std::vector<float> sum(all), of_group(all);
    std::string shape = text_of(" %s to %s, [%lld,%lld], %d x %d ranks of %lld tokens, %g of them one",
                                dtype_text(from), dtype_text(to), (long long)c.rows, (long long)c.cols, c.groups,
                                c.members, (long long)c.tokens, c.often);
    for (int rank = 0; rank < world; rank++) {
        std::vector<float> mine = table_of_rank(c, index, g, rank);
        tensor &some = p.empty(INT32, {c.tokens}), &rows = p.empty(from, {c.tokens, c.cols});
        fill(some, [&, i = rank * c.tokens]() mutable { return index.x[i++]; });
        fill(rows, [&, i = rank * c.tokens * c.cols]() mutable { return g.x[i++]; });
        tensor &dw = p.empty(to, {c.rows, c.cols}), &work = p.work(ints);
        trial t(text_of("embedding_grad of rank %d", rank) + shape,
                sc_embedding_grad_args{.dw = dw.t, .index = some.t, .g = rows.t, .work = work.t, .rows = c.rows});
        t.run();
        numbers want(all);
        for (int64_t i = 0; i < all; i++) {
            want[i] = rounded_to(to, mine[i]);
            of_group[i] += rounded_to(to, mine[i]);
            if (rank % c.members != c.members - 1) continue;
            sum[i] += rounded_to(to, of_group[i]);
            of_group[i] = 0;
        }
        t.expect("dw", dw, want, -1);
    }
    for (int k = 0; k < c.members; k++) {
        tensor &dw = p.empty(to, {slice}), &work = p.work(((2 * c.rows + 1 + 2 * n) * 4 + 15) / 16 * 16);
        numbers want(slice);
        for (int64_t i = 0; i < slice; i++) want[i] = k * slice + i < all ? rounded_to(to, sum[k * slice + i]) : 0;
        trial t(text_of("coalesce: slice %d of %d", k, c.members) + shape, sc_coalesce_args{.y = dw.t,
                                                                                            .index = index.t,
                                                                                            .g = g.t,
                                                                                            .work = work.t,
                                                                                            .rows = c.rows,
                                                                                            .cols = c.cols,
                                                                                            .slice = slice,
                                                                                            .shard = 0,
                                                                                            .replicate = 1});
        t.place[0] = {k, c.members};
        t.place[1] = {c.groups - 1, c.groups};
        t.run();
        t.expect("dw", dw, want, -1);
    }
}

static void tables() {
    if (!wanted("coalesce")) return;
    for (int d : floats) {
        coalesce_trial(d, d, {40, 23, 24, 2, 2, 0});
        coalesce_trial(d, FP32, {40, 23, 33, 1, 3, 0.5});
        coalesce_trial(d, d, {20, 601, 10, 2, 1, 0});
        coalesce_trial(d, BF16, {300, 11, 264, 2, 2, 0.7});
        coalesce_trial(d, FP32, {1300, 9, 40, 3, 1, 0.9});
        coalesce_trial(FP16, d, {129, 7, 16, 1, 1, 1});
        if (quick) continue;
        coalesce_trial(d, FP32, {5000, 300, 520, 4, 2, 0.3});
        coalesce_trial(d, d, {3000, 9, 72, 8, 1, 0.99});
    }
}

int main(int argc, char **argv) {
    start(argc, argv);
    randoms();
    optimizers();
    matrices();
    scales();
    tables();
    return closing();
}
