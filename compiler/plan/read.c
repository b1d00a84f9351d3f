/* Reads a plan from JSON or from a built binary, trusting nothing: types, ranges, names, indices and sums are checked.
 * Relies on: cJSON, fields.h; input_read.
 * Relied on by: every command that takes a plan, the tests, the fuzzer (plan_parse). */
#include "../ir/training.h"
#include "fields.h"
#include "plan_json.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>

#define LIMIT (((int64_t)1 << 53) - 1) /* of every size and offset: what a double, and so any JSON tool, can hold */
enum { MAX_PATH = 8, MAX_LIST = 1 << 22, MAX_TEXT = 1 << 20, MAX_MEMBERS = 1000, MOST_RANKS = 1 << 24 };

typedef struct {
    Arena *a;
    jmp_buf bad;
    const char *error;
    struct {
        const char *name; /* member, or list with index >= 0 */
        int index;
    } path[MAX_PATH];
    int depth;
    const Axis **axes; /* the plan's, as far as they have been read */
    int naxes;
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

static bool enter(Reader *r, const char *name, int index) {
    r->path[r->depth].name = name;
    r->path[r->depth++].index = index;
    return true;
}

static void leave(Reader *r) {
    r->depth--;
}

/* Each entry x, number i, of a list: x is the first at the start, n how many there are. */
#define EACH(r, key, i, n, x) for (int i = 0; i < (n) && enter(r, key, i); i++, x = (x)->next, leave(r))

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
    if (strlen(x->valuestring) > MAX_TEXT) bad(r, key, "is longer than %d bytes", MAX_TEXT);
    if (has_control(x->valuestring)) bad(r, key, "holds a control character");
    return x->valuestring;
}

static char *checked_text(Reader *r, const cJSON *x, const char *key) {
    return arena_strdup(r->a, checked_string(r, x, key));
}

static const char *text(Reader *r, const cJSON *o, const char *key) {
    return checked_text(r, member(r, o, key), key);
}

static void check_within(Reader *r, const char *key, double v, int64_t low, int64_t high) {
    if (v < (double)low || v > (double)high)
        bad(r, key, "%.0f is not between %lld and %lld", v, (long long)low, (long long)high);
}

