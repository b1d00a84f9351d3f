/* Plans and predictions as JSON, written in one pass: an event a line, so that two plans can be compared with diff.
 * Relies on: live.h.
 * Relied on by: emit (NAME.plan.json), main.c's commands; read.c reads what plan_write_json writes. */
#include "../ir/training.h"
#include "live.h"
#include "report.h"
#include "visible.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ── a small writer: commas and quotes are its business ───────────────────────────────────────────────────── */
typedef struct {
    FILE *f;
    Str s; /* on its way to the file */
    bool comma;
} Json;

static inline void key(Json *j, const char *k) {
    if (j->comma) str_add(&j->s, ",");
    j->comma = false;
    if (k) {
        str_add(&j->s, "\"");
        str_add(&j->s, k);
        str_add(&j->s, "\":");
    }
}

static void open_(Json *j, const char *k, char bracket) {
    key(j, k);
    str_bytes(&j->s, &bracket, 1);
}

static void close_(Json *j, char bracket) {
    str_bytes(&j->s, &bracket, 1);
    j->comma = true;
}

static void line(Json *j) { /* the next value starts on a line of its own */
    str_add(&j->s, j->comma ? ",\n" : "\n");
    j->comma = false;
    str_spill(&j->s, j->f);
}

static inline void put_int(Json *j, const char *k, int64_t x) {
    key(j, k);
    str_int(&j->s, x);
    j->comma = true;
}

/* The shortest text of 15 or 17 digits that reads back as the same number. */
static void put_real(Json *j, const char *k, double x) {
    if (fabs(x) < 1e15 && x == (double)(int64_t)x) {
        put_int(j, k, (int64_t)x);
        return;
    }
    char out[32];
    snprintf(out, sizeof out, "%.15g", isfinite(x) ? x : 0);
    if (strtod(out, NULL) != x && isfinite(x)) snprintf(out, sizeof out, "%.17g", x);
    key(j, k);
    str_add(&j->s, out);
    j->comma = true;
}

/* Simulated to the picosecond, for which 15 digits do. A time that is the double next to a whole number of picoseconds
 * is printed by way of that number: the same text, for a quarter of what %g takes. */
static void put_time(Json *j, const char *k, double us) {
    int64_t ps = us >= 1 && us < 1e8 ? (int64_t)(us * 1e6 + 0.5) : 0;
    key(j, k);
    j->comma = true;
    if (!ps || (double)ps / 1e6 != us) {
        str_addf(&j->s, "%.15g", isfinite(us) ? us : 0);
        return;
    }
    char out[32];
    int n = snprintf(out, sizeof out, "%" PRId64 ".%06d", ps / 1000000, (int)(ps % 1000000));
    while (out[n - 1] == '0') n--;
    str_bytes(&j->s, out, (size_t)(out[n - 1] == '.' ? n - 1 : n));
}

static void put_bool(Json *j, const char *k, bool x) {
    key(j, k);
    str_add(&j->s, x ? "true" : "false");
    j->comma = true;
}

/* JSON is UTF-8: a byte of a path that is not stands as U+FFFD. */
static void put_escaped(Json *j, const char *s) {
    static const bool special[256] = {
        [0 ... 0x1f] = true, ['"'] = true, ['\\'] = true, [0x7f] = true, [0x80 ... 0xff] = true};
    for (size_t length;; s += length) {
        const char *from = s;
        while (!special[(unsigned char)*s]) s++;
        str_bytes(&j->s, from, (size_t)(s - from));
        if (!*s) return;
        unsigned char c = (unsigned char)*s;
        length = 1;
        if (c >= 0x80) length = sc_visible_character((const unsigned char *)s, strlen(s));
        if (c >= 0x80)
            str_bytes(&j->s, length ? s : "\xef\xbf\xbd", length ? length : 3);
        else
            str_addf(&j->s, c < 0x20 || c == 0x7f ? "\\u%04x" : "\\%c", c);
        length += !length;
    }
}

static inline void put_str(Json *j, const char *k, const char *s) {
    key(j, k);
    j->comma = true;
    if (!s) {
        str_add(&j->s, "null");
        return;
    }
    str_add(&j->s, "\"");
    put_escaped(j, s);
    str_add(&j->s, "\"");
}

