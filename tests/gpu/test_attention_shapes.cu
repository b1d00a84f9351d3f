/* Attention at the shapes that models have, by our own kernels and by cuDNN: strided views of one qkv buffer and of one
 * buffer of gradients, large grids, poisoned results; against attention by definition on the GPU; the same bits again of ours;
 * either backward after either forward; times inside a graph; workspaces.
 * Relies on: attention_reference.h, runtime/cuda/k_attention*.
 * Relied on by: make gpu-test. --quick: the first cases only; --bench: times instead. */
#include "attention_reference.h"

#include "../../runtime/cuda/attention_cudnn.h"
#include "../../runtime/schema/workspace.h"

#include <chrono>

static cudaStream_t stream;
static sc_cuda library;

struct shape {
    int dtype, B, S, T, H, KV, D, causal, fused; /* fused: q, k, v are views of one buffer */
    double fwd, bwd;                             /* BASELINES.md's milliseconds; 0: none */
    int E;                                       /* the head size of v; 0: D */
    int value_size() const { return E ? E : D; }
};

static std::string name_of(const shape &c) {
    char text[120];
    snprintf(text, sizeof text, "%s %dx%d%s%s, heads %d/%d, dim %d%s%s", dtype_text(c.dtype), c.B, c.S,
             c.T != c.S ? ":" : "", c.T != c.S ? std::to_string(c.T).c_str() : "", c.H, c.KV, c.D,
             c.causal ? " causal" : " full", c.fused ? " fused qkv" : "");
    if (c.E) return std::string(text) + ", values " + std::to_string(c.E);
    return text;
}

static __global__ void spread(uint16_t *x, int64_t n, uint64_t seed, int half) { /* about normal, deviation 1 */
    for (int64_t e = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; e < n; e += (int64_t)gridDim.x * blockDim.x) {
        uint64_t u = (e + 1) * 0x9e3779b97f4a7c15ull + seed;
        u = (u ^ (u >> 30)) * 0xbf58476d1ce4e5b9ull;
        u = (u ^ (u >> 27)) * 0x94d049bb133111ebull;
        u ^= u >> 31;
        float y = 0;
        for (int k = 0; k < 4; k++) y += (float)(u >> 16 * k & 0xffff) / 65536.0f - 0.5f;
        y *= 1.7320508f;
        if (half)
            asm("cvt.rn.f16.f32 %0, %1;" : "=h"(x[e]) : "f"(y));
        else
            asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(x[e]) : "f"(y));
    }
}

/* ── which kernels ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
enum path { OURS, CUDNN }; /* those for any GPU; of cuDNN's backward bits need not repeat */
static const char *const path_names[] = {"ours", "cuDNN"};

static void choose(path p) {
    library.deterministic = p == OURS;
    library.major = p == OURS ? 7 : 8; /* cuDNN begins with 8, kernels of another file with 9 */
}

/* compiler/ir/rules_work.c, with any limit */
static int64_t room_of(const shape &c, int64_t limit) {
    auto bytes = [&](int64_t samples, int64_t heads) {
        return sc_cudnn_backward_bytes(samples, heads, c.H / c.KV, c.S, c.T, c.D) + SC_CUDNN_SPARE;
    };
    int64_t b = 0, ours = (int64_t)c.B * c.H * c.S * 4;
    for (int64_t n = 1; n <= c.B + c.KV - 1; n++) {
        if (n <= c.B ? c.B % n : c.KV % (n - c.B + 1)) continue;
        b = (n > 1 ? 2 : 1) * (n <= c.B ? bytes(c.B / n, c.KV) : bytes(1, c.KV / (n - c.B + 1)));
        if (b <= limit) break;
    }
    return b > ours ? b : ours;
}

