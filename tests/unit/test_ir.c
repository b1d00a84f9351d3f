/* base and ir: containers, files, diagnostics, the table of ops, shape rules, views, gradient rules' shapes.
 * Relies on: compiler/base, compiler/ir, Criterion. Relied on by: make test. */
#include "ir/foreign.h"
#include "ir/mesh.h"
#include "schema/optimizers.h"
#include "small_graph.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void expect_value(const Value *v, const char *text) {
    cr_expect_str_eq(value_str(g->arena, v), text);
}

/* ── base ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(base, arena_is_zeroed_aligned_and_holds_much) {
    Arena *a = arena_new();
    for (size_t n = 1; n < 300000; n = n * 3 + 1) {
        char *p = arena_alloc(a, n);
        cr_assert_eq((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++) cr_assert_eq(p[i], 0);
        memset(p, 1, n);
    }
    char *large = arena_alloc(a, (size_t)200 << 20);
    large[((size_t)200 << 20) - 1] = 1;
    cr_expect_str_eq(arena_printf(a, "%s-%d", "x", 7), "x-7");
    arena_free(a);
    arena_free(NULL);
}

Test(base, strings_grow) {
    Str s = {.arena = arena_new()}, nothing = {.arena = s.arena};
    str_bytes(&s, nothing.s, nothing.n);
    cr_expect_str_eq(s.s, "");
    for (int i = 0; i < 1000; i++) {
        str_add(&s, "ab");
        str_addf(&s, "%d", i % 10);
    }
    cr_expect_eq(s.n, 3000);
    cr_expect_eq(strlen(s.s), 3000);
    cr_expect(!strncmp(s.s, "ab0ab1ab2", 9));
    arena_free(s.arena);
}

Test(base, map_keeps_order_and_replaces) {
    Arena *a = arena_new();
    Map *m = map_new(a);
    char key[32];
    cr_expect_null(map_get(m, "x"));
    for (intptr_t i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "key%d", (int)i);
        map_put(m, key, (void *)(i + 1));
    }
    map_put(m, "key7", (void *)(intptr_t)99);
    cr_expect_eq(map_len(m), 5000);
    cr_expect_eq((intptr_t)map_get(m, "key4999"), 5000);
    cr_expect_eq((intptr_t)map_get(m, "key7"), 99);
    cr_expect_str_eq(map_key(m, 42), "key42");
    cr_expect_eq((intptr_t)map_value(m, 42), 43);
    cr_expect_null(map_get(m, "key5000"));
    arena_free(a);
}

Test(base, nearest_name) {
    const char *const names[] = {"gelu", "relu", "Linear", "layer_norm", "cross_entropy", "x"};
    cr_expect_str_eq(str_nearest("geul", names, 6), "gelu");
    cr_expect_str_eq(str_nearest("linear", names, 6), "Linear");
    cr_expect_str_eq(str_nearest("layernorm", names, 6), "layer_norm");
    cr_expect_str_eq(str_nearest("crossentropy", names, 6), "cross_entropy");
    cr_expect_null(str_nearest("convolution", names, 6));
    cr_expect_null(str_nearest("y", names, 6));
    char endless[200];
    memset(endless, 'a', sizeof endless - 1);
    endless[199] = 0;
    cr_expect_null(str_nearest(endless, names, 6));
}

static char folder[] = "/tmp/shardc-test-XXXXXX";

static char *in_folder(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

Test(base, files_are_replaced_whole) {
    Arena *a = arena_new();
    size_t n;
    cr_assert_not_null(mkdtemp(folder));
    OutFile o = out_open(a, in_folder("out"));
    fputs("first", o.f);
    cr_expect_neq(access(in_folder("out"), F_OK), 0);
    out_commit(&o);
    cr_expect_str_eq(path_read(a, in_folder("out"), &n), "first");
    cr_expect_eq(n, 5);
    cr_assert(!symlink("out", in_folder("link"))); /* the file is replaced, not the link */
    o = out_open(a, in_folder("link"));
    fputs("second", o.f);
    cr_expect_str_eq(path_read(a, in_folder("out"), NULL), "first");
    out_commit(&o);
    cr_expect_str_eq(path_read(a, in_folder("out"), &n), "second");
    o = out_open(a, "/dev/null");
    out_commit(&o);
    unlink(in_folder("link"));
    unlink(in_folder("out"));
    cr_expect(!rmdir(folder), "something was left behind");
    arena_free(a);
}

static void half_written(void) {
    OutFile o = out_open(g->arena, in_folder("half"));
    fputs("half", o.f);
    fail((Source){"a.lua", 3}, "no %s", "more");
}
static void full_disk(void) {
    OutFile o = out_open(g->arena, "/dev/full");
    fputs("x", o.f);
    out_commit(&o);
}
static void missing_file(void) {
    path_read(g->arena, "/nonexistent/file", NULL);
}
static void endless_file(void) {
    path_read(g->arena, "/tmp", NULL);
}
static void bad_folder(void) {
    out_open(g->arena, "/nonexistent/file");
}
static void folder_out(void) {
    out_open(g->arena, "/tmp");
}
static void usage(void) {
    fail_usage("unknown option %s", "--x");
}
static void nowhere(void) {
    fail(NOWHERE, "hello");
}
static void too_much(void) {
    arena_alloc(g->arena, SIZE_MAX / 2);
}
static void more_than_there_is(void) {
    arena_alloc(g->arena, SIZE_MAX / 5);
}
static void huge_list(void) {
    int cap = INT32_MAX / 2 + 1;
    vec_grow(g->arena, NULL, &cap, sizeof(int));
}
static void huge_file(void) { /* sparse: takes no room */
    char path[] = "/tmp/shardc-huge-XXXXXX";
    int fd = mkstemp(path);
    unlink(path);
    if (fd >= 0 && !ftruncate(fd, (off_t)5 << 30))
        path_read(g->arena, arena_printf(g->arena, "/proc/self/fd/%d", fd), NULL);
}
static void unreadable(void) {
    path_read(g->arena, "/proc/self/mem", NULL);
}
static void a_socket(void) {
    out_open(g->arena, in_folder("socket"));
}
static void a_bug(void) {
    bug((Source){"a.lua", 3}, "two %s", "roots");
}

Test(base, diagnostics) {
    cr_assert_not_null(mkdtemp(folder));
    expect_exit(half_written, 1, "a.lua:3: no more\n");
    cr_expect(!rmdir(folder), "a half-written file was left behind");
    expect_exit(full_disk, 1, "shardc: cannot write /dev/full: No space left on device");
    expect_exit(missing_file, 1, "shardc: cannot read /nonexistent/file: No such file or directory");
    expect_exit(endless_file, 1, "it is a folder");
    expect_exit(bad_folder, 1, "shardc: cannot write /nonexistent/file: No such file or directory");
    expect_exit(folder_out, 1, "it is a folder");
    expect_exit(usage, 2, "shardc: unknown option --x\n");
    expect_exit(nowhere, 1, "shardc: hello\n");
    expect_exit(too_much, 1, "out of memory");
    expect_exit(more_than_there_is, 1, "out of memory");
    expect_exit(huge_list, 1, "a list grew beyond 1073741824 entries");
    expect_exit(huge_file, 1, "it is larger than 1024 MiB; is it the right file?");
    expect_exit(unreadable, 1, "shardc: cannot read /proc/self/mem: Input/output error");
    expect_exit(a_bug, 1, "a.lua:3: internal error: two roots; this is a defect of shardc: please report it");
    cr_assert_not_null(mkdtemp(strcpy(folder, "/tmp/shardc-test-XXXXXX")));
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strcpy(at.sun_path, in_folder("socket"));
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    cr_assert(!bind(s, (struct sockaddr *)&at, sizeof at));
    expect_exit(a_socket, 1, "No such device or address");
    close(s);
    unlink(at.sun_path);
    rmdir(folder);
}

