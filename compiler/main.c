/* The command line of shardc: which command, which options, and help that teaches. The commands are in cli/.
 * Relies on: cli/, glibc's argp.
 * Relied on by: people. */
#include "cli/cli.h"
#include "frontend/frontend.h"
#include "sandbox/sandbox.h"

#include <argp.h>
#include <signal.h>
#include <stdlib.h>

enum {
    KEY_TARGET = 256,
    KEY_DEVICE,
    KEY_WORLD,
    KEY_NODES,
    KEY_SET,
    KEY_POLICY,
    KEY_FORMAT,
    KEY_DUMP,
    KEY_REDZONE,
    KEY_VARIANT,
    KEY_PROGRAM,
    KEY_MODULE,
    KEY_STREAM,
    KEY_COLUMNS,
    KEY_BATCH,
    KEY_SEPARATOR,
    KEY_ARCH,
    KEY_TABLE,
    KEY_TASKS,
    KEY_SOURCES,
    KEY_PORTABLE,
    KEY_DELAY,
    KEY_AT,
    KEY_BY,
    KEY_FORWARD,
    KEY_STEP,
    KEY_EXPOSED,
    KEY_LIMIT,
    KEY_CAPACITY,
    KEY_EFFORT,
    KEY_USAGE
};

#define HELP                                                                                                           \
    {"help", 'h', 0, 0, "Show this", 9}, {                                                                             \
        "usage", KEY_USAGE, 0, OPTION_HIDDEN, 0, 9                                                                     \
    }
#define MODEL                                                                                                          \
    {"world", KEY_WORLD, "N", 0, "Ranks in all; 1 unless given", 1},                                                   \
        {"nodes", KEY_NODES, "M", 0, "Machines that the ranks stand on; as few as the device allows unless given", 1}, \
        {"device",                                                                                                     \
         KEY_DEVICE,                                                                                                   \
         "NAME",                                                                                                       \
         0,                                                                                                            \
         "Device to plan for, and its target: cpu (unless given), h200, h100, a100, b200, l40s, rtx4090, or a "        \
         "profile's .lua file",                                                                                        \
         1},                                                                                                           \
        {"set", KEY_SET, "KEY=VALUE", 0, "Value of one of the model's nn.options; may be repeated", 1},                \
        {"policy",                                                                                                     \
         KEY_POLICY,                                                                                                   \
         "FILE",                                                                                                       \
         0,                                                                                                            \
         "Policies by module path; they override the model's options one by one, and the last match wins",             \
         1},                                                                                                           \
        {"target",                                                                                                     \
         KEY_TARGET,                                                                                                   \
         "cpu|cuda",                                                                                                   \
         0,                                                                                                            \
         "What programs are written for; the device's unless given. cuda alone is for h200; cpu beside a "             \
         "GPU's device runs that GPU's schedule on the CPU",                                                           \
         1},                                                                                                           \
        {"arch", KEY_ARCH, "sm_NN", 0, "GPU architecture to compile kernels for; the device's unless given", 1},       \
        {"limit",                                                                                                      \
         KEY_LIMIT,                                                                                                    \
         "KEY=NUMBER",                                                                                                 \
         0,                                                                                                            \
         "What the model's Lua may take: time=30 (seconds of processor time), memory=1024 (MiB, traced ops "           \
         "included), "                                                                                                 \
         "print=1024 (KiB); may be repeated",                                                                          \
         2},                                                                                                           \
        {"dump-after", KEY_DUMP, "PASS", 0, "Print the program as it stands after a pass of the compiler", 2}, {       \
        "redzone", KEY_REDZONE, "BYTES", OPTION_HIDDEN, 0, 2                                                           \
    }
#define DELAY                                                                                                          \
    {                                                                                                                  \
        "delay-collectives", KEY_DELAY, "MS", 0,                                                                       \
            "Times as if every collective were held back for so long; gather=MS or reduce=MS: only gathers, only "     \
            "sums",                                                                                                    \
            2                                                                                                          \
    }
#define FORMAT                                                                                                         \
    { "format", KEY_FORMAT, "text|json", 0, "How to print; text unless given", 3 }

