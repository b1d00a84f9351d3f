/* The log of a run: one JSON object a line.
 * Relies on: die, target.
 * Relied on by: train, run. */
#ifndef HOST_LOG_H
#define HOST_LOG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct {
    const char *path; /* NULL: no log; every call does nothing */
    int fd;           /* -1: a pipe that has broken */
    off_t size;       /* of whole lines */
    char *line;
    size_t n, cap;
} Log;

#define LOG_RANK "{rank}" /* in a log's name: a log for each rank */
/* Where rank `rank` writes, in new memory; NULL: nowhere, as ranks but 0 where there is one log. */
char *log_path(const char *name, int rank);
void log_check(const char *path); /* before ranks start: dies where it cannot be written */
/* after < 0: begins anew. Else goes on behind the lines of steps up to `after`: later ones, of a run that was ended
 * before its next save, are cut off. names: of n figures that a line may hold beyond the usual ones. */
Log log_open(const char *path, int64_t after, const char *const *names, int n);
void log_close(Log *l);
void log_begin(Log *l, int64_t step);
void log_number(Log *l, const char *name, double x); /* %.9g: a float in full; null where it is not finite */
void log_text(Log *l, const char *name, const char *text);
void log_whole(Log *l, const char *name, int64_t x);
void log_end(Log *l); /* a line that cannot be written is left out: sc_lose */

void printed(void); /* ends lines for people: where standard output does not take them, says so once */

#endif
