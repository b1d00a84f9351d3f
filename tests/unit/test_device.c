/* What device profiles say of kernels: reading, refusals, and how times follow from points.
 * Relies on: Criterion; devices/, cost/.
 * Relied on by: make unit. */
#include "cost/timeline.h"
#include "devices/device.h"
#include "dies.h"
#include "lower/lower.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define FIELDS                                                                                                         \
    "name='x',target='cuda',source='s',memory_bandwidth=1e12,matmul_efficiency=0.5,link_bandwidth=1e11,"               \
    "network_bandwidth=1e10,link_latency_us=1,network_latency_us=10,host_bandwidth=1e10,launch_us=1,"                  \
    "host_optimizer_bandwidth=1e10,ranks_per_node=8,flops={fp32=1e13,bf16=1e14},"

static const char *write_profile(Arena *a, const char *more) { /* the caller removes it */
    char *path = arena_strdup(a, "/tmp/profile-XXXXXX.lua"), *text = arena_printf(a, "return {%s%s}", FIELDS, more);
    int fd = mkstemps(path, 4);
    cr_assert(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    return path;
}

static const Device *load(Arena *a, const char *more) {
    const char *path = write_profile(a, more);
    const Device *d = device_load(a, path);
    unlink(path);
    return d;
}

/* ── refusals ──────────────────────────────────────────────────────────────────────────────────────────────── */
static const struct {
    const char *text, *says;
} refused[] = {
    {"kernels=1", "`kernels` must be a table"},
    {"kernels={sums={{1,2}}}", "kernels.sums: there is no op of this name"},
    {"kernels={['sum slow']={{1,2}}}", "kernels.sum slow: there is no op of this name"},
    {"kernels={{1,2}}", "kernels.(a number): there is no op of this name"},
    {"kernels={sum=3}", "kernels.sum must be a list of points"},
    {"kernels={sum={}}", "kernels.sum must be a list of points"},
    {"kernels={sum={1}}", "kernels.sum[1] must be { bytes, us }"},
    {"kernels={sum={{1}}}", "kernels.sum[1] must be { bytes, us }"},
    {"kernels={sum={{1,2,3}}}", "kernels.sum[1] must be { bytes, us }"},
    {"kernels={matmul={{'bf16 nn',1,2,3,4,5,6,7,8,9,10,11}}}", "kernels.matmul[1] must be { bytes, us }"},
    {"kernels={sum={{1,-2}}}", "numbers must not be negative"},
    {"kernels={sum={{1,0}}}", "the time positive"},
    {"kernels={sum={{'a','b'}}}", "kernels.sum[1] must be { bytes, us }"},
    {"kernels={sum={{'a',1,'b'}}}", "numbers must not be negative"},
    {"kernels={sum={{1,2},{1,3}}}", "bytes must rise from point to point"},
    {"kernels={sum={{1,2},{2,1}}}", "times must not fall: { 2, 1 } after { 1, 2 }"},
    {"kernels={matmul={{1,2,3,4,5,6,7},{1,2,3,4,5,6}}}", "points of one variant must be equally long"},
    {"library={{name='a',source='b',byte=1}}", "a library line has no key `byte`"},
    {"library={{name='a',source='b',1}}", "a library line has no key `(a number)`"},
    {"library={{name='a',source='b',ops='sum'}}", "`ops` of a library line must be a list"},
    {"library={{name='a',source='b',ops={'sum','sum','sum','sum','sum','sum','sum','sum','sum'}}}", "at most 8 names"},
    {"library={{name='a',source='b',ops={'sums'}}}", "there is no op \"sums\""},
    {"ranks_per_node=7.5", "`ranks_per_node` must be a whole number from 0 to 1048576"},
    {"ranks_per_node=-1", "`ranks_per_node` must be a whole number from 0"},
    {"threads=1e17", "`threads` must be a whole number from 0 to 1048576"},
    {"threads={}", "`threads` must be a whole number from 0 to 1048576"},
    {"beside=1", "`beside` must be a table"},
    {"beside={sum={kernels=0,itself=0}}", "beside.sum: write all_gather"},
    {"beside={all_gather=1}", "beside.all_gather: write all_gather"},
    {"beside={all_gather={kernels=0.1}}", "beside.all_gather.itself must be a share"},
    {"power=1", "`power` must be a table"},
    {"power={watts=0}", "`watts` must not be 0"},
    {"power={idle=1}", "`watts` must be a number, not negative"},
    {"power={watts=100,idle=100}", "power.idle must be less than power.watts"},
    {"power={watts=100,flop={fp31=1}}", "power.flop has a key that is no dtype"},
    {"power={watts=100,flop={fp32=1e12}}", "power.flop.fp32 must be the joules of one FLOP"},
    {"power={watts=100,attention={fp31=1}}", "power.attention has a key that is no dtype"},
    {"power={watts=100,matmul={bf16=-1}}", "power.matmul.bf16 must be the joules of one FLOP"},
    {"like='h300'", "like = \"h300\": write the name of a built-in profile"},
    {"like='h200'", "like = \"h200\": write the name of a built-in profile"},
    {"beside={all_gather={kernels=11,itself=0}}", "beside.all_gather.kernels must be a share"},
};

Test(device, points_that_say_nothing_are_refused_with_a_reason) {
    Arena *a = arena_new();
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const char *path = write_profile(a, refused[i].text);
        char text[2048];
        int got = DIES(text, sizeof text, device_load(a, path));
        unlink(path);
        cr_assert(got == 1, "%s: exit %d", refused[i].text, got);
        cr_assert(strstr(text, refused[i].says), "expected \"%s\" in \"%s\"", refused[i].says, text);
    }
    arena_free(a);
}

