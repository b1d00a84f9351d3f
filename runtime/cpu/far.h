/* Bytes of the arenas of ranks on other machines.
 * Relies on: common/rank.h.
 * Relied on by: collective.c, rank.c, world.c. */
#ifndef SC_CPU_FAR_H
#define SC_CPU_FAR_H

#include "../common/rank.h"

enum { SC_FAR_BYTES = 4 << 20 }; /* of what a stream's sum takes from other machines at a time */

bool sc_far_open(sc_world *w); /* a machine's host serves the arenas of its ranks from now on; says why not */
void sc_far_new(sc_rank *r);   /* a rank's tables; what it takes later is known now */
void sc_far_free(sc_rank *r);
bool sc_is_far(const sc_rank *r, int peer); /* on another machine; known once the peer has come to a meeting */
/* A stream (SC_STREAMS: the host's) asks peers for bytes, then takes them in the same order, without a meeting between.
 * Who cannot be reached ends the rank, with a message. */
void sc_far_ask(sc_rank *r, int stream, int peer, int host, uint64_t at, size_t bytes);
void sc_far_take(sc_rank *r, int stream, int peer, void *dst, size_t bytes);
uint8_t *sc_far_room(sc_rank *r, int stream); /* SC_FAR_BYTES of the stream's own */

#endif
