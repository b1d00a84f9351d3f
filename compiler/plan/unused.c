/* What a model declares and no program uses, as lines: names that differ in numbers alone are folded, "h.0-11.b (12)".
 * Relies on: live.h (live_path_pattern).
 * Relied on by: report/text.c, emit/tables.c: the start of a run prints the same lines. */
#include "live.h"
#include "sentences.h"

#include <stdlib.h>

enum { MOST_NUMBERS = 4, MOST_FOLDS = 8 };

typedef struct {
    const char *pattern;
    int slots;                      /* numbers in it */
    VEC(int) numbers[MOST_NUMBERS]; /* of every member */
    int members;
} Fold;
typedef VEC(Fold) Folds;

/* The numbers of a path, "h.3.bias": 3. Returns how many; 0 also where they are more than fit. */
static int numbers_of(const char *path, int *out) {
    int n = 0;
    for (const char *s = path; *s; s += *s == '.') {
        size_t length = strcspn(s, ".");
        if (length && strspn(s, "0123456789") == length) {
            if (n == MOST_NUMBERS || length > 8) return 0;
            out[n++] = atoi(s);
        }
        s += length;
    }
    return n;
}

static int by_number(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

/* Sorts a slot's numbers and drops repeated ones; returns how many stay. */
static int distinct(Fold *f, int slot) {
    int *at = f->numbers[slot].at, all = f->numbers[slot].n, n = 0;
    qsort(at, (size_t)all, sizeof *at, by_number);
    for (int i = 0; i < all; i++)
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
        if (*p != '*' || slot == f->slots)
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
        int numbers[MOST_NUMBERS], slots = numbers_of(paths->at[i], numbers);
        const char *pattern = slots ? live_path_pattern(a, paths->at[i]) : paths->at[i];
        int k = map_index(index, pattern);
        if (k == out.n) push(&out, a, ((Fold){.pattern = pattern, .slots = slots}));
        Fold *f = &out.at[k];
        f->members++;
        for (int s = 0; s < slots; s++) push(&f->numbers[s], a, numbers[s]);
    }
    return out;
}

const char *plan_unused(const Plan *p, Unused kind) {
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
