/* Tokens of texts and conversations, and text of tokens: a process of Python in which Hugging Face's `tokenizers`
 * works. Relies on: helper.py, which is held in the program; POSIX processes. Relied on by: `shardc data --tokenizer`,
 * runtime/host/sample. */
#ifndef SC_TEXT_HELPER_H
#define SC_TEXT_HELPER_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum { SC_TEXT_ERROR = 2048, SC_TEXT_ENDS = 8 };
#define SC_TEXT_TARGET 0x80000000u /* of a token: training wants it to be predicted */
#define SC_TEXT_NONE 0xffffffffu

typedef struct {
    pid_t pid; /* 0: it has ended, with this exit code: */
    int code;
    FILE *from;                    /* records: a count of tokens, then these, as uint32 of this machine */
    int to;                        /* its standard input, for what it is to show; -1: it has none */
    uint32_t vocabulary, end, pad; /* end: the token that ends a text, pad: one that fills up; SC_TEXT_NONE: none */
    uint32_t ends[SC_TEXT_ENDS];   /* all that end an answer, SC_TEXT_NONE behind the last */
    uint32_t *ids;                 /* of the last record */
    int64_t n, room;
    char error[SC_TEXT_ERROR]; /* what went wrong, for people */
    int file, line;            /* where: of the files given, from 0, and from 1; file -1: nowhere */
} sc_text;

/* Starts it: arguments as helper.py's mode takes them, ended by NULL. The Python is that of SHARDC_PYTHON, else
 * python3. False: `error` says why not. sc_text_end must follow either way. */
int sc_text_start(sc_text *t, const char *const *arguments);
/* The next record into ids and n. 1: there is one; 0: there is none any more, and Python has ended well; -1: `error`
 * says what is wrong. */
int sc_text_next(sc_text *t);
/* Starts one that prints, on this process's standard output, the text of tokens that sc_text_show gives it. */
int sc_text_shows(sc_text *t, const char *tokenizer);
int sc_text_show(sc_text *t, uint32_t token); /* false: it is gone */
/* Waits for its end and frees. Returns its exit code; 0: all is well. */
int sc_text_end(sc_text *t);

#endif
