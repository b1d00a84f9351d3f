/* Generated kernels: one C function (or CUDA kernel) per fused group, a loop over the group's iteration space with each
 * member op's expression from ops.def. Every IR value is rounded to its dtype where the member stands, so that fusing
 * changes no bit. Relies on: text.h; runtime/sc_pointwise.h (rows of the iteration space), runtime/schema/math.h
 * (functions of expressions). Relied on by: emit.c. */
#include "../ir/ops.h"
#include "text.h"
#include <ctype.h>

/* ── names of a group's values ───────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    Emit *e;
    const Op *op;
    const Value **values; /* values with a C name */
    const char **names;
    int n;
    bool cuda;
    int width;         /* of its own name, which stands in the code as "@" */
    Str *code, *notes; /* code decides whether two groups are the same; notes are comments, a line of code each */
} Kernel;

static const char *dtype_of(const Value *v) {
    return dtype_name(v->dtype);
}

static bool is_integer(Dtype d) {
    return d == INT32 || d == INT64;
}

static void name_value(Kernel *k, const Value *v, const char *name) {
    k->values[k->n] = v;
    k->names[k->n++] = name;
}

/* An operand may also be a plain reshape of a member's result, which has no bytes of its own. */
static const char *find_name(const Kernel *k, const Value *v) {
    for (int i = k->n - 1; i >= 0; i--)
        if (k->values[i] == v) return k->names[i];
    if (v->base && v->offset == 0 && value_contiguous(v) && value_numel(v) == value_numel(v->base))
        return find_name(k, v->base);
    return NULL;
}

static const Value *known_value(const Kernel *k, const Value *v) {
    for (int i = 0; i < k->n; i++)
        if (k->values[i] == v) return v;
    return v->base;
}

static void check_dtype(const Kernel *k, const Value *v) {
    if (v->dtype == FP8_E4M3 || v->dtype == FP8_E5M2)
        bug(k->op->src, "%s values are not computed with", dtype_name(v->dtype));
}

/* ── one member: its expression with operands and constants put in ───────────────────────────────────────────────── */
/* The word is the name of an operand or of an attribute: what stands for it. Integers are computed with in double
 * (exact, and no division traps), everything else in real. */
static bool add_named(Kernel *k, Str *out, const Op *m, const char *word, int n, bool integers) {
    const OpInfo *info = &op_info[m->kind];
    const char *type = integers ? "double" : "real";
    for (int i = 0; i < m->nin; i++) {
        const char *name = op_slot_at(info->operands, i, NULL)->name;
        if (strncmp(name, word, (size_t)n) || name[n]) continue;
        const char *operand = find_name(k, m->in[i]);
        if (!operand) bug(k->op->src, "an operand without a name in the fused group of %s", k->op->id);
        if (is_integer(known_value(k, m->in[i])->dtype)) str_addf(out, "(%s)", type);
        str_add(out, operand);
        return true;
    }
    const double *x = m->f;
    for (const Attribute *a = info->attributes; a->name; a++) {
        if (a->type != A_FLOAT) continue;
        if (!strncmp(a->name, word, (size_t)n) && !a->name[n]) {
            const char *s = c_float(k->e->a, *x);
            str_addf(out, *s == '-' ? "(%s)(%s)" : "(%s)%s", type, s);
            return true;
        }
        x += a->n;
    }
    return false;
}

static const char *expression(Kernel *k, const Op *m) {
    bool integers = m->nin > 0;
    for (int i = 0; i < m->nin; i++) integers &= is_integer(m->in[i]->dtype) || m->in[i]->dtype == BOOL;
    Str out = {.arena = k->e->a};
    str_add(&out, "");
    for (const char *p = op_info[m->kind].expr; *p;) {
        int n = 0;
        while (isalnum((unsigned char)p[n]) || p[n] == '_') n++;
        if (!n)
            str_bytes(&out, p, 1);
        else if (!add_named(k, &out, m, p, n, integers))
            str_bytes(&out, p, (size_t)n);
        p += n ? n : 1;
    }
    return out.s;
}

static void put_line(Kernel *k, const char *code, const char *note) {
    str_addf(k->code, "%s\n", code);
    str_addf(k->notes, "%s\n", note);
}

