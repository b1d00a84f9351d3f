/* What torchrun, srun or mpirun say in the environment about this process's place among those they have started.
 * Relies on: nothing.
 * Relied on by: job.c, nodes.c. */
#ifndef SC_COMMON_PLACE_H
#define SC_COMMON_PLACE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *launcher;                        /* NULL: none, the process is alone */
    const char *rank_variable, *world_variable;  /* what says the rank, and the number of ranks */
    const char *option;                          /* what sets that number */
    int rank, world, local, locals, node, nodes; /* local: index on this machine, of `locals`; nodes 0: uneven */
    uint64_t name;                               /* tells this job from others */
    bool certain;                                /* a launcher has started this process, alone or with others */
    char host[256];                              /* rank 0's machine; empty: not said */
    int port;
    char wrong[200]; /* what is impossible in the variables; empty: nothing */
} sc_place;

sc_place sc_place_find(void);
int sc_place_number(const char *variable, int otherwise); /* not a number, negative, not set: otherwise */

#endif
