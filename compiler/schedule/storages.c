/* storages: which runs of bytes each program needs and which of them every event reads and writes. Ops become events
 * here, still in the graph's order; views and assemblies become none. Relies on: the graph after offload. Relied on by:
 * order. */
#include "../ir/ops.h"
#include "../ir/patterns.h"
#include "schedule.h"

typedef struct {
    int last;                 /* last event that touches it */
    unsigned streams;         /* that touch it */
    bool in_backward;         /* read by a backward or recompute event */
    bool reduced, regathered; /* operand of a reduce, of a gather or what comes before it */
} Usage;

typedef struct {
    const Graph *g;
    Plan *plan;
    Arena *a;
    VEC(Storage) storages;
    Usage *usage; /* by id of a root value; roots belong to one program, states need none */
    int program;
    Access *access; /* one event's, before they are copied */
    int cap;
} Derive;

/* ── persistent storages ───────────────────────────────────────────────────────────────────────────────────── */
static StorageClass state_storage_class(StateClass c) {
    static const StorageClass classes[N_STATE_CLASSES] = {
        [S_MASTER] = C_PARAMETERS,
        [S_WIRE] = C_PARAMETERS,
        [S_FROZEN] = C_PARAMETERS,
        [S_MOMENT1] = C_OPTIMIZER,
        [S_MOMENT2] = C_OPTIMIZER,
        [S_STEP] = C_OPTIMIZER,
        [S_GRAD] = C_GRADIENTS,
        [S_BUFFER] = C_BUFFERS,
        [S_INPUT] = C_INPUTS,
        [S_OUTPUT] = C_INPUTS,
        [S_RECORD] = C_RECORD,
        [S_METRICS] = C_RECORD,
        [S_WHOLE_GRAD] = C_UNSHARDED_GRADS,
        [S_GATHERED] = C_UNSHARDED,
        [S_SCALER] = C_RECORD,
        [S_ASSIGN] = C_BUFFERS,
        [S_SEEN] = C_BUFFERS,
        [S_AVERAGE] = C_OPTIMIZER,
    };
    return classes[c];
}

static int64_t storage_size(int64_t bytes) {
    return max64(round_up(bytes, ALIGN), ALIGN);
}

static void derive_states(Derive *d) {
    for (int i = 0; i < d->g->states.n; i++) {
        const State *s = d->g->states.at[i];
        Storage t = {.id = d->storages.n,
                     .cls = state_storage_class(s->cls),
                     .name = s->name,
                     .owner = s->unit    ? s->unit->name
                              : s->param ? s->param->owner->path
                                         : "",
                     .arena = s->on_host ? ARENA_HOST : ARENA_DEVICE,
                     .program = -1,
                     .size = storage_size(s->numel * dtype_size(s->dtype)),
                     .offset = -1,
                     .first = -1};
        d->plan->storage_of[s->value->id] = t.id;
        push(&d->storages, d->a, t);
    }
}

/* ── how roots are used ────────────────────────────────────────────────────────────────────────────────────── */
static bool has_event(const Op *op) {
    return !op_is(op, T_VIEW | T_ASSEMBLE);
}

static void use(Derive *d, const Op *op, const Value *v, int event) {
    const Value *root = value_root(v);
    if (root->state) return;
    Usage *u = &d->usage[root->id];
    u->last = event;
    u->streams |= 1u << op_stream(op);
    u->in_backward |= op->phase == BACKWARD || op->phase == RECOMPUTE;
}

static void find_usage(Derive *d, const Program *p) {
    int event = 0;
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (!has_event(op)) continue;
        for (int k = 0; k < op->nout; k++) use(d, op, op->out[k], event);
        for (int k = 0; k < op->nin; k++) {
            if (!op->in[k]) continue;
            use(d, op, op->in[k], event);
            Usage *u = &d->usage[value_root(op->in[k])->id];
            u->reduced |= op->purpose == TO_REDUCE;
            u->regathered |= op->purpose == TO_UNSHARD;
        }
        event++;
    }
}

