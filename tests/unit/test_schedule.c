/* order, place, wait and simulate on plans made by hand and by chance, against brute force.
 * Relies on: Criterion; passes/, devices/.
 * Relied on by: make test. */
#include "passes/pack.h"
#include "passes/passes.h"

#include <criterion/criterion.h>
#include <stdlib.h>

/* ── plans by chance ────────────────────────────────────────────────────────────────────────────────────────────────── */
static uint64_t seed;
static int chance(int n) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (int)((seed >> 33) % (uint64_t)n);
}

enum { MAX_EVENTS = 80 };

typedef struct {
    Arena *a;
    Plan *plan;
    Edges order;
    int n;
    bool must[MAX_EVENTS][MAX_EVENTS], may[MAX_EVENTS][MAX_EVENTS]; /* closures: with order edges, `may` */
} Case;

static void add_access(Case *c, Event *e, bool write, int storage) {
    const Storage *s = &c->plan->storages[storage];
    int64_t at = chance(3) ? 0 : chance((int)s->size / 64) * 64, size = at ? 1 + chance((int)(s->size - at)) : s->size;
    Access x = {storage, at, size};
    Access **list = write ? &e->writes : &e->reads;
    int *n = write ? &e->nwrites : &e->nreads;
    if (!*list) *list = NEW_ARRAY(c->a, Access, 200);
    (*list)[(*n)++] = x;
}

static void make_events(Case *c, int n, int streams) {
    PlanProgram *p = c->plan->programs;
    p->n = c->n = n;
    p->events = NEW_ARRAY(c->a, Event, n);
    for (int i = 0; i < n; i++) {
        Event *e = &p->events[i];
        e->id = arena_printf(c->a, "e%d", i);
        e->stream = chance(3) ? (Stream)chance(streams) : COMPUTE;
        e->comm = (e->stream == GATHER || e->stream == REDUCE) && chance(2) ? chance(3) : -1;
        e->unit = -1;
    }
}

static void make_storages(Case *c, int n) {
    Plan *p = c->plan;
    p->storages = NEW_ARRAY(c->a, Storage, n);
    p->nstorages = n;
    for (int i = 0; i < n; i++) {
        bool fixed = chance(10) == 0;
        p->storages[i] = (Storage){.id = i, .program = fixed ? -1 : 0, .size = 256 * (1 + chance(12)),
                                   .arena = chance(6) ? ARENA_DEVICE : ARENA_HOST, .first = -1, .last = -1};
        int at = chance(c->n), uses = 1 + chance(4);
        add_access(c, &p->programs->events[at], true, i);
        for (; uses > 0 && at < c->n - 1; uses--) {
            at += 1 + chance(min64(c->n - at - 1, 12));
            add_access(c, &p->programs->events[at], chance(4) == 0, i);
        }
    }
}

static Case *make_case(uint64_t s) {
    seed = s * 7919 + 1;
    Arena *a = arena_new();
    Case *c = NEW(a, Case);
    c->a = a;
    c->plan = NEW(a, Plan);
    c->plan->arena = a;
    c->plan->nprograms = 1;
    c->plan->programs = NEW(a, PlanProgram);
    c->plan->programs->name = "micro";
    make_events(c, 4 + chance(MAX_EVENTS - 4), 1 + chance(N_STREAMS));
    make_storages(c, 1 + chance(40));
    for (int k = chance(20); k > 0; k--) {
        int from = chance(c->n), to = chance(c->n);
        if (from < to) push(&c->order, a, ((Edge){from, to}));
    }
    return c;
}

/* ── brute force ────────────────────────────────────────────────────────────────────────────────────────────────────── */
static bool touches(const Event *e, int storage) {
    for (int i = 0; i < e->nreads; i++)
        if (e->reads[i].storage == storage) return true;
    for (int i = 0; i < e->nwrites; i++)
        if (e->writes[i].storage == storage) return true;
    return false;
}

