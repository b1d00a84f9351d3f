/* Names of tensors in files of weights, and of the parameters that they become.
 * Relies on: die (memory).
 * Relied on by: weights. */
#include "weight_names.h"
#include "die.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

char *weight_renamed(const char *map, const char *name) {
    const char *equals = strchr(map, '='), *to = equals + 1, *star = memchr(map, '*', (size_t)(equals - map));
    size_t n = strlen(name), head = (size_t)((star ? star : equals) - map),
           tail = star ? (size_t)(equals - star - 1) : 0;
    if (n < head + tail || (!star && n != head) || strncmp(map, name, head) ||
        (star && strncmp(star + 1, name + n - tail, tail)))
        return NULL;
    const char *there = strchr(to, '*');
    if (!there) return need_text("%s", to);
    return need_text("%.*s%.*s%s", (int)(there - to), to, (int)(n - head - tail), name + head, there + 1);
}

char *weight_unwrapped(const char *name) {
    static const char *const wrappers[] = {"_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."};
    char *out = need_text("%s", name);
    bool any = false;
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++) {
        size_t n = strlen(wrappers[i]);
        for (char *at = out; (at = strstr(at, wrappers[i]));) {
            bool whole = at == out || at[-1] == '.';
            if (whole)
                memmove(at, at + n, strlen(at + n) + 1);
            else
                at += n;
            any |= whole;
        }
    }
    if (any) return out;
    free(out);
    return NULL;
}

char *weight_copied_from(const char *copy, const char *path) {
    const char *to = strchr(copy, '=') + 1;
    char *back = need_text("%s=%.*s", to, (int)(to - 1 - copy), copy), *name = weight_renamed(back, path);
    free(back);
    return name;
}
