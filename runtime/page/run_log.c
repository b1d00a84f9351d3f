/* Reads the log of a run, a line at a time. A line is a JSON object of numbers and texts; it is read here, and not by a
 * library, because compiler and programs have different ones and both know this file.
 * Relies on: the C library. Relied on by: run_page.c and those whom run_log.h names. */
#include "run_log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ── memory ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void *more(const RunMemory *m, void *old, size_t had, size_t wanted) {
    return m->more(m->context, old, had, wanted);
}

static char *copied(const RunMemory *m, const char *s) {
    size_t n = strlen(s) + 1;
    return memcpy(more(m, NULL, 0, n), s, n);
}

/* ── columns and rows ────────────────────────────────────────────────────────────────────────────────────────────────
 */
static bool keeps_all(const char *name) {
    return !strcmp(name, "seconds") || !strcmp(name, "tok_s") || !strcmp(name, "samples_s");
}

static RunColumn *column_new(RunLog *l, RunTable *t, const char *name) {
    if (t->n == t->cap) {
        int cap = t->cap ? 2 * t->cap : 16;
        t->columns = more(&l->memory, t->columns, (size_t)t->n * sizeof *t->columns, (size_t)cap * sizeof *t->columns);
        t->cap = cap;
    }
    RunColumn *c = &t->columns[t->n++];
    c->name = copied(&l->memory, name);
    if (t->rows_cap) c->cells = more(&l->memory, NULL, 0, (size_t)t->rows_cap * sizeof *c->cells);
    return c;
}

static RunTable table_new(RunLog *l) {
    RunTable t = {.width = 1};
    static const char *const names[] = {"step", "time", "position"};
    for (int i = 0; i < RUN_X; i++) column_new(l, &t, names[i]);
    return t;
}

RunLog run_log_new(const char *name, int limit, RunMemory memory) {
    RunLog l = {.memory = memory, .limit = limit, .last_step = -1};
    l.name = copied(&memory, name);
    l.steps = table_new(&l);
    l.validations = table_new(&l);
    return l;
}

/* guess: where the column stood in the line before. */
static int column_at(const RunTable *t, const char *name, int guess) {
    if (guess < t->n && !strcmp(t->columns[guess].name, name)) return guess;
    for (int i = RUN_X; i < t->n; i++)
        if (!strcmp(t->columns[i].name, name)) return i;
    return -1;
}

const RunColumn *run_log_column(const RunTable *t, const char *name) {
    int k = column_at(t, name, RUN_X);
    return k < 0 ? NULL : &t->columns[k];
}

static void merge(RunCell *into, const RunCell *x) {
    if (!x->n) return;
    into->low = into->n ? fmin(into->low, x->low) : x->low;
    into->high = into->n ? fmax(into->high, x->high) : x->high;
    into->sum += x->sum;
    into->n += x->n;
}

/* A row for one more line. Where there are too many rows, two become one. */
static void row_new(RunLog *l, RunTable *t) {
    if (t->lines / t->width == l->limit) {
        for (int i = 0; i < t->n; i++) {
            RunCell *cells = t->columns[i].cells;
            for (int k = 0; k < l->limit / 2; k++) {
                RunCell both = cells[2 * k];
                merge(&both, &cells[2 * k + 1]);
                cells[k] = both;
            }
            memset(cells + l->limit / 2, 0, (size_t)(l->limit / 2) * sizeof *cells);
        }
        t->width *= 2;
    }
    t->rows = (int)(t->lines / t->width) + 1;
    if (t->rows > t->rows_cap) {
        int cap = t->rows_cap ? 2 * t->rows_cap : 64;
        if (cap > l->limit) cap = l->limit;
        for (int i = 0; i < t->n; i++)
            t->columns[i].cells = more(&l->memory, t->columns[i].cells, (size_t)t->rows_cap * sizeof(RunCell),
                                       (size_t)cap * sizeof(RunCell));
        t->rows_cap = cap;
    }
    t->lines++;
}

