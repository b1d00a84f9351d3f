/* Bounds on time: when a schedule's events can run, by their durations and waits alone, and what holds up those that
 * end too late. An event starts when the one before it on its stream and those that it waits for have ended. Relies on:
 * verify.h, internal.h; shares no code with simulate. Relied on by: `shardc verify --max-step-ms` and the like. */
#include "internal.h"

enum { PATH_PARTS = 16, PLACES_SHOWN = 3 };

typedef struct {
    const PlanProgram *p;
    double *start, *end;
    int *cause; /* the event whose end was the last that it needed; -1: none */
} Run;

static Run run(Arena *a, const PlanProgram *p) {
    Run r = {p, NEW_ARRAY(a, double, p->n + 1), NEW_ARRAY(a, double, p->n + 1), NEW_ARRAY(a, int, p->n + 1)};
    int last[N_STREAMS];
    for (int s = 0; s < N_STREAMS; s++) last[s] = -1;
    for (int e = 0; e < p->n; e++) {
        const Event *ev = &p->events[e];
        r.cause[e] = last[ev->stream];
        if (r.cause[e] >= 0) r.start[e] = r.end[r.cause[e]];
        for (int k = 0; k < ev->nwaits; k++)
            if (ev->waits[k] >= 0 && ev->waits[k] < e && r.end[ev->waits[k]] > r.start[e]) {
                r.cause[e] = ev->waits[k];
                r.start[e] = r.end[ev->waits[k]];
            }
        r.end[e] = r.start[e] + ev->duration_us;
        last[ev->stream] = e;
    }
    return r;
}

static int last_to_end(const Run *r, bool forward) {
    int best = -1;
    for (int e = 0; e < r->p->n; e++) {
        if (forward && (r->p->events[e].phase != FORWARD || r->p->events[e].stream != COMPUTE)) continue;
        if (best < 0 || r->end[e] > r->end[best]) best = e;
    }
    return best;
}

/* ── the critical path ───────────────────────────────────────────────────────────────────────────────────────────── */
/* "g1f (gather 10.0 ms), e0 to e5 (compute 75.0 ms)": runs of one stream, from the first event; where there are many,
 * those that take longest. */
static char *critical_path(Arena *a, const Run *r, int end) {
    VEC(int) path = {0};
    for (int e = end; e >= 0; e = r->cause[e]) push(&path, a, e);
    struct Part {
        int first, last;
        double us;
    };
    VEC(struct Part) parts = {0};
    for (int i = path.n - 1; i >= 0; i--) {
        int e = path.at[i];
        struct Part *p = parts.n ? &parts.at[parts.n - 1] : NULL;
        if (!p || r->p->events[p->last].stream != r->p->events[e].stream) {
            push(&parts, a, ((struct Part){e, e, 0}));
            p = &parts.at[parts.n - 1];
        }
        p->last = e;
        p->us += r->p->events[e].duration_us;
    }
    double least = 0; /* of the parts that are shown */
    for (int shown = parts.n; shown > PATH_PARTS;) {
        double next = 1e300;
        shown = 0;
        for (int i = 0; i < parts.n; i++)
            if (parts.at[i].us > least && parts.at[i].us < next) next = parts.at[i].us;
        least = next;
        for (int i = 0; i < parts.n; i++) shown += parts.at[i].us >= least;
    }
    Str s = {.arena = a};
    bool gap = false;
    for (int i = 0; i < parts.n; i++) {
        const struct Part *p = &parts.at[i];
        const Event *first = &r->p->events[p->first], *last = &r->p->events[p->last];
        if (p->us < least) {
            gap = true;
            continue;
        }
        str_addf(&s, "%s%s%s%s%s (%s %.3f ms)", s.n ? ", " : "", gap ? "... " : "", first->id,
                 p->first != p->last ? " to " : "", p->first != p->last ? last->id : "", stream_name(first->stream),
                 p->us * 1e-3);
        gap = false;
    }
    return s.s;
}

/* ── exposed communication: compute idles for it, or it goes on after compute has ended ──────────────────────────── */
typedef struct {
    double us;
    int waits, for_; /* events; waits -1: the end of the program */
} Place;

