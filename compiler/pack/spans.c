/* spans: sets of addresses in which a span is added, and a gap of some size is found, without a look at all spans.
 * A set is a list of runs, a list of a few dozen spans each.
 * Relies on: spans.h. Relied on by: pack.c. */
#include "spans.h"

#include <stdlib.h>

enum { MOST = 64 }; /* spans in a run */

void spans_clear(Spans *s) {
    s->n = 0;
}

/* ── adding ────────────────────────────────────────────────────────────────────────────────────────────────── */
/* An empty run at index r, in memory that a run had before if there is one. Where a set needs a second run, all will
 * have many spans. */
static SpanRun *new_run(Arena *a, Spans *s, int r) {
    if (!s->cap) {
        s->runs = &s->first;
        s->cap = 1;
    } else if (s->n == s->cap) {
        s->runs = vec_grow(a, s->runs, &s->cap, sizeof *s->runs);
    }
    SpanRun spare = s->runs[s->n];
    memmove(&s->runs[r + 1], &s->runs[r], sizeof spare * (size_t)(s->n++ - r));
    spare.n = 0;
    if (s->n > 1 && !spare.cap) {
        spare.at = NEW_ARRAY(a, Span, MOST);
        spare.cap = MOST;
    }
    s->runs[r] = spare;
    return &s->runs[r];
}

static void drop_run(Spans *s, int r) {
    SpanRun gone = s->runs[r];
    memmove(&s->runs[r], &s->runs[r + 1], sizeof gone * (size_t)(--s->n - r));
    s->runs[s->n] = gone;
}

static void push_span(Arena *a, SpanRun *run, Span x) {
    push(run, a, x);
    run->hi = x.hi;
}

/* Between spans i - 1 and i of run r. */
static void insert(Arena *a, Spans *s, int r, int i, Span x) {
    SpanRun *run = &s->runs[r];
    if (run->n == MOST) {
        SpanRun *upper = new_run(a, s, r + 1);
        run = &s->runs[r];
        for (int k = MOST / 2; k < MOST; k++) push_span(a, upper, run->at[k]);
        upper->gap = run->gap;
        run->n = MOST / 2;
        run->hi = run->at[run->n - 1].hi;
        if (i > run->n) {
            i -= run->n;
            run = upper;
        }
    }
    push_span(a, run, run->at[run->n - 1]);
    memmove(&run->at[i + 1], &run->at[i], sizeof x * (size_t)(run->n - 1 - i));
    run->at[i] = x;
    run->hi = run->at[run->n - 1].hi;
}

static void remove_spans(SpanRun *run, int from, int to) {
    memmove(&run->at[from], &run->at[to], sizeof(Span) * (size_t)(run->n - to));
    run->n -= to - from;
}

/* x touches span i of run r, and maybe more above it: one span of them all. Returns the number of spans that moved. */
static int merge(Spans *s, int r, int i, Span x) {
    SpanRun *run = &s->runs[r];
    int moved = 0;
    x.lo = min64(x.lo, run->at[i].lo);
    for (int q = r; q < s->n && s->runs[q].at[0].lo <= x.hi;) {
        SpanRun *next = &s->runs[q];
        int from = q == r ? i : 0, to = FIRST(k, from, next->n, next->at[k].lo > x.hi);
        x.hi = max64(x.hi, next->at[to - 1].hi);
        moved += next->n - to;
        if (q == r) {
            remove_spans(next, i + 1, to);
            q++;
        } else if (to < next->n) {
            remove_spans(next, 0, to);
            break;
        } else {
            moved += s->n - q;
            drop_run(s, q);
        }
    }
    run->at[i] = x;
    run->hi = run->at[run->n - 1].hi;
    return moved;
}

