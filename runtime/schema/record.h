/* The step record: what changes from step to step, in the arena at a fixed offset, written by the host before a program
 * is launched; and the state of a loss scaler, which the device alone changes.
 * Relies on: nothing. Relied on by: sc.h; the compiler, for its limits and the record's room. */
#ifndef SC_SCHEMA_RECORD_H
#define SC_SCHEMA_RECORD_H

#include <assert.h>
#include <stdint.h>

/* At most: parameter groups of an optimizer, optimizers of these groups, counts of targets, metrics of a step (their
 * kinds are bits of one word). */
enum { SC_GROUPS = 16, SC_OPTIMIZER_SETS = 4, SC_COUNTS = 8, SC_METRICS = 64 };

typedef struct {         /* the numbers of one optimizer, of which each has what it needs */
    double beta1, beta2; /* 1 - beta is taken from them: of a float near 1 it would have few digits */
    float eps, momentum;
} sc_optimizer_set;

typedef struct {
    int64_t step, micro,
        first_sample; /* first_sample: index of this rank's first sample within the step's global batch */
    int64_t position; /* sample: which position's logits are wanted */
    uint64_t seed;
    float grad_seed; /* 1 / (world × accumulation); a scaler's factor comes on top, on the device */
    sc_optimizer_set of[SC_OPTIMIZER_SETS]; /* the model's optimizer, then those of groups that have another */
    float clip;
    float lr[SC_GROUPS], weight_decay[SC_GROUPS];
    float count[SC_COUNTS]; /* targets counted over the step / (world × accumulation) */
} sc_record;
enum { SC_RECORD_BYTES = 512 }; /* its room in the arena */
static_assert(sizeof(sc_record) <= SC_RECORD_BYTES, "the step record outgrows its room");

typedef struct {
    float scale, clean;   /* clean: steps in a row that were not skipped, since the scale grew or fell */
    float skipped, skips; /* 1: the last step was; all that were */
} sc_scaler;

#endif
