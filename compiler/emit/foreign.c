/* The user's own C and CUDA C in a build: NAME_extension<n>.c is the user's text, with its own name and lines, followed
 * by the kernels that events call, each of which calls one function of it. Relies on: text.h; the extensions pass,
 * which has found the functions; runtime/sc_extension_call.h. Relied on by: emit.c, build.c. */
#include "../ir/foreign.h"
#include "../extension/c_file.h"
#include "../ir/ops.h"
#include "text.h"

const char *emit_foreign_suffix(const Plan *p, int file) {
    return arena_printf(p->arena, "_extension%d.%s", file, strcmp(p->target, "cuda") ? "c" : "cu");
}

const char *emit_foreign_kernel(Arena *a, const Op *op) {
    return arena_printf(a, "extension%d_%s", op->extension->id, foreign_part_name(op->extension, foreign_part(op)));
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
    const char *op = op_info[w->op->kind].name;
    str_addf(&w->s, "\n%svoid sc_k_%s(const sc_task *task) {\n", emit_is_cuda(w->e) ? "extern \"C\" " : "",
             emit_foreign_kernel(w->e->a, w->op));
    str_addf(&w->s, "    const sc_%s_args *k = (const sc_%s_args *)task->args;\n    if (task->part) return;\n", op, op);
}

/* The next argument, as the type that the function has there: "const float (*)[8]" for float x[4][8]. */
static void argument(Foreign *w, const char *text) {
    const CParam *p = &w->f->params.at[w->arg];
    str_addf(&w->s, "%s(%s%s %s", w->arg ? ", " : "", p->constant ? "const " : "", p->element,
             p->dims > 1 ? "(*)" : "*");
    for (int i = 1; i < p->dims; i++) str_addf(&w->s, "[%lld]", (long long)p->size[i]);
    str_addf(&w->s, ")%s", text);
    w->arg++;
}

static void close_call(Foreign *w, const char *indent) {
    if (emit_is_cuda(w->e)) argument(w, "task->stream");
    str_add(&w->s, ");\n");
    if (emit_is_cuda(w->e))
        str_addf(&w->s, "%ssc_extension_launched(%s, %s, %d);\n", indent, c_string(w->e->a, w->f->name),
                 c_string(w->e->a, w->x->file->path), w->f->line);
}

/* ── all-gathers ─────────────────────────────────────────────────────────────────────────────────────────────────── */
static void wire_arguments(Foreign *w) {
    for (int n = 0; n < w->x->nwires; n++)
        argument(w, arena_printf(w->e->a, "sc_wire(&g, &k->wires[%d], &p, n, %d)", n, n));
}

static void put_gather(Foreign *w) {
    bool after = foreign_part(w->op) == POST_GATHER, counts = strcmp(w->f->result, "void") != 0;
    open_kernel(w);
    str_add(&w->s, "    sc_coord place = task->coord[k->axis];\n");
    str_addf(&w->s, "    int64_t slice = sc_numel(&k->%s;\n", after ? "y) / place.of" : "shard)");
    str_addf(&w->s, "    sc_gathering g = {task, k->table, k->ntable, place, sc_parameters, slice, %d};\n", after);
    if (after) str_add(&w->s, "    sc_clear_gaps(&g, &k->y, 1, 1);\n");
    for (int n = 0; n < w->x->nwires && !after; n++)
        if (w->x->wire[n].every)
            str_addf(&w->s, "    sc_clear_gaps(&g, &k->wires[%d], %d, %d);\n", n, w->x->wire[n].count,
                     w->x->wire[n].every);
    str_addf(&w->s,
             "    for (int n = 0; n < sc_pieces(&g); n++) {\n"
             "        sc_piece p = sc_piece_at(&g, n);\n        %s%s(",
             counts ? "int64_t wrote = " : "", w->f->name);
    argument(w, "&p");
    if (after)
        wire_arguments(w);
    else
        argument(w, "sc_elements(&g, &k->shard, &p)");
    if (w->x->amax) argument(w, "((const float *)k->amax.p + n)");
    if (after)
        argument(w, "sc_elements(&g, &k->y, &p)");
    else
        wire_arguments(w);
    close_call(w, "        ");
    if (counts)
        str_addf(&w->s, "        sc_extension_wrote(task, &p, %s, %s, %d, wrote, %s);\n", c_string(w->e->a, w->f->name),
                 c_string(w->e->a, w->x->file->path), w->f->line, after ? "p.numel" : "sc_wires_room(&g, &p)");
    str_add(&w->s, "    }\n}\n");
}

/* ── custom ops ──────────────────────────────────────────────────────────────────────────────────────────────────────
 * Functions take operands first, then results. */
static void put_custom(Foreign *w) {
    const Op *op = w->op;
    const char *result = op_info[op->kind].results->name;
    int n = op->nin + op->nout;
    open_kernel(w);
    str_add(&w->s, "    const sc_tensor *const x[] = {");
    for (int i = 0; i < n; i++)
        str_addf(&w->s, "%s&k->%s[%d]", i ? ", " : "", i < op->nin ? "x" : result, i < op->nin ? i : i - op->nin);
    str_addf(&w->s, "};\n    sc_call c = sc_call_of(task, x, %d, k->numbers);\n    %s(", n, w->f->name);
    argument(w, "&c");
    for (int i = 0; i < n; i++) argument(w, arena_printf(w->e->a, "x[%d]->p", i));
    close_call(w, "    ");
    str_add(&w->s, "}\n");
}

/* ── a file ──────────────────────────────────────────────────────────────────────────────────────────────────────── */
static const Op *a_call(const Emit *e, const Extension *x, ExtensionPart part) {
    for (int i = 0; i < e->plan->nprograms; i++)
        for (int k = 0; k < e->plan->programs[i].n; k++) {
            const Op *op = e->plan->programs[i].events[k].op_ir;
            if (op_is(op, T_FOREIGN) && op->extension == x && foreign_part(op) == part) return op;
        }
    return NULL;
}

const char *emit_foreign(const Emit *e, int file) {
    const CFile *c = e->g->files.at[file];
    Foreign w = {.e = e, .s = {.arena = e->a}};
    bool gathers = false;
    str_addf(&w.s, "/* %s and the calls of its functions. " WRITTEN " */\n", c_comment(e->a, c->path));
    str_addf(&w.s, "#line 1 %s\n%s\n", c_string(e->a, c->path), c->text);
    str_addf(&w.s, "#line 1 %s\n",
             c_string(e->a, arena_printf(e->a, "%s%s", e->name, emit_foreign_suffix(e->plan, file))));
    str_addf(&w.s, "/* Calls of the functions above. Written by shardc. */\n#include \"sc_extension_call.h\"\n\n");
    for (int i = 0; i < e->g->extensions.n; i++)
        gathers |= e->g->extensions.at[i]->file == c && e->g->extensions.at[i]->gathers;
    if (gathers) str_add(&w.s, "static const sc_named sc_parameters[] = {\n");
    for (int i = 0; gathers && i < e->g->params.n; i++) {
        const Param *p = e->g->params.at[i];
        str_addf(&w.s, "    {%s, %d, {", c_string(e->a, p->path), p->dims);
        for (int d = 0; d < p->dims || d == 0; d++)
            str_addf(&w.s, "%s%lld", d ? ", " : "", d < p->dims ? (long long)p->shape[d] : 0);
        str_add(&w.s, "}},\n");
    }
    if (gathers) str_add(&w.s, "};\n");
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
