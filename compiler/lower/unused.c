/* unused: what a model declares and no program uses, by path, for reports and for the start of a run.
 * Relies on: autodiff (Param.reached), the front end (Module.unused), the programs of the build.
 * Relied on by: pipeline.c; plan/unused.c and plan/write.c say what it found. */
#include "../ir/training.h"
#include "lower.h"

static bool reads(const Program *p, const Input *in) {
    for (int i = 0; i < p->ops.n; i++)
        for (int k = 0; k < p->ops.at[i]->nin; k++) {
            Value *operand = p->ops.at[i]->in[k];
            const Value *v = operand ? value_root(operand) : NULL;
            if (!v) continue;
            if (v == in->value || v == in->sample_value || (in->state && v->state == in->state)) return true;
        }
    return false;
}

void lower_unused(Plan *plan) {
    const Graph *g = plan->graph;
    for (int i = 0; i < g->params.n; i++) {
        const Param *x = g->params.at[i];
        if (!x->reached && x->requires_grad && !x->is_buffer)
            push(&plan->unused[UNREACHED_PARAMS], plan->arena, x->path);
    }
    for (int i = 0; i < g->inputs.n; i++) {
        bool read = false;
        for (int k = 0; k < g->programs.n && !read; k++) read = reads(g->programs.at[k], g->inputs.at[i]);
        if (!read) push(&plan->unused[UNREAD_INPUTS], plan->arena, g->inputs.at[i]->name);
    }
    for (int i = 0; i < g->modules.n; i++) {
        const Module *m = g->modules.at[i];
        if (m->unused) push(&plan->unused[UNCALLED_MODULES], plan->arena, m->path);
    }
}
