/* Tensors, references and the three-parts run for the kernels' tests: static, for one file each.
 * Relies on: Criterion, runtime/cpu/kernel.h.
 * Relied on by: test_kernels*.c. */
#ifndef KERNEL_CHECK_H
#define KERNEL_CHECK_H

#include "cpu/kernel.h"
#include "schema/philox.h"
#include "schema/slots.h"
#include "schema/workspace.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#pragma GCC diagnostic ignored "-Wunused-function" /* neither file needs all of it */
#pragma GCC diagnostic ignored "-Wunused-const-variable"

/* ── tensors ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static uint64_t seed = 1;
static double uniform(void) { /* [-1, 1) */
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(sc_mix(seed) >> 11) / 4503599627370496.0 - 1;
}

static struct {
    char *p;
    size_t n;
} blocks[256];
static int nblocks;
static void release(void) {
    while (nblocks) free(blocks[--nblocks].p);
}

/* A tensor of strides as given (NULL: contiguous), all bytes 0xff. */
static sc_tensor tensor(int dtype, int dims, const int64_t *shape, const int64_t *stride) {
    sc_tensor t = {.dtype = (uint8_t)dtype, .dims = (uint8_t)dims};
    int64_t dense = 1, span = 1;
    for (int d = dims - 1; d >= 0; d--) {
        t.shape[d] = shape[d];
        t.stride[d] = stride ? stride[d] : dense;
        dense *= shape[d];
        span += (shape[d] - 1) * t.stride[d];
    }
    size_t bytes = (size_t)(span * sc_size(dtype));
    t.p = memset(aligned_alloc(64, (bytes + 127) / 64 * 64), 0xff, (bytes + 127) / 64 * 64);
    blocks[nblocks].p = t.p;
    blocks[nblocks++].n = bytes;
    return t;
}
static const sc_tensor absent; /* an optional operand */
#define LIST(...) ((int64_t[]){__VA_ARGS__})
#define T_(dtype, ...) tensor(dtype, (int)(sizeof LIST(__VA_ARGS__) / 8), LIST(__VA_ARGS__), NULL)

static int64_t offset(const sc_tensor *t, int64_t linear) {
    int64_t at = 0;
    for (int d = t->dims - 1; d >= 0; d--) {
        at += linear % t->shape[d] * t->stride[d];
        linear /= t->shape[d];
    }
    return at;
}
/* Element of row-major number `linear`, whatever the strides. */
static double val(const sc_tensor *t, int64_t linear) {
    return sc_get(t, offset(t, linear));
}
static void put(const sc_tensor *t, int64_t linear, double x) {
    sc_set(t, offset(t, linear), x);
}
static sc_tensor filled(sc_tensor t, double scale, double shift) {
    for (int64_t i = 0; i < sc_numel(&t); i++) put(&t, i, uniform() * scale + shift);
    return t;
}
static sc_tensor integers(sc_tensor t, int64_t low, int64_t high) {
    for (int64_t i = 0; i < sc_numel(&t); i++)
        ((int32_t *)t.p)[offset(&t, i)] = (int32_t)(low + (int64_t)((uniform() + 1) / 2 * (double)(high - low)));
    return t;
}
static int32_t int_at(const sc_tensor *t, int64_t i) {
    return ((int32_t *)t->p)[offset(t, i)];
}
static sc_tensor workspace(int64_t bytes) {
    return T_(BOOL, bytes);
}

/* ── running ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static sc_record record = {.step = 7, .first_sample = 40, .seed = 99, .grad_seed = 0.25f, .count = {11, 5}};

static sc_coord at_place[2]; /* of the rank that the kernels run on: on axes 0 and 1 */

static sc_task task_of(const void *args, int slots) {
    return (sc_task){.args = args, .slots = slots, .record = &record, .world = 1, .coord = at_place, .parts = 1};
}

/* writes_matmul(): bit k is set where ops.def says that the kernel writes slot k. SLOT(matmul, bias): one such bit. */
#define RESULT(name, flags) written |= 1ull << slot++;
#define RESULTS(name, n) written |= ((1ull << (n)) - 1) << slot, slot += (n);
#define OPERAND(name, flags) written |= (uint64_t)(((flags)&UPDATED) != 0) << slot++;
#define OPERANDS(name, n) slot += (n);
#define OP(name, notation, results, operands, ...)                                                                     \
    static uint64_t writes_##name(void) {                                                                              \
        uint64_t written = 0;                                                                                          \
        int slot = 0;                                                                                                  \
        results operands return written;                                                                               \
    }
#include "schema/ops.def"
#define SLOT(op, name) (1ull << offsetof(sc_##op##_args, name) / sizeof(sc_tensor))

static int block_of(const sc_tensor *t) {
    for (int b = 0; b < nblocks; b++)
        if ((char *)t->p >= blocks[b].p && (char *)t->p < blocks[b].p + blocks[b].n) return b;
    abort(); /* a tensor without memory */
}

/* Runs the kernel in 1, 2 and 3 parts from the same memory. The tensors of `written` must end with the same bits, all
 * others but the workspace, and those that share memory with them, must stay as they are. */
