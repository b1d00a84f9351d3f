/* Writes JSON in one pass, a piece at a time: commas and quotes are its business, and little of the text is ever held.
 * Relies on: base.
 * Relied on by: plan_json.h, report/. */
#ifndef SHARDC_JSON_WRITER_H
#define SHARDC_JSON_WRITER_H

#include "../base/base.h"

typedef struct {
    FILE *f;
    Str s; /* on its way to the file */
    bool comma;
} Json;

void json_start(Json *j, const char *format, int version); /* a document of ours: {"format":...,"version":... */
void json_end(Json *j);                                    /* closes the document, and writes what is left of it */
void json_line(Json *j);                                   /* the next value starts on a line of its own */

/* k: the member's name; NULL in a list. */
void json_key(Json *j, const char *k); /* a value must follow */
void json_open(Json *j, const char *k, char bracket);
void json_open_line(Json *j, const char *k, char bracket); /* on a line of its own */
void json_close(Json *j, char bracket);
void json_int(Json *j, const char *k, int64_t x);
void json_real(Json *j, const char *k, double x);
void json_time(Json *j, const char *k, double us);
void json_bool(Json *j, const char *k, bool x);
void json_str(Json *j, const char *k, const char *s); /* NULL: null */
void json_escaped(Json *j, const char *s);            /* what stands between the quotes of a string */

#endif
