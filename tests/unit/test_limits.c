/* What follows from a plan alone: slack, rooflines, and what would lower the peak.
 * Relies on: Criterion, small_plan.h.
 * Relied on by: build/unit_compiler. */
#include "plan/limits.h"
#include "plan/savings.h"
#include "plan/slack.h"
#include "small_plan.h"

#include <criterion/criterion.h>
#include <math.h>

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-9;
}

Test(limits, slack_goes_back_over_waits) {
    Arena *a = arena_new();
    Plan *p = small_plan(a);
    PlanProgram *g = &p->programs[P_MICRO];
    const double *slack = plan_slack(p, g);
    cr_expect(near(slack[UPDATE_1], 100.25 - 12.6));
    cr_expect(near(slack[REDUCE_1], 100.25 - 25.1));
    cr_expect(near(slack[BACKWARD_2], 100.25 - 37.6));
    g->events[UPDATE_1].start_us = 87.75;
    cr_expect_eq(plan_slack(p, g)[UPDATE_1], 0);
    g->events[UPDATE_1].start_us = 95; /* of no sound plan: it ends after its program */
    cr_expect_eq(plan_slack(p, g)[UPDATE_1], 0);
    arena_free(a);
}

Test(limits, the_larger_time_bounds) {
    Event e = {.flops = 1e9, .bytes = 1e6, .duration_us = 10};
    cr_expect_eq(plan_limit(&e).bound, BOUND_UNKNOWN);
    e.peak_flops = 2e14;
    cr_expect(near(plan_limit(&e).us, 5));
    cr_expect_eq(plan_limit(&e).bound, BOUND_ARITHMETIC);
    e.peak_bytes = 1.25e11;
    Limit l = plan_limit(&e);
    cr_expect(near(l.us, 8) && near(l.flops_share, .5) && near(l.bytes_share, .8));
    cr_expect_eq(l.bound, BOUND_BYTES);
    e.duration_us = 0;
    cr_expect_eq(plan_limit(&e).bound, BOUND_UNKNOWN);
}

/* A second kernel of the backward stands before those that read the activation: it is free meanwhile. */
Test(limits, savings_are_of_the_time_between) {
    Arena *a = arena_new();
    Plan *p = small_plan(a);
    PlanProgram *g = &p->programs[P_MICRO];
    cr_expect_eq(plan_savings(p, P_MICRO).n, 0, "its backward follows at once");
    cr_expect_eq(plan_savings(p, P_EVAL).n, 0, "it does not train");
    g->events[BACKWARD_1].module = "head";
    g->events[BACKWARD_1].nreads = 0;
    g->peak_event = BACKWARD_1;
    p->storages[ACT].size = 1 << 20;
    p->storages[FULL_GRAD].last = BACKWARD_1; /* so that this moment is the highest */
    Savings s = plan_savings(p, P_MICRO);
    cr_assert_eq(s.n, 1);
    cr_expect_str_eq(s.at[0].entry, "{ match = \"layers.*\", replace = true, checkpoint = {} }");
    cr_expect(s.at[0].bytes == 1 << 20 && s.at[0].lower == 2048 && s.at[0].modules == 1);
    cr_expect(near(s.at[0].us, 25), "both events that write it run again");
    p->host_up = p->host_down = 1e9; /* 1 ms each way, for as many bytes: recompute is better */
    s = plan_savings(p, P_MICRO);
    cr_expect(s.n == 1 && s.at[0].kind == SAVING_RECOMPUTE);
    p->host_up = p->host_down = 1e12; /* hidden behind kernels */
    s = plan_savings(p, P_MICRO);
    cr_expect(s.n == 1 && s.at[0].kind == SAVING_OFFLOAD && s.at[0].us <= 0 && s.at[0].lower == 2048);
    for (int e = 0; e < g->n; e++) g->events[e].module = "layers\" }";
    cr_expect_eq(plan_savings(p, P_MICRO).n, 0, "such a path stands in no entry");
    arena_free(a);
}
