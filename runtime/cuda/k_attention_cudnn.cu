/* attention and its gradient by cuDNN's fused engines, through its graph API: bf16 and fp16 with head sizes that are a
 * multiple of 8, without dropout, documents, window and soft cap. Relies on: cuDNN 9 (library.h loads it),
 * schema/workspace.h, by which work_attention (compiler/ir/rules_work.c) asks for a workspace. Relied on by:
 * k_attention.cu, k_attention_grad.cu.
 *
 * cuDNN recognises attention in a graph of plain operations over tensors [batch, heads, rows, columns], K given as its
 * transpose. Forward:
 *   S = scale · Q Kᵀ (where row < column: -inf),  M = max S,  E = e^(S - M),  L = Σ E,  lse = M + log L,  O = (E / L) V
 * backward, with what BASELINES.md calls the softmax sum, delta = Σ_d dO · O:
 *   P = e^(S - lse),  dV = Pᵀ dO,  dS = scale · P · (dO Vᵀ - delta),  dK = dSᵀ Q,  dQ = dS K
 * lse is what our own kernels keep, so that either backward takes either forward. With grouped queries dV and dK of all
 * query heads are summed at the end. dQ is added up in fp32 in no fixed order, in a tensor of ours that is rounded at the
 * end: where bits must repeat, the backward is not cuDNN's, whose engines then store dS, S × T. The batch, or the heads
 * of one sample, are cut into equal parts, which go two at a time, on the task's stream and one of ours, through the
 * workspace that there is. Two at a time are as fast as the whole: one fills the GPU where the other comes to its end.
 *
 * A plan is made once a shape, at the rehearsal before graphs are captured, and kept: the first engine of cuDNN's
 * heuristics (mode A) that fits the workspace. Without one our own kernel runs. */
#include "attention_cudnn.h"

#include "../schema/workspace.h"
#include "library.h"
#include <cudnn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef cudnnBackendDescriptor_t descriptor;

enum { DESCRIPTORS = 256, OPERATIONS = 40, ENGINES = 24 };
enum { Q = 1, K, V, O, LSE, GO, DQ, DK, DV, DELTA, DQ_SUM, SCALE, HIDDEN, ONE, UIDS, VIRTUAL = 100 };

typedef struct {
    int64_t batch, row, head;
} steps;

typedef struct { /* everything that a plan depends on */
    int64_t B, S, T, H, KV, D, room;
    steps q, k, v, o, go, dq, dk, dv;
    float scale;
    uint8_t dtype, causal, backward;
} problem;

typedef struct planned {
    struct planned *next;
    problem key;
    sc_cudnn_choice choice;
    int64_t batch, heads; /* of one call: samples, key heads */
    int64_t delta_bytes, sum_bytes, part_bytes;
    float scale, hidden, one;
    descriptor plan;
    descriptor made[DESCRIPTORS];
    int nmade;
} planned;

typedef struct { /* sc_cuda.attention */
    planned *plans;
    cudaStream_t side; /* every other part runs there */
    cudaEvent_t fork, join;
} kept;

/* ── descriptors ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    planned *p;
    const problem *c;
    cudnnHandle_t handle;
    descriptor operations[OPERATIONS];
    int noperations;
    int64_t next; /* uid of the next virtual tensor */
    bool bad;
} graph;

static bool fine(planned *p, cudnnStatus_t e, const char *what) {
    char text[256] = "";
    if (e == CUDNN_STATUS_SUCCESS) return true;
    cudnnGetLastErrorString(text, sizeof text);
    snprintf(p->choice.why, sizeof p->choice.why, "%s: %s %.200s", what, cudnnGetErrorString(e), text);
    return false;
}

static descriptor make(graph *g, cudnnBackendDescriptorType_t type, const char *what) {
    descriptor d = NULL;
    if (g->bad || g->p->nmade == DESCRIPTORS) return g->bad = true, d;
    g->bad = !fine(g->p, cudnnBackendCreateDescriptor(type, &d), what);
    if (!g->bad) g->p->made[g->p->nmade++] = d;
    return d;
}
static void set(graph *g, descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
                const void *values) {
    if (!g->bad) g->bad = !fine(g->p, cudnnBackendSetAttribute(d, name, type, n, values), "attribute");
}
static void point(graph *g, descriptor d, cudnnBackendAttributeName_t name, descriptor to) {
    set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &to);
}
static void finish(graph *g, descriptor d, const char *what) {
    if (!g->bad) g->bad = !fine(g->p, cudnnBackendFinalize(d), what);
}
static descriptor finish_operation(graph *g, descriptor d, descriptor result, const char *what) {
    finish(g, d, what);
    if (g->noperations == OPERATIONS) g->bad = true;
    if (!g->bad) g->operations[g->noperations++] = d;
    return result;
}

