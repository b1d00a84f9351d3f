/* `predict` as text: does it fit, what is the peak made of, how long is a step.
 * Relies on: live.h, figures.h.
 * Relied on by: cli/, through report.h. */
#include "../plan/figures.h"
#include "../plan/live.h"
#include "../plan/sentences.h"
#include "report.h"

#include <math.h>

enum { MAX_HOLDERS = 4 };

static void fits_line(FILE *f, const Plan *p, bool colored) {
    Arena *a = p->arena;
    double tolerance, need = (double)p->arena_bytes[ARENA_DEVICE] + live_library_bytes(p, &tolerance);
    if (p->device_usable <= 0) {
        fprintf(f, "fits %s: unknown, the %s target has no memory limit to compare with; needs %s\n", p->device,
                p->target, figure_bytes(a, need));
        return;
    }
    bool yes = live_fits(p);
    double spare = p->device_usable - need;
    ByteUnit u = figure_byte_unit(p->device_usable), v = figure_byte_unit(yes ? spare : -spare);
    const char *color = !colored ? "" : yes ? "\033[1;32m" : "\033[1;31m";
    fprintf(f, "fits %s (%s %s usable): %s%s%s, %s %s %s%s\n", p->device, figure_in_unit(a, u, p->device_usable),
            u.name, color, yes ? "YES" : "NO", colored ? "\033[0m" : "", yes ? "spare" : "short of",
            figure_in_unit(a, v, yes ? spare : -spare), v.name,
            yes && spare < tolerance ? ", which is within the uncertainty of the library lines" : "");
}

static void moment_line(FILE *f, const Plan *p, Moment m, ByteUnit u) {
    Arena *a = p->arena;
    const PlanProgram *g = &p->programs[m.program];
    int e = m.event;
    LiveSet live = live_at(p, m.program, e);
    if (e >= 0 && e < g->n)
        fprintf(f, "  %sat %s %s%s%s of %s, in %s:", m.peak ? "peak " : "", g->events[e].id,
                phase_name(g->events[e].phase), *g->events[e].module ? " " : "", g->events[e].module, g->name, u.name);
    else
        fprintf(f, "  peak in %s, in %s:", g->name, u.name);
    bool done[N_CLASSES] = {false}, some = false;
    for (;;) { /* largest first */
        int best = -1;
        for (int c = 0; c < N_CLASSES; c++)
            if (!done[c] && live.of[c] > 0 && (best < 0 || live.of[c] > live.of[best])) best = c;
        if (best < 0) break;
        done[best] = true;
        if (some && (double)live.of[best] < 0.05 * u.one) break;
        fprintf(f, "%s %s %s", some ? " ·" : "", storage_class_name((StorageClass)best),
                figure_in_unit(a, u, (double)live.of[best]));
        some = true;
    }
    fprintf(f, "%s\n", some ? "" : " nothing");
}

static void holders_line(FILE *f, const Plan *p, Moment m, ByteUnit u, const char *title, unsigned classes) {
    Holders h = live_holders(p, m.program, m.event, classes);
    if (!h.n) return;
    fprintf(f, "  %s", title);
    for (int i = 0; i < h.n && i < MAX_HOLDERS; i++) {
        fprintf(f, "%s %s %s", i ? " ·" : "", *h.at[i].pattern ? h.at[i].pattern : "(model)",
                figure_in_unit(p->arena, u, (double)h.at[i].bytes));
        if (h.at[i].owners > 1) fprintf(f, " (%d)", h.at[i].owners);
    }
    int64_t rest = 0;
    for (int i = MAX_HOLDERS; i < h.n; i++) rest += h.at[i].bytes;
    if (rest) fprintf(f, " · %d others %s", h.n - MAX_HOLDERS, figure_in_unit(p->arena, u, (double)rest));
    fputc('\n', f);
}

const char *report_trust(Arena *a, const Plan *p) {
    if (!p->time_source || p->time_off <= 0) return "";
    if (p->time_off >= 1) return arena_printf(a, "%s, up to %.0f times as long", p->time_source, 1 + p->time_off);
    return arena_printf(a, "%s, ±%.0f %%", p->time_source, 100 * p->time_off);
}

/* Both counts with their names, where they differ: publications use either. */
static void mfu_line(FILE *f, const Plan *p, const StepFigures *s) {
    double each = p->tokens_per_step > 0 ? p->tokens_per_step : p->samples_per_step;
    const char *unit = p->tokens_per_step > 0 ? "token" : "sample";
    if (s->mfu_causal <= 0 || each <= 0) return;
    double causal = p->model_flops * p->world / each * 1e-9, full = p->model_flops_full * p->world / each * 1e-9;
    if (full > causal)
        fprintf(f, "  MFU %.2f with full attention (%.3g GFLOP a %s, as PaLM counts), %.2f with causal (%.3g)",
                s->mfu_full, full, unit, s->mfu_causal, causal);
    else
        fprintf(f, "  MFU %.2f (%.3g GFLOP a %s)", s->mfu_causal, causal, unit);
    fprintf(f, ", of %.4g TFLOP/s %s\n", p->peak_flops * 1e-12, dtype_name(p->peak_dtype));
}

