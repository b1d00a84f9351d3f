/* The user's own C and CUDA C in a build: NAME_extension<n>.c is the user's text, with its own name and lines, followed
 * by the kernels that events call, each of which calls one function of it. Relies on: text.h; the extensions pass,
 * which has found the functions; runtime/sc_extension_call.h. Relied on by: emit.c, build.c. */
#include "text.h"

const char *foreign_suffix(const Plan *p, int file) {
    return arena_printf(p->arena, "_extension%d.%s", file, strcmp(p->target, "cuda") ? "c" : "cu");
}

const char *foreign_kernel(Arena *a, const Op *op) {
    return arena_printf(a, "extension%d_%s", op->extension->id, part_name(op->extension, foreign_part(op)));
}

typedef struct {
    const Emit *e;
    Str s;
    const Extension *x;
    const CFunction *f;
    const Op *op; /* one of those that call it: all have the same dtypes */
    int arg;
} Foreign;

static void open_kernel(Foreign *w) {
    str_addf(&w->s, "\n%svoid sc_k_%s(const sc_task *t) {\n    if (t->part) return;\n",
             emits_cuda(w->e) ? "extern \"C\" " : "", foreign_kernel(w->e->a, w->op));
}

/* The next argument, as the type that the function has there: "const float (*)[8]" for float x[4][8]. */
static void argument(Foreign *w, const char *text) {
    const CParam *p = &w->f->params[w->arg];
    str_addf(&w->s, "%s(%s%s %s", w->arg ? ", " : "", p->constant ? "const " : "", p->element,
             p->dims > 1 ? "(*)" : "*");
    for (int i = 1; i < p->dims; i++) str_addf(&w->s, "[%lld]", (long long)p->size[i]);
    str_addf(&w->s, ")%s", text);
    w->arg++;
}

static void close_call(Foreign *w, const char *indent) {
    if (emits_cuda(w->e)) argument(w, "t->stream");
    str_add(&w->s, ");\n");
    if (emits_cuda(w->e))
        str_addf(&w->s, "%ssc_extension_launched(%s, %s, %d);\n", indent, c_string(w->e->a, w->f->name),
                 c_string(w->e->a, w->x->file->path), w->f->line);
}

/* ── all-gathers ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void wire_arguments(Foreign *w, int first, bool after) {
    for (int k = 0; k < w->x->nwires; k++)
        argument(w, arena_printf(w->e->a, "sc_wire(t, &t->t[%d], &p, k, %d, %d)", first + k, k, after));
}

static void put_gather(Foreign *w) {
    bool after = foreign_part(w->op) == POST_GATHER, counts = strcmp(w->f->result, "void") != 0;
    int wires = w->x->nwires, whole = after ? 0 : wires, amax = after ? 1 + wires : wires + 1;
    open_kernel(w);
    str_addf(&w->s, "    int64_t slice = sc_extension_numel(&t->t[%d])%s;\n", whole, after ? " / t->i[0]" : "");
    if (after) str_add(&w->s, "    sc_clear_gaps(t, &t->t[0], 1, 1, slice, sc_parameters, 1);\n");
    for (int k = 0; k < wires && !after; k++)
        if (w->x->wire[k].every)
            str_addf(&w->s, "    sc_clear_gaps(t, &t->t[%d], %d, %d, slice, sc_parameters, 0);\n", k,
                     w->x->wire[k].count, w->x->wire[k].every);
    str_addf(&w->s,
             "    for (int k = 0; k < sc_pieces(t); k++) {\n"
             "        sc_piece p = sc_piece_at(t, k, sc_parameters, slice, %d);\n        %s%s(",
             after, counts ? "int64_t wrote = " : "", w->f->name);
    argument(w, "&p");
    if (after)
        wire_arguments(w, 1, true);
    else
        argument(w, arena_printf(w->e->a, "sc_elements(&t->t[%d], &p, 0)", whole));
    if (w->x->amax) argument(w, arena_printf(w->e->a, "((const float *)t->t[%d].p + k)", amax));
    if (after)
        argument(w, "sc_elements(&t->t[0], &p, 1)");
    else
        wire_arguments(w, 0, false);
    close_call(w, "        ");
    if (counts)
        str_addf(&w->s, "        sc_extension_wrote(t, &p, %s, %s, %d, wrote, %s);\n", c_string(w->e->a, w->f->name),
                 c_string(w->e->a, w->x->file->path), w->f->line, after ? "p.numel" : "sc_wires_room(t, &p)");
    str_add(&w->s, "    }\n}\n");
}

/* ── custom ops ──────────────────────────────────────────────────────────────────────────────────────────────────────
 * Tasks have results first, functions last. */
