/* `shardc doctor`: what this machine has, what does not work without what it lacks, and the commands that mend it.
 * Relies on: doctor_*.c, which look; plan/lines.h, plan/json_writer.h.
 * Relied on by: main.c. */
#include "doctor.h"
#include "../base/version.h"
#include "../plan/json_writer.h"
#include "../plan/lines.h"
#include "cli.h"

/* ── text ────────────────────────────────────────────────────────────────────────────────────────────────────────── */
enum { FROM = 28 }; /* the column at which values begin */
static const char *const conditions[N_CONDITIONS] = {"ok", "check", "absent", "MISSING"};
static const char *const keys[N_CONDITIONS] = {"ok", "check", "absent", "missing"};
static const char *const group_keys[N_GROUPS] = {"machine", "cpu", "cuda"};
static const char *const titles[N_GROUPS] = {"This machine", "Programs for the CPU", "Programs for GPUs"};

static void print_text(FILE *f, const Doctor *d) {
    fprintf(f, "shardc %s\n", shardc_version);
    for (int g = 0; g < N_GROUPS; g++) {
        fprintf(f, "\n%s\n", titles[g]);
        for (int i = 0; i < d->facts.n; i++) {
            const Fact *x = &d->facts.at[i];
            if ((int)x->group != g) continue;
            lines_print(f, FROM, arena_printf(d->a, "  %-7s %s", conditions[x->condition], x->name), x->value);
            if (x->without)
                lines_print(f, FROM, x->condition == DOUBTFUL ? "          so" : "          without it", x->without);
            if (x->mend) lines_print(f, FROM, "          to mend", x->mend);
        }
    }
    fprintf(f, "\nSo\n");
    lines_print(f, FROM, "  for the CPU", d->no_cpu_build ? d->no_cpu_build : "programs can be built and run");
    lines_print(f, FROM, d->cuda ? arena_printf(d->a, "  for %s", d->device->name) : "  for GPUs",
                d->no_cuda_build ? d->no_cuda_build
                : d->gpus.n      ? "programs can be built"
                                 : "programs can be built here, and run where a GPU is");
}

/* ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────── */
static void print_json(FILE *f, const Doctor *d) {
    Json j = {.f = f, .s = {.arena = d->a}};
    json_start(&j, "shardc-doctor", 1);
    json_str(&j, "shardc", shardc_version);
    json_int(&j, "cores", d->cores);
    json_real(&j, "memory_bytes", d->memory);
    json_real(&j, "shared_memory_bytes", d->shared_memory);
    json_bool(&j, "builds_cpu", !d->no_cpu_build);
    json_str(&j, "no_cpu_build", d->no_cpu_build);
    json_str(&j, "device", d->device ? d->device->name : NULL);
    json_bool(&j, "builds_cuda", !d->no_cuda_build);
    json_str(&j, "no_cuda_build", d->no_cuda_build);
    json_open_line(&j, "gpus", '[');
    for (int i = 0; i < d->gpus.n; i++) {
        const Gpu *g = &d->gpus.at[i];
        json_open_line(&j, NULL, '{');
        json_str(&j, "name", g->name);
        json_real(&j, "memory_bytes", g->bytes);
        json_str(&j, "driver", g->driver);
        json_str(&j, "arch", g->arch);
        json_str(&j, "profile", g->profile ? g->profile->name : NULL);
        json_bool(&j, "profile_fits", g->fits);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_open_line(&j, "findings", '[');
    for (int i = 0; i < d->facts.n; i++) {
        const Fact *x = &d->facts.at[i];
        json_open_line(&j, NULL, '{');
        json_str(&j, "group", group_keys[x->group]);
        json_str(&j, "name", x->name);
        json_str(&j, "state", keys[x->condition]);
        json_str(&j, "value", x->value);
        json_str(&j, "without", x->without);
        json_str(&j, "mend", x->mend);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_end(&j);
}

/* ── the command ─────────────────────────────────────────────────────────────────────────────────────────────────── */
/* What is missing of programs for the CPU, for one line. */
static const char *first_missing(const Doctor *d) {
    for (int i = 0; i < d->facts.n; i++) {
        const Fact *f = &d->facts.at[i];
        if (f->group == GROUP_CPU && f->condition == MISSING)
            return arena_printf(d->a, "no program can be built: %s: %s", f->name, f->value);
    }
    return NULL;
}

/* Of the device that was asked for, or of the first GPU; h200 is what shardc takes for a GPU unless it is told. */
static const char *arch_of(const Doctor *d) {
    const char *arch = d->cuda ? d->device->arch : d->gpus.n ? d->gpus.at[0].arch : NULL;
    return arch ? arch : device_load(d->a, "h200")->arch;
}

int command_doctor(Arena *a, const Options *o) {
    Doctor d = {.a = a, .needed = {[GROUP_CPU] = true}};
    if (o->device) d.device = cli_device(a, o);
    d.cuda = d.device && !strcmp(d.device->target, "cuda");
    d.needed[GROUP_CUDA] = d.cuda;
    doctor_gpus(&d);
    doctor_machine(&d);
    doctor_cpu(&d);
    doctor_cuda(&d);
    d.no_cpu_build = first_missing(&d);
    if (!d.no_cpu_build) d.no_cpu_build = doctor_build(a, "cpu", NULL);
    d.no_cuda_build = doctor_build(a, "cuda", arch_of(&d));
    OutFile f = cli_output(a, o);
    if (cli_as_json(o))
        print_json(f.f, &d);
    else
        print_text(f.f, &d);
    cli_output_done(o, &f);
    return d.no_cpu_build || (d.cuda && d.no_cuda_build);
}
