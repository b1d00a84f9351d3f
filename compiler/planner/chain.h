/* A chain of blocks, each with several ways to hold what its backward needs: the fastest choice within a budget of
 * bytes. Relies on: base. Relied on by: planner.c, its tests. Knows nothing of graphs or plans. */
#ifndef SHARDC_CHAIN_H
#define SHARDC_CHAIN_H

#include "../base/base.h"

/* One way to run a block. */
typedef struct {
    int64_t kept;              /* bytes that it holds from its forward to its backward */
    int64_t forward, backward; /* most bytes alive during either, `kept` included, what other blocks keep excluded */
    double us;                 /* what it adds to the step, microseconds, not negative */
    double bus_us;             /* how long its copies occupy the bus in one direction */
} ChainOption;

typedef struct {
    const ChainOption *options;
    int n;
    int alike; /* blocks of one number have equal kept, us and bus_us, option by option */
} ChainBlock;

typedef struct {
    const ChainBlock *blocks; /* in the order of the forward; the backward runs through them in reverse */
    int n;
    int64_t between; /* most bytes alive between forward and backward, what blocks keep excluded */
    double bus_us;   /* so much copying hides behind kernels; INFINITY: any amount */
} Chain;

/* The fastest choice of options, choice[i] of block i, for which no moment needs more than `budget` bytes and copies
 * hide; at most `slack` microseconds slower than the fastest (0: exact). False: none was found. Dynamic programming
 * over blocks with labels (bytes kept, time, bus), dominated ones dropped (Hansen 1980, bicriterion paths), and those
 * that a bound excludes. Where more than 384 labels are left at a block, as in long chains with copies, the most
 * promising ones stay and the choice need not be the fastest. Equal choices of alike blocks are put side by side where
 * that fits. */
bool chain_solve(const Chain *c, int64_t budget, double slack, int *choice);

/* No choice within the budget adds less, microseconds: the largest Lagrangian bound found over single moments and the
 * bus (Geoffrion 1974). INFINITY: nothing fits. */
double chain_bound(const Chain *c, int64_t budget);

/* What a choice needs: most bytes at any moment, microseconds added. */
int64_t chain_peak(const Chain *c, const int *choice);
double chain_us(const Chain *c, const int *choice);
int64_t chain_least(const Chain *c); /* the smallest budget for which there is a choice, the bus disregarded */

#endif
