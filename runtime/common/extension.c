/* Compares what a model's own functions say that they wrote with what was asked of them.
 * Relies on: rank.h (sc_say, sc_speak_once, sc_leave), sc_extension_call.h.
 * Relied on by: generated NAME_extension<n>. */
#include "../sc_extension_call.h"
#include "rank.h"

void sc_extension_wrote(const sc_task *task, const sc_piece *p, const char *function, const char *file, int line,
                        int64_t wrote, int64_t room) {
    if (wrote == room) return;
    sc_speak_once(task->rank);
    sc_say("%s:%d: %s says that it wrote %lld elements for %s [%lld, %lld) on rank %d, and %lld belong there: make it "
           "fill them, or change `wire` in the model",
           file, line, function, (long long)wrote, p->path, (long long)p->begin, (long long)p->end, task->rank,
           (long long)room);
    sc_leave(1);
}
