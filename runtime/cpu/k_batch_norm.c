/* batch_norm of x [N,C,...] over all but the channels, and its gradient.
 * Relies on: kernel.h.
 * Relied on by: generated code. Contiguous operands; parts take channels.
 *
 * Training: mean and variance of the channel's n values, rstd = 1/√(var + eps), y = (x-mean)·rstd·w + b, and unless
 * keep_running: running = (1-momentum)·running + momentum·{mean, var·n/(n-1)}. Otherwise the running statistics take
 * their place. Gradient, x̂ = (x-mean)·rstd: db = Σg, dw = Σg·x̂, dx = w·rstd·(g - db/n - x̂·dw/n); not training: dx =
 * w·rstd·g. */
#include "kernel.h"

/* A channel: `runs` runs of `length` elements, `stride` apart inside a run. */
typedef struct {
    int64_t channels, runs, length, stride, step;
} layout;

static layout layout_of(const sc_tensor *x) {
    int64_t channels = x->shape[1], inner = 1;
    for (int d = 2; d < x->dims; d++) inner *= x->shape[d];
    if (inner == 1) return (layout){channels, 1, x->shape[0], channels, 0};
    return (layout){channels, x->shape[0], inner, 1, channels * inner};
}

/* The pieces of a channel, at most SC_CHUNK long. */
#define FOR_EACH_PIECE(l, c, at, n)                                                                                    \
    for (int64_t run = 0; run < (l).runs; run++)                                                                       \
        for (int64_t i = 0, n, at;                                                                                     \
             i < (l).length && (n = sc_min(SC_CHUNK, (l).length - i),                                                  \
                               at = run * (l).step + (c) * ((l).stride == 1 ? (l).length : 1) + i * (l).stride, 1);    \
             i += SC_CHUNK)

static void channel_statistics(const sc_tensor *x, layout l, int64_t c, double *mean, double *variance) {
    real v[SC_CHUNK];
    double sum = 0, deviation = 0, n = (double)(l.runs * l.length);
    FOR_EACH_PIECE(l, c, at, m) {
        sc_load(v, x, at, l.stride, m);
        sum += sc_chunk_sum(v, m);
    }
    *mean = sum / n;
    FOR_EACH_PIECE(l, c, at, m) {
        sc_load(v, x, at, l.stride, m);
        deviation += sc_chunk_deviation(v, (real)*mean, m);
    }
    *variance = deviation / n;
}

static void update_running(const sc_tensor *running, int64_t c, double momentum, double value) {
    sc_set(running, c, (1 - momentum) * sc_get(running, c) + momentum * value);
}

SC_KERNEL(batch_norm) {
    layout l = layout_of(&k->x);
    double n = (double)(l.runs * l.length);
    real v[SC_CHUNK];
    sc_range mine = sc_share(task, l.channels, 1);
    for (int64_t c = mine.begin; c < mine.end; c++) {
        double mean = sc_get(&k->running_mean, c), variance = sc_get(&k->running_var, c);
        if (k->training) channel_statistics(&k->x, l, c, &mean, &variance);
        if (k->training && !k->keep_running) {
            update_running(&k->running_mean, c, k->momentum, mean);
            update_running(&k->running_var, c, k->momentum, variance * n / (n - 1));
        }
        real m = (real)mean, rstd = (real)(1 / sqrt(variance + k->eps));
        real scale = (real)sc_get(&k->w, c), bias = (real)sc_get(&k->b, c);
        sc_set(&k->mean, c, m);
        sc_set(&k->rstd, c, rstd);
        FOR_EACH_PIECE(l, c, at, p) {
            sc_load(v, &k->x, at, l.stride, p);
            for (int64_t j = 0; j < p; j++) v[j] = (v[j] - m) * rstd * scale + bias;
            sc_store(&k->y, at, l.stride, p, v);
        }
    }
}

SC_KERNEL(batch_norm_grad) {
    layout l = layout_of(&k->x);
    double n = (double)(l.runs * l.length);
    real v[SC_CHUNK], dy[SC_CHUNK];
    sc_range mine = sc_share(task, l.channels, 1);
    for (int64_t c = mine.begin; c < mine.end; c++) {
        real mean = (real)sc_get(&k->mean, c), rstd = (real)sc_get(&k->rstd, c), scale = (real)sc_get(&k->w, c) * rstd;
        double dw = 0, db = 0;
        FOR_EACH_PIECE(l, c, at, p) {
            sc_load(v, &k->x, at, l.stride, p);
            sc_load(dy, &k->g, at, l.stride, p);
            for (int64_t j = 0; j < p; j++) v[j] = (v[j] - mean) * rstd;
            db += sc_chunk_sum(dy, p);
            dw += sc_chunk_dot(dy, v, p);
        }
        sc_set(&k->dw, c, dw);
        sc_set(&k->db, c, db);
        real a = k->training ? (real)(db / n) : 0, slope = k->training ? (real)(dw / n) : 0;
        FOR_EACH_PIECE(l, c, at, p) {
            sc_load(v, &k->x, at, l.stride, p);
            sc_load(dy, &k->g, at, l.stride, p);
            for (int64_t j = 0; j < p; j++) dy[j] = (dy[j] - a - (v[j] - mean) * rstd * slope) * scale;
            sc_store(&k->dx, at, l.stride, p, dy);
        }
    }
}
