/* The CPU runtime on a build written by hand: streams, waits, collectives on 1 to 4 ranks, and every debugging switch.
 * Relies on: runtime/cpu, Criterion, jansson (to read traces back).
 * Relied on by: make test. */
#include "../../runtime/cpu/asan.h"
#include "../../runtime/cpu/rank.h"
#include "../../runtime/sc_pointwise.h"
#include "../../runtime/schema/math.h"
#include <criterion/criterion.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* ── kernels ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Each with its struct, as those of ops.def have them. */
#define OPERATION(name, ...)                                                                                           \
    typedef struct {                                                                                                   \
        __VA_ARGS__                                                                                                    \
    } sc_##name##_args;                                                                                                \
    static sc_kernel sc_k_##name;
OPERATION(number, sc_tensor y;)
OPERATION(grow, sc_tensor y, x; double factor;)
OPERATION(take, sc_tensor y, x;)
OPERATION(to_bf16, sc_tensor y;)
enum { SC_SLOTS_number = 1, SC_SLOTS_grow = 2, SC_SLOTS_take = 2, SC_SLOTS_to_bf16 = 1 };

static void share(const sc_task *t, const sc_tensor *y, int64_t *begin, int64_t *end) {
    *begin = y->shape[0] * t->part / t->parts;
    *end = y->shape[0] * (t->part + 1) / t->parts;
}

static void sc_k_number(const sc_task *t) { /* y[i] = 100 rank + i + record.step */
    const sc_number_args *k = (const void *)t->args;
    int64_t b, e;
    share(t, &k->y, &b, &e);
    for (int64_t i = b; i < e; i++) ((float *)k->y.p)[i] = (float)(100 * t->rank + i % 64 + t->record->step);
}

static void sc_k_take(const sc_task *t) { /* y = x, wherever the two arenas */
    const sc_take_args *k = (const void *)t->args;
    int64_t b, e;
    share(t, &k->y, &b, &e);
    memcpy((float *)k->y.p + b, (const float *)k->x.p + b, (size_t)(e - b) * 4);
}

static void sc_k_to_bf16(const sc_task *t) {
    const sc_to_bf16_args *k = (const void *)t->args;
    int64_t b, e;
    share(t, &k->y, &b, &e);
    for (int64_t i = b; i < e; i++)
        ((sc_bf16_t *)k->y.p)[i] = sc_to_bf16((real)(t->rank + 1) * (real)0.37 * (real)(i % 50));
}

static int trouble; /* what sc_k_grow does on the last rank */
enum { NO_TROUBLE, MAKE_NAN, MAKE_INFINITY, WRITE_OUTSIDE, DIE, TRAP, HANG };

static void sc_k_grow(const sc_task *t) { /* y[i] = factor x[i] + rank */
    const sc_grow_args *k = (const void *)t->args;
    float *y = k->y.p;
    int64_t b, e;
    share(t, &k->y, &b, &e);
    for (int64_t i = b; i < e; i++) y[i] = (float)k->factor * ((const float *)k->x.p)[i] + (float)t->rank;
    if (t->rank != t->world - 1 || t->part) return;
    if (trouble == MAKE_NAN) y[5] = NAN;
    if (trouble == MAKE_INFINITY) y[3] = INFINITY;
    if (trouble == WRITE_OUTSIDE) *(volatile char *)((char *)y - 8) = 1;
    if (trouble == DIE) raise(SIGKILL);
    if (trouble == TRAP) raise(SIGILL);
    while (trouble == HANG) usleep(10000);
}

/* ── a build: [persistent | transients], 4096 elements a rank so that kernels are worth several parts ────────────────
 */
enum { N = 8192, RECORD = 0, RESULT = 512, ODD = RESULT + 4 * N, BASE = ODD + 4096, GUARD_BYTES = 256 };
enum { MAX_WORLD = 4, FULL_BYTES = MAX_WORLD * 4 * N };
enum {
    SHARD_AT = BASE + GUARD_BYTES,
    FULL_AT = SHARD_AT + 4 * N + GUARD_BYTES,
    SCALED_AT = FULL_AT + FULL_BYTES + GUARD_BYTES
};
enum { OUT_AT = FULL_AT, BACK_AT = FULL_AT + 4 * N, ARENA = SCALED_AT + FULL_BYTES + GUARD_BYTES, HOST_ARENA = 4 * N };
enum { S_RECORD_, S_RESULT_, S_ODD_, S_SHARD, S_FULL, S_SCALED, S_OUT, S_BACK, S_HOST, N_STORAGES };

/* out and back reuse the bytes of full, which ends at e2 */
static int world_size;
enum { e0, e1, e2, e3, e4, e5, e6, e7, N_EVENTS };

