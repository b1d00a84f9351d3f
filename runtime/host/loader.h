/* Inputs of a microbatch: which samples a rank gets, from token files or records.
 * Relies on: data, records.
 * Relied on by: train. */
#ifndef HOST_LOADER_H
#define HOST_LOADER_H

#include "data.h"
#include "records.h"

/* How inputs lie in a window of tokens. Sample s of the run is window token_order(s); in it, input i is
 * tokens[shift_i, shift_i + length_i). */
typedef struct {
    int64_t batch, span, stride;
    int64_t limit;         /* exclusive bound of all tokens; 0: not known */
    int64_t tokens;        /* of one rank's microbatch, for tokens/s; 0: the inputs are no tokens */
    const char *not_token; /* an input that does not come from tokens, or NULL */
} Layout;
Layout layout_of(const sc_build *b);

typedef struct {
    const sc_build *b;
    const TokenSet *set; /* or */
    Records *records;
    Layout layout;
    uint64_t seed;
    uint32_t *window; /* span tokens */
    void **staging;   /* of each input: one rank's microbatch */
} Loader;
void loader_free(Loader *l);
Loader loader_new(const sc_build *b, const TokenSet *set, Records *records, uint64_t seed);

/* Fills staging for the microbatch whose first sample is `sample` of the run (records: microbatch `micro` of the step).
 */
void loader_fill(Loader *l, int place, int64_t micro, int64_t sample);
/* ... with n windows of the files, in their order and again from the first: row r gets window first + (at + r) mod n.
 */
void loader_fill_windows(Loader *l, int64_t first, int64_t n, int64_t at);
int64_t loader_count(const Loader *l, const sc_count_info *c, int64_t rows); /* targets that count in staging's first */
bool loader_counts_all(const Loader *l, const sc_count_info *c);             /* none can be ignored: no need to look */
void loader_upload(const Loader *l, sc_rank *r);
int64_t input_numel(const sc_input_info *in);

#endif
