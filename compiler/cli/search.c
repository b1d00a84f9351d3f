/* `shardc predict --max` and `--best`: the largest value of an option that fits as the model is, and the fastest one
 * where each value is planned. Relies on: search.h.
 * Relied on by: predict.c, advice.c. */
#include "search.h"
#include "../ir/training.h"
#include "../report/figures.h"
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

/* Those tried with values from low to high, as points. */
static Points points_from(const Search *s, int64_t low, int64_t high) {
    PointKey *key = NEW(s->a, PointKey);
    *key = (PointKey){.name = s->name};
    Points p = {s->o, key, 1, NEW_ARRAY(s->a, SweepPoint, s->tried.n + 1), 0};
    for (int i = 0; i < s->tried.n; i++)
        if (s->tried.at[i].value >= low && s->tried.at[i].value <= high) p.at[p.n++] = s->tried.at[i].point;
    return p;
}

/* ── the largest that fits ──────────────────────────────────────────────────────────────────────────────────────── */
static bool fits(const Tried *t) {
    return t && !t->point.error && t->point.is.fits;
}

/* The largest that fits, and the smallest that does not (0: none yet). */
static void bounds(const Search *s, int64_t *low, int64_t *high) {
    for (int i = 0; i < s->tried.n; i++) {
        const Tried *t = &s->tried.at[i];
        if (fits(t))
            *low = max64(*low, t->value);
        else
            *high = *high ? min64(*high, t->value) : t->value;
    }
    if (!*high || *low < *high) return;
    const Tried *t = find(s, *high);
    fail(NOWHERE,
         "no largest %s can be searched for: %" PRId64 " fits and the smaller %" PRId64 " does not (%s); "
         "--sweep %s=1,2,... shows each value",
         s->name, *low, *high, t && t->point.error ? t->point.error : "its arena is too large", s->name);
}

static void double_up(Search *s, int64_t from, int64_t *low, int64_t *high) {
    try_values(s, (int64_t[]){from, 2 * from, 4 * from, 8 * from}, 4);
    bounds(s, low, high);
    while (!*high) {
        const Tried *first = find(s, from), *last = find(s, *low);
        if (first->point.is.arena == last->point.is.arena)
            fail(NOWHERE,
                 "no largest %s can be searched for: the arena has %" PRId64 " bytes with %" PRId64 " and with %" PRId64
                 "; name an option that it grows with",
                 s->name, first->point.is.arena, from, *low);
        if (*low > MOST)
            fail(NOWHERE, "no largest %s can be searched for: even %" PRId64 " fits; give --budget", s->name, *low);
        try_values(s, (int64_t[]){2 * *low, 4 * *low, 8 * *low}, PROBES);
        bounds(s, low, high);
    }
}

/* Tries values between `low`, which fits, and `high`, which does not, three at once, until they are neighbours. */
static void narrow(Search *s, int64_t *low, int64_t *high) {
    while (*high - *low > 1) {
        int64_t from = *low, apart = *high - *low, probes[PROBES];
        for (int i = 0; i < PROBES; i++) probes[i] = from + max64(1, apart * (i + 1) / (PROBES + 1));
        try_values(s, probes, PROBES);
        for (int i = PROBES - 1; i >= 0; i--)
            if (!fits(find(s, probes[i]))) *high = probes[i];
        for (int i = 0; i < PROBES; i++)
            if (probes[i] < *high) *low = max64(*low, probes[i]);
    }
}

