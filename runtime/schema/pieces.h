/* The table of amax, quantize_shard and a model's own all-gather: wires, then a row for each parameter of a unit; and
 * which part of a parameter lies in a rank's slice.
 * Relies on: nothing.
 * Relied on by: amax and quantize_shard of both targets. */
#ifndef SC_SCHEMA_PIECES_H
#define SC_SCHEMA_PIECES_H

#include <stdint.h>

typedef struct { /* of a slice; none where end <= begin */
    int64_t begin, end;
} sc_piece;

/* Rows of a table of so many numbers. */
static inline int64_t sc_pieces(const int64_t *table, int64_t numbers) {
    return (numbers - 1 - 2 * table[0]) / 3;
}
/* Of row i: what lies in elements [first, first + n) of the flat buffer. */
static inline sc_piece sc_piece_at(const int64_t *table, int64_t i, int64_t first, int64_t n) {
    const int64_t *row = table + 1 + 2 * table[0] + 3 * i; /* flat offset, numel, number */
    int64_t begin = row[0] - first, end = begin + row[1];
    sc_piece p = {begin > 0 ? begin : 0, end < n ? end : n};
    return p;
}

#endif
