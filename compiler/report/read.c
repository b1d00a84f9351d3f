/* Reads a plan from JSON or from a built binary, trusting nothing: types, ranges, names, indices and sums are checked.
 * Relies on: document.h, plan.h; read_file.
 * Relied on by: every command that takes a plan, the tests, the fuzzer (plan_parse). */
#include "document.h"
#include "report.h"

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
    const JsonNode *in, *next; /* the object that was looked into last, and the name after the one found there */
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
/* NULL: it is not there. Members are mostly asked for as they stand: the search goes on from the last one. */
static const JsonNode *optional(Reader *r, const JsonNode *o, const char *key) {
    size_t n = strlen(key);
    const JsonNode *end = after_node(o), *k = r->in == o ? r->next : end;
    r->in = o;
    for (uint32_t i = 0; i < o->n; i++, k = after_node(k + 1)) {
        if (k == end) k = o + 1;
        r->next = after_node(k + 1);
        if (k->n == n && !memcmp(k->text, key, n)) return k + 1;
    }
    r->next = end;
    return NULL;
}

static const JsonNode *member(Reader *r, const JsonNode *o, const char *key) {
    if (o->type != J_OBJECT) bad(r, NULL, "must be an object");
    const JsonNode *x = optional(r, o, key);
    if (!x) bad(r, key, "is missing");
    return x;
}

static const JsonNode *list(Reader *r, const JsonNode *o, const char *key) {
    const JsonNode *x = member(r, o, key);
    if (x->type != J_LIST) bad(r, key, "must be a list");
    if (x->n > MAX_LIST) bad(r, key, "has %u entries, more than any plan", x->n);
    return x;
}

static char *copied(Arena *a, const JsonNode *x) {
    return memcpy(arena_alloc(a, (size_t)x->n + 1), x->text, x->n);
}

static bool has_control(const JsonNode *x) {
    for (uint32_t i = 0; i < x->n; i++)
        if ((unsigned char)x->text[i] < 0x20 || x->text[i] == 0x7f) return true;
    return false;
}

static const JsonNode *checked_string(Reader *r, const JsonNode *x, const char *key) {
    if (x->type != J_STRING) bad(r, key, "must be a string");
    if (x->n > 4096) bad(r, key, "is longer than 4096 bytes");
    if (has_control(x)) bad(r, key, "holds a control character");
    return x;
}

static char *checked_text(Reader *r, const JsonNode *x, const char *key) {
    return copied(r->a, checked_string(r, x, key));
}

static const char *text(Reader *r, const JsonNode *o, const char *key) {
    return checked_text(r, member(r, o, key), key);
}

static int64_t checked_integer(Reader *r, const JsonNode *x, const char *key, int64_t low, int64_t high) {
    if (x->type != J_INTEGER) bad(r, key, "must be an integer");
    int64_t v = x->integer;
    if (v < low || v > high)
        bad(r, key, "%lld is not between %lld and %lld", (long long)v, (long long)low, (long long)high);
    return v;
}

static int64_t integer(Reader *r, const JsonNode *o, const char *key, int64_t low, int64_t high) {
    return checked_integer(r, member(r, o, key), key, low, high);
}

static double real(Reader *r, const JsonNode *o, const char *key) {
    const JsonNode *x = member(r, o, key);
    if (x->type != J_INTEGER && x->type != J_REAL) bad(r, key, "must be a number");
    double v = x->type == J_REAL ? x->real : (double)x->integer;
    if (!(v >= 0 && v <= 1e300)) bad(r, key, "%g is not a size, a count or a time", v);
    return v;
}

/* An enum by its printed name. */
#define NAMED(FUNCTION, TYPE, COUNT, PRINTED)                                                                          \
    static TYPE FUNCTION(Reader *r, const JsonNode *o, const char *key) {                                              \
        const JsonNode *x = checked_string(r, member(r, o, key), key);                                                 \
        const char *names[COUNT];                                                                                      \
        for (int i = 0; i < COUNT; i++) {                                                                              \
            names[i] = PRINTED((TYPE)i);                                                                               \
            if (is_text(x, names[i])) return (TYPE)i;                                                                  \
        }                                                                                                              \
        const char *s = copied(r->a, x), *near = nearest_name(s, names, COUNT);                                        \
        if (near) bad(r, key, "\"%.60s\" is unknown; is it \"%s\"?", s, near);                                         \
        bad(r, key, "\"%.60s\" is unknown", s);                                                                        \
    }

