/* The update rules of the optimizers, one element at a time, and of the loss scale: one written order of correctly
 * rounded operations for the CPU and the GPU. Each target has one body that serves all optimizers' rules.
 * Relies on: schema/math.h, schema/philox.h, sc.h (the record, the ops' structs). Relied on by: k_optimizer.c,
 * k_scale.c, their CUDA twins.
 *
 * c is the clip coefficient, lr and decay the group's. PyTorch's formulas, each line rounded as written:
 * sgd:   g = grad·c (+ decay·p);  m = momentum·m + g;  g = nesterov ? g + momentum·m : m;  p = p - lr·g
 * adam:  g = grad·c;  decoupled: p = p·(1 - lr·decay), else g = g + decay·p
 *        m = beta1·m + (1-beta1)·g;  v = beta2·v + (1-beta2)·g·g
 *        p = p - (lr / (1-beta1^t)) · (m / (√v / √(1-beta2^t) + eps))
 * lion:  g = grad·c;  p = p·(1 - lr·decay);  p = p - lr·sign(beta1·m + (1-beta1)·g);  m = beta2·m + (1-beta2)·g
 *        (X. Chen and others: Symbolic discovery of optimization algorithms, NeurIPS 2023; decay as in AdamW)
 * muon:  g = grad·c;  m = lerp(m, g, 1 - momentum);  g = nesterov ? lerp(g, m, momentum) : m;  g orthogonalized (the op
 *        orthogonalize);  p = p·(1 - lr·decay);  p = p - lr·s·g, s by the matrix's shape (K. Jordan: Muon, 2024)
 * Moments of bf16 and of 8 bits (sc_moments8.h) are computed in fp32, serve p as they are, and are rounded when they
 * are stored. */
#ifndef SC_OPTIMIZER_H
#define SC_OPTIMIZER_H

#include "sc.h"
#include "schema/math.h"
#include "schema/philox.h"
#include "schema/segments.h"

/* What the optimizers multiply gradients with, from the sum of squares of the unscaled gradients. A sum that is not
 * finite says that a gradient is not (or that the norm overflows, which no step could use). */
SC_FN bool sc_not_finite(double x) {
    return !(x - x == 0);
}
SC_FN double sc_coefficient(double sum_of_squares, double clip) {
    double norm = __builtin_sqrt(sum_of_squares), c = clip > 0 ? clip / (norm + 1e-6) : 1;
    return c > 1 ? 1 : c;
}
/* As PyTorch's: a scale that would grow to infinity stays. */
SC_FN void sc_scaler_update(sc_scaler *s, bool skip, double growth, double backoff, int64_t interval) {
    s->skipped = skip;
    s->skips += s->skipped;
    s->clean = skip ? 0 : s->clean + 1;
    if (skip) s->scale = (float)(s->scale * backoff);
    if ((int64_t)s->clean < interval) return;
    float grown = (float)(s->scale * growth);
    if (!sc_not_finite(grown)) s->scale = grown;
    s->clean = 0;
}

/* The numbers that an element's update reads, from the record: those of the step and, from `rate` on, those of a group
 * of parameters. A rule sets the ones that it uses. */
typedef struct {
    double correction1;                                          /* 1 - beta1^t */
    real clip, momentum, beta1, rest1, beta2, rest2, root2, eps; /* rest: 1 - beta; root2 = √(1 - beta2^t) */
    bool flag;                                                   /* of the op: nesterov (sgd), decoupled (adam) */
    real rate, keep, decay;                                      /* keep: what decoupled decay leaves of p, a factor */
} sc_constants;

/* An update rule has at most 2 moments and three functions. `step` gives the constants of step t, which is 0 where the
 * optimizer does not count steps. `group` adds those of a group. `element` updates the parameter p and the moments m
 * and v from the gradient g; it leaves moments alone that the rule does not have. */
typedef struct {
    int moments;
    bool scaled; /* rows of its table have a factor on the rate */
    sc_constants (*step)(const sc_optimizer_set *n, int64_t t, real clip, bool flag);
    sc_constants (*group)(sc_constants c, const sc_record *r, int group);
    void (*element)(const sc_constants *c, real g, real *p, real *m, real *v);
} sc_rule;
#ifdef __cplusplus
#define SC_RULE static constexpr sc_rule
#else
#define SC_RULE static const sc_rule
#endif

/* The operands and integers of an optimizer's op. Moments, step, wire and largest are absent (p is NULL) where it has
 * none. */
typedef struct {
    sc_tensor grad, master, coefficient, moment[2], step, wire, largest; /* wire: the master in the wire's dtype */
    const int64_t *table;                                                /* schema/segments.h */
    int64_t ntable, slice, axis, expert, set; /* set: which of the record's optimizers it is */
    bool flag;
} sc_operands;

