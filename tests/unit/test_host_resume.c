/* What a run that resumes takes over from the saved one, and what it says of the rest; jobs that are started again;
 * what a run says of its learning rates. Relies on: host_run.h.
 * Relied on by: make test. */
#include "host_run.h"
#include <signal.h>
#include <zlib.h>

TestSuite(host_resume, .init = enter, .fini = leave, .timeout = 60);

#define SAID(text) cr_assert(strstr(err, text), "'%s' is not in: %s", text, err)
#define SHOWN(text) cr_assert(strstr(out, text), "'%s' is not in: %s", text, out)
#define NOT_SAID(text) cr_assert(!strstr(err, text), "'%s' is in: %s", text, err)
#define GIVEN                                                                                                          \
    "--lr 0.5 --warmup 1 --total 20 --min-ratio 0.25 --betas 0.8,0.9 --eps 1e-6 --weight-decay 0.3 --clip 0.5 "

/* Changes text of a state's index, and its checksum with it. */
static void edit_index(const char *path, const char *sed) {
    static char text[1 << 16];
    char command[1024];
    snprintf(command, sizeof command, "sed -i -E -z '%s' %s", sed, path);
    cr_assert_eq(system(command), 0);
    slurp(path, text, sizeof text);
    char *end = strstr(text, ",\n  \"crc32\"");
    cr_assert(end);
    *end = 0;
    unsigned long sum = crc32(0, (unsigned char *)text, (unsigned)(end - text));
    sprintf(end, ",\n  \"crc32\": \"%08lx\"\n}\n", sum);
    write_file(path, text, strlen(text));
}

/* ── options ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(host_resume, options_are_the_saved_runs) {
    write_data();
    OK(2, "--data a.bin --steps 6 --export whole.st --quiet " GIVEN);
    OK(2, "--data a.bin --steps 3 --save state --quiet " GIVEN);
    OK(2, "--data a.bin --steps 6 --resume state --save state --export parts.st --log log");
    cr_assert(same_files("whole.st", "parts.st"), "resumed without its options, a run went another way");
    SAID("note: as in the saved run: lr 0.5 (the model's: 0.01), warmup 1 (the model's: 2), total 20 (the model's: 8), "
         "min_ratio 0.25 (the model's: 0.1), beta1 0.8 (the model's: 0.9), beta2 0.9 (the model's: 0.95), eps 1e-06 "
         "(the "
         "model's: 1e-08), weight_decay 0.3 (the model's: 0.1), clip 0.5 (the model's: 1); an option given here");
    cr_assert_eq(lines_of(err), 1, "%s", err);
    OK(2, "--data a.bin --steps 8 --resume state"); /* of a state that was saved with taken options */
    SAID("as in the saved run: lr 0.5");
    OK(2, "--data a.bin --steps 8 --resume state " GIVEN); /* all as before: nothing to say */
    cr_assert_str_empty(err);
    OK(2, "--resume state --save copy --steps 0"); /* trains nothing: nothing is said, nothing is lost */
    cr_assert_str_empty(err);
    OK(2, "--data a.bin --steps 8 --resume copy");
    SAID("as in the saved run: lr 0.5");
}

Test(host_resume, given_options_stand_over_the_saved_runs) {
    write_data();
    OK(2, "--data a.bin --steps 3 --save state --quiet " GIVEN);
    OK(2, "--data a.bin --steps 5 --resume state --lr 6e-5 --total 30 --betas 0.8,0.91 --log log");
    SAID("note: lr: the saved run had 0.5, this one has 6e-05\n");
    SAID("note: total: the saved run had 20, this one has 30\n");
    SAID("note: beta2: the saved run had 0.9, this one has 0.91\n");
    NOT_SAID("beta1: ");
    SAID("as in the saved run: warmup 1 (the model's: 2), min_ratio");
    slurp("log", out, sizeof out);
    cr_assert(strstr(out, "\"lr\": 5.9"), "%s", out);
    OK(2, "--data a.bin --steps 5 --resume state --lr 0.50000001");
    SAID("lr: the saved run had 0.5, this one has 0.50000001\n");
    cr_assert_eq(run((How){2}, "--data a.bin --steps 5 --resume state --warmup 21"), 2);
    SAID("--warmup 21 is longer than the schedule, --total 20 (the saved run's)");
    cr_assert_eq(run((How){2}, "--data a.bin --steps 5 --resume state --total 0"), 2);
}

