/* A small program to build ops into, and a process of its own for what must fail.
 * Relies on: ir/build.h, Criterion.
 * Relied on by: test_ir.c, test_check.c. */
#ifndef SMALL_GRAPH_H
#define SMALL_GRAPH_H

#include "ir/build.h"

#include <criterion/criterion.h>
#include <sys/wait.h>
#include <unistd.h>

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
    return new_value(g, d, dims, shape);
}

/* Runs `body` in a process of its own; it must exit with `code` and say `text` on stderr. */
static void expect_exit(void (*body)(void), int code, const char *text) {
    int fd[2], status;
    char said[4096];
    size_t n = 0;
    cr_assert(!pipe(fd));
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        dup2(fd[1], 2);
        close(fd[0]);
        start();
        body();
        _exit(99);
    }
    close(fd[1]);
    for (ssize_t got; (got = read(fd[0], said + n, sizeof said - 1 - n)) > 0;) n += (size_t)got;
    close(fd[0]);
    said[n] = 0;
    waitpid(child, &status, 0);
    if (code < 0)
        cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == -code, "status %d, said: %s", status, said);
    else
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == code, "status %d, said: %s", status, said);
    cr_expect(strstr(said, text) != NULL, "wanted: %s\nsaid:   %s", text, said);
}

#endif
