/* Writes a plan as blocks of JSON that the script of a page reads, and fills a page's file in.
 * Relies on: live.h, report.h (reasons of waits), ops.h (names of operands), the assembler's .incbin.
 * Relied on by: page.c, diff_page.c. */
#include "page.h"

#include "../ir/ops.h"
#include "../ir/training.h"
#include "live.h"
#include "report.h"
#include "visible.h"

#include <math.h>
#include <stdlib.h>

PAGE_EMBED(css, "page.css");
PAGE_EMBED(plan, "plan.js");
PAGE_EMBED(elements, "elements.js");
PAGE_EMBED(axis, "axis.js");
PAGE_EMBED(view, "view.js");

/* ── JSON that may stand between <script> and </script>: no byte of a string can end the element ─────────────────── */
typedef struct {
    const Plan *plan;
    const Actual *actual; /* or NULL */
    FILE *f;
    Str s;              /* on its way to the file */
    Map *strings;       /* that stand more than once: the page's rows hold their numbers */
    const char *prefix; /* of the blocks' ids */
} Blocks;

void page_string(Str *s, const char *text) {
    str_add(s, "\"");
    for (size_t n; *text; text += n) {
        unsigned char c = (unsigned char)*text;
        n = 1;
        if (c == '<' || c == '>' || c == '&' || c == '"' || c == '\\' || c < 0x20 || c == 0x7f)
            str_addf(s, "\\u%04x", c);
        else if (c < 0x80)
            str_bytes(s, text, 1);
        else {
            n = sc_visible_character((const unsigned char *)text, strlen(text));
            str_add(s, n ? "" : "\\ufffd"); /* a path need not be UTF-8, JSON must be */
            str_bytes(s, text, n);
            n += !n;
        }
    }
    str_add(s, "\"");
}

/* The number of a string in the page's table. */
static void add_index(Blocks *w, const char *text) {
    str_int(&w->s, map_index(w->strings, text ? text : ""));
}

static void add_real(Str *s, double x) {
    if (fabs(x) < 1e15 && x == (double)(int64_t)x)
        str_int(s, (int64_t)x);
    else
        str_addf(s, "%.15g", isfinite(x) ? x : 0);
}

static void member(Blocks *w, const char *key) {
    str_addf(&w->s, ",\n\"%s\":", key);
}

static void text_member(Blocks *w, const char *key, const char *text) {
    member(w, key);
    page_string(&w->s, text ? text : "");
}

static void real_member(Blocks *w, const char *key, double x) {
    member(w, key);
    add_real(&w->s, x);
}

static void pair_member(Blocks *w, const char *key, const int64_t x[N_ARENAS]) {
    member(w, key);
    for (int a = 0; a < N_ARENAS; a++) {
        str_add(&w->s, a ? "," : "[");
        str_int(&w->s, x[a]);
    }
    str_add(&w->s, "]");
}

/* ── events: rows whose columns plan.js names in the same order ──────────────────────────────────────────────────── */
static void accesses(Blocks *w, const Access *x, int n) {
    str_add(&w->s, ",[");
    for (int i = 0; i < n; i++) {
        if (i) str_add(&w->s, ",");
        str_int(&w->s, x[i].storage);
        str_add(&w->s, ",");
        str_int(&w->s, x[i].offset);
        str_add(&w->s, ",");
        str_int(&w->s, x[i].size);
    }
    str_add(&w->s, "]");
}

/* [event, reasons, ...] for each wait. */
static void waits(Blocks *w, const PlanProgram *g, const Event *x) {
    str_add(&w->s, ",[");
    for (int i = 0; i < x->nwaits; i++) {
        const char *said[REASONS_MOST + 1];
        int n = report_reasons(w->plan, g, x, x->waits[i], NULL, NULL, said);
        str_add(&w->s, i ? ",[" : "[");
        str_int(&w->s, x->waits[i]);
        for (int k = 0; k < n; k++) {
            str_add(&w->s, ",");
            add_index(w, said[k]);
        }
        str_add(&w->s, "]");
    }
    str_add(&w->s, "]");
}

