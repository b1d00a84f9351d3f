/* `shardc explain`: an event or a storage of a plan: who made it, and why it stands where it stands.
 * Relies on: input.c, report/explain.h.
 * Relied on by: main.c. */
#include "../report/explain.h"

#include "cli.h"

int command_explain(Arena *a, const Options *o) {
    const Plan *p = cli_plan(a, o, o->inputs.at[0]);
    if (o->program) cli_check_program(p, o->program);
    OutFile f = cli_output(a, o);
    for (int i = 1; i < o->inputs.n; i++) {
        if (i > 1) fputc('\n', f.f);
        explain_text(f.f, p, o->inputs.at[i], o->program);
    }
    cli_output_done(o, &f);
    return 0;
}
