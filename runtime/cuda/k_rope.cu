/* rope: rotary position embedding (Su et al. 2021) in the layout of Hugging Face: pairs (d, d + W/2) of the first W
 * elements of a head, or `interleaved` (2d, 2d + 1). The other elements stay.
 * Relies on: rope.cuh.
 * Relied on by: generated code.
 *
 * x [B,S,H,D], angle a = position · f_d, f_d = theta^(-2d/W), rounded to real as PyTorch does:
 * y[d] = x[d] cos a - x[d+W/2] sin a;  y[d+W/2] = x[d+W/2] cos a + x[d] sin a. The inverse (the gradient) negates sin.
 * Llama 3.1's scaling (factor ≠ 0): wavelengths 2π/f beyond original/low are stretched by factor, those within
 * original/high stay, between them f is blended. A list of frequencies replaces all this; where it has two numbers a
 * pair, the second half says by which of positions [n,B,S] a pair turns. Cosines and sines are multiplied by scale (0:
 * by 1). heads: of so many from the first on; the others stay (0: of all). */
#include "rope.cuh"

namespace {

enum { PLACES = 256 }; /* (b, s) a block holds */

struct rotation {
    turning t;
    const void *x;
    void *y;
    int64_t xb, xs, xh, yb, ys, yh; /* strides of batch, sequence, head */
    int heads, turned, half, first; /* heads in all; the first pair of this launch */
};

template <class E, int W, int INTERLEAVED>
__global__ void __launch_bounds__(BLOCK) rotate(const __grid_constant__ rotation a) {
    typedef typename E::type type;
    __shared__ float sine[TABLE], cosine[TABLE];
    __shared__ int64_t from[PLACES], to[PLACES];
    __shared__ int table[PLACES];
    turned_places o = make_table(a.t, sine, cosine);
    for (int i = threadIdx.x; i < o.samples * o.places; i += BLOCK) {
        int64_t b = o.b0 + i / o.places, s = o.s0 + i % o.places;
        from[i] = b * a.xb + s * a.xs + (INTERLEAVED ? 2 : 1) * a.first;
        to[i] = b * a.yb + s * a.ys + (INTERLEAVED ? 2 : 1) * a.first;
        table[i] = i % o.places * a.t.pairs;
    }
    __syncthreads();
    int runs = a.t.pairs / W, each = a.heads * runs;
    for (int i = threadIdx.x; i < o.samples * o.places * each; i += BLOCK) {
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

} // namespace

SC_KERNEL(rope) {
    const sc_tensor *y = &k->y, *x = &k->x;
    int64_t head = x->shape[3], width = k->width ? k->width : head, half = width / 2;
    rotation a = {};
    a.x = x->p, a.y = y->p;
    a.xb = x->stride[0], a.xs = x->stride[1], a.xh = x->stride[2];
    a.yb = y->stride[0], a.ys = y->stride[1], a.yh = y->stride[2];
    /* heads behind the last that turns are copied, unless they lie where they are to lie */
    a.turned = (int)(k->heads ? k->heads : x->shape[2]);
    a.heads = x->p == y->p ? a.turned : (int)x->shape[2];
    a.half = (int)half;
    int64_t stays = x->p == y->p ? 0 : head - width;
    bool wide_enough = wide_rows(x) && wide_rows(y) && half * size_of(x->dtype) % 16 == 0 &&
                       stays * size_of(x->dtype) % 16 == 0;
    with_runs(task, x->dtype, wide_enough, [&](auto e, auto run) {
        auto turn = [&](int64_t pairs, bool interleaved) {
            for (int64_t d = 0; d < pairs; d += PAIRS) {
                int n = (int)least(pairs - d, PAIRS);
                a.first = (int)d;
                /* about eight runs a thread */
                turn_pairs(&a.t, k, width, d, n, ceil_div(8 * BLOCK, a.heads * (n / run.value)), PLACES);
                with_flag(interleaved, [&](auto flag) {
                    SC_LAUNCH(task, (rotate<decltype(e), run.value, flag.value>), turn_blocks(a.t), BLOCK, a);
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
