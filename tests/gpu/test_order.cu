/* sort, topk, gather, scatter_add, searchsorted, scan, cummax and flip of the CUDA target against references in double:
 * shapes, dtypes, strides, equal elements, NaN, indices that are outside.
 * Relies on: trial.h, runtime/cuda/{k_sort,k_gather,k_scan,k_copy}.cu.
 * Relied on by: make gpu-test. Arguments: as test_kernels.cu's.
 *
 * `ok`/`FAIL` a trial, then `N passed, N failed`. */
#include "trial.h"

static const int dtypes[] = {FP32, BF16, FP16, INT32};

/* Numbers of which many are equal, some of them 0, -0, infinite and NaN; int32: of all sizes. */
static tensor &elements(pool &p, int d, const extents &shape) {
    tensor &x = p.empty(d, shape);
    int64_t n = 0;
    fill(x, [&] {
        static const double special[] = {0, -0.0, INFINITY, -INFINITY, NAN};
        double u = normal();
        if (d == INT32) return n++ % 7 ? floor(u * 20) : floor(uniform() * 2147483647.0);
        return n++ % 5 == 0 && fabs(u) < 0.1 ? special[n / 5 % 5] : n % 3 ? round(u * 8) / 8 : u;
    });
    return x;
}

static bool before(double a, double b) { /* ascending, a NaN above all */
    return a < b || (b != b && a == a);
}

static std::vector<int64_t> order_of(const double *x, int64_t n, bool descending) {
    std::vector<int64_t> at(n);
    for (int64_t i = 0; i < n; i++) at[i] = i;
    std::stable_sort(at.begin(), at.end(),
                     [&](int64_t i, int64_t j) { return descending ? before(x[j], x[i]) : before(x[i], x[j]); });
    return at;
}

/* k 0: sort. */
static void sort_trial(int d, int64_t rows, int64_t n, int64_t k, bool other) {
    pool p;
    int64_t kept = k ? k : n;
    tensor &x = elements(p, d, {rows, n}), &values = p.empty(d, {rows, kept}), &indices = p.empty(INT32, {rows, kept});
    numbers want(rows * kept), places(rows * kept);
    for (int64_t r = 0; r < rows; r++) {
        std::vector<int64_t> at = order_of(&x.x[r * n], n, other == !k);
        for (int64_t i = 0; i < kept; i++)
            places[r * kept + i] = (double)at[i], want[r * kept + i] = x.x[r * n + at[i]];
    }
    std::string name = k ? other ? "topk smallest" : "topk" : other ? "sort descending" : "sort";
    name += text_of(" %s[%lld,%lld]", dtype_text(d), (long long)rows, (long long)n);
    if (k) name += text_of(" k %lld", (long long)k);
    {
        tensor &work = p.work(std::max(sc_cuda_sort_bytes(rows, n), sc_cpu_sort_bytes(n)));
        sc_sort_args sort = {
            .values = values.t, .indices = indices.t, .x = x.t, .work = work.t, .descending = other};
        sc_topk_args topk = {
            .values = values.t, .indices = indices.t, .x = x.t, .work = work.t, .k = k, .smallest = other};
        trial t = k ? trial(name, topk) : trial(name, sort);
        t.run();
        t.expect("values", values, want, 0);
        t.expect("indices", indices, places, -1);
    }
    if (d == INT32) return;
    tensor &g = p.random(d, {rows, kept}), &dx = p.empty(d, {rows, n});
    numbers gradient(rows * n);
    for (int64_t i = 0; i < rows * kept; i++) gradient[i / kept * n + (int64_t)places[i]] = g.x[i];
    trial t("sort_grad of " + name, sc_sort_grad_args{.dx = dx.t, .g = g.t, .indices = indices.t, .cols = n});
    t.run();
    t.expect("dx", dx, gradient, -1);
}

static void sorting() {
    if (!wanted("sort topk")) return;
    for (int d : dtypes) {
        for (int64_t n : {1, 2, 33, 256, 2048, 2049, 4100, 9000}) sort_trial(d, 3, n, 0, n % 2 == 0);
        for (int other = 0; other < 2; other++) {
            sort_trial(d, 9, 256, 8, other);
            sort_trial(d, 5, 1, 1, other);
            sort_trial(d, 3, 1024, 32, other);
            sort_trial(d, 3, 70, 70, other);
            sort_trial(d, 2, 5000, 1, other);
            sort_trial(d, 2, 3000, 1024, other);
        }
        if (quick) continue;
        sort_trial(d, 1, 1 << 20, 0, false);
        sort_trial(d, 700, 3000, 0, true);
        sort_trial(d, 32768, 256, 8, false);
        sort_trial(d, 3, 262144, 1024, false);
    }
}