/* ── the table ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(ir, names) {
    Dtype d;
    for (int i = 0; i < N_DTYPES; i++)
        cr_expect(dtype_parse(dtype_name((Dtype)i), &d) && d == (Dtype)i && dtype_size(d) > 0);
    cr_expect(!dtype_parse("float", &d));
    cr_expect(dtype_float(BF16) && !dtype_float(INT32) && !dtype_float(BOOL));
    for (int i = 0; i < N_STREAMS; i++) cr_expect_not_null(stream_name((Stream)i));
    for (int i = 0; i < N_PHASES; i++) cr_expect_not_null(phase_name((Phase)i));
}

Test(ir, table_is_complete) {
    for (int k = 0; k < N_OPS; k++) {
        const OpInfo *info = &op_info[k];
        cr_expect_eq(op_by_name(info->name), (OpKind)k, "%s stands twice", info->name);
        cr_expect(op_slot_count(info->results) <= MAX_IN && op_slot_count(info->operands) <= MAX_IN, "%s", info->name);
        int ints = 0, floats = 0;
        for (const Attribute *a = info->attributes; a->name; a++) *(a->type == A_FLOAT ? &floats : &ints) += a->n;
        cr_expect(ints <= MAX_INTS && floats <= MAX_FLOATS, "%s has %d and %d attributes", info->name, ints, floats);
        cr_expect(*info->notation, "%s does not say what it computes", info->name);
        cr_expect_not_null(info->cost, "%s has no cost", info->name);
        if (k != OP_fused && info->traits & T_POINTWISE) cr_expect_not_null(info->expr, "%s", info->name);
        if (!(info->traits & T_POINTWISE)) cr_expect_null(info->expr, "%s", info->name);
        if (info->traits & T_NO_GRAD) cr_expect_null(info->grad, "%s", info->name);
        if (info->grad) cr_expect_not_null(info->infer, "%s", info->name);
        bool index = false;
        for (const Slot *s = info->operands; s->name; s++) index |= s->flags & INDICES;
        cr_expect(index == !!info->limit && (index || !(info->traits & T_LOOKUP)), "%s", info->name);
        if (info->traits & T_COLLECTIVE) { /* else they abort */
            op_place((OpKind)k, PART_OPERAND, "x");
            op_place((OpKind)k, PART_INT, "comm");
            op_place((OpKind)k, PART_INT, "ranks");
        }
    }
    cr_expect_eq(op_by_name("no such op"), N_OPS);
}

static void not_in_the_row(void) {
    INT_OF(build_one(b, OP_neg, val(FP32, SHAPE(2)))->def, keep_running) = true;
}

Test(ir, fields_by_the_ops_own_row, .init = start) {
    Value *x = val(FP32, SHAPE(4, 8)), *w = val(FP32, SHAPE(8));
    Op *norm = BUILD(b, rms_norm, .x = x, .w = w, .eps = 0.5);
    cr_expect(OPERAND_OF(norm, w) == w && FLOAT_OF(norm, eps) == 0.5 && RESULT_OF(norm, rstd) == norm->rms_norm.rstd);
    Op *sum = BUILD(b, sum, .x = x, .over = 1, .keep = true);
    cr_expect(INT_OF(sum, over) == 1 && INT_OF(sum, keep) && !INT_OF(sum, dtype));
    cr_expect_eq(op_place(OP_split, PART_INT, "sizes"), 2);
    cr_expect_eq(op_place(OP_expand, PART_INT, "shape"), 1);
    expect_exit(not_in_the_row, 1, "neg has no integer keep_running");
}

Test(ir, an_op_turns_into_another, .init = start) {
    Value *x = val(FP32, SHAPE(4)), *z = val(FP32, SHAPE(4));
    Op *join = BUILD(b, concat, .x = {x, z}, .dim = 0);
    Value *y = op_result(join);
    op_turn(join, OP_assemble);
    cr_expect(join->kind == OP_assemble && join->nin == 2 && join->assemble.x[1] == z && join->assemble.y == y);
    Op *scaled = build_scalar(b, OP_mul_scalar, x, 3)->def;
    y = op_result(scaled);
    op_turn(scaled, OP_full);
    cr_expect(!scaled->nin && !op_operand(scaled) && scaled->nout == 1 && scaled->full.y == y && !scaled->full.value);
}

/* ── shape rules ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(ir, pointwise_dtypes, .init = start) {
    Value *f = val(FP32, SHAPE(2, 3)), *h = val(BF16, SHAPE(2, 3)), *e = val(FP16, SHAPE(2, 3)),
          *i = val(INT32, SHAPE(2, 3));
    expect_value(build_two(b, OP_add, f, h), "fp32[2,3]");
    expect_value(build_two(b, OP_add, e, h), "fp32[2,3]");
    expect_value(build_two(b, OP_mul, i, h), "bf16[2,3]");
    expect_value(build_two(b, OP_add, i, i), "int32[2,3]");
    expect_value(build_two(b, OP_lt, f, h), "bool[2,3]");
    expect_value(build_cast(b, f, BF16), "bf16[2,3]");
    cr_expect_eq(build_cast(b, f, FP32), f);
    expect_value(build_scalar(b, OP_mul_scalar, i, 3), "int32[2,3]");
    graph_check(g, "test");
}

Test(ir, views_collapse_onto_the_root, .init = start) {
    Value *x = val(FP32, SHAPE(4, 6, 10));
    Value *t = build_transpose(b, x, (int[]){1, 0, 2});                             /* [6,4,10] */
    Value *s = BUILD(b, slice, .a = t, .dim = 0, .start = 2, .length = 3)->slice.y; /* [3,4,10] from row 2 */
    Value *r = BUILD(b, slice, .a = s, .dim = 2, .start = 4, .length = 5)->slice.y; /* [3,4,5] from column 4 */
    cr_expect_eq(r->base, x);
    cr_expect_eq(r->offset, 2 * 10 + 4);
    cr_expect(r->stride[0] == 10 && r->stride[1] == 60 && r->stride[2] == 1);
    cr_expect(!value_contiguous(r) && value_contiguous(x));
    cr_expect_eq(value_root(r), x);
    Op *pieces = BUILD(b, split, .a = r, .dim = 2, .pieces = 3, .sizes = {1, 2, 2});
    const Value *last = pieces->split.y[2];
    cr_expect_eq(pieces->nout, 3);
    cr_expect_eq(last->offset, 24 + 3);
    expect_value(last, "fp32[3,4,2]");
    Value *wide = build_expand(b, val(FP32, SHAPE(1, 5)), SHAPE(7, 3, 5));
    cr_expect(wide->stride[0] == 0 && wide->stride[1] == 0 && wide->stride[2] == 1);
    cr_expect_eq(build_expand(b, x, SHAPE(4, 6, 10)), x);
    graph_check(g, "test");
}

Test(ir, reshape_is_a_view_where_strides_permit, .init = start) {
    Value *x = val(FP32, SHAPE(4, 6, 10));
    int before = b->p->ops.n;
    Value *y = build_reshape(b, x, SHAPE(24, 2, 5));
    cr_expect(y->base == x && b->p->ops.n == before + 1);
    Value *t = build_transpose(b, x, (int[]){0, 2, 1}); /* [4,10,6], strides 60 1 10 */
    Value *split = build_reshape(b, t, SHAPE(2, 2, 5, 2, 6, 1));
    cr_expect(split->base == x && split->stride[0] == 120 && split->stride[1] == 60 && split->stride[2] == 2 &&
              split->stride[3] == 1 && split->stride[4] == 10);
    before = b->p->ops.n;
    Value *copied = build_reshape(b, t, SHAPE(4, 60));
    cr_expect(b->p->ops.n == before + 2 && b->p->ops.at[before]->kind == OP_copy && copied->base != x);
    Value *one = val(FP32, 0, (int64_t[]){1});
    expect_value(build_reshape(b, one, SHAPE(1, 1)), "fp32[1,1]");
    expect_value(build_reshape(b, val(FP32, SHAPE(1, 1)), 0, (int64_t[]){1}), "fp32[]");
    expect_value(BUILD(b, reshape, .a = x, .dims = 2, .shape = {-1, 10})->reshape.y, "fp32[24,10]");
    Value *wide = build_expand(b, val(FP32, SHAPE(5)), SHAPE(3, 4, 5)); /* strides 0 0 1 */
    cr_expect_eq(build_reshape(b, wide, SHAPE(12, 5))->stride[0], 0);
    cr_expect_eq(build_reshape(b, x, SHAPE(4, 6, 10)), x);
    graph_check(g, "test");
}

