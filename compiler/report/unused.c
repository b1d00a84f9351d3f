/* What a model declares and no program uses, as lines: names that differ in numbers alone are folded, "h.0-11.bias
 * (12)". Relies on: plan.h. Relied on by: text.c, json.c, emit/tables.c (the start of a run prints the same lines). */
#include "report.h"

#include <ctype.h>
#include <stdlib.h>

enum { MOST_NUMBERS = 4, MOST_FOLDS = 8 };
static const char NUMBER = '\1'; /* stands for a number in a pattern */

typedef struct {
    const char *pattern;
    int slots;                      /* numbers in it */
    VEC(int) numbers[MOST_NUMBERS]; /* of every member */
    int members;
} Fold;
typedef VEC(Fold) Folds;

/* "h.3.bias" -> "h.\1.bias", 3. A path of many numbers stays as it is. */
static const char *pattern_of(Arena *a, const char *path, int *numbers, int *slots) {
    char *out = arena_alloc(a, strlen(path) + 1), *to = out;
    *slots = 0;
    for (const char *s = path; *s;) {
        size_t n = strcspn(s, "."), digits = strspn(s, "0123456789");
        bool number = n && digits == n && n < 9;
        if (number && *slots == MOST_NUMBERS) {
            *slots = 0;
            return path;
        }
        if (number) numbers[(*slots)++] = atoi(s);
        if (number) *to++ = NUMBER;
        for (size_t k = number ? n : 0; k < n; k++) *to++ = s[k];
        s += n;
        if (*s) *to++ = *s++;
    }
    *to = 0;
    return out;
}

static int by_number(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

/* Sorts a slot's numbers and drops repeated ones; returns how many stay. */
static int distinct(Fold *f, int slot) {
    int *at = f->numbers[slot].at, n = 0;
    qsort(at, (size_t)f->members, sizeof *at, by_number);
    for (int i = 0; i < f->members; i++)
        if (!n || at[n - 1] != at[i]) at[n++] = at[i];
    return n;
}

static void add_ranges(Str *s, const int *at, int n) { /* 0-3,7 */
    for (int i = 0, end; i < n; i = end + 1) {
        for (end = i; end + 1 < n && at[end + 1] == at[end] + 1;) end++;
        str_addf(s, end > i ? "%s%d-%d" : "%s%d", i ? "," : "", at[i], at[end]);
    }
}

static void add_fold(Str *s, Fold *f) {
    int counts[MOST_NUMBERS] = {0}, slot = 0;
    int64_t all = 1;
    for (int k = 0; k < f->slots; k++) all *= counts[k] = distinct(f, k);
    for (const char *p = f->pattern; *p; p++) {
        if (*p != NUMBER)
            str_bytes(s, p, 1);
        else if (all != f->members && counts[slot] > 1) /* not every number of one slot with every one of the others */
            str_add(s, "*"), slot++;
        else
            add_ranges(s, f->numbers[slot].at, counts[slot]), slot++;
    }
    if (f->members > 1) str_addf(s, " (%d)", f->members);
}

static Folds folds_of(Arena *a, const Paths *paths) {
    Folds out = {0};
    Map *index = map_new(a);
    for (int i = 0; i < paths->n; i++) {
        int numbers[MOST_NUMBERS], slots;
        const char *pattern = pattern_of(a, paths->at[i], numbers, &slots);
        intptr_t k = (intptr_t)map_get(index, pattern);
        if (!k) {
            push(&out, a, ((Fold){.pattern = pattern, .slots = slots}));
            map_put(index, pattern, (void *)(k = out.n));
        }
        Fold *f = &out.at[k - 1];
        f->members++;
        for (int s = 0; s < slots; s++) push(&f->numbers[s], a, numbers[s]);
    }
    return out;
}

const char *report_unused(const Plan *p, Unused kind) {
    static const char *const words[N_UNUSED] = {"parameters that the loss does not reach", "inputs that nothing reads",
                                                "modules that are never called"};
    Folds folds = folds_of(p->arena, &p->unused[kind]);
    Str s = {.arena = p->arena};
    if (!folds.n) return NULL;
    str_addf(&s, "%s: ", words[kind]);
    for (int i = 0; i < folds.n && i < MOST_FOLDS; i++) {
        if (i) str_add(&s, ", ");
        add_fold(&s, &folds.at[i]);
    }
    if (folds.n > MOST_FOLDS) str_addf(&s, " and %d more names", folds.n - MOST_FOLDS);
    return s.s;
}
