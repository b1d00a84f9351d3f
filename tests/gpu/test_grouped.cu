/* Products of groups by the kernels for compute capability 9.0 and by those for any GPU, against sums in double; slots
 * by group, and the same bits again. `--bench`: times of a layer's products beside one product of as many rows. Relies
 * on: check.h, runtime/cuda/k_grouped.cu, k_grouped_hopper.cu, k_grouped_hopper_fp8.cu, k_route.cu. Relied on by: make
 * gpu-test. */
#include "check.h"

#include "../../runtime/schema/workspace.h"
#include <algorithm>

static cudaStream_t stream;
static sc_cuda library;
static int major_here;

struct shape {
    int dtype, out;
    int64_t rows, k, n;
    std::vector<int> counts;
};

static std::string name_of(const char *op, const shape &c) {
    char text[200];
    snprintf(text, sizeof text, "%s %s>%s, %zu groups of %lld rows, %lld x %lld", op, dtype_text(c.dtype),
             dtype_text(c.out), c.counts.size(), (long long)c.rows, (long long)c.k, (long long)c.n);
    return text;
}

/* Which rows are whose; a count beyond the rows is cut. */
static std::vector<int> groups_of(const shape &c) {
    std::vector<int> of((size_t)c.rows, -1);
    int64_t row = 0;
    for (size_t g = 0; g < c.counts.size(); g++)
        for (int i = 0; i < c.counts[g] && row < c.rows; i++) of[(size_t)row++] = (int)g;
    return of;
}

static tensor counts_of(const shape &c) {
    tensor t = make(INT32, {(int64_t)c.counts.size()});
    size_t i = 0;
    fill(t, [&] { return c.counts[i++]; });
    return t;
}

/* Twice, the results poisoned before; on each kind of kernel. */
template <class ARGS>
static void run(sc_kernel *kernel, const ARGS &args, tensor &y, const std::vector<double> &want,
                const std::string &name, int dtype) {
    double most = dtype == FP32 ? 2e-6 : dtype == BF16 ? 5e-3 : 8e-4;
    for (int major : {8, major_here}) {
        std::string text;
        std::vector<double> first;
        bool good = true;
        library.major = major;
        for (int i = 0; i < 3; i++) {
            upload(y);
            std::fill(in_image(y, 0), in_image(y, 0) + count(y) * bytes_of_dtype(y.t.dtype), 0xff);
            upload(y);
            sc_task t = task_of(args, 0, stream, &library);
            kernel(&t);
            SC_CUDA(cudaStreamSynchronize(stream));
            good = fetch(y) && good;
            if (!i) first = y.x;
            good = good && y.x == first;
        }
        if (!good) text += " BYTES OUTSIDE OR NOT THE SAME AGAIN";
        good = close_to(text, "y", y.x, want, most, most / 2) && good;
        verdict(good, (name + (major == 9 ? ", hopper" : "")).c_str(), text.c_str());
        if (major_here != 9) break;
    }
}

static void products(const shape &c, bool t, bool biased) {
    int64_t groups = (int64_t)c.counts.size();
    tensor a = make(c.dtype, {c.rows, c.k}),
           b = make(c.dtype, t ? extents{groups, c.n, c.k} : extents{groups, c.k, c.n});
    tensor y = make(c.dtype, {c.rows, c.n}), counts = counts_of(c), bias = make(c.dtype, {groups, c.n});
    fill(a, normal), fill(b, normal), fill(bias, normal);
    std::vector<int> of = groups_of(c);
    std::vector<double> want((size_t)(c.rows * c.n), 0);
    for (int64_t r = 0; r < c.rows; r++)
        for (int64_t k = 0; of[(size_t)r] >= 0 && k < c.k; k++)
            for (int64_t j = 0; j < c.n; j++)
                want[(size_t)(r * c.n + j)] +=
                    a.x[(size_t)(r * c.k + k)] *
                    b.x[(size_t)(of[(size_t)r] * c.k * c.n + (t ? j * c.k + k : k * c.n + j))];
    for (int64_t i = 0; i < c.rows * c.n && biased; i++)
        if (of[(size_t)(i / c.n)] >= 0) want[(size_t)i] += bias.x[(size_t)(of[(size_t)(i / c.n)] * c.n + i % c.n)];
    sc_grouped_matmul_args args = {.y = y.t, .a = a.t, .b = b.t, .counts = counts.t, .trans_b = t};
    if (biased) args.bias = bias.t;
    run(sc_k_grouped_matmul, args, y, want, name_of(biased ? "nt, bias" : t ? "nt" : "nn", c), c.dtype);
    for (tensor *x : {&a, &b, &y, &counts, &bias}) release(*x);
}