Test(ir, sum_to_is_the_inverse_of_expand, .init = start) {
    Value *x = val(FP32, SHAPE(4, 6, 10));
    expect_value(build_sum_to(b, x, SHAPE(10)), "fp32[10]");
    cr_expect_eq(b->p->ops.n, 1); /* a bias: one op, which can store any dtype */
    expect_value(build_sum_to(b, x, SHAPE(4, 1, 10)), "fp32[4,1,10]");
    cr_expect_eq(b->p->ops.n, 2);
    expect_value(build_sum_to(b, x, SHAPE(1, 10)), "fp32[1,10]");
    expect_value(build_sum_to(b, x, 0, (int64_t[]){1}), "fp32[]");
    cr_expect_eq(build_sum_to(b, x, SHAPE(4, 6, 10)), x);
    graph_check(g, "test");
}

Test(ir, infer_again_keeps_the_values, .init = start) {
    Value *x = val(FP32, SHAPE(4, 6)), *w = val(FP32, SHAPE(8, 6));
    Op *mm = BUILD(b, matmul, .a = x, .b = w, .trans_b = true);
    Value *y = mm->matmul.y, *t = build_transpose(b, y, (int[]){1, 0});
    x->dtype = w->dtype = BF16;
    for (int i = 0; i < b->p->ops.n; i++) op_info[b->p->ops.at[i]->kind].infer(g, b->p->ops.at[i]);
    cr_expect_eq(mm->matmul.y, y);
    expect_value(y, "bf16[4,8]");
    expect_value(t, "bf16[8,4]");
    cr_expect(t->base == y && t->stride[0] == 1);
    build_set_dtype(mm, FP32);
    op_info[OP_matmul].infer(g, mm);
    expect_value(y, "fp32[4,8]");
}

Test(ir, ids_follow_the_origin, .init = start) {
    Value *x = val(FP32, SHAPE(4));
    build_one(b, OP_exp, x);
    Op *second = BUILD(b, log, .a = x);
    Builder back = *b;
    build_for(&back, second, "b");
    const char *ids[] = {"e1b0", "given", "e1b1"};
    for (int i = 0; i < 3; i++) {
        back.id = i == 1 ? ids[i] : NULL;
        cr_expect_str_eq(BUILD(&back, neg, .a = x)->id, ids[i]);
    }
    cr_expect_str_eq(BUILD(b, exp, .a = x)->id, "e2", "the trace goes on");
}

Test(ir, costs, .init = start) {
    Value *x = val(BF16, SHAPE(8, 2048, 4096)), *w = val(BF16, SHAPE(14336, 4096));
    Op *mm = BUILD(b, matmul, .a = x, .b = w, .trans_b = true);
    Cost c = op_info[OP_matmul].cost(mm);
    cr_expect_eq(c.flops, 2.0 * 8 * 2048 * 4096 * 14336);
    cr_expect_eq(c.bytes, 2.0 * (8.0 * 2048 * 4096 + 14336.0 * 4096 + 8.0 * 2048 * 14336));
    cr_expect_eq(op_info[OP_matmul].workspace(mm, &(Machine){.threads = 4}), 16 << 20);
    Value *q = val(FP32, SHAPE(2, 64, 8, 16)), *k = val(FP32, SHAPE(2, 64, 2, 16));
    Op *at = BUILD(b, attention, .q = q, .k = k, .v = k, .causal = true, .scale = 0.25);
    cr_expect_eq(op_info[OP_attention].cost(at).flops, 2.0 * 2 * 8 * 64 * 64 * 16);
    int64_t narrow = op_info[OP_attention].workspace(at, &(Machine){.threads = 2});
    cr_expect_eq(narrow % 512, 0);
    cr_expect_eq(op_info[OP_attention].workspace(at, &(Machine){.threads = 2, .wide = true}), 2 * narrow);
    expect_value(at->attention.lse, "fp32[2,8,64]");
    Value *wide = build_expand(b, val(FP32, SHAPE(16)), SHAPE(64, 16));
    Op *add = BUILD(b, add, .a = wide, .b = wide);
    cr_expect_eq(op_info[OP_add].cost(add).bytes, 4.0 * (16 + 16 + 64 * 16)); /* expanded bytes travel once */
}

/* Optimizers name all ops that update parameters; the rows that have a kernel for the host stream have the trait. */
Test(ir, optimizers_fit_their_ops) {
    bool update[N_OPS] = {0}, host[N_OPS] = {0};
#define OP(...)
#define KERNEL OP
#define UNTIMED_KERNEL OP
#define HOST_KERNEL(op, ...) host[OP_##op] = true;
#include "schema/ops.def"
    for (int i = 0; i < SC_OPTIMIZERS; i++) update[op_by_name(sc_optimizers[i].update)] = true;
    for (int k = 0; k < N_OPS; k++) {
        cr_expect_eq(update[k], (op_info[k].traits & T_OPTIMIZER) != 0, "%s: T_OPTIMIZER", op_info[k].name);
        cr_expect_eq(host[k], (op_info[k].traits & T_HOST_OK) != 0, "%s: HOST_KERNEL", op_info[k].name);
    }
    for (const sc_optimizer_info *o = sc_optimizers; o < sc_optimizers + SC_OPTIMIZERS; o++) {
        OpKind k = op_by_name(o->before ? o->before : o->update); /* which has the moments */
        cr_assert(k < N_OPS && op_by_name(o->update) < N_OPS, "%s", o->name);
        for (const Slot *s = op_info[k].operands; s->name; s++) {
            bool moment = (o->moments[0] && !strcmp(s->name, o->moments[0])) ||
                          (o->moments[1] && !strcmp(s->name, o->moments[1]));
            bool other = !strcmp(s->name, "master") || !strcmp(s->name, "wire") || !strcmp(s->name, "largest");
            cr_expect_eq(moment, (s->flags & UPDATED) && !other, "%s: %s", o->name, s->name);
        }
        cr_expect_eq(o->counts_steps, op_find(k, PART_OPERAND, "step") >= 0, "%s", o->name);
        cr_expect(!o->decoupled || op_find(k, PART_INT, "decoupled") >= 0, "%s", o->name);
        cr_expect_eq(sc_optimizer_takes(o, "nesterov"), op_find(k, PART_INT, "nesterov") >= 0, "%s", o->name);
    }
    cr_expect_eq(op_find(OP_matmul, PART_OPERAND, "bias"), SLOT(matmul, bias));
    cr_expect_eq(op_find(OP_concat, PART_OPERAND, "bias"), -1);
    cr_expect_eq(op_find(OP_debug_sleep, PART_INT, "ms"), -1, "it is a float");
}

/* ── gradient rules: each gives each operand its shape and dtype ────────────────────────────────────────────────── */
/* Every operand of floating point has a gradient, but a state and a teacher have none. */
static bool wants_gradient(const Op *op, int operand) {
    const Value *v = op->in[operand];
    if (op->kind == OP_distillation && operand == SLOT(distillation, teacher)) return false;
    return v && dtype_float(v->dtype) && !op_updates(op, operand) && (op->kind != OP_scale || v != op->scale.scaler);
}

