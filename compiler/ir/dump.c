/* A program as text, one line an op: what --dump-after prints.
 * Relies on: patterns.h (names of ops).
 * Relied on by: pipeline.c, people. */
#include "ops.h"
#include "patterns.h"

/* "%12 bf16[8,768]", for a view "%12 bf16[8,768] in %3+64 by [768,1]" */
static void put_value(FILE *f, Arena *a, const Value *v, bool as_result) {
    if (v->param)
        fprintf(f, "$%s", v->param->path);
    else if (v->state)
        fprintf(f, "@%s", v->state->name);
    else
        fprintf(f, "%%%d", v->id);
    fprintf(f, " %s", value_str(a, v));
    if (!as_result) return;
    if (v->base) {
        fprintf(f, " in %%%d+%lld", v->base->id, (long long)v->offset);
        for (int i = 0; i < v->dims; i++) fprintf(f, "%s%lld", i ? "," : " by [", (long long)v->stride[i]);
        if (v->dims) fputc(']', f);
    }
    if (v->saved) fputs(" saved", f);
    if (v->offload) fputs(" offload", f);
    if (v->on_host) fputs(" host", f);
    if (v->internal) fputs(" internal", f);
}

/* "a: %12 bf16[8,768], bias: $h.0.bias fp32[768]" */
static void put_values(FILE *f, Arena *a, const Slot *slots, Value *const *v, int n, bool as_results) {
    for (int i = 0, first = 1; i < n; i++) {
        int index;
        const Slot *s = op_slot_at(slots, i, &index);
        if (!v[i]) continue;
        fputs(first ? "" : ", ", f);
        if (s && !index) fprintf(f, "%s: ", s->name);
        put_value(f, a, v[i], as_results);
        first = 0;
    }
}

/* Those that are not 0, as "  trans_b 1  eps 1e-05". */
static void put_attributes(FILE *f, const Op *op) {
    const int64_t *i = op->i;
    const double *x = op->f;
    for (const Attribute *a = op_info[op->kind].attributes; a->name; a++) {
        bool real = a->type == A_FLOAT;
        int n = a->n;
        while (n && (real ? x[n - 1] == 0 : i[n - 1] == 0)) n--;
        for (int k = 0; k < n; k++) {
            fprintf(f, k ? "," : "  %s ", a->name);
            if (real)
                fprintf(f, "%g", x[k]);
            else if (a->type == A_FLAGS)
                for (int bit = 0, more = 0; i[k] >> bit; bit++) {
                    if (i[k] >> bit & 1) fprintf(f, more++ ? " | %s" : "%s", a->words[bit]);
                }
            else if (a->type == A_DTYPE || a->type == A_WIDER)
                fputs(dtype_name((Dtype)(i[k] - (a->type == A_WIDER))), f);
            else if (a->words)
                fputs(a->words[i[k]], f);
            else if (a->type == A_NUMBERS)
                fprintf(f, "list %lld", (long long)i[k]);
            else
                fprintf(f, "%lld", (long long)i[k]);
        }
        if (real)
            x += a->n;
        else
            i += a->n;
    }
    if (op->ntable) fprintf(f, "  table of %d", op->ntable);
    if (op->group >= 0) fprintf(f, "  group %d", op->group);
}

static void put_op(FILE *f, Arena *a, const Op *op, const char *indent) {
    fprintf(f, "%s%-10s %-8s %-9s ", indent, op->id ? op->id : "-", stream_name(op_stream(op)), phase_name(op->phase));
    put_values(f, a, op_info[op->kind].results, op->out, op->nout, true);
    fprintf(f, "%s%s(", op->nout ? " = " : "", op->body ? op_info[op->kind].name : op_label(a, op));
    put_values(f, a, op_info[op->kind].operands, op->in, op->nin, false);
    fputc(')', f);
    put_attributes(f, op);
    if (op->module && op->module->path && *op->module->path) fprintf(f, "  %s", op->module->path);
    if (op->src.file) fprintf(f, "  %s:%d", op->src.file, op->src.line);
    fputc('\n', f);
    for (int i = 0; i < op->nbody; i++) put_op(f, a, op->body[i], "    ");
}

void program_dump(FILE *f, const Graph *g, const Program *p) {
    Arena *a = arena_new();
    fprintf(f, "program %s: %d ops\n", p->name, p->ops.n);
    for (int i = 0; i < p->ops.n; i++) put_op(f, a, p->ops.at[i], "");
    if (p->loss) fprintf(f, "loss %%%d\n", p->loss->id);
    if (p->logits) fprintf(f, "logits %%%d\n", p->logits->id);
    arena_free(a);
}