static void over_rows(const shape &c) {
    int64_t groups = (int64_t)c.counts.size();
    tensor a = make(c.dtype, {c.rows, c.k}), b = make(c.dtype, {c.rows, c.n});
    tensor y = make(c.out, {groups, c.k, c.n}), counts = counts_of(c);
    fill(a, normal), fill(b, normal);
    std::vector<int> of = groups_of(c);
    std::vector<double> want((size_t)(groups * c.k * c.n), 0);
    for (int64_t r = 0; r < c.rows; r++)
        for (int64_t k = 0; of[(size_t)r] >= 0 && k < c.k; k++)
            for (int64_t j = 0; j < c.n; j++)
                want[(size_t)((of[(size_t)r] * c.k + k) * c.n + j)] +=
                    a.x[(size_t)(r * c.k + k)] * b.x[(size_t)(r * c.n + j)];
    sc_grouped_matmul_grad_args args = {.y = y.t, .a = a.t, .c = b.t, .counts = counts.t};
    run(sc_k_grouped_matmul_grad, args, y, want, name_of("over rows", c), c.dtype);
    for (tensor *x : {&a, &b, &y, &counts}) release(*x);
}

static void routes(int64_t slots, int groups, int capacity, double outside) {
    tensor index = make(INT32, {slots}), counts = make(INT32, {groups});
    int64_t rows = capacity ? std::min<int64_t>(slots, (int64_t)groups * capacity) : slots;
    tensor to = make(INT32, {rows}), places = make(INT32, {slots}),
           work = make(BOOL, {sc_cuda_route_bytes(slots, groups)});
    fill(index, [&] {
        return fabs(uniform()) < outside ? -3 + 2 * groups * (uniform() > 0) : (int)(pow(fabs(uniform()), 2) * groups);
    });
    upload(counts), upload(to), upload(places);
    std::vector<std::vector<double>> each((size_t)groups);
    std::vector<double> want_counts, want_to, want_places((size_t)slots, -1);
    for (int64_t i = 0; i < slots; i++) {
        double g = index.x[(size_t)i];
        if (g >= 0 && g < groups && (!capacity || (int)each[(size_t)g].size() < capacity))
            each[(size_t)g].push_back((double)i);
    }
    for (auto &e : each) {
        want_counts.push_back((double)e.size());
        for (double i : e) want_places[(size_t)i] = (double)want_to.size(), want_to.push_back(i);
    }
    want_to.resize((size_t)rows, -1);
    sc_route_args args = {.counts = counts.t,
                          .slots = to.t,
                          .places = places.t,
                          .index = index.t,
                          .work = work.t,
                          .groups = groups,
                          .capacity = capacity};
    sc_task t = task_of(args, 0, stream, &library);
    sc_k_route(&t);
    SC_CUDA(cudaStreamSynchronize(stream));
    bool good = fetch(counts) & fetch(to) & fetch(places);
    good = good && counts.x == want_counts && to.x == want_to && places.x == want_places;
    char text[100];
    snprintf(text, sizeof text, "route %lld slots to %d groups, capacity %d", (long long)slots, groups, capacity);
    verdict(good, text, "");
    for (tensor *x : {&index, &counts, &to, &places, &work}) release(*x);
}

