/* quantize_blocks: a tensor in 8 bits over a scale for each 1 x 128, or 128 x 128: as it lies, turned, or both at once.
 * Relies on: fp8.cuh.
 * Relied on by: generated code (products in 8 bits by blocks).
 *
 * A block takes a square of 128 x 128, a thread 8 rows of 8 columns, which stay in registers: 16 threads of half a warp
 * have a row, and the 16 of a column are in all warps. Magnitudes are compared as bits, of which a NaN has the most. What
 * is turned goes through shared memory, a column's 32 words in an order by its number: neither side meets a bank twice. */
#include "fp8.cuh"

namespace {

enum { SIDE = 128, DEEP = 8, ACROSS = SIDE / RUN, WORDS = SIDE / 4, WARPS = BLOCK / WARP };
static_assert(ACROSS * (SIDE / DEEP) == BLOCK && ACROSS == WARP / 2, "a thread for each part of a square");

struct work {
    const void *x;
    uint8_t *y, *turned; /* NULL: it is not wanted */
    float *scale, *turned_scale;
    int64_t rows, cols, across, down; /* across, down: squares */
};

SC_DEVICE uint32_t most(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

template <class E, int W> SC_DEVICE uint32_t four(const eight<E, W> &x, int at, float a, float b, float c, float d) {
    return two_fp8(false, x.get(at) * a, x.get(at + 1) * b) | two_fp8(false, x.get(at + 2) * c, x.get(at + 3) * d) << 16;
}

/* W: elements that are read at once, 8 bytes of y being written so too; 1: layouts of any kind. */
template <class E, int W, int SQUARE>
__global__ void __launch_bounds__(BLOCK) quantize_blocks(const __grid_constant__ work k) {
    __shared__ uint32_t of_warp[WARPS][SIDE];
    __shared__ float of_column[SIDE];
    __shared__ __align__(16) uint32_t tile[SIDE * WORDS];
    int64_t rb = blockIdx.x / k.across, cb = blockIdx.x % k.across, r0 = rb * SIDE, c0 = cb * SIDE;
    int thread = (int)threadIdx.x, warp = thread / WARP, part = thread % ACROSS, run = part * RUN;
    int deep = thread / ACROSS * DEEP;
    int64_t left = k.cols - c0 - run;
    eight<E, W> x[DEEP];
    uint32_t row[DEEP] = {}, column[RUN] = {}, all = 0;
#pragma unroll
    for (int d = 0; d < DEEP; d++) {
        int64_t r = r0 + deep + d;
        x[d].load((const typename E::type *)k.x + r * k.cols + c0 + run, r < k.rows ? left : 0);
    }
#pragma unroll
    for (int d = 0; d < DEEP; d++)
#pragma unroll
        for (int j = 0; j < RUN; j++) {
            uint32_t m = sc_bits(x[d].get(j)) & 0x7fffffffu;
            row[d] = most(row[d], m), column[j] = most(column[j], m);
        }
    if constexpr (SQUARE) {
#pragma unroll
        for (int d = 0; d < DEEP; d++) all = most(all, row[d]);
#pragma unroll
        for (int n = WARP / 2; n; n /= 2) all = most(all, __shfl_xor_sync(SC_ALL, all, n));
        if (thread % WARP == 0) of_warp[warp][0] = all;
        __syncthreads();
#pragma unroll
        for (int w = 0; w < WARPS; w++) all = most(all, of_warp[w][0]);
    } else {
#pragma unroll
        for (int d = 0; d < DEEP; d++)
#pragma unroll
            for (int n = ACROSS / 2; n; n /= 2) row[d] = most(row[d], __shfl_xor_sync(SC_ALL, row[d], n));
    }
    if (k.y) {
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            int64_t r = r0 + deep + d;
            float amax = sc_float(SQUARE ? all : row[d]), by = sc_block_factor(amax);
            uint32_t low = four(x[d], 0, by, by, by, by), high = four(x[d], 4, by, by, by, by);
            if (r >= k.rows) continue;
            if (!SQUARE && part == 0) k.scale[cb * k.rows + r] = sc_block_scale(amax);
            uint8_t *y = k.y + r * k.cols + c0 + run;
            if constexpr (W > 1) {
                if (left > 0) *(uint2 *)y = make_uint2(low, high);
            } else {
                for (int j = 0; j < RUN && j < left; j++) y[j] = byte_of(j < 4 ? low : high, j % 4);
            }
        }
    }
    if (SQUARE && thread == 0) {
        int64_t pitch = (k.across + 3) / 4 * 4, turned_pitch = (k.down + 3) / 4 * 4;
        float scale = sc_block_scale(sc_float(all));
        if (k.y) k.scale[rb * pitch + cb] = scale;
        if (k.turned) k.turned_scale[cb * turned_pitch + rb] = scale;
        for (int64_t c = cb + 1; k.y && cb == k.across - 1 && c < pitch; c++) k.scale[rb * pitch + c] = 0;
        for (int64_t r = rb + 1; k.turned && rb == k.down - 1 && r < turned_pitch; r++)
            k.turned_scale[cb * turned_pitch + r] = 0;
    }
    if (!k.turned) return;
    float by[RUN];
    if constexpr (SQUARE) {
#pragma unroll
        for (int j = 0; j < RUN; j++) by[j] = sc_block_factor(sc_float(all));
    } else {
#pragma unroll
        for (int j = 0; j < RUN; j++) column[j] = most(column[j], __shfl_xor_sync(SC_ALL, column[j], WARP / 2));
        if (thread % WARP < ACROSS)
#pragma unroll
            for (int j = 0; j < RUN; j++) of_warp[warp][run + j] = column[j];
        __syncthreads();
        if (thread < SIDE) {
            uint32_t m = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) m = most(m, of_warp[w][thread]);
            of_column[thread] = sc_block_factor(sc_float(m));
            if (c0 + thread < k.cols) k.turned_scale[rb * k.cols + c0 + thread] = sc_block_scale(sc_float(m));
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < RUN; j++) by[j] = of_column[run + j];
    }
#pragma unroll
    for (int h = 0; h < RUN; h += 4) {
        uint32_t bytes[DEEP], low[4], high[4];
#pragma unroll
        for (int d = 0; d < DEEP; d++) bytes[d] = four(x[d], h, by[h], by[h + 1], by[h + 2], by[h + 3]);
        turn(bytes, low);
        turn(bytes + 4, high);
#pragma unroll
        for (int j = 0; j < 4; j++)
            *(uint2 *)&tile[(run + h + j) * WORDS + ((deep / 4) ^ (2 * part))] = make_uint2(low[j], high[j]);
    }
    __syncthreads();
    for (int u = thread; u < SIDE * WORDS; u += BLOCK) {
        int c = u / WORDS, word = u % WORDS;
        int64_t r = r0 + word * 4;
        uint32_t w = tile[c * WORDS + (word ^ (2 * (c / RUN)))];
        if (c0 + c >= k.cols || r >= k.rows) continue;
        uint8_t *to = k.turned + (c0 + c) * k.rows + r;
        if constexpr (W > 1) {
            *(uint32_t *)to = w;
        } else {
            for (int d = 0; d < 4 && r + d < k.rows; d++) to[d] = byte_of(w, d);
        }
    }
}

} // namespace

SC_KERNEL(quantize_blocks) {
    work w = {};
    w.x = k->x.p;
    w.y = k->turn ? NULL : (uint8_t *)k->y.p;
    w.scale = k->turn ? NULL : (float *)k->scale.p;
    w.turned = (uint8_t *)(k->turn ? k->y.p : k->turned.p);
    w.turned_scale = (float *)(k->turn ? k->scale.p : k->turned_scale.p);
    w.rows = rows_of(&k->x);
    w.cols = cols_of(&k->x);
    w.across = ceil_div(w.cols, SIDE);
    w.down = ceil_div(w.rows, SIDE);
    bool runs = aligned(k->x.p, 16) && aligned(w.y, 8) && aligned(w.turned, 4) && w.cols % RUN == 0 && w.rows % 4 == 0;
    with_runs(task, k->x.dtype, runs, [&](auto e, auto width) {
        with_flag(k->square != 0, [&](auto square) {
            sc_launch(quantize_blocks<decltype(e), width.value, square.value>, w.across * w.down, BLOCK, 0,
                      SC_STREAM(task), w);
        });
    });
}
