/* `shardc predict`: does it fit, what is the peak made of, how long is a step. Exit 1 when it does not fit.
 * Relies on: input.c, sweep.c, search.c, report.
 * Relied on by: main.c. */
#include "../plan/live.h"
#include "../report/explain.h"
#include "../report/report.h"
#include "cli.h"
#include "planned.h"

#include <stdlib.h>
#include <unistd.h>

/* Options that say nothing beside others are mistakes. */
static void check_options(const Options *o) {
    bool model = cli_is_model(o->inputs.at[0]);
    const char *several = o->sweep.n ? "--sweep" : o->max ? "--max" : o->best ? "--best" : NULL;
    const char *chooses = several ? several : o->budget ? "--budget" : o->keep.n ? "--keep" : NULL;
    const char *one = o->at           ? "--at"
                      : o->by         ? "--by"
                      : o->dump_after ? "--dump-after"
                      : o->explain    ? "--explain"
                                      : NULL;
    if (chooses && !model)
        fail_usage("%s: %s compiles a model, and this is compiled already: give the model's .lua file", o->inputs.at[0],
                   chooses);
    if (!!o->sweep.n + !!o->max + !!o->best > 1)
        fail_usage("--sweep, --max and --best are questions of their own: give one of them");
    if (several && one) fail_usage("%s shows one prediction, %s makes many: leave one of the two out", one, several);
    if (cli_as_csv(o) && !several) fail_usage("--format csv is for --sweep, --max and --best; give text or json");
    if (o->svg && !o->sweep.n)
        fail_usage("--svg %s: it is the picture of a sweep; give --sweep KEY=VALUES too", o->svg);
    if (o->keep.n && !o->budget && !o->sweep.n && !o->best)
        fail_usage("--keep %s: it holds a choice of policies, and none are chosen; give --budget too", o->keep.at[0]);
    if (o->price > 0 && !(o->tokens > 0)) fail_usage("--price is that of training on --tokens N: give both");
    if (o->tokens > 0 && (several || cli_as_json(o)))
        fail_usage("--tokens adds a line to the text of one prediction: leave out %s%s",
                   several ? several : "--format json", several ? ", and ask for each point alone" : "");
    if (cli_as_json(o) && o->explain) fail_usage("--explain adds a table to the text: leave out --format json");
    if (cli_as_json(o) && (o->at || o->by))
        fail_usage("--format json holds the peak and all events: leave out --at and --by");
}

int command_predict(Arena *a, const Options *o) {
    check_options(o);
    if (o->sweep.n) return cli_sweep(a, o);
    if (o->max) return cli_max(a, o);
    if (o->best) return cli_best(a, o);
    const Plan *p = cli_plan(a, o, o->inputs.at[0]);
    Moment m = report_moment(p, o->at);
    bool advised = !live_fits(p) && cli_is_model(o->inputs.at[0]) && !o->budget;
    OutFile f = cli_output(a, o);
    bool color = !o->out && isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
    Holding by = !o->by ? BY_NOTHING : *o->by == 'm' ? BY_MODULE : *o->by == 'u' ? BY_UNIT : BY_STORAGE;
    if (cli_as_json(o)) {
        Advice advice = advised ? cli_advice(a, o, p) : (Advice){0};
        report_predict_json(f.f, p, advised ? &advice : NULL);
    } else {
        report_predict_text(f.f, p, m, color);
    }
    if (o->tokens > 0) report_training_text(f.f, p, o->tokens, o->price);
    if (by != BY_NOTHING) report_holders_text(f.f, p, m, by);
    if (o->explain) explain_passes(f.f, p);
    if (advised && !cli_as_json(o)) { /* a search of seconds: what is known is read meanwhile */
        fflush(f.f);
        bool told = isatty(STDERR_FILENO);
        if (told) fputs("looking for plans and batches that fit", stderr);
        Advice advice = cli_advice(a, o, p);
        if (told) planned_told();
        report_advice_text(f.f, p, &advice);
    }
    cli_output_done(o, &f);
    return live_fits(p) ? 0 : 1;
}