/* ── times ─────────────────────────────────────────────────────────────────────────────────────────────────── */
static double time_of(const Device *d, Op *op, double bytes) {
    Event e = {.stream = COMPUTE, .comm = -1, .op_ir = op, .bytes = bytes};
    return device_event_us(d, &e, 1, 1);
}

static Op *sum_of(Graph *g) {
    Op *op = op_new(g, OP_sum);
    op->in[op->nin++] = value_new(g, FP32, 1, (int64_t[]){1000});
    op->out[op->nout++] = value_new(g, FP32, 1, (int64_t[]){1});
    return op;
}

Test(device, a_curve_passes_through_its_points_and_never_falls) {
    Arena *a = arena_new();
    Graph *g = graph_new(a);
    const Device *d = load(a, "kernels={sum={{1000,2},{10000,3},{1000000,50},{2000000,50}}}");
    Op *op = sum_of(g);
    cr_assert_float_eq(time_of(d, op, 1000), 2, 1e-9);
    cr_assert_float_eq(time_of(d, op, 10000), 3, 1e-9);
    cr_assert_float_eq(time_of(d, op, 1), 2, 1e-9);
    cr_assert_float_eq(time_of(d, op, 505000), 26.5, 1e-9);
    cr_assert_float_eq(time_of(d, op, 4000000), 98, 0.01);
    double last = 0;
    for (double bytes = 1; bytes < 1e8; bytes *= 1.05) {
        double us = time_of(d, op, bytes);
        cr_assert(us >= last, "%g bytes take %g us, fewer %g", bytes, us, last);
        last = us;
    }
    arena_free(a);
}

/* Beyond the last point: at the rate of that point, never faster than memory (1e12 B/s), and not by the latency of a
 * point whose bytes take less than a launch (1 us). */
