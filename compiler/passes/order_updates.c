/* order's part for updates whose state passes through the device: fetches, the update, copies back, one trip a unit. A
 * trip's fetches begin as late as still hides them, and when there is room: in memory that the backward has done with,
 * or else for a few trips at a time. Both are guessed by one walk over the trips with the durations of the device
 * profile; what the guess relies on become order edges. Relies on: order.h. Relied on by: order.c. */
#include "order.h"

static const double MARGIN = 1.25; /* of fetches, over what the profile says */

typedef struct {
    int update, first, last;         /* events; first fetch, last copy back */
    int shared;                      /* a fetch that a gather needs too, or -1 */
    int64_t bytes;                   /* what it holds of the device */
    double ready;                    /* the gradient is there */
    double up, kernel, down;         /* durations */
    double latest;                   /* the fetches begin by then */
    double begin, updated, released; /* as guessed */
    int after, left;                 /* the fetches count on: an anchored event, an earlier trip; -1: none */
} Trip;
typedef VEC(Trip) Trips;

static bool is_streamed_update(const Ordering *o, int e) {
    const Op *op = o->p->events[e].op_ir;
    return op && op_is(op, T_OPTIMIZER) && stream_of(o, e) == UPDATE;
}

static bool is_feed(const Ordering *o, int e) { /* of an update: a fetch, or zeros for what it only writes */
    int s = written(o, e);
    return s >= 0 && o->plan->storages[s].program >= 0 && o->first[s] == e && phase_of(o, e) == OPTIMIZER &&
           (stream_of(o, e) == FETCH || stream_of(o, e) == UPDATE);
}

void find_streamed(Ordering *o) {
    for (int e = 0; e < o->p->n; e++) {
        if (!is_streamed_update(o, e)) continue;
        o->streamed[e] = true;
        for (int i = o->pred_at[e]; i < o->pred_at[e + 1]; i++)
            if (is_feed(o, o->pred[i])) o->streamed[o->pred[i]] = true;
        for (int i = o->succ_at[e]; i < o->succ_at[e + 1]; i++)
            if (stream_of(o, o->succ[i]) == OFFLOAD && o->p->events[o->succ[i]].update) o->streamed[o->succ[i]] = true;
    }
}

/* ── when gradients are there, if nothing but themselves holds them up ─────────────────────────────────────── */
static double *find_done(const Ordering *o, const Course *c) {
    double *done = NEW_ARRAY(o->a, double, o->p->n + 1), reduces_free = 0;
    for (int e = 0; e < o->p->n; e++) {
        double start = 0;
        for (int i = o->pred_at[e]; i < o->pred_at[e + 1]; i++)
            if (done[o->pred[i]] > start) start = done[o->pred[i]];
        bool queues = stream_of(o, e) == REDUCE && phase_of(o, e) != OPTIMIZER;
        if (queues && reduces_free > start) start = reduces_free;
        done[e] = !o->floats[e] ? c->end[e] : o->streamed[e] ? 0 : start + duration(o, e);
        if (queues) reduces_free = done[e];
    }
    return done;
}

/* ── trips ─────────────────────────────────────────────────────────────────────────────────────────────────── */
/* What belongs to a trip stands side by side in the graph's order. */
static Trip trip_of(const Ordering *o, int e, const double *done) {
    Trip t = {.update = e, .first = e, .last = e, .shared = -1, .kernel = duration(o, e)};
    for (int i = o->pred_at[e]; i < o->pred_at[e + 1]; i++) {
        int p = o->pred[i];
        if (o->streamed[p] && p < t.first) t.first = p;
        if (!o->streamed[p] && done[p] > t.ready) t.ready = done[p];
        if (!o->streamed[p] && stream_of(o, p) == FETCH) t.shared = p;
    }
    for (int i = o->succ_at[e]; i < o->succ_at[e + 1]; i++)
        if (o->streamed[o->succ[i]] && o->succ[i] > t.last) t.last = o->succ[i];
    if (t.shared >= 0) t.bytes += size_of(o, written(o, t.shared));
    for (int f = t.first; f <= t.last; f++) {
        if (!o->streamed[f] || f == e) continue;
        if (f < e) t.bytes += size_of(o, written(o, f));
        *(f > e ? &t.down : stream_of(o, f) == FETCH ? &t.up : &t.kernel) += duration(o, f);
    }
    return t;
}

/* Fetches of parameters for the backward share the way up. */
static double crowding(const Ordering *o, const Course *c) {
    double busy = 0, begin = -1, end = 0;
    for (int e = 0; e < o->p->n; e++) {
        if (!o->floats[e] && phase_of(o, e) == BACKWARD) {
            if (begin < 0) begin = c->end[e];
            end = c->end[e];
        }
        if (stream_of(o, e) == FETCH && phase_of(o, e) == BACKWARD) busy += duration(o, e);
    }
    double share = end > begin && begin >= 0 ? busy / (end - begin) : 0;
    return 1 / (1 - (share < 0.5 ? share : 0.5));
}

static void find_latest(Trips *l) {
    double next = 1e18;
    for (int k = l->n - 1; k >= 0; k--) {
        Trip *t = &l->at[k];
        t->latest = next = (t->ready < next ? t->ready : next) - MARGIN * t->up;
    }
}

