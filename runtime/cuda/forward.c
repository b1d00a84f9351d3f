/* Functions of CUDA's libraries under their own names, each a jump to where the library has it: no library has to be
 * there when the program starts, and callers see nothing of it. A jump keeps all arguments, so that no signature is
 * written down twice.
 * Relies on: forward.def, dlsym. Relied on by: library.c, and by name all that calls cuBLASLt, NCCL, cuDNN, NVML. */
#include "library.h"
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

static void not_open(void) {
    fprintf(stderr,
            "shardc: a function of a CUDA library was called before the library was loaded; please report it\n");
    _exit(1);
}

#if defined __x86_64__
#define JUMP(f) "endbr64; jmp *sc_at_" #f "(%rip)"
#elif defined __aarch64__
#define JUMP(f) "bti c; adrp x16, sc_at_" #f "; ldr x16, [x16, :lo12:sc_at_" #f "]; br x16"
#else
#error "how does this processor jump to an address in memory?"
#endif

#define FORWARD(f)                                                                                                     \
    __attribute__((visibility("hidden"))) extern void *sc_at_##f;                                                      \
    void *sc_at_##f = (void *)not_open;                                                                                \
    __asm__(".pushsection .text\n.globl " #f "\n.type " #f ", %function\n.balign 16\n" #f                              \
            ": " JUMP(f) "\n.size " #f ", . - " #f "\n.popsection\n");
#define CUBLASLT FORWARD
#define NCCL FORWARD
#define CUDNN FORWARD
#define NVML FORWARD
#include "forward.def"

typedef struct {
    const char *name;
    void **at;
} entry;
#define ENTRY(f) {#f, &sc_at_##f},

#define CUBLASLT ENTRY
static const entry cublaslt[] = {
#include "forward.def"
    {0}};
#define NCCL ENTRY
static const entry nccl[] = {
#include "forward.def"
    {0}};
#define CUDNN ENTRY
static const entry cudnn[] = {
#include "forward.def"
    {0}};
#define NVML ENTRY
static const entry nvml[] = {
#include "forward.def"
    {0}};

static const entry *const entries[SC_LIBRARIES] = {
    [SC_LIB_CUBLASLT] = cublaslt, [SC_LIB_NCCL] = nccl, [SC_LIB_CUDNN] = cudnn, [SC_LIB_NVML] = nvml};

const char *sc_forward_bind(sc_cuda_library l, void *handle) {
    for (const entry *e = entries[l]; e->name; e++)
        if (!dlsym(handle, e->name)) return e->name;
    for (const entry *e = entries[l]; e->name; e++) *e->at = dlsym(handle, e->name);
    return NULL;
}

/* ── versions: major · 10000 + minor · 100 + patch in all of them ────────────────────────────────────────────────────
 */
int sc_forward_version(sc_cuda_library l, void *handle) {
    static const char *const names[SC_LIBRARIES] = {
        [SC_LIB_CUBLASLT] = "cublasLtGetVersion", [SC_LIB_NCCL] = "ncclGetVersion", [SC_LIB_CUDNN] = "cudnnGetVersion"};
    void *f = names[l] ? dlsym(handle, names[l]) : NULL;
    int version = 0;
    if (f && l == SC_LIB_NCCL)
        ((int (*)(int *))f)(&version);
    else if (f)
        version = (int)((size_t(*)(void))f)();
    return version;
}
