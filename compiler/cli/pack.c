/* `shardc pack`: buffers of a CSV file, or the storages of a model's program, to offsets in as little memory as can be
 * found, and what is proven about it. Columns as in MiniMalloc (github.com/google/minimalloc).
 * Relies on: input.c, report's figures, pack/.
 * Relied on by: main.c. */
#include "../pack/pack.h"
#include "../pack/exact.h"
#include "../plan/figures.h"
#include "cli.h"

#include <errno.h>
#include <stdlib.h>

static const int64_t MOST_BYTES = 1ll << 60; /* of all buffers together; times are below it too */

typedef struct {
    int64_t from, to; /* times; the end is not part of it */
} Span;
typedef struct {
    int64_t from, to, least; /* a gap: its times, and the bytes that are needed in it */
} Gap;
typedef struct {
    const char *id, *gaps_text;
    int64_t lower, upper, size, alignment, offset;
    Gap *gaps;
    int ngaps;
} Buffer;
typedef struct {
    Arena *a;
    VEC(Buffer) buffers;
    bool aligned, gapped, windowed; /* some buffer has an alignment, a gap, a gap with a window */
    int64_t *times;                 /* at which anything begins or ends, ascending */
    int ntimes;
} Problem;

/* ── reading ───────────────────────────────────────────────────────────────────────────────────────────────── */
typedef enum { COL_ID, COL_LOWER, COL_UPPER, COL_BYTES, COL_ALIGNMENT, COL_GAPS, COL_OFFSET, N_COLS } Col;
static const char *const columns[N_COLS] = {"id", "lower", "upper", "size", "alignment", "gaps", "offset"};
enum { N_NEEDED = COL_ALIGNMENT };

static int64_t number(Source at, const char *what, const char *text, char **end, int64_t low, int64_t high) {
    errno = 0;
    long long x = *text >= '0' && *text <= '9' ? strtoll(text, end, 10) : (errno = EINVAL);
    if (errno || x < low || x > high)
        fail(at, "%s \"%.40s\": a whole number from %lld to %lld is wanted", what, text, (long long)low,
             (long long)high);
    return x;
}

static int64_t field_number(Source at, Col c, const char *text, int64_t low, int64_t high) {
    char *end;
    int64_t x = number(at, columns[c], text, &end, low, high);
    if (*end) fail(at, "%s \"%.40s\": a whole number is wanted and nothing after it", columns[c], text);
    return x;
}

/* "7-9 12-14@2:13": times at which the buffer is not needed, or only its bytes 2 to 12. */
static void read_gaps(Problem *p, Source at, Buffer *b, char *text) {
    static const char wanted[] = "FROM-TO or FROM-TO@BYTE:BYTE is wanted, several with a space between them";
    char *save = NULL;
    VEC(Gap) gaps = {0};
    for (char *t = strtok_r(text, " ", &save); t; t = strtok_r(NULL, " ", &save)) {
        char *end;
        int64_t after = gaps.n ? gaps.at[gaps.n - 1].to : b->lower;
        Gap g = {.from = number(at, "gap", t, &end, 0, MOST_BYTES)};
        if (*end != '-') fail(at, "gap \"%.40s\": %s", t, wanted);
        g.to = number(at, "gap", end + 1, &end, 0, MOST_BYTES);
        if (*end == '@') {
            int64_t low = number(at, "gap", end + 1, &end, 0, b->size);
            if (*end != ':') fail(at, "gap \"%.40s\": %s", t, wanted);
            int64_t high = number(at, "gap", end + 1, &end, 0, b->size);
            if (low >= high) fail(at, "gap \"%.40s\": the first byte after @ must be less than the second", t);
            g.least = high - low;
            p->windowed = true;
        }
        if (*end) fail(at, "gap \"%.40s\": %s", t, wanted);
        if (g.from >= g.to || g.from < after || g.to > b->upper)
            fail(at,
                 "gap \"%.40s\": gaps are not empty, lie between lower and upper, ascend and have no time in common",
                 t);
        push(&gaps, p->a, g);
        p->gapped = true;
    }
    int64_t needed = b->upper - b->lower;
    for (int i = 0; i < gaps.n; i++) needed -= gaps.at[i].least ? 0 : gaps.at[i].to - gaps.at[i].from;
    if (!needed) fail(at, "the gaps leave nothing of the buffer's life; leave the buffer out");
    b->gaps = gaps.at;
    b->ngaps = gaps.n;
}

