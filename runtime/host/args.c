/* The command line of a training program: one table of options, with the build's values as defaults.
 * Relies on: number.h, schema/optimizers.h, schedule, glibc argp.
 * Relied on by: run. */
#include "args.h"
#include "../number.h"
#include "../schema/optimizers.h"
#include "die.h"
#include "schedule.h"
#include "state.h"
#include <argp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ── the options ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* How a value is read, and what it sets in Options. */
typedef enum {
    HEADING,
    HELP,
    VERSION,
    FLAG,       /* bool: true */
    TEXT,       /* const char * */
    NAMES,      /* adds to Names; the names that follow belong there too */
    MAP,        /* adds FILE=MODEL or FROM=TO to Names */
    CHOICE,     /* int: low for the first word of `arg`, high for the second, and so on in such steps */
    WHOLE,      /* int64_t from low to high */
    BYTES,      /* int64_t: a number with the unit KB, MB, GB or TB, or KiB and so on */
    COUNT,      /* int from low to high */
    NUMBER,     /* double from low to high */
    SINGLE,     /* double from low to high that is used as fp32 */
    BELOW_ONE,  /* double from 0 that is used as fp32 */
    ABOVE_ZERO, /* double that is used as fp32 */
    BETAS,      /* beta1 and beta2 */
    DELAY       /* delay_ms of one stream or both */
} Kind;

typedef struct {
    const char *name, *arg, *doc;
    Kind kind;
    size_t at; /* in Options */
    double low, high;
    const char *needs; /* the option without which this one changes nothing: a mistake of whoever gives it alone */
    bool own;          /* ranks of a job may be started with different values: no bit of the result depends on it */
} Row;

#define AT(field) offsetof(Options, field)
#define SETS(kind_, field) .kind = kind_, .at = AT(field)
#define FROM(low_, high_) .low = low_, .high = high_
#define ANY 0x1p63   /* all that int64_t holds */
#define STEPS 0x1p48 /* with any batch there is, samples are still counted */
#define LARGEST 1e30 /* as in the model file: far from fp32's infinity */

