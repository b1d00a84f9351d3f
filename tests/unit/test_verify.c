/* Each rule of verify: the small plan is sound, and each way to break it is refused under the right name.
 * Relies on: small_plan.h, verify.
 * Relied on by: make test. */
#include "small_plan.h"

#include <criterion/criterion.h>

static Plan *plan;
static Event *micro_events;

static void setup(void) {
    plan = small_plan(arena_new());
    micro_events = plan->programs[P_MICRO].events;
}

TestSuite(verify, .init = setup);

static const Finding *finding(const char *rule) {
    const Findings *f = verify(plan->arena, plan);
    for (int i = 0; i < f->n; i++)
        if (!strcmp(f->at[i].rule, rule)) return &f->at[i];
    return NULL;
}

static void expect(const char *rule, const char *first, const char *second, const char *text) {
    const Finding *f = finding(rule);
    cr_assert_not_null(f, "no finding of %s", rule);
    if (first) cr_assert_str_eq(f->first, first);
    if (second) cr_assert_str_eq(f->second, second);
    cr_assert(strstr(f->text, text), "\"%s\" is not in \"%s\"", text, f->text);
}

Test(verify, small_plan_is_sound) {
    const Findings *f = verify(plan->arena, plan);
    cr_assert_eq(f->n, 0, "%s", f->n ? f->at[0].text : "");
}

Test(verify, dropped_wait_before_a_read) {
    micro_events[FORWARD_1].nwaits = 0;
    expect("read-before-write", "e0", "g0f", "no edge from g0f to e0");
}

Test(verify, dropped_wait_before_reuse_of_bytes) {
    plan->storages[GRAD_SHARD].offset = 2560;
    micro_events[REDUCE_1].nwaits = 0;
    expect("overlap", "r0", "e0b0", "no edge from e0b0 to r0");
}

Test(verify, every_wait_is_needed) {
    for (int g = 0; g < plan->nprograms; g++)
        for (int e = 0; e < plan->programs[g].n; e++) {
            Event *ev = &plan->programs[g].events[e];
            for (int i = 0; i < ev->nwaits; i++) {
                int gone = ev->waits[i];
                ev->waits[i] = ev->waits[--ev->nwaits];
                cr_assert_gt(verify(plan->arena, plan)->n, 0, "%s waits for nothing at %d", ev->id, gone);
                ev->waits[ev->nwaits++] = gone;
            }
        }
}

Test(verify, wait_that_points_forward) {
    micro_events[FORWARD_1].waits[0] = REDUCE_1;
    expect("wait", "e0", "r0", "issued after it");
}

Test(verify, wait_for_itself) {
    micro_events[FORWARD_1].waits[0] = FORWARD_1;
    expect("wait", "e0", "e0", "issued with it");
}

Test(verify, wait_on_the_same_stream) {
    micro_events[BACKWARD_1].waits = (int[]){FORWARD_1};
    micro_events[BACKWARD_1].nwaits = 1;
    expect("wait", "e1b0", "e0", "own stream");
}

Test(verify, wait_out_of_range) {
    micro_events[FORWARD_1].waits[0] = 99;
    expect("wait", "e0", NULL, "event number 99");
}

Test(verify, missing_write) {
    micro_events[BACKWARD_1].nwrites = 0;
    expect("read-before-write", "r0", NULL, "bytes 0 to 1024 of r0.full");
}

Test(verify, race_of_two_writers) {
    micro_events[BACKWARD_2].stream = HOST;
    micro_events[BACKWARD_2].writes[0] = (Access){FULL_GRAD, 512, 1536};
    micro_events[BACKWARD_2].reads[0] = (Access){INPUT, 0, 256};
    expect("race", "e0b0", "e1b0", "no edge from e1b0 to e0b0");
}

Test(verify, two_results_in_one_place) {
    Event *e = &micro_events[BACKWARD_1];
    Access *twice = NEW_ARRAY(plan->arena, Access, 2);
    twice[0] = twice[1] = e->writes[0];
    e->writes = twice;
    e->nwrites = 2;
    twice[1].offset += 4; /* in the gaps of the first, as far as a plan says */
    cr_expect_null(finding("race"));
    twice[1].offset -= 4;
    expect("race", "e1b0", NULL, "e1b0 writes two results from byte ");
}

