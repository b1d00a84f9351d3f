/* Says why a wait is there, from the accesses of the plan: what the awaited event has written or read, whose bytes are
 * taken over, or the order of collectives. A wait covers what its stream ran before, so the reason may be an earlier
 * event. Relies on: text.h, plan.h. Relied on by: step.c. */
#include "text.h"

enum { AT_MOST = 2 /* reasons */ };

typedef struct {
    const Emit *e;
    const PlanProgram *p;
    const Names *names;
    Str *to;
    int n;                 /* reasons so far */
    int storages[AT_MOST]; /* that they name */
} Reason;

static bool told(const Reason *r, int storage) {
    for (int i = 0; i < r->n; i++)
        if (r->storages[i] == storage) return true;
    return r->n == AT_MOST;
}

static void begin(Reason *r, const Event *w, int storage) {
    str_add(r->to, r->n ? ";\n         * " : ""); /* a line each */
    r->storages[r->n++] = storage;
    text_comment(r->to, w->op);
    str_add(r->to, " ");
    text_comment(r->to, w->module && w->module[0] ? w->module : r->e->g->name);
}

static bool meet(const Access *a, int64_t a_at, const Access *b, int64_t b_at) {
    return a_at < b_at + b->size && b_at < a_at + a->size;
}

/* Of an access of the waiting event and one of w. Other bytes are taken over by the event that begins a storage. */
static void pair(Reason *r, const Event *w, const Access *a, bool begins, const Access *b, bool wrote) {
    const Storage *mine = &r->e->plan->storages[a->storage], *its = &r->e->plan->storages[b->storage];
    if (mine->arena != its->arena || (mine != its && !begins) || told(r, b->storage)) return;
    if (!meet(a, mine->offset + a->offset, b, its->offset + b->offset)) return;
    begin(r, w, b->storage);
    str_add(r->to, wrote ? " has written " : " has read ");
    str_add(r->to, names_storage(r->names, b->storage));
    if (mine == its) return;
    str_add(r->to, ", whose bytes ");
    str_add(r->to, names_storage(r->names, a->storage));
    str_add(r->to, " takes");
}

static void of_event(Reason *r, const Event *x, const Event *w) {
    for (int k = 0; k < x->nreads + x->nwrites; k++) {
        bool writes = k >= x->nreads;
        const Access *a = writes ? &x->writes[k - x->nreads] : &x->reads[k];
        bool begins = writes && r->e->plan->storages[a->storage].first == x - r->p->events;
        for (int j = 0; j < w->nwrites; j++) pair(r, w, a, begins, &w->writes[j], true);
        for (int j = 0; j < w->nreads && writes; j++) pair(r, w, a, begins, &w->reads[j], false);
    }
}

void text_reason(Str *to, const Emit *e, const PlanProgram *p, const Names *names, const Event *x, int awaited) {
    Reason r = {.e = e, .p = p, .names = names, .to = to};
    const Event *w = &p->events[awaited];
    of_event(&r, x, w);
    if (x->comm >= 0 && w->comm >= 0) {
        str_add(to, r.n ? ";\n         * " : "");
        str_add(to, "collectives start in one order on all ranks");
        return;
    }
    for (int i = awaited - 1; i >= 0 && r.n < AT_MOST; i--)
        if (p->events[i].stream == w->stream) of_event(&r, x, &p->events[i]);
    if (r.n) return;
    begin(&r, w, -1);
    str_add(to, " and what its stream ran before are over: later events of this stream rely on it");
}
