/* rope: rotary position embedding (Su et al. 2021) in the layout of Hugging Face: pairs (d, d + W/2) of the first W
 * elements of a head, or `interleaved` (2d, 2d + 1). The other elements stay.
 * Relies on: kernel.cuh.
 * Relied on by: generated code.
 *
 * x [B,S,H,D], angle a = position · f_d, f_d = theta^(-2d/W), rounded to real as PyTorch does:
 * y[d] = x[d] cos a - x[d+W/2] sin a;  y[d+W/2] = x[d+W/2] cos a + x[d] sin a. The inverse (the gradient) negates sin.
 * Llama 3.1's scaling (factor ≠ 0): wavelengths 2π/f beyond original/low are stretched by factor, those within
 * original/high stay, between them f is blended. A list of frequencies replaces all this; where it has two numbers a
 * pair, the second half says by which of positions [n,B,S] a pair turns. Cosines and sines are multiplied by scale (0:
 * by 1). heads: of so many from the first on; the others stay (0: of all).
 *
 * The host computes the frequencies, as the CPU twin does; they travel as an argument of the launch. A block has a few
 * places in the sequence, in a few samples where all have the same positions: it makes the sines and cosines in double
 * once, then rotates all heads there. */
#include "kernel.cuh"
#include <math.h>

namespace {

enum { PAIRS = 256, TABLE = 1024, PLACES = 256 }; /* pairs of a head in one launch; sines and (b, s) a block holds */

struct rotation {
    const void *x;
    void *y;
    const int32_t *positions;
    int64_t batch, seq, xb, xs, xh, yb, ys, yh, pa, pb, ps; /* strides of the positions' row, batch, sequence, head */
    int heads, turned, half, first, pairs;                  /* heads in all; pairs: [first, first + pairs) of each half */
    int samples, places, across;                            /* a block's; blocks along the sequence */
    float scale, sign;
    float frequency[PAIRS];
    uint8_t axis[PAIRS]; /* by which row of positions a pair turns */
};

template <class E, int W, int INTERLEAVED>
__global__ void __launch_bounds__(BLOCK) rotate(const __grid_constant__ rotation a) {
    typedef typename E::type type;
    __shared__ float sine[TABLE], cosine[TABLE];
    __shared__ int64_t from[PLACES], to[PLACES];
    __shared__ int table[PLACES];
    int64_t b0 = (int64_t)(blockIdx.x / a.across) * a.samples, s0 = (int64_t)(blockIdx.x % a.across) * a.places;
    int samples = (int)(a.batch - b0 < a.samples ? a.batch - b0 : a.samples);
    int places = (int)(a.seq - s0 < a.places ? a.seq - s0 : a.places);
    for (int i = threadIdx.x; i < places * a.pairs; i += BLOCK) {
        int64_t s = s0 + i / a.pairs;
        int pair = i % a.pairs;
        float position = (float)(a.positions ? a.positions[a.axis[pair] * a.pa + b0 * a.pb + s * a.ps] : s), u, v;
        sc_sincos((double)(position * a.frequency[pair]), &u, &v);
        sine[i] = u * (a.sign * a.scale);
        cosine[i] = v * a.scale;
    }
    for (int i = threadIdx.x; i < samples * places; i += BLOCK) {
        int64_t b = b0 + i / places, s = s0 + i % places;
        from[i] = b * a.xb + s * a.xs + (INTERLEAVED ? 2 : 1) * a.first;
        to[i] = b * a.yb + s * a.ys + (INTERLEAVED ? 2 : 1) * a.first;
        table[i] = i % places * a.pairs;
    }
    __syncthreads();
    int runs = a.pairs / W, each = a.heads * runs;
    for (int i = threadIdx.x; i < samples * places * each; i += BLOCK) {
        int r = i / each, h = i % each / runs, d = i % runs * W;
        int at = INTERLEAVED ? 2 * d : d, second = INTERLEAVED ? W : a.half;
        const type *x = (const type *)a.x + from[r] + h * a.xh + at;
        type *y = (type *)a.y + to[r] + h * a.yh + at;
        raw<E, W> run[2];
        float z[2 * W]; /* both runs, one behind the other; pair k is (k, W + k) or (2k, 2k + 1) of them */
        run[0].load(x);
        run[1].load(x + second);
#pragma unroll
        for (int k = 0; k < W; k++) {
            float sn = sine[table[r] + d + k], cs = cosine[table[r] + d + k];
            int i0 = INTERLEAVED ? 2 * k : k, i1 = INTERLEAVED ? 2 * k + 1 : W + k;
            float u = run[i0 / W].get(i0 % W), v = run[i1 / W].get(i1 % W);
            z[i0] = u * cs - v * sn;
            z[i1] = v * cs + u * sn;
        }
        if (h < a.turned) {
            run[0].put(z);
            run[1].put(z + W);
        }
        run[0].store(y);
        run[1].store(y + second);
    }
}

float frequency_of(const sc_rope_args *k, int64_t d, int64_t width) {
    if (k->frequencies.n) return k->frequencies.at[d];
    double f = (float)(1 / pow(k->theta, (double)((float)(2 * d) / (float)width)));
    if (k->factor == 0) return (float)f;
    double wave = 6.28318530717958647693 / f;
    if (wave < k->context / k->high) return (float)f;
    if (wave > k->context / k->low) return (float)(f / k->factor);
    double smooth = (k->context / wave - k->low) / (k->high - k->low);
    return (float)((1 - smooth) * f / k->factor + smooth * f);
}

} // namespace

