/* CUDA's and NCCL's host side without a GPU: streams, events, graphs and collectives on plain memory. Work is queued
 * and runs when somebody waits for it, in a random order that streams and events permit (SC_FAKE_SEED), so a missing
 * wait shows as other bits. Kernels are the CPU target's: a step's text compiled with -Dsc_run=fake_run launches them
 * here. Relies on: runtime/common (flags), schema/math.h, the CPU kernels; CUDA's and NCCL's headers. Relied on by:
 * tests/program/test_cuda_host.py, which links it with fake_machine.c and runtime/cuda/{rank,stream,...}.c. */
#include "../../runtime/common/flag.h"
#include "../../runtime/cuda/rank.h"
#include "../../runtime/schema/math.h"
#include <cuda.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

extern int fake_device; /* fake_machine.c: the one that was set */

struct cublasLtContext {
    int unused;
};
typedef int cublasStatus_t;

/* ── work: a function on a copy of its arguments, after other work ───────────────────────────────────────────────────
 */
typedef struct node node;
struct node {
    void (*run)(void *arg);
    void *arg;
    node **after, *twin; /* twin: of a graph's node, its copy in the launch under way */
    int nafter;
    bool done;
};
typedef struct {
    node **at;
    int n, cap;
} list;

struct CUgraph_st {
    list nodes;
    cudaStream_t origin;
};
struct CUgraphExec_st {
    list nodes;
};
struct CUstream_st {
    node *last;        /* queued last */
    cudaGraph_t graph; /* being captured into */
    node *captured;    /* there: last */
};
struct CUevent_st {
    node *at;
    cudaGraph_t graph;
    int64_t ns;
};

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static list queue;
static cudaStream_t streams[64];
static int nstreams, capturing;
static bool inside; /* a piece of work runs: what it launches is a part of it */
static uint64_t dice;

static void add(list *l, node *x) {
    if (l->n == l->cap) l->at = realloc(l->at, sizeof *l->at * (size_t)(l->cap = l->cap ? 2 * l->cap : 64));
    l->at[l->n++] = x;
}

static node *new_node(void (*run)(void *), const void *arg, size_t n) {
    node *x = calloc(1, sizeof *x);
    x->run = run;
    if (n) x->arg = memcpy(malloc(n), arg, n);
    return x;
}

static void depend(node *x, node *on) {
    if (!on) return;
    x->after = realloc(x->after, sizeof *x->after * (size_t)(x->nafter + 1));
    x->after[x->nafter++] = on;
}

/* Appends to a stream, or to the graph that it is captured into. */
static node *append(cudaStream_t s, node *x) {
    node **last = s->graph ? &s->captured : &s->last;
    depend(x, *last);
    add(s->graph ? &s->graph->nodes : &queue, x);
    return *last = x;
}