SC_FN sc_constants sc_sgd_step(const sc_optimizer_set *n, int64_t t, real clip, bool nesterov) {
    sc_constants c = {};
    c.clip = clip;
    c.momentum = n->momentum;
    c.flag = nesterov;
    return c;
}
SC_FN sc_constants sc_sgd_group(sc_constants c, const sc_record *r, int group) {
    c.rate = r->lr[group];
    c.decay = r->weight_decay[group];
    return c;
}
SC_FN real sc_sgd_gradient(const sc_constants *c, real g, real p) {
    g = g * c->clip;
    return c->decay != 0 ? g + c->decay * p : g;
}
SC_FN void sc_sgd_element(const sc_constants *c, real g, real *p, real *m, real *v) {
    *p = *p - c->rate * sc_sgd_gradient(c, g, *p);
}
SC_FN void sc_momentum_element(const sc_constants *c, real g, real *p, real *m, real *v) {
    g = sc_sgd_gradient(c, g, *p);
    *m = c->momentum * *m + g;
    *p = *p - c->rate * (c->flag ? g + c->momentum * *m : *m);
}
SC_RULE sc_sgd = {0, false, sc_sgd_step, sc_sgd_group, sc_sgd_element};
SC_RULE sc_momentum = {1, false, sc_sgd_step, sc_sgd_group, sc_momentum_element};

static inline sc_operands sc_sgd_operands(const sc_sgd_args *k) {
    sc_operands o = {};
    o.grad = k->grad, o.master = k->master, o.coefficient = k->coefficient, o.moment[0] = k->momentum;
    o.largest = k->largest;
    o.table = k->table, o.ntable = k->ntable, o.slice = k->slice, o.axis = k->axis, o.expert = k->expert,
    o.set = k->set;
    o.flag = k->nesterov;
    return o;
}

/* x^n by squaring: products only, so that host and device agree to the bit. */
SC_FN double sc_power(double x, int64_t n) {
    double y = 1;
    for (; n > 0; n >>= 1) {
        if (n & 1) y *= x;
        x *= x;
    }
    return y;
}
SC_FN sc_constants sc_adam_step(const sc_optimizer_set *n, int64_t t, real clip, bool decoupled) {
    sc_constants c = {};
    double beta1 = n->beta1, beta2 = n->beta2;
    c.correction1 = 1 - sc_power(beta1, t);
    c.clip = clip;
    c.beta1 = (real)beta1;
    c.rest1 = (real)(1 - beta1);
    c.beta2 = (real)beta2;
    c.rest2 = (real)(1 - beta2);
    c.root2 = (real)__builtin_sqrt(1 - sc_power(beta2, t));
    c.eps = n->eps;
    c.flag = decoupled;
    return c;
}
SC_FN sc_constants sc_adam_group(sc_constants c, const sc_record *r, int group) {
    double lr = r->lr[group], decay = r->weight_decay[group];
    c.rate = (real)(lr / c.correction1);
    c.keep = c.flag ? (real)(1 - lr * decay) : 1;
    c.decay = c.flag ? 0 : (real)decay;
    return c;
}
SC_FN void sc_adam_element(const sc_constants *c, real g, real *p, real *m, real *v) {
    real kept = *p * c->keep;
    g = g * c->clip + c->decay * *p;
    *m = c->beta1 * *m + c->rest1 * g;
    *v = c->beta2 * *v + c->rest2 * (g * g);
    *p = kept - c->rate * (*m / (sc_sqrt(*v) / c->root2 + c->eps));
}
SC_RULE sc_adam = {2, false, sc_adam_step, sc_adam_group, sc_adam_element};

static inline sc_operands sc_adam_operands(const sc_adam_args *k) {
    sc_operands o = {};
    o.grad = k->grad, o.master = k->master, o.coefficient = k->coefficient;
    o.moment[0] = k->m, o.moment[1] = k->v, o.step = k->step, o.wire = k->wire;
    o.largest = k->largest;
    o.table = k->table, o.ntable = k->ntable, o.slice = k->slice, o.axis = k->axis, o.expert = k->expert,
    o.set = k->set;
    o.flag = k->decoupled;
    return o;
}

SC_FN sc_constants sc_lion_step(const sc_optimizer_set *n, int64_t t, real clip, bool flag) {
    sc_constants c = {};
    double beta1 = n->beta1, beta2 = n->beta2;
    c.clip = clip;
    c.beta1 = (real)beta1;
    c.rest1 = (real)(1 - beta1);
    c.beta2 = (real)beta2;
    c.rest2 = (real)(1 - beta2);
    return c;
}
SC_FN sc_constants sc_lion_group(sc_constants c, const sc_record *r, int group) {
    double lr = r->lr[group], decay = r->weight_decay[group];
    c.rate = (real)lr;
    c.keep = (real)(1 - lr * decay);
    return c;
}
SC_FN void sc_lion_element(const sc_constants *c, real g, real *p, real *m, real *v) {
    g = g * c->clip;
    real between = c->beta1 * *m + c->rest1 * g;
    *p = *p * c->keep - c->rate * (real)((between > 0) - (between < 0));
    *m = c->beta2 * *m + c->rest2 * g;
}
SC_RULE sc_lion = {1, false, sc_lion_step, sc_lion_group, sc_lion_element};

