/* The flags of operands in ops.def.
 * Relies on: nothing.
 * Relied on by: compiler/ir/ops.h; the tests of kernels, which ask what an op writes. */
#ifndef SC_SCHEMA_SLOTS_H
#define SC_SCHEMA_SLOTS_H

enum { OPTIONAL = 1, LENDS = 2, UPDATED = 4, INDICES = 8, LENDS_OF_TWO = 16 };

#endif
