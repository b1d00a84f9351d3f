/* From an event's task to the arguments of a model's own functions: what the generated calls after the user's text use.
 * Relies on: sc.h, sc_extension.h; the event's table as schema/ops.def says.
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
void sc_extension_wrote(const sc_task *task, const sc_piece *p, const char *function, const char *file, int line,
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

/* ── pieces ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct { /* an event before or after the gather of a unit */
    const sc_task *task;
    const int64_t *table; /* number of wires; of each count, every; of each parameter offset, numel, number */
    int64_t ntable;
    sc_coord place;
    const sc_named *names; /* of parameters, by number */
    int64_t slice;         /* elements of a rank's part of the unit */
    int after;             /* the gather */
} sc_gathering;

static inline int sc_wires(const sc_gathering *g) {
    return (int)*g->table;
}
/* Wire w has `count` elements for every `every` of the unit; every 0: for each piece. */
static inline const int64_t *sc_wire_row(const sc_gathering *g, int w) {
    return g->table + 1 + 2 * w;
}
static inline int64_t sc_wire_count(const sc_gathering *g, int w) {
    return sc_wire_row(g, w)[0];
}
static inline int64_t sc_wire_every(const sc_gathering *g, int w) {
    return sc_wire_row(g, w)[1];
}
static inline int sc_pieces(const sc_gathering *g) {
    return ((int)g->ntable - 1 - 2 * sc_wires(g)) / 3;
}

static inline sc_piece sc_piece_at(const sc_gathering *g, int k) {
    const int64_t *row = sc_wire_row(g, sc_wires(g)) + 3 * k;
    const sc_named *name = &g->names[row[2]];
    sc_piece p = {};
    p.path = name->path;
    p.dims = name->dims;
    memcpy(p.shape, name->shape, sizeof p.shape);
    p.flat = row[0];
    p.numel = row[1];
    p.slice = g->slice;
    p.rank = g->place.at;
    p.ranks = g->place.of;
    p.begin = g->after ? 0 : sc_piece_begin(&p, p.rank);
    p.end = g->after ? p.numel : sc_piece_begin(&p, p.rank + 1);
    for (int w = 0; w < sc_wires(g); w++) p.stride[w] = sc_pieces(g) * sc_wire_count(g, w);
    return p;
}

/* Where the piece begins among the elements of the unit that are there: its slice before the gather, all after it. */
static inline int64_t sc_piece_offset(const sc_gathering *g, const sc_piece *p) {
    if (g->after) return p->flat;
    return p->begin < p->end ? p->flat + p->begin - p->rank * p->slice : 0;
}

static inline void *sc_elements(const sc_gathering *g, const sc_tensor *t, const sc_piece *p) {
    return (char *)t->p + sc_piece_offset(g, p) * sc_size(t->dtype);
}

/* Piece k of wire w, which lies in tensor `t`. */
static inline void *sc_wire(const sc_gathering *g, const sc_tensor *t, const sc_piece *p, int k, int w) {
    int64_t count = sc_wire_count(g, w), every = sc_wire_every(g, w);
    int64_t at = every ? sc_piece_offset(g, p) / every * count : k * count;
    return (char *)t->p + at * sc_size(t->dtype);
}

/* Elements of wire w that the piece fills; of all wires. */
static inline int64_t sc_wire_room(const sc_gathering *g, const sc_piece *p, int w) {
    int64_t count = sc_wire_count(g, w), every = sc_wire_every(g, w);
    return every ? (p->end - p->begin + every - 1) / every * count : count;
}
static inline int64_t sc_wires_room(const sc_gathering *g, const sc_piece *p) {
    int64_t n = 0;
    for (int w = 0; w < sc_wires(g); w++) n += sc_wire_room(g, p, w);
    return n;
}

/* Between parameters nobody writes: zeros, from `from` to where the next piece begins or the tensor ends. */
static inline void sc_clear_gap(const sc_gathering *g, const sc_tensor *x, int64_t from, int64_t to) {
    int64_t size = sc_size(x->dtype), bytes = (to - from) * size;
    void *p = (char *)x->p + from * size;
    if (bytes <= 0) return;
#ifdef __CUDACC__
    SC_CUDA(cudaMemsetAsync(p, 0, (size_t)bytes, (cudaStream_t)g->task->stream));
#else
    (void)g;
    memset(p, 0, (size_t)bytes);
#endif
}

/* What no piece fills of a tensor with `count` elements for every `every` of the unit. */
static inline void sc_clear_gaps(const sc_gathering *g, const sc_tensor *x, int64_t count, int64_t every) {
    int64_t at = 0;
    for (int k = 0; k < sc_pieces(g); k++) {
        sc_piece p = sc_piece_at(g, k);
        if (p.begin == p.end) continue;
        int64_t first = sc_piece_offset(g, &p);
        sc_clear_gap(g, x, at, first / every * count);
        at = (first + p.end - p.begin + every - 1) / every * count;
    }
    sc_clear_gap(g, x, at, sc_numel(x));
}

/* ── custom ops ──────────────────────────────────────────────────────────────────────────────────────────────────────
 * `x`: what the function's pointers point to, in its order. */
static inline sc_call sc_call_of(const sc_task *task, const sc_tensor *const *x, int n, const double *numbers) {
    sc_call c = {};
    c.tensors = n;
    c.rank = task->rank;
    c.world = task->world;
    for (int k = 0; k < n; k++) {
        c.tensor[k].dims = x[k]->dims;
        memcpy(c.tensor[k].size, x[k]->shape, sizeof c.tensor[k].size);
        c.tensor[k].numel = sc_numel(x[k]);
    }
    memcpy(c.numbers, numbers, sizeof c.numbers);
    return c;
}

#endif
