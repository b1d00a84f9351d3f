/* All that emitted code sees: tensors at fixed addresses, one call per event, and the tables that describe the build.
 * Relies on: schema/, the C library.
 * Relied on by: generated NAME.c and NAME_kernels.c, the kernels, runtime/host. */
#ifndef SC_H
#define SC_H

#include "schema/mesh.h"
#include "schema/record.h"
#include "schema/types.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sc_rank sc_rank; /* all state of one rank */

/* A tensor of the step: bytes `at` in the device arena (or the host arena), extents and strides in elements. */
typedef struct {
    uint64_t at;
    uint8_t host, dtype, dims;
    uint8_t there; /* 0: an optional operand that is absent */
    int64_t shape[SC_DIMS], stride[SC_DIMS];
    void *p; /* resolved by the runtime; NULL: absent */
} sc_tensor;

typedef struct { /* of numbers that the compiler knows */
    const float *at;
    int64_t n;
} sc_numbers;

#include "schema/args.h"

/* One event as a kernel sees it. Work is cut into `parts` static parts, each computing its own result elements; results
 * do not depend on `parts`. */
typedef struct {
    const sc_args *args; /* begins with the struct of the event's op; nothing behind that may be read */
    int slots;           /* tensors in it: results, operands, workspace */
    const sc_record *record;
    int rank, world;
    const sc_coord *coord; /* the rank's, on each axis of the build */
    int part, parts;
    void *stream,
        *library; /* CUDA: the cudaStream_t to launch on, and the rank's library handles (runtime/cuda/cuda.h) */
} sc_task;
typedef void sc_kernel(const sc_task *);

/* The rank's place among those that a unit's experts are spread over. expert: of the op, that axis + 1, or 0. A
 * parameter of n elements here is elements [place x n, + n) of the whole one. */
static inline int64_t sc_expert_place(const sc_task *task, int64_t expert) {
    return expert ? task->coord[expert - 1].at : 0;
}

/* SC_KERNEL(matmul) { ... } defines sc_k_matmul; its body reads `task` and `k`, the op's results, operands and
 * attributes: k->bias.p, k->trans_a. */
#ifdef __cplusplus
#define SC_KERNEL_SYMBOL extern "C"
#else
#define SC_KERNEL_SYMBOL
#endif
#define SC_KERNEL(name)                                                                                                \
    static void name##_kernel(const sc_task *task, const sc_##name##_args *k);                                         \
    SC_KERNEL_SYMBOL void sc_k_##name(const sc_task *task) {                                                           \
        name##_kernel(task, (const sc_##name##_args *)task->args);                                                     \
    }                                                                                                                  \
    static void name##_kernel(const sc_task *task, const sc_##name##_args *k)

/* ── the step's text ─────────────────────────────────────────────────────────────────────────────────────────────────
 */
void sc_wait(sc_rank *r, sc_stream s, int event); /* stream s goes on when `event` (of this program) is finished */
/* args: the op's struct, of `size` bytes, with `slots` tensors; copied. */
void sc_run(sc_rank *r, int event, sc_stream s, sc_kernel *k, const void *args, size_t size, int slots);
void sc_all_gather(sc_rank *r, int event, sc_stream s, int comm, sc_tensor out, sc_tensor in);
void sc_reduce_scatter(sc_rank *r, int event, sc_stream s, int comm, sc_tensor out, sc_tensor in);
void sc_all_to_all(sc_rank *r, int event, sc_stream s, int comm, sc_tensor out, sc_tensor in);
void sc_sum_ranks(sc_rank *r, int event, sc_stream s, int comm, sc_tensor out, sc_tensor in);
void sc_all_reduce(sc_rank *r, int event, sc_stream s, int comm, sc_tensor x);
void sc_copy_bytes(sc_rank *r, int event, sc_stream s, sc_tensor out, sc_tensor in); /* offload, fetch */

