/* What the parts of verify share: the happens-before relation of a program, and how findings are noted.
 * Relies on: verify.h.
 * Relied on by: verify.c, happens.c, bytes.c, sharing.c, succession.c, mesh.c, times.c and nothing else. */
#ifndef SHARDC_VERIFY_INTERNAL_H
#define SHARDC_VERIFY_INTERNAL_H

#include "verify.h"

enum { MAX_PROGRAMS = 16, MAX_FINDINGS = 32 }; /* findings noted for one program; more say nothing new */

/* Happens-before as vector clocks: row e, column s counts the events of stream s that are finished when e starts. */
typedef struct {
    const PlanProgram *program;
    int (*seen)[N_STREAMS];
    int *position; /* 1-based, within the event's stream */
} HappensBefore;

typedef struct {
    Arena *arena;
    const Plan *plan;
    Findings *out;
    int noted;            /* findings of the program under test */
    bool *unsound;        /* per storage: lies outside its arena, not looked at further */
    unsigned *entry_mask; /* see succession.c */
} Verifier;

/* Notes a finding; program -1: of the plan as a whole. */
void verify_note(Verifier *v, int program, const char *rule, int first, int second, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

HappensBefore verify_happens_before(Verifier *v, int program); /* checks the waits on the way */
static inline bool verify_before(const HappensBefore *o, int a, int b) {
    return o->seen[b][o->program->events[a].stream] >= o->position[a];
}

/* A storage's bytes, in ascending runs that were accessed alike. */
typedef struct {
    int64_t lo, hi;
    unsigned writers;      /* of persistent bytes: the programs that write them, a bit each */
    int writer;            /* the rest is bytes.c's own: event that wrote last, or a reason why there is none */
    int reader[N_STREAMS]; /* last reader since, event + 1; 0: none */
} Piece;
typedef VEC(Piece) Pieces;
void verify_cut_pieces(Arena *a, Pieces *l, const Access *x, int *first,
                       int *end); /* [*first, *end) make up the access */

/* Which programs write which bytes of persistent storages, and which find them initialised. */
void verify_successions(Verifier *v);
Pieces *verify_persistent_writes(Verifier *v); /* one list per storage */
bool verify_initialised_at_entry(const Verifier *v, int program, unsigned writers);
const char *verify_predecessor_without(const Verifier *v, int program, unsigned writers); /* for the message */

void verify_bytes(Verifier *v, int program, const HappensBefore *o, const Pieces *written);
void verify_sharing(Verifier *v, int program, const HappensBefore *o);
void verify_persistent_layout(Verifier *v);
void verify_mesh(Verifier *v);

bool verify_access_inside(const Verifier *v, int program, const Access *x); /* within a sound storage of this program */

#endif
