/* `inspect --format trace`: the schedule as it is predicted, in the JSON trace-event format that Perfetto and
 * chrome://tracing read. Event names and args are those of a run's --trace. Nothing but the counters is held in memory.
 * Relies on: json_writer.h, live.h. Relied on by: cli/inspect.c, through report.h. */
#include "../plan/json_writer.h"
#include "../plan/live.h"
#include "report.h"

#include <math.h>
#include <stdlib.h>

/* Times in whole nanoseconds, Perfetto's own resolution. Ends are rounded, not durations: so slices that follow each
 * other on a stream never overlap. */
static int64_t start_ns(const Event *e) {
    return llround(e->start_us * 1e3);
}

static int64_t end_ns(const Event *e) {
    return llround((e->start_us + e->duration_us) * 1e3);
}

static void put_ns(Json *j, const char *k, int64_t ns) { /* the format's unit is the microsecond */
    json_key(j, k);
    str_int(&j->s, ns / 1000);
    char rest[] = {'.', (char)('0' + ns / 100 % 10), (char)('0' + ns / 10 % 10), (char)('0' + ns % 10)};
    str_bytes(&j->s, rest, sizeof rest);
    j->comma = true;
}

/* A program's and a stream's number in the trace; no two are equal, as in an operating system. */
static int pid_of(int program) {
    return program + 1;
}

static int tid_of(int pid, Stream s) {
    return 100 * pid + (int)s;
}

/* An entry of the trace up to its args. tid -1: it belongs to the whole process. */
static void entry(Json *j, const char *kind, int pid, int tid) {
    json_open_line(j, NULL, '{');
    json_str(j, "ph", kind);
    json_int(j, "pid", pid);
    if (tid >= 0) json_int(j, "tid", tid);
}

static void close_args(Json *j) {
    json_close(j, '}');
    json_close(j, '}');
}

static void label(Json *j, int pid, int tid, const char *name, const char *value, int order) {
    entry(j, "M", pid, tid);
    json_str(j, "name", arena_printf(j->s.arena, "%s_name", name));
    json_open(j, "args", '{');
    json_str(j, "name", value);
    close_args(j);
    entry(j, "M", pid, tid);
    json_str(j, "name", arena_printf(j->s.arena, "%s_sort_index", name));
    json_open(j, "args", '{');
    json_int(j, "sort_index", order);
    close_args(j);
}

static void slice(Json *j, const PlanProgram *g, int pid, const Event *e) {
    entry(j, "X", pid, tid_of(pid, e->stream));
    json_key(j, "name");
    str_add(&j->s, "\"");
    json_escaped(j, e->id);
    str_add(&j->s, " ");
    json_escaped(j, e->op);
    str_add(&j->s, "\"");
    j->comma = true;
    json_str(j, "cat", phase_name(e->phase));
    put_ns(j, "ts", start_ns(e));
    put_ns(j, "dur", end_ns(e) - start_ns(e));
    json_open(j, "args", '{');
    json_str(j, "event", e->id);
    json_str(j, "program", g->name);
    json_str(j, "op", e->op);
    json_str(j, "module", e->module);
    json_real(j, "bytes", e->bytes);
    json_real(j, "flops", e->flops);
    if (e->src.file) {
        json_str(j, "file", e->src.file);
        json_int(j, "line", e->src.line);
    }
    close_args(j);
}

/* From the last nanosecond of what is awaited to the begin of what waits: both ends lie in their slices. */
static void flow(Json *j, int pid, int id, const Event *from, const Event *to) {
    for (int end = 0; end < 2; end++) {
        const Event *e = end ? to : from;
        entry(j, end ? "f" : "s", pid, tid_of(pid, e->stream));
        json_int(j, "id", id);
        json_str(j, "name", "wait");
        json_str(j, "cat", "wait");
        if (end) json_str(j, "bp", "e");
        put_ns(j, "ts", end || end_ns(e) == start_ns(e) ? start_ns(e) : end_ns(e) - 1);
        json_close(j, '}');
    }
}

/* ── live bytes over time ────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    int64_t ns, bytes; /* bytes < 0: given back */
    StorageClass cls;
} Change;
typedef VEC(Change) Changes;

