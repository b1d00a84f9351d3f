/* gather, scatter_add and searchsorted: elements by index, and indices by element.
 * Relies on: sort.cuh.
 * Relied on by: generated code. gather's and scatter_add's operands have any strides.
 *
 * gather: a thread an element. scatter_add, few elements a column (those that share all indices but that of the
 * dimension): a thread an element, of which the first that goes to a place adds up those that follow. Many: items of
 * where an element goes and which it is are sorted, run by run of those that share the indices before the dimension's;
 * what goes to one place is cut every PIECE items from the first one on, into sums that are then added in order. So
 * bits depend on a place's own elements, in their order. An index beyond the dimension adds nothing.
 *
 * Workspace: the items, twice; a float (or int32) an item in the half that they left. */
#include "sort.cuh"

namespace {

enum { PIECE = 128 };

/* Elements of several tensors side by side, each with strides of its own. Neighbouring dimensions are merged. */
struct walk {
    int dims;
    uint32_t shape[SC_DIMS];
    int64_t stride[3][SC_DIMS];
};

SC_DEVICE void walk_to(const walk &w, uint32_t n, int64_t (&at)[3]) {
    for (int t = 0; t < 3; t++) at[t] = 0;
    for (int d = w.dims - 1; d >= 0; d--) {
        uint32_t q = n / w.shape[d], r = n - q * w.shape[d];
        for (int t = 0; t < 3; t++) at[t] += r * w.stride[t][d];
        n = q;
    }
}

void add_dimension(walk *w, int64_t n, const int64_t (&stride)[3]) {
    int last = w->dims - 1;
    bool merges = last >= 0;
    if (n == 1) return;
    for (int t = 0; t < 3 && merges; t++) merges = w->stride[t][last] == n * stride[t];
    if (!merges) w->shape[last = w->dims++] = 1;
    w->shape[last] *= (uint32_t)n;
    for (int t = 0; t < 3; t++) w->stride[t][last] = stride[t];
}

/* ── gather ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
struct gathering {
    walk w; /* of x without the dimension, and index */
    void *y;
    const void *x;
    const int32_t *index;
    int64_t step; /* in x, along the dimension */
    uint32_t n;   /* elements of y */
    int size;     /* of the dimension */
    uint64_t none;
};

template <class T> __global__ void __launch_bounds__(BLOCK) gather_elements(const __grid_constant__ gathering a) {
    uint32_t e = blockIdx.x * BLOCK + threadIdx.x;
    if (e >= a.n) return;
    int64_t at[3];
    walk_to(a.w, e, at);
    int v = a.index[at[1]];
    ((T *)a.y)[e] = v >= 0 && v < a.size ? ((const T *)a.x)[at[0] + v * a.step] : (T)a.none;
}

/* ── scatter_add ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Sums are of floats, or of int32. */
template <class E> struct sums {
    typedef float type;
    static SC_DEVICE float get(typename E::type x) { return E::get(x); }
    static SC_DEVICE typename E::type put(float x) { return E::put(x); }
};
template <> struct sums<i32> {
    typedef int32_t type;
    static SC_DEVICE int32_t get(int32_t x) { return x; }
    static SC_DEVICE int32_t put(int32_t x) { return x; }
};

struct scattering {
    walk w; /* of source, index, and y without the dimension; of columns or of all elements */
    void *y;
    const void *source;
    const int32_t *index;
    int64_t step[3];      /* along the dimension */
    uint32_t n, run;      /* elements of the source; of those that share the indices before the dimension's */
    int size, each;       /* of the dimension in y; in the source */
    const uint64_t *items; /* sorted */
    void *partial;
};