Test(verify, write_while_read) {
    micro_events[LOSS_1].stream = HOST;
    micro_events[LOSS_1].waits = (int[]){FORWARD_1};
    micro_events[LOSS_1].nwaits = 1;
    expect("read-before-write", "e1b0", "e1", "no edge from e1 to e1b0");
    micro_events[LOSS_1].nreads = 0;
    micro_events[BACKWARD_1].nwrites = 0;
    micro_events[BACKWARD_1].reads[0] = (Access){ACT, 0, 512};
    Event t = micro_events[LOSS_1]; /* now issued after a read that it does not wait for */
    micro_events[LOSS_1] = micro_events[BACKWARD_1];
    micro_events[BACKWARD_1] = t;
    expect("race", "e1", "e1b0", "no edge from e1b0 to e1");
}

/* e1 only reads, on a stream of its own, and nobody waits for it. */
static void read_beside(Stream s, Access what) {
    setup();
    Event *e = &micro_events[LOSS_1];
    e->stream = s;
    e->waits = NEW_ARRAY(plan->arena, int, 1);
    e->waits[0] = FORWARD_1;
    e->nwaits = 1;
    e->reads[0] = what;
    e->nwrites = 0;
}

Test(verify, readers_of_every_stream_count) {
    for (int s = 0; s < N_STREAMS; s++) {
        if (s == COMPUTE || s == REDUCE) continue; /* those that follow are in order */
        read_beside((Stream)s, (Access){ACT, 0, 512});
        micro_events[BACKWARD_1].writes[0] = (Access){ACT, 0, 512};
        expect("race", "e1b0", "e1", "no edge from e1 to e1b0");
        read_beside((Stream)s, (Access){FULL, 0, 2048});
        expect("overlap", "r0", "e1", "no edge from e1 to r0"); /* its result lies where FULL was */
    }
}

Test(verify, storages_overlap_on_the_host) {
    plan->arena_bytes[ARENA_HOST] = 7168;
    plan->storages[ACT].arena = plan->storages[FULL_GRAD].arena = ARENA_HOST;
    plan->storages[FULL_GRAD].offset = 4608;
    expect("overlap", NULL, NULL, "of the host arena");
    setup();
    plan->arena_bytes[ARENA_HOST] = 2048;
    plan->storages[MASTER].arena = plan->storages[MOMENT].arena = ARENA_HOST;
    cr_assert_null(finding("overlap"));
    plan->storages[MOMENT].offset = 512;
    expect("overlap", NULL, NULL, "bytes 0x200 to 0x400 of the host arena");
}

Test(verify, buffers_are_written_by_programs) { /* the host writes inputs and the record alone */
    plan->storages[INPUT].cls = C_BUFFERS;
    expect("succession", "e0", NULL, "tokens, which nothing has written");
}

Test(verify, times) { /* every event takes 12.5 us */
    PlanProgram *p = &plan->programs[P_MICRO];
    Times t = verify_program_times(plan->arena, p);
    cr_expect_float_eq(t.forward_ms, 0.0375, 1e-9);
    cr_expect_float_eq(t.step_ms, 0.0875, 1e-9);
    cr_expect_float_eq(t.exposed_ms, 0.025, 1e-9, "the gather and the reduce");
    micro_events[UPDATE_1].stream = FETCH;
    t = verify_program_times(plan->arena, p);
    cr_expect_float_eq(t.exposed_ms, 0.0375, 1e-9, "the gather, and two events after compute has ended");
    read_beside(OFFLOAD, (Access){ACT, 0, 512});
    micro_events[LOSS_1].duration_us = 1000;
    t = verify_program_times(plan->arena, &plan->programs[P_MICRO]);
    cr_expect_float_eq(t.forward_ms, 0.025, 1e-9, "an offload is no part of the forward");
    cr_expect_float_eq(t.step_ms, 1.025, 1e-9);
}

Test(verify, storages_overlap) {
    plan->storages[FULL_GRAD].offset = 4608;
    expect("overlap", NULL, NULL, "e0.0 and r0.full share bytes 0x1200 to 0x1400 of the device arena");
}

Test(verify, overlap_of_a_big_one_with_many_small) {
    plan->storages[ACT].offset = 3072; /* inside FULL */
    expect("overlap", NULL, NULL, "share bytes 0xc00 to 0xe00");
}

