/* sc_k_attention and sc_k_attention_grad against sums in double: types, head sizes, masks, dropout, strides, bounds.
 * Relies on: check.h, runtime/cuda/k_attention*.cu, schema/philox.h.
 * Relied on by: make gpu-test. `--bench [N]` times the shapes of BASELINES.md instead, or the Nth; `--repeat N` runs
 * the large shapes N times, `--random SEED N` N shapes and variants at random; `--quick`: no large shapes. */
#include "check.h"

#include "../../runtime/schema/philox.h"
#include "../../runtime/schema/workspace.h"

#include <random>
#include <thread>

enum layout { PLAIN, FUSED, ODD, HEADS_FIRST };

struct problem {
    int dtype, B, S, T, H, KV, D;
    bool causal, documents;
    double p, scale;
    layout how;
    int before, after; /* the window; 0: all */
    double softcap;
    bool sinks; /* and a gradient of lse */
    int E;      /* the head size of v; 0: D */
    const char *bias; /* "1HS1": one for all samples and keys; NULL: none */
    int bias_type;
};

struct operands {
    tensor q, k, v, o, lse, go, dq, dk, dv, documents, work, record, sinks, dlse, bias, dbias;
    sc_record host;
};

static cudaStream_t stream;
static sc_cuda library;

static std::string name_of(const problem &c) {
    static const char *const layouts[] = {"", " fused", " odd strides", " heads first"};
    char text[200];
    snprintf(text, sizeof text, "%s B%d S%d T%d H%d/%d D%d%s%s%s%s scale %g", dtype_text(c.dtype), c.B, c.S, c.T, c.H,
             c.KV, c.D, c.causal ? " causal" : "", c.documents ? " documents" : "", c.p > 0 ? " dropout" : "",
             layouts[c.how], c.scale);
    std::string s = text;
    if (c.before || c.after) s += " window " + std::to_string(c.before) + ":" + std::to_string(c.after);
    if (c.sinks) s += " sinks, dlse";
    if (c.E) s += " E" + std::to_string(c.E);
    if (c.bias) s += std::string(" bias ") + c.bias + " " + dtype_text(c.bias_type);
    if (c.softcap > 0) s += " softcap " + std::to_string(c.softcap).substr(0, 4);
    return s;
}

static int value_size(const problem &c) {
    return c.E ? c.E : c.D;
}

/* [B, S, H, D] laid out as the case wants. */
static tensor operand(const problem &c, int rows, int heads, int D) {
    extents shape = {c.B, rows, heads, D};
    int64_t B = rows * (int64_t)heads * D, row = (int64_t)heads * D;
    switch (c.how) {
    case FUSED: return make(c.dtype, shape, {B * 3, row * 3, D, 1}, 8);
    case ODD: return make(c.dtype, shape, {B + rows * 3 + 1, row + 3, D, 1}, 1);
    case HEADS_FIRST: return make(c.dtype, shape, {B, D, (int64_t)rows * D, 1});
    default: return make(c.dtype, shape);
    }
}

static int64_t work_bytes(const problem &c) {
    sc_hopper_grad_room hopper = sc_hopper_grad_bytes(c.B, c.S, c.T, c.H, c.KV, std::max(c.D, c.E), c.causal,
                                                      c.before ? c.before - 1 : c.S, c.documents);
    return std::max<int64_t>((int64_t)c.B * c.H * c.S * 4, hopper.all);
}

static extents bias_shape(const problem &c) {
    int64_t scores[] = {c.B, c.H, c.S, c.T};
    for (int i = 0; i < 4; i++) scores[i] = c.bias && c.bias[i] != '1' ? scores[i] : 1;
    return {scores[0], scores[1], scores[2], scores[3]};
}
static size_t bias_place(const problem &c, int b, int h, int i, int j) {
    extents n = bias_shape(c);
    return (((n[0] > 1) * b * n[1] + (n[1] > 1) * h) * n[2] + (n[2] > 1) * i) * n[3] + (n[3] > 1) * j;
}

