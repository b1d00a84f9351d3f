/* The ranks of a plan: groups that divide the world, units spread over all of it, and collectives whose bytes are those
 * of a gather, a scatter or a sum over the ranks of their group.
 * Relies on: internal.h. Ops are not asked for: the bytes of a collective tell how many ranks it was planned for.
 * Relied on by: verify.c. */
#include "internal.h"

static void check_groups(Verifier *v) {
    const Plan *p = v->plan;
    if (p->world % p->nodes)
        verify_note(v, -1, "mesh", -1, -1, "%d ranks do not stand on %d nodes, equally many on each", p->world,
                    p->nodes);
    for (int i = 0; i < p->ncomms; i++) {
        const Comm *c = &p->comms[i];
        if (c->n < 1 || c->step < 1 || p->world % ((int64_t)c->n * c->step))
            verify_note(v, -1, "mesh", -1, -1, "groups of %d ranks, %d apart (%s), do not make up the world of %d",
                        c->n, c->step, c->name, p->world);
    }
    if (p->ncomms <= COMM_WORLD) {
        verify_note(v, -1, "mesh", -1, -1, "the groups shard, replicate and world are not all there");
        return;
    }
    const Comm *shard = &p->comms[COMM_SHARD], *replicate = &p->comms[COMM_REPLICATE], *world = &p->comms[COMM_WORLD];
    if ((int64_t)shard->n * replicate->n != p->world)
        verify_note(v, -1, "mesh", -1, -1, "%d shards × %d replicas do not make up the world of %d ranks", shard->n,
                    replicate->n, p->world);
    if (shard->step != 1 || replicate->step != shard->n)
        verify_note(v, -1, "mesh", -1, -1, "shards stand %d apart, replicas %d: 1 and %d would make up the mesh",
                    shard->step, replicate->step, shard->n);
    if (world->n != p->world)
        verify_note(v, -1, "mesh", -1, -1, "the group of all ranks has %d of %d", world->n, p->world);
}

static void check_units(Verifier *v) {
    const Plan *p = v->plan;
    for (int i = 0; i < p->nunits; i++) {
        const PlanUnit *u = &p->units[i];
        if ((int64_t)u->shards * u->replicas != p->world)
            verify_note(v, -1, "mesh", -1, -1, "unit %s lies in %d shards × %d replicas, in a world of %d ranks",
                        u->path, u->shards, u->replicas, p->world);
        else if (u->numel % u->shards)
            verify_note(v, -1, "mesh", -1, -1, "unit %s has %lld elements, which %d shards do not divide", u->path,
                        (long long)u->numel, u->shards);
    }
}

/* Sizes were not looked at yet: as many as a number holds. */
static int64_t bytes_of(const Access *x, int n) {
    int64_t bytes = 0;
    for (int i = 0; i < n; i++)
        if (__builtin_add_overflow(bytes, x[i].size, &bytes)) return INT64_MAX;
    return bytes;
}

static bool times(int64_t whole, int64_t part, int n) {
    return whole % n == 0 && whole / n == part;
}

void verify_mesh(Verifier *v) {
    int collectives = 0;
    v->noted = 0;
    check_groups(v);
    check_units(v);
    for (int g = 0; g < v->plan->nprograms; g++) {
        const PlanProgram *p = &v->plan->programs[g];
        v->noted = 0;
        for (int e = 0; e < p->n; e++) {
            const Event *ev = &p->events[e];
            if (ev->comm < 0) continue;
            collectives++;
            const Comm *c = &v->plan->comms[ev->comm];
            int64_t reads = bytes_of(ev->reads, ev->nreads), writes = bytes_of(ev->writes, ev->nwrites);
            if (c->n > 0 && reads != writes && !times(writes, reads, c->n) && !times(reads, writes, c->n))
                verify_note(
                    v, g, "mesh", e, -1,
                    "%s reads %lld bytes and writes %lld: neither a gather nor a scatter over the %d ranks of group "
                    "%s, nor a sum",
                    ev->id, (long long)reads, (long long)writes, c->n, c->name);
        }
    }
    v->noted = 0;
    if (v->plan->world > 1 && !collectives)
        verify_note(v, -1, "mesh", -1, -1, "no collective joins the %d ranks", v->plan->world);
}
