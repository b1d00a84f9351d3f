/* The command line of a training program, with the build's values as defaults.
 * Relies on: glibc argp.
 * Relied on by: main. */
#include "args.h"
#include "die.h"
#include <argp.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    O_DATA = 256,
    O_VAL,
    O_DTYPE,
    O_STEPS,
    O_SAVE,
    O_SAVE_EVERY,
    O_RESUME,
    O_WEIGHTS,
    O_WEIGHTS_MAP,
    O_WEIGHTS_PARTIAL,
    O_EXPORT,
    O_LOG,
    O_SEED,
    O_SAMPLE,
    O_PROMPT,
    O_FORMAT,
    O_TEMPERATURE,
    O_TOP_K,
    O_EVAL_EVERY,
    O_EVAL_STEPS,
    O_LR,
    O_WARMUP,
    O_TOTAL,
    O_MIN_RATIO,
    O_BETAS,
    O_EPS,
    O_MOMENTUM,
    O_DECAY,
    O_CLIP,
    O_ACCUMULATE,
    O_THREADS,
    O_POISON,
    O_REDZONES,
    O_INTERLEAVE,
    O_DUMP,
    O_AT_STEP,
    O_FINITE,
    O_NAN,
    O_TRACE,
    O_STALL,
    O_QUIET,
    O_NO_GRAPH,
    O_SHARE,
    O_CUDNN,
    O_LIBRARIES,
    O_DELAY,
    O_CLOCK,
};

