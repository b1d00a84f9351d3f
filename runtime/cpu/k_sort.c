/* sort and topk over the last dimension, and their gradient.
 * Relies on: kernel.h, schema/workspace.h.
 * Relied on by: generated code. Contiguous operands.
 *
 * An element becomes an item: a number that stands for its place in the order (sc_order), then its index, so that no
 * two items are equal and results do not depend on how they are found. sort merges runs of items, topk keeps the k
 * first in a heap whose root is the last of them. */
#include "../schema/workspace.h"
#include "kernel.h"

typedef struct {
    uint64_t order;
    int64_t index;
} item;
_Static_assert(sizeof(item) == SC_CPU_ITEM, "workspaces have room for items");

static int before(item a, item b) {
    return a.order < b.order || (a.order == b.order && a.index < b.index);
}

/* Items of elements [first, first + n) of the row that begins at `at`; `turned`: the largest come first. */
static void make_items(item *to, const sc_tensor *x, int64_t at, int64_t first, int64_t n, int turned) {
    uint64_t turn = turned ? ~(uint64_t)0 : 0;
    for (int64_t i = 0; i < n; i++) to[i] = (item){sc_order_at(x, at + first + i) ^ turn, first + i};
}

static void put_items(const sc_tensor *values, const sc_tensor *indices, int64_t to, const sc_tensor *x, int64_t at,
                      const item *items, int64_t n) {
    int64_t size = sc_size(x->dtype);
    for (int64_t i = 0; i < n; i++) {
        memcpy(sc_at(values, to + i), sc_at(x, at + items[i].index), (size_t)size);
        ((int32_t *)indices->p)[to + i] = (int32_t)items[i].index;
    }
}

/* The workspace of a row: of its part, or its own where parts outnumber rows. */
static item *room_of(const sc_task *task, const sc_tensor *work, int64_t rows, int64_t row, int64_t bytes) {
    return (item *)((char *)work->p + bytes * (rows < task->parts ? row : task->part));
}

/* Sorts n items; room: for as many. Returns where they are then. */
static item *merge_runs(item *from, item *to, int64_t n) {
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t first = 0; first < n; first += 2 * run) {
            int64_t middle = sc_min(first + run, n), end = sc_min(first + 2 * run, n), a = first, b = middle;
            for (int64_t i = first; i < end; i++)
                to[i] = b == end || (a < middle && before(from[a], from[b])) ? from[a++] : from[b++];
        }
        item *was = from;
        from = to;
        to = was;
    }
    return from;
}

SC_KERNEL(sort) {
    const sc_tensor *x = &k->x;
    int64_t cols = sc_cols(x), rows = sc_rows(x);
    sc_range mine = sc_share(task, rows, 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        item *items = room_of(task, &k->work, rows, row, sc_cpu_sort_bytes(cols));
        make_items(items, x, row * cols, 0, cols, k->descending != 0);
        put_items(&k->values, &k->indices, row * cols, x, row * cols, merge_runs(items, items + cols, cols), cols);
    }
}

/* Puts the item at the root of a heap of n where it belongs: no item stands before those below it. */
static void sink(item *heap, int64_t n, item x) {
    int64_t at = 0, child = 1;
    for (; child < n; at = child, child = 2 * at + 1) {
        child += child + 1 < n && before(heap[child], heap[child + 1]);
        if (!before(x, heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = x;
}

static void raise(item *heap, int64_t at, item x) {
    for (; at > 0 && before(heap[(at - 1) / 2], x); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = x;
}

static void first_items(item *heap, int64_t most, const sc_tensor *x, int64_t at, int64_t cols, int largest) {
    item items[SC_CHUNK];
    for (int64_t c = 0; c < cols; c += SC_CHUNK) {
        int64_t n = sc_min(SC_CHUNK, cols - c);
        make_items(items, x, at, c, n, largest);
        for (int64_t i = 0; i < n; i++) {
            if (c + i < most)
                raise(heap, c + i, items[i]);
            else if (before(items[i], heap[0]))
                sink(heap, most, items[i]);
        }
    }
    for (int64_t n = most - 1; n > 0; n--) { /* the last of those that are left goes behind them */
        item last = heap[0];
        sink(heap, n, heap[n]);
        heap[n] = last;
    }
}

SC_KERNEL(topk) {
    const sc_tensor *x = &k->x;
    int64_t cols = sc_cols(x), rows = sc_rows(x), most = k->k;
    sc_range mine = sc_share(task, rows, 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        item *heap = room_of(task, &k->work, rows, row, sc_cpu_topk_bytes(most));
        first_items(heap, most, x, row * cols, cols, !k->smallest);
        put_items(&k->values, &k->indices, row * most, x, row * cols, heap, most);
    }
}

SC_KERNEL(sort_grad) {
    const sc_tensor *dx = &k->dx, *g = &k->g;
    int64_t cols = k->cols, most = sc_cols(g), size = sc_size(dx->dtype);
    sc_range mine = sc_share(task, sc_rows(g), 1);
    for (int64_t row = mine.begin; row < mine.end; row++) {
        memset(sc_at(dx, row * cols), 0, (size_t)(cols * size));
        for (int64_t i = row * most; i < (row + 1) * most; i++) {
            int64_t c = sc_index(&k->indices, i);
            if (c >= 0 && c < cols) memcpy(sc_at(dx, row * cols + c), sc_at(g, i), (size_t)size);
        }
    }
}
