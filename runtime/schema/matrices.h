/* The table of the op orthogonalize: which matrices of a unit's flat buffer there are, and which rank computes each.
 * Relies on: nothing.
 * Relied on by: lower/shard/optimizer.c, ir/rules_shard.c, rules_work.c; the kernels of both targets, and their tests.
 */
#ifndef SC_SCHEMA_MATRICES_H
#define SC_SCHEMA_MATRICES_H

#include <stdint.h>

typedef struct { /* a row, numbers in this order: `count` matrices one behind the other, row-major */
    int64_t at, count, rows, cols;
    int64_t owner; /* the place on the op's axis of the rank that computes them */
} sc_matrices;
enum { SC_MATRICES = 5 }; /* numbers a row */

static inline sc_matrices sc_matrices_at(const int64_t *table, int64_t i) {
    const int64_t *row = table + i * SC_MATRICES;
    sc_matrices m = {row[0], row[1], row[2], row[3], row[4]};
    return m;
}
static inline int64_t sc_matrices_short(sc_matrices m) {
    return m.rows < m.cols ? m.rows : m.cols;
}
static inline int64_t sc_matrices_long(sc_matrices m) {
    return m.rows < m.cols ? m.cols : m.rows;
}

#endif
