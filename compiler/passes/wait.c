/* wait: the events of other streams that each event waits for. Required are conflicting accesses to a storage, the one
 * order of all collectives, and, for storages that share bytes, every access of the one before every access of the
 * other. What is emitted is the transitive reduction of that, which is unique (Aho, Garey, Ullman 1972): each wait is
 * needed. Relies on: order (conflicts as clocks), place (offsets). Relied on by: pipeline.c; verify proves the result.
 */
#include "passes.h"
#include "schedule.h"

#include <stdlib.h>

/* ── who last had these bytes ──────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    int64_t lo, hi;
    int storage;
} Tenant;

/* Tenants by address in blocks of bounded size, so that a change moves few of them. */
enum { BLOCK = 64 };
typedef struct {
    Tenant at[BLOCK];
    int n;
} Block;
typedef struct {
    Arena *a;
    VEC(Block *) blocks;
} Tenants;

static int block_of(const Tenants *t, int64_t x) { /* last block that begins at or before x, else 0 */
    return FIRST(i, 1, t->blocks.n, t->blocks.at[i]->at[0].lo > x) - 1;
}

static void insert_block(Tenants *t, int at, Block *b) {
    push(&t->blocks, t->a, b);
    memmove(&t->blocks.at[at + 1], &t->blocks.at[at], sizeof *t->blocks.at * (size_t)(t->blocks.n - 1 - at));
    t->blocks.at[at] = b;
}

static void split_block(Tenants *t, int at) {
    Block *full = t->blocks.at[at], *upper = NEW(t->a, Block);
    upper->n = full->n / 2;
    full->n -= upper->n;
    memcpy(upper->at, &full->at[full->n], sizeof(Tenant) * (size_t)upper->n);
    insert_block(t, at + 1, upper);
}

static void insert_tenant(Tenants *t, Tenant x) {
    if (!t->blocks.n) insert_block(t, 0, NEW(t->a, Block));
    int b = block_of(t, x.lo);
    if (t->blocks.at[b]->n == BLOCK) {
        split_block(t, b);
        b = block_of(t, x.lo);
    }
    Block *k = t->blocks.at[b];
    int i = k->n;
    for (; i > 0 && k->at[i - 1].lo > x.lo; i--) k->at[i] = k->at[i - 1];
    k->at[i] = x;
    k->n++;
}

/* Removes the bytes [lo, hi) from all tenants; tells who had some of them. */
typedef VEC(Tenant) TenantList;
static void evict(Tenants *t, int64_t lo, int64_t hi, TenantList *out) {
    out->n = 0;
    if (!t->blocks.n) return;
    for (int b = block_of(t, lo); b < t->blocks.n;) {
        Block *k = t->blocks.at[b];
        if (k->at[0].lo >= hi) return;
        int kept = 0;
        for (int i = 0; i < k->n; i++) {
            if (k->at[i].hi <= lo || k->at[i].lo >= hi)
                k->at[kept++] = k->at[i];
            else
                push(out, t->a, k->at[i]);
        }
        k->n = kept;
        if (kept) {
            b++;
            continue;
        }
        memmove(&t->blocks.at[b], &t->blocks.at[b + 1], sizeof *t->blocks.at * (size_t)(t->blocks.n - 1 - b));
        t->blocks.n--;
    }
}

/* Storage s moves in: out come the former tenants of its bytes; what they have outside is theirs still. */
static void move_in(Tenants *t, int storage, int64_t lo, int64_t hi, TenantList *out) {
    evict(t, lo, hi, out);
    for (int i = 0; i < out->n; i++) {
        Tenant x = out->at[i];
        if (x.lo < lo) insert_tenant(t, (Tenant){x.lo, lo, x.storage});
        if (x.hi > hi) insert_tenant(t, (Tenant){hi, x.hi, x.storage});
    }
    insert_tenant(t, (Tenant){lo, hi, storage});
}

/* ── what bytes require ────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    int first[N_STREAMS]; /* first event of each stream that touches the storage, + 1 */
    int last[N_STREAMS];  /* last position */
} Life;

