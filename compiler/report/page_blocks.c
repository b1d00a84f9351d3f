/* Writes a plan as blocks of JSON that the script of a page reads.
 * Relies on: limits.h, live.h, savings.h, slack.h, origin.h, sentences.h (reasons of waits), ops.h (names of operands).
 * Relied on by: page.c, diff_page.c. */
#include "../plan/sentences.h"
#include "page.h"

#include "../ir/ops.h"
#include "../ir/policy.h"
#include "../ir/training.h"
#include "../plan/limits.h"
#include "../plan/live.h"
#include "../plan/savings.h"
#include "../plan/slack.h"
#include "origin.h"
#include "report.h"

#include <math.h>

PAGE_EMBED(css, "compiler/report/page/page.css");
PAGE_EMBED(plan, "compiler/report/page/plan.js");
PAGE_EMBED(elements, "compiler/report/page/elements.js");
PAGE_EMBED(tabs, "compiler/report/page/tabs.js");
PAGE_EMBED(axis, "compiler/report/page/axis.js");
PAGE_EMBED(view, "compiler/report/page/view.js");

typedef struct {
    const Plan *plan;
    const Actual *actual; /* or NULL */
    Statements statements;
    FILE *f;
    Str s;              /* on its way to the file */
    Map *strings;       /* that stand more than once: columns hold their numbers */
    Map *texts;         /* likewise, of details */
    const char *prefix; /* of the blocks' ids */
} Blocks;

void page_string(Str *s, const char *text) {
    PageCharacter shown;
    str_add(s, "\"");
    for (size_t n, read; (read = page_character(text, shown, &n)); text += read) str_bytes(s, shown, n);
    str_add(s, "\"");
}

