/* The training program as a whole, over the mock target: training, saving, resuming at other world sizes, export,
 * records, sampling. Relies on: host_run.h.
 * Relied on by: make test. */
#include "../../runtime/host/checkpoint.h"
#include "../../runtime/host/dtype.h"
#include "host_run.h"
#include <signal.h>
#include <sys/file.h>

TestSuite(host_run, .init = enter, .fini = leave, .timeout = 60);

/* ── training ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(host_run, trains_and_logs) {
    write_data();
    OK(2, "--data a.bin b.bin --val-data val.bin --eval-every 2 --steps 5 --log log.jsonl");
    cr_assert(strstr(out, "arena    ") && strstr(out, "predicted") &&
                  strstr(out, "batch    8 samples, 128 tokens a step: 2 ranks x 1 microbatch x 4"),
              "%s", out);
    cr_assert(strstr(out, "data     2 files, 1,700 tokens, 105 windows of 17, 18 tokens at files' ends left out; an "
                          "epoch is 13.1 steps"),
              "%s", out);
    cr_assert(strstr(out, "step 5/5") && strstr(out, "val_loss"), "%s", out);
    cr_assert(strchr(out, '\033') == NULL && strchr(out, '\r') == NULL);
    slurp("log.jsonl", out, sizeof out);
    cr_assert_eq(lines_of(out), 1 + 5 + 3 + 1, "%s", out);
    cr_assert(!strncmp(out, "{\"step\": 0, \"model\": ", 21) && strstr(out, "\"steps\": 5, \"predicted_step_s\": 0,"),
              "%s", out);
    cr_assert(strstr(out, "{\"step\": 1, \"loss\": 0.") && strstr(out, "\"tokens\": 640") &&
                  strstr(out, "\"tokens \\\"seen\\\"\": "),
              "%s", out);
}

Test(host_run, files_without_a_window_are_named) {
    write_data();
    write_bin("short.bin", 16, 1);
    OK(2, "--data short.bin a.bin --val-data val.bin --steps 1");
    ONE_LINE(
        "note: --data: 1 of 2 files, short.bin first, have fewer tokens than a window of 17: nothing of them is used");
}

static void losses(const char *path, double *loss) {
    char line[4096];
    FILE *f = fopen(path, "r");
    for (int step; f && fgets(line, sizeof line, f);)
        if (sscanf(line, "{\"step\": %d, \"loss\": %lf", &step, &loss[0]) == 2) loss++;
    if (f) fclose(f);
}

Test(host_run, worlds_agree) {
    static const How hows[] = {{1}, {2}, {4}, {4, .shards = 2}, {1, .accumulate = 2}, {2, .accumulate = 4}};
    write_data();
    for (int i = 0; i < 6; i++) {
        double a[6] = {0}, b[6] = {0};
        char line[256];
        snprintf(line, sizeof line, "--data *.bin --steps 6 --log l%d --export w%d.st --quiet", i, i);
        cr_assert_eq(run(hows[i], line), 0, "%s", err);
        cr_assert_str_empty(out);
        losses("l0", a);
        snprintf(line, sizeof line, "l%d", i);
        losses(line, b);
        for (int k = 0; k < 6; k++)
            cr_assert(a[k] > 0.1 && fabs(a[k] - b[k]) < 1e-6 * a[k], "step %d: %g and %g", k, a[k], b[k]);
        snprintf(line, sizeof line, "w%d.st", i);
        cr_assert(i >= 4 || same_files("w0.st", line), "world %d", hows[i].world);
    }
}

/* A line for every microbatch: its place, and what the record holds for both groups. */
static void write_record(const char *program, int64_t step) {
    if (strncmp(program, "micro", 5) != 0) return;
    const sc_record *r = mock_record(0);
    FILE *f = fopen("seen", "a");
    fprintf(f, "%s %d %d %d %g %g %g %g\n", program, (int)r->step, (int)r->micro, (int)r->first_sample,
            (double)r->lr[0], (double)r->lr[1], (double)r->weight_decay[0], (double)r->weight_decay[1]);
    if (fclose(f) != 0) _exit(99);
}

static void expect_records(How how, const char *line, const char *expected) {
    char seen[4096];
    how.hook = write_record;
    remove("seen");
    cr_assert_eq(run(how, line), 0, "%s", err);
    slurp("seen", seen, sizeof seen);
    cr_assert_str_eq(seen, expected, "%s", line);
}

static void ratios(MockBuild *m) {
    m->groups[1].weight_decay = 0.05;
}
static void still_base(MockBuild *m) {
    m->groups[0] = (sc_group_info){0, 0};
    m->groups[1] = (sc_group_info){0.02, 0.3};
}

Test(host_run, records_tell_the_microbatch_and_its_groups) {
    const char *line = "--data a.bin --steps 1 --warmup 0 --lr 0.1 --weight-decay 0.4 --quiet";
    write_data();
    expect_records((How){2, .accumulate = 2}, "--data a.bin --steps 2 --warmup 0 --min-ratio 1 --quiet",
                   "micro_first 0 0 0 0.01 0.02 0.1 0\nmicro_last 0 1 4 0.01 0.02 0.1 0\n"
                   "micro_first 1 0 0 0.01 0.02 0.1 0\nmicro_last 1 1 4 0.01 0.02 0.1 0\n");
    expect_records((How){1, .change = ratios}, line, "micro 0 0 0 0.1 0.2 0.4 0.2\n"); /* as the model has them */
    expect_records((How){1, .change = still_base}, line, "micro 0 0 0 0.1 0.02 0.4 0.3\n");
}

Test(host_run, steps_default_to_the_schedule) {
    write_data();
    OK(1, "--data a.bin");
    cr_assert(strstr(out, "step 8/8"), "%s", out);
    OK(1, "--data a.bin --steps 0");
    cr_assert(!strstr(out, "step "), "%s", out);
    OK(1, "--data a.bin --steps 1 --log /dev/null --trace /dev/null");
    OK(1, "--data a.bin --steps 3 --seed 5 --betas 0.8,0.9 --lr 0.5 --warmup 0 --total 10 --min-ratio 0 --eps 1e-6 "
          "--weight-decay 0.2 --clip 0.5 --threads 1 "
          "--sample 2 --temperature 0.5 --top-k 3 --log log");
    slurp("log", out, sizeof out);
    cr_assert(strstr(out, "\"lr\": 0.5,"), "%s", out);
}

