/* What a model computes with and no shape of its parameters shows: weights of another model load without a word where
 * only that differs, so a program that reads weights says it, and people compare it with the weights' config.json.
 * Relies on: ops.h.
 * Relied on by: frontend.c. */
#include "unproven.h"
#include "ops.h"

#include <math.h>
#include <string.h>

enum { MOST = 4 }; /* different values of one kind that are listed */

typedef struct {
    const char *name; /* "eps" */
    const char *values[MOST];
    int n; /* may be more */
} Fact;

static void add(Fact *f, const char *value) {
    for (int i = 0; i < f->n && i < MOST; i++)
        if (!strcmp(f->values[i], value)) return;
    if (f->n < MOST) f->values[f->n] = value;
    f->n++;
}

static const char *heads_of(Arena *a, const Op *op) {
    const Value *q = op->attention.q, *v = op->attention.v;
    long long n = q->shape[2], kv = v->shape[2], width = q->shape[3], values = v->shape[3];
    const char *s =
        n == kv ? arena_printf(a, "%lld of %lld", n, width) : arena_printf(a, "%lld/%lld of %lld", n, kv, width);
    return width == values ? s : arena_printf(a, "%s with values of %lld", s, values);
}

/* Positions before and after a query, as nn.attention has them; "full" beside layers that have a window. */
static const char *window_of(Arena *a, const Op *op) {
    int64_t before = op->attention.before, after = op->attention.causal ? 1 : op->attention.after;
    if (!before && (op->attention.causal || !after)) return "full";
    const char *left = before ? arena_printf(a, "%lld", (long long)before - 1) : "all";
    return arena_printf(a, "{ %s, %s }", left, after ? arena_printf(a, "%lld", (long long)after - 1) : "all");
}

/* "scaled by yarn 40 (low 1, high 32, original 4096)": what it says besides theta. Llama 3.1's has no name. */
static void add_scaling(Str *s, const Op *op) {
#define WORD(ID, NAME) NAME " ",
    static const char *const names[] = {SC_ROPE_SCALINGS(WORD)};
#undef WORD
    const double x[] = {op->rope.low, op->rope.high, op->rope.context};
    const char *const words[] = {"low", "high", "original"}, *separator = " (";
    str_addf(s, " scaled by %s%.9g", op->rope.scaling == SC_LLAMA3 ? "" : names[op->rope.scaling], op->rope.factor);
    for (int k = 0; k < 3; k++) {
        if (x[k] == 0) continue;
        str_addf(s, "%s%s %.9g", separator, words[k], x[k]);
        separator = ", ";
    }
    str_add(s, *separator == ',' ? ")" : "");
}

/* How many pairs turn by each row of positions, and whether the rows take turns. */
static void add_sections(Str *s, const float *row, int pairs) {
    for (int at = 0, n = 0; n < pairs; at++) {
        int count = 0;
        for (int k = 0; k < pairs; k++) count += row[k] == (float)at;
        str_addf(s, "%s%d", at ? " " : ", sections ", count);
        n += count;
    }
    for (int k = 1; k < pairs; k++)
        if (row[k] < row[k - 1]) return str_add(s, " in turns");
}

static const char *rope_of(Arena *a, const Graph *g, const Op *op) {
    Str s = {.arena = a};
    const Numbers *l = op->rope.frequencies ? graph_numbers_at(g, op->rope.frequencies) : NULL;
    long long head = op->rope.x->shape[3], width = op->rope.width ? op->rope.width : head;
    if (op->rope.theta > 0)
        str_addf(&s, "%.9g", op->rope.theta);
    else if (l)
        str_addf(&s, "of frequencies %g to %g", (double)l->at[0], (double)l->at[width / 2 - 1]);
    if (op->rope.factor != 0) add_scaling(&s, op);
    if (width < head) str_addf(&s, ", %lld of %lld elements", width, head);
    if (op->rope.interleaved) str_add(&s, ", interleaved");
    if (op->rope.scale != 0) str_addf(&s, ", times %.9g", op->rope.scale);
    if (l && l->n > width / 2) add_sections(&s, l->at + width / 2, (int)width / 2);
    return s.s;
}

/* Which way round a matrix lies, where it has one shape either way. */
static bool square(const Value *v) {
    return v->param && v->dims == 2 && v->shape[0] == v->shape[1];
}

const char *graph_unproven(const Graph *g, const Program *p) {
    Arena *a = g->arena;
    Fact heads = {.name = "heads"}, scale = {.name = "scale of attention"}, theta = {.name = "rope theta"};
    Fact eps = {.name = "eps"}, squares = {.name = "square matrices"}, window = {.name = "window"},
         cap = {.name = "softcap"}, bias = {.name = "bias of scores"};
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        switch (op->kind) {
        case OP_attention:
            add(&heads, heads_of(a, op));
            if (fabs(op->attention.scale * sqrt((double)op->attention.q->shape[3]) - 1) > 1e-6)
                add(&scale, arena_printf(a, "%.9g", op->attention.scale));
            add(&window, window_of(a, op));
            if (op->attention.bias) add(&bias, value_str(a, op->attention.bias));
            if (op->attention.softcap > 0) add(&cap, arena_printf(a, "%.9g", op->attention.softcap));
            break;
        case OP_rope: add(&theta, rope_of(a, g, op)); break;
        case OP_layer_norm: add(&eps, arena_printf(a, "%.9g", op->layer_norm.eps)); break;
        case OP_rms_norm: add(&eps, arena_printf(a, "%.9g", op->rms_norm.eps)); break;
        case OP_batch_norm: add(&eps, arena_printf(a, "%.9g", op->batch_norm.eps)); break;
        default: break;
        }
        if (op_is(op, T_PRODUCT) && square(OPERAND_OF(op, b)))
            add(&squares, INT_OF(op, trans_b) ? "[out,in]" : "[in,out]");
    }
    if (window.n == 1 && !strcmp(window.values[0], "full")) window.n = 0;
    const Fact *const all[] = {&heads, &scale, &window, &cap, &bias, &theta, &eps, &squares};
    Str s = {.arena = a};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        const Fact *f = all[k];
        if (f->n) str_addf(&s, "%s%s ", s.n ? ", " : "", f->name);
        for (int i = 0; i < f->n && i < MOST; i++) str_addf(&s, "%s%s", i ? " and " : "", f->values[i]);
        if (f->n > MOST) str_addf(&s, " and %d more", f->n - MOST);
    }
    return s.s;
}
