/* Weights as plain safetensors, read: whole tensors named by parameter path.
 * Relies on: args, safetensors, state, file.h, target.
 * Relied on by: train, run, export. */
#ifndef HOST_WEIGHTS_H
#define HOST_WEIGHTS_H

#include "args.h"
#include "safetensors.h"
#include "state.h"

typedef struct Weights Weights;
/* Before ranks start: opens the files of --weights and dies unless they hold exactly the model's parameters, each in
 * its shape and in a type that converts. Buffers may be missing; masks, tables and copies of tied weights may be there.
 * With --weights-partial the files and the model need only share some. */
Weights *weights_open(const sc_build *b, const Options *o);
/* "148 tensors of bf16 in 2 files; ...": what was taken, and what their shapes do not prove. In new memory. */
char *weights_told(const Weights *w);
void weights_load(const Weights *w, sc_rank *r);
void weights_close(Weights *w);

/* The dtype of the tensor that a parameter is read from; w may be NULL. */
sc_dtype weights_dtype(const Weights *w, const char *path, sc_dtype otherwise);
unsigned weights_dtypes(const Weights *w); /* of all tensors that are read, a bit each */
char *dtypes_text(unsigned used);          /* "bf16", or "bf16 and fp32": in new memory */

#endif
