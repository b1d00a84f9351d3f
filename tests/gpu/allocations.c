/* Every call by which a training program takes device or pinned memory, as lines `PHASE CALL BYTES` in
 * $SC_ALLOCATIONS.PID: phase `start` until a rank's main thread takes the name "sc training", `run` until "sc trained",
 * then `end`. Loaded twice, by LD_PRELOAD for the names and by CUDA_INJECTION64_PATH for the calls: the CUDA runtime
 * takes the driver's functions by cuGetProcAddress, where no preloaded library comes between. Relies on: CUPTI, glibc.
 * Relied on by: run.py. */
#define _GNU_SOURCE
#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *out;
static const char *volatile phase = "start";

int pthread_setname_np(pthread_t t, const char *name) {
    int (*real)(pthread_t, const char *) = (int (*)(pthread_t, const char *))dlsym(RTLD_NEXT, "pthread_setname_np");
    if (!strcmp(name, "sc training")) phase = "run";
    if (!strcmp(name, "sc trained")) phase = "end";
    if (out && !strncmp(name, "sc train", 8)) fprintf(out, "%s phase 0\n", phase);
    return real(t, name);
}

static unsigned long long bytes_of(CUpti_CallbackId id, const void *p) {
    switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2: return ((const cuMemAlloc_v2_params *)p)->bytesize;
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocManaged: return ((const cuMemAllocManaged_params *)p)->bytesize;
    case CUPTI_DRIVER_TRACE_CBID_cuMemCreate: return ((const cuMemCreate_params *)p)->size;
    case CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc: return ((const cuMemHostAlloc_params *)p)->bytesize;
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocHost_v2: return ((const cuMemAllocHost_v2_params *)p)->bytesize;
    case CUPTI_DRIVER_TRACE_CBID_cuMemHostRegister_v2: return ((const cuMemHostRegister_v2_params *)p)->bytesize;
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync: return ((const cuMemAllocAsync_params *)p)->bytesize;
    case CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync_ptsz: return ((const cuMemAllocAsync_ptsz_params *)p)->bytesize;
    default: return 0;
    }
}

static bool takes_memory(const char *call) {
    static const char *const calls[] = {
        "cuMemAlloc",    "cuMemCreate",     "cuMemHostAlloc",        "cuMemHostRegister",
        "cuArrayCreate", "cuArray3DCreate", "cuMipmappedArrayCreate"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!strncmp(call, calls[i], strlen(calls[i]))) return true;
    return false;
}

static void CUPTIAPI on_call(void *unused, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
    const CUpti_CallbackData *d = data;
    if (d->callbackSite != CUPTI_API_EXIT || !out || !takes_memory(d->functionName)) return;
    if (d->functionReturnValue && *(const CUresult *)d->functionReturnValue != CUDA_SUCCESS) return;
    fprintf(out, "%s %s %llu\n", phase, d->functionName, bytes_of(id, d->functionParams));
}

static void finish(void) {
    if (out) fclose(out);
    out = NULL;
}

int InitializeInjection(void);
int InitializeInjection(void) {
    const char *prefix = getenv("SC_ALLOCATIONS");
    CUpti_SubscriberHandle who;
    char path[4096];
    if (!prefix || out) return 1;
    snprintf(path, sizeof path, "%s.%d", prefix, (int)getpid());
    out = fopen(path, "w");
    if (!out || cuptiSubscribe(&who, on_call, NULL) != CUPTI_SUCCESS ||
        cuptiEnableDomain(1, who, CUPTI_CB_DOMAIN_DRIVER_API) != CUPTI_SUCCESS)
        fprintf(stderr, "allocations: cannot watch this process\n");
    atexit(finish);
    return 1;
}