/* ── classes ───────────────────────────────────────────────────────────────────────────────────────────────── */
static StorageClass class_of(const Derive *d, const Value *root, const Op *def) {
    const Usage *u = &d->usage[root->id];
    if (root == def->workspace) return C_WORKSPACE;
    if (root->on_host) return C_HOST;
    StorageClass result = purposes[def->purpose].result;
    if (u->regathered && def->purpose != TO_KEEP_PIECE) return C_TEMPORARY; /* a step of a gather */
    if (result != BY_USERS) return result;
    if (u->reduced || (op_is(def, T_ASSEMBLE) && def->unit)) return C_UNSHARDED_GRADS;
    return def->phase == FORWARD && u->in_backward ? C_ACTIVATIONS : C_TEMPORARY;
}

/* ── results that take over a dead operand's bytes ─────────────────────────────────────────────────────────── */
static bool is_taken(const Derive *d, const Op *op, int storage) { /* by a result before */
    for (int k = 0; k < op->nout; k++)
        if (plan_storage(d->plan, op->out[k]) == storage) return true;
    return false;
}

/* A root's bytes may become result r's: dead after the event, and never seen by another stream (which this one would
 * then have to wait for). */
static bool is_free(const Derive *d, const Op *op, const Value *root, const Value *r, int event) {
    const Usage *u = &d->usage[root->id];
    return !root->state && plan_storage(d->plan, root) >= 0 && root->on_host == r->on_host && u->last == event &&
           u->streams == 1u << op_stream(op);
}

/* A fused kernel reads every operand of an element before it writes the element, so any whole operand that it walks as
 * it walks the result will do. */
static bool may_lend(const Derive *d, const Op *op, int k, const Value *r, int event) {
    const Value *v = op->in[k], *root = value_root(v);
    int storage = plan_storage(d->plan, v), uses = 0;
    for (int i = 0; i < op->nin; i++) uses += op->in[i] && plan_storage(d->plan, op->in[i]) == storage;
    if (!is_free(d, op, root, r, event) || uses != 1 || is_taken(d, op, storage)) return false;
    if (v->offset || !value_contiguous(v) || value_bytes(v) != value_bytes(root)) return false;
    if (dtype_size(v->dtype) != dtype_size(r->dtype) || value_bytes(v) != value_bytes(r)) return false;
    return op->body ? value_same_shape(v, r) : op_lends(op, k);
}

static int lent_storage(const Derive *d, const Op *op, int result, int event) {
    const Value *r = op->out[result];
    if (!op->body && result != 0) return -1;
    for (int k = 0; k < op->nin; k++)
        if (op->in[k] && may_lend(d, op, k, r, event)) return plan_storage(d->plan, op->in[k]);
    return -1;
}

static bool lies_among(const Value *a, Value *const *list, int n) {
    for (int k = 0; k < n; k++) {
        const Value *b = list[k];
        if (value_same_shape(a, b) && a->offset == b->offset && dtype_size(a->dtype) == dtype_size(b->dtype) &&
            !memcmp(a->stride, b->stride, sizeof a->stride[0] * (size_t)a->dims))
            return true;
    }
    return false;
}

/* The same for results that lie side by side in `whole`, all of them this op's: operands side by side in one root, each
 * where a result will lie, so that an element's results take the bytes of that element's operands. */
static bool may_lend_pieces(const Derive *d, const Op *op, const Value *from, const Value *whole) {
    const Op *join = whole->def;
    if (!op->body || !join || !op_is(join, T_ASSEMBLE) || value_bytes(from) != value_bytes(whole)) return false;
    for (int k = 0; k < join->nin; k++)
        if (join->in[k]->def != op) return false;
    int pieces = 0;
    for (int k = 0; k < op->nin; k++) {
        if (!op->in[k] || plan_storage(d->plan, op->in[k]) != plan_storage(d->plan, from)) continue;
        if (!lies_among(op->in[k], join->in, join->nin)) return false;
        pieces++;
    }
    return pieces > 0;
}

static int lent_whole(const Derive *d, const Op *op, const Value *whole, int event) {
    for (int k = 0; k < op->nin; k++) {
        if (!op->in[k]) continue;
        const Value *root = value_root(op->in[k]);
        int storage = plan_storage(d->plan, root);
        if (is_free(d, op, root, whole, event) && !is_taken(d, op, storage) && may_lend_pieces(d, op, root, whole))
            return storage;
    }
    return -1;
}

