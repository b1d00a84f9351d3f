/* The training program over the mock target where disks are full and outputs are closed: what ends a run, and what it
 * goes on without. Relies on: host_run.h.
 * Relied on by: make test. */
#include "../../runtime/host/checkpoint.h"
#include "../../runtime/host/dtype.h"
#include "host_run.h"
#include <signal.h>
#include <sys/file.h>

TestSuite(host_disks, .init = enter, .fini = leave, .timeout = 60);

/* ── failing disks ───────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(host_disks, full_disk_keeps_the_old_state) {
    write_data();
    OK(2, "--data a.bin --steps 3 --save state --export whole.st --quiet");
    cr_assert_eq(system("cp -r state before"), 0);
    for (long limit = 300; limit < 9000; limit += 1500) {
        cr_assert_eq(run((How){2, .file_limit = limit}, "--data a.bin --steps 4 --resume state --save state --quiet"),
                     1, "limit %ld: %s", limit, err);
        ONE_LINE("mock: cannot save to state: File too large; the state saved before is untouched: step-00000003");
        cr_assert_eq(system("diff -r state before"), 0);
    }
    cr_assert_eq(run((How){2, .file_limit = 3000}, "--data a.bin --steps 4 --export whole.st --quiet"), 1);
    ONE_LINE("mock: cannot export to whole.st: File too large; what was there is untouched");
    cr_assert(access("whole.st.part", F_OK) != 0);
    OK(1, "--weights whole.st --export again.st --quiet");
}

/* A limit that is lifted is a disk that has room again. */
static void limit_files(int64_t step, rlim_t bytes) {
    if (step == 5) setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
    if (step == 2) setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, RLIM_INFINITY});
}

static void full_then_not(const char *program, int64_t step) {
    limit_files(step, 2000); /* enough for what is told */
}

static void full_for_logs(const char *program, int64_t step) {
    limit_files(step, 600);
}

Test(host_disks, a_save_that_fails_is_tried_again) {
    write_data();
    How how = {2, .hook = full_then_not};
    cr_assert_eq(run(how, "--data a.bin --steps 7 --save state --save-every 1"), 0, "%s", err);
    cr_assert(!strcmp(err, "mock: note: step 2: cannot save to state: File too large; the state saved before is "
                           "untouched: step-00000001; the run goes on, and the next save tries again\n"
                           "mock: note: step 3: cannot save to state: File too large; the state saved before is "
                           "untouched: step-00000001; the run goes on, and the next save tries again\n"
                           "mock: note: saved state at step 5, after 3 failed saves\n"),
              "%s", err);
    OK(2, "--data a.bin --steps 7 --export whole.st --quiet");
    OK(2, "--resume state --export resumed.st --quiet");
    cr_assert(same_files("whole.st", "resumed.st") && system("test \"$(echo $(ls state))\" = "
                                                             "'index.json step-00000007'") == 0);
    how.signal = SIGUSR1, how.signal_step = 3;
    cr_assert_eq(run(how, "--data a.bin --steps 4 --save never"), 1, "%s", err);
    cr_assert(!strstr(out, "saved") &&
                  strstr(err, "note: step 3: cannot save to never: File too large; nothing was "
                              "left there") &&
                  strstr(err, "mock: cannot save to never: File too large; nothing was left there"),
              "%s%s", out, err);
}

Test(host_disks, a_last_save_that_fails_loses_nothing_else) {
    write_data();
    write_bin("big.bin", 20000, 1);
    OK(2, "--data a.bin --steps 3 --export whole.st --quiet");
    cr_assert_eq(
        run((How){2, .file_limit = 6000}, "--data a.bin --steps 3 --save state --export here.st --sample 2 --quiet"),
        1);
    cr_assert(same_files("whole.st", "here.st") && *out && lines_of(err) == 1, "%s%s", out, err);
    cr_assert_eq(run((How){2, .file_limit = 3000}, "--data a.bin --steps 3 --export other.st --sample 2 --quiet"), 1);
    cr_assert(*out && access("other.st", F_OK) != 0, "the sample of a run without weights");
    ONE_LINE("mock: cannot export to other.st: File too large; what was there is untouched");
}

