/* planner: searches for the fastest plan within a budget. A model of costs, a chain of blocks (chain.h), proposes
 * policies. Each proposal is compiled, placed and simulated. What placement needed beyond the model corrects the next.
 * Relies on: blocks.h, chain.h, entries.h, evaluate.h. Relied on by: cli. */
#include "planner.h"
#include "../ir/policy.h"
#include "../plan/live.h"
#include "chain.h"
#include "entries.h"
#include "evaluate.h"

#include <math.h>
#include <stdlib.h>

bool planner_hold(PlannerChoices *c, const char *text) {
    const struct {
        const char *name;
        Freedom *at;
    } all[] = {{"recompute", &c->recompute},
               {"offload", &c->offload},
               {"reshard", &c->reshard},
               {"prefetch", &c->prefetch},
               {"state", &c->state}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t n = strlen(all[i].name);
        if (strncmp(text, all[i].name, n)) continue;
        if (text[n] && strcmp(text + n, "=model") && strcmp(text + n, "=none")) continue;
        *all[i].at = !strcmp(text + n, "=none") ? NONE : AS_MODEL;
        return true;
    }
    return false;
}

/* A way to treat units, and what the model comes to with it when every block keeps all. */
typedef struct {
    UnitSetting units;
    Outcome all;
    Chain chain;
    int64_t low, high; /* budgets of the chain whose choice has fit, has not; 0: none yet */
    int64_t next;      /* to be tried; 0: done */
    double hides_us;   /* copies that the chain may choose; halved where they did not hide */
    int *choice;
} Variant;

typedef struct Search Search;

typedef struct { /* a text that was compiled */
    const char *entries;
    const int *option; /* by block; NULL: as the model says */
    UnitSetting units;
    Outcome o;
    double promise_us; /* what its chain promised; 0: it was no proposal */
    bool whole;        /* o is that of placement with all effort, no estimate */
    const Search *of;  /* whose options `option` names: this search, or that for one microbatch */
} Tried;

struct Search {
    Arena *a;
    const PlannerInput *in;
    PlannerChoices free;
    bool one; /* of one microbatch, whatever the model accumulates */
    Blocks b;
    bool checkpoints; /* may be chosen */
    VEC(Tried) tried;
    VEC(Variant) variants;
    BlockNeeds **needs; /* [kind][option * blocks + block]: measured where all blocks of the kind do so */
    double **us;        /* [kind][option] */
    double hides_us;    /* copies one way, behind the forward */
    bool copies;        /* some option copies activations to the host */
    bool several;       /* ranks */
    bool gathered;      /* the model keeps some unit gathered after the forward */
    int ahead;          /* the most units that the model gathers ahead */
    int events;         /* of the model's plan */
    int microbatches;   /* of a step */
    int64_t budget;
};

/* ── compiling ──────────────────────────────────────────────────────────────────────────────────────────────────── */
static int known(const Search *s, const char *entries) {
    for (int i = 0; i < s->tried.n; i++)
        if (!strcmp(s->tried.at[i].entries, entries)) return i;
    return -1;
}

/* Of two equally fast ones, to the picosecond, the one with fewer bytes on the host, then the one with the smaller
 * arena. */
static bool is_better(const Outcome *x, const Outcome *y) {
    long long x_ps = llround(x->step_us * 1e6), y_ps = llround(y->step_us * 1e6);
    if (x_ps != y_ps) return x_ps < y_ps;
    return x->host != y->host ? x->host < y->host : x->arena < y->arena;
}

/* The best that was placed within the budget; -1. */
static int fastest(const Search *s, int64_t budget) {
    int best = -1;
    for (int i = 0; i < s->tried.n; i++) {
        const Outcome *o = &s->tried.at[i].o;
        if (o->made && o->arena <= budget && (best < 0 || is_better(o, &s->tried.at[best].o))) best = i;
    }
    return best;
}

typedef struct {
    const int *option;
    UnitSetting units;
} Wanted;

static int *copied(const Search *s, const int *option) {
    int *copy = NEW_ARRAY(s->a, int, s->b.at.n + 1);
    memcpy(copy, option, sizeof *copy * (size_t)s->b.at.n);
    return copy;
}

