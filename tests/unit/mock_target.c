/* A target without kernels: defines the functions of target.h, so a test binary links it in place of runtime/cpu.
 * Relies on: mock_target.h, pthreads.
 * Relied on by: test_host.c, host_run.h. */
#include "mock_target.h"
#include "../../runtime/host/dtype.h"
#include "../../runtime/host/progress.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int64_t mock_nan_step;
int mock_nan_metric;
int mock_signal;
int64_t mock_signal_step;
void (*mock_hook)(const char *program, int64_t step);

struct sc_rank {
    const sc_build *b;
    int index;
    uint8_t *arena[2];
    uint64_t hash; /* of the tokens of the step's microbatches, a sum: order does not matter */
    double loss;
    sc_record record;
    int64_t step;
    bool heeded; /* SIGUSR1 */
};

static struct {
    sc_rank ranks[MOCK_MAX];
    pthread_barrier_t barrier;
    double sums[MOCK_MAX];
    int (*body)(sc_rank *, void *);
    void *arg;
    int code[MOCK_MAX];
} mock;

/* ── the fake build ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int64_t mock_up(int64_t x, int64_t to) {
    return (x + to - 1) / to * to;
}

static sc_param_info mock_param(const char *path, int unit, int64_t rows, int64_t columns, int trainable,
                                int64_t flat) {
    return (sc_param_info){.path = path,
                           .owner = "",
                           .dtype = unit ? BF16 : FP32,
                           .dims = columns ? 2 : 1,
                           .shape = {rows, columns},
                           .unit = unit,
                           .trainable = trainable,
                           .flat_offset = flat,
                           .numel = rows * (columns ? columns : 1)};
}

static uint64_t mock_take(uint64_t *at, int64_t bytes) {
    uint64_t here = *at;
    *at += (uint64_t)mock_up(bytes, 256);
    return here;
}

static sc_unit_info mock_unit(const char *path, int shards, int64_t numel, int64_t frozen, sc_dtype d, int offload,
                              uint64_t *device, uint64_t *host) {
    sc_unit_info u = {.path = path, .shard = SC_SHARD, .dtype = d, .wire = d, .has_master = 1, .has_m = 1, .has_v = 1};
    u.shard_numel = mock_up(numel, (int64_t)shards * 256) / shards;
    u.frozen_shard_numel = mock_up(frozen, (int64_t)shards * 256) / shards;
    u.master = mock_take(device, u.shard_numel * sc_size(d));
    u.host_m = u.host_v = offload;
    u.m = mock_take(offload ? host : device, u.shard_numel * 4);
    u.v = mock_take(offload ? host : device, u.shard_numel * 4);
    u.has_frozen = frozen > 0;
    if (frozen) u.frozen = mock_take(device, u.frozen_shard_numel * sc_size(d));
    return u;
}

static sc_input_info mock_input(const char *name, int64_t rows, int shift, uint64_t *device) {
    sc_input_info in = {.name = name,
                        .from = "tokens",
                        .dtype = INT32,
                        .dims = 2,
                        .shape = {rows, MOCK_SEQ},
                        .shift = shift,
                        .limit = MOCK_VOCAB,
                        .tokens = 1};
    in.at = mock_take(device, rows * MOCK_SEQ * 4);
    return in;
}

static void mock_programs(MockBuild *m, int accumulate) {
    static const char *const once[] = {"init", "start", "micro", "eval", "sample"};
    static const char *const several[] = {"init", "start", "micro_first", "micro", "micro_last", "eval", "sample"};
    int n = accumulate == 1 ? 5 : 7;
    for (int i = 0; i < n; i++) m->programs[i] = (sc_program_info){.name = accumulate == 1 ? once[i] : several[i]};
    m->b.programs = m->programs;
    m->b.nprograms = n;
    m->b.logits_program = n - 1;
}

const sc_build *mock_build(MockBuild *m, int world, int shards, int accumulate) {
    static const char *const metrics[] = {"loss", "grad_norm", "tokens \"seen\""};
    uint64_t device = 0, host = 0;
    int64_t rows = MOCK_BATCH / world / accumulate;
    memset(m, 0, sizeof *m);
    m->params[0] = mock_param("embed.weight", 0, 16, 24, 1, 0);
    m->params[1] = mock_param("head.weight", 0, 10, 7, 1, 512);
    m->params[2] = mock_param("position", 0, 5, 3, 0, 0);
    m->params[3] = mock_param("layer.weight", 1, 700, 0, 1, 0);
    m->params[4] = mock_param("layer.bias", 1, 3, 0, 1, 768);
    m->params[5] = mock_param("norm.mean", 0, 4, 0, 0, 0);
    m->params[5].buffer = 1;
    m->params[5].at = mock_take(&device, 16);
    m->units[0] = mock_unit("", shards, 768, 256, FP32, 0, &device, &host);
    m->units[1] = mock_unit("layer", shards, 1024, 0, BF16, 1, &device, &host);
    m->inputs[0] = mock_input("tokens", rows, 0, &device);
    m->inputs[1] = mock_input("targets", rows, 1, &device);
    m->inputs[0].in_sample = 1;
    m->inputs[0].sample_dims = 2;
    m->inputs[0].sample_shape[0] = 1;
    m->inputs[0].sample_shape[1] = MOCK_SEQ;
    m->inputs[0].sample_at = mock_take(&device, MOCK_SEQ * 4);
    m->counts[0] = (sc_count_info){1, -100};
    m->axes[SC_SHARD] = (sc_axis){"shard", shards, 1};
    m->axes[SC_REPLICATE] = (sc_axis){"replicate", world / shards, shards};
    m->axes[SC_WORLD] = (sc_axis){"world", world, 1};
    m->groups[0] = (sc_group_info){0.01, 0.1};
    m->groups[1] = (sc_group_info){0.02, 0};
    m->b = (sc_build){.name = "mock",
                      .model_file = "mock.lua",
                      .target = "cpu",
                      .world = world,
                      .nodes = 1,
                      .threads = 2,
                      .accumulate = accumulate,
                      .params = m->params,
                      .nparams = MOCK_PARAMS,
                      .units = m->units,
                      .nunits = MOCK_UNITS,
                      .inputs = m->inputs,
                      .ninputs = 2,
                      .counts = m->counts,
                      .ncounts = 1,
                      .metrics = metrics,
                      .nmetrics = 3,
                      .logits_dtype = FP32,
                      .logits_shape = {1, MOCK_SEQ, MOCK_VOCAB},
                      .optimizer = "adamw",
                      .schedule = "cosine",
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8,
                      .clip = 1,
                      .warmup = 2,
                      .total = 8,
                      .min_ratio = 0.1,
                      .axes = m->axes,
                      .naxes = 3,
                      .groups = m->groups,
                      .ngroups = 2,
                      .plan_hash = 0x1234};
    m->b.metrics_at = mock_take(&device, 12);
    m->b.record_at = mock_take(&device, sizeof(sc_record));
    m->b.step_at = mock_take(&device, 8);
    m->b.logits_at = mock_take(&device, MOCK_WIDE * 4);
    m->b.arena_bytes = device;
    m->b.host_bytes = host;
    mock_programs(m, accumulate);
    return &m->b;
}

/* ── target.h ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void *mock_thread(void *arg) {
    sc_rank *r = arg;
    mock.code[r->index] = mock.body(r, mock.arg);
    return NULL;
}

void mock_start(const sc_build *b) {
    pthread_barrier_init(&mock.barrier, NULL, (unsigned)b->world);
    for (int i = 0; i < b->world; i++) {
        mock.ranks[i] = (sc_rank){.b = b, .index = i};
        for (int h = 0; h < 2; h++) { /* what nobody writes is not zero */
            size_t n = h ? b->host_bytes : b->arena_bytes;
            mock.ranks[i].arena[h] = malloc(n + 1);
            memset(mock.ranks[i].arena[h], 0xa5, n + 1);
        }
    }
}

