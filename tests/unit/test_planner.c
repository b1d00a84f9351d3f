/* The planner's solver on chains small enough to enumerate: the optimum every time, and a bound below it.
 * Relies on: planner/chain.h.
 * Relied on by: nothing. */
#include "planner/chain.h"

#include <criterion/criterion.h>
#include <math.h>

static uint64_t state;
static int64_t draw(int64_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (int64_t)((state >> 33) % (uint64_t)below);
}

enum { MOST_BLOCKS = 6, MOST_OPTIONS = 4, SHAPES = 3 };

/* A chain of up to three kinds of blocks; needs differ from block to block. */
static Chain random_chain(Arena *a) {
    int kinds = 1 + (int)draw(SHAPES), n = 1 + (int)draw(MOST_BLOCKS), options[SHAPES];
    ChainOption like[SHAPES][MOST_OPTIONS];
    bool bus = draw(2);
    for (int k = 0; k < kinds; k++) {
        options[k] = 1 + (int)draw(MOST_OPTIONS);
        for (int o = 0; o < options[k]; o++)
            like[k][o] = (ChainOption){.kept = draw(40), .us = (double)draw(50), .bus_us = bus ? (double)draw(20) : 0};
    }
    ChainBlock *blocks = NEW_ARRAY(a, ChainBlock, n);
    for (int i = 0; i < n; i++) {
        int k = (int)draw(kinds);
        ChainOption *own = NEW_ARRAY(a, ChainOption, options[k]);
        for (int o = 0; o < options[k]; o++) {
            own[o] = like[k][o];
            own[o].forward = own[o].kept + draw(30);
            own[o].backward = own[o].kept + draw(60);
        }
        blocks[i] = (ChainBlock){own, options[k], k};
    }
    return (Chain){blocks, n, draw(60), bus ? (double)draw(60) : INFINITY};
}

static double bus_us(const Chain *c, const int *choice) {
    double us = 0;
    for (int i = 0; i < c->n; i++) us += c->blocks[i].options[choice[i]].bus_us;
    return us;
}

static double enumerated(const Chain *c, int64_t budget) {
    int choice[MOST_BLOCKS] = {0};
    double best = INFINITY;
    for (;;) {
        if (chain_peak(c, choice) <= budget && bus_us(c, choice) <= c->bus_us) best = fmin(best, chain_us(c, choice));
        int i = 0;
        while (i < c->n && ++choice[i] == c->blocks[i].n) choice[i++] = 0;
        if (i == c->n) return best;
    }
}

Test(planner, chain_is_solved_as_by_enumeration) {
    int feasible = 0, binding = 0;
    for (int round = 0; round < 2000; round++) {
        Arena *a = arena_new();
        state = (uint64_t)round;
        Chain c = random_chain(a);
        int64_t least = chain_least(&c), budget = least - 3 + draw(80);
        int choice[MOST_BLOCKS];
        double best = enumerated(&c, budget), bound = chain_bound(&c, budget);
        bool fits = chain_solve(&c, budget, 0, choice);
        cr_assert_eq(fits, isfinite(best), "case %d: budget %ld, least %ld", round, (long)budget, (long)least);
        if (fits) {
            cr_assert_float_eq(chain_us(&c, choice), best, 1e-6, "case %d", round);
            cr_assert_leq(chain_peak(&c, choice), budget, "case %d", round);
            cr_assert_leq(bus_us(&c, choice), c.bus_us, "case %d", round);
            cr_assert_leq(bound, best + 1e-6, "case %d: bound %g above the optimum %g", round, bound, best);
            feasible++;
            binding += bound > 0;
        }
        if (c.bus_us == INFINITY && !isfinite(best)) cr_assert_lt(budget, least, "case %d", round);
        if (isfinite(best)) cr_assert_geq(budget, least, "case %d", round);
        arena_free(a);
    }
    cr_assert_gt(feasible, 1000);
    cr_assert_gt(binding, 200, "the bound says nothing in nearly all cases");
}

Test(planner, a_long_chain_of_alike_blocks_is_solved_in_runs) {
    enum { N = 126 };
    static const ChainOption options[] = {{1140, 1300, 1400, 0, 0},   {920, 1300, 1400, 210, 0},
                                          {700, 1300, 1500, 900, 0},  {433, 1300, 1700, 2100, 0},
                                          {200, 1300, 2100, 4000, 0}, {64, 1300, 2300, 5100, 0}};
    ChainBlock blocks[N];
    for (int i = 0; i < N; i++) blocks[i] = (ChainBlock){options, 6, 0};
    Chain c = {blocks, N, 9000, INFINITY};
    for (int percent = 20; percent <= 100; percent += 8) {
        int choice[N], runs = 1;
        int64_t budget = (9000 + N * 1140) * percent / 100;
        cr_assert(chain_solve(&c, budget, 0, choice));
        for (int i = 1; i < N; i++) runs += choice[i] != choice[i - 1];
        cr_assert_leq(runs, 4, "%d runs at %d %%", runs, percent);
        double us = chain_us(&c, choice), bound = chain_bound(&c, budget);
        cr_assert_leq(bound, us + 1e-6);
        cr_assert_leq(us - bound, 2200, "the bound is further off than one block: %g, %g", us, bound);
    }
}
