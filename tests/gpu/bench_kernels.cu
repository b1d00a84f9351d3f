/* Times the kernels that test_kernels.cu tests, at the shapes of GPT-2 124M (64 × 1024) and Llama-3 8B (1 × 8192).
 * Relies on: the CUDA runtime, runtime/cuda/k_*.cu.
 * Relied on by: people. An argument: a part of a kernel's name (only those run).
 *
 * A line a kernel: time, bytes that it must move, and their rate; the ceiling is the first line, a device copy.
 * Launches are captured into one graph, as in a step, and go round a few copies of the operands, so that nothing is in
 * the L2. */
#include "../../runtime/schema/moments8.h"
#include "trial.h"

enum { REPEATS = 20, COPIES = 3 };

struct chunk { /* device memory, never read by the host */
    char *p;
    size_t bytes;
};
static std::vector<chunk> chunks;

static sc_tensor work_of(int64_t bytes) {
    return described(BOOL, {bytes});
}
static void give_memory(sc_tensor *t) {
    chunk a = {NULL, (size_t)(reach_of(*t) * bytes_of_dtype(t->dtype) + 255) / 256 * 256};
    SC_CUDA(cudaMalloc((void **)&a.p, a.bytes));
    chunks.push_back(a);
    t->p = a.p;
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
        /* codes of small moments, whose scales have these bytes too */
        if (dtype == INT8) ((int8_t *)p)[i] = (int8_t)(60 + (r >> 40) % 8);
    }
}
static int64_t index_limit = 50257;
static void scatter_in(const sc_tensor &t, bool positive) {
    scatter<<<1024, 256, 0, stream>>>(t.p, t.dtype, (int64_t)(chunks.back().bytes / bytes_of_dtype(t.dtype)),
                                      index_limit, positive);
    SC_LAUNCHED();
}

template <class ARGS> static void time_kernel(const std::string &name, const ARGS &k, double bytes) {
    if (only && !strstr(name.c_str(), only)) return;
    sc_kernel *kernel = op_of<ARGS>::kernel();
    sc_args args[COPIES] = {};
    sc_task tasks[COPIES] = {};
    static const sc_coord place[2] = {{0, 1}, {0, 8}}; /* alone, and of 8 ranks */
    for (int c = 0; c < COPIES; c++) {
        sc_task &t = tasks[c];
        memcpy(&args[c], &k, sizeof k);
        for (const slot &s : op_of<ARGS>::slots()) t.slots += s.n;
        for (int i = 0; i < t.slots; i++) {
            sc_tensor *x = &args[c].t[i];
            if (!x->there) continue;
            give_memory(x);
            /* second moments: with negative ones the time would be that of NaN */
            scatter_in(*x, kernel == sc_k_adam && x == &((sc_adam_args *)&args[c])->v);
        }
        t.args = &args[c];
        t.world = t.parts = 1;
        t.coord = place;
        t.stream = stream;
        t.library = &library;
        t.record = (const sc_record *)record_on_device.t.p;
    }
    SC_CUDA(cudaStreamSynchronize(stream));
    double ms = in_graph(stream, 2, [&] {
        for (int k = 0; k < REPEATS; k++) kernel(&tasks[k % COPIES]);
    });
    ms /= REPEATS;
    printf("%-44s %9.1f us %8.1f MB %7.0f GB/s\n", name.c_str(), ms * 1e3, bytes / 1e6, bytes / ms / 1e6);
    fflush(stdout);
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
    double bytes = (double)(n * s.dim) * 2;
    int64_t part = runs_of(s.dim, n) * s.dim * 4;
    sc_tensor x = described(BF16, {n, s.dim}), w = described(BF16, {s.dim}), row = described(FP32, {n}),
              dw = described(FP32, {s.dim});
    time_kernel(label(s, "layer_norm"),
                sc_layer_norm_args{.y = x, .mean = row, .rstd = row, .x = x, .w = w, .b = w, .eps = 1e-5}, 2 * bytes);
    time_kernel(label(s, "layer_norm_grad"),
                sc_layer_norm_grad_args{.dx = x, .g = x, .x = x, .mean = row, .rstd = row, .w = w}, 3 * bytes);
    time_kernel(label(s, "layer_norm_grad_w"),
                sc_layer_norm_grad_w_args{
                    .dw = dw, .db = dw, .g = x, .x = x, .mean = row, .rstd = row, .work = work_of(2 * part)},
                2 * bytes);
    int64_t runs = norm_runs_of(s.dim, n, BF16, true), alone = norm_runs_of(s.dim, n, BF16, false);
    sc_layer_norm_grads_args all = {.dx = x,
                                    .dw = dw,
                                    .db = dw,
                                    .g = x,
                                    .x = x,
                                    .mean = row,
                                    .rstd = row,
                                    .w = w,
                                    .c = x,
                                    .work = work_of(runs * 2 * s.dim * 4)};
    time_kernel(label(s, "layer_norm_grads and c"), all, 4 * bytes);
    all.ds = dw;
    all.work = work_of(runs * 3 * s.dim * 4);
    time_kernel(label(s, "layer_norm_grads, c and sum"), all, 4 * bytes);
    time_kernel(label(s, "sum of columns"), sc_sum_args{.y = dw, .x = x, .work = work_of(part), .over = 1}, bytes);
    time_kernel(label(s, "rms_norm_grads and c"),
                sc_rms_norm_grads_args{
                    .dx = x, .dw = dw, .g = x, .x = x, .rstd = row, .w = w, .c = x, .work = work_of(alone * s.dim * 4)},
                4 * bytes);
    time_kernel(label(s, "rms_norm"), sc_rms_norm_args{.y = x, .rstd = row, .x = x, .w = w, .eps = 1e-5}, 2 * bytes);
    time_kernel(label(s, "norm_statistics"), sc_norm_statistics_args{.rstd = row, .x = x, .eps = 1e-5}, bytes);
    time_kernel(label(s, "rms_norm_grad"), sc_rms_norm_grad_args{.dx = x, .g = x, .x = x, .rstd = row, .w = w},
                3 * bytes);
    time_kernel(label(s, "rms_norm_grad_w"),
                sc_rms_norm_grad_w_args{.dw = dw, .g = x, .x = x, .rstd = row, .work = work_of(part)}, 2 * bytes);
}

