/* units, shard, offload: flat layout, states and their arenas, and the programs that come out, over every
 * combination of offload, dtype, accumulation and mesh. Relies on: Criterion; the whole compiler up to verify.
 * Relied on by: make test. */
#include "dies.h"
#include "ir/training.h"
#include "lua_graph.h"

/* ── models ──────────────────────────────────────────────────────────────────────────────────────────────────────── */
/* Tied, unused and frozen parameters, a parameter of the root that the blocks use, a unit within a unit, a module
 * called twice. Arguments: the units' policy, the rest of nn.training. */
static const char NET[] =
    "local nn, optim = require 'nn', require 'optim'\n"
    "local function Block()\n"
    "  local m = nn.module 'Block'\n"
    "  m.norm, m.up, m.down = nn.LayerNorm(12), nn.Linear(12, 20), nn.Linear(20, 12)\n"
    "  m.fixed = nn.parameter({ 12 }, { init = nn.init.ones(), requires_grad = false })\n"
    "  function m:forward(x, gain) return x + self.down(nn.relu(self.up(self.norm(x) * self.fixed))) * gain end\n"
    "  return m\n"
    "end\n"
    "local m = nn.module 'Net'\n"
    "m.embed, m.head, m.a, m.b = nn.Embedding(33, 12), nn.Linear(12, 33, { bias = false }), Block(), Block()\n"
    "m.head.weight = m.embed.weight\n"
    "m.gain, m.idle = nn.parameter({ 12 }, { init = nn.init.ones() }), nn.parameter({ 5 })\n"
    "function m:forward(t)\n"
    "  return self.head(self.b(self.a(self.a(self.embed(t), self.gain), self.gain), self.gain))\n"
    "end\n"
    "local policy = { %s }\n"
    "for _, part in ipairs { m.a.down, m.a, m.b, m } do nn.fully_shard(part, policy) end\n"
    "return nn.training { model = m, batch = { tokens = nn.input('int32', { 2, 6 }), targets = nn.input('int32', { 2, "
    "6 }) },\n"
    "  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,\n"
    "  sample = { logits = function(m, b) return m(b.tokens) end },\n"
    "  %s }\n";
static const char ADAMW[] =
    "optimizer = optim.AdamW { groups = { { match = { '*.bias', '*norm*' }, weight_decay = 0 } } "
    "}, clip_grad_norm = 1";

static const char *net(const char *policy, const char *training) {
    static char text[8192];
    snprintf(text, sizeof text, NET, policy, training);
    return text;
}

/* ── looking ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
static Unit *unit(const Graph *g, const char *path) {
    for (int i = 0; i < g->units.n; i++)
        if (!strcmp(g->units.at[i]->module->path, path)) return g->units.at[i];
    cr_assert_fail("no unit %s", path);
    abort();
}

static Op *find(const Program *p, const char *id) { /* NULL: none */
    for (int i = 0; i < p->ops.n; i++)
        if (!strcmp(p->ops.at[i]->id, id)) return p->ops.at[i];
    return NULL;
}

static int place_of(const Program *p, const Op *op) {
    for (int i = 0; i < p->ops.n; i++)
        if (p->ops.at[i] == op) return i;
    cr_assert_fail("no such op");
    return -1;
}

static bool reads(const Op *op, const Value *root) {
    for (int k = 0; k < op->nin; k++)
        if (op->in[k] && value_root(op->in[k]) == root) return true;
    return false;
}

static int count_states(const Graph *g, StateClass c) {
    int n = 0;
    for (int i = 0; i < g->states.n; i++) n += g->states.at[i]->cls == c;
    return n;
}

static bool in_flat(const Param *p) {
    return p->reached && p->requires_grad && !p->is_buffer;
}

/* ── flat layout ─────────────────────────────────────────────────────────────────────────────────────────────────── */
static void expect_layout(const Graph *g, const Unit *u) {
    int64_t end = 0, frozen_end = 0;
    int group = 0;
    for (int i = 0; i < u->params.n; i++) {
        const Param *p = u->params.at[i];
        int64_t *at = in_flat(p) ? &end : &frozen_end;
        cr_expect(i == 0 || in_flat(u->params.at[i - 1]) >= in_flat(p), "trainable ones stand first");
        cr_expect_eq(p->flat_offset, *at, "%s at %ld, not %ld", p->path, (long)p->flat_offset, (long)*at);
        cr_expect_eq(p->flat_offset % 256, 0);
        *at = round_up(*at + numel(p), 256);
        if (!in_flat(p)) continue;
        cr_expect(p->group >= group, "%s: groups in order", p->path);
        group = p->group;
    }
    cr_expect_eq(u->numel, round_up(end, 256 * u->shard->size));
    cr_expect_eq(u->frozen_numel, round_up(frozen_end, 256 * u->shard->size));
}

Test(shard, flat_layout_does_not_depend_on_the_world) {
    int64_t first[64], n = 0;
    for (int world = 1; world <= 8; world++) {
        Graph *g = lowered(net("", ADAMW), world);
        for (int i = 0; i < g->units.n; i++) expect_layout(g, g->units.at[i]);
        for (int i = 0; i < g->params.n; i++) {
            if (world == 1) first[n++] = g->params.at[i]->flat_offset;
            cr_expect_eq(g->params.at[i]->flat_offset, first[i]);
        }
        const Unit *a = unit(g, "a");
        cr_expect_eq(a->shard->size, world);
        cr_expect_eq(a->params.n, 5); /* norm 2, up 2, fixed */
        cr_expect_str_eq(a->params.at[0]->path, "a.up.weight", "decayed ones first: group 0");
    }
    cr_expect_eq(n, 17);
}

