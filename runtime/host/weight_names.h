/* Names of tensors in files of weights, and of the parameters that they become. All return new memory, or NULL.
 * Relies on: nothing.
 * Relied on by: weights. */
#ifndef HOST_WEIGHT_NAMES_H
#define HOST_WEIGHT_NAMES_H

/* What `name` is called by the map FILE=MODEL, two names or two patterns with one * each; NULL: it is for others. */
char *weight_renamed(const char *map, const char *name);
/* The parameter that `path` begins as a copy of by FROM=TO; NULL: it is another one's. */
char *weight_copied_from(const char *copy, const char *path);
/* `name` without what PyTorch's wrappers of modules put into it; NULL: there is nothing of them. */
char *weight_unwrapped(const char *name);

#endif