/* ── memory ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
enum { AFTER = 512, POISON = 0xff }; /* 0xffff: not a number */
struct block {
    char *p;
    int64_t bytes;
};
struct heap { /* freed together */
    std::vector<block> all;
    void *take(int64_t bytes) {
        block b = {NULL, bytes};
        SC_CUDA(cudaMalloc((void **)&b.p, (size_t)bytes + AFTER));
        SC_CUDA(cudaMemset(b.p, POISON, (size_t)bytes + AFTER));
        all.push_back(b);
        return b.p;
    }
    bool intact() {
        unsigned char after[AFTER];
        for (const block &b : all) {
            SC_CUDA(cudaMemcpy(after, b.p + b.bytes, AFTER, cudaMemcpyDeviceToHost));
            for (unsigned char x : after)
                if (x != POISON) return false;
        }
        return true;
    }
    ~heap() {
        for (const block &b : all) SC_CUDA(cudaFree(b.p));
    }
};
static int64_t size(const sc_tensor &t) {
    int64_t n = 1;
    for (int d = 0; d < t.dims; d++) n *= t.shape[d];
    return n;
}

struct trio {
    sc_tensor q, k, v;
};
struct problem {
    shape c;
    heap memory;
    trio in, grad;
    sc_tensor o, lse, go, work, little;
    std::vector<block> results;
    sc_record *record;
    double scale;
    sc_attention_args forward;
    sc_attention_grad_args backward;

    problem(const shape &s, int64_t room) : c(s) {
        int64_t no = (int64_t)c.B * c.S * c.H * c.value_size();
        in = make_trio();
        grad = make_trio();
        results = {memory.all.begin() + (int64_t)memory.all.size() / 2, memory.all.end()};
        for (size_t i = 0; i < memory.all.size() / 2; i++) fill(memory.all[i].p, memory.all[i].bytes / 2, i + 1);
        go = described(c.dtype, {c.B, c.S, c.H, c.value_size()}, {}, memory.take(no * 2));
        fill(go.p, no, 5);
        o = described(c.dtype, {c.B, c.S, c.H, c.value_size()}, {}, result(no * 2));
        lse = described(FP32, {c.B, c.H, c.S}, {}, result((int64_t)c.B * c.H * c.S * 4));
        work = described(BOOL, {room}, {}, memory.take(room));
        little = described(BOOL, {4096}, {}, memory.take(4096));
        record = (sc_record *)memory.take(sizeof(sc_record));
        scale = 1 / sqrt((double)c.D);
        forward = {
            .o = o, .lse = lse, .q = in.q, .k = in.k, .v = in.v, .work = little, .causal = c.causal, .scale = scale};
        backward = {.dq = grad.q,
                    .dk = grad.k,
                    .dv = grad.v,
                    .g = go,
                    .q = in.q,
                    .k = in.k,
                    .v = in.v,
                    .o = o,
                    .lse = lse,
                    .work = work,
                    .causal = c.causal,
                    .scale = scale};
    }
    void *result(int64_t bytes) {
        void *p = memory.take(bytes);
        results.push_back(memory.all.back());
        return p;
    }
    trio make_trio() {
        extents queries = {c.B, c.S, c.H, c.D}, keys = {c.B, c.T, c.KV, c.D};
        int64_t nq = (int64_t)c.B * c.S * c.H * c.D, nk = (int64_t)c.B * c.T * c.KV * c.D,
                width = (c.H + 2 * c.KV) * c.D;
        if (!c.fused) {
            void *q = memory.take(nq * 2), *k = memory.take(nk * 2), *v = memory.take(nk / c.D * c.value_size() * 2);
            return {described(c.dtype, queries, {}, q), described(c.dtype, keys, {}, k),
                    described(c.dtype, {c.B, c.T, c.KV, c.value_size()}, {}, v)};
        }
        char *all = (char *)memory.take((nq + 2 * nk) * 2);
        extents step = {c.S * width, width, c.D, 1};
        return {described(c.dtype, queries, step, all), described(c.dtype, keys, step, all + c.H * c.D * 2),
                described(c.dtype, keys, step, all + (c.H + c.KV) * c.D * 2)};
    }
    void fill(void *p, int64_t n, uint64_t seed) {
        spread<<<1024, 256, 0, stream>>>((uint16_t *)p, n, seed * 0x1234567, c.dtype == FP16);
        SC_LAUNCHED();
    }
    sc_task task(bool back) const {
        return back ? task_of(backward, SC_SLOTS_attention_grad, stream, &library, record)
                    : task_of(forward, SC_SLOTS_attention, stream, &library, record);
    }
    void poison() {
        for (const block &b : results) SC_CUDA(cudaMemsetAsync(b.p, POISON, (size_t)b.bytes, stream));
        SC_CUDA(cudaMemsetAsync(work.p, POISON, (size_t)size(work), stream));
    }
    uint64_t hash() {
        uint64_t h = 14695981039346656037ull;
        for (const block &b : results) {
            std::vector<uint64_t> bytes((size_t)(b.bytes + 7) / 8);
            SC_CUDA(cudaMemcpy(bytes.data(), b.p, (size_t)b.bytes, cudaMemcpyDeviceToHost));
            for (uint64_t x : bytes) h = (h ^ x) * 1099511628211ull;
        }
        return h;
    }
};