SearchLargest search_largest(Arena *a, const Options *o, const char *key, int64_t from, int64_t below) {
    Search s = {.a = a, .o = o, .name = key, .effort = POINT_ESTIMATED}, sure = {.a = a, .o = o, .name = key};
    sure.effort = POINT_UNPLANNED;
    int64_t low = 0, high = below;
    if (!below) double_up(&s, from, &low, &high);
    narrow(&s, &low, &high);
    /* Full placement fits a little more or less than the estimate says: go away from its answer, by steps that double,
     * to the other side of the limit, and narrow that again. */
    try_values(&sure, (int64_t[]){low - 1, low, low + 1}, 3);
    if (!low || fits(find(&sure, low))) {
        high = low + 1;
        for (int64_t step = 1; fits(find(&sure, high)); step *= 2) {
            low = high;
            high = low + step;
            try_values(&sure, &high, 1);
        }
    } else {
        high = low--;
        for (int64_t step = 1; low > 0 && !fits(find(&sure, low)); step *= 2) {
            high = low;
            low = max64(0, high - step);
            try_values(&sure, &low, 1);
        }
    }
    narrow(&sure, &low, &high);
    try_values(&sure, (int64_t[]){low - 1, low, low + 1}, 3);
    return (SearchLargest){low, points_from(&sure, low - 1, low + 1)};
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
    const Plan *p = cli_compile(scratch, &quiet, o->inputs[0], "", true);
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

static int print(Arena *a, const Options *o, const Points *p, const char *key, int64_t value, const char *title,
                 const char *command) {
    Options found = *o;
    SweepPoint x = {.values = (const char *[]){arena_printf(a, "%" PRId64, value)}};
    Points one = {o, p->keys, 1, &x, 1};
    found = points_options(a, &one, &x);
    const char *again = cli_again(a, &found, command);
    OutFile f = cli_output(a, o);
    if (cli_as_json(o)) {
        cJSON *all = cJSON_CreateObject();
        cJSON_AddStringToObject(all, "format", "shardc-search");
        cJSON_AddNumberToObject(all, "version", 1);
        cJSON_AddStringToObject(all, "model", points_utf8(a, o->inputs[0]));
        cJSON_AddStringToObject(all, "option", points_utf8(a, key));
        cJSON_AddNumberToObject(all, "value", (double)value);
        cJSON_AddStringToObject(all, "command", points_utf8(a, again));
        cJSON_AddItemToObject(all, "points", points_json(a, p));
        points_print_json(f.f, all);
    } else if (cli_as_csv(o)) {
        points_csv(f.f, a, p);
    } else {
        fprintf(f.f, "%s: %s=%" PRId64 "\n", title, key, value);
        points_text(f.f, a, p);
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
        fail(NOWHERE,
             "no %s fits %s as the model is: %s=1 %s%s; `shardc plan` looks for policies that fit, more ranks "
             "(--world) need less memory each",
             o->max, limit, o->max, one->error ? "does not compile: " : "needs ",
             one->error ? one->error : figure_bytes(a, (double)one->is.arena + (o->budget ? 0 : one->is.library)));
    }
    Options plain = *o;
    plain.budget = 0; /* it is the limit, and predict --budget would plan */
    return print(a, &plain, &found.around, o->max, found.value,
                 arena_printf(a, "largest %s that fits %s as the model is", o->max, limit), "predict");
}

int cli_best(Arena *a, const Options *o) {
    const char *limit;
    Search s = {.a = a, .o = o, .name = o->best, .effort = POINT_PLANNED};
    search_best(&s, start(a, o, "--best", o->best, &limit));
    int best = fastest(&s);
    if (best < 0)
        fail(NOWHERE, "no %s can be planned within %s: %s=%" PRId64 ": %s", o->best, limit, o->best,
             s.tried.at[0].value, s.tried.at[0].point.error);
    Points all = points_from(&s, 1, INT64_MAX);
    const SweepPoint *x = &s.tried.at[best].point;
    const char *title =
        arena_printf(a, "most %s a second, %s each %s, planned within %s", x->is.tokens > 0 ? "tokens" : "samples",
                     figure_grouped(a, points_speed(x)), x->is.gpu ? "GPU" : "rank", limit);
    return print(a, o, &all, o->best, s.tried.at[best].value, title, "plan");
}
