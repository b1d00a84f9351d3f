/* Exact packing from the bottom up, where choices are fewest. Every item rests at 0 or on an item below it: every
 * packing can be pushed down into one of this form. An item can be placed where nothing that is left can lie below it;
 * of all such places the search takes the one with the fewest choices. An item that was tried in vain has to rest on
 * something else. Relies on: exact_search.h. Relied on by: exact.c. */
#include "exact_search.h"

typedef struct {
    int *at, n;
    bool *in;
} Queue;

struct ExactBottomUp {
    ExactSearch *x;
    ExactLog log;
    int64_t *rest; /* by item: the top of what is placed below it, aligned */
    /* by item: it cannot lie lower. It waits while this is above `rest`: something must come below it */
    int64_t *least;
    int *support;   /* by waiting item: one that may come below it */
    int64_t *floor; /* by section: the smallest `least` of its items that are left */
    int64_t *low;   /* by section: an item with that */
    int64_t *left;  /* by section: bytes that are not placed */
    uint64_t *open; /* bit set of items that are not placed */
    int *order;     /* placed items as they came */
    int nplaced;
    int *next_twin;        /* by item: the one after it that is its equal in everything, or -1 */
    double *weight;        /* by section: how often what was left did not fit */
    int *rank;             /* by item: which comes first at one place */
    int round;             /* -1: the caller's guess comes first */
    Queue items, sections; /* whose consequences are to be drawn */
    /* scratch */
    ExactRanked *ranked;
    int64_t *key; /* by item */
    int *late;    /* items */
    int *count;   /* by section */
    int *lists, used;
    int64_t *steps, limit;
};

ExactBottomUp *exact_bottom_up_new(ExactSearch *x) {
    ExactBottomUp *b = NEW(x->a, ExactBottomUp);
    int n = x->n, m = x->nsections;
    b->x = x;
    b->log.a = x->a;
    b->rest = NEW_ARRAY(x->a, int64_t, n);
    b->least = NEW_ARRAY(x->a, int64_t, n);
    b->support = NEW_ARRAY(x->a, int, n);
    b->floor = NEW_ARRAY(x->a, int64_t, m);
    b->low = NEW_ARRAY(x->a, int64_t, m);
    b->left = NEW_ARRAY(x->a, int64_t, m);
    b->open = NEW_ARRAY(x->a, uint64_t, x->words);
    b->order = NEW_ARRAY(x->a, int, n);
    b->next_twin = NEW_ARRAY(x->a, int, n);
    b->weight = NEW_ARRAY(x->a, double, m);
    b->rank = NEW_ARRAY(x->a, int, n);
    b->items = (Queue){NEW_ARRAY(x->a, int, n), 0, NEW_ARRAY(x->a, bool, n)};
    b->sections = (Queue){NEW_ARRAY(x->a, int, m), 0, NEW_ARRAY(x->a, bool, m)};
    b->ranked = NEW_ARRAY(x->a, ExactRanked, n);
    b->key = NEW_ARRAY(x->a, int64_t, n);
    b->late = NEW_ARRAY(x->a, int, n);
    b->count = NEW_ARRAY(x->a, int, m);
    b->lists = NEW_ARRAY(x->a, int, (n + 4) * (2 * n + 4));
    for (int i = 0; i < n; i++) {
        const ExactItem *item = &x->items[i];
        exact_add(b->open, i);
        b->support[i] = b->next_twin[i] = -1;
        if (x->twin[i] >= 0) b->next_twin[x->twin[i]] = i;
        for (int k = 0; k < item->nsections; k++) b->left[item->sections[k]] += item->size;
        if (item->at != x->items[0].at) b->round = -1;
    }
    return b;
}

