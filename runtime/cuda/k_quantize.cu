/* quantize: a tensor over a scale in 8 bits, as it lies, turned, or both, in one pass.
 * Relies on: fp8.cuh.
 * Relied on by: generated code (products in 8 bits).
 *
 * A block takes 128 rows of 64 columns, a thread 4 rows of 8 columns: 4 bytes of each column are a word of shared
 * memory, from where columns are written in runs of 128 bytes. */
#include "fp8.cuh"

namespace {

enum { ROWS = 128, COLUMNS = 64, DEEP = 4, WORDS = ROWS / DEEP, LINE = WORDS + 1 };
static_assert(WORDS * (COLUMNS / RUN) == BLOCK, "a thread for each part of a tile");

struct work {
    const void *x;
    const float *amax;
    float *scale, most;
    uint8_t *y, *turned; /* NULL: it is not wanted */
    int64_t rows, cols, across;
};

/* W: elements that are read at once, 8 bytes of y being written so too; 1: layouts of any kind. All is read before
 * anything is written: 3.87 instead of 3.2 TB/s of the 4.1 that a copy has (one H200, 2026-11-29, 32768 rows of 6400).
 */
template <class E, class F, int W> __global__ void __launch_bounds__(BLOCK) quantize(const __grid_constant__ work k) {
    __shared__ uint32_t tile[COLUMNS * LINE];
    float amax = *k.amax, by = amax == 0 ? 1 : k.most / amax;
    int64_t r0 = blockIdx.x / k.across * ROWS, c0 = blockIdx.x % k.across * COLUMNS;
    int run = (int)threadIdx.x % (COLUMNS / RUN) * RUN, word = (int)threadIdx.x / (COLUMNS / RUN);
    int64_t c = c0 + run, left = k.cols - c;
    eight<E, W> x[DEEP];
    uint32_t bytes[2][DEEP]; /* of the first four columns, of the others */
    if (blockIdx.x == 0 && threadIdx.x == 0) *k.scale = amax == 0 ? 1 : amax / k.most;
#pragma unroll
    for (int d = 0; d < DEEP; d++) {
        int64_t r = r0 + word * DEEP + d;
        x[d].load((const typename E::type *)k.x + r * k.cols + c, r < k.rows ? left : 0);
    }
#pragma unroll
    for (int d = 0; d < DEEP; d++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            bytes[h][d] = F::two(x[d].get(4 * h) * by, x[d].get(4 * h + 1) * by) |
                          F::two(x[d].get(4 * h + 2) * by, x[d].get(4 * h + 3) * by) << 16;
#pragma unroll
    for (int d = 0; d < DEEP; d++) {
        int64_t r = r0 + word * DEEP + d;
        if (!k.y || r >= k.rows || left <= 0) continue;
        uint8_t *y = k.y + r * k.cols + c;
        if constexpr (W > 1) {
            *(uint2 *)y = make_uint2(bytes[0][d], bytes[1][d]);
        } else {
            for (int j = 0; j < RUN && j < left; j++) y[j] = byte_of(bytes[j / 4][d], j % 4);
        }
    }
    if (!k.turned) return;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t column[4];
        turn(bytes[h], column);
#pragma unroll
        for (int j = 0; j < 4; j++) tile[(run + 4 * h + j) * LINE + word] = column[j];
    }
    __syncthreads();
    for (int u = (int)threadIdx.x; u < COLUMNS * WORDS; u += BLOCK) {
        int64_t column = c0 + u / WORDS, r = r0 + u % WORDS * DEEP;
        uint32_t w = tile[u / WORDS * LINE + u % WORDS];
        if (column >= k.cols || r >= k.rows) continue;
        uint8_t *to = k.turned + column * k.rows + r;
        if constexpr (W > 1) {
            *(uint32_t *)to = w;
        } else {
            for (int d = 0; d < DEEP && r + d < k.rows; d++) to[d] = byte_of(w, d);
        }
    }
}

} // namespace

SC_KERNEL(quantize) {
    work w = {};
    w.x = k->x.p;
    w.amax = (const float *)k->amax.p;
    w.scale = (float *)k->scale.p;
    w.most = k->y.dtype == FP8_E4M3 ? 448.0f : 57344.0f;
    w.y = k->turn ? NULL : (uint8_t *)k->y.p;
    w.turned = (uint8_t *)(k->turn ? k->y.p : k->turned.p);
    w.rows = rows_of(&k->x);
    w.cols = cols_of(&k->x);
    w.across = ceil_div(w.cols, COLUMNS);
    bool runs =
        aligned(k->x.p, 16) && aligned(w.y, 8) && aligned(w.turned, 4) && w.cols % RUN == 0 && w.rows % DEEP == 0;
    int64_t blocks = w.across * ceil_div(w.rows, ROWS);
    with_runs(task, k->x.dtype, runs, [&](auto e, auto width) {
        using E = decltype(e);
        sc_launch(k->y.dtype == FP8_E4M3 ? quantize<E, e4m3, width.value> : quantize<E, e5m2, width.value>, blocks,
                  BLOCK, 0, SC_STREAM(task), w);
    });
}
