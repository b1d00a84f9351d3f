/* Reads the arenas of ranks on other machines over TCP. The host's process of each machine serves the arenas of its
 * ranks: a thread a connection, so that no reader waits for another one. A rank's stream has a connection to each
 * machine that it reads. Where a machine is reached goes around with what ranks share (nodes.c), and a random key with
 * it: only ranks of the same job are served. When bytes may be read is what meetings say, as on one machine. Relies on:
 * far.h, job.h, nodes.h, socket.h, getrandom; the target (sc_world_send). Relied on by: the targets: collectives of the
 * CPU, sc_read_peer of both. */
#include "far.h"
#include "job.h"
#include "nodes.h"
#include "socket.h"
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { STRANGER = 5, CONNECTING = 8, OTHERS_TELL = 10 /* seconds */, STACK = 256 << 10 };

typedef struct { /* where a machine is reached; family 0: not known */
    struct sockaddr_storage at;
    uint64_t key;
} door;

struct sc_doors {
    door here, of[]; /* of: by rank; those of this machine stay empty */
};

typedef struct {
    uint64_t at, bytes;
    int32_t rank, host;
} request;

static_assert(sizeof(door) <= SC_FAR_PIECE, "a rank's piece of what is shared");

/* ── serving ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static struct {
    sc_world w; /* a copy: threads serve until the process ends */
    int listener;
    in_port_t port;
} far;

static bool is_served(const request *q) {
    if (q->rank < 0 || q->rank >= far.w.world || !sc_job_is_here(q->rank) || (q->host != 0 && q->host != 1))
        return false;
    uint64_t all = q->host ? far.w.build->host_bytes : far.w.build->arena_bytes;
    return q->at <= all && q->bytes <= all - q->at;
}

static void *serve(void *arg) {
    int fd = *(int *)arg;
    request q;
    uint64_t key = 0;
    free(arg);
    sc_socket_probe(fd);
    sc_socket_limit(fd, SO_RCVTIMEO, STRANGER);
    bool ours = sc_socket_receive(fd, &key, sizeof key) && key == far.w.doors->here.key;
    sc_socket_limit(fd, SO_RCVTIMEO, 0);
    while (ours && sc_socket_receive(fd, &q, sizeof q) && is_served(&q) &&
           sc_world_send(&far.w, fd, q.rank, q.host, q.at, q.bytes))
        continue;
    close(fd); /* the reader says so */
    return NULL;
}

static void *let_in(void *arg) {
    pthread_attr_t small;
    bool set = !pthread_attr_init(&small) && !pthread_attr_setstacksize(&small, STACK) &&
               !pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    for (;;) {
        pthread_t thread;
        int fd = accept4(far.listener, NULL, NULL, SOCK_CLOEXEC), *given = fd < 0 ? NULL : malloc(sizeof *given);
        if (given) *given = fd;
        int error = fd < 0 ? errno : !set || !given ? ENOMEM : pthread_create(&thread, &small, serve, given);
        if (!error || error == EINTR || error == ECONNABORTED) continue;
        sc_say("shardc: cannot serve a rank of another machine: %s; allow more open files (ulimit -n) and processes "
               "(ulimit -u)",
               strerror(error));
        free(given);
        if (fd >= 0) close(fd);
        nanosleep(&(struct timespec){1, 0}, NULL);
    }
    return arg;
}

static bool open_failed(const char *what, int error) {
    fprintf(stderr, "shardc: cannot %s for the ranks of other machines: %s\n", what, strerror(error));
    return false;
}

bool sc_far_open(sc_world *w) {
    if (sc_one_machine()) return true;
    w->doors = sc_map_shared(sizeof *w->doors + (size_t)w->world * sizeof(door));
    if (!w->doors) return open_failed("map addresses", errno);
    if (w->guest) return true;
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    socklen_t n = sizeof at;
    int no = 0;
    pthread_t thread;
    if (getrandom(&w->doors->here.key, sizeof w->doors->here.key, 0) != sizeof w->doors->here.key)
        return open_failed("make a key", errno);
    far.listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (far.listener < 0 || setsockopt(far.listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) ||
        bind(far.listener, (struct sockaddr *)&at, sizeof at) || listen(far.listener, 4096) ||
        getsockname(far.listener, (struct sockaddr *)&at, &n))
        return open_failed("listen on a free port", errno);
    far.port = at.sin6_port;
    far.w = *w;
    int error = pthread_create(&thread, NULL, let_in, NULL);
    if (!error) error = pthread_detach(thread);
    return !error || open_failed("start a thread", error);
}

/* The address by which this machine is connected with rank 0's, at the port of this service. An IPv4 address in IPv6's
 * form becomes one, since the other machine may have no IPv6. */
