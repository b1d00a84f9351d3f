/* The products of Muon's steps by the kernels for compute capability 9.0, against sums in double, and the same bits
 * again. `--bench`: five steps of the matrices of Llama-3 1B's blocks. Relies on: check.h,
 * runtime/cuda/k_orthogonalize_hopper.cu. Relied on by: make gpu-test. */
#include "check.h"

#include "../../runtime/cuda/orthogonalize_hopper.h"
#include <algorithm>
#include <functional>

static cudaStream_t stream;
static sc_cuda library;

struct stack {
    int64_t count, rows, cols;
    int64_t small() const { return std::min(rows, cols); }
};

/* [count][rows][inner] times the transposed of [count][columns][inner] or, `turned`, times [count][inner][columns]. */
static std::vector<double> times(const std::vector<double> &a, const std::vector<double> &b, int64_t count,
                                 int64_t rows, int64_t inner, int64_t columns, bool turned_a, bool turned_b) {
    std::vector<double> y((size_t)(count * rows * columns), 0);
    for (int64_t z = 0; z < count; z++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t k = 0; k < inner; k++) {
                double x = a[(size_t)(z * rows * inner + (turned_a ? k * rows + r : r * inner + k))];
                for (int64_t c = 0; c < columns; c++)
                    y[(size_t)((z * rows + r) * columns + c)] +=
                        x * b[(size_t)(z * inner * columns + (turned_b ? k * columns + c : c * inner + k))];
            }
    return y;
}

static void expect(const std::vector<stack> &stacks, const char *name, sc_orthogonal_product what, float alpha,
                   float beta, const std::vector<sc_stack> &m, std::vector<tensor *> y,
                   const std::vector<std::vector<double>> &want) {
    sc_zero_args none = {};
    sc_task t = task_of(none, 0, stream, &library);
    std::vector<std::vector<double>> first(stacks.size());
    bool good = true;
    std::string text;
    for (int again = 0; again < 3; again++) {
        for (tensor *x : y) {
            std::fill(in_image(*x, 0), in_image(*x, 0) + count(*x) * 2, 0xff);
            upload(*x);
        }
        sc_orthogonalize_hopper(&t, what, m.data(), (int)m.size(), alpha, beta);
        SC_CUDA(cudaStreamSynchronize(stream));
        for (size_t i = 0; i < y.size(); i++) {
            good = fetch(*y[i]) && good;
            if (!again) first[i] = y[i]->x;
            good = good && y[i]->x == first[i];
        }
    }
    for (size_t i = 0; i < y.size(); i++) {
        if (!good) text += " BYTES OUTSIDE OR NOT THE SAME AGAIN";
        good = close_to(text, "y", y[i]->x, want[i], 5e-3, 2.5e-3) && good;
        if (what != SC_APPLY)
            for (int64_t n = stacks[i].small(), z = 0; z < stacks[i].count; z++)
                for (int64_t r = 0; r < n; r++)
                    for (int64_t c = 0; c < r; c++)
                        good = good && y[i]->x[(size_t)((z * n + r) * n + c)] == y[i]->x[(size_t)((z * n + c) * n + r)];
    }
    verdict(good, name, text.c_str());
}

static void check(const std::vector<stack> &stacks) {
    std::vector<tensor> x, y, gram, polynomial;
    std::vector<sc_stack> m;
    std::vector<std::vector<double>> grams, polynomials, results;
    std::string name;
    for (const stack &s : stacks) {
        tensor g = make(BF16, {s.count, s.small(), s.small()}), a = make(BF16, {s.count, s.rows, s.cols});
        fill(a, normal), upload(a);
        x.push_back(a), y.push_back(make(BF16, {s.count, s.rows, s.cols}));
        gram.push_back(g), polynomial.push_back(make(BF16, {s.count, s.small(), s.small()}));
        char text[60];
        snprintf(text, sizeof text, " %lld of %lld x %lld", (long long)s.count, (long long)s.rows, (long long)s.cols);
        name += text;
    }
    std::vector<tensor *> all[3];
    for (size_t i = 0; i < stacks.size(); i++) {
        const stack &s = stacks[i];
        m.push_back({x[i].t.p, y[i].t.p, gram[i].t.p, polynomial[i].t.p, (int)s.count, (int)s.rows, (int)s.cols});
        all[0].push_back(&gram[i]), all[1].push_back(&polynomial[i]), all[2].push_back(&y[i]);
        bool wide = s.rows <= s.cols;
        grams.push_back(times(x[i].x, x[i].x, s.count, s.small(), wide ? s.cols : s.rows, s.small(), !wide, !wide));
    }
    expect(stacks, ("gram" + name).c_str(), SC_GRAM, 1, 0, m, all[0], grams);
    for (size_t i = 0; i < stacks.size(); i++) {
        const stack &s = stacks[i];
        int64_t n = s.small();
        for (double &v : gram[i].x) v /= (double)std::max(s.rows, s.cols);
        size_t k = 0;
        fill(gram[i], [&] { return gram[i].x[k++]; }), upload(gram[i]);
        std::vector<double> p = times(gram[i].x, gram[i].x, s.count, n, n, n, false, false);
        for (size_t e = 0; e < p.size(); e++) p[e] = 2.0315 * p[e] - 4.775 * gram[i].x[e];
        polynomials.push_back(p);
    }
    expect(stacks, ("polynomial" + name).c_str(), SC_POLYNOMIAL, 2.0315f, -4.775f, m, all[1], polynomials);
    for (size_t i = 0; i < stacks.size(); i++) {
        const stack &s = stacks[i];
        bool wide = s.rows <= s.cols;
        std::vector<double> r = wide ? times(polynomial[i].x, x[i].x, s.count, s.rows, s.rows, s.cols, false, true)
                                     : times(x[i].x, polynomial[i].x, s.count, s.rows, s.cols, s.cols, false, false);
        for (size_t e = 0; e < r.size(); e++) r[e] += 3.4445 * x[i].x[e];
        results.push_back(r);
    }
    expect(stacks, ("apply" + name).c_str(), SC_APPLY, 1, 3.4445f, m, all[2], results);
}