Test(device, no_curve_is_extrapolated_beyond_bandwidth) {
    static const struct {
        const char *points;
        double us; /* of 1e9 bytes, which memory moves in 1000 us */
    } cases[] = {{"{{256,0.94}}", 1001},     {"{{256,0.94},{4096,1.1}}", 1001}, {"{{1e8,201}}", 2001},
                 {"{{1e8,50}}", 950},        {"{{1e3,3},{1e8,203}}", 2003},     {"{{1e3,3},{1e8,53}}", 953},
                 {"{{1e3,3},{1e5,3}}", 1003}};
    Arena *a = arena_new();
    Graph *g = graph_new(a);
    Op *op = sum_of(g), *copy = op_new(g, OP_fetch);
    copy->in[copy->nin++] = value_new(g, FP32, 1, (int64_t[]){250000000});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Device *d = load(a, arena_printf(a, "kernels={sum=%s}", cases[i].points));
        double us = time_of(d, op, 1e9);
        cr_expect(fabs(us - cases[i].us) < 0.2, "%s: %g us", cases[i].points, us);
    }
    const Device *d = load(a, "kernels={all_gather={{'4 ranks',256,5}},fetch={{256,5}}}");
    Event gather = {.stream = GATHER, .comm = 2, .op_ir = op_new(g, OP_all_gather), .bytes = 1e9};
    Event fetch = {.stream = FETCH, .comm = -1, .op_ir = copy, .bytes = 1e9};
    cr_expect_float_eq(device_event_us(d, &gather, 4, 4), 10005, 1);
    cr_expect_float_eq(device_event_us(d, &fetch, 1, 1), 100005, 1);
    arena_free(a);
}

static Op *product(Graph *g, int64_t m, int64_t n, int64_t k) {
    Op *op = op_new(g, OP_matmul);
    op->in[op->nin++] = value_new(g, BF16, 2, (int64_t[]){m, k});
    op->in[op->nin++] = value_new(g, BF16, 2, (int64_t[]){k, n});
    op->out[op->nout++] = value_new(g, BF16, 2, (int64_t[]){m, n});
    return op;
}

static double ideal(double m, double n, double k) {
    return fmax(2 * m * n * k / 1e14, 2 * (m * n + m * k + n * k) / 1e12) * 1e6 + 1;
}

/* Between measured sizes a product is as far from the ideal as its neighbours are. */
Test(device, products_lie_between_those_that_were_measured) {
    Arena *a = arena_new();
    Graph *g = graph_new(a);
    const Device *d = load(a, "kernels={matmul={"
                              "{'bf16 nn',2.147483648e9,6291456,1024,1024,1024,1,50},"
                              "{'bf16 nn',1.37438953472e11,100663296,4096,4096,4096,1,2000}}}");
    cr_assert_float_eq(time_of(d, product(g, 1024, 1024, 1024), 0), 50, 1e-3);
    cr_assert_float_eq(time_of(d, product(g, 4096, 4096, 4096), 0), 2000, 1e-2);
    double small = 50 / ideal(1024, 1024, 1024), large = 2000 / ideal(4096, 4096, 4096);
    for (int64_t m = 64; m <= 65536; m *= 2)
        for (int64_t n = 64; n <= 65536; n *= 4) {
            double x = time_of(d, product(g, m, n, 2048), 0) / ideal((double)m, (double)n, 2048);
            cr_assert(x > fmin(small, large) * 0.999 && x < fmax(small, large) * 1.001, "%g", x);
        }
    arena_free(a);
}

/* 3 us of a product that the arithmetic takes 0.02 us of are latency: larger products are not three times their ideal.
 */
Test(device, a_product_that_is_all_latency_says_nothing_of_larger_ones) {
    Arena *a = arena_new();
    Graph *g = graph_new(a);
    const char *tiny = "{'bf16 nn',524288,24576,64,64,64,1,3}",
               *large = "{'bf16 nn',2.147483648e9,6291456,1024,1024,1024,1,50}";
    const Device *one = load(a, arena_printf(a, "kernels={matmul={%s}}", tiny));
    const Device *two = load(a, arena_printf(a, "kernels={matmul={%s,%s}}", tiny, large));
    Event e = {.stream = COMPUTE, .comm = -1, .op_ir = product(g, 4096, 4096, 4096), .flops = 2 * pow(4096, 3)};
    cr_expect_float_eq(time_of(one, product(g, 64, 64, 64), 0), 3, 1e-3);
    cr_expect_float_eq(device_event_us(one, &e, 1, 1), 2 * pow(4096, 3) / 0.5e14 * 1e6, 1e-3);
    cr_expect_float_eq(device_event_us(two, &e, 1, 1), 50 / ideal(1024, 1024, 1024) * ideal(4096, 4096, 4096), 1e-2);
    arena_free(a);
}

