/* Kernels of ops that epilogue fusion makes (both gradients of a norm, the loss with its gradient, a gate's
 * gradients), against references in double. Relies on: trial.h, runtime/cuda/k_*.cu. Relied on by: make gpu-test.
 * Arguments: a part of a trial's name (only those run), --bits (hashes of the results). */
#include "trial.h"

/* ── norms ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
struct norm_case {
    int64_t rows, cols, pad; /* pad: elements between rows */
    bool weights, add, split;
    int out;
};

/* sum: of dx's columns as they are stored, in another dtype than dw. */
static void norm_trial(int d, const norm_case &c, bool centred, bool in_place, bool sum) {
    pool p;
    int64_t rows = c.rows, cols = c.cols, runs = norm_runs_of(cols, rows, d, centred);
    extents shape = {rows, cols}, stride = c.pad ? extents{cols + c.pad, 1} : extents{};
    tensor &x = p.random(d, shape, stride, 0, 2, 0.5), &g = p.random(d, shape, stride), &more = p.random(d, shape);
    tensor &mean = p.random(FP32, {rows}, {}, 0, 0.3, 0.5), &rstd = p.random(FP32, {rows}, {}, 0, 0.05, 0.6);
    tensor &w = p.random(d, {cols}, {}, 0, 0.5, 1), &dx = in_place ? more : p.empty(d, shape);
    tensor &dw = p.empty(c.out, {cols}), &db = p.empty(c.out, {cols}), &ds = p.empty(c.out == FP32 ? d : FP32, {cols});
    tensor &work = p.work(c.split ? runs * cols * 4 * (1 + centred + sum) : 0);
    numbers want(x.x.size()), sw(cols), sb(cols), ss(cols);
    for (int64_t r = 0; r < rows; r++) {
        double s = 0, q = 0;
        auto hat = [&](int64_t i) { return (x.x[r * cols + i] - (centred ? mean.x[r] : 0)) * rstd.x[r]; };
        auto h = [&](int64_t i) { return g.x[r * cols + i] * (c.weights ? w.x[i] : 1); };
        for (int64_t i = 0; i < cols; i++) {
            s += centred ? h(i) : 0;
            q += h(i) * hat(i);
            sw[i] += g.x[r * cols + i] * hat(i);
            sb[i] += g.x[r * cols + i];
        }
        for (int64_t i = 0; i < cols; i++)
            want[r * cols + i] = rstd.x[r] * (h(i) - s / cols - hat(i) * q / cols) + (c.add ? more.x[r * cols + i] : 0);
    }
    std::string name =
        text_of("%s_grads %s[%lld,%lld] to %s%s%s%s%s%s%s", centred ? "layer_norm" : "rms_norm", dtype_text(d),
                (long long)rows, (long long)cols, dtype_text(c.out), c.weights ? " w" : "", c.add ? " c" : "",
                sum ? " sum" : "", c.split ? " split" : "", c.pad ? " strided" : "", in_place ? " in place" : "");
    sc_layer_norm_grads_args layer = {.dx = dx.t,
                                      .dw = dw.t,
                                      .db = db.t,
                                      .ds = given(sum, ds),
                                      .g = g.t,
                                      .x = x.t,
                                      .mean = mean.t,
                                      .rstd = rstd.t,
                                      .w = given(c.weights, w),
                                      .c = given(c.add, more),
                                      .work = given(c.split && runs > 1, work)};
    sc_rms_norm_grads_args rms = {.dx = dx.t,
                                  .dw = dw.t,
                                  .ds = layer.ds,
                                  .g = g.t,
                                  .x = x.t,
                                  .rstd = rstd.t,
                                  .w = layer.w,
                                  .c = layer.c,
                                  .work = layer.work};
    trial t = centred ? trial(name, layer) : trial(name, rms);
    t.run();
    t.expect("dx", dx, want, 1, 4e-6);
    t.expect("dw", dw, sw, sqrt((double)rows), 2e-6);
    if (centred) t.expect("db", db, sb, sqrt((double)rows), 2e-6);
    for (size_t i = 0; i < dx.x.size(); i++) ss[i % cols] += dx.x[i];
    if (sum) t.expect("ds", ds, ss, sqrt((double)rows), 2e-6);
}