static void tokens_of(const sizes &s, int64_t n) {
    double bytes = (double)(n * s.dim) * 2, table = (double)(s.vocab * s.dim), logits = (double)(n * s.vocab) * 2;
    sc_tensor index = described(INT32, {n}), rows = described(BF16, {n, s.dim});
    sc_tensor work = work_of(sc_cuda_embedding_grad_bytes(s.vocab, n, s.dim));
    index_limit = s.vocab;
    time_kernel(label(s, "embedding"),
                sc_embedding_args{.y = rows, .index = index, .w = described(BF16, {s.vocab, s.dim})}, 2 * bytes);
    sc_embedding_grad_args grad = {
        .dw = described(FP32, {s.vocab, s.dim}), .index = index, .g = rows, .work = work, .rows = s.vocab};
    time_kernel(label(s, "embedding_grad to fp32"), grad, bytes + table * 4);
    grad.dw.dtype = BF16;
    time_kernel(label(s, "embedding_grad to bf16"), grad, bytes + table * 2);
    int64_t slice = s.vocab * s.dim / 8; /* of 8 ranks that have the tokens together */
    time_kernel(label(s, "coalesce to fp32"),
                sc_coalesce_args{.y = described(FP32, {slice}),
                                 .index = index,
                                 .g = rows,
                                 .work = work,
                                 .rows = s.vocab,
                                 .cols = s.dim,
                                 .slice = slice,
                                 .shard = 1},
                bytes / 8 + (double)slice * 4);
    int64_t some = n < 16384 ? n : 16384; /* of the logits: COPIES of them must fit */
    double part = (double)some / (double)n;
    sc_tensor l = described(BF16, {some, s.vocab}), row = described(FP32, {some}), one = described(FP32, {}),
              few = described(INT32, {some});
    time_kernel(label(s, "cross_entropy"),
                sc_cross_entropy_args{.loss = one,
                                      .most = row,
                                      .rest = row,
                                      .logits = l,
                                      .targets = few,
                                      .work = work_of(some * 4),
                                      .ignore = -100,
                                      .count = 1},
                logits * part);
    time_kernel(
        label(s, "cross_entropy_grad"),
        sc_cross_entropy_grad_args{
            .dlogits = l, .g = one, .logits = l, .targets = few, .most = row, .rest = row, .ignore = -100, .count = 1},
        2 * logits * part);
    time_kernel(label(s, "cross_entropy_grads"),
                sc_cross_entropy_grads_args{.dlogits = l,
                                            .loss = one,
                                            .losses = row,
                                            .g = one,
                                            .logits = l,
                                            .targets = few,
                                            .ignore = -100,
                                            .count = 1},
                2 * logits * part);
}

