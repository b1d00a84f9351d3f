/* What runtime/cuda/k_attention_cudnn.cu asks of cuDNN and does with its answers, on a machine without either: a fake
 * cuDNN hands out engines with workspaces and records what is executed.
 * Relies on: cudnn.h, check.h. Relied on by: tests/program/test_cuda_host.py. */
#include "check.h"

#include "../../runtime/cuda/attention_cudnn.h"
#include "../../runtime/cuda/library.h"

#include <cudnn.h>
#include <map>

/* ── the fake ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
struct engine {
    int index;
    bool fails;        /* its plan cannot be made */
    double share;      /* workspace: its share of the scores' 16-bit matrix */
    int64_t workspace; /* and besides */
};
static std::vector<engine> engines;

struct thing {
    cudnnBackendDescriptorType_t type;
    std::map<int, std::vector<char>> values;
    engine is;
    int64_t scores; /* of a graph: elements of its largest tensor */
};
static std::vector<thing *> living;
static int64_t scores; /* of the graph that was finished last */
static const char *library_missing, *library_mixed;
static int library_version = 91900;

struct execution {
    std::map<int64_t, char *> at; /* by uid */
    char *workspace;
    engine by;
    cudaStream_t on;
};
static std::vector<execution> executed;
static cudaStream_t current; /* of the handle */
static std::string order;    /* of what concerns streams: F a fork, J a join, x an execution */

static std::vector<char> &value(thing *x, int name) {
    return x->values[name];
}
template <class X> static X first(thing *x, int name) {
    X y = {};
    if (value(x, name).size() >= sizeof y) memcpy(&y, value(x, name).data(), sizeof y);
    return y;
}

