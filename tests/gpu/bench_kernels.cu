/* Times the kernels that test_kernels.cu tests, at the shapes of GPT-2 124M (64 × 1024) and Llama-3 8B (1 × 8192).
 * Relies on: the CUDA runtime, runtime/cuda/k_*.cu.
 * Relied on by: people. An argument: a part of a kernel's name (only those run).
 *
 * A line a kernel: time, bytes that it must move, and their rate; the ceiling is the first line, a device copy.
 * Launches are captured into one graph, as in a step, and go round a few copies of the operands, so that nothing is in
 * the L2. */
#include "trial.h"

enum { REPEATS = 20, COPIES = 3 };

struct chunk { /* device memory, never read by the host */
    char *p;
    size_t bytes;
};
static std::vector<chunk> chunks;

static sc_tensor device_tensor(int dtype, const extents &shape, const extents &stride = {}) {
    sc_tensor t = {};
    extents s = stride.empty() ? contiguous(shape) : stride;
    int64_t last = 0;
    t.dtype = (uint8_t)dtype;
    t.dims = (uint8_t)shape.size();
    for (size_t d = 0; d < shape.size(); d++) {
        t.shape[d] = shape[d];
        t.stride[d] = s[d];
        last += (shape[d] - 1) * s[d];
    }
    chunk a = {NULL, (size_t)((last + 1) * bytes_of_dtype(dtype) + 255) / 256 * 256};
    SC_CUDA(cudaMalloc((void **)&a.p, a.bytes));
    chunks.push_back(a);
    t.p = a.p;
    return t;
}
/* Plausible bytes in every float tensor: small numbers of both signs, or squares. */
__global__ void scatter(void *p, int dtype, int64_t n, int64_t limit, bool positive) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        uint64_t r = sc_mix((uint64_t)i + 12345);
        float x = (float)((int64_t)(r >> 40) - (1 << 23)) / (float)(1 << 22);
        if (positive) x = x * x;
        if (dtype == FP32) ((float *)p)[i] = x;
        if (dtype == BF16) ((sc_bf16_t *)p)[i] = sc_to_bf16(x);
        if (dtype == FP16) ((sc_fp16_t *)p)[i] = sc_to_fp16(x);
        /* words of a text: many of a few */
        double u = (double)(r >> 11) / 9007199254740992.0;
        if (dtype == INT32) ((int32_t *)p)[i] = (int32_t)((double)limit * u * u * u * u);
        if (dtype == INT64) ((int64_t *)p)[i] = 10;
    }
}
static int64_t index_limit = 50257;
static void scatter_in(const sc_tensor &t, bool positive) {
    scatter<<<1024, 256, 0, stream>>>(t.p, t.dtype, (int64_t)(chunks.back().bytes / bytes_of_dtype(t.dtype)),
                                      index_limit, positive);
    SC_LAUNCHED();
}

struct spec {
    int dtype;
    extents shape, stride;
};
struct attributes {
    std::vector<int64_t> i;
    std::vector<double> f;
    std::vector<int64_t> table;
};