static operands make_operands(const problem &c) {
    operands x = {};
    for (tensor *t : {&x.q, &x.dq}) *t = operand(c, c.S, c.H, c.D);
    for (tensor *t : {&x.k, &x.dk}) *t = operand(c, c.T, c.KV, c.D);
    for (tensor *t : {&x.v, &x.dv}) *t = operand(c, c.T, c.KV, value_size(c));
    for (tensor *t : {&x.o, &x.go}) *t = operand(c, c.S, c.H, value_size(c));
    x.lse = make(FP32, {c.B, c.H, c.S});
    x.work = make(BOOL, {work_bytes(c)});
    x.documents = make(INT32, {c.B, c.S});
    x.record = make(BOOL, {(int64_t)sizeof(sc_record)});
    x.sinks = make(FP32, {c.H});
    x.dlse = make(FP32, {c.B, c.H, c.S});
    extents shape = bias_shape(c);
    x.bias = make(c.bias_type, shape);
    x.dbias = make(c.bias_type, shape);
    for (tensor *t : {&x.q, &x.k, &x.v, &x.go, &x.sinks, &x.dlse}) fill(*t, normal);
    for (tensor *t : {&x.o, &x.dq, &x.dk, &x.dv, &x.lse, &x.work, &x.dbias}) upload(*t);
    int64_t which = 0;
    fill(x.bias, [&] { /* some pairs are hidden; where it has them, whole rows */
                       int64_t e = which++, row = e / shape[3] % shape[2];
                       return e * 7919 % 11 == 3 || (shape[2] > 1 && row % 13 == 5) ? -INFINITY : normal();
    });
    int64_t n = 0;
    fill(x.documents, [&] { /* runs of uneven length; ids that come back later */
                            int64_t i = n++ % c.S;
                            return (double)((i / (c.S / 5 + 3)) % 3 * 7 - 2);
    });
    x.host.seed = 0x1234567890abcdefull;
    x.host.step = 17;
    x.host.first_sample = 5;
    memcpy(in_image(x.record, 0), &x.host, sizeof x.host);
    upload(x.record);
    return x;
}
static void release_operands(operands &x) {
    for (tensor *t : {&x.q, &x.k, &x.v, &x.o, &x.lse, &x.go, &x.dq, &x.dk, &x.dv, &x.documents, &x.work, &x.record,
                      &x.sinks, &x.dlse, &x.bias, &x.dbias})
        release(*t);
}

struct calls {
    sc_attention_args forward_args;
    sc_attention_grad_args backward_args;
    sc_attention_bias_grad_args bias_args;
    const sc_record *record;
    sc_task forward() const { return task_of(forward_args, SC_SLOTS_attention, stream, &library, record); }
    sc_task backward() const { return task_of(backward_args, SC_SLOTS_attention_grad, stream, &library, record); }
    sc_task bias() const { return task_of(bias_args, SC_SLOTS_attention_bias_grad, stream, &library, record); }
};
static calls calls_of(const problem &c, const operands &x) {
    sc_tensor documents = given(c.documents, x.documents);
    return {{.o = x.o.t,
             .lse = x.lse.t,
             .q = x.q.t,
             .k = x.k.t,
             .v = x.v.t,
             .documents = documents,
             .sinks = given(c.sinks, x.sinks),
             .bias = given(c.bias != NULL, x.bias),
             .causal = c.causal,
             .before = c.before,
             .after = c.after,
             .key = 42,
             .scale = c.scale,
             .softcap = c.softcap,
             .dropout = c.p},
            {.dq = x.dq.t,
             .dk = x.dk.t,
             .dv = x.dv.t,
             .g = x.go.t,
             .q = x.q.t,
             .k = x.k.t,
             .v = x.v.t,
             .o = x.o.t,
             .lse = x.lse.t,
             .documents = documents,
             .dlse = given(c.sinks, x.dlse),
             .bias = given(c.bias != NULL, x.bias),
             .work = x.work.t,
             .causal = c.causal,
             .before = c.before,
             .after = c.after,
             .key = 42,
             .scale = c.scale,
             .softcap = c.softcap,
             .dropout = c.p},
            {.dbias = x.dbias.t,
             .g = x.go.t,
             .q = x.q.t,
             .k = x.k.t,
             .v = x.v.t,
             .o = x.o.t,
             .lse = x.lse.t,
             .documents = documents,
             .dlse = given(c.sinks, x.dlse),
             .bias = x.bias.t,
             .causal = c.causal,
             .before = c.before,
             .after = c.after,
             .key = 42,
             .scale = c.scale,
             .softcap = c.softcap,
             .dropout = c.p},
            (const sc_record *)x.record.t.p};
}

/* ── the definition, in double ──────────────────────────────────────────────────────────────────────────────────────
 */
