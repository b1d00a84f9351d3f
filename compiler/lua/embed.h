/* The Lua files that are part of the compiler: nn, optim, device profiles.
 * Relies on: nothing.
 * Relied on by: the front end, devices/. */
#ifndef SHARDC_EMBED_H
#define SHARDC_EMBED_H

#include <stddef.h>

const char *embedded_text(const char *name, size_t *n); /* "lua/nn.lua", "devices/h200.lua"; NULL when absent */
const char *embedded_name(int i);                       /* NULL past the end */

#endif