static void updates_of(const sizes &s) {
    double p = (double)s.shard;
    sc_tensor g = described(FP32, {s.shard}), b = described(BF16, {s.shard}), one = described(FP32, {1});
    std::vector<int64_t> table = {0, s.shard / 2, 0, s.shard / 2, s.shard, 1};
    std::vector<int64_t> keyed = {0, s.shard / 2, 0, 77, s.shard / 2, s.shard, 1, 78};
    sc_adam_args adam = {.grad = g,
                         .master = g,
                         .coefficient = one,
                         .m = g,
                         .v = g,
                         .step = described(INT64, {1}),
                         .table = table.data(),
                         .ntable = (int64_t)table.size(),
                         .decoupled = 1,
                         .slice = s.shard};
    time_kernel(label(s, "adam"), adam, 28 * p);
    adam.wire = b;
    time_kernel(label(s, "adam with a wire shard"), adam, 30 * p);
    adam.m = adam.v = b;
    adam.table = keyed.data(), adam.ntable = (int64_t)keyed.size();
    time_kernel(label(s, "adam with a wire shard, bf16 moments"), adam, 22 * p);
    adam.grad = b;
    adam.wire = {};
    time_kernel(label(s, "adam, bf16 gradient and moments"), adam, 18 * p);
    int64_t whole = s.shard / 512 * 512; /* blocks, half of them each group's */
    std::vector<int64_t> blocks = {0, whole / 2, 0, whole / 2, whole, 1};
    adam.m = adam.v = described(INT8, {sc_moments8_bytes(whole)});
    adam.table = blocks.data(), adam.ntable = (int64_t)blocks.size(), adam.slice = whole;
    time_kernel(label(s, "adam, bf16 gradient, int8 moments"), adam, (10 + 4 * 65 / 64.0) * (double)whole);
    adam.grad = g, adam.wire = b;
    time_kernel(label(s, "adam with a wire shard, int8 moments"), adam, (14 + 4 * 65 / 64.0) * (double)whole);
    time_kernel(label(s, "sgd with momentum"),
                sc_sgd_args{.grad = g,
                            .master = g,
                            .coefficient = one,
                            .momentum = g,
                            .table = table.data(),
                            .ntable = (int64_t)table.size(),
                            .slice = s.shard},
                20 * p);
    time_kernel(label(s, "store fp32 to bf16"), sc_store_args{.value = g, .state = b}, 6 * p);
    time_kernel(label(s, "sum_squares"),
                sc_sum_squares_args{.y = one, .x = g, .work = work_of(sc_cuda_sum_squares_bytes(s.shard))}, 4 * p);
    time_kernel(label(s, "zero"), sc_zero_args{.state = g}, 4 * p);
    time_kernel(label(s, "init normal"),
                sc_init_param_args{.state = g, .kind = 3, .key = 77, .numel = s.shard, .slice = s.shard, .b = 0.02},
                4 * p);
}

/* A linear's input, turned too, and its weight, turned alone. */
static void blocks_of(const sizes &s, int64_t n) {
    auto across = [](int64_t c) { return (c + 127) / 128; };
    double x = (double)(n * s.ffn), w = (double)(s.dim * s.ffn);
    time_kernel(label(s, "quantize_blocks, both"),
                sc_quantize_blocks_args{.y = described(FP8_E4M3, {n, s.ffn}),
                                        .scale = described(FP32, {across(s.ffn), n}),
                                        .turned = described(FP8_E4M3, {s.ffn, n}),
                                        .turned_scale = described(FP32, {across(n), s.ffn}),
                                        .x = described(BF16, {n, s.ffn}),
                                        .both = 1},
                4 * x);
    time_kernel(label(s, "quantize_blocks, a weight turned"),
                sc_quantize_blocks_args{.y = described(FP8_E4M3, {s.ffn, s.dim}),
                                        .scale = described(FP32, {across(s.ffn), (across(s.dim) + 3) / 4 * 4}),
                                        .x = described(BF16, {s.dim, s.ffn}),
                                        .square = 1,
                                        .turn = 1},
                3 * w);
}