/* ── events ────────────────────────────────────────────────────────────────────────────────────────────────── */
static void make_storage(Derive *d, const Value *root, const Op *def, const char *name) {
    Storage t = {.id = d->storages.n,
                 .cls = class_of(d, root, def),
                 .name = name,
                 .owner = def->unit     ? def->unit->name
                          : def->module ? def->module->path
                                        : "",
                 .arena = root->on_host ? ARENA_HOST : ARENA_DEVICE,
                 .program = d->program,
                 .size = storage_size(value_bytes(root)),
                 .offset = -1,
                 .first = -1,
                 .last = -1};
    d->plan->storage_of[root->id] = t.id;
    push(&d->storages, d->a, t);
}

static void define(Derive *d, const Op *op, int k, int event) {
    const Value *root = value_root(op->out[k]);
    if (plan_storage(d->plan, root) >= 0 || root->state || op->out[k]->internal) return;
    const Op *def = root->def ? root->def : op;
    int lent = root == op->out[k] ? lent_storage(d, op, k, event) : lent_whole(d, op, root, event);
    if (lent < 0) {
        int index;
        const Slot *s = op_slot_at(op_info[op->kind].results, k, &index);
        const char *what = root == op->out[k] ? s->name : def->unit ? "grads" : "whole"; /* else a piece of root */
        bool listed = s->n && root == op->out[k];
        make_storage(d, root, def, arena_printf(d->a, listed ? "%s.%s%d" : "%s.%s", op->id, what, index));
        return;
    }
    d->plan->storage_of[root->id] = lent;
    if (d->storages.at[lent].cls == C_TEMPORARY) d->storages.at[lent].cls = class_of(d, root, def);
}

static int64_t hull(const Value *v) { /* elements from the first to the last, both included */
    int64_t n = 1;
    for (int i = 0; i < v->dims; i++) {
        if (v->shape[i] == 0) return 0;
        n += (v->shape[i] - 1) * v->stride[i];
    }
    return n;
}

static void push_access(Derive *d, int *n, Access x) {
    if (*n == d->cap) d->access = vec_grow(d->a, d->access, &d->cap, sizeof *d->access);
    d->access[(*n)++] = x;
}

static void add_access(Derive *d, int from, int *n, Access x) { /* unless it is there from `from` on */
    for (int i = from; i < *n; i++) {
        const Access *y = &d->access[i];
        if (y->storage == x.storage && y->offset == x.offset && y->size == x.size) return;
    }
    push_access(d, n, x);
}

static Access access_to(const Derive *d, const Op *op, const Value *v) {
    int storage = plan_storage(d->plan, v);
    if (storage < 0)
        bug(op->src, "%s (%s) uses %s before anything makes it", op->id, op_info[op->kind].name, value_str(d->a, v));
    const Storage *s = &d->storages.at[storage];
    if (s->program >= 0 && s->program != d->program)
        bug(op->src, "%s uses %s, a value of another program", op->id, s->name);
    int64_t size = dtype_size(v->dtype);
    return (Access){storage, v->offset * size, hull(v) * size};
}

/* What an update touches, and whether it reads that too. A store touches as many elements as its value has. */
static Access update_access(const Derive *d, const Op *op, int k, bool *reads) {
    Access x = access_to(d, op, op->in[k]);
    *reads = !op_is(op, T_SETS);
    if (op->kind == OP_store) {
        *reads = op->store.add;
        int size = dtype_size(op->store.state->dtype);
        x.offset += op->store.at * size;
        x.size = value_numel(op->store.value) * size;
    }
    return x;
}

static void copy_accesses(Derive *d, int n, Access **to, int *nto) {
    *to = n ? NEW_ARRAY(d->a, Access, n) : NULL;
    if (n) memcpy(*to, d->access, sizeof **to * (size_t)n);
    *nto = n;
}

