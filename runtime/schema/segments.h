/* The table of an optimizer's op: its rows say which elements of the unit's flat buffer belong to which group.
 * Relies on: nothing.
 * Relied on by: sc_optimizer.h, the optimizers of both targets. */
#ifndef SC_SCHEMA_SEGMENTS_H
#define SC_SCHEMA_SEGMENTS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct { /* a row: numbers in this order */
    int64_t begin, end, group;
    /* Of Philox, where moments are bf16; of Muon's update the bits of a factor on the rate, a double. Only then there
     * is such a number, and a row is a parameter. */
    uint64_t key;
    /* Where the update finds largest magnitudes, behind the key: which one; -1: none. */
    int64_t matrix;
} sc_segment;
enum { SC_SEGMENT = 3 }; /* numbers a row, without those two */

static inline int64_t sc_segments(int64_t numbers, bool keyed, bool finds) {
    return numbers / (SC_SEGMENT + keyed + finds);
}
static inline sc_segment sc_segment_at(const int64_t *table, int64_t i, bool keyed, bool finds) {
    const int64_t *row = table + i * (SC_SEGMENT + keyed + finds);
    sc_segment s = {row[0], row[1], row[2], keyed ? (uint64_t)row[SC_SEGMENT] : 0,
                    finds ? row[SC_SEGMENT + keyed] : -1};
    return s;
}

#endif
