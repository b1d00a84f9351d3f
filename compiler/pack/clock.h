/* How far each stream has come, as a vector clock (Fidge 1988, Mattern 1989): two accesses whose clocks one covers the
 * other are in order. Relies on: purpose.h (streams). Relied on by: pack.h, schedule/schedule.h. */
#ifndef SHARDC_CLOCK_H
#define SHARDC_CLOCK_H

#include "../ir/purpose.h"

/* A place in each stream: 0 before the stream's first event, k after its k-th. */
typedef int Clock[N_STREAMS];

static inline bool clock_covers(const Clock a, const Clock b) { /* a is at least as far as b everywhere */
    for (int s = 0; s < N_STREAMS; s++)
        if (a[s] < b[s]) return false;
    return true;
}
static inline void clock_join(Clock a, const Clock b) {
    for (int s = 0; s < N_STREAMS; s++)
        if (a[s] < b[s]) a[s] = b[s];
}

#endif
