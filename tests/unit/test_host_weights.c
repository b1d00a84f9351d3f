/* Weights under other names than the model's, more of them, or fewer: what is taken, what is refused, and what is said.
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
        refused(GO(), "w.st: tensors that are no parameters of this model (1): ");
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