/* What linears read, as it lies and turned, with magnitudes of steps before. */
static void narrow_of(const sizes &s, int64_t n) {
    sc_tensor one = described(FP32, {1}), row = described(FP32, {n}), w = described(BF16, {s.dim});
    sc_quantize_args k = {.y = described(FP8_E4M3, {n, s.dim}),
                          .scale = one,
                          .turned = described(FP8_E4M3, {s.dim, n}),
                          .x = described(BF16, {n, s.dim}),
                          .amax = one,
                          .seen = one,
                          .both = 1};
    double bytes = 4 * (double)(n * s.dim);
    time_kernel(label(s, "quantize, both"), k, bytes);
    k.rstd = row, k.w = w;
    time_kernel(label(s, "quantize, both, rms_norm"), k, bytes);
    k.mean = row, k.b = w;
    time_kernel(label(s, "quantize, both, layer_norm"), k, bytes);
}

static void others_of(const sizes &s, int64_t n) {
    double bytes = (double)(n * s.dim) * 2, f = (double)(n * s.ffn) * 2, q = (double)(n * s.heads * s.head) * 2;
    double k = (double)(n * s.kv * s.head) * 2;
    int64_t all = (s.heads + 2 * s.kv) * s.head;
    sc_tensor rows = described(BF16, {n, s.dim}), wide = described(BF16, {n, s.ffn});
    time_kernel(
        label(s, "bias gradient"),
        sc_sum_args{
            .y = described(FP32, {s.ffn}), .x = wide, .work = work_of(runs_of(s.ffn, n) * s.ffn * 4), .over = 1},
        f);
    time_kernel(
        label(s, "sum over the batch"),
        sc_sum_args{.y = described(FP32, {s.seq, s.dim}), .x = described(BF16, {n / s.seq, s.seq, s.dim}), .over = 1},
        bytes);
    time_kernel(label(s, "sum of a row"), sc_sum_args{.y = described(BF16, {n}), .x = rows, .over = 2}, bytes);
    time_kernel(label(s, "sum of all"),
                sc_sum_args{.y = described(FP32, {}), .x = wide, .work = work_of(1024 * 4), .over = 3}, f);
    extents heads = {s.batch, s.seq, s.heads, s.head}, inside = {s.seq * all, all, s.head, 1};
    time_kernel(label(s, "rope of the queries"),
                sc_rope_args{.y = described(BF16, heads), .x = described(BF16, heads, inside), .theta = 500000}, 2 * q);
    extents kv = {s.batch, s.seq, s.kv, s.head};
    time_kernel(label(s, "rope of the keys"),
                sc_rope_args{.y = described(BF16, kv), .x = described(BF16, kv, inside), .theta = 500000}, 2 * k);
    sc_tensor dq = described(BF16, {n, s.heads * s.head}), dk = described(BF16, {n, s.kv * s.head});
    time_kernel(label(s, "concat of dq, dk, dv"),
                sc_concat_args{.y = described(BF16, {n, all}), .x = {dq, dk, dk}, .dim = 1}, 2 * (q + 2 * k));
    extents turned = {s.batch, s.heads, s.seq, s.head}, from = {s.seq * s.heads * s.head, s.head, s.heads * s.head, 1};
    time_kernel(label(s, "copy, heads turned"),
                sc_copy_args{.y = described(BF16, turned), .a = described(BF16, turned, from)}, 2 * q);
    time_kernel(label(s, "copy, transposed"), sc_copy_args{.y = rows, .a = described(BF16, {n, s.dim}, {1, n})},
                2 * bytes);
    time_kernel(label(s, "copy of bytes, transposed"),
                sc_copy_args{.y = described(FP8_E4M3, {s.dim, n}), .a = described(FP8_E4M3, {s.dim, n}, {1, s.dim})},
                2.0 * (double)(n * s.dim));
    time_kernel(label(s, "dropout"), sc_dropout_args{.y = rows, .x = rows, .key = 1234, .p = 0.1}, 2 * bytes);
    updates_of(s);
}

