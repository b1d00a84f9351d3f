/* `shardc plan`: the fastest policies within a budget of memory, and what `--budget` of build and run means.
 * Relies on: input.c, planner, report.
 * Relied on by: main.c. */
#include "../planner/planner.h"
#include "../report/chart.h"
#include "../report/figures.h"
#include "../report/live.h"
#include "../report/report.h"
#include "cli.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    const Options *o;
    const char *input;
} Context;

static Plan *compile(Arena *a, const void *context, const char *entries, bool estimate) {
    const Context *c = context;
    return cli_compile(a, c->o, c->input, entries, estimate);
}

static PlannerChoices choices(const Options *o) {
    PlannerChoices c = {0};
    for (int i = 0; i < o->nkeep; i++)
        if (!planner_hold(&c, o->keep[i]))
            fail_usage(
                "--keep %s: recompute, offload, reshard, prefetch or state is wanted; alone it leaves that as the "
                "model has it, with =none there is none of it",
                o->keep[i]);
    return c;
}

/* Bytes of the arena: those given, or what a process may use of the device without what libraries hold. */
static int64_t budget_of(const Options *o, const Context *c) {
    if (o->budget) return o->budget;
    Arena *scratch = arena_new();
    const Plan *p = compile(scratch, c, "", true);
    double tolerance, library = live_library_bytes(p, &tolerance), usable = p->device_usable;
    arena_free(scratch);
    if (usable <= 0)
        fail_usage(
            "plan %s: the cpu target has no memory limit to plan for; give --budget, for example --budget 4GiB, or "
            "a GPU's --device",
            c->input);
    return (int64_t)(usable - library - tolerance);
}

static PlannerResult search(Arena *a, const Options *o, const Context *c) {
    if (!cli_is_model(c->input)) fail_usage("%s: policies are chosen for a model: give its .lua file", c->input);
    return planner_search(a, compile, c, cli_device(a, o), choices(o), budget_of(o, c));
}

static _Noreturn void nothing_fits(Arena *a, const PlannerResult *r) {
    fail(NOWHERE,
         "nothing fits in %s of arena: the smallest arena found is %s (%s B); give --budget %.1fGiB, more ranks "
         "(--world), "
         "or a smaller batch",
         figure_bytes(a, (double)r->budget), figure_bytes(a, (double)r->least), figure_grouped(a, (double)r->least),
         ceil((double)r->least / (1 << 30) * 10) / 10);
}

Plan *cli_fastest(Arena *a, const Options *o, const char *input, int64_t *least) {
    Context c = {o, input};
    PlannerResult r = search(a, o, &c);
    *least = r.best.plan ? 0 : r.least;
    return r.best.plan;
}

/* "h.{0-3}: keep everything; units: as the model says" */
static const char *choice_of(Arena *a, const Planned *p) {
    Str s = {.arena = a};
    for (int i = 0; i < p->nruns; i++) str_addf(&s, "%s: %s; ", p->runs[i].match, p->runs[i].what);
    str_addf(&s, "units: %s", p->units);
    return s.s;
}

Plan *cli_planned(Arena *a, const Options *o, const char *input, const char **choice) {
    Context c = {o, input};
    PlannerResult r = search(a, o, &c);
    if (!r.best.plan) nothing_fits(a, &r);
    if (choice) *choice = choice_of(a, &r.best);
    return r.best.plan;
}

/* ── text ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
static void runs_table(FILE *f, Arena *a, const Planned *p) {
    size_t wide = strlen("blocks"), what = strlen("units");
    for (int i = 0; i < p->nruns; i++) {
        if (strlen(p->runs[i].match) > wide) wide = strlen(p->runs[i].match);
        if (strlen(p->runs[i].what) > what) what = strlen(p->runs[i].what);
    }
    if (p->nruns)
        fprintf(f, "  %-*s  %-*s  %12s  %12s\n", (int)wide, "blocks", (int)what, "choice", "a block keeps", "it costs");
    for (int i = 0; i < p->nruns; i++)
        fprintf(f, "  %-*s  %-*s  %13s  %12s\n", (int)wide, p->runs[i].match, (int)what, p->runs[i].what,
                figure_bytes(a, (double)p->runs[i].kept), p->runs[i].us > 0 ? figure_time(a, p->runs[i].us) : "-");
    fprintf(f, "  %-*s  %s\n", (int)wide, "units", p->units);
}

static void plan_text(FILE *f, Arena *a, const Options *o, const PlannerResult *r, double seconds) {
    const Plan *p = r->best.plan;
    double spare = (double)(r->budget - r->best.arena);
    fprintf(f, "plan of %s for %s, world %d: arena within %s (%s)\n", p->model, p->device, p->world,
            figure_bytes(a, (double)r->budget), o->budget ? "--budget" : "what the device leaves");
    runs_table(f, a, &r->best);
    fprintf(f, "  arena    %s exact (%s B), lower bound %s, spare %s   host %s\n",
            figure_bytes(a, (double)r->best.arena), figure_grouped(a, (double)r->best.arena),
            figure_bytes(a, (double)p->bound_bytes[ARENA_DEVICE]), figure_bytes(a, spare),
            figure_bytes(a, (double)r->best.host));
    fprintf(f, "  step     %s, exposed communication %.1f %%", figure_time(a, r->best.step_us),
            100 * r->best.exposed_us / r->best.step_us);
    double bound = fmin(r->bound_us, r->best.step_us);
    if (r->bound_us > 0)
        fprintf(f, "; no plan of these choices takes less than %s: gap %.1f %%", figure_time(a, bound),
                100 * (r->best.step_us / bound - 1));
    fprintf(f, "\n  as the model says: step %s, arena %s%s\n", figure_time(a, r->without.step_us),
            figure_bytes(a, (double)r->without.arena), r->without.arena > r->budget ? ", which does not fit" : "");
    fprintf(f, "  %d plans were placed in %.1f s\n", r->tried, seconds);
    if (!o->out) fprintf(f, "policy (-o FILE writes it, --policy FILE uses it):\n%s", r->best.entries);
}

/* ── JSON ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
static cJSON *planned_json(const Planned *p) {
    cJSON *o = cJSON_CreateObject(), *runs = cJSON_AddArrayToObject(o, "blocks");
    for (int i = 0; i < p->nruns; i++) {
        cJSON *x = cJSON_CreateObject();
        cJSON_AddStringToObject(x, "match", p->runs[i].match);
        cJSON_AddNumberToObject(x, "blocks", p->runs[i].blocks);
        cJSON_AddStringToObject(x, "choice", p->runs[i].what);
        cJSON_AddNumberToObject(x, "kept_bytes", (double)p->runs[i].kept);
        cJSON_AddNumberToObject(x, "added_us", p->runs[i].us);
        cJSON_AddItemToArray(runs, x);
    }
    cJSON_AddStringToObject(o, "units", p->units);
    cJSON_AddNumberToObject(o, "arena_bytes", (double)p->arena);
    cJSON_AddNumberToObject(o, "host_bytes", (double)p->host);
    cJSON_AddNumberToObject(o, "step_us", p->step_us);
    cJSON_AddNumberToObject(o, "exposed_us", p->exposed_us);
    cJSON_AddStringToObject(o, "policy", p->entries);
    return o;
}

static void print_json(FILE *f, cJSON *o) {
    char *text = cJSON_Print(o);
    if (!text) fail(NOWHERE, "out of memory for the report; free memory and run again");
    fprintf(f, "%s\n", text);
    free(text);
    cJSON_Delete(o);
}

/* ── the command ────────────────────────────────────────────────────────────────────────────────────────────────── */
enum { POINTS = 16 };

