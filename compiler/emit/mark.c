/* The marks of what a build writes, and the refusal to write over anything else: a text says WRITTEN in its first line,
 * a plan its format; objects and programs hold a string that the kernels' text defines. Relies on: text.h, diagnostics.
 * Relied on by: kernels.c, build.c. */
#include "text.h"

#include <sys/stat.h>

/* Put together here: this compiler is a file of its kind too, and must not hold it. */
char *emit_binary_mark(Arena *a) {
    return arena_printf(a, "SHARDC_%s", "KERNELS");
}

static bool starts(const char *s, size_t n, const char *with) {
    return n >= strlen(with) && !memcmp(s, with, strlen(with));
}

static bool is_marked(Arena *a, const char *path) {
    size_t n;
    const char *s = path_read(a, path, &n), *mark = emit_binary_mark(a), *end = memchr(s, '\n', n);
    if (starts(s, n, "\177ELF")) return memmem(s, n, mark, strlen(mark));
    return starts(s, n, "{\"format\":\"shardc-plan\"") ||
           memmem(s, end ? (size_t)(end - s) : n, WRITTEN, strlen(WRITTEN));
}

/* An empty file has nothing to lose: mktemp makes them, and so does a machine that loses power. */
void emit_keep_foreign(Arena *a, const char *path) {
    struct stat st;
    const char *is = NULL;
    if (lstat(path, &st)) return;
    if (S_ISDIR(st.st_mode))
        is = "is a folder";
    else if (S_ISLNK(st.st_mode))
        is = "is a link";
    else if (!S_ISREG(st.st_mode))
        is = "is no regular file";
    else if (st.st_size && !is_marked(a, path))
        is = "lacks the mark of files that shardc build writes";
    if (is) fail(NOWHERE, "%s is there already, and %s: it stays as it is; give another name with -o", path, is);
}