/* ── against the definition ─────────────────────────────────────────────────────────────────────────────────────────
 */
static reference define(problem &x) {
    const shape &c = x.c;
    int64_t rows = (int64_t)c.B * c.H * c.S, keys = (int64_t)c.B * c.T * c.KV;
    int E = c.value_size();
    auto floats = [&](int64_t n) { return (float *)x.memory.take(n * 4); };
    reference r = {view_of(x.in.q),
                   view_of(x.in.k),
                   view_of(x.in.v),
                   view_of(x.go),
                   floats(rows * E),
                   floats(rows),
                   floats(rows),
                   floats(rows * c.D),
                   floats(keys * c.D),
                   floats(keys * E),
                   c.B,
                   c.S,
                   c.T,
                   c.H,
                   c.KV,
                   c.D,
                   E,
                   c.causal,
                   (float)x.scale};
    for (auto *kernel : {reference_forward, reference_dq, reference_dkv})
        SC_CUDA(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
    reference_forward<<<(unsigned)rows, REFERENCE_THREADS, (size_t)(c.T + c.D) * 4, stream>>>(r);
    SC_LAUNCHED();
    reference_dq<<<(unsigned)rows, REFERENCE_THREADS, (size_t)(c.T + c.D + E) * 4, stream>>>(r);
    SC_LAUNCHED();
    reference_dkv<<<(unsigned)(c.B * c.KV * c.T), REFERENCE_THREADS, (size_t)(2 * c.S + c.D + E) * 4, stream>>>(r);
    SC_LAUNCHED();
    return r;
}

static bool near(std::string &text, const char *name, const sc_tensor &x, const float *want, double most, double rms) {
    difference d = {}, *out;
    SC_CUDA(cudaMalloc((void **)&out, sizeof d));
    SC_CUDA(cudaMemcpy(out, &d, sizeof d, cudaMemcpyHostToDevice));
    bool four = x.dims == 4;
    view v = four ? view_of(x) : view{x.p, x.stride[0], x.stride[1], 1, FP32}; /* lse: [B, H, S, 1] */
    int rows = (int)x.shape[1], heads = (int)x.shape[2], D = four ? (int)x.shape[3] : 1;
    differ<<<512, 256, 0, stream>>>(v, want, rows, heads, D, size(x), out);
    SC_LAUNCHED();
    SC_CUDA(cudaStreamSynchronize(stream));
    SC_CUDA(cudaMemcpy(&d, out, sizeof d, cudaMemcpyDeviceToHost));
    SC_CUDA(cudaFree(out));
    double e = d.most / d.top, r = sqrt(d.square / d.power);
    bool good = e <= most && r <= rms && !d.not_finite;
    char line[160];
    snprintf(line, sizeof line, " %s %.1e/%.1e%s", name, e, r, good ? "" : " TOO LARGE");
    text += line;
    if (d.not_finite) {
        snprintf(line, sizeof line, " (%llu NOT FINITE)", d.not_finite);
        text += line;
    }
    return good;
}

static bool near_all(std::string &text, problem &x, const reference &r) {
    double most = x.c.dtype == BF16 ? 2e-2 : 3e-3, rms = most / 3;
    return near(text, "lse", x.lse, r.lse, 1e-5, 1e-5) & near(text, "o", x.o, r.o, most, rms) &
           near(text, "dq", x.grad.q, r.dq, most, rms) & near(text, "dk", x.grad.k, r.dk, most, rms) &
           near(text, "dv", x.grad.v, r.dv, most, rms);
}

static void tell(problem &x, bool backward) {
    sc_task t = x.task(backward);
    size_t before, after, all;
    SC_CUDA(cudaDeviceSynchronize());
    SC_CUDA(cudaMemGetInfo(&before, &all));
    auto start = std::chrono::steady_clock::now();
    sc_cudnn_choice c = sc_cudnn_attention_choice(&t, backward);
    double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    SC_CUDA(cudaMemGetInfo(&after, &all));
    if (c.taken)
        printf("     %s: engine %d, %d calls, workspace %lld of %lld, planned in %.2f s, %.1f MiB\n",
               backward ? "backward" : "forward", c.engine, c.calls, (long long)c.workspace, (long long)(backward ? x.work : x.little).shape[0], s,
               ((double)before - (double)after) / 1048576);
    else
        printf("     %s: not by cuDNN: %s\n", backward ? "backward" : "forward", c.why);
}

/* Runs with forward and backward each by one path; the first time against the definition. */
static void check_paths(problem &x, const reference &r, path forward, path backward, int runs) {
    sc_task f = x.task(false), b = x.task(true);
    std::string text, name = name_of(x.c) + ", " + path_names[forward];
    if (forward != backward) name += std::string(" then ") + path_names[backward];
    uint64_t first = 0;
    bool same = true, good = true;
    for (int run = 0; run < runs; run++) {
        x.poison();
        choose(forward);
        sc_k_attention(&f);
        choose(backward);
        sc_k_attention_grad(&b);
        SC_CUDA(cudaStreamSynchronize(stream));
        if (run == 0) good = near_all(text, x, r);
        uint64_t h = x.hash();
        if (run == 0) first = h;
        same = same && h == first;
    }
    if (!same) text += " NOT THE SAME AGAIN";
    if (!x.memory.intact()) text += " WROTE OUTSIDE", good = false;
    verdict(good && same, name.c_str(), text.c_str());
}

static void check(const shape &c) {
    problem x(c, room_of(c, 1 << 28 /* less than there: parts are tried */));
    reference r = define(x);
    choose(CUDNN);
    tell(x, false);
    tell(x, true);
    check_paths(x, r, OURS, OURS, 5);
    check_paths(x, r, CUDNN, CUDNN, 1);
    check_paths(x, r, OURS, CUDNN, 1);
    check_paths(x, r, CUDNN, OURS, 5);
}

/* ── times ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static double time_of(sc_kernel *kernel, const sc_task &t) { /* milliseconds */
    enum { TIMES = 20 };
    kernel(&t); /* makes its plan */
    double ms = in_graph(stream, 2, [&] {
        for (int i = 0; i < TIMES; i++) kernel(&t);
    });
    return ms / TIMES;
}