static float milliseconds(int n, const std::function<void()> &f) {
    cudaEvent_t a, b;
    float ms;
    SC_CUDA(cudaEventCreate(&a));
    SC_CUDA(cudaEventCreate(&b));
    for (int i = 0; i < 3; i++) f();
    SC_CUDA(cudaEventRecord(a, stream));
    for (int i = 0; i < n; i++) f();
    SC_CUDA(cudaEventRecord(b, stream));
    SC_CUDA(cudaEventSynchronize(b));
    SC_CUDA(cudaEventElapsedTime(&ms, a, b));
    return ms / (float)n;
}

static void bench(void) {
    const stack of[] = {{1, 3072, 2048}, {1, 2048, 2048}, {2, 8192, 2048}, {1, 2048, 8192}};
    std::vector<sc_stack> m;
    double flops[3] = {0, 0, 0};
    for (const stack &s : of) {
        double n = (double)s.small(), area = (double)(s.rows * s.cols * s.count);
        flops[0] += 2 * n * area, flops[1] += 2 * n * n * n * (double)s.count, flops[2] += 2 * n * area;
        void *p[4];
        size_t bytes = (size_t)area * 2, squares = (size_t)(n * n) * 2 * (size_t)s.count;
        for (int i = 0; i < 4; i++) SC_CUDA(cudaMalloc(&p[i], i < 2 ? bytes : squares));
        std::vector<uint16_t> random(bytes / 2); /* normal numbers of Frobenius norm one */
        for (uint16_t &v : random) v = sc_to_bf16((float)(normal() / sqrt((double)(s.rows * s.cols))));
        SC_CUDA(cudaMemcpy(p[0], random.data(), bytes, cudaMemcpyHostToDevice));
        m.push_back({p[0], p[1], p[2], p[3], (int)s.count, (int)s.rows, (int)s.cols});
    }
    sc_zero_args none = {};
    sc_task t = task_of(none, 0, stream, &library);
    static const char *const names[] = {"gram", "polynomial", "apply"};
    for (int what = 0; what < 3; what++) {
        float ms = milliseconds(
            20, [&] { sc_orthogonalize_hopper(&t, (sc_orthogonal_product)what, m.data(), (int)m.size(), 1, 0.5f); });
        printf("%-12s %.3f ms, %.0f TFLOP/s of the whole product\n", names[what], ms, flops[what] / ms / 1e9);
    }
    float ms = milliseconds(4, [&] {
        for (int block = 0; block < 16; block++)
            for (int step = 0; step < 5; step++) {
                sc_orthogonalize_hopper(&t, SC_GRAM, m.data(), (int)m.size(), 1, 0);
                sc_orthogonalize_hopper(&t, SC_POLYNOMIAL, m.data(), (int)m.size(), 2.0315f, -4.775f);
                sc_orthogonalize_hopper(&t, SC_APPLY, m.data(), (int)m.size(), 1, 3.4445f);
                for (sc_stack &s : m) {
                    const void *x = s.x;
                    s.x = s.y, s.y = (void *)x;
                }
            }
    });
    printf("sixteen blocks, five steps: %.2f ms\n", ms);
}

int main(int argc, char **argv) {
    cudaDeviceProp device;
    SC_CUDA(cudaGetDeviceProperties(&device, 0));
    SC_CUDA(cudaStreamCreate(&stream));
    library = {};
    library.major = device.major, library.minor = device.minor, library.multiprocessors = device.multiProcessorCount;
    library.world = 1;
    if (argc > 1 && !strcmp(argv[1], "--bench")) return bench(), 0;
    check({{1, 64, 64}});
    check({{2, 256, 512}});
    check({{1, 512, 256}, {3, 128, 192}});
    check({{1, 320, 704}, {2, 704, 320}, {1, 576, 576}});
    check({{5, 64, 1024}, {1, 1024, 768}});
    return closing();
}
