/* Several machines: one process of each (the one that hosts its ranks) is connected with rank 0's by TCP.
 * Relies on: job.h.
 * Relied on by: job.c, far.c. */
#ifndef SC_COMMON_NODES_H
#define SC_COMMON_NODES_H

#include "job.h"
#include <sys/socket.h>

bool sc_nodes_listen(void);        /* rank 0's process; says why not */
bool sc_nodes_meet(void);          /* rank 0's: until a process of every machine has come; says which has not */
void sc_nodes_release(int code);   /* rank 0's: they go on (-1), or end with this code */
void sc_nodes_leave(int code);     /* another machine's: it ends before it has begun */
int sc_nodes_wait(void);           /* another machine's: -1 when released, else the code to end with */
bool sc_nodes_mirror(sc_world *w); /* from now on every machine sees the ranks of the others; says why not */
bool sc_nodes_address(struct sockaddr_storage *at); /* by which other machines reach this one; false: not known yet */
void sc_nodes_fork(void);                           /* in a child: the sockets are the parent's */
void sc_nodes_close(void);                          /* when what the ranks here have come to has been sent */

#endif