static void text_of_micro(sc_rank *r) {
    const int64_t all = (int64_t)N * world_size;
    const sc_tensor shard = T(FP32, SHARD_AT, N), out = T(FP32, OUT_AT, N), back = T(FP32, BACK_AT, N),
                    host = H(FP32, 0, N);
    const sc_tensor full = sc_contiguous(0, FP32, FULL_AT, 1, &all),
                    scaled = sc_contiguous(0, FP32, SCALED_AT, 1, &all);
    const sc_grow_args twice = {scaled, full, .factor = 2};
    RUN(number, e0, COMPUTE, .y = T(FP32, SHARD_AT, N));
    sc_wait(r, GATHER, e0);
    sc_all_gather(r, e1, GATHER, 2, full, shard);
    sc_wait(r, COMPUTE, e1);
    sc_run(r, e2, COMPUTE, sc_k_grow, &twice, sizeof twice, SC_SLOTS_grow);
    sc_wait(r, REDUCE, e2);
    sc_reduce_scatter(r, e3, REDUCE, 2, out, scaled);
    sc_wait(r, OFFLOAD, e3);
    sc_copy_bytes(r, e4, OFFLOAD, host, out);
    sc_wait(r, FETCH, e4);
    sc_copy_bytes(r, e5, FETCH, back, host);
    sc_wait(r, REDUCE, e5);
    sc_all_reduce(r, e6, REDUCE, 2, back);
    sc_wait(r, COMPUTE, e6);
    RUN(take, e7, COMPUTE, .y = T(FP32, RESULT, N), .x = T(FP32, BACK_AT, N));
}

static float expected(int world, int64_t i, int64_t step, int launch_rank) {
    (void)launch_rank;
    double sum = 0; /* over slices k: Σ_rank (2 full[k N + i] + rank) */
    for (int k = 0; k < world; k++)
        for (int rank = 0; rank < world; rank++) sum += 2.0 * (100 * k + i % 64 + (double)step) + rank;
    return (float)sum;
}

static void text_of_odd(sc_rank *r) { /* bf16, a number of elements that no world divides, over the replicate group */
    RUN(to_bf16, e0, COMPUTE, .y = T(BF16, ODD, 1001));
    sc_wait(r, REDUCE, e0);
    sc_all_reduce(r, e1, REDUCE, 1, T(BF16, ODD, 1001));
}

static void text_of_exchange(sc_rank *r) { /* bf16, 77 elements for each rank of a shard group */
    int64_t all = 77 * sc_rank_build(r)->axes[SC_SHARD].size;
    RUN(to_bf16, e0, COMPUTE, .y = T(BF16, ODD, 1001));
    sc_wait(r, REDUCE, e0);
    sc_all_to_all(r, e1, REDUCE, 0, sc_contiguous(0, BF16, RESULT, 1, &all), sc_contiguous(0, BF16, ODD, 1, &all));
}

static const sc_access touch[] = {{S_SHARD, 0, 4 * N},   {S_FULL, 0, FULL_BYTES}, {S_SCALED, 0, FULL_BYTES},
                                  {S_OUT, 0, 4 * N},     {S_HOST, 0, 4 * N},      {S_BACK, 0, 4 * N},
                                  {S_RESULT_, 0, 4 * N}, {S_ODD_, 0, 2002}};
static const int waits[] = {e0, e1, e2, e3, e4, e5, e6};
static const sc_event_info events[] = {
    {"e0", "number", "model.first", "forward", "model.lua", 10, COMPUTE, waits, 0, touch, touch + 0, 0, 1, 1},
    {"g0f", "all_gather", "model", "forward", "model.lua", 11, GATHER, waits + 0, 1, touch + 0, touch + 1, 1, 1, 1},
    {"e2", "grow", "model.second", "forward", "model.lua", 12, COMPUTE, waits + 1, 1, touch + 1, touch + 2, 1, 1, 1},
    {"r0", "reduce_scatter", "model", "backward", "model.lua", 13, REDUCE, waits + 2, 1, touch + 2, touch + 3, 1, 1, 1},
    {"o0", "offload", "model", "backward", "model.lua", 14, OFFLOAD, waits + 3, 1, touch + 3, touch + 4, 1, 1, 1},
    {"f0", "fetch", "model", "backward", "model.lua", 15, FETCH, waits + 4, 1, touch + 4, touch + 5, 1, 1, 1},
    {"a0", "all_reduce", "model", "backward", "model.lua", 16, REDUCE, waits + 5, 1, touch + 5, touch + 5, 1, 1, 1},
    {"e7", "take", "model", "backward", "model.lua", 17, COMPUTE, waits + 6, 1, touch + 5, touch + 6, 1, 1, 1},
};
static const sc_event_info odd_events[] = {
    {"e0", "to_bf16", "model", "forward", "model.lua", 20, COMPUTE, waits, 0, touch, touch + 7, 0, 1, 1},
    {"a0", "all_reduce", "model", "forward", "model.lua", 21, REDUCE, waits, 1, touch + 7, touch + 7, 1, 1, 1},
};
static const sc_event_info exchange_events[] = {
    {"e0", "to_bf16", "model", "forward", "model.lua", 30, COMPUTE, waits, 0, touch, touch + 7, 0, 1, 1},
    {"x0", "all_to_all", "model", "backward", "model.lua", 31, REDUCE, waits, 1, touch + 7, touch + 6, 1, 1, 1},
};
static const sc_program_info programs[] = {{"micro", text_of_micro, events, N_EVENTS, 0},
                                           {"odd", text_of_odd, odd_events, 2, 0},
                                           {"exchange", text_of_exchange, exchange_events, 2, 0}};

static sc_storage_info storages[N_STORAGES];
static sc_unit_info units[1];
static sc_dump_info dumps[2];
static sc_axis axes[3];
static const sc_comm_info comms[] = {{"shard", 0, 0}, {"replicate", 1, 0}, {"world", 2, 0}};