/* ── by index ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
struct index_case {
    int64_t outer, each, inner, size;
    bool spread; /* one index for all columns */
    int64_t only; /* most go to one place; -1: they do not */
};

static void index_trial(int d, const index_case &c) {
    pool p;
    tensor &some = p.integers(c.spread ? extents{c.each} : extents{c.outer, c.each, c.inner}, -1, c.size + 1);
    if (c.only >= 0) fill(some, [&] { return uniform() < 0.9 ? (double)c.only : (double)(c.size - 1); });
    sc_tensor index = some.t;
    if (c.spread) {
        index.dims = 3;
        index.shape[0] = c.outer, index.shape[1] = c.each, index.shape[2] = c.inner;
        index.stride[0] = index.stride[2] = 0, index.stride[1] = 1;
    }
    auto place = [&](int64_t e) { return (int64_t)some.x[c.spread ? e / c.inner % c.each : e]; };
    int64_t n = c.outer * c.each * c.inner, all = c.outer * c.size * c.inner;
    auto column = [&](int64_t e, int64_t v) { return (e / (c.each * c.inner) * c.size + v) * c.inner + e % c.inner; };
    std::string shape = text_of(" %s[%lld,%lld,%lld] of %lld%s%s", dtype_text(d), (long long)c.outer, (long long)c.each,
                                (long long)c.inner, (long long)c.size, c.spread ? " spread" : "",
                                c.only >= 0 ? " in one place" : "");
    {
        extents sizes = {c.outer, c.size, c.inner}, turned = {c.size, 1, c.outer * c.size}; /* strided */
        tensor &x = d == INT32 ? p.integers(sizes, -99, 99) : p.random(d, sizes, turned);
        tensor &y = p.empty(d, {c.outer, c.each, c.inner});
        numbers want(n);
        for (int64_t e = 0; e < n; e++) {
            int64_t v = place(e);
            want[e] = v >= 0 && v < c.size ? x.x[column(e, v)] : d == INT32 ? -1 : NAN;
        }
        trial t("gather" + shape, sc_gather_args{.y = y.t, .x = x.t, .index = index, .dim = 1});
        t.run();
        t.expect("y", y, want, 0);
    }
    extents sizes = {c.outer, c.each, c.inner};
    tensor &source = d == INT32 ? p.integers(sizes, -99, 99) : p.random(d, sizes);
    tensor &y = p.empty(d, {c.outer, c.size, c.inner});
    tensor &work = p.work(std::max(sc_cuda_scatter_bytes(c.each, n), sc_cpu_scatter_bytes(all, 4)));
    numbers want(all), times(all);
    double most = 0;
    for (int64_t e = 0; e < n; e++) {
        int64_t v = place(e);
        if (v < 0 || v >= c.size) continue;
        want[column(e, v)] += source.x[e];
        most = fmax(most, ++times[column(e, v)]);
    }
    trial t("scatter_add" + shape, sc_scatter_add_args{.y = y.t,
                                                       .source = source.t,
                                                       .index = index,
                                                       .work = work.t,
                                                       .dim = 1,
                                                       .size = c.size});
    t.run();
    t.expect("y", y, want, d == INT32 ? -1 : sqrt(most) + 1, 1e-6);
}

static void search_trial(int d, int64_t rows, int64_t n, int64_t cols, bool right) {
    pool p;
    tensor &sorted = elements(p, d, rows ? extents{rows, n} : extents{n});
    tensor &x = elements(p, d, {rows ? rows : 3, cols}), &y = p.empty(INT32, {rows ? rows : 3, cols});
    for (int64_t r = 0; r < (rows ? rows : 1); r++)
        std::sort(&sorted.x[r * n], &sorted.x[r * n] + n, before);
    numbers ascending = sorted.x, want(x.x.size());
    fill(sorted, [&, i = (int64_t)0]() mutable { return ascending[i++]; });
    for (size_t i = 0; i < want.size(); i++)
        for (int64_t j = 0; j < n; j++) {
            double s = sorted.x[(rows ? (int64_t)i / cols * n : 0) + j];
            want[i] += right ? !before(x.x[i], s) : before(s, x.x[i]);
        }
    std::string name = text_of("searchsorted%s %s[%lld,%lld]", right ? " right" : "", dtype_text(d), (long long)rows,
                               (long long)n);
    trial t(name, sc_searchsorted_args{.y = y.t, .sorted = sorted.t, .x = x.t, .right = right});
    t.run();
    t.expect("y", y, want, -1);
}