Test(host_run, nan_stops_with_3) {
    write_data();
    cr_assert_eq(run((How){2, .nan_step = 3}, "--data a.bin --steps 5 --log log --save state"), 3);
    ONE_LINE("mock: step 3: the loss is NaN; stopped");
    cr_assert(strstr(err, "Lower --lr"), "%s", err);
    cr_assert_eq(run((How){2, .nan_step = 3, .nan_metric = 1}, "--data a.bin --steps 5"), 3);
    ONE_LINE("mock: step 3: the gradient norm is NaN; stopped");
    slurp("log", out, sizeof out);
    cr_assert_eq(lines_of(out), 1 + 2);
    cr_assert_eq(run((How){2, .nan_step = 3}, "--data a.bin --steps 5 --log log --allow-nan"), 0);
    slurp("log", out, sizeof out);
    cr_assert(lines_of(out) == 1 + 5 + 1 && strstr(out, "\"loss\": null"));
}

/* Before a run's first step nothing was updated: no advice about the learning rate. */
Test(host_run, nan_in_a_first_step) {
    write_data();
    cr_assert_eq(run((How){2, .nan_step = 1}, "--data a.bin --steps 5"), 3);
    ONE_LINE("mock: step 1: the loss is NaN; stopped. It is this run's first step, so the cause is in the model, its "
             "initial "
             "values or the data: --check-finite names");
    cr_assert(!strstr(err, "--lr"), "%s", err);
    OK(1, "--data a.bin --steps 2 --save state");
    cr_assert_eq(run((How){1, .nan_step = 3}, "--data a.bin --steps 5 --resume state"), 3);
    ONE_LINE("mock: step 3: the loss is NaN; stopped. It is this run's first step");
}

/* ── saving and resuming ─────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(host_run, resumes_bit_for_bit) {
    write_data();
    OK(2, "--data a.bin b.bin --steps 6 --export whole.st --log whole --seed 9 --quiet");
    OK(2, "--data a.bin b.bin --steps 3 --save state --log parts --seed 9 --quiet");
    OK(2, "--data a.bin b.bin --steps 4 --resume state --save state --log parts --quiet");
    OK(2, "--data a.bin b.bin --steps 6 --resume state --save state --export parts.st --log parts");
    cr_assert(strstr(out, "resumed  state at step 4, saved by 2 ranks"), "%s", out);
    cr_assert(same_files("whole.st", "parts.st"));
    double a[6], b[6];
    losses("whole", a);
    losses("parts", b);
    for (int i = 0; i < 6; i++) cr_assert(a[i] == b[i]);
}

static void expect_same_weights(const char *a, const char *b) {
    static char x[1 << 16], y[1 << 16];
    StFile f, g;
    char e[ST_ERROR];
    cr_assert(st_open(&f, a, e) && st_open(&g, b, e));
    for (int i = 0; i < f.n; i++) {
        const StTensor *t = &f.tensors[i], *u = st_find(&g, t->name);
        if (strcmp(t->name, "norm.mean") == 0) continue; /* buffers are each rank's own */
        cr_assert(u && st_read(&f, t, 0, t->numel, x) && st_read(&g, u, 0, u->numel, y));
        cr_assert(memcmp(x, y, t->end - t->begin) == 0, "%s of %s and %s", t->name, a, b);
    }
    st_close(&f);
    st_close(&g);
}

Test(host_run, resumes_at_any_world) {
    static const How hows[] = {{1}, {2}, {4}, {4, .shards = 2}, {4, .shards = 1}};
    write_data();
    OK(1, "--data a.bin --steps 7 --export whole.st --quiet");
    for (int from = 0; from < 5; from++)
        for (int to = 0; to < 5; to++) {
            cr_assert_eq(system("rm -rf state"), 0);
            cr_assert_eq(run(hows[from], "--data a.bin --steps 4 --save state --quiet"), 0, "%s", err);
            cr_assert_eq(run(hows[to], "--data a.bin --steps 7 --resume state --export parts.st --quiet"), 0, "%s",
                         err);
            expect_same_weights("whole.st", "parts.st");
        }
}

/* ── moments of either dtype ─────────────────────────────────────────────────────────────────────────────────────────
 */
static void narrow_moments(MockBuild *m) {
    for (int u = 0; u < MOCK_UNITS; u++) m->units[u].moments = BF16;
}
static void half_moments(MockBuild *m) {
    m->units[1].moments = FP16;
}

/* Every moment of the files is what `from`'s becomes when it is converted; all else is the same. */
static void expect_converted(const char *from, const char *to, sc_dtype there, sc_dtype here) {
    static uint8_t x[1 << 16], y[1 << 16], want[1 << 16];
    for (int rank = 0; rank < 2; rank++) {
        char path[2][80], e[ST_ERROR];
        StFile f, g;
        snprintf(path[0], sizeof path[0], "%s/step-00000003/rank-%d.safetensors", from, rank);
        snprintf(path[1], sizeof path[1], "%s/step-00000003/rank-%d.safetensors", to, rank);
        cr_assert(st_open(&f, path[0], e) && st_open(&g, path[1], e), "%s", e);
        cr_assert_eq(f.n, g.n);
        int moments = 0;
        for (int i = 0; i < f.n; i++) {
            const StTensor *t = &f.tensors[i], *u = st_find(&g, t->name);
            cr_assert(u && st_read(&f, t, 0, t->numel, x) && st_read(&g, u, 0, u->numel, y));
            bool moment = strstr(t->name, "#moment") != NULL;
            sc_dtype was = (sc_dtype)t->sc_dtype, is = (sc_dtype)u->sc_dtype;
            cr_assert(moment ? was == there && is == here : was == is, "%s", t->name);
            host_convert(is, want, was, x, t->numel);
            cr_assert(!memcmp(want, y, u->end - u->begin), "%s", t->name);
            moments += moment;
        }
        cr_assert_gt(moments, 2);
        st_close(&f);
        st_close(&g);
    }
}