struct expected {
    std::vector<double> o, lse, dq, dk, dv, dbias;
};
static double mask_of(const problem &c, const operands &x, int b, int h, int i, int j) {
    if (c.p <= 0) return 1;
    uint64_t key = sc_stream_key(x.host.seed, 42), width = (uint64_t)(c.T + 3) / 4 * 4;
    uint64_t e = ((uint64_t)h * c.S + i) * width + j;
    sc_block counter = {
        {(uint32_t)(e / 4), (uint32_t)(e / 4 >> 32), (uint32_t)(x.host.first_sample + b), (uint32_t)x.host.step}};
    uint32_t word = sc_philox(counter, (uint32_t)key, (uint32_t)(key >> 32)).w[e % 4];
    return word >= (uint32_t)(c.p * 4294967296.0) ? 1 / (1 - c.p) : 0;
}
/* The rows of queries with number % of == part; sums over queries are this part's alone. */
static expected define_part(const problem &c, const operands &x, int part, int of) {
    expected r;
    r.o.assign(x.o.x.size(), 0), r.dq.assign(x.q.x.size(), 0);
    r.dk.assign(x.k.x.size(), 0), r.dv.assign(x.v.x.size(), 0);
    int E = value_size(c);
    r.lse.assign((size_t)c.B * c.H * c.S, 0);
    r.dbias.assign(x.bias.x.size(), 0);
    std::vector<double> p(c.T), m(c.T), dp(c.T), slope(c.T);
    for (int b = 0; b < c.B; b++)
        for (int h = 0; h < c.H; h++)
            for (int i = part; i < c.S; i += of) {
                int kv = h / (c.H / c.KV);
                size_t head = ((size_t)b * c.S + i) * c.H + h, at = head * c.D, out = head * E;
                auto row = [&](int j, int size) { return (((size_t)b * c.T + j) * c.KV + kv) * size; };
                double top = -INFINITY, sum = 0, delta = 0;
                for (int j = 0; j < c.T; j++) {
                    bool seen = (!c.causal || j <= i) && (!c.before || j > i - c.before) &&
                                (!c.after || j < i + c.after) &&
                                (!c.documents || x.documents.x[b * c.S + i] == x.documents.x[b * c.S + j]);
                    double s = 0;
                    for (int d = 0; d < c.D; d++) s += x.q.x[at + d] * x.k.x[row(j, c.D) + d];
                    double t = c.softcap > 0 ? tanh(s * c.scale / c.softcap) : 0;
                    slope[j] = 1 - t * t;
                    p[j] = !seen ? -INFINITY : c.softcap > 0 ? c.softcap * t : s * c.scale;
                    if (c.bias) p[j] += x.bias.x[bias_place(c, b, h, i, j)];
                    top = fmax(top, p[j]);
                    m[j] = mask_of(c, x, b, h, i, j);
                }
                if (c.sinks) top = fmax(top, x.sinks.x[h]);
                double base = top == -INFINITY ? 0 : top; /* a row that sees nothing gives zeros */
                if (c.sinks) sum = exp(x.sinks.x[h] - base);
                for (int j = 0; j < c.T; j++) sum += p[j] = exp(p[j] - base);
                r.lse[((size_t)b * c.H + h) * c.S + i] = top + log(sum);
                for (int j = 0; j < c.T; j++) {
                    p[j] /= sum > 0 ? sum : 1;
                    dp[j] = 0;
                    for (int d = 0; d < E; d++) {
                        r.o[out + d] += p[j] * m[j] * x.v.x[row(j, E) + d];
                        dp[j] += x.go.x[out + d] * x.v.x[row(j, E) + d];
                    }
                }
                for (int d = 0; d < E; d++) delta += x.go.x[out + d] * r.o[out + d];
                if (c.sinks) delta -= x.dlse.x[((size_t)b * c.H + h) * c.S + i];
                for (int j = 0; j < c.T; j++) {
                    double raw = p[j] * (dp[j] * m[j] - delta), ds = raw * c.scale * slope[j];
                    if (c.bias) r.dbias[bias_place(c, b, h, i, j)] += raw;
                    for (int d = 0; d < c.D; d++) {
                        r.dq[at + d] += ds * x.k.x[row(j, c.D) + d];
                        r.dk[row(j, c.D) + d] += ds * x.q.x[at + d];
                    }
                    for (int d = 0; d < E; d++) r.dv[row(j, E) + d] += p[j] * m[j] * x.go.x[out + d];
                }
            }
    return r;
}
static expected define(const problem &c, const operands &x) {
    int of = std::max(1, std::min(16, (int)std::thread::hardware_concurrency()));
    std::vector<expected> parts(of);
    std::vector<std::thread> threads;
    for (int i = 0; i < of; i++) threads.emplace_back([&, i] { parts[i] = define_part(c, x, i, of); });
    for (std::thread &t : threads) t.join();
    expected &r = parts[0];
    for (int i = 1; i < of; i++) {
        expected &x = parts[i];
        std::vector<double> *to[] = {&r.o, &r.lse, &r.dq, &r.dk, &r.dv, &r.dbias};
        std::vector<double> *from[] = {&x.o, &x.lse, &x.dq, &x.dk, &x.dv, &x.dbias};
        for (int k = 0; k < 6; k++)
            for (size_t e = 0; e < to[k]->size(); e++) (*to[k])[e] += (*from[k])[e];
    }
    return r;
}

