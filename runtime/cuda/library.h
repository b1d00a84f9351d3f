/* CUDA's libraries, loaded when a program needs them: a binary starts without them and says which one is missing. Once
 * a library is open, its functions are called by their own names (forward.def lists them). Relies on: nothing. Relied
 * on by: rank.c and whoever calls a library of CUDA. */
#ifndef SC_CUDA_LIBRARY_H
#define SC_CUDA_LIBRARY_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { SC_LIB_CUBLASLT, SC_LIB_NCCL, SC_LIB_CUDNN, SC_LIB_NVML, SC_LIBRARIES } sc_cuda_library;

/* NULL: it is loaded, now or since an earlier call. Else a sentence that stays where it is: what is missing or too old,
 * where it was looked for, and what to do. */
const char *sc_library_open(sc_cuda_library l);
const char *sc_library_name(sc_cuda_library l);  /* "cuBLASLt" */
int sc_library_version(sc_cuda_library l);       /* 22809: 2.28.9; 0: not open, or it has none */
const char *sc_library_path(sc_cuda_library l);  /* of the open library's file */
const char *sc_library_mixed(sc_cuda_library l); /* NULL, or which loaded part is not of the open library's folder */
void sc_library_tell(void); /* on standard output: every library's candidates, their versions, which is taken, why */

enum { SC_VERSION_TEXT = 32 };
const char *sc_version_text(int version, char out[SC_VERSION_TEXT]); /* 22809: "2.28.9" */

/* ── between library.c and library_set.c: a library's main file and the parts of it that stand beside it ─────────────
 */
typedef struct {
    const char *file, *name, *variable, *package;
    int least;                /* version */
    const char *const *parts; /* cuDNN: those it cannot do without, NULL at the end; NULL: it has none */
} sc_known_library;
extern const sc_known_library sc_known_libraries[SC_LIBRARIES];

typedef struct {
    char path[PATH_MAX]; /* of the main file */
    void *handle;        /* where it is open */
    int version;         /* 0: not known */
    bool absent, old;    /* there is no such file; it is older than the least version */
    char wrong[1024];    /* why it cannot be used; empty: it can */
    bool asked;          /* all this has been found out */
} sc_library_set;

/* What sc_library_open would take, tried in a child process alone: nothing is loaded. NULL: `why` is that sentence. */
const sc_library_set *sc_library_look(sc_cuda_library l, const char **why);

/* Opens `name` (a path, or a file's name for the loader to find) with all its parts from one folder. */
void sc_set_open(sc_cuda_library l, const char *name, sc_library_set *s);
/* The same in a child process: nothing of it stays in this one, where an old part would stand in for a new one. */
void sc_set_probe(sc_cuda_library l, const char *name, sc_library_set *s);
/* false: `out` says which part of the set is loaded from elsewhere. */
bool sc_set_whole(sc_cuda_library l, const sc_library_set *s, char *out, size_t n);

/* forward.c */
int sc_forward_version(sc_cuda_library l, void *handle);      /* of a library that dlopen gave; 0: it has none */
const char *sc_forward_bind(sc_cuda_library l, void *handle); /* NULL, or the first function that it lacks */

#ifdef __cplusplus
}
#endif
#endif
