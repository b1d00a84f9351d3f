/* Whole messages over a stream socket, and the options by which a machine that has vanished is noticed.
 * Relies on: socket.h, TCP.
 * Relied on by: nodes.c, far.c. */
#include "socket.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

bool sc_socket_send(int fd, const void *bytes, size_t n) {
    for (const char *p = bytes; n;) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

bool sc_socket_receive(int fd, void *bytes, size_t n) {
    for (char *p = bytes; n;) {
        ssize_t k = recv(fd, p, n, 0);
        if (k < 0 && errno == EINTR) continue;
        if (k == 0) errno = 0;
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

/* Within eight seconds. These options are wishes: without them a loss is noticed later. */
void sc_socket_probe(int fd) {
    int yes = 1, idle = 3, interval = 1, count = 5;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

void sc_socket_limit(int fd, int option, int seconds) {
    struct timeval limit = {seconds, 0};
    setsockopt(fd, SOL_SOCKET, option, &limit, sizeof limit);
}
