/* What would lower the peak of a program, from its events and storages alone, so that a plan.json tells as much as a
 * model. Relies on: savings.h, live.h.
 * Relied on by: report/page_blocks.c. */
#include "savings.h"
#include "live.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_PATTERNS = 64 }; /* modules alike that are looked at: those with most bytes */

#define LEAST_SHARE 1e-3 /* of the largest moment: what lowers it by less is left out */

/* A module's path, or a part of one that ends at a dot. Parents stand before their children; 0 is the model. */
typedef struct {
    const char *path;
    int parent, depth, pattern;
    int block;             /* the outermost node around it whose name is a number, or itself */
    bool number;           /* its name is a number */
    int children, numbers; /* of them numbers: a list has no others, and is not called */
    bool holds_blocks;     /* a block is in it */
    bool recomputes;       /* events in it compute again, */
    bool fetches;          /* or fetch what was offloaded */
    int first_backward;    /* the first kernel in it after its forward; the program's end: there is none */
} Node;

/* An activation that lives from a forward to a backward. */
typedef struct {
    int node;           /* the smallest that all events which touch it are in; -1: it is no such activation */
    int last_forward;   /* the last event of the forward that touches it */
    int first_backward; /* the first one after that */
} Kept;

typedef struct {
    const Plan *plan;
    const PlanProgram *p;
    int program;
    Arena *a; /* of its own */
    VEC(Node) nodes;
    Map *paths, *patterns;
    int *leaf;       /* by event: its module's node */
    Kept *kept;      /* by storage */
    int64_t *live;   /* by event: bytes alive */
    int64_t *change; /* by event, of one saving: bytes that are no longer alive from there on */
    int *within;     /* by node: the node of the pattern that is looked at which it is in; -1: none */
    int *needed;     /* by storage: a mark of the saving that computes it again */
    int mark;
    double forward_us, backward_us; /* of kernels */
} Work;

