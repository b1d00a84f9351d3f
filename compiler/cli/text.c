/* Tokens of the inputs by the tokenizer of --tokenizer. What is wrong ends the command, with the input's line.
 * Relies on: text.h.
 * Relied on by: data.c, chat.c. */
#include "text.h"

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
