/* Reads traces of a run (runtime/common/dump.c writes them) and joins them to a plan. A file is read entry by entry, so
 * that a message can name the line, and no tree of the whole is held.
 * Relies on: actual.h, cJSON.
 * Relied on by: cli/inspect.c, cli/calibrate.c. */
#include "actual.h"

#include "../ir/training.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>

typedef struct {
    int program, event, rank;
    int64_t step;
    double begin, end;
} Sample;

typedef struct {
    double begin, end;
} Interval;

typedef struct {
    Arena *a;
    const Plan *plan;
    Map **ids;            /* by program: its events' ids */
    const char **file_of; /* by rank */
    VEC(Sample) samples;
    Source at;
} Reader;

/* ── a file ──────────────────────────────────────────────────────────────────────────────────────────────────────── */
static double number(const Reader *r, const cJSON *o, const char *key, double most) {
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, key);
    if (!cJSON_IsNumber(x) || !(x->valuedouble >= 0 && x->valuedouble <= most))
        fail(r->at, "\"%s\" must be a number from 0 to %g, as --trace of a program writes it; run again with --trace",
             key, most);
    return x->valuedouble;
}

static const char *text(const cJSON *o, const char *key) {
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsString(x) ? x->valuestring : NULL;
}

static int64_t touched(const Event *e) {
    int64_t bytes = 0;
    for (int k = 0; k < e->nreads; k++) bytes += e->reads[k].size;
    for (int k = 0; k < e->nwrites; k++) bytes += e->writes[k].size;
    return bytes;
}

#define OTHER_RUN "give the binary that ran, or the model with the options of that run"

static Sample sample_of(const Reader *r, const cJSON *o) {
    const cJSON *args = cJSON_GetObjectItemCaseSensitive(o, "args");
    const char *id = text(args, "event"), *program = text(args, "program"), *name = text(o, "name");
    Sample x = {.rank = (int)number(r, o, "pid", 1 << 24)};
    if (!id || !program || !name)
        fail(r->at, "an entry names no event and program: this is no trace of a program of shardc; run it with --trace "
                    "FILE");
    if (!cJSON_GetObjectItemCaseSensitive(args, "step"))
        fail(r->at, "this is a planned schedule, as `shardc inspect --format trace` writes it; give what the program "
                    "wrote with --trace FILE");
    while (x.program < r->plan->nprograms && strcmp(program, r->plan->programs[x.program].name)) x.program++;
    if (x.program == r->plan->nprograms)
        fail(r->at, "%s has no program \"%.60s\": the trace is of another plan; " OTHER_RUN, r->plan->model, program);
    x.event = map_find(r->ids[x.program], id);
    if (x.event < 0)
        fail(r->at, "program %s has no event \"%.60s\": the trace is of another plan; " OTHER_RUN, program, id);
    const Event *e = &r->plan->programs[x.program].events[x.event];
    const char *op = name + strcspn(name, " "), *module = text(args, "module");
    if (strcmp(*op ? op + 1 : op, e->op) || (module && strcmp(module, e->module)))
        fail(r->at, "%s is \"%.60s\" of module \"%.60s\" in the trace, and \"%s\" of \"%s\" in the plan; " OTHER_RUN,
             id, *op ? op + 1 : op, module ? module : "", e->op, e->module);
    const cJSON *bytes = cJSON_GetObjectItemCaseSensitive(args, "touched");
    if (cJSON_IsNumber(bytes) && bytes->valuedouble != (double)touched(e))
        fail(r->at, "%s of program %s reads and writes %.0f B in the trace, and %lld B in the plan; " OTHER_RUN, id,
             program, bytes->valuedouble, (long long)touched(e));
    if (x.rank >= r->plan->world)
        fail(r->at, "the trace has a rank %d, and the plan %d ranks; " OTHER_RUN, x.rank, r->plan->world);
    x.step = (int64_t)number(r, args, "step", 1e15);
    x.begin = number(r, o, "ts", 1e15);
    x.end = x.begin + number(r, o, "dur", 1e15);
    return x;
}

/* Counts the lines up to `to`. */
static const char *pass(Reader *r, const char *from, const char *to) {
    for (; from < to; from++) r->at.line += *from == '\n';
    return to;
}

