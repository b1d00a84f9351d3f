/* The step's text: each program as one straight-line function, a statement an event, waits in the open, grouped by
 * module. The same for every target. Relies on: text.h; runtime/sc.h for the words it writes. Relied on by: emit.c. */
#include "../ir/ops.h"
#include "../plan/sentences.h"
#include "text.h"

enum { WIDTH = 118 };

/* ── comments ────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* "up" of layers.3.mlp.up; "layers.3" of layers.3 */
static const char *leaf_name(const char *path) {
    const char *last = path + strlen(path);
    while (last > path && last[-1] != '.') last--;
    if (last == path || strspn(last, "0123456789") < strlen(last)) return last;
    for (last--; last > path && last[-1] != '.';) last--;
    return last;
}

static void add_source(Str *t, const char *file, int line) {
    text_comment(t, file);
    str_add(t, ":");
    str_int(t, line);
}

static void add_slot(Str *t, const Slot *slots, int k, int n) {
    int index;
    const Slot *s = op_slot_at(slots, k, &index);
    str_add(t, s->name);
    if (s->n && n > 1) str_addf(t, "[%d]", index);
}

/* "y in the bytes of x[1]": the results that lie there. */
static const char *add_in_place(Str *t, const Plan *p, const Op *op, const char *separator) {
    const OpInfo *info = &op_info[op->kind];
    for (int k = 0; k < op->nout; k++)
        for (int i = 0; op->out[k] && i < op->nin; i++) {
            const Value *y = value_root(op->out[k]), *x = op->in[i] ? value_root(op->in[i]) : y;
            if (x == y || plan_storage(p, x) != plan_storage(p, y)) continue;
            str_add(t, separator);
            add_slot(t, info->results, k, op->nout);
            str_add(t, " in the bytes of ");
            add_slot(t, info->operands, i, op->nin);
            separator = ", ";
            break;
        }
    return separator;
}

/* "e131 up: 38.7 GFLOP, gpt2.lua:18"; of a fused group and of combined ops also what they do */
static void add_event_comment(Str *t, const Plan *p, const Event *x) {
    const char *file = x->src.file ? basename(x->src.file) : NULL;
    bool by_flops = x->flops > 4 * x->bytes && x->comm < 0;
    str_add(t, "/* ");
    str_add(t, x->id);
    if (x->module && x->module[0]) {
        str_add(t, " ");
        text_comment(t, leaf_name(x->module));
    }
    const char *separator = ": ";
    if (strcmp(x->op, op_info[x->op_ir->kind].name) != 0) {
        str_add(t, separator);
        text_comment(t, x->op);
        separator = ", ";
    }
    separator = add_in_place(t, p, x->op_ir, separator);
    if (by_flops || x->bytes > 0) {
        str_add(t, separator);
        if (by_flops)
            text_amount(t, x->flops, "FLOP", 1000, (const char *const[]){"", "k", "M", "G", "T"});
        else
            text_size(t, x->bytes);
        if (x->comm >= 0) str_add(t, " on the wire");
        separator = ", ";
    }
    if (file) {
        str_add(t, separator);
        add_source(t, file, x->src.line);
    }
    str_add(t, " */");
}

/* ── sections ────────────────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    Emit *e;
    const PlanProgram *p;
    Names *names;
    bool *inner;      /* by module id: has modules inside */
    const char *path; /* of the open section; NULL: none yet */
    Phase phase;
    Str pieces; /* of the call under way, one behind the other: its name and arguments */
    size_t piece[2 * MAX_IN + MAX_INTS + MAX_FLOATS + 8];
    int npieces;
    Str comment; /* behind it */
} Text;

static int display_width(const char *s, size_t bytes) { /* UTF-8 */
    int n = 0;
    for (size_t i = 0; i < bytes; i++) n += ((unsigned char)s[i] & 0xc0) != 0x80;
    return n;
}

static void rule(Str *t, int n) {
    for (int i = 0; i < n; i++) str_add(t, "─");
}

