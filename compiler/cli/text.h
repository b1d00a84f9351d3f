/* What `shardc data` does for both its outputs, tokens and rows: asks the tokenizer, and keeps files of others.
 * Relies on: cli.h, runtime/text/helper.h.
 * Relied on by: data.c, chat.c. */
#ifndef SHARDC_CLI_TEXT_H
#define SHARDC_CLI_TEXT_H

#include "cli.h"
#include "text/helper.h"

/* Starts a mode of helper.py with the tokenizer, two words of the mode's own and all inputs. Fails with its message. */
void cli_text_begin(Arena *a, const Options *o, sc_text *t, const char *mode, const char *first, const char *second);
/* The next record. false: there is none any more, and t is freed. Fails at the line of the input that is at fault. */
bool cli_text_next(const Options *o, sc_text *t);

/* Fails where `out` is a file that is not `ours` by its first n bytes (a NUL behind them): a name of an input comes
 * easily behind -o where a pattern stands for many. what: what ours hold. */
void cli_keep_others(const char *out, bool (*ours)(const char *head, size_t n), const char *what);

#endif
