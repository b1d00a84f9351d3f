/* What the two searches of exact packing share: a problem made ready, and cut where no life crosses.
 * Relies on: exact_search.h.
 * Relied on by: exact.c, exact_bottom_up.c, exact_lowest_first.c. */
#include "exact_search.h"

#include <stdlib.h>

/* ── the problem, made ready ───────────────────────────────────────────────────────────────────────────────── */
static bool is_part(const uint64_t *a, const uint64_t *b, int words) {
    for (int w = 0; w < words; w++)
        if (a[w] & ~b[w]) return false;
    return true;
}

/* new_section[s]: its number without the sections that are a part of a neighbour, or -1; the count of them. */
static int drop_sections(Arena *a, const ExactItem *items, int n, int from, int to, int *new_section) {
    int words = (n + 63) / 64, *kept = NEW_ARRAY(a, int, to - from + 1), nkept = 0;
    uint64_t *sets = NEW_ARRAY(a, uint64_t, (size_t)(to - from) * (size_t)words);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < items[i].nsections; k++)
            exact_add(&sets[(size_t)(items[i].sections[k] - from) * (size_t)words], i);
    for (int s = 0; s < to - from; s++) {
        const uint64_t *own = &sets[(size_t)s * (size_t)words];
        if (nkept && is_part(own, &sets[(size_t)kept[nkept - 1] * (size_t)words], words)) continue;
        while (nkept && is_part(&sets[(size_t)kept[nkept - 1] * (size_t)words], own, words)) nkept--;
        kept[nkept++] = s;
    }
    for (int s = 0; s < to - from; s++) new_section[s] = -1;
    for (int k = 0; k < nkept; k++) new_section[kept[k]] = k;
    return nkept;
}

static bool same_sections(const ExactItem *a, const ExactItem *b) {
    return a->nsections == b->nsections &&
           !memcmp(a->sections, b->sections, sizeof *a->sections * (size_t)a->nsections);
}

ExactSearch *exact_search_new(Arena *a, const ExactItem *items, int n, int from, int to, int64_t capacity) {
    ExactSearch *x = NEW(a, ExactSearch);
    int *new_section = NEW_ARRAY(a, int, to - from + 1);
    *x = (ExactSearch){.a = a, .n = n, .words = (n + 63) / 64, .capacity = capacity, .random = 1};
    x->nsections = drop_sections(a, items, n, from, to, new_section);
    x->items = NEW_ARRAY(a, ExactItem, n);
    x->members = NEW_ARRAY(a, int *, x->nsections);
    x->nmembers = NEW_ARRAY(a, int, x->nsections);
    x->conflicts = NEW_ARRAY(a, uint64_t, (size_t)n * (size_t)x->words);
    x->twin = NEW_ARRAY(a, int, n);
    for (int i = 0; i < n; i++) {
        const ExactItem *in = &items[i];
        int *sections = NEW_ARRAY(a, int, in->nsections), m = 0;
        for (int k = 0; k < in->nsections; k++) {
            int s = new_section[in->sections[k] - from];
            if (s < 0) continue;
            sections[m++] = s;
            x->nmembers[s]++;
        }
        x->items[i] = (ExactItem){in->size, in->alignment, sections, m, in->at};
    }
    for (int s = 0; s < x->nsections; s++) {
        x->members[s] = NEW_ARRAY(a, int, x->nmembers[s]);
        x->nmembers[s] = 0;
    }
    uint64_t *set = NEW_ARRAY(a, uint64_t, (size_t)x->nsections * (size_t)x->words); /* by section: its members */
    for (int i = 0; i < n; i++)
        for (int k = 0; k < x->items[i].nsections; k++) {
            int s = x->items[i].sections[k];
            x->members[s][x->nmembers[s]++] = i;
            exact_add(&set[(size_t)s * (size_t)x->words], i);
        }
    for (int i = 0; i < n; i++) {
        uint64_t *own = &x->conflicts[(size_t)i * (size_t)x->words];
        for (int k = 0; k < x->items[i].nsections; k++) {
            const uint64_t *members = &set[(size_t)x->items[i].sections[k] * (size_t)x->words];
            for (int w = 0; w < x->words; w++) own[w] |= members[w];
        }
        own[i >> 6] &= ~(1ull << (i & 63));
    }
    for (int i = 0; i < n; i++) {
        x->twin[i] = -1;
        for (int k = i - 1; k >= 0 && x->twin[i] < 0 && x->items[k].sections[0] == x->items[i].sections[0]; k--)
            if (x->items[k].size == x->items[i].size && x->items[k].alignment == x->items[i].alignment &&
                same_sections(&x->items[k], &x->items[i]))
                x->twin[i] = k;
    }
    return x;
}

/* ── what both searches do ─────────────────────────────────────────────────────────────────────────────────── */
static int compare_ranked(const void *a, const void *b) {
    const ExactRanked *x = a, *y = b;
    for (int k = 0; k < 2; k++)
        if (x->key[k] != y->key[k]) return x->key[k] > y->key[k] ? -1 : 1;
    return x->item - y->item;
}

void exact_rank(ExactRanked *ranked, int n, int *rank) {
    qsort(ranked, (size_t)n, sizeof *ranked, compare_ranked);
    for (int i = 0; i < n; i++) rank[ranked[i].item] = i;
}

int exact_cut(const ExactSearch *x, const int *list, int n, int *cuts) {
    int parts = 0, end = -1;
    for (int k = 0; k < n; k++) {
        const ExactItem *item = &x->items[list[k]];
        int last = item->sections[item->nsections - 1];
        if (item->sections[0] > end) cuts[parts++] = k;
        if (last > end) end = last;
    }
    cuts[parts] = n;
    return parts;
}

int exact_larger_part(const int *cuts, int parts, int size) {
    int larger = INT32_MAX;
    for (int p = 0; p < parts; p++) {
        int n = cuts[p + 1] - cuts[p];
        if (n > size && n < larger) larger = n;
    }
    return larger;
}
