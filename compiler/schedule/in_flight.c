/* in_flight: how much memory movable events may hold. The table of purposes says what is counted (units, buffers,
 * bytes) and the limit. Here limits become order edges: what leaves the window ends before the next one may begin.
 * Relies on: order.h. Relied on by: order.c. Every edge goes forward in the graph's order, so an issue order exists. */
#include "../ir/policy.h"
#include "order.h"

#include <stdlib.h>

typedef struct {
    int at;         /* event: its end frees ... */
    int64_t amount; /* ... so much */
} Release;
typedef VEC(Release) Releases;

static int by_event(const void *a, const void *b) {
    const Release *x = a, *y = b;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at) : (x->amount > y->amount) - (x->amount < y->amount);
}

static void sort_releases(Releases *l) {
    if (l->n) qsort(l->at, (size_t)l->n, sizeof *l->at, by_event);
}

/* The latest release that must be over before `own` more may begin so that no more than `window` is held, among those
 * before event `before`; -1: none. */
static int trigger(const Releases *l, int before, int64_t own, int64_t window) {
    int64_t held = own;
    for (int i = FIRST(k, 0, l->n, l->at[k].at >= before); i-- > 0;) {
        held += l->at[i].amount;
        if (held > window) return l->at[i].at;
    }
    return -1;
}

/* ── units: one use is the gathers of a unit for one phase, or its fetches where nothing is gathered ──────────── */
typedef struct {
    int event, last_event; /* of the gathers, which stand side by side */
    int first_use, last_use;
    int depth;
} Unshard;

static bool unshards(const Order *o, int e) {
    return order_purpose(o, e) == TO_UNSHARD || order_purpose(o, e) == TO_FETCH_UNIT;
}

typedef VEC(Unshard) Unshards;

static Unshards find_unshards(Order *o) {
    Unshards l = {0};
    for (int e = 0; e < o->p->n; e++) {
        int s = order_written(o, e);
        if (!unshards(o, e) || s < 0 || o->use[s] < 0) continue;
        const Event *ev = &o->p->events[e];
        Unshard *u = l.n ? &l.at[l.n - 1] : NULL;
        const Event *before = u ? &o->p->events[u->event] : NULL;
        if (u && before->unit == ev->unit && before->phase == ev->phase && o->home[u->event] == o->home[e]) {
            u->last_event = e;
            if (o->use[s] < u->first_use) u->first_use = o->use[s];
            if (o->last[s] > u->last_use) u->last_use = o->last[s];
            continue;
        }
        const UnitPolicy *p = ev->unit >= 0 && ev->unit < o->g->units.n ? o->g->units.at[ev->unit]->policy : NULL;
        int64_t depth = !p ? 1 : max64(0, ev->phase == FORWARD ? p->prefetch_forward : p->prefetch_backward);
        push(&l, o->a, ((Unshard){e, e, o->use[s], o->last[s], (int)depth}));
    }
    return l;
}

static int event_before(const Order *o, int e) { /* a pinned one; -1: none */
    return e > 0 ? o->home[e - 1] : -1;
}

/* limited: by event, a limit says from when on it may be issued. */
static void begin_after(Order *o, bool *limited, int e, int start) {
    limited[e] = true;
    if (start < e)
        order_add(o, start, e);
    else
        order_add_sequence(o, start, e);
}

/* ── prefetch lists: where a unit begins, the gathers of those that it lists may ────────────────────────────── */
enum { BY_DEPTH = -2 };

static void start_listed(const Order *o, const Unshards *uses, const PrefetchList *l, bool forward, int e,
                         int *starts) {
    int before = event_before(o, e);
    for (int i = 0; i < l->n; i++)
        for (int k = 0; k < uses->n; k++) {
            const Event *gather = &o->p->events[uses->at[k].event];
            if (uses->at[k].first_use <= e || (gather->phase == FORWARD) != forward) continue;
            if (o->g->units.at[gather->unit]->module != l->at[i]) continue;
            if (starts[k] == BY_DEPTH || before < starts[k]) starts[k] = before;
            break;
        }
}

static void follow_list(const Order *o, const Unshards *uses, const Module *m, bool forward, int *starts) {
    const PrefetchList *l = forward ? &m->policy->forward_list : &m->policy->backward_list;
    bool inside = false;
    for (int e = 0; e < o->p->n && l->n; e++) {
        const Op *op = o->p->events[e].op_ir;
        if (!order_pinned(o, e) || !op) continue;
        bool in = module_within(op->module, m) && (op->phase == FORWARD) == forward;
        if (in && !inside) start_listed(o, uses, l, forward, e, starts);
        inside = in;
    }
}

