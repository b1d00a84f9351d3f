/* Weights under other names than the model's, more of them, or fewer: what is taken, what is refused, and what is said.
 * What is exported, and in which dtypes.
 * Relies on: host_run.h, runtime/host/folded.h.
 * Relied on by: make test. */
#include "../../runtime/host/folded.h"
#include "host_run.h"

TestSuite(host_weights, .init = enter, .fini = leave, .timeout = 60);

/* ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    const char *name;
    int dims;
    int64_t shape[4];
    int seed; /* of its values */
} Tensor;

enum { OURS = 6, MORE = 12 };
static const Tensor ours[OURS] = {{"embed.weight", 2, {16, 24}, 1}, {"head.weight", 2, {10, 7}, 2},
                                  {"position", 2, {5, 3}, 3},       {"layer.weight", 1, {700}, 4},
                                  {"layer.bias", 1, {3}, 5},        {"norm.mean", 1, {4}, 6}};

static int64_t size_of(const Tensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->dims; d++) n *= t->shape[d];
    return n;
}

static void write_tensors(const char *path, const Tensor *t, int n) {
    StHead h;
    size_t size;
    st_head_begin(&h, NULL, NULL);
    for (int i = 0; i < n; i++) st_head_add(&h, t[i].name, FP32, t[i].dims, t[i].shape);
    char *head = st_head_end(&h, &size);
    FILE *f = fopen(path, "w");
    fwrite(head, 1, size, f);
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; k < size_of(&t[i]); k++) fwrite(&(float){(float)(t[i].seed * 10000 + k)}, 4, 1, f);
    cr_assert_eq(fclose(f), 0);
    free(head);
}

/* The model's tensors under `prefix`, those from `first` on, and `n` more. */
static void write_model(const char *path, const char *prefix, int first, const Tensor *more, int n) {
    Tensor t[OURS + MORE];
    int k = 0;
    for (int i = first; i < OURS; i++) {
        char *name;
        cr_assert(asprintf(&name, "%s%s", prefix, ours[i].name) > 0); /* lives as long as the test */
        t[k] = ours[i];
        t[k++].name = name;
    }
    for (int i = 0; i < n; i++) t[k++] = more[i];
    write_tensors(path, t, k);
}

static void same_as(const char *line, const char *expected) {
    cr_assert_eq(run((How){2}, line), 0, "%s: %s", line, err);
    cr_assert(same_files("back.st", expected), "%s", line);
}

static void refused(const char *line, const char *message) {
    cr_assert_eq(run((How){2}, line), 1, "%s: %s", line, err);
    ONE_LINE(message);
}

#define GO(more) "--weights w.st --export back.st " more

/* ── tied and not tied ──────────────────────────────────────────────────────────────────────────────────────────────
 */
/* An embedding and a head of one shape; without the latter the head is the embedding. */
static void with_head(MockBuild *m) {
    m->params[0].shape[0] = 10, m->params[0].shape[1] = 7, m->params[0].numel = 70;
}
static void tied(MockBuild *m) {
    with_head(m);
    m->params[1] = m->params[--m->b.nparams];
}
static const Tensor alike[] = {{"embed.weight", 2, {10, 7}, 1}, {"position", 2, {5, 3}, 3},
                               {"layer.weight", 1, {700}, 4},   {"layer.bias", 1, {3}, 5},
                               {"norm.mean", 1, {4}, 6},        {"head.weight", 2, {10, 7}, 2}};

static int run_as(void (*change)(MockBuild *), const char *line) {
    return run((How){2, .change = change}, line);
}

/* The element of two exported tensors, of which both are fp32. */
static void same_tensor(const char *path, const char *one, const char *other, bool same) {
    StFile f;
    char error[ST_ERROR];
    float x[70] = {0}, y[70] = {1};
    cr_assert(st_open(&f, path, error), "%s", error);
    cr_assert(st_read(&f, st_find(&f, one), 0, 70, x) && st_read(&f, st_find(&f, other), 0, 70, y));
    cr_assert_eq(memcmp(x, y, sizeof x) == 0, same, "%s and %s", one, other);
    st_close(&f);
}