Test(device, what_was_not_measured_is_a_roofline) {
    Arena *a = arena_new();
    Graph *g = graph_new(a);
    const Device *none = load(a, ""), *other = load(a, "kernels={matmul={{'fp16 nn',1,2,3,4,5,1,50}}}");
    Event e = {.stream = COMPUTE, .comm = -1, .op_ir = product(g, 4096, 4096, 4096), .flops = 2 * pow(4096, 3)};
    cr_assert_float_eq(device_event_us(none, &e, 1, 1), 2 * pow(4096, 3) / 0.5e14 * 1e6, 1e-3);
    cr_assert_float_eq(device_event_us(other, &e, 1, 1), 2 * pow(4096, 3) / 0.5e14 * 1e6, 1e-3);
    arena_free(a);
}

static Op *narrow_product(Graph *g, Dtype a, Dtype b, Dtype y) {
    Op *op = product(g, 1024, 1024, 1024);
    op->matmul.a->dtype = a, op->matmul.b->dtype = b, op->matmul.y->dtype = y;
    op->matmul.trans_b = true;
    return op;
}

/* Of 8 bits into fp16 as into bf16; e4m3 by e5m2 not as e4m3 by e4m3. */
Test(device, products_in_fp8_are_told_by_both_dtypes) {
    Arena *a = arena_new();
    Graph *g = graph_new(a);
    const Device *d = load(a, "kernels={matmul={{'fp8_e4m3>bf16 nt',2.147483648e9,4194304,1024,1024,1024,1,50}}}");
    cr_expect_float_eq(time_of(d, narrow_product(g, FP8_E4M3, FP8_E4M3, BF16), 0), 50, 1e-3);
    cr_expect_float_eq(time_of(d, narrow_product(g, FP8_E4M3, FP8_E4M3, FP16), 0), 50, 1e-3);
    cr_expect(time_of(d, narrow_product(g, FP8_E4M3, FP8_E5M2, BF16), 0) < 40);
    cr_expect(time_of(d, narrow_product(g, FP8_E5M2, FP8_E4M3, BF16), 0) < 40);
    arena_free(a);
}

Test(device, gpus_with_e4m3_have_e5m2_at_the_same_rate) {
    Arena *a = arena_new();
    const char *path = arena_strdup(a, "/tmp/profile-XXXXXX.lua");
    int fd = mkstemps((char *)path, 4);
    dprintf(fd, "return { name='some', target='cuda', source='data sheet', like='h100', sheet_bandwidth=1e12,"
                "flops={bf16=1e14,fp8_e4m3=2e14,fp32=1e13}, power={watts=350}, link_bandwidth=1e11 }");
    close(fd);
    const Device *d = device_load(a, path);
    unlink(path);
    cr_expect_eq(d->flops[FP8_E5M2], 2e14);
    cr_expect_eq(device_load(a, "a100")->flops[FP8_E5M2], 0);
    cr_expect_eq(device_capability("sm_89"), 89);
    cr_expect_eq(device_capability("sm_100"), 100);
    cr_expect_eq(device_capability(NULL), 0);
    arena_free(a);
}

Test(device, collectives_are_measured_by_the_number_of_ranks_and_run_beside_kernels) {
    Arena *a = arena_new();
    Graph *g = graph_new(a);
    const Device *d = load(a, "kernels={all_gather={{'4 ranks',1000,5},{'4 ranks',1000000,50}}},"
                              "beside={all_gather={kernels=0.25,itself=0.5}}");
    Op *op = op_new(g, OP_all_gather);
    Event e = {.stream = GATHER, .comm = 2, .op_ir = op, .bytes = 1000000};
    cr_assert_float_eq(device_event_us(d, &e, 4, 4), 75, 1e-9);
    cr_assert_float_eq(device_event_slows(d, &e), 0.25, 1e-9);
    double two = device_event_us(d, &e, 2, 2);
    cr_assert_float_eq(two, (1 + 1 + 10) * 1.5, 1e-9, "%g", two);
    arena_free(a);
}

