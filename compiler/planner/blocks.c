/* blocks: finds the repeated modules of a model and enumerates what each may keep, recompute and offload.
 * Relies on: blocks.h, the ops of a lowered plan.
 * Relied on by: planner.c. */
#include "blocks.h"
#include "../ir/patterns.h"
#include "../ir/policy.h"

#include <math.h>
#include <stdlib.h>

/* ── which modules ──────────────────────────────────────────────────────────────────────────────────────────────── */
static bool lies_in(const char *path, const char *module) { /* the module's own path too */
    size_t n = strlen(module);
    return !strncmp(path, module, n) && (!path[n] || path[n] == '.');
}

int blocks_of_path(const Blocks *b, const char *path) {
    for (int i = 0; i < b->at.n; i++)
        if (lies_in(path, b->at.at[i].path)) return i;
    return -1;
}

static const PlanProgram *training_program(const Plan *p) { /* the last of a step */
    const PlanProgram *found = NULL;
    for (int i = 0; i < p->nprograms; i++)
        if (program_trains(&p->programs[i])) found = &p->programs[i];
    return found;
}

/* "h.3" is number 3 of the list "h". */
static bool is_numbered(Arena *a, const char *path, Block *b) {
    const char *dot = strrchr(path, '.'), *digits = dot ? dot + 1 : path;
    if (!*digits || digits[strspn(digits, "0123456789")]) return false;
    b->list = dot ? arena_printf(a, "%.*s", (int)(dot - path), path) : "";
    b->number = atoi(digits);
    return true;
}

/* Events of a module in the forward come in one run of one call; a module called twice has two calls. */
static bool called_once(const PlanProgram *p, const Module *m) {
    int call = -1;
    for (int e = 0; e < p->n; e++) {
        const Op *op = p->events[e].op_ir;
        if (!op || op->phase != FORWARD || op->module != m) continue;
        if (call >= 0 && op->call != call) return false;
        call = op->call;
    }
    return true;
}

static int first_event(const PlanProgram *p, const char *path) {
    for (int e = 0; e < p->n; e++) {
        const Event *ev = &p->events[e];
        if (ev->phase == FORWARD && ev->stream == COMPUTE && lies_in(ev->module, path)) return e;
    }
    return INT32_MAX;
}

typedef struct {
    int first;
    Block block;
} Placed;

static int by_first(const void *a, const void *b) {
    const Placed *x = a, *y = b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first) : strcmp(x->block.path, y->block.path);
}

Blocks blocks_find(Arena *a, const Plan *p) {
    Blocks b = {0};
    const Graph *g = p->graph;
    const PlanProgram *step = training_program(p);
    VEC(Placed) found = {0};
    for (int i = 0; i < g->modules.n && step; i++) {
        const Module *m = g->modules.at[i];
        if (m->policy) push(&b.units, a, m->path);
        Placed x = {.block = {.path = m->path}};
        if (!is_numbered(a, m->path, &x.block) || !m->kind) continue;
        x.first = first_event(step, m->path);
        if (x.first < INT32_MAX) push(&found, a, x);
    }
    for (int i = 0; i < g->modules.n && step && !found.n; i++) { /* nothing is repeated: modules of units */
        const Module *m = g->modules.at[i];
        Placed x = {.first = first_event(step, m->path), .block = {.path = m->path, .number = -1}};
        if (*m->path && x.first < INT32_MAX && (m->policy || m->parent == g->root)) push(&found, a, x);
    }
    if (found.n) qsort(found.at, (size_t)found.n, sizeof *found.at, by_first);
    for (int i = 0; i < found.n; i++) { /* the outermost */
        bool inner = false, twice = false;
        for (int k = 0; k < found.n && !inner; k++)
            inner = k != i && lies_in(found.at[i].block.path, found.at[k].block.path);
        for (int k = 0; k < g->modules.n && !twice; k++) {
            const Module *m = g->modules.at[k];
            twice = lies_in(m->path, found.at[i].block.path) && !called_once(step, m);
        }
        if (!inner && !twice) push(&b.at, a, found.at[i].block);
    }
    return b;
}