static void find_lives(const PlanProgram *p, const Sequence *q, Life *lives) {
    for (int e = 0; e < p->n; e++) {
        const Event *ev = &p->events[e];
        for (int i = 0; i < ev->nreads + ev->nwrites; i++) {
            Life *l = &lives[(i < ev->nreads ? ev->reads[i] : ev->writes[i - ev->nreads]).storage];
            if (!l->first[ev->stream]) l->first[ev->stream] = e + 1;
            l->last[ev->stream] = q->position[e];
        }
    }
}

static void all_before_all(const Life *old, const Life *now, Clock *need) {
    for (int s = 0; s < N_STREAMS; s++)
        for (int from = 0; from < N_STREAMS && now->first[s]; from++)
            if (from != s && need[now->first[s] - 1][from] < old->last[from])
                need[now->first[s] - 1][from] = old->last[from];
}

/* Storages move in when they are first touched. Only those that leave then matter: older ones were before these. */
static void require_bytes(const Plan *plan, int program, const Life *lives, Clock *need, Arena *a) {
    const PlanProgram *p = &plan->programs[program];
    Tenants tenants[N_ARENAS] = {{.a = a}, {.a = a}};
    TenantList former = {0};
    bool *present = NEW_ARRAY(a, bool, plan->nstorages + 1);
    for (int e = 0; e < p->n; e++) {
        const Event *ev = &p->events[e];
        for (int i = 0; i < ev->nreads + ev->nwrites; i++) {
            int id = (i < ev->nreads ? ev->reads[i] : ev->writes[i - ev->nreads]).storage;
            const Storage *s = &plan->storages[id];
            if (s->program < 0 || present[id]) continue;
            present[id] = true;
            move_in(&tenants[s->arena], id, s->offset, s->offset + s->size, &former);
            for (int k = 0; k < former.n; k++) all_before_all(&lives[former.at[k].storage], &lives[id], need);
        }
    }
}

/* ── reduction ─────────────────────────────────────────────────────────────────────────────────────────────── */
/* What has finished once the event at a place of a stream has. */
static void finished(const Sequence *q, Clock *seen, int stream, int position, Clock out) {
    memcpy(out, seen[q->event[stream][position - 1]], sizeof(Clock));
    if (out[stream] < position) out[stream] = position;
}

/* Keeps of `need` only what neither the event before on the stream nor another need implies; fills seen[e]. */
static void reduce_event(const Sequence *q, Stream own, int e, Clock need, Clock *seen) {
    Clock by[N_STREAMS] = {{0}};
    need[own] = q->position[e] - 1;
    for (int s = 0; s < N_STREAMS; s++)
        if (need[s]) finished(q, seen, s, need[s], by[s]);
    for (int s = 0; s < N_STREAMS; s++)
        for (int other = 0; other < N_STREAMS && s != (int)own; other++)
            if (other != s && by[other][s] >= need[s]) need[s] = 0;
    for (int s = 0; s < N_STREAMS; s++) clock_join(seen[e], by[s]);
}

static void emit_waits(Plan *plan, const Sequence *q, Event *ev, const Clock need) {
    int n = 0;
    for (int s = 0; s < N_STREAMS; s++) n += s != (int)ev->stream && need[s];
    ev->nwaits = 0;
    ev->waits = n ? NEW_ARRAY(plan->arena, int, n) : NULL;
    for (int s = 0; s < N_STREAMS; s++)
        if (s != (int)ev->stream && need[s]) ev->waits[ev->nwaits++] = q->event[s][need[s] - 1];
}

static void wait_program(Plan *plan, const Sequence *q, int program) {
    PlanProgram *p = &plan->programs[program];
    Arena *a = arena_new();
    Clock *need = arena_alloc(a, sizeof(Clock) * (size_t)(p->n + 1));
    Clock *seen = arena_alloc(a, sizeof(Clock) * (size_t)(p->n + 1));
    Life *lives = NEW_ARRAY(a, Life, plan->nstorages + 1);
    memcpy(need, q->must, sizeof(Clock) * (size_t)p->n);
    find_lives(p, q, lives);
    require_bytes(plan, program, lives, need, a);
    for (int e = 0; e < p->n; e++) {
        reduce_event(q, p->events[e].stream, e, need[e], seen);
        emit_waits(plan, q, &p->events[e], need[e]);
    }
    arena_free(a);
}

void wait_pass(Plan *plan, const Schedule *s) {
    for (int i = 0; i < plan->nprograms; i++) wait_program(plan, &s->programs[i], i);
}
