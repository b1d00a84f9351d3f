/* `shardc explain` and the table of --explain. What is said is in the plan or follows from it. Which pass made an op is
 * known by its number: each pass notes how many ops had been made when it ended.
 * Relies on: explain.h, origin.h, sentences.h (reasons of waits), slack.h, limits.h, lines.h, figures.h, live.h.
 * Relied on by: cli/explain.c and the commands with --explain. */
#include "explain.h"
#include "../plan/sentences.h"

#include "../ir/ops.h"
#include "../ir/patterns.h"
#include "../ir/rules.h"
#include "../ir/training.h"
#include "../plan/figures.h"
#include "../plan/limits.h"
#include "../plan/lines.h"
#include "../plan/live.h"
#include "../plan/slack.h"
#include "origin.h"
#include "report.h"

#include <math.h>

enum { MOST_NAMED = 12, TEXT_FROM = 17 };

typedef struct {
    FILE *f;
    const Plan *plan;
    const PlanProgram *p;
    const double *slack; /* by event of p: how much later it may end without a longer step */
} Explain;

/* ── words ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
static void line(const Explain *w, const char *title, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void line(const Explain *w, const char *title, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    Lines l = lines_open(w->f, TEXT_FROM, arena_printf(w->plan->arena, "  %s", title));
    lines_hang(&l, 2);
    lines_words(&l, arena_vprintf(w->plan->arena, fmt, args));
    lines_close(&l);
    va_end(args);
}

static const char *time_of(const Explain *w, double us) {
    return figure_time(w->plan->arena, us);
}

static const char *source_of(const Explain *w, Source src) {
    return src.file ? arena_printf(w->plan->arena, ", %s:%d", basename(src.file), src.line) : "";
}

/* "e131 (matmul, forward h.0.mlp.up)" */
static const char *event_named(const Explain *w, int e) {
    const Event *x = &w->p->events[e];
    return arena_printf(w->plan->arena, "%s (%s, %s %s)", x->id, x->op, phase_name(x->phase),
                        *x->module ? x->module : "-");
}

static const char *op_named(const Explain *w, const Op *op) {
    return arena_printf(w->plan->arena, "%s (%s, %s %s%s)", op->id, op_label(w->plan->arena, op), phase_name(op->phase),
                        op->module && *op->module->path ? op->module->path : "-", source_of(w, op->src));
}

/* ── an event ────────────────────────────────────────────────────────────────────────────────────────────────────── */
static void made_by(const Explain *w, const Op *op) {
    if (!op) {
        line(w, "made by", "a plan.json and a binary do not say which pass; give the model");
        return;
    }
    const char *from = "";
    if (op->origin)
        from = arena_printf(w->plan->arena, "%s %s", op->phase == op->origin->phase ? ", from" : ", for",
                            op_named(w, op->origin));
    line(w, "made by", "pass %s%s", origin_pass(w->plan, op), from);
    const char *kernel = origin_kernel(w->plan, op);
    if (*kernel) line(w, "computed by", "%s", kernel);
    if (op->unit) line(w, "unit", "%d %s", op->unit->id, *op->unit->name ? op->unit->name : "(model)");
    for (const Joined *j = op->joined; j; j = j->next)
        line(w, "joined by", "pass epilogue_fusion, with %s (%s)", j->id, op_info[j->kind].name);
    for (int i = 0; i < op->nbody && i < MOST_NAMED; i++)
        line(w, i ? "" : "one kernel of", "%s, by pass %s", op_named(w, op->body[i]),
             origin_pass(w->plan, op->body[i]));
}

static void issued(const Explain *w, int e) {
    const Event *x = &w->p->events[e];
    const char *other = x->issue_other >= 0 ? event_named(w, x->issue_other) : NULL;
    const char *said = origin_issue(x);
    if (!*said) return;
    line(w, "issued", "%s%s%s", said, other ? " " : "", other ? other : "");
}

