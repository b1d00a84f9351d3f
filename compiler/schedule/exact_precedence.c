/* Exact packing by precedence: a section is a machine, an item a job that runs on all machines of its sections at once,
 * and its size is the time that it takes there. The search decides which item lies lowest, or highest, of those of a
 * section that are not in order yet. It decides first where few can, and where it failed often (Boussemart et al.
 * 2004). What follows for other pairs is propagated as in job-shop scheduling (Carlier and Pinson 1989). Relies on:
 * exact_search.h. Relied on by: exact.c. */
#include "exact_search.h"

#include <stdlib.h>

typedef enum { LOWEST, HIGHEST, N_ENDS } End;

typedef struct {
    int mark; /* of the log, before it */
    int section, item;
    End end;
} Decision;

typedef struct {
    int *at, n;
    bool *in;
} Queue;

struct ExactPrecedence {
    ExactSearch *x;
    ExactLog log;
    int64_t *first, *last;    /* by item: its offset is between them */
    int64_t *below, *above;   /* bit sets by item: those that lie below it, above it */
    int64_t *open;            /* bit sets by section: its items that are not in order yet */
    int64_t * not [N_ENDS];   /* bit sets by section: open ones that were tried at that end in vain */
    int64_t *nopen, *total;   /* by section: how many are open, and their bytes */
    int64_t *choices[N_ENDS]; /* by section: how many may be next at that end */
    int64_t *height[N_ENDS];  /* by section: where the open ones may begin and must end */
    double *weight;           /* by section: failures */
    double *life;             /* by item: which of those that lie equally low comes first */
    Queue items, sections;
    int *next[N_ENDS], nnext[N_ENDS]; /* scratch: open items that may be next at each end */
    VEC(Decision) decisions;
    int64_t *steps;
    bool stated; /* the root has been propagated */
    int rounds;
};

static uint64_t *bits_of(const ExactPrecedence *p, int64_t *sets, int i) {
    return (uint64_t *)&sets[(size_t)i * (size_t)p->x->words];
}
static const uint64_t *conflicts_of(const ExactPrecedence *p, int i) {
    return &p->x->conflicts[(size_t)i * (size_t)p->x->words];
}
static void set_bit(ExactPrecedence *p, int64_t *sets, int i, int k, bool on) {
    int64_t *cell = &sets[(size_t)i * (size_t)p->x->words + (size_t)(k >> 6)];
    uint64_t bit = 1ull << (k & 63);
    exact_set(&p->log, cell, (int64_t)(on ? (uint64_t)*cell | bit : (uint64_t)*cell & ~bit));
}
/* Runs for every i of a set that `word` gives for w. */
#define EACH_BIT(p, i, word)                                                                                           \
    for (int w = 0; w < (p)->x->words; w++)                                                                            \
        for (uint64_t left_ = (word); left_; left_ &= left_ - 1)                                                       \
            for (int i = w * 64 + __builtin_ctzll(left_), once_ = 1; once_; once_ = 0)

static void wake(Queue *q, int i) {
    if (q->in[i]) return;
    q->in[i] = true;
    q->at[q->n++] = i;
}
static void empty(Queue *q) {
    while (q->n) q->in[q->at[--q->n]] = false;
}

/* ── what follows ──────────────────────────────────────────────────────────────────────────────────────────── */
static bool raise_first(ExactPrecedence *p, int i, int64_t to) {
    to = round_up(to, p->x->items[i].alignment);
    if (to <= p->first[i]) return true;
    if (to > p->last[i]) return false;
    exact_set(&p->log, &p->first[i], to);
    wake(&p->items, i);
    return true;
}

static bool lower_last(ExactPrecedence *p, int i, int64_t to) {
    if (to >= p->last[i]) return true;
    if (to < p->first[i]) return false;
    to -= to % p->x->items[i].alignment;
    if (to < p->first[i]) return false;
    exact_set(&p->log, &p->last[i], to);
    wake(&p->items, i);
    return true;
}

