/* The memory that OpenBLAS takes. Every thread gets packing buffers of its own: the serial build scans its table of
 * buffers without a lock (blas_memory_alloc in driver/others/memory.c, 0.3.21), and two threads that call it at once
 * can get the same buffer, and then mix up their products. Where no memory is left for a buffer it would try for ever:
 * here the process ends. And no product calls malloc: see below. Linked in front of the library's functions by a --wrap
 * for each __wrap_ here. Relies on: OpenBLAS (serial), the linker's --wrap. Relied on by: OpenBLAS's own calls, in
 * every binary that links it with these flags; k_blas.c. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { NESTED = 2 }; /* buffers a thread keeps */

/* Weak, so that objects link without the flags too (the wrappers are then unused). */
__attribute__((weak)) void *__real_blas_memory_alloc(int position);
__attribute__((weak)) void __real_blas_memory_free(void *buffer);
__attribute__((weak)) void *__real_mmap(void *at, size_t bytes, int prot, int flags, int file, off_t offset);
void *__wrap_blas_memory_alloc(int position);
void __wrap_blas_memory_free(void *buffer);
void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int file, off_t offset);

typedef struct {
    void *buffer[NESTED];
    bool used[NESTED], registered;
} buffers;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local buffers mine;
static _Thread_local bool taking; /* this thread is in the library's allocator */
size_t sc_blas_buffer_bytes;      /* of a buffer; 0 before the first */

static void *library_alloc(int position) {
    pthread_mutex_lock(&lock);
    taking = true;
    void *p = __real_blas_memory_alloc(position);
    taking = false;
    pthread_mutex_unlock(&lock);
    return p;
}

void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int file, off_t offset) {
    void *p = __real_mmap(at, bytes, prot, flags, file, offset);
    if (!taking) return p;
    if (p == MAP_FAILED) {
        fprintf(stderr,
                "shardc: cannot map a buffer of %zu bytes for OpenBLAS: %s; lift the limit on address space (ulimit -v "
                "unlimited), or give fewer --threads\n",
                bytes, strerror(errno));
        exit(1);
    }
    sc_blas_buffer_bytes = bytes;
    return p;
}

static void library_free(void *p) {
    pthread_mutex_lock(&lock);
    __real_blas_memory_free(p);
    pthread_mutex_unlock(&lock);
}

static void give_back(void *arg) { /* at the end of a thread */
    buffers *b = arg;
    for (int k = 0; k < NESTED; k++)
        if (b->buffer[k]) library_free(b->buffer[k]);
}

static void make_key(void) {
    if (pthread_key_create(&key, give_back)) abort();
}

void *__wrap_blas_memory_alloc(int position) {
    for (int k = 0; k < NESTED; k++) {
        if (mine.used[k]) continue;
        mine.used[k] = true;
        if (!mine.buffer[k]) mine.buffer[k] = library_alloc(position);
        if (!mine.registered) {
            pthread_once(&once, make_key);
            pthread_setspecific(key, &mine);
            mine.registered = true;
        }
        return mine.buffer[k];
    }
    return library_alloc(position);
}

void __wrap_blas_memory_free(void *buffer) {
    for (int k = 0; k < NESTED; k++)
        if (mine.buffer[k] == buffer) {
            mine.used[k] = false; /* kept for this thread's next call */
            return;
        }
    library_free(buffer);
}

/* On processors with AVX-512 the library asks these whether a product is small enough for kernels of its own (up to a
 * million multiplications), and some of those allocate at every call. The kernels for any size pack into the buffers
 * above, so the answer is no (at a model of dim 64 that is 2 % of the speed, at 256 none; another OPENBLAS_CORETYPE
 * that has no such kernels would be 40 %). The names stand in the tables by which the library chooses kernels
 * (setparam-ref.c, DYNAMIC_ARCH); one that a build lacks is never asked for. */
#define NOT_SMALL(core)                                                                                                \
    int __wrap_sgemm_small_matrix_permit_##core(int ta, int tb, long m, long n, long k, float alpha, float beta) {     \
        return 0;                                                                                                      \
    }                                                                                                                  \
    int __wrap_dgemm_small_matrix_permit_##core(int ta, int tb, long m, long n, long k, double alpha, double beta) {   \
        return 0;                                                                                                      \
    }
NOT_SMALL(SKYLAKEX)
NOT_SMALL(COOPERLAKE)
NOT_SMALL(SAPPHIRERAPIDS)