const char *blocks_marking(Arena *a, const Blocks *b) {
    Str s = {.arena = a};
    str_add(&s, "return {\n");
    for (int i = 0; i < b->at.n; i++)
        str_addf(&s, "  { match = \"%s\", replace = true, checkpoint = { save = { \"*\" } } },\n", b->at.at[i].path);
    str_add(&s, "}\n");
    return s.s;
}

/* ── the values of a block ──────────────────────────────────────────────────────────────────────────────────────── */
enum { MOST_VALUES = 64, MOST_STEPS = 64, MOST_TWO = 12, MOST_THREE = 8 };

typedef struct {
    const Value *root;
    double bytes;
    bool wanted; /* the backward reads it */
    int step;    /* that makes it; -1: it comes from outside of the block */
    int atom;
} Held;

typedef struct { /* an op, or an op's second part alone (pattern_apart), which needs `kept` */
    double us;
    int reads[MAX_IN * 2], nreads; /* values of the block */
} Work;

typedef struct { /* one event of the block's forward */
    Work whole, second;
    int kept; /* the value that makes the second part enough; -1: there are no parts */
} Step;

typedef struct {
    const char *name;
    double bytes; /* that the backward reads */
} Atom;

typedef struct {
    Arena *a;
    const Device *d;
    double bus; /* B/s of copies to the host, all ranks of a machine at once */
    Held values[MOST_VALUES];
    Step steps[MOST_STEPS];
    Atom atoms[MOST_VALUES];
    int nvalues, nsteps, natoms;
} Inside;

static int value_index(const Inside *in, const Value *v) {
    const Value *root = value_root(v);
    for (int i = 0; i < in->nvalues; i++)
        if (in->values[i].root == root) return i;
    return -1;
}

/* How `save` names a result: by the op's kind where only one op of the block has it, else by its module, or both. */
static const char *name_of(const Inside *in, const PlanProgram *p, const char *block, const Op *op, OpKind kind,
                           const Module *m) {
    int same_kind = 0, same_module = 0;
    for (int e = 0; e < p->n; e++) {
        const Op *group = p->events[e].op_ir;
        if (!group || group->phase != FORWARD || !group->region) continue;
        for (int b = 0; b < (group->nbody ? group->nbody : 1); b++) {
            const Op *x = group->nbody ? group->body[b] : group;
            if (x->region != op->region || op_is(x, T_VIEW)) continue;
            same_kind += x->kind == kind;
            same_module += x->module == m;
        }
    }
    const char *path = m->path + strlen(block); /* below the block */
    path += *path == '.';
    if (same_kind <= (kind == op->kind)) return op_info[kind].name;
    if (*path && same_module == 1 && kind == op->kind) return arena_strdup(in->a, path);
    return arena_printf(in->a, "%s:%s", path, op_info[kind].name);
}

static int atom_named(Inside *in, const char *name) {
    for (int i = 0; i < in->natoms; i++)
        if (!strcmp(in->atoms[i].name, name)) return i;
    in->atoms[in->natoms] = (Atom){name, 0};
    return in->natoms++;
}

static void add_results(Inside *in, const PlanProgram *p, const char *block, const Op *op, int step) {
    Op second;
    const Value *between = pattern_apart(op, &second);
    for (int i = 0; i < op->nout && in->nvalues < MOST_VALUES; i++) {
        Value *v = op->out[i];
        if (!v || v->internal || v->base) continue;
        bool of_second = between && v != between;
        const char *name = name_of(in, p, block, op, of_second ? second.kind : op->kind,
                                   of_second && op->module->parent ? op->module->parent : op->module);
        in->values[in->nvalues++] = (Held){v, (double)value_bytes(v), false, step, atom_named(in, name)};
    }
}

/* A fused group keeps what one of its ops makes for another where the backward reads it. */
static bool makes(const Op *group, const Value *v) {
    bool found = false;
    for (int b = 0; b < group->nbody; b++)
        for (int i = 0; i < group->body[b]->nout; i++) found |= group->body[b]->out[i] == v;
    return found;
}

