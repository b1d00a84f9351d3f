/* extensions: finds the functions that a model names in its C, and holds their parameters against what they will be
 * called with. Messages stand at the C line and name the Lua line that asks for it. Relies on: parse.c; units and
 * precision, which have settled dtypes. Relied on by: pipeline.c; the emitter, which calls what was found. */
#include "../ir/foreign.h"
#include "../ir/ops.h"
#include "../ir/policy.h"
#include "c_file.h"
#include "extension.h"

#include <dlfcn.h>

typedef struct { /* a parameter that the function must have */
    const char *name;
    Dtype dtype;
    const char *record; /* instead of elements: a struct, by its name */
    bool constant;
    const Value *tensor; /* whose sizes it has; NULL: any number of */
    int64_t together;    /* elements that stand together */
} Want;

typedef struct {
    Arena *a;
    const Extension *x;
    const CFunction *f;
    Source use; /* the Lua line that calls it */
    bool cuda;
    VEC(Want) wants;
} Check;

static Source at_line(const Check *c, int line) {
    return (Source){c->x->file->path, line};
}

/* ── types ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* The first name is the one that messages show. */
static const char *const c_types[N_DTYPES][5] = {
    [FP32] = {"float"},
    [FP64] = {"double"},
    [BF16] = {"sc_bf16_t", "unsigned short", "__nv_bfloat16", "__bf16"},
    [FP16] = {"sc_fp16_t", "unsigned short", "__half", "_Float16"},
    [FP8_E4M3] = {"sc_fp8_e4m3_t", "unsigned char", "__nv_fp8_e4m3"},
    [FP8_E5M2] = {"sc_fp8_e5m2_t", "unsigned char", "__nv_fp8_e5m2"},
    [INT32] = {"int32_t", "int"},
    [INT64] = {"int64_t", "long", "long long"},
    [BOOL] = {"sc_bool_t", "unsigned char", "_Bool", "bool"},
    [INT8] = {"int8_t", "signed char"},
};

static bool element_fits(const Want *w, const char *element) {
    if (w->record) return !strcmp(element, w->record);
    for (int i = 0; i < 5 && c_types[w->dtype][i]; i++)
        if (!strcmp(element, c_types[w->dtype][i])) return true;
    return false;
}

static const char *wanted(const Check *c, const Want *w) { /* "const float *x" */
    const char *element = w->record ? w->record : c_types[w->dtype][0], *constant = w->constant ? "const " : "";
    if (w->record && !strcmp(w->record, "CUstream_st")) return "cudaStream_t stream";
    if (w->together > 1)
        return arena_printf(c->a, "%s%s (*%s)[%lld]", constant, element, w->name, (long long)w->together);
    return arena_printf(c->a, "%s%s *%s", constant, element, w->name);
}

static const char *signature(const Check *c) {
    Str s = {.arena = c->a};
    str_addf(&s, "void %s(", c->f->name);
    for (int i = 0; i < c->wants.n; i++) str_addf(&s, "%s%s", i ? ", " : "", wanted(c, &c->wants.at[i]));
    str_add(&s, ")");
    return s.s;
}

/* ── one function ────────────────────────────────────────────────────────────────────────────────────────────────── */
static const char *c_sizes(const Check *c, const CParam *p) { /* "[4][8]" */
    Str s = {.arena = c->a};
    str_add(&s, "");
    for (int i = 0; i < p->dims; i++) {
        if (p->size[i])
            str_addf(&s, "[%lld]", (long long)p->size[i]);
        else
            str_add(&s, "[]");
    }
    return s.s;
}

/* Sizes that the source writes are the tensor's: all of its dimensions, or all elements in one. */
static bool sizes_fit(const Want *w, const CParam *p) {
    const Value *v = w->tensor;
    int64_t all = v ? value_numel(v) : 0;
    if (w->record || p->dims == 0) return true;
    if (!v) return p->dims == 1 ? !p->size[0] : p->dims == 2 && !p->size[0] && p->size[1] == w->together;
    if (p->dims == 1) return !p->size[0] || p->size[0] == all;
    bool fit = p->dims == v->dims;
    for (int i = 0; i < p->dims && fit; i++) fit = !p->size[i] || p->size[i] == v->shape[i];
    return fit;
}

