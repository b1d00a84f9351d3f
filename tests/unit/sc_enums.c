/* Exports the numbers of runtime/sc.h's enums to a test that cannot include it beside ir.h.
 * Relies on: runtime/sc.h.
 * Relied on by: test_ir.c. */
#include "sc_enums.h"
#include "sc.h"

const int sc_dtype_numbers[] = {FP32, BF16, FP16, FP64, FP8_E4M3, FP8_E5M2, INT32, INT64, BOOL};
const int sc_stream_numbers[] = {COMPUTE, GATHER, REDUCE, OFFLOAD, FETCH, HOST, UPDATE, SC_STREAMS};
const int sc_function_numbers[6] = {SC_GELU_TOO, SC_GELU_GRAD, SC_GELU, SC_GATED_TOO, SC_GATED, SC_GATE_GRADS};
const int sc_ndtypes = sizeof sc_dtype_numbers / sizeof(int), sc_nstreams = sizeof sc_stream_numbers / sizeof(int);
const int sc_limits[4] = {SC_DIMS, SC_TENSORS, SC_INTS, SC_FLOATS};
