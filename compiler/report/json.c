/* Predictions and findings as JSON.
 * Relies on: plan/plan_json.h (what a prediction shares with plan.json), live.h, verify.h.
 * Relied on by: cli/predict.c, cli/verify.c, through report.h. */
#include "../plan/live.h"
#include "../plan/plan_json.h"
#include "report.h"

static void put_holders(Json *j, const char *k, const Plan *p, int program, unsigned classes) {
    Holders h = live_holders(p, program, p->programs[program].peak_event, classes);
    json_open(j, k, '[');
    for (int i = 0; i < h.n; i++) {
        json_open(j, NULL, '{');
        json_str(j, "pattern", h.at[i].pattern);
        json_int(j, "bytes", h.at[i].bytes);
        json_int(j, "owners", h.at[i].owners);
        json_close(j, '}');
    }
    json_close(j, ']');
}

void report_predict_json(FILE *f, const Plan *p, const Advice *x) {
    Json j = {.f = f, .s = {.arena = p->arena}};
    json_start(&j, "shardc-prediction", 1);
    plan_write_summary(&j, p);
    if (x) {
        json_open(&j, "advice", '{');
        json_str(&j, "plan", x->command);
        if (x->command) {
            json_int(&j, "arena_bytes", x->arena);
            json_real(&j, "step_us", x->step_us);
        }
        if (x->least) json_int(&j, "least_arena_bytes", x->least);
        if (x->batch) json_int(&j, "largest_batch", x->largest);
        json_close(&j, '}');
        json_line(&j);
    }
    plan_write_unused(&j, p);
    json_open(&j, "programs", '[');
    for (int i = 0; i < p->nprograms; i++) {
        const PlanProgram *g = &p->programs[i];
        json_open(&j, NULL, '{');
        json_str(&j, "name", g->name);
        json_int(&j, "events", g->n);
        json_int(&j, "bytes", g->peak[ARENA_DEVICE]);
        json_int(&j, "bound", g->bound[ARENA_DEVICE]);
        json_int(&j, "host_bytes", g->peak[ARENA_HOST]);
        json_str(&j, "peak_event", plan_event_id(g, g->peak_event));
        json_real(&j, "step_us", g->step_us);
        json_real(&j, "exposed_us", g->exposed_us);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    int g = live_largest_program(p);
    if (g >= 0) {
        json_line(&j);
        put_holders(&j, "activations", p, g, CLASSES_OF_MODULES);
        json_line(&j);
        put_holders(&j, "unsharded", p, g, CLASSES_UNSHARDED);
    }
    json_end(&j);
}

static void put_findings(Json *j, const Findings *v) {
    for (int i = 0; i < v->n; i++) {
        json_open_line(j, NULL, '{');
        json_str(j, "rule", v->at[i].rule);
        json_str(j, "program", v->at[i].program);
        json_str(j, "first", v->at[i].first);
        json_str(j, "second", v->at[i].second);
        json_str(j, "text", v->at[i].text);
        json_close(j, '}');
    }
}

void report_findings_json(FILE *f, const Plan *p, const Findings *v, const Findings *late) {
    Json j = {.f = f, .s = {.arena = p->arena}};
    json_start(&j, "shardc-findings", 1);
    json_str(&j, "model", p->model);
    json_bool(&j, "sound", v->n == 0);
    json_bool(&j, "in_time", late->n == 0);
    json_open(&j, "findings", '[');
    put_findings(&j, v);
    put_findings(&j, late);
    json_close(&j, ']');
    json_open(&j, "times", '[');
    for (int g = 0; g < p->nprograms; g++) {
        if (!program_trains(&p->programs[g])) continue;
        Times t = verify_program_times(p->arena, &p->programs[g]);
        json_open_line(&j, NULL, '{');
        json_str(&j, "program", p->programs[g].name);
        json_real(&j, "forward_ms", t.forward_ms);
        json_real(&j, "step_ms", t.step_ms);
        json_real(&j, "exposed_ms", t.exposed_ms);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_end(&j);
}
