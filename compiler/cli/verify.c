/* `shardc verify`: proves a schedule sound from the plan alone; names events and the missing edge where it is not.
 * Relies on: input.c, report, verify.
 * Relied on by: main.c. */
#include "../plan/plan_json.h"
#include "../report/report.h"
#include "cli.h"

/* For tests that try thousands of plans: a line for each, "ok PATH" or "refused PATH rule". */
static int verify_batch(Arena *a, const char *list) {
    char *save = NULL, *text = path_read(a, list, NULL);
    for (char *path = strtok_r(text, "\n", &save); path; path = strtok_r(NULL, "\n", &save)) {
        Arena *own = arena_new();
        size_t n;
        const char *plan = path_read(own, path, &n);
        PlanError error;
        const Plan *p = plan_parse(own, plan, n, &error);
        const Findings *f = p ? verify(own, p) : NULL;
        if (!p)
            printf("refused %s unreadable: %s\n", path, error.text);
        else if (f->n)
            printf("refused %s %s: %s\n", path, f->at[0].rule, f->at[0].text);
        else
            printf("ok %s\n", path);
        arena_free(own);
    }
    return 0;
}

int command_verify(Arena *a, const Options *o) {
    if (o->batch) return verify_batch(a, o->batch);
    if (!o->inputs.n) fail_usage("verify wants a model, a plan.json or a built binary; `shardc verify -h` shows how");
    const Plan *p = cli_plan(a, o, o->inputs.at[0]);
    const Times most = {o->most_forward_ms, o->most_step_ms, o->most_exposed_ms};
    const Findings *found = verify(a, p);
    Findings late = {0};
    verify_times(a, p, &most, &late);
    OutFile f = cli_output(a, o);
    if (cli_as_json(o)) {
        report_findings_json(f.f, p, found, &late);
    } else {
        report_findings_text(f.f, p, found);
        if (o->delayed || most.forward_ms >= 0 || most.step_ms >= 0 || most.exposed_ms >= 0)
            report_times_text(f.f, p, &late);
    }
    cli_output_done(o, &f);
    return found->n || late.n ? 1 : 0;
}
