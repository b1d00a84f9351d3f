/* Collectives by NCCL. Every group of ranks has one communicator for gathers, which copy engines serve, and one for
 * reductions; the arena is a symmetric window of each, so nothing is staged and kernels are disturbed least. All
 * collectives of a program form one chain of waits, so communicators never compete.
 * Relies on: rank.h, NCCL 2.28.
 * Relied on by: stream.c, rank.c. */
#include "rank.h"
#include <stdlib.h>

enum { GATHERS, REDUCTIONS, LEAST_NCCL = 22800 };

/* ── communicators ───────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Groups that hold every rank are the world. */
static int same_as(const sc_rank *r, int comm) {
    return sc_comm(r, comm).n == r->world ? 2 : comm;
}

static ncclConfig_t config_of(int policy) {
    ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
    c.blocking = 1;
    c.CTAPolicy = policy == GATHERS ? NCCL_CTA_POLICY_ZERO : NCCL_CTA_POLICY_DEFAULT;
    return c;
}

static void check_version(sc_rank *r) {
    int v = 0;
    SC_NCCL(ncclGetVersion(&v));
    if (v < LEAST_NCCL)
        sc_stop_all(
            r,
            "shardc: NCCL is version %d.%d.%d, and this program needs 2.28 or newer: install a newer libnccl.so.2, "
            "or name its folder in LD_LIBRARY_PATH",
            v / 10000, v / 100 % 100, v % 100);
}

/* NVLink multicast stays off: a program that is killed while it uses it can put the machine's switches out of service.
 * A graph's collectives are the ones that run without a graph. */
static void set_environment(void) {
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    setenv("NCCL_GRAPH_REGISTER", "0", 1);
}

static ncclComm_t world_comm(sc_rank *r) {
    ncclComm_t comm;
    ncclConfig_t c = config_of(REDUCTIONS);
    if (r->rank == 0) SC_NCCL(ncclGetUniqueId(&r->w->common->id));
    sc_barrier(r);
    SC_NCCL(ncclCommInitRankConfig(&comm, r->world, r->w->common->id, r->rank, &c));
    return comm;
}

static ncclComm_t part_comm(sc_rank *r, ncclComm_t world, int comm, int policy) {
    ncclComm_t part;
    ncclConfig_t c = config_of(policy);
    sc_members m = sc_comm(r, comm);
    SC_NCCL(ncclCommSplit(world, m.first, m.index, &part, &c)); /* a group is known by its first rank */
    return part;
}

void sc_comms_new(sc_rank *r) {
    sc_target *t = r->t;
    if (r->world == 1) return;
    set_environment();
    check_version(r);
    t->comm[2][REDUCTIONS] = world_comm(r);
    for (int c = SC_COMMS - 1; c >= 0; c--)
        for (int p = 0; p < SC_POLICIES; p++) {
            int of = same_as(r, c);
            if (!t->talks[c][p] || sc_comm(r, c).n == 1) continue;
            if (!t->comm[of][p]) t->comm[of][p] = part_comm(r, t->comm[2][REDUCTIONS], of, p);
            t->comm[c][p] = t->comm[of][p];
        }
}

static bool first_of_its_kind(const sc_rank *r, int c, int p) {
    return r->t->comm[c][p] && (same_as(r, c) == c);
}

void sc_comms_windows(sc_rank *r) {
    for (int c = 0; c < SC_COMMS; c++)
        for (int p = 0; p < SC_POLICIES; p++)
            if (first_of_its_kind(r, c, p) && r->b->arena_bytes)
                SC_NCCL(ncclCommWindowRegister(r->t->comm[c][p], r->arena[0], r->b->arena_bytes, &r->t->window[c][p],
                                               NCCL_WIN_COLL_SYMMETRIC));
}

void sc_comms_free(sc_rank *r) {
    for (int c = 0; c < SC_COMMS; c++)
        for (int p = 0; p < SC_POLICIES; p++) {
            if (!first_of_its_kind(r, c, p)) continue;
            if (r->t->window[c][p]) SC_NCCL(ncclCommWindowDeregister(r->t->comm[c][p], r->t->window[c][p]));
        }
    for (int c = 0; c < SC_COMMS; c++)
        for (int p = 0; p < SC_POLICIES; p++)
            if (first_of_its_kind(r, c, p)) SC_NCCL(ncclCommDestroy(r->t->comm[c][p]));
}

/* ── one collective ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
static ncclDataType_t type_of(sc_rank *r, int event, const sc_tensor *t, bool sums) {
    switch (t->dtype) {
    case FP32: return ncclFloat32;
    case BF16: return ncclBfloat16;
    case FP16: return ncclFloat16;
    case FP64: return ncclFloat64;
    case INT32: return ncclInt32;
    case INT64: return ncclInt64;
    default: break;
    }
    if (sums)
        sc_stop(r, 3, "shardc: event %s: a sum over ranks of dtype %d is not possible on the cuda target",
                sc_event_id(r, event), t->dtype);
    return ncclUint8; /* bytes travel as they are */
}

/* A group of one: what the collective amounts to. */
static void alone(const sc_tensor *out, const sc_tensor *in, cudaStream_t s) {
    size_t bytes = (size_t)sc_numel(in) * sc_dtype_size(in->dtype);
    if (out->p != in->p) SC_CUDA(cudaMemcpyAsync(out->p, in->p, bytes, cudaMemcpyDeviceToDevice, s));
}

/* The watchdog sees which collective a stream has come to, and which one it has left. */
static void mark(sc_rank *r, sc_stream s, sc_doing doing, int event) {
    if (r->t->status_at) sc_mark(r->t->stream[s], &r->t->status_at[s], r->t->met_at[s], doing, event);
}

void sc_collective(sc_rank *r, sc_collective_kind kind, int event, sc_stream s, int comm, const sc_tensor *t) {
    cudaStream_t stream = r->t->stream[s];
    if (sc_comm(r, comm).n == 1) {
        if (kind != SC_REDUCE) alone(&t[0], &t[1], stream);
        return;
    }
    ncclComm_t c = r->t->comm[comm][kind == SC_GATHER ? GATHERS : REDUCTIONS];
    ncclDataType_t type = type_of(r, event, &t[0], kind != SC_GATHER);
    mark(r, s, SC_MEETING, event);
    if (kind == SC_GATHER)
        SC_NCCL(ncclAllGather(t[1].p, t[0].p, (size_t)sc_numel(&t[1]), type, c, stream));
    else if (kind == SC_SCATTER)
        SC_NCCL(ncclReduceScatter(t[1].p, t[0].p, (size_t)sc_numel(&t[0]), type, ncclSum, c, stream));
    else
        SC_NCCL(ncclAllReduce(t[0].p, t[0].p, (size_t)sc_numel(&t[0]), type, ncclSum, c, stream));
    mark(r, s, SC_IDLE, event);
}
