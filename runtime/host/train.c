/* What every rank does: initial values or a saved state, then steps. A step is micro (or micro_first, micro ...,
 * micro_last), each after its record and inputs were written; the metrics it leaves are sums over ranks and
 * microbatches. After the first step nothing is allocated.
 * Relies on: loader, schedule, checkpoint, weights, sample, log, progress; target.
 * Relied on by: run (through sc_launch). */
#include "die.h"
#include "dtype.h"
#include "log.h"
#include "progress.h"
#include "run.h"
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOSS, GRAD_NORM, FIRST_LOG };
#define LEAST_SCALE 1e-24

typedef struct {
    Run *run;
    const sc_build *b;
    const Options *o;
    sc_rank *r;
    int rank;
    sc_coord samples;
    Loader train, val;
    Saver *saver, *keeper; /* keeper: of the best state */
    Exporter *exporter;
    Sampler *sampler;
    Log log;
    char *log_path; /* NULL: another rank's log has what there is */
    bool log_each;  /* every rank has a log */
    Bar bar;
    float *metrics;
    sc_record record;              /* of the step being made */
    int64_t done;                  /* steps */
    int64_t position;              /* samples */
    int64_t tokens;                /* seen */
    int64_t saved;                 /* step of the last save; -1: none */
    int failed_saves;              /* since then */
    int code;                      /* that the rank ends with */
    int64_t evaluated;             /* step of the last validation */
    double best;                   /* val_loss so far; of those since then: */
    int64_t worse;                 /* how many validations found no lower one */
    bool over;                     /* --patience has ended the run */
    bool counted;                  /* val_targets is known: */
    double val_targets[SC_COUNTS]; /* of each count slot, in all windows that are validated on */
    int stopped;                   /* the signal that the run stops for; 0: none */
    uint64_t copied;               /* bytes that a save in the background takes, of the rank that has most */
    bool told_unsaved;             /* that there is no --save for a signal that asks to save */
    double input_s;                /* that the step has taken to fill its inputs */
    int filled;                    /* microbatch that lies in the loader's staging; -1: none */
    sc_scaler scaler;              /* as the last step left it */
} Trainer;

/* ── the record ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void begin_record(Trainer *t, int64_t step, int accumulate) {
    const Options *o = t->o;
    double factor = schedule_factor(&t->run->schedule, step);
    t->record = (sc_record){.step = step,
                            .seed = t->run->seed,
                            .grad_seed = 1.0f / (float)((int64_t)t->samples.of * accumulate),
                            .of = {{o->beta1, o->beta2, (float)o->eps, (float)o->momentum}},
                            .clip = (float)o->clip};
    for (int i = 0; i < t->b->nsets; i++) {
        const sc_set_info *x = &t->b->sets[i];
        t->record.of[i + 1] = (sc_optimizer_set){x->beta1, x->beta2, (float)x->eps, (float)x->momentum};
    }
    for (int i = 0; i < t->b->ngroups && i < SC_GROUPS; i++) {
        sc_group_info g = args_group(t->b, o, i);
        t->record.lr[i] = (float)(g.lr * factor);
        t->record.weight_decay[i] = (float)g.weight_decay;
    }
}

static int64_t first_sample(const Trainer *t, int64_t micro) {
    return (micro * t->samples.of + t->samples.at) * t->train.layout.batch;
}

static void fill(Trainer *t, int micro) {
    double begin = sc_seconds(t->r);
    if (t->filled != micro) loader_fill(&t->train, t->samples.at, micro, t->position + first_sample(t, micro));
    t->filled = micro;
    t->input_s += sc_seconds(t->r) - begin;
}

/* Targets of each count slot over the whole step. 0 would divide by nothing; any guard will do, as the sum is 0 too. */
static void set_counts(Trainer *t) {
    double ranks = t->samples.of, micros = t->o->accumulate;
    for (int i = 0; i < t->b->ncounts && i < SC_COUNTS; i++) {
        const sc_count_info *c = &t->b->counts[i];
        double n = 0;
        if (loader_counts_all(&t->train, c)) {
            n = (double)input_numel(&t->b->inputs[c->input]) * ranks * micros;
        } else {
            for (int m = 0; m < t->o->accumulate; m++) {
                fill(t, m);
                n += (double)loader_count(&t->train, c, t->train.layout.batch);
            }
            n = sc_host_sum(t->r, n);
        }
        n /= ranks * micros;
        t->record.count[i] = n > 0 ? (float)n : 1;
    }
}

