/* chain: the fastest way to run a chain of blocks within a budget of bytes, and a bound on it.
 * Relies on: chain.h.
 * Relied on by: planner.c. A moment is the forward or the backward of a block, or the time between forward and
 * backward. */
#include "chain.h"

#include <math.h>
#include <stdlib.h>

static int64_t need(const ChainOption *o) { /* both happen with the same other blocks' bytes kept: the earlier ones' */
    return max64(o->forward, o->backward);
}

int64_t chain_peak(const Chain *c, const int *choice) {
    int64_t kept = 0, peak = 0;
    for (int i = 0; i < c->n; i++) {
        const ChainOption *o = &c->blocks[i].options[choice[i]];
        peak = max64(peak, kept + need(o));
        kept += o->kept;
    }
    return max64(peak, kept + c->between);
}

double chain_us(const Chain *c, const int *choice) {
    double us = 0;
    for (int i = 0; i < c->n; i++) us += c->blocks[i].options[choice[i]].us;
    return us;
}

/* room[i]: the most that blocks before i may keep so that some choice of the others fits. False: not even 0 bytes. */
static bool find_room(const Chain *c, int64_t budget, int64_t *room) {
    room[c->n] = budget - c->between;
    for (int i = c->n - 1; i >= 0; i--) {
        room[i] = INT64_MIN;
        for (int k = 0; k < c->blocks[i].n; k++) {
            const ChainOption *o = &c->blocks[i].options[k];
            room[i] = max64(room[i], min64(budget - need(o), room[i + 1] - o->kept));
        }
    }
    return room[0] >= 0;
}

int64_t chain_least(const Chain *c) {
    Arena *a = arena_new();
    int64_t *room = NEW_ARRAY(a, int64_t, c->n + 1);
    find_room(c, 0, room); /* every room grows with the budget byte for byte */
    int64_t least = max64(0, -room[0]);
    arena_free(a);
    return least;
}

/* ── the bound ──────────────────────────────────────────────────────────────────────────────────────────────────── */
/* One moment: blocks before `at` keep their bytes; block `at` needs what it does; at == n: between. */
typedef struct {
    const Chain *c;
    int64_t budget;
    int at;
} Row;

/* The Lagrangian's value: a bound for any price of a byte and of a microsecond of bus that is not negative. */
static double priced(const Row *r, double byte, double bus) {
    const Chain *c = r->c;
    double sum = -byte * (double)(r->budget - (r->at == c->n ? c->between : 0));
    if (bus > 0) sum -= bus * c->bus_us;
    double least = 0;
    for (int i = 0; i < c->n; i++) {
        const ChainBlock *b = &c->blocks[i];
        bool same = i && i != r->at && i - 1 != r->at && b->alike == b[-1].alike;
        for (int k = 0; k < b->n && !same; k++) {
            const ChainOption *o = &b->options[k];
            double bytes = i < r->at ? (double)o->kept : i == r->at ? (double)need(o) : 0;
            double cost = o->us + byte * bytes + bus * o->bus_us;
            if (!k || cost < least) least = cost;
        }
        sum += least;
    }
    return sum;
}

/* The greatest of a concave function over [0, top], by golden section; *where: the place. */
enum { FINE = 48, COARSE = 20 }; /* rounds of golden section */
static double greatest(double (*f)(const Row *, double, const void *), const Row *r, const void *extra, double top,
                       int rounds, double *where) {
    const double golden = 0.6180339887498949;
    double lo = 0, hi = top, x = hi - golden * (hi - lo), y = lo + golden * (hi - lo);
    double fx = f(r, x, extra), fy = f(r, y, extra), best = f(r, 0, extra);
    *where = 0;
    for (int round = 0; round < rounds; round++) {
        if (fx > best) best = fx, *where = x;
        if (fy > best) best = fy, *where = y;
        if (fx < fy) {
            lo = x, x = y, fx = fy;
            y = lo + golden * (hi - lo);
            fy = f(r, y, extra);
        } else {
            hi = y, y = x, fy = fx;
            x = hi - golden * (hi - lo);
            fx = f(r, x, extra);
        }
    }
    return best;
}

static double by_byte(const Row *r, double byte, const void *bus) {
    return priced(r, byte, *(const double *)bus);
}

