/* What the files of the CUDA target share: a rank's streams, events, graphs and communicators.
 * Relies on: common/rank.h, cuda.h, NCCL.
 * Relied on by: rank.c, stream.c, collective.c, memory.c, world.c, debug.c, error.c. */
#ifndef SC_CUDA_RANK_H
#define SC_CUDA_RANK_H

#include "../common/pool.h"
#include "../common/rank.h"
#include "algorithms.h"
#include "comm.h"
#include "cuda.h"
#include "library.h"
#include <nccl.h>
#include <pthread.h>

/* ── shared by the ranks of one machine, besides common/rank.h ───────────────────────────────────────────────────────
 */
enum { SC_MOST_RANKS = 1024, SC_BUS = 32, SC_PEER_BYTES = 8 << 20 };

typedef struct { /* a rank reads another's arenas through that rank */
    pthread_mutex_t lock;
    sc_flag asked, answered;
    int host;
    uint64_t at, bytes;
    uint8_t data[SC_PEER_BYTES];
} sc_mailbox;

typedef struct {
    int64_t free_bytes, total_bytes;
    char device[64], bus[SC_BUS]; /* bus: which GPU a rank has, on which machine */
    int machine;
    int libraries[SC_LIBRARIES]; /* versions of those that the rank has open; 0: it has not */
} sc_room;

struct sc_commons {
    ncclUniqueId id;
    sc_room room[SC_MOST_RANKS];
    sc_mailbox mailbox[]; /* a rank, where there are several */
};

/* ── one rank ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef enum {
    SC_SURVEY,   /* nothing is launched: finds which events others wait for, and which groups communicate */
    SC_TUNE,     /* of all events, only matrix products are launched, and timed */
    SC_REHEARSE, /* launched, results thrown away: every library has then made what it keeps */
    SC_CAPTURE,  /* into a graph */
    SC_DIRECT,   /* launched, no graph */
} sc_mode;

typedef struct {
    bool *awaited;               /* by event */
    int *stream_of;              /* by event */
    bool uses[SC_STREAMS];       /* has events there */
    cudaGraphExec_t graph;       /* NULL: runs without */
    struct sc_host_event **host; /* by event: what runs on the host; NULL: nothing does in any program */
} sc_program;

struct sc_target {
    sc_cuda cuda;
    sc_mode mode;
    int event;                /* being issued: error messages name it */
    bool running;             /* training has begun: failures exit 3 */
    void *nvml;               /* the GPU as NVML knows it, or NULL */
    bool needs_cudnn;         /* there is attention that it computes */
    int64_t used_before;      /* bytes in use there before this rank came; -1: not known */
    sc_algorithms algorithms; /* of matrix products */
    cudaStream_t stream[SC_STREAMS];
    sc_program *programs;
    cudaEvent_t *done; /* by event of any program, made where some program's event is awaited */
    int ndone;
    cudaEvent_t fork, join[SC_STREAMS];
    sc_comms comms;
    sc_pool pool;   /* for events of the HOST stream */
    uint8_t *stage; /* pinned: bytes on their way between training program and device */
    size_t staged;
    uintptr_t seen_at;               /* where the device writes what its streams are at; 0: no watchdog */
    void *write_value;               /* how: cuStreamWriteValue64 */
    cudaStream_t marker[SC_STREAMS]; /* beside a stream: writes it */
    cudaEvent_t turn;
    int marks[SC_STREAMS]; /* so far in the program being issued */
    pthread_t service, guard;
    bool serves, has_guard;
    _Atomic bool stop, guard_ends;
};

#define sc_stop_all(r, ...) sc_stop_once((r), 1, __VA_ARGS__)

/* stream.c */
void sc_streams_new(sc_rank *r);
void sc_streams_free(sc_rank *r);
void sc_survey(sc_rank *r);  /* of every program */
void sc_issue(sc_rank *r);   /* r->current's events in r->t->mode; forks from the compute stream, joins it again */
void sc_capture(sc_rank *r); /* r->current */
sc_task sc_task_of(const sc_rank *r, const sc_args *args, int slots, sc_stream s); /* args: resolved */

/* choose.c */
void sc_algorithms_open(sc_rank *r); /* after arenas and streams */
void sc_algorithms_close(sc_rank *r);

/* tune.c */
void sc_tune(sc_rank *r, int event, sc_kernel *k, const sc_args *args, int slots); /* resolved */
void sc_tune_all(sc_rank *r, const char *path); /* adds what the rank's table lacks and saves it */

/* collective.c */
void sc_collective(sc_rank *r, sc_collective_kind kind, int event, sc_stream s, int comm, const sc_tensor *out,
                   const sc_tensor *in); /* of a reduction both are one */

/* device.c */
void sc_device_open(sc_rank *r);                                      /* finds the rank's GPU and makes its context */
void sc_libraries_survey(sc_rank *r, int event, const sc_args *args); /* which it uses */
void sc_libraries_open(sc_rank *r);                                   /* those, the same on all ranks */
int sc_sharers(const sc_rank *r, int rank, int ranks); /* of the first `ranks`, those with the GPU of `rank` */

/* footprint.c */
void sc_footprint_start(sc_rank *r); /* before the context is made */

/* host.c */
void sc_host_new(sc_rank *r); /* after streams */
void sc_host_free(sc_rank *r);
void sc_host_run(sc_rank *r, int event, sc_kernel *k, const sc_task *task, size_t size); /* size: of its args */

/* memory.c */
void sc_arenas_new(sc_rank *r); /* after a look at what is free */
void sc_arenas_free(sc_rank *r);
void sc_stage_reset(sc_rank *r); /* the compute stream is drained */

/* peer.c */
void sc_peers_new(sc_rank *r);
void sc_peers_free(sc_rank *r);

/* error.c */
void sc_errors_name(sc_rank *r);         /* messages name this rank and its current event */
void sc_check_thread(sc_rank *r, int e); /* e: what making a thread has returned; stops the rank unless 0 */

/* marks.c: a stream tells, in host-visible memory, what it is at */
void sc_marks_new(sc_rank *r);
void sc_marks_free(sc_rank *r);
void sc_marks_begin(sc_rank *r); /* a program is about to be issued */
void sc_marks_join(sc_rank *r);  /* it has been */
void sc_marks_reset(sc_rank *r); /* a program begins, or has ended: nothing is seen yet, or any more */
void sc_mark(sc_rank *r, sc_stream s, sc_doing doing, int event);

/* guard.c: watches while the rank's own thread waits for the GPU */
void sc_guard_new(sc_rank *r);
void sc_guard_free(sc_rank *r);

/* k_debug_sleep.cu */
void sc_spin(cudaStream_t s, int64_t ns); /* the stream does nothing for so long */

/* finite.cu */
void sc_seek_not_finite(cudaStream_t s, const sc_tensor *t, int *flag); /* flag: pinned */

/* debug.c */
void sc_watch_new(sc_rank *r);
void sc_watch_free(sc_rank *r);
void sc_watch_begin(sc_rank *r);
void sc_watch_end(sc_rank *r);
void sc_watch_before(sc_rank *r, int event, sc_stream s);
void sc_watch_after(sc_rank *r, int event, sc_stream s, const sc_args *args, size_t size, int slots);
bool sc_looks_inside(const sc_debug *d); /* something looks at every event: no graphs */

#endif
