/* From what stands on the command line to a plan, and where reports go.
 * Relies on: front end, pipeline, devices, report (plan_read).
 * Relied on by: every command but data. */
#include "../devices/device.h"
#include "../frontend/frontend.h"
#include "../ir/policy.h"
#include "../ir/training.h"
#include "../pipeline.h"
#include "../report/report.h"
#include "cli.h"
#include "number.h"

#include <errno.h>
#include <stdlib.h>

bool cli_is_model(const char *path) {
    size_t n = strlen(path);
    return n > 4 && !strcmp(path + n - 4, ".lua");
}

const char *cli_model_option(const Options *o) {
    return o->device            ? "--device"
           : o->nodes           ? "--nodes"
           : o->document_length ? "--document-length"
           : o->set.n           ? "--set"
           : o->policies.n      ? "--policy"
           : o->target          ? "--target"
           : o->arch            ? "--arch"
           : o->dump_after      ? "--dump-after"
           : o->redzone         ? "--redzone"
           : o->limit.n         ? "--limit"
           : o->budget          ? "--budget"
           : o->keep.n          ? "--keep"
           : o->explain         ? "--explain"
                                : NULL;
}

void cli_refuse_model_options(const Options *o, const char *input) {
    const char *given = o->world ? "--world" : cli_model_option(o);
    if (given)
        fail_usage("%s says how to compile a model, and %s is compiled already: give the model's .lua file", given,
                   input);
}

/* As few as the device's profile allows, unless given. Ranks of a CPU share their machine: any number may. */
static int nodes_of(const Options *o, const Device *d, int world) {
    int least = 1, most = d->ranks_per_node ? d->ranks_per_node : world;
    while (least < world && (world % least || world / least > most)) least++;
    if (!o->nodes) return least;
    if (world % o->nodes)
        fail_usage("--nodes %d does not divide --world %d: every node holds equally many ranks", o->nodes, world);
    if (o->nodes < least && strcmp(d->target, "cpu"))
        fail_usage("--nodes %d --world %d: %d ranks a node, where %s has at most %d; give --nodes %d "
                   "or leave it out",
                   o->nodes, world, world / o->nodes, d->name, d->ranks_per_node, least);
    return o->nodes;
}

/* The one rule of all commands: a device implies its target; --target cuda alone plans for the GPU that this compiler
 * knows best. Beside a GPU's device --target cpu makes its twin: the GPU's schedule, executed by the CPU. */
const char *cli_device_name(const Options *o) {
    return o->device ? o->device : o->target && !strcmp(o->target, "cuda") ? "h200" : "cpu";
}

static const char *target_of(const Options *o, const Device *d) {
    const char *target = o->target ? o->target : d->target;
    bool cuda = !strcmp(target, "cuda");
    const char *option = o->target ? "--target" : "--device", *given = o->target ? o->target : o->device;
    if (cuda && strcmp(d->target, "cuda"))
        fail_usage("--target cuda --device %s: that device is no GPU; give --device h200, another GPU or none",
                   o->device);
    if (cuda && o->variant && !strcmp(o->variant, "portable"))
        fail_usage("--portable %s %s: --portable is for the cpu target; programs for GPUs run on any processor with "
                   "AVX2 as they are",
                   option, given);
    if (cuda && o->variant && *o->variant)
        fail_usage("--variant %s %s %s: that variant is one of the cpu target", o->variant, option, given);
    if (o->arch && !cuda)
        fail_usage("--arch %s says what GPU code is compiled for: give --target cuda or a GPU's --device too", o->arch);
    return target;
}

/* As PyTorch leaves what fully_shard never saw; where memory is the question, that is worth a line. */
static void tell_unsharded(const Graph *g) {
    int64_t whole = 0, all = 0;
    const char *first = NULL;
    for (int i = 0; g->world > 1 && i < g->params.n; i++) {
        const Param *p = g->params.at[i];
        if (p->is_buffer) continue;
        all += value_numel(p->value);
        if (p->unit->module->policy || p->ignored) continue;
        whole += value_numel(p->value);
        if (!first) first = p->path;
    }
    if (whole && whole == all)
        remark(g->root->made,
               "no module is given to nn.fully_shard: each of the %d ranks holds the whole model, as in DDP; write "
               "nn.fully_shard(model), or where that is meant nn.fully_shard(model, { mesh = nn.mesh { shard = 1 } })",
               g->world);
    else if (whole)
        remark(g->root->made,
               "%lld of %lld parameters (%s, ...) are of no module given to nn.fully_shard: each of the %d ranks holds "
               "all of them; to shard them too write nn.fully_shard(model), to keep them whole nn.fully_shard(model, { "
               "mesh = nn.mesh { shard = 1 } })",
               (long long)whole, (long long)all, first, g->world);
}

/* As FSDP2 adds gradients up, and asked for; but the loss of what does not fit 16 bits cannot be seen in a run. */
static void tell_narrow_sums(const Graph *g) {
    const Unit *first = NULL;
    int more = -1;
    for (int i = 0; g->training->accumulate > 1 && i < g->units.n; i++) {
        const Unit *u = g->units.at[i];
        if (!u->numel || dtype_size(u->sum) > 2) continue;
        if (!first) first = u;
        more++;
    }
    if (!first) return;
    remark(setting_source(&first->policy->settings, "mp_policy", first->policy->src),
           "%d microbatches are added up in %s, as grad_dtype and reduce_dtype say (unit %s%s): a sum of equal "
           "gradients stops growing at %d of them; leave grad_dtype out to add them up in fp32",
           g->training->accumulate, dtype_name(first->sum), first->name,
           more ? arena_printf(g->arena, " and %d more", more) : "", first->sum == BF16 ? 256 : 2048);
}

