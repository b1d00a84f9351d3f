/* Instructions of compute capability 9.0: barriers in shared memory, copies of tiles by the copy engine, wgmma.
 * Relies on: launch.cuh, mma.h (element types); sm_90a.
 * Relied on by: k_matmul_hopper.cu, k_matmul_hopper_fp8.cu, grouped_hopper.cuh, k_orthogonalize_hopper.cu,
 * attention_hopper.cuh.
 *
 * A tile of 16-bit elements lies in shared memory as blocks of 64 columns (of 8 bits: 128): rows of 128 bytes, whose
 * 16-byte pieces are swizzled (piece c of row r lies at place c ^ r % 8), 1024 bytes for eight rows. Blocks begin at
 * multiples of 1024. */
#ifndef SC_HOPPER_CUH
#define SC_HOPPER_CUH

#include "mma.h"

#include <cuda.h>

/* ── barriers ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
SC_DEVICE void barrier_init(uint32_t b, int n) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(n) : "memory");
}
SC_DEVICE void barrier_expect(uint32_t b, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}
SC_DEVICE void barrier_arrive(uint32_t b) { /* of any block of a cluster */
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(b) : "memory");
}
SC_DEVICE void barrier_wait(uint32_t b, int parity) {
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again; }" ::"r"(b),
                 "r"(parity)
                 : "memory");
}
SC_DEVICE void group_sync(int group) { /* four warps */
    asm volatile("barrier.sync %0, 128;" ::"r"(1 + group) : "memory");
}
/* Writes to shared memory by this thread come before copies and products that are started after the next barrier. */
SC_DEVICE void shared_fence(void) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ── blocks of a cluster ─────────────────────────────────────────────────────────────────────────────────────────────
 */
SC_DEVICE uint32_t in_block(uint32_t at, int rank) { /* the same address in a block of the cluster */
    uint32_t r;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at), "r"(rank));
    return r;
}
SC_DEVICE void cluster_sync(void) {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

/* The copy engine brings a box of a tensor of four dimensions, from x, y, z, u on, into the same place of both blocks
 * of a pair, and tells the barrier there. */
SC_DEVICE void copy_in_both(uint32_t to, const CUtensorMap *m, uint32_t barrier, int x, int y, int z, int u) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
                 "l"(m), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(u), "h"((uint16_t)3)
                 : "memory");
}

/* ── pieces of tiles ─────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Four 8 × 8 pieces of 16-bit elements in the layout of the sums; a lane gives the address of a row. */
SC_DEVICE void put_pieces(uint32_t to, const uint32_t *r) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(r[0]), "r"(r[1]),
                 "r"(r[2]), "r"(r[3])
                 : "memory");
}
SC_DEVICE void get_pieces(uint32_t from, uint32_t *r) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}

/* ── copies out: their shared memory may be written again after copied_from(), they are done after copied_out() ───────
 */