void mock_stop(const sc_build *b) {
    for (int i = 0; i < b->world; i++)
        for (int h = 0; h < 2; h++) free(mock.ranks[i].arena[h]);
    pthread_barrier_destroy(&mock.barrier);
}

int sc_launch(const sc_build *b, const sc_debug *d, int (*body)(sc_rank *r, void *arg), void *arg) {
    pthread_t t[MOCK_MAX];
    int code = 0;
    mock_start(b);
    mock.body = body;
    mock.arg = arg;
    for (int i = 0; i < b->world; i++) pthread_create(&t[i], NULL, mock_thread, &mock.ranks[i]);
    for (int i = 0; i < b->world; i++) {
        pthread_join(t[i], NULL);
        if (mock.code[i] > code) code = mock.code[i];
    }
    mock_stop(b);
    return code;
}

int sc_join(const sc_build *b, const char *terms) {
    return -1;
}
bool sc_first(void) {
    return true;
}
bool sc_one_machine(void) {
    return true;
}
int sc_processors(const sc_build *b) {
    return b->threads;
}
void *sc_map_shared(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}
void sc_unmap(void *p, size_t bytes) {
    munmap(p, bytes);
}

sc_rank *mock_rank(int index) {
    return &mock.ranks[index];
}

const sc_record *mock_record(int rank) {
    return &mock.ranks[rank].record;
}