static sc_build make_build(int world, int shards) {
    world_size = world;
    int64_t all = (int64_t)N * world;
    const sc_storage_info s[N_STORAGES] = {[S_RECORD_] = {"record", RECORD, 512, 0, -1, -1, 0},
                                           [S_RESULT_] = {"result", RESULT, 4 * N, 0, -1, -1, 0},
                                           [S_ODD_] = {"odd", ODD, 4096, 0, -1, -1, 0},
                                           [S_SHARD] = {"shard", SHARD_AT, 4 * N, 0, 0, e0, e1},
                                           [S_FULL] = {"full", FULL_AT, FULL_BYTES, 0, 0, e1, e2},
                                           [S_SCALED] = {"scaled", SCALED_AT, FULL_BYTES, 0, 0, e2, e3},
                                           [S_OUT] = {"out", OUT_AT, 4 * N, 0, 0, e3, e4},
                                           [S_BACK] = {"back", BACK_AT, 4 * N, 0, 0, e5, e7},
                                           [S_HOST] = {"on host", 0, 4 * N, 1, 0, e4, e5}};
    memcpy(storages, s, sizeof s);
    axes[SC_SHARD] = (sc_axis){"shard", shards, 1};
    axes[SC_REPLICATE] = (sc_axis){"replicate", world / shards, shards};
    axes[SC_WORLD] = (sc_axis){"world", world, 1};
    units[0] = (sc_unit_info){.path = "", .shard = SC_SHARD};
    dumps[0] = (sc_dump_info){"model.second/e2", 0, e2, sc_contiguous(0, FP32, SCALED_AT, 1, &all)};
    dumps[1] = (sc_dump_info){"model/f0", 0, e5, T(FP32, BACK_AT, N)};
    return (sc_build){.name = "by hand",
                      .model_file = "model.lua",
                      .target = "cpu",
                      .world = world,
                      .nodes = 1,
                      .threads = 2,
                      .accumulate = 1,
                      .axes = axes,
                      .naxes = 3,
                      .comms = comms,
                      .ncomms = 3,
                      .arena_bytes = ARENA,
                      .host_bytes = HOST_ARENA,
                      .programs = programs,
                      .nprograms = 3,
                      .storages = storages,
                      .nstorages = N_STORAGES,
                      .units = units,
                      .nunits = 1,
                      .record_at = RECORD,
                      .dumps = dumps,
                      .ndumps = 2,
                      .logits_program = -1};
}

static const sc_debug plain = {.interleave = -1, .stall_s = 60};

/* ── what a rank does ────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int train(sc_rank *r, void *arg) {
    const sc_build *b = sc_rank_build(r);
    static const int steps = 3;
    float y[N];
    if (sc_allocated(r, 0) != ARENA || sc_allocated(r, 1) != HOST_ARENA) return 10;
    for (int64_t step = 1; step <= steps; step++) {
        sc_record rec = {.step = step};
        sc_record_write(r, &rec);
        sc_set_step(r, step);
        sc_run_program(r, 0);
        sc_read(r, 0, RESULT, y, sizeof y);
        for (int64_t i = 0; i < N; i++)
            if (y[i] != expected(b->world, i, step, sc_rank_index(r))) return 11;
    }
    return 0;
}

static int launch_plain(int world, int threads, sc_debug d) {
    sc_build b = make_build(world, world);
    b.threads = threads;
    return sc_launch(&b, &d, train, NULL);
}

Test(runtime_cpu, programs_on_streams_give_the_sums) {
    for (int world = 1; world <= 4; world++)
        for (int threads = 1; threads <= 3; threads++)
            cr_assert_eq(launch_plain(world, threads, plain), 0, "world %d threads %d", world, threads);
}

Test(runtime_cpu, any_legal_order_gives_the_same) {
    for (int seed = 0; seed < 20; seed++) {
        sc_debug d = plain;
        d.interleave = seed;
        d.poison = seed & 1;
        cr_assert_eq(launch_plain(2 + (seed & 2), 2, d), 0, "seed %d", seed);
    }
}

Test(runtime_cpu, watching_changes_nothing) {
    sc_debug d = plain;
    d.poison = d.check_finite = d.redzones = true;
    cr_assert_eq(launch_plain(2, 2, d), 0);
}

static int finds_poison(sc_rank *r, void *arg) {
    uint32_t words[64];
    int code = train(r, NULL);
    ASAN_UNPOISON_MEMORY_REGION(r->arena[0] + SCALED_AT, sizeof words); /* dead since e3, which it would report */
    sc_read(r, 0, SCALED_AT, words, sizeof words);
    for (int i = 0; i < 64; i++)
        if (words[i] != ~0u) return 12;
    return code;
}

Test(runtime_cpu, dead_bytes_are_poisoned) {
    sc_build b = make_build(2, 2);
    sc_debug d = plain;
    d.poison = true;
    cr_assert_eq(sc_launch(&b, &d, finds_poison, NULL), 0);
}

/* ── collectives over groups, and bytes ──────────────────────────────────────────────────────────────────────────────
 */