/* ── one case ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void run(const sc_task &forward, const sc_task &backward, const sc_task *bias = NULL) {
    sc_k_attention(&forward);
    sc_k_attention_grad(&backward);
    if (bias) sc_k_attention_bias_grad(bias);
    SC_CUDA(cudaStreamSynchronize(stream));
}

static bool same_again(operands &x, const sc_task &forward, const sc_task &backward, const sc_task *bias = NULL) {
    std::vector<std::vector<unsigned char>> before;
    tensor *results[] = {&x.o, &x.lse, &x.dq, &x.dk, &x.dv, &x.dbias};
    int n = bias ? 6 : 5;
    for (int k = 0; k < n; k++) {
        tensor *t = results[k];
        before.push_back(t->image);
        for (int64_t i = 0; i < count(*t); i++) memset(in_image(*t, i), 0xff, bytes_of_dtype(t->t.dtype));
        upload(*t);
    }
    run(forward, backward, bias);
    bool same = true;
    for (int i = 0; i < n; i++) {
        fetch(*results[i]);
        same = same && results[i]->image == before[i];
    }
    return same;
}

/* loose: by how much more than in the cases of the list results may be off. */
static void check(const problem &c, double loose = 1) {
    operands x = make_operands(c);
    calls with = calls_of(c, x);
    sc_task forward = with.forward(), backward = with.backward(), bias = with.bias();
    in_graph(stream, 1, [&] { /* captured first: a kernel may be loaded during capture */
                              sc_k_attention(&forward);
                              sc_k_attention_grad(&backward);
                              if (c.bias) sc_k_attention_bias_grad(&bias);
    });
    bool inside = fetch(x.o) & fetch(x.lse) & fetch(x.dq) & fetch(x.dk) & fetch(x.dv) & fetch(x.dbias);
    expected e = define(c, x);
    double most = c.dtype == FP32 ? 1e-5 : c.dtype == BF16 ? 2e-2 : 3e-3;
    most *= loose;
    double rms = e.o.size() < 4096 && loose > 1 ? most : most / 4; /* few elements: their mean is near the largest */
    std::string text;
    for (size_t i = 0; i < e.lse.size(); i++) /* of rows that see nothing */
        if (e.lse[i] == -INFINITY && x.lse.x[i] == -INFINITY) e.lse[i] = x.lse.x[i] = 0;
    bool good = close_to(text, "lse", x.lse.x, e.lse, 1e-5, 1e-5) & close_to(text, "o", x.o.x, e.o, most, rms) &
                close_to(text, "dq", x.dq.x, e.dq, most, rms) & close_to(text, "dk", x.dk.x, e.dk, most, rms) &
                close_to(text, "dv", x.dv.x, e.dv, most, rms);
    if (c.bias) {
        double far = c.bias_type == FP32 ? most : fmax(most, c.bias_type == BF16 ? 2e-2 : 3e-3);
        double few = e.dbias.size() < 16 ? far : far / 4; /* of few elements the mean is no smaller than the largest */
        good = good & close_to(text, "dbias", x.dbias.x, e.dbias, far, few);
    }
    if (!inside) text += ", WROTE OUTSIDE";
    bool same = same_again(x, forward, backward, c.bias ? &bias : NULL);
    if (!same) text += ", NOT THE SAME AGAIN";
    verdict(good && inside && same, name_of(c).c_str(), text.c_str());
    release_operands(x);
}

/* Equal values in another layout give equal bits, of the layouts that the same kernel takes. */
static void check_layouts(problem c) {
    std::vector<double> first[5];
    bool same = true;
    for (layout how : {PLAIN, FUSED, HEADS_FIRST, ODD}) {
        if (how == ODD && c.dtype != FP32 && library.major == 9) continue; /* not for the copy engine */
        c.how = how;
        seed_of_test = 99;
        operands x = make_operands(c);
        calls with = calls_of(c, x);
        run(with.forward(), with.backward());
        tensor *results[] = {&x.o, &x.lse, &x.dq, &x.dk, &x.dv};
        for (int i = 0; i < 5; i++) {
            fetch(*results[i]);
            if (how == PLAIN) first[i] = results[i]->x;
            same = same && results[i]->x == first[i];
        }
        release_operands(x);
    }
    c.how = PLAIN;
    verdict(same, ("equal bits in all layouts: " + name_of(c)).c_str(), "");
}

/* The same bits, time after time. */
static void check_repeats(const problem &c, int times) {
    operands x = make_operands(c);
    calls with = calls_of(c, x);
    sc_task forward = with.forward(), backward = with.backward();
    run(forward, backward);
    for (tensor *t : {&x.o, &x.lse, &x.dq, &x.dk, &x.dv}) fetch(*t);
    bool same = true;
    for (int i = 0; i < times && same; i++) same = same_again(x, forward, backward);
    verdict(same, (std::to_string(times) + " times the same bits: " + name_of(c)).c_str(), "");
    release_operands(x);
}

static void check_refusal() {
    problem c = {BF16, 1, 4, 4, 1, 1, 264, false, false, 0, 1, PLAIN};
    operands x = make_operands(c);
    calls with = calls_of(c, x);
    sc_task t = with.forward();
    jmp_buf there;
    refused = &there;
    bool said = setjmp(there) != 0;
    if (!said) sc_k_attention(&t);
    refused = NULL;
    verdict(said, "head size 264 is refused", "");
    release_operands(x);
}

