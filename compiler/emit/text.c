/* Prints names, literals, addresses and tensors as C.
 * Relies on: text.h; Value.storage and Storage.offset, set by order and place.
 * Relied on by: the rest of emit/. */
#include "text.h"
#include <ctype.h>
#include <math.h>

bool emits_cuda(const Emit *e) {
    return !strcmp(e->plan->target, "cuda");
}

const char *kernels_suffix(const Plan *p) {
    return strcmp(p->target, "cuda") ? "_kernels.c" : "_kernels.cu";
}

const char *c_name(Arena *a, const char *s) {
    char *out = arena_printf(a, "%s%s", isdigit((unsigned char)s[0]) ? "_" : "", s);
    for (char *p = out; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_') *p = '_';
    return out;
}

/* Octal escapes end after three digits, so no following character can be drawn in; "?" is escaped against trigraphs. */
const char *c_string(Arena *a, const char *s) {
    if (!s) return "NULL";
    char *out = arena_alloc(a, 4 * strlen(s) + 3), *p = out;
    *p++ = '"';
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\' || c == '?' || c < 32 || c == 127)
            p += sprintf(p, "\\%03o", c);
        else
            *p++ = (char)c;
    }
    *p++ = '"';
    return out;
}

const char *c_comment(Arena *a, const char *s) {
    char *out = arena_strdup(a, s ? s : "");
    for (char *p = out; *p; p++) {
        if ((p[0] == '*' && p[1] == '/') || (p[0] == '/' && p[1] == '*')) p[1] = ' ';
        if ((unsigned char)*p < 32) *p = ' ';
    }
    return out;
}

const char *c_float(Arena *a, double x) {
    if (isnan(x)) return "__builtin_nan(\"\")";
    if (isinf(x)) return x > 0 ? "__builtin_inf()" : "-__builtin_inf()";
    for (int digits = 6; digits <= 17; digits++) { /* the shortest that reads back as the same number */
        char *s = arena_printf(a, "%.*g", digits, x);
        double back;
        if (sscanf(s, "%lf", &back) == 1 && back == x) return strpbrk(s, ".en") ? s : arena_printf(a, "%s.0", s);
    }
    return arena_printf(a, "%.17g", x);
}

const char *c_int(Arena *a, int64_t x) {
    return x == INT64_MIN ? "INT64_MIN" : arena_printf(a, "%lld", (long long)x);
}

const char *c_dtype(Dtype d) {
    static const char *const names[N_DTYPES] = {"FP32",     "BF16",  "FP16",  "FP64", "FP8_E4M3",
                                                "FP8_E5M2", "INT32", "INT64", "BOOL"};
    return names[d];
}

const char *c_stream(Stream s) {
    static const char *const names[N_STREAMS] = {"COMPUTE", "GATHER", "REDUCE", "OFFLOAD", "FETCH", "HOST", "UPDATE"};
    return names[s];
}

static const Storage *storage_of(const Emit *e, const Value *v) {
    const Value *root = v->base ? v->base : v;
    if (root->storage < 0 || root->storage >= e->plan->nstorages)
        bug(root->def ? root->def->src : NOWHERE, "value %d of %s has no storage", root->id,
            root->def     ? root->def->id
            : root->state ? root->state->name
                          : "the model");
    return &e->plan->storages[root->storage];
}

uint64_t value_at(const Emit *e, const Value *v) {
    return (uint64_t)(storage_of(e, v)->offset + (v->base ? v->offset * dtype_size(v->dtype) : 0));
}

bool value_host(const Emit *e, const Value *v) {
    return storage_of(e, v)->arena == ARENA_HOST;
}

static const char *numbers(Arena *a, const int64_t *x, int n) {
    Str s = {.arena = a};
    str_add(&s, "");
    for (int i = 0; i < n; i++) str_addf(&s, "%s%lld", i ? ", " : "", (long long)x[i]);
    return s.s;
}

const char *c_tensor(const Emit *e, const Value *v) {
    bool host = value_host(e, v);
    unsigned long long at = value_at(e, v);
    const char *shape = numbers(e->a, v->shape, v->dims);
    if (value_contiguous(v))
        return arena_printf(e->a, "%s(%s, 0x%08llx%s%s)", host ? "H" : "T", c_dtype(v->dtype), at, v->dims ? ", " : "",
                            shape);
    return arena_printf(e->a, "%s(%s, 0x%08llx, %d, SHAPE(%s), STRIDE(%s))", host ? "VH" : "V", c_dtype(v->dtype), at,
                        v->dims, shape, numbers(e->a, v->stride, v->dims));
}

const char *c_bytes(const Emit *e, const Value *v) {
    return arena_printf(e->a, "BYTES(0x%08llx, %lld)", (unsigned long long)value_at(e, v), (long long)v->shape[0]);
}

const char *c_tensor_initializer(const Emit *e, const Value *v) {
    return arena_printf(e->a, "{0x%llx, %d, %s, %d, {%s}, {%s}, 0}", (unsigned long long)value_at(e, v),
                        value_host(e, v), c_dtype(v->dtype), v->dims, numbers(e->a, v->shape, v->dims),
                        numbers(e->a, v->stride, v->dims));
}

uint64_t event_written(const Op *op) {
    uint64_t mask = ((uint64_t)1 << op->nout) - 1;
    for (int k = 0; k < op->nin && op->phase != RECOMPUTE; k++) /* clones leave states alone */
        if (op_info[op->kind].updates >> k & 1) mask |= (uint64_t)1 << (op->nout + k);
    return mask;
}

char *join(Arena *a, const char *dir, const char *name, const char *suffix) {
    size_t n = dir ? strlen(dir) : 0;
    return arena_printf(a, "%s%s%s%s", n ? dir : ".", n && dir[n - 1] == '/' ? "" : "/", name, suffix);
}
