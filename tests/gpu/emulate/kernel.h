/* What runtime/cuda/kernel.cuh and the kernels on it need besides mma.h: launches of two dimensions and of
 * clusters of one block, shared memory in variables, more shuffles, integer atomics.
 * Relies on: mma.h beside this.
 * Relied on by: kernels (.cu) compiled by g++ with `-include` of this file. */
#ifndef SC_EMULATE_KERNEL_H
#define SC_EMULATE_KERNEL_H

#include "mma.h"

#undef SC_DEVICE
#define SC_DEVICE inline
#undef __shared__
#define __shared__ static /* blocks run one after another */
#undef __global__
#define __global__
#undef __device__
#define __device__

/* emulate.cc knows grids of one dimension: a row of the grid is a launch. */
inline unsigned emulated_row, emulated_rows = 1;
#undef blockIdx
#undef gridDim
#define blockIdx (uint3{emulated_self->block.x, emulated_row, 0})
#define gridDim (dim3(emulated_self->blocks.x, emulated_rows))

template <class F> void emulated_grid(dim3 grid, int block, F f) {
    emulated_rows = grid.y;
    for (emulated_row = 0; emulated_row < grid.y; emulated_row++)
        emulated_launch([](void *p) { (*(F *)p)(); }, &f, grid.x, block, 0);
}
#define SC_LAUNCH(t, kernel, grid, block, ...) emulated_grid(dim3(grid), (int)(block), [&] { (kernel)(__VA_ARGS__); })
template <class P>
void sc_launch_clusters(void (*kernel)(P), int64_t clusters, int size, int threads, size_t shared, cudaStream_t s,
                        P p) {
    if (size > 1) abort(); /* blocks run one after another */
    sc_launch(kernel, clusters, threads, shared, s, p);
}

template <class X, class FROM> X emulated_from(const char *what, X x, FROM from) {
    struct lane {
        X x, y;
        int from;
    } mine = {x, x, from((int)(emulated_self->thread.x % 32))};
    emulated_meet(
        what,
        [](void **all) {
            for (int l = 0; l < 32; l++) ((lane *)all[l])->y = ((lane *)all[((lane *)all[l])->from])->x;
        },
        &mine);
    return mine.y;
}
template <class X> X __shfl_sync(unsigned, X x, int lane) {
    return emulated_from("__shfl_sync", x, [&](int) { return lane % 32; });
}
template <class X> X __shfl_up_sync(unsigned, X x, unsigned by) {
    return emulated_from("__shfl_up_sync", x, [&](int l) { return l < (int)by ? l : l - (int)by; });
}
inline unsigned __ballot_sync(unsigned, bool x) {
    struct lane {
        bool x;
        unsigned y;
    } mine = {x, 0};
    emulated_meet(
        "__ballot_sync",
        [](void **all) {
            unsigned y = 0;
            for (int l = 0; l < 32; l++) y |= (unsigned)((lane *)all[l])->x << l;
            for (int l = 0; l < 32; l++) ((lane *)all[l])->y = y;
        },
        &mine);
    return mine.y;
}
inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}
inline int atomicAdd(int *p, int x) {
    int was = *p;
    *p += x;
    return was;
}
inline int atomicSub(int *p, int x) {
    return atomicAdd(p, -x);
}
inline int __float_as_int(float x) {
    int y;
    memcpy(&y, &x, sizeof y);
    return y;
}
inline int atomicMax(int *p, int x) {
    int old = *p;
    if (x > old) *p = x;
    return old;
}

#endif
