/* Weights as plain safetensors: whole tensors named by parameter path, for any reader.
 * Relies on: args, safetensors, state, file.h, target.
 * Relied on by: train, main. */
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

typedef struct Exporter Exporter;
void exporter_check(const char *path); /* before ranks start: dies where it cannot be written */
/* Dtypes are o->export_dtype's; w: what EXPORT_LOADED means, or NULL. */
Exporter *exporter_new(const sc_build *b, const Options *o, const Weights *w, int rank);
char *exporter_told(const Exporter *e, const Weights *w); /* of rank 0: what it will write, in new memory */
void exporter_free(Exporter *e);
/* All ranks; rank 0 writes. false: it has said why it cannot. */
bool exporter_run(Exporter *e, sc_rank *r);

#endif
