/* A program's events on CUDA streams: launches with their waits, and one graph a program. The same functions survey the
 * events, launch them, or are captured while they launch.
 * Relies on: rank.h, collective.c, debug.c.
 * Relied on by: emitted code (sc_run, sc_wait, ...), rank.c. */
#include "rank.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { REHEARSED = 8 }; /* bytes of a copy in a rehearsal */

/* ── streams and events ──────────────────────────────────────────────────────────────────────────────────────────────
 */
/* A tracer that is preloaded (bench/cupti_trace.c) is told whose launches follow. */
static void (*listener)(const char *program, const sc_event_info *e, cudaStream_t s);

/* Communication before computation where both could run: its kernels are few and short of work for the GPU, and
 * everything waits for them. */
void sc_streams_new(sc_rank *r) {
    sc_target *t = r->t;
    int least, greatest;
    *(void **)&listener = dlsym(RTLD_DEFAULT, "sc_tracer_event");
    SC_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    bool used[SC_STREAMS] = {[COMPUTE] = true};
    for (int p = 0; p < r->b->nprograms; p++) {
        for (int s = 0; s < SC_STREAMS; s++) used[s] |= t->programs[p].uses[s];
        if (r->b->programs[p].nevents > t->ndone) t->ndone = r->b->programs[p].nevents;
    }
    for (int s = 0; s < SC_STREAMS; s++) {
        if (!used[s]) continue;
        SC_CUDA(cudaStreamCreateWithPriority(&t->stream[s], cudaStreamNonBlocking, s == COMPUTE ? least : greatest));
        SC_CUDA(cudaEventCreateWithFlags(&t->join[s], cudaEventDisableTiming));
    }
    t->done = sc_calloc((size_t)t->ndone, sizeof(cudaEvent_t));
    for (int p = 0; p < r->b->nprograms; p++)
        for (int e = 0; e < r->b->programs[p].nevents; e++)
            if (t->programs[p].awaited[e] && !t->done[e])
                SC_CUDA(cudaEventCreateWithFlags(&t->done[e], cudaEventDisableTiming));
    SC_CUDA(cudaEventCreateWithFlags(&t->fork, cudaEventDisableTiming));
}

void sc_streams_free(sc_rank *r) {
    sc_target *t = r->t;
    for (int p = 0; p < r->b->nprograms; p++) {
        if (t->programs[p].graph) SC_CUDA(cudaGraphExecDestroy(t->programs[p].graph));
        free(t->programs[p].awaited);
        free(t->programs[p].stream_of);
    }
    for (int e = 0; e < t->ndone; e++)
        if (t->done[e]) SC_CUDA(cudaEventDestroy(t->done[e]));
    for (int s = 0; s < SC_STREAMS; s++) {
        if (!t->stream[s]) continue;
        SC_CUDA(cudaEventDestroy(t->join[s]));
        SC_CUDA(cudaStreamDestroy(t->stream[s]));
    }
    SC_CUDA(cudaEventDestroy(t->fork));
    free(t->done);
    free(t->programs);
}

/* ── the survey: which events others wait for, which streams and communicators there are ─────────────────────────────
 */
void sc_survey(sc_rank *r) {
    r->t->programs = sc_calloc((size_t)r->b->nprograms, sizeof *r->t->programs);
    r->t->mode = SC_SURVEY;
    for (int p = 0; p < r->b->nprograms; p++) {
        sc_program *x = &r->t->programs[p];
        int n = r->b->programs[p].nevents;
        x->awaited = sc_calloc((size_t)n, sizeof *x->awaited);
        x->stream_of = sc_calloc((size_t)n, sizeof *x->stream_of);
        for (int e = 0; e < n; e++) x->stream_of[e] = -1;
        r->current = p;
        r->b->programs[p].text(r);
    }
}

static void survey_event(sc_rank *r, int event, sc_stream s, int slots, const sc_tensor *t) {
    sc_program *p = &r->t->programs[r->current];
    if (event < 0 || event >= r->b->programs[r->current].nevents || p->stream_of[event] >= 0)
        sc_stop(r, 3, "shardc: program %s issues event %d twice or out of its table", r->b->programs[r->current].name,
                event);
    if (slots > SC_TENSORS)
        sc_stop(r, 3, "shardc: event %s has %d tensors, at most %d", sc_event_id(r, event), slots, SC_TENSORS);
    p->stream_of[event] = s;
    p->uses[s] = true;
    for (int i = 0; i < slots; i++)
        if (t[i].there) sc_check_tensor(r, event, &t[i]);
}

static void survey_wait(sc_rank *r, sc_stream s, int event) {
    sc_program *p = &r->t->programs[r->current];
    if (event < 0 || event >= r->b->programs[r->current].nevents || p->stream_of[event] < 0)
        sc_stop(r, 3, "shardc: program %s waits for event %d (%s), which is not issued before",
                r->b->programs[r->current].name, event, sc_event_id(r, event));
    if (p->stream_of[event] != (int)s) p->awaited[event] = true; /* else implied by the stream's order */
}

/* ── what emitted code calls ──────────────────────────────────────────────────────────────────────────────────────────
 */
void sc_wait(sc_rank *r, sc_stream s, int event) {
    if (r->t->mode == SC_TUNE) return;
    if (r->t->mode == SC_SURVEY) {
        survey_wait(r, s, event);
        return;
    }
    if (r->t->programs[r->current].stream_of[event] != (int)s)
        SC_CUDA(cudaStreamWaitEvent(r->t->stream[s], r->t->done[event], 0));
}