/* ── the parts of a plan ──────────────────────────────────────────────────────────────────────────────────── */
static const char *const arena_names[N_ARENAS] = {"device", "host"};
const char *const unused_keys[N_UNUSED] = {"parameters", "inputs", "modules"};
static void put_head(Json *j, const Plan *p) {
    put_str(j, "model", p->model);
    put_str(j, "target", p->target);
    line(j);
    open_(j, "device", '{');
    put_str(j, "name", p->device);
    put_real(j, "usable_bytes", p->device_usable);
    put_real(j, "peak_flops", p->peak_flops);
    put_str(j, "peak_dtype", dtype_name(p->peak_dtype));
    put_str(j, "time_source", p->time_source ? p->time_source : "");
    put_real(j, "time_off", p->time_off);
    close_(j, '}');
    line(j);
    open_(j, "mesh", '{');
    put_int(j, "world", p->world);
    put_int(j, "nodes", p->nodes);
    open_(j, "groups", '[');
    for (int i = 0; i < p->ncomms; i++) {
        open_(j, NULL, '{');
        put_str(j, "name", p->comms[i].name);
        put_int(j, "ranks", p->comms[i].n);
        put_int(j, "apart", p->comms[i].step);
        close_(j, '}');
    }
    close_(j, ']');
    close_(j, '}');
    line(j);
    open_(j, "options", '{');
    for (int i = 0; i < p->noptions; i++) put_str(j, p->options[i].name, p->options[i].text);
    close_(j, '}');
    line(j);
    open_(j, "arenas", '{');
    for (int a = 0; a < N_ARENAS; a++) {
        open_(j, arena_names[a], '{');
        put_int(j, "bytes", p->arena_bytes[a]);
        put_int(j, "bound", p->bound_bytes[a]);
        close_(j, '}');
    }
    close_(j, '}');
    line(j);
    put_real(j, "tokens_per_step", p->tokens_per_step);
    put_real(j, "samples_per_step", p->samples_per_step);
    put_int(j, "microbatches_per_step", p->microbatches);
    put_real(j, "model_flops", p->model_flops);
    put_real(j, "model_flops_full", p->model_flops_full);
}

static void put_live_set(Json *j, const LiveSet *l) {
    open_(j, "live", '{');
    for (int c = 0; c < N_CLASSES; c++)
        if (l->of[c]) put_int(j, storage_class_name((StorageClass)c), l->of[c]);
    close_(j, '}');
}

static void put_peak(Json *j, const Plan *p) {
    open_(j, "peak", '{');
    put_int(j, "bytes", p->arena_bytes[ARENA_DEVICE]);
    put_int(j, "bound", p->bound_bytes[ARENA_DEVICE]);
    int g = live_largest_program(p, ARENA_DEVICE);
    if (g >= 0) {
        const PlanProgram *q = &p->programs[g];
        bool named = q->peak_event >= 0 && q->peak_event < q->n;
        LiveSet live = live_at(p, ARENA_DEVICE, g, q->peak_event);
        put_str(j, "program", q->name);
        put_str(j, "event", named ? q->events[q->peak_event].id : NULL);
        put_live_set(j, &live);
    }
    close_(j, '}');
}

static void put_prediction(Json *j, const Plan *p) {
    StepFigures s = live_step(p);
    open_(j, "prediction", '{');
    put_bool(j, "fits", report_fits(p));
    put_int(j, "arena_bytes", p->arena_bytes[ARENA_DEVICE]);
    put_int(j, "host_bytes", p->arena_bytes[ARENA_HOST]);
    put_real(j, "step_us", s.step_us);
    put_real(j, "exposed_us", s.exposed_us);
    put_int(j, "microbatches", s.microbatches);
    put_real(j, "tokens_per_second", s.tokens_per_second);
    put_real(j, "samples_per_second", s.samples_per_second);
    put_real(j, "mfu_full_attention", s.mfu_full);
    put_real(j, "mfu_causal_attention", s.mfu_causal);
    if (p->time_source) put_str(j, "time_source", p->time_source);
    put_real(j, "time_off", p->time_off);
    line(j);
    open_(j, "library", '[');
    for (int i = 0; i < p->nlibrary; i++) {
        open_(j, NULL, '{');
        put_str(j, "name", p->library[i].name);
        put_real(j, "bytes", p->library[i].bytes);
        put_real(j, "tolerance", p->library[i].tolerance);
        put_str(j, "source", p->library[i].source);
        close_(j, '}');
    }
    close_(j, ']');
    close_(j, '}');
}

static void put_unit(Json *j, const PlanUnit *u) {
    line(j);
    open_(j, NULL, '{');
    put_int(j, "id", u->id);
    put_str(j, "path", u->path);
    put_int(j, "shards", u->shards);
    put_int(j, "replicas", u->replicas);
    put_int(j, "numel", u->numel);
    put_str(j, "dtype", dtype_name(u->dtype));
    put_str(j, "wire", dtype_name(u->wire));
    put_str(j, "gradient", dtype_name(u->grad_dtype));
    put_str(j, "reduce", dtype_name(u->reduce));
    put_int(j, "parameters", u->nparams);
    if (u->master_storage >= 0) put_int(j, "master", u->master_storage);
    close_(j, '}');
}

