/* A job of several processes on one machine. The host's process (local rank 0) listens on a socket whose name the
 * launcher's variables give, hands the others one file to map, and keeps the connections: the kernel closes them when a
 * process ends, however it ends. The socket has no place in the file system, so that nothing is left over.
 * Relies on: job.h, nodes.h; memfd, abstract Unix sockets.
 * Relied on by: launch.c, memory.c, runtime/host (sc_join), the targets (sc_processors). */
#include "job.h"
#include "nodes.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE = 60 /* seconds until all must have come, unless SHARDC_PATIENCE says */, NOTICE = 3, FAREWELL = 5 };

static struct {
    sc_place at;
    pid_t process;        /* whose sockets these are; a forked rank has another */
    int memory, listener; /* listener: the host's */
    int *peer;            /* by rank: the host's connections to the others here */
    int host, to_host;    /* a guest's: the host's rank, the connection to it */
    int refused;          /* of those that came: they have their answer */
    bool open, given_up;  /* all are here; they have not come in time */
    struct sockaddr_un address;
    socklen_t length;
    sc_job_page *page;
    sc_job_terms terms;
} job = {.at = {.world = 1, .locals = 1, .nodes = 1}, .memory = -1, .listener = -1, .to_host = -1};

bool sc_job_alone(void) {
    return !job.at.launcher;
}
const sc_place *sc_job_place(void) {
    return &job.at;
}
int sc_job_local(int rank) {
    return sc_job_alone() ? rank : job.at.local;
}
int sc_job_locals(int world) {
    return sc_job_alone() ? world : job.at.locals;
}
bool sc_job_hosts(void) {
    return job.at.local == 0;
}
int sc_job_host_rank(void) {
    return sc_job_hosts() ? job.at.rank : job.host;
}
int sc_job_memory(void) {
    return job.memory;
}
sc_job_page *sc_job_shared(void) {
    return job.page;
}
bool sc_job_is_here(int rank) {
    return rank == job.at.rank || job.peer[rank] >= 0;
}
int sc_job_patience(void) {
    return sc_place_number("SHARDC_PATIENCE", PATIENCE);
}
bool sc_first(void) {
    return job.at.rank == 0;
}
bool sc_one_machine(void) {
    return job.at.nodes == 1;
}

int sc_processors(const sc_build *b) {
    cpu_set_t bound;
    int all = (int)sysconf(_SC_NPROCESSORS_ONLN), mine = all, ranks = sc_job_locals(b->world);
    if (!sched_getaffinity(0, sizeof bound, &bound)) mine = CPU_COUNT(&bound); /* fails beyond 1024 */
    int share = (sc_job_alone() ? mine : all) / ranks, most = share < mine ? share : mine;
    return most < 1 ? 1 : most;
}

bool sc_job_complain(const char *what, const char *why) {
    fprintf(stderr, "shardc: rank %d of %s cannot %s: %s\n", job.at.rank, job.at.launcher, what, why);
    return false;
}

/* ── does the place fit the program? ─────────────────────────────────────────────────────────────────────────────────
 */
/* One of them speaks; the others leave a moment later, because launchers end all when one has left. A process that has
 * no place, because what says it is impossible, speaks for itself: it counts as rank 0 here. */
__attribute__((format(printf, 1, 2))) static bool refuse(const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (job.at.rank)
        nanosleep(&(struct timespec){0, 300000000}, NULL);
    else
        fprintf(stderr, "shardc: %s\n", text);
    return false;
}

static bool fits(const sc_build *b) {
    const sc_place *p = &job.at;
    const char *patience = getenv("SHARDC_PATIENCE");
    if (*p->wrong)
        return refuse("%s; correct the launcher's variables or unset them to start all ranks from here", p->wrong);
    if (patience && *patience && sc_place_number("SHARDC_PATIENCE", -1) < 0)
        return refuse("SHARDC_PATIENCE=%.40s is no number of seconds to wait for other ranks; correct it, or unset it "
                      "for %d",
                      patience, PATIENCE);
    if (sc_job_alone()) return true;
    if (p->world != b->world)
        return refuse(
            "%s was built for %d rank%s, and %s has started %d (%s=%d): start it with %s %d, or build it with "
            "`shardc build %s --world %d`",
            b->name, b->world, b->world == 1 ? "" : "s", p->launcher, p->world, p->world_variable, p->world, p->option,
            b->world, b->model_file, p->world);
    if (!p->nodes || p->local >= p->locals)
        return refuse("%s has not started equally many of the %d ranks on every machine: do so", p->launcher, p->world);
    if (p->nodes > 1 && !*p->host)
        return refuse(
            "%s has started %d ranks on %d machines, and does not say where rank 0 is: set MASTER_ADDR to its "
            "name or address, for all ranks",
            p->launcher, p->world, p->nodes);
    return true;
}

