/* The optimizers, ema, count_step, sum_squares, clip_coefficient: on this rank's slice of a unit's flat buffer.
 * Relies on: magnitude.h, sc_optimizer.h (update rules, rounding), sc_moments8.h; rates and coefficients in the record.
 * Relied on by: generated code.
 *
 * With a loss scale gradients are its multiples: the norm is of them over the scale, and the coefficient undoes it.
 * Where a gradient is not finite the coefficient's second element says that nothing is to be written.
 * A segment covers flat offsets; this rank holds [s·n, s·n + n), n = slice, s its place on the axis. sum_squares:
 * blocks of 4096 elements, added up in order. clip: norm = √Σ, coefficient = min(1, clip / (norm + 1e-6)), over the
 * scale. */
#include "../sc_moments8.h"
#include "../sc_optimizer.h"
#include "magnitude.h"
#include <string.h>

/* Elements at a time: few, so that a processor that looks ahead has the next ones on their way while it draws random
 * words for these. With moments of 8 bits a block: segments and slices begin with one, and so do a part's pieces. */
enum { PIECE = SC_MOMENTS8_BLOCK };

typedef struct { /* one piece of a segment, within the slice */
    int64_t at, n;
    uint64_t key, element; /* for moments of bf16: its parameter, and which element of it comes first */
} piece;

typedef struct { /* by moment and code */
    float of[2][SC_MOMENTS8_CODES];
} code_values;

static bool is_coded(const sc_operands *o) {
    return o->moment[0].p && o->moment[0].dtype == INT8;
}
static void set_values(code_values *values, int moments) {
    for (int j = 0; j < moments; j++)
        for (int code = 0; code < SC_MOMENTS8_CODES; code++) values->of[j][code] = sc_moments8_value(code, j == 0);
}
static const real *get_coded(const sc_operands *o, const code_values *values, int j, piece s, real *to) {
    const uint8_t *code = (const uint8_t *)o->moment[j].p + s.at;
    float scale = sc_moments8_scales(o->moment[j].p, o->slice)[s.at / SC_MOMENTS8_BLOCK];
    for (int64_t i = 0; i < s.n; i++) to[i] = values->of[j][code[i]] * scale;
    return to;
}
static void put_coded(const sc_operands *o, int j, piece s, const real *from) {
    uint8_t *code = (uint8_t *)o->moment[j].p + s.at;
    float *scale = sc_moments8_scales(o->moment[j].p, o->slice) + s.at / SC_MOMENTS8_BLOCK;
    float x[PIECE];
    for (int64_t i = 0; i < s.n; i++) x[i] = (float)from[i];
    *scale = sc_moments8_code_block(code, x, s.n, j == 0);
}

static bool rounds(const sc_operands *o) {
    return o->moment[0].p && o->moment[0].dtype == BF16;
}
/* The upper halves of what rounding gives: moments as they are stored. */
static void put_rounded(const sc_task *task, piece s, const sc_tensor *moment, real *const *from, int moments) {
    uint32_t word[PIECE];
    sc_rounding d = sc_rounding_of(task->record, s.key);
    sc_random(word, s.n, d.key, d.a, d.b, s.element);
    for (int j = 0; j < moments; j++) {
        sc_bf16_t *restrict to = (sc_bf16_t *)moment[j].p + s.at;
        const real *x = from[j];
        for (int64_t i = 0; i < s.n; i++) to[i] = (sc_bf16_t)(sc_rounded_bf16(x[i], word[i] >> 16 * j) >> 16);
    }
}

/* A function of a constant rule. It is inlined where it is called, so that the rule's functions are, and each rule's
 * loop is vectorized by itself. */
#define SPECIALIZED static inline __attribute__((always_inline))

SPECIALIZED void update_piece(const sc_task *task, const sc_operands *o, const code_values *values, sc_rule rule,
                              const sc_constants c, piece s) {
    real bg[PIECE], bp[PIECE], bm[2][PIECE], *m1[2] = {bm[0], bm[1]};
    const real *g = sc_in(&o->grad, s.at, s.n, bg), *p0 = sc_in(&o->master, s.at, s.n, bp), *m0[2] = {g, g};
    real *p1 = sc_out(&o->master, s.at, bp);
    for (int j = 0; j < rule.moments; j++) {
        m0[j] = is_coded(o) ? get_coded(o, values, j, s, bm[j]) : sc_in(&o->moment[j], s.at, s.n, bm[j]);
        m1[j] = sc_out(&o->moment[j], s.at, bm[j]);
    }
    SC_ELEMENTWISE
    for (int64_t i = 0; i < s.n; i++) {
        real p = p0[i], m = m0[0][i], v = m0[1][i];
        rule.element(&c, g[i], &p, &m, &v);
        p1[i] = p;
        if (rule.moments > 0) m1[0][i] = m;
        if (rule.moments > 1) m1[1][i] = v;
    }
    sc_put(&o->master, s.at, s.n, p1);
    if (rounds(o)) put_rounded(task, s, o->moment, m1, rule.moments);
    for (int j = 0; j < rule.moments && !rounds(o); j++)
        if (is_coded(o))
            put_coded(o, j, s, m1[j]);
        else
            sc_put(&o->moment[j], s.at, s.n, m1[j]);
}

/* This part's pieces of the rank's slice; the part's borders do not depend on the segments. A skipped step leaves the
 * wire shard what it is, the master in its dtype; written all the same: where state streams through the device, what
 * lies there now is not what goes back. */