/* No advice leaves a head that begins at random. */
Test(host_weights, an_untied_model_on_tied_weights) {
    write_tensors("w.st", alike, 5);
    cr_assert_eq(run_as(with_head, GO()), 1);
    ONE_LINE(
        "mock: w.st: no tensor 'head.weight' there; 'embed.weight' has its shape, so these weights are tied, it seems: "
        "build the model with the two as one parameter (tied=true in models/llama3.lua and qwen2.lua), or let it "
        "begin as a copy: --weights-copy embed.weight=head.weight\n");
    cr_assert(!strstr(err, "--weights-partial"), "%s", err);
    cr_assert_eq(run_as(with_head, GO("--weights-copy embed.weight=head.weight")), 0, "%s", err);
    same_tensor("back.st", "embed.weight", "head.weight", true);
    cr_assert_eq(run_as(with_head, GO("--weights-partial")), 0, "%s", err);
    ONE_LINE(
        "stay as initialised (1): head.weight; 'head.weight' has the shape of 'embed.weight': where these weights are "
        "tied, --weights-copy embed.weight=head.weight\n");
    same_tensor("back.st", "embed.weight", "head.weight", false);
    cr_assert_eq(run_as(tied, GO()), 0, "%s", err);
    Tensor within[5]; /* transformer.wte.weight, and no lm_head.weight */
    for (int i = 0; i < 5; i++) {
        char *name;
        cr_assert(asprintf(&name, "transformer.%s", alike[i].name) > 0); /* lives as long as the test */
        within[i] = alike[i];
        within[i].name = name;
    }
    write_tensors("inner.st", within, 5);
    cr_assert_eq(run_as(with_head, "--weights inner.st --export back.st"), 1);
    cr_assert(strstr(err, "have 'transformer.' before their names there") &&
                  strstr(err, "no tensor 'head.weight' there; "
                              "'embed.weight' has its shape, so these weights are tied, it seems"),
              "%s", err);
    cr_assert_eq(run_as(with_head, "--weights inner.st --export back.st --weights-copy embed.weight=head.weight"), 0,
                 "%s", err);
    same_tensor("back.st", "embed.weight", "head.weight", true);
    const char *wrong[][2] = {
        {"--weights-copy embed.weight=hat.weight",
         "the model has no parameter 'hat.weight'; both are paths of the model"},
        {"--weights-copy tok.weight=head.weight",
         "the model has no parameter 'tok.weight'; both are paths of the model"},
        {"--weights-copy embed.weight=position", "the weights have 'position' themselves; leave this option out"}};
    for (int i = 0; i < 3; i++) {
        char line[256];
        snprintf(line, sizeof line, GO("%s"), wrong[i][0]);
        cr_assert_eq(run_as(with_head, line), 1, "%s", err);
        ONE_LINE(wrong[i][1]);
    }
    cr_assert_eq(run_as(with_head, GO("--weights-copy embed.*=head.*")), 0, "%s", err);
    same_tensor("back.st", "embed.weight", "head.weight", true);
    cr_assert_eq(run_as(with_head, GO("--weights-copy embed.*=hat.*")), 1);
    ONE_LINE("the model has no two parameters of such names; both are patterns of its paths");
    cr_assert_eq(run_as(with_head, GO("--weights-copy embed.*=head.weight")), 2);
    cr_assert(strstr(err, "--weights-copy wants FROM=TO, two names or two patterns with one * each, not"), "%s", err);
}

Test(host_weights, a_tied_model_on_weights_that_are_not) {
    write_tensors("w.st", alike, 6);
    cr_assert_eq(run_as(tied, GO()), 1);
    ONE_LINE(
        "mock: w.st: 'head.weight' is no parameter of this model; it has the shape of 'embed.weight' and other values, "
        "so these weights are not tied, it seems: build the model with two parameters (tied=false in "
        "models/llama3.lua and qwen2.lua), or leave it out with --weights-partial\n");
    cr_assert_eq(run_as(tied, GO("--weights-partial")), 0, "%s", err);
    ONE_LINE(
        "not used (1): head.weight; 'head.weight' has the shape of 'embed.weight' and other values: where the model "
        "ties the two, build it with two parameters");
    cr_assert_eq(run_as(with_head, GO()), 0, "%s", err);
    same_tensor("back.st", "embed.weight", "head.weight", false);
}

/* ── files as others write them ──────────────────────────────────────────────────────────────────────────────────────
 */
static void write_bytes(const char *path, const char *head, const void *data, size_t n) {
    uint64_t length = strlen(head);
    FILE *f = fopen(path, "w");
    fwrite(&length, 8, 1, f);
    fwrite(head, 1, length, f);
    fwrite(data, 1, n, f);
    cr_assert_eq(fclose(f), 0);
}

