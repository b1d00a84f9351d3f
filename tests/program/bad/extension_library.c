#include "sc_extension.h"

long write(int fd, const void *bytes, unsigned long n) {
    return (long)n;
}

void pre_all_gather(const sc_piece *p, const float *x, sc_bf16_t *w) {
    for (int64_t i = 0; i < p->end - p->begin; i++) w[i] = sc_to_bf16(x[i]);
}

void post_all_gather(const sc_piece *p, const sc_bf16_t *w, float *y) {
    for (int64_t i = 0; i < p->numel; i++) y[i] = sc_from_bf16(w[i]);
}

void twice(const sc_call *call, const float *x, float *y) {
    for (int64_t i = 0; i < call->tensor[0].numel; i++) y[i] = 2 * x[i];
}
