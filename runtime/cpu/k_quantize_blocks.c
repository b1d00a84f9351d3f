/* quantize_blocks: a tensor in 8 bits over a scale for each 1 x 128, or 128 x 128, as it lies, turned, or both.
 * Relies on: kernel.h.
 * Relied on by: generated code (products in 8 bits by blocks). */
#include "kernel.h"

enum { SIDE = 128 };

static float larger(float a, float b) { /* a NaN, once met, stays */
    return a >= b || a != a ? a : b;
}

/* A square of at most 128 x 128 elements, whose first is x[r0][c0] of [rows][cols]. Results may be NULL. */
static void square(const sc_quantize_blocks_args *k, int64_t rows, int64_t cols, int64_t r0, int64_t c0,
                   const sc_tensor *y, float *scale, const sc_tensor *turned, float *across) {
    int64_t nr = sc_min(SIDE, rows - r0), nc = sc_min(SIDE, cols - c0), rb = r0 / SIDE, cb = c0 / SIDE;
    real buffer[SIDE], out[SIDE];
    float x[SIDE][SIDE], of_row[SIDE] = {0}, of_column[SIDE] = {0}, all = 0;
    for (int64_t r = 0; r < nr; r++) {
        const real *from = sc_in(&k->x, (r0 + r) * cols + c0, nc, buffer);
        for (int64_t c = 0; c < nc; c++) {
            x[r][c] = (float)from[c];
            float m = fabsf(x[r][c]);
            of_row[r] = larger(of_row[r], m), of_column[c] = larger(of_column[c], m);
        }
        all = larger(all, of_row[r]);
    }
    for (int64_t r = 0; r < nr && y; r++) {
        float amax = k->square ? all : of_row[r], by = sc_block_factor(amax);
        for (int64_t c = 0; c < nc; c++) out[c] = x[r][c] * by;
        sc_store(y, (r0 + r) * cols + c0, 1, nc, out);
        if (!k->square) scale[cb * rows + r0 + r] = sc_block_scale(amax);
    }
    for (int64_t c = 0; c < nc && turned; c++) {
        float amax = k->square ? all : of_column[c], by = sc_block_factor(amax);
        for (int64_t r = 0; r < nr; r++) out[r] = x[r][c] * by;
        sc_store(turned, (c0 + c) * rows + r0, 1, nr, out);
        if (!k->square) across[rb * cols + c0 + c] = sc_block_scale(amax);
    }
    if (k->square && y) scale[rb * (sc_ceil(cols, 4 * SIDE) * 4) + cb] = sc_block_scale(all);
    if (k->square && turned) across[cb * (sc_ceil(rows, 4 * SIDE) * 4) + rb] = sc_block_scale(all);
}

/* What stands behind the last square of each row of scales. */
static void pad(float *scale, int64_t rows, int64_t cols) {
    int64_t n = sc_ceil(cols, SIDE), pitch = sc_ceil(n, 4) * 4;
    for (int64_t r = 0; r < sc_ceil(rows, SIDE) && scale; r++)
        for (int64_t c = n; c < pitch; c++) scale[r * pitch + c] = 0;
}

SC_KERNEL(quantize_blocks) {
    int64_t cols = sc_cols(&k->x), rows = sc_numel(&k->x) / sc_max(cols, 1);
    const sc_tensor *y = k->turn ? NULL : &k->y, *turned = k->turn ? &k->y : sc_given(&k->turned);
    float *scale = k->turn ? NULL : (float *)k->scale.p;
    float *across = (float *)(k->turn ? k->scale.p : k->turned_scale.p);
    sc_range mine = sc_share(task, rows, SIDE);
    for (int64_t r = mine.begin; r < mine.end; r += SIDE)
        for (int64_t c = 0; c < cols; c += SIDE) square(k, rows, cols, r, c, y, scale, turned, across);
    if (!k->square || task->part) return;
    pad(scale, rows, cols);
    pad(across, cols, rows);
}
