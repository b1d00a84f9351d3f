/* `inspect` as text: one stable line for each event, made for reading and for diff, on a terminal a table; and the
 * units. Relies on: event_cells.c, live.h, figures.h, lines.h. Relied on by: cli/, through report.h. */
#include "../ir/training.h"
#include "../plan/figures.h"
#include "../plan/lines.h"
#include "../plan/live.h"
#include "../plan/sentences.h"
#include "report.h"

#include <fnmatch.h>

enum { UNIT_FROM = 31, OPTIONS_FROM = 9 }; /* columns at which texts begin on a terminal */

const char *report_target(const Plan *p) {
    return strcmp(p->target, p->device) ? arena_printf(p->arena, "%s (%s)", p->target, p->device) : p->target;
}

const char *report_policies(const Plan *p) {
    Str s = {.arena = p->arena};
    for (int i = 0; i < p->npolicies; i++) {
        const PolicyFile *file = &p->policies[i];
        str_addf(&s, "%s%s: ", i ? "; then " : "", file->name);
        for (int k = 0; k < file->changes.n; k++) str_addf(&s, "%s%s", k ? ", " : "", file->changes.at[k]);
        if (!file->changes.n) str_add(&s, "nothing that the model's own policies do not say");
    }
    const char *before = "; in place of ";
    for (int i = 0; i < p->noptions; i++)
        if (p->options[i].overridden) {
            str_addf(&s, "%s%s=%s", before, p->options[i].name, p->options[i].text);
            before = " ";
        }
    return s.n ? s.s : "";
}

static bool has(const ReportOptions *o, Column c) {
    return o->columns >> c & 1;
}

/* "  r h.0/master@0x00020500:100.0KiB", or without addresses "g1f.0+0x30800:768B": where in the storage it begins. */
static void accesses(Str *s, const Plan *p, const ReportOptions *o, const char *title, const Access *x, int n) {
    if (n) str_addf(s, "  %s ", title);
    report_accesses(s, p, o, x, n);
}

void report_event_line(Str *s, const Plan *p, const PlanProgram *g, const Event *e, const ReportOptions *o) {
    str_add(s, e->id);
    if (has(o, COL_STREAM)) str_addf(s, " %s", stream_name(e->stream));
    if (has(o, COL_PURPOSE)) str_addf(s, "  to %s", purposes[e->purpose].name);
    if (has(o, COL_OP)) str_addf(s, "  %s", e->op);
    if (has(o, COL_OP) && e->stream == EXCHANGE && e->comm >= 0) str_addf(s, " over %s", p->comms[e->comm].axis->name);
    if (has(o, COL_PHASE)) str_addf(s, "  %s", phase_name(e->phase));
    if (has(o, COL_MODULE)) str_addf(s, "%s%s", has(o, COL_PHASE) ? " " : "  ", *e->module ? e->module : "-");
    if (has(o, COL_READS)) accesses(s, p, o, "r", e->reads, e->nreads);
    if (has(o, COL_WRITES)) accesses(s, p, o, "w", e->writes, e->nwrites);
    if (has(o, COL_WAITS) && e->nwaits) {
        str_add(s, "  wait");
        for (int i = 0; i < e->nwaits; i++) str_addf(s, " %s", g->events[e->waits[i]].id);
    }
    for (int i = 0; i < e->nwaits && has(o, COL_WHY); i++) {
        const char *said[REASONS_MOST + 1];
        int n = plan_reasons(p, g, e, e->waits[i], NULL, NULL, said);
        str_addf(s, "%s%s:", i ? ". " : "  why ", g->events[e->waits[i]].id);
        for (int k = 0; k < n; k++) str_addf(s, "%s %s", k ? ";" : "", said[k]);
    }
    if (has(o, COL_TIME)) str_addf(s, "  t %.3fms +%.3fms", e->start_us * 1e-3, e->duration_us * 1e-3);
    if (has(o, COL_SOURCE) && e->src.file) str_addf(s, "  %s:%d", basename(e->src.file), e->src.line);
    str_add(s, "\n");
}

