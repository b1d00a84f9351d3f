/* Parameters are stored in fp32 and travel in fp8_e4m3, scaled so that the largest magnitude of each, which `amax`
 * gives on all ranks, becomes the largest fp8 number: a quarter of the bytes. Relies on: sc_extension.h. Relied on by:
 * gather.lua. */
#include "sc_extension.h"

static float scale_of(float amax) {
    return amax > 1e-35f ? 448 / amax : 1; /* a smaller one would make the scale infinite */
}

void pre_all_gather(const sc_piece *p, const float *stored, const float *amax, sc_fp8_e4m3_t *wire) {
    float scale = scale_of(*amax);
    for (int64_t i = 0; i < p->end - p->begin; i++) wire[i] = sc_to_fp8_e4m3(stored[i] * scale);
}

void post_all_gather(const sc_piece *p, const sc_fp8_e4m3_t *wire, const float *amax, float *parameter) {
    float scale = scale_of(*amax);
    for (int64_t i = 0; i < p->numel; i++) parameter[i] = sc_from_fp8_e4m3(wire[i]) / scale;
}