/* What op, which is `group` or one of its ops, reads from outside of the group. */
static void add_reads(Inside *in, const Op *group, const Op *op, Work *w) {
    for (int i = 0; i < op->nin && w->nreads < MAX_IN * 2; i++) {
        if (!op->in[i]) continue;
        const Value *v = value_root(op->in[i]);
        if (makes(group, v)) continue;
        int index = value_index(in, v);
        bool made = v->def && v->def->phase == FORWARD && !v->state && !v->param && purpose_pinned(v->def->purpose);
        if (index < 0 && made && in->nvalues < MOST_VALUES) {
            /* What earlier blocks made is the block's input, whose only name is that: it can be kept or go to the host.
             */
            index = in->nvalues++;
            in->values[index] = (Held){v, (double)value_bytes(v), false, -1, atom_named(in, "input")};
        }
        if (index >= 0) w->reads[w->nreads++] = index;
    }
}

/* Values and steps of one call's region, and who reads what. False: there are none, or too many. */
static bool look_inside(Inside *in, const PlanProgram *p, const char *block, int region) {
    for (int e = 0; e < p->n; e++) {
        const Event *ev = &p->events[e];
        const Op *op = ev->op_ir;
        if (!op || op->phase != FORWARD || op->region != region || !purpose_pinned(ev->purpose)) continue;
        if (in->nsteps == MOST_STEPS) return false;
        Step *s = &in->steps[in->nsteps];
        *s = (Step){.whole.us = ev->duration_us, .kept = -1};
        for (int b = 0; b < op->nbody; b++) add_reads(in, op, op->body[b], &s->whole);
        add_reads(in, op, op, &s->whole);
        for (int b = 0; b < op->nbody; b++) add_results(in, p, block, op->body[b], in->nsteps);
        if (!op->nbody) add_results(in, p, block, op, in->nsteps);
        Op second;
        const Value *between = pattern_apart(op, &second);
        if (between) {
            double bytes = op_info[second.kind].cost(&second).bytes;
            s->second.us = bytes / in->d->memory_bandwidth * 1e6 + in->d->launch_us;
            s->kept = value_index(in, between);
            add_reads(in, op, &second, &s->second);
        }
        in->nsteps++;
    }
    for (int e = 0; e < p->n; e++) {
        const Op *op = p->events[e].op_ir;
        if (!op || op->phase == FORWARD || op->region != region) continue; /* what the next block reads is its input */
        for (int i = 0; i < op->nin; i++) {
            int v = op->in[i] ? value_index(in, op->in[i]) : -1;
            if (v >= 0 && !in->values[v].wanted) {
                in->values[v].wanted = true;
                in->atoms[in->values[v].atom].bytes += in->values[v].bytes;
            }
        }
    }
    return in->nsteps > 0 && in->nvalues < MOST_VALUES;
}

/* ── choices ────────────────────────────────────────────────────────────────────────────────────────────────────── */
enum { KEEP, REMAKE, AWAY };

/* What a choice of atoms costs: the steps whose results the backward wants and that are not kept, and theirs. */
static BlockOption price(const Inside *in, const char *of_atom) {
    BlockOption o = {0};
    bool again[MOST_STEPS] = {false}, used[MOST_VALUES];
    for (int v = 0; v < in->nvalues; v++) used[v] = in->values[v].wanted;
    for (int v = in->nvalues - 1; v >= 0; v--) { /* later values first: makers stand before their readers */
        const Held *h = &in->values[v];
        if (!used[v] || of_atom[h->atom] != REMAKE || h->step < 0) continue;
        const Step *s = &in->steps[h->step];
        bool part = s->kept >= 0 && of_atom[in->values[s->kept].atom] != REMAKE;
        const Work *w = part ? &s->second : &s->whole;
        if (again[h->step]) continue;
        again[h->step] = true;
        o.us += w->us;
        for (int k = 0; k < w->nreads; k++) used[w->reads[k]] = true;
    }
    for (int v = 0; v < in->nvalues; v++) {
        const Held *h = &in->values[v];
        char at = of_atom[h->atom];
        if (!used[v] || (at == REMAKE && h->step >= 0)) continue;
        if (at == REMAKE) at = KEEP; /* an input */
        if (at == KEEP) o.kept += h->bytes;
        if (at == AWAY) o.bus_us += h->bytes / in->bus * 1e6;
    }
    return o;
}

