/* What the GPU tests share: tensors with known bytes round and between their elements, comparison, the closing count.
 * Relies on: the CUDA runtime (or emulate/), sc.h, schema/math.h's conversions.
 * Relied on by: tests/gpu/test_*.cu. */
#ifndef SC_GPU_CHECK_H
#define SC_GPU_CHECK_H

#include "../../runtime/cuda/cuda.h"
#include "../../runtime/schema/math.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>

static int passed, failed;

static inline bool verdict(bool good, const char *what, const char *detail) {
    printf("%s %s%s%s\n", good ? "ok  " : "FAIL", what, *detail ? ": " : "", detail);
    (good ? passed : failed)++;
    fflush(stdout);
    return good;
}
static inline int closing() {
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}

/* The runtime's way out of errors. A test that expects a refusal sets `refused` to where it goes on. */
#include <setjmp.h>
static jmp_buf *refused;
static char refused_why[1024];
extern "C" void sc_failed(const char *library, const char *call, const char *error, const char *text, const char *file,
                          int line) {
    printf("FAIL %s: %s: %s (%s) at %s:%d\n", library, call, error, text, file, line);
    exit(1);
}
extern "C" void sc_unsupported(const sc_task *t, const char *kernel, const char *why) {
    (void)t;
    snprintf(refused_why, sizeof refused_why, "%s", why);
    if (refused) longjmp(*refused, 1);
    printf("FAIL %s refuses: %s\n", kernel, why);
    exit(1);
}

/* ── numbers ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static uint64_t seed_of_test = 1;
static inline double uniform() { /* [-1, 1) */
    seed_of_test += 0x9e3779b97f4a7c15ull;
    uint64_t x = seed_of_test;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return (double)(int64_t)(x ^ (x >> 31)) / 9223372036854775808.0;
}
static inline double normal() {
    double s = 0;
    for (int i = 0; i < 6; i++) s += uniform();
    return s / sqrt(2.0);
}
static inline int bytes_of_dtype(int d) {
    return (int)sc_size((sc_dtype)d);
}
static inline void encode(int d, void *to, double x) {
    if (d == FP32) *(float *)to = (float)x;
    if (d == BF16) *(uint16_t *)to = sc_to_bf16((float)x);
    if (d == FP16) *(uint16_t *)to = sc_to_fp16((float)x);
    if (d == FP8_E4M3) *(uint8_t *)to = sc_to_fp8_e4m3((float)x);
    if (d == FP8_E5M2) *(uint8_t *)to = sc_to_fp8_e5m2((float)x);
    if (d == INT32) *(int32_t *)to = (int32_t)x;
    if (d == INT64) *(int64_t *)to = (int64_t)x;
    if (d == INT8) *(int8_t *)to = (int8_t)x;
    if (d == BOOL) *(uint8_t *)to = x != 0;
}
static inline double decode(int d, const void *from) {
    if (d == FP32) return *(const float *)from;
    if (d == BF16) return sc_from_bf16(*(const uint16_t *)from);
    if (d == FP16) return sc_from_fp16(*(const uint16_t *)from);
    if (d == FP8_E4M3) return sc_from_fp8_e4m3(*(const uint8_t *)from);
    if (d == FP8_E5M2) return sc_from_fp8_e5m2(*(const uint8_t *)from);
    if (d == INT32) return *(const int32_t *)from;
    if (d == INT64) return (double)*(const int64_t *)from;
    if (d == INT8) return *(const int8_t *)from;
    if (d == BOOL) return *(const uint8_t *)from;
    return 0;
}
static inline const char *dtype_text(int d) {
    return d == FP32       ? "fp32"
           : d == BF16     ? "bf16"
           : d == FP16     ? "fp16"
           : d == INT8     ? "int8"
           : d == INT32    ? "int32"
           : d == INT64    ? "int64"
           : d == FP8_E4M3 ? "e4m3"
           : d == FP8_E5M2 ? "e5m2"
                           : "bool";
}

/* ── tensors ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
enum { ZONE = 256 };
typedef std::vector<int64_t> extents;

struct tensor {
    sc_tensor t;
    std::vector<double> x; /* values in row-major order, as rounded */
    std::vector<unsigned char> image;
    char *base;
};

