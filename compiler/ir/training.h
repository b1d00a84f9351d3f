/* What a model says of its training: inputs, metrics, counts, options, optimizer, loss scale, schedule.
 * Relies on: ir.h, schema/optimizers.h.
 * Relied on by: the front end, which reads it; shard, which makes states and updates of it; emit/ and report/. */
#ifndef SHARDC_TRAINING_H
#define SHARDC_TRAINING_H

#include "ir.h"
#include "schema/optimizers.h"

struct Input {
    const char *name;
    Dtype dtype;
    int dims;
    int64_t shape[MAX_DIMS]; /* one rank's microbatch */
    const char *from;        /* data source: "tokens" or a record field */
    int shift;
    int ordinal;   /* of the nn.input call: inputs stand in the order in which they were written */
    bool tokens;   /* its elements are what a batch is counted in */
    int64_t limit; /* rows of the smallest table that its elements index; 0: none */
    Source src;
    Value *value, *sample_value; /* in the training trace; in the sample trace (NULL: not used there) */
    State *state;
};

typedef struct { /* index in Graph.metrics = slot in S_METRICS */
    const char *name;
    Source src;
    bool is_sum;
} Metric;

typedef struct {
    const char **match;
    int nmatch;
    double lr, weight_decay;
    Source src;
} OptGroup;

typedef struct {
    const sc_optimizer_info *rule; /* its row of schema/optimizers.h */
    Source src;
    double lr, beta1, beta2, eps, weight_decay, momentum;
    bool nesterov;
    Dtype moment_dtype;   /* fp32, or bf16 rounded stochastically */
    VEC(OptGroup) groups; /* group 0 is the default one: lr and weight_decay above */
} Optimizer;

/* How many a unit keeps. */
static inline int training_moments(const Optimizer *o) {
    if (sc_optimizer_takes(o->rule, "momentum") && o->momentum == 0) return 0;
    return o->rule->moments[1] ? 2 : o->rule->moments[0] ? 1 : 0;
}

typedef struct { /* optim.GradScaler */
    Source src;
    double init_scale, growth_factor, backoff_factor;
    int64_t growth_interval;
    bool without_fp16; /* wanted though nothing is fp16 */
} GradScaler;

typedef enum { SCHED_CONSTANT, SCHED_LINEAR, SCHED_COSINE, SCHED_WSD, SCHED_FUNCTION } SchedKind;
typedef struct {
    SchedKind kind;
    int64_t warmup, total, decay_steps;
    double min_ratio;
    const float *factors; /* of a function of the model file: what it returned for steps 0 to total - 1 */
} LrSchedule;

typedef struct OptionValue { /* nn.options as resolved */
    const char *name;
    Source src;
    const char *text;
    const char *overridden; /* the policy file that decides what the option is about; NULL: it holds as it is */
} OptionValue;

/* A --policy file, or what --budget chose. */
typedef struct PolicyFile {
    const char *name;
    VEC(const char *) changes; /* what the model's own policies were before it: "recompute", "offload" */
} PolicyFile;

/* A loss's normaliser: the host counts targets of `input` unequal to `ignore` over the whole step. Slot = index. */
typedef struct {
    Input *input;
    int64_t ignore;
} CountSlot;

struct Training {
    Optimizer *optimizer;
    LrSchedule schedule;
    GradScaler *scaler;    /* NULL: none */
    double clip_grad_norm; /* 0: none */
    int accumulate;        /* build-time default; 1 builds the single program */
    VEC(Metric) metrics;   /* 0 loss, 1 grad_norm, then names of nn.log_metric */
    VEC(CountSlot) counts;
    VEC(OptionValue) options;
    VEC(PolicyFile) policies; /* a later one stands over an earlier one */
};

#endif