static const problem problems[] = {
    /* dtype B S T H KV D causal documents p scale layout */
    {BF16, 1, 64, 64, 1, 1, 64, false, false, 0, 0.125, PLAIN},
    {BF16, 2, 150, 150, 2, 1, 64, true, false, 0, 0.125, PLAIN},
    {FP16, 1, 70, 133, 2, 2, 64, false, false, 0, 0.125, FUSED},
    {BF16, 1, 97, 97, 4, 2, 64, true, true, 0.25, 0.125, ODD},
    {BF16, 2, 40, 75, 2, 2, 24, false, false, 0.5, 0.2, HEADS_FIRST},
    {FP16, 1, 130, 130, 3, 1, 32, true, false, 0.1, 0.18, PLAIN},
    {FP16, 1, 65, 65, 2, 1, 20, true, true, 0, 0.22, PLAIN},
    {BF16, 1, 129, 129, 2, 1, 128, true, false, 0, 0.088, PLAIN},
    {FP16, 1, 80, 200, 2, 1, 128, false, false, 0.1, 0.088, FUSED},
    {BF16, 1, 100, 100, 2, 2, 80, true, true, 0, 0.11, PLAIN},
    {BF16, 1, 90, 90, 1, 1, 192, true, false, 0.1, 0.07, PLAIN},
    {BF16, 1, 70, 70, 2, 1, 256, true, false, 0, 0.0625, PLAIN},
    {FP16, 1, 33, 81, 1, 1, 250, false, false, 0.3, 0.0625, ODD},
    {BF16, 1, 1, 1, 1, 1, 8, true, false, 0, 0.35, PLAIN},
    {BF16, 1, 5, 300, 2, 1, 64, false, false, 0, -0.125, PLAIN},
    {BF16, 1, 20, 20, 1, 1, 64, true, false, 0, 0, PLAIN},
    {FP32, 1, 150, 150, 2, 1, 64, true, false, 0, 0.125, PLAIN},
    {FP32, 2, 40, 75, 2, 2, 20, false, false, 0.5, 0.2, ODD},
    {FP32, 1, 97, 97, 4, 2, 32, true, true, 0.25, 0.18, FUSED},
    {FP32, 1, 70, 70, 2, 1, 128, true, true, 0, 0.088, HEADS_FIRST},
    {FP32, 1, 33, 50, 2, 1, 256, false, false, 0.1, 0.0625, PLAIN},
    {FP32, 1, 20, 20, 1, 1, 9, true, false, 0, -0.3, PLAIN},
    {BF16, 1, 420, 420, 2, 1, 32, false, true, 0, 0.18, PLAIN}, /* tiles that share no document */
    {FP32, 1, 420, 420, 2, 1, 32, true, true, 0, 0.18, PLAIN},
    /* windows and soft caps: within a tile, over several, wider than the row, rows that see no key */
    {BF16, 1, 300, 300, 2, 1, 64, true, false, 0, 0.125, PLAIN, 50, 0, 0},
    {BF16, 2, 260, 260, 2, 2, 64, false, false, 0, 0.125, FUSED, 40, 100, 0},
    {FP16, 1, 200, 200, 2, 1, 128, true, false, 0.2, 0.088, ODD, 129, 0, 0},
    {BF16, 1, 150, 150, 1, 1, 256, true, false, 0, 0.0625, PLAIN, 1, 0, 0},
    {BF16, 1, 100, 100, 1, 1, 32, true, false, 0, 0.18, PLAIN, 1000, 1000, 0},
    {BF16, 1, 300, 90, 2, 1, 64, false, false, 0, 0.125, PLAIN, 17, 0, 0},
    {FP16, 1, 90, 300, 2, 1, 64, false, false, 0, 0.125, PLAIN, 0, 65, 0},
    {BF16, 1, 150, 150, 2, 1, 64, true, false, 0, 0.5, PLAIN, 0, 0, 2},
    {FP16, 1, 133, 133, 2, 2, 128, false, false, 0, -0.4, PLAIN, 0, 0, 3},
    {BF16, 1, 260, 260, 2, 1, 256, true, true, 0.1, 0.3, PLAIN, 70, 0, 2},
    {FP32, 1, 300, 300, 2, 1, 64, true, false, 0, 0.125, PLAIN, 50, 0, 0},
    {FP32, 2, 150, 70, 2, 2, 20, false, false, 0.3, 0.2, ODD, 20, 30, 1.5},
    {FP32, 1, 140, 140, 2, 1, 128, true, true, 0, 0.3, HEADS_FIRST, 33, 0, 2},
    {FP32, 1, 90, 90, 1, 1, 256, false, false, 0, -0.3, PLAIN, 0, 7, 2},
    {BF16, 2, 150, 150, 4, 2, 64, true, false, 0, 0.125, PLAIN, 0, 0, 0, true},
    {FP16, 1, 200, 70, 2, 1, 128, false, false, 0.2, 0.3, ODD, 20, 0, 2, true},
    {BF16, 1, 90, 90, 2, 2, 256, true, true, 0, 0.0625, PLAIN, 33, 0, 0, true},
    {FP32, 1, 150, 70, 2, 1, 64, false, false, 0.1, 0.3, PLAIN, 20, 5, 0, true},
    {FP32, 2, 80, 80, 4, 4, 128, true, false, 0, 0.088, FUSED, 0, 0, 2, true},
    /* heads of k and of v of two sizes; causal where there are more or fewer queries than keys */
    {BF16, 1, 150, 150, 4, 2, 192, true, false, 0, 0.072, PLAIN, 0, 0, 0, false, 128},
    {FP16, 2, 100, 100, 2, 1, 40, false, true, 0.2, 0.15, ODD, 0, 0, 0, false, 64},
    {BF16, 1, 90, 200, 2, 2, 64, false, false, 0, 0.125, FUSED, 30, 70, 2, true, 120},
    {FP32, 1, 100, 100, 2, 1, 96, true, true, 0.1, 0.1, HEADS_FIRST, 0, 0, 0, true, 33},
    {FP32, 1, 70, 70, 2, 2, 20, false, false, 0, 0.2, PLAIN, 0, 0, 0, false, 200},
    {BF16, 1, 200, 70, 2, 1, 64, true, false, 0, 0.125, PLAIN},
    {FP16, 1, 70, 200, 2, 1, 128, true, false, 0.1, 0.088, FUSED},
    {BF16, 1, 200, 70, 2, 1, 64, true, false, 0, 0.125, PLAIN, 150, 0, 2, true, 32},
    {FP32, 1, 150, 70, 2, 1, 64, true, false, 0, 0.125, PLAIN},
    {FP32, 1, 70, 150, 2, 1, 64, true, false, 0.1, 0.125, PLAIN, 20, 0},
    /* biases: of each score, one for all of some kinds; with pairs and whole rows of -inf; beside all else */
    {BF16, 2, 150, 150, 4, 2, 64, true, false, 0, 0.125, PLAIN, 0, 0, 0, false, 0, "BHST", FP32},
    {BF16, 2, 150, 150, 2, 2, 64, false, false, 0, 0.125, FUSED, 0, 0, 0, false, 0, "1HST", BF16},
    {FP16, 2, 90, 200, 2, 1, 128, false, false, 0.2, 0.088, ODD, 0, 0, 0, false, 0, "1H1T", FP16},
    {FP16, 2, 130, 130, 2, 1, 128, true, true, 0, 0.088, PLAIN, 0, 0, 2, true, 0, "B1S1", FP32},
    {BF16, 1, 90, 90, 2, 2, 256, false, false, 0, -0.0625, PLAIN, 33, 20, 0, true, 0, "11ST", BF16},
    {BF16, 2, 100, 70, 2, 1, 64, true, false, 0.1, 0.15, HEADS_FIRST, 0, 0, 0, true, 30, "1H11", FP32},
    {BF16, 2, 100, 100, 4, 2, 192, true, true, 0.1, 0.07, PLAIN, 50, 0, 3, true, 128, "B1ST", BF16},
    {FP32, 2, 100, 100, 4, 2, 64, true, false, 0, 0.125, PLAIN, 0, 0, 0, false, 0, "BHST", FP32},
    {FP32, 2, 70, 110, 2, 1, 20, false, false, 0.3, 0.2, ODD, 0, 0, 1.5, true, 0, "1HS1", FP32},
    {FP32, 2, 80, 80, 2, 2, 128, true, true, 0, 0.088, FUSED, 30, 0, 0, true, 96, "111T", FP32},
    {FP32, 2, 50, 60, 2, 2, 256, false, false, 0.1, 0.0625, PLAIN, 0, 7, 2, true, 0, "1111", FP32},
};
static const problem larger[] = {
    {BF16, 2, 1024, 1024, 4, 2, 64, true, false, 0, 0.125, FUSED},
    {BF16, 1, 1000, 1000, 4, 1, 128, true, true, 0.1, 0.088, PLAIN},
    {FP16, 3, 515, 1030, 2, 2, 96, false, false, 0, 0.1, PLAIN},
    {BF16, 1, 777, 777, 2, 1, 256, true, false, 0.1, 0.0625, PLAIN},
    {FP32, 1, 1000, 1000, 2, 1, 64, true, false, 0.1, 0.125, PLAIN},
    {FP32, 1, 600, 600, 2, 1, 128, true, true, 0, 0.088, PLAIN},
    {BF16, 1, 2048, 2048, 4, 2, 128, true, false, 0, 0.088, FUSED, 512, 0, 0},
    {BF16, 1, 1500, 1500, 4, 2, 256, true, false, 0, 0.0625, PLAIN, 400, 0, 50},
    {FP16, 2, 1000, 1000, 4, 4, 64, false, true, 0.1, 0.125, PLAIN, 200, 100, 30},
    {BF16, 1, 2000, 2000, 8, 1, 64, true, false, 0, 0.125, PLAIN, 128, 0, 0, true},
    {BF16, 1, 1300, 1000, 16, 2, 64, false, false, 0, 0.125, PLAIN}, /* several jobs for a key head */
    {BF16, 1, 1000, 1000, 8, 1, 128, true, true, 0.1, 0.088, PLAIN, 300, 0, 20, true},
    {BF16, 1, 1000, 1000, 8, 8, 192, true, false, 0, 0.072, PLAIN, 0, 0, 0, false, 128},
    {BF16, 1, 1000, 600, 4, 2, 128, true, false, 0, 0.088, FUSED},
    {BF16, 1, 600, 1000, 4, 2, 128, true, false, 0, 0.088, FUSED},
    {BF16, 2, 1000, 1000, 4, 2, 128, true, false, 0, 0.088, FUSED, 0, 0, 0, false, 0, "1HST", BF16},
    {BF16, 2, 700, 1100, 4, 4, 64, false, false, 0.1, 1, PLAIN, 0, 0, 0, false, 0, "1HST", FP32},
};