/* Gaps never grow by this, so that `gap` of a run stays an upper limit. */
int64_t spans_add(Arena *a, Spans *s, Span x) {
    int r = FIRST(k, 0, s->n, s->runs[k].hi >= x.lo), runs = s->n;
    if (r == s->n) { /* above all spans */
        int64_t below = s->n ? s->runs[s->n - 1].hi : 0;
        SpanRun *last = s->n ? &s->runs[s->n - 1] : NULL;
        if (!last || last->n == MOST) {
            last = new_run(a, s, s->n);
            last->gap = 0;
        }
        last->gap = max64(last->gap, x.lo - below);
        push_span(a, last, x);
        return 1;
    }
    SpanRun *run = &s->runs[r];
    int i = FIRST(k, 0, run->n, run->at[k].hi >= x.lo), moved = run->n - i;
    if (run->at[i].lo > x.hi)
        insert(a, s, r, i, x);
    else
        moved = merge(s, r, i, x);
    return 1 + (moved + (s->n > runs ? s->n - r : 0)) / 8;
}

/* ── one by one ────────────────────────────────────────────────────────────────────────────────────────────── */
static int compare_span(const void *a, const void *b) {
    const Span *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

void spans_of_array(Arena *a, Spans *s, Span *spans, int n) {
    int m = 0;
    spans_clear(s);
    if (!n) return;
    if (n > 24) qsort(spans, (size_t)n, sizeof *spans, compare_span);
    for (int i = 1; n <= 24 && i < n; i++) {
        Span x = spans[i];
        int k = i;
        for (; k > 0 && spans[k - 1].lo > x.lo; k--) spans[k] = spans[k - 1];
        spans[k] = x;
    }
    for (int i = 1; i < n; i++) {
        if (spans[i].lo > spans[m].hi)
            spans[++m] = spans[i];
        else
            spans[m].hi = max64(spans[m].hi, spans[i].hi);
    }
    *new_run(a, s, 0) = (SpanRun){spans, m + 1, m + 1, spans[m].hi, INT64_MAX};
}

/* ── finding ───────────────────────────────────────────────────────────────────────────────────────────────── */
SpanCursor spans_cursor(Spans *s) {
    return (SpanCursor){s->runs, s->runs + s->n, s->n ? s->runs[0].at : NULL, 0};
}

/* The first run of [run, end) that ends above `address`, or end. Mostly it is near. */
static SpanRun *skip_runs(SpanRun *run, SpanRun *end, int64_t address) {
    ptrdiff_t step = 1;
    for (; step < end - run && run[step].hi <= address; step *= 2) run += step;
    for (step = min64(step, end - run); step > 0; step /= 2)
        while (step < end - run && run[step].hi <= address) run += step;
    return run < end && run->hi <= address ? run + 1 : run;
}

/* Walks over spans with less than `size` bytes before them, and over runs whose `gap` says that there are no others.
 * Where it has walked all of a run for nothing, it knows the run's largest gap. */
int64_t spans_find(SpanCursor *c, int64_t at, int64_t size, int64_t *steps) {
    SpanRun *run = c->run;
    ++*steps;
    if (run < c->end && run->hi <= at) {
        c->run = run = skip_runs(run, c->end, at);
        if (run == c->end) return at;
        c->at = run->at;
        c->below = run[-1].hi;
    }
    if (run == c->end) return at;
    const Span *s = c->at;
    if (s->hi <= at) s = run->at + FIRST(k, (int)(s - run->at) + 1, run->n, run->at[k].hi > at);
    int64_t walked = 0;
    while (s->lo - at < size) {
        const Span *from = s, *end = run->at + run->n;
        if (run->gap < size) {
            s = end;
            at = run->hi;
        } else {
            bool all = s == run->at && at == c->below;
            int64_t gap = 0;
            for (; s < end && s->lo - at < size; at = s++->hi) gap = max64(gap, s->lo - at);
            if (all && s == end) run->gap = gap;
        }
        walked += s - from;
        if (s < end) break;
        c->below = run->hi;
        if (++run == c->end) break;
        s = run->at;
    }
    c->run = run;
    c->at = s;
    *steps += walked / 4;
    return at;
}
