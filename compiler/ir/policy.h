/* What a model, or a --policy file, asks of a module: nn.fully_shard and nn.checkpoint_wrapper as the front end read
 * them. Relies on: ir.h. Relied on by: the front end, and the passes that carry it out. */
#ifndef SHARDC_POLICY_H
#define SHARDC_POLICY_H

#include "ir.h"

/* Where each option of a module is written: a call in the model, or an entry of a --policy file over it. */
typedef struct {
    const char *key;
    Source src;
} Setting;
typedef VEC(Setting) Settings;
Source setting_source(const Settings *s, const char *key, Source otherwise); /* otherwise: nobody wrote the key */

struct Checkpoint { /* nn.checkpoint_wrapper / nn.checkpoint */
    Source src;
    Settings settings;
    const char **save, **offload; /* op names ("attention", "linear") or "input"; "*" for all */
    int nsave, noffload;
    bool recompute; /* false: only offloads */
};

typedef enum {
    UPDATE_ANYWHERE,
    UPDATE_STREAM,
    UPDATE_HOST
} UpdatePlace; /* offload.optimizer = true, "stream", "host" */

typedef struct { /* prefetch = { forward = { ... } }: what a use of the unit gathers ahead */
    Module **at;
    int n; /* 0: by depth */
} PrefetchList;

typedef enum { MATMUL_PLAIN, MATMUL_FP8 } MatmulDtype; /* what a unit's products are made in; plain: what they read */

/* Where the scales of 8 bits come from: the largest magnitude of a tensor as it is, that of steps before, or that of
 * each 128 elements. */
typedef enum { RECIPE_TENSOR, RECIPE_DELAYED, RECIPE_BLOCK } MatmulRecipe;

struct UnitPolicy { /* nn.fully_shard */
    Source src;
    Settings settings;
    int replicate, shard;      /* 0: the rest of the world */
    int expert;                /* over so many of the shard ranks experts are spread whole; 1: over none */
    int reshard_after_forward; /* 0 no · 1 yes · n>1 to a group of n */
    bool root_default;         /* reshard_after_forward was not written: the root stays gathered */
    Dtype param_dtype, grad_dtype, reduce_dtype, output_dtype;
    bool has_param_dtype, has_grad_dtype, has_reduce_dtype, has_output_dtype, cast_forward_inputs;
    MatmulDtype matmul, matmul_expert; /* of linears; of products of routed experts */
    MatmulRecipe recipe;
    Dtype matmul_grad; /* what gradients are quantized to */
    bool offload_params, offload_grads, offload_optimizer;
    UpdatePlace update; /* where the update of an offloaded optimizer runs */
    int prefetch_forward, prefetch_backward;
    PrefetchList forward_list, backward_list;
    /* Under accumulation: reshard_after_backward = false (parameters stay gathered between microbatches),
     * requires_gradient_sync = false (gradients are kept whole and reduced in the last microbatch alone),
     * requires_all_reduce = false (shards are summed over replicas there alone). */
    bool stay_gathered, defer_sync, defer_all_reduce;
    bool unshard_in_backward;      /* false: a promise that the backward reads no parameter, held to by shard */
    double gradient_divide_factor; /* of summed gradients; 0: the world. Microbatches are averaged in any case */
    Extension *all_gather;         /* NULL: bytes travel as they are stored */
};

#endif
