/* Learning rate over the steps of a run.
 * Relies on: nothing.
 * Relied on by: args, run, train. */
#ifndef HOST_SCHEDULE_H
#define HOST_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *kind; /* "constant", "linear", "cosine", "wsd", "function" */
    int64_t warmup, total, decay_steps;
    double min_ratio;
    const float *factors; /* of a function, for steps 0 to total - 1 */
} Schedule;

double schedule_factor(const Schedule *s, int64_t t); /* of the base learning rate at step t, counted from 0 */
bool schedule_decays(const char *kind);               /* by a formula, to a ratio at the end of its total */

/* In new memory. For a run of the steps first + 1 to last with the base rate lr: which rates it will follow; and what
 * looks wrong with them, or NULL. */
char *schedule_text(const Schedule *s, double lr, int64_t first, int64_t last);
char *schedule_doubt(const Schedule *s, double lr, int64_t first, int64_t last);

#endif
