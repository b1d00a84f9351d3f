/* How near an event comes to what its device can do at most: the roofline model (Williams, Waterman and Patterson
 * 2009). Relies on: plan.h.
 * Relied on by: report/explain.c, report/page_blocks.c. */
#ifndef SHARDC_LIMITS_H
#define SHARDC_LIMITS_H

#include "plan.h"

typedef enum { BOUND_UNKNOWN, BOUND_ARITHMETIC, BOUND_BYTES } Bound;

typedef struct {
    double us;                       /* the least that its FLOPs or its bytes take at the peaks; 0: not known */
    double flops_share, bytes_share; /* of Event.peak_flops and peak_bytes, in its duration; above 1: caches helped */
    Bound bound;                     /* which of the two is more */
} Limit;

Limit plan_limit(const Event *e);
const char *plan_route(Route r); /* "memory", "the host's bus", "links of the node", "the network" */

#endif
