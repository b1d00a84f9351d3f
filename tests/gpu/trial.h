/* One trial of a kernel: it runs twice from the same bytes, must give the same bits, change nothing but its results,
 * and come close to a reference in double. Relies on: check.h. Relied on by: test_kernels*.cu.
 *
 * Built with -DSC_TWIN and linked with runtime/cpu's kernels, the same trials hold the references against the CPU. */
#ifndef SC_GPU_TRIAL_H
#define SC_GPU_TRIAL_H

#include "check.h"

#include "../../runtime/philox.h"

typedef std::vector<double> numbers;

static cudaStream_t stream;
static sc_cuda library;
static sc_record record; /* the host's copy */
static tensor record_on_device;
static bool print_bits; /* --bits: a hash of each trial's results, to compare with another build's */
static const char *only;
#ifdef SC_EMULATE
static bool quick = true;
#else
static bool quick; /* --quick: no large shapes */
#endif

/* Arguments: a part of a kernel's name (only such run), --bits (a hash of each trial's results is printed), --quick. */
static inline void start(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--bits"))
            print_bits = true;
        else if (!strcmp(argv[i], "--quick"))
            quick = true;
        else
            only = argv[i];
    SC_CUDA(cudaStreamCreate(&stream));
    library.multiprocessors = 132;
    SC_CUDA(cudaDeviceGetAttribute(&library.major, cudaDevAttrComputeCapabilityMajor, 0));
    record.step = 7, record.first_sample = 40, record.position = 3, record.seed = 99;
    record.grad_seed = 0.25f;
    record.beta1 = 0.9f, record.beta2 = 0.95f, record.eps = 1e-8f, record.momentum = 0.9f, record.clip = 1.5f;
    for (int g = 0; g < SC_GROUPS; g++) record.lr[g] = 0.01f * (float)(g + 1), record.weight_decay[g] = 0.1f * (float)g;
    record.count[0] = 11, record.count[1] = 5;
    record_on_device = make(BOOL, {(int64_t)sizeof record});
    memcpy(in_image(record_on_device, 0), &record, sizeof record);
    upload(record_on_device);
}

/* Is one of these kernels asked for? */
static inline bool wanted(const char *family) {
    return !only || strstr(family, only) || strstr(only, family);
}

static double tolerance(int dtype) { /* one rounding to the dtype and some of a float's */
    return dtype == BF16 ? 4.0e-3 : dtype == FP16 ? 5.1e-4 : 2e-6;
}

struct trial {
    std::string name, text;
    std::vector<tensor *> tensors;
    unsigned results; /* bit k: tensor k is written */
    sc_task t;
    bool good;

