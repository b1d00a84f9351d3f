/* Text from a trained model, one token at a time through the program `sample`.
 * Relies on: target, shuffle.
 * Relied on by: train. */
#ifndef HOST_SAMPLE_H
#define HOST_SAMPLE_H

#include "../target.h"
#include "args.h"

typedef struct Sampler Sampler;
void sampler_check(const sc_build *b, const Options *o); /* before ranks start: model and prompt fit */
Sampler *sampler_new(const sc_build *b, const Options *o);
void sampler_free(Sampler *s);
/* All ranks; rank 0 prints; sets record->position. Returns the signal that has ended it early, or 0. */
int sampler_run(Sampler *s, sc_rank *r, sc_record *record);

/* The token that `logits` give: the likeliest at temperature 0, else drawn among the top_k (0: all) by u in [0, 1).
 * work: n floats. */
int64_t sample_pick(const float *logits, int64_t n, double temperature, int64_t top_k, double u, float *work);

#endif
