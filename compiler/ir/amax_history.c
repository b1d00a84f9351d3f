/* The history of largest magnitudes: a buffer [sites, 1 + AMAX_STEPS], each row the largest of the rest and then the
 * latest steps first, and a state [sites]. Both grow with each site: nothing but views of single elements reads them
 * before shard. Relies on: ir.h. Relied on by: whom amax_history.h names. */
#include "amax_history.h"

enum { ROW = 1 + AMAX_STEPS };

static void begin(Graph *g) {
    Param *p = NEW(g->arena, Param);
    *p = (Param){.id = g->params.n,
                 .path = "amax_history",
                 .src = g->root->made,
                 .owner = g->root,
                 .unit = g->root->unit,
                 .dtype = FP32,
                 .dims = 2,
                 .shape = {0, ROW},
                 .split = 1,
                 .is_buffer = true,
                 .internal = true,
                 .init = SC_ZEROS};
    p->value = value_new(g, FP32, p->dims, (int64_t[]){1, ROW});
    p->value->param = p;
    p->value->name = p->path;
    push(&g->params, g->arena, p);
    g->amax_history = p;
    g->amax_seen = state_new(g, S_SEEN, "amax_history/seen", FP32, 1, NULL);
}

AmaxSite amax_history_site(Graph *g) {
    if (!g->amax_history) begin(g);
    Param *p = g->amax_history;
    State *seen = g->amax_seen;
    int64_t site = p->shape[0]++;
    value_lay_out(p->value, FP32, p->dims, p->shape);
    seen->numel = p->shape[0];
    value_lay_out(seen->value, FP32, 1, &seen->numel);
    return (AmaxSite){value_new_view(g, p->value, 0, p->shape, NULL, site * ROW),
                      value_new_view(g, seen->value, 0, p->shape, NULL, site)};
}