static cudaError_t launch(cudaStream_t s, void (*run)(void *), const void *arg, size_t n) {
    pthread_mutex_lock(&lock);
    if (inside)
        run((void *)arg);
    else
        append(s, new_node(run, arg, n));
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

static bool ready(const node *x) {
    for (int i = 0; i < x->nafter; i++)
        if (!x->after[i]->done) return false;
    return true;
}

static uint64_t roll(void) {
    if (!dice) dice = (getenv("SC_FAKE_SEED") ? strtoull(getenv("SC_FAKE_SEED"), NULL, 10) : 0) * 2 + 1;
    dice ^= dice << 13, dice ^= dice >> 7;
    return dice ^= dice << 17;
}

/* What the driver's cuStreamWriteValue64 does. */
typedef struct {
    uint64_t *at, value;
} word;

static void run_word(void *arg) {
    const word *w = arg;
    *(volatile uint64_t *)w->at = w->value;
}

/* One piece of work that may run now, of all that may: ranks draw the same numbers, so collectives meet. */
static void run_one(void) { /* or nothing is left */
    int n = 0, kept = 0, pick = -1;
    for (int i = 0; i < queue.n; i++) { /* finished work leaves the queue */
        if (!queue.at[i]->done) queue.at[kept++] = queue.at[i];
    }
    queue.n = kept;
    if (!kept) return;
    for (int i = 0; i < queue.n; i++)
        if (ready(queue.at[i])) n++;
    if (!n) {
        fprintf(stderr, "fake CUDA: %d pieces of work wait for each other\n", queue.n);
        abort();
    }
    int at = (int)(roll() % (uint64_t)n);
    for (int i = 0; i < queue.n && at >= 0; i++)
        if (ready(queue.at[i]) && at-- == 0) pick = i;
    node *x = queue.at[pick];
    inside = true;
    if (x->run) x->run(x->arg);
    inside = false;
    x->done = true;
}

static cudaError_t drain(node *until) {
    if (capturing) return cudaErrorStreamCaptureUnsupported;
    pthread_mutex_lock(&lock);
    while (until ? !until->done : queue.n > 0) run_one();
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

/* ── streams, events, graphs ─────────────────────────────────────────────────────────────────────────────────────────
 */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority) {
    (void)flags, (void)priority;
    if (capturing) return cudaErrorStreamCaptureUnsupported;
    *s = calloc(1, sizeof **s);
    streams[nstreams++] = *s;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
    return cudaStreamCreateWithPriority(s, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    (void)s;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    return s->last ? drain(s->last) : capturing ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
    return drain(NULL);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
    (void)flags;
    if (capturing) return cudaErrorStreamCaptureUnsupported;
    *e = calloc(1, sizeof **e);
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e) {
    return cudaEventCreateWithFlags(e, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    free(e);
    return cudaSuccess;
}
static void take_time(void *arg) {
    (*(cudaEvent_t *)arg)->ns = sc_now_ns();
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    launch(s, take_time, &e, sizeof e);
    e->at = s->graph ? s->captured : s->last;
    e->graph = s->graph;
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
    if (!a->at || !b->at || !a->at->done || !b->at->done) return cudaErrorNotReady;
    *ms = (float)((double)(b->ns - a->ns) / 1e6);
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
    (void)flags;
    if (e->graph && !s->graph) { /* the stream is drawn into the capture */
        s->graph = e->graph;
        s->captured = NULL;
    }
    if (s->graph != e->graph && e->at) return cudaErrorStreamCaptureIsolation;
    pthread_mutex_lock(&lock);
    depend(append(s, new_node(NULL, NULL, 0)), e->at);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode) {
    (void)mode;
    s->graph = calloc(1, sizeof *s->graph);
    s->graph->origin = s;
    s->captured = NULL;
    capturing++;
    return cudaSuccess;
}

static void reach(node *x) {
    if (!x || x->twin == x) return;
    x->twin = x;
    for (int i = 0; i < x->nafter; i++) reach(x->after[i]);
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph) {
    cudaGraph_t g = *graph = s->graph;
    if (!g || g->origin != s) return cudaErrorStreamCaptureUnmatched;
    reach(s->captured);
    for (int i = 0; i < g->nodes.n; i++)
        if (!g->nodes.at[i]->twin) return cudaErrorStreamCaptureUnjoined;
    for (int i = 0; i < nstreams; i++)
        if (streams[i]->graph == g) streams[i]->graph = NULL;
    capturing--;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t g, unsigned long long flags) {
    (void)flags;
    *exec = calloc(1, sizeof **exec);
    (*exec)->nodes = g->nodes;
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) {
    free(g);
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) {
    free(e);
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t e, cudaStream_t s) {
    (void)e, (void)s;
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) {
    node *before = s->last, *end = new_node(NULL, NULL, 0);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < e->nodes.n; i++) {
        node *x = e->nodes.at[i], *y = x->twin = new_node(x->run, NULL, 0);
        y->arg = x->arg;
        depend(y, before);
        for (int k = 0; k < x->nafter; k++) depend(y, x->after[k]->twin);
        add(&queue, y);
        depend(end, y);
    }
    append(s, end);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

/* ── memory ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    void *to;
    const void *from;
    int value;
    size_t n;
} move;

static void run_copy(void *arg) {
    const move *m = arg;
    memcpy(m->to, m->from, m->n);
}
static void run_set(void *arg) {
    const move *m = arg;
    memset(m->to, m->value, m->n);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind, cudaStream_t s) {
    (void)kind;
    return launch(s, run_copy, &(move){to, from, 0, n}, sizeof(move));
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t n, cudaStream_t s) {
    return launch(s, run_set, &(move){to, NULL, value, n}, sizeof(move));
}
typedef struct {
    cudaHostFn_t f;
    void *arg;
} host_call;
static void run_host(void *arg) {
    const host_call *c = arg;
    c->f(c->arg);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *arg) {
    return launch(s, run_host, &(host_call){f, arg}, sizeof(host_call));
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind) {
    (void)kind;
    cudaError_t e = drain(NULL);
    if (!e) memcpy(to, from, n);
    return e;
}
cudaError_t cudaMemset(void *to, int value, size_t n) {
    cudaError_t e = drain(NULL);
    if (!e) memset(to, value, n);
    return e;
}
cudaError_t cudaMalloc(void **p, size_t n) {
    *p = capturing ? NULL : aligned_alloc(4096, (n + 4095) / 4096 * 4096);
    if (*p) memset(*p, 0xee, n); /* nobody may count on zeros */
    return *p ? cudaSuccess : capturing ? cudaErrorStreamCaptureUnsupported : cudaErrorMemoryAllocation;
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned flags) {
    (void)flags;
    return cudaMalloc(p, n);
}
cudaError_t cudaFree(void *p) {
    free(p);
    return p || !getenv("SC_FAKE_CONTEXT") ? cudaSuccess : (cudaError_t)atoi(getenv("SC_FAKE_CONTEXT"));
}
cudaError_t cudaFreeHost(void *p) {
    return cudaFree(p);
}
cudaError_t cudaHostRegister(void *p, size_t n, unsigned flags) { /* SC_FAKE_PIN: error of pinning the host arena */
    (void)p, (void)n;
    return flags == cudaHostRegisterPortable && getenv("SC_FAKE_PIN") ? (cudaError_t)atoi(getenv("SC_FAKE_PIN"))
                                                                      : cudaSuccess;
}
cudaError_t cudaHostUnregister(void *p) {
    (void)p;
    return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void **to, void *p, unsigned flags) {
    (void)flags;
    *to = p;
    return cudaSuccess;
}

/* ── the driver's own functions, by name ─────────────────────────────────────────────────────────────────────────────
 */
static CUresult fake_write_value(CUstream s, CUdeviceptr at, cuuint64_t value, unsigned flags) {
    (void)flags;
    return launch(s, run_word, &(word){(uint64_t *)at, value}, sizeof(word)) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
    (void)version, (void)flags;
    *result = cudaDriverEntryPointSuccess;
    *f = strcmp(name, "cuStreamWriteValue64") ? NULL : (void *)fake_write_value;
    return *f ? cudaSuccess : cudaErrorInvalidValue;
}

static int64_t said(const char *name, int64_t otherwise) {
    return getenv(name) ? strtoll(getenv(name), NULL, 10) : otherwise;
}

/* ── NCCL: ranks lay their bytes into shared memory and meet ─────────────────────────────────────────────────────────
 */
enum { MOST_RANKS = 16, SHARE = 64 << 20 };

typedef struct {
    sc_flag met[MOST_RANKS];
    struct {
        int kind;
        size_t bytes;
    } says[MOST_RANKS]; /* ranks that differ are not in the same collective */
    uint8_t data[MOST_RANKS][SHARE];
} shared;

struct ncclComm {
    char name[96];
    int n, rank, splits;
    uint32_t meetings;
    shared *s;
    const uint8_t *window;
    size_t window_bytes;
};

static ncclComm_t open_comm(const char *name, int n, int rank) {
    ncclComm_t c = calloc(1, sizeof *c);
    snprintf(c->name, sizeof c->name, "%s", name);
    int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(shared))) abort();
    c->s = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    c->n = n;
    c->rank = rank;
    return c;
}

