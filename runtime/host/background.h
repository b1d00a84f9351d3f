/* A thread that does one job at a time while its owner goes on.
 * Relies on: pthreads, runtime/common/flag.h.
 * Relied on by: checkpoint. */
#ifndef HOST_BACKGROUND_H
#define HOST_BACKGROUND_H

#include <stdbool.h>

typedef struct Background Background;
/* Starts the thread; nothing is allocated after that. NULL: errno says why it cannot be started. */
Background *background_new(void);
/* job(arg) on the thread, when the job before has ended. All that `arg` leads to is the thread's until then. */
void background_begin(Background *b, void (*job)(void *arg), void *arg);
bool background_busy(Background *b);
void background_wait(Background *b); /* until the job has ended */
void background_free(Background *b); /* waits too; NULL: nothing */

#endif
