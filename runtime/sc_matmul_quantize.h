/* matmul_quantize as the ops that it stands for, which are its kernel where no other serves it.
 * Relies on: sc.h. Relied on by: k_matmul_quantize.c of the CPU, k_matmul_quantize.cu. */
#ifndef SC_MATMUL_QUANTIZE_H
#define SC_MATMUL_QUANTIZE_H

#include "sc.h"
#include <string.h>

/* The product that makes z, or the gate. */
static inline sc_matmul_args sc_product_to_quantize(const sc_matmul_quantize_args *k, int gate) {
    sc_matmul_args m;
    memset(&m, 0, sizeof m);
    m.y = gate ? k->gate : k->z, m.a = k->a, m.b = gate ? k->b_gate : k->b, m.work = k->work;
    m.scale_a = k->scale_a, m.scale_b = gate ? k->scale_gate : k->scale_b, m.trans_b = 1;
    if (!gate) m.bias = k->bias;
    return m;
}

static inline sc_quantize_args sc_quantize_of_product(const sc_matmul_quantize_args *k) {
    sc_quantize_args q;
    memset(&q, 0, sizeof q);
    q.y = k->y, q.scale = k->scale, q.turned = k->turned, q.x = k->z, q.gate = k->gate;
    q.amax = k->amax, q.seen = k->seen, q.both = 1, q.f = k->f;
    return q;
}

#endif