static void norms() {
    static const norm_case cases[] = {
        {300, 768, 0, true, true, true, FP32},    {517, 1600, 0, true, true, true, FP32},
        {200, 4096, 0, true, true, true, FP32},   {130, 64, 0, true, false, true, FP32},
        {40, 256, 8, false, true, false, FP32},   {140, 33, 0, true, true, true, FP32},
        {200, 40, 3, true, true, true, FP32},     {3, 20000, 0, true, true, false, FP32},
        {9, 16384, 0, false, false, false, FP32}, {1, 512, 0, true, true, false, FP32},
        {257, 1280, 0, true, true, true, -1},     {70, 1, 0, true, true, false, FP32},
    };
    for (int d : floats)
        for (bool centred : {true, false})
            for (norm_case c : cases) {
                if (c.out < 0) c.out = d;
                for (bool sum : {false, true}) {
                    norm_trial(d, c, centred, false, sum);
                    if (c.add) norm_trial(d, c, centred, true, sum);
                }
            }
}

/* ── loss ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
struct loss_case {
    int64_t rows, cols;
    int shift, pad; /* elements before the logits, and between their rows */
    bool trouble;   /* infinite logits, a NaN, targets that are none */
    double z, smoothing, cap;
};

static void put(tensor &x, int64_t i, double value) {
    encode(x.t.dtype, in_image(x, i), value);
    x.x[i] = value;
}
static void make_trouble(tensor &x, tensor &target, int64_t cols) {
    for (int64_t i = 0; i < cols; i += 3) put(x, i, i == (int64_t)target.x[0] ? 1 : -INFINITY);
    for (int64_t i = 0; i < cols - 2; i++) put(x, cols + i, -INFINITY);
    put(target, 1, (double)cols - 1);
    put(x, 3 * cols - 2, NAN);
    put(target, 4, (double)cols);
    put(target, 5, -1);
}

static void loss_trial(int d, const loss_case &c, bool in_place) {
    pool p;
    int64_t rows = c.rows, cols = c.cols;
    extents stride = c.pad ? extents{cols + c.pad, 1} : extents{};
    tensor &x = p.random(d, {rows, cols}, stride, c.shift, 2), &target = p.integers({rows}, 0, cols);
    tensor &g = p.random(FP32, {});
    int ignore = -100;
    if (c.trouble) make_trouble(x, target, cols);
    for (int64_t r = 3; r < rows; r += 4) put(target, r, ignore);
    tensor &dx = in_place ? x : p.empty(d, {rows, cols}), &loss = p.empty(FP32, {}), &losses = p.empty(FP32, {rows});
    numbers each(rows), total(1), want(x.x.size());
    for (int64_t r = 0; r < rows; r++) {
        double most = -INFINITY, sum = 0, mean = 0;
        int64_t to = (int64_t)target.x[r];
        if (to == ignore) continue;
        numbers v(x.x.begin() + r * cols, x.x.begin() + (r + 1) * cols);
        for (double &logit : v) {
            if (c.cap > 0) logit = c.cap * tanh(logit / c.cap);
            most = fmax(most, logit);
            mean += logit / (double)cols;
        }
        for (double logit : v) sum += exp(logit - most);
        double lse = most + log(sum), scale = g.x[0] / record.count[1];
        each[r] = to < 0 || to >= cols ? NAN : lse - v[to] + c.z * lse * lse;
        if (c.smoothing > 0) each[r] += c.smoothing * (v[to] - mean);
        total[0] += each[r] / record.count[1];
        for (int64_t i = 0; i < cols; i++) {
            double power = exp(v[i] - most) / sum * (1 + 2 * c.z * lse), flat = c.smoothing / (double)cols;
            double bent = c.cap > 0 ? 1 - v[i] / c.cap * (v[i] / c.cap) : 1;
            want[r * cols + i] = (power - flat - (1 - c.smoothing) * (i == to)) * bent * scale;
        }
    }
    trial t(text_of("cross_entropy_grads %s[%lld,%lld]%s%s%s%s%s%s%s", dtype_text(d), (long long)rows, (long long)cols,
                    c.shift ? " shifted" : "", c.pad ? " strided" : "", c.trouble ? " with infinities and a NaN" : "",
                    in_place ? " in place" : "", c.z > 0 ? " with a z-loss" : "", c.smoothing > 0 ? ", smoothed" : "",
                    c.cap > 0 ? ", capped" : ""),
            sc_cross_entropy_grads_args{.dlogits = dx.t,
                                        .loss = loss.t,
                                        .losses = losses.t,
                                        .g = g.t,
                                        .logits = x.t,
                                        .targets = target.t,
                                        .ignore = ignore,
                                        .count = 1,
                                        .smoothing = c.smoothing,
                                        .z_loss = c.z,
                                        .softcap = c.cap});
    t.run();
    t.expect("losses", losses, each, 1, 5e-6);
    t.expect("loss", loss, total, 1, 5e-6);
    t.expect("dx", dx, want, 1e-3, 1e-5);
}

