/* Promise P4: proves a plan sound from the plan alone. This file holds the driver and the simple rules.
 * Relies on: plan.h and the parts beside it; shares no code with order, place and sync.
 * Relied on by: pipeline.c (every build), `shardc verify`, the tests. */
#include "internal.h"

/* ── bounds: storages in arenas, accesses in storages and in their declared lives ────────────────────────────────── */
static void check_storages(Verifier *v) {
    const Plan *p = v->plan;
    for (int i = 0; i < p->nstorages; i++) {
        const Storage *s = &p->storages[i];
        int64_t limit = p->arena_bytes[s->arena];
        bool inside = s->offset >= 0 && s->size >= 0 && s->offset <= limit && s->size <= limit - s->offset;
        if (inside && s->program < p->nprograms) continue;
        v->unsound[i] = true;
        if (inside)
            verify_note(v, -1, "bounds", -1, -1, "%s belongs to program number %d of %d", s->name, s->program,
                        p->nprograms);
        else
            verify_note(v, -1, "bounds", -1, -1, "%s of %lld bytes at %lld lies outside the %s arena of %lld bytes",
                        s->name, (long long)s->size, (long long)s->offset, s->arena == ARENA_HOST ? "host" : "device",
                        (long long)limit);
    }
}

static void check_access(Verifier *v, int program, int e, const Access *x) {
    const Event *ev = &v->plan->programs[program].events[e];
    if (x->storage < 0 || x->storage >= v->plan->nstorages) {
        verify_note(v, program, "bounds", e, -1, "%s touches storage number %d of %d", ev->id, x->storage,
                    v->plan->nstorages);
        return;
    }
    const Storage *s = &v->plan->storages[x->storage];
    if (v->unsound[x->storage]) return;
    if (s->program >= 0 && s->program != program)
        verify_note(v, program, "bounds", e, -1, "%s touches %s, which belongs to %s", ev->id, s->name,
                    v->plan->programs[s->program].name);
    else if (!verify_access_inside(v, program, x))
        verify_note(v, program, "bounds", e, -1, "%s touches bytes %lld to %lld of %s, which has %lld", ev->id,
                    (long long)x->offset, (long long)(x->offset + x->size), s->name, (long long)s->size);
    else if (s->program >= 0 && (e < s->first || e > s->last))
        verify_note(v, program, "bounds", e, -1, "%s touches %s %s its declared life", ev->id, s->name,
                    e < s->first ? "before" : "after");
}

/* ── one order of the collectives of a chain. Issue order is the same on every rank: all run one plan
 * ─────────────────── */
static void check_collectives(Verifier *v, int program, const HappensBefore *o) {
    int *of_chain = NEW_ARRAY(v->arena, int, v->plan->ncomms + 1); /* by chain: event + 1 */
    for (int e = 0; e < o->program->n; e++) {
        const Event *ev = o->program->events;
        if (ev[e].comm < 0) continue;
        int chain = v->plan->comms[ev[e].comm].chain, last = of_chain[chain] - 1;
        if (last >= 0 && !verify_before(o, last, e))
            verify_note(
                v, program, "collective-order", e, last,
                "%s (%s) and %s (%s) are collectives that ranks may start in either order: there is no edge from %s "
                "to %s",
                ev[last].id, stream_name(ev[last].stream), ev[e].id, stream_name(ev[e].stream), ev[last].id, ev[e].id);
        of_chain[chain] = e + 1;
    }
}

/* ── every trainable parameter is updated exactly once ───────────────────────────────────────────────────────────── */
typedef struct {
    int64_t lo, hi;
    int event;
} Update;
typedef VEC(Update) Updates;

static void check_update(Verifier *v, int program, const PlanUnit *u, Updates *done) {
    int64_t need = u->numel / u->shard->size * dtype_size(u->dtype), reached = 0;
    for (int i = 0; i < done->n; i++) /* insertion sort: there is one, or a handful */
        for (int k = i; k > 0 && done->at[k].lo < done->at[k - 1].lo; k--) {
            Update t = done->at[k];
            done->at[k] = done->at[k - 1];
            done->at[k - 1] = t;
        }
    for (int i = 0; i < done->n; i++) {
        if (done->at[i].lo < reached) {
            verify_note(v, program, "update-once", done->at[i].event, i ? done->at[i - 1].event : -1,
                        "bytes %lld to %lld of unit %s's parameters are updated twice", (long long)done->at[i].lo,
                        (long long)min64(reached, done->at[i].hi), u->path);
            return;
        }
        if (done->at[i].lo > reached) break;
        reached = done->at[i].hi;
    }
    if (reached > need)
        verify_note(v, program, "update-once", -1, -1,
                    "%lld bytes of unit %s's parameters are updated, and a rank holds %lld", (long long)reached,
                    u->path, (long long)need);
    if (reached < need)
        verify_note(v, program, "update-once", -1, -1, "bytes %lld to %lld of unit %s's parameters are never updated",
                    (long long)reached, (long long)need, u->path);
}

