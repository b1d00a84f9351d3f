/* A stream tells the watchdog, in memory that the launcher sees, which collective it has come to and which one it has
 * left, also inside a graph. No kernel writes the word: a kernel would wait for a place on a multiprocessor that a
 * matrix product has taken.
 * Relies on: rank.h, the driver's cuStreamWriteValue64.
 * Relied on by: collective.c, stream.c, rank.c. */
#include "rank.h"
#include <cuda.h>

typedef CUresult write_value(CUstream s, CUdeviceptr at, cuuint64_t value, unsigned flags);

void sc_marks_new(sc_rank *r) {
    sc_shared_rank *all = r->w->ranks;
    enum cudaDriverEntryPointQueryResult found;
    void *at;
    if (r->world == 1 || !(r->d->stall_s > 0)) return;
    /* the driver's library is the runtime's business: it is asked for the function */
    SC_CUDA(
        cudaGetDriverEntryPointByVersion("cuStreamWriteValue64", &r->t->write_value, 12000, cudaEnableDefault, &found));
    SC_CUDA(cudaHostRegister(all, sizeof *all * (size_t)r->world, cudaHostRegisterMapped));
    SC_CUDA(cudaHostGetDevicePointer(&at, all, 0));
    r->t->seen_at = (uintptr_t)((sc_shared_rank *)at)[r->rank].seen;
    SC_CUDA(cudaEventCreateWithFlags(&r->t->turn, cudaEventDisableTiming));
    for (int s = 0; s < SC_STREAMS; s++)
        if (sc_stream_meets((sc_stream)s)) SC_CUDA(cudaStreamCreateWithFlags(&r->t->marker[s], cudaStreamNonBlocking));
}

void sc_marks_reset(sc_rank *r) {
    for (int s = 0; s < SC_STREAMS; s++) atomic_store(&r->w->ranks[r->rank].seen[s], 0);
}

void sc_marks_begin(sc_rank *r) {
    for (int s = 0; s < SC_STREAMS; s++) r->t->marks[s] = 0;
}

/* The compute stream, at the end of a program, waits for what the marking streams have to do. */
void sc_marks_join(sc_rank *r) {
    for (int s = 0; s < SC_STREAMS; s++) {
        if (!r->t->marks[s]) continue;
        SC_CUDA(cudaEventRecord(r->t->turn, r->t->marker[s]));
        SC_CUDA(cudaStreamWaitEvent(r->t->stream[COMPUTE], r->t->turn, 0));
    }
}

void sc_marks_free(sc_rank *r) {
    for (int s = 0; s < SC_STREAMS; s++)
        if (r->t->marker[s]) SC_CUDA(cudaStreamDestroy(r->t->marker[s]));
    if (r->t->turn) SC_CUDA(cudaEventDestroy(r->t->turn));
}

/* A write takes 4 us, a collective's way through copy engines 8 us more for each that stands in it: so a stream beside
 * it writes, when it has come as far, and nothing waits for that. */
void sc_mark(sc_rank *r, sc_stream s, sc_doing doing, int event) {
    sc_target *t = r->t;
    write_value *write = (write_value *)t->write_value;
    if (!t->seen_at || !t->marker[s]) return;
    SC_CUDA(cudaEventRecord(t->turn, t->stream[s]));
    SC_CUDA(cudaStreamWaitEvent(t->marker[s], t->turn, 0));
    CUresult e = write((CUstream)t->marker[s], t->seen_at + sizeof(uint64_t) * s, sc_seen(++t->marks[s], event, doing),
                       CU_STREAM_WRITE_VALUE_DEFAULT);
    if (e != CUDA_SUCCESS) SC_CUDA((cudaError_t)e); /* the two number their errors alike */
}
