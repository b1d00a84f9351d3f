/* debug_sleep: y = a, after `ms` milliseconds; and the delay of collectives.
 * Relies on: kernel.cuh, k_copy.cu; the GPU's nanosecond clock (%globaltimer).
 * Relied on by: generated code; collective.c (sc_spin).
 *
 * One thread spins, so that whatever else runs on the GPU is not disturbed. */
#include "kernel.cuh"

extern "C" void sc_spin(cudaStream_t s, int64_t ns);

namespace {

SC_DEVICE uint64_t clock_ns() {
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

__global__ void spin(uint64_t ns) {
    uint64_t start = clock_ns();
    while (clock_ns() - start < ns) __nanosleep(1000);
}

} // namespace

extern "C" void sc_spin(cudaStream_t s, int64_t ns) {
    if (ns <= 0) return;
    spin<<<1, 1, 0, s>>>((uint64_t)ns);
    SC_LAUNCHED();
}

SC_KERNEL(debug_sleep) {
    sc_spin(SC_STREAM(task), (int64_t)(k->ms * 1e6));
    sc_cuda_copy(task, &k->y, &k->a);
}
