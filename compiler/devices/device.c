/* Device profiles: Lua tables, built in (devices/<name>.lua) or in a file of the user's.
 * Relies on: the sandbox, the texts embedded by lua/embed.c.
 * Relied on by: main.c, the tests. */
#include "device.h"

#include "../frontend/sandbox.h"
#include "../lua/embed.h"

typedef struct {
    const char *key;
    size_t at;
    bool required;
} Field;
#define FIELD(name, required)                                                                                          \
    { #name, offsetof(Device, name), required }

static const Field numbers[] = {
    FIELD(memory_bytes, false),
    FIELD(usable_bytes, false),
    FIELD(matmul_efficiency, true),
    FIELD(memory_bandwidth, true),
    FIELD(link_bandwidth, true),
    FIELD(network_bandwidth, true),
    FIELD(link_latency_us, true),
    FIELD(network_latency_us, true),
    FIELD(host_bandwidth, true),
    FIELD(launch_us, true),
    FIELD(host_optimizer_bandwidth, true),
};
static const Field strings[] = {FIELD(name, true), FIELD(target, true), FIELD(source, true), FIELD(arch, false)};
static const Field integers[] = {FIELD(ranks_per_node, true), FIELD(threads, false)};
#define COUNT(a) ((int)(sizeof(a) / sizeof(a)[0]))

typedef struct {
    lua_State *L;
    Arena *a;
    const char *file; /* for messages */
    Device *d;
} Reader;

/* At the line where `key` stands, or at the first. */
#define bad(r, key, ...) fail(lua_key_source((r)->L, (Source){(r)->file, 1}, key), __VA_ARGS__)

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

static void read_fields(Reader *r) {
    for (int i = 0; i < COUNT(strings); i++)
        *(const char **)((char *)r->d + strings[i].at) = text_field(r, strings[i].key, strings[i].required);
    for (int i = 0; i < COUNT(numbers); i++)
        *(double *)((char *)r->d + numbers[i].at) = number_field(r, numbers[i].key, numbers[i].required);
    for (int i = 0; i < COUNT(integers); i++)
        *(int *)((char *)r->d + integers[i].at) = (int)number_field(r, integers[i].key, integers[i].required);
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
    if (r->d->flops[FP32] <= 0) bad(r, "flops", "device profile: `flops` must have fp32");
}

static void read_library(Reader *r) {
    int type = lua_getfield(r->L, -1, "library");
    if (type != LUA_TTABLE && type != LUA_TNIL) bad(r, "library", "device profile: `library` must be a list of tables");
    int n = type == LUA_TTABLE ? (int)lua_rawlen(r->L, -1) : 0;
    if (n > COUNT(r->d->library))
        bad(r, "library", "device profile: `library` has %d lines, at most %d fit", n, COUNT(r->d->library));
    for (int i = 0; i < n; i++) {
        if (lua_geti(r->L, -1, i + 1) != LUA_TTABLE)
            bad(r, "library", "device profile: library[%d] must be a table", i + 1);
        r->d->library[i] = (LibraryLine){.name = text_field(r, "name", true),
                                         .bytes = number_field(r, "bytes", true),
                                         .tolerance = number_field(r, "tolerance", false),
                                         .source = text_field(r, "source", true)};
        lua_pop(r->L, 1);
    }
    r->d->nlibrary = n;
    lua_pop(r->L, 1);
}

static void refuse_unknown(Reader *r) {
    const char *known[COUNT(numbers) + COUNT(strings) + COUNT(integers) + 2];
    int n = 0;
    for (int i = 0; i < COUNT(numbers); i++) known[n++] = numbers[i].key;
    for (int i = 0; i < COUNT(strings); i++) known[n++] = strings[i].key;
    for (int i = 0; i < COUNT(integers); i++) known[n++] = integers[i].key;
    known[n++] = "flops";
    known[n++] = "library";
    lua_pushnil(r->L);
    while (lua_next(r->L, -2)) {
        const char *key = lua_type(r->L, -2) == LUA_TSTRING ? lua_tostring(r->L, -2) : "(a number)";
        bool found = false;
        for (int i = 0; i < n; i++) found |= !strcmp(key, known[i]);
        const char *near = found ? NULL : nearest_name(key, known, n);
        if (!found && near) bad(r, key, "device profile: unknown key `%s`; did you mean `%s`?", key, near);
        if (!found) bad(r, key, "device profile: unknown key `%s`; remove it", key);
        lua_pop(r->L, 1);
    }
}

static const Device *device_read(Arena *a, const char *file, const char *text, size_t size) {
    Reader r = {sandbox_new(a, NULL), a, file, NEW(a, Device)};
    sandbox_run(r.L, text, size, arena_printf(a, "@%s", file), 1);
    if (!lua_istable(r.L, -1)) bad(&r, "return", "device profile: the file must return a table");
    refuse_unknown(&r);
    read_fields(&r);
    read_flops(&r);
    read_library(&r);
    lua_close(r.L);
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
    const char *near = nearest_name(name, names, n);
    if (near)
        fail(NOWHERE, "no device profile \"%s\"; did you mean \"%s\"? There are: %s, or a path to a .lua file", name,
             near, list.s);
    fail(NOWHERE, "no device profile \"%s\"; there are: %s, or give the path of a .lua file", name,
         list.s ? list.s : "none");
}

const Device *device_load(Arena *a, const char *name) {
    size_t size, length = strlen(name);
    if (length > 4 && !strcmp(name + length - 4, ".lua")) {
        const char *text = read_file(a, name, &size);
        return device_read(a, name, text, size);
    }
    const char *file = arena_printf(a, "devices/%s.lua", name), *text = embedded_text(file, &size);
    if (!text) unknown_device(a, name);
    return device_read(a, file, text, size);
}
