/* Runs, from their logs: each one's loss, speed and memory as text and as JSON.
 * Relies on: runtime/page/run_log.h, figures.h, json_writer.h, lines.h, runtime/visible.h.
 * Relied on by: cli/report.c. */
#include "runs.h"

#include "../plan/figures.h"
#include "../plan/json_writer.h"
#include "../plan/lines.h"
#include "visible.h"

#include <math.h>
#include <stdlib.h>

/* ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
static void *more(void *arena, void *old, size_t had, size_t wanted) {
    void *p = arena_alloc(arena, wanted);
    return had ? memcpy(p, old, had) : p;
}

RunLog runs_read(Arena *a, const char *path, int limit) {
    Source at = {path, 0};
    size_t size;
    char *text = input_read(a, NOWHERE, path, FILE_MOST, &size), *end = text + size;
    RunLog l = run_log_new(path, limit, (RunMemory){more, a});
    if (!size)
        fail(NOWHERE, "%s is empty: no step was logged. Has the run begun? --log FILE of a program writes a log", path);
    for (char *line = text, *next; line < end; line = next) {
        char *newline = memchr(line, '\n', (size_t)(end - line)), why[200];
        next = newline ? newline + 1 : end;
        if (newline) *newline = 0;
        at.line++;
        if (strlen(line) == (size_t)((newline ? newline : end) - line) && run_log_add(&l, line, why)) continue;
        if (strlen(line) < (size_t)((newline ? newline : end) - line))
            snprintf(why, sizeof why, "this line holds a NUL byte");
        if (!newline && at.line > 1) { /* of a program that writes it now, or was killed */
            remark(at, "the last line is cut short; it is left out");
            break;
        }
        fail(at, "%s. A log is what --log FILE of a program writes; if this is one, cut it off before this line", why);
    }
    return l;
}

/* ── text ────────────────────────────────────────────────────────────────────────────────────────────────────────── */
enum { NAME_SHOWN = 60, PEAK_A_LINE = 4, SETTINGS_A_LINE = 6, LINE = 100, SAME_FROM = 22 };

/* The first n bytes of a name: nothing in them moves a terminal's cursor. */
static void put_bytes(FILE *f, const char *name, size_t n) {
    for (size_t i = 0, k; i < n; i = k) {
        if (name[i] == '\n' || name[i] == '\t') fputs(name[i] == '\n' ? "\\n" : "\\t", f);
        for (k = i; k < n && name[k] != '\n' && name[k] != '\t';) k++;
        sc_put_visible(f, name + i, k - i);
        k += k == i;
    }
}

/* A name from a log, or the start of it. */
static void put_name(FILE *f, const char *name) {
    size_t n = strlen(name), shown = n > NAME_SHOWN ? NAME_SHOWN : n;
    while (shown < n && ((unsigned char)name[shown] & 0xc0) == 0x80) shown--;
    put_bytes(f, name, shown);
    if (shown < n) fputs("...", f);
}

static void put_head(FILE *f, const char *key) {
    fprintf(f, "  %-10s ", key);
}

/* "5.54 first, 2.31 last, 2.29 lowest at step 97" */
static void put_figure(FILE *f, const RunTable *t, const char *key) {
    const RunColumn *c = run_log_column(t, key);
    if (!c || !c->n) return;
    put_head(f, key);
    fprintf(f, "%.6g first, ", c->first);
    if (c->last_null)
        fputs("not finite last", f);
    else
        fprintf(f, "%.6g last", c->last);
    fprintf(f, ", %.6g best at step %lld\n", c->low, (long long)c->low_step);
}

static const char *setting_name(const char *name) { /* options of the model stand among the others */
    return strncmp(name, "option ", 7) ? name : name + 7;
}

static const RunStart *last_start(const RunLog *l) {
    return l->nstarts ? &l->starts[l->nstarts - 1] : NULL;
}

static bool is_known(const char *name) {
    static const char *const known[] = {"loss",   "grad_norm", "lr",    "scale",     "skipped",
                                        "tokens", "samples",   "tok_s", "samples_s", "seconds"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i])) return true;
    return false;
}