static _Noreturn void wrong_size(const Check *c, const Want *w, const CParam *p) {
    const char *is = w->tensor         ? value_str(c->a, w->tensor)
                     : w->together > 1 ? arena_printf(c->a, "%lld elements that stand together", (long long)w->together)
                                       : "one element after the other, as many as there are";
    fail(at_line(c, p->line), "%s: parameter %s is %s, and what %s:%d gives it is %s; write `%s`", c->f->name, p->name,
         c_sizes(c, p), c->use.file, c->use.line, is, wanted(c, w));
}

static void check_param(const Check *c, const Want *w, const CParam *p) {
    if (!p->element[0] || !element_fits(w, p->element))
        fail(at_line(c, p->line), "%s: parameter %s is `%s`; %s:%d calls it with `%s`: write `%s`", c->f->name, p->name,
             p->type, c->use.file, c->use.line, wanted(c, w), signature(c));
    if (w->constant != p->constant)
        fail(at_line(c, p->line), "%s: parameter %s is `%s`, but %s:%d %s: write `%s`", c->f->name, p->name, p->type,
             c->use.file, c->use.line, w->constant ? "gives it what must not be written" : "expects the result there",
             wanted(c, w));
    if (!sizes_fit(w, p)) wrong_size(c, w, p);
}

static void find(Check *c, Extension *x, ExtensionPart part) {
    VEC(const char *) names = {0};
    for (int i = 0; i < x->file->functions.n; i++) {
        const CFunction *f = &x->file->functions.at[i];
        push(&names, c->a, f->name);
        if (!strcmp(f->name, x->part[part])) c->f = f;
    }
    if (!c->f) {
        const char *near = str_nearest(x->part[part], names.at, names.n);
        fail((Source){x->file->path, 1}, "there is no function %s in this file, which %s:%d wants for its %s%s%s%s",
             x->part[part], x->src.file, x->src.line, foreign_part_name(x, part), near ? "; did you mean '" : "",
             near ? near : "", near ? "'?" : ": define it, or name another");
    }
    x->found[part] = c->f;
}

static void want(Check *c, const char *name, Dtype d, bool constant, const Value *tensor, int64_t together) {
    push(&c->wants, c->a, ((Want){name, d, NULL, constant, tensor, together}));
}

static void want_record(Check *c, const char *name, const char *record, bool constant) {
    push(&c->wants, c->a, ((Want){.name = name, .record = record, .constant = constant}));
}

static void check_function(Check *c) {
    if (c->cuda) want_record(c, "stream", "CUstream_st", false);
    if (c->f->params.n != c->wants.n)
        fail(at_line(c, c->f->line), "%s has %d parameters; %s:%d calls it with %d: write `%s`", c->f->name,
             c->f->params.n, c->use.file, c->use.line, c->wants.n, signature(c));
    for (int i = 0; i < c->wants.n; i++) check_param(c, &c->wants.at[i], &c->f->params.at[i]);
    bool counts = c->x->gathers && (!strcmp(c->f->result, "long") || !strcmp(c->f->result, "long long"));
    if (strcmp(c->f->result, "void") && !counts)
        fail(at_line(c, c->f->line), "%s returns `%s`; write `%s`%s", c->f->name, c->f->result, signature(c),
             c->x->gathers ? " (or int64_t: how many elements it has written, which is checked when it runs)" : "");
}

/* ── what functions are called with ──────────────────────────────────────────────────────────────────────────────── */
static void want_wires(Check *c, bool constant) {
    for (int k = 0; k < c->x->nwires; k++) {
        const Wire *w = &c->x->wire[k];
        const char *name = c->x->nwires == 1 ? "wire" : arena_printf(c->a, "wire%d", k);
        want(c, name, w->dtype, constant, NULL, w->count);
    }
}

static void check_gather(Graph *g, const Unit *u, bool cuda) {
    Extension *x = u->policy->all_gather;
    for (ExtensionPart part = PRE_GATHER; part <= POST_GATHER; part++) {
        Source use = setting_source(&u->policy->settings, "all_gather", u->policy->src);
        Check c = {.a = g->arena, .x = x, .use = use, .cuda = cuda};
        find(&c, x, part);
        want_record(&c, "piece", "sc_piece", true);
        if (part == PRE_GATHER) want(&c, "stored", u->dtype, true, NULL, 1);
        if (part == POST_GATHER) want_wires(&c, true);
        if (x->amax) want(&c, "amax", FP32, true, NULL, 1);
        if (part == PRE_GATHER) want_wires(&c, false);
        if (part == POST_GATHER) want(&c, "parameter", u->wire, false, NULL, 1);
        check_function(&c);
    }
}