/* Events of the other streams stand between those of the computation they run beside; they open no section. */
static void open_section(Text *t, const Event *x) {
    if (!x->op_ir || (t->path && !purpose_pinned(x->purpose) && x->stream != COMPUTE && x->stream != HOST)) return;
    Str *out = t->e->out;
    const Module *m = x->op_ir->module;
    if (m->parent && !t->inner[m->id])
        m = m->parent; /* a leaf (a Linear, a norm) stands in the section of its holder */
    if (t->path && t->phase == x->phase && !strcmp(t->path, m->path)) return;
    if (t->path && x->phase == FORWARD && t->phase == BACKWARD)
        return; /* the loss is stored when its gradient is made */
    t->path = m->path;
    t->phase = x->phase;
    str_add(out, "\n    /* ── ");
    size_t from = out->n;
    str_add(out, phase_name(x->phase));
    str_add(out, " · ");
    text_comment(out, m->path[0] ? m->path : t->e->g->name);
    int title = display_width(out->s + from, out->n - from);
    t->comment.n = 0;
    if (x->src.file) add_source(&t->comment, x->src.file, x->src.line);
    int used = 4 + 6 + title + 2 + display_width(t->comment.s, t->comment.n) + 7;
    str_add(out, " ");
    rule(out, used < WIDTH ? WIDTH - used : 2);
    str_add(out, " ");
    str_bytes(out, t->comment.s, t->comment.n);
    str_add(out, " ── */\n");
}

/* ── statements ──────────────────────────────────────────────────────────────────────────────────────────────────── */
static void new_call(Text *t) {
    t->pieces.n = t->comment.n = 0;
    t->npieces = 0;
}

/* The next argument of the call (at first its name) is what is added to this text. */
static Str *new_piece(Text *t) {
    t->piece[t->npieces++] = t->pieces.n;
    return &t->pieces;
}

static void add_piece(Text *t, const char *s) {
    str_add(new_piece(t), s);
}

/* The call and its comment; lines are broken between arguments where they would get too long. */
static void put_call(Text *t) {
    Str *out = t->e->out;
    int column = 4, n = t->npieces;
    t->piece[n] = t->pieces.n;
    str_add(out, "    ");
    for (int i = 0; i < n; i++) {
        const char *s = t->pieces.s + t->piece[i];
        size_t bytes = t->piece[i + 1] - t->piece[i];
        int w = (int)bytes + 2; /* ASCII, unlike comments */
        bool breaks = i > 1 && column + w > WIDTH;
        if (breaks) column = 8;
        str_add(out, breaks ? "\n        " : i > 1 ? " " : "");
        str_bytes(out, s, bytes);
        str_add(out, i == 0 ? "" : i + 1 < n ? "," : ");");
        column += w;
    }
    str_add(out, column + display_width(t->comment.s, t->comment.n) > WIDTH ? "\n        " : " ");
    str_bytes(out, t->comment.s, t->comment.n);
    str_add(out, "\n");
    str_spill(out, t->e->f);
}

static void add_table_name(Str *t, const PlanProgram *p, const Event *x) {
    text_name(t, p->name);
    str_add(t, "_");
    text_name(t, x->id);
    str_add(t, "_table");
}

/* Where the numbers stand in a generated kernel the call has none. */
static void add_attributes(Text *t, const Event *x) {
    const Op *op = x->op_ir;
    const int64_t *i = op->i;
    const double *f = op->f;
    for (const Attribute *a = op_info[op->kind].attributes; a->name; a++) {
        bool real = a->type == A_FLOAT;
        int n = a->n;
        while (n && (real ? f[n - 1] == 0 : i[n - 1] == 0)) n--;
        if (n && a->kernel) {
            Str *s = new_piece(t);
            str_addf(s, a->n > 1 ? ".%s = {" : ".%s = ", a->name);
            for (int k = 0; k < n; k++) {
                str_add(s, k ? ", " : "");
                if (real)
                    text_float(s, f[k]);
                else if (a->type == A_FLAGS)
                    text_flags(s, a->words, (uint64_t)i[k]);
                else if (a->words || a->type == A_FLAG)
                    str_add(s, a->words ? a->words[i[k]] : "true");
                else if (a->type == A_NUMBERS)
                    str_addf(s, "{numbers_%lld, %d}", (long long)i[k], graph_numbers_at(t->e->g, i[k])->n);
                else
                    text_int(s, i[k]);
            }
            str_add(s, a->n > 1 ? "}" : "");
        }
        if (real)
            f += a->n;
        else
            i += a->n;
    }
    if (!op->ntable) return;
    Str *s = new_piece(t);
    str_add(s, ".table = ");
    add_table_name(s, t->p, x);
    str_addf(new_piece(t), ".ntable = %d", op->ntable);
}

/* Results or operands by their names: ".y = T(...)", ".x = {T(...), T(...)}". */
static void add_slots(Text *t, const Slot *slots, Value *const *v, int n) {
    Str *s = NULL;
    for (int k = 0, i = 0; k < n && slots->name; slots++) {
        int most = slots->n ? slots->n : 1;
        bool open = false;
        for (i = 0; i < most && k < n; i++, k++) {
            if (!v[k]) continue;
            s = new_piece(t);
            if (!open) str_addf(s, slots->n ? ".%s = {" : ".%s = ", slots->name);
            open = true;
            text_tensor(s, t->e, t->names, v[k]);
        }
        if (open && slots->n) str_add(s, "}");
    }
}

