/* Before any rank starts: reads the command line, opens everything that the run reads, proves that everything it will
 * write can be written, and only then launches the ranks.
 * Relies on: args, loader, checkpoint, weights, sample, log, report; jansson (its memory); target (sc_launch).
 * Relied on by: main. */
#include "run.h"
#include "arrays.h"
#include "die.h"
#include "log.h"
#include "report.h"
#include "settings.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int program_named(const sc_build *b, const char *name) {
    for (int i = 0; i < b->nprograms; i++)
        if (strcmp(b->programs[i].name, name) == 0) return i;
    return -1;
}

/* ── data ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static TokenSet open_tokens(const Run *run, const Layout *l, const char *option, const Names *names) {
    if (arrays_named(run->b, option, names->at, names->n))
        return arrays_open(run->b, option, names->at, names->n, l->batch);
    if (l->not_token && run->o.records)
        die("%s: a model that is fed records (--data -) cannot be validated on token files: leave out %s", names->at[0],
            option);
    if (l->not_token)
        die("%s: input '%s' does not come from tokens (from = \"tokens\"); give arrays of its inputs, %s %s=FILE.npy, "
            "or records (--data -)",
            names->at[0], l->not_token, option, l->not_token);
    if (!l->span) die("%s: this model has no inputs", names->at[0]);
    TokenSet s = token_set_open(option, names->at, names->n, run->o.data_width, l->span, l->stride);
    if (!sc_first()) return s; /* the other processes come here after that */
    token_set_scan(&s, l->limit);
    int none = 0;
    const char *name = NULL;
    for (int i = 0; i < s.n; i++)
        if (!s.files[i].windows && !none++) name = s.files[i].path;
    if (none && s.windows)
        note("%s: %d of %d files, %s first, have fewer tokens than a window of %" PRId64 ": nothing of them is used",
             option, none, s.n, name, s.span);
    return s;
}

static void check_enough(const TokenSet *s, const Layout *l, const char *option, int64_t need_windows,
                         const char *what) {
    if (s->windows >= need_windows) return;
    if (s->arrays)
        die("%s: the arrays have %" PRId64 " sample%s, but %s takes %" PRId64
            ": give more data, or build with a smaller "
            "batch",
            option, s->windows, s->windows == 1 ? "" : "s", what, need_windows);
    die("%s (%d file%s): %" PRIu64 " tokens make %" PRId64 " windows of %" PRId64 ", but %s takes %" PRId64
        ": give more data, or build with a smaller batch or sequence",
        option, s->n, s->n == 1 ? "" : "s", s->tokens, s->windows, l->span, what, need_windows);
}

static void open_data(Run *run, const Layout *l) {
    const char *both;
    const Options *o = &run->o;
    if (o->records && !sc_one_machine())
        die("--data -: records reach the ranks of one machine only: give token files, or start all ranks on one "
            "machine");
    if (o->records)
        run->records = records_open(run->b, o->accumulate, l->limit, STDIN_FILENO);
    else if (o->data.n)
        run->train = open_tokens(run, l, "--data", &o->data);
    if (o->data.n && !o->records) check_enough(&run->train, l, "--data", run->global_batch, "a step");
    if (o->val_data.n) run->val = open_tokens(run, l, "--val-data", &o->val_data);
    if (run->val.n && token_sets_share(&run->val, &run->train, &both))
        note("%s is in --data and in --val-data: its validation loss means little", both);
    if (!run->val.n) return;
    if (program_named(run->b, "eval") < 0) die("--val-data: this model has no eval program; leave it out");
    check_enough(&run->val, l, "--val-data", 1, "a validation");
    run->val_windows = run->val.windows;
    if (o->eval_steps && o->eval_steps < (run->val.windows + l->batch - 1) / l->batch)
        run->val_windows = o->eval_steps * l->batch;
}

/* ── where to begin ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* --continue DIR resumes where DIR has an index of a state, whatever is wrong with that, and begins where it has none.
 */
