/* What the files of the CUDA target share: a rank's streams, events, graphs and communicators.
 * Relies on: common/rank.h, cuda.h, NCCL.
 * Relied on by: rank.c, stream.c, collective.c, memory.c, world.c, debug.c, error.c. */
#ifndef SC_CUDA_RANK_H
#define SC_CUDA_RANK_H

#include "../common/rank.h"
#include "cuda.h"
#include <nccl.h>
#include <pthread.h>

enum { SC_COMMS = 3 /* shard group, replicate group, world */, SC_POLICIES = 2 /* gathers, reductions */ };

/* ── shared by the ranks of one machine, besides common/rank.h ───────────────────────────────────────────────────────
 */
enum { SC_PEER_BYTES = 8 << 20 };

typedef struct { /* a rank reads another's device arena through that rank */
    pthread_mutex_t lock;
    sc_flag asked, answered;
    uint64_t at, bytes;
    uint8_t data[SC_PEER_BYTES];
} sc_mailbox;

typedef struct {
    int64_t free_bytes, total_bytes;
    char device[64];
} sc_room;

struct sc_commons {
    ncclUniqueId id;
    sc_room room[1024];
    sc_mailbox mailbox[]; /* a rank, where there are several */
};
enum { SC_MOST_RANKS = 1024 };

/* ── one rank ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef enum {
    SC_SURVEY,   /* the text is read, nothing is launched: what is waited for, what communicates */
    SC_REHEARSE, /* launched, results thrown away: every library has then made what it keeps */
    SC_CAPTURE,  /* into a graph */
    SC_DIRECT,   /* launched, no graph */
} sc_mode;

typedef struct {
    bool *issued, *awaited; /* by event */
    int *stream_of;         /* by event */
    bool uses[SC_STREAMS];  /* has events there */
    cudaGraphExec_t graph;  /* NULL: runs without */
} sc_program;

struct sc_target {
    sc_cuda cuda;
    sc_mode mode;
    int event;    /* being issued: error messages name it */
    bool running; /* training has begun: failures exit 3 */
    cudaStream_t stream[SC_STREAMS];
    sc_program *programs;
    cudaEvent_t *done; /* by event of any program, made where some program's event is awaited */
    int ndone;
    cudaEvent_t fork, join[SC_STREAMS];
    bool talks[SC_COMMS][SC_POLICIES];
    ncclComm_t comm[SC_COMMS][SC_POLICIES]; /* some of them one and the same */
    ncclWindow_t window[SC_COMMS][SC_POLICIES];
    uint8_t *stage; /* pinned: bytes on their way between training program and device */
    size_t staged;
    sc_status *status_at; /* as the device addresses this rank's status in shared memory; NULL: no watchdog */
    uint32_t *met_at[SC_STREAMS];
    pthread_t service;
    bool serves;
    _Atomic bool stop;
};

/* What all ranks find wrong alike, rank 0 says; the launcher ends the others a moment later. */
#define sc_stop_all(r, ...)                                                                                            \
    do {                                                                                                               \
        if ((r)->rank)                                                                                                 \
            for (;;) pause();                                                                                          \
        sc_stop((r), 1, __VA_ARGS__);                                                                                  \
    } while (0)

/* stream.c */
void sc_streams_new(sc_rank *r);
void sc_streams_free(sc_rank *r);
void sc_survey(sc_rank *r);  /* of every program */
void sc_issue(sc_rank *r);   /* r->current's text in r->t->mode: forks from the compute stream and joins it again */
void sc_capture(sc_rank *r); /* r->current */

/* collective.c */
void sc_collective(sc_rank *r, sc_collective_kind kind, int event, sc_stream s, int comm, const sc_tensor *t);
void sc_comms_new(sc_rank *r);     /* communicators that the survey found */
void sc_comms_windows(sc_rank *r); /* registers the arena */
void sc_comms_free(sc_rank *r);

/* memory.c */
void sc_arenas_new(sc_rank *r); /* after a look at what is free */
void sc_arenas_free(sc_rank *r);
void sc_stage_reset(sc_rank *r); /* the compute stream is drained */

/* peer.c */
void sc_peers_new(sc_rank *r);
void sc_peers_free(sc_rank *r);

/* error.c */
void sc_errors_name(sc_rank *r); /* messages name this rank and its current event */

/* mark.cu: a stream tells, in host-visible memory, what it is at */
void sc_mark(cudaStream_t s, void *status, uint32_t *met, int doing, int event);

/* finite.cu */
void sc_seek_not_finite(cudaStream_t s, const sc_tensor *t, int *flag); /* flag: pinned */

/* debug.c */
void sc_watch_new(sc_rank *r);
void sc_watch_free(sc_rank *r);
void sc_watch_begin(sc_rank *r);
void sc_watch_end(sc_rank *r);
void sc_watch_before(sc_rank *r, int event, sc_stream s);
void sc_watch_after(sc_rank *r, int event, sc_stream s, const sc_attr *a, int nt, const sc_tensor *t);
bool sc_looks_inside(const sc_debug *d); /* something looks at every event: no graphs */

#endif
