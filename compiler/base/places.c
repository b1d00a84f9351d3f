/* Where things are on this machine: the runtime beside shardc, CUDA.
 * Relies on: base.h.
 * Relied on by: build.c, extension/ (which parses what build.c compiles), `shardc calibrate`. */
#include "places.h"
#include <stdlib.h>
#include <unistd.h>

const char *places_program(Arena *a) {
    return path_folder(a, path_real(a, "/proc/self/exe"));
}

static const char *first_with(Arena *a, const char *const *folders, int n, const char *file) {
    for (int i = 0; i < n; i++)
        if (folders[i] && !access(path_join(a, folders[i], file, ""), R_OK)) return path_real(a, folders[i]);
    return NULL;
}

const char *places_library(Arena *a, const char *file) {
    const char *here = places_program(a), *home = getenv("SHARDC_HOME");
    const char *folders[] = {here, path_join(a, here, "../lib/shardc", ""),
                             home ? path_join(a, home, "build", "") : NULL,
                             home ? path_join(a, home, "lib/shardc", "") : NULL};
    return first_with(a, folders, 4, file);
}

const char *places_headers(Arena *a) {
    const char *here = places_program(a), *home = getenv("SHARDC_HOME");
    const char *headers[] = {home ? path_join(a, home, "runtime", "") : NULL,
                             home ? path_join(a, home, "share/shardc/runtime", "") : NULL,
                             path_join(a, here, "../runtime", ""), path_join(a, here, "../share/shardc/runtime", "")};
    const char *found = first_with(a, headers, 4, "sc.h");
    if (!found)
        fail(NOWHERE, "the runtime's headers (runtime/sc.h) are not beside %s; set SHARDC_HOME to the folder of shardc",
             here);
    return found;
}

/* $CUDA_HOME and nothing else; or the folder of the nvcc on PATH, and where CUDA usually is. */
int places_cuda(Arena *a, const char **homes) {
    const char *given = getenv("CUDA_HOME"), *path = getenv("PATH");
    int n = 0;
    if (given && *given) {
        homes[n++] = given;
        return n;
    }
    char *rest = arena_strdup(a, path ? path : "");
    for (char *folder; !n && (folder = strsep(&rest, ":"));)
        if (*folder && !access(path_join(a, folder, "nvcc", ""), X_OK))
            homes[n++] = path_real(a, path_join(a, folder, "..", ""));
    homes[n++] = "/usr/local/cuda";
    homes[n++] = "/opt/cuda";
    return n;
}

/* The first of `folder`s below `homes` that holds `file`. */
const char *places_find(Arena *a, const char *const *homes, int n, const char *file) {
    static const char *const below[] = {"", "lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"};
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 5; k++) {
            const char *folder = *below[k] ? path_join(a, homes[i], below[k], "") : homes[i];
            if (!access(path_join(a, folder, file, ""), R_OK)) return path_real(a, folder);
        }
    return NULL;
}