static bool begins(const Options *o) {
    char *index = o->go_on ? need_text("%s/index.json", o->go_on) : NULL;
    bool none = index && access(index, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
    free(index);
    return none;
}

/* Before anything depends on options: those that were not given are the saved run's. */
static void open_state(Run *run) {
    Options *o = &run->o;
    if (begins(o)) {
        o->resume = NULL;
        note("%s holds no state yet: the run begins%s", o->go_on, o->weights.n ? ", from --weights" : "");
    }
    if (!o->resume) return;
    if (o->save && sc_first()) run->held = saver_hold(o->save);
    run->resume = checkpoint_open(run->b, o->resume);
    o->weights.n = 0; /* of the run's beginning: the state has those it has come to */
    settings_take(run);
}

static void begin_at(Run *run, const Layout *l) {
    const Options *o = &run->o;
    run->seed = o->seed;
    if (o->weights.n) run->weights = weights_open(run->b, o);
    if (!o->resume) return;
    const Progress *p = checkpoint_progress(run->resume);
    run->first = p->step;
    run->position = p->position;
    run->tokens = p->tokens;
    if (run->tokens < 0) /* saved before they were counted: those of as many samples */
        run->tokens = (int64_t)fmin((double)run->position * (double)l->tokens / (double)l->batch, 0x1p53);
    if (!o->has_seed) run->seed = p->seed;
    if (o->data.n && o->steps > run->first) settings_tell(run);
    if (o->data.n && o->steps <= run->first)
        note("%s stands at step %" PRId64 " already; --steps %" PRId64
             " asks for no more: no step is made; to train on, "
             "give --steps above %" PRId64,
             o->resume, run->first, o->steps, run->first);
    if (o->debug.dump_pattern && o->debug.dump_step <= run->first)
        die("--at-step %" PRId64 ": %s stands at step %" PRId64 " already; name a later step", o->debug.dump_step,
            o->resume, run->first);
    if (run->records && sc_first() && run->first < o->steps) records_skip(run->records, run->position, l->batch);
}

/* ── what will be written ────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    const char *option, *path;
    bool there, special; /* a file; a device, say, to which any number may write */
    struct stat st;      /* of the file, or of the folder that it will be in */
} Output;

static bool one_file(const Output *x, const Output *y) {
    return !x->special && !y->special && x->there == y->there && x->st.st_dev == y->st.st_dev &&
           x->st.st_ino == y->st.st_ino && (x->there || strcmp(basename(x->path), basename(y->path)) == 0);
}

static bool is_file(const Output *x, uint64_t device, uint64_t inode) {
    return x->there && x->st.st_dev == device && x->st.st_ino == inode;
}

/* No file is read and written, or written by two. Weights may be exported to the file that they came from: it is
 * replaced when they are whole. */
static void check_one_use(const Run *run) {
    const Options *o = &run->o;
    enum { OTHERS = 4 };
    const Output others[OTHERS] = {{.option = "--export", .path = o->export_path},
                                   {.option = "--report", .path = o->report},
                                   {.option = "-o", .path = o->debug.dump_path},
                                   {.option = "--trace", .path = o->debug.trace_path}};
    int logs = run->b->world, export = logs, n = logs + OTHERS;
    Output *out = need((size_t)n, sizeof *out);
    for (int k = 0; k < logs; k++) out[k] = (Output){.option = "--log", .path = log_path(o->log, k)};
    memcpy(out + logs, others, sizeof others);
    for (int i = 0; i < n; i++) {
        Output *x = &out[i];
        const char *reader = NULL;
        struct stat st;
        if (!x->path) continue;
        if (stat(x->path, &x->st) == 0) {
            x->there = S_ISREG(x->st.st_mode);
            x->special = !x->there;
        } else {
            char *folder = need_text("%.*s.", (int)(basename(x->path) - x->path), x->path);
            x->special = stat(folder, &x->st) != 0; /* no folder: whoever writes there says so */
            free(folder);
        }
        for (int k = 0; k < run->train.n; k++)
            if (is_file(x, run->train.files[k].device, run->train.files[k].inode)) reader = "--data";
        for (int k = 0; k < run->val.n; k++)
            if (is_file(x, run->val.files[k].device, run->val.files[k].inode)) reader = "--val-data";
        for (int k = 0; k < o->weights.n && i != export; k++)
            if (stat(o->weights.at[k], &st) == 0 && is_file(x, st.st_dev, st.st_ino)) reader = "--weights";
        if (reader) die("%s %s would write over what %s reads: name another file", x->option, x->path, reader);
        for (int k = 0; k < i; k++)
            if (out[k].path && one_file(x, &out[k]))
                die("%s and %s are one file, %s: name another for one of them", out[k].option, x->option, x->path);
    }
    for (int k = 0; k < logs; k++) free((char *)out[k].path);
    free(out);
}