/* No price above it changes a choice: microseconds a byte, at the row's moment. */
static double steepest_byte(const Row *r) {
    double most = 0;
    const ChainOption *last = NULL;
    for (int i = 0; i <= r->at && i < r->c->n; i++) {
        const ChainBlock *b = &r->c->blocks[i];
        for (int k = 0; k < b->n && (b->options != last || i == r->at); k++)
            for (int m = 0; m < b->n; m++) {
                const ChainOption *x = &b->options[k], *y = &b->options[m];
                int64_t fewer = i < r->at ? y->kept - x->kept : need(y) - need(x);
                if (fewer > 0 && x->us > y->us) most = fmax(most, (x->us - y->us) / (double)fewer);
            }
        last = b->options;
    }
    return 2 * most + 1e-12;
}

static double by_bus(const Row *r, double bus, const void *top) {
    double where;
    return greatest(by_byte, r, &bus, *(const double *)top, FINE, &where);
}

static bool bus_matters(const Chain *c) {
    for (int i = 0; i < c->n && isfinite(c->bus_us); i++)
        for (int k = 0; k < c->blocks[i].n; k++)
            if (c->blocks[i].options[k].bus_us > 0) return true;
    return false;
}

static double row_bound(const Row *r, double *byte) {
    double top = steepest_byte(r), none = 0;
    double best = greatest(by_byte, r, &none, top, FINE, byte);
    if (!bus_matters(r->c)) return best;
    top *= 4;
    return fmax(best, greatest(by_bus, r, &top, 4, COARSE, &none));
}

double chain_bound(const Chain *c, int64_t budget) {
    Arena *a = arena_new();
    int64_t *room = NEW_ARRAY(a, int64_t, c->n + 1);
    bool fits = find_room(c, budget, room);
    arena_free(a);
    if (!fits) return INFINITY;
    double best = 0, byte;
    int step = c->n / 8 + 1; /* of a long chain some moments speak for their neighbours */
    for (int at = c->n; at >= 0; at -= at == c->n ? 1 : step)
        best = fmax(best, row_bound(&(Row){c, budget, at}, &byte));
    return best;
}

/* ── dynamic programming ────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    int64_t kept;
    double us, bus;
    int from, option; /* the label before it, and what its block does */
} Label;
typedef VEC(Label) Labels;

static int by_kept(const void *a, const void *b) {
    const Label *x = a, *y = b;
    if (x->kept != y->kept) return x->kept < y->kept ? -1 : 1;
    if (x->us != y->us) return x->us < y->us ? -1 : 1;
    return (x->bus > y->bus) - (x->bus < y->bus);
}

/* Drops each label that another one matches in bytes, time and bus. `front` is room for as many. */
static void drop_dominated(Labels *l, Label *front) {
    int kept = 0, nfront = 0;
    if (l->n) qsort(l->at, (size_t)l->n, sizeof *l->at, by_kept);
    for (int i = 0; i < l->n; i++) {
        const Label x = l->at[i];
        bool dominated = false;
        for (int k = nfront - 1; k >= 0 && !dominated; k--) dominated = front[k].us <= x.us && front[k].bus <= x.bus;
        if (dominated) continue;
        int m = 0; /* the front: of all bytes so far, the pairs (time, bus) that no other pair matches */
        for (int k = 0; k < nfront; k++)
            if (front[k].us < x.us || front[k].bus < x.bus) front[m++] = front[k];
        front[m++] = x;
        nfront = m;
        l->at[kept++] = x;
    }
    l->n = kept;
}

/* Labels at a block: of a first run, whose result bars the way to worse ones, and of the second. */
enum { PRICES = 6, BEAM = 96, MOST_LABELS = 384 };

typedef struct {
    const Chain *c;
    int64_t budget;
    int64_t *room;
    double price[PRICES];
    double *rest[PRICES]; /* [p][i]: the least that blocks from i on add with their bytes at price p */
    double bar;           /* a choice that adds so much is known */
    Arena *a;
} Search;

/* The least that a label at block i can end with, by the moment between. */
static double outlook(const Search *s, int i, const Label *x) {
    double best = 0, room = (double)(s->budget - s->c->between - x->kept);
    for (int p = 0; p < PRICES; p++) {
        double bound = s->rest[p][i] - s->price[p] * room;
        if (bound > best) best = bound;
    }
    return x->us + best;
}

static void prepare(Search *s) {
    const Chain *c = s->c;
    double byte = 0;
    row_bound(&(Row){c, s->budget, c->n}, &byte);
    for (int p = 0; p < PRICES; p++) {
        s->price[p] = p ? byte * pow(2, p - 3) : 0; /* 0, then a quarter to four times the best price */
        s->rest[p] = NEW_ARRAY(s->a, double, c->n + 1);
        for (int i = c->n - 1; i >= 0; i--) {
            double least = INFINITY;
            for (int k = 0; k < c->blocks[i].n; k++) {
                const ChainOption *o = &c->blocks[i].options[k];
                double cost = o->us + s->price[p] * (double)o->kept;
                if (cost < least) least = cost;
            }
            s->rest[p][i] = s->rest[p][i + 1] + least;
        }
    }
}

