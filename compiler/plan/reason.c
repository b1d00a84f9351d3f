/* Says why a wait is there, from the accesses of the plan: what the awaited event has written or read, whose bytes are
 * taken over, or the order of collectives. A wait covers what its stream ran before, so the reason may be an earlier
 * event. Relies on: sentences.h. Relied on by: report/, emit/step.c. */
#include "sentences.h"

typedef struct {
    const Plan *plan;
    const PlanProgram *p;
    StorageName *name;
    const void *names;
    const char **said;
    int n, storages[REASONS_MOST]; /* that the reasons name */
} Reasons;

static const char *subject(const Reasons *r, const Event *w) {
    return arena_printf(r->plan->arena, "%s %s", w->op, w->module && *w->module ? w->module : r->plan->model);
}

static const char *called(const Reasons *r, int storage) {
    return r->name ? r->name(r->names, storage) : r->plan->storages[storage].name;
}

/* Of access a of the waiting event and access b of w. Where a's storage begins, it takes over the bytes of others. */
static void add_pair(Reasons *r, const Event *w, const Access *a, bool begins, const Access *b, bool wrote) {
    const Storage *mine = &r->plan->storages[a->storage], *its = &r->plan->storages[b->storage];
    int64_t a_at = mine->offset + a->offset, b_at = its->offset + b->offset;
    if (mine->arena != its->arena || (mine != its && !begins)) return;
    if (a_at >= b_at + b->size || b_at >= a_at + a->size) return;
    for (int i = 0; i < r->n; i++)
        if (r->storages[i] == b->storage) return;
    if (r->n == REASONS_MOST) return;
    const char *taken =
        mine == its ? "" : arena_printf(r->plan->arena, ", whose bytes %s takes", called(r, a->storage));
    r->storages[r->n] = b->storage;
    r->said[r->n++] = arena_printf(r->plan->arena, "%s has %s %s%s", subject(r, w), wrote ? "written" : "read",
                                   called(r, b->storage), taken);
}

static void add_event(Reasons *r, const Event *x, const Event *w) {
    for (int k = 0; k < x->nreads + x->nwrites; k++) {
        bool writes = k >= x->nreads;
        const Access *a = writes ? &x->writes[k - x->nreads] : &x->reads[k];
        bool begins = writes && r->plan->storages[a->storage].first == x - r->p->events;
        for (int j = 0; j < w->nwrites; j++) add_pair(r, w, a, begins, &w->writes[j], true);
        for (int j = 0; j < w->nreads && writes; j++) add_pair(r, w, a, begins, &w->reads[j], false);
    }
}

int plan_reasons(const Plan *plan, const PlanProgram *p, const Event *x, int awaited, StorageName *name,
                 const void *names, const char *said[REASONS_MOST + 1]) {
    Reasons r = {.plan = plan, .p = p, .name = name, .names = names, .said = said};
    const Event *w = &p->events[awaited];
    add_event(&r, x, w);
    if (x->comm >= 0 && w->comm >= 0) {
        said[r.n++] = "collectives start in one order on all ranks";
        return r.n;
    }
    for (int i = awaited - 1; i >= 0 && r.n < REASONS_MOST; i--)
        if (p->events[i].stream == w->stream) add_event(&r, x, &p->events[i]);
    if (!r.n)
        said[r.n++] = arena_printf(plan->arena,
                                   "%s and what its stream ran before are over: later events of this stream rely on it",
                                   subject(&r, w));
    return r.n;
}
