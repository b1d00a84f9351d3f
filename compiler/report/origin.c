/* Which pass made an op is known by its number: each pass notes how many ops had been made when it ended.
 * Relies on: origin.h, rules.h.
 * Relied on by: explain.c, page_blocks.c. */
#include "origin.h"

#include "../ir/rules.h"

const char *origin_pass(const Plan *p, const Op *op) {
    const Graph *g = p->graph;
    for (int i = 0; g && i < g->passes.n; i++)
        if (op->made < g->passes.at[i].nops) return g->passes.at[i].name;
    return "?";
}

const char *origin_kernel(const Plan *p, const Op *op) {
    return strcmp(p->target, "cuda") ? "" : rule_attention_words(rule_attention_kernel(op));
}

const char *origin_issue(const Event *e) {
    bool other = e->issue_other >= 0;
    switch (e->issue_rule) {
    case ISSUE_UNKNOWN: return "";
    case ISSUE_PINNED: return other ? "in the graph's order, after" : "first in the graph's order";
    case ISSUE_NEEDED: return "just before what needs it first,";
    case ISSUE_READY: return other ? "as soon as what it needs last had been:" : "at the start: it needs no event";
    case ISSUE_LIMITED: return purposes[e->purpose].limited;
    case ISSUE_SURE: return "when a gradient has surely come, so that no kernel waits for it:";
    case ISSUE_BEHIND: return "behind the reduce of a later gradient, to run beside it:";
    case ISSUE_AT_END: return "at the end of the backward, to run beside the last reduces";
    case ISSUE_STREAMED: return "as late as the rest of the backward hides it";
    }
    return "";
}