static void meet(ncclComm_t c) {
    uint32_t n = ++c->meetings;
    sc_flag_add(&c->s->met[c->rank], 1);
    for (int k = 0; k < c->n; k++) sc_flag_wait(&c->s->met[k], n);
}

ncclResult_t ncclGetVersion(int *v) {
    *v = (int)said("SC_FAKE_NCCL", 22809);
    return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    snprintf(id->internal, sizeof id->internal, "/sc_fake_%ld", (long)getppid());
    shm_unlink(id->internal);
    return ncclSuccess;
}
/* SC_FAKE_INIT_HANGS, SC_FAKE_WINDOW_HANGS, SC_FAKE_GATHER_HANGS: this rank does not come to the communicator, to the
 * arena's window, to its first all-gather. SC_FAKE_STOPS: its process stops within a collective that it has come to.
 * SC_FAKE_COMMS names a file that gets a line for each communicator of rank 0. */
static void tell_comm(const ncclConfig_t *c, int rank) {
    const char *path = getenv("SC_FAKE_COMMS");
    FILE *f = path && !rank ? fopen(path, "a") : NULL;
    if (!f) return;
    fprintf(f, "%s\n", c->commName);
    fclose(f);
}
/* What pins a sum's bits: NCCL would take its own choice where one of these is left to it. */
static bool pinned(const ncclConfig_t *c) {
    const char *graph = getenv("NCCL_GRAPH_REGISTER"), *nvls = getenv("NCCL_NVLS_ENABLE"), *algo = getenv("NCCL_ALGO");
    return c->minCTAs == c->maxCTAs && c->minCTAs > 0 && graph && !strcmp(graph, "0") && nvls && !strcmp(nvls, "0") &&
           algo && !strcmp(algo, "Ring") && !getenv("NCCL_SYM_KERNEL") && !getenv("NCCL_MAX_CTAS");
}
/* As NCCL: two ranks of one machine (NCCL_HOSTID) have two GPUs. */
static bool gpus_differ(ncclComm_t c) {
    const char *host = getenv("NCCL_HOSTID"), *torchrun = getenv("GROUP_RANK"), *slurm = getenv("SLURM_NODEID");
    bool ok = true;
    snprintf((char *)c->s->data[c->rank], SHARE, "%s %d",
             host       ? host
             : torchrun ? torchrun
             : slurm    ? slurm
                        : "",
             fake_device);
    meet(c);
    for (int k = 0; k < c->n; k++) ok &= k == c->rank || strcmp((char *)c->s->data[k], (char *)c->s->data[c->rank]);
    meet(c);
    return ok;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *c, int n, ncclUniqueId id, int rank, ncclConfig_t *config) {
    if (!pinned(config)) return ncclInvalidUsage;
    tell_comm(config, rank);
    if (said("SC_FAKE_INIT_HANGS", -1) == rank) pause();
    *c = open_comm(id.internal, n, rank);
    meet(*c);
    if (!rank) shm_unlink(id.internal);
    return gpus_differ(*c) ? ncclSuccess : ncclInvalidUsage;
}
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *c, ncclConfig_t *config) {
    char name[96];
    int n = 0, rank = 0;
    if (!pinned(config)) return ncclInvalidUsage;
    memcpy(parent->s->data[parent->rank], (int[]){color, key}, 2 * sizeof(int));
    meet(parent);
    for (int k = 0; k < parent->n; k++) {
        const int *theirs = (const int *)parent->s->data[k];
        if (theirs[0] != color) continue;
        n++;
        rank += theirs[1] < key;
    }
    snprintf(name, sizeof name, "%.60s_%d_%d", parent->name, parent->splits++, color);
    tell_comm(config, parent->rank);
    *c = open_comm(name, n, rank);
    meet(parent);
    shm_unlink(name);
    return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t c) {
    munmap(c->s, sizeof *c->s);
    free(c);
    return ncclSuccess;
}
ncclResult_t ncclMemAlloc(void **p, size_t n) {
    return cudaMalloc(p, n) ? ncclUnhandledCudaError : ncclSuccess;
}
ncclResult_t ncclMemFree(void *p) {
    free(p);
    return ncclSuccess;
}
/* SC_FAKE_WINDOW_FAILS=2: rank 2's fails; -1: all ranks', without an error, as where GPUs cannot reach each other. */
ncclResult_t ncclCommWindowRegister(ncclComm_t c, void *p, size_t n, ncclWindow_t *w, int flags) {
    int fails = (int)said("SC_FAKE_WINDOW_FAILS", -2);
    *w = NULL;
    if (!(flags & NCCL_WIN_COLL_SYMMETRIC)) return ncclInvalidUsage;
    if (said("SC_FAKE_WINDOW_HANGS", -1) == c->rank && n != 2 << 20) pause(); /* the arena's, not the trial's */
    if (fails == c->rank) return ncclUnhandledCudaError;
    if (fails == -1) return ncclSuccess;
    c->window = p;
    c->window_bytes = n;
    *w = (ncclWindow_t)c;
    return ncclSuccess;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t c, ncclWindow_t w) {
    c->window = NULL;
    return (ncclComm_t)w == c ? ncclSuccess : ncclInvalidUsage;
}
ncclResult_t ncclCommAbort(ncclComm_t c) {
    (void)c;
    return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *e) {
    *e = said("SC_FAKE_NCCL_TROUBLE", -1) == c->rank && c->meetings > 40 ? ncclRemoteError : ncclSuccess;
    return ncclSuccess;
}
const char *ncclGetErrorString(ncclResult_t r) {
    static char name[32];
    snprintf(name, sizeof name, "ncclResult %d", r);
    return name;
}
const char *ncclGetLastError(ncclComm_t c) {
    (void)c;
    return "";
}

