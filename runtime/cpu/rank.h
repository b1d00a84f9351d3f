/* What the files of the CPU target share: the captured programs of a rank, and the threads that replay them.
 * Relies on: common/rank.h.
 * Relied on by: rank.c, stream.c, clock.c, collective.c, world.c, debug.c. */
#ifndef SC_CPU_RANK_H
#define SC_CPU_RANK_H

#include "../common/pool.h"
#include "../common/rank.h"
#include <pthread.h>

/* ── captured programs ───────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef enum { SC_CALL, SC_COLLECTIVE, SC_COPY } sc_kind;

typedef struct {
    int stream, position, event; /* the stream must have finished `position` + 1 of its items */
} sc_dep;

typedef struct {
    sc_kind kind;
    sc_collective_kind collective;
    int event, comm, parts;
    sc_kernel *kernel, *finish; /* finish: once, after all parts; or NULL */
    int64_t sleep_ns;           /* before it runs */
    sc_args *args;              /* of a kernel its op's struct, else tensors alone: `size` bytes, tensors resolved */
    size_t size;
    int slots;
    sc_dep *deps;
    int ndeps;
} sc_item;

typedef struct {
    sc_item *items;
    int n, cap;
    sc_dep *pending; /* waits that the next item takes */
    int npending, cappending;
} sc_list;

typedef struct {
    sc_list stream[SC_STREAMS];
    int *stream_of, *position_of; /* by event; stream -1: not issued */
} sc_program;

/* ── one rank ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    sc_rank *r;
    sc_stream stream;
    pthread_t thread;
    bool started;
    sc_flag launch;   /* how many programs this stream has been given */
    sc_flag finished; /* items finished since the start of the process */
    uint32_t base;    /* `finished` when the running program began */
} sc_stream_state;

enum { SC_FAR_BYTES = 4 << 20 }; /* of what a stream's sum takes from other machines at a time */

struct sc_target {
    int threads;
    const sc_record *record;
    sc_program *programs;
    sc_stream_state stream[SC_STREAMS];
    sc_pool pool;           /* shares the parts of COMPUTE kernels; part 0 is the compute stream's own */
    sc_flag ready;          /* streams' threads that have started */
    struct sc_clock *clock; /* NULL: the real one */
    _Atomic bool stop;
};

/* stream.c */
void sc_streams_start(sc_rank *r);
void sc_streams_stop(sc_rank *r);
void sc_streams_run(sc_rank *r);    /* replays r->current on its streams' threads */
void sc_interleave_run(sc_rank *r); /* the same on this thread, in a random legal order */

/* clock.c */
void sc_clock_new(sc_rank *r);
void sc_clock_free(sc_rank *r);
void sc_clock_begin(sc_rank *r); /* before a program */
int64_t sc_clock_start(sc_rank *r, sc_stream s,
                       const sc_item *it);           /* its waits are over: sleeps, tells the start (ns) */
int64_t sc_clock_end(const sc_rank *r, sc_stream s); /* of the event that runs there */

/* collective.c */
void sc_collective(sc_rank *r, sc_stream s, const sc_item *it);

/* debug.c */
void sc_watch_new(sc_rank *r);
void sc_watch_free(sc_rank *r);
void sc_watch_begin(sc_rank *r);                     /* before a program */
void sc_watch_before(sc_rank *r, const sc_item *it); /* before an event runs, its waits being over */
void sc_watch_after(sc_rank *r, const sc_item *it);  /* after it, before it counts as finished */
void sc_watch_end(sc_rank *r);

#endif
