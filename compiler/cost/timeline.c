/* timeline: when events run. A stream runs its events one after another. Kernels take longer while collectives and
 * copies run, copies while others run the other way. Relies on: device_event_us and its like (duration.c).
 * Relied on by: simulate.c, compiler/schedule/. */
#include "timeline.h"

#include <math.h>

/* Durations at the clock that the power limit leaves. */
static void throttle(Timeline *t, const Device *d, double idle) {
    double clocked = 0, other = idle;
    for (int i = 0; i < t->p->n; i++) {
        if (t->p->events[i].stream != COMPUTE) continue;
        double us = d ? device_event_clocked_us(d, &t->p->events[i], t->alone[i]) : 0;
        clocked += us;
        other += t->alone[i] - us;
    }
    double slower = d ? device_throttle(d, t->p, clocked, other) : 1;
    t->busy = clocked * slower + other - idle;
    for (int i = 0; i < t->p->n && slower > 1; i++)
        t->alone[i] += (slower - 1) * device_event_clocked_us(d, &t->p->events[i], t->alone[i]);
}

Timeline *timeline_new(Arena *a, const Plan *plan, const PlanProgram *p, const Device *d, double idle) {
    Timeline *t = NEW(a, Timeline);
    double **lists[] = {&t->alone, &t->start, &t->end, &t->least, &t->both, &t->share};
    int length[N_STREAMS] = {0};
    t->p = p;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) *lists[i] = NEW_ARRAY(a, double, p->n + 1);
    for (int i = 0; i < p->n; i++) {
        const Event *e = &p->events[i];
        t->alone[i] =
            d ? device_event_us(d, e, device_event_group(plan, e), device_event_here(plan, e)) : e->duration_us;
        t->least[i] = d ? device_copy_slows(d, plan, e, false) : 1;
        t->both[i] = d ? device_copy_slows(d, plan, e, true) : 1;
        t->share[i] = d ? device_event_slows(d, e) : 0;
        length[e->stream]++;
    }
    throttle(t, d, idle);
    for (int s = 0; s < N_STREAMS; s++)
        if (s != COMPUTE) t->ran[s].span = NEW_ARRAY(a, Span, length[s] + 1);
    return t;
}

void timeline_restart(Timeline *t) {
    memset(t->free, 0, sizeof t->free);
    memset(t->beside, 0, sizeof t->beside);
    for (int s = 0; s < N_STREAMS; s++) t->ran[s].n = 0;
}

/* Two collectives, or two copies; kernels run on their streams too. */
bool timeline_share(const Timeline *t, int a, int b) {
    const Event *x = &t->p->events[a], *y = &t->p->events[b];
    return stream_share(x->stream, y->stream) && (x->comm >= 0) == (y->comm >= 0);
}

static bool slows(Stream s, Stream event) {
    return event == COMPUTE || stream_share(event, s);
}

/* When an event ends that starts at `start`: it does what it does alone, slower while others run beside it. */
static double end_of(Timeline *t, int event, double start) {
    Stream stream = t->p->events[event].stream;
    double now = start, left = t->alone[event];
    for (;;) {
        double slower = t->least[event], next = now + 1e18;
        for (int s = 0; s < N_STREAMS; s++) {
            const Track *other = &t->ran[s];
            int *at = &t->beside[stream][s];
            if (!slows((Stream)s, stream)) continue;
            while (*at < other->n && other->span[*at].end <= now) ++*at; /* a stream's time only grows */
            if (*at == other->n) continue;
            const Span *x = &other->span[*at];
            bool runs = x->start <= now;
            if (runs && stream == COMPUTE) slower += x->share;
            if (runs && stream != COMPUTE && timeline_share(t, event, x->event)) slower = t->both[event];
            next = fmin(next, runs ? x->end : x->start);
        }
        double done = (next - now) / slower;
        if (done >= left) return now + left * slower;
        left -= done;
        now = next;
    }
}

double cost_picoseconds(double us) {
    return rint(us * 1e6) / 1e6;
}

double timeline_run(Timeline *t, int event, double ready) {
    Stream s = t->p->events[event].stream;
    double start = t->start[event] = cost_picoseconds(fmax(ready, t->free[s]));
    t->free[s] = t->end[event] = start + cost_picoseconds(end_of(t, event, start) - start);
    if (stream_communicates(s) || (s != COMPUTE && t->share[event] > 0))
        t->ran[s].span[t->ran[s].n++] = (Span){start, t->end[event], t->share[event], event};
    return t->end[event];
}
