/* Times the kernels of a list, and finds for its matrix products the algorithm that is fastest on this GPU.
 * Relies on: calibrate.h; the list is what `shardc calibrate MODEL` prints (compiler/report/tasks.c).
 * Relied on by: main.c. */
#include "../algorithms.h"
#include "calibrate.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ── kernels by name ─────────────────────────────────────────────────────────────────────────────────────────────────
 */
#define NAMED(op)                                                                                                      \
    { #op, sc_k_##op }
static const struct {
    const char *op;
    sc_kernel *kernel;
} kernels[] = {
    NAMED(concat),
    NAMED(copy),
    NAMED(pad_slice),
    NAMED(full),
    NAMED(arange),
    NAMED(grad_seed),
    NAMED(store),
    NAMED(zero),
    NAMED(zero_gaps),
    NAMED(sum),
    NAMED(mean),
    NAMED(max),
    NAMED(max_grad),
    NAMED(matmul),
    NAMED(embedding),
    NAMED(embedding_grad),
    NAMED(layer_norm),
    NAMED(layer_norm_grad),
    NAMED(layer_norm_grad_w),
    NAMED(rms_norm),
    NAMED(rms_norm_grad),
    NAMED(rms_norm_grad_w),
    NAMED(softmax),
    NAMED(softmax_grad),
    NAMED(attention),
    NAMED(attention_grad),
    NAMED(rope),
    NAMED(dropout),
    NAMED(cross_entropy),
    NAMED(cross_entropy_grad),
    NAMED(cross_entropy_grads),
    NAMED(layer_norm_grads),
    NAMED(rms_norm_grads),
    NAMED(silu_mul_grad),
    NAMED(batch_norm),
    NAMED(batch_norm_grad),
    NAMED(sgd),
    NAMED(adam),
    NAMED(sum_squares),
    NAMED(amax),
    NAMED(clip_coefficient),
    NAMED(count_step),
    NAMED(coalesce),
    NAMED(scale),
    NAMED(update_scale),
};

sc_kernel *sc_kernel_named(const char *op) {
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (!strcmp(kernels[i].op, op)) return kernels[i].kernel;
    return NULL;
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

static bool read_tensor(char *text, sc_measured_task *m) {
    sc_tensor *t = &m->t.t[m->t.nt];
    char *field[5];
    for (int k = 0; k < 5; k++)
        if (!(field[k] = strsep(&text, ":"))) return false;
    t->dtype = (uint8_t)atoi(field[0]);
    m->alignment[m->t.nt] = atoi(field[1]);
    int dims = integers(field[2], 'x', t->shape, SC_DIMS);
    if (dims < 0 || integers(field[3], 'x', t->stride, SC_DIMS) != dims || t->dtype > BOOL) return false;
    t->dims = (uint8_t)dims;
    m->limit[m->t.nt++] = atoll(field[4]);
    return true;
}

bool sc_task_read(const char *line, sc_measured_task *m) {
    char *copy = strdup(line), *rest = copy, *field[10], *tensor;
    bool good = true;
    memset(m, 0, sizeof *m);
    for (int k = 0; k < 10; k++) good = good && (field[k] = strsep(&rest, "|"));
    if (good) {
        double f[SC_FLOATS];
        snprintf(m->op, sizeof m->op, "%s", field[0]);
        snprintf(m->variant, sizeof m->variant, "%s", field[1]);
        snprintf(m->key, sizeof m->key, "%s", field[2]);
        m->flops = atof(field[3]);
        m->bytes = atof(field[4]);
        m->count = atoi(field[5]);
        good = integers(field[6], ',', m->t.i, SC_INTS) >= 0;
        int n = sscanf(field[7], "%lf,%lf,%lf,%lf,%lf,%lf", &f[0], &f[1], &f[2], &f[3], &f[4], &f[5]);
        for (int k = 0; k < n && k < SC_FLOATS; k++) m->t.f[k] = f[k];
        m->t.ntable = integers(field[8], ',', m->table, (int)(sizeof m->table / sizeof *m->table));
        good = good && m->t.ntable >= 0;
        while (good && (tensor = strsep(&field[9], " \n")))
            if (*tensor) good = m->t.nt < SC_TENSORS && read_tensor(tensor, m);
    }
    m->t.table = NULL;
    free(copy);
    return good && m->t.nt > 0;
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
enum { COPIES = 4 };

/* As many copies of the operands as drive each other out of the L2. */
static int place_copies(sc_gpu *g, sc_measured_task *m, sc_task *tasks) {
    int n = 0;
    sc_pool_clear(g);
    while (n < COPIES && (n == 0 || (double)(g->used - g->reserved) < 3 * (double)g->cuda.l2_bytes) && sc_place(g, m)) {
        tasks[n] = m->t;
        tasks[n].table = m->table;
        n++;
    }
    return n;
}

static void time_one(sc_gpu *g, sc_measured_task *m, FILE *out) {
    sc_task tasks[COPIES];
    int n = place_copies(g, m, tasks);
    if (!n) {
        fprintf(stderr, "sc_calibrate: %s %s does not fit into the GPU: left out\n", m->op, m->key);
        return;
    }
    g->hot = m->flops > 100 * m->bytes; /* more arithmetic than bytes */
    double us = sc_time(g, sc_kernel_named(m->op), tasks, n);
    fprintf(out, "kernel %s%s|%s|%s|%.0f|%.0f|%.2f\n", m->op, g->cuda.deterministic ? "" : " fast", m->variant, m->key,
            m->flops, m->bytes, us);
}

static void time_fast(sc_gpu *g, sc_measured_task *m, FILE *out) {
    if (!strcmp(m->op, "attention_grad")) time_one(g, m, out);
}

int sc_tasks_run(const sc_wish *w, FILE *out) {
    sc_gpu g;
    sc_gpu_open(&g, 0, 0.7);
    if (w->quick)
        g.budget_us /= 20;
    else
        sc_warm(&g);
    int bad = over_file(w->tasks, &g, out, time_one);
    sc_attention_stop(&g.cuda); /* what it kept was made for the deterministic kernels */
    g.cuda.deterministic = false;
    sc_attention_start(&g.cuda);
    if (!bad) bad = over_file(w->tasks, &g, out, time_fast);
    sc_gpu_close(&g);
    return bad;
}

/* ── algorithms ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
enum { CANDIDATES = 16 };

static double time_choice(sc_gpu *g, sc_matmul_choice *c, sc_task *tasks, int n) {
    sc_matmul_table(&g->cuda, c, 1);
    double us = sc_time(g, sc_k_matmul, tasks, n);
    sc_matmul_table(&g->cuda, NULL, 0);
    return us;
}

/* The fastest of the heuristic's first ones, if it is worth an entry: more than 2 % faster than the first. */
static void choose_one(sc_gpu *g, sc_measured_task *m, FILE *out) {
    sc_matmul_choice c[CANDIDATES];
    sc_task tasks[COPIES];
    double first = 0, best = 0;
    int at = 0, n;
    if (strcmp(m->op, "matmul") || m->flops < 1e9) return;
    if (!(n = place_copies(g, m, tasks))) return;
    int found = sc_matmul_candidates(&tasks[0], c, CANDIDATES);
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
    g.budget_us = w->quick ? 1e3 : 6e3;
    if (!w->quick) sc_warm(&g);
    int bad = over_file(w->tasks, &g, out, choose_one);
    sc_gpu_close(&g);
    return bad;
}
