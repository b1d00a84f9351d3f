/* `shardc diff`: what differs between two plans, and whether it is within bounds.
 * Relies on: input.c, report/diff.h.
 * Relied on by: main.c. */
#include "../report/diff.h"

#include "cli.h"

#include <unistd.h>

/* Options say how a model is compiled. A plan that stands beside a model takes none of them. */
static Plan *side(Arena *a, const Options *o, const char *input, const char *other) {
    if (cli_is_model(input) || !cli_is_model(other)) return cli_plan(a, o, input);
    Options plain = {.delayed = o->delayed};
    memcpy(plain.delay_us, o->delay_us, sizeof plain.delay_us);
    return cli_plan(a, &plain, input);
}

int command_diff(Arena *a, const Options *o) {
    const Options *b = o->vs ? o->vs : o; /* all options; o has those before --vs */
    if (o->vs && o->inputs.n != 1)
        fail_usage("--vs: one input stands before it, and at most one after it: shardc diff A [options] --vs [B] "
                   "[options]");
    if (!o->vs && o->inputs.n != 2)
        fail_usage("diff wants two plans: shardc diff A B; or one model twice, with further options after --vs: shardc "
                   "diff %s --vs --set key=value",
                   o->inputs.at[0]);
    const char *in_a = b->inputs.at[0], *in_b = b->inputs.at[b->inputs.n - 1];
    bool html = b->format && !strcmp(b->format, "html");
    if (html && !b->out && isatty(STDOUT_FILENO))
        fail_usage("--format html writes a page for a browser: write it to a file, -o diff.html");
    DiffBounds bounds = {0};
    if (b->fail_if) bounds = diff_bounds(a, b->fail_if);
    const Plan *x = side(a, o, in_a, in_b), *y = side(a, b, in_b, in_a);
    const Diff *d = diff_plans(a, x, y);
    OutFile f = cli_output(a, b);
    if (cli_as_json(b))
        diff_json(f.f, a, d);
    else if (html)
        diff_page(f.f, a, d, &bounds);
    else
        diff_text(f.f, a, d, b->every);
    cli_output_done(b, &f);
    Str missed = {.arena = a};
    for (int i = 0; i < bounds.n; i++) {
        const char *said = diff_missed(a, d, &bounds.at[i]);
        if (said) str_addf(&missed, "%s%s", missed.n ? "; " : "", said);
    }
    if (missed.n) fail(NOWHERE, "--fail-if: %s", missed.s);
    return 0;
}
