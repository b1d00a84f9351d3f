/* One collective of a program, by NCCL. All collectives of a program form one chain of waits, so communicators
 * never compete; and the watchdog can tell which one every rank has come to.
 * Relies on: rank.h, comm.c, marks.c.
 * Relied on by: stream.c. */
#include "rank.h"

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
    size_t bytes = (size_t)sc_numel(in) * sc_size(in->dtype);
    if (out->p != in->p) SC_CUDA(cudaMemcpyAsync(out->p, in->p, bytes, cudaMemcpyDeviceToDevice, s));
}

/* NCCL 2.28.9's symmetric kernel for few bytes gives wrong sums at the end of a piece that is no multiple of 8 bytes.
 */
static void check_piece(sc_rank *r, int event, sc_collective_kind kind, const sc_tensor *piece) {
    size_t bytes = (size_t)sc_numel(piece) * sc_size(piece->dtype);
    if (kind == SC_SCATTER && bytes % 8)
        sc_stop(r, 3, "shardc: event %s scatters pieces of %zu bytes, which is no multiple of 8: please report it",
                sc_event_id(r, event), bytes);
}

void sc_collective(sc_rank *r, sc_collective_kind kind, int event, sc_stream s, int comm, const sc_tensor *out,
                   const sc_tensor *in) {
    cudaStream_t stream = r->t->stream[s];
    if (sc_comm(r, comm).n == 1) {
        alone(out, in, stream);
        return;
    }
    ncclComm_t c = r->t->comms.comm[comm][sc_policy_of(kind)];
    ncclDataType_t type = type_of(r, event, out, sc_policy_of(kind) == SC_SUMS);
    size_t sent = (size_t)sc_numel(in), received = (size_t)sc_numel(out);
    check_piece(r, event, kind, out);
    sc_spin(stream, (int64_t)(r->d->delay_ms[s] * 1e6));
    sc_mark(r, s, SC_MEETING, event);
    if (kind == SC_GATHER)
        SC_NCCL(ncclAllGather(in->p, out->p, sent, type, c, stream));
    else if (kind == SC_EXCHANGE)
        SC_NCCL(ncclAlltoAll(in->p, out->p, received / (size_t)sc_comm(r, comm).n, type, c, stream));
    else if (kind == SC_SCATTER)
        SC_NCCL(ncclReduceScatter(in->p, out->p, received, type, ncclSum, c, stream));
    else
        SC_NCCL(ncclAllReduce(in->p, out->p, received, type, ncclSum, c, stream));
    sc_mark(r, s, SC_IDLE, event);
}
