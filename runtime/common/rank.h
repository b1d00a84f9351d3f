/* What every target's rank has: its place in the world, what all ranks see of each other, launching and watching them.
 * Relies on: sc.h, target.h, flag.h, file.h.
 * Relied on by: runtime/common, runtime/cpu, runtime/cuda. */
#ifndef SC_COMMON_RANK_H
#define SC_COMMON_RANK_H

#include "../file.h"
#include "../target.h"
#include "flag.h"

/* ── seen by all ranks and by the launcher ───────────────────────────────────────────────────────────────────────────
 */
typedef enum { SC_IDLE, SC_RUNNING, SC_WAITING, SC_MEETING } sc_doing;

/* How far a rank is on its way to the training program, in this order on all ranks. */
typedef enum {
    SC_BEGINS,
    SC_OPENS,
    SC_CONNECTS,
    SC_TAKES,
    SC_REGISTERS,
    SC_REHEARSES,
    SC_CAPTURES,
    SC_TRAINS
} sc_stage;

typedef struct { /* what a stream is at, for the watchdog */
    _Atomic int doing, event, waits_for;
} sc_status;

/* The status of a device's stream, in one word that the device writes: 2 for each collective of the program that the
 * stream has come to and left, the event, what it does there. 0: nothing yet. */
static inline uint64_t sc_seen(int steps, int event, sc_doing doing) {
    return (uint64_t)(uint32_t)steps << 32 | (uint64_t)(uint32_t)event << 4 | (uint64_t)doing;
}

typedef struct {
    sc_flag
        met[SC_STREAMS + 1]; /* phases of collectives this rank has come to, a stream; the last one: host barriers */
    sc_status status[SC_STREAMS];
    _Atomic uint64_t seen[SC_STREAMS]; /* sc_seen() of the running program, written by a device */
    _Atomic int leave;                 /* the launcher asks the rank to end, because others have or do not come */
    _Atomic int pid;                   /* its process; 0: a thread, or another machine's */
    _Atomic int stopped;               /* the number of its process while a signal or a debugger stops it; else 0 */
    _Atomic int stage;                 /* sc_stage */
    _Atomic int program;               /* running, -1: the rank is in the training program, or on its way there */
    _Atomic int at_barrier;
    _Atomic int64_t step;
    _Atomic uint64_t ticks;            /* finished events and barriers: progress */
    _Atomic int done;                  /* body has returned */
    _Atomic int failed;                /* a check has stopped this rank */
    sc_flag rung;                      /* of a machine's host: how many meetings the ranks there have come to */
    double host_value;                 /* sc_host_sum, sc_host_gather */
    _Atomic int64_t clock[SC_STREAMS]; /* virtual time of the collective that a stream is at */
    _Atomic int told;                  /* of rank 0: a rank has said what all may find wrong */
    _Atomic int64_t stands, passed;    /* turns of sc_heed: the last one that it stood at; that it has left */
} sc_shared_rank;

typedef struct {
    const sc_build *build;
    const sc_debug *debug;
    int world;
    sc_shared_rank *ranks;     /* shared memory */
    uint8_t **arena[2];        /* [host][rank]; NULL where other ranks cannot address it */
    sc_flag *bell;             /* what a rank rings when it comes to a meeting; NULL on one machine */
    struct sc_doors *doors;    /* where ranks of other machines are reached (far.c); NULL on one machine */
    struct sc_commons *common; /* what else the target's ranks share, or NULL */
    bool guest;                /* another process has made what is shared: it is there, and set up */
} sc_world;

/* ── one rank ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct sc_target sc_target; /* what the target keeps for a rank: <target>/rank.h */
struct sc_rank {
    const sc_build *b;
    const sc_debug *d;
    sc_world *w;
    int rank, world;
    sc_coord *coord;   /* on each axis of the build */
    uint8_t *arena[2]; /* [host], as its kernels address them */
    int64_t step;
    sc_record record;  /* as written last: for what runs on the host of a GPU */
    int current;       /* program being captured or run */
    uint32_t launches; /* programs run so far */
    uint32_t meetings[SC_STREAMS + 1];
    int64_t turn; /* calls of sc_heed */
    int saves;    /* requests to save that it has heeded */
    sc_target *t;
    struct sc_far *far;     /* connections to other machines; NULL: there are none */
    struct sc_watch *watch; /* NULL unless something has to look at every event */
    struct sc_dumps *dumps; /* dump.c: NULL unless --dump */
    struct sc_trace *trace; /* dump.c: NULL unless --trace */
};

/* rank.c */
void sc_come_to(sc_rank *r, sc_stage stage);
void sc_rank_place(sc_rank *r, sc_world *w, int rank);
void *sc_calloc(size_t n, size_t size); /* setup only; ends the process with a message when memory runs out */
/* For a mistake that several ranks may find: one of them prints it (rank 0, if it finds it too), the launcher ends the
 * others. */
