#include "sc_extension.h"

void pre_all_gather(const sc_piece *p, const float *x, sc_bf16_t *w) {

    w[0] = narrow(x[0]);
}
void post_all_gather(const sc_piece *p, const sc_bf16_t *w, float *y) {}