/* Placed with little effort, side by side: tried.at[first] and those after it. */
static void estimate_from(Search *s, int first) {
    int n = s->tried.n - first;
    const char **texts = NEW_ARRAY(s->a, const char *, n + 1);
    Outcome *found = NEW_ARRAY(s->a, Outcome, n + 1);
    for (int i = 0; i < n; i++) texts[i] = s->tried.at[first + i].entries;
    evaluate_all(s->a, s->in, (PlannerHow){.estimate = true, .one = s->one}, &s->b, texts, n, found);
    for (int i = 0; i < n; i++) s->tried.at[first + i].o = found[i];
    int best = fastest(s, s->budget);
    if (s->in->tell && !s->one) s->in->tell(s->in->context, s->tried.n, best < 0 ? 0 : s->tried.at[best].o.step_us);
}

/* Compiles what is new. index[i]: in s->tried. */
static void try_all(Search *s, const Wanted *w, int n, int *index) {
    int first = s->tried.n;
    for (int i = 0; i < n; i++) {
        const int *option = w[i].option ? copied(s, w[i].option) : NULL;
        const char *text = entries_text(s->a, &s->b, option, w[i].units);
        index[i] = known(s, text);
        if (index[i] >= 0) continue;
        index[i] = s->tried.n;
        push(&s->tried, s->a, ((Tried){.entries = text, .option = option, .units = w[i].units, .of = s}));
    }
    estimate_from(s, first);
}

/* Placed with all effort, as every other command places it. */
static void place_whole(Search *s, int index) {
    Tried *t = &s->tried.at[index];
    evaluate_all(s->a, s->in, (PlannerHow){.one = s->one}, &s->b, &t->entries, 1, &t->o);
    t->whole = true;
}

/* ── what options need ──────────────────────────────────────────────────────────────────────────────────────────── */
static int *uniform(const Search *s, int kind, int option) {
    int *all = NEW_ARRAY(s->a, int, s->b.at.n + 1);
    for (int i = 0; i < s->b.at.n; i++) all[i] = s->b.at.at[i].kind == kind ? option : 0;
    return all;
}

/* With copies of activations and without: whether they hide is known only when a plan is simulated. */
static void add_variant(Search *s, UnitSetting u, Outcome all) {
    push(&s->variants, s->a, ((Variant){.units = u, .all = all}));
    if (s->copies) push(&s->variants, s->a, ((Variant){.units = u, .all = all, .hides_us = s->hides_us}));
}

/* Every option is compiled once for all blocks of a kind; options that the compiler refuses, or that are no gain, go.
 */
static void measure_options(Search *s, const UnitSetting *bases, int nbases) {
    Blocks *b = &s->b;
    VEC(Wanted) w = {0};
    for (int i = 0; i < nbases; i++) push(&w, s->a, ((Wanted){s->checkpoints ? uniform(s, 0, 0) : NULL, bases[i]}));
    for (int k = 0; k < b->options.n; k++)
        for (int o = 1; o < b->options.at[k].n; o++) push(&w, s->a, ((Wanted){uniform(s, k, o), bases[0]}));
    int *index = NEW_ARRAY(s->a, int, w.n + 1);
    try_all(s, w.at, w.n, index);
    for (int i = 0; i < nbases; i++)
        if (s->tried.at[index[i]].o.made) add_variant(s, bases[i], s->tried.at[index[i]].o);
    const Outcome all = s->tried.at[index[0]].o;
    s->needs = NEW_ARRAY(s->a, BlockNeeds *, b->options.n + 1);
    s->us = NEW_ARRAY(s->a, double *, b->options.n + 1);
    for (int k = 0, at = nbases; k < b->options.n; k++) {
        BlockOptions *l = &b->options.at[k];
        int n = 0; /* blocks of the kind */
        for (int i = 0; i < b->at.n; i++) n += b->at.at[i].kind == k;
        s->needs[k] = NEW_ARRAY(s->a, BlockNeeds, l->n * b->at.n + 1);
        s->us[k] = NEW_ARRAY(s->a, double, l->n + 1);
        if (all.made) memcpy(s->needs[k], all.blocks, sizeof(BlockNeeds) * (size_t)b->at.n);
        for (int o = 1; o < l->n; o++, at++) {
            const Outcome *x = &s->tried.at[index[at]].o;
            s->us[k][o] = INFINITY; /* not to be had */
            if (!x->made || !all.made) continue;
            memcpy(s->needs[k] + o * b->at.n, x->blocks, sizeof(BlockNeeds) * (size_t)b->at.n);
            double more = fmax(0, x->step_us - all.step_us) / n;
            double alone = s->microbatches * (l->at[o].us + 0.02 * l->at[o].bus_us); /* without other blocks' copies */
            s->us[k][o] = l->at[o].offload.n ? fmin(more, alone) : more;
        }
    }
}

