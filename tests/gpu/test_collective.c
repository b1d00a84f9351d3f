/* The CUDA target's collectives on real GPUs, one process a GPU, through the runtime: a build made up here, whose
 * events are collectives only. Values against a reference in every dtype and group, bits in a graph, without and
 * replayed, speed by size, and the device memory that NCCL takes. Relies on: runtime/cuda, runtime/common. Relied on
 * by: people with GPUs.
 *
 *   test_collective [WORLD [SHARDS]]      SHARDC_NCCL_WINDOWS=0: by NCCL's rings */
#include "../../runtime/common/rank.h"
#include "../../runtime/cuda/comm.h"
#include "../../runtime/schema/math.h"
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPLAYS = 5, SIZES = 6, DTYPES = 3, KINDS = 5, CASES = SIZES * DTYPES * KINDS, MOST = 8, REPEATS = 10 };
enum { CHECK, FIRST_SPEED, SPEEDS = 9, PROGRAMS = FIRST_SPEED + SPEEDS, GATHER_IN_PLACE = 4 };

static int world = 4, shards = 4;

/* ── the build ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    int kind, dtype, comm; /* kind: an sc_collective_kind, or GATHER_IN_PLACE */
    int64_t piece;         /* elements that a gather sends, a scatter receives, an all-reduce has */
    uint64_t out, in;
} one;

static one checks[CASES], speeds[SPEEDS];
static const char *const kind_names[] = {"all_gather", "reduce_scatter", "all_reduce", "exchange",
                                         "all_gather (in place)"};
static const char *const dtype_names[] = {"fp32", "bf16", "fp16"};
static const int64_t sizes[SIZES] = {64, 7, 8192, 46336, 1 << 20, 3 * 1048576 + 256};
static uint64_t arena, speed_at;

static int group_size(int comm) {
    return comm == 0 ? shards : comm == 1 ? world / shards : world;
}

static uint64_t place(uint64_t bytes) {
    uint64_t at = arena;
    arena += (bytes + 255) / 256 * 256;
    return at;
}

static void lay_out(void) {
    static const double megabytes[SPEEDS] = {8, 64, 436, 16, 128, 872, 8, 64, 436};
    int n = 0;
    arena = 4096; /* the record */
    for (int k = 0; k < KINDS; k++)
        for (int d = 0; d < DTYPES; d++)
            for (int s = 0; s < SIZES; s++) {
                one *c = &checks[n];
                *c = (one){k, d, shards == world ? 2 * (n % 2) : n % 3, sizes[s], 0, 0};
                if (k == SC_SCATTER && s == 1) c->piece = 4; /* at least 8 bytes: see collective.c */
                uint64_t piece = (uint64_t)c->piece * sc_size(d), all = piece * (uint64_t)group_size(c->comm);
                bool whole = k == SC_GATHER || k == SC_EXCHANGE || k == GATHER_IN_PLACE;
                c->out = place(whole ? all : piece);
                c->in = k == SC_GATHER ? place(piece) : k == SC_SCATTER || k == SC_EXCHANGE ? place(all) : 0;
                n++;
            }
    speed_at = arena;
    for (int s = 0; s < SPEEDS; s++) { /* one after the other in the same bytes */
        static const int kinds[] = {SC_GATHER, SC_SCATTER, SC_EXCHANGE};
        int kind = kinds[s / 3], dtype = kind == SC_SCATTER ? FP32 : BF16;
        int64_t piece = (int64_t)(megabytes[s] * 1e6) / sc_size(dtype) / world / 256 * 256;
        uint64_t bytes = (uint64_t)piece * sc_size(dtype), all = bytes * (uint64_t)world;
        speeds[s] = (one){kind, dtype, 2, piece, speed_at, 0};
        speeds[s].in = speed_at + ((kind == SC_SCATTER ? bytes : all) + 255) / 256 * 256;
        if (speeds[s].in + all > arena) arena = speeds[s].in + all;
    }
}

static sc_tensor flat(int dtype, uint64_t at, int64_t n) {
    return sc_contiguous(0, (sc_dtype)dtype, at, 1, &n);
}

static uint64_t in_place_at(const sc_rank *r, const one *c) {
    return c->out + (uint64_t)(c->piece * sc_comm(r, c->comm).index) * sc_size(c->dtype);
}

