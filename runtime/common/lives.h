/* Tables for looking at every event: which storages it touches, how often each is touched, and the gaps between them.
 * Relies on: rank.h.
 * Relied on by: the targets' debug.c. */
#ifndef SC_COMMON_LIVES_H
#define SC_COMMON_LIVES_H

#include "rank.h"

typedef struct {
    int host;
    uint64_t at, size;
} sc_gap;

typedef struct {          /* what a program's events touch */
    int *touched, *start; /* transient storages of event e: touched[start[e]] .. touched[start[e + 1]] */
    int *accesses;        /* by storage: how many events touch it */
    int64_t *used;        /* by storage: bytes up to the last one touched */
    sc_gap *gaps;         /* bytes in no storage that is alive in this program */
    int ngaps;
} sc_lives;

enum { SC_POISON = 0xff /* NaN in every float, -1 in every integer */, SC_GUARD = 0xa5 };

void sc_lives_new(const sc_build *b, int program, sc_lives *l);
void sc_lives_free(sc_lives *l);

/* `n` bytes from byte `from` of a gap, which held SC_GUARD when r->current began: stops where a program wrote there. */
void sc_check_gap(sc_rank *r, const sc_gap *g, uint64_t from, const uint8_t *bytes, uint64_t n);

#endif
