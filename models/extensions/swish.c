/* A custom op and its gradient: y = x * sigmoid(beta x), beta = call->numbers[0].
 * Relies on: sc_extension.h. Relied on by: custom.lua. */
#include "sc_extension.h"

void swish(const sc_call *call, const float *x, float *y) {
    float beta = (float)call->numbers[0];
    for (int64_t i = 0; i < call->tensor[0].numel; i++) y[i] = x[i] / (1 + expf(-beta * x[i]));
}

/* dy/dx = s + beta y (1 - s) with s = sigmoid(beta x) */
void swish_grad(const sc_call *call, const float *gy, const float *x, const float *y, float *gx) {
    float beta = (float)call->numbers[0];
    for (int64_t i = 0; i < call->tensor[0].numel; i++) {
        float s = 1 / (1 + expf(-beta * x[i]));
        gx[i] = gy[i] * (s + beta * y[i] * (1 - s));
    }
}