static void time_kernel(const char *name, sc_kernel *kernel, const std::vector<spec> &operands, double bytes,
                        const attributes &at = {}) {
    if (only && !strstr(name, only)) return;
    sc_task tasks[COPIES];
    for (sc_task &t : tasks) {
        t = {};
        t.nt = (int)operands.size();
        for (int k = 0; k < t.nt; k++) {
            t.t[k] = device_tensor(operands[k].dtype, operands[k].shape, operands[k].stride);
            /* second moments: with negative ones the time would be that of NaN */
            scatter_in(t.t[k], kernel == sc_k_adam && k == 4);
        }
        for (size_t k = 0; k < at.i.size(); k++) t.i[k] = at.i[k];
        for (size_t k = 0; k < at.f.size(); k++) t.f[k] = at.f[k];
        t.table = at.table.data();
        t.ntable = (int)at.table.size();
        t.world = t.parts = 1;
        t.stream = stream;
        t.library = &library;
        t.record = (const sc_record *)record_on_device.t.p;
    }
    cudaGraph_t graph;
    cudaGraphExec_t run;
    cudaEvent_t before, after;
    SC_CUDA(cudaStreamSynchronize(stream));
    SC_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int k = 0; k < REPEATS; k++) kernel(&tasks[k % COPIES]);
    SC_CUDA(cudaStreamEndCapture(stream, &graph));
    SC_CUDA(cudaGraphInstantiate(&run, graph, 0));
    SC_CUDA(cudaEventCreate(&before));
    SC_CUDA(cudaEventCreate(&after));
    SC_CUDA(cudaGraphLaunch(run, stream));
    SC_CUDA(cudaEventRecord(before, stream));
    SC_CUDA(cudaGraphLaunch(run, stream));
    SC_CUDA(cudaEventRecord(after, stream));
    SC_CUDA(cudaEventSynchronize(after));
    float ms;
    SC_CUDA(cudaEventElapsedTime(&ms, before, after));
    ms /= REPEATS;
    printf("%-44s %9.1f us %8.1f MB %7.0f GB/s\n", name, ms * 1e3, bytes / 1e6, bytes / ms / 1e6);
    fflush(stdout);
    SC_CUDA(cudaEventDestroy(before));
    SC_CUDA(cudaEventDestroy(after));
    SC_CUDA(cudaGraphExecDestroy(run));
    SC_CUDA(cudaGraphDestroy(graph));
    for (chunk &p : chunks) SC_CUDA(cudaFree(p.p));
    chunks.clear();
}

/* A model's sizes: tokens, width, words, heads, key heads, head size; an optimizer's shard. */
struct sizes {
    const char *name;
    int64_t batch, seq, dim, ffn, vocab, heads, kv, head, shard;
};

static std::string label(const sizes &s, const char *what) {
    return std::string(s.name) + " " + what;
}

static void norms_of(const sizes &s, int64_t n) {
    double x = (double)(n * s.dim) * 2;
    int64_t work = runs_of(s.dim, n) * s.dim * 4;
    spec rows = {BF16, {n, s.dim}, {}}, vector = {BF16, {s.dim}, {}}, stat = {FP32, {n}, {}},
         wide = {FP32, {s.dim}, {}};
    time_kernel(label(s, "layer_norm").c_str(), sc_k_layer_norm, {rows, stat, stat, rows, vector, vector}, 2 * x,
                {{1, 1}, {1e-5}, {}});
    time_kernel(label(s, "layer_norm_grad").c_str(), sc_k_layer_norm_grad, {rows, rows, rows, stat, stat, vector},
                3 * x);
    time_kernel(label(s, "layer_norm_grad_w").c_str(), sc_k_layer_norm_grad_w,
                {wide, wide, rows, rows, stat, stat, {BOOL, {2 * work}, {}}}, 2 * x);
    int64_t runs = norm_runs_of(s.dim, n, BF16, true), alone = norm_runs_of(s.dim, n, BF16, false);
    time_kernel(label(s, "layer_norm_grads and c").c_str(), sc_k_layer_norm_grads,
                {rows, wide, wide, rows, rows, stat, stat, vector, rows, {BOOL, {runs * 2 * s.dim * 4}, {}}}, 4 * x,
                {{FP32 + 1, 1, 1}, {}, {}});
    time_kernel(label(s, "layer_norm_grads, c and sum").c_str(), sc_k_layer_norm_grads,
                {rows, wide, wide, wide, rows, rows, stat, stat, vector, rows, {BOOL, {runs * 3 * s.dim * 4}, {}}},
                4 * x, {{FP32 + 1, 1, 1, FP32 + 1}, {}, {}});
    time_kernel(label(s, "sum of columns").c_str(), sc_k_sum, {wide, rows, {BOOL, {work}, {}}}, x, {{1}, {}, {}});
    time_kernel(label(s, "rms_norm_grads and c").c_str(), sc_k_rms_norm_grads,
                {rows, wide, rows, rows, stat, vector, rows, {BOOL, {alone * s.dim * 4}, {}}}, 4 * x,
                {{FP32 + 1, 1, 1}, {}, {}});
    time_kernel(label(s, "rms_norm").c_str(), sc_k_rms_norm, {rows, stat, rows, vector}, 2 * x, {{}, {1e-5}, {}});
    time_kernel(label(s, "rms_norm_grad").c_str(), sc_k_rms_norm_grad, {rows, rows, rows, stat, vector}, 3 * x);
    time_kernel(label(s, "rms_norm_grad_w").c_str(), sc_k_rms_norm_grad_w, {wide, rows, rows, stat, {BOOL, {work}, {}}},
                2 * x);
}