Test(shard, parameters_have_their_unit) {
    Graph *g = lowered(net("", ADAMW), 2);
    const struct {
        const char *path, *unit;
        bool trainable;
    } rows[] = {{"embed.weight", "", true},   {"gain", "", true},      {"idle", "", false},
                {"a.up.weight", "a", true},   {"a.fixed", "a", false}, {"a.down.weight", "a.down", true},
                {"b.down.weight", "b", true}, {"b.fixed", "b", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const Param *p = param(g, rows[i].path);
        cr_expect_str_eq(p->unit->module->path, rows[i].unit, "%s", p->path);
        cr_expect_eq(in_flat(p), rows[i].trainable, "%s", p->path);
    }
    for (int i = 0; i < g->params.n; i++)
        cr_expect_str_neq(g->params.at[i]->path, "head.weight", "tied: one parameter");
}

/* With moments of bf16 a row is a parameter, and ends with its key. With those of 8 bits it begins with a block, which
 * is no other's, on a slice that is whole blocks. */
static void check_segments(const char *optimizer, Dtype moments) {
    Graph *g = lowered(net("", optimizer), 2);
    Program *p = program(g, "micro");
    int row = moments == BF16 ? 4 : 3;
    for (int i = 0; i < g->units.n; i++) {
        const Unit *u = g->units.at[i];
        const Op *op = find(p, arena_printf(g->arena, "u%d", u->id));
        int64_t covered = 0, own = 0;
        int64_t slice = u->numel / u->shard->size, many = moments == INT8 ? slice + slice / 256 * 4 : slice;
        cr_expect(u->m->dtype == moments && u->v->dtype == moments && op->ntable % row == 0);
        cr_expect(u->m->numel == many && u->v->numel == many && slice % 256 == 0);
        for (int k = 0; k < op->ntable; k += row) {
            covered += op->table[k + 1] - op->table[k];
            cr_expect(moments != INT8 || op->table[k] % 256 == 0);
            for (int j = 0; j < u->params.n; j++) {
                const Param *q = u->params.at[j];
                if (!in_flat(q) || q->flat_offset < op->table[k] || q->flat_offset >= op->table[k + 1]) continue;
                cr_expect_eq(q->group, op->table[k + 2]);
                cr_expect_leq(q->flat_offset + numel(q), op->table[k + 1]);
                if (row == 4) cr_expect(q->flat_offset == op->table[k] && q->key == (uint64_t)op->table[k + 3]);
            }
        }
        for (int j = 0; j < u->params.n; j++) own += in_flat(u->params.at[j]) ? numel(u->params.at[j]) : 0;
        cr_expect_eq(covered, own, "%s: %ld elements of %ld", u->module->path, (long)covered, (long)own);
    }
    expect_sound(g);
}
Test(shard, segments_leave_gaps_out) {
    check_segments(ADAMW, FP32);
    check_segments("optimizer = optim.AdamW { moment_dtype = 'bf16' }", BF16);
    check_segments("optimizer = optim.AdamW { moment_dtype = 'int8' }", INT8);
}

/* What a rank's gradients are made in where they are summed in fp32: bf16 unless the sum itself is in another dtype. */
Test(shard, gradients_are_made_in_their_own_dtype) {
    static const struct {
        const char *more;
        int accumulate, world;
        Dtype grad_dtype;
    } cases[] = {
        {"", 1, 1, BF16},
        {"", 1, 2, BF16},
        {"mesh = nn.mesh { replicate = 2 },", 1, 4, BF16},
        {"mesh = nn.mesh { shard = 1 },", 1, 2, FP32},
        {"", 2, 2, BF16},
        {"requires_gradient_sync = false,", 2, 2, FP32},
        {"requires_gradient_sync = false,", 1, 2, BF16},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char policy[256], training[256];
        snprintf(policy, sizeof policy,
                 "%s mp_policy = { param_dtype = 'bf16', grad_dtype = 'bf16', reduce_dtype = 'fp32' }", cases[k].more);
        snprintf(training, sizeof training, "%s, accumulate = %d", ADAMW, cases[k].accumulate);
        Graph *g = lowered(net(policy, training), cases[k].world);
        Program *p = program(g, cases[k].accumulate > 1 ? "micro_last" : "micro");
        for (int i = 0; i < g->units.n; i++) {
            const Unit *u = g->units.at[i];
            const Op *flat = find(p, arena_printf(g->arena, "flat%d", u->id)),
                     *reduce = find(p, arena_printf(g->arena, "r%d", u->id));
            cr_expect_eq(u->grad_dtype, cases[k].grad_dtype, "case %zu", k);
            cr_expect_eq(flat->assemble.y->dtype, u->grad_dtype);
            cr_expect_eq(count(p, OP_all_to_all, u), u->grad_dtype == BF16 && u->shard->size > 1);
            cr_expect_eq(count(p, OP_reduce_scatter, u), u->grad_dtype == FP32 && u->shard->size > 1);
            cr_expect_eq(reduce != NULL, u->shard->size > 1);
            if (!reduce) continue;
            cr_expect_eq(op_result(reduce)->dtype, FP32);
            cr_expect_eq(value_numel(op_result(reduce)), u->numel / u->shard->size);
        }
        expect_sound(g);
    }
}

/* Gradients and zeroed gaps together tile the buffer that the reduce reads. */
Test(shard, gaps_are_zeroed) {
    for (int world = 1; world <= 4; world++) {
        Graph *g = lowered(net("", ADAMW), world);
        Program *p = program(g, "micro");
        for (int i = 0; i < g->units.n; i++) {
            const Unit *u = g->units.at[i];
            const Op *flat = find(p, arena_printf(g->arena, "flat%d", u->id));
            char *written = calloc((size_t)u->numel, 1);
            for (int k = 0; k < place_of(p, flat); k++)
                for (int j = 0; j < p->ops.at[k]->nout; j++) {
                    const Value *v = p->ops.at[k]->out[j];
                    if (v->base != flat->assemble.y || op_is(p->ops.at[k], T_VIEW)) continue;
                    cr_assert(value_contiguous(v) && v->offset + value_numel(v) <= u->numel);
                    for (int64_t e = 0; e < value_numel(v); e++) written[v->offset + e]++;
                }
            for (int64_t e = 0; e < u->numel; e++)
                cr_assert_eq(written[e], 1, "element %ld of %s", (long)e, u->module->path);
            free(written);
        }
    }
}

/* Pieces that the assembles of a name put together. */
static int assembled(const Program *p, const char *id) {
    int pieces = 0;
    for (int i = 0; i < p->ops.n; i++)
        if (p->ops.at[i]->kind == OP_assemble && !strncmp(p->ops.at[i]->id, id, strlen(id)))
            pieces += p->ops.at[i]->nin;
    return pieces;
}

/* More gaps, gradients and units than one op has results or operands. */
Test(shard, many_gaps_and_pieces) {
    Graph *g =
        lowered("local nn, optim = require 'nn', require 'optim'\n"
                "local m = nn.module 'Net'\n"
                "m.embed, m.parts, m.units = nn.Embedding(9, 3), nn.list {}, nn.list {}\n"
                "for i = 1, 40 do m.parts[i] = nn.parameter({ 3 }, { init = nn.init.ones() }) end\n"
                "for i = 1, 20 do m.units[i] = nn.Linear(3, 3) nn.fully_shard(m.units[i]) end\n"
                "function m:forward(t)\n"
                "  local x = self.embed(t)\n"
                "  for _, p in ipairs(self.parts) do x = x * p end\n"
                "  for _, unit in ipairs(self.units) do x = unit(x) end\n"
                "  return nn.mean(x)\n"
                "end\n"
                "nn.fully_shard(m)\n"
                "return nn.training { model = m, batch = { t = nn.input('int32', { 2, 4 }) }, clip_grad_norm = 1,\n"
                "  loss = function(m, b) return m(b.t) end, optimizer = optim.SGD { lr = 0.1 } }\n",
                2);
    const Program *micro = program(g, "micro");
    cr_expect_eq(count(micro, OP_zero_gaps, unit(g, "")), 3);
    cr_expect_eq(assembled(micro, "flat"), 41 + 20 * 2, "every gradient lies in its unit's");
    cr_expect_eq(assembled(micro, "norms"), 21);
    expect_sound(g);
}

/* ── every combination ───────────────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
    bool params, grads, optimizer, bf16, on_cpu; /* on_cpu: where an offloaded optimizer updates */
    int accumulate, world, replicate;
} Case;