Test(host_resume, steps_of_a_run_that_did_not_get_there) {
    write_data();
    cr_assert_eq(run((How){2, .signal = SIGTERM, .signal_step = 2}, "--data a.bin --steps 5 --save state"), 143, "%s",
                 err);
    OK(2, "--data a.bin --resume state --save state");
    cr_assert(strstr(out, "step 5/5"), "%s", out);
    OK(2, "--data a.bin --resume state"); /* there: to the schedule's end */
    cr_assert(strstr(out, "step 8/8"), "%s", out);
    cr_assert_eq(run((How){2, .signal = SIGTERM, .signal_step = 2}, "--data a.bin --save other"), 143, "%s", err);
    OK(2, "--data a.bin --total 6 --resume other"); /* nobody said 8 */
    cr_assert(strstr(out, "step 6/6"), "%s", out);
}

Test(host_resume, accumulation_is_the_saved_runs) {
    write_data();
    cr_assert_eq(run((How){1, .accumulate = 4}, "--data a.bin --accumulate 3 --steps 2 --save state"), 0, "%s", err);
    cr_assert_eq(run((How){1, .accumulate = 4}, "--data a.bin --steps 4 --resume state"), 0, "%s", err);
    SAID("as in the saved run: accumulate 3 (the model's: 4)");
    NOT_SAID("batch:");
    cr_assert_eq(run((How){1}, "--data a.bin --steps 4 --resume state"), 0, "%s", err);
    SAID("batch: the saved run took 6 samples a step, this one takes 8\n");
    NOT_SAID("accumulate");
}

/* ── what else differs ───────────────────────────────────────────────────────────────────────────────────────────────
 */
static const sc_setting_info fp32[] = {{"precision", "computes in fp32"}, {"dropout", "0.1", 1}, {"layers", "2", 1}},
                             bf16[] = {
                                 {"precision", "computes in bf16"}, {"dropout", "0.2", 1}, {"moments", "bf16", 1}};

static void in_fp32(MockBuild *m) {
    m->b.settings = fp32, m->b.nsettings = 3;
}
static void in_bf16(MockBuild *m) {
    m->b.settings = bf16, m->b.nsettings = 3;
}
static void linear(MockBuild *m) {
    m->b.schedule = "linear", m->b.total = 12, m->b.warmup = 3;
}
static void constant(MockBuild *m) {
    m->b.schedule = "constant", m->b.total = 0, m->b.clip = 0;
}
static void longer_windows(MockBuild *m) {
    m->inputs[1].shift = 5;
}

