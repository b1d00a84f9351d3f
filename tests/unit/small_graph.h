/* A small program to build ops into, and a process of its own for what must fail.
 * Relies on: ir/build.h, Criterion.
 * Relied on by: test_ir.c, test_check.c. */
#ifndef SMALL_GRAPH_H
#define SMALL_GRAPH_H

#include "dies.h"
#include "ir/build.h"

static Graph *g;
static Builder *b;

static void start(void) {
    g = graph_new(arena_new());
    g->root = NEW(g->arena, Module);
    *g->root = (Module){.path = "", .kind = "Model"};
    b = NEW(g->arena, Builder);
    *b = (Builder){.g = g, .p = NEW(g->arena, Program), .src = {"model.lua", 41}};
    b->p->name = "train";
    g->train = b->p;
}

#define SHAPE(...)                                                                                                     \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) {                                           \
        __VA_ARGS__                                                                                                    \
    }

static Value *val(Dtype d, int dims, const int64_t *shape) {
    return value_new(g, d, dims, shape);
}

/* `body` must end with `code` (below 0: by that signal) and say `text` on stderr. */
__attribute__((unused)) static void expect_exit(void (*body)(void), int code, const char *text) {
    char said[4096];
    int got = DIES(said, sizeof said, start(), body());
    cr_expect(got == code && strstr(said, text), "ended with %d, wanted: %s\nsaid:   %s", got, text, said);
}

#endif