static void put_member(Kernel *k, const Op *m, int index) {
    const Value *v = op_result(m);
    if (op_is(m, T_VIEW)) return; /* a reshape: find_name looks through it */
    if (!op_info[m->kind].expr || m->nout != 1)
        bug(m->src, "'%s', which has no expression, in the fused group of %s", op_info[m->kind].name, k->op->id);
    check_dtype(k, v);
    const char *name = arena_printf(k->e->a, "v%d", index), *note = op_info[m->kind].name;
    if (m->src.file)
        note = arena_printf(k->e->a, "%s  %s:%d", note, c_comment(k->e->a, basename(m->src.file)), m->src.line);
    put_line(k,
             arena_printf(k->e->a, "        const %s %s = as_%s(%s);", is_integer(v->dtype) ? "int64_t" : "real", name,
                          dtype_of(v), expression(k, m)),
             note);
    name_value(k, v, name);
}

/* ── a group ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
static int64_t inner_stride(const Value *v) { /* of the last dimension that has extent; -1: known at run time only */
    for (int d = v->dims - 1; d >= 0; d--)
        if (v->shape[d] > 1) return v->stride[d] == 0 || v->stride[d] == 1 ? v->stride[d] : -1;
    return 1;
}

/* All tensors have the result's shape, or all are contiguous and equally long. */
static void check_shapes(const Op *op) {
    bool same = true, flat = true;
    const Value *first = op->nout ? op_result(op) : *op->in;
    for (int i = 0; i < op->nout + op->nin; i++) {
        const Value *v = i < op->nout ? op->out[i] : op->in[i - op->nout];
        same &= v->dims == first->dims && !memcmp(v->shape, first->shape, sizeof *v->shape * (size_t)first->dims);
        flat &= value_contiguous(v) && value_numel(v) == value_numel(first);
    }
    if (!same && !flat) bug(op->src, "tensors of different shapes in the fused group of %s", op->id);
}

static const Value *tensor(const Op *op, int i) {
    return i < op->nout ? op->out[i] : op->in[i - op->nout];
}

/* A call or a head with its list of arguments, broken between pairs where a line would get too long. */
typedef struct {
    Str text;
    int column, indent;
} List;

static void list_add(List *l, const char *piece) {
    bool breaks = l->column + (int)strlen(piece) + 4 > 118, first = l->text.s[strlen(l->text.s) - 1] == '(';
    str_addf(&l->text, "%s%s%*s%s", first ? "" : ",",
             breaks  ? "\n"
             : first ? ""
                     : " ",
             breaks ? l->indent : 0, "", piece);
    l->column = (breaks ? l->indent : l->column + 2) + (int)strlen(piece);
}

static void list_end(Kernel *k, List *l, const char *end) {
    str_add(&l->text, end);
    for (const char *p = l->text.s; *p; p++)
        if (*p == '\n') str_add(k->notes, "\n"); /* a note a line */
    put_line(k, l->text.s, "");
}

/* One row of the iteration space on the CPU, one element on a GPU. */
static void put_signature(Kernel *k) {
    const Op *op = k->op;
    Arena *a = k->e->a;
    List l = {.text = {.arena = a}, .column = k->cuda ? 60 : 65 + k->width, .indent = k->cuda ? 12 : 8};
    if (k->cuda) put_line(k, "struct group_@ {", "");
    str_add(&l.text, k->cuda ? "    static __device__ __forceinline__ void element("
                             : "static inline __attribute__((always_inline)) void row_@(int64_t n");
    for (int i = 0; i < op->nout + op->nin; i++) {
        bool result = i < op->nout;
        const char *name = result ? "y" : "x", *t = dtype_of(tensor(op, i));
        int n = result ? i : i - op->nout;
        if (k->cuda)
            list_add(&l, arena_printf(a, "sc_%s_t %s%s%d", t, result ? "&" : "", name, n));
        else
            list_add(&l,
                     arena_printf(a, "%ssc_%s_t *%s%d, int64_t s%s%d", result ? "" : "const ", t, name, n, name, n));
    }
    list_end(k, &l, ") {");
    if (k->cuda) return;
    put_line(k, "#pragma GCC ivdep", ""); /* a result may share its operand's bytes, element by element */
    put_line(k, "    for (int64_t i = 0; i < n; i++) {", "");
}