static int odd(sc_rank *r, void *arg) {
    sc_bf16_t y[1001];
    int world = sc_rank_build(r)->world, shards = sc_rank_build(r)->axes[SC_SHARD].size;
    for (int round = 0; round < 3; round++) {
        sc_run_program(r, 1);
        sc_read(r, 0, ODD, y, sizeof y);
        for (int i = 0; i < 1001; i++) {
            real sum = 0;
            for (int k = sc_rank_index(r) % shards; k < world; k += shards)
                sum += sc_from_bf16(sc_to_bf16((real)(k + 1) * (real)0.37 * (real)(i % 50)));
            if (y[i] != sc_to_bf16(sum)) return 12;
        }
    }
    double all = sc_host_sum(r, sc_rank_index(r) + 1);
    if (all != world * (world + 1) / 2.0) return 13;
    float mine = (float)sc_rank_index(r), theirs;
    sc_write(r, 0, RESULT, &mine, sizeof mine);
    sc_barrier(r);
    sc_read_peer(r, (sc_rank_index(r) + 1) % world, 0, RESULT, &theirs, sizeof theirs);
    sc_barrier(r);
    return theirs == (float)((sc_rank_index(r) + 1) % world) ? 0 : 14;
}

Test(runtime_cpu, groups_reduce_among_themselves) {
    static const int meshes[][2] = {{1, 1}, {2, 1}, {2, 2}, {4, 2}, {3, 1}, {4, 1}};
    for (int k = 0; k < 6; k++) {
        sc_build b = make_build(meshes[k][0], meshes[k][1]);
        cr_assert_eq(sc_launch(&b, &plain, odd, NULL), 0, "world %d shards %d", meshes[k][0], meshes[k][1]);
    }
}

static int exchanged(sc_rank *r, void *arg) {
    sc_bf16_t y[4 * 77];
    int shards = sc_rank_build(r)->axes[SC_SHARD].size, index = sc_rank_index(r) % shards;
    sc_run_program(r, 2);
    sc_read(r, 0, RESULT, y, (size_t)shards * 77 * sizeof *y);
    for (int k = 0; k < shards; k++)
        for (int i = 0; i < 77; i++) {
            real from = (real)(sc_rank_index(r) - index + k + 1);
            if (y[77 * k + i] != sc_to_bf16(from * (real)0.37 * (real)((77 * index + i) % 50))) return 15;
        }
    return 0;
}

Test(runtime_cpu, pieces_change_places_within_a_group) {
    static const int meshes[][2] = {{2, 2}, {4, 2}, {3, 3}, {4, 4}};
    for (int k = 0; k < 4; k++) {
        sc_build b = make_build(meshes[k][0], meshes[k][1]);
        cr_assert_eq(sc_launch(&b, &plain, exchanged, NULL), 0, "%d ranks in %d shards", meshes[k][0], meshes[k][1]);
    }
}

static int second_rank_fails(sc_rank *r, void *arg) {
    return sc_rank_index(r) == 1 ? *(int *)arg : 0;
}

Test(runtime_cpu, the_largest_code_is_returned) {
    sc_build b = make_build(3, 3);
    int code = 7;
    cr_assert_eq(sc_launch(&b, &plain, second_rank_fails, &code), 7);
}

/* ── what signals ask for ────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Whoever started the tests may ignore signals (nohup does) or block them; runs then would not hear them either. */
static void hear_signals(void) {
    static const int signals[] = {SIGHUP, SIGINT, SIGTERM, SIGUSR1};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) signal(signals[i], SIG_DFL);
}
TestSuite(runtime_cpu, .init = hear_signals);

typedef struct {
    int signal, rank; /* -1: all of them */
    int64_t stopped[4], saved[4], saves[4];
    _Atomic int64_t turn[4];
    double before[4], after[4]; /* when a rank asked; 0: it did not */
} Wish;

/* Turns: a rank is at most so far ahead of the slowest, however few of them get a processor; the first request; by then
 * all have met twice. */
enum { APART = 300, ASKS = 200, NEVER = 3 * APART + ASKS + 100 };

static bool far_ahead(const sc_rank *r, const Wish *w, int64_t turn) {
    int64_t least = turn;
    for (int k = 0; k < sc_rank_build(r)->world; k++) {
        int64_t at = atomic_load(&w->turn[k]);
        if (at < least) least = at;
    }
    return turn - least >= APART;
}

/* Ranks of different speeds, which meet nowhere but at the beginning: they drift apart by hundreds of turns. */
static int heeds(sc_rank *r, void *arg) {
    Wish *w = arg;
    int k = sc_rank_index(r);
    for (int64_t turn = 1; turn <= NEVER; turn++) {
        int signal = sc_heed(r, false);
        atomic_store(&w->turn[k], turn);
        if (signal == SIGUSR1) {
            w->saved[k] = turn;
            w->saves[k]++;
            if (k == 0) raise(SIGTERM);
        } else if (signal) {
            w->stopped[k] = turn;
            return 0;
        }
        if (turn == 1) sc_barrier(r);
        if (turn % (k + 1) == 0) usleep(50);
        while (far_ahead(r, w, turn) && !sc_asked(r)) usleep(500);
        if (turn == ASKS && (w->rank < 0 || k == w->rank)) {
            w->before[k] = sc_now_s();
            raise(w->signal);
            w->after[k] = sc_now_s();
        }
    }
    return 9;
}

