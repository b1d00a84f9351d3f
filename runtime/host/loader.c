/* Inputs of a microbatch. Global sample ((step × A + micro) × ranks + place) × batch + row goes to that row of the
 * rank at that place on the axis of samples: every world size with the same global batch sees the same samples in the
 * same step, and no two ranks share one. Relies on: data (windows, order), arrays, records. Relied on by: train. */
#include "loader.h"
#include "arrays.h"
#include "die.h"
#include "dtype.h"
#include <stdlib.h>
#include <string.h>

static bool from_tokens(const sc_input_info *in) {
    return in->from && strcmp(in->from, "tokens") == 0;
}

int64_t input_numel(const sc_input_info *in) {
    int64_t n = 1;
    for (int d = 0; d < in->dims; d++) n *= in->shape[d];
    return n;
}

static int64_t length_of(const sc_input_info *in) {
    return in->dims ? in->shape[in->dims - 1] : 1;
}

/* ── layout ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Layout layout_of(const sc_build *b) {
    Layout l = {0};
    int64_t gap = 0;
    for (int i = 0; i < b->ninputs; i++) {
        const sc_input_info *in = &b->inputs[i];
        if (in->sample_only) continue;
        if (!l.tokens && in->tokens) l.tokens = input_numel(in);
        if (!from_tokens(in)) {
            if (!l.not_token) l.not_token = in->name;
            continue;
        }
        int64_t end = in->shift + length_of(in);
        l.batch = in->dims > 1 ? in->shape[0] : 1;
        if (end > l.span) l.span = end;
        if (in->limit && (!l.limit || in->limit < l.limit)) l.limit = in->limit;
    }
    /* Windows follow each other so that what one input sees last the input with the next shift sees next: for a
     * language model (shifts 0 and 1), every token is a target once. */
    for (int i = 0; i < b->ninputs; i++)
        for (int k = 0; k < b->ninputs; k++) {
            int64_t d = b->inputs[k].shift - b->inputs[i].shift;
            bool both = from_tokens(&b->inputs[i]) && from_tokens(&b->inputs[k]);
            if (both && d > 0 && (!gap || d < gap)) gap = d;
        }
    l.stride = l.span - gap;
    if (l.stride < 1) l.stride = 1;
    if (!l.limit && b->logits_program >= 0) l.limit = b->logits_shape[2];
    for (int i = 0; i < b->ninputs && !l.batch; i++)
        if (!b->inputs[i].sample_only && b->inputs[i].dims) l.batch = b->inputs[i].shape[0];
    if (!l.batch) l.batch = 1;
    return l;
}

/* ── filling ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Loader loader_new(const sc_build *b, const TokenSet *set, Records *records, uint64_t seed) {
    Loader l = {.b = b, .set = set, .records = records, .layout = layout_of(b), .seed = seed};
    l.window = need((size_t)l.layout.span + 1, sizeof *l.window);
    l.staging = need((size_t)b->ninputs, sizeof *l.staging);
    for (int i = 0; i < b->ninputs; i++)
        l.staging[i] = need((size_t)input_numel(&b->inputs[i]), (size_t)sc_size(b->inputs[i].dtype));
    return l;
}

void loader_free(Loader *l) {
    for (int i = 0; l->b && i < l->b->ninputs; i++) free(l->staging[i]);
    free(l->staging);
    free(l->window);
}

/* Where no table says how many tokens there are. */
#define MOST_TOKEN ((int64_t)INT32_MAX + 1)

static void fill_row(Loader *l, int64_t row, int64_t window) {
    const TokenFile *file;
    uint64_t at;
    for (int i = 0; l->set->arrays && i < l->b->ninputs; i++)
        if (!l->b->inputs[i].sample_only) arrays_row(l->set, l->b, i, window, l->layout.limit, l->staging[i], row);
    if (l->set->arrays) return;
    token_window(l->set, window, l->window, &file, &at);
    for (int i = 0; i < l->b->ninputs; i++) {
        const sc_input_info *in = &l->b->inputs[i];
        int64_t n = in->sample_only ? 0 : length_of(in), limit = in->limit         ? in->limit
                                                                 : l->layout.limit ? l->layout.limit
                                                                                   : MOST_TOKEN;
        for (int64_t k = 0; k < n; k++) {
            int64_t token = l->window[in->shift + k];
            if (token >= limit) token_refuse(file, at + (uint64_t)(in->shift + k), in->name, limit);
            host_put_int(in->dtype, l->staging[i], row * n + k, token);
        }
    }
}

void loader_fill(Loader *l, int place, int64_t micro, int64_t sample) {
    for (int i = 0; i < l->b->ninputs && l->records; i++) records_take(l->records, place, micro, i, l->staging[i]);
    for (int64_t row = 0; row < l->layout.batch && !l->records; row++)
        fill_row(l, row, token_order(l->set, l->seed, sample + row));
}

void loader_fill_windows(Loader *l, int64_t first, int64_t n, int64_t at) {
    for (int64_t row = 0; row < l->layout.batch; row++) fill_row(l, row, first + (at + row) % n);
}

int64_t loader_count(const Loader *l, const sc_count_info *c, int64_t rows) {
    const sc_input_info *in = &l->b->inputs[c->input];
    int64_t n = input_numel(in) / l->layout.batch * rows, count = 0;
    for (int64_t i = 0; i < n; i++) count += host_get_int(in->dtype, l->staging[c->input], i) != c->ignore;
    return count;
}

bool loader_counts_all(const Loader *l, const sc_count_info *c) {
    return l->set && !l->set->arrays && c->ignore < 0;
}

void loader_upload(const Loader *l, sc_rank *r) {
    for (int i = 0; i < l->b->ninputs; i++) {
        const sc_input_info *in = &l->b->inputs[i];
        if (in->sample_only) continue;
        sc_write(r, 0, in->at, l->staging[i], (size_t)input_numel(in) * (size_t)sc_size(in->dtype));
    }
}
