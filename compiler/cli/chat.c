/* `shardc data --chat` and `--pairs`: conversations become rows of tokens, targets and documents in a safetensors file,
 * arrays of a model's inputs. Several conversations share a row where they fit: best fit, longest first.
 * Relies on: base, text.h. Relied on by: data.c. */
#include "../plan/figures.h"
#include "../plan/lines.h"
#include "text.h"

#include <stdlib.h>

enum { IGNORED = -100, CHUNK = 4096, HEAD = 1 << 10 };

typedef struct {
    int64_t at; /* in Set.ids */
    int n;      /* positions: tokens that have one after them */
    int next;   /* in its row; -1: it is the last */
} Sample;

typedef struct {
    uint32_t *ids; /* with SC_TEXT_TARGET */
    int64_t n, room;
    VEC(Sample) samples;
    int seq, answers; /* answers: sequences of a sample of --pairs; 1 of --chat */
    uint32_t pad;
    int64_t read, cut, dropped, empty, targets;
} Set;

typedef VEC(int) Rows; /* the first sample of each */

/* ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void add_ids(Set *s, const uint32_t *ids, int64_t n) {
    if (s->n + n > s->room) {
        s->room = 2 * (s->n + n);
        s->ids = realloc(s->ids, (size_t)s->room * sizeof *s->ids);
        if (!s->ids) fail(NOWHERE, "no memory for %lld tokens; make several files", (long long)s->room);
    }
    memcpy(s->ids + s->n, ids, (size_t)n * sizeof *ids);
    s->n += n;
}

static int64_t count_targets(const uint32_t *ids, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 1; i < n; i++) count += (ids[i] & SC_TEXT_TARGET) != 0;
    return count;
}

/* A sequence that is too long, or has nothing to predict, is of no use; of answers that were compared both go. */
static bool useful(Set *s, const uint32_t *ids, int64_t *n, bool *cut) {
    bool is_long = *n > s->seq + 1;
    *cut |= is_long;
    if (is_long) *n = s->seq + 1;
    return count_targets(ids, *n) > 0;
}

static void read_all(Arena *a, Set *s, const Options *o, sc_text *t) {
    int64_t begin = s->n, taken[2] = {0};
    int k = 0;
    bool good = true, cut = false;
    while (cli_text_next(o, t)) {
        int64_t n = t->n;
        good &= useful(s, t->ids, &n, &cut);
        add_ids(s, t->ids, n);
        taken[k++] = n;
        if (k < s->answers) continue;
        s->read++;
        s->cut += cut && !o->drop_long;
        if (cut && o->drop_long)
            s->dropped++, good = false;
        else if (!good)
            s->empty++;
        int64_t at = begin;
        for (int i = 0; i < k && good; at += taken[i++]) {
            push(&s->samples, a, ((Sample){at, (int)taken[i] - 1, -1}));
            s->targets += count_targets(s->ids + at, taken[i]);
        }
        if (!good) s->n = begin;
        begin = s->n;
        k = 0;
        good = true;
        cut = false;
    }
}

/* ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Best fit, longest first (Johnson 1973): each goes into the row that has the least room for it. rows[r] lists rows
 * with room for r more tokens, chained by `after`; a word of bits tells 64 of these lists that are not empty. */
static Rows pack(Arena *a, Set *s) {
    int seq = s->seq, n = s->samples.n, words = seq / 64 + 1;
    int *order = arena_alloc(a, sizeof(int) * (size_t)(n + 1)),
        *count = arena_alloc(a, sizeof(int) * (size_t)(seq + 2));
    int *rows = arena_alloc(a, sizeof(int) * (size_t)(seq + 1)), *after = arena_alloc(a, sizeof(int) * (size_t)(n + 1));
    int *last = arena_alloc(a, sizeof(int) * (size_t)(n + 1));
    uint64_t *some = arena_alloc(a, sizeof *some * (size_t)words);
    Rows all = {0};
    memset(count, 0, sizeof(int) * (size_t)(seq + 2));
    memset(some, 0, sizeof *some * (size_t)words);
    for (int i = 0; i <= seq; i++) rows[i] = -1;
    for (int i = 0; i < n; i++) count[seq - s->samples.at[i].n + 1]++;
    for (int i = 0; i <= seq; i++) count[i + 1] += count[i];
    for (int i = 0; i < n; i++) order[count[seq - s->samples.at[i].n]++] = i;
    for (int i = 0; i < n; i++) {
        Sample *x = &s->samples.at[order[i]];
        int w = x->n / 64, room, row;
        uint64_t bits = some[w] & ~0ull << x->n % 64;
        while (!bits && ++w < words) bits = some[w];
        if (bits) {
            room = w * 64 + __builtin_ctzll(bits);
            row = rows[room];
            rows[room] = after[row];
            if (rows[room] < 0) some[w] &= ~(1ull << room % 64);
            s->samples.at[last[row]].next = order[i];
        } else {
            room = seq;
            row = all.n;
            push(&all, a, order[i]);
        }
        last[row] = order[i];
        room -= x->n;
        after[row] = rows[room];
        rows[room] = row;
        some[room / 64] |= 1ull << room % 64;
    }
    return all;
}