static Graph *graph_of(const Case *c, bool verified) {
    char policy[256], training[256];
    snprintf(policy, sizeof policy,
             "mesh = nn.mesh { replicate = %d }, offload = { params = %s, grads = %s, optimizer = %s }%s", c->replicate,
             c->params ? "true" : "false", c->grads ? "true" : "false",
             !c->optimizer ? "false"
             : c->on_cpu   ? "'host'"
                           : "'stream'",
             c->bf16 ? ", mp_policy = { param_dtype = 'bf16', reduce_dtype = 'fp32' }" : "");
    snprintf(training, sizeof training, "%s, accumulate = %d", ADAMW, c->accumulate);
    Graph *g = lowered(net(policy, training), c->world);
    if (verified) expect_sound(g);
    return g;
}

static void expect_mesh(const Unit *u, int shards, int replicas) {
    cr_expect(u->shard->size == shards && u->replicate->size == replicas, "unit %s", u->name);
}

static void expect_states(const Graph *g, const Unit *u, const Case *c) {
    bool master_on_host = c->params || c->optimizer,
         cast = c->params && !(c->optimizer && c->on_cpu) && c->accumulate == 1,
         own_wire = (c->bf16 && !cast) || c->params != master_on_host;
    expect_mesh(u, c->world / c->replicate, c->replicate);
    cr_expect_eq(u->master->on_host, master_on_host);
    cr_expect_eq(u->master->dtype, FP32);
    cr_expect_eq(u->master->numel * u->shard->size, u->numel);
    cr_expect_eq(u->wire_shard != u->master, own_wire);
    cr_expect_eq(u->wire_shard->on_host, c->params);
    cr_expect_eq(u->wire_shard->dtype, c->bf16 && own_wire ? BF16 : FP32);
    cr_expect_eq(u->m->on_host, c->optimizer);
    cr_expect_eq(u->v->on_host, c->optimizer);
    cr_expect_eq(u->grad != NULL, c->accumulate > 1);
    if (u->grad) cr_expect_eq(u->grad->on_host, c->grads);
    cr_expect_eq(u->frozen != NULL, strcmp(u->module->path, "a.down") != 0);
    if (!u->frozen) return;
    cr_expect_eq(u->frozen->on_host, c->params);
    cr_expect_eq(u->frozen_wire != u->frozen, c->bf16);
    cr_expect_eq(u->frozen_wire->on_host, c->params);
}

/* Events of the host stream see host memory only, copies both, all others none. */
static void expect_places(const Program *p) {
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        bool host = op_stream(op) == HOST;
        if (op_is(op, T_COPY)) {
            bool up = op_stream(op) == FETCH; /* offload has the same slots */
            cr_expect_eq(value_root(op->fetch.x)->on_host, up, "%s in %s", op->id, p->name);
            cr_expect_eq(value_root(op->fetch.y)->on_host, !up, "%s in %s", op->id, p->name);
            continue;
        }
        if (host) cr_expect(op_is(op, T_HOST_OK), "%s in %s", op->id, p->name);
        for (int k = 0; k < op->nin; k++)
            if (op->in[k])
                cr_expect_eq(value_root(op->in[k])->on_host, host, "%s operand %d in %s", op->id, k, p->name);
        for (int k = 0; k < op->nout; k++)
            cr_expect_eq(value_root(op->out[k])->on_host, host, "%s result %d in %s", op->id, k, p->name);
    }
}

static void expect_step(const Graph *g, const Unit *u, const Case *c) {
    const Program *last = program(g, c->accumulate > 1 ? "micro_last" : "micro");
    const Op *update = find(last, arena_printf(g->arena, "u%d", u->id));
    bool root = !u->module->parent, in_place = u->shard->size == 1 && !c->params;
    cr_expect_eq(op_stream(update), c->optimizer && c->on_cpu ? HOST : c->optimizer || c->params ? UPDATE : COMPUTE);
    cr_expect_eq(count(last, OP_adam, u), 1);
    cr_expect_eq(count(last, OP_reduce_scatter, u), u->shard->size > 1);
    cr_expect_eq(count(last, OP_all_reduce, u), u->replicate->size > 1);
    const char *ids[] = {"g%df", "g%db", "fg%df", "fg%db"};
    for (int i = 0; i < 4; i++) { /* gathers of trainable parameters, and fetches of what they read */
        bool there = (i < 2 ? u->shard->size > 1 : c->params) && !in_place && (i % 2 == 0 || !root);
        char id[16];
        snprintf(id, sizeof id, ids[i], u->id);
        cr_expect_eq(find(last, id) != NULL, there, "%s", id);
    }
    bool kept = c->grads && c->accumulate == 1;
    cr_expect_eq(find(last, arena_printf(g->arena, "o_grad%d", u->id)) != NULL, kept);
    if (c->accumulate == 1) return;
    const char *names[] = {"micro_first", "micro", "micro_last"};
    for (int i = 0; i < 3; i++) {
        const Op *acc = find(program(g, names[i]), arena_printf(g->arena, "acc%d", u->id));
        cr_expect_eq(acc->store.add, i > 0, "the first microbatch sets, the others add");
        cr_expect_eq(op_stream(acc), c->grads ? HOST : COMPUTE);
        cr_expect_eq(count(program(g, names[i]), OP_adam, u), i == 2);
    }
}

