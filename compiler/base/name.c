/* Which names a model and a program may have. A name is used in file names, command lines, C, JSON and checkpoints, and
 * nvcc gives it to a shell. Characters that have a meaning in any of these are refused.
 * Relies on: runtime/visible.h. Relied on by: the front end (a model's name), `shardc build` (a program's). */
#include "base.h"
#include "visible.h"

#include <ctype.h>

enum { MOST_BYTES = 200 }; /* file systems take 255, and a build's files have suffixes */

bool str_is_name(const char *name) {
    size_t n = strlen(name), length = 1;
    for (size_t i = 0; i < n && length; i += length) {
        unsigned char c = (unsigned char)name[i];
        bool word = isalnum(c) || c == '_', inside = i && strchr(" .-+=@:", c);
        length = c >= 0x80 ? sc_visible_character((const unsigned char *)name + i, n - i) : word || inside;
    }
    return n && n <= MOST_BYTES && length;
}

char *path_join(Arena *a, const char *dir, const char *name, const char *suffix) {
    size_t n = dir ? strlen(dir) : 0;
    return arena_printf(a, "%s%s%s%s", n ? dir : ".", n && dir[n - 1] == '/' ? "" : "/", name, suffix);
}
