/* Reads after writes, and no two unordered accesses to one storage's bytes of which one writes.
 * Relies on: internal.h. Per run of bytes it keeps the last write and, per stream, the last read since, in issue order
 * (which extends happens-before): the bookkeeping of FastTrack (Flanagan, Freund 2009), exact for the first violation.
 * Relied on by: verify.c. */
#include "internal.h"

enum { EARLIER_PROGRAM = -1, NEVER = -2 };

typedef struct {
    Verifier *v;
    int program;
    const HappensBefore *o;
    const Pieces *written;
    Pieces *pieces; /* per storage, made at its first access */
} Bytes;

static Pieces *pieces_of(Bytes *b, int storage) {
    Pieces *l = &b->pieces[storage];
    if (l->n) return l;
    const Storage *s = &b->v->plan->storages[storage];
    l->at = NEW_ARRAY(b->v->arena, Piece, 1); /* most are never cut */
    l->cap = 1;
    if (s->program >= 0) {
        push(l, b->v->arena, ((Piece){.lo = 0, .hi = s->size, .writer = NEVER}));
        return l;
    }
    bool by_host = s->cls == C_INPUTS || s->cls == C_RECORD; /* the host writes these before each program */
    const Pieces *w = &b->written[storage];
    for (int i = 0; i < w->n; i++) {
        bool ready = by_host || verify_initialised_at_entry(b->v, b->program, w->at[i].writers);
        Piece p = w->at[i];
        p.writer = ready ? EARLIER_PROGRAM : NEVER;
        push(l, b->v->arena, p);
    }
    return l;
}

static const char *bytes_text(Bytes *b, const Access *x, const Piece *p) {
    return arena_printf(b->v->arena, "bytes %lld to %lld of %s", (long long)p->lo, (long long)p->hi,
                        b->v->plan->storages[x->storage].name);
}

static void never_written(Bytes *b, int e, const Access *x, const Piece *p) {
    const Plan *plan = b->v->plan;
    const PlanProgram *prog = &plan->programs[b->program];
    const char *after = NULL;
    if (plan->storages[x->storage].program < 0 && b->v->entry_mask)
        after = verify_predecessor_without(b->v, b->program, p->writers);
    if (after)
        verify_note(b->v, b->program, "succession", e, -1, "%s reads %s, which nothing has written when %s follows %s",
                    prog->events[e].id, bytes_text(b, x, p), prog->name, after);
    else
        verify_note(b->v, b->program, "read-before-write", e, -1, "%s reads %s, which nothing has written",
                    prog->events[e].id, bytes_text(b, x, p));
}

static void unordered(Bytes *b, const char *rule, int e, int other, const Access *x, const Piece *p, const char *does,
                      const char *did) {
    const Event *ev = b->o->program->events;
    verify_note(b->v, b->program, rule, e, other, "%s (%s) %s %s, which %s (%s) %s: there is no edge from %s to %s",
                ev[e].id, stream_name(ev[e].stream), does, bytes_text(b, x, p), ev[other].id,
                stream_name(ev[other].stream), did, ev[other].id, ev[e].id);
}

static void check_read(Bytes *b, int e, const Access *x) {
    int first, end;
    Pieces *l = pieces_of(b, x->storage);
    verify_cut_pieces(b->v->arena, l, x, &first, &end);
    bool told = false;
    for (int i = first; i < end; i++) {
        Piece *p = &l->at[i];
        if (!told && p->writer == NEVER) {
            never_written(b, e, x, p);
            told = true;
        } else if (!told && p->writer >= 0 && !verify_before(b->o, p->writer, e)) {
            unordered(b, "read-before-write", e, p->writer, x, p, "reads", "writes");
            told = true;
        }
        p->reader[b->o->program->events[e].stream] = e + 1;
    }
}

static bool write_races(Bytes *b, int e, const Access *x, const Piece *p) {
    if (p->writer >= 0 && p->writer != e && !verify_before(b->o, p->writer, e)) {
        unordered(b, "race", e, p->writer, x, p, "writes", "writes too");
        return true;
    }
    for (int s = 0; s < N_STREAMS; s++) {
        int r = p->reader[s] - 1;
        if (r < 0 || r == e || verify_before(b->o, r, e)) continue;
        unordered(b, "race", e, r, x, p, "writes", "reads");
        return true;
    }
    return false;
}

static void check_write(Bytes *b, int e, const Access *x) {
    int first, end;
    Pieces *l = pieces_of(b, x->storage);
    verify_cut_pieces(b->v->arena, l, x, &first, &end);
    for (int i = first; i < end; i++)
        if (write_races(b, e, x, &l->at[i])) break;
    l->at[first] = (Piece){.lo = x->offset, .hi = x->offset + x->size, .writer = e};
    memmove(&l->at[first + 1], &l->at[end], sizeof *l->at * (size_t)(l->n - end));
    l->n -= end - first - 1;
}

void verify_bytes(Verifier *v, int program, const HappensBefore *o, const Pieces *written) {
    Bytes b = {v, program, o, written, NEW_ARRAY(v->arena, Pieces, v->plan->nstorages + 1)};
    for (int e = 0; e < o->program->n; e++) {
        const Event *ev = &o->program->events[e];
        for (int i = 0; i < ev->nreads; i++)
            if (ev->reads[i].size > 0 && verify_access_inside(v, program, &ev->reads[i]))
                check_read(&b, e, &ev->reads[i]);
        for (int i = 0; i < ev->nwrites; i++)
            if (ev->writes[i].size > 0 && verify_access_inside(v, program, &ev->writes[i]))
                check_write(&b, e, &ev->writes[i]);
        /* Accesses are hulls, and results that lie in one another's gaps have hulls that overlap; none begins where
         * another does. */
        for (int i = 0, told = 0; i < ev->nwrites; i++)
            for (int k = 0; k < i && !told; k++) {
                const Access *x = &ev->writes[i], *y = &ev->writes[k];
                if (x->storage != y->storage || x->offset != y->offset || !x->size || !y->size) continue;
                verify_note(v, program, "race", e, -1, "%s writes two results from byte %lld of %s on", ev->id,
                            (long long)x->offset, v->plan->storages[x->storage].name);
                told = 1;
            }
    }
}
