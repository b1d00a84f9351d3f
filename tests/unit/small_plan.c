/* A small sound plan made by hand: one sharded unit, two ranks, a step of gather, forward, backward, reduce, update.
 * Relies on: small_plan.h.
 * Relied on by: test_verify.c, test_plan_json.c. */
#include "small_plan.h"
#include "ir/training.h"

static Access *accesses(Arena *a, int n, const Access *x) {
    Access *out = NEW_ARRAY(a, Access, n + 1);
    if (n) memcpy(out, x, sizeof *x * (size_t)n);
    return out;
}

#define LIST(...)                                                                                                      \
    accesses(a, (int)(sizeof((Access[]){__VA_ARGS__}) / sizeof(Access)), (Access[]){__VA_ARGS__}),                     \
        (int)(sizeof((Access[]){__VA_ARGS__}) / sizeof(Access))
#define NONE NULL, 0

static Event event(const char *id, const char *op, Purpose p, Phase ph, Access *reads, int nreads, Access *writes,
                   int nwrites) {
    return (Event){.id = id,
                   .op = op,
                   .purpose = p,
                   .stream = purposes[p].stream,
                   .phase = ph,
                   .module = "layers.0",
                   .src = {"models/small.lua", 7},
                   .unit = -1,
                   .comm = -1,
                   .reads = reads,
                   .nreads = nreads,
                   .writes = writes,
                   .nwrites = nwrites,
                   .flops = 1e9 / 3,
                   .bytes = 4096,
                   .start_us = 0.1,
                   .duration_us = 12.5};
}

static void wait_for(Arena *a, Event *e, int w) {
    int *waits = NEW_ARRAY(a, int, e->nwaits + 1);
    if (e->nwaits) memcpy(waits, e->waits, sizeof *waits * (size_t)e->nwaits);
    waits[e->nwaits++] = w;
    e->waits = waits;
}

static void storage(Plan *p, int id, StorageClass c, const char *name, int program, int64_t offset, int64_t size,
                    int first, int last) {
    p->storages[id] = (Storage){id, c, name, "layers.0", ARENA_DEVICE, program, size, offset, first, last};
}

static void storages(Plan *p) {
    p->storages = NEW_ARRAY(p->arena, Storage, N_SMALL_STORAGES);
    p->nstorages = N_SMALL_STORAGES;
    storage(p, MASTER, C_PARAMETERS, "layers.0/master", -1, 0, 1024, -1, 0);
    storage(p, MOMENT, C_OPTIMIZER, "layers.0/m", -1, 1024, 1024, -1, 0);
    storage(p, INPUT, C_INPUTS, "tokens", -1, 2048, 256, -1, 0);
    storage(p, RECORD, C_RECORD, "record", -1, 2304, 256, -1, 0);
    storage(p, FULL, C_UNSHARDED, "g0f.0", P_MICRO, 2560, 2048, GATHER_F, BACKWARD_2);
    storage(p, ACT, C_ACTIVATIONS, "e0.0", P_MICRO, 4608, 512, FORWARD_1, BACKWARD_2);
    storage(p, FULL_GRAD, C_UNSHARDED_GRADS, "r0.full", P_MICRO, 5120, 2048, BACKWARD_1, REDUCE_1);
    storage(p, GRAD_SHARD, C_GRADIENTS, "r0.0", P_MICRO, 2560, 1024, REDUCE_1, UPDATE_1); /* where FULL was */
    storage(p, EVAL_FULL, C_UNSHARDED, "g0f.0", P_EVAL, 2560, 2048, 0, 1);
    storage(p, EVAL_ACT, C_ACTIVATIONS, "e0.0", P_EVAL, 4608, 512, 1, 1);
    p->arena_bytes[ARENA_DEVICE] = p->bound_bytes[ARENA_DEVICE] = 7168;
}

static PlanProgram *program(Plan *p, int i, const char *name, int n) {
    PlanProgram *g = &p->programs[i];
    *g = (PlanProgram){.name = name,
                       .events = NEW_ARRAY(p->arena, Event, n + 1),
                       .n = n,
                       .step_us = 100.25,
                       .exposed_us = 3,
                       .peak = {7168, 0},
                       .bound = {7168, 0},
                       .peak_event = n ? n / 2 : -1};
    if (i != P_MICRO) g->peak[ARENA_DEVICE] = g->bound[ARENA_DEVICE] = i == P_EVAL ? 5120 : 2560;
    return g;
}

