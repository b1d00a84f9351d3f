/* Asynchronous copies of 16 bytes from global to shared memory, for a thread that reads its own alone.
 * Relies on: kernel.cuh.
 * Relied on by: k_cross_entropy_held.cu, k_norm_grads.cu. */
#ifndef SC_COPIES_CUH
#define SC_COPIES_CUH

#include "kernel.cuh"

SC_DEVICE void copy_start(uint4 *to, const void *from) {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
#else
    *to = *(const uint4 *)from;
#endif
}
SC_DEVICE void copies_commit() { /* those started since the last time are a group */
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int LATER> SC_DEVICE void copies_wait() { /* for all of this thread's groups but the last ones */
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
#endif
}

#endif