/* ── the log ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void end_line(Trainer *t) {
    log_end(&t->log);
    if (t->rank == 0) t->run->reached->logged = t->log.size;
}

/* ── a step ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* No update comes before a run's first step, so no learning rate is to blame for it. A step that the scaler skipped is
 * no failure, but backing off from 65536 a hundred times without a clean one is. */
static void check_metrics(const Trainer *t, double loss, double norm) {
    double bad = isfinite(loss) ? norm : loss;
    bool skipped = t->b->has_scaler && t->scaler.skipped != 0, intact = t->saved >= 0;
    if (t->o->allow_nan) return;
    if (skipped && !(t->scaler.scale > LEAST_SCALE))
        die_check("step %" PRId64 ": skipped like those before it, and the loss scale has fallen to %g: no scale makes "
                  "these gradients finite%s. --check-finite finds the first event of the forward that makes one; lower "
                  "--lr, or raise --warmup",
                  t->done + 1, (double)t->scaler.scale, intact ? "; the state saved before is intact" : "");
    if (!skipped && !isfinite(bad))
        die_check("step %" PRId64 ": the %s is %s; stopped%s. %s; --allow-nan goes on", t->done + 1,
                  isfinite(loss) ? "gradient norm" : "loss", isnan(bad) ? "NaN" : "infinite",
                  intact ? ", the state saved before is intact" : "",
                  t->done == t->run->first
                      ? "It is this run's first step, so the cause is in the model, its initial values or the data: "
                        "--check-finite names the first event that makes one, and its line of Lua"
                      : "Lower --lr or raise --warmup; --check-finite names the first event that makes one");
}

static double per_step(const Trainer *t, int64_t of_rank) {
    return (double)of_rank * t->samples.of * t->o->accumulate;
}

static void report_step(Trainer *t, double seconds) {
    double total = (double)t->samples.of * t->o->accumulate, loss = t->metrics[LOSS] / total;
    double norm = t->b->nmetrics > GRAD_NORM ? t->metrics[GRAD_NORM] : 0;
    check_metrics(t, loss, norm);
    if (t->rank == 0) t->run->reached->done = t->done + 1; /* before it is seen */
    if (t->rank != 0 && !t->log_each) return;
    bool tokens = t->train.layout.tokens > 0; /* else samples are counted */
    double work = per_step(t, tokens ? t->train.layout.tokens : t->train.layout.batch);
    double per_second = seconds > 0 ? work / seconds : 0;
    BarMetric metrics[SC_METRICS];
    int n = 0;
    for (int i = FIRST_LOG; i < t->b->nmetrics; i++)
        metrics[n++] = (BarMetric){t->b->metrics[i], t->metrics[i] / (t->b->metric_sums >> i & 1 ? 1 : total)};
    if (t->rank == 0)
        bar_step(&t->bar, &(BarStep){t->done + 1, loss, norm, t->record.lr[0], per_second, seconds, t->scaler.scale,
                                     t->scaler.skipped != 0, sc_now_s(), metrics, n});
    log_begin(&t->log, t->done + 1);
    log_number(&t->log, "loss", loss);
    log_number(&t->log, "grad_norm", norm);
    log_number(&t->log, "lr", t->record.lr[0]);
    if (t->b->has_scaler) log_number(&t->log, "scale", t->scaler.scale);
    if (t->b->has_scaler) log_whole(&t->log, "skipped", t->scaler.skipped != 0);
    log_whole(&t->log, tokens ? "tokens" : "samples", (tokens ? t->tokens : t->position) + (int64_t)work);
    log_number(&t->log, tokens ? "tok_s" : "samples_s", per_second);
    log_number(&t->log, "seconds", seconds);
    if (t->log_each) log_number(&t->log, "input_s", t->input_s);
    for (int i = 0; i < n; i++) log_number(&t->log, metrics[i].name, metrics[i].value);
    end_line(t);
}

