/* Which storages each event of a program touches, and which bytes belong to no storage at all.
 * Relies on: lives.h; the storage table of the build.
 * Relied on by: the targets' debug.c. */
#include "lives.h"
#include <stdlib.h>

static int by_address(const void *a, const void *b) {
    const sc_storage_info *x = *(const sc_storage_info *const *)a, *y = *(const sc_storage_info *const *)b;
    if (x->host != y->host) return x->host - y->host;
    return x->at < y->at ? -1 : x->at > y->at;
}

void sc_lives_new(const sc_build *b, int program, sc_lives *l) {
    const sc_program_info *p = &b->programs[program];
    const sc_storage_info **s = sc_calloc((size_t)b->nstorages, sizeof *s);
    int most = 0, touched = 0, n = 0;
    for (int e = 0; e < p->nevents; e++) most += p->events[e].nreads + p->events[e].nwrites;
    l->touched = sc_calloc((size_t)most, sizeof(int));
    l->start = sc_calloc((size_t)p->nevents + 1, sizeof(int));
    l->accesses = sc_calloc((size_t)b->nstorages, sizeof(int));
    l->used = sc_calloc((size_t)b->nstorages, sizeof(int64_t));
    for (int e = 0; e < p->nevents; e++) {
        const sc_event_info *x = &p->events[e];
        l->start[e] = touched;
        for (int i = 0; i < x->nreads + x->nwrites; i++) {
            const sc_access *a = i < x->nreads ? &x->reads[i] : &x->writes[i - x->nreads];
            if (a->offset + a->size > l->used[a->storage]) l->used[a->storage] = a->offset + a->size;
            bool seen = b->storages[a->storage].program < 0; /* of all programs: not transient */
            for (int k = l->start[e]; k < touched && !seen; k++) seen = l->touched[k] == a->storage;
            if (seen) continue;
            l->touched[touched++] = a->storage;
            l->accesses[a->storage]++;
        }
    }
    l->start[p->nevents] = touched;
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

void sc_lives_free(sc_lives *l) {
    free(l->touched);
    free(l->start);
    free(l->accesses);
    free(l->used);
    free(l->gaps);
}

void sc_check_gap(sc_rank *r, const sc_gap *g, uint64_t from, const uint8_t *bytes, uint64_t n) {
    for (uint64_t k = 0; k < n; k++) {
        if (bytes[k] == SC_GUARD) continue;
        const char *below = "its start", *above = "its end"; /* the nearest storages on either side of the gap */
        uint64_t low = 0, high = UINT64_MAX;
        for (int i = 0; i < r->b->nstorages; i++) {
            const sc_storage_info *s = &r->b->storages[i];
            uint64_t end = s->at + (uint64_t)s->size;
            if (s->host != g->host || (s->program >= 0 && s->program != r->current)) continue;
            if (end <= g->at && end > low) low = end, below = s->name;
            if (s->at > g->at && s->at < high) high = s->at, above = s->name;
        }
        sc_stop(r, 3,
                "shardc: rank %d: program %s wrote outside of its storages: byte 0x%llx of the %s arena, between %s "
                "and %s",
                r->rank, r->b->programs[r->current].name, (unsigned long long)(g->at + from + k),
                g->host ? "host" : "device", below, above);
    }
}