/* ── modules ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
static bool is_number(const char *name) {
    return *name && !name[strspn(name, "0123456789")];
}

static int node_of(Work *w, const char *path) {
    if (!*path) return 0;
    int known = map_len(w->paths), i = map_index(w->paths, path);
    if (i < known) return (int)(intptr_t)map_value(w->paths, i);
    const char *dot = strrchr(path, '.'), *name = dot ? dot + 1 : path;
    int parent = dot ? node_of(w, arena_printf(w->a, "%.*s", (int)(dot - path), path)) : 0;
    const Node *above = &w->nodes.at[parent];
    bool number = is_number(name);
    Node n = {.path = arena_strdup(w->a, path), .parent = parent, .depth = above->depth + 1};
    n.pattern = map_index(w->patterns, live_path_pattern(w->a, path));
    n.number = number;
    n.first_backward = w->p->n;
    int index = w->nodes.n;
    n.block = above->block >= 0 ? above->block : number ? index : -1;
    w->nodes.at[parent].children++;
    w->nodes.at[parent].numbers += number;
    for (int i = parent; n.block == index && i; i = w->nodes.at[i].parent) w->nodes.at[i].holds_blocks = true;
    push(&w->nodes, w->a, n);
    map_put(w->paths, path, (void *)(intptr_t)index);
    return index;
}

static int common_node(const Work *w, int a, int b) {
    const Node *at = w->nodes.at;
    while (a != b) {
        if (at[a].depth >= at[b].depth)
            a = at[a].parent;
        else
            b = at[b].parent;
    }
    return a;
}

static bool is_kernel(const Event *e) {
    return e->stream == COMPUTE;
}

static void find_modules(Work *w) {
    w->paths = map_new(w->a);
    w->patterns = map_new(w->a);
    map_index(w->patterns, "");
    push(&w->nodes, w->a, ((Node){.path = "", .block = -1, .first_backward = w->p->n}));
    w->leaf = NEW_ARRAY(w->a, int, w->p->n + 1);
    for (int e = 0; e < w->p->n; e++) {
        const Event *x = &w->p->events[e];
        int leaf = w->leaf[e] = node_of(w, x->module);
        if (is_kernel(x) && x->phase == FORWARD) w->forward_us += x->duration_us;
        if (is_kernel(x) && (x->phase == BACKWARD || x->phase == RECOMPUTE)) w->backward_us += x->duration_us;
        for (int i = leaf;; i = w->nodes.at[i].parent) {
            Node *n = &w->nodes.at[i];
            n->recomputes |= x->phase == RECOMPUTE;
            n->fetches |= x->purpose == TO_FETCH_ACTIVATION;
            if (is_kernel(x) && x->phase != FORWARD && e < n->first_backward) n->first_backward = e;
            if (!i) break;
        }
    }
}

static void find_kept(Work *w) {
    w->kept = NEW_ARRAY(w->a, Kept, w->plan->nstorages + 1);
    for (int i = 0; i < w->plan->nstorages; i++) {
        const Storage *s = &w->plan->storages[i];
        bool kept = s->program == w->program && s->arena == ARENA_DEVICE && s->cls == C_ACTIVATIONS &&
                    w->p->events[s->first].phase == FORWARD &&
                    (w->p->events[s->last].phase == BACKWARD || w->p->events[s->last].phase == RECOMPUTE);
        w->kept[i] = (Kept){kept ? w->leaf[s->first] : -1, s->first, w->p->n};
    }
    for (int e = 0; e < w->p->n; e++) {
        const Event *x = &w->p->events[e];
        for (int i = 0; i < x->nreads + x->nwrites; i++) {
            Kept *k = &w->kept[(i < x->nreads ? &x->reads[i] : &x->writes[i - x->nreads])->storage];
            if (k->node < 0) continue;
            k->node = common_node(w, k->node, w->leaf[e]);
            if (x->phase == FORWARD) k->last_forward = e;
            if (x->phase != FORWARD && e < k->first_backward) k->first_backward = e;
        }
    }
}

static void find_live(Work *w) {
    w->live = NEW_ARRAY(w->a, int64_t, w->p->n + 1);
    for (int i = 0; i < w->plan->nstorages; i++) {
        const Storage *s = &w->plan->storages[i];
        if (s->arena != ARENA_DEVICE || (s->program >= 0 && s->program != w->program)) continue;
        w->live[s->program < 0 ? 0 : s->first] += s->size;
        if (s->program >= 0) w->live[s->last + 1] -= s->size;
    }
    for (int e = 1; e < w->p->n; e++) w->live[e] += w->live[e - 1];
}

/* ── savings ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* A storage is not alive between two events. */
static void free_between(Work *w, int storage, int after, int before) {
    if (after + 1 >= before) return;
    w->change[after + 1] += w->plan->storages[storage].size;
    w->change[before] -= w->plan->storages[storage].size;
}