/* Small losses and large logits: each loss and each element of the gradient to a few ulp of its own. One row a task, so
 * that the gradient of cross_entropy alone shows as well. `shift`: elements before the row. */
struct small_loss {
    double target, second, others; /* logits that every dtype has: the target's, its neighbour's, the rest */
};
static void small_loss_trial(int d, int64_t cols, int64_t at, const small_loss &c, int shift, bool in_place) {
    pool p;
    tensor &x = p.random(d, {1, cols}, {}, shift, 1), &target = p.integers({1}, 0, 1), &g = p.random(FP32, {});
    for (int64_t i = 0; i < cols; i++) put(x, i, i == at ? c.target : i == (at + 1) % cols ? c.second : c.others);
    put(target, 0, (double)at);
    put(g, 0, record.count[1]);
    double most = -INFINITY, others = 0;
    for (double v : x.x) most = fmax(most, v);
    for (int64_t i = 0; i < cols; i++) others += i == at ? 0 : exp(x.x[i] - most);
    double own = x.x[at] - most, all = others + exp(own);
    numbers loss = {own == 0 ? log1p(others) : log(all) - own}, want(cols);
    for (int64_t i = 0; i < cols; i++) {
        want[i] = i == at ? -others / all : exp(x.x[i] - most) / all;
        if (fabs(want[i]) < (d == FP16 ? 6e-5 : 1e-36)) want[i] = 0; /* subnormal in this dtype, at most */
    }
    double little = d == FP16 ? 1e-1 : 1e-30; /* of a subnormal's error */
    std::string shape =
        text_of(" %s[1,%lld] of %g, %g, %g at %lld%s%s", dtype_text(d), (long long)cols, c.target, c.second, c.others,
                (long long)at, shift ? " shifted" : "", in_place ? " in place" : "");
    tensor &sum = p.empty(FP32, {}), &top = p.empty(FP32, {1}), &rest = p.empty(FP32, {1}), &work = p.work(4);
    tensor &once = p.empty(d, {1, cols}), &both = in_place ? x : p.empty(d, {1, cols}), &each = p.empty(FP32, {1});
    {
        trial t("cross_entropy" + shape, sc_cross_entropy_args{.loss = sum.t,
                                                               .most = top.t,
                                                               .rest = rest.t,
                                                               .logits = x.t,
                                                               .targets = target.t,
                                                               .work = work.t,
                                                               .ignore = -100,
                                                               .count = 1});
        t.run();
        t.expect("loss", sum, {loss[0] / record.count[1]}, 0, 3e-6);
        t.expect("most", top, {most}, -1);
    }
    {
        trial t("cross_entropy_grad" + shape, sc_cross_entropy_grad_args{.dlogits = once.t,
                                                                         .g = g.t,
                                                                         .logits = x.t,
                                                                         .targets = target.t,
                                                                         .most = top.t,
                                                                         .rest = rest.t,
                                                                         .ignore = -100,
                                                                         .count = 1});
        t.run();
        t.expect("dx", once, want, little, 5e-6);
    }
    trial t("cross_entropy_grads" + shape, sc_cross_entropy_grads_args{.dlogits = both.t,
                                                                       .loss = sum.t,
                                                                       .losses = each.t,
                                                                       .g = g.t,
                                                                       .logits = x.t,
                                                                       .targets = target.t,
                                                                       .ignore = -100,
                                                                       .count = 1});
    t.run();
    t.expect("losses", each, loss, 0, 3e-6);
    t.expect("dx", both, want, little, 5e-6);
}
static void small_losses() {
    static const small_loss cases[] = {
        {16, 0, 0},      {12.5, 0.25, 0},  {50, 0, -1},          {12582912, 12582912, 12582912},
        {4096, 4096, 0}, {-8192, 8192, 0}, {8192, 8192, -24576}, {0, 40, -5}};
    for (int d : floats)
        for (const small_loss &c : cases) {
            if (d == FP16 && c.target > 6e4) continue; /* infinite there */
            small_loss_trial(d, 5, 0, c, 0, false);
            small_loss_trial(d, 1003, 1002, c, 1, true); /* a single element at the end */
            small_loss_trial(d, 1003, 0, c, 1, false);   /* before the first access */
            small_loss_trial(d, 4096, 1029, c, 0, true);
            small_loss_trial(d, 16384, 4711, c, 0, true);                /* held: in registers */
            if (!quick) small_loss_trial(d, 151936, 151930, c, 0, true); /* in shared memory, another block's */
        }
}