/* The chain of a variant: its own needs where all is kept; for the other options, what they changed in the first. */
static void make_chain(Search *s, Variant *v) {
    const Blocks *b = &s->b;
    ChainBlock *blocks = NEW_ARRAY(s->a, ChainBlock, b->at.n + 1);
    for (int i = 0; i < b->at.n && s->checkpoints; i++) {
        int kind = b->at.at[i].kind, n = b->options.at[kind].n;
        ChainOption *options = NEW_ARRAY(s->a, ChainOption, n);
        const BlockNeeds *own = &v->all.blocks[i], *first = &s->needs[kind][i];
        for (int o = 0; o < n; o++) {
            const BlockNeeds *x = &s->needs[kind][o * b->at.n + i];
            options[o] = (ChainOption){.kept = max64(0, own->kept + x->kept - first->kept),
                                       .forward = max64(0, own->forward + x->forward - first->forward),
                                       .backward = max64(0, own->backward + x->backward - first->backward),
                                       .us = s->us[kind][o],
                                       .bus_us = b->options.at[kind].at[o].bus_us};
            if (isinf(options[o].us)) options[o] = (ChainOption){INT64_MAX / 4, INT64_MAX / 4, INT64_MAX / 4, 1e15, 0};
        }
        blocks[i] = (ChainBlock){options, n, kind};
    }
    v->chain = (Chain){blocks, s->checkpoints ? b->at.n : 0, v->all.between, v->hides_us};
    if (!s->checkpoints) v->chain.between = v->all.live;
    v->choice = NEW_ARRAY(s->a, int, b->at.n + 1);
}

/* A choice up to 0.02 % of a step slower than the best will do: the chain's figures are no more exact. */
static bool solve(const Search *s, const Chain *c, int64_t budget, int *choice) {
    return chain_solve(c, budget, s->variants.at[0].all.step_us / 5000, choice);
}

static double promised_us(const Variant *v) {
    return v->all.step_us + chain_us(&v->chain, v->choice);
}

/* ── the search ─────────────────────────────────────────────────────────────────────────────────────────────────── */
enum { ROUNDS = 7, SIDE_BY_SIDE = 3 };

/* The next budget for the chain after one whose plan needs `arena` bytes. */
static void correct(Variant *v, int64_t budget, int64_t tried, int64_t arena) {
    if (arena <= budget) {
        v->low = max64(v->low, tried);
        v->next = v->high ? tried + (v->high - tried) / 2 : tried + (budget - arena);
    } else {
        v->high = v->high ? min64(v->high, tried) : tried;
        v->next = v->low ? v->low + (tried - v->low) / 2 : tried - (arena - budget) - budget / 2000;
    }
    bool close =
        (arena <= budget && budget - arena < budget / 300) || (v->high && v->low && v->high - v->low < budget / 1000);
    if (close || v->next <= 0 || v->next == tried) v->next = 0;
}

static int by_promise(const void *a, const void *b) {
    Variant *const *x = a, *const *y = b;
    double p = promised_us(*x), q = promised_us(*y);
    return (p > q) - (p < q);
}