/* While the gather lasts (75 us) kernels do 1 / 1.25 of their work, whichever was issued first. */
Test(device, kernels_beside_a_collective_take_longer) {
    for (int gather = 0; gather < 3; gather++) {
        Arena *a = arena_new();
        Graph *g = graph_new(a);
        const Device *d = load(a, "kernels={all_gather={{'4 ranks',1000,5},{'4 ranks',1000000,50}},sum={{1000,100}}},"
                                  "beside={all_gather={kernels=0.25,itself=0.5}}");
        Event events[3];
        for (int i = 0; i < 3; i++)
            events[i] =
                (Event){.id = "e", .stream = COMPUTE, .comm = -1, .unit = -1, .bytes = 1000, .op_ir = sum_of(g)};
        events[gather] = (Event){
            .id = "g", .stream = GATHER, .comm = 2, .unit = -1, .bytes = 1000000, .op_ir = op_new(g, OP_all_gather)};
        PlanProgram program = {.name = "micro", .events = events, .n = 3};
        const Axis four = {0, "shard", 4, 1}, one = {1, "replicate", 1, 4};
        Comm comms[] = {{"shard", &four, 0}, {"replicate", &one, 0}, {"world", &four, 0}};
        Plan p = {.arena = a, .programs = &program, .nprograms = 1, .world = 4, .comms = comms, .ncomms = 3};
        cost_simulate(&p, d);
        const Event *first = &events[gather == 0], *second = &events[gather == 2 ? 1 : 2];
        cr_assert_float_eq(events[gather].duration_us, 75, 1e-9);
        cr_assert_float_eq(first->duration_us, 115, 1e-9);
        cr_assert_float_eq(second->start_us, 115, 1e-9);
        cr_assert_float_eq(second->duration_us, 100, 1e-9);
        arena_free(a);
    }
}

/* 100 us each by itself: both ways at once they take half as long again, and what is left of the second fetch does not;
 * where two ranks share a memory that gives them a third of what their buses could take, three times as long. */
Test(device, copies_up_and_down_slow_each_other) {
    for (int world = 1; world <= 2; world++) {
        Arena *a = arena_new();
        Graph *g = graph_new(a);
        const Device *d =
            load(a, "kernels={fetch={{1000,100}},offload={{1000,100}}},host_both=1.3333333333e10,host_reads=1e12,"
                    "beside={fetch={kernels=0,itself=0.5},offload={kernels=0,itself=0.5}}");
        Op *up = op_new(g, OP_fetch), *down = op_new(g, OP_offload);
        up->in[up->nin++] = down->in[down->nin++] = value_new(g, FP32, 1, (int64_t[]){250});
        Event events[] = {{.id = "f0", .stream = FETCH, .comm = -1, .unit = -1, .bytes = 1000, .op_ir = up},
                          {.id = "o0", .stream = OFFLOAD, .comm = -1, .unit = -1, .bytes = 1000, .op_ir = down},
                          {.id = "f1", .stream = FETCH, .comm = -1, .unit = -1, .bytes = 1000, .op_ir = up}};
        PlanProgram program = {.name = "micro", .events = events, .n = 3};
        Plan p = {.arena = a, .programs = &program, .nprograms = 1, .world = world};
        cost_simulate(&p, d);
        double both = world == 1 ? 150 : 300;
        cr_expect_float_eq(events[0].duration_us, both, 1e-6);
        cr_expect_float_eq(events[1].duration_us, both, 1e-6);
        cr_expect_float_eq(events[2].start_us, both, 1e-6);
        cr_expect_float_eq(events[2].duration_us, 100, 1e-6);
        arena_free(a);
    }
}

/* Arithmetic that does not hide behind the bytes is added to them. */
Test(device, functions_in_pointwise_groups_take_what_they_take_beyond_their_bytes) {
    Arena *a = arena_new();
    Graph *g = graph_new(a);
    const Device *d = load(a, "kernels={fused={{8000,8},{80000,80}},gelu={{8000,10}}}");
    Op *gelu = op_new(g, OP_gelu), *group = op_new(g, OP_fused);
    Value *x = value_new(g, FP32, 1, (int64_t[]){1000}), *y = value_new(g, FP32, 1, (int64_t[]){1000});
    gelu->in[gelu->nin++] = group->in[group->nin++] = x;
    gelu->out[gelu->nout++] = group->out[group->nout++] = y;
    group->body = &gelu;
    group->nbody = 1;
    cr_assert_float_eq(time_of(d, group, 8000), 10, 1e-9);
    arena_free(a);
}