/* Of each result or operand: its name, "bf16[8,1024,768]", and its storage. */
static void operands(Blocks *w, const Slot *slots, Value *const *values, int n, bool *comma) {
    for (int k = 0; k < n; k++) {
        const Value *v = values[k];
        int index, storage = v ? plan_storage(w->plan, v) : -1;
        const Slot *slot = op_slot_at(slots, k, &index);
        if (storage < 0 || !slot) continue;
        str_add(&w->s, *comma ? "," : "");
        *comma = true;
        add_index(w, slot->n > 1 ? arena_printf(w->plan->arena, "%s[%d]", slot->name, index) : slot->name);
        Str shape = {.arena = w->plan->arena};
        str_addf(&shape, "%s[", dtype_name(v->dtype));
        for (int i = 0; i < v->dims; i++) str_addf(&shape, "%s%lld", i ? "," : "", (long long)v->shape[i]);
        str_add(&shape, "]");
        str_add(&w->s, ",");
        add_index(w, shape.s);
        str_add(&w->s, ",");
        str_int(&w->s, storage);
    }
}

static void event_row(Blocks *w, const PlanProgram *g, const Event *x) {
    str_add(&w->s, "[");
    page_string(&w->s, x->id);
    str_add(&w->s, ",");
    add_index(w, x->op);
    str_addf(&w->s, ",%d,%d,", x->stream, x->phase);
    add_index(w, x->module);
    str_add(&w->s, ",");
    add_index(w, x->src.file);
    str_addf(&w->s, ",%d,%d,%d,%d", x->src.line, x->unit, x->comm, x->update);
    const double figures[] = {x->start_us, x->duration_us, x->flops, x->bytes};
    for (int i = 0; i < 4; i++) {
        str_add(&w->s, ",");
        add_real(&w->s, figures[i]);
    }
    accesses(w, x->reads, x->nreads);
    accesses(w, x->writes, x->nwrites);
    waits(w, g, x);
    const Op *op = x->op_ir;
    bool comma = false;
    for (int results = 1; results >= 0; results--) {
        comma = false;
        str_add(&w->s, ",[");
        if (op && results) operands(w, op_info[op->kind].results, op->out, op->nout, &comma);
        if (op && !results) operands(w, op_info[op->kind].operands, op->in, op->nin, &comma);
        str_add(&w->s, "]");
    }
    str_add(&w->s, "]");
}

/* Those of a program; -1: those that outlive programs. */
static void storages(Blocks *w, int program) {
    bool comma = false;
    member(w, "storages");
    str_add(&w->s, "[");
    for (int i = 0; i < w->plan->nstorages; i++) {
        const Storage *s = &w->plan->storages[i];
        if (s->program != program) continue;
        str_addf(&w->s, "%s[%d,", comma ? ",\n" : "\n", i);
        comma = true;
        page_string(&w->s, s->name);
        str_add(&w->s, ",");
        add_index(w, s->owner);
        str_addf(&w->s, ",%d,%d,%d,", s->cls, s->arena, program);
        str_int(&w->s, s->offset);
        str_add(&w->s, ",");
        str_int(&w->s, s->size);
        str_addf(&w->s, ",%d,%d]", program < 0 ? -1 : s->first, program < 0 ? -1 : s->last);
        str_spill(&w->s, w->f);
    }
    str_add(&w->s, "]");
}