static void program_text(FILE *f, const Plan *p, const PlanProgram *g, const ReportOptions *o) {
    int on[N_STREAMS] = {0}, waits = 0;
    for (int e = 0; e < g->n; e++) {
        on[g->events[e].stream]++;
        waits += g->events[e].nwaits;
    }
    Str head = {.arena = p->arena};
    str_addf(&head, "program %s: %d events, %d waits", g->name, g->n, waits);
    for (int s = 0; s < N_STREAMS; s++)
        if (on[s]) str_addf(&head, " · %s %d", stream_name((Stream)s), on[s]);
    str_addf(&head, "; peak %s", figure_bytes(p->arena, (double)g->peak[ARENA_DEVICE]));
    if (g->peak_event >= 0 && g->peak_event < g->n) str_addf(&head, " at %s", g->events[g->peak_event].id);
    str_addf(&head, "; %s, exposed %s", figure_time(p->arena, g->step_us), figure_time(p->arena, g->exposed_us));
    fputc('\n', f);
    if (o->terminal)
        lines_print(f, 0, "", head.s);
    else
        fprintf(f, "%s\n", head.s);
    if (o->terminal) {
        report_events_table(f, p, g, o);
        return;
    }
    Arena *a = arena_new(); /* given back for each program: a plan may have a hundred thousand lines */
    Str s = {.arena = a};
    for (int e = 0; e < g->n; e++) {
        if (!report_wants(o, &g->events[e])) continue;
        s.n = 0;
        report_event_line(&s, p, g, &g->events[e], o);
        fwrite(s.s, 1, s.n, f);
    }
    arena_free(a);
}

/* ── --module ────────────────────────────────────────────────────────────────────────────────────────────────────── */
static bool any_event_in(const Plan *p, const char *pattern) {
    for (int i = 0; i < p->nprograms; i++)
        for (int e = 0; e < p->programs[i].n; e++)
            if (!fnmatch(pattern, p->programs[i].events[e].module, 0)) return true;
    return false;
}

/* How many characters at their ends two paths share, in whole parts. */
static int common_tail(const char *x, const char *y) {
    int n = (int)strlen(x), m = (int)strlen(y), same = 0;
    for (int k = 1; k <= n && k <= m && x[n - k] == y[m - k]; k++)
        if ((k == n || x[n - k - 1] == '.') && (k == m || y[m - k - 1] == '.')) same = k;
    return same;
}

/* By spelling; else the shortest of those that end in the same parts: h.0 for layers.0 */
static const char *nearest_path(const Plan *p, const char *wanted) {
    Map *paths = map_new(p->arena); /* of modules with events, and of those that hold them */
    for (int i = 0; i < p->nprograms; i++)
        for (int e = 0; e < p->programs[i].n; e++) {
            char *path = arena_strdup(p->arena, p->programs[i].events[e].module);
            while (*path && !map_get(paths, path)) {
                map_put(paths, path, paths);
                char *dot = strrchr(path, '.');
                *(dot ? dot : path) = 0;
            }
        }
    VEC(const char *) names = {0};
    const char *found = NULL;
    int most = 0;
    for (int i = 0; i < map_len(paths); i++) {
        const char *path = map_key(paths, i);
        int same = common_tail(path, wanted);
        push(&names, p->arena, path);
        if (same < most || !same || (same == most && strlen(path) >= strlen(found))) continue;
        most = same;
        found = path;
    }
    const char *near = str_nearest(wanted, names.at, names.n);
    return near ? near : found;
}

/* A pattern that no module meets would print a schedule without events. What is suggested does meet one. */
static void check_module(const Plan *p, const char *pattern) {
    if (any_event_in(p, pattern)) return;
    size_t n = strlen(pattern);
    while (n && strchr(".*?", pattern[n - 1])) n--;
    const char *near = nearest_path(p, arena_printf(p->arena, "%.*s", (int)n, pattern)), *say = "";
    const char *const ends[] = {"", ".*", pattern + n};
    for (int i = 0; near && i < 3; i++) {
        const char *better = arena_printf(p->arena, "%s%s", near, ends[i]);
        if (any_event_in(p, better)) say = arena_printf(p->arena, "; did you mean '%s'?", better);
    }
    fail(NOWHERE, "--module '%s': no module with events has such a path%s; * stands for any characters", pattern, say);
}

