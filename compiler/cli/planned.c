/* The plan that a command is about: of a model as it is, the fastest within a budget, or one that was compiled before.
 * Relies on: planned.h, input.c (compiles a model), plan_json.h.
 * Relied on by: plan.c; the commands that read a plan, through cli.h. */
#include "planned.h"
#include "../cost/timeline.h"
#include "../plan/figures.h"
#include "../plan/live.h"
#include "../plan/plan_json.h"

#include <errno.h>
#include <math.h>
#include <unistd.h>

static Plan *compile(Arena *a, const void *context, const char *entries, PlannerHow how) {
    const PlanAsked *c = context;
    Options o = *c->o;
    o.one_microbatch = how.one;
    o.quiet |= how.quiet;
    return cli_compile(a, &o, c->input, entries, how.estimate);
}

static PlannerChoices choices(const Options *o) {
    PlannerChoices c = {0};
    for (int i = 0; i < o->keep.n; i++)
        if (!planner_hold(&c, o->keep.at[i]))
            fail_usage(
                "--keep %s: recompute, offload, reshard, prefetch or state is wanted; alone it leaves that as the "
                "model has it, with =none there is none of it",
                o->keep.at[i]);
    return c;
}

/* Bytes of the arena: those given, or what a process may use of the device without what libraries hold. */
static int64_t budget(const void *context, const Plan *own) {
    const PlanAsked *c = context;
    if (c->o->budget) return c->o->budget;
    double tolerance, library = live_library_bytes(own, &tolerance);
    return (int64_t)(own->device_usable - library - tolerance);
}

/* On a terminal, in a line that the next one replaces. */
static void tell(const void *context, int tried, double best_us) {
    if (!isatty(STDERR_FILENO)) return;
    Arena *a = arena_new();
    fprintf(stderr, "\r\033[K%d plans placed%s%s", tried, best_us > 0 ? ", the fastest that fits takes " : "",
            best_us > 0 ? figure_time(a, best_us) : "");
    fflush(stderr);
    arena_free(a);
}

void planned_told(void) {
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

PlannerInput planned_input(Arena *a, const PlanAsked *c) {
    if (!cli_is_model(c->input)) fail_usage("%s: policies are chosen for a model: give its .lua file", c->input);
    PlannerInput in = {.compile = compile, .budget = budget, .tell = tell, .context = c, .choices = choices(c->o)};
    in.device = cli_device(a, c->o);
    return in;
}

PlannerResult planned_search(Arena *a, const PlanAsked *c) {
    const PlannerInput in = planned_input(a, c);
    if (!c->o->budget && strcmp(in.device->target, "cuda"))
        fail_usage("plan %s: the cpu target has no memory limit to plan for; give --budget, for example --budget 4GiB, "
                   "or a GPU's --device",
                   c->input);
    PlannerResult r = planner_search(a, &in);
    planned_told();
    return r;
}

/* The amount as --budget reads it, rounded up to a tenth of its unit. */
static const char *budget_text(Arena *a, int64_t bytes) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double x = (double)bytes / 1024;
    int unit = 0;
    for (; unit < 3 && x >= 1024; unit++) x /= 1024;
    return arena_printf(a, "%.1f%s", ceil(x * 10) / 10, units[unit]);
}

void planned_nothing_fits(Arena *a, const PlannerResult *r) {
    if (r->least == INT64_MAX)
        fail(NOWHERE, "nothing fits: the compiler refuses every policy that --keep leaves; give fewer of it");
    fail(NOWHERE,
         "nothing fits in %s of arena among the %d plans placed: the smallest arena found is %s (%s B); give --budget "
         "%s, more ranks (--world), or a smaller batch",
         figure_bytes(a, (double)r->budget), r->tried, figure_bytes(a, (double)r->least),
         figure_grouped(a, (double)r->least), budget_text(a, r->least));
}

Plan *cli_fastest(Arena *a, const Options *o, const char *input, int64_t *least) {
    PlanAsked c = {o, input};
    PlannerResult r = planned_search(a, &c);
    *least = r.best.plan ? 0 : r.least;
    return r.best.plan;
}

const char *planned_words(Arena *a, const Planned *p) {
    Str s = {.arena = a};
    for (int i = 0; i < p->nruns; i++) str_addf(&s, "%s: %s; ", p->runs[i].match, p->runs[i].what);
    str_addf(&s, "units: %s", p->units);
    return s.s;
}

Plan *cli_planned(Arena *a, const Options *o, const char *input, const char **choice) {
    PlanAsked c = {o, input};
    PlannerResult r = planned_search(a, &c);
    if (!r.best.plan) planned_nothing_fits(a, &r);
    if (choice) *choice = planned_words(a, &r.best);
    return r.best.plan;
}

Plan *cli_plan(Arena *a, const Options *o, const char *input) {
    if (o->keep.n && !o->budget)
        fail_usage("--keep %s: without --budget nothing is chosen; give one, for example --budget 60GiB",
                   o->keep.at[0]);
    Plan *p;
    if (cli_is_model(input)) {
        p = o->budget ? cli_planned(a, o, input, NULL) : cli_compile(a, o, input, "", false);
    } else {
        const char *model = arena_printf(a, "%s.lua", input);
        if (access(input, F_OK) && !access(model, F_OK))
            fail(NOWHERE, "cannot read %s: %s; is it %s?", input, strerror(ENOENT), model);
        cli_refuse_model_options(o, input);
        p = plan_read(a, input);
    }
    if (o->delayed) cost_delay_collectives(p, o->delay_us);
    return p;
}
