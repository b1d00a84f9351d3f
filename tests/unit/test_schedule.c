/* order, place, wait and simulate on plans made by hand and by chance, against brute force.
 * Relies on: Criterion; lower/, devices/.
 * Relied on by: make test. */
#include "cost/timeline.h"
#include "dies.h"
#include "ir/mesh.h"
#include "ir/policy.h"
#include "lower/lower.h"
#include "pack/pack.h"
#include "schedule/schedule.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* ── plans by chance ───────────────────────────────────────────────────────────────────────────────────────── */
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
    static const Axis two = {0, "shard", 2, 1}, one = {1, "replicate", 1, 2};
    static Comm comms[] = {{"shard", &two, 0}, {"replicate", &one, 0}, {"world", &two, 0}, {"exchange", &two, 1}};
    PlanProgram *p = c->plan->programs;
    c->plan->comms = comms;
    c->plan->ncomms = 4;
    p->n = c->n = n;
    p->events = NEW_ARRAY(c->a, Event, n);
    for (int i = 0; i < n; i++) {
        Event *e = &p->events[i];
        e->id = arena_printf(c->a, "e%d", i);
        e->stream = chance(3) ? (Stream)chance(streams) : COMPUTE;
        e->comm = (e->stream == GATHER || e->stream == REDUCE) && chance(2) ? chance(4) : -1;
        e->unit = -1;
    }
}