static void tokens_of(const sizes &s, int64_t n) {
    double x = (double)(n * s.dim) * 2, table = (double)(s.vocab * s.dim), logits = (double)(n * s.vocab) * 2;
    spec index = {INT32, {n}, {}}, rows = {BF16, {n, s.dim}, {}};
    int64_t work = ((2 * s.vocab + 1 + 2 * n) * 4 + 15) / 16 * 16 + (n + 127) / 128 * 2 * s.dim * 4;
    index_limit = s.vocab;
    time_kernel(label(s, "embedding").c_str(), sc_k_embedding, {rows, index, {BF16, {s.vocab, s.dim}, {}}}, 2 * x);
    time_kernel(label(s, "embedding_grad to fp32").c_str(), sc_k_embedding_grad,
                {{FP32, {s.vocab, s.dim}, {}}, index, rows, {BOOL, {work}, {}}}, x + table * 4);
    time_kernel(label(s, "embedding_grad to bf16").c_str(), sc_k_embedding_grad,
                {{BF16, {s.vocab, s.dim}, {}}, index, rows, {BOOL, {work}, {}}}, x + table * 2);
    int64_t slice = s.vocab * s.dim / 8; /* of 8 ranks that have the tokens together */
    time_kernel(label(s, "coalesce to fp32").c_str(), sc_k_coalesce,
                {{FP32, {slice}, {}}, index, rows, {BOOL, {work}, {}}}, x / 8 + (double)slice * 4,
                {{s.vocab, s.dim, 8, 1, slice, 8}, {}, {}});
    int64_t some = n < 16384 ? n : 16384; /* of the logits: COPIES of them must fit */
    double part = (double)some / (double)n;
    spec l = {BF16, {some, s.vocab}, {}}, stat = {FP32, {some}, {}}, one = {FP32, {}, {}}, few = {INT32, {some}, {}};
    time_kernel(label(s, "cross_entropy").c_str(), sc_k_cross_entropy, {one, stat, l, few, {BOOL, {some * 4}, {}}},
                logits * part, {{-100, 1}, {}, {}});
    time_kernel(label(s, "cross_entropy_grad").c_str(), sc_k_cross_entropy_grad, {l, one, l, few, stat},
                2 * logits * part, {{-100, 1}, {}, {}});
    time_kernel(label(s, "cross_entropy_grads").c_str(), sc_k_cross_entropy_grads, {l, one, stat, one, l, few},
                2 * logits * part, {{-100, 1}, {}, {}});
}

