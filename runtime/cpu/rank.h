/* What the files of the CPU target share: the world that all ranks see, one rank, and the captured programs it replays.
 * Relies on: sc.h, target.h, flag.h.
 * Relied on by: rank.c, stream.c, collective.c, launch.c, debug.c, dump.c. */
#ifndef SC_CPU_RANK_H
#define SC_CPU_RANK_H

#include "../target.h"
#include "flag.h"
#include <pthread.h>

/* ── seen by all ranks and by the launcher ───────────────────────────────────────────────────────────────────────────
 */
typedef enum { SC_IDLE, SC_RUNNING, SC_WAITING, SC_MEETING } sc_doing;

typedef struct { /* what a stream is at, for the watchdog */
    _Atomic int doing, event, waits_for;
} sc_status;

typedef struct {
    sc_flag
        met[SC_STREAMS + 1]; /* phases of collectives this rank has come to, a stream; the last one: host barriers */
    sc_status status[SC_STREAMS];
    _Atomic int program; /* running, -1: the rank is in the training program */
    _Atomic int at_barrier;
    _Atomic int64_t step;
    _Atomic uint64_t ticks; /* finished events and barriers: progress */
    _Atomic int done;       /* body has returned */
    _Atomic int failed;     /* a check has stopped this rank */
    double host_value;      /* sc_host_sum */
} sc_shared_rank;

typedef struct {
    const sc_build *build;
    const sc_debug *debug;
    int world, shards;     /* shards: size of the shard group */
    sc_shared_rank *ranks; /* shared memory */
    uint8_t **arena[2];    /* [host][rank] */
} sc_world;

/* ── captured programs ───────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef enum { SC_KERNEL, SC_GATHER, SC_SCATTER, SC_REDUCE, SC_COPY } sc_kind;

typedef struct {
    int stream, position, event; /* the stream must have finished `position` + 1 of its items */
} sc_dep;

typedef struct {
    sc_kind kind;
    int event, comm, nt, parts;
    sc_kernel *kernel, *finish; /* finish: once, after all parts; or NULL */
    sc_attr attr;
    sc_tensor *t; /* resolved */
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
    sc_task task;     /* what the kernel sees; one a thread */
} sc_stream_state;

typedef struct {
    sc_rank *r;
    int part;
    pthread_t thread;
    sc_task task;
} sc_worker;

typedef struct { /* threads that share the parts of COMPUTE kernels; part 0 is the compute stream's own */
    int n;
    sc_worker *workers;
    sc_flag go, done;
    const sc_item *item;
} sc_pool;

struct sc_rank {
    const sc_build *b;
    const sc_debug *d;
    sc_world *w;
    int rank, world, shard, shards, replica, replicas, threads;
    uint8_t *arena[2];
    const sc_record *record;
    int64_t step;
    sc_program *programs;
    int current;       /* program being captured or replayed */
    uint32_t launches; /* programs run so far */
    uint32_t meetings[SC_STREAMS + 1];
    sc_stream_state stream[SC_STREAMS];
    sc_pool pool;
    sc_flag ready; /* threads that have started */
    _Atomic bool stop;
    struct sc_watch *watch; /* debug.c: NULL unless something has to look at every event */
    struct sc_dumps *dumps; /* dump.c: NULL unless --dump */
    struct sc_trace *trace; /* dump.c: NULL unless --trace */
};

/* rank.c */
sc_rank *sc_rank_new(sc_world *w, int rank); /* everything a rank ever allocates: capture, threads, debug tables */
void sc_rank_free(sc_rank *r);
void *sc_calloc(size_t n, size_t size); /* setup only; ends the process with a message when memory runs out */
_Noreturn void sc_stop(sc_rank *r, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
size_t sc_dtype_size(int dtype);
int64_t sc_numel(const sc_tensor *t);
void sc_describe(const sc_build *b, int program, int event, char *out,
                 size_t n); /* "e131 matmul layers.3.mlp.up (gpt2.lua:18)" */

/* stream.c */
void sc_streams_start(sc_rank *r);
void sc_streams_stop(sc_rank *r);
void sc_streams_run(sc_rank *r);    /* replays r->current on its streams' threads */
void sc_interleave_run(sc_rank *r); /* the same on this thread, in a random legal order */

/* collective.c */
typedef struct {
    int first, step, n, index; /* members first + k·step; index: this rank's k */
} sc_members;
sc_members sc_comm(const sc_rank *r, int comm);
void sc_collective(sc_rank *r, sc_stream s, const sc_item *it);
void sc_meet(sc_rank *r, int stream, sc_members m); /* returns when all members have come as far */

/* debug.c */
void sc_watch_new(sc_rank *r);
void sc_watch_free(sc_rank *r);
void sc_watch_begin(sc_rank *r);                     /* before a program */
void sc_watch_before(sc_rank *r, const sc_item *it); /* before an event runs, its waits being over */
void sc_watch_after(sc_rank *r, const sc_item *it);  /* after it, before it counts as finished */
void sc_watch_end(sc_rank *r);

/* dump.c */
bool sc_dump_matches(const sc_build *b, const sc_debug *d, char *names,
                     size_t n); /* false: nothing does; names: some examples */
void sc_dump_new(sc_rank *r);
void sc_dump_free(sc_rank *r);
void sc_dump_after(sc_rank *r, const sc_item *it);
void sc_dump_end(sc_rank *r);
bool sc_trace_create(const sc_build *b, const char *path); /* the launcher: file and header; false: errno says why */
void sc_trace_close(const char *path);                     /* the launcher: makes it complete JSON */
void sc_trace_new(sc_rank *r);
void sc_trace_free(sc_rank *r);
void sc_trace_event(sc_rank *r, int event, int64_t start_ns, int64_t end_ns);
void sc_trace_end(sc_rank *r);
int64_t sc_now_ns(void);

#endif
