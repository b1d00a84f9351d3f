/* points: compiles points in processes of their own; prints them as text, CSV and JSON.
 * Relies on: points.h, base/processes.h, report (figures, live).
 * Relied on by: sweep.c, search.c, plan.c. */
#include "points.h"
#include "../base/processes.h"
#include "../cost/timeline.h"
#include "../ir/training.h"
#include "../plan/figures.h"
#include "../plan/lines.h"
#include "../plan/live.h"
#include "../report/report.h"
#include "number.h"
#include "visible.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* ── compiling ──────────────────────────────────────────────────────────────────────────────────────────────────── */
static int whole(const char *key, const char *value) {
    int64_t x = 0;
    if (!sc_read_whole(value, 1, 1 << 20, &x))
        fail_usage("%s=%s: a whole number from 1 to %d is wanted", key, value, 1 << 20);
    return (int)x;
}

Options points_options(Arena *a, const Points *p, const SweepPoint *x) {
    Options o = *p->o;
    for (int i = 0; i < p->nkeys; i++) {
        const char *key = p->keys[i].name, *value = x->values[i];
        if (!strcmp(key, "world")) {
            o.world = whole(key, value);
        } else if (!strcmp(key, "nodes")) {
            o.nodes = whole(key, value);
        } else if (!strcmp(key, "device")) {
            o.device = value;
        } else if (!strcmp(key, "budget")) {
            if (!cli_bytes(value, &o.budget))
                fail_usage("budget=%s: an amount of memory is wanted, for example 60GiB, 80GB or 512MiB", value);
        } else {
            Strings set = {0};
            size_t length = strlen(key);
            for (int k = 0; k < o.set.n; k++)
                if (strncmp(o.set.at[k], key, length) || o.set.at[k][length] != '=') push(&set, a, o.set.at[k]);
            push(&set, a, (const char *)arena_printf(a, "%s=%s", key, value));
            o.set = set;
        }
    }
    return o;
}

typedef struct {
    const Points *points;
    PointEffort effort;
} Jobs;

static PointFigures figures(const Options *o, const Plan *p) {
    double tolerance;
    StepFigures s = live_step(p);
    PointFigures f = {.fits = p->device_usable > 0 ? live_fits(p) : -1,
                      .gpu = strcmp(p->target, "cpu") != 0,
                      .arena = p->arena_bytes[ARENA_DEVICE],
                      .host = p->arena_bytes[ARENA_HOST],
                      .library = live_library_bytes(p, &tolerance),
                      .usable = p->device_usable,
                      .step_us = s.step_us,
                      .exposed_us = s.exposed_us,
                      .time_off = p->time_off,
                      .mfu_full = s.mfu_full,
                      .mfu_causal = s.mfu_causal,
                      .tokens = s.tokens_per_second,
                      .samples = s.samples_per_second};
    if (o->budget) f.fits = f.fits != 0 && f.arena <= o->budget;
    return f;
}

static void compile_point(const void *context, int job, FILE *result) {
    const Jobs *j = context;
    Arena *a = arena_new();
    Options o = points_options(a, j->points, &j->points->at[job]);
    const char *input = o.inputs.at[0], *choice = "";
    remark_enable(false);
    o.quiet = true;
    bool planned = j->effort == POINT_PLANNED || (j->effort == POINT_FULL && o.budget);
    Plan *p =
        planned ? cli_planned(a, &o, input, &choice) : cli_compile(a, &o, input, "", j->effort == POINT_ESTIMATED);
    if (o.delayed) cost_delay_collectives(p, o.delay_us);
    PointFigures f = figures(&o, p);
    for (int k = 0; k < j->points->nkeys && k < 32; k++)
        for (int i = 0; i < p->noptions; i++)
            if (p->options[i].overridden && !strcmp(p->options[i].name, j->points->keys[k].name))
                f.overridden |= 1u << k;
    fwrite(&f, sizeof f, 1, result);
    fputs(choice, result);
}

static const char *error_of(Arena *a, const ProcessResult *r) {
    const char *text = strncmp(r->said, "shardc: ", 8) ? r->said : r->said + 8;
    if (*text) return text;
    if (r->signal) return arena_printf(a, "ended by signal %d (%s); is memory short?", r->signal, strsignal(r->signal));
    return "ended without a message; compile this point alone to see why";
}

typedef struct {
    const char *what;
    struct timespec from;
} Progress;

static void progress(void *context, int ended, int n) {
    const Progress *p = context;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double seconds = (double)(now.tv_sec - p->from.tv_sec) + 1e-9 * (double)(now.tv_nsec - p->from.tv_nsec);
    if (ended < n)
        fprintf(stderr, "\r%s: %d of %d, %.0f s left\033[K", p->what, ended, n, seconds / ended * (n - ended));
    else
        fprintf(stderr, "\r\033[K");
}