/* ── messages between processes of one machine ───────────────────────────────────────────────────────────────────────
 */
/* What all processes must have alike. The whole binary is part of it: a plan does not tell one that was built with
 * another learning rate, or with another runtime. FNV-1a. */
static void say_terms(const sc_build *b, const char *terms) {
    const uint64_t prime = 1099511628211u, plan[] = {b->plan_hash, b->arena_bytes, (uint64_t)b->world};
    uint64_t basis = 14695981039346656037u, text = basis, h = basis;
    struct stat st;
    for (const char *c = terms; *c; c++) text = (text ^ (unsigned char)*c) * prime;
    for (size_t i = 0; i < sizeof plan / sizeof *plan; i++) h = (h ^ plan[i]) * prime;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    size_t n = fd >= 0 && !fstat(fd, &st) ? (size_t)st.st_size / 8 : 0;
    const uint64_t *words = n ? mmap(NULL, n * 8, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    for (size_t i = 0; words != MAP_FAILED && i < n; i++) h = (h ^ words[i]) * prime;
    if (words != MAP_FAILED) munmap((void *)words, n * 8);
    if (fd >= 0) close(fd);
    job.terms.hash = text;
    job.terms.program = h;
    snprintf(job.terms.text, sizeof job.terms.text, "%s", terms);
}

const sc_job_terms *sc_job_said(void) {
    return &job.terms;
}

/* The line of `text` for the option of `line`, its length in *n; NULL: none. */
static const char *line_of(const char *text, const char *line, size_t *n) {
    size_t name = strcspn(line, " \n");
    for (; *text; text += *n + (text[*n] == '\n')) {
        *n = strcspn(text, "\n");
        if (strcspn(text, " \n") == name && !strncmp(text, line, name)) return text;
    }
    return NULL;
}

/* "with --lr 0.1"; of a long value what comes before and after the first character that the other one has not. */
static void put_term(char *out, size_t size, const char *line, size_t n, const char *other, size_t most) {
    size_t name = strcspn(line, " \n"), same = 0;
    while (other && same < n && same < most && line[same] == other[same]) same++;
    size_t skip = same > name + 60 ? same - 40 : name;
    snprintf(out, size, "with %.*s%s%.*s%s", (int)name, line, skip > name ? " ..." : "",
             (int)(n - skip < 200 ? n - skip : 200), line + skip, n - skip > 200 ? "..." : "");
}

/* The first line of `a` that `b` has otherwise or not: what each was started with. */
static bool differ(const char *a, const char *b, char *with_a, char *with_b, size_t size) {
    size_t n = 0, m = 0;
    for (; *a; a += n + (a[n] == '\n')) {
        n = strcspn(a, "\n");
        const char *other = line_of(b, a, &m);
        if (other && n == m && !strncmp(a, other, n)) continue;
        put_term(with_a, size, a, n, other, m);
        if (other)
            put_term(with_b, size, other, m, a, n);
        else
            snprintf(with_b, size, "without %.*s", (int)strcspn(a, " \n"), a);
        return true;
    }
    return false;
}

bool sc_job_agrees(const sc_job_terms *theirs, int rank, char *why, size_t n) {
    const sc_job_terms *ours = &job.terms;
    char here[512], there[512];
    if (theirs->program != ours->program) {
        snprintf(why, n, "rank %d runs another program than rank %d: start the same binary everywhere", rank,
                 job.at.rank);
        return false;
    }
    if (theirs->hash == ours->hash) return true;
    if (!differ(ours->text, theirs->text, here, there, sizeof here) &&
        !differ(theirs->text, ours->text, there, here, sizeof here)) {
        snprintf(here, sizeof here, "with others");
        snprintf(there, sizeof there, "with more than %zu bytes of arguments", sizeof ours->text);
    }
    snprintf(why, n, "rank %d was started %s, and rank %d %s: start all ranks with the same arguments", rank, there,
             job.at.rank, here);
    return false;
}

typedef struct { /* what a process says of itself */
    int rank, world, pid;
    sc_job_terms terms;
} hello;

typedef struct { /* and hears: with a file to map when code is -1, else the end */
    int code, host;
} answer;

static void send_answer(int to, int code, int file) {
    answer a = {code, job.at.rank};
    struct iovec part = {&a, sizeof a};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (file >= 0) {
        m.msg_control = &control;
        m.msg_controllen = sizeof control;
        control.head = (struct cmsghdr){CMSG_LEN(sizeof file), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), &file, sizeof file);
    }
    if (sendmsg(to, &m, MSG_NOSIGNAL) < 0) return; /* it has ended: its connection says so */
}

