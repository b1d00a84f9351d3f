/* Stops a run at the first event whose result is not finite, with its Lua line and the range of every operand.
 * Relies on: rank.h, schema/math.h, schema/optimizers.h; the tensors' bytes, readable here.
 * Relied on by: the targets' debug.c. */
#include "../schema/math.h"
#include "../schema/optimizers.h"
#include "rank.h"
#include <stdio.h>
#include <string.h>

typedef struct {
    int64_t nans, infs, n;
    double low, high;       /* of the finite elements */
    int64_t first[SC_DIMS]; /* index of the first element that is not finite */
} range;

static double element(const sc_tensor *t, int64_t k) {
    switch (t->dtype) {
    case FP32: return ((const float *)t->p)[k];
    case FP64: return ((const double *)t->p)[k];
    case BF16: return (double)sc_from_bf16(((const sc_bf16_t *)t->p)[k]);
    case FP16: return (double)sc_from_fp16(((const sc_fp16_t *)t->p)[k]);
    case INT32: return ((const int32_t *)t->p)[k];
    case INT64: return (double)((const int64_t *)t->p)[k];
    case INT8: return ((const int8_t *)t->p)[k];
    default: return ((const uint8_t *)t->p)[k];
    }
}

bool sc_is_float(const sc_tensor *t) {
    return t->dtype == FP32 || t->dtype == BF16 || t->dtype == FP16 || t->dtype == FP64;
}

static range range_of(const sc_tensor *t) {
    range x = {.low = INFINITY, .high = -INFINITY, .n = sc_numel(t)};
    int64_t index[SC_DIMS] = {0}, at = 0;
    for (int64_t k = 0; k < x.n; k++) {
        double v = element(t, at);
        if (isfinite(v)) {
            if (v < x.low) x.low = v;
            if (v > x.high) x.high = v;
        } else {
            if (!x.nans && !x.infs) memcpy(x.first, index, sizeof index);
            if (isnan(v))
                x.nans++;
            else
                x.infs++;
        }
        for (int d = t->dims - 1; d >= 0; d--) {
            at += t->stride[d];
            if (++index[d] < t->shape[d]) break;
            at -= index[d] * t->stride[d];
            index[d] = 0;
        }
    }
    return x;
}

/* An infinity that comes from an operand or an attribute is intended, as in masks; a NaN never is. */
static bool infinity_meant(const sc_event_info *e, const sc_args *args, size_t size, int slots) {
    const sc_tensor *t = args->t;
    for (const char *p = (const char *)(t + slots); p < (const char *)args + size; p += sizeof(double)) {
        double f; /* or an address or an integer, whose bits are never those of an infinity */
        memcpy(&f, p, sizeof f);
        if (isinf(f)) return true;
    }
    for (int k = 0; k < slots; k++)
        if (t[k].p && !(e->written >> k & 1) && sc_is_float(&t[k]) && range_of(&t[k]).infs) return true;
    return false;
}

static int print_tensor(char *out, size_t n, const char *role, int k, const sc_tensor *t) {
    static const char *const names[] = SC_DTYPE_NAMES;
    int c = snprintf(out, n, "\n  %s %d: %s[", role, k, names[t->dtype]);
    for (int d = 0; d < t->dims && (size_t)c < n; d++)
        c += snprintf(out + c, n - (size_t)c, d ? ",%lld" : "%lld", (long long)t->shape[d]);
    range x = range_of(t);
    if ((size_t)c < n) c += snprintf(out + c, n - (size_t)c, "] from %g to %g", x.low, x.high);
    if ((x.nans || x.infs) && (size_t)c < n)
        c += snprintf(out + c, n - (size_t)c, ", %lld NaN, %lld infinite", (long long)x.nans, (long long)x.infs);
    return c;
}

static _Noreturn void report(sc_rank *r, const sc_event_info *e, int slots, const sc_tensor *t, int bad,
                             const range *x) {
    char text[3500], where[128] = "";
    int c = 0;
    for (int d = 0; d < t[bad].dims; d++)
        c += snprintf(where + c, sizeof where - (size_t)c, d ? ",%lld" : "%lld", (long long)x->first[d]);
    c = snprintf(text, sizeof text, "%s:%d: %s %s (%s %s) gave %s at [%s] on rank %d in step %lld, program %s",
                 e->file ? e->file : "shardc", e->line, e->id, e->op, e->phase,
                 e->module && e->module[0] ? e->module : "root", x->nans ? "NaN" : "infinity", where, r->rank,
                 (long long)r->step, r->b->programs[r->current].name);
    int results = 0, operands = 0;
    for (int k = 0; k < slots && (size_t)c < sizeof text - 256; k++) {
        bool result = e->written >> k & 1;
        if (!t[k].p || (t[k].dtype == BOOL && k == slots - 1)) continue; /* workspace, or a mask: no numbers to show */
        c += print_tensor(text + c, sizeof text - (size_t)c, result ? "result" : "operand",
                          result ? results++ : operands++, &t[k]);
    }
    sc_stop(r, 3, "%s", text);
}

void sc_check_finite(sc_rank *r, int event, const sc_args *args, size_t size, int slots) {
    const sc_tensor *t = args->t;
    const sc_event_info *e = &r->b->programs[r->current].events[event];
    /* Under a loss scale gradients that are not finite are its business: the step is skipped. What it lets the
     * optimizers write is looked at. */
    bool updates = sc_optimizer_of(e->op) != NULL;
    bool scaled = !strcmp(e->phase, "backward") || (!strcmp(e->phase, "optimizer") && !updates);
    if (r->b->has_scaler && scaled) return;
    for (int k = 0; k < slots; k++) {
        if (!t[k].p || !(e->written >> k & 1) || !sc_is_float(&t[k])) continue;
        range x = range_of(&t[k]);
        if (x.nans || (x.infs && !infinity_meant(e, args, size, slots))) report(r, e, slots, t, k, &x);
    }
}