/* ── tensors ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    int64_t n[4];
} four;

static four rows_first(int64_t b, int64_t c, int64_t d) { /* strides of [..][b][c][d] */
    return {{b * c * d, c * d, d, 1}};
}

static descriptor tensor(graph *g, int64_t uid, cudnnDataType_t type, four shape, four stride) {
    descriptor d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor");
    int64_t align = 16;
    bool is_virtual = uid == VIRTUAL, by_value = uid == SCALE || uid == HIDDEN || uid == ONE;
    if (is_virtual) uid = g->next++;
    if (by_value) align = 4;
    set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, shape.n);
    set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride.n);
    set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    finish(g, d, "tensor");
    return d;
}
static descriptor value(graph *g, int64_t uid) {
    return tensor(g, uid, CUDNN_DATA_FLOAT, {{1, 1, 1, 1}}, {{1, 1, 1, 1}});
}
static descriptor between(graph *g, cudnnDataType_t type, int64_t a, int64_t b, int64_t c, int64_t d) {
    return tensor(g, VIRTUAL, type, {{a, b, c, d}}, rows_first(b, c, d));
}

/* What a call's tensors measure. */
static int64_t heads_of(const graph *g) {
    return g->p->heads * (g->c->H / g->c->KV);
}
static cudnnDataType_t type_of(const graph *g) {
    return g->c->dtype == BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}
static descriptor of_queries(graph *g, int64_t uid, const steps *s) {
    const problem *c = g->c;
    return tensor(g, uid, type_of(g), {{g->p->batch, heads_of(g), c->S, c->D}}, {{s->batch, s->head, s->row, 1}});
}
static descriptor of_keys(graph *g, int64_t uid, const steps *s, bool transposed) {
    const problem *c = g->c;
    if (transposed)
        return tensor(g, uid, type_of(g), {{g->p->batch, g->p->heads, c->D, c->T}}, {{s->batch, s->head, 1, s->row}});
    return tensor(g, uid, type_of(g), {{g->p->batch, g->p->heads, c->T, c->D}}, {{s->batch, s->head, s->row, 1}});
}
static descriptor of_rows(graph *g, int64_t uid) { /* one float a query */
    int64_t b = g->p->batch, h = heads_of(g), s = g->c->S;
    return tensor(g, uid, CUDNN_DATA_FLOAT, {{b, h, s, 1}}, {{h * s, s, 1, 1}});
}
static descriptor scores(graph *g, cudnnDataType_t type) {
    return between(g, type, g->p->batch, heads_of(g), g->c->S, g->c->T);
}
static descriptor scores_transposed(graph *g) {
    int64_t b = g->p->batch, h = heads_of(g), s = g->c->S, t = g->c->T;
    return tensor(g, VIRTUAL, type_of(g), {{b, h, t, s}}, {{h * s * t, s * t, 1, t}});
}

/* ── operations: each returns its result ────────────────────────────────────────────────────────────────────────────
 */