Test(host_resume, differences_are_told_in_a_line_each) {
    write_data();
    cr_assert_eq(run((How){2, .change = in_fp32}, "--data a.bin --val-data val.bin --steps 3 --save state"), 0, "%s",
                 err);
    static const struct {
        void (*change)(MockBuild *m);
        const char *line, *said[4];
    } cases[] = {
        {in_fp32, "--data a.bin --val-data val.bin", {NULL}},
        {in_fp32, "--data moved.bin --val-data val.bin", {NULL}}, /* the same tokens under another name */
        {in_fp32,
         "--data b.bin",
         {"data: the saved run had 1 file (a.bin), 62 windows of 17 tokens, this one has 1 file (b.bin), 43 windows of "
          "17 "
          "tokens; this run goes on at place 24 of the random order of pass 1 through these: what stands before it is "
          "left out of this pass, and windows that both have may come twice\n"}},
        {in_fp32,
         "--data a.bin b.bin",
         {"this one has 2 files (a.bin, ...), 105 windows of 17 tokens; this run goes on"}},
        {in_fp32, "--data there/a.bin", {"of other tokens or in another order; this run goes on"}},
        {in_fp32,
         "--data a.bin --val-data b.bin",
         {"validation data: the saved run had 1 file (val.bin), 37 windows of 17 tokens, this one has 1 file (b.bin)"}},
        {in_fp32,
         "--data a.bin --seed 9",
         {"seed: the saved run had 1, this one has 9: of the 62 windows of pass 1, 24 have been seen; the rest of the "
          "pass takes another order, in which about 15 of those come again and as many others never\n"}},
        {in_fp32, "--data b.bin --seed 9", {"seed: the saved run had 1, this one has 9\n", "data: the saved run had"}},
        {longer_windows, "--data a.bin", {"62 windows of 17 tokens, this one has 1 file (a.bin), 62 windows of 21"}},
        {in_bf16,
         "--data a.bin",
         {"precision: the saved run had 'computes in fp32', this one has 'computes in bf16'\n",
          "options of the model: this program was built with dropout 0.2 (was 0.1), moments bf16 (was none), layers "
          "none "
          "(was 2)\n"}},
        {linear,
         "--data a.bin",
         {"schedule: the saved run had 'cosine', this one has 'linear'\n",
          "warmup: the saved run had 2, this one has 3\n", "total: the saved run had 8, this one has 12\n"}},
        {constant,
         "--data a.bin",
         {"schedule: the saved run had 'cosine', this one has 'constant'\n",
          "clip: the saved run had 1, this one has none\n", "total: the saved run had 8, this one has none\n"}},
    };
    write_bin("moved.bin", 1000, 1);
    cr_assert_eq(mkdir("there", 0777), 0);
    write_bin("there/a.bin", 1000, 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[256];
        int said = 0;
        snprintf(line, sizeof line, "%s --steps 5 --resume state", cases[i].line);
        cr_assert_eq(run((How){2, .change = cases[i].change}, line), 0, "%s: %s", line, err);
        for (int k = 0; k < 4 && cases[i].said[k]; k++, said++) SAID(cases[i].said[k]);
        if (!said) cr_assert_str_empty(err, "%s: %s", line, err);
    }
}

Test(host_resume, a_pass_that_is_over_is_not_mixed) {
    write_data();
    write_bin("short.bin", 16 * 8 + 1, 1); /* a pass is a step */
    OK(2, "--data short.bin --steps 3 --save state");
    OK(2, "--data short.bin --steps 5 --resume state --seed 9");
    SAID("seed: the saved run had 1, this one has 9\n");
    OK(2, "--data a.bin --steps 5 --resume state"); /* place 24 of 62 */
    SAID("goes on at place 24 of the random order of pass 1");
}

Test(host_resume, records_and_files) {
    write_data();
    write_records("records", 9, 8, false);
    cr_assert_eq(run((How){2, .input = "records"}, "--data - --steps 3 --save state"), 0, "%s", err);
    cr_assert_eq(run((How){2, .input = "records"}, "--data - --steps 5 --resume state"), 0, "%s", err);
    NOT_SAID("data: ");
    OK(2, "--data a.bin --steps 5 --resume state");
    SAID("data: the saved run had records from standard input, this one has 1 file (a.bin)");
    OK(2, "--data a.bin --steps 5 --resume state --save files");
    cr_assert_eq(run((How){2, .input = "records"}, "--data - --steps 6 --resume files"), 0, "%s", err);
    SAID("data: the saved run had 1 file (a.bin), 62 windows of 17 tokens, this one has records from standard input\n");
}

/* ── other states ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void adam(MockBuild *m) {
    m->b.optimizer = "adam";
}

static void momentum(MockBuild *m) {
    m->b.optimizer = "sgd";
    for (int i = 0; i < 2; i++) m->units[i].has_v = 0;
}

/* Of a state that says no optimizer, moments tell. */
Test(host_resume, another_optimizer_with_the_same_moments_is_refused) {
    write_data();
    OK(2, "--data a.bin --steps 3 --save state");
    cr_assert_eq(run((How){2, .change = adam}, "--data a.bin --steps 5 --resume state"), 1);
    ONE_LINE(
        "state: made with the optimizer 'adamw', and this program was built with 'adam': resume with the binary it");
    edit_index("state/index.json", "s/\"optimizer\":\"adamw\"/\"optimizer\":7/");
    cr_assert_eq(run((How){2, .change = adam}, "--data a.bin --steps 5 --resume state"), 0, "%s", err); /* not known */
    cr_assert_eq(run((How){2, .change = momentum}, "--data a.bin --steps 5 --resume state"), 1);
    ONE_LINE("state: the moment2 of 'embed.weight' is there, and this program keeps none: made with another "
             "optimizer; to begin anew from its weights, --export them and use --weights");
}

