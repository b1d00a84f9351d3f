/* order: the text of each program. Forward, recompute and backward stay as they are; gathers and fetches move up to
 * where their memory is allowed to begin, reduces to where their gradients are complete, the optimizer to where compute
 * need not wait for the reduce. What memory these moves may cost is bounded by order edges: last use of unit k ->
 * gather of unit k + d + 1, and the like. Edges say what place may count on; only those that it does count on become
 * waits. Relies on: storages, schedule.h. Relied on by: pipeline.c. Every edge goes forward in the graph's order, so a
 * text always exists. */
#include "order.h"

#include <stdlib.h>

typedef struct {
    int at;         /* event: its end frees ... */
    int64_t amount; /* ... so much */
} Release;
typedef VEC(Release) Releases;

/* ── the graph of conflicts ────────────────────────────────────────────────────────────────────────────────── */
static void index_edges(Ordering *o, bool by_target, int **at, int **list) {
    int n = o->p->n;
    *at = NEW_ARRAY(o->a, int, n + 2);
    *list = NEW_ARRAY(o->a, int, o->data.n + 1);
    for (int i = 0; i < o->data.n; i++) ++(*at)[(by_target ? o->data.at[i].to : o->data.at[i].from) + 2];
    for (int e = 0; e < n; e++) (*at)[e + 2] += (*at)[e + 1];
    for (int i = 0; i < o->data.n; i++) {
        Edge x = o->data.at[i];
        (*list)[(*at)[(by_target ? x.to : x.from) + 1]++] = by_target ? x.from : x.to;
    }
}

static void index_uses(Ordering *o) {
    int n = o->plan->nstorages;
    int **lists[] = {&o->first, &o->use, &o->last};
    for (int i = 0; i < 3; i++) {
        *lists[i] = NEW_ARRAY(o->a, int, n + 1);
        for (int s = 0; s < n; s++) (*lists[i])[s] = -1;
    }
    for (int e = 0; e < o->p->n; e++) {
        const Event *ev = &o->p->events[e];
        for (int i = 0; i < ev->nreads + ev->nwrites; i++) {
            int s = (i < ev->nreads ? ev->reads[i] : ev->writes[i - ev->nreads]).storage;
            if (o->first[s] < 0)
                o->first[s] = e;
            else if (o->use[s] < 0 && o->first[s] != e)
                o->use[s] = e;
            o->last[s] = e;
        }
    }
}

/* Compute events that must not hold up the ones beside them: the optimizer, and whatever takes a reduced gradient. */
static void find_floats(Ordering *o) {
    int anchored = -1;
    for (int e = 0; e < o->p->n; e++) {
        bool f = stream_of(o, e) != COMPUTE || phase_of(o, e) == OPTIMIZER;
        for (int i = o->pred_at[e]; i < o->pred_at[e + 1] && !f; i++) {
            int p = o->pred[i];
            f = stream_of(o, p) == REDUCE || (stream_of(o, p) == COMPUTE && o->floats[p]);
        }
        o->floats[e] = f;
        if (!f) anchored = e;
        o->home[e] = anchored;
    }
}

/* ── windows: how much memory may be in flight ─────────────────────────────────────────────────────────────── */
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
    int lo = 0, hi = l->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (l->at[mid].at < before)
            lo = mid + 1;
        else
            hi = mid;
    }
    int64_t held = own;
    while (lo-- > 0) {
        held += l->at[lo].amount;
        if (held > window) return l->at[lo].at;
    }
    return -1;
}

void add_order(Ordering *o, int from, int to) { /* -1: no event */
    if (from >= 0 && from < to) push(&o->order, o->a, ((Edge){from, to}));
}

/* ── unsharding: one use is the gathers of a unit for one phase, or its fetches where nothing is gathered ─── */
typedef struct {
    int event, last_event; /* of the gathers, which stand side by side */
    int first_use, last_use;
    int depth;
} Unshard;

int written(const Ordering *o, int e) {
    return o->p->events[e].nwrites ? o->p->events[e].writes[0].storage : -1;
}

static bool feeds_gather(const Ordering *o, int e) {
    for (int i = o->succ_at[e]; i < o->succ_at[e + 1]; i++)
        if (stream_of(o, o->succ[i]) == GATHER) return true;
    return false;
}

static bool is_parameter_fetch(const Ordering *o, int e) {
    return stream_of(o, e) == FETCH && o->p->events[e].unit >= 0 && phase_of(o, e) != OPTIMIZER &&
           phase_of(o, e) != INIT;
}