static void issue(sc_rank *r, int event, const one *c) {
    int64_t all = c->piece * group_size(c->comm);
    if (c->kind == SC_GATHER)
        sc_all_gather(r, event, GATHER, c->comm, flat(c->dtype, c->out, all), flat(c->dtype, c->in, c->piece));
    else if (c->kind == GATHER_IN_PLACE)
        sc_all_gather(r, event, GATHER, c->comm, flat(c->dtype, c->out, all),
                      flat(c->dtype, in_place_at(r, c), c->piece));
    else if (c->kind == SC_SCATTER)
        sc_reduce_scatter(r, event, REDUCE, c->comm, flat(c->dtype, c->out, c->piece), flat(c->dtype, c->in, all));
    else if (c->kind == SC_EXCHANGE)
        sc_all_to_all(r, event, REDUCE, c->comm, flat(c->dtype, c->out, all), flat(c->dtype, c->in, all));
    else
        sc_all_reduce(r, event, REDUCE, c->comm, flat(c->dtype, c->out, c->piece));
}

/* In one total order on every rank, as schedules have it. */
static void check_text(sc_rank *r) {
    for (int i = 0; i < CASES; i++) {
        bool gathers = checks[i].kind == SC_GATHER || checks[i].kind == GATHER_IN_PLACE;
        if (i) sc_wait(r, gathers ? GATHER : REDUCE, i - 1);
        issue(r, i, &checks[i]);
    }
}
#define SPEED_TEXT(s)                                                                                                  \
    static void speed_text_##s(sc_rank *r) {                                                                           \
        for (int i = 0; i < REPEATS; i++) issue(r, i, &speeds[s]);                                                     \
    }
SPEED_TEXT(0)
SPEED_TEXT(1)
SPEED_TEXT(2)
SPEED_TEXT(3)
SPEED_TEXT(4)
SPEED_TEXT(5)
SPEED_TEXT(6)
SPEED_TEXT(7)
SPEED_TEXT(8)

static sc_event_info events[CASES];
static const sc_program_info programs[PROGRAMS] = {
    {"check", check_text, events, CASES},          {"gather8", speed_text_0, events, REPEATS},
    {"gather64", speed_text_1, events, REPEATS},   {"gather436", speed_text_2, events, REPEATS},
    {"scatter16", speed_text_3, events, REPEATS},  {"scatter128", speed_text_4, events, REPEATS},
    {"scatter872", speed_text_5, events, REPEATS}, {"exchange8", speed_text_6, events, REPEATS},
    {"exchange64", speed_text_7, events, REPEATS}, {"exchange436", speed_text_8, events, REPEATS}};

static void name_events(void) {
    static char ids[CASES][8];
    for (int i = 0; i < CASES; i++) {
        snprintf(ids[i], sizeof ids[i], "c%d", i);
        events[i] = (sc_event_info){.id = ids[i], .op = kind_names[checks[i].kind], .file = "test_collective.c"};
    }
}

/* ── values and sums ─────────────────────────────────────────────────────────────────────────────────────────────────
 */
static float value_of(int rank, int i, int64_t k) { /* [-1, 1), with many significant bits */
    uint64_t x = ((uint64_t)rank << 40) + ((uint64_t)i << 56) + (uint64_t)k;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return (float)((double)(int64_t)(x ^ (x >> 31)) / 9223372036854775808.0);
}

static void encode(int dtype, void *to, int64_t k, float x) {
    if (dtype == FP32) ((float *)to)[k] = x;
    if (dtype == BF16) ((uint16_t *)to)[k] = sc_to_bf16(x);
    if (dtype == FP16) ((uint16_t *)to)[k] = sc_to_fp16(x);
}
static float decode(int dtype, const void *from, int64_t k) {
    if (dtype == FP32) return ((const float *)from)[k];
    if (dtype == BF16) return (float)sc_from_bf16(((const uint16_t *)from)[k]);
    return (float)sc_from_fp16(((const uint16_t *)from)[k]);
}
static float rounded(int dtype, float x) {
    uint32_t cell;
    encode(dtype, &cell, 0, x);
    return decode(dtype, &cell, 0);
}

static uint64_t hash(const void *p, size_t n) {
    uint64_t h = 1469598103934665603ull, x;
    for (size_t i = 0; i + 8 <= n; i += 8) {
        memcpy(&x, (const uint8_t *)p + i, 8);
        h = (h ^ x) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 29;
    }
    for (size_t i = n / 8 * 8; i < n; i++) h = (h ^ ((const uint8_t *)p)[i]) * 1099511628211ull;
    return h;
}

/* ── what the ranks tell the test ────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    uint64_t hash[2][REPLAYS][CASES][MOST]; /* [without graph] */
    bool windows;
    int wrong[CASES], orders[CASES]; /* orders: bit k, the sum's bits are those of order k (see orders_of) */
    double seconds[3][SPEEDS];       /* in a graph, without, in a graph that no watchdog sees */
    double used[MOST];               /* bytes of device memory beside the arena */
    int checked;
} results;
static results *shared;
static uint8_t *bytes;