SC_DEVICE void copies_out(void) {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
SC_DEVICE void copied_from(void) {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
SC_DEVICE void copied_out(void) {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* ── wgmma ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
SC_DEVICE void sums_fence(void) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
SC_DEVICE void sums_commit(void) {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int LEFT> SC_DEVICE void sums_wait(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
/* The compiler must not read these sums before here. */
template <int N> SC_DEVICE void sums_here(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

/* A matrix in shared memory, by the lower word of its descriptor: its address in units of 16 bytes, and in the upper
 * half what follows. */
SC_DEVICE uint64_t matrix_of(uint32_t low) {
    return low | 64ull << 32 | 1ull << 62;
}
/* One whose rows are what the product keeps (a[m][k], b[n][k]), from its address on; 16 of k further is 2 more. */
SC_DEVICE uint64_t matrix_rows(uint32_t at) {
    return matrix_of(at >> 4 | 1 << 16);
}
/* One whose rows are what the product sums over (a[k][m], b[k][n]), blocks of 64 columns `apart` bytes from each other;
 * 16 of k further is 128 more. */
SC_DEVICE uint64_t matrix_turned(uint32_t at, int apart) {
    return matrix_of(at >> 4 | apart >> 4 << 16);
}

#define SC_FOUR(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SC_SIXTEEN(d, i) SC_FOUR(d, i), SC_FOUR(d, i + 4), SC_FOUR(d, i + 8), SC_FOUR(d, i + 12)
#define SC_OUT_16(d) SC_SIXTEEN(d, 0)
#define SC_OUT_32(d) SC_SIXTEEN(d, 0), SC_SIXTEEN(d, 16)
#define SC_OUT_64(d) SC_OUT_32(d), SC_SIXTEEN(d, 32), SC_SIXTEEN(d, 48)
#define SC_OUT_96(d) SC_OUT_64(d), SC_SIXTEEN(d, 64), SC_SIXTEEN(d, 80)
#define SC_OUT_128(d) SC_OUT_64(d), SC_SIXTEEN(d, 64), SC_SIXTEEN(d, 80), SC_SIXTEEN(d, 96), SC_SIXTEEN(d, 112)
#define SC_REGISTERS_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define SC_REGISTERS_32                                                                                                \
    SC_REGISTERS_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SC_REGISTERS_64                                                                                                \
    SC_REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "               \
                    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SC_REGISTERS_96                                                                                                \
    SC_REGISTERS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "               \
                    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define SC_REGISTERS_128                                                                                               \
    SC_REGISTERS_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "   \
                    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/* Of N columns, S = N / 2 sums a thread; a from shared memory, numbers of the operands after the sums'. */
#define SC_WGMMA_SHARED(N, S, TYPE, A, B, ADD, TA, TB)                                                                 \
    asm volatile("{ .reg .pred add;\nsetp.ne.b32 add, %" #ADD ", 0;\n"                                                 \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" SC_REGISTERS_##S                 \
                 "}, %" #A ", %" #B ", add, 1, 1, %" #TA ", %" #TB "; }"                                               \
                 : SC_OUT_##S(d)                                                                                       \
                 : "l"(a), "l"(b), "r"(add), "n"(TURN_A), "n"(TURN_B))
#define SC_WGMMA_HELD(N, S, TYPE, A0, A1, A2, A3, B, ADD, TB)                                                          \
    asm volatile("{ .reg .pred add;\nsetp.ne.b32 add, %" #ADD ", 0;\n"                                                 \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" SC_REGISTERS_##S                 \
                 "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", add, 1, 1, %" #TB "; }"                        \
                 : SC_OUT_##S(d)                                                                                       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TURN_B))

template <class E> constexpr bool is_bf16 = false;
template <> constexpr bool is_bf16<sc_bf16> = true;

/* d[64][N] (+)= a[64][16] b[16][N] of a group of four warps, a and b by their descriptors; TURN: by matrix_turned.
 * add: 0 for the first. */
template <class E, int TURN_A, int TURN_B, int S>
SC_DEVICE void sums_add(float (&d)[S], uint64_t a, uint64_t b, int add) {
    static_assert(S == 16 || S == 32 || S == 64 || S == 96 || S == 128, "sums a thread");
    if constexpr (is_bf16<E>) {
        if constexpr (S == 16) SC_WGMMA_SHARED(32, 16, "bf16", 16, 17, 18, 19, 20);
        if constexpr (S == 32) SC_WGMMA_SHARED(64, 32, "bf16", 32, 33, 34, 35, 36);
        if constexpr (S == 64) SC_WGMMA_SHARED(128, 64, "bf16", 64, 65, 66, 67, 68);
        if constexpr (S == 96) SC_WGMMA_SHARED(192, 96, "bf16", 96, 97, 98, 99, 100);
        if constexpr (S == 128) SC_WGMMA_SHARED(256, 128, "bf16", 128, 129, 130, 131, 132);
    } else {
        if constexpr (S == 16) SC_WGMMA_SHARED(32, 16, "f16", 16, 17, 18, 19, 20);
        if constexpr (S == 32) SC_WGMMA_SHARED(64, 32, "f16", 32, 33, 34, 35, 36);
        if constexpr (S == 64) SC_WGMMA_SHARED(128, 64, "f16", 64, 65, 66, 67, 68);
        if constexpr (S == 96) SC_WGMMA_SHARED(192, 96, "f16", 96, 97, 98, 99, 100);
        if constexpr (S == 128) SC_WGMMA_SHARED(256, 128, "f16", 128, 129, 130, 131, 132);
    }
}
/* The same with a in registers, as sc_mma has it, of the warp's 16 rows. */
template <class E, int TURN_B, int S>
SC_DEVICE void sums_add_held(float (&d)[S], const uint32_t *a, uint64_t b, int add) {
    static_assert(S == 16 || S == 32 || S == 64 || S == 96 || S == 128, "sums a thread");
    if constexpr (is_bf16<E>) {
        if constexpr (S == 16) SC_WGMMA_HELD(32, 16, "bf16", 16, 17, 18, 19, 20, 21, 22);
        if constexpr (S == 32) SC_WGMMA_HELD(64, 32, "bf16", 32, 33, 34, 35, 36, 37, 38);
        if constexpr (S == 64) SC_WGMMA_HELD(128, 64, "bf16", 64, 65, 66, 67, 68, 69, 70);
        if constexpr (S == 96) SC_WGMMA_HELD(192, 96, "bf16", 96, 97, 98, 99, 100, 101, 102);
        if constexpr (S == 128) SC_WGMMA_HELD(256, 128, "bf16", 128, 129, 130, 131, 132, 133, 134);
    } else {
        if constexpr (S == 16) SC_WGMMA_HELD(32, 16, "f16", 16, 17, 18, 19, 20, 21, 22);
        if constexpr (S == 32) SC_WGMMA_HELD(64, 32, "f16", 32, 33, 34, 35, 36, 37, 38);
        if constexpr (S == 64) SC_WGMMA_HELD(128, 64, "f16", 64, 65, 66, 67, 68, 69, 70);
        if constexpr (S == 96) SC_WGMMA_HELD(192, 96, "f16", 96, 97, 98, 99, 100, 101, 102);
        if constexpr (S == 128) SC_WGMMA_HELD(256, 128, "f16", 128, 129, 130, 131, 132, 133, 134);
    }
}

/* Of 8 bits, both by matrix_rows: d[64][128] (+)= a[64][32] b[32][128], 32 of k further is 2 more. */
#define SC_WGMMA_BYTES(A, B)                                                                                           \
    asm volatile("{ .reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"                                                       \
                 "wgmma.mma_async.sync.aligned.m64n128k32.f32." A "." B " {" SC_REGISTERS_64                           \
                 "}, %64, %65, add, 1, 1; }"                                                                           \
                 : SC_OUT_64(d)                                                                                        \
                 : "l"(a), "l"(b), "r"(add))
template <bool A_E5M2, bool B_E5M2> SC_DEVICE void sums_add_bytes(float (&d)[64], uint64_t a, uint64_t b, int add) {
    static_assert(!A_E5M2 || !B_E5M2, "gradients of gradients are not there");
    if constexpr (A_E5M2 && !B_E5M2) SC_WGMMA_BYTES("e5m2", "e4m3");
    if constexpr (!A_E5M2 && B_E5M2) SC_WGMMA_BYTES("e4m3", "e5m2");
    if constexpr (!A_E5M2 && !B_E5M2) SC_WGMMA_BYTES("e4m3", "e4m3");
}

/* ── tiles of tensors for the copy engine, on the host ────────────────────────────────────────────────────────────────
 */
/* `dims` sizes in elements, columns first; strides in bytes, from the second dimension on. Swizzled over the width of a
 * box's rows, 128 bytes or 64. What lies outside is read as 0 and not written. */
static inline CUtensorMap sc_tiles(int dtype, const void *p, int dims, const cuuint64_t *size, const cuuint64_t *stride,
                                   const cuuint32_t *box) {
    typedef CUresult encoder(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                             const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                             CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    cudaDriverEntryPointQueryResult found;
    void *at = NULL;
    CUtensorMap m;
    const cuuint32_t one[5] = {1, 1, 1, 1, 1};
    SC_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &at, 12000, cudaEnableDefault, &found));
    bool bytes = dtype == FP8_E4M3 || dtype == FP8_E5M2;
    CUresult r =
        ((encoder *)at)(&m,
                        bytes           ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                        : dtype == BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                        : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                        (cuuint32_t)dims, (void *)p, size, stride, box, one, CU_TENSOR_MAP_INTERLEAVE_NONE,
                        box[0] * (bytes ? 1 : 2) == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r != CUDA_SUCCESS)
        sc_failed("CUDA", "cuTensorMapEncodeTiled", "CUresult", "a tensor that it does not take", __FILE__, __LINE__);
    return m;
}

#endif