static void check_outputs(Run *run) {
    const Options *o = &run->o;
    check_one_use(run);
    if (o->save) run->held = saver_check(o->save, o->resume, run->held);
    if (run->best) saver_check(run->best, o->resume || o->go_on ? run->best : NULL, -1); /* held until we end */
    if (o->export_path) exporter_check(o);
    if (run->log) log_check(run->log);
    if (o->report) report_check(run);
}

/* ── a run that a signal ended ───────────────────────────────────────────────────────────────────────────────────────
 */
/* The ranks are gone: where they got to, and what is left to --resume. */
static void tell_stop(const Run *run) {
    if (run->o.quiet || !sc_first()) return;
    if (isatty(STDOUT_FILENO)) printf("\r\033[K"); /* the live line */
    printf("stopped at step %" PRId64 "\n", (int64_t)run->reached->done);
    if (run->reached->saved >= 0) printf("saved %s at step %" PRId64 "\n", run->o.save, (int64_t)run->reached->saved);
    if (!run->o.save && run->reached->done < run->o.steps) printf("nothing is saved without --save DIR\n");
    printed();
}

/* Jansson does not check every allocation: without memory it crashes, or says that a sound file is no JSON. */
static void *json_memory(size_t n) {
    return need(n, 1);
}

int host_main(const sc_build *b, int argc, char **argv) {
    sc_build build = *b; /* with this run's number of threads */
    sc_hold_standard_files();
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error of write, with a message */
    signal(SIGPIPE, SIG_IGN); /* so is a pipe that nobody reads */
    signal(SIGUSR1, SIG_IGN); /* nothing to save before sc_launch hears of it */
    char *terms = args_terms(argc, argv);
    int ended = sc_join(b, terms);
    free(terms);
    if (ended >= 0) return ended;
    die_init(b->name, sc_map_shared(sizeof(int)), sc_first());
    json_set_alloc_funcs(json_memory, free);
    if (!sc_outputs_new()) die("no memory for what cannot be written: %s", strerror(errno));
    Run run = {.b = &build, .held = -1, .o = args_parse(b, argc, argv)};
    if (run.o.libraries) {
        sc_tell_libraries();
        args_free(&run.o);
        return 0;
    }
    Layout l = layout_of(b);
    open_state(&run);
    args_settle(b, &run.o);
    build.threads = run.o.threads;
    int ranks = sc_samples_of(b, 0).of;
    double samples = (double)l.batch * ranks * run.o.accumulate, each = l.tokens > l.batch ? l.tokens / l.batch : 1;
    if (samples * each * (double)(run.o.steps > 0 ? run.o.steps : 1) >= 0x1p62)
        die("--steps %" PRId64 " of %g samples: there are more than can be counted; give fewer steps", run.o.steps,
            samples);
    run.global_batch = l.batch * ranks * run.o.accumulate;
    run.schedule = (Schedule){b->schedule, run.o.warmup, run.o.total, run.o.decay_steps, run.o.min_ratio, b->factors};
    if (run.o.sample) run.prompt = prompt_read(b, &run.o);
    open_data(&run, &l);
    begin_at(&run, &l);
    if (run.o.keep_best) run.best = need_text("%s/best", run.o.save);
    run.log = log_path(run.o.log, 0);
    if (sc_first()) check_outputs(&run);
    run.given = run.o.save && sc_first() ? settings_text(&run) : need_text("{}");
    run.reached = mmap(NULL, sizeof *run.reached, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run.reached == MAP_FAILED) die("no memory for what the ranks have reached: %s", strerror(errno));
    *run.reached = (Reached){run.first, -1, -1, 0};
    Reporter reporter = {.alive = -1};
    if (run.o.report && sc_first()) reporter = report_start(&run);
    int code = sc_launch(&build, &run.o.debug, train_rank, &run);
    report_end(&reporter);
    if (!code && run.reached->stopped) code = 128 + run.reached->stopped;
    if (code == 128 + SIGINT || code == 128 + SIGTERM || code == 128 + SIGHUP) tell_stop(&run);
    if (sc_first()) sc_tell_lost();
    munmap(run.reached, sizeof *run.reached);
    token_set_close(&run.train);
    token_set_close(&run.val);
    checkpoint_close(run.resume);
    weights_close(run.weights);
    records_close(run.records);
    if (run.held >= 0) close(run.held);
    free(run.given);
    free(run.best);
    free(run.prompt.ids);
    free(run.log);
    args_free(&run.o);
    return code;
}