static void set(RunLog *l, const RunTable *t, RunColumn *c, int64_t step, double x) {
    merge(&c->cells[t->rows - 1], &(RunCell){x, x, x, 1});
    if (!c->n) {
        c->first = c->low = c->high = x;
        c->first_step = c->low_step = c->high_step = step;
    }
    if (x < c->low) c->low = x, c->low_step = step;
    if (x > c->high) c->high = x, c->high_step = step;
    c->last = x;
    c->last_step = step;
    c->last_null = false;
    if (keeps_all(c->name)) {
        if ((size_t)c->n == c->all_cap) {
            size_t cap = c->all_cap ? 2 * c->all_cap : 256;
            c->all = more(&l->memory, c->all, c->all_cap * sizeof(double), cap * sizeof(double));
            c->all_cap = cap;
        }
        c->all[c->n] = x;
    }
    c->n++;
}

/* Quickselect: only the order of the values in the column changes. */
static double select_kth(double *a, int64_t n, int64_t k) {
    int64_t low = 0, high = n - 1;
    while (low < high) {
        double pivot = a[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (a[i] < pivot) i++;
            while (a[j] > pivot) j--;
            if (i > j) break;
            double x = a[i];
            a[i++] = a[j];
            a[j--] = x;
        }
        if (k <= j)
            high = j;
        else if (k >= i)
            low = i;
        else
            break;
    }
    return a[k];
}

double run_log_median(const RunColumn *c) {
    if (!c || !c->n || !c->all) return (double)NAN;
    double upper = select_kth(c->all, c->n, c->n / 2);
    return c->n % 2 ? upper : (upper + select_kth(c->all, c->n, c->n / 2 - 1)) / 2;
}

int run_log_restarts(const RunLog *l) {
    int n = 0;
    for (int k = 0; k < l->nstarts; k++) n += run_log_is_restart(l, k);
    return n;
}

/* ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static const char *skip_blanks(const char *s) {
    return s + strspn(s, " \t\r\n");
}

static size_t utf8(char *to, unsigned c) {
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char heads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6) to[i] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)(heads[n] | c);
    return n;
}

/* The four digits of a \u; -1: they are none. */
static int hex4(const char *s) {
    int x = 0;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef", *d = s[i] ? strchr(digits, s[i] | 0x20) : NULL;
        if (!d || (s[i] < '0')) return -1;
        x = 16 * x + (int)(d - digits);
    }
    return x;
}

/* The text that begins at s, a quote, into l->key. Returns what follows; NULL: it does not end, or holds what JSON does
 * not allow. A NUL becomes U+FFFD, as half a surrogate pair does. */
static const char *read_text(RunLog *l, const char *s) {
    size_t n = 0, room = strlen(s) + 8;
    if (room > l->key_cap) {
        l->key = more(&l->memory, l->key, l->key_cap, 2 * room);
        l->key_cap = 2 * room;
    }
    for (s++; *s != '"'; s++) {
        if ((unsigned char)*s < 0x20) return NULL; /* the line's end, too */
        if (*s != '\\') {
            l->key[n++] = *s;
            continue;
        }
        s++;
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        const char *simple = *s ? strchr(from, *s) : NULL;
        if (simple) {
            l->key[n++] = to[simple - from];
            continue;
        }
        int c = *s == 'u' ? hex4(s + 1) : -1, low = -1;
        if (c < 0) return NULL;
        s += 4;
        if (c >= 0xd800 && c < 0xdc00 && s[1] == '\\' && s[2] == 'u') low = hex4(s + 3);
        bool pair = low >= 0xdc00 && low < 0xe000;
        if (pair) {
            c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
            s += 6;
        }
        if (!c || (!pair && c >= 0xd800 && c < 0xe000)) c = 0xfffd;
        n += utf8(l->key + n, (unsigned)c);
    }
    l->key[n] = 0;
    return s + 1;
}

/* How many bytes of s are a number of JSON; 0: it begins none. */
static size_t number_bytes(const char *s) {
    static const char digits[] = "0123456789";
    size_t n = *s == '-', whole = strspn(s + n, digits), more;
    if (!whole || (whole > 1 && s[n] == '0')) return 0;
    n += whole;
    if (s[n] == '.') {
        more = strspn(s + n + 1, digits);
        if (!more) return 0;
        n += 1 + more;
    }
    if (s[n] == 'e' || s[n] == 'E') {
        size_t sign = s[n + 1] == '+' || s[n + 1] == '-';
        more = strspn(s + n + 1 + sign, digits);
        if (!more) return 0;
        n += 1 + sign + more;
    }
    return n;
}