/* A write of the unit's parameters in a program that neither initialises nor swaps must be the update, in the updating
 * program. */
static void take_update(Verifier *v, int program, int e, int updating, int unit, const Access *w, Updates *done) {
    const PlanProgram *p = &v->plan->programs[program];
    if (program == updating && p->events[e].update) {
        push(done, v->arena, ((Update){w->offset, w->offset + w->size, e}));
        return;
    }
    if (!p->events[e].update && (!strcmp(p->name, "init") || !strcmp(p->name, "swap"))) return;
    verify_note(v, program, "update-once", e, -1, "%s writes the parameters of unit %s %s", p->events[e].id,
                v->plan->units[unit].path,
                program == updating ? "but is no optimizer event" : "in a program that updates none");
}

static void check_updates(Verifier *v) {
    const Plan *p = v->plan;
    int micro = -1, micro_last = -1;
    bool several = false;
    for (int i = 0; i < p->nprograms; i++) {
        if (!strcmp(p->programs[i].name, "micro")) micro = i;
        if (!strcmp(p->programs[i].name, "micro_last")) micro_last = i;
        several |= !strcmp(p->programs[i].name, "micro_first");
    }
    int updating = several || micro_last >= 0 ? micro_last : micro;
    int *unit_of = NEW_ARRAY(v->arena, int, p->nstorages + 1);
    Updates *done = NEW_ARRAY(v->arena, Updates, p->nunits + 1);
    for (int u = 0; u < p->nunits; u++) {
        int s = p->units[u].master_storage;
        if (p->units[u].numel == 0) continue;
        if (s < 0 || s >= p->nstorages) {
            v->noted = 0;
            verify_note(v, -1, "update-once", -1, -1, "unit %s is trainable and has no parameters to update",
                        p->units[u].path);
        } else
            unit_of[s] = u + 1;
    }
    for (int g = 0; g < p->nprograms; g++) {
        v->noted = 0;
        for (int e = 0; e < p->programs[g].n; e++) {
            const Event *ev = &p->programs[g].events[e];
            for (int i = 0; i < ev->nwrites; i++) {
                const Access *w = &ev->writes[i];
                if (verify_access_inside(v, g, w) && unit_of[w->storage])
                    take_update(v, g, e, updating, unit_of[w->storage] - 1, w, &done[unit_of[w->storage] - 1]);
            }
        }
    }
    v->noted = 0;
    for (int u = 0; u < p->nunits; u++)
        if (p->units[u].numel > 0) check_update(v, updating, &p->units[u], &done[u]);
}

Findings *verify(Arena *a, const Plan *p) {
    Findings *out = NEW(a, Findings);
    Verifier v = {a, p, out, 0, NEW_ARRAY(a, bool, p->nstorages + 1), NULL};
    verify_mesh(&v);
    v.noted = 0;
    check_storages(&v);
    verify_persistent_layout(&v);
    verify_successions(&v);
    if (!v.entry_mask) return out;
    const Pieces *written = verify_persistent_writes(&v);
    for (int g = 0; g < p->nprograms; g++) {
        v.noted = 0;
        for (int e = 0; e < p->programs[g].n; e++) {
            const Event *ev = &p->programs[g].events[e];
            for (int i = 0; i < ev->nreads; i++) check_access(&v, g, e, &ev->reads[i]);
            for (int i = 0; i < ev->nwrites; i++) check_access(&v, g, e, &ev->writes[i]);
        }
        HappensBefore o = verify_happens_before(&v, g);
        check_collectives(&v, g, &o);
        verify_bytes(&v, g, &o, written);
        verify_sharing(&v, g, &o);
    }
    check_updates(&v);
    return out;
}