static inline int64_t sc_size(int dtype) { /* bytes an element */
    static const uint8_t size[] = SC_DTYPE_SIZES;
    return size[dtype];
}
static inline int64_t sc_numel(const sc_tensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->dims; d++) n *= t->shape[d];
    return n;
}

/* T(BF16, 0x1000, 8, 768): contiguous, in the device arena; H: in the host arena. V(BF16, 0x1000, 2, SHAPE(8, 768),
 * STRIDE(2304, 1)): a view; VH: in the host arena. All are constant, so that the step's text compiles to tables and
 * calls. */
sc_tensor sc_contiguous(int host, sc_dtype d, uint64_t at, int dims, const int64_t *shape);
#ifndef __cplusplus /* kernels in CUDA C++ have no use for these, and T and H other meanings */
#define SC_NARG(...) ((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))
#define SC_PACKED(h, d, a, n, s0, s1, s2, s3, s4, s5, ...)                                                             \
    ((sc_tensor){.at = (a),                                                                                            \
                 .there = 1,                                                                                           \
                 .host = (h),                                                                                          \
                 .dtype = (d),                                                                                         \
                 .dims = (n),                                                                                          \
                 .shape = {s0, s1, s2, s3, s4, s5},                                                                    \
                 .stride = {(int64_t)(s1) * (s2) * (s3) * (s4) * (s5), (int64_t)(s2) * (s3) * (s4) * (s5),             \
                            (int64_t)(s3) * (s4) * (s5), (int64_t)(s4) * (s5), s5, 1}})
#define T(d, a, ...) SC_PACKED(0, d, a, SC_NARG(__VA_ARGS__), ##__VA_ARGS__, 1, 1, 1, 1, 1, 1, 1)
#define BYTES(a, n) T(BOOL, a, n) /* an event's workspace */
#define H(d, a, ...) SC_PACKED(1, d, a, SC_NARG(__VA_ARGS__), ##__VA_ARGS__, 1, 1, 1, 1, 1, 1, 1)
#define SHAPE(...)                                                                                                     \
    { __VA_ARGS__ }
#define STRIDE(...)                                                                                                    \
    { __VA_ARGS__ }
#define V(d, a, n, sh, st) ((sc_tensor){.at = (a), .there = 1, .dtype = (d), .dims = (n), .shape = sh, .stride = st})
#define VH(d, a, n, sh, st)                                                                                            \
    ((sc_tensor){.at = (a), .there = 1, .host = 1, .dtype = (d), .dims = (n), .shape = sh, .stride = st})
