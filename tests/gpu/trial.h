/* One trial of a kernel: it runs twice from the same bytes, must give the same bits, change nothing but its results,
 * and come close to a reference in double. Relies on: check.h. Relied on by: test_kernels*.cu.
 *
 * Built with -DSC_TWIN and linked with runtime/cpu's kernels, the same trials hold the references against the CPU. */
#ifndef SC_GPU_TRIAL_H
#define SC_GPU_TRIAL_H

#include "check.h"

#include "../../runtime/schema/philox.h"
#include "../../runtime/schema/slots.h"
#include "../../runtime/schema/workspace.h"
#include <algorithm>
#include <stddef.h>

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
    record.of[0].beta1 = 0.9f, record.of[0].beta2 = 0.95f, record.of[0].eps = 1e-8f, record.of[0].momentum = 0.9f,
    record.clip = 1.5f;
    for (int g = 0; g < SC_GROUPS; g++) record.lr[g] = 0.01f * (float)(g + 1), record.weight_decay[g] = 0.1f * (float)g;
    record.count[0] = 11, record.count[1] = 5;
    record_on_device = make(BOOL, {(int64_t)sizeof record});
    memcpy(in_image(record_on_device, 0), &record, sizeof record);
    upload(record_on_device);
}

/* Is one of these kernels asked for? Their trials have random numbers of their own: what is added to another family
 * does not change them. */
static inline bool wanted(const char *family) {
    seed_of_test = 1;
    for (const char *c = family; *c; c++) seed_of_test = (seed_of_test ^ (uint64_t)*c) * 1099511628211ull;
    return !only || strstr(family, only) || strstr(only, family);
}

static double tolerance(int dtype) { /* one rounding to the dtype and some of a float's */
    return dtype == BF16 ? 4.0e-3 : dtype == FP16 ? 5.1e-4 : 2e-6;
}
static double least_step(int dtype) { /* half of what lies between two subnormal numbers: a rounding's error there */
    return dtype == FP16 ? 0x1p-25 : 0;
}

/* ── ops by their structs: of sc_matmul_args its kernel, sc_k_matmul, and which of its tensors that writes ───────────
 */
struct slot {
    int n;
    bool written;
};
template <class ARGS> struct op_of;
#define RESULT(name, flags) {1, true},
#define RESULTS(name, n) {n, true},
#define OPERAND(name, flags) {1, ((flags)&UPDATED) != 0},
#define OPERANDS(name, n) {n, false},
#define OP(name, notation, results, operands, ...)                                                                     \
    extern "C" sc_kernel sc_k_##name;                                                                                  \
    template <> struct op_of<sc_##name##_args> {                                                                       \
        static sc_kernel *kernel() { return sc_k_##name; }                                                             \
        static std::vector<slot> slots() { return {results operands{1, true}}; } /* the workspace last */              \
    };
#include "../../runtime/schema/ops.def"

static std::vector<tensor *> living; /* of all pools */

struct trial {
    std::string name, text;
    sc_kernel *kernel;
    sc_args args;
    sc_task t;
    sc_coord place[2]; /* on axes 0 and 1 */
    struct part {      /* a tensor of args */
        tensor *a;
        bool written, scratch;
    };
    std::vector<part> parts;
    bool good;

    /* Its tensors are ones of pools. */
    template <class ARGS> trial(const std::string &what, const ARGS &k) : name(what), args(), t(), place(), good(true) {
        memcpy(&args, &k, sizeof k);
        kernel = op_of<ARGS>::kernel();
        const sc_tensor *work = (const sc_tensor *)((const char *)&args + offsetof(ARGS, work));
        for (const slot &s : op_of<ARGS>::slots())
            for (int i = 0; i < s.n; i++, t.slots++)
                for (tensor *a : living)
                    if (args.t[t.slots].p && args.t[t.slots].p == a->t.p)
                        parts.push_back({a, s.written, &args.t[t.slots] == work});
        t.world = t.parts = 1;
        t.coord = place;
        t.stream = stream;
        t.library = &library;
        t.record = (const sc_record *)record_on_device.t.p;
    }
    /* Of what it may write, it writes only these. */
    void writes_only(const std::vector<tensor *> &these) {
        for (part &p : parts) p.written = std::find(these.begin(), these.end(), p.a) != these.end();
    }
    void complain(const char *what) {
        good = false;
        text += std::string(text.empty() ? "" : ", ") + what;
    }
    void launch() {
        t.args = &args;
        for (part &p : parts) upload(*p.a);
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
        for (const part &p : parts)
            if (p.written && p.a->base == a.base) return true;
        return false;
    }
    void run() {
        std::vector<std::vector<unsigned char>> first;
        launch();
        for (part &p : parts) first.push_back(bytes(*p.a));
        launch();
        uint64_t hash = 14695981039346656037ull;
        for (size_t k = 0; k < parts.size(); k++) {
            tensor &a = *parts[k].a;
            if (!parts[k].scratch && bytes(a) != first[k]) complain("two runs differ");
            if (!parts[k].scratch && !written(a) && first[k] != a.image) complain("an operand has changed");
        }
        for (part &p : parts)
            if (p.written) {
                if (!fetch(*p.a)) complain("bytes beyond a result have changed");
                for (int64_t i = 0; i < count(*p.a) && !p.scratch; i++)
                    for (int b = 0; b < bytes_of_dtype(p.a->t.dtype); b++)
                        hash = (hash ^ in_image(*p.a, i)[b]) * 1099511628211ull;
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
                                              : off <= limit * (fabs(want[i]) + scale) + least_step(y.t.dtype);
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
        living.push_back(all.back());
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
            living.erase(std::find(living.begin(), living.end(), a));
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
