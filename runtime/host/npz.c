/* The members of a .npz archive. A zip ends with a record that says where its directory lies; an entry of the directory
 * says where a member's own head lies, and that one how far behind it the bytes begin.
 * Relies on: file.h, schema/formats.h (words), die (memory).
 * Relied on by: arrays. */
#include "npz.h"
#include "../file.h"
#include "../schema/formats.h"
#include "die.h"
#include <errno.h>

enum { END = 22, END64_PLACE = 20, END64 = 56, ENTRY = 46, HEAD = 30, COMMENT = 0xffff, EXTRA64 = 1 };

#define WRONG(...) (snprintf(error, NPZ_ERROR, __VA_ARGS__), -1)

static uint64_t half(const uint8_t *p) {
    return p[0] | (uint64_t)p[1] << 8;
}

static uint64_t wide(const uint8_t *p) {
    return sc_format_word(p) | (uint64_t)sc_format_word(p + 4) << 32;
}

typedef struct {
    uint64_t at, size, n; /* of the directory: its place, its bytes, its entries */
} Directory;

static bool find_directory(int fd, uint64_t size, Directory *d) {
    uint8_t tail[COMMENT + END], end64[END64];
    uint64_t n = size < sizeof tail ? size : sizeof tail, at = n;
    if (n < END || !sc_read_at(fd, tail, n, size - n)) return false;
    for (at = n - END; memcmp(tail + at, "PK\5\6", 4); at--)
        if (!at) return false;
    const uint8_t *end = tail + at;
    *d = (Directory){sc_format_word(end + 16), sc_format_word(end + 12), half(end + 10)};
    if (at >= END64_PLACE && !memcmp(end - END64_PLACE, "PK\6\7", 4)) {
        uint64_t place = wide(end - END64_PLACE + 8);
        if (place > size - END64 || !sc_read_at(fd, end64, END64, place) || memcmp(end64, "PK\6\6", 4)) return false;
        *d = (Directory){wide(end64 + 48), wide(end64 + 40), wide(end64 + 32)};
    }
    return d->at <= size && d->size <= size - d->at && d->n <= d->size / ENTRY;
}

/* The 64-bit fields that an entry has in place of 32-bit ones that are full, in this order. */
static bool widen(const uint8_t *extra, uint64_t n, uint64_t *plain, uint64_t *packed, uint64_t *at) {
    uint64_t *fields[] = {plain, packed, at};
    for (uint64_t k; n >= 4; extra += k, n -= k) {
        k = 4 + half(extra + 2);
        if (k > n) return false;
        if (half(extra) != EXTRA64) continue;
        const uint8_t *p = extra + 4, *end = extra + k;
        for (int i = 0; i < 3; i++) {
            if (*fields[i] != UINT32_MAX) continue;
            if (end - p < 8) return false;
            *fields[i] = wide(p);
            p += 8;
        }
    }
    return true;
}

static int read_members(int fd, uint64_t size, const uint8_t *p, const Directory *d, NpzMember *out, char *error) {
    const uint8_t *end = p + d->size;
    int n = 0;
    for (uint64_t i = 0; i < d->n; i++) {
        if (end - p < ENTRY || memcmp(p, "PK\1\2", 4)) return WRONG("its directory is damaged");
        uint64_t name = half(p + 28), extra = half(p + 30), all = ENTRY + name + extra + half(p + 32);
        uint64_t packed = sc_format_word(p + 20), plain = sc_format_word(p + 24), at = sc_format_word(p + 42);
        uint8_t head[HEAD];
        const char *text = (const char *)p + ENTRY;
        if ((uint64_t)(end - p) < all || !widen(p + ENTRY + name, extra, &plain, &packed, &at))
            return WRONG("its directory is damaged");
        if (half(p + 8) & 1) return WRONG("it is encrypted; write it with numpy.savez");
        if (half(p + 10))
            return WRONG("'%.*s' in it is compressed; write it with numpy.savez, which does not compress",
                         (int)(name < 60 ? name : 60), text);
        if (at > size - HEAD || !sc_read_at(fd, head, HEAD, at) || memcmp(head, "PK\3\4", 4))
            return WRONG("a member is not where its directory says: damaged");
        at += HEAD + half(head + 26) + half(head + 28);
        if (packed != plain || at > size || plain > size - at) return WRONG("it ends within a member: truncated");
        bool array = name > 4 && !memcmp(text + name - 4, ".npy", 4);
        if (array) out[n++] = (NpzMember){need_text("%.*s", (int)name - 4, text), at, plain};
        p += all;
    }
    return n;
}

int npz_members(int fd, uint64_t size, NpzMember **members, char error[NPZ_ERROR]) {
    Directory d;
    if (!find_directory(fd, size, &d)) return WRONG("the directory at its end is missing or damaged: truncated?");
    uint8_t *bytes = need(d.size + 1, 1);
    *members = need(d.n + 1, sizeof **members);
    int n = sc_read_at(fd, bytes, d.size, d.at) ? read_members(fd, size, bytes, &d, *members, error)
                                                : WRONG("cannot read its directory: %s", strerror(errno));
    free(bytes);
    if (n < 0) npz_free(*members, (int)d.n);
    return n;
}

void npz_free(NpzMember *members, int n) {
    for (int i = 0; i < n; i++) free(members[i].name);
    free(members);
}
