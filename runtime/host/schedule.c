/* Learning rate over the steps of a run, as a factor of the base rate. With w = warmup, n = total, m = min_ratio:
 *     t < w        (t + 1) / w
 *     constant     1
 *     linear       1 - (1 - m) x                      x = (t - w) / (n - w), at most 1
 *     cosine       m + (1 - m) (1 + cos(pi x)) / 2
 * Relies on: nothing.
 * Relied on by: train. */
#include "schedule.h"
#include <math.h>
#include <string.h>

double schedule_factor(const Schedule *s, int64_t t) {
    if (t < s->warmup) return (double)(t + 1) / (double)s->warmup;
    if (strcmp(s->kind, "linear") != 0 && strcmp(s->kind, "cosine") != 0) return 1;
    double x = s->total > s->warmup ? (double)(t - s->warmup) / (double)(s->total - s->warmup) : 1;
    if (x > 1) x = 1;
    if (strcmp(s->kind, "linear") == 0) return 1 - (1 - s->min_ratio) * x;
    return s->min_ratio + (1 - s->min_ratio) * 0.5 * (1 + cos(3.14159265358979323846 * x));
}
