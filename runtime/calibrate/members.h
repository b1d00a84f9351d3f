/* Processes that measure together, one a GPU.
 * Relies on: calibrate.h, NCCL (its id).
 * Relied on by: collectives.c, footprint.c, host.c. */
#ifndef SC_CALIBRATE_MEMBERS_H
#define SC_CALIBRATE_MEMBERS_H

#include "calibrate.h"
#include <nccl.h>

typedef struct { /* shared by the members */
    ncclUniqueId id;
    _Atomic int arrived;
    double us;
} sc_common;

void sc_members_meet(sc_common *c, int world); /* returns when all have come as often */
typedef struct {
    const sc_wish *w;
    FILE *out;
    int world;
} sc_round;

/* Runs body in `world` processes; 0: each has returned 0. When one fails, the others, which would wait for it for ever,
 * are ended. */
int sc_members_run(const sc_round *r, int (*body)(const sc_round *r, sc_common *c, int rank));

#endif