int sc_rank_index(const sc_rank *r) {
    return r->index;
}
const sc_build *sc_rank_build(const sc_rank *r) {
    return r->b;
}
uint64_t sc_allocated(const sc_rank *r, int host) {
    return host ? r->b->host_bytes : r->b->arena_bytes;
}
int64_t sc_device_used(const sc_rank *r) {
    return -1;
}
double sc_seconds(const sc_rank *r) {
    return sc_now_s();
}
void sc_tell_libraries(void) {
    puts("no libraries");
}

void sc_describe_device(const sc_rank *r, char *out, size_t n) {
    *out = 0;
}
void sc_set_step(sc_rank *r, int64_t step) {
    r->step = step;
}
void sc_barrier(sc_rank *r) {
    pthread_barrier_wait(&mock.barrier);
}
void sc_record_write(sc_rank *r, const sc_record *rec) {
    r->record = *rec;
}

bool sc_asked(const sc_rank *r) {
    return mock_signal && r->step >= mock_signal_step && !r->heeded;
}

int sc_heed(sc_rank *r, bool only_stop) {
    if (!sc_asked(r) || (only_stop && mock_signal == SIGUSR1)) return 0;
    r->heeded = mock_signal == SIGUSR1;
    return mock_signal;
}

void sc_host_gather(sc_rank *r, double x, double *all) {
    mock.sums[r->index] = x;
    sc_barrier(r);
    memcpy(all, mock.sums, sizeof *all * (size_t)r->b->world);
    sc_barrier(r);
}

double sc_host_sum(sc_rank *r, double x) {
    double sum = 0, all[MOCK_MAX];
    sc_host_gather(r, x, all);
    for (int i = 0; i < r->b->world; i++) sum += all[i];
    return sum;
}

static uint8_t *mock_bytes(const sc_rank *r, int host, uint64_t at, size_t n) {
    uint64_t size = host ? r->b->host_bytes : r->b->arena_bytes;
    if (at + n > size) {
        fprintf(stderr, "mock: bytes %llu + %zu are outside the arena\n", (unsigned long long)at, n);
        abort();
    }
    return r->arena[host] + at;
}

void sc_write(sc_rank *r, int host, uint64_t at, const void *src, size_t n) {
    memcpy(mock_bytes(r, host, at, n), src, n);
}
void sc_read(sc_rank *r, int host, uint64_t at, void *dst, size_t n) {
    memcpy(dst, mock_bytes(r, host, at, n), n);
}
void sc_read_peer(sc_rank *r, int peer, int host, uint64_t at, void *dst, size_t n) {
    sc_read(&mock.ranks[peer], host, at, dst, n);
}

/* ── the fake programs ───────────────────────────────────────────────────────────────────────────────────────────────
 */
static uint64_t mock_hash(uint64_t x) {
    x = (x ^ x >> 31) * 0x9E3779B97F4A7C15u;
    return (x ^ x >> 29) * 0xBF58476D1CE4E5B9u;
}

double mock_number(uint64_t x) {
    return (double)(mock_hash(x) >> 11) * 0x1p-53;
}

typedef void mock_element(sc_rank *r, const sc_unit_info *u, int param, int64_t element, int64_t slot, uint64_t hash);

static void mock_each(sc_rank *r, int trainable, mock_element *f, uint64_t hash) {
    for (int i = 0; i < r->b->nparams; i++) {
        const sc_param_info *p = &r->b->params[i];
        const sc_unit_info *u = &r->b->units[p->unit];
        int64_t n = trainable ? u->shard_numel : u->frozen_shard_numel,
                from = sc_coord_on(&r->b->axes[u->shard], r->index).at * n;
        if (p->buffer || p->trainable != trainable) continue;
        for (int64_t e = 0; e < p->numel; e++)
            if (p->flat_offset + e >= from && p->flat_offset + e < from + n)
                f(r, u, i, e, p->flat_offset + e - from, hash);
    }
}

static void mock_init_element(sc_rank *r, const sc_unit_info *u, int param, int64_t e, int64_t slot, uint64_t seed) {
    bool trainable = r->b->params[param].trainable;
    host_put(u->dtype, r->arena[0] + (trainable ? u->master : u->frozen), slot,
             mock_number(seed * 1000003 + (uint64_t)param * 65537 + (uint64_t)e));
    if (!trainable) return;
    host_put(u->moments, r->arena[u->host_m] + u->m, slot, 0);
    host_put(u->moments, r->arena[u->host_v] + u->v, slot, 0);
}