/* Nodes of the pattern, how many they are; whether each may be treated so. */
static int choose(Work *w, int pattern, SavingKind kind, bool *allowed) {
    int n = 0;
    *allowed = pattern > 0;
    for (int i = 0; i < w->nodes.n; i++) {
        const Node *x = &w->nodes.at[i];
        bool own = x->pattern == pattern;
        w->within[i] = own ? i : i ? w->within[x->parent] : -1;
        if (!own) continue;
        n++;
        /* Paths with a + are of products that were fused. */
        bool plain = !x->path[strspn(x->path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")];
        const Node *block = x->block >= 0 ? &w->nodes.at[x->block] : x;
        *allowed &= plain && !x->holds_blocks && !(x->children && x->children == x->numbers);
        /* In a block that computes again or offloads, only the block itself is asked to do more: which of its modules
         * asked for what it does now, events do not tell. */
        if (kind == SAVING_RECOMPUTE) *allowed &= x == block ? x->number || !x->recomputes : !block->recomputes;
        if (kind == SAVING_RECOMPUTE && x != block) *allowed &= !block->fetches;
        if (kind == SAVING_OFFLOAD) *allowed &= !block->recomputes && !block->fetches;
        if (kind == SAVING_OFFLOAD_INPUT) *allowed &= x == block && x->number && !block->fetches;
    }
    return n;
}

static int module_of(const Work *w, int node) {
    return node < 0 ? -1 : w->within[node];
}

/* Kept storages of these modules are freed after their forward; what makes them runs again before the backward. */
static double recompute(Work *w) {
    double us = 0;
    int again = ++w->mark, held = ++w->mark;
    for (int i = 0; i < w->plan->nstorages; i++) {
        int m = module_of(w, w->kept[i].node);
        if (m < 0) continue;
        free_between(w, i, w->kept[i].last_forward, w->nodes.at[m].first_backward);
        w->needed[i] = again;
    }
    for (int e = w->p->n; e-- > 0;) {
        const Event *x = &w->p->events[e];
        int m = module_of(w, w->leaf[e]);
        if (x->phase != FORWARD || m < 0) continue;
        bool runs = false;
        for (int i = 0; i < x->nwrites; i++) runs |= w->needed[x->writes[i].storage] == again;
        if (!runs) continue;
        us += x->duration_us;
        for (int i = 0; i < x->nreads; i++) {
            int at = x->reads[i].storage;
            const Storage *s = &w->plan->storages[at];
            bool value = s->program >= 0 && (s->cls == C_ACTIVATIONS || s->cls == C_TEMPORARY);
            if (!value || w->needed[at] == held || w->kept[at].node >= 0) continue;
            if (module_of(w, w->leaf[s->first]) == m) {
                w->needed[at] = again;
                continue;
            }
            w->needed[at] = held; /* the module's input, which the backward did not need: now it is kept */
            int back = w->nodes.at[m].first_backward;
            if (s->last + 1 < back) {
                w->change[s->last + 1] -= s->size;
                w->change[back] += s->size;
            }
        }
    }
    return us;
}

static int64_t offload_one(Work *w, int storage) {
    free_between(w, storage, w->kept[storage].last_forward, w->kept[storage].first_backward);
    return w->plan->storages[storage].size;
}

/* Bytes that are copied: what these modules alone use. What one of them makes for others is left out: where it is the
 * result of an op that was fused with one of another module, the policy of this one does not reach it. */
static int64_t offload(Work *w) {
    int64_t bytes = 0;
    for (int i = 0; i < w->plan->nstorages; i++)
        if (module_of(w, w->kept[i].node) >= 0) bytes += offload_one(w, i);
    return bytes;
}

/* Likewise: what others made and these modules read. */
static int64_t offload_input(Work *w) {
    int64_t bytes = 0;
    int done = ++w->mark;
    for (int e = 0; e < w->p->n; e++) {
        const Event *x = &w->p->events[e];
        int m = module_of(w, w->leaf[e]);
        for (int i = 0; i < x->nreads && m >= 0 && x->phase == FORWARD; i++) {
            int at = x->reads[i].storage;
            if (w->kept[at].node < 0 || w->needed[at] == done) continue;
            if (module_of(w, w->leaf[w->plan->storages[at].first]) == m) continue;
            w->needed[at] = done;
            bytes += offload_one(w, at);
        }
    }
    return bytes;
}

static double beyond_kernels(const Work *w, int64_t bytes) {
    double out = (double)bytes / w->plan->host_up * 1e6, back = (double)bytes / w->plan->host_down * 1e6;
    return fmax(out - w->forward_us, 0) + fmax(back - w->backward_us, 0);
}

static const char *entry_of(const Work *w, const char *pattern, SavingKind kind, bool recomputes) {
    const char *asks = "replace = true, checkpoint = {}";
    if (kind == SAVING_OFFLOAD) asks = "replace = true, checkpoint = { recompute = false, offload = { \"*\" } }";
    if (kind == SAVING_OFFLOAD_INPUT)
        asks = recomputes ? "checkpoint = { offload = { \"input\" } }"
                          : "checkpoint = { recompute = false, offload = { \"input\" } }";
    return arena_printf(w->plan->arena, "{ match = \"%s\", %s }", pattern, asks);
}

static void add_saving(Work *w, Savings *out, int pattern, SavingKind kind) {
    bool allowed, recomputes = false;
    int modules = choose(w, pattern, kind, &allowed);
    if (!allowed) return;
    for (int i = 0; i < w->nodes.n; i++) recomputes |= w->nodes.at[i].pattern == pattern && w->nodes.at[i].recomputes;
    memset(w->change, 0, sizeof *w->change * (size_t)(w->p->n + 1));
    Saving s = {
        .kind = kind, .pattern = arena_strdup(w->plan->arena, map_key(w->patterns, pattern)), .modules = modules};
    if (kind == SAVING_RECOMPUTE)
        s.us = recompute(w);
    else
        s.us = beyond_kernels(w, s.copied = kind == SAVING_OFFLOAD ? offload(w) : offload_input(w));
    s.us *= live_step(w->plan).microbatches;
    int64_t less = 0, most = 0, most_then = 0;
    for (int e = 0; e < w->p->n; e++) {
        less += w->change[e];
        most = max64(most, w->live[e]);
        most_then = max64(most_then, w->live[e] - less);
        if (e == w->p->peak_event) s.bytes = less;
    }
    s.lower = most - most_then;
    s.entry = entry_of(w, s.pattern, kind, recomputes);
    if (s.bytes > 0 && s.lower > 0 && (double)s.lower >= LEAST_SHARE * (double)most) push(out, w->plan->arena, s);
}

static int by_rate(const void *a, const void *b) {
    const Saving *x = a, *y = b;
    double p = (double)x->lower * y->us, q = (double)y->lower * x->us;
    if (p != q) return p > q ? -1 : 1;
    if (x->lower != y->lower) return x->lower > y->lower ? -1 : 1;
    int c = strcmp(x->pattern, y->pattern);
    return c ? c : (int)x->kind - (int)y->kind;
}

/* Of the same modules y lowers the peak by at least as much in at most as much time, and one of both is better. */
static bool beats(const Saving *y, const Saving *x) {
    bool differs = y->lower != x->lower || y->us < x->us || y->us > x->us;
    return differs && y->lower >= x->lower && y->us <= x->us && !strcmp(y->pattern, x->pattern);
}

/* They stand by rate, so what beats one stands before it. */
static void leave_out_beaten(Savings *all) {
    int kept = 0;
    for (int i = 0; i < all->n; i++) {
        bool beaten = false;
        for (int k = 0; k < kept; k++) beaten |= beats(&all->at[k], &all->at[i]);
        if (!beaten) all->at[kept++] = all->at[i];
    }
    all->n = kept;
}

typedef struct {
    int64_t bytes;
    int pattern;
} Held;

static int by_held(const void *a, const void *b) {
    const Held *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->pattern - y->pattern;
}

Savings plan_savings(const Plan *p, int program) {
    Savings out = {0};
    const PlanProgram *g = &p->programs[program];
    if (!program_trains(g) || g->peak_event < 0) return out;
    Work work = {.plan = p, .p = g, .program = program, .a = arena_new()}, *w = &work;
    find_modules(w);
    find_kept(w);
    find_live(w);
    int n = map_len(w->patterns);
    Held *held = NEW_ARRAY(w->a, Held, n);
    for (int i = 0; i < n; i++) held[i].pattern = i;
    for (int i = 0; i < p->nstorages; i++) {
        if (w->kept[i].node < 0) continue;
        for (int k = w->leaf[p->storages[i].first]; k; k = w->nodes.at[k].parent)
            held[w->nodes.at[k].pattern].bytes += p->storages[i].size;
    }
    qsort(held, (size_t)n, sizeof *held, by_held);
    w->change = NEW_ARRAY(w->a, int64_t, g->n + 1);
    w->within = NEW_ARRAY(w->a, int, w->nodes.n);
    w->needed = NEW_ARRAY(w->a, int, p->nstorages + 1);
    bool copies = p->host_up > 0 && p->host_down > 0;
    for (int i = 0; i < n && i < MOST_PATTERNS && held[i].bytes > 0; i++)
        for (SavingKind k = 0; k < (copies ? N_SAVINGS : SAVING_OFFLOAD); k++) add_saving(w, &out, held[i].pattern, k);
    if (out.n) qsort(out.at, (size_t)out.n, sizeof *out.at, by_rate);
    leave_out_beaten(&out);
    arena_free(w->a);
    return out;
}

const char *savings_word(SavingKind k) {
    static const char *const words[N_SAVINGS] = {
        [SAVING_RECOMPUTE] = "recompute", [SAVING_OFFLOAD] = "offload", [SAVING_OFFLOAD_INPUT] = "offload input"};
    return words[k];
}