static void expect_all(int world, int replicate) {
    for (int bits = 0; bits < 64; bits++) {
        Case c = {bits & 1, bits & 2, bits & 4, bits & 8, bits & 16, bits & 32 ? 3 : 1, world, replicate};
        if (c.on_cpu && !c.optimizer) continue;
        Graph *g = graph_of(&c, true);
        for (int i = 0; i < g->units.n; i++) {
            expect_states(g, g->units.at[i], &c);
            expect_step(g, g->units.at[i], &c);
        }
        for (int i = 0; i < g->programs.n; i++) expect_places(g->programs.at[i]);
        cr_expect_eq(g->programs.n, c.accumulate == 1 ? 5 : 7);
        arena_free(g->arena);
    }
}

Test(shard, states_and_steps_at_world_1) {
    expect_all(1, 1);
}
Test(shard, states_and_steps_of_2_shards) {
    expect_all(2, 1);
}
Test(shard, states_and_steps_of_2_replicas) {
    expect_all(2, 2);
}
Test(shard, states_and_steps_of_2_shards_and_2_replicas) {
    expect_all(4, 2);
}

/* Every optimizer has the states that its formula needs. */
Test(shard, optimizer_states) {
    const struct {
        const char *text;
        int m, v, step;
    } rows[] = {{"optimizer = optim.SGD {}", 0, 0, 0},
                {"optimizer = optim.SGD { momentum = 0.9, nesterov = true }", 4, 0, 0},
                {"optimizer = optim.Adam {}", 4, 4, 1},
                {"optimizer = optim.AdamW {}", 4, 4, 1}};
    for (int i = 0; i < 4; i++) {
        Graph *g = lowered(net("", rows[i].text), 2);
        cr_expect_eq(count_states(g, S_MOMENT1), rows[i].m);
        cr_expect_eq(count_states(g, S_MOMENT2), rows[i].v);
        cr_expect_eq(count_states(g, S_STEP), rows[i].step);
        expect_sound(g);
    }
}

/* ── gathers ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
Test(shard, gathers_stand_before_the_first_read_of_each_direction) {
    Graph *g = lowered(net("", ADAMW), 2);
    Program *p = program(g, "micro");
    for (int i = 0; i < g->units.n; i++) {
        const Unit *u = g->units.at[i];
        bool root = !u->module->parent;
        cr_expect_eq(count(p, OP_all_gather, u), (root ? 1 : 2) * (u->frozen ? 2 : 1) - (root ? 1 : 0), "%s",
                     u->module->path); /* the root's frozen buffer holds `idle` alone, which nobody reads */
    }
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (op->kind != OP_all_gather) continue;
        const Op *next = p->ops.at[i + 1];
        while (next->kind == OP_all_gather) next = p->ops.at[place_of(p, next) + 1];
        for (int j = i + 1; j < p->ops.n && !reads(next, op->all_gather.y); j++)
            if (reads(p->ops.at[j], op->all_gather.y)) cr_assert_fail("%s comes before its time", op->id);
    }
    cr_expect_eq(count(program(g, "eval"), OP_all_gather, unit(g, "a")), 2);
    cr_expect_eq(count(program(g, "sample"), OP_all_gather, unit(g, "a.down")), 1);
}

Test(shard, reshard_after_forward_false_gathers_once) {
    Graph *g = lowered(net("reshard_after_forward = false", ADAMW), 2);
    for (int i = 0; i < g->units.n; i++) cr_expect_null(find(program(g, "micro"), arena_printf(g->arena, "g%db", i)));
    g = lowered(net("reshard_after_forward = true", ADAMW), 2);
    for (int i = 0; i < g->units.n; i++)
        cr_expect(find(program(g, "micro"), arena_printf(g->arena, "g%db", i)), "also the root, now that it was said");
}

/* a's `gain` belongs to the root: block b reads it in its own backward, after the root's own ops have. */
Test(shard, a_parameter_of_another_unit) {
    Graph *g = lowered(net("reshard_after_forward = true", ADAMW), 2);
    Program *p = program(g, "micro");
    const Op *again = find(p, "g0b");
    const Param *gain = param(g, "gain");
    int users = 0;
    for (int i = 0; i < p->ops.n; i++)
        for (int k = 0; k < p->ops.at[i]->nin; k++) {
            const Value *v = p->ops.at[i]->in[k];
            if (v && v->base == again->all_gather.y && v->offset == gain->flat_offset) {
                cr_expect(i > place_of(p, again) && p->ops.at[i]->phase == BACKWARD);
                users++;
            }
        }
    cr_expect_geq(users, 3, "one for each call of a block");
    expect_sound(g);
}

Test(shard, a_module_called_twice_reduces_once) {
    Graph *g = lowered(net("", ADAMW), 2);
    Program *p = program(g, "micro");
    const Unit *a = unit(g, "a");
    cr_expect_eq(count(p, OP_reduce_scatter, a), 1);
    const Op *reduce = find(p, arena_printf(g->arena, "r%d", a->id));
    for (int i = place_of(p, reduce); i < p->ops.n; i++)
        for (int k = 0; k < p->ops.at[i]->nout; k++)
            cr_expect(!p->ops.at[i]->out[k]->base || p->ops.at[i]->out[k]->base != reduce->reduce_scatter.x,
                      "both calls' gradients are there before");
}

/* Nothing reads a unit's parameters after its update, nor the gradient before the reduce is done. */
Test(shard, updates_come_last) {
    for (int clip = 0; clip < 2; clip++) {
        Graph *g = lowered(net("mesh = nn.mesh { shard = 1 }", clip ? ADAMW : "optimizer = optim.SGD { lr = 0.1 }"), 2);
        Program *p = program(g, "micro");
        for (int i = 0; i < g->units.n; i++) {
            const Op *update = find(p, arena_printf(g->arena, "u%d", i));
            const Value *master = g->units.at[i]->master->value;
            cr_expect_eq(clip ? update->adam.master : update->sgd.master, master, "in place where one rank holds all");
            for (int k = place_of(p, update) + 1; k < p->ops.n; k++) cr_expect(!reads(p->ops.at[k], master));
        }
        const Op *first = find(p, arena_printf(g->arena, "u%d", unit(g, "b")->id));
        const Op *norm = find(p, "clip");
        cr_expect_eq(place_of(p, first) < place_of(p, norm), !clip, "without clipping, updates need not wait");
    }
}

