/* A JSON text as an array of nodes, strictly by RFC 8259 and without names that stand twice in one object.
 * Relies on: base.
 * Relied on by: read.c. */
#ifndef SHARDC_DOCUMENT_H
#define SHARDC_DOCUMENT_H

#include "../base/base.h"

typedef enum { J_NULL, J_FALSE, J_TRUE, J_INTEGER, J_REAL, J_STRING, J_LIST, J_OBJECT } JsonType;

/* 16 bytes: a plan of 100,000 events has ten million. The entries of a list follow it, those of an object as pairs of a
 * name and a value; `size` nodes further on stands what follows the node. */
typedef struct {
    uint32_t type : 3; /* JsonType */
    uint32_t n : 29;   /* entries of a list, pairs of an object, bytes of a string */
    uint32_t size;     /* nodes, itself included */
    union {
        int64_t integer;
        double real;
        const char *text; /* UTF-8 without a NUL, in it or after it */
    };
} JsonNode;

typedef struct {
    const char *text; /* what is wrong */
    int line, column; /* both from 1, the column in bytes */
} JsonError;

/* The document, in the arena; strings point into `text`, those with escapes into the arena. NULL: e says why. */
const JsonNode *document_parse(Arena *a, const char *text, size_t n, JsonError *e);

static inline const JsonNode *after_node(const JsonNode *x) {
    return x + x->size;
}

#endif
