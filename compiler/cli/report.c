/* `shardc report`: runs of programs, from their logs, over each other: as text, as JSON, as a page.
 * Relies on: input.c, report/runs.h, report/actual.h, runtime/page/run_log.h.
 * Relied on by: main.c. */
#include "../report/actual.h"
#include "../report/runs.h"
#include "cli.h"

#include <unistd.h>

enum { ROWS = 8192, LEAST_ROWS = 1024 }; /* of the curves of all runs: a page has some 2 MB */

/* PROGRAM=FILES, of which PROGRAM may hold no '='. */
static const Actual *read_traced(Arena *a, const Options *o, const char *given) {
    const char *equals = strchr(given, '=');
    if (!equals || equals == given || !equals[1])
        fail_usage("--traced %s: PROGRAM=FILES is wanted, the binary that ran and what it wrote by --trace: "
                   "--traced build/gpt2/gpt2=run.json",
                   given);
    const char *program = arena_printf(a, "%.*s", (int)(equals - given), given);
    if (cli_is_model(program))
        fail_usage(
            "--traced %s: with a model the options of the run would be missing; give the binary that ran, or its "
            "plan.json",
            given);
    return actual_read(cli_plan(a, o, program), equals + 1, NULL);
}

/* Of the page: the ops of a step as `inspect --actual` has them. */
static RunTrace trace_of(Arena *a, const Actual *x) {
    RunOp *ops = NEW_ARRAY(a, RunOp, x->by_op.n);
    for (int i = 0; i < x->by_op.n; i++) {
        const ActualRow *r = &x->by_op.at[i];
        ops[i] =
            (RunOp){r->name, r->events, r->predicted_us, r->actual_us, x->error_us > 0 ? r->error_us / x->error_us : 0};
    }
    const char *title = arena_printf(a, "%s for %s, world %d, beside %s", x->plan->model, report_target(x->plan),
                                     x->plan->world, x->files);
    return (RunTrace){title, ops, x->by_op.n};
}

int command_report(Arena *a, const Options *o) {
    const char *format = o->format ? o->format : o->out ? "html" : "text";
    bool html = !strcmp(format, "html");
    if (html && !o->out && isatty(STDOUT_FILENO))
        fail_usage("--format html writes a page for a browser: write it to a file, -o run.html");
    if (o->traced.n && !strcmp(format, "json"))
        fail_usage(
            "--traced adds to the text and to the page: leave out --format json; `shardc inspect PROGRAM --actual "
            "FILES --format json` has it");
    const Actual **actual = NEW_ARRAY(a, const Actual *, o->traced.n);
    RunTrace *traces = NEW_ARRAY(a, RunTrace, o->traced.n);
    for (int i = 0; i < o->traced.n; i++) {
        actual[i] = read_traced(a, o, o->traced.at[i]);
        traces[i] = trace_of(a, actual[i]);
    }
    int rows = ROWS / o->inputs.n / 2 * 2;
    RunLog *logs = NEW_ARRAY(a, RunLog, o->inputs.n);
    for (int i = 0; i < o->inputs.n; i++)
        logs[i] = runs_read(a, o->inputs.at[i], rows < LEAST_ROWS ? LEAST_ROWS : rows);
    OutFile f = cli_output(a, o);
    if (html)
        run_page_write(f.f, logs, o->inputs.n, traces, o->traced.n, false);
    else if (!strcmp(format, "json"))
        runs_json(a, f.f, logs, o->inputs.n);
    else
        runs_text(a, f.f, logs, o->inputs.n);
    for (int i = 0; i < o->traced.n && !html; i++) {
        fputc('\n', f.f);
        actual_text(f.f, actual[i]);
    }
    cli_output_done(o, &f);
    return 0;
}