/* Proposes for the most promising variants in turn, corrects their budgets, and ends when none can get better. */
static void refine(Search *s, int64_t budget) {
    VEC(Variant *) open = {0};
    for (int i = 0; i < s->variants.n; i++) {
        Variant *v = &s->variants.at[i];
        v->low = v->high = 0;
        if (v->hides_us > 0) v->chain.bus_us = v->hides_us = s->hides_us;
        v->next = budget - max64(0, v->all.arena - v->all.live) / 2;
        if (solve(s, &v->chain, v->next, v->choice)) push(&open, s->a, v);
    }
    if (open.n) qsort(open.at, (size_t)open.n, sizeof *open.at, by_promise);
    for (int round = 0; round < ROUNDS; round++) {
        Wanted w[SIDE_BY_SIDE];
        Variant *of[SIDE_BY_SIDE];
        int64_t at[SIDE_BY_SIDE];
        int n = 0, index[SIDE_BY_SIDE], best = fastest(s, budget);
        for (int i = 0; i < open.n && n < SIDE_BY_SIDE; i++) {
            Variant *v = open.at[i];
            if (!v->next || (best >= 0 && v->all.step_us >= s->tried.at[best].o.step_us)) continue;
            if (!solve(s, &v->chain, v->next, v->choice)) {
                v->next = 0;
                continue;
            }
            if (best >= 0 && promised_us(v) > 1.001 * s->tried.at[best].o.step_us) continue;
            w[n] = (Wanted){s->checkpoints ? v->choice : NULL, v->units};
            at[n] = v->next;
            of[n++] = v;
        }
        if (!n) break;
        try_all(s, w, n, index);
        for (int i = 0; i < n; i++) {
            const Outcome *o = &s->tried.at[index[i]].o;
            const double promise = s->tried.at[index[i]].promise_us = promised_us(of[i]);
            bool all_kept = chain_us(&of[i]->chain, of[i]->choice) <= 0;
            bool late = of[i]->hides_us > 0 && o->step_us > 1.01 * promise;
            if (late && o->arena <= budget) {
                of[i]->chain.bus_us = of[i]->hides_us /= 2;
                of[i]->high = 0; /* with fewer copies other budgets fit */
                if (of[i]->hides_us < s->hides_us / 5) of[i]->next = 0;
            } else if (!o->made || (all_kept && o->arena <= budget))
                of[i]->next = 0;
            else
                correct(of[i], budget, at[i], o->arena);
        }
    }
}

/* The settings of units to start from. What a model keeps gathered it may also reshard; what it reshards may stay;
 * units may be gathered two ahead, and where memory is dear (`small`) when they are needed. Returns how many. */
enum { MOST_SETTINGS = 16 };
static int unit_settings(const Search *s, bool small, UnitSetting *out) {
    const UnitSetting own = {s->free.reshard == NONE ? STAY : RESHARD_AS_MODEL, s->free.prefetch == NONE ? 0 : -1,
                             s->free.state == NONE ? 0 : -1};
    const int reshards[] = {RESHARD_AS_MODEL, STAY, RESHARD}, depths[] = {-1, 2, 1, 0};
    int n = 0;
    if (!small) out[n++] = own;
    if (!s->several) return n;
    for (int r = 0; r < (s->free.reshard == FREE ? 2 + s->gathered : 1); r++)
        for (int k = 0; k < (s->free.prefetch == FREE ? 4 : 1); k++) {
            UnitSetting u = own;
            if (reshards[r] != RESHARD_AS_MODEL) u.reshard = reshards[r];
            if (depths[k] >= 0) u.prefetch = depths[k];
            bool as_model = depths[k] == s->ahead || (!r && k == 0); /* what -1 does already, and `own` */
            bool dear = depths[k] == 0 || (reshards[r] == RESHARD && depths[k] >= 0);
            if (!as_model && dear == small) out[n++] = u;
        }
    return n;
}

/* Bases for budgets where memory is dear: states of some or all units on the host, and units gathered late. */
static void add_small(Search *s) {
    const int parts[] = {2, 4, 6, ALL_STATE};
    enum { N_PARTS = sizeof parts / sizeof *parts };
    UnitSetting settings[MOST_SETTINGS + N_PARTS] = {{0}};
    Wanted w[MOST_SETTINGS + N_PARTS] = {{0}};
    int index[MOST_SETTINGS + N_PARTS], from = s->variants.n, n = unit_settings(s, true, settings);
    if (!s->variants.n) return;
    for (int i = 0; i < N_PARTS && s->free.state == FREE; i++) {
        settings[n] = s->variants.at[0].units;
        settings[n++].state = parts[i];
    }
    for (int i = 0; i < n; i++) w[i] = (Wanted){s->checkpoints ? uniform(s, 0, 0) : NULL, settings[i]};
    try_all(s, w, n, index);
    for (int i = 0; i < n; i++)
        if (s->tried.at[index[i]].o.made) add_variant(s, w[i].units, s->tried.at[index[i]].o);
    for (int i = from; i < s->variants.n; i++) make_chain(s, &s->variants.at[i]);
}

