/* Muon's kernels: the momentum and what is orthogonalized of it, matrices of every form against the steps in double
 * with PyTorch's roundings, the update. Relies on: kernel_check.h, runtime/cpu's k_optimizer.c and k_orthogonalize.c.
 * Relied on by: make test. */
#include "../../runtime/schema/matrices.h"
#include "../../runtime/schema/workspace.h"
#include "kernel_check.h"

enum { MOST = 64, STEPS = 5, FLAT = 6144 };
static const double abc[] = {3.4445, -4.7750, 2.0315};

static double as_bf16(double x) {
    return sc_as_bf16((float)x);
}

/* x [rows][cols], in place, as torch.optim.Muon has it. */
static void steps_of(double *x, int rows, int cols) {
    static double a[MOST][MOST], b[MOST][MOST], w[MOST][MOST], next[MOST][MOST];
    int r = rows < cols ? rows : cols, c = rows < cols ? cols : rows;
    double squares = 0;
    for (int i = 0; i < rows * cols; i++) squares += x[i] * x[i];
    double norm = fmax(as_bf16(sqrt(squares)), as_bf16(1e-7));
    for (int i = 0; i < r; i++)
        for (int j = 0; j < c; j++) w[i][j] = as_bf16(x[rows > cols ? j * cols + i : i * cols + j] / norm);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < r; i++)
            for (int j = 0; j < r; j++) {
                double sum = 0;
                for (int k = 0; k < c; k++) sum += w[i][k] * w[j][k];
                a[i][j] = as_bf16(sum);
            }
        for (int i = 0; i < r; i++)
            for (int j = 0; j < r; j++) {
                double sum = 0;
                for (int k = 0; k < r; k++) sum += a[i][k] * a[k][j];
                b[i][j] = as_bf16(abc[1] * a[i][j] + abc[2] * sum);
            }
        for (int i = 0; i < r; i++)
            for (int j = 0; j < c; j++) {
                double sum = abc[0] * w[i][j];
                for (int k = 0; k < r; k++) sum += b[i][k] * w[k][j];
                next[i][j] = as_bf16(sum);
            }
        memcpy(w, next, sizeof w);
    }
    for (int i = 0; i < r; i++)
        for (int j = 0; j < c; j++) x[rows > cols ? j * cols + i : i * cols + j] = w[i][j];
}

/* One square, one tall, one wide, one of a single row, three experts; the middle ones are another rank's. */
Test(muon, orthogonalize) {
    static const int64_t table[] = {0,    1, 24, 24, 0, 768,  1, 48, 20, 1, 1792, 1, 17, 64, 0,
                                    2944, 1, 1,  40, 0, 3072, 3, 16, 30, 1, 4608, 2, 30, 16, 0};
    enum { ROWS_ = sizeof table / sizeof *table / SC_MATRICES };
    record.of[0].eps = 1e-7f;
    for (int rank = 0; rank < 2; rank++, release()) {
        sc_tensor x = filled(T_(BF16, FLAT), 1, 0), y = T_(BF16, FLAT);
        sc_tensor work = workspace(3 * sc_cpu_orthogonalize_bytes(24, 64, sizeof(real)));
        double want[FLAT] = {0};
        for (int i = 0; i < ROWS_; i++) {
            sc_matrices m = sc_matrices_at(table, i);
            for (int64_t j = 0, size = m.rows * m.cols; j < m.count && m.owner == rank; j++) {
                double *at = want + m.at + j * size;
                if (i == 5 && j == 1)
                    for (int64_t k = 0; k < size; k++) put(&x, m.at + size + k, 0); /* no gradient at all */
                for (int64_t k = 0; k < size; k++) at[k] = val(&x, m.at + j * size + k);
                steps_of(at, (int)m.rows, (int)m.cols);
            }
        }
        at_place[0] = (sc_coord){rank, 2};
        run(orthogonalize, .y = y, .x = x, .work = work, .table = table, .ntable = ROWS_ * SC_MATRICES, .steps = STEPS,
            .abc = {abc[0], abc[1], abc[2]});
        for (int64_t i = 0; i < FLAT; i++) {
            /* a sum that is added up in another order may round to the other bf16, and later steps grow that */
            cr_assert(fabs(val(&y, i) - want[i]) <= (want[i] ? 0.02 : 0), "rank %d, element %d: %g, not %g", rank,
                      (int)i, val(&y, i), want[i]);
            cr_assert(val(&y, i) != 0 || !signbit(val(&y, i)), "a negative zero");
        }
    }
}