static const Row rows[] = {
    {.doc = "Data"},
    {"data", "FILE...",
     "Token files (llm.c's and LLM.Q's .bin, .npy of integers, Megatron's .bin with its .idx, or raw uint16/uint32) or "
     "quoted patterns; or arrays of the model's inputs, of which a sample is a row of each: INPUT=FILE.npy for each "
     "input, "
     "or .npz and safetensors files that have an array of each input's name; - reads records from standard input: one "
     "record is one global microbatch, each input in declared order, raw little-endian, its first dimension the "
     "world's. With --resume, the records that the saved run has seen are skipped: feed the same stream from its start",
     SETS(NAMES, data)},
    {"records", "FILE...", "The same as --data: INPUT=FILE.npy ..., .npz or safetensors", SETS(NAMES, data)},
    {"val-data", "FILE...", "What to validate on: token files, or arrays as for --data", SETS(NAMES, val_data)},
    {"data-dtype", "uint16|uint32",
     "Tokens of files that do not say it themselves (default: taken from the file's name, if it contains uint16 or "
     "uint32)",
     SETS(CHOICE, data_width), FROM(2, 4)},
    {.doc = "Run"},
    {"steps", "N",
     "Train up to step N, counted from the start of training, not of this run (default: what the resumed run was asked "
     "for and did not reach, else the schedule's total)",
     SETS(WHOLE, steps), FROM(0, STEPS)},
    {"seed", "N", "Initial values, order of data, dropout, samples (default 1, or the resumed run's)",
     SETS(WHOLE, seed), FROM(0, ANY)},
    {"accumulate", "N", "Microbatches a step; needs a build with accumulate > 1", SETS(COUNT, accumulate),
     FROM(1, 1 << 20)},
    {"threads", "N",
     "Threads of a rank, at most as built; of a GPU's rank those that update state in host memory (default: as built, "
     "16 for a GPU, within the processors that the ranks may use)",
     SETS(COUNT, threads), FROM(1, 1 << 20), .own = true},
    {"share-gpus", NULL,
     "Several ranks on a GPU where there are fewer GPUs than ranks: to try a program, slowly. Their memory adds up; "
     "sums over ranks round in another order than on GPUs of their own",
     SETS(FLAG, debug.share_gpus)},
    {"require-cudnn", NULL,
     "On GPUs: refuse to run attention that cuDNN computes on the program's own kernels, which take 1.5 to 2.4 times "
     "as long and serve where cuDNN is missing or too old",
     SETS(FLAG, debug.require_cudnn)},
    {"libraries", NULL,
     "On GPUs: print which libraries of CUDA are found here, their versions and which are taken, and exit",
     SETS(FLAG, libraries)},
    {"eval-every", "N", "Validate every N steps and after the last (default: after the last)", SETS(WHOLE, eval_every),
     FROM(1, STEPS), .needs = "val-data"},
    {"eval-steps", "N",
     "Validate on the files' first windows alone, N times as many as a rank's microbatch has samples, whatever the "
     "number of ranks; 0: on all (default: on all)",
     SETS(WHOLE, eval_steps), FROM(0, STEPS), .needs = "val-data"},
    {"eval-only", NULL, "Validate the weights or the state that is given, and end", SETS(FLAG, eval_only),
     .needs = "val-data"},
    {"keep-best", NULL, "With --save: keep the state of the lowest val_loss, too, in DIR/best", SETS(FLAG, keep_best),
     .needs = "save"},
    {"patience", "N",
     "End, as after the last step, when N validations in a row (--eval-every) have found no lower val_loss",
     SETS(WHOLE, patience), FROM(1, STEPS), .needs = "eval-every"},
    {"time-limit", "X", "After X hours stop as for SIGTERM: finish the step, save where --save says so, exit 143",
     SETS(NUMBER, time_limit), FROM(0, 1e6)},
    {"ema", NULL, "Validate, sample and export the average of the weights, of a model that keeps one", SETS(FLAG, ema)},
    {"quiet", NULL, "Print errors, validation and samples only", SETS(FLAG, quiet), .own = true},
    {.doc = "Optimizer (defaults are the model file's; with --resume, the saved run's)"},
    {"lr", "X", "Learning rate; groups keep their ratio to it", SETS(SINGLE, lr), FROM(0, LARGEST)},
    {"warmup", "N", "Steps of linear warm-up", SETS(WHOLE, warmup), FROM(0, STEPS)},
    {"total", "N", "Length of the learning rate's schedule, where it decays", SETS(WHOLE, total), FROM(1, STEPS)},
    {"decay-steps", "N", "Steps before the schedule's end in which the learning rate falls (wsd)",
     SETS(WHOLE, decay_steps), FROM(1, STEPS)},
    {"min-ratio", "X", "Learning rate at the schedule's end, as a part of the largest", SETS(NUMBER, min_ratio),
     FROM(0, 1)},
    {"betas", "X,Y", "Decay rates of the moments, of an optimizer with betas (not of groups with another optimizer)",
     SETS(BETAS, beta1)},
    {"eps", "X", "What an optimizer with eps adds to the root of its second moment", SETS(ABOVE_ZERO, eps)},
    {"momentum", "X", "Momentum, of an optimizer that was built with one", SETS(BELOW_ONE, momentum)},
    {"weight-decay", "X", "Weight decay; groups without any keep none", SETS(SINGLE, weight_decay), FROM(0, LARGEST)},
    {"clip", "X", "Clip gradients to this global norm; 0 for none", SETS(SINGLE, clip), FROM(0, LARGEST)},
    {.doc = "Files"},
    {"save", "DIR",
     "Save the training state there after the last step, and after the step under way when SIGINT, SIGTERM or SIGHUP "
     "stops the run (a second signal stops it at once). SIGUSR1 saves and goes on",
     SETS(TEXT, save)},
    {"save-every", "N", "With --save: save every N steps too", SETS(WHOLE, save_every), FROM(1, STEPS),
     .needs = "save"},
    {"keep", "N",
     "With --save: keep the last N saved states (default 1); --resume DIR/step-00000100 takes an older one",
     SETS(WHOLE, keep), FROM(1, 1000), .needs = "save"},
    {"save-in-background", NULL,
     "With --save: copy the state into host memory and go on while the copy is written; the next save waits for it. "
     "The copy's bytes are told at the start",
     SETS(FLAG, save_in_background), .needs = "save"},
    {"resume", "DIR",
     "Go on from a saved state (any world size), with the options of the optimizer that the saved run had where none "
     "are given here; what differs from that run is told. auto: from that of --save, if it holds one (as --continue)",
     SETS(TEXT, resume)},
    {"continue", "DIR",
     "--save DIR, and --resume DIR where it holds a state; where it holds none yet the run begins, from --weights if "
     "given. One command for a job that a scheduler may start again",
     SETS(TEXT, go_on)},
    {"weights", "FILE...", "Begin from these weights: a Hugging Face folder, safetensors, or the index of several",
     SETS(NAMES, weights)},
    {"weights-map", "FILE=MODEL",
     "Read the tensors that are named FILE in the weights as the parameters MODEL; both are names, or patterns with "
     "one *: 'base.*=*' reads base.X as X. May be repeated; the first that matches a tensor applies",
     SETS(MAP, weights_map), .needs = "weights"},
    {"weights-copy", "FROM=TO",
     "The parameter TO, which the weights lack, begins as a copy of FROM, another parameter of the model: an output "
     "head that the weights tie to the embedding and the model does not. Both may be patterns with one *: "
     "'policy.*=reference.*' lets a reference begin as the policy does. May be repeated",
     SETS(MAP, weights_copy), .needs = "weights"},
    {"weights-partial", NULL,
     "Read the tensors that the weights and the model share; say which parameters stay as initialised and which "
     "tensors are not used",
     SETS(FLAG, weights_partial), .needs = "weights"},
    {"export", "FILE", "Write the weights after the last step (safetensors); replaces FILE", SETS(TEXT, export_path)},
    {"export-like", "DIR",
     "A folder of --export gets config.json and the tokenizer's files of this one (default: the folder of --weights)",
     SETS(TEXT, export_like), .needs = "export"},
    {"export-adapters", NULL,
     "Export the adapters alone, as peft reads them; without it they are added to their matrices. A folder (--export "
     "DIR/) also gets config.json and the tokenizer's files of the folder of --weights",
     SETS(FLAG, export_adapters), .needs = "export"},
    {"export-shard-size", "SIZE",
     "Export to a folder in files of at most SIZE (5GB, 500MB, 1GiB; a tensor is never cut) and an index, as "
     "save_pretrained does with max_shard_size (default: one file)",
     SETS(BYTES, shard_size), .needs = "export"},
    {"export-dtype", "fp32|bf16|fp16|loaded",
     "Element type of the exported weights, rounded to nearest; loaded: for each parameter that of --weights (default: "
     "as "
     "they are kept, which loses nothing)",
     SETS(CHOICE, export_dtype), FROM(EXPORT_FP32, EXPORT_BF16), .needs = "export"},
    {"log", "FILE",
     "Write a JSON line for every step; replaces FILE, and continues it with --resume. 'run-{rank}.jsonl': a file of "
     "each rank, with its own times",
     SETS(TEXT, log), .own = true},
    {"report", "FILE", "Write the log as a page for a browser (HTML), every few seconds and at the end; replaces FILE",
     SETS(TEXT, report), .needs = "log", .own = true},
    {.doc = "Sample"},
    {"sample", "N", "Print N sampled tokens after training", SETS(WHOLE, sample), FROM(1, 1 << 30)},
    {"prompt", "TEXT", "Begin the sample with TEXT (token ids where the sample is printed as ids)", SETS(TEXT, prompt),
     .needs = "sample"},
    {"tokenizer", "PATH",
     "Read the prompt and print the sample as text of this tokenizer: a tokenizer.json of Hugging Face, or the folder "
     "that it is in. Needs Python with the package tokenizers (that of SHARDC_PYTHON, else python3)",
     SETS(TEXT, tokenizer), .needs = "sample"},
    {"chat", NULL, "The prompt is what a user says: it goes into the chat template, and the answer is printed",
     SETS(FLAG, chat), .needs = "tokenizer"},
    {"chat-template", "FILE", "The chat template (Jinja) in place of the tokenizer's", SETS(TEXT, chat_template),
     .needs = "tokenizer"},
    {"temperature", "X", "Sampling temperature; 0 takes the likeliest token (default 1)", SETS(NUMBER, temperature),
     FROM(0, 1000), .needs = "sample"},
    {"top-k", "N", "Sample among the N likeliest tokens; 0 for all (default)", SETS(WHOLE, top_k), FROM(0, 1 << 30),
     .needs = "sample"},
    {"sample-format", "bytes|ids", "How tokens are printed (default: bytes up to a vocabulary of 512)",
     SETS(CHOICE, sample_ids), FROM(0, 1), .needs = "sample"},
    {.doc = "Looking inside (no bit of the result changes)"},
    {"dump", "PATTERN", "Write the tensors whose names match PATTERN to a file; needs --at-step and -o",
     SETS(TEXT, debug.dump_pattern)},
    {"at-step", "N", "The step of --dump, from 1", SETS(WHOLE, debug.dump_step), FROM(1, STEPS)},
    {"output", "FILE",
     "The file of --dump (safetensors); rank 1 writes x.rank1.safetensors beside x.safetensors, and so on",
     SETS(TEXT, debug.dump_path)},
    {"check-finite", NULL, "Stop at the first event that makes an infinity or NaN", SETS(FLAG, debug.check_finite)},
    {"allow-nan", NULL, "Go on when the loss is not finite", SETS(FLAG, allow_nan)},
    {"trace", "FILE", "Record the time of every event; replaces FILE", SETS(TEXT, debug.trace_path)},
    {"stall-seconds", "X",
     "After X seconds without progress, say who waits for whom and exit 3 (default 300; 0: never). Before the first "
     "step the limit is at least the environment's SHARDC_PATIENCE (default 60)",
     SETS(NUMBER, debug.stall_s), FROM(0, 1e9), .own = true},
    {"poison", NULL, "Fill bytes that are dead, or were never written, with NaNs", SETS(FLAG, debug.poison)},
    {"redzones", NULL, "Check the guards round every storage", SETS(FLAG, debug.redzones)},
    {"no-graph", NULL, "On GPUs: launch every event by itself rather than a program as one graph",
     SETS(FLAG, debug.no_graph)},
    {"delay-collectives", "MS",
     "Delay every collective by MS milliseconds; gather=MS, reduce=MS or exchange=MS: only gathers, only sums, only "
     "the model's own",
     SETS(DELAY, debug.delay_ms), FROM(0, 1e6)},
    {"virtual-clock", NULL,
     "On the CPU: count sleeps and delays instead of waiting for them; everything else takes no time. Step times and "
     "--trace are by that clock",
     SETS(FLAG, debug.virtual_clock)},
    {"interleave", "SEED", "Run events in a random legal order", SETS(WHOLE, debug.interleave), FROM(0, ANY)},
    {.doc = ""},
    {"help", NULL, "Show this", .kind = HELP},
    {"version", NULL, "Say which compiler made this program", .kind = VERSION},
};