static int64_t cells(const one *c, const sc_rank *r, bool result) {
    int64_t all = c->piece * sc_comm(r, c->comm).n;
    bool gather = c->kind == SC_GATHER || c->kind == GATHER_IN_PLACE;
    if (c->kind == SC_EXCHANGE) return all;
    return c->kind == SC_REDUCE ? c->piece : (gather == result) ? all : c->piece;
}

static void write_inputs(sc_rank *r) {
    for (int i = 0; i < CASES; i++) {
        const one *c = &checks[i];
        int64_t n = cells(c, r, false);
        uint64_t at = c->kind == SC_REDUCE ? c->out : c->kind == GATHER_IN_PLACE ? in_place_at(r, c) : c->in;
        for (int64_t k = 0; k < n; k++) encode(c->dtype, bytes, k, value_of(r->rank, i, k));
        sc_write(r, 0, at, bytes, (size_t)n * sc_size(c->dtype));
    }
}

/* The sum of one element: in rank order, or beginning with member `first`, each partial sum rounded to fp32 or (ring)
 * to the dtype. */
static float sum_of(const one *c, int i, sc_members m, int first, int64_t k, bool rounds) {
    float s = 0;
    for (int j = 0; j < m.n; j++) {
        int member = (first + j) % m.n;
        float x = rounded(c->dtype, value_of(m.first + member * m.step, i, k));
        s = j ? s + x : x;
        if (rounds) s = rounded(c->dtype, s);
    }
    return rounded(c->dtype, s);
}

/* Orders that explain the bits: 0 rank order, 1 own value first, 2 own value last (a ring), each summed in fp32; the
 * next three likewise with every partial sum in the dtype. */
static int orders_of(const one *c, int i, sc_members m, int owner, int64_t k, float got) {
    int fit = 0, firsts[3] = {0, owner, (owner + 1) % m.n};
    for (int o = 0; o < 6; o++)
        if (sum_of(c, i, m, firsts[o % 3], k, o >= 3) == got) fit |= 1 << o;
    return fit;
}

static void check_values(sc_rank *r, int i, const void *result) {
    const one *c = &checks[i];
    sc_members m = sc_comm(r, c->comm);
    int64_t n = cells(c, r, true), step = n > 65536 ? 37 : 1;
    int wrong = 0, orders = 63;
    double unit = c->dtype == FP32 ? 6e-8 : c->dtype == BF16 ? 4e-3 : 5e-4;
    for (int64_t k = 0; k < n; k += step) {
        float got = decode(c->dtype, result, k);
        if (c->kind == SC_GATHER || c->kind == GATHER_IN_PLACE) {
            int from = (int)(k / c->piece);
            wrong += got != rounded(c->dtype, value_of(m.first + from * m.step, i, k % c->piece));
            continue;
        }
        if (c->kind == SC_EXCHANGE) {
            int64_t from = k / c->piece, at = m.index * c->piece + k % c->piece;
            wrong += got != rounded(c->dtype, value_of(m.first + (int)from * m.step, i, at));
            continue;
        }
        int64_t at = c->kind == SC_SCATTER ? m.index * c->piece + k : k;
        double want = 0, size = 0;
        for (int j = 0; j < m.n; j++) {
            double x = rounded(c->dtype, value_of(m.first + j * m.step, i, at));
            want += x;
            size += x < 0 ? -x : x;
        }
        double off = got > want ? got - want : want - got;
        wrong += !(off <= unit * size * m.n);
        orders &= orders_of(c, i, m, m.index, at, got);
    }
    __atomic_fetch_add(&shared->wrong[i], wrong, __ATOMIC_RELAXED);
    __atomic_fetch_and(&shared->orders[i], orders, __ATOMIC_RELAXED);
}

static void read_results(sc_rank *r, int mode, int replay) {
    for (int i = 0; i < CASES; i++) {
        const one *c = &checks[i];
        size_t n = (size_t)cells(c, r, true) * sc_size(c->dtype);
        sc_read(r, 0, c->out, bytes, n);
        shared->hash[mode][replay][i][r->rank] = hash(bytes, n);
        if (!mode && !replay) check_values(r, i, bytes);
    }
}

static int body(sc_rank *r, void *arg) {
    int mode = r->d->no_graph ? 1 : r->d->stall_s == 0 ? 2 : 0;
    size_t free_bytes, total;
    bytes = malloc(64 << 20);
    for (int replay = 0; replay < REPLAYS && mode < 2; replay++) {
        write_inputs(r);
        sc_barrier(r);
        sc_run_program(r, CHECK);
        read_results(r, mode, replay);
        sc_barrier(r);
    }
    for (int s = 0; s < SPEEDS; s++) {
        double best = 1e9;
        for (int k = 0; k < 6; k++) {
            sc_barrier(r);
            double start = sc_now_s();
            sc_run_program(r, FIRST_SPEED + s);
            double t = sc_now_s() - start;
            if (t < best) best = t;
        }
        if (r->rank == 0) shared->seconds[mode][s] = best / REPEATS;
    }
    cudaMemGetInfo(&free_bytes, &total);
    shared->used[r->rank] = (double)total - (double)free_bytes - (double)r->b->arena_bytes;
    shared->checked++;
    free(bytes);
    return 0;
}

