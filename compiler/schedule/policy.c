/* policy: the classes of events, and for each how many may be in flight, when it may be issued, and what goes first.
 * Relies on: order.h; the units' own policies (prefetch).
 * Relied on by: order.c, in_flight.c, streamed_updates.c. */
#include "order.h"

/* Priorities: what others wait for goes before what waits: fetches feed gathers, gathers feed kernels, reduces feed
 * updates; kernels go last, so that nothing that could run beside them is issued behind them.
 *
 * In flight. Gathers: the unit in use and as many as its policy's `prefetch` says (FSDP2's meaning of the word); what
 * they gather from is fetched a unit earlier, so that the copy has ended when the gather may begin: whoever raises the
 * limit of gathers raises that of FETCH_TO_GATHER as much (one row for both phases). The pass that shards asks the
 * policy's prefetch alone (lower/shard/gather.c). Gradients: one is reduced while the next is made; the edges are tight
 * ones (order.h). Tiny buffers count like others. Activations: one is copied while another is read or written, up to
 * twice the bytes of the largest.
 *
 * Margin. Collectives and copies take longer than predicted when they share links with others. Kernels and memory that
 * rely on their end add half of the time as a reserve. With a quarter steps are up to 1.7 % longer, since kernels queue
 * behind a reduce that is late; with as much again arenas are up to 4.7 % larger (bench/compare_plans.py). */
const Policy policies[N_EVENT_CLASSES] = {
    /* class               goes, in flight,   issued at the earliest, at the latest, surely ended after */
    [PINNED] = {0, NO_LIMIT, 0, AT_ONCE, ITS_TURN, 0},
    [FETCH_TO_GATHER] = {1, UNITS, 2, AT_ONCE, ITS_TURN, 0},
    [FETCH_PARAMETERS] = {1, UNITS, 1, AT_ONCE, ITS_TURN, 0},
    [FETCH_ACTIVATION] = {1, BYTES, 2, AT_ONCE, ITS_TURN, 0},
    [FETCH_OTHER] = {1, NO_LIMIT, 0, AT_ONCE, ITS_TURN, 0},
    [STREAMED_FETCH] = {1, NO_LIMIT, 0, JUST_IN_TIME, ITS_TURN, 0},
    [GATHER_FORWARD] = {2, UNITS, 1, AT_ONCE, ITS_TURN, 0},
    [GATHER_BACKWARD] = {2, UNITS, 1, AT_ONCE, ITS_TURN, 0},
    [REDUCE_GRADIENT] = {3, BUFFERS, 2, AT_ONCE, ITS_TURN, 1.5},
    [REDUCE_SCALAR] = {3, BUFFERS, 2, REDUCE_UNDER_WAY, ITS_TURN, 1.5},
    [STREAMED_UPDATE] = {4, NO_LIMIT, 0, AT_ONCE, ITS_TURN, 0},
    [STREAMED_BACK] = {5, NO_LIMIT, 0, AT_ONCE, ITS_TURN, 0},
    [OFFLOAD_COPY] = {5, BYTES, 2, AT_ONCE, ITS_TURN, 1.5},
    [HOST_KERNEL] = {6, NO_LIMIT, 0, AT_ONCE, ITS_TURN, 0},
    [TAKE_GRADIENT] = {7, NO_LIMIT, 0, GRADIENT_HERE, ITS_TURN, 0},
    [UPDATE_KERNEL] = {7, NO_LIMIT, 0, GRADIENT_HERE, AT_END, 0},
};

static EventClass fetch_class(const Order *o, int e) {
    const Event *ev = order_event(o, e);
    int s = order_written(o, e);
    if (ev->unit >= 0 && ev->phase != OPTIMIZER && ev->phase != INIT) {
        for (int i = o->succ.at[e]; i < o->succ.at[e + 1]; i++)
            if (order_stream(o, o->succ.event[i]) == GATHER) return FETCH_TO_GATHER;
        return FETCH_PARAMETERS;
    }
    return s >= 0 && o->plan->storages[s].program >= 0 && o->use[s] >= 0 ? FETCH_ACTIVATION : FETCH_OTHER;
}

/* Kernels that take what a reduce made, and the optimizer's, must not hold up those of the backward beside them. */
static EventClass kernel_class(const Order *o, int e) {
    if (order_phase(o, e) == OPTIMIZER) return UPDATE_KERNEL;
    for (int i = o->pred.at[e]; i < o->pred.at[e + 1]; i++) {
        int p = o->pred.event[i];
        if (order_stream(o, p) == REDUCE || (order_stream(o, p) == COMPUTE && o->class[p] != PINNED))
            return TAKE_GRADIENT;
    }
    return PINNED;
}

void order_classify(Order *o) {
    int last = -1;
    for (int e = 0; e < o->p->n; e++) {
        Phase phase = order_phase(o, e);
        switch (order_stream(o, e)) {
        case GATHER: o->class[e] = phase == FORWARD ? GATHER_FORWARD : GATHER_BACKWARD; break;
        case FETCH: o->class[e] = fetch_class(o, e); break;
        case REDUCE: o->class[e] = phase == OPTIMIZER ? REDUCE_SCALAR : REDUCE_GRADIENT; break;
        case OFFLOAD: o->class[e] = OFFLOAD_COPY; break;
        case UPDATE: o->class[e] = STREAMED_UPDATE; break;
        case HOST: o->class[e] = HOST_KERNEL; break;
        default: o->class[e] = kernel_class(o, e);
        }
        if (o->class[e] == PINNED) o->pinned[o->npinned++] = last = e;
        if (o->class[e] == REDUCE_GRADIENT) o->nreduces++;
        o->home[e] = last;
    }
    streamed_find(o);
}
