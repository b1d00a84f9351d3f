/* The arenas of the CPU target: in shared memory, so that collectives read their peers' directly.
 * Relies on: rank.h, common/memory.c.
 * Relied on by: common/launch.c. */
#include "rank.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool sc_world_fits(const sc_build *b, const sc_debug *d) {
    double need = (double)b->world * (double)(b->arena_bytes + b->host_bytes), have = sc_available_bytes(),
           gib = 1024. * 1024 * 1024;
    if (!sc_one_machine()) {
        fprintf(stderr,
                "shardc: the ranks of the cpu target read each other's memory: start all %d of %s on one machine, or "
                "build it with --target cuda\n",
                b->world, b->name);
        return false;
    }
    if (have < 0 || need <= have) return true;
    fprintf(stderr,
            "shardc: %s does not fit this machine: %d ranks need %.2f GiB (device arena %.2f, host arena %.2f each), "
            "%.2f GiB are free; use a smaller batch, recompute or offload, or more memory\n",
            b->name, b->world, need / gib, (double)b->arena_bytes / gib, (double)b->host_bytes / gib, have / gib);
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
    return ok;
}

void sc_leave(int code) {
    exit(code);
}

void sc_tell_libraries(void) {}

void sc_world_piece(sc_world *w, int rank, uint8_t *bytes, bool write) {}

void sc_world_close(sc_world *w) {
    for (int host = 0; host < 2; host++) {
        for (int k = 0; w->arena[host] && k < w->world; k++)
            if (w->arena[host][k]) sc_unmap(w->arena[host][k], arena_size(w, host));
        free(w->arena[host]);
    }
}
