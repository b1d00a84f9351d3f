/* Device profiles: what a device can do, read from devices/<name>.lua.
 * Relies on: base, the Lua sandbox (a profile is a Lua table).
 * Relied on by: passes (simulate, order), reports, plan. */
#ifndef SHARDC_DEVICE_H
#define SHARDC_DEVICE_H

#include "../ir/plan.h"

typedef struct {
    const char *name, *target; /* "h200"; "cpu" or "cuda" */
    const char *arch;          /* CUDA: "sm_90"; NULL: not known */
    const char *source;        /* "data sheet" or "measured 2026-11-20, ..." */
    double memory_bytes;       /* physical */
    double usable_bytes;       /* for one process: physical minus what the driver keeps */
    double flops[N_DTYPES];    /* peak matrix throughput by operand dtype, FLOP/s */
    double matmul_efficiency;  /* share of it that large products reach */
    double memory_bandwidth;   /* B/s */
    double link_bandwidth;     /* B/s a rank inside a node, one way */
    double network_bandwidth;  /* B/s a rank between nodes */
    double link_latency_us, network_latency_us;
    double host_bandwidth;           /* B/s device to host, each way */
    double host_optimizer_bandwidth; /* B/s of the host optimizer over its state */
    double launch_us;                /* least time of one event */
    int ranks_per_node;
    int threads;            /* CPU target: threads a rank; sizes workspaces */
    LibraryLine library[8]; /* outside the arena: context, libraries, communicators */
    int nlibrary;
} Device;

const Device *device_load(Arena *a, const char *name); /* fails naming the profiles there are */
double event_duration_us(const Device *d, const Event *e, int world, int group); /* roofline: flops, bytes, launch */
int event_group(const Plan *p, const Event *e); /* ranks that take part in a collective */

#endif
