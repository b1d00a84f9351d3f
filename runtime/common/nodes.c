/* What ranks share is mirrored between machines: a thread of one process of each looks for changes of its own ranks
 * (how many meetings they have come to, sums, exit codes) a thousand times a second and whenever one of them comes to a
 * meeting, and writes down what it hears of the others'. Rank 0's machine is in the middle. Bytes of training are
 * NCCL's or far.c's; this is for starts, meetings, sums and ends. Relies on: nodes.h, rank.h, socket.h, eventfd.
 * Relied on by: job.c. */
#include "nodes.h"
#include "socket.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef enum { HELLO, RELEASE, STATE, END } kind;
enum { FAREWELL = 5 /* seconds */ };

typedef struct { /* of one rank; everything but `met` is written down before it */
    uint32_t met[SC_STREAMS + 1];
    int32_t stage, program, at_barrier, stopped, done, failed, told, left, spoken;
    int32_t doing[SC_STREAMS], event[SC_STREAMS], waits_for[SC_STREAMS];
    sc_signals signals;
    int64_t step, stands, passed;
    uint64_t ticks, seen[SC_STREAMS];
    int64_t clock[SC_STREAMS];
    double host_value;
    uint8_t piece[SC_PIECE];
} state;

typedef struct {
    uint32_t kind;
    int32_t rank, node, code;
    state s;
} message;

static struct {
    int listener, *fd, n; /* fd: by machine on rank 0's, else only [0] */
    int refused;
    int *node_of; /* by rank: where it was heard from; -1: not yet */
    sc_world *world;
    state *sent; /* by rank */
    pthread_t thread, ear;
    bool runs;
    int rung; /* an eventfd: a rank here has come to a meeting */
    _Atomic bool ends;
} nodes = {.listener = -1};

static bool first(void) {
    return sc_job_place()->rank == 0;
}

static void make_lists(void) {
    const sc_place *p = sc_job_place();
    nodes.n = first() ? p->nodes : 1;
    nodes.fd = sc_calloc((size_t)nodes.n, sizeof *nodes.fd);
    nodes.node_of = sc_calloc((size_t)p->world, sizeof *nodes.node_of);
    nodes.sent = sc_calloc((size_t)p->world, sizeof *nodes.sent);
    for (int i = 0; i < nodes.n; i++) nodes.fd[i] = -1;
    for (int k = 0; k < p->world; k++) nodes.node_of[k] = -1;
}

/* ── messages ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* So that a machine that has vanished is noticed within seconds. */
static void set_options(int fd) {
    int patience_ms = 8000;
    sc_socket_probe(fd);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience_ms, sizeof patience_ms);
    sc_socket_limit(fd, SO_SNDTIMEO, 8);
}

static bool send_all(int fd, const message *m) {
    return sc_socket_send(fd, m, sizeof *m);
}
static bool receive(int fd, message *m) {
    return sc_socket_receive(fd, m, sizeof *m);
}

/* ── meeting ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
bool sc_nodes_listen(void) {
    make_lists();
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    int yes = 1, no = 0;
    char what[64];
    at.sin6_port = htons((uint16_t)sc_job_place()->port);
    nodes.listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    setsockopt(nodes.listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    setsockopt(nodes.listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    snprintf(what, sizeof what, "listen on port %d", sc_job_place()->port);
    if (nodes.listener < 0 || bind(nodes.listener, (struct sockaddr *)&at, sizeof at) || listen(nodes.listener, 4096))
        return sc_job_complain(what, strerror(errno));
    return true;
}

static bool turn_away(int fd, const char *why) {
    fprintf(stderr, "shardc: %s\n", why);
    nodes.refused += send_all(fd, &(message){.kind = RELEASE, .code = 1});
    close(fd);
    return false;
}

/* What a machine's process says when it comes: who it is, and what it was started with. */
static bool hear_hello(int fd, message *m, sc_job_terms *terms) {
    return receive(fd, m) && m->kind == HELLO && sc_socket_receive(fd, terms, sizeof *terms);
}

