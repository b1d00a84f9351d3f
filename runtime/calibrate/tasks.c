/* Times the kernels of a list, and finds for its matrix products the algorithm that is fastest on this GPU.
 * Relies on: calibrate.h, schema/ops.def; the list is what `shardc calibrate MODEL` prints (compiler/report/tasks.c).
 * Relied on by: main.c. */
#include "calibrate.h"
#include "cuda/algorithms.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ── kernels by name ─────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* What an op's struct ends with: a letter for each integer, A for those that are axes, LN for a list, and how many
 * floats. */
#define FLAG(name) "I"
#define INT(name) "I"
#define ENUM(name, type) "I"
#define FLAGS(name, type) "I"
#define AXIS(name) "A"
#define NUMBERS(name) "LN"
#define FLOAT(name) +1
#define FLOATS(name, n) +n
#define OP(name, notation, results, operands, integers, floats, ...)                                                   \
    static const char INTEGERS_##name[] = "" integers;                                                                 \
    enum { FLOATS_##name = 0 floats };
#include "schema/ops.def"

typedef struct { /* what a struct has behind its tensors */
    const int64_t *table;
    int64_t ntable;
    union {
        int64_t integer;
        double real;
        const float *list;
    } numbers[];
} sc_behind;
#define OP(name, ...)                                                                                                  \
    static_assert(sizeof(sc_##name##_args) == SC_SLOTS_##name * sizeof(sc_tensor) + sizeof(sc_behind) +                \
                                                  8 * (sizeof INTEGERS_##name - 1 + FLOATS_##name),                    \
                  "read_numbers knows how " #name "'s struct ends");
#include "schema/ops.def"

typedef struct {
    const char *op;
    sc_kernel *kernel;
    int slots, floats;
    const char *integers;
} entry;
#define OP(...)
#define KERNEL(op, ...) {#op, sc_k_##op, SC_SLOTS_##op, FLOATS_##op, INTEGERS_##op},
#define HOST_KERNEL KERNEL
#define UNTIMED_KERNEL OP
static const entry kernels[] = {
#include "schema/ops.def"
};

static const entry *entry_of(const char *op) {
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (!strcmp(kernels[i].op, op)) return &kernels[i];
    return NULL;
}

sc_kernel *sc_kernel_named(const char *op) {
    const entry *e = entry_of(op);
    return e ? e->kernel : NULL;
}

/* ── a line of the list ──────────────────────────────────────────────────────────────────────────────────────────────
 */
static int integers(char *text, char separator, int64_t *out, int most) {
    int n = 0;
    for (char *end; *text && n < most; text = *end == separator ? end + 1 : end) {
        out[n++] = strtoll(text, &end, 10);
        if (end == text || (*end && *end != separator)) return -1;
    }
    return n;
}

/* How many numbers a list has, with a blank between two; -1: it is none, or too long. */
static int read_list(const char *text, float *to, int most) {
    int n = 0;
    for (char *end; *text; text = end + (*end == ' ')) {
        if (n == most) return -1;
        to[n++] = strtof(text, &end);
        if (end == text || (*end && *end != ' ')) return -1;
    }
    return n;
}

/* Axes are given by their numbers of ranks, of which this process is the first. */
static bool read_numbers(char *text, const entry *e, sc_behind *to, sc_measured_task *m) {
    int integers = (int)strlen(e->integers), axes = 0;
    for (int k = 0; k < integers + e->floats; k++) {
        char *number = strsep(&text, ","), *end = NULL;
        if (!number) return false;
        if (k < integers && e->integers[k] == 'L') { /* of one list: the row of rope has no other */
            int n = read_list(number, m->list, sizeof m->list / sizeof *m->list);
            to->numbers[k++].list = m->list;
            to->numbers[k].integer = n;
            if (n < 0) return false;
            continue;
        }
        if (k < integers)
            to->numbers[k].integer = strtoll(number, &end, 10);
        else
            to->numbers[k].real = strtod(number, &end);
        if (end == number || *end) return false;
        if (k >= integers || e->integers[k] != 'A') continue;
        m->place[axes] = (sc_coord){0, (int)to->numbers[k].integer};
        to->numbers[k].integer = axes++;
    }
    return !text || !*text;
}

static bool read_tensor(char *text, sc_measured_task *m, int slot) {
    sc_tensor *t = &m->args.t[slot];
    char *field[5];
    if (!strcmp(text, "-")) return true;
    for (int k = 0; k < 5; k++)
        if (!(field[k] = strsep(&text, ":"))) return false;
    t->there = 1;
    t->dtype = (uint8_t)atoi(field[0]);
    m->shift[slot] = atoi(field[1]) < 8 ? (size_t)1 << atoi(field[1]) : 0;
    int dims = integers(field[2], 'x', t->shape, SC_DIMS);
    if (dims < 0 || integers(field[3], 'x', t->stride, SC_DIMS) != dims || t->dtype >= N_DTYPES) return false;
    t->dims = (uint8_t)dims;
    m->limit[slot] = atoll(field[4]);
    return true;
}

static bool read_args(char *numbers, char *table, char *tensors, const entry *e, sc_measured_task *m) {
    sc_behind *behind = (sc_behind *)(m->args.t + e->slots);
    int n = integers(table, ',', m->table, (int)(sizeof m->table / sizeof *m->table));
    behind->table = m->table;
    behind->ntable = n;
    bool good = n >= 0 && read_numbers(numbers, e, behind, m);
    for (char *tensor; good && (tensor = strsep(&tensors, " \n"));)
        if (*tensor) good = m->slots < e->slots && read_tensor(tensor, m, m->slots++);
    return good && m->slots == e->slots;
}

bool sc_task_read(const char *line, sc_measured_task *m) {
    enum { FIELDS = 9 };
    char *copy = strdup(line), *rest = copy, *field[FIELDS];
    bool good = true;
    memset(m, 0, sizeof *m);
    for (int k = 0; k < FIELDS; k++) good = good && (field[k] = strsep(&rest, "|"));
    if (good) {
        snprintf(m->op, sizeof m->op, "%s", field[0]);
        snprintf(m->variant, sizeof m->variant, "%s", field[1]);
        snprintf(m->key, sizeof m->key, "%s", field[2]);
        m->flops = atof(field[3]);
        m->bytes = atof(field[4]);
        m->count = atoi(field[5]);
        const entry *e = entry_of(m->op);
        if (e) good = read_args(field[6], field[7], field[8], e, m);
    }
    free(copy);
    return good;
}

/* Calls `each` for every task of the file that is good for something. */
static int over_file(const char *path, sc_gpu *g, FILE *out, void (*each)(sc_gpu *, sc_measured_task *, FILE *)) {
    char *line = NULL;
    size_t size = 0;
    int number = 0;
    FILE *f = fopen(path, "r");
    sc_measured_task *m = malloc(sizeof *m);
    if (!f) {
        fprintf(stderr, "sc_calibrate: cannot read %s: %s; make the list with `shardc calibrate MODEL.lua -o FILE`\n",
                path, strerror(errno));
        return 1;
    }
    while (getline(&line, &size, f) >= 0) {
        number++;
        if (*line == '#') continue;
        if (!sc_task_read(line, m)) {
            fprintf(stderr, "sc_calibrate: %s:%d: not a kernel as `shardc calibrate MODEL.lua` prints them\n", path,
                    number);
            return 1;
        }
        if (sc_kernel_named(m->op)) each(g, m, out);
    }
    if (ferror(f)) {
        fprintf(stderr, "sc_calibrate: cannot read %s: %s\n", path, strerror(errno));
        return 1;
    }
    free(line);
    free(m);
    fclose(f);
    return 0;
}

/* ── kernels ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* The kernel that attention's variant names: on a GPU of compute capability 9.0 too those for any GPU, and cuDNN's, of
 * which the backward wants any order. */
static double time_variant(sc_gpu *g, const sc_measured_task *m, const sc_placed_task *tasks, int n) {
    sc_cuda is = g->cuda;
    if (!strncmp(m->op, "attention", 9) && !strstr(m->variant, " hopper")) {
        if (is.major == 9) g->cuda.major = 8;
        g->cuda.deterministic = strstr(m->variant, " own") != NULL;
    }
    double us = sc_time(g, sc_kernel_named(m->op), tasks, n);
    g->cuda.major = is.major, g->cuda.deterministic = is.deterministic;
    return us;
}

static void time_one(sc_gpu *g, sc_measured_task *m, FILE *out) {
    sc_placed_task tasks[SC_COPIES];
    int n = sc_place_copies(g, m, tasks);
    if (!n) {
        fprintf(stderr, "sc_calibrate: %s %s does not fit into the GPU: left out\n", m->op, m->key);
        return;
    }
    g->hot = m->flops > 100 * m->bytes; /* more arithmetic than bytes */
    double us = time_variant(g, m, tasks, n);
    fprintf(out, "kernel %s|%s|%s|%.0f|%.0f|%.2f|%.0f\n", m->op, m->variant, m->key, m->flops, m->bytes, us, g->mhz);
}

int sc_tasks_run(const sc_wish *w, FILE *out) {
    sc_gpu g;
    sc_gpu_open(&g, 0, 0.7);
    if (w->trial)
        g.budget_us /= 20;
    else
        sc_warm(&g);
    int bad = over_file(w->tasks, &g, out, time_one);
    sc_gpu_close(&g);
    return bad;
}

/* ── algorithms ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
enum { CANDIDATES = 16 };

static double time_choice(sc_gpu *g, sc_matmul_choice *c, const sc_placed_task *tasks, int n) {
    sc_matmul_table(&g->cuda, c, 1);
    double us = sc_time(g, sc_k_matmul, tasks, n);
    sc_matmul_table(&g->cuda, NULL, 0);
    return us;
}

/* The fastest of the heuristic's first ones, if it is worth an entry: more than 2 % faster than the first. */
static void choose_one(sc_gpu *g, sc_measured_task *m, FILE *out) {
    sc_matmul_choice c[CANDIDATES];
    sc_placed_task tasks[SC_COPIES];
    double first = 0, best = 0;
    int at = 0, n;
    if (strcmp(m->op, "matmul") || m->flops < 1e9) return;
    if (!(n = sc_place_copies(g, m, tasks))) return;
    int found = sc_matmul_candidates(&tasks->task, c, CANDIDATES);
    for (int i = 0; i < found; i++) {
        double us = time_choice(g, &c[i], tasks, n);
        if (!i) first = best = us;
        if (us < best) best = us, at = i;
        g->limit_us = 1.1 * best + 5; /* launching by itself takes longer than in a graph */
    }
    g->limit_us = 0;
    if (best > 0.98 * first) return;
    first = best = 0;
    g->hot = true;
    for (int i = 0; i < 2; i++) { /* again, in turns and at the clocks of a step */
        first += time_choice(g, &c[0], tasks, n) / 2;
        best += time_choice(g, &c[at], tasks, n) / 2;
    }
    g->hot = false;
    char remark[120];
    snprintf(remark, sizeof remark, "%.1f us, the heuristic's first %.1f", best, first);
    if (best < 0.98 * first) sc_algorithms_entry(out, &c[at], remark);
}

int sc_table_run(const sc_wish *w, FILE *out) {
    sc_gpu g;
    struct cudaDeviceProp p;
    sc_gpu_open(&g, 0, 0.7);
    SC_CUDA(cudaGetDeviceProperties(&p, 0));
    sc_algorithms_header(out, p.name, sc_library_version(SC_LIB_CUBLASLT));
    g.budget_us = w->trial ? 1e3 : 6e3;
    if (!w->trial) sc_warm(&g);
    int bad = over_file(w->tasks, &g, out, choose_one);
    sc_gpu_close(&g);
    return bad;
}
