/* A stream tells the watchdog, in memory that the launcher sees, what it is at. One writer a word: the stream itself.
 * Relies on: the layout of sc_status (common/rank.h): doing, event, waits_for.
 * Relied on by: collective.c. */
#include "cuda.h"

extern "C" void sc_mark(cudaStream_t s, void *status, uint32_t *met, int doing, int event);

static __global__ void mark(volatile int *status, volatile uint32_t *met, int doing, int event) {
    status[1] = event;
    status[0] = doing;
    *met = *met + 1;
    __threadfence_system();
}

extern "C" void sc_mark(cudaStream_t s, void *status, uint32_t *met, int doing, int event) {
    mark<<<1, 1, 0, s>>>((volatile int *)status, met, doing, event);
    SC_LAUNCHED();
}