Test(verify, same_event_ends_and_begins) {
    plan->storages[FULL_GRAD].offset = 2560; /* FULL's bytes: e0b0 reads the one and writes the other */
    expect("overlap", "e1b0", NULL, "g0f.0");
}

Test(verify, persistent_overlaps) {
    plan->storages[MOMENT].offset = 512;
    expect("overlap", NULL, NULL, "layers.0/master is alive in every program");
    setup();
    plan->storages[EVAL_ACT].offset = 2304;
    expect("overlap", NULL, NULL, "record is alive in every program");
}

Test(verify, collectives_unordered) {
    plan->storages[MASTER].offset = 6144; /* nothing else may order them */
    plan->storages[FULL_GRAD].offset = 0;
    Event *e = micro_events;
    e[REDUCE_1].nwaits = 0;
    e[REDUCE_1].nreads = 0;
    expect("collective-order", "r0", "g0f", "no edge from g0f to r0");
}

Test(verify, bounds) {
    micro_events[GATHER_F].writes[0].size = 4096;
    expect("bounds", "g0f", NULL, "bytes 0 to 4096 of g0f.0, which has 2048");
    setup();
    plan->storages[FULL_GRAD].offset = 6144;
    expect("bounds", NULL, NULL, "outside the device arena of 7168 bytes");
    setup();
    micro_events[GATHER_F].writes[0].storage = 77;
    expect("bounds", "g0f", NULL, "storage number 77");
    setup();
    micro_events[GATHER_F].writes[0].storage = EVAL_FULL;
    expect("bounds", "g0f", NULL, "belongs to eval");
    setup();
    plan->storages[FULL].last = FORWARD_1;
    expect("bounds", "e0b0", NULL, "after its declared life");
    setup();
    plan->storages[ACT].first = LOSS_1;
    expect("bounds", "e0", NULL, "before its declared life");
    setup();
    plan->storages[ACT].program = 9;
    expect("bounds", NULL, NULL, "program number 9");
}

/* A plan of two ranks whose axes are those of `sizes` and `strides`, named as in a model's mesh. */
static void lie_along(int naxes, const int sizes[4], const int strides[4]) {
    static Axis axes[4];
    static const Axis *list[4];
    static Comm comms[4];
    static PlanUnit unit;
    static const char *const names[] = {"shard", "replicate", "world", "other"};
    for (int i = 0; i < naxes; i++) {
        axes[i] = (Axis){i, names[i], sizes[i], strides[i]};
        list[i] = &axes[i];
        comms[i] = (Comm){names[i], &axes[i], 0};
    }
    unit = plan->units[0];
    unit.shard = &axes[naxes == 4 ? 3 : 0], unit.replicate = &axes[1];
    plan->axes = list, plan->naxes = naxes, plan->comms = comms, plan->ncomms = naxes, plan->units = &unit;
}