/* ── random cases: every variant with every other, shapes of all sizes that the definition computes in a second or so ──
 */
static problem random_problem(std::mt19937 &random) {
    auto below = [&](int n) { return (int)(random() % (unsigned)n); };
    auto size = [&](int most) { return 1 + (int)(pow((double)most, below(1001) / 1000.0) - 1 + 0.5); };
    auto one_in = [&](int n) { return below(n) == 0; };
    problem c = {};
    static const int groups[] = {1, 1, 2, 3, 4, 8};
    do {
        c.dtype = one_in(6) ? FP32 : one_in(3) ? FP16 : BF16;
        c.B = size(4), c.S = size(5000), c.T = one_in(3) ? size(5000) : c.S;
        c.D = one_in(6) ? size(256) : 8 * size(32);
        c.KV = size(16), c.H = c.KV * groups[below(6)];
    } while ((double)c.B * c.H * c.S * c.T * c.D > 4e9 || c.H > 64 || c.S < 2 || c.T < 2);
    c.E = one_in(5) ? (one_in(6) ? size(256) : 8 * size(32)) : 0;
    c.causal = !one_in(3);
    c.documents = c.S == c.T && one_in(3);
    c.p = one_in(4) ? 0.1 + below(5) * 0.1 : 0;
    c.scale = 1 / sqrt((double)c.D);
    c.how = (layout)below(4);
    /* more than one key: else q and k have no gradient */
    if (one_in(2)) c.before = 1 + size(c.S + 10), c.after = one_in(2) ? size(c.S + 10) : 0;
    c.softcap = one_in(3) ? 1 + below(50) : 0;
    c.sinks = one_in(3);
    if (one_in(4)) {
        /* one for all keys would have no gradient */
        static const char *const shapes[] = {"BHST", "1HST", "11ST", "1H1T", "B11T"};
        static const int types[] = {FP32, BF16, FP16};
        c.bias = shapes[below(5)], c.bias_type = types[below(3)];
    }
    return c;
}