static const struct argp_option options[] = {
    {0, 0, 0, 0, "Data", 1},
    {"data", O_DATA, "FILE...", 0,
     "Token files (llm.c .bin shards, or raw uint16/uint32) or quoted patterns; - reads records from standard input: "
     "one record is one global microbatch, each input in declared order, raw little-endian, its first dimension the "
     "world's. With --resume, the records that the saved run has seen are skipped: feed the same stream from its start",
     0},
    {"val-data", O_VAL, "FILE...", 0, "Token files to validate on", 0},
    {"data-dtype", O_DTYPE, "uint16|uint32", 0,
     "Tokens of files without llm.c's header (default: taken from the file's name, if it contains uint16 or uint32)",
     0},
    {0, 0, 0, 0, "Run", 2},
    {"steps", O_STEPS, "N", 0, "Train up to step N, counted from the first step of all (default: the schedule's total)",
     0},
    {"seed", O_SEED, "N", 0, "Initial values, order of data, dropout, samples (default 1, or the resumed run's)", 0},
    {"accumulate", O_ACCUMULATE, "N", 0, "Microbatches a step; needs a build with accumulate > 1", 0},
    {"threads", O_THREADS, "N", 0,
     "Threads of a rank, at most as built; of a GPU's rank those that update state in host memory (default: as built, "
     "16 for a GPU, within the processors that the ranks may use)",
     0},
    {"share-gpus", O_SHARE, 0, 0,
     "Several ranks on a GPU where there are fewer GPUs than ranks: to try a program, slowly. Their memory adds up; "
     "sums over ranks round in another order than on GPUs of their own",
     0},
    {"require-cudnn", O_CUDNN, 0, 0,
     "On GPUs: refuse to run attention that cuDNN computes on the program's own kernels, which take 1.5 to 2.4 times "
     "as "
     "long and serve where cuDNN is missing or too old",
     0},
    {"libraries", O_LIBRARIES, 0, 0,
     "On GPUs: print which libraries of CUDA are found here, their versions and which are taken, and exit", 0},
    {"eval-every", O_EVAL_EVERY, "N", 0, "Validate every N steps and after the last (default: after the last)", 0},
    {"eval-steps", O_EVAL_STEPS, "N", 0, "Batches a validation; 0 for all there are (default 20)", 0},
    {"quiet", O_QUIET, 0, 0, "Print errors, validation and samples only", 0},
    {0, 0, 0, 0, "Optimizer (defaults are the model file's)", 3},
    {"lr", O_LR, "X", 0, "Learning rate; groups keep their ratio to it", 0},
    {"warmup", O_WARMUP, "N", 0, "Steps of linear warm-up", 0},
    {"total", O_TOTAL, "N", 0, "Length of the learning rate's schedule, where it decays", 0},
    {"min-ratio", O_MIN_RATIO, "X", 0, "Learning rate at the schedule's end, as a part of the largest", 0},
    {"betas", O_BETAS, "X,Y", 0, "Adam's and AdamW's decay rates", 0},
    {"eps", O_EPS, "X", 0, "Adam's and AdamW's epsilon", 0},
    {"momentum", O_MOMENTUM, "X", 0, "SGD's momentum", 0},
    {"weight-decay", O_DECAY, "X", 0, "Weight decay; groups without any keep none", 0},
    {"clip", O_CLIP, "X", 0, "Clip gradients to this global norm; 0 for none", 0},
    {0, 0, 0, 0, "Files", 4},
    {"save", O_SAVE, "DIR", 0,
     "Save the training state there after the last step, and after the step under way when SIGINT, SIGTERM or SIGHUP "
     "stops the run (a second signal stops it at once). SIGUSR1 saves and goes on",
     0},
    {"save-every", O_SAVE_EVERY, "N", 0, "... and every N steps", 0},
    {"resume", O_RESUME, "DIR", 0, "Go on from a saved state (any world size)", 0},
    {"weights", O_WEIGHTS, "FILE...", 0, "Begin from these weights (safetensors)", 0},
    {"weights-map", O_WEIGHTS_MAP, "FILE=MODEL", 0,
     "Read the tensors that are named FILE in the weights as the parameters MODEL; both are names, or patterns with "
     "one "
     "*: 'base.*=*' reads base.X as X. May be repeated; the first that matches a tensor counts",
     0},
    {"weights-partial", O_WEIGHTS_PARTIAL, 0, 0,
     "Read what the weights and the model share; say what stays as initialised and what is not used", 0},
    {"export", O_EXPORT, "FILE", 0, "Write the weights after the last step (safetensors); replaces FILE", 0},
    {"log", O_LOG, "FILE", 0, "Write a JSON line for every step; replaces FILE, and continues it with --resume", 0},
    {0, 0, 0, 0, "Sample", 5},
    {"sample", O_SAMPLE, "N", 0, "Print N sampled tokens after training", 0},
    {"prompt", O_PROMPT, "TEXT", 0, "Begin the sample with this (token ids where those are printed)", 0},
    {"temperature", O_TEMPERATURE, "X", 0, "Sampling temperature; 0 takes the likeliest token (default 1)", 0},
    {"top-k", O_TOP_K, "N", 0, "Sample among the N likeliest tokens; 0 for all (default)", 0},
    {"sample-format", O_FORMAT, "bytes|ids", 0, "How tokens are printed (default: bytes up to a vocabulary of 512)", 0},
    {0, 0, 0, 0, "Looking inside (no bit of the result changes)", 6},
    {"dump", O_DUMP, "PATTERN", 0, "Copy the tensors of that name out; with --at-step and -o", 0},
    {"at-step", O_AT_STEP, "N", 0, "The step of --dump, from 1", 0},
    {"output", 'o', "FILE", 0,
     "The file of --dump (safetensors); rank 1 writes x.rank1.safetensors beside x.safetensors, and so on", 0},
    {"check-finite", O_FINITE, 0, 0, "Stop at the first event that makes an infinity or NaN", 0},
    {"allow-nan", O_NAN, 0, 0, "Go on when the loss is not finite", 0},
    {"trace", O_TRACE, "FILE", 0, "Record the time of every event; replaces FILE", 0},
    {"stall-seconds", O_STALL, "X", 0,
     "After X seconds without progress, say who waits for whom and exit 3 (default 300; 0: never). Before the first "
     "step "
     "the limit is at least the environment's SHARDC_PATIENCE (default 60)",
     0},
    {"poison", O_POISON, 0, 0, "Fill bytes that are dead, or were never written, with NaNs", 0},
    {"redzones", O_REDZONES, 0, 0, "Check the guards round every storage", 0},
    {"no-graph", O_NO_GRAPH, 0, 0, "On GPUs: launch every event by itself rather than a program as one graph", 0},
    {"delay-collectives", O_DELAY, "MS", 0,
     "Hold every collective back for so long; gather=MS or reduce=MS: only gathers, only sums", 0},
    {"virtual-clock", O_CLOCK, 0, 0,
     "On the CPU: count the time of sleeping and delays instead of waiting for it; all else takes none. Step times and "
     "--trace are by that clock",
     0},
    {"interleave", O_INTERLEAVE, "SEED", 0, "Run events in a random legal order", 0},
    {0, 0, 0, 0, "", -1},
    {"help", 'h', 0, 0, "Show this", 0},
    {0},
};