static void wake(Queue *q, int i) {
    if (q->in[i]) return;
    q->in[i] = true;
    q->at[q->n++] = i;
}
static void empty(Queue *q) {
    while (q->n) q->in[q->at[--q->n]] = false;
}
static bool waits(const ExactBottomUp *b, int i) {
    return b->least[i] > b->rest[i];
}
static int64_t top_of(const ExactBottomUp *b, int i) {
    return b->least[i] + b->x->items[i].size;
}
static int last_section(const ExactBottomUp *b, int i) {
    return b->x->items[i].sections[b->x->items[i].nsections - 1];
}
static int *take_list(ExactBottomUp *b, int n) {
    int *at = b->lists + b->used;
    b->used += n;
    return at;
}

/* ── orders ────────────────────────────────────────────────────────────────────────────────────────────────── */
/* First in the order of the offsets that the caller guesses, if any. Then three orders in turn: by life, by what the
 * item's fullest section holds and then area, by that and then life. After one round of each they are disturbed: in
 * turn a little, or much. */
static void choose_order(ExactBottomUp *b) {
    ExactSearch *x = b->x;
    int kind = b->round % 3;
    for (int i = 0; i < x->n; i++) {
        const ExactItem *item = &x->items[i];
        double full = 0, noise = b->round < 3 ? 1 : 1 + exact_random(x, 1000) / (b->round / 3 % 2 ? 1000.0 : 4000.0);
        for (int k = 0; k < item->nsections; k++)
            if ((double)b->left[item->sections[k]] > full) full = (double)b->left[item->sections[k]];
        double life = item->nsections * noise, area = life * (double)item->size;
        if (b->round < 0)
            b->ranked[i] = (ExactRanked){{-(double)item->at, life}, i};
        else
            b->ranked[i] = (ExactRanked){{kind == 0 ? life : full, kind == 2 ? life : area}, i};
    }
    exact_rank(b->ranked, x->n, b->rank);
    for (int s = 0; s < x->nsections; s++) b->weight[s] *= 0.8;
    b->round++;
}

/* ── what follows ──────────────────────────────────────────────────────────────────────────────────────────── */
static bool raise_least(ExactBottomUp *b, int i, int64_t to) {
    int64_t alignment = b->x->items[i].alignment;
    if (alignment > 1) to = round_up(to, alignment);
    if (to <= b->least[i]) return false;
    exact_set(&b->log, &b->least[i], to);
    return true;
}

/* An item was placed or raised: the sections to look at. Not at `done`. Of equal items the first lies lowest. */
static void follow_item(ExactBottomUp *b, int i, int done) {
    const ExactItem *item = &b->x->items[i];
    bool open = exact_has(b->open, i);
    int64_t room = open ? b->x->capacity - b->least[i] : INT64_MAX;
    for (int k = 0; k < item->nsections; k++) {
        int s = item->sections[k];
        if (s != done && (b->left[s] > room || (b->low[s] == i && b->left[s]))) wake(&b->sections, s);
    }
    *b->steps += item->nsections;
    int twin = b->next_twin[i];
    if (open && twin >= 0 && exact_has(b->open, twin) && raise_least(b, twin, top_of(b, i))) wake(&b->items, twin);
}

/* Whether late items, none of which can lie at or below capacity - left, still fit above where they may begin. */
static bool late_fit(ExactBottomUp *b, int n) {
    for (int k = 1; k < n; k++) {
        int i = b->late[k], j = k;
        for (; j > 0 && b->least[b->late[j - 1]] < b->least[i]; j--) b->late[j] = b->late[j - 1];
        b->late[j] = i;
    }
    int64_t sum = 0;
    *b->steps += 2 * n;
    for (int k = 0; k < n; k++) {
        sum += b->x->items[b->late[k]].size;
        if (b->least[b->late[k]] + sum > b->x->capacity) return false;
    }
    return true;
}

/* The floor of a section. False where what is left does not fit above it, or some of it not above where it may begin.
 * An item that is too late to be the lowest lies on one of the others. */
