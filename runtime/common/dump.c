/* Copies values out of a run (--dump) into safetensors files, and records when each event ran (--trace) as Chrome trace
 * JSON, which Perfetto opens. Buffers are made at the start; nothing here changes a bit of the result.
 * Relies on: rank.h, file.h, the dump table of the build.
 * Relied on by: the targets (after each event and each program), launch.c (files). */
#include "../file.h"
#include "rank.h"
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ── dump ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    const sc_dump_info *info;
    uint8_t *bytes; /* contiguous copy */
    size_t size;
    bool taken;
} copy;

struct sc_dumps {
    copy *copies;
    int n;
    int **of_event; /* by program and event: the first copy, -1; copies of one event follow each other by `next` */
    int *next;
    char *header, *path;
    size_t header_size;
    uint8_t *span[SC_STREAMS]; /* a value's bytes as they lie in the arena; streams copy side by side */
};

bool sc_dump_matches(const sc_build *b, const sc_debug *d, char *names, size_t n) {
    size_t c = 0;
    names[0] = 0;
    for (int i = 0; i < b->ndumps; i++)
        if (!fnmatch(d->dump_pattern, b->dumps[i].name, 0)) return true;
    for (int i = 0; i < b->ndumps && c + 1 < n; i += b->ndumps / 4 + 1)
        c += (size_t)snprintf(names + c, n - c, "%s%s", c ? ", " : "", b->dumps[i].name);
    return false;
}

const char *sc_dump_path(const sc_debug *d) {
    return d->dump_path ? d->dump_path : "dump.safetensors";
}

/* Rank 0 writes the file as named, the others beside it: x.safetensors, x.rank1.safetensors. */
static char *rank_path(const char *path, int rank) {
    size_t n = strlen(path) + 32;
    char *out = sc_calloc(n, 1);
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    int stem = dot && (!slash || dot > slash) ? (int)(dot - path) : (int)strlen(path);
    if (rank)
        snprintf(out, n, "%.*s.rank%d%s", stem, path, rank, path + stem);
    else
        snprintf(out, n, "%s", path);
    return out;
}

void sc_dump_new(sc_rank *r) {
    const sc_build *b = r->b;
    struct sc_dumps *x = r->dumps = sc_calloc(1, sizeof *x);
    x->copies = sc_calloc((size_t)b->ndumps, sizeof *x->copies);
    x->next = sc_calloc((size_t)b->ndumps, sizeof *x->next);
    x->of_event = sc_calloc((size_t)b->nprograms, sizeof *x->of_event);
    for (int p = 0; p < b->nprograms; p++) {
        x->of_event[p] = sc_calloc((size_t)b->programs[p].nevents, sizeof(int));
        for (int e = 0; e < b->programs[p].nevents; e++) x->of_event[p][e] = -1;
    }
    x->header_size = 64;
    uint64_t span = 0;
    for (int i = 0; i < b->ndumps; i++) {
        const sc_dump_info *d = &b->dumps[i];
        if (fnmatch(r->d->dump_pattern, d->name, 0)) continue;
        copy *c = &x->copies[x->n];
        *c = (copy){.info = d, .size = (size_t)sc_numel(&d->t) * sc_size(d->t.dtype)};
        c->bytes = sc_calloc(c->size, 1);
        if (sc_span(&d->t) > span) span = sc_span(&d->t);
        x->next[x->n] = x->of_event[d->program][d->event];
        x->of_event[d->program][d->event] = x->n++;
        x->header_size += 2 * strlen(d->name) + 256;
    }
    x->header = sc_calloc(x->header_size, 1);
    for (int s = 0; s < SC_STREAMS; s++) x->span[s] = sc_calloc(span, 1);
    x->path = rank_path(sc_dump_path(r->d), r->rank);
}

void sc_dump_free(sc_rank *r) {
    struct sc_dumps *x = r->dumps;
    if (!x) return;
    for (int i = 0; i < x->n; i++) free(x->copies[i].bytes);
    for (int p = 0; p < r->b->nprograms; p++) free(x->of_event[p]);
    free(x->copies);
    free(x->next);
    free(x->of_event);
    free(x->header);
    for (int s = 0; s < SC_STREAMS; s++) free(x->span[s]);
    free(x->path);
    free(x);
}

bool sc_dump_wants(const sc_rank *r, int event) {
    return r->step == r->d->dump_step && r->dumps->of_event[r->current][event] >= 0;
}