static void read_file(Reader *r, const char *path) {
    size_t n;
    const char *s = input_read(r->a, NOWHERE, path, FILE_MOST, &n), *end = s + n, *line = s, *stop;
    r->at = (Source){path, 1};
    const char *list = memmem(s, n, "\"traceEvents\"", 13),
               *open = memchr(list ? list : s, '[', n - (size_t)((list ? list : s) - s));
    if (!open) fail(r->at, "this is no trace in JSON: it holds no list; run the program with --trace FILE");
    const char *at = pass(r, s, open + 1);
    for (;;) {
        const char *next = at;
        while (next < end && (isspace((unsigned char)*next) || *next == ',')) next++;
        at = pass(r, at, next);
        if (at == end)
            fail(r->at, "the trace breaks off: the run was killed before it ended; run it again, with a few --steps");
        if (*at == ']') return;
        cJSON *o = cJSON_ParseWithLengthOpts(at, (size_t)(end - at), &stop, false);
        if (!o) {
            at = pass(r, at, stop);
            for (line = at; line > s && line[-1] != '\n'; line--) continue;
            fail(r->at, "column %d: from here on it is not JSON; is the file whole? Run the program with --trace again",
                 (int)(at - line) + 1);
        }
        const char *kind = text(o, "ph");
        if (!kind) fail(r->at, "an entry has no \"ph\": this is no trace in JSON; run the program with --trace FILE");
        if (!strcmp(kind, "X")) {
            Sample x = sample_of(r, o);
            if (r->file_of[x.rank] && r->file_of[x.rank] != r->at.file)
                fail(r->at,
                     "rank %d is in %s too: files are of one run, each with other ranks; leave one of the two out",
                     x.rank, r->file_of[x.rank]);
            r->file_of[x.rank] = r->at.file;
            push(&r->samples, r->a, x);
        }
        cJSON_Delete(o);
        at = pass(r, at, stop);
    }
}

/* ── runs of a program on all ranks ──────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    int runs, n;
    int64_t *step; /* by run */
    Interval *at;  /* by rank, run, event */
} Runs;

static Interval *run_of(const Runs *x, int rank, int run) {
    return &x->at[((size_t)rank * (size_t)x->runs + (size_t)run) * (size_t)x->n];
}

/* The k-th time that an event is in the trace of a rank is the program's k-th run there. */
static Runs runs_of(const Reader *r, int program) {
    const PlanProgram *g = &r->plan->programs[program];
    Runs x = {.n = g->n};
    int world = r->plan->world, *seen = NEW_ARRAY(r->a, int, (size_t)world *(size_t)g->n + 1), most = -1;
    for (int i = 0; i < r->samples.n; i++) {
        const Sample *s = &r->samples.at[i];
        int k = s->rank * g->n + s->event;
        if (s->program != program) continue;
        seen[k]++;
        if (most < 0 || seen[k] > seen[most]) most = k;
    }
    for (int k = 0; most >= 0 && k < world * g->n; k++)
        if (seen[k] != seen[most])
            fail((Source){r->file_of[k / g->n], 0},
                 "%s of program %s ran %d times on rank %d, and %s %d times on rank %d: the trace lacks entries; run "
                 "the program with --trace again",
                 g->events[k % g->n].id, g->name, seen[k], k / g->n, g->events[most % g->n].id, seen[most],
                 most / g->n);
    if (most < 0) return x;
    x.runs = seen[most];
    x.at = NEW_ARRAY(r->a, Interval, (size_t)world * (size_t)x.runs * (size_t)x.n);
    x.step = NEW_ARRAY(r->a, int64_t, x.runs);
    memset(seen, 0, sizeof *seen * (size_t)(world * g->n));
    for (int i = 0; i < r->samples.n; i++) {
        const Sample *s = &r->samples.at[i];
        if (s->program != program) continue;
        int run = seen[s->rank * g->n + s->event]++;
        run_of(&x, s->rank, run)[s->event] = (Interval){s->begin, s->end};
        if (!s->rank && !s->event) x.step[run] = s->step;
    }
    memset(seen, 0, sizeof *seen * (size_t)(world * g->n));
    for (int i = 0; i < r->samples.n; i++) {
        const Sample *s = &r->samples.at[i];
        if (s->program != program) continue;
        int run = seen[s->rank * g->n + s->event]++;
        if (s->step != x.step[run])
            fail((Source){r->file_of[s->rank], 0},
                 "run %d of program %s is of step %lld on rank 0, and of step %lld on rank %d: files are of one run; "
                 "run the program with --trace again",
                 run + 1, g->name, (long long)x.step[run], (long long)s->step, s->rank);
    }
    return x;
}

