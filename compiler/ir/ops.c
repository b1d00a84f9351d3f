/* Turns the rows of ops.def into op_info[], with the names of results, operands and attributes, and answers what a row
 * says of an op. Relies on: schema/ops.def, the rules that it names. Relied on by: every pass, the front end, the
 * emitter. */
#include "rules.h"

/* ── names ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
#define RESULT(name, flags) {#name, flags, 0},
#define RESULTS(name, n) {#name, OPTIONAL, n},
#define OPERAND(name, flags)
#define OPERANDS(name, n)
#define OP(name, notation, results, ...) static const Slot name##_results[] = {results{NULL, 0, 0}};
#include "schema/ops.def"

#define RESULT(name, flags)
#define RESULTS(name, n)
#define OPERAND(name, flags) {#name, flags, 0},
#define OPERANDS(name, n) {#name, OPTIONAL, n},
#define OP(name, notation, results, operands, ...) static const Slot name##_operands[] = {operands{NULL, 0, 0}};
#include "schema/ops.def"

#define WORD(name, ...) #name,
static const char *const sc_epilogue_words[] = {SC_EPILOGUES(WORD) NULL},
                         *const sc_init_words[] = {SC_INITS(WORD) NULL},
                         *const sc_dtype_words[] = {SC_DTYPES(WORD) NULL},
                         *const sc_rope_scaling_words[] = {SC_ROPE_SCALINGS(WORD) NULL};
#define FLAG(name) {#name, A_FLAG, 1, true, NULL},
#define INT(name) {#name, A_INT, 1, true, NULL},
#define ENUM(name, type) {#name, A_INT, 1, true, type##_words},
#define FLAGS(name, type) {#name, A_FLAGS, 1, true, type##_words},
#define AXIS(name) {#name, A_AXIS, 1, true, NULL},
#define NUMBERS(name) {#name, A_NUMBERS, 1, true, NULL},
#define DTYPE(name) {#name, A_DTYPE, 1, false, NULL},
#define WIDER(name) {#name, A_WIDER, 1, false, NULL},
#define SIZES(dims, sizes) {#dims, A_INT, 1, false, NULL}, {#sizes, A_INT, SC_DIMS, false, NULL},
#define INTS(name, n) {#name, A_INT, n, false, NULL},
#define HINT(name) {#name, A_INT, 1, false, NULL},
#define HINT_FLAG(name) {#name, A_FLAG, 1, false, NULL},
#define FLOAT(name) {#name, A_FLOAT, 1, true, NULL},
#define FLOATS(name, n) {#name, A_FLOAT, n, true, NULL},
#define OP(name, notation, results, operands, integers, floats, ...)                                                   \
    static const Attribute name##_attributes[] = {integers floats{NULL, A_INT, 0, false, NULL}};
#include "schema/ops.def"

#define TRAITS(t) .traits = t,
#define INFER(f) .infer = f,
#define GRAD(f) .grad = f,
#define COST(f) .cost = f,
#define WORKSPACE(f) .workspace = f,
#define LIMIT(f) .limit = f,
#define EXPR(text) .expr = text,
#define TIMED_AS(op) .timed_as = OP_##op,
const OpInfo op_info[N_OPS] = {
#define OP(NAME, NOTATION, results_, operands_, integers_, floats_, ...)                                               \
    [OP_##NAME] = {.name = #NAME,                                                                                      \
                   .notation = NOTATION,                                                                               \
                   .results = NAME##_results,                                                                          \
                   .operands = NAME##_operands,                                                                        \
                   .attributes = NAME##_attributes,                                                                    \
                   __VA_ARGS__},
#include "schema/ops.def"
};

OpKind op_by_name(const char *name) {
    for (int k = 0; k < N_OPS; k++)
        if (!strcmp(op_info[k].name, name)) return (OpKind)k;
    return N_OPS;
}

/* ── slots ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
const Slot *op_slot_at(const Slot *slots, int k, int *index) {
    for (; slots->name; slots++) {
        int n = slots->n ? slots->n : 1;
        if (index) *index = k;
        if (k < n) return slots;
        k -= n;
    }
    return NULL;
}

int op_find(OpKind k, OpPart part, const char *name) {
    const OpInfo *info = &op_info[k];
    int at = 0;
    if (part == PART_RESULT || part == PART_OPERAND) {
        for (const Slot *s = part == PART_RESULT ? info->results : info->operands; s->name; at += s->n ? s->n : 1, s++)
            if (!strcmp(s->name, name)) return at;
    } else {
        for (const Attribute *a = info->attributes; a->name; a++) {
            if ((a->type == A_FLOAT) != (part == PART_FLOAT)) continue;
            if (!strcmp(a->name, name)) return at;
            at += a->n;
        }
    }
    return -1;
}

int op_place(OpKind k, OpPart part, const char *name) {
    static const char *const parts[] = {"result", "operand", "integer", "number"};
    int at = op_find(k, part, name);
    if (at < 0) bug((Source){0}, "%s has no %s %s", op_info[k].name, parts[part], name);
    return at;
}

int op_slot_count(const Slot *slots) {
    int n = 0;
    for (; slots->name; slots++) n += slots->n ? slots->n : 1;
    return n;
}

unsigned op_slot_flags(const Op *op, int operand) {
    const Slot *s = op_slot_at(op_info[op->kind].operands, operand, NULL);
    return s ? (unsigned)s->flags : 0;
}

bool op_updates_any(const Op *op) {
    for (const Slot *s = op_info[op->kind].operands; s->name; s++)
        if (s->flags & UPDATED) return true;
    return false;
}

int64_t op_index_limit(const Op *op, int operand) {
    return op->in[operand] && op_slot_flags(op, operand) & INDICES ? op_info[op->kind].limit(op) : 0;
}

bool op_lends(const Op *op, int operand) {
    unsigned flags = op_slot_flags(op, operand);
    return flags & LENDS || (flags & LENDS_OF_TWO && op->nout > 1);
}

/* Moves what both rows name. Returns the slots up to the last that is there. */
static int move_slots(const Slot *from, Value *const *was, const Slot *to, Value **now) {
    int n = 0, at = 0, old = 0;
    for (const Slot *s = to; s->name; at += s->n ? s->n : 1, s++) {
        const Slot *f = from;
        for (old = 0; f->name && strcmp(f->name, s->name); f++) old += f->n ? f->n : 1;
        for (int k = 0; f->name && k < (s->n ? s->n : 1) && k < (f->n ? f->n : 1); k++)
            if ((now[at + k] = was[old + k])) n = at + k + 1;
    }
    return n;
}

