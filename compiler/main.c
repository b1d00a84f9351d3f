/* The command line of shardc: which command, which options, and help that teaches. The commands are in cli/.
 * Relies on: cli/, system.h, glibc's argp.
 * Relied on by: people. */
#include "base/version.h"
#include "cli/cli.h"
#include "cli/manual.h"
#include "frontend/frontend.h"
#include "number.h"
#include "sandbox/sandbox.h"
#include "system.h"

#include <argp.h>
#include <signal.h>
#include <stdlib.h>

/* ── commands ────────────────────────────────────────────────────────────────────────────────────────────────────── */
enum {
    BUILD = 1 << 0,
    RUN = 1 << 1,
    PREDICT = 1 << 2,
    INSPECT = 1 << 3,
    VERIFY = 1 << 4,
    DATA = 1 << 5,
    CALIBRATE = 1 << 6,
    PLAN = 1 << 7,
    PACK = 1 << 8,
    DIFF = 1 << 9,
    EXPLAIN = 1 << 10,
    RUNS = 1 << 11,
    SHELL = 1 << 12,
    MAN = 1 << 13,
    ALL = (1 << 12) - 1, /* that compile, read or write something */
    EVERY = (1 << 14) - 1,
    COMPILE = ALL & ~(DATA | RUNS),
    REPORT = PREDICT | INSPECT | VERIFY
};

typedef struct {
    unsigned bit;
    const char *name, *args, *doc;
    int least, most; /* inputs */
    int (*run)(Arena *a, const Options *o);
} Command;

static int command_completions(Arena *a, const Options *o);
static int command_man(Arena *a, const Options *o);