/* safetensors' save_model writes one tensor of those that share their memory, and the others' names as metadata. */
Test(host_weights, names_that_share_a_tensor) {
    write_tensors("plain.st", alike, 5);
    char error[ST_ERROR], *bytes = NULL;
    size_t size;
    FILE *f = fopen("plain.st", "r"), *to = open_memstream(&bytes, &size);
    for (int c; (c = getc(f)) != EOF;) putc(c, to);
    fclose(f);
    fclose(to);
    uint64_t length;
    memcpy(&length, bytes, 8);
    char *head;
    cr_assert(asprintf(&head, "{\"__metadata__\":{\"format\":\"pt\",\"head.weight\":\"embed.weight\"},%.*s",
                       (int)length - 1, bytes + 9) > 0);
    write_bytes("w.st", head, bytes + 8 + length, size - 8 - length);
    free(head);
    free(bytes);
    StFile st;
    cr_assert(st_open(&st, "w.st", error), "%s", error);
    st_close(&st);
    cr_assert_eq(run_as(with_head, GO()), 0, "%s", err);
    cr_assert_str_empty(err);
    same_tensor("back.st", "embed.weight", "head.weight", true);
}

/* torch.compile, FSDP and activation checkpointing put components into names, in front of them and within. */
Test(host_weights, wrappers_within_names) {
    write_model("plain.st", "", 0, NULL, 0);
    OK(2, "--weights plain.st --export expected.st");
    const Tensor names[] = {
        {"_orig_mod.module.embed.weight", 2, {16, 24}, 1},
        {"_orig_mod.module.head._orig_mod.weight", 2, {10, 7}, 2},
        {"_orig_mod.module.position", 2, {5, 3}, 3},
        {"_orig_mod.module.layer._fsdp_wrapped_module._checkpoint_wrapped_module.weight", 1, {700}, 4},
        {"_orig_mod.module.layer._checkpoint_wrapped_module.bias", 1, {3}, 5},
        {"_orig_mod.module.norm.mean", 1, {4}, 6}};
    write_tensors("w.st", names, 6);
    same_as(GO(), "expected.st");
    cr_assert(strstr(err, "note: w.st: names there hold wrappers of modules ('_orig_mod.module.") &&
                  strstr(err, "the model's parameters have 'module.' before their names there"),
              "%s", err);
    const Tensor own[] = {{"not_orig_mod.bias", 1, {3}, 5}};
    write_model("w.st", "", 0, own, 1);
    refused(GO(), "tensors that are no parameters of this model (1): not_orig_mod.bias");
}

static void named(MockBuild *m, int param, const char *path) {
    m->params[param].path = path;
}
static void of_the_field(MockBuild *m) {
    with_head(m);
    named(m, 0, "wpe.weight");
    named(m, 1, "k_proj.weight");
}
static void inner(MockBuild *m) {
    for (int i = 0; i < m->b.nparams; i++) {
        char *path;
        cr_assert(asprintf(&path, "model.%s", m->params[i].path) > 0); /* lives as long as the test */
        m->params[i].path = path;
    }
}

Test(host_weights, shapes_say_which_option) {
    Tensor other[] = {{"wpe.weight", 2, {20, 7}, 1}, {"k_proj.weight", 2, {10, 7}, 2}};
    write_tensors("w.st", other, 2);
    cr_assert_eq(run_as(of_the_field, GO("--weights-partial")), 1);
    ONE_LINE(
        "'wpe.weight' is [20,7] there and [10,7] in this build: set the model's options to the weights', or keep it "
        "out: --weights-map gives it a name that the model does not have (learned positions: positions, and seq is at "
        "most that)\n");
    other[0].shape[0] = 10, other[1].shape[0] = 5;
    write_tensors("w.st", other, 2);
    cr_assert_eq(run_as(of_the_field, GO("--weights-partial")), 1);
    ONE_LINE("'k_proj.weight' is [5,7] there and [10,7] in this build");
    cr_assert(strstr(err, "(kv_heads, head_dim)"), "%s", err);
    const Tensor turned[] = {{"head.weight", 2, {7, 10}, 2}};
    write_tensors("w.st", turned, 1);
    refused(
        GO("--weights-partial"),
        "'head.weight' is [7,10] there and [10,7] in this build: it lies the other way round: nn.Linear has [out,in], "
        "GPT-2's Conv1D [in,out]. Write the model with the module that the weights are of");
    write_model("w.st", "", 0, NULL, 0);
    cr_assert_eq(run_as(inner, GO()), 1);
    ONE_LINE(
        "no tensor 'model.embed.weight' there, but 'embed.weight': --weights-map '*=model.*' puts the model's prefix "
        "before the names; 5 are missing: model.embed.weight, model.head.weight, ");
    cr_assert_eq(run_as(inner, GO("--weights-map *=model.*")), 0, "%s", err);
}

