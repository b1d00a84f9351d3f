/* Weights as plain safetensors, written: a file, or a folder that from_pretrained loads.
 * Relies on: args, weights, state, target.
 * Relied on by: train, run. */
#ifndef HOST_EXPORT_H
#define HOST_EXPORT_H

#include "weights.h"

typedef struct Exporter Exporter;
void exporter_check(const Options *o); /* before ranks start: dies where it cannot be written */
/* Dtypes are o->export_dtype's; w: what EXPORT_LOADED means, or NULL. */
Exporter *exporter_new(const sc_build *b, const Options *o, const Weights *w, int rank);
char *exporter_told(const Exporter *e, const Weights *w); /* of rank 0: what it will write, in new memory */
void exporter_free(Exporter *e);
/* All ranks; rank 0 writes. false: it has said why it cannot. */
bool exporter_run(Exporter *e, sc_rank *r);

#endif
