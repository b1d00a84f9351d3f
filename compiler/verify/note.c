/* What all parts of verify do: note a finding, ask whether an access is sound, cut a storage's bytes where an access
 * ends. Relies on: internal.h. Relied on by: the other files of verify/. */
#include "internal.h"

void verify_note(Verifier *v, int program, const char *rule, int first, int second, const char *fmt, ...) {
    if (v->noted++ >= MAX_FINDINGS) return;
    const PlanProgram *p = program >= 0 ? &v->plan->programs[program] : NULL;
    char text[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    Finding f = {rule, p ? p->name : "", p && first >= 0 ? p->events[first].id : NULL,
                 p && second >= 0 ? p->events[second].id : NULL, arena_strdup(v->arena, text)};
    push(v->out, v->arena, f);
}

bool verify_access_inside(const Verifier *v, int program, const Access *x) {
    if (x->storage < 0 || x->storage >= v->plan->nstorages || v->unsound[x->storage]) return false;
    const Storage *s = &v->plan->storages[x->storage];
    return (s->program < 0 || s->program == program) && x->offset >= 0 && x->size >= 0 && x->offset <= s->size &&
           x->size <= s->size - x->offset;
}

/* First piece that ends after x. */
static int find(const Pieces *l, int64_t x) {
    return FIRST(i, 0, l->n, l->at[i].hi > x);
}

static void split(Arena *a, Pieces *l, int64_t x) {
    int i = find(l, x);
    if (i == l->n || l->at[i].lo >= x) return;
    Piece last = l->at[l->n - 1];
    push(l, a, last);
    memmove(&l->at[i + 1], &l->at[i], sizeof *l->at * (size_t)(l->n - 1 - i));
    l->at[i].hi = x;
    l->at[i + 1].lo = x;
}

void verify_cut_pieces(Arena *a, Pieces *l, const Access *x, int *first, int *end) {
    split(a, l, x->offset);
    split(a, l, x->offset + x->size);
    *first = find(l, x->offset);
    for (*end = *first; *end < l->n && l->at[*end].lo < x->offset + x->size;) ++*end;
}
