/* A list of paths for people: those that differ in a layer's number alone are one entry, with the range or the count.
 * Relies on: nothing.
 * Relied on by: weights. */
#ifndef HOST_FOLDED_H
#define HOST_FOLDED_H

/* "wte.weight, h.12-23.attn.bias (12), layers.*.experts.*.up (64)", in the order of first names; in new memory. */
char *folded(const char *const *names, int n);

#endif