static void indexing() {
    if (!wanted("gather scatter_add searchsorted")) return;
    static const index_case cases[] = {
        {40, 8, 1, 64, false, -1},   {3, 5, 7, 9, false, -1},     {1, 32, 3, 4, true, -1},
        {2, 33, 5, 6, false, -1},    {1, 3000, 1, 10, false, -1}, {1, 5000, 1, 7, false, 3},
        {3, 300, 4, 1000, true, -1},
    };
    for (int d : dtypes) {
        for (const index_case &c : cases) index_trial(d, c);
        for (int right = 0; right < 2; right++) {
            search_trial(d, 0, 40, 33, right);
            search_trial(d, 3, 300, 70, right);
        }
        if (quick) continue;
        index_trial(d, {32768, 8, 1, 256, false, -1});
        index_trial(d, {1, 1 << 20, 1, 50000, false, -1});
        index_trial(d, {1, 1 << 20, 1, 64, false, 5});
    }
}

/* ── running sums ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void scan_trial(int d, int64_t rows, int64_t n, bool factor, bool reverse) {
    pool p;
    extents shape = {rows, n};
    tensor &x = d == INT32 ? p.integers(shape, -99, 99) : p.random(d, shape), &y = p.empty(d, shape);
    tensor &a = p.empty(d, shape), &work = p.work(sc_cuda_scan_bytes(rows, n));
    fill(a, [&] { return uniform(); });
    numbers want(rows * n);
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = r * n + (reverse ? n - 1 - i : i);
            want[at] = sum = x.x[at] + (factor && i ? a.x[reverse ? at + 1 : at] : 1) * sum;
        }
    }
    std::string name = text_of("scan%s%s %s[%lld,%lld]", factor ? " with factors" : "", reverse ? " reverse" : "",
                               dtype_text(d), (long long)rows, (long long)n);
    trial t(name, sc_scan_args{.y = y.t, .x = x.t, .a = given(factor, a), .work = work.t, .reverse = reverse});
    t.run();
    t.expect("y", y, want, d == INT32 ? -1 : factor ? 1 : sqrt((double)n), 1e-6);
}

static void cummax_trial(int d, int64_t rows, int64_t n, bool smallest) {
    pool p;
    tensor &x = elements(p, d, {rows, n}), &indices = p.empty(INT32, {rows, n});
    tensor &work = p.work(sc_cuda_scan_bytes(rows, n));
    numbers want(rows * n);
    for (int64_t r = 0; r < rows; r++) {
        const double *v = &x.x[r * n];
        int64_t most = 0;
        for (int64_t i = 0; i < n; i++) {
            bool least = v[i] != v[i] || (v[most] == v[most] && v[i] <= v[most]);
            if (smallest ? least : !before(v[i], v[most])) most = i;
            want[r * n + i] = (double)most;
        }
    }
    std::string name = text_of("cummax%s %s[%lld,%lld]", smallest ? " smallest" : "", dtype_text(d), (long long)rows,
                               (long long)n);
    trial t(name, sc_cummax_args{.indices = indices.t, .x = x.t, .work = work.t, .smallest = smallest});
    t.run();
    t.expect("indices", indices, want, -1);
}

static void flip_trial(int d, int64_t dim) {
    pool p;
    extents shape = {3, 20, 40};
    tensor &x = d == INT32 ? p.integers(shape, -99, 99) : p.random(d, shape, {1000, 48, 1}), &y = p.empty(d, shape);
    numbers want(x.x.size());
    for (int64_t i = 0; i < (int64_t)want.size(); i++) {
        int64_t at[] = {i / 800, i / 40 % 20, i % 40};
        at[dim] = shape[dim] - 1 - at[dim];
        want[i] = x.x[(at[0] * 20 + at[1]) * 40 + at[2]];
    }
    std::string name = text_of("flip %s of dim %lld", dtype_text(d), (long long)dim);
    trial t(name, sc_flip_args{.y = y.t, .a = x.t, .dim = dim});
    t.run();
    t.expect("y", y, want, -1);
}

static void scans() {
    if (!wanted("scan cummax flip")) return;
    for (int d : dtypes) {
        for (int64_t n : {1, 5, 256, 2048, 2049, 7000})
            for (int reverse = 0; reverse < 2; reverse++) {
                scan_trial(d, 3, n, false, reverse);
                if (d != INT32) scan_trial(d, 3, n, true, reverse);
                cummax_trial(d, 3, n, reverse);
            }
        for (int64_t dim = 0; dim < 3; dim++) flip_trial(d, dim);
        if (quick) continue;
        scan_trial(d, 64, 32768, false, false);
        scan_trial(d, 1, (1 << 22) + (1 << 20), false, true); /* the totals have several tiles too */
        cummax_trial(d, 2, 1 << 20, false);
    }
}

int main(int argc, char **argv) {
    start(argc, argv);
    sorting();
    indexing();
    scans();
    return closing();
}