enum { ROWS = sizeof rows / sizeof *rows, FIRST_KEY = 256 };

static int key_of(const Row *row) {
    if (row->kind == HELP) return 'h';
    return row->at == AT(debug.dump_path) ? 'o' : FIRST_KEY + (int)(row - rows);
}

/* The table as argp wants it. */
static const struct argp_option *argp_options(void) {
    static struct argp_option options[ROWS + 1];
    int group = 0;
    for (int i = 0; i < ROWS; i++) {
        const Row *r = &rows[i];
        options[i] = (struct argp_option){r->name, key_of(r), r->arg, 0, r->doc, 0};
        if (r->kind == HEADING) options[i] = (struct argp_option){.doc = r->doc, .group = *r->doc ? ++group : -1};
    }
    return options;
}

/* The row of a key; NULL: none. */
static const Row *row_of(int key) {
    for (const Row *r = rows; r < rows + ROWS; r++)
        if (r->name && key_of(r) == key) return r;
    return NULL;
}

static const Row *row_named(const char *name) {
    const Row *r = rows;
    while (!r->name || strcmp(r->name, name)) r++;
    return r;
}

typedef struct {
    const sc_build *b;
    Options o;
    Names *last; /* the list that further file names belong to */
} Parse;

_Static_assert(sizeof rows / sizeof *rows <= ARGS_ROWS, "Options has a place for each row");

