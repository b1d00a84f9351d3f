/* What the kernels of rotary positions share: by which angles the pairs of a head turn.
 * Relies on: kernel.cuh.
 * Relied on by: k_rope.cu, k_norm_rope.cu.
 *
 * The host computes the frequencies, as the CPU twin does; they travel as an argument of the launch. A block has a few
 * places in the sequence, in a few samples where all have the same positions: it makes the sines and cosines in double
 * once, then rotates all heads there. */
#ifndef SC_ROPE_CUH
#define SC_ROPE_CUH

#include "kernel.cuh"
#include <math.h>

enum { PAIRS = 256, TABLE = 1024 }; /* pairs of a head in one launch; sines that a block holds */

struct turning {
    const int32_t *positions;
    int64_t batch, seq, pa, pb, ps;   /* strides of the positions' row, batch, sequence */
    int pairs;                        /* of this launch */
    int samples, places, across;      /* a block's; blocks along the sequence */
    float scale, sign;
    float frequency[PAIRS];
    uint8_t axis[PAIRS]; /* by which row of positions a pair turns */
};

/* A block's part of batch and sequence, and the sines and cosines there: [places][pairs]. */
struct turned_places {
    int64_t b0, s0;
    int samples, places;
};
SC_DEVICE turned_places make_table(const turning &a, float *sine, float *cosine) {
    turned_places o;
    o.b0 = (int64_t)(blockIdx.x / a.across) * a.samples, o.s0 = (int64_t)(blockIdx.x % a.across) * a.places;
    o.samples = (int)(a.batch - o.b0 < a.samples ? a.batch - o.b0 : a.samples);
    o.places = (int)(a.seq - o.s0 < a.places ? a.seq - o.s0 : a.places);
    for (int i = threadIdx.x; i < o.places * a.pairs; i += BLOCK) {
        int64_t s = o.s0 + i / a.pairs;
        int pair = i % a.pairs;
        float position = (float)(a.positions ? a.positions[a.axis[pair] * a.pa + o.b0 * a.pb + s * a.ps] : s), u, v;
        sc_sincos((double)(position * a.frequency[pair]), &u, &v);
        sine[i] = u * (a.sign * a.scale);
        cosine[i] = v * a.scale;
    }
    return o;
}

static inline float frequency_of(const sc_rope_args *k, int64_t d, int64_t width) {
    if (k->frequencies.n) return k->frequencies.at[d];
    double f = (float)(1 / pow(k->theta, (double)((float)(2 * d) / (float)width)));
    if (k->factor == 0) return (float)f;
    double wave = 6.28318530717958647693 / f;
    if (wave < k->context / k->high) return (float)f;
    if (wave > k->context / k->low) return (float)(f / k->factor);
    double smooth = (k->context / wave - k->low) / (k->high - k->low);
    return (float)((1 - smooth) * f / k->factor + smooth * f);
}

/* Pairs [first, first + pairs) of width/2; each: how many places a block shall take, at most `most`. */
static inline void turn_pairs(turning *a, const sc_rope_args *k, int64_t width, int64_t first, int pairs, int64_t each,
                              int64_t most) {
    const sc_tensor *x = &k->x, *positions = present(&k->positions);
    bool rows = k->frequencies.n > width / 2; /* of positions */
    a->batch = x->shape[0], a->seq = x->shape[1];
    if (positions) {
        a->positions = (const int32_t *)positions->p;
        a->pa = rows ? positions->stride[0] : 0, a->pb = positions->stride[rows], a->ps = positions->stride[rows + 1];
    }
    a->sign = k->inverse ? -1 : 1;
    a->scale = k->scale != 0 ? (float)k->scale : 1;
    a->pairs = pairs;
    for (int i = 0; i < pairs && first + i < width / 2; i++) {
        a->frequency[i] = frequency_of(k, first + i, width);
        a->axis[i] = rows ? (uint8_t)k->frequencies.at[width / 2 + first + i] : 0;
    }
    /* of more than one sample if they share positions */
    each = least(each, most);
    a->samples = positions ? 1 : (int)least(each, a->batch);
    a->places = (int)least(ceil_div(each, a->samples), least(TABLE / pairs, most / a->samples));
    a->across = (int)ceil_div(a->seq, a->places);
}
static inline unsigned turn_blocks(const turning &a) {
    return blocks_for(a.batch, a.samples) * (unsigned)a.across;
}

#endif