static bool hear(int from, hello *h) {
    struct pollfd ready = {from, POLLIN, 0};
    return poll(&ready, 1, 1000 * FAREWELL) > 0 && recv(from, h, sizeof *h, 0) == (ssize_t)sizeof *h;
}

/* The code of an answer, and the file with it; -2: the other end is gone. */
static int take_answer(int from, int *file) {
    answer a;
    struct iovec part = {&a, sizeof a};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n;
    do n = recvmsg(from, &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof a) return -2;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_type == SCM_RIGHTS) memcpy(file, CMSG_DATA(c), sizeof *file);
    job.host = a.host;
    return a.code;
}

/* ── joining ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void map_page(void) {
    job.page = sc_map_shared(sizeof *job.page + sizeof(_Atomic int) * (size_t)job.at.world);
}

/* This process ends before training: those that wait for it, or are about to, get its code. Nobody is waited for once
 * the patience has run out. */
static void end_early(int code, void *arg) {
    int told = 1 + job.refused, at_work = 0;
    if (getpid() != job.process) return;
    if (job.open) { /* it ends by itself before its rank has ended: the others end with it */
        atomic_compare_exchange_strong(&job.page->left[job.at.rank], &at_work, 1 + code);
        return;
    }
    if (job.at.nodes > 1) (sc_first() ? sc_nodes_release : sc_nodes_leave)(code);
    for (int k = 0; k < job.at.world; k++)
        if (job.peer[k] >= 0) send_answer(job.peer[k], code, -1), told++;
    for (double start = sc_now_s(); told < job.at.locals && !job.given_up && sc_now_s() - start < FAREWELL;) {
        struct pollfd ready = {job.listener, POLLIN, 0};
        int fd = poll(&ready, 1, 100) > 0 ? accept4(job.listener, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (fd < 0) continue;
        hear(fd, &(hello){0}); /* closing a connection with unread bytes would discard the answer */
        send_answer(fd, code, -1);
        close(fd);
        told++;
    }
}

/* -1: go on; else the code to end with. */
static int be_host(void) {
    job.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (job.listener < 0 || bind(job.listener, (struct sockaddr *)&job.address, job.length) ||
        listen(job.listener, 4096)) {
        sc_job_complain("meet the other ranks",
                        errno == EADDRINUSE ? "another run that was started under the same name is beginning on this "
                                              "machine; give this one another port (MASTER_PORT), or wait"
                                            : strerror(errno));
        return 1;
    }
    on_exit(end_early, NULL);
    job.memory = memfd_create("shardc", MFD_CLOEXEC);
    if (job.memory < 0 || ftruncate(job.memory, (off_t)1 << 46)) {
        sc_job_complain("make shared memory", errno == EFBIG
                                                  ? "File too large; lift the limit on file sizes (ulimit -f unlimited)"
                                                  : strerror(errno));
        return 1;
    }
    map_page();
    if (job.at.nodes == 1) return -1;
    return sc_first() ? sc_nodes_listen() ? -1 : 1 : sc_nodes_wait();
}

static int be_guest(void) {
    hello h = {job.at.rank, job.at.world, getpid(), job.terms};
    int code = -2, fd = -1;
    for (double start = sc_now_s(); fd < 0 && sc_now_s() - start < sc_job_patience();) {
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd >= 0 && !connect(fd, (struct sockaddr *)&job.address, job.length)) break;
        if (fd >= 0) close(fd);
        fd = -1;
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
    job.to_host = fd;
    if (fd < 0) {
        fprintf(
            stderr,
            "shardc: rank %d waited %d s for %s's process on this machine: does %s start all %d ranks here? If none "
            "does, unset %s and %s to start all ranks from here\n",
            job.at.rank, sc_job_patience(), job.at.nodes == 1 ? "rank 0" : "the first rank", job.at.launcher,
            job.at.locals, job.at.rank_variable, job.at.world_variable);
        return 1;
    }
    if (send(fd, &h, sizeof h, MSG_NOSIGNAL) == sizeof h) code = take_answer(fd, &job.memory);
    if (code == -2 && job.at.local == 1) /* one of those that wait tells it */
        fprintf(stderr, "shardc: rank %d's process ended without a word before training began\n",
                job.at.rank - job.at.local);
    if (code != -1) return code == -2 ? 3 : code;
    if (job.memory < 0) {
        sc_job_complain("take the shared memory", "too many open files; raise the limit (ulimit -n)");
        return 1;
    }
    map_page();
    job.open = true;
    on_exit(end_early, NULL);
    return -1;
}

#ifdef SC_RANK_THREADS
enum { PROCESSES = 0 }; /* all ranks live in one process */
#else
enum { PROCESSES = 1 };
#endif

int sc_join(const sc_build *b, const char *terms) {
    sc_place at = PROCESSES ? sc_place_find() : job.at;
    job.at = at;
    if (!fits(b)) return 1;
    if (sc_job_alone()) return -1;
    job.process = getpid();
    say_terms(b, terms);
    job.peer = sc_calloc((size_t)at.world, sizeof *job.peer);
    for (int k = 0; k < at.world; k++) job.peer[k] = -1;
    job.address.sun_family = AF_UNIX;
    int n = snprintf(job.address.sun_path + 1, sizeof job.address.sun_path - 1, "shardc-%u-%016llx-%d", getuid(),
                     (unsigned long long)at.name, at.node);
    job.length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    return sc_job_hosts() ? be_host() : be_guest();
}

/* ── the host lets the others in ─────────────────────────────────────────────────────────────────────────────────────
 */
static bool turn_away(int fd, const char *why) {
    fprintf(stderr, "shardc: %s\n", why);
    send_answer(fd, 1, -1);
    close(fd);
    job.refused++;
    return false;
}

static bool seat(int fd) {
    hello h = {0};
    struct ucred who = {0};
    socklen_t n = sizeof who;
    char why[1280];
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) || who.uid != getuid()) {
        close(fd);
        return true; /* a stranger */
    }
    if (!hear(fd, &h)) return turn_away(fd, "the process of a rank ended while the ranks met");
    if (!sc_job_agrees(&h.terms, h.rank, why, sizeof why)) return turn_away(fd, why);
    if (h.rank < 0 || h.rank >= job.at.world || sc_job_is_here(h.rank)) {
        snprintf(why, sizeof why, "two processes say that they are rank %d (one is %d)", h.rank, h.pid);
        return turn_away(fd, why);
    }
    job.peer[h.rank] = fd;
    return true;
}