/* Cuts a line at its commas; the number of fields, of which no more than N_COLS are kept. */
static int cut_line(char *line, char *field[N_COLS]) {
    int n = 0;
    for (char *at = line; at; n++) {
        char *comma = strchr(at, ',');
        if (comma) *comma = 0;
        if (n < N_COLS) field[n] = at;
        at = comma ? comma + 1 : NULL;
    }
    return n;
}

/* Which column each field of the header is; the number of fields. */
static int read_header(Source at, char *line, Col *col) {
    char *field[N_COLS];
    int n = cut_line(line, field), seen[N_COLS] = {0};
    if (n > N_COLS) fail(at, "%d columns: at most id,lower,upper,size,alignment,gaps,offset are wanted", n);
    for (int i = 0; i < n; i++) {
        int c = 0;
        while (c < N_COLS && strcmp(field[i], columns[c])) c++;
        if (c == N_COLS)
            fail(at,
                 "column \"%.40s\": the first line names columns: id,lower,upper,size and, if wanted, alignment,gaps",
                 field[i]);
        if (seen[c]++) fail(at, "column \"%s\" stands twice; leave one out", columns[c]);
        col[i] = (Col)c;
    }
    for (int c = 0; c < N_NEEDED; c++)
        if (!seen[c])
            fail(at, "column \"%s\" is missing; the first line names columns: id,lower,upper,size", columns[c]);
    return n;
}

static void read_csv(Problem *p, const char *path) {
    size_t size;
    char *text = input_read(p->a, NOWHERE, path, FILE_MOST, &size), *save = text;
    Source at = {path, 1};
    Col col[N_COLS];
    int ncols = 0;
    int64_t sum = 0;
    if (strlen(text) < size) fail(at, "a byte with the value 0: a CSV file is text");
    for (char *line; (line = strsep(&save, "\n")); at.line++) {
        size_t length = strlen(line);
        if (length && line[length - 1] == '\r') line[length - 1] = 0;
        if (!*line) continue;
        if (!ncols) {
            ncols = read_header(at, line, col);
            continue;
        }
        char *field[N_COLS] = {0}, *by[N_COLS] = {0};
        int n = cut_line(line, field);
        if (n != ncols) fail(at, "%d fields, where the first line names %d columns", n, ncols);
        for (int i = 0; i < n; i++) by[col[i]] = field[i];
        Buffer b = {.id = by[COL_ID], .alignment = 1};
        if (!*b.id) fail(at, "the id is empty; give the buffer a name or a number");
        b.lower = field_number(at, COL_LOWER, by[COL_LOWER], 0, MOST_BYTES);
        b.upper = field_number(at, COL_UPPER, by[COL_UPPER], 0, MOST_BYTES);
        b.size = field_number(at, COL_BYTES, by[COL_BYTES], 1, MOST_BYTES);
        if (b.lower >= b.upper)
            fail(at, "lower %lld, upper %lld: a buffer lives from lower to just before upper, which must be greater",
                 (long long)b.lower, (long long)b.upper);
        if (by[COL_ALIGNMENT] && *by[COL_ALIGNMENT])
            b.alignment = field_number(at, COL_ALIGNMENT, by[COL_ALIGNMENT], 1, 1 << 30);
        p->aligned |= b.alignment > 1;
        sum += b.size + b.alignment;
        if (sum > MOST_BYTES)
            fail(at, "the buffers up to here have more than %lld bytes together; give sizes in larger units",
                 (long long)MOST_BYTES);
        if (by[COL_GAPS]) {
            b.gaps_text = arena_strdup(p->a, by[COL_GAPS]);
            read_gaps(p, at, &b, by[COL_GAPS]);
        }
        push(&p->buffers, p->a, b);
    }
    if (!ncols) fail((Source){path, 1}, "the file is empty; its first line names columns: id,lower,upper,size");
}

/* The storages of one program in the device's arena, over the program's events; without --program those of the program
 * that needs most. What is persistent lies below them and takes no part. */
