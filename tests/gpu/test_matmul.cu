/* sc_k_matmul against sums in double: types, transposes, bias, folded and batched layouts, odd sizes and addresses.
 * Relies on: check.h, runtime/cuda/k_matmul.cu, k_matmul_hopper.cu, k_silu_mul.cu, cuBLASLt.
 * Relied on by: make gpu-test. `--bench` times shapes of BASELINES.md, the heuristic's choice and the best of sixteen.
 */
#include "../../runtime/cuda/matmul.h"
#include "../../runtime/cuda/silu_mul.h"
#include "check.h"
#include <cublasLt.h>

static cudaStream_t stream;
static sc_cuda library;

struct problem {
    const char *what = "";
    int in, out; /* dtypes */
    bool ta, tb, bias;
    extents lead; /* of a and y, of b where it is not shared */
    int64_t m, n, k;
    bool shared = true;                   /* b has 2 dims */
    extents stride_a, stride_b, stride_y; /* empty: contiguous */
    int64_t shift_a, shift_b, shift_y;
    bool by_library = true;
    int add, f; /* y = f(... + c); an sc_epilogue */
};

struct operands {
    tensor y, a, b, bias, work, c, x, x2, z; /* z: the second result; x: or the gate; x2: up */
};
static extents shape_of(const problem &c, bool lead, int64_t rows, int64_t columns) {
    extents s = lead ? c.lead : extents{};
    s.push_back(rows);
    s.push_back(columns);
    return s;
}
static operands make_operands(const problem &c) {
    operands x = {};
    x.a = make(c.in, shape_of(c, true, c.ta ? c.k : c.m, c.ta ? c.m : c.k), c.stride_a, c.shift_a);
    x.b = make(c.in, shape_of(c, !c.shared, c.tb ? c.n : c.k, c.tb ? c.k : c.n), c.stride_b, c.shift_b);
    x.y = make(c.out, shape_of(c, true, c.m, c.n), c.stride_y, c.shift_y);
    x.bias = make(c.in, {c.n});
    x.work = make(BOOL, {32 << 20});
    for (tensor *t : {&x.c, &x.x, &x.x2, &x.z}) *t = make(c.out, shape_of(c, true, c.m, c.n));
    for (tensor *t : {&x.a, &x.b, &x.bias, &x.c, &x.x, &x.x2}) fill(*t, normal);
    upload(x.y);
    upload(x.z);
    return x;
}
static void release_operands(operands &x) {
    for (tensor *t : {&x.y, &x.a, &x.b, &x.bias, &x.work, &x.c, &x.x, &x.x2, &x.z})
        if (t->base) release(*t);
}
static const char *name_of(int f) {
    if (f & SC_GELU) return f & SC_TOO ? " gelu, argument too" : f & SC_GRADIENT ? " gelu's gradient" : " gelu";
    return f & SC_TOO ? " gated, argument too" : f & SC_GRADIENT ? " gate's gradients" : f ? " gated" : "";
}