static int by_time(const void *a, const void *b) {
    const Change *x = a, *y = b;
    return (x->ns > y->ns) - (x->ns < y->ns);
}

/* A transient storage is alive from the begin of the first event that touches it to the end of the last one. Streams
 * run beside each other, so these need not be the first and the last in issue order. */
static Changes changes_of(Arena *a, const Plan *p, int program) {
    const PlanProgram *g = &p->programs[program];
    int64_t *from = NEW_ARRAY(a, int64_t, p->nstorages + 1), *to = NEW_ARRAY(a, int64_t, p->nstorages + 1);
    for (int i = 0; i < p->nstorages; i++) from[i] = INT64_MAX;
    for (int i = 0; i < g->n; i++) {
        const Event *e = &g->events[i];
        for (int k = 0; k < e->nreads + e->nwrites; k++) {
            int s = (k < e->nreads ? e->reads[k] : e->writes[k - e->nreads]).storage;
            from[s] = min64(from[s], start_ns(e));
            to[s] = max64(to[s], end_ns(e));
        }
    }
    Changes out = {0};
    for (int i = 0; i < p->nstorages; i++) {
        const Storage *s = &p->storages[i];
        if (s->arena != ARENA_DEVICE || s->program != program || from[i] == INT64_MAX) continue;
        push(&out, a, ((Change){from[i], s->size, s->cls}));
        push(&out, a, ((Change){to[i], -s->size, s->cls}));
    }
    if (out.n) qsort(out.at, (size_t)out.n, sizeof *out.at, by_time);
    return out;
}

static void counter(Json *j, int pid, int64_t ns, const bool shown[N_CLASSES], const int64_t live[N_CLASSES]) {
    entry(j, "C", pid, -1);
    json_str(j, "name", "device memory");
    put_ns(j, "ts", ns);
    json_open(j, "args", '{');
    for (int c = 0; c < N_CLASSES; c++)
        if (shown[c]) json_int(j, storage_class_name((StorageClass)c), live[c]);
    close_args(j);
}

static void counters(Json *j, const Plan *p, int program) {
    Arena *a = arena_new();
    int64_t live[N_CLASSES];
    bool shown[N_CLASSES] = {false};
    memcpy(live, live_at(p, program, -1).of, sizeof live);
    Changes changes = changes_of(a, p, program);
    for (int c = 0; c < N_CLASSES; c++) shown[c] = live[c] > 0;
    for (int i = 0; i < changes.n; i++) shown[changes.at[i].cls] = true;
    if (!changes.n || changes.at[0].ns > 0) counter(j, pid_of(program), 0, shown, live);
    for (int i = 0; i < changes.n; i++) {
        live[changes.at[i].cls] += changes.at[i].bytes;
        if (i + 1 < changes.n && changes.at[i + 1].ns == changes.at[i].ns) continue;
        counter(j, pid_of(program), changes.at[i].ns, shown, live);
    }
    arena_free(a);
}

void report_trace(FILE *f, const Plan *p) {
    Json j = {.f = f, .s = {.arena = p->arena}};
    json_open(&j, NULL, '{');
    json_str(&j, "displayTimeUnit", "ns");
    json_open(&j, "otherData", '{');
    json_str(&j, "model", p->model);
    json_str(&j, "device", p->device);
    json_int(&j, "world", p->world);
    json_close(&j, '}');
    json_open(&j, "traceEvents", '[');
    int flows = 0;
    for (int i = 0; i < p->nprograms; i++) {
        const PlanProgram *g = &p->programs[i];
        bool used[N_STREAMS] = {false};
        for (int e = 0; e < g->n; e++) used[g->events[e].stream] = true;
        int pid = pid_of(i);
        label(&j, pid, -1, "process", g->name, i);
        for (int s = 0; s < N_STREAMS; s++)
            if (used[s]) label(&j, pid, tid_of(pid, (Stream)s), "thread", stream_name((Stream)s), s);
        for (int e = 0; e < g->n; e++) {
            const Event *x = &g->events[e];
            slice(&j, g, pid, x);
            for (int w = 0; w < x->nwaits; w++) flow(&j, pid, ++flows, &g->events[x->waits[w]], x);
        }
        counters(&j, p, i);
    }
    json_close(&j, ']');
    json_end(&j);
}