static const int64_t segments[] = {0, 700, 0, 768, 2000, 1};
static void rates(void) {
    record.lr[0] = 0.01f, record.lr[1] = 0.02f, record.weight_decay[1] = 0.1f;
    record.of[2].momentum = 0.95f;
}

Test(muon, momentum) {
    rates();
    FOR_DTYPES
    for (int nesterov = 0; nesterov < 2; nesterov++, release()) {
        sc_tensor g = filled(T_(d, 1024), 1, 0), y = T_(BF16, 1024), m = filled(T_(SC_REAL, 1024), 1, 0);
        sc_tensor clip = filled(T_(SC_REAL, 1), 0, 0.5);
        double old[1024], mu = record.of[2].momentum;
        for (int i = 0; i < 1024; i++) old[i] = val(&m, i);
        at_place[0] = (sc_coord){1, 2};
        run(muon_momentum, .update = y, .grad = g, .coefficient = clip, .momentum = m, .nesterov = nesterov,
            .slice = 1024, .set = 2, .table = segments, .ntable = 6);
        for (int i = 0; i < 1024; i++) {
            double gi = val(&g, i) * 0.5, mi = mu * old[i] + (1 - mu) * gi;
            if (i + 1024 >= 2000) {
                same(&y, i, 0), same(&m, i, old[i]);
                continue;
            }
            near(&m, i, mi, sizeof(real) == 8 ? 1e-6 / tolerance(FP64) : 4, "momentum");
            near(&y, i, nesterov ? (1 - mu) * gi + mu * mi : mi, 1, "what is orthogonalized");
        }
    }
}

Test(muon, a_skipped_step_has_no_update) {
    rates();
    sc_tensor g = filled(T_(FP32, 2048), 1, 0), y = filled(T_(BF16, 2048), 1, 0), m = filled(T_(SC_REAL, 2048), 1, 0);
    sc_tensor skip = T_(FP32, 2), p = filled(T_(FP32, 2048), 1, 0);
    put(&skip, 0, 0), put(&skip, 1, 1), put(&g, 5, INFINITY);
    sc_muon_momentum_args before = {
        .update = y, .grad = g, .coefficient = skip, .momentum = m, .slice = 2048, .table = segments, .ntable = 6};
    run_writing(muon_momentum, &before, SLOT(muon_momentum, update));
    for (int i = 0; i < 2048; i++) same(&y, i, 0);
    sc_muon_args update = {.grad = y, .master = p, .coefficient = skip, .slice = 2048, .table = segments, .ntable = 6};
    run_writing(muon, &update, 0);
}

Test(muon, update) {
    rates();
    double scale[2] = {1.5, 0.2 * sqrt(40)};
    int64_t rows[8] = {0, 700, 0, 0, 768, 2000, 1, 0};
    for (int s = 0; s < 2; s++) rows[4 * s + 3] = sc_bits64(scale[s]);
    FOR_DTYPES {
        sc_tensor g = filled(T_(BF16, 2048), 1, 0), p = filled(T_(d, 2048), 1, 0), one = filled(T_(SC_REAL, 1), 0, 1);
        double old[2048], loose = sizeof(real) == 8 ? 1e-6 / tolerance(FP64) : 1;
        for (int i = 0; i < 2048; i++) old[i] = val(&p, i);
        at_place[0] = (sc_coord){0, 1};
        run(muon, .grad = g, .master = p, .coefficient = one, .slice = 2048, .table = rows, .ntable = 8);
        for (int i = 0; i < 2048; i++) {
            int s = i < 700 ? 0 : i >= 768 && i < 2000 ? 1 : -1;
            if (s < 0) {
                same(&p, i, old[i]);
                continue;
            }
            double lr = s ? 0.02 : 0.01, want = old[i] * (1 - lr * (s ? 0.1 : 0)) - lr * scale[s] * val(&g, i);
            near(&p, i, want, d == FP64 || d == FP32 ? loose : 1, "master");
        }
    }
}
