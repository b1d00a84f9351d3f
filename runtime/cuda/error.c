/* Failures of CUDA and its libraries, in one sentence: rank, call, event with its Lua line, the library's own words,
 * and what to do about it. A rank is a process, so what it is at can be kept here. Relies on: rank.h. Relied on by:
 * everything that checks a return code (cuda.h). */
#include "rank.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static sc_rank *self;

void sc_errors_name(sc_rank *r) {
    self = r;
}

void sc_check_thread(sc_rank *r, int e) {
    if (e) sc_stop(r, 1, "shardc: rank %d cannot start a thread: %s", r->rank, strerror(e));
}

/* By the error's name as CUDA spells it; else by the library. */
static const char *remedy(const char *library, const char *error) {
    static const struct {
        const char *name, *text;
    } known[] = {
        {"cudaErrorMemoryAllocation", "the GPU's memory is full: stop what else runs on it, or build with a smaller "
                                      "batch, recompute or offload"},
        {"cudaErrorInsufficientDriver", "the GPU's driver is older than this program's CUDA: update the driver"},
        {"cudaErrorSystemDriverMismatch", "the driver's library and its kernel module differ: restart the machine, or "
                                          "install the driver again"},
        {"cudaErrorNoDevice", "no GPU is visible: see nvidia-smi and CUDA_VISIBLE_DEVICES"},
        {"cudaErrorNoKernelImageForDevice", "this program was compiled for another GPU: build it with --arch sm_NN as "
                                            "`nvidia-smi --query-gpu=compute_cap --format=csv` says"},
        {"cudaErrorInvalidConfiguration", "a launch asks for more threads or blocks than a GPU has, or for none"},
        {"cudaErrorIllegalAddress", "a kernel left its memory: run again with --no-graph under compute-sanitizer, and "
                                    "please report it"},
        {"cudaErrorStreamCaptureUnsupported", "a library does what a graph cannot hold: run with --no-graph"},
        {"cudaErrorECCUncorrectable", "the GPU's memory is damaged: see nvidia-smi -q, reset or replace the GPU"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(error, known[i].name)) return known[i].text;
    if (!strcmp(library, "NCCL")) return "set NCCL_DEBUG=WARN for NCCL's own account";
    if (!strcmp(library, "malloc")) return "free some of the machine's memory";
    return "see nvidia-smi, and dmesg for messages of the driver; --no-graph tells which event it is: please report it";
}

/* " in e131 matmul ...", or nothing, into n bytes. */
static const char *place(char *out, size_t n) {
    const sc_target *t = self ? self->t : NULL;
    char event[512];
    *out = 0;
    if (t && t->event >= 0) {
        sc_describe(self->b, self->current, t->event, event, sizeof event);
        snprintf(out, n, " in %s", event);
    } else if (t && t->running) {
        snprintf(out, n, " in program %s, step %lld", self->b->programs[self->current].name, (long long)self->step);
    }
    return out;
}

/* No atexit handlers: the driver's would wait for kernels that wait for other ranks. */
void sc_leave(int code) {
    fflush(NULL);
    _exit(code);
}

static _Noreturn void leave(void) {
    sc_leave(self && self->t && self->t->running ? 3 : 1);
}

void sc_failed(const char *library, const char *call, const char *error, const char *text, const char *file, int line) {
    char who[32] = "", at[600];
    bool more = text && *text && strcmp(text, error);
    if (self) snprintf(who, sizeof who, "rank %d: ", self->rank);
    sc_say("shardc: %s%s failed%s%s%s%s%s%s [%s at %s:%d]; %s", who, library, *error ? ": " : "", error,
           more ? " (" : "", more ? text : "", more ? ")" : "", place(at, sizeof at), call, basename(file), line,
           remedy(library, error));
    leave();
}

void sc_unsupported(const sc_task *t, const char *kernel, const char *why) {
    char at[600];
    sc_say("shardc: rank %d: %s on the cuda target: %s%s", t->rank, kernel, why, place(at, sizeof at));
    leave();
}
