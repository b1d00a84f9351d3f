/* Which attention shardc's own kernels for compute capability 9.0 compute there: the compiler plans by it, the kernels
 * go by it. Relies on: nothing. Relied on by: compiler/ir/rules_matrix.c, cuda/device.c, cuda/attention_hopper.h. */
#ifndef SC_SCHEMA_ATTENTION_H
#define SC_SCHEMA_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

/* The largest head. */
enum { SC_HOPPER_SIZE = 256 };

/* half: q, k and v are bf16 or fp16. size: of a head of q and k, value_size: of v. Rows of heads are copied 16 bytes at
 * a time; that addresses and strides allow it is seen at run time, and holds for whatever the compiler places. */
static inline bool sc_hopper_computes(bool half, int64_t size, int64_t value_size, double scale) {
    return half && size % 8 == 0 && size <= SC_HOPPER_SIZE && value_size % 8 == 0 && value_size <= SC_HOPPER_SIZE &&
           scale > 0;
}

#endif
