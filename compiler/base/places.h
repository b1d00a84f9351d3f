/* Where things are on this machine: the runtime beside shardc, CUDA.
 * Relies on: base.
 * Relied on by: build.c, extension/, frontend.c, cli/. */
#ifndef SHARDC_PLACES_H
#define SHARDC_PLACES_H

#include "base.h"

enum { MOST_FOLDERS = 16 };

/* Where shardc's own libraries are, and file. Fails where it is nowhere: says which folder is to hold it, and how make
 * makes it there (`make TARGET` in a checkout). */
const char *places_library(Arena *a, const char *file, const char *target);
const char *places_library_folder(Arena *a, const char *file); /* the same; NULL where it is nowhere */
/* The command that makes shardc's own library, in backquotes, and the folder that then holds it. NULL: shardc stands
 * neither in a checkout nor in a prefix that it was installed to. */
const char *places_library_made(Arena *a, const char *target, const char **holds);
const char *places_headers(Arena *a);                      /* the folder of sc.h */
const char *places_models(Arena *a);                       /* the folder of shardc's models; NULL: it has none */
const char *places_on_path(Arena *a, const char *program); /* the first folder of PATH with it; NULL: none */
int places_cuda(Arena *a, const char **homes);
const char *places_find(Arena *a, const char *const *homes, int n, const char *file); /* at or below one of them */

#endif