static void bench_backward(const shape &c, path p, int64_t limit) {
    choose(p);
    problem x(c, room_of(c, limit));
    sc_task f = x.task(false), b = x.task(true);
    double pairs = (double)c.B * c.H * c.S * c.T * (c.causal ? 0.5 : 1), flops = 2 * pairs * (c.D + c.value_size()), ms = 0;
    if (limit >> 40) {
        ms = time_of(sc_k_attention, f);
        printf("     %-17s forward            %7.3f ms %5.0f TFLOP/s (BASELINES %.3f)\n", path_names[p], ms,
               flops / ms / 1e9, c.fwd);
    }
    sc_k_attention(&f);
    sc_cudnn_choice choice = sc_cudnn_attention_choice(&b, true);
    ms = time_of(sc_k_attention_grad, b);
    printf("     %-17s backward %2d calls  %7.3f ms %5.0f TFLOP/s (BASELINES %.3f) workspace %lld MiB of %lld\n",
           path_names[p], choice.calls, ms, 2.5 * flops / ms / 1e9, c.bwd,
           (long long)(choice.workspace >> 20), (long long)(size(x.work) >> 20));
    fflush(stdout);
}

static void bench(const shape &c) {
    printf("time %s\n", name_of(c).c_str());
    bench_backward(c, OURS, 1ll << 40);
    for (int64_t limit : {1ll << 40, 9ll << 26, 9ll << 24}) bench_backward(c, CUDNN, limit);
}

