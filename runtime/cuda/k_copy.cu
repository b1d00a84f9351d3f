/* copy, concat, pad_slice, reshard: elements from one strided layout to another, bits unchanged. pick: one row, in fp32.
 * Relies on: kernel.cuh, fp8.cuh (bytes turned in registers).
 * Relied on by: generated code; k_fill.cu.
 *
 * Neighbouring dimensions that both layouts walk alike are merged. Where both have unit stride in the last dimension,
 * they are walked in the widest units (to 16 bytes) that extents, strides and addresses allow. Where the source's unit
 * stride lies elsewhere (a transposition), tiles of 32 × 32 elements go through shared memory; of bytes, which that
 * would move singly, tiles of 128 × 64 in words of four. */
#include "fp8.cuh"

namespace {

enum { TILE = 32, U = 4 };

struct walk {
    int dims;
    int64_t shape[SC_DIMS + 1], to[SC_DIMS + 1], from[SC_DIMS + 1];
};

/* from NULL: what is copied is zeros, with strides of 0. At least one dimension. */
walk walk_of(const sc_tensor *to, const sc_tensor *from) {
    walk w = {};
    for (int d = 0; d < to->dims; d++) {
        int64_t n = to->shape[d], t = to->stride[d], f = from ? from->stride[d] : 0;
        int last = w.dims - 1;
        if (n == 1) continue;
        if (last >= 0 && w.to[last] == n * t && (!from || w.from[last] == n * f)) {
            w.shape[last] *= n;
            w.to[last] = t;
            w.from[last] = f;
        } else {
            w.shape[w.dims] = n;
            w.to[w.dims] = t;
            w.from[w.dims++] = f;
        }
    }
    if (!w.dims) {
        w.dims = w.shape[0] = w.to[0] = 1;
        w.from[0] = from != NULL;
    }
    return w;
}

/* A thread moves U units; consecutive threads have consecutive units. I: what counts them. */
template <class T, class I>
__global__ void __launch_bounds__(BLOCK) copy_units(const __grid_constant__ walk w, T *to, const T *from, int64_t n) {
    T v[U];
    int64_t at[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
        int64_t first = ((int64_t)blockIdx.x * U + u) * BLOCK + threadIdx.x, f = 0;
        I i = (I)first;
        at[u] = -1;
        v[u] = T();
        if (first >= n) continue;
        int64_t t = 0;
        for (int d = w.dims - 1; d > 0; d--) {
            I size = (I)w.shape[d], q = i / size, r = i - q * size;
            t += (int64_t)r * w.to[d];
            f += (int64_t)r * w.from[d];
            i = q;
        }
        at[u] = t + (int64_t)i * w.to[0];
        if (from) v[u] = from[f + (int64_t)i * w.from[0]];
    }
#pragma unroll
    for (int u = 0; u < U; u++)
        if (at[u] >= 0) to[at[u]] = v[u];
}

/* Dimension `other` has the source's unit stride, the last one the result's. blockIdx.x: tiles of the two, then the
 * other dimensions. */
template <class T>
__global__ void __launch_bounds__(BLOCK) copy_tiles(const __grid_constant__ walk w, int other, T *to, const T *from) {
    __shared__ T tile[TILE][TILE + 1];
    int last = w.dims - 1, lane = threadIdx.x % TILE, line = threadIdx.x / TILE;
    int64_t columns = (w.shape[last] + TILE - 1) / TILE, lines = (w.shape[other] + TILE - 1) / TILE;
    int64_t b = blockIdx.x, c = b % columns * TILE, r = b / columns % lines * TILE;
    b /= columns * lines;
    for (int d = last - 1; d >= 0; d--) {
        if (d == other) continue;
        to += b % w.shape[d] * w.to[d];
        from += b % w.shape[d] * w.from[d];
        b /= w.shape[d];
    }
    for (int j = line; j < TILE; j += BLOCK / TILE)
        if (c + j < w.shape[last] && r + lane < w.shape[other]) tile[j][lane] = from[(c + j) * w.from[last] + r + lane];
    __syncthreads();
    for (int j = line; j < TILE; j += BLOCK / TILE)
        if (r + j < w.shape[other] && c + lane < w.shape[last]) to[(r + j) * w.to[other] + c + lane] = tile[lane][j];
}

/* Two dimensions of bytes, the first with the source's unit stride. A thread takes 8 bytes of 4 of the source's lines,
 * and has a word of each of 8 lines of the result. */
enum { LINES = 128, ACROSS = 64, DEEP = 4, WORDS = LINES / DEEP };
static_assert(WORDS * (ACROSS / RUN) == BLOCK, "a thread for each part of a tile");
__global__ void __launch_bounds__(BLOCK) turn_bytes(const __grid_constant__ walk w, uint8_t *to, const uint8_t *from) {
    __shared__ uint32_t tile[ACROSS * (WORDS + 1)];
    int64_t across = (w.shape[0] + ACROSS - 1) / ACROSS;
    int64_t line = blockIdx.x / across * LINES, column = blockIdx.x % across * ACROSS;
    int run = (int)threadIdx.x % (ACROSS / RUN) * RUN, word = (int)threadIdx.x / (ACROSS / RUN);
    uint32_t row[2][DEEP], turned[DEEP];
#pragma unroll
    for (int d = 0; d < DEEP; d++) {
        int64_t r = line + word * DEEP + d, c = column + run;
        uint2 v = make_uint2(0, 0);
        if (r < w.shape[1] && c < w.shape[0]) v = *(const uint2 *)(from + r * w.from[1] + c);
        row[0][d] = v.x, row[1][d] = v.y;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        turn(row[h], turned);
#pragma unroll
        for (int j = 0; j < DEEP; j++) tile[(run + 4 * h + j) * (WORDS + 1) + word] = turned[j];
    }
    __syncthreads();
    for (int u = (int)threadIdx.x; u < ACROSS * WORDS; u += BLOCK) {
        int64_t c = column + u / WORDS, r = line + u % WORDS * DEEP;
        if (c < w.shape[0] && r < w.shape[1])
            *(uint32_t *)(to + c * w.to[0] + r) = tile[u / WORDS * (WORDS + 1) + u % WORDS];
    }
}
/* `from` and `to` of a transposition of bytes begin, and go on, where 8 and 4 of them can be moved. */
bool turns_bytes(const walk &w, const void *to, const void *from) {
    bool source = aligned(from, RUN) && w.from[1] % RUN == 0 && w.shape[0] % RUN == 0;
    return w.dims == 2 && source && aligned(to, DEEP) && w.to[0] % DEEP == 0 && w.shape[1] % DEEP == 0;
}

int64_t size_of_walk(const walk *w) {
    int64_t n = 1;
    for (int d = 0; d < w->dims; d++) n *= w->shape[d];
    return n;
}

template <class T> void launch_units(const sc_task *t, const walk &w, void *to, const void *from) {
    int64_t n = size_of_walk(&w);
    unsigned grid = blocks_for(n, BLOCK * U);
    if (!n) return;
    if (n < (int64_t)1 << 32)
        SC_LAUNCH(t, (copy_units<T, uint32_t>), grid, BLOCK, w, (T *)to, (const T *)from, n);
    else
        SC_LAUNCH(t, (copy_units<T, int64_t>), grid, BLOCK, w, (T *)to, (const T *)from, n);
}
template <class T> void launch_tiles(const sc_task *t, const walk &w, int other, void *to, const void *from) {
    int last = w.dims - 1;
    int64_t tiles = ceil_div(w.shape[last], TILE) * ceil_div(w.shape[other], TILE), rest = 1;
    for (int d = 0; d < last; d++)
        if (d != other) rest *= w.shape[d];
    SC_LAUNCH(t, copy_tiles<T>, (unsigned)(tiles * rest), BLOCK, w, other, (T *)to, (const T *)from);
}

/* The widest unit, in bytes, in which both can be walked; `size` where the last dimension is not dense in both. */
int unit_of(const walk *w, int size, const void *to, const void *from) {
    int last = w->dims - 1;
    if (w->to[last] != 1 || (from && w->from[last] != 1)) return size;
    int unit = 16;
    uintptr_t all = (uintptr_t)to | (uintptr_t)from | (uintptr_t)(w->shape[last] * size);
    for (int d = 0; d < last; d++) all |= (uintptr_t)((w->to[d] | w->from[d]) * size);
    while (all % (uintptr_t)unit) unit /= 2;
    return unit;
}

/* The dimension in which a transposition reads consecutive elements; -1: none. */
int read_along(const walk *w) {
    int last = w->dims - 1;
    if (w->from[last] == 1 || w->to[last] != 1) return -1;
    for (int d = 0; d < last; d++)
        if (w->from[d] == 1) return d;
    return -1;
}

} // namespace