static std::vector<int> shares(int groups, int64_t rows, double skew) {
    std::vector<double> w((size_t)groups);
    double sum = 0;
    for (double &x : w) sum += x = pow(fabs(uniform()) + 0.01, skew);
    std::vector<int> n;
    int64_t left = rows;
    for (double x : w) n.push_back((int)(x / sum * (double)rows)), left -= n.back();
    n[0] += (int)left;
    return n;
}

#ifndef SC_EMULATE
static void bench(int64_t rows, int groups, int64_t k, int64_t n, double skew) {
    shape c = {BF16, BF16,
               rows, k,
               n,    skew < 0 ? std::vector<int>((size_t)groups, (int)(rows / groups)) : shares(groups, rows, skew)};
    tensor a = noise(BF16, {rows, k}), b = noise(BF16, {groups, n, k}), y = noise(BF16, {rows, n}),
           w = noise(FP32, {groups, k, n}), counts = counts_of(c);
    sc_grouped_matmul_args nt = {.y = y.t, .a = a.t, .b = b.t, .counts = counts.t, .trans_b = 1};
    sc_tensor turned = b.t;
    turned.shape[1] = k, turned.shape[2] = n, turned.stride[1] = n;
    sc_grouped_matmul_args nn = nt;
    nn.b = turned, nn.trans_b = 0;
    sc_grouped_matmul_grad_args over = {.y = w.t, .a = a.t, .c = y.t, .counts = counts.t};
    printf("time %lld rows, %d groups%s, %lld x %lld:", (long long)rows, groups,
           skew < 0   ? ""
           : skew > 0 ? " very unequal"
                      : "",
           (long long)k, (long long)n);
    for (int major : {major_here, 8}) {
        library.major = major;
        sc_task t1 = task_of(nt, 0, stream, &library), t2 = task_of(nn, 0, stream, &library),
                t3 = task_of(over, 0, stream, &library);
        double flops = 2.0 * (double)rows * (double)k * (double)n;
        double ms[] = {milliseconds(stream, [&] { sc_k_grouped_matmul(&t1); }),
                       milliseconds(stream, [&] { sc_k_grouped_matmul(&t2); }),
                       milliseconds(stream, [&] { sc_k_grouped_matmul_grad(&t3); })};
        printf("%s nt %.3f ms %.0f TFLOP/s, nn %.3f %.0f, over rows %.3f %.0f;", major == 8 ? " any GPU" : "", ms[0],
               flops / ms[0] / 1e9, ms[1], flops / ms[1] / 1e9, ms[2], flops / ms[2] / 1e9);
        fflush(stdout);
    }
    printf("\n");
    for (tensor *x : {&a, &b, &y, &w, &counts}) release(*x);
}

/* The same three products in fp8: matrices as they lie, turned, and over rows of turned operands. */
static void bench_fp8(int64_t rows, int groups, int64_t k, int64_t n, double skew) {
    shape c = {
        FP8_E4M3, BF16, rows,
        k,        n,    skew < 0 ? std::vector<int>((size_t)groups, (int)(rows / groups)) : shares(groups, rows, skew)};
    tensor a = noise(FP8_E4M3, {rows, k}), g = noise(FP8_E5M2, {rows, n}), b = noise(FP8_E4M3, {groups, n, k}),
           turned = noise(FP8_E4M3, {k, groups * n}), at = noise(FP8_E4M3, {k, rows}), gt = noise(FP8_E5M2, {n, rows}),
           y = noise(BF16, {rows, n}), dx = noise(BF16, {rows, k}), w = noise(FP32, {groups, n, k}),
           one = make(FP32, {1}), counts = counts_of(c);
    fill(one, [] { return 1; });
    sc_grouped_matmul_args forward = {
        .y = y.t, .a = a.t, .b = b.t, .counts = counts.t, .scale_a = one.t, .scale_b = one.t, .trans_b = 1};
    sc_grouped_matmul_args back = {
        .y = dx.t, .a = g.t, .b = turned.t, .counts = counts.t, .scale_a = one.t, .scale_b = one.t, .trans_b = 1};
    sc_grouped_matmul_grad_args over = {
        .y = w.t, .a = gt.t, .c = at.t, .counts = counts.t, .scale_a = one.t, .scale_c = one.t};
    library.major = major_here;
    sc_task t1 = task_of(forward, 0, stream, &library), t2 = task_of(back, 0, stream, &library),
            t3 = task_of(over, 0, stream, &library);
    double flops = 2.0 * (double)rows * (double)k * (double)n;
    double ms[] = {milliseconds(stream, [&] { sc_k_grouped_matmul(&t1); }),
                   milliseconds(stream, [&] { sc_k_grouped_matmul(&t2); }),
                   milliseconds(stream, [&] { sc_k_grouped_matmul_grad(&t3); })};
    printf("time fp8, %lld rows, %d groups%s, %lld x %lld: forward %.3f ms %.0f TFLOP/s, to rows %.3f %.0f, over rows "
           "%.3f %.0f\n",
           (long long)rows, groups, skew > 0 ? " very unequal" : "", (long long)k, (long long)n, ms[0],
           flops / ms[0] / 1e9, ms[1], flops / ms[1] / 1e9, ms[2], flops / ms[2] / 1e9);
    for (tensor *x : {&a, &g, &b, &turned, &at, &gt, &y, &dx, &w, &one, &counts}) release(*x);
}
#endif

