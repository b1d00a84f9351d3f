/* Learning rate over the steps of a run.
 * Relies on: nothing.
 * Relied on by: train. */
#ifndef HOST_SCHEDULE_H
#define HOST_SCHEDULE_H

#include <stdint.h>

typedef struct {
    const char *kind; /* "constant", "linear", "cosine" */
    int64_t warmup, total;
    double min_ratio;
} Schedule;

double schedule_factor(const Schedule *s, int64_t t); /* of the base learning rate at step t, counted from 0 */

#endif
