/* Storages that share bytes: persistent ones with none, transient ones only in lives that are wholly ordered.
 * Relies on: internal.h. One sweep over storages in order of first access; a map of addresses holds the present
 * occupant. Each newcomer is compared with the occupants it evicts: older ones are ordered before those already. Relied
 * on by: verify.c. */
#include "internal.h"

#include <stdlib.h>

/* ── lives of the transient storages of a program ────────────────────────────────────────────────────────────────── */
typedef struct {
    int storage;
    int first;              /* event that touches it first */
    int last[N_STREAMS];    /* last access, as a position within the stream; 0: none */
    int all_see[N_STREAMS]; /* what every access has seen finished */
} Life;
typedef VEC(Life) Lives;

static void touch(Verifier *v, Lives *lives, int *index, const HappensBefore *o, int e, const Access *x) {
    int k = index[x->storage];
    if (k == 0) {
        Life l = {.storage = x->storage, .first = e};
        memcpy(l.all_see, o->seen[e], sizeof l.all_see);
        push(lives, v->arena, l);
        k = index[x->storage] = lives->n;
    }
    Life *l = &lives->at[k - 1];
    for (int s = 0; s < N_STREAMS; s++)
        if (o->seen[e][s] < l->all_see[s]) l->all_see[s] = o->seen[e][s];
    l->last[o->program->events[e].stream] = o->position[e];
}

static Lives lives_of(Verifier *v, int program, const HappensBefore *o) {
    Lives lives = {0};
    int *index = NEW_ARRAY(v->arena, int, v->plan->nstorages + 1);
    for (int e = 0; e < o->program->n; e++) {
        const Event *ev = &o->program->events[e];
        for (int i = 0; i < ev->nreads + ev->nwrites; i++) {
            const Access *x = i < ev->nreads ? &ev->reads[i] : &ev->writes[i - ev->nreads];
            if (x->size > 0 && verify_access_inside(v, program, x) && v->plan->storages[x->storage].program >= 0)
                touch(v, &lives, index, o, e, x);
        }
    }
    return lives;
}

/* A stream on which an access of the new storage may run before the last one of the old; -1: there is none. */
static int stream_late(const Life *old, const Life *now) {
    for (int s = 0; s < N_STREAMS; s++)
        if (old->last[s] > now->all_see[s]) return s;
    return -1;
}

static void note_sharing(Verifier *v, int program, const HappensBefore *o, const Life *old, const Life *now, Stream s) {
    const Storage *a = &v->plan->storages[old->storage], *b = &v->plan->storages[now->storage];
    if (v->noted >= MAX_FINDINGS) return;
    int last = -1, user = -1; /* the old one's last event there; the first of the new one that has not seen it */
    for (int e = 0; e < o->program->n && (last < 0 || user < 0); e++) {
        const Event *ev = &o->program->events[e];
        if (ev->stream == s && o->position[e] == old->last[s]) last = e;
        for (int i = 0; i < ev->nreads + ev->nwrites && user < 0 && o->seen[e][s] < old->last[s]; i++)
            if ((i < ev->nreads ? ev->reads[i] : ev->writes[i - ev->nreads]).storage == now->storage) user = e;
    }
    const char *first_id = o->program->events[last].id, *second_id = o->program->events[user].id;
    int64_t lo = max64(a->offset, b->offset), hi = min64(a->offset + a->size, b->offset + b->size);
    verify_note(
        v, program, "overlap", user, last,
        "%s and %s share bytes 0x%llx to 0x%llx of the %s arena: %s uses %s, %s uses %s, and there is no edge from %s "
        "to %s",
        a->name, b->name, (unsigned long long)lo, (unsigned long long)hi, a->arena == ARENA_HOST ? "host" : "device",
        first_id, a->name, second_id, b->name, first_id, second_id);
}