/* i lies below k, and so does all that lies below i, and below all that lies above k. False: that cannot be. */
static bool put_below(ExactPrecedence *p, int i, int k) {
    uint64_t *below_k = bits_of(p, p->below, k), *above_i = bits_of(p, p->above, i);
    if (exact_has(below_k, i)) return true;
    if (exact_has(above_i, k) || exact_has(bits_of(p, p->below, i), k)) return false;
    set_bit(p, p->below, k, i, true);
    set_bit(p, p->above, i, k, true);
    *p->steps += 4 * p->x->words;
    if (!raise_first(p, k, p->first[i] + p->x->items[i].size)) return false;
    if (!lower_last(p, i, p->last[k] - p->x->items[i].size)) return false;
    wake(&p->items, i);
    wake(&p->items, k);
    EACH_BIT(p, j, bits_of(p, p->below, i)[w] & conflicts_of(p, k)[w] & ~below_k[w])
    if (!put_below(p, j, k)) return false;
    EACH_BIT(p, j, bits_of(p, p->above, k)[w] & conflicts_of(p, i)[w] & ~above_i[w])
    if (!put_below(p, i, j)) return false;
    return true;
}

/* From where an item may lie: those above and below it move, and pairs that fit in one order alone get it. */
static bool propagate_item(ExactPrecedence *p, int i) {
    const ExactItem *items = p->x->items;
    int64_t size = items[i].size;
    *p->steps += 8 * p->x->words;
    EACH_BIT(p, k, bits_of(p, p->above, i)[w]) {
        ++*p->steps;
        if (!raise_first(p, k, p->first[i] + size)) return false;
    }
    EACH_BIT(p, k, bits_of(p, p->below, i)[w]) {
        ++*p->steps;
        if (!lower_last(p, k, p->last[i] - items[k].size)) return false;
    }
    EACH_BIT(p, k, conflicts_of(p, i)[w] & ~bits_of(p, p->above, i)[w] & ~bits_of(p, p->below, i)[w]) {
        bool lower = p->first[i] + size <= p->last[k], higher = p->first[k] + items[k].size <= p->last[i];
        *p->steps += 2;
        if (!lower && !(higher && put_below(p, k, i))) return false;
        if (lower && !higher && !put_below(p, i, k)) return false;
    }
    for (int k = 0; k < items[i].nsections; k++)
        if (p->nopen[items[i].sections[k]]) wake(&p->sections, items[i].sections[k]);
    return true;
}

static bool meets(const ExactPrecedence *p, const uint64_t *a, const uint64_t *b) {
    for (int w = 0; w < p->x->words; w++)
        if (a[w] & b[w]) return true;
    return false;
}

/* Which open items may be next at the ends of a section; false where they do not fit or none may be. */
static bool find_next(ExactPrecedence *p, int s) {
    const ExactItem *items = p->x->items;
    uint64_t *open = bits_of(p, p->open, s);
    int64_t low = INT64_MAX, high = 0;
    EACH_BIT(p, i, open[w]) {
        low = min64(low, p->first[i]);
        high = max64(high, p->last[i] + items[i].size);
    }
    *p->steps += 4 * p->nopen[s] + p->x->words;
    p->nnext[LOWEST] = p->nnext[HIGHEST] = 0;
    if (low + p->total[s] > high) return false;
    EACH_BIT(p, i, open[w]) {
        if (p->first[i] + p->total[s] <= high && !exact_has(bits_of(p, p->not [LOWEST], s), i) &&
            !meets(p, bits_of(p, p->below, i), open))
            p->next[LOWEST][p->nnext[LOWEST]++] = i;
        if (p->last[i] + items[i].size - p->total[s] >= low && !exact_has(bits_of(p, p->not [HIGHEST], s), i) &&
            !meets(p, bits_of(p, p->above, i), open))
            p->next[HIGHEST][p->nnext[HIGHEST]++] = i;
    }
    exact_set(&p->log, &p->choices[LOWEST][s], p->nnext[LOWEST]);
    exact_set(&p->log, &p->choices[HIGHEST][s], p->nnext[HIGHEST]);
    exact_set(&p->log, &p->height[LOWEST][s], low);
    exact_set(&p->log, &p->height[HIGHEST][s], high);
    return p->nnext[LOWEST] && p->nnext[HIGHEST];
}

/* Item i is the lowest, or the highest, of the open ones of section s, and is open no longer. */
static bool decide(ExactPrecedence *p, int s, int i, End end) {
    set_bit(p, p->open, s, i, false);
    exact_set(&p->log, &p->nopen[s], p->nopen[s] - 1);
    exact_set(&p->log, &p->total[s], p->total[s] - p->x->items[i].size);
    int64_t *not = &p->not [end][(size_t)s * (size_t)p->x->words];
    for (int w = 0; w < p->x->words; w++)
        if (not [w]) exact_set(&p->log, &not [w], 0);
    wake(&p->sections, s);
    EACH_BIT(p, k, bits_of(p, p->open, s)[w])
    if (!(end == LOWEST ? put_below(p, i, k) : put_below(p, k, i))) return false;
    return true;
}

