/* The user's own C and CUDA C as a program calls it: an extension of all-gathers, or a custom op.
 * Relies on: ir.h.
 * Relied on by: the front end, ir/rules_foreign.c, shard, extension/ (which reads the files), emit/foreign.c. */
#ifndef SHARDC_FOREIGN_H
#define SHARDC_FOREIGN_H

#include "ir.h"

typedef struct CFunction CFunction; /* extension/c_file.h, as CFile */

enum { MAX_WIRES = SC_WIRES };
typedef struct { /* one buffer that travels */
    Dtype dtype;
    int count, every; /* `count` elements for every `every` stored ones; every 0: `count` for each rank's piece of a
                         parameter */
} Wire;

typedef enum { PRE_GATHER = 0, POST_GATHER = 1, CUSTOM_FORWARD = 0, CUSTOM_BACKWARD = 1, N_PARTS = 2 } ExtensionPart;

struct Extension {
    int id;
    Source src;                /* of the call of nn.all_gather_extension or nn.custom_op */
    bool gathers;              /* all-gathers; else a custom op */
    const char *name;          /* of a custom op */
    const char *source, *cuda; /* files for the two targets; NULL: none */
    Source source_at, cuda_at; /* where they are named */
    const char *part[N_PARTS]; /* pre_all_gather and post_all_gather · forward and backward (NULL: none) */
    Wire wire[MAX_WIRES];
    int nwires;
    bool amax;   /* the largest magnitude of each parameter is found before */
    bool rows;   /* no slice cuts a row of a parameter */
    CFile *file; /* of the target; set by the extensions pass, with what follows */
    const CFunction *found[N_PARTS];
};

ExtensionPart foreign_part(const Op *op); /* which function of its extension a T_FOREIGN op calls */
const char *foreign_part_name(const Extension *x, ExtensionPart p); /* "pre", "post", "forward", "backward" */

#endif
