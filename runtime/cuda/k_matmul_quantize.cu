/* matmul_quantize: a kernel of compute capability 9.0 where it takes the product, else the kernels of matmul and
 * quantize one after the other. Relies on: matmul_hopper_fp8.h, sc_matmul_quantize.h, k_matmul.cu, k_quantize.cu.
 * Relied on by: generated code (products in 8 bits). */
#include "../sc_kernels.h"
#include "../sc_matmul_quantize.h"
#include "matmul_hopper_fp8.h"

SC_KERNEL(matmul_quantize) {
    if (sc_matmul_hopper_quantize(task, k)) return;
    sc_task one = *task;
    for (int gate = 0; gate <= (k->b_gate.p != NULL); gate++) {
        sc_matmul_args m = sc_product_to_quantize(k, gate);
        one.args = (const sc_args *)&m, one.slots = SC_SLOTS_matmul;
        sc_k_matmul(&one);
    }
    sc_quantize_args q = sc_quantize_of_product(k);
    one.args = (const sc_args *)&q, one.slots = SC_SLOTS_quantize;
    sc_k_quantize(&one);
}
