/* Whole messages over a stream socket, and the options by which a machine that has vanished is noticed.
 * Relies on: TCP.
 * Relied on by: nodes.c, far.c. */
#ifndef SC_COMMON_SOCKET_H
#define SC_COMMON_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

bool sc_socket_send(int fd, const void *bytes, size_t n); /* all of them; false: errno says why not */
bool sc_socket_receive(int fd, void *bytes, size_t n);    /* all of them; false: errno says why not, 0: closed */
void sc_socket_probe(int fd);                             /* the other machine is asked whether it still lives */
void sc_socket_limit(int fd, int option, int seconds);    /* SO_SNDTIMEO, SO_RCVTIMEO; 0: none */

#endif
