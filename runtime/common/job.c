/* A job of several processes on one machine. Rank 0's process listens on a socket whose name the launcher's variables
 * give, hands the others one file to map, and keeps the connections: the kernel closes them when a process ends,
 * however it ends. The socket has no place in the file system, so that nothing is left over.
 * Relies on: job.h; memfd, abstract Unix sockets. Relied on by: launch.c, memory.c, runtime/host (sc_join). */
#include "job.h"
#include "rank.h"
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

enum { PATIENCE = 60 /* seconds until all must have come, unless SHARDC_PATIENCE says */, FAREWELL = 5, MOST_IDS = 4 };

typedef struct {
    _Atomic int told;
    _Atomic int left[]; /* by rank: 1 + its exit code; 0: at work */
} page;

static struct {
    const char *launcher;
    int rank, world;
    pid_t process;               /* whose sockets these are; a forked rank has another */
    int memory, listener, *peer; /* peer: by rank for rank 0's process, else only [0] */
    bool open;
    struct sockaddr_un address;
    socklen_t length;
    page *page;
} job = {.memory = -1, .listener = -1};

const char *sc_job_launcher(void) {
    return job.launcher;
}
int sc_job_rank(void) {
    return job.rank;
}
int sc_job_memory(void) {
    return job.memory;
}
bool sc_first(void) {
    return job.rank == 0;
}

/* ── what launchers say in the environment ───────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    const char *name, *rank, *world, *locals, *remedy; /* locals: ranks on this machine */
    const char *ids[MOST_IDS];                         /* what tells this job from others */
} launcher;

/* The innermost one first: mpirun within srun, torchrun within either. */
static const launcher launchers[] = {
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_WORLD_SIZE",
     "--nproc-per-node",
     {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
    {"mpirun",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     "-n",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", NULL, "--ntasks", {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "-n", {"PMI_ID", "PMI_PORT"}},
};

static int number(const char *name, int otherwise) {
    const char *text = name ? getenv(name) : NULL;
    char *end;
    if (!text || !*text) return otherwise;
    long x = strtol(text, &end, 10);
    return *end || x < 0 || x > 1 << 20 ? otherwise : (int)x;
}

static int patience(void) {
    return number("SHARDC_PATIENCE", PATIENCE);
}

static const launcher *find_launcher(void) {
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const launcher *l = &launchers[i];
        if (number(l->world, 0) > 1 && number(l->rank, -1) >= 0 && number(l->rank, -1) < number(l->world, 0)) return l;
    }
    return NULL;
}

static bool one_machine(const launcher *l, int world) {
    return l->locals ? number(l->locals, world) == world : number("SLURM_STEP_NUM_NODES", 1) == 1;
}

/* One of them speaks; the others leave a moment later, because launchers end all when one has left. */
static bool refuse(int rank, const char *text) {
    if (rank)
        nanosleep(&(struct timespec){0, 300000000}, NULL);
    else
        fprintf(stderr, "shardc: %s\n", text);
    return false;
}

static bool fits(const sc_build *b, const launcher *l) {
    int rank = number(l->rank, 0), world = number(l->world, 0);
    char text[512];
    if (world != b->world) {
        snprintf(text, sizeof text,
                 "%s was built for %d rank%s, and %s has started %d (%s=%s): start it with %s %d, or build it with "
                 "`shardc build %s --world %d`",
                 b->name, b->world, b->world == 1 ? "" : "s", l->name, world, l->world, getenv(l->world), l->remedy,
                 b->world, b->model_file, world);
        return refuse(rank, text);
    }
    if (one_machine(l, world)) return true;
    snprintf(text, sizeof text,
             "%s has started %d ranks on several machines, and this version trains on one: start all %d on one machine",
             l->name, world, world);
    return refuse(rank, text);
}

/* ── meeting ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static uint64_t mix(uint64_t h, const char *s) { /* FNV-1a */
    for (; s && *s; s++) h = (h ^ (unsigned char)*s) * 1099511628211u;
    return (h ^ 0xff) * 1099511628211u;
}

