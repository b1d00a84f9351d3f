/* streamed: updates whose state passes through the device: fetches, the update, copies back. The fetches are issued
 * just in time: as late as still hides them before the gradient comes, once the fetch stream is free and there is room.
 * Room is memory that the backward no longer needs, or space for the state of a few updates at a time. What the fetches
 * rely on becomes an order edge. Relies on: order.h. Relied on by: order.c. */
#include "order.h"

#include <math.h>

/* The state of so many updates of the usual size may be on its way at any time; more where the backward has left room.
 * With three arenas are up to 1.4 % larger, and no step is shorter (bench/compare_plans.py). */
static const int ROOM = 2;
/* Of the time that fetches take by the profile. Where fetches do not wait for the latest moment, arenas of small models
 * are 4 % larger, and GPT-2 1558M's step is 1.8 % longer: fetches of parameters queue behind those for updates. */
static const double MARGIN = 1.25;
static const double NEVER = 1e18;

typedef struct {
    int update, first, last; /* events; first fetch, last copy back: they stand side by side in the graph */
    int64_t bytes;           /* what it holds of the device */
    double down;             /* how long its copies back take */
    double latest;           /* the fetches begin by then */
    int next;                /* fetch to be issued */
} Streamed;

struct StreamedUpdates {
    VEC(Streamed) l;
    int *of_reduce; /* by event: the streamed update that waits for this reduce, or -1 */
    int64_t *room, least;
    bool one_way;   /* nothing goes back before the backward is over */
    double busy;    /* with the fetches so far, if copies back run beside them */
    int next, over; /* the update whose fetches are next; how many are counted on to be over */
};

/* ── which events these are ────────────────────────────────────────────────────────────────────────────────────── */
static bool is_feed(const Order *o, int e) { /* of an update: a fetch, or zeros for what it only writes */
    return order_purpose(o, e) == TO_FETCH_STREAMED || order_purpose(o, e) == TO_UPDATE_STREAMED;
}

static bool is_streamed(const Order *o, int e) {
    return is_feed(o, e) || order_purpose(o, e) == TO_WRITE_BACK_STREAMED;
}

/* Copies up and down run at once in the backward, if anything goes down then. */
static double duration(const Order *o, int e) {
    return o->t->alone[e] * (o->streamed->one_way ? o->t->least[e] : o->t->both[e]);
}

static void add_streamed(Order *o, int e) {
    StreamedUpdates *s = o->streamed;
    Streamed u = {.update = e, .first = e, .last = e, .latest = NEVER};
    for (int i = o->pred.at[e]; i < o->pred.at[e + 1]; i++) {
        int p = o->pred.event[i];
        if (!is_feed(o, p)) {
            if (order_stream(o, p) == FETCH)
                u.bytes += order_size(o, order_written(o, p)); /* what a gather needs too */
            continue;
        }
        if (p < u.first) u.first = p;
        u.bytes += order_size(o, order_written(o, p));
    }
    for (int i = o->succ.at[e]; i < o->succ.at[e + 1]; i++) {
        int b = o->succ.event[i];
        if (order_purpose(o, b) != TO_WRITE_BACK_STREAMED) continue;
        if (b > u.last) u.last = b;
        u.down += duration(o, b);
    }
    push(&s->l, o->a, u);
}

/* By event: bytes that neither it nor any later one needs of what the fullest moment takes, streamed state aside. */
static int64_t *find_room(const Order *o) {
    int n = o->p->n;
    int64_t *room = NEW_ARRAY(o->a, int64_t, n + 2), live = 0, most = 0;
    for (int s = 0; s < o->plan->nstorages; s++) {
        const Storage *t = &o->plan->storages[s];
        if (t->program < 0 || t->arena != ARENA_DEVICE || o->first[s] < 0 || is_streamed(o, o->first[s])) continue;
        room[o->first[s]] += t->size;
        room[o->last[s] + 1] -= t->size;
    }
    for (int e = 0; e <= n; e++) {
        live += room[e];
        room[e] = live;
        most = max64(most, live);
    }
    int64_t later = 0;
    for (int e = n; e >= 0; e--) {
        later = max64(later, room[e]);
        room[e] = most - later;
    }
    return room;
}

void streamed_find(Order *o) {
    StreamedUpdates *s = o->streamed = NEW(o->a, StreamedUpdates);
    for (int e = 0; e < o->p->n; e++) {
        const Op *op = order_event(o, e)->op_ir;
        if (op && op_is(op, T_OPTIMIZER) && order_purpose(o, e) == TO_UPDATE_STREAMED) add_streamed(o, e);
    }
    if (!s->l.n) return;
    s->room = find_room(o);
    int64_t sum = 0, largest = 0;
    for (int k = 0; k < s->l.n; k++) {
        sum += s->l.at[k].bytes;
        largest = max64(largest, s->l.at[k].bytes);
    }
    s->least = max64(ROOM * sum / s->l.n, largest);
    s->of_reduce = NEW_ARRAY(o->a, int, o->p->n + 1);
    for (int e = 0; e < o->p->n; e++) s->of_reduce[e] = -1;
    for (int k = 0; k < s->l.n; k++) {
        const int *at = &o->pred.at[s->l.at[k].update];
        for (int i = at[0]; i < at[1]; i++) {
            int p = o->pred.event[i];
            for (int j = o->pred.at[p]; order_purpose(o, p) == TO_TAKE_GRADIENT && j < o->pred.at[p + 1]; j++)
                if (order_stream(o, o->pred.event[j]) == REDUCE) s->of_reduce[o->pred.event[j]] = k;
            if (order_purpose(o, p) == TO_REDUCE) s->of_reduce[p] = k;
        }
    }
}

