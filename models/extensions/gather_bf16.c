/* Parameters are stored in fp32 and travel in bf16: half the bytes on the wire, and nothing but the gather changes.
 * Relies on: sc_extension.h. Relied on by: gather.lua. */
#include "sc_extension.h"

void pre_all_gather(const sc_piece *p, const float *stored, sc_bf16_t *wire) {
    for (int64_t i = 0; i < p->end - p->begin; i++) wire[i] = sc_to_bf16(stored[i]);
}

void post_all_gather(const sc_piece *p, const sc_bf16_t *wire, float *parameter) {
    for (int64_t i = 0; i < p->numel; i++) parameter[i] = (float)sc_from_bf16(wire[i]);
}
