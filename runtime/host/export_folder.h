/* What stands beside the weights in a folder that from_pretrained, or peft, loads.
 * Relies on: args. Relied on by: export. */
#ifndef HOST_EXPORT_FOLDER_H
#define HOST_EXPORT_FOLDER_H

#include "args.h"

/* The folder of --weights, or NULL: they came from files. */
const char *export_folder_of(const Options *o);
/* What from_pretrained calls the file of weights beside that folder's config.json, up to .safetensors: diffusers has
 * another name than transformers. */
const char *export_folder_stem(const Options *o);
/* Copies config.json, with the dtype of the weights, and the tokenizer's files; or writes adapter_config.json. dtypes:
 * of each parameter, N_DTYPES where it is not written. false: it has said why it cannot. */
bool export_folder_fill(const char *folder, const char *from, const sc_build *b, const sc_dtype *dtypes, bool adapters);

#endif
