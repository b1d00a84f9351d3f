/* Memory of the machine: how much is free, and what ranks share.
 * Relies on: job.h, /proc, the control group's files; mmap.
 * Relied on by: launch.c, the targets' world. */
#include "job.h"
#include "rank.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static double read_number(const char *path, const char *key) { /* -1: not there, or "max" */
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    char line[256];
    double x = -1;
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key))) {
            char *end, *at = line + strlen(key);
            double v = strtod(at, &end);
            if (end != at) x = v;
            break;
        }
    fclose(f);
    return x;
}

double sc_available_bytes(void) {
    double machine = read_number("/proc/meminfo", "MemAvailable:") * 1024;
    double limit = read_number("/sys/fs/cgroup/memory.max", ""),
           used = read_number("/sys/fs/cgroup/memory.current", "");
    if (limit > 0 && used >= 0 && (machine < 0 || limit - used < machine)) return limit - used;
    return machine;
}

double sc_mapped_bytes(void) {
    return read_number("/proc/self/status", "VmSize:") * 1024;
}

#ifdef SC_RANK_THREADS
void *sc_map_shared(size_t bytes) {
    size_t whole = (bytes + 4095) / 4096 * 4096;
    void *p = aligned_alloc(4096, whole);
    if (p) memset(p, 0, whole);
    return p;
}
void sc_unmap(void *p, size_t bytes) {
    free(p);
}
#else
void *sc_map_shared(size_t bytes) {
    static off_t taken; /* of the file that the processes of a job share */
    int file = sc_job_memory();
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (file < 0 ? MAP_ANONYMOUS : 0), file,
                   file < 0 ? 0 : taken);
    if (file >= 0) taken += (off_t)((bytes + 4095) / 4096 * 4096);
    return p == MAP_FAILED ? NULL : p;
}
void sc_unmap(void *p, size_t bytes) {
    munmap(p, bytes);
}
#endif