static bool follow_section(ExactBottomUp *b, int s) {
    ExactSearch *x = b->x;
    int64_t low = INT64_MAX, line = x->capacity - b->left[s], top = INT64_MAX, second = INT64_MAX, sum = 0, high = 0;
    int lowest = -1, first = -1, nlate = 0;
    *b->steps += 2 * x->nmembers[s];
    for (int k = 0; k < x->nmembers[s]; k++) {
        int i = x->members[s][k];
        if (!exact_has(b->open, i)) continue;
        int64_t at = b->least[i], end = at + x->items[i].size;
        if (at < low) {
            low = at;
            lowest = i;
        }
        if (end < top) {
            second = top;
            top = end;
            first = i;
        } else {
            second = min64(second, end);
        }
        if (at <= line) continue;
        b->late[nlate++] = i;
        sum += x->items[i].size;
        high = max64(high, at);
    }
    if (lowest < 0) return true;
    if (b->low[s] != lowest) exact_set(&b->log, &b->low[s], lowest);
    if (b->floor[s] != low) exact_set(&b->log, &b->floor[s], low);
    if (low > line || (high + sum > x->capacity && !late_fit(b, nlate))) {
        b->weight[s]++;
        return false;
    }
    for (int k = 0; k < nlate; k++)
        if (raise_least(b, b->late[k], b->late[k] == first ? second : top)) follow_item(b, b->late[k], s);
    return true;
}

/* False where something no longer fits, or where the steps are used up: floors may rise by little, millions of times.
 */
static bool follow(ExactBottomUp *b) {
    for (;;) {
        if (*b->steps > b->limit) return false;
        if (b->items.n) {
            int i = b->items.at[--b->items.n];
            b->items.in[i] = false;
            follow_item(b, i, -1);
        } else if (b->sections.n) {
            int s = b->sections.at[--b->sections.n];
            b->sections.in[s] = false;
            if (!follow_section(b, s)) return false;
        } else {
            return true;
        }
    }
}

/* A waiting item lies on one that is left, at or above its top. False: none is. */
static bool find_support(ExactBottomUp *b, int i) {
    int w = b->support[i];
    if (w >= 0 && exact_has(b->open, w) && top_of(b, w) <= b->least[i]) return true;
    int64_t least = INT64_MAX;
    const uint64_t *others = &b->x->conflicts[(size_t)i * (size_t)b->x->words];
    for (int v = 0; v < b->x->words && least > b->least[i]; v++)
        for (uint64_t bits = others[v] & b->open[v]; bits; bits &= bits - 1) {
            int k = v * 64 + __builtin_ctzll(bits);
            ++*b->steps;
            if (top_of(b, k) >= least) continue;
            least = top_of(b, k);
            b->support[i] = k;
        }
    if (least == INT64_MAX) return false;
    if (raise_least(b, i, least)) wake(&b->items, i);
    return true;
}

/* Waiting items may seem to support each other. Raises each to where it may lie on items that do not wait, or on
 * waiting ones that lie on such in turn, lowest first. */
static void ground(ExactBottomUp *b, const int *list, int n) {
    int used = b->used, *waiting = take_list(b, n), m = 0;
    for (int k = 0; k < n; k++)
        if (waits(b, list[k])) waiting[m++] = list[k];
    for (int k = 0; k < m; k++) {
        int i = waiting[k];
        const uint64_t *others = &b->x->conflicts[(size_t)i * (size_t)b->x->words];
        b->key[i] = INT64_MAX;
        *b->steps += n;
        for (int j = 0; j < n; j++)
            if (exact_has(others, list[j]) && !waits(b, list[j])) b->key[i] = min64(b->key[i], top_of(b, list[j]));
    }
    while (m) {
        int k = 0;
        for (int j = 1; j < m; j++)
            if (max64(b->key[waiting[j]], b->least[waiting[j]]) < max64(b->key[waiting[k]], b->least[waiting[k]]))
                k = j;
        int i = waiting[k];
        waiting[k] = waiting[--m];
        if (raise_least(b, i, min64(b->key[i], b->x->capacity))) wake(&b->items, i);
        const uint64_t *others = &b->x->conflicts[(size_t)i * (size_t)b->x->words];
        for (int j = 0; j < m; j++)
            if (exact_has(others, waiting[j])) b->key[waiting[j]] = min64(b->key[waiting[j]], top_of(b, i));
        *b->steps += 4 * m + 1;
    }
    b->used = used;
}

