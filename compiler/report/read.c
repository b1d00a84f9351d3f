/* Reads a plan from JSON or from a built binary, trusting nothing: types, ranges, names, indices and sums are checked.
 * Relies on: jansson, plan.h; read_file.
 * Relied on by: every command that takes a plan, the tests, the fuzzer (plan_parse). */
#include "report.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdlib.h>

#define LIMIT ((int64_t)1 << 53) /* of every size and offset: what a double, and so any JSON tool, can hold */
enum { MAX_PATH = 8, MAX_LIST = 1 << 22 };

typedef struct {
    Arena *a;
    jmp_buf bad;
    const char *error;
    struct {
        const char *name; /* member, or list with index >= 0 */
        int index;
    } path[MAX_PATH];
    int depth;
} Reader;

/* ── diagnostics: where in the document, and what is wrong ────────────────────────────────────────────────── */
_Noreturn static void bad(Reader *r, const char *key, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
_Noreturn static void bad(Reader *r, const char *key, const char *fmt, ...) {
    Str s = {.arena = r->a};
    for (int i = 0; i < r->depth; i++) {
        str_addf(&s, "%s%s", i ? "." : "", r->path[i].name);
        if (r->path[i].index >= 0) str_addf(&s, "[%d]", r->path[i].index);
    }
    if (key) str_addf(&s, "%s%s", r->depth ? "." : "", key);
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    str_addf(&s, "%s%s", s.n ? ": " : "", text);
    r->error = s.s;
    longjmp(r->bad, 1);
}

static void enter(Reader *r, const char *name, int index) {
    r->path[r->depth].name = name;
    r->path[r->depth++].index = index;
}

static void leave(Reader *r) {
    r->depth--;
}

/* ── typed members ────────────────────────────────────────────────────────────────────────────────────────── */
static json_t *member(Reader *r, json_t *o, const char *key) {
    if (!json_is_object(o)) bad(r, NULL, "must be an object");
    json_t *x = json_object_get(o, key);
    if (!x) bad(r, key, "is missing");
    return x;
}

static json_t *list(Reader *r, json_t *o, const char *key) {
    json_t *x = member(r, o, key);
    if (!json_is_array(x)) bad(r, key, "must be a list");
    if (json_array_size(x) > MAX_LIST) bad(r, key, "has %zu entries, more than any plan", json_array_size(x));
    return x;
}

static const char *checked_text(Reader *r, json_t *x, const char *key) {
    if (!json_is_string(x)) bad(r, key, "must be a string");
    const char *s = json_string_value(x);
    if (json_string_length(x) > 4096) bad(r, key, "is longer than 4096 bytes");
    for (const char *c = s; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) bad(r, key, "holds a control character");
    return arena_strdup(r->a, s);
}

static const char *text(Reader *r, json_t *o, const char *key) {
    return checked_text(r, member(r, o, key), key);
}

static int64_t checked_integer(Reader *r, json_t *x, const char *key, int64_t low, int64_t high) {
    if (!json_is_integer(x)) bad(r, key, "must be an integer");
    int64_t v = json_integer_value(x);
    if (v < low || v > high)
        bad(r, key, "%lld is not between %lld and %lld", (long long)v, (long long)low, (long long)high);
    return v;
}

static int64_t integer(Reader *r, json_t *o, const char *key, int64_t low, int64_t high) {
    return checked_integer(r, member(r, o, key), key, low, high);
}

static double real(Reader *r, json_t *o, const char *key) {
    json_t *x = member(r, o, key);
    if (!json_is_number(x)) bad(r, key, "must be a number");
    double v = json_number_value(x);
    if (!(v >= 0 && v <= 1e300)) bad(r, key, "%g is not a size, a count or a time", v);
    return v;
}

/* An enum by its printed name. */
#define NAMED(FUNCTION, TYPE, COUNT, PRINTED)                                                                          \
    static TYPE FUNCTION(Reader *r, json_t *o, const char *key) {                                                      \
        const char *s = text(r, o, key), *names[COUNT];                                                                \
        for (int i = 0; i < COUNT; i++) {                                                                              \
            names[i] = PRINTED((TYPE)i);                                                                               \
            if (!strcmp(s, names[i])) return (TYPE)i;                                                                  \
        }                                                                                                              \
        const char *near = nearest_name(s, names, COUNT);                                                              \
        if (near) bad(r, key, "\"%.60s\" is unknown; is it \"%s\"?", s, near);                                         \
        bad(r, key, "\"%.60s\" is unknown", s);                                                                        \
    }

static const char *arena_name(ArenaKind k) {
    return k == ARENA_DEVICE ? "device" : "host";
}
NAMED(class_named, StorageClass, N_CLASSES, storage_class_name)
NAMED(stream_named, Stream, N_STREAMS, stream_name)
NAMED(phase_named, Phase, N_PHASES, phase_name)
NAMED(dtype_named, Dtype, N_DTYPES, dtype_name)
NAMED(arena_named, ArenaKind, N_ARENAS, arena_name)

static int group_named(Reader *r, const Plan *p, json_t *o, const char *key) {
    const char *s = text(r, o, key);
    for (int i = 0; i < p->ncomms; i++)
        if (!strcmp(s, p->comms[i].name)) return i;
    bad(r, key, "there is no group of ranks \"%.60s\"", s);
}

/* ── parts ────────────────────────────────────────────────────────────────────────────────────────────────── */
static void read_groups(Reader *r, Plan *p, json_t *mesh) {
    json_t *groups = list(r, mesh, "groups");
    p->ncomms = (int)json_array_size(groups);
    p->comms = NEW_ARRAY(r->a, Comm, p->ncomms + 1);
    for (int i = 0; i < p->ncomms; i++) {
        json_t *x = json_array_get(groups, (size_t)i);
        enter(r, "groups", i);
        p->comms[i].name = text(r, x, "name");
        p->comms[i].n = (int)integer(r, x, "ranks", 1, p->world);
        p->comms[i].step = (int)integer(r, x, "apart", 1, p->world / p->comms[i].n);
        leave(r);
    }
}

static void read_head(Reader *r, Plan *p, json_t *o) {
    const char *format = text(r, o, "format");
    if (strcmp(format, "shardc-plan"))
        bad(r, "format", "\"%.60s\" is not a plan; `shardc inspect --format json` writes one", format);
    int64_t version = integer(r, o, "version", 0, 1 << 30);
    if (version != 1)
        bad(r, "version", "is %lld, this shardc reads version 1; build the model again", (long long)version);
    p->model = text(r, o, "model");
    p->target = text(r, o, "target");
    p->tokens_per_step = real(r, o, "tokens_per_step");
    p->model_flops = real(r, o, "model_flops");
    json_t *device = member(r, o, "device"), *mesh = member(r, o, "mesh"), *arenas = member(r, o, "arenas");
    enter(r, "device", -1);
    p->device = text(r, device, "name");
    p->device_usable = real(r, device, "usable_bytes");
    p->peak_flops = real(r, device, "peak_flops");
    leave(r);
    enter(r, "mesh", -1);
    p->world = (int)integer(r, mesh, "world", 1, 1 << 24);
    p->nodes = (int)integer(r, mesh, "nodes", 1, p->world);
    read_groups(r, p, mesh);
    leave(r);
    enter(r, "arenas", -1);
    for (int k = 0; k < N_ARENAS; k++) {
        json_t *x = member(r, arenas, arena_name((ArenaKind)k));
        enter(r, arena_name((ArenaKind)k), -1);
        p->arena_bytes[k] = integer(r, x, "bytes", 0, LIMIT);
        p->bound_bytes[k] = integer(r, x, "bound", 0, LIMIT);
        leave(r);
    }
    leave(r);
}

static void read_options(Reader *r, Plan *p, json_t *o) {
    json_t *options = member(r, o, "options"), *x;
    if (!json_is_object(options)) bad(r, "options", "must be an object");
    p->options = NEW_ARRAY(r->a, OptionValue, json_object_size(options) + 1);
    enter(r, "options", -1);
    const char *key;
    json_object_foreach(options, key, x) {
        if (!json_is_string(x)) bad(r, NULL, "every option's value must be a string");
        OptionValue *v = &p->options[p->noptions++];
        for (const char *c = key; *c; c++)
            if ((unsigned char)*c < 0x20 || *c == 0x7f) bad(r, NULL, "an option's name holds a control character");
        v->name = arena_strdup(r->a, key);
        v->text = arena_strdup(r->a, json_string_value(x));
    }
    leave(r);
}

static void read_library(Reader *r, Plan *p, json_t *o) {
    json_t *prediction = member(r, o, "prediction");
    enter(r, "prediction", -1);
    json_t *lines = list(r, prediction, "library");
    p->nlibrary = (int)json_array_size(lines);
    p->library = NEW_ARRAY(r->a, LibraryLine, p->nlibrary + 1);
    for (int i = 0; i < p->nlibrary; i++) {
        json_t *x = json_array_get(lines, (size_t)i);
        enter(r, "library", i);
        p->library[i] =
            (LibraryLine){text(r, x, "name"), real(r, x, "bytes"), real(r, x, "tolerance"), text(r, x, "source")};
        leave(r);
    }
    leave(r);
}

static void read_units(Reader *r, Plan *p, json_t *o, int nstorages) {
    json_t *units = list(r, o, "units");
    p->nunits = (int)json_array_size(units);
    p->units = NEW_ARRAY(r->a, PlanUnit, p->nunits + 1);
    for (int i = 0; i < p->nunits; i++) {
        json_t *x = json_array_get(units, (size_t)i);
        PlanUnit *u = &p->units[i];
        enter(r, "units", i);
        u->id = (int)integer(r, x, "id", i, i);
        u->path = text(r, x, "path");
        u->shards = (int)integer(r, x, "shards", 1, 1 << 24);
        u->replicas = (int)integer(r, x, "replicas", 1, 1 << 24);
        u->numel = integer(r, x, "numel", 0, LIMIT);
        u->dtype = dtype_named(r, x, "dtype");
        u->wire = dtype_named(r, x, "wire");
        u->reduce = dtype_named(r, x, "reduce");
        u->nparams = (int)integer(r, x, "parameters", 0, INT32_MAX);
        u->master_storage = json_object_get(x, "master") ? (int)integer(r, x, "master", 0, nstorages - 1) : -1;
        leave(r);
    }
}

static int program_named(Reader *r, const Plan *p, json_t *o, const char *key) {
    const char *s = text(r, o, key);
    for (int i = 0; i < p->nprograms; i++)
        if (!strcmp(s, p->programs[i].name)) return i;
    bad(r, key, "there is no program \"%.60s\"", s);
}

static int checked_event(Reader *r, const Map *ids, json_t *x, const char *key) {
    const char *s = checked_text(r, x, key);
    intptr_t k = (intptr_t)map_get(ids, s);
    if (!k) bad(r, key, "there is no event \"%.60s\" in this program", s);
    return (int)(k - 1);
}

static void read_storages(Reader *r, Plan *p, json_t *storages, Map *const *ids) {
    int64_t sum = 0;
    for (int i = 0; i < p->nstorages; i++) {
        json_t *x = json_array_get(storages, (size_t)i);
        Storage *s = &p->storages[i];
        enter(r, "storages", i);
        s->id = (int)integer(r, x, "id", i, i);
        s->cls = class_named(r, x, "class");
        s->name = text(r, x, "name");
        s->owner = text(r, x, "owner");
        s->arena = arena_named(r, x, "arena");
        s->offset = integer(r, x, "offset", 0, LIMIT);
        s->size = integer(r, x, "size", 0, LIMIT);
        if (__builtin_add_overflow(sum, s->size, &sum)) bad(r, "size", "the sizes of all storages overflow");
        s->program = -1;
        s->first = -1;
        s->last = INT32_MAX;
        if (json_object_get(x, "program")) {
            s->program = program_named(r, p, x, "program");
            s->first = checked_event(r, ids[s->program], member(r, x, "first"), "first");
            s->last = checked_event(r, ids[s->program], member(r, x, "last"), "last");
            if (s->first > s->last) bad(r, "last", "comes before the first event");
        }
        leave(r);
    }
}

static Access *read_accesses(Reader *r, const Plan *p, json_t *o, const char *key, int *n) {
    json_t *l = list(r, o, key);
    *n = (int)json_array_size(l);
    Access *out = NEW_ARRAY(r->a, Access, *n + 1);
    for (int i = 0; i < *n; i++) {
        json_t *x = json_array_get(l, (size_t)i);
        enter(r, key, i);
        if (!json_is_array(x) || json_array_size(x) != 3) bad(r, NULL, "must be [storage, offset, size]");
        out[i].storage = (int)checked_integer(r, json_array_get(x, 0), NULL, 0, p->nstorages - 1);
        out[i].offset = checked_integer(r, json_array_get(x, 1), NULL, 0, LIMIT);
        out[i].size = checked_integer(r, json_array_get(x, 2), NULL, 0, LIMIT);
        leave(r);
    }
    return out;
}

static Source read_source(Reader *r, json_t *o) {
    json_t *x = json_object_get(o, "source");
    if (!x) return NOWHERE;
    char *s = (char *)checked_text(r, x, "source"), *colon = strrchr(s, ':'), *end = NULL;
    long line = colon ? strtol(colon + 1, &end, 10) : -1;
    if (!colon || end == colon + 1 || *end || line < 0 || line > INT32_MAX) bad(r, "source", "must be \"file:line\"");
    *colon = 0;
    return (Source){s, (int)line};
}

static void read_event(Reader *r, const Plan *p, const Map *ids, Event *e, json_t *x) {
    e->id = text(r, x, "id");
    e->op = text(r, x, "op");
    e->stream = stream_named(r, x, "stream");
    e->phase = phase_named(r, x, "phase");
    e->module = text(r, x, "module");
    e->src = read_source(r, x);
    e->unit = json_object_get(x, "unit") ? (int)integer(r, x, "unit", 0, p->nunits - 1) : -1;
    e->comm = json_object_get(x, "comm") ? group_named(r, p, x, "comm") : -1;
    json_t *update = json_object_get(x, "update");
    if (update && !json_is_boolean(update)) bad(r, "update", "must be true or false");
    e->update = json_is_true(update);
    json_t *waits = list(r, x, "waits");
    e->nwaits = (int)json_array_size(waits);
    e->waits = NEW_ARRAY(r->a, int, e->nwaits + 1);
    for (int i = 0; i < e->nwaits; i++) e->waits[i] = checked_event(r, ids, json_array_get(waits, (size_t)i), "waits");
    e->reads = read_accesses(r, p, x, "reads", &e->nreads);
    e->writes = read_accesses(r, p, x, "writes", &e->nwrites);
    e->flops = real(r, x, "flops");
    e->bytes = real(r, x, "bytes");
    e->start_us = real(r, x, "start_us");
    e->duration_us = real(r, x, "duration_us");
}

/* Names first, since waits and lives refer to events by name, also later ones. */
static Map *read_ids(Reader *r, PlanProgram *g, json_t *events) {
    Map *ids = map_new(r->a);
    g->n = (int)json_array_size(events);
    g->events = NEW_ARRAY(r->a, Event, g->n + 1);
    for (int e = 0; e < g->n; e++) {
        enter(r, "events", e);
        const char *id = text(r, json_array_get(events, (size_t)e), "id");
        if (!*id) bad(r, "id", "is empty");
        if (map_get(ids, id)) bad(r, "id", "\"%.60s\" stands twice in this program", id);
        map_put(ids, id, (void *)(intptr_t)(e + 1));
        leave(r);
    }
    return ids;
}

static void read_pair(Reader *r, json_t *o, const char *key, int64_t out[N_ARENAS]) {
    json_t *l = list(r, o, key);
    if (json_array_size(l) != N_ARENAS) bad(r, key, "must be [device, host]");
    for (int i = 0; i < N_ARENAS; i++) out[i] = checked_integer(r, json_array_get(l, (size_t)i), key, 0, LIMIT);
}

static void read_program(Reader *r, const Plan *p, PlanProgram *g, const Map *ids, json_t *x) {
    g->step_us = real(r, x, "step_us");
    g->exposed_us = real(r, x, "exposed_us");
    read_pair(r, x, "peak", g->peak);
    read_pair(r, x, "bound", g->bound);
    json_t *peak = member(r, x, "peak_event"), *events = list(r, x, "events");
    g->peak_event = json_is_null(peak) ? -1 : checked_event(r, ids, peak, "peak_event");
    for (int e = 0; e < g->n; e++) {
        enter(r, "events", e);
        read_event(r, p, ids, &g->events[e], json_array_get(events, (size_t)e));
        leave(r);
    }
}

static Plan *read_document(Reader *r, json_t *o) {
    Plan *p = NEW(r->a, Plan);
    p->arena = r->a;
    read_head(r, p, o);
    read_options(r, p, o);
    read_library(r, p, o);
    json_t *storages = list(r, o, "storages"), *programs = list(r, o, "programs");
    p->nstorages = (int)json_array_size(storages);
    p->storages = NEW_ARRAY(r->a, Storage, p->nstorages + 1);
    read_units(r, p, o, p->nstorages);
    p->nprograms = (int)json_array_size(programs);
    if (p->nprograms > 64) bad(r, "programs", "has %d entries, a plan has at most 64", p->nprograms);
    p->programs = NEW_ARRAY(r->a, PlanProgram, p->nprograms + 1);
    Map **ids = NEW_ARRAY(r->a, Map *, p->nprograms + 1);
    for (int i = 0; i < p->nprograms; i++) {
        json_t *x = json_array_get(programs, (size_t)i);
        enter(r, "programs", i);
        p->programs[i].name = text(r, x, "name");
        for (int k = 0; k < i; k++)
            if (!strcmp(p->programs[k].name, p->programs[i].name)) bad(r, "name", "stands twice");
        ids[i] = read_ids(r, &p->programs[i], list(r, x, "events"));
        leave(r);
    }
    read_storages(r, p, storages, ids);
    for (int i = 0; i < p->nprograms; i++) {
        enter(r, "programs", i);
        read_program(r, p, &p->programs[i], ids[i], json_array_get(programs, (size_t)i));
        leave(r);
    }
    return p;
}

/* ── entries ──────────────────────────────────────────────────────────────────────────────────────────────── */
/* NULL when something is bad: `bad` jumps back here. */
static Plan *guarded(Reader *r, json_t *root) {
    if (setjmp(r->bad)) return NULL;
    return read_document(r, root);
}

/* jansson's many small pieces come from an arena that is given back at once: half the time of reading went into free.
 */
static Arena *json_memory;
static void *json_alloc(size_t bytes) {
    return arena_alloc(json_memory, bytes);
}
static void json_keep(void *p) {}

Plan *plan_parse(Arena *a, const char *text, size_t n, PlanError *e) {
    Reader r = {.a = a};
    json_error_t error;
    json_memory = arena_new();
    json_set_alloc_funcs(json_alloc, json_keep);
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    Plan *p = root ? guarded(&r, root) : NULL;
    if (!root)
        *e = (PlanError){arena_printf(a, "column %d: %s", error.column, error.text), error.line};
    else if (!p)
        *e = (PlanError){r.error, 0};
    json_set_alloc_funcs(malloc, free);
    arena_free(json_memory);
    return p;
}

Plan *plan_read_text(Arena *a, const char *text, size_t n, const char *path) {
    PlanError e = {NULL, 0};
    Plan *p = plan_parse(a, text, n, &e);
    if (!p) fail((Source){path, e.line}, "not a plan of shardc: %s", e.text);
    return p;
}

/* A binary carries its plan between two marks. */
static const char *embedded(const char *s, size_t n, size_t *size, const char *path) {
    char begin[32], end[32]; /* put together here: this compiler is a binary too, and must not hold them */
    int nbegin = snprintf(begin, sizeof begin, "SHARDC_PLAN_%s\n{", "BEGIN"),
        nend = snprintf(end, sizeof end, "\nSHARDC_PLAN_%s", "END");
    const char *from = memmem(s, n, begin, (size_t)nbegin);
    if (!from) fail((Source){path, 0}, "this binary holds no plan; was it built by `shardc build`?");
    from += nbegin - 1;
    size_t left = n - (size_t)(from - s);
    const char *to = memmem(from, left, end, (size_t)nend);
    if (!to) fail((Source){path, 0}, "the plan in this binary is cut off; build it again");
    *size = (size_t)(to - from);
    return from;
}

Plan *plan_read(Arena *a, const char *path) {
    size_t n;
    const char *s = read_file(a, path, &n);
    if (n >= 4 && !memcmp(s, "\177ELF", 4)) s = embedded(s, n, &n, path);
    return plan_read_text(a, s, n, path);
}