static void make_storages(Case *c, int n) {
    Plan *p = c->plan;
    p->storages = NEW_ARRAY(c->a, Storage, n);
    p->nstorages = n;
    for (int i = 0; i < n; i++) {
        bool fixed = chance(10) == 0;
        p->storages[i] = (Storage){.id = i,
                                   .program = fixed ? -1 : 0,
                                   .size = 256 * (1 + chance(12)),
                                   .arena = chance(6) ? ARENA_DEVICE : ARENA_HOST,
                                   .first = -1,
                                   .last = -1};
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

/* ── brute force ───────────────────────────────────────────────────────────────────────────────────────────── */
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
            if (x[i].storage == y[k].storage && x[i].offset < y[k].offset + y[k].size &&
                y[k].offset < x[i].offset + x[i].size)
                return true;
    return false;
}

static bool conflict(const Event *a, const Event *b) {
    return same_bytes(a->writes, a->nwrites, b->writes, b->nwrites) ||
           same_bytes(a->writes, a->nwrites, b->reads, b->nreads) ||
           same_bytes(a->reads, a->nreads, b->writes, b->nwrites);
}

typedef bool Closure[MAX_EVENTS][MAX_EVENTS];

static void close_over(Closure m, int n) {
    for (int k = 0; k < n; k++)
        for (int i = 0; i < n; i++)
            if (m[i][k])
                for (int j = 0; j < n; j++) m[i][j] |= m[k][j];
}

static bool one_chain(const Case *c, const Event *a, const Event *b) {
    const Comm *comms = c->plan->comms;
    return a->comm >= 0 && b->comm >= 0 && comms[a->comm].chain == comms[b->comm].chain;
}

static void required(Case *c, Closure m) { /* stream order, data, collectives */
    const Event *ev = c->plan->programs->events;
    for (int i = 0; i < c->n; i++)
        for (int j = i + 1; j < c->n; j++)
            m[i][j] = ev[i].stream == ev[j].stream || conflict(&ev[i], &ev[j]) || one_chain(c, &ev[i], &ev[j]);
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
            cr_assert(all_before(c, c->may, s, t) || all_before(c, c->may, t, s), "storages %d and %d share bytes", s,
                      t);
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
            if (s == t || x->program < 0 || y->program < 0 || !sharing(x, y, 0) || !all_before(c, c->may, s, t))
                continue;
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
    schedule_conflicts(c->a, c->plan, 0, &conflicts);
    Schedule *s = schedule_new(c->plan);
    schedule_program(s, c->plan, 0, &conflicts, &c->order, &(Edges){0});
    return s;
}

static void check_case(uint64_t number, int guard) {
    Case *c = make_case(number);
    Schedule *s = schedule_case(c);
    schedule_place(c->plan, s, guard, false);
    schedule_sync(c->plan, s);
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

/* Seconds of finding the conflicts of n pieces of one storage: it is written whole, then each is read, then written. */
static double time_conflicts(int n, int *found) {
    double least = INFINITY;
    for (int k = 0; k < 3; k++) {
        Case c = {.a = arena_new(), .plan = &(Plan){.nprograms = 1, .nstorages = 1}};
        PlanProgram p = {.name = "micro"};
        Edges edges = {0};
        c.plan->arena = c.a, c.plan->programs = &p;
        c.plan->storages = &(Storage){.size = 64 * (int64_t)n};
        make_events(&c, 1 + 2 * n, 1);
        for (int e = 0; e <= 2 * n; e++) {
            Event *ev = &p.events[e];
            Access *x = NEW(c.a, Access);
            *x = e ? (Access){0, 64 * (int64_t)((e - 1) % n), 64} : (Access){0, 0, 64 * (int64_t)n};
            if (e && e <= n)
                ev->reads = x, ev->nreads = 1;
            else
                ev->writes = x, ev->nwrites = 1;
        }
        clock_t from = clock();
        schedule_conflicts(c.a, c.plan, 0, &edges);
        least = fmin(least, (double)(clock() - from) / CLOCKS_PER_SEC);
        *found = edges.n;
        arena_free(c.a);
    }
    return least;
}

/* Eight times the pieces: eight times as long, where a quadratic search takes 64 times. */
Test(time, conflicts_grow_with_the_accesses_of_a_storage) {
    int edges;
    double once = time_conflicts(8000, &edges), eight = time_conflicts(64000, &edges);
    cr_expect_eq(edges, 3 * 64000, "each read after the whole, each write after its read and the whole");
    if (getenv("SHOW")) fprintf(stderr, "conflicts: %.4f s, %.4f s\n", once, eight);
    cr_expect_lt(eight, 32 * fmax(once, 0.008), "%.3f s, then %.3f", once, eight);
}

Test(schedule, place_is_the_same_twice) {
    for (int i = 0; i < 20; i++) {
        Case *a = make_case((uint64_t)i), *b = make_case((uint64_t)i);
        schedule_place(a->plan, schedule_case(a), 0, false);
        schedule_place(b->plan, schedule_case(b), 0, false);
        for (int s = 0; s < a->plan->nstorages; s++)
            cr_assert_eq(a->plan->storages[s].offset, b->plan->storages[s].offset);
        arena_free(a->a);
        arena_free(b->a);
    }
}

/* ── packing ───────────────────────────────────────────────────────────────────────────────────────────────── */
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
    cr_assert_eq(pack(items, n, 4 * LAYERS + 2, &bound, 0, 1000000, 0), bound);
}

/* Taking a strip apart at random gives an instance whose bound can be reached. */
Test(pack, random_lives_come_near_the_bound) {
    double worst = 0;
    for (int k = 0; k < 10; k++) {
        seed = (uint64_t)k + 5;
        Item items[300];
        for (int i = 0; i < 300; i++) {
            int first = chance(1000), last = (int)min64(999, first + chance(60));
            items[i] = item(256 * (1 + chance(64)), first, last);
        }
        int where;
        int64_t bound = pack_bound(items, 300, 1000, &where);
        double ratio = (double)pack(items, 300, 1000, &bound, 0, 2000000, 0) / (double)bound;
        if (ratio > worst) worst = ratio;
    }
    cr_assert(worst < 1.06, "%f", worst);
}

/* ── a graph made by hand: units in a row, forward and backward, gathers, reduces, updates ─────────────────── */
typedef struct {
    Graph *g;
    Program *p;
    Plan *plan;
    Device d;
} Net;

static Op *add_op(Net *n, OpKind kind, const char *id, Phase phase, Purpose purpose, Unit *u) {
    Op *op = op_new(n->g, kind);
    op->id = id;
    op->phase = phase;
    op->purpose = purpose;
    op->unit = u;
    op->module = u ? u->module : n->g->root;
    push(&n->p->ops, n->g->arena, op);
    return op;
}

static Value *out(Net *n, Op *op, int64_t numel) {
    Value *v = value_new(n->g, FP32, 1, &numel);
    v->def = op;
    op->out[op->nout++] = v;
    return v;
}

static void in(Op *op, Value *v) {
    op->in[op->nin++] = v;
}

static Value *softmax(Net *n, const char *id, Phase phase, Value *x) { /* stands for any kernel of one operand */
    Op *op = add_op(n, OP_softmax, id, phase, TO_COMPUTE, NULL);
    in(op, x);
    return out(n, op, value_numel(x));
}

static const char *name(Net *n, const char *what, int i) {
    return arena_printf(n->g->arena, what, i);
}

static Net *net_new(int units, int prefetch) {
    Graph *g = graph_new(arena_new());
    Net *n = NEW(g->arena, Net);
    n->g = g;
    n->p = NEW(g->arena, Program);
    n->p->name = "micro";
    push(&g->programs, g->arena, n->p);
    g->world = 2;
    const Axis *shard = mesh_axis(g, 2, 1), *replicate = mesh_axis(g, 1, 2);
    for (int i = 0; i <= units; i++) {
        Module *m = NEW(g->arena, Module);
        m->path = i ? name(n, "layers.%d", i - 1) : "";
        if (!i) g->root = m;
        push(&g->modules, g->arena, m);
        if (!i) continue;
        Unit *u = NEW(g->arena, Unit);
        *u = (Unit){.id = i - 1,
                    .module = m,
                    .policy = NEW(g->arena, UnitPolicy),
                    .numel = 512,
                    .shard = shard,
                    .replicate = replicate};
        u->policy->prefetch_forward = u->policy->prefetch_backward = prefetch;
        u->master = state_new(g, S_MASTER, name(n, "layers.%d/master", i - 1), FP32, 256, u);
        push(&g->units, g->arena, u);
    }
    n->d = (Device){.name = "test",
                    .target = "cpu",
                    .flops = {[FP32] = 1e12},
                    .matmul_efficiency = 1,
                    .memory_bandwidth = 1e9,
                    .link_bandwidth = 1e9,
                    .network_bandwidth = 1e9,
                    .host_bandwidth = 1e9,
                    .host_optimizer_bandwidth = 1e9,
                    .launch_us = 1,
                    .ranks_per_node = 8};
    return n;
}

static Value *gather(Net *n, Unit *u, const char *id, Phase phase) {
    Op *op = add_op(n, OP_all_gather, id, phase, TO_UNSHARD, u);
    op->all_gather.ranks = n->g->world;
    in(op, u->master->value);
    return out(n, op, 512);
}

/* Uses unit u's parameters on x. */
static Value *layer(Net *n, Unit *u, const char *id, Phase phase, Value *x, Value *full) {
    Op *op = add_op(n, OP_concat, id, phase, TO_COMPUTE, NULL);
    in(op, x);
    in(op, full);
    (void)u;
    return out(n, op, 1024);
}

static void reduce_and_update(Net *n, Unit *u, Value *grad) {
    Op *r = add_op(n, OP_reduce_scatter, name(n, "r%d", u->id), BACKWARD, TO_REDUCE, u);
    r->reduce_scatter.ranks = n->g->world;
    in(r, grad);
    Value *shard = out(n, r, 256);
    Op *o = add_op(n, OP_sgd, name(n, "u%d", u->id), OPTIMIZER, TO_UPDATE, u);
    in(o, shard);
    in(o, u->master->value);
    in(o, shard);
}

enum { MOST_UNITS = 8 };

static Net *net_gathered(int units, int prefetch, bool again) { /* again: in the backward too */
    Net *n = net_new(units, prefetch);
    Graph *g = n->g;
    Value *kept[MOST_UNITS];
    Op *start = add_op(n, OP_full, "e0", FORWARD, TO_COMPUTE, NULL);
    Value *x = out(n, start, 1024);
    for (int i = 0; i < units; i++) {
        kept[i] = gather(n, g->units.at[i], name(n, "g%df", i), FORWARD);
        x = layer(n, g->units.at[i], name(n, "e%d", i + 1), FORWARD, x, kept[i]);
    }
    for (int i = units - 1; i >= 0; i--) {
        Unit *u = g->units.at[i];
        Value *full = again ? gather(n, u, name(n, "g%db", i), BACKWARD) : kept[i];
        Op *w = add_op(n, OP_concat, name(n, "e%db0", i + 1), BACKWARD, TO_COMPUTE, NULL);
        in(w, x);
        in(w, full);
        Value *grad = out(n, w, 512);
        x = layer(n, u, name(n, "e%db1", i + 1), BACKWARD, x, full);
        reduce_and_update(n, u, grad);
    }
    return n;
}

static Net *net(int units, int prefetch) {
    return net_gathered(units, prefetch, true);
}

static Schedule *plan_net(Net *n) {
    n->plan = NEW(n->g->arena, Plan);
    n->plan->arena = n->g->arena;
    n->plan->graph = n->g;
    n->plan->world = n->g->world;
    return schedule_order(n->g, &n->d, n->plan);
}

static int find(const Net *n, const char *id) {
    const PlanProgram *p = n->plan->programs;
    for (int i = 0; i < p->n; i++)
        if (!strcmp(p->events[i].id, id)) return i;
    cr_assert_fail("no event %s", id);
    return -1;
}

static const Storage *storage_named(const Net *n, const char *id) {
    for (int i = 0; i < n->plan->nstorages; i++)
        if (!strcmp(n->plan->storages[i].name, id)) return &n->plan->storages[i];
    return NULL;
}

/* ── order ─────────────────────────────────────────────────────────────────────────────────────────────────── */
Test(order, gathers_follow_the_last_use_of_the_unit_that_makes_room) {
    for (int depth = 0; depth < 3; depth++) {
        Net *n = net(6, depth);
        plan_net(n);
        for (int k = 0; k < 6; k++) {
            int at = find(n, name(n, "g%df", k)), use = find(n, name(n, "e%d", k + 1));
            int room = k > depth ? find(n, name(n, "e%d", k - depth)) : -1;
            cr_assert(at < use && at > room, "depth %d: g%df at %d", depth, k, at);
            for (int i = depth ? room + 1 : at + 1; i < (depth ? at : use); i++) /* depth 0: right before its use */
                cr_assert(n->plan->programs->events[i].stream != COMPUTE);
        }
    }
}

Test(order, reduces_follow_their_gradient_and_updates_the_next_units_backward) {
    Net *n = net(5, 1);
    plan_net(n);
    const Event *ev = n->plan->programs->events;
    for (int k = 0; k < 5; k++) {
        int writer = find(n, name(n, "e%db0", k + 1)), r = find(n, name(n, "r%d", k)), u = find(n, name(n, "u%d", k));
        for (int i = writer + 1; i < r; i++) cr_assert(ev[i].stream != COMPUTE);
        if (k) cr_assert_gt(u, find(n, name(n, "r%d", k - 1)));
        if (k) cr_assert_lt(u, k > 1 ? find(n, name(n, "r%d", k - 2)) : n->plan->programs->n);
        cr_assert(ev[u].update && ev[u].unit == k);
    }
}

/* `seen` is what a plan with room relies on, `tight` what one without it may. */
Test(order, two_reduce_buffers_at_most_are_in_flight_where_there_is_no_room) {
    for (int again = 0; again < 2; again++) { /* without a gather that waits for a reduce, for they are one chain */
        Net *n = net_gathered(6, 1, again);
        n->d.link_bandwidth = 1; /* no reduce has surely ended */
        Schedule *s = plan_net(n);
        const Sequence *q = s->programs;
        int waits = 0;
        for (int k = 0; k < 4; k++) { /* the backward of unit k finds the reduce of unit k + 2 finished */
            int writer = find(n, name(n, "e%db0", k + 1)), r = find(n, name(n, "r%d", k + 2));
            cr_assert_geq(q->tight[writer][REDUCE], q->position[r]);
            waits += q->seen[writer][REDUCE] >= q->position[r];
        }
        cr_assert(again || !waits, "with room no kernel waits for a reduce");
    }
}

Test(order, a_reduce_that_has_surely_ended_frees_its_buffer_early) {
    Net *n = net(6, 1);
    n->d.link_bandwidth = 1e15;
    n->d.launch_us = 1e-3;
    Schedule *s = plan_net(n);
    const Sequence *q = s->programs;
    for (int k = 0; k < 5; k++)
        cr_assert_geq(q->seen[find(n, name(n, "e%db1", k + 1))][REDUCE], q->position[find(n, name(n, "r%d", k + 1))]);
}

/* Slow links: the last unit's reduce ends long after its gradient is there, and other updates wait to be made
 * meanwhile; fast ones: no update waits. */
Test(order, updates_wait_for_the_end_to_cover_the_last_reduces) {
    for (int fast = 0; fast < 2; fast++) {
        Net *n = net(6, 1);
        n->d.link_bandwidth = fast ? 1e15 : 7e7;
        if (fast) n->d.launch_us = 1e-3;
        plan_net(n);
        int last_use = find(n, "e1b1"), last_reduce = find(n, "r0"), waiting = 0;
        for (int k = 1; k < 6; k++) waiting += find(n, name(n, "u%d", k)) > last_use;
        cr_assert(find(n, "u0") > last_reduce);
        cr_assert_eq(waiting, fast ? 0 : 4); /* 1 without */
        for (int k = 1; k < 6; k++) cr_assert_lt(find(n, name(n, "u%d", k)), find(n, "u0"));
    }
}

static void expect_rule(const Net *n, const char *id, IssueRule rule, const char *other) {
    const Event *ev = n->plan->programs->events, *e = &ev[find(n, id)];
    cr_expect_eq(e->issue_rule, rule, "%s: rule %d", id, e->issue_rule);
    cr_expect(other ? e->issue_other == find(n, other) : e->issue_other == -1, "%s: event %d", id, e->issue_other);
}

Test(order, events_say_why_they_are_issued_where_they_are) {
    Net *n = net(6, 1);
    plan_net(n);
    expect_rule(n, "e0", ISSUE_PINNED, NULL);
    expect_rule(n, "e3", ISSUE_PINNED, "e2");
    expect_rule(n, "g0f", ISSUE_READY, NULL);
    expect_rule(n, "g3f", ISSUE_LIMITED, "e2"); /* the last use but one before its own */
    expect_rule(n, "r5", ISSUE_READY, "e6b0");
    n = net(6, 1);
    n->d.link_bandwidth = 7e7; /* slow: see updates_wait_for_the_end_to_cover_the_last_reduces */
    plan_net(n);
    expect_rule(n, "u1", ISSUE_SURE, "r1");
    expect_rule(n, "u3", ISSUE_AT_END, NULL);
    n = net(5, 0);
    plan_net(n);
    expect_rule(n, "u4", ISSUE_BEHIND, "r3");
}

Test(order, the_whole_way_is_sound_and_tight) {
    Net *n = net(8, 1);
    n->d.link_bandwidth = 1e8; /* slow enough to be seen */
    Schedule *s = plan_net(n);
    schedule_place(n->plan, s, 0, false);
    schedule_sync(n->plan, s);
    cost_simulate(n->plan, &n->d);
    double ratio = (double)n->plan->arena_bytes[ARENA_DEVICE] / (double)n->plan->bound_bytes[ARENA_DEVICE];
    cr_assert(ratio >= 1 && ratio < 1.1, "%f", ratio);
    cr_assert(n->plan->programs->step_us > 0 && n->plan->programs->exposed_us > 0);
    cr_assert_eq(storage_named(n, "g0f.y")->cls, C_UNSHARDED);
    cr_assert_eq(storage_named(n, "r0.y")->cls, C_GRADIENTS);
    cr_assert_eq(storage_named(n, "e1b0.y")->cls, C_UNSHARDED_GRADS);
    cr_assert_eq(storage_named(n, "layers.3/master")->cls, C_PARAMETERS);
    cr_assert_eq(n->plan->units[3].master_storage, storage_named(n, "layers.3/master")->id);
}

/* ── storages ──────────────────────────────────────────────────────────────────────────────────────────────── */
Test(storages, a_dead_operand_lends_its_bytes) {
    Net *n = net_new(1, 1);
    Value *a = out(n, add_op(n, OP_full, "e0", FORWARD, TO_COMPUTE, NULL), 1024);
    Value *b = softmax(n, "e1", FORWARD, a); /* a is dead: in place */
    Value *c = softmax(n, "e2", FORWARD, b); /* b is read again: not */
    Value *d = softmax(n, "e3", FORWARD, b); /* b is dead now */
    Value *full = gather(n, n->g->units.at[0], "g0f", FORWARD);
    Value *e = softmax(n, "e4", FORWARD, full); /* written on another stream: not */
    plan_net(n);
    cr_assert_eq(plan_storage(n->plan, b), plan_storage(n->plan, a));
    cr_assert_neq(plan_storage(n->plan, c), plan_storage(n->plan, b));
    cr_assert_eq(plan_storage(n->plan, d), plan_storage(n->plan, b));
    cr_assert_neq(plan_storage(n->plan, e), plan_storage(n->plan, full));
    const Event *ev = &n->plan->programs->events[find(n, "e1")];
    cr_assert(ev->nreads == 1 && ev->nwrites == 1 && ev->reads[0].storage == ev->writes[0].storage);
}

Test(storages, a_fused_kernel_takes_any_operand_that_it_walks_like_its_result) {
    Net *n = net_new(0, 1);
    Value *a = out(n, add_op(n, OP_full, "e0", FORWARD, TO_COMPUTE, NULL), 64);
    Value *b = out(n, add_op(n, OP_full, "e1", FORWARD, TO_COMPUTE, NULL), 1024);
    Value *wide = value_new_view(n->g, a, 2, (int64_t[]){16, 64}, (int64_t[]){0, 1}, 0);
    Value *whole = value_new_view(n->g, b, 2, (int64_t[]){16, 64}, (int64_t[]){64, 1}, 0);
    Op *op = add_op(n, OP_fused, "e2", FORWARD, TO_COMPUTE, NULL), *member = op_new(n->g, OP_add);
    in(op, wide);
    in(op, whole);
    Value *r = value_new(n->g, FP32, 2, (int64_t[]){16, 64});
    r->def = op;
    op->out[op->nout++] = r;
    in(member, wide);
    in(member, whole);
    member->out[member->nout++] = r;
    op->body = &member;
    op->nbody = 1;
    plan_net(n);
    cr_assert_eq(plan_storage(n->plan, r), plan_storage(n->plan, b));
    cr_assert_str_eq(n->plan->programs->events[find(n, "e2")].op, "add");
}

/* Two results side by side, of operands side by side: each element's results take its operands' bytes. */
static bool lends_pieces(int64_t first, int64_t second, bool read_again) {
    Net *n = net_new(0, 1);
    Value *a = out(n, add_op(n, OP_full, "e0", FORWARD, TO_COMPUTE, NULL), 1024);
    Value *whole = value_new(n->g, FP32, 2, (int64_t[]){16, 64});
    Op *op = add_op(n, OP_fused, "e1", FORWARD, TO_COMPUTE, NULL), *join = op_new(n->g, OP_assemble);
    op->body = NEW_ARRAY(n->g->arena, Op *, 2);
    op->nbody = 2;
    for (int k = 0; k < 2; k++) {
        const int64_t shape[2] = {16, 32}, stride[2] = {64, 1}, at[2] = {first, second};
        Op *member = op->body[k] = op_new(n->g, OP_neg);
        Value *x = value_new_view(n->g, a, 2, shape, stride, at[k]),
              *y = value_new_view(n->g, whole, 2, shape, stride, 32 * k);
        in(op, x);
        in(member, x);
        in(join, y);
        y->def = op;
        op->out[op->nout++] = member->out[member->nout++] = y;
    }
    join->id = "e2";
    join->module = n->g->root;
    whole->def = join;
    join->out[join->nout++] = whole;
    push(&n->p->ops, n->g->arena, join);
    softmax(n, "e3", FORWARD, whole);
    if (read_again) softmax(n, "e4", FORWARD, a);
    plan_net(n);
    return plan_storage(n->plan, whole) == plan_storage(n->plan, a);
}

Test(storages, results_side_by_side_take_the_bytes_of_operands_side_by_side) {
    cr_assert(lends_pieces(0, 32, false));
    cr_assert(lends_pieces(32, 0, false), "each operand lies where a result will");
    cr_assert_not(lends_pieces(0, 16, false), "one lies across two results");
    cr_assert_not(lends_pieces(0, 32, true), "and is read again");
}

/* nn.where's two gradients, one of them what a split of one piece joins. */
Test(storages, an_operand_lends_its_bytes_once) {
    Net *n = net_new(0, 1);
    Value *a = out(n, add_op(n, OP_full, "e0", FORWARD, TO_COMPUTE, NULL), 1024);
    Value *whole = value_new(n->g, FP32, 1, (int64_t[]){1024}), *first = value_new(n->g, FP32, 1, (int64_t[]){1024});
    Value *piece = value_new_view(n->g, whole, 1, (int64_t[]){1024}, (int64_t[]){1}, 0);
    Op *op = add_op(n, OP_fused, "e1", FORWARD, TO_COMPUTE, NULL), *join = op_new(n->g, OP_assemble);
    op->body = NEW_ARRAY(n->g->arena, Op *, 2);
    op->nbody = 2;
    in(op, a);
    for (int k = 0; k < 2; k++) {
        Op *member = op->body[k] = op_new(n->g, OP_neg);
        Value *y = k ? piece : first;
        in(member, a);
        y->def = op;
        op->out[op->nout++] = member->out[member->nout++] = y;
    }
    join->id = "e2";
    join->module = n->g->root;
    in(join, piece);
    whole->def = join;
    join->out[join->nout++] = whole;
    push(&n->p->ops, n->g->arena, join);
    softmax(n, "e3", FORWARD, first);
    softmax(n, "e4", FORWARD, whole);
    plan_net(n);
    const Event *e1 = &n->plan->programs->events[find(n, "e1")];
    cr_expect_eq(e1->nwrites, 2, "verify must see both");
    cr_expect_eq(plan_storage(n->plan, first), plan_storage(n->plan, a));
    cr_expect_neq(plan_storage(n->plan, whole), plan_storage(n->plan, a));
}

Test(storages, accesses_are_the_bytes_between_first_and_last_element) {
    Net *n = net_new(0, 1);
    State *m = state_new(n->g, S_METRICS, "metrics", FP32, 64, NULL);
    Value *a = out(n, add_op(n, OP_full, "e0", FORWARD, TO_COMPUTE, NULL), 1000);
    Value *v = value_new_view(n->g, a, 2, (int64_t[]){3, 4}, (int64_t[]){100, 2}, 10);
    softmax(n, "e1", FORWARD, v);
    Op *set = add_op(n, OP_store, "e2", FORWARD, TO_COMPUTE, NULL),
       *add = add_op(n, OP_store, "e3", FORWARD, TO_COMPUTE, NULL);
    for (int i = 0; i < 2; i++) {
        Op *op = i ? add : set;
        in(op, value_new_view(n->g, a, 1, (int64_t[]){2}, (int64_t[]){1}, 0));
        in(op, m->value);
        op->store.add = i;
        op->store.at = 5;
    }
    plan_net(n);
    const Event *ev = n->plan->programs->events;
    cr_assert(ev[1].reads[0].offset == 40 && ev[1].reads[0].size == (2 * 100 + 3 * 2 + 1) * 4);
    cr_assert(ev[2].nreads == 1 && ev[2].nwrites == 1 && ev[2].writes[0].offset == 20 && ev[2].writes[0].size == 8);
    cr_assert(ev[3].nreads == 2 && ev[3].reads[1].storage == plan_storage(n->plan, m->value));
    cr_assert_eq(storage_named(n, "e0.y")->size, 4096);
}

/* ── simulate, devices ─────────────────────────────────────────────────────────────────────────────────────── */
Test(simulate, exposed_communication_is_what_compute_waits_for) {
    Arena *a = arena_new();
    const Axis two = {0, "shard", 2, 1}, one = {1, "replicate", 1, 2};
    Comm comms[] = {{"shard", &two, 0}, {"replicate", &one, 0}, {"world", &two, 0}};
    Plan p = {.arena = a, .world = 2, .nprograms = 1, .programs = NEW(a, PlanProgram), .comms = comms, .ncomms = 3};
    Event events[] = {
        {.id = "g0", .stream = GATHER, .comm = 2, .unit = -1, .bytes = 9000},
        {.id = "e0", .stream = COMPUTE, .comm = -1, .unit = -1, .bytes = 4000},
        {.id = "e1", .stream = COMPUTE, .comm = -1, .unit = -1, .bytes = 5000, .waits = (int[]){0}, .nwaits = 1},
        {.id = "r0", .stream = REDUCE, .comm = 2, .unit = -1, .bytes = 2000, .waits = (int[]){2}, .nwaits = 1}};
    p.programs[0] = (PlanProgram){.name = "micro", .events = events, .n = 4};
    Net *n = net_new(0, 1);
    n->d.launch_us = 0;
    n->d.link_latency_us = 0;
    cost_simulate(&p, &n->d);
    cr_assert_float_eq(events[2].start_us, 9, 1e-9);
    cr_assert_float_eq(p.programs->step_us, 16, 1e-9);
    cr_assert_float_eq(p.programs->exposed_us, 5 + 2, 1e-9);
}

Test(device, profiles_are_complete) {
    Arena *a = arena_new();
    const char *names[] = {"cpu", "a100", "h100", "h200"};
    for (int i = 0; i < 4; i++) {
        const Device *d = device_load(a, names[i]);
        cr_assert_str_eq(d->name, names[i]);
        cr_assert(d->flops[FP32] > 0 && d->flops[BF16] >= d->flops[FP32] / 2 && d->memory_bandwidth > 0 &&
                  d->ranks_per_node > 0);
        cr_assert_eq(!strcmp(d->target, "cuda"), d->usable_bytes > 0);
        if (i == 1) cr_assert_str_eq(d->source, "data sheet");
    }
}

Test(device, collectives_between_nodes_take_the_network) {
    const Device *d = device_load(arena_new(), "h200");
    Event e = {.comm = 0, .stream = GATHER, .bytes = 1e9};
    double inside = device_event_us(d, &e, 8, 8), across = device_event_us(d, &e, 64, 8);
    cr_assert(across > inside);
    e.comm = 1; /* one rank of each of 8 nodes: one port each */
    cr_assert(device_event_us(d, &e, 8, 1) > 5 * inside);
    cr_assert_float_eq(device_event_us(d, &e, 1, 1), d->launch_us, 1e-9);
}

/* Eight ranks that gather 1 GB over 50 GB/s of network each, or over the links of one machine. */
Test(device, collectives_take_the_network_between_nodes_of_the_plan) {
    static const struct {
        int world, nodes, ranks, apart, here;
    } cases[] = {
        {8, 0, 8, 1, 8},  {8, 1, 8, 1, 8},  {8, 2, 8, 1, 4},  {8, 8, 8, 1, 1},  {16, 2, 8, 1, 8},
        {16, 2, 2, 8, 1}, {16, 4, 2, 8, 1}, {12, 2, 4, 1, 2}, {12, 2, 3, 4, 1}, {12, 2, 12, 1, 6},
    };
    Arena *a = arena_new();
    const Device *d = device_load(a, "h200");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Axis axis = {.size = cases[i].ranks, .stride = cases[i].apart};
        Comm comm = {.axis = &axis};
        Event gather = {.id = "g0", .comm = 0, .stream = GATHER, .unit = -1, .bytes = 1e9};
        PlanProgram program = {.name = "micro", .events = &gather, .n = 1};
        Plan p = {.arena = a,
                  .programs = &program,
                  .nprograms = 1,
                  .world = cases[i].world,
                  .nodes = cases[i].nodes,
                  .comms = &comm,
                  .ncomms = 1};
        cr_expect_eq(device_event_here(&p, &gather), cases[i].here, "case %zu: %d", i, device_event_here(&p, &gather));
        cost_simulate(&p, d);
        if (cases[i].here == 1) cr_expect(gather.duration_us > 1e9 / d->network_bandwidth * 1e6, "case %zu", i);
        if (cases[i].nodes < 2) cr_expect(gather.duration_us < 1e9 / d->network_bandwidth * 0.2e6, "case %zu", i);
    }
    arena_free(a);
}