static const char *s_of(int n) {
    return n == 1 ? "" : "s";
}

static void units_table(FILE *f, const Plan *p, const ReportOptions *o) {
    fprintf(f, "\nunits\n");
    for (int i = 0; i < p->nunits; i++) {
        const PlanUnit *u = &p->units[i];
        const char *made =
            u->grad_dtype == u->reduce ? "" : arena_printf(p->arena, "made in %s, ", dtype_name(u->grad_dtype));
        const char *experts = u->expert ? arena_printf(p->arena, " × %d groups of experts", u->expert->size) : "";
        const char *label = arena_printf(p->arena, "  %-3d %-24s ", u->id, *u->path ? u->path : "(model)");
        const char *text = arena_printf(
            p->arena,
            "%d parameter%s, %s elements in %d shard%s × %d replica%s%s, %s, gathered as %s, gradients %sreduced in %s",
            u->nparams, s_of(u->nparams), figure_grouped(p->arena, (double)u->numel), u->shard->size,
            s_of(u->shard->size), u->replicate->size, s_of(u->replicate->size), experts, dtype_name(u->dtype),
            dtype_name(u->wire), made, dtype_name(u->reduce));
        if (o->terminal)
            lines_print(f, UNIT_FROM, label, text);
        else
            fprintf(f, "%s%s\n", label, text);
    }
}

void report_printable(FILE *f, const char *s) {
    for (; *s; s++) fputc((unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s, f);
}

static void options_line(FILE *f, const Plan *p, const ReportOptions *o) {
    int shown = 0;
    Lines l = {0};
    for (int i = 0; i < p->noptions; i++) {
        if (!*p->options[i].text || p->options[i].overridden) continue; /* an nn.optional that nobody set */
        if (o->terminal) {
            if (!shown++) l = lines_open(f, OPTIONS_FROM, "options: ");
            lines_piece(&l, arena_printf(p->arena, "%s=%s", p->options[i].name, p->options[i].text));
            continue;
        }
        fprintf(f, "%s%s=", shown++ ? " " : "options: ", p->options[i].name);
        report_printable(f, p->options[i].text);
    }
    if (shown) fputc('\n', f);
}

/* Training programs first: they are what people look for. */
static void programs_text(FILE *f, const Plan *p, const ReportOptions *o) {
    for (int trains = 1; trains >= 0; trains--)
        for (int i = 0; i < p->nprograms; i++)
            if (program_trains(&p->programs[i]) == trains && (!o->program || !strcmp(o->program, p->programs[i].name)))
                program_text(f, p, &p->programs[i], o);
}

void report_inspect_text(FILE *f, const Plan *p, const ReportOptions *o) {
    if (o->module) check_module(p, o->module);
    fprintf(f, "%s for %s, world %d on %d node%s · %d programs · %d unit%s\n", p->model, report_target(p), p->world,
            p->nodes, s_of(p->nodes), p->nprograms, p->nunits, s_of(p->nunits));
    options_line(f, p, o);
    if (p->npolicies) {
        fputs("policy: ", f);
        report_printable(f, report_policies(p));
        fputc('\n', f);
    }
    fprintf(f, "arena %s B (lower bound %s), host %s B\n",
            figure_grouped(p->arena, (double)p->arena_bytes[ARENA_DEVICE]),
            figure_grouped(p->arena, (double)p->bound_bytes[ARENA_DEVICE]),
            figure_grouped(p->arena, (double)p->arena_bytes[ARENA_HOST]));
    programs_text(f, p, o);
    if (o->terminal && o->hides) fprintf(f, "\n%s\n", o->hides);
    units_table(f, p, o);
}
