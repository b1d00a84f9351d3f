/* Products of groups: each row of a times the matrix of its group; and its gradient, a product over each group's rows.
 * Sums are made in real and rounded once.
 * Relies on: panels.h, k_blas.c; a workspace of 4 MiB a part where a tensor is not of type real.
 * Relied on by: generated code. Contiguous operands.
 *
 * Groups and their sizes make the tiles, and a part computes whole tiles: an element's bits do not depend on the number
 * of parts. Counts are cut to the rows that there are, so that no count reaches outside. */
#include "panels.h"

typedef struct {
    int64_t begin, end;
} group;

/* Rows of the next group, behind those of the one before. */
static group next(const sc_tensor *counts, int64_t g, group before, int64_t rows) {
    int64_t n = sc_min(sc_max(sc_index(counts, g), 0), rows - before.end);
    return (group){before.end, before.end + n};
}

/* What sums are multiplied by: 1, or the scales of operands of 8 bits. */
static real scale_of(const sc_tensor *a, const sc_tensor *b) {
    return a->p ? (real)sc_get(a, 0) * (real)sc_get(b, 0) : 1;
}

static real *panels(const sc_task *task, const sc_tensor *work) {
    return work->p ? (real *)((char *)work->p + (int64_t)task->part * SC_CPU_MATMUL_BYTES) : NULL;
}

/* A tile of y from element y0 on, its rows `ld` apart: sums times `scale`. bias: NULL, or what is added to each row,
 * from element b0 on. */
static void tile(const sc_tensor *y, int64_t y0, int64_t ld, sc_side a, sc_side b, int64_t rows, int64_t cols,
                 int64_t k, real *work, real scale, const sc_tensor *bias, int64_t b0) {
    int real_y = y->dtype == SC_REAL;
    real *c = real_y ? (real *)y->p + y0 : sc_panel_sums(work);
    int64_t apart = real_y ? ld : cols;
    real buffer[COLS];
    sc_sums(a, b, rows, cols, k, work, 0, c, apart);
    for (int64_t i = 0; i < rows && scale != 1; i++)
        for (int64_t j = 0; j < cols; j++) c[i * apart + j] *= scale;
    if (bias) {
        const real *x = sc_in(bias, b0, cols, buffer);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++) c[i * apart + j] += x[j];
    }
    for (int64_t i = 0; i < rows && !real_y; i++) sc_store(y, y0 + i * ld, 1, cols, c + i * cols);
}

SC_KERNEL(grouped_matmul) {
    const sc_tensor *y = &k->y, *a = &k->a, *b = &k->b;
    int64_t all = a->shape[0], depth = a->shape[1], n = y->shape[1], groups = sc_numel(&k->counts);
    int64_t across = sc_ceil(n, COLS), tiles = sc_ceil(all, ROWS) + groups;
    int turned = b->dims == 2, deep = turned || k->trans_b; /* turned: [n][groups depth] */
    int64_t size = turned ? depth : depth * n, ld = turned ? groups * depth : deep ? depth : n;
    sc_range mine = sc_share(task, tiles * across, 1);
    real *work = panels(task, &k->work), scale = scale_of(&k->scale_a, &k->scale_b);
    group g = {0, 0};
    int64_t u = 0;
    for (int64_t i = 0; i < groups; i++) {
        g = next(&k->counts, i, g, all);
        for (int64_t r = g.begin; r < g.end; r += ROWS)
            for (int64_t c = 0; c < n; c += COLS, u++) {
                if (u < mine.begin || u >= mine.end) continue;
                sc_side x = {a, r * depth, depth, 0}, w = {b, i * size + (deep ? c * ld : c), ld, deep};
                tile(y, r * n + c, n, x, w, sc_min(ROWS, g.end - r), sc_min(COLS, n - c), depth, work, scale,
                     k->bias.p ? &k->bias : NULL, i * n + c);
            }
    }
    if (task->part == task->parts - 1) memset(sc_at(y, g.end * n), 0, (size_t)((all - g.end) * n * sc_size(y->dtype)));
}

SC_KERNEL(grouped_matmul_grad) {
    const sc_tensor *y = &k->y, *a = &k->a, *b = &k->c;
    int turned = k->scale_a.p != NULL; /* a and c: [m][rows], [n][rows] */
    int64_t all = a->shape[turned], m = y->shape[1], n = y->shape[2], groups = y->shape[0];
    int64_t down = sc_ceil(m, ROWS), across = sc_ceil(n, COLS), u = 0;
    sc_range mine = sc_share(task, groups * down * across, 1);
    real *work = panels(task, &k->work), scale = scale_of(&k->scale_a, &k->scale_c);
    group g = {0, 0};
    for (int64_t i = 0; i < groups; i++) {
        g = next(&k->counts, i, g, all);
        for (int64_t r = 0; r < m; r += ROWS)
            for (int64_t c = 0; c < n; c += COLS, u++) {
                if (u < mine.begin || u >= mine.end) continue;
                sc_side x = {a, turned ? r * all + g.begin : g.begin * m + r, turned ? all : m, !turned},
                        w = {b, turned ? c * all + g.begin : g.begin * n + c, turned ? all : n, turned};
                tile(y, (i * m + r) * n + c, n, x, w, sc_min(ROWS, m - r), sc_min(COLS, n - c), g.end - g.begin, work,
                     scale, NULL, 0);
            }
    }
}