/* The first result alone has reached the loss. */
static void try_grad(Op *op) {
    const OpInfo *info = &op_info[op->kind];
    const Value *y = op_result(op);
    OpParts d = {0};
    *d.out = value_new(g, y->dtype, y->dims, y->shape);
    Builder back = *b;
    build_for(&back, op, "b");
    back.origin = op;
    back.phase = BACKWARD;
    info->grad(&back, op, &d);
    for (int i = 0; i < op_slot_count(info->operands); i++) {
        int index;
        const char *name = op_slot_at(info->operands, i, &index)->name;
        cr_expect_eq(d.in[i] != NULL, wants_gradient(op, i), "%s: gradient of %s, %d", info->name, name, index);
        if (!d.in[i] || !op->in[i]) continue;
        cr_expect_str_eq(value_str(g->arena, d.in[i]), value_str(g->arena, op->in[i]), "%s: %s, %d", info->name, name,
                         index);
    }
}

static void try_pointwise(Dtype d) {
    Value *x = val(d, SHAPE(3, 4)), *y = val(FP32, SHAPE(3, 4)), *mask = val(BOOL, SHAPE(3, 4));
    for (int k = 0; k < N_OPS; k++) {
        const OpInfo *info = &op_info[k];
        if (!info->grad || !(info->traits & T_POINTWISE) || k == OP_where || k == OP_cast) continue;
        OpParts parts = {0};
        int floats = 0;
        for (int i = 0; i < op_slot_count(info->operands); i++) parts.in[i] = i ? y : x;
        for (const Attribute *a = info->attributes; a->name; a++, floats++) parts.f[floats] = 2.5 + 0.5 * floats;
        try_grad(build_op(b, (OpKind)k, &parts));
    }
    for (int power = 0; power <= 2; power++) try_grad(BUILD(b, pow_scalar, .a = x, .x = power));
    try_grad(BUILD(b, where, .condition = mask, .a = x, .b = y));
    try_grad(BUILD(b, cast, .a = x, .dtype = FP16));
    try_grad(BUILD(b, mul, .a = mask, .b = x));
}

static void try_views(Dtype d) {
    Value *x = val(d, SHAPE(3, 4, 6));
    Value *t = build_transpose(b, x, (int[]){2, 0, 1});
    try_grad(BUILD(b, transpose, .a = x, .order = {2, 0, 1}));
    try_grad(BUILD(b, reshape, .a = x, .dims = 2, .shape = {12, 6}));
    try_grad(BUILD(b, reshape, .a = t, .dims = 4, .shape = {3, 2, 3, 4}));
    try_grad(BUILD(b, expand, .a = x, .dims = 4, .shape = {5, 3, 4, 6}));
    try_grad(BUILD(b, slice, .a = x, .dim = 1, .start = 1, .length = 2));
    try_grad(BUILD(b, split, .a = x, .dim = 2, .pieces = 2, .sizes = {1, 5}));
    try_grad(BUILD(b, concat, .x = {x, x}, .dim = 1));
    try_grad(BUILD(b, copy, .a = t));
    try_grad(BUILD(b, debug_sleep, .a = t));
    try_grad(BUILD(b, pad_slice, .a = x, .dim = 0, .start = 2, .size = 7));
    for (int keep = 0; keep < 2; keep++)
        for (int over = 1; over < 8; over++) {
            try_grad(BUILD(b, sum, .x = x, .over = over, .keep = keep));
            try_grad(BUILD(b, mean, .x = x, .over = over, .keep = keep));
            try_grad(BUILD(b, max, .x = x, .over = over, .keep = keep));
        }
    try_grad(BUILD(b, sum, .x = x, .over = 3, .dtype = FP32 + 1));
}

static void try_matmuls(Dtype d) {
    for (int t = 0; t < 4; t++) {
        int ta = t & 1, tb = t >> 1;
        Value *a2 = ta ? val(d, SHAPE(5, 3)) : val(d, SHAPE(3, 5)), *w = tb ? val(d, SHAPE(7, 5)) : val(d, SHAPE(5, 7));
        Value *a4 = ta ? val(d, SHAPE(2, 4, 5, 3)) : val(d, SHAPE(2, 4, 3, 5));
        Value *w4 = tb ? val(d, SHAPE(2, 4, 7, 5)) : val(d, SHAPE(2, 4, 5, 7));
        Value *bias = val(d, SHAPE(7));
        try_grad(BUILD(b, matmul, .a = a2, .b = w, .trans_a = ta, .trans_b = tb));
        try_grad(BUILD(b, matmul, .a = a4, .b = w, .bias = bias, .trans_a = ta, .trans_b = tb));
        try_grad(BUILD(b, matmul, .a = a4, .b = w4, .bias = bias, .trans_a = ta, .trans_b = tb, .dtype = FP32 + 1));
    }
}

/* Pieces of a multiple of 8 bytes, and others, which NCCL does not scatter. */
static void try_collectives(Dtype d) {
    if (!b->g->comms.n) mesh_axis(b->g, 4, 1);
    for (int64_t rows = 4; rows <= 16; rows += 12) {
        Value *x = val(d, SHAPE(rows, 3));
        try_grad(BUILD(b, all_gather, .x = x, .ranks = 4));
        if (rows * 3 * dtype_size(d) / 4 % 8 == 0) try_grad(BUILD(b, reduce_scatter, .x = x, .ranks = 4));
        try_grad(BUILD(b, all_to_all, .x = x, .ranks = 4));
        try_grad(BUILD(b, sum_ranks, .x = x, .ranks = 4));
    }
}

static void try_network(Dtype d) {
    Value *x = val(d, SHAPE(2, 8, 6)), *w = val(d, SHAPE(6)), *table = val(d, SHAPE(50, 6)),
          *index = val(INT32, SHAPE(2, 8));
    try_grad(BUILD(b, embedding, .index = index, .w = table));
    try_grad(BUILD(b, layer_norm, .x = x, .w = w, .b = w, .eps = 1e-5));
    try_grad(BUILD(b, layer_norm, .x = x, .w = w, .eps = 1e-5));
    try_grad(BUILD(b, layer_norm, .x = x, .b = w, .eps = 1e-5));
    try_grad(BUILD(b, layer_norm, .x = x, .eps = 1e-5));
    try_grad(BUILD(b, rms_norm, .x = x, .w = w, .eps = 1e-5));
    try_grad(BUILD(b, rms_norm, .x = x, .eps = 1e-5));
    try_grad(BUILD(b, softmax, .x = x));
    try_grad(BUILD(b, scale, .x = x, .scaler = val(FP32, SHAPE(4))));
    try_grad(BUILD(b, dropout, .x = x, .key = 77, .p = 0.1));
    Value *q = val(d, SHAPE(2, 8, 4, 6)), *k = val(d, SHAPE(2, 8, 2, 6));
    try_grad(BUILD(b, attention, .q = q, .k = k, .v = k, .documents = index, .causal = true, .key = 5, .scale = 0.4,
                   .dropout = 0.1));
    try_grad(BUILD(b, attention, .q = q, .k = k, .v = val(d, SHAPE(2, 8, 2, 3)), .scale = 0.4));
    Value *sinks = val(d == FP64 ? FP64 : FP32, SHAPE(4));
    try_grad(BUILD(b, attention, .q = q, .k = k, .v = k, .bias = val(d, SHAPE(1, 4, 8, 1)), .scale = 0.4));
    try_grad(BUILD(b, attention, .q = q, .k = k, .v = k, .sinks = sinks, .before = 3, .scale = 0.4, .softcap = 2));
    try_grad(BUILD(b, rope, .x = q, .positions = index, .theta = 10000));
    try_grad(BUILD(b, rope, .x = q, .theta = 10000));
    Value *logits = val(d, SHAPE(16, 50)), *targets = val(INT32, SHAPE(16));
    try_grad(BUILD(b, cross_entropy, .logits = logits, .targets = targets, .ignore = -100));
    try_grad(BUILD(b, distillation, .logits = logits, .teacher = val(d, SHAPE(16, 50)), .targets = targets, .heat = 2,
                   .hard = 0.5));
    try_grad(BUILD(b, distillation, .logits = logits, .teacher = val(d, SHAPE(16, 50)), .heat = 1));
    Value *c = val(d, SHAPE(8)), *running = val(FP32, SHAPE(8));
    try_grad(BUILD(b, batch_norm, .x = x, .w = c, .b = c, .running_mean = running, .running_var = running,
                   .training = true, .eps = 1e-5, .momentum = 0.1));
}

