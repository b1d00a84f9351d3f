/* orthogonalize: of the matrices that this rank owns, each by itself, as k_orthogonalize.c says it. The matrices of a
 * row of the table, which have one shape, are computed side by side, as many at a time as the workspace holds. Relies
 * on: orthogonalize_hopper.h, kernel.cuh, mma.h, schema/matrices.h; the workspace of schema/workspace.h; eps in the
 * record. Relied on by: generated code.
 *
 * X lies in the workspace with its shorter side as rows (a tall matrix transposed), rows padded with zeros to multiples
 * of 8 elements. A block has a tile of 128 × 128 of a product by mma.sync, sums in fp32 in the order of the inner
 * dimension, rounded once: bits depend on the matrix alone. Of symmetric products tiles up to the diagonal are
 * computed, and written to their mirror image too. On compute capability 9.0 k_orthogonalize_hopper.cu multiplies,
 * where the matrices are; X is at y and in the workspace in turn, so that it ends at y. */
#include "orthogonalize_hopper.h"

#include "../schema/matrices.h"
#include "../schema/workspace.h"
#include "kernel.cuh"
#include "mma.h"
#include <utility>

namespace {

enum { TILE = 128, DEPTH = 32, SIDE = 32, TOGETHER = 16, PARTS = SC_ORTHOGONALIZE_PARTS };
static_assert((int)PARTS == (int)BLOCK, "each thread of a block reads one partial sum");

/* Matrices of one shape side by side, `stride` elements from one to the next. */
struct batch {
    uint16_t *x, *next, *a, *b; /* [r][long_ld] twice, [r][short_ld] twice */
    int r, c, short_ld, long_ld;
    int64_t stride;
    int n; /* how many */
};

/* ── products ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* y [m][n] = alpha p q + beta add. p [m][k] lies by rows; q by rows [k][n], or where `turned` as [n][k]. Symmetric: m =
 * n, and so are the result and what is added. */
struct product {
    const uint16_t *p, *q, *add;
    uint16_t *y;
    int m, n, k, ldp, ldq, ldy;
    int64_t stride;
    float alpha, beta;
    bool symmetric;
};

struct tiles { /* rows are longer than what is used of them, so that eight rows of a column lie in different banks */
    static constexpr int ld = DEPTH + 8, wide = TILE + 8;
    uint16_t p[TILE * ld], q[TILE * ld];
    static_assert(DEPTH * wide <= TILE * ld, "q fits either way");
};

/* Rows [row, row + ROWS) and COLUMNS columns from `column` on of a matrix of rows × ld elements, zeros beyond. */
template <int ROWS, int COLUMNS>
SC_DEVICE void load(uint16_t *to, int to_ld, const uint16_t *from, int ld, int row, int column, int rows) {
    for (int v = threadIdx.x; v < ROWS * COLUMNS / 8; v += BLOCK) {
        int i = v / (COLUMNS / 8), j = v % (COLUMNS / 8) * 8;
        bool inside = row + i < rows && column + j < ld;
        sc_cp_async16(to + i * to_ld + j, inside ? from + (int64_t)(row + i) * ld + column + j : from, inside);
    }
}

/* Eight warps as 2 × 4, each with 64 × 32 of the tile: 4 × 4 fragments of 16 × 8. */
template <bool TURNED> __global__ void __launch_bounds__(BLOCK) multiply(const product g) {
    __shared__ __align__(16) tiles shared[2];
    int across = (g.n + TILE - 1) / TILE, row = (int)blockIdx.x / across * TILE,
        column = (int)blockIdx.x % across * TILE;
    if (g.symmetric && column > row) return;
    int64_t matrix = g.stride * blockIdx.y;
    const uint16_t *p = g.p + matrix, *q = g.q + matrix;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, m0 = warp / 4 * 64, n0 = warp % 4 * 32;
    float sums[4][4][4] = {};
    auto fetch = [&](int k0) {
        tiles &t = shared[k0 / DEPTH % 2];
        load<TILE, DEPTH>(t.p, tiles::ld, p, g.ldp, row, k0, g.m);
        if constexpr (TURNED)
            load<TILE, DEPTH>(t.q, tiles::ld, q, g.ldq, column, k0, g.n);
        else
            load<DEPTH, TILE>(t.q, tiles::wide, q, g.ldq, k0, column, g.k);
    };
    fetch(0);
    for (int k0 = 0; k0 < g.k; k0 += DEPTH) {
        sc_cp_wait();
        __syncthreads(); /* all have what they wait for, and have read the other pair */
        if (k0 + DEPTH < g.k) fetch(k0 + DEPTH);
        const tiles &t = shared[k0 / DEPTH % 2];
#pragma unroll
        for (int k = 0; k < DEPTH; k += 16) {
            uint32_t a[4][4], b[2][4]; /* b: of two neighbouring fragments */
#pragma unroll
            for (int i = 0; i < 4; i++)
                sc_ldmatrix(a[i], t.p + (m0 + i * 16 + lane % 16) * tiles::ld + k + lane / 16 * 8);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                int n = n0 + j * 16 + lane / 16 * 8;
                if constexpr (TURNED)
                    sc_ldmatrix(b[j], t.q + (n + lane % 8) * tiles::ld + k + lane / 8 % 2 * 8);
                else
                    sc_ldmatrix_transposed(b[j], t.q + (k + lane % 16) * tiles::wide + n);
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sc_mma<sc_bf16>(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
    const uint16_t *add = g.add + matrix;
    uint16_t *y = g.y + matrix;
#pragma unroll
    for (int u = 0; u < 64; u++) {
        int r = row + m0 + u / 16 * 16 + lane / 4 + u / 2 % 2 * 8,
            c = column + n0 + u / 4 % 4 * 8 + lane % 4 * 2 + u % 2;
        if (r >= g.m || c >= g.n || (g.symmetric && c > r)) continue;
        float sum = g.alpha * sums[u / 16][u / 4 % 4][u % 4];
        if (g.beta != 0) sum += g.beta * bf16::get(add[(int64_t)r * g.ldy + c]);
        uint16_t rounded = bf16::put(sum);
        y[(int64_t)r * g.ldy + c] = rounded;
        if (g.symmetric) y[(int64_t)c * g.ldy + r] = rounded;
    }
}

/* The three products of a step of Newton and Schulz. */
enum kind { GRAM /* a = x x^T */, SQUARE /* b = beta a + alpha a a */, APPLY /* next = beta x + b x */ };

void multiply_all(const sc_task *t, kind kind, const batch &m, float alpha, float beta) {
    product g = {};
    g.m = g.k = m.r, g.stride = m.stride, g.alpha = alpha, g.beta = beta, g.symmetric = kind != APPLY;
    g.n = kind == APPLY ? m.c : m.r;
    g.ldp = g.ldq = g.ldy = m.short_ld;
    if (kind == GRAM) g.p = g.q = g.add = m.x, g.y = m.a, g.k = m.c, g.ldp = g.ldq = m.long_ld;
    if (kind == SQUARE) g.p = g.q = g.add = m.a, g.y = m.b;
    if (kind == APPLY) g.p = m.b, g.q = g.add = m.x, g.y = m.next, g.ldq = g.ldy = m.long_ld;
    dim3 grid((unsigned)(ceil_div(g.m, TILE) * ceil_div(g.n, TILE)), (unsigned)m.n);
    if (kind == APPLY)
        SC_LAUNCH(t, multiply<false>, grid, BLOCK, g);
    else
        SC_LAUNCH(t, multiply<true>, grid, BLOCK, g);
}

/* ── from the flat buffer to the workspace and back ──────────────────────────────────────────────────────────────────
 */
struct copied {
    const uint16_t *from;
    uint16_t *to;
    int rows, cols, from_ld, to_ld; /* of what is copied, as it lies in `from` */
    int64_t from_stride, to_stride, part_stride;
    float *parts; /* sums of squares of the first matrix; NULL: do not divide */
    const sc_record *record;
    int set;
    bool turn;
};

/* Matrices of so many elements are read 16 bytes at a time. */
SC_DEVICE bool in_eights(const uint16_t *x, int64_t numel) {
    return numel % 8 == 0 && (uintptr_t)x % 16 == 0;
}

__global__ void __launch_bounds__(BLOCK)
    square_parts(const uint16_t *x, int64_t numel, float *parts, int64_t part_stride) {
    const uint16_t *from = x + numel * blockIdx.y;
    int64_t first = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    float sum = 0;
    if (in_eights(x, numel)) {
        for (int64_t i = first * 8; i < numel; i += (int64_t)PARTS * BLOCK * 8) {
            raw<bf16, 8> r;
            r.load(from + i);
#pragma unroll
            for (int k = 0; k < 8; k++) sum = sc_fma(r.get(k), r.get(k), sum);
        }
    } else {
        for (int64_t i = first; i < numel; i += (int64_t)PARTS * BLOCK) {
            float v = bf16::get(from[i]);
            sum = sc_fma(v, v, sum);
        }
    }
    sum = group_sum<BLOCK>(sum);
    if (threadIdx.x == 0) parts[part_stride * blockIdx.y + blockIdx.x] = sum;
}

/* All threads of a block: what a matrix is divided by. */
SC_DEVICE float norm_of(const copied &m) {
    __shared__ float norm;
    double sum = group_sum<BLOCK>((double)m.parts[m.part_stride * blockIdx.y + threadIdx.x]);
    float least = bf16::get(bf16::put(m.record->of[m.set].eps));
    if (threadIdx.x == 0) {
        norm = bf16::get(bf16::put((float)__builtin_sqrt(sum)));
        if (norm < least) norm = least;
    }
    __syncthreads();
    return norm;
}

/* Matrices as they lie, divided, 8 elements a thread at a time. */
__global__ void __launch_bounds__(BLOCK) divide_all(const copied m) {
    int64_t numel = (int64_t)m.rows * m.cols, at = numel * blockIdx.y;
    float norm = norm_of(m);
    for (int64_t i = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) * 8; i < numel; i += (int64_t)gridDim.x * BLOCK * 8) {
        raw<bf16, 8> r;
        float v[8];
        r.load(m.from + at + i);
#pragma unroll
        for (int k = 0; k < 8; k++) v[k] = r.get(k) / norm;
        r.put(v);
        r.store(m.to + at + i);
    }
}

/* A block has SIDE × SIDE elements. */
__global__ void __launch_bounds__(BLOCK) copy_tiles(const copied m) {
    __shared__ float tile[SIDE][SIDE + 1];
    int across = (m.cols + SIDE - 1) / SIDE, i0 = (int)blockIdx.x / across * SIDE, j0 = (int)blockIdx.x % across * SIDE;
    const uint16_t *from = m.from + m.from_stride * blockIdx.y;
    uint16_t *to = m.to + m.to_stride * blockIdx.y;
    float norm = m.parts ? norm_of(m) : 1;
    for (int v = threadIdx.x; v < SIDE * SIDE; v += BLOCK) {
        int i = v / SIDE, j = v % SIDE;
        if (i0 + i < m.rows && j0 + j < m.cols) tile[i][j] = bf16::get(from[(int64_t)(i0 + i) * m.from_ld + j0 + j]);
    }
    __syncthreads();
    for (int v = threadIdx.x; v < SIDE * SIDE; v += BLOCK) {
        int i = m.turn ? v % SIDE : v / SIDE, j = m.turn ? v / SIDE : v % SIDE;
        if (i0 + i >= m.rows || j0 + j >= m.cols) continue;
        float x = m.parts ? tile[i][j] / norm : tile[i][j] + 0; /* + 0: no zero that comes back is negative */
        to[m.turn ? (int64_t)(j0 + j) * m.to_ld + i0 + i : (int64_t)(i0 + i) * m.to_ld + j0 + j] = bf16::put(x);
    }
}

void copy(const sc_task *t, const copied &m, int n) {
    dim3 grid((unsigned)(ceil_div(m.rows, SIDE) * ceil_div(m.cols, SIDE)), (unsigned)n);
    SC_LAUNCH(t, copy_tiles, grid, BLOCK, m);
}

/* n matrices of a row of the table from the first of `m` on. */
void orthogonalize(const sc_task *t, const sc_orthogonalize_args *k, sc_matrices m, int64_t at, int n) {
    batch b = {};
    bool tall = m.rows > m.cols;
    b.r = (int)sc_matrices_short(m), b.c = (int)sc_matrices_long(m), b.n = n;
    b.short_ld = (int)sc_round_up(b.r, 8), b.long_ld = (int)sc_round_up(b.c, 8);
    int64_t bytes = sc_cuda_orthogonalize_bytes(b.r, b.c), wide = (int64_t)b.r * b.long_ld;
    b.stride = bytes / 2;
    b.x = (uint16_t *)k->work.p, b.next = b.x + wide, b.a = b.next + wide, b.b = b.a + (int64_t)b.r * b.short_ld;
    float *parts = (float *)((char *)k->work.p + bytes - (PARTS + 64) * (int64_t)sizeof(float));
    const uint16_t *x = (const uint16_t *)k->x.p + at;
    int64_t numel = m.rows * m.cols;
    if (b.short_ld != b.r || b.long_ld != b.c)
        SC_CUDA(cudaMemsetAsync(k->work.p, 0, (size_t)(bytes * n), SC_STREAM(t))); /* what pads rows stays zero */
    SC_LAUNCH(t, square_parts, dim3(PARTS, (unsigned)n), BLOCK, x, numel, parts, bytes / 4);
    copied in = {};
    in.from = x, in.to = b.x, in.rows = (int)m.rows, in.cols = in.from_ld = (int)m.cols, in.to_ld = b.long_ld;
    in.from_stride = numel, in.to_stride = b.stride, in.part_stride = bytes / 4, in.parts = parts;
    in.record = t->record, in.set = (int)k->set, in.turn = tall;
    copy(t, in, n);
    for (int64_t step = 0; step < k->steps; step++) {
        multiply_all(t, GRAM, b, 1, 0);
        multiply_all(t, SQUARE, b, (float)k->abc[2], (float)k->abc[1]);
        multiply_all(t, APPLY, b, 1, (float)k->abc[0]);
        std::swap(b.x, b.next);
    }
    copied out = {};
    out.from = b.x, out.to = (uint16_t *)k->y.p + at, out.rows = b.r, out.cols = b.c, out.from_ld = b.long_ld;
    out.to_ld = (int)m.cols, out.from_stride = b.stride, out.to_stride = numel, out.turn = tall;
    copy(t, out, n);
}

/* Matrices of a row of the table, together with those of other rows. */
struct stacked {
    sc_stack s;
    const uint16_t *in;
    float *parts;
};

void orthogonalize_together(const sc_task *t, const sc_orthogonalize_args *k, stacked *all, int n) {
    sc_stack now[TOGETHER];
    for (int i = 0; i < n; i++) {
        sc_stack s = now[i] = all[i].s;
        int64_t numel = (int64_t)s.rows * s.cols;
        if (k->steps % 2 == 0) std::swap(now[i].x, *(const void **)&now[i].y);
        SC_LAUNCH(t, square_parts, dim3(PARTS, (unsigned)s.count), BLOCK, all[i].in, numel, all[i].parts, PARTS);
        copied in = {};
        in.from = all[i].in, in.to = (uint16_t *)now[i].x, in.rows = s.rows, in.cols = s.cols;
        in.part_stride = PARTS, in.parts = all[i].parts, in.record = t->record, in.set = (int)k->set;
        SC_LAUNCH(t, divide_all, dim3(blocks_for(numel, BLOCK * 8), (unsigned)s.count), BLOCK, in);
    }
    for (int64_t step = 0; step < k->steps; step++) {
        sc_orthogonalize_hopper(t, SC_GRAM, now, n, 1, 0);
        sc_orthogonalize_hopper(t, SC_POLYNOMIAL, now, n, (float)k->abc[2], (float)k->abc[1]);
        sc_orthogonalize_hopper(t, SC_APPLY, now, n, 1, (float)k->abc[0]);
        for (int i = 0; i < n; i++) std::swap(now[i].x, *(const void **)&now[i].y);
    }
}

/* As many of the rank's matrices at a time as the workspace holds. x of a stack begins there and ends in y. */
void orthogonalize_all(const sc_task *t, const sc_orthogonalize_args *k) {
    stacked all[TOGETHER];
    int n = 0;
    int64_t used = 0, room = k->work.p ? k->work.shape[0] : 0;
    for (int64_t i = 0; i < k->ntable / SC_MATRICES; i++) {
        sc_matrices m = sc_matrices_at(k->table, i);
        if (m.owner != t->coord[k->axis].at) continue;
        int64_t each = sc_cuda_orthogonalize_together(m.rows, m.cols), numel = m.rows * m.cols;
        int64_t small = sc_matrices_short(m) * sc_matrices_short(m);
        if (room < each) sc_unsupported(t, "orthogonalize", "its workspace must hold a matrix of the table");
        for (int64_t from = 0, some; from < m.count; from += some) {
            if (n == TOGETHER || used + each > room) orthogonalize_together(t, k, all, n), n = 0, used = 0;
            some = (room - used) / each < m.count - from ? (room - used) / each : m.count - from;
            uint16_t *work = (uint16_t *)((char *)k->work.p + used);
            int64_t at = m.at + from * numel;
            all[n++] = {{work, (uint16_t *)k->y.p + at, work + some * numel, work + some * (numel + small), (int)some,
                         (int)m.rows, (int)m.cols},
                        (const uint16_t *)k->x.p + at,
                        (float *)(work + some * (numel + 2 * small))};
            used += some * each;
        }
    }
    if (n) orthogonalize_together(t, k, all, n);
}

/* Whether all matrices are such that the kernels for compute capability 9.0 take them: all ranks decide alike. */
bool together(const sc_task *t, const sc_orthogonalize_args *k) {
    for (int64_t i = 0; i < k->ntable / SC_MATRICES; i++) {
        sc_matrices m = sc_matrices_at(k->table, i);
        if (!sc_orthogonalize_hopper_takes(t, m.rows, m.cols) || m.at % 8) return false;
    }
    return true;
}

} // namespace

SC_KERNEL(orthogonalize) {
    if (k->x.dtype != BF16 || k->y.dtype != BF16)
        sc_unsupported(task, "orthogonalize", "its operand and result are bf16");
    SC_CUDA(cudaMemsetAsync(k->y.p, 0, (size_t)sc_numel(&k->y) * sizeof(uint16_t), SC_STREAM(task)));
    if (together(task, k)) return orthogonalize_all(task, k);
    for (int64_t i = 0; i < k->ntable / SC_MATRICES; i++) {
        sc_matrices m = sc_matrices_at(k->table, i);
        if (m.owner != task->coord[k->axis].at) continue;
        int64_t shorter = sc_matrices_short(m), longer = sc_matrices_long(m);
        int64_t most = sc_cuda_orthogonalize_batch(shorter, longer, m.count);
        if (!k->work.p || k->work.shape[0] < most * sc_cuda_orthogonalize_bytes(shorter, longer))
            sc_unsupported(task, "orthogonalize", "its workspace must hold a matrix of the table");
        for (int64_t j = 0; j < m.count; j += most)
            orthogonalize(task, k, m, m.at + j * m.rows * m.cols, (int)(j + most < m.count ? most : m.count - j));
    }
}
