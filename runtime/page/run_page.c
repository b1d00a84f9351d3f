/* Writes the page of runs: the files of this folder, and the logs as one block of JSON that the page's script reads.
 * Relies on: run_log.h, toolkit.h.
 * Relied on by: those whom run_log.h names. */
#include "run_log.h"
#include "toolkit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

PAGE_EMBED(html, "runtime/page/run.html");
PAGE_EMBED(css, "runtime/page/run.css");
PAGE_EMBED(data, "runtime/page/data.js");
PAGE_EMBED(chart, "runtime/page/chart.js");
PAGE_EMBED(memory, "runtime/page/memory.js");
PAGE_EMBED(ops, "runtime/page/ops.js");
PAGE_EMBED(main, "runtime/page/run.js");

static void put_text(FILE *f, const char *text) {
    PageCharacter shown;
    putc('"', f);
    for (size_t n, read; (read = page_character(text, shown, &n)); text += read) fwrite(shown, 1, n, f);
    putc('"', f);
}

/* As short as reads back as x: a log has nine digits, and a mean needs no more. */
static void put_number(FILE *f, double x, bool mean) {
    char text[40];
    if (!isfinite(x)) {
        fputs("null", f);
        return;
    }
    snprintf(text, sizeof text, "%.9g", x);
    if (!mean && strtod(text, NULL) != x) snprintf(text, sizeof text, "%.17g", x);
    fputs(text, f);
}

static void put_member(FILE *f, const char *name, double x) {
    fprintf(f, ",\"%s\":", name);
    put_number(f, x, false);
}

