/* What the columns of `inspect` say of an event, and on a terminal a table of them: a cell that is wider than its
 * column goes on below, so that no name breaks the table. Relies on: report.h, sentences.h (reasons of waits),
 * figures.h. Relied on by: report/inspect.c, cli/, through report.h. */
#include "../plan/figures.h"
#include "../plan/sentences.h"
#include "report.h"

#include <fnmatch.h>

enum { GAP = 2, NARROWEST = 10, IDS = N_COLUMNS, N_CELLS };

const char *report_column(Column c) {
    static const char *const names[] = {"stream",  "purpose", "op",    "phase", "module", "reads", "writes",
                                        "address", "size",    "waits", "why",   "time",   "source"};
    return names[c];
}

bool report_wants(const ReportOptions *o, const Event *e) {
    return (!o->module || !fnmatch(o->module, e->module, 0)) &&
           (!o->stream || !strcmp(o->stream, stream_name(e->stream)));
}

static bool has(const ReportOptions *o, Column c) {
    return o->columns >> c & 1;
}

void report_accesses(Str *s, const Plan *p, const ReportOptions *o, const Access *x, int n) {
    for (int i = 0; i < n; i++) {
        const Storage *st = &p->storages[x[i].storage];
        str_addf(s, "%s%s", i ? " " : "", st->name);
        if (has(o, COL_ADDRESS))
            str_addf(s, "@%s0x%08llx", st->arena == ARENA_HOST ? "host:" : "",
                     (unsigned long long)(st->offset + x[i].offset));
        else if (x[i].offset)
            str_addf(s, "+0x%llx", (unsigned long long)x[i].offset);
        if (has(o, COL_SIZE)) str_addf(s, ":%s", figure_bytes(s->arena, (double)x[i].size));
    }
}

/* ── cells ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
static void cell(Str *s, const Plan *p, const PlanProgram *g, const Event *e, const ReportOptions *o, int c) {
    switch (c) {
    case IDS: str_add(s, e->id); break;
    case COL_STREAM: str_add(s, stream_name(e->stream)); break;
    case COL_PURPOSE: str_add(s, purposes[e->purpose].name); break;
    case COL_OP:
        str_add(s, e->op);
        if (e->stream == EXCHANGE && e->comm >= 0) str_addf(s, " over %s", p->comms[e->comm].axis->name);
        break;
    case COL_PHASE: str_add(s, phase_name(e->phase)); break;
    case COL_MODULE: str_add(s, *e->module ? e->module : "-"); break;
    case COL_READS: report_accesses(s, p, o, e->reads, e->nreads); break;
    case COL_WRITES: report_accesses(s, p, o, e->writes, e->nwrites); break;
    case COL_WAITS:
        for (int i = 0; i < e->nwaits; i++) str_addf(s, "%s%s", i ? " " : "", g->events[e->waits[i]].id);
        break;
    case COL_WHY:
        for (int i = 0; i < e->nwaits; i++) {
            const char *said[REASONS_MOST + 1];
            int n = plan_reasons(p, g, e, e->waits[i], NULL, NULL, said);
            str_addf(s, "%s%s:", i ? ". " : "", g->events[e->waits[i]].id);
            for (int k = 0; k < n; k++) str_addf(s, "%s %s", k ? ";" : "", said[k]);
        }
        break;
    case COL_TIME: str_addf(s, "%.3fms +%.3fms", e->start_us * 1e-3, e->duration_us * 1e-3); break;
    case COL_SOURCE:
        if (e->src.file) str_addf(s, "%s:%d", basename(e->src.file), e->src.line);
        break;
    default: break; /* address and size are part of what is read and written */
    }
}

static int characters(const char *s, size_t n) {
    int k = 0;
    for (size_t i = 0; i < n; i++) k += ((unsigned char)s[i] & 0xc0) != 0x80;
    return k;
}

/* Bytes of the first line of a text in a column: up to a space, else behind a part of a path, else as many as fit. */
static size_t first_line(const char *s, int wide) {
    size_t n = 0, space = 0, part = 0;
    for (int k = 0; s[n] && k < wide; k++) {
        do n++;
        while (((unsigned char)s[n] & 0xc0) == 0x80);
        if (s[n] == ' ') space = n;
        if (strchr(".+,:/", s[n - 1])) part = n;
    }
    return !s[n] || s[n] == ' ' ? n : space ? space : part ? part : n;
}

/* ── the table ───────────────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    int of[N_CELLS], n, wide[N_CELLS]; /* columns in their order, and how wide they are */
} Shape;

/* The widest column gives way, until the line fits or no column is wider than NARROWEST. */
static void fit(Shape *s, int terminal) {
    for (;;) {
        int all = 0, most = 0;
        for (int i = 0; i < s->n; i++) {
            all += s->wide[i] + (i ? GAP : 0);
            if (s->wide[i] > s->wide[most]) most = i;
        }
        if (all <= terminal || s->wide[most] <= NARROWEST) return;
        s->wide[most]--;
    }
}

static Shape shape(const Plan *p, const PlanProgram *g, const ReportOptions *o) {
    Shape s = {.of = {IDS}, .n = 1, .wide = {2}};
    Arena *a = arena_new();
    Str text = {.arena = a};
    for (int c = 0; c < N_COLUMNS; c++)
        if (has(o, (Column)c) && c != COL_ADDRESS && c != COL_SIZE) {
            s.of[s.n] = c;
            s.wide[s.n++] = (int)strlen(report_column((Column)c));
        }
    for (int e = 0; e < g->n; e++)
        for (int i = 0; i < s.n && report_wants(o, &g->events[e]); i++) {
            text.n = 0;
            cell(&text, p, g, &g->events[e], o, s.of[i]);
            int wide = text.n ? characters(text.s, text.n) : 0;
            if (wide > s.wide[i]) s.wide[i] = wide;
        }
    arena_free(a);
    fit(&s, o->terminal);
    return s;
}

/* Cells beside each other, each in as many lines as it takes. */
static void put_row(FILE *f, const Shape *s, const char *const *cells) {
    const char *rest[N_CELLS];
    bool more = true;
    memcpy(rest, cells, sizeof *rest * (size_t)s->n);
    while (more) {
        int column = 0, owed = 0; /* owed: blanks that are written only if something follows */
        more = false;
        for (int i = 0; i < s->n; i++) {
            size_t n = first_line(rest[i], s->wide[i]);
            if (n) {
                fprintf(f, "%*s%.*s", column - owed, "", (int)n, rest[i]);
                owed = column + characters(rest[i], n);
            }
            rest[i] += n;
            rest[i] += *rest[i] == ' ';
            more |= *rest[i] != 0;
            column += s->wide[i] + GAP;
        }
        fputc('\n', f);
    }
}

void report_events_table(FILE *f, const Plan *p, const PlanProgram *g, const ReportOptions *o) {
    const Shape s = shape(p, g, o);
    const char *cells[N_CELLS];
    for (int i = 0; i < s.n; i++) cells[i] = s.of[i] == IDS ? "id" : report_column((Column)s.of[i]);
    if (g->n) put_row(f, &s, cells);
    Arena *a = arena_new();
    Str text[N_CELLS];
    for (int i = 0; i < s.n; i++) text[i] = (Str){.arena = a};
    for (int e = 0; e < g->n; e++) {
        if (!report_wants(o, &g->events[e])) continue;
        for (int i = 0; i < s.n; i++) {
            text[i].n = 0;
            str_add(&text[i], "");
            cell(&text[i], p, g, &g->events[e], o, s.of[i]);
            cells[i] = text[i].s;
        }
        put_row(f, &s, cells);
    }
    arena_free(a);
}