    trial(const std::string &what, const std::vector<tensor *> &all, unsigned written)
        : name(what), tensors(all), results(written), t(), good(true) {
        t.nt = (int)all.size();
        for (int k = 0; k < t.nt; k++) t.t[k] = all[k]->t;
        t.world = t.parts = 1;
        t.stream = stream;
        t.library = &library;
        t.record = (const sc_record *)record_on_device.t.p;
    }
    void complain(const char *what) {
        good = false;
        text += std::string(text.empty() ? "" : ", ") + what;
    }
    void launch(sc_kernel *kernel) {
        for (tensor *a : tensors) upload(*a);
        kernel(&t);
#ifdef SC_TWIN
        if (sc_kernel_finish(kernel)) sc_kernel_finish(kernel)(&t);
#endif
        SC_CUDA(cudaStreamSynchronize(stream));
    }
    std::vector<unsigned char> bytes(tensor &a) {
        std::vector<unsigned char> now(a.image.size());
        SC_CUDA(cudaMemcpy(now.data(), a.base, now.size(), cudaMemcpyDeviceToHost));
        return now;
    }
    bool written(const tensor &a) const { /* also where a result has its bytes */
        for (size_t k = 0; k < tensors.size(); k++)
            if ((results >> k & 1) && tensors[k]->base == a.base) return true;
        return false;
    }
    bool scratch(size_t k) const {
        return k > 0 && k + 1 == tensors.size() && tensors[k]->t.dtype == BOOL;
    }
    void run(sc_kernel *kernel) {
        std::vector<std::vector<unsigned char>> first;
        launch(kernel);
        for (tensor *a : tensors) first.push_back(bytes(*a));
        launch(kernel);
        uint64_t hash = 14695981039346656037ull;
        for (size_t k = 0; k < tensors.size(); k++) {
            tensor &a = *tensors[k];
            if (!scratch(k) && bytes(a) != first[k]) complain("two runs differ");
            if (!scratch(k) && !written(a) && first[k] != a.image) complain("an operand has changed");
        }
        for (size_t k = 0; k < tensors.size(); k++)
            if (results >> k & 1) {
                if (!fetch(*tensors[k])) complain("bytes beyond a result have changed");
                for (int64_t i = 0; i < count(*tensors[k]) && !scratch(k); i++)
                    for (int b = 0; b < bytes_of_dtype(tensors[k]->t.dtype); b++)
                        hash = (hash ^ in_image(*tensors[k], i)[b]) * 1099511628211ull;
            }
        if (print_bits) {
            char line[40];
            snprintf(line, sizeof line, " [%016llx]", (unsigned long long)hash);
            name += line;
        }
    }
    /* Each element within tolerance · (|wanted| + scale); scale < 0: the same number. */
    void expect(const char *what, tensor &y, const numbers &want, double scale, double more = 0) {
        double limit = tolerance(y.t.dtype) + more;
        for (size_t i = 0; i < want.size(); i++) {
            double got = y.x[i], off = fabs(got - want[i]);
            bool fine = scale < 0             ? got == want[i]
                        : std::isnan(want[i]) ? std::isnan(got)
                                              : off <= limit * (fabs(want[i]) + scale);
            if (fine || (std::isinf(want[i]) && got == want[i])) continue;
            char line[160];
            snprintf(line, sizeof line, "%s[%lld] = %.9g, wanted %.9g", what, (long long)i, got, want[i]);
            complain(line);
            return;
        }
    }
    ~trial() {
        verdict(good, name.c_str(), text.c_str());
    }
};

static inline std::string text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
#include <stdarg.h>
static inline std::string text_of(const char *format, ...) {
    char line[200];
    va_list a;
    va_start(a, format);
    vsnprintf(line, sizeof line, format, a);
    va_end(a);
    return line;
}

/* Gives memory back at the end of a scope. */
struct pool {
    std::vector<tensor *> all;
    tensor &add(const tensor &a) {
        all.push_back(new tensor(a));
        return *all.back();
    }
    tensor &empty(int dtype, const extents &shape, const extents &stride = {}, int64_t shift = 0) {
        return add(make(dtype, shape, stride, shift));
    }
    tensor &random(int dtype, const extents &shape, const extents &stride = {}, int64_t shift = 0, double scale = 1,
                   double mean = 0) {
        tensor &a = empty(dtype, shape, stride, shift);
        fill(a, [&] { return mean + scale * normal(); });
        return a;
    }
    tensor &integers(const extents &shape, int64_t low, int64_t high, int dtype = INT32) { /* [low, high) */
        tensor &a = empty(dtype, shape);
        fill(a, [&] { return floor((double)low + (uniform() + 1) / 2 * (double)(high - low) * 0.9999999); });
        return a;
    }
    /* A workspace; at least a byte, so that it exists. */
    tensor &work(int64_t bytes) { return empty(BOOL, {bytes > 0 ? bytes : 1}); }
    ~pool() {
        for (tensor *a : all) {
            release(*a);
            delete a;
        }
    }
};

static const int floats[] = {FP32, BF16, FP16};

/* compiler/ir/rules_work.c */
static inline int64_t runs_of(int64_t results, int64_t reduced) {
    int64_t n = (262144 + results - 1) / results, most = results > 64 ? 256 : 1024;
    n = n > most ? most : n;
    n = n > reduced / 64 ? reduced / 64 : n;
    return n > 1 ? n : 1;
}
static inline int64_t norm_runs_of(int64_t cols, int64_t rows, int dtype, bool centred) {
    bool block = cols * bytes_of_dtype(dtype) > 2048;
    int64_t n = block ? rows / 16 : rows / 64, most = !block ? 264 : centred ? 396 : 528;
    return n < most ? n : most;
}

#endif
