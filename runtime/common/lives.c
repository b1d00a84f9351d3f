/* Which storages each event of a program touches, and which bytes belong to no storage at all.
 * Relies on: lives.h; the storage table of the build.
 * Relied on by: the targets' debug.c. */
#include "lives.h"
#include <stdlib.h>

static int add_touched(const sc_build *b, const sc_access *a, int n, int *list, int k, int begin, sc_lives *l) {
    for (int i = 0; i < n; i++) {
        int s = a[i].storage;
        if (a[i].offset + a[i].size > l->used[s]) l->used[s] = a[i].offset + a[i].size;
        if (b->storages[s].program < 0) continue;
        bool seen = false;
        for (int j = begin; j < k; j++) seen |= list[j] == s;
        if (!seen) list[k++] = s;
    }
    return k;
}

static void accesses_of(const sc_build *b, const sc_program_info *p, sc_lives *l) {
    int most = 0;
    for (int e = 0; e < p->nevents; e++) most += p->events[e].nreads + p->events[e].nwrites;
    l->touched = sc_calloc((size_t)most, sizeof(int));
    l->start = sc_calloc((size_t)p->nevents + 1, sizeof(int));
    l->accesses = sc_calloc((size_t)b->nstorages, sizeof(int));
    l->used = sc_calloc((size_t)b->nstorages, sizeof(int64_t));
    int k = 0;
    for (int e = 0; e < p->nevents; e++) {
        const sc_event_info *x = &p->events[e];
        l->start[e] = k;
        k = add_touched(b, x->reads, x->nreads, l->touched, k, l->start[e], l);
        k = add_touched(b, x->writes, x->nwrites, l->touched, k, l->start[e], l);
        for (int i = l->start[e]; i < k; i++) l->accesses[l->touched[i]]++;
    }
    l->start[p->nevents] = k;
}

static int by_address(const void *a, const void *b) {
    const sc_storage_info *x = *(const sc_storage_info *const *)a, *y = *(const sc_storage_info *const *)b;
    if (x->host != y->host) return x->host - y->host;
    return x->at < y->at ? -1 : x->at > y->at;
}

static void gaps_of(const sc_build *b, int program, sc_lives *l) {
    const sc_storage_info **s = sc_calloc((size_t)b->nstorages, sizeof *s);
    int n = 0;
    for (int i = 0; i < b->nstorages; i++)
        if (b->storages[i].program < 0 || b->storages[i].program == program) s[n++] = &b->storages[i];
    qsort(s, (size_t)n, sizeof *s, by_address);
    l->gaps = sc_calloc((size_t)n + 2, sizeof *l->gaps);
    for (int host = 0, i = 0; host < 2; host++) {
        uint64_t end = 0, all = host ? b->host_bytes : b->arena_bytes;
        for (; i < n && s[i]->host == host; i++) {
            if (s[i]->at > end) l->gaps[l->ngaps++] = (sc_gap){host, end, s[i]->at - end};
            if (s[i]->at + (uint64_t)s[i]->size > end) end = s[i]->at + (uint64_t)s[i]->size;
        }
        if (all > end) l->gaps[l->ngaps++] = (sc_gap){host, end, all - end};
    }
    free(s);
}

void sc_lives_new(const sc_build *b, int program, sc_lives *l) {
    accesses_of(b, &b->programs[program], l);
    gaps_of(b, program, l);
}

void sc_lives_free(sc_lives *l) {
    free(l->touched);
    free(l->start);
    free(l->accesses);
    free(l->used);
    free(l->gaps);
}

static const sc_storage_info *neighbour(sc_rank *r, int host, uint64_t at, bool below) {
    const sc_storage_info *best = NULL;
    for (int i = 0; i < r->b->nstorages; i++) {
        const sc_storage_info *s = &r->b->storages[i];
        if (s->host != host || (s->program >= 0 && s->program != r->current)) continue;
        if (below && s->at + (uint64_t)s->size <= at &&
            (!best || s->at + (uint64_t)s->size > best->at + (uint64_t)best->size))
            best = s;
        if (!below && s->at > at && (!best || s->at < best->at)) best = s;
    }
    return best;
}

void sc_check_gap(sc_rank *r, const sc_gap *g, uint64_t from, const uint8_t *bytes, uint64_t n) {
    for (uint64_t k = 0; k < n; k++) {
        if (bytes[k] == SC_GUARD) continue;
        const sc_storage_info *below = neighbour(r, g->host, g->at, true), *above = neighbour(r, g->host, g->at, false);
        sc_stop(r, 3,
                "shardc: rank %d: program %s wrote outside of its storages: byte 0x%llx of the %s arena, between %s "
                "and %s",
                r->rank, r->b->programs[r->current].name, (unsigned long long)(g->at + from + k),
                g->host ? "host" : "device", below ? below->name : "its start", above ? above->name : "its end");
    }
}
