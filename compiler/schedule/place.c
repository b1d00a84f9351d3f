/* place: offsets of storages. Persistent states lie at the bottom of their arena, at the same offsets in every program;
 * each program's storages are packed above them. Two storages share bytes only where every access to one happens before
 * every access to the other. Relies on: order (storages, clocks), pack. Relied on by: pipeline.c; sync, which makes
 * waits of what place relied on. */
#include "../pack/pack_sections.h"
#include "schedule.h"

#include <limits.h>

static const int64_t EFFORT = 12000000; /* elementary steps of repair: some 0.15 s */
/* Steps of exact search where that is not enough: some 1 s. A third for each of pack.c's three turns: of the plans of
 * bench/compare_plans.py, no turn that came to its line took more. */
static const int64_t SEARCH = 525000000;

typedef struct {
    Plan *plan;
    const Schedule *s;
    int redzone;
    bool rough;             /* the planner's estimates: little repair, no search */
    int64_t base[N_ARENAS]; /* end of the persistent bytes */
} Placer;

/* ── items ─────────────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    Item *items;
    int *storage; /* of each item */
    int n;
} Items;

/* One item per storage of the program in this arena. A guard belongs to the storage above it. */
static Items items_of(const Placer *p, Arena *a, int program, ArenaKind arena, int *item) {
    const Plan *plan = p->plan;
    int n = 0;
    for (int i = 0; i < plan->nstorages; i++) {
        const Storage *s = &plan->storages[i];
        item[i] = s->program == program && s->arena == arena && s->first >= 0 ? n++ : -1;
    }
    Items l = {NEW_ARRAY(a, Item, n + 1), NEW_ARRAY(a, int, n + 1), n};
    for (int i = 0, k = 0; k < n; i++) {
        const Storage *s = &plan->storages[i];
        if (item[i] < 0) continue;
        Item *x = &l.items[k++];
        x->size = s->size + p->redzone;
        x->first = s->first;
        x->last = x->reach = s->last;
        for (int k = 0; k < N_STREAMS; k++) x->begin[k] = INT_MAX;
        l.storage[item[i]] = i;
    }
    return l;
}

static void fill_clocks(const Placer *p, const Sequence *q, int program, const Items *l, const int *item) {
    const PlanProgram *prog = &p->plan->programs[program];
    for (int e = 0; e < prog->n; e++) {
        const Event *ev = &prog->events[e];
        for (int i = 0; i < ev->nreads + ev->nwrites; i++) {
            int k = item[(i < ev->nreads ? ev->reads[i] : ev->writes[i - ev->nreads]).storage];
            if (k < 0) continue;
            Item *x = &l->items[k];
            for (int s = 0; s < N_STREAMS; s++)
                if (q->seen[e][s] < x->begin[s]) x->begin[s] = q->seen[e][s];
            x->end[ev->stream] = q->position[e];
        }
    }
}

/* Items as each stream meets them: begins[s][k] is the latest beginning of an item that one of the first k events of
 * stream s touches. */
static int **find_begins(const Placer *p, const Sequence *q, Arena *a, int program, const Items *l, const int *item) {
    const PlanProgram *prog = &p->plan->programs[program];
    int **begins = NEW_ARRAY(a, int *, N_STREAMS);
    for (int s = 0; s < N_STREAMS; s++) {
        begins[s] = NEW_ARRAY(a, int, q->length[s] + 1);
        begins[s][0] = -1;
    }
    for (int e = 0; e < prog->n; e++) {
        const Event *ev = &prog->events[e];
        int *latest = &begins[ev->stream][q->position[e]];
        *latest = latest[-1];
        for (int i = 0; i < ev->nreads + ev->nwrites; i++) {
            int k = item[(i < ev->nreads ? ev->reads[i] : ev->writes[i - ev->nreads]).storage];
            if (k >= 0 && l->items[k].first > *latest) *latest = l->items[k].first;
        }
    }
    return begins;
}

/* How far into the issue order something may begin that is not ordered after x: each stream may touch such things until
 * it has seen x finished. */
static void fill_reach(const Placer *p, const Sequence *q, Arena *a, int program, const Items *l, const int *item) {
    int **begins = find_begins(p, q, a, program, l, item);
    for (int i = 0; i < l->n; i++) {
        Item *x = &l->items[i];
        for (int s = 0; s < N_STREAMS; s++) {
            /* The first that has seen all of x finished: clocks only grow along a stream. */
            int at = begins[s][FIRST(k, 0, q->length[s], clock_covers(q->seen[q->event[s][k]], x->end))];
            if (at > x->reach) x->reach = at;
        }
    }
}

/* ── a program ─────────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    Items l;
    int64_t height, bound; /* of an arena: bytes packed above the persistent ones, and the bound on them */
    int peak;              /* event */
} Packed;