template <class E> __global__ void __launch_bounds__(BLOCK) add_few(const __grid_constant__ scattering a) {
    typedef typename E::type type;
    uint32_t e = blockIdx.x * BLOCK + threadIdx.x, column = e / a.each;
    int j = (int)(e - column * a.each);
    if (e >= a.n) return;
    int64_t at[3];
    walk_to(a.w, column, at);
    const int32_t *index = a.index + at[1];
    const type *source = (const type *)a.source + at[0];
    int v = index[j * a.step[1]];
    if (v < 0 || v >= a.size) return;
    for (int q = 0; q < j; q++)
        if (index[q * a.step[1]] == v) return;
    typename sums<E>::type sum = 0;
    for (int q = j; q < a.each; q++)
        if (index[q * a.step[1]] == v) sum += sums<E>::get(source[q * a.step[0]]);
    ((type *)a.y)[at[2] + v * a.step[2]] = sums<E>::put(sum);
}

/* Where element e goes; nowhere is after all places. */
struct targets {
    walk w;
    const int32_t *index;
    int64_t step;
    uint32_t run;
    int size;
    SC_DEVICE uint64_t operator()(int64_t row, int64_t i) const {
        uint32_t e = (uint32_t)row * run + (uint32_t)i;
        int64_t at[3];
        walk_to(w, e, at);
        int v = index[at[1]];
        return item_of(v >= 0 && v < size ? (uint32_t)(at[2] + v * step) : 0xffffffffu, e);
    }
};

SC_DEVICE uint32_t place_of(uint64_t item) {
    return (uint32_t)(item >> 32);
}

/* A thread an item; that with which a piece begins adds it up. */
template <class E> __global__ void __launch_bounds__(BLOCK) add_pieces(const __grid_constant__ scattering a) {
    typedef typename sums<E>::type type;
    uint32_t p = blockIdx.x * BLOCK + threadIdx.x, low = p / a.run * a.run, high = p;
    if (p >= a.n) return;
    uint32_t place = place_of(a.items[p]);
    if (place == 0xffffffffu) return;
    if (p && place_of(a.items[p - 1]) == place) { /* else it is the first */
        if (p < PIECE || place_of(a.items[p - PIECE]) != place) return;
        while (low < high) {
            uint32_t middle = (low + high) / 2;
            if (place_of(a.items[middle]) < place)
                low = middle + 1;
            else
                high = middle;
        }
        if ((p - low) % PIECE) return;
    }
    type sum = 0;
    for (uint32_t q = p; q < a.n && q < p + PIECE && place_of(a.items[q]) == place; q++) {
        int64_t at[3];
        walk_to(a.w, (uint32_t)a.items[q], at);
        sum += sums<E>::get(((const typename E::type *)a.source)[at[0]]);
    }
    ((type *)a.partial)[p] = sum;
}

/* A thread an item; that which is the first of its place adds its pieces up. */
template <class E> __global__ void __launch_bounds__(BLOCK) join_pieces(const __grid_constant__ scattering a) {
    typedef typename sums<E>::type type;
    uint32_t p = blockIdx.x * BLOCK + threadIdx.x;
    if (p >= a.n) return;
    uint32_t place = place_of(a.items[p]);
    if (place == 0xffffffffu || (p && place_of(a.items[p - 1]) == place)) return;
    type sum = ((const type *)a.partial)[p];
    for (uint32_t q = p + PIECE; q < a.n && place_of(a.items[q]) == place; q += PIECE)
        sum += ((const type *)a.partial)[q];
    ((typename E::type *)a.y)[place] = sums<E>::put(sum);
}

template <class E> void scatter(const sc_task *t, const sc_tensor *work, scattering a) {
    unsigned by_element = blocks_for(a.n, BLOCK);
    if (a.each <= SC_SCATTER_FEW) {
        SC_LAUNCH(t, add_few<E>, by_element, BLOCK, a);
        return;
    }
    uint64_t *items = (uint64_t *)work->p, *half[] = {items, items + a.n};
    int last = merges_of(a.run) % 2;
    a.items = half[last], a.partial = half[!last];
    sort_rows(t, a.n / a.run, a.run, items, targets{a.w, a.index, a.step[2], a.run, a.size},
              to_items{half[last], a.run});
    SC_LAUNCH(t, add_pieces<E>, by_element, BLOCK, a);
    SC_LAUNCH(t, join_pieces<E>, by_element, BLOCK, a);
}

