/* `shardc predict`: does it fit, what is the peak made of, how long is a step. Exit 1 when it does not fit.
 * Relies on: input.c, report.
 * Relied on by: main.c. */
#include "../report/report.h"
#include "cli.h"

#include <stdlib.h>
#include <unistd.h>

int command_predict(Arena *a, const Options *o) {
    const Plan *p = plan_of(a, o, o->inputs[0]);
    OutFile f = output(a, o);
    ReportOptions r = {.color = !o->out && isatty(STDOUT_FILENO) && !getenv("NO_COLOR")};
    if (as_json(o))
        report_predict_json(f.f, p);
    else
        report_predict_text(f.f, p, &r);
    output_done(o, &f);
    return plan_fits(p) ? 0 : 1;
}