static void mock_update_element(sc_rank *r, const sc_unit_info *u, int param, int64_t e, int64_t slot, uint64_t hash) {
    void *master = r->arena[0] + u->master, *first = r->arena[u->host_m] + u->m, *second = r->arena[u->host_v] + u->v;
    float m = (float)host_get(u->moments, first, slot), v = (float)host_get(u->moments, second, slot);
    float g = (float)mock_number(hash + (uint64_t)param * 7919 + (uint64_t)e) - 0.5f;
    int64_t count;
    memcpy(&count, r->arena[0] + r->b->step_at, 8);
    m = r->record.of[0].beta1 * m + (1 - r->record.of[0].beta1) * g;
    v = r->record.of[0].beta2 * v + (1 - r->record.of[0].beta2) * g * g;
    host_put(u->moments, first, slot, m);
    host_put(u->moments, second, slot, v);
    host_put(u->dtype, master, slot,
             host_get(u->dtype, master, slot) - (double)(r->record.lr[0] * m / (v + (float)count)));
}

static void mock_init(sc_rank *r) {
    mock_each(r, 1, mock_init_element, r->record.seed);
    mock_each(r, 0, mock_init_element, r->record.seed);
    memset(r->arena[0] + r->b->step_at, 0, 8);
    for (int i = 0; i < 4; i++) ((float *)(r->arena[0] + r->b->params[MOCK_BUFFER].at))[i] = (float)i;
}

static void mock_forward(sc_rank *r) {
    const int32_t *x = (const int32_t *)(r->arena[0] + r->b->inputs[0].at),
                  *y = (const int32_t *)(r->arena[0] + r->b->inputs[1].at);
    for (int64_t i = 0; i < r->b->inputs[0].shape[0] * MOCK_SEQ; i++) {
        if (y[i] == -100) continue;
        r->hash += mock_hash((uint64_t)x[i] << 32 | (uint64_t)y[i] << 16 | (uint64_t)(i % MOCK_SEQ));
        r->loss += y[i];
    }
}

static void mock_metrics(sc_rank *r, float norm) {
    float *metrics = (float *)(r->arena[0] + r->b->metrics_at);
    double loss = sc_host_sum(r, r->loss);
    metrics[0] = (float)(loss / MOCK_VOCAB / r->record.count[0]);
    metrics[1] = norm;
    metrics[2] = (float)loss;
    if (mock_nan_step && r->step == mock_nan_step) metrics[mock_nan_metric] = __builtin_nanf("");
    r->loss = 0;
}

static void mock_update(sc_rank *r) {
    uint64_t hash = 0;
    int64_t count;
    sc_barrier(r);
    for (int i = 0; i < r->b->world; i++) hash += mock.ranks[i].hash;
    sc_barrier(r);
    memcpy(&count, r->arena[0] + r->b->step_at, 8);
    count++;
    memcpy(r->arena[0] + r->b->step_at, &count, 8);
    mock_each(r, 1, mock_update_element, hash);
    ((float *)(r->arena[0] + r->b->params[MOCK_BUFFER].at))[r->index % 4] += 1; /* every rank has its own */
    mock_metrics(r, (float)mock_number(hash));
    r->hash = 0;
}

/* The likeliest token after x is x + 1; of all positions only the record's is kept. */
static void mock_sample(sc_rank *r) {
    const int32_t *x = (const int32_t *)(r->arena[0] + r->b->inputs[0].sample_at);
    float *logits = (float *)(r->arena[0] + r->b->logits_at);
    int64_t n = r->b->logits_shape[2], at = r->record.position;
    for (int64_t i = 0; i < n; i++) logits[i] = (float)mock_number((uint64_t)(at * n + i));
    logits[(x[at] + 1) % n] = 4;
}

void sc_run_program(sc_rank *r, int program) {
    const char *name = r->b->programs[program].name;
    if (mock_hook && r->index == 0) mock_hook(name, r->step);
    if (mock_hook) sc_barrier(r);
    if (strcmp(name, "init") == 0) mock_init(r);
    if (strncmp(name, "micro", 5) == 0 || strcmp(name, "eval") == 0) mock_forward(r);
    if (strcmp(name, "micro_last") == 0 || (strcmp(name, "micro") == 0 && r->b->accumulate == 1)) mock_update(r);
    if (strcmp(name, "eval") == 0) mock_metrics(r, 0), r->hash = 0;
    if (strcmp(name, "sample") == 0) mock_sample(r);
}