static void run_kernel(sc_kernel *kernel, const void *args, int slots, uint64_t written) {
    char *before[SC_TENSORS] = {0}, *first[SC_TENSORS] = {0};
    sc_task k = task_of(args, slots);
    const sc_tensor *t = k.args->t;
    int block[SC_TENSORS];
    bool changes[256] = {false};
    for (int j = 0; j < slots; j++) {
        block[j] = t[j].p ? block_of(&t[j]) : -1;
        if (t[j].p && written >> j & 1) changes[block[j]] = true;
    }
    for (int parts = 1; parts <= 3; parts++) {
        for (int j = 0; j < slots; j++) {
            if (!t[j].p) continue;
            char *p = blocks[block[j]].p;
            size_t n = blocks[block[j]].n;
            if (parts == 1) before[j] = memcpy(malloc(n), p, n);
            memcpy(p, before[j], n);
        }
        k.parts = parts;
        for (k.part = 0; k.part < parts; k.part++) kernel(&k);
        k.part = 0;
        k.parts = 1;
        if (sc_kernel_finish(kernel)) sc_kernel_finish(kernel)(&k);
        for (int j = 0; j < slots; j++) {
            if (!t[j].p) continue;
            const char *p = blocks[block[j]].p;
            size_t n = blocks[block[j]].n;
            if (!(written >> j & 1)) {
                if (j < slots - 1 && !changes[block[j]])
                    cr_assert(!memcmp(p, before[j], n), "operand in slot %d changed", j);
            } else if (parts == 1) {
                first[j] = memcpy(malloc(n), p, n);
            } else {
                cr_assert(!memcmp(p, first[j], n), "slot %d differs in %d parts", j, parts);
            }
        }
    }
    for (int j = 0; j < slots; j++) free(before[j]), free(first[j]);
}
/* run(matmul, .y = y, .a = a, .b = b): that kernel; run_args: with a struct that is there already; run_writing: one
 * that writes fewer tensors, or more, than ops.def says. run_once: in one part, checking nothing. */
#define run_writing(op, args, written) run_kernel(sc_k_##op, args, SC_SLOTS_##op, written)
#define run_args(op, args) run_writing(op, args, writes_##op())
#define run(op, ...) run_args(op, (&(sc_##op##_args){__VA_ARGS__}))
#define run_once(op, args) call_kernel(sc_k_##op, args, SC_SLOTS_##op)
static void call_kernel(sc_kernel *kernel, const void *args, int slots) {
    sc_task k = task_of(args, slots);
    kernel(&k);
}

/* ── tolerances ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Of a real; where the reference is no more exact than the kernel, of both. */
static const double unit_roundoff = sizeof(real) == 8 ? 0x1p-52 : 0x1p-24;

/* What a value loses by being stored, relative to it. */
static double stored(int dtype) {
    return dtype == BF16                        ? 0x1p-8
           : dtype == FP16                      ? 0x1p-11
           : dtype == FP64 || sizeof(real) == 4 ? unit_roundoff
                                                : 0x1p-24;
}

/* A sum of n products, added up in any order, with fused multiplications or without, is off by no more than γ_n times
 * the sum of the products' magnitudes, γ_n = nu / (1 - nu) (Higham 2002, section 3.1). Roundings are not all of one
 * sign, so a long sum stays within λ √n u, here with λ = 4 (Higham and Mary 2019, theorem 3.1). Measured on OpenBLAS
 * 0.3.21, the storing included: at most 1.2 √n u of n = 8 terms and 0.05 √n u of 1101, with its kernels for Prescott,
 * Nehalem, Haswell, Zen, SkylakeX and Cooperlake. test_kernels.c shows which kernels are caught. */
static double sum_error(int64_t n) {
    double nu = fmin((double)n, 4 * sqrt((double)n)) * unit_roundoff;
    return nu / (1 - nu);
}

/* What a value of this dtype may differ by from `expected`, whose computation is off by `error` before it is stored. */
static double limit_of(int dtype, double expected, double error) {
    return error + stored(dtype) * (fabs(expected) + error) + (dtype == FP16 ? 0x1p-25 : 0); /* subnormals of fp16 */
}

static void near_within(const sc_tensor *t, int64_t i, double expected, double error, const char *what) {
    double got = val(t, i), limit = limit_of(t->dtype, expected, error);
    cr_assert(fabs(got - expected) <= limit, "%s dtype %d [%ld]: %.9g, expected %.9g (± %.2g)", what, t->dtype, (long)i,
              got, expected, limit);
}

/* Element i is a sum of n terms, which is `expected`, and whose terms' magnitudes add up to `size`. */
static void near_sum(const sc_tensor *t, int64_t i, double expected, double size, int64_t n, const char *what) {
    near_within(t, i, expected, sum_error(n) * size, what);
}

/* For what is no sum. Relative to the reference's size and `scale`: what one rounding to the dtype plus some reals'
 * roundings may cost. */
static double tolerance(int dtype) {
    double real_eps = sizeof(real) == 8 ? 1e-13 : 2e-6;
    return dtype == BF16   ? 4.0e-3 + real_eps
           : dtype == FP16 ? 5.0e-4 + real_eps
           : dtype == FP32 ? fmax(1e-7, real_eps)
                           : real_eps;
}
static void near(const sc_tensor *t, int64_t i, double expected, double scale, const char *what) {
    double got = val(t, i), limit = tolerance(t->dtype) * (fabs(expected) + scale);
    cr_assert(fabs(got - expected) <= limit, "%s dtype %d [%ld]: %.9g, expected %.9g (± %.2g)", what, t->dtype, (long)i,
              got, expected, limit);
}

/* Relative to the reference alone. */
static void expect_relative(double got, double expected, double limit, const char *what, int row, int column) {
    cr_assert(isnan(expected) ? isnan(got) : got == expected || fabs(got - expected) <= limit * fabs(expected),
              "%s of row %d, %d: %.9g, expected %.9g", what, row, column, got, expected);
}

static void same(const sc_tensor *y, int64_t i, double expected) {
    cr_assert(val(y, i) == expected, "[%ld]: %g, expected %g", (long)i, val(y, i), expected);
}

static const int dtypes[] = {FP32, BF16, FP16, FP64};
#define FOR_DTYPES for (int di = 0, d = FP32; di < (sizeof(real) == 8 ? 4 : 3) && (d = dtypes[di], 1); di++, release())

#endif