static const char *element(Kernel *k, const char *what, int i) {
    return arena_printf(k->e->a, k->cuda ? "%s%d" : "%s%d[i * s%s%d]", what, i, what, i);
}

static void put_body(Kernel *k) {
    const Op *op = k->op;
    Arena *a = k->e->a;
    for (int i = 0; i < op->nin; i++) {
        check_dtype(k, op->in[i]);
        const char *name = arena_printf(a, "a%d", i), *t = dtype_of(op->in[i]), *x = element(k, "x", i);
        if (is_integer(op->in[i]->dtype))
            put_line(k, arena_printf(a, "        const int64_t a%d = %s;", i, x), "");
        else
            put_line(k, arena_printf(a, "        const real a%d = sc_from_%s(%s);", i, t, x), "");
        name_value(k, op->in[i], name);
    }
    for (int i = 0; i < op->nbody; i++) put_member(k, op->body[i], i);
    for (int i = 0; i < op->nout; i++) {
        const Value *v = op->out[i];
        const char *name = find_name(k, v), *y = element(k, "y", i);
        if (!name) bug(op->src, "a result that no member of the fused group of %s makes", op->id);
        if (is_integer(v->dtype))
            put_line(k, arena_printf(a, "        %s = (sc_%s_t)%s;", y, dtype_of(v), name), "");
        else
            put_line(k, arena_printf(a, "        %s = sc_to_%s(%s);", y, dtype_of(v), name), "");
    }
    put_line(k, "    }", "");
    put_line(k, k->cuda ? "};" : "}\n", k->cuda ? "" : "\n");
}

/* On a GPU: pointwise.cuh does the rest, given the types of results and operands. */
static void put_launch(Kernel *k) {
    const Op *op = k->op;
    List l = {.text = {.arena = k->e->a}, .column = 32 + k->width, .indent = 8};
    str_addf(&l.text, "    sc_pointwise<group_@, %d", op->nout);
    for (int i = 0; i < op->nout + op->nin; i++)
        list_add(&l, arena_printf(k->e->a, "sc_%s_t", dtype_of(tensor(op, i))));
    put_line(k, "extern \"C\" void sc_k_fused_@(const sc_task *t) {", "");
    list_end(k, &l, ">(t);");
    put_line(k, "}", "");
}

static void put_call(Kernel *k, bool constant) {
    const Op *op = k->op;
    List l = {.text = {.arena = k->e->a}, .column = 21 + k->width, .indent = 16};
    str_add(&l.text, "            row_@(w.n");
    for (int i = 0; i < op->nout + op->nin; i++) {
        int64_t stride = inner_stride(tensor(op, i));
        if (constant && stride >= 0)
            list_add(&l, arena_printf(k->e->a, "w.at[%d], %lld", i, (long long)stride));
        else
            list_add(&l, arena_printf(k->e->a, "w.at[%d], w.stride[%d]", i, i));
    }
    list_end(k, &l, ");");
}

/* Strides known here are constants in one copy of the loop, which the compiler vectorises; the other copy takes any. */
static void put_entry(Kernel *k) {
    const Op *op = k->op;
    char pattern[2 * MAX_IN + 1] = "";
    for (int i = 0; i < op->nout + op->nin; i++) {
        int64_t stride = inner_stride(tensor(op, i));
        pattern[i] = stride < 0 ? '?' : (char)('0' + stride);
    }
    put_line(k, "void sc_k_fused_@(const sc_task *t) {", "");
    put_line(k, "    sc_rows w;", "");
    put_line(k, "    for (sc_rows_begin(&w, t); w.n; sc_rows_next(&w)) {", "");
    put_line(k, arena_printf(k->e->a, "        if (sc_rows_step(&w, \"%s\"))", pattern), "");
    put_call(k, true);
    put_line(k, "        else", "");
    put_call(k, false);
    put_line(k, "    }", "");
    put_line(k, "}", "");
}

/* ── text of the file ────────────────────────────────────────────────────────────────────────────────────────────── */
/* Code and notes side by side; lines that go on (", ...") are joined, "@" becomes the kernel's name. */
static void print_kernel(Str *out, const Kernel *k, const char *name) {
    const char *c = k->code->s, *n = k->notes->s;
    while (*c) {
        const char *cend = strchr(c, '\n'), *nend = strchr(n, '\n');
        for (const char *p = c; p < cend; p++) {
            if (*p == '@')
                str_add(out, name);
            else
                str_addf(out, "%c", *p);
        }
        if (nend > n) str_addf(out, " /* %.*s */", (int)(nend - n), n);
        str_add(out, "\n");
        c = cend + 1;
        n = nend + 1;
    }
    str_add(out, "\n");
}

