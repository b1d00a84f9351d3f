/* Writes plan.json, in one pass: an event a line, so that two plans can be compared with diff.
 * Relies on: fields.h, live.h, json_writer.h.
 * Relied on by: emit/emit.c (NAME.plan.json), cli/inspect.c, report/json.c (the summary); read.c reads it. */
#include "../ir/training.h"
#include "fields.h"
#include "live.h"
#include "plan_json.h"

/* ── the parts of a plan ──────────────────────────────────────────────────────────────────────────────────── */
/* The members of an object, out of the struct o. */
static void put_fields(Json *j, Object kind, const void *o) {
    for (const Field *f = fields_of(kind); f->of == kind; f++) {
        const void *at = (const char *)o + f->at;
        const int64_t *sizes = at;
        switch (f->type) {
        case F_TEXT: json_str(j, f->key, *(const char *const *)at); break;
        case F_INDEX:
            if (*(const int *)at < 0) break; /* fall through */
        case F_INT:
        case F_COUNT: json_int(j, f->key, *(const int *)at); break;
        case F_SIZE: json_int(j, f->key, *sizes); break;
        case F_RATE:
            if (*(const double *)at <= 0) break; /* fall through */
        case F_REAL: json_real(j, f->key, *(const double *)at); break;
        case F_TIME: json_time(j, f->key, *(const double *)at); break;
        case F_NO_AXIS:
            if (!*(const Axis *const *)at) break; /* fall through */
        case F_AXIS: json_str(j, f->key, (*(const Axis *const *)at)->name); break;
        case F_PAIR:
            json_open(j, f->key, '[');
            for (int i = 0; i < N_ARENAS; i++) json_int(j, NULL, sizes[i]);
            json_close(j, ']');
            break;
        case F_ROUTE:
            if (!*(const int *)at) break; /* fall through */
        default: json_str(j, f->key, fields_word(f->type, *(const int *)at));
        }
    }
}

static void put_object(Json *j, const char *k, Object kind, const void *o) {
    json_open(j, k, '{');
    put_fields(j, kind, o);
    json_close(j, '}');
}

/* The files of --policy, what each changes, and which options it overrides. */
static void put_policies(Json *j, const Plan *p) {
    json_open(j, "policies", '[');
    for (int i = 0; i < p->npolicies; i++) {
        const PolicyFile *file = &p->policies[i];
        json_open(j, NULL, '{');
        json_str(j, "file", file->name);
        json_open(j, "changes", '[');
        for (int k = 0; k < file->changes.n; k++) json_str(j, NULL, file->changes.at[k]);
        json_close(j, ']');
        json_open(j, "overrides", '[');
        for (int k = 0; k < p->noptions; k++)
            if (p->options[k].overridden && !strcmp(p->options[k].overridden, file->name))
                json_str(j, NULL, p->options[k].name);
        json_close(j, ']');
        json_close(j, '}');
    }
    json_close(j, ']');
    json_line(j);
}

static void put_head(Json *j, const Plan *p) {
    put_fields(j, IN_MODEL, p);
    json_line(j);
    put_object(j, "device", IN_DEVICE, p);
    json_open_line(j, "mesh", '{');
    put_fields(j, IN_MESH, p);
    json_open(j, "axes", '[');
    for (int i = 0; i < p->naxes; i++) put_object(j, NULL, IN_AXIS, p->axes[i]);
    json_close(j, ']');
    json_open(j, "groups", '[');
    for (int i = 0; i < p->ncomms; i++) put_object(j, NULL, IN_GROUP, &p->comms[i]);
    json_close(j, ']');
    json_close(j, '}');
    json_open_line(j, "options", '{');
    for (int i = 0; i < p->noptions; i++) json_str(j, p->options[i].name, p->options[i].text);
    json_close(j, '}');
    json_line(j);
    if (p->npolicies) put_policies(j, p);
    json_open(j, "arenas", '{');
    for (int a = 0; a < N_ARENAS; a++) {
        json_open(j, fields_word(F_ARENA, a), '{');
        json_int(j, "bytes", p->arena_bytes[a]);
        json_int(j, "bound", p->bound_bytes[a]);
        json_close(j, '}');
    }
    json_close(j, '}');
    json_line(j);
    put_fields(j, IN_STEP, p);
    json_line(j);
}

static void put_peak(Json *j, const Plan *p) {
    json_open(j, "peak", '{');
    json_int(j, "bytes", p->arena_bytes[ARENA_DEVICE]);
    json_int(j, "bound", p->bound_bytes[ARENA_DEVICE]);
    int g = live_largest_program(p);
    if (g >= 0) {
        const PlanProgram *q = &p->programs[g];
        LiveSet live = live_at(p, g, q->peak_event);
        json_str(j, "program", q->name);
        json_str(j, "event", plan_event_id(q, q->peak_event));
        json_open(j, "live", '{');
        for (int c = 0; c < N_CLASSES; c++)
            if (live.of[c]) json_int(j, storage_class_name((StorageClass)c), live.of[c]);
        json_close(j, '}');
    }
    json_close(j, '}');
    json_line(j);
}

