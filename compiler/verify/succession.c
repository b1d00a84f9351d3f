/* Which programs may follow which, and which persistent bytes every way to a program has written before it starts.
 * Relies on: internal.h, the table of successions in plan/plan.c.
 * Relied on by: verify.c and bytes.c. */
#include "internal.h"

static int program_index(const Plan *p, const char *name) {
    for (int i = 0; i < p->nprograms; i++)
        if (!strcmp(p->programs[i].name, name)) return i;
    return -1;
}

enum { PROCESS_START = MAX_PROGRAMS }; /* its bit among the predecessors of a program */

/* Bit i: the program may follow program i. */
static unsigned predecessors(const Plan *p, int program) {
    unsigned mask = 0;
    for (int i = 0; i < nsuccessions; i++) {
        const Succession *s = &successions[i];
        bool applies = s->accumulating < 0 || s->accumulating == (program_index(p, "micro_first") >= 0);
        if (!applies || strcmp(s->to, p->programs[program].name)) continue;
        int from = *s->from ? program_index(p, s->from) : PROCESS_START;
        if (from >= 0) mask |= 1u << from;
    }
    return mask;
}

/* Every program has a name of its own, stands in the table and can be reached. */
void verify_successions(Verifier *v) {
    const Plan *p = v->plan;
    if (p->nprograms > MAX_PROGRAMS) {
        verify_note(v, -1, "succession", -1, -1, "%d programs, the table of successions knows fewer", p->nprograms);
        return;
    }
    unsigned reach = 1u << PROCESS_START, old;
    do {
        old = reach;
        for (int i = 0; i < p->nprograms; i++)
            if (predecessors(p, i) & reach) reach |= 1u << i;
    } while (reach != old);
    for (int i = 0; i < p->nprograms; i++) {
        v->noted = 0;
        if (program_index(p, p->programs[i].name) != i)
            verify_note(v, i, "succession", -1, -1, "two programs are called %s", p->programs[i].name);
        else if (!(reach >> i & 1))
            verify_note(v, i, "succession", -1, -1, "no permitted succession of this plan's programs leads to %s",
                        p->programs[i].name);
    }
    v->entry_mask = NEW_ARRAY(v->arena, unsigned, p->nprograms + 1);
    for (int i = 0; i < p->nprograms; i++) { /* nothing is written before a program that may start the process */
        unsigned before = predecessors(p, i) & reach;
        v->entry_mask[i] = before >> PROCESS_START & 1 ? 0 : before;
    }
}

/* The programs that find the bytes written when they start: those with predecessors of which each has written the bytes
 * or has found them written. The greatest such set: it begins with all and loses those that do not qualify. */
static unsigned entries(const Verifier *v, unsigned writers) {
    int n = v->plan->nprograms;
    unsigned in = 0, old;
    for (int i = 0; i < n; i++)
        if (v->entry_mask[i]) in |= 1u << i;
    do {
        old = in;
        for (int i = 0; i < n; i++)
            if (v->entry_mask[i] & ~(in | writers)) in &= ~(1u << i);
    } while (in != old);
    return in;
}

bool verify_initialised_at_entry(const Verifier *v, int program, unsigned writers) {
    return entries(v, writers) >> program & 1;
}

const char *verify_predecessor_without(const Verifier *v, int program, unsigned writers) {
    unsigned missing = v->entry_mask[program] & ~(entries(v, writers) | writers);
    for (int i = 0; i < v->plan->nprograms; i++)
        if (missing >> i & 1) return v->plan->programs[i].name;
    return NULL;
}

Pieces *verify_persistent_writes(Verifier *v) {
    const Plan *p = v->plan;
    Pieces *lists = NEW_ARRAY(v->arena, Pieces, p->nstorages + 1);
    for (int s = 0; s < p->nstorages; s++)
        if (p->storages[s].program < 0) push(&lists[s], v->arena, ((Piece){.hi = p->storages[s].size}));
    for (int g = 0; g < p->nprograms; g++)
        for (int e = 0; e < p->programs[g].n; e++) {
            const Event *ev = &p->programs[g].events[e];
            for (int i = 0; i < ev->nwrites; i++) {
                const Access *w = &ev->writes[i];
                if (!verify_access_inside(v, g, w) || p->storages[w->storage].program >= 0 || w->size == 0) continue;
                Pieces *l = &lists[w->storage];
                int first, end;
                verify_cut_pieces(v->arena, l, w, &first, &end);
                for (int k = first; k < end; k++) l->at[k].writers |= 1u << g;
            }
        }
    return lists;
}