/* `to` = `from` (NULL: zeros), of equal shape and dtype, any strides. */
void sc_cuda_copy(const sc_task *t, const sc_tensor *to, const sc_tensor *from) {
    walk w = walk_of(to, from);
    const void *source = from ? from->p : NULL;
    int size = size_of(to->dtype), unit = unit_of(&w, size, to->p, source), last = w.dims - 1;
    int other = from ? read_along(&w) : -1;
    if (unit != size) { /* strides of the last dimension are 1 and stay so */
        w.shape[last] = w.shape[last] * size / unit;
        for (int d = 0; d < last; d++) {
            w.to[d] = w.to[d] * size / unit;
            w.from[d] = w.from[d] * size / unit;
        }
    }
    auto launch = [&](auto x) {
        typedef decltype(x) T;
        if constexpr (sizeof(T) == 1) {
            if (other >= 0 && turns_bytes(w, to->p, source)) {
                int64_t tiles = ceil_div(w.shape[0], ACROSS) * ceil_div(w.shape[1], LINES);
                SC_LAUNCH(t, turn_bytes, (unsigned)tiles, BLOCK, w, (uint8_t *)to->p, (const uint8_t *)source);
                return;
            }
        }
        if constexpr (sizeof(T) < 16) { /* 16 bytes are no element: nothing is transposed */
            if (other >= 0) {
                launch_tiles<T>(t, w, other, to->p, source);
                return;
            }
        }
        launch_units<T>(t, w, to->p, source);
    };
    switch (unit) {
    case 1: launch(uint8_t()); break;
    case 2: launch(uint16_t()); break;
    case 4: launch(uint32_t()); break;
    case 8: launch(uint2()); break;
    default: launch(uint4()); break;
    }
}