static void others_of(const sizes &s, int64_t n) {
    double x = (double)(n * s.dim) * 2, f = (double)(n * s.ffn) * 2, q = (double)(n * s.heads * s.head) * 2;
    double k = (double)(n * s.kv * s.head) * 2, p = (double)s.shard;
    int64_t all = (s.heads + 2 * s.kv) * s.head;
    spec rows = {BF16, {n, s.dim}, {}}, wide = {BF16, {n, s.ffn}, {}};
    time_kernel(label(s, "bias gradient").c_str(), sc_k_sum,
                {{FP32, {s.ffn}, {}}, wide, {BOOL, {runs_of(s.ffn, n) * s.ffn * 4}, {}}}, f, {{1}, {}, {}});
    time_kernel(label(s, "sum over the batch").c_str(), sc_k_sum,
                {{FP32, {s.seq, s.dim}, {}}, {BF16, {n / s.seq, s.seq, s.dim}, {}}}, x, {{1}, {}, {}});
    time_kernel(label(s, "sum of a row").c_str(), sc_k_sum, {{BF16, {n}, {}}, rows}, x, {{2}, {}, {}});
    time_kernel(label(s, "sum of all").c_str(), sc_k_sum, {{FP32, {}, {}}, wide, {BOOL, {1024 * 4}, {}}}, f,
                {{3}, {}, {}});
    extents heads = {s.batch, s.seq, s.heads, s.head}, inside = {s.seq * all, all, s.head, 1};
    time_kernel(label(s, "rope of the queries").c_str(), sc_k_rope, {{BF16, heads, {}}, {BF16, heads, inside}}, 2 * q,
                {{0}, {500000}, {}});
    extents kv = {s.batch, s.seq, s.kv, s.head};
    time_kernel(label(s, "rope of the keys").c_str(), sc_k_rope, {{BF16, kv, {}}, {BF16, kv, inside}}, 2 * k,
                {{0}, {500000}, {}});
    time_kernel(label(s, "concat of dq, dk, dv").c_str(), sc_k_concat,
                {{BF16, {n, all}, {}},
                 {BF16, {n, s.heads * s.head}, {}},
                 {BF16, {n, s.kv * s.head}, {}},
                 {BF16, {n, s.kv * s.head}, {}}},
                2 * (q + 2 * k), {{1}, {}, {}});
    time_kernel(label(s, "copy, heads turned").c_str(), sc_k_copy,
                {{BF16, {s.batch, s.heads, s.seq, s.head}, {}},
                 {BF16, {s.batch, s.heads, s.seq, s.head}, {s.seq * s.heads * s.head, s.head, s.heads * s.head, 1}}},
                2 * q);
    time_kernel(label(s, "copy, transposed").c_str(), sc_k_copy, {{BF16, {n, s.dim}, {}}, {BF16, {n, s.dim}, {1, n}}},
                2 * x);
    time_kernel(label(s, "dropout").c_str(), sc_k_dropout, {rows, rows}, 2 * x, {{1234}, {0.1}, {}});
    spec g = {FP32, {s.shard}, {}}, b = {BF16, {s.shard}, {}}, one = {FP32, {1}, {}}, step = {INT64, {1}, {}};
    std::vector<int64_t> table = {0, s.shard / 2, 0, s.shard / 2, s.shard, 1};
    std::vector<int64_t> keyed = {0, s.shard / 2, 0, 77, s.shard / 2, s.shard, 1, 78};
    time_kernel(label(s, "adam").c_str(), sc_k_adam, {g, g, one, g, g, step}, 28 * p, {{1, s.shard}, {}, table});
    time_kernel(label(s, "adam with a wire shard").c_str(), sc_k_adam, {g, g, one, g, g, step, b}, 30 * p,
                {{1, s.shard}, {}, table});
    time_kernel(label(s, "adam with a wire shard, bf16 moments").c_str(), sc_k_adam, {g, g, one, b, b, step, b}, 22 * p,
                {{1, s.shard}, {}, keyed});
    time_kernel(label(s, "adam, bf16 gradient and moments").c_str(), sc_k_adam, {b, g, one, b, b, step}, 18 * p,
                {{1, s.shard}, {}, keyed});
    time_kernel(label(s, "sgd with momentum").c_str(), sc_k_sgd, {g, g, one, g}, 20 * p, {{0, s.shard}, {}, table});
    time_kernel(label(s, "store fp32 to bf16").c_str(), sc_k_store, {g, b}, 6 * p);
    time_kernel(label(s, "sum_squares").c_str(), sc_k_sum_squares, {one, g, {BOOL, {(s.shard + 4095) / 4096 * 4}, {}}},
                4 * p);
    time_kernel(label(s, "zero").c_str(), sc_k_zero, {g}, 4 * p);
    time_kernel(label(s, "init normal").c_str(), sc_k_init_param, {g}, 4 * p,
                {{3, 77, 0, s.shard, s.shard}, {0, 0.02}, {}});
}

int main(int argc, char **argv) {
    start(argc, argv);
    SC_CUDA(cudaDeviceGetAttribute(&library.multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    int64_t n = 512 << 20;
    time_kernel("copy of 1 GB", sc_k_copy, {{BF16, {n}, {}}, {BF16, {n}, {}}}, 4.0 * (double)n);
    const sizes models[] = {{"gpt2", 64, 1024, 768, 3072, 50304, 12, 12, 64, 124 << 20},
                            {"gpt2-xl", 32, 1024, 1600, 6400, 50304, 25, 25, 64, 124 << 20},
                            {"qwen", 32, 1024, 896, 4864, 151936, 14, 2, 64, 494 << 18},
                            {"llama", 1, 8192, 4096, 14336, 128256, 32, 8, 128, 218 << 20}};
    for (const sizes &s : models) {
        norms_of(s, s.batch * s.seq);
        tokens_of(s, s.batch * s.seq);
        others_of(s, s.batch * s.seq);
    }
    return 0;
}