/* The model as it is, its blocks and their options, and the variants to start from. */
static void prepare(Search *s) {
    Arena *scratch = arena_new();
    Plan *p = s->in->compile(scratch, s->in->context, "", (PlannerHow){.quiet = true, .one = s->one});
    s->b = blocks_find(s->a, p);
    for (int i = 0; i < s->b.at.n; i++) s->b.at.at[i].path = arena_strdup(s->a, s->b.at.at[i].path);
    for (int i = 0; i < s->b.units.n; i++) s->b.units.at[i] = arena_strdup(s->a, s->b.units.at[i]);
    const UnitSetting as_is = {RESHARD_AS_MODEL, -1, -1};
    push(&s->tried, s->a,
         ((Tried){.entries = entries_text(s->a, &s->b, NULL, as_is),
                  .units = as_is,
                  .of = s,
                  .whole = true,
                  .o = evaluate_plan(s->a, p, &s->b, s->in->device)}));
    const Freedom all[] = {s->free.recompute, s->free.offload, s->free.reshard, s->free.prefetch, s->free.state};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) /* the model may do what is not to be done */
        if (all[i] == NONE) s->tried.at[0].o.made = false;
    for (int i = 0; i < p->nprograms; i++) s->events += p->programs[i].n;
    s->several = p->world > 1;
    s->microbatches = live_step(p).microbatches;
    for (int i = 0; i < p->graph->modules.n; i++) {
        const UnitPolicy *u = p->graph->modules.at[i]->policy;
        if (!u) continue;
        s->gathered |= !u->root_default && !u->reshard_after_forward;
        s->ahead = u->prefetch_forward > s->ahead ? u->prefetch_forward : s->ahead;
    }
    s->checkpoints = s->b.at.n && s->free.recompute != AS_MODEL && s->free.offload != AS_MODEL;
    if (s->checkpoints) {
        Arena *inside = arena_new();
        const Plan *marked = s->in->compile(inside, s->in->context, blocks_marking(s->a, &s->b),
                                            (PlannerHow){.estimate = true, .one = s->one});
        s->hides_us =
            blocks_options(s->a, &s->b, marked, s->in->device, s->free.recompute == FREE, s->free.offload == FREE);
        arena_free(inside);
        for (int k = 0; k < s->b.options.n; k++)
            for (int o = 0; o < s->b.options.at[k].n; o++) s->copies |= s->b.options.at[k].at[o].offload.n > 0;
    }
    UnitSetting bases[MOST_SETTINGS];
    int n = unit_settings(s, false, bases);
    if (s->in->budget && !s->one) s->budget = s->in->budget(s->in->context, p);
    arena_free(scratch);
    measure_options(s, bases, n);
    for (int i = 0; i < s->variants.n; i++) make_chain(s, &s->variants.at[i]);
}

static Planned planned(Search *s, int index) {
    const Tried *t = &s->tried.at[index];
    Planned p = {.entries = t->entries,
                 .units = entries_units(s->a, t->units),
                 .arena = t->o.arena,
                 .host = t->o.host,
                 .step_us = t->o.step_us,
                 .exposed_us = t->o.exposed_us};
    if (!t->option) return p;
    const Search *of = t->of;
    p.nruns = entries_runs(s->a, &of->b, t->option, &p.runs);
    for (int i = 0, block = 0; i < p.nruns; block += p.runs[i++].blocks) {
        int kind = of->b.at.at[block].kind, o = t->option[block];
        p.runs[i].kept = of->needs[kind][o * of->b.at.n + block].kept;
        p.runs[i].us = of->us[kind][o] * s->microbatches / of->microbatches;
    }
    return p;
}

