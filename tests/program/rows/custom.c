/* Custom ops in fp64, for central differences: y, z = x w + sin x, x / w; sizes stand in the signature. */
#include "sc_extension.h"

void mixed(const sc_call *call, const double x[3][4], const double (*w)[4], double *y, double z[12]) {
    for (int i = 0; i < 12; i++) {
        double a = x[i / 4][i % 4], b = w[i / 4][i % 4];
        y[i] = call->numbers[0] * a * b + sin(a);
        z[i] = a / b;
    }
}

void mixed_grad(const sc_call *call, const double *gy, const double *gz, const double *x, const double *w,
                const double *y, const double *z, double *gx, double *gw) {
    for (int64_t i = 0; i < call->tensor[0].numel; i++) {
        gx[i] = gy[i] * (call->numbers[0] * w[i] + cos(x[i])) + gz[i] / w[i];
        gw[i] = gy[i] * call->numbers[0] * x[i] - gz[i] * z[i] / w[i];
    }
}

/* Rows of w by index: an integer operand has no gradient. */
void rows(const sc_call *call, const int32_t *index, const double *w, double *y) {
    int64_t n = call->tensor[0].numel, width = call->tensor[1].size[1];
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < width; k++) y[i * width + k] = w[index[i] * width + k] * w[index[i] * width + k];
}

void rows_grad(const sc_call *call, const double *gy, const int32_t *index, const double *w, const double *y,
               double *gw) {
    int64_t n = call->tensor[1].numel, width = call->tensor[2].size[1];
    for (int64_t i = 0; i < call->tensor[2].numel; i++) gw[i] = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < width; k++) gw[index[i] * width + k] += 2 * gy[i * width + k] * w[index[i] * width + k];
}