typedef struct {
    ncclComm_t c;
    int kind; /* 0 gather, 1 scatter, 2 reduce, 3 exchange */
    const void *from;
    void *to;
    size_t count; /* sent by gather, received by scatter, sent to each by exchange */
    ncclDataType_t type;
} talk;

static size_t size_of(ncclDataType_t t) {
    return t == ncclFloat32 || t == ncclInt32      ? 4
           : t == ncclBfloat16 || t == ncclFloat16 ? 2
           : t == ncclFloat64 || t == ncclInt64    ? 8
                                                   : 1;
}

static void sum(const talk *t, void *to, size_t first, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double wide = 0;
        float acc = 0;
        for (int k = 0; k < t->c->n; k++) {
            const uint8_t *x = t->c->s->data[k] + (first + i) * size_of(t->type);
            float v = t->type == ncclBfloat16  ? sc_from_bf16(*(const uint16_t *)x)
                      : t->type == ncclFloat16 ? sc_from_fp16(*(const uint16_t *)x)
                                               : *(const float *)x;
            if (t->type == ncclFloat64) wide = k ? wide + *(const double *)x : *(const double *)x;
            acc = k ? acc + v : v;
        }
        if (t->type == ncclFloat64) ((double *)to)[i] = wide;
        if (t->type == ncclFloat32) ((float *)to)[i] = acc;
        if (t->type == ncclBfloat16) ((uint16_t *)to)[i] = sc_to_bf16(acc);
        if (t->type == ncclFloat16) ((uint16_t *)to)[i] = sc_to_fp16(acc);
    }
}

