/* Writes a plan as C: NAME.c (the step's text and the tables), NAME_kernels.c and NAME.plan.json, each aside and
 * renamed. Relies on: step.c, kernels.c, tables.c; plan/plan_json.h. Relied on by: cli/build.c. */
#include "emit.h"
#include "../plan/plan_json.h"
#include "text.h"
#include <sys/stat.h>

/* A file whose text has not changed keeps its time, and with it what was compiled from it. */
static void write_text(Arena *a, const char *path, const char *text) {
    struct stat st;
    size_t n = 0;
    if (!stat(path, &st) && S_ISREG(st.st_mode) && (size_t)st.st_size == strlen(text)) {
        const char *old = path_read(a, path, &n);
        if (n == strlen(text) && !memcmp(old, text, n)) return;
    }
    OutFile o = out_open(a, path);
    fputs(text, o.f);
    out_commit(&o);
}

static void put_head(const Emit *e) {
    const Plan *p = e->plan;
    const char *name = c_comment(e->a, e->name), *model = c_comment(e->a, e->g->file);
    str_addf(e->out, "/* %s: %s on %d rank%s of %s. " WRITTEN "\n", name, model, p->world, p->world == 1 ? "" : "s",
             c_comment(e->a, p->device));
    str_addf(
        e->out,
        " * One function a program, one statement an event; a program begins with its events and with the storages "
        "that it\n * touches. Addresses are bytes in the arena (%lld in all, host arena %lld).\n",
        (long long)p->arena_bytes[ARENA_DEVICE], (long long)p->arena_bytes[ARENA_HOST]);
    str_addf(
        e->out,
        " * T(dtype, address, shape) is a tensor, V a view with strides; H and VH lie in the host arena.\n"
        " * RUN(kernel, event, stream, operands and attributes by name); an attribute that is 0 is left out. "
        "FUSED(kernel, ...)\n"
        " * runs a kernel of %s_kernels. The number behind a collective's stream is its group in comms[], below. "
        "A statement\n"
        " * stands where its event is issued. Streams run their own events in order, beside each other: "
        "sc_wait(r, A, e) holds\n"
        " * back all later events of stream A until e, and with it all that e's stream ran before it, is finished.\n",
        name);
    str_addf(e->out, " * Relies on: runtime/sc.h, the kernels of the target, %s_kernels. */\n", name);
    str_add(e->out, "#include \"sc.h\"\n\n");
}

void emit(const Plan *p, const char *dir, const char *name) {
    Emit e = {.plan = p, .g = p->graph, .a = p->arena, .dir = dir, .name = name};
    const char *kernels = emit_kernels(&e);
    OutFile json = out_open(e.a, path_join(e.a, dir, name, ".plan.json"));
    plan_write_json(json.f, p);
    out_commit(&json);
    write_text(e.a, path_join(e.a, dir, name, emit_kernels_suffix(p)), kernels);
    for (int i = 0; i < e.g->files.n; i++)
        write_text(e.a, path_join(e.a, dir, name, emit_foreign_suffix(p, i)), emit_foreign(&e, i));
    OutFile out = out_open(e.a, path_join(e.a, dir, name, ".c"));
    Str text = {.arena = e.a};
    e.f = out.f;
    e.out = &text;
    put_head(&e);
    emit_step(&e);
    emit_tables(&e);
    str_write(e.out, e.f);
    out_commit(&out);
}
