/* quantize: a tensor over a scale in 8 bits, as it lies, turned, or both.
 * Relies on: kernel.h.
 * Relied on by: generated code (products in 8 bits). */
#include "kernel.h"

enum { PANEL = 64 /* rows that are turned at once */ };

/* Rows [r0, r0 + rows) of x, times `by`: in 8 bits to y, and as columns to `turned` (either may be NULL). */
static void panel(const sc_tensor *x, int64_t cols, int64_t r0, int64_t rows, float by, const sc_tensor *y,
                  const sc_tensor *turned) {
    real in[SC_CHUNK], out[SC_CHUNK], column[PANEL];
    real block[PANEL][PANEL];
    int64_t all = sc_numel(x) / sc_max(cols, 1);
    for (int64_t c0 = 0; c0 < cols; c0 += PANEL) {
        int64_t n = sc_min(PANEL, cols - c0);
        for (int64_t r = 0; r < rows; r++) {
            int64_t at = (r0 + r) * cols + c0;
            const real *from = sc_in(x, at, n, in);
            SC_ELEMENTWISE
            for (int64_t j = 0; j < n; j++) out[j] = (real)((float)from[j] * by);
            if (y) sc_store(y, at, 1, n, out);
            memcpy(block[r], out, (size_t)n * sizeof *out);
        }
        for (int64_t j = 0; j < n && turned; j++) {
            for (int64_t r = 0; r < rows; r++) column[r] = block[r][j];
            sc_store(turned, (c0 + j) * all + r0, 1, rows, column);
        }
    }
}

SC_KERNEL(quantize) {
    float amax = (float)sc_get(&k->amax, 0), most = k->y.dtype == FP8_E4M3 ? 448 : 57344;
    float by = amax == 0 ? 1 : most / amax;
    int64_t cols = sc_cols(&k->x), rows = sc_numel(&k->x) / sc_max(cols, 1);
    sc_range mine = sc_share(task, rows, PANEL);
    const sc_tensor *turned = k->turn ? &k->y : sc_given(&k->turned);
    for (int64_t r = mine.begin; r < mine.end; r += PANEL)
        panel(&k->x, cols, r, sc_min(PANEL, mine.end - r), by, k->turn ? NULL : &k->y, turned);
    if (!task->part) sc_set(&k->scale, 0, amax == 0 ? 1 : (double)(amax / most));
}
