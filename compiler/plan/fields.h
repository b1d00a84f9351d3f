/* What the objects of plan.json hold, member by member: write.c writes them by this table, read.c reads them.
 * Relies on: plan.h.
 * Relied on by: write.c, read.c. */
#ifndef SHARDC_FIELDS_H
#define SHARDC_FIELDS_H

#include "plan.h"

/* An object of plan.json, or a run of its members, and the struct that holds them. */
typedef enum {
    IN_MODEL, /* Plan */
    IN_DEVICE,
    IN_MESH,
    IN_AXIS,     /* Axis */
    IN_GROUP,    /* Comm */
    IN_STEP,     /* Plan */
    IN_LIBRARY,  /* LibraryLine */
    IN_ESTIMATE, /* Estimate */
    IN_UNIT,     /* PlanUnit */
    IN_STORAGE,  /* Storage */
    IN_PROGRAM,  /* PlanProgram */
    IN_EVENT,    /* Event */
    IN_COST,     /* Event */
    N_OBJECTS
} Object;

typedef enum {
    F_TEXT,    /* const char * */
    F_INT,     /* int, 0 or more */
    F_INDEX,   /* the same; -1: the member is absent */
    F_COUNT,   /* int, 1 or more: ranks */
    F_SIZE,    /* int64_t: bytes, elements */
    F_PAIR,    /* int64_t[N_ARENAS]: bytes of each arena, as a list */
    F_REAL,    /* double, 0 or more */
    F_RATE,    /* double, above 0: so many a second; 0: not known, the member is absent */
    F_TIME,    /* double: microseconds, exact to the picosecond */
    F_AXIS,    /* const Axis *, by its name */
    F_NO_AXIS, /* likewise; NULL where the member is not there */
    F_ARENA,   /* enums, by their names */
    F_CLASS,
    F_DTYPE,
    F_PHASE,
    F_STREAM,
    F_PURPOSE,
    F_ROUTE /* the first where the member is not there */
} FieldType;

typedef struct {
    Object of;
    const char *key;
    FieldType type;
    size_t at; /* in the struct */
} Field;

const Field *fields_of(Object o);               /* the first of its members; the others follow */
extern const char *const unused_keys[N_UNUSED]; /* of Plan.unused, in an object of their own */
const char *fields_word(FieldType t, int k);    /* of an enum's value k; NULL: it has none */

#endif