/* Lines that a plan does not call for are left out. */
Test(device, the_footprint_is_that_of_what_the_plan_does) {
    Arena *a = arena_new();
    Graph *g = graph_new(a);
    const Device *d = load(a, "library={{name='context',bytes=500,per_event=2,source='s'},"
                              "{name='cuDNN',bytes=10,ops={'attention','sum'},source='s'},"
                              "{name='NCCL',bytes=100,ranks=2,source='s'},{name='NCCL',bytes=200,ranks=4,source='s'}}");
    Event events[] = {{.id = "e0", .op_ir = sum_of(g)}, {.id = "e1", .op_ir = product(g, 8, 8, 8)}};
    PlanProgram program = {.name = "micro", .events = events, .n = 2};
    Plan p = {.arena = a, .programs = &program, .nprograms = 1, .world = 1};
    device_footprint(&p, d);
    cr_assert_eq(p.nlibrary, 2);
    cr_assert_float_eq(p.library[0].bytes, 504, 1e-9);
    cr_assert_float_eq(p.library[1].bytes, 10, 1e-9);
    events[0].op_ir = events[1].op_ir;
    p.world = 3;
    device_footprint(&p, d);
    cr_assert_eq(p.nlibrary, 2);
    cr_assert_float_eq(p.library[1].bytes, 100, 1e-9);
    p.world = 8;
    device_footprint(&p, d);
    cr_assert_eq(p.nlibrary, 2);
    cr_assert_float_eq(p.library[1].bytes, 200, 1e-9);
    double inside = p.library[1].tolerance;
    p.nodes = 2; /* what was measured in a node is extrapolated */
    device_footprint(&p, d);
    cr_assert_float_eq(p.library[1].tolerance, inside + 100, 1e-9);
    cr_assert_str_eq(p.library[1].source, "s; extrapolated beyond one node");
    cr_assert_str_eq(p.library[0].source, "s");
    arena_free(a);
}

/* ── clock ─────────────────────────────────────────────────────────────────────────────────────────────────── */
#define POWER "power={watts=400,idle=100,exponent=1,byte=1e-10,flop={fp32=1e-11,bf16=4e-12}},"

/* The clock falls until the mean power is the limit: E(slower) / T(slower) = 400 W. */
Test(device, arithmetic_slows_down_until_power_is_the_limit) {
    Arena *a = arena_new();
    Graph *g = graph_new(a);
    const Device *d = load(a, POWER);
    Event events[] = {{.id = "e0", .comm = -1, .unit = -1, .op_ir = product(g, 4096, 4096, 4096)},
                      {.id = "e1", .comm = -1, .unit = -1, .op_ir = sum_of(g), .bytes = 1e9}};
    events[0].flops = 2 * pow(4096, 3);
    events[0].bytes = 3 * 2 * 4096.0 * 4096;
    PlanProgram p = {.name = "micro", .events = events, .n = 2};
    double joules = 2 * pow(4096, 3) * 4e-12, bytes = (events[0].bytes + 1e9) * 1e-10;
    for (double arithmetic = 500; arithmetic < 3000; arithmetic += 250) {
        double other = 1000, slower = device_throttle(d, &p, arithmetic, other);
        double watts = 100 + (joules / slower + bytes) / ((arithmetic * slower + other) * 1e-6);
        double at_most = 100 + (joules + bytes) / ((arithmetic + other) * 1e-6);
        if (at_most <= 400)
            cr_expect_eq(slower, 1);
        else
            cr_expect(slower > 1 && fabs(watts - 400) < 0.1, "%g us: %g times slower, %g W", arithmetic, slower, watts);
    }
    cr_expect_eq(device_throttle(load(a, ""), &p, 1, 1), 1);
    cr_expect(device_event_is_arithmetic(&events[0]) && !device_event_is_arithmetic(&events[1]));
    Plan plan = {.arena = a, .programs = &p, .nprograms = 1, .world = 1};
    cost_simulate(&plan, d);
    double full = device_event_us(d, &events[0], 1, 1), sum = device_event_us(d, &events[1], 1, 1);
    cr_expect_float_eq(events[1].duration_us, sum, 1e-6);
    cr_expect_float_eq(events[0].duration_us, full * device_throttle(d, &p, full, sum), 1e-3);
    arena_free(a);
}

