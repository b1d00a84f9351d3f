/* The step's text: each program as one straight-line function, a statement an event, waits in the open, grouped by
 * module. The same for every target. Relies on: text.h; runtime/sc.h for the words it writes. Relied on by: emit.c. */
#include "text.h"

enum { WIDTH = 118 };

/* ── comments ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static const char *amount(Arena *a, double x, const char *unit, double base, const char *const *scales) {
    int k = 0;
    while (x >= base * 0.9995 && k < 4) {
        x /= base;
        k++;
    }
    return arena_printf(a, k ? "%.1f %s%s" : "%.0f %s%s", x, scales[k], unit);
}

static const char *flops_text(Arena *a, double x) {
    static const char *const scales[] = {"", "k", "M", "G", "T"};
    return amount(a, x, "FLOP", 1000, scales);
}

static const char *bytes_text(Arena *a, double x) {
    static const char *const scales[] = {"", "Ki", "Mi", "Gi", "Ti"};
    return amount(a, x, "B", 1024, scales);
}

/* "up" of layers.3.mlp.up; "layers.3" of layers.3 */
static const char *leaf_name(const char *path) {
    const char *last = path + strlen(path);
    while (last > path && last[-1] != '.') last--;
    if (last == path || strspn(last, "0123456789") < strlen(last)) return last;
    for (last--; last > path && last[-1] != '.';) last--;
    return last;
}

static const char *source_text(Arena *a, Source s) {
    return s.file ? arena_printf(a, "%s:%d", c_comment(a, s.file), s.line) : "";
}

/* "e131 up: 38.7 GFLOP, gpt2.lua:18"; of a fused group and of combined ops also what they do */
static const char *event_comment(Arena *a, const Event *x) {
    Str s = {.arena = a};
    const char *slash = x->src.file ? strrchr(x->src.file, '/') : NULL, *file = slash ? slash + 1 : x->src.file;
    bool by_flops = x->flops > 4 * x->bytes && x->comm < 0;
    str_addf(&s, "%s%s%s", x->id, x->module && x->module[0] ? " " : "",
             c_comment(a, leaf_name(x->module ? x->module : "")));
    const char *separator = ": ";
    if (strcmp(x->op, op_info[x->op_ir->kind].name) != 0) {
        str_addf(&s, ": %s", c_comment(a, x->op));
        separator = ", ";
    }
    if (by_flops || x->bytes > 0) {
        str_addf(&s, "%s%s%s", separator, by_flops ? flops_text(a, x->flops) : bytes_text(a, x->bytes),
                 x->comm >= 0 ? " on the wire" : "");
        separator = ", ";
    }
    if (file) str_addf(&s, "%s%s:%d", separator, c_comment(a, file), x->src.line);
    return arena_printf(a, "/* %s */", s.s);
}

/* ── sections ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    Emit *e;
    const PlanProgram *p;
    bool *inner;      /* by module id: has modules inside */
    const char *path; /* of the open section; NULL: none yet */
    Phase phase;
} Text;

/* A leaf (a Linear, a norm) stands in the section of what holds it. */
static const Module *section_of(const Text *t, const Module *m) {
    return m->parent && !t->inner[m->id] ? m->parent : m;
}

