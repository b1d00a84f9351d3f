/* From a model file to a Graph: opens the sandbox with nn and optim, runs the file, traces what it returns.
 * Relies on: every file of this folder; lua/embed.h.
 * Relied on by: cli/input.c, the tests. */
#include "../base/places.h"
#include "../ir/training.h"
#include "../ir/unproven.h"
#include "../lua/embed.h"
#include "fe.h"
#include "visible.h"

#include <ctype.h>

static void run_library(Frontend *f, const char *name, int results) {
    size_t n;
    const char *text = embedded_text(name, &n);
    sandbox_run(f->L, text, n, arena_printf(f->arena, "=%s", name + strlen("lua/")), results);
}

static void open_library(Frontend *f, const char *name) {
    run_library(f, arena_printf(f->arena, "lua/%s.lua", name), 1);
    sandbox_provide(f->L, name);
}

/* arguments.lua, the files of nn/, nn.lua and optim.lua get the table of primitives through a global that lives only so
 * long. */
static void open_libraries(Frontend *f) {
    lua_State *L = f->L;
    lua_newtable(L);
    trace_open(L);
    pointwise_open(L);
    modules_open(L);
    params_open(L);
    options_open(L);
    policy_open(L);
    extension_open(L);
    assign_open(L);
    training_open(L);
    scaler_open(L);
    lua_setglobal(L, "prim");
    run_library(f, "lua/arguments.lua", 0);
    for (int i = 0; embedded_name(i); i++)
        if (!strncmp(embedded_name(i), "lua/nn/", strlen("lua/nn/"))) run_library(f, embedded_name(i), 0);
    open_library(f, "nn");
    open_library(f, "optim");
    lua_pushnil(L);
    lua_setglobal(L, "prim");
}

static Graph *new_graph(Arena *a, const FrontendOptions *o) {
    Graph *g = graph_new(a);
    g->file = arena_strdup(a, o->model_file);
    const char *base = basename(g->file), *dot = strrchr(base, '.');
    g->name = dot && dot > base ? arena_printf(a, "%.*s", (int)(dot - base), base) : base;
    if (!str_is_name(g->name)) fail((Source){o->model_file, 0}, "no name for a model: %s; rename the file", NAME_RULE);
    for (const char *c = g->file; *c; c++) /* it stands in every message, in plans and in comments */
        if (iscntrl((unsigned char)*c))
            fail((Source){g->file, 0}, "the path of this model holds a control character: rename its folder");
    g->world = o->world > 0 ? o->world : 1;
    g->nodes = o->nodes > 0 ? o->nodes : 1;
    return g;
}

/* Such names stand in reports, plans and logs. */
static void check_name(Source at, const char *what, const char *name) {
    const unsigned char *s = (const unsigned char *)name;
    for (size_t i = 0, n = strlen(name), k; i < n; i += k)
        if (!(k = sc_visible_character(s + i, n - i)) || s[i] < ' ')
            fail(at, "%s '%s' holds a control character, or bytes that are no UTF-8; use letters, digits and _", what,
                 name);
}

static void check_names(const Graph *g) {
    const Training *t = g->training;
    for (int i = 0; i < t->options.n; i++) {
        check_name(t->options.at[i].src, "the option", t->options.at[i].name);
        check_name(t->options.at[i].src, "the option's value", t->options.at[i].text);
    }
    for (int i = 0; i < t->policies.n; i++)
        check_name((Source){t->policies.at[i].name, 1}, "the file", t->policies.at[i].name);
    for (int i = 0; i < g->inputs.n; i++) check_name(g->inputs.at[i]->src, "the input", g->inputs.at[i]->name);
    for (int i = 2; i < t->metrics.n; i++) check_name(t->metrics.at[i].src, "the metric", t->metrics.at[i].name);
}

Graph *frontend_load(Arena *a, const FrontendOptions *o) {
    Frontend *f = NEW(a, Frontend);
    f->arena = a;
    f->options = o;
    options_check_set(f);
    f->g = new_graph(a, o);
    size_t n;
    char *text = input_read(a, NOWHERE, o->model_file, LUA_FILE_MOST, &n);
    f->L = sandbox_new(a, path_folder(a, o->model_file));
    *(Frontend **)lua_getextraspace(f->L) = f;
    sandbox_of(f->L)->fallback = (Source){f->g->file, 1};
    sandbox_of(f->L)->quiet = o->planned;
    sandbox_of(f->L)->models = places_models(a);
    open_libraries(f);
    sandbox_run(f->L, text, n, arena_printf(a, "@%s", o->model_file), 1);
    Source end = {f->g->file, 1};
    if (o->nset && !f->options_at.file) fail(end, "--set: this file has no nn.options to set");
    if (!f->training_ref)
        fail(end, "the file describes no training: it must end with `return nn.training { model = ..., ... }`");
    lua_rawgeti(f->L, LUA_REGISTRYINDEX, f->training_ref);
    if (!lua_rawequal(f->L, -1, -2))
        fail(f->training_at, "the file must return what nn.training gives: write `return nn.training { ... }`");
    lua_pop(f->L, 2);
    training_trace(f);
    check_names(f->g);
    f->g->unproven = graph_unproven(f->g, f->g->train);
    sandbox_close(f->L);
    return f->g;
}