static bool is_text(const JsonNode *x, const char *s) {
    return strlen(s) == x->n && !memcmp(s, x->text, x->n);
}

static const char *arena_name(ArenaKind k) {
    return k == ARENA_DEVICE ? "device" : "host";
}
NAMED(class_named, StorageClass, N_CLASSES, storage_class_name)
NAMED(stream_named, Stream, N_STREAMS, stream_name)
NAMED(phase_named, Phase, N_PHASES, phase_name)
NAMED(dtype_named, Dtype, N_DTYPES, dtype_name)
NAMED(arena_named, ArenaKind, N_ARENAS, arena_name)

static int group_named(Reader *r, const Plan *p, const JsonNode *o, const char *key) {
    const char *s = text(r, o, key);
    for (int i = 0; i < p->ncomms; i++)
        if (!strcmp(s, p->comms[i].name)) return i;
    bad(r, key, "there is no group of ranks \"%.60s\"", s);
}

/* ── parts ────────────────────────────────────────────────────────────────────────────────────────────────── */
static void read_groups(Reader *r, Plan *p, const JsonNode *mesh) {
    const JsonNode *groups = list(r, mesh, "groups");
    p->ncomms = (int)groups->n;
    p->comms = NEW_ARRAY(r->a, Comm, p->ncomms + 1);
    const JsonNode *x = groups + 1;
    for (int i = 0; i < p->ncomms; i++, x = after_node(x)) {
        enter(r, "groups", i);
        p->comms[i].name = text(r, x, "name");
        p->comms[i].n = (int)integer(r, x, "ranks", 1, p->world);
        p->comms[i].step = (int)integer(r, x, "apart", 1, p->world / p->comms[i].n);
        leave(r);
    }
}

static void read_head(Reader *r, Plan *p, const JsonNode *o) {
    const char *format = text(r, o, "format");
    if (strcmp(format, "shardc-plan"))
        bad(r, "format", "\"%.60s\" is not a plan; `shardc inspect --format json` writes one", format);
    int64_t version = integer(r, o, "version", 0, 1 << 30);
    if (version != 1)
        bad(r, "version", "is %lld, this shardc reads version 1; build the model again", (long long)version);
    p->model = text(r, o, "model");
    p->target = text(r, o, "target");
    p->tokens_per_step = real(r, o, "tokens_per_step");
    p->samples_per_step = real(r, o, "samples_per_step");
    p->model_flops = real(r, o, "model_flops");
    const JsonNode *device = member(r, o, "device"), *mesh = member(r, o, "mesh"), *arenas = member(r, o, "arenas");
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
        const JsonNode *x = member(r, arenas, arena_name((ArenaKind)k));
        enter(r, arena_name((ArenaKind)k), -1);
        p->arena_bytes[k] = integer(r, x, "bytes", 0, LIMIT);
        p->bound_bytes[k] = integer(r, x, "bound", 0, LIMIT);
        leave(r);
    }
    leave(r);
}

static void read_options(Reader *r, Plan *p, const JsonNode *o) {
    const JsonNode *options = member(r, o, "options");
    if (options->type != J_OBJECT) bad(r, "options", "must be an object");
    p->options = NEW_ARRAY(r->a, OptionValue, options->n + 1);
    enter(r, "options", -1);
    const JsonNode *key = options + 1;
    for (; p->noptions < (int)options->n; key = after_node(key + 1)) {
        if (key[1].type != J_STRING) bad(r, NULL, "every option's value must be a string");
        if (has_control(key)) bad(r, NULL, "an option's name holds a control character");
        p->options[p->noptions++] = (OptionValue){.name = copied(r->a, key), .text = copied(r->a, key + 1)};
    }
    leave(r);
}

static void read_library(Reader *r, Plan *p, const JsonNode *o) {
    const JsonNode *prediction = member(r, o, "prediction");
    enter(r, "prediction", -1);
    const JsonNode *lines = list(r, prediction, "library");
    p->nlibrary = (int)lines->n;
    p->library = NEW_ARRAY(r->a, LibraryLine, p->nlibrary + 1);
    const JsonNode *x = lines + 1;
    for (int i = 0; i < p->nlibrary; i++, x = after_node(x)) {
        enter(r, "library", i);
        p->library[i] =
            (LibraryLine){text(r, x, "name"), real(r, x, "bytes"), real(r, x, "tolerance"), text(r, x, "source")};
        leave(r);
    }
    leave(r);
}

