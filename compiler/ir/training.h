/* What a model says of its training: inputs, metrics, counts, options, optimizer, loss scale, schedule.
 * Relies on: ir.h, schema/optimizers.h, schema/moments8.h.
 * Relied on by: the front end, which reads it; shard, which makes states and updates of it; emit/ and report/. */
#ifndef SHARDC_TRAINING_H
#define SHARDC_TRAINING_H

#include "ir.h"
#include "schema/moments8.h"
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

/* Which parameters a group's patterns choose among: Muon's main optimizer leaves what is no matrix to `others`. */
typedef enum { OF_ANY, OF_MATRICES, OF_OTHERS } GroupOf;

typedef struct {
    const char **match;
    int nmatch;
    GroupOf of;
    Optimizer *optimizer;
    double lr, weight_decay;
    int number; /* in the list that the model wrote, from 1 */
    Source src;
} OptGroup;

typedef enum { ADJUST_ORIGINAL, ADJUST_MATCH_RMS_ADAMW, N_ADJUST } AdjustLr; /* Muon's, by a matrix's shape */

struct Optimizer {
    const sc_optimizer_info *rule; /* its row of schema/optimizers.h */
    const char *name;              /* of units: the rule's, "adamw 2" where the same rule has other numbers */
    int set;                       /* which of sc_record.of has its numbers; -1: no group is updated by it */
    Source src;
    double lr, beta1, beta2, eps, weight_decay, momentum;
    bool nesterov;
    Dtype moment_dtype;        /* fp32; bf16 rounded stochastically; int8, codes of sc_moments8.h */
    double ns_coefficients[3]; /* Muon's, as are these */
    int ns_steps;
    AdjustLr adjust;
    Optimizer *others;    /* of parameters that are no matrices; NULL: there are none */
    VEC(OptGroup) groups; /* of the model's own: group 0 is the default one, lr and weight_decay above */
};

/* How many a unit keeps. */
static inline int training_moments(const Optimizer *o) {
    if (sc_optimizer_takes(o->rule, "momentum") && o->momentum == 0) return 0;
    return o->rule->moments[1] ? 2 : o->rule->moments[0] ? 1 : 0;
}

/* Bytes that one moment of n elements takes, a multiple of 256. */
static inline int64_t training_moment_bytes(const Optimizer *o, int64_t n) {
    return o->moment_dtype == INT8 ? sc_moments8_bytes(n) : n * dtype_size(o->moment_dtype);
}

/* Muon updates matrices; a parameter of three dimensions is one of them for each first index. */
static inline bool training_is_matrix(const Param *p) {
    return p->dims == 2 || p->dims == 3;
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
    Optimizer *optimizer;              /* the model's */
    VEC(const Optimizer *) optimizers; /* it, then those that groups have instead */
    LrSchedule schedule;
    GradScaler *scaler;    /* NULL: none */
    double clip_grad_norm; /* 0: none */
    double ema_decay;      /* of the average of weights; 0: none is kept */
    int accumulate;        /* build-time default; 1 builds the single program */
    VEC(Metric) metrics;   /* 0 loss, 1 grad_norm, then names of nn.log_metric */
    VEC(CountSlot) counts;
    VEC(OptionValue) options;
    VEC(PolicyFile) policies; /* a later one stands over an earlier one */
};

static inline const Optimizer *training_optimizer(const Training *t, const Param *p) {
    return t->optimizer->groups.at[p->group].optimizer;
}
static inline bool training_counts_steps(const Training *t) {
    bool counts = false;
    for (int i = 0; i < t->optimizers.n; i++) counts |= t->optimizers.at[i]->rule->counts_steps;
    return counts;
}

#endif