/* ── dtypes ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
#define TENSOR(name, dtype, shape, begin, end)                                                                         \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

Test(host_weights, quantized_weights) {
    static const uint8_t bytes[512] = {0x38, 0x40, 0x7e}; /* 1, 2, 448 in fp8_e4m3 */
    const struct {
        const char *head, *says;
        size_t n;
    } cases[] = {
        {"{" TENSOR("layer.bias", "F8_E4M3", "[3]", 0, 3) "," TENSOR("layer.weight_scale_inv", "F32", "[1]", 3, 7) "}",
         "'layer.bias' is F8_E4M3 there and has a scale beside it, 'layer.weight_scale_inv': quantized weights: "
         "dequantize",
         7},
        {"{" TENSOR("layer.bias", "I8", "[3]", 0, 3) "}",
         "'layer.bias' is I8 there, which does not convert to bf16; integers are mostly quantized weights: dequantize",
         3},
        {"{" TENSOR("layer.bias", "U8", "[3]", 0, 3) "}", "'layer.bias' is U8 there, which does not convert to bf16;",
         3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_bytes("w.st", cases[i].head, bytes, cases[i].n);
        refused(GO("--weights-partial"), cases[i].says);
    }
    write_bytes("w.st",
                "{" TENSOR("layer.qweight", "I32", "[3]", 0, 12) "," TENSOR("layer.bias", "F32", "[3]", 12, 24) "}",
                bytes, 24);
    refused(GO(), "no tensor 'embed.weight' there, but 'layer.qweight': quantized weights: dequantize them first");
    write_model("w.st", "", 0, (const Tensor[]){{"layer.weight_scale_inv", 1, {3}, 8}}, 1);
    refused(GO(),
            "tensors that are no parameters of this model (1): layer.weight_scale_inv: quantized weights: dequantize");
    write_bytes("w.st", "{" TENSOR("layer.bias", "F8_E4M3", "[3]", 0, 3) "}", bytes, 3);
    OK(2, GO("--weights-partial"));
    cr_assert(strstr(err, "note: 1 tensors are fp8 and have no scale beside them: they are read as they are\n"), "%s",
              err);
    StFile f;
    char error[ST_ERROR];
    uint16_t bias[3] = {0};
    cr_assert(st_open(&f, "back.st", error), "%s", error);
    cr_assert(st_read(&f, st_find(&f, "layer.bias"), 0, 3, bias));
    cr_assert(bias[0] == 0x3f80 && bias[1] == 0x4000 && bias[2] == 0x43e0, "%x %x %x", bias[0], bias[1], bias[2]);
    st_close(&f);
}

static void half_precision(MockBuild *m) {
    m->units[1].dtype = FP16;
}

Test(host_weights, numbers_that_do_not_fit) {
    static const float large[3] = {1, 70000, 2};
    write_bytes("w.st", "{" TENSOR("layer.bias", "F32", "[3]", 0, 12) "}", large, 12);
    cr_assert_eq(run_as(half_precision, GO("--weights-partial")), 1);
    cr_assert(
        strstr(err, "mock: w.st: 'layer.bias' holds 70000, which fp16 cannot: store the parameter in fp32 or bf16"),
        "%s", err);
    OK(2, GO("--weights-partial"));
    cr_assert_eq(system("cp back.st before.st"), 0);
    cr_assert_eq(run((How){2}, GO("--weights-partial --export-dtype fp16 --quiet")), 1);
    cr_assert(strstr(err,
                     "mock: cannot export to back.st: 'layer.bias' holds a number that the dtype of --export-dtype "
                     "cannot; export it in bf16 or fp32; what was there is untouched\n"),
              "%s", err);
    cr_assert(same_files("back.st", "before.st") && access("back.st.part", F_OK) != 0);
}

