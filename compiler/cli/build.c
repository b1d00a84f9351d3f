/* `shardc build` and `shardc run`: from a model to a binary, and into it.
 * Relies on: input.c, emit.
 * Relied on by: main.c. */
#include "../emit/emit.h"
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* models/gpt2.lua -> gpt2 */
static char *name_of(Arena *a, const char *model) {
    const char *slash = strrchr(model, '/'), *base = slash ? slash + 1 : model;
    return arena_printf(a, "%.*s", (int)(strlen(base) - strlen(".lua")), base);
}

static void make_folders(Arena *a, const char *path) {
    char *p = arena_strdup(a, path);
    for (char *c = p + 1;; c++) {
        if (*c && *c != '/') continue;
        char was = *c;
        *c = 0;
        struct stat st;
        if (mkdir(p, 0777) && (stat(p, &st) || !S_ISDIR(st.st_mode)))
            fail(NOWHERE, "cannot make the folder %s: %s; choose another with -o", p, strerror(errno));
        *c = was;
        if (!was) break;
    }
    if (access(path, W_OK))
        fail(NOWHERE, "cannot write into %s: %s; choose another folder with -o", path, strerror(errno));
}

/* Unless told otherwise programs are written for the CPU, also with a GPU's schedule (--device h200). */
static Options with_target(const Options *o) {
    Options t = *o;
    if (!t.target) t.target = "cpu";
    bool cuda = !strcmp(t.target, "cuda");
    if (!cuda && t.arch) fail_usage("--arch %s says what GPU code is compiled for: give --target cuda too", t.arch);
    if (cuda && t.variant && *t.variant) fail_usage("--variant %s is one of the cpu target", t.variant);
    return t;
}

static bool is_folder(const char *path) {
    struct stat st;
    return path[strlen(path) - 1] == '/' || (!stat(path, &st) && S_ISDIR(st.st_mode));
}

/* -o names the binary, its sources stand beside it; or the folder for all of it. */
static void place_of(Arena *a, const Options *o, char **folder, char **name) {
    *name = name_of(a, o->inputs[0]);
    if (o->out && !*o->out) fail_usage("-o wants the name of a binary or a folder");
    if (!o->out)
        *folder = arena_printf(a, "build/%s", *name);
    else if (is_folder(o->out))
        *folder = arena_strdup(a, o->out);
    else {
        const char *slash = strrchr(o->out, '/');
        *folder =
            slash ? arena_printf(a, "%.*s", (int)(slash - o->out) + (slash == o->out), o->out) : arena_strdup(a, ".");
        *name = arena_strdup(a, slash ? slash + 1 : o->out);
    }
}

static char *build(Arena *a, const Options *given) {
    Options options = with_target(given), *o = &options;
    const char *model = o->inputs[0];
    char *folder, *name;
    if (!is_model(model)) fail_usage("%s: a model's .lua file is wanted", model);
    place_of(a, o, &folder, &name);
    Plan *p = plan_of(a, o, model);
    make_folders(a, folder);
    emit(p, folder, name);
    if (!o->sources) emit_build(p, folder, name, o->variant ? o->variant : "");
    return arena_printf(a, "%s/%s", folder, name);
}

int command_build(Arena *a, const Options *o) {
    char *binary = build(a, o);
    printf("%s%s\n", binary, o->sources ? ".c" : "");
    return 0;
}

/* A model is built first; a binary runs as it is. */
int command_run(Arena *a, const Options *o) {
    const char *binary = o->inputs[0];
    if (o->sources) fail_usage("--sources compiles nothing that could run; use 'shardc build'");
    if (is_model(binary))
        binary = build(a, o);
    else if (access(binary, X_OK))
        fail(NOWHERE, "cannot run %s: %s", binary, strerror(errno));
    char **args = NEW_ARRAY(a, char *, o->nrest + 2);
    args[0] = (char *)binary;
    if (o->nrest) memcpy(args + 1, o->rest, sizeof *args * (size_t)o->nrest);
    const char *path = strchr(binary, '/') ? binary : arena_printf(a, "./%s", binary);
    fflush(stdout);
    execv(path, args);
    fail(NOWHERE, "cannot run %s: %s", binary, strerror(errno));
}
