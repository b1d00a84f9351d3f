/* Learning rate over the steps of a run.
 * Relies on: nothing.
 * Relied on by: args, run, train. */
#ifndef HOST_SCHEDULE_H
#define HOST_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *kind; /* "constant", "linear", "cosine" */
    int64_t warmup, total;
    double min_ratio;
} Schedule;

double schedule_factor(const Schedule *s, int64_t t); /* of the base learning rate at step t, counted from 0 */
bool schedule_decays(const char *kind);

/* In new memory. For a run of the steps first + 1 to last with the base rate lr: which rates it will follow; and what
 * looks wrong with them, or NULL. */
char *schedule_text(const Schedule *s, double lr, int64_t first, int64_t last);
char *schedule_doubt(const Schedule *s, double lr, int64_t first, int64_t last);

#endif
