/* Products of 8 bits that are quantized again by the kernel that multiplies: what is wide beside sums in double, and
 * bytes beside what quantize makes of the same. `--bench`: times of Llama-3 1B's and GPT-2 1558M's, beside the
 * library's products and quantize. Relies on: trial.h, runtime/cuda/k_matmul_quantize.cu, k_matmul_hopper_fp8.cu,
 * k_matmul.cu, k_quantize.cu. Relied on by: make gpu-test. */
#include "trial.h"

#include "../../runtime/cuda/library.h"
#include "../../runtime/sc_matmul_quantize.h"
#include <cublasLt.h>

static tensor &one_of(pool &p, float x) {
    tensor &t = p.empty(FP32, {1});
    fill(t, [=] { return x; });
    return t;
}

/* A pool's tensors, some of which kernels have filled, beside each other. */
struct comparison {
    std::string text;
    bool good = true;

    void complain(const std::string &what) {
        text += " " + what;
        good = false;
    }
    void fetched(tensor &t, const char *what) {
        if (!fetch(t)) complain(std::string(what) + ": bytes outside have changed");
    }
    void same(const char *what, tensor &a, tensor &b) {
        int64_t off = 0, first = -1;
        fetched(a, what), fetched(b, what);
        for (size_t i = 0; i < a.x.size(); i++)
            if (a.x[i] != b.x[i] && !(std::isnan(a.x[i]) && std::isnan(b.x[i]))) first = off++ ? first : (int64_t)i;
        if (off)
            complain(text_of("%s: %lld differ, first %lld: %g, %g", what, (long long)off, (long long)first,
                             a.x[(size_t)first], b.x[(size_t)first]));
    }
};

/* f of x wᵀ: e4m3. known: the magnitude of steps before, 0: none. */
static void forward_trial(int64_t f, int64_t rows, int64_t n, int64_t k, float known, bool biased, bool infinite) {
    pool p;
    library.multiprocessors = 2, library.world = 1;
    tensor &x = p.empty(FP8_E4M3, {rows, k}), &w = p.empty(FP8_E4M3, {n, k}), &v = p.empty(FP8_E4M3, {n, k});
    fill(x, [&, i = 0]() mutable { return infinite && i++ == 5 ? (double)NAN : 8 * normal(); });
    fill(w, [] { return 8 * normal(); }), fill(v, [] { return 8 * normal(); });
    tensor &sx = one_of(p, 0.0371f), &sw = one_of(p, 0.0042f), &sv = one_of(p, 0.0051f), &amax = one_of(p, known);
    tensor &bias = p.random(BF16, {n}), &z = p.empty(BF16, {rows, n}), &gate = p.empty(BF16, {rows, n});
    tensor *y[2], *turned[2], *scale[2], *seen[2];
    for (int i = 0; i < 2; i++) {
        y[i] = &p.empty(FP8_E4M3, {rows, n}), turned[i] = &p.empty(FP8_E4M3, {n, rows});
        scale[i] = &one_of(p, 0), seen[i] = &one_of(p, 0.25f);
    }
    for (tensor *t : living) upload(*t);
    bool gated = f == SC_GATED;
    sc_matmul_quantize_args a = {.y = y[0]->t,
                                 .scale = scale[0]->t,
                                 .turned = turned[0]->t,
                                 .z = z.t,
                                 .gate = given(gated, gate),
                                 .a = x.t,
                                 .b = w.t,
                                 .b_gate = given(gated, v),
                                 .bias = given(biased, bias),
                                 .scale_a = sx.t,
                                 .scale_b = sw.t,
                                 .scale_gate = given(gated, sv),
                                 .amax = amax.t,
                                 .seen = seen[0]->t,
                                 .f = f};
    sc_quantize_args q = {.y = y[1]->t,
                          .scale = scale[1]->t,
                          .turned = turned[1]->t,
                          .x = z.t,
                          .gate = given(gated, gate),
                          .amax = amax.t,
                          .seen = seen[1]->t,
                          .both = 1,
                          .f = f};
    sc_task t = task_of(a, SC_SLOTS_matmul_quantize, stream, &library);
    sc_task u = task_of(q, SC_SLOTS_quantize, stream, &library);
    sc_k_matmul_quantize(&t);
    sc_k_quantize(&u);
    SC_CUDA(cudaStreamSynchronize(stream));
    comparison c;
    c.same("y", *y[0], *y[1]), c.same("turned", *turned[0], *turned[1]);
    c.same("scale", *scale[0], *scale[1]), c.same("seen", *seen[0], *seen[1]);
    for (int of_gate = 0; of_gate <= gated; of_gate++) {
        tensor &b = of_gate ? v : w, &got = of_gate ? gate : z;
        double by = (double)sx.x[0] * (of_gate ? sv : sw).x[0], worst = 0;
        int64_t step = rows * n > 100000 ? rows * n / 100000 : 1;
        c.fetched(got, of_gate ? "gate" : "z");
        for (int64_t e = 0; e < rows * n; e += step) {
            double sum = 0;
            for (int64_t i = 0; i < k; i++) sum += x.x[e / n * k + i] * b.x[e % n * k + i];
            double want = sum * by + (biased ? bias.x[e % n] : 0);
            double off = fabs(got.x[e] - want) / (fabs(want) + 64 * sqrt((double)k) * by);
            worst = fmax(worst, std::isnan(want) != std::isnan(got.x[e]) ? 1 : off);
        }
        if (worst > 8e-3) c.complain(text_of("%s is off by %g", of_gate ? "gate" : "z", worst));
    }
    verdict(c.good,
            text_of("%s of %lld x %lld x %lld%s, known %g%s", gated ? "a gate" : "gelu", (long long)rows, (long long)n,
                    (long long)k, biased ? " and a bias" : "", known, infinite ? ", a NaN" : "")
                .c_str(),
            c.text.c_str());
}

