/* The communicators of a rank. A group of ranks has one for gathers, which copy engines serve, and one for sums. The
 * arena is a symmetric window of each: nothing is staged, kernels are disturbed least, and NCCL needs the least memory.
 *
 * What a sum's bits depend on is fixed here and nowhere else, so that they are the same in a graph and without, in
 * every run and in every build. In a window NCCL's symmetric kernels add the ranks' values in an order that only the
 * number of elements, of ranks and of thread blocks decides; the last is given (SC_SUM_BLOCKS). Outside of it the ring
 * with its simple protocol and as many channels adds them, whatever NCCL's tuning would say.
 *
 * Relies on: rank.h, NCCL 2.28. Relied on by: rank.c, collective.c (comm.h). */
#include "comm.h"
#include "cuda.h"
#include "rank.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A gather in a window has no blocks, but NCCL keeps buffers for those it might have (6 MiB each). */
enum { COPY_BLOCKS = 2, TRIAL_BYTES = 2 << 20 };

/* ── NCCL's variables ────────────────────────────────────────────────────────────────────────────────────────────────
 * Set in every rank before NCCL reads them, whatever the user's environment says: they decide about bits, or about the
 * machine's health. All others (NCCL_DEBUG, NCCL_SOCKET_IFNAME, NCCL_IB_HCA, ...) are the user's. */
static const struct {
    const char *name, *value; /* NULL: not set */
} pinned[] = {
    {"NCCL_NVLS_ENABLE", "0"}, /* NVLink multicast: a program killed in it can put a machine's switches out of service;
                                  also, the switches would do the sums */
    {"NCCL_COLLNET_ENABLE", "0"},  /* sums in the network's switches */
    {"NCCL_ALGO", "Ring"},         /* what serves where no window does; the tuner would decide by time */
    {"NCCL_PROTO", "Simple"},      /* likewise */
    {"NCCL_TUNER_PLUGIN", "none"}, /* a plug-in would decide otherwise */
    {"NCCL_GRAPH_REGISTER", "0"},  /* a graph's collectives take the way of those without graph */
    {"NCCL_LOCAL_REGISTER", "0"},  /* likewise */
    {"NCCL_WIN_ENABLE", "1"},      /* windows or not: see choose_windows */
    {"NCCL_SYM_KERNEL", NULL},     /* the size decides which kernel */
    {"NCCL_SYM_CTAS", NULL},       /* the next ones would override a communicator's own configuration */
    {"NCCL_MIN_CTAS", NULL},         {"NCCL_MAX_CTAS", NULL},          {"NCCL_CTA_POLICY", NULL},
    {"NCCL_CGA_CLUSTER_SIZE", NULL}, {"NCCL_MIN_NCHANNELS", NULL},     {"NCCL_MAX_NCHANNELS", NULL},
    {"NCCL_MIN_NRINGS", NULL},       {"NCCL_MAX_NRINGS", NULL},        {"NCCL_NTHREADS", NULL},
    {"NCCL_BUFFSIZE", NULL},         {"NCCL_THREAD_THRESHOLDS", NULL},
};

void sc_comms_pin(void) {
    for (size_t i = 0; i < sizeof pinned / sizeof *pinned; i++)
        if (pinned[i].value)
            setenv(pinned[i].name, pinned[i].value, 1);
        else
            unsetenv(pinned[i].name);
}

/* NCCL takes two ranks with one GPU for a mistake, unless they are on two machines. Where GPUs are shared, the first
 * ranks of all GPUs are told to be one machine, the second ones another: the way between them is the network's. */
static void part_machines(const sc_rank *r) {
    const char *told = getenv("NCCL_HOSTID");
    char host[256] = "", name[300];
    if (!r->d->share_gpus) return;
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "%.255s-%d", told ? told : host, sc_sharers(r, r->rank, r->rank));
    setenv("NCCL_HOSTID", name, 1);
}

/* ── communicators ───────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* A group that holds every rank is the world, unless its collectives run beside those of others. */
static int same_as(const sc_rank *r, int c) {
    const sc_comm_info *all = r->b->comms;
    if (sc_comm(r, c).n == r->world && !all[c].chain) return SC_ALL_RANKS;
    for (int k = 0; k < c; k++) {
        sc_members mine = sc_comm(r, c), others = sc_comm(r, k);
        if (mine.n == others.n && mine.step == others.step && all[k].chain == all[c].chain) return k;
    }
    return c;
}

ncclConfig_t sc_comms_config(sc_policy policy, bool windows) {
    ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
    bool copies = policy == SC_GATHERS && windows;
    c.blocking = 1;
    c.splitShare = 0;
    c.commName = policy == SC_GATHERS ? "shardc-gathers" : "shardc-sums";
    c.CTAPolicy = policy == SC_GATHERS ? NCCL_CTA_POLICY_ZERO : NCCL_CTA_POLICY_DEFAULT;
    c.minCTAs = c.maxCTAs = copies ? COPY_BLOCKS : SC_SUM_BLOCKS;
    return c;
}

static ncclComm_t remember(sc_comms *t, ncclComm_t comm) {
    t->made[t->n++].comm = comm;
    return comm;
}

static ncclComm_t world_comm(sc_rank *r) {
    ncclComm_t comm;
    ncclConfig_t c = sc_comms_config(SC_SUMS, r->t->comms.windows);
    if (r->rank == 0) SC_NCCL(ncclGetUniqueId(&r->w->common->id));
    sc_barrier(r);
    sc_come_to(r, SC_CONNECTS);
    SC_NCCL(ncclCommInitRankConfig(&comm, r->world, r->w->common->id, r->rank, &c));
    return remember(&r->t->comms, comm);
}