/* Several signals are one request where they come within a second, which a busy machine may not manage. */
static bool too_far_apart(const Wish *w) {
    double first = INFINITY, last = 0;
    for (int k = 0; k < 4; k++) {
        if (w->before[k] > 0) first = fmin(first, w->before[k]);
        last = fmax(last, w->after[k] > 0 ? w->after[k] : w->before[k]);
    }
    return last - first > 0.9;
}

static void check_wish(int signal, int rank) {
    Wish *w = sc_map_shared(sizeof *w);
    int code = 0;
    for (int again = 0; again < 100; again++) {
        memset(w, 0, sizeof *w);
        w->signal = signal;
        w->rank = rank;
        sc_build b = make_build(4, 4);
        code = sc_launch(&b, &plain, heeds, w);
        if (rank >= 0 || !too_far_apart(w)) break;
    }
    cr_assert_eq(code, 0, "signal %d to rank %d: exit %d", signal, rank, code);
    cr_assert(w->stopped[0] >= ASKS);
    for (int k = 0; k < 4; k++) {
        cr_assert_eq(w->stopped[k], w->stopped[0], "rank %d at turn %d", k, (int)w->stopped[k]);
        cr_assert_eq(w->saved[k], w->saved[0]);
        cr_assert_eq(w->saves[k], w->signal == SIGUSR1, "one request is one");
    }
    sc_unmap(w, sizeof *w);
}

Test(runtime_cpu, ranks_agree_where_to_stop) {
    static const int wishes[][2] = {{SIGTERM, 0}, {SIGINT, 3}, {SIGTERM, -1}, {SIGHUP, 1}, {SIGUSR1, 2}, {SIGUSR1, -1}};
    for (int i = 0; i < 6; i++) check_wish(wishes[i][0], wishes[i][1]);
}

static int goes_on(sc_rank *r, void *arg) {
    for (int i = 0; i < 2; i++) sc_heed(r, false);
    if (sc_rank_index(r) == 0) raise(SIGUSR1);
    sc_barrier(r);
    bool asked = sc_asked(r);
    return sc_heed(r, true) || !asked || sc_heed(r, false) != SIGUSR1 || sc_asked(r);
}

Test(runtime_cpu, a_request_to_save_waits_where_only_stopping_counts) {
    sc_build b = make_build(2, 2);
    cr_assert_eq(sc_launch(&b, &plain, goes_on, NULL), 0);
}

#ifndef SC_RANK_THREADS /* these end the process that fails, which must not be this one */

/* ── what goes wrong is told ─────────────────────────────────────────────────────────────────────────────────────────
 */
static char said[8192];

static int launch_body(int what, const sc_build *b, sc_debug d, int (*body)(sc_rank *, void *)) {
    char path[] = "/tmp/sc_runtime_XXXXXX";
    int fd = mkstemp(path), before = dup(2);
    trouble = what;
    fflush(stderr);
    dup2(fd, 2);
    int code = sc_launch(b, &d, body, NULL);
    fflush(stderr);
    dup2(before, 2);
    close(before);
    ssize_t n = pread(fd, said, sizeof said - 1, 0);
    said[n > 0 ? n : 0] = 0;
    close(fd);
    unlink(path);
    trouble = NO_TROUBLE;
    return code;
}

static int launch_with(int what, sc_debug d) {
    sc_build b = make_build(2, 2);
    return launch_body(what, &b, d, train);
}

static void says(const char *text) {
    cr_assert(strstr(said, text), "'%s' is not in:\n%s", text, said);
}

Test(runtime_cpu, the_first_nan_is_told_with_its_line) {
    sc_debug d = plain;
    d.check_finite = true;
    cr_assert_eq(launch_with(MAKE_NAN, d), 3);
    says("model.lua:12: e2 grow (forward model.second) gave NaN at [5] on rank 1 in step 1, program micro");
    says("operand 0: fp32[16384] from ");
    cr_assert_eq(launch_with(MAKE_INFINITY, d), 3);
    says("gave infinity at [3]");
}

Test(runtime_cpu, a_write_between_storages_is_found) {
    sc_debug d = plain;
    d.redzones = true;
    d.interleave = 1;
#if ASAN
    cr_assert_neq(launch_with(WRITE_OUTSIDE, d), 0);
    says("AddressSanitizer");
#else
    cr_assert_eq(launch_with(WRITE_OUTSIDE, d), 3);
    says("wrote outside of its storages");
    says("between full and scaled");
#endif
}

Test(runtime_cpu, a_rank_that_dies_ends_the_others) {
    cr_assert_eq(launch_with(DIE, plain), 3);
    says("rank 1 was ended by signal 9");
    says("e2 grow model.second (model.lua:12)");
}

Test(runtime_cpu, another_processor_is_told) {
    cr_assert_eq(launch_with(TRAP, plain), 3);
    says("rank 1 was ended by signal 4 (Illegal instruction)");
    says("build here, or with --portable");
}

/* What hangs is told, with these words. On a busy machine the time without progress may be over before all streams have
 * come to where they hang: then it is given more. */