static void put_prediction(Json *j, const Plan *p) {
    StepFigures s = live_step(p);
    json_open(j, "prediction", '{');
    json_bool(j, "fits", live_fits(p));
    json_int(j, "arena_bytes", p->arena_bytes[ARENA_DEVICE]);
    json_int(j, "host_bytes", p->arena_bytes[ARENA_HOST]);
    json_real(j, "step_us", s.step_us);
    json_real(j, "exposed_us", s.exposed_us);
    json_int(j, "microbatches", s.microbatches);
    json_real(j, "tokens_per_second", s.tokens_per_second);
    json_real(j, "samples_per_second", s.samples_per_second);
    json_real(j, "mfu_full_attention", s.mfu_full);
    json_real(j, "mfu_causal_attention", s.mfu_causal);
    json_str(j, "time_source", p->time_source);
    json_real(j, "time_off", p->time_off);
    json_open_line(j, "library", '[');
    for (int i = 0; i < p->nlibrary; i++) put_object(j, NULL, IN_LIBRARY, &p->library[i]);
    json_close(j, ']');
    json_open(j, "estimates", '[');
    for (int i = 0; i < p->nestimates; i++) put_object(j, NULL, IN_ESTIMATE, &p->estimates[i]);
    json_close(j, ']');
    if (p->fp8) json_str(j, "fp8", p->fp8);
    if (p->attention) json_str(j, "attention", p->attention);
    if (p->document_length) {
        json_open(j, "documents", '{');
        json_int(j, "length", p->document_length);
        json_bool(j, "whole_rows", p->whole_documents);
        json_close(j, '}');
    }
    json_close(j, '}');
    json_line(j);
}

void plan_write_summary(Json *j, const Plan *p) {
    put_head(j, p);
    put_peak(j, p);
    put_prediction(j, p);
}

static void put_storage(Json *j, const Plan *p, const Storage *s) {
    json_open_line(j, NULL, '{');
    put_fields(j, IN_STORAGE, s);
    if (s->program >= 0) {
        const PlanProgram *g = &p->programs[s->program];
        json_str(j, "program", g->name);
        json_str(j, "first", plan_event_id(g, s->first));
        json_str(j, "last", plan_event_id(g, s->last));
    }
    json_close(j, '}');
}

static void put_accesses(Json *j, const char *k, const Access *x, int n) {
    json_open(j, k, '[');
    for (int i = 0; i < n; i++) {
        str_add(&j->s, i ? ",[" : "[");
        str_int(&j->s, x[i].storage);
        str_add(&j->s, ",");
        str_int(&j->s, x[i].offset);
        str_add(&j->s, ",");
        str_int(&j->s, x[i].size);
        str_add(&j->s, "]");
    }
    json_close(j, ']');
}

static void put_event(Json *j, const Plan *p, const PlanProgram *g, const Event *e) {
    json_open_line(j, NULL, '{');
    json_str(j, "id", e->id);
    put_fields(j, IN_EVENT, e);
    if (e->src.file) {
        json_key(j, "source");
        str_add(&j->s, "\"");
        json_escaped(j, e->src.file);
        str_add(&j->s, ":");
        str_int(&j->s, e->src.line);
        str_add(&j->s, "\"");
        j->comma = true;
    }
    if (e->unit >= 0) json_int(j, "unit", e->unit);
    if (e->comm >= 0) json_str(j, "comm", p->comms[e->comm].name);
    if (e->update) json_bool(j, "update", true);
    json_open(j, "waits", '[');
    for (int i = 0; i < e->nwaits; i++) json_str(j, NULL, g->events[e->waits[i]].id);
    json_close(j, ']');
    put_accesses(j, "reads", e->reads, e->nreads);
    put_accesses(j, "writes", e->writes, e->nwrites);
    put_fields(j, IN_COST, e);
    json_close(j, '}');
}

static void put_program(Json *j, const Plan *p, const PlanProgram *g) {
    bool used[N_STREAMS] = {false};
    for (int e = 0; e < g->n; e++) used[g->events[e].stream] = true;
    json_open_line(j, NULL, '{');
    json_str(j, "name", g->name);
    json_open(j, "streams", '[');
    for (int s = 0; s < N_STREAMS; s++)
        if (used[s]) json_str(j, NULL, stream_name((Stream)s));
    json_close(j, ']');
    put_fields(j, IN_PROGRAM, g);
    json_str(j, "peak_event", plan_event_id(g, g->peak_event));
    json_open(j, "events", '[');
    for (int e = 0; e < g->n; e++) put_event(j, p, g, &g->events[e]);
    json_close(j, ']');
    json_close(j, '}');
}

void plan_write_unused(Json *j, const Plan *p) {
    json_open(j, "unused", '{');
    for (Unused k = 0; k < N_UNUSED; k++) {
        json_open(j, unused_keys[k], '[');
        for (int i = 0; i < p->unused[k].n; i++) json_str(j, NULL, p->unused[k].at[i]);
        json_close(j, ']');
    }
    json_close(j, '}');
    json_line(j);
}

void plan_write_json(FILE *f, const Plan *p) {
    Json j = {.f = f, .s = {.arena = p->arena}};
    json_start(&j, "shardc-plan", PLAN_VERSION);
    plan_write_summary(&j, p);
    if (p->unused[0].n || p->unused[1].n || p->unused[2].n) plan_write_unused(&j, p);
    json_open(&j, "units", '[');
    for (int i = 0; i < p->nunits; i++) {
        json_line(&j);
        put_object(&j, NULL, IN_UNIT, &p->units[i]);
    }
    json_close(&j, ']');
    json_open_line(&j, "storages", '[');
    for (int i = 0; i < p->nstorages; i++) put_storage(&j, p, &p->storages[i]);
    json_close(&j, ']');
    json_open_line(&j, "programs", '[');
    for (int i = 0; i < p->nprograms; i++) put_program(&j, p, &p->programs[i]);
    json_close(&j, ']');
    json_end(&j);
}
