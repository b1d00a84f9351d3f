/* Files written aside and renamed: whatever goes wrong, what was there stays.
 * Relies on: die.
 * Relied on by: checkpoint, weights. */
#ifndef HOST_ASIDE_H
#define HOST_ASIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ASIDE_BUFFER = 1 << 20 };

typedef struct {
    char *path, *temp; /* the caller's, alive until commit or abort */
    uint8_t *buffer;   /* ASIDE_BUFFER bytes, the caller's: nothing is allocated during a run */
    size_t n;
    int fd, error; /* errno of the first failure; later calls do nothing */
} Aside;

void aside_open(Aside *a, char *path, char *temp, uint8_t *buffer);
void aside_write(Aside *a, const void *p, size_t n);
void aside_rewrite(Aside *a, const void *p, size_t n); /* the first n bytes of the file; then only commit */
int aside_commit(Aside *a); /* flush, fsync, rename; 0 or errno, and then the temporary file is gone */

#endif
