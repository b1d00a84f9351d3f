/* A counter that threads and processes wait on without spinning: a futex word and the number of its sleepers.
 * Relies on: Linux futexes (not private: they work across the ranks' shared memory), C11 atomics.
 * Relied on by: stream.c, collective.c, launch.c, runtime/host/background.c. */
#ifndef SC_FLAG_H
#define SC_FLAG_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct {
    _Atomic uint32_t value, sleepers;
} sc_flag;

/* Everything written before is visible to who sees the new value. The sleeper announces itself before it looks at the
 * value again, and we look for sleepers after we changed it (both sequentially consistent): no wake-up is lost. */
static inline void sc_flag_add(sc_flag *f, uint32_t n) {
    atomic_fetch_add(&f->value, n);
    if (atomic_load(&f->sleepers)) syscall(SYS_futex, &f->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Counters only grow and may wrap: the difference decides. */
static inline bool sc_flag_reached(sc_flag *f, uint32_t target) {
    return (int32_t)(atomic_load(&f->value) - target) >= 0;
}

static inline void sc_flag_wait(sc_flag *f, uint32_t target) {
    if (sc_flag_reached(f, target)) return;
    atomic_fetch_add(&f->sleepers, 1);
    for (;;) {
        uint32_t v = atomic_load(&f->value);
        if ((int32_t)(v - target) >= 0) break;
        syscall(SYS_futex, &f->value, FUTEX_WAIT, v, NULL, NULL, 0);
    }
    atomic_fetch_sub(&f->sleepers, 1);
}

#endif
