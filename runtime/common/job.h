/* Where this process stands among those that a launcher (torchrun, srun, mpirun) has started, one a rank, on this
 * machine: they share memory and see each other's end. Alone, a process starts all ranks itself.
 * Relies on: target.h (sc_join, sc_first, sc_map_shared). Relied on by: launch.c, memory.c, the targets' world. */
#ifndef SC_COMMON_JOB_H
#define SC_COMMON_JOB_H

#include "../target.h"

const char *sc_job_launcher(void); /* "torchrun", ...; NULL: alone */
int sc_job_rank(void);             /* of this process; 0 when alone */
int sc_job_memory(void);           /* the file that all processes map; -1: none */

/* The first process lets the others go on, once everything they share is there. false: told which one is missing. */
bool sc_job_open(const sc_build *b);
void sc_job_fork(void);   /* in a child: the sockets are the parent's */
int sc_job_end(int code); /* this process's rank has ended; the code that the process ends with */
int sc_job_worst(void);   /* the largest exit code of the others so far; who has vanished is told here, by one */
bool sc_job_speaks(void); /* true once: for the one process that tells what all of them see */

#endif