static void take_plan(Problem *p, const Options *o, const char *input) {
    const Plan *plan = cli_plan(p->a, o, input);
    int program = -1;
    for (int i = 0; i < plan->nprograms; i++) {
        const PlanProgram *x = &plan->programs[i];
        if (o->program ? !strcmp(x->name, o->program)
                       : program < 0 || x->peak[ARENA_DEVICE] > plan->programs[program].peak[ARENA_DEVICE])
            program = i;
    }
    if (program < 0) fail_usage("--program %s: `shardc inspect` lists the programs of this plan", o->program);
    for (int i = 0; i < plan->nstorages; i++) {
        const Storage *s = &plan->storages[i];
        if (s->program != program || s->arena != ARENA_DEVICE || s->first < 0) continue;
        Buffer b = {s->name, NULL, s->first, s->last + 1, s->size, 1, 0, NULL, 0};
        push(&p->buffers, p->a, b);
    }
}

/* ── packing ───────────────────────────────────────────────────────────────────────────────────────────────── */
static void find_times(Problem *p) {
    VEC(int64_t) t = {0};
    for (int i = 0; i < p->buffers.n; i++) {
        const Buffer *b = &p->buffers.at[i];
        push(&t, p->a, b->lower);
        push(&t, p->a, b->upper);
        for (int k = 0; k < b->ngaps; k++) {
            push(&t, p->a, b->gaps[k].from);
            push(&t, p->a, b->gaps[k].to);
        }
    }
    qsort(t.at, (size_t)t.n, sizeof *t.at, compare_int64);
    for (int i = 0; i < t.n; i++)
        if (!i || t.at[i] != t.at[i - 1]) t.at[p->ntimes++] = t.at[i];
    p->times = t.at;
}

static int time_index(const Problem *p, int64_t time) {
    return FIRST(k, 0, p->ntimes, p->times[k] >= time);
}

/* The most bytes that are needed at one time. */
static int64_t most_alive(const Problem *p) {
    int64_t *change = NEW_ARRAY(p->a, int64_t, p->ntimes + 1), alive = 0, most = 0;
    for (int i = 0; i < p->buffers.n; i++) {
        const Buffer *b = &p->buffers.at[i];
        change[time_index(p, b->lower)] += b->size;
        change[time_index(p, b->upper)] -= b->size;
        for (int k = 0; k < b->ngaps; k++) {
            change[time_index(p, b->gaps[k].from)] -= b->size - b->gaps[k].least;
            change[time_index(p, b->gaps[k].to)] += b->size - b->gaps[k].least;
        }
    }
    for (int t = 0; t < p->ntimes; t++) most = max64(most, alive += change[t]);
    return most;
}

static int64_t common_multiple(const Problem *p) { /* of the alignments; 0: it is large */
    int64_t multiple = 1;
    for (int i = 0; i < p->buffers.n; i++) {
        int64_t alignment = p->buffers.at[i].alignment;
        multiple *= alignment / common_divisor(multiple, alignment);
        if (multiple > 1 << 20) return 0;
    }
    return multiple;
}

/* As the compiler packs storages. Gaps stay empty, and sizes are rounded up to what all alignments divide. Returns the
 * height. */
static int64_t pack_lives(Problem *p, int64_t bound, int64_t known, int64_t effort) {
    int n = p->buffers.n;
    int64_t unit = common_multiple(p), height = 0;
    Item *items = NEW_ARRAY(p->a, Item, n + 1);
    for (int i = 0; i < n; i++) {
        const Buffer *b = &p->buffers.at[i];
        items[i].first = time_index(p, b->lower);
        items[i].last = items[i].reach = time_index(p, b->upper) - 1;
        items[i].size = unit ? round_up(b->size, unit) : b->size;
    }
    if (unit) pack(items, n, p->ntimes, &bound, known, effort, 0);
    for (int i = 0; i < n; i++) {
        Buffer *b = &p->buffers.at[i];
        b->offset = unit ? items[i].at : round_up(height, b->alignment); /* else one above the other */
        height = max64(height, b->offset + b->size);
    }
    return height;
}

