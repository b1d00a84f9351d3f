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

enum { SC_POISON = 0xff /* NaN in every float, -1 in every integer */ };

void sc_lives_new(const sc_build *b, int program, sc_lives *l);
void sc_lives_free(sc_lives *l);

#endif