void points_run(Arena *a, Points *p, PointEffort effort, const char *what) {
    Jobs jobs = {p, effort};
    Progress line = {.what = what};
    ProcessResult *r = NEW_ARRAY(a, ProcessResult, p->n + 1);
    clock_gettime(CLOCK_MONOTONIC, &line.from);
    processes_run(a, compile_point, &jobs, p->n, r, isatty(STDERR_FILENO) ? progress : NULL, &line);
    for (int i = 0; i < p->n; i++) {
        SweepPoint *x = &p->at[i];
        x->error = r[i].n < sizeof x->is ? error_of(a, &r[i]) : NULL;
        x->choice = x->error ? "" : r[i].at + sizeof x->is;
        if (!x->error) memcpy(&x->is, r[i].at, sizeof x->is);
    }
}

double points_speed(const SweepPoint *x) {
    return x->is.tokens > 0 ? x->is.tokens : x->is.samples;
}

const char *points_label(Arena *a, const Points *p, const SweepPoint *x, int without) {
    Str s = {.arena = a};
    for (int i = 0; i < p->nkeys; i++)
        if (i != without) str_addf(&s, "%s%s=%s", s.n ? " " : "", p->keys[i].name, x->values[i]);
    return s.n ? s.s : "";
}

/* ── text ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* On one line, with control characters as \x1b: values and messages are other people's. */
static const char *one_line(Arena *a, const char *text) {
    Str s = {.arena = a};
    size_t n = strlen(text);
    for (size_t i = 0; i < n;) {
        size_t length = sc_visible_character((const unsigned char *)text + i, n - i);
        if (!length)
            str_addf(&s, "\\x%02x", (unsigned char)text[i]);
        else if (text[i] == '\n' || text[i] == '\t')
            str_add(&s, " ");
        else
            str_bytes(&s, text + i, length);
        i += length ? length : 1;
    }
    return s.n ? s.s : "";
}

static int width_of(const char *text) {
    int n = 0;
    for (; *text; text++) n += (*text & 0xc0) != 0x80; /* characters, of as many bytes as they have */
    return n;
}

/* ── the table ──────────────────────────────────────────────────────────────────────────────────────────────────── */
enum { FIGURES = 9, BETWEEN = 2 }; /* columns of figures; blanks before each */
typedef struct {
    const char *head[2]; /* "tok/s a GPU" is one line where the table has room for it, otherwise two */
    const char **cells;  /* by point; NULL: it has none */
    int wide, spare;     /* spare: the first to be left out where the table is too wide, from 1; 0: it stays */
} PointColumn;
typedef struct {
    PointColumn *at;
    int n, wide; /* wide: columns of the terminal */
    bool low;    /* heads have two lines */
} PointTable;

static PointColumn *column(Arena *a, PointTable *t, const Points *p, const char *head, const char *below, int spare) {
    PointColumn *c = &t->at[t->n++];
    *c = (PointColumn){.head = {head, below}, .cells = NEW_ARRAY(a, const char *, p->n + 1), .spare = spare};
    return c;
}

static void measure(PointTable *t, int points) {
    t->wide = 0;
    for (int k = 0; k < t->n; k++) {
        PointColumn *c = &t->at[k];
        int first = width_of(c->head[0]), second = width_of(c->head[1]);
        c->wide = !t->low && second ? first + 1 + second : first > second ? first : second;
        for (int i = 0; i < points; i++)
            if (c->cells[i] && width_of(c->cells[i]) > c->wide) c->wide = width_of(c->cells[i]);
        t->wide += BETWEEN + c->wide;
    }
}

/* Two lines of heads, then fewer columns, until the table fits. Returns the names of those left out. */
static const char *narrow(Arena *a, PointTable *t, int points) {
    Str out = {.arena = a};
    measure(t, points);
    t->low = t->wide > LINES_COLUMNS;
    measure(t, points);
    for (int spare = 1; spare <= FIGURES && t->wide > LINES_COLUMNS; spare++)
        for (int k = 0; k < t->n; k++) {
            const PointColumn *c = &t->at[k];
            if (c->spare != spare) continue;
            str_addf(&out, "%s%s%s%s", out.n ? ", " : "", c->head[0], *c->head[1] ? " " : "", c->head[1]);
            memmove(&t->at[k], &t->at[k + 1], sizeof *t->at * (size_t)(t->n - k - 1));
            t->n--;
            measure(t, points);
            break;
        }
    return out.s;
}