/* What the group computes, in a word: "relu_grad", "mul_add_cast_bf16", "mul_add_exp_sub_and_3_more". */
static const char *computes(Arena *a, const Op *op) {
    Str s = {.arena = a};
    int n = 0, members = 0;
    for (int i = 0; i < op->nbody; i++) members += !op_is(op->body[i], T_VIEW);
    int named = members > 5 ? 4 : members;
    for (int i = 0; i < op->nbody && n < named; i++) {
        const Op *m = op->body[i];
        if (op_is(m, T_VIEW)) continue;
        str_addf(&s, "%s%s", n++ ? "_" : "", op_info[m->kind].name);
        for (const Attribute *x = op_info[m->kind].attributes; x->name; x++)
            if (x->type == A_DTYPE) str_addf(&s, "_%s", dtype_of(op_result(m)));
    }
    if (members > named) str_addf(&s, "_and_%d_more", members - named);
    return s.s;
}

/* Groups of equal code have one kernel, with the name of the first; "add_2" where other code has that name. */
static void take_group(Emit *e, const Op *op, Str *out, Map *seen, Map *taken) {
    if (op->group < 0 || op->group >= e->g->ngroups) bug(op->src, "%s has a group number out of range", op->id);
    if (e->kernel[op->group]) return;
    Str code = {.arena = e->a}, notes = {.arena = e->a};
    int most = op->nin + op->nbody + 1;
    const char *like = computes(e->a, op), *name = like;
    Kernel k = {.e = e, .op = op, .cuda = emit_is_cuda(e), .code = &code, .notes = &notes, .width = (int)strlen(like)};
    k.values = NEW_ARRAY(e->a, const Value *, most);
    k.names = NEW_ARRAY(e->a, const char *, most);
    check_shapes(op);
    put_signature(&k);
    put_body(&k);
    (k.cuda ? put_launch : put_entry)(&k);
    const char **first = map_get(seen, code.s);
    if (first) {
        e->kernel[op->group] = *first;
        return;
    }
    for (int i = 2; map_get(taken, name); i++) name = arena_printf(e->a, "%s_%d", like, i);
    map_put(taken, name, e);
    e->kernel[op->group] = name;
    map_put(seen, code.s, &e->kernel[op->group]);
    str_addf(out, "/* %s · %s", c_comment(e->a, op->module->path[0] ? op->module->path : e->g->name),
             phase_name(op->phase));
    if (op->src.file) str_addf(out, " · %s:%d", c_comment(e->a, op->src.file), op->src.line);
    str_add(out, " */\n");
    print_kernel(out, &k, name);
}

const char *emit_kernels(Emit *e) {
    Str out = {.arena = e->a};
    Map *seen = map_new(e->a), *taken = map_new(e->a);
    e->kernel = NEW_ARRAY(e->a, const char *, e->g->ngroups + 1);
    str_addf(&out, "/* Pointwise kernels of %s, one a fused group. " WRITTEN "\n", c_comment(e->a, e->name));
    str_add(&out, " * Each value is rounded to its dtype where its op stands in the model: as_bf16(x) is x in bf16.\n"
                  " * Relies on: runtime/sc_pointwise.h, runtime/schema/math.h. */\n");
    str_add(&out, "#include \"sc.h\"\n#include \"schema/math.h\"\n#include \"sc_pointwise.h\"\n");
    str_add(&out, emit_is_cuda(e) ? "#include \"cuda/pointwise.cuh\"\n\n" : "\n");
    str_addf(&out,
             "extern const char sc_build_mark[];\nconst char sc_build_mark[] = \"%s\"; "
             "/* what a build is known by */\n\n",
             emit_binary_mark(e->a));
    for (int p = 0; p < e->plan->nprograms; p++)
        for (int i = 0; i < e->plan->programs[p].n; i++) {
            const Op *op = e->plan->programs[p].events[i].op_ir;
            if (op->body) take_group(e, op, &out, seen, taken);
        }
    return out.s;
}