static void micro(Plan *p) {
    Arena *a = p->arena;
    Event *e = program(p, P_MICRO, "micro", N_MICRO)->events;
    e[GATHER_F] = event("g0f", "all_gather", TO_UNSHARD, FORWARD, LIST({MASTER, 0, 1024}), LIST({FULL, 0, 2048}));
    e[FORWARD_1] =
        event("e0", "matmul", TO_COMPUTE, FORWARD, LIST({INPUT, 0, 256}, {FULL, 0, 2048}), LIST({ACT, 0, 512}));
    e[LOSS_1] = event("e1", "loss", TO_COMPUTE, FORWARD, LIST({ACT, 0, 512}), LIST({ACT, 0, 512})); /* in place */
    e[BACKWARD_1] = event("e1b0", "matmul", TO_COMPUTE, BACKWARD, LIST({ACT, 0, 512}), LIST({FULL_GRAD, 0, 1024}));
    e[BACKWARD_2] = event("e0b0", "matmul", TO_COMPUTE, BACKWARD, LIST({ACT, 0, 512}, {FULL, 0, 2048}),
                          LIST({FULL_GRAD, 1024, 1024}));
    e[REDUCE_1] =
        event("r0", "reduce_scatter", TO_REDUCE, BACKWARD, LIST({FULL_GRAD, 0, 2048}), LIST({GRAD_SHARD, 0, 1024}));
    e[UPDATE_1] = event("u0", "adam", TO_UPDATE, OPTIMIZER,
                        LIST({GRAD_SHARD, 0, 1024}, {MASTER, 0, 1024}, {MOMENT, 0, 1024}, {RECORD, 0, 64}),
                        LIST({MASTER, 0, 1024}, {MOMENT, 0, 1024}));
    e[GATHER_F].comm = e[REDUCE_1].comm = 0;
    e[GATHER_F].unit = e[REDUCE_1].unit = e[UPDATE_1].unit = 0;
    e[UPDATE_1].update = true;
    wait_for(a, &e[FORWARD_1], GATHER_F);
    wait_for(a, &e[REDUCE_1], BACKWARD_2);
    wait_for(a, &e[UPDATE_1], REDUCE_1);
}

static void other_programs(Plan *p) {
    Arena *a = p->arena;
    Event *init = program(p, P_INIT, "init", 2)->events;
    init[0] = event("e0", "init_param", TO_INITIALIZE, INIT, NONE, LIST({MASTER, 0, 1024}));
    init[1] = event("e1", "zero", TO_INITIALIZE, INIT, NONE, LIST({MOMENT, 0, 1024}));
    program(p, P_START, "start", 0);
    Event *eval = program(p, P_EVAL, "eval", 2)->events;
    eval[0] = event("g0f", "all_gather", TO_UNSHARD, FORWARD, LIST({MASTER, 0, 1024}), LIST({EVAL_FULL, 0, 2048}));
    eval[1] = event("e0", "matmul", TO_COMPUTE, FORWARD, LIST({INPUT, 0, 256}, {EVAL_FULL, 0, 2048}),
                    LIST({EVAL_ACT, 0, 512}));
    eval[0].comm = eval[0].unit = 0;
    wait_for(a, &eval[1], 0);
}

Plan *small_plan(Arena *a) {
    static OptionValue option = {"layers", {"models/small.lua", 3}, "1 \"one\"\n", NULL};
    static const Axis shard = {0, "shard", 2, 1}, replicate = {1, "replicate", 1, 2}, world = {2, "world", 2, 1};
    static const Axis *axes[] = {&shard, &replicate, &world};
    static Comm comms[] = {{"shard", &shard, 0}, {"replicate", &replicate, 0}, {"world", &world, 0}};
    static PlanUnit unit = {"layers.0", 0, &shard, &replicate, NULL, 512, FP32, BF16, FP32, FP32, 3, MASTER};
    static LibraryLine line = {"context", 1.5e8, 1e6 / 3, "data sheet"};
    Plan *p = NEW(a, Plan);
    *p = (Plan){.arena = a,
                .model = "small",
                .target = "cpu",
                .device = "cpu",
                .world = 2,
                .nodes = 1,
                .options = &option,
                .noptions = 1,
                .units = &unit,
                .nunits = 1,
                .axes = axes,
                .naxes = 3,
                .comms = comms,
                .ncomms = 3,
                .library = &line,
                .nlibrary = 1,
                .device_usable = 2e9,
                .tokens_per_step = 128,
                .samples_per_step = 8,
                .microbatches = 1,
                .model_flops = 7e8,
                .model_flops_full = 8e8,
                .peak_dtype = FP32,
                .time_source = "data sheet",
                .time_off = 0.25,
                .peak_flops = 1e12};
    p->programs = NEW_ARRAY(a, PlanProgram, 4);
    p->nprograms = 4;
    storages(p);
    micro(p);
    other_programs(p);
    return p;
}