typedef struct {
    BlockOption o;
    char of_atom[MOST_VALUES];
} Choice;

static int by_bytes(const void *a, const void *b) {
    const Atom *const *x = a, *const *y = b;
    return ((*x)->bytes < (*y)->bytes) - ((*x)->bytes > (*y)->bytes);
}

/* Names of the option: what is kept beside what is recomputed, what goes to the host. */
static BlockOption named(const Inside *in, const Choice *c) {
    BlockOption o = c->o;
    bool any_remade = false;
    for (int i = 0; i < in->natoms; i++) any_remade |= c->of_atom[i] == REMAKE && strcmp(in->atoms[i].name, "input");
    o.recompute = any_remade;
    for (int i = 0; i < in->natoms; i++) {
        bool is_input = !strcmp(in->atoms[i].name, "input");
        if (c->of_atom[i] == KEEP && any_remade && in->atoms[i].bytes > 0 && !is_input)
            push(&o.save, in->a, in->atoms[i].name);
        if (c->of_atom[i] == AWAY) push(&o.offload, in->a, in->atoms[i].name);
    }
    return o;
}

typedef VEC(Choice) Choices;

/* Every choice of so many states for the `n` largest atoms; the others are kept, or all recomputed. */
static void choose_all(Inside *in, const Atom *const *large, int n, int states, char rest_state, double hides_us,
                       Choices *all) {
    int total = 1;
    for (int i = 0; i < n; i++) total *= states;
    for (int code = 0; code < total; code++) {
        Choice c = {0};
        bool impossible = false;
        for (int i = 0; i < in->natoms; i++) c.of_atom[i] = rest_state;
        for (int i = 0, left = code; i < n; i++, left /= states) {
            int s = left % states;
            impossible |= s == REMAKE && !strcmp(large[i]->name, "input");
            c.of_atom[large[i] - in->atoms] = (char)s;
        }
        for (int i = 0; i < in->natoms; i++) /* what the backward does not read is made again where it helps */
            if (in->atoms[i].bytes <= 0) c.of_atom[i] = REMAKE;
        if (impossible) continue;
        c.o = price(in, c.of_atom);
        if (c.o.bus_us <= hides_us) push(all, in->a, c);
    }
}

/* Choices on the lower convex hull of bytes against time, for some prices of the bus: whatever the budget, a mixture of
 * these over many blocks is next to the best. Not all choices are looked at where a block has many values: all of two
 * states for the largest twelve, all of three for the largest eight. */
static void enumerate(Inside *in, BlockOptions *out, bool recompute, bool offload, double hides_us) {
    const Atom *large[MOST_VALUES];
    int n = 0;
    for (int i = 0; i < in->natoms; i++)
        if (in->atoms[i].bytes > 0) large[n++] = &in->atoms[i];
    qsort(large, (size_t)n, sizeof *large, by_bytes);
    Choices all = {0};
    int two = n < MOST_TWO ? n : MOST_TWO, three = n < MOST_THREE ? n : MOST_THREE;
    for (int rest = KEEP; rest <= (recompute ? REMAKE : KEEP); rest++) {
        if (recompute) choose_all(in, large, two, 2, (char)rest, 0, &all);
        if (offload && recompute) choose_all(in, large, three, 3, (char)rest, hides_us, &all);
    }
    if (offload && !recompute) { /* AWAY in place of REMAKE */
        choose_all(in, large, three, 3, KEEP, hides_us, &all);
        int kept = 0;
        for (int i = 0; i < all.n; i++)
            if (all.at[i].o.us <= 0) all.at[kept++] = all.at[i];
        all.n = kept;
    }
    Choices hull = {0};
    for (int cap = 0; cap < (offload ? 3 : 1); cap++) { /* of copies: none, some, as many as a block's kernels hide */
        double most = hides_us * cap / 2;
        for (double byte = 1e-12; byte < 1; byte *= 1.25) { /* microseconds a byte */
            int best = -1;
            double least = INFINITY;
            for (int i = 0; i < all.n; i++) {
                const BlockOption *o = &all.at[i].o;
                double cost = o->us + 0.01 * o->bus_us + byte * o->kept;
                if (o->bus_us <= most && cost < least) least = cost, best = i;
            }
            bool known = best < 0;
            for (int i = 0; i < hull.n && !known; i++) {
                const BlockOption *x = &hull.at[i].o, *y = &all.at[best].o;
                known = x->kept <= y->kept && x->us <= y->us && x->bus_us <= y->bus_us;
            }
            if (!known) push(&hull, in->a, all.at[best]);
        }
    }
    for (int i = 0; i < hull.n; i++) {
        bool kept_all = hull.at[i].o.us <= 0 && hull.at[i].o.bus_us <= 0;
        if (!kept_all) push(out, in->a, named(in, &hull.at[i]));
    }
}