/* To nearest, ties to even, in integers: not with the runtime's own conversion. */
static uint16_t to_bf16(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static const StTensor *exported(StFile *f, const char *path, const char *name) {
    char error[ST_ERROR];
    cr_assert(st_open(f, path, error), "%s", error);
    const StTensor *t = st_find(f, name);
    cr_assert_not_null(t);
    return t;
}

Test(host_weights, exported_dtypes) {
    StFile f;
    uint16_t half[384];
    write_model("w.st", "", 0, NULL, 0);
    OK(2, GO());
    cr_assert(strstr(out, "\nexport   back.st in fp32 and bf16, as the parameters are kept; the weights were fp32 "
                          "(--export-dtype loaded writes those)\n"),
              "%s", out);
    OK(2, GO("--export-dtype bf16"));
    cr_assert(strstr(out, "\nexport   back.st in bf16; the weights were fp32 (--export-dtype loaded writes those)\n"),
              "%s", out);
    cr_assert_str_eq(exported(&f, "back.st", "embed.weight")->dtype, "BF16");
    cr_assert_str_eq(st_metadata(&f, "format"), "pt");
    cr_assert(st_read(&f, st_find(&f, "embed.weight"), 0, 384, half));
    for (int i = 0; i < 384; i++) cr_assert_eq(half[i], to_bf16((float)(10000 + i)), "element %d: %x", i, half[i]);
    st_close(&f);
    OK(2, "--weights back.st --export again.st --export-dtype loaded"); /* what was loaded, bit for bit */
    cr_assert(strstr(out, "\nexport   again.st in bf16\n"), "%s", out);
    cr_assert(same_files("back.st", "again.st"));
    OK(2, "--weights back.st --export wide.st --export-dtype fp32 --quiet");
    OK(2, "--weights wide.st --export again.st --export-dtype bf16 --quiet");
    cr_assert(same_files("back.st", "again.st"));
    for (int i = 0; i < OURS; i++) cr_assert_str_eq(exported(&f, "wide.st", ours[i].name)->dtype, "F32");
    OK(2, GO("--export-dtype fp16 --quiet"));
    cr_assert_str_eq(exported(&f, "back.st", "norm.mean")->dtype, "F16");
    cr_assert(st_read(&f, st_find(&f, "norm.mean"), 0, 4, half));
    for (int i = 0; i < 4; i++) cr_assert_eq(half[i], 0x7b53, "%x", half[i]); /* 60000, the nearest of 59968 + 32n */
    cr_assert_eq(run((How){2}, "--data a.bin --export x --export-dtype loaded"), 2);
    ONE_LINE("--export-dtype loaded: no weights are loaded here; give --weights FILE..., or a dtype");
    cr_assert_eq(run((How){2}, "--resume s --export x --export-dtype loaded"), 2);
    ONE_LINE(
        "--export-dtype loaded: no weights are loaded here, because --resume restores them from the state; name the "
        "dtype, such as bf16");
    cr_assert_eq(run((How){2}, "--export x --export-dtype int8"), 2);
    cr_assert(strstr(err, "--export-dtype wants fp32, bf16, fp16 or loaded, not 'int8'"), "%s", err);
}

/* ── what shapes do not prove ────────────────────────────────────────────────────────────────────────────────────────
 */
static void with_heads(MockBuild *m) {
    m->b.unproven = "heads 2 of 8, eps 1e-05";
}

Test(host_weights, what_no_shape_shows) {
    write_model("w.st", "", 0, NULL, 0);
    cr_assert_eq(run_as(with_heads, GO()), 0, "%s", err);
    cr_assert(strstr(out,
                     "\nweights  6 tensors of fp32 in 1 file; no shape shows: heads 2 of 8, eps 1e-05 (compare with "
                     "config.json)\n"),
              "%s", out);
    cr_assert_eq(run_as(with_heads, GO("--quiet")), 0, "%s", err);
    cr_assert_str_empty(out);
    cr_assert_str_empty(err);
    OK(2, GO());
    cr_assert(strstr(out, "\nweights  6 tensors of fp32 in 1 file\n"), "%s", out);
}

static void square_position(MockBuild *m) {
    m->params[2].shape[0] = m->params[2].shape[1] = 4, m->params[2].numel = 16;
    m->b.unproven = "square matrices [out,in]";
}
static void square_conv(MockBuild *m) {
    square_position(m);
    m->b.unproven = "square matrices [in,out]";
}

/* GPT-2's layout is told by the names and shapes beside a square matrix. */
Test(host_weights, square_matrices_that_lie_the_other_way) {
    Tensor two[] = {{"h.0.c_attn.weight", 2, {4, 12}, 1}, {"position", 2, {4, 4}, 3}};
    write_tensors("w.st", two, 2);
    cr_assert_eq(run_as(square_position, GO("--weights-partial")), 0, "%s", err);
    cr_assert(strstr(err,
                     "note: w.st: 'h.0.c_attn.weight' is [in,out] there, as in GPT-2's Conv1D, and this model reads "
                     "square matrices such as 'position' as [out,in]: transpose those first\n"),
              "%s", err);
    cr_assert_eq(run_as(square_conv, GO("--weights-partial")), 0, "%s", err);
    cr_assert(!strstr(err, "Conv1D"), "%s", err);
    two[0].shape[0] = 12, two[0].shape[1] = 4; /* as nanoGPT's */
    write_tensors("w.st", two, 2);
    cr_assert_eq(run_as(square_position, GO("--weights-partial")), 0, "%s", err);
    cr_assert(!strstr(err, "Conv1D"), "%s", err);
}

/* ── what people take for safetensors ────────────────────────────────────────────────────────────────────────────────
 */
Test(host_weights, other_formats) {
    const struct {
        const char *bytes, *says;
        size_t n;
    } cases[] = {
        {"PK\3\4\0\0\10\10\0\0\0\0", "w.st: it is a file of torch.save or another zip archive: save its tensors with",
         12},
        {"PK\3\4\24\0\0\0\0\0\0\0", "w.st: it is a file of torch.save or another zip archive", 12},
        {"\x80\2\x8a\nl\xfc\x9c"
         "F\xf9 j\xa8",
         "w.st: it is a pickle, as older torch.save writes", 12},
        {"\x89"
         "HDF\r\n\x1a\n\0\0\0\0",
         "w.st: it is an HDF5 file", 12},
        {"\x93NUMPY\1\0v\0{'descr'", "w.st: it is an array of NumPy", 18},
        {"GGUF\3\0\0\0\x23\1\0\0", "w.st: it is a GGUF file, for inference: take the release in safetensors", 12},
        {"version https://git-lfs.github.com/spec/v1\n",
         "w.st: it is a pointer of Git LFS, not the file itself: git lfs pull", 43},
        {"<!DOCTYPE html><html>", "w.st: it is a page of HTML or XML, not the file itself", 21},
        {"{\"model_type\": 0}", "w.st: it is JSON, such as a configuration: name the files of tensors", 17},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FILE *f = fopen("w.st", "w");
        fwrite(cases[i].bytes, 1, cases[i].n, f);
        cr_assert_eq(fclose(f), 0);
        refused(GO(), cases[i].says);
    }
    cr_assert_eq(mkdir("folder", 0777), 0);
    refused("--weights folder --export back.st", "folder: no model.safetensors.index.json, model.safetensors or other");
}

/* ── more tensors than the model has ─────────────────────────────────────────────────────────────────────────────────
 */
Test(host_weights, tensors_that_the_model_lacks_are_refused) {
    const Tensor layers[] = {{"layer.1.bias", 1, {3}, 7}, {"layer.2.bias", 1, {3}, 8}, {"layer.3.bias", 1, {3}, 9},
                             {"embed.bias", 1, {24}, 10}, {"x.1.up.5", 1, {2}, 11},    {"x.2.up.4", 1, {2}, 11}};
    write_model("w.st", "", 0, layers, 6);
    refused(GO(),
            "mock: w.st: tensors that are no parameters of this model (6): embed.bias, layer.1-3.bias (3), x.*.up.* "
            "(2); set the model's options to the weights'");
    write_model("plain.st", "", 0, NULL, 0);
    OK(2, "--weights plain.st --export plain-back.st");
    cr_assert_str_empty(err);
    same_as(GO("--weights-partial"), "plain-back.st");
    ONE_LINE("note: --weights-partial: tensors of w.st that are not used (6): embed.bias, layer.1-3.bias (3), x.*.up.* "
             "(2)\n");
}

/* Masks, tables of positions, tied weights: what Hugging Face's files hold beside parameters. */
/* model.safetensors.index.json names the files; which tensor lies where they say themselves. */
Test(host_weights, an_index_of_several_files) {
    write_model("w.st", "", 0, NULL, 0);
    OK(2, "--weights w.st --export expected.st");
    cr_assert_eq(mkdir("m", 0777), 0);
    write_tensors("m/1.st", ours, 2);
    write_tensors("m/2.st", ours + 2, OURS - 2);
    static const struct {
        const char *index, *message;
    } cases[] = {
        {"{\"weight_map\": {\"embed.weight\": \"1.st\", \"head.weight\": \"1.st\", \"position\": \"2.st\"}}", NULL},
        {"{\"metadata\": {}, \"weight_map\": {\"a\": \"2.st\", \"b\": \"1.st\"}}", NULL},
        {"{\"weight_map\": {\"a\": \"2.st\"}}", "m/2.st: no tensor 'embed.weight' there"},
        {"{\"weight_map\": {\"a\": \"1.st\", \"b\": \"3.st\"}}",
         "m/index.json: 3.st, which it names, is not there: copy all 2 files beside it"},
        {"{\"weight_map\": {\"a\": \"../1.st\"}}", "says of 'a' no name of a file beside it"},
        {"{\"weight_map\": {\"a\": 7}}", "says of 'a' no name of a file beside it"},
        {"{\"weight_map\": {}}", "its weight_map names no tensor"},
        {"{\"weight_map\": {\"a\": \"pytorch_model-1.bin\"}}", "the index of files of torch.save"},
        {"{\"weight_map\": {\"a\": \"index.json\"}}", "m/index.json: "}, /* no index in an index */
        {"{\"weight_map\": []}", "m/index.json: "},
        {"{\"weight_map\": {\"a\": ", "m/index.json: "},
        {"{}", "m/index.json: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file("m/index.json", cases[i].index, strlen(cases[i].index));
        if (cases[i].message)
            refused("--weights m/index.json --export back.st", cases[i].message);
        else
            same_as("--weights m/index.json --export back.st", "expected.st");
    }
}

Test(host_weights, tables_and_tied_weights_are_no_surplus) {
    const Tensor tables[] = {{"h.0.attn.bias", 4, {1, 1, 8, 8}, 7},     {"h.1.attn.bias", 4, {1, 1, 8, 8}, 7},
                             {"h.0.attn.masked_bias", 0, {0}, 8},       {"layers.0.rotary_emb.inv_freq", 1, {4}, 9},
                             {"embeddings.position_ids", 2, {1, 8}, 9}, {"bn.num_batches_tracked", 0, {0}, 0},
                             {"lm_head.weight", 2, {16, 24}, 1}};
    write_model("w.st", "", 0, tables, 7);
    OK(2, GO());
    ONE_LINE("note: tensors of w.st that are not used (7), masks, tables or copies that the model makes itself: "
             "bn.num_batches_tracked, "
             "embeddings.position_ids, h.0-1.attn.bias (2), h.0.attn.masked_bias, layers.0.rotary_emb.inv_freq, "
             "lm_head.weight\n");
    const Tensor others[] = {
        {"h.0.attn.bias", 1, {64}, 7}, {"lm_head.weight", 2, {16, 24}, 8}, {"zero.bias", 1, {3}, 5}};
    for (int i = 0; i < 3; i++) { /* a bias, untied weights, a vector that is equal by chance */
        write_model("w.st", "", 0, &others[i], 1);
        refused(GO(), i == 1
                          ? "w.st: 'lm_head.weight' is no parameter of this model; it has the shape of 'embed.weight'"
                          : "w.st: tensors that are no parameters of this model (1): ");
        cr_assert(strstr(err, others[i].name), "%s", err);
    }
}

/* ── fewer ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(host_weights, a_part_of_the_model) {
    write_model("w.st", "", 2, NULL, 0);
    refused(GO(),
            "no tensor 'embed.weight' there (nearest: 'layer.weight'): a path of the model must be the tensor's name; "
            "--weights-map says which other name it has there, --weights-partial leaves it as initialised");
    OK(2, GO("--weights-partial --seed 3"));
    ONE_LINE("note: --weights-partial: parameters that are not in w.st and stay as initialised (2): embed.weight, "
             "head.weight\n");
    OK(2, "--export fresh.st --seed 3");
    StFile f[3];
    char error[ST_ERROR];
    const char *paths[] = {"back.st", "fresh.st", "w.st"};
    for (int i = 0; i < 3; i++) cr_assert(st_open(&f[i], paths[i], error));
    for (int i = 0; i < OURS; i++) {
        float x[1000] = {0}, y[1000] = {0};
        const StFile *from = &f[i < 2 ? 1 : 2];
        if (i == 3 || i == 4) continue; /* bf16 in the model */
        cr_assert(st_read(&f[0], st_find(&f[0], ours[i].name), 0, size_of(&ours[i]), x));
        cr_assert(st_read(from, st_find(from, ours[i].name), 0, size_of(&ours[i]), y));
        cr_assert_arr_eq(x, y, sizeof x, "%s", ours[i].name);
    }
    write_model("inner.st", "transformer.", 2, NULL, 0);
    OK(2, "--weights inner.st --export within.st --weights-partial --seed 3");
    cr_assert(strstr(err, "the model's parameters have 'transformer.' before their names there") &&
                  same_files("back.st", "within.st"),
              "%s", err);
    const Tensor wrong[] = {{"head.weight", 2, {11, 7}, 2}};
    write_model("w.st", "", 2, wrong, 1);
    refused(GO("--weights-partial"),
            "'head.weight' is [11,7] there and [10,7] in this build: set the model's options to the "
            "weights', or keep it out: --weights-map gives it a name");
    same_as(GO("--weights-partial --seed 3 --weights-map head.weight=none"), "within.st");
    write_tensors("w.st", wrong, 0);
    refused(GO("--weights-partial"), "w.st: it has no parameter of this model: neither 'embed.weight' nor any other");
    write_model("w.st", "other.", 5, NULL, 0);
    refused(GO("--weights-partial"), "w.st: it has no parameter of this model: neither 'embed.weight' nor any other");
}