Test(host_run, resumes_moments_of_the_other_dtype) {
    How wide = {2}, narrow = {2, .change = narrow_moments};
    write_data();
    cr_assert_eq(run(wide, "--data a.bin --steps 3 --save wide --quiet"), 0, "%s", err);
    cr_assert_eq(run(narrow, "--resume wide --save narrow --steps 0 --quiet"), 0, "%s", err);
    cr_assert(
        strstr(err, "note: wide: the optimizer's moments are fp32 there and bf16 in this build: rounded to nearest"),
        "%s", err);
    expect_converted("wide", "narrow", FP32, BF16);
    cr_assert_eq(run(wide, "--resume narrow --save wider --steps 0 --quiet"), 0, "%s", err);
    cr_assert(strstr(err, "moments are bf16 there and fp32 in this build: taken as they are"), "%s", err);
    expect_converted("narrow", "wider", BF16, FP32);
    cr_assert_eq(run((How){2, .change = half_moments}, "--data a.bin --steps 3 --save half --quiet"), 0, "%s", err);
    cr_assert_eq(run(wide, "--resume half --export x.st"), 1);
    ONE_LINE("(moment1) is F16 there and F32 in this build");
}

Test(host_run, resumes_narrow_moments_bit_for_bit) {
    How narrow = {2, .change = narrow_moments}, other = {4, .shards = 2, .change = narrow_moments};
    write_data();
    cr_assert_eq(run(narrow, "--data a.bin --steps 6 --export whole.st --quiet"), 0, "%s", err);
    cr_assert_eq(run(narrow, "--data a.bin --steps 3 --save state --quiet"), 0, "%s", err);
    cr_assert_eq(run(narrow, "--data a.bin --steps 6 --resume state --export parts.st --quiet"), 0, "%s", err);
    cr_assert(same_files("whole.st", "parts.st") && !*err, "%s", err);
    OK(2, "--data a.bin --steps 6 --export wide.st --quiet");
    cr_assert(!same_files("whole.st", "wide.st"), "the dtype of the moments tells");
    cr_assert_eq(run(other, "--data a.bin --steps 6 --resume state --export others.st --quiet"), 0, "%s", err);
    expect_same_weights("whole.st", "others.st");
}

Test(host_run, cuts_the_log_back_on_resume) {
    write_data();
    OK(2, "--data a.bin --steps 4 --save state --quiet --log log");
    OK(2, "--data a.bin --steps 6 --resume state --quiet --log log");
    OK(2, "--data a.bin --steps 5 --resume state --quiet --log log");
    slurp("log", out, sizeof out);
    /* of three beginnings, one before each part; of the end of the first and of the last */
    cr_assert_eq(lines_of(out), 3 + 5 + 2, "%s", out);
    OK(2, "--data a.bin --steps 2 --quiet --log log");
    slurp("log", out, sizeof out);
    cr_assert_eq(lines_of(out), 1 + 2 + 1);
    cr_assert(strstr(out, "{\"step\": 2, \"end\": \"complete\"}\n"), "%s", out);
}

/* ── the page of a run ───────────────────────────────────────────────────────────────────────────────────────────────
 */
/* What stands behind `key` in the page; -1: it is not there. */
static double in_page(const char *page, const char *key) {
    const char *found = strstr(page, key);
    return found ? strtod(found + strlen(key), NULL) : -1;
}

static char page[1 << 18];

Test(host_run, writes_its_page) {
    write_data();
    OK(2, "--data a.bin --val-data val.bin --eval-every 2 --steps 4 --save state --log log --report page.html");
    slurp("page.html", page, sizeof page);
    cr_assert(!strncmp(page, "<!DOCTYPE html>", 15) && strstr(page, "</html>\n") && strstr(page, "\"going\":false"));
    cr_assert(strstr(page, "tokens \\u0022seen\\u0022") && access("page.html.part", F_OK) != 0);
    cr_assert_eq(in_page(page, "\"steps\":{\"lines\":"), 4);
    cr_assert_eq(in_page(page, "\"validations\":{\"lines\":"), 2);
    OK(2, "--data a.bin --steps 6 --resume state --quiet --log log --report page.html");
    slurp("page.html", page, sizeof page);
    cr_assert(strstr(page, "{\"step\":4,\"restart\":true"), "no restart");
    cr_assert_eq(in_page(page, "\"steps\":{\"lines\":"), 6);
    OK(2, "--data a.bin --steps 2 --quiet --log log --report page.html"); /* begins anew, not with the old log */
    slurp("page.html", page, sizeof page);
    cr_assert_eq(in_page(page, "\"steps\":{\"lines\":"), 2);
    cr_assert_eq(run((How){2, .nan_step = 3}, "--data a.bin --steps 5 --log log --report page.html"), 3);
    slurp("page.html", page, sizeof page);
    cr_assert(in_page(page, "\"steps\":{\"lines\":") == 2 && strstr(page, "\"going\":false"), "a run that failed");
}

static void few_files(MockBuild *m) { /* as many as are open, the data, and one: a pipe needs two */
    rlim_t next = (rlim_t)dup(0);
    close((int)next);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){next + 2, next + 2});
}

