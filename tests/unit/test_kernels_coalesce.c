/* coalesce: slices of a table's gradient from the rows of all ranks' tokens, against sums written down plainly.
 * Relies on: kernel_check.h, runtime/cpu's k_*.c.
 * Relied on by: make test. */
#include "kernel_check.h"

enum { V = 11, D = 7, TOKENS = 6 };

static double round_to(int dtype, double x) {
    real r = (real)x;
    return (double)(dtype == FP16   ? sc_from_fp16(sc_to_fp16(r))
                    : dtype == BF16 ? sc_from_bf16(sc_to_bf16(r))
                                    : sc_from_fp32(sc_to_fp32(r)));
}

/* The table's element, summed over the tokens of a rank, the ranks of a group, the groups, each time rounded. */
static double element(const sc_tensor *index, const sc_tensor *rows, int dtype, int ranks, int groups, int64_t at) {
    double sum = 0;
    for (int g = 0; g < groups; g++) {
        double of_group = 0;
        for (int r = 0; r < ranks; r++) {
            real of_rank = 0;
            for (int n = (g * ranks + r) * TOKENS; n < (g * ranks + r + 1) * TOKENS; n++)
                if (int_at(index, n) == at / D) of_rank += (real)val(rows, n * D + at % D);
            of_group += round_to(dtype, (double)of_rank);
        }
        sum += round_to(dtype, of_group);
    }
    return round_to(dtype, sum);
}

static void check_slices(int of, int dtype, int ranks, int groups) {
    int world = ranks * groups, slice = (V * D + ranks) / ranks + 3;
    sc_tensor index = integers(T_(INT32, world * TOKENS), -1, V + 1), rows = filled(T_(of, world * TOKENS * D), 1, 0);
    for (int rank = 0; rank < ranks; rank++) {
        sc_tensor dw = T_(dtype, slice);
        sc_coalesce_args k = {
            .y = dw, .index = index, .g = rows, .rows = V, .cols = D, .slice = slice, .shard = 0, .replicate = 1};
        k.work = workspace(sc_cpu_coalesce_bytes(slice, D, world * TOKENS));
        at_place[0] = (sc_coord){rank, ranks}, at_place[1] = (sc_coord){0, groups};
        run_writing(coalesce, &k, writes_coalesce() | SLOT(coalesce, work));
        for (int64_t i = 0; i < slice; i++) {
            int64_t at = (int64_t)rank * slice + i;
            double want = at < V * D ? element(&index, &rows, dtype, ranks, groups, at) : 0;
            cr_assert_eq(val(&dw, i), want, "slice %d of %d, element %lld: %g, not %g", rank, ranks, (long long)i,
                         val(&dw, i), want);
        }
    }
    release();
}

Test(coalesce, slices_of_sums) {
    check_slices(FP32, FP32, 1, 1);
    check_slices(FP16, FP16, 2, 1);
    check_slices(BF16, FP32, 4, 1);
    check_slices(FP16, BF16, 2, 2);
    check_slices(FP32, FP16, 1, 4);
    check_slices(FP16, FP16, 12, 1); /* the last slices lie beyond the table */
}