/* The gradient of a product's first operand is made before that of the second, which reads the first. */
Test(shard, an_update_waits_for_readers_of_the_parameter) {
    Graph *g = lowered(
        "local nn, optim = require 'nn', require 'optim'\n"
        "local m = nn.module 'Net'\n"
        "m.inner, m.outer = nn.Linear(4, 4), nn.parameter({ 3, 2 })\n"
        "nn.fully_shard(m.inner)\n"
        "function m:forward(x) return nn.matmul(self.outer, self.inner(x)) end\n"
        "return nn.training { model = m, batch = { x = nn.input('fp32', { 2, 4 }) }, optimizer = optim.SGD {},\n"
        "  loss = function(m, b) return nn.mean(m(b.x)) end }\n",
        1);
    const Program *p = program(g, "micro");
    const Unit *u = param(g, "outer")->unit;
    const Op *update = find(p, arena_printf(g->arena, "u%d", u->id));
    for (int k = 0; k < p->ops.n; k++)
        if (p->ops.at[k] != update && reads(p->ops.at[k], u->master->value)) cr_expect_lt(k, place_of(p, update));
}

/* ── options of a unit ───────────────────────────────────────────────────────────────────────────────────────────── */
Test(shard, divide_factor) {
    const struct {
        const char *policy;
        double scale; /* 0: no op */
    } rows[] = {{"", 0},
                {"gradient_divide_factor = 4", 0},
                {"gradient_divide_factor = 1", 4},
                {"gradient_divide_factor = 8", 0.5},
                {"gradient_divide_factor = 1, mesh = nn.mesh { replicate = 2 }", 4},
                {"gradient_divide_factor = 1, mesh = nn.mesh { shard = 1 }", 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int accumulate = 1; accumulate <= 3; accumulate += 2) {
            char training[256];
            snprintf(training, sizeof training, "%s, accumulate = %d", ADAMW, accumulate);
            Graph *g = lowered(net(rows[i].policy, training), 4);
            const Program *p = program(g, accumulate > 1 ? "micro_last" : "micro");
            const Op *op = find(p, "d1");
            cr_expect_eq(op != NULL, rows[i].scale != 0);
            if (op) {
                cr_expect_float_eq(op->body[0]->mul_scalar.x, rows[i].scale, 0);
                cr_expect_eq(accumulate > 1 ? find(p, "acc1")->store.value : find(p, "u1")->adam.grad, op_result(op));
                cr_expect_eq(op->group, find(p, "d2")->group, "one kernel for all");
            }
            expect_sound(g);
        }
}

static const char EMBEDDING[] =
    "local nn, optim = require 'nn', require 'optim'\n"
    "local m = nn.module 'Net'\n"
    "m.embed, m.out = nn.Embedding(16, 4), nn.Linear(4, 16)\n"
    "function m:forward(t) return self.out(self.embed(t)) end\n"
    "nn.fully_shard(m.%s, { unshard_in_backward = false%s })\n"
    "nn.fully_shard(m)\n"
    "return nn.training { model = m, batch = { t = nn.input('int32', { 2, 4 }), u = nn.input('int32', { 2, 4 }) },\n"
    "  loss = function(m, b) return nn.cross_entropy(m(b.t), b.u) end, optimizer = optim.SGD { lr = 0.1 } }\n";

static const char *embedding(const char *module, const char *more) {
    static char text[2048];
    snprintf(text, sizeof text, EMBEDDING, module, more);
    return text;
}

Test(shard, unshard_in_backward) {
    Graph *g = lowered(embedding("embed", ""), 2);
    cr_expect(find(program(g, "micro"), "g1f") && !find(program(g, "micro"), "g1b"),
              "the gradient of a table reads no table");
    g = lowered(embedding("out", ", reshard_after_forward = false"), 2);
    cr_expect(find(program(g, "micro"), "g1f") && !find(program(g, "micro"), "g1b"));
    g = lowered(embedding("out", ""), 1);
    cr_expect_null(find(program(g, "micro"), "g1f"), "nothing is ever resharded at world 1");
}

static int refused(const char *text, int world, char *message, size_t size) {
    return DIES(message, size, lowered(text, world));
}

Test(shard, unshard_in_backward_is_a_promise) {
    char message[4096];
    cr_expect_eq(refused(embedding("out", ""), 2, message, sizeof message), 1);
    cr_expect(strstr(message, ".lua:5: nn.fully_shard: unshard_in_backward = false, but the backward of ") &&
                  strstr(message, ".lua:4 (matmul) reads out.weight"),
              "%s", message);
}

Test(shard, a_root_without_a_policy_is_replicated) {
    Graph *g = lowered("local nn, optim = require 'nn', require 'optim'\n"
                       "local m = nn.module 'Net'\n"
                       "m.embed, m.out = nn.Embedding(16, 4), nn.Linear(4, 16)\n"
                       "function m:forward(t) return self.out(self.embed(t)) end\n"
                       "nn.fully_shard(m.embed, { mesh = nn.mesh { replicate = 2 }, offload = { params = true },\n"
                       "  mp_policy = { param_dtype = 'bf16', output_dtype = 'fp32' }, gradient_divide_factor = 2 })\n"
                       "return nn.training { model = m, batch = { t = nn.input('int32', { 2, 4 }),\n"
                       "  u = nn.input('int32', { 2, 4 }) }, optimizer = optim.SGD { lr = 0.1 },\n"
                       "  loss = function(m, b) return nn.cross_entropy(m(b.t), b.u) end }\n",
                       4);
    const Unit *root = unit(g, ""), *embed = unit(g, "embed");
    expect_mesh(root, 1, 4), expect_mesh(embed, 2, 2);
    cr_expect(root->wire == FP32 && !root->master->on_host && embed->wire == BF16 && embed->master->on_host);
    cr_expect(find(program(g, "micro"), arena_printf(g->arena, "d%d", embed->id)) &&
              !find(program(g, "micro"), arena_printf(g->arena, "d%d", root->id)));
    expect_sound(g);
}

Test(shard, a_model_without_units_is_replicated) {
    Graph *g = lowered("local nn, optim = require 'nn', require 'optim'\n"
                       "local m = nn.Embedding(16, 4)\n"
                       "return nn.training { model = m, batch = { t = nn.input('int32', { 2, 4 }) },\n"
                       "  loss = function(m, b) return nn.mean(m(b.t)) end, optimizer = optim.SGD { lr = 0.1 } }\n",
                       4);
    cr_expect_eq(g->units.n, 1);
    expect_mesh(g->units.at[0], 1, 4);
    cr_expect_eq(count(program(g, "micro"), OP_all_gather, NULL), 0);
    expect_sound(g);
}

/* A unit may have nothing to gather, or nothing to train: the first one's parameter is tied to one outside of it. */
Test(shard, units_without_parameters_and_without_gradients) {
    Graph *g = lowered("local nn, optim = require 'nn', require 'optim'\n"
                       "local m = nn.module 'Net'\n"
                       "m.embed, m.mid, m.out = nn.Embedding(16, 4), nn.freeze(nn.Linear(4, 4)), nn.Linear(4, 16)\n"
                       "m.out.weight = m.embed.weight\n"
                       "function m:forward(t) return self.out(self.mid(self.embed(t))) end\n"
                       "for _, part in ipairs { m.embed, m.mid, m } do\n"
                       "  nn.fully_shard(part, { offload = { params = true, grads = true, optimizer = true } })\n"
                       "end\n"
                       "return nn.training { model = m, batch = { t = nn.input('int32', { 2, 4 }),\n"
                       "  u = nn.input('int32', { 2, 4 }) }, optimizer = optim.AdamW {}, clip_grad_norm = 1,\n"
                       "  loss = function(m, b) return nn.cross_entropy(m(b.t), b.u) end }\n",
                       2);
    const Unit *embed = unit(g, "embed"), *mid = unit(g, "mid");
    Program *p = program(g, "micro");
    cr_expect(!embed->params.n && !embed->numel && !embed->frozen_numel && !embed->master && !embed->frozen);
    cr_expect(mid->params.n == 2 && !mid->numel && mid->frozen_numel == 512 && !mid->master && !mid->m && mid->frozen);
    cr_expect_eq(param(g, "embed.weight")->unit, unit(g, ""));
    cr_expect_eq(count(p, OP_all_gather, embed), 0);
    cr_expect_eq(count(p, OP_all_gather, mid), 2, "forward and backward");
    for (int i = 0; i < g->units.n; i++) {
        bool trains = g->units.at[i]->numel > 0;
        cr_expect_eq(count(p, OP_reduce_scatter, g->units.at[i]), trains);
        cr_expect_eq(count(p, OP_adam, g->units.at[i]), trains);
        cr_expect_eq(find(p, arena_printf(g->arena, "n%d", i))->kind, trains ? OP_sum_squares : OP_zero_gaps);
    }
    expect_sound(g);
}

Test(shard, ignored_parameters_are_whole) {
    Graph *g = lowered(net("ignored_params = { '*.fixed' }", ADAMW), 4);
    const Param *p = param(g, "a.fixed");
    cr_expect(p->is_buffer && p->unit == unit(g, "a") && !unit(g, "a")->frozen);
    cr_expect_eq(count_states(g, S_BUFFER), 2);
    for (int i = 0; i < g->states.n; i++)
        if (g->states.at[i]->param == p) cr_expect(g->states.at[i]->numel == 12 && !g->states.at[i]->on_host);
    cr_expect_null(find(program(g, "micro"), arena_printf(g->arena, "g%dzf", unit(g, "a")->id)));
    expect_sound(g);
}

/* A part with another dtype follows the unit's policy, also behind a part of ignored parameters. */
Test(shard, parts_behind_ignored_parameters_are_sharded) {
    Graph *g = lowered("local nn, optim = require 'nn', require 'optim'\n"
                       "local m = nn.Linear(4, 4)\n"
                       "m.half = nn.parameter({ 4 }, { dtype = 'bf16' })\n"
                       "function m:forward(x) return nn.linear(x, self.weight, self.bias) * self.half end\n"
                       "nn.fully_shard(m, { ignored_params = { 'bias' } })\n"
                       "return nn.training { model = m, batch = { x = nn.input('fp32', { 2, 4 }) },\n"
                       "  loss = function(m, b) return nn.mean(m(b.x)) end, optimizer = optim.SGD { lr = 0.1 } }\n",
                       4);
    const Unit *weight = param(g, "weight")->unit, *bias = param(g, "bias")->unit, *half = param(g, "half")->unit;
    cr_expect(weight->next == bias && bias->next == half && half->dtype == BF16);
    expect_mesh(weight, 4, 1), expect_mesh(bias, 1, 4), expect_mesh(half, 4, 1);
    expect_sound(g);
}

/* ── sparse tables ───────────────────────────────────────────────────────────────────────────────────────────────── */
/* The table is a part by itself: gathered alone, its gradient exchanged by rows, updated as any other. */
Test(shard, a_sparse_table_exchanges_rows) {
    for (int accumulate = 1; accumulate < 3; accumulate++) {
        char text[1024];
        snprintf(
            text, sizeof text,
            "local nn, optim = require 'nn', require 'optim'\n"
            "local m = nn.module 'Net'\n"
            "m.embed, m.out = nn.Embedding(300, 4, { sparse = true }), nn.Linear(4, 16)\n"
            "function m:forward(t) return self.out(self.embed(t)) end\n"
            "nn.fully_shard(m, { mesh = { replicate = 2 }, mp_policy = { param_dtype = 'fp16', reduce_dtype = 'fp32' } "
            "})\n"
            "return nn.training { model = m, batch = { t = nn.input('int32', { 2, 4 }),\n"
            "  u = nn.input('int32', { 2, 4 }) }, optimizer = optim.AdamW {}, clip_grad_norm = 1, accumulate = %d,\n"
            "  loss = function(m, b) return nn.cross_entropy(m(b.t), b.u) end }\n",
            accumulate);
        Graph *g = lowered(text, 4);
        const Unit *u = param(g, "embed.weight")->unit;
        Program *p = program(g, accumulate > 1 ? "micro_last" : "micro");
        cr_assert(u->sparse && u->params.n == 1 && u != param(g, "out.weight")->unit);
        cr_expect(count(p, OP_reduce_scatter, u) == 0 && count(p, OP_all_reduce, u) == 0 && count(p, OP_adam, u) == 1);
        const Op *rows = find(p, arena_printf(g->arena, "x%d", u->id)),
                 *sum = find(p, arena_printf(g->arena, "r%d", u->id));
        cr_expect(rows->kind == OP_all_gather && op_stream(rows) == REDUCE && rows->all_gather.x->dtype == FP16);
        cr_expect_eq(value_numel(rows->all_gather.y), 4 * 8 * 4);
        cr_expect(sum->kind == OP_coalesce && sum->coalesce.y->dtype == FP32);
        cr_expect_eq(value_numel(sum->coalesce.y), u->numel / 2);
        cr_expect(count(p, OP_embedding_grad, NULL) == 0);
        expect_sound(g);
    }
}

Test(shard, a_frozen_sparse_table_is_as_any_other) {
    Graph *g = lowered(
        "local nn, optim = require 'nn', require 'optim'\n"
        "local m = nn.module 'Net'\n"
        "m.embed, m.out = nn.freeze(nn.Embedding(300, 4, { sparse = true })), nn.Linear(4, 16)\n"
        "function m:forward(t) return self.out(self.embed(t)) end\n"
        "nn.fully_shard(m)\n"
        "return nn.training { model = m, batch = { t = nn.input('int32', { 2, 4 }), u = nn.input('int32', { 2, 4 }) "
        "},\n  optimizer = optim.SGD {}, loss = function(m, b) return nn.cross_entropy(m(b.t), b.u) end }\n",
        2);
    cr_expect(g->units.n == 1 && !g->units.at[0]->sparse && g->units.at[0]->frozen_numel > 0);
    expect_sound(g);
}

/* ── the loss scale ──────────────────────────────────────────────────────────────────────────────────────────────── */
/* Seed, norm and coefficient read the scale; every update and the count read the coefficient's word; the scale changes
 * last, in the step's last program alone. */
Test(shard, a_scaler_governs_the_step) {
    static const char *const policies[] = {"", "offload = { params = true, grads = true, optimizer = true }"};
    char training[512], policy[256];
    for (int option = 0; option < 8; option++) {
        int accumulate = 1 + (option & 1), clips = option >> 1 & 1;
        snprintf(policy, sizeof policy, "mp_policy = { param_dtype = 'fp16' }, %s", policies[option >> 2]);
        snprintf(training, sizeof training,
                 "optimizer = optim.AdamW {}, grad_scaler = optim.GradScaler {}, clip_grad_norm = %d, accumulate = %d",
                 clips, accumulate);
        Graph *g = lowered(net(policy, training), 4);
        cr_assert(g->scaler_state && count_states(g, S_SCALER) == 1);
        const char *names[] = {accumulate > 1 ? "micro_last" : "micro", accumulate > 1 ? "micro_first" : NULL, "micro"};
        for (int i = 0; i < (accumulate > 1 ? 3 : 1); i++) {
            const Program *p = program(g, names[i]);
            int seeds = 0;
            for (int k = 0; k < p->ops.n; k++)
                seeds += p->ops.at[k]->kind == OP_grad_seed && reads(p->ops.at[k], g->scaler_state->value);
            cr_expect_eq(seeds, 1, "%s", names[i]);
            cr_expect_eq(count(p, OP_update_scale, NULL), i == 0);
        }
        const Program *p = program(g, names[0]);
        const Op *clip = find(p, "clip"), *scale = find(p, "scale");
        const Value *coefficient = clip->clip_coefficient.coefficient;
        cr_expect(value_numel(coefficient) == 2 && reads(clip, g->scaler_state->value));
        cr_expect(reads(find(p, "n0"), g->scaler_state->value));
        cr_expect_eq(find(p, "count")->count_step.coefficient, coefficient);
        cr_expect(!find(p, "one") && scale->update_scale.coefficient == coefficient);
        for (int k = 0; k < p->ops.n; k++)
            if (op_is(p->ops.at[k], T_OPTIMIZER)) cr_expect_eq(value_numel(p->ops.at[k]->adam.coefficient), 2);
        expect_sound(g);
    }
}

Test(shard, a_scaler_is_for_fp16_wherever_it_is) {
    static const char *const dtypes[] = {"param_dtype = 'fp16'", "reduce_dtype = 'fp16'",
                                         "grad_dtype = 'fp16', reduce_dtype = 'fp32'", "output_dtype = 'fp16'"};
    for (int i = 0; i < 4; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "local nn, optim = require 'nn', require 'optim'\n"
                 "local m = nn.module 'Net'\n"
                 "m.out = nn.Linear(4, 4)\n"
                 "function m:forward(x) return self.out(x) end\n"
                 "nn.fully_shard(m, { mp_policy = { %s } })\n"
                 "return nn.training { model = m, batch = { x = nn.input('fp32', { 2, 4 }) }, optimizer = optim.SGD {},"
                 "\n  grad_scaler = optim.GradScaler {}, loss = function(m, b) return nn.mean(m(b.x)) end }\n",
                 dtypes[i]);
        cr_expect_not_null(lowered(text, 2)->scaler_state, "%s", dtypes[i]);
    }
}