Test(host_run, says_why_there_is_no_page) {
    write_data();
    cr_assert(mkdir("folder", 0777) == 0);
    cr_assert_eq(run((How){2}, "--data a.bin --steps 2 --report p"), 2);
    cr_assert(strstr(err, "--report needs --log FILE"), "%s", err);
    cr_assert_eq(run((How){2}, "--data a.bin --steps 2 --log /dev/null --report p"), 1);
    ONE_LINE("mock: --report: /dev/null is not a regular file, and the page is made of the log");
    cr_assert_eq(run((How){2}, "--data a.bin --steps 2 --log log --report folder"), 1);
    ONE_LINE("mock: cannot write the report folder: it is not a regular file; name another one with --report");
    cr_assert_eq(run((How){2}, "--data a.bin --steps 2 --log log --report none/p"), 1);
    ONE_LINE("mock: cannot write the report none/p: No such file or directory; name another file with --report");
    cr_assert_eq(run((How){2}, "--data a.bin --steps 2 --log log --report log"), 1);
    ONE_LINE("mock: --log and --report are one file, log: name another for one of them");
    cr_assert_eq(run((How){1, .change = few_files}, "--data a.bin --steps 2 --log log --report p"), 1);
    ONE_LINE("mock: no process for --report: Too many open files; leave it out");
    cr_assert_eq(run((How){2, .file_limit = 20000}, "--data a.bin --steps 2 --log log --report p --quiet"), 0);
    cr_assert_str_eq(err, "shardc: cannot write the report p: File too large; the run goes on without it, and `shardc "
                          "report` makes one of the log\n"
                          "shardc: the report p lacks the end of the run: File too large\n");
    cr_assert(access("p", F_OK) != 0 && access("p.part", F_OK) != 0);
}

/* ── what signals ask for ────────────────────────────────────────────────────────────────────────────────────────────
 */
static int run_signalled(int signal, int64_t step, const char *line) {
    return run((How){2, .signal = signal, .signal_step = step}, line);
}

Test(host_run, a_signal_stops_between_steps_and_saves) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    write_data();
    OK(2, "--data a.bin --steps 6 --export whole.st --quiet");
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(system("rm -rf state x.st"), 0);
        cr_assert_eq(run_signalled(signals[i], 3,
                                   "--data a.bin --steps 6 --save state --export x.st --val-data val.bin --sample 3"),
                     128 + signals[i], "%s", err);
        cr_assert(strstr(out, "\nstopped at step 3\nsaved state at step 3\n") && !strstr(out, "val_loss"), "%s", out);
        cr_assert(access("x.st", F_OK) != 0 && !*err, "%s", err);
        OK(2, "--data a.bin --steps 6 --resume state --export parts.st");
        cr_assert(strstr(out, "resumed  state at step 3") && same_files("whole.st", "parts.st"), "%s", out);
    }
    cr_assert_eq(run_signalled(SIGTERM, 3, "--data a.bin --steps 6"), 143);
    cr_assert(strstr(out, "\nstopped at step 3\nnothing is saved without --save DIR\n"), "%s", out);
    cr_assert_eq(run_signalled(SIGTERM, 0, "--data a.bin --steps 6 --save none"), 143);
    cr_assert(strstr(out, "\nstopped at step 0\n") && access("none/index.json", F_OK) != 0, "%s", out);
}

Test(host_run, a_signal_at_the_end_cuts_validation_and_samples) {
    write_data();
    cr_assert_eq(run_signalled(SIGTERM, 2,
                               "--data a.bin --steps 2 --save state --export w.st --val-data val.bin --eval-every 2"),
                 143, "%s", err);
    cr_assert(strstr(out, "\nstopped at step 2\nsaved state at step 2\n") && !strstr(out, "val_loss"), "%s", out);
    OK(2, "--resume state --export x.st");
    cr_assert(same_files("w.st", "x.st"));
    cr_assert_eq(run_signalled(SIGINT, 2, "--data a.bin --steps 4 --save new --val-data val.bin --eval-every 2"), 130);
    cr_assert(strstr(out, "\nstopped at step 2\nsaved new at step 2\n") && !strstr(out, "val_loss"), "%s", out);
    cr_assert_eq(run_signalled(SIGTERM, 0, "--resume state --sample 5 --prompt abc"), 143);
    cr_assert(strstr(out, "\nabc\nstopped at step 2\n"), "%s", out);
    cr_assert_eq(run_signalled(SIGTERM, 1, "--data a.bin --steps 1"), 143);
    cr_assert(strstr(out, "\nstopped at step 1\n") && !strstr(out, "--save"), "%s", out);
}

Test(host_run, a_signal_saves_and_the_run_goes_on) {
    write_data();
    OK(2, "--data a.bin --steps 6 --export whole.st --quiet");
    cr_assert_eq(run_signalled(SIGUSR1, 3, "--data a.bin --steps 6 --save state --export parts.st"), 0, "%s", err);
    const char *saved = strstr(out, "\nsaved state at step 3\n");
    cr_assert(saved && strstr(saved, "step 6/6") && !*err && same_files("whole.st", "parts.st"), "%s", out);
    cr_assert_eq(run_signalled(SIGUSR1, 3, "--data a.bin --steps 6 --export parts.st"), 0);
    ONE_LINE("mock: note: SIGUSR1 asks to save, and there is no --save DIR: nothing is saved, the run goes on");
    cr_assert(same_files("whole.st", "parts.st"));
    write_records("records", 6, 8, false);
    cr_assert_eq(run((How){2, .input = "records"}, "--data - --steps 6 --export whole.st --quiet"), 0, "%s", err);
    How how = {2, .input = "records", .signal = SIGUSR1, .signal_step = 3};
    cr_assert_eq(run(how, "--data - --steps 6 --save from-records --export parts.st"), 0, "%s", err);
    cr_assert(strstr(out, "\nsaved from-records at step 2\n") && same_files("whole.st", "parts.st"), "%s", out);
}

