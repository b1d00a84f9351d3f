/* `shardc predict --max` and `--best`: the largest value found of an option that fits as the model is, and the fastest
 * one where each value is planned. Relies on: search.h. Relied on by: predict.c, advice.c. */
#include "search.h"
#include "../ir/training.h"
#include "../plan/figures.h"
#include "../plan/lines.h"
#include "number.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

enum { PROBES = 3 }; /* at once; no number of processors, so that the answer is the same on every machine */
static const int64_t MOST = 1ll << 40;

typedef struct {
    int64_t value;
    SweepPoint point;
} Tried;

typedef struct {
    Arena *a;
    const Options *o;
    const char *name;
    PointEffort effort;
    VEC(Tried) tried; /* ascending */
} Search;

static const Tried *find(const Search *s, int64_t value) {
    for (int i = 0; i < s->tried.n; i++)
        if (s->tried.at[i].value == value) return &s->tried.at[i];
    return NULL;
}

static int by_value(const void *a, const void *b) {
    const Tried *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

/* Compiles those of the values that are 1 or more and new. */
static void try_values(Search *s, const int64_t *values, int n) {
    PointKey *key = NEW(s->a, PointKey);
    *key = (PointKey){.name = s->name};
    Points p = {s->o, key, 1, NEW_ARRAY(s->a, SweepPoint, n + 1), 0};
    int64_t *fresh = NEW_ARRAY(s->a, int64_t, n + 1);
    for (int i = 0; i < n; i++) {
        bool again = find(s, values[i]) != NULL;
        for (int k = 0; k < p.n; k++) again |= fresh[k] == values[i];
        if (values[i] < 1 || again) continue;
        const char **text = NEW(s->a, const char *);
        *text = arena_printf(s->a, "%" PRId64, values[i]);
        fresh[p.n] = values[i];
        p.at[p.n++].values = text;
    }
    points_run(s->a, &p, s->effort, s->name);
    for (int i = 0; i < p.n; i++) push(&s->tried, s->a, ((Tried){fresh[i], p.at[i]}));
    if (s->tried.n) qsort(s->tried.at, (size_t)s->tried.n, sizeof *s->tried.at, by_value);
}

static Points points_of(const Search *s, const int64_t *values, int n) {
    PointKey *key = NEW(s->a, PointKey);
    *key = (PointKey){.name = s->name};
    Points p = {s->o, key, 1, NEW_ARRAY(s->a, SweepPoint, n + 1), 0};
    for (int i = 0; i < n; i++) {
        const Tried *t = find(s, values[i]);
        if (t) p.at[p.n++] = t->point;
    }
    return p;
}

/* ── the largest that fits ──────────────────────────────────────────────────────────────────────────────────────── */
typedef enum { UNTRIED, FITS, TOO_LARGE, REFUSED } Answer;

static Answer answer(const Search *s, int64_t value) {
    const Tried *t = find(s, value);
    return !t ? UNTRIED : t->point.error ? REFUSED : t->point.is.fits ? FITS : TOO_LARGE;
}

/* The largest that fits (0: none), and the smallest above it that is too large (0: none). */
static int64_t largest_fit(const Search *s) {
    int64_t low = 0;
    for (int i = 0; i < s->tried.n; i++)
        if (answer(s, s->tried.at[i].value) == FITS) low = s->tried.at[i].value;
    return low;
}

static int64_t too_large_above(const Search *s, int64_t low) {
    for (int i = 0; i < s->tried.n; i++)
        if (s->tried.at[i].value > low && answer(s, s->tried.at[i].value) == TOO_LARGE) return s->tried.at[i].value;
    return 0;
}

/* What all values that compile are multiples of, once some did not compile: 8 of a width that 8 heads share. */
static int64_t stride(const Search *s) {
    int64_t common = 0;
    bool refused = false;
    for (int i = 0; i < s->tried.n; i++) {
        int64_t x = s->tried.at[i].value;
        if (answer(s, x) == REFUSED)
            refused = true;
        else
            common = common_divisor(x, common);
    }
    return refused && common ? common : 1;
}

/* Doubles until FURTHER values above the largest that fits do not: one value that is too large does not say that larger
 * ones are. Below one that does not compile NEAR others are tried. */
enum { FURTHER = 3, NEAR = 8 };
static void double_up(Search *s, int64_t from) {
    try_values(s, (int64_t[]){from, 2 * from, 4 * from, 8 * from}, 4);
    for (;;) {
        int64_t near[FURTHER * NEAR], before = largest_fit(s);
        int n = 0;
        for (int64_t x = 2; x <= 8; x *= 2)
            for (int i = 1; i <= NEAR && answer(s, x * max64(before, from)) == REFUSED; i++)
                if (x * max64(before, from) - i > before) near[n++] = x * max64(before, from) - i;
        try_values(s, near, n);
        int64_t low = largest_fit(s), top = low ? low : from;
        if (answer(s, 2 * top) != UNTRIED && answer(s, 4 * top) != UNTRIED && answer(s, 8 * top) != UNTRIED) return;
        int64_t hole = 0, arena = 0;
        bool grows = top < 8 * from;
        for (int i = 0; i < s->tried.n; i++) {
            const Tried *t = &s->tried.at[i];
            if (!hole && t->value < top && answer(s, t->value) == TOO_LARGE) hole = t->value;
            if (t->point.error) continue;
            grows |= arena && arena != t->point.is.arena;
            arena = t->point.is.arena;
        }
        if (!grows)
            fail(NOWHERE,
                 "no largest %s can be searched for: the arena has %" PRId64 " bytes with %" PRId64 " and with %" PRId64
                 "; name an option that it grows with",
                 s->name, arena, from, top);
        if (top > MOST && hole)
            fail(NOWHERE,
                 "no largest %s can be searched for: %" PRId64 " fits, the smaller %" PRId64
                 " does not, and there is no end to such values; --sweep %s=1,2,... shows each",
                 s->name, top, hole, s->name);
        if (top > MOST)
            fail(NOWHERE, "no largest %s can be searched for: even %" PRId64 " fits; give --budget", s->name, top);
        try_values(s, (int64_t[]){2 * top, 4 * top, 8 * top}, FURTHER);
    }
}

/* Tries values above `low`, which fits or is 0, and below the next that is too large (or `end`): a few at once, at
 * multiples of the stride, then each that is left, up to EACH. Returns the largest that fits; *high: from there to it
 * every value was tried. */
enum { EACH = 256 };
static int64_t narrow(Search *s, int64_t low, int64_t end, int64_t *high) {
    for (;;) {
        int64_t top = too_large_above(s, low), step = stride(s), probes[EACH], left[EACH];
        int n = 0, rest = 0;
        if (!top || (end && end < top)) top = end;
        for (int i = 1; i <= PROBES; i++) {
            int64_t x = low + (top - low) * i / (PROBES + 1);
            x -= x % step;
            if (x > low && x < top && answer(s, x) == UNTRIED) probes[n++] = x;
        }
        for (int64_t x = low + 1; x < top && rest < EACH; x++)
            if (answer(s, x) == UNTRIED) left[rest++] = x;
        if (top - low <= PROBES + 1 || !n) {
            n = rest;
            memcpy(probes, left, sizeof *left * (size_t)n);
        }
        *high = low;
        while (*high < top && answer(s, *high + 1) != UNTRIED) ++*high;
        if (!n) return low;
        bool news = false;
        try_values(s, probes, n);
        for (int i = n - 1; i >= 0 && !news; i--) {
            news = answer(s, probes[i]) == FITS || answer(s, probes[i]) == TOO_LARGE;
            if (answer(s, probes[i]) == FITS) low = probes[i];
        }
        /* Nothing of what was tried compiles: the next round tries each value; after that it is the end. */
        if (!news && n == EACH) {
            while (*high < top && answer(s, *high + 1) != UNTRIED) ++*high;
            return low;
        }
    }
}

/* From an estimate's answer to that of full placement, which fits a little more or less: away from it by steps that
 * double, to the other side of the limit; then between. */
static int64_t confirm(Search *sure, int64_t value, int64_t step, int64_t *high) {
    int64_t low = value, end = value + step;
    try_values(sure, &value, 1);
    if (!value || answer(sure, value) == FITS) {
        for (int64_t far = step;; far *= 2) {
            end = low + far;
            try_values(sure, &end, 1);
            if (answer(sure, end) != FITS) break;
            low = end;
        }
    } else {
        for (int64_t far = step; low > 0 && answer(sure, low) != FITS; far *= 2) {
            end = low;
            low = max64(0, low - far);
            try_values(sure, &low, 1);
        }
    }
    return narrow(sure, low, end, high);
}

SearchLargest search_largest(Arena *a, const Options *o, const char *key, int64_t from, int64_t below) {
    Search s = {.a = a, .o = o, .name = key, .effort = POINT_ESTIMATED}, sure = {.a = a, .o = o, .name = key};
    SearchLargest r = {0};
    sure.effort = POINT_UNPLANNED;
    if (!below) double_up(&s, from);
    int64_t value = largest_fit(&s), first = too_large_above(&s, value), high;
    value = narrow(&s, value, below ? below : first ? first : 2 * max64(value, from), &high);
    for (;;) {
        for (int i = 0; i < s.tried.n; i++) /* what does not compile need not be tried again */
            if (answer(&s, s.tried.at[i].value) == REFUSED && !find(&sure, s.tried.at[i].value))
                push(&sure.tried, a, s.tried.at[i]);
        if (sure.tried.n) qsort(sure.tried.at, (size_t)sure.tried.n, sizeof *sure.tried.at, by_value);
        r.value = confirm(&sure, value, stride(&s), &r.tried_to);
        int64_t *more = NEW_ARRAY(a, int64_t, s.tried.n + 1), next = too_large_above(&s, r.value);
        r.nfurther = 0;
        for (int i = s.tried.n - 1, n = 0; i >= 0; i--) { /* the largest, and the next one */
            int64_t x = s.tried.at[i].value;
            if (x <= r.tried_to || answer(&s, x) != TOO_LARGE || (n++ >= FURTHER && x != next)) continue;
            memmove(more + 1, more, sizeof *more * (size_t)r.nfurther++);
            *more = x;
        }
        try_values(&sure, more, r.nfurther);
        r.further = more;
        value = largest_fit(&sure);
        if (value <= r.value) break;
    }
    while (answer(&sure, r.tried_to + 1) != UNTRIED) r.tried_to++;
    while (r.nfurther && *r.further <= r.tried_to) r.further++, r.nfurther--;
    for (int i = 0; i < sure.tried.n; i++) {
        int64_t x = sure.tried.at[i].value;
        r.refused += x > r.value && x <= r.tried_to && answer(&sure, x) == REFUSED;
    }
    for (int i = 0; i < s.tried.n && !r.hole; i++) {
        int64_t x = s.tried.at[i].value;
        if (x >= r.value || answer(&s, x) != TOO_LARGE) continue;
        try_values(&sure, &x, 1);
        if (answer(&sure, x) == TOO_LARGE) r.hole = x;
    }
    int64_t next = too_large_above(&sure, r.value), before = r.value - 1;
    for (int i = 0; i < s.tried.n && stride(&s) > 1; i++)
        if (s.tried.at[i].value < r.value && !s.tried.at[i].point.error) before = s.tried.at[i].value;
    if (!next || next > r.tried_to) next = r.value + 1;
    try_values(&sure, (int64_t[]){before, next}, 2);
    r.around = points_of(&sure, (int64_t[]){before, r.value, next}, 3);
    return r;
}

bool search_value(const Plan *p, const char *key, int64_t *value) {
    for (int i = 0; i < p->noptions; i++) {
        if (strcmp(p->options[i].name, key)) continue;
        return sc_read_whole(p->options[i].text, 1, MOST - 1, value);
    }
    return false;
}

/* ── the fastest where each is planned ──────────────────────────────────────────────────────────────────────────── */
static double speed(const Tried *t) {
    return t->point.error ? -1 : points_speed(&t->point);
}

/* Where the fastest stands among those tried; -1: none could be planned. */
static int fastest(const Search *s) {
    int best = -1;
    for (int i = 0; i < s->tried.n; i++)
        if (!s->tried.at[i].point.error && (best < 0 || speed(&s->tried.at[i]) > speed(&s->tried.at[best]))) best = i;
    return best;
}

/* Doubles until nothing fits or two values in turn are slower, halves while the smallest is the best, then halves the
 * distances on both sides of the best, down to 1 or 3 %. */
static void search_best(Search *s, int64_t from) {
    try_values(s, (int64_t[]){from / 2, from, 2 * from}, 3);
    for (;;) {
        int best = fastest(s), last = s->tried.n - 1;
        int64_t least = s->tried.at[0].value, most = s->tried.at[last].value;
        bool up = best >= 0 && !s->tried.at[last].point.error && last - best < 2 && most < MOST;
        bool down = best <= 0 && least > 1;
        if (!up && !down) break;
        try_values(s, (int64_t[]){up ? 2 * most : 0, down ? least / 2 : 0}, 2);
    }
    for (int best; (best = fastest(s)) >= 0;) {
        int64_t b = s->tried.at[best].value, near = max64(1, b / 32);
        int64_t l = best ? s->tried.at[best - 1].value : b, r = best + 1 < s->tried.n ? s->tried.at[best + 1].value : b;
        if (b - l <= near && r - b <= near) break;
        try_values(s, (int64_t[]){b - l > near ? (l + b) / 2 : 0, r - b > near ? (b + r) / 2 : 0}, 2);
    }
}

/* ── the commands ───────────────────────────────────────────────────────────────────────────────────────────────── */
/* Where to start from, and the limit in words. */
static int64_t start(Arena *a, const Options *o, const char *option, const char *key, const char **limit) {
    Arena *scratch = arena_new();
    Options quiet = *o;
    quiet.quiet = true;
    const Plan *p = cli_compile(scratch, &quiet, o->inputs.at[0], "", true);
    int64_t value;
    if (!search_value(p, key, &value)) {
        const char **names = NEW_ARRAY(a, const char *, p->noptions + 1);
        Str all = {.arena = a};
        for (int i = 0; i < p->noptions; i++) {
            names[i] = p->options[i].name;
            str_addf(&all, " %s", names[i]);
            if (strcmp(names[i], key)) continue;
            if (!*p->options[i].text)
                fail_usage("%s %s: %s has no value to start from; give one: --set %s=1", option, key, key, key);
            fail_usage("%s %s: %s is %s; an option that is a whole number, 1 or more, is wanted", option, key, key,
                       p->options[i].text);
        }
        const char *near = str_nearest(key, names, p->noptions);
        fail_usage("%s %s: the model has no option %s%s%s%s; its options are:%s", option, key, key,
                   near ? "; did you mean " : "", near ? near : "", near ? "?" : "", all.n ? all.s : " none");
    }
    if (!o->budget && p->device_usable <= 0)
        fail_usage(
            "%s %s: the cpu target has no memory limit to search below; give --budget, for example --budget 4GiB, "
            "or a GPU's --device",
            option, key);
    *limit = o->budget ? arena_printf(a, "%s of arena", figure_bytes(a, (double)o->budget))
                       : arena_printf(a, "%s (%s usable)", p->device, figure_bytes(a, p->device_usable));
    arena_free(scratch);
    return value;
}

/* "each of 297 to 304 was tried: 1 too large, 7 do not compile; of larger ones, 512, 1024: none fits" */
static const char *what_was_tried(Arena *a, const SearchLargest *r) {
    Str s = {.arena = a};
    int64_t all = r->tried_to - r->value;
    str_addf(&s, all == 1 ? "%" PRId64 " was tried" : "each of %" PRId64 " to %" PRId64 " was tried", r->value + 1,
             r->tried_to);
    if (all > r->refused) str_addf(&s, ": %" PRId64 " too large", all - r->refused);
    if (r->refused)
        str_addf(&s, "%s %" PRId64 " do%s not compile", all > r->refused ? "," : ":", r->refused,
                 r->refused == 1 ? "es" : "");
    for (int i = 0; i < r->nfurther; i++) str_addf(&s, "%s %" PRId64, i ? "," : "; of larger ones,", r->further[i]);
    str_add(&s, r->nfurther ? ": none fits" : "");
    if (r->hole) str_addf(&s, "\nnot every smaller one fits: %" PRId64 " does not", r->hole);
    return s.s;
}

static int print(Arena *a, const Options *o, const Points *p, const char *key, int64_t value, const char *title,
                 const SearchLargest *largest, const char *command) {
    SweepPoint x = {.values = (const char *[]){arena_printf(a, "%" PRId64, value)}};
    Points one = {o, p->keys, 1, &x, 1};
    const Options found = points_options(a, &one, &x);
    const char *again = cli_again(a, &found, command);
    OutFile f = cli_output(a, o);
    if (cli_as_json(o)) {
        cJSON *all = cJSON_CreateObject();
        cJSON_AddStringToObject(all, "format", "shardc-search");
        cJSON_AddNumberToObject(all, "version", 1);
        cJSON_AddStringToObject(all, "model", points_utf8(a, o->inputs.at[0]));
        cJSON_AddStringToObject(all, "option", points_utf8(a, key));
        cJSON_AddNumberToObject(all, "value", (double)value);
        cJSON_AddStringToObject(all, "command", points_utf8(a, again));
        if (largest) {
            cJSON_AddNumberToObject(all, "each_tried_to", (double)largest->tried_to);
            cJSON *further = cJSON_AddArrayToObject(all, "larger_tried");
            for (int i = 0; i < largest->nfurther; i++)
                cJSON_AddItemToArray(further, cJSON_CreateNumber((double)largest->further[i]));
            if (largest->hole) cJSON_AddNumberToObject(all, "smaller_that_does_not_fit", (double)largest->hole);
        }
        cJSON_AddItemToObject(all, "points", points_json(a, p));
        points_print_json(f.f, all);
    } else if (cli_as_csv(o)) {
        points_csv(f.f, a, p);
    } else {
        lines_print(f.f, 0, "", arena_printf(a, "%s: %s=%" PRId64, title, key, value));
        points_text(f.f, a, p);
        if (largest) lines_print(f.f, 2, "", what_was_tried(a, largest));
        fprintf(f.f, "  %s\n", again);
    }
    cli_output_done(o, &f);
    return 0;
}

int cli_max(Arena *a, const Options *o) {
    const char *limit;
    int64_t from = start(a, o, "--max", o->max, &limit);
    SearchLargest found = search_largest(a, o, o->max, from, 0);
    if (!found.value) {
        const SweepPoint *one = &found.around.at[0];
        fail(
            NOWHERE,
            "no %s was found that fits %s as the model is: %s=%s %s%s; `shardc plan` looks for policies that fit, more "
            "ranks (--world) need less memory each",
            o->max, limit, o->max, one->values[0], one->error ? "does not compile: " : "needs ",
            one->error ? one->error : figure_bytes(a, (double)one->is.arena + (o->budget ? 0 : one->is.library)));
    }
    Options plain = *o;
    plain.budget = 0; /* it is the limit, and predict --budget would plan */
    return print(a, &plain, &found.around, o->max, found.value,
                 arena_printf(a, "largest %s found that fits %s as the model is", o->max, limit), &found, "predict");
}

int cli_best(Arena *a, const Options *o) {
    const char *limit;
    Search s = {.a = a, .o = o, .name = o->best, .effort = POINT_PLANNED};
    search_best(&s, start(a, o, "--best", o->best, &limit));
    int best = fastest(&s);
    if (best < 0)
        fail(NOWHERE, "no %s can be planned within %s: %s=%" PRId64 ": %s", o->best, limit, o->best,
             s.tried.at[0].value, s.tried.at[0].point.error);
    int64_t *values = NEW_ARRAY(a, int64_t, s.tried.n + 1);
    for (int i = 0; i < s.tried.n; i++) values[i] = s.tried.at[i].value;
    Points all = points_of(&s, values, s.tried.n);
    const SweepPoint *x = &s.tried.at[best].point;
    const char *title = arena_printf(a, "most %s a second found, %s each %s, planned within %s",
                                     x->is.tokens > 0 ? "tokens" : "samples", figure_grouped(a, points_speed(x)),
                                     x->is.gpu ? "GPU" : "rank", limit);
    return print(a, o, &all, o->best, s.tried.at[best].value, title, NULL, "plan");
}
