/* A run beside its plan as text and as JSON: what a step took and was predicted to take, which ops and events differ
 * most, and which rank the others wait for. Relies on: actual.h, report.h (an event's line), figures.h,
 * lines.h. Relied on by: cli/inspect.c, cli/report.c. */
#include "../plan/figures.h"
#include "../plan/json_writer.h"
#include "../plan/lines.h"
#include "actual.h"
#include "report.h"

#include <math.h>

enum { MOST_ROWS = 12, MOST_EVENTS = 12, MOST_IDLES = 4 };
enum { TIMES_FROM = 26, EVENT_FROM = 14 }; /* the columns at which figures and events begin */

/* ── text ────────────────────────────────────────────────────────────────────────────────────────────────────────── */
static const char *ratio(Arena *a, double predicted, double actual) {
    return predicted > 1e-6 ? arena_printf(a, "x%.2f", actual / predicted) : "-";
}

static const char *signed_time(Arena *a, double us) {
    const char *text = figure_time(a, fabs(us));
    return strcmp(text, figure_time(a, 0)) ? arena_printf(a, "%s%s", us < 0 ? "-" : "+", text) : text; /* not -0.0 us */
}

static void time_line(FILE *f, Arena *a, const char *name, double predicted, double actual, const char *rest) {
    lines_open(f, TIMES_FROM, arena_printf(a, "  %s", name));
    fprintf(f, " %11s %11s %8s%s\n", figure_time(a, predicted), figure_time(a, actual), ratio(a, predicted, actual),
            rest);
}

static void rows(FILE *f, const Actual *x, const char *title, const ActualRows *r) {
    Arena *a = x->plan->arena;
    ActualRow rest = {NULL, 0, 0, 0, 0};
    int n = r->n <= MOST_ROWS + 1 ? r->n : MOST_ROWS;
    fprintf(f, "\n%-*s %11s %11s %8s %8s    of error\n", TIMES_FROM, title, "predicted", "actual", "ratio", "events");
    for (int i = 0; i <= r->n; i++) {
        const ActualRow *row = i < r->n ? &r->at[i] : &rest;
        if (i < n || (i == r->n && n < r->n))
            time_line(f, a, row->name ? row->name : arena_printf(a, "%d others", r->n - n), row->predicted_us,
                      row->actual_us,
                      arena_printf(a, " %8.6g  %8.1f %%", row->events,
                                   x->error_us > 0 ? 100 * row->error_us / x->error_us : 0));
        if (i < n) continue;
        rest.events += row->events;
        rest.predicted_us += row->predicted_us;
        rest.actual_us += row->actual_us;
        rest.error_us += row->error_us;
    }
}

/* One line an event: by how much it differs, its times, and what `columns` say of it. */
static void largest(FILE *f, const Actual *x, const char *title, const ActualError *e, int n, unsigned columns) {
    const ReportOptions o = {.columns = columns};
    fputc('\n', f);
    lines_print(f, 0, "", title);
    for (int i = 0; i < n && i < MOST_EVENTS; i++, e++) {
        const PlanProgram *g = &x->plan->programs[e->program];
        Str s = {.arena = x->plan->arena};
        report_event_line(&s, x->plan, g, &g->events[e->event], &o);
        lines_print(f, EVENT_FROM, arena_printf(s.arena, "  %10s", signed_time(s.arena, e->error_us)),
                    arena_printf(s.arena, "%s -> %s  %s  %s %s", figure_time(s.arena, e->predicted_us),
                                 figure_time(s.arena, e->actual_us), ratio(s.arena, e->predicted_us, e->actual_us),
                                 g->name, s.s));
    }
}

static void ranks(FILE *f, const Actual *x) {
    Arena *a = x->plan->arena;
    if (x->plan->world == 1) return;
    fprintf(f, "\n%-10s %11s %11s %13s %15s  arrives last\n", "rank", "step", "compute", "collectives",
            "of it waiting");
    for (int k = 0; k < x->plan->world; k++) {
        const ActualRank *r = &x->ranks[k];
        fprintf(f, "  %-8d %11s %11s %13s %15s  %5d of %d\n", k, figure_time(a, r->step_us),
                figure_time(a, r->compute_us), figure_time(a, r->collective_us), figure_time(a, r->waiting_us), r->last,
                x->collectives);
    }
}

