/* Happens-before of one program, from nothing but stream order and waits, as vector clocks.
 * Relies on: internal.h. Clocks: Fidge 1988, Mattern 1989, with streams in the place of processes.
 * Relied on by: every rule of verify that asks for an order. */
#include "internal.h"

static bool wait_is_sound(Verifier *v, int program, int e, int w) {
    const PlanProgram *p = &v->plan->programs[program];
    if (w < 0 || w >= p->n) {
        verify_note(v, program, "wait", e, -1, "%s waits for event number %d of %d", p->events[e].id, w, p->n);
        return false;
    }
    if (w >= e) {
        verify_note(v, program, "wait", e, w, "%s waits for %s, which is issued %s", p->events[e].id, p->events[w].id,
                    w == e ? "with it" : "after it: the program would stop here");
        return false;
    }
    if (p->events[w].stream == p->events[e].stream) {
        verify_note(v, program, "wait", e, w, "%s waits for %s of its own stream %s", p->events[e].id, p->events[w].id,
                    stream_name(p->events[e].stream));
        return false;
    }
    return true;
}

HappensBefore verify_happens_before(Verifier *v, int program) {
    const PlanProgram *p = &v->plan->programs[program];
    HappensBefore o = {p, arena_alloc(v->arena, sizeof *o.seen * (size_t)(p->n + 1)),
                       NEW_ARRAY(v->arena, int, p->n + 1)};
    int last[N_STREAMS], count[N_STREAMS] = {0};
    for (int s = 0; s < N_STREAMS; s++) last[s] = -1;
    for (int e = 0; e < p->n; e++) {
        Stream stream = p->events[e].stream;
        if (last[stream] >= 0) {
            memcpy(o.seen[e], o.seen[last[stream]], sizeof o.seen[e]);
            o.seen[e][stream] = count[stream];
        }
        for (int i = 0; i < p->events[e].nwaits; i++) {
            int w = p->events[e].waits[i];
            if (!wait_is_sound(v, program, e, w)) continue;
            for (int s = 0; s < N_STREAMS; s++)
                if (o.seen[w][s] > o.seen[e][s]) o.seen[e][s] = o.seen[w][s];
            Stream ws = p->events[w].stream;
            if (o.position[w] > o.seen[e][ws]) o.seen[e][ws] = o.position[w];
        }
        o.position[e] = ++count[stream];
        last[stream] = e;
    }
    return o;
}