void op_turn(Op *op, OpKind k) {
    const OpInfo *from = &op_info[op->kind], *to = &op_info[k];
    OpParts was = op->parts;
    op->kind = k;
    op->parts = (OpParts){0};
    op->nout = move_slots(from->results, was.out, to->results, op->out);
    op->nin = move_slots(from->operands, was.in, to->operands, op->in);
}

void op_set(Op *op, int operand, Value *v) {
    op->in[operand] = v;
    if (op->nin <= operand) op->nin = operand + 1;
}

void op_set_result(Op *op, Value **result, Value *v) {
    int k = (int)(result - op->out);
    *result = v;
    v->def = op;
    if (op->nout <= k) op->nout = k + 1;
}

/* ── what an op is ───────────────────────────────────────────────────────────────────────────────────────────────── */
void build_set_dtype(Op *op, Dtype d) {
    int64_t *i = op->i;
    const Attribute *a = op_info[op->kind].attributes;
    while (a->name && a->type != A_WIDER) i += a++->n;
    if (!a->name) bug(op->src, "%s cannot choose its result's dtype", op_info[op->kind].name);
    *i = (int64_t)d + 1;
    for (int k = 0; k < op->nout; k++) op->out[k]->dtype = d;
}

bool op_needs_copy(const Op *op) {
    int64_t stride[MAX_DIMS];
    return op->kind == OP_reshape &&
           !value_reshape_strides(op->reshape.a, (int)op->reshape.dims, op->reshape.shape, stride);
}

bool op_changes_nothing(const Op *op) {
    return op->kind == OP_cast && op->cast.a->dtype == op->cast.y->dtype;
}
