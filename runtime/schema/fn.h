/* SC_FN: functions that host code, generated code and CUDA kernels share, one source with the same roundings.
 * Relies on: nothing.
 * Relied on by: schema/math.h, schema/philox.h. */
#ifndef SC_FN_H
#define SC_FN_H

#ifdef __CUDACC__
#define SC_FN static __host__ __device__ __forceinline__
#else
#define SC_FN static inline
#endif

#endif