static void name_socket(const launcher *l) {
    uint64_t h = mix(14695981039346656037u, l->name);
    char parent[32] = "";
    for (int i = 0; i < MOST_IDS && l->ids[i]; i++) h = mix(h, getenv(l->ids[i]));
    if (!strncmp(l->rank, "PMI", 3)) snprintf(parent, sizeof parent, "%ld", (long)getppid());
    h = mix(h, parent);
    job.address.sun_family = AF_UNIX;
    int n = snprintf(job.address.sun_path + 1, sizeof job.address.sun_path - 1, "shardc-%u-%016llx", getuid(),
                     (unsigned long long)h);
    job.length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

typedef struct { /* what a process says of itself */
    int rank, world, pid;
    uint64_t program;
} hello;

static uint64_t program_hash(const sc_build *b) {
    char sizes[64];
    snprintf(sizes, sizeof sizes, "%llu %llu", (unsigned long long)b->arena_bytes, (unsigned long long)b->host_bytes);
    return mix(mix(b->plan_hash, b->target), sizes);
}

typedef struct { /* and hears: with a file to map when code is -1, else the end */
    int code;
} answer;

static void send_answer(int to, int code, int file) {
    answer a = {code};
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
    return a.code;
}

static void map_page(void) {
    job.page = sc_map_shared(sizeof *job.page + sizeof(_Atomic int) * (size_t)job.world);
}

static bool complain(const char *what, int error) {
    fprintf(stderr, "shardc: rank %d of %s cannot %s: %s%s\n", job.rank, job.launcher, what, strerror(error),
            error == EFBIG ? "; lift the limit on file sizes (ulimit -f unlimited)" : "");
    return false;
}

/* Those that wait for us, or are about to, hear the code that we end with before they were let go. */
static void end_early(int code, void *arg) {
    if (getpid() != job.process || job.open) return;
    int told = 1;
    for (int k = 1; k < job.world; k++)
        if (job.peer[k] >= 0) send_answer(job.peer[k], code, -1), told++;
    for (double start = sc_now_s(); told < job.world && sc_now_s() - start < FAREWELL;) {
        struct pollfd ready = {job.listener, POLLIN, 0};
        int fd = poll(&ready, 1, 100) > 0 ? accept4(job.listener, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (fd < 0) continue;
        hear(fd, &(hello){0}); /* closing with words unheard would take ours back */
        send_answer(fd, code, -1);
        close(fd);
        told++;
    }
}

static bool be_first(void) {
    job.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (job.listener < 0 || bind(job.listener, (struct sockaddr *)&job.address, job.length) ||
        listen(job.listener, 4096)) {
        if (errno != EADDRINUSE) return complain("meet the other ranks", errno);
        fprintf(stderr,
                "shardc: another run that %s has started under the same name is beginning on this machine; give this "
                "one another port (MASTER_PORT), or wait\n",
                job.launcher);
        return false;
    }
    on_exit(end_early, NULL);
    job.memory = memfd_create("shardc", MFD_CLOEXEC);
    if (job.memory < 0 || ftruncate(job.memory, (off_t)1 << 46)) return complain("make shared memory", errno);
    map_page();
    return true;
}

static int connect_first(void) {
    for (double start = sc_now_s(); sc_now_s() - start < patience();) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd >= 0 && !connect(fd, (struct sockaddr *)&job.address, job.length)) return fd;
        if (fd >= 0) close(fd);
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
    return -1;
}

/* -1: go on; else the code to end with. */
static int be_guest(const sc_build *b) {
    hello h = {job.rank, job.world, getpid(), program_hash(b)};
    int code = -2, fd = job.peer[0] = connect_first();
    if (fd < 0) {
        fprintf(stderr,
                "shardc: rank %d waited %d s for rank 0's process on this machine: does %s start all %d ranks here?\n",
                job.rank, patience(), job.launcher, job.world);
        return 1;
    }
    if (send(fd, &h, sizeof h, MSG_NOSIGNAL) == sizeof h) code = take_answer(fd, &job.memory);
    if (code == -2 && job.rank == 1) /* one of those that wait tells it */
        fprintf(stderr, "shardc: rank 0's process ended without a word before training began\n");
    if (code != -1) return code == -2 ? 3 : code;
    map_page();
    job.open = true;
    return -1;
}

#ifdef SC_RANK_THREADS
enum { PROCESSES = 0 }; /* all ranks live in one process */
#else
enum { PROCESSES = 1 };
#endif

int sc_join(const sc_build *b) {
    const launcher *l = PROCESSES ? find_launcher() : NULL;
    if (!l) return -1;
    if (!fits(b, l)) return 1;
    job.launcher = l->name;
    job.rank = number(l->rank, 0);
    job.world = b->world;
    job.process = getpid();
    job.peer = sc_calloc((size_t)job.world, sizeof *job.peer);
    for (int k = 0; k < job.world; k++) job.peer[k] = -1;
    name_socket(l);
    if (job.rank) return be_guest(b);
    return be_first() ? -1 : 1;
}

/* ── rank 0's process lets the others in ─────────────────────────────────────────────────────────────────────────────
 */
static bool turn_away(int fd, const char *why) {
    fprintf(stderr, "shardc: %s\n", why);
    send_answer(fd, 1, -1);
    close(fd);
    return false;
}

static bool seat(int fd, const sc_build *b) {
    hello h = {0};
    struct ucred who = {0};
    socklen_t n = sizeof who;
    char why[256];
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) || who.uid != getuid()) {
        close(fd);
        return true; /* a stranger */
    }
    if (!hear(fd, &h)) return turn_away(fd, "the process of a rank ended while the ranks met");
    if (h.world != job.world || h.program != program_hash(b)) {
        snprintf(why, sizeof why,
                 "rank %d (process %d) runs another program than rank 0: start the same binary everywhere", h.rank,
                 h.pid);
        return turn_away(fd, why);
    }
    if (h.rank < 1 || h.rank >= job.world || job.peer[h.rank] >= 0) {
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

static int missing(void) {
    for (int k = 1; k < job.world; k++)
        if (job.peer[k] < 0) return k;
    return 0;
}

static bool let_in(const sc_build *b) {
    for (double start = sc_now_s(); missing() && sc_now_s() - start < patience();) {
        struct pollfd ready = {job.listener, POLLIN, 0};
        if (poll(&ready, 1, 100) > 0) {
            int fd = accept4(job.listener, NULL, NULL, SOCK_CLOEXEC);
            if (fd >= 0 && !seat(fd, b)) return false;
        }
        for (int k = 1; k < job.world; k++)
            if (job.peer[k] >= 0 && gone(job.peer[k])) {
                fprintf(stderr, "shardc: rank %d's process ended before training began\n", k);
                return false;
            }
    }
    if (!missing()) return true;
    fprintf(stderr, "shardc: rank %d has not come within %d s: does %s start all %d ranks on this machine?\n",
            missing(), patience(), job.launcher, job.world);
    return false;
}

bool sc_job_open(const sc_build *b) {
    if (!job.launcher || job.rank) return true;
    if (!let_in(b)) return false;
    for (int k = 1; k < job.world; k++) send_answer(job.peer[k], -1, job.memory);
    close(job.listener);
    job.open = true;
    return true;
}

/* ── while training ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
void sc_job_fork(void) {
    for (int k = 0; k < job.world; k++)
        if (job.launcher && job.peer[k] >= 0) close(job.peer[k]);
}

bool sc_job_speaks(void) {
    return !job.launcher || !atomic_exchange(&job.page->told, 1);
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
    if (!job.launcher) return 0;
    for (int k = 0; k < job.world; k++)
        if (k != job.rank && (job.rank == 0 || k == 0)) look_for_vanished(k, job.peer[k]);
    for (int k = 0; k < job.world; k++) {
        int code = atomic_load(&job.page->left[k]) - 1;
        if (k != job.rank && code > worst) worst = code;
    }
    return worst;
}

/* Rank 0's process stays until all have ended: what they share on disk is finished then. */
int sc_job_end(int code) {
    if (!job.launcher || !job.open) return code;
    atomic_store(&job.page->left[job.rank], 1 + code);
    for (double start = sc_now_s(); job.rank == 0 && sc_now_s() - start < 10;) {
        int left = 0, worst = sc_job_worst();
        for (int k = 0; k < job.world; k++) left += atomic_load(&job.page->left[k]) != 0;
        if (worst > code) code = worst;
        if (left == job.world) break;
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
    return code;
}
