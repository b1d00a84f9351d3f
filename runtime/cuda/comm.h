/* A rank's NCCL communicators: who talks to whom, by which of NCCL's ways, and the arena as their window.
 * Relies on: NCCL 2.28.
 * Relied on by: rank.c, collective.c, calibrate/, tests/gpu. */
#ifndef SC_CUDA_COMM_H
#define SC_CUDA_COMM_H

#include "../common/rank.h"
#include <nccl.h>

/* Copy engines serve gathers and exchanges, few multiprocessors sums: each has communicators of its own. */
typedef enum { SC_GATHERS, SC_SUMS, SC_POLICIES } sc_policy;
enum { SC_COMMS = 64 }; /* most groups of a build */

typedef struct {
    bool talks[SC_COMMS][SC_POLICIES];      /* the survey found such a collective */
    ncclComm_t comm[SC_COMMS][SC_POLICIES]; /* some of them one and the same */
    struct {
        ncclComm_t comm;
        ncclWindow_t window;
    } made[SC_COMMS * SC_POLICIES]; /* each of them once; the same order on all ranks */
    int n;                          /* of `made` */
    bool windows;                   /* the arena is a window of every communicator */
} sc_comms;

/* An exchange only moves bytes, as a gather does. */
static inline sc_policy sc_policy_of(sc_collective_kind kind) {
    return kind == SC_GATHER || kind == SC_EXCHANGE ? SC_GATHERS : SC_SUMS;
}

/* What every communicator is made with; calibrate/ measures such ones. */
void sc_comms_pin(void); /* sets NCCL's variables, before NCCL reads them */
ncclConfig_t sc_comms_config(sc_policy policy, bool windows);

void sc_comms_new(sc_rank *r);            /* the communicators that talk */
void sc_comms_windows(sc_rank *r);        /* the arena is there: registers it, or says that it cannot be */
void sc_comms_free(sc_rank *r);           /* all ranks come to it */
void sc_comms_abort(sc_rank *r);          /* this rank alone: whoever waits in a collective is let go */
const char *sc_comms_trouble(sc_rank *r); /* what NCCL has found wrong since: NULL, or its words */

#endif