/* ── room ──────────────────────────────────────────────────────────────────────────────────────────────────── */
static bool in_trip(const Ordering *o, int storage) {
    return o->first[storage] >= 0 && o->streamed[o->first[storage]];
}

/* By event: bytes that neither it nor any later one needs of what the fullest moment takes, trips aside. */
static int64_t *find_room(const Ordering *o) {
    int n = o->p->n;
    int64_t *room = NEW_ARRAY(o->a, int64_t, n + 2), live = 0, most = 0;
    for (int s = 0; s < o->plan->nstorages; s++) {
        const Storage *t = &o->plan->storages[s];
        if (t->program < 0 || t->arena != ARENA_DEVICE || o->first[s] < 0 || in_trip(o, s)) continue;
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

/* Three trips of the usual size, or the largest and one more. */
static int64_t least_room(const Trips *l) {
    int64_t sum = 0, largest = 0;
    for (int k = 0; k < l->n; k++) {
        sum += l->at[k].bytes;
        largest = max64(largest, l->at[k].bytes);
    }
    int64_t usual = sum / l->n;
    return max64(3 * usual, largest + usual);
}

/* Bytes of the k-th trip and of those before it that it does not count on to be over. */
static int64_t held(const Trips *l, int k, int over) {
    int64_t sum = 0;
    for (int j = over; j <= k; j++) sum += l->at[j].bytes;
    return sum;
}

/* Position in the course of the first event after which the backward leaves so much room; n: none does. */
static int leaves(const Course *c, const int64_t *room, int64_t bytes) {
    int lo = 0, hi = c->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (mid + 1 < c->n && room[c->event[mid + 1]] < bytes)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Room for the k-th trip: what the backward has done with, or else that of trips that are over. *over: trips before the
 * k-th that the fetches so far have waited for; each waits for no less than those before it. */
static void find_place(Trips *l, int k, const Course *c, const int64_t *room, int64_t least, double time, int *over) {
    Trip *t = &l->at[k];
    t->begin = time;
    t->after = t->left = -1;
    while (held(l, k, *over) > least) {
        int at = leaves(c, room, held(l, k, *over) - least);
        double gone = at < c->n ? c->end[c->event[at]] : 1e18, left = *over < k ? l->at[*over].released : 1e18;
        if (gone <= t->begin || gone <= left) {
            t->after = at < c->n ? c->event[at] : -1;
            if (gone > t->begin && at < c->n) t->begin = gone;
            return;
        }
        if (left > t->begin) t->begin = left;
        t->left = (*over)++;
    }
}

/* ── the walk ──────────────────────────────────────────────────────────────────────────────────────────────── */
static void guess(const Ordering *o, const Course *c, Trips *l, double crowd) {
    const int64_t *room = find_room(o);
    const int64_t least = least_room(l);
    double up_free = 0, down_free = 0, updated = 0;
    int over = 0;
    for (int k = 0; k < l->n; k++) {
        Trip *t = &l->at[k];
        find_place(l, k, c, room, least, t->latest > up_free ? t->latest : up_free, &over);
        up_free = t->begin + crowd * t->up;
        double begin = up_free > t->ready ? up_free : t->ready;
        t->updated = updated = (begin > updated ? begin : updated) + t->kernel;
        t->released = down_free = (down_free > updated ? down_free : updated) + t->down;
    }
}

static int over_by(const Course *c, double time) { /* the last anchored event that has ended, or -1 */
    int lo = 0, hi = c->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (c->end[c->event[mid]] <= time)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo ? c->event[lo - 1] : -1;
}

/* The reduce that the update waits for may count on updates that were over long before. */
static void bound_gradients(Ordering *o, const Trips *l, int k, const double *done) {
    const Trip *t = &l->at[k];
    for (int i = o->pred_at[t->update]; i < o->pred_at[t->update + 1]; i++) {
        int r = reduce_of(o, o->pred[i]);
        if (r < 0) continue;
        double begin = done[r] - duration(o, r) - t->down; /* a trip's time to spare */
        for (int j = k - 1; j >= 0; j--)
            if (l->at[j].updated <= begin) {
                add_order(o, l->at[j].update, r);
                break;
            }
    }
}

void order_updates(Ordering *o) {
    Course c = free_course(o);
    const double *done = find_done(o, &c);
    Trips l = {0};
    for (int e = 0; e < o->p->n; e++)
        if (is_streamed_update(o, e)) push(&l, o->a, trip_of(o, e, done));
    if (!l.n) return;
    find_latest(&l);
    double crowd = crowding(o, &c);
    guess(o, &c, &l, crowd);
    for (int k = 0; k < l.n; k++) {
        const Trip *t = &l.at[k];
        double begin = t->begin;
        for (int e = t->first; e < t->update; e++) {
            if (!o->streamed[e] || stream_of(o, e) != FETCH) continue;
            key_at(o, e, over_by(&c, begin));
            add_order(o, t->after, e);
            if (t->left >= 0) add_order(o, l.at[t->left].last, e);
            begin += crowd * duration(o, e); /* so that fetches of parameters come between them */
        }
        if (t->left >= 0 && t->shared >= 0) add_order(o, l.at[t->left].last, t->shared);
        bound_gradients(o, &l, k, done);
    }
}