sc_task sc_task_of(const sc_rank *r, const sc_args *args, int slots, sc_stream s) {
    return (sc_task){.args = args,
                     .slots = slots,
                     .record = (const sc_record *)(r->arena[0] + r->b->record_at),
                     .rank = r->rank,
                     .world = r->world,
                     .coord = r->coord,
                     .parts = 1,
                     .stream = r->t->stream[s],
                     .library = &r->t->cuda};
}

static void resolve(const sc_rank *r, int slots, sc_tensor *t) {
    for (int i = 0; i < slots; i++)
        if (t[i].there) t[i].p = r->arena[t[i].host] + t[i].at;
}

static void begin(sc_rank *r, int event, sc_stream s) {
    r->t->event = event;
    if (listener && r->t->mode != SC_REHEARSE)
        listener(r->b->programs[r->current].name, &r->b->programs[r->current].events[event], r->t->stream[s]);
    if (r->t->mode == SC_DIRECT) sc_watch_before(r, event, s);
}

/* What follows every event: those who look inside, then those who wait. */
static void finish(sc_rank *r, int event, sc_stream s, const void *args, size_t size, int slots) {
    if (r->t->mode == SC_DIRECT) sc_watch_after(r, event, s, args, size, slots);
    if (r->t->programs[r->current].awaited[event]) SC_CUDA(cudaEventRecord(r->t->done[event], r->t->stream[s]));
    r->t->event = -1;
}

void sc_run(sc_rank *r, int event, sc_stream s, sc_kernel *k, const void *args, size_t size, int slots) {
    if (r->t->mode == SC_SURVEY) {
        survey_event(r, event, s, slots, args);
        sc_libraries_survey(r, event, args);
        return;
    }
    sc_args resolved;
    memcpy(&resolved, args, size);
    resolve(r, slots, resolved.t);
    if (r->t->mode == SC_TUNE) {
        sc_tune(r, event, k, &resolved, slots);
        return;
    }
    sc_task task = sc_task_of(r, &resolved, slots, s);
    begin(r, event, s);
    if (s == HOST)
        sc_host_run(r, event, k, &task, size);
    else
        k(&task);
    finish(r, event, s, &resolved, size, slots);
}

void sc_copy_bytes(sc_rank *r, int event, sc_stream s, sc_tensor out, sc_tensor in) {
    sc_tensor both[] = {out, in};
    if (r->t->mode == SC_TUNE) return;
    if (r->t->mode == SC_SURVEY) {
        survey_event(r, event, s, 2, both);
        return;
    }
    size_t bytes = (size_t)sc_numel(&in) * sc_size(in.dtype);
    if (r->t->mode == SC_REHEARSE && bytes > REHEARSED) bytes = REHEARSED;
    resolve(r, 2, both);
    begin(r, event, s);
    SC_CUDA(cudaMemcpyAsync(both[0].p, both[1].p, bytes, cudaMemcpyDefault, r->t->stream[s]));
    finish(r, event, s, both, sizeof both, 2);
}

void sc_issue_collective(sc_rank *r, sc_collective_kind kind, int event, sc_stream s, int comm, int nt, sc_tensor *t) {
    if (r->t->mode == SC_TUNE) return;
    if (r->t->mode == SC_SURVEY) {
        sc_check_collective(r, kind, event, comm, nt, t);
        survey_event(r, event, s, nt, t);
        r->t->comms.talks[comm][sc_policy_of(kind)] = true;
        return;
    }
    resolve(r, nt, t);
    begin(r, event, s);
    sc_collective(r, kind, event, s, comm, t, t + nt - 1);
    finish(r, event, s, t, (size_t)nt * sizeof *t, nt);
}

/* ── a program ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
void sc_issue(sc_rank *r) {
    sc_target *t = r->t;
    const sc_program *p = &t->programs[r->current];
    sc_marks_begin(r);
    SC_CUDA(cudaEventRecord(t->fork, t->stream[COMPUTE]));
    for (int s = 0; s < SC_STREAMS; s++)
        if (s != COMPUTE && p->uses[s]) SC_CUDA(cudaStreamWaitEvent(t->stream[s], t->fork, 0));
    r->b->programs[r->current].text(r);
    for (int s = 0; s < SC_STREAMS; s++) {
        if (s == COMPUTE || !p->uses[s]) continue;
        SC_CUDA(cudaEventRecord(t->join[s], t->stream[s]));
        SC_CUDA(cudaStreamWaitEvent(t->stream[COMPUTE], t->join[s], 0));
    }
    sc_marks_join(r);
}

void sc_capture(sc_rank *r) {
    sc_target *t = r->t;
    cudaGraph_t graph;
    t->mode = SC_CAPTURE;
    SC_CUDA(cudaStreamBeginCapture(t->stream[COMPUTE], cudaStreamCaptureModeRelaxed));
    sc_issue(r);
    SC_CUDA(cudaStreamEndCapture(t->stream[COMPUTE], &graph));
    SC_CUDA(cudaGraphInstantiate(&t->programs[r->current].graph, graph, cudaGraphInstantiateFlagUseNodePriority));
    SC_CUDA(cudaGraphDestroy(graph));
    SC_CUDA(cudaGraphUpload(t->programs[r->current].graph, t->stream[COMPUTE]));
}