static void read_units(Reader *r, Plan *p, const JsonNode *o, int nstorages) {
    const JsonNode *units = list(r, o, "units");
    p->nunits = (int)units->n;
    p->units = NEW_ARRAY(r->a, PlanUnit, p->nunits + 1);
    const JsonNode *x = units + 1;
    for (int i = 0; i < p->nunits; i++, x = after_node(x)) {
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
        u->master_storage = optional(r, x, "master") ? (int)integer(r, x, "master", 0, nstorages - 1) : -1;
        leave(r);
    }
}

static int program_named(Reader *r, const Plan *p, const JsonNode *o, const char *key) {
    const char *s = text(r, o, key);
    for (int i = 0; i < p->nprograms; i++)
        if (!strcmp(s, p->programs[i].name)) return i;
    bad(r, key, "there is no program \"%.60s\"", s);
}

static int checked_event(Reader *r, const Map *ids, const JsonNode *x, const char *key) {
    const char *s = checked_text(r, x, key);
    intptr_t k = (intptr_t)map_get(ids, s);
    if (!k) bad(r, key, "there is no event \"%.60s\" in this program", s);
    return (int)(k - 1);
}

static void read_storages(Reader *r, Plan *p, const JsonNode *storages, Map *const *ids) {
    int64_t sum = 0;
    const JsonNode *x = storages + 1;
    for (int i = 0; i < p->nstorages; i++, x = after_node(x)) {
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
        if (optional(r, x, "program")) {
            s->program = program_named(r, p, x, "program");
            s->first = checked_event(r, ids[s->program], member(r, x, "first"), "first");
            s->last = checked_event(r, ids[s->program], member(r, x, "last"), "last");
            if (s->first > s->last) bad(r, "last", "comes before the first event");
        }
        leave(r);
    }
}

static Access *read_accesses(Reader *r, const Plan *p, const JsonNode *o, const char *key, int *n) {
    const JsonNode *l = list(r, o, key);
    *n = (int)l->n;
    Access *out = NEW_ARRAY(r->a, Access, *n + 1);
    const JsonNode *x = l + 1;
    for (int i = 0; i < *n; i++, x = after_node(x)) {
        enter(r, key, i);
        if (x->type != J_LIST || x->n != 3) bad(r, NULL, "must be [storage, offset, size]");
        out[i].storage = (int)checked_integer(r, x + 1, NULL, 0, p->nstorages - 1);
        out[i].offset = checked_integer(r, after_node(x + 1), NULL, 0, LIMIT);
        out[i].size = checked_integer(r, after_node(after_node(x + 1)), NULL, 0, LIMIT);
        leave(r);
    }
    return out;
}

static Source read_source(Reader *r, const JsonNode *o) {
    const JsonNode *x = optional(r, o, "source");
    if (!x) return NOWHERE;
    char *s = checked_text(r, x, "source"), *colon = strrchr(s, ':'), *end = NULL;
    long line = colon ? strtol(colon + 1, &end, 10) : -1;
    if (!colon || end == colon + 1 || *end || line < 0 || line > INT32_MAX) bad(r, "source", "must be \"file:line\"");
    *colon = 0;
    return (Source){s, (int)line};
}

static void read_event(Reader *r, const Plan *p, const Map *ids, Event *e, const JsonNode *x) {
    e->op = text(r, x, "op");
    e->stream = stream_named(r, x, "stream");
    e->phase = phase_named(r, x, "phase");
    e->module = text(r, x, "module");
    e->src = read_source(r, x);
    e->unit = optional(r, x, "unit") ? (int)integer(r, x, "unit", 0, p->nunits - 1) : -1;
    e->comm = optional(r, x, "comm") ? group_named(r, p, x, "comm") : -1;
    const JsonNode *update = optional(r, x, "update");
    if (update && update->type != J_TRUE && update->type != J_FALSE) bad(r, "update", "must be true or false");
    e->update = update && update->type == J_TRUE;
    const JsonNode *waits = list(r, x, "waits");
    e->nwaits = (int)waits->n;
    e->waits = NEW_ARRAY(r->a, int, e->nwaits + 1);
    const JsonNode *w = waits + 1;
    for (int i = 0; i < e->nwaits; i++, w = after_node(w)) e->waits[i] = checked_event(r, ids, w, "waits");
    e->reads = read_accesses(r, p, x, "reads", &e->nreads);
    e->writes = read_accesses(r, p, x, "writes", &e->nwrites);
    e->flops = real(r, x, "flops");
    e->bytes = real(r, x, "bytes");
    e->start_us = real(r, x, "start_us");
    e->duration_us = real(r, x, "duration_us");
}