static void want_values(Check *c, Value *const *v, int n, const char *name, bool constant, bool floats) {
    for (int k = 0; k < n; k++) {
        if (floats && !dtype_float(v[k]->dtype)) continue;
        const char *own = n == 1 ? name : arena_printf(c->a, "%s%d", name, k);
        want(c, own, v[k]->dtype, constant, v[k], 1);
    }
}

static void check_custom(Graph *g, const Op *op, bool cuda) {
    Extension *x = op->extension;
    Check c = {.a = g->arena, .x = x, .use = op->src, .cuda = cuda};
    find(&c, x, CUSTOM_FORWARD);
    want_record(&c, "call", "sc_call", true);
    want_values(&c, op->custom.x, op->nin, "x", true, false);
    want_values(&c, op->custom.y, op->nout, "y", false, false);
    check_function(&c);
    if (!x->part[CUSTOM_BACKWARD]) return;
    Check b = {.a = g->arena, .x = x, .use = op->src, .cuda = cuda};
    find(&b, x, CUSTOM_BACKWARD);
    want_record(&b, "call", "sc_call", true);
    want_values(&b, op->custom.y, op->nout, "gy", true, false);
    want_values(&b, op->custom.x, op->nin, "x", true, false);
    want_values(&b, op->custom.y, op->nout, "y", true, false);
    want_values(&b, op->custom.x, op->nin, "gx", false, true);
    check_function(&b);
}

/* ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* The C library would lose a function to the user's of that name, silently, and the runtime its own. */
static bool is_taken(const char *name) {
    return !strcmp(name, "main") || !strncmp(name, "sc_", 3) || dlsym(RTLD_DEFAULT, name);
}

/* Two files of a build are linked with each other, and with the program that calls them. */
static void check_names(const Graph *g, const CFile *f) {
    for (int i = 0; i < f->functions.n; i++) {
        const CFunction *x = &f->functions.at[i];
        if (!x->internal && is_taken(x->name))
            fail((Source){f->path, x->line},
                 "%s is a name that the program or the C library has already: make the function static, or give it "
                 "another name",
                 x->name);
    }
    for (int i = 0; i < g->files.n; i++)
        for (int k = 0; k < g->files.at[i]->functions.n; k++)
            for (int j = 0; j < f->functions.n; j++) {
                const CFunction *a = &g->files.at[i]->functions.at[k], *b = &f->functions.at[j];
                if (a->internal || b->internal || strcmp(a->name, b->name)) continue;
                fail((Source){f->path, b->line}, "%s is defined at %s:%d too: make one of the two static", b->name,
                     g->files.at[i]->path, a->line);
            }
}

static void read_file_of(Graph *g, Extension *x, bool cuda) {
    const char *path = cuda ? x->cuda : x->source;
    if (x->file) return;
    if (!path)
        fail(x->src, "%s needs a source for the %s target: write %s", x->gathers ? "nn.all_gather_extension" : x->name,
             cuda ? "cuda" : "cpu",
             cuda ? "cuda = \"file.cu\", or build with --target cpu"
                  : "source = \"file.c\", or build with --target cuda");
    for (int i = 0; i < g->files.n && !x->file; i++)
        if (!strcmp(g->files.at[i]->path, path)) x->file = g->files.at[i];
    if (x->file) return;
    x->file = extension_read_c(g->arena, path, cuda, cuda ? x->cuda_at : x->source_at);
    check_names(g, x->file);
    push(&g->files, g->arena, x->file);
}

void extension_load(Graph *g, const char *target) {
    bool cuda = !strcmp(target, "cuda");
    const Program *traced[] = {g->train, g->assign, g->eval, g->sample};
    for (int i = 0; i < g->units.n; i++) {
        if (!g->units.at[i]->policy->all_gather || !g->units.at[i]->params.n) continue;
        read_file_of(g, g->units.at[i]->policy->all_gather, cuda);
        check_gather(g, g->units.at[i], cuda);
    }
    for (int p = 0; p < 4; p++)
        for (int i = 0; traced[p] && i < traced[p]->ops.n; i++) {
            Op *op = traced[p]->ops.at[i];
            if (!op_is(op, T_FOREIGN)) continue;
            read_file_of(g, op->extension, cuda);
            check_custom(g, op, cuda);
        }
}
