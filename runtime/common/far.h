/* Bytes of the arenas of ranks on other machines.
 * Relies on: rank.h.
 * Relied on by: the targets. */
#ifndef SC_FAR_H
#define SC_FAR_H

#include "rank.h"

enum { SC_FAR_PIECE = 136 }; /* bytes of its part of sc_world_piece */

/* Of several machines, a host serves the arenas of its ranks from now on; says why not. On one nothing is done. */
bool sc_far_open(sc_world *w);
void sc_far_piece(sc_world *w, int rank, uint8_t *bytes, bool write); /* of sc_world_piece */
/* A rank's tables, and `room` bytes for each stream: what it takes later is known now. */
void sc_far_new(sc_rank *r, size_t room);
void sc_far_free(sc_rank *r);
bool sc_is_far(const sc_rank *r, int peer); /* on another machine; known once the peer has come to a meeting */
/* A stream (SC_STREAMS: the host's) asks peers for bytes, then takes them in the same order, without a meeting between.
 * Who cannot be reached ends the rank, with a message. */
void sc_far_ask(sc_rank *r, int stream, int peer, int host, uint64_t at, size_t bytes);
void sc_far_take(sc_rank *r, int stream, int peer, void *dst, size_t bytes);
uint8_t *sc_far_room(sc_rank *r, int stream); /* of the stream's own */

#endif