static bool unshards(const Ordering *o, int e) {
    return stream_of(o, e) == GATHER || (is_parameter_fetch(o, e) && !feeds_gather(o, e));
}

static int depth_of(const Ordering *o, int e) {
    const Event *ev = &o->p->events[e];
    const UnitPolicy *p = ev->unit >= 0 && ev->unit < o->g->units.n ? o->g->units.at[ev->unit]->policy : NULL;
    if (!p) return 1;
    return (int)max64(0, ev->phase == FORWARD ? p->prefetch_forward : p->prefetch_backward);
}

static bool same_use(const Ordering *o, const Unshard *u, int e) {
    const Event *a = &o->p->events[u->event], *b = &o->p->events[e];
    return a->unit == b->unit && a->phase == b->phase && o->home[u->event] == o->home[e];
}

typedef VEC(Unshard) Unshards;

static Unshards find_unshards(Ordering *o) {
    Unshards l = {0};
    for (int e = 0; e < o->p->n; e++) {
        int s = written(o, e);
        if (!unshards(o, e) || s < 0 || o->use[s] < 0) continue;
        if (l.n && same_use(o, &l.at[l.n - 1], e)) {
            Unshard *u = &l.at[l.n - 1];
            u->last_event = e;
            if (o->use[s] < u->first_use) u->first_use = o->use[s];
            if (o->last[s] > u->last_use) u->last_use = o->last[s];
            continue;
        }
        push(&l, o->a, ((Unshard){e, e, o->use[s], o->last[s], depth_of(o, e)}));
    }
    return l;
}

void key_at(Ordering *o, int e, int anchor) {
    static const int rank[N_STREAMS] = {
        [FETCH] = 1, [GATHER] = 2, [REDUCE] = 3, [UPDATE] = 4, [OFFLOAD] = 5, [HOST] = 6, [COMPUTE] = 7};
    o->key[e] = (Key){anchor, rank[stream_of(o, e)]};
}

static int event_before(const Ordering *o, int e) { /* anchored; -1: none */
    return e > 0 ? o->home[e - 1] : -1;
}

/* ── prefetch lists: where a unit begins, the gathers of those that it lists may ────────────────────────────── */
enum { BY_DEPTH = -2 };

