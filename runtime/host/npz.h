/* The members of a .npz archive of NumPy: a zip whose members NAME.npy are stored as they are.
 * Relies on: file.h.
 * Relied on by: arrays, the unit tests. */
#ifndef HOST_NPZ_H
#define HOST_NPZ_H

#include <stdbool.h>
#include <stdint.h>

enum { NPZ_ERROR = 256 };

typedef struct {
    char *name;        /* without .npy */
    uint64_t at, size; /* byte offset in the archive, bytes */
} NpzMember;

/* Reads the list of members of the archive in fd, of `size` bytes. Returns how many there are, or -1: `error` says what
 * is wrong (without the path). The caller frees with npz_free. Format: PKWARE's APPNOTE 6.3, with its 64-bit fields. */
int npz_members(int fd, uint64_t size, NpzMember **members, char error[NPZ_ERROR]);
void npz_free(NpzMember *members, int n);

#endif
