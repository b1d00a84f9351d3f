/* Pointwise kernels of mlp, one a fused group. Written by shardc; edits are lost.
 * Each value is rounded to its dtype where its op stands in the model: as_bf16(x) is x in bf16.
 * Relies on: runtime/sc_pointwise.h, runtime/schema/math.h. */
#include "sc.h"
#include "schema/math.h"
#include "sc_pointwise.h"

extern const char sc_build_mark[];
const char sc_build_mark[] = "SHARDC_KERNELS"; /* what a build is known by */

/* mlp · forward · models/mlp.lua:24 */
static inline __attribute__((always_inline)) void row_relu(int64_t n, sc_bf16_t *y0, int64_t sy0,
        const sc_bf16_t *x0, int64_t sx0) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        const real a0 = sc_from_bf16(x0[i * sx0]);
        const real v0 = as_bf16(a0 <= 0 ? 0 : a0); /* relu  mlp.lua:24 */
        y0[i * sy0] = sc_to_bf16(v0);
    }
}

void sc_k_fused_relu(const sc_task *t) {
    sc_rows w;
    for (sc_rows_begin(&w, t); w.n; sc_rows_next(&w)) {
        if (sc_rows_step(&w, "11"))
            row_relu(w.n, w.at[0], 1, w.at[1], 1);
        else
            row_relu(w.n, w.at[0], w.stride[0], w.at[1], w.stride[1]);
    }
}

/* mlp · backward · models/mlp.lua:24 */
static inline __attribute__((always_inline)) void row_relu_grad(int64_t n, sc_bf16_t *y0, int64_t sy0,
        const sc_bf16_t *x0, int64_t sx0, const sc_bf16_t *x1, int64_t sx1) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        const real a0 = sc_from_bf16(x0[i * sx0]);
        const real a1 = sc_from_bf16(x1[i * sx1]);
        const real v0 = as_bf16(a1 <= 0 ? 0 : a0); /* relu_grad  mlp.lua:24 */
        y0[i * sy0] = sc_to_bf16(v0);
    }
}

void sc_k_fused_relu_grad(const sc_task *t) {
    sc_rows w;
    for (sc_rows_begin(&w, t); w.n; sc_rows_next(&w)) {
        if (sc_rows_step(&w, "111"))
            row_relu_grad(w.n, w.at[0], 1, w.at[1], 1, w.at[2], 1);
        else
            row_relu_grad(w.n, w.at[0], w.stride[0], w.at[1], w.stride[1], w.at[2], w.stride[2]);
    }
}