static Packed prepare(const Placer *p, const Sequence *q, Arena *a, int program, ArenaKind arena) {
    int *item = NEW_ARRAY(a, int, p->plan->nstorages + 1);
    Packed x = {.l = items_of(p, a, program, arena, item)};
    fill_clocks(p, q, program, &x.l, item);
    fill_reach(p, q, a, program, &x.l, item);
    x.bound = pack_bound(x.l.items, x.l.n, p->plan->programs[program].n, &x.peak);
    return x;
}

/* Whether the same pairs of items may share bytes in x and in y, which are of the same storages: then one packing does
 * for both. Also false where many items reach beyond their lives, since comparing them would take longer than packing
 * (16 of 28,749 do in 16 layers of experts). */
static bool packed_alike(const Items *x, const Items *y) {
    enum { MOST_LATE = 64 };
    int late = 0;
    for (int i = 0; i < x->n; i++) {
        const Item *a = &x->items[i], *b = &y->items[i];
        if (a->reach != b->reach) return false;
        if (a->reach == a->last) continue;
        if (++late > MOST_LATE) return false;
        for (int k = 0; k < x->n; k++)
            if (pack_conflict(a, &x->items[k]) != pack_conflict(b, &y->items[k])) return false;
    }
    return true;
}

static void pack_items(const Placer *p, Packed *x, int program, int64_t known) {
    x->height = pack(x->l.items, x->l.n, p->plan->programs[program].n, &x->bound, known,
                     p->rough ? EFFORT / 64 : EFFORT, p->rough ? 0 : SEARCH);
}

/* `known` bytes the arena has anyway. Guards are included. Waits that cost time are worth 1 % of the bytes or more:
 * with 0.4 % one more of 294 plans has a step more than 0.5 % longer than before exact search, with 2.5 % nine more
 * have an arena that is 0.5 to 2 % larger (bench/compare_plans.py). The bounds say so before anything is packed, so
 * that an estimate decides as all effort does, but where that stays far above the bound. */
static void pack_program(Placer *p, int program, ArenaKind arena, int64_t known) {
    PlanProgram *prog = &p->plan->programs[program];
    Arena *a = arena_new();
    Sequence q = p->s->programs[program];
    known -= p->base[arena] + p->redzone;
    Packed x = prepare(p, &q, a, program, arena), y = {0};
    bool differ = x.l.n && memcmp(q.seen, q.tight, sizeof(Clock) * (size_t)q.n);
    if (differ) {
        q.seen = q.tight;
        y = prepare(p, &q, a, program, arena);
        x.bound = max64(x.bound, pack_sections_heaviest(x.l.items, x.l.n));
        y.bound = max64(y.bound, pack_sections_heaviest(y.l.items, y.l.n));
    }
    bool tight = differ && x.bound > known && y.bound < x.bound - x.bound / 100;
    if (tight) x = y;
    pack_items(p, &x, program, known);
    int64_t worth = x.height - x.height / 100;
    if (differ && !tight && !p->rough && x.height > max64(known, x.bound + x.bound / 200) && y.bound < worth &&
        !packed_alike(&x.l, &y.l)) {
        pack_items(p, &y, program, known);
        if (y.height < worth) x = y;
    }
    for (int i = 0; i < x.l.n; i++)
        p->plan->storages[x.l.storage[i]].offset = p->base[arena] + x.l.items[i].at + p->redzone;
    int64_t outside = p->base[arena] ? p->base[arena] + p->redzone : x.l.n ? p->redzone : 0;
    if (arena == ARENA_DEVICE) prog->peak_event = x.peak;
    prog->bound[arena] = x.bound + outside;
    prog->peak[arena] = x.height + outside;
    arena_free(a);
}

/* Programs with most live bytes first: the others have whatever room these leave, and need no effort inside it. */
static void place_arena(Placer *p, ArenaKind arena) {
    Plan *plan = p->plan;
    int64_t top = 0, bound = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < plan->nprograms; i++) {
            if (program_trains(&plan->programs[i]) != (pass == 0)) continue;
            pack_program(p, i, arena, top);
            top = max64(top, plan->programs[i].peak[arena]);
            bound = max64(bound, plan->programs[i].bound[arena]);
        }
    if (!plan->nprograms && p->base[arena]) top = bound = p->base[arena] + p->redzone;
    plan->arena_bytes[arena] = top;
    plan->bound_bytes[arena] = bound;
}

void schedule_place(Plan *plan, const Schedule *s, int redzone, bool rough) {
    Placer p = {plan, s, redzone, rough, {0}};
    for (int i = 0; i < plan->nstorages; i++) { /* the persistent ones */
        Storage *x = &plan->storages[i];
        if (x->program >= 0) continue;
        x->offset = p.base[x->arena] + redzone;
        p.base[x->arena] = x->offset + x->size;
    }
    for (int arena = 0; arena < N_ARENAS; arena++) place_arena(&p, (ArenaKind)arena);
}
