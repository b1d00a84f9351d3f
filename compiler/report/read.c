/* Reads a plan from JSON or from a built binary, trusting nothing: types, ranges, names, indices and sums are checked.
 * Relies on: cJSON, plan.h; path_read.
 * Relied on by: every command that takes a plan, the tests, the fuzzer (plan_parse). */
#include "../ir/training.h"
#include "report.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>

#define LIMIT (((int64_t)1 << 53) - 1) /* of every size and offset: what a double, and so any JSON tool, can hold */
enum { MAX_PATH = 8, MAX_LIST = 1 << 22, MAX_MEMBERS = 1000 };

typedef struct {
    Arena *a;
    jmp_buf bad;
    const char *error;
    struct {
        const char *name; /* member, or list with index >= 0 */
        int index;
    } path[MAX_PATH];
    int depth;
    const cJSON *in, *next; /* the object that was looked into last, and what stands after the member found there */
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
static bool has_control(const char *s) {
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f) return true;
    return false;
}

/* To cJSON a name that stands twice is two members, of which the first is found. */
static void check_names(Reader *r, const cJSON *o) {
    int n = 0;
    for (const cJSON *x = o->child; x; x = x->next) {
        if (n++ == MAX_MEMBERS) bad(r, NULL, "has more than %d members", MAX_MEMBERS);
        for (const cJSON *y = o->child; y != x; y = y->next)
            if (*x->string == *y->string && !strcmp(x->string, y->string))
                bad(r, NULL, "two members have the name \"%.60s\"", has_control(x->string) ? "?" : x->string);
    }
}

/* NULL: it is not there. Members are mostly asked for as they stand, so that few are searched for. */
static const cJSON *optional(Reader *r, const cJSON *o, const char *key) {
    if (r->in != o) {
        check_names(r, o);
        r->in = o;
        r->next = o->child;
    }
    const cJSON *x = r->next;
    if (!x || strcmp(x->string, key)) x = cJSON_GetObjectItemCaseSensitive(o, key);
    if (x) r->next = x->next;
    return x;
}

static const cJSON *member(Reader *r, const cJSON *o, const char *key) {
    if (!cJSON_IsObject(o)) bad(r, NULL, "must be an object");
    const cJSON *x = optional(r, o, key);
    if (!x) bad(r, key, "is missing");
    return x;
}

/* The first of *n entries; NULL where there is none. */
static const cJSON *list(Reader *r, const cJSON *o, const char *key, int *n) {
    const cJSON *x = member(r, o, key);
    if (!cJSON_IsArray(x)) bad(r, key, "must be a list");
    *n = cJSON_GetArraySize(x);
    if (*n > MAX_LIST) bad(r, key, "has %d entries, more than any plan", *n);
    return x->child;
}

/* Valid as long as the document is. */
static const char *checked_string(Reader *r, const cJSON *x, const char *key) {
    if (!cJSON_IsString(x)) bad(r, key, "must be a string");
    if (strlen(x->valuestring) > 4096) bad(r, key, "is longer than 4096 bytes");
    if (has_control(x->valuestring)) bad(r, key, "holds a control character");
    return x->valuestring;
}

static char *checked_text(Reader *r, const cJSON *x, const char *key) {
    return arena_strdup(r->a, checked_string(r, x, key));
}

static const char *text(Reader *r, const cJSON *o, const char *key) {
    return checked_text(r, member(r, o, key), key);
}

static int64_t checked_integer(Reader *r, const cJSON *x, const char *key, int64_t low, int64_t high) {
    double v = cJSON_IsNumber(x) ? x->valuedouble : NAN;
    if (v != rint(v)) bad(r, key, "must be an integer");
    if (v < (double)low || v > (double)high)
        bad(r, key, "%.0f is not between %lld and %lld", v, (long long)low, (long long)high);
    return (int64_t)v;
}

static int64_t integer(Reader *r, const cJSON *o, const char *key, int64_t low, int64_t high) {
    return checked_integer(r, member(r, o, key), key, low, high);
}

