/* Every kernel that emitted code may call: of each op whose row in ops.def says that it has one.
 * Relies on: sc.h, schema/ops.def.
 * Relied on by: runtime/cpu, runtime/cuda, runtime/common/launch.c, calibrate, the unit tests. Generated texts declare
 * the kernels that they call by themselves. */
#ifndef SC_KERNELS_H
#define SC_KERNELS_H

#include "sc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Maps what the matrix library keeps between calls, for `parts` concurrent callers; with 1 in a thread that will run
 * kernels, before its first step, so that nothing is allocated later. */
void sc_kernels_warm(int parts);
size_t sc_kernels_buffer(void); /* bytes that a thread which calls kernels maps for them */

/* A kernel may have a finish: run once, with part 0 of 1, after all parts of the kernel are done and before the event
 * counts as finished; it combines what the parts wrote, in a fixed order. NULL where there is none. */
sc_kernel *sc_kernel_finish(sc_kernel *k);

/* What an element reads that an index beyond a dimension names, as the bits of its dtype: NaN, of integers -1, false.
 */
static inline uint64_t sc_no_element(int dtype) {
    switch (dtype) {
    case FP32: return 0x7fc00000;
    case BF16: return 0x7fc0;
    case FP16: return 0x7e00;
    case FP64: return 0x7ff8000000000000;
    case BOOL: return 0;
    default: return ~(uint64_t)0;
    }
}

/* How long an event of that kernel sleeps, by itself: ns, 0 for all but one. */
int64_t sc_kernel_sleeps(sc_kernel *k, const void *args);

/* sc_k_matmul and so on. */
#define OP(...)
#define KERNEL(name, ...) extern sc_kernel sc_k_##name;
#define HOST_KERNEL KERNEL
#define UNTIMED_KERNEL KERNEL
#include "schema/ops.def"

#ifdef __cplusplus
}
#endif
#endif
