/* The device memory that a rank's process holds, as the driver counts it: arena, context, code, libraries. NVML lists
 * processes by the machine's numbers; where ours is another (in a container), it is what has come since the start.
 * Relies on: rank.h, library.h (NVML is optional). Relied on by: device.c, runtime/host (sc_device_used). */
#include "library.h"
#include "rank.h"

/* NVML's own header is not a part of every CUDA installation. */
typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned instance, compute_instance;
} process;
typedef struct {
    unsigned long long total, free, used;
} memory;
int nvmlInit_v2(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device);
int nvmlDeviceGetMemoryInfo(void *device, memory *m);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, process *p);

enum { MOST = 256 };

static int64_t used_by_all(const sc_rank *r) {
    memory m;
    return r->t->nvml && !nvmlDeviceGetMemoryInfo(r->t->nvml, &m) ? (int64_t)m.used : -1;
}

void sc_footprint_start(sc_rank *r) {
    void *device;
    if (sc_library_open(SC_LIB_NVML) || nvmlInit_v2()) return;
    if (!nvmlDeviceGetHandleByPciBusId_v2(r->w->common->room[r->rank].bus, &device)) r->t->nvml = device;
    r->t->used_before = used_by_all(r);
}

int64_t sc_device_used(const sc_rank *r) {
    process p[MOST];
    unsigned n = MOST;
    int64_t now = used_by_all(r);
    if (now < 0 || r->t->used_before < 0) return -1;
    if (!nvmlDeviceGetComputeRunningProcesses_v3(r->t->nvml, &n, p))
        for (unsigned i = 0; i < n; i++)
            if (p[i].pid == (unsigned)getpid() && (int64_t)p[i].used > 0) return (int64_t)p[i].used;
    return sc_sharers(r, r->rank, r->world) > 1 ? -1 : now - r->t->used_before;
}