/* ── metrics, samples ────────────────────────────────────────────────────────────────────────────────────────────── */
/* Slots that a program does not write must not be multiplied by the world again and again. */
Test(shard, metrics_begin_at_zero) {
    char training[256];
    for (int accumulate = 1; accumulate <= 2; accumulate++) {
        snprintf(training, sizeof training, "%s, accumulate = %d", ADAMW, accumulate);
        Graph *g = lowered(net("", training), 2);
        const char *zeroed[] = {accumulate > 1 ? "micro_first" : "micro", "eval"};
        for (int i = 0; i < 2; i++) {
            const Program *p = program(g, zeroed[i]);
            cr_expect_eq(place_of(p, find(p, "m_zero")) < place_of(p, find(p, "m_loss")), true);
            cr_expect_eq(find(p, "m_loss")->store.add, 0);
            cr_expect_eq(find(p, "m_loss")->store.value, p->loss);
        }
        if (accumulate == 1) continue;
        cr_expect(!find(program(g, "micro"), "m_zero") && find(program(g, "micro"), "m_loss")->store.add);
        cr_expect(!find(program(g, "micro_first"), "m_sum") && !find(program(g, "micro"), "m_sum") &&
                  find(program(g, "micro_last"), "m_sum"));
    }
}

Test(shard, a_sample_keeps_one_position) {
    Graph *g = lowered(net("mp_policy = { param_dtype = 'bf16' }", ADAMW), 2);
    const Op *pick = find(program(g, "sample"), "logits");
    cr_expect_eq(pick->kind, OP_pick);
    cr_expect_eq(value_numel(pick->pick.logits), 6 * 33);
    cr_expect_eq(pick->pick.state->state->cls, S_OUTPUT);
    cr_expect_eq(pick->pick.state->state->numel, 33);
    cr_expect_eq(pick->pick.state->dtype, FP32);
    cr_expect(find(program(g, "init"), arena_printf(g->arena, "zero%d", pick->pick.state->state->id)));
    cr_expect_eq(place_of(program(g, "sample"), pick), program(g, "sample")->ops.n - 1);
    Cost cost = op_info[OP_pick].cost(pick);
    cr_expect_float_eq(cost.bytes, 33 * (value_bytes(pick->pick.logits) / 198. + 4), 0);
}