static const char *event_id(const PlanProgram *g, int e) {
    return e >= 0 && e < g->n ? g->events[e].id : NULL;
}

static void put_storage(Json *j, const Plan *p, const Storage *s) {
    line(j);
    open_(j, NULL, '{');
    put_int(j, "id", s->id);
    put_str(j, "class", storage_class_name(s->cls));
    put_str(j, "name", s->name);
    put_str(j, "owner", s->owner);
    put_str(j, "arena", arena_names[s->arena]);
    put_int(j, "offset", s->offset);
    put_int(j, "size", s->size);
    if (s->program >= 0) {
        const PlanProgram *g = &p->programs[s->program];
        put_str(j, "program", g->name);
        put_str(j, "first", event_id(g, s->first));
        put_str(j, "last", event_id(g, s->last));
    }
    close_(j, '}');
}

static void put_accesses(Json *j, const char *k, const Access *x, int n) {
    open_(j, k, '[');
    for (int i = 0; i < n; i++) {
        str_add(&j->s, i ? ",[" : "[");
        str_int(&j->s, x[i].storage);
        str_add(&j->s, ",");
        str_int(&j->s, x[i].offset);
        str_add(&j->s, ",");
        str_int(&j->s, x[i].size);
        str_add(&j->s, "]");
    }
    close_(j, ']');
}

static void put_source(Json *j, Source s) {
    if (!s.file) return;
    key(j, "source");
    str_add(&j->s, "\"");
    put_escaped(j, s.file);
    str_add(&j->s, ":");
    str_int(&j->s, s.line);
    str_add(&j->s, "\"");
    j->comma = true;
}

static void put_event(Json *j, const Plan *p, const PlanProgram *g, const Event *e) {
    line(j);
    open_(j, NULL, '{');
    put_str(j, "id", e->id);
    put_str(j, "op", e->op);
    put_str(j, "stream", stream_name(e->stream));
    put_str(j, "phase", phase_name(e->phase));
    put_str(j, "module", e->module);
    put_source(j, e->src);
    if (e->unit >= 0) put_int(j, "unit", e->unit);
    if (e->comm >= 0) put_str(j, "comm", p->comms[e->comm].name);
    if (e->update) put_bool(j, "update", true);
    open_(j, "waits", '[');
    for (int i = 0; i < e->nwaits; i++) put_str(j, NULL, g->events[e->waits[i]].id);
    close_(j, ']');
    put_accesses(j, "reads", e->reads, e->nreads);
    put_accesses(j, "writes", e->writes, e->nwrites);
    put_real(j, "flops", e->flops);
    put_real(j, "bytes", e->bytes);
    put_time(j, "start_us", e->start_us);
    put_time(j, "duration_us", e->duration_us);
    close_(j, '}');
}

static void put_program(Json *j, const Plan *p, const PlanProgram *g) {
    bool used[N_STREAMS] = {false};
    for (int e = 0; e < g->n; e++) used[g->events[e].stream] = true;
    line(j);
    open_(j, NULL, '{');
    put_str(j, "name", g->name);
    open_(j, "streams", '[');
    for (int s = 0; s < N_STREAMS; s++)
        if (used[s]) put_str(j, NULL, stream_name((Stream)s));
    close_(j, ']');
    put_real(j, "step_us", g->step_us);
    put_real(j, "exposed_us", g->exposed_us);
    open_(j, "peak", '[');
    for (int a = 0; a < N_ARENAS; a++) put_int(j, NULL, g->peak[a]);
    close_(j, ']');
    open_(j, "bound", '[');
    for (int a = 0; a < N_ARENAS; a++) put_int(j, NULL, g->bound[a]);
    close_(j, ']');
    put_str(j, "peak_event", event_id(g, g->peak_event));
    open_(j, "events", '[');
    for (int e = 0; e < g->n; e++) put_event(j, p, g, &g->events[e]);
    close_(j, ']');
    close_(j, '}');
}

static void put_unused(Json *j, const Plan *p) {
    open_(j, "unused", '{');
    for (Unused k = 0; k < N_UNUSED; k++) {
        open_(j, unused_keys[k], '[');
        for (int i = 0; i < p->unused[k].n; i++) put_str(j, NULL, p->unused[k].at[i]);
        close_(j, ']');
    }
    close_(j, '}');
}

static void start_document(Json *j, const char *format, int version) {
    open_(j, NULL, '{');
    put_str(j, "format", format);
    put_int(j, "version", version);
    line(j);
}

