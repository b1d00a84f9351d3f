/* `shardc inspect`: the schedule, an event a line; as JSON it is the plan itself.
 * Relies on: input.c, report.
 * Relied on by: main.c. */
#include "../report/report.h"
#include "cli.h"

static void check_stream(Arena *a, const char *name) {
    Str known = {.arena = a};
    for (int s = 0; s < N_STREAMS; s++) {
        if (!strcmp(name, stream_name((Stream)s))) return;
        str_addf(&known, "%s%s", s == 0 ? "" : s + 1 == N_STREAMS ? " and " : ", ", stream_name((Stream)s));
    }
    fail_usage("--stream %s: streams are %s", name, known.s);
}

static void check_program(const Plan *p, const char *name) {
    const char **names = NEW_ARRAY(p->arena, const char *, p->nprograms + 1);
    Str known = {.arena = p->arena};
    for (int i = 0; i < p->nprograms; i++) {
        names[i] = p->programs[i].name;
        if (!strcmp(name, names[i])) return;
        str_addf(&known, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = nearest_name(name, names, p->nprograms);
    fail_usage("--program %s: this plan has %s%s%s%s", name, known.n ? known.s : "no program", near ? "; is it " : "",
               near ? near : "", near ? "?" : "");
}

int command_inspect(Arena *a, const Options *o) {
    if (as_json(o) && (o->program || o->module || o->stream))
        fail_usage("--format json writes the whole plan: leave out --program, --module and --stream");
    const Plan *p = plan_of(a, o, o->inputs[0]);
    if (o->stream) check_stream(a, o->stream);
    if (o->program) check_program(p, o->program);
    OutFile f = output(a, o);
    ReportOptions r = {.program = o->program, .module = o->module, .stream = o->stream};
    if (as_json(o))
        plan_write_json(f.f, p);
    else
        report_inspect_text(f.f, p, &r);
    output_done(o, &f);
    return 0;
}