static bool given(const Parse *p, const char *name) {
    return args_given(&p->o, name);
}

bool args_given(const Options *o, const char *name) {
    return o->given[row_named(name) - rows];
}

bool args_taken(const Options *o, const char *name) {
    return o->taken[row_named(name) - rows];
}

void args_take(Options *o, const char *name) {
    o->taken[row_named(name) - rows] = true;
}

/* ── values ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void add_name(Names *l, char *name) {
    l->at = realloc(l->at, (size_t)(l->n + 1) * sizeof *l->at);
    if (!l->at) die("out of memory for arguments");
    l->at[l->n++] = name;
}

static int64_t whole(struct argp_state *s, const Row *r, const char *text) {
    int64_t x = 0, high = r->high < ANY ? (int64_t)r->high : INT64_MAX;
    if (!sc_read_whole(text, (int64_t)r->low, high, &x))
        argp_error(s, "--%s wants a whole number from %.0f to %lld, not '%s'", r->name, r->low, (long long)high, text);
    return x;
}

bool args_allows(const char *name, double x) {
    const Row *r = row_named(name);
    switch (r->kind) {
    case BETAS:
    case BELOW_ONE: return x >= 0 && (float)x < 1;
    case ABOVE_ZERO: return (float)x > 0 && x <= LARGEST;
    case WHOLE:
    case COUNT: return x >= r->low && x <= r->high && x < 0x1p63 && x == floor(x);
    default: return x >= r->low && x <= r->high;
    }
}

/* BELOW_ONE: what the record holds of it as fp32 must be below 1, since Adam divides by 1 - beta^t, and momentum sums
 * up for ever. */
static double number(struct argp_state *s, const Row *r, Kind kind, const char *text) {
    double x;
    if (!sc_read_number(text, &x)) x = (double)NAN; /* within no limits */
    if (kind == BELOW_ONE && !(x >= 0 && (float)x < 1))
        argp_error(s, "--%s wants a number from 0 to below 1, not '%s'", r->name, text);
    if (kind == ABOVE_ZERO && !(x > 0 && x <= LARGEST))
        argp_error(s, "--%s wants a number above 0, at most %g, not '%s'", r->name, LARGEST, text);
    if ((kind == NUMBER || kind == SINGLE) && !(x >= r->low && x <= r->high))
        argp_error(s, "--%s wants a number from %g to %g, not '%s'", r->name, r->low, r->high, text);
    if (kind != NUMBER && !sc_fits_fp32(x))
        argp_error(s, "--%s wants %sa number from %.3g on, the least that fp32 holds in full, not '%s'", r->name,
                   kind == ABOVE_ZERO ? "" : "0 or ", SC_LEAST_FP32, text);
    return x;
}

/* "5GB", "1.5GiB": a unit of 1000 or 1024. */
static int64_t bytes(struct argp_state *s, const Row *r, const char *text) {
    static const char units[] = "KMGT";
    char *end;
    double x = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : NULL;
    bool binary = unit && !strcmp(end + 1, "iB"), decimal = unit && !strcmp(end + 1, "B");
    for (const char *u = units; unit && u <= unit; u++) x *= binary ? 1024 : 1000;
    if (end == text || (!binary && !decimal) || !(x >= 1 && x < ANY))
        argp_error(s, "--%s wants a size such as 5GB, 500MB or 1GiB, not '%s'", r->name, text);
    return (int64_t)x;
}

static void read_betas(struct argp_state *s, const Row *r, double *beta, const char *text) {
    char *first = need_text("%s", text), *comma = strchr(first, ',');
    if (!comma) argp_error(s, "--betas wants two numbers such as 0.9,0.95, not '%s'", text);
    *comma = 0;
    beta[0] = number(s, r, BELOW_ONE, first);
    beta[1] = number(s, r, BELOW_ONE, comma + 1);
    free(first);
}

/* "10", "gather=10", "reduce=10" or "exchange=10". */
static void read_delay(struct argp_state *s, const Row *r, double *ms, const char *text) {
    const char *equals = strchr(text, '=');
    static const char *const names[] = SC_STREAM_NAMES;
    double x = number(s, r, NUMBER, equals ? equals + 1 : text);
    bool some = false;
    for (int i = 0; i < SC_STREAMS; i++) {
        size_t n = strlen(names[i]);
        if (!sc_stream_meets((sc_stream)i) || (equals && (strncmp(text, names[i], n) || text[n] != '='))) continue;
        ms[i] = x;
        some = true;
    }
    if (!some) argp_error(s, "--delay-collectives wants MS, gather=MS, reduce=MS or exchange=MS, not '%s'", text);
}

