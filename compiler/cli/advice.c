/* What to do where a model does not fit: the fastest plan that does, and the largest batch as it is. Both searches run
 * in processes of their own: one that fails leaves out its line. Relies on: search.h, base/processes.h, planner.
 * Relied on by: predict.c. */
#include "../base/processes.h"
#include "../cost/timeline.h"
#include "../plan/live.h"
#include "search.h"

typedef struct {
    Options o;
    int64_t batch; /* the one that does not fit; 0: the model has no such option */
} Question;

static void answer(const void *context, int job, FILE *result) {
    Question q = *(const Question *)context;
    Arena *a = arena_new();
    Advice x = {0};
    remark_enable(false);
    q.o.quiet = true;
    if (job) {
        x.largest = q.batch > 1 ? search_largest(a, &q.o, "batch", q.batch, q.batch).value : 0;
    } else {
        int64_t least;
        Plan *p = cli_fastest(a, &q.o, q.o.inputs.at[0], &least);
        if (p && q.o.delayed) cost_delay_collectives(p, q.o.delay_us);
        x.least = least;
        x.arena = p ? p->arena_bytes[ARENA_DEVICE] : 0;
        x.step_us = p ? live_step(p).step_us : 0;
    }
    fwrite(&x, sizeof x, 1, result);
}

Advice cli_advice(Arena *a, const Options *o, const Plan *p) {
    Question q = {.o = *o};
    Advice all = {0}, one;
    ProcessResult r[2];
    bool batch = search_value(p, "batch", &q.batch);
    processes_run(a, answer, &q, batch ? 2 : 1, r, NULL, NULL);
    if (r[0].n == sizeof one) {
        memcpy(&all, r[0].at, sizeof all);
        if (all.arena) all.command = cli_again(a, o, "plan");
    }
    if (batch && r[1].n == sizeof one) {
        memcpy(&one, r[1].at, sizeof one);
        all.batch = true;
        all.largest = one.largest;
    }
    return all;
}