#define LARGEST 1e30 /* as in the model file: far from fp32's infinity */

typedef struct {
    const sc_build *b;
    Options o;
    Names *last; /* the list that further file names belong to */
    bool given[O_CLOCK - O_DATA + 1];
} Parse;

static bool given(const Parse *p, int option) {
    return p->given[option - O_DATA];
}

/* ── values ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int64_t whole(struct argp_state *s, const char *name, const char *text, int64_t low, int64_t high) {
    char *end;
    errno = 0;
    long long x = strtoll(text, &end, 10);
    if (errno || end == text || *end || x < low || x > high)
        argp_error(s, "--%s wants a whole number from %lld%s, not '%s'", name, (long long)low,
                   high < INT64_MAX ? need_text(" to %lld", (long long)high) : "", text);
    return x;
}

/* NaN: it is no number, or not finite. */
static double parsed(const char *text) {
    char *end;
    double x = strtod(text, &end);
    return end == text || *end || !isfinite(x) ? (double)NAN : x;
}

static double number(struct argp_state *s, const char *name, const char *text, double low, double high) {
    double x = parsed(text);
    if (!(x >= low && x <= high))
        argp_error(s, "--%s wants a number from %g%s, not '%s'", name, low,
                   isfinite(high) ? need_text(" to %g", high) : "", text);
    return x;
}

/* What the record holds of it as fp32 must be below 1: Adam divides by 1 - beta^t, momentum sums up for ever. */
static double below_one(struct argp_state *s, const char *name, const char *text) {
    double x = parsed(text);
    if (!(x >= 0 && (float)x < 1)) argp_error(s, "--%s wants a number from 0 to below 1, not '%s'", name, text);
    return x;
}

static double above_zero(struct argp_state *s, const char *name, const char *text) {
    double x = parsed(text);
    if (!((float)x > 0 && x <= LARGEST))
        argp_error(s, "--%s wants a number above 0, at most %g, not '%s'", name, LARGEST, text);
    return x;
}

static void betas(struct argp_state *s, Options *o, const char *text) {
    char *first = need_text("%s", text), *comma = strchr(first, ',');
    if (!comma) argp_error(s, "--betas wants two numbers such as 0.9,0.95, not '%s'", text);
    *comma = 0;
    o->beta1 = below_one(s, "betas", first);
    o->beta2 = below_one(s, "betas", comma + 1);
    free(first);
}

/* 10 · gather=10 · reduce=10 */
static void delay(struct argp_state *s, double *ms, const char *text) {
    const char *equals = strchr(text, '=');
    size_t n = equals ? (size_t)(equals - text) : 0;
    bool gather = n == 6 && strncmp(text, "gather", n) == 0, reduce = n == 6 && strncmp(text, "reduce", n) == 0;
    if (equals && !gather && !reduce)
        argp_error(s, "--delay-collectives wants MS, gather=MS or reduce=MS, not '%s'", text);
    double x = number(s, "delay-collectives", equals ? equals + 1 : text, 0, 1e6);
    if (!reduce) ms[GATHER] = x;
    if (!gather) ms[REDUCE] = x;
}

static void add_name(Names *l, char *name) {
    l->at = realloc(l->at, (size_t)(l->n + 1) * sizeof *l->at);
    if (!l->at) die("out of memory for arguments");
    l->at[l->n++] = name;
}

static int stars(const char *text, const char *end) {
    int n = 0;
    for (; text < end; text++) n += *text == '*';
    return n;
}

static void add_map(struct argp_state *s, Names *maps, char *text) {
    const char *equals = strchr(text, '='), *end = text + strlen(text);
    int n = equals ? stars(text, equals) : 2;
    if (n > 1 || equals == text || !equals[1] || strchr(equals + 1, '=') || stars(equals, end) != n)
        argp_error(s, "--weights-map wants FILE=MODEL, two names or two patterns with one * each, not '%s'", text);
    add_name(maps, text);
}

static int choice(struct argp_state *s, const char *name, const char *text, const char *first, const char *second) {
    bool is_first = strcmp(text, first) == 0;
    if (!is_first && strcmp(text, second) != 0)
        argp_error(s, "--%s wants %s or %s, not '%s'", name, first, second, text);
    return !is_first;
}

