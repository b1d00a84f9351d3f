/* One table of options; each row says which commands take the option, and what becomes of its argument.
 * Relies on: command_line.h, sandbox.h (its limits).
 * Relied on by: main.c. */
#include "command_line.h"
#include "../sandbox/sandbox.h"
#include "number.h"

#include <argp.h>
#include <stdlib.h>

typedef struct {
    const Command *command;
    Options o;
    Arena *arena;
    struct argp_state *state;
    Options *before; /* diff: what was given before --vs */
} Parse;

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

static void take_amount(Parse *p, const Option *o, char *arg) {
    double x;
    if (!sc_read_number(arg, &x) || !(x > 0 && x <= 1e18))
        fail_usage("--%s %s: a number above 0 is wanted, such as 20e9", o->name, arg);
    *(double *)place(p, o) = x;
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

static void take_another(Parse *p, const Option *o, char *arg) {
    push((Strings *)place(p, o), p->arena, arg);
}

static void take_set(Parse *p, const Option *o, char *arg) {
    const char *equals = strchr(arg, '=');
    if (!equals || equals == arg) fail_usage("--set %s: key=value is wanted, for example --set layers=24", arg);
    take_another(p, o, arg);
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

static void take_curve(Parse *p, const Option *o, char *arg) {
    p->o.curve = true;
    p->o.curve_svg = arg;
}

static void take_vs(Parse *p, const Option *o, char *arg) {
    if (p->before) fail_usage("--vs stands twice: two plans are compared");
    p->before = NEW(p->arena, Options);
    *p->before = p->o;
}

static void take_limit(Parse *p, const Option *o, char *arg) {
    sandbox_limit(arg);
    take_another(p, o, arg);
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
    {DOCTOR, 0, "device", "NAME", 1,
     "Exit 1 where programs for this device cannot be built here, and say what is missing: cpu, h200, h100, a100, "
     "b200, "
     "l40s, rtx4090, or a profile's .lua file",
     .take = take_text, TO(device)},
    {COMPILE, 0, "set", "KEY=VALUE", 1, "Value of one of the model's nn.options; may be repeated", .take = take_set,
     TO(set)},
    {COMPILE, 0, "policy", "FILE", 1,
     "Policies by module path; they override the model's options one by one, and the last match wins; may be repeated",
     .take = take_another, TO(policies)},
    {COMPILE, 0, "target", "cpu|cuda", 1,
     "What programs are written for; the device's unless given. cuda alone is for h200; cpu beside a GPU's device runs "
     "that GPU's schedule on the CPU",
     .take = take_word, TO(target), WORDS("cpu", "cuda")},
    {COMPILE, 0, "arch", "sm_NN", 1, "GPU architecture to compile kernels for; the device's unless given",
     .take = take_arch},
    {COMPILE, 0, "limit", "KEY=NUMBER", 2,
     "What the model's Lua may take: time=30 (seconds of processor time), memory=1024 (MiB, traced ops included), "
     "print=1024 (KiB); may be repeated",
     .take = take_limit, TO(limit)},
    {COMPILE, 0, "dump-after", "PASS", 2, "Print the program as it stands after a pass of the compiler",
     .take = take_word, TO(dump_after),
     WORDS("trace", "precision", "qkv_fusion", "quantize", "autodiff", "epilogue_fusion", "rematerialize",
           "concat_in_place", "fuse", "recompute", "shard", "offload")},
    {COMPILE, 0, "redzone", "BYTES", 2, NULL, .take = take_number, TO(redzone), RANGE(0, 1 << 20)},
    {REPORT | DIFF, 0, "delay-collectives", "MS", 2,
     "Times as if every collective were held back for so long; gather=MS, reduce=MS or exchange=MS: only gathers, only "
     "sums, only the model's own",
     .take = take_delay},
    {DIFF, 0, "format", "text|json|html", 3,
     "How to print; text unless given. html: a page for a browser, both plans over each other, in one file",
     .take = take_word, TO(format), WORDS("text", "json", "html")},
    {VERIFY | PLAN | DOCTOR, 0, "format", "text|json", 3, "How to print; text unless given", .take = take_word,
     TO(format), WORDS("text", "json")},
    {PREDICT, 0, "format", "text|json|csv", 3, "How to print; text unless given; csv is for --sweep, --max and --best",
     .take = take_word, TO(format), WORDS("text", "json", "csv")},
    {INSPECT, 0, "format", "text|json|html|trace", 3,
     "How to print; text unless given. html: a page for a browser, of all programs, in one file. trace: the predicted "
     "times as JSON for ui.perfetto.dev or chrome://tracing",
     .take = take_word, TO(format), WORDS("text", "json", "html", "trace")},
    {RUNS, 0, "format", "text|json|html", 3,
     "How to print: html, a page for a browser in one file, unless given with -o; else text", .take = take_word,
     TO(format), WORDS("text", "json", "html")},
    {REPORT | DIFF | EXPLAIN | RUNS | DOCTOR, 'o', "output", "FILE", 3,
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
     .take = take_another, TO(keep)},
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
    {IMPORT, 'o', "output", "FILE.lua", 1, "The Lua file; the folder's name and .lua, here, unless given",
     .take = take_text, TO(out)},
    {DATA, 'o', "output", "FILE", 1,
     "Where the tokens go, or the rows of --chat (.safetensors); nothing else is replaced", .take = take_text, TO(out)},
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
    {PREDICT, 0, "tokens", "N", 4, "Add how long training on so many tokens takes, such as 20e9", .take = take_amount,
     TO(tokens)},
    {PREDICT, 0, "price", "X", 4, "With --tokens: and what it costs, at so much for a device's hour",
     .take = take_amount, TO(price)},
    {PREDICT, 0, "sweep", "KEY=VALUES", 5,
     "Predict for each value of KEY: one of the model's nn.options, world, nodes, device or budget (each point is then "
     "planned). VALUES are separated by commas; ranges are 8..64, 4..32+4 (in steps of 4), 1024..16384x2 (doubled). "
     "Repeated, all combinations. Exit 1 where none compiles",
     .take = take_another, TO(sweep)},
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
    {INSPECT, 0, "stream", "NAME", 4, "Only this stream: compute, gather, reduce, exchange, ...", .take = take_text,
     TO(stream)},
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
    {RUNS, 0, "traced", "PROGRAM=FILES", 4,
     "Add what the ops of a step took beside what was predicted: PROGRAM is the binary that ran or its plan.json, "
     "FILES "
     "what it wrote by --trace, with commas between them; may be repeated",
     .take = take_another, TO(traced)},
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
    {DATA, 0, "tokenizer", "PATH", 2,
     "Tokens of this tokenizer: a tokenizer.json of Hugging Face, or the folder that it is in. A text is ended by the "
     "tokenizer's end of text. Needs Python with the package tokenizers (that of SHARDC_PYTHON, else python3)",
     .take = take_text, TO(tokenizer)},
    {DATA, 0, "chat", NULL, 2,
     "Each line is a conversation: {\"messages\": [{\"role\", \"content\"}, ...]}, or a prompt with its answer (prompt "
     "and "
     "completion, question and answer, instruction and output). Writes rows of tokens, targets (-100 where nothing is "
     "to "
     "be predicted: all but the assistant's messages) and documents, which a model with --set data=chat reads",
     .take = take_flag, TO(chat)},
    {DATA, 0, "pairs", NULL, 2,
     "Each line has an answer that was preferred to another: chosen, rejected and, unless these begin with it, the "
     "prompt. "
     "Writes rows of ids and targets for both answers, which models/preferences.lua, and families with --set "
     "data=pairs, read",
     .take = take_flag, TO(pairs)},
    {DATA, 0, "chat-template", "FILE|none", 2,
     "The chat template (Jinja) in place of the tokenizer's; none: prompt and answer follow each other as they are",
     .take = take_text, TO(chat_template)},
    {DATA, 0, "seq", "N", 2, "Tokens of a row, the model's seq; 2048 unless given", .take = take_number, TO(seq),
     RANGE(2, 1 << 24)},
    {DATA, 0, "no-pack", NULL, 2, "A conversation a row, filled up; otherwise several share a row where they fit",
     .take = take_flag, TO(no_pack)},
    {DATA, 0, "drop-long", NULL, 2, "Leave out conversations that are longer than a row; otherwise they are cut off",
     .take = take_flag, TO(drop_long)},
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
    if (!after_dashes && !p->command->most)
        fail_usage("%s: `shardc %s` takes no input; leave it out", arg, p->command->name);
    if (!after_dashes && p->o.inputs.n == p->command->most && strchr(arg, '='))
        fail_usage("%s: one input is enough, %s was given already; an option of the model is set by --set %s", arg,
                   p->o.inputs.at[0], arg);
    if (!after_dashes && p->o.inputs.n == p->command->most)
        fail_usage("%s: %s enough, %s was given already", arg,
                   p->command->most == 1 ? "one input is" : "two inputs are", p->o.inputs.at[p->o.inputs.n - 1]);
    if (!after_dashes || p->command->bit & (DATA | RUNS)) /* a file whose name begins with - */
        push(&p->o.inputs, p->arena, arg);
    else if (p->command->bit != RUN)
        fail_usage("%s: only `shardc run` takes options for the program after --", arg);
    else if (!p->o.nrest++)
        p->o.rest = p->state->argv + p->state->next - 1;
    return 0;
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

const ManualOption *command_line_options(Arena *a, const Command *commands, int n, int *count) {
    ManualOption *o = NEW_ARRAY(a, ManualOption, *count = N_OPTIONS);
    for (int i = 0; i < N_OPTIONS; i++) {
        const Option *x = &options[i];
        o[i] = (ManualOption){x->letter, x->name, x->arg, x->doc, (const char *const *)x->words, x->optional, 0};
        for (int k = 0; k < n; k++) o[i].commands |= (unsigned)((x->commands & commands[k].bit) != 0) << k;
    }
    return o;
}

const Options *command_line_read(Arena *a, const Command *c, int argc, char **argv) {
    argp_err_exit_status = 2;
    setenv("ARGP_HELP_FMT", "no-dup-args-note", 0);
    Parse *p = NEW(a, Parse);
    *p = (Parse){.command = c,
                 .o = {.separator = -1,
                       .seq = 2048,
                       .key = "text",
                       .capacity = -1,
                       .effort_millions = 4000,
                       .most_forward_ms = -1,
                       .most_step_ms = -1,
                       .most_exposed_ms = -1},
                 .arena = a};
    if (p->command->bit == RUN) check_run_options(argc, argv);
    struct argp_option *list = NEW_ARRAY(a, struct argp_option, N_OPTIONS + 1);
    int n = 0;
    for (const Option *o = options; o < options + N_OPTIONS; o++) {
        if (!(o->commands & c->bit)) continue;
        int flags = (o->doc ? 0 : OPTION_HIDDEN) | (o->optional ? OPTION_ARG_OPTIONAL : 0);
        list[n++] = (struct argp_option){o->name, key_of(o), o->arg, flags, o->doc, o->group};
    }
    const struct argp argp = {list, parse, p->command->args, p->command->doc, NULL, NULL, NULL};
    argv[1] = arena_printf(p->arena, "shardc %s", p->command->name);
    if (argp_parse(&argp, argc - 1, argv + 1, ARGP_NO_HELP | ARGP_IN_ORDER, NULL, p))
        fail(NOWHERE, "out of memory for the command line; free memory and run again");
    if (p->o.inputs.n < p->command->least)
        fail_usage("%s wants an INPUT, %s; `shardc %s -h` explains it", p->command->name, p->command->args,
                   p->command->name);
    if (p->before) p->before->vs = &p->o;
    return p->before ? p->before : &p->o;
}
