/* The update rules of the optimizers, one element at a time, and of the loss scale: one written order of correctly
 * rounded operations for the CPU and the GPU. Relies on: sc_math.h, sc.h (the record). Relied on by: k_optimizer.c,
 * k_scale.c, their CUDA twins, host/train.c (the scaler's elements).
 *
 * c is the clip coefficient, lr and decay the group's. PyTorch's formulas, each line rounded as written:
 * sgd:   g = grad·c (+ decay·p);  b = momentum·b + g;  g = nesterov ? g + momentum·b : b;  p = p - lr·g
 * adam:  g = grad·c;  decoupled: p = p·(1 - lr·decay), else g = g + decay·p
 *        m = beta1·m + (1-beta1)·g;  v = beta2·v + (1-beta2)·g·g
 *        p = p - (lr / (1-beta1^t)) · (m / (√v / √(1-beta2^t) + eps)) */
#ifndef SC_OPTIMIZER_H
#define SC_OPTIMIZER_H

#include "sc.h"
#include "sc_math.h"

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

typedef struct { /* of a step */
    real clip, momentum;
    bool nesterov, has_momentum;
} sc_sgd;
typedef struct { /* of a step and a group */
    real lr, decay;
} sc_sgd_group;

SC_FN sc_sgd_group sc_sgd_group_of(const sc_record *r, int group) {
    sc_sgd_group g;
    g.lr = r->lr[group];
    g.decay = r->weight_decay[group];
    return g;
}
/* One element: parameter p, momentum buffer b (not touched where there is none). */
SC_FN void sc_sgd_update(real *p, real *b, real grad, sc_sgd c, sc_sgd_group s) {
    real g = grad * c.clip;
    g = s.decay != 0 ? g + s.decay * *p : g;
    if (c.has_momentum) {
        real v = c.momentum * *b + g;
        *b = v;
        g = c.nesterov ? g + c.momentum * v : v;
    }
    *p = *p - s.lr * g;
}

typedef struct {                                       /* of a step */
    double correction1;                                /* 1 - beta1^t */
    real clip, beta1, rest1, beta2, rest2, root2, eps; /* root2 = √(1 - beta2^t) */
    bool decoupled;
} sc_adam;
typedef struct { /* of a step and a group */
    real step, keep, coupled;
} sc_adam_group;

/* x^n by squaring: products only, so that host and device agree to the bit. */
SC_FN double sc_power(double x, int64_t n) {
    double y = 1;
    for (; n > 0; n >>= 1) {
        if (n & 1) y *= x;
        x *= x;
    }
    return y;
}
SC_FN sc_adam sc_adam_of(const sc_record *r, int64_t t, real clip, bool decoupled) {
    sc_adam c;
    double beta1 = r->beta1, beta2 = r->beta2;
    c.correction1 = 1 - sc_power(beta1, t);
    c.clip = clip;
    c.beta1 = (real)beta1;
    c.rest1 = (real)(1 - beta1);
    c.beta2 = (real)beta2;
    c.rest2 = (real)(1 - beta2);
    c.root2 = (real)__builtin_sqrt(1 - sc_power(beta2, t));
    c.eps = r->eps;
    c.decoupled = decoupled;
    return c;
}
SC_FN sc_adam_group sc_adam_group_of(const sc_record *r, const sc_adam *c, int group) {
    double lr = r->lr[group], decay = r->weight_decay[group];
    sc_adam_group g;
    g.step = (real)(lr / c->correction1);
    g.keep = c->decoupled ? (real)(1 - lr * decay) : 1;
    g.coupled = c->decoupled ? 0 : (real)decay;
    return g;
}
SC_FN void sc_adam_update(real *p, real *m, real *v, real grad, const sc_adam *c, sc_adam_group s) {
    real kept = *p * s.keep, g = grad * c->clip + s.coupled * *p;
    *m = c->beta1 * *m + c->rest1 * g;
    *v = c->beta2 * *v + c->rest2 * (g * g);
    *p = kept - s.step * (*m / (sc_sqrt(*v) / c->root2 + c->eps));
}

#endif
