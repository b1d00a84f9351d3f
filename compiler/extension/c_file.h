/* A file of the user's own C or CUDA C, as libclang read it.
 * Relies on: foreign.h, which names these types.
 * Relied on by: extension/, emit/foreign.c. */
#ifndef SHARDC_C_FILE_H
#define SHARDC_C_FILE_H

#include "../ir/foreign.h"

typedef struct { /* a parameter of a C function */
    const char *name;
    const char *type;    /* as it stands in the source: "const float *" */
    const char *element; /* what it points to, in the end: "float"; "": no pointer */
    bool constant;       /* what it points to is */
    int dims;            /* of what it points to: 1 where it is `float *`; sizes that are not written are 0 */
    int64_t size[MAX_DIMS];
    int line;
} CParam;

struct CFunction {             /* a function that the user's file defines */
    const char *name, *result; /* result's type: "void" */
    int line;
    bool internal; /* static */
    VEC(CParam) params;
};

struct CFile {
    const char *path, *text;
    VEC(CFunction) functions;
};

#endif
