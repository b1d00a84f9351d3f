/* Philox4x32-10, a counter-based generator: 128 bits of counter and 64 of key give 128 random bits, in any order.
 * J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw: Parallel random numbers: as easy as 1, 2, 3. SC '11.
 * Relies on: schema/fn.h.
 * Relied on by: kernels that draw (dropout, attention, init_param), runtime/host's shuffling, the tests. */
#ifndef SC_PHILOX_H
#define SC_PHILOX_H

#include "fn.h"
#include <stdint.h>

typedef struct {
    uint32_t w[4];
} sc_block;

SC_FN sc_block sc_philox(sc_block c, uint32_t k0, uint32_t k1) {
    for (int round = 0; round < 10; round++) {
        uint64_t p = (uint64_t)0xD2511F53u * c.w[0], q = (uint64_t)0xCD9E8D57u * c.w[2];
        sc_block next = {
            {(uint32_t)(q >> 32) ^ c.w[1] ^ k0, (uint32_t)q, (uint32_t)(p >> 32) ^ c.w[3] ^ k1, (uint32_t)p}};
        c = next;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

/* splitmix64's finaliser: spreads a key over all bits. */
SC_FN uint64_t sc_mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The stream of (seed, key): one of them for every random op and every parameter. Element e of a stream at (a, b) is
 * word e % 4 of the block with counter (e / 4, a, b). */
SC_FN uint64_t sc_stream_key(uint64_t seed, uint64_t key) {
    return sc_mix(sc_mix(seed + 0x9e3779b97f4a7c15u) ^ key);
}

#endif