/* What a stream writes for the watchdog waits for nobody: it is there before the stream blocks. */
static void write_words(void) {
    for (bool any = true; any;) {
        any = false;
        for (int i = 0; i < queue.n; i++) {
            node *x = queue.at[i];
            if (x->done || (x->run && x->run != run_word) || !ready(x)) continue;
            if (x->run) x->run(x->arg);
            any = x->done = true;
        }
    }
}

static void run_talk(void *arg) {
    write_words();
    const talk *t = arg;
    shared *s = t->c->s;
    size_t bytes = t->count * size_of(t->type), sent = t->kind % 2 ? bytes * (size_t)t->c->n : bytes;
    if (sent > SHARE) abort();
    memcpy(s->data[t->c->rank], t->from, sent);
    s->says[t->c->rank].kind = t->kind;
    s->says[t->c->rank].bytes = bytes;
    meet(t->c);
    if (said("SC_FAKE_STOPS", -1) == t->c->rank && t->c->meetings > 100) raise(SIGSTOP);
    for (int k = 0; k < t->c->n; k++)
        if (s->says[k].kind != t->kind || s->says[k].bytes != bytes) {
            fprintf(stderr, "fake NCCL: ranks %d and %d are in different collectives\n", t->c->rank, k);
            abort();
        }
    if (t->kind == 0)
        for (int k = 0; k < t->c->n; k++) memcpy((uint8_t *)t->to + (size_t)k * bytes, s->data[k], bytes);
    else if (t->kind == 3)
        for (int k = 0; k < t->c->n; k++)
            memcpy((uint8_t *)t->to + (size_t)k * bytes, s->data[k] + (size_t)t->c->rank * bytes, bytes);
    else
        sum(t, t->to, t->kind == 1 ? t->count * (size_t)t->c->rank : 0, t->count);
    meet(t->c);
}