Test(verify, mesh) {
    static PlanUnit unit;
    static const struct {
        int world, nodes, naxes, sizes[4],
            strides[4]; /* the unit's shards lie along the fourth axis, if there is one */
        const char *text;
    } cases[] = {
        {4, 1, 3, {2, 1, 4}, {1, 2, 1}, "shard (2 places, 1 apart) and replicate (1 places, 2 apart) do not make up"},
        {4, 1, 3, {2, 1, 4}, {1, 2, 1}, "layers.0 lies in 2 shards × 1 replicas, in a world of 4"},
        {4, 1, 3, {4, 1, 4}, {1, 4, 1}, "g0f reads 1024 bytes and writes 2048"},
        {2, 1, 3, {1, 2, 2}, {1, 1, 1}, "over the 1 ranks of group shard"},
        {2, 1, 3, {2, 1, 1}, {1, 2, 1}, "the group of all ranks has 1 of 2"},
        {4, 1, 3, {2, 2, 4}, {1, 1, 1}, "shard (2 places, 1 apart) and replicate (2 places, 1 apart) do not make up"},
        {3, 1, 3, {2, 1, 3}, {1, 2, 1}, "groups of 2 ranks, 1 apart (shard), do"},
        {2, 2, 2, {2, 1}, {1, 2}, "shard, replicate and world are not all there"},
        {4, 3, 3, {4, 1, 4}, {1, 4, 1}, "4 ranks do not stand on 3 nodes"},
        {2, 1, 4, {2, 1, 2, 1}, {1, 2, 1, 1}, "1 shards × 1 replicas, in a world of 2"},
        {2, 1, 3, {2, 1, 2}, {1, 2, 1}, NULL},
        {2, 1, 4, {2, 1, 2, 2}, {1, 2, 1, 1}, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setup();
        lie_along(cases[i].naxes, cases[i].sizes, cases[i].strides);
        plan->world = cases[i].world, plan->nodes = cases[i].nodes;
        const Findings *f = verify(plan->arena, plan);
        bool found = !cases[i].text && !f->n;
        for (int k = 0; k < f->n; k++)
            found |= cases[i].text && !strcmp(f->at[k].rule, "mesh") && strstr(f->at[k].text, cases[i].text);
        cr_expect(found, "case %zu: %s", i, f->n ? f->at[0].text : "sound");
    }
    setup();
    unit = plan->units[0];
    unit.numel = 511;
    plan->units = &unit;
    expect("mesh", NULL, NULL, "has 511 elements, which 2 shards do not divide");
    unit.numel = 256;
    expect("update-once", NULL, NULL, "1024 bytes of unit layers.0's parameters are updated, and a rank holds 512");
    setup();
    lie_along(4, (int[]){2, 2, 4, 2},
              (int[]){1, 2, 1, 1}); /* on 4 ranks; experts over neighbours, their pieces 2 apart */
    unit = plan->units[0];
    unit.shard = plan->axes[1], unit.replicate = plan->axes[0], unit.expert = NULL;
    plan->world = 4, plan->units = &unit;
    const Findings *as_replica = verify(plan->arena, plan);
    static const Axis one = {4, "one", 1, 1};
    unit.replicate = &one;
    expect("mesh", NULL, NULL, "layers.0 lies in 2 shards × 1 replicas, in a world of 4 ranks");
    unit.expert = plan->axes[3];
    cr_expect_eq(verify(plan->arena, plan)->n, as_replica->n);
    unit.expert = plan->axes[1];
    expect("mesh", NULL, NULL, "layers.0 lies in 2 shards × 1 replicas × groups of experts, in a world of 4 ranks");
    setup();
    for (int g = 0; g < plan->nprograms; g++)
        for (int e = 0; e < plan->programs[g].n; e++) plan->programs[g].events[e].comm = -1;
    expect("mesh", NULL, NULL, "no collective joins the 2 ranks");
    setup();
    static Access huge[] = {{FULL, 0, INT64_MAX}, {FULL, 0, INT64_MAX}};
    micro_events[GATHER_F].writes = huge;
    micro_events[GATHER_F].nwrites = 2;
    expect("mesh", "g0f", NULL, "reads 1024 bytes and writes 9223372036854775807: neither");
}

Test(verify, updates) {
    micro_events[UPDATE_1].writes[0].size = 512;
    expect("update-once", NULL, NULL, "bytes 512 to 1024 of unit layers.0's parameters are never updated");
    setup();
    micro_events[UPDATE_1].update = false;
    expect("update-once", "u0", NULL, "no optimizer event");
    setup();
    micro_events[BACKWARD_2].stream = COMPUTE;
    micro_events[LOSS_1].update = true;
    micro_events[LOSS_1].writes = (Access[]){{ACT, 0, 512}, {MASTER, 512, 512}};
    micro_events[LOSS_1].nwrites = 2;
    expect("update-once", "e1", NULL, "updated twice");
    setup();
    plan->programs[P_EVAL].events[1].writes[0] = (Access){MASTER, 0, 4};
    expect("update-once", "e0", NULL, "updates none");
    setup();
    PlanUnit none = plan->units[0];
    none.master_storage = -1;
    plan->units = &none;
    expect("update-once", NULL, NULL, "trainable and has no parameters");
}

Test(verify, successions) {
    plan->programs[P_INIT].events[1].nwrites = 0; /* the moment is never zeroed */
    expect("succession", "u0", NULL, "when micro follows start");
    setup();
    plan->programs[P_START].name = "begin";
    expect("succession", NULL, NULL, "leads to");
    setup();
    plan->programs[P_EVAL].name = "micro";
    expect("succession", NULL, NULL, "two programs are called micro");
    setup();
    plan->nprograms = 17;
    plan->programs = NEW_ARRAY(plan->arena, PlanProgram, 17);
    plan->nstorages = 0;
    expect("succession", NULL, NULL, "17 programs");
}

/* micro_first writes the accumulated gradient, micro adds to it, micro_last updates: eval must not come between. */
Test(verify, accumulation) {
    PlanProgram *g = NEW_ARRAY(plan->arena, PlanProgram, 6);
    memcpy(g, plan->programs, sizeof *g * 4);
    plan->programs = g;
    plan->nprograms = 6;
    plan->storages[GRAD_SHARD].program = -1;
    plan->storages[GRAD_SHARD].offset = 7168;
    plan->arena_bytes[ARENA_DEVICE] = 8192;
    g[4] = g[5] = g[P_MICRO];
    g[4].name = "micro_first";
    g[5].name = "micro_last";
    for (int i = 0; i < 3; i++) {
        const int at[3] = {P_MICRO, 4, 5};
        PlanProgram *q = &g[at[i]];
        q->events = NEW_ARRAY(plan->arena, Event, N_MICRO + 1);
        memcpy(q->events, micro_events, sizeof(Event) * N_MICRO);
        if (at[i] != 5) q->n = UPDATE_1;
        if (at[i] != 4) {
            static Access both[] = {{FULL_GRAD, 0, 2048}, {GRAD_SHARD, 0, 1024}};
            q->events[REDUCE_1].reads = both;
            q->events[REDUCE_1].nreads = 2;
            q->events[REDUCE_1].comm = -1; /* a sum of this rank's */
        }
    }
    const Findings *f = verify(plan->arena, plan); /* transients belong to micro only */
    cr_assert_gt(f->n, 0);
    for (int i = 0; i < f->n; i++) cr_assert_str_eq(f->at[i].rule, "bounds", "%s", f->at[i].text);
    g[4].events[REDUCE_1].nwrites = 0;
    expect("succession", "r0", NULL, "when micro follows micro_first");
}

/* 100,000 events: lives are short, bytes are reused, three streams take part. What is quadratic ends at the timeout. */
Test(verify, many_events, .timeout = 120) {
    enum { N = 100000, SLOTS = 64 };
    static const Axis one = {0, "shard", 1, 1}, two = {1, "replicate", 1, 1}, three = {2, "world", 1, 1};
    static const Axis *axes[] = {&one, &two, &three};
    static Comm alone[] = {{"shard", &one, 0}, {"replicate", &two, 0}, {"world", &three, 0}};
    Arena *a = arena_new();
    Plan *p = NEW(a, Plan);
    *p = (Plan){.arena = a,
                .model = "big",
                .world = 1,
                .nodes = 1,
                .axes = axes,
                .naxes = 3,
                .comms = alone,
                .ncomms = 3,
                .programs = NEW_ARRAY(a, PlanProgram, 3),
                .nprograms = 3,
                .storages = NEW_ARRAY(a, Storage, N),
                .nstorages = N,
                .arena_bytes = {SLOTS * 256, 0}};
    p->programs[0].name = "init";
    p->programs[1].name = "start";
    p->programs[2] = (PlanProgram){.name = "micro", .events = NEW_ARRAY(a, Event, N), .n = N};
    for (int i = 0; i < N; i++) {
        p->storages[i] =
            (Storage){i, C_ACTIVATIONS, "s", "", ARENA_DEVICE, 2, 256, i % SLOTS * 256, i, i + 1 < N ? i + 1 : i};
        Event *e = &p->programs[2].events[i];
        *e = (Event){.id = "e", .op = "op", .module = "", .stream = (Stream)(i % 3), .comm = -1, .unit = -1};
        e->writes = NEW(a, Access);
        *e->writes = (Access){i, 0, 256};
        e->nwrites = 1;
        if (i == 0) continue;
        e->reads = NEW(a, Access);
        *e->reads = (Access){i - 1, 0, 256};
        e->nreads = 1;
        e->waits = NEW(a, int);
        e->waits[0] = i - 1;
        e->nwaits = 1;
    }
    const Findings *f = verify(a, p);
    cr_assert_eq(f->n, 0, "%s", f->n ? f->at[0].text : "");
}