typedef enum { NOTHING, NUMBER, TEXT } Kind; /* NOTHING: null, true or false */

/* The value at s; a text is left in l->key. Returns what follows, NULL: no value of a log. */
static const char *read_value(RunLog *l, const char *s, Kind *kind, double *x) {
    static const char *const words[] = {"null", "true", "false"};
    *kind = *s == '"' ? TEXT : NOTHING;
    if (*s == '"') return read_text(l, s);
    for (int i = 0; i < 3; i++)
        if (!strncmp(s, words[i], strlen(words[i]))) return s + strlen(words[i]);
    size_t n = number_bytes(s);
    if (!n) return NULL;
    *kind = NUMBER;
    *x = strtod(s, NULL);
    return isfinite(*x) ? s + n : NULL;
}

/* ── lines ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef bool Take(RunLog *l, void *context, const char *name, Kind kind, double x, const char *text);

static bool wrong(char why[200], const char *text) {
    snprintf(why, 200, "%s", text);
    return false;
}

/* Gives each member of a line to `take`. The name is copied, where there is a text besides. */
static bool read_line(RunLog *l, const char *line, Take *take, void *context, char why[200]) {
    static const char bad[] = "this is no line of a log, which is one JSON object of names, numbers and texts";
    const char *s = skip_blanks(line);
    if (*s != '{') return wrong(why, bad);
    s = skip_blanks(s + 1);
    for (bool first = true; *s != '}'; first = false) {
        double x = 0;
        Kind kind;
        if (!first && *s != ',') return wrong(why, bad);
        if (!first) s = skip_blanks(s + 1);
        const char *name = s, *after = *s == '"' ? read_text(l, s) : NULL;
        if (!after) return wrong(why, bad);
        s = skip_blanks(after);
        if (*s != ':') return wrong(why, bad);
        const char *value = skip_blanks(s + 1);
        s = read_value(l, value, &kind, &x);
        if (!s) return wrong(why, bad);
        if (take) {
            char *text = kind == TEXT ? copied(&l->memory, l->key) : NULL;
            read_text(l, name);
            take(l, context, l->key, kind, x, text);
        }
        s = skip_blanks(s);
    }
    if (*skip_blanks(s + 1)) return wrong(why, bad);
    return true;
}

/* What a line is about: found before its figures are put anywhere. */
typedef struct {
    double step, seconds, position;
    unsigned seen; /* of the numbers: a line may name one twice, and the first is the program's own */
    bool has_step, has_position, samples, start, validation, device, end;
    RunStart how;
    double predicted, used;
} About;

static void peak_add(RunLog *l, RunStart *s, const char *name, double bytes) {
    if (s->npeak == s->peak_cap) {
        int cap = s->peak_cap ? 2 * s->peak_cap : 16;
        s->peak = more(&l->memory, s->peak, (size_t)s->npeak * sizeof *s->peak, (size_t)cap * sizeof *s->peak);
        s->peak_cap = cap;
    }
    s->peak[s->npeak++] = (RunClass){copied(&l->memory, name), bytes};
}

static void setting_add(RunLog *l, RunStart *s, const char *name, const char *text) {
    if (s->nsettings == s->settings_cap) {
        int cap = s->settings_cap ? 2 * s->settings_cap : 16;
        s->settings = more(&l->memory, s->settings, (size_t)s->nsettings * sizeof *s->settings,
                           (size_t)cap * sizeof *s->settings);
        s->settings_cap = cap;
    }
    s->settings[s->nsettings++] = (RunSetting){copied(&l->memory, name), copied(&l->memory, text)};
}

const char *run_log_setting(const RunStart *s, const char *name) {
    for (int i = 0; i < s->nsettings; i++)
        if (!strcmp(s->settings[i].name, name)) return s->settings[i].text;
    return NULL;
}