static const Command commands[] = {
    {BUILD, "build", "MODEL.lua",
     "Compile a model to a training program: C sources, plan.json and a binary in build/NAME/. The C compiler is "
     "gcc, or what the environment variable CC names; lld links where it is installed."
     "\vExample:\n  shardc build models/gpt2.lua --world 2 --set size=124m\n  build/gpt2/gpt2 --data train.bin --steps "
     "20000",
     1, 1, command_build},
    {RUN, "run", "MODEL.lua|BINARY [-- PROGRAM OPTIONS]",
     "Build a model and run it at once; what follows -- goes to the program."
     "\vExample:\n  shardc run models/mlp.lua --world 2 -- --data train.bin --steps 100\n  shardc run models/mlp.lua "
     "-- --help",
     1, 1, command_run},
    {PREDICT, "predict", "MODEL.lua|PLAN.json|BINARY",
     "Predict memory to the byte and the time of a step, without the device. Exit 1 when it does not fit."
     "\vExample:\n  shardc predict models/llama3.lua --set size=8b --world 8 --device h200\n"
     "  shardc predict models/llama3.lua --set size=8b --device h200 \\\n"
     "      --sweep world=8..16384x2 --svg network.svg\n\n"
     "The arena is exact: the program allocates it once, at start. Library lines are what lies outside it.",
     1, 1, command_predict},
    {PLAN, "plan", "MODEL.lua",
     "Look for what to recompute, offload, keep gathered and hold on the host, so that the predicted step is fastest "
     "while the placed arena fits. Writes the choice as a policy file. Exit 1 where nothing fits."
     "\vExample:\n  shardc plan models/llama3.lua --set size=8b --world 4 --device h200 \\\n"
     "      --budget 60GiB -o 8b.lua\n"
     "  shardc build models/llama3.lua --set size=8b --world 4 --device h200 \\\n"
     "      --policy 8b.lua\n"
     "  shardc plan models/gpt2.lua --device h200 --curve=gpt2.svg\n\n"
     "Every plan is compiled, placed and simulated before it is chosen. The result is the fastest plan found: the "
     "search "
     "does not try every policy. Its estimate of the fastest may be wrong either way; that products and attention "
     "alone "
     "take so long is certain for every plan. On the cpu target activations are not offloaded, since its arena is host "
     "memory; one rank has nothing to reshard or to prefetch.",
     1, 1, command_plan},
    {INSPECT, "inspect", "MODEL.lua|PLAN.json|BINARY",
     "Print the schedule, an event a line: id, stream, op, phase, module, what it reads and writes, what it waits for, "
     "the line of Lua it comes from. --columns all adds addresses, times and why it waits."
     " --format html makes a page of it: streams and memory over time, and who holds which bytes."
     "\vExample:\n  shardc inspect models/gpt2.lua --world 2 --program micro --module 'h.0.*'\n"
     "  shardc inspect models/gpt2.lua --world 2 --columns op,module,time\n"
     "  shardc inspect models/gpt2.lua --world 2 --columns op,waits,why\n"
     "  shardc inspect models/gpt2.lua --world 2 --format html -o gpt2.html\n"
     "  shardc inspect models/gpt2.lua --format json -o gpt2.plan.json\n"
     "  shardc inspect models/gpt2.lua --world 8 --device h200 \\\n"
     "      --format trace -o gpt2.trace.json\n"
     "  build/gpt2/gpt2 --data train.bin --steps 5 --trace run.json\n"
     "  shardc inspect build/gpt2/gpt2 --actual run.json",
     1, 1, command_inspect},
    {EXPLAIN, "explain", "MODEL.lua|PLAN.json|BINARY ID...",
     "Say of an event or a storage, by its id as inspect prints it: which pass made it and of what, its stream and its "
     "place there, what decided it, what it waits for and why, how much later it could end; of a storage who writes "
     "and "
     "reads it, why it lives so long, and what had and takes its bytes."
     "\vExample:\n  shardc explain models/gpt2.lua --world 2 e14 g1f\n"
     "  shardc explain models/gpt2.lua --world 2 --program eval e14.y\n"
     "  shardc inspect models/gpt2.lua --world 2 --explain\n\n"
     "A plan.json and a binary say neither who made an event nor what decided its place. --explain of inspect, predict "
     "and build prints what each pass changed.",
     2, INT32_MAX, command_explain},
    {VERIFY, "verify", "MODEL.lua|PLAN.json|BINARY",
     "Prove a schedule sound from the plan alone: reads after writes, no bytes reused while in use, one order of "
     "collectives, groups that make up the mesh, every parameter updated once, every succession of programs. Exit 1 "
     "and both events where it is not."
     "\vExample:\n  shardc verify build/gpt2/gpt2\n"
     "  shardc verify models/gpt2.lua --world 8 --device h200 --max-exposed-ms 1",
     0, 1, command_verify},
    {DIFF, "diff", "A [B]|A --vs [B]",
     "Say what differs between two plans: peak, step and exposed communication, by class and by module; events added, "
     "removed, moved, longer or shorter; storages that grew. A and B are models, plan.json files or binaries. Options "
     "before --vs hold for both, those after it for B alone, which is A once more unless it is given."
     "\vExample:\n  shardc diff models/gpt2.lua --world 4 --device h200 \\\n"
     "      --vs --set recompute=full\n"
     "  shardc diff before.plan.json after.plan.json --fail-if 'peak>+1%,step>+2%'\n"
     "  shardc diff before.plan.json models/gpt2.lua --world 4 --device h200\n"
     "  shardc diff models/gpt2.lua --world 4 --vs --set prefetch=2 \\\n"
     "      --format html -o diff.html\n\n"
     "Events of equal layers are one row. A row counts events; its times are sums. Exit 1 where a bound of --fail-if "
     "is "
     "missed, 0 otherwise.",
     1, 2, command_diff},
    {RUNS, "report", "LOG.jsonl...",
     "Show runs over each other, from the logs that programs write with --log: loss, validation, learning rate, speed, "
     "predicted and actual time of a step, restarts, and all that the model logs. With -o, as a page for a browser."
     "\vExample:\n  shardc report run.jsonl\n  shardc report a.jsonl b.jsonl -o runs.html\n\n"
     "A program writes the same page while it runs: --log run.jsonl --report run.html.",
     1, INT32_MAX, command_report},
    {DATA, "data", "FILE... -o OUT.bin",
     "Make byte-level tokens of files of text, in the format of llm.c's .bin. Of JSON lines (FILE.jsonl, or what "
     "begins "
     "like them) the texts are taken. Files that are no text, such as archives, are refused."
     "\vExample:\n  shardc data book.txt notes.txt -o train.bin\n  shardc data held-out.txt -o val.bin\n  shardc data "
     "books.jsonl --separator 0 -o "
     "train.bin\n  shardc data <(zcat books.jsonl.gz) -o train.bin",
     1, INT32_MAX, command_data},
    {CALIBRATE, "calibrate", "[MODEL.lua]",
     "Measure the GPUs of this machine: writes a device profile, and the table of matmul algorithms. With a MODEL, no "
     "GPU is needed: prints its kernels as a list for --tasks, or makes a profile of its run (--from-trace)."
     "\vExample:\n  shardc calibrate models/gpt2.lua --set precision=bf16 -o gpt2.tasks\n"
     "  shardc calibrate --tasks gpt2.tasks --world 4 -o mine.lua\n"
     "  shardc predict models/gpt2.lua --device mine.lua\n\n"
     "  shardc run models/gpt2.lua -- --data train.bin --steps 20 --trace run.json\n"
     "  shardc calibrate models/gpt2.lua --from-trace run.json -o mine.lua",
     0, 1, command_calibrate},
    {PACK, "pack", "FILE.csv|MODEL.lua|PLAN.json|BINARY",
     "Find offsets for buffers whose lives are known, in as little memory as can be found, and say what is proven. "
     "FILE.csv has the columns id,lower,upper,size and, if wanted, alignment,gaps: a buffer lives from lower to just "
     "before upper, but not in its gaps (7-9 12-14@2:13: after @ the bytes that are needed in a gap). Of a model, the "
     "storages of one program are packed, with the events as time. Exit 1 when they do not fit."
     "\vExample:\n  shardc pack buffers.csv --capacity 1048576 -o packed.csv\n"
     "  shardc pack models/gpt2.lua --world 8 --device h200 -o gpt2.csv",
     1, 1, command_pack},
    {SHELL, "completions", "bash|zsh|fish",
     "Print completions for a shell."
     "\vExample:\n  source <(shardc completions bash)\n  shardc completions fish > "
     "~/.config/fish/completions/shardc.fish",
     1, 1, command_completions},
    {MAN, "man", "", "Print this manual as a page for man.\vExample:\n  shardc man | man -l -", 0, 0, command_man},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

typedef struct {
    const Command *command;
    Options o;
    VEC(const char *) inputs, set, policies, keep, limit, sweep;
    Arena *arena;
    struct argp_state *state;
    Options *before; /* diff: what was given before --vs */
} Parse;

/* ── options: one table; each row says which commands take the option, and what becomes of its argument ──────────── */
typedef struct Option Option;
typedef void Take(Parse *p, const Option *o, char *arg);
struct Option {
    unsigned commands;
    char letter; /* -o */
    const char *name, *arg;
    int group;       /* -h lists options by it */
    const char *doc; /* NULL: -h does not list it */
    Take *take;
    size_t to;          /* where in Options the value goes */
    int64_t low, high;  /* of a number */
    const char **words; /* an argument is one of these */
    bool optional;      /* the argument may be left out */
};

static void *place(Parse *p, const Option *o) {
    return (char *)&p->o + o->to;
}

static void take_text(Parse *p, const Option *o, char *arg) {
    *(const char **)place(p, o) = arg;
}

static void take_flag(Parse *p, const Option *o, char *arg) {
    *(bool *)place(p, o) = true;
}

static void take_word(Parse *p, const Option *o, char *arg) {
    Str all = {.arena = p->arena};
    for (const char **word = o->words; *word; word++) {
        if (!strcmp(arg, *word)) return take_text(p, o, arg);
        str_addf(&all, "%s%s", all.n ? ", " : "", *word);
    }
    fail_usage("--%s %s: one of %s is wanted", o->name, arg, all.s);
}

static int64_t whole_number(const Option *o, const char *arg) {
    int64_t x = 0;
    if (!sc_read_whole(arg, o->low, o->high, &x))
        fail_usage("--%s %s: a whole number from %lld to %lld is wanted", o->name, arg, (long long)o->low,
                   (long long)o->high);
    return x;
}

static void take_number(Parse *p, const Option *o, char *arg) {
    *(int *)place(p, o) = (int)whole_number(o, arg);
}

static void take_large(Parse *p, const Option *o, char *arg) {
    *(int64_t *)place(p, o) = whole_number(o, arg);
}

static double milliseconds(const Option *o, const char *arg, const char *number) {
    double x;
    if (!sc_read_number(number, &x) || !(x >= 0 && x <= 1e9))
        fail_usage("--%s %s: milliseconds are wanted, a number from 0 to 1e9", o->name, arg);
    return x;
}

static void take_ms(Parse *p, const Option *o, char *arg) {
    *(double *)place(p, o) = milliseconds(o, arg, arg);
}

/* 10 · gather=10 · reduce=10 · exchange=10 */
static void take_delay(Parse *p, const Option *o, char *arg) {
    const char *equals = strchr(arg, '=');
    for (int i = 0; i < N_STREAMS; i++) {
        const char *name = stream_name((Stream)i);
        size_t n = strlen(name);
        if (!sc_stream_meets((Stream)i) || (equals && (strncmp(arg, name, n) || arg[n] != '='))) continue;
        p->o.delay_us[i] = 1e3 * milliseconds(o, arg, equals ? equals + 1 : arg);
        p->o.delayed = true;
    }
    if (!p->o.delayed) fail_usage("--%s %s: MS, gather=MS, reduce=MS or exchange=MS is wanted", o->name, arg);
}

static void take_set(Parse *p, const Option *o, char *arg) {
    const char *equals = strchr(arg, '=');
    if (!equals || equals == arg) fail_usage("--set %s: key=value is wanted, for example --set layers=24", arg);
    push(&p->set, p->arena, arg);
}

/* sm_90; "90" will do. */
static void take_arch(Parse *p, const Option *o, char *arg) {
    const char *n = strncmp(arg, "sm_", 3) ? arg : arg + 3;
    size_t digits = strspn(n, "0123456789");
    if (digits < 2 || digits > 3 || n[digits])
        fail_usage("--arch %s: sm_90 (H100, H200), sm_80 (A100), sm_86 or sm_89 is wanted", arg);
    p->o.arch = arena_printf(p->arena, "sm_%s", n);
}

/* 60GiB, 80GB, 512MiB or bytes. */
static void take_bytes(Parse *p, const Option *o, char *arg) {
    if (cli_bytes(arg, (int64_t *)place(p, o))) return;
    fail_usage("--%s %s: an amount of memory is wanted, for example 60GiB, 80GB or 512MiB", o->name, arg);
}

static void take_keep(Parse *p, const Option *o, char *arg) {
    push(&p->keep, p->arena, arg);
}

static void take_sweep(Parse *p, const Option *o, char *arg) {
    push(&p->sweep, p->arena, arg);
}

static void take_policy(Parse *p, const Option *o, char *arg) {
    push(&p->policies, p->arena, arg);
}

static void take_curve(Parse *p, const Option *o, char *arg) {
    p->o.curve = true;
    p->o.curve_svg = arg;
}

/* What growing lists hold so far, as Options has it. */
static void settle(Parse *p) {
    p->o.inputs = p->inputs.at;
    p->o.ninputs = p->inputs.n;
    p->o.keep = p->keep.at;
    p->o.nkeep = p->keep.n;
    p->o.set = p->set.at;
    p->o.nset = p->set.n;
    p->o.policies = p->policies.at;
    p->o.npolicies = p->policies.n;
    p->o.limit = p->limit.at;
    p->o.nlimit = p->limit.n;
    p->o.sweep = p->sweep.at;
    p->o.nsweep = p->sweep.n;
}

static void take_vs(Parse *p, const Option *o, char *arg) {
    if (p->before) fail_usage("--vs stands twice: two plans are compared");
    settle(p);
    p->before = NEW(p->arena, Options);
    *p->before = p->o;
}

static void take_limit(Parse *p, const Option *o, char *arg) {
    sandbox_limit(arg);
    push(&p->limit, p->arena, arg);
}

static void take_portable(Parse *p, const Option *o, char *arg) {
    p->o.variant = "portable";
}

static void take_help(Parse *p, const Option *o, char *arg) {
    argp_state_help(p->state, stdout, ARGP_HELP_STD_HELP);
}

static void take_usage(Parse *p, const Option *o, char *arg) {
    argp_state_help(p->state, stdout, ARGP_HELP_USAGE | ARGP_HELP_EXIT_OK);
}

#define TO(field) .to = offsetof(Options, field)
#define RANGE(least, most) .low = least, .high = most
#define WORDS(...)                                                                                                     \
    .words = (const char *[]) {                                                                                        \
        __VA_ARGS__, NULL                                                                                              \
    }
static const Option options[] = {
    {COMPILE, 0, "world", "N", 1, "Ranks in all; 1 unless given", .take = take_number, TO(world), RANGE(1, 1 << 20)},
    {COMPILE, 0, "nodes", "M", 1, "Machines that the ranks stand on; as few as the device allows unless given",
     .take = take_number, TO(nodes), RANGE(1, 1 << 20)},
    {COMPILE, 0, "document-length", "N", 1,
     "Tokens of a document, where attention has documents: predicted times depend on it. The model's document_length, "
     "or a whole row, unless given",
     .take = take_number, TO(document_length), RANGE(1, 1 << 30)},
    {COMPILE, 0, "device", "NAME", 1,
     "Device to plan for, and its target: cpu (unless given), h200, h100, a100, b200, l40s, rtx4090, or a profile's "
     ".lua file",
     .take = take_text, TO(device)},
    {COMPILE, 0, "set", "KEY=VALUE", 1, "Value of one of the model's nn.options; may be repeated", .take = take_set},
    {COMPILE, 0, "policy", "FILE", 1,
     "Policies by module path; they override the model's options one by one, and the last match wins; may be repeated",
     .take = take_policy},
    {COMPILE, 0, "target", "cpu|cuda", 1,
     "What programs are written for; the device's unless given. cuda alone is for h200; cpu beside a GPU's device runs "
     "that GPU's schedule on the CPU",
     .take = take_word, TO(target), WORDS("cpu", "cuda")},
    {COMPILE, 0, "arch", "sm_NN", 1, "GPU architecture to compile kernels for; the device's unless given",
     .take = take_arch},
    {COMPILE, 0, "limit", "KEY=NUMBER", 2,
     "What the model's Lua may take: time=30 (seconds of processor time), memory=1024 (MiB, traced ops included), "
     "print=1024 (KiB); may be repeated",
     .take = take_limit},
    {COMPILE, 0, "dump-after", "PASS", 2, "Print the program as it stands after a pass of the compiler",
     .take = take_word, TO(dump_after),
     WORDS("trace", "precision", "qkv_fusion", "autodiff", "epilogue_fusion", "rematerialize", "concat_in_place",
           "fuse", "recompute", "shard", "offload")},
    {COMPILE, 0, "redzone", "BYTES", 2, NULL, .take = take_number, TO(redzone), RANGE(0, 1 << 20)},
    {REPORT | DIFF, 0, "delay-collectives", "MS", 2,
     "Times as if every collective were held back for so long; gather=MS, reduce=MS or exchange=MS: only gathers, only "
     "sums, only the model's own",
     .take = take_delay},
    {DIFF, 0, "format", "text|json|html", 3,
     "How to print; text unless given. html: a page for a browser, both plans over each other, in one file",
     .take = take_word, TO(format), WORDS("text", "json", "html")},
    {VERIFY | PLAN, 0, "format", "text|json", 3, "How to print; text unless given", .take = take_word, TO(format),
     WORDS("text", "json")},
    {PREDICT, 0, "format", "text|json|csv", 3, "How to print; text unless given; csv is for --sweep, --max and --best",
     .take = take_word, TO(format), WORDS("text", "json", "csv")},
    {INSPECT, 0, "format", "text|json|html|trace", 3,
     "How to print; text unless given. html: a page for a browser, of all programs, in one file. trace: the predicted "
     "times as JSON for ui.perfetto.dev or chrome://tracing",
     .take = take_word, TO(format), WORDS("text", "json", "html", "trace")},
    {RUNS, 0, "format", "text|json|html", 3,
     "How to print: html, a page for a browser in one file, unless given with -o; else text", .take = take_word,
     TO(format), WORDS("text", "json", "html")},
    {REPORT | DIFF | EXPLAIN | RUNS, 'o', "output", "FILE", 3,
     "Write to FILE, replacing it; refused if the command reads FILE", .take = take_text, TO(out)},
    {PLAN, 'o', "output", "FILE", 3, "Write the policy file, replacing it; refused if the command reads FILE",
     .take = take_text, TO(out)},
    {PREDICT | PLAN | BUILD | RUN | DIFF, 0, "budget", "BYTES", 4,
     "Choose policies for the fastest step found whose arena has at most so many bytes: 60GiB, 80GB; for plan: what "
     "the device leaves unless given",
     .take = take_bytes, TO(budget)},
    {PREDICT | PLAN | BUILD | RUN | DIFF, 0, "keep", "CHOICE[=none]", 4,
     "Leave recompute, offload, reshard, prefetch or state as the model has it, or (=none) do nothing of it; may be "
     "repeated",
     .take = take_keep},
    {PLAN, 0, "explain", NULL, 4,
     "Print every plan that was placed, a line each: the step that was expected of it, its step, its arena, its "
     "choices",
     .take = take_flag, TO(explain)},
    {PREDICT | INSPECT | BUILD, 0, "explain", NULL, 4,
     "Print what each pass of the compiler changed in the training program: events, arithmetic, memory traffic, time",
     .take = take_flag, TO(explain)},
    {PLAN, 0, "curve", "FILE.svg", 4, "Print the fastest step over the budget, and draw it into FILE.svg if given",
     .take = take_curve, .optional = true},
    {BUILD | RUN, 'o', "output", "PATH", 3,
     "The binary, its sources beside it, or a folder for all; build/NAME/ unless given. Only files that a build wrote "
     "are replaced",
     .take = take_text, TO(out)},
    {CALIBRATE, 'o', "output", "FILE", 3, "Write the device profile (or the list of a MODEL's kernels) to FILE",
     .take = take_text, TO(out)},
    {DATA, 'o', "output", "FILE", 1, "Where the tokens go; only tokens are replaced", .take = take_text, TO(out)},
    {PACK, 0, "capacity", "BYTES", 3,
     "Exit 1 where the buffers do not fit in so many; without it, as few as can be found", .take = take_large,
     TO(capacity), RANGE(0, 1ll << 60)},
    {PACK, 0, "effort", "N", 3,
     "Search for N million steps at most, of which a second has about 1000; 4000 unless given", .take = take_large,
     TO(effort_millions), RANGE(0, 1000000000)},
    {PACK, 'o', "output", "FILE.csv", 3, "Write the buffers with a column `offset` to FILE.csv, replacing it",
     .take = take_text, TO(out)},
    {BUILD, 0, "sources", NULL, 3, "Write the C sources and plan.json, compile nothing", .take = take_flag,
     TO(sources)},
    {RUN, 0, "sources", NULL, 3, NULL, .take = take_flag, TO(sources)}, /* to say that it cannot be */
    {BUILD | RUN, 0, "portable", NULL, 3,
     "For any processor of this kind instead of this one; slower on the CPU (needs `make libs-portable`)",
     .take = take_portable},
    {BUILD | RUN, 0, "variant", "NAME", 3, NULL, .take = take_word, TO(variant), WORDS("asan", "tsan", "fp64")},
    {PREDICT, 0, "at", "WHEN", 4,
     "Show what is alive then: peak (unless given), forward (the end of a step's), or an event's id", .take = take_text,
     TO(at)},
    {PREDICT, 0, "by", "module|unit|storage", 4, "Add a table of who holds that memory", .take = take_word, TO(by),
     WORDS("module", "unit", "storage")},
    {PACK, 0, "program", "NAME", 4, "Of a model: this program; that which needs most unless given", .take = take_text,
     TO(program)},
    {PREDICT, 0, "sweep", "KEY=VALUES", 5,
     "Predict for each value of KEY: one of the model's nn.options, world, nodes, device or budget (each point is then "
     "planned). VALUES are separated by commas; ranges are 8..64, 4..32+4 (in steps of 4), 1024..16384x2 (doubled). "
     "Repeated, all combinations. Exit 1 where none compiles",
     .take = take_sweep},
    {PREDICT, 0, "svg", "FILE", 5, "Draw the sweep: tokens a second and arena over the last key that has numbers",
     .take = take_text, TO(svg)},
    {PREDICT, 0, "max", "KEY", 5,
     "Look for the largest value of a whole-numbered option, such as batch, that fits the device (or --budget) as the "
     "model is, and say which larger ones were tried. Values that do not compile are skipped. Exit 1 where none is "
     "found",
     .take = take_text, TO(max)},
    {PREDICT, 0, "best", "KEY", 5,
     "Look for the value with most tokens a second, where each is planned within the device's memory (or --budget)",
     .take = take_text, TO(best)},
    {EXPLAIN, 0, "program", "NAME", 4, "Of this program; training unless given", .take = take_text, TO(program)},
    {INSPECT, 0, "program", "NAME", 4, "Only this program: micro, eval, ...", .take = take_text, TO(program)},
    {INSPECT, 0, "module", "GLOB", 4, "Only events of these modules: 'h.3.*'", .take = take_text, TO(module)},
    {INSPECT, 0, "stream", "NAME", 4, "Only this stream: compute, gather, reduce, ...", .take = take_text, TO(stream)},
    {INSPECT, 0, "columns", "LIST", 4,
     "What a line says beside the event's id: stream, purpose, op, phase, module, reads, writes, address, size, waits, "
     "why "
     "(the reasons of each wait), time, source; all; or default, which is all but purpose, address, why and time: "
     "'default,time'",
     .take = take_text, TO(columns)},
    {INSPECT, 0, "actual", "FILES", 4,
     "Beside a run: FILES are what the program wrote by --trace, with commas between them where ranks have files of "
     "their own. Prints predicted and actual times of a step, of ops, phases, events and ranks; in the page, both. "
     "With "
     "--program NAME of that program",
     .take = take_text, TO(actual)},
    {VERIFY, 0, "max-step-ms", "MS", 4, "Exit 1 where a training program takes longer, and name what holds it up",
     .take = take_ms, TO(most_step_ms)},
    {VERIFY, 0, "max-forward-ms", "MS", 4, "Exit 1 where its forward takes longer, and name what holds it up",
     .take = take_ms, TO(most_forward_ms)},
    {VERIFY, 0, "max-exposed-ms", "MS", 4, "Exit 1 where compute waits longer for communication, and name what for",
     .take = take_ms, TO(most_exposed_ms)},
    {VERIFY, 0, "batch", "FILE", 4, NULL, .take = take_text, TO(batch)},
    {DIFF, 0, "vs", NULL, 4, "Options after this hold for B alone", .take = take_vs},
    {DIFF, 0, "fail-if", "BOUNDS", 4,
     "Exit 1 where a bound is missed: peak>+1% (B's peak is more than 1 % above A's), step>+2ms, peak>60GiB, "
     "tokens<-1%, with commas between them. Of peak, bound (its lower bound), host, library, step, exposed, tokens and "
     "mfu",
     .take = take_text, TO(fail_if)},
    {DIFF, 0, "all", NULL, 4, "Print every row, not the largest alone", .take = take_flag, TO(every)},
    {DATA, 0, "separator", "TOKEN", 1, "Put this token (0 to 65535) between files, and between texts of JSON lines",
     .take = take_number, TO(separator), RANGE(0, 65535)},
    {DATA, 0, "as", "bytes|text|jsonl", 1,
     "What the files are, unless their first bytes say it: every byte as it is, text, or JSON lines", .take = take_word,
     TO(as), WORDS("bytes", "text", "jsonl")},
    {DATA, 0, "key", "NAME", 1, "The member that holds the text in an object of JSON lines (default: text)",
     .take = take_text, TO(key)},
    {CALIBRATE, 0, "table", "FILE", 3, "Write the algorithms of matrix products to FILE", .take = take_text, TO(table)},
    {CALIBRATE, 0, "tasks", "FILE", 3, "Time the kernels of this list too, and choose algorithms for its products",
     .take = take_text, TO(tasks)},
    {CALIBRATE, 0, "quick", NULL, 3,
     "Measure for half a minute only what differs between machines of one kind: clocks at the power limit, memory, "
     "links (--world), host; kernels are those of the built-in h100, scaled",
     .take = take_flag, TO(quick)},
    {CALIBRATE, 0, "from-trace", "FILES", 3,
     "Make a profile of a run: FILES are what the program of MODEL wrote by --trace. It is that of --device (cpu "
     "unless "
     "given) with the run's times of the same kernels; give the other options as for the run",
     .take = take_text, TO(from_trace)},
    {EVERY, 'h', "help", NULL, 9, "Show this", .take = take_help},
    {EVERY, 0, "usage", NULL, 9, NULL, .take = take_usage},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static int key_of(const Option *o) {
    return o->letter ? o->letter : 256 + (int)(o - options);
}

/* The command's options, as argp wants them. */
static const struct argp_option *argp_options(Arena *a, const Command *c) {
    struct argp_option *list = NEW_ARRAY(a, struct argp_option, N_OPTIONS + 1);
    int n = 0;
    for (const Option *o = options; o < options + N_OPTIONS; o++)
        if (o->commands & c->bit) {
            int flags = (o->doc ? 0 : OPTION_HIDDEN) | (o->optional ? OPTION_ARG_OPTIONAL : 0);
            list[n++] = (struct argp_option){o->name, key_of(o), o->arg, flags, o->doc, o->group};
        }
    return list;
}

/* ── the tables, for who writes them down ────────────────────────────────────────────────────────────────────────── */
static Manual manual(Arena *a) {
    ManualCommand *c = NEW_ARRAY(a, ManualCommand, N_COMMANDS);
    ManualOption *o = NEW_ARRAY(a, ManualOption, N_OPTIONS);
    for (int i = 0; i < N_COMMANDS; i++) c[i] = (ManualCommand){commands[i].name, commands[i].args, commands[i].doc};
    for (int i = 0; i < N_OPTIONS; i++) {
        const Option *x = &options[i];
        o[i] = (ManualOption){x->letter, x->name, x->arg, x->doc, (const char *const *)x->words, x->optional, 0};
        for (int k = 0; k < N_COMMANDS; k++) o[i].commands |= (unsigned)((x->commands & commands[k].bit) != 0) << k;
    }
    return (Manual){c, N_COMMANDS, o, N_OPTIONS};
}

static int command_completions(Arena *a, const Options *o) {
    Manual m = manual(a);
    manual_completions(stdout, a, &m, o->inputs[0]);
    cli_printed();
    return 0;
}

static int command_man(Arena *a, const Options *o) {
    Manual m = manual(a);
    manual_page(stdout, a, &m);
    cli_printed();
    return 0;
}

static void take_input(Parse *p, char *arg, bool after_dashes) {
    if (!after_dashes && p->inputs.n == p->command->most && strchr(arg, '='))
        fail_usage("%s: one input is enough, %s was given already; an option of the model is set by --set %s", arg,
                   p->inputs.at[0], arg);
    if (!after_dashes && p->inputs.n == p->command->most)
        fail_usage("%s: %s enough, %s was given already", arg,
                   p->command->most == 1 ? "one input is" : "two inputs are", p->inputs.at[p->inputs.n - 1]);
    if (!after_dashes || p->command->bit & (DATA | RUNS)) /* a file whose name begins with - */
        push(&p->inputs, p->arena, arg);
    else if (p->command->bit != RUN)
        fail_usage("%s: only `shardc run` takes options for the program after --", arg);
    else if (!p->o.nrest++)
        p->o.rest = p->state->argv + p->state->next - 1;
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    Parse *p = state->input;
    bool after_dashes = key == ARGP_KEY_ARG && state->quoted && state->next > state->quoted;
    p->state = state;
    if (arg && !*arg &&
        !(after_dashes && p->command->bit == RUN)) /* programs have arguments that may be: --prompt '' */
        fail_usage(
            "%s: an argument is empty: is a variable of the shell not set? `shardc %s -h` explains what is wanted",
            p->command->name, p->command->name);
    for (const Option *o = options; o < options + N_OPTIONS; o++)
        if (o->commands & p->command->bit && key_of(o) == key) {
            o->take(p, o, arg);
            return 0;
        }
    if (key != ARGP_KEY_ARG) return ARGP_ERR_UNKNOWN;
    take_input(p, arg, after_dashes);
    return 0;
}

/* ── main ────────────────────────────────────────────────────────────────────────────────────────────────────────── */
static void usage(FILE *f) {
    fputs("shardc: ahead-of-time compiler for sharded training\n\n"
          "  shardc build MODEL.lua      compile a model to a training program\n"
          "  shardc run MODEL.lua -- ... build it and train\n"
          "  shardc predict INPUT        memory to the byte and time of a step\n"
          "  shardc plan MODEL.lua       fast policies within a budget of memory\n"
          "  shardc inspect INPUT        the schedule, an event a line\n"
          "  shardc explain INPUT ID     who made an event or a storage, and why\n"
          "  shardc verify INPUT         prove the schedule sound\n"
          "  shardc diff A B             what differs between two plans\n"
          "  shardc report LOG...        runs over each other, from their logs\n"
          "  shardc data FILE... -o OUT  make tokens of files\n"
          "  shardc calibrate            measure this machine's GPUs for predict\n"
          "  shardc pack FILE.csv        offsets for buffers whose lives are known\n"
          "  shardc completions SHELL    completions for bash, zsh or fish\n"
          "  shardc man                  this manual, for `man -l -`\n\n"
          "INPUT: a model, plan.json or built binary. `shardc COMMAND -h` explains each.\n"
          "First: shardc predict models/gpt2.lua --world 8 --device h200\n"
          "       shardc run models/mlp.lua --world 2 -- --data train.bin --steps 100\n",
          f);
}

static const Command *command_named(Arena *a, const char *name) {
    const char *names[N_COMMANDS];
    Str all = {.arena = a};
    for (int i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i].name;
        str_addf(&all, "%s%s", i == N_COMMANDS - 1 ? " and " : i ? ", " : "", names[i]);
        if (!strcmp(name, names[i])) return &commands[i];
    }
    const char *near = str_nearest(name, names, N_COMMANDS);
    if (near) fail_usage("there is no command \"%s\"; is it \"%s\"? `shardc -h` lists them", name, near);
    fail_usage("there is no command \"%s\": %s are; `shardc -h` explains them", name, all.s);
}

/* `shardc run MODEL --steps 3`: getopt would call --steps unrecognized, and it is an option of the program. */
static void check_run_options(int argc, char **argv) {
    for (int i = 2; i < argc && strcmp(argv[i], "--"); i++) {
        if (strncmp(argv[i], "--", 2)) continue;
        size_t n = strcspn(argv[i] + 2, "=");
        const Option *o = options, *end = options + N_OPTIONS;
        while (o < end && (!(o->commands & RUN) || strncmp(o->name, argv[i] + 2, n)))
            o++; /* getopt takes abbreviations */
        if (o == end)
            fail_usage("%.*s is no option of shardc run; options of the program stand after --: shardc run MODEL.lua "
                       "-- %s ...",
                       (int)n + 2, argv[i], argv[i]);
        if (o->arg && !argv[i][n + 2]) i++;
    }
}

int main(int argc, char **argv) {
    sc_hold_standard_files();
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
        printf("shardc %s\n", shardc_version);
        return 0;
    }
    argp_err_exit_status = 2;
    setenv("ARGP_HELP_FMT", "no-dup-args-note", 0);
    Arena *arena = arena_new();
    Parse p = {.command = command_named(arena, argv[1]),
               .o = {.separator = -1,
                     .key = "text",
                     .capacity = -1,
                     .effort_millions = 4000,
                     .most_forward_ms = -1,
                     .most_step_ms = -1,
                     .most_exposed_ms = -1},
               .arena = arena};
    if (p.command->bit == RUN) check_run_options(argc, argv);
    const struct argp argp = {
        argp_options(p.arena, p.command), parse, p.command->args, p.command->doc, NULL, NULL, NULL};
    argv[1] = arena_printf(p.arena, "shardc %s", p.command->name);
    if (argp_parse(&argp, argc - 1, argv + 1, ARGP_NO_HELP | ARGP_IN_ORDER, NULL, &p))
        fail(NOWHERE, "out of memory for the command line; free memory and run again");
    if (p.inputs.n < p.command->least)
        fail_usage("%s wants an INPUT, %s; `shardc %s -h` explains it", p.command->name, p.command->args,
                   p.command->name);
    settle(&p);
    if (p.before) p.before->vs = &p.o;
    int code = p.command->run(p.arena, p.before ? p.before : &p.o);
    cli_printed();
    arena_free(p.arena);
    return code;
}
