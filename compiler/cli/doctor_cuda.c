/* What programs for GPUs are built with and run with, as `shardc doctor` finds it: GPUs and their profiles, the CUDA
 * toolkit, shardc's runtime, the libraries that programs load.
 * Relies on: doctor.h, base/places.h, plan/figures.h, runtime/cuda/library.h (how programs look for libraries).
 * Relied on by: doctor.c. */
#include "../base/places.h"
#include "../plan/figures.h"
#include "cuda/library.h"
#include "doctor.h"

#include <stdlib.h>
#include <unistd.h>

enum { LEAST_DRIVER = 580, CUDA = 13 }; /* the first driver of CUDA 13 */
static const char builds[] = "`shardc build --device h200` and every other GPU's";
static const char toolkit[] =
    "install the package cuda-toolkit-13-0 from NVIDIA's repository (https://developer.nvidia.com/cuda-downloads)";

/* ── GPUs ────────────────────────────────────────────────────────────────────────────────────────────────────────── */
static bool alike(const Gpu *a, const Gpu *b) {
    return !strcmp(a->name, b->name) && a->bytes == b->bytes;
}

static void profile(Doctor *d, const Gpu *g) {
    static const char same_kind[] = "predictions are those of another GPU of that name";
    if (g->fits) {
        doctor_found(d, GROUP_CUDA, "profile", "--device %s (%s)", g->profile->name, g->profile->source);
        return;
    }
    Fact *f = g->profile ? doctor_found(d, GROUP_CUDA, "profile", "%s, whose memory is %s and not %s", g->profile->name,
                                        figure_bytes(d->a, g->profile->memory_bytes), figure_bytes(d->a, g->bytes))
                         : doctor_found(d, GROUP_CUDA, "profile", "none is built in for %s", g->name);
    f->condition = DOUBTFUL;
    f->without = g->profile ? same_kind : "`shardc predict` and `plan` do not know this GPU";
    f->mend = "shardc calibrate --quick -o mine.lua, and then --device mine.lua";
}

static void gpus(Doctor *d) {
    if (!d->gpus.n) {
        Fact *f = doctor_lacks(d, GROUP_CUDA, "GPU", "programs for GPUs can be built here, and run elsewhere", NULL,
                               "none: %s", d->no_gpu);
        f->condition = ABSENT;
        return;
    }
    for (int i = 0; i < d->gpus.n; i++) {
        const Gpu *g = &d->gpus.at[i];
        int same = 0, before = 0;
        for (int k = 0; k < d->gpus.n; k++)
            same += alike(g, &d->gpus.at[k]), before += k < i && alike(g, &d->gpus.at[k]);
        if (before) continue;
        doctor_found(d, GROUP_CUDA, "GPU", "%s%s, %s%s%s", same > 1 ? arena_printf(d->a, "%d of ", same) : "", g->name,
                     figure_bytes(d->a, g->bytes), g->arch ? ", " : "", g->arch ? g->arch : "");
        profile(d, g);
    }
    const char *driver = d->gpus.at[0].driver;
    Fact *f = doctor_found(d, GROUP_CUDA, "driver", "%s", driver);
    if (atoi(driver) >= LEAST_DRIVER) return;
    f->condition = MISSING;
    f->without = "programs for GPUs do not start";
    f->mend = "install a driver of 580 or newer, which CUDA 13 needs (the package nvidia-open of NVIDIA's repository)";
}

/* ── the toolkit ─────────────────────────────────────────────────────────────────────────────────────────────────── */
/* The number behind "release " in what nvcc says; 0: it is not there. */
static int release_of(const char *said, const char **text, Arena *a) {
    const char *at = strstr(said, "release ");
    if (!at) return 0;
    at += strlen("release ");
    *text = arena_printf(a, "%.*s", (int)strcspn(at, ", \n"), at);
    return atoi(at);
}

static void nvcc(Doctor *d, const char *const *homes, int n) {
    const char *path = NULL, *why = NULL, *version = "of no version";
    for (int i = 0; i < n && !path; i++)
        if (!access(path_join(d->a, homes[i], "bin/nvcc", ""), X_OK)) path = path_join(d->a, homes[i], "bin/nvcc", "");
    const char *said = path ? doctor_ask(d->a, (const char *const[]){path, "--version", NULL}, &why) : NULL;
    if (!path)
        doctor_lacks(d, GROUP_CUDA, "nvcc", builds, toolkit, "it is neither on PATH nor in %s/bin%s", homes[0],
                     getenv("CUDA_HOME") ? " (CUDA_HOME)" : "");
    else if (!said)
        doctor_lacks(d, GROUP_CUDA, "nvcc", builds, toolkit, "%s", why);
    else if (release_of(said, &version, d->a) != CUDA)
        doctor_lacks(d, GROUP_CUDA, "nvcc", builds, toolkit, "%s is %s, and CUDA %d is wanted", path, version, CUDA);
    else
        doctor_found(d, GROUP_CUDA, "nvcc", "%s (%s)", version, path);
    const char *folder = places_find(d->a, homes, n, "libcudart_static.a");
    if (folder)
        doctor_found(d, GROUP_CUDA, "CUDA runtime", "%s/libcudart_static.a", folder);
    else
        doctor_lacks(d, GROUP_CUDA, "CUDA runtime", builds, toolkit, "libcudart_static.a is not there");
}

