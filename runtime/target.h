/* What a target gives the training program: arenas, programs, state bytes, ranks. Implemented by cpu/ and cuda/.
 * Relies on: sc.h, system.h.
 * Relied on by: runtime/host. */
#ifndef SC_TARGET_H
#define SC_TARGET_H

#include "sc.h"
#include "system.h"

typedef struct { /* debugging switches of a run; none changes a bit of the result */
    bool poison, check_finite, redzones;
    int64_t interleave;       /* -1: threads; else the seed of a random legal order */
    const char *dump_pattern; /* NULL: none */
    int64_t dump_step;
    const char *dump_path;
    const char *trace_path;
    double stall_s;              /* watchdog: no progress for so long is a hang; 0: none */
    double delay_ms[SC_STREAMS]; /* of every collective on that stream, before it begins */
    bool virtual_clock;          /* CPU: only sleeping and delays take time, and that is counted, not waited for */
    bool no_graph;               /* CUDA: launch every event by itself */
    bool share_gpus;             /* CUDA: there may be fewer GPUs than ranks */
    bool require_cudnn;          /* CUDA: rather end than run cuDNN's share of attention on other kernels */
} sc_debug;

/* First of all: did torchrun, srun or mpirun start this process as one rank of several? Then it meets the others on
 * this machine; rank 0's process comes through here at once, the others once it has found everything in order and
 * launches. Ranks with other terms (lines "--option value" that all must be started with alike) or another binary are
 * refused there. -1: go on; else the code to end with, the reason having been told. */
int sc_join(const sc_build *b, const char *terms);
bool sc_first(void); /* this process speaks for all: it starts every rank, or runs rank 0 */
bool sc_one_machine(void);
/* Processors that each of this machine's ranks may compute with, at least 1: a share of those that this process is
 * bound to, or, where a launcher may have bound every rank to its own, those, within a share of the machine's. */
int sc_processors(const sc_build *b);
/* Zeroed memory that all ranks of a machine see: every process asks for the same sizes in the same order, before ranks
 * start. */
void *sc_map_shared(size_t bytes);
void sc_unmap(void *p, size_t bytes);

/* Outputs that a run can do without (common/lost.c). A failure to write one is said on standard error, once of each,
 * and the run goes on; at its end it is said again. What the run is for, the state, --export and a sample, is none. */
typedef enum { SC_PRINTED, SC_LOG, SC_REPORT, SC_DUMP, SC_TRACE, SC_OUTPUTS } sc_output;
bool sc_outputs_new(void); /* before ranks start, by every process; false: errno says why */
void sc_lose(sc_output k, const char *path, int error); /* path: NULL for standard output; error: errno */
bool sc_lost(sc_output k);
void sc_regain(sc_output k); /* it has been written after all */
void sc_tell_lost(void);

/* Runs `body(rank)` on every rank of this process's share of the world: forks (or, with -DSC_RANK_THREADS, starts
 * threads). Returns the largest exit code; a rank that dies ends the others. */
int sc_launch(const sc_build *b, const sc_debug *d, int (*body)(sc_rank *r, void *arg), void *arg);

int sc_rank_index(const sc_rank *r);
const sc_build *sc_rank_build(const sc_rank *r);
/* On standard output: the target's libraries, where they were found, their versions, which of them are taken. */
void sc_tell_libraries(void);
/* "NVIDIA H200, driver of CUDA 13.0, cuBLASLt 13.1.0, ...": what the run computes with; empty: nothing to say. */
void sc_describe_device(const sc_rank *r, char *out, size_t n);
/* Bytes of the GPU that this rank's process holds by the driver's account, libraries and all; -1: not known. */
int64_t sc_device_used(const sc_rank *r);
uint64_t sc_allocated(const sc_rank *r, int host); /* bytes actually allocated for an arena */

void sc_run_program(sc_rank *r,
                    int program); /* runs all its events, returns when all are finished; exits 3 on a failed check */
void sc_write(sc_rank *r, int host, uint64_t at, const void *src,
              size_t bytes); /* host memory -> arena, between programs */
void sc_read(sc_rank *r, int host, uint64_t at, void *dst, size_t bytes);
void sc_record_write(sc_rank *r, const sc_record *rec);
void sc_barrier(sc_rank *r);                            /* all ranks, between programs */
double sc_host_sum(sc_rank *r, double x);               /* sum over ranks in rank order (host side bookkeeping) */
void sc_host_gather(sc_rank *r, double x, double *all); /* the x of every rank, by rank */
/* Copies another rank's arena bytes, from any machine; only between barriers. */
void sc_read_peer(sc_rank *r, int peer, int host, uint64_t at, void *dst, size_t bytes);
/* What signals ask for. Every rank calls it equally often, between programs; all of them get the same answer: 0: go on;
 * SIGUSR1: save (not where only requests to stop count); SIGINT, SIGTERM or SIGHUP: stop. */
int sc_heed(sc_rank *r, bool only_stop);
bool sc_asked(const sc_rank *r);            /* sc_heed has something to answer: whoever waits for long goes there */
double sc_seconds(const sc_rank *r);        /* since some moment, by the clock that this run goes by */
void sc_set_step(sc_rank *r, int64_t step); /* for --dump --at-step and --trace */

#endif