static int display_width(const char *s) { /* UTF-8 */
    int n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void rule(FILE *f, int n) {
    for (int i = 0; i < n; i++) fputs("─", f);
}

/* Events of the other streams stand between those of the computation they run beside; they open no section. */
static void open_section(Text *t, const Event *x) {
    if (!x->op_ir || (t->path && x->stream != COMPUTE && x->stream != HOST)) return;
    Arena *a = t->e->a;
    const Module *m = section_of(t, x->op_ir->module);
    if (t->path && t->phase == x->phase && !strcmp(t->path, m->path)) return;
    t->path = m->path;
    t->phase = x->phase;
    const char *title =
        arena_printf(a, "%s · %s", phase_name(x->phase), c_comment(a, m->path[0] ? m->path : t->e->g->name));
    const char *source = source_text(a, x->src);
    int used = 4 + 6 + display_width(title) + 2 + display_width(source) + 7;
    fprintf(t->e->f, "\n    /* ── %s ", title);
    rule(t->e->f, used < WIDTH ? WIDTH - used : 2);
    fprintf(t->e->f, " %s ── */\n", source);
}

/* ── statements ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* A call and its comment; lines are broken between arguments where they would get too long. */
static void put_call(FILE *f, const char **pieces, int n, const char *comment) {
    int column = 4;
    fputs("    ", f);
    for (int i = 0; i < n; i++) {
        int w = display_width(pieces[i]) + 2;
        bool breaks = i > 1 && column + w > WIDTH;
        if (breaks) column = 8;
        fprintf(f, "%s%s%s", breaks ? "\n        " : i > 1 ? " " : "", pieces[i], i == 0 ? "" : i + 1 < n ? "," : ");");
        column += w;
    }
    fprintf(f, "%s%s\n", column + display_width(comment) > WIDTH ? "\n        " : " ", comment);
}

static const char *attr_text(Arena *a, const Op *op, const char *table) {
    if (op->body) return "ATTR(0)"; /* constants stand in the generated kernel */
    Str s = {.arena = a};
    int ni = MAX_INTS, nf = MAX_FLOATS;
    while (ni && !op->i[ni - 1]) ni--;
    while (nf && op->f[nf - 1] == 0) nf--;
    str_add(&s, "");
    for (int k = 0; k < ni; k++) str_addf(&s, "%s%s", k ? ", " : ".i = {", c_int(a, op->i[k]));
    if (ni) str_add(&s, "}");
    for (int k = 0; k < nf; k++) str_addf(&s, "%s%s", k ? ", " : ni ? ", .f = {" : ".f = {", c_float(a, op->f[k]));
    if (nf) str_add(&s, "}");
    if (op->ntable) str_addf(&s, "%s.table = %s, .ntable = %d", ni || nf ? ", " : "", table, op->ntable);
    return s.n ? arena_printf(a, "ATTR(%s)", s.s) : "ATTR(0)";
}

static const char *table_name(const Emit *e, const PlanProgram *p, const Event *x) {
    return arena_printf(e->a, "%s_%s_table", c_name(e->a, p->name), c_name(e->a, x->id));
}

static void put_table(const Emit *e, const PlanProgram *p, const Event *x) {
    const Op *op = x->op_ir;
    int column = fprintf(e->f, "static const int64_t %s[] = {", table_name(e, p, x));
    for (int k = 0; k < op->ntable; k++) {
        const char *number = c_int(e->a, op->table[k]), *end = k + 1 < op->ntable ? "," : "};\n";
        if (column + (int)strlen(number) + 3 > WIDTH)
            column = fprintf(e->f, "\n    ") - 1;
        else if (k)
            column += fprintf(e->f, " ");
        column += fprintf(e->f, "%s%s", number, end);
    }
}

static void put_event(Text *t, const Event *x) {
    Emit *e = t->e;
    const Op *op = x->op_ir;
    const Value *values[2 * MAX_IN + 1];
    const char *pieces[2 * MAX_IN + 8], *id = c_name(e->a, x->id);
    int nv = op_values(op, values), n = 0;
    if (op_is(op, T_COLLECTIVE)) {
        pieces[n++] = arena_printf(e->a, "sc_%s(", op_info[op->kind].name);
        pieces[n++] = "r";
        pieces[n++] = id;
        pieces[n++] = c_stream(x->stream);
        pieces[n++] = arena_printf(e->a, "%d", x->comm);
    } else if (op_is(op, T_COPY)) {
        pieces[n++] = "sc_copy_bytes(";
        pieces[n++] = "r";
        pieces[n++] = id;
        pieces[n++] = c_stream(x->stream);
    } else {
        pieces[n++] = "RUN(";
        pieces[n++] = id;
        pieces[n++] = c_stream(x->stream);
        pieces[n++] = op->body               ? arena_printf(e->a, "fused_%d", e->canonical[op->group])
                      : op_is(op, T_FOREIGN) ? foreign_kernel(e->a, op)
                                             : op_info[op->kind].name;
        pieces[n++] = attr_text(e->a, op, table_name(e, t->p, x));
    }
    for (int i = 0; i < nv; i++)
        pieces[n++] = values[i] == op->scratch_value ? c_bytes(e, values[i]) : c_tensor(e, values[i]);
    put_call(e->f, pieces, n, event_comment(e->a, x));
}

/* What the awaited event made for this one: the first value it writes that this one reads. */
static const Value *awaited_value(const Event *x, const Event *w) {
    const Value *values[2 * MAX_IN + 1];
    int n = op_values(w->op_ir, values);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < x->nreads && event_written(w->op_ir) >> i & 1; k++)
            if (value_root((Value *)values[i])->storage == x->reads[k].storage) return values[i];
    return NULL;
}

