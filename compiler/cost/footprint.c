/* What a process will hold of a device besides its arena: the lines of the device's profile that this plan calls for.
 * Relies on: device profiles.
 * Relied on by: simulate. */
#include "../devices/device.h"
#include "../ir/mesh.h"
#include "../ir/rules.h"

/* Attention by our kernels for compute capability 9.0 loads no library. */
static bool loads(const Op *op, OpKind kind) {
    return op && op->kind == kind && rule_attention_kernel(op) != ATTENTION_HOPPER;
}

static bool has_op(const Plan *plan, const DeviceLine *l) {
    for (int i = 0; i < plan->nprograms; i++)
        for (int k = 0; k < plan->programs[i].n; k++)
            for (int j = 0; j < l->nops; j++)
                if (loads(plan->programs[i].events[k].op_ir, l->ops[j])) return true;
    return false;
}

/* Of lines of one name, the one for the most ranks that the plan has. */
static bool largest(const Plan *plan, const Device *d, const DeviceLine *l) {
    for (int i = 0; i < d->nlibrary; i++) {
        const DeviceLine *x = &d->library[i];
        if (!strcmp(x->line.name, l->line.name) && x->ranks > l->ranks && x->ranks <= plan->world) return false;
    }
    return l->ranks <= plan->world;
}

/* As the runtime makes them (runtime/cuda/comm.c): one for sums over all ranks, and for every group of ranks that
 * gathers or exchanges one, and one for every group that sums. A group that holds all ranks is no other one, unless it
 * is of another chain. */
typedef struct {
    int gathers, sums;
} Communicators;

static Communicators communicators(const Plan *plan) {
    bool *gathers = NEW_ARRAY(plan->arena, bool, plan->ncomms + 1);
    bool *sums = NEW_ARRAY(plan->arena, bool, plan->ncomms + 1);
    Communicators n = {0, 1};
    for (int i = 0; i < plan->nprograms; i++)
        for (int k = 0; k < plan->programs[i].n; k++) {
            const Event *e = &plan->programs[i].events[k];
            if (e->comm < 0 || device_event_group(plan, e) == 1) continue;
            bool gather = !device_event_sums(e),
                 all = !plan->comms[e->comm].chain && device_event_group(plan, e) == plan->world;
            if (all && !gather) continue;
            bool *known = &(gather ? gathers : sums)[all ? SC_WORLD : e->comm];
            *(gather ? &n.gathers : &n.sums) += !*known;
            *known = true;
        }
    return n;
}

void device_footprint(Plan *plan, const Device *d) {
    double events = 0;
    for (int i = 0; i < plan->nprograms; i++) events += plan->programs[i].n;
    plan->nlibrary = 0;
    plan->library = NEW_ARRAY(plan->arena, LibraryLine, d->nlibrary + 1);
    for (int i = 0; i < d->nlibrary; i++) {
        const DeviceLine *l = &d->library[i];
        if (!largest(plan, d, l) || (l->nops && !has_op(plan, l))) continue;
        LibraryLine *line = &plan->library[plan->nlibrary++];
        *line = l->line;
        line->bytes += l->per_event * events;
        if (l->further_gathers > 0 || l->further_sums > 0) {
            Communicators n = communicators(plan);
            int more = n.gathers + n.sums - 2;
            line->bytes += (n.gathers - 1) * l->further_gathers + (n.sums - 1) * l->further_sums;
            if (!n.gathers)
                line->source = arena_printf(plan->arena, "%s, less the one for gathers", line->source), more++;
            if (more) line->source = arena_printf(plan->arena, "%s, and %d more", line->source, more);
        }
        /* Measured inside one node. Beyond it come buffers of connections to other nodes, by channel and peer. */
        if (plan->nodes > 1 && l->ranks > 1) {
            line->tolerance += 0.5 * line->bytes;
            line->source = arena_printf(plan->arena, "%s; extrapolated beyond one node", line->source);
        }
    }
}