static inline sc_operands sc_lion_operands(const sc_lion_args *k) {
    sc_operands o = {};
    o.grad = k->grad, o.master = k->master, o.coefficient = k->coefficient, o.moment[0] = k->m, o.wire = k->wire;
    o.largest = k->largest;
    o.table = k->table, o.ntable = k->ntable, o.slice = k->slice, o.axis = k->axis, o.expert = k->expert,
    o.set = k->set;
    return o;
}

/* Between x and y as torch.lerp rounds it. */
SC_FN real sc_lerp(real x, real y, real weight) {
    return weight < (real)0.5 ? x + weight * (y - x) : y - (y - x) * (1 - weight);
}
SC_FN sc_constants sc_muon_step(const sc_optimizer_set *n, int64_t t, real clip, bool nesterov) {
    sc_constants c = {};
    c.clip = clip;
    c.momentum = n->momentum;
    c.rest1 = (real)(1 - (double)n->momentum);
    c.flag = nesterov;
    return c;
}
SC_FN sc_constants sc_muon_group(sc_constants c, const sc_record *r, int group) {
    double lr = r->lr[group], decay = r->weight_decay[group];
    c.rate = (real)lr;
    c.keep = (real)(1 - lr * decay);
    return c;
}
SC_FN void sc_muon_momentum_element(const sc_constants *c, real g, real *p, real *m, real *v) {
    g = g * c->clip;
    *m = sc_lerp(*m, g, c->rest1);
    *p = c->flag ? sc_lerp(g, *m, c->momentum) : *m;
}
SC_FN void sc_muon_element(const sc_constants *c, real g, real *p, real *m, real *v) {
    *p = *p * c->keep - c->rate * g;
}
SC_RULE sc_muon_momentum = {1, false, sc_muon_step, sc_muon_group, sc_muon_momentum_element};
SC_RULE sc_muon = {0, true, sc_muon_step, sc_muon_group, sc_muon_element};

static inline sc_operands sc_muon_momentum_operands(const sc_muon_momentum_args *k) { /* it "updates" its result */
    sc_operands o = {};
    o.grad = k->grad, o.master = k->update, o.coefficient = k->coefficient, o.moment[0] = k->momentum;
    o.table = k->table, o.ntable = k->ntable, o.slice = k->slice, o.axis = k->axis, o.expert = k->expert,
    o.set = k->set;
    o.flag = k->nesterov;
    return o;
}
static inline sc_operands sc_muon_operands(const sc_muon_args *k) {
    sc_operands o = {};
    o.grad = k->grad, o.master = k->master, o.coefficient = k->coefficient, o.wire = k->wire;
    o.largest = k->largest;
    o.table = k->table, o.ntable = k->ntable, o.slice = k->slice, o.axis = k->axis;
    return o;
}

/* An exponential moving average, as torch.lerp computes it; weight: 1 - decay. The first time it is the value. */
SC_FN real sc_ema(real average, real p, real weight, bool first) {
    if (first) return p;
    return weight < (real)0.5 ? average + weight * (p - average) : p - (p - average) * (1 - weight);
}

/* ── moments of bf16 ─────────────────────────────────────────────────────────────────────────────────────────────────
 * With beta2 = 0.999 a second moment changes by less than half of bf16's ulp a step: to nearest, it would stay for
 * good. Stochastic rounding goes to the upper neighbour as often as the value lies nearer to it, so that its mean is
 * the value (S. Gupta and others: Deep learning with limited numerical precision, ICML 2015; M. Croci and others:
 * Stochastic rounding: implementation, error analysis and applications, R. Soc. Open Sci. 9, 2022). Sixteen random bits
 * are added to the sixteen that are then cut off: exact, also for subnormals; what bf16 holds already stays, above all
 * zero. The bits are those of word e % 4 of Philox at (e / 4, step) for element e of a parameter, in the stream of the
 * seed and its path: the lower half for the first moment, the upper for the second. So neither world nor plan matters.
 * The counter's highest bit keeps them apart from the words that init_param draws in that stream. */
typedef struct { /* of a step and a parameter */
    uint64_t key;
    uint32_t a, b;
} sc_rounding;

SC_FN sc_rounding sc_rounding_of(const sc_record *r, uint64_t path_key) {
    sc_rounding d;
    d.key = sc_stream_key(r->seed, path_key);
    d.a = (uint32_t)r->step;
    d.b = (uint32_t)((uint64_t)r->step >> 32) | 0x80000000u;
    return d;
}
/* x as a bf16, by the lower half of `word`, in the result's upper half; what the lower half holds is to be cut off.
 * Beyond the largest it is infinity, as to nearest; a NaN stays one. */
SC_FN uint32_t sc_rounded_bf16(real x, uint32_t word) {
    uint32_t u = sc_bits((float)x), y = u + (word & 0xffffu);
    return x != x ? u | 0x400000u : y;
}
SC_FN real sc_round_bf16(real x, uint32_t word) {
    return sc_float(sc_rounded_bf16(x, word) & 0xffff0000u);
}

#endif