/* ── a log ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef enum { MEAN, LOW, HIGH } Part;

static void put_cells(FILE *f, const RunTable *t, const RunColumn *c, Part part) {
    static const char *const names[] = {"at", "low", "high"};
    fprintf(f, "%s\"%s\":[", part ? "," : "", names[part]);
    for (int i = 0; i < t->rows; i++) {
        const RunCell *x = &c->cells[i];
        if (i) putc(',', f);
        bool mean = part == MEAN && x->n > 1;
        double shown = part == LOW ? x->low : part == HIGH ? x->high : x->sum;
        if (x->n) put_number(f, mean ? x->sum / (double)x->n : shown, mean);
        if (!x->n) fputs("null", f);
    }
    putc(']', f);
}

static void put_column(FILE *f, const RunTable *t, const RunColumn *c) {
    fputs("{\"name\":", f);
    put_text(f, c->name);
    putc(',', f);
    put_cells(f, t, c, MEAN);
    for (Part p = LOW; p <= HIGH && t->width > 1; p++) put_cells(f, t, c, p);
    if (c->n) {
        put_member(f, "first", c->first);
        put_member(f, "last", c->last_null ? (double)NAN : c->last);
        put_member(f, "least", c->low);
        put_member(f, "most", c->high);
        fprintf(f, ",\"first_step\":%lld,\"last_step\":%lld,\"least_step\":%lld,\"most_step\":%lld",
                (long long)c->first_step, (long long)c->last_step, (long long)c->low_step, (long long)c->high_step);
        if (c->all) put_member(f, "median", run_log_median(c));
    }
    fprintf(f, ",\"n\":%lld}", (long long)c->n);
}

static void put_table(FILE *f, const char *name, const RunTable *t) {
    fprintf(f, ",\n\"%s\":{\"lines\":%lld,\"width\":%lld,\"x\":[", name, (long long)t->lines, (long long)t->width);
    for (int i = 0; i < t->n; i++) {
        if (i) fputs(i == RUN_X ? "],\"columns\":[\n" : ",\n", f);
        put_column(f, t, &t->columns[i]);
    }
    fputs(t->n == RUN_X ? "],\"columns\":[]}" : "]}", f);
}

static void put_start(FILE *f, const RunLog *l, int k) {
    const RunStart *s = &l->starts[k];
    fprintf(f, "{\"step\":%lld,\"restart\":%s,\"model\":", (long long)s->step,
            run_log_is_restart(l, k) ? "true" : "false");
    put_text(f, s->model ? s->model : "");
    fputs(",\"target\":", f);
    put_text(f, s->target ? s->target : "");
    fputs(",\"started\":", f);
    put_text(f, s->started ? s->started : "");
    put_member(f, "world", s->world);
    put_member(f, "steps", s->steps);
    put_member(f, "predicted_s", s->predicted_s);
    put_member(f, "arena", s->arena);
    put_member(f, "allocated", s->allocated);
    put_member(f, "host", s->host);
    put_member(f, "usable", s->usable);
    put_member(f, "epoch", s->epoch);
    fputs(",\"settings\":[", f);
    for (int i = 0; i < s->nsettings; i++) {
        fputs(i ? ",[" : "[", f);
        put_text(f, s->settings[i].name);
        putc(',', f);
        put_text(f, s->settings[i].text);
        putc(']', f);
    }
    fputs("],\"peak\":[", f);
    for (int i = 0; i < s->npeak; i++) {
        fputs(i ? ",{\"name\":" : "{\"name\":", f);
        put_text(f, s->peak[i].name);
        put_member(f, "bytes", s->peak[i].bytes);
        putc('}', f);
    }
    fputs("]}", f);
}

static void put_log(FILE *f, const RunLog *l) {
    fputs("{\"name\":", f);
    put_text(f, l->name);
    put_member(f, "seconds", l->seconds);
    put_member(f, "position", l->position);
    fprintf(f, ",\"samples\":%s", l->samples ? "true" : "false");
    put_member(f, "device_predicted", l->device_predicted);
    put_member(f, "device_used", l->device_used);
    fputs(",\n\"starts\":[", f);
    for (int k = 0; k < l->nstarts; k++) {
        if (k) fputs(",\n", f);
        put_start(f, l, k);
    }
    putc(']', f);
    put_table(f, "steps", &l->steps);
    put_table(f, "validations", &l->validations);
    putc('}', f);
}

static void put_trace(FILE *f, const RunTrace *t) {
    fputs("{\"title\":", f);
    put_text(f, t->title);
    fputs(",\"ops\":[", f);
    for (int i = 0; i < t->n; i++) {
        fputs(i ? ",\n{\"name\":" : "{\"name\":", f);
        put_text(f, t->ops[i].name);
        put_member(f, "events", t->ops[i].events);
        put_member(f, "predicted_us", t->ops[i].predicted_us);
        put_member(f, "actual_us", t->ops[i].actual_us);
        put_member(f, "error", t->ops[i].error);
        putc('}', f);
    }
    fputs("]}", f);
}

typedef struct {
    const RunLog *logs;
    int n;
    const RunTrace *traces;
    int ntraces;
    bool going;
} Page;

static void part(FILE *f, char mark, const void *of) {
    const PageText scripts[] = {PAGE_FILE(data), PAGE_FILE(chart), PAGE_FILE(memory), PAGE_FILE(ops), PAGE_FILE(main)};
    const Page *w = of;
    if (mark == 'c') page_put(f, PAGE_FILE(css));
    for (size_t i = 0; mark == 's' && i < sizeof scripts / sizeof *scripts; i++) page_put(f, scripts[i]);
    if (mark != 'd') return;
    fprintf(f, "{\"format\":\"shardc-runs\",\"version\":1,\"going\":%s,\"runs\":[\n", w->going ? "true" : "false");
    for (int i = 0; i < w->n; i++) {
        if (i) fputs(",\n", f);
        put_log(f, &w->logs[i]);
    }
    fputs("],\"traces\":[", f);
    for (int i = 0; i < w->ntraces; i++) {
        if (i) fputs(",\n", f);
        put_trace(f, &w->traces[i]);
    }
    fputs("]}", f);
}

void run_page_write(FILE *f, const RunLog *logs, int n, const RunTrace *traces, int ntraces, bool going) {
    page_fill(f, PAGE_FILE(html), part, &(Page){logs, n, traces, ntraces, going});
}