/* ── options ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static bool parse_number(int key, char *arg, struct argp_state *s, Parse *p) {
    Options *o = &p->o;
    const int64_t max = INT64_MAX;
    switch (key) {
    case O_STEPS: o->steps = whole(s, "steps", arg, 0, (int64_t)1 << 48); return true;
    case O_SAVE_EVERY: o->save_every = whole(s, "save-every", arg, 1, max); return true;
    case O_EVAL_EVERY: o->eval_every = whole(s, "eval-every", arg, 1, max); return true;
    case O_EVAL_STEPS: o->eval_steps = whole(s, "eval-steps", arg, 0, max); return true;
    case O_SEED: o->seed = (uint64_t)whole(s, "seed", arg, 0, max), o->has_seed = true; return true;
    case O_SAMPLE: o->sample = whole(s, "sample", arg, 1, 1 << 30); return true;
    case O_TOP_K: o->top_k = whole(s, "top-k", arg, 0, 1 << 30); return true;
    case O_TEMPERATURE: o->temperature = number(s, "temperature", arg, 0, 1000); return true;
    case O_ACCUMULATE: o->accumulate = (int)whole(s, "accumulate", arg, 1, 1 << 20); return true;
    case O_THREADS: o->threads = (int)whole(s, "threads", arg, 1, 1 << 20); return true;
    case O_LR: o->lr = number(s, "lr", arg, 0, LARGEST); return true;
    case O_WARMUP: o->warmup = whole(s, "warmup", arg, 0, max); return true;
    case O_TOTAL: o->total = whole(s, "total", arg, 1, max); return true;
    case O_MIN_RATIO: o->min_ratio = number(s, "min-ratio", arg, 0, 1); return true;
    case O_BETAS: betas(s, o, arg); return true;
    case O_EPS: o->eps = above_zero(s, "eps", arg); return true;
    case O_MOMENTUM: o->momentum = below_one(s, "momentum", arg); return true;
    case O_DECAY: o->weight_decay = number(s, "weight-decay", arg, 0, LARGEST); return true;
    case O_CLIP: o->clip = number(s, "clip", arg, 0, LARGEST); return true;
    case O_INTERLEAVE: o->debug.interleave = whole(s, "interleave", arg, 0, max); return true;
    case O_AT_STEP: o->debug.dump_step = whole(s, "at-step", arg, 1, max); return true;
    case O_DELAY: delay(s, o->debug.delay_ms, arg); return true;
    case O_STALL: o->debug.stall_s = number(s, "stall-seconds", arg, 0, 1e9); return true;
    }
    return false;
}

static bool parse_files(int key, char *arg, struct argp_state *s, Parse *p) {
    Options *o = &p->o;
    switch (key) {
    case O_DATA: add_name(p->last = &o->data, arg); return true;
    case O_VAL: add_name(p->last = &o->val_data, arg); return true;
    case O_WEIGHTS: add_name(p->last = &o->weights, arg); return true;
    case O_WEIGHTS_MAP: add_map(s, &o->weights_map, arg); return true;
    case O_DTYPE: o->data_width = choice(s, "data-dtype", arg, "uint16", "uint32") ? 4 : 2; return true;
    case O_SAVE: o->save = arg; return true;
    case O_RESUME: o->resume = arg; return true;
    case O_EXPORT: o->export_path = arg; return true;
    case O_LOG: o->log = arg; return true;
    case O_PROMPT: o->prompt = arg; return true;
    case O_FORMAT: o->sample_ids = choice(s, "sample-format", arg, "bytes", "ids"); return true;
    case O_DUMP: o->debug.dump_pattern = arg; return true;
    case 'o': o->debug.dump_path = arg; return true;
    case O_TRACE: o->debug.trace_path = arg; return true;
    }
    return false;
}

/* An empty name is what an unset variable of the shell leaves. A prompt may be empty. */
static void check_named(int key, const char *arg, struct argp_state *s) {
    const struct argp_option *o = options;
    if (key == ARGP_KEY_ARG && !*arg) argp_error(s, "a file's name is empty: is a variable of the shell not set?");
    if (!arg || *arg || key == O_PROMPT) return;
    while (o->key != key && (o->key || o->doc)) o++;
    if (o->key) argp_error(s, "--%s wants %s, not ''", o->name, o->arg);
}