static bool gives_two(int f) {
    return f & SC_TOO || SC_HAS(f, SC_GATED | SC_GRADIENT);
}
static sc_matmul_args args_of(const problem &c, const operands &x) {
    return {.y = x.y.t,
            .aux = given(gives_two(c.f), x.z),
            .a = x.a.t,
            .b = x.b.t,
            .bias = given(c.bias, x.bias),
            .c = given(c.add, x.c),
            .x = given(SC_HAS(c.f, SC_GELU | SC_GRADIENT), x.x),
            .gate = given(c.f & SC_GATED, x.x),
            .up = given(SC_HAS(c.f, SC_GATED | SC_GRADIENT), x.x2),
            .work = x.work.t,
            .trans_a = c.ta,
            .trans_b = c.tb,
            .epilogue = c.f};
}
static double gelu(double x) {
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
static double gelu_slope(double x) {
    double t = tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
}

/* y; `argument`: what gelu is taken of instead. */
static std::vector<double> define(const problem &c, const operands &x, bool argument = false) {
    int64_t batches = count(x.y) / (c.m * c.n);
    std::vector<double> y((size_t)count(x.y));
    for (int64_t u = 0; u < batches; u++) {
        const double *a = &x.a.x[u * c.m * c.k], *b = &x.b.x[c.shared ? 0 : u * c.k * c.n];
        for (int64_t i = 0; i < c.m; i++)
            for (int64_t j = 0; j < c.n; j++) {
                double s = c.bias ? x.bias.x[j] : 0;
                for (int64_t l = 0; l < c.k; l++)
                    s += a[c.ta ? l * c.m + i : i * c.k + l] * b[c.tb ? j * c.k + l : l * c.n + j];
                int64_t at = u * c.m * c.n + i * c.n + j;
                if (c.add) s += x.c.x[at];
                y[at] = argument || !c.f ? s : SC_HAS(c.f, SC_GELU | SC_GRADIENT) ? s * gelu_slope(x.x.x[at]) : gelu(s);
            }
    }
    return y;
}

static void run(const sc_task &t) {
    sc_k_matmul(&t);
    SC_CUDA(cudaStreamSynchronize(stream));
}
static void run_graph(const sc_task &t) {
    in_graph(stream, 1, [&] { sc_k_matmul(&t); });
}

static void spoil(tensor &t) {
    for (int64_t i = 0; i < count(t); i++) memset(in_image(t, i), 0xff, bytes_of_dtype(t.t.dtype));
    upload(t);
}

static bool compare(const problem &c, operands &x, std::string &text) {
    double most = c.out == FP32 ? 1e-5 : c.out == BF16 ? 5e-3 : 7e-4;
    bool inside = fetch(x.y), good = close_to(text, "y", x.y.x, define(c, x), most, most / 2);
    if (c.f && c.out != FP32) most *= 3; /* the library's tanh, and gelu of the rounded argument or of the other */
    if (c.f) text = "", good = close_to(text, "y", x.y.x, define(c, x), most, most / 2);
    if (SC_HAS(c.f, SC_GELU | SC_TOO)) {
        inside &= fetch(x.z);
        good &= close_to(text, "z", x.z.x, define(c, x, true), most, most / 2);
    }
    if (!inside) text += ", WROTE OUTSIDE";
    return inside && good;
}

static void check(const problem &c) {
    operands x = make_operands(c);
    sc_matmul_args args = args_of(c, x);
    sc_task t = task_of(args, SC_SLOTS_matmul, stream, &library);
    sc_matmul_choice found[16];
    int n = sc_matmul_candidates(&t, found, 16);
    std::string text;
    run_graph(t); /* captured first: what a product needs may be loaded during capture */
    bool good = compare(c, x, text);
    std::vector<unsigned char> before = x.y.image;
    for (int again = 0; again < 2; again++) { /* from the plan that is kept, then from a new one, in a graph */
        if (again) sc_matmul_table(&library, NULL, 0);
        spoil(x.y);
        run_graph(t);
        fetch(x.y);
        if (x.y.image != before) good = false, text += ", NOT THE SAME AGAIN";
    }
    for (int i = 1; i<n; i += n> 2 ? n - 2 : 1) { /* others, by way of the table; the last may be one apart */
        sc_matmul_table(&library, &found[i], 1);
        spoil(x.y);
        run(t);
        text += found[i].apart ? ", apart" : ", by table";
        good &= compare(c, x, text);
        sc_matmul_table(&library, NULL, 0);
    }
    text += n ? ", library" : ", own kernel";
    if (c.by_library != (n > 0)) text += " (UNEXPECTED)"; /* no failure: what the library takes is its affair */
    char name[200];
    std::string lead;
    for (int64_t d : c.lead) lead += std::to_string(d) + "x";
    snprintf(name, sizeof name, "%s %s%s %s%lldx%lldx%lld%s%s%s%s%s", dtype_text(c.in), c.out == c.in ? "" : "to ",
             c.out == c.in ? c.what : (std::string(dtype_text(c.out)) + " " + c.what).c_str(), lead.c_str(),
             (long long)c.m, (long long)c.n, (long long)c.k, c.ta ? " ta" : "", c.tb ? " tb" : "",
             c.bias ? " bias" : "", c.add ? " c" : "", name_of(c.f));
    verdict(good, name, text.c_str());
    release_operands(x);
}

/* bias = -round(a b), so that y = a b - round(a b): all 0 if the product were rounded before the bias is added. */
static void check_one_rounding(int dtype) {
    problem c = {
        .what = "one rounding", .in = dtype, .out = dtype, .tb = true, .bias = true, .m = 1, .n = 256, .k = 512};
    operands x = make_operands(c);
    fill(x.bias, [] { return 0.0; });
    std::vector<double> product = define(c, x);
    size_t at = 0;
    fill(x.bias, [&] { return -product[at++]; });
    sc_matmul_args args = args_of(c, x);
    sc_task t = task_of(args, SC_SLOTS_matmul, stream, &library);
    run(t);
    fetch(x.y);
    std::string text;
    bool good = close_to(text, "y", x.y.x, define(c, x), 2e-2, 1e-2);
    verdict(good, (std::string(dtype_text(dtype)) + " one rounding, after the bias").c_str(), text.c_str());
    release_operands(x);
}

static const char *dtypes_of(int in_a, int in_b, int out) {
    static char text[64];
    snprintf(text, sizeof text, "%s and %s to %s", dtype_text(in_a), dtype_text(in_b), dtype_text(out));
    return text;
}

/* Of 8 bits, by scales, as the compiler makes such products: along k, wide results. Tensor cores keep some 14 bits of
 * sums of 8 bits, hence 2e-3. */
static void check_8_bits(int in_a, int in_b, int out, int64_t m, int64_t n, int64_t k, bool bias, bool add) {
    problem c = {.in = FP32, .out = out, .tb = true, .bias = bias, .lead = {2}, .m = m / 2, .n = n, .k = k, .add = add};
    operands x = make_operands(c);
    tensor a = make(in_a, {2, m / 2, k}), b = make(in_b, {n, k}), scale_a = make(FP32, {1}), scale_b = make(FP32, {1});
    release(x.bias);
    x.bias = make(out, {n});
    fill(x.bias, normal);
    fill(a, [] { return 4 * normal(); });
    fill(b, [] { return 4 * normal(); });
    fill(scale_a, [] { return 0.5; });
    fill(scale_b, [] { return 0.25; });
    x.a.x = a.x, x.b.x = b.x;
    for (double &v : x.a.x) v *= 0.5 * 0.25;
    sc_matmul_args args = args_of(c, x);
    args.a = a.t, args.b = b.t, args.scale_a = scale_a.t, args.scale_b = scale_b.t;
    sc_task t = task_of(args, SC_SLOTS_matmul, stream, &library);
    sc_matmul_choice found[16];
    int taken = sc_matmul_candidates(&t, found, 16);
    std::string text;
    bool good = true;
    std::vector<unsigned char> first;
    for (int again = 0; again < 3; again++) {
        spoil(x.y);
        again ? run_graph(t) : run(t);
        good &= fetch(x.y);
        if (again && x.y.image != first) good = false, text += ", NOT THE SAME AGAIN";
        first = x.y.image;
    }
    double most = 2e-3 + (out == BF16 ? 5e-3 : 7e-4);
    good &= close_to(text, "y", x.y.x, define(c, x), most, most / 2);
    char name[200];
    snprintf(name, sizeof name, "%s %lldx%lldx%lld%s%s", dtypes_of(in_a, in_b, out), (long long)m, (long long)n, (long long)k, bias ? " bias" : "", add ? " c" : "");
    verdict(good, name, (text + (taken ? ", library" : ", own kernel")).c_str());
    for (tensor *y : {&a, &b, &scale_a, &scale_b}) release(*y);
    release_operands(x);
}

/* The same with scales of blocks, as quantize_blocks lays them out. */
static void check_blocks(int out, int64_t m, int64_t n, int64_t k, bool square, bool bias, bool add, bool by_library) {
    problem c = {.in = FP32, .out = out, .tb = true, .bias = bias, .lead = {2}, .m = m / 2, .n = n, .k = k, .add = add};
    operands x = make_operands(c);
    int64_t blocks = (k + 127) / 128, pitch = (blocks + 3) / 4 * 4;
    tensor a = make(FP8_E4M3, {2, m / 2, k}), b = make(FP8_E4M3, {n, k}), scale_a = make(FP32, {blocks, m});
    tensor scale_b = square ? make(FP32, {(n + 127) / 128, pitch}) : make(FP32, {blocks, n});
    release(x.bias);
    x.bias = make(out, {n});
    fill(x.bias, normal);
    for (tensor *t : {&a, &b}) fill(*t, [] { return 4 * normal(); });
    for (tensor *t : {&scale_a, &scale_b}) fill(*t, [] { return 0.5 + 0.4 * uniform(); });
    for (int64_t r = 0; r < m; r++)
        for (int64_t l = 0; l < k; l++) x.a.x[r * k + l] = a.x[r * k + l] * scale_a.x[l / 128 * m + r];
    for (int64_t r = 0; r < n; r++)
        for (int64_t l = 0; l < k; l++)
            x.b.x[r * k + l] = b.x[r * k + l] * scale_b.x[square ? r / 128 * pitch + l / 128 : l / 128 * n + r];
    sc_matmul_args args = args_of(c, x);
    args.a = a.t, args.b = b.t, args.scale_a = scale_a.t, args.scale_b = scale_b.t, args.square_b = square;
    sc_task t = task_of(args, SC_SLOTS_matmul, stream, &library);
    sc_matmul_choice found[16];
    int taken = sc_matmul_candidates(&t, found, 16);
    std::string text;
    bool good = true;
    std::vector<unsigned char> first;
    for (int again = 0; again < 3; again++) {
        spoil(x.y);
        again ? run_graph(t) : run(t);
        good &= fetch(x.y);
        if (again && x.y.image != first) good = false, text += ", NOT THE SAME AGAIN";
        first = x.y.image;
    }
    double most = 2e-3 + (out == BF16 ? 5e-3 : out == FP16 ? 7e-4 : 1e-5);
    good &= close_to(text, "y", x.y.x, define(c, x), most, most / 2);
    text += taken ? ", library" : ", own kernel";
    if (by_library != (taken > 0)) text += " (UNEXPECTED)"; /* slow, if it should be the library's */
    char name[200];
    snprintf(name, sizeof name, "%s by blocks%s %lldx%lldx%lld%s%s", dtypes_of(FP8_E4M3, FP8_E4M3, out),
             square ? ", b's squares," : "", (long long)m, (long long)n, (long long)k, bias ? " bias" : "",
             add ? " c" : "");
    verdict(good, name, text.c_str());
    for (tensor *y : {&a, &b, &scale_a, &scale_b}) release(*y);
    release_operands(x);
}

static void check_all_blocks() {
    for (int out : {BF16, FP16, FP32})
        for (int square = 0; square < 2; square++)
            for (int more = 0; more < 4; more++) {
                bool bias = more & 1, add = more & 2;
                check_blocks(out, 64, 96, 128, square, bias, add, true);
                check_blocks(out, 144, 272, 208, square, bias, add, true); /* what blocks do not divide */
                check_blocks(out, 34, 17, 141, square, bias, add, false);
            }
    check_blocks(BF16, 256, 512, 1024, true, false, false, true);
    check_blocks(FP32, 256, 512, 1024, false, false, true, true);
}

static void check_all_8_bits() {
    for (int in_a : {FP8_E4M3, FP8_E5M2})
        for (int in_b : {FP8_E4M3, FP8_E5M2})
            for (int out : {BF16, FP16, FP32})
                for (int more = 0; more < 4; more++) {
                    check_8_bits(in_a, in_b, out, 64, 96, 128, more & 1, more & 2);
                    check_8_bits(in_a, in_b, out, 34, 17, 29, more & 1, more & 2);
                }
    check_8_bits(FP8_E4M3, FP8_E4M3, BF16, 256, 512, 1024, true, false);
    check_8_bits(FP8_E4M3, FP8_E5M2, FP32, 256, 512, 1024, false, true);
}

static void check_all() {
    for (int in : {FP32, BF16, FP16})
        for (int flags = 0; flags < 8; flags++) {
            bool ta = flags & 1, tb = flags & 2, bias = flags & 4;
            check({.in = in, .out = in, .ta = ta, .tb = tb, .bias = bias, .m = 65, .n = 40, .k = 33});
            check({.in = in, .out = in, .ta = ta, .tb = tb, .bias = bias, .m = 64, .n = 96, .k = 128});
        }
    for (int in : {FP32, BF16}) {
        check({.what = "folded", .in = in, .out = in, .tb = true, .bias = true, .lead = {2, 3}, .m = 16, .n = 24,
               .k = 32});
        check({.what = "folded, one row each", .in = in, .out = in, .bias = true, .lead = {2, 5}, .m = 1, .n = 24,
               .k = 32});
        check({.what = "strided rows", .in = in, .out = in, .bias = true, .m = 20, .n = 24, .k = 32,
               .stride_a = {40, 1}, .stride_b = {56, 1}, .stride_y = {72, 1}, .shift_a = 8, .shift_b = 16});
        check({.what = "leading dims swapped, b shared", .in = in, .out = in, .tb = true, .lead = {3, 4}, .m = 8,
               .n = 16, .k = 32, .stride_a = {32 * 8, 3 * 32 * 8, 32, 1}});
        check({.what = "rows far apart, b shared", .in = in, .out = in, .tb = true, .lead = {3}, .m = 8, .n = 16,
               .k = 32, .stride_a = {32, 3 * 32, 1}});
        check({.what = "b shared, a transposed", .in = in, .out = in, .ta = true, .lead = {3}, .m = 8, .n = 16,
               .k = 32});
        check({.what = "batched", .in = in, .out = in, .tb = true, .bias = true, .lead = {2, 3}, .m = 8, .n = 16,
               .k = 32, .shared = false});
        check({.what = "heads first", .in = in, .out = in, .tb = true, .lead = {2, 3}, .m = 20, .n = 20, .k = 16,
               .shared = false, .stride_a = {960, 16, 48, 1}, .stride_b = {960, 16, 48, 1}});
        check({.what = "b expanded", .in = in, .out = in, .ta = true, .tb = true, .lead = {4}, .m = 8, .n = 16, .k = 32,
               .shared = false, .stride_b = {0, 32, 1}});
        check({.what = "odd addresses", .in = in, .out = in, .tb = true, .bias = true, .m = 33, .n = 17, .k = 29,
               .stride_a = {31, 1}, .stride_b = {29, 1}, .stride_y = {19, 1}, .shift_a = 1, .shift_b = 3,
               .shift_y = 1});
        check({.what = "rows of a on one another", .in = in, .out = in, .tb = true, .bias = true, .m = 8, .n = 16,
               .k = 32, .stride_a = {0, 1}, .by_library = false});
        check({.what = "one column", .in = in, .out = in, .bias = true, .m = 40, .n = 1, .k = 32});
        check({.what = "inner size 1", .in = in, .out = in, .tb = true, .m = 40, .n = 24, .k = 1});
    }
    for (int in : {BF16, FP16})
        for (bool bias : {false, true}) {
            check({.what = "weight gradient", .in = in, .out = FP32, .ta = true, .bias = bias, .m = 48, .n = 64,
                   .k = 200});
            check({.what = "batched", .in = in, .out = FP32, .bias = bias, .lead = {2}, .m = 17, .n = 20, .k = 24,
                   .shared = false});
        }
    check({.what = "own", .in = FP32, .out = BF16, .ta = true, .bias = true, .lead = {2}, .m = 70, .n = 130, .k = 65,
           .by_library = false});
    check({.what = "own", .in = FP16, .out = BF16, .tb = true, .m = 70, .n = 66, .k = 50, .by_library = false});
    for (int dtype : {BF16, FP16}) check_one_rounding(dtype);
    for (int in : {FP32, BF16, FP16})
        for (bool bias : {false, true})
            for (int f : {0, SC_GELU | SC_TOO, SC_GELU | SC_GRADIENT, +SC_GELU}) { /* aligned, not, rows folded */
                if (bias && SC_HAS(f, SC_GELU | SC_GRADIENT)) continue;
                bool tb = SC_HAS(f, SC_GELU | SC_GRADIENT);
                check({.in = in, .out = in, .tb = tb, .bias = bias, .m = 64, .n = 96, .k = 128, .add = !f, .f = f});
                check({.in = in, .out = in, .tb = tb, .bias = bias, .m = 33, .n = 17, .k = 29,
                       .by_library = in == FP32, .add = !f, .f = f});
                check({.what = "folded", .in = in, .out = in, .bias = bias, .lead = {2, 3}, .m = 16, .n = 24, .k = 32,
                       .add = !f, .f = f});
            }
    check({.what = "weight gradient", .in = BF16, .out = FP32, .ta = true, .m = 48, .n = 64, .k = 200, .add = 1});
#ifndef SC_EMULATE
    for (int in : {FP32, BF16, FP16}) {
        check({.in = in, .out = in, .tb = true, .bias = true, .m = 512, .n = 768, .k = 1024});
        check({.what = "split k", .in = in, .out = FP32, .ta = true, .m = 96, .n = 128, .k = 8192});
    }
#endif
}

/* ── gates ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Both results (one, for f = 5), by what was stored of the product where that is a result. */
static bool compare_gated(const problem &c, const std::vector<double> &sums, const std::vector<double> &gate,
                          const std::vector<double> &up, const tensor &y, const tensor &z, std::string &text) {
    double most = c.out == FP32 ? 1e-5 : c.out == BF16 ? 5e-3 : 7e-4;
    std::vector<double> first(sums), second(sums);
    for (size_t i = 0; i < sums.size(); i++) {
        double s = 1 / (1 + exp(-gate[i])), silu = gate[i] * s;
        first[i] = SC_HAS(c.f, SC_GATED | SC_GRADIENT) ? sums[i] * up[i] * (s + silu * (1 - s))
                   : c.f == SC_GATED    ? silu * sums[i]
                                        : silu * z.x[i];
        if (SC_HAS(c.f, SC_GATED | SC_GRADIENT)) second[i] = sums[i] * silu;
    }
    bool good = c.f == SC_GATED || close_to(text, "z", z.x, second, 2 * most, most);
    return close_to(text, "y", y.x, first, 2 * most, most) && good;
}

/* in_place: y has the gate's bytes. */
static void check_gated(const problem &c, bool in_place, int again = 1) {
    operands x = make_operands(c);
    tensor apart = make(c.out, {count(x.y)}), &y = in_place ? x.x : x.y;
    fill(x.a, [] { return 0.04 * normal(); });
    std::vector<double> sums = define(c, x, true), gate = x.x.x;
    std::vector<unsigned char> gates = x.x.image, first[2];
    sc_matmul_args args = args_of(c, x);
    if (in_place) args.y.p = x.x.t.p;
    sc_task t = task_of(args, SC_SLOTS_matmul, stream, &library);
    sc_matmul_choice found[16];
    std::string text;
    int n = sc_matmul_candidates(&t, found, 16);
    bool good = strcmp(c.what, "9.0") || !n;
    if (!good) text = "left to the library, ";
    auto run_again = [&] {
        spoil(y);
        spoil(x.z);
        x.x.image = gates;
        upload(x.x);
        run_graph(t);
        if (!fetch(y) || !fetch(x.z)) good = false, text += ", WROTE OUTSIDE";
    };
    for (int i = 0; i <= again; i++) { /* from the plan that is kept, then from new ones */
        if (i) sc_matmul_table(&library, NULL, 0);
        run_again();
        if (!i) first[0] = y.image, first[1] = x.z.image, good &= compare_gated(c, sums, gate, x.x2.x, y, x.z, text);
        if (y.image != first[0] || x.z.image != first[1]) good = false, text += ", NOT THE SAME AGAIN";
    }
    for (int i = 1; i<n; i += n> 2 ? n - 2 : 1) {
        sc_matmul_table(&library, &found[i], 1);
        run_again();
        text += ", by table";
        good &= compare_gated(c, sums, gate, x.x2.x, y, x.z, text);
        sc_matmul_table(&library, NULL, 0);
    }
    if (SC_HAS(c.f, SC_GATED | SC_TOO) && !in_place) { /* what it is without the product, to the bit */
        sc_silu_mul_apart(&t, c.out, count(y), apart.t.p, x.x.t.p, x.z.t.p);
        SC_CUDA(cudaStreamSynchronize(stream));
        fetch(apart);
        fetch(y);
        if (apart.x != y.x) good = false, text += ", NOT AS APART";
    }
    char name[200];
    snprintf(name, sizeof name, "%s %s%s%lldx%lldx%lld%s%s%s%s", dtype_text(c.in), c.what, *c.what ? " " : "",
             (long long)c.m, (long long)c.n, (long long)c.k, c.tb ? " tb" : "", c.bias ? " bias" : "",
             name_of(c.f), in_place ? " in place" : "");
    verdict(good, name, (text + (n ? ", library" : ", own kernel")).c_str());
    release(apart);
    release_operands(x);
}
static void check_all_gated() {
    for (int in : {FP32, BF16, FP16})
        for (int f : {SC_GATED | SC_TOO, +SC_GATED, SC_GATED | SC_GRADIENT})
            for (int flags = 0; flags < 8; flags++) {
                bool tb = flags & 1, bias = flags & 2, in_place = flags & 4;
                if ((bias && SC_HAS(f, SC_GATED | SC_GRADIENT)) || (in_place && f == SC_GATED)) continue;
                problem c = {.in = in, .out = in, .tb = tb, .bias = bias, .m = 64, .n = 96, .k = 128, .f = f};
                check_gated(c, in_place);
                c.m = 33, c.n = 17, c.k = 29;
                check_gated(c, in_place);
                c.what = "rows on one another", c.stride_a = {0, 1};
                check_gated(c, in_place);
                c = {.what = "odd addresses", .in = in, .out = in, .tb = tb, .bias = bias, .m = 24, .n = 40, .k = 32,
                     .shift_y = 1, .f = f};
                check_gated(c, in_place);
                c = {.what = "folded", .in = in, .out = in, .tb = tb, .bias = bias, .lead = {2, 3}, .m = 16, .n = 24,
                     .k = 32, .f = f};
                check_gated(c, in_place);
                c = {.what = "batch", .in = in, .out = in, .tb = tb, .bias = bias, .lead = {2, 3}, .m = 16, .n = 24,
                     .k = 32, .shared = false, .f = f};
                check_gated(c, in_place);
                c.m = 5, c.n = 7, c.k = 9;
                check_gated(c, in_place);
            }
}

/* ── gelu beside the multiplications, where compute capability 9.0 has it ─────────────────────────────────────────────
 */
#ifndef SC_EMULATE
/* z within a rounding of the sums; y of z as it is stored. The gradient: the derivative has 11 bits. */
static void check_hopper(const problem &c, int multiprocessors, int again) {
    library.multiprocessors = multiprocessors; /* a few, so that a small product has tiles enough to be taken */
    operands x = make_operands(c);
    fill(x.a, [] { return 0.04 * normal(); }); /* sums of about 1, where gelu bends */
    sc_matmul_args args = args_of(c, x);
    sc_task t = task_of(args, SC_SLOTS_matmul, stream, &library);
    sc_matmul_choice found;
    std::string text;
    bool good = !sc_matmul_candidates(&t, &found, 1), inside = true;
    if (!good) text = "left to the library, ";
    std::vector<double> want = define(c, x, SC_HAS(c.f, SC_GELU | SC_TOO));
    std::vector<unsigned char> before;
    for (int i = 0; i <= again; i++) {
        spoil(x.y);
        if (SC_HAS(c.f, SC_GELU | SC_TOO)) spoil(x.z);
        run_graph(t);
        inside &= fetch(x.y) && (!SC_HAS(c.f, SC_GELU | SC_TOO) || fetch(x.z));
        if (!i) {
            std::vector<double> y = want;
            if (SC_HAS(c.f, SC_GELU | SC_TOO)) {
                good &= close_to(text, "z", x.z.x, want, 4e-3, 2e-3);
                for (size_t k = 0; k < y.size(); k++) y[k] = gelu(x.z.x[k]);
            }
            good &= close_to(text, "y", x.y.x, y, 4e-3, 2e-3);
            before = x.y.image;
        }
        good &= x.y.image == before;
    }
    if (x.y.image != before) text += ", NOT THE SAME AGAIN";
    if (!inside) text += ", WROTE OUTSIDE";
    char name[120];
    snprintf(name, sizeof name, "9.0, %d multiprocessors: %lldx%lldx%lld%s%s", multiprocessors, (long long)c.m,
             (long long)c.n, (long long)c.k, c.bias ? " bias" : "",
             SC_HAS(c.f, SC_GELU | SC_TOO) ? " gelu, argument too" : " gelu's gradient");
    verdict(good && inside, name, text.c_str());
    release_operands(x);
}
static void check_all_hopper() {
    cudaDeviceProp about;
    SC_CUDA(cudaGetDeviceProperties(&about, 0));
    if (about.major != 9 || about.minor != 0) return;
    library.major = 9;
    library.world = 1;
    /* one and two pairs of blocks, groups of rows that are not full; 11, 12 and 13 blocks of k */
    for (int f : {SC_GELU | SC_TOO, SC_GELU | SC_GRADIENT}) {
        bool too = f & SC_TOO;
        problem c = {.in = BF16, .out = BF16, .tb = !too, .bias = too, .m = 512, .n = 1024, .k = 704,
                     .by_library = false, .f = f};
        check_hopper(c, 2, 20);
        c.bias = false;
        c.m = too ? 1280 : 2560, c.n = 512, c.k = too ? 768 : 832;
        check_hopper(c, too ? 2 : 4, 20);
    }
    for (int f : {SC_GATED | SC_TOO, SC_GATED | SC_GRADIENT}) /* b as the kernel takes it */
        for (int flags = 0; flags < 4; flags++) {
            bool tb = SC_HAS(f, SC_GATED | SC_TOO), bias = flags & 1, in_place = flags & 2;
            if (bias && SC_HAS(f, SC_GATED | SC_GRADIENT)) continue;
            library.multiprocessors = 2;
            problem c = {.what = "9.0", .in = BF16, .out = BF16, .tb = tb, .bias = bias, .m = 512, .n = 1024, .k = 704,
                         .by_library = false, .f = f};
            check_gated(c, in_place, 20);
            c.m = 1280, c.n = 512, c.k = 768;
            check_gated(c, in_place, 20);
            c.m = 256, c.n = 2048, c.k = 2048;
            check_gated(c, in_place, 20);
            library.multiprocessors = 4;
            c.m = 2560, c.n = 512, c.k = 832;
            check_gated(c, in_place, 20);
        }
    library.major = library.world = library.multiprocessors = 0;
}
#endif

/* ── timing ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
#ifndef SC_EMULATE
static double time_of(const sc_task &t) { /* milliseconds */
    return milliseconds(stream, [&] { sc_k_matmul(&t); });
}
static void time_case(int in, int out, bool ta, bool tb, bool bias, int64_t m, int64_t n, int64_t k, int add = 0,
                      int f = 0) {
    problem c = {.in = in, .out = out, .ta = ta, .tb = tb, .bias = bias, .m = m, .n = n, .k = k, .add = add, .f = f};
    operands x = {};
    x.a = noise(in, {ta ? k : m, ta ? m : k});
    x.b = noise(in, {tb ? n : k, tb ? k : n});
    x.y = noise(out, {m, n});
    x.bias = noise(in, {n});
    x.work = noise(BOOL, {32 << 20});
    if (add) x.c = noise(out, {m, n});
    if (SC_HAS(f, SC_GELU | SC_GRADIENT) || f & SC_GATED) x.x = noise(out, {m, n});
    if (SC_HAS(f, SC_GATED | SC_GRADIENT)) x.x2 = noise(out, {m, n});
    if (gives_two(f)) x.z = noise(out, {m, n});
    sc_matmul_args args = args_of(c, x);
    sc_task t = task_of(args, SC_SLOTS_matmul, stream, &library);
    sc_matmul_choice found[24];
    if (f && library.major == 9) {
        library.world = 1;
        printf("f beside the multiplications: %.3f ms\n", time_of(t));
        library.world = 0;
    }
    int candidates = sc_matmul_candidates(&t, found, 24), best = 0;
    double first = time_of(t), least = first, apart = 0;
    for (int i = 0; i < candidates; i++) {
        sc_matmul_table(&library, &found[i], 1);
        double ms = time_of(t);
        if (ms < least) least = ms, best = i;
        if (found[i].apart && (!apart || ms < apart)) apart = ms;
    }
    sc_matmul_table(&library, NULL, 0);
    printf("%s to %s %lldx%lldx%lld%s%s%s%s%s: %.3f ms %.0f TFLOP/s; best of %d: number %d, %.3f ms\n", dtype_text(in),
           dtype_text(out), (long long)m, (long long)n, (long long)k, ta ? " ta" : "", tb ? " tb" : "",
           bias ? " bias" : "", add ? " c" : "", name_of(f), first, 2e-9 * (double)m * (double)n * (double)k / first,
           candidates, best, least);
    if (apart > 0) printf("    f apart: %.3f ms\n", apart);
    release_operands(x);
}
/* Products of 8 bits: with a scale a tensor, and with those of blocks. */
static void time_8_bits(int out, int64_t m, int64_t n, int64_t k, bool square) {
    operands x = {};
    int64_t blocks = (k + 127) / 128;
    x.a = noise(FP8_E4M3, {m, k}), x.b = noise(FP8_E4M3, {n, k}), x.y = noise(out, {m, n}), x.work = noise(BOOL, {32 << 20});
    x.c = noise(FP32, {1}), x.x = noise(FP32, {blocks, m});
    x.x2 = square ? noise(FP32, {(n + 127) / 128, (blocks + 3) / 4 * 4}) : noise(FP32, {blocks, n});
    sc_matmul_args args = args_of({.in = FP8_E4M3, .out = out, .tb = true, .m = m, .n = n, .k = k}, x);
    double ms[2];
    int taken[2];
    for (int by_blocks = 0; by_blocks < 2; by_blocks++) {
        args.scale_a = by_blocks ? x.x.t : x.c.t, args.scale_b = by_blocks ? x.x2.t : x.c.t;
        args.square_b = by_blocks && square;
        sc_task t = task_of(args, SC_SLOTS_matmul, stream, &library);
        sc_matmul_choice found[1];
        taken[by_blocks] = sc_matmul_candidates(&t, found, 1);
        ms[by_blocks] = time_of(t);
    }
    double flop = 2e-9 * (double)m * (double)n * (double)k;
    printf("e4m3 to %s %lldx%lldx%lld: a tensor %.3f ms %.0f TFLOP/s%s; blocks%s %.3f ms %.0f TFLOP/s%s\n",
           dtype_text(out), (long long)m, (long long)n, (long long)k, ms[0], flop / ms[0],
           taken[0] ? "" : " (own kernel)", square ? ", b's squares" : "", ms[1], flop / ms[1],
           taken[1] ? "" : " (own kernel)");
    release_operands(x);
}
static void bench() {
    for (int square = 0; square < 2; square++) { /* Llama-3 1B's and 8B's */
        time_8_bits(square ? BF16 : FP32, 16384, 8192, 2048, square);
        time_8_bits(square ? BF16 : FP32, 16384, 2048, 8192, square);
        time_8_bits(square ? BF16 : FP32, 8192, 14336, 4096, square);
        time_8_bits(square ? BF16 : FP32, 8192, 4096, 14336, square);
    }
    time_case(BF16, BF16, false, true, false, 8192, 8192, 8192);
    time_case(BF16, BF16, false, false, true, 65536, 3072, 768);
    time_case(BF16, BF16, false, false, true, 65536, 768, 3072);
    time_case(BF16, BF16, false, true, false, 65536, 768, 3072);
    time_case(BF16, BF16, false, false, true, 65536, 768, 3072, 1);
    time_case(BF16, BF16, false, false, true, 65536, 3072, 768, 0, SC_GELU | SC_TOO);
    time_case(BF16, BF16, false, true, false, 65536, 3072, 768, 0, SC_GELU | SC_GRADIENT);
    time_case(BF16, BF16, false, true, false, 8192, 14336, 4096, 0, SC_GATED | SC_TOO);
    time_case(BF16, BF16, false, false, false, 8192, 14336, 4096, 0, SC_GATED | SC_GRADIENT);
    time_case(BF16, BF16, false, true, false, 32768, 4864, 896, 0, SC_GATED | SC_TOO);
    time_case(BF16, BF16, false, false, false, 32768, 4864, 896, 0, SC_GATED | SC_GRADIENT);
    time_case(BF16, BF16, true, false, false, 768, 3072, 65536);
    time_case(BF16, FP32, true, false, false, 768, 3072, 65536);
    time_case(BF16, BF16, false, true, false, 65536, 50304, 768);
    time_case(BF16, FP32, true, false, false, 50304, 768, 65536);
    time_case(BF16, BF16, false, true, false, 8192, 14336, 4096);
    time_case(BF16, BF16, true, false, false, 14336, 4096, 8192);
    time_case(BF16, FP32, true, false, false, 14336, 4096, 8192);
    time_case(FP32, FP32, false, true, true, 8192, 3072, 768);
}
#endif

int main(int argc, char **argv) {
    SC_CUDA(cudaStreamCreate(&stream));
    cublasLtHandle_t handle;
    SC_LT(cublasLtCreate(&handle));
    library.lt = handle;
    sc_matmul_start(&library);
#ifndef SC_EMULATE
    if (argc > 1 && !strcmp(argv[1], "--bench")) {
        cudaDeviceProp about;
        SC_CUDA(cudaGetDeviceProperties(&about, 0));
        library.major = about.major, library.minor = about.minor, library.multiprocessors = about.multiProcessorCount;
        bench();
        return 0;
    }
#endif
    (void)argc, (void)argv;
    check_all();
    check_all_8_bits();
    check_all_blocks();
    check_all_gated();
#ifndef SC_EMULATE
    check_all_hopper();
#endif
    sc_matmul_stop(&library);
    return closing();
}