/* An optional operand or result of an op. */
static inline sc_tensor given(bool there, const tensor &a) {
    return there ? a.t : sc_tensor{};
}
static inline int64_t count(const tensor &a) {
    int64_t n = 1;
    for (int d = 0; d < a.t.dims; d++) n *= a.t.shape[d];
    return n;
}
static inline int64_t place(const tensor &a, int64_t element) {
    int64_t at = 0;
    for (int d = a.t.dims - 1; d >= 0; d--) {
        at += element % a.t.shape[d] * a.t.stride[d];
        element /= a.t.shape[d];
    }
    return at;
}
static inline extents contiguous(const extents &shape) {
    extents s(shape.size(), 1);
    for (int d = (int)shape.size() - 2; d >= 0; d--) s[d] = s[d + 1] * shape[d + 1];
    return s;
}
/* Without memory unless it is given some; no strides: contiguous. */
static inline sc_tensor described(int dtype, const extents &shape, const extents &stride = {}, void *p = NULL) {
    sc_tensor t = {};
    extents s = stride.empty() ? contiguous(shape) : stride;
    t.there = 1;
    t.dtype = (uint8_t)dtype;
    t.dims = (uint8_t)shape.size();
    t.p = p;
    for (size_t d = 0; d < shape.size(); d++) t.shape[d] = shape[d], t.stride[d] = s[d];
    return t;
}
/* Elements from the first to the last one in memory. */
static inline int64_t reach_of(const sc_tensor &t) {
    int64_t last = 0;
    for (int d = 0; d < t.dims; d++) last += (t.shape[d] - 1) * t.stride[d];
    return last + 1;
}
/* A tensor on the device; `shift` elements after an aligned address; every byte 0xa5 (a NaN-free, visible pattern). */
static inline tensor make(int dtype, const extents &shape, const extents &stride = {}, int64_t shift = 0) {
    tensor a = {};
    a.t = described(dtype, shape, stride);
    int64_t size = bytes_of_dtype(dtype), lead = ZONE + shift * size;
    a.image.assign((size_t)(lead + reach_of(a.t) * size + ZONE), 0xa5);
    SC_CUDA(cudaMalloc((void **)&a.base, a.image.size()));
    a.t.p = a.base + lead;
    a.x.assign((size_t)count(a), 0);
    return a;
}
static inline unsigned char *in_image(tensor &a, int64_t element) {
    return a.image.data() + ((char *)a.t.p - a.base) + place(a, element) * bytes_of_dtype(a.t.dtype);
}
static inline void upload(tensor &a) {
    SC_CUDA(cudaMemcpy(a.base, a.image.data(), a.image.size(), cudaMemcpyHostToDevice));
}
template <class F> static void fill(tensor &a, F value) {
    for (int64_t i = 0; i < count(a); i++) encode(a.t.dtype, in_image(a, i), value());
    for (int64_t i = 0; i < count(a); i++) a.x[(size_t)i] = decode(a.t.dtype, in_image(a, i)); /* rows may overlap */
    upload(a);
}
/* Reads the values back; false where a byte outside them has changed. */
static inline bool fetch(tensor &a) {
    std::vector<unsigned char> now(a.image.size());
    SC_CUDA(cudaMemcpy(now.data(), a.base, now.size(), cudaMemcpyDeviceToHost));
    int size = bytes_of_dtype(a.t.dtype);
    for (int64_t i = 0; i < count(a); i++) {
        unsigned char *was = in_image(a, i), *is = now.data() + (was - a.image.data());
        a.x[(size_t)i] = decode(a.t.dtype, is);
        memcpy(was, is, size);
    }
    return now == a.image;
}
static inline void release(tensor &a) {
    if (a.base) SC_CUDA(cudaFree(a.base));
    a.base = NULL;
}

