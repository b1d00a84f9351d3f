/* sc_calibrate: measures the GPUs at hand, writes a device profile and a table of matmul algorithms. `shardc calibrate`
 * runs it; where there is no shardc it runs by itself.
 * Relies on: calibrate.h, runtime/file.h; the library of the CUDA target, which it is linked with.
 * Relied on by: shardc calibrate, people. */
#include "calibrate.h"
#include "file.h"
#include "number.h"
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ── stages ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef int stage(const sc_wish *w, FILE *out);

typedef struct {
    char **at;
    int n, cap;
} lines;

static void take(lines *l, FILE *f, const char *path) {
    char *text = NULL;
    size_t size = 0;
    rewind(f);
    while (getline(&text, &size, f) >= 0) {
        if (l->n == l->cap) l->at = realloc(l->at, sizeof *l->at * (size_t)(l->cap = 2 * l->cap + 64));
        text[strcspn(text, "\n")] = 0;
        l->at[l->n++] = strdup(text);
    }
    if (ferror(f)) {
        fprintf(stderr, "sc_calibrate: cannot read %s: %s\n", path, strerror(errno));
        exit(1);
    }
    free(text);
}

static void take_file(lines *l, const char *path) {
    FILE *f = fopen(path, "r");
    if (!f) {
        fprintf(stderr, "sc_calibrate: cannot read %s: %s; give a file that --raw has written\n", path,
                strerror(errno));
        exit(1);
    }
    take(l, f, path);
    fclose(f);
}

/* Before anything is measured: is there what it takes? */
static int check_gpus(const sc_wish *w, FILE *out) {
    char why[512];
    int n = sc_visible_gpus("take a profile that shardc brings, as in shardc predict --device h200", why, sizeof why);
    if (n >= w->world) return 0;
    if (n)
        fprintf(stderr, "sc_calibrate: --world %d: %d GPU%s visible; give --world %d, or see CUDA_VISIBLE_DEVICES\n",
                w->world, n, n == 1 ? " is" : "s are", n);
    else
        fprintf(stderr, "sc_calibrate: %s\n", why);
    return 1;
}

/* In a process of its own, on a context of its own. */
static void run(lines *l, const sc_wish *w, const char *what, stage *s) {
    int status;
    FILE *f = tmpfile();
    if (!f) {
        fprintf(stderr, "sc_calibrate: cannot make a temporary file: %s; set TMPDIR to a folder with room\n",
                strerror(errno));
        exit(1);
    }
    if (what) fprintf(stderr, "sc_calibrate: %s\n", what);
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        fprintf(stderr, "sc_calibrate: cannot start a process: %s; see ulimit -u\n", strerror(errno));
        exit(1);
    }
    if (!pid) {
        status = s(w, f);
        if (!status) status = sc_unwritten(f);
        fflush(NULL);
        _exit(status);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (status) exit(1);
    take(l, f, "a temporary file");
    fclose(f);
}

_Noreturn static void cannot_write(const char *path, int error) {
    fprintf(stderr, "sc_calibrate: cannot write %s: %s; choose another file\n", path ? path : "the profile",
            strerror(error));
    exit(1);
}

/* Measuring takes minutes: what cannot be written is told before. */
static void check_output(const char *path) {
    int error = path ? sc_aside_try(path) : 0;
    if (error) cannot_write(path, error);
}

/* A file is written aside; no path: standard output. */
static FILE *begin(sc_aside *a, const char *path) {
    if (!path) return stdout;
    sc_aside_open(a, path, NULL);
    FILE *f = sc_aside_print(a);
    if (!f) cannot_write(path, a->error);
    return f;
}

static void finish(sc_aside *a, FILE *f, const char *path) {
    errno = 0;
    if (!path && (fflush(f) || ferror(f))) cannot_write(path, errno ? errno : EIO);
    if (!path) return;
    sc_aside_printed(a, f);
    if (sc_aside_commit(a)) cannot_write(path, a->error);
}

static void put_lines(const char *path, const lines *l) {
    sc_aside a;
    FILE *f = begin(&a, path);
    for (int i = 0; i < l->n; i++) fprintf(f, "%s\n", l->at[i]);
    finish(&a, f, path);
}

static void check_input(const char *path) {
    if (!path || !access(path, R_OK)) return;
    fprintf(stderr, "sc_calibrate: cannot read %s: %s; `shardc calibrate MODEL.lua -o %s` makes a list of kernels\n",
            path, strerror(errno), path);
    exit(1);
}

