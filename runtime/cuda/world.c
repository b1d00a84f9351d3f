/* What the ranks of one machine share on the CUDA target, made before they are forked and before anything touches CUDA:
 * the mailboxes, NCCL's id. Refuses what this target cannot do.
 * Relies on: rank.h, common/far.h, common/memory.c.
 * Relied on by: common/launch.c. */
#include "../common/far.h"
#include "../common/job.h"
#include "rank.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool refuse(const char *what, const char *remedy) {
    fprintf(stderr, "shardc: %s; %s\n", what, remedy);
    return false;
}

/* A plan is made for so many machines. */
static bool machines_fit(const sc_build *b) {
    const sc_place *p = sc_job_place();
    int built = b->nodes > 1 ? b->nodes : 1;
    char what[256], remedy[256];
    if (b->world > SC_MOST_RANKS) {
        snprintf(what, sizeof what, "%s was built for %d ranks", b->name, b->world);
        snprintf(remedy, sizeof remedy, "the cuda target has at most %d", SC_MOST_RANKS);
        return refuse(what, remedy);
    }
    if (built == p->nodes) return true;
    snprintf(what, sizeof what, "%s was built for %d machine%s, and its ranks are on %d", b->name, built,
             built == 1 ? "" : "s", p->nodes);
    snprintf(remedy, sizeof remedy, "start it on %d%s, or build it with --nodes %d", built,
             built > 1 ? " with torchrun, srun or mpirun" : "", p->nodes);
    return refuse(what, remedy);
}

bool sc_world_fits(const sc_build *b, const sc_debug *d) {
    double need = (double)sc_job_locals(b->world) * (double)b->host_bytes, have = sc_available_bytes(),
           gib = 1024. * 1024 * 1024;
    if (d->interleave >= 0) return refuse("--interleave works on the cpu target only", "build with --target cpu");
    if (!machines_fit(b)) return false;
    if (have < 0 || need <= have) return true;
    fprintf(stderr,
            "shardc: %s does not fit this machine: %d ranks need %.2f GiB of pinned host memory, %.2f GiB are free; "
            "offload less, or use more memory\n",
            b->name, sc_job_locals(b->world), need / gib, have / gib);
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
    bool ok = (w->common = sc_map_shared(commons_size(w))) && (w->guest || share_locks(w));
    if (!ok) fprintf(stderr, "shardc: cannot map what %d ranks share: %s\n", w->world, strerror(errno));
    return ok && sc_far_open(w);
}

/* Of several machines nothing is given back: threads may still serve the others, and the process ends. */
void sc_world_close(sc_world *w) {
    if (w->common && !w->doors) sc_unmap(w->common, commons_size(w));
}

enum { ROOM_AT = sizeof(ncclUniqueId), FAR_AT = ROOM_AT + sizeof(sc_room) };
static_assert(FAR_AT + SC_FAR_PIECE <= SC_PIECE, "a rank's piece of what is shared");

void sc_world_piece(sc_world *w, int rank, uint8_t *bytes, bool write) {
    struct sc_commons *c = w->common;
    if (write) {
        if (rank == 0) memcpy(&c->id, bytes, sizeof c->id);
        memcpy(&c->room[rank], bytes + ROOM_AT, sizeof c->room[rank]);
    } else {
        if (rank == 0) memcpy(bytes, &c->id, sizeof c->id);
        memcpy(bytes + ROOM_AT, &c->room[rank], sizeof c->room[rank]);
    }
    sc_far_piece(w, rank, bytes + FAR_AT, write);
}