/* [from, to, took] of each event in the run. */
static void actual_times(Blocks *w, int program) {
    const ActualProgram *x = w->actual ? &w->actual->programs[program] : NULL;
    if (!x || !x->runs) return;
    member(w, "actual");
    for (int e = 0; e < w->plan->programs[program].n; e++) {
        const double times[] = {x->events[e].begin_us, x->events[e].end_us, x->events[e].us};
        for (int k = 0; k < 3; k++) {
            str_add(&w->s, e || k ? "," : "[");
            str_addf(&w->s, "%.9g", times[k]);
        }
        str_spill(&w->s, w->f);
    }
    str_add(&w->s, w->plan->programs[program].n ? "]" : "[]");
}

/* Its events and storages: a block of its own, which the page reads when the program is shown. */
static void program_block(Blocks *w, int program) {
    const PlanProgram *g = &w->plan->programs[program];
    str_addf(&w->s, "<script id=\"%sprogram-%d\" type=\"application/json\">{\"events\":[", w->prefix, program);
    for (int e = 0; e < g->n; e++) {
        str_add(&w->s, e ? ",\n" : "\n");
        event_row(w, g, &g->events[e]);
        str_spill(&w->s, w->f);
    }
    str_add(&w->s, "]");
    actual_times(w, program);
    storages(w, program);
    str_add(&w->s, "}</script>\n");
}

/* ── everything else ─────────────────────────────────────────────────────────────────────────────────────────────── */
static void names(Blocks *w, const char *key, int n, const char *name(int i)) {
    member(w, key);
    for (int i = 0; i < n; i++) {
        str_add(&w->s, i ? "," : "[");
        page_string(&w->s, name(i));
    }
    str_add(&w->s, "]");
}

static const char *name_of_class(int i) {
    return storage_class_name((StorageClass)i);
}

static const char *name_of_phase(int i) {
    return phase_name((Phase)i);
}

static const char *name_of_stream(int i) {
    return stream_name((Stream)i);
}

static void figures(Blocks *w) {
    const Plan *p = w->plan;
    StepFigures s = live_step(p);
    double tolerance, library = live_library_bytes(p, &tolerance);
    text_member(w, "model", p->model);
    text_member(w, "target", p->target);
    text_member(w, "device", p->device);
    real_member(w, "world", p->world);
    real_member(w, "nodes", p->nodes);
    real_member(w, "usable_bytes", p->device_usable);
    real_member(w, "library_bytes", library);
    real_member(w, "library_tolerance", tolerance);
    pair_member(w, "arena_bytes", p->arena_bytes);
    pair_member(w, "bound_bytes", p->bound_bytes);
    real_member(w, "step_us", s.step_us);
    real_member(w, "exposed_us", s.exposed_us);
    real_member(w, "microbatches", s.microbatches);
    real_member(w, "tokens_per_second", s.tokens_per_second);
    real_member(w, "samples_per_second", s.samples_per_second);
    real_member(w, "mfu_full_attention", s.mfu_full);
    real_member(w, "mfu_causal_attention", s.mfu_causal);
    text_member(w, "trust", report_trust(p->arena, p));
    real_member(w, "peak_program", live_largest_program(p, ARENA_DEVICE));
    member(w, "options");
    str_add(&w->s, "[");
    for (int i = 0; i < p->noptions; i++) {
        str_add(&w->s, i ? ",[" : "[");
        page_string(&w->s, p->options[i].name);
        str_add(&w->s, ",");
        page_string(&w->s, p->options[i].text);
        str_add(&w->s, "]");
    }
    str_add(&w->s, "]");
    member(w, "units");
    str_add(&w->s, "[");
    for (int i = 0; i < p->nunits; i++) {
        if (i) str_add(&w->s, ",");
        page_string(&w->s, p->units[i].path);
    }
    str_add(&w->s, "]");
    member(w, "comms");
    str_add(&w->s, "[");
    for (int i = 0; i < p->ncomms; i++) {
        str_add(&w->s, i ? ",[" : "[");
        page_string(&w->s, p->comms[i].name);
        str_addf(&w->s, ",%d]", p->comms[i].n);
    }
    str_add(&w->s, "]");
}

