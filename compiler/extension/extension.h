/* The user's own C and CUDA C at compile time: read by libclang, held against its use.
 * Relies on: ir.h; libclang 19, loaded only when a model names a source file, in a process of its own.
 * Relied on by: pipeline.c. */
#ifndef SHARDC_EXTENSION_H
#define SHARDC_EXTENSION_H

#include "../ir/ir.h"

/* After precision: reads the files of all extensions in use, finds their functions, compares parameters with operands,
 * wires and results. Fails at the C line. */
void extension_load(Graph *g, const char *target);

/* parse.c: what a file defines. `at`: the model's line that names it. */
CFile *extension_read_c(Arena *a, const char *path, bool cuda, Source at);

/* clang.c: in the child process. Writes what the file defines, a line each, or what is wrong with it:
 *   error FILE LINE TEXT · function NAME LINE STATIC RESULT · parameter NAME LINE CONST TYPE ELEMENT DIMS SIZE...
 * with a tab between words, and at the end the line `end`; without it libclang could not read the file. The line
 * `library` alone: there is no libclang. */
typedef struct {
    const char *path;         /* as it is printed */
    const char *text;         /* what is parsed, in the place of the file */
    const char *const *flags; /* of the compiler */
    int nflags;
    bool cuda;
} ClangInput;
void extension_clang(FILE *out, const ClangInput *in);
bool extension_reads_c(void); /* libclang is there; it stays loaded */

#endif
