/* What `shardc data` does for both its outputs: asks the tokenizer, and keeps files of others.
 * Relies on: text.h.
 * Relied on by: data.c, chat.c. */
#include "text.h"

#include <errno.h>
#include <sys/stat.h>

void cli_text_begin(Arena *a, const Options *o, sc_text *t, const char *mode, const char *first, const char *second) {
    VEC(const char *) args = {0};
    push(&args, a, mode);
    push(&args, a, o->tokenizer);
    push(&args, a, first);
    push(&args, a, second);
    for (int i = 0; i < o->inputs.n; i++) push(&args, a, o->inputs.at[i]);
    push(&args, a, NULL);
    if (sc_text_start(t, args.at)) return;
    sc_text_end(t);
    fail(NOWHERE, "%s", t->error);
}

bool cli_text_next(const Options *o, sc_text *t) {
    int rc = sc_text_next(t);
    if (rc < 0) fail(t->file >= 0 ? (Source){o->inputs.at[t->file], t->line} : NOWHERE, "%s", t->error);
    if (!rc) sc_text_end(t);
    return rc > 0;
}

void cli_keep_others(const char *out, bool (*ours)(const char *head, size_t n), const char *what) {
    char head[1 << 10] = "";
    struct stat st;
    if (stat(out, &st) || !S_ISREG(st.st_mode) || !st.st_size) return;
    FILE *f = fopen(out, "rb");
    if (!f) fail(NOWHERE, "cannot read %s, which is there already: %s", out, strerror(errno));
    size_t n = fread(head, 1, sizeof head - 1, f);
    fclose(f);
    if (!ours(head, n))
        fail(NOWHERE, "%s is there already, and holds no %s: it stays as it is; give another name with -o", out, what);
}