namespace {

/* `length` of t's dimension `dim` from `start`. */
sc_tensor part_of(const sc_tensor *t, int64_t dim, int64_t start, int64_t length) {
    sc_tensor v = *t;
    v.p = (char *)t->p + start * t->stride[dim] * size_of(t->dtype);
    v.shape[dim] = length;
    return v;
}

__global__ void __launch_bounds__(BLOCK) pick_row(const void *x, int dtype, const __grid_constant__ row_space rows,
                                                  int64_t cols, int64_t step, float *y, const sc_record *record) {
    int64_t at = row_at(rows, record->position);
    for (int64_t v = (int64_t)blockIdx.x * BLOCK + threadIdx.x; v < cols; v += (int64_t)gridDim.x * BLOCK)
        y[v] = load_any(x, dtype, at + v * step);
}

} // namespace

SC_KERNEL(copy) {
    sc_cuda_copy(task, &k->y, &k->a);
}

SC_KERNEL(concat) {
    int64_t start = 0;
    for (int i = 0; i < SC_OPERANDS && k->x[i].p; i++) {
        sc_tensor to = part_of(&k->y, k->dim, start, k->x[i].shape[k->dim]);
        sc_cuda_copy(task, &to, &k->x[i]);
        start += k->x[i].shape[k->dim];
    }
}

SC_KERNEL(pad_slice) {
    int64_t inside = k->a.shape[k->dim], end = k->start + inside;
    sc_tensor middle = part_of(&k->y, k->dim, k->start, inside);
    sc_tensor before = part_of(&k->y, k->dim, 0, k->start), after = part_of(&k->y, k->dim, end, k->size - end);
    sc_cuda_copy(task, &middle, &k->a);
    if (k->start > 0) sc_cuda_copy(task, &before, NULL);
    if (k->size > end) sc_cuda_copy(task, &after, NULL);
}

/* Copied as it lies, but for the dimension's stride. */
SC_KERNEL(flip) {
    sc_tensor from = part_of(&k->a, k->dim, k->a.shape[k->dim] - 1, k->a.shape[k->dim]);
    from.stride[k->dim] = -from.stride[k->dim];
    sc_cuda_copy(task, &k->y, &from);
}

/* state[v] = logits[.., record.position, v] */
SC_KERNEL(pick) {
    const sc_tensor *x = &k->logits;
    int64_t cols = cols_of(x);
    if (!with_float_serves(x->dtype)) sc_unsupported(task, "pick", "the logits must be fp32, bf16 or fp16");
    SC_LAUNCH(task, pick_row, filling(task, ceil_div(cols, BLOCK)), BLOCK, x->p, x->dtype, row_space_of(x), cols,
              x->dims ? x->stride[x->dims - 1] : 1, (float *)k->state.p, task->record);
}

/* y = the part of x that the rank's place tells */
SC_KERNEL(reshard) {
    int64_t n = k->y.shape[0];
    sc_tensor from = part_of(&k->x, 0, task->coord[k->axis].at * n, n);
    sc_cuda_copy(task, &k->y, &from);
}
