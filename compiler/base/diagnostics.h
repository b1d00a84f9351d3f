/* Temporary files that a failing compilation removes.
 * Relies on: base.h.
 * Relied on by: base/file.c, sandbox/limits.c. */
#ifndef SHARDC_DIAGNOSTICS_H
#define SHARDC_DIAGNOSTICS_H

#include "base.h"

void temp_register(const char *path); /* the pointer itself is kept, and is the key to forget it by */
void temp_forget(const char *path);
void temp_remove(void); /* a signal handler may call it */
void temp_leave(void);  /* in a forked process: the files are its parent's, which removes them itself */

#endif
