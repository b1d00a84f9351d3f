/* What is alive when, and who holds it: sums over a plan's storages, and figures of a step.
 * Relies on: plan.h.
 * Relied on by: write.c, unused.c, planner/, emit/tables.c, report/, cli/. */
#include "live.h"

#include <ctype.h>
#include <stdlib.h>

bool live_storage(const Storage *s, int program, int event) {
    return s->arena == ARENA_DEVICE &&
           (s->program < 0 || (s->program == program && s->first <= event && event <= s->last));
}

LiveSet live_at(const Plan *p, int program, int event) {
    LiveSet l = {0};
    for (int i = 0; i < p->nstorages; i++) {
        const Storage *s = &p->storages[i];
        if (!live_storage(s, program, event)) continue;
        l.of[s->cls] += s->size;
        l.total += s->size;
    }
    return l;
}

int live_largest_program(const Plan *p) {
    int best = -1;
    for (int i = 0; i < p->nprograms; i++)
        if (best < 0 || p->programs[i].peak[ARENA_DEVICE] > p->programs[best].peak[ARENA_DEVICE]) best = i;
    return best;
}

char *live_path_pattern(Arena *a, const char *path) {
    char *out = arena_alloc(a, strlen(path) + 1), *to = out;
    for (const char *s = path; *s;) {
        const char *end = s + strcspn(s, ".");
        bool number = end > s;
        for (const char *c = s; c < end; c++) number = number && isdigit((unsigned char)*c);
        if (number)
            *to++ = '*';
        else
            for (const char *c = s; c < end; c++) *to++ = *c;
        if (*end) *to++ = *end++;
        s = end;
    }
    *to = 0;
    return out;
}

static int by_bytes(const void *a, const void *b) {
    const Holder *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return strcmp(x->pattern, y->pattern);
}

Holders live_holders(const Plan *p, int program, int event, unsigned classes) {
    Holders out = {0};
    Map *index = map_new(p->arena), *seen = map_new(p->arena);
    for (int i = 0; i < p->nstorages; i++) {
        const Storage *s = &p->storages[i];
        if (!(classes >> s->cls & 1) || !live_storage(s, program, event)) continue;
        const char *pattern = live_path_pattern(p->arena, s->owner);
        int k = map_index(index, pattern), owners = map_len(seen);
        if (k == out.n) push(&out, p->arena, ((Holder){pattern, 0, 0}));
        out.at[k].bytes += s->size;
        out.at[k].owners += map_index(seen, s->owner) == owners;
    }
    if (out.n) qsort(out.at, (size_t)out.n, sizeof *out.at, by_bytes);
    return out;
}

int live_runs(const Plan *p, int program) {
    const char *name = p->programs[program].name;
    int ends = 0; /* micro_first, micro_last */
    for (int i = 0; i < p->nprograms; i++)
        ends += program_trains(&p->programs[i]) && strcmp(p->programs[i].name, "micro");
    if (!program_trains(&p->programs[program])) return 0;
    if (strcmp(name, "micro") || !ends) return 1;
    return p->microbatches > ends ? p->microbatches - ends : 0;
}

StepFigures live_step(const Plan *p) {
    StepFigures f = {0};
    for (int i = 0; i < p->nprograms; i++) {
        int n = live_runs(p, i);
        f.microbatches += n;
        f.step_us += n * p->programs[i].step_us;
        f.exposed_us += n * p->programs[i].exposed_us;
    }
    if (f.step_us <= 0) return f;
    double seconds = f.step_us * 1e-6;
    double microbatches_per_second = f.microbatches / seconds / p->world;
    f.tokens_per_second = p->tokens_per_step * microbatches_per_second;
    f.samples_per_second = p->samples_per_step * microbatches_per_second;
    if (p->peak_flops > 0) {
        f.mfu_causal = p->model_flops * f.microbatches / (seconds * p->peak_flops);
        f.mfu_full = p->model_flops_full * f.microbatches / (seconds * p->peak_flops);
    }
    return f;
}

double live_library_bytes(const Plan *p, double *tolerance) {
    double bytes = 0;
    *tolerance = 0;
    for (int i = 0; i < p->nlibrary; i++) {
        bytes += p->library[i].bytes;
        *tolerance += p->library[i].tolerance;
    }
    return bytes;
}

bool live_fits(const Plan *p) {
    double tolerance;
    return p->device_usable <= 0 ||
           (double)p->arena_bytes[ARENA_DEVICE] + live_library_bytes(p, &tolerance) <= p->device_usable;
}