static int64_t checked_integer(Reader *r, const cJSON *x, const char *key, int64_t low, int64_t high) {
    double v = cJSON_IsNumber(x) ? x->valuedouble : NAN;
    if (v != rint(v)) bad(r, key, "must be an integer");
    check_within(r, key, v, low, high);
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

/* An enum's value, by its name. */
static int word(Reader *r, const cJSON *o, const Field *f) {
    const char *s = checked_string(r, member(r, o, f->key), f->key), *words[32];
    int n = 0;
    for (; (words[n] = fields_word(f->type, n)); n++)
        if (!strcmp(s, words[n])) return n;
    const char *near = str_nearest(s, words, n);
    if (near) bad(r, f->key, "\"%.60s\" is unknown; is it \"%s\"?", s, near);
    bad(r, f->key, "\"%.60s\" is unknown", s);
}

/* The members of an object o, into the struct `to`. */
static const Axis *axis_named(Reader *r, const char *key, const char *name) {
    for (int i = 0; i < r->naxes; i++)
        if (!strcmp(name, r->axes[i]->name)) return r->axes[i];
    bad(r, key, "the mesh has no axis \"%.60s\"", name);
}

static void read_fields(Reader *r, const cJSON *o, Object kind, void *to) {
    for (const Field *f = fields_of(kind); f->of == kind; f++) {
        void *at = (char *)to + f->at;
        int64_t *sizes = at;
        switch (f->type) {
        case F_TEXT: *(const char **)at = text(r, o, f->key); break;
        case F_INDEX:
            *(int *)at = -1;
            if (!optional(r, o, f->key)) break; /* fall through */
        case F_INT: *(int *)at = (int)integer(r, o, f->key, 0, INT32_MAX); break;
        case F_COUNT: *(int *)at = (int)integer(r, o, f->key, 1, MOST_RANKS); break;
        case F_SIZE: *sizes = integer(r, o, f->key, 0, LIMIT); break;
        case F_RATE:
            *(double *)at = 0;
            if (!optional(r, o, f->key)) break; /* fall through */
        case F_REAL:
        case F_TIME: *(double *)at = real(r, o, f->key); break;
        case F_NO_AXIS:
            *(const Axis **)at = NULL;
            if (!optional(r, o, f->key)) break; /* fall through */
        case F_AXIS: *(const Axis **)at = axis_named(r, f->key, text(r, o, f->key)); break;
        case F_PAIR: {
            int n;
            const cJSON *x = list(r, o, f->key, &n);
            if (n != N_ARENAS) bad(r, f->key, "must be [device, host]");
            for (int i = 0; i < N_ARENAS; i++, x = x->next) sizes[i] = checked_integer(r, x, f->key, 0, LIMIT);
            break;
        }
        case F_ROUTE:
            *(int *)at = 0;
            if (!optional(r, o, f->key)) break; /* fall through */
        default: *(int *)at = word(r, o, f);
        }
    }
}

/* ── parts ────────────────────────────────────────────────────────────────────────────────────────────────── */
static void read_policies(Reader *r, Plan *p, const cJSON *o) {
    const cJSON *x = list(r, o, "policies", &p->npolicies);
    p->policies = NEW_ARRAY(r->a, PolicyFile, p->npolicies + 1);
    EACH(r, "policies", i, p->npolicies, x) {
        PolicyFile *file = &p->policies[i];
        file->name = text(r, x, "file");
        int n;
        for (const cJSON *y = list(r, x, "changes", &n); y; y = y->next)
            push(&file->changes, r->a, checked_text(r, y, "changes"));
        for (const cJSON *y = list(r, x, "overrides", &n); y; y = y->next)
            for (int k = 0; k < p->noptions; k++)
                if (!strcmp(checked_string(r, y, "overrides"), p->options[k].name))
                    p->options[k].overridden = file->name;
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
    read_fields(r, o, IN_MODEL, p);
    read_fields(r, o, IN_STEP, p);
    const cJSON *device = member(r, o, "device"), *mesh = member(r, o, "mesh"), *arenas = member(r, o, "arenas");
    const cJSON *options = member(r, o, "options"), *prediction = member(r, o, "prediction");
    enter(r, "device", -1);
    read_fields(r, device, IN_DEVICE, p);
    leave(r);
    enter(r, "mesh", -1);
    read_fields(r, mesh, IN_MESH, p);
    check_within(r, "nodes", p->nodes, 1, p->world);
    const cJSON *x = list(r, mesh, "axes", &p->naxes);
    r->axes = p->axes = NEW_ARRAY(r->a, const Axis *, p->naxes + 1);
    EACH(r, "axes", i, p->naxes, x) {
        Axis *a = NEW(r->a, Axis);
        read_fields(r, x, IN_AXIS, a);
        check_within(r, "size", a->size, 1, p->world);
        check_within(r, "stride", a->stride, 1, p->world / a->size);
        a->id = i;
        p->axes[r->naxes++] = a;
    }
    x = list(r, mesh, "groups", &p->ncomms);
    p->comms = NEW_ARRAY(r->a, Comm, p->ncomms + 1);
    EACH(r, "groups", i, p->ncomms, x) {
        Comm *c = &p->comms[i];
        read_fields(r, x, IN_GROUP, c);
        check_within(r, "chain", c->chain, 0, p->ncomms - 1);
    }
    leave(r);
    enter(r, "arenas", -1);
    for (int k = 0; k < N_ARENAS; k++) {
        x = member(r, arenas, fields_word(F_ARENA, k));
        enter(r, fields_word(F_ARENA, k), -1);
        p->arena_bytes[k] = integer(r, x, "bytes", 0, LIMIT);
        p->bound_bytes[k] = integer(r, x, "bound", 0, LIMIT);
        leave(r);
    }
    leave(r);
    if (!cJSON_IsObject(options)) bad(r, "options", "must be an object");
    p->options = NEW_ARRAY(r->a, OptionValue, cJSON_GetArraySize(options) + 1);
    enter(r, "options", -1);
    check_names(r, options);
    for (x = options->child; x; x = x->next) {
        if (!cJSON_IsString(x)) bad(r, NULL, "every option's value must be a string");
        if (has_control(x->string)) bad(r, NULL, "an option's name holds a control character");
        p->options[p->noptions++] =
            (OptionValue){.name = arena_strdup(r->a, x->string), .text = arena_strdup(r->a, x->valuestring)};
    }
    leave(r);
    if (optional(r, o, "policies")) read_policies(r, p, o);
    enter(r, "prediction", -1);
    x = list(r, prediction, "library", &p->nlibrary);
    p->library = NEW_ARRAY(r->a, LibraryLine, p->nlibrary + 1);
    EACH(r, "library", i, p->nlibrary, x) read_fields(r, x, IN_LIBRARY, &p->library[i]);
    x = list(r, prediction, "estimates", &p->nestimates);
    p->estimates = NEW_ARRAY(r->a, Estimate, p->nestimates + 1);
    EACH(r, "estimates", i, p->nestimates, x) read_fields(r, x, IN_ESTIMATE, &p->estimates[i]);
    if (optional(r, prediction, "fp8")) p->fp8 = text(r, prediction, "fp8");
    if (optional(r, prediction, "attention")) p->attention = text(r, prediction, "attention");
    const cJSON *documents = optional(r, prediction, "documents");
    enter(r, "documents", -1);
    if (documents) p->document_length = (int)integer(r, documents, "length", 1, INT32_MAX);
    if (documents) p->whole_documents = cJSON_IsTrue(member(r, documents, "whole_rows"));
    leave(r);
    leave(r);
}

static void read_unused(Reader *r, Plan *p, const cJSON *o) {
    const cJSON *unused = optional(r, o, "unused");
    enter(r, "unused", -1);
    for (int k = 0; unused && k < N_UNUSED; k++) {
        int n;
        const cJSON *x = list(r, unused, unused_keys[k], &n);
        EACH(r, unused_keys[k], i, n, x) push(&p->unused[k], r->a, checked_text(r, x, NULL));
    }
    leave(r);
}

/* The index of the event that x names, among the ids of its program. */
static int event_named(Reader *r, const Map *ids, const cJSON *x, const char *key) {
    const char *s = checked_string(r, x, key);
    int k = map_find(ids, s);
    if (k < 0) bad(r, key, "there is no event \"%.60s\" in this program", s);
    return k;
}

static int program_named(Reader *r, const Plan *p, const char *name) {
    for (int i = 0; i < p->nprograms; i++)
        if (!strcmp(name, p->programs[i].name)) return i;
    bad(r, "program", "there is no program \"%.60s\"", name);
}

static int group_named(Reader *r, const Plan *p, const char *name) {
    for (int i = 0; i < p->ncomms; i++)
        if (!strcmp(name, p->comms[i].name)) return i;
    bad(r, "comm", "there is no group of ranks \"%.60s\"", name);
}

static Access *read_accesses(Reader *r, const Plan *p, const cJSON *o, const char *key, int *n) {
    const cJSON *x = list(r, o, key, n);
    Access *out = NEW_ARRAY(r->a, Access, *n + 1);
    EACH(r, key, i, *n, x) {
        if (!cJSON_IsArray(x) || cJSON_GetArraySize(x) != 3) bad(r, NULL, "must be [storage, offset, size]");
        const cJSON *y = x->child;
        out[i].storage = (int)checked_integer(r, y, NULL, 0, p->nstorages - 1);
        out[i].offset = checked_integer(r, y->next, NULL, 0, LIMIT);
        out[i].size = checked_integer(r, y->next->next, NULL, 0, LIMIT);
    }
    return out;
}

static void read_event(Reader *r, const Plan *p, const Map *ids, Event *e, const cJSON *x) {
    read_fields(r, x, IN_EVENT, e);
    const cJSON *source = optional(r, x, "source");
    if (source) {
        char *s = checked_text(r, source, "source"), *colon = strrchr(s, ':'), *end = NULL;
        long line = colon ? strtol(colon + 1, &end, 10) : -1;
        if (!colon || end == colon + 1 || *end || line < 0 || line > INT32_MAX)
            bad(r, "source", "must be \"file:line\"");
        *colon = 0;
        e->src = (Source){s, (int)line};
    }
    e->unit = optional(r, x, "unit") ? (int)integer(r, x, "unit", 0, p->nunits - 1) : -1;
    e->comm = optional(r, x, "comm") ? group_named(r, p, text(r, x, "comm")) : -1;
    const cJSON *update = optional(r, x, "update");
    if (update && !cJSON_IsBool(update)) bad(r, "update", "must be true or false");
    e->update = cJSON_IsTrue(update);
    const cJSON *w = list(r, x, "waits", &e->nwaits);
    e->waits = NEW_ARRAY(r->a, int, e->nwaits + 1);
    for (int i = 0; i < e->nwaits; i++, w = w->next) e->waits[i] = event_named(r, ids, w, "waits");
    e->reads = read_accesses(r, p, x, "reads", &e->nreads);
    e->writes = read_accesses(r, p, x, "writes", &e->nwrites);
    read_fields(r, x, IN_COST, e);
}

static Plan *read_document(Reader *r, const cJSON *o) {
    Plan *p = NEW(r->a, Plan);
    p->arena = r->a;
    read_head(r, p, o);
    read_unused(r, p, o);
    const cJSON *storages = list(r, o, "storages", &p->nstorages), *programs = list(r, o, "programs", &p->nprograms);
    const cJSON *x = list(r, o, "units", &p->nunits);
    p->units = NEW_ARRAY(r->a, PlanUnit, p->nunits + 1);
    EACH(r, "units", i, p->nunits, x) {
        read_fields(r, x, IN_UNIT, &p->units[i]);
        check_within(r, "id", p->units[i].id, i, i);
        check_within(r, "master", p->units[i].master_storage, -1, p->nstorages - 1);
    }
    /* Names first: waits and lives refer to events by name, also to later ones. */
    if (p->nprograms > 64) bad(r, "programs", "has %d entries, a plan has at most 64", p->nprograms);
    p->programs = NEW_ARRAY(r->a, PlanProgram, p->nprograms + 1);
    Map **ids = NEW_ARRAY(r->a, Map *, p->nprograms + 1);
    x = programs;
    EACH(r, "programs", i, p->nprograms, x) {
        PlanProgram *g = &p->programs[i];
        g->name = text(r, x, "name");
        for (int k = 0; k < i; k++)
            if (!strcmp(p->programs[k].name, g->name)) bad(r, "name", "stands twice");
        ids[i] = map_new(r->a);
        const cJSON *event = list(r, x, "events", &g->n);
        g->events = NEW_ARRAY(r->a, Event, g->n + 1);
        EACH(r, "events", e, g->n, event) {
            const char *id = g->events[e].id = text(r, event, "id");
            if (!*id) bad(r, "id", "is empty");
            if (map_index(ids[i], id) != e) bad(r, "id", "\"%.60s\" stands twice in this program", id);
        }
    }
    int64_t sum = 0;
    x = storages;
    p->storages = NEW_ARRAY(r->a, Storage, p->nstorages + 1);
    EACH(r, "storages", i, p->nstorages, x) {
        Storage *s = &p->storages[i];
        read_fields(r, x, IN_STORAGE, s);
        check_within(r, "id", s->id, i, i);
        if (__builtin_add_overflow(sum, s->size, &sum)) bad(r, "size", "the sizes of all storages overflow");
        s->program = s->first = -1;
        s->last = INT32_MAX;
        if (!optional(r, x, "program")) continue;
        s->program = program_named(r, p, text(r, x, "program"));
        s->first = event_named(r, ids[s->program], member(r, x, "first"), "first");
        s->last = event_named(r, ids[s->program], member(r, x, "last"), "last");
        if (s->first > s->last) bad(r, "last", "comes before the first event");
    }
    x = programs;
    EACH(r, "programs", i, p->nprograms, x) {
        PlanProgram *g = &p->programs[i];
        read_fields(r, x, IN_PROGRAM, g);
        const cJSON *peak = member(r, x, "peak_event"), *event = list(r, x, "events", &g->n);
        g->peak_event = cJSON_IsNull(peak) ? -1 : event_named(r, ids[i], peak, "peak_event");
        EACH(r, "events", e, g->n, event) read_event(r, p, ids[i], &g->events[e], event);
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

static PlanError error_at(Arena *a, const char *text, size_t n, const char *at) {
    int line = 1;
    if (!n) return (PlanError){"it is empty", 1};
    if (*text == '<')
        return (PlanError){"it is a page; give the model, the plan.json or the binary that it was made of", 1};
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
        *e = error_at(a, text, n, end);
    else if (!p)
        *e = (PlanError){r.error, 0};
    arena_free(json_memory);
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
    PlanError e = {NULL, 0};
    Plan *p = plan_parse(a, s, n, &e);
    const char *dot = strrchr(path, '.');
    if (!p)
        fail((Source){path, e.line}, "not a plan of shardc: %s%s", e.text,
             dot && !strcmp(dot, ".json") ? "" : " (a model's name ends in .lua)");
    return p;
}
