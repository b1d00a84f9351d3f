/* What verify found, as text: one line a finding, or what it proved.
 * Relies on: report.h.
 * Relied on by: cli/verify.c, through report.h. */
#include "report.h"

void report_findings_text(FILE *f, const Plan *p, const Findings *v) {
    long events = 0, waits = 0, accesses = 0;
    for (int g = 0; g < p->nprograms; g++)
        for (int e = 0; e < p->programs[g].n; e++) {
            const Event *ev = &p->programs[g].events[e];
            events++;
            waits += ev->nwaits;
            accesses += ev->nreads + ev->nwrites;
        }
    for (int i = 0; i < v->n; i++)
        fprintf(f, "%s%s%s: %s\n", v->at[i].program, *v->at[i].program ? ": " : "", v->at[i].rule, v->at[i].text);
    fprintf(f, "%s: %s: %d programs, %ld events, %ld waits, %ld accesses, %d storages, %d unit%s", p->model,
            v->n ? "NOT SOUND" : "sound", p->nprograms, events, waits, accesses, p->nstorages, p->nunits,
            p->nunits == 1 ? "" : "s");
    if (v->n) fprintf(f, "; %d findings", v->n);
    fputc('\n', f);
}

void report_times_text(FILE *f, const Plan *p, const Findings *late) {
    for (int g = 0; g < p->nprograms; g++) {
        if (!program_trains(&p->programs[g])) continue;
        Times t = verify_program_times(p->arena, &p->programs[g]);
        fprintf(f, "%s: %s: forward %.3f ms, step %.3f ms, exposed communication %.3f ms\n", p->model,
                p->programs[g].name, t.forward_ms, t.step_ms, t.exposed_ms);
    }
    for (int i = 0; i < late->n; i++)
        fprintf(f, "%s: %s: %s\n", late->at[i].program, late->at[i].rule, late->at[i].text);
    if (late->n) fprintf(f, "%s: TOO SLOW: %d bound%s missed\n", p->model, late->n, late->n == 1 ? "" : "s");
}