/* The elements of a table whose declaration began at `line`: integers, or single-precision numbers. */
static void put_numbers(const Emit *e, size_t line, int n, const int64_t *integers, const float *numbers) {
    Str *out = e->out;
    str_add(out, "[] = {");
    for (int k = 0; k < n; k++) {
        Str number = {.arena = e->a};
        if (integers)
            text_int(&number, integers[k]);
        else
            text_single(&number, numbers[k]);
        if (out->n - line + number.n + 3 > WIDTH) {
            str_add(out, "\n    ");
            line = out->n - 4;
        } else if (k) {
            str_add(out, " ");
        }
        str_bytes(out, number.s, number.n);
        str_add(out, k + 1 < n ? "," : "};\n");
    }
    str_spill(out, e->f);
}

static void put_table(const Emit *e, const PlanProgram *p, const Event *x) {
    size_t line = e->out->n;
    str_add(e->out, "static const int64_t ");
    add_table_name(e->out, p, x);
    put_numbers(e, line, x->op_ir->ntable, x->op_ir->table, NULL);
}

/* The lists of the graph that events name. */
static void put_lists(const Emit *e) {
    bool *named = NEW_ARRAY(e->a, bool, e->g->numbers.n + 1);
    for (int i = 0; i < e->plan->nprograms; i++)
        for (int k = 0; k < e->plan->programs[i].n; k++) {
            const Op *op = e->plan->programs[i].events[k].op_ir;
            const int64_t *number = op->i;
            for (const Attribute *a = op_info[op->kind].attributes; a->name && a->type != A_FLOAT; number += a++->n)
                if (a->type == A_NUMBERS) named[*number] = true;
        }
    for (int k = 1; k <= e->g->numbers.n; k++) {
        if (!named[k]) continue;
        size_t line = e->out->n;
        str_addf(e->out, "static const float numbers_%d", k);
        put_numbers(e, line, graph_numbers_at(e->g, k)->n, NULL, graph_numbers_at(e->g, k)->at);
    }
}

static void put_event(Text *t, const Event *x) {
    Emit *e = t->e;
    const Op *op = x->op_ir;
    const OpInfo *info = &op_info[op->kind];
    bool collective = op_is(op, T_COLLECTIVE), runs = !collective && !op_is(op, T_COPY);
    new_call(t);
    if (runs) {
        add_piece(t, op->body ? "FUSED(" : "RUN(");
        add_piece(t, op->body               ? e->kernel[op->group]
                     : op_is(op, T_FOREIGN) ? emit_foreign_kernel(e->a, op)
                                            : info->name);
    } else {
        str_addf(new_piece(t), "sc_%s(", collective ? info->name : "copy_bytes");
        add_piece(t, "r");
    }
    text_name(new_piece(t), x->id);
    add_piece(t, c_stream(x->stream));
    if (collective) str_int(new_piece(t), x->comm);
    if (runs) {
        add_slots(t, info->results, op->out, op->nout);
        add_slots(t, info->operands, op->in, op->nin);
        if (op->workspace) {
            str_add(new_piece(t), ".work = ");
            text_bytes(&t->pieces, t->names, op->workspace);
        }
        if (!op->body) add_attributes(t, x);
    } else {
        for (int k = 0; k < op->nout; k++) text_tensor(new_piece(t), e, t->names, op->out[k]);
        for (int k = 0; k < op->nin; k++) text_tensor(new_piece(t), e, t->names, op->in[k]);
    }
    add_event_comment(&t->comment, e->plan, x);
    put_call(t);
}

static void put_wait(Text *t, const Event *x, int awaited) {
    const Event *w = &t->p->events[awaited];
    new_call(t);
    add_piece(t, "sc_wait(");
    add_piece(t, "r");
    add_piece(t, c_stream(x->stream));
    text_name(new_piece(t), w->id);
    str_add(&t->comment, "/* ");
    const char *said[REASONS_MOST + 1];
    int n = plan_reasons(t->e->plan, t->p, x, awaited, names_storage, t->names, said);
    for (int k = 0; k < n; k++) { /* a line each */
        if (k) str_add(&t->comment, ";\n         * ");
        text_comment(&t->comment, said[k]);
    }
    str_add(&t->comment, " */");
    put_call(t);
}

