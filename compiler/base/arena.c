/* Bump arena, growable arrays, string buffers: all memory of a compilation, zeroed, freed at once.
 * Relies on: the C library.
 * Relied on by: everything in compiler/. */
#include "base.h"

#include <stdlib.h>
#include <sys/mman.h>

typedef struct Block {
    struct Block *next;
    size_t used, size;
    _Alignas(16) char bytes[];
} Block;

struct Arena {
    Block *top;
    size_t next_size, held;
};

enum {
    FIRST_BLOCK = 64 << 10,
    LARGE_BLOCK = 4 << 20,
    LARGEST_BLOCK = 32 << 20,
    MOST = 256 /* bytes of a text that is formatted once */
};

/* calloc, not malloc and memset: large blocks come as untouched zero pages. */
static Block *block_new(size_t size, Block *next) {
    Block *b = calloc(1, sizeof(Block) + size);
    if (!b) fail(NOWHERE, "out of memory: %zu more bytes wanted; free memory or choose a smaller model", size);
    /* Finding pages of 4 KiB one by one takes a tenth of a large compilation. Advice: nothing depends on its success.
     */
    if (size >= LARGE_BLOCK) madvise((void *)((uintptr_t)b & ~(uintptr_t)4095), size, MADV_HUGEPAGE);
    b->size = size;
    b->next = next;
    return b;
}

Arena *arena_new(void) {
    Arena *a = calloc(1, sizeof *a);
    if (!a) fail(NOWHERE, "out of memory at the start; free memory and run again");
    a->next_size = FIRST_BLOCK;
    a->top = block_new(a->next_size, NULL);
    return a;
}

void arena_free(Arena *a) {
    if (!a) return;
    for (Block *b = a->top, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(a);
}

size_t arena_held(const Arena *a) {
    return a->held + a->top->used;
}

void *arena_alloc(Arena *a, size_t bytes) {
    if (bytes > SIZE_MAX / 4) fail(NOWHERE, "out of memory: a request of %zu bytes; choose a smaller model", bytes);
    bytes = (bytes + 15) & ~(size_t)15;
    if (bytes > a->top->size - a->top->used) {
        if (a->next_size < LARGEST_BLOCK) a->next_size *= 2;
        if (bytes > a->next_size / 4) { /* a block of its own, below the top, which stays open */
            Block *own = block_new(bytes, a->top->next);
            own->used = bytes;
            a->held += bytes;
            a->top->next = own;
            return own->bytes;
        }
        a->held += a->top->used;
        a->top = block_new(a->next_size, a->top);
    }
    void *p = a->top->bytes + a->top->used;
    a->top->used += bytes;
    return p;
}

char *arena_strdup(Arena *a, const char *s) {
    size_t n = strlen(s) + 1;
    return memcpy(arena_alloc(a, n), s, n);
}

char *arena_vprintf(Arena *a, const char *fmt, va_list ap) {
    char most[MOST];
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(most, MOST, fmt, ap);
    if (n < 0) n = 0;
    char *s = arena_alloc(a, (size_t)n + 1);
    if (n < MOST)
        memcpy(s, most, (size_t)n);
    else
        vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    return s;
}

char *arena_printf(Arena *a, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *s = arena_vprintf(a, fmt, ap);
    va_end(ap);
    return s;
}

void *vec_grow(Arena *a, void *at, int *cap, size_t elem) {
    if (*cap > INT32_MAX / 2) fail(NOWHERE, "a list grew beyond %d entries; choose a smaller model", *cap);
    int more = *cap ? *cap * 2 : 8;
    void *p = arena_alloc(a, elem * (size_t)more);
    if (*cap) memcpy(p, at, elem * (size_t)*cap);
    *cap = more;
    return p;
}

void str_reserve(Str *b, size_t more) {
    if (b->n + more + 1 <= b->cap) return;
    size_t cap = b->cap ? b->cap * 2 : 64;
    while (cap < b->n + more + 1) cap *= 2;
    char *s = arena_alloc(b->arena, cap);
    if (b->n) memcpy(s, b->s, b->n);
    b->s = s;
    b->cap = cap;
}

void str_addf(Str *b, const char *fmt, ...) {
    va_list ap;
    int n = 0;
    do {
        str_reserve(b, (size_t)n);
        va_start(ap, fmt);
        n = vsnprintf(b->s + b->n, b->cap - b->n, fmt, ap);
        va_end(ap);
    } while (n > 0 && (size_t)n >= b->cap - b->n);
    if (n > 0) b->n += (size_t)n;
}

static inline void add_digits(Str *b, uint64_t x, unsigned base, int least) {
    char digits[24], *end = digits + sizeof digits, *d = end;
    do *--d = "0123456789abcdef"[x % base];
    while (x /= base);
    while (end - d < least) *--d = '0';
    str_bytes(b, d, (size_t)(end - d));
}

void str_int(Str *b, int64_t x) {
    if (x < 0) str_add(b, "-");
    add_digits(b, x < 0 ? -(uint64_t)x : (uint64_t)x, 10, 1);
}

void str_hex(Str *b, uint64_t x, int least) {
    str_add(b, "0x");
    add_digits(b, x, 16, least);
}

/* Without stdio's locks, as nobody else writes to it. */
void str_write(Str *b, FILE *f) {
    fwrite_unlocked(b->s, 1, b->n, f);
    b->n = 0;
}
