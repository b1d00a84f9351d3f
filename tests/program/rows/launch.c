/* y = 2 x, dx = 2 dy. Relies on: sc_extension.h. Relied on by: launch.lua. */
#include "sc_extension.h"

void twice(const sc_call *call, const float *x, float *y) {
    for (int64_t i = 0; i < call->tensor[0].numel; i++) y[i] = 2 * x[i];
}

void twice_grad(const sc_call *call, const float *gy, const float *x, const float *y, float *gx) {
    for (int64_t i = 0; i < call->tensor[0].numel; i++) gx[i] = 2 * gy[i];
}