/* Names first, since waits and lives refer to events by name, also later ones. */
static Map *read_ids(Reader *r, PlanProgram *g, const JsonNode *events) {
    Map *ids = map_new(r->a);
    g->n = (int)events->n;
    g->events = NEW_ARRAY(r->a, Event, g->n + 1);
    const JsonNode *x = events + 1;
    for (int e = 0; e < g->n; e++, x = after_node(x)) {
        enter(r, "events", e);
        const char *id = g->events[e].id = text(r, x, "id");
        if (!*id) bad(r, "id", "is empty");
        if (map_get(ids, id)) bad(r, "id", "\"%.60s\" stands twice in this program", id);
        map_put(ids, id, (void *)(intptr_t)(e + 1));
        leave(r);
    }
    return ids;
}

static void read_pair(Reader *r, const JsonNode *o, const char *key, int64_t out[N_ARENAS]) {
    const JsonNode *l = list(r, o, key);
    if (l->n != N_ARENAS) bad(r, key, "must be [device, host]");
    const JsonNode *x = l + 1;
    for (int i = 0; i < N_ARENAS; i++, x = after_node(x)) out[i] = checked_integer(r, x, key, 0, LIMIT);
}

static void read_program(Reader *r, const Plan *p, PlanProgram *g, const Map *ids, const JsonNode *x) {
    g->step_us = real(r, x, "step_us");
    g->exposed_us = real(r, x, "exposed_us");
    read_pair(r, x, "peak", g->peak);
    read_pair(r, x, "bound", g->bound);
    const JsonNode *peak = member(r, x, "peak_event"), *events = list(r, x, "events");
    g->peak_event = peak->type == J_NULL ? -1 : checked_event(r, ids, peak, "peak_event");
    const JsonNode *event = events + 1;
    for (int e = 0; e < g->n; e++, event = after_node(event)) {
        enter(r, "events", e);
        read_event(r, p, ids, &g->events[e], event);
        leave(r);
    }
}

static Plan *read_document(Reader *r, const JsonNode *o) {
    Plan *p = NEW(r->a, Plan);
    p->arena = r->a;
    read_head(r, p, o);
    read_options(r, p, o);
    read_library(r, p, o);
    const JsonNode *storages = list(r, o, "storages"), *programs = list(r, o, "programs");
    p->nstorages = (int)storages->n;
    p->storages = NEW_ARRAY(r->a, Storage, p->nstorages + 1);
    read_units(r, p, o, p->nstorages);
    p->nprograms = (int)programs->n;
    if (p->nprograms > 64) bad(r, "programs", "has %d entries, a plan has at most 64", p->nprograms);
    p->programs = NEW_ARRAY(r->a, PlanProgram, p->nprograms + 1);
    Map **ids = NEW_ARRAY(r->a, Map *, p->nprograms + 1);
    const JsonNode *x = programs + 1;
    for (int i = 0; i < p->nprograms; i++, x = after_node(x)) {
        enter(r, "programs", i);
        p->programs[i].name = text(r, x, "name");
        for (int k = 0; k < i; k++)
            if (!strcmp(p->programs[k].name, p->programs[i].name)) bad(r, "name", "stands twice");
        ids[i] = read_ids(r, &p->programs[i], list(r, x, "events"));
        leave(r);
    }
    read_storages(r, p, storages, ids);
    x = programs + 1;
    for (int i = 0; i < p->nprograms; i++, x = after_node(x)) {
        enter(r, "programs", i);
        read_program(r, p, &p->programs[i], ids[i], x);
        leave(r);
    }
    return p;
}

/* ── entries ──────────────────────────────────────────────────────────────────────────────────────────────── */
/* NULL when something is bad: `bad` jumps back here. */
static Plan *guarded(Reader *r, const JsonNode *root) {
    if (setjmp(r->bad)) return NULL;
    return read_document(r, root);
}

Plan *plan_parse(Arena *a, const char *text, size_t n, PlanError *e) {
    Reader r = {.a = a};
    JsonError error;
    Arena *scratch = arena_new();
    const JsonNode *root = document_parse(scratch, text, n, &error);
    Plan *p = root ? guarded(&r, root) : NULL;
    if (!root)
        *e = (PlanError){arena_printf(a, "column %d: %s", error.column, error.text), error.line};
    else if (!p)
        *e = (PlanError){r.error, 0};
    arena_free(scratch);
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