static void sweep(Verifier *v, int program, const HappensBefore *o, const Lives *lives, ArenaKind arena) {
    const Storage *storages = v->plan->storages;
    int64_t *x = NEW_ARRAY(v->arena, int64_t, 2 * lives->n + 1);
    int n = 0, unique = 0;
    for (int i = 0; i < lives->n; i++) {
        const Storage *s = &storages[lives->at[i].storage];
        if (s->arena != arena || s->size == 0) continue;
        x[n++] = s->offset;
        x[n++] = s->offset + s->size;
    }
    if (n == 0) return;
    qsort(x, (size_t)n, sizeof *x, compare_int64);
    for (int i = 0; i < n; i++)
        if (i == 0 || x[i] != x[unique - 1]) x[unique++] = x[i];
    /* By coordinate: a run of bytes of one owner (life + 1) starts there; one starts at the first. */
    char *starts = NEW_ARRAY(v->arena, char, unique);
    int *owner = NEW_ARRAY(v->arena, int, unique);
    starts[0] = 1;
    for (int i = 0; i < lives->n; i++) {
        const Storage *s = &storages[lives->at[i].storage];
        if (s->arena != arena || s->size == 0) continue;
        int lo = FIRST(k, 0, unique, x[k] >= s->offset), hi = FIRST(k, lo, unique, x[k] >= s->offset + s->size);
        const int cuts[2] = {lo, hi};
        for (int c = 0; c < 2; c++)
            if (!starts[cuts[c]]) {
                owner[cuts[c]] = owner[(char *)memrchr(starts, 1, (size_t)cuts[c]) - starts];
                starts[cuts[c]] = 1;
            }
        for (char *k = starts + lo; k < starts + hi; k = memchr(k + 1, 1, (size_t)(starts + unique - k - 1))) {
            int old = owner[k - starts], late = old ? stream_late(&lives->at[old - 1], &lives->at[i]) : -1;
            if (late >= 0) note_sharing(v, program, o, &lives->at[old - 1], &lives->at[i], (Stream)late);
            *k = k == starts + lo;
        }
        owner[lo] = i + 1;
    }
}

void verify_sharing(Verifier *v, int program, const HappensBefore *o) {
    Lives lives = lives_of(v, program, o);
    for (int arena = 0; arena < N_ARENAS; arena++) sweep(v, program, o, &lives, (ArenaKind)arena);
}

/* ── persistent storages ─────────────────────────────────────────────────────────────────────────────────────────── */
static int compare_offset(const void *a, const void *b) {
    const Storage *x = *(const Storage *const *)a, *y = *(const Storage *const *)b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static void note_persistent(Verifier *v, const Storage *a, const Storage *b) {
    verify_note(v, b->program, "overlap", -1, -1,
                "%s is alive in every program and shares bytes 0x%llx to 0x%llx of the %s arena with %s", a->name,
                (unsigned long long)max64(a->offset, b->offset),
                (unsigned long long)min64(a->offset + a->size, b->offset + b->size),
                a->arena == ARENA_HOST ? "host" : "device", b->name);
}

static void check_persistent_arena(Verifier *v, ArenaKind arena) {
    const Plan *p = v->plan;
    const Storage **fixed = NEW_ARRAY(v->arena, const Storage *, p->nstorages + 1);
    int n = 0;
    for (int i = 0; i < p->nstorages; i++) {
        const Storage *s = &p->storages[i];
        if (s->arena == arena && s->program < 0 && s->size > 0 && !v->unsound[i]) fixed[n++] = s;
    }
    qsort(fixed, (size_t)n, sizeof *fixed, compare_offset);
    for (int i = 1; i < n; i++)
        if (fixed[i - 1]->offset + fixed[i - 1]->size > fixed[i]->offset) note_persistent(v, fixed[i - 1], fixed[i]);
    for (int i = 0; i < p->nstorages && n > 0; i++) {
        const Storage *s = &p->storages[i];
        if (s->arena != arena || s->program < 0 || s->size == 0 || v->unsound[i]) continue;
        int after = FIRST(k, 0, n, fixed[k]->offset >= s->offset + s->size);
        if (after && fixed[after - 1]->offset + fixed[after - 1]->size > s->offset)
            note_persistent(v, fixed[after - 1], s);
    }
}

void verify_persistent_layout(Verifier *v) {
    for (int arena = 0; arena < N_ARENAS; arena++) check_persistent_arena(v, (ArenaKind)arena);
}
