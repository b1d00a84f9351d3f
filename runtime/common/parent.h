/* The launcher that started this process, and whether it is still there.
 * Relies on: nothing.
 * Relied on by: place.c, launch.c. */
#ifndef SC_COMMON_PARENT_H
#define SC_COMMON_PARENT_H

#include <stdbool.h>
#include <stddef.h>

/* certain: variables that only a launcher sets say that there is one. */
void sc_parent_find(bool certain);
int sc_parent_process(void); /* the launcher's number, also where a shell stands between; else the parent's */
/* who: "torchrun (process 12)". false also where nobody is watched. */
bool sc_parent_gone(char *who, size_t n);

#endif
