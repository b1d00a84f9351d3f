/* The step's words for collectives: what both targets take apart in the same way.
 * Relies on: rank.h; sc_issue_collective of the target (cpu/rank.c, cuda/stream.c).
 * Relied on by: emitted code. */
#include "rank.h"

void sc_all_gather(sc_rank *r, int event, sc_stream s, int comm, sc_tensor out, sc_tensor in) {
    sc_issue_collective(r, SC_GATHER, event, s, comm, 2, (sc_tensor[]){out, in});
}

void sc_reduce_scatter(sc_rank *r, int event, sc_stream s, int comm, sc_tensor out, sc_tensor in) {
    sc_issue_collective(r, SC_SCATTER, event, s, comm, 2, (sc_tensor[]){out, in});
}

void sc_all_to_all(sc_rank *r, int event, sc_stream s, int comm, sc_tensor out, sc_tensor in) {
    sc_issue_collective(r, SC_EXCHANGE, event, s, comm, 2, (sc_tensor[]){out, in});
}

void sc_sum_ranks(sc_rank *r, int event, sc_stream s, int comm, sc_tensor out, sc_tensor in) {
    sc_issue_collective(r, SC_REDUCE, event, s, comm, 2, (sc_tensor[]){out, in});
}

void sc_all_reduce(sc_rank *r, int event, sc_stream s, int comm, sc_tensor x) {
    sc_issue_collective(r, SC_REDUCE, event, s, comm, 1, &x);
}
