/* Text from a trained model, one token at a time through the program `sample`.
 * Relies on: target, shuffle, runtime/text/helper.h.
 * Relied on by: train. */
#ifndef HOST_SAMPLE_H
#define HOST_SAMPLE_H

#include "../target.h"
#include "../text/helper.h"
#include "args.h"

typedef struct {
    int64_t *ids, n;
    uint32_t ends[SC_TEXT_ENDS]; /* tokens that end the sample, SC_TEXT_NONE behind the last */
} Prompt;

typedef struct Sampler Sampler;
/* Before ranks start: the prompt's tokens, those of --tokenizer if it is given. Dies where model or prompt do not fit.
 * The caller frees ids. */
Prompt prompt_read(const sc_build *b, const Options *o);
Sampler *sampler_new(const sc_build *b, const Options *o, const Prompt *prompt);
void sampler_free(Sampler *s);
/* All ranks; rank 0 prints; sets record->position. Returns the signal that has ended it early, or 0. */
int sampler_run(Sampler *s, sc_rank *r, sc_record *record);

/* The token that `logits` give: the likeliest at temperature 0, else drawn among the top_k (0: all) by u in [0, 1).
 * work: n floats. */
int64_t sample_pick(const float *logits, int64_t n, double temperature, int64_t top_k, double u, float *work);

#endif