/* ── search ────────────────────────────────────────────────────────────────────────────────────────────────── */
/* Places an item where it rests; whether something is left above it. */
static bool put(ExactBottomUp *b, int i) {
    ExactSearch *x = b->x;
    ExactItem *item = &x->items[i];
    int64_t top = b->rest[i] + item->size;
    bool covered = false;
    *b->steps += item->nsections + x->words;
    for (int k = 0; k < item->nsections; k++) {
        int s = item->sections[k];
        b->left[s] -= item->size;
        covered |= b->left[s] > 0;
    }
    b->open[i >> 6] &= ~(1ull << (i & 63));
    b->order[b->nplaced++] = i;
    item->at = b->rest[i];
    wake(&b->items, i);
    const uint64_t *others = &x->conflicts[(size_t)i * (size_t)x->words];
    for (int w = 0; w < x->words; w++)
        for (uint64_t bits = others[w] & b->open[w]; bits; bits &= bits - 1) {
            int k = w * 64 + __builtin_ctzll(bits);
            ++*b->steps;
            if (b->rest[k] >= top) continue;
            exact_set(&b->log, &b->rest[k], round_up(top, x->items[k].alignment));
            if (raise_least(b, k, top)) wake(&b->items, k);
        }
    return covered;
}

/* Takes back all but the first `nplaced` placed items, and the changes of the log after `mark`. */
static void take_back(ExactBottomUp *b, int nplaced, int mark) {
    empty(&b->items);
    empty(&b->sections);
    exact_undo(&b->log, mark);
    while (b->nplaced > nplaced) {
        int i = b->order[--b->nplaced];
        const ExactItem *item = &b->x->items[i];
        for (int k = 0; k < item->nsections; k++) b->left[item->sections[k]] += item->size;
        exact_add(b->open, i);
    }
}

/* Whether nothing that is left can lie below an item. */
static bool may_come_next(ExactBottomUp *b, int i) {
    const ExactItem *item = &b->x->items[i];
    if (waits(b, i)) return false;
    int k = 0;
    while (k < item->nsections && b->floor[item->sections[k]] == b->least[i]) k++;
    *b->steps += k;
    return k == item->nsections;
}

/* The items that may come next in a section, into `next`, if all that lie at its floor are such; how many. */
static int next_in(ExactBottomUp *b, int s, int *next) {
    int n = 0, at_floor = 0;
    *b->steps += b->x->nmembers[s];
    for (int k = 0; k < b->x->nmembers[s]; k++) {
        int i = b->x->members[s][k], j = n;
        if (!exact_has(b->open, i) || b->least[i] != b->floor[s]) continue;
        at_floor++;
        if (!may_come_next(b, i)) break;
        for (; j > 0 && b->rank[next[j - 1]] > b->rank[i]; j--) next[j] = next[j - 1];
        next[j] = i;
        n++;
    }
    return n == at_floor ? n : 0;
}

/* Where to go on: in the section with the fewest choices for how often it failed (Boussemart et al. 2004), which are
 * the items that may come next, and none of them where there is room for a hole. The items, into `next`, in order of
 * their ranks; how many, and 0 where every lowest item waits. */