static ncclResult_t say(talk t, cudaStream_t s) {
    const uint8_t *w = t.c->window, *end = w + t.c->window_bytes;
    if (w && ((const uint8_t *)t.from < w || (const uint8_t *)t.from >= end || (uint8_t *)t.to < w ||
              (uint8_t *)t.to >= end))
        return ncclInvalidArgument; /* outside of the window: not what we mean to do */
    return launch(s, run_talk, &t, sizeof t) ? ncclUnhandledCudaError : ncclSuccess;
}
ncclResult_t ncclAllGather(const void *from, void *to, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t s) {
    if (said("SC_FAKE_GATHER_HANGS", -1) == c->rank) pause();
    return say((talk){c, 0, from, to, n, t}, s);
}
ncclResult_t ncclAlltoAll(const void *from, void *to, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t s) {
    return say((talk){c, 3, from, to, n, t}, s);
}
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                               cudaStream_t s) {
    (void)op;
    return say((talk){c, 1, from, to, n, t}, s);
}
ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                           cudaStream_t s) {
    (void)op;
    return say((talk){c, 2, from, to, n, t}, s);
}

/* ── kernels ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    sc_kernel *kernel;
    sc_task task;
    sc_args args; /* the task's */
} call;
static sc_kernel *named; /* by the text, to the runtime */
static size_t named_bytes;

static void run_kernel(void *arg) {
    call c = *(call *)arg;
    c.task.args = &c.args;
    c.kernel(&c.task);
    if (sc_kernel_finish(c.kernel)) sc_kernel_finish(c.kernel)(&c.task);
}
/* SC_FAKE_KERNEL: launches fail with this error; -1: kernels refuse their tasks. */
static void launch_kernel(const sc_task *t) {
    int64_t error = said("SC_FAKE_KERNEL", 0);
    if (error > 0) SC_CUDA((cudaError_t)error);
    if (error < 0) sc_unsupported(t, "a kernel", "it is made to refuse");
    call c = {.kernel = named, .task = *t};
    memcpy(&c.args, t->args, named_bytes);
    launch(SC_STREAM(t), run_kernel, &c, sizeof c);
}
void fake_run(sc_rank *r, int event, sc_stream s, sc_kernel *k, const void *args, size_t size, int slots) {
    named = k;
    named_bytes = size;
    sc_run(r, event, s, s == HOST ? k : launch_kernel, args, size, slots);
}

void sc_matmul_start(sc_cuda *c) {
    (void)c;
    sc_kernels_warm(2);
}
int sc_matmul_candidates(const sc_task *t, sc_matmul_choice *out, int most) {
    (void)t, (void)out, (void)most;
    return 0;
}
void sc_matmul_table(sc_cuda *c, const sc_matmul_choice *table, int n) {
    (void)c, (void)table, (void)n;
}
void sc_matmul_stop(sc_cuda *c) {
    (void)c;
}
__attribute__((weak)) void sc_attention_start(sc_cuda *c) {
    (void)c;
}
__attribute__((weak)) void sc_attention_stop(sc_cuda *c) {
    (void)c;
}

typedef struct {
    sc_tensor t;
    int *flag;
} seeking;
static void run_seek(void *arg) {
    const seeking *k = arg;
    uint64_t bytes = sc_span(&k->t);
    for (uint64_t i = 0; k->t.dtype == FP32 && i < bytes / 4; i++)
        if (!isfinite(((const float *)k->t.p)[i])) *k->flag = 1;
    for (uint64_t i = 0; k->t.dtype == BF16 && i < bytes / 2; i++)
        if ((((const uint16_t *)k->t.p)[i] & 0x7f80) == 0x7f80) *k->flag = 1;
}
void sc_spin(cudaStream_t s, int64_t ns) {}

void sc_seek_not_finite(cudaStream_t s, const sc_tensor *t, int *flag) {
    launch(s, run_seek, &(seeking){*t, flag}, sizeof(seeking));
}