static descriptor pointwise(graph *g, cudnnPointwiseMode_t mode, descriptor x, descriptor second, descriptor y,
                            descriptor test = NULL, int64_t axis = -1, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    descriptor how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "pointwise");
    set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    if (axis >= 0) set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finish(g, how, "pointwise");
    descriptor d = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "pointwise");
    point(g, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    point(g, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (second) point(g, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, second);
    if (test) point(g, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, test);
    point(g, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    return finish_operation(g, d, y, "pointwise operation");
}
static descriptor product(graph *g, descriptor a, descriptor b, descriptor y) {
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    descriptor how = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR, "matmul");
    set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    finish(g, how, "matmul");
    descriptor d = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "matmul");
    point(g, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    point(g, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    point(g, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    point(g, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
    return finish_operation(g, d, y, "matmul operation");
}
static descriptor reduce(graph *g, cudnnReduceTensorOp_t with, descriptor x, descriptor y) {
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    descriptor how = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "reduction");
    set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &with);
    set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    finish(g, how, "reduction");
    descriptor d = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "reduction");
    point(g, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    point(g, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    point(g, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    return finish_operation(g, d, y, "reduction operation");
}
static descriptor reshape(graph *g, descriptor x, descriptor y) {
    descriptor d = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "reshape");
    point(g, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    point(g, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    return finish_operation(g, d, y, "reshape operation");
}

static descriptor in_scores(graph *g, cudnnPointwiseMode_t mode, descriptor x, descriptor second = NULL) {
    return pointwise(g, mode, x, second, scores(g, CUDNN_DATA_FLOAT));
}
static descriptor hide(graph *g, descriptor s) { /* row >= column: s, else -inf */
    if (!g->c->causal) return s;
    descriptor row = pointwise(g, CUDNN_POINTWISE_GEN_INDEX, s, NULL, scores(g, CUDNN_DATA_INT32), NULL, 2);
    descriptor column = pointwise(g, CUDNN_POINTWISE_GEN_INDEX, s, NULL, scores(g, CUDNN_DATA_INT32), NULL, 3);
    descriptor seen =
        pointwise(g, CUDNN_POINTWISE_CMP_GE, row, column, scores(g, CUDNN_DATA_BOOLEAN), NULL, -1, CUDNN_DATA_BOOLEAN);
    return pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, s, value(g, HIDDEN), scores(g, CUDNN_DATA_FLOAT), seen);
}

/* ── the two graphs ─────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void forward(graph *g) {
    const problem *c = g->c;
    descriptor s = product(g, of_queries(g, Q, &c->q), of_keys(g, K, &c->k, true), scores(g, CUDNN_DATA_FLOAT));
    s = hide(g, in_scores(g, CUDNN_POINTWISE_MUL, s, value(g, SCALE)));
    descriptor most = reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, of_rows(g, VIRTUAL));
    descriptor e = in_scores(g, CUDNN_POINTWISE_EXP, in_scores(g, CUDNN_POINTWISE_SUB, s, most));
    descriptor sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, e, of_rows(g, VIRTUAL));
    descriptor log = pointwise(g, CUDNN_POINTWISE_LOG, sum, NULL, of_rows(g, VIRTUAL));
    pointwise(g, CUDNN_POINTWISE_ADD, most, log, of_rows(g, LSE));
    descriptor p = pointwise(g, CUDNN_POINTWISE_DIV, e, sum, scores(g, type_of(g)));
    product(g, p, of_keys(g, V, &c->v, false), of_queries(g, O, &c->o));
}

/* A gradient of keys: xᵀ y for every query head, then summed over those that share a key head. */
static void key_gradient(graph *g, descriptor x, descriptor y, int64_t uid, const steps *s) {
    descriptor turned = reshape(g, x, scores_transposed(g)), result = of_keys(g, uid, s, false);
    if (g->c->H == g->c->KV) {
        product(g, turned, y, result);
        return;
    }
    descriptor all = between(g, type_of(g), g->p->batch, heads_of(g), g->c->T, g->c->D);
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, product(g, turned, y, all), result);
}

static void backward(graph *g) {
    const problem *c = g->c;
    int64_t B = g->p->batch, h = heads_of(g);
    descriptor q = of_queries(g, Q, &c->q), k = of_keys(g, K, &c->k, true), v = of_keys(g, V, &c->v, true);
    descriptor go = of_queries(g, GO, &c->go), scale = value(g, SCALE);
    descriptor delta =
        pointwise(g, CUDNN_POINTWISE_MUL, go, of_queries(g, O, &c->o), between(g, CUDNN_DATA_FLOAT, B, h, c->S, c->D));
    delta = reduce(g, CUDNN_REDUCE_TENSOR_ADD, delta, of_rows(g, VIRTUAL));
    delta = pointwise(g, CUDNN_POINTWISE_MUL, delta, value(g, ONE), of_rows(g, DELTA));

    descriptor s = product(g, q, k, scores(g, CUDNN_DATA_FLOAT));
    s = in_scores(g, CUDNN_POINTWISE_MUL, s, scale);
    s = hide(g, in_scores(g, CUDNN_POINTWISE_SUB, s, of_rows(g, LSE)));
    descriptor p = in_scores(g, CUDNN_POINTWISE_EXP, s);
    key_gradient(g, p, go, DV, &c->dv);

    descriptor ds = product(g, go, v, scores(g, CUDNN_DATA_FLOAT));
    ds = in_scores(g, CUDNN_POINTWISE_SUB, ds, delta);
    ds = in_scores(g, CUDNN_POINTWISE_MUL, ds, p);
    ds = in_scores(g, CUDNN_POINTWISE_MUL, ds, scale);
    key_gradient(g, ds, q, DK, &c->dk);

    descriptor turned = reshape(g, k, of_keys(g, VIRTUAL, &c->k, false));
    descriptor sum = tensor(g, DQ_SUM, CUDNN_DATA_FLOAT, {{B, h, c->S, c->D}}, rows_first(h, c->S, c->D));
    pointwise(g, CUDNN_POINTWISE_IDENTITY, product(g, ds, turned, sum), NULL, of_queries(g, DQ, &c->dq));
}

/* ── choosing an engine ─────────────────────────────────────────────────────────────────────────────────────────────
 */
static int64_t padded(int64_t bytes) {
    return sc_round_up(bytes, 256);
}

static int at_a_time(int calls) {
    return calls > 1 ? 2 : 1;
}

/* Makes the plan of one engine's configuration. */
static bool try_engine(graph *g, descriptor configuration) {
    planned *p = g->p;
    int64_t n = 0, index = -1, bytes = 0, own = p->delta_bytes + p->sum_bytes;
    descriptor engine = make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "engine");
    descriptor plan = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan");
    if (g->bad) return false;
    if (!fine(p,
              cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                       &engine),
              "engine"))
        return false;
    cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, &index);
    set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &configuration);
    set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->handle);
    finish(g, plan, "plan");
    if (g->bad) return g->bad = false; /* the next engine may do */
    if (!fine(p,
              cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes),
              "workspace"))
        return false;
    p->part_bytes = padded(own + bytes);
    int64_t all = at_a_time(p->choice.calls) * p->part_bytes;
    if (all > g->c->room) {
        snprintf(p->choice.why, sizeof p->choice.why, "engine %lld wants %lld bytes of workspace, there are %lld",
                 (long long)index, (long long)all, (long long)g->c->room);
        return false;
    }
    p->plan = plan;
    p->choice.taken = true;
    p->choice.engine = (int)index;
    p->choice.workspace = all;
    return true;
}

