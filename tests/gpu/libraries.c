/* Linked into the test programs of kernels: opens the libraries that a training program opens when it starts.
 * Relies on: runtime/cuda/library.h. Relied on by: build.py. */
#include "cuda/library.h"
#include <stdio.h>

__attribute__((constructor)) static void open_libraries(void) {
    const char *wrong = sc_library_open(SC_LIB_CUBLASLT);
    if (wrong) fprintf(stderr, "%s\n", wrong);
}
