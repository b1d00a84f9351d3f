/* rms_norm_rope: rms_norm over the heads of queries or keys, then rope of what it stores, in one pass over them.
 * Relies on: rope.cuh; k_norm.cu and k_rope.cu (heads that are not held).
 * Relied on by: generated code.
 *
 * A group of lanes holds a head, 16 bytes a lane: the sum of squares, and the element that makes a pair with one's own,
 * come from other lanes of the group. Each sum and each rounding is that of the two kernels. Other heads (more than 512
 * bytes, no power of two, not aligned) take these two, one after the other. */
#include "rope.cuh"

namespace {

struct head_norm {
    turning t;
    const void *x, *w;
    void *y;
    float *rstd;
    int64_t xb, xs, xh, yb, ys, yh; /* strides of batch, sequence, head */
    int heads, cols, width;
    float eps;
};

/* All lanes of a warp run the same turns of the loop, because they exchange elements. */
template <class E, int INTERLEAVED>
__global__ void __launch_bounds__(BLOCK) norm_rotate(const __grid_constant__ head_norm a) {
    constexpr int W = wide<E>;
    typedef typename E::type type;
    __shared__ float sine[TABLE], cosine[TABLE];
    turned_places o = make_table(a.t, sine, cosine);
    __syncthreads();
    int lanes = a.cols / W, lane = threadIdx.x % lanes, groups = BLOCK / lanes, c = lane * W;
    int half = a.t.pairs / W; /* lanes that hold first elements of pairs */
    int other = threadIdx.x % WARP + (lane < half ? half : lane < 2 * half ? -half : 0);
    int d = INTERLEAVED ? c / 2 : lane < half ? c : c - a.t.pairs; /* the first of my pairs */
    raw<E, W> w;
    if (a.w) w.load((const type *)a.w + c);
    int rows = o.samples * o.places * a.heads;
    for (int first = 0; first < rows; first += groups) {
        int row = first + threadIdx.x / lanes, place = row / a.heads, h = row % a.heads;
        int64_t b = o.b0 + place / o.places, s = o.s0 + place % o.places;
        raw<E, W> v;
        v.clear();
        if (row < rows) v.load((const type *)a.x + b * a.xb + s * a.xs + h * a.xh + c);
        float sum = 0, z[W];
#pragma unroll
        for (int k = 0; k < W; k++) sum = sc_fma(v.get(k), v.get(k), sum);
        for (int k = lanes / 2; k; k /= 2) sum += __shfl_xor_sync(SC_ALL, sum, k);
        float rstd = 1 / sc_sqrt(sum / (float)a.cols + a.eps);
#pragma unroll
        for (int k = 0; k < W; k++) {
            z[k] = v.get(k) * rstd;
            if (a.w) z[k] = z[k] * w.get(k);
        }
        v.put(z);
        const float *sn = sine + place % o.places * a.t.pairs + d, *cs = cosine + place % o.places * a.t.pairs + d;
#pragma unroll
        for (int k = 0; k < W; k++) {
            float u = v.get(k), p = INTERLEAVED ? v.get(k ^ 1) : __shfl_sync(SC_ALL, u, other);
            bool second = INTERLEAVED ? k % 2 : lane >= half;
            int i = INTERLEAVED ? k / 2 : k;
            if (row < rows && c < a.width) z[k] = second ? u * cs[i] + p * sn[i] : u * cs[i] - p * sn[i];
        }
        if (row >= rows) continue;
        if (c < a.width) v.put(z);
        v.store((type *)a.y + b * a.yb + s * a.ys + h * a.yh + c);
        if (lane == 0) a.rstd[(b * a.t.seq + s) * a.heads + h] = rstd;
    }
}

void one_after_the_other(const sc_task *task, const sc_rms_norm_rope_args *k, const sc_rope_args *turn) {
    sc_rms_norm_args norm = {};
    norm.y = k->y, norm.rstd = k->rstd, norm.x = k->x, norm.w = k->w, norm.eps = k->eps;
    sc_task t = *task;
    t.args = (const sc_args *)&norm;
    t.slots = SC_SLOTS_rms_norm;
    sc_k_rms_norm(&t);
    t.args = (const sc_args *)turn;
    t.slots = SC_SLOTS_rope;
    sc_k_rope(&t);
}

} // namespace

SC_KERNEL(rms_norm_rope) {
    const sc_tensor *y = &k->y, *x = &k->x;
    sc_rope_args turn = {};
    turn.y = turn.x = *y, turn.positions = k->positions;
    turn.width = k->width, turn.interleaved = k->interleaved, turn.frequencies = k->frequencies;
    turn.theta = k->theta, turn.factor = k->factor, turn.low = k->low, turn.high = k->high;
    turn.context = k->context, turn.scale = k->scale;
    head_norm a = {};
    a.x = x->p, a.w = k->w.p, a.y = y->p, a.rstd = (float *)k->rstd.p;
    a.xb = x->stride[0], a.xs = x->stride[1], a.xh = x->stride[2];
    a.yb = y->stride[0], a.ys = y->stride[1], a.yh = y->stride[2];
    a.heads = (int)x->shape[2], a.cols = (int)x->shape[3], a.eps = (float)k->eps;
    a.width = (int)(k->width ? k->width : a.cols);
    int lanes = a.cols * size_of(x->dtype) / 16, run = k->interleaved ? 16 : 32;
    bool held = wide_rows(x) && wide_rows(y) && aligned(a.w, 16) && lanes <= WARP && (lanes & (lanes - 1)) == 0;
    if (!lanes || a.cols * size_of(x->dtype) % 16 || !held || a.width * size_of(x->dtype) % run) {
        one_after_the_other(task, k, &turn);
        return;
    }
    /* about eight heads a group */
    turn_pairs(&a.t, &turn, a.width, 0, a.width / 2, ceil_div(8 * BLOCK, a.heads * lanes), TABLE);
    with_float(task, x->dtype, [&](auto e) {
        with_flag(k->interleaved, [&](auto interleaved) {
            SC_LAUNCH(task, (norm_rotate<decltype(e), interleaved.value>), turn_blocks(a.t), BLOCK, a);
        });
    });
}