#ifndef SC_EMULATE
/* Milliseconds, when the clock is what the power limit leaves. */
template <class F> static double ms_of(F f) {
    for (int i = 0; i < 3; i++) milliseconds(stream, f);
    double ms = 0;
    for (int i = 0; i < 3; i++) ms += milliseconds(stream, f) / 3;
    return ms;
}

static void bench(int64_t f, int64_t rows, int64_t n, int64_t k) {
    bool gated = f & SC_GATED;
    library.multiprocessors = 132, library.world = 1;
    tensor x = noise(FP8_E4M3, {rows, k}), w = noise(FP8_E4M3, {n, k}), v = noise(FP8_E4M3, {n, k});
    tensor gate = noise(BF16, {rows, n}), z = noise(BF16, {rows, n}), bias = noise(BF16, {n}),
           work = noise(BOOL, {32 << 20});
    tensor one = make(FP32, {1}), seen = make(FP32, {1}), scale = make(FP32, {1});
    tensor y = noise(FP8_E4M3, {rows, n}), turned = noise(FP8_E4M3, {n, rows});
    fill(one, [] { return 1; }), fill(seen, [] { return 1; });
    sc_matmul_quantize_args both = {.y = y.t,
                                    .scale = scale.t,
                                    .turned = turned.t,
                                    .z = z.t,
                                    .gate = given(gated, gate),
                                    .a = x.t,
                                    .b = w.t,
                                    .b_gate = given(gated, v),
                                    .bias = given(!gated, bias),
                                    .scale_a = one.t,
                                    .scale_b = one.t,
                                    .scale_gate = given(gated, one),
                                    .amax = one.t,
                                    .seen = seen.t,
                                    .work = work.t,
                                    .f = f};
    sc_matmul_args a = sc_product_to_quantize(&both, 0), b = sc_product_to_quantize(&both, 1);
    sc_quantize_args q = sc_quantize_of_product(&both);
    sc_task ta = task_of(a, SC_SLOTS_matmul, stream, &library), tb = task_of(b, SC_SLOTS_matmul, stream, &library);
    sc_task tq = task_of(q, SC_SLOTS_quantize, stream, &library);
    sc_task t = task_of(both, SC_SLOTS_matmul_quantize, stream, &library);
    auto products = [&] {
        sc_k_matmul(&ta);
        if (gated) sc_k_matmul(&tb);
    };
    double flops = (gated ? 4.0 : 2.0) * (double)rows * (double)n * (double)k;
    for (int again = 0; again < 2; again++) {
        double alone = ms_of(products), then = ms_of([&] { sc_k_quantize(&tq); });
        double all = ms_of([&] { products(), sc_k_quantize(&tq); }), ours = ms_of([&] { sc_k_matmul_quantize(&t); });
        printf("time %s %lld x %lld x %lld: library %.3f ms %.0f TFLOP/s, quantize %.3f, both %.3f; one kernel %.3f\n",
               gated ? "a gate" : "gelu", (long long)rows, (long long)n, (long long)k, alone, flops / alone / 1e9, then,
               all, ours);
    }
    for (tensor *i : {&x, &w, &v, &gate, &z, &bias, &work, &one, &seen, &scale, &y, &turned}) release(*i);
}
#endif

int main(int argc, char **argv) {
    bool only_times = argc > 1 && !strcmp(argv[1], "--bench");
    start(only_times ? 1 : argc, argv);
    SC_CUDA(cudaDeviceGetAttribute(&library.minor, cudaDevAttrComputeCapabilityMinor, 0));
    cublasLtHandle_t handle;
    SC_LT(cublasLtCreate(&handle));
    library.lt = handle;
    sc_matmul_start(&library);
#ifndef SC_EMULATE
    if (only_times) {
        bench(SC_GATED, 16384, 8192, 2048), bench(SC_GELU, 32768, 6400, 1600);
        bench(SC_GATED, 8192, 14336, 4096), bench(SC_GELU, 8192, 4096, 1024), bench(SC_GATED, 4096, 8192, 2048);
        return 0;
    }
#endif
    if (library.major == 9) {
        for (float known : {9.0f, 0.0f}) {
            forward_trial(SC_GATED, 1024, 256, 1024, known, false, false);
            forward_trial(SC_GELU, 1024, 512, 1024, known, true, false);
        }
        forward_trial(SC_GATED, 1280, 384, 1168, 40, false, true);
        forward_trial(SC_GELU, 512, 1280, 2944, 3, false, true);
    }
    sc_matmul_stop(&library);
    return closing();
}
