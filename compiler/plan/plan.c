/* The plan's fixed tables: which programs train, and which may follow which.
 * Relies on: plan.h.
 * Relied on by: verify (proves each succession), the reports, the emitter and with it the runtime. */
#include "plan.h"

bool program_trains(const PlanProgram *p) {
    return !strncmp(p->name, "micro", 5);
}

/* Where accumulate = 1, `micro` is a whole step; else it is a middle microbatch, and how many of them a step has is a
 * run-time value, so none at all must be sound too. eval and sample run between steps only. */
const Succession successions[] = {
    {"", "init", -1},
    {"init", "start", -1},

    {"start", "micro", 0},
    {"start", "micro_first", 1},
    {"start", "eval", -1},
    {"start", "sample", -1},

    {"micro", "micro", -1},
    {"micro", "eval", 0},
    {"micro", "sample", 0},

    {"micro_first", "micro", 1},
    {"micro_first", "micro_last", 1},
    {"micro", "micro_last", 1},
    {"micro_last", "micro_first", 1},
    {"micro_last", "eval", 1},
    {"micro_last", "sample", 1},

    {"eval", "eval", -1},
    {"eval", "sample", -1},
    {"eval", "micro", 0},
    {"eval", "micro_first", 1},

    {"start", "swap", -1}, /* weights and their average, for what runs until the next swap */
    {"micro", "swap", 0},
    {"micro_last", "swap", 1},
    {"eval", "swap", -1},
    {"sample", "swap", -1},
    {"swap", "swap", -1},
    {"swap", "eval", -1},
    {"swap", "sample", -1},
    {"swap", "micro", 0},
    {"swap", "micro_first", 1},

    {"sample", "sample", -1},
    {"sample", "eval", -1},
    {"sample", "micro", 0},
    {"sample", "micro_first", 1},
};
const int nsuccessions = sizeof successions / sizeof successions[0];
