/* The optimizers, a row each: what optim.NAME takes, which states a unit keeps, the op of the update, the options that
 * a program has, and the name in builds and checkpoints. compiler/README.md says how to add one. Relies on: nothing.
 * Relied on by: the front end, shard, offload, cost and emit; host/ (options, checkpoints), common/finite.c. */
#ifndef SC_SCHEMA_OPTIMIZERS_H
#define SC_SCHEMA_OPTIMIZERS_H

#ifndef __cplusplus
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct {
    const char *name;   /* in builds and checkpoints */
    const char *lua;    /* optim.AdamW */
    const char *update; /* its op, one with T_OPTIMIZER */
    const char *keys;   /* of its options, beside lr, weight_decay, moment_dtype and groups, which all have */
    double lr, weight_decay, betas[2], eps, momentum; /* defaults */
    bool nesterov;
    /* Of an optimizer of whole matrices, the op on the shard that makes what is then gathered and orthogonalized: it
     * has the moments, and `update` has none. NULL: the update is all. */
    const char *before;
    /* The op's operands for what a unit keeps: its states moment1, moment2. With the key `momentum` there are none
     * where that is 0. */
    const char *moments[2];
    bool counts_steps; /* the op has an operand `step` */
    bool decoupled;    /* what an op with the flag `decoupled` gets: decay apart from the gradient */
    double flops;      /* an element */
} sc_optimizer_info;

static const sc_optimizer_info sc_optimizers[] = {
    {.name = "sgd",
     .lua = "SGD",
     .update = "sgd",
     .keys = "momentum nesterov",
     .lr = 1e-3,
     .moments = {"momentum"},
     .flops = 6},
    {.name = "adam",
     .lua = "Adam",
     .update = "adam",
     .keys = "betas eps",
     .lr = 1e-3,
     .betas = {0.9, 0.999},
     .eps = 1e-8,
     .moments = {"m", "v"},
     .counts_steps = true,
     .flops = 15},
    {.name = "adamw",
     .lua = "AdamW",
     .update = "adam",
     .keys = "betas eps",
     .lr = 1e-3,
     .weight_decay = 0.01,
     .betas = {0.9, 0.999},
     .eps = 1e-8,
     .moments = {"m", "v"},
     .counts_steps = true,
     .decoupled = true,
     .flops = 15},
    {.name = "lion",
     .lua = "Lion",
     .update = "lion",
     .keys = "betas",
     .lr = 1e-4,
     .betas = {0.9, 0.99},
     .moments = {"m"},
     .flops = 12},
    {.name = "muon",
     .lua = "Muon",
     .update = "muon",
     .before = "muon_momentum",
     .keys = "momentum nesterov eps ns_steps ns_coefficients adjust_lr_fn others",
     .lr = 1e-3,
     .weight_decay = 0.1,
     .eps = 1e-7,
     .momentum = 0.95,
     .nesterov = true,
     .moments = {"momentum"},
     .flops = 6},
};
enum { SC_OPTIMIZERS = sizeof sc_optimizers / sizeof *sc_optimizers };

static inline bool sc_optimizer_takes(const sc_optimizer_info *o, const char *key) {
    size_t n = strlen(key);
    for (const char *s = o->keys; s && (s = strstr(s, key)); s += n)
        if ((s == o->keys || s[-1] == ' ') && (!s[n] || s[n] == ' ')) return true;
    return false;
}

/* NULL: there is none of that name. */
static inline const sc_optimizer_info *sc_optimizer_named(const char *name) {
    for (int i = 0; i < SC_OPTIMIZERS; i++)
        if (!strcmp(sc_optimizers[i].name, name)) return &sc_optimizers[i];
    return NULL;
}

/* The first whose update the op is, or what goes before it; NULL: the op is no optimizer's. */
static inline const sc_optimizer_info *sc_optimizer_of(const char *op) {
    for (int i = 0; i < SC_OPTIMIZERS; i++)
        if (!strcmp(sc_optimizers[i].update, op) || (sc_optimizers[i].before && !strcmp(sc_optimizers[i].before, op)))
            return &sc_optimizers[i];
    return NULL;
}
#endif

#endif