/* sources: flags of --sources, which `run` refuses and does not list. */
#define BUILD(sources)                                                                                                 \
    MODEL,                                                                                                             \
        {"output",                                                                                                     \
         'o',                                                                                                          \
         "PATH",                                                                                                       \
         0,                                                                                                            \
         "The binary, its sources beside it, or a folder for all; build/NAME/ unless given. Only files that a build "  \
         "wrote are replaced",                                                                                         \
         3},                                                                                                           \
        {"sources", KEY_SOURCES, 0, sources, "Write the C sources and plan.json, compile nothing", 3},                 \
        {"portable",                                                                                                   \
         KEY_PORTABLE,                                                                                                 \
         0,                                                                                                            \
         0,                                                                                                            \
         "For any processor of this kind instead of this one; slower on the CPU (needs `make libs-portable`)",         \
         3},                                                                                                           \
        {"variant", KEY_VARIANT, "NAME", OPTION_HIDDEN, 0, 3}, HELP, {                                                 \
        0                                                                                                              \
    }
static const struct argp_option build_options[] = {BUILD(0)};
static const struct argp_option run_options[] = {BUILD(OPTION_HIDDEN)};
static const struct argp_option predict_options[] = {
    MODEL,
    DELAY,
    FORMAT,
    {"output", 'o', "FILE", 0, "Write to FILE, replacing it; refused if the command reads FILE", 3},
    {"at", KEY_AT, "WHEN", 0,
     "Show what is alive then: peak (unless given), forward (the end of a step's), or an event's id", 4},
    {"by", KEY_BY, "module|unit|storage", 0, "Add a table of who holds that memory", 4},
    HELP,
    {0},
};
static const struct argp_option inspect_options[] = {
    MODEL,
    DELAY,
    FORMAT,
    {"output", 'o', "FILE", 0, "Write to FILE, replacing it; refused if the command reads FILE", 3},
    {"program", KEY_PROGRAM, "NAME", 0, "Only this program: micro, eval, ...", 4},
    {"module", KEY_MODULE, "GLOB", 0, "Only events of these modules: 'h.3.*'", 4},
    {"stream", KEY_STREAM, "NAME", 0, "Only this stream: compute, gather, reduce, ...", 4},
    {"columns", KEY_COLUMNS, "LIST", 0,
     "What a line says beside the event's id: stream, op, phase, module, reads, writes, address, size, waits, why "
     "(the reasons of each wait), time, source; all; or default, which is all but address, why and time: "
     "'default,time'",
     4},
    HELP,
    {0},
};
static const struct argp_option verify_options[] = {
    MODEL,
    DELAY,
    FORMAT,
    {"output", 'o', "FILE", 0, "Write to FILE, replacing it; refused if the command reads FILE", 3},
    {"max-step-ms", KEY_STEP, "MS", 0, "Exit 1 where a training program takes longer, and name what holds it up", 4},
    {"max-forward-ms", KEY_FORWARD, "MS", 0, "Exit 1 where its forward takes longer, and name what holds it up", 4},
    {"max-exposed-ms", KEY_EXPOSED, "MS", 0, "Exit 1 where compute waits longer for communication, and name what for",
     4},
    {"batch", KEY_BATCH, "FILE", OPTION_HIDDEN, 0, 4},
    HELP,
    {0},
};
static const struct argp_option calibrate_options[] = {
    MODEL,
    {"output", 'o', "FILE", 0, "Write the device profile (or the list of a MODEL's kernels) to FILE", 3},
    {"table", KEY_TABLE, "FILE", 0, "Write the algorithms of matrix products to FILE", 3},
    {"tasks", KEY_TASKS, "FILE", 0, "Time the kernels of this list too, and choose algorithms for its products", 3},
    HELP,
    {0},
};
static const struct argp_option pack_options[] = {
    MODEL,
    {"capacity", KEY_CAPACITY, "BYTES", 0,
     "Exit 1 where the buffers do not fit in so many; without it, as few as can be found", 3},
    {"effort", KEY_EFFORT, "N", 0,
     "Search for N million steps at most, of which a second has about 1000; 4000 unless given", 3},
    {"output", 'o', "FILE.csv", 0, "Write the buffers with a column `offset` to FILE.csv, replacing it", 3},
    {"program", KEY_PROGRAM, "NAME", 0, "Of a model: this program; that which needs most unless given", 4},
    HELP,
    {0},
};
static const struct argp_option data_options[] = {
    {"output", 'o', "FILE", 0, "Where the tokens go; only tokens are replaced", 1},
    {"separator", KEY_SEPARATOR, "TOKEN", 0, "Put this token (0 to 65535) between files", 1},
    HELP,
    {0},
};

typedef struct {
    const char *name, *args, *doc;
    const struct argp_option *options;
    int least, most; /* inputs */
    int (*run)(Arena *a, const Options *o);
} Command;

