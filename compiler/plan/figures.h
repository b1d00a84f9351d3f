/* Figures as people read them: bytes in one unit for a whole report, times, counts with separators.
 * Relies on: base.
 * Relied on by: report/, cli/. */
#ifndef SHARDC_FIGURES_H
#define SHARDC_FIGURES_H

#include "../base/base.h"

typedef struct {
    double one;
    const char *name;
} ByteUnit;
ByteUnit figure_byte_unit(double bytes);                  /* B, KiB, MiB or GiB, whichever suits */
char *figure_in_unit(Arena *a, ByteUnit u, double bytes); /* "66.9" */
char *figure_bytes(Arena *a, double bytes);               /* "66.9GiB" */
char *figure_grouped(Arena *a, double x);                 /* "71,833,415,680" */
char *figure_time(Arena *a, double us);                   /* "0.71 s", "4.8 ms" */

/* "+3.40 %": by how much `to` is more than `from`, which is not 0. Less than is shown is "<0.01 %" with its sign, never
 * "-0.00 %"; none is "0 %". */
char *figure_change(Arena *a, double from, double to, int decimals);

#endif
