/* `predict` as text: does it fit, what is the peak made of, how long is a step.
 * Relies on: live.h, figures.h, lines.h.
 * Relied on by: cli/, through report.h. */
#include "../plan/figures.h"
#include "../plan/lines.h"
#include "../plan/live.h"
#include "../plan/sentences.h"
#include "report.h"

#include <math.h>

enum { MAX_HOLDERS = 4, FROM = 11, FIGURE = 6 }; /* FROM: the column behind labels; FIGURE: columns of a number */

static void fits_line(FILE *f, const Plan *p, bool colored) {
    Arena *a = p->arena;
    double tolerance, need = (double)p->arena_bytes[ARENA_DEVICE] + live_library_bytes(p, &tolerance);
    if (p->device_usable <= 0) {
        fprintf(f, "fits %s: unknown, the %s target has no memory limit; needs %s\n", p->device, p->target,
                figure_bytes(a, need));
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

static void moment_lines(FILE *f, const Plan *p, Moment m, ByteUnit u) {
    Arena *a = p->arena;
    const PlanProgram *g = &p->programs[m.program];
    int e = m.event;
    LiveSet live = live_at(p, m.program, e);
    Lines l = lines_open(f, FROM, m.peak ? "  peak" : "  moment");
    if (e >= 0 && e < g->n)
        lines_words(&l, arena_printf(a, "at %s %s%s%s of %s, in %s", g->events[e].id, phase_name(g->events[e].phase),
                                     *g->events[e].module ? " " : "", g->events[e].module, g->name, u.name));
    else
        lines_words(&l, arena_printf(a, "in %s, in %s", g->name, u.name));
    lines_next(&l);
    bool done[N_CLASSES] = {false}, some = false;
    for (;;) { /* largest first */
        int best = -1;
        for (int c = 0; c < N_CLASSES; c++)
            if (!done[c] && live.of[c] > 0 && (best < 0 || live.of[c] > live.of[best])) best = c;
        if (best < 0) break;
        done[best] = true;
        if (some && (double)live.of[best] < 0.05 * u.one) break;
        lines_item(&l, arena_printf(a, "%s %s", storage_class_name((StorageClass)best),
                                    figure_in_unit(a, u, (double)live.of[best])));
        some = true;
    }
    if (!some) lines_piece(&l, "nothing");
    lines_close(&l);
}

/* A row each, with its bytes first: names of modules are long. */
static void holders_lines(FILE *f, const Plan *p, Moment m, ByteUnit u, const char *label, const char *title,
                          unsigned classes) {
    Holders h = live_holders(p, m.program, m.event, classes);
    if (!h.n) return;
    fprintf(f, "%-*s%s, in %s\n", FROM, label, title, u.name);
    int64_t rest = 0;
    for (int i = 0; i < h.n; i++) {
        if (i >= MAX_HOLDERS && h.n > MAX_HOLDERS + 1) {
            rest += h.at[i].bytes;
            continue;
        }
        fprintf(f, "%*s%*s  %s", FROM, "", FIGURE, figure_in_unit(p->arena, u, (double)h.at[i].bytes),
                *h.at[i].pattern ? h.at[i].pattern : "(model)");
        if (h.at[i].owners > 1) fprintf(f, " (%d)", h.at[i].owners);
        fputc('\n', f);
    }
    if (rest)
        fprintf(f, "%*s%*s  %d others\n", FROM, "", FIGURE, figure_in_unit(p->arena, u, (double)rest),
                h.n - MAX_HOLDERS);
}

const char *report_trust(Arena *a, const Plan *p) {
    if (!p->time_source || p->time_off <= 0) return "";
    if (p->time_off >= 1) return arena_printf(a, "%s, up to %.0f times as long", p->time_source, 1 + p->time_off);
    return arena_printf(a, "%s, ±%.0f %%", p->time_source, 100 * p->time_off);
}

/* Both counts with their names, where they differ: publications use either. */
static void mfu_lines(FILE *f, const Plan *p, const StepFigures *s) {
    double each = p->tokens_per_step > 0 ? p->tokens_per_step : p->samples_per_step;
    const char *unit = p->tokens_per_step > 0 ? "token" : "sample";
    if (s->mfu_causal <= 0 || each <= 0) return;
    double causal = p->model_flops * p->world / each * 1e-9, full = p->model_flops_full * p->world / each * 1e-9;
    Arena *a = p->arena;
    Lines l = lines_open(f, FROM, "  MFU");
    if (full > causal) {
        lines_words(&l, arena_printf(a, "%.2f with full attention (%.3g GFLOP a %s, as PaLM counts)\n", s->mfu_full,
                                     full, unit));
        lines_words(&l, arena_printf(a, "%.2f with causal (%.3g),", s->mfu_causal, causal));
    } else
        lines_words(&l, arena_printf(a, "%.2f (%.3g GFLOP a %s),", s->mfu_causal, causal, unit));
    lines_piece(&l, arena_printf(a, "of %.4g TFLOP/s %s", p->peak_flops * 1e-12, dtype_name(p->peak_dtype)));
    lines_close(&l);
}

/* What of the step's time no measurement tells, and what it was taken for: a row each, with its share first. */
static void estimates_lines(FILE *f, const Plan *p, double step_us) {
    Arena *a = p->arena;
    double rest = 0;
    if (p->nestimates) fprintf(f, "%*snot measured, by shares of the step:\n", FROM, "");
    for (int i = 0; i < p->nestimates; i++) {
        const Estimate *x = &p->estimates[i];
        if (i >= MAX_HOLDERS) {
            rest += x->us;
            continue;
        }
        Lines l = lines_open(f, FROM + 10, arena_printf(a, "%*s%6.1f %%", FROM, "", 100 * x->us / step_us));
        lines_words(&l, arena_printf(a, "%s%s%s %s %s%s", x->op, *x->variant ? " " : "", x->variant,
                                     figure_time(a, x->us), *x->as ? "as " : "by flops and bytes", x->as));
        lines_close(&l);
    }
    if (rest > 0)
        fprintf(f, "%*s%6.1f %%  %d others %s\n", FROM, "", 100 * rest / step_us, p->nestimates - MAX_HOLDERS,
                figure_time(a, rest));
}

/* Where times come from, and what they take for granted. */
static void times_lines(FILE *f, const Plan *p, double step_us) {
    Arena *a = p->arena;
    const char *trust = report_trust(a, p);
    Lines l = lines_open(f, FROM, "  times");
    lines_words(&l, *trust ? trust : "by the device's profile");
    lines_next(&l);
    if (p->fp8) lines_words(&l, arena_printf(a, "products in fp8: %s\n", p->fp8));
    if (p->attention) lines_words(&l, arena_printf(a, "attention by %s\n", p->attention));
    if (p->document_length)
        lines_words(&l, arena_printf(a, "documents of %s tokens each%s", figure_grouped(a, p->document_length),
                                     p->whole_documents
                                         ? ", whole rows, as nobody said how long they are: --document-length N"
                                         : ""));
    lines_close(&l);
    estimates_lines(f, p, step_us);
}

/* The answer: how long, how much of it. Where the figures come from follows behind memory. */
static void step_line(FILE *f, const Plan *p, const StepFigures *s) {
    Arena *a = p->arena;
    bool tokens = s->tokens_per_second > 0;
    Lines l = lines_open(f, FROM, "  step");
    lines_item(&l, figure_time(a, s->step_us));
    lines_item(&l,
               arena_printf(a, "%s %s a %s", figure_grouped(a, tokens ? s->tokens_per_second : s->samples_per_second),
                            tokens ? "tok/s" : "samples/s", !strcmp(p->target, "cpu") ? "rank" : "GPU"));
    lines_item(&l, arena_printf(a, "exposed communication %.1f %%", 100 * s->exposed_us / s->step_us));
    if (s->microbatches > 1) lines_item(&l, arena_printf(a, "%d microbatches", s->microbatches));
    if (p->nodes > 1) lines_item(&l, arena_printf(a, "%d nodes of %d", p->nodes, p->world / p->nodes));
    lines_close(&l);
}

static void memory_lines(FILE *f, const Plan *p, ByteUnit u) {
    Arena *a = p->arena;
    double bytes = (double)p->arena_bytes[ARENA_DEVICE], bound = (double)p->bound_bytes[ARENA_DEVICE];
    double host = (double)p->arena_bytes[ARENA_HOST], tolerance, library = live_library_bytes(p, &tolerance);
    ByteUnit v = figure_byte_unit(library), h = figure_byte_unit(host);
    Lines l = lines_open(f, FROM, "  arena");
    lines_words(&l,
                arena_printf(a, "%s %s exact (%s B), lower bound %s, ratio %.3f", figure_in_unit(a, u, bytes), u.name,
                             figure_grouped(a, bytes), figure_in_unit(a, u, bound), bound > 0 ? bytes / bound : 1.0));
    lines_next(&l);
    for (int i = 0; i < p->nprograms; i++)
        lines_item(&l, arena_printf(a, "%s %s", p->programs[i].name,
                                    figure_in_unit(a, u, (double)p->programs[i].peak[ARENA_DEVICE])));
    lines_close(&l);
    l = lines_open(f, FROM, "  library");
    lines_words(&l,
                arena_printf(a, "%s ± %s %s", figure_in_unit(a, v, library), figure_in_unit(a, v, tolerance), v.name));
    for (int i = 0; i < p->nlibrary; i++) {
        lines_next(&l);
        lines_words(&l, arena_printf(a, "%s %s, %s", p->library[i].name, figure_bytes(a, p->library[i].bytes),
                                     p->library[i].source));
    }
    lines_close(&l);
    l = lines_open(f, FROM, "  host");
    lines_words(&l, arena_printf(a, "%s %s %s", figure_in_unit(a, h, host), h.name,
                                 !strcmp(p->target, "cpu") ? "arena" : "pinned"));
    lines_close(&l);
}

void report_training_text(FILE *f, const Plan *p, double tokens, double price) {
    StepFigures s = live_step(p);
    Arena *a = p->arena;
    if (s.tokens_per_second <= 0) fail(NOWHERE, "--tokens: this model's inputs are no tokens, so none are counted");
    double hours = tokens / (s.tokens_per_second * p->world) / 3600;
    const char *what = !strcmp(p->target, "cpu") ? "rank" : "GPU";
    Str t = {.arena = a};
    str_addf(&t, "%s tokens take %s steps, %.3g days: %s %s-hours", figure_grouped(a, tokens),
             figure_grouped(a, ceil(tokens / (p->tokens_per_step * s.microbatches))), hours / 24,
             figure_grouped(a, hours * p->world), what);
    if (price > 0) str_addf(&t, ", %s at %.4g an hour", figure_grouped(a, hours * p->world * price), price);
    lines_print(f, FROM, "  train", t.s);
}

void report_predict_text(FILE *f, const Plan *p, Moment m, bool color) {
    ByteUnit u = figure_byte_unit((double)p->arena_bytes[ARENA_DEVICE]);
    StepFigures s = live_step(p);
    bool trains = s.microbatches && s.step_us > 0;
    fits_line(f, p, color);
    if (trains) step_line(f, p, &s);
    memory_lines(f, p, u);
    if (p->npolicies) lines_print(f, FROM, "  policy", report_policies(p));
    if (m.program >= 0) {
        moment_lines(f, p, m, u);
        holders_lines(f, p, m, u, "  modules", "activations and temporaries", CLASSES_OF_MODULES);
        holders_lines(f, p, m, u, "  units", "unsharded parameters and gradients", CLASSES_UNSHARDED);
    }
    if (trains) times_lines(f, p, s.step_us);
    if (trains) mfu_lines(f, p, &s);
    for (Unused k = 0; k < N_UNUSED; k++)
        if (p->unused[k].n) lines_print(f, FROM, "  unused", plan_unused(p, k));
}

/* A command stays on one line, so that it can be copied. */
void report_advice_text(FILE *f, const Plan *p, const Advice *x) {
    double step = live_step(p).step_us;
    if (x->command)
        fprintf(f, "  fastest  found that fits (step %s, %s on this one):\n%*s%s\n", figure_time(p->arena, x->step_us),
                step > 0 ? figure_change(p->arena, step, x->step_us, 1) : "0 %", FROM, "", x->command);
    else if (x->least)
        lines_print(f, FROM, "  fastest",
                    arena_printf(p->arena,
                                 "no plan found fits: the smallest arena found has %s; give more ranks (--world) or a "
                                 "smaller model",
                                 figure_bytes(p->arena, (double)x->least)));
    if (x->batch && x->largest) fprintf(f, "  batch    largest found as it is: %lld\n", (long long)x->largest);
    if (x->batch && !x->largest) fprintf(f, "  batch    largest found as it is: none fits\n");
}