static RecordsStep train_step(Trainer *t) {
    RecordsStep records = RECORDS_READ;
    int last = t->o->accumulate - 1;
    double begin = sc_seconds(t->r);
    t->filled = -1;
    t->input_s = 0;
    sc_set_step(t->r, t->done + 1);
    if (t->run->records) records = records_step(t->run->records, t->r, t->done + 1);
    if (records != RECORDS_READ) return records;
    begin_record(t, t->done, t->o->accumulate);
    set_counts(t);
    for (int m = 0; m <= last; m++) {
        fill(t, m);
        loader_upload(&t->train, t->r);
        t->record.micro = m;
        t->record.first_sample = first_sample(t, m);
        sc_record_write(t->r, &t->record);
        const char *program = !last || (m && m < last) ? "micro" : m ? "micro_last" : "micro_first";
        sc_run_program(t->r, program_named(t->b, program));
    }
    sc_read(t->r, 0, t->b->metrics_at, t->metrics, (size_t)t->b->nmetrics * sizeof *t->metrics);
    if (t->b->has_scaler) sc_read(t->r, 0, t->b->scaler_at, &t->scaler, sizeof t->scaler);
    report_step(t, sc_seconds(t->r) - begin);
    t->done++;
    t->position += t->run->global_batch;
    t->tokens += (int64_t)per_step(t, t->train.layout.tokens);
    return RECORDS_READ;
}

/* ── between steps ───────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Targets of each count slot over all windows that are validated on, once a run: they stay the same. */
static void count_val_targets(Trainer *t) {
    int64_t windows = t->run->val_windows, batch = t->val.layout.batch;
    for (int i = 0; i < t->b->ncounts && i < SC_COUNTS; i++) {
        const sc_count_info *c = &t->b->counts[i];
        double n = 0;
        if (loader_counts_all(&t->val, c)) {
            t->val_targets[i] = (double)(input_numel(&t->b->inputs[c->input]) / batch) * (double)windows;
            continue;
        }
        for (int64_t at = t->samples.at * batch; at < windows; at += t->samples.of * batch) {
            int64_t rows = windows - at < batch ? windows - at : batch;
            loader_fill_windows(&t->val, at, rows, 0);
            n += (double)loader_count(&t->val, c, rows);
        }
        t->val_targets[i] = sc_host_sum(t->r, n);
    }
    t->counted = true;
}

/* A validation is one step over all its windows: counts of targets are those of the whole, so that neither the world
 * nor the batch matters. The last windows may be fewer than a global batch has rows. Then a pass takes as many as
 * divide it, each the same number of times: a mean over rows, or over targets that count, is that of the windows. */
static int64_t pass_windows(int64_t left, int64_t global_batch) {
    int64_t n = left < global_batch ? left : global_batch;
    while (global_batch % n) n--;
    return n;
}

/* With --ema: the weights' average takes their place, or gives it back. Before the first update they are one. */
static void swap_average(Trainer *t) {
    int64_t updates = 0;
    if (!t->o->ema) return;
    sc_read(t->r, 0, t->b->step_at, &updates, sizeof updates);
    if (updates) sc_run_program(t->r, program_named(t->b, "swap"));
}

/* The loss of n windows from `first` on, as their share of the whole. */
static double eval_pass(Trainer *t, int64_t first, int64_t n) {
    int64_t at = t->samples.at * t->val.layout.batch % n;
    loader_fill_windows(&t->val, first, n, at);
    t->record.first_sample = first + at;
    loader_upload(&t->val, t->r);
    sc_record_write(t->r, &t->record);
    sc_run_program(t->r, program_named(t->b, "eval"));
    sc_read(t->r, 0, t->b->metrics_at, t->metrics, sizeof *t->metrics);
    return t->metrics[LOSS] / t->samples.of * ((double)n / (double)t->run->val_windows);
}

static void evaluate_weights(Trainer *t) {
    double begin = sc_now_s(), loss = 0, windows = (double)t->run->val_windows;
    char of[64] = "", a[32], b[32];
    int64_t batch = t->val.layout.batch, n;
    if (!t->counted) count_val_targets(t);
    begin_record(t, t->done, 1);
    for (int i = 0; i < t->b->ncounts && i < SC_COUNTS; i++)
        t->record.count[i] = t->val_targets[i] > 0 ? (float)(t->val_targets[i] / windows * (double)batch) : 1;
    for (int64_t at = 0; at < t->run->val_windows; at += n) {
        if ((t->stopped = sc_heed(t->r, true))) return;
        n = pass_windows(t->run->val_windows - at, batch * t->samples.of);
        loss += eval_pass(t, at, n);
    }
    t->evaluated = t->done;
    t->worse = loss < t->best ? 0 : t->worse + 1;
    t->best = fmin(loss, t->best);
    t->over = t->o->patience && t->worse >= t->o->patience;
    if (t->rank == 0) {
        bar_clear(&t->bar);
        if (t->run->val_windows < t->run->val.windows) snprintf(of, sizeof of, "the first %s of ", grouped(windows, a));
        printf("step %" PRId64 "  val_loss %.6g  (%s%s %s%s)\n", t->done, loss, of,
               grouped((double)t->run->val.windows, b), t->run->val.arrays ? "sample" : "window",
               t->run->val.windows == 1 ? "" : "s");
        printed();
    }
    log_begin(&t->log, t->done);
    log_number(&t->log, "val_loss", loss);
    log_number(&t->log, "val_targets", t->b->ncounts ? t->val_targets[0] : windows);
    log_number(&t->log, "seconds", sc_now_s() - begin);
    end_line(t);
}

