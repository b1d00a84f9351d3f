/* Borders of units as the front end would have traced them in a graph that is made by hand: an operand has come as an
 * argument, or a result, of every unit between its op and its user's.
 * Relies on: the graph and builder of test_lower.c, which includes it. Relied on by: test_lower.c. */
static Module *unit_round(Module *m) {
    while (m && m->parent && !m->policy) m = m->parent;
    return m;
}

static Value *into(Value *v, Module *to, const Module *stop) {
    return to == stop ? v : build_border(b, into(v, unit_round(to->parent), stop), to, false);
}

static Value *given(Value *v, Module *to) { /* as an argument, or a result, of every unit in between */
    Module *from = v->def && v->def->call >= 0 ? unit_round(v->def->module) : NULL;
    if (value_root(v)->param) return v;
    for (; from && !module_within(to, from); from = unit_round(from->parent)) v = build_border(b, v, from, true);
    return into(v, to, from);
}

static void traced(void) {
    Program old = *g->train;
    memset(&g->train->ops, 0, sizeof g->train->ops);
    for (int i = 0; i < old.ops.n; i++) {
        Op *op = old.ops.at[i];
        for (int k = 0; k < op->nin; k++)
            if (op->in[k]) op->in[k] = given(op->in[k], op->call < 0 ? NULL : unit_round(op->module));
        push(&g->train->ops, g->arena, op);
    }
    g->train->loss = given(g->train->loss, NULL);
}

static void typed(void) {
    traced();
    lower_units(g);
    lower_precision(g, g->train);
}
