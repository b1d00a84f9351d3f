/* amax: the largest magnitude in this rank's part of each parameter of a unit. A NaN, once met, stays.
 * Relies on: magnitude.h, schema/pieces.h.
 * Relied on by: generated code (all-gather extensions that declare amax; weights in 8 bits). */
#include "../schema/pieces.h"
#include "magnitude.h"

/* Elements of the result beyond the parameters are 0. */
SC_KERNEL(amax) {
    int64_t slice = sc_numel(&k->shard), first = task->coord[k->axis].at * slice, n = sc_pieces(k->table, k->ntable);
    sc_range own = sc_share(task, sc_numel(&k->y), 1);
    for (int64_t i = own.begin; i < own.end; i++) {
        sc_piece p = {0, 0};
        if (i < n) p = sc_piece_at(k->table, i, first, slice);
        ((float *)k->y.p)[i] = sc_largest(0, &k->shard, p.begin, p.end - p.begin);
    }
}
