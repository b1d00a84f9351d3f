/* Memory, strings, growable arrays and diagnostics that every part of the compiler uses.
 * Relies on: the C library only.
 * Relied on by: everything in compiler/. */
#ifndef SHARDC_BASE_H
#define SHARDC_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ── bump arena: all memory of a compilation, freed at once ──────────────────────────────────────────────────────── */
typedef struct Arena Arena;
Arena *arena_new(void);
void arena_free(Arena *a);
void *arena_alloc(Arena *a, size_t bytes); /* zeroed, 16-byte aligned; exits with a diagnostic when memory runs out */
size_t arena_held(const Arena *a);         /* bytes handed out so far */
char *arena_strdup(Arena *a, const char *s);
char *arena_printf(Arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(Arena *a, const char *fmt, va_list ap);
#define NEW(a, T) ((T *)arena_alloc((a), sizeof(T)))
#define NEW_ARRAY(a, T, n) ((T *)arena_alloc((a), sizeof(T) * (size_t)(n)))

/* ── growable array in an arena: `VEC(Op *) ops;`  push(&g->ops, arena, op);  ops.at[i], ops.n ───────────────────── */
#define VEC(T)                                                                                                         \
    struct {                                                                                                           \
        T *at;                                                                                                         \
        int n, cap;                                                                                                    \
    }
void *vec_grow(Arena *a, void *at, int *cap, size_t elem);
#define push(v, a, x)                                                                                                  \
    do {                                                                                                               \
        if ((v)->n == (v)->cap) (v)->at = vec_grow((a), (v)->at, &(v)->cap, sizeof *(v)->at);                          \
        (v)->at[(v)->n++] = (x);                                                                                       \
    } while (0)

/* Binary search: the first i in [lo, hi) for which `holds`, or hi if there is none. It must hold for all after that. */
#define FIRST(i, lo, hi, holds)                                                                                        \
    ({                                                                                                                 \
        int from_ = (lo), to_ = (hi);                                                                                  \
        while (from_ < to_) {                                                                                          \
            int i = from_ + (to_ - from_) / 2;                                                                         \
            if (holds)                                                                                                 \
                to_ = i;                                                                                               \
            else                                                                                                       \
                from_ = i + 1;                                                                                         \
        }                                                                                                              \
        from_;                                                                                                         \
    })

/* ── string buffer ───────────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    Arena *arena;
    char *s; /* always NUL-terminated once anything was added */
    size_t n, cap;
} Str;
void str_reserve(Str *b, size_t more); /* room for so many bytes and a NUL */
static inline void str_bytes(Str *b, const char *s, size_t n) {
    if (b->n + n + 1 > b->cap) str_reserve(b, n);
    if (n) memcpy(b->s + b->n, s, n); /* of a buffer that nothing was added to, s is NULL */
    b->n += n;
    b->s[b->n] = 0;
}
static inline void str_add(Str *b, const char *s) {
    str_bytes(b, s, strlen(s));
}
void str_addf(Str *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void str_write(Str *b, FILE *f); /* writes the text and empties the buffer */
enum { STR_FULL = 64 << 10 };
static inline void str_spill(Str *b, FILE *f) { /* for long files; call it between lines */
    if (b->n >= STR_FULL) str_write(b, f);
}

/* Integers without printf, which takes some hundred instructions for each: a plan has millions. */
void str_int(Str *b, int64_t x);
void str_hex(Str *b, uint64_t x, int least); /* 0x, and at least so many digits */

/* ── string → pointer map (insertion ordered) ────────────────────────────────────────────────────────────────────── */
typedef struct Map Map;
char *path_join(Arena *a, const char *dir, const char *name, const char *suffix); /* "dir/name" and suffix */
Map *map_new(Arena *a);
void map_put(Map *m, const char *key, void *value); /* key is copied */
void *map_get(const Map *m, const char *key);       /* NULL when absent */
int map_find(const Map *m, const char *key);        /* its index among the keys; -1 when absent */
int map_index(Map *m, const char *key);             /* its index among the keys; a new key is put last, with NULL */
int map_len(const Map *m);
const char *map_key(const Map *m, int i);
void *map_value(const Map *m, int i);

/* ── diagnostics (promise P6) ────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    const char *file; /* the user's file as given on the command line; NULL: no source position */
    int line;
} Source;

/* Prints "file:line: message" (or "shardc: message" without a file) to stderr, removes registered temporary files,
 * exits 1. The message states what is wrong, shapes included, and the remedy. */
_Noreturn void fail(Source at, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void vfail(Source at, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
_Noreturn void fail_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* exits 2 */
_Noreturn void bug(Source at, const char *fmt, ...)
    __attribute__((format(printf, 2, 3))); /* for what no input can cause: asks for a report, exits 1 */
/* Prints "file:line: note: message" to stderr, for what is allowed but may not be intended. */
void remark(Source at, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void remark_enable(bool on); /* off: remark prints nothing; on at first */
#define NOWHERE ((Source){NULL, 0})

/* The candidate nearest to `name` by edit distance, or NULL when none is near. */
const char *str_nearest(const char *name, const char *const *candidates, int n);

/* Whether a model or a program may have this name; NAME_RULE says which names are allowed. */
bool str_is_name(const char *name);
#define NAME_RULE                                                                                                      \
    "a name has letters, digits, spaces and ._-+=@:, begins with a letter, a digit or _, and has at most 200 bytes"

/* ── files: written aside and renamed, so that a failure leaves what was there ───────────────────────────────────── */
typedef struct {
    FILE *f;
    char *path, *temp;
    const char *folder;
} OutFile;
OutFile out_open(Arena *a, const char *path); /* fails with a diagnostic that names the path and the reason */
void out_commit(OutFile *o);                  /* checks every write, fsyncs, renames */
/* Removes files that dead processes have left in `folder`: those whose name is `name` followed by what the extended
 * regular expression `rest` matches. Files that a process holds stay (out_open holds its own by flock). */
void temp_clear(const char *folder, const char *name, const char *rest);
bool path_is_open(int fd, const char *path); /* whether the open file still has that name */
/* The user's file, whole, NUL after the end. Fails at the given place: a folder, a pipe by its name, a device, more
 * bytes than `most`. out_open refuses to write there from now on, under whatever name. */
enum { FILE_MOST = 1 << 30 };
char *input_read(Arena *a, Source at, const char *path, size_t most, size_t *size);
void input_add(const char *path);                               /* the same refusal where something else reads it */
void input_keep(const char *written);                           /* fails where that is an input */
char *path_read(Arena *a, const char *path, size_t *size);      /* a file of our own, up to FILE_MOST */
FILE *input_open(Source at, const char *path, struct stat *st); /* ... for those that read piece by piece */
char *path_folder(Arena *a, const char *path);                  /* "." where none is named */
char *path_real(Arena *a, const char *path); /* absolute, links followed; as it is where there is no such file */

static inline int64_t round_up(int64_t x, int64_t to) {
    return (x + to - 1) / to * to;
}
static inline int compare_int64(const void *a, const void *b) { /* for qsort */
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}
static inline int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static inline int64_t common_divisor(int64_t a, int64_t b) { /* the greatest; of a and 0: a */
    for (int64_t rest; b; a = b, b = rest) rest = a % b;
    return a;
}

#endif