/* ── searchsorted ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
template <class E, int RIGHT>
__global__ void __launch_bounds__(BLOCK)
    search(int32_t *y, const typename E::type *x, const typename E::type *sorted, int64_t all, int64_t cols, int n) {
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= all) return;
    const typename E::type *s = sorted + (cols ? i / cols * n : 0);
    uint32_t than = order<E>::of(x[i]);
    int low = 0, high = n;
    while (low < high) { /* those before `low` stand before x, those from `high` on do not */
        int middle = low + (high - low) / 2;
        uint32_t is = order<E>::of(s[middle]);
        if (RIGHT ? is <= than : is < than)
            low = middle + 1;
        else
            high = middle;
    }
    y[i] = low;
}

} // namespace

SC_KERNEL(gather) {
    const sc_tensor *x = &k->x, *index = &k->index;
    int64_t n = sc_numel(index);
    if (n >= (int64_t)1 << 31) sc_unsupported(task, "gather", "it serves fewer than 2^31 elements");
    gathering a = {{},
                   k->y.p,
                   x->p,
                   (const int32_t *)index->p,
                   x->stride[k->dim],
                   (uint32_t)n,
                   (int)x->shape[k->dim],
                   sc_no_element(x->dtype)};
    for (int d = 0; d < index->dims; d++)
        add_dimension(&a.w, index->shape[d], {d == k->dim ? 0 : x->stride[d], index->stride[d], 0});
    auto launch = [&](auto type) {
        SC_LAUNCH(task, gather_elements<decltype(type)>, blocks_for(n, BLOCK), BLOCK, a);
    };
    switch (size_of(x->dtype)) {
    case 1: launch(uint8_t()); break;
    case 2: launch(uint16_t()); break;
    case 4: launch(uint32_t()); break;
    default: launch(uint64_t()); break;
    }
}

SC_KERNEL(scatter_add) {
    const sc_tensor *y = &k->y, *source = &k->source, *index = &k->index;
    int64_t n = sc_numel(source), each = index->shape[k->dim];
    if (n >= (int64_t)1 << 31 || sc_numel(y) >= (int64_t)1 << 32)
        sc_unsupported(task, "scatter_add", "it serves fewer than 2^31 elements, and 2^32 results");
    if (each > SC_SCATTER_FEW && (!k->work.p || k->work.shape[0] < sc_cuda_scatter_bytes(each, n)))
        sc_unsupported(task, "scatter_add", "its workspace is too small for the items");
    scattering a = {{},
                    y->p,
                    source->p,
                    (const int32_t *)index->p,
                    {source->stride[k->dim], index->stride[k->dim], y->stride[k->dim]},
                    (uint32_t)n,
                    (uint32_t)each,
                    (int)k->size,
                    (int)each,
                    NULL,
                    NULL};
    for (int d = (int)k->dim + 1; d < index->dims; d++) a.run *= (uint32_t)index->shape[d];
    for (int d = 0; d < index->dims; d++)
        if (d != k->dim)
            add_dimension(&a.w, index->shape[d], {source->stride[d], index->stride[d], y->stride[d]});
        else if (each > SC_SCATTER_FEW)
            add_dimension(&a.w, each, {source->stride[d], index->stride[d], 0});
    sc_cuda_copy(task, y, NULL);
    with_sortable(task, y->dtype, [&](auto e) { scatter<decltype(e)>(task, &k->work, a); });
}

SC_KERNEL(searchsorted) {
    const sc_tensor *sorted = &k->sorted, *x = &k->x;
    int64_t all = sc_numel(x), cols = sorted->dims > 1 ? cols_of(x) : 0;
    with_sortable(task, x->dtype, [&](auto e) {
        typedef decltype(e) E;
        typedef const typename E::type *elements;
        with_flag(k->right, [&](auto right) {
            SC_LAUNCH(task, (search<E, right.value>), blocks_for(all, BLOCK), BLOCK, (int32_t *)k->y.p, (elements)x->p,
                      (elements)sorted->p, all, cols, (int)cols_of(sorted));
        });
    });
}