static bool about(RunLog *l, void *context, const char *name, Kind kind, double x, const char *text) {
    About *a = context;
    const struct {
        const char *name;
        double *to;
    } numbers[] = {{"step", &a->step},
                   {"seconds", &a->seconds},
                   {"tokens", &a->position},
                   {"samples", &a->position},
                   {"world", &a->how.world},
                   {"steps", &a->how.steps},
                   {"predicted_step_s", &a->how.predicted_s},
                   {"arena_bytes", &a->how.arena},
                   {"arena_allocated", &a->how.allocated},
                   {"host_bytes", &a->how.host},
                   {"usable_bytes", &a->how.usable},
                   {"epoch", &a->how.epoch},
                   {"device_bytes_predicted", &a->predicted},
                   {"device_bytes_used", &a->used}};
    if (kind == TEXT) {
        char **to = !strcmp(name, "model")    ? &a->how.model
                    : !strcmp(name, "target") ? &a->how.target
                    : !strcmp(name, "start")  ? &a->how.started
                                              : NULL;
        if (to) *to = (char *)text;
        if (!to && a->start) setting_add(l, &a->how, name, text);
        a->start |= to == &a->how.model;
    }
    a->end |= kind == TEXT && !strcmp(name, "end");
    a->validation |= !strcmp(name, "val_loss");
    if (kind != NUMBER) return true;
    bool known = false, peak = !strncmp(name, "peak ", 5);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(name, numbers[i].name)) continue;
        known = true;
        if (a->seen >> i & 1) continue;
        a->seen |= 1u << i;
        *numbers[i].to = x;
    }
    if (a->start && peak) peak_add(l, &a->how, name + 5, x);
    if (a->start && !peak && !known) {
        char number[32];
        snprintf(number, sizeof number, "%.9g", x);
        setting_add(l, &a->how, name, number);
    }
    a->has_step |= !strcmp(name, "step");
    a->samples |= !strcmp(name, "samples");
    a->has_position |= !strcmp(name, "samples") || !strcmp(name, "tokens");
    a->device |= !strcmp(name, "device_bytes_used");
    return true;
}

typedef struct {
    RunTable *table;
    int64_t step;
    int guess;
} Filling;

static bool fill(RunLog *l, void *context, const char *name, Kind kind, double x, const char *text) {
    Filling *f = context;
    if (kind == TEXT || !strcmp(name, "step")) return true;
    int k = column_at(f->table, name, f->guess);
    RunColumn *c = k < 0 ? column_new(l, f->table, name) : &f->table->columns[k];
    f->guess = (int)(c - f->table->columns) + 1;
    if (c->n && c->last_step == f->step) return true; /* named twice */
    c->last_null = true;
    if (kind == NUMBER) set(l, f->table, c, f->step, x);
    return true;
}

bool run_log_add(RunLog *l, const char *line, char why[200]) {
    About a = {0};
    if (!read_line(l, line, about, &a, why)) return false;
    if (!a.has_step || !(a.step >= 0 && a.step <= 0x1p53) || a.step != floor(a.step))
        return wrong(why, "this line of a log does not say its \"step\", a whole number");
    int64_t step = (int64_t)a.step;
    bool row = !a.start && !a.device && !a.end;
    RunTable *t = a.validation ? &l->validations : &l->steps;
    if (step < l->last_step || (row && t->lines && step == t->columns[RUN_STEP].last_step)) {
        snprintf(why, 200, "step %lld follows step %lld: two runs in one file? give each its own log", (long long)step,
                 (long long)l->last_step);
        return false;
    }
    l->last_step = step;
    if (a.start) {
        if (l->nstarts == l->starts_cap) {
            int cap = l->starts_cap ? 2 * l->starts_cap : 4;
            l->starts =
                more(&l->memory, l->starts, (size_t)l->nstarts * sizeof *l->starts, (size_t)cap * sizeof *l->starts);
            l->starts_cap = cap;
        }
        a.how.step = step;
        l->starts[l->nstarts++] = a.how;
    }
    if (a.device) {
        l->device_predicted = a.predicted;
        l->device_used = fmax(l->device_used, a.used);
    }
    if (!row) return true;
    if (a.seconds > 0) l->seconds += a.seconds;
    if (a.has_position) l->position = a.position, l->samples = a.samples;
    row_new(l, t);
    Filling f = {t, step, RUN_X};
    const double x[RUN_X] = {a.step, l->seconds, l->position};
    for (int i = 0; i < RUN_X; i++) set(l, t, &t->columns[i], step, x[i]);
    return read_line(l, line, fill, &f, why);
}
