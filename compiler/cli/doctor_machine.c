/* The machine that `shardc doctor` runs on: system, processor, memory, shared memory, limits of a process.
 * Relies on: doctor.h, Linux (/proc, /sys/fs/cgroup, /dev/shm).
 * Relied on by: doctor.c. */
#include "../plan/figures.h"
#include "doctor.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

static const double MIB = 1 << 20;
static const double LEAST_SHARED = 1 << 30; /* what NCCL's guide gives to a container */
enum { LEAST_FILES = 1024, LEAST_FREE_MIB = 1024 };

/* What stands behind `key` in the first line of a file that begins with it, without quotes; NULL: there is none. */
static char *value_of(Arena *a, const char *path, const char *key) {
    FILE *f = fopen(path, "r");
    char line[16384], *value = NULL;
    size_t n = strlen(key);
    while (f && !value && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, n)) continue;
        char *from = line + n + strspn(line + n, " \t:=\"");
        from[strcspn(from, "\"\n")] = 0;
        value = arena_strdup(a, from);
    }
    if (f) fclose(f);
    return value;
}

static double kilobytes(Arena *a, const char *key) { /* in bytes; 0: not told */
    const char *text = value_of(a, "/proc/meminfo", key);
    return text ? 1024 * atof(text) : 0;
}

static void system_of(Doctor *d) {
    struct utsname u;
    const char *name = value_of(d->a, "/etc/os-release", "PRETTY_NAME=");
    if (uname(&u)) return;
    doctor_found(d, GROUP_MACHINE, "system", "%s, Linux %s, %s", name ? name : "a Linux of no name", u.release,
                 u.machine);
}

/* By the affinity of this process and its group's share of time: "150000 100000" is one and a half. */
static void processor(Doctor *d) {
    cpu_set_t set;
    const char *model = value_of(d->a, "/proc/cpuinfo", "model name"),
               *flags = value_of(d->a, "/proc/cpuinfo", "flags");
    const char *share = value_of(d->a, "/sys/fs/cgroup/cpu.max", "");
    double quota = 0, period = 0;
    d->cores = sched_getaffinity(0, sizeof set, &set) ? (int)sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&set);
    if (share && sscanf(share, "%lf %lf", &quota, &period) == 2 && period > 0 && quota / period < d->cores)
        d->cores = (int)fmax(1, floor(quota / period));
    bool wide = flags && strstr(flags, " avx512f"), avx2 = flags && strstr(flags, " avx2");
    Fact *f = doctor_found(d, GROUP_MACHINE, "processor", "%d core%s%s%s%s%s", d->cores, d->cores == 1 ? "" : "s",
                           model ? " of " : "", model ? model : "", flags ? ", " : "",
                           !flags ? ""
                           : wide ? "AVX-512"
                           : avx2 ? "AVX2"
                                  : "no AVX2");
    if (!flags || avx2) return;
    f->condition = DOUBTFUL;
    f->without = "without AVX2 programs for GPUs do not run, and those for the CPU are slow";
}

static void memory(Doctor *d) {
    double all = kilobytes(d->a, "MemTotal"), left = kilobytes(d->a, "MemAvailable");
    const char *most = value_of(d->a, "/sys/fs/cgroup/memory.max", ""),
               *used = value_of(d->a, "/sys/fs/cgroup/memory.current", "");
    double limit = most ? atof(most) : 0, held = used ? atof(used) : 0; /* "max": no limit */
    bool limited = limit > 0 && limit < all;
    d->memory = limited ? limit : all;
    if (limited) left = fmin(left, fmax(0, limit - held));
    Fact *f = doctor_found(d, GROUP_MACHINE, "memory", "%s%s, %s available", figure_bytes(d->a, d->memory),
                           limited ? " for this group of processes" : "", figure_bytes(d->a, left));
    if (left >= LEAST_FREE_MIB * MIB) return;
    f->condition = DOUBTFUL;
    f->without = "the system may end a build's C compiler";
    f->mend = "end other programs";
}

static void shared_memory(Doctor *d) {
    struct statvfs s;
    bool several = d->gpus.n > 1, there = !statvfs("/dev/shm", &s);
    d->shared_memory = there ? (double)s.f_blocks * (double)s.f_frsize : 0;
    Fact *f = doctor_found(d, GROUP_MACHINE, "shared memory", "/dev/shm %s%s", there ? "has " : "is not there",
                           there ? figure_bytes(d->a, d->shared_memory) : "");
    if (d->shared_memory >= LEAST_SHARED || !several) return;
    f->condition = DOUBTFUL;
    f->without = "NCCL may not start on several GPUs: its processes meet there";
    f->mend = "docker run --shm-size=1g ..., or as root: mount -o remount,size=1G /dev/shm";
}

static const char *limit_text(Arena *a, rlim_t x, bool bytes) {
    return x == RLIM_INFINITY ? "no limit" : bytes ? figure_bytes(a, (double)x) : figure_grouped(a, (double)x);
}

static void limits(Doctor *d) {
    struct rlimit files, locked;
    if (getrlimit(RLIMIT_NOFILE, &files) || getrlimit(RLIMIT_MEMLOCK, &locked)) return;
    Fact *f = doctor_found(d, GROUP_MACHINE, "open files", "%s", limit_text(d->a, files.rlim_max, false));
    if (files.rlim_max < LEAST_FILES) {
        f->condition = DOUBTFUL;
        f->without = "a run with many files of data, or many ranks, may not start";
        f->mend = "as root, before the run: ulimit -n 65536";
    }
    f = doctor_found(d, GROUP_MACHINE, "locked memory", "%s", limit_text(d->a, locked.rlim_max, true));
    if (locked.rlim_max == RLIM_INFINITY || d->gpus.n < 2) return;
    f->condition = DOUBTFUL;
    f->without = "NCCL over InfiniBand, between machines, may not start";
    f->mend = "docker run --ulimit memlock=-1 ..., or as root, before the run: ulimit -l unlimited";
}

void doctor_machine(Doctor *d) {
    system_of(d);
    processor(d);
    memory(d);
    shared_memory(d);
    limits(d);
}
