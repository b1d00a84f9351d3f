/* From an event's task to the arguments of a model's own functions: what the generated calls after the user's text use.
 * Relies on: sc.h, sc_extension.h; the event's table as compiler/ir/ops.def says.
 * Relied on by: generated NAME_extension<n>.c and .cu. */
#ifndef SC_EXTENSION_CALL_H
#define SC_EXTENSION_CALL_H

#include "sc.h"
#include "sc_extension.h"
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif
/* The function says that it wrote another number of elements than there are: names both and ends the run. */
void sc_extension_wrote(const sc_task *t, const sc_piece *p, const char *function, const char *file, int line,
                        int64_t wrote, int64_t room);
#ifdef __cplusplus
}
#endif

#ifdef __CUDACC__
#include "cuda/cuda.h"
/* What the function has launched can run: else the next kernel's launch would be blamed for it. */
static inline void sc_extension_launched(const char *function, const char *file, int line) {
    cudaError_t e = cudaGetLastError();
    if (e != cudaSuccess) sc_failed("CUDA", function, cudaGetErrorName(e), cudaGetErrorString(e), file, line);
}
#endif

typedef struct {
    const char *path;
    int dims;
    int64_t shape[SC_MAX_DIMS];
} sc_named;

static inline int64_t sc_extension_size(const sc_tensor *t) {
    static const uint8_t size[] = {4, 2, 2, 8, 1, 1, 4, 8, 1};
    return size[t->dtype];
}
static inline int64_t sc_extension_numel(const sc_tensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->dims; d++) n *= t->shape[d];
    return n;
}

/* ── pieces ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 * The table: number of wires, count and every of each, then offset, numel and number of each parameter. */
static inline int sc_pieces(const sc_task *t) {
    return (t->ntable - 1 - 2 * (int)t->table[0]) / 3;
}

/* `slice`: elements of a rank's part of the unit; `after`: the gather. */
static inline sc_piece sc_piece_at(const sc_task *t, int k, const sc_named *names, int64_t slice, int after) {
    const int64_t *row = t->table + 1 + 2 * t->table[0] + 3 * k;
    const sc_named *name = &names[row[2]];
    sc_piece p = {};
    p.path = name->path;
    p.dims = name->dims;
    memcpy(p.shape, name->shape, sizeof p.shape);
    p.flat = row[0];
    p.numel = row[1];
    p.slice = slice;
    p.rank = (int)sc_slice_of(t, t->i[0]);
    p.ranks = (int)t->i[0];
    p.begin = after ? 0 : sc_piece_begin(&p, p.rank);
    p.end = after ? p.numel : sc_piece_begin(&p, p.rank + 1);
    for (int w = 0; w < (int)t->table[0]; w++) p.stride[w] = sc_pieces(t) * t->table[1 + 2 * w];
    return p;
}

/* Where the piece begins among `from` elements of the unit: its slice before the gather, all of it after. */
static inline int64_t sc_piece_offset(const sc_piece *p, int after) {
    if (after) return p->flat;
    return p->begin < p->end ? p->flat + p->begin - p->rank * p->slice : 0;
}

static inline void *sc_elements(const sc_tensor *t, const sc_piece *p, int after) {
    return (char *)t->p + sc_piece_offset(p, after) * sc_extension_size(t);
}

/* Piece k of wire w, which lies in tensor `t`. */
static inline void *sc_wire(const sc_task *task, const sc_tensor *t, const sc_piece *p, int k, int w, int after) {
    int64_t count = task->table[1 + 2 * w], every = task->table[2 + 2 * w];
    int64_t at = every ? sc_piece_offset(p, after) / every * count : k * count;
    return (char *)t->p + at * sc_extension_size(t);
}

/* Elements of wire w that the piece fills. */
static inline int64_t sc_wire_room(const sc_task *task, const sc_piece *p, int w) {
    int64_t count = task->table[1 + 2 * w], every = task->table[2 + 2 * w];
    return every ? (p->end - p->begin + every - 1) / every * count : count;
}

static inline int64_t sc_wires_room(const sc_task *task, const sc_piece *p) {
    int64_t n = 0;
    for (int w = 0; w < (int)task->table[0]; w++) n += sc_wire_room(task, p, w);
    return n;
}

static inline void sc_clear(const sc_task *t, void *p, int64_t bytes) {
    if (bytes <= 0) return;
#ifdef __CUDACC__
    SC_CUDA(cudaMemsetAsync(p, 0, (size_t)bytes, (cudaStream_t)t->stream));
#else
    (void)t;
    memset(p, 0, (size_t)bytes);
#endif
}

/* Between parameters nobody writes: zeros, from `from` to where the next piece begins or the tensor ends. */
static inline void sc_clear_gap(const sc_task *t, const sc_tensor *x, int64_t from, int64_t to) {
    int64_t size = sc_extension_size(x);
    sc_clear(t, (char *)x->p + from * size, (to - from) * size);
}

/* What no piece fills of a tensor with `count` elements for every `every` of the unit. */
static inline void sc_clear_gaps(const sc_task *t, const sc_tensor *x, int64_t count, int64_t every, int64_t slice,
                                 const sc_named *names, int after) {
    int64_t at = 0;
    for (int k = 0; k < sc_pieces(t); k++) {
        sc_piece p = sc_piece_at(t, k, names, slice, after);
        if (p.begin == p.end) continue;
        int64_t first = sc_piece_offset(&p, after);
        sc_clear_gap(t, x, at, first / every * count);
        at = (first + p.end - p.begin + every - 1) / every * count;
    }
    sc_clear_gap(t, x, at, sc_extension_numel(x));
}

/* ── custom ops ──────────────────────────────────────────────────────────────────────────────────────────────────────
 * `order`: the function's pointers, as indices of the task's tensors. */
static inline sc_call sc_call_of(const sc_task *t, const int *order, int n) {
    sc_call c = {};
    c.tensors = n;
    c.rank = t->rank;
    c.world = t->world;
    for (int k = 0; k < n; k++) {
        const sc_tensor *x = &t->t[order[k]];
        c.tensor[k].dims = x->dims;
        memcpy(c.tensor[k].size, x->shape, sizeof c.tensor[k].size);
        c.tensor[k].numel = sc_extension_numel(x);
    }
    for (int i = 0; i < SC_MAX_NUMBERS; i++) c.numbers[i] = t->f[1 + i];
    return c;
}

#endif
