/* Functions of a device, shared memory whose size the launch says, and launches.
 * Relies on: cuda.h.
 * Relied on by: kernel.cuh, mma.h, k_matmul_hopper.cu. tests/gpu/emulate replaces this file on a machine without a GPU.
 */
#ifndef SC_LAUNCH_CUH
#define SC_LAUNCH_CUH

#include "cuda.h"

#define SC_DEVICE __device__ __forceinline__
#define SC_SHARED(name) extern __shared__ __align__(16) char name[]

#define SC_LAUNCH(t, kernel, grid, block, ...)                                                                         \
    do {                                                                                                               \
        kernel<<<(grid), (block), 0, SC_STREAM(t)>>>(__VA_ARGS__);                                                     \
        SC_LAUNCHED();                                                                                                 \
    } while (0)

/* With `shared` bytes a block for SC_SHARED. */
template <class P>
static void sc_launch(void (*kernel)(P), int64_t blocks, int threads, size_t shared, cudaStream_t stream, P p) {
    void *parameter[] = {&p};
    if (shared > 48 << 10)
        SC_CUDA(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    SC_CUDA(cudaLaunchKernel((const void *)kernel, dim3((unsigned)blocks), dim3((unsigned)threads), parameter, shared,
                             stream));
}

/* The same for clusters of `size` blocks (more than one: compute capability 9.0). */
template <class P>
static void sc_launch_clusters(void (*kernel)(P), int64_t clusters, int size, int threads, size_t shared,
                               cudaStream_t stream, P p) {
    cudaLaunchConfig_t l = {};
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = (unsigned)size, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    l.gridDim = dim3((unsigned)(clusters * size));
    l.blockDim = dim3((unsigned)threads);
    l.dynamicSmemBytes = shared;
    l.stream = stream;
    l.attrs = &cluster;
    l.numAttrs = size > 1;
    SC_CUDA(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    SC_CUDA(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared));
    SC_CUDA(cudaLaunchKernelEx(&l, kernel, p));
}

#endif