/* ── command line ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
enum { KEY_TABLE = 256, KEY_TASKS, KEY_WORLD, KEY_QUICK, KEY_TRIAL, KEY_RAW, KEY_NAME, KEY_ONLY, KEY_FROM };
typedef struct {
    sc_wish w;
    const char *raw, *only;
    lines from;
} arguments;

static void check_stages(const char *list, struct argp_state *state) {
    static const char *const stages[] = {"device", "fp8", "tasks", "collectives", "footprint", "host"};
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        size_t n = strcspn(p, ",");
        bool known = false;
        for (int i = 0; i < 6; i++) known |= strlen(stages[i]) == n && !strncmp(p, stages[i], n);
        if (!known) argp_error(state, "--only %s: give some of device,fp8,tasks,collectives,footprint,host", list);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    arguments *a = state->input;
    int64_t gpus = 0;
    switch (key) {
    case 'o': a->w.profile = arg; break;
    case KEY_TABLE: a->w.table = arg; break;
    case KEY_TASKS: a->w.tasks = arg; break;
    case KEY_NAME: a->w.name = arg; break;
    case KEY_RAW: a->raw = arg; break;
    case KEY_ONLY:
        check_stages(arg, state);
        a->only = arg;
        break;
    case KEY_FROM: take_file(&a->from, arg); break;
    case KEY_WORLD:
        if (!sc_read_whole(arg, 1, 8, &gpus)) argp_error(state, "--world %s: give a number of GPUs, from 1 to 8", arg);
        a->w.world = (int)gpus;
        break;
    case KEY_QUICK: a->w.quick = true; break;
    case KEY_TRIAL: a->w.trial = true; break;
    case ARGP_KEY_END:
        if (a->w.table && !a->w.tasks)
            argp_error(state, "--table %s: algorithms are found for the kernels of --tasks FILE", a->w.table);
        if (a->w.quick && a->w.tasks)
            argp_error(state, "--tasks %s: --quick measures no kernels; leave one of the two out", a->w.tasks);
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static bool wanted(const arguments *a, const char *stage) {
    if (a->w.quick && strcmp(stage, "collectives")) return false;
    return !a->from.n && (!a->only || strstr(a->only, stage));
}

int main(int argc, char **argv) {
    static const struct argp_option options[] = {
        {"output", 'o', "FILE", 0, "Where the device profile goes; standard output unless given", 0},
        {"table", KEY_TABLE, "FILE", 0, "Where the matmul algorithms go; none are looked for unless given", 0},
        {"tasks", KEY_TASKS, "FILE", 0, "Kernels to time and to find algorithms for: `shardc calibrate MODEL.lua`", 0},
        {"world", KEY_WORLD, "N", 0, "Most GPUs to measure together; 1 unless given", 0},
        {"name", KEY_NAME, "NAME", 0, "The profile's name; `measured` unless given", 0},
        {"only", KEY_ONLY, "STAGES", 0, "Some of device,fp8,tasks,collectives,footprint,host", 0},
        {"raw", KEY_RAW, "FILE", 0, "The measurements too, a line each", 0},
        {"from", KEY_FROM, "FILE", 0, "Measure nothing, take an earlier run's --raw; may be repeated", 0},
        {"quick", KEY_QUICK, 0, 0,
         "Half a minute: what differs between machines of one kind (clocks, bandwidths, links); kernels are h100's, "
         "scaled",
         0},
        {"trial", KEY_TRIAL, 0, 0, "Hardly measure: to try the program out", 0},
        {0},
    };
    static const struct argp argp = {options, parse, NULL, "Measures the GPUs of this machine for shardc predict.",
                                     NULL,    NULL,  NULL};
    arguments a = {.w = {.world = 1, .name = "measured"}};
    lines l, choices = {0};
    sc_hold_standard_files();
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error of write, with a message */
    argp_err_exit_status = 2;
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    check_input(a.w.tasks);
    check_output(a.raw);
    check_output(a.w.profile);
    check_output(a.w.table);
    l = a.from;
    if (!a.from.n) run(&l, &a.w, NULL, check_gpus);
    if (a.w.quick && !a.from.n) run(&l, &a.w, "clocks, memory, host", sc_quick_run);
    if (wanted(&a, "footprint")) run(&l, &a.w, "footprints", sc_footprint_run);
    if (wanted(&a, "device")) run(&l, &a.w, "device", sc_device_run);
    if (wanted(&a, "fp8")) run(&l, &a.w, "products in fp8", sc_fp8_run);
    if (wanted(&a, "host")) run(&l, &a.w, "host memory", sc_host_stage);
    if (a.w.tasks && wanted(&a, "tasks")) run(&l, &a.w, "kernels", sc_tasks_run);
    if (a.w.world > 1 && wanted(&a, "collectives")) run(&l, &a.w, "collectives", sc_collectives_run);
    if (a.raw) put_lines(a.raw, &l);
    sc_aside aside;
    FILE *f = begin(&aside, a.w.profile);
    sc_profile_write(f, &a.w, l.at, l.n);
    finish(&aside, f, a.w.profile);
    if (!a.w.table || !a.w.tasks || a.from.n) return 0;
    run(&choices, &a.w, "algorithms", sc_table_run);
    put_lines(a.w.table, &choices);
    return 0;
}