static int alone_body(sc_rank *r, void *arg) {
    size_t free_bytes, total;
    cudaMemGetInfo(&free_bytes, &total);
    *(double *)arg = (double)total - (double)free_bytes - (double)r->b->arena_bytes;
    return 0;
}

/* ── verdict ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static bool report_case(int i) {
    const one *c = &checks[i];
    bool same = true, sums = c->kind == SC_SCATTER || c->kind == SC_REDUCE, agree = true;
    for (int mode = 0; mode < 2; mode++)
        for (int k = 0; k < REPLAYS; k++)
            for (int rank = 0; rank < world; rank++)
                same &= shared->hash[mode][k][i][rank] == shared->hash[0][0][i][rank];
    if (c->kind == SC_REDUCE && c->comm == 2)
        for (int rank = 1; rank < world; rank++) agree &= shared->hash[0][0][i][rank] == shared->hash[0][0][i][0];
    bool good = same && agree && !shared->wrong[i];
    if (sums || !good)
        printf("%s %s %s[%lld] comm %d: %d wrong, bits %s%s, orders 0x%02x\n", good ? "ok  " : "FAIL",
               kind_names[c->kind], dtype_names[c->dtype], (long long)c->piece, c->comm, shared->wrong[i],
               same ? "the same in 5 replays with and without graph" : "DIFFER", agree ? "" : ", ranks DIFFER",
               shared->orders[i]);
    return good;
}

static void report_speed(int s) {
    const one *c = &speeds[s];
    double megabytes = (double)(c->piece * world) * (double)sc_size(c->dtype) / 1e6;
    printf("%s %4.0f MB:", kind_names[c->kind], megabytes);
    for (int mode = 0; mode < 3; mode++) {
        static const char *const names[] = {"graph", "without graph", "unwatched"};
        double t = shared->seconds[mode][s];
        printf("  %s %6.1f us %3.0f GB/s (bus %3.0f)", names[mode], t * 1e6, megabytes / t / 1e3,
               megabytes / t / 1e3 * (world - 1) / world);
    }
    printf("\n");
}

int main(int argc, char **argv) {
    double plain = 0, *context = sc_map_shared(sizeof *context);
    int code = 0, failed = 0;
    if (argc > 1) world = shards = atoi(argv[1]);
    if (argc > 2) shards = atoi(argv[2]);
    lay_out();
    name_events();
    shared = sc_map_shared(sizeof *shared);
    memset(shared->orders, 0xff, sizeof shared->orders);
    sc_axis axes[] = {{"shard", shards, 1}, {"replicate", world / shards, shards}, {"world", world, 1}};
    sc_comm_info comms[] = {{"shard", 0, 0}, {"replicate", 1, 0}, {"world", 2, 0}};
    sc_build b = {.name = "test_collective",
                  .model_file = "test_collective.c",
                  .target = "cuda",
                  .arch = "sm_90",
                  .deterministic = 1,
                  .world = world,
                  .nodes = 1,
                  .threads = 1,
                  .accumulate = 1,
                  .arena_bytes = arena,
                  .programs = programs,
                  .nprograms = PROGRAMS,
                  .axes = axes,
                  .naxes = 3,
                  .comms = comms,
                  .ncomms = 3};
    sc_debug d = {.interleave = -1, .stall_s = 60};
    if (getenv("ARCH")) b.arch = getenv("ARCH");
    sc_build one_gpu = b;
    one_gpu.world = 1;
    one_gpu.nprograms = 0;
    code = sc_launch(&one_gpu, &d, alone_body, context);
    plain = *context;
    for (int mode = 0; mode < 3 && !code; mode++) {
        d.no_graph = mode == 1;
        d.stall_s = mode == 2 ? 0 : 60;
        code = sc_launch(&b, &d, body, NULL);
    }
    if (code) return code;
    for (int i = 0; i < CASES; i++) failed += !report_case(i);
    for (int s = 0; s < SPEEDS; s++) report_speed(s);
    printf("device memory beside the arena: %.0f MiB without NCCL; with it", plain / 1048576);
    for (int k = 0; k < world; k++) printf(" %+.0f", (shared->used[k] - plain) / 1048576);
    printf(" MiB\n%d passed, %d failed\n", CASES - failed, failed);
    return failed != 0;
}
