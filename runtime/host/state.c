/* A rank's training state as pieces. Slice s of a unit's flat buffer is elements [s × n, (s + 1) × n); what a parameter
 * has in common with it is a piece.
 * Relies on: the tables of sc.h, schema/optimizers.h.
 * Relied on by: checkpoint, resume, weights, export. */
#include "state.h"
#include "../schema/moments8.h"
#include "../schema/optimizers.h"
#include "die.h"
#include "dtype.h"
#include <string.h>

const char *piece_kind_name(PieceKind k) {
    static const char *const names[P_KINDS] = {"master", "moment1", "moment2", "buffer", "average", "scale1", "scale2"};
    return names[k];
}

typedef struct { /* a flat shard */
    int has, host;
    uint64_t at;
    int64_t numel;
    sc_dtype dtype;
    int64_t each; /* elements of the flat buffer that one of its own is for */
} Shard;

static Shard scales_of(const sc_unit_info *u, int has, int host, uint64_t at) {
    return (Shard){has && u->moments == INT8,          host, at + (uint64_t)u->shard_numel,
                   u->shard_numel / SC_MOMENTS8_BLOCK, FP32, SC_MOMENTS8_BLOCK};
}

static Shard shard_of(const sc_build *b, const sc_param_info *p, PieceKind k) {
    if (p->buffer || k == P_BUFFER || p->unit < 0) return (Shard){0};
    const sc_unit_info *u = &b->units[p->unit];
    if (!p->trainable)
        return (Shard){k == P_VALUE && u->has_frozen, u->host_frozen, u->frozen, u->frozen_shard_numel, u->dtype, 1};
    if (k == P_MOMENT1) return (Shard){u->has_m, u->host_m, u->m, u->shard_numel, u->moments, 1};
    if (k == P_MOMENT2) return (Shard){u->has_v, u->host_v, u->v, u->shard_numel, u->moments, 1};
    if (k == P_SCALE1) return scales_of(u, u->has_m, u->host_m, u->m);
    if (k == P_SCALE2) return scales_of(u, u->has_v, u->host_v, u->v);
    if (k == P_AVERAGE) return (Shard){u->has_average, u->host_average, u->average, u->shard_numel, FP32, 1};
    return (Shard){u->has_master, u->host_master, u->master, u->shard_numel, u->dtype, 1};
}

bool state_exists(const sc_build *b, int param, PieceKind k) {
    const sc_param_info *p = &b->params[param];
    return p->buffer ? k == P_BUFFER : shard_of(b, p, k).has;
}

static const sc_axis *axis_of(const sc_build *b, const sc_param_info *p) {
    return &b->axes[b->units[p->unit].shard];
}

static const sc_axis *expert_axis_of(const sc_build *b, const sc_param_info *p) {
    int axis = b->units[p->unit].expert;
    return axis ? &b->axes[axis - 1] : NULL;
}

typedef struct { /* what the flat buffers of a rank's group hold of a parameter: all, or so many of its experts */
    int64_t begin, numel;
} Part;

static Part part_of(const sc_build *b, const sc_param_info *p, int rank) {
    const sc_axis *a = expert_axis_of(b, p);
    sc_coord c = a ? sc_coord_on(a, rank) : (sc_coord){0, 1};
    return (Part){p->numel / c.of * c.at, p->numel / c.of};
}

int state_pieces(const sc_build *b, int rank, Piece **out) {
    Piece *all = *out = need((size_t)b->nparams * P_KINDS, sizeof *all);
    int n = 0;
    for (int i = 0; i < b->nparams; i++) {
        const sc_param_info *p = &b->params[i];
        if (p->buffer) all[n++] = (Piece){i, P_BUFFER, 0, p->numel, p->dtype, 0, p->at, 0};
        for (int k = 0; k < P_KINDS; k++) {
            Shard s = shard_of(b, p, (PieceKind)k);
            if (!s.has) continue;
            Part part = part_of(b, p, rank);
            int64_t from = sc_coord_on(axis_of(b, p), rank).at * s.numel, to = from + s.numel;
            int64_t low = p->flat_offset / s.each, high = (p->flat_offset + part.numel + s.each - 1) / s.each;
            int64_t begin = low > from ? low : from, end = high < to ? high : to;
            if (begin >= end) continue;
            uint64_t at = s.at + (uint64_t)(begin - from) * (uint64_t)sc_size(s.dtype);
            int64_t first = part.begin / s.each - low;
            int ahead = s.each > 1 ? state_ahead(b, i) : 0;
            all[n++] = (Piece){i, (PieceKind)k, first + begin, first + end, s.dtype, s.host, at, ahead};
        }
    }
    return n;
}

bool state_owned(const sc_build *b, int rank, const Piece *p) {
    if (p->kind == P_BUFFER) return true;
    const sc_axis *axes[] = {axis_of(b, &b->params[p->param]), expert_axis_of(b, &b->params[p->param])};
    int first = 0; /* the rank in these places whose place on every other axis is the first */
    for (int i = 0; i < 2; i++) first += axes[i] ? sc_coord_on(axes[i], rank).at * axes[i]->stride : 0;
    return rank == first;
}

bool state_averages(const sc_build *b) {
    for (int i = 0; i < b->nunits; i++)
        if (b->units[i].has_average) return true;
    return false;
}

bool state_counts_steps(const sc_build *b) {
    const sc_optimizer_info *o = sc_optimizer_named(b->optimizer);
    bool counts = (o && o->counts_steps) || state_averages(b);
    for (int i = 0; i < b->nsets; i++) counts |= (o = sc_optimizer_named(b->sets[i].name)) && o->counts_steps;
    return counts;
}

const char *state_optimizer(const sc_build *b, int param) {
    const sc_param_info *p = &b->params[param];
    const char *own = p->trainable && p->unit >= 0 ? b->units[p->unit].optimizer : NULL;
    return own ? own : b->optimizer;
}

sc_dtype state_dtype(const sc_build *b, int param, PieceKind k) {
    const sc_param_info *p = &b->params[param];
    if (p->buffer) return p->dtype;
    if (k == P_AVERAGE || k == P_SCALE1 || k == P_SCALE2) return FP32;
    return piece_is_moment(k) ? b->units[p->unit].moments : b->units[p->unit].dtype;
}

int state_ahead(const sc_build *b, int param) {
    return (int)(b->params[param].flat_offset % SC_MOMENTS8_BLOCK);
}

int adapter_of(const sc_build *b, int param, bool *thin) {
    for (int i = 0; i < b->nadapters; i++) {
        const sc_adapter_info *x = &b->adapters[i];
        *thin = x->a == param || x->b == param || x->lengths == param;
        if (*thin || x->weight == param) return i;
    }
    *thin = false;
    return -1;
}

int scaled_by(const sc_build *b, int param) {
    for (int i = 0; i < b->nparams; i++)
        if (b->params[i].scales == param + 1) return i;
    return -1;
}