Test(host_resume, a_state_that_kept_no_settings) {
    write_data();
    OK(2, "--data a.bin --steps 3 --save state --quiet " GIVEN);
    edit_index("state/index.json", "s/  \"given\": [^\\n]*\\n//");
    OK(2, "--data b.bin --steps 5 --resume state --seed 4 --log log");
    SAID("state was saved before states kept what their run was given: whether learning rate, schedule, data and ");
    SAID("seed: the saved run had 1, this one has 4\n");
    NOT_SAID("as in the saved run");
    OK(2, "--data b.bin --steps 3 --resume state");
    NOT_SAID("was saved before");
}

/* What is no value of an option is taken for none. */
Test(host_resume, settings_of_other_types) {
    write_data();
    static const char *const edits[] = {
        "s/\"given\": \\{[^\\n]*/\"given\": 3,/",
        "s/\"given\": \\{[^\\n]*/\"given\": [[]],/",
        "s/\"lr\":[^,]*/\"lr\":-3/",
        "s/\"lr\":[^,]*/\"lr\":\"x\"/",
        "s/\"lr\":[^,]*/\"lr\":1e300/",
        "s/\"warmup\":[^,]*/\"warmup\":1.5/",
        "s/\"beta1\":[^,]*/\"beta1\":1/",
        "s/\"eps\":[^,]*/\"eps\":0/",
        "s/\"data\":.*\\n  \"heads/\"data\":{\"files\":3}},\\n  \"heads/",
        "s/\"files\":\\[[^]]*\\]/\"files\":[1]/",
        "s/\"windows\":[^,]*/\"windows\":\"x\"/",
        "s/\"steps\":[^,]*/\"steps\":-5/",
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        OK(2, "--data a.bin --steps 3 --save state --quiet --lr 0.5");
        edit_index("state/index.json", edits[i]);
        cr_assert_eq(run((How){2}, "--data a.bin --resume state"), 0, "%s: %s", edits[i], err);
        cr_assert(strstr(out, "step 8/8") && !strstr(out, "nan"), "%s: %s", edits[i], out);
        cr_assert_eq(system("rm -r state"), 0);
    }
}

/* ── jobs that are started again ─────────────────────────────────────────────────────────────────────────────────────
 */
Test(host_resume, one_command_begins_and_goes_on) {
    write_data();
    OK(2, "--data a.bin --steps 2 --export w.st --quiet --seed 7");
    OK(2, "--data a.bin --weights w.st --steps 6 --export whole.st --quiet");
    const char *job =
        "--data a.bin --weights w.st --steps 6 --continue state --save-every 2 --export parts.st --log log";
    cr_assert_eq(run((How){2, .signal = SIGTERM, .signal_step = 3}, job), 143, "%s", err);
    SAID("mock: note: state holds no state yet: the run begins, from --weights\n");
    OK(2, job);
    NOT_SAID("no state yet");
    cr_assert(strstr(out, "resumed  state at step 3"), "%s", out);
    cr_assert(same_files("whole.st", "parts.st"), "started again, the job went another way");
    slurp("log", out, sizeof out);
    cr_assert(strstr(out, "{\"step\": 3, \"end\": \"stopped\"}\n"), "%s", out);
    for (int i = 1; i <= 6; i++) {
        char step[64];
        snprintf(step, sizeof step, "{\"step\": %d, \"loss\"", i);
        cr_assert(strstr(out, step), "no step %d in the log: %s", i, out);
    }
    OK(2, job);
    SAID("state stands at step 6 already");
    OK(2, "--data a.bin --steps 2 --continue fresh"); /* without weights: from the initial values */
    SAID("fresh holds no state yet: the run begins\n");
    OK(2, "--data a.bin --steps 2 --save other --resume auto --weights w.st");
    SAID("other holds no state yet: the run begins, from --weights\n");
    OK(2, "--data a.bin --steps 3 --save other --resume auto --weights w.st");
    NOT_SAID("no state yet");
}