static void heads(FILE *f, Arena *a, const PointTable *t) {
    for (int line = !t->low; line < 2; line++) {
        Str s = {.arena = a};
        int end = 0;
        for (int k = 0; k < t->n; k++) {
            const PointColumn *c = &t->at[k];
            end += BETWEEN + c->wide;
            const char *one = c->head[0], *two = c->head[1];
            const char *text = !t->low ? *two ? arena_printf(a, "%s %s", one, two) : one
                               : *two  ? c->head[line]
                               : line  ? one
                                       : "";
            if (*text) str_addf(&s, "%*s%s", end - width_of(text) - width_of(s.n ? s.s : ""), "", text);
        }
        fprintf(f, "%s\n", s.s);
    }
}

/* The number of a choice among those that differ, from 1. */
static const char *choice_of(Arena *a, Map *choices, const char *text) {
    return arena_printf(a, "%d", map_index(choices, text) + 1);
}

void points_text(FILE *f, Arena *a, const Points *p) {
    bool tokens = false, host = false, causal = false, gpu = false, choice = false; /* of some point */
    for (const SweepPoint *x = p->at; x < p->at + p->n; x++) {
        if (x->error) continue;
        tokens |= x->is.tokens > 0;
        host |= x->is.host > 0;
        causal |= x->is.mfu_full > x->is.mfu_causal;
        gpu |= x->is.gpu;
        choice |= *x->choice != 0;
    }
    PointTable t = {.at = NEW_ARRAY(a, PointColumn, p->nkeys + FIGURES)};
    Map *choices = map_new(a);
    for (int k = 0; k < p->nkeys; k++) {
        PointColumn *c = column(a, &t, p, one_line(a, p->keys[k].name), "", 0);
        for (int i = 0; i < p->n; i++) {
            bool overridden = !p->at[i].error && k < 32 && p->at[i].is.overridden >> k & 1;
            c->cells[i] = one_line(a, p->at[i].values[k]);
            if (overridden) c->cells[i] = arena_printf(a, "%s (overridden)", c->cells[i]);
        }
    }
    PointColumn *fits = column(a, &t, p, "fits", "", 0), *arena = column(a, &t, p, "arena", "", 0);
    PointColumn *hosts = host ? column(a, &t, p, "host", "", 4) : NULL, *step = column(a, &t, p, "step", "", 0);
    PointColumn *speed = column(a, &t, p, tokens ? "tok/s" : "samples/s", gpu ? "a GPU" : "a rank", 0);
    PointColumn *full = causal ? column(a, &t, p, "MFU", "full", 1) : NULL;
    PointColumn *mfu = column(a, &t, p, "MFU", causal ? "causal" : "", 2),
                *exposed = column(a, &t, p, "exposed", "", 3);
    PointColumn *policy = choice ? column(a, &t, p, "plan", "", 0) : NULL;
    for (int i = 0; i < p->n; i++) {
        const PointFigures *x = &p->at[i].is;
        if (p->at[i].error) continue;
        fits->cells[i] = x->fits < 0 ? "-" : x->fits ? "YES" : "NO";
        arena->cells[i] = figure_bytes(a, (double)x->arena);
        if (hosts) hosts->cells[i] = figure_bytes(a, (double)x->host);
        step->cells[i] = x->step_us > 0 ? figure_time(a, x->step_us) : "-";
        speed->cells[i] = figure_grouped(a, tokens ? x->tokens : x->samples);
        if (full) full->cells[i] = x->mfu_full > 0 ? arena_printf(a, "%.2f", x->mfu_full) : "-";
        mfu->cells[i] = x->mfu_causal > 0 ? arena_printf(a, "%.2f", x->mfu_causal) : "-";
        exposed->cells[i] = x->step_us > 0 ? arena_printf(a, "%.1f %%", 100 * x->exposed_us / x->step_us) : "-";
        if (policy) policy->cells[i] = *p->at[i].choice ? choice_of(a, choices, p->at[i].choice) : "-";
    }
    const char *out = narrow(a, &t, p->n);
    heads(f, a, &t);
    for (int i = 0; i < p->n; i++) {
        Str s = {.arena = a};
        for (int k = 0; k < (p->at[i].error ? p->nkeys : t.n); k++)
            str_addf(&s, "%*s%s", BETWEEN + t.at[k].wide - width_of(t.at[k].cells[i]), "", t.at[k].cells[i]);
        if (p->at[i].error)
            lines_print(f, width_of(s.s) + BETWEEN, s.s, one_line(a, p->at[i].error));
        else
            fprintf(f, "%s\n", s.s);
    }
    for (int i = 0; i < map_len(choices); i++)
        lines_print(f, 11, arena_printf(a, "  plan %d", i + 1), one_line(a, map_key(choices, i)));
    if (out) lines_print(f, 2, "", arena_printf(a, "left out, for want of room: %s; --format csv has all", out));
}

/* ── CSV, as RFC 4180 has it ────────────────────────────────────────────────────────────────────────────────────── */
static void csv_text(FILE *f, const char *text) {
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, f);
        return;
    }
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"') fputc('"', f);
        fputc(*text, f);
    }
    fputc('"', f);
}

