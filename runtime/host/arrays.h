/* Arrays of the model's inputs as data: .npy, .npz and safetensors, of which a sample is a row of each input's.
 * Relies on: data, records (what an input takes), npy, npz, safetensors.
 * Relied on by: loader, run. */
#ifndef HOST_ARRAYS_H
#define HOST_ARRAYS_H

#include "data.h"

/* Whether these names of --data say arrays: INPUT=FILE.npy, or a file of several arrays (.npz, safetensors). Dies where
 * some do and some do not. */
bool arrays_named(const sc_build *b, const char *option, char *const *names, int n);
/* Opens all; every input that training reads must be there, its rows of the shape that one sample of the input has.
 * Arrays of one input follow each other in the order of the names. batch: the inputs' first dimension. Dies on what is
 * wrong. The result's windows are samples; token_set_close ends it. */
TokenSet arrays_open(const sc_build *b, const char *option, char *const *names, int n, int64_t batch);
/* Sample `row` of an input, into row `place` of dst, a microbatch in the input's dtype. Dies on a NaN, and on an
 * integer that the input does not take; limit: see input_takes. */
void arrays_row(const TokenSet *s, const sc_build *b, int input, int64_t row, int64_t limit, void *dst, int64_t place);

#endif
