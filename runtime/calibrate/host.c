/* What the memory of the machine gives when every GPU copies at once, up, down and both ways, and when every rank's
 * threads update parameters there: bounds of offloaded state that one GPU alone does not show.
 * Relies on: calibrate.h, members.h, common/pool.h, the CPU's update rule (sc_host_adam).
 * Relied on by: main.c. */
#include "calibrate.h"
#include "common/pool.h"
#include "members.h"
#include "system.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

sc_kernel sc_host_adam;

enum { MOST_THREADS = 16, UP = 1, DOWN = 2 }; /* threads: FOR_MEMORY of host/args.c */

typedef struct {
    sc_gpu g;
    sc_common *c;
    int world;
    size_t mapped, half; /* bytes in host memory, the same for every GPU; of one direction, at most a half of them */
    char *host;          /* pinned, in huge pages as the runtime's host arena */
    cudaStream_t down;
    sc_pool pool;
    union {
        sc_adam_args adam;
        sc_tensor t[SC_SLOTS_adam];
    } update;
    sc_task task;
} member;

static int map_host(member *m) {
    m->host = mmap(NULL, m->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m->host == MAP_FAILED) {
        fprintf(stderr, "sc_calibrate: cannot map %zu bytes of host memory for each of %d GPUs; free some memory\n",
                m->mapped, m->world);
        return 1;
    }
    madvise(m->host, m->mapped, MADV_HUGEPAGE); /* a wish */
    memset(m->host, 0, m->mapped);
    SC_CUDA(cudaHostRegister(m->host, m->mapped, cudaHostRegisterPortable));
    return 0;
}

/* Bytes a second of all GPUs together, from the first that begins to the last that ends. */
static double copies(member *m, int ways, int rounds) {
    sc_members_meet(m->c, m->world);
    double start = sc_now_s();
    for (int i = 0; i < rounds; i++) {
        if (ways & UP) SC_CUDA(cudaMemcpyAsync(m->g.pool, m->host, m->half, cudaMemcpyHostToDevice, m->g.stream));
        if (ways & DOWN)
            SC_CUDA(cudaMemcpyAsync(m->host + m->half, m->g.pool + m->half, m->half, cudaMemcpyDeviceToHost, m->down));
    }
    SC_CUDA(cudaStreamSynchronize(m->g.stream));
    SC_CUDA(cudaStreamSynchronize(m->down));
    sc_members_meet(m->c, m->world);
    double moved = (double)m->half * rounds * m->world * (ways == (UP | DOWN) ? 2 : 1);
    return moved / (sc_now_s() - start);
}

static void update_part(void *arg, int part) {
    member *m = arg;
    sc_task t = m->task;
    t.part = part;
    t.parts = m->pool.parts;
    sc_host_adam(&t);
}

/* An update of 32 M elements: fp32 master, gradient and both moments, a bf16 shard, 30 bytes each. */
enum { ELEMENTS = 32 << 20, BYTES_EACH = 30 };

/* Bytes a second of one rank's update while all ranks update. */
static double updates(member *m, int rounds) {
    sc_members_meet(m->c, m->world);
    double start = sc_now_s();
    for (int i = 0; i < rounds; i++) sc_pool_run(&m->pool, update_part, m);
    sc_members_meet(m->c, m->world);
    return (double)ELEMENTS * BYTES_EACH * rounds / (sc_now_s() - start);
}

static sc_tensor flat(int dtype, int64_t n) {
    return (sc_tensor){.there = 1, .dtype = (uint8_t)dtype, .dims = 1, .shape = {n}, .stride = {1}};
}

static bool place_update(member *m, const sc_record *record) {
    static const int64_t table[] = {0, (int64_t)4 * ELEMENTS, 0};
    const size_t room = (size_t)160 << 20;
    sc_tensor fp32 = flat(FP32, ELEMENTS);
    size_t at = 0;
    m->update.adam = (sc_adam_args){.grad = fp32,
                                    .master = fp32,
                                    .coefficient = flat(FP32, 1),
                                    .m = fp32,
                                    .v = fp32,
                                    .step = flat(INT64, 1),
                                    .wire = flat(BF16, ELEMENTS),
                                    .table = table,
                                    .ntable = sizeof table / sizeof *table,
                                    .decoupled = 1,
                                    .slice = ELEMENTS,
                                    .axis = 0};
    for (int k = 0; k < SC_SLOTS_adam; k++) {
        if (!m->update.t[k].there) continue;
        if (at + room > m->mapped) return false;
        m->update.t[k].p = m->host + at;
        at += room;
    }
    *(int64_t *)m->update.adam.step.p = record->step;
    static const sc_coord first = {0, 4};
    m->task = (sc_task){
        .args = (const sc_args *)&m->update, .slots = SC_SLOTS_adam, .record = record, .world = 1, .coord = &first};
    return true;
}

static int run_member(const sc_round *r, sc_common *c, int rank) {
    size_t half = (size_t)(r->w->trial ? 64 : 1024) << 20;
    member m = {.c = c, .world = r->world, .mapped = 2 * half, .half = half};
    sc_record record = sc_record_of_a_step();
    long cores = sysconf(_SC_NPROCESSORS_ONLN) / r->world;
    int rounds = r->w->trial ? 1 : 8, e;
    if (map_host(&m)) return 1;
    sc_gpu_open(&m.g, rank, 0.1);
    if (m.g.pool_bytes < 2 * m.half) m.half = m.g.pool_bytes / 2;
    SC_CUDA(cudaStreamCreateWithFlags(&m.down, cudaStreamNonBlocking));
    copies(&m, UP | DOWN, 1);
    double up = copies(&m, UP, rounds), down = copies(&m, DOWN, rounds), both = copies(&m, UP | DOWN, rounds);
    if (!rank) fprintf(r->out, "host copies|%d|%.4g|%.4g|%.4g\n", r->world, up, down, both);
    e = sc_pool_start(&m.pool, cores > MOST_THREADS ? MOST_THREADS : cores < 1 ? 1 : (int)cores, NULL);
    if (e) {
        fprintf(stderr, "sc_calibrate: cannot start a thread: %s; see ulimit -u\n", strerror(e));
        return 1; /* the others would wait for this one: they are ended */
    }
    if (place_update(&m, &record)) {
        updates(&m, 1);
        double each = updates(&m, rounds);
        if (!rank) fprintf(r->out, "host update|%d|%.4g\n", r->world, each);
    }
    sc_pool_stop(&m.pool);
    return 0; /* the process ends, and with it what it took */
}

int sc_host_stage(const sc_wish *w, FILE *out) {
    int bad = 0;
    for (int world = 1; world <= w->world && !bad; world *= 2)
        bad = sc_members_run(&(sc_round){w, out, world}, run_member);
    return bad;
}