/* A save that fails ends no run: the next one tries again, and the last one decides. Of many that fail in a row fewer
 * and fewer are told: the 1st, 2nd, 4th and so on. */
static bool tell_saved(Trainer *t, int64_t step, bool saved) {
    int failed = t->failed_saves;
    t->failed_saves = saved ? 0 : failed + 1;
    if (t->rank != 0 || (saved && !failed)) return saved;
    bar_clear(&t->bar);
    printed();
    if (saved)
        note("saved %s at step %" PRId64 ", after %d failed save%s", t->o->save, step, failed, failed == 1 ? "" : "s");
    else if (!(failed & (failed + 1)))
        note("step %" PRId64 ": %s; the run goes on, and the next save tries again", step, saver_trouble(t->saver));
    return saved;
}

static Progress progress(Trainer *t) {
    Progress p = {.step = t->done,
                  .position = t->position,
                  .tokens = t->tokens,
                  .seed = t->run->seed,
                  .global_batch = t->run->global_batch};
    if (state_counts_steps(t->b)) sc_read(t->r, 0, t->b->step_at, &p.adam_step, sizeof p.adam_step);
    if (t->b->has_scaler) sc_read(t->r, 0, t->b->scaler_at, &p.scaler, sizeof p.scaler);
    return p;
}

/* Validates; a state that is better than all before is kept. A failure to keep it ends no run. */
static void evaluate(Trainer *t) {
    swap_average(t);
    evaluate_weights(t);
    swap_average(t);
    if (!t->keeper || t->stopped || t->worse || t->done == t->run->first) return;
    Progress p = progress(t);
    p.best = true;
    p.val_loss = t->best;
    if (!saver_save(t->keeper, t->r, &p) && t->rank == 0)
        note("step %" PRId64 ": %s; the run goes on", t->done, saver_trouble(t->keeper));
}

/* The save under way, if any: as far as it goes now, or, with `wait`, to its end. */
static SaverState go_on_saving(Trainer *t, bool wait) {
    SaverState x = saver_go_on(t->saver, t->r, wait);
    if (x != SAVER_SAVED) return x;
    t->saved = saver_step(t->saver);
    if (t->rank == 0) t->run->reached->saved = t->saved;
    return x;
}

/* The same of one that was left to the background: what it comes to is told. */
static void look_after_save(Trainer *t, bool wait) {
    SaverState x = t->saver ? go_on_saving(t, wait) : SAVER_IDLE;
    if (x == SAVER_SAVED || x == SAVER_FAILED) tell_saved(t, saver_step(t->saver), x == SAVER_SAVED);
}

/* false: it has failed. One that is left to the background has then only begun. */
static bool save(Trainer *t, bool wait) {
    Progress p = progress(t);
    look_after_save(t, true); /* the one before */
    return saver_begin(t->saver, t->r, &p) && (!wait || go_on_saving(t, true) == SAVER_SAVED);
}

static void save_and_go_on(Trainer *t) {
    bool waits = !t->o->save_in_background, fine = save(t, waits);
    if (waits || !fine) tell_saved(t, t->done, fine);
}

/* What signals ask for, between two steps. false: the run stops. */
static bool heed(Trainer *t) {
    int signal = t->stopped ? 0 : sc_heed(t->r, false);
    if (signal && signal != SIGUSR1) t->stopped = signal;
    if (signal != SIGUSR1) return !t->stopped;
    look_after_save(t, true);
    bool saved = t->saver && (t->saved == t->done || tell_saved(t, t->done, save(t, true)));
    if (t->rank == 0) {
        bar_clear(&t->bar);
        printed();
        if (!t->saver && !t->told_unsaved)
            note("SIGUSR1 asks to save, and there is no --save DIR: nothing is saved, the run goes on");
        t->told_unsaved = true;
        if (saved && !t->o->quiet) printf("saved %s at step %" PRId64 "\n", t->o->save, t->done);
        printed();
    }
    return true;
}