typedef struct {
    double us; /* in all places */
    int n;
    Place longest[PLACES_SHOWN]; /* the longest first */
} Exposed;

static void expose(Exposed *x, Place p) {
    x->us += p.us;
    x->n++;
    for (int i = 0; i < PLACES_SHOWN; i++)
        if (p.us > x->longest[i].us) {
            Place shorter = x->longest[i];
            x->longest[i] = p;
            p = shorter;
        }
}

static Exposed exposed(const Run *r) {
    Exposed x = {0};
    double busy = 0, compute = 0;
    int last = -1;
    for (int e = 0; e < r->p->n; e++) {
        const Event *ev = &r->p->events[e];
        if (ev->stream == COMPUTE) {
            int c = r->cause[e];
            if (r->start[e] > compute && c >= 0 && stream_communicates(r->p->events[c].stream))
                expose(&x, (Place){r->start[e] - compute, e, c});
            compute = r->end[e];
        }
        if (!stream_communicates(ev->stream) && r->end[e] > busy) busy = r->end[e];
        if (stream_communicates(ev->stream) && (last < 0 || r->end[e] > r->end[last])) last = e;
    }
    if (last >= 0 && r->end[last] > busy) expose(&x, (Place){r->end[last] - busy, -1, last});
    return x;
}

/* ── bounds ──────────────────────────────────────────────────────────────────────────────────────────────────────── */
static void check_end(Verifier *v, int program, const Run *r, bool forward, double most_ms) {
    int end = last_to_end(r, forward);
    if (most_ms < 0 || end < 0 || r->end[end] * 1e-3 <= most_ms) return;
    verify_note(v, program, forward ? "forward-time" : "step-time", end, -1,
                "%s ends after %.3f ms, which is more than %.3f ms; its critical path: %s",
                forward ? "the forward" : "it", r->end[end] * 1e-3, most_ms, critical_path(v->arena, r, end));
}

static void check_exposed(Verifier *v, int program, const Run *r, double most_ms) {
    Exposed x = exposed(r);
    if (most_ms < 0 || x.us * 1e-3 <= most_ms || !x.n) return;
    const Event *events = r->p->events;
    Str s = {.arena = v->arena};
    for (int i = 0; i < x.n && i < PLACES_SHOWN; i++) {
        const Place *p = &x.longest[i];
        const Event *e = &events[p->for_];
        str_addf(&s, "%s%s waits %.3f ms for %s (%s, %.3f ms)", i ? ", " : "",
                 p->waits < 0 ? "the end" : events[p->waits].id, p->us * 1e-3, e->id, stream_name(e->stream),
                 e->duration_us * 1e-3);
    }
    verify_note(v, program, "exposed", x.longest[0].for_, x.longest[0].waits,
                "%.3f ms of communication are exposed in %d place%s, which is more than %.3f ms; %s: %s", x.us * 1e-3,
                x.n, x.n == 1 ? "" : "s", most_ms,
                x.n > PLACES_SHOWN ? "the three longest"
                : x.n > 1          ? "the longest first"
                                   : "it is this one",
                s.s);
}

void verify_times(Arena *a, const Plan *p, const Times *most, Findings *out) {
    Verifier v = {a, p, out, 0, NULL, NULL};
    for (int g = 0; g < p->nprograms; g++) {
        if (!program_trains(&p->programs[g])) continue;
        Run r = run(a, &p->programs[g]);
        v.noted = 0;
        check_end(&v, g, &r, true, most->forward_ms);
        check_end(&v, g, &r, false, most->step_ms);
        check_exposed(&v, g, &r, most->exposed_ms);
    }
}

Times verify_program_times(Arena *a, const PlanProgram *p) {
    Run r = run(a, p);
    int forward = last_to_end(&r, true), end = last_to_end(&r, false);
    return (Times){forward < 0 ? 0 : r.end[forward] * 1e-3, end < 0 ? 0 : r.end[end] * 1e-3, exposed(&r).us * 1e-3};
}
