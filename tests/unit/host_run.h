/* Runs of the training program over the mock target, each in a process and a folder of its own, and what they read.
 * Relies on: runtime/host, mock_target, Criterion.
 * Relied on by: test_host_run.c, test_host_bad.c. */
#ifndef TEST_HOST_RUN_H
#define TEST_HOST_RUN_H

#include "../../runtime/host/run.h"
#include "mock_target.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* tables whose last columns are mostly empty */

/* ── a run in a process and a folder of its own ──────────────────────────────────────────────────────────────────────
 */
static char folder[64];

static inline void enter(void) {
    strcpy(folder, "/tmp/test_host_XXXXXX");
    cr_assert(mkdtemp(folder) && chdir(folder) == 0);
}

static inline void leave(void) {
    char command[256];
    snprintf(command, sizeof command, "chmod -R u+w %s; rm -rf %s", folder, folder);
    cr_assert(chdir("/tmp") == 0 && system(command) == 0);
}

typedef struct {
    int world, shards, accumulate;
    const char *input; /* file that becomes standard input, or NULL */
    long file_limit;   /* RLIMIT_FSIZE; 0: none */
    int64_t nan_step;
    int nan_metric;
    int signal; /* that comes during signal_step */
    int64_t signal_step;
    void (*change)(MockBuild *m);
    void (*hook)(const char *program, int64_t step);
} How;

static char out[1 << 16], err[1 << 16];

static inline void slurp(const char *path, char *to, size_t size) {
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(to, 1, size - 1, f) : 0;
    to[n] = 0;
    if (f) fclose(f);
}

static inline void redirect(const char *path, int to, int flags) {
    int fd = open(path, flags, 0666);
    if (fd < 0 || dup2(fd, to) < 0) _exit(99);
    close(fd);
}

/* At its end the child may write what it likes: coverage counters. */
static struct rlimit no_limit;
static inline void lift_limit(void) {
    setrlimit(RLIMIT_FSIZE, &no_limit);
}

/* In the child: never returns. */
static inline void child(How how, const char *line) {
    static MockBuild m;
    static char text[4096], *argv[64] = {"./mock"};
    int argc = 1;
    snprintf(text, sizeof text, "%s", line);
    for (char *p = strtok(text, " "); p; p = strtok(NULL, " ")) argv[argc++] = p;
    redirect(how.input ? how.input : "/dev/null", 0, O_RDONLY);
    redirect("out", 1, O_WRONLY | O_CREAT | O_TRUNC);
    redirect("err", 2, O_WRONLY | O_CREAT | O_TRUNC);
    if (how.file_limit) {
        getrlimit(RLIMIT_FSIZE, &no_limit);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){(rlim_t)how.file_limit, no_limit.rlim_max});
        atexit(lift_limit);
    }
    mock_build(&m, how.world, how.shards ? how.shards : how.world, how.accumulate ? how.accumulate : 1);
    if (how.change) how.change(&m);
    mock_nan_step = how.nan_step;
    mock_nan_metric = how.nan_metric;
    mock_signal = how.signal;
    mock_signal_step = how.signal_step;
    mock_hook = how.hook;
    exit(host_main(&m.b, argc, argv));
}

static inline int run(How how, const char *line) {
    int status;
    pid_t pid = fork();
    if (pid == 0) child(how, line);
    cr_assert(waitpid(pid, &status, 0) == pid);
    slurp("out", out, sizeof out);
    slurp("err", err, sizeof err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define OK(world, line) cr_assert_eq(run((How){world}, line), 0, "%s: %s", line, err)
#define ONE_LINE(said) cr_assert(strstr(err, said) && lines_of(err) == 1, "%s", err)
static inline int lines_of(const char *text) {
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

static inline bool same_files(const char *a, const char *b) {
    char command[1024];
    snprintf(command, sizeof command, "cmp -s %s %s", a, b);
    return system(command) == 0;
}

/* ── data ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static inline void write_file(const char *path, const void *p, size_t n) {
    FILE *f = fopen(path, "w");
    cr_assert(f && fwrite(p, 1, n, f) == n && fclose(f) == 0);
}

static inline void write_bin(const char *path, int n, unsigned seed) {
    int32_t head[256] = {20240520, 1, n};
    FILE *f = fopen(path, "w");
    fwrite(head, 4, 256, f);
    for (int i = 0; i < n; i++) fwrite(&(uint16_t){(uint16_t)((i * 7 + seed * 13 + i / 11) % MOCK_VOCAB)}, 2, 1, f);
    fclose(f);
}

static inline void write_data(void) {
    write_bin("a.bin", 1000, 1);
    write_bin("b.bin", 700, 2);
    write_bin("val.bin", 600, 3);
}

/* Records of `steps` global microbatches of 8 samples; every third target is ignored when `ignore`. */
static inline void write_records(const char *path, int steps, int rows, bool ignore) {
    FILE *f = fopen(path, "w");
    for (int s = 0; s < steps; s++)
        for (int input = 0; input < 2; input++)
            for (int i = 0; i < rows * MOCK_SEQ; i++) {
                int32_t x = (s * 31 + i * 7 + input * 5) % MOCK_VOCAB;
                if (ignore && input == 1 && i % 3 == 0 && i < 70) x = -100;
                fwrite(&x, 4, 1, f);
            }
    fclose(f);
}

#endif
