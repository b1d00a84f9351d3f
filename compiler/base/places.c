/* Where things are on this machine: the runtime beside shardc, CUDA.
 * Relies on: base.h.
 * Relied on by: build.c, extension/ (which parses what build.c compiles), `shardc calibrate`. */
#include "places.h"
#include <stdlib.h>
#include <unistd.h>

static const char *program_folder(Arena *a) {
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

/* Of shardc's folder (`below` the root: where its programs are), a checkout's or an installed one: where the library is
 * to be, and the command that makes it. NULL: it is neither. */
static const char *how_to_make(Arena *a, const char *root, const char *below, const char *target, const char **holds) {
    if (!access(path_join(a, root, "Makefile", ""), R_OK) && !access(path_join(a, root, "runtime/sc.h", ""), R_OK)) {
        const char *b = strcmp(below, "build") ? arena_printf(a, " B=%s", below) : "";
        *holds = path_join(a, path_real(a, root), below, "");
        return arena_printf(a, "`make -C %s%s%s%s`", path_real(a, root), b, *target ? " " : "", target);
    }
    if (access(path_join(a, root, "share/shardc/runtime/sc.h", ""), R_OK)) return NULL;
    *holds = path_join(a, path_real(a, root), "lib/shardc", "");
    return arena_printf(a, "`make%s%s install PREFIX=%s` in the checkout that this shardc was installed from",
                        *target ? " " : "", target, path_real(a, root));
}

const char *places_library_folder(Arena *a, const char *file) {
    static const char *const beside[] = {"", "../lib/shardc"}, *const at_home[] = {"build", "lib/shardc"};
    const char *found = first_below(a, program_folder(a), beside, 2, file);
    return found ? found : first_below(a, getenv("SHARDC_HOME"), at_home, 2, file);
}

const char *places_library_made(Arena *a, const char *target, const char **holds) {
    const char *here = program_folder(a), *home = getenv("SHARDC_HOME");
    const char *how = home && *home ? how_to_make(a, home, "build", target, holds) : NULL;
    return how ? how : how_to_make(a, path_join(a, here, "..", ""), basename(here), target, holds);
}

const char *places_library(Arena *a, const char *file, const char *target) {
    const char *found = places_library_folder(a, file), *home = getenv("SHARDC_HOME"), *holds;
    if (found) return found;
    const char *how = places_library_made(a, target, &holds);
    if (how) fail(NOWHERE, "%s is not in %s; run %s", file, holds, how);
    fail(NOWHERE,
         "%s is not in %s%s; neither is a checkout of shardc or a prefix that it was installed to: run `make%s%s` in a "
         "checkout and set SHARDC_HOME to its folder",
         file, program_folder(a),
         home && *home ? arena_printf(a, ", nor below %s (SHARDC_HOME)", home) : " nor below SHARDC_HOME",
         *target ? " " : "", target);
}

const char *places_headers(Arena *a) {
    static const char *const beside[] = {"../runtime", "../share/shardc/runtime"};
    static const char *const at_home[] = {"runtime", "share/shardc/runtime"};
    const char *here = program_folder(a), *found = first_below(a, getenv("SHARDC_HOME"), at_home, 2, "sc.h");
    if (!found) found = first_below(a, here, beside, 2, "sc.h");
    if (!found)
        fail(NOWHERE, "the runtime's headers (runtime/sc.h) are not beside %s; set SHARDC_HOME to the folder of shardc",
             here);
    return found;
}

const char *places_models(Arena *a) {
    static const char *const beside[] = {"../models", "../share/shardc/models"};
    static const char *const at_home[] = {"models", "share/shardc/models"};
    const char *found = first_below(a, getenv("SHARDC_HOME"), at_home, 2, "families/config.lua");
    return found ? found : first_below(a, program_folder(a), beside, 2, "families/config.lua");
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