extern "C" {
const char *sc_library_open(sc_cuda_library) {
    return library_missing;
}
int sc_library_version(sc_cuda_library) {
    return library_version;
}
const char *sc_library_mixed(sc_cuda_library) {
    return library_mixed;
}
const char *sc_version_text(int v, char out[SC_VERSION_TEXT]) {
    snprintf(out, SC_VERSION_TEXT, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    return out;
}
cudnnStatus_t cudnnCreate(cudnnHandle_t *h) {
    *h = (cudnnHandle_t)0x10;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t) {
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t s) {
    current = s;
    return CUDNN_STATUS_SUCCESS;
}
const char *cudnnGetErrorString(cudnnStatus_t) {
    return "an error";
}
void cudnnGetLastErrorString(char *text, size_t n) {
    snprintf(text, n, "the fake says so");
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *d) {
    thing *x = new thing{type, {}, {}, 0};
    living.push_back(x);
    *d = x;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
    for (size_t i = 0; i < living.size(); i++)
        if (living[i] == d) {
            living.erase(living.begin() + (long)i);
            delete (thing *)d;
            return CUDNN_STATUS_SUCCESS;
        }
    printf("FAIL a descriptor is destroyed twice\n");
    exit(1);
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n, const void *values) {
    static const std::map<int, size_t> sizes = {{CUDNN_TYPE_BOOLEAN, 1},
                                                {CUDNN_TYPE_INT64, 8},
                                                {CUDNN_TYPE_VOID_PTR, 8},
                                                {CUDNN_TYPE_HANDLE, 8},
                                                {CUDNN_TYPE_BACKEND_DESCRIPTOR, 8}};
    size_t one = sizes.count(type) ? sizes.at(type) : 4;
    value((thing *)d, name).assign((const char *)values, (const char *)values + one * (size_t)n);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d) {
    thing *x = (thing *)d;
    if (x->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR && first<char>(x, CUDNN_ATTR_TENSOR_IS_VIRTUAL)) {
        int64_t dims[4], all = 1;
        memcpy(dims, value(x, CUDNN_ATTR_TENSOR_DIMENSIONS).data(), sizeof dims);
        for (int64_t n : dims) all *= n;
        if (all > scores) scores = all;
    }
    if (x->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
        x->scores = scores;
        scores = 0;
    }
    if (x->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        thing *c = first<thing *>(x, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
        x->is = c->is;
        x->scores = c->scores;
        if (c->is.fails) return CUDNN_STATUS_NOT_SUPPORTED;
    }
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t room, int64_t *n, void *out) {
    thing *x = (thing *)d;
    *n = 1;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        thing *graph = first<thing *>(x, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        *n = (int64_t)engines.size() < room ? (int64_t)engines.size() : room;
        for (int64_t i = 0; i < *n; i++) {
            ((thing **)out)[i]->is = engines[(size_t)i];
            ((thing **)out)[i]->scores = graph->scores;
        }
    } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
        (*(thing **)out)->is = x->is;
    } else if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX) {
        *(int64_t *)out = x->is.index;
    } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
        *(int64_t *)out = (int64_t)(x->is.share * 2 * (double)x->scores) + x->is.workspace;
    }
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    execution e = {};
    thing *x = (thing *)pack;
    std::vector<char> &uids = value(x, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
                      &at = value(x, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (size_t i = 0; i < uids.size(); i += 8) {
        int64_t uid;
        char *p;
        memcpy(&uid, &uids[i], 8), memcpy(&p, &at[i], 8);
        e.at[uid] = p;
    }
    e.workspace = first<char *>(x, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    e.by = ((thing *)plan)->is;
    e.on = current;
    executed.push_back(e);
    order += "x";
    return CUDNN_STATUS_SUCCESS;
}
}

static cudaStream_t ours = (cudaStream_t)0x20;
extern "C" {
cudaError_t cudaStreamGetPriority(cudaStream_t, int *p) {
    *p = 0;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned, int) {
    *s = ours;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) {
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) {
    *e = (cudaEvent_t)0x30;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) {
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t s) {
    order += s == ours ? "J" : "F";
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
    return cudaSuccess;
}
const char *cudaGetErrorName(cudaError_t) {
    return "";
}
const char *cudaGetErrorString(cudaError_t) {
    return "";
}
}

/* ── tasks ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static sc_cuda library;
enum { WORK = 1 << 20 };
enum { Q = 1, K, V, O, LSE, GO, DQ, DK, DV, DELTA, DQ_SUM }; /* uids */

static sc_tensor operand(int64_t base, int64_t b, int64_t s, int64_t h, int64_t d) {
    return described(BF16, {b, s, h, d}, {}, (void *)base);
}
static sc_tensor bytes(int64_t base, int64_t n, int dtype) {
    return described(dtype, {n}, {}, (void *)base);
}
/* q at 1 GiB, the others a GiB apart, in the order of the enum; the workspace at 100 GiB. */
static const int64_t G = 1 << 30;
struct backward {
    enum { BACK = 1 };
    sc_attention_grad_args args;
    backward(int64_t b, int64_t s, int64_t h, int64_t kv, int64_t d, int64_t room)
        : args{.dq = operand(DQ * G, b, s, h, d),
               .dk = operand(DK * G, b, s, kv, d),
               .dv = operand(DV * G, b, s, kv, d),
               .g = operand(GO * G, b, s, h, d),
               .q = operand(Q * G, b, s, h, d),
               .k = operand(K * G, b, s, kv, d),
               .v = operand(V * G, b, s, kv, d),
               .o = operand(O * G, b, s, h, d),
               .lse = bytes(LSE * G, b * s * h, FP32),
               .work = bytes(100 * G, room, BOOL),
               .causal = 1,
               .scale = 0.125} {}
};
struct forward {
    enum { BACK = 0 };
    sc_attention_args args;
    forward(int64_t b, int64_t s, int64_t h, int64_t kv, int64_t d, int64_t room)
        : args{.o = operand(O * G, b, s, h, d),
               .lse = bytes(LSE * G, b * s * h, FP32),
               .q = operand(Q * G, b, s, h, d),
               .k = operand(K * G, b, s, kv, d),
               .v = operand(V * G, b, s, kv, d),
               .work = bytes(100 * G, room, BOOL),
               .causal = 1} {}
};
template <class CALL> static bool attention(const CALL &c) {
    sc_task t = task_of(c.args, 0, NULL, &library);
    return sc_cudnn_attention(&t, CALL::BACK);
}
template <class CALL> static sc_cudnn_choice choice_of(const CALL &c) {
    sc_task t = task_of(c.args, 0, NULL, &library);
    return sc_cudnn_attention_choice(&t, CALL::BACK);
}
static void start(std::vector<engine> some) {
    sc_cudnn_attention_stop(&library);
    if (!living.empty()) verdict(false, "descriptors are given back", "");
    engines = some;
    executed.clear();
    order.clear();
    library = {};
    library.major = 9;
}
static void expect(bool good, const char *what) {
    verdict(good, what, "");
}
static bool starts(const char *text, const char *with) {
    return !strncmp(text, with, strlen(with));
}

/* ── the cases ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static const engine plain = {6, false, 0, 256};

static void choose() {
    backward t(2, 128, 4, 4, 64, WORK);
    start({{5, true, 0, 0}, {3, false, 0, 1 << 30}, plain});
    sc_cudnn_choice c = choice_of(t);
    expect(c.taken && c.engine == 6 && c.calls == 1 && c.workspace == 2 * 4 * 128 * (4 + 64 * 4) + 256,
           "the first engine that can be planned and fits");
    start({});
    expect(starts(choice_of(t).why, "cuDNN has no engine") && !attention(t), "no engine: our own");
    start({{5, true, 0, 0}});
    expect(starts(choice_of(t).why, "plan: an error the fake says so"), "why is told");
    start({plain});
    t = backward(2, 128, 4, 4, 64, 1000);
    expect(starts(choice_of(t).why, "the workspace of 1000 bytes is too small"), "no room");
    start({{2, false, 0, 8192}, {1, false, 0, 256}});
    expect(choice_of(forward(2, 128, 4, 4, 64, 4096)).engine == 1, "forward: the first engine that fits");
}

static void cut() {
    /* 8 samples of 4 heads, 128 × 64: 32 KiB of dQ's sum a head. Room for 4 samples and a little. */
    int64_t head = 128 * 64 * 4, rows = 128 * 4, part = 8 * (head + rows) + 256;
    backward t(8, 128, 4, 4, 64, 16 * (head + rows) + 4096);
    start({plain});
    expect(attention(t) && executed.size() == 4 && order == "FxxxxJ", "the batch goes in four, two at a time");
    int64_t quarter = 2 * 128 * 4 * 64 * 2;
    bool good = true;
    for (int i = 0; i < 4; i++) {
        for (int uid : {Q, K, V, O, GO, DQ, DK, DV})
            good = good && executed[i].at[uid] == (char *)(uid * G) + i * quarter;
        good = good && executed[i].at[LSE] == (char *)(LSE * G) + i * 2 * 4 * 128 * 4;
        char *work = (char *)(100 * G) + i % 2 * part;
        good = good && executed[i].at[DELTA] == work && executed[i].at[DQ_SUM] == work + 8 * rows;
        good = good && executed[i].workspace == work + 8 * (rows + head) && (executed[i].on == ours) == (i % 2 == 1);
    }
    expect(good, "every tensor moves by two samples, each of the two has a workspace");
    start({plain});
    t = backward(8, 128, 4, 4, 64, 2 * WORK);
    expect(attention(t) && order == "x" && executed[0].on != ours, "one part needs no other stream");

    /* one sample, 8 heads over 4 key heads: room for 4 heads */
    t = backward(1, 128, 8, 4, 64, 4 * (head + rows + 2 * 128 * 64 * 2) + 4096);
    start({{6, false, 0, 2 * 2 * 128 * 64 * 2}});
    expect(attention(t) && executed.size() == 4, "the heads of one sample go in four");
    expect(executed[1].at[Q] == (char *)(Q * G) + 2 * 64 * 2 && executed[1].at[K] == (char *)(K * G) + 64 * 2 &&
               executed[1].at[LSE] == (char *)(LSE * G) + 2 * 128 * 4 &&
               executed[3].at[DV] == (char *)(DV * G) + 3 * 64 * 2,
           "queries move by two heads, keys by one");

    /* more than was foreseen is wanted: smaller parts */
    t = backward(8, 128, 4, 4, 64, 16 * (head + rows) + 4096);
    start({{6, false, 0.9, 256}});
    expect(attention(t) && executed.size() == 8, "an engine that wants more goes in smaller parts");
}

static void pass() {
    start({plain});
    const backward good(2, 128, 4, 2, 64, WORK);
    backward t = good;
    expect(attention(t), "one for cuDNN");
    size_t n = living.size();
    expect(attention(t) && living.size() == n, "the second time it is planned already");
    t.args.scale = 0.25;
    expect(attention(t) && living.size() > n, "another scale, another plan");
    t = good, t.args.dropout = 0.1;
    expect(!attention(t), "dropout is ours");
    t = good, t.args.documents = bytes(101 * G, 2 * 128, INT32);
    expect(!attention(t), "documents are ours");
    t = good, t.args.bias = bytes(101 * G, 4, FP32);
    expect(!attention(t), "a bias is ours");
    t = good, t.args.v.shape[3] = t.args.o.shape[3] = t.args.g.shape[3] = t.args.dv.shape[3] = 32;
    expect(!attention(t), "values of another head size are ours");
    t = good, t.args.k.shape[1] = t.args.v.shape[1] = t.args.dk.shape[1] = t.args.dv.shape[1] = 64;
    expect(!attention(t), "causal rows of two lengths are ours");
    t.args.causal = 0;
    expect(attention(t), "rows of two lengths are cuDNN's where all is seen");
    t = good, t.args.q.dtype = FP32;
    expect(!attention(t), "fp32 is ours");
    t = good, t.args.dq.p = (char *)t.args.dq.p + 8;
    expect(!attention(t), "odd addresses are ours");
    t = good, t.args.k.stride[1] += 4;
    expect(!attention(t), "odd strides are ours");
    t = backward(2, 128, 4, 2, 60, WORK);
    expect(!attention(t), "a head size that is no multiple of 8 is ours");
    t = backward(2, 63, 4, 2, 64, WORK);
    expect(!attention(t), "few rows are ours");
    t = backward(2, 128, 4, 2, 264, WORK);
    expect(!attention(t), "a head size above 256 is ours");
    library.deterministic = true;
    expect(!attention(good), "a backward whose bits repeat is ours");
    expect(attention(forward(2, 128, 4, 2, 64, 4096)), "a forward repeats its bits");
    library.deterministic = false;
    library.major = 8;
    expect(attention(good), "an A100");
    library.major = 7;
    expect(!attention(forward(2, 128, 4, 2, 64, 4096)), "an old GPU");
}

/* It may be called where nothing is taken: what is said, or "". */
static std::string refusal(const backward &t) {
    jmp_buf there;
    refused = &there;
    *refused_why = 0;
    if (!setjmp(there)) attention(t);
    refused = NULL;
    return refused_why;
}

static void miss() {
    const backward whole_keys(2, 128, 4, 2, 64, WORK), tail(2, 200, 4, 2, 64, 2 * WORK);
    start({plain});
    library_missing = "libcudnn.so.9 is not there";
    expect(!attention(whole_keys) && living.empty(), "no cuDNN: ours");
    library.require_cudnn = true;
    expect(refusal(whole_keys) == library_missing, "no cuDNN, and it is required: refused");
    library_missing = NULL;
    expect(refusal(whole_keys).empty(), "it is required and there");
    start({plain});
    library_mixed = "its part is another's";
    expect(refusal(whole_keys) == library_mixed, "a part from elsewhere: refused");
    library_mixed = NULL;

    library_version = 91400;
    start({plain});
    sc_cudnn_choice c = choice_of(tail);
    expect(!c.taken && strstr(c.why, "beyond 200 keys"), "9.14: a backward of other than 128s of keys is ours");
    expect(attention(whole_keys), "9.14: one of 128s is cuDNN's");
    start({{2, false, 0, 256}});
    expect(choice_of(forward(2, 200, 4, 2, 64, 4096)).taken, "9.14: a forward is cuDNN's");
    start({plain});
    library.require_cudnn = true;
    expect(starts(refusal(tail).c_str(), "cuDNN 9.14.0 does not take its backward (2x200, 4 heads of 64): in a CUDA"),
           "9.14, and cuDNN is required: refused");
    library_version = 91501;
    start({plain});
    expect(attention(tail), "9.15.1: any number of keys");
    library_version = 91900;
}

int main() {
    choose();
    cut();
    pass();
    miss();
    start({});
    return closing();
}