static void read_map(struct argp_state *s, const Row *r, Names *maps, char *text) {
    const char *equals = strchr(text, '=');
    int stars[2] = {0, 0};
    for (const char *c = text; *c; c++) stars[equals && c > equals] += *c == '*';
    if (!equals || equals == text || !equals[1] || strchr(equals + 1, '=') || stars[0] > 1 || stars[0] != stars[1])
        argp_error(s, "--%s wants %s, two names or two patterns with one * each, not '%s'", r->name, r->arg, text);
    add_name(maps, text);
}

static void read_choice(struct argp_state *s, const Row *r, int *to, const char *text) {
    char *words = need_text("%s", r->arg), *rest = words, *said = need_text("%s", "");
    int k = 0;
    for (char *word; (word = strsep(&rest, "|")); k++) {
        if (!strcmp(text, word)) break;
        char *longer = need_text("%s%s%s", said, !k ? "" : rest ? ", " : " or ", word);
        free(said);
        said = longer;
        if (!rest) argp_error(s, "--%s wants %s, not '%s'", r->name, said, text);
    }
    free(said);
    free(words);
    *to = (int)(r->low + k * (r->high - r->low));
}

static error_t parse_option(int key, char *arg, struct argp_state *s) {
    Parse *p = s->input;
    const Row *r = row_of(key);
    if (key == ARGP_KEY_ARG) {
        if (!*arg) argp_error(s, "a file's name is empty: is a variable of the shell not set?");
        if (!p->last) argp_error(s, "'%s' belongs to no option; files follow --data, --val-data or --weights", arg);
        add_name(p->last, arg);
        return 0;
    }
    if (!r) return ARGP_ERR_UNKNOWN;
    /* An empty name is what an unset variable of the shell leaves. A prompt may be empty. */
    if (arg && !*arg && strcmp(r->name, "prompt")) argp_error(s, "--%s wants %s, not ''", r->name, r->arg);
    p->o.given[r - rows] = true;
    void *to = (char *)&p->o + r->at;
    switch (r->kind) {
    case HEADING: break;
    case HELP: argp_state_help(s, stdout, ARGP_HELP_STD_HELP); break;
    case VERSION:
        printf("%s, %s for %s: made by %s\n", p->b->name, p->b->model_file, p->b->target,
               p->b->compiler ? p->b->compiler : "shardc");
        exit(0);
    case FLAG: *(bool *)to = true; break;
    case TEXT: *(const char **)to = arg; break;
    case NAMES: add_name(p->last = to, arg); break;
    case MAP: read_map(s, r, to, arg); break;
    case CHOICE: read_choice(s, r, to, arg); break;
    case WHOLE: *(int64_t *)to = whole(s, r, arg); break;
    case BYTES: *(int64_t *)to = bytes(s, r, arg); break;
    case COUNT: *(int *)to = (int)whole(s, r, arg); break;
    case NUMBER:
    case SINGLE:
    case BELOW_ONE:
    case ABOVE_ZERO: *(double *)to = number(s, r, r->kind, arg); break;
    case BETAS: read_betas(s, r, to, arg); break;
    case DELAY: read_delay(s, r, to, arg); break;
    }
    return 0;
}

/* ── what belongs together, what the build can do ────────────────────────────────────────────────────────────────────
 */
static bool decays(const sc_build *b) {
    return schedule_decays(b->schedule);
}

static void check_usage(const Parse *p) {
    const Options *o = &p->o;
    for (const Row *r = rows; r < rows + ROWS; r++)
        if (r->needs && o->given[r - rows] && !given(p, r->needs) && !(o->go_on && !strcmp(r->needs, "save")))
            die_usage("--%s needs --%s %s", r->name, r->needs, row_named(r->needs)->arg);
    if (given(p, "data-dtype") && (o->records || !o->data.n) && !o->val_data.n)
        die_usage("--data-dtype says what token files hold: give --data FILE... or leave it out");
    for (int i = 0; i < o->data.n; i++)
        if (strcmp(o->data.at[i], "-") == 0 && o->data.n > 1)
            die_usage("--data - stands alone: records or files, not both");
    if (o->tokenizer && o->sample_ids >= 0)
        die_usage("--sample-format: --tokenizer prints text; leave one of them out");
    if (o->export_dtype == EXPORT_LOADED && !o->weights.n)
        die_usage("--export-dtype loaded: no weights are loaded here%s",
                  o->resume ? ", because --resume restores them from the state; name the dtype, such as bf16"
                            : "; give --weights FILE..., or a dtype");
    if (o->shard_size && o->export_adapters)
        die_usage("--export-shard-size: peft reads adapters from one file; leave it or --export-adapters out");
    if (o->shard_size && o->export_path[strlen(o->export_path) - 1] != '/')
        die_usage("--export-shard-size: %s is a file, and shards and their index make a folder: end it in /, or leave "
                  "--export-shard-size out",
                  o->export_path);
    if (o->go_on && (given(p, "resume") || given(p, "save")))
        die_usage("--continue %s is --resume %s and --save %s: leave --%s out", o->go_on, o->go_on, o->go_on,
                  given(p, "resume") ? "resume" : "save");
    if (given(p, "resume") && o->weights.n)
        die_usage("--resume restores the weights too: give it or --weights, not both; --continue DIR takes both: it "
                  "goes on from the state in DIR, and begins from --weights where there is none yet");
    if (o->keep_best && !o->val_data.n)
        die_usage("--keep-best is the state of the lowest val_loss: give --val-data FILE...");
    if (o->eval_only && !o->weights.n && !o->resume && !o->go_on)
        die_usage("--eval-only validates what is given: --weights FILE... or --resume DIR");
    if (o->eval_only && o->steps > 0)
        die_usage("--eval-only trains nothing: leave --steps %lld out", (long long)o->steps);
    if (o->debug.dump_pattern && (!given(p, "at-step") || !o->debug.dump_path))
        die_usage("--dump needs --at-step N and -o FILE");
    if (!o->debug.dump_pattern && (given(p, "at-step") || o->debug.dump_path))
        die_usage("--at-step and -o belong to --dump PATTERN");
    if (o->steps > 0 && !o->data.n)
        die_usage("--steps %lld needs --data FILE... (or --data - for records)", (long long)o->steps);
    if (!o->data.n && !o->val_data.n && !o->sample && !o->export_path && !o->save && !o->libraries)
        die_usage("nothing to do: give --data FILE... to train (-h lists all options)");
}

