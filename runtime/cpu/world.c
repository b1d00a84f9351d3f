/* The arenas of the CPU target: in shared memory, so that collectives read their peers' directly.
 * Relies on: common/far.h, rank.h, common/memory.c.
 * Relied on by: common/launch.c. */
#include "../common/far.h"
#include "../common/job.h"
#include "../common/socket.h"
#include "../sc_kernels.h"
#include "rank.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* What a rank maps beside what this process has mapped, tried in one piece: the arenas of all ranks, a buffer of
 * kernels (one of them is here) and a stack for each thread and stream. */
static bool has_address_space(const sc_build *b) {
    const double gib = 1024. * 1024 * 1024;
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    size_t buffer = sc_kernels_buffer(), parts = (size_t)b->threads + SC_STREAMS, stack = 0;
    double mapped = sc_mapped_bytes() - (double)buffer;
    pthread_attr_t a;
    if (!pthread_attr_init(&a)) pthread_attr_getstacksize(&a, &stack), pthread_attr_destroy(&a);
    size_t arenas = (size_t)b->world * (b->arena_bytes + b->host_bytes), stacks = (parts - 2) * stack,
           more = arenas + (parts - 1) * buffer + stacks;
    void *p = mmap(NULL, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) {
        munmap(p, more);
        return true;
    }
    getrlimit(RLIMIT_AS, &limit);
    fprintf(
        stderr,
        "shardc: %s does not fit the address space of a process: a rank maps %.2f GiB (the program %.2f, arenas of all "
        "ranks %.2f, %zu buffers of OpenBLAS %.2f, stacks %.2f), and ulimit -v allows %.2f; lift it (ulimit -v "
        "unlimited), or give fewer --threads\n",
        b->name, (mapped + (double)buffer + (double)more) / gib, mapped / gib, (double)arenas / gib, parts,
        (double)(parts * buffer) / gib, (double)stacks / gib, (double)limit.rlim_cur / gib);
    return false;
}

bool sc_world_fits(const sc_build *b, const sc_debug *d) {
    int ranks = sc_job_locals(b->world); /* of those of other machines only addresses are taken */
    double need = ranks * (double)(b->arena_bytes + b->host_bytes), have = sc_available_bytes(),
           gib = 1024. * 1024 * 1024;
    if (have < 0 || need <= have) return has_address_space(b);
    fprintf(stderr,
            "shardc: %s does not fit this machine: %d ranks need %.2f GiB (device arena %.2f, host arena %.2f each), "
            "%.2f GiB are free; use a smaller batch, recompute or offload, or more memory\n",
            b->name, ranks, need / gib, (double)b->arena_bytes / gib, (double)b->host_bytes / gib, have / gib);
    return false;
}

static size_t arena_size(const sc_world *w, int host) {
    return host ? w->build->host_bytes : w->build->arena_bytes;
}

bool sc_world_open(sc_world *w) {
    const sc_build *b = w->build;
    bool ok = true;
    for (int host = 0; host < 2; host++) {
        size_t bytes = arena_size(w, host);
        w->arena[host] = sc_calloc((size_t)b->world, sizeof *w->arena[host]);
        for (int k = 0; ok && bytes && k < b->world; k++) ok = (w->arena[host][k] = sc_map_shared(bytes)) != NULL;
    }
    if (!ok)
        fprintf(stderr, "shardc: cannot map %d arenas of %llu + %llu bytes: %s\n", b->world,
                (unsigned long long)b->arena_bytes, (unsigned long long)b->host_bytes, strerror(errno));
    return ok && sc_far_open(w);
}

void sc_world_piece(sc_world *w, int rank, uint8_t *bytes, bool write) {
    sc_far_piece(w, rank, bytes, write);
}

bool sc_world_send(const sc_world *w, int fd, int rank, int host, uint64_t at, uint64_t bytes) {
    return sc_socket_send(fd, w->arena[host][rank] + at, bytes);
}

void sc_leave(int code) {
    exit(code);
}

void sc_tell_libraries(void) {}

/* Of several machines nothing is given back: threads may still serve the others, and the process ends. */
void sc_world_close(sc_world *w) {
    if (w->doors) return;
    for (int host = 0; host < 2; host++) {
        for (int k = 0; w->arena[host] && k < w->world; k++)
            if (w->arena[host][k]) sc_unmap(w->arena[host][k], arena_size(w, host));
        free(w->arena[host]);
    }
}
