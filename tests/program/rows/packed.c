/* Two elements a byte, and a scale for each rank's piece: wires with layouts of their own. Rows are whole. */
#include "sc_extension.h"

static int quantized(float x, float scale) {
    int q = (int)(x * scale + (x < 0 ? -0.5f : 0.5f));
    return q < -7 ? -7 : q > 7 ? 7 : q;
}

int64_t pack(const sc_piece *p, const float *stored, sc_bool_t (*codes)[1], float *scale) {
    int64_t n = p->end - p->begin, row = p->dims > 1 ? p->numel / p->shape[0] : 1;
    float most = 0;
    if (p->begin % row || n % row) return -1;
    for (int64_t i = 0; i < n; i++) most = fabsf(stored[i]) > most ? fabsf(stored[i]) : most;
    *scale = most > 0 ? 7 / most : 1;
    for (int64_t i = 0; i < n; i += 2)
        codes[i / 2][0] = (sc_bool_t)((quantized(stored[i], *scale) & 15) |
                                      (i + 1 < n ? (quantized(stored[i + 1], *scale) & 15) << 4 : 0));
    return (n + 1) / 2 + 1;
}

void unpack(const sc_piece *p, const sc_bool_t (*codes)[1], const float *scale, float *parameter) {
    for (int r = 0; r < p->ranks; r++)
        for (int64_t i = sc_piece_begin(p, r); i < sc_piece_begin(p, r + 1); i++) {
            int q = codes[i / 2][0] >> (i % 2 * 4) & 15;
            parameter[i] = (float)(q > 7 ? q - 16 : q) / scale[r * p->stride[1]];
        }
}