/* A run that is stopped halfway only saves what is new. One that is stopped after its last step writes everything; only
 * validation and sample end early. What cannot be written keeps nothing else from being written. */
static void finish(Trainer *t) {
    bool halfway = t->stopped && t->done < t->o->steps && !t->over;
    if (t->rank == 0) bar_clear(&t->bar);
    if (!t->stopped && t->run->val.n && t->evaluated != t->done) evaluate(t);
    look_after_save(t, true);
    bool saves = t->saver && t->saved != t->done && (!halfway || t->done > t->run->first),
         saved = saves && save(t, true);
    if (saved) tell_saved(t, t->done, true);
    if (saves && !saved) {
        if (t->rank == 0) complain("%s", saver_trouble(t->saver));
        t->code = EXIT_INPUT;
    }
    swap_average(t); /* for good: nothing trains or saves from here on */
    if (t->exporter && !halfway && !exporter_run(t->exporter, t->r)) t->code = EXIT_INPUT;
    begin_record(t, t->done, 1);
    if (t->sampler && !t->stopped) t->stopped = sampler_run(t->sampler, t->r, &t->record);
    if (!t->stopped) t->stopped = sc_heed(t->r, true);
    t->run->reached->stopped = t->stopped;
}

/* The last line of a run, for who follows its log. */
static void log_ending(Trainer *t) {
    log_begin(&t->log, t->done);
    log_text(&t->log, "end",
             t->code                  ? "failed"
             : t->over                ? "patience"
             : t->done >= t->o->steps ? "complete"
             : t->stopped             ? "stopped"
                                      : "input ended");
    end_line(t);
}

/* ── the beginning ───────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* "tokens int32[8,64], targets int32[8,64]": what a record is, for who writes the other end of the pipe. */
static void print_record(const Trainer *t) {
    char a[32];
    const char *comma = "";
    printf("data     records of %s bytes from standard input: ", grouped((double)records_bytes(t->run->records), a));
    for (int i = 0; i < t->b->ninputs; i++) {
        const sc_input_info *in = &t->b->inputs[i];
        if (in->sample_only) continue;
        printf("%s%s %s[", comma, in->name, host_dtype_name(input_record_dtype(in)));
        for (int d = 0; d < in->dims || d == 0; d++)
            printf("%s%" PRId64, d ? "," : "", (d < in->dims ? in->shape[d] : 1) * (d ? 1 : t->samples.of));
        printf("]");
        comma = ", ";
    }
    printf("\n");
}

/* "1 file, 1,000 tokens, 62 windows of 17, 7 tokens at files' ends left out", or "2 arrays, 500 samples". */
static void print_tokens(const TokenSet *s) {
    char a[32], b[32], c[32];
    uint64_t left = token_set_left(s);
    if (s->arrays) {
        printf("%d array%s, %s sample%s", s->n, s->n == 1 ? "" : "s", grouped((double)s->windows, b),
               s->windows == 1 ? "" : "s");
        return;
    }
    printf("%d file%s, %s tokens, %s window%s of %" PRId64, s->n, s->n == 1 ? "" : "s", grouped((double)s->tokens, a),
           grouped((double)s->windows, b), s->windows == 1 ? "" : "s", s->span);
    if (left) printf(", %s token%s at files' ends left out", grouped((double)left, c), left == 1 ? "" : "s");
}

