/* Outputs that cannot be written. None but the training state ends a run: what is lost is said when it happens, by one
 * rank, and once more at the end. Relies on: target.h; memory that the ranks of a machine share.
 * Relied on by: dump.c, launch.c, runtime/host. */
#include "../target.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *what, *end, *remedy;
} kinds[] = {
    [SC_PRINTED] = {"standard output", "lacks lines", ""},
    [SC_LOG] = {"the log", "lacks lines", ""},
    [SC_REPORT] = {"the report", "lacks the end of the run", ", and `shardc report` makes one of the log"},
    [SC_DUMP] = {"the dump", "was not written", ""},
    [SC_TRACE] = {"the trace", "was not written", ""},
};

enum { WRITABLE, BEING_TOLD, LOST, REGAINED };

static struct {
    _Atomic int state;
    int error;
    char path[512];
} * lost; /* by output; never unmapped */

bool sc_outputs_new(void) {
    if (!lost) lost = sc_map_shared(SC_OUTPUTS * sizeof *lost);
    return lost != NULL;
}

void sc_lose(sc_output k, const char *path, int error) {
    int expected = REGAINED;
    if (!sc_outputs_new() || atomic_compare_exchange_strong(&lost[k].state, &expected, LOST)) return; /* told before */
    expected = WRITABLE;
    if (!atomic_compare_exchange_strong(&lost[k].state, &expected, BEING_TOLD)) return;
    lost[k].error = error;
    if (path) snprintf(lost[k].path, sizeof lost[k].path, " %s", path);
    atomic_store(&lost[k].state, LOST);
    fprintf(stderr, "shardc: cannot write %s%s: %s; the run goes on without it%s\n", kinds[k].what, lost[k].path,
            strerror(error), kinds[k].remedy);
}

bool sc_lost(sc_output k) {
    return lost && atomic_load(&lost[k].state) == LOST;
}

void sc_regain(sc_output k) {
    if (sc_lost(k)) atomic_store(&lost[k].state, REGAINED);
}

void sc_tell_lost(void) {
    for (int k = 0; k < SC_OUTPUTS; k++)
        if (sc_lost(k))
            fprintf(stderr, "shardc: %s%s %s: %s\n", kinds[k].what, lost[k].path, kinds[k].end,
                    strerror(lost[k].error));
}