static double real(Reader *r, const cJSON *o, const char *key) {
    const cJSON *x = member(r, o, key);
    if (!cJSON_IsNumber(x)) bad(r, key, "must be a number");
    double v = x->valuedouble;
    if (!(v >= 0 && v <= 1e300)) bad(r, key, "%g is not a size, a count or a time", v);
    return v;
}

/* An enum by its printed name. */
#define NAMED(FUNCTION, TYPE, COUNT, PRINTED)                                                                          \
    static TYPE FUNCTION(Reader *r, const cJSON *o, const char *key) {                                                 \
        const char *s = checked_string(r, member(r, o, key), key), *names[COUNT];                                      \
        for (int i = 0; i < COUNT; i++) {                                                                              \
            names[i] = PRINTED((TYPE)i);                                                                               \
            if (!strcmp(s, names[i])) return (TYPE)i;                                                                  \
        }                                                                                                              \
        const char *near = str_nearest(s, names, COUNT);                                                               \
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

static int group_named(Reader *r, const Plan *p, const cJSON *o, const char *key) {
    const char *s = text(r, o, key);
    for (int i = 0; i < p->ncomms; i++)
        if (!strcmp(s, p->comms[i].name)) return i;
    bad(r, key, "there is no group of ranks \"%.60s\"", s);
}

/* ── parts ────────────────────────────────────────────────────────────────────────────────────────────────── */
static void read_groups(Reader *r, Plan *p, const cJSON *mesh) {
    const cJSON *x = list(r, mesh, "groups", &p->ncomms);
    p->comms = NEW_ARRAY(r->a, Comm, p->ncomms + 1);
    for (int i = 0; i < p->ncomms; i++, x = x->next) {
        enter(r, "groups", i);
        p->comms[i].name = text(r, x, "name");
        p->comms[i].n = (int)integer(r, x, "ranks", 1, p->world);
        p->comms[i].step = (int)integer(r, x, "apart", 1, p->world / p->comms[i].n);
        leave(r);
    }
}

static void read_head(Reader *r, Plan *p, const cJSON *o) {
    const char *format = text(r, o, "format");
    if (strcmp(format, "shardc-plan"))
        bad(r, "format", "\"%.60s\" is not a plan; `shardc inspect --format json` writes one", format);
    int64_t version = integer(r, o, "version", 0, 1 << 30);
    if (version != PLAN_VERSION)
        bad(r, "version", "is %lld, this shardc reads version %d; build the model again", (long long)version,
            PLAN_VERSION);
    p->model = text(r, o, "model");
    p->target = text(r, o, "target");
    p->tokens_per_step = real(r, o, "tokens_per_step");
    p->samples_per_step = real(r, o, "samples_per_step");
    p->microbatches = (int)integer(r, o, "microbatches_per_step", 0, 1 << 30);
    p->model_flops = real(r, o, "model_flops");
    p->model_flops_full = real(r, o, "model_flops_full");
    const cJSON *device = member(r, o, "device"), *mesh = member(r, o, "mesh"), *arenas = member(r, o, "arenas");
    enter(r, "device", -1);
    p->device = text(r, device, "name");
    p->device_usable = real(r, device, "usable_bytes");
    p->peak_flops = real(r, device, "peak_flops");
    const char *dtype = text(r, device, "peak_dtype");
    if (!dtype_parse(dtype, &p->peak_dtype)) bad(r, "peak_dtype", "there is no dtype \"%.60s\"", dtype);
    p->time_source = text(r, device, "time_source");
    p->time_off = real(r, device, "time_off");
    leave(r);
    enter(r, "mesh", -1);
    p->world = (int)integer(r, mesh, "world", 1, 1 << 24);
    p->nodes = (int)integer(r, mesh, "nodes", 1, p->world);
    read_groups(r, p, mesh);
    leave(r);
    enter(r, "arenas", -1);
    for (int k = 0; k < N_ARENAS; k++) {
        const cJSON *x = member(r, arenas, arena_name((ArenaKind)k));
        enter(r, arena_name((ArenaKind)k), -1);
        p->arena_bytes[k] = integer(r, x, "bytes", 0, LIMIT);
        p->bound_bytes[k] = integer(r, x, "bound", 0, LIMIT);
        leave(r);
    }
    leave(r);
}

static void read_options(Reader *r, Plan *p, const cJSON *o) {
    const cJSON *options = member(r, o, "options");
    if (!cJSON_IsObject(options)) bad(r, "options", "must be an object");
    p->options = NEW_ARRAY(r->a, OptionValue, cJSON_GetArraySize(options) + 1);
    enter(r, "options", -1);
    check_names(r, options);
    for (const cJSON *x = options->child; x; x = x->next) {
        if (!cJSON_IsString(x)) bad(r, NULL, "every option's value must be a string");
        if (has_control(x->string)) bad(r, NULL, "an option's name holds a control character");
        p->options[p->noptions++] =
            (OptionValue){.name = arena_strdup(r->a, x->string), .text = arena_strdup(r->a, x->valuestring)};
    }
    leave(r);
}

static void read_library(Reader *r, Plan *p, const cJSON *o) {
    const cJSON *prediction = member(r, o, "prediction");
    enter(r, "prediction", -1);
    const cJSON *x = list(r, prediction, "library", &p->nlibrary);
    p->library = NEW_ARRAY(r->a, LibraryLine, p->nlibrary + 1);
    for (int i = 0; i < p->nlibrary; i++, x = x->next) {
        enter(r, "library", i);
        p->library[i] =
            (LibraryLine){text(r, x, "name"), real(r, x, "bytes"), real(r, x, "tolerance"), text(r, x, "source")};
        leave(r);
    }
    leave(r);
}

static void read_units(Reader *r, Plan *p, const cJSON *o, int nstorages) {
    const cJSON *x = list(r, o, "units", &p->nunits);
    p->units = NEW_ARRAY(r->a, PlanUnit, p->nunits + 1);
    for (int i = 0; i < p->nunits; i++, x = x->next) {
        PlanUnit *u = &p->units[i];
        enter(r, "units", i);
        u->id = (int)integer(r, x, "id", i, i);
        u->path = text(r, x, "path");
        u->shards = (int)integer(r, x, "shards", 1, 1 << 24);
        u->replicas = (int)integer(r, x, "replicas", 1, 1 << 24);
        u->numel = integer(r, x, "numel", 0, LIMIT);
        u->dtype = dtype_named(r, x, "dtype");
        u->wire = dtype_named(r, x, "wire");
        u->grad_dtype = dtype_named(r, x, "gradient");
        u->reduce = dtype_named(r, x, "reduce");
        u->nparams = (int)integer(r, x, "parameters", 0, INT32_MAX);
        u->master_storage = optional(r, x, "master") ? (int)integer(r, x, "master", 0, nstorages - 1) : -1;
        leave(r);
    }
}

static void read_unused(Reader *r, Plan *p, const cJSON *o) {
    const cJSON *unused = optional(r, o, "unused");
    enter(r, "unused", -1);
    for (int k = 0; unused && k < N_UNUSED; k++) {
        int n;
        const cJSON *x = list(r, unused, unused_keys[k], &n);
        for (int i = 0; i < n; i++, x = x->next) push(&p->unused[k], r->a, (const char *)checked_text(r, x, NULL));
    }
    leave(r);
}

static int program_named(Reader *r, const Plan *p, const cJSON *o, const char *key) {
    const char *s = text(r, o, key);
    for (int i = 0; i < p->nprograms; i++)
        if (!strcmp(s, p->programs[i].name)) return i;
    bad(r, key, "there is no program \"%.60s\"", s);
}

static int checked_event(Reader *r, const Map *ids, const cJSON *x, const char *key) {
    const char *s = checked_text(r, x, key);
    int k = map_find(ids, s);
    if (k < 0) bad(r, key, "there is no event \"%.60s\" in this program", s);
    return k;
}

static void read_storages(Reader *r, Plan *p, const cJSON *x, Map *const *ids) {
    int64_t sum = 0;
    for (int i = 0; i < p->nstorages; i++, x = x->next) {
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

static Access *read_accesses(Reader *r, const Plan *p, const cJSON *o, const char *key, int *n) {
    const cJSON *x = list(r, o, key, n);
    Access *out = NEW_ARRAY(r->a, Access, *n + 1);
    for (int i = 0; i < *n; i++, x = x->next) {
        enter(r, key, i);
        if (!cJSON_IsArray(x) || cJSON_GetArraySize(x) != 3) bad(r, NULL, "must be [storage, offset, size]");
        const cJSON *y = x->child;
        out[i].storage = (int)checked_integer(r, y, NULL, 0, p->nstorages - 1);
        out[i].offset = checked_integer(r, y->next, NULL, 0, LIMIT);
        out[i].size = checked_integer(r, y->next->next, NULL, 0, LIMIT);
        leave(r);
    }
    return out;
}

static Source read_source(Reader *r, const cJSON *o) {
    const cJSON *x = optional(r, o, "source");
    if (!x) return NOWHERE;
    char *s = checked_text(r, x, "source"), *colon = strrchr(s, ':'), *end = NULL;
    long line = colon ? strtol(colon + 1, &end, 10) : -1;
    if (!colon || end == colon + 1 || *end || line < 0 || line > INT32_MAX) bad(r, "source", "must be \"file:line\"");
    *colon = 0;
    return (Source){s, (int)line};
}

static void read_event(Reader *r, const Plan *p, const Map *ids, Event *e, const cJSON *x) {
    e->op = text(r, x, "op");
    e->stream = stream_named(r, x, "stream");
    e->phase = phase_named(r, x, "phase");
    e->module = text(r, x, "module");
    e->src = read_source(r, x);
    e->unit = optional(r, x, "unit") ? (int)integer(r, x, "unit", 0, p->nunits - 1) : -1;
    e->comm = optional(r, x, "comm") ? group_named(r, p, x, "comm") : -1;
    const cJSON *update = optional(r, x, "update");
    if (update && !cJSON_IsBool(update)) bad(r, "update", "must be true or false");
    e->update = cJSON_IsTrue(update);
    const cJSON *w = list(r, x, "waits", &e->nwaits);
    e->waits = NEW_ARRAY(r->a, int, e->nwaits + 1);
    for (int i = 0; i < e->nwaits; i++, w = w->next) e->waits[i] = checked_event(r, ids, w, "waits");
    e->reads = read_accesses(r, p, x, "reads", &e->nreads);
    e->writes = read_accesses(r, p, x, "writes", &e->nwrites);
    e->flops = real(r, x, "flops");
    e->bytes = real(r, x, "bytes");
    e->start_us = real(r, x, "start_us");
    e->duration_us = real(r, x, "duration_us");
}

/* Names first, since waits and lives refer to events by name, also later ones. */
static Map *read_ids(Reader *r, PlanProgram *g, const cJSON *o) {
    Map *ids = map_new(r->a);
    const cJSON *x = list(r, o, "events", &g->n);
    g->events = NEW_ARRAY(r->a, Event, g->n + 1);
    for (int e = 0; e < g->n; e++, x = x->next) {
        enter(r, "events", e);
        const char *id = g->events[e].id = text(r, x, "id");
        if (!*id) bad(r, "id", "is empty");
        if (map_index(ids, id) != e) bad(r, "id", "\"%.60s\" stands twice in this program", id);
        leave(r);
    }
    return ids;
}

static void read_pair(Reader *r, const cJSON *o, const char *key, int64_t out[N_ARENAS]) {
    int n;
    const cJSON *x = list(r, o, key, &n);
    if (n != N_ARENAS) bad(r, key, "must be [device, host]");
    for (int i = 0; i < N_ARENAS; i++, x = x->next) out[i] = checked_integer(r, x, key, 0, LIMIT);
}

static void read_program(Reader *r, const Plan *p, PlanProgram *g, const Map *ids, const cJSON *x) {
    g->step_us = real(r, x, "step_us");
    g->exposed_us = real(r, x, "exposed_us");
    read_pair(r, x, "peak", g->peak);
    read_pair(r, x, "bound", g->bound);
    const cJSON *peak = member(r, x, "peak_event"), *event = list(r, x, "events", &g->n);
    g->peak_event = cJSON_IsNull(peak) ? -1 : checked_event(r, ids, peak, "peak_event");
    for (int e = 0; e < g->n; e++, event = event->next) {
        enter(r, "events", e);
        read_event(r, p, ids, &g->events[e], event);
        leave(r);
    }
}

static Plan *read_document(Reader *r, const cJSON *o) {
    Plan *p = NEW(r->a, Plan);
    p->arena = r->a;
    read_head(r, p, o);
    read_options(r, p, o);
    read_library(r, p, o);
    read_unused(r, p, o);
    const cJSON *storages = list(r, o, "storages", &p->nstorages), *programs = list(r, o, "programs", &p->nprograms);
    p->storages = NEW_ARRAY(r->a, Storage, p->nstorages + 1);
    read_units(r, p, o, p->nstorages);
    if (p->nprograms > 64) bad(r, "programs", "has %d entries, a plan has at most 64", p->nprograms);
    p->programs = NEW_ARRAY(r->a, PlanProgram, p->nprograms + 1);
    Map **ids = NEW_ARRAY(r->a, Map *, p->nprograms + 1);
    const cJSON *x = programs;
    for (int i = 0; i < p->nprograms; i++, x = x->next) {
        enter(r, "programs", i);
        p->programs[i].name = text(r, x, "name");
        for (int k = 0; k < i; k++)
            if (!strcmp(p->programs[k].name, p->programs[i].name)) bad(r, "name", "stands twice");
        ids[i] = read_ids(r, &p->programs[i], x);
        leave(r);
    }
    read_storages(r, p, storages, ids);
    x = programs;
    for (int i = 0; i < p->nprograms; i++, x = x->next) {
        enter(r, "programs", i);
        read_program(r, p, &p->programs[i], ids[i], x);
        leave(r);
    }
    return p;
}

/* ── entries ──────────────────────────────────────────────────────────────────────────────────────────────── */
/* NULL when something is bad: `bad` jumps back here. */
static Plan *guarded(Reader *r, const cJSON *root) {
    if (setjmp(r->bad)) return NULL;
    return read_document(r, root);
}

/* cJSON's many small pieces come from an arena that is given back at once. */
static Arena *json_memory;
static void *json_alloc(size_t bytes) {
    return arena_alloc(json_memory, bytes);
}
static void json_keep(void *p) {}

/* The whole text as a tree, or NULL: then it is JSON up to *end. */
static const cJSON *tree_of(const char *text, size_t n, const char **end) {
    cJSON_Hooks hooks = {json_alloc, json_keep};
    cJSON_InitHooks(&hooks);
    *end = text;
    const cJSON *root = cJSON_ParseWithLengthOpts(text, n, end, false);
    cJSON_InitHooks(NULL);
    while (root && *end < text + n && isspace((unsigned char)**end)) ++*end;
    return *end == text + n ? root : NULL;
}

static PlanError error_at(Arena *a, const char *text, const char *at) {
    int line = 1;
    const char *begin = text;
    for (const char *c = text; c < at; c++)
        if (*c == '\n') {
            line++;
            begin = c + 1;
        }
    return (PlanError){
        arena_printf(a, "column %d: from here on it is not JSON; is the file whole?", (int)(at - begin) + 1), line};
}

Plan *plan_parse(Arena *a, const char *text, size_t n, PlanError *e) {
    Reader r = {.a = a};
    json_memory = arena_new();
    const char *end;
    const cJSON *root = tree_of(text, n, &end);
    Plan *p = root ? guarded(&r, root) : NULL;
    if (!root)
        *e = error_at(a, text, end);
    else if (!p)
        *e = (PlanError){r.error, 0};
    arena_free(json_memory);
    return p;
}

Plan *plan_read_text(Arena *a, const char *text, size_t n, const char *path) {
    PlanError e = {NULL, 0};
    Plan *p = plan_parse(a, text, n, &e);
    const char *dot = strrchr(path, '.');
    if (!p)
        fail((Source){path, e.line}, "not a plan of shardc: %s%s", e.text,
             dot && !strcmp(dot, ".json") ? "" : " (a model's name ends in .lua)");
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
    const char *s = input_read(a, NOWHERE, path, FILE_MOST, &n);
    if (n >= 4 && !memcmp(s, "\177ELF", 4)) s = embedded(s, n, &n, path);
    return plan_read_text(a, s, n, path);
}
