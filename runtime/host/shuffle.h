/* Random numbers by counter, and a random order of n things without a table.
 * Relies on: schema/philox.h.
 * Relied on by: data (order of windows), sample (draws). */
#ifndef HOST_SHUFFLE_H
#define HOST_SHUFFLE_H

#include <stdint.h>

double host_uniform(uint64_t key, uint64_t counter, uint64_t stream); /* in [0, 1) */

/* Place i of the random order of 0..n-1 that belongs to (seed, epoch): a bijection for each. */
int64_t shuffle_at(uint64_t seed, uint64_t epoch, int64_t n, int64_t i);

#endif