static int by_kept(const void *a, const void *b) {
    const BlockOption *x = a, *y = b;
    return (x->kept < y->kept) - (x->kept > y->kept);
}

/* Ops, shapes and places of a block's forward, as text: blocks with equal text are of one kind. */
static const char *signature(Arena *a, const PlanProgram *p, const char *block) {
    Str s = {.arena = a};
    size_t n = strlen(block);
    for (int e = 0; e < p->n; e++) {
        const Event *ev = &p->events[e];
        if (ev->phase != FORWARD || !purpose_pinned(ev->purpose) || !ev->op_ir) continue;
        if (!lies_in(ev->module, block)) continue;
        str_addf(&s, "%s %s", ev->op, ev->module + n);
        for (int i = 0; i < ev->op_ir->nout; i++)
            if (ev->op_ir->out[i]) str_addf(&s, " %s", value_str(a, ev->op_ir->out[i]));
        str_add(&s, "\n");
    }
    return s.s ? s.s : "";
}

bool blocks_can_offload(const Device *d) {
    return d->host_bandwidth > 0 && !strcmp(d->target, "cuda");
}

double blocks_options(Arena *a, Blocks *b, const Plan *marked, const Device *d, bool recompute, bool offload) {
    const PlanProgram *p = training_program(marked);
    Map *kinds = map_new(a);
    double forward_us = 0; /* of kernels in blocks: what copies hide behind */
    for (int e = 0; p && e < p->n; e++)
        if (p->events[e].phase == FORWARD && p->events[e].stream == COMPUTE) forward_us += p->events[e].duration_us;
    for (int i = 0; p && i < b->at.n; i++) {
        int known = map_len(kinds);
        b->at.at[i].kind = map_index(kinds, signature(a, p, b->at.at[i].path));
        if (b->at.at[i].kind < known) continue;
        BlockOptions options = {0};
        push(&options, a, ((BlockOption){.none = true}));
        Inside *in = NEW(a, Inside);
        in->a = a;
        in->d = d;
        double ranks = marked->nodes > 1 ? marked->world / marked->nodes : marked->world;
        in->bus = fmin(d->host_bandwidth, fmin(d->host_writes > 0 ? d->host_writes / ranks : INFINITY,
                                               d->host_reads > 0 ? d->host_reads / ranks : INFINITY));
        int region = 0;
        for (int e = 0; e < p->n && !region; e++) {
            const Op *op = p->events[e].op_ir;
            bool own = op && op->phase == FORWARD && op->region && blocks_of_path(b, p->events[e].module) == i;
            if (own) region = op->region;
        }
        bool host = offload && blocks_can_offload(d);
        if (region && look_inside(in, p, b->at.at[i].path, region)) {
            options.at[0].kept = price(in, (char[MOST_VALUES]){0}).kept;
            enumerate(in, &options, recompute, host, 0.8 * forward_us / b->at.n);
        }
        qsort(options.at + 1, (size_t)options.n - 1, sizeof *options.at, by_kept);
        push(&b->options, a, options);
    }
    return 0.9 * forward_us;
}
