/* String → pointer map with open addressing; entries keep the order in which they were put.
 * Relies on: the arena.
 * Relied on by: the front end, the checker, reports. */
#include "base.h"

typedef struct {
    const char *key;
    void *value;
    uint64_t hash;
} Entry;

struct Map {
    Arena *arena;
    VEC(Entry) entries;
    int *slots; /* index of an entry + 1; 0: free */
    int nslots; /* a power of two, at least twice the entries */
};

static uint64_t hash_of(const char *s) { /* FNV-1a, then mixed so that the low bits are good */
    uint64_t h = 14695981039346656037u;
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h ^ (h >> 29);
}

Map *map_new(Arena *a) {
    Map *m = NEW(a, Map);
    m->arena = a;
    return m;
}

/* The slot that holds `key`, or the free one where it belongs. */
static int *find(const Map *m, const char *key, uint64_t hash) {
    for (uint64_t i = hash;; i++) {
        int *slot = &m->slots[i & (uint64_t)(m->nslots - 1)];
        if (!*slot) return slot;
        const Entry *e = &m->entries.at[*slot - 1];
        if (e->hash == hash && !strcmp(e->key, key)) return slot;
    }
}

static void rehash(Map *m) {
    m->nslots = m->nslots ? m->nslots * 2 : 16;
    m->slots = NEW_ARRAY(m->arena, int, m->nslots);
    for (int i = 0; i < m->entries.n; i++) *find(m, m->entries.at[i].key, m->entries.at[i].hash) = i + 1;
}

int map_index(Map *m, const char *key) {
    if (m->entries.n * 2 >= m->nslots) rehash(m);
    uint64_t hash = hash_of(key);
    int *slot = find(m, key, hash);
    if (!*slot) {
        push(&m->entries, m->arena, ((Entry){arena_strdup(m->arena, key), NULL, hash}));
        *slot = m->entries.n;
    }
    return *slot - 1;
}

int map_find(const Map *m, const char *key) {
    return m->nslots ? *find(m, key, hash_of(key)) - 1 : -1;
}

void map_put(Map *m, const char *key, void *value) {
    int i = map_index(m, key);
    m->entries.at[i].value = value;
}

void *map_get(const Map *m, const char *key) {
    int i = map_find(m, key);
    return i < 0 ? NULL : m->entries.at[i].value;
}

int map_len(const Map *m) {
    return m->entries.n;
}
const char *map_key(const Map *m, int i) {
    return m->entries.at[i].key;
}
void *map_value(const Map *m, int i) {
    return m->entries.at[i].value;
}