static ncclComm_t part_comm(sc_rank *r, ncclComm_t world, int comm, int policy) {
    ncclComm_t part;
    ncclConfig_t c = sc_comms_config((sc_policy)policy, r->t->comms.windows);
    sc_members m = sc_comm(r, comm);
    SC_NCCL(ncclCommSplit(world, m.first, m.index, &part, &c)); /* a group is known by its first rank */
    return remember(&r->t->comms, part);
}

/* ── windows ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* NULL, or why the bytes are no window of the communicator. */
static const char *register_window(ncclComm_t comm, void *p, size_t bytes, ncclWindow_t *w) {
    ncclResult_t e = ncclCommWindowRegister(comm, p, bytes, w, NCCL_WIN_COLL_SYMMETRIC);
    if (e == ncclSuccess) return *w ? NULL : "NCCL sees no way for these GPUs to address each other's memory";
    const char *why = ncclGetLastError(comm);
    *w = NULL;
    return why && *why ? why : ncclGetErrorString(e);
}

/* A trial with few bytes, since much depends on it before the arena is there. */
static const char *try_window(ncclComm_t comm) {
    ncclWindow_t w = NULL;
    void *p = NULL;
    SC_NCCL(ncclMemAlloc(&p, TRIAL_BYTES));
    const char *why = register_window(comm, p, TRIAL_BYTES, &w);
    if (w) SC_NCCL(ncclCommWindowDeregister(comm, w));
    SC_NCCL(ncclMemFree(p));
    return why;
}

/* All ranks go the same way: in windows and in rings sums are added in different orders. SHARDC_NCCL_WINDOWS=0 asks for
 * rings; where there is no window it is rings too, and that is said. =1 takes nothing but windows. */
static bool choose_windows(sc_rank *r, ncclComm_t comm) {
    const char *wish = getenv("SHARDC_NCCL_WINDOWS"), *why = NULL;
    if (wish && !strcmp(wish, "0"))
        why = "SHARDC_NCCL_WINDOWS=0 is set";
    else
        why = try_window(comm);
    if (sc_host_sum(r, why ? 1 : 0) == 0) return true;
    if (!why) why = "another rank could make none";
    if (wish && !strcmp(wish, "1"))
        sc_stop_all(r, "shardc: NCCL makes no window: %s; see `nvidia-smi topo -m`, or leave out SHARDC_NCCL_WINDOWS=1",
                    why);
    if (r->rank == 0)
        fprintf(stderr,
                "shardc: collectives go by NCCL's rings, not by windows: %s; sums round in another order than with "
                "windows\n",
                why);
    return false;
}

/* ── all of them ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
void sc_comms_new(sc_rank *r) {
    sc_comms *t = &r->t->comms;
    if (r->world == 1) return;
    sc_comms_pin();
    part_machines(r);
    t->comm[SC_ALL_RANKS][SC_SUMS] = world_comm(r);
    t->windows = choose_windows(r, t->comm[SC_ALL_RANKS][SC_SUMS]);
    for (int c = r->b->ncomms - 1; c >= 0; c--)
        for (int p = 0; p < SC_POLICIES; p++) {
            int of = same_as(r, c);
            if (!t->talks[c][p] || sc_comm(r, c).n == 1) continue;
            if (!t->comm[of][p]) t->comm[of][p] = part_comm(r, t->comm[SC_ALL_RANKS][SC_SUMS], of, p);
            t->comm[c][p] = t->comm[of][p];
        }
}

/* A window is one offset and one size on every rank. */
static void check_sizes(sc_rank *r) {
    double mine = (double)r->b->arena_bytes, all = sc_host_sum(r, mine);
    if (all != mine * r->world)
        sc_stop(r, 1,
                "shardc: rank %d: the ranks' arenas differ in size (%.0f bytes here, %.0f together): every rank has "
                "to run the same binary",
                r->rank, mine, all);
}

void sc_comms_windows(sc_rank *r) {
    sc_comms *t = &r->t->comms;
    if (!t->windows) return;
    check_sizes(r);
    sc_come_to(r, SC_REGISTERS);
    for (int i = 0; i < t->n; i++) {
        const char *why = register_window(t->made[i].comm, r->arena[0], r->b->arena_bytes, &t->made[i].window);
        if (why)
            sc_stop(r, 1,
                    "shardc: rank %d: NCCL makes no window of the arena: %s; run with SHARDC_NCCL_WINDOWS=0, "
                    "which takes rings",
                    r->rank, why);
    }
}

void sc_comms_free(sc_rank *r) {
    sc_comms *t = &r->t->comms;
    for (int i = 0; i < t->n; i++)
        if (t->made[i].window) SC_NCCL(ncclCommWindowDeregister(t->made[i].comm, t->made[i].window));
    for (int i = 0; i < t->n; i++) SC_NCCL(ncclCommDestroy(t->made[i].comm));
    memset(t, 0, sizeof *t);
}

/* ── trouble ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Return codes tell nothing new to a rank that is being ended. */
void sc_comms_abort(sc_rank *r) {
    for (int i = 0; i < r->t->comms.n; i++) ncclCommAbort(r->t->comms.made[i].comm);
}

const char *sc_comms_trouble(sc_rank *r) {
    for (int i = 0; i < r->t->comms.n; i++) {
        ncclResult_t e = ncclSuccess;
        if (ncclCommGetAsyncError(r->t->comms.made[i].comm, &e) || (e && e != ncclInProgress))
            return ncclGetErrorString(e);
    }
    return NULL;
}