int main(int argc, char **argv) {
    SC_CUDA(cudaStreamCreate(&stream));
    library.multiprocessors = 132;
    library.world = 1;
    SC_CUDA(cudaDeviceGetAttribute(&major_here, cudaDevAttrComputeCapabilityMajor, 0));
#ifndef SC_EMULATE
    SC_CUDA(cudaDeviceGetAttribute(&library.multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    if (argc > 1 && !strcmp(argv[1], "--bench")) {
        bench(131072, 32, 1024, 2048, -1), bench(131072, 32, 1024, 1024, -1), bench(131072, 32, 2048, 2048, -1);
        bench(131072, 32, 1024, 2048, 0), bench(131072, 32, 1024, 2048, 4), bench(262144, 128, 2048, 1536, -1);
        bench(262144, 128, 768, 2048, 0), bench(131072, 1, 1024, 2048, -1);
        bench_fp8(131072, 32, 1024, 2048, -1), bench_fp8(131072, 32, 2048, 2048, -1);
        bench_fp8(131072, 32, 1024, 2048, 4), bench_fp8(262144, 128, 2048, 1536, -1);
        bench_fp8(262144, 128, 768, 2048, 0), bench_fp8(131072, 1, 1024, 2048, -1);
        return 0;
    }
#endif
    std::vector<shape> shapes = {
        {BF16, BF16, 300, 64, 64, {300}},
        {BF16, FP32, 700, 128, 320, {100, 0, 257, 0, 0, 343}},
        {BF16, BF16, 1000, 200, 264, {64, 128, 300, 1, 0, 200}}, /* rows that are no group's */
        {FP16, FP32, 513, 72, 192, {0, 0, 1, 63, 64, 65, 320, 0}},
        {BF16, BF16, 257, 520, 128, {128, 129}},
        {FP16, FP16, 60, 64, 1088, {20, 20, 20}},
        {FP32, FP32, 190, 70, 90, {0, 100, 3, 87}},
        {BF16, BF16, 150, 33, 47, {20, 130}},  /* by no more than two bytes at a time */
        {BF16, BF16, 400, 64, 64, {300, 900}}, /* more than there are */
        {BF16, FP32, 900, 320, 576, shares(70, 900, 3)},
        {BF16, BF16, 64, 8, 64, {0, 0, 0}},
    };
    for (const shape &c : shapes)
        products(c, false, false), products(c, true, false), products(c, true, true), over_rows(c);
    routes(1, 1, 0, 0), routes(1000, 7, 0, 0.1), routes(40000, 256, 0, 0), routes(70001, 1024, 0, 0.01);
    routes(5000, 64, 60, 0.05), routes(300, 3, 1, 0), routes(33, 40, 0, 0);
    return closing();
}