static Interval span_of(const Runs *x, int rank, int run) {
    const Interval *e = run_of(x, rank, run);
    Interval span = e[0];
    for (int i = 1; i < x->n; i++) {
        span.begin = fmin(span.begin, e[i].begin);
        span.end = fmax(span.end, e[i].end);
    }
    return span;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    if (!n) return 0;
    qsort(x, (size_t)n, sizeof *x, by_value);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

/* Of a collective, among the ranks of its group: how long that rank was in it which arrived last. It was there for the
 * least time, whatever the clocks of several machines say. */
static double least_in_group(const Plan *p, const Event *e, const Runs *x, int event, int rank, int run, int *last) {
    const Axis *a = p->comms[e->comm].axis;
    int first = rank - rank / a->stride % a->size * a->stride;
    double least = INFINITY;
    for (int k = 0; k < a->size; k++) {
        const Interval *i = &run_of(x, first + k * a->stride, run)[event];
        if (i->end - i->begin >= least) continue;
        least = i->end - i->begin;
        *last = first + k * a->stride;
    }
    return least;
}

/* ── the join ────────────────────────────────────────────────────────────────────────────────────────────────────── */
static bool meets(const Plan *p, const Event *e) {
    return e->comm >= 0 && p->comms[e->comm].axis->size > 1;
}

static void join_program(Reader *r, const PlanProgram *g, ActualProgram *x, const Runs *runs) {
    const Plan *p = r->plan;
    int n = runs->runs * p->world, last;
    double *lists[3], *whole = NEW_ARRAY(r->a, double, runs->runs + 1), *begins = NEW_ARRAY(r->a, double, n + 1);
    for (int i = 0; i < 3; i++) lists[i] = NEW_ARRAY(r->a, double, n + 1);
    for (int k = 0; k < n; k++) {
        Interval span = span_of(runs, k / runs->runs, k % runs->runs);
        begins[k] = span.begin;
        whole[k % runs->runs] = fmax(whole[k % runs->runs], span.end - span.begin);
    }
    x->runs = runs->runs;
    x->events = NEW_ARRAY(r->a, ActualEvent, g->n + 1);
    for (int e = 0; e < g->n; e++) {
        for (int k = 0; k < n; k++) {
            int rank = k / runs->runs, run = k % runs->runs;
            const Interval *i = &run_of(runs, rank, run)[e];
            lists[0][k] = meets(p, &g->events[e]) ? least_in_group(p, &g->events[e], runs, e, rank, run, &last)
                                                  : i->end - i->begin;
            lists[1][k] = i->begin - begins[k];
            lists[2][k] = i->end - begins[k];
        }
        x->events[e] = (ActualEvent){median(lists[0], n), median(lists[1], n), median(lists[2], n)};
    }
    x->us = median(whole, runs->runs);
}

static void find_steps(const Reader *r, Actual *x) {
    VEC(int64_t) steps = {0};
    x->first_step = 1;
    for (int i = 0; i < r->samples.n; i++)
        if (program_trains(&r->plan->programs[r->samples.at[i].program])) push(&steps, r->a, r->samples.at[i].step);
    if (!steps.n) return;
    qsort(steps.at, (size_t)steps.n, sizeof *steps.at, compare_int64);
    x->first_step = steps.at[0];
    x->last_step = steps.at[steps.n - 1];
    for (int i = 1; i < steps.n; i++)
        if (steps.at[i] > steps.at[i - 1] + 1)
            fail((Source){r->file_of[0], 0},
                 "steps %lld to %lld are in the trace, but not step %lld; run the program with --trace again",
                 (long long)x->first_step, (long long)x->last_step, (long long)steps.at[i - 1] + 1);
}

/* What is looked at, and how often a step runs it. */
static void share_out(Actual *x, const char *program) {
    int64_t steps = x->last_step - x->first_step + 1;
    for (int i = 0; i < x->plan->nprograms; i++) {
        ActualProgram *q = &x->programs[i];
        const PlanProgram *g = &x->plan->programs[i];
        if (!q->runs) continue;
        if (program ? !strcmp(program, g->name) : steps <= 0) q->share = 1;
        if (!program && steps > 0 && program_trains(g)) q->share = (double)q->runs / (double)steps;
    }
}

static void add_row(Arena *a, ActualRows *rows, Map *index, const char *name, const ActualRow *x) {
    int k = map_index(index, name);
    if (k == rows->n) push(rows, a, ((ActualRow){.name = name}));
    ActualRow *row = &rows->at[k];
    row->events += x->events;
    row->predicted_us += x->predicted_us;
    row->actual_us += x->actual_us;
    row->error_us += x->error_us;
}

static int by_row_error(const void *a, const void *b) {
    const ActualRow *x = a, *y = b;
    return x->error_us != y->error_us ? (x->error_us < y->error_us) - (x->error_us > y->error_us)
                                      : strcmp(x->name, y->name);
}

static int by_error(const void *a, const void *b) {
    const ActualError *x = a, *y = b;
    double m = fabs(x->error_us), n = fabs(y->error_us);
    return m != n ? (m < n) - (m > n) : x->program != y->program ? x->program - y->program : x->event - y->event;
}

static void add_up(Arena *a, Actual *x) {
    Map *ops = map_new(a), *phases = map_new(a);
    for (int i = 0; i < x->plan->nprograms; i++) {
        const PlanProgram *g = &x->plan->programs[i];
        double share = x->programs[i].share;
        const ActualEvent *at = x->programs[i].events;
        int before = -1;
        if (share <= 0) continue;
        x->predicted_us += share * g->step_us;
        for (int e = 0; e < g->n; e++) {
            const Event *v = &g->events[e];
            double actual = share * at[e].us, predicted = share * v->duration_us;
            ActualRow row = {"", share, predicted, actual, fabs(actual - predicted)};
            add_row(a, &x->by_op, ops, v->op, &row);
            add_row(a, &x->by_phase, phases, phase_name(v->phase), &row);
            push(&x->errors, a, ((ActualError){i, e, v->duration_us, at[e].us, actual - predicted}));
            x->error_us += row.error_us;
            if (v->stream != COMPUTE) continue;
            double idle = v->start_us - (before < 0 ? 0 : g->events[before].start_us + g->events[before].duration_us);
            double stood = at[e].begin_us - (before < 0 ? 0 : at[before].end_us);
            push(&x->idles, a, ((ActualError){i, e, idle, stood, share * (stood - idle)}));
            before = e;
            x->predicted_compute_us += predicted;
            x->median_compute_us += actual;
        }
    }
    if (!x->errors.n) return;
    qsort(x->errors.at, (size_t)x->errors.n, sizeof *x->errors.at, by_error);
    if (x->idles.n) qsort(x->idles.at, (size_t)x->idles.n, sizeof *x->idles.at, by_error);
    qsort(x->by_op.at, (size_t)x->by_op.n, sizeof *x->by_op.at, by_row_error);
    qsort(x->by_phase.at, (size_t)x->by_phase.n, sizeof *x->by_phase.at, by_row_error);
}

/* Between events of the compute stream, of which the second waits for no other stream. */
static void measure_gap(Reader *r, Actual *x, const Runs *runs) {
    VEC(double) gaps = {0};
    for (int i = 0; i < x->plan->nprograms; i++) {
        const PlanProgram *g = &x->plan->programs[i];
        int before = -1;
        for (int e = 0; e < g->n && x->programs[i].share > 0; e++) {
            if (g->events[e].stream != COMPUTE) continue;
            for (int k = 0; k < runs[i].runs * x->plan->world && before >= 0 && !g->events[e].nwaits; k++) {
                const Interval *at = run_of(&runs[i], k / runs[i].runs, k % runs[i].runs);
                push(&gaps, r->a, fmax(at[e].begin - at[before].end, 0));
            }
            before = e;
        }
    }
    x->gap_us = median(gaps.at, gaps.n);
}

enum { STEP, COMPUTING, COLLECTING, WAITING, SUMS }; /* of a rank and a step, in us */

/* Sums of a step of a rank, then their medians. Where no step is looked at, a program's run is one. */
static void measure_ranks(Reader *r, Actual *x, const Runs *runs) {
    const Plan *p = x->plan;
    bool trained = x->last_step >= x->first_step;
    int steps = trained ? (int)(x->last_step - x->first_step) + 1 : 0;
    for (int i = 0; i < p->nprograms; i++)
        if (x->programs[i].share > 0 && (!trained || !program_trains(&p->programs[i])) && runs[i].runs > steps)
            steps = runs[i].runs;
    double *sum[SUMS], *slowest = NEW_ARRAY(r->a, double, steps + 1), *begins = NEW_ARRAY(r->a, double, steps + 1),
                       *ends = NEW_ARRAY(r->a, double, steps + 1);
    int nbetween = 0;
    x->ranks = NEW_ARRAY(r->a, ActualRank, p->world);
    for (int k = 0; k < SUMS; k++) sum[k] = NEW_ARRAY(r->a, double, steps + 1);
    double *between = NEW_ARRAY(r->a, double, (size_t)p->world *(size_t)steps + 1);
    for (int rank = 0; rank < p->world; rank++) {
        for (int k = 0; k < SUMS; k++) memset(sum[k], 0, sizeof(double) * (size_t)steps);
        for (int t = 0; t < steps; t++) begins[t] = INFINITY, ends[t] = -INFINITY;
        for (int i = 0; i < p->nprograms; i++)
            for (int run = 0; run < runs[i].runs && x->programs[i].share > 0; run++) {
                int t = trained && program_trains(&p->programs[i]) ? (int)(runs[i].step[run] - x->first_step) : run;
                Interval span = span_of(&runs[i], rank, run);
                begins[t] = fmin(begins[t], span.begin);
                ends[t] = fmax(ends[t], span.end);
                sum[STEP][t] += span.end - span.begin;
                for (int e = 0; e < runs[i].n; e++) {
                    const Event *v = &p->programs[i].events[e];
                    const Interval *at = &run_of(&runs[i], rank, run)[e];
                    if (v->stream == COMPUTE) sum[COMPUTING][t] += at->end - at->begin;
                    if (!meets(p, v)) continue;
                    int last = -1;
                    sum[COLLECTING][t] += at->end - at->begin;
                    sum[WAITING][t] += at->end - at->begin - least_in_group(p, v, &runs[i], e, rank, run, &last);
                    x->ranks[rank].last += last == rank;
                    x->collectives += last == rank;
                }
            }
        for (int t = 0; t < steps; t++) slowest[t] = fmax(slowest[t], sum[STEP][t]);
        for (int t = 1; t < steps && trained; t++) between[nbetween++] = fmax(begins[t] - ends[t - 1], 0);
        x->ranks[rank].step_us = median(sum[STEP], steps);
        x->ranks[rank].compute_us = median(sum[COMPUTING], steps);
        x->ranks[rank].collective_us = median(sum[COLLECTING], steps);
        x->ranks[rank].waiting_us = median(sum[WAITING], steps);
    }
    int longest = 0;
    for (int rank = 1; rank < p->world; rank++)
        if (x->ranks[rank].step_us > x->ranks[longest].step_us) longest = rank;
    x->actual_compute_us = x->ranks[longest].compute_us;
    x->actual_us = median(slowest, steps);
    x->between_us = nbetween ? median(between, nbetween) : -1;
}

Actual *actual_read(const Plan *p, const char *files, const char *program) {
    Reader r = {.a = p->arena, .plan = p};
    r.file_of = NEW_ARRAY(r.a, const char *, p->world + 1);
    r.ids = NEW_ARRAY(r.a, Map *, p->nprograms + 1);
    for (int i = 0; i < p->nprograms; i++) {
        r.ids[i] = map_new(r.a);
        for (int e = 0; e < p->programs[i].n; e++) map_index(r.ids[i], p->programs[i].events[e].id);
    }
    Actual *x = NEW(r.a, Actual);
    *x = (Actual){.plan = p, .files = files, .programs = NEW_ARRAY(r.a, ActualProgram, p->nprograms + 1)};
    for (const char *at = files; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const char *path = arena_printf(r.a, "%.*s", (int)strcspn(at, ","), at);
        if (!*path) fail_usage("\"%s\": a name between two commas is empty; write a.json,b.json", files);
        read_file(&r, path);
    }
    if (!r.samples.n)
        fail((Source){r.at.file, 0}, "the trace holds no event: the run ended before its first; run it with --steps 5");
    for (int k = 0; k < p->world; k++)
        if (!r.file_of[k])
            fail((Source){r.at.file, 0},
                 "there is no event of rank %d, and the plan has %d ranks; give the traces of all, with commas between "
                 "them",
                 k, p->world);
    find_steps(&r, x);
    Runs *runs = NEW_ARRAY(r.a, Runs, p->nprograms + 1);
    for (int i = 0; i < p->nprograms; i++) {
        runs[i] = runs_of(&r, i);
        if (runs[i].runs) join_program(&r, &p->programs[i], &x->programs[i], &runs[i]);
    }
    share_out(x, program);
    add_up(r.a, x);
    measure_gap(&r, x, runs);
    measure_ranks(&r, x, runs);
    return x;
}