static double end_of(const Event *x) {
    return x->start_us + x->duration_us;
}

static void starts(const Explain *w, int e) {
    const Event *x = &w->p->events[e];
    int before = e - 1; /* on its stream */
    while (before >= 0 && w->p->events[before].stream != x->stream) before--;
    int held = before;
    for (int i = 0; i < x->nwaits; i++)
        if (held < 0 || end_of(&w->p->events[x->waits[i]]) > end_of(&w->p->events[held])) held = x->waits[i];
    line(w, "starts", "at %s, %s", time_of(w, x->start_us),
         held < 0 ? "at once"
                  : arena_printf(w->plan->arena, "when %s has ended%s", event_named(w, held),
                                 held == before ? ", the event before it on its stream" : ""));
    double idle = x->start_us - (before < 0 ? 0 : end_of(&w->p->events[before]));
    if (idle > 0) line(w, "", "its stream stands still for %s before it", time_of(w, idle));
    line(w, "takes", "%s; %s", time_of(w, x->duration_us),
         w->slack[e] > 0
             ? arena_printf(w->plan->arena, "it may end %s later without a longer step", time_of(w, w->slack[e]))
             : "the step is longer by whatever it takes longer");
}

/* "260 TFLOP/s, 26 % of 989" */
static void reached(Str *s, double rate, double peak, const char *unit) {
    static const struct {
        double one;
        const char *name;
    } units[] = {{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {0, ""}};
    int k = 0;
    while (peak < units[k].one) k++;
    double one = units[k].one > 0 ? units[k].one : 1;
    str_addf(s, "%.3g %s%s/s, %.0f %% of %.4g", rate / one, units[k].name, unit, 100 * rate / peak, peak / one);
}

/* How near it comes to what the device can do. */
static void reaches(const Explain *w, const Event *x) {
    Limit l = plan_limit(x);
    if (l.bound == BOUND_UNKNOWN) return;
    Str s = {.arena = w->plan->arena};
    if (l.flops_share > 0) reached(&s, x->flops / x->duration_us * 1e6, x->peak_flops, "FLOP");
    if (l.flops_share > 0 && l.bytes_share > 0) str_add(&s, "; ");
    if (l.bytes_share > 0) reached(&s, x->bytes / x->duration_us * 1e6, x->peak_bytes, "B");
    if (l.bytes_share > 0) str_addf(&s, " over %s", plan_route(x->over));
    line(w, "reaches", "%s; bound by %s", s.s, l.bound == BOUND_ARITHMETIC ? "arithmetic" : plan_route(x->over));
}

static void accesses(const Explain *w, const char *title, const Access *x, int n) {
    for (int i = 0; i < n; i++) {
        const Storage *s = &w->plan->storages[x[i].storage];
        line(w, i ? "" : title, "%s, %s of %s, %s", s->name, figure_bytes(w->plan->arena, (double)x[i].size),
             storage_class_name(s->cls), *s->owner ? s->owner : "(model)");
    }
}

static void waits(const Explain *w, int e) {
    const Event *x = &w->p->events[e];
    for (int i = 0; i < x->nwaits; i++) {
        const char *said[REASONS_MOST + 1];
        int n = plan_reasons(w->plan, w->p, x, x->waits[i], NULL, NULL, said);
        Str s = {.arena = w->plan->arena};
        for (int k = 0; k < n; k++) str_addf(&s, "%s%s", k ? "; " : "", said[k]);
        line(w, i ? "" : "waits for", "%s, until %s: %s", w->p->events[x->waits[i]].id,
             time_of(w, end_of(&w->p->events[x->waits[i]])), s.s);
    }
    if (!x->nwaits) line(w, "waits for", "no event of another stream");
    Str s = {.arena = w->plan->arena};
    int n = 0;
    for (int v = e + 1; v < w->p->n; v++)
        for (int i = 0; i < w->p->events[v].nwaits; i++)
            if (w->p->events[v].waits[i] == e && n++ < MOST_NAMED)
                str_addf(&s, "%s%s", s.n ? ", " : "", event_named(w, v));
    if (n)
        line(w, "waited for by", "%s%s", s.s,
             n > MOST_NAMED ? arena_printf(s.arena, " and %d more", n - MOST_NAMED) : "");
}

static void begins_and_frees(const Explain *w, int e) {
    for (int ends = 0; ends < 2; ends++) {
        Str s = {.arena = w->plan->arena};
        int n = 0;
        int64_t bytes = 0;
        for (int i = 0; i < w->plan->nstorages; i++) {
            const Storage *x = &w->plan->storages[i];
            if (x->program != w->p - w->plan->programs || (ends ? x->last : x->first) != e) continue;
            bytes += x->size;
            if (n++ < MOST_NAMED) str_addf(&s, "%s%s", s.n ? ", " : "", x->name);
        }
        if (n)
            line(w, ends ? "frees" : "begins", "%s: %s%s", figure_bytes(s.arena, (double)bytes), s.s,
                 n > MOST_NAMED ? ", ..." : "");
    }
}

static void explain_event(const Explain *w, int e) {
    const Event *x = &w->p->events[e];
    lines_sentence(w->f, TEXT_FROM + 2,
                   arena_printf(w->plan->arena, "%s of program %s: %s, %s %s%s", x->id, w->p->name, x->op,
                                phase_name(x->phase), *x->module ? x->module : "-", source_of(w, x->src)));
    made_by(w, x->op_ir);
    line(w, "purpose", "to %s", purposes[x->purpose].name);
    int place = 0, all = 0; /* on its stream */
    for (int i = 0; i < w->p->n; i++) {
        if (w->p->events[i].stream != x->stream) continue;
        all++;
        place += i <= e;
    }
    line(w, "stands", "number %d of %d on stream %s; number %d of %d in issue order", place, all,
         stream_name(x->stream), e + 1, w->p->n);
    issued(w, e);
    starts(w, e);
    reaches(w, x);
    waits(w, e);
    accesses(w, "reads", x->reads, x->nreads);
    accesses(w, "writes", x->writes, x->nwrites);
    begins_and_frees(w, e);
}

/* ── a storage ───────────────────────────────────────────────────────────────────────────────────────────────────── */
static bool uses(const Access *x, int n, int storage) {
    for (int i = 0; i < n; i++)
        if (x[i].storage == storage) return true;
    return false;
}

/* Which events touch it; the longest time between two that do. */
static void users(const Explain *w, int storage) {
    Str lists[2] = {{.arena = w->plan->arena}, {.arena = w->plan->arena}};
    int n[2] = {0}, from = -1, to = -1, last = -1;
    for (int e = 0; e < w->p->n; e++) {
        const Event *x = &w->p->events[e];
        bool by[2] = {uses(x->writes, x->nwrites, storage), uses(x->reads, x->nreads, storage)};
        for (int k = 0; k < 2; k++)
            if (by[k] && n[k]++ < MOST_NAMED) str_addf(&lists[k], "%s%s", lists[k].n ? ", " : "", event_named(w, e));
        if (!by[0] && !by[1]) continue;
        if (last >= 0 && (from < 0 || x->start_us - end_of(&w->p->events[last]) >
                                          w->p->events[to].start_us - end_of(&w->p->events[from])))
            from = last, to = e;
        last = e;
    }
    for (int k = 0; k < 2; k++) {
        if (n[k] > MOST_NAMED) str_addf(&lists[k], " and %d more", n[k] - MOST_NAMED);
        line(w, k ? "read by" : "written by", "%s",
             n[k] ? lists[k].s : arena_printf(w->plan->arena, "no event of %s", w->p->name));
    }
    if (from >= 0 && w->p->events[to].start_us > end_of(&w->p->events[from]))
        line(w, "untouched", "for %s between %s and %s",
             time_of(w, w->p->events[to].start_us - end_of(&w->p->events[from])), event_named(w, from),
             event_named(w, to));
}

static const char *why_so_long(const Storage *s, bool kept) {
    switch (s->cls) {
    case C_ACTIVATIONS:
        return kept ? "it is kept from forward to backward; recompute the module around its readers, or offload it"
                    : "until its last reader";
    case C_UNSHARDED:
        return kept ? "its unit stays gathered from forward to backward; reshard_after_forward frees it between"
                    : "its unit is gathered ahead of its first use (prefetch), until its last";
    case C_UNSHARDED_GRADS: return "until the unit's gradients are reduced; smaller units reduce earlier";
    case C_WORKSPACE: return "for the one kernel that works in it";
    default: return "until its last reader";
    }
}

/* The nearest storage in issue order that has some of its bytes after it (before: before it); -1: none. */
static int neighbour(const Explain *w, const Storage *s, bool before) {
    int found = -1;
    for (int i = 0; i < w->plan->nstorages; i++) {
        const Storage *x = &w->plan->storages[i];
        if (x == s || x->program != s->program || x->arena != s->arena) continue;
        if (x->offset >= s->offset + s->size || s->offset >= x->offset + x->size) continue;
        if (before ? x->last >= s->first : x->first <= s->last) continue;
        if (found < 0 || (before ? x->last > w->plan->storages[found].last : x->first < w->plan->storages[found].first))
            found = i;
    }
    return found;
}

static void explain_storage(const Explain *w, int storage) {
    const Storage *s = &w->plan->storages[storage];
    const PlanProgram *p = w->p;
    lines_sentence(
        w->f, TEXT_FROM + 2,
        arena_printf(w->plan->arena, "%s%s%s: %s of %s, %s (%s B)", s->name, s->program < 0 ? "" : " of program ",
                     s->program < 0 ? "" : p->name, storage_class_name(s->cls), *s->owner ? s->owner : "(model)",
                     figure_bytes(w->plan->arena, (double)s->size), figure_grouped(w->plan->arena, (double)s->size)));
    line(w, "lies", "at 0x%08llx to 0x%08llx of the %s arena", (unsigned long long)s->offset,
         (unsigned long long)(s->offset + s->size), s->arena == ARENA_HOST ? "host's" : "device's");
    if (s->program < 0) {
        line(w, "lives", "always: it outlives programs. Less of it: a narrower dtype, or more ranks to shard over");
        users(w, storage);
        return;
    }
    made_by(w, p->events[s->first].op_ir);
    const Event *a = &p->events[s->first], *z = &p->events[s->last];
    line(w, "lives", "from %s to %s: %s of %s", event_named(w, s->first), event_named(w, s->last),
         time_of(w, end_of(z) - a->start_us), time_of(w, p->step_us));
    line(w, "so long", "%s", why_so_long(s, a->phase == FORWARD && z->phase != FORWARD));
    users(w, storage);
    int before = neighbour(w, s, true), after = neighbour(w, s, false);
    if (before >= 0)
        line(w, "before it", "%s had some of its bytes, until %s", w->plan->storages[before].name,
             event_named(w, w->plan->storages[before].last));
    if (after < 0)
        line(w, "after it", "nothing of this program takes its bytes");
    else {
        const Storage *x = &w->plan->storages[after];
        line(w, "after it", "%s takes some of its bytes at %s, %s later", x->name, event_named(w, x->first),
             time_of(w, fmax(p->events[x->first].start_us - end_of(z), 0)));
    }
}

/* ── what an id is of ────────────────────────────────────────────────────────────────────────────────────────────── */
static bool explain_in(Explain *w, int program, const char *id) {
    w->p = &w->plan->programs[program];
    for (int e = 0; e < w->p->n; e++)
        if (!strcmp(w->p->events[e].id, id)) {
            w->slack = plan_slack(w->plan, w->p);
            explain_event(w, e);
            return true;
        }
    for (int i = 0; i < w->plan->nstorages; i++) {
        const Storage *s = &w->plan->storages[i];
        if (strcmp(s->name, id) || (s->program >= 0 && s->program != program)) continue;
        explain_storage(w, i);
        return true;
    }
    return false;
}

static _Noreturn void not_there(const Plan *p, const char *id, const char *program) {
    VEC(const char *) names = {0};
    for (int i = 0; i < p->nprograms; i++)
        for (int e = 0; e < p->programs[i].n && (!program || !strcmp(program, p->programs[i].name)); e++)
            push(&names, p->arena, p->programs[i].events[e].id);
    for (int i = 0; i < p->nstorages; i++) {
        int g = p->storages[i].program;
        if (!program || g < 0 || !strcmp(program, p->programs[g].name)) push(&names, p->arena, p->storages[i].name);
    }
    const char *near = str_nearest(id, names.at, names.n);
    fail(NOWHERE, "%s has no event and no storage \"%s\"%s%s%s%s%s; `shardc inspect` lists them", p->model, id,
         program ? " in program " : "", program ? program : "", near ? "; is it \"" : "", near ? near : "",
         near ? "\"?" : "");
}

void explain_text(FILE *f, const Plan *p, const char *id, const char *program) {
    Explain w = {.f = f, .plan = p};
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < p->nprograms; i++) {
            const PlanProgram *g = &p->programs[i];
            bool asked = program ? !strcmp(program, g->name) : program_trains(g) == !round;
            if (asked && explain_in(&w, i, id)) return;
        }
    not_there(p, id, program);
}