/* Where the open items of a section may lie. An item lies above all those of the section that are known to be below it,
 * and one that cannot be the lowest lies above one that can. */
static bool tighten(ExactPrecedence *p, int s) {
    const ExactItem *items = p->x->items;
    int64_t top = INT64_MAX, bottom = -1; /* the least end of what may be lowest; the greatest start of the highest */
    for (int k = 0; k < p->nnext[LOWEST]; k++) {
        int i = p->next[LOWEST][k];
        top = min64(top, p->first[i] + items[i].size);
    }
    for (int k = 0; k < p->nnext[HIGHEST]; k++) bottom = max64(bottom, p->last[p->next[HIGHEST][k]]);
    int64_t low = p->height[LOWEST][s], high = p->height[HIGHEST][s];
    uint64_t *open = bits_of(p, p->open, s);
    int lowest = 0, highest = 0; /* of the lists of what may be next, which are in the order of items */
    EACH_BIT(p, i, open[w]) {
        int64_t under = low, over = high;
        for (int v = 0; v < p->x->words; v++) {
            for (uint64_t b = bits_of(p, p->below, i)[v] & open[v]; b; b &= b - 1)
                under += items[v * 64 + __builtin_ctzll(b)].size;
            for (uint64_t b = bits_of(p, p->above, i)[v] & open[v]; b; b &= b - 1)
                over -= items[v * 64 + __builtin_ctzll(b)].size;
        }
        if (lowest < p->nnext[LOWEST] && p->next[LOWEST][lowest] == i)
            lowest++;
        else
            under = max64(under, top);
        if (highest < p->nnext[HIGHEST] && p->next[HIGHEST][highest] == i)
            highest++;
        else
            over = min64(over, bottom);
        *p->steps += 2 * p->x->words + 4;
        if (!raise_first(p, i, under) || !lower_last(p, i, over - items[i].size)) return false;
    }
    return true;
}

static bool propagate_section(ExactPrecedence *p, int s) {
    while (p->nopen[s] > 1) {
        if (!find_next(p, s)) return false;
        if (p->nnext[LOWEST] > 1 && p->nnext[HIGHEST] > 1) return tighten(p, s);
        End end = p->nnext[LOWEST] == 1 ? LOWEST : HIGHEST;
        if (!decide(p, s, p->next[end][0], end)) return false;
    }
    return true;
}

static bool propagate(ExactPrecedence *p) {
    for (;;) {
        if (p->items.n) {
            int i = p->items.at[--p->items.n];
            p->items.in[i] = false;
            if (propagate_item(p, i)) continue;
            const ExactItem *item = &p->x->items[i];
            for (int k = 0; k < item->nsections; k++) p->weight[item->sections[k]] += 1.0 / item->nsections;
        } else if (p->sections.n) {
            int s = p->sections.at[--p->sections.n];
            p->sections.in[s] = false;
            if (propagate_section(p, s)) continue;
            p->weight[s]++;
        } else {
            return true;
        }
        empty(&p->items);
        empty(&p->sections);
        return false;
    }
}

/* ── search ────────────────────────────────────────────────────────────────────────────────────────────────── */
/* The section and end to decide next. lowest_first: near the ends of the capacity first. False: all is in order. */
static bool choose(ExactPrecedence *p, bool lowest_first, Decision *d) {
    double best = 1e300;
    for (int s = 0; s < p->x->nsections; s++) {
        if (p->nopen[s] < 2) continue;
        for (End end = LOWEST; end <= (lowest_first ? HIGHEST : LOWEST); end++) {
            double far = (double)(end == LOWEST ? p->height[LOWEST][s] : p->x->capacity - p->height[HIGHEST][s]);
            double choices = (double)p->choices[end][s];
            double cost = lowest_first ? choices + 10 * far / (double)p->x->capacity : choices / p->weight[s];
            if (cost >= best) continue;
            best = cost;
            d->section = s;
            d->end = end;
        }
    }
    *p->steps += p->x->nsections;
    if (best == 1e300) return false;
    find_next(p, d->section);
    const int *next = p->next[d->end];
    d->item = next[0];
    for (int k = 1; k < p->nnext[d->end]; k++) {
        int i = next[k], j = d->item;
        int64_t more = d->end == LOWEST ? p->first[j] - p->first[i]
                                        : p->last[i] + p->x->items[i].size - p->last[j] - p->x->items[j].size;
        if (more > 0 || (more == 0 && p->life[i] > p->life[j])) d->item = i;
    }
    return true;
}