/* ── tokens ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void expect_tokens(const char *log, int64_t step, int64_t tokens) {
    char line[64], figure[64];
    slurp(log, out, sizeof out);
    snprintf(line, sizeof line, "{\"step\": %d, \"loss\"", (int)step);
    snprintf(figure, sizeof figure, "\"tokens\": %d,", (int)tokens);
    const char *at = strstr(out, line), *found = at ? strstr(at, figure) : NULL;
    cr_assert(found && !memchr(at, '\n', (size_t)(found - at)), "no %s in step %d of\n%s", figure, (int)step, out);
}

Test(host_run, tokens_are_counted_across_resumes) { /* a sample has 16 */
    How six = {1, .accumulate = 4};
    write_data();
    OK(2, "--data a.bin --steps 3 --save state --log log --quiet");
    expect_tokens("log", 3, 3 * 8 * 16);
    cr_assert_eq(run(six, "--data a.bin --accumulate 3 --steps 5 --resume state --save state --log log"), 0, "%s", err);
    expect_tokens("log", 4, (3 * 8 + 6) * 16);
    expect_tokens("log", 5, (3 * 8 + 2 * 6) * 16);
    OK(2, "--data a.bin --steps 6 --resume state --log log");
    expect_tokens("log", 6, (3 * 8 + 2 * 6 + 8) * 16);
    /* a state saved before they were counted */
    cr_assert_eq(
        system("sed -i -z -e 's/  \"tokens\": [0-9]*,\\n//' -e 's/: 2,/: 1,/' -e 's/,\\n  \"crc32\": \"[0-9a-f]*\"//' "
               "state/index.json"),
        0);
    OK(2, "--data a.bin --steps 6 --resume state --log log");
    expect_tokens("log", 6, (3 * 8 + 2 * 6 + 8) * 16);
}

Test(host_run, saves_leave_one_complete_state) {
    write_data();
    OK(4, "--data a.bin --steps 5 --save deep/er/state --save-every 2 --quiet");
    cr_assert(access("deep/er/state/step-00000005/rank-3.safetensors", F_OK) == 0);
    cr_assert(access("deep/er/state/step-00000004", F_OK) != 0 &&
              access("deep/er/state/step-00000005.part", F_OK) != 0);
    OK(2, "--resume deep/er/state --save deep/er/state --steps 0 --quiet"); /* the same step again, by another world */
    OK(1, "--resume deep/er/state --save deep/er/state --quiet");
    OK(1, "--resume deep/er/state --export x.st --quiet");
    cr_assert_eq(system("test $(ls deep/er/state | wc -l) = 2"), 0);
}

/* What a killed run has left goes; what is somebody else's stays, is in no save's way, and a name of ours proves
 * little.
 */
Test(host_run, what_killed_runs_left) {
    write_data();
    OK(2, "--data a.bin --steps 2 --save state --quiet");
    cr_assert_eq(
        system("cd state && mkdir step-00000003.part step-00000004 step-00000004.part .probe &&"
               "touch step-00000003.part/rank-0.safetensors step-00000003.part/rank-5.safetensors.part &&"
               "touch step-00000004.part/rank-0.safetensors step-00000004.part/notes step-00000004/notes &&"
               "touch step-00000004.part/rank-0.safetensors.old step-x.part step-00000005.part index.json.next.part &&"
               "cp -r step-00000002 step-00000001 && sed s/step-00000002/step-00000006/ index.json > "
               "index.json.next && cp -r step-00000002 step-00000006 && touch step-00000006/notes"),
        0);
    OK(2, "--data a.bin --steps 4 --resume state --save state --quiet");
    cr_assert_eq(system("cd state && find . -type f | sort > ../found"), 0);
    slurp("found", out, sizeof out);
    cr_assert_str_eq(out, "./index.json\n"
                          "./step-00000001/index.json\n"
                          "./step-00000001/rank-0.safetensors\n./step-00000001/rank-1.safetensors\n"
                          "./step-00000004.1/index.json\n"
                          "./step-00000004.1/rank-0.safetensors\n./step-00000004.1/rank-1.safetensors\n"
                          "./step-00000004.part/notes\n./step-00000004.part/rank-0.safetensors.old\n"
                          "./step-00000004/notes\n./step-00000005.part\n./step-00000006/notes\n./step-x.part\n");
    cr_assert_eq(system("ls -A state | wc -l > found"), 0);
    slurp("found", out, sizeof out);
    cr_assert_eq(atoi(out), 8, "%s", out);
    OK(2, "--resume state --export x.st --quiet");
}

Test(host_run, one_run_a_folder) {
    write_data();
    OK(2, "--data a.bin --steps 2 --save state --quiet");
    cr_assert_eq(mkdir("state/step-00000009.part", 0777), 0);
    int fd = open("state", O_RDONLY | O_DIRECTORY);
    cr_assert(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0); /* as another run holds it */
    cr_assert_eq(rename("state/step-00000002", "moved"), 0); /* and has just replaced the state that the index named */
    cr_assert_eq(run((How){2}, "--data a.bin --steps 4 --resume state --save state"), 1);
    ONE_LINE("mock: another run saves to state: wait for it, or name another folder");
    cr_assert_eq(rmdir("state/step-00000009.part"), 0, "removed from under a run that saves");
    cr_assert_str_empty(out);
    cr_assert_eq(rename("moved", "state/step-00000002"), 0);
    OK(2, "--resume state --export x.st --quiet"); /* reading is free */
    close(fd);
    OK(2, "--data a.bin --steps 4 --resume ./state/ --save state --quiet");
}

Test(host_run, weights_go_out_and_in) {
    write_data();
    OK(4, "--data a.bin --steps 2 --export out.st --quiet");
    OK(2, "--weights out.st --export back.st --quiet");
    cr_assert(same_files("out.st", "back.st"));
    OK(1, "--weights *.st --sample 3 --export third.st --quiet");
    cr_assert(same_files("out.st", "third.st"));
}

/* The same model, as its parameters from `first` to `end` are called within another. */
static void within(MockBuild *m, const char *prefix, int first, int end) {
    for (int i = first; i < end; i++) {
        char *path;
        cr_assert(asprintf(&path, "%s%s", prefix, m->params[i].path) > 0); /* lives as long as the test */
        m->params[i].path = path;
    }
}
static void within_module(MockBuild *m) {
    within(m, "module.inner.", 0, m->b.nparams);
}
static void partly_within(MockBuild *m) {
    within(m, "transformer.", 1, m->b.nparams);
}
static void one_within(MockBuild *m) {
    within(m, "layers.7.", 3, 4);
}

