/* What the parts of sc_calibrate share. Each stage runs in a process of its own, on a fresh context, and hands its
 * measurements to the first one, which never touches CUDA, as lines of text: "kernel matmul|bf16 nn|64,64,64,1|9.3".
 * Relies on: cuda.h, sc_kernels.h, matmul.h.
 * Relied on by: all of runtime/calibrate/. */
#ifndef SC_CALIBRATE_H
#define SC_CALIBRATE_H

#include "cuda/cuda.h"
#include "cuda/library.h"
#include "cuda/matmul.h"
#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *profile, *table, *tasks; /* files; NULL: standard output; none; none but the built-in ones */
    const char *name;                    /* of the profile */
    int world;                           /* most GPUs to measure collectives on */
    bool trial;                          /* a hundredth of the time: for trying out the program */
    bool quick;                          /* only what differs between two machines of one kind */
} sc_wish;

typedef struct { /* of multiprocessor `sm`, whose counter counts its clock's ticks */
    unsigned long long ticks, ns;
    unsigned sm;
} sc_ticks;

/* ── one GPU: gpu.c ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    sc_cuda cuda;
    cudaStream_t stream;
    char *pool;                        /* operands, one task at a time */
    size_t pool_bytes, used, reserved; /* reserved: of it, for good */
    void *noise[N_DTYPES];             /* by dtype: values as those of a training step */
    sc_record *record;                 /* on the device */
    double budget_us;                  /* time to spend on a measurement */
    double limit_us;                   /* a kernel whose second call takes longer is not measured closer; 0: none */
    bool hot;                          /* what is measured now is arithmetic */
    cudaGraphExec_t step;              /* some 40 ms of products and copies: clocks are then what they are in a step */
    double mhz;                        /* the multiprocessors' mean clock during the last measurement */
    sc_ticks *ticks;                   /* two, of its beginning and its end */
} sc_gpu;

void sc_gpu_open(sc_gpu *g, int device, double share); /* share: of the free memory that the pool takes */
void sc_gpu_close(sc_gpu *g);
sc_record sc_record_of_a_step(void);
void sc_need(sc_cuda_library l); /* opens it, or ends the process with the reason */

typedef struct { /* a line of compiler/report/tasks.c; not to be moved: args has the address of its table */
    char op[40], variant[48], key[160];
    double flops, bytes;
    int count, slots;
    sc_args args;              /* whose tensors have no memory yet */
    size_t shift[SC_TENSORS];  /* a tensor begins so many bytes behind a multiple of 512 */
    int64_t limit[SC_TENSORS]; /* of an index's values; 0: none */
    int64_t table[SC_INTS * 64];
    float list[2048];
    sc_coord place[SC_INTS]; /* on the axes that its numbers name */
} sc_measured_task;

typedef struct { /* with memory; not to be moved: task has the address of args */
    sc_args args;
    sc_task task;
} sc_placed_task;

sc_kernel *sc_kernel_named(const char *op); /* NULL: none of the library */
/* A contiguous copy of n bf16. */
void sc_copy_task(sc_measured_task *m, int64_t n);
typedef struct { /* dtypes; whether a and b are given turned; Cost.variant of compiler/ir/rules_matrix.c */
    int a, b, y, trans_a, trans_b;
    const char *variant;
} sc_product;
/* A product of contiguous matrices; those of 8 bits have scales. */
void sc_product_task(sc_measured_task *m, const sc_product *p, int64_t rows, int64_t columns, int64_t depth);
/* The largest magnitude of a contiguous matrix in bf16; the matrix in 8 bits, `dtype`, as it lies, turned, or both. */
void sc_absmax_task(sc_measured_task *m, int64_t rows, int64_t columns);
void sc_quantize_task(sc_measured_task *m, int dtype, bool turn, bool both, int64_t rows, int64_t columns);
/* Operands in the pool, filled; false: they do not fit. Called again for more copies, so that caches do not help. */
bool sc_place(sc_gpu *g, const sc_measured_task *m, sc_placed_task *to);
void sc_pool_clear(sc_gpu *g);
enum { SC_COPIES = 4 };
/* As many copies of the operands, at most SC_COPIES, as drive each other out of the L2: how many they are. */
int sc_place_copies(sc_gpu *g, const sc_measured_task *m, sc_placed_task *tasks);
/* Prints "kernel matmul|..." of a product of these sizes; its FLOP/s, 0 where it does not fit. */
double sc_time_product(sc_gpu *g, FILE *out, const sc_product *p, int64_t rows, int64_t columns, int64_t depth);

/* Microseconds of one call among many of the same in a graph. `more`: further tasks to take turns with. */
double sc_time(sc_gpu *g, sc_kernel *k, const sc_placed_task *tasks, int n);
double sc_time_graph(sc_gpu *g, cudaGraph_t graph, int calls);
/* The mean clock, MHz, of what the stream runs between the two calls; the second waits for it. */
void sc_clock_start(sc_gpu *g);
double sc_clock_stop(sc_gpu *g);
void sc_warm(sc_gpu *g); /* from now on measurements are taken in the midst of what a step does */

void sc_read_ticks(sc_ticks *out, cudaStream_t s); /* clock.cu */

/* pointwise.cu */
typedef struct {
    const char *op;
    sc_kernel *kernel;
    int tensors; /* a result and operands, of one shape */
} sc_function;
extern const sc_function sc_functions[]; /* ends with a NULL */

/* ── tasks.c: kernels and products by list ───────────────────────────────────────────────────────────────────────── */
bool sc_task_read(const char *line, sc_measured_task *m); /* false: it is none */
int sc_tasks_run(const sc_wish *w, FILE *out);            /* "kernel ..." */
int sc_table_run(const sc_wish *w, FILE *out);            /* a table as algorithms.h says */

/* ── the other stages; each returns an exit status ───────────────────────────────────────────────────────────────── */
int sc_device_run(const sc_wish *w, FILE *out);      /* sweeps.c: "device ...", "value ...", "kernel copy..." */
int sc_fp8_run(const sc_wish *w, FILE *out);         /* fp8.c: "kernel ...", "sustained ...", "value ..." */
int sc_collectives_run(const sc_wish *w, FILE *out); /* collectives.c: "collective all_gather|2|bytes|us" */
int sc_footprint_run(const sc_wish *w, FILE *out);   /* footprint.c: "library context|bytes" */
int sc_quick_run(const sc_wish *w, FILE *out);       /* sweeps.c: "device ...", "value ..." */
int sc_host_stage(const sc_wish *w, FILE *out);      /* host.c: "host copies|2|up|down|both", "host update|2|each" */
int sc_unwritten(FILE *out); /* members.c: 0 where all is in the temporary file that stages write; else says why not */

/* profile.c: from all the lines to a device profile */
void sc_profile_write(FILE *f, const sc_wish *w, char **lines, int n);

#ifdef __cplusplus
}
#endif
#endif