static bool seat(int fd) {
    message m;
    sc_job_terms terms;
    char why[1280];
    set_options(fd);
    sc_socket_limit(fd, SO_RCVTIMEO, 5);
    if (!hear_hello(fd, &m, &terms) || m.rank < 0 || m.rank >= sc_job_place()->world) {
        close(fd);
        return true; /* a stranger */
    }
    sc_socket_limit(fd, SO_RCVTIMEO, 0);
    if (!sc_job_agrees(&terms, m.rank, why, sizeof why)) return turn_away(fd, why);
    int at = m.node;
    for (int i = 1; i < nodes.n && (at < 1 || at >= nodes.n || nodes.fd[at] >= 0); i++) at = i; /* numbers not said */
    if (at < 1 || at >= nodes.n || nodes.fd[at] >= 0) return turn_away(fd, "more machines have come than there are");
    nodes.fd[at] = fd;
    nodes.node_of[m.rank] = at;
    return true;
}

static int come(void) {
    int n = 1;
    for (int i = 1; i < nodes.n; i++) n += nodes.fd[i] >= 0;
    return n;
}

bool sc_nodes_meet(void) {
    char why[128];
    for (double start = sc_now_s(); come() < nodes.n && sc_now_s() - start < sc_job_patience();) {
        struct pollfd ready = {nodes.listener, POLLIN, 0};
        int fd = poll(&ready, 1, 100) > 0 ? accept4(nodes.listener, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (fd >= 0 && !seat(fd)) return false;
    }
    snprintf(why, sizeof why, "%d of %d machines have come within %d s", come(), nodes.n, sc_job_patience());
    return come() == nodes.n || sc_job_complain("meet the ranks of other machines", why);
}

/* A code to end with also goes to those machines that are about to come. */
void sc_nodes_release(int code) {
    message m = {.kind = RELEASE, .code = code};
    for (int i = 1; i < nodes.n; i++)
        if (nodes.fd[i] >= 0) send_all(nodes.fd[i], &m);
    for (double start = sc_now_s(); code >= 0 && come() + nodes.refused < nodes.n && sc_now_s() - start < FAREWELL;) {
        struct pollfd ready = {nodes.listener, POLLIN, 0};
        int fd = poll(&ready, 1, 100) > 0 ? accept4(nodes.listener, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (fd < 0) continue;
        sc_socket_limit(fd, SO_RCVTIMEO, 1);
        if (hear_hello(fd, &(message){0}, &(sc_job_terms){0})) /* see sc_nodes_leave */
            nodes.refused += send_all(fd, &m);
        close(fd);
    }
    close(nodes.listener);
}

static int connect_first(void) {
    const sc_place *p = sc_job_place();
    struct addrinfo want = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    char port[16];
    snprintf(port, sizeof port, "%d", p->port);
    for (double start = sc_now_s(); sc_now_s() - start < sc_job_patience(); freeaddrinfo(found)) {
        found = NULL;
        if (!getaddrinfo(p->host, port, &want, &found))
            for (struct addrinfo *a = found; a; a = a->ai_next) {
                int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
                if (fd >= 0 && !connect(fd, a->ai_addr, a->ai_addrlen)) {
                    freeaddrinfo(found);
                    return fd;
                }
                if (fd >= 0) close(fd);
            }
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
    return -1;
}

int sc_nodes_wait(void) {
    const sc_place *p = sc_job_place();
    message m = {.kind = HELLO, .rank = p->rank, .node = p->node};
    char why[400];
    make_lists();
    int fd = nodes.fd[0] = connect_first();
    snprintf(why, sizeof why,
             "no answer from %s:%d within %d s; MASTER_ADDR names rank 0's machine, SHARDC_PORT the port", p->host,
             p->port, sc_job_patience());
    if (fd < 0) return sc_job_complain("reach rank 0", why) ? 0 : 1;
    set_options(fd);
    if (!send_all(fd, &m) || !sc_socket_send(fd, sc_job_said(), sizeof(sc_job_terms)) || !receive(fd, &m) ||
        m.kind != RELEASE)
        return sc_job_complain("go on", "rank 0's process ended without a word before training began") ? 0 : 3;
    return m.code;
}

/* Closing a connection with unread bytes would discard what we have sent, so rank 0 closes it when it has read that. */
void sc_nodes_leave(int code) {
    int fd = nodes.fd ? nodes.fd[0] : -1;
    if (fd < 0 || !send_all(fd, &(message){.kind = END, .code = code})) return;
    shutdown(fd, SHUT_WR);
    sc_socket_limit(fd, SO_RCVTIMEO, 1);
    for (double start = sc_now_s(); sc_now_s() - start < FAREWELL && receive(fd, &(message){0});) continue;
}

/* ── the mirror ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* In the order in which they are written down. */
#define MIRRORED(DO)                                                                                                   \
    DO(stage) DO(program) DO(at_barrier) DO(stopped) DO(step) DO(ticks) DO(done) DO(failed) DO(stands) DO(passed)

static void look(int rank, state *s) {
    const sc_shared_rank *k = &nodes.world->ranks[rank];
    sc_job_page *page = sc_job_shared();
    memset(s, 0, sizeof *s);
    for (int i = 0; i <= SC_STREAMS; i++) s->met[i] = atomic_load(&k->met[i].value);
    s->host_value = k->host_value;
    sc_world_piece(nodes.world, rank, s->piece, false);
    for (int i = 0; i < SC_STREAMS; i++) {
        s->doing[i] = atomic_load(&k->status[i].doing);
        s->event[i] = atomic_load(&k->status[i].event);
        s->waits_for[i] = atomic_load(&k->status[i].waits_for);
        s->seen[i] = atomic_load(&k->seen[i]);
        s->clock[i] = atomic_load(&k->clock[i]);
    }
#define LOOK(field) s->field = atomic_load(&k->field);
    MIRRORED(LOOK)
    s->signals = sc_signals_seen();
    s->told = atomic_load(&nodes.world->ranks[0].told);
    s->spoken = atomic_load(&page->told);
    s->left = atomic_load(&page->left[rank]);
}

static void write_down(int rank, state *s) {
    sc_shared_rank *k = &nodes.world->ranks[rank];
    sc_job_page *page = sc_job_shared();
    k->host_value = s->host_value;
    sc_world_piece(nodes.world, rank, s->piece, true);
    for (int i = 0; i < SC_STREAMS; i++) {
        atomic_store(&k->status[i].doing, s->doing[i]);
        atomic_store(&k->status[i].event, s->event[i]);
        atomic_store(&k->status[i].waits_for, s->waits_for[i]);
        atomic_store(&k->seen[i], s->seen[i]);
        atomic_store(&k->clock[i], s->clock[i]);
    }
    sc_signals_hear(&s->signals); /* before a rank is seen to stand or to have passed */
#define WRITE(field) atomic_store(&k->field, s->field);
    MIRRORED(WRITE)
    if (s->told) atomic_store(&nodes.world->ranks[0].told, 1);
    if (s->spoken) atomic_store(&page->told, 1);
    if (s->left) atomic_store(&page->left[rank], s->left);
    for (int i = 0; i <= SC_STREAMS; i++) sc_flag_add(&k->met[i], s->met[i] - atomic_load(&k->met[i].value));
}

static bool lost_rank(int rank, int node) {
    if (sc_job_is_here(rank) || atomic_load(&sc_job_shared()->left[rank])) return false;
    return !first() || nodes.node_of[rank] == node;
}

/* Its ranks have ended with this code, and have told why. */
static void end(int i, int code) {
    for (int k = 0; k < nodes.world->world; k++)
        if (lost_rank(k, i)) atomic_store(&sc_job_shared()->left[k], 1 + code);
}

/* Its ranks count as killed. */
static void lose(int i) {
    int n = 0, example = 0;
    for (int k = 0; k < nodes.world->world; k++)
        if (lost_rank(k, i)) {
            n++;
            example = k;
        }
    close(nodes.fd[i]);
    nodes.fd[i] = -1;
    if (!n) return;
    char more[32] = " is";
    if (n > 1) snprintf(more, sizeof more, " and %d more are", n - 1);
    if (sc_job_speaks())
        fprintf(stderr,
                "shardc: the connection to %s has ended (machine, network, or its process): rank %d%s lost; the other "
                "ranks are stopped\n",
                first() ? "a machine" : "rank 0's machine", example, more);
    end(i, 3);
}

static void pass_on(const message *m, int from) {
    for (int i = 0; i < nodes.n; i++)
        if (i != from && nodes.fd[i] >= 0 && !send_all(nodes.fd[i], m)) lose(i);
}

static void hear(int i) {
    message m;
    bool heard = receive(nodes.fd[i], &m);
    if (heard && m.kind == END) end(i, m.code);
    if (!heard || m.kind != STATE || m.rank < 0 || m.rank >= nodes.world->world || sc_job_is_here(m.rank)) {
        lose(i);
        return;
    }
    nodes.node_of[m.rank] = i;
    write_down(m.rank, &m.s);
    if (first()) pass_on(&m, i);
}

/* Waits a millisecond at most, and hears whatever has come by then, so that a machine that says much is not heard late.
 */
static void hear_all(struct pollfd *ready) {
    for (int turn = 0; turn < 64; turn++) {
        uint64_t rung;
        for (int i = 0; i < nodes.n; i++) ready[i] = (struct pollfd){nodes.fd[i], POLLIN, 0};
        ready[nodes.n] = (struct pollfd){nodes.rung, POLLIN, 0};
        if (poll(ready, (nfds_t)nodes.n + 1, !turn) < 1) return;
        bool news = false;
        for (int i = 0; i < nodes.n; i++)
            if (ready[i].revents && nodes.fd[i] >= 0) hear(i), news = true;
        if (ready[nodes.n].revents && read(nodes.rung, &rung, sizeof rung) > 0) return;
        if (!news) return;
    }
}

static void *mirror(void *arg) {
    for (bool last = false; !last;) {
        last = atomic_load(&nodes.ends);
        for (int k = 0; k < nodes.world->world; k++) { /* what has changed of the ranks here */
            message m = {.kind = STATE, .rank = k};
            if (!sc_job_is_here(k)) continue;
            look(k, &m.s);
            if (!memcmp(&m.s, &nodes.sent[k], sizeof m.s)) continue;
            memcpy(&nodes.sent[k], &m.s, sizeof m.s);
            pass_on(&m, -1);
        }
        hear_all(arg);
    }
    free(arg);
    return NULL;
}

/* Turns the bell's rings, on which a thread cannot wait beside sockets, into something to read. */
static void *listen_to_bell(void *arg) {
    for (uint32_t rings = 0; !atomic_load(&nodes.ends);) {
        sc_flag_wait(nodes.world->bell, rings + 1);
        rings = atomic_load(&nodes.world->bell->value);
        if (write(nodes.rung, &(uint64_t){1}, sizeof(uint64_t)) < 0) continue; /* full: it is read soon */
    }
    return NULL;
}

bool sc_nodes_mirror(sc_world *w) {
    nodes.world = w;
    struct pollfd *ready = sc_calloc((size_t)nodes.n + 1, sizeof *ready);
    nodes.rung = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (nodes.rung < 0) return sc_job_complain("open an eventfd", strerror(errno));
    int e = pthread_create(&nodes.ear, NULL, listen_to_bell, NULL);
    if (e) return sc_job_complain("start a thread", strerror(e));
    e = pthread_create(&nodes.thread, NULL, mirror, ready);
    nodes.runs = !e;
    return !e || sc_job_complain("start a thread", strerror(e));
}

bool sc_nodes_address(struct sockaddr_storage *at) {
    socklen_t n = sizeof *at;
    for (int i = 0; i < nodes.n; i++)
        if (nodes.fd[i] >= 0 && !getsockname(nodes.fd[i], (struct sockaddr *)at, &n)) return true;
    return false;
}

void sc_nodes_fork(void) {
    for (int i = 0; i < nodes.n; i++)
        if (nodes.fd[i] >= 0) close(nodes.fd[i]);
}

void sc_nodes_close(void) {
    if (!nodes.runs) return;
    atomic_store(&nodes.ends, true);
    sc_flag_add(nodes.world->bell, 1);
    pthread_join(nodes.ear, NULL);
    pthread_join(nodes.thread, NULL);
    close(nodes.rung);
}