static void try_order(Dtype d) {
    Value *x = val(d, SHAPE(2, 8, 6)), *index = val(INT32, SHAPE(2, 3, 6));
    try_grad(BUILD(b, sort, .x = x, .descending = true));
    try_grad(BUILD(b, topk, .x = x, .k = 2));
    try_grad(BUILD(b, gather, .x = x, .index = index, .dim = 1));
    try_grad(BUILD(b, scatter_add, .source = val(d, SHAPE(2, 3, 6)), .index = index, .dim = 1, .size = 9));
    try_grad(BUILD(b, embedding_grad, .index = val(INT32, SHAPE(2, 8)), .g = x, .rows = 50));
    for (int reverse = 0; reverse < 2; reverse++) {
        try_grad(BUILD(b, scan, .x = x, .reverse = reverse));
        try_grad(BUILD(b, scan, .x = x, .a = val(d, SHAPE(2, 8, 6)), .reverse = reverse));
        try_grad(BUILD(b, scan, .x = val(d, SHAPE(4, 1)), .a = val(d, SHAPE(4, 1)), .reverse = reverse));
    }
    try_grad(BUILD(b, flip, .a = x, .dim = 1));
}

/* Two results, of which one gets a gradient; the index gets none. */
static void try_custom(Dtype d) {
    static Extension twice = {.part = {"twice", "twice_grad"}};
    static const int64_t results[] = {-1, 2, 2, 8, INT32, 1, 3};
    Op *op = BUILD(b, custom, .x = {val(INT32, SHAPE(2, 8)), val(d, SHAPE(2, 8)), val(FP32, SHAPE(4))});
    op->extension = &twice;
    op->table = results;
    op->ntable = 7;
    op_info[OP_custom].infer(g, op);
    cr_expect_eq(op->nout, 2);
    try_grad(op);
}

Test(ir, gradients_have_the_operands_types, .init = start) {
    static const Dtype dtypes[] = {FP32, BF16, FP16, FP64};
    for (int i = 0; i < 4; i++) {
        try_pointwise(dtypes[i]);
        try_views(dtypes[i]);
        try_matmuls(dtypes[i]);
        try_network(dtypes[i]);
        try_order(dtypes[i]);
        try_collectives(dtypes[i]);
        try_custom(dtypes[i]);
    }
    for (int i = 0; i < b->p->ops.n; i++) {
        const Op *op = b->p->ops.at[i];
        Cost c = op_info[op->kind].cost(op);
        cr_expect(c.flops >= 0 && c.bytes >= 0, "%s", op_info[op->kind].name);
    }
    graph_check(g, "test");
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    program_dump(f, g, b->p);
    fclose(f);
    cr_expect_not_null(strstr(text, "= matmul("));
    free(text);
}

/* ── diagnostics of the rules ─────────────────────────────────────────────────────────────────────────────────── */
static Value *param(const char *path, Dtype d, int dims, const int64_t *shape) {
    Param *p = NEW(g->arena, Param);
    *p = (Param){.split = 1, .path = path, .src = {"llama3.lua", 22}, .dtype = d, .dims = dims};
    for (int i = 0; i < dims; i++) p->shape[i] = shape[i];
    p->value = val(d, dims, shape);
    p->value->param = p;
    return p->value;
}

static void linear_mismatch(void) {
    Module up = {.path = "layers.0.mlp.up", .kind = "Linear", .made = {"llama3.lua", 22}, .parent = g->root};
    b->module = &up;
    b->src = (Source){"llama3.lua", 41};
    BUILD(b, matmul, .a = val(BF16, SHAPE(8, 2048, 4096)), .b = param("w", BF16, SHAPE(14336, 5120)), .trans_b = true);
}
static void param_mismatch(void) {
    Module block = {.path = "layers.0", .kind = "Block", .made = {"llama3.lua", 60}, .parent = g->root};
    b->module = &block;
    BUILD(b, matmul, .a = val(FP32, SHAPE(8, 16)), .b = param("layers.0.w", FP32, SHAPE(17, 4)));
}
#define SITUATION(name, ...)                                                                                           \
    static void name(void) {                                                                                           \
        __VA_ARGS__;                                                                                                   \
    }
SITUATION(left_transposed,
          BUILD(b, matmul, .a = val(FP32, SHAPE(2, 8, 16)), .b = val(FP32, SHAPE(2, 9, 4)), .trans_a = true))
SITUATION(matmul_vector, build_two(b, OP_matmul, val(FP32, SHAPE(8)), val(FP32, SHAPE(8, 4))))
SITUATION(matmul_lead, build_two(b, OP_matmul, val(FP32, SHAPE(3, 8, 4)), val(FP32, SHAPE(2, 4, 5))))
SITUATION(matmul_dims, build_two(b, OP_matmul, val(FP32, SHAPE(8, 4)), val(FP32, SHAPE(2, 4, 5))))
SITUATION(matmul_dtype, build_two(b, OP_matmul, val(FP32, SHAPE(8, 4)), val(BF16, SHAPE(4, 5))))
SITUATION(matmul_bias,
          BUILD(b, matmul, .a = val(FP32, SHAPE(8, 4)), .b = val(FP32, SHAPE(4, 5)), .bias = val(FP32, SHAPE(4))))
SITUATION(matmul_bias_dtype,
          BUILD(b, matmul, .a = val(FP32, SHAPE(8, 4)), .b = val(FP32, SHAPE(4, 5)), .bias = val(BF16, SHAPE(5))))
SITUATION(matmul_int, build_two(b, OP_matmul, val(INT32, SHAPE(8, 4)), val(INT32, SHAPE(4, 5))))
SITUATION(add_shapes, build_two(b, OP_add, val(FP32, SHAPE(4, 8)), val(FP32, SHAPE(4, 9))))
SITUATION(add_dims, build_two(b, OP_add, val(FP32, SHAPE(4, 8)), val(FP32, SHAPE(8))))
SITUATION(add_masks, build_two(b, OP_add, val(BOOL, SHAPE(4)), val(BOOL, SHAPE(4))))
SITUATION(exp_int, build_one(b, OP_exp, val(INT32, SHAPE(4))))
SITUATION(fp8, build_one(b, OP_neg, val(FP8_E4M3, SHAPE(4))))
SITUATION(cast_fp8, build_cast(b, val(FP32, SHAPE(4)), FP8_E5M2))
SITUATION(cast_unknown, BUILD(b, cast, .a = val(FP32, SHAPE(4)), .dtype = 77))
SITUATION(half_int, build_scalar(b, OP_mul_scalar, val(INT32, SHAPE(4)), 0.5))
SITUATION(where_float, Value *x = val(FP32, SHAPE(4)); BUILD(b, where, .condition = x, .a = x, .b = x))
SITUATION(reshape_size, build_reshape(b, val(FP32, SHAPE(2, 3)), SHAPE(4, 2)))
SITUATION(reshape_open, BUILD(b, reshape, .a = val(FP32, SHAPE(2, 3)), .dims = 2, .shape = {-1, 4}))
SITUATION(reshape_zero, build_reshape(b, val(FP32, SHAPE(2, 3)), SHAPE(0, 6)))
SITUATION(reshape_dims, build_reshape(b, val(FP32, SHAPE(2, 3)), SHAPE(1, 1, 1, 1, 1, 2, 3)))
SITUATION(reshape_many, BUILD(b, reshape, .a = val(FP32, SHAPE(2, 3)), .dims = 7))
SITUATION(reshape_strided, Value *t = build_transpose(b, val(FP32, SHAPE(2, 3)), (int[]){1, 0});
          BUILD(b, reshape, .a = t, .dims = 1, .shape = {6}))