/* The shortest text of 15 or 17 digits that reads back as the same number. */
static void csv_real(FILE *f, double x) {
    char text[32];
    snprintf(text, sizeof text, "%.15g", x);
    fprintf(f, strtod(text, NULL) == x ? "%.15g," : "%.17g,", x);
}

void points_csv(FILE *f, Arena *a, const Points *p) {
    for (int k = 0; k < p->nkeys; k++) {
        csv_text(f, points_utf8(a, p->keys[k].name));
        fputc(',', f);
    }
    fputs("fits,arena_bytes,host_bytes,library_bytes,step_us,exposed_us,time_off,tokens_per_second,samples_per_second,"
          "mfu_full_attention,mfu_causal_attention,policies,error\n",
          f);
    for (int i = 0; i < p->n; i++) {
        const SweepPoint *x = &p->at[i];
        for (int k = 0; k < p->nkeys; k++) {
            csv_text(f, points_utf8(a, x->values[k]));
            fputc(',', f);
        }
        if (x->error) {
            fputs(",,,,,,,,,,,,", f);
            csv_text(f, points_utf8(a, x->error));
        } else {
            const PointFigures *is = &x->is;
            const double reals[] = {is->library, is->step_us, is->exposed_us, is->time_off,
                                    is->tokens,  is->samples, is->mfu_full,   is->mfu_causal};
            fprintf(f, "%s,%lld,%lld,",
                    is->fits < 0 ? ""
                    : is->fits   ? "true"
                                 : "false",
                    (long long)is->arena, (long long)is->host);
            for (size_t k = 0; k < sizeof reals / sizeof *reals; k++) csv_real(f, reals[k]);
            csv_text(f, points_utf8(a, x->choice));
            fputc(',', f);
        }
        fputc('\n', f);
    }
}

/* ── JSON ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
const char *points_utf8(Arena *a, const char *text) {
    Str s = {.arena = a};
    size_t n = strlen(text);
    for (size_t i = 0; i < n;) {
        size_t length = sc_visible_character((const unsigned char *)text + i, n - i);
        str_bytes(&s, length ? text + i : "\xef\xbf\xbd", length ? length : 3);
        i += length ? length : 1;
    }
    return s.n ? s.s : "";
}

/* A whole number as people write it is a number; all else is text. */
static void add_value(cJSON *o, Arena *a, const char *key, const char *value) {
    int64_t x, most = (1ll << 53) - 1;
    bool plain = sc_read_whole(value, -most, most, &x) && !strcmp(arena_printf(a, "%lld", (long long)x), value);
    if (plain)
        cJSON_AddNumberToObject(o, points_utf8(a, key), (double)x);
    else
        cJSON_AddStringToObject(o, points_utf8(a, key), points_utf8(a, value));
}

cJSON *points_json(Arena *a, const Points *p) {
    cJSON *all = cJSON_CreateArray();
    for (int i = 0; i < p->n; i++) {
        const SweepPoint *x = &p->at[i];
        cJSON *o = cJSON_CreateObject(), *set = cJSON_AddObjectToObject(o, "set");
        for (int k = 0; k < p->nkeys; k++) add_value(set, a, p->keys[k].name, x->values[k]);
        cJSON_AddItemToArray(all, o);
        if (x->error) {
            cJSON_AddStringToObject(o, "error", points_utf8(a, x->error));
            continue;
        }
        const PointFigures *is = &x->is;
        if (is->fits < 0)
            cJSON_AddNullToObject(o, "fits");
        else
            cJSON_AddBoolToObject(o, "fits", is->fits);
        cJSON_AddNumberToObject(o, "arena_bytes", (double)is->arena);
        cJSON_AddNumberToObject(o, "host_bytes", (double)is->host);
        cJSON_AddNumberToObject(o, "library_bytes", is->library);
        cJSON_AddNumberToObject(o, "step_us", is->step_us);
        cJSON_AddNumberToObject(o, "exposed_us", is->exposed_us);
        cJSON_AddNumberToObject(o, "time_off", is->time_off);
        cJSON_AddNumberToObject(o, "tokens_per_second", is->tokens);
        cJSON_AddNumberToObject(o, "samples_per_second", is->samples);
        cJSON_AddNumberToObject(o, "mfu_full_attention", is->mfu_full);
        cJSON_AddNumberToObject(o, "mfu_causal_attention", is->mfu_causal);
        if (*x->choice) cJSON_AddStringToObject(o, "policies", points_utf8(a, x->choice));
    }
    return all;
}

void points_print_json(FILE *f, cJSON *o) {
    char *text = cJSON_Print(o);
    if (!text) fail(NOWHERE, "out of memory for the report; free memory and run again");
    fprintf(f, "%s\n", text);
    free(text);
    cJSON_Delete(o);
}
