/* `shardc inspect`: the schedule, an event a line; as JSON it is the plan itself, as HTML a page, as a trace
 * Perfetto's. Relies on: input.c, report. Relied on by: main.c. */
#include "../emit/emit.h"
#include "../plan/plan_json.h"
#include "../report/actual.h"
#include "../report/explain.h"
#include "../report/page.h"
#include "../report/report.h"
#include "cli.h"

#include <sys/ioctl.h>
#include <unistd.h>

enum { LEAST = 80, WIDE = 120 }; /* columns of a terminal: what a table is made for, what has room for accesses */

static void check_stream(Arena *a, const char *name) {
    Str known = {.arena = a};
    for (int s = 0; s < N_STREAMS; s++) {
        if (!strcmp(name, stream_name((Stream)s))) return;
        str_addf(&known, "%s%s", s == 0 ? "" : s + 1 == N_STREAMS ? " and " : ", ", stream_name((Stream)s));
    }
    fail_usage("--stream %s: streams are %s", name, known.s);
}

/* "all", or names with commas between them: `default` stands for those that are shown unless columns are chosen. */
static unsigned columns_of(Arena *a, const char *text) {
    const char *names[N_COLUMNS + 2] = {"all", "default"};
    unsigned sets[N_COLUMNS + 2] = {COLUMNS_ALL, COLUMNS_DEFAULT}, columns = 0;
    Str known = {.arena = a};
    for (int c = 0; c < N_COLUMNS; c++) {
        names[c + 2] = report_column((Column)c);
        sets[c + 2] = 1u << c;
        str_addf(&known, ", %s", names[c + 2]);
    }
    while (text) {
        const char *comma = strchr(text, ','), *name = arena_printf(a, "%.*s", (int)strcspn(text, ","), text);
        int i = 0;
        while (i < N_COLUMNS + 2 && strcmp(name, names[i])) i++;
        if (i == N_COLUMNS + 2) fail_usage("--columns %s: columns are%s; or all, or default", name, known.s + 1);
        columns |= sets[i];
        text = comma ? comma + 1 : NULL;
    }
    if (columns & (1u << COL_ADDRESS | 1u << COL_SIZE) && !(columns & (1u << COL_READS | 1u << COL_WRITES)))
        fail_usage("--columns: address and size belong to reads and writes: add one of those");
    if (columns & 1u << COL_WHY && !(columns & 1u << COL_WAITS))
        fail_usage("--columns: why belongs to waits: write waits,why");
    return columns;
}

static void check_options(const Options *o) {
    if (o->explain && (o->actual || (o->format && strcmp(o->format, "text"))))
        fail_usage("--explain adds a table to the text of the plan: leave out %s", o->actual ? "--actual" : "--format");
    bool html = o->format && !strcmp(o->format, "html"), trace = o->format && !strcmp(o->format, "trace");
    bool filtered = o->module || o->stream || o->columns;
    if (o->actual && trace)
        fail_usage("--actual with --format trace: both are traces; open %s in the viewer as it is", o->actual);
    if (o->actual && (filtered || (o->program && html)))
        fail_usage("--actual compares whole programs: leave out --module, --stream and --columns%s",
                   o->program ? ", and --program in a page" : "");
    if (!o->actual && (html || trace || cli_as_json(o)) && (o->program || filtered))
        fail_usage("--format %s writes the whole plan: leave out --program, --module, --stream and --columns",
                   o->format);
    if (html && !o->out && isatty(STDOUT_FILENO))
        fail_usage("--format html writes a page for a browser: write it to a file, -o plan.html");
}

/* Columns of the terminal that text goes to; 0: it goes to none. */
static int terminal_of(const Options *o) {
    struct winsize w = {0};
    if (o->out || !isatty(STDOUT_FILENO)) return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) || w.ws_col < LEAST ? LEAST : w.ws_col;
}

/* What a narrow terminal has no room for is left out unless it is asked for. */
static void for_terminal(const Options *o, ReportOptions *r) {
    r->terminal = terminal_of(o);
    if (!r->terminal || r->terminal >= WIDE || o->columns) return;
    r->columns &= ~(1u << COL_READS | 1u << COL_WRITES);
    r->hides = "What events read and write: --columns default, or a terminal of 120 columns";
}

int command_inspect(Arena *a, const Options *o) {
    check_options(o);
    unsigned columns = columns_of(a, o->columns ? o->columns : "default");
    const Plan *p = cli_plan(a, o, o->inputs.at[0]);
    if (o->stream) check_stream(a, o->stream);
    if (o->program) cli_check_program(p, o->program);
    const Actual *actual = o->actual ? actual_read(p, o->actual, o->program) : NULL;
    OutFile f = cli_output(a, o);
    ReportOptions r = {.program = o->program, .module = o->module, .stream = o->stream, .columns = columns};
    for_terminal(o, &r);
    if (o->format && !strcmp(o->format, "html"))
        page_write(f.f, p, actual, emit_statements(p));
    else if (actual && cli_as_json(o))
        actual_json(f.f, actual);
    else if (actual)
        actual_text(f.f, actual);
    else if (cli_as_json(o))
        plan_write_json(f.f, p);
    else if (o->format && !strcmp(o->format, "trace"))
        report_trace(f.f, p);
    else
        report_inspect_text(f.f, p, &r);
    if (o->explain) explain_passes(f.f, p);
    cli_output_done(o, &f);
    return 0;
}