/* Sections are the stretches between two times next to each other. */
static ExactItem *exact_items(Problem *p) {
    ExactItem *items = NEW_ARRAY(p->a, ExactItem, p->buffers.n + 1);
    for (int i = 0; i < p->buffers.n; i++) {
        const Buffer *b = &p->buffers.at[i];
        int from = time_index(p, b->lower), to = time_index(p, b->upper), n = 0;
        int *sections = NEW_ARRAY(p->a, int, to - from);
        for (int t = from, k = 0; t < to; t++) {
            while (k < b->ngaps && b->gaps[k].to <= p->times[t]) k++;
            bool away = k < b->ngaps && b->gaps[k].from <= p->times[t] && !b->gaps[k].least;
            if (!away) sections[n++] = t;
        }
        items[i] = (ExactItem){b->size, b->alignment, sections, n, b->offset};
    }
    return items;
}

/* ── writing ───────────────────────────────────────────────────────────────────────────────────────────────── */
static void write_csv(const Problem *p, const Options *o) {
    OutFile f = out_open(p->a, o->out);
    Str s = {.arena = p->a};
    str_addf(&s, "id,lower,upper,size%s%s,offset\n", p->aligned ? ",alignment" : "", p->gapped ? ",gaps" : "");
    for (int i = 0; i < p->buffers.n; i++) {
        const Buffer *b = &p->buffers.at[i];
        str_addf(&s, "%s,%lld,%lld,%lld", b->id, (long long)b->lower, (long long)b->upper, (long long)b->size);
        if (p->aligned) str_addf(&s, ",%lld", (long long)b->alignment);
        if (p->gapped) str_addf(&s, ",%s", b->gaps_text ? b->gaps_text : "");
        str_addf(&s, ",%lld\n", (long long)b->offset);
        str_spill(&s, f.f);
    }
    str_write(&s, f.f);
    out_commit(&f);
}

int command_pack(Arena *a, const Options *o) {
    const char *input = o->inputs.at[0];
    size_t length = strlen(input);
    Problem p = {.a = a};
    if (length > 4 && !strcmp(input + length - 4, ".csv")) {
        const char *given = o->world ? "--world" : o->program ? "--program" : cli_model_option(o);
        if (given) fail_usage("%s is about a model, and %s is a list of buffers; leave it out", given, input);
        read_csv(&p, input);
    } else {
        take_plan(&p, o, input);
    }
    if (o->out) input_keep(o->out);
    find_times(&p);
    int n = p.buffers.n;
    int64_t bound = most_alive(&p), effort = o->effort_millions * 1000000;
    int64_t height = pack_lives(&p, bound, o->capacity, min64(effort, 12000000));
    ExactResult at_capacity = height <= o->capacity ? EXACT_FOUND
                              : bound > o->capacity ? EXACT_IMPOSSIBLE
                                                    : EXACT_UNKNOWN;
    bool search = height > bound && n <= EXACT_MOST && (o->capacity < 0 || at_capacity == EXACT_UNKNOWN);
    if (search) {
        ExactItem *items = exact_items(&p);
        if (o->capacity < 0) {
            height = exact_minimise(items, n, p.ntimes, height, &bound, !p.windowed, &effort);
        } else {
            at_capacity = exact_pack(items, n, p.ntimes, o->capacity, &effort);
            if (at_capacity == EXACT_IMPOSSIBLE && p.windowed) at_capacity = EXACT_UNKNOWN;
            if (at_capacity == EXACT_IMPOSSIBLE) bound = max64(bound, o->capacity + 1);
            if (at_capacity == EXACT_FOUND) height = 0;
        }
        for (int i = 0; i < n; i++) {
            p.buffers.at[i].offset = items[i].at;
            height = max64(height, items[i].at + items[i].size);
        }
    }
    printf("%s: %s buffer%s\n", input, figure_grouped(a, n), n == 1 ? "" : "s");
    printf("  bound     %16s bytes: less is impossible\n", figure_grouped(a, (double)bound));
    printf("  height    %16s bytes: %.4f of the bound%s\n", figure_grouped(a, (double)height),
           bound ? (double)height / (double)bound : 1.0, height <= bound ? ", proven least" : "");
    if (o->capacity >= 0)
        printf("  capacity  %16s bytes: %s\n", figure_grouped(a, (double)o->capacity),
               at_capacity == EXACT_FOUND ? "it fits"
               : at_capacity == EXACT_IMPOSSIBLE
                   ? "it does not fit, which is proven"
                   : "no packing was found, and none was ruled out; a greater --effort may");
    cli_printed();
    if (o->out) write_csv(&p, o);
    return o->capacity >= 0 && at_capacity != EXACT_FOUND;
}
