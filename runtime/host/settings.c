/* What a run was given, as "given" in the index of a state: options, what the program was built with, and its data with
 * a fingerprint. A run that resumes goes on with the saved run's options where it is given none, and tells in a line
 * each what differs: numbers that change unsaid are the worst that a requeued job can do.
 * Relies on: args, checkpoint, data, die; jansson, zlib (crc32).
 * Relied on by: run. */
#include "settings.h"
#include "../file.h"
#include "die.h"
#include "state.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* ── options ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    const char *option, *key; /* on the command line, in the index */
    enum { REAL, WHOLE, COUNT } kind;
    size_t at; /* in Options */
} Setting;

#define ROW(kind_, option_, field)                                                                                     \
    { option_, #field, kind_, offsetof(Options, field) }
static const Setting settings[] = {
    ROW(REAL, "lr", lr),
    ROW(WHOLE, "warmup", warmup),
    ROW(WHOLE, "total", total),
    ROW(WHOLE, "decay-steps", decay_steps),
    ROW(REAL, "min-ratio", min_ratio),
    ROW(REAL, "betas", beta1),
    ROW(REAL, "betas", beta2),
    ROW(REAL, "eps", eps),
    ROW(REAL, "momentum", momentum),
    ROW(REAL, "weight-decay", weight_decay),
    ROW(REAL, "clip", clip),
    ROW(COUNT, "accumulate", accumulate),
};
enum { SETTINGS = sizeof settings / sizeof *settings };

static double value_of(const Options *o, const Setting *s) {
    const void *at = (const char *)o + s->at;
    return s->kind == REAL ? *(const double *)at : s->kind == WHOLE ? (double)*(const int64_t *)at : *(const int *)at;
}

static void set_value(Options *o, const Setting *s, double x) {
    void *at = (char *)o + s->at;
    if (s->kind == REAL)
        *(double *)at = x;
    else if (s->kind == WHOLE)
        *(int64_t *)at = (int64_t)x;
    else
        *(int *)at = (int)x;
}

/* Shortest of three lengths that tells x from y. */
static char *figure(double x, double y) {
    static const int digits[] = {6, 9, 17};
    char a[40], b[40];
    for (int i = 0; i < 3; i++) {
        snprintf(a, sizeof a, "%.*g", digits[i], x);
        snprintf(b, sizeof b, "%.*g", digits[i], y);
        if (strcmp(a, b)) break;
    }
    return need_text("%s", a);
}

static const json_t *given_of(const Run *run) {
    return run->resume ? checkpoint_given(run->resume) : NULL;
}

static const char *text_of(const json_t *object, const char *key) { /* NULL: none */
    return json_string_value(json_object_get(object, key));
}

/* The saved run's number where it is one that an option may have; -1: none. */
static double saved_value(const json_t *given, const Setting *s) {
    double x = json_is_number(json_object_get(given, s->key)) ? json_number_value(json_object_get(given, s->key)) : -1;
    return args_allows(s->option, x) ? x : -1;
}

/* A schedule of another kind has a length of its own, too. */
static bool takes(const Run *run, const json_t *given, const Setting *s) {
    const char *kind = text_of(given, "schedule");
    bool of_schedule = !strcmp(s->option, "warmup") || !strcmp(s->option, "total") ||
                       !strcmp(s->option, "decay-steps") || !strcmp(s->option, "min-ratio");
    if (args_given(&run->o, s->option) || !args_has(run->b, s->option)) return false;
    if (s->kind == COUNT && saved_value(given, s) < 2) return false; /* its program took one microbatch a step */
    return saved_value(given, s) >= 0 && (!of_schedule || (kind && !strcmp(kind, run->b->schedule)));
}

void settings_take(Run *run) {
    const json_t *given = given_of(run);
    char *taken = need_text("%s", "");
    for (const Setting *s = settings; s < settings + SETTINGS; s++) {
        double models = value_of(&run->o, s), x = takes(run, given, s) ? saved_value(given, s) : models;
        if (x == models) continue;
        set_value(&run->o, s, x);
        args_take(&run->o, s->option);
        char *now = figure(x, models), *was = figure(models, x),
             *more = need_text("%s%s%s %s (the model's: %s)", taken, *taken ? ", " : "", s->key, now, was);
        free(taken);
        free(now);
        free(was);
        taken = more;
    }
    bool trains = run->o.data.n && (run->o.steps < 0 || run->o.steps > checkpoint_progress(run->resume)->step);
    if (*taken && trains) note("as in the saved run: %s; an option given here changes it", taken);
    free(taken);
    const json_t *steps = json_object_get(given, "steps");
    if (run->o.steps < 0 && run->o.data.n && json_integer_value(steps) > checkpoint_progress(run->resume)->step)
        run->o.steps = json_integer_value(steps), args_take(&run->o, "steps");
}

static void tell_options(const Run *run, const json_t *given) {
    const char *kind = text_of(given, "schedule");
    if (kind && strcmp(kind, run->b->schedule))
        note("schedule: the saved run had '%s', this one has '%s'", kind, run->b->schedule);
    for (const Setting *s = settings; s < settings + SETTINGS; s++) {
        bool has = args_has(run->b, s->option);
        double saved = saved_value(given, s), now = has ? value_of(&run->o, s) : -1;
        if (saved == now || (s->kind == COUNT && (saved < 0 || now < 0))) continue; /* 1 then; the batch is told */
        char *x = saved < 0 ? need_text("none") : figure(saved, now),
             *y = now < 0 ? need_text("none") : figure(now, saved);
        note("%s: the saved run had %s, this one has %s", s->key, x, y);
        free(x);
        free(y);
    }
}

/* ── what the program was built with ─────────────────────────────────────────────────────────────────────────────────
 */
static void add_difference(char **all, const char *name, const char *was, const char *is) {
    char *more = need_text("%s%s%s %s (was %s)", *all, **all ? ", " : "", name, is ? is : "none", was ? was : "none");
    free(*all);
    *all = more;
}

static void tell_build(const Run *run, const json_t *given) {
    const sc_build *b = run->b;
    const json_t *built = json_object_get(given, "built"), *options = json_object_get(given, "options");
    char *all = need_text("%s", "");
    for (const sc_setting_info *s = b->settings; s < b->settings + b->nsettings; s++) {
        const char *was = text_of(s->option ? options : built, s->name);
        if (s->option && options && (!was || strcmp(was, s->value))) add_difference(&all, s->name, was, s->value);
        if (!s->option && was && strcmp(was, s->value))
            note("%s: the saved run had '%s', this one has '%s'", s->name, was, s->value);
    }
    void *i = json_object_iter((json_t *)options);
    for (; i; i = json_object_iter_next((json_t *)options, i)) {
        const sc_setting_info *s = b->settings;
        while (s < b->settings + b->nsettings && (!s->option || strcmp(s->name, json_object_iter_key(i)))) s++;
        if (s == b->settings + b->nsettings)
            add_difference(&all, json_object_iter_key(i), json_string_value(json_object_iter_value(i)), NULL);
    }
    if (*all) note("options of the model: this program was built with %s", all);
    free(all);
}

/* ── data ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
enum { SAMPLES = 8, SAMPLE_BYTES = 4096 };

/* crc32 of a small file's tokens, of a large one's beginning, end and some places between: what tells two files apart,
 * not what proves them alike. */
static unsigned long fingerprint(const TokenFile *f) {
    unsigned char buffer[SAMPLES * SAMPLE_BYTES];
    uint64_t bytes = f->tokens * (uint64_t)f->width;
    bool small = bytes <= sizeof buffer;
    size_t n = small ? (size_t)bytes : SAMPLE_BYTES;
    unsigned long sum = crc32(0, NULL, 0);
    for (uint64_t i = 0; i < (small ? 1 : SAMPLES); i++) {
        if (!sc_read_at(f->fd, buffer, n, f->at + (small ? 0 : (bytes - n) / (SAMPLES - 1) * i)))
            die("%s: cannot read it: %s", f->path, strerror(errno));
        sum = crc32(sum, buffer, (unsigned)n);
    }
    return sum;
}

/* A name that is not UTF-8 is no text of JSON. */
static json_t *text_json(const char *text) {
    json_t *j = json_string(text);
    return j ? j : json_string("?");
}

static json_t *set_of(const TokenSet *s) {
    json_t *files = json_array();
    for (const TokenFile *f = s->files; f < s->files + s->n; f++) {
        char sum[16];
        snprintf(sum, sizeof sum, "%08lx", fingerprint(f));
        json_array_append_new(files, json_pack("{s:o, s:I, s:s}", "name", text_json(basename(f->path)), "tokens",
                                               (json_int_t)f->tokens, "crc32", sum));
    }
    return json_pack("{s:I, s:I, s:I, s:o}", "windows", (json_int_t)s->windows, "span", (json_int_t)s->span, "stride",
                     (json_int_t)s->stride, "files", files);
}

static int64_t count_in(const json_t *set, const char *key) {
    return json_integer_value(json_object_get(set, key));
}

/* Same tokens in the same order of files, cut alike. Names do not matter: files move. */
static bool same_set(const json_t *a, const json_t *b) {
    const json_t *x = json_object_get(a, "files"), *y = json_object_get(b, "files");
    bool same = json_array_size(x) == json_array_size(y) && count_in(a, "windows") == count_in(b, "windows") &&
                count_in(a, "span") == count_in(b, "span") && count_in(a, "stride") == count_in(b, "stride");
    for (size_t i = 0; same && i < json_array_size(x); i++) {
        const json_t *f = json_array_get(x, i), *g = json_array_get(y, i);
        const char *sum = text_of(f, "crc32"), *other = text_of(g, "crc32");
        same = count_in(f, "tokens") == count_in(g, "tokens") && sum && other && !strcmp(sum, other);
    }
    return same;
}

/* "2 files (a.bin, ...), 120 windows of 65 tokens" */
static char *set_text(const json_t *set) {
    const json_t *files = json_object_get(set, "files");
    size_t n = json_array_size(files);
    const char *first = text_of(json_array_get(files, 0), "name");
    if (!n) return need_text("records from standard input");
    if (!count_in(set, "span"))
        return need_text("%zu array%s (%s%s), %" PRId64 " samples", n, n == 1 ? "" : "s", first ? first : "?",
                         n == 1 ? "" : ", ...", count_in(set, "windows"));
    return need_text("%zu file%s (%s%s), %" PRId64 " windows of %" PRId64 " tokens", n, n == 1 ? "" : "s",
                     first ? first : "?", n == 1 ? "" : ", ...", count_in(set, "windows"), count_in(set, "span"));
}

/* Where the run goes on in its windows: known where both runs read files. true: they are those of the saved run. */
static bool tell_data(const Run *run, const json_t *was) {
    json_t *is = run->records ? json_object() : set_of(&run->train);
    bool records = !json_object_get(was, "files"), same = records ? run->records != NULL : same_set(was, is);
    int64_t windows = run->train.windows;
    if (!same) {
        char *there = set_text(was), *here = set_text(is), *rest = need_text("%s", "");
        if (windows && run->position % windows)
            rest = need_text("; this run goes on at place %" PRId64 " of the random order of pass %" PRId64
                             " through these: what stands before it is left out of this pass, and windows that both "
                             "have may come twice",
                             run->position % windows, run->position / windows + 1);
        note("data: the saved run had %s, this one has %s%s%s", there, here,
             strcmp(there, here) ? "" : ", of other tokens or in another order", rest);
        free(there);
        free(here);
        free(rest);
    }
    json_decref(is);
    return same;
}

/* same_data: what has been seen of these windows is known. */
static void tell_seed(const Run *run, uint64_t was, bool same_data) {
    int64_t windows = run->train.windows, seen = windows ? run->position % windows : 0;
    char *rest = need_text("%s", "");
    if (seen && same_data)
        rest = need_text(": of the %" PRId64 " windows of pass %" PRId64 ", %" PRId64
                         " have been seen; the rest of the pass takes another order, in which about %.0f of those come "
                         "again and as many others never",
                         windows, run->position / windows + 1, seen,
                         (double)seen * (double)(windows - seen) / (double)windows);
    note("seed: the saved run had %" PRIu64 ", this one has %" PRIu64 "%s", was, run->seed, rest);
    free(rest);
}

void settings_tell(const Run *run) {
    const Progress *p = checkpoint_progress(run->resume);
    const json_t *given = given_of(run), *val = json_object_get(given, "val_data");
    const json_t *data = json_object_get(given, "data");
    bool same_data = json_is_object(data) && tell_data(run, data);
    if (run->seed != p->seed) tell_seed(run, p->seed, same_data);
    if (p->global_batch != run->global_batch)
        note("batch: the saved run took %" PRId64 " samples a step, this one takes %" PRId64, p->global_batch,
             run->global_batch);
    if (!given) {
        note("%s was saved before states kept what their run was given: whether learning rate, schedule, data and "
             "precision are the same is not known, and this run has its options' and the model's",
             run->o.resume);
        return;
    }
    tell_options(run, given);
    tell_build(run, given);
    if (run->val.n && json_is_object(val)) {
        json_t *is = set_of(&run->val);
        char *there = set_text(val), *here = set_text(is);
        if (!same_set(val, is))
            note("validation data: the saved run had %s, this one has %s%s: val_loss is not to be compared", there,
                 here, strcmp(there, here) ? "" : " of other tokens");
        json_decref(is);
        free(there);
        free(here);
    }
}

/* ── what a state keeps ──────────────────────────────────────────────────────────────────────────────────────────────
 */
char *settings_text(const Run *run) {
    const sc_build *b = run->b;
    const Options *o = &run->o;
    const json_t *before = given_of(run);
    json_t *given = json_pack("{s:s, s:s}", "optimizer", b->optimizer, "schedule", b->schedule);
    json_t *built = json_object(), *options = json_object(), *own = json_object();
    for (int i = 0; i < b->nparams; i++)
        if (b->params[i].trainable && strcmp(state_optimizer(b, i), b->optimizer))
            json_object_set_new(own, b->params[i].path, json_string(state_optimizer(b, i)));
    if (json_object_size(own)) json_object_set(given, "optimizers", own);
    json_decref(own);
    for (const Setting *s = settings; s < settings + SETTINGS; s++)
        if (args_has(b, s->option))
            json_object_set_new(given, s->key,
                                s->kind == REAL ? json_real(value_of(o, s)) : json_integer((json_int_t)value_of(o, s)));
    if (args_given(o, "steps") || args_taken(o, "steps")) json_object_set_new(given, "steps", json_integer(o->steps));
    for (const sc_setting_info *s = b->settings; s < b->settings + b->nsettings; s++)
        json_object_set_new(s->option ? options : built, s->name, text_json(s->value));
    json_object_set_new(given, "built", built);
    json_object_set_new(given, "options", options);
    json_t *data = run->records   ? json_object()
                   : run->train.n ? set_of(&run->train)
                                  : NULL,
           *val = run->val.n ? set_of(&run->val) : NULL;
    /* A run that only copies a state, or does not validate, keeps what the run before it had. */
    json_object_set_new(given, "data", data ? data : json_deep_copy(json_object_get(before, "data")));
    json_object_set_new(given, "val_data", val ? val : json_deep_copy(json_object_get(before, "val_data")));
    char *text = json_dumps(given, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(given);
    return text;
}
