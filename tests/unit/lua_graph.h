/* Graphs of models written as text, lowered, and ways to look into them.
 * Relies on: Criterion; the whole compiler up to verify.
 * Relied on by: test_frontend.c, test_accumulate.c, test_shard.c, test_edit.c, test_qkv_fusion.c, test_quantize.c,
 * test_quantize_experts.c. */
#ifndef LUA_GRAPH_H
#define LUA_GRAPH_H

#include "frontend/frontend.h"
#include "pipeline.h"
#include "verify/verify.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

static inline Graph *load(const char *text, int world) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/shardc-test-model-%d.lua", (int)getpid());
    FILE *f = fopen(path, "w");
    cr_assert(f && fputs(text, f) >= 0 && !fclose(f));
    FrontendOptions o = {.model_file = path, .world = world, .nodes = 1};
    Graph *g = frontend_load(arena_new(), &o);
    remove(path);
    return g;
}

static inline Graph *lowered(const char *text, int world) { /* graph_check runs after every pass */
    Graph *g = load(text, world);
    pipeline_lower(g, device_load(g->arena, "cpu"), &(PipelineOptions){0});
    graph_check(g, "the last pass");
    return g;
}

static inline const Plan *expect_sound(Graph *g) {
    const Plan *plan = pipeline_plan(g, device_load(g->arena, "cpu"), &(PipelineOptions){0});
    const Findings *f = verify(g->arena, plan);
    for (int i = 0; i < f->n; i++) cr_expect_fail("%s: %s", f->at[i].rule, f->at[i].text);
    return plan;
}

static inline Param *param(const Graph *g, const char *path) {
    for (int i = 0; i < g->params.n; i++)
        if (!strcmp(g->params.at[i]->path, path)) return g->params.at[i];
    cr_assert_fail("no parameter %s", path);
    abort();
}

static inline int64_t numel(const Param *p) {
    int64_t n = 1;
    for (int d = 0; d < p->dims; d++) n *= p->shape[d];
    return n;
}

static inline Program *program(const Graph *g, const char *name) { /* NULL: none */
    for (int i = 0; i < g->programs.n; i++)
        if (!strcmp(g->programs.at[i]->name, name)) return g->programs.at[i];
    return NULL;
}

static inline int count(const Program *p, OpKind k, const Unit *u) { /* u NULL: of any unit */
    int n = 0;
    for (int i = 0; i < p->ops.n; i++) n += p->ops.at[i]->kind == k && (!u || p->ops.at[i]->unit == u);
    return n;
}

#endif
