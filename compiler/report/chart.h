/* A line chart as SVG: some series over one axis, with round ticks. Readable in light and dark, no script, no font
 * file. Relies on: base. Relied on by: cli/plan.c (time over budget), cli/sweep.c. */
#ifndef SHARDC_CHART_H
#define SHARDC_CHART_H

#include "../base/base.h"

typedef struct {
    const char *name; /* NULL: no legend */
    const double *x, *y;
    const char *const *label; /* of each point, shown when the pointer rests on it; NULL: none */
    int n;
    bool steps;         /* a value holds until the next point */
    const bool *hollow; /* points that are drawn as circles; NULL: none */
} ChartSeries;

typedef struct {
    const char *title, *x, *y; /* x, y: what the axes are, with units */
    const ChartSeries *series;
    int n;
    bool log_x; /* all x are positive: equal distances are equal factors */
} Chart;

void chart_svg(FILE *f, Arena *a, const Chart *c);
void chart_column(FILE *f, Arena *a, const Chart *c, int n); /* several, one below the other */

#endif