static void programs(Blocks *w) {
    member(w, "programs");
    str_add(&w->s, "[");
    for (int i = 0; i < w->plan->nprograms; i++) {
        const PlanProgram *g = &w->plan->programs[i];
        str_add(&w->s, i ? ",\n{\"name\":" : "{\"name\":");
        page_string(&w->s, g->name);
        real_member(w, "n", g->n);
        real_member(w, "step_us", g->step_us);
        real_member(w, "exposed_us", g->exposed_us);
        pair_member(w, "peak", g->peak);
        pair_member(w, "bound", g->bound);
        real_member(w, "peak_event", g->peak_event);
        if (w->actual && w->actual->programs[i].runs) real_member(w, "actual_us", w->actual->programs[i].us);
        str_add(&w->s, "}");
    }
    str_add(&w->s, "]");
}

/* Programs that are read later, into memory: the plan's block holds the strings of all, and stands before them. */
static void other_blocks(Blocks *w, int shown, PageText *others) {
    FILE *f = w->f;
    w->f = open_memstream(&others->text, &others->n);
    if (!w->f) fail(NOWHERE, "out of memory for the page; free memory and run again");
    for (int i = 0; i < w->plan->nprograms; i++)
        if (i != shown) program_block(w, i);
    str_write(&w->s, w->f);
    if (fclose(w->f)) fail(NOWHERE, "out of memory for the page; free memory and run again");
    w->f = f;
}

void page_blocks(FILE *f, const Plan *p, const Actual *actual, const char *prefix, int shown, PageText *others) {
    Blocks blocks = {
        .plan = p, .actual = actual, .f = f, .s = {.arena = p->arena}, .strings = map_new(p->arena), .prefix = prefix};
    Blocks *w = &blocks;
    other_blocks(w, shown, others);
    if (shown >= 0) program_block(w, shown);
    str_addf(&w->s, "<script id=\"%splan\" type=\"application/json\">{\"format\":\"shardc-page\",\n\"version\":1",
             prefix);
    real_member(w, "shown", shown);
    if (actual) {
        text_member(w, "actual_files", actual->files);
        real_member(w, "actual_us", actual->actual_us);
    }
    figures(w);
    names(w, "classes", N_CLASSES, name_of_class);
    names(w, "phases", N_PHASES, name_of_phase);
    names(w, "stream_names", N_STREAMS, name_of_stream);
    storages(w, -1);
    programs(w);
    member(w, "strings"); /* last: all are known */
    str_add(&w->s, "[");
    for (int i = 0; i < map_len(w->strings); i++) {
        str_add(&w->s, i ? ",\n" : "\n");
        page_string(&w->s, map_key(w->strings, i));
        str_spill(&w->s, f);
    }
    str_add(&w->s, "]}</script>\n");
    str_write(&w->s, f);
}

int page_first_shown(const Plan *p) {
    for (int i = 0; i < p->nprograms; i++)
        if (program_trains(&p->programs[i])) return i;
    return live_largest_program(p, ARENA_DEVICE);
}

void page_fill(FILE *f, PageText page, void (*part)(FILE *f, char mark, const void *of), const void *of) {
    for (char *at = page.text, *end = page.text + page.n; at < end;) {
        char *mark = strstr(at, "@@");
        page_put(f, (PageText){at, (size_t)((mark ? mark : end) - at)});
        if (!mark) break;
        at = mark + 3;
        part(f, mark[2], of);
    }
}

void page_put(FILE *f, PageText text) {
    fwrite(text.text, 1, text.n, f);
}

void page_shared(FILE *f, char mark) {
    const PageText scripts[] = {PAGE_FILE(plan), PAGE_FILE(elements), PAGE_FILE(axis), PAGE_FILE(view)};
    if (mark == 'c') page_put(f, PAGE_FILE(css));
    for (size_t i = 0; mark == 's' && i < sizeof scripts / sizeof *scripts; i++) page_put(f, scripts[i]);
}
