/* Where things are on this machine: the runtime beside shardc, CUDA.
 * Relies on: base.h.
 * Relied on by: build.c, extension/ (which parses what build.c compiles), `shardc calibrate`. */
#include "places.h"
#include <stdlib.h>
#include <unistd.h>

const char *places_program(Arena *a) {
    return path_folder(a, path_real(a, "/proc/self/exe"));
}

/* The first of the folders `below` a root that holds the file. NULL: none does, or there is no root. */
static const char *first_below(Arena *a, const char *root, const char *const *below, int n, const char *file) {
    for (int i = 0; root && i < n; i++) {
        const char *folder = path_join(a, root, below[i], "");
        if (!access(path_join(a, folder, file, ""), R_OK)) return path_real(a, folder);
    }
    return NULL;
}

const char *places_library(Arena *a, const char *file) {
    static const char *const beside[] = {"", "../lib/shardc"}, *const at_home[] = {"build", "lib/shardc"};
    const char *found = first_below(a, places_program(a), beside, 2, file);
    return found ? found : first_below(a, getenv("SHARDC_HOME"), at_home, 2, file);
}

const char *places_headers(Arena *a) {
    static const char *const beside[] = {"../runtime", "../share/shardc/runtime"};
    static const char *const at_home[] = {"runtime", "share/shardc/runtime"};
    const char *here = places_program(a), *found = first_below(a, getenv("SHARDC_HOME"), at_home, 2, "sc.h");
    if (!found) found = first_below(a, here, beside, 2, "sc.h");
    if (!found)
        fail(NOWHERE, "the runtime's headers (runtime/sc.h) are not beside %s; set SHARDC_HOME to the folder of shardc",
             here);
    return found;
}

const char *places_on_path(Arena *a, const char *program) {
    const char *path = getenv("PATH");
    char *rest = arena_strdup(a, path ? path : "");
    for (char *folder; (folder = strsep(&rest, ":"));)
        if (*folder && !access(path_join(a, folder, program, ""), X_OK)) return folder;
    return NULL;
}

/* $CUDA_HOME and nothing else; or the folder of the nvcc on PATH, and where CUDA usually is. */
int places_cuda(Arena *a, const char **homes) {
    const char *given = getenv("CUDA_HOME"), *bin = places_on_path(a, "nvcc");
    int n = 0;
    if (given && *given) {
        homes[n++] = given;
        return n;
    }
    if (bin) homes[n++] = path_real(a, path_join(a, bin, "..", ""));
    homes[n++] = "/usr/local/cuda";
    homes[n++] = "/opt/cuda";
    return n;
}

const char *places_find(Arena *a, const char *const *homes, int n, const char *file) {
    static const char *const below[] = {"", "lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"};
    const char *found = NULL;
    for (int i = 0; i < n && !found; i++) found = first_below(a, homes[i], below, 5, file);
    return found;
}