static void print_beginning(const Trainer *t) {
    char a[32], b[32], device[512];
    const TokenSet *s = &t->run->train;
    int64_t params = 0, tokens = (int64_t)per_step(t, t->train.layout.tokens);
    for (int i = 0; i < t->b->nparams; i++) params += t->b->params[i].buffer ? 0 : t->b->params[i].numel;
    printf("model    %s (%s%s%s), %s parameters, on %s: %d rank%s", t->b->name, t->b->model_file,
           t->b->policy ? ", policy " : "", t->b->policy ? t->b->policy : "", grouped((double)params, a), t->b->target,
           t->b->world, t->b->world == 1 ? "" : "s");
    if (threads_compute(t->b)) printf(" of %d thread%s", t->b->threads, t->b->threads == 1 ? "" : "s");
    printf("\n");
    sc_describe_device(t->r, device, sizeof device);
    if (*device) printf("device   %s\n", device);
    for (int host = 0; host < 2; host++)
        printf("%-8s %s B predicted, %s B allocated, on each rank\n", host ? "host" : "arena",
               grouped((double)(host ? t->b->host_bytes : t->b->arena_bytes), a),
               grouped((double)sc_allocated(t->r, host), b));
    if (t->copied)
        printf("copy     %s B more of host memory on a rank, for the state that is saved in the background\n",
               grouped((double)t->copied, a));
    printf("batch    %s samples", grouped((double)t->run->global_batch, a));
    if (tokens) printf(", %s tokens", grouped((double)tokens, b));
    printf(" a step: %d rank%s x %d microbatch%s x %s\n", t->b->world, t->b->world == 1 ? "" : "s", t->o->accumulate,
           t->o->accumulate == 1 ? "" : "es", grouped((double)t->train.layout.batch, a));
    if (t->run->records) print_record(t);
    if (s->n) {
        double steps = (double)s->windows / (double)t->run->global_batch;
        printf("data     ");
        print_tokens(s);
        if (steps < 1000 && steps != floor(steps))
            printf("; an epoch is %.1f steps\n", steps);
        else
            printf("; an epoch is %s step%s\n", grouped(steps, a), steps == 1 ? "" : "s");
    }
    if (t->run->val.n) {
        printf("validate ");
        print_tokens(&t->run->val);
        if (t->run->val_windows == t->run->val.windows)
            printf("; all %s are taken\n", t->run->val.arrays ? "samples" : "windows");
        else
            printf("; the first %s are taken\n", grouped((double)t->run->val_windows, a));
    }
    if (t->run->weights) {
        char *told = weights_told(t->run->weights);
        printf("weights  %s\n", told);
        free(told);
    }
    if (t->exporter) {
        char *told = exporter_told(t->exporter, t->run->weights);
        printf("export   %s\n", told);
        free(told);
    }
    if (t->o->steps > t->done) {
        const Schedule *s = &t->run->schedule;
        char *rates = schedule_text(s, t->o->lr, t->done, t->o->steps),
             *doubt = schedule_doubt(s, t->o->lr, t->done, t->o->steps);
        printf("schedule %s\n", rates);
        if (doubt) printf("warning  %s\n", doubt);
        free(rates);
        free(doubt);
    }
    for (size_t k = 0; k < sizeof t->b->unused / sizeof *t->b->unused; k++)
        if (t->b->unused[k]) printf("unused   %s\n", t->b->unused[k]);
    if (t->run->resume)
        printf("resumed  %s at step %" PRId64 ", saved by %d rank%s\n", t->o->resume, t->done,
               checkpoint_world(t->run->resume), checkpoint_world(t->run->resume) == 1 ? "" : "s");
    printed();
}

/* What the driver counts for the process, of the rank that has most, beside what was predicted. */
static void report_device(Trainer *t) {
    char used[32], predicted[32];
    double mine = (double)sc_device_used(t->r), most = -1;
    if (strcmp(t->b->target, "cuda")) return;
    for (int k = 0; k < t->b->world; k++) most = fmax(most, sc_host_sum(t->r, k == t->rank ? mine : 0));
    if (most <= 0) return;
    uint64_t expected = t->b->arena_bytes + t->b->library_bytes;
    if (t->rank == 0 && !t->o->quiet)
        printf("process  %s B predicted, %s B used, on the fullest GPU\n", grouped((double)expected, predicted),
               grouped((double)most, used));
    printed();
    log_begin(&t->log, t->done);
    log_whole(&t->log, "device_bytes_predicted", (int64_t)expected);
    log_whole(&t->log, "device_bytes_used", (int64_t)(t->log_each ? mine : most));
    end_line(t);
}

/* A step as predicted, on the device that the program was planned for; 0: not known. */
static double predicted_step(const Trainer *t) {
    double ns = 0;
    for (int i = 0; i < t->b->nprograms; i++) {
        const sc_program_info *p = &t->b->programs[i];
        bool edge = !strcmp(p->name, "micro_first") || !strcmp(p->name, "micro_last");
        if (edge || !strcmp(p->name, "micro"))
            ns += (double)p->predicted_ns * (edge || t->o->accumulate == 1 ? 1 : t->o->accumulate - 2);
    }
    return ns * 1e-9;
}