/* What routers and samplers ask for. Indices are those of scatter(): many of a few. */
static void orders() {
    struct shape {
        const char *name;
        int64_t rows, n, k;
    };
    static const shape shapes[] = {
        {"router of 256", 32768, 256, 8}, {"vocabulary", 8, 152064, 50}, {"one row of 262144", 1, 262144, 1024}};
    for (const shape &s : shapes)
        for (int d : {FP32, BF16}) {
            sc_tensor x = described(d, {s.rows, s.n});
            double bytes = (double)(s.rows * s.n) * bytes_of_dtype(d);
            std::string what = std::string(s.name) + (d == FP32 ? " fp32 " : " bf16 ");
            time_kernel(what + "topk",
                        sc_topk_args{.values = described(d, {s.rows, s.k}),
                                     .indices = described(INT32, {s.rows, s.k}),
                                     .x = x,
                                     .k = s.k},
                        bytes);
            time_kernel(what + "sort",
                        sc_sort_args{.values = x,
                                     .indices = described(INT32, {s.rows, s.n}),
                                     .x = x,
                                     .work = work_of(sc_cuda_sort_bytes(s.rows, s.n))},
                        2 * bytes + (double)(s.rows * s.n) * 4);
        }
    int64_t tokens = 32768, experts = 256, k = 8;
    sc_tensor index = described(INT32, {tokens, k}), few = described(FP32, {tokens, k}),
              all = described(FP32, {tokens, experts}), turned = described(INT32, {experts, tokens});
    index_limit = experts;
    double picked = (double)(tokens * k) * 4, whole = (double)(tokens * experts) * 4;
    time_kernel("router of 256 gather", sc_gather_args{.y = few, .x = all, .index = index, .dim = 1}, 3 * picked);
    time_kernel("router of 256 scatter_add",
                sc_scatter_add_args{.y = all, .source = few, .index = index, .dim = 1, .size = experts},
                2 * picked + whole);
    sc_tensor row = described(INT32, {tokens * k});
    time_kernel("router of 256 bincount",
                sc_scatter_add_args{.y = described(INT32, {experts}),
                                    .source = row,
                                    .index = row,
                                    .work = work_of(sc_cuda_scatter_bytes(tokens * k, tokens * k)),
                                    .dim = 0,
                                    .size = experts},
                2 * picked);
    time_kernel("router of 256 cumsum over tokens",
                sc_scan_args{.y = turned, .x = turned, .work = work_of(sc_cuda_scan_bytes(experts, tokens))},
                2 * whole);
    sc_tensor longest = described(FP32, {1, 1 << 20});
    time_kernel("one row of 1048576 cumsum",
                sc_scan_args{.y = longest, .x = longest, .work = work_of(sc_cuda_scan_bytes(1, 1 << 20))}, 8 << 20);
    time_kernel("one row of 1048576 sort",
                sc_sort_args{.values = longest,
                             .indices = described(INT32, {1, 1 << 20}),
                             .x = longest,
                             .work = work_of(sc_cuda_sort_bytes(1, 1 << 20))},
                12 << 20);
}

int main(int argc, char **argv) {
    start(argc, argv);
    SC_CUDA(cudaDeviceGetAttribute(&library.multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    int64_t n = 512 << 20;
    time_kernel("copy of 1 GB", sc_copy_args{.y = described(BF16, {n}), .a = described(BF16, {n})}, 4.0 * (double)n);
    orders();
    const sizes models[] = {{"gpt2", 64, 1024, 768, 3072, 50304, 12, 12, 64, 124 << 20},
                            {"gpt2-xl", 32, 1024, 1600, 6400, 50304, 25, 25, 64, 124 << 20},
                            {"qwen", 32, 1024, 896, 4864, 151936, 14, 2, 64, 494 << 18},
                            {"llama", 1, 8192, 4096, 14336, 128256, 32, 8, 128, 218 << 20}};
    for (const sizes &s : models) {
        norms_of(s, s.batch * s.seq);
        tokens_of(s, s.batch * s.seq);
        narrow_of(s, s.batch * s.seq);
        blocks_of(s, s.batch * s.seq);
        others_of(s, s.batch * s.seq);
    }
    return 0;
}