_Noreturn void sc_stop_once(sc_rank *r, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void sc_speak_once(int rank); /* the same for callers without a sc_rank; returns for the rank that prints */
void sc_put(const char *text, size_t size);                              /* on stderr, in one piece */
void sc_say(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* a line */
_Noreturn void sc_stop(sc_rank *r, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
uint64_t sc_span(const sc_tensor *t); /* bytes from its first element to the end of its last */
void sc_describe(const sc_build *b, int program, int event, char *out,
                 size_t n); /* "e131 matmul layers.3.mlp.up (gpt2.lua:18)" */
const char *sc_event_id(const sc_rank *r, int event);
void sc_check_tensor(sc_rank *r, int event, const sc_tensor *t); /* lies in its arena */
void sc_check_range(sc_rank *r, const char *what, int host, uint64_t at, size_t bytes);
typedef struct {
    int first, step, n, index; /* members first + k·step; index: this rank's k */
} sc_members;
enum { SC_ALL_RANKS = SC_WORLD }; /* among the build's groups, whose first ones are those of its first axes */
sc_members sc_comm(const sc_rank *r, int comm);
typedef enum { SC_GATHER, SC_SCATTER, SC_REDUCE, SC_EXCHANGE } sc_collective_kind;
void sc_check_collective(sc_rank *r, sc_collective_kind kind, int event, int comm, int nt, const sc_tensor *t);
/* The target's part of the words for collectives (collectives.c): t is the result and, but for all-reduce, the operand.
 */
void sc_issue_collective(sc_rank *r, sc_collective_kind kind, int event, sc_stream s, int comm, int nt, sc_tensor *t);
void sc_meet(sc_rank *r, int stream, sc_members m); /* returns when all members have come as far */

/* memory.c */
double sc_available_bytes(void); /* of this machine, for this process; -1: not known */
double sc_mapped_bytes(void);    /* of this process's address space; below 0: not known */

/* launch.c asks the target */
/* A rank's share of what else the target keeps in common, written down (from another machine) or looked up. */
enum { SC_PIECE = 512 };
void sc_world_piece(sc_world *w, int rank, uint8_t *bytes, bool write);
/* Sends bytes of the arena of a rank of this machine, which waits at a barrier or has met the reader; false: to nobody.
 */
bool sc_world_send(const sc_world *w, int fd, int rank, int host, uint64_t at, uint64_t bytes);
bool sc_world_fits(const sc_build *b, const sc_debug *d); /* before anything is made; says why not */
bool sc_world_open(sc_world *w);                          /* arenas that ranks share; says why not */
void sc_world_close(sc_world *w);
sc_rank *sc_rank_new(sc_world *w, int rank); /* everything a rank ever allocates: capture, threads, debug tables */
void sc_rank_free(sc_rank *r);
_Noreturn void sc_leave(int code); /* ends a rank that has failed: at once, whatever its streams are at */

/* watchdog.c */
typedef struct {
    uint64_t ticks;
    double since;
} sc_watchdog;
bool sc_stalled(const sc_world *w, sc_watchdog *dog);
void sc_print_stall(const sc_world *w);
void sc_ask_to_leave(const sc_world *w); /* all ranks; who cannot is killed a moment later */
void sc_print_killed(const sc_world *w, int rank, int signal);

/* signals.c */
typedef struct {
    int32_t stop, at_once, saves; /* signal or 0; 0 or 1; how many so far */
} sc_signals;
bool sc_signals_new(void);                  /* before ranks start; false: errno says why */
void sc_signals_listen(void);               /* from here on, in this process and in those that it forks */
sc_signals sc_signals_seen(void);           /* what has been asked for, on this machine or another ... */
void sc_signals_hear(const sc_signals *s);  /* ... as another machine tells it */
bool sc_signals_ask(int signal);            /* to stop, as the signal would; false: somebody has asked before */
int sc_signals_stop(void);                  /* the signal that asks to stop; 0: none */
bool sc_signals_at_once(const sc_world *w); /* to stop whatever the ranks are at */
bool sc_signals_last(void);                 /* the next signal would be a second one */

/* finite.c: after an event, whose struct is `size` bytes and begins with `slots` tensors; their p can be read here */
bool sc_is_float(const sc_tensor *t);
void sc_check_finite(sc_rank *r, int event, const sc_args *args, size_t size, int slots);

/* dump.c */
bool sc_dump_wants(const sc_rank *r, int event);
bool sc_dump_matches(const sc_build *b, const sc_debug *d, char *names,
                     size_t n);              /* false: nothing does; names: some examples */
const char *sc_dump_path(const sc_debug *d); /* rank 0's file */
void sc_dump_new(sc_rank *r);
void sc_dump_free(sc_rank *r);
void sc_dump_after(sc_rank *r, int event); /* the event has finished */
void sc_dump_end(sc_rank *r);
/* The launcher: makes the file and writes its head; false: a->error says why. Then, when the ranks have ended, makes it
 * complete JSON and gives it its name, unless a rank was killed, which may have cut a line. */
bool sc_trace_create(const sc_build *b, sc_aside *a, const char *path);
void sc_trace_close(sc_aside *a, const char *path, bool cut);
void sc_trace_new(sc_rank *r);
void sc_trace_free(sc_rank *r);
void sc_trace_event(sc_rank *r, int event, int64_t start_ns, int64_t end_ns);
void sc_trace_end(sc_rank *r);

#endif
