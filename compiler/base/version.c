/* The version as text. Make compiles this file again when the commit is another one.
 * Relies on: SHARDC_COMMIT, which the Makefile gives; "" where there is no git. Relied on by: version.h's users. */
#include "version.h"

#ifndef SHARDC_COMMIT
#define SHARDC_COMMIT ""
#endif

const char shardc_version[] = SHARDC_RELEASE SHARDC_COMMIT;
