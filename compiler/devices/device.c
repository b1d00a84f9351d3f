/* Device profiles: Lua tables, built in (devices/<name>.lua) or in a file of the user's.
 * Relies on: the sandbox, the texts embedded by lua/embed.c.
 * Relied on by: cli/, the tests. */
#include "device.h"

#include "../lua/embed.h"
#include "../sandbox/sandbox.h"

#include <math.h>

typedef struct {
    const char *key;
    size_t at;
    bool required;
} Field;
#define FIELD(name, required)                                                                                          \
    { #name, offsetof(Device, name), required }

static const Field numbers[] = {
    FIELD(memory_bytes, false),    FIELD(usable_bytes, false),      FIELD(matmul_efficiency, false),
    FIELD(clock_mhz, false),       FIELD(step_mhz, false),          FIELD(memory_bandwidth, false),
    FIELD(sheet_bandwidth, false), FIELD(kernels_off, false),       FIELD(network_off, false),
    FIELD(fp8_off, false),         FIELD(link_bandwidth, true),     FIELD(network_bandwidth, true),
    FIELD(link_latency_us, true),  FIELD(network_latency_us, true), FIELD(host_bandwidth, true),
    FIELD(launch_us, true),        FIELD(product_us, false),        FIELD(host_optimizer_bandwidth, true),
    FIELD(host_reads, false),      FIELD(host_writes, false),       FIELD(host_both, false),
};
static const Field strings[] = {FIELD(name, true),       FIELD(target, true), FIELD(source, true),
                                FIELD(arch, false),      FIELD(like, false),  FIELD(flops_source, false),
                                FIELD(fp8_source, false)};
static const Field integers[] = {FIELD(ranks_per_node, false), FIELD(threads, false), FIELD(multiprocessors, false)};
static const Device *device_read(Arena *a, const char *file, const char *text, size_t size);
#define COUNT(a) ((int)(sizeof(a) / sizeof(a)[0]))

typedef struct {
    lua_State *L;
    Arena *a;
    const char *file; /* for messages */
    Device *d;
} Reader;

/* At the line where `key` stands, or at the first. */
#define bad(r, key, ...) fail(sandbox_key_source((r)->L, (Source){(r)->file, 1}, key), __VA_ARGS__)

static const char *text_field(Reader *r, const char *key, bool required) { /* of the table on top */
    lua_getfield(r->L, -1, key);
    if (lua_isnil(r->L, -1) && !required) {
        lua_pop(r->L, 1);
        return NULL;
    }
    if (lua_type(r->L, -1) != LUA_TSTRING)
        bad(r, key, "device profile: `%s` must be a string; add %s = \"...\"", key, key);
    const char *s = arena_strdup(r->a, lua_tostring(r->L, -1));
    lua_pop(r->L, 1);
    return s;
}

static double number_field(Reader *r, const char *key, bool required) {
    lua_getfield(r->L, -1, key);
    if (lua_isnil(r->L, -1) && !required) {
        lua_pop(r->L, 1);
        return 0;
    }
    double x = lua_type(r->L, -1) == LUA_TNUMBER ? lua_tonumber(r->L, -1) : -1;
    if (!(x >= 0 && x < 1e18))
        bad(r, key,
            "device profile: `%s` must be a number, not negative: in bytes, bytes a second, or us where the name ends "
            "in _us",
            key);
    if (required && x == 0) bad(r, key, "device profile: `%s` must not be 0", key);
    lua_pop(r->L, 1);
    return x;
}

static int integer_field(Reader *r, const char *key) { /* 0 where it is not stated */
    enum { MOST = 1 << 20 };
    int whole = 1;
    lua_Integer n = lua_getfield(r->L, -1, key) == LUA_TNIL ? 0 : lua_tointegerx(r->L, -1, &whole);
    if (!whole || n < 0 || n > MOST) bad(r, key, "device profile: `%s` must be a whole number from 0 to %d", key, MOST);
    lua_pop(r->L, 1);
    return (int)n;
}

static void read_fields(Reader *r) {
    for (int i = 0; i < COUNT(strings); i++)
        *(const char **)((char *)r->d + strings[i].at) = text_field(r, strings[i].key, strings[i].required);
    for (int i = 0; i < COUNT(numbers); i++)
        *(double *)((char *)r->d + numbers[i].at) = number_field(r, numbers[i].key, numbers[i].required && !r->d->like);
    for (int i = 0; i < COUNT(integers); i++)
        *(int *)((char *)r->d + integers[i].at) = integer_field(r, integers[i].key);
    if (r->d->product_us <= 0) r->d->product_us = r->d->launch_us;
    if (!r->d->multiprocessors) r->d->multiprocessors = 132;
    if (strcmp(r->d->target, "cpu") && strcmp(r->d->target, "cuda"))
        bad(r, "target", "device profile: target \"%s\"; write \"cpu\" or \"cuda\"", r->d->target);
}

static void read_flops(Reader *r) {
    if (lua_getfield(r->L, -1, "flops") != LUA_TTABLE)
        bad(r, "flops", "device profile: `flops` must be a table: flops = { fp32 = 67e12 }");
    lua_pushnil(r->L);
    while (lua_next(r->L, -2)) {
        Dtype t;
        if (lua_type(r->L, -2) != LUA_TSTRING || !dtype_parse(lua_tostring(r->L, -2), &t))
            bad(r, "flops", "device profile: `flops` has a key that is no dtype; use fp32, bf16, fp16, ...");
        double x = lua_type(r->L, -1) == LUA_TNUMBER ? lua_tonumber(r->L, -1) : 0;
        if (!(x > 0)) bad(r, dtype_name(t), "device profile: flops.%s must be a positive number", dtype_name(t));
        r->d->flops[t] = x;
        lua_pop(r->L, 1);
    }
    lua_pop(r->L, 1);
    if (r->d->flops[FP8_E5M2] <= 0)
        r->d->flops[FP8_E5M2] = r->d->flops[FP8_E4M3]; /* no GPU has one without the other */
    if (r->d->flops[FP32] <= 0) bad(r, "flops", "device profile: `flops` must have fp32");
}

/* ops = { "attention", ... } of the line on top */
static void read_line_ops(Reader *r, DeviceLine *l) {
    int type = lua_getfield(r->L, -1, "ops");
    int n = type == LUA_TTABLE ? (int)lua_rawlen(r->L, -1) : type == LUA_TNIL ? 0 : -1;
    if (n < 0 || n > COUNT(l->ops))
        bad(r, "ops", "device profile: `ops` of a library line must be a list of at most %d names", COUNT(l->ops));
    for (int i = 0; i < n; i++) {
        lua_geti(r->L, -1, i + 1);
        const char *name = lua_type(r->L, -1) == LUA_TSTRING ? lua_tostring(r->L, -1) : "?";
        l->ops[l->nops++] = op_by_name(name);
        if (op_by_name(name) == N_OPS) bad(r, "ops", "device profile: `ops`: there is no op \"%s\"", name);
        lua_pop(r->L, 1);
    }
    lua_pop(r->L, 1);
}

static void refuse_unknown_in_line(Reader *r) {
    static const char *const known[] = {"name",  "bytes",           "tolerance",    "source", "per_event",
                                        "ranks", "further_gathers", "further_sums", "ops"};
    lua_pushnil(r->L);
    while (lua_next(r->L, -2)) {
        const char *key = lua_type(r->L, -2) == LUA_TSTRING ? lua_tostring(r->L, -2) : "(a number)";
        bool found = false;
        for (int i = 0; i < COUNT(known); i++) found |= !strcmp(key, known[i]);
        if (!found)
            bad(r, key,
                "device profile: a library line has no key `%s`; it has name, bytes, per_event, tolerance, "
                "source, ranks, further_gathers, further_sums, ops",
                key);
        lua_pop(r->L, 1);
    }
}

static void read_library(Reader *r) {
    int type = lua_getfield(r->L, -1, "library");
    if (type != LUA_TTABLE && type != LUA_TNIL) bad(r, "library", "device profile: `library` must be a list of tables");
    int n = type == LUA_TTABLE ? (int)lua_rawlen(r->L, -1) : 0;
    if (n > COUNT(r->d->library))
        bad(r, "library", "device profile: `library` has %d lines, at most %d fit", n, COUNT(r->d->library));
    for (int i = 0; i < n; i++) {
        DeviceLine *l = &r->d->library[i];
        if (lua_geti(r->L, -1, i + 1) != LUA_TTABLE)
            bad(r, "library", "device profile: library[%d] must be a table", i + 1);
        refuse_unknown_in_line(r);
        l->line = (LibraryLine){.name = text_field(r, "name", true),
                                .bytes = number_field(r, "bytes", false),
                                .tolerance = number_field(r, "tolerance", false),
                                .source = text_field(r, "source", true)};
        l->per_event = number_field(r, "per_event", false);
        l->ranks = (int)number_field(r, "ranks", false);
        l->further_gathers = number_field(r, "further_gathers", false);
        l->further_sums = number_field(r, "further_sums", false);
        read_line_ops(r, l);
        lua_pop(r->L, 1);
    }
    r->d->nlibrary = n;
    lua_pop(r->L, 1);
}

/* ── what was measured ───────────────────────────────────────────────────────────────────────────────────────────────
 */
/* A point: variant (where there is one), bytes, us; or variant, flops, bytes, sizes..., us. */
typedef struct {
    const char *variant;
    int nkey;
    Point point;
} Read;

static Read read_point(Reader *r, const char *op, int index) { /* of the table on top */
    Read p = {.variant = ""};
    double x[MAX_KEY + 3];
    int n = lua_type(r->L, -1) == LUA_TTABLE ? (int)lua_rawlen(r->L, -1) : 0, first = 1;
    if (n && lua_geti(r->L, -1, 1) == LUA_TSTRING) {
        p.variant = arena_strdup(r->a, lua_tostring(r->L, -1));
        first = 2;
    }
    if (n) lua_pop(r->L, 1);
    int count = n - first + 1;
    if (count != 2 && (count < 4 || count > MAX_KEY + 3))
        bad(r, op,
            "device profile: kernels.%s[%d] must be { bytes, us } or { flops, bytes, sizes..., us }, with a string "
            "before them where there are variants",
            op, index);
    for (int i = 0; i < count; i++) {
        lua_geti(r->L, -1, first + i);
        x[i] = lua_type(r->L, -1) == LUA_TNUMBER ? lua_tonumber(r->L, -1) : -1;
        lua_pop(r->L, 1);
        if (!(x[i] >= 0 && x[i] < 1e18) || (i == count - 1 && x[i] == 0))
            bad(r, op, "device profile: kernels.%s[%d]: numbers must not be negative, and the time positive", op,
                index);
    }
    p.nkey = count == 2 ? 0 : count - 3;
    p.point =
        count == 2 ? (Point){.bytes = x[0], .us = x[1]} : (Point){.flops = x[0], .bytes = x[1], .us = x[count - 1]};
    for (int k = 0; k < p.nkey; k++) p.point.key[k] = log2(x[k + 2] > 1 ? x[k + 2] : 1);
    return p;
}

static void add_point(Reader *r, const Measured **list, const char *op, const Read *p, int room) {
    Measured *m = (Measured *)*list;
    while (m && strcmp(m->variant, p->variant)) m = (Measured *)m->next;
    if (!m) {
        m = NEW(r->a, Measured);
        *m = (Measured){p->variant, p->nkey, NEW_ARRAY(r->a, Point, room), 0, NEW_ARRAY(r->a, Told, N_TOLD), *list};
        *list = m;
    }
    if (m->nkey != p->nkey) bad(r, op, "device profile: kernels.%s: points of one variant must be equally long", op);
    const Point *last = m->n ? &m->points[m->n - 1] : NULL;
    if (last && !m->nkey && (p->point.bytes <= last->bytes || p->point.us < last->us))
        bad(r, op,
            "device profile: kernels.%s: bytes must rise from point to point and times must not fall: { %.0f, %g } "
            "after { %.0f, %g }",
            op, p->point.bytes, p->point.us, last->bytes, last->us);
    m->points[m->n++] = p->point;
}

static const Measured **kernel_named(Reader *r, const char *key) {
    OpKind op = op_by_name(key);
    if (op == N_OPS)
        bad(r, key, "device profile: kernels.%s: there is no op of this name; remove it, or see `shardc inspect`", key);
    return &r->d->kernels[op];
}

static void read_kernels(Reader *r) {
    int type = lua_getfield(r->L, -1, "kernels");
    if (type != LUA_TTABLE && type != LUA_TNIL)
        bad(r, "kernels", "device profile: `kernels` must be a table: kernels = { layer_norm = { { bytes, us } } }");
    lua_pushnil(r->L);
    while (type == LUA_TTABLE && lua_next(r->L, -2)) {
        const char *op = lua_type(r->L, -2) == LUA_TSTRING ? arena_strdup(r->a, lua_tostring(r->L, -2)) : "(a number)";
        const Measured **list = kernel_named(r, op);
        int n = lua_type(r->L, -1) == LUA_TTABLE ? (int)lua_rawlen(r->L, -1) : 0;
        if (!n) bad(r, op, "device profile: kernels.%s must be a list of points", op);
        for (int i = 0; i < n; i++) {
            lua_geti(r->L, -1, i + 1);
            Read p = read_point(r, op, i + 1);
            add_point(r, list, op, &p, n);
            lua_pop(r->L, 1);
        }
        lua_pop(r->L, 1);
    }
    lua_pop(r->L, type == LUA_TTABLE ? 1 : 2);
}

/* Of the table on top. */
static double share_field(Reader *r, const char *op, const char *key) {
    lua_getfield(r->L, -1, key);
    double x = lua_type(r->L, -1) == LUA_TNUMBER ? lua_tonumber(r->L, -1) : -1;
    if (!(x >= 0 && x <= 10))
        bad(r, op, "device profile: beside.%s.%s must be a share, from 0 to 10: 0.15 for 15 %% longer", op, key);
    lua_pop(r->L, 1);
    return x;
}

static void read_beside(Reader *r) {
    int type = lua_getfield(r->L, -1, "beside");
    if (type != LUA_TTABLE && type != LUA_TNIL)
        bad(r, "beside",
            "device profile: `beside` must be a table: beside = { all_gather = { kernels = 0.1, itself = "
            "0.2 } }");
    lua_pushnil(r->L);
    while (type == LUA_TTABLE && lua_next(r->L, -2)) {
        const char *key = lua_type(r->L, -2) == LUA_TSTRING ? lua_tostring(r->L, -2) : "(a number)";
        OpKind op = op_by_name(key);
        if (op == N_OPS || !(op_info[op].traits & (T_COLLECTIVE | T_COPY)) || lua_type(r->L, -1) != LUA_TTABLE)
            bad(r, key,
                "device profile: beside.%s: write all_gather = { kernels = 0.1, itself = 0.2 }, for a "
                "collective, offload or fetch",
                key);
        r->d->beside[op].kernels = share_field(r, key, "kernels");
        r->d->beside[op].itself = share_field(r, key, "itself");
        lua_pop(r->L, 1);
    }
    lua_pop(r->L, type == LUA_TTABLE ? 1 : 2);
}

/* The joules of a FLOP by dtype, where power has such a table. */
static void read_joules(Reader *r, const char *key, double *to) {
    if (lua_getfield(r->L, -1, key) == LUA_TTABLE) {
        lua_pushnil(r->L);
        while (lua_next(r->L, -2)) {
            Dtype t;
            if (lua_type(r->L, -2) != LUA_TSTRING || !dtype_parse(lua_tostring(r->L, -2), &t))
                bad(r, key, "device profile: power.%s has a key that is no dtype; use fp32, bf16, fp16, ...", key);
            to[t] = lua_type(r->L, -1) == LUA_TNUMBER ? lua_tonumber(r->L, -1) : -1;
            if (!(to[t] >= 0 && to[t] < 1))
                bad(r, dtype_name(t), "device profile: power.%s.%s must be the joules of one FLOP", key, dtype_name(t));
            lua_pop(r->L, 1);
        }
    }
    lua_pop(r->L, 1);
}

/* power = { watts = 700, idle = 256, exponent = 0.96, byte = 91e-12, link = 500e-12,
 *           flop = { bf16 = 0.86e-12, fp32 = 9.6e-12 }, attention = { bf16 = 1.4e-12 } } */
static void read_power(Reader *r) {
    Power *w = &r->d->power;
    int type = lua_getfield(r->L, -1, "power");
    if (type != LUA_TTABLE && type != LUA_TNIL) bad(r, "power", "device profile: `power` must be a table");
    if (type == LUA_TTABLE) {
        *w = (Power){.watts = number_field(r, "watts", true),
                     .idle = number_field(r, "idle", false),
                     .byte = number_field(r, "byte", false),
                     .link = number_field(r, "link", false),
                     .exponent = number_field(r, "exponent", false)};
        if (w->idle >= w->watts) bad(r, "idle", "device profile: power.idle must be less than power.watts, the limit");
        read_joules(r, "flop", w->flop);
        for (int op = 0; op < N_OPS; op++) read_joules(r, op_info[op].name, w->of_op[op]);
    }
    lua_pop(r->L, 1);
}

static void refuse_unknown(Reader *r) {
    const char *known[COUNT(numbers) + COUNT(strings) + COUNT(integers) + 5];
    int n = 0;
    for (int i = 0; i < COUNT(numbers); i++) known[n++] = numbers[i].key;
    for (int i = 0; i < COUNT(strings); i++) known[n++] = strings[i].key;
    for (int i = 0; i < COUNT(integers); i++) known[n++] = integers[i].key;
    known[n++] = "flops";
    known[n++] = "library";
    known[n++] = "kernels";
    known[n++] = "beside";
    known[n++] = "power";
    lua_pushnil(r->L);
    while (lua_next(r->L, -2)) {
        const char *key = lua_type(r->L, -2) == LUA_TSTRING ? lua_tostring(r->L, -2) : "(a number)";
        bool found = false;
        for (int i = 0; i < n; i++) found |= !strcmp(key, known[i]);
        const char *near = found ? NULL : str_nearest(key, known, n);
        if (!found && near) bad(r, key, "device profile: unknown key `%s`; did you mean `%s`?", key, near);
        if (!found) bad(r, key, "device profile: unknown key `%s`; remove it", key);
        lua_pop(r->L, 1);
    }
}

/* ── times derived from another device's ─────────────────────────────────────────────────────────────────────────────
 * What was measured of one device's kernels, scaled by the ratio of the resource that bounds each: a point whose
 * roofline is arithmetic by the throughputs, one whose roofline is memory by the bandwidths; launches are not scaled.
 * The data sheet scales an efficiency, it never replaces it: where a data sheet has more of everything, every kernel is
 * at least as fast. */
enum { CACHED = 20 << 20, STREAMED = 80 << 20 }; /* bytes: up to here kernels live in the L2; from here none */

static double roofline(const Device *d, const Device *base, Dtype t, const Point *p) {
    double peak = d->flops[t] > 0 ? d->flops[t] : d->flops[FP32];
    return fmax(p->flops / peak, p->bytes / d->memory_bandwidth) * 1e6 + base->product_us;
}

/* The dtype that a variant begins with: "bf16>fp32 tn". */
static Dtype variant_dtype(const char *variant) {
    char name[16] = "";
    Dtype t;
    sscanf(variant, "%15[a-z0-9_]", name);
    return dtype_parse(name, &t) ? t : FP32;
}

/* Collectives: their smallest by the latency of the links, what more bytes take by the bandwidth. */
static void derive_collective(const Device *d, const Device *base, const Measured *m, Point *p) {
    double least = m->points[0].us;
    p->us =
        least * d->link_latency_us / base->link_latency_us + (p->us - least) * base->link_bandwidth / d->link_bandwidth;
}

static void derive_point(const Device *d, const Device *base, const Measured *m, Point *p) {
    double bandwidths = base->memory_bandwidth / d->memory_bandwidth;
    bool clocks = d->clock_mhz > 0 && base->clock_mhz > 0 && p->flops * d->memory_bandwidth > p->bytes * d->flops[BF16];
    double streamed = fmin(fmax((p->bytes - CACHED) / (STREAMED - CACHED), 0), 1);
    if (m->nkey)
        p->us *= roofline(d, base, variant_dtype(m->variant), p) / roofline(base, base, variant_dtype(m->variant), p) *
                 (clocks ? base->clock_mhz / d->clock_mhz : 1);
    else
        p->us = base->launch_us + fmax(p->us - base->launch_us, 0) * (1 - streamed + streamed * bandwidths);
}

static const Measured *derive_kernel(Arena *a, const Device *d, const Device *base, const Measured *of,
                                     bool collective) {
    Measured *all = NULL;
    for (; of; of = of->next) {
        Measured *m = NEW(a, Measured);
        *m = *of;
        m->points = NEW_ARRAY(a, Point, of->n + 1);
        m->told = NEW_ARRAY(a, Told, N_TOLD);
        memcpy(m->points, of->points, (size_t)of->n * sizeof *of->points);
        for (int i = 0; i < of->n; i++) {
            (collective ? derive_collective : derive_point)(d, base, of, &m->points[i]);
            if (i && !of->nkey) m->points[i].us = fmax(m->points[i].us, m->points[i - 1].us);
        }
        m->next = all;
        all = m;
    }
    return all;
}

/* Of two GPUs of one kind, one draws less than the other for the same work. Energies stay the base's; the limit is what
 * the base would draw in the same mix at the clock that this GPU sustained in it. There power is idle + x / slower^(1 +
 * exponent), since both time and energy of arithmetic depend on the clock; x follows from the base's limit and clock.
 */
static void derive_limit(Device *d, const Device *base) {
    Power *w = &d->power;
    *w = base->power;
    double slower = base->clock_mhz / base->step_mhz, its = d->clock_mhz / d->step_mhz;
    w->watts = w->idle + (w->watts - w->idle) * pow(slower / its, 1 + w->exponent);
}

/* The same share of the limit for a step of the same mix: energies scale with the limit and against the rates. */
static void derive_power(Device *d, const Device *base) {
    if (d->clock_mhz > 0 && d->step_mhz > 0 && base->step_mhz > 0) {
        derive_limit(d, base);
        return;
    }
    double limits = d->power.watts / base->power.watts;
    d->power.idle = base->power.idle * limits;
    d->power.exponent = base->power.exponent;
    d->power.byte = base->power.byte * limits * base->memory_bandwidth / d->memory_bandwidth;
    if (d->link_bandwidth > 0) d->power.link = base->power.link * limits * base->link_bandwidth / d->link_bandwidth;
    for (int t = 0; t < N_DTYPES; t++) {
        double rates = base->flops[t] > 0 && d->flops[t] > 0 ? base->flops[t] / d->flops[t] : 0;
        d->power.flop[t] = base->power.flop[t] * limits * rates;
        for (int op = 0; op < N_OPS; op++) d->power.of_op[op][t] = base->power.of_op[op][t] * limits * rates;
    }
}

static void derive(Arena *a, Device *d, const Device *base) {
    for (int i = 0; i < COUNT(numbers); i++) { /* what need not be said twice */
        double *x = (double *)((char *)d + numbers[i].at);
        if (numbers[i].required && *x <= 0) *x = *(const double *)((const char *)base + numbers[i].at);
    }
    if (!d->nlibrary) {
        memcpy(d->library, base->library, sizeof d->library);
        d->nlibrary = base->nlibrary;
    }
    if (d->memory_bandwidth <= 0)
        d->memory_bandwidth = d->sheet_bandwidth * base->memory_bandwidth / base->sheet_bandwidth;
    d->product_us = base->product_us;
    if (!d->fp8_source) d->fp8_source = base->fp8_source;
    if (d->fp8_off <= 0) d->fp8_off = base->fp8_off;
    if (d->matmul_efficiency <= 0) d->matmul_efficiency = base->matmul_efficiency;
    for (int op = 0; op < N_OPS; op++)
        if (!d->kernels[op] && !(op_info[op].traits & T_COPY))
            d->kernels[op] = derive_kernel(a, d, base, base->kernels[op], op_info[op].traits & T_COLLECTIVE);
    /* A collective slows kernels by the share of the memory's bandwidth that its bytes take. */
    double traffic = d->link_bandwidth / base->link_bandwidth * base->memory_bandwidth / d->memory_bandwidth;
    for (int op = 0; op < N_OPS; op++)
        if (d->beside[op].kernels <= 0 && d->beside[op].itself <= 0) {
            d->beside[op] = base->beside[op];
            d->beside[op].kernels *= traffic;
        }
    bool limited = d->power.watts > 0 || d->step_mhz > 0;
    if (limited && d->power.byte <= 0 && base->power.watts > 0) derive_power(d, base);
}

/* `like` and what follows from it. Only profiles that are built in can be scaled, and they are like none. */
static void read_origin(Reader *r) {
    Device *d = r->d;
    size_t size;
    if (d->memory_bandwidth <= 0 && (!d->like || d->sheet_bandwidth <= 0))
        bad(r, "memory_bandwidth",
            "device profile: `memory_bandwidth` must be stated, in bytes a second; or `like` and "
            "`sheet_bandwidth`");
    bool measured = !strncmp(d->source, "measured", 8);
    d->kernels_from = measured ? MEASURED : DATA_SHEET;
    d->network_from = DATA_SHEET;
    if (d->like) {
        const char *file = arena_printf(r->a, "devices/%s.lua", d->like), *text = embedded_text(file, &size);
        const Device *base = text && strcmp(d->like, d->name) ? device_read(r->a, file, text, size) : NULL;
        if (!base || base->like || base->sheet_bandwidth <= 0)
            bad(r, "like",
                "device profile: like = \"%s\": write the name of a built-in profile whose kernels are "
                "measured, as h100",
                d->like);
        derive(r->a, d, base);
        d->kernels_from = DERIVED;
    }
    if (d->matmul_efficiency <= 0) bad(r, "matmul_efficiency", "device profile: `matmul_efficiency` must not be 0");
    static const double off[] = {[MEASURED] = 0.03, [DERIVED] = 0.15, [DATA_SHEET] = UNMEASURED_OFF};
    if (d->kernels_off <= 0) d->kernels_off = off[d->kernels_from];
    if (d->network_off <= 0) d->network_off = off[d->network_from];
}

static const Device *device_read(Arena *a, const char *file, const char *text, size_t size) {
    Reader r = {sandbox_new(a, NULL), a, file, NEW(a, Device)};
    sandbox_run(r.L, text, size, arena_printf(a, "@%s", file), 1);
    if (!lua_istable(r.L, -1)) bad(&r, "return", "device profile: the file must return a table");
    refuse_unknown(&r);
    read_fields(&r);
    read_flops(&r);
    read_library(&r);
    read_kernels(&r);
    read_beside(&r);
    read_power(&r);
    read_origin(&r);
    sandbox_close(r.L);
    return r.d;
}

/* "cpu, a100, h100, h200" and the nearest of them. */
static _Noreturn void unknown_device(Arena *a, const char *name) {
    const char *names[64];
    int n = 0;
    Str list = {.arena = a};
    for (int i = 0; embedded_name(i) && n < 64; i++) {
        if (strncmp(embedded_name(i), "devices/", 8)) continue;
        char *s = arena_strdup(a, embedded_name(i) + 8);
        s[strlen(s) - 4] = 0;
        names[n++] = s;
        str_addf(&list, "%s%s", n > 1 ? ", " : "", s);
    }
    const char *near = str_nearest(name, names, n);
    if (near)
        fail(NOWHERE, "no device profile \"%s\"; did you mean \"%s\"? There are: %s, or a path to a .lua file", name,
             near, list.s);
    fail(NOWHERE, "no device profile \"%s\"; there are: %s, or give the path of a .lua file", name,
         list.s ? list.s : "none");
}

const char *device_text(Arena *a, const char *name, const char **file, size_t *size) {
    size_t length = strlen(name);
    *file = name;
    if (length > 4 && !strcmp(name + length - 4, ".lua")) return input_read(a, NOWHERE, name, LUA_FILE_MOST, size);
    *file = arena_printf(a, "devices/%s.lua", name);
    const char *text = embedded_text(*file, size);
    if (!text) unknown_device(a, name);
    return text;
}

const Device *device_load(Arena *a, const char *name) {
    size_t size;
    const char *file, *text = device_text(a, name, &file, &size);
    return device_read(a, file, text, size);
}

int device_capability(const char *arch) {
    int n = 0;
    return arch && sscanf(arch, "sm_%d", &n) == 1 ? n : 0;
}
