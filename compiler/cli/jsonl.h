/* Texts of JSON lines, as data sets of the field come: {"text": "...", ...}, an object a line.
 * Relies on: nothing.
 * Relied on by: cli/data.c. */
#ifndef SHARDC_JSONL_H
#define SHARDC_JSONL_H

#include <stdbool.h>
#include <stddef.h>

enum { JSONL_ERROR = 512 };

/* The string that the object in line[0, n) has for `key`: *text, *length bytes of UTF-8 that lie in the line, which is
 * changed. The whole line is held to RFC 8259. False: `error` says what is wrong, with the column in bytes from 1. */
bool jsonl_text(char *line, size_t n, const char *key, char **text, size_t *length, char error[JSONL_ERROR]);
bool jsonl_blank(const char *line, size_t n); /* nothing but JSON's white space */

#endif
