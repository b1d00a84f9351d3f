/* Random numbers by counter, and a random order of n things without a table.
 *   Philox: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
 *   Order: a Feistel network over the smallest even number of bits that holds n, applied again while the result is not
 *   below n ("cycle walking": Black, Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002); under four rounds
 * of it on average. Any place of any epoch is found at once, so a run resumes anywhere and no rank holds a table.
 * Relies on: nothing.
 * Relied on by: data, sample. */
#include "shuffle.h"

void host_philox(uint64_t key, uint64_t counter, uint64_t stream, uint32_t out[4]) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k1, (uint32_t)a};
        for (int i = 0; i < 4; i++) c[i] = next[i];
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++) out[i] = c[i];
}

double host_uniform(uint64_t key, uint64_t counter, uint64_t stream) {
    uint32_t r[4];
    host_philox(key, counter, stream, r);
    return (double)((uint64_t)r[0] << 21 | r[1] >> 11) * 0x1p-53;
}

enum { FEISTEL_ROUNDS = 6 };

static uint64_t feistel(uint64_t seed, uint64_t epoch, int half, uint64_t x) {
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        uint32_t r[4];
        host_philox(seed, right, epoch << 8 | round, r);
        uint64_t next = left ^ (((uint64_t)r[1] << 32 | r[0]) & mask);
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
