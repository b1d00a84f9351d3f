/* Writes the page of runs: the files of this folder, and the logs as one block of JSON that the page's script reads.
 * Relies on: run_log.h, visible.h, the assembler's .incbin, run from the repository's root.
 * Relied on by: those whom run_log.h names. */
#include "../visible.h"
#include "run_log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ── the files ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
#define EMBED(symbol, file)                                                                                            \
    __asm__(".section .rodata\n"                                                                                       \
            "run_page_" #symbol ":\n"                                                                                  \
            ".incbin \"runtime/page/" file "\"\n"                                                                      \
            "run_page_" #symbol "_end:\n"                                                                              \
            ".byte 0\n"                                                                                                \
            ".previous\n");                                                                                            \
    extern const char run_page_##symbol[], run_page_##symbol##_end[]

EMBED(html, "run.html");
EMBED(css, "run.css");
EMBED(data, "data.js");
EMBED(chart, "chart.js");
EMBED(memory, "memory.js");
EMBED(main, "run.js");

/* ── JSON that may stand between <script> and </script>: no byte of a string can end the element ─────────────────────
 */
static void put_text(FILE *f, const char *text) {
    putc('"', f);
    for (size_t n; *text; text += n) {
        unsigned char c = (unsigned char)*text;
        n = 1;
        if (c == '<' || c == '>' || c == '&' || c == '"' || c == '\\' || c < 0x20 || c == 0x7f) {
            fprintf(f, "\\u%04x", c);
        } else if (c < 0x80) {
            putc(c, f);
        } else {
            n = sc_visible_character((const unsigned char *)text, strlen(text) < 4 ? strlen(text) : 4);
            if (!n) fputs("\\ufffd", f); /* a name need not be UTF-8, JSON must be */
            fwrite(text, 1, n, f);
            n += !n;
        }
    }
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

void run_page_write(FILE *f, const RunLog *logs, int n, bool going) {
    const struct {
        const char *text, *end;
    } scripts[] = {{run_page_data, run_page_data_end},
                   {run_page_chart, run_page_chart_end},
                   {run_page_memory, run_page_memory_end},
                   {run_page_main, run_page_main_end}};
    for (const char *at = run_page_html; at < run_page_html_end;) { /* its marks say where the rest stands */
        const char *mark = strstr(at, "@@");
        fwrite(at, 1, (size_t)((mark ? mark : run_page_html_end) - at), f);
        if (!mark) break;
        at = mark + 3;
        if (mark[2] == 'c') fwrite(run_page_css, 1, (size_t)(run_page_css_end - run_page_css), f);
        for (int i = 0; i < 4 && mark[2] == 's'; i++)
            fwrite(scripts[i].text, 1, (size_t)(scripts[i].end - scripts[i].text), f);
        if (mark[2] != 'd') continue;
        fprintf(f, "{\"format\":\"shardc-runs\",\"version\":1,\"going\":%s,\"runs\":[\n", going ? "true" : "false");
        for (int i = 0; i < n; i++) {
            if (i) fputs(",\n", f);
            put_log(f, &logs[i]);
        }
        fputs("]}", f);
    }
}