static void start_listed(const Ordering *o, const Unshards *uses, const PrefetchList *l, bool forward, int e,
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

static void follow_list(const Ordering *o, const Unshards *uses, const Module *m, bool forward, int *starts) {
    const PrefetchList *l = forward ? &m->policy->forward_list : &m->policy->backward_list;
    bool inside = false;
    for (int e = 0; e < o->p->n && l->n; e++) {
        const Op *op = o->p->events[e].op_ir;
        if (o->floats[e] || !op) continue;
        bool in = module_within(op->module, m) && (op->phase == FORWARD) == forward;
        if (in && !inside) start_listed(o, uses, l, forward, e, starts);
        inside = in;
    }
}

static int *listed_starts(const Ordering *o, const Unshards *uses) {
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

/* The gather of the k-th use may start once use k - (d + 1) is over, and of depth 0 when its turn has come; what it
 * gathers from is fetched one use earlier. */
static void order_unshards(Ordering *o) {
    Unshards uses = find_unshards(o);
    Releases over = {0};
    for (int i = 0; i < uses.n; i++) push(&over, o->a, ((Release){uses.at[i].last_use, 1}));
    sort_releases(&over);
    const int *listed = listed_starts(o, &uses);
    for (int i = 0; i < uses.n; i++) {
        const Unshard *u = &uses.at[i];
        int start = u->depth ? trigger(&over, u->first_use, 1, u->depth + 1) : event_before(o, u->first_use),
            feed = trigger(&over, u->first_use, 1, u->depth + 2);
        if (listed[i] != BY_DEPTH) {
            start = listed[i];
            if (feed > start) feed = start;
        }
        for (int e = u->event; e <= u->last_event; e++) {
            if (!unshards(o, e)) continue;
            key_at(o, e, start < 0 ? -1 : o->home[start]);
            add_order(o, start, e);
            for (int k = o->pred_at[e]; k < o->pred_at[e + 1]; k++) {
                int f = o->pred[k];
                if (!is_parameter_fetch(o, f) || o->first[written(o, f)] != f) continue;
                key_at(o, f, feed < 0 ? -1 : o->home[feed]);
                add_order(o, feed, f);
            }
        }
    }
}

/* ── other fetches, offloads, reduces ──────────────────────────────────────────────────────────────────────── */
int64_t size_of(const Ordering *o, int storage) {
    return o->plan->storages[storage].size;
}

static bool plain_fetch(const Ordering *o, int e) {
    return stream_of(o, e) == FETCH && !is_parameter_fetch(o, e) && !o->streamed[e] && o->p->events[e].nwrites &&
           o->plan->storages[written(o, e)].program >= 0 && o->use[written(o, e)] >= 0;
}

/* At most twice the largest fetched buffer waits for its use; and nothing for the backward comes back in the forward.
 */
static void order_fetches(Ordering *o) {
    Releases over = {0};
    int64_t largest = 0;
    int forward_end = -1;
    for (int e = 0; e < o->p->n; e++) {
        if (!o->floats[e] && phase_of(o, e) == FORWARD) forward_end = e;
        if (!plain_fetch(o, e)) continue;
        push(&over, o->a, ((Release){o->last[written(o, e)], size_of(o, written(o, e))}));
        largest = max64(largest, size_of(o, written(o, e)));
    }
    sort_releases(&over);
    for (int e = 0; e < o->p->n; e++) {
        if (!plain_fetch(o, e)) continue;
        int start = trigger(&over, o->use[written(o, e)], size_of(o, written(o, e)), 2 * largest);
        if (phase_of(o, e) != FORWARD && forward_end < e && start < forward_end) start = forward_end;
        key_at(o, e, start < 0 ? -1 : o->home[start]);
        add_order(o, start, e);
    }
}

static int read_storage(const Ordering *o, int e) {
    return o->p->events[e].nreads ? o->p->events[e].reads[0].storage : -1;
}

/* What a reduce or an offload reads is free for others after it. So that others need not wait for the end of the
 * program, the first writer of a later buffer waits for the one that left the window. */
static void bound_readers(Ordering *o, Stream stream, bool count) {
    Releases over = {0};
    int64_t largest = 1;
    for (int e = 0; e < o->p->n; e++) {
        int s = stream_of(o, e) == stream && !o->streamed[e] ? read_storage(o, e) : -1;
        if (s < 0 || o->plan->storages[s].program < 0 || o->last[s] != e || o->first[s] == e) continue;
        int64_t amount = count ? 1 : size_of(o, s);
        push(&over, o->a, ((Release){e, amount}));
        largest = max64(largest, amount);
    }
    for (int i = 0; i < over.n; i++) {
        int writer = o->first[read_storage(o, over.at[i].at)];
        add_order(o, trigger(&over, writer, over.at[i].amount, 2 * largest), writer);
    }
}

/* ── a guess at times ──────────────────────────────────────────────────────────────────────────────────────── */
static double guess(const Ordering *o, const Event *ev) {
    double slower = copy_slows(o->d, o->plan, ev, ev->phase != FORWARD);
    return slower * event_duration_us(o->d, ev, event_group(o->plan, ev), event_here(o->plan, ev),
                                      o->plan->graph->deterministic);
}

double duration(const Ordering *o, int e) {
    return o->takes[e];
}

Course free_course(const Ordering *o) {
    Course c = {NEW_ARRAY(o->a, int, o->p->n + 1), NEW_ARRAY(o->a, double, o->p->n + 1), 0,
                NEW_ARRAY(o->a, double, o->p->n + 2)};
    double now = 0;
    for (int e = 0; e < o->p->n; e++) {
        if (o->floats[e]) continue;
        c.event[c.n] = e;
        c.start[c.n++] = now;
        c.end[e] = now += duration(o, e);
    }
    return c;
}

int first_from(const Course *c, double time) { /* anchored event that starts at that time or later, or -1 */
    int lo = 0, hi = c->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (c->start[mid] >= time)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo < c->n ? c->event[lo] : -1;
}

typedef struct {
    Key key;
    int event;
} Issue;

static int by_key(const void *a, const void *b) {
    const Issue *x = a, *y = b;
    if (x->key.anchor != y->key.anchor) return x->key.anchor < y->key.anchor ? -1 : 1;
    if (x->key.rank != y->key.rank) return x->key.rank < y->key.rank ? -1 : 1;
    return (x->event > y->event) - (x->event < y->event);
}

/* The anchored event by whose start a queued one has surely ended (half as long again as predicted), -1: none. Those of
 * a queue run one after another. */
static int surely_ended(const Ordering *o, const Course *c, const Issue *q, double *free_at) {
    double issued = q->key.anchor >= 0 ? c->end[q->key.anchor] : 0;
    *free_at = (*free_at > issued ? *free_at : issued) + duration(o, q->event);
    return first_from(c, issued + 1.5 * (*free_at - issued));
}

/* ── keys of what floats ───────────────────────────────────────────────────────────────────────────────────── */
static int next_reduce(const int *anchors, int n, int after, int end) {
    int lo = 0, hi = n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (anchors[mid] <= after)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n ? anchors[lo] : end;
}

static int latest_pred(const Ordering *o, int e) {
    int at = -1;
    for (int i = o->pred_at[e]; i < o->pred_at[e + 1]; i++)
        if (o->key[o->pred[i]].anchor > at) at = o->key[o->pred[i]].anchor;
    return at;
}

static int compare_int(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* Where the reduces of gradients stand, which depend on anchored events and on each other only. */
static int *reduce_anchors(Ordering *o, int *n) {
    int *anchors = NEW_ARRAY(o->a, int, o->p->n + 1);
    *n = 0;
    for (int e = 0; e < o->p->n; e++) {
        if (stream_of(o, e) != REDUCE || phase_of(o, e) == OPTIMIZER) continue;
        key_at(o, e, latest_pred(o, e));
        anchors[(*n)++] = o->key[e].anchor;
    }
    qsort(anchors, (size_t)*n, sizeof *anchors, compare_int);
    return anchors;
}

/* By event: the anchored one by whose start a gradient's reduce has ended; n: none. */
static const int *find_arrivals(Ordering *o) {
    Course c = free_course(o);
    Issue *queue = NEW_ARRAY(o->a, Issue, o->p->n + 1);
    int n = 0, *arrival = NEW_ARRAY(o->a, int, o->p->n + 1);
    for (int e = 0; e < o->p->n; e++)
        if (stream_of(o, e) == REDUCE && phase_of(o, e) != OPTIMIZER) queue[n++] = (Issue){o->key[e], e};
    if (n) qsort(queue, (size_t)n, sizeof *queue, by_key);
    double free_at = 0;
    for (int i = 0; i < n; i++) {
        int then = surely_ended(o, &c, &queue[i], &free_at);
        arrival[queue[i].event] = then < 0 ? o->p->n : then;
    }
    return arrival;
}

/* Compute takes what a reduce made when the next unit's gradients are complete and it has arrived. What comes back from
 * the host it takes last. */
static int compute_anchor(const Ordering *o, int e, const int *reduces, int nreduces, const int *arrival) {
    int end = o->p->n, at = -1;
    for (int i = o->pred_at[e]; i < o->pred_at[e + 1]; i++) {
        int p = o->pred[i], k = o->key[p].anchor;
        if (stream_of(o, p) == REDUCE)
            k = phase_of(o, p) == OPTIMIZER ? k : (int)max64(next_reduce(reduces, nreduces, k, end), arrival[p]);
        else if (stream_of(o, p) != COMPUTE && stream_of(o, p) != GATHER)
            k = end;
        if (k > at) at = k;
    }
    return at;
}

static bool free_to_start(const Ordering *o, int e) {
    return o->pred_at[e] == o->pred_at[e + 1];
}

static void key_floats(Ordering *o) {
    int nreduces;
    const int *reduces = reduce_anchors(o, &nreduces), *arrival = find_arrivals(o);
    for (int e = 0; e < o->p->n; e++) {
        if (!o->floats[e]) continue;
        bool timed = unshards(o, e) || stream_of(o, e) == FETCH;
        int at = stream_of(o, e) == COMPUTE ? compute_anchor(o, e, reduces, nreduces, arrival) : latest_pred(o, e);
        if (timed && o->key[e].anchor > at) at = o->key[e].anchor;
        if (!timed && free_to_start(o, e)) at = o->home[e];
        /* sums that nothing waits for (metrics) come after the first reduce, and hide behind the backward
         */
        bool late = stream_of(o, e) == REDUCE && phase_of(o, e) == OPTIMIZER && nreduces > 1;
        if (late && at < reduces[0]) at = reduces[0];
        key_at(o, e, at);
    }
    for (int e = o->p->n - 1; e >= 0; e--) { /* what depends on nothing comes just before its first user */
        if (!o->floats[e] || !free_to_start(o, e) || unshards(o, e) || stream_of(o, e) == FETCH) continue;
        for (int i = o->succ_at[e]; i < o->succ_at[e + 1]; i++) {
            Key k = o->key[o->succ[i]];
            bool first = i == o->succ_at[e];
            if (first || k.anchor < o->key[e].anchor || (k.anchor == o->key[e].anchor && k.rank < o->key[e].rank))
                o->key[e] = k;
        }
    }
}

int reduce_of(const Ordering *o, int e) {
    if (stream_of(o, e) == REDUCE) return phase_of(o, e) == OPTIMIZER ? -1 : e;
    if (stream_of(o, e) != COMPUTE || !o->floats[e] || phase_of(o, e) == OPTIMIZER) return -1;
    for (int i = o->pred_at[e]; i < o->pred_at[e + 1]; i++)
        if (stream_of(o, o->pred[i]) == REDUCE) return o->pred[i];
    return -1;
}

static bool takes_reduced(const Ordering *o, int e) {
    for (int i = o->pred_at[e]; i < o->pred_at[e + 1]; i++)
        if (reduce_of(o, o->pred[i]) >= 0) return true;
    return false;
}

/* The last reduces have no gradients beside them, but updates that could have been made before can wait for that: as
 * many as it takes, the latest first. Little else is live at the end, so the gradients that they keep cost no memory.
 */
static void cover_last_reduces(Ordering *o) {
    Course c = free_course(o);
    Issue *queue = NEW_ARRAY(o->a, Issue, o->p->n + 1), *updates = NEW_ARRAY(o->a, Issue, o->p->n + 1);
    int n = 0, m = 0, end = o->p->n;
    for (int e = 0; e < end; e++) {
        if (stream_of(o, e) == REDUCE && phase_of(o, e) != OPTIMIZER) queue[n++] = (Issue){o->key[e], e};
        bool early =
            o->floats[e] && stream_of(o, e) == COMPUTE && phase_of(o, e) == OPTIMIZER && o->key[e].anchor < end;
        if (early && takes_reduced(o, e)) updates[m++] = (Issue){o->key[e], e};
    }
    if (!n || !m || !c.n) return;
    qsort(queue, (size_t)n, sizeof *queue, by_key);
    qsort(updates, (size_t)m, sizeof *updates, by_key);
    double reduced = 0, uncovered;
    for (int i = 0; i < n; i++) surely_ended(o, &c, &queue[i], &reduced);
    uncovered = reduced - c.end[c.event[c.n - 1]];
    while (m-- > 0 && uncovered > 0) {
        o->key[updates[m].event] = (Key){end, 0};
        uncovered -= duration(o, updates[m].event);
    }
}

/* ── edges that should cost nothing ────────────────────────────────────────────────────────────────────────── */
static bool queues(const Ordering *o, int e, bool collectives) {
    return collectives ? o->p->events[e].comm >= 0 : stream_of(o, e) == OFFLOAD && !o->streamed[e];
}

/* By the time that a reduce or an offload has surely ended compute may as well wait for it: what it has read is free
 * from there on. */
static void end_early(Ordering *o, bool collectives) {
    Course c = free_course(o);
    Issue *queue = NEW_ARRAY(o->a, Issue, o->p->n + 1);
    int n = 0;
    for (int e = 0; e < o->p->n; e++)
        if (o->floats[e] && queues(o, e, collectives)) queue[n++] = (Issue){o->key[e], e};
    if (n) qsort(queue, (size_t)n, sizeof *queue, by_key);
    double free_at = 0;
    for (int i = 0; i < n && queue[i].key.anchor < o->p->n; i++) {
        int then = surely_ended(o, &c, &queue[i], &free_at);
        if (stream_of(o, queue[i].event) != GATHER) add_order(o, queue[i].event, then);
    }
}

/* ── the text: topological order of conflicts and order edges, smallest key first ──────────────────────────── */
typedef struct {
    const Key *key;
    int *at;
    int n;
} Heap;

static bool sooner(const Heap *h, int a, int b) {
    const Key *x = &h->key[a], *y = &h->key[b];
    if (x->anchor != y->anchor) return x->anchor < y->anchor;
    return x->rank != y->rank ? x->rank < y->rank : a < b;
}

static void heap_put(Heap *h, int e) {
    int i = h->n++;
    for (; i > 0 && sooner(h, e, h->at[(i - 1) / 2]); i = (i - 1) / 2) h->at[i] = h->at[(i - 1) / 2];
    h->at[i] = e;
}

static int heap_take(Heap *h) {
    int top = h->at[0], e = h->at[--h->n], i = 0;
    for (int c; (c = 2 * i + 1) < h->n; i = c) {
        if (c + 1 < h->n && sooner(h, h->at[c + 1], h->at[c])) c++;
        if (!sooner(h, h->at[c], e)) break;
        h->at[i] = h->at[c];
    }
    h->at[i] = e;
    return top;
}

static void release(int *missing, Heap *ready, int e) {
    if (--missing[e] == 0) heap_put(ready, e);
}

/* text[i]: the i-th event issued. */
static int *issue(Ordering *o) {
    int n = o->p->n, previous = -1, *after = NEW_ARRAY(o->a, int, n + 1), *missing = NEW_ARRAY(o->a, int, n + 1);
    for (int e = 0; e < n; e++) after[e] = -1;
    for (int e = 0; e < n; e++) { /* anchored events keep their order */
        if (o->floats[e]) continue;
        if (previous >= 0) after[previous] = e, missing[e]++;
        previous = e;
    }
    Ordering all = *o; /* conflicts and order edges, by source */
    all.data = (Edges){0};
    for (int i = 0; i < o->data.n + o->order.n; i++) {
        Edge x = i < o->data.n ? o->data.at[i] : o->order.at[i - o->data.n];
        push(&all.data, o->a, x);
        missing[x.to]++;
    }
    int *at, *to;
    index_edges(&all, false, &at, &to);
    Heap ready = {o->key, NEW_ARRAY(o->a, int, n + 1), 0};
    for (int e = 0; e < n; e++)
        if (missing[e] == 0) heap_put(&ready, e);
    int *text = NEW_ARRAY(o->a, int, n + 1);
    for (int i = 0; i < n; i++) {
        int e = text[i] = heap_take(&ready);
        for (int k = at[e]; k < at[e + 1]; k++) release(missing, &ready, to[k]);
        if (after[e] >= 0) release(missing, &ready, after[e]);
    }
    return text;
}

static void renumber(Edges *l, const int *place) {
    for (int i = 0; i < l->n; i++) l->at[i] = (Edge){place[l->at[i].from], place[l->at[i].to]};
}

static void order_program(Schedule *s, const Graph *g, const Device *d, Plan *plan, int program) {
    PlanProgram *p = &plan->programs[program];
    Arena *scratch = arena_new();
    Ordering o = {.g = g, .d = d, .plan = plan, .p = p, .a = scratch};
    o.floats = NEW_ARRAY(scratch, bool, p->n + 1);
    o.streamed = NEW_ARRAY(scratch, bool, p->n + 1);
    o.key = NEW_ARRAY(scratch, Key, p->n + 1);
    o.home = NEW_ARRAY(scratch, int, p->n + 1);
    find_conflicts(scratch, plan, program, &o.data);
    index_edges(&o, true, &o.pred_at, &o.pred);
    index_edges(&o, false, &o.succ_at, &o.succ);
    index_uses(&o);
    find_floats(&o);
    find_streamed(&o);
    o.takes = NEW_ARRAY(scratch, double, p->n + 1);
    for (int e = 0; e < p->n; e++) {
        o.key[e] = (Key){e, 0};
        o.takes[e] = guess(&o, &p->events[e]);
    }
    order_unshards(&o);
    order_fetches(&o);
    order_updates(&o);
    bound_readers(&o, REDUCE, true);
    bound_readers(&o, OFFLOAD, false);
    key_floats(&o);
    cover_last_reduces(&o);
    end_early(&o, true);
    end_early(&o, false);
    const int *text = issue(&o);
    Event *sorted = NEW_ARRAY(plan->arena, Event, p->n + 1);
    int *place = NEW_ARRAY(scratch, int, p->n + 1);
    for (int i = 0; i < p->n; i++) {
        sorted[i] = p->events[text[i]];
        place[text[i]] = i;
    }
    p->events = sorted;
    renumber(&o.data, place);
    renumber(&o.order, place);
    schedule_program(s, plan, program, &o.data, &o.order);
    arena_free(scratch);
}

Schedule *order(const Graph *g, const Device *d, Plan *plan) {
    if (!plan->arena) plan->arena = g->arena;
    derive_storages(g, plan);
    Schedule *s = schedule_new(plan);
    for (int i = 0; i < plan->nprograms; i++) order_program(s, g, d, plan, i);
    return s;
}