void sc_dump_after(sc_rank *r, int event) {
    struct sc_dumps *x = r->dumps;
    if (!sc_dump_wants(r, event)) return;
    uint8_t *from = x->span[r->b->programs[r->current].events[event].stream];
    for (int i = x->of_event[r->current][event]; i >= 0; i = x->next[i]) {
        copy *c = &x->copies[i];
        const sc_tensor *t = &c->info->t;
        size_t size = sc_size(t->dtype);
        int64_t index[SC_DIMS] = {0}, at = 0, n = sc_numel(t);
        sc_read(r, t->host, t->at, from, sc_span(t));
        for (int64_t k = 0; k < n; k++) {
            memcpy(c->bytes + (size_t)k * size, from + at * (int64_t)size, size);
            for (int d = t->dims - 1; d >= 0; d--) {
                at += t->stride[d];
                if (++index[d] < t->shape[d]) break;
                at -= index[d] * t->stride[d];
                index[d] = 0;
            }
        }
        c->taken = true;
    }
}

/* micro_first, micro and micro_last have values of the same name: the last one taken is written. */
static bool superseded(const struct sc_dumps *x, int i) {
    for (int j = i + 1; j < x->n; j++)
        if (x->copies[j].taken && !strcmp(x->copies[j].info->name, x->copies[i].info->name)) return true;
    return false;
}

/* safetensors: length of the header (8 bytes, little-endian), header (JSON, padded with spaces), data. */
static size_t make_header(struct sc_dumps *x) {
    static const char *const dtypes[] = SC_DTYPE_STS;
    size_t n = 0, at = 0;
    x->header[n++] = '{';
    for (int i = 0; i < x->n; i++) {
        const copy *c = &x->copies[i];
        if (!c->taken || superseded(x, i)) continue;
        if (n > 1) x->header[n++] = ',';
        x->header[n++] = '"';
        for (const char *name = c->info->name; *name; name++) {
            if (*name == '"' || *name == '\\') x->header[n++] = '\\';
            x->header[n++] = *name;
        }
        n += (size_t)sprintf(x->header + n, "\":{\"dtype\":\"%s\",\"shape\":[", dtypes[c->info->t.dtype]);
        for (int d = 0; d < c->info->t.dims; d++)
            n += (size_t)sprintf(x->header + n, d ? ",%lld" : "%lld", (long long)c->info->t.shape[d]);
        n += (size_t)sprintf(x->header + n, "],\"data_offsets\":[%zu,%zu]}", at, at + c->size);
        at += c->size;
    }
    x->header[n++] = '}';
    while (n % 8) x->header[n++] = ' ';
    return n;
}

void sc_dump_end(sc_rank *r) {
    struct sc_dumps *x = r->dumps;
    bool any = false;
    if (r->step != r->d->dump_step) return;
    for (int i = 0; i < x->n; i++) any |= x->copies[i].taken && x->copies[i].info->program == r->current;
    if (!any) return;
    sc_aside a;
    uint64_t n = make_header(x);
    sc_aside_open(&a, x->path, NULL);
    sc_aside_write(&a, &n, sizeof n);
    sc_aside_write(&a, x->header, n);
    for (int i = 0; i < x->n; i++)
        if (x->copies[i].taken && !superseded(x, i)) sc_aside_write(&a, x->copies[i].bytes, x->copies[i].size);
    int error = sc_aside_commit(&a);
    if (error) sc_lose(SC_DUMP, x->path, error);
}

/* ── trace ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 * All ranks append to one file, which gets its name when they have ended. */
struct sc_trace {
    int fd;               /* -1: the trace is lost */
    int64_t *start, *end; /* by event */
    char *text;
    size_t size;
};

enum { TRACE_TEXT = 1 << 16, TRACE_LINE = 1024 };

bool sc_trace_create(const sc_build *b, sc_aside *a, const char *path) {
    static const char *const streams[] = SC_STREAM_NAMES;
    sc_aside_open(a, path, NULL);
    if (a->error) return false;
    FILE *f = sc_aside_print(a);
    if (f) fputs("[\n", f);
    for (int k = 0; f && k < b->world; k++) {
        for (int s = 0; s < SC_STREAMS; s++)
            fprintf(f, "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n", k,
                    s, streams[s]);
        fprintf(f, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}},\n", k, k);
    }
    if (f) sc_aside_printed(a, f);
    if (a->error) sc_lose(SC_TRACE, path, a->error);
    return true;
}