/* ── what a run can do without ───────────────────────────────────────────────────────────────────────────────────────
 */
static void no_output(const char *program, int64_t step) {
    if (step == 2) redirect("/dev/full", 1, O_WRONLY);
}

static void no_reader(const char *program, int64_t step) {
    int ends[2];
    if (step != 2) return;
    cr_assert(pipe(ends) == 0 && dup2(ends[1], 1) == 1 && close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void closed_output(const char *program, int64_t step) {
    if (step == 2) close(1);
}

Test(host_disks, no_other_output_ends_a_run) {
    static const struct {
        How how;
        const char *options, *says;
    } cases[] = {
        {{2}, "--log /dev/full", "the log /dev/full: No space left on device"},
        {{2, .hook = full_for_logs}, "--log log --quiet", "the log log: File too large"},
        {{2, .hook = no_output}, "", "standard output: No space left on device"},
        {{2, .hook = no_reader}, "", "standard output: Broken pipe"},
        {{2, .hook = closed_output}, "", "standard output: Bad file descriptor"},
    };
    write_data();
    OK(2, "--data a.bin --steps 6 --export whole.st --quiet");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[256], want[512];
        if (i == 1) write_file("log", line, 0);
        snprintf(line, sizeof line, "--data a.bin --steps 6 --val-data val.bin --save state%zu %s", i,
                 cases[i].options);
        cr_assert_eq(run(cases[i].how, line), 0, "%zu: %s", i, err);
        const char *colon = strstr(cases[i].says, ": ");
        snprintf(want, sizeof want, "shardc: cannot write %s; the run goes on without it\nshardc: %.*s lacks lines%s\n",
                 cases[i].says, (int)(colon - cases[i].says), cases[i].says, colon);
        cr_assert_str_eq(err, want);
        snprintf(line, sizeof line, "--resume state%zu --export resumed.st --quiet", i);
        OK(2, line);
        cr_assert(same_files("whole.st", "resumed.st"), "%zu", i);
    }
    slurp("log", out, sizeof out);
    cr_assert(strstr(out, "\n{\"step\": 6") && out[strlen(out) - 1] == '\n', "lines go on where there is room: %s",
              out);
}

/* What is opened next would have taken the place of standard output. */
static void starts_closed(MockBuild *m) {
    for (int fd = 0; fd < 2; fd++) close(fd);
}

Test(host_disks, closed_standard_files_are_nobody_elses) {
    write_data();
    OK(2, "--data a.bin --steps 3 --log log --save state");
    cr_assert_eq(run((How){2, .change = starts_closed}, "--data a.bin --steps 3 --log log2 --save state2"), 0, "%s",
                 err);
    cr_assert_str_eq(err, "shardc: cannot write standard output: Bad file descriptor; the run goes on without it\n"
                          "shardc: standard output lacks lines: Bad file descriptor\n");
    slurp("log2", out, sizeof out);
    cr_assert(lines_of(out) == 5 && *out == '{' && !strstr(out, "arena    "), "%s", out);
}

Test(host_disks, first_save_that_fails_leaves_nothing) {
    write_data();
    cr_assert_eq(run((How){2, .file_limit = 2000}, "--data a.bin --steps 4 --save state --quiet"), 1);
    ONE_LINE("nothing was left there");
    cr_assert_eq(system("test -z \"$(ls state)\""), 0);
}

static void block_index(const char *program, int64_t step) {
    if (step == 4) cr_assert(mkdir("state/index.json.next.part", 0777) == 0 || errno == EEXIST);
}

Test(host_disks, index_that_cannot_be_replaced_keeps_the_old_state) {
    write_data();
    OK(2, "--data a.bin --steps 3 --save state --quiet");
    cr_assert_eq(system("cp -r state before && mkdir before/index.json.next.part"), 0);
    cr_assert_eq(run((How){2, .hook = block_index}, "--data a.bin --steps 4 --resume state --save state --quiet"), 1);
    ONE_LINE("cannot save to state: Is a directory");
    cr_assert_eq(system("diff -r state before"), 0);
    OK(2, "--resume state --export x.st --quiet");
}
