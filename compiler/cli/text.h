/* Tokens of the inputs by the tokenizer of --tokenizer: what `shardc data` asks of runtime/text/helper.h.
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

#endif