/* ── other names ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(host_weights, maps) {
    write_model("plain.st", "", 0, NULL, 0);
    OK(2, "--weights plain.st --export expected.st");
    write_model("w.st", "base.", 0, NULL, 0);
    same_as(GO("--weights-map base.*=*"), "expected.st");
    cr_assert_str_empty(err, "%s", err);
    write_model("w.st", "base.transformer.", 0, NULL, 0); /* a model within another, as without a map */
    same_as(GO("--weights-map base.*=*"), "expected.st");
    ONE_LINE("the model's parameters have 'transformer.' before their names there");
    const Tensor names[] = {{"tok.w", 2, {16, 24}, 1}, {"out.w", 2, {10, 7}, 2}, {"pos", 2, {5, 3}, 3},
                            {"layer.w", 1, {700}, 4},  {"layer.b", 1, {3}, 5},   {"norm.mean", 1, {4}, 6}};
    write_tensors("w.st", names, 6);
    same_as(
        GO("--weights-map tok.w=embed.weight --weights-map out.*=head.*eight --weights-map *.w=*.weight --weights-map "
           "*.b=*.bias --weights-map pos=position"),
        "expected.st"); /* the first that matches: tok.w is no tok.weight, out.w becomes head.weight */
    const char *all =
        "--weights-map tok.w=embed.weight --weights-map out.w=head.weight --weights-map layer.*=layer.*eight";
    char line[512];
    snprintf(line, sizeof line, GO("%s --weights-map *.w=*.weight"), all);
    refused(line,
            "--weights-map '*.w=*.weight': no tensor of w.st has such a name, or a map before this one matches it");
    refused(GO("--weights-map tik.*=*"), "mock: --weights-map 'tik.*=*': no tensor of w.st has such a name\n");
    refused(GO("--weights-map *.w=same.w*"),
            "--weights-map '*.w=same.w*': it turns 'tok.w' of w.st into 'same.wtok', and the model has no parameter of "
            "that name; what follows the = is a path of the model");
    refused("--weights plain.st --export back.st --weights-map *=wrong.*",
            "of plain.st into 'wrong.position', and the model has no parameter of that name");
    refused(
        GO("--weights-map tok.w=head.weight --weights-map out.w=head.weight"),
        "'out.w' of w.st and 'tok.w' of w.st are both called 'head.weight' here, and differ: name other files, or give "
        "another --weights-map");
    const Tensor tied[] = {{"tok.w", 2, {16, 24}, 1}, {"lm.w", 2, {16, 24}, 1}}; /* one tensor under two names */
    write_model("w.st", "", 1, tied, 2);
    same_as(GO("--weights-map tok.w=embed.weight --weights-map lm.w=embed.weight"), "expected.st");
    write_tensors("v.st", &names[5], 1);
    same_as("--weights plain.st --weights v.st --export back.st", "expected.st"); /* the same tensor in both */
    const Tensor other = {"norm.mean", 1, {4}, 7};
    write_tensors("v.st", &other, 1);
    refused("--weights plain.st --weights v.st --export back.st",
            "'norm.mean' of plain.st and 'norm.mean' of v.st are both called 'norm.mean' here");
}

/* ── lists of names ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(host_weights, folded_names) {
    char name[300][32];
    const char *names[300];
    for (int i = 0; i < 300; i++) {
        snprintf(name[i], sizeof name[i], "h.%d.a%d", i % 10, i / 10);
        names[i] = name[i];
    }
    char *text = folded(names, 300);
    cr_assert(strstr(text, "h.0-9.a0 (10), h.0-9.a1 (10), ") == text && strstr(text, "h.0-9.a23 (10) and 60 more"),
              "%s", text);
    free(text);
    text = folded((const char *[]){"h.1.x", "h.3.x", "7", "9"}, 4);
    cr_assert_str_eq(text, "h.*.x (2), * (2)");
    free(text);
}
