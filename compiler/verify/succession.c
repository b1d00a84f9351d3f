/* Which programs may follow which, and which persistent bytes every way to a program has written before it starts.
 * Relies on: internal.h, bytes.c (verify_cut_pieces), the table of successions in ir/plan.c.
 * Relied on by: verify.c and bytes.c. */
#include "internal.h"

static int program_index(const Plan *p, const char *name) {
    for (int i = 0; i < p->nprograms; i++)
        if (!strcmp(p->programs[i].name, name)) return i;
    return -1;
}

static unsigned predecessors(const Plan *p, int program) {
    unsigned mask = 0;
    for (int i = 0; i < nsuccessions; i++) {
        const Succession *s = &successions[i];
        bool applies = s->accumulating < 0 || s->accumulating == (program_index(p, "micro_first") >= 0);
        if (!applies || strcmp(s->to, p->programs[program].name)) continue;
        int from = program_index(p, s->from);
        if (from >= 0) mask |= 1u << from;
    }
    return mask;
}

static bool starts_process(const Plan *p, int program) {
    for (int i = 0; i < nsuccessions; i++)
        if (!*successions[i].from && !strcmp(successions[i].to, p->programs[program].name)) return true;
    return false;
}

/* Every program has a name of its own, stands in the table and can be reached. */
void verify_successions(Verifier *v) {
    const Plan *p = v->plan;
    if (p->nprograms > MAX_PROGRAMS) {
        verify_note(v, -1, "succession", -1, -1, "%d programs, the table of successions knows fewer", p->nprograms);
        return;
    }
    unsigned reach = 0, old;
    do {
        old = reach;
        for (int i = 0; i < p->nprograms; i++)
            if (starts_process(p, i) || (predecessors(p, i) & reach)) reach |= 1u << i;
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
    for (int i = 0; i < p->nprograms; i++) v->entry_mask[i] = starts_process(p, i) ? 0 : predecessors(p, i) & reach;
}

/* Greatest solution of: p finds the bytes written when it has predecessors and after each of them they are written. */
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