/* Why a wait is there. */
static const char *wait_comment(const Text *t, const Event *x, const Event *w) {
    Arena *a = t->e->a;
    const char *module = c_comment(a, w->module && w->module[0] ? w->module : t->e->g->name), *op = c_comment(a, w->op);
    const Value *v = awaited_value(x, w);
    if (v)
        return arena_printf(a, "/* %s %s: %s at 0x%08llx */", op, module, value_str(a, v),
                            (unsigned long long)value_at(t->e, v));
    return arena_printf(a, "/* %s %s: %s */", op, module,
                        w->comm >= 0 && x->comm >= 0 ? "collectives keep their order" : "its bytes are used again");
}

static void put_wait(Text *t, const Event *x, int awaited) {
    const Event *w = &t->p->events[awaited];
    const char *pieces[] = {"sc_wait(", "r", c_stream(x->stream), c_name(t->e->a, w->id)};
    put_call(t->e->f, pieces, 4, wait_comment(t, x, w));
}

static void put_enum(const Emit *e, const PlanProgram *p) {
    if (!p->n) return;
    int column = fprintf(e->f, "    enum {");
    for (int i = 0; i < p->n; i++) {
        const char *id = c_name(e->a, p->events[i].id);
        if (column + (int)strlen(id) + 2 > WIDTH) column = fprintf(e->f, "\n       ") - 1;
        column += fprintf(e->f, " %s%s", id, i + 1 < p->n ? "," : "");
    }
    fprintf(e->f, " };\n");
}

static void put_program(Emit *e, const PlanProgram *p) {
    Text t = {.e = e, .p = p, .inner = NEW_ARRAY(e->a, bool, e->g->modules.n + 1)};
    for (int i = 0; i < e->g->modules.n; i++) {
        const Module *m = e->g->modules.at[i];
        if (m->parent) t.inner[m->parent->id] = true;
    }
    for (int i = 0; i < p->n; i++)
        if (p->events[i].op_ir->ntable) put_table(e, p, &p->events[i]);
    fprintf(e->f, "static void %s(sc_rank *r) {\n", c_name(e->a, arena_printf(e->a, "program_%s", p->name)));
    put_enum(e, p);
    for (int i = 0; i < p->n; i++) {
        const Event *x = &p->events[i];
        open_section(&t, x);
        for (int k = 0; k < x->nwaits; k++) put_wait(&t, x, x->waits[k]);
        put_event(&t, x);
    }
    fprintf(e->f, "}\n\n");
}

/* The kernels that the text calls, generated ones included. */
static void put_declarations(Emit *e) {
    bool library[N_OPS] = {false}, *fused = NEW_ARRAY(e->a, bool, e->g->ngroups + 1);
    Map *foreign = map_new(e->a);
    for (int i = 0; i < e->plan->nprograms; i++)
        for (int k = 0; k < e->plan->programs[i].n; k++) {
            const Op *op = e->plan->programs[i].events[k].op_ir;
            if (op->body)
                fused[e->canonical[op->group]] = true;
            else if (op_is(op, T_FOREIGN))
                map_put(foreign, foreign_kernel(e->a, op), (void *)op);
            else if (!op_is(op, T_COLLECTIVE | T_COPY))
                library[op->kind] = true;
        }
    for (int k = 0; k < map_len(foreign); k++) fprintf(e->f, "sc_kernel sc_k_%s;\n", map_key(foreign, k));
    for (int k = 0; k < N_OPS; k++)
        if (library[k]) fprintf(e->f, "sc_kernel sc_k_%s;\n", op_info[k].name);
    for (int k = 0; k < e->g->ngroups; k++)
        if (fused[k]) fprintf(e->f, "sc_kernel sc_k_fused_%d;\n", k);
    fprintf(e->f, "\n");
}

void emit_step(Emit *e) {
    put_declarations(e);
    for (int i = 0; i < e->plan->nprograms; i++) put_program(e, &e->plan->programs[i]);
}
