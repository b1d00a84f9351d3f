/* The table of purposes, and what is true of streams.
 * Relies on: purpose.h.
 * Relied on by: ir.h, order and its parts, cost, the reports. */
#include "purpose.h"

const char *stream_name(Stream s) {
    static const char *const names[N_STREAMS] = SC_STREAM_NAMES;
    return names[s];
}

static bool on_bus(Stream s) {
    return s == OFFLOAD || s == FETCH;
}

bool stream_communicates(Stream s) {
    return sc_stream_meets(s) || on_bus(s);
}

bool stream_share(Stream a, Stream b) {
    return a != b && ((sc_stream_meets(a) && sc_stream_meets(b)) || (on_bus(a) && on_bus(b)));
}

const char *storage_class_name(StorageClass c) {
    static const char *const names[N_CLASSES] = {
        [C_PARAMETERS] = "parameters",   [C_OPTIMIZER] = "optimizer state",
        [C_GRADIENTS] = "gradients",     [C_BUFFERS] = "buffers",
        [C_INPUTS] = "inputs",           [C_RECORD] = "record",
        [C_UNSHARDED] = "unsharded",     [C_UNSHARDED_GRADS] = "unsharded gradients",
        [C_ACTIVATIONS] = "activations", [C_TEMPORARY] = "temporary",
        [C_WORKSPACE] = "workspace",     [C_HOST] = "host",
    };
    return names[c];
}

/* Priorities: what others wait for goes before what waits: fetches feed gathers, gathers feed kernels, reduces feed
 * updates; kernels go last, so that nothing that could run beside them is issued behind them.
 *
 * In flight. Gathers: the unit in use and as many as its policy's `prefetch` says (FSDP2's meaning of the word); what
 * they gather from is fetched a unit earlier, so that the copy has ended when the gather may begin: whoever raises the
 * limit of TO_UNSHARD raises that of TO_FETCH_SHARD as much. The pass that shards asks the policy's prefetch alone
 * (lower/shard/gather.c). Gradients: one is reduced while the next is made; the edges are tight ones (order.h). Tiny
 * buffers count like others. Activations: one is copied while another is read or written, up to twice the bytes of the
 * largest.
 *
 * Margin. Collectives and copies take longer than predicted when they share links with others. Kernels and memory that
 * rely on their end add half of the time as a reserve. With a quarter steps are up to 1.7 % longer, since kernels queue
 * behind a reduce that is late; with as much again arenas are up to 4.7 % larger (bench/compare_plans.py). */
#define PREFETCH "the unit's prefetch allows no more gathers in flight before"
#define AHEAD "no more may be fetched ahead of its use before"
#define IN_FLIGHT "no more such buffers may be in flight before"
#define GRAPH "the graph has it after"
const PurposeRow purposes[N_PURPOSES] = {
    /* name, stream, result, goes, in flight, issued at the earliest, at the latest, surely ended after, limited */
    [TO_COMPUTE] = {"compute", COMPUTE, BY_USERS, 0, NO_LIMIT, 0, IN_ORDER, ITS_TURN, 0, GRAPH},
    [TO_INITIALIZE] = {"initialize", COMPUTE, BY_USERS, 0, NO_LIMIT, 0, IN_ORDER, ITS_TURN, 0, GRAPH},
    [TO_KEEP_PIECE] = {"keep piece", COMPUTE, C_UNSHARDED, 0, NO_LIMIT, 0, IN_ORDER, ITS_TURN, 0, GRAPH},
    [TO_EXCHANGE] = {"exchange", EXCHANGE, BY_USERS, 0, NO_LIMIT, 0, IN_ORDER, ITS_TURN, 0, GRAPH},
    [TO_FETCH_SHARD] = {"fetch shard", FETCH, C_UNSHARDED, 1, BY_UNITS, 2, AT_ONCE, ITS_TURN, 0, AHEAD},
    [TO_FETCH_UNIT] = {"fetch unit", FETCH, C_UNSHARDED, 1, BY_UNITS, 1, AT_ONCE, ITS_TURN, 0, AHEAD},
    [TO_FETCH_ACTIVATION] = {"fetch activation", FETCH, C_ACTIVATIONS, 1, BY_BYTES, 2, AT_ONCE, ITS_TURN, 0, AHEAD},
    [TO_FETCH_STATE] = {"fetch state", FETCH, C_TEMPORARY, 1, BY_BYTES, 2, AT_ONCE, ITS_TURN, 0, AHEAD},
    [TO_FETCH_STREAMED] = {"fetch streamed", FETCH, C_TEMPORARY, 1, NO_LIMIT, 0, JUST_IN_TIME, ITS_TURN, 0, AHEAD},
    [TO_UNSHARD] = {"unshard", GATHER, C_UNSHARDED, 2, BY_UNITS, 1, AT_ONCE, ITS_TURN, 0, PREFETCH},
    [TO_REDUCE] = {"reduce", REDUCE, C_GRADIENTS, 3, BY_BUFFERS, 2, AT_ONCE, ITS_TURN, 1.5, IN_FLIGHT},
    [TO_EXCHANGE_UPDATE] = {"exchange update", REDUCE, C_TEMPORARY, 3, NO_LIMIT, 0, AT_ONCE, ITS_TURN, 1.5, GRAPH},
    [TO_SUM_METRICS] = {"sum metrics", REDUCE, BY_USERS, 3, BY_BUFFERS, 2, REDUCE_UNDER_WAY, ITS_TURN, 1.5, IN_FLIGHT},
    [TO_UPDATE_STREAMED] = {"update streamed", UPDATE, BY_USERS, 4, NO_LIMIT, 0, AT_ONCE, ITS_TURN, 0, GRAPH},
    [TO_WRITE_BACK_STREAMED] = {"write back streamed", OFFLOAD, C_TEMPORARY, 5, NO_LIMIT, 0, AT_ONCE, ITS_TURN, 0,
                                IN_FLIGHT},
    [TO_OFFLOAD] = {"offload", OFFLOAD, C_TEMPORARY, 5, BY_BYTES, 2, AT_ONCE, ITS_TURN, 1.5, IN_FLIGHT},
    [TO_RUN_ON_HOST] = {"run on host", HOST, BY_USERS, 6, NO_LIMIT, 0, AT_ONCE, ITS_TURN, 0, GRAPH},
    [TO_TAKE_GRADIENT] = {"take gradient", COMPUTE, BY_USERS, 7, NO_LIMIT, 0, GRADIENT_HERE, ITS_TURN, 0, GRAPH},
    [TO_UPDATE] = {"update", COMPUTE, BY_USERS, 7, NO_LIMIT, 0, GRADIENT_HERE, AT_END, 0, GRAPH},
};