static int *listed_starts(const Order *o, const Unshards *uses) {
    int *starts = NEW_ARRAY(o->a, int, uses->n + 1);
    for (int i = 0; i < uses->n; i++) starts[i] = BY_DEPTH;
    for (int i = 0; i < o->g->units.n; i++) {
        const Unit *u = o->g->units.at[i];
        if (u->module->unit != u || !u->module->policy) continue; /* once a module */
        follow_list(o, uses, u->module, true, starts);
        follow_list(o, uses, u->module, false, starts);
    }
    return starts;
}

/* The gathers of a use begin once enough uses before it are over, of depth 0 when their turn has come; what they gather
 * from is fetched one use earlier. */
static void limit_units(Order *o, bool *limited) {
    Unshards uses = find_unshards(o);
    Releases over = {0};
    for (int i = 0; i < uses.n; i++) push(&over, o->a, ((Release){uses.at[i].last_use, 1}));
    sort_releases(&over);
    const int *listed = listed_starts(o, &uses);
    for (int i = 0; i < uses.n; i++) {
        const Unshard *u = &uses.at[i];
        int more = order_policy(o, u->event)->limit, more_fed = purposes[TO_FETCH_SHARD].limit;
        int start = u->depth ? trigger(&over, u->first_use, 1, u->depth + more) : event_before(o, u->first_use),
            feed = trigger(&over, u->first_use, 1, u->depth + more_fed);
        if (listed[i] != BY_DEPTH) {
            start = listed[i];
            if (feed > start) feed = start;
        }
        for (int e = u->event; e <= u->last_event; e++) {
            if (!unshards(o, e)) continue;
            begin_after(o, limited, e, start);
            for (int k = o->pred.at[e]; k < o->pred.at[e + 1]; k++) {
                int f = o->pred.event[k];
                if (order_purpose(o, f) == TO_FETCH_SHARD && o->first[order_written(o, f)] == f)
                    begin_after(o, limited, f, feed);
            }
        }
    }
}

/* ── buffers: of a fetch from its begin to its last reader, of a reduce or an offload from its first writer on ── */
typedef struct {
    int begin, before, end; /* the event that takes the buffer, the one that it is there for, the one that frees it */
    int64_t amount;
} Buffer;
typedef VEC(Buffer) Buffers;

static bool buffer_of(const Order *o, int e, Buffer *b) {
    bool fetch = order_stream(o, e) == FETCH;
    int s = fetch ? order_written(o, e) : order_event(o, e)->nreads ? order_event(o, e)->reads[0].storage : -1;
    if (s < 0 || o->plan->storages[s].program < 0) return false;
    if (fetch)
        *b = (Buffer){e, o->use[s], o->last[s], 0};
    else
        *b = (Buffer){o->first[s], o->first[s], e, 0};
    b->amount = order_policy(o, e)->counted == BY_BYTES ? order_size(o, s) : 1;
    return fetch || (o->last[s] == e && o->first[s] != e);
}

/* For reduces the edges are tight ones, unless updates are streamed: those need the room. Nothing that the backward
 * reads is fetched in the forward: it would take the memory that the offload has freed. */
static void limit_buffers(Order *o, bool *limited, Stream stream) {
    Releases over = {0};
    Buffers all = {0};
    int64_t largest = 1;
    int limit = 0, forward_end = -1;
    for (int e = 0; e < o->p->n; e++) {
        Buffer b;
        if (order_pinned(o, e) && order_phase(o, e) == FORWARD) forward_end = e;
        Counted c = order_policy(o, e)->counted;
        if (order_stream(o, e) != stream || (c != BY_BUFFERS && c != BY_BYTES) || !buffer_of(o, e, &b)) continue;
        limit = order_policy(o, e)->limit;
        push(&all, o->a, b);
        push(&over, o->a, ((Release){b.end, b.amount}));
        largest = max64(largest, b.amount);
    }
    sort_releases(&over);
    for (int i = 0; i < all.n; i++) {
        const Buffer *b = &all.at[i];
        int start = trigger(&over, b->before, b->amount, limit * largest);
        bool forward = stream != FETCH || order_phase(o, b->begin) == FORWARD || forward_end > b->begin;
        if (!forward && start < forward_end) start = forward_end;
        if (stream == REDUCE && start >= 0 && !streamed_any(o))
            order_add_tight(o, start, b->begin);
        else
            begin_after(o, limited, b->begin, start);
    }
}

/* Gathers and fetches that no limit counts stand where the graph has them. */
void order_limit_in_flight(Order *o) {
    bool *limited = NEW_ARRAY(o->a, bool, o->p->n + 1);
    limit_units(o, limited);
    limit_buffers(o, limited, FETCH);
    limit_buffers(o, limited, REDUCE);
    limit_buffers(o, limited, OFFLOAD);
    for (int e = 0; e < o->p->n; e++) {
        bool early = order_stream(o, e) == FETCH || order_stream(o, e) == GATHER;
        if (early && !limited[e] && order_purpose(o, e) != TO_FETCH_STREAMED) order_add_sequence(o, o->home[e], e);
    }
}