static void put_steps(Arena *a, FILE *f, const RunLog *l) {
    const RunColumn *x = &l->steps.columns[RUN_STEP];
    int restarts = run_log_restarts(l);
    put_head(f, "steps");
    fprintf(f, "%s", figure_grouped(a, (double)l->steps.lines));
    if (x->n) fprintf(f, ", %s to %s", figure_grouped(a, x->first), figure_grouped(a, x->last));
    if (last_start(l) && last_start(l)->steps > 0) fprintf(f, " of %s", figure_grouped(a, last_start(l)->steps));
    fprintf(f, "; %d restart%s", restarts, restarts == 1 ? "" : "s");
    for (int k = 0, told = 0; k < l->nstarts; k++)
        if (run_log_is_restart(l, k))
            fprintf(f, "%s%lld",
                    told++          ? ", "
                    : restarts == 1 ? " at step "
                                    : " at steps ",
                    (long long)l->starts[k].step);
    fputs("\n", f);
}

static void put_speed(Arena *a, FILE *f, const RunLog *l) {
    const char *rate = l->samples ? "samples_s" : "tok_s";
    double median = run_log_median(run_log_column(&l->steps, rate));
    double actual = run_log_median(run_log_column(&l->steps, "seconds"));
    const RunStart *s = last_start(l);
    if (isfinite(median)) {
        put_head(f, l->samples ? "samples/s" : "tok/s");
        fprintf(f, "%s median\n", figure_grouped(a, median));
    }
    put_head(f, "time");
    fprintf(f, "%s in steps and validations\n", figure_time(a, 1e6 * l->seconds));
    if (!isfinite(actual)) return;
    put_head(f, "step");
    fprintf(f, "%s median", figure_time(a, 1e6 * actual));
    if (s && s->predicted_s > 0)
        fprintf(f, ", %s predicted: %.2f times as long", figure_time(a, 1e6 * s->predicted_s), actual / s->predicted_s);
    fputs("\n", f);
}

static void put_memory(Arena *a, FILE *f, const RunLog *l) {
    const RunStart *s = last_start(l);
    if (s && s->arena > 0) {
        put_head(f, "arena");
        fprintf(f, "%s B predicted, %s B allocated, on each rank", figure_grouped(a, s->arena),
                figure_grouped(a, s->allocated));
        if (s->host > 0) fprintf(f, "; %s B of host memory", figure_grouped(a, s->host));
        if (s->usable > 0) fprintf(f, "; %s B usable on the device", figure_grouped(a, s->usable));
        fputs("\n", f);
        for (int i = 0; i < s->npeak; i++) {
            if (i % PEAK_A_LINE == 0) put_head(f, i ? "" : "peak");
            put_name(f, s->peak[i].name);
            fprintf(f, " %s B%s", figure_grouped(a, s->peak[i].bytes),
                    i + 1 == s->npeak            ? "\n"
                    : (i + 1) % PEAK_A_LINE == 0 ? ",\n"
                                                 : ", ");
        }
    }
    if (l->device_used <= 0) return;
    put_head(f, "process");
    fprintf(f, "%s B predicted, %s B used, on the fullest GPU\n", figure_grouped(a, l->device_predicted),
            figure_grouped(a, l->device_used));
}

static void put_run(Arena *a, FILE *f, const RunLog *l) {
    const RunStart *s = last_start(l);
    put_bytes(f, l->name, strlen(l->name)); /* whole: paths differ at their ends */
    if (s) {
        fputs(": ", f);
        put_name(f, s->model);
        if (s->target) fputs(" on ", f);
        if (s->target) put_name(f, s->target);
        fprintf(f, ", %.0f rank%s", s->world, s->world == 1 ? "" : "s");
    }
    fputs("\n", f);
    if (s && s->nsettings) {
        for (int i = 0; i < s->nsettings; i++) {
            if (i % SETTINGS_A_LINE == 0) put_head(f, i ? "" : "options");
            put_name(f, setting_name(s->settings[i].name));
            putc('=', f);
            put_name(f, s->settings[i].text);
            fputs(i + 1 == s->nsettings || (i + 1) % SETTINGS_A_LINE == 0 ? "\n" : " ", f);
        }
    }
    put_steps(a, f, l);
    put_figure(f, &l->steps, "loss");
    put_figure(f, &l->validations, "val_loss");
    put_speed(a, f, l);
    put_memory(a, f, l);
    if (l->position > 0) {
        put_head(f, "data");
        fprintf(f, "%s %s", figure_grouped(a, l->position), l->samples ? "samples" : "tokens");
        if (s && s->epoch > 0) fprintf(f, ", %.3g passes over the data", l->position / s->epoch);
        fputs("\n", f);
    }
    for (int i = RUN_X; i < l->steps.n; i++) {
        const RunColumn *c = &l->steps.columns[i];
        if (is_known(c->name) || !c->n) continue;
        fprintf(f, "  metric     ");
        put_name(f, c->name);
        fprintf(f, ": %.6g first, %.6g last, %.6g to %.6g\n", c->first, c->last_null ? (double)NAN : c->last, c->low,
                c->high);
    }
}