static void release(planned *p) {
    for (int i = p->nmade; i-- > 0;) cudnnBackendDestroyDescriptor(p->made[i]);
    p->nmade = 0;
}

/* A plan for `batch` samples and `heads` key heads a call. */
static bool try_parts(planned *p, cudnnHandle_t handle, int64_t batch, int64_t heads) {
    const problem *c = &p->key;
    graph g = {p, c, handle, {}, 0, VIRTUAL, false};
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    descriptor found[ENGINES];
    int64_t n = 0, rows = batch * heads * (c->H / c->KV) * c->S;
    p->batch = batch;
    p->heads = heads;
    p->choice.calls = (int)(c->B / batch * (c->KV / heads));
    p->delta_bytes = c->backward ? padded(rows * 4) : 0;
    p->sum_bytes = c->backward ? padded(rows * c->D * 4) : 0;
    (c->backward ? backward : forward)(&g);
    descriptor all = make(&g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "graph");
    set(&g, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set(&g, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g.noperations, g.operations);
    finish(&g, all, "graph");
    descriptor heuristics = make(&g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristics");
    point(&g, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, all);
    set(&g, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finish(&g, heuristics, "heuristics");
    for (int i = 0; i < ENGINES; i++) found[i] = make(&g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "configuration");
    if (!g.bad)
        g.bad = !fine(p,
                      cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                               ENGINES, &n, found),
                      "heuristics");
    if (!g.bad && n == 0) snprintf(p->choice.why, sizeof p->choice.why, "cuDNN has no engine for it");
    for (int64_t i = 0; i < n && !g.bad; i++)
        if (try_engine(&g, found[i])) return true;
    release(p);
    return false;
}

/* Where this is more than there is, nothing has to be tried. */
static int64_t needed(const problem *c, int64_t batch, int64_t heads) {
    return at_a_time((int)(c->B / batch * (c->KV / heads))) *
           sc_cudnn_backward_bytes(batch, heads, c->H / c->KV, c->S, c->T, c->D);
}

/* Parts from the largest down, as work_attention counts them: whole samples, then key heads of one sample. */
static void plan_parts(planned *p, cudnnHandle_t handle) {
    const problem *c = &p->key;
    if (sc_library_version(SC_LIB_CUDNN) < sc_cudnn_least(c->backward, c->T)) {
        snprintf(p->choice.why, sizeof p->choice.why,
                 "in a CUDA graph it reads beyond %lld keys, which are no multiple of 128; cuDNN 9.15.1 is the first "
                 "that does not",
                 (long long)c->T);
        return;
    }
    if (!c->backward) {
        try_parts(p, handle, c->B, c->KV);
        return;
    }
    for (int64_t n = 1; n <= c->B && !p->choice.taken; n++)
        if (c->B % n == 0 && needed(c, c->B / n, c->KV) <= c->room) try_parts(p, handle, c->B / n, c->KV);
    for (int64_t n = 2; n <= c->KV && !p->choice.taken; n++)
        if (c->KV % n == 0 && needed(c, 1, c->KV / n) <= c->room) try_parts(p, handle, 1, c->KV / n);
    if (!p->choice.taken && !*p->choice.why)
        snprintf(p->choice.why, sizeof p->choice.why, "the workspace of %lld bytes is too small", (long long)c->room);
}

/* ── tasks ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    const sc_tensor *q, *k, *v, *o, *lse, *go, *dq, *dk, *dv, *work; /* work: NULL where there is none */
    double scale, softcap, dropout;
    bool causal, documents, window, other; /* other: a bias, sinks, or a gradient of lse */
} operands;

template <class K> static operands shared_by(const K *k) { /* attention and attention_grad */
    operands x = {};
    x.q = &k->q, x.k = &k->k, x.v = &k->v, x.o = &k->o, x.lse = &k->lse;
    x.work = k->work.p ? &k->work : NULL;
    x.scale = k->scale, x.softcap = k->softcap, x.dropout = k->dropout;
    x.causal = k->causal != 0, x.documents = k->documents.p != NULL;
    x.window = sc_has_window(x.causal, k->before, k->after);
    return x;
}

static operands operands_of(const sc_task *t, bool backward) {
    if (!backward) {
        const sc_attention_args *k = (const sc_attention_args *)t->args;
        operands x = shared_by(k);
        x.other = k->sinks.p || k->bias.p;
        return x;
    }
    const sc_attention_grad_args *k = (const sc_attention_grad_args *)t->args;
    operands x = shared_by(k);
    x.other = k->dlse.p || k->bias.p;
    x.go = &k->g, x.dq = &k->dq, x.dk = &k->dk, x.dv = &k->dv;
    return x;
}

/* Sixteen bytes at a time; a sample or head that is the only one steps over the whole of it. */
static bool steps_of(const sc_tensor *t, steps *s) {
    if (t->dims != 4 || t->stride[3] != 1 || (uintptr_t)t->p % 16) return false;
    s->row = t->shape[1] > 1 ? t->stride[1] : t->shape[2] * t->shape[3];
    s->head = t->shape[2] > 1 ? t->stride[2] : t->shape[3];
    s->batch = t->shape[0] > 1 ? t->stride[0] : t->shape[1] * s->row;
    return s->row % 8 == 0 && s->head % 8 == 0 && s->batch % 8 == 0 && s->row > 0 && s->head > 0 && s->batch > 0;
}

/* False: not one of cuDNN's. */
static bool problem_of(const sc_task *t, bool backward, problem *c) {
    const sc_cuda *library = sc_library(t);
    operands x = operands_of(t, backward);
    memset(c, 0, sizeof *c);
    if ((backward && library->deterministic) ||
        !sc_cudnn_computes(x.q, x.k, x.v, x.causal, x.documents, x.dropout, x.window, x.softcap, x.other) ||
        !sc_cudnn_serves(library->major))
        return false;
    c->B = x.q->shape[0];
    c->S = x.q->shape[1];
    c->H = x.q->shape[2];
    c->D = x.q->shape[3];
    c->T = x.k->shape[1];
    c->KV = x.k->shape[2];
    if (!steps_of(x.q, &c->q) || !steps_of(x.k, &c->k) || !steps_of(x.v, &c->v) || !steps_of(x.o, &c->o)) return false;
    if (backward) {
        if (!steps_of(x.go, &c->go) || !steps_of(x.dq, &c->dq) || !steps_of(x.dk, &c->dk) || !steps_of(x.dv, &c->dv))
            return false;
    }
    c->room = x.work ? x.work->shape[0] : 0;
    if (x.work && (uintptr_t)x.work->p % 256) return false;
    c->scale = (float)x.scale;
    c->dtype = x.q->dtype;
    c->causal = x.causal;
    c->backward = backward;
    return true;
}

static void refuse(const sc_task *t, const char *why) {
    while (t->rank) pause(); /* rank 0 says it for all */
    sc_unsupported(t, "attention", why);
}

/* Without it every task is our own kernel's, which sc_libraries_open has said. */
static bool there(const sc_task *t) {
    const char *missing = sc_library_open(SC_LIB_CUDNN);
    if (missing && sc_library(t)->require_cudnn) refuse(t, missing);
    return !missing;
}

static kept *begin(const sc_task *t) {
    sc_cuda *library = sc_library(t);
    kept *all = (kept *)calloc(1, sizeof *all);
    int priority = 0;
    if (!all) sc_failed("malloc", "begin", "ENOMEM", "out of host memory", __FILE__, __LINE__);
    SC_CUDNN(cudnnCreate(&library->cudnn));
    SC_CUDA(cudaStreamGetPriority(SC_STREAM(t), &priority));
    SC_CUDA(cudaStreamCreateWithPriority(&all->side, cudaStreamNonBlocking, priority));
    SC_CUDA(cudaEventCreateWithFlags(&all->fork, cudaEventDisableTiming));
    SC_CUDA(cudaEventCreateWithFlags(&all->join, cudaEventDisableTiming));
    library->attention = all;
    return all;
}

/* Other numbers and another speed than where cuDNN takes it: that deserves a word. */
static void say_why(const sc_task *t, const planned *p) {
    const problem *c = &p->key;
    char version[SC_VERSION_TEXT], text[1024];
    snprintf(text, sizeof text, "cuDNN %s does not take its %s (%lldx%lld, %lld heads of %lld): %s",
             sc_version_text(sc_library_version(SC_LIB_CUDNN), version), c->backward ? "backward" : "forward",
             (long long)c->B, (long long)c->S, (long long)c->H, (long long)c->D, p->choice.why);
    if (sc_library(t)->require_cudnn) refuse(t, text);
    if (t->rank) return;
    fprintf(stderr, "shardc: a part of attention runs on a kernel of shardc's own, which takes %s times as long: %s\n",
            c->backward ? SC_CUDNN_BACKWARD : SC_CUDNN_FORWARD, text);
}

/* cuDNN opens the last of its parts when it makes a plan. */
static void check_whole(const sc_task *t) {
    const char *mixed = sc_library_mixed(SC_LIB_CUDNN);
    if (mixed) refuse(t, mixed);
}

static planned *plan_for(const sc_task *t, const problem *c) {
    sc_cuda *library = sc_library(t);
    kept *all = (kept *)library->attention;
    for (planned *p = all ? all->plans : NULL; p; p = p->next)
        if (!memcmp(&p->key, c, sizeof *c)) return p;
    if (!all) all = begin(t);
    planned *p = (planned *)calloc(1, sizeof *p);
    if (!p) sc_failed("malloc", "plan_for", "ENOMEM", "out of host memory", __FILE__, __LINE__);
    p->next = all->plans;
    all->plans = p;
    p->key = *c;
    p->scale = c->scale;
    p->hidden = -INFINITY;
    p->one = 1;
    plan_parts(p, library->cudnn);
    check_whole(t);
    if (!p->choice.taken) say_why(t, p);
    return p;
}

/* ── running ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    int64_t uid[UIDS];
    void *at[UIDS];
    int n;
} pack;
static void put(pack *p, int64_t uid, const void *at) {
    p->uid[p->n] = uid;
    p->at[p->n++] = (void *)at;
}
static const void *moved(const sc_tensor *t, const steps *s, int64_t sample, int64_t head) {
    return (const uint16_t *)t->p + sample * s->batch + head * s->head;
}

static void execute(sc_cuda *library, planned *p, pack *x, void *workspace) {
    descriptor d;
    SC_CUDNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &d));
    SC_CUDNN(cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, x->n, x->uid));
    SC_CUDNN(cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, x->n, x->at));
    SC_CUDNN(cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
    SC_CUDNN(cudnnBackendFinalize(d));
    SC_CUDNN(cudnnBackendExecute(library->cudnn, p->plan, d));
    SC_CUDNN(cudnnBackendDestroyDescriptor(d));
}

static void run_part(const sc_task *t, planned *p, int64_t sample, int64_t key_head, int lane) {
    const problem *c = &p->key;
    operands x = operands_of(t, c->backward);
    int64_t head = key_head * (c->H / c->KV);
    pack all = {};
    put(&all, Q, moved(x.q, &c->q, sample, head));
    put(&all, K, moved(x.k, &c->k, sample, key_head));
    put(&all, V, moved(x.v, &c->v, sample, key_head));
    put(&all, O, moved(x.o, &c->o, sample, head));
    put(&all, LSE, (const float *)x.lse->p + (sample * c->H + head) * c->S);
    put(&all, SCALE, &p->scale);
    if (c->causal) put(&all, HIDDEN, &p->hidden);
    char *work = x.work ? (char *)x.work->p + lane * p->part_bytes : NULL;
    if (c->backward) {
        put(&all, ONE, &p->one);
        put(&all, GO, moved(x.go, &c->go, sample, head));
        put(&all, DQ, moved(x.dq, &c->dq, sample, head));
        put(&all, DK, moved(x.dk, &c->dk, sample, key_head));
        put(&all, DV, moved(x.dv, &c->dv, sample, key_head));
        put(&all, DELTA, work);
        put(&all, DQ_SUM, work + p->delta_bytes);
        work += p->delta_bytes + p->sum_bytes;
    }
    execute(sc_library(t), p, &all, work);
}

static void run(const sc_task *t, planned *p) {
    sc_cuda *library = sc_library(t);
    kept *all = (kept *)library->attention;
    cudaStream_t streams[] = {SC_STREAM(t), all->side};
    int lanes = at_a_time(p->choice.calls), part = 0;
    if (lanes > 1) {
        SC_CUDA(cudaEventRecord(all->fork, streams[0]));
        SC_CUDA(cudaStreamWaitEvent(streams[1], all->fork, 0));
    }
    for (int64_t b = 0; b < p->key.B; b += p->batch)
        for (int64_t h = 0; h < p->key.KV; h += p->heads, part++) {
            SC_CUDNN(cudnnSetStream(library->cudnn, streams[part % lanes]));
            run_part(t, p, b, h, part % lanes);
        }
    if (lanes > 1) {
        SC_CUDA(cudaEventRecord(all->join, streams[1]));
        SC_CUDA(cudaStreamWaitEvent(streams[0], all->join, 0));
    }
}

extern "C" bool sc_cudnn_attention(const sc_task *t, bool backward) {
    problem c;
    if (!problem_of(t, backward, &c) || !there(t)) return false;
    planned *p = plan_for(t, &c);
    if (!p->choice.taken) return false;
    run(t, p);
    return true;
}

extern "C" sc_cudnn_choice sc_cudnn_attention_choice(const sc_task *t, bool backward) {
    problem c;
    if (problem_of(t, backward, &c) && there(t)) return plan_for(t, &c)->choice;
    return {false, 0, 0, 0, "its type, head size, layout or mask is not cuDNN's, or there is no cuDNN"};
}

extern "C" void sc_cudnn_attention_stop(sc_cuda *library) {
    kept *all = (kept *)library->attention;
    library->attention = NULL;
    if (!all) return;
    for (planned *p = all->plans, *next; p; p = next) {
        next = p->next;
        release(p);
        free(p);
    }
    SC_CUDA(cudaEventDestroy(all->join));
    SC_CUDA(cudaEventDestroy(all->fork));
    SC_CUDA(cudaStreamDestroy(all->side));
    free(all);
    SC_CUDNN(cudnnDestroy(library->cudnn));
    library->cudnn = NULL;
}