static double estimate_us(const Search *s, int64_t budget) {
    double best = INFINITY;
    for (int i = 0; i < s->variants.n; i++)
        best = fmin(best, s->variants.at[i].all.step_us + chain_bound(&s->variants.at[i].chain, budget));
    return isfinite(best) ? best : 0;
}

/* Everything that saves bytes at once, to know how small an arena can be. The same candidates whatever was tried
 * before.
 */
static void try_smallest(Search *s) {
    Wanted *w = NEW_ARRAY(s->a, Wanted, s->variants.n + 1);
    int n = 0, *index = NEW_ARRAY(s->a, int, s->variants.n + 1);
    for (int i = 0; i < s->variants.n; i++) {
        Variant *v = &s->variants.at[i];
        if (v->hides_us > 0) v->chain.bus_us = s->hides_us;
        if (!solve(s, &v->chain, chain_least(&v->chain), v->choice)) continue;
        w[n++] = (Wanted){s->checkpoints ? v->choice : NULL, v->units};
    }
    try_all(s, w, n, index);
}

/* The best candidate that just misses the budget and is better than `best` (-1: than none). It was placed with little
 * effort; its live bytes fit, so placement with all effort may bring it within the budget. -1: there is none. */
static int nearly_fits(const Search *s, int64_t budget, int best) {
    int next = -1;
    for (int i = 0; i < s->tried.n; i++) {
        const Tried *t = &s->tried.at[i];
        if (!t->o.made || t->whole || t->o.arena <= budget || t->o.live > budget) continue;
        if (best >= 0 && !is_better(&t->o, &s->tried.at[best].o)) continue;
        if (next < 0 || is_better(&t->o, &s->tried.at[next].o)) next = i;
    }
    return next;
}

/* In models of few events kernels are shorter than a launch. A step is no sum of its blocks' times there, and a smaller
 * budget may find the faster plan. */
enum { FEW_EVENTS = 1000 };
static bool is_small(const Search *s) {
    return s->events < FEW_EVENTS;
}

/* Places the fastest with all effort until the fastest is one of those; before it those that are faster and nearly fit.
 * In small models these are all tried, so that what fits a budget is known of every larger one; else up to NEAR_MISSES:
 * with 2, Llama-3 8B on 8 GPUs at 45 % of its arena has a gap of 2.1 %, with 4 of 1.7 (bench/planner.py). */
enum { NEAR_MISSES = 4 };
static int settle(Search *s, int64_t budget, int misses) {
    for (int missed = 0;;) {
        int best = fastest(s, budget), next = is_small(s) || missed < misses ? nearly_fits(s, budget, best) : -1;
        missed += next >= 0;
        if (next < 0) next = best;
        if (next < 0 || s->tried.at[next].whole) return next;
        place_whole(s, next);
    }
}

/* The smallest arena found. Candidates whose live bytes are fewer are placed with all effort first, the fewest first;
 * of large models up to NEAR_MISSES. */
static int64_t smallest(Search *s) {
    for (int more = 0;; more++) {
        int64_t least = INT64_MAX;
        int next = -1;
        for (int i = 0; i < s->tried.n; i++)
            if (s->tried.at[i].o.made && s->tried.at[i].whole) least = min64(least, s->tried.at[i].o.arena);
        for (int i = 0; i < s->tried.n; i++) {
            const Tried *t = &s->tried.at[i];
            bool small = is_small(s) || more < NEAR_MISSES ? t->o.live < least : t->o.arena < least;
            if (!t->o.made || t->whole || !small) continue;
            if (next < 0 || t->o.live < s->tried.at[next].o.live) next = i;
        }
        if (next < 0) return least;
        place_whole(s, next);
    }
}

/* ── small models: the same proposals for every budget ──────────────────────────────────────────────────────────── */
/* Some other setting of units needs no more bytes and no more time where all is kept. */
static bool is_dominated(const Search *s, int variant) {
    const Variant *v = &s->variants.at[variant];
    for (int i = 0; i < s->variants.n; i++) {
        const Variant *x = &s->variants.at[i];
        if (i == variant || (x->hides_us > 0) != (v->hides_us > 0)) continue;
        bool as_good = x->all.live <= v->all.live && x->all.step_us <= v->all.step_us;
        bool better = x->all.live < v->all.live || x->all.step_us < v->all.step_us;
        if (as_good && (better || i < variant)) return true;
    }
    return false;
}