static void fill_accesses(Derive *d, const Op *op, Event *e) {
    int n = 0;
    bool reads;
    for (int k = 0; k < op->nin; k++) {
        if (!op->in[k]) continue;
        if (!op_updates(op, k)) {
            add_access(d, 0, &n, access_to(d, op, op->in[k]));
            continue;
        }
        Access x = update_access(d, op, k, &reads);
        if (reads) add_access(d, 0, &n, x);
    }
    copy_accesses(d, n, &e->reads, &e->nreads);
    n = 0;
    for (int k = 0; k < op->nout; k++) /* each, so that verify sees two in one place */
        if (!op->out[k]->internal) push_access(d, &n, access_to(d, op, op->out[k]));
    int results = n;
    for (int k = 0; k < op->nin; k++)
        if (op->in[k] && op_updates(op, k)) add_access(d, results, &n, update_access(d, op, k, &reads));
    if (op->workspace) push_access(d, &n, access_to(d, op, op->workspace));
    copy_accesses(d, n, &e->writes, &e->nwrites);
}

static void fill_event(Derive *d, const Op *op, Event *e) {
    Cost cost = op_info[op->kind].cost ? op_info[op->kind].cost(op) : (Cost){0};
    /* The optimizer's event, or the copy that takes what it made back to host memory. */
    bool update = op_is(op, T_OPTIMIZER) || (op_is(op, T_COPY) && op->origin && op_is(op->origin, T_OPTIMIZER));
    *e = (Event){.id = op->id,
                 .op = op_label(d->a, op),
                 .purpose = op->purpose,
                 .stream = op_stream(op),
                 .phase = op->phase,
                 .module = op->module ? op->module->path : "",
                 .src = op->src,
                 .unit = op->unit ? op->unit->id : -1,
                 .comm = op_is(op, T_COLLECTIVE) ? (int)INT_OF(op, comm) : -1,
                 .update = update,
                 .flops = cost.flops,
                 .bytes = cost.bytes,
                 .least_us = cost.least_us,
                 .op_ir = op};
}

static void derive_program(Derive *d, const Program *p, PlanProgram *out) {
    int n = 0;
    for (int i = 0; i < p->ops.n; i++) n += has_event(p->ops.at[i]);
    *out = (PlanProgram){.name = p->name, .events = NEW_ARRAY(d->a, Event, n + 1), .n = n, .ir = p};
    find_usage(d, p);
    for (int i = 0, event = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (!has_event(op)) continue;
        for (int k = 0; k < op->nout; k++) define(d, op, k, event);
        if (op->workspace && plan_storage(d->plan, op->workspace) < 0)
            make_storage(d, op->workspace, op, arena_printf(d->a, "%s.workspace", op->id));
        fill_event(d, op, &out->events[event]);
        fill_accesses(d, op, &out->events[event++]);
    }
}

static void derive_units(Derive *d) {
    Plan *plan = d->plan;
    plan->naxes = d->g->axes.n;
    plan->axes = d->g->axes.at;
    plan->ncomms = d->g->comms.n;
    plan->comms = d->g->comms.at;
    plan->nunits = d->g->units.n;
    plan->units = NEW_ARRAY(d->a, PlanUnit, plan->nunits + 1);
    for (int i = 0; i < plan->nunits; i++) {
        const Unit *u = d->g->units.at[i];
        plan->units[i] = (PlanUnit){.path = u->name,
                                    .id = u->id,
                                    .shard = u->shard,
                                    .replicate = u->replicate,
                                    .expert = u->expert,
                                    .numel = u->numel,
                                    .dtype = u->dtype,
                                    .wire = u->wire,
                                    .grad_dtype = u->grad_dtype,
                                    .reduce = u->reduce,
                                    .nparams = u->params.n,
                                    .master_storage = u->master ? plan_storage(plan, u->master->value) : -1};
    }
}

void schedule_storages(const Graph *g, Plan *plan) {
    Derive d = {.g = g, .plan = plan, .a = plan->arena};
    Arena *scratch = arena_new();
    d.usage = NEW_ARRAY(scratch, Usage, g->values.n + 1);
    plan->storage_of = NEW_ARRAY(plan->arena, int, g->values.n + 1);
    for (int i = 0; i < g->values.n; i++) plan->storage_of[i] = -1;
    derive_states(&d);
    derive_units(&d);
    plan->nprograms = g->programs.n;
    plan->programs = NEW_ARRAY(plan->arena, PlanProgram, g->programs.n + 1);
    for (int i = 0; i < g->programs.n; i++) {
        d.program = i;
        derive_program(&d, g->programs.at[i], &plan->programs[i]);
    }
    plan->storages = d.storages.at;
    plan->nstorages = d.storages.n;
    arena_free(scratch);
}
