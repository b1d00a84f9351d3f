/* The numbers of runtime/sc.h's enums, whose names clash with those of compiler/ir/ir.h.
 * Relies on: nothing.
 * Relied on by: test_ir.c. */
#ifndef SC_ENUMS_H
#define SC_ENUMS_H

extern const int sc_dtype_numbers[], sc_stream_numbers[], sc_ndtypes, sc_nstreams;
extern const int sc_function_numbers[6];
extern const int sc_limits[4]; /* dims, tensors, ints, floats */

#endif
