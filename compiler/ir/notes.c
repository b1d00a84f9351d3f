/* The table of a trace's notes: grows as it is written, and says nothing of values that nobody noted.
 * Relies on: notes.h.
 * Relied on by: as there. */
#include "notes.h"

Note *note_on(Graph *g, Program *p, const Value *v) {
    if (!p->notes) p->notes = NEW(g->arena, Notes);
    while (p->notes->of.n <= v->id) push(&p->notes->of, g->arena, (Note){0});
    return &p->notes->of.at[v->id];
}

const Note *note_taken(const Notes *notes, const Value *v) {
    static const Note nothing;
    return notes && v->id < notes->of.n ? &notes->of.at[v->id] : &nothing;
}