Test(host_resume, what_continue_refuses) {
    write_data();
    cr_assert_eq(run((How){2}, "--data a.bin --continue state --save state"), 2);
    ONE_LINE("--continue state is --resume state and --save state: leave --save out");
    cr_assert_eq(run((How){2}, "--data a.bin --continue state --resume other"), 2);
    ONE_LINE("leave --resume out");
    cr_assert_eq(run((How){2}, "--data a.bin --resume state --weights w.st"), 2);
    ONE_LINE(
        "--continue DIR takes both: it goes on from the state in DIR, and begins from --weights where there is none");
    cr_assert_eq(run((How){2}, "--data a.bin --resume state"), 1);
    ONE_LINE("--continue DIR begins where there is none yet");
    OK(2, "--data a.bin --steps 2 --continue state --quiet");
    cr_assert_eq(system("echo x > state/index.json"), 0); /* damaged is not missing */
    cr_assert_eq(run((How){2}, "--data a.bin --continue state"), 1);
    ONE_LINE("state/index.json: not JSON");
}

/* ── learning rates ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void long_warmup(MockBuild *m) {
    m->b.warmup = 2000, m->b.total = 100000;
}
static void long_constant(MockBuild *m) {
    m->b.warmup = 2000, m->b.total = 0, m->b.schedule = "constant";
}

static void wsd(MockBuild *m) {
    m->b.schedule = "wsd", m->b.decay_steps = 4;
}
static void function(MockBuild *m) {
    static const float factors[8] = {1, 1, 1, 1, 0.5f, 0.5f, 0.5f, 0};
    m->b.schedule = "function", m->b.factors = factors, m->b.warmup = 0;
}

Test(host_resume, a_run_says_its_learning_rates) {
    write_data();
    OK(1, "--data a.bin --steps 8");
    cr_assert(strstr(out, "\nschedule lr 0.01 after 2 steps of warm-up, cosine to 0.001 at step 8; 0.005 at step 1, "
                          "0.001603 at step 8\n"),
              "%s", out);
    cr_assert(!strstr(out, "warning"), "%s", out);
    cr_assert_eq(run((How){1, .change = long_warmup}, "--data a.bin --steps 50"), 0, "%s", err);
    SHOWN(
        "\nwarning  the run ends at step 50, within the warm-up of 2,000 steps: lr comes to 0.00025, 2.5 % of 0.01; a "
        "run of this length wants --warmup 5 --total 50, say\n");
    cr_assert_eq(run((How){1, .change = long_warmup}, "--data a.bin --steps 50 --warmup 5 --total 50"), 0, "%s", err);
    cr_assert(!strstr(out, "warning"), "%s", out);
    cr_assert_eq(run((How){1, .change = long_constant}, "--data a.bin --steps 3"), 0, "%s", err);
    SHOWN("0.15 % of 0.01; a run of this length wants --warmup 1, say\n");
    cr_assert(strstr(out, "after 2,000 steps of warm-up, constant; "), "%s", out);
    cr_assert_eq(run((How){1, .change = wsd}, "--data a.bin --steps 8"), 0, "%s", err);
    SHOWN("lr 0.01 after 2 steps of warm-up, linear over 4 steps to 0.001 at step 8; 0.005 at step 1, 0.00325 at step "
          "8\n");
    cr_assert_eq(run((How){1, .change = function}, "--data a.bin --steps 10"), 0, "%s", err);
    SHOWN("lr 0.01 times a function of 8 steps; 0.01 at step 1, 0 at step 10\n");
    SHOWN("\nwarning  lr is 0 in steps 9 to 10: the schedule's function ends with 0 at step 8; build the model with "
          "another, or give --steps 8\n");
    OK(1, "--data a.bin --steps 12 --min-ratio 0 --save state");
    SHOWN("\nwarning  lr is 0 in steps 9 to 12: the schedule falls to 0 at step 8; give --total 12, or --min-ratio "
          "above 0\n");
    OK(1, "--data a.bin --steps 14 --resume state");
    SHOWN("lr is 0 in steps 13 to 14");
    OK(1, "--data a.bin --steps 8 --lr 0 --warmup 8"); /* as asked */
    cr_assert(!strstr(out, "warning"), "%s", out);
    OK(1, "--data a.bin --steps 0");
    cr_assert(!strstr(out, "schedule"), "%s", out);
}
