/* The blocks of a model, and what each may do with the values that its backward needs.
 * Relies on: plan.h.
 * Relied on by: the files of planner/. */
#ifndef SHARDC_BLOCKS_H
#define SHARDC_BLOCKS_H

#include "../devices/device.h"

/* What a block does with its values: an entry's `checkpoint`. */
typedef struct {
    VEC(const char *) save, offload;
    bool recompute;          /* false: what is not offloaded is kept */
    bool none;               /* no checkpoint at all: everything is kept */
    double kept, us, bus_us; /* as estimated from ops: bytes, microseconds of recomputation, of copying one way */
} BlockOption;
typedef VEC(BlockOption) BlockOptions;

typedef struct {
    const char *path;
    int kind;         /* index in Blocks.options: blocks of one kind have the same ops and shapes */
    const char *list; /* path without its number, or NULL: "h" of "h.3" */
    int number;
} Block;

typedef struct {
    VEC(Block) at;             /* in the order of the forward */
    VEC(BlockOptions) options; /* by kind, the first keeps all, then in order of bytes kept */
    VEC(const char *) units;   /* paths of modules given to nn.fully_shard; "" is the model */
} Blocks;

/* Repeated modules that the training program calls once each, the outermost; without any, the modules of units; by
 * path. From a plan that still has its graph. */
Blocks blocks_find(Arena *a, const Plan *p);

/* Entries that make each block a checkpointed call that keeps all: in such a plan an op says which block it is of. */
const char *blocks_marking(Arena *a, const Blocks *b);

/* Fills b->options from such a plan: choices of values to keep, recompute and offload that no other choice beats in
 * bytes, time and copying. Returns how many microseconds of copying one way hide behind kernels. */
double blocks_options(Arena *a, Blocks *b, const Plan *marked, const Device *d, bool recompute, bool offload);

/* Whether plans for this device may copy activations to the host. */
bool blocks_can_offload(const Device *d);

/* Index of the block that a module's path lies in; -1: none. */
int blocks_of_path(const Blocks *b, const char *path);

#endif
