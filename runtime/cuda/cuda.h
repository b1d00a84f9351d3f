/* What every file of the CUDA target shares: the rank's library handles, and the checking of every return code.
 * Relies on: sc.h, the CUDA runtime's header.
 * Relied on by: runtime/cuda, kernels (.cu) and runtime (.c) alike; generated NAME_kernels.cu.
 *
 * A kernel sc_k_<op> is a host function: it launches on SC_STREAM(t), may be captured into a CUDA graph (so: no
 * allocation, no synchronisation, no copy from pageable memory), and looks at the task on the host only where that is
 * the same for every step. A tensor's p is a device pointer (host arena: a pinned pointer that the device can read
 * too); task->record is a DEVICE pointer: kernels read it on the device, never here. parts is 1. A workspace is as
 * large as the op's rule in compiler/ir/rules_work.c says for the CUDA target. */
#ifndef SC_CUDA_H
#define SC_CUDA_H

#include "../sc.h"
#include "../sc_kernels.h"
#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cublasLtContext;
struct cudnnContext;

typedef struct { /* one a rank; sc_task.library points to it */
    int rank, world, device;
    int major, minor, multiprocessors; /* compute capability */
    int l2_bytes, shared_bytes;        /* shared memory that a block may opt in to */
    bool deterministic;                /* false only where the model says `deterministic = false` */
    bool require_cudnn;                /* rather end than run attention that cuDNN computes on our own kernels */
    struct cublasLtContext *lt;        /* a cublasLtHandle_t */
    struct cudnnContext *cudnn;        /* a cudnnHandle_t; NULL until attention makes it, before the first capture */
    void *matmul, *attention;          /* what those kernels keep between calls (plans by shape), or NULL */
} sc_cuda;

/* Thread blocks of a reduction over ranks, which have as many multiprocessors. Measured on 4 H200
 * (tests/gpu/bench_collective): 12 sum at 416 GB/s where NCCL's own choice (7 to 10) reaches 367 and 16 reach 432, and
 * beside a matrix product they are as quick as 16 while the product loses 11 % instead of 13 %. */
enum { SC_SUM_BLOCKS = 12 };

/* Called once a rank before its first program is captured: kernels may create handles and plans in these, and nowhere
 * else. `free` takes them back at the end of the rank. */
void sc_matmul_start(sc_cuda *c);
void sc_matmul_stop(sc_cuda *c);
void sc_attention_start(sc_cuda *c);
void sc_attention_stop(sc_cuda *c);

/* GPUs that this process sees; 0: none that it could use, and `why` (of n bytes) is the reason and what to do: put
 * right what is missing, or `otherwise`. */
int sc_visible_gpus(const char *otherwise, char *why, size_t n);

static inline sc_cuda *sc_library(const sc_task *t) {
    return (sc_cuda *)t->library;
}
#define SC_STREAM(t) ((cudaStream_t)(t)->stream)

/* ── return codes: "shardc: rank 1: cudaX(...) failed in e131 matmul layers.3.mlp.up (gpt2.lua:18): out of memory
 *    [k_matmul.cu:88]; <remedy>", then exit 1 (exit 3 once training runs) ────────────────────────────────────────── */
#ifdef __cplusplus
#define SC_NORETURN [[noreturn]]
#else
#define SC_NORETURN _Noreturn
#endif
SC_NORETURN void sc_failed(const char *library, const char *call, const char *error, const char *text, const char *file,
                           int line);
/* A task that a kernel does not serve (dtype, layout): a defect, or a limit that deserves a clear sentence. */
SC_NORETURN void sc_unsupported(const sc_task *t, const char *kernel, const char *why);

#define SC_CUDA(call)                                                                                                  \
    do {                                                                                                               \
        cudaError_t e_ = (call);                                                                                       \
        if (e_ != cudaSuccess)                                                                                         \
            sc_failed("CUDA", #call, cudaGetErrorName(e_), cudaGetErrorString(e_), __FILE__, __LINE__);                \
    } while (0)
#define SC_LAUNCHED() SC_CUDA(cudaGetLastError()) /* after every <<<...>>> */
#define SC_LT(call)                               /* with <cublasLt.h> */                                              \
    do {                                                                                                               \
        cublasStatus_t e_ = (call);                                                                                    \
        if (e_ != CUBLAS_STATUS_SUCCESS)                                                                               \
            sc_failed("cuBLASLt", #call, cublasLtGetStatusName(e_), cublasLtGetStatusString(e_), __FILE__, __LINE__);  \
    } while (0)
#define SC_CUDNN(call) /* with <cudnn.h> */                                                                            \
    do {                                                                                                               \
        cudnnStatus_t e_ = (call);                                                                                     \
        char text_[256] = "";                                                                                          \
        if (e_ != CUDNN_STATUS_SUCCESS) {                                                                              \
            cudnnGetLastErrorString(text_, sizeof text_);                                                              \
            sc_failed("cuDNN", #call, cudnnGetErrorString(e_), text_, __FILE__, __LINE__);                             \
        }                                                                                                              \
    } while (0)
#define SC_NCCL(call) /* with <nccl.h> */                                                                              \
    do {                                                                                                               \
        ncclResult_t e_ = (call);                                                                                      \
        if (e_ != ncclSuccess)                                                                                         \
            sc_failed("NCCL", #call, ncclGetErrorString(e_), ncclGetLastError(NULL), __FILE__, __LINE__);              \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