void actual_text(FILE *f, const Actual *x) {
    const Plan *p = x->plan;
    Arena *a = p->arena;
    bool trained = x->last_step >= x->first_step;
    Lines l = lines_open(f, 0, "");
    lines_words(&l, arena_printf(a, "%s for %s, world %d, beside", p->model, report_target(p), p->world));
    lines_piece(&l, arena_printf(a, "%s%s", x->files, trained ? ":" : ""));
    if (trained)
        lines_words(&l, arena_printf(a, "steps %lld to %lld", (long long)x->first_step, (long long)x->last_step));
    lines_close(&l);
    fputs("times are medians of every event over its runs on all ranks; a collective's from\n"
          "when its last rank arrived\n",
          f);
    fprintf(f, "\n%-*s %11s %11s %8s\n", TIMES_FROM, trained ? "a step" : "programs", "predicted", "actual", "ratio");
    time_line(f, a, "in programs", x->predicted_us, x->actual_us, "");
    time_line(f, a, "  compute stream busy", x->predicted_compute_us, x->actual_compute_us,
              arena_printf(a, "\n      %s by the medians of its events", figure_time(a, x->median_compute_us)));
    time_line(f, a, "  compute stream idle", fmax(x->predicted_us - x->predicted_compute_us, 0),
              fmax(x->actual_us - x->actual_compute_us, 0),
              arena_printf(a, "\n      %s from one kernel to the next", figure_time(a, x->gap_us)));
    if (x->between_us >= 0)
        fprintf(f, "  %-24s %11s %11s  data, logs, evaluation\n", "between two steps", "-",
                figure_time(a, x->between_us));
    for (int i = 0; i < p->nprograms; i++)
        if (x->programs[i].runs && p->programs[i].n)
            time_line(f, a, arena_printf(a, "program %s", p->programs[i].name), p->programs[i].step_us,
                      x->programs[i].us,
                      arena_printf(a, "  %d run%s", x->programs[i].runs, x->programs[i].runs > 1 ? "s" : ""));
    rows(f, x, "by phase", &x->by_phase);
    rows(f, x, "by op", &x->by_op);
    largest(f, x, "largest differences of a step", x->errors.at, x->errors.n,
            1u << COL_OP | 1u << COL_PHASE | 1u << COL_MODULE | 1u << COL_READS | 1u << COL_WRITES | 1u << COL_SOURCE);
    largest(f, x, "largest differences of how long the compute stream stands still before an event", x->idles.at,
            x->idles.n < MOST_IDLES ? x->idles.n : MOST_IDLES,
            1u << COL_OP | 1u << COL_MODULE | 1u << COL_WAITS | 1u << COL_SOURCE);
    ranks(f, x);
}

/* ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────── */
static void put_rows(Json *j, const char *key, const ActualRows *r) {
    json_open_line(j, key, '[');
    for (int i = 0; i < r->n; i++) {
        json_open(j, NULL, '{');
        json_str(j, "name", r->at[i].name);
        json_real(j, "events", r->at[i].events);
        json_real(j, "predicted_us", r->at[i].predicted_us);
        json_real(j, "actual_us", r->at[i].actual_us);
        json_real(j, "error_us", r->at[i].error_us);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void put_programs(Json *j, const Actual *x) {
    json_open_line(j, "programs", '[');
    for (int i = 0; i < x->plan->nprograms; i++) {
        const ActualProgram *q = &x->programs[i];
        const PlanProgram *g = &x->plan->programs[i];
        if (!q->runs) continue;
        json_open_line(j, NULL, '{');
        json_str(j, "name", g->name);
        json_int(j, "runs", q->runs);
        json_real(j, "per_step", q->share);
        json_real(j, "predicted_us", g->step_us);
        json_real(j, "actual_us", q->us);
        json_open(j, "events", '[');
        for (int e = 0; e < g->n; e++) {
            json_open_line(j, NULL, '{');
            json_str(j, "id", g->events[e].id);
            json_real(j, "predicted_us", g->events[e].duration_us);
            json_real(j, "actual_us", q->events[e].us);
            json_real(j, "begin_us", q->events[e].begin_us);
            json_real(j, "end_us", q->events[e].end_us);
            json_close(j, '}');
        }
        json_close(j, ']');
        json_close(j, '}');
    }
    json_close(j, ']');
}

void actual_json(FILE *f, const Actual *x) {
    Json j = {.f = f, .s = {.arena = x->plan->arena}};
    json_start(&j, "shardc-actual", 1);
    json_str(&j, "model", x->plan->model);
    json_str(&j, "files", x->files);
    json_int(&j, "world", x->plan->world);
    json_int(&j, "first_step", x->first_step);
    json_int(&j, "last_step", x->last_step);
    json_line(&j);
    json_real(&j, "predicted_us", x->predicted_us);
    json_real(&j, "actual_us", x->actual_us);
    json_real(&j, "predicted_compute_us", x->predicted_compute_us);
    json_real(&j, "actual_compute_us", x->actual_compute_us);
    json_real(&j, "median_compute_us", x->median_compute_us);
    json_real(&j, "gap_us", x->gap_us);
    if (x->between_us >= 0) json_real(&j, "between_us", x->between_us);
    json_real(&j, "error_us", x->error_us);
    put_rows(&j, "by_phase", &x->by_phase);
    put_rows(&j, "by_op", &x->by_op);
    json_line(&j);
    json_int(&j, "collectives", x->collectives);
    json_open(&j, "ranks", '[');
    for (int k = 0; k < x->plan->world; k++) {
        const ActualRank *r = &x->ranks[k];
        json_open(&j, NULL, '{');
        json_real(&j, "step_us", r->step_us);
        json_real(&j, "compute_us", r->compute_us);
        json_real(&j, "collective_us", r->collective_us);
        json_real(&j, "waiting_us", r->waiting_us);
        json_int(&j, "arrives_last", r->last);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    put_programs(&j, x);
    json_end(&j);
}