/* ── scaled profiles ───────────────────────────────────────────────────────────────────────────────────────── */
/* Half an H100 by its data sheet: products and what streams through memory take twice as long, launches do not. */
Test(device, a_profile_like_another_scales_what_was_measured_there) {
    Arena *a = arena_new();
    Graph *g = graph_new(a);
    const Device *base = device_load(a, "h100");
    const char *path = arena_strdup(a, "/tmp/profile-XXXXXX.lua");
    int fd = mkstemps((char *)path, 4);
    dprintf(fd, "return { name='half', target='cuda', source='data sheet', like='h100', sheet_bandwidth=1.675e12,"
                "flops={bf16=494.5e12,fp32=33.5e12}, power={watts=350}, link_bandwidth=1e11, link_latency_us=4,"
                "network_bandwidth=1e10, network_latency_us=10, host_bandwidth=1e10, launch_us=1.04,"
                "host_optimizer_bandwidth=1e10 }");
    close(fd);
    const Device *half = device_load(a, path);
    unlink(path);
    cr_expect_float_eq(half->memory_bandwidth, base->memory_bandwidth / 2, 1);
    Op *large = product(g, 16384, 4096, 4096), *sum = sum_of(g);
    Event e = {.comm = -1, .unit = -1, .op_ir = large, .flops = 2 * 16384.0 * 4096 * 4096, .bytes = 1e8};
    double ratio = device_event_us(half, &e, 1, 1) / device_event_us(base, &e, 1, 1);
    cr_expect(ratio > 1.95 && ratio < 2.01, "%g", ratio);
    ratio = time_of(half, sum, 1e9) / time_of(base, sum, 1e9);
    cr_expect(ratio > 1.95 && ratio < 2.01, "%g", ratio);
    cr_expect_float_eq(time_of(half, sum, 1e6), time_of(base, sum, 1e6), 1e-9);
    /* the same mix draws the same share of the limit */
    PlanProgram p = {.name = "micro", .events = &e, .n = 1};
    double us = device_event_us(base, &e, 1, 1), slower = device_throttle(base, &p, us, 0);
    cr_expect(slower > 1.05, "%g", slower);
    cr_expect_float_eq(device_throttle(half, &p, 2 * us, 0), slower, 1e-3);
    arena_free(a);
}

/* No step is slower on a device whose data sheet has more of everything. */
Test(device, data_sheets_do_not_contradict_the_order_of_devices) {
    static const char *const names[] = {"h200", "h100", "a100", "b200", "l40s", "rtx4090"};
    enum { N = 6 };
    Arena *a = arena_new();
    Graph *g = graph_new(a);
    const Device *d[N];
    int compared = 0;
    for (int i = 0; i < N; i++) d[i] = device_load(a, names[i]);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            if (i == k || d[i]->flops[BF16] < d[k]->flops[BF16] || d[i]->flops[FP32] < d[k]->flops[FP32] ||
                d[i]->sheet_bandwidth < d[k]->sheet_bandwidth || d[i]->link_bandwidth < d[k]->link_bandwidth)
                continue;
            for (int64_t tokens = 128; tokens <= 65536; tokens *= 8)
                for (double bytes = 1e5; bytes < 1e11; bytes *= 10) {
                    Op *p = product(g, tokens, 4096, 4096);
                    Event events[] = {{.id = "e0", .comm = -1, .unit = -1, .op_ir = p},
                                      {.id = "e1", .comm = -1, .unit = -1, .op_ir = sum_of(g), .bytes = bytes}};
                    events[0].flops = 2.0 * (double)tokens * 4096 * 4096;
                    events[0].bytes = 2 * (2.0 * (double)tokens * 4096 + 4096.0 * 4096);
                    PlanProgram program = {.name = "micro", .events = events, .n = 2};
                    Plan plan = {.arena = a, .programs = &program, .nprograms = 1, .world = 1};
                    cost_simulate(&plan, d[i]);
                    double faster = program.step_us;
                    cost_simulate(&plan, d[k]);
                    compared++;
                    cr_expect(faster <= program.step_us * 1.0001, "%s %g us, %s %g us: %d tokens, %g bytes", names[i],
                              faster, names[k], program.step_us, (int)tokens, bytes);
                }
        }
    cr_expect(compared > 100, "%d", compared);
    arena_free(a);
}

