/* The ranks of a plan: axes that make up the world, units spread over all of it, and collectives whose bytes are those
 * of a gather, a scatter or a sum over the ranks of their group.
 * Relies on: internal.h. Ops are not asked for: the bytes of a collective tell how many ranks it was planned for.
 * Relied on by: verify.c. */
#include "schema/mesh.h"
#include "internal.h"

/* Whether each rank of the world has other places on the axes: in some order, the stride of each axis is the product of
 * the sizes before it, and the product of all sizes is the world. */
static bool make_up(const Axis *const *axes, int n, int world) {
    int64_t span = 1, places = 1;
    for (int i = 0; i < n; i++) places *= axes[i]->size;
    for (int turn = 0; turn < n; turn++)
        for (int i = 0; i < n; i++)
            if (axes[i]->size > 1 && axes[i]->stride == span) span *= axes[i]->size;
    return places == world && span == world;
}

static void check_axes(Verifier *v) {
    const Plan *p = v->plan;
    if (p->world % p->nodes)
        verify_note(v, -1, "mesh", -1, -1, "%d ranks do not stand on %d nodes, equally many on each", p->world,
                    p->nodes);
    for (int i = 0; i < p->naxes; i++) {
        const Axis *a = p->axes[i];
        if (a->size < 1 || a->stride < 1 || p->world % ((int64_t)a->size * a->stride))
            verify_note(v, -1, "mesh", -1, -1, "groups of %d ranks, %d apart (%s), do not make up the world of %d",
                        a->size, a->stride, a->name, p->world);
    }
    for (int i = 0; i < SC_NAMED_AXES; i++)
        if (i >= p->naxes || i >= p->ncomms || p->comms[i].axis != p->axes[i]) {
            verify_note(v, -1, "mesh", -1, -1,
                        "the axes shard, replicate and world are not all there, or have no group of ranks");
            return;
        }
    if (p->axes[SC_WORLD]->size != p->world)
        verify_note(v, -1, "mesh", -1, -1, "the group of all ranks has %d of %d", p->axes[SC_WORLD]->size, p->world);
    if (!make_up(p->axes, SC_WORLD, p->world))
        verify_note(v, -1, "mesh", -1, -1,
                    "the axes shard (%d places, %d apart) and replicate (%d places, %d apart) do not make up the world "
                    "of %d ranks",
                    p->axes[SC_SHARD]->size, p->axes[SC_SHARD]->stride, p->axes[SC_REPLICATE]->size,
                    p->axes[SC_REPLICATE]->stride, p->world);
}

static void check_units(Verifier *v) {
    const Plan *p = v->plan;
    for (int i = 0; i < p->nunits; i++) {
        const PlanUnit *u = &p->units[i];
        const Axis *mesh[] = {u->shard, u->replicate, u->expert};
        if (!make_up(mesh, u->expert ? 3 : 2, p->world))
            verify_note(v, -1, "mesh", -1, -1, "unit %s lies in %d shards × %d replicas%s, in a world of %d ranks",
                        u->path, u->shard->size, u->replicate->size, u->expert ? " × groups of experts" : "", p->world);
        else if (u->numel % u->shard->size)
            verify_note(v, -1, "mesh", -1, -1, "unit %s has %lld elements, which %d shards do not divide", u->path,
                        (long long)u->numel, u->shard->size);
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
    check_axes(v);
    check_units(v);
    for (int g = 0; g < v->plan->nprograms; g++) {
        const PlanProgram *p = &v->plan->programs[g];
        v->noted = 0;
        for (int e = 0; e < p->n; e++) {
            const Event *ev = &p->events[e];
            if (ev->comm < 0) continue;
            collectives++;
            const Axis *a = v->plan->comms[ev->comm].axis;
            int64_t reads = bytes_of(ev->reads, ev->nreads), writes = bytes_of(ev->writes, ev->nwrites);
            if (a->size > 0 && reads != writes && !times(writes, reads, a->size) && !times(reads, writes, a->size))
                verify_note(
                    v, g, "mesh", e, -1,
                    "%s reads %lld bytes and writes %lld: neither a gather nor a scatter over the %d ranks of group "
                    "%s, nor a sum",
                    ev->id, (long long)reads, (long long)writes, a->size, v->plan->comms[ev->comm].name);
        }
    }
    v->noted = 0;
    if (v->plan->world > 1 && !collectives)
        verify_note(v, -1, "mesh", -1, -1, "no collective joins the %d ranks", v->plan->world);
}