SPECIALIZED void update(const sc_task *task, const sc_operands o, sc_rule rule) {
    bool skip = sc_skips(&o.coefficient), keyed = rounds(&o) || rule.scaled, finds = o.largest.p;
    if (skip && !o.wire.p && !finds) return;
    int64_t first = o.slice * task->coord[o.axis].at, t = o.step.p ? *(const int64_t *)o.step.p : 0;
    int64_t expert = sc_expert_place(task, o.expert);
    sc_range mine = sc_share(task, o.slice, SC_CHUNK);
    code_values values;
    if (is_coded(&o)) set_values(&values, rule.moments);
    const sc_constants step = rule.step(&task->record->of[o.set], t, (real)sc_get(&o.coefficient, 0), o.flag);
    for (int64_t row = 0; row < sc_segments(o.ntable, keyed, finds); row++) {
        sc_segment s = sc_segment_at(o.table, row, keyed, finds);
        int64_t begin = sc_max(s.begin - first, mine.begin), end = sc_min(s.end - first, mine.end);
        sc_constants c = rule.group(step, task->record, (int)s.group);
        float most = 0;
        if (rule.scaled) c.rate *= (real)sc_double((int64_t)s.key);
        for (int64_t i = begin; i < end; i += PIECE) {
            int64_t element = first + i - s.begin + expert * (s.end - s.begin);
            piece p = {i, sc_min(PIECE, end - i), s.key, (uint64_t)element};
            real master[PIECE];
            if (!skip) update_piece(task, &o, &values, rule, c, p);
            if (o.wire.p) sc_store(&o.wire, i, 1, p.n, sc_in(&o.master, i, p.n, master));
            if (s.matrix >= 0) most = sc_largest(most, &o.master, i, p.n);
        }
        if (s.matrix < 0) continue;
        sc_raise((float *)o.largest.p + s.matrix, o.wire.p ? sc_as(most, (sc_dtype)o.wire.dtype) : most);
    }
}

SC_KERNEL(sgd) {
    if (k->momentum.p)
        update(task, sc_sgd_operands(k), sc_momentum);
    else
        update(task, sc_sgd_operands(k), sc_sgd);
}

SC_KERNEL(adam) {
    update(task, sc_adam_operands(k), sc_adam);
}

SC_KERNEL(ema) {
    real buffer[SC_CHUNK], average[SC_CHUNK];
    bool first = *(const int64_t *)k->step.p <= 1;
    real weight = (real)(1 - k->decay);
    sc_range mine = sc_share(task, sc_numel(&k->average), SC_CHUNK);
    if (sc_skips(&k->coefficient)) return;
    for (int64_t i = mine.begin; i < mine.end; i += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, mine.end - i);
        const real *p = sc_in(&k->master, i, n, buffer);
        sc_load(average, &k->average, i, 1, n);
        for (int64_t j = 0; j < n; j++) average[j] = sc_ema(average[j], p[j], weight, first);
        sc_store(&k->average, i, 1, n, average);
    }
}

SC_KERNEL(lion) {
    update(task, sc_lion_operands(k), sc_lion);
}

/* Zeros between segments too, and of a step that is skipped. */
SC_KERNEL(muon_momentum) {
    sc_range mine = sc_share(task, k->slice, SC_CHUNK);
    memset((sc_bf16_t *)k->update.p + mine.begin, 0, (size_t)(mine.end - mine.begin) * sizeof(sc_bf16_t));
    update(task, sc_muon_momentum_operands(k), sc_muon_momentum);
}

SC_KERNEL(muon) {
    update(task, sc_muon_operands(k), sc_muon);
}

SC_KERNEL(count_step) {
    if (task->part == 0 && !sc_skips(&k->coefficient)) *(int64_t *)k->step.p += 1;
}

SC_KERNEL(sum_squares) {
    enum { BLOCK = 4096 };
    if (task->part) return;
    bool scaled = k->scaler.p != NULL;
    int64_t numel = sc_numel(&k->x);
    real buffer[SC_CHUNK], unscaled[SC_CHUNK], inverse = scaled ? 1 / (real)sc_get(&k->scaler, 0) : 1;
    double total = 0;
    for (int64_t first = 0; first < numel; first += BLOCK) {
        double block = 0;
        for (int64_t i = first; i < sc_min(numel, first + BLOCK); i += SC_CHUNK) {
            int64_t n = sc_min(SC_CHUNK, numel - i);
            const real *v = sc_in(&k->x, i, n, buffer);
            for (int64_t j = 0; j < n && scaled; j++) unscaled[j] = v[j] * inverse;
            if (scaled) v = unscaled;
            block += sc_chunk_dot(v, v, n);
        }
        total += block;
    }
    sc_set(&k->y, 0, total);
}

SC_KERNEL(clip_coefficient) {
    if (task->part) return;
    double sum = 0;
    for (int64_t i = 0; i < sc_numel(&k->squares); i++) sum += sc_get(&k->squares, i);
    double coefficient = sc_coefficient(sum, task->record->clip);
    sc_set(&k->norm, 0, sqrt(sum));
    if (k->scaler.p) {
        bool skip = sc_not_finite(sum);
        coefficient = skip ? 0 : coefficient / sc_get(&k->scaler, 0);
        sc_set(&k->coefficient, 1, skip);
    }
    sc_set(&k->coefficient, 0, coefficient);
}
