/* evaluate: compiles the model under candidate policies, in processes of their own, and reads off what blocks need.
 * Relies on: evaluate.h, processes.h. A process that fails has no result: such entries cannot be had.
 * Relied on by: planner.c. */
#include "evaluate.h"
#include "../base/processes.h"
#include "../plan/live.h"

/* ── what is alive ──────────────────────────────────────────────────────────────────────────────────────────────── */
/* State of an update that streams through the device takes room that is free anyway (schedule/streamed_updates.c). */
static bool streamed(const PlanProgram *p, const Storage *s) {
    const Event *first = s->first >= 0 && s->first < p->n ? &p->events[s->first] : NULL;
    return first && first->phase == OPTIMIZER && (first->stream == FETCH || first->stream == UPDATE);
}

static int64_t *live_bytes(Arena *a, const Plan *p, int program) {
    int n = p->programs[program].n;
    int64_t *live = NEW_ARRAY(a, int64_t, n + 2);
    for (int i = 0; i < p->nstorages; i++) {
        const Storage *s = &p->storages[i];
        if (s->arena != ARENA_DEVICE || (s->program >= 0 && s->program != program)) continue;
        bool persistent = s->program < 0;
        if (!persistent && (s->first < 0 || streamed(&p->programs[program], s))) continue;
        live[persistent ? 0 : s->first] += s->size;
        live[persistent ? n : s->last + 1] -= s->size;
    }
    for (int e = 1; e < n; e++) live[e] += live[e - 1];
    return live;
}

/* Positions of one training program: its blocks' forwards begin at forward[i], their backwards at backward[i]. */
typedef struct {
    int *block;                    /* by event; -1: none */
    int *forward, *backward, turn; /* turn: first event after the last pinned forward one */
} Positions;

static Positions positions(Arena *a, const PlanProgram *p, const Blocks *b) {
    int n = b->at.n;
    Positions x = {NEW_ARRAY(a, int, p->n + 1), NEW_ARRAY(a, int, n + 1), NEW_ARRAY(a, int, n + 1), 0};
    Map *known = map_new(a);
    VEC(int) block_of = {0};
    for (int i = 0; i < n; i++) x.forward[i] = x.backward[i] = -1;
    for (int e = 0; e < p->n; e++) {
        const Event *ev = &p->events[e];
        int paths = map_len(known), at = map_index(known, ev->module);
        if (at == paths) push(&block_of, a, blocks_of_path(b, ev->module));
        x.block[e] = block_of.at[at];
        bool forward = ev->phase == FORWARD;
        if (ev->stream != COMPUTE || (!forward && ev->phase != RECOMPUTE && ev->phase != BACKWARD)) continue;
        if (forward) x.turn = e + 1;
        if (x.block[e] < 0) continue;
        int *first = forward ? x.forward : x.backward;
        if (first[x.block[e]] < 0) first[x.block[e]] = e;
    }
    return x;
}

static void at_least(int64_t *x, int64_t y) {
    if (y > *x) *x = y;
}

/* Adds a training program to the needs: of several (microbatches that accumulate) the largest counts. */
static void add_program(Arena *a, const Plan *p, int program, const Blocks *b, Outcome *o) {
    const PlanProgram *g = &p->programs[program];
    int n = b->at.n;
    const int64_t *live = live_bytes(a, p, program);
    Positions at = positions(a, g, b);
    int64_t *kept = NEW_ARRAY(a, int64_t, n + 1), *before = NEW_ARRAY(a, int64_t, n + 1);
    for (int i = 0; i < p->nstorages; i++) {
        const Storage *s = &p->storages[i];
        if (s->program != program || s->arena != ARENA_DEVICE || s->first < 0 || s->last < at.turn) continue;
        if (streamed(g, s)) continue;
        bool of_block = s->first < at.turn && at.block[s->first] >= 0 && purpose_pinned(g->events[s->first].purpose);
        if (of_block) kept[at.block[s->first]] += s->size;
    }
    for (int i = 0; i < n; i++) before[i + 1] = before[i] + kept[i];
    int block = 0; /* whose forward it is, then whose backward */
    for (int e = 0; e < g->n; e++) {
        at_least(&o->live, live[e]);
        if (e < at.turn) {
            while (block + 1 < n && at.forward[block + 1] >= 0 && at.forward[block + 1] <= e) block++;
            if (n) at_least(&o->blocks[block].forward, live[e] - before[block]);
            continue;
        }
        if (e == at.turn) block = n;
        while (block > 0 && at.backward[block - 1] >= 0 && at.backward[block - 1] <= e) block--;
        if (block < n)
            at_least(&o->blocks[block].backward, live[e] - before[block]);
        else
            at_least(&o->between, live[e] - before[n]);
    }
    for (int i = 0; i < n; i++) at_least(&o->blocks[i].kept, kept[i]);
}

/* Every plan runs these kernels on one stream, whatever its policies, and none of them in less time: what runs beside
 * them and the power limit only make them longer. */
static double floor_us(const Plan *p, const PlanProgram *g, const Device *d) {
    double us = 0;
    for (int e = 0; e < g->n; e++) {
        const Event *ev = &g->events[e];
        bool counts = device_event_is_arithmetic(ev) && (ev->phase == FORWARD || ev->phase == BACKWARD);
        if (counts) us += device_event_us(d, ev, device_event_group(p, ev), device_event_here(p, ev));
    }
    return us;
}

Outcome evaluate_plan(Arena *a, const Plan *p, const Blocks *b, const Device *d) {
    Outcome o = {.made = true,
                 .arena = p->arena_bytes[ARENA_DEVICE],
                 .host = p->arena_bytes[ARENA_HOST],
                 .blocks = NEW_ARRAY(a, BlockNeeds, b->at.n + 1)};
    for (int i = 0; i < p->nprograms; i++)
        if (program_trains(&p->programs[i])) add_program(a, p, i, b, &o);
    StepFigures step = live_step(p);
    o.step_us = step.step_us;
    o.exposed_us = step.exposed_us;
    for (int i = 0; i < p->nprograms; i++)
        if (program_trains(&p->programs[i])) o.floor_us += live_runs(p, i) * floor_us(p, &p->programs[i], d);
    return o;
}

/* ── compiling candidates ───────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    const PlannerInput *in;
    PlannerHow how;
    const Blocks *b;
    const char *const *entries;
} Candidates;

static void evaluate(const void *context, int job, FILE *result) {
    const Candidates *c = context;
    Arena *a = arena_new();
    const Plan *p = c->in->compile(a, c->in->context, c->entries[job], c->how);
    Outcome o = evaluate_plan(a, p, c->b, c->in->device);
    fwrite(&o, sizeof o, 1, result);
    fwrite(o.blocks, sizeof *o.blocks, (size_t)c->b->at.n, result);
}

void evaluate_all(Arena *a, const PlannerInput *in, PlannerHow how, const Blocks *b, const char *const *entries, int n,
                  Outcome *out) {
    Candidates c = {in, how, b, entries};
    ProcessResult *r = NEW_ARRAY(a, ProcessResult, n + 1);
    size_t blocks = sizeof *out->blocks * (size_t)b->at.n;
    processes_run(a, evaluate, &c, n, r, NULL, NULL);
    for (int i = 0; i < n; i++) {
        out[i] = (Outcome){0};
        if (r[i].n == sizeof *out + blocks) memcpy(&out[i], r[i].at, sizeof *out);
        out[i].blocks = NEW_ARRAY(a, BlockNeeds, b->at.n + 1);
        if (out[i].made) memcpy(out[i].blocks, r[i].at + sizeof *out, blocks);
    }
}
