/* Time of a run: sleeping where an event is to take longer than it does, or (--virtual-clock) a clock that only such
 * events move. Each stream has a time of its own; an event starts at the latest of its stream's time and the ends of
 * what it waits for, a collective ends with the last of its ranks. So a run tells how long its waits let it take, to
 * the microsecond and on any machine.
 * Relies on: rank.h (an event's waits, shared memory).
 * Relied on by: stream.c, rank.c. */
#include "rank.h"
#include <errno.h>
#include <stdlib.h>
#include <time.h>

struct sc_clock {
    int64_t now[SC_STREAMS]; /* ns, since the rank began */
    int64_t *end;            /* by event of the running program: seen by who waits for it */
};

void sc_clock_new(sc_rank *r) {
    int most = 1;
    if (!r->d->virtual_clock) return;
    for (int p = 0; p < r->b->nprograms; p++)
        if (r->b->programs[p].nevents > most) most = r->b->programs[p].nevents;
    r->t->clock = sc_calloc(1, sizeof *r->t->clock);
    r->t->clock->end = sc_calloc((size_t)most, sizeof(int64_t));
}

void sc_clock_free(sc_rank *r) {
    if (r->t->clock) free(r->t->clock->end);
    free(r->t->clock);
}

static int64_t latest(const struct sc_clock *c) {
    int64_t t = 0;
    for (int s = 0; s < SC_STREAMS; s++)
        if (c->now[s] > t) t = c->now[s];
    return t;
}

/* Programs are joined at their borders, and so are their streams' times. */
void sc_clock_begin(sc_rank *r) {
    struct sc_clock *c = r->t->clock;
    int64_t t = c ? latest(c) : 0;
    for (int s = 0; c && s < SC_STREAMS; s++) c->now[s] = t;
}

static void doze(int64_t ns) {
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    while (ns > 0 && nanosleep(&t, &t) && errno == EINTR) continue;
}

int64_t sc_clock_start(sc_rank *r, sc_stream s, const sc_item *it) {
    struct sc_clock *c = r->t->clock;
    if (!c) {
        int64_t now = r->trace ? sc_now_ns() : 0;
        doze(it->sleep_ns);
        return now;
    }
    int64_t start = c->now[s];
    for (int k = 0; k < it->ndeps; k++)
        if (c->end[it->deps[k].event] > start) start = c->end[it->deps[k].event];
    int64_t end = start + it->sleep_ns;
    if (it->kind == SC_COLLECTIVE) { /* ranks meet again within it, so that nobody's next time comes too early */
        sc_members m = sc_comm(r, it->comm);
        atomic_store(&r->w->ranks[r->rank].clock[s], end);
        sc_meet(r, s, m);
        for (int k = 0; k < m.n; k++) {
            int64_t other = atomic_load(&r->w->ranks[m.first + k * m.step].clock[s]);
            if (other > end) end = other;
        }
    }
    c->now[s] = c->end[it->event] = end;
    return start;
}

int64_t sc_clock_end(const sc_rank *r, sc_stream s) {
    return r->t->clock ? r->t->clock->now[s] : r->trace ? sc_now_ns() : 0;
}

double sc_seconds(const sc_rank *r) {
    return 1e-9 * (double)(r->t->clock ? latest(r->t->clock) : sc_now_ns());
}