/* "train.bin", "train-0.bin and 7 more" */
static void log_files(Log *l, const char *name, const Names *files) {
    char text[256];
    if (!files->n) return;
    if (files->n == 1)
        snprintf(text, sizeof text, "%.200s", files->at[0]);
    else
        snprintf(text, sizeof text, "%.200s and %d more", files->at[0], files->n - 1);
    log_text(l, name, text);
}

/* What tells this run from others. Options of the model, and who decides its policies, were fixed when it was built. */
static void log_options(Trainer *t) {
    const Options *o = t->o;
    Log *l = &t->log;
    log_number(l, "lr", o->lr);
    log_whole(l, "batch", t->run->global_batch);
    log_whole(l, "seed", (int64_t)t->run->seed);
    log_files(l, "data", &o->data);
    log_files(l, "val_data", &o->val_data);
    log_files(l, "weights", &o->weights);
    log_whole(l, "accumulate", o->accumulate);
    log_text(l, "schedule", t->b->schedule ? t->b->schedule : "constant");
    log_whole(l, "warmup", o->warmup);
    log_whole(l, "total", o->total);
    log_number(l, "weight_decay", o->weight_decay);
    log_number(l, "clip", o->clip);
    if (t->b->policy) log_text(l, "policy", t->b->policy);
    static const char *const told[] = {"lr", "batch", "accumulate", "warmup", "total", "weight_decay", "clip"};
    for (int i = 0; i < t->b->noptions; i++) {
        char name[64];
        bool again = false; /* the run has a say in it, and has said it above */
        for (size_t k = 0; k < sizeof told / sizeof *told; k++) again |= !strcmp(t->b->options[i].name, told[k]);
        if (again) continue;
        snprintf(name, sizeof name, "option %.50s", t->b->options[i].name);
        log_text(l, name, t->b->options[i].value);
    }
}

/* The first line of a run, or of a part of it: what began, where, and what was predicted of it. */
static void log_start(Trainer *t) {
    char now[32] = "";
    time_t seconds = time(NULL);
    struct tm utc;
    bool tokens = t->train.layout.tokens > 0;
    if (gmtime_r(&seconds, &utc)) strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &utc);
    log_begin(&t->log, t->done);
    log_text(&t->log, "model", t->b->name);
    log_text(&t->log, "target", t->b->target);
    log_text(&t->log, "start", now);
    log_whole(&t->log, "world", t->b->world);
    if (t->log_each) log_whole(&t->log, "rank", t->rank);
    log_whole(&t->log, "steps", t->o->steps);
    log_number(&t->log, "predicted_step_s", predicted_step(t));
    log_whole(&t->log, "arena_bytes", (int64_t)t->b->arena_bytes);
    log_whole(&t->log, "arena_allocated", (int64_t)sc_allocated(t->r, false));
    log_whole(&t->log, "host_bytes", (int64_t)t->b->host_bytes);
    if (t->b->usable_bytes) log_whole(&t->log, "usable_bytes", (int64_t)t->b->usable_bytes);
    for (int i = 0; i < t->b->npeak; i++) {
        char name[64];
        snprintf(name, sizeof name, "peak %s", t->b->peak[i].name);
        log_whole(&t->log, name, t->b->peak[i].bytes);
    }
    if (t->run->train.n)
        log_whole(&t->log, "epoch",
                  t->run->train.windows * (tokens ? t->train.layout.tokens / t->train.layout.batch : 1));
    log_options(t);
    end_line(t);
}

/* Processes that a launcher started read the state one after the other: a run that saves there may have replaced it. */
static void check_one_state(sc_rank *r, const Run *run) {
    if (!run->o.resume && !run->o.go_on) return;
    int64_t first = (int64_t)sc_host_sum(r, sc_rank_index(r) ? 0 : (double)run->first);
    double sum = run->resume ? (double)checkpoint_sum(run->resume) : 0;
    if (sc_host_sum(r, sc_rank_index(r) ? 0 : sum) != sum)
        die("%s: rank 0 has read its state at step %" PRId64 ", and rank %d another one at step %" PRId64
            ": another run saves there; resume when it has ended, or from a copy",
            run->o.go_on ? run->o.go_on : run->o.resume, first, sc_rank_index(r), run->first);
}