/* What of the step's time no measurement tells, and what it was taken for. */
static void estimate_lines(FILE *f, const Plan *p, double step_us) {
    Arena *a = p->arena;
    double rest = 0;
    int shown = 0;
    for (int i = 0; i < p->nestimates; i++) {
        const Estimate *x = &p->estimates[i];
        if (shown == MAX_HOLDERS) {
            rest += x->us;
            continue;
        }
        fprintf(f, "%s %s%s%s %s (%.1f %%) %s%s", shown++ ? " ·" : "  not measured:", x->op, *x->variant ? " " : "",
                x->variant, figure_time(a, x->us), 100 * x->us / step_us, *x->as ? "as " : "by flops and bytes", x->as);
    }
    if (rest > 0) fprintf(f, " · %d others %s", p->nestimates - shown, figure_time(a, rest));
    if (shown) fputc('\n', f);
    if (p->fp8) fprintf(f, "  products in fp8: %s\n", p->fp8);
    if (p->attention) fprintf(f, "  attention by %s\n", p->attention);
    if (p->document_length)
        fprintf(f, "  documents of %s tokens each%s\n", figure_grouped(a, p->document_length),
                p->whole_documents ? ", whole rows, as nobody said how long they are: --document-length N" : "");
}

static void step_line(FILE *f, const Plan *p) {
    StepFigures s = live_step(p);
    if (!s.microbatches || s.step_us <= 0) return;
    Arena *a = p->arena;
    fprintf(f, "  step %s", figure_time(a, s.step_us));
    const char *trust = report_trust(a, p);
    if (*trust) fprintf(f, " (%s)", trust);
    if (s.microbatches > 1) fprintf(f, " (of %d microbatches)", s.microbatches);
    if (p->nodes > 1) fprintf(f, " on %d nodes of %d", p->nodes, p->world / p->nodes);
    bool tokens = s.tokens_per_second > 0;
    fprintf(f, " · %s %s a %s", figure_grouped(a, tokens ? s.tokens_per_second : s.samples_per_second),
            tokens ? "tok/s" : "samples/s", !strcmp(p->target, "cpu") ? "rank" : "GPU");
    fprintf(f, " · exposed communication %.1f %%\n", 100 * s.exposed_us / s.step_us);
    estimate_lines(f, p, s.step_us);
    mfu_line(f, p, &s);
}

void report_training_text(FILE *f, const Plan *p, double tokens, double price) {
    StepFigures s = live_step(p);
    Arena *a = p->arena;
    if (s.tokens_per_second <= 0) fail(NOWHERE, "--tokens: this model's inputs are no tokens, so none are counted");
    double hours = tokens / (s.tokens_per_second * p->world) / 3600;
    const char *what = !strcmp(p->target, "cpu") ? "rank" : "GPU";
    fprintf(f, "  %s tokens take %s steps, %.3g days: %s %s-hours", figure_grouped(a, tokens),
            figure_grouped(a, ceil(tokens / (p->tokens_per_step * s.microbatches))), hours / 24,
            figure_grouped(a, hours * p->world), what);
    if (price > 0) fprintf(f, ", %s at %.4g an hour", figure_grouped(a, hours * p->world * price), price);
    fputc('\n', f);
}

void report_predict_text(FILE *f, const Plan *p, Moment m, bool color) {
    Arena *a = p->arena;
    double bytes = (double)p->arena_bytes[ARENA_DEVICE], bound = (double)p->bound_bytes[ARENA_DEVICE];
    double host = (double)p->arena_bytes[ARENA_HOST], tolerance, library = live_library_bytes(p, &tolerance);
    ByteUnit u = figure_byte_unit(bytes), l = figure_byte_unit(library), h = figure_byte_unit(host);
    fits_line(f, p, color);
    fprintf(f, "  arena    %s %s exact (%s B), lower bound %s, ratio %.3f   programs:", figure_in_unit(a, u, bytes),
            u.name, figure_grouped(a, bytes), figure_in_unit(a, u, bound), bound > 0 ? bytes / bound : 1.0);
    for (int i = 0; i < p->nprograms; i++)
        fprintf(f, "%s %s %s", i ? " ·" : "", p->programs[i].name,
                figure_in_unit(a, u, (double)p->programs[i].peak[ARENA_DEVICE]));
    fprintf(f, "\n  library  %s ± %s %s", figure_in_unit(a, l, library), figure_in_unit(a, l, tolerance), l.name);
    for (int i = 0; i < p->nlibrary; i++)
        fprintf(f, "%s%s %s, %s", i ? "; " : " (", p->library[i].name, figure_bytes(a, p->library[i].bytes),
                p->library[i].source);
    fprintf(f, "%s   host %s %s %s\n", p->nlibrary ? ")" : "", !strcmp(p->target, "cpu") ? "arena" : "pinned",
            figure_in_unit(a, h, host), h.name);
    if (p->npolicies) {
        fputs("  policy   ", f);
        report_printable(f, report_policies(p));
        fputc('\n', f);
    }
    if (m.program >= 0) {
        moment_line(f, p, m, u);
        holders_line(f, p, m, u, "activations and temporaries in", CLASSES_OF_MODULES);
        holders_line(f, p, m, u, "unsharded bytes of units", CLASSES_UNSHARDED);
    }
    step_line(f, p);
    for (Unused k = 0; k < N_UNUSED; k++)
        if (p->unused[k].n) fprintf(f, "  unused   %s\n", plan_unused(p, k));
}

void report_advice_text(FILE *f, const Plan *p, const Advice *x) {
    double step = live_step(p).step_us;
    if (x->command)
        fprintf(f, "  fastest found that fits: %s (step %s, %s on this one)\n", x->command,
                figure_time(p->arena, x->step_us), step > 0 ? figure_change(p->arena, step, x->step_us, 1) : "0 %");
    else if (x->least)
        fprintf(f,
                "  no plan found fits: the smallest arena found has %s; give more ranks (--world) or a smaller model\n",
                figure_bytes(p->arena, (double)x->least));
    if (x->batch && x->largest) fprintf(f, "  largest batch found as it is: %lld\n", (long long)x->largest);
    if (x->batch && !x->largest) fprintf(f, "  largest batch found as it is: none fits\n");
}
