/* quantize_shard: this rank's piece of a unit's matrices in 8 bits, and the scales of all of them.
 * Relies on: magnitude.h, sc_amax.h, schema/pieces.h.
 * Relied on by: generated code (units whose gathers have 8 bits). */
#include "../sc_amax.h"
#include "../schema/pieces.h"
#include "magnitude.h"

enum { MOST = 448 }; /* the largest number of fp8_e4m3 */

static void put(const sc_tensor *y, const sc_tensor *x, int64_t at, int64_t n, sc_dtype of, float by) {
    real a[SC_CHUNK], b[SC_CHUNK];
    uint32_t wide[SC_CHUNK];
    sc_tensor between = {.p = wide, .dtype = of, .dims = 1, .shape = {SC_CHUNK}, .stride = {1}};
    for (int64_t i = 0; i < n; i += SC_CHUNK) {
        int64_t m = sc_min(SC_CHUNK, n - i);
        sc_load(a, x, at + i, 1, m);
        sc_store(&between, 0, 1, m, a);
        sc_load(b, &between, 0, 1, m);
        SC_ELEMENTWISE
        for (int64_t j = 0; j < m; j++) b[j] = (real)((float)b[j] * by);
        sc_store(y, at + i, 1, m, b);
    }
}

SC_KERNEL(quantize_shard) {
    int64_t slice = sc_numel(&k->shard), first = task->coord[k->axis].at * slice, n = sc_pieces(k->table, k->ntable);
    sc_range mine = sc_share(task, slice, 1);
    memset((uint8_t *)k->y.p + mine.begin, 0, (size_t)(mine.end - mine.begin));
    for (int64_t i = 0; i < n; i++) {
        float amax = sc_as((float)sc_get(&k->amax, i), (sc_dtype)k->of);
        for (int64_t j = 0; j < SC_SCALES_APART && !task->part; j++)
            sc_set(&k->scales, SC_SCALES_APART * i + j, amax == 0 ? 1 : (double)(amax / MOST));
        sc_piece p = sc_piece_at(k->table, i, first, slice);
        int64_t begin = sc_max(p.begin, mine.begin), end = sc_min(p.end, mine.end);
        if (begin < end) put(&k->y, &k->shard, begin, end - begin, (sc_dtype)k->of, amax == 0 ? 1 : MOST / amax);
    }
}