/* Goes back to the last decision and takes the opposite of it: the item is not next at that end. */
static bool revise(ExactPrecedence *p) {
    if (!p->decisions.n) return false;
    Decision d = p->decisions.at[--p->decisions.n];
    exact_undo(&p->log, d.mark);
    set_bit(p, p->not [d.end], d.section, d.item, true);
    wake(&p->sections, d.section);
    return true;
}

ExactPrecedence *exact_precedence_new(ExactSearch *x) {
    ExactPrecedence *p = NEW(x->a, ExactPrecedence);
    int words = x->words, n = x->n, m = x->nsections;
    p->x = x;
    p->log.a = x->a;
    p->first = NEW_ARRAY(x->a, int64_t, n);
    p->last = NEW_ARRAY(x->a, int64_t, n);
    p->below = NEW_ARRAY(x->a, int64_t, (size_t)n * (size_t)words);
    p->above = NEW_ARRAY(x->a, int64_t, (size_t)n * (size_t)words);
    p->open = NEW_ARRAY(x->a, int64_t, (size_t)m * (size_t)words);
    p->nopen = NEW_ARRAY(x->a, int64_t, m);
    p->total = NEW_ARRAY(x->a, int64_t, m);
    for (int end = 0; end < N_ENDS; end++) {
        p->not [end] = NEW_ARRAY(x->a, int64_t, (size_t)m * (size_t)words);
        p->choices[end] = NEW_ARRAY(x->a, int64_t, m);
        p->height[end] = NEW_ARRAY(x->a, int64_t, m);
        p->next[end] = NEW_ARRAY(x->a, int, n);
    }
    p->weight = NEW_ARRAY(x->a, double, m);
    p->life = NEW_ARRAY(x->a, double, n);
    p->items = (Queue){NEW_ARRAY(x->a, int, n), 0, NEW_ARRAY(x->a, bool, n)};
    p->sections = (Queue){NEW_ARRAY(x->a, int, m), 0, NEW_ARRAY(x->a, bool, m)};
    for (int s = 0; s < m; s++) {
        p->weight[s] = 1;
        p->nopen[s] = x->nmembers[s];
        for (int k = 0; k < x->nmembers[s]; k++) {
            exact_add(bits_of(p, p->open, s), x->members[s][k]);
            p->total[s] += x->items[x->members[s][k]].size;
        }
    }
    return p;
}

/* What holds whatever is decided. Twins are put in order: to swap them changes nothing. */
static bool state_root(ExactPrecedence *p) {
    ExactSearch *x = p->x;
    for (int i = 0; i < x->n; i++) {
        int64_t last = x->capacity - x->items[i].size;
        if (last < 0) return false;
        p->last[i] = last - last % x->items[i].alignment;
        wake(&p->items, i);
    }
    for (int s = 0; s < x->nsections; s++) wake(&p->sections, s);
    for (int i = 0; i < x->n; i++)
        if (x->twin[i] >= 0 && !put_below(p, x->twin[i], i)) return false;
    return propagate(p);
}

ExactResult exact_precedence(ExactPrecedence *p, bool lowest_first, int64_t *steps, int64_t limit) {
    ExactSearch *x = p->x;
    p->steps = steps;
    if (!p->stated && !state_root(p)) return EXACT_IMPOSSIBLE;
    p->stated = true;
    int root = p->log.changes.n;
    for (int s = 0; s < x->nsections; s++) p->weight[s] = 1 + (p->weight[s] - 1) * 0.9;
    for (int i = 0; i < x->n; i++)
        p->life[i] = x->items[i].nsections * (1 + (p->rounds ? exact_random(x, 1000) / 1000.0 : 0));
    p->rounds++;
    ExactResult result = EXACT_UNKNOWN;
    while (result == EXACT_UNKNOWN && *steps <= limit) {
        Decision d;
        if (!choose(p, lowest_first, &d)) {
            result = EXACT_FOUND;
            break;
        }
        d.mark = p->log.changes.n;
        push(&p->decisions, x->a, d);
        bool ok = decide(p, d.section, d.item, d.end);
        if (!ok) {
            p->weight[d.section]++;
            empty(&p->items);
            empty(&p->sections);
        }
        while (!(ok && propagate(p))) {
            ok = revise(p);
            if (!ok) return EXACT_IMPOSSIBLE;
        }
    }
    if (result == EXACT_FOUND)
        for (int i = 0; i < x->n; i++) x->items[i].at = p->first[i];
    p->decisions.n = 0;
    exact_undo(&p->log, root);
    return result;
}
