/* The GPUs that `shardc doctor` sees: by nvidia-smi, or where there is none by the driver's library, and which built-in
 * profile is whose.
 * Relies on: doctor.h, runtime/cuda/library.h, base/processes.h, base/places.h, lua/embed.h; none of NVIDIA's files has
 * to be there. Relied on by: doctor.c. */
#include "../base/places.h"
#include "../base/processes.h"
#include "../lua/embed.h"
#include "cuda/library.h"
#include "doctor.h"

#include <ctype.h>
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATIENCE_S = 20 };
static const double MIB = 1 << 20;

/* ── by nvidia-smi ───────────────────────────────────────────────────────────────────────────────────────────────── */
static char *word_of(char **line) { /* up to a comma, without spaces around it */
    char *word = strsep(line, ","), *end;
    while (word && isspace((unsigned char)*word)) word++;
    for (end = word ? word + strlen(word) : NULL; end && end > word && isspace((unsigned char)end[-1]);) *--end = 0;
    return word ? word : "";
}

/* "NVIDIA H200, 143771, 580.95.05, 9.0": MiB. false: it is no such line. */
static bool read_line(Doctor *d, char *line) {
    const char *name = word_of(&line), *memory = word_of(&line), *driver = word_of(&line), *capability = word_of(&line);
    int major, minor;
    if (!*name || !*driver || !(atof(memory) > 0)) return false;
    Gpu g = {.name = name, .driver = driver, .bytes = MIB * atof(memory)};
    if (sscanf(capability, "%d.%d", &major, &minor) == 2) g.arch = arena_printf(d->a, "sm_%d%d", major, minor);
    push(&d->gpus, d->a, g);
    return true;
}

static bool by_program(Doctor *d) {
    static const char *const args[] = {"nvidia-smi", "--query-gpu=name,memory.total,driver_version,compute_cap",
                                       "--format=csv,noheader,nounits", NULL};
    if (!places_on_path(d->a, args[0])) return false;
    char *rest = doctor_ask(d->a, args, &d->no_gpu);
    if (rest && !*rest) d->no_gpu = "nvidia-smi lists none";
    for (char *line; rest && *rest && (line = strsep(&rest, "\n"));)
        if (!read_line(d, line)) d->no_gpu = arena_printf(d->a, "nvidia-smi says: %.200s", line);
    return true;
}

/* ── by NVML, in a process of its own ────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    unsigned long long total, free, used;
} Memory;

/* Writes what read_line reads. */
static void ask_nvml(const void *context, int job, FILE *result) {
    void *l = dlopen(context, RTLD_NOW), *device;
    int (*begin)(void), (*count)(unsigned *), (*get)(unsigned, void **), (*name)(void *, char *, unsigned);
    int (*memory)(void *, Memory *), (*driver)(char *, unsigned), (*capability)(void *, int *, int *);
    const struct {
        void **at;
        const char *name;
    } functions[] = {{(void **)&begin, "nvmlInit_v2"},
                     {(void **)&count, "nvmlDeviceGetCount_v2"},
                     {(void **)&get, "nvmlDeviceGetHandleByIndex_v2"},
                     {(void **)&name, "nvmlDeviceGetName"},
                     {(void **)&memory, "nvmlDeviceGetMemoryInfo"},
                     {(void **)&driver, "nvmlSystemGetDriverVersion"},
                     {(void **)&capability, "nvmlDeviceGetCudaComputeCapability"}};
    alarm(PATIENCE_S); /* a driver that hangs ends this process */
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!l || !(*functions[i].at = dlsym(l, functions[i].name))) return;
    char version[81] = "", text[97] = "";
    unsigned n = 0;
    if (begin() || driver(version, sizeof version - 1) || count(&n)) return;
    for (unsigned i = 0; i < n; i++) {
        Memory m = {0};
        int major = 0, minor = 0;
        if (get(i, &device) || name(device, text, sizeof text - 1) || memory(device, &m)) continue;
        if (capability(device, &major, &minor)) major = 0;
        fprintf(result, "%s, %.0f, %s, %d.%d\n", text, (double)m.total / MIB, version, major, minor);
    }
}

static void by_library(Doctor *d) {
    const sc_library_set *set = sc_library_look(SC_LIB_NVML, &d->no_gpu);
    ProcessResult r;
    if (!set) {
        d->no_gpu = "neither nvidia-smi nor the driver's library (libnvidia-ml.so.1) is there";
        return;
    }
    processes_run(d->a, ask_nvml, set->path, 1, &r, NULL, NULL);
    d->no_gpu =
        r.done ? "the driver lists none" : arena_printf(d->a, "%s does not answer: signal %d", set->path, r.signal);
    char *rest = arena_printf(d->a, "%.*s", r.done ? (int)r.n : 0, r.done ? r.at : "");
    for (char *line; *rest && (line = strsep(&rest, "\n")) && rest;) read_line(d, line);
}

/* ── whose profile ───────────────────────────────────────────────────────────────────────────────────────────────── */
/* Whether the words of a name are in it one after another, whole: "rtx4090" in "NVIDIA GeForce RTX 4090", "h200" in
 * "NVIDIA H200" but not in "GH200". */
static bool names_it(const char *gpu, const char *profile) {
    for (const char *from = gpu; *from; from++) {
        const char *p = profile, *g = from;
        if (from > gpu && isalnum((unsigned char)from[-1])) continue;
        for (; *p && *g; g++) {
            if (*g == ' ') continue;
            if (tolower((unsigned char)*g) != *p) break;
            p++;
        }
        if (!*p && !isalnum((unsigned char)*g)) return true;
    }
    return false;
}

static void find_profile(Doctor *d, Gpu *g) {
    enum { PREFIX = sizeof "devices/" - 1, SUFFIX = sizeof ".lua" - 1 };
    for (int i = 0; embedded_name(i) && !g->profile; i++) {
        const char *file = embedded_name(i);
        if (strncmp(file, "devices/", PREFIX)) continue;
        const char *name = arena_printf(d->a, "%.*s", (int)(strlen(file) - PREFIX - SUFFIX), file + PREFIX);
        if (names_it(g->name, name)) g->profile = device_load(d->a, name);
    }
    /* A driver tells up to a tenth less than a data sheet; the next size of any GPU differs by more. */
    g->fits = g->profile && fabs(g->bytes / g->profile->memory_bytes - 1) < 0.1;
}

void doctor_gpus(Doctor *d) {
    if (!by_program(d)) by_library(d);
    for (int i = 0; i < d->gpus.n; i++) find_profile(d, &d->gpus.at[i]);
}