static void find_here(door *d) {
    struct sockaddr_storage at;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&at;
    if (!sc_nodes_address(&at)) return;
    if (at.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
        struct sockaddr_in four = {.sin_family = AF_INET};
        memcpy(&four.sin_addr, six->sin6_addr.s6_addr + 12, sizeof four.sin_addr);
        memset(&at, 0, sizeof at);
        memcpy(&at, &four, sizeof four);
    }
    if (at.ss_family == AF_INET6)
        six->sin6_port = far.port;
    else
        ((struct sockaddr_in *)&at)->sin_port = far.port;
    d->at = at;
}

/* Only the mirror calls this, and a rank looks at another one's door after it has met that rank. */
void sc_far_piece(sc_world *w, int rank, uint8_t *bytes, bool write) {
    struct sc_doors *c = w->doors;
    if (write) {
        if (memcmp(&c->of[rank], bytes, sizeof *c->of)) memcpy(&c->of[rank], bytes, sizeof *c->of);
        return;
    }
    if (!c->here.at.ss_family) find_here(&c->here);
    memcpy(bytes, &c->here, sizeof c->here);
}

/* ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
struct sc_far {
    int *fd[SC_STREAMS + 1]; /* by the first rank of the machine; -1: not yet connected */
    uint8_t *room[SC_STREAMS];
};

void sc_far_new(sc_rank *r, size_t room) {
    if (!r->w->doors) return;
    struct sc_far *f = r->far = sc_calloc(1, sizeof *f);
    for (int s = 0; s <= SC_STREAMS; s++) {
        f->fd[s] = sc_calloc((size_t)r->world, sizeof(int));
        for (int k = 0; k < r->world; k++) f->fd[s][k] = -1;
        if (s < SC_STREAMS && room) f->room[s] = sc_calloc(1, room);
    }
}

void sc_far_free(sc_rank *r) {
    struct sc_far *f = r->far;
    for (int s = 0; f && s <= SC_STREAMS; s++) {
        for (int k = 0; k < r->world; k++)
            if (f->fd[s][k] >= 0) close(f->fd[s][k]);
        free(f->fd[s]);
        if (s < SC_STREAMS) free(f->room[s]);
    }
    free(f);
}

uint8_t *sc_far_room(sc_rank *r, int stream) {
    return r->far->room[stream];
}

bool sc_is_far(const sc_rank *r, int peer) {
    return r->w->doors && r->w->doors->of[peer].at.ss_family;
}

/* Who has lost a machine says so (nodes.c), and the ranks here are ended: this rank waits for that, and complains only
 * if nobody else does. */
static _Noreturn void give_up(sc_rank *r, int peer, const char *what) {
    const struct sockaddr_storage *at = &r->w->doors->of[peer].at;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)at;
    const struct sockaddr_in *four = (const struct sockaddr_in *)at;
    bool is_four = at->ss_family == AF_INET;
    int error = errno;
    char address[INET6_ADDRSTRLEN] = "?";
    inet_ntop(at->ss_family, is_four ? (const void *)&four->sin_addr : (const void *)&six->sin6_addr, address,
              sizeof address);
    nanosleep(&(struct timespec){OTHERS_TELL, 0}, NULL);
    sc_stop_once(
        r, 3,
        "shardc: rank %d cannot %s rank %d's machine at %s port %d: %s; let the machines reach each other at all "
        "TCP ports (firewall, network), then start again",
        r->rank, what, peer, address, ntohs(is_four ? four->sin_port : six->sin6_port),
        !error                                    ? "the connection was closed"
        : error == EINPROGRESS || error == EAGAIN ? "no answer"
                                                  : strerror(error));
}

/* The stream's connection to the peer's machine. */
static int *connection(sc_rank *r, int stream, int peer) {
    const door *of = r->w->doors->of;
    int first = 0;
    while (memcmp(&of[first], &of[peer], sizeof *of)) first++;
    return &r->far->fd[stream][first];
}

static void connect_to(sc_rank *r, int peer, int *fd) {
    const door *d = &r->w->doors->of[peer];
    socklen_t n = d->at.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    *fd = socket(d->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0) give_up(r, peer, "open a socket to");
    sc_socket_probe(*fd);
    sc_socket_limit(*fd, SO_SNDTIMEO, CONNECTING); /* of connect(), too */
    if (connect(*fd, (const struct sockaddr *)&d->at, n)) give_up(r, peer, "connect to");
    sc_socket_limit(*fd, SO_SNDTIMEO, 0);
    if (!sc_socket_send(*fd, &d->key, sizeof d->key)) give_up(r, peer, "write to");
}

void sc_far_ask(sc_rank *r, int stream, int peer, int host, uint64_t at, size_t bytes) {
    int *fd = connection(r, stream, peer);
    request q = {at, bytes, peer, host};
    if (*fd < 0) connect_to(r, peer, fd);
    if (!sc_socket_send(*fd, &q, sizeof q)) give_up(r, peer, "write to");
}

void sc_far_take(sc_rank *r, int stream, int peer, void *dst, size_t bytes) {
    if (!sc_socket_receive(*connection(r, stream, peer), dst, bytes)) give_up(r, peer, "read from");
}