/* `make cuda` alone reads them, where the Makefile looks too. */
static void headers(Doctor *d, const char *const *homes, int n) {
    static const char *const files[] = {"cublasLt.h", "nccl.h", "cudnn.h"};
    static const char *const usual[] = {"/usr/include", "/usr/local/include", "/usr/include/x86_64-linux-gnu",
                                        "/usr/include/aarch64-linux-gnu"};
    const char *folders[MOST_FOLDERS + 8], *given;
    int nf = 0;
    Str lacks = {.arena = d->a};
    for (int i = 0; i < n; i++) folders[nf++] = path_join(d->a, homes[i], "include", "");
    if ((given = getenv("NCCL_HOME"))) folders[nf++] = path_join(d->a, given, "include", "");
    if ((given = getenv("CUDNN_HOME"))) folders[nf++] = path_join(d->a, given, "include", "");
    for (int i = 0; i < 4; i++) folders[nf++] = usual[i];
    for (int i = 0; i < 3; i++) {
        bool there = false;
        for (int k = 0; k < nf && !there; k++) there = !access(path_join(d->a, folders[k], files[i], ""), R_OK);
        if (!there) str_addf(&lacks, "%s%s", lacks.n ? ", " : "", files[i]);
    }
    if (!lacks.n) {
        doctor_found(d, GROUP_CUDA, "headers", "cublasLt.h, nccl.h, cudnn.h");
        return;
    }
    Fact *f = doctor_lacks(d, GROUP_CUDA, "headers", "`make cuda`, which makes shardc's runtime for GPUs",
                           "install the packages libnccl-dev and libcudnn9-dev-cuda-13 from NVIDIA's repository, or "
                           "set NCCL_HOME and CUDNN_HOME",
                           "%s not there", lacks.s);
    f->condition = ABSENT;
}

/* ── shardc's runtime ────────────────────────────────────────────────────────────────────────────────────────────── */
/* "8.0, 9.0" of a file that says "80 90"; empty where there is none. */
static const char *capabilities(Arena *a, const char *path) {
    Str s = {.arena = a};
    const char *at = access(path, R_OK) ? "" : path_read(a, path, NULL);
    for (char *end; *at && *at != '\n'; at = end) {
        long arch = strtol(at, &end, 10);
        if (end == at) break;
        str_addf(&s, "%s%ld.%ld", s.n ? ", " : "", arch / 10, arch % 10);
    }
    return s.n ? s.s : "";
}

static void runtime(Doctor *d) {
    const char *folder = places_library_folder(d->a, "libsc_cuda.a");
    const char *tool = places_library_folder(d->a, "sc_calibrate");
    if (folder) {
        const char *list = path_join(d->a, folder, "libsc_cuda.archs", ""), *archs = capabilities(d->a, list);
        doctor_found(d, GROUP_CUDA, "runtime", "%s%s%s", path_join(d->a, folder, "libsc_cuda.a", ""),
                     *archs ? " for compute capabilities " : "", archs);
    } else
        doctor_lacks(d, GROUP_CUDA, "runtime", builds, doctor_make(d, "cuda"), "libsc_cuda.a is not there");
    if (tool)
        doctor_found(d, GROUP_CUDA, "calibration", "%s", path_join(d->a, tool, "sc_calibrate", ""));
    else {
        Fact *f = doctor_lacks(d, GROUP_CUDA, "calibration", "`shardc calibrate` of this machine's GPUs",
                               doctor_make(d, "cuda"), "sc_calibrate is not there");
        f->condition = ABSENT;
    }
}

/* ── libraries that programs load ────────────────────────────────────────────────────────────────────────────────── */
static void libraries(Doctor *d) {
    static const struct {
        sc_cuda_library l;
        const char *without, *mend;
    } wanted[] = {
        {SC_LIB_CUBLASLT, "no program for a GPU starts here", "python3 -m pip install nvidia-cublas"},
        {SC_LIB_CUDNN, "programs whose attention is not shardc's own do not start here",
         "python3 -m pip install nvidia-cudnn-cu13"},
        {SC_LIB_NCCL, "programs of several GPUs do not start here", "python3 -m pip install nvidia-nccl-cu13"}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const char *why, *name = sc_library_name(wanted[i].l);
        char version[SC_VERSION_TEXT];
        const sc_library_set *set = sc_library_look(wanted[i].l, &why);
        if (set) {
            doctor_found(d, GROUP_CUDA, name, "%s (%s)", sc_version_text(set->version, version), set->path);
            continue;
        }
        Fact *f =
            doctor_lacks(d, GROUP_CUDA, name, wanted[i].without, wanted[i].mend, "%.*s", (int)strcspn(why, ";"), why);
        f->condition = d->gpus.n ? MISSING : ABSENT; /* of running: a build needs none of them */
    }
}

void doctor_cuda(Doctor *d) {
    const char *homes[MOST_FOLDERS];
    int n = places_cuda(d->a, homes);
    gpus(d);
    nvcc(d, homes, n);
    headers(d, homes, n);
    runtime(d);
    libraries(d);
}
