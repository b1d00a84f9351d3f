/* The safetensors format: a reader that believes nothing, and what a writer needs.
 * Relies on: jansson, zlib, dtype.
 * Relied on by: weights, checkpoint, the fuzzers. */
#ifndef HOST_SAFETENSORS_H
#define HOST_SAFETENSORS_H

#include "dtype.h"
#include <stdio.h>

enum { ST_DIMS = 8, ST_ERROR = 512 };

typedef struct {
    const char *name, *dtype; /* dtype as written: "BF16" */
    int sc_dtype;             /* -1: one that no build holds (U8, I16, ...) */
    int dims;
    int64_t shape[ST_DIMS], numel;
    uint64_t begin, end; /* bytes within the data */
} StTensor;

typedef struct {
    char *path;
    int fd;                 /* -1: parsed from memory */
    uint64_t data_at;       /* file offset of the data */
    unsigned long head_sum; /* crc32 of all before that; not of what was parsed from memory */
    StTensor *tensors;      /* sorted by name */
    int n;
    void *json;
} StFile;

/* Both check everything: header length, JSON, names, dtypes, shapes, offsets in range, no overlap, no gap, nothing
 * trailing. On false `error` says what is wrong (without the path). */
bool st_open(StFile *f, const char *path, char error[ST_ERROR]);
bool st_parse(StFile *f, const uint8_t *bytes, uint64_t size, char error[ST_ERROR]);
void st_close(StFile *f);
const StTensor *st_find(const StFile *f, const char *name); /* NULL: none */
const char *st_metadata(const StFile *f, const char *key);  /* NULL: none */
/* Elements [at, at + n) in the file's dtype. False: the file has become shorter, or the disk fails. */
bool st_read(const StFile *f, const StTensor *t, int64_t at, int64_t n, void *dst);

/* Writing: begin, one line per tensor in the order of the data, end. end returns the whole head (length and padded
 * JSON). */
typedef struct {
    FILE *out;
    char *text;
    size_t size;
    uint64_t offset;
    bool first;
} StHead;
/* metadata: key, value, ..., NULL; or NULL. at: where in the head each value's text begins, or NULL. */
void st_head_begin(StHead *h, const char *const *metadata, size_t *at);
void st_head_add(StHead *h, const char *name, sc_dtype d, int dims, const int64_t *shape);
char *st_head_end(StHead *h, size_t *size);
void st_json_string(FILE *f, const char *s); /* quoted and escaped */

#endif
