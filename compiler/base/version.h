/* Which shardc this is: its version, and the commit that it was compiled of where git knew one.
 * Relies on: nothing. Relied on by: main.c, emit/build.c, which hands it to programs. */
#ifndef SHARDC_VERSION_H
#define SHARDC_VERSION_H

#define SHARDC_RELEASE "0.1"
extern const char shardc_version[]; /* "0.1 (commit c2cba42)"; "0.1" where no git was */

#endif
