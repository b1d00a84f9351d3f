/* `shardc calibrate`: measures the GPUs at hand by sc_calibrate, which knows CUDA as this compiler does not; or prints
 * the kernels of a model as the list that sc_calibrate takes (of a GPU's) and bench/times.py; or makes a profile of a
 * model's run. Relies on: input.c, report (tasks, actual), base/places.h; sc_calibrate beside shardc or in
 * $SHARDC_HOME.
 * Relied on by: main.c. */
#include "../base/places.h"
#include "../report/actual.h"
#include "../report/report.h"
#include "cli.h"

#include <errno.h>
#include <unistd.h>

static int print_tasks(Arena *a, const Options *o) {
    Options cuda = *o;
    if (o->table || o->tasks)
        fail_usage("%s: with a MODEL, calibrate lists its kernels and measures nothing; give the list to another run: "
                   "shardc calibrate --tasks FILE",
                   o->table ? "--table" : "--tasks");
    if (o->quick)
        fail_usage("--quick: with a MODEL, calibrate lists its kernels and measures nothing; leave MODEL out");
    if (!cli_is_model(o->inputs.at[0])) fail_usage("%s: a model's .lua file is wanted", o->inputs.at[0]);
    if (!cuda.target && !cuda.device) cuda.target = "cuda";
    const Plan *p = cli_plan(a, &cuda, o->inputs.at[0]);
    OutFile f = cli_output(a, o);
    report_tasks(f.f, p);
    cli_output_done(o, &f);
    return 0;
}

/* The file's name without folder and .lua, where a profile may be called so. */
static const char *profile_name(Arena *a, const char *path) {
    const char *slash = path ? strrchr(path, '/') : NULL, *file = slash ? slash + 1 : path;
    char *name = arena_strdup(a, file ? file : "calibrated");
    size_t n = strlen(name);
    if (n > 4 && !strcmp(name + n - 4, ".lua")) name[n - 4] = 0;
    return str_is_name(name) ? name : "calibrated";
}

static int profile_of_run(Arena *a, const Options *o) {
    size_t n;
    const char *file;
    if (!o->inputs.n || !cli_is_model(o->inputs.at[0]))
        fail_usage("--from-trace %s: give the MODEL.lua that ran, with the options of that run", o->from_trace);
    if (o->table || o->tasks)
        fail_usage("%s: it is of measuring GPUs, and --from-trace of a run; leave one of the two out",
                   o->table ? "--table" : "--tasks");
    const Device *d = cli_device(a, o);
    const Plan *p = cli_plan(a, o, o->inputs.at[0]);
    const Actual *x = actual_read(p, o->from_trace, NULL);
    const char *text = device_text(a, cli_device_name(o), &file, &n);
    OutFile f = cli_output(a, o);
    actual_profile(f.f, x, d, profile_name(a, o->out), text, n);
    cli_output_done(o, &f);
    return 0;
}

int command_calibrate(Arena *a, const Options *o) {
    VEC(const char *) args = {0};
    if (o->from_trace) return profile_of_run(a, o);
    if (o->inputs.n) return print_tasks(a, o);
    if (cli_model_option(o))
        fail_usage("%s says how to compile a model, and calibrate measures this machine's GPUs: give a MODEL.lua too, "
                   "whose kernels it lists, or leave it out",
                   cli_model_option(o));
    if (o->quick && (o->tasks || o->table))
        fail_usage("%s: --quick measures no kernels; leave one of the two out", o->tasks ? "--tasks" : "--table");
    if (o->tasks) input_add(o->tasks);
    if (o->out) input_keep(o->out);
    if (o->table) input_keep(o->table);
    push(&args, a, path_join(a, places_library(a, "sc_calibrate", "cuda"), "sc_calibrate", ""));
    const char *const given[] = {"-o",      o->out,   "--table", o->table,
                                 "--tasks", o->tasks, "--world", o->world ? arena_printf(a, "%d", o->world) : NULL};
    for (int i = 0; i < 8; i += 2) {
        if (!given[i + 1]) continue;
        push(&args, a, given[i]);
        push(&args, a, given[i + 1]);
    }
    if (o->quick) push(&args, a, "--quick");
    push(&args, a, NULL);
    fflush(stdout);
    execv(args.at[0], (char *const *)args.at);
    fail(NOWHERE, "cannot run %s: %s", args.at[0], strerror(errno));
}
