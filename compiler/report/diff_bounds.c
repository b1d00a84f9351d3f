/* Bounds on what differs between two plans, for scripts: `shardc diff --fail-if 'peak>+1%,step>+2%'`.
 * Relies on: diff.h, figures.h. Relied on by: cli/diff.c. */
#include "../plan/figures.h"
#include "diff.h"

#include <math.h>
#include <stdlib.h>

typedef enum { NO_UNIT, BYTES, TIME } UnitKind;

static const struct {
    const char *name;
    UnitKind kind;
} figures[N_FIGURES] = {
    [FIGURE_PEAK] = {"peak", BYTES},       [FIGURE_BOUND] = {"bound", BYTES}, [FIGURE_HOST] = {"host", BYTES},
    [FIGURE_LIBRARY] = {"library", BYTES}, [FIGURE_STEP] = {"step", TIME},    [FIGURE_EXPOSED] = {"exposed", TIME},
    [FIGURE_TOKENS] = {"tokens", NO_UNIT}, [FIGURE_MFU] = {"mfu", NO_UNIT},
};

static const struct {
    const char *unit;
    UnitKind kind;
    double one; /* bytes, microseconds */
} units[] = {{"B", BYTES, 1},         {"KB", BYTES, 1e3},      {"MB", BYTES, 1e6},
             {"GB", BYTES, 1e9},      {"TB", BYTES, 1e12},     {"KiB", BYTES, 1 << 10},
             {"MiB", BYTES, 1 << 20}, {"GiB", BYTES, 1 << 30}, {"TiB", BYTES, (double)(1ull << 40)},
             {"us", TIME, 1},         {"ms", TIME, 1e3},       {"s", TIME, 1e6},
             {"", NO_UNIT, 1}};

static _Noreturn void bad(const char *text, const char *why) {
    fail_usage("--fail-if %s: %s; bounds are written like peak>+1%%, step>+2ms, peak>60GiB or tokens<-1%%, with commas "
               "between them, of peak, bound, host, library, step, exposed, tokens and mfu",
               text, why);
}

static DiffBound parse(Arena *a, const char *text) {
    DiffBound b = {.text = text, .figure = N_FIGURES};
    size_t n = strcspn(text, "<>");
    for (int i = 0; i < N_FIGURES; i++)
        if (strlen(figures[i].name) == n && !strncmp(text, figures[i].name, n)) b.figure = (Figure)i;
    if (!text[n]) bad(text, "neither > nor < is in it");
    if (b.figure == N_FIGURES) bad(text, arena_printf(a, "\"%.*s\" is no figure", (int)n, text));
    b.below = text[n] == '<';
    const char *number = text + n + 1;
    char *end;
    b.change = *number == '+' || *number == '-';
    b.value = strtod(number, &end);
    if (end == number || !isfinite(b.value) || !strchr("0123456789.", number[b.change]) || strpbrk(number, "xX"))
        bad(text, "a number must follow");
    b.share = !strcmp(end, "%");
    if (b.share) {
        if (!b.change) bad(text, "a percentage says a change: it begins with + or -");
        b.value /= 100;
        return b;
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (units[i].kind == figures[b.figure].kind && !strcmp(end, units[i].unit)) {
            b.value *= units[i].one;
            return b;
        }
    bad(text, figures[b.figure].kind == BYTES  ? "its unit is %, B, KiB, MiB, GiB, TiB, KB, MB, GB or TB"
              : figures[b.figure].kind == TIME ? "its unit is %, us, ms or s"
                                               : "its unit is % or none");
}

DiffBounds diff_bounds(Arena *a, const char *text) {
    DiffBounds out = {0};
    for (const char *from = text; from;) {
        const char *comma = strchr(from, ',');
        push(&out, a, parse(a, arena_printf(a, "%.*s", (int)strcspn(from, ","), from)));
        from = comma ? comma + 1 : NULL;
    }
    return out;
}

static const char *shown(Arena *a, Figure f, double x) {
    switch (figures[f].kind) {
    case BYTES: return arena_printf(a, "%s B", figure_grouped(a, x));
    case TIME: return arena_printf(a, "%.3f ms", x * 1e-3);
    default: return f == FIGURE_MFU ? arena_printf(a, "%.4f", x) : figure_grouped(a, x);
    }
}

const char *diff_missed(Arena *a, const Diff *d, const DiffBound *bound) {
    const DiffRow *r = &d->figures[bound->figure];
    double limit = bound->value * (bound->share ? r->a : 1), is = bound->change ? r->b - r->a : r->b;
    if (bound->change && diff_row_same(r)) is = 0;
    if (bound->below ? is >= limit : is <= limit) return NULL;
    const char *share = r->a > 0 ? arena_printf(a, ", %s", figure_change(a, r->a, r->b, 2)) : "";
    return arena_printf(a, "%s is missed: %s is %s in B and %s in A%s", bound->text, r->name,
                        shown(a, bound->figure, r->b), shown(a, bound->figure, r->a), share);
}
