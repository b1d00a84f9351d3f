/* What a run prints while it trains: a line now and then, and on a terminal a live one with a bar.
 * Relies on: the C library.
 * Relied on by: train. */
#ifndef HOST_PROGRESS_H
#define HOST_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    bool quiet, terminal;
    int64_t first, last; /* steps of this run: first .. last, from 1 */
    double rate;         /* seconds a step, smoothed; 0: none yet */
    const char *unit;    /* "tok/s" or "samples/s" */
    bool live;           /* a live line stands on the terminal */
    double printed, gap; /* when the last line that stays was printed; the longest silence before the next one */
} Bar;

typedef struct {
    const char *name; /* any bytes */
    double value;
} BarMetric;

typedef struct {
    int64_t step;
    double loss, grad_norm, lr, per_second, seconds;
    double scale; /* of the loss, after the step; 0: none */
    bool skipped;
    double now;               /* by any clock, in seconds */
    const BarMetric *metrics; /* what the model logs; lines show the first of them */
    int nmetrics;
} BarStep;

Bar bar_new(bool quiet, int64_t first, int64_t last, const char *unit);
void bar_step(Bar *b, const BarStep *s);
void bar_clear(Bar *b);                      /* before anything else is printed */
const char *grouped(double x, char out[32]); /* 12,345: a whole number, its digits in threes */

#endif
