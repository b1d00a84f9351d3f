/* Fuzzes the plan's JSON reader: any bytes are refused with a message, or give a plan that can be verified, printed and
 * written, and that reads back as the same text. A plan.json makes a good corpus.
 * Relies on: compiler/report, compiler/verify, libFuzzer.
 * Relied on by: make fuzz. */
#include "../../compiler/plan/plan_json.h"
#include "../../compiler/report/report.h"

#include "mutate_json.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    return mutate_json(data, 0, size, max, seed);
}

static char *written(const Plan *p, size_t *n) {
    char *text = NULL;
    FILE *f = open_memstream(&text, n);
    if (!f) abort();
    plan_write_json(f, p);
    fclose(f);
    return text;
}

static void print(const Plan *p) {
    static FILE *nowhere;
    if (!nowhere && !(nowhere = fopen("/dev/null", "w"))) abort();
    const Findings *found = verify(p->arena, p);
    report_findings_text(nowhere, p, found);
    Findings late = {0};
    verify_times(p->arena, p, &(Times){0, 0, 0}, &late);
    report_findings_json(nowhere, p, found, &late);
    report_times_text(nowhere, p, &late);
    report_inspect_text(nowhere, p, &(ReportOptions){0});
    report_predict_text(nowhere, p, report_moment(p, NULL), false);
    report_predict_json(nowhere, p, NULL);
    for (Holding by = BY_MODULE; by <= BY_STORAGE; by++) report_holders_text(nowhere, p, report_moment(p, NULL), by);
}

static void round_trip(Arena *a, const Plan *p) {
    size_t n, m;
    PlanError e = {0};
    char *once = written(p, &n);
    const Plan *again = plan_parse(a, once, n, &e);
    if (!again) abort();
    char *twice = written(again, &m);
    if (n != m || memcmp(once, twice, n)) abort();
    free(once);
    free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    Arena *a = arena_new();
    PlanError e = {0};
    const Plan *p = plan_parse(a, (const char *)bytes, size, &e);
    if (p) {
        print(p);
        round_trip(a, p);
    } else if (!e.text || !*e.text) {
        abort();
    }
    arena_free(a);
    return 0;
}
