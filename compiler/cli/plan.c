/* `shardc plan`: the fastest policies within a budget of memory, as text, JSON and a curve.
 * Relies on: planned.h, points.h (JSON), report.
 * Relied on by: main.c. */
#include "../plan/figures.h"
#include "../plan/lines.h"
#include "../report/chart.h"
#include "../report/report.h"
#include "planned.h"
#include "points.h"

#include <cjson/cJSON.h>

/* ── text ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
enum { FROM = 11, CHOICE_FROM = 31, CANDIDATE_FROM = 40, POINT_FROM = 24 }; /* the columns at which texts begin */

static void candidates(Arena *a, const PlannerResult *r) {
    printf("%12s %12s %12s  %s\n", "promised", "step", "arena", "choice");
    for (int i = 0; i < r->tried; i++) {
        const Candidate *c = &r->candidates[i];
        const char *promise = c->promise_us > 0 ? figure_time(a, c->promise_us) : "-";
        const char *step = c->made ? figure_time(a, c->plan.step_us) : "refused";
        const char *arena = c->made ? figure_bytes(a, (double)c->plan.arena) : "-";
        lines_print(stdout, CANDIDATE_FROM, arena_printf(a, "%12s %12s %12s", promise, step, arena),
                    planned_words(a, &c->plan));
    }
}

static const char *stands_over(Arena *a, const Options *o) { /* " --policy a.lua" for each */
    Str s = {.arena = a};
    for (int i = 0; i < o->policies.n; i++) str_addf(&s, " --policy %s", o->policies.at[i]);
    return s.n ? s.s : "";
}

