/* A run beside its plan, and what is said of single events and storages: by hand, on the small plan.
 * Relies on: small_plan.h, dies.h, report.
 * Relied on by: make test. */
#include "dies.h"
#include "report/actual.h"
#include "report/explain.h"
#include "small_plan.h"

#include <stdlib.h>

static Arena *arena;
static Plan *plan;
static char path[] = "/tmp/shardc-actual-XXXXXX";

static void setup(void) {
    arena = arena_new();
    plan = small_plan(arena);
    close(mkstemp(path));
}

static void cleanup(void) {
    unlink(path);
}

TestSuite(actual, .init = setup, .fini = cleanup);

/* Runs micro three times on two ranks, an event after the other, each 10 us long and 2 us after the one before. In the
 * gather rank 0 waits 30 us for rank 1; in step 2 the first product takes 70 us. Rank 1's clock is 1 s ahead. */
static void write_run(void) {
    FILE *f = fopen(path, "w");
    fputs("[\n", f);
    for (int step = 1; step <= 3; step++)
        for (int rank = 0; rank < 2; rank++) {
            double at = 1000 * step + 1e6 * rank;
            for (int e = 0; e < N_MICRO; e++) {
                const Event *x = &plan->programs[P_MICRO].events[e];
                double us = e == GATHER_F && !rank ? 40 : e == FORWARD_1 && step == 2 ? 70 : 10;
                fprintf(f,
                        "{\"name\":\"%s %s\",\"ph\":\"X\",\"pid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"event\":"
                        "\"%s\",\"program\":\"micro\",\"step\":%d,\"module\":\"layers.0\"}},\n",
                        x->id, x->op, rank, at, us, x->id, step);
                at += us + 2;
            }
        }
    fputs("{\"ph\":\"M\"}\n]\n", f);
    fclose(f);
}

Test(actual, medians_and_the_rank_that_comes_last) {
    write_run();
    const Actual *x = actual_read(plan, path, NULL);
    const ActualProgram *micro = &x->programs[P_MICRO];
    cr_expect(x->first_step == 1 && x->last_step == 3 && micro->runs == 3 && !x->programs[P_EVAL].runs);
    cr_expect_float_eq(micro->share, 1, 1e-9);
    cr_expect_float_eq(micro->events[GATHER_F].us, 10, 1e-6, "from when rank 1 came");
    cr_expect_float_eq(micro->events[GATHER_F].end_us, 25, 1e-6, "the median of 40 and 10, three times each");
    cr_expect_float_eq(micro->events[FORWARD_1].us, 10, 1e-6);
    cr_expect_float_eq(micro->us, 112, 1e-6, "rank 0 in steps 1 and 3");
    cr_expect_float_eq(x->gap_us, 2, 1e-6);
    cr_expect_float_eq(x->ranks[0].collective_us, 50, 1e-6);
    cr_expect_float_eq(x->ranks[0].waiting_us, 30, 1e-6);
    cr_expect_float_eq(x->ranks[1].waiting_us, 0, 1e-6);
    cr_expect(x->collectives == 6 && x->ranks[1].last == 3, "of three gathers, and three sums in which nobody waits");
    cr_expect_float_eq(x->between_us, 888, 25, "the rest of 1000 us");
    cr_expect_float_eq(x->predicted_us, 100.25, 1e-9);
    cr_expect_float_eq(x->error_us, N_MICRO * 2.5, 1e-6, "12.5 us were predicted of each");
    cr_expect(x->by_op.n == 5 && !strcmp(x->by_op.at[0].name, "matmul") && x->by_op.at[0].events == 3);
    cr_expect(x->errors.n == N_MICRO && x->errors.at[0].error_us < 0);
}

Test(actual, what_breaks_off_is_told_by_its_line) {
    char said[400];
    write_run();
    cr_assert(!truncate(path, 700));
    cr_expect_eq(DIES(said, sizeof said, actual_read(plan, path, NULL)), 1);
    cr_expect(strstr(said, ":7: column ") && strstr(said, "it is not JSON"), "%s", said);
}

/* With what hangs below an entry in its line. */
static char *explained(const char *id) {
    char *text = NULL, *to;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    explain_text(f, plan, id, NULL);
    fclose(f);
    to = text;
    for (const char *at = text; *at; *to++ = *at++) {
        size_t blanks = *at == '\n' ? strspn(at + 1, " ") : 0;
        if (blanks > 10) at += blanks, *to++ = ' ', at++;
    }
    *to = 0;
    return text;
}

Test(actual, an_event_and_a_storage_are_explained) {
    Event *micro = plan->programs[P_MICRO].events;
    for (int e = 0; e < N_MICRO; e++) micro[e].start_us = 12.5 * e;
    plan->programs[P_MICRO].step_us = 12.5 * N_MICRO;
    const char *text = explained("e0");
    cr_expect(strstr(text, "e0 of program micro: matmul, forward layers.0, small.lua:7\n"), "%s", text);
    cr_expect(strstr(text, "number 1 of 5 on stream compute; number 2 of 7 in issue order"), "%s", text);
    cr_expect(strstr(text, "waits for      g0f, until 12.5 us: all_gather layers.0 has written g0f.0\n"), "%s", text);
    cr_expect(strstr(text, "the step is longer by whatever it takes longer"), "%s", text);
    micro[UPDATE_1].start_us += 5; /* and nobody holds it up */
    plan->programs[P_MICRO].step_us += 5;
    text = explained("r0");
    cr_expect(strstr(text, "it may end 5.0 us later without a longer step"), "%s", text);
    text = explained("g0f.0");
    cr_expect(
        strstr(text, "lives          from g0f (all_gather, forward layers.0) to e0b0 (matmul, backward layers.0)"),
        "%s", text);
    cr_expect(strstr(text, "untouched      for 25.0 us between e0 ("), "%s", text);
    cr_expect(
        strstr(text, "after it       r0.0 takes some of its bytes at r0 (reduce_scatter, backward layers.0), 0.0 us"),
        "%s", text);
}