static void stalls(int what, const sc_build *b, int (*body)(sc_rank *, void *), const char *const *words) {
    char limit[64];
    bool all = false;
    for (double seconds = 0.5; !all && seconds < 100; seconds *= 4) {
        sc_debug d = plain;
        d.stall_s = seconds;
        cr_assert_eq(launch_body(what, b, d, body), 3);
        snprintf(limit, sizeof limit, "no progress for %g s", seconds);
        says(limit);
        all = true;
        for (int i = 0; words[i]; i++) all &= strstr(said, words[i]) != NULL;
    }
    for (int i = 0; words[i]; i++) says(words[i]);
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

Test(runtime_cpu, the_watchdog_names_who_is_behind) {
    sc_build b = make_build(2, 2);
    stalls(HANG, &b, train,
           WORDS("rank 1 compute runs e2 grow model.second (model.lua:12)",
                 "rank 0 reduce  meets the other ranks in r0 reduce_scatter model (model.lua:13); behind: rank 1",
                 "rank 0 offload waits before o0 offload model (model.lua:14) for r0 reduce_scatter model "
                 "(model.lua:13)"));
}

/* Stands where a device says that it is, until it is asked to leave. */
static int as_a_device(sc_rank *r, void *arg) {
    static const uint64_t reduce[3] = {1, 0, 2};
    sc_shared_rank *me = &r->w->ranks[r->rank];
    atomic_store(&me->program, 0);
    atomic_store(&me->seen[GATHER], sc_seen(2, e1, SC_IDLE));
    if (reduce[r->rank])
        atomic_store(&me->seen[REDUCE], sc_seen((int)reduce[r->rank], e3, reduce[r->rank] == 1 ? SC_MEETING : SC_IDLE));
    while (!atomic_load(&me->leave)) usleep(1000);
    return 0;
}

Test(runtime_cpu, the_watchdog_reads_what_a_device_writes) {
    sc_build b = make_build(3, 3);
    stalls(NO_TROUBLE, &b, as_a_device,
           WORDS("rank 0 gather  has left g0f all_gather model (model.lua:11), its last",
                 "rank 0 reduce  meets the other ranks in r0 reduce_scatter model (model.lua:13); behind: rank 1",
                 "rank 2 reduce  has left r0 reduce_scatter model (model.lua:13); next is a0 all_reduce model "
                 "(model.lua:16), which waits for f0 fetch model (model.lua:15)"));
}

Test(runtime_cpu, what_does_not_fit_is_told_at_the_start) {
    sc_build b = make_build(2, 2);
    b.arena_bytes = (uint64_t)1 << 46;
    cr_assert_eq(sc_launch(&b, &plain, train, NULL), 1);
}

Test(runtime_cpu, a_dump_that_matches_nothing_is_told) {
    sc_debug d = plain;
    d.dump_pattern = "layers.*";
    cr_assert_eq(launch_with(NO_TROUBLE, d), 1);
    says("matches no value of by hand; values have names like model.second/e2");
}

static int too_soon(sc_rank *r, void *arg) {
    return 0;
}
static void text_waits_too_soon(sc_rank *r) {
    sc_wait(r, COMPUTE, e1);
}
static void text_leaves_the_arena(sc_rank *r) {
    RUN(number, e0, COMPUTE, .y = T(FP32, ARENA - 64, N));
}
static void text_gathers_wrongly(sc_rank *r) {
    sc_all_gather(r, e1, GATHER, 2, T(FP32, FULL_AT, N), T(FP32, SHARD_AT, N));
}
static void text_exchanges_wrongly(sc_rank *r) {
    sc_all_to_all(r, e1, REDUCE, 2, T(FP32, FULL_AT, 33), T(FP32, SHARD_AT, 33));
}
static void text_twice(sc_rank *r) {
    for (int k = 0; k < 2; k++) RUN(number, e0, COMPUTE, .y = T(FP32, SHARD_AT, N));
}

static void text_of_many_tensors(sc_rank *r) {
    static const sc_tensor many[SC_TENSORS + 1] = {T(FP32, SHARD_AT, N)};
    sc_run(r, e0, COMPUTE, sc_k_number, many, sizeof many, SC_TENSORS + 1);
}
static void text_of_communicator_7(sc_rank *r) {
    sc_all_reduce(r, e0, REDUCE, 7, T(FP32, SHARD_AT, N));
}
static void text_sums_masks(sc_rank *r) {
    sc_all_reduce(r, e0, REDUCE, 2, T(BOOL, SHARD_AT, N));
}
static void text_of_a_circle(sc_rank *r) { /* only a damaged text can say so: e0 waits for e1, which comes after it */
    sc_program *p = &r->t->programs[r->current];
    RUN(number, e0, COMPUTE, .y = T(FP32, SHARD_AT, N));
    RUN(number, e1, GATHER, .y = T(FP32, SHARD_AT, N));
    static sc_dep on_gather, on_compute;
    on_gather = (sc_dep){GATHER, 0, e1};
    on_compute = (sc_dep){COMPUTE, 0, e0};
    for (int s = 0; s < 2; s++) {
        sc_item *it = &p->stream[s ? GATHER : COMPUTE].items[0];
        free(it->deps);
        it->deps = sc_calloc(1, sizeof *it->deps);
        it->deps[0] = s ? on_compute : on_gather;
        it->ndeps = 1;
    }
}
static int run_first(sc_rank *r, void *arg) {
    sc_run_program(r, 0);
    return 0;
}
static int write_far(sc_rank *r, void *arg) {
    sc_write(r, 0, ARENA - 4, "12345678", 8);
    return 0;
}

Test(runtime_cpu, a_text_that_makes_no_sense_is_refused) {
    static const struct {
        void (*text)(sc_rank *);
        int (*body)(sc_rank *, void *);
        const char *says;
    } cases[] = {
        {text_waits_too_soon, too_soon, "waits for event 1 (g0f), which is not issued before"},
        {text_leaves_the_arena, too_soon, "event e0 touches byte"},
        {text_gathers_wrongly, too_soon, "8192 and 8192 elements do not match 2 ranks"},
        {text_exchanges_wrongly, too_soon, "33 and 33 elements do not match 2 ranks"},
        {text_twice, too_soon, "issues event 0 twice"},
        {text_of_many_tensors, too_soon, "tensors, at most "},
        {text_of_communicator_7, too_soon, "event e0 names communicator 7"},
        {text_sums_masks, run_first, "of dtype 8 is not possible"},
        {text_of_a_circle, run_first, "cannot go on: every stream waits for another"},
        {text_of_micro, write_far, "write of 8 bytes at 0x"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        sc_build b = make_build(2, 2);
        sc_program_info p = {"wrong", cases[k].text, events, N_EVENTS, 0};
        b.programs = &p;
        b.nprograms = 1;
        sc_debug d = plain;
        d.interleave = cases[k].text == text_of_a_circle ? 1 : -1;
        cr_assert_eq(launch_body(NO_TROUBLE, &b, d, cases[k].body), 3, "text %zu: %s", k, said);
        says(cases[k].says);
    }
}

/* Rank 0 is done, rank 1 waits for nobody. */
static int one_is_late(sc_rank *r, void *arg) {
    if (sc_rank_index(r) == 1) sc_barrier(r);
    return 0;
}
static int one_is_at_work(sc_rank *r, void *arg) {
    if (sc_rank_index(r) == 1) raise(SIGKILL);
    return 0;
}

Test(runtime_cpu, the_watchdog_knows_who_is_outside_of_programs) {
    sc_build b = make_build(2, 2);
    stalls(NO_TROUBLE, &b, one_is_late,
           WORDS("rank 0 has finished", "rank 1 is in the training program, at a barrier; behind: rank 0"));
    cr_assert_eq(launch_body(NO_TROUBLE, &b, plain, one_is_at_work), 3);
    says("rank 1 is in the training program\n");
}

Test(runtime_cpu, files_that_cannot_be_written_are_told) {
    sc_debug d = plain;
    d.dump_pattern = "model*";
    d.dump_step = 2;
    d.dump_path = "/nowhere/x.safetensors";
    cr_assert_eq(launch_with(NO_TROUBLE, d), 1);
    says("cannot write the dump /nowhere/x.safetensors: No such file or directory; name another file with -o");
    d.dump_path = "/dev/full";
    cr_assert_eq(launch_with(NO_TROUBLE, d), 0);
    says("cannot write the dump /dev/full: No space left on device; the run goes on without it");
    d = plain;
    d.trace_path = "/nowhere/trace.json";
    cr_assert_eq(launch_with(NO_TROUBLE, d), 1);
    says("cannot write the trace /nowhere/trace.json: No such file or directory; name another file with --trace");
    d.trace_path = "/dev/full";
    cr_assert_eq(launch_with(NO_TROUBLE, d), 0);
    says("cannot write the trace /dev/full: No space left on device; the run goes on without it");
}

static void limit_files(void) {
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){4000, RLIM_INFINITY}); /* the trace's head fits */
}