void sc_trace_close(sc_aside *a, const char *path, bool cut) {
    static const char end[] = "{\"name\":\"end\",\"ph\":\"M\",\"pid\":0,\"args\":{}}\n]\n";
    if (sc_lost(SC_TRACE)) {
        sc_aside_drop(a);
    } else if (cut && !sc_aside_direct(a)) {
        close(a->fd);
        sc_say("shardc: a rank was killed, perhaps while it wrote the trace: %s is left as it is", a->temp);
    } else {
        lseek(a->fd, 0, SEEK_END); /* a pipe has no end to go to */
        sc_aside_write(a, end, sizeof end - 1);
        int error = sc_aside_commit(a);
        if (error) sc_lose(SC_TRACE, path, error);
    }
}

/* Its file is gone at once: the state may need the room. */
static void lose_trace(sc_rank *r, int error) {
    sc_aside a = {.fd = r->trace->fd};
    sc_aside_place(&a, r->d->trace_path);
    sc_aside_drop(&a);
    r->trace->fd = -1;
    if (error) sc_lose(SC_TRACE, r->d->trace_path, error);
}

void sc_trace_new(sc_rank *r) {
    struct sc_trace *x = r->trace = sc_calloc(1, sizeof *x);
    sc_aside a = {0};
    int most = 1;
    for (int p = 0; p < r->b->nprograms; p++)
        if (r->b->programs[p].nevents > most) most = r->b->programs[p].nevents;
    x->start = sc_calloc((size_t)most, sizeof *x->start);
    x->end = sc_calloc((size_t)most, sizeof *x->end);
    x->text = sc_calloc(TRACE_TEXT, 1);
    sc_aside_place(&a, r->d->trace_path);
    x->fd = sc_lost(SC_TRACE) ? -1 : open(a.temp, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (x->fd < 0 && !sc_lost(SC_TRACE)) sc_lose(SC_TRACE, r->d->trace_path, errno);
}

void sc_trace_free(sc_rank *r) {
    if (!r->trace) return;
    if (r->trace->fd >= 0 && close(r->trace->fd)) sc_lose(SC_TRACE, r->d->trace_path, errno);
    free(r->trace->start);
    free(r->trace->end);
    free(r->trace->text);
    free(r->trace);
}

void sc_trace_event(sc_rank *r, int event, int64_t start_ns, int64_t end_ns) {
    r->trace->start[event] = start_ns;
    r->trace->end[event] = end_ns;
}

/* Every write appends whole lines, so that the lines of the ranks do not mix. */
static void flush_trace(sc_rank *r) {
    struct sc_trace *x = r->trace;
    if (x->fd >= 0 && sc_lost(SC_TRACE))
        lose_trace(r, 0); /* another rank has lost it */
    else if (x->fd >= 0 && x->size && !sc_write_all(x->fd, x->text, x->size))
        lose_trace(r, errno);
    x->size = 0;
}

/* Of all that an event reads and writes: a plan whose event has other bytes is not the one that runs. */
static int64_t touched(const sc_event_info *i) {
    int64_t bytes = 0;
    for (int k = 0; k < i->nreads; k++) bytes += i->reads[k].size;
    for (int k = 0; k < i->nwrites; k++) bytes += i->writes[k].size;
    return bytes;
}

void sc_trace_end(sc_rank *r) {
    struct sc_trace *x = r->trace;
    const sc_program_info *p = &r->b->programs[r->current];
    for (int e = 0; e < p->nevents; e++) {
        if (x->size + TRACE_LINE > TRACE_TEXT) flush_trace(r);
        const sc_event_info *i = &p->events[e];
        int n =
            snprintf(x->text + x->size, TRACE_LINE,
                     "{\"name\":\"%s %s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
                     "\"args\":{\"event\":\"%s\",\"program\":\"%s\",\"step\":%lld,\"module\":\"%s\",\"line\":%d,"
                     "\"touched\":%lld}},\n",
                     i->id, i->op, i->phase, r->rank, (int)i->stream, (double)x->start[e] / 1e3,
                     (double)(x->end[e] - x->start[e]) / 1e3, i->id, p->name, (long long)r->step,
                     i->module ? i->module : "", i->line, (long long)touched(i));
        if (n > 0 && n < TRACE_LINE) x->size += (size_t)n;
    }
    flush_trace(r);
}
