/* Random numbers by counter, and a random order of n things without a table.
 *   Order: a Feistel network over the smallest even number of bits that holds n, applied again while the result is not
 *   below n ("cycle walking": Black, Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002); under four rounds
 * of it on average. Any place of any epoch is found at once, so a run resumes anywhere and no rank holds a table.
 * Relies on: schema/philox.h.
 * Relied on by: data, sample. */
#include "shuffle.h"
#include "../schema/philox.h"

static sc_block philox(uint64_t key, uint64_t counter, uint64_t stream) {
    sc_block c = {{(uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)}};
    return sc_philox(c, (uint32_t)key, (uint32_t)(key >> 32));
}

double host_uniform(uint64_t key, uint64_t counter, uint64_t stream) {
    sc_block r = philox(key, counter, stream);
    return (double)((uint64_t)r.w[0] << 21 | r.w[1] >> 11) * 0x1p-53;
}

enum { FEISTEL_ROUNDS = 6 };

static uint64_t feistel(uint64_t seed, uint64_t epoch, int half, uint64_t x) {
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        sc_block r = philox(seed, right, epoch << 8 | round);
        uint64_t next = left ^ (((uint64_t)r.w[1] << 32 | r.w[0]) & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

int64_t shuffle_at(uint64_t seed, uint64_t epoch, int64_t n, int64_t i) {
    int half = 1;
    while (half < 31 && (uint64_t)1 << 2 * half < (uint64_t)n) half++;
    uint64_t x = (uint64_t)i;
    do x = feistel(seed, epoch, half, x);
    while (x >= (uint64_t)n);
    return (int64_t)x;
}