static const char *whose(const Options *o, const char *name) {
    return args_given(o, name) ? "" : args_taken(o, name) ? " (the saved run's)" : " (the model's)";
}

void args_settle(const sc_build *b, Options *o) {
    if ((args_given(o, "warmup") || args_given(o, "total")) && decays(b) && o->warmup > o->total)
        die_usage("--warmup %lld%s is longer than the schedule, --total %lld%s: give a longer --total or a shorter "
                  "--warmup",
                  (long long)o->warmup, whose(o, "warmup"), (long long)o->total, whose(o, "total"));
    if (b->decay_steps && o->decay_steps > o->total - o->warmup)
        die_usage("--decay-steps %lld%s is more than lies between --warmup %lld%s and --total %lld%s: give a longer "
                  "--total or a shorter --decay-steps",
                  (long long)o->decay_steps, whose(o, "decay-steps"), (long long)o->warmup, whose(o, "warmup"),
                  (long long)o->total, whose(o, "total"));
    if (o->data.n && o->steps < 0 && o->total <= 0)
        die_usage("how long? the model's schedule has no total: give --steps N");
    if (o->steps < 0) o->steps = o->data.n ? o->total : 0;
    if (o->debug.dump_step > o->steps)
        die_usage("--at-step %lld is beyond the last step %lld: name an earlier step, or train on with --steps",
                  (long long)o->debug.dump_step, (long long)o->steps);
}

/* Options that some optimizers have. */
static const char *const optimizer_keys[] = {"betas", "eps", "momentum"};
enum { OPTIMIZER_KEYS = sizeof optimizer_keys / sizeof *optimizer_keys };

static bool of_optimizer(const char *name) {
    for (int i = 0; i < OPTIMIZER_KEYS; i++)
        if (!strcmp(name, optimizer_keys[i])) return true;
    return false;
}

static bool has_key(const sc_build *b, const char *key) {
    const sc_optimizer_info *o = sc_optimizer_named(b->optimizer);
    return o && sc_optimizer_takes(o, key);
}

bool args_has(const sc_build *b, const char *name) {
    if (of_optimizer(name)) return has_key(b, name) && (strcmp(name, "momentum") || b->momentum > 0);
    if (!strcmp(name, "total") || !strcmp(name, "min-ratio")) return decays(b);
    if (!strcmp(name, "warmup")) return !b->factors;
    if (!strcmp(name, "decay-steps")) return b->decay_steps > 0;
    if (!strcmp(name, "clip")) return b->clip > 0;
    if (!strcmp(name, "accumulate")) return b->accumulate > 1;
    return true;
}

/* Group g's value: it keeps its ratio to group 0's, which the command line may have replaced by `base`. */
static double scaled(double group, double first, double base) {
    if (first != 0) return group * (base / first);
    return group != 0 ? group : base;
}

sc_group_info args_group(const sc_build *b, const Options *o, int i) {
    const sc_group_info *g = b->groups;
    if (i == 0) return (sc_group_info){o->lr, o->weight_decay};
    double decay =
        g[0].weight_decay != 0 ? scaled(g[i].weight_decay, g[0].weight_decay, o->weight_decay) : g[i].weight_decay;
    return (sc_group_info){scaled(g[i].lr, g[0].lr, o->lr), decay};
}

/* What the options make of the groups, and the schedule of the rates. */
static void check_groups(const Parse *p) {
    const Options *o = &p->o;
    for (int i = 0; i < p->b->ngroups; i++) {
        sc_group_info g = args_group(p->b, o, i);
        bool ends = decays(p->b) && o->min_ratio > 0;
        if (!sc_fits_fp32(g.lr) || !sc_fits_fp32(g.weight_decay))
            die("--%s %g: group %d, which keeps its ratio to it, gets %g, and fp32 holds only 0 and numbers from %.3g "
                "to %.3g in full",
                sc_fits_fp32(g.lr) ? "weight-decay" : "lr", sc_fits_fp32(g.lr) ? o->weight_decay : o->lr, i,
                sc_fits_fp32(g.lr) ? g.weight_decay : g.lr, SC_LEAST_FP32, (double)FLT_MAX);
        if (ends && !sc_fits_fp32(g.lr * o->min_ratio))
            die("--min-ratio %g: the learning rate of %g%s ends at %g, and fp32 holds only 0 and numbers from %.3g on "
                "in full",
                o->min_ratio, g.lr, i ? need_text(" (group %d)", i) : "", g.lr * o->min_ratio, SC_LEAST_FP32);
    }
}

