/* matmul_quantize: the kernels of matmul and quantize one after the other, the latter when all parts are done.
 * Relies on: kernel.h, sc_matmul_quantize.h, k_matmul.c, k_quantize.c. Relied on by: generated code (products in 8
 * bits).
 */
#include "../sc_matmul_quantize.h"
#include "kernel.h"

SC_KERNEL(matmul_quantize) {
    for (int gate = 0; gate <= (k->b_gate.p != NULL); gate++) {
        sc_matmul_args m = sc_product_to_quantize(k, gate);
        sc_task one = *task;
        one.args = (const sc_args *)&m, one.slots = SC_SLOTS_matmul;
        sc_k_matmul(&one);
    }
}

SC_FINISH(matmul_quantize) {
    sc_quantize_args q = sc_quantize_of_product(k);
    sc_task one = *task;
    one.args = (const sc_args *)&q, one.slots = SC_SLOTS_quantize;
    sc_k_quantize(&one);
}
