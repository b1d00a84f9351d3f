/* The IR's objects: graphs, values, views, ops, states, and the names of dtypes and phases.
 * Relies on: base.
 * Relied on by: everything in compiler/ above base. */
#include "ir.h"
#include "training.h"

static const struct {
    const char *name;
    int size;
    bool is_float;
} dtypes[N_DTYPES] = {
#define ROW(ID, NAME, BYTES, ST, FLOAT) [ID] = {NAME, BYTES, FLOAT},
    SC_DTYPES(ROW)
#undef ROW
};

int dtype_size(Dtype d) {
    return dtypes[d].size;
}
const char *dtype_name(Dtype d) {
    return dtypes[d].name;
}
bool dtype_float(Dtype d) {
    return dtypes[d].is_float;
}

bool dtype_parse(const char *s, Dtype *out) {
    for (int d = 0; d < N_DTYPES; d++)
        if (!strcmp(s, dtypes[d].name)) {
            *out = (Dtype)d;
            return true;
        }
    return false;
}

const char *phase_name(Phase p) {
    static const char *const names[N_PHASES] = {"forward", "recompute", "backward", "optimizer", "init"};
    return names[p];
}

/* ── values ──────────────────────────────────────────────────────────────────────────────────────────────────────── */
static int64_t product(int dims, const int64_t *shape) {
    int64_t n = 1;
    for (int i = 0; i < dims; i++) n *= shape[i];
    return n;
}

int64_t value_numel(const Value *v) {
    return product(v->dims, v->shape);
}

int64_t param_numel(const Param *p) {
    return product(p->dims, p->shape);
}

int64_t param_whole(const Param *p, int64_t shape[MAX_DIMS]) {
    memcpy(shape, p->shape, sizeof p->shape);
    if (p->split > 1) shape[0] *= p->split;
    return param_numel(p) * p->split;
}

int64_t value_bytes(const Value *v) {
    return value_numel(v) * dtype_size(v->dtype);
}

bool value_has_shape(const Value *v, int dims, const int64_t *shape) {
    return v->dims == dims && !memcmp(v->shape, shape, sizeof(int64_t) * (size_t)dims);
}

bool value_same_shape(const Value *a, const Value *b) {
    return value_has_shape(a, b->dims, b->shape);
}

bool value_contiguous(const Value *v) {
    int64_t n = 1;
    for (int i = v->dims - 1; i >= 0; i--) {
        if (v->shape[i] != 1 && v->stride[i] != n) return false;
        n *= v->shape[i];
    }
    return true;
}

/* The operand's dims are merged into runs within which elements are evenly spaced; each new dim must lie within one
 * run. Both are walked from the innermost dim outwards. */
bool value_reshape_strides(const Value *v, int dims, const int64_t *shape, int64_t *stride) {
    int64_t left = 1, step = 1; /* of the current run: elements not yet given away, and their spacing */
    int next = v->dims - 1;
    for (int i = dims - 1; i >= 0; i--) {
        if (shape[i] == 1) {
            stride[i] = step;
            continue;
        }
        if (left == 1) {
            while (next >= 0 && v->shape[next] == 1) next--;
            if (next < 0) return false;
            left = v->shape[next];
            step = v->stride[next];
            int64_t outer = step * left; /* the spacing that the next dim has if it continues the run */
            for (next--; next >= 0 && (v->shape[next] == 1 || v->stride[next] == outer); next--) {
                left *= v->shape[next];
                outer *= v->shape[next];
            }
        }
        if (left % shape[i]) return false;
        stride[i] = step;
        step *= shape[i];
        left /= shape[i];
    }
    return true;
}

const char *value_shape_str(Arena *a, int dims, const int64_t *shape) {
    Str s = {.arena = a};
    str_add(&s, "[");
    for (int i = 0; i < dims; i++) str_addf(&s, "%s%lld", i ? "," : "", (long long)shape[i]);
    str_add(&s, "]");
    return s.s;
}

const char *value_str(Arena *a, const Value *v) {
    return arena_printf(a, "%s%s", dtype_name(v->dtype), value_shape_str(a, v->dims, v->shape));
}

static Value *value_alloc(Graph *g) {
    Value *v = NEW(g->arena, Value);
    v->id = g->values.n;
    push(&g->values, g->arena, v);
    return v;
}

void value_lay_out(Value *v, Dtype d, int dims, const int64_t *shape) {
    int64_t n = 1;
    v->dtype = d;
    v->dims = dims;
    for (int i = dims - 1; i >= 0; i--) {
        v->shape[i] = shape[i];
        v->stride[i] = n;
        if (__builtin_mul_overflow(n, shape[i], &n)) n = INT64_MAX; /* build_op refuses the value */
    }
}

void value_lay_view(Value *v, Value *of, int dims, const int64_t *shape, const int64_t *stride, int64_t extra_offset) {
    v->dtype = of->dtype;
    v->dims = dims;
    for (int i = 0; i < dims; i++) v->shape[i] = shape[i], v->stride[i] = stride[i];
    v->base = of->base ? of->base : of;
    v->offset = of->offset + extra_offset;
}

Value *value_new(Graph *g, Dtype d, int dims, const int64_t *shape) {
    Value *v = value_alloc(g);
    value_lay_out(v, d, dims, shape);
    return v;
}

Value *value_new_view(Graph *g, Value *of, int dims, const int64_t *shape, const int64_t *stride,
                      int64_t extra_offset) {
    Value *v = value_alloc(g);
    value_lay_view(v, of, dims, shape, stride, extra_offset);
    return v;
}

/* ── the rest ────────────────────────────────────────────────────────────────────────────────────────────────────── */
Graph *graph_new(Arena *a) {
    Graph *g = NEW(a, Graph);
    g->arena = a;
    g->training = NEW(a, Training);
    g->world = g->nodes = g->training->accumulate = 1;
    g->deterministic = true;
    return g;
}

int64_t graph_numbers(Graph *g, const float *at, int n) {
    for (int i = 0; i < g->numbers.n; i++)
        if (g->numbers.at[i].n == n && !memcmp(g->numbers.at[i].at, at, sizeof *at * (size_t)n)) return i + 1;
    float *copy = NEW_ARRAY(g->arena, float, n);
    memcpy(copy, at, sizeof *at * (size_t)n);
    push(&g->numbers, g->arena, ((Numbers){copy, n}));
    return g->numbers.n;
}

Op *op_new(Graph *g, OpKind k) {
    Op *op = NEW(g->arena, Op);
    op->serial = op->made = g->nops++;
    op->kind = k;
    op->module = g->root;
    op->group = -1;
    return op;
}

Op *op_new_like(Graph *g, const Op *op) {
    Op *copy = NEW(g->arena, Op);
    *copy = *op;
    copy->serial = copy->made = g->nops++;
    return copy;
}

bool module_within(const Module *m, const Module *ancestor) {
    while (m && m != ancestor) m = m->parent;
    return m != NULL;
}

State *state_new(Graph *g, StateClass c, const char *name, Dtype d, int64_t numel, Unit *u) {
    State *s = NEW(g->arena, State);
    s->id = g->states.n;
    s->name = arena_strdup(g->arena, name);
    s->cls = c;
    s->dtype = d;
    s->numel = numel;
    s->unit = u;
    s->value = value_new(g, d, 1, &numel);
    s->value->state = s;
    s->value->name = s->name;
    push(&g->states, g->arena, s);
    return s;
}
