/* Processes that measure together, one a GPU: started, met, ended.
 * Relies on: members.h; fork.
 * Relied on by: collectives.c, footprint.c, host.c. */
#include "members.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

void sc_members_meet(sc_common *c, int world) {
    int before = c->arrived++, all = (before / world + 1) * world;
    while (c->arrived < all) usleep(20);
}

static void end(const pid_t *pid, int n) { /* 0: has ended by itself, and its number may be another's */
    for (int k = 0; k < n; k++)
        if (pid[k] > 0) kill(pid[k], SIGKILL);
}

int sc_unwritten(FILE *out) {
    if (!fflush(out) && !ferror(out)) return 0;
    fprintf(stderr, "sc_calibrate: cannot write a temporary file: %s; set TMPDIR to a folder with room\n",
            strerror(errno));
    return 1;
}

int sc_members_run(const sc_round *r, int (*body)(const sc_round *r, sc_common *c, int rank)) {
    sc_common *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t *pid = calloc((size_t)r->world, sizeof *pid), ended;
    int world = r->world, bad = c == MAP_FAILED || !pid, status, n = 0;
    if (bad)
        fprintf(stderr, "sc_calibrate: cannot map what %d processes share: %s; free some memory\n", world,
                strerror(errno));
    fflush(r->out); /* or every member would write once more what waits there */
    while (!bad && n < world) {
        if ((pid[n] = fork()) == 0) _exit(body(r, c, n) || sc_unwritten(r->out));
        if (pid[n++] > 0) continue;
        fprintf(stderr, "sc_calibrate: cannot start process %d of %d: %s; see ulimit -u\n", n, world, strerror(errno));
        bad = 1;
        end(pid, n);
    }
    while (n && (ended = wait(&status)) > 0) {
        for (int k = 0; k < n; k++)
            if (pid[k] == ended) pid[k] = 0;
        if (status && !bad) end(pid, n);
        bad |= status != 0;
    }
    if (c != MAP_FAILED) munmap(c, sizeof *c);
    free(pid);
    return bad;
}