/* The models' names, each once. */
static Map *models(Arena *a, const RunLog *logs, int n) {
    Map *m = map_new(a);
    for (int i = 0; i < n; i++)
        if (last_start(&logs[i])) map_index(m, last_start(&logs[i])->model);
    return m;
}

/* ── several runs: a table, a row a run ──────────────────────────────────────────────────────────────────────────── */
typedef struct {
    const char *title;
    const char **cells; /* of each run; NULL: it has none */
    bool text;          /* left-aligned */
} TableColumn;
typedef VEC(TableColumn) TableColumns;
typedef VEC(const char *) Strings;

/* As it stands on a terminal. */
static const char *visible(Arena *a, const char *text) {
    char *shown = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&shown, &n);
    if (!f) fail(NOWHERE, "out of memory for the report; free memory and run again");
    put_name(f, text);
    if (fclose(f)) fail(NOWHERE, "out of memory for the report; free memory and run again");
    const char *out = arena_strdup(a, shown);
    free(shown);
    return out;
}

static int columns_of(const char *s) { /* of a terminal */
    int n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static TableColumn *column_add(Arena *a, TableColumns *t, const char *title, int runs) {
    push(t, a, ((TableColumn){.title = visible(a, title), .cells = NEW_ARRAY(a, const char *, runs)}));
    return &t->at[t->n - 1];
}

/* What a run was given, by name; NULL: its log does not say. */
static const char *given(Arena *a, const RunLog *l, const char *name) {
    const RunStart *s = last_start(l);
    if (!s) return NULL;
    if (!strcmp(name, "model")) return s->model;
    if (!strcmp(name, "target")) return s->target;
    if (!strcmp(name, "ranks")) return s->world > 0 ? arena_printf(a, "%.0f", s->world) : NULL;
    return run_log_setting(s, name);
}

/* Columns of those that differ; the others are the same in all runs. */
static void settings_columns(Arena *a, Strings *same, TableColumns *t, const RunLog *logs, int n) {
    static const char *const always[] = {"model", "target", "ranks"};
    Map *names = map_new(a);
    for (int i = 0; i < 3; i++) map_index(names, always[i]);
    for (int i = 0; i < n; i++)
        for (int k = 0; last_start(&logs[i]) && k < last_start(&logs[i])->nsettings; k++)
            map_index(names, last_start(&logs[i])->settings[k].name);
    for (int k = 0; k < map_len(names); k++) {
        const char *name = map_key(names, k), *first = given(a, &logs[0], name);
        bool differ = false;
        for (int i = 1; i < n; i++) {
            const char *x = given(a, &logs[i], name);
            differ |= (first == NULL) != (x == NULL) || (x && strcmp(first, x));
        }
        if (!differ && first)
            push(same, a, arena_printf(a, "%s=%s", visible(a, setting_name(name)), visible(a, first)));
        if (!differ) continue;
        TableColumn *c = column_add(a, t, setting_name(name), n);
        for (int i = 0; i < n; i++) {
            const char *x = given(a, &logs[i], name);
            c->cells[i] = x ? visible(a, x) : NULL;
            char *end;
            c->text |= x && (strtod(x, &end), *end || end == x);
        }
    }
}

typedef enum { LAST, BEST, MEDIAN } Of;

static const char *figure_of(Arena *a, const RunColumn *c, Of of, bool is_time) {
    if (!c || !c->n) return NULL;
    if (of == LAST && c->last_null) return "not finite";
    double x = of == LAST ? c->last : of == BEST ? c->low : run_log_median(c);
    if (is_time) return figure_time(a, 1e6 * x);
    return of == MEDIAN ? figure_grouped(a, x) : arena_printf(a, "%.6g", x);
}

static void figure_column(Arena *a, TableColumns *t, const RunLog *logs, int n, bool validation, const char *key,
                          const char *title, Of of, bool is_time) {
    TableColumn c = {.title = visible(a, title), .cells = NEW_ARRAY(a, const char *, n)};
    bool some = false;
    for (int i = 0; i < n; i++) {
        c.cells[i] = figure_of(a, run_log_column(validation ? &logs[i].validations : &logs[i].steps, key), of, is_time);
        some |= c.cells[i] != NULL;
    }
    if (some) push(t, a, c);
}

static void steps_column(Arena *a, TableColumns *t, const RunLog *logs, int n) {
    TableColumn *c = column_add(a, t, "steps", n);
    for (int i = 0; i < n; i++) {
        const RunColumn *x = &logs[i].steps.columns[RUN_STEP];
        const RunStart *s = last_start(&logs[i]);
        int restarts = run_log_restarts(&logs[i]);
        const char *again = restarts ? arena_printf(a, ", %d restart%s", restarts, restarts == 1 ? "" : "s") : "";
        const char *last = x->n ? figure_grouped(a, x->last) : "0";
        c->cells[i] = s && s->steps > 0 && (!x->n || x->last < s->steps)
                          ? arena_printf(a, "%s of %s%s", last, figure_grouped(a, s->steps), again)
                          : arena_printf(a, "%s%s", last, again);
    }
}

static void predicted_column(Arena *a, TableColumns *t, const RunLog *logs, int n) {
    bool some = false;
    for (int i = 0; i < n; i++) some |= last_start(&logs[i]) && last_start(&logs[i])->predicted_s > 0;
    if (!some) return;
    TableColumn *c = column_add(a, t, "predicted", n);
    for (int i = 0; i < n; i++) {
        const RunStart *s = last_start(&logs[i]);
        if (s && s->predicted_s > 0) c->cells[i] = figure_time(a, 1e6 * s->predicted_s);
    }
}

static const char *cell_of(const TableColumn *c, int i) { /* -1: the title */
    return i < 0 ? c->title : c->cells[i] ? c->cells[i] : "-";
}

static void put_cell(FILE *f, const char *text, int wide, bool left, bool last) {
    int room = wide - columns_of(text);
    if (left)
        fprintf(f, "%s%*s", text, last ? 0 : room, "");
    else
        fprintf(f, "%*s%s", room, "", text);
    fputs(last ? "\n" : "  ", f);
}

/* A row a run; or, where that is wider than LINE and the other way round is not so wide, a column a run. */
static void put_table(Arena *a, FILE *f, const TableColumns *t, int n) {
    int *wide = NEW_ARRAY(a, int, t->n), *tall = NEW_ARRAY(a, int, n + 1), across = 0, down = 0;
    for (int i = -1; i < n; i++)
        for (int k = 0; k < t->n; k++) {
            int x = columns_of(cell_of(&t->at[k], i));
            if (x > wide[k]) wide[k] = x;
            if (x > tall[i + 1]) tall[i + 1] = x;
        }
    for (int k = 0; k < t->n; k++) across += wide[k] + 2;
    for (int i = 0; i <= n; i++) down += tall[i] + 2;
    if (across <= LINE + 2 || down >= across) {
        for (int i = -1; i < n; i++)
            for (int k = 0; k < t->n; k++) put_cell(f, cell_of(&t->at[k], i), wide[k], t->at[k].text, k + 1 == t->n);
        return;
    }
    for (int k = 0; k < t->n; k++)
        for (int i = -1; i < n; i++) put_cell(f, cell_of(&t->at[k], i), tall[i + 1], i < 0, i + 1 == n);
}

static void put_same(FILE *f, const Strings *same) {
    if (!same->n) return;
    fputs("\n", f);
    Lines l = lines_open(f, SAME_FROM, "the same in all runs:");
    for (int i = 0; i < same->n; i++) lines_piece(&l, same->at[i]);
    lines_close(&l);
}

static void put_runs(Arena *a, FILE *f, const RunLog *logs, int n) {
    TableColumns t = {0};
    Strings same = {0};
    TableColumn *run = column_add(a, &t, "run", n);
    Map *short_names = map_new(a); /* without their folders, where that tells them apart */
    for (int i = 0; i < n; i++) map_index(short_names, basename(logs[i].name));
    run->text = true;
    for (int i = 0; i < n; i++)
        run->cells[i] = visible(a, map_len(short_names) == n ? basename(logs[i].name) : logs[i].name);
    settings_columns(a, &same, &t, logs, n);
    steps_column(a, &t, logs, n);
    figure_column(a, &t, logs, n, false, "loss", "loss", LAST, false);
    figure_column(a, &t, logs, n, false, "loss", "best", BEST, false);
    figure_column(a, &t, logs, n, true, "val_loss", "val_loss", LAST, false);
    figure_column(a, &t, logs, n, true, "val_loss", "best", BEST, false);
    figure_column(a, &t, logs, n, false, "tok_s", "tok/s", MEDIAN, false);
    figure_column(a, &t, logs, n, false, "samples_s", "samples/s", MEDIAN, false);
    figure_column(a, &t, logs, n, false, "seconds", "step", MEDIAN, true);
    predicted_column(a, &t, logs, n);
    Map *metrics = map_new(a); /* that the models log, each once */
    for (int i = 0; i < n; i++)
        for (int k = RUN_X; k < logs[i].steps.n; k++)
            if (!is_known(logs[i].steps.columns[k].name)) map_index(metrics, logs[i].steps.columns[k].name);
    for (int k = 0; k < map_len(metrics); k++)
        figure_column(a, &t, logs, n, false, map_key(metrics, k), map_key(metrics, k), LAST, false);
    put_table(a, f, &t, n);
    put_same(f, &same);
    fputs("\nspeed and step are medians; `shardc report LOG` says more of one run,\n-o runs.html shows their curves\n",
          f);
}

void runs_text(Arena *a, FILE *f, const RunLog *logs, int n) {
    Map *m = models(a, logs, n);
    if (map_len(m) > 1) {
        fputs("These runs are of different models: ", f);
        for (int i = 0; i < map_len(m); i++) {
            fputs(i ? ", " : "", f);
            put_name(f, map_key(m, i));
        }
        fputs(". Their losses may not compare.\n\n", f);
    }
    if (n == 1)
        put_run(a, f, logs);
    else
        put_runs(a, f, logs, n);
}

/* ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────── */
static void json_figures(Json *j, const char *key, const RunTable *t) {
    json_open(j, key, '[');
    for (int i = RUN_X; i < t->n; i++) {
        const RunColumn *c = &t->columns[i];
        json_open_line(j, NULL, '{');
        json_str(j, "name", c->name);
        json_int(j, "values", c->n);
        if (c->n) {
            json_real(j, "first", c->first);
            json_int(j, "first_step", c->first_step);
            if (c->last_null)
                json_str(j, "last", NULL);
            else
                json_real(j, "last", c->last);
            json_int(j, "last_step", c->last_step);
            json_real(j, "lowest", c->low);
            json_int(j, "lowest_step", c->low_step);
            json_real(j, "highest", c->high);
            json_int(j, "highest_step", c->high_step);
            if (c->all) json_real(j, "median", run_log_median(c));
        }
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void json_start_of(Json *j, const RunLog *l, int k) {
    const RunStart *s = &l->starts[k];
    json_open_line(j, NULL, '{');
    json_int(j, "step", s->step);
    json_bool(j, "restart", run_log_is_restart(l, k));
    json_str(j, "model", s->model);
    json_str(j, "target", s->target);
    json_str(j, "start", s->started);
    json_real(j, "world", s->world);
    json_real(j, "steps", s->steps);
    json_real(j, "predicted_step_s", s->predicted_s);
    json_real(j, "arena_bytes", s->arena);
    json_real(j, "arena_allocated", s->allocated);
    json_real(j, "host_bytes", s->host);
    json_real(j, "usable_bytes", s->usable);
    json_open(j, "peak", '[');
    for (int i = 0; i < s->npeak; i++) {
        json_open(j, NULL, '{');
        json_str(j, "class", s->peak[i].name);
        json_real(j, "bytes", s->peak[i].bytes);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_open(j, "settings", '[');
    for (int i = 0; i < s->nsettings; i++) {
        json_open(j, NULL, '{');
        json_str(j, "name", setting_name(s->settings[i].name));
        json_str(j, "value", s->settings[i].text);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_real(j, "epoch", s->epoch);
    json_close(j, '}');
}

void runs_json(Arena *a, FILE *f, const RunLog *logs, int n) {
    Json j = {.f = f, .s = {.arena = a}};
    Map *m = models(a, logs, n);
    json_start(&j, "shardc-report", 1);
    json_open(&j, "models", '[');
    for (int i = 0; i < map_len(m); i++) json_str(&j, NULL, map_key(m, i));
    json_close(&j, ']');
    json_open_line(&j, "runs", '[');
    for (int i = 0; i < n; i++) {
        const RunLog *l = &logs[i];
        json_open_line(&j, NULL, '{');
        json_str(&j, "name", l->name);
        json_int(&j, "steps", l->steps.lines);
        json_int(&j, "validations", l->validations.lines);
        json_real(&j, "seconds", l->seconds);
        json_real(&j, l->samples ? "samples" : "tokens", l->position);
        json_int(&j, "restarts", run_log_restarts(l));
        json_real(&j, "device_bytes_predicted", l->device_predicted);
        json_real(&j, "device_bytes_used", l->device_used);
        json_open(&j, "starts", '[');
        for (int k = 0; k < l->nstarts; k++) json_start_of(&j, l, k);
        json_close(&j, ']');
        json_line(&j);
        json_figures(&j, "figures", &l->steps);
        json_line(&j);
        json_figures(&j, "validation", &l->validations);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_end(&j);
}