/* The number of a string in one of the page's tables. */
static void add_index(Blocks *w, Map *strings, const char *text) {
    str_int(&w->s, map_index(strings, text ? text : ""));
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

/* ── details of events: rows whose columns plan.js names in the same order ───────────────────────────────────────── */
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

/* [reasons, ...] of each wait. */
static void waits(Blocks *w, const PlanProgram *g, const Event *x) {
    str_add(&w->s, ",[");
    for (int i = 0; i < x->nwaits; i++) {
        const char *said[REASONS_MOST + 1];
        int n = plan_reasons(w->plan, g, x, x->waits[i], NULL, NULL, said);
        str_add(&w->s, i ? ",[" : "[");
        for (int k = 0; k < n; k++) {
            if (k) str_add(&w->s, ",");
            add_index(w, w->texts, said[k]);
        }
        str_add(&w->s, "]");
    }
    str_add(&w->s, "]");
}

/* Of each result or operand: its name, "bf16[8,1024,768]", and its storage. */
static void operands(Blocks *w, const Slot *slots, Value *const *values, int n) {
    bool comma = false;
    for (int k = 0; k < n; k++) {
        const Value *v = values[k];
        int index, storage = v ? plan_storage(w->plan, v) : -1;
        const Slot *slot = op_slot_at(slots, k, &index);
        if (storage < 0 || !slot) continue;
        str_add(&w->s, comma ? "," : "");
        comma = true;
        add_index(w, w->texts, slot->n > 1 ? arena_printf(w->plan->arena, "%s[%d]", slot->name, index) : slot->name);
        Str shape = {.arena = w->plan->arena};
        str_addf(&shape, "%s[", dtype_name(v->dtype));
        for (int i = 0; i < v->dims; i++) str_addf(&shape, "%s%lld", i ? "," : "", (long long)v->shape[i]);
        str_add(&shape, "]");
        str_add(&w->s, ",");
        add_index(w, w->texts, shape.s);
        str_add(&w->s, ",");
        str_int(&w->s, storage);
    }
}

/* [pass, the event that it was made for, kernel, purpose, rule of issue, the event that the rule speaks of] */
static void origin(Blocks *w, const Map *ids, const Event *x) {
    const Op *op = x->op_ir;
    str_add(&w->s, "[");
    add_index(w, w->texts, op ? origin_pass(w->plan, op) : "");
    str_addf(&w->s, ",%d,", op && op->origin && op->origin->id ? map_find(ids, op->origin->id) : -1);
    add_index(w, w->texts, op ? origin_kernel(w->plan, op) : "");
    str_add(&w->s, ",");
    add_index(w, w->texts, purposes[x->purpose].name);
    str_add(&w->s, ",");
    add_index(w, w->texts, origin_issue(x));
    str_addf(&w->s, ",%d],", x->issue_other);
}

/* [share of the arithmetic, of the bytes, which is more], and the peaks. */
static void limit(Blocks *w, const Event *x) {
    Limit l = plan_limit(x);
    str_addf(&w->s, "[%.4g,%.4g,%d],", l.flops_share, l.bytes_share, (int)l.bound);
    add_index(w, w->texts, arena_printf(w->plan->arena, "%.15g %.15g", x->peak_flops, x->peak_bytes));
    str_add(&w->s, ",");
}

/* Its text with each number as a 9, and the numbers: events of equal layers share the first. */
static void statement(Blocks *w, const char *text) {
    Str same = {.arena = w->plan->arena}, numbers = {.arena = w->plan->arena};
    for (const char *at = text; *at;) {
        size_t digits = strspn(at, "0123456789"), n = digits ? digits : strcspn(at, "0123456789");
        if (digits) str_add(&same, "9");
        if (digits && numbers.n) str_add(&numbers, " ");
        str_bytes(digits ? &numbers : &same, at, n);
        at += n;
    }
    add_index(w, w->texts, same.s);
    str_add(&w->s, ",");
    page_string(&w->s, numbers.s ? numbers.s : "");
}

/* A block of its own, a row a line: the page reads a row when it shows the event. */
static void details_block(Blocks *w, int program) {
    const PlanProgram *g = &w->plan->programs[program];
    Map *ids = map_new(w->plan->arena);
    for (int e = 0; e < g->n; e++) map_index(ids, g->events[e].id);
    str_addf(&w->s, "<script id=\"%sdetails-%d\" type=\"application/json\">", w->prefix, program);
    for (int e = 0; e < g->n; e++) {
        if (e) str_add(&w->s, "\n");
        const Event *x = &g->events[e];
        const Op *op = x->op_ir;
        str_add(&w->s, "[");
        add_index(w, w->texts, x->src.file);
        str_addf(&w->s, ",%d,%d,%d,%d,", x->src.line, x->unit, x->comm, x->update);
        add_real(&w->s, x->flops);
        str_add(&w->s, ",");
        add_real(&w->s, x->bytes);
        accesses(w, x->reads, x->nreads);
        accesses(w, x->writes, x->nwrites);
        waits(w, g, x);
        str_add(&w->s, ",[");
        if (op) operands(w, op_info[op->kind].results, op->out, op->nout);
        str_add(&w->s, "],[");
        if (op) operands(w, op_info[op->kind].operands, op->in, op->nin);
        str_add(&w->s, "],");
        origin(w, ids, x);
        limit(w, x);
        statement(w, w->statements && w->statements[program][e] ? w->statements[program][e] : "");
        str_add(&w->s, "]");
        str_spill(&w->s, w->f);
    }
    str_add(&w->s, "</script>\n");
}

/* ── columns: what drawing needs of each event and storage ───────────────────────────────────────────────────────── */
static void open_column(Blocks *w, const char *key, bool first) {
    str_addf(&w->s, first ? "\"%s\":[" : ",\n\"%s\":[", key);
}

static void next_cell(Blocks *w, bool first) {
    if (!first) str_add(&w->s, ",");
    str_spill(&w->s, w->f);
}

typedef enum { OP, MODULE, STREAM, PHASE, COLLECTIVE, ROUTE } EventColumn;

static void event_column(Blocks *w, const char *key, const PlanProgram *g, EventColumn column) {
    open_column(w, key, false);
    for (int e = 0; e < g->n; e++) {
        const Event *x = &g->events[e];
        next_cell(w, e == 0);
        switch (column) {
        case OP: add_index(w, w->strings, x->op); break;
        case MODULE: add_index(w, w->strings, x->module); break;
        case STREAM: str_int(&w->s, x->stream); break;
        case PHASE: str_int(&w->s, x->phase); break;
        case COLLECTIVE: str_int(&w->s, x->comm + 1); break; /* its group; 0: it is none */
        case ROUTE: str_int(&w->s, x->over); break;
        }
    }
    str_add(&w->s, "]");
}

static void event_columns(Blocks *w, const PlanProgram *g) {
    open_column(w, "id", true);
    for (int e = 0; e < g->n; e++) {
        next_cell(w, e == 0);
        page_string(&w->s, g->events[e].id);
    }
    str_add(&w->s, "]");
    event_column(w, "op", g, OP);
    event_column(w, "module", g, MODULE);
    event_column(w, "stream", g, STREAM);
    event_column(w, "phase", g, PHASE);
    event_column(w, "collective", g, COLLECTIVE);
    event_column(w, "over", g, ROUTE);
    for (int duration = 0; duration < 2; duration++) {
        open_column(w, duration ? "duration" : "start", false);
        for (int e = 0; e < g->n; e++) {
            next_cell(w, e == 0);
            add_real(&w->s, duration ? g->events[e].duration_us : g->events[e].start_us);
        }
        str_add(&w->s, "]");
    }
    const double *slack = plan_slack(w->plan, g);
    open_column(w, "slack", false);
    for (int e = 0; e < g->n; e++) {
        next_cell(w, e == 0);
        add_real(&w->s, slack[e]);
    }
    str_add(&w->s, "]");
    open_column(w, "limit", false); /* the least time at the device's peaks */
    for (int e = 0; e < g->n; e++) {
        next_cell(w, e == 0);
        str_addf(&w->s, "%.6g", plan_limit(&g->events[e]).us);
    }
    str_add(&w->s, "]");
    open_column(w, "moved", false); /* bytes on the wire or the bus; 0 of a kernel */
    for (int e = 0; e < g->n; e++) {
        const Event *x = &g->events[e];
        next_cell(w, e == 0);
        add_real(&w->s, x->comm >= 0 || x->stream == OFFLOAD || x->stream == FETCH ? x->bytes : 0);
    }
    str_add(&w->s, "]");
    open_column(w, "waits", false); /* an event, one that it waits for, and so on */
    bool first = true;
    for (int e = 0; e < g->n; e++)
        for (int i = 0; i < g->events[e].nwaits; i++, first = false) {
            next_cell(w, first);
            str_addf(&w->s, "%d,%d", e, g->events[e].waits[i]);
        }
    str_add(&w->s, "]");
}

/* The events of a program between whose start and end a storage's bytes are in use; -1: none touches it. */
typedef struct {
    int from, to;
} Life;

static Life *lives_of(Blocks *w, const PlanProgram *g) {
    Life *lives = arena_alloc(w->plan->arena, (size_t)w->plan->nstorages * sizeof *lives);
    for (int i = 0; i < w->plan->nstorages; i++) lives[i] = (Life){-1, -1};
    for (int e = 0; e < g->n; e++) {
        const Event *x = &g->events[e];
        double end = x->start_us + x->duration_us;
        for (int i = 0; i < x->nreads + x->nwrites; i++) {
            Life *l = &lives[(i < x->nreads ? &x->reads[i] : &x->writes[i - x->nreads])->storage];
            if (l->from < 0 || x->start_us < g->events[l->from].start_us) l->from = e;
            if (l->to < 0 || end > g->events[l->to].start_us + g->events[l->to].duration_us) l->to = e;
        }
    }
    return lives;
}

typedef enum {
    INDEX,
    NAME,
    OWNER,
    CLASS,
    ARENA,
    OFFSET,
    SIZE,
    LASTING_COLUMNS,
    FIRST = LASTING_COLUMNS,
    LAST,
    FROM,
    TO,
    STORAGE_COLUMNS
} StorageColumn;

/* Those of a program; -1: those that outlive programs. */
static void storages(Blocks *w, int program) {
    static const char *const keys[] = {"index", "name",  "owner", "class", "arena", "offset",
                                       "size",  "first", "last",  "from",  "to"};
    const Life *lives = program < 0 ? NULL : lives_of(w, &w->plan->programs[program]);
    member(w, "storages");
    str_add(&w->s, "{");
    for (StorageColumn c = INDEX; c < (program < 0 ? LASTING_COLUMNS : STORAGE_COLUMNS); c++) {
        bool first = true;
        open_column(w, keys[c], c == INDEX);
        for (int i = 0; i < w->plan->nstorages; i++) {
            const Storage *s = &w->plan->storages[i];
            if (s->program != program) continue;
            next_cell(w, first);
            first = false;
            switch (c) {
            case INDEX: str_int(&w->s, i); break;
            case NAME: page_string(&w->s, s->name); break;
            case OWNER: add_index(w, w->strings, s->owner); break;
            case CLASS: str_int(&w->s, s->cls); break;
            case ARENA: str_int(&w->s, s->arena); break;
            case OFFSET: str_int(&w->s, s->offset); break;
            case SIZE: str_int(&w->s, s->size); break;
            case FIRST: str_int(&w->s, s->first); break;
            case LAST: str_int(&w->s, s->last); break;
            case FROM: str_int(&w->s, lives[i].from); break;
            case TO: str_int(&w->s, lives[i].to); break;
            case STORAGE_COLUMNS: break;
            }
        }
        str_add(&w->s, "]");
    }
    str_add(&w->s, "}");
}

/* [kind, modules alike, how many, bytes at the peak, bytes of the largest moment, us, bytes copied, entry, ...] */
static void savings(Blocks *w, int program) {
    Savings all = plan_savings(w->plan, program);
    member(w, "savings");
    str_add(&w->s, "[");
    for (int i = 0; i < all.n; i++) {
        const Saving *x = &all.at[i];
        str_add(&w->s, i ? ",\n[" : "[");
        page_string(&w->s, savings_word(x->kind));
        str_add(&w->s, ",");
        page_string(&w->s, x->pattern);
        str_addf(&w->s, ",%d,%lld,%lld,", x->modules, (long long)x->bytes, (long long)x->lower);
        add_real(&w->s, x->us);
        str_addf(&w->s, ",%lld,", (long long)x->copied);
        page_string(&w->s, x->entry);
        str_add(&w->s, "]");
    }
    str_add(&w->s, "]");
}

/* Its events and storages: a block of its own, which the page reads when the program is shown. */
static void program_block(Blocks *w, int program) {
    const PlanProgram *g = &w->plan->programs[program];
    str_addf(&w->s, "<script id=\"%sprogram-%d\" type=\"application/json\">{", w->prefix, program);
    event_columns(w, g);
    const ActualProgram *x = w->actual ? &w->actual->programs[program] : NULL;
    if (x && x->runs) {
        member(w, "actual"); /* [from, to, took] of each event in the run */
        str_add(&w->s, "[");
        for (int e = 0; e < g->n; e++) {
            const ActualEvent *y = &x->events[e];
            str_addf(&w->s, "%s%.9g,%.9g,%.9g", e ? "," : "", y->begin_us, y->end_us, y->us);
            str_spill(&w->s, w->f);
        }
        str_add(&w->s, "]");
    }
    savings(w, program);
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

static const char *name_of_route(int i) {
    return plan_route((Route)i);
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
    real_member(w, "host_up", p->host_up);
    real_member(w, "host_down", p->host_down);
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
    real_member(w, "peak_program", live_largest_program(p));
    member(w, "options");
    str_add(&w->s, "[");
    for (int i = 0; i < p->noptions; i++) {
        str_add(&w->s, i ? ",[" : "[");
        page_string(&w->s, p->options[i].name);
        str_add(&w->s, ",");
        page_string(&w->s, p->options[i].text);
        if (p->options[i].overridden) str_add(&w->s, ",");
        if (p->options[i].overridden) page_string(&w->s, p->options[i].overridden);
        str_add(&w->s, "]");
    }
    str_add(&w->s, "]");
    text_member(w, "policies", report_policies(p));
    member(w, "units");
    str_add(&w->s, "[");
    for (int i = 0; i < p->nunits; i++) {
        if (i) str_add(&w->s, ",");
        page_string(&w->s, p->units[i].path);
    }
    str_add(&w->s, "]");
    member(w, "prefetch"); /* of each unit, in the forward and in the backward; none where no graph tells */
    str_add(&w->s, "[");
    for (int i = 0; i < p->nunits && p->graph; i++) {
        const UnitPolicy *u = p->graph->units.at[i]->policy;
        str_addf(&w->s, "%s[%d,%d]", i ? "," : "", u ? u->prefetch_forward : 1, u ? u->prefetch_backward : 1);
    }
    str_add(&w->s, "]");
    member(w, "comms");
    str_add(&w->s, "[");
    for (int i = 0; i < p->ncomms; i++) {
        str_add(&w->s, i ? ",[" : "[");
        page_string(&w->s, p->comms[i].name);
        str_addf(&w->s, ",%d]", p->comms[i].axis->size);
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

static void table(Blocks *w, const Map *strings) {
    str_add(&w->s, "[");
    for (int i = 0; i < map_len(strings); i++) {
        str_add(&w->s, i ? ",\n" : "\n");
        page_string(&w->s, map_key(strings, i));
        str_spill(&w->s, w->f);
    }
    str_add(&w->s, "]");
}

/* What is read later, into memory: the plan's block holds the strings of all programs, and stands before them. */
static void other_blocks(Blocks *w, int shown, PageText *others) {
    FILE *f = w->f;
    w->f = open_memstream(&others->text, &others->n);
    if (!w->f) fail(NOWHERE, "out of memory for the page; free memory and run again");
    if (shown >= 0) details_block(w, shown);
    for (int i = 0; i < w->plan->nprograms; i++) {
        if (i == shown) continue;
        program_block(w, i);
        details_block(w, i);
    }
    str_addf(&w->s, "<script id=\"%stexts\" type=\"application/json\">", w->prefix);
    table(w, w->texts);
    str_add(&w->s, "</script>\n");
    str_write(&w->s, w->f);
    if (fclose(w->f)) fail(NOWHERE, "out of memory for the page; free memory and run again");
    w->f = f;
}

void page_blocks(FILE *f, const Plan *p, const Actual *actual, Statements statements, const char *prefix, int shown,
                 PageText *others) {
    Blocks blocks = {.plan = p,
                     .actual = actual,
                     .statements = statements,
                     .f = f,
                     .s = {.arena = p->arena},
                     .strings = map_new(p->arena),
                     .texts = map_new(p->arena),
                     .prefix = prefix};
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
    real_member(w, "storage_count", p->nstorages);
    names(w, "classes", N_CLASSES, name_of_class);
    names(w, "phases", N_PHASES, name_of_phase);
    names(w, "stream_names", N_STREAMS, name_of_stream);
    names(w, "routes", N_ROUTES, name_of_route);
    storages(w, -1);
    programs(w);
    member(w, "strings"); /* last: all are known */
    table(w, w->strings);
    str_add(&w->s, "}</script>\n");
    str_write(&w->s, f);
}

int page_first_shown(const Plan *p) {
    for (int i = 0; i < p->nprograms; i++)
        if (program_trains(&p->programs[i])) return i;
    return live_largest_program(p);
}

void page_shared(FILE *f, char mark) {
    const PageText scripts[] = {PAGE_FILE(plan), PAGE_FILE(elements), PAGE_FILE(tabs), PAGE_FILE(axis),
                                PAGE_FILE(view)};
    if (mark == 'c') page_put(f, PAGE_FILE(css));
    for (size_t i = 0; mark == 's' && i < sizeof scripts / sizeof *scripts; i++) page_put(f, scripts[i]);
}