/* ── networks ──────────────────────────────────────────────────────────────────────────────────────────────── */
static double gather_us(const Device *d, double bytes, int group, int here) {
    Event e = {.stream = GATHER, .comm = 0, .unit = -1, .bytes = bytes};
    return device_event_us(d, &e, group, here);
}

Test(device, more_nodes_take_longer_and_bytes_no_less) {
    Arena *a = arena_new();
    const Device *d = device_load(a, "h100");
    for (double bytes = 1e3; bytes < 1e10; bytes *= 10) {
        double last = 0;
        for (int nodes = 2; nodes <= 2048; nodes *= 2) {
            double us = gather_us(d, bytes, 8 * nodes, 8);
            cr_expect(us > last && us >= bytes / d->link_bandwidth * 1e6, "%d nodes, %g bytes: %g us", nodes, bytes,
                      us);
            cr_expect(gather_us(d, bytes, nodes, 1) >= bytes / d->network_bandwidth * 1e6);
            last = us;
        }
    }
    /* a ring passes all ranks: hops add up; a sum in place over a tree does not */
    cr_expect(gather_us(d, 1e6, 16384, 8) > 10e3);
    Access at = {.storage = 1, .size = 4};
    Event sum = {.op = "all_reduce",
                 .stream = REDUCE,
                 .comm = 0,
                 .unit = -1,
                 .bytes = 8,
                 .reads = &at,
                 .nreads = 1,
                 .writes = &at,
                 .nwrites = 1};
    cr_expect(device_event_us(d, &sum, 16384, 8) < 500);
    arena_free(a);
}

/* Between nodes a gather and a reduction share the network: bytes take twice as long meanwhile. */
Test(device, gathers_and_reductions_share_the_network) {
    Arena *a = arena_new();
    const Device *d = load(a, "");
    const Axis axis = {.size = 16, .stride = 1};
    Comm comm = {.axis = &axis};
    Event events[] = {{.id = "g0", .stream = GATHER, .comm = 0, .unit = -1, .bytes = 1e9},
                      {.id = "r0", .stream = REDUCE, .comm = 0, .unit = -1, .bytes = 1e9}};
    for (int n = 1; n <= 2; n++) {
        PlanProgram program = {.name = "micro", .events = events, .n = n};
        Plan p = {
            .arena = a, .programs = &program, .nprograms = 1, .world = 16, .nodes = 2, .comms = &comm, .ncomms = 1};
        cost_simulate(&p, d);
        double moving = 1e9 / 8e10 * 1e6;
        cr_expect(events[0].duration_us > n * moving && events[0].duration_us < 1.05 * n * moving, "%d: %g us", n,
                  events[0].duration_us);
    }
    arena_free(a);
}

Test(device, every_profile_can_be_read) {
    static const char *const names[] = {"cpu", "h200", "h100", "a100", "b200", "l40s", "rtx4090"};
    Arena *a = arena_new();
    for (int i = 0; i < 7; i++) {
        const Device *d = device_load(a, names[i]);
        cr_assert_str_eq(d->name, names[i]);
        bool told =
            strstr(d->source, "data sheet") || strstr(d->source, "measured") || strstr(d->source, "rough figures");
        cr_assert(told && d->kernels_off > 0 && d->network_off > 0, "%s: %s", names[i], d->source);
    }
    arena_free(a);
}