Test(host_run, weights_of_a_model_within_another) {
    write_data();
    OK(2, "--data a.bin --steps 2 --export out.st --quiet");
    struct {
        void (*change)(MockBuild *);
        const char *prefix;
    } saved[] = {{within_module, "module.inner."}, {partly_within, "transformer."}};
    for (size_t i = 0; i < sizeof saved / sizeof *saved; i++) {
        cr_assert_eq(run((How){2, .change = saved[i].change}, "--data a.bin --steps 2 --export inner.st --quiet"), 0);
        cr_assert_eq(run((How){2}, "--weights inner.st --export back.st"), 0, "%s", err);
        cr_assert(strstr(err, "note: inner.st: the model's parameters have ") && strstr(err, saved[i].prefix), "%s",
                  err);
        cr_assert(lines_of(err) == 1 && same_files("out.st", "back.st"), "%s", err);
    }
    cr_assert_eq(run((How){2, .change = one_within}, "--data a.bin --steps 2 --export other.st --quiet"), 0);
    cr_assert_eq(run((How){2}, "--weights other.st --export back.st"), 1, "one tensor's name proves nothing");
    cr_assert(strstr(err, "no tensor '"), "%s", err);
    cr_assert_eq(run((How){2, .change = partly_within}, "--data a.bin --steps 2 --export second.st --quiet"), 0);
    cr_assert_eq(run((How){2, .change = within_module}, "--data a.bin --steps 2 --export first.st --quiet"), 0);
    cr_assert_eq(run((How){2}, "--weights first.st --weights second.st --export back.st"), 1, "which of the two?");
    cr_assert(strstr(err, "no tensor '"), "%s", err);
}

/* ── files that change under a run ───────────────────────────────────────────────────────────────────────────────────
 */
static void cut_files(const char *program, int64_t step) {
    bool begins = strcmp(program, "init") == 0;
    if (step == 2) cr_assert(truncate("b.bin", 1200) == 0);
    if (begins && access("cut", F_OK) == 0) {
        cr_assert(truncate("state/step-00000003/rank-0.safetensors", 2000) == 0 && truncate("w.st", 900) == 0);
    }
}

static void large_tokens(const char *program, int64_t step) {
    FILE *f = step == 2 ? fopen("a.bin", "r+") : NULL;
    if (!f) return;
    fseek(f, 1024, SEEK_SET);
    for (int i = 0; i < 1000; i++) fwrite(&(uint16_t){300}, 2, 1, f);
    fclose(f);
}

Test(host_run, files_that_are_cut_during_the_run) {
    write_data();
    OK(2, "--data a.bin --steps 3 --save state --export w.st --quiet");
    cr_assert_eq(run((How){2, .hook = cut_files}, "--data b.bin --steps 9 --quiet"), 1);
    cr_assert(strstr(err, "mock: b.bin: cannot read token") && strstr(err, "was cut short during the run") &&
                  lines_of(err) == 1,
              "%s", err);
    cr_assert_eq(run((How){2, .hook = large_tokens}, "--data a.bin --steps 9 --quiet"), 1);
    cr_assert(strstr(err, "mock: a.bin: token ") && strstr(err, " is 300, but '") && strstr(err, "' ends at 199"), "%s",
              err);
    write_file("cut", "", 0);
    cr_assert_eq(system("cp -r state saved && cp w.st saved"), 0);
    cr_assert_eq(run((How){2, .hook = cut_files}, "--resume state --export x.st"), 1);
    ONE_LINE("rank-0.safetensors: cannot read '");
    cr_assert_eq(system("rm -r state && cp -r saved state && cp saved/w.st ."), 0);
    cr_assert_eq(run((How){2, .hook = cut_files}, "--weights w.st --export x.st"), 1);
    ONE_LINE("w.st: cannot read '");
}

/* ── notes and switches ──────────────────────────────────────────────────────────────────────────────────────────────
 */
static void without_head(MockBuild *m) {
    m->params[1] = m->params[5]; /* the weights' file has a tensor more, and lacks this buffer */
    m->params[1].path = "norm.other";
}

Test(host_run, notes) {
    write_data();
    OK(2, "--data a.bin --steps 3 --save state --export w.st --quiet");
    OK(2, "--data a.bin --steps 2 --resume state");
    cr_assert(strstr(err, "mock: note: state stands at step 3 already; --steps 2 asks for no more: no step is made; to "
                          "train on, give --steps above 3\n"),
              "%s", err);
    OK(2, "--data a.bin --steps 3 --resume state"); /* a job that had ended and is started again */
    cr_assert(strstr(err, "state stands at step 3 already; --steps 3 asks for no more"), "%s", err);
    OK(2, "--data a.bin --steps 4 --resume state");
    cr_assert(!strstr(err, "stands at step"), "%s", err);
    cr_assert_eq(run((How){2, .change = without_head}, "--weights w.st --export x.st --weights-partial"), 0, "%s", err);
    cr_assert(strstr(err, "note: 1 buffers are not in w.st") &&
                  strstr(err, "note: --weights-partial: tensors of w.st that are not used (1): head.weight"),
              "%s", err);
    cr_assert_eq(run((How){1, .accumulate = 4}, "--data a.bin --accumulate 3 --steps 5 --resume state"), 0, "%s", err);
    cr_assert(strstr(err, "note: batch: the saved run took 8 samples a step, this one takes 6"), "%s", err);
    write_records("records", 9, 6, false);
    cr_assert_eq(run((How){1, .accumulate = 4, .input = "records"},
                     "--data - --accumulate 3 --steps 5 --resume state --save state"),
                 0, "%s", err);
    cr_assert_eq(run((How){1, .input = "records"}, "--data - --steps 9 --resume state"), 1);
    cr_assert(strstr(err, "the checkpoint stands at sample 36, which is not a border of records of 8 samples"), "%s",
              err);
    OK(2, "--data a.bin --steps 3 --eval-steps 0 --val-data val.bin --poison --redzones --check-finite --interleave 3 "
          "--stall-seconds 2 --trace t");
    cr_assert(strstr(out, "(37 windows)"), "%s", out);
    OK(2, "--data a.bin --steps 1 --eval-steps 2 --val-data val.bin --dump x --at-step 1 -o y");
    cr_assert(strstr(out, "(the first 8 of 37 windows)"), "%s", out);
}

