/* What the ranks of one machine share on the CUDA target, made before they are forked and before anything touches CUDA:
 * the host arenas, the mailboxes, NCCL's id. Refuses what this target cannot do.
 * Relies on: rank.h, common/memory.c.
 * Relied on by: common/launch.c. */
#include "rank.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool refuse(const char *what, const char *remedy) {
    fprintf(stderr, "shardc: %s; %s\n", what, remedy);
    return false;
}

/* Started by a cluster's launcher? Then every rank would start the whole world again. */
static bool started_alone(const sc_build *b) {
    static const char *const ranks[] = {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};
    static const char *const sizes[] = {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (int i = 0; i < 4; i++) {
        const char *rank = getenv(ranks[i]), *size = getenv(sizes[i]);
        if (!rank || !size || atoi(size) < 2) continue;
        fprintf(stderr,
                "shardc: %s=%s and %s=%s are set: this version starts its %d ranks by itself, on one machine; run the "
                "program directly, without torchrun, srun or mpirun\n",
                ranks[i], rank, sizes[i], size, b->world);
        return false;
    }
    return true;
}

bool sc_world_fits(const sc_build *b, const sc_debug *d) {
    double need = (double)b->world * (double)b->host_bytes, have = sc_available_bytes(), gib = 1024. * 1024 * 1024;
    if (d->interleave >= 0) return refuse("--interleave works on the cpu target only", "build with --target cpu");
    if (d->redzones) return refuse("--redzones works on the cpu target only", "build with --target cpu");
    if (b->world > SC_MOST_RANKS || b->nodes > 1) {
        fprintf(stderr, "shardc: this version starts ranks on one machine; build with --nodes 1\n");
        return false;
    }
    if (!started_alone(b)) return false;
    if (have < 0 || need <= have) return true;
    fprintf(stderr,
            "shardc: %s does not fit this machine: %d ranks need %.2f GiB of pinned host memory, %.2f GiB are free; "
            "offload less, or use more memory\n",
            b->name, b->world, need / gib, have / gib);
    return false;
}

static size_t commons_size(const sc_world *w) {
    size_t boxes = w->world > 1 ? (size_t)w->world : 0;
    return sizeof(struct sc_commons) + boxes * sizeof(sc_mailbox);
}

static bool share_locks(sc_world *w) {
    pthread_mutexattr_t shared;
    bool ok = !pthread_mutexattr_init(&shared) && !pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    for (int k = 0; ok && w->world > 1 && k < w->world; k++)
        ok = !pthread_mutex_init(&w->common->mailbox[k].lock, &shared);
    return ok;
}

bool sc_world_open(sc_world *w) {
    size_t bytes = w->build->host_bytes;
    bool ok = (w->common = sc_map_shared(commons_size(w))) && share_locks(w);
    w->arena[1] = sc_calloc((size_t)w->world, sizeof *w->arena[1]);
    for (int k = 0; ok && bytes && k < w->world; k++) ok = (w->arena[1][k] = sc_map_shared(bytes)) != NULL;
    if (!ok)
        fprintf(stderr, "shardc: cannot map %d host arenas of %llu bytes: %s\n", w->world,
                (unsigned long long)w->build->host_bytes, strerror(errno));
    return ok;
}

void sc_world_close(sc_world *w) {
    for (int k = 0; w->arena[1] && k < w->world; k++)
        if (w->arena[1][k]) sc_unmap(w->arena[1][k], w->build->host_bytes);
    free(w->arena[1]);
    if (w->common) sc_unmap(w->common, commons_size(w));
}