SITUATION(transpose_twice, build_transpose(b, val(FP32, SHAPE(2, 3)), (int[]){1, 1}))
SITUATION(expand_size, build_expand(b, val(FP32, SHAPE(2, 3)), SHAPE(2, 4)))
SITUATION(expand_fewer, build_expand(b, val(FP32, SHAPE(2, 3)), SHAPE(3)))
SITUATION(expand_many, BUILD(b, expand, .a = val(FP32, SHAPE(2, 3)), .dims = 8))
SITUATION(slice_dim, BUILD(b, slice, .a = val(FP32, SHAPE(2, 3)), .dim = 2, .length = 1))
SITUATION(slice_range, BUILD(b, slice, .a = val(FP32, SHAPE(2, 3)), .dim = 1, .start = 2, .length = 2))
SITUATION(split_sum, BUILD(b, split, .a = val(FP32, SHAPE(2, 3)), .dim = 1, .pieces = 2, .sizes = {1, 1}))
SITUATION(split_zero, BUILD(b, split, .a = val(FP32, SHAPE(2, 3)), .dim = 1, .pieces = 2, .sizes = {0, 3}))
SITUATION(split_many, BUILD(b, split, .a = val(FP32, SHAPE(2, 30)), .dim = 1, .pieces = 11))
SITUATION(concat_shape, BUILD(b, concat, .x = {val(FP32, SHAPE(2, 3)), val(FP32, SHAPE(3, 3))}, .dim = 1))
SITUATION(pad_outside, BUILD(b, pad_slice, .a = val(FP32, SHAPE(2, 3)), .dim = 1, .start = 2, .size = 4))
SITUATION(full_dims, BUILD(b, full, .dtype = FP32, .dims = 7))
SITUATION(full_zero, BUILD(b, full, .dtype = FP32, .dims = 1, .shape = {0}))
SITUATION(full_fp8, BUILD(b, full, .dtype = FP8_E4M3, .dims = 1, .shape = {1}))
SITUATION(arange_none, BUILD(b, arange, .dtype = INT32, .n = 0))
SITUATION(sum_dims, BUILD(b, sum, .x = val(FP32, SHAPE(2, 3)), .over = 4))
SITUATION(sum_mask, BUILD(b, sum, .x = val(BOOL, SHAPE(2, 3)), .over = 1))
SITUATION(mean_int, BUILD(b, mean, .x = val(INT32, SHAPE(2, 3)), .over = 1))
SITUATION(embedding_index, BUILD(b, embedding, .index = val(FP32, SHAPE(2)), .w = val(FP32, SHAPE(9, 3))))
SITUATION(embedding_table, BUILD(b, embedding, .index = val(INT32, SHAPE(2)), .w = val(FP32, SHAPE(9))))
SITUATION(embedding_dims,
          BUILD(b, embedding, .index = val(INT32, SHAPE(1, 1, 1, 1, 1, 1)), .w = val(FP32, SHAPE(9, 3))))
SITUATION(embedding_grad, BUILD(b, embedding_grad, .index = val(INT32, SHAPE(2)), .g = val(FP32, SHAPE(9)), .rows = 9))
SITUATION(norm_weight, BUILD(b, rms_norm, .x = val(FP32, SHAPE(2, 3)), .w = val(FP32, SHAPE(4))))
SITUATION(norm_dtype, BUILD(b, rms_norm, .x = val(BF16, SHAPE(2, 3)), .w = val(FP32, SHAPE(3))))
SITUATION(norm_scalar, BUILD(b, rms_norm, .x = val(FP32, 0, (int64_t[]){1})))
SITUATION(norm_eps, BUILD(b, rms_norm, .x = val(FP32, SHAPE(2, 3)), .eps = -1))
SITUATION(dropout_p, BUILD(b, dropout, .x = val(FP32, SHAPE(2, 3)), .p = 1))
SITUATION(loss_shapes, BUILD(b, cross_entropy, .logits = val(FP32, SHAPE(2, 3)), .targets = val(INT32, SHAPE(3))))
SITUATION(loss_total, BUILD(b, cross_entropy, .logits = val(FP32, SHAPE(2, 3)), .targets = val(INT32, SHAPE(2)),
                            .total = val(FP32, SHAPE(2))))
SITUATION(loss_targets, BUILD(b, cross_entropy, .logits = val(FP32, SHAPE(2, 3)), .targets = val(FP32, SHAPE(2))))
SITUATION(teacher_shapes,
          BUILD(b, distillation, .logits = val(FP32, SHAPE(2, 3)), .teacher = val(FP32, SHAPE(2, 4)), .heat = 1))
SITUATION(teacher_dtype,
          BUILD(b, distillation, .logits = val(FP32, SHAPE(2, 3)), .teacher = val(BF16, SHAPE(2, 3)), .heat = 1))
SITUATION(teacher_targets, BUILD(b, distillation, .logits = val(FP32, SHAPE(2, 3)), .teacher = val(FP32, SHAPE(2, 3)),
                                 .targets = val(INT32, SHAPE(3)), .heat = 1))
SITUATION(teacher_total, BUILD(b, distillation, .logits = val(FP32, SHAPE(2, 3)), .teacher = val(FP32, SHAPE(2, 3)),
                               .total = val(FP32, SHAPE(2)), .heat = 1))
SITUATION(rope_dims, BUILD(b, rope, .x = val(FP32, SHAPE(2, 3)), .theta = 1e4))
SITUATION(rope_odd, BUILD(b, rope, .x = val(FP32, SHAPE(2, 3, 4, 5)), .theta = 1e4))
SITUATION(rope_wide, BUILD(b, rope, .x = val(FP32, SHAPE(2, 3, 4, 6)), .width = 8, .theta = 1e4))
static const float frequencies[] = {1, 0.5f, 0, 2};
SITUATION(rope_list,
          BUILD(b, rope, .x = val(FP32, SHAPE(2, 3, 4, 6)), .frequencies = graph_numbers(b->g, frequencies, 2)))
SITUATION(rope_row, BUILD(b, rope, .x = val(FP32, SHAPE(2, 3, 4, 4)), .positions = val(INT32, SHAPE(2, 2, 3)),
                          .frequencies = graph_numbers(b->g, frequencies, 4)))
SITUATION(rope_rows, BUILD(b, rope, .x = val(FP32, SHAPE(2, 3, 4, 4)), .positions = val(INT32, SHAPE(3, 3, 2)),
                           .frequencies = graph_numbers(b->g, frequencies, 4)))
SITUATION(rope_positions,
          BUILD(b, rope, .x = val(FP32, SHAPE(2, 3, 4, 6)), .positions = val(INT32, SHAPE(3)), .theta = 1e4))
SITUATION(rope_heads, BUILD(b, rope, .x = val(FP32, SHAPE(2, 3, 4, 6)), .heads = 5, .theta = 1e4))
SITUATION(rope_theta, BUILD(b, rope, .x = val(FP32, SHAPE(2, 3, 4, 6)), .theta = 0))
static void attend(int b0, int s, int d, Dtype dk, int t, int hk, int causal, double p) {
    Value *q = val(FP32, SHAPE(2, 8, 4, 6)), *k = val(dk, SHAPE(b0, t, hk, d)), *v = val(dk, SHAPE(b0, s, hk, d));
    BUILD(b, attention, .q = q, .k = k, .v = v, .causal = causal, .scale = 1, .dropout = p);
}
SITUATION(attention_dims, Value *q = val(FP32, SHAPE(2, 8)); BUILD(b, attention, .q = q, .k = q, .v = q))
SITUATION(attention_kv, attend(2, 8, 6, FP32, 9, 4, 0, 0))
SITUATION(attention_dtype, attend(2, 8, 6, BF16, 8, 4, 0, 0))
SITUATION(attention_batch, attend(3, 8, 6, FP32, 8, 4, 0, 0))
SITUATION(attention_size, attend(2, 8, 5, FP32, 8, 4, 0, 0))
SITUATION(attention_heads, attend(2, 8, 6, FP32, 8, 3, 0, 0))
SITUATION(attention_p, attend(2, 8, 6, FP32, 8, 4, 0, 1.5))
static void cap_and_window(double softcap, int before, int after, int sinks) {
    Value *q = val(FP32, SHAPE(2, 8, 4, 6)), *s = sinks ? val(FP32, SHAPE(sinks)) : NULL;
    BUILD(b, attention, .q = q, .k = q, .v = q, .sinks = s, .scale = 1, .softcap = softcap, .before = before,
          .after = after);
}
SITUATION(attention_softcap, cap_and_window(-1, 0, 0, 0))
SITUATION(attention_window, cap_and_window(0, -2, 0, 0))
SITUATION(attention_sinks, cap_and_window(0, 0, 0, 5))
SITUATION(attention_bias, Value *q = val(FP32, SHAPE(2, 8, 4, 6)), *k = val(FP32, SHAPE(2, 9, 4, 6));
          BUILD(b, attention, .q = q, .k = k, .v = k, .bias = val(FP32, SHAPE(2, 8, 4, 9)), .scale = 1))
