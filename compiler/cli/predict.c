/* `shardc predict`: does it fit, what is the peak made of, how long is a step. Exit 1 when it does not fit.
 * Relies on: input.c, report.
 * Relied on by: main.c. */
#include "../report/report.h"
#include "cli.h"

#include <stdlib.h>
#include <unistd.h>

int command_predict(Arena *a, const Options *o) {
    if (cli_as_json(o) && (o->at || o->by))
        fail_usage("--format json holds the peak and all events: leave out --at and --by");
    const Plan *p = cli_plan(a, o, o->inputs[0]);
    Moment m = report_moment(p, o->at);
    OutFile f = cli_output(a, o);
    bool color = !o->out && isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
    Holding by = !o->by ? BY_NOTHING : *o->by == 'm' ? BY_MODULE : *o->by == 'u' ? BY_UNIT : BY_STORAGE;
    if (cli_as_json(o))
        report_predict_json(f.f, p);
    else
        report_predict_text(f.f, p, m, color);
    if (by != BY_NOTHING) report_holders_text(f.f, p, m, by);
    cli_output_done(o, &f);
    return report_fits(p) ? 0 : 1;
}