/* ── timing ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
#ifndef SC_EMULATE
static void time_case(const problem &c) {
    operands x = {};
    int E = value_size(c);
    for (tensor *t : {&x.q, &x.dq}) *t = noise(c.dtype, {c.B, c.S, c.H, c.D});
    for (tensor *t : {&x.o, &x.go}) *t = noise(c.dtype, {c.B, c.S, c.H, E});
    for (tensor *t : {&x.k, &x.dk}) *t = noise(c.dtype, {c.B, c.T, c.KV, c.D});
    for (tensor *t : {&x.v, &x.dv}) *t = noise(c.dtype, {c.B, c.T, c.KV, E});
    x.lse = noise(FP32, {c.B, c.H, c.S});
    x.work = noise(BOOL, {work_bytes(c)});
    x.record = noise(BOOL, {(int64_t)sizeof(sc_record)});
    x.sinks = noise(FP32, {c.H});
    x.dlse = noise(FP32, {c.B, c.H, c.S});
    x.documents = make(INT32, {c.B, c.S});
    int64_t token = 0;
    fill(x.documents, [&] { return (double)(token++ % c.S / 512); });
    calls with = calls_of(c, x);
    sc_task forward = with.forward(), backward = with.backward();
    run(forward, backward, NULL);
    double f = milliseconds(stream, [&] { sc_k_attention(&forward); }),
           b = milliseconds(stream, [&] { sc_k_attention_grad(&backward); });
    double pairs = (double)c.B * c.H * c.S * c.T * (c.causal ? 0.5 : 1);
    printf("%-60s forward %8.3f ms %6.1f TFLOP/s   backward %8.3f ms %6.1f TFLOP/s\n", name_of(c).c_str(), f,
           2 * pairs * (c.D + E) / f / 1e9, b, 2 * pairs * (3 * c.D + 2 * E) / b / 1e9);
    release_operands(x);
}
static void bench(size_t only) { /* 0: all cases */
    static const problem c[] = {
        {BF16, 1, 8192, 8192, 32, 8, 128, true, false, 0, 0.088, PLAIN},
        {BF16, 4, 2048, 2048, 32, 8, 128, true, false, 0, 0.088, PLAIN},
        {BF16, 64, 1024, 1024, 12, 12, 64, true, false, 0, 0.125, PLAIN},
        {BF16, 32, 1024, 1024, 25, 25, 64, true, false, 0, 0.125, PLAIN},
        {BF16, 32, 1024, 1024, 14, 2, 64, true, false, 0, 0.125, PLAIN},
        {BF16, 64, 1024, 1024, 12, 12, 64, true, false, 0.1, 0.125, PLAIN},
        {BF16, 4, 2048, 2048, 16, 16, 96, true, false, 0, 0.1, PLAIN},
        {BF16, 4, 2048, 2048, 16, 16, 256, true, false, 0, 0.0625, PLAIN},
        {FP32, 8, 1024, 1024, 12, 12, 64, true, false, 0, 0.125, PLAIN},
        {FP32, 2, 2048, 2048, 32, 8, 128, true, false, 0, 0.088, PLAIN},
        {BF16, 1, 8192, 8192, 32, 8, 128, true, false, 0, 0.088, PLAIN, 1024, 0, 0},
        {BF16, 1, 8192, 8192, 32, 8, 128, true, false, 0, 0.088, PLAIN, 0, 0, 50},
        {BF16, 1, 8192, 8192, 16, 8, 256, true, false, 0, 0.0625, PLAIN, 4096, 0, 50},
        {BF16, 1, 8192, 8192, 64, 8, 64, true, false, 0, 0.125, PLAIN, 128, 0, 0},
        {BF16, 1, 8192, 8192, 32, 8, 128, true, true, 0, 0.088, PLAIN},
        {BF16, 1, 8192, 8192, 32, 8, 128, true, false, 0, 0.088, PLAIN, 1024, 0, 0, true},
        {BF16, 1, 32768, 32768, 32, 8, 128, true, false, 0, 0.088, PLAIN},
        {BF16, 4, 4096, 4096, 14, 2, 64, true, false, 0, 0.125, PLAIN},
        {BF16, 1, 8192, 8192, 32, 8, 128, false, false, 0, 0.088, PLAIN},
        {BF16, 4, 4096, 4096, 32, 8, 64, true, false, 0, 0.125, PLAIN},
        {BF16, 1, 8192, 8192, 16, 16, 192, true, false, 0, 0.072, PLAIN, 0, 0, 0, false, 128},
        {BF16, 1, 4096, 4096, 32, 32, 192, true, false, 0, 0.072, PLAIN, 0, 0, 0, false, 128},
        {BF16, 1, 131072, 131072, 8, 2, 128, true, false, 0, 0.088, PLAIN},
        {BF16, 1, 8192, 8192, 16, 2, 128, true, false, 0, 0.088, PLAIN},
        {BF16, 1, 8192, 8192, 12, 2, 128, true, false, 0, 0.088, PLAIN},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        if (!only || only == i + 1) time_case(c[i]);
}
#endif