/* Up to POINTS choices of each variant and each limit on copies, from all that it asks for down to the least. */
enum { POINTS = 8, LIMITS = 2 };
typedef VEC(Tried) Proposals;
static Proposals propose_all(Search *s) {
    Proposals all = {0};
    add_small(s);
    for (int i = 0; i < s->variants.n; i++) {
        Variant *v = &s->variants.at[i];
        if (is_dominated(s, i)) continue;
        for (int limit = 0; limit < (v->hides_us > 0 ? LIMITS : 1); limit++) {
            if (v->hides_us > 0) v->chain.bus_us = s->hides_us / (1 << 2 * limit);
            int64_t budget = max64(v->all.live, v->all.arena), step = (budget - chain_least(&v->chain)) / POINTS;
            while (solve(s, &v->chain, budget, v->choice)) {
                Tried t = {.units = v->units, .promise_us = promised_us(v), .of = s};
                if (s->checkpoints) t.option = copied(s, v->choice);
                t.entries = entries_text(s->a, &s->b, t.option, t.units);
                push(&all, s->a, t);
                budget = min64(budget - step, chain_peak(&v->chain, v->choice)) - 1;
            }
        }
    }
    return all;
}

/* ── the whole search ───────────────────────────────────────────────────────────────────────────────────────────── */
static void search_large(Search *s) {
    double best = INFINITY, least = INFINITY;
    for (int i = 0; i < s->variants.n; i++) {
        Variant *v = &s->variants.at[i];
        least = fmin(least, v->all.step_us);
        if (solve(s, &v->chain, s->budget, v->choice)) best = fmin(best, promised_us(v));
    }
    /* those for dear memory too, unless the others promise to be within 3 % of the fastest */
    bool small = isinf(best) || best >= 1.03 * least;
    if (small) add_small(s);
    refine(s, s->budget);
    if (fastest(s, s->budget) < 0 && !small) {
        add_small(s);
        refine(s, s->budget);
    }
    if (fastest(s, s->budget) < 0) try_smallest(s);
}

/* The `n` fastest in as much memory as this search has. */
static Proposals fastest_found(const Search *s, int n) {
    Proposals found = {0};
    bool *taken = NEW_ARRAY(s->a, bool, s->tried.n + 1);
    for (int best = 0; found.n < n; taken[best] = true) {
        best = -1;
        for (int i = 0; i < s->tried.n; i++) {
            const Outcome *o = &s->tried.at[i].o;
            if (taken[i] || !o->made || o->arena > s->budget) continue;
            if (best < 0 || is_better(o, &s->tried.at[best].o)) best = i;
        }
        if (best < 0) break;
        push(&found, s->a, s->tried.at[best]);
    }
    return found;
}

/* Where microbatches accumulate: what is proposed for a step of one counts here too. Of small models that is all of
 * it, of others the ADOPTED fastest plans in the memory that is left. */
enum { ADOPTED = 4 };
static Proposals for_one_microbatch(Search *s) {
    Search *one = NEW(s->a, Search);
    Outcome as_is;
    *one = (Search){.a = s->a, .in = s->in, .free = s->free, .one = true};
    evaluate_all(s->a, s->in, (PlannerHow){.estimate = true, .one = true}, &(Blocks){0}, &(const char *){""}, 1,
                 &as_is);
    if (!as_is.made) return (Proposals){0}; /* policies that only accumulation makes sense of */
    prepare(one);
    if (is_small(s)) return propose_all(one);
    one->budget = s->budget - max64(0, s->tried.at[0].o.live - one->tried.at[0].o.live);
    search_large(one);
    return fastest_found(one, ADOPTED);
}

