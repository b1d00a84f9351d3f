/* Every kernel, copy and fill that a process runs on its GPUs, as tab-separated lines in $SC_CUPTI.PID: CUDA loads this
 * library into the process where CUDA_INJECTION64_PATH names it. Kernels inside CUDA graphs are told by node; where it
 * is preloaded too (LD_PRELOAD), the runtime says which event it captures, and a line `node` names that event for each
 * node. Relies on: CUPTI 13, runtime/sc.h. Relied on by: bench/gpu.py, side profile. */
#define _GNU_SOURCE
#include "../runtime/sc.h"
#include <cupti.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER = 8 << 20 };
static FILE *out;

/* ── which event a graph's node is of: how many nodes there were when its capture began, and the nodes in order ──────
 */
static const char *program = "?";
static CUresult (*capture_info)(CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *, const CUgraphNode **,
                                const CUgraphEdgeData **, size_t *);
static CUresult (*get_nodes)(CUgraph, CUgraphNode *, size_t *);

void sc_tracer_event(const char *p, const sc_event_info *e, CUstream s);
void sc_tracer_event(const char *p, const sc_event_info *e, CUstream s) {
    CUstreamCaptureStatus status;
    CUgraph graph;
    size_t nodes = 0;
    if (!capture_info) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        if (!driver) return;
        *(void **)&get_nodes = dlsym(driver, "cuGraphGetNodes");
        *(void **)&capture_info = dlsym(driver, "cuStreamGetCaptureInfo_v3");
    }
    program = p;
    if (!out || !capture_info || !get_nodes) return;
    if (capture_info(s, &status, NULL, &graph, NULL, NULL, NULL) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return;
    if (get_nodes(graph, NULL, &nodes) != CUDA_SUCCESS) return;
    fprintf(out, "event\t%zu\t%s\t%s\t%s\t%s\t%s\t%d\n", nodes, p, e->id, e->op, e->phase, e->module, e->line);
}

static void CUPTIAPI on_node(void *unused, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
    const CUpti_GraphData *g =
        domain == CUPTI_CB_DOMAIN_RESOURCE ? ((const CUpti_ResourceData *)data)->resourceDescriptor : NULL;
    uint64_t node;
    uint32_t graph;
    if (!g || !out || cuptiGetGraphNodeId(g->node, &node) != CUPTI_SUCCESS ||
        cuptiGetGraphId(g->graph, &graph) != CUPTI_SUCCESS)
        return;
    fprintf(out, "%s\t%u\t%llu\t%s\n", id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED ? "node" : "clone", graph,
            (unsigned long long)node, program);
}

/* ── what ran ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void CUPTIAPI give(uint8_t **buffer, size_t *size, size_t *records) {
    *buffer = aligned_alloc(8, BUFFER);
    *size = *buffer ? BUFFER : 0;
    *records = 0;
}

/* kind, start and end in ns, device, stream, graph, node, correlation, grid, block, registers, shared bytes, name */
static void kernel(const CUpti_ActivityKernel10 *k) {
    fprintf(out, "kernel\t%llu\t%llu\t%u\t%u\t%u\t%llu\t%u\t%dx%dx%d\t%dx%dx%d\t%u\t%d\t%s\n",
            (unsigned long long)k->start, (unsigned long long)k->end, k->deviceId, k->streamId, k->graphId,
            (unsigned long long)k->graphNodeId, k->correlationId, k->gridX, k->gridY, k->gridZ, k->blockX, k->blockY,
            k->blockZ, k->registersPerThread, k->staticSharedMemory + k->dynamicSharedMemory, k->name ? k->name : "?");
}

static void copied(const CUpti_ActivityMemcpy6 *m) {
    static const char *const kinds[] = {"?",    "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                        "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"};
    fprintf(out, "copy\t%llu\t%llu\t%u\t%u\t%u\t%llu\t%u\t%llu\t\t\t\tmemcpy %s\n", (unsigned long long)m->start,
            (unsigned long long)m->end, m->deviceId, m->streamId, m->graphId, (unsigned long long)m->graphNodeId,
            m->correlationId, (unsigned long long)m->bytes, m->copyKind < 11 ? kinds[m->copyKind] : "?");
}

static void filled(const CUpti_ActivityMemset4 *m) {
    fprintf(out, "fill\t%llu\t%llu\t%u\t%u\t%u\t%llu\t%u\t%llu\t\t\t\tmemset\n", (unsigned long long)m->start,
            (unsigned long long)m->end, m->deviceId, m->streamId, m->graphId, (unsigned long long)m->graphNodeId,
            m->correlationId, (unsigned long long)m->bytes);
}

static void CUPTIAPI take(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    CUpti_Activity *a = NULL;
    while (out && valid && cuptiActivityGetNextRecord(buffer, valid, &a) == CUPTI_SUCCESS) {
        if (a->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) kernel((const CUpti_ActivityKernel10 *)a);
        if (a->kind == CUPTI_ACTIVITY_KIND_MEMCPY) copied((const CUpti_ActivityMemcpy6 *)a);
        if (a->kind == CUPTI_ACTIVITY_KIND_MEMSET) filled((const CUpti_ActivityMemset4 *)a);
    }
    size_t lost = 0;
    if (out && cuptiActivityGetNumDroppedRecords(context, stream, &lost) == CUPTI_SUCCESS && lost)
        fprintf(out, "lost\t%zu\n", lost);
    free(buffer);
}

static void finish(void) {
    cuptiActivityFlushAll(1);
    if (out) fclose(out);
    out = NULL;
}

static void wanted(CUptiResult rc, const char *call) {
    const char *text = "?";
    if (rc == CUPTI_SUCCESS) return;
    cuptiGetResultString(rc, &text);
    fprintf(stderr, "cupti_trace: %s: %s; nothing is recorded\n", call, text);
}

static void listen(void) {
    CUpti_SubscriberHandle who;
    wanted(cuptiSubscribe(&who, on_node, NULL), "cuptiSubscribe");
    wanted(cuptiEnableCallback(1, who, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED), "nodes");
    wanted(cuptiEnableCallback(1, who, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED), "clones");
}

int InitializeInjection(void);
int InitializeInjection(void) {
    const char *prefix = getenv("SC_CUPTI");
    char path[4096];
    if (!prefix || out) return 1;
    snprintf(path, sizeof path, "%s.%d", prefix, (int)getpid());
    if (!(out = fopen(path, "w"))) {
        fprintf(stderr, "cupti_trace: cannot write %s\n", path);
        return 1;
    }
    wanted(cuptiActivityRegisterCallbacks(give, take), "cuptiActivityRegisterCallbacks");
    wanted(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "kernels");
    wanted(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY), "copies");
    wanted(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET), "fills");
    listen();
    atexit(finish);
    return 1;
}
