/* NCCL's ways to gather, to sum and to exchange pieces that a kernel then adds, timed alone and beside a matrix
 * product: which one the runtime should take, and with how many thread blocks. One process a GPU; a configuration each
 * line. Relies on: NCCL, cuBLAS. Relied on by: people with GPUs (runtime/cuda/comm.c has what came of it).
 *
 *   bench_collective [WORLD [LINE]]      columns: GB/s of the whole buffer (not per link), as in nccl-tests' "algbw";
 *                                        an exchange is of bf16, half the bytes of the sum in fp32 beside it */
#include <cstdio>
#include <cstdlib>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <nccl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        auto e_ = (call);                                                                                              \
        if ((int)e_) {                                                                                                 \
            fprintf(stderr, "%s: error %d at line %d\n", #call, (int)e_, __LINE__);                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

struct shared {
    ncclUniqueId id;
    int at[16];
};
static shared *common;
static int world = 4, rank, only = -1;

static void meet() {
    int n = __atomic_add_fetch(&common->at[rank], 1, __ATOMIC_SEQ_CST);
    for (int k = 0; k < world; k++)
        while (__atomic_load_n(&common->at[k], __ATOMIC_SEQ_CST) < n) sched_yield();
}

enum kind { GATHER, SUM, EXCHANGE, KINDS };
enum { G = 1 << GATHER, S = 1 << SUM, X = 1 << EXCHANGE };
static const double megabytes[KINDS][3] = {{8, 64, 436}, {16, 128, 872}, {8, 64, 436}};
static const char *const titles[KINDS] = {"| gather", "| sum", "| exchange"};

struct config {
    const char *name;
    bool window;
    int kinds, policy, blocks; /* blocks: 0, NCCL's choice */
};
static const config configs[] = {
    {"plain", false, G | S | X, NCCL_CTA_POLICY_DEFAULT, 0},
    {"plain, 16", false, G | S, NCCL_CTA_POLICY_DEFAULT, 16},
    {"window", true, G | S | X, NCCL_CTA_POLICY_DEFAULT, 0},
    {"window, copy", true, G | S, NCCL_CTA_POLICY_ZERO, 0},
    {"window, copy, 2", true, G | S | X, NCCL_CTA_POLICY_ZERO, 2},
    {"window, 4", true, S, NCCL_CTA_POLICY_DEFAULT, 4},
    {"window, 8", true, S, NCCL_CTA_POLICY_DEFAULT, 8},
    {"window, 12", true, S, NCCL_CTA_POLICY_DEFAULT, 12},
    {"window, 16", true, G | S, NCCL_CTA_POLICY_DEFAULT, 16},
    {"window, 20", true, S, NCCL_CTA_POLICY_DEFAULT, 20},
    {"window, 24", true, S, NCCL_CTA_POLICY_DEFAULT, 24},
    {"window, 32", true, S, NCCL_CTA_POLICY_DEFAULT, 32},
};

static const size_t M = 8192, N = 14336, K = 4096, ROOM = 3ull << 30;
static char *arena;
static void *a, *b, *c;
static cublasHandle_t blas;
static cudaStream_t compute, talk;
static cudaEvent_t begin[2], end[2];

static void gemm() {
    float one = 1, zero = 0;
    OK(cublasGemmEx(blas, CUBLAS_OP_T, CUBLAS_OP_N, N, M, K, &one, b, CUDA_R_16BF, K, a, CUDA_R_16BF, K, &zero, c,
                    CUDA_R_16BF, N, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

/* The pieces of all ranks, one after another, added in fp32 in the order of the ranks; 8 elements a thread. */
__global__ void add_pieces(float *out, const uint4 *in, size_t n, int ranks) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n / 8; i += (size_t)gridDim.x * blockDim.x) {
        float sum[8] = {};
        for (int k = 0; k < ranks; k++) {
            uint4 v = in[k * (n / 8) + i];
            const __nv_bfloat16 *x = (const __nv_bfloat16 *)&v;
            for (int e = 0; e < 8; e++) sum[e] += __bfloat162float(x[e]);
        }
        ((float4 *)out)[2 * i] = make_float4(sum[0], sum[1], sum[2], sum[3]);
        ((float4 *)out)[2 * i + 1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
    }
}

static void collective(ncclComm_t comm, kind what, double mb) {
    size_t n = (size_t)(mb * 1e6) / (what == SUM ? 4 : 2) / world / 256 * 256;
    char *in = arena + (2ull << 30);
    if (what == GATHER) OK(ncclAllGather(in, arena, n, ncclBfloat16, comm, talk));
    if (what == SUM) OK(ncclReduceScatter(arena, in, n, ncclFloat, ncclSum, comm, talk));
    if (what != EXCHANGE) return;
    OK(ncclAlltoAll(in, arena, n, ncclBfloat16, comm, talk));
    add_pieces<<<264, 256, 0, talk>>>((float *)(arena + (1ull << 30)), (const uint4 *)arena, n, world);
    OK(cudaGetLastError());
}

static double used() {
    size_t f, t;
    OK(cudaMemGetInfo(&f, &t));
    return (double)(t - f) / 1048576;
}

/* Milliseconds of one collective, one product; either is left out where its count is 0. */
static void timed(ncclComm_t comm, kind what, double mb, int talks, int products, float *talked, float *computed) {
    meet();
    OK(cudaDeviceSynchronize());
    OK(cudaEventRecord(begin[0], talk));
    OK(cudaEventRecord(begin[1], compute));
    for (int i = 0; i < talks || i < products; i++) {
        if (i < products) gemm();
        if (i < talks) collective(comm, what, mb);
    }
    OK(cudaEventRecord(end[0], talk));
    OK(cudaEventRecord(end[1], compute));
    OK(cudaDeviceSynchronize());
    OK(cudaEventElapsedTime(talked, begin[0], end[0]));
    OK(cudaEventElapsedTime(computed, begin[1], end[1]));
    if (talks) *talked /= talks;
    if (products) *computed /= products;
}

static float in_graph(ncclComm_t comm, kind what, double mb, int talks) {
    cudaGraph_t g;
    cudaGraphExec_t x;
    float ms = 0;
    OK(cudaStreamBeginCapture(talk, cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < talks; i++) collective(comm, what, mb);
    OK(cudaStreamEndCapture(talk, &g));
    OK(cudaGraphInstantiate(&x, g, 0));
    for (int i = 0; i < 2; i++) {
        meet();
        OK(cudaEventRecord(begin[0], talk));
        OK(cudaGraphLaunch(x, talk));
        OK(cudaEventRecord(end[0], talk));
        OK(cudaDeviceSynchronize());
        OK(cudaEventElapsedTime(&ms, begin[0], end[0]));
    }
    OK(cudaGraphExecDestroy(x));
    OK(cudaGraphDestroy(g));
    return ms / talks;
}

static void line(const config *f, ncclComm_t parent) {
    ncclComm_t comm;
    ncclWindow_t w = NULL;
    float talked, computed, alone, quiet;
    double before = used(), ready, most;
    ncclConfig_t g = NCCL_CONFIG_INITIALIZER;
    g.blocking = 1;
    g.CTAPolicy = f->policy;
    if (f->blocks) g.minCTAs = g.maxCTAs = f->blocks;
    OK(ncclCommSplit(parent, 0, rank, &comm, &g));
    if (f->window) OK(ncclCommWindowRegister(comm, arena, ROOM, &w, NCCL_WIN_COLL_SYMMETRIC));
    ready = used() - before;
    if (!rank) printf("%-18s", f->name);
    for (int k = 0; k < KINDS; k++) {
        kind what = (kind)k;
        if (!(f->kinds >> k & 1)) continue;
        if (!rank) printf("%s", titles[k]);
        for (int i = 0; i < 3; i++) {
            int n = i < 2 ? 20 : 8;
            double mb = megabytes[k][i];
            for (int again = 0; again < 2; again++) timed(comm, what, mb, n, 0, &talked, &computed);
            float graph = in_graph(comm, what, mb, n);
            if (!rank) printf(" %3.0f/%3.0f", mb / talked, mb / graph);
        }
        timed(comm, what, megabytes[k][2], 0, 12, &talked, &alone);
        timed(comm, what, megabytes[k][2], 12, 0, &quiet, &computed);
        int talks = (int)(alone * 12 / quiet) + 1; /* about as long as the products */
        timed(comm, what, megabytes[k][2], talks, 12, &talked, &computed);
        if (!rank)
            printf(" beside: product %+3.0f%%, itself %+3.0f%% ", 100 * (computed / alone - 1),
                   100 * (talked / quiet - 1));
    }
    most = used() - before;
    if (!rank) printf("| %.0f, then %.0f MiB\n", ready, most), fflush(stdout);
    if (w) OK(ncclCommWindowDeregister(comm, w));
    OK(ncclCommDestroy(comm));
}

static int run() {
    ncclComm_t parent;
    int least, greatest;
    OK(cudaSetDevice(rank));
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    OK(cudaStreamCreateWithPriority(&compute, cudaStreamNonBlocking, least));
    OK(cudaStreamCreateWithPriority(&talk, cudaStreamNonBlocking, greatest));
    for (int i = 0; i < 2; i++) {
        OK(cudaEventCreate(&begin[i]));
        OK(cudaEventCreate(&end[i]));
    }
    OK(cublasCreate(&blas));
    OK(cublasSetStream(blas, compute));
    OK(cudaMalloc(&a, M * K * 2));
    OK(cudaMalloc(&b, N * K * 2));
    OK(cudaMalloc(&c, M * N * 2));
    OK(cudaMemset(a, 0x3c, M * K * 2));
    OK(cudaMemset(b, 0x3c, N * K * 2));
    OK(ncclMemAlloc((void **)&arena, ROOM));
    OK(cudaMemset(arena, 0, ROOM));
    for (int i = 0; i < 3; i++) gemm();
    OK(cudaDeviceSynchronize());
    double before = used();
    if (!rank) OK(ncclGetUniqueId(&common->id));
    meet();
    OK(ncclCommInitRank(&parent, world, common->id, rank));
    if (!rank) printf("world %d; a first communicator takes %.0f MiB\n", world, used() - before);
    for (const config &f : configs)
        if (only < 0 || only == &f - configs) line(&f, parent);
    OK(ncclCommDestroy(parent));
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) world = atoi(argv[1]);
    if (argc > 2) only = atoi(argv[2]);
    common = (shared *)mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    int status, bad = 0;
    for (rank = 0; rank < world; rank++)
        if (!fork()) exit(run());
    for (int k = 0; k < world; k++) {
        wait(&status);
        bad |= status;
    }
    return bad != 0;
}