static void draw(Arena *a, const Options *o, const Context *c, const PlannerCurve *curve) {
    double *x = NEW_ARRAY(a, double, curve->n + 1), *y = NEW_ARRAY(a, double, curve->n + 1);
    const char **label = NEW_ARRAY(a, const char *, curve->n + 1);
    for (int i = 0; i < curve->n; i++) {
        const Planned *p = &curve->points[i];
        x[i] = (double)p->arena / (1 << 30);
        y[i] = p->step_us / 1e3;
        label[i] = arena_printf(a, "%s, %s", figure_bytes(a, (double)p->arena), figure_time(a, p->step_us));
    }
    ChartSeries series = {.x = x, .y = y, .label = label, .n = curve->n, .steps = true};
    const char *world = arena_printf(a, "%s, %d rank%s of %s", basename(c->input), o->world ? o->world : 1,
                                     o->world > 1 ? "s" : "", o->device ? o->device : "cpu");
    Chart chart = {.title = arena_printf(a, "Fastest step within a budget: %s", world),
                   .x = "arena, GiB",
                   .y = "predicted step, ms",
                   .series = &series,
                   .n = 1};
    OutFile f = out_open(a, o->curve_svg);
    chart_svg(f.f, a, &chart);
    out_commit(&f);
}

static int curve(Arena *a, const Options *o, const Context *c) {
    if (!cli_is_model(c->input)) fail_usage("%s: policies are chosen for a model: give its .lua file", c->input);
    if (o->out)
        fail_usage("--curve -o %s: -o writes the policies of one budget; give --budget, or leave one of the two out",
                   o->out);
    PlannerCurve curve = planner_curve(a, compile, c, cli_device(a, o), choices(o), POINTS);
    if (o->curve_svg) draw(a, o, c, &curve);
    if (cli_as_json(o)) {
        cJSON *all = cJSON_CreateArray();
        for (int i = 0; i < curve.n; i++) cJSON_AddItemToArray(all, planned_json(&curve.points[i]));
        print_json(stdout, all);
        return 0;
    }
    printf("%12s  %12s  %s\n", "arena", "step", "choice");
    for (int i = 0; i < curve.n; i++) {
        const Planned *p = &curve.points[i];
        printf("%12s  %12s  %s\n", figure_bytes(a, (double)p->arena), figure_time(a, p->step_us), choice_of(a, p));
    }
    return 0;
}

int command_plan(Arena *a, const Options *o) {
    Context c = {o, o->inputs[0]};
    if (o->curve) return curve(a, o, &c);
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    PlannerResult r = search(a, o, &c);
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (!r.best.plan) nothing_fits(a, &r);
    if (o->out) {
        OutFile f = out_open(a, o->out);
        fprintf(f.f, "-- Chosen by shardc plan for an arena of at most %lld bytes.\n%s", (long long)r.budget,
                r.best.entries);
        out_commit(&f);
    }
    if (cli_as_json(o)) {
        cJSON *all = planned_json(&r.best);
        cJSON_AddNumberToObject(all, "budget_bytes", (double)r.budget);
        cJSON_AddNumberToObject(all, "bound_us", r.bound_us);
        cJSON_AddItemToObject(all, "as_the_model_says", planned_json(&r.without));
        print_json(stdout, all);
    } else {
        double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
        plan_text(stdout, a, o, &r, seconds);
    }
    return 0;
}