/* RUN(matmul, e16, COMPUTE, .y = T(...), .a = T(...), .b = T(...), .trans_b = 1); */
#define RUN(k, e, s, ...)                                                                                              \
    do {                                                                                                               \
        static const sc_##k##_args args_ = {__VA_ARGS__};                                                              \
        sc_run(r, e, s, sc_k_##k, &args_, sizeof args_, SC_SLOTS_##k);                                                 \
    } while (0)
/* Kernels generated for this build. FUSED(relu_grad, e18b0, COMPUTE, .y = {T(...)}, .x = {T(...), T(...)}) runs that of
 * a fused group; RUN that of a model's own function, which has the struct of its op. */
#define FUSED(k, e, s, ...) RUN(fused_##k, e, s, __VA_ARGS__)
#define SC_FUSED(name, results, operands)                                                                              \
    typedef struct {                                                                                                   \
        sc_tensor y[results], x[operands];                                                                             \
    } sc_fused_##name##_args;                                                                                          \
    enum { SC_SLOTS_fused_##name = (results) + (operands) };                                                           \
    sc_kernel sc_k_fused_##name;
#define SC_CALLS(name, op)                                                                                             \
    typedef sc_##op##_args sc_##name##_args;                                                                           \
    enum { SC_SLOTS_##name = SC_SLOTS_##op };                                                                          \
    sc_kernel sc_k_##name;
#endif

/* ── tables of the build ─────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    int storage;
    int64_t offset, size;
} sc_access;
typedef struct {
    const char *id, *op, *module, *phase, *file;
    int line;
    sc_stream stream;
    const int *waits;
    int nwaits;
    const sc_access *reads, *writes;
    int nreads, nwrites;
    uint64_t written; /* bit k: tensor k of the event is written: a result, or updated in place */
} sc_event_info;
typedef struct {
    const char *name;
    uint64_t at;
    int64_t size;
    int host, program, first, last;
} sc_storage_info; /* program -1: persistent */
typedef struct {
    const char *name;
    void (*text)(sc_rank *r);
    const sc_event_info *events;
    int nevents;
    int64_t predicted_ns; /* from its start to its end, on the device that it was planned for; 0: not known */
} sc_program_info;
typedef struct { /* the groups of ranks along an axis */
    const char *name;
    int axis, chain; /* groups of different chains share no communicator */
} sc_comm_info;
typedef struct {
    const char *path, *owner;
    sc_dtype dtype;
    int dims;
    int64_t shape[SC_DIMS];
    int unit, trainable, buffer; /* buffer: whole on every rank at `at` */
    int64_t flat_offset;         /* in the unit's trainable or frozen flat buffer */
    int64_t numel;               /* of the whole; in the flat buffer of a unit of experts lies a rank's part of it */
    int group;
    uint64_t at;
    int scales;   /* of an int8 matrix: the number of the parameter that its rows are multiplied by, + 1; else 0 */
    int copies;   /* of a frozen copy: the number of the parameter that it begins as, + 1; else 0 */
    int internal; /* the program keeps it for itself: no file of weights has it, and a state may lack it */
} sc_param_info;
typedef struct { /* offsets of the rank's shard of each state; has[k]: it exists, host[k]: in the host arena */
    const char *path;
    int shard;  /* the axis along which its flat buffers lie in pieces */
    int expert; /* the axis along which lie other experts, each rank's in flat buffers of their own, + 1; 0: none */
    int64_t shard_numel, frozen_shard_numel;
    sc_dtype dtype, wire, moments;
    uint64_t master, wire_shard, m, v, frozen, average;
    int has_master, has_wire, has_m, has_v, has_frozen, has_average;
    int host_master, host_wire, host_m, host_v, host_frozen, host_average;
    const char *optimizer; /* NULL: the build's */
} sc_unit_info;
typedef struct { /* an optimizer that groups have instead of the build's */
    const char *name;
    double beta1, beta2, eps, momentum;
} sc_set_info;
typedef struct {
    const char *name, *from;
    sc_dtype dtype;
    int dims;
    int64_t shape[SC_DIMS];
    int shift;
    uint64_t at;
    int in_sample;
    int64_t limit; /* integer inputs: values lie in [0, limit) or equal a count's `ignore`; 0: not known */
    uint64_t sample_at;
    int sample_dims;
    int64_t sample_shape[SC_DIMS]; /* in_sample: its own state in the sample program */
    int sample_only;               /* no training or eval program reads it: `at` is unused */
    int record_dtype;              /* + 1: of records, converted when they arrive; 0: dtype */
    int tokens;                    /* its elements are what a batch is counted in; labels, say, are not */
} sc_input_info;
typedef struct {
    int input;
    int64_t ignore;
} sc_count_info;
typedef struct {
    double lr, weight_decay;
} sc_group_info;
typedef struct { /* what no option of the program changes and yet makes other numbers, for who compares two runs */
    const char *name, *value;
    int option; /* one of nn.options */
} sc_setting_info;
typedef struct {
    const char *name;
    int64_t bytes;
} sc_class_info;
typedef struct { /* one of the model's nn.options, as it holds */
    const char *name, *value;
} sc_option_info;
typedef struct { /* of params[param], index i of its first dimension: tensors BASE.(first + i).NAME.weight, NAME by
                    turns */
    int param, first, names;
    const char *base, *name[4];
} sc_stored_info;
typedef struct { /* to params[weight] an export may add scale · params[b] params[a] */
    int weight, a, b;
    int lengths; /* the sum's rows then get the lengths of the weight's plus params[lengths]; -1: their own */
    double scale;
} sc_adapter_info;
typedef struct { /* a value that --dump can copy out, after its event */
    const char *name;
    int program, event;
    sc_tensor t;
} sc_dump_info;

typedef struct {
    const char *name, *model_file, *target;
    const char *compiler; /* "shardc 0.1 (commit c2cba42)" */
    const char *policy;   /* names of the policy files over the model's own policies; NULL: none */
    const sc_option_info *options;
    int noptions;
    const char *arch; /* CUDA: "sm_90", what its kernels were compiled for */
    int deterministic;
    /* threads: of a rank, on the CPU; a CPU's workspaces are for so many. accumulate: 1 = the single program `micro` */
    int world, nodes, threads, accumulate;
    uint64_t arena_bytes, host_bytes;
    uint64_t library_bytes;    /* CUDA: on the device beside the arena, as the device profile predicts */
    uint64_t usable_bytes;     /* of the device, for one process; 0: not known */
    const sc_class_info *peak; /* what the arena holds when most of it is in use, by classes of storages */
    int npeak;
    const sc_program_info *programs;
    int nprograms;
    const sc_storage_info *storages;
    int nstorages;
    const sc_param_info *params;
    int nparams;
    const sc_unit_info *units;
    int nunits;
    const sc_axis *axes;
    int naxes;
    const sc_comm_info *comms;
    int ncomms;
    const sc_input_info *inputs;
    int ninputs;
    const sc_count_info *counts;
    int ncounts;
    const char *const *metrics;
    int nmetrics;
    uint64_t metric_sums;        /* bit i: metric i is a sum over ranks and microbatches; else their mean */
    uint64_t metrics_at;         /* fp32 each, summed over ranks and microbatches: loss (× 1), grad_norm, logs */
    uint64_t record_at, step_at; /* step_at: updates so far, int64, where it is counted */
    int has_scaler;
    uint64_t scaler_at; /* sc_scaler */
    const sc_adapter_info *adapters;
    int nadapters;
    const sc_stored_info *stored;
    int nstored;
    const sc_dump_info *dumps;
    int ndumps;
    int logits_program;
    uint64_t logits_at;
    sc_dtype logits_dtype;
    int64_t logits_shape[3]; /* sample: [1, seq, vocab], of which the row record.position is kept; program -1: none */
    const char *optimizer, *schedule;
    double beta1, beta2, eps, momentum, clip;
    const sc_set_info *sets; /* sc_record.of[1] and so on */
    int nsets;
    int64_t warmup, total, decay_steps;
    double min_ratio;
    const float *factors; /* schedule "function": of steps 0 to total - 1; else NULL */
    const sc_group_info *groups;
    int ngroups;
    const sc_setting_info *settings;
    int nsettings;
    const char *unused[3]; /* what the model has and no program uses, a line for each kind; NULL: nothing */
    const char *unproven;  /* what no shape of a parameter shows: "heads 12 of 64, eps 1e-05"; NULL: nothing */
    uint64_t plan_hash;    /* model identity for checkpoints: paths, shapes, dtypes */
    const char *plan_json;
    const char *plan_json_end;
} sc_build;

/* Which of a microbatch's samples are a rank's. */
static inline sc_coord sc_samples_of(const sc_build *b, int rank) {
    return sc_coord_on(&b->axes[SC_SAMPLES], rank);
}
#ifndef SC_COMPILER /* shardc says it where it compiles a program: the text stays the same from commit to commit */
#define SC_COMPILER "shardc"
#endif

extern const sc_build sc_this_build;

#ifdef __cplusplus
}
#endif
#endif