/* Whatever the budget is, of small models the same. */
static void search(Search *s) {
    Proposals own = {0}, other = {0};
    if (is_small(s))
        own = propose_all(s);
    else
        search_large(s);
    if (s->microbatches > 1) other = for_one_microbatch(s);
    for (int i = 0; i < other.n; i++) push(&own, s->a, other.at[i]);
    int first = s->tried.n;
    for (int i = 0; i < own.n; i++) {
        Tried t = own.at[i];
        int at = known(s, t.entries);
        t.o = (Outcome){0};
        t.whole = false;
        if (at < 0)
            push(&s->tried, s->a, t);
        else if (t.of == s)
            s->tried.at[at].promise_us = t.promise_us;
    }
    estimate_from(s, first);
}

/* No plan takes less time than its kernels, which are those of every other plan. */
static double floor_us(const Search *s) {
    double us = s->tried.at[0].o.floor_us;
    for (int i = 0; i < s->tried.n; i++) {
        const Outcome *o = &s->tried.at[i].o;
        if (o->made && o->step_us < us)
            bug(NOWHERE, "a plan takes %.9g us, and its forward and backward kernels alone take %.9g; its policies: %s",
                o->step_us, us, s->tried.at[i].entries);
    }
    return us;
}

static void say_not_tried(const Search *s, PlannerResult *r) {
    if (!s->b.at.n && (s->free.recompute == FREE || s->free.offload == FREE))
        r->not_tried[r->nnot_tried++] = "recompute and offload of activations: no module of this model is called once";
    else if (s->free.offload == FREE && !blocks_can_offload(s->in->device))
        r->not_tried[r->nnot_tried++] = strcmp(s->in->device->target, "cuda")
                                            ? "offload of activations: the cpu target's arena is host memory"
                                            : "offload of activations: the device profile has no host_bandwidth";
    if (!s->several && (s->free.reshard == FREE || s->free.prefetch == FREE))
        r->not_tried[r->nnot_tried++] = "reshard and prefetch: one rank gathers nothing";
}

PlannerResult planner_search(Arena *a, const PlannerInput *in) {
    Search s = {.a = a, .in = in, .free = in->choices};
    prepare(&s);
    PlannerResult r = {.budget = s.budget};
    search(&s);
    int best = settle(&s, s.budget, NEAR_MISSES);
    r.least = best < 0 ? smallest(&s) : 0;
    if (best < 0 && r.least <= s.budget) best = settle(&s, s.budget, NEAR_MISSES);
    r.without = planned(&s, 0);
    r.floor_us = floor_us(&s);
    r.estimate_us = estimate_us(&s, s.budget);
    if (best >= 0) {
        r.best = planned(&s, best);
        r.best.plan = in->compile(a, in->context, r.best.entries, (PlannerHow){0});
    }
    say_not_tried(&s, &r);
    r.tried = s.tried.n;
    r.candidates = NEW_ARRAY(a, Candidate, s.tried.n);
    for (int i = 0; i < s.tried.n; i++)
        r.candidates[i] = (Candidate){planned(&s, i), s.tried.at[i].o.made, s.tried.at[i].promise_us};
    return r;
}

PlannerCurve planner_curve(Arena *a, const PlannerInput *in, int points) {
    Search s = {.a = a, .in = in, .free = in->choices};
    prepare(&s);
    if (is_small(&s)) {
        search(&s);
    } else {
        add_small(&s);
        try_smallest(&s);
    }
    int64_t least = INT64_MAX, most = 0;
    for (int i = 0; i < s.tried.n; i++)
        if (s.tried.at[i].o.made) {
            least = min64(least, s.tried.at[i].o.arena);
            most = max64(most, s.tried.at[i].o.arena);
        }
    PlannerCurve c = {NEW_ARRAY(a, Planned, points + 1), 0};
    int64_t *budgets = NEW_ARRAY(a, int64_t, points + 1);
    for (int i = 0; i < points; i++) {
        s.budget = budgets[i] = least + (most - least) * i / (points > 1 ? points - 1 : 1);
        if (!is_small(&s)) refine(&s, s.budget);
    }
    for (int i = 0, before = -1; i < points; i++) { /* all plans count for every budget that they fit */
        int best = settle(&s, budgets[i], 0);
        if (best < 0 || best == before) continue;
        if (before >= 0 && s.tried.at[best].o.step_us >= s.tried.at[before].o.step_us) continue;
        c.points[c.n++] = planned(&s, best);
        before = best;
    }
    return c;
}
