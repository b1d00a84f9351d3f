/* The processes of a job that a launcher has started, a process a rank: on one machine they share memory and see each
 * other's end; between machines what they share is mirrored (nodes.c). Alone, a process starts all ranks itself.
 * Relies on: place.h, rank.h.
 * Relied on by: launch.c, memory.c, the targets. */
#ifndef SC_COMMON_JOB_H
#define SC_COMMON_JOB_H

#include "place.h"
#include "rank.h"

/* ── for the launcher and the targets ────────────────────────────────────────────────────────────────────────────────
 */
bool sc_job_alone(void);
const sc_place *sc_job_place(void);
int sc_job_local(int rank);   /* index of this process's rank among those on its machine: which GPU it takes */
int sc_job_locals(int world); /* ranks on this machine */
int sc_job_host_rank(void);   /* which rank's process hosts this machine */
bool sc_job_hosts(void);      /* this process sets up what the ranks of its machine share */
int sc_job_memory(void);      /* the file that the processes of a machine map; -1: none */

/* Lets the others go on, once everything they share is there. false: told which one is missing. */
bool sc_job_open(sc_world *w);
void sc_job_fork(void);   /* in a child: the sockets are the parent's */
int sc_job_end(int code); /* this process's rank has ended; the code that the process ends with */
int sc_job_worst(void);   /* the largest exit code of the others so far; who has vanished is told here, by one */
int sc_job_blame(void);   /* this rank was asked to leave: the code that another one has ended with */
bool sc_job_speaks(void); /* true for one process of the job, once: it prints what all of them see */

/* ── between job.c and nodes.c ───────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    _Atomic int told;
    _Atomic int left[]; /* by rank: 1 + its exit code; 0: at work */
} sc_job_page;
sc_job_page *sc_job_shared(void);
bool sc_job_is_here(int rank); /* on this machine */
typedef struct {               /* what all processes of a job have alike; they say it when they meet */
    uint64_t program, hash;    /* of the binary; of all terms */
    char text[1 << 15];        /* of the terms, as much as there is room for */
} sc_job_terms;
const sc_job_terms *sc_job_said(void); /* by this process */
/* Are another rank's the same? If not: why not, with both values. */
bool sc_job_agrees(const sc_job_terms *theirs, int rank, char *why, size_t n);
int sc_job_patience(void);                               /* seconds */
bool sc_job_complain(const char *what, const char *why); /* false */

#endif
