/* The index of weights in several files, as Hugging Face writes it beside them: model.safetensors.index.json.
 * Relies on: nothing.
 * Relied on by: weights. */
#ifndef HOST_SHARD_INDEX_H
#define HOST_SHARD_INDEX_H

#include <stdbool.h>

/* The files that the index names, each once, with the index's folder before their names; in new memory. false: the file
 * is no such index (nor need it be there). Dies where the index names what lies in no file beside it. */
bool shard_index_read(const char *path, char ***files, int *n);

#endif