/* ── launches ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
template <class ARGS>
static sc_task task_of(const ARGS &args, int slots, cudaStream_t stream, sc_cuda *library, const void *record = NULL) {
    sc_task t = {};
    t.args = (const sc_args *)&args;
    t.slots = slots;
    t.record = (const sc_record *)record;
    static const sc_coord alone[2] = {{0, 1}, {0, 1}};
    t.world = t.parts = 1;
    t.coord = alone;
    t.stream = stream;
    t.library = library;
    return t;
}

/* Captures what f() launches into a graph (here: runs it) and launches that so often; milliseconds of the last time. */
template <class F> static double in_graph(cudaStream_t stream, int times, F f) {
    float ms = 0;
#ifdef SC_EMULATE
    for (int i = 0; i < times; i++) f();
    SC_CUDA(cudaStreamSynchronize(stream));
#else
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    SC_CUDA(cudaEventCreate(&begin));
    SC_CUDA(cudaEventCreate(&end));
    SC_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    f();
    SC_CUDA(cudaStreamEndCapture(stream, &graph));
    SC_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < times; i++) {
        SC_CUDA(cudaEventRecord(begin, stream));
        SC_CUDA(cudaGraphLaunch(exec, stream));
        SC_CUDA(cudaEventRecord(end, stream));
    }
    SC_CUDA(cudaStreamSynchronize(stream));
    SC_CUDA(cudaEventElapsedTime(&ms, begin, end));
    SC_CUDA(cudaGraphExecDestroy(exec));
    SC_CUDA(cudaGraphDestroy(graph));
    SC_CUDA(cudaEventDestroy(begin));
    SC_CUDA(cudaEventDestroy(end));
#endif
    return ms;
}

#ifndef SC_EMULATE
/* Of one launch(), without a graph. */
template <class F> static double milliseconds(cudaStream_t stream, F launch) {
    enum { TIMES = 10 };
    cudaEvent_t begin, end;
    float ms;
    SC_CUDA(cudaEventCreate(&begin));
    SC_CUDA(cudaEventCreate(&end));
    for (int i = 0; i < 3; i++) launch();
    SC_CUDA(cudaEventRecord(begin, stream));
    for (int i = 0; i < TIMES; i++) launch();
    SC_CUDA(cudaEventRecord(end, stream));
    SC_CUDA(cudaStreamSynchronize(stream));
    SC_CUDA(cudaEventElapsedTime(&ms, begin, end));
    SC_CUDA(cudaEventDestroy(begin));
    SC_CUDA(cudaEventDestroy(end));
    return ms / TIMES;
}
#endif

/* For timing: contiguous, on the device only, one million values over and over. */
static inline tensor noise(int dtype, const extents &shape) {
    tensor a = {};
    a.t = described(dtype, shape);
    size_t size = (size_t)bytes_of_dtype(dtype), all = (size_t)count(a) * size;
    std::vector<unsigned char> some((1 << 20) * size);
    for (size_t i = 0; i < 1 << 20; i++) encode(dtype, &some[i * size], normal());
    SC_CUDA(cudaMalloc((void **)&a.base, all));
    for (size_t at = 0; at < all; at += some.size())
        SC_CUDA(cudaMemcpy(a.base + at, some.data(), all - at < some.size() ? all - at : some.size(),
                           cudaMemcpyHostToDevice));
    a.t.p = a.base;
    return a;
}

/* Largest and mean square error, each relative to that of what is wanted; appended to `text` where too large. */
static inline bool close_to(std::string &text, const char *name, const std::vector<double> &got,
                            const std::vector<double> &want, double most, double rms) {
    double error = 0, top = 0, square = 0, power = 0;
    for (size_t i = 0; i < want.size(); i++) {
        double d = fabs(got[i] - want[i]);
        if (!(d <= error)) error = d; /* a NaN sticks */
        top = fmax(top, fabs(want[i]));
        square += d * d;
        power += want[i] * want[i];
    }
    double e = top > 0 ? error / top : error, r = power > 0 ? sqrt(square / power) : sqrt(square);
    bool good = e <= most && r <= rms;
    char line[160];
    snprintf(line, sizeof line, "%s%s %.1e/%.1e%s", text.empty() ? "" : ", ", name, e, r, good ? "" : " TOO LARGE");
    text += line;
    return good;
}

#endif