static void put_custom(Foreign *w) {
    const Op *op = w->op;
    int n = op->nin + op->nout;
    open_kernel(w);
    str_add(&w->s, "    static const int order[] = {");
    for (int k = 0; k < n; k++) str_addf(&w->s, "%s%d", k ? ", " : "", (k + op->nout) % n);
    str_addf(&w->s, "};\n    sc_call c = sc_call_of(t, order, %d);\n    %s(", n, w->f->name);
    argument(w, "&c");
    for (int k = 0; k < n; k++) argument(w, arena_printf(w->e->a, "t->t[%d].p", (k + op->nout) % n));
    close_call(w, "    ");
    str_add(&w->s, "}\n");
}

/* ── a file ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static const Op *a_call(const Emit *e, const Extension *x, ExtensionPart part) {
    for (int i = 0; i < e->plan->nprograms; i++)
        for (int k = 0; k < e->plan->programs[i].n; k++) {
            const Op *op = e->plan->programs[i].events[k].op_ir;
            if (op_is(op, T_FOREIGN) && op->extension == x && foreign_part(op) == part) return op;
        }
    return NULL;
}

static void put_parameters(Foreign *w) {
    str_add(&w->s, "static const sc_named sc_parameters[] = {\n");
    for (int i = 0; i < w->e->g->params.n; i++) {
        const Param *p = w->e->g->params.at[i];
        str_addf(&w->s, "    {%s, %d, {", c_string(w->e->a, p->path), p->dims);
        for (int d = 0; d < p->dims || d == 0; d++)
            str_addf(&w->s, "%s%lld", d ? ", " : "", d < p->dims ? (long long)p->shape[d] : 0);
        str_add(&w->s, "}},\n");
    }
    str_add(&w->s, "};\n");
}

const char *emit_foreign(const Emit *e, int file) {
    const CFile *c = e->g->files.at[file];
    Foreign w = {.e = e, .s = {.arena = e->a}};
    bool gathers = false;
    str_addf(&w.s, "/* %s and the calls of its functions. " WRITTEN " */\n", c_comment(e->a, c->path));
    str_addf(&w.s, "#line 1 %s\n%s\n", c_string(e->a, c->path), c->text);
    str_addf(&w.s, "#line 1 %s\n", c_string(e->a, arena_printf(e->a, "%s%s", e->name, foreign_suffix(e->plan, file))));
    str_addf(&w.s, "/* Calls of the functions above. Written by shardc. */\n#include \"sc_extension_call.h\"\n\n");
    for (int i = 0; i < e->g->extensions.n; i++)
        gathers |= e->g->extensions.at[i]->file == c && e->g->extensions.at[i]->gathers;
    if (gathers) put_parameters(&w);
    for (int i = 0; i < e->g->extensions.n; i++)
        for (int part = 0; part < N_PARTS; part++) {
            w.x = e->g->extensions.at[i];
            if (w.x->file != c || !(w.op = a_call(e, w.x, (ExtensionPart)part))) continue;
            w.f = w.x->found[part];
            w.arg = 0;
            if (w.x->gathers)
                put_gather(&w);
            else
                put_custom(&w);
        }
    return w.s.s;
}