static bool same_bytes(const Access *x, int nx, const Access *y, int ny) {
    for (int i = 0; i < nx; i++)
        for (int k = 0; k < ny; k++)
            if (x[i].storage == y[k].storage && x[i].offset < y[k].offset + y[k].size && y[k].offset < x[i].offset + x[i].size)
                return true;
    return false;
}

static bool conflict(const Event *a, const Event *b) {
    return same_bytes(a->writes, a->nwrites, b->writes, b->nwrites) || same_bytes(a->writes, a->nwrites, b->reads, b->nreads) ||
           same_bytes(a->reads, a->nreads, b->writes, b->nwrites);
}

typedef bool Closure[MAX_EVENTS][MAX_EVENTS];

static void close_over(Closure m, int n) {
    for (int k = 0; k < n; k++)
        for (int i = 0; i < n; i++)
            if (m[i][k])
                for (int j = 0; j < n; j++) m[i][j] |= m[k][j];
}

static void required(Case *c, Closure m) { /* stream order, data, collectives */
    const Event *ev = c->plan->programs->events;
    for (int i = 0; i < c->n; i++)
        for (int j = i + 1; j < c->n; j++)
            m[i][j] = ev[i].stream == ev[j].stream || conflict(&ev[i], &ev[j]) || (ev[i].comm >= 0 && ev[j].comm >= 0);
}

static bool sharing(const Storage *a, const Storage *b, int guard) {
    return a->arena == b->arena && a->offset < b->offset + b->size + guard && b->offset < a->offset + a->size + guard;
}

static bool all_before(Case *c, Closure m, int s, int t) {
    const Event *ev = c->plan->programs->events;
    for (int i = 0; i < c->n; i++)
        for (int j = 0; j < c->n; j++)
            if (touches(&ev[i], s) && touches(&ev[j], t) && !m[i][j]) return false;
    return true;
}

static void check_placement(Case *c, int guard) {
    const Plan *p = c->plan;
    required(c, c->may);
    for (int i = 0; i < c->order.n; i++) c->may[c->order.at[i].from][c->order.at[i].to] = true;
    close_over(c->may, c->n);
    for (int s = 0; s < p->nstorages; s++) {
        const Storage *x = &p->storages[s];
        cr_assert(x->offset >= guard && x->offset % 256 == 0);
        cr_assert(x->offset + x->size + guard <= p->arena_bytes[x->arena]);
        for (int t = 0; t < s; t++) {
            const Storage *y = &p->storages[t];
            if (!sharing(x, y, guard)) continue;
            cr_assert(x->program >= 0 && y->program >= 0, "a persistent storage shares bytes");
            cr_assert(all_before(c, c->may, s, t) || all_before(c, c->may, t, s), "storages %d and %d share bytes", s, t);
        }
    }
}

/* Everything that must be ordered, as pairs; then whether the waits order them all. */
static bool waits_suffice(Case *c, const Closure need) {
    const PlanProgram *p = c->plan->programs;
    Closure m = {{0}};
    for (int i = 0; i < c->n; i++)
        for (int j = i + 1; j < c->n; j++) m[i][j] = p->events[i].stream == p->events[j].stream;
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < p->events[i].nwaits; k++)
            if (p->events[i].waits[k] >= 0) m[p->events[i].waits[k]][i] = true;
    close_over(m, c->n);
    for (int i = 0; i < c->n; i++)
        for (int j = 0; j < c->n; j++)
            if (need[i][j] && !m[i][j]) return false;
    return true;
}