static const Command commands[] = {
    {"build", "MODEL.lua",
     "Compile a model to a training program: C sources, plan.json and a binary in build/NAME/."
     "\vExample:\n  shardc build models/gpt2.lua --world 2 --set size=124m\n  build/gpt2/gpt2 --data train.bin --steps "
     "100",
     build_options, 1, 1, command_build},
    {"run", "MODEL.lua|BINARY [-- PROGRAM OPTIONS]",
     "Build a model and run it at once; what follows -- goes to the program."
     "\vExample:\n  shardc run models/mlp.lua --world 2 -- --data train.bin --steps 100\n  shardc run models/mlp.lua "
     "-- --help",
     run_options, 1, 1, command_run},
    {"predict", "MODEL.lua|PLAN.json|BINARY",
     "Predict memory to the byte and the time of a step, without the device. Exit 1 when it does not fit."
     "\vExample:\n  shardc predict models/llama3.lua --set size=8b --world 8 --device h200\n\n"
     "The arena is exact: the program allocates it once, at start. Library lines are what lies outside it.",
     predict_options, 1, 1, command_predict},
    {"inspect", "MODEL.lua|PLAN.json|BINARY",
     "Print the schedule, an event a line: id, stream, op, phase, module, what it reads and writes, what it waits for, "
     "the line of Lua it comes from. --columns all adds addresses, times and why it waits."
     "\vExample:\n  shardc inspect models/gpt2.lua --world 2 --program micro --module 'h.0.*'\n"
     "  shardc inspect models/gpt2.lua --world 2 --columns op,module,time\n"
     "  shardc inspect models/gpt2.lua --world 2 --columns op,waits,why\n"
     "  shardc inspect models/gpt2.lua --format json -o gpt2.plan.json",
     inspect_options, 1, 1, command_inspect},
    {"verify", "MODEL.lua|PLAN.json|BINARY",
     "Prove a schedule sound from the plan alone: reads after writes, no bytes reused while in use, one order of "
     "collectives, groups that make up the mesh, every parameter updated once, every succession of programs. Exit 1 "
     "and both events where it is not."
     "\vExample:\n  shardc verify build/gpt2/gpt2\n"
     "  shardc verify models/gpt2.lua --world 8 --device h200 --max-exposed-ms 1",
     verify_options, 0, 1, command_verify},
    {"data", "FILE... -o OUT.bin",
     "Make byte-level tokens of files, in the format of llm.c's .bin."
     "\vExample:\n  shardc data book.txt notes.txt -o train.bin\n  shardc data held-out.txt -o val.bin",
     data_options, 1, INT32_MAX, command_data},
    {"calibrate", "[MODEL.lua]",
     "Measure the GPUs of this machine: writes a device profile, and the table of matmul algorithms. With a MODEL, no "
     "GPU is needed: prints its kernels as a list for --tasks."
     "\vExample:\n  shardc calibrate models/gpt2.lua --set precision=bf16 -o gpt2.tasks\n"
     "  shardc calibrate --tasks gpt2.tasks --world 4 -o mine.lua\n"
     "  shardc predict models/gpt2.lua --device mine.lua",
     calibrate_options, 0, 1, command_calibrate},
    {"pack", "FILE.csv|MODEL.lua|PLAN.json|BINARY",
     "Find offsets for buffers whose lives are known, in as little memory as can be found, and say what is proven. "
     "FILE.csv has the columns id,lower,upper,size and, if wanted, alignment,gaps: a buffer lives from lower to just "
     "before upper, but not in its gaps (7-9 12-14@2:13: after @ the bytes that are needed in a gap). Of a model, the "
     "storages of one program are packed, with the events as time. Exit 1 when they do not fit."
     "\vExample:\n  shardc pack buffers.csv --capacity 1048576 -o packed.csv\n"
     "  shardc pack models/gpt2.lua --world 8 --device h200 -o gpt2.csv",
     pack_options, 1, 1, command_pack},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

typedef struct {
    const Command *command;
    Options o;
    VEC(const char *) inputs, set;
    Arena *arena;
} Parse;

static const char *one_of(const Parse *p, const char *option, const char *text, const char *const *names, int n) {
    Str all = {.arena = p->arena};
    for (int i = 0; i < n; i++) {
        if (!strcmp(text, names[i])) return names[i];
        str_addf(&all, "%s%s", i ? ", " : "", names[i]);
    }
    fail_usage("%s %s: one of %s is wanted", option, text, all.s);
}

static void take_set(Parse *p, const char *arg) {
    const char *equals = strchr(arg, '=');
    if (!equals || equals == arg) fail_usage("--set %s: key=value is wanted, for example --set layers=24", arg);
    push(&p->set, p->arena, arg);
}

static bool after_dashes(const struct argp_state *state) {
    return state->quoted && state->next > state->quoted;
}

static void take_input(Parse *p, char *arg, const struct argp_state *state) {
    if (!after_dashes(state)) {
        if (p->inputs.n == p->command->most && strchr(arg, '='))
            fail_usage("%s: one input is enough, %s was given already; an option of the model is set by --set %s", arg,
                       p->inputs.at[0], arg);
        if (p->inputs.n == p->command->most)
            fail_usage("%s: one input is enough, %s was given already", arg, p->inputs.at[0]);
        push(&p->inputs, p->arena, arg);
        return;
    }
    if (p->command->run != command_run && p->command->run != command_data)
        fail_usage("%s: only `shardc run` takes options for the program after --", arg);
    if (p->command->run == command_data)
        push(&p->inputs, p->arena, arg); /* a file whose name begins with - */
    else if (!p->o.nrest++)
        p->o.rest = state->argv + state->next - 1;
}

/* sm_90; "90" will do. */
static const char *take_arch(Arena *a, const char *text) {
    const char *n = strncmp(text, "sm_", 3) ? text : text + 3;
    size_t digits = strspn(n, "0123456789");
    if (digits < 2 || digits > 3 || n[digits])
        fail_usage("--arch %s: sm_90 (H100, H200), sm_80 (A100), sm_86 or sm_89 is wanted", text);
    return n == text ? arena_printf(a, "sm_%s", text) : text;
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    static const char *const targets[] = {"cpu", "cuda"}, *const formats[] = {"text", "json"},
                             *const holders[] = {"module", "unit", "storage"},
                             *const variants[] = {"asan", "tsan", "fp64"},
                             *const passes[] = {"trace",           "precision",     "qkv_fusion",      "autodiff",
                                                "epilogue_fusion", "rematerialize", "concat_in_place", "fuse",
                                                "recompute",       "shard",         "offload"};
    Parse *p = state->input;
    Options *o = &p->o;
    bool of_program = p->command->run == command_run && key == ARGP_KEY_ARG && after_dashes(state);
    if (arg && !*arg && key != KEY_VARIANT && !of_program) /* programs have arguments that may be, as --prompt '' */
        fail_usage(
            "%s: an argument is empty: is a variable of the shell not set? `shardc %s -h` explains what is wanted",
            p->command->name, p->command->name);
    switch (key) {
    case 'h': argp_state_help(state, stdout, ARGP_HELP_STD_HELP); break;
    case KEY_USAGE: argp_state_help(state, stdout, ARGP_HELP_USAGE | ARGP_HELP_EXIT_OK); break;
    case 'o': o->out = arg; break;
    case KEY_TARGET: o->target = one_of(p, "--target", arg, targets, 2); break;
    case KEY_ARCH: o->arch = take_arch(p->arena, arg); break;
    case KEY_FORMAT: o->format = one_of(p, "--format", arg, formats, 2); break;
    case KEY_VARIANT: o->variant = *arg ? one_of(p, "--variant", arg, variants, 3) : ""; break;
    case KEY_SOURCES: o->sources = true; break;
    case KEY_PORTABLE: o->variant = "portable"; break;
    case KEY_DUMP: o->dump_after = one_of(p, "--dump-after", arg, passes, 11); break;
    case KEY_DEVICE: o->device = arg; break;
    case KEY_POLICY: o->policy = arg; break;
    case KEY_PROGRAM: o->program = arg; break;
    case KEY_MODULE: o->module = arg; break;
    case KEY_STREAM: o->stream = arg; break;
    case KEY_COLUMNS: o->columns = arg; break;
    case KEY_BATCH: o->batch = arg; break;
    case KEY_TABLE: o->table = arg; break;
    case KEY_TASKS: o->tasks = arg; break;
    case KEY_AT: o->at = arg; break;
    case KEY_BY: o->by = one_of(p, "--by", arg, holders, 3); break;
    case KEY_DELAY: cli_delay(o, arg); break;
    case KEY_STEP: o->most_step_ms = cli_time("--max-step-ms", arg); break;
    case KEY_FORWARD: o->most_forward_ms = cli_time("--max-forward-ms", arg); break;
    case KEY_EXPOSED: o->most_exposed_ms = cli_time("--max-exposed-ms", arg); break;
    case KEY_SET: take_set(p, arg); break;
    case KEY_LIMIT: sandbox_limit(o->limit = arg); break;
    case KEY_WORLD: o->world = (int)cli_number("--world", arg, 1, 1 << 20); break;
    case KEY_NODES: o->nodes = (int)cli_number("--nodes", arg, 1, 1 << 20); break;
    case KEY_REDZONE: o->redzone = (int)cli_number("--redzone", arg, 0, 1 << 20); break;
    case KEY_CAPACITY: o->capacity = cli_number("--capacity", arg, 0, 1ll << 60); break;
    case KEY_EFFORT: o->effort_millions = cli_number("--effort", arg, 0, 1000000000); break;
    case KEY_SEPARATOR: o->separator = (int)cli_number("--separator", arg, 0, 65535); break;
    case ARGP_KEY_ARG: take_input(p, arg, state); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static void usage(FILE *f) {
    fputs("shardc: ahead-of-time compiler for sharded training\n\n"
          "  shardc build MODEL.lua      compile a model to a training program\n"
          "  shardc run MODEL.lua -- ... build it and train\n"
          "  shardc predict INPUT        memory to the byte and time of a step, without the device\n"
          "  shardc inspect INPUT        the schedule, an event a line\n"
          "  shardc verify INPUT         prove the schedule sound\n"
          "  shardc data FILE... -o OUT  make tokens of files\n"
          "  shardc calibrate            measure this machine's GPUs for predict\n"
          "  shardc pack FILE.csv        offsets for buffers whose lives are known\n\n"
          "INPUT is a model, a plan.json or a built binary. `shardc COMMAND -h` explains each.\n"
          "First steps:\n"
          "  shardc predict models/gpt2.lua --world 8 --device h200\n"
          "  shardc run models/mlp.lua --world 2 -- --data train.bin --steps 100\n",
          f);
}

static const Command *command_named(const char *name) {
    const char *names[N_COMMANDS];
    for (int i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i].name;
        if (!strcmp(name, names[i])) return &commands[i];
    }
    const char *near = str_nearest(name, names, N_COMMANDS);
    if (near) fail_usage("there is no command \"%s\"; is it \"%s\"? `shardc -h` lists them", name, near);
    fail_usage(
        "there is no command \"%s\": build, run, predict, inspect, verify, data, calibrate and pack are; `shardc "
        "-h` explains them",
        name);
}

static const struct argp_option *long_option(const struct argp_option *o, const char *name, size_t n) {
    for (; o->name || o->key; o++)
        if (o->name && !strncmp(o->name, name, n)) return o; /* getopt takes abbreviations */
    return NULL;
}

/* `shardc run MODEL --steps 3`: getopt would call it unrecognized, and it is an option of the program. */
static void check_run_options(const Command *c, int argc, char **argv) {
    for (int i = 2; c->run == command_run && i < argc && strcmp(argv[i], "--"); i++) {
        if (strncmp(argv[i], "--", 2)) continue;
        size_t n = strcspn(argv[i] + 2, "=");
        const struct argp_option *o = long_option(c->options, argv[i] + 2, n);
        if (!o)
            fail_usage("%.*s is no option of shardc run; options of the program stand after --: shardc run MODEL.lua "
                       "-- %s ...",
                       (int)n + 2, argv[i], argv[i]);
        if (o->arg && !argv[i][n + 2]) i++;
    }
}

int main(int argc, char **argv) {
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error of write, with a message */
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "help")) {
        usage(stdout);
        return 0;
    }
    if (!strcmp(argv[1], "--version")) {
        puts("shardc 0.1");
        return 0;
    }
    argp_err_exit_status = 2;
    setenv("ARGP_HELP_FMT", "no-dup-args-note", 0);
    Parse p = {.command = command_named(argv[1]),
               .o = {.separator = -1,
                     .capacity = -1,
                     .effort_millions = 4000,
                     .most_forward_ms = -1,
                     .most_step_ms = -1,
                     .most_exposed_ms = -1},
               .arena = arena_new()};
    check_run_options(p.command, argc, argv);
    const struct argp argp = {p.command->options, parse, p.command->args, p.command->doc, NULL, NULL, NULL};
    argv[1] = arena_printf(p.arena, "shardc %s", p.command->name);
    if (argp_parse(&argp, argc - 1, argv + 1, ARGP_NO_HELP | ARGP_IN_ORDER, NULL, &p))
        fail(NOWHERE, "out of memory for the command line; free memory and run again");
    if (p.inputs.n < p.command->least)
        fail_usage("%s wants an INPUT, %s; `shardc %s -h` explains it", p.command->name, p.command->args,
                   p.command->name);
    p.o.inputs = p.inputs.at;
    p.o.ninputs = p.inputs.n;
    p.o.set = p.set.at;
    p.o.nset = p.set.n;
    int code = p.command->run(p.arena, &p.o);
    arena_free(p.arena);
    return code;
}
