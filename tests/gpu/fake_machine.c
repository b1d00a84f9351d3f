/* The machine that fake_cuda.c runs on: GPUs, driver, libraries and their faults, as variables of the environment say.
 * Relies on: CUDA's header, library.h. Relied on by: tests/program/test_cuda_host.py.
 *
 * SC_FAKE_GPUS       how many are visible (8)            SC_FAKE_DRIVER  CUDA version of the driver (13000); 0: none
 * SC_FAKE_COUNT      error of looking for them           SC_FAKE_CONTEXT error of making a context (fake_cuda.c)
 * SC_FAKE_ARCH       90, 80, ...                         SC_FAKE_FREE    bytes of device memory
 * SC_FAKE_MISSING    a library that is not there         SC_FAKE_NCCL, SC_FAKE_CUDNN  their versions
 * SC_FAKE_OTHER      the rank, in a process of its own, that goes by SC_FAKE_OTHER_MISSING instead of SC_FAKE_MISSING
 * SC_FAKE_CONTEXT_HANGS  the GPU whose driver does not answer
 * SC_FAKE_NVML       bytes that the process has come to hold; SC_FAKE_NVML_PID: NVML knows the process by its number */
#include "../../runtime/cuda/library.h"
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int64_t said(const char *name, int64_t otherwise) {
    return getenv(name) ? strtoll(getenv(name), NULL, 10) : otherwise;
}

/* ── GPUs ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
cudaError_t cudaGetDeviceCount(int *n) {
    *n = (int)said("SC_FAKE_GPUS", 8);
    if (said("SC_FAKE_COUNT", 0)) return (cudaError_t)said("SC_FAKE_COUNT", 0);
    return *n ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaDriverGetVersion(int *v) {
    *v = (int)said("SC_FAKE_DRIVER", 13000);
    return cudaSuccess;
}
int fake_device;
cudaError_t cudaSetDevice(int d) {
    fake_device = d;
    if (d == said("SC_FAKE_CONTEXT_HANGS", -1)) pause();
    return d < said("SC_FAKE_GPUS", 8) ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    int arch = (int)said("SC_FAKE_ARCH", 90);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "Fake %d", device);
    p->major = arch / 10;
    p->minor = arch % 10;
    p->multiProcessorCount = 132;
    p->sharedMemPerBlockOptin = 227 << 10;
    p->l2CacheSize = 50 << 20;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *out, int n, int device) {
    snprintf(out, (size_t)n, "0000:%02x:00.0", 16 + device);
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    *total = (size_t)1 << 40;
    *free_bytes = (size_t)said("SC_FAKE_FREE", (int64_t)1 << 39);
    return cudaSuccess;
}
const char *cudaGetErrorName(cudaError_t e) {
    static char name[32];
    snprintf(name, sizeof name, "cudaError%d", e);
    return name;
}
const char *cudaGetErrorString(cudaError_t e) {
    return cudaGetErrorName(e);
}

/* ── libraries: linked in, unless SC_FAKE_MISSING names the file ─────────────────────────────────────────────────────
 */
void *__real_dlopen(const char *file, int flags);
void *__wrap_dlopen(const char *file, int flags) {
    const char *missing =
        getenv(said("SC_FAKE_OTHER", -1) == said("RANK", -2) ? "SC_FAKE_OTHER_MISSING" : "SC_FAKE_MISSING");
    if ((missing && strstr(file, missing)) || (strstr(file, "nvidia-ml") && !getenv("SC_FAKE_NVML"))) return NULL;
    return __real_dlopen(NULL, flags);
}
int sc_forward_version(sc_cuda_library l, void *handle) {
    (void)handle;
    return l == SC_LIB_NCCL    ? (int)said("SC_FAKE_NCCL", 22809)
           : l == SC_LIB_CUDNN ? (int)said("SC_FAKE_CUDNN", 91900)
                               : 990000;
}
const char *sc_forward_bind(sc_cuda_library l, void *handle) {
    (void)l, (void)handle;
    return NULL;
}

struct cublasLtContext;
typedef int cublasStatus_t;
cublasStatus_t cublasLtCreate(struct cublasLtContext **h) {
    *h = NULL;
    return 0;
}
cublasStatus_t cublasLtDestroy(struct cublasLtContext *h) {
    (void)h;
    return 0;
}
const char *cublasLtGetStatusName(cublasStatus_t s) {
    (void)s;
    return "";
}
const char *cublasLtGetStatusString(cublasStatus_t s) {
    (void)s;
    return "";
}

/* ── NVML ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
int nvmlInit_v2(void) {
    return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) {
    *device = (void *)bus;
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long m[3]) {
    static int asked;
    (void)device;
    m[2] = 1000 + (unsigned long long)(asked++ ? said("SC_FAKE_NVML", 0) : 0);
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, void *list) {
    struct {
        unsigned pid;
        unsigned long long used;
    } *p = list;
    (void)device;
    *n = 1;
    p->pid = said("SC_FAKE_NVML_PID", 0) ? (unsigned)getpid() : 1;
    p->used = (unsigned long long)said("SC_FAKE_NVML", 0) + 1;
    return 0;
}