static Rows one_each(Arena *a, const Set *s) {
    Rows all = {0};
    for (int i = 0; i < s->samples.n; i++) push(&all, a, i);
    return all;
}

/* ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef enum { TOKENS, TARGETS, DOCUMENTS } Part;

static void fill_row(const Set *s, int first, Part part, int32_t *out) {
    int at = 0, document = 1;
    for (int i = first; i >= 0; i = s->samples.at[i].next, document++) {
        const Sample *x = &s->samples.at[i];
        const uint32_t *ids = s->ids + x->at;
        for (int k = 0; k < x->n; k++, at++)
            out[at] = part == TOKENS                       ? (int32_t)(ids[k] & ~SC_TEXT_TARGET)
                      : part == DOCUMENTS                  ? document
                      : (ids[k + 1] & SC_TEXT_TARGET) != 0 ? (int32_t)(ids[k + 1] & ~SC_TEXT_TARGET)
                                                           : IGNORED;
    }
    for (; at < s->seq; at++) out[at] = part == TOKENS ? (int32_t)s->pad : part == TARGETS ? IGNORED : 0;
}

static void write_rows(FILE *f, const Set *s, const Rows *rows) {
    const char *names[] = {s->answers > 1 ? "ids" : "tokens", "targets", "documents"};
    int parts = s->answers > 1 ? 2 : 3;
    int64_t samples = rows->n / s->answers, bytes = samples * s->answers * s->seq * 4;
    char shape[64], head[HEAD];
    if (s->answers > 1)
        snprintf(shape, sizeof shape, "[%lld,%d,%d]", (long long)samples, s->answers, s->seq);
    else
        snprintf(shape, sizeof shape, "[%lld,%d]", (long long)samples, s->seq);
    int n = snprintf(head, sizeof head, "{\"__metadata__\":{\"made by\":\"shardc data\"}");
    for (int i = 0; i < parts; i++)
        n += snprintf(head + n, sizeof head - (size_t)n,
                      ",\"%s\":{\"dtype\":\"I32\",\"shape\":%s,\"data_offsets\":[%lld,%lld]}", names[i], shape,
                      (long long)(i * bytes), (long long)((i + 1) * bytes));
    n += snprintf(head + n, sizeof head - (size_t)n, "}");
    while (n % 8) head[n++] = ' ';
    uint64_t length = (uint64_t)n;
    fwrite(&length, sizeof length, 1, f);
    fwrite(head, 1, (size_t)n, f);
    int32_t *row = malloc((size_t)s->seq * sizeof *row);
    if (!row) fail(NOWHERE, "no memory for a row of %d tokens", s->seq);
    for (int part = 0; part < parts; part++)
        for (int i = 0; i < rows->n; i++) {
            fill_row(s, rows->at[i], (Part)part, row);
            fwrite(row, sizeof *row, (size_t)s->seq, f);
        }
    free(row);
}

static bool holds_rows(const char *head, size_t n) {
    return n > 8 && strstr(head + 8, "\"made by\":\"shardc data\""); /* behind the length of a head of safetensors */
}

static void tell(Arena *a, const Set *s, const char *out, int rows) {
    const char *what = s->answers > 1 ? "pairs of answers" : "conversations";
    int64_t positions = 0;
    for (int i = 0; i < s->samples.n; i++) positions += s->samples.at[i].n;
    lines_sentence(stdout, 4,
                   arena_printf(a, "%s: %s rows of %d tokens from %s %s, %s of %s tokens are targets, %.1f %% full",
                                out, figure_grouped(a, (double)(rows / s->answers)), s->seq,
                                figure_grouped(a, (double)s->read), what, figure_grouped(a, (double)s->targets),
                                figure_grouped(a, (double)positions),
                                100 * (double)positions / ((double)rows * s->seq)));
    if (s->cut)
        remark(
            NOWHERE,
            "%s of %s %s are longer than a row and are cut off; --seq N makes longer rows, --drop-long leaves them out",
            figure_grouped(a, (double)s->cut), figure_grouped(a, (double)s->read), what);
    if (s->dropped)
        remark(NOWHERE, "%s %s are longer than a row and are left out", figure_grouped(a, (double)s->dropped), what);
    if (s->empty)
        remark(NOWHERE, "%s %s have no token to predict and are left out", figure_grouped(a, (double)s->empty), what);
}

void cli_data_chat(Arena *a, const Options *o) {
    Set s = {.seq = o->seq, .answers = o->pairs ? 2 : 1};
    sc_text t;
    cli_keep_others(o->out, holds_rows, "rows of shardc data");
    cli_text_begin(a, o, &t, "conversations", o->chat_template ? o->chat_template : "", o->pairs ? "pairs" : "");
    s.pad = t.pad == SC_TEXT_NONE ? 0 : t.pad;
    read_all(a, &s, o, &t);
    if (!s.samples.n)
        fail(NOWHERE, "no rows to write: %s",
             s.read ? "no conversation has a token to predict within a row" : "the files hold no lines");
    Rows rows = o->pairs || o->no_pack ? one_each(a, &s) : pack(a, &s);
    OutFile out = out_open(a, o->out);
    write_rows(out.f, &s, &rows);
    out_commit(&out);
    tell(a, &s, o->out, rows.n);
    free(s.ids);
}