SC_KERNEL(rope) {
    const sc_tensor *y = &k->y, *x = &k->x, *positions = present(&k->positions);
    int64_t head = x->shape[3], width = k->width ? k->width : head, half = width / 2;
    bool rows = k->frequencies.n > half; /* of positions */
    rotation a = {};
    a.x = x->p, a.y = y->p;
    a.batch = x->shape[0], a.seq = x->shape[1];
    a.xb = x->stride[0], a.xs = x->stride[1], a.xh = x->stride[2];
    a.yb = y->stride[0], a.ys = y->stride[1], a.yh = y->stride[2];
    if (positions) {
        a.positions = (const int32_t *)positions->p;
        a.pa = rows ? positions->stride[0] : 0, a.pb = positions->stride[rows], a.ps = positions->stride[rows + 1];
    }
    /* heads behind the last that turns are copied, unless they lie where they are to lie */
    a.turned = (int)(k->heads ? k->heads : x->shape[2]);
    a.heads = x->p == y->p ? a.turned : (int)x->shape[2];
    a.half = (int)half;
    a.sign = k->inverse ? -1 : 1;
    a.scale = k->scale != 0 ? (float)k->scale : 1;
    int64_t stays = x->p == y->p ? 0 : head - width;
    bool wide_enough = wide_rows(x) && wide_rows(y) && half * size_of(x->dtype) % 16 == 0 &&
                       stays * size_of(x->dtype) % 16 == 0;
    with_runs(task, x->dtype, wide_enough, [&](auto e, auto run) {
        auto turn = [&](int64_t pairs, bool interleaved) {
            for (int64_t d = 0; d < pairs; d += PAIRS) {
                a.first = (int)d;
                a.pairs = (int)least(pairs - d, PAIRS);
                for (int i = 0; i < a.pairs && a.turned; i++) {
                    a.frequency[i] = frequency_of(k, d + i, width);
                    a.axis[i] = rows ? (uint8_t)k->frequencies.at[half + d + i] : 0;
                }
                /* about eight runs a thread, of more than one sample if they share positions */
                int64_t each = least(ceil_div(8 * BLOCK, a.heads * (a.pairs / run.value)), PLACES);
                a.samples = positions ? 1 : (int)least(each, a.batch);
                a.places = (int)least(ceil_div(each, a.samples), least(TABLE / a.pairs, PLACES / a.samples));
                a.across = (int)ceil_div(a.seq, a.places);
                unsigned blocks = blocks_for(a.batch, a.samples) * (unsigned)a.across;
                with_flag(interleaved, [&](auto flag) {
                    SC_LAUNCH(task, (rotate<decltype(e), run.value, flag.value>), blocks, BLOCK, a);
                });
            }
        };
        turn(half, k->interleaved);
        if (!stays) return;
        /* what stays of each head is copied as a head that does not turn, in two halves, which may overlap */
        int64_t pairs = ceil_div(stays, 2 * run.value) * run.value;
        a.x = (const char *)a.x + width * size_of(x->dtype), a.y = (char *)a.y + width * size_of(x->dtype);
        a.turned = 0, a.half = (int)(stays - pairs);
        turn(pairs, false);
    });
}