static int by_outlook(const void *a, const void *b) {
    const Label *const *x = a, *const *y = b;
    return ((*x)->us > (*y)->us) - ((*x)->us < (*y)->us);
}

/* The best `most` labels by outlook stay. */
static void thin(Search *s, int i, Labels *l, int most) {
    if (l->n <= most) return;
    Label *scored = NEW_ARRAY(s->a, Label, l->n);
    const Label **order = NEW_ARRAY(s->a, const Label *, l->n);
    for (int k = 0; k < l->n; k++) {
        scored[k] = l->at[k];
        scored[k].us = outlook(s, i, &l->at[k]);
        scored[k].from = k;
        order[k] = &scored[k];
    }
    qsort(order, (size_t)l->n, sizeof *order, by_outlook);
    Label *kept = NEW_ARRAY(s->a, Label, most);
    for (int k = 0; k < most; k++) kept[k] = l->at[order[k]->from];
    memcpy(l->at, kept, sizeof *kept * (size_t)most);
    l->n = most;
}

/* Labels block by block; of those that are not dominated at most `most` stay. False: none reached the end. */
static bool run(Search *s, int most, int *choice) {
    const Chain *c = s->c;
    Labels *step = NEW_ARRAY(s->a, Labels, c->n + 1);
    push(&step[0], s->a, ((Label){0, 0, 0, -1, -1}));
    for (int i = 0; i < c->n; i++) {
        const ChainBlock *b = &c->blocks[i];
        Labels *next = &step[i + 1];
        for (int l = 0; l < step[i].n; l++)
            for (int k = 0; k < b->n; k++) {
                const Label *from = &step[i].at[l];
                const ChainOption *o = &b->options[k];
                Label x = {from->kept + o->kept, from->us + o->us, from->bus + o->bus_us, l, k};
                bool fits = from->kept + need(o) <= s->budget && x.kept <= s->room[i + 1] && x.bus <= c->bus_us;
                if (fits && outlook(s, i + 1, &x) <= s->bar) push(next, s->a, x);
            }
        drop_dominated(next, NEW_ARRAY(s->a, Label, next->n + 1));
        thin(s, i + 1, next, most);
        if (!next->n) return false;
    }
    int best = 0;
    for (int l = 1; l < step[c->n].n; l++)
        if (step[c->n].at[l].us < step[c->n].at[best].us) best = l;
    for (int i = c->n, l = best; i > 0; i--) {
        choice[i - 1] = step[i].at[l].option;
        l = step[i].at[l].from;
    }
    return true;
}

/* Alike blocks take their options in order of bytes kept, the fewest first, where that fits too. */
static void put_side_by_side(const Chain *c, int64_t budget, int *choice, Arena *a) {
    int *sorted = NEW_ARRAY(a, int, c->n + 1);
    memcpy(sorted, choice, sizeof *choice * (size_t)c->n);
    for (int i = 0; i < c->n; i++)
        for (int k = i + 1; k < c->n; k++) {
            if (c->blocks[i].alike != c->blocks[k].alike) continue;
            const ChainOption *o = c->blocks[i].options;
            int x = sorted[i], y = sorted[k];
            if (o[x].kept < o[y].kept || (o[x].kept == o[y].kept && x <= y)) continue;
            sorted[i] = y;
            sorted[k] = x;
        }
    if (chain_peak(c, sorted) <= budget) memcpy(choice, sorted, sizeof *choice * (size_t)c->n);
}

bool chain_solve(const Chain *c, int64_t budget, double slack, int *choice) {
    Arena *a = arena_new();
    Search s = {.c = c, .budget = budget, .room = NEW_ARRAY(a, int64_t, c->n + 1), .bar = INFINITY, .a = a};
    bool fits = find_room(c, budget, s.room);
    if (fits) {
        int *better = NEW_ARRAY(a, int, c->n + 1);
        prepare(&s);
        bool found = run(&s, BEAM, choice);
        if (found) s.bar = chain_us(c, choice) * (1 + 1e-12) + 1e-9 - slack;
        fits = run(&s, MOST_LABELS, better);
        if (fits) memcpy(choice, better, sizeof *choice * (size_t)c->n);
        fits |= found;
        if (fits) put_side_by_side(c, budget, choice, a);
    }
    arena_free(a);
    return fits;
}