int main(int argc, char **argv) {
    library.shared_bytes = 99 << 10;
    SC_CUDA(cudaStreamCreate(&stream));
#ifndef SC_EMULATE
    int device = 0;
    SC_CUDA(cudaDeviceGetAttribute(&library.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    SC_CUDA(cudaDeviceGetAttribute(&library.multiprocessors, cudaDevAttrMultiProcessorCount, device));
    SC_CUDA(cudaDeviceGetAttribute(&library.major, cudaDevAttrComputeCapabilityMajor, device));
    SC_CUDA(cudaDeviceGetAttribute(&library.minor, cudaDevAttrComputeCapabilityMinor, device));
    if (getenv("SC_PORTABLE")) library.major = 8;
    if (argc > 1 && !strcmp(argv[1], "--bench")) {
        bench(argc > 2 ? (size_t)atoi(argv[2]) : 0);
        return 0;
    }
#endif
    if (argc > 2 && !strcmp(argv[1], "--repeat")) {
        for (const problem &c : larger) check_repeats(c, atoi(argv[2]));
        return closing();
    }
    if (argc > 3 && !strcmp(argv[1], "--random")) {
        std::mt19937 random((unsigned)atoi(argv[2]));
        for (int i = 0; i < atoi(argv[3]); i++) check(random_problem(random), 2);
        return closing();
    }
    bool quick = argc > 1 && !strcmp(argv[1], "--quick");
    size_t one = argc > 2 ? (size_t)atoi(argv[2]) : 0; /* --only N: that case alone, counted from 1 */
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        if (!one || one == i + 1) check(problems[i]);
    if (one) return closing();
    check_layouts({BF16, 1, 90, 90, 2, 1, 64, true, false, 0.1, 0.125, PLAIN});
    check_layouts({FP32, 1, 50, 50, 2, 1, 40, true, false, 0, 0.125, PLAIN});
    check_refusal();
#ifndef SC_EMULATE
    for (const problem &c : larger)
        if (!quick) check(c);
#else
    (void)larger, (void)quick;
#endif
    return closing();
}