const Device *cli_device(Arena *a, const Options *o) {
    return device_load(a, cli_device_name(o));
}

Plan *cli_compile(Arena *a, const Options *o, const char *input, const char *entries, bool estimate) {
    const Device *d = cli_device(a, o);
    const char *target = target_of(o, d);
    int world = o->world ? o->world : 1;
    FrontendOptions f = {.model_file = input,
                         .policies = o->policies.at,
                         .npolicies = o->policies.n,
                         .planned = *entries ? entries : NULL,
                         .set = o->set.at,
                         .nset = o->set.n,
                         .world = world,
                         .nodes = nodes_of(o, d, world)};
    PipelineOptions p = {.redzone = o->redzone,
                         .target = target,
                         .arch = o->arch,
                         .document_length = o->document_length,
                         .estimate = estimate};
    if (!estimate) p.dump_after = o->dump_after;
    p.explain = o->explain && !estimate;
    p.wide = o->variant && !strcmp(o->variant, "fp64");
    p.quick = !o->dump_after && !getenv("SHARDC_CHECK");
    remark_enable(!estimate && !o->quiet);
    Graph *g = frontend_load(a, &f);
    if (o->one_microbatch) g->training->accumulate = 1;
    pipeline_lower(g, d, &p);
    tell_unsharded(g);
    tell_narrow_sums(g);
    remark_enable(!o->quiet);
    return pipeline_plan(g, d, &p);
}

void cli_check_program(const Plan *p, const char *name) {
    const char **names = NEW_ARRAY(p->arena, const char *, p->nprograms + 1);
    Str known = {.arena = p->arena};
    for (int i = 0; i < p->nprograms; i++) {
        names[i] = p->programs[i].name;
        if (!strcmp(name, names[i])) return;
        str_addf(&known, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = str_nearest(name, names, p->nprograms);
    fail_usage("--program %s: this plan has %s%s%s%s", name, known.n ? known.s : "no program", near ? "; is it " : "",
               near ? near : "", near ? "?" : "");
}

OutFile cli_output(Arena *a, const Options *o) {
    return o->out ? out_open(a, o->out) : (OutFile){.f = stdout};
}

void cli_printed(void) {
    errno = 0;
    if (fflush(stdout) || ferror(stdout)) fail(NOWHERE, "cannot write the report: %s", strerror(errno ? errno : EIO));
}

void cli_output_done(const Options *o, OutFile *f) {
    if (o->out)
        out_commit(f);
    else
        cli_printed();
}

bool cli_bytes(const char *text, int64_t *out) {
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {{"", 1},      {"B", 1},         {"KB", 1e3},      {"MB", 1e6},      {"GB", 1e9},
                 {"TB", 1e12}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", (double)(1ull << 40)}};
    char number[64];
    const char *unit = text + strspn(text, "0123456789.eE+-");
    double x;
    snprintf(number, sizeof number, "%.*s", (int)(unit - text), text);
    if (unit - text >= (int)sizeof number || !sc_read_number(number, &x)) return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(unit, units[i].unit)) continue;
        double bytes = x * units[i].bytes;
        if (!(bytes >= 1 && bytes < 1e18)) return false;
        *out = (int64_t)bytes;
        return true;
    }
    return false;
}

/* As a shell reads it back as one word. */
static void add_word(Str *s, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=:,+@%-";
    str_add(s, " ");
    if (*word && !word[strspn(word, plain)]) {
        str_add(s, word);
        return;
    }
    str_add(s, "'");
    for (; *word; word++)
        if (*word == '\'')
            str_add(s, "'\\''");
        else
            str_bytes(s, word, 1);
    str_add(s, "'");
}

static void add_option(Str *s, const char *name, const char *value) {
    if (!value) return;
    str_add(s, " --");
    str_add(s, name);
    add_word(s, value);
}

const char *cli_again(Arena *a, const Options *o, const char *command) {
    Str s = {.arena = a};
    str_addf(&s, "shardc %s", command);
    add_word(&s, o->inputs.at[0]);
    for (int i = 0; i < o->set.n; i++) add_option(&s, "set", o->set.at[i]);
    if (o->world) str_addf(&s, " --world %d", o->world);
    if (o->nodes) str_addf(&s, " --nodes %d", o->nodes);
    if (o->document_length) str_addf(&s, " --document-length %d", o->document_length);
    add_option(&s, "device", o->device);
    for (int i = 0; i < o->policies.n; i++) add_option(&s, "policy", o->policies.at[i]);
    add_option(&s, "target", o->target);
    add_option(&s, "arch", o->arch);
    for (int i = 0; i < o->limit.n; i++) add_option(&s, "limit", o->limit.at[i]);
    for (int i = 0; i < o->keep.n; i++) add_option(&s, "keep", o->keep.at[i]);
    if (o->budget) str_addf(&s, " --budget %lld", (long long)o->budget);
    return s.s;
}

bool cli_as_csv(const Options *o) {
    return o->format && !strcmp(o->format, "csv");
}

bool cli_as_json(const Options *o) {
    return o->format && !strcmp(o->format, "json");
}
