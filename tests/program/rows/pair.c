/* Every weight travels as a pair of tensors (a, b), of which it is rebuilt to the bit: a is its upper half, b the rest.
 * pair_bf16 does so for bf16 parameters: a is the rounded value, b what rounding left. pair_short says that it wrote
 * too few (X4). */
#include "sc_extension.h"

int64_t pair(const sc_piece *p, const float *stored, sc_bf16_t *a, int32_t *b) {
    for (int64_t i = 0; i < p->end - p->begin; i++) {
        a[i] = (sc_bf16_t)(sc_bits(stored[i]) >> 16);
        b[i] = (int32_t)(sc_bits(stored[i]) & 0xffff);
    }
    return 2 * (p->end - p->begin);
}

int64_t pair_short(const sc_piece *p, const float *stored, sc_bf16_t *a, int32_t *b) {
    return pair(p, stored, a, b) - (p->end > p->begin);
}

int64_t rebuild(const sc_piece *p, const sc_bf16_t *a, const int32_t *b, float *weight) {
    for (int64_t i = 0; i < p->numel; i++) weight[i] = sc_float((uint32_t)a[i] << 16 | (uint32_t)b[i]);
    return p->numel;
}

void pair_bf16(const sc_piece *p, const float *stored, sc_bf16_t *a, sc_bf16_t *b) {
    for (int64_t i = 0; i < p->end - p->begin; i++) {
        a[i] = sc_to_bf16(stored[i]);
        b[i] = sc_to_bf16(stored[i] - sc_from_bf16(a[i]));
    }
}

void rebuild_bf16(const sc_piece *p, const sc_bf16_t *a, const sc_bf16_t *b, sc_bf16_t *weight) {
    for (int64_t i = 0; i < p->numel; i++) weight[i] = sc_to_bf16(sc_from_bf16(a[i]) + sc_from_bf16(b[i]));
}