static error_t parse_option(int key, char *arg, struct argp_state *s) {
    Parse *p = s->input;
    check_named(key, arg, s);
    if (key >= O_DATA && key <= O_CLOCK) p->given[key - O_DATA] = true;
    if (parse_number(key, arg, s, p) || parse_files(key, arg, s, p)) return 0;
    switch (key) {
    case 'h': argp_state_help(s, stdout, ARGP_HELP_STD_HELP); return 0;
    case O_QUIET: p->o.quiet = true; return 0;
    case O_WEIGHTS_PARTIAL: p->o.weights_partial = true; return 0;
    case O_NAN: p->o.allow_nan = true; return 0;
    case O_POISON: p->o.debug.poison = true; return 0;
    case O_REDZONES: p->o.debug.redzones = true; return 0;
    case O_CLOCK: p->o.debug.virtual_clock = true; return 0;
    case O_SHARE: p->o.debug.share_gpus = true; return 0;
    case O_CUDNN: p->o.debug.require_cudnn = true; return 0;
    case O_LIBRARIES: p->o.libraries = true; return 0;
    case O_NO_GRAPH: p->o.debug.no_graph = true; return 0;
    case O_FINITE: p->o.debug.check_finite = true; return 0;
    case ARGP_KEY_ARG:
        if (!p->last) argp_error(s, "'%s' belongs to no option; files follow --data, --val-data or --weights", arg);
        add_name(p->last, arg);
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

/* ── what belongs together, what the build can do ────────────────────────────────────────────────────────────────────
 */
/* An option that changes nothing without another one is a mistake of whoever gives it. */
static void check_companions(const Parse *p) {
    static const struct {
        int option;
        const char *name;
        int other;
        const char *needs;
    } rows[] = {
        {O_SAVE_EVERY, "save-every", O_SAVE, "--save DIR"},
        {O_EVAL_EVERY, "eval-every", O_VAL, "--val-data FILE..."},
        {O_EVAL_STEPS, "eval-steps", O_VAL, "--val-data FILE..."},
        {O_WEIGHTS_MAP, "weights-map", O_WEIGHTS, "--weights FILE..."},
        {O_WEIGHTS_PARTIAL, "weights-partial", O_WEIGHTS, "--weights FILE..."},
        {O_PROMPT, "prompt", O_SAMPLE, "--sample N"},
        {O_TEMPERATURE, "temperature", O_SAMPLE, "--sample N"},
        {O_TOP_K, "top-k", O_SAMPLE, "--sample N"},
        {O_FORMAT, "sample-format", O_SAMPLE, "--sample N"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (given(p, rows[i].option) && !given(p, rows[i].other))
            die_usage("--%s needs %s", rows[i].name, rows[i].needs);
    if (given(p, O_DTYPE) && (p->o.records || !p->o.data.n) && !p->o.val_data.n)
        die_usage("--data-dtype says what token files hold: give --data FILE... or leave it out");
}

static bool decays(const sc_build *b) {
    return strcmp(b->schedule, "linear") == 0 || strcmp(b->schedule, "cosine") == 0;
}

static void check_usage(const Parse *p) {
    const Options *o = &p->o;
    check_companions(p);
    for (int i = 0; i < o->data.n; i++)
        if (strcmp(o->data.at[i], "-") == 0 && o->data.n > 1)
            die_usage("--data - stands alone: records or files, not both");
    if (o->resume && o->weights.n) die_usage("--resume restores the weights too: give it or --weights, not both");
    if (o->debug.dump_pattern && (!given(p, O_AT_STEP) || !o->debug.dump_path))
        die_usage("--dump needs --at-step N and -o FILE");
    if (!o->debug.dump_pattern && (given(p, O_AT_STEP) || o->debug.dump_path))
        die_usage("--at-step and -o belong to --dump PATTERN");
    if ((given(p, O_WARMUP) || given(p, O_TOTAL)) && decays(p->b) && o->warmup > o->total)
        die_usage("--warmup %lld%s is longer than the schedule, --total %lld%s: give a longer --total or a shorter "
                  "--warmup",
                  (long long)o->warmup, given(p, O_WARMUP) ? "" : " (the model's)", (long long)o->total,
                  given(p, O_TOTAL) ? "" : " (the model's)");
    if (o->steps > 0 && !o->data.n)
        die_usage("--steps %lld needs --data FILE... (or --data - for records)", (long long)o->steps);
    if (!o->data.n && !o->val_data.n && !o->sample && !o->export_path && !o->save && !o->libraries)
        die_usage("nothing to do: give --data FILE... to train (-h lists all options)");
    if (o->data.n && o->steps < 0 && o->total <= 0)
        die_usage("how long? the model's schedule has no total: give --steps N");
}

static void check_accumulate(const sc_build *b, const Options *o) {
    if (b->accumulate == 1 && o->accumulate > 1)
        die("--accumulate %d: this binary was built to take one microbatch a step; build it with `accumulate` > 1 in "
            "the model file",
            o->accumulate);
    if (b->accumulate > 1 && o->accumulate < 2)
        die("--accumulate 1: this binary was built to accumulate, with at least 2 microbatches a step; build it with "
            "`accumulate = 1`");
}

/* What the command line may change of optimizer and schedule is what the build's have. */
static void check_training(const Parse *p) {
    const sc_build *b = p->b;
    bool sgd = strcmp(b->optimizer, "sgd") == 0;
    if (given(p, O_MOMENTUM) && !sgd)
        die("--momentum: this binary was built with %s, which has betas; give --betas, or build it with optim.SGD { "
            "momentum = ... }",
            strcmp(b->optimizer, "adam") == 0 ? "optim.Adam" : "optim.AdamW");
    if (sgd && (given(p, O_BETAS) || given(p, O_EPS)))
        die("--%s: this binary was built with optim.SGD, which has none; build it with optim.AdamW or optim.Adam",
            given(p, O_BETAS) ? "betas" : "eps");
    if (sgd && b->momentum == 0 && p->o.momentum > 0)
        die("--momentum %g: this binary was built without momentum; build it with optim.SGD { momentum = ... }",
            p->o.momentum);
    if ((given(p, O_TOTAL) || given(p, O_MIN_RATIO)) && !decays(b))
        die("--%s: this binary's learning rate stays as it is after the warm-up; %sbuild it with schedule = "
            "optim.cosine "
            "or optim.linear in the model file",
            given(p, O_TOTAL) ? "total" : "min-ratio",
            given(p, O_TOTAL) ? "--steps N says how long to train, or " : "");
}

static bool computes_on_gpu(const sc_build *b) {
    return !strcmp(b->target, "cuda");
}

bool threads_compute(const sc_build *b) {
    return !computes_on_gpu(b) || b->host_bytes;
}

static void check_build(const Parse *p) {
    const sc_build *b = p->b;
    const Options *o = &p->o;
    check_accumulate(b, o);
    check_training(p);
    if (!threads_compute(b) && given(p, O_THREADS))
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
    if (o->debug.no_graph && !computes_on_gpu(b))
        die("--no-graph: a CPU's program makes no graph; leave it out, or build with --target cuda");
    if (o->debug.share_gpus && !computes_on_gpu(b))
        die("--share-gpus: a CPU's program has no GPU to share; leave it out, or build with --target cuda");
    if (o->debug.require_cudnn && !computes_on_gpu(b))
        die("--require-cudnn: a CPU's program does without cuDNN; leave it out, or build with --target cuda");
    if (o->libraries && !computes_on_gpu(b))
        die("--libraries: a CPU's program loads no library of CUDA; leave it out, or build with --target cuda");
    if (o->sample && b->logits_program < 0)
        die("--sample: this model has no sample program; write sample = { logits = function(m, b) return m(b.tokens) "
            "end } in "
            "nn.training");
}

/* Unless the ranks of this machine would then have more threads than processors. Bits do not depend on it. */
static int default_threads(const sc_build *b) {
    enum { FOR_MEMORY = 16 }; /* updates wait for memory: more than a socket's channels keep busy bring nothing */
    int wanted = computes_on_gpu(b) ? FOR_MEMORY : b->threads, most = sc_processors(b);
    return most < wanted ? most : wanted;
}

static Options defaults(const sc_build *b) {
    return (Options){
        .steps = -1,
        .eval_steps = 20,
        .seed = 1,
        .sample_ids = -1,
        .temperature = 1,
        .accumulate = b->accumulate,
        .threads = default_threads(b),
        .lr = b->ngroups ? b->groups[0].lr : 0,
        .weight_decay = b->ngroups ? b->groups[0].weight_decay : 0,
        .beta1 = b->beta1,
        .beta2 = b->beta2,
        .eps = b->eps,
        .momentum = b->momentum,
        .clip = b->clip,
        .warmup = b->warmup,
        .total = b->total,
        .min_ratio = b->min_ratio,
        .debug = {.interleave = -1, .stall_s = 300},
    };
}

Options args_parse(const sc_build *b, int argc, char **argv) {
    char *doc =
        need_text("Trains %s, as %s was compiled: %d rank%s on %s.\vFor example:\n  %s --data 'train*.bin' "
                  "--steps 1000 --save state\n  %s --data 'train*.bin' "
                  "--steps 2000 --resume state\n  %s --resume state --sample 200 --prompt 'Once'",
                  b->name, b->model_file, b->world, b->world == 1 ? "" : "s", b->target, argv[0], argv[0], argv[0]);
    const struct argp argp = {.options = options, .parser = parse_option, .doc = doc};
    Parse p = {.b = b, .o = defaults(b)};
    argp_err_exit_status = EXIT_USAGE;
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER | ARGP_NO_HELP, NULL, &p)) die("out of memory for arguments");
    p.o.records = p.o.data.n == 1 && strcmp(p.o.data.at[0], "-") == 0;
    check_usage(&p);
    check_build(&p);
    if (p.o.steps < 0) p.o.steps = p.o.data.n ? p.o.total : 0;
    if (p.o.debug.dump_step > p.o.steps)
        die_usage("--at-step %lld is beyond the last step %lld: name an earlier step, or train on with --steps",
                  (long long)p.o.debug.dump_step, (long long)p.o.steps);
    free(doc);
    return p.o;
}

/* ── what the ranks of a job must agree in ───────────────────────────────────────────────────────────────────────────
 */
enum { ROWS = sizeof options / sizeof *options };

typedef struct {
    FILE *values[ROWS]; /* of each option that was given */
    char *text[ROWS];
    size_t size[ROWS];
    int last; /* the row that further file names belong to */
} Terms;

/* No bit of the result depends on them, and each process reads its own. */
static bool may_differ(int key) {
    return key == O_LOG || key == O_QUIET || key == O_THREADS || key == O_STALL;
}

static void put_value(FILE *f, const char *text, bool path) {
    char *folder = path && *text != '/' && *text != '~' && strcmp(text, "-") ? getcwd(NULL, 0) : NULL;
    if (folder) fprintf(f, " %s/", folder);
    if (!folder) fputc(' ', f);
    for (; *text; text++) fprintf(f, (unsigned char)*text < ' ' ? "\\%02x" : "%c", (unsigned char)*text);
    free(folder);
}

static error_t note_term(int key, char *arg, struct argp_state *s) {
    Terms *t = s->input;
    int row = key == ARGP_KEY_ARG ? t->last : 0;
    for (int i = 0; i < ROWS && key != ARGP_KEY_ARG; i++)
        if (options[i].key == key && options[i].name) row = i;
    if (!row) return ARGP_ERR_UNKNOWN;
    if (!t->values[row]) t->values[row] = open_memstream(&t->text[row], &t->size[row]);
    if (!t->values[row]) die("out of memory for arguments");
    const char *wants = options[row].arg;
    if (arg) put_value(t->values[row], arg, !strncmp(wants, "FILE", 4) ? !strchr(wants, '=') : !strcmp(wants, "DIR"));
    if (key == O_DATA || key == O_VAL || key == O_WEIGHTS) t->last = row;
    return 0;
}

char *args_terms(int argc, char **argv) {
    const struct argp argp = {.options = options, .parser = note_term};
    Terms t = {.last = 0};
    char *all = NULL;
    size_t size;
    FILE *f = open_memstream(&all, &size);
    if (!f) die("out of memory for arguments");
    bool wrong = argp_parse(&argp, argc, argv, ARGP_IN_ORDER | ARGP_SILENT, NULL, &t);
    for (int i = 0; i < ROWS; i++) {
        if (!t.values[i]) continue;
        fclose(t.values[i]);
        if (!may_differ(options[i].key)) fprintf(f, "--%s%s\n", options[i].name, t.text[i]);
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
}
