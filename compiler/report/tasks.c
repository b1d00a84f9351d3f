/* The kernels of a plan as tasks, a line each kind: what `sc_calibrate --tasks` times and finds algorithms for. Events
 * that differ in nothing that a kernel sees are one line with a count.
 * Relies on: plan.h, ir/ops.h. Relied on by: cli/calibrate.c.
 *
 * op | variant | key | flops | bytes | count | attributes | table | dtype:alignment:shape:stride:limit ... | events
 * attributes: the numbers of the kernel's struct in order, of an axis how many ranks it has, of a list all, with a
 * blank between two; tensors: all of them (results, operands, workspace), "-" where one is absent; `alignment` is log2
 * of bytes, at most 8; `limit` bounds the values of an index; where it is -N, they number documents of N tokens.
 * Variant and key are those of Cost: the line's first five fields make a point of a device profile. The events that are
 * such a kernel
 * ("micro:e6 micro:e19") stand there for bench/times.py, which knows how long each took. */
#include "../ir/ops.h"
#include "../ir/rules.h"
#include "report.h"

static void put_sizes(Str *s, const Value *v, const int64_t *sizes) {
    for (int d = 0; d < v->dims; d++) str_addf(s, "%s%lld", d ? "x" : "", (long long)sizes[d]);
    str_add(s, ":");
}

static void put_tensor(Str *s, const Plan *p, const Value *v, int64_t limit) {
    if (!v) {
        str_add(s, " -");
        return;
    }
    int storage = plan_storage(p, v);
    int64_t at = (storage >= 0 ? p->storages[storage].offset : 0) + v->offset * dtype_size(v->dtype);
    int alignment = 0;
    while (alignment < 8 && !(at >> alignment & 1)) alignment++;
    str_addf(s, " %d:%d:", (int)v->dtype, alignment);
    put_sizes(s, v, v->shape);
    put_sizes(s, v, v->stride);
    str_addf(s, "%lld", (long long)limit);
}

static void put_list(Str *s, const Numbers *l) {
    for (int k = 0; k < l->n; k++) str_addf(s, "%s%.9g", k ? " " : "", (double)l->at[k]);
}

/* Both ends of a line; between them stands the count. */
static void describe(const Plan *p, const Op *op, Str *head, Str *tail) {
    const OpInfo *info = &op_info[op->kind];
    Cost c = op_info[op->kind].cost ? op_info[op->kind].cost(op) : (Cost){0};
    str_addf(head, "%s|%s|", info->name, c.variant);
    for (int k = 0; k < c.nkey; k++) str_addf(head, "%s%.0f", k ? "," : "", c.key[k]);
    str_addf(head, "|%.0f|%.0f", c.flops, c.bytes);
    str_add(tail, "");
    const int64_t *i = op->i;
    const double *f = op->f;
    const char *comma = "";
    for (const Attribute *a = info->attributes; a->name; a++)
        for (int k = 0; k < a->n; k++) {
            bool real = a->type == A_FLOAT;
            double x = real ? *f++ : 0;
            int64_t n = real ? 0 : *i++;
            if (!a->kernel) continue;
            str_add(tail, comma);
            if (real)
                str_addf(tail, "%.9g", x);
            else if (a->type == A_NUMBERS)
                put_list(tail, n ? graph_numbers_at(p->graph, n) : &(Numbers){0});
            else
                str_addf(tail, "%lld", (long long)(a->type == A_AXIS ? p->axes[n]->size : n));
            comma = ",";
        }
    str_add(tail, "|");
    for (int k = 0; k < op->ntable; k++) str_addf(tail, "%s%lld", k ? "," : "", (long long)op->table[k]);
    str_add(tail, "|");
    for (int k = 0; k < op_slot_count(info->results); k++) put_tensor(tail, p, op->out[k], 0);
    for (int k = 0; k < op_slot_count(info->operands); k++) {
        int64_t tokens = rule_document_length(op, op->in[k]);
        put_tensor(tail, p, op->in[k], tokens ? -tokens : op_index_limit(op, k));
    }
    put_tensor(tail, p, op->workspace, 0);
}

/* A kernel of the library: neither generated, nor of the model's own, nor a collective, nor a copy between arenas, nor
 * on the host. */
static bool is_task(const Event *e) {
    const Op *op = e->op_ir;
    return op && !op->body && e->stream != HOST &&
           !(op_info[op->kind].traits & (T_COLLECTIVE | T_COPY | T_VIEW | T_FOREIGN));
}

typedef struct {
    const char *head, *tail;
    int count;
    Str events;
} Task;

void report_tasks(FILE *f, const Plan *p) {
    Map *seen = map_new(p->arena);
    for (int i = 0; i < p->nprograms; i++)
        for (int k = 0; k < p->programs[i].n; k++) {
            const Event *e = &p->programs[i].events[k];
            if (!is_task(e) || e->phase == INIT) continue;
            Str head = {.arena = p->arena}, tail = {.arena = p->arena};
            describe(p, e->op_ir, &head, &tail);
            const char *name = arena_printf(p->arena, "%s %s", head.s, tail.s);
            Task *t = map_get(seen, name);
            if (!t) map_put(seen, name, t = NEW(p->arena, Task));
            t->head = head.s, t->tail = tail.s, t->count++;
            t->events.arena = p->arena;
            str_addf(&t->events, "%s%s:%s", t->events.s ? " " : "", p->programs[i].name, e->id);
        }
    for (int i = 0; i < map_len(seen); i++) {
        const Task *t = map_value(seen, i);
        fprintf(f, "%s|%d|%s|%s\n", t->head, t->count, t->tail, t->events.s);
    }
}
