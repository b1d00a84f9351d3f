/* The header of a .npy file.
 * Relies on: nothing.
 * Relied on by: data. */
#ifndef HOST_NPY_H
#define HOST_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NPY_ERROR = 256, NPY_DIMS = 32 };

typedef struct {
    char kind; /* i, u, or what else numpy has: f, O ... */
    int width; /* bytes an element */
    bool big_endian, fortran;
    int dims;
    int64_t shape[NPY_DIMS], numel;
    uint64_t at; /* byte offset of the first element */
} Npy;

/* Reads the header, versions 1.0 to 3.0, from the file's first n bytes (SC_FORMAT_HEAD, or all of a shorter one).
 * False: `error` says what is wrong with it. */
bool npy_read(Npy *a, const uint8_t *head, size_t n, char error[NPY_ERROR]);

#endif