typedef struct {
    const char *text, *says;
} BadProfile;

#define FIELDS                                                                                                         \
    "name='x',target='cpu',source='s',memory_bandwidth=1,matmul_efficiency=1,link_bandwidth=1,network_bandwidth=1,"    \
    "link_latency_us=1,network_latency_us=1,host_bandwidth=1,launch_us=1,host_optimizer_bandwidth=1,ranks_per_node=1"

static const BadProfile bad_profiles[] = {
    {"return 1", "must return a table"},
    {"return {", "expected"},
    {"error('no')", "no"},
    {"return {name=1}", "`name` must be a string"},
    {"return {names='x'}", "unknown key `names`; did you mean `name`?"},
    {"return {zzzzzzzzzzzz='x'}", "unknown key `zzzzzzzzzzzz`; remove it"},
    {"return {name='x',target='cpu',source='s',memory_bandwidth='fast'}", "must be a number"},
    {"local t = {" FIELDS ",flops={fp32=1}} t.matmul_efficiency = 0 return t", "`matmul_efficiency` must not be 0"},
    {"local t = {" FIELDS ",flops={fp32=1}} t.memory_bandwidth = nil return t", "`memory_bandwidth` must be stated"},
    {"return {" FIELDS ",flops=3}", "`flops` must be a table"},
    {"return {" FIELDS ",flops={fp31=1}}", "no dtype"},
    {"return {" FIELDS ",flops={fp32=-1}}", "flops.fp32 must be a positive number"},
    {"return {" FIELDS ",flops={bf16=1}}", "must have fp32"},
    {"return {" FIELDS ",flops={fp32=1},library=1}", "must be a list"},
    {"return {" FIELDS ",flops={fp32=1},library={1}}", "library[1] must be a table"},
    {"return {" FIELDS ",flops={fp32=1},library={1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17}}", "at most 16"},
    {"local t = {" FIELDS ",flops={fp32=1}} t.target = 'tpu' return t", "write \"cpu\" or \"cuda\""},
};

static void expect_refusal(const char *device, const char *says) {
    char text[2048];
    int got = DIES(text, sizeof text, device_load(arena_new(), device));
    cr_assert(got == 1, "%s: exit %d", device, got);
    cr_assert(strstr(text, says), "expected \"%s\" in \"%s\"", says, text);
}

Test(device, bad_profiles_are_refused_with_a_reason) {
    char path[] = "/tmp/profile-XXXXXX.lua";
    int fd = mkstemps(path, 4);
    for (size_t i = 0; i < sizeof bad_profiles / sizeof *bad_profiles; i++) {
        size_t n = strlen(bad_profiles[i].text);
        cr_assert(ftruncate(fd, 0) == 0 && pwrite(fd, bad_profiles[i].text, n, 0) == (ssize_t)n);
        expect_refusal(path, bad_profiles[i].says);
    }
    close(fd);
    unlink(path);
}

Test(device, unknown_names_are_refused_with_the_nearest) {
    expect_refusal("h20", "did you mean \"h200\"?");
    expect_refusal("quantumcomputer",
                   "no device profile \"quantumcomputer\"; there are: cpu, h100, h200, a100, b200, l40s, rtx4090");
    expect_refusal("/nowhere/x.lua", "/nowhere/x.lua");
}