static void documents(int t, int rows) {
    Value *q = val(FP32, SHAPE(2, 8, 4, 6)), *k = val(FP32, SHAPE(2, t, 4, 6)), *d = val(INT32, SHAPE(2, rows));
    BUILD(b, attention, .q = q, .k = k, .v = k, .documents = d, .scale = 1);
}
SITUATION(documents_shape, documents(8, 7))
SITUATION(documents_cross, documents(9, 8))
static void normalise(int channels, Dtype running, int rows) {
    Value *x = val(FP32, SHAPE(rows, 4)), *w = val(FP32, SHAPE(4)), *r = val(running, SHAPE(channels));
    BUILD(b, batch_norm, .x = x, .w = w, .b = w, .running_mean = r, .running_var = r, .training = true, .eps = 1e-5,
          .momentum = 0.1);
}
SITUATION(batch_norm_running, normalise(5, FP32, 9))
SITUATION(batch_norm_single, normalise(4, FP32, 1))
SITUATION(batch_norm_dims, Value *w = val(FP32, SHAPE(4));
          BUILD(b, batch_norm, .x = w, .w = w, .b = w, .running_mean = w, .running_var = w, .training = true))
SITUATION(sort_masks, BUILD(b, sort, .x = val(BOOL, SHAPE(4))))
SITUATION(sort_scalar, BUILD(b, sort, .x = val(FP32, 0, (int64_t[]){1})))
SITUATION(topk_most, BUILD(b, topk, .x = val(FP32, SHAPE(4000)), .k = 1025))
SITUATION(gather_fp8, BUILD(b, gather, .x = val(FP8_E4M3, SHAPE(4)), .index = val(INT32, SHAPE(2))))
SITUATION(gather_index, BUILD(b, gather, .x = val(FP32, SHAPE(4)), .index = val(INT64, SHAPE(2))))
SITUATION(gather_sizes, BUILD(b, gather, .x = val(FP32, SHAPE(4, 3)), .index = val(INT32, SHAPE(4, 2)), .dim = 0))
SITUATION(scatter_masks, BUILD(b, scatter_add, .source = val(BOOL, SHAPE(4)), .index = val(INT32, SHAPE(4)), .size = 9))
SITUATION(scatter_many, BUILD(b, scatter_add, .source = val(FP32, SHAPE(4)), .index = val(INT32, SHAPE(5)), .size = 9))
SITUATION(scatter_size, BUILD(b, scatter_add, .source = val(FP32, SHAPE(4)), .index = val(INT32, SHAPE(4)), .size = 0))
SITUATION(search_rows, BUILD(b, searchsorted, .sorted = val(FP32, SHAPE(2, 9)), .x = val(FP32, SHAPE(3, 4))))
SITUATION(search_dtypes, BUILD(b, searchsorted, .sorted = val(FP32, SHAPE(9)), .x = val(INT32, SHAPE(3, 4))))
SITUATION(scan_factor, BUILD(b, scan, .x = val(FP32, SHAPE(2, 3)), .a = val(FP32, SHAPE(3))))
SITUATION(scan_integers, BUILD(b, scan, .x = val(INT32, SHAPE(3)), .a = val(INT32, SHAPE(3))))
SITUATION(route_groups, BUILD(b, route, .index = val(INT32, SHAPE(2, 3)), .groups = 5000))
SITUATION(dispatch_places, BUILD(b, dispatch, .x = val(FP32, SHAPE(4, 3)), .slots = val(INT32, SHAPE(8)),
                                 .places = val(INT32, SHAPE(5, 2))))
SITUATION(dispatch_slots, BUILD(b, dispatch, .x = val(FP32, SHAPE(4, 3)), .slots = val(INT32, SHAPE(4, 2)),
                                .places = val(INT32, SHAPE(4, 2))))
SITUATION(dispatch_weights, BUILD(b, dispatch, .x = val(FP32, SHAPE(4, 3)), .slots = val(INT32, SHAPE(8)),
                                  .places = val(INT32, SHAPE(4, 2)), .weights = val(FP32, SHAPE(4))))
SITUATION(combine_slots, BUILD(b, combine, .x = val(FP32, SHAPE(9, 3)), .slots = val(INT32, SHAPE(8)),
                               .places = val(INT32, SHAPE(4, 2))))
SITUATION(grouped_dtype, BUILD(b, grouped_matmul, .a = val(FP32, SHAPE(4, 3)), .b = val(BF16, SHAPE(2, 3, 5)),
                               .counts = val(INT32, SHAPE(2))))
SITUATION(grouped_inner, BUILD(b, grouped_matmul, .a = val(FP32, SHAPE(4, 3)), .b = val(FP32, SHAPE(2, 4, 5)),
                               .counts = val(INT32, SHAPE(2))))
SITUATION(grouped_counts, BUILD(b, grouped_matmul, .a = val(FP32, SHAPE(4, 3)), .b = val(FP32, SHAPE(2, 3, 5)),
                                .counts = val(INT32, SHAPE(3))))
SITUATION(grouped_bias, BUILD(b, grouped_matmul, .a = val(FP32, SHAPE(4, 3)), .b = val(FP32, SHAPE(2, 3, 5)),
                              .counts = val(INT32, SHAPE(2)), .bias = val(FP32, SHAPE(5))))
SITUATION(grouped_bias_dtype, BUILD(b, grouped_matmul, .a = val(FP32, SHAPE(4, 3)), .b = val(FP32, SHAPE(2, 3, 5)),
                                    .counts = val(INT32, SHAPE(2)), .bias = val(BF16, SHAPE(2, 5))))
SITUATION(flip_dim, BUILD(b, flip, .a = val(FP32, SHAPE(2, 3)), .dim = 2))
SITUATION(operands, build_one(b, OP_add, val(FP32, SHAPE(4))))
SITUATION(not_wide, build_set_dtype(BUILD(b, neg, .a = val(FP32, SHAPE(4))), BF16))