/* Each record of 8 samples as two of 4. */
static void cut_in_halves(const char *path, const char *to, int records) {
    enum { HALF = 4 * MOCK_SEQ };
    int32_t x[2][2][HALF]; /* input, half */
    FILE *f = fopen(path, "r"), *out = fopen(to, "w");
    for (int i = 0; i < records; i++) {
        cr_assert_eq(fread(x, sizeof x, 1, f), 1);
        for (int half = 0; half < 2; half++)
            for (int input = 0; input < 2; input++) fwrite(x[input][half], sizeof x[0][0], 1, out);
    }
    fclose(f);
    fclose(out);
}

/* ── records ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(host_run, records_are_the_same_for_every_world) {
    write_records("records", 6, 8, true);
    double a[6], b[6];
    cr_assert_eq(run((How){1, .input = "records"}, "--data - --steps 9 --log l1 --export w1.st --quiet"), 0, "%s", err);
    for (int world = 2; world <= 4; world *= 2) {
        cr_assert_eq(run((How){world, .input = "records"}, "--data - --steps 9 --log l2 --export w2.st --quiet"), 0,
                     "%s", err);
        losses("l1", a);
        losses("l2", b);
        for (int i = 0; i < 6; i++) cr_assert(fabs(a[i] - b[i]) < 1e-6 * a[i]);
        cr_assert(same_files("w1.st", "w2.st"));
    }
    cr_assert_eq(run((How){2, .input = "records"}, "--data - --steps 3 --save state --quiet"), 0, "%s", err);
    cr_assert_eq(run((How){2, .input = "records"}, "--data - --steps 6 --resume state --export w3.st"), 0, "%s", err);
    cr_assert(
        strstr(out, "data     records of 1,024 bytes from standard input: tokens int32[8,16], targets int32[8,16]\n"));
    cr_assert_eq(run((How){2, .input = "records"}, "--data - --steps 6 --export w2.st --quiet"), 0, "%s", err);
    cr_assert(same_files("w2.st", "w3.st"));
    cut_in_halves("records", "halves", 6);
    cr_assert_eq(run((How){1, .accumulate = 2, .input = "halves"}, "--data - --steps 6 --log l2 --quiet"), 0, "%s",
                 err);
    losses("l2", b);
    for (int i = 0; i < 6; i++)
        cr_assert(fabs(a[i] - b[i]) < 1e-6 * a[i], "in two microbatches: %g and %g", a[i], b[i]);
    write_records("short", 1, 8, false);
    cr_assert_eq(run((How){2, .input = "short"}, "--data - --steps 6 --resume state"), 1);
    cr_assert(strstr(err, "standard input ended after record 1; resuming skips the 3"), "%s", err);
    cr_assert_eq(run((How){2}, "--data - --steps 6"), 1);
    ONE_LINE("mock: standard input held no record for step 1");
    write_records("odd", 3, 4, false);
    cr_assert_eq(run((How){1, .accumulate = 2, .input = "odd"}, "--data - --steps 6 --log l"), 0);
    cr_assert(strstr(err, "note: standard input ended within step 2: its 1 records are not used"), "%s", err);
    cr_assert(strstr(err, "note: standard input ended: stopped after step 1 of 6"), "%s", err);
}

static void no_input_limit(MockBuild *m) {
    m->inputs[0].limit = m->inputs[1].limit = 0, m->b.logits_program = -1;
}
static void float_input(MockBuild *m) {
    m->inputs[0].dtype = FP32;
    m->inputs[0].from = "image";
}

Test(host_run, bad_records) {
    write_records("records", 2, 8, false);
    cr_assert_eq(system("head -c 1500 records > half"), 0);
    cr_assert_eq(run((How){2, .input = "half"}, "--data - --steps 2"), 1);
    ONE_LINE("mock: standard input ended in the middle of record 2, after 476 of 1024 bytes");
    float nan[256] = {[7] = NAN};
    write_file("nan", nan, sizeof nan);
    cr_assert_eq(run((How){2, .input = "nan", .change = float_input}, "--data - --steps 2"), 1);
    ONE_LINE("mock: record 1 on standard input: element 7 (from 0) of 'tokens' is NaN");
    int32_t big[256] = {[130] = 500};
    write_file("big", big, sizeof big);
    cr_assert_eq(run((How){2, .input = "big"}, "--data - --steps 2"), 1);
    cr_assert(strstr(err, "element 2 (from 0) of 'targets' is 500, outside 0..199"), "%s", err);
    cr_assert_eq(run((How){2, .input = "big", .change = no_input_limit}, "--data - --steps 1"), 0, "%s", err);
    cr_assert_eq(run((How){2, .input = "big"}, "--data big --steps 1"), 1);
    cr_assert_eq(run((How){2, .change = float_input}, "--data big --steps 1"), 1);
    cr_assert(strstr(err, "input 'tokens' does not come from tokens") && strstr(err, "--data -"), "%s", err);
    cr_assert_eq(run((How){2, .input = "big", .change = float_input}, "--data - --val-data big --steps 1"), 1);
    ONE_LINE("big: a model that is fed records (--data -) cannot be validated on token files: leave out --val-data");
    cr_assert_eq(run((How){2, .input = "/"}, "--data - --steps 1"), 1);
    cr_assert(strstr(err, "cannot read records from standard input: Is a directory"), "%s", err);
}

/* ── samples ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void wide_vocabulary(MockBuild *m) {
    m->b.logits_shape[2] = MOCK_WIDE;
}

static void write_position(const char *program, int64_t step) {
    if (strcmp(program, "sample") != 0) return;
    FILE *f = fopen("seen", "a");
    fprintf(f, "%d ", (int)mock_record(0)->position);
    if (fclose(f) != 0) _exit(99);
}

Test(host_run, samples) {
    OK(2, "--sample 5 --prompt abc --temperature 0 --quiet");
    cr_assert_str_eq(out, "abcdefgh\n");
    OK(1, "--sample 30 --prompt 0123456789012345678 --temperature 0 --quiet"); /* longer than the context */
    cr_assert_str_eq(out, "01234567890123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUV\n");
    cr_assert_eq(run((How){1, .hook = write_position}, "--sample 20 --prompt abc --quiet"), 0, "%s", err);
    slurp("seen", out, sizeof out);
    cr_assert_str_eq(out, "2 3 4 5 6 7 8 9 10 11 12 13 14 15 15 15 15 15 15 15 ", "all of the context is read");
    OK(1, "--sample 20 --temperature 1000 --sample-format ids --prompt 0 --quiet");
    int token[21] = {0}, at = 0, far = 0;
    for (char *p = strtok(out, " \n"); p && at < 21; p = strtok(NULL, " \n")) token[at++] = atoi(p);
    for (int i = 2; i < 21; i++) far += abs(token[i] - token[i - 1]) > MOCK_VOCAB / 10;
    cr_assert(at == 21 && far > 5, "every token is a draw of its own: %d of 19 are far from the one before", far);
    OK(1, "--sample 20 --seed 4 --quiet");
    char first[256];
    strcpy(first, out);
    OK(4, "--sample 20 --seed 4 --quiet");
    cr_assert_str_eq(out, first);
    OK(1, "--sample 20 --seed 5 --quiet");
    cr_assert_str_neq(out, first);
    OK(1, "--sample 3 --temperature 0 --sample-format ids --prompt 7,8 --quiet");
    cr_assert_str_eq(out, "7 8 9 10 11 \n");
    OK(1, "--sample 4 --top-k 1 --sample-format ids --quiet");
    cr_assert_str_eq(out, "1 2 3 4 \n");
    cr_assert_eq(run((How){1, .change = wide_vocabulary}, "--sample 2 --temperature 0 --prompt \xff --quiet"), 0, "%s",
                 err);
    cr_assert_str_eq(out, "\xff\xef\xbf\xbd\xef\xbf\xbd\n"); /* 256 is no byte */
    OK(1, "--sample 3 --temperature 0 --quiet");
    cr_assert_str_eq(out, "???\n"); /* after the newline: control characters */
}