static void put_enum(const Emit *e, const PlanProgram *p) {
    if (!p->n) return;
    Str *out = e->out, id = {.arena = e->a};
    str_add(out, "    enum {");
    size_t column = strlen("    enum {");
    for (int i = 0; i < p->n; i++) {
        id.n = 0;
        text_name(&id, p->events[i].id);
        if (column + id.n + 2 > WIDTH) {
            str_add(out, "\n       ");
            column = strlen("       ");
        }
        str_add(out, " ");
        str_bytes(out, id.s, id.n);
        if (i + 1 < p->n) str_add(out, ",");
        column += 1 + id.n + (i + 1 < p->n);
        str_spill(out, e->f);
    }
    str_add(out, " };\n");
}

static Text text_of(Emit *e, const PlanProgram *p) {
    Text t = {.e = e, .p = p, .pieces = {.arena = e->a}, .comment = {.arena = e->a}};
    t.inner = NEW_ARRAY(e->a, bool, e->g->modules.n + 1);
    for (int i = 0; i < e->g->modules.n; i++) {
        const Module *m = e->g->modules.at[i];
        if (m->parent) t.inner[m->parent->id] = true;
    }
    t.names = names_new(e, p);
    return t;
}

static void put_waits_and_event(Text *t, const Event *x) {
    for (int k = 0; k < x->nwaits; k++) put_wait(t, x, x->waits[k]);
    put_event(t, x);
}

static void put_program(Emit *e, const PlanProgram *p) {
    for (int i = 0; i < p->n; i++)
        if (p->events[i].op_ir->ntable) put_table(e, p, &p->events[i]);
    str_addf(e->out, "static void %s(sc_rank *r) {\n", c_name(e->a, arena_printf(e->a, "program_%s", p->name)));
    put_enum(e, p);
    Text t = text_of(e, p);
    names_put(t.names);
    for (int i = 0; i < p->n; i++) {
        const Event *x = &p->events[i];
        open_section(&t, x);
        put_waits_and_event(&t, x);
    }
    str_add(e->out, "}\n\n");
}

/* The kernels that the text calls, generated ones included. */
static void put_declarations(Emit *e) {
    bool library[N_OPS] = {false};
    Map *fused = map_new(e->a), *foreign = map_new(e->a);
    for (int i = 0; i < e->plan->nprograms; i++)
        for (int k = 0; k < e->plan->programs[i].n; k++) {
            Event *event = &e->plan->programs[i].events[k];
            const Op *op = event->op_ir;
            if (op->body)
                map_put(fused, e->kernel[op->group], event);
            else if (op_is(op, T_FOREIGN))
                map_put(foreign, emit_foreign_kernel(e->a, op), event);
            else if (!op_is(op, T_COLLECTIVE | T_COPY))
                library[op->kind] = true;
        }
    for (int k = 0; k < map_len(foreign); k++) {
        const Event *event = map_value(foreign, k);
        str_addf(e->out, "SC_CALLS(%s, %s)\n", map_key(foreign, k), op_info[event->op_ir->kind].name);
    }
    for (int k = 0; k < N_OPS; k++)
        if (library[k]) str_addf(e->out, "sc_kernel sc_k_%s;\n", op_info[k].name);
    for (int k = 0; k < map_len(fused); k++) {
        const Op *op = ((const Event *)map_value(fused, k))->op_ir;
        str_addf(e->out, "SC_FUSED(%s, %d, %d)\n", map_key(fused, k), op->nout, op->nin);
    }
    str_add(e->out, "\n");
}

void emit_step(Emit *e) {
    put_declarations(e);
    put_lists(e);
    for (int i = 0; i < e->plan->nprograms; i++) put_program(e, &e->plan->programs[i]);
}

const char *const *const *emit_statements(const Plan *p) {
    if (!p->graph) return NULL;
    Emit e = {.plan = p, .g = p->graph, .a = p->arena, .name = p->graph->name};
    emit_kernels(&e); /* names the fused kernels */
    const char *const **all = NEW_ARRAY(e.a, const char *const *, p->nprograms + 1);
    for (int i = 0; i < p->nprograms; i++) {
        const PlanProgram *program = &p->programs[i];
        const char **texts = NEW_ARRAY(e.a, const char *, program->n + 1);
        Text t = text_of(&e, program);
        for (int k = 0; k < program->n; k++) {
            Str text = {.arena = e.a};
            e.out = &text;
            put_waits_and_event(&t, &program->events[k]);
            texts[k] = text.s;
        }
        all[i] = texts;
    }
    return all;
}
