/* The largest magnitudes of steps before, by which products in 8 bits scale what they read (recipe = "delayed"): a
 * buffer of the model's, and a state of what the step has seen. Each tensor that is scaled has a site in both. Relies
 * on: ir.h. Relied on by: the pass quantize, the gradient rule of matmul, shard. */
#ifndef SHARDC_AMAX_HISTORY_H
#define SHARDC_AMAX_HISTORY_H

#include "ir.h"

enum { AMAX_STEPS = 16 }; /* that count; Transformer Engine keeps up to 1024, MS-AMP 16 */

/* A site of the training program: fp32 scalars, views of the buffer (what the op reads) and of the state (what it
 * writes). Modules have their units by now. */
typedef struct {
    Value *amax, *seen;
} AmaxSite;
AmaxSite amax_history_site(Graph *g);

#endif