/* What is computed may be nothing but a view of a parameter. */
Test(shard, loss_and_logits_that_are_views_of_parameters) {
    Graph *g = lowered("local nn, optim = require 'nn', require 'optim'\n"
                       "local m = nn.module 'Net'\n"
                       "m.one, m.table = nn.parameter({ 1 }), nn.parameter({ 4, 8 })\n"
                       "function m:forward(t) return self.one end\n"
                       "nn.fully_shard(m)\n"
                       "return nn.training { model = m, batch = { t = nn.input('int32', { 2, 4 }) },\n"
                       "  loss = function(m, b) return nn.reshape(m(b.t), {}) end, optimizer = optim.SGD {},\n"
                       "  sample = { inputs = { t = nn.input('int32', { 1, 4 }), u = nn.input('int32', { 1, 4 }) },\n"
                       "    logits = function(m, b) return nn.reshape(m.table, 1, 4, 8) end } }\n",
                       2);
    cr_expect(g->programs.n == 5 && !g->inputs.at[1]->state, "an input that nothing reads has no bytes");
    expect_sound(g);
}

/* ── offload ─────────────────────────────────────────────────────────────────────────────────────────────────────── */
Test(offload, small_values_travel_once) {
    Graph *g = lowered(net("offload = { optimizer = 'host' }", ADAMW), 2);
    Program *p = program(g, "micro");
    int small = 0;
    for (int i = 0; i < p->ops.n; i++)
        small += op_stream(p->ops.at[i]) == OFFLOAD && value_bytes(p->ops.at[i]->offload.x) <= 8;
    cr_expect_eq(small, 2, "the clip coefficient and Adam's step count, for %d units", g->units.n);
}