static int choose_next(ExactBottomUp *b, const int *list, int n, int from, int to, int *next) {
    ExactSearch *x = b->x;
    int64_t smallest = INT64_MAX;
    for (int s = from; s <= to; s++) b->count[s] = 0;
    *b->steps += 2 * n + 4 * (to - from);
    for (int k = 0; k < n; k++) {
        const ExactItem *item = &x->items[list[k]];
        smallest = min64(smallest, item->size);
        if (!may_come_next(b, list[k])) continue;
        bool covered = false;
        for (int j = 0; j < item->nsections; j++) {
            b->count[item->sections[j]]++;
            covered |= b->left[item->sections[j]] != item->size;
        }
        *b->steps += item->nsections;
        next[0] = list[k];
        if (!covered) return 1; /* nothing can lie above it either */
    }
    for (;;) {
        int best = -1;
        double least = 1e300;
        for (int s = from; s <= to; s++) {
            if (!b->count[s]) continue;
            int choices = b->count[s] + (b->floor[s] + b->left[s] + smallest <= x->capacity);
            double cost = choices == 1 ? 0 : choices / (1 + b->weight[s]);
            if (cost >= least) continue;
            least = cost;
            best = s;
        }
        int found = best < 0 ? 0 : next_in(b, best, next);
        if (found || best < 0) return found;
        b->count[best] = 0;
    }
}

static ExactResult place_rest(ExactBottomUp *b, const int *list, int n);

/* What is left, cut where no life crosses; the smallest part first, as it fails soonest. */
static ExactResult place_parts(ExactBottomUp *b, const int *list, int n) {
    int *cuts = take_list(b, n + 1), parts = exact_cut(b->x, list, n, cuts);
    *b->steps += 2 * n;
    for (int done = 0, above = 0; done < parts;) { /* every part of the next larger size */
        int next = above = exact_larger_part(cuts, parts, above);
        for (int p = 0; p < parts; p++) {
            if (cuts[p + 1] - cuts[p] != next) continue;
            ExactResult r = place_rest(b, list + cuts[p], next);
            if (r != EXACT_FOUND) return r;
            done++;
        }
    }
    return EXACT_FOUND;
}

/* Places the items of a list, in order of their first section. What it placed stays where it succeeds. */
static ExactResult place_rest(ExactBottomUp *b, const int *list, int n) {
    int used = b->used, *rest = take_list(b, n), *next = take_list(b, n), inner = b->used;
    int mark = b->log.changes.n, nplaced = b->nplaced, to = -1;
    for (int k = 0; k < n; k++)
        if (last_section(b, list[k]) > to) to = last_section(b, list[k]);
    ExactResult result = EXACT_IMPOSSIBLE;
    bool again = true; /* there are choices that were not tried */
    while (again) {
        bool settled = follow(b);
        *b->steps += n;
        for (int k = 0; settled && k < n; k++) settled = !waits(b, list[k]) || find_support(b, list[k]);
        settled = settled && follow(b);
        if (*b->steps > b->limit) {
            result = EXACT_UNKNOWN;
            break;
        }
        if (!settled) break;
        int nnext = choose_next(b, list, n, b->x->items[list[0]].sections[0], to, next);
        if (!nnext) ground(b, list, n);
        for (int c = 0; c < nnext && again; c++) {
            int i = next[c], left = 0, here = b->log.changes.n;
            bool covered = put(b, i);
            for (int k = 0; k < n; k++)
                if (list[k] != i) rest[left++] = list[k];
            result = place_parts(b, rest, left);
            b->used = inner;
            if (result == EXACT_FOUND) break;
            take_back(b, nplaced, here);
            /* with nothing above it, to place it later changes nothing */
            again = result == EXACT_IMPOSSIBLE && covered;
            raise_least(b, i, b->rest[i] + 1);
            for (int k = 0; k <= c; k++) wake(&b->items, next[k]);
        }
        if (result == EXACT_FOUND) break;
    }
    b->used = used;
    if (result != EXACT_FOUND) take_back(b, nplaced, mark);
    return result;
}

ExactResult exact_bottom_up(ExactBottomUp *b, int64_t *steps, int64_t limit) {
    ExactSearch *x = b->x;
    b->steps = steps;
    b->limit = limit;
    choose_order(b);
    int *list = take_list(b, x->n);
    for (int i = 0; i < x->n; i++) {
        list[i] = i;
        wake(&b->items, i);
    }
    for (int s = 0; s < x->nsections; s++) wake(&b->sections, s);
    ExactResult r = place_parts(b, list, x->n);
    b->used = 0;
    take_back(b, 0, 0);
    return r;
}