static bool computes_on_gpu(const sc_build *b) {
    return !strcmp(b->target, "cuda");
}

bool threads_compute(const sc_build *b) {
    return !computes_on_gpu(b) || b->host_bytes;
}

static void append(char *text, size_t size, const char *before, const char *word) {
    size_t n = strlen(text);
    snprintf(text + n, size - n, "%s%s", before, word);
}

/* A key of other optimizers is given. */
static _Noreturn void die_of_key(const sc_build *b, const char *key) {
    char has[80] = "", others[200] = "";
    for (int i = 0; i < OPTIMIZER_KEYS; i++)
        if (args_has(b, optimizer_keys[i])) append(has, sizeof has, *has ? " and --" : " but --", optimizer_keys[i]);
    for (int i = 0; i < SC_OPTIMIZERS; i++)
        if (sc_optimizer_takes(&sc_optimizers[i], key))
            append(others, sizeof others, *others ? " or optim." : "optim.", sc_optimizers[i].lua);
    die("--%s: this binary was built with optim.%s, which has none%s; build it with %s { %s = ... }", key,
        sc_optimizer_named(b->optimizer)->lua, has, others, key);
}

/* What the command line may change is what the build has. */
static void check_build(const Parse *p) {
    static const struct {
        const char *name, *why_not;
    } of_gpus[] = {
        {"no-graph", "makes no graph"},
        {"share-gpus", "has no GPU to share"},
        {"require-cudnn", "does without cuDNN"},
        {"libraries", "loads no library of CUDA"},
    };
    static const char *const of_schedule[] = {"warmup", "total", "min-ratio", "decay-steps"};
    const sc_build *b = p->b;
    const Options *o = &p->o;
    if (b->accumulate == 1 && o->accumulate > 1)
        die("--accumulate %d: this binary was built to take one microbatch a step; build it with `accumulate` > 1 in "
            "the model file",
            o->accumulate);
    if (b->accumulate > 1 && o->accumulate < 2)
        die("--accumulate 1: this binary was built to accumulate, with at least 2 microbatches a step; build it with "
            "`accumulate = 1`");
    for (int i = 0; i < OPTIMIZER_KEYS; i++)
        if (given(p, optimizer_keys[i]) && !has_key(b, optimizer_keys[i])) die_of_key(b, optimizer_keys[i]);
    if (b->momentum == 0 && o->momentum > 0)
        die("--momentum %g: this binary was built without momentum; build it with optim.%s { momentum = ... }",
            o->momentum, sc_optimizer_named(b->optimizer)->lua);
    for (size_t i = 0; i < sizeof of_schedule / sizeof *of_schedule && b->factors; i++)
        if (given(p, of_schedule[i]))
            die("--%s: this binary's learning rate is lr times what optim.schedule's function returned when it was "
                "built; "
                "%schange the function in the model file and build it again",
                of_schedule[i],
                strcmp(of_schedule[i], "total") ? "" : "--steps N says how long to train (the last factor stays), or ");
    if (given(p, "decay-steps") && !b->decay_steps)
        die("--decay-steps: this binary's schedule is '%s', which has none; build it with schedule = optim.wsd { "
            "decay_steps = ... } in the model file",
            b->schedule);
    if ((given(p, "total") || given(p, "min-ratio")) && !decays(b))
        die("--%s: this binary's learning rate stays as it is after the warm-up; %sbuild it with schedule = "
            "optim.cosine, optim.linear or optim.wsd in the model file",
            given(p, "total") ? "total" : "min-ratio",
            given(p, "total") ? "--steps N says how long to train, or " : "");
    if (!threads_compute(b) && given(p, "threads"))
        die("--threads %d: nothing of this binary is in host memory, and all is computed on the GPU; leave it out",
            o->threads);
    if (!computes_on_gpu(b) && o->threads > b->threads)
        die("--threads %d: the workspaces of this binary are for %d thread%s a rank; give fewer, or build it with "
            "--device FILE, a profile that says threads = %d",
            o->threads, b->threads, b->threads == 1 ? "" : "s", o->threads);
    if (b->clip == 0 && o->clip > 0)
        die("--clip %g: this binary was built without clipping; build it with `clip_grad_norm` in the model file",
            o->clip);
    if (o->debug.virtual_clock && computes_on_gpu(b))
        die("--virtual-clock: a GPU's events take the time that they take; build with --target cpu");
    for (size_t i = 0; i < sizeof of_gpus / sizeof *of_gpus && !computes_on_gpu(b); i++)
        if (given(p, of_gpus[i].name))
            die("--%s: a CPU's program %s; leave it out, or build with --target cuda", of_gpus[i].name,
                of_gpus[i].why_not);
    if (o->ema && !state_averages(b))
        die("--ema: this binary keeps no average of its weights; write ema = { decay = 0.999 } in nn.training");
    if (o->sample && b->logits_program < 0)
        die("--sample: this model has no sample program; write sample = { logits = function(m, b) return m(b.tokens) "
            "end } in nn.training");
}

