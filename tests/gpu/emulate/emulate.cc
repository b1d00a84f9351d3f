/* Fibers for the threads of a block, and CUDA's runtime calls on plain memory: see mma.h beside this.
 * Relies on: x86-64, System V calls.
 * Relied on by: the GPU tests when they are built without a GPU. */
#include "mma.h"
#include <stdio.h>
#include <stdlib.h>
#include <vector>
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

enum { STACK = 128 << 10 };

struct copy {
    void *to;
    unsigned char bytes[16];
    int n;
};
struct fiber {
    emulated_place place;
    void *stack, *sp;
    bool done;
    long waits_block, waits_warp; /* generations */
    std::vector<copy> copies;
};
struct warp {
    int lanes, arrived;
    long generation;
    const char *what;
    void *brought[32];
};

emulated_place *emulated_self;
char *emulated_shared;
static std::vector<fiber> fibers;
static std::vector<warp> warps;
static std::vector<void *> stacks; /* of threads, kept from launch to launch */
static fiber *self;
static void *scheduler_sp;
static int block_arrived, alive;
static long block_generation;
static void (*block_body)(void *);
static void *block_arg;
static uint64_t dice = 88172645463325252ull;

extern "C" void emulated_switch(void **save, void *load);
asm(".globl emulated_switch\nemulated_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");

[[noreturn]] static void wrong(const char *what, const char *other) {
    fprintf(stderr, "emulate: block %u, thread %u: %s%s%s\n", self->place.block.x, self->place.thread.x, what,
            other ? " meets " : "", other ? other : "");
    abort();
}
static void rest() {
    emulated_switch(&self->sp, scheduler_sp);
}
static void fiber_main() {
    block_body(block_arg);
    if (!self->copies.empty()) wrong("ends with copies under way", NULL);
    self->done = true;
    alive--;
    if (block_arrived && block_arrived == alive) wrong("ends while others wait at a barrier", NULL);
    rest();
    abort();
}

void emulated_meet(const char *what, void (*together)(void **lanes), void *mine) {
    warp &w = warps[self->place.thread.x / 32];
    if (w.arrived && w.what != what && strcmp(w.what, what)) wrong(what, w.what);
    w.what = what;
    w.brought[self->place.thread.x % 32] = mine;
    self->waits_warp = w.generation + 1;
    if (++w.arrived == w.lanes) {
        together(w.brought);
        w.arrived = 0;
        w.generation++;
    } else {
        rest();
    }
}
void __syncwarp(unsigned) {
    emulated_meet(
        "__syncwarp", [](void **) {}, NULL);
}
void __syncthreads() {
    self->waits_block = block_generation + 1;
    if (++block_arrived == alive) {
        block_arrived = 0;
        block_generation++;
    } else {
        rest();
    }
}

void emulated_copy(void *to, const void *from, int bytes, bool inside) {
    if ((uintptr_t)to % bytes || (uintptr_t)from % bytes) wrong("misaligned cp.async", NULL);
    copy c = {to, {}, bytes};
    if (inside) memcpy(c.bytes, from, bytes);
    memset(to, 0xff, bytes);
    self->copies.push_back(c);
}
void emulated_arrive() {
    for (copy &c : self->copies) memcpy(c.to, c.bytes, c.n);
    self->copies.clear();
}

/* Runs the warp's fibers until all of them wait for the block. */
static void run_warp(int which) {
    warp &w = warps[which];
    for (bool moved = true; moved;) {
        moved = false;
        for (int l = 0; l < w.lanes; l++) {
            fiber &f = fibers[which * 32 + l];
            if (f.done || f.waits_block > block_generation || f.waits_warp > w.generation) continue;
            self = &f;
            emulated_self = &f.place;
            emulated_switch(&scheduler_sp, f.sp);
            moved = true;
        }
    }
}
static int throw_dice(int n) {
    dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
    return (int)(dice % (uint64_t)n);
}
static void run_block(int64_t block, int64_t blocks, int threads, size_t shared) {
    memset(emulated_shared, 0xff, shared);
    block_arrived = 0;
    alive = threads;
    for (warp &w : warps) w.arrived = 0;
    for (int t = 0; t < threads; t++) {
        fiber &f = fibers[t];
        f.place = {{(unsigned)t, 0, 0}, {(unsigned)block, 0, 0}, dim3((unsigned)threads), dim3((unsigned)blocks)};
        f.done = false;
        f.waits_block = f.waits_warp = 0;
        void **top = (void **)((char *)f.stack + STACK) - 8; /* an odd number of words above: as after a call */
        top[6] = (void *)fiber_main;
        f.sp = top;
    }
    std::vector<int> order(warps.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = (int)i;
    for (int still = 0; alive; still++) {
        int before = alive;
        long generation = block_generation;
        for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[throw_dice((int)i)]);
        for (int w : order) run_warp(w);
        if (alive == before && generation == block_generation) wrong("waits for ever", NULL);
    }
}
void emulated_launch(void (*body)(void *), void *arg, int64_t blocks, int threads, size_t shared) {
    block_body = body;
    block_arg = arg;
    emulated_shared = (char *)aligned_alloc(16, (shared + 15) / 16 * 16 + 16);
    fibers.assign(threads, fiber{});
    warps.assign((threads + 31) / 32, warp{});
    for (size_t i = 0; i < warps.size(); i++) warps[i].lanes = std::min(32, threads - (int)i * 32);
    while (stacks.size() < fibers.size()) stacks.push_back(aligned_alloc(64, STACK));
    for (size_t i = 0; i < fibers.size(); i++) fibers[i].stack = stacks[i];
    for (int64_t b = 0; b < blocks; b++) run_block(b, blocks, threads, shared);
    free(emulated_shared);
}

/* ── the runtime ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
extern "C" {
cudaError_t cudaMalloc(void **p, size_t n) {
    *p = aligned_alloc(256, (n + 255) / 256 * 256);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void *p) {
    free(p);
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t n, cudaMemcpyKind) {
    memcpy(to, from, n);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *to, int x, size_t n, cudaStream_t) {
    memset(to, x, n);
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *s) {
    *s = NULL;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int) {
    *value = 9; /* asked for: the major number of a GPU's architecture */
    return cudaSuccess;
}
cudaError_t cudaGetLastError() {
    return cudaSuccess;
}
const char *cudaGetErrorName(cudaError_t) {
    return "an error";
}
const char *cudaGetErrorString(cudaError_t) {
    return "an error";
}
}

/* cuDNN is not ours: every attention is our own kernel's. */
extern "C" bool sc_cudnn_attention(const sc_task *, bool) {
    return false;
}
extern "C" void sc_cudnn_attention_stop(sc_cuda *) {}