static int killed_at_the_end(sc_rank *r, void *arg) {
    for (int step = 1; step < 3; step++) sc_run_program(r, 0);
    if (sc_rank_index(r) == 1) raise(SIGKILL);
    sc_barrier(r);
    return 0;
}

/* What was there stays until the new trace is whole. */
Test(runtime_cpu, a_trace_takes_its_name_when_it_is_whole) {
    char dir[] = "/tmp/sc_trace_XXXXXX", path[64], part[80], text[8] = "";
    cr_assert(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/trace.json", dir);
    snprintf(part, sizeof part, "%s.part", path);
    sc_build b = make_build(2, 2);
    sc_debug d = plain;
    d.trace_path = path;
    for (int killed = 1; killed >= 0; killed--) {
        FILE *f = fopen(path, "w");
        cr_assert(f && fputs("old", f) >= 0 && !fclose(f));
        if (killed) {
            cr_assert_eq(launch_body(NO_TROUBLE, &b, d, killed_at_the_end), 3);
            says(" is left as it is");
        } else {
            limit_files();
            cr_assert_eq(launch_with(NO_TROUBLE, d), 0);
            setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
            says("trace.json: File too large; the run goes on without it");
        }
        f = fopen(path, "r");
        cr_assert(f && fread(text, 1, 4, f) == 3 && !strcmp(text, "old") && !fclose(f));
        cr_assert_eq(access(part, F_OK) == 0, killed);
    }
    unlink(path);
    unlink(part);
    rmdir(dir);
}

#endif

/* ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static char *slurp(const char *path, size_t *n) {
    FILE *f = fopen(path, "r");
    cr_assert(f, "%s is not there", path);
    static char text[1 << 20];
    *n = fread(text, 1, sizeof text - 1, f);
    text[*n] = 0;
    fclose(f);
    return text;
}

Test(runtime_cpu, a_dump_is_a_safetensors_file_of_the_step) {
    char dir[] = "/tmp/sc_dump_XXXXXX", path[64];
    cr_assert(mkdtemp(dir));
    for (int rank = 0; rank < 2; rank++) {
        snprintf(path, sizeof path, "%s/x.safetensors", dir);
        sc_debug d = plain;
        d.dump_pattern = "model*";
        d.dump_step = 2;
        d.dump_path = path;
        d.poison = true;
        cr_assert_eq(launch_plain(2, 2, d), 0);
        if (rank) snprintf(path, sizeof path, "%s/x.rank1.safetensors", dir);
        size_t n;
        char *text = slurp(path, &n);
        uint64_t header;
        memcpy(&header, text, 8);
        cr_assert_eq((8 + header) % 8, 0);
        cr_assert_eq(n, 8 + header + 4 * N * 2 + 4 * N);
        json_t *j = json_loadb(text + 8, header, 0, NULL), *e2_ = json_object_get(j, "model.second/e2");
        cr_assert_str_eq(json_string_value(json_object_get(e2_, "dtype")), "F32");
        int64_t at = json_integer_value(json_array_get(json_object_get(e2_, "data_offsets"), 0));
        float y[2];
        memcpy(y, text + 8 + header + at, sizeof y);
        cr_assert_eq(y[1], (float)(2 * (1 + 2) + rank));
        json_decref(j);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/x.safetensors", dir);
    unlink(path);
    rmdir(dir);
}

Test(runtime_cpu, a_trace_is_json_with_every_event) {
    char path[] = "/tmp/sc_trace_XXXXXX";
    close(mkstemp(path));
    sc_debug d = plain;
    d.trace_path = path;
    cr_assert_eq(launch_plain(2, 2, d), 0);
    json_error_t error;
    json_t *j = json_load_file(path, 0, &error);
    cr_assert(j, "%s", error.text);
    int n = 0;
    for (size_t i = 0; i < json_array_size(j); i++) {
        json_t *x = json_array_get(j, i);
        if (strcmp(json_string_value(json_object_get(x, "ph")), "X")) continue;
        n++;
        cr_assert_geq(json_number_value(json_object_get(x, "dur")), 0);
    }
    cr_assert_eq(n, 2 * 3 * N_EVENTS);
    json_decref(j);
    unlink(path);
}

/* ── rows of pointwise kernels ───────────────────────────────────────────────────────────────────────────────────────
 */
static void add_rows(const sc_task *t) {
    sc_rows w;
    for (sc_rows_begin(&w, t); w.n; sc_rows_next(&w))
        for (int64_t i = 0; i < w.n; i++)
            ((int32_t *)w.at[0])[i * w.stride[0]] +=
                ((int32_t *)w.at[1])[i * w.stride[1]] + 1000 * ((int32_t *)w.at[2])[i * w.stride[2]];
}

static sc_tensor view(int32_t *p, int dims, const int64_t *shape, const int64_t *stride) {
    sc_tensor t = {.dtype = INT32, .dims = (uint8_t)dims, .p = p};
    memcpy(t.shape, shape, sizeof *shape * (size_t)dims);
    memcpy(t.stride, stride, sizeof *stride * (size_t)dims);
    return t;
}

Test(runtime_cpu, rows_cover_every_element_once_in_any_number_of_parts) {
    static const int64_t shapes[][3] = {{5, 7, 3}, {1, 1, 1}, {64, 1, 130}, {1, 300, 1}, {2, 3, 257}};
    static int32_t a[1 << 16], b[1 << 16], y[1 << 16];
    for (int k = 0; k < 1 << 16; k++) {
        a[k] = k;
        b[k] = k % 7;
    }
    for (int s = 0; s < 5; s++)
        for (int pattern = 0; pattern < 4; pattern++)
            for (int parts = 1; parts <= 5; parts++) {
                const int64_t *n = shapes[s], whole[] = {n[1] * n[2], n[2], 1};
                const int64_t turned[] = {1, n[0] * n[2], n[0]}, row[] = {0, 0, 1}, none[] = {0, 0, 0},
                              column[] = {0, 1, 0};
                const int64_t *sa = pattern == 1 ? turned : whole,
                              *sb = (const int64_t *const[]){whole, row, none, column}[pattern];
                sc_args args = {.t = {view(y, 3, n, whole), view(a, 3, n, sa), view(b, 3, n, sb)}};
                sc_task t = {.args = &args, .slots = 3, .parts = parts};
                memset(y, 0, sizeof y);
                for (t.part = parts - 1; t.part >= 0; t.part--) add_rows(&t);
                for (int64_t i = 0; i < n[0]; i++)
                    for (int64_t j = 0; j < n[1]; j++)
                        for (int64_t k = 0; k < n[2]; k++) {
                            int64_t at = i * whole[0] + j * whole[1] + k;
                            int32_t want =
                                a[i * sa[0] + j * sa[1] + k * sa[2]] + 1000 * b[i * sb[0] + j * sb[1] + k * sb[2]];
                            cr_assert_eq(y[at], want, "shape %d pattern %d parts %d", s, pattern, parts);
                        }
                for (int64_t k = n[0] * n[1] * n[2]; k < n[0] * n[1] * n[2] + 16; k++) cr_assert_eq(y[k], 0);
            }
}