static Options defaults(const sc_build *b) {
    enum { FOR_MEMORY = 16 }; /* updates wait for memory: more than a socket's channels keep busy bring nothing */
    int threads = computes_on_gpu(b) ? FOR_MEMORY : b->threads, most = sc_processors(b);
    return (Options){
        .steps = -1,
        .keep = 1,
        .seed = 1,
        .sample_ids = -1,
        .temperature = 1,
        .accumulate = b->accumulate,
        .threads = most < threads ? most : threads, /* no more than processors; bits do not depend on it */
        .lr = b->ngroups ? b->groups[0].lr : 0,
        .weight_decay = b->ngroups ? b->groups[0].weight_decay : 0,
        .beta1 = b->beta1,
        .beta2 = b->beta2,
        .eps = b->eps,
        .momentum = b->momentum,
        .clip = b->clip,
        .warmup = b->warmup,
        .total = b->total,
        .decay_steps = b->decay_steps,
        .min_ratio = b->min_ratio,
        .debug = {.interleave = -1, .stall_s = 300},
    };
}

/* --save DIR --resume auto is --continue DIR. */
static void resume_auto(Parse *p) {
    if (!p->o.resume || strcmp(p->o.resume, "auto") || p->o.go_on) return;
    if (!p->o.save)
        die_usage(
            "--resume auto goes on from the state in --save DIR, if there is one: give --save, or a folder's name "
            "(./auto, if that is it)");
    p->o.go_on = p->o.save;
    p->o.given[row_named("save") - rows] = p->o.given[row_named("resume") - rows] = false;
    p->o.given[row_named("continue") - rows] = true;
}

Options args_parse(const sc_build *b, int argc, char **argv) {
    int64_t example = b->total > 0 ? b->total : b->warmup > 100 ? 10 * b->warmup : 1000; /* beyond the warm-up */
    char *doc = need_text("Trains %s, as %s was compiled: %d rank%s on %s.\vFor example:\n  %s --data 'train*.bin' "
                          "--steps %lld --save state\n  %s --data 'train*.bin' "
                          "--steps %lld --continue state\n  %s --resume state --sample 200 --prompt 'Once'",
                          b->name, b->model_file, b->world, b->world == 1 ? "" : "s", b->target, argv[0],
                          (long long)example, argv[0], (long long)example, argv[0]);
    const struct argp argp = {.options = argp_options(), .parser = parse_option, .doc = doc};
    Parse p = {.b = b, .o = defaults(b)};
    argp_err_exit_status = EXIT_USAGE;
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER | ARGP_NO_HELP, NULL, &p)) die("out of memory for arguments");
    p.o.has_seed = given(&p, "seed");
    resume_auto(&p);
    if (p.o.go_on) p.o.save = p.o.resume = p.o.go_on;
    p.o.records = p.o.data.n == 1 && strcmp(p.o.data.at[0], "-") == 0;
    check_usage(&p);
    if (p.o.eval_only) { /* beside a training's options */
        p.o.data.n = 0;
        p.o.records = false;
    }
    check_build(&p);
    check_groups(&p);
    free(doc);
    return p.o;
}

/* ── what the ranks of a job must agree in ───────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    FILE *values[ROWS]; /* of each option that was given */
    char *text[ROWS];
    size_t size[ROWS];
    const Row *last; /* that further file names belong to */
} Terms;

static void put_value(FILE *f, const char *text, bool path) {
    char *folder = path && *text != '/' && *text != '~' && strcmp(text, "-") ? getcwd(NULL, 0) : NULL;
    if (folder) fprintf(f, " %s/", folder);
    if (!folder) fputc(' ', f);
    for (; *text; text++) fprintf(f, (unsigned char)*text < ' ' ? "\\%02x" : "%c", (unsigned char)*text);
    free(folder);
}

static error_t note_term(int key, char *arg, struct argp_state *s) {
    Terms *t = s->input;
    const Row *r = key == ARGP_KEY_ARG ? t->last : row_of(key);
    if (!r) return ARGP_ERR_UNKNOWN;
    FILE **values = &t->values[r - rows];
    if (!*values) *values = open_memstream(&t->text[r - rows], &t->size[r - rows]);
    if (!*values) die("out of memory for arguments");
    if (arg) put_value(*values, arg, !strncmp(r->arg, "FILE", 4) ? !strchr(r->arg, '=') : !strcmp(r->arg, "DIR"));
    if (r->kind == NAMES) t->last = r;
    return 0;
}

char *args_terms(int argc, char **argv) {
    const struct argp argp = {.options = argp_options(), .parser = note_term};
    Terms t = {.last = NULL};
    char *all = NULL;
    size_t size;
    FILE *f = open_memstream(&all, &size);
    if (!f) die("out of memory for arguments");
    bool wrong = argp_parse(&argp, argc, argv, ARGP_IN_ORDER | ARGP_SILENT, NULL, &t);
    for (int i = 0; i < ROWS; i++) {
        if (!t.values[i]) continue;
        fclose(t.values[i]);
        if (!rows[i].own) fprintf(f, "--%s%s\n", rows[i].name, t.text[i]);
        free(t.text[i]);
    }
    if (wrong) fputs("arguments", f); /* whose process says what is wrong with them */
    for (int i = 1; i < argc && wrong; i++) put_value(f, argv[i], false);
    if (wrong) fputc('\n', f);
    if (fclose(f) || !all) die("out of memory for arguments");
    return all;
}

void args_free(Options *o) {
    free(o->data.at);
    free(o->val_data.at);
    free(o->weights.at);
    free(o->weights_map.at);
    free(o->weights_copy.at);
}
