/* Slots sorted by their group, rows of a tensor brought to the groups' order and back, and the gradient of their
 * weights. Relies on: kernel.h, schema/workspace.h. Relied on by: generated code. Contiguous operands.
 *
 * A part counts all slots and places those of its own groups, so that parts need not wait for each other. Sums are made
 * in real, in the order of a token's slots, and rounded once. */
#include "../schema/workspace.h"
#include "kernel.h"

SC_KERNEL(route) {
    const sc_tensor *index = &k->index;
    int32_t *counts = (int32_t *)k->counts.p, *slots = (int32_t *)k->slots.p, *places = (int32_t *)k->places.p;
    int64_t n = sc_numel(index), groups = k->groups, rows = k->slots.shape[0];
    int64_t most = k->capacity > 0 ? k->capacity : n, at = 0;
    sc_range mine = sc_share(task, groups, 1);
    int64_t *next = (int64_t *)((char *)k->work.p + (int64_t)task->part * sc_cpu_route_bytes(groups)),
            *end = next + groups;
    memset(next, 0, (size_t)groups * sizeof *next);
    for (int64_t i = 0; i < n; i++) {
        int64_t g = sc_index(index, i);
        if (g >= 0 && g < groups) next[g]++;
        if (task->part == 0 && (g < 0 || g >= groups)) places[i] = -1;
    }
    for (int64_t g = 0; g < groups; g++) {
        int64_t count = sc_min(next[g], most);
        if (g >= mine.begin && g < mine.end) counts[g] = (int32_t)count;
        next[g] = at;
        end[g] = at += count;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t g = sc_index(index, i);
        if (g < mine.begin || g >= mine.end) continue;
        places[i] = next[g] < end[g] ? (int32_t)next[g]++ : -1;
        if (places[i] >= 0) slots[places[i]] = (int32_t)i;
    }
    if (task->part == task->parts - 1)
        for (int64_t r = at; r < rows; r++) slots[r] = -1;
}

/* sum += w x, of n elements of x from `at` on. */
static void add_times(real *restrict sum, const sc_tensor *x, int64_t at, int64_t n, real w) {
    real buffer[SC_CHUNK];
    const real *v = sc_in(x, at, n, buffer);
    for (int64_t i = 0; i < n; i++) sum[i] += w * v[i];
}

static real weight_of(const sc_tensor *weights, int64_t slot) {
    return weights->p ? (real)sc_get(weights, slot) : 1;
}

SC_KERNEL(dispatch) {
    const sc_tensor *x = &k->x, *y = &k->y;
    int64_t cols = sc_cols(x), slots = sc_numel(&k->places), each = sc_cols(&k->places);
    sc_range mine = sc_share(task, y->shape[0], 1);
    for (int64_t r = mine.begin; r < mine.end; r++) {
        int64_t slot = sc_index(&k->slots, r);
        for (int64_t c = 0; c < cols; c += SC_CHUNK) {
            int64_t n = sc_min(SC_CHUNK, cols - c);
            real sum[SC_CHUNK] = {0};
            if (slot >= 0 && slot < slots) add_times(sum, x, slot / each * cols + c, n, weight_of(&k->weights, slot));
            sc_store(y, r * cols + c, 1, n, sum);
        }
    }
}

SC_KERNEL(combine) {
    const sc_tensor *x = &k->x, *y = &k->y;
    int64_t cols = sc_cols(x), rows = x->shape[0], each = sc_cols(&k->places);
    sc_range mine = sc_share(task, sc_rows(y), 1);
    for (int64_t t = mine.begin; t < mine.end; t++)
        for (int64_t c = 0; c < cols; c += SC_CHUNK) {
            int64_t n = sc_min(SC_CHUNK, cols - c);
            real sum[SC_CHUNK] = {0};
            for (int64_t slot = t * each; slot < (t + 1) * each; slot++) {
                int64_t r = sc_index(&k->places, slot);
                if (r >= 0 && r < rows) add_times(sum, x, r * cols + c, n, weight_of(&k->weights, slot));
            }
            sc_store(y, t * cols + c, 1, n, sum);
        }
}

SC_KERNEL(combine_weights) {
    const sc_tensor *x = &k->x, *y = &k->y;
    int64_t cols = sc_cols(x), rows = x->shape[0], each = sc_cols(&k->places);
    sc_range mine = sc_share(task, sc_numel(&k->places), 1);
    for (int64_t slot = mine.begin; slot < mine.end; slot++) {
        int64_t r = sc_index(&k->places, slot);
        real sum = 0;
        for (int64_t c = 0; c < cols && r >= 0 && r < rows; c += SC_CHUNK) {
            int64_t n = sc_min(SC_CHUNK, cols - c);
            real of_x[SC_CHUNK], of_y[SC_CHUNK];
            sum += sc_chunk_dot(sc_in(x, r * cols + c, n, of_x), sc_in(y, slot / each * cols + c, n, of_y), n);
        }
        sc_store(&k->dw, slot, 1, 1, &sum);
    }
}
