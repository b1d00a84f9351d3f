/* The arenas of a rank: one on the device, one pinned on the host, taken once after a look at what is free; and the
 * bytes that travel between the training program and the device.
 * Relies on: rank.h, common/lives.h.
 * Relied on by: rank.c. */
#include "../common/lives.h"
#include "rank.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { STAGE = 16 << 20, HUGE = 2 << 20, SMALL = 4096 /* pages */ };

/* ── is there room? All ranks look first, and one of them speaks ─────────────────────────────────────────────────────
 */
static void look(sc_rank *r) {
    sc_room *room = &r->w->common->room[r->rank];
    struct cudaDeviceProp p;
    size_t free_bytes, total;
    SC_CUDA(cudaGetDeviceProperties(&p, r->t->cuda.device));
    SC_CUDA(cudaMemGetInfo(&free_bytes, &total));
    room->free_bytes = (int64_t)free_bytes;
    room->total_bytes = (int64_t)total;
    snprintf(room->device, sizeof room->device, "%.63s", p.name);
    sc_barrier(r);
}

static uint64_t free_for(const sc_rank *r, int k) {
    return (uint64_t)(r->w->common->room[k].free_bytes / sc_sharers(r, k, r->world));
}

static void check_room(sc_rank *r) {
    const double gib = 1024. * 1024 * 1024;
    int worst = 0;
    char shared[64] = "";
    look(r);
    for (int k = 1; k < r->world; k++)
        if (free_for(r, k) < free_for(r, worst)) worst = k;
    if (free_for(r, worst) >= r->b->arena_bytes) return;
    if (worst != r->rank) /* that rank tells it, and the launcher ends us */
        for (;;) pause();
    const sc_room *room = &r->w->common->room[worst];
    int sharers = sc_sharers(r, worst, r->world);
    if (sharers > 1) snprintf(shared, sizeof shared, " for the %d ranks that share it", sharers);
    sc_stop(r, 1,
            "shardc: %s does not fit: its arena takes %.2f GiB (%llu bytes), and %.2f GiB (%lld bytes) of %.2f are "
            "free on GPU %d (%s) beside the libraries%s; stop what else runs there, or build with a smaller batch, "
            "recompute, offload or more ranks",
            r->b->name, (double)r->b->arena_bytes / gib, (unsigned long long)r->b->arena_bytes,
            (double)room->free_bytes / gib, (long long)room->free_bytes, (double)room->total_bytes / gib,
            r->t->cuda.device, room->device, shared);
}

/* ── arenas ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void touch(void *arg, int part) {
    sc_rank *r = arg;
    size_t pages = (r->b->host_bytes + HUGE - 1) / HUGE, parts = (size_t)r->b->threads;
    size_t from = pages * (size_t)part / parts * HUGE, to = pages * ((size_t)part + 1) / parts * HUGE;
    for (size_t at = from; at < to && at < r->b->host_bytes; at += SMALL) *(volatile uint8_t *)(r->arena[1] + at) = 0;
}

/* Huge pages, first touched by many threads: 28 GiB are there and pinned within 3 s; 4 KiB pages of shared memory took
 * 12 to 20. */
static void pin_arena(sc_rank *r) {
    sc_pool pool = {0};
    void *p = mmap(NULL, r->b->host_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        sc_stop(r, 1, "shardc: rank %d cannot map its host arena of %llu bytes: %s", r->rank,
                (unsigned long long)r->b->host_bytes, strerror(errno));
    madvise(p, r->b->host_bytes, MADV_HUGEPAGE); /* a hint: it may fail */
    r->arena[1] = p;
    sc_check_thread(r, sc_pool_start(&pool, r->b->threads, NULL));
    sc_pool_run(&pool, touch, r);
    sc_pool_stop(&pool);
    cudaError_t wrong = cudaHostRegister(p, r->b->host_bytes, cudaHostRegisterPortable);
    if (wrong) /* "out of memory" would be taken for the GPU's */
        sc_stop(
            r, 1,
            "shardc: rank %d cannot pin its host arena of %.2f GiB (%llu bytes): %s; see `ulimit -l` and the memory "
            "limit of the container, or offload less",
            r->rank, (double)r->b->host_bytes / (1 << 30), (unsigned long long)r->b->host_bytes,
            cudaGetErrorString(wrong));
}

void sc_arenas_new(sc_rank *r) {
    void *p = NULL;
    check_room(r);
    if (r->world > 1) /* memory that NCCL can make a window of */
        SC_NCCL(ncclMemAlloc(&p, r->b->arena_bytes));
    else
        SC_CUDA(cudaMalloc(&p, r->b->arena_bytes));
    r->arena[0] = p;
    SC_CUDA(cudaMemset(p, r->d->poison ? SC_POISON : 0, r->b->arena_bytes));
    if (r->b->host_bytes) pin_arena(r);
    SC_CUDA(cudaHostAlloc(&p, STAGE, cudaHostAllocDefault));
    r->t->stage = p;
}

void sc_arenas_free(sc_rank *r) {
    SC_CUDA(cudaFreeHost(r->t->stage));
    if (r->arena[1]) {
        SC_CUDA(cudaHostUnregister(r->arena[1]));
        munmap(r->arena[1], r->b->host_bytes);
    }
    if (r->world > 1)
        SC_NCCL(ncclMemFree(r->arena[0]));
    else
        SC_CUDA(cudaFree(r->arena[0]));
}

/* ── bytes between the training program and the arenas, between programs ─────────────────────────────────────────────
 */
/* Copies wait in pinned memory for the compute stream, so that the caller's bytes are its own again at once. */
static uint8_t *stage(sc_rank *r, size_t bytes) {
    if (r->t->staged + bytes > STAGE) {
        SC_CUDA(cudaStreamSynchronize(r->t->stream[COMPUTE]));
        r->t->staged = 0;
    }
    uint8_t *p = r->t->stage + r->t->staged;
    r->t->staged += (bytes + 255) / 256 * 256;
    return p;
}

void sc_stage_reset(sc_rank *r) {
    r->t->staged = 0;
}

static size_t piece_of(size_t bytes) {
    return bytes < STAGE ? bytes : STAGE;
}

void sc_write(sc_rank *r, int host, uint64_t at, const void *src, size_t bytes) {
    sc_check_range(r, "write", host, at, bytes);
    if (host) {
        memcpy(r->arena[1] + at, src, bytes);
        return;
    }
    for (size_t done = 0; done < bytes;) {
        size_t n = piece_of(bytes - done);
        uint8_t *p = stage(r, n);
        memcpy(p, (const uint8_t *)src + done, n);
        SC_CUDA(cudaMemcpyAsync(r->arena[0] + at + done, p, n, cudaMemcpyHostToDevice, r->t->stream[COMPUTE]));
        done += n;
    }
}

void sc_read(sc_rank *r, int host, uint64_t at, void *dst, size_t bytes) {
    sc_check_range(r, "read", host, at, bytes);
    if (host) {
        memcpy(dst, r->arena[1] + at, bytes);
        return;
    }
    for (size_t done = 0; done < bytes;) {
        size_t n = piece_of(bytes - done);
        uint8_t *p = stage(r, n);
        SC_CUDA(cudaMemcpyAsync(p, r->arena[0] + at + done, n, cudaMemcpyDeviceToHost, r->t->stream[COMPUTE]));
        SC_CUDA(cudaStreamSynchronize(r->t->stream[COMPUTE]));
        memcpy((uint8_t *)dst + done, p, n);
        done += n;
    }
    sc_stage_reset(r);
}