bool streamed_any(const Order *o) {
    return o->streamed->l.n > 0;
}

/* ── in the walk ───────────────────────────────────────────────────────────────────────────────────────────────── */
void streamed_restart(Order *o) {
    StreamedUpdates *s = o->streamed;
    s->next = s->over = 0;
    s->busy = 0;
    for (int k = 0; k < s->l.n; k++) s->l.at[k].next = s->l.at[k].first;
}

/* When all is there that an update takes besides its state. */
static double gradient_here(const Order *o, const Streamed *u) {
    double here = 0;
    for (int i = o->pred.at[u->update]; i < o->pred.at[u->update + 1]; i++) {
        int p = o->pred.event[i];
        if (!is_streamed(o, p) && !o->so_far->first_use[p]) here = fmax(here, o->t->end[p]);
    }
    return here;
}

/* The first walk issues streamed updates at the end; it shows when their gradients come. Where all of them come after
 * the backward (clipping), no copy back runs beside the fetches. */
bool streamed_learn(Order *o) {
    StreamedUpdates *s = o->streamed;
    double next = NEVER;
    for (int k = s->l.n - 1; k >= 0; k--) next = fmin(next, gradient_here(o, &s->l.at[k]));
    s->one_way = o->npinned && next > o->t->end[o->pinned[o->npinned - 1]];
    next = NEVER;
    for (int k = s->l.n - 1; k >= 0; k--) {
        Streamed *u = &s->l.at[k];
        next = fmin(next, gradient_here(o, u));
        for (int e = u->first; e < u->update; e++)
            if (order_purpose(o, e) == TO_FETCH_STREAMED) next -= MARGIN * duration(o, e);
        u->latest = next;
    }
    return s->l.n > 0;
}

/* Room for the next: what the backward has done with, or else that of earlier ones whose state is back. */
static bool has_room(Order *o, int *after) {
    StreamedUpdates *s = o->streamed;
    int64_t held = 0;
    for (int j = s->over; j <= s->next; j++) held += s->l.at[j].bytes;
    for (*after = -1; held > s->least; held -= s->l.at[s->over++].bytes) {
        int64_t bytes =
            held - s->least; /* `at`: the first pinned event after which they are free; the last leaves all */
        int at = FIRST(k, 0, o->npinned - 1, s->room[o->pinned[k + 1]] >= bytes);
        if (at < o->so_far->now) {
            *after = at < o->npinned ? o->pinned[at] : -1;
            return true;
        }
        int back = s->l.at[s->over].last;
        if (s->over == s->next || !o->so_far->issued[back] || o->t->end[back] > o->t->free[COMPUTE]) return false;
    }
    return true;
}

/* No update's state is fetched in the forward: that would delay the parameters that the forward waits for. */
int streamed_next(Order *o, double *ready) {
    StreamedUpdates *s = o->streamed;
    const int *pinned = o->so_far->now < o->npinned ? &o->pinned[o->so_far->now] : NULL;
    if (pinned && order_phase(o, *pinned) == FORWARD) return -1;
    double horizon = pinned ? o->t->free[COMPUTE] + o->t->alone[*pinned] : INFINITY;
    for (; s->next < s->l.n; s->next++) {
        Streamed *u = &s->l.at[s->next];
        for (int after; u->next < u->update; u->next++) {
            int e = u->next;
            if (order_purpose(o, e) != TO_FETCH_STREAMED) continue;
            double begin = fmax(fmax(u->latest, s->busy), o->t->free[FETCH]);
            if (begin > horizon || !has_room(o, &after)) return -1;
            int back = s->over > 0 ? s->l.at[s->over - 1].last : -1;
            order_add(o, after, e);
            order_add(o, back, e);
            *ready = fmax(after >= 0 ? o->t->end[after] : 0, back >= 0 ? o->t->end[back] : 0);
            s->busy = fmax(fmax(s->busy, o->t->free[FETCH]), *ready) + duration(o, e);
            u->next++;
            return e;
        }
    }
    return -1;
}

/* The reduce that an update waits for may count on updates that were over long before. */
void streamed_reduce(Order *o, int reduce) {
    StreamedUpdates *s = o->streamed;
    int k = s->l.n ? s->of_reduce[reduce] : -1;
    for (int j = k - 1; j >= 0; j--) {
        int e = s->l.at[j].update; /* as much time to spare as the copies back take */
        if (!o->so_far->issued[e] || o->t->end[e] > o->t->start[reduce] - s->l.at[k].down) continue;
        order_add(o, e, reduce);
        return;
    }
}