/* A streamed update: state up, the update, state and wire shard down; the wire shard never comes up for it. */
static void expect_trip(const Program *p, const Unit *u, bool wire, bool comes_up_once) {
    Arena *a = arena_new();
    const Op *update = find(p, arena_printf(a, "u%d", u->id)), *gathered = find(p, arena_printf(a, "fg%db", u->id));
    const State *states[] = {u->master, u->m, u->v, u->wire_shard};
    static const int operand[] = {SLOT(adam, master), SLOT(adam, m), SLOT(adam, v), SLOT(adam, wire)};
    cr_assert_eq(update->adam.wire != NULL, wire);
    cr_expect_eq(op_stream(update), UPDATE);
    for (int k = 0; k < 3 + wire; k++) {
        const Op *up = find(p, arena_printf(a, k < 3 ? "f_u%d_%d" : "z_u%d_%d", u->id, operand[k])),
                 *down = find(p, arena_printf(a, "o_u%d_%d", u->id, operand[k]));
        if (k == 0 && comes_up_once && gathered) {
            cr_expect_null(up);
            up = gathered;
        }
        cr_assert(up && down);
        cr_expect_eq(up->kind, k < 3 ? OP_fetch : OP_full);
        cr_expect(op_result(up) == update->in[operand[k]] && down->offload.x == op_result(up));
        if (k < 3) cr_expect_eq(up->fetch.x, states[k]->value);
        cr_expect_eq(value_root(down->offload.y), states[k]->value);
        cr_expect(place_of(p, up) < place_of(p, update) && place_of(p, update) < place_of(p, down));
    }
    arena_free(a);
}

Test(offload, state_streams_through_the_device) {
    static const char policy[] =
        "offload = { params = true, optimizer = 'stream' }, mp_policy = { param_dtype = 'bf16' }";
    for (int accumulate = 1; accumulate <= 2; accumulate++) {
        char training[256];
        snprintf(training, sizeof training, "%s, accumulate = %d", ADAMW, accumulate);
        Graph *g = lowered(net(policy, training), 2);
        const Program *p = program(g, accumulate > 1 ? "micro_last" : "micro");
        for (int i = 0; i < g->units.n; i++) expect_trip(p, g->units.at[i], accumulate > 1, accumulate == 1);
        cr_expect_eq(find(p, "cg1b") != NULL, accumulate == 1, "gathers cast the master that came up");
        expect_sound(g);
    }
}

Test(offload, kept_gradients_leave_the_device_before_the_next_unit_is_done) {
    Graph *g = lowered(net("offload = { grads = true }", ADAMW), 2);
    Program *p = program(g, "micro");
    for (int i = 0; i < g->units.n; i++) {
        const Op *reduce = find(p, arena_printf(g->arena, "r%d", i)),
                 *away = find(p, arena_printf(g->arena, "o_grad%d", i));
        const Op *back = find(p, arena_printf(g->arena, "f_u%d_0", i)),
                 *update = find(p, arena_printf(g->arena, "u%d", i));
        cr_assert(reduce && away && back && update);
        cr_expect_eq(place_of(p, away), place_of(p, reduce) + 1);
        cr_expect(away->offload.x == reduce->reduce_scatter.y && back->fetch.x == away->offload.y);
        cr_expect_eq(update->adam.grad, back->fetch.y);
        cr_expect_eq(find(p, arena_printf(g->arena, "n%d", i))->sum_squares.x, reduce->reduce_scatter.y,
                     "the norm is taken on the device");
    }
}

Test(offload, activations_of_a_module_called_twice) {
    char text[8192];
    snprintf(text, sizeof text, "%s", net("", ADAMW));
    char *at = strstr(text, "local policy");
    char tail[4096];
    snprintf(tail, sizeof tail, "%s", at);
    snprintf(
        at, sizeof text - (size_t)(at - text),
        "for _, m in ipairs { m.a, m.b } do\n  nn.checkpoint_wrapper(m, { recompute = false, offload = '*' })\nend\n%s",
        tail);
    Graph *g = lowered(text, 2);
    Program *p = program(g, "micro");
    cr_expect_eq(count(p, OP_offload, NULL), count(p, OP_fetch, NULL));
    cr_expect_geq(count(p, OP_offload, NULL), 9);
    for (int i = 0; i < p->ops.n; i++) {
        const Op *op = p->ops.at[i];
        if (op->kind != OP_fetch) continue;
        const Op *away = op->fetch.x->def;
        cr_expect_eq(away->kind, OP_offload);
        cr_expect_eq(op->phase, BACKWARD);
        for (int j = i; j < p->ops.n; j++)
            cr_expect(op_is(p->ops.at[j], T_VIEW) || !reads(p->ops.at[j], away->offload.x), "%s reads what is away",
                      p->ops.at[j]->id);
    }
    expect_places(p);
    expect_sound(g);
}