static bool gone(int fd) {
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static int come(void) {
    int n = 1;
    for (int k = 0; k < job.at.world; k++) n += job.peer[k] >= 0;
    return n;
}

/* Variables that were set by hand, or that a shell has kept, make this process wait for ranks that nobody starts. */
static void tell_wait(void) {
    const sc_place *p = &job.at;
    int missing = p->locals - come(), first = 0;
    char who[64];
    while (first < p->world - 1 && sc_job_is_here(first)) first++;
    if (p->nodes > 1) /* which ranks of all are to come here is not known */
        snprintf(who, sizeof who, "%d more of the %d ranks on this machine", missing, p->locals);
    else if (missing > 1)
        snprintf(who, sizeof who, "rank %d and %d more", first, missing - 1);
    else
        snprintf(who, sizeof who, "rank %d", first);
    fprintf(stderr, "shardc: waiting for %s (%s=%d and %s=%d are set: this process is one rank of %d)\n", who,
            p->rank_variable, p->rank, p->world_variable, p->world, p->world);
}

static bool let_in(void) {
    bool told = false;
    for (double start = sc_now_s(); come() < job.at.locals && sc_now_s() - start < sc_job_patience();) {
        if (!told && sc_now_s() - start > NOTICE) tell_wait(), told = true;
        struct pollfd ready = {job.listener, POLLIN, 0};
        if (poll(&ready, 1, 100) > 0) {
            int fd = accept4(job.listener, NULL, NULL, SOCK_CLOEXEC);
            if (fd >= 0 && !seat(fd)) return false;
        }
        for (int k = 0; k < job.at.world; k++)
            if (job.peer[k] >= 0 && gone(job.peer[k])) {
                fprintf(stderr, "shardc: rank %d's process ended before training began\n", k);
                return false;
            }
    }
    if (come() == job.at.locals) return true;
    job.given_up = true;
    fprintf(stderr,
            "shardc: %d of %d ranks have come within %d s: does %s start all of them on this machine? If none does, "
            "unset %s and %s to start all ranks from here\n",
            come(), job.at.locals, sc_job_patience(), job.at.launcher, job.at.rank_variable, job.at.world_variable);
    return false;
}

bool sc_job_open(sc_world *w) {
    if (sc_job_alone() || !sc_job_hosts()) return true;
    if (!let_in()) return false;
    if (job.at.nodes > 1 && sc_first()) {
        if (!sc_nodes_meet()) return false;
        sc_nodes_release(-1);
    }
    if (job.at.nodes > 1 && !sc_nodes_mirror(w)) return false;
    for (int k = 0; k < job.at.world; k++)
        if (job.peer[k] >= 0) send_answer(job.peer[k], -1, job.memory);
    close(job.listener);
    job.open = true;
    return true;
}

/* ── while training ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
void sc_job_fork(void) {
    if (sc_job_alone()) return;
    if (job.to_host >= 0) close(job.to_host);
    for (int k = 0; k < job.at.world; k++)
        if (job.peer[k] >= 0) close(job.peer[k]);
    sc_nodes_fork();
}

bool sc_job_speaks(void) {
    return sc_job_alone() || !atomic_exchange(&job.page->told, 1);
}

/* A connection that closes while its process has not left: it was killed. */
static void look_for_vanished(int rank, int fd) {
    if (fd < 0 || atomic_load(&job.page->left[rank]) || !gone(fd) || atomic_load(&job.page->left[rank])) return;
    if (sc_job_speaks())
        fprintf(stderr, "shardc: the process that runs rank %d has vanished (killed?); the other ranks are stopped\n",
                rank);
    atomic_store(&job.page->left[rank], 1 + 3);
}

int sc_job_worst(void) {
    int worst = 0;
    if (sc_job_alone()) return 0;
    look_for_vanished(job.host, job.to_host);
    for (int k = 0; k < job.at.world; k++) look_for_vanished(k, job.peer[k]);
    for (int k = 0; k < job.at.world; k++) {
        int code = atomic_load(&job.page->left[k]) - 1;
        if (k != job.at.rank && code > worst) worst = code;
    }
    return worst;
}

int sc_job_blame(void) {
    for (double start = sc_now_s(); !sc_job_worst() && sc_now_s() - start < 3;)
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    return sc_job_worst() ? sc_job_worst() : 3;
}

/* Rank 0's process stays until all ranks have ended: then the files that they share are complete. The host of another
 * machine stays until the ranks there have ended and all machines know their codes. */
int sc_job_end(int code) {
    if (sc_job_alone() || !job.open) return code;
    atomic_store(&job.page->left[job.at.rank], 1 + code);
    for (double start = sc_now_s(); sc_job_hosts() && sc_now_s() - start < 10;) {
        int ended = 0, worst = sc_job_worst();
        for (int k = 0; k < job.at.world; k++)
            ended += atomic_load(&job.page->left[k]) || (!sc_first() && !sc_job_is_here(k));
        if (worst > code) code = worst;
        if (ended == job.at.world || (code && sc_now_s() - start > 2)) break;
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
    sc_nodes_close();
    return code;
}