static Trainer trainer_new(sc_rank *r, Run *run) {
    const Options *o = &run->o;
    int rank = sc_rank_index(r);
    Trainer t = {.run = run,
                 .b = run->b,
                 .o = o,
                 .r = r,
                 .rank = rank,
                 .samples = sc_samples_of(run->b, rank),
                 .done = run->first,
                 .position = run->position,
                 .tokens = run->tokens,
                 .saved = -1,
                 .evaluated = -1,
                 .best = INFINITY};
    t.train = loader_new(run->b, run->train.n ? &run->train : NULL, run->records, run->seed);
    if (run->val.n) t.val = loader_new(run->b, &run->val, NULL, run->seed);
    if (o->save)
        t.saver = saver_new(run->b, o->save, (int)o->keep, o->save_in_background, rank, checkpoint_run(run->resume),
                            run->given);
    int states = o->save ? saver_states(t.saver) : 0;
    if (rank == 0 && states > o->keep && !args_given(o, "keep"))
        note("%s holds %d states, and --keep is not given: the next save leaves the new one alone; --keep %d keeps as "
             "many",
             o->save, states, states);
    if (run->best) {
        t.keeper = saver_new(run->b, run->best, 1, false, rank, checkpoint_run(run->resume), run->given);
        t.best = sc_host_sum(r, rank ? 0 : saver_val_loss(run->best));
    }
    for (int k = 0; o->save_in_background && k < run->b->world; k++)
        t.copied = (uint64_t)fmax((double)t.copied, sc_host_sum(r, k == rank ? (double)saver_copied(t.saver) : 0));
    if (o->export_path) t.exporter = exporter_new(run->b, o, run->weights, rank);
    if (o->sample) t.sampler = sampler_new(run->b, o, &run->prompt);
    t.log_path = log_path(o->log, rank);
    t.log_each = o->log && strstr(o->log, LOG_RANK);
    t.log = log_open(t.log_path, run->resume ? run->first : -1, run->b->metrics, run->b->nmetrics);
    t.bar = bar_new(o->quiet, run->first + 1, o->steps, t.train.layout.tokens ? "tok/s" : "samples/s");
    t.metrics = need((size_t)run->b->nmetrics + 2, sizeof *t.metrics);
    return t;
}

int train_rank(sc_rank *r, void *arg) {
    check_one_state(r, arg);
    Trainer t = trainer_new(r, arg);
    begin_record(&t, t.done, 1);
    sc_record_write(r, &t.record);
    sc_run_program(r, program_named(t.b, "init"));
    sc_barrier(r);
    if (t.run->weights) weights_load(t.run->weights, r);
    if (t.run->resume) checkpoint_load(t.run->resume, r);
    sc_barrier(r);
    if (program_named(t.b, "start") >= 0) sc_run_program(r, program_named(t.b, "start"));
    if (t.rank == 0 && !t.o->quiet) print_beginning(&t);
    if (t.log_path) log_start(&t);
    report_device(&t);
    pthread_setname_np(pthread_self(), "sc training"); /* from here to "sc trained" nothing allocates */
    RecordsStep records = RECORDS_READ;
    double begin = sc_seconds(r), most = t.o->time_limit * 3600;
    while (records != RECORDS_ENDED && t.done < t.o->steps && !t.over && heed(&t)) {
        records = train_step(&t);
        if (t.rank == 0 && most > 0 && sc_seconds(r) - begin > most && !sc_asked(r)) raise(SIGTERM);
        if (records != RECORDS_READ) continue;
        if (t.o->eval_every && t.done % t.o->eval_every == 0) evaluate(&t);
        look_after_save(&t, false);
        if (t.o->save_every && t.done % t.o->save_every == 0) save_and_go_on(&t);
    }
    pthread_setname_np(pthread_self(), "sc trained");
    if (t.rank == 0) bar_clear(&t.bar);
    if (t.over && t.rank == 0)
        note("step %" PRId64 ": %" PRId64
             " validations found no val_loss below %.6g, as --patience allows; the run ends",
             t.done, t.worse, t.best);
    if (records == RECORDS_ENDED) { /* before the last step: worth a note, and an error where there were none at all */
        printed();
        if (t.done == t.run->first)
            die("standard input held no record for step %" PRId64 ": let a program write records into it, or give "
                "--data FILE...",
                t.done + 1);
        if (t.rank == 0) note("standard input ended: stopped after step %" PRId64 " of %" PRId64, t.done, t.o->steps);
    }
    report_device(&t);
    finish(&t);
    log_ending(&t);
    loader_free(&t.train);
    loader_free(&t.val);
    saver_free(t.saver);
    saver_free(t.keeper);
    exporter_free(t.exporter);
    sampler_free(t.sampler);
    log_close(&t.log);
    free(t.log_path);
    free(t.metrics);
    return t.code;
}