Test(ir, rules_say_what_is_wrong) {
    static const struct {
        void (*body)(void);
        const char *text;
    } cases[] = {
        {linear_mismatch,
         "llama3.lua:41: matmul: x bf16[8,2048,4096] · Wᵀ with W bf16[14336,5120]: 4096 ≠ 5120\n"
         "  in layers.0.mlp.up = nn.Linear(5120, 14336), made at llama3.lua:22; write nn.Linear(4096, 14336)\n"},
        {param_mismatch,
         "model.lua:41: matmul: x fp32[8,16] · W fp32[17,4]: 16 ≠ 17; the inner sizes must be equal: transpose or "
         "reshape one of them\n  parameter fp32[17,4] is layers.0.w, made at llama3.lua:22\n"
         "  in layers.0 = Block, made at llama3.lua:60\n"},
        {left_transposed, "matmul: xᵀ · y with x fp32[2,8,16] and y fp32[2,9,4]: 8 ≠ 9"},
        {matmul_vector, "both need at least 2 dims"},
        {matmul_lead, "3 ≠ 2 in dim 0; leading sizes must be equal"},
        {matmul_dims, "2 dims ≠ 3 dims"},
        {matmul_dtype, "fp32 ≠ bf16; nn.cast(a, b) gives one the dtype of the other"},
        {matmul_bias, "the bias must have shape [5]"},
        {matmul_bias_dtype, "+ bias bf16[5]: fp32 ≠ bf16"},
        {matmul_int, "x int32[8,4] must be floating point"},
        {add_shapes, "add: a fp32[4,8] and b fp32[4,9]: 8 ≠ 9 in dim 1"},
        {add_dims, "2 dims ≠ 1 dims"},
        {add_masks, "is a mask"},
        {exp_int, "a int32[4] must be floating point"},
        {fp8, "nothing is computed in fp8 yet"},
        {cast_fp8, "fp8 is not supported in casts yet"},
        {cast_unknown, "no dtype number 77"},
        {half_int, "takes whole numbers"},
        {where_float, "must be bool; compare it: nn.ne(condition, 0)"},
        {reshape_size, "reshape: x fp32[2,3] to [4,2]: 6 elements ≠ 8"},
        {reshape_open, "6 elements ≠ 4"},
        {reshape_zero, "0 is no size"},
        {reshape_dims, "7 dims, at most 6"},
        {reshape_many, "to 7 dims: at most 6"},
        {reshape_strided, "its strides allow no view"},
        {transpose_twice, "x fp32[2,3] by [1,1]: not a permutation"},
        {expand_size, "dim 1 is 3, and must be 1 or 4"},
        {expand_fewer, "more dims than the result"},
        {expand_many, "to 8 dims: at most 6"},
        {slice_dim, "has no dim 2; dims are 0 to 1"},
        {slice_range, "2 elements from 2 of dim 1, which has 3"},
        {split_sum, "pieces of [1,1] add up to 2 ≠ 3"},
        {split_zero, "piece 0 of dim 1 has 0 elements"},
        {split_many, "into 11 pieces"},
        {concat_shape, "piece 0 is fp32[2,3], piece 1 fp32[3,3]"},
        {pad_outside, "does not lie within 4 elements"},
        {full_dims, "7 dims: at most 6"},
        {full_zero, "[0]: sizes must be positive"},
        {full_fp8, "cannot make values of dtype fp8_e4m3"},
        {arange_none, "0 elements: at least one"},
        {sum_dims, "reduced dims must be among 0 to 1"},
        {sum_mask, "bool[2,3] cannot be reduced as it is"},
        {mean_int, "x int32[2,3] must be floating point"},
        {embedding_index, "the index fp32[2] must be int32"},
        {embedding_table, "W fp32[9] must have 2 dims"},
        {embedding_dims, "has too many dims: at most 5"},
        {embedding_grad, "index int32[2] with gradient fp32[9]"},
        {norm_weight, "rms_norm: x fp32[2,3] with weight fp32[4]: the weight must have shape [3]"},
        {norm_dtype, "x bf16[2,3] and weight fp32[3] must have one dtype: bf16 ≠ fp32"},
        {norm_scalar, "is a scalar"},
        {norm_eps, "eps -1"},
        {dropout_p, "p = 1: it must be at least 0 and below 1"},
        {loss_shapes, "logits fp32[2,3] with targets int32[3]: they must be [N,V] and [N]"},
        {loss_total, "a total fp32[2]: it must be one number, floating point"},
        {loss_targets, "the targets fp32[2] must be int32"},
        {teacher_shapes, "logits fp32[2,3] with a teacher's fp32[2,4]: both must be [N,V] and of one dtype"},
        {teacher_dtype, "logits fp32[2,3] with a teacher's bf16[2,3]: both must be [N,V] and of one dtype"},
        {teacher_targets, "logits fp32[2,3] with targets int32[3]: they must be [N,V] and [N]"},
        {teacher_total, "a total fp32[2]: it must be one number, floating point"},
        {rope_dims, "must have 4 dims"},
        {rope_odd, "the width 5 that turns must be even, and at most the head size 5"},
        {rope_wide, "the width 8 that turns must be even, and at most the head size 6"},
        {rope_list, "a list of 2 frequencies for 3 pairs"},
        {rope_row, "positions int32[2,2,3] have no row 2"},
        {rope_rows, "positions int32[3,3,2] with x fp32[2,3,4,4]: they must be int32[sections,2,3]"},
        {rope_positions, "positions int32[3] with x fp32[2,3,4,6]: they must be int32[2,3]"},
        {rope_heads, "x fp32[2,3,4,6] has no 5 heads"},
        {rope_theta, "theta 0: it must be positive"},
        {attention_dims, "each must have 4 dims"},
        {attention_kv, "k and v must have one shape"},
        {attention_dtype, "they must have one dtype"},
        {attention_batch, "batches 2 ≠ 3"},
        {attention_size, "head sizes of q and k 6 ≠ 5"},
        {attention_heads, "4 query heads are no multiple of 3 key heads"},
        {attention_p, "dropout 1.5"},
        {attention_softcap, "softcap -1: it must be positive"},
        {attention_window, "a window must not be negative"},
        {attention_sinks, "there must be 4, a score a head, in fp32"},
        {attention_bias, "must be [2,4,8,9], each 1 where it is one for all"},
        {documents_shape, "they must be int32[2,8]"},
        {documents_cross, "as many queries as keys: 8 ≠ 9"},
        {batch_norm_running, "with running mean fp32[5]: it must be fp32[4]"},
        {batch_norm_single, "one value a channel"},
        {batch_norm_dims, "at least 2 dims"},
        {sort_masks, "sort: x bool[4] must be floating point"},
        {sort_scalar, "x fp32[] is a single number and has no dimension"},
        {topk_most, "with k = 1025: the dimension has 4000 elements, so k must be 1 to 1024"},
        {gather_fp8, "nothing is computed in fp8 yet"},
        {gather_index, "the index int64[2] must be int32"},
        {gather_sizes, "x fp32[4,3] with index int32[4,2] along dim 0: all sizes but that one's must be equal"},
        {scatter_masks, "the source bool[4] must be floating point"},
        {scatter_many, "the source fp32[4] with index int32[5]: they must have one shape"},
        {scatter_size, "to 0 elements of dim 0: at least one is needed"},
        {search_rows, "x fp32[3,4] with sorted fp32[2,9]: it must have x's sizes but for the last"},
        {search_dtypes, "fp32 ≠ int32"},
        {scan_factor, "x fp32[2,3] with a fp32[3]: shapes must be equal"},
        {scan_integers, "x int32[3] must be floating point"},
        {route_groups, "index int32[2,3] into 5000 groups: there may be 1 to 1024"},
        {dispatch_places, "x fp32[4,3] with places int32[5,2]: [...,size] and [...,k] must agree"},
        {dispatch_slots, "the slots int32[4,2] must have 1 dim"},
        {dispatch_weights, "weights fp32[4] with places int32[4,2]: they must have one shape"},
        {combine_slots, "x fp32[9,3] with slots int32[8]: a slot for each row is needed"},
        {grouped_dtype, "x fp32[4,3] · W bf16[2,3,5]: fp32 ≠ bf16; nn.cast(a, b) gives one the dtype of the other"},
        {grouped_inner, "x fp32[4,3] · W with W fp32[2,4,5]: 3 ≠ 4; the inner sizes must be equal"},
        {grouped_counts, "counts int32[3] for 2 groups: they must be [2]"},
        {grouped_bias, "the bias fp32[5] of W fp32[2,3,5]: it must be [2,5], a row for each group"},
        {grouped_bias_dtype, "x fp32[4,3] and the bias bf16[2,5]: fp32 ≠ bf16; nn.cast(a, b) gives one the dtype"},
        {flip_dim, "x fp32[2,3] has no dim 2"},
        {operands, "add lacks its operand b"},
        {not_wide, "neg cannot choose its result's dtype"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_exit(cases[i].body, 1, cases[i].text);
}

Test(ir, large_graphs_are_quick, .init = start) {
    Value *x = val(FP32, SHAPE(4, 6));
    for (int i = 0; i < 60000; i++) x = build_scalar(b, OP_add_scalar, x, i);
    cr_expect_str_eq(x->def->id, "e59999");
    graph_check(g, "test");
}