static void check_waits(Case *c) {
    const Plan *p = c->plan;
    Closure need = {{0}};
    required(c, need);
    for (int s = 0; s < p->nstorages; s++)
        for (int t = 0; t < p->nstorages; t++) {
            const Storage *x = &p->storages[s], *y = &p->storages[t];
            if (s == t || x->program < 0 || y->program < 0 || !sharing(x, y, 0) || !all_before(c, c->may, s, t)) continue;
            for (int i = 0; i < c->n; i++)
                for (int j = 0; j < c->n; j++)
                    if (touches(&p->programs->events[i], s) && touches(&p->programs->events[j], t)) need[i][j] = true;
        }
    cr_assert(waits_suffice(c, need));
    for (int i = 0; i < c->n; i++) {
        Event *e = &p->programs->events[i];
        for (int k = 0; k < e->nwaits; k++) {
            int w = e->waits[k];
            cr_assert(w < i && p->programs->events[w].stream != e->stream);
            e->waits[k] = -1;
            cr_assert(!waits_suffice(c, need), "%s need not wait for e%d", e->id, w);
            e->waits[k] = w;
        }
    }
}

static Schedule *schedule_case(Case *c) {
    Edges conflicts = {0};
    find_conflicts(c->a, c->plan, 0, &conflicts);
    Schedule *s = schedule_new(c->plan);
    schedule_program(s, c->plan, 0, &conflicts, &c->order);
    return s;
}

static void check_case(uint64_t number, int guard) {
    Case *c = make_case(number);
    Schedule *s = schedule_case(c);
    place(c->plan, s, guard);
    wait_pass(c->plan, s);
    check_placement(c, guard);
    check_waits(c);
    for (int k = 0; k < N_ARENAS; k++) cr_assert(c->plan->arena_bytes[k] >= c->plan->bound_bytes[k]);
    arena_free(c->a);
}

Test(schedule, random_plans_share_no_live_bytes_and_have_exactly_the_needed_waits) {
    for (int i = 0; i < 400; i++) check_case((uint64_t)i, 0);
}

Test(schedule, red_zones_are_free_on_both_sides) {
    for (int i = 0; i < 100; i++) check_case((uint64_t)i + 1000, 512);
}

Test(schedule, place_is_the_same_twice) {
    for (int i = 0; i < 20; i++) {
        Case *a = make_case((uint64_t)i), *b = make_case((uint64_t)i);
        place(a->plan, schedule_case(a), 0);
        place(b->plan, schedule_case(b), 0);
        for (int s = 0; s < a->plan->nstorages; s++)
            cr_assert_eq(a->plan->storages[s].offset, b->plan->storages[s].offset);
        arena_free(a->a);
        arena_free(b->a);
    }
}

/* ── packing ────────────────────────────────────────────────────────────────────────────────────────────────────────── */
static Item item(int64_t size, int first, int last) {
    Item x = {.size = size, .first = first, .last = last, .reach = last};
    x.begin[COMPUTE] = first;
    x.end[COMPUTE] = last + 1;
    return x;
}

Test(pack, nested_lives_reach_the_bound) {
    enum { LAYERS = 200 };
    Item items[3 * LAYERS];
    int n = 0, where;
    for (int l = 0; l < LAYERS; l++) {
        items[n++] = item(256 * (1 + l % 7), 2 * l, 4 * LAYERS - 2 * l);
        items[n++] = item(256 * (1 + l % 5), 2 * l, 2 * l + 1);
        items[n++] = item(256 * (1 + l % 11), 4 * LAYERS - 2 * l, 4 * LAYERS - 2 * l + 1);
    }
    int64_t bound = pack_bound(items, n, 4 * LAYERS + 2, &where);
    cr_assert_eq(pack(items, n, 4 * LAYERS + 2, &bound, 0, 0), bound);
}

/* Taking a strip apart at random gives an instance whose bound can be reached. */
Test(pack, random_lives_come_near_the_bound) {
    double worst = 0;
    for (int k = 0; k < 10; k++) {
        seed = (uint64_t)k + 5;
        Item items[300];
        for (int i = 0; i < 300; i++) {
            int first = chance(1000);
            items[i] = item(256 * (1 + chance(64)), first, (int)min64(999, first + chance(60)));
        }
        int where;
        int64_t bound = pack_bound(items, 300, 1000, &where);
        double ratio = (double)pack(items, 300, 1000, &bound, 0, 2000000) / (double)bound;
        if (ratio > worst) worst = ratio;
    }
    cr_assert(worst < 1.06, "%f", worst);
}
