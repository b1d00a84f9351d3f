/* `shardc report`: runs of programs, from their logs, over each other: as text, as JSON, as a page.
 * Relies on: report/runs.h, runtime/page/run_log.h.
 * Relied on by: main.c. */
#include "../report/runs.h"
#include "cli.h"

#include <unistd.h>

enum { ROWS = 8192, LEAST_ROWS = 1024 }; /* of the curves of all runs: a page has some 2 MB */

int command_report(Arena *a, const Options *o) {
    const char *format = o->format ? o->format : o->out ? "html" : "text";
    bool html = !strcmp(format, "html");
    if (html && !o->out && isatty(STDOUT_FILENO))
        fail_usage("--format html writes a page for a browser: write it to a file, -o run.html");
    int rows = ROWS / o->inputs.n / 2 * 2;
    RunLog *logs = NEW_ARRAY(a, RunLog, o->inputs.n);
    for (int i = 0; i < o->inputs.n; i++)
        logs[i] = runs_read(a, o->inputs.at[i], rows < LEAST_ROWS ? LEAST_ROWS : rows);
    OutFile f = cli_output(a, o);
    if (html)
        run_page_write(f.f, logs, o->inputs.n, false);
    else if (!strcmp(format, "json"))
        runs_json(a, f.f, logs, o->inputs.n);
    else
        runs_text(a, f.f, logs, o->inputs.n);
    cli_output_done(o, &f);
    return 0;
}
