/* Uses: the lists of users, by Value.id, and the positions of ops, by Op.serial.
 * Relies on: ir.h, ops.h.
 * Relied on by: the passes up to fuse, offload. */
#include "uses.h"
#include "ops.h"

typedef struct {
    User *first;
    int direct, through; /* users of the value; of views of it */
} Users;

struct Uses {
    Arena *arena; /* its own */
    const Graph *g;
    Users *users;       /* by Value.id */
    const bool *result; /* likewise, of the values that are older than the index */
    int nusers, nresults;
    int *place; /* by Op.serial: the position, from 1; 0: none */
    int nplaces;
    User *room; /* for so many users more */
    int nroom;
};

/* ── results ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
bool *uses_value_flags(const Graph *g) {
    return NEW_ARRAY(g->arena, bool, g->values.n + 1);
}

static void flag(bool *flags, Value *v) {
    flags[v->id] = flags[value_root(v)->id] = true;
}

void uses_flag_results(const Graph *g, const Program *p, bool *flags) {
    if (p->loss) flag(flags, p->loss);
    if (p->logits) flag(flags, p->logits);
    for (int i = 0; i < g->params.n && p == g->train; i++)
        if (g->params.at[i]->grad) flag(flags, g->params.at[i]->grad);
}

/* ── what a pass asks ────────────────────────────────────────────────────────────────────────────────────────────── */
static const Users *entry(const Uses *u, const Value *v) {
    static const Users none;
    return v->id < u->nusers ? &u->users[v->id] : &none;
}

const User *uses_users(const Uses *u, const Value *v) {
    return entry(u, v)->first;
}

bool uses_is_result(const Uses *u, const Value *v) {
    return v->id < u->nresults && u->result[v->id];
}

int uses_count(const Uses *u, const Value *v) {
    return entry(u, v)->direct + uses_is_result(u, v);
}

int uses_through_views(const Uses *u, const Value *v) {
    return entry(u, v)->through;
}

Op *uses_only(const Uses *u, const Value *v) {
    const User *user = uses_users(u, v);
    while (user && user->value != v) user = user->next;
    return user && uses_count(u, v) == 1 ? user->op : NULL;
}

int uses_position(const Uses *u, const Op *op) {
    return op->serial < u->nplaces ? u->place[op->serial] - 1 : -1;
}

/* ── what a pass changes ─────────────────────────────────────────────────────────────────────────────────────────── */
static void *larger(Arena *a, const void *from, int n, int *more, int least, size_t size) {
    *more = n * 2 > least ? n * 2 : least;
    void *to = arena_alloc(a, size * (size_t)*more);
    return n ? memcpy(to, from, size * (size_t)n) : to;
}

/* Room for what the graph has now. */
static void grow(Uses *u) {
    int values = u->g->values.n, ops = u->g->nops;
    if (u->nusers < values) u->users = larger(u->arena, u->users, u->nusers, &u->nusers, values, sizeof *u->users);
    if (u->nplaces < ops) u->place = larger(u->arena, u->place, u->nplaces, &u->nplaces, ops, sizeof *u->place);
}

/* It also stands in the list of the value that owns v's bytes. */
static bool seen_through(const Op *op, const Value *v) {
    return v->base && !op_is(op, T_VIEW);
}

enum { FEW = 256 };

static void enter(Uses *u, const Value *whose, Op *op, const Value *v) {
    Users *l = &u->users[whose->id];
    if (!u->nroom) u->room = NEW_ARRAY(u->arena, User, u->nroom = FEW);
    u->nroom--;
    *u->room = (User){op, v, l->first};
    l->first = u->room++;
    *(whose == v ? &l->direct : &l->through) += 1;
}

static void leave(Uses *u, const Value *whose, const Op *op, const Value *v) {
    Users *l = &u->users[whose->id];
    User **at = &l->first;
    while (*at && ((*at)->op != op || (*at)->value != v)) at = &(*at)->next;
    if (!*at) bug(op->src, "%s is no user of value %d", op->id, whose->id);
    *at = (*at)->next;
    *(whose == v ? &l->direct : &l->through) -= 1;
}

void uses_add(Uses *u, Op *op) {
    grow(u);
    for (int k = op->nin - 1; k >= 0; k--) {
        Value *v = op->in[k];
        if (!v) continue;
        enter(u, v, op, v);
        if (seen_through(op, v)) enter(u, v->base, op, v);
    }
}

void uses_drop(Uses *u, const Op *op, const Value *operand) {
    leave(u, operand, op, operand);
    if (seen_through(op, operand)) leave(u, operand->base, op, operand);
}

void uses_remove(Uses *u, const Op *op) {
    for (int k = 0; k < op->nin; k++)
        if (op->in[k]) uses_drop(u, op, op->in[k]);
}

void uses_place(Uses *u, const Op *op, int at) {
    grow(u);
    u->place[op->serial] = at + 1;
}

/* ── the index ───────────────────────────────────────────────────────────────────────────────────────────────────── */
/* Goes through the ops from last to first, since each new user is put before the others. */
Uses *uses_new(const Graph *g, const Program *p) {
    Arena *a = arena_new();
    Uses *u = NEW(a, Uses);
    bool *result = NEW_ARRAY(a, bool, g->values.n + 1);
    uses_flag_results(g, p, result);
    *u = (Uses){.arena = a, .g = g, .result = result, .nresults = g->values.n};
    grow(u);
    for (int i = 0; i < p->ops.n; i++) u->nroom += p->ops.at[i]->nin;
    u->room = NEW_ARRAY(a, User, u->nroom);
    for (int i = p->ops.n - 1; i >= 0; i--) {
        uses_add(u, p->ops.at[i]);
        u->place[p->ops.at[i]->serial] = i + 1;
    }
    return u;
}

void uses_free(Uses *u) {
    arena_free(u->arena);
}