Test(host_run, help_teaches) {
    cr_assert_eq(run((How){2}, "--help"), 0);
    cr_assert(strstr(out, "--data=FILE...") && strstr(out, "--resume state") && strstr(out, "Looking inside"), "%s",
              out);
    cr_assert_eq(run((How){2}, "-h"), 0);
    cr_assert(strstr(out, "Looking inside"));
}

Test(host_run, foreign_records_are_named) {
    static const char json[] = "{\"text\": \"a record is no line of JSON, and this one goes on for a while\"}\n";
    char long_json[8192];
    for (size_t i = 0; i < sizeof long_json; i++) long_json[i] = json[i % (sizeof json - 1)];
    write_file("short", json, sizeof json - 1);
    write_file("long", long_json, sizeof long_json);
    write_file("gzip", "\x1f\x8b\x08\0\0\0\0\0\0\x03KLJN", 14);
    write_file("npy", "\x93NUMPY\1\0\x10\0{'descr': '<f4'}", 26);
    static const char *const said[][2] = {
        {"short", "standard input is JSON, and not records: `shardc data FILE -o train.bin` makes tokens of"},
        {"long", "standard input is JSON, and not records"},
        {"gzip", "standard input is compressed by gzip, and not records: unpack it with gzip -d. A record is raw"},
        {"npy", "standard input is an array of NumPy, and not records: give files of tokens with --data FILE"}};
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(run((How){2, .input = said[i][0], .change = float_input}, "--data - --steps 1"), 1);
        ONE_LINE(said[i][1]);
    }
    float half[8 * MOCK_SEQ]; /* of which each byte but two is 0, or text */
    for (int i = 0; i < 8 * MOCK_SEQ; i++) half[i] = i % 2 ? 0.75f : 12.3456f;
    write_records("records", 1, 8, false);
    FILE *f = fopen("records", "r+");
    cr_assert(f && fwrite(half, 1, sizeof half, f) == sizeof half && fclose(f) == 0);
    cr_assert_eq(run((How){2, .input = "records", .change = float_input}, "--data - --steps 1"), 0, "%s", err);
}

Test(host_run, raw_tokens) {
    uint16_t half[700];
    uint32_t whole[700];
    for (int i = 0; i < 700; i++) half[i] = (uint16_t)(whole[i] = (uint32_t)(i % 100));
    write_file("x.bin", half, sizeof half);
    write_file("y.uint32.bin", whole, sizeof whole);
    OK(1, "--data x.bin --data-dtype uint16 --steps 2 --export x.st --quiet");
    OK(1, "--data y.uint32.bin --steps 2 --export y.st --quiet");
    cr_assert(same_files("x.st", "y.st"));
    OK(1, "--data x.bin ./x.bin --val-data x.bin --data-dtype uint16 --steps 2");
    cr_assert(strstr(out, "data     1 file,") && strstr(err, "note: x.bin is in --data and in --val-data"), "%s%s", out,
              err);
    cr_assert_eq(run((How){1}, "--data y.uint32.bin --data-dtype uint16 --steps 2"), 1);
    ONE_LINE("y.uint32.bin: every other of its uint16 tokens is 0, 1 or 2: it holds uint32, it seems; say --data-dtype "
             "uint32");
    for (int i = 0; i < 700; i++) whole[i] = (uint32_t)(i * 183); /* up to 128,000, as Llama 3's */
    write_file("y.uint16.bin", whole, sizeof whole);
    cr_assert_eq(run((How){1}, "--data y.uint16.bin --steps 2"), 1);
    ONE_LINE("y.uint16.bin: every other of its uint16 tokens is 0, 1 or 2");
    cr_assert_eq(run((How){1}, "--data x.bin --data-dtype uint32 --steps 2"), 1);
    ONE_LINE("x.bin: most of its uint32 tokens are above 1048575: it holds uint16, it seems; say --data-dtype uint16");
}
