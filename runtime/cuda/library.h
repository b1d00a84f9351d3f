/* CUDA's libraries, loaded when a program needs them: a binary starts without them and says which one is missing. Once
 * a library is open, its functions are called by their own names (forward.def lists them). Relies on: nothing. Relied
 * on by: rank.c and whoever calls a library of CUDA. */
#ifndef SC_CUDA_LIBRARY_H
#define SC_CUDA_LIBRARY_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { SC_LIB_CUBLASLT, SC_LIB_NCCL, SC_LIB_CUDNN, SC_LIB_NVML, SC_LIBRARIES } sc_cuda_library;

/* NULL: it is loaded, now or since an earlier call. Else a sentence that stays where it is: what is missing or too old,
 * where it was looked for, and what to do. */
const char *sc_library_open(sc_cuda_library l);
const char *sc_library_name(sc_cuda_library l); /* "cuBLASLt" */
int sc_library_version(sc_cuda_library l);      /* 22809: 2.28.9; 0: not open, or it has none */
const char *sc_library_path(sc_cuda_library l); /* of the open library's file */

/* forward.c */
int sc_forward_version(sc_cuda_library l, void *handle);      /* of a library that dlopen gave; 0: it has none */
const char *sc_forward_bind(sc_cuda_library l, void *handle); /* NULL, or the first function that it lacks */

#ifdef __cplusplus
}
#endif
#endif