static void losses() {
    small_losses();
    static const loss_case cases[] = {
        {9, 50},    {13, 1000},        {5, 5037, 1},           {5, 3},        {7, 1001, 0, 7, true},
        {5, 16384}, {6, 20488, 8, 16}, {7, 30000, 0, 0, true}, {3, 16392, 1}, {3, 76800},
        {5, 16384, 0, 0, false, 0.1}, {9, 1003, 1, 0, false, 0.1, 0.2, 2}, {5, 16392, 0, 0, false, 0, 0.1},
        {5, 4096, 0, 0, false, 0, 0, 1.5}};
    /* rows that one, two, four and eight blocks hold; rows too long, or of odd ends, for that */
    static const loss_case long_ones[] = {{24, 50304},        {9, 76800},  {9, 76808},
                                          {9, 128256, 0, 64}, {9, 151936}, {8, 153608, 0, 0, true},
                                          {7, 262152},        {6, 307208}, {7, 400000, 8, 24, true},
                                          {5, 614400},        {4, 614408}, {24, 50257}};
    for (int d : floats)
        for (bool in_place : {false, true}) {
            for (const loss_case &c : cases) loss_trial(d, c, in_place);
            if (quick || d == FP32) continue;
            for (const loss_case &c : long_ones) loss_trial(d, c, in_place);
        }
    if (!quick) loss_trial(FP32, {70, 50304}, false);
}

/* ── gates ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* lent: the operand whose bytes dgate has, from 1; 0: none. */
static void gate_trial(int d, const extents &shape, int lent, int shift) {
    pool p;
    tensor &g = p.random(d, shape), &gate = p.random(d, shape, {}, shift, 2), &up = p.random(d, shape);
    tensor *from[] = {&g, &gate, &up};
    tensor &dgate = lent ? *from[lent - 1] : p.empty(d, shape), &dup = p.empty(d, shape, {}, shift);
    numbers want_gate(g.x.size()), want_up(g.x.size());
    for (size_t i = 0; i < g.x.size(); i++) {
        double s = 1 / (1 + exp(-gate.x[i])), silu = gate.x[i] * s;
        want_gate[i] = g.x[i] * up.x[i] * (s + silu * (1 - s));
        want_up[i] = g.x[i] * silu;
    }
    trial t(text_of("silu_mul_grad %s[%lld]%s, dgate in place of operand %d", dtype_text(d), (long long)want_up.size(),
                    shift ? " shifted" : "", lent),
            sc_silu_mul_grad_args{.dgate = dgate.t, .dup = dup.t, .g = g.t, .gate = gate.t, .up = up.t});
    t.run();
    t.expect("dgate", dgate, want_gate, 0.1, 4e-6);
    t.expect("dup", dup, want_up, 0.1, 4e-6);
}

static void gates() {
    for (int d : floats)
        for (int lent = 0; lent < 4; lent++) {
            gate_trial(d, {3, 5, 64}, lent, 0);
            gate_trial(d, {7, 333}, lent, 0);
            gate_trial(d, {4, 512}, lent, 1);
        }
    if (!quick) gate_trial(BF16, {8192, 14336}, 2, 0);
}

int main(int argc, char **argv) {
    start(argc, argv);
    if (wanted("layer_norm rms_norm")) norms();
    if (wanted("cross_entropy")) losses();
    if (wanted("silu_mul")) gates();
    return closing();
}
