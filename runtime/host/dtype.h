/* Element types on the host side: sizes, safetensors names, conversion.
 * Relies on: schema/types.h.
 * Relied on by: safetensors, weights, checkpoint, records, sample. */
#ifndef HOST_DTYPE_H
#define HOST_DTYPE_H

#include "../sc.h"

const char *host_dtype_name(sc_dtype d); /* "bf16" */
const char *host_dtype_st(sc_dtype d);   /* "BF16", as safetensors says it */
bool host_dtype_float(sc_dtype d);
bool host_dtype_integer(sc_dtype d);

double host_get(sc_dtype d, const void *p, int64_t i);   /* element i of an array */
void host_put(sc_dtype d, void *p, int64_t i, double x); /* rounds to nearest, ties to even */
int64_t host_get_int(sc_dtype d, const void *p, int64_t i);
void host_put_int(sc_dtype d, void *p, int64_t i, int64_t x);
void host_convert(sc_dtype to, void *dst, sc_dtype from, const void *src, int64_t n);

#endif