static void plan_text(Arena *a, const Options *o, const PlannerResult *r) {
    const Planned *best = &r->best;
    const Plan *p = best->plan;
    double spare = (double)(r->budget - r->best.arena);
    lines_print(stdout, 0, "",
                arena_printf(a, "plan of %s for %s, world %d: arena within %s (%s)", p->model, p->device, p->world,
                             figure_bytes(a, (double)r->budget), o->budget ? "--budget" : "what the device leaves"));
    if (best->nruns) printf("  %13s  %12s  %s\n", "a block keeps", "it costs", "choice");
    for (int i = 0; i < best->nruns; i++)
        lines_print(stdout, CHOICE_FROM,
                    arena_printf(a, "  %13s  %12s", figure_bytes(a, (double)best->runs[i].kept),
                                 best->runs[i].us > 0 ? figure_time(a, best->runs[i].us) : "-"),
                    arena_printf(a, "%s: %s", best->runs[i].match, best->runs[i].what));
    lines_print(stdout, FROM, "  units", best->units);
    if (o->policies.n) { /* what it chose stands over them */
        Plan given = *p;
        given.npolicies = o->policies.n;
        given.noptions = 0;
        lines_print(stdout, FROM, "  over", report_policies(&given));
    }
    lines_print(stdout, FROM, "  arena",
                arena_printf(a, "%s exact (%s B), lower bound %s, spare %s\nhost %s",
                             figure_bytes(a, (double)r->best.arena), figure_grouped(a, (double)r->best.arena),
                             figure_bytes(a, (double)p->bound_bytes[ARENA_DEVICE]), figure_bytes(a, spare),
                             figure_bytes(a, (double)r->best.host)));
    const char *trust = report_trust(a, p);
    Lines l = lines_open(stdout, FROM, "  step");
    lines_words(&l,
                arena_printf(a, "%s%s%s%s, exposed communication %.1f %%\n", figure_time(a, r->best.step_us),
                             *trust ? " (" : "", trust, *trust ? ")" : "", 100 * r->best.exposed_us / r->best.step_us));
    if (r->estimate_us > 0)
        lines_words(&l, arena_printf(a, "an estimate of the fastest is %s", figure_time(a, r->estimate_us)));
    lines_close(&l);
    printf("  as the model says: step %s, arena %s%s\n", figure_time(a, r->without.step_us),
           figure_bytes(a, (double)r->without.arena), r->without.arena > r->budget ? ", which does not fit" : "");
    printf("  the fastest found of %d plans that were placed; products and attention alone\n"
           "  take %s in every plan\n",
           r->tried, figure_time(a, r->floor_us));
    for (int i = 0; i < r->nnot_tried; i++)
        lines_print(stdout, 2, "", arena_printf(a, "not tried: %s", r->not_tried[i]));
    if (!o->out) printf("policy (-o FILE writes it,%s --policy FILE uses it):\n%s", stands_over(a, o), r->best.entries);
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

/* ── the command ────────────────────────────────────────────────────────────────────────────────────────────────── */
enum { POINTS = 16 };

static void draw(Arena *a, const Options *o, const PlanAsked *c, const PlannerCurve *curve) {
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
    Chart chart = {.title = arena_printf(a, "Fastest step found within a budget: %s", world),
                   .x = "arena, GiB",
                   .y = "predicted step, ms",
                   .series = &series,
                   .n = 1};
    OutFile f = out_open(a, o->curve_svg);
    chart_svg(f.f, a, &chart);
    out_commit(&f);
}

static void curve(Arena *a, const Options *o, const PlanAsked *c) {
    if (o->out || o->budget || o->explain)
        fail_usage("--curve %s: the curve is of all budgets; leave one of the two out", o->out      ? "-o"
                                                                                        : o->budget ? "--budget"
                                                                                                    : "--explain");
    const PlannerInput in = planned_input(a, c);
    PlannerCurve curve = planner_curve(a, &in, POINTS);
    planned_told();
    if (o->curve_svg) draw(a, o, c, &curve);
    if (cli_as_json(o)) {
        cJSON *all = cJSON_CreateArray();
        for (int i = 0; i < curve.n; i++) cJSON_AddItemToArray(all, planned_json(&curve.points[i]));
        points_print_json(stdout, all);
        return;
    }
    printf("%10s  %10s  %s\n", "arena", "step", "choice");
    for (int i = 0; i < curve.n; i++) {
        const Planned *p = &curve.points[i];
        lines_print(stdout, POINT_FROM,
                    arena_printf(a, "%10s  %10s", figure_bytes(a, (double)p->arena), figure_time(a, p->step_us)),
                    planned_words(a, p));
    }
}

static void plan(Arena *a, const Options *o, const PlanAsked *c) {
    PlannerResult r = planned_search(a, c);
    if (o->explain) candidates(a, &r);
    if (!r.best.plan) planned_nothing_fits(a, &r);
    if (o->out) {
        OutFile f = out_open(a, o->out);
        fprintf(f.f, "-- Chosen by shardc plan for an arena of at most %lld bytes.\n", (long long)r.budget);
        for (int i = 0; i < o->policies.n; i++) { /* a comment is one line */
            char *name = arena_strdup(a, o->policies.at[i]);
            for (char *x = name; *x; x++)
                if ((unsigned char)*x < ' ') *x = '?';
            fprintf(f.f, "-- It stands over %s: give that file too, before this one.\n", name);
        }
        fputs(r.best.entries, f.f);
        out_commit(&f);
    }
    if (!cli_as_json(o)) {
        plan_text(a, o, &r);
        return;
    }
    cJSON *all = planned_json(&r.best);
    cJSON_AddNumberToObject(all, "budget_bytes", (double)r.budget);
    cJSON_AddNumberToObject(all, "plans_placed", r.tried);
    cJSON *not_tried = cJSON_AddArrayToObject(all, "not_tried");
    for (int i = 0; i < r.nnot_tried; i++) cJSON_AddItemToArray(not_tried, cJSON_CreateString(r.not_tried[i]));
    cJSON_AddNumberToObject(all, "bound_us", r.floor_us);
    cJSON_AddNumberToObject(all, "estimate_us", r.estimate_us);
    cJSON_AddItemToObject(all, "as_the_model_says", planned_json(&r.without));
    points_print_json(stdout, all);
}

int command_plan(Arena *a, const Options *o) {
    PlanAsked c = {o, o->inputs.at[0]};
    if (o->explain && cli_as_json(o))
        fail_usage("--explain --format json: the table is text; leave one of the two out");
    if (o->curve)
        curve(a, o, &c);
    else
        plan(a, o, &c);
    cli_printed();
    return 0;
}