static const shape shapes[] = {
    /* dtype B S T H KV D causal fused; BASELINES.md: forward, backward */
    {BF16, 64, 1024, 1024, 12, 12, 64, 1, 1, 0.295, 1.018},
    {BF16, 64, 1024, 1024, 12, 12, 64, 1, 0, 0.295, 1.018},
    {BF16, 4, 2048, 2048, 32, 8, 128, 1, 0, 0.255, 0.868},
    {BF16, 32, 1024, 1024, 14, 2, 64, 1, 0, 0.178, 0.647},
    {BF16, 32, 1024, 1024, 25, 25, 64, 1, 1, 0.307, 1.063},
    {BF16, 1, 8192, 8192, 32, 8, 128, 1, 0, 0.884, 2.597},
    {FP16, 8, 1024, 1024, 12, 12, 64, 1, 1, 0, 0},
    {FP16, 2, 1024, 1024, 8, 4, 128, 0, 0, 0, 0},
    {BF16, 3, 1000, 1000, 6, 2, 64, 1, 1, 0, 0},
    {BF16, 2, 333, 333, 4, 4, 128, 1, 0, 0, 0},
    {BF16, 2, 129, 515, 4, 1, 64, 0, 0, 0, 0},
    {BF16, 2, 1024, 1024, 4, 4, 96, 1, 1, 0, 0},
    {BF16, 4, 64, 64, 4, 4, 16, 1, 1, 0, 0},
    {BF16, 2, 512, 512, 4, 2, 256, 1, 0, 0, 0},
    {FP16, 1, 300, 300, 6, 3, 72, 1, 1, 0, 0},
    {BF16, 2, 4096, 4096, 16, 4, 128, 1, 1, 0, 0},
    /* our own kernels' alone: heads of k and v of two sizes, causal rows of two lengths */
    {BF16, 2, 2048, 2048, 16, 16, 192, 1, 0, 0, 0, 128},
    {FP16, 2, 600, 600, 4, 2, 64, 0, 0, 0, 0, 96},
    {BF16, 2, 1000, 700, 4, 2, 128, 1, 0, 0, 0},
    {BF16, 2, 700, 1000, 4, 2, 64, 1, 0, 0, 0},
};

int main(int argc, char **argv) {
    bool quick = argc > 1 && !strcmp(argv[1], "--quick"), only_times = argc > 1 && !strcmp(argv[1], "--bench");
    int n = quick ? 2 : (int)(sizeof shapes / sizeof *shapes), device = 0;
    SC_CUDA(cudaStreamCreate(&stream));
    SC_CUDA(cudaDeviceGetAttribute(&library.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    for (int i = 0; i < n && !only_times; i++) check(shapes[i]);
    for (int i = 0; i < n && only_times; i++)
        if (shapes[i].fwd > 0) bench(shapes[i]);
    sc_cudnn_attention_stop(&library);
    return closing();
}