static void end_document(Json *j) {
    str_add(&j->s, "\n}\n");
    str_write(&j->s, j->f);
}

void plan_write_json(FILE *f, const Plan *p) {
    Json j = {.f = f, .s = {.arena = p->arena}};
    start_document(&j, "shardc-plan", PLAN_VERSION);
    put_head(&j, p);
    line(&j);
    put_peak(&j, p);
    line(&j);
    put_prediction(&j, p);
    line(&j);
    if (p->unused[0].n || p->unused[1].n || p->unused[2].n) {
        put_unused(&j, p);
        line(&j);
    }
    open_(&j, "units", '[');
    for (int i = 0; i < p->nunits; i++) put_unit(&j, &p->units[i]);
    close_(&j, ']');
    line(&j);
    open_(&j, "storages", '[');
    for (int i = 0; i < p->nstorages; i++) put_storage(&j, p, &p->storages[i]);
    close_(&j, ']');
    line(&j);
    open_(&j, "programs", '[');
    for (int i = 0; i < p->nprograms; i++) put_program(&j, p, &p->programs[i]);
    close_(&j, ']');
    end_document(&j);
}

static void put_holders(Json *j, const char *k, const Plan *p, int program, unsigned classes) {
    Holders h = live_holders(p, ARENA_DEVICE, program, p->programs[program].peak_event, classes);
    open_(j, k, '[');
    for (int i = 0; i < h.n; i++) {
        open_(j, NULL, '{');
        put_str(j, "pattern", h.at[i].pattern);
        put_int(j, "bytes", h.at[i].bytes);
        put_int(j, "owners", h.at[i].owners);
        close_(j, '}');
    }
    close_(j, ']');
}

void report_predict_json(FILE *f, const Plan *p) {
    Json j = {.f = f, .s = {.arena = p->arena}};
    start_document(&j, "shardc-prediction", 1);
    put_head(&j, p);
    line(&j);
    put_peak(&j, p);
    line(&j);
    put_prediction(&j, p);
    line(&j);
    put_unused(&j, p);
    line(&j);
    open_(&j, "programs", '[');
    for (int i = 0; i < p->nprograms; i++) {
        const PlanProgram *g = &p->programs[i];
        open_(&j, NULL, '{');
        put_str(&j, "name", g->name);
        put_int(&j, "events", g->n);
        put_int(&j, "bytes", g->peak[ARENA_DEVICE]);
        put_int(&j, "bound", g->bound[ARENA_DEVICE]);
        put_int(&j, "host_bytes", g->peak[ARENA_HOST]);
        put_str(&j, "peak_event", event_id(g, g->peak_event));
        put_real(&j, "step_us", g->step_us);
        put_real(&j, "exposed_us", g->exposed_us);
        close_(&j, '}');
    }
    close_(&j, ']');
    int g = live_largest_program(p, ARENA_DEVICE);
    if (g >= 0) {
        line(&j);
        put_holders(&j, "activations", p, g, CLASSES_OF_MODULES);
        line(&j);
        put_holders(&j, "unsharded", p, g, CLASSES_UNSHARDED);
    }
    end_document(&j);
}

static void put_findings(Json *j, const Findings *v) {
    for (int i = 0; i < v->n; i++) {
        line(j);
        open_(j, NULL, '{');
        put_str(j, "rule", v->at[i].rule);
        put_str(j, "program", v->at[i].program);
        put_str(j, "first", v->at[i].first);
        put_str(j, "second", v->at[i].second);
        put_str(j, "text", v->at[i].text);
        close_(j, '}');
    }
}

static void put_times(Json *j, const Plan *p) {
    open_(j, "times", '[');
    for (int g = 0; g < p->nprograms; g++) {
        if (!program_trains(&p->programs[g])) continue;
        Times t = verify_program_times(p->arena, &p->programs[g]);
        line(j);
        open_(j, NULL, '{');
        put_str(j, "program", p->programs[g].name);
        put_real(j, "forward_ms", t.forward_ms);
        put_real(j, "step_ms", t.step_ms);
        put_real(j, "exposed_ms", t.exposed_ms);
        close_(j, '}');
    }
    close_(j, ']');
}

void report_findings_json(FILE *f, const Plan *p, const Findings *v, const Findings *late) {
    Json j = {.f = f, .s = {.arena = p->arena}};
    start_document(&j, "shardc-findings", 1);
    put_str(&j, "model", p->model);
    put_bool(&j, "sound", v->n == 0);
    put_bool(&j, "in_time", late->n == 0);
    open_(&j, "findings", '[');
    put_findings(&j, v);
    put_findings(&j, late);
    close_(&j, ']');
    put_times(&j, p);
    end_document(&j);
}