/* ── passes ──────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* What a pass left, where it changed that. */
void explain_passes(FILE *f, const Plan *p) {
    static const char *const row = "%-16s %9s %9s %15s %14s %11s\n";
    const Graph *g = p->graph;
    Arena *a = p->arena;
    fputc('\n', f);
    fprintf(f, row, "pass", "events", "transfers", "arithmetic", "memory traffic", "kernel time");
    for (int i = 0; i < g->passes.n; i++) {
        const PassRecord *x = &g->passes.at[i], *y = i ? x - 1 : NULL;
        if (y && x->events == y->events && x->flops == y->flops && x->bytes == y->bytes) {
            fprintf(f, "%-16s %9s\n", x->name, "no change");
            continue;
        }
        fprintf(f, row, x->name, arena_printf(a, "%d", x->events),
                y && x->transfers == y->transfers ? "" : arena_printf(a, "%d", x->transfers),
                y && x->flops == y->flops ? "" : arena_printf(a, "%.4g FLOP", x->flops),
                y && x->bytes == y->bytes ? "" : figure_bytes(a, x->bytes),
                y && x->kernel_us == y->kernel_us ? "" : figure_time(a, x->kernel_us));
    }
    int n = 0, nwaits = 0;
    for (int i = 0; i < p->nprograms; i++)
        if (program_trains(&p->programs[i])) {
            n += p->programs[i].n;
            for (int e = 0; e < p->programs[i].n; e++) nwaits += p->programs[i].events[e].nwaits;
        }
    StepFigures s = live_step(p);
    fprintf(f, "%-16s %d events of training in issue order\n", "order", n);
    fprintf(f, "%-16s arena %s, lower bound %s\n", "place", figure_bytes(a, (double)p->arena_bytes[ARENA_DEVICE]),
            figure_bytes(a, (double)p->bound_bytes[ARENA_DEVICE]));
    fprintf(f, "%-16s %d waits between streams\n", "sync", nwaits);
    fprintf(f, "%-16s a step of %s, of it %s exposed communication\n", "simulate", figure_time(a, s.step_us),
            figure_time(a, s.exposed_us));
}
