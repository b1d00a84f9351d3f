/* Slack: from a program's end backwards, over streams and waits.
 * Relies on: slack.h.
 * Relied on by: report/explain.c, report/page_blocks.c. */
#include "slack.h"

#include <math.h>

#define LEAST_US 1e-6 /* a picosecond, which times are rounded to: less is rounding */

/* From the last event to the first: it must end before the next on its stream, and those that wait for it, must begin.
 */
const double *plan_slack(const Plan *p, const PlanProgram *g) {
    double *slack = NEW_ARRAY(p->arena, double, g->n + 1), *end = NEW_ARRAY(p->arena, double, g->n + 1);
    double next[N_STREAMS];
    for (int s = 0; s < N_STREAMS; s++) next[s] = g->step_us;
    for (int e = 0; e < g->n; e++) end[e] = g->step_us;
    for (int e = g->n; e-- > 0;) {
        const Event *x = &g->events[e];
        end[e] = fmin(end[e], next[x->stream]);
        double begin = next[x->stream] = end[e] - x->duration_us;
        for (int i = 0; i < x->nwaits; i++) end[x->waits[i]] = fmin(end[x->waits[i]], begin);
        slack[e] = fmax(end[e] - x->start_us - x->duration_us, 0);
        if (slack[e] < LEAST_US) slack[e] = 0;
    }
    return slack;
}
