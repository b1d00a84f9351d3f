/* uses: who reads a value, itself and through views, where ops stand, and what is kept up as a pass changes a program.
 * Relies on: compiler/ir, Criterion.
 * Relied on by: make test. */
#include "ir/build.h"
#include "ir/uses.h"

#include <criterion/criterion.h>

static Graph *g;
static Builder *b;
static Value *x, *y, *view, *turned; /* an input, exp(x), y seen as [8], the same as [2,4] */
static Op *neg, *sum;                /* of view, of turned */

static void start(void) {
    g = graph_new(arena_new());
    g->root = NEW(g->arena, Module);
    g->train = NEW(g->arena, Program);
    b = NEW(g->arena, Builder);
    *b = (Builder){.g = g, .p = g->train, .module = g->root, .src = {"model.lua", 41}};
    x = value_new(g, FP32, 2, (int64_t[]){4, 2});
    y = build_one(b, OP_exp, x);
    view = build_reshape(b, y, 1, (int64_t[]){8});
    turned = build_reshape(b, view, 2, (int64_t[]){2, 4});
    neg = BUILD(b, neg, .a = view);
    sum = BUILD(b, add, .a = turned, .b = turned);
    g->train->loss = sum->add.y;
}

static void expect_users(const Uses *u, const Value *v, int n, const Op **ops) {
    const User *user = uses_users(u, v);
    for (int i = 0; i < n; i++, user = user->next) {
        cr_assert(user, "value %d has %d users, not %d", v->id, i, n);
        cr_expect_eq(user->op, ops[i], "user %d of value %d is %s", i, v->id, user->op->id);
    }
    cr_expect(!user, "value %d has more than %d users", v->id, n);
}
#define EXPECT_USERS(u, v, ...)                                                                                        \
    expect_users(u, v, sizeof((const Op *[]){__VA_ARGS__}) / sizeof(Op *), (const Op *[]){__VA_ARGS__})

Test(uses, readers_of_a_value_and_of_its_views, .init = start) {
    Uses *u = uses_new(g, g->train);
    EXPECT_USERS(u, x, y->def);
    EXPECT_USERS(u, y, view->def, neg, sum, sum); /* the view of a view reads the first view alone */
    EXPECT_USERS(u, view, turned->def, neg);
    EXPECT_USERS(u, turned, sum, sum);
    cr_expect(uses_count(u, y) == 1 && uses_through_views(u, y) == 3);
    cr_expect(uses_count(u, view) == 2 && uses_through_views(u, view) == 0);
    cr_expect_eq(uses_only(u, y), view->def);
    cr_expect_null(uses_only(u, view));
    cr_expect_null(uses_only(u, neg->neg.y));
    uses_free(u);
}

Test(uses, a_result_is_used_once_more, .init = start) {
    g->train->logits = turned;
    Uses *u = uses_new(g, g->train);
    cr_expect(uses_is_result(u, turned) && uses_is_result(u, y) && !uses_is_result(u, view) && !uses_is_result(u, x));
    cr_expect(uses_count(u, turned) == 3 && uses_count(u, y) == 2);
    cr_expect_null(uses_only(u, y));
    cr_expect_null(uses_only(u, sum->add.y));
    cr_expect_eq(uses_count(u, sum->add.y), 1);
    uses_free(u);
}

Test(uses, positions, .init = start) {
    Op *outside = op_new_like(g, neg);
    cr_expect_neq(outside->serial, neg->serial);
    Uses *u = uses_new(g, g->train);
    for (int i = 0; i < g->train->ops.n; i++) cr_expect_eq(uses_position(u, g->train->ops.at[i]), i);
    cr_expect_eq(uses_position(u, outside), -1);
    uses_place(u, neg, 7);
    cr_expect_eq(uses_position(u, neg), 7);
    cr_expect_eq(uses_position(u, op_new_like(g, neg)), -1, "made after the index");
    uses_free(u);
}

Test(uses, what_a_pass_changes, .init = start) {
    Uses *u = uses_new(g, g->train);
    uses_remove(u, neg);
    EXPECT_USERS(u, view, turned->def);
    EXPECT_USERS(u, y, view->def, sum, sum);
    uses_drop(u, sum, turned);
    EXPECT_USERS(u, turned, sum);
    cr_expect(uses_count(u, turned) == 1 && uses_through_views(u, y) == 1);
    neg->neg.a = turned;
    uses_add(u, neg);
    cr_expect(uses_count(u, view) == 1 && uses_count(u, turned) == 2 && uses_through_views(u, y) == 2);
    uses_free(u);
}

Test(uses, ops_and_values_younger_than_the_index, .init = start) {
    Uses *u = uses_new(g, g->train);
    int before = g->train->ops.n;
    Value *v = y;
    for (int i = 0; i < 1000; i++) v = build_one(b, OP_tanh, v);
    cr_expect_eq(uses_count(u, v), 0);
    for (int i = before; i < g->train->ops.n; i++) {
        uses_add(u, g->train->ops.at[i]);
        uses_place(u, g->train->ops.at[i], i);
    }
    cr_expect_eq(uses_count(u, y), 2);
    cr_expect_eq(uses_position(u, v->def), g->train->ops.n - 1);
    EXPECT_USERS(u, op_operand(v->def), v->def);
    cr_expect(uses_count(u, v) == 0 && !uses_is_result(u, v));
    uses_free(u);
}
