/* What stands beside the weights in a folder that from_pretrained, or peft, loads: config.json and the tokenizer's
 * files of the folder that the weights came from, or adapter_config.json. Relies on: args, die, file.h, jansson. Relied
 * on by: export. */
#include "export_folder.h"
#include "../file.h"
#include "die.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *export_folder_of(const Options *o) {
    struct stat st;
    if (o->export_like) return o->export_like;
    for (int i = 0; i < o->weights.n; i++)
        if (stat(o->weights.at[i], &st) == 0 && S_ISDIR(st.st_mode)) return o->weights.at[i];
    return NULL;
}

/* diffusers' config.json names a class, and no type of model. */
static bool of_diffusers(const json_t *config) {
    return json_object_get(config, "_class_name") && !json_object_get(config, "model_type");
}

const char *export_folder_stem(const Options *o) {
    const char *from = export_folder_of(o);
    char *path = from ? need_text("%s/config.json", from) : NULL;
    json_t *j = path && access(path, R_OK) == 0 ? json_load_file(path, 0, NULL) : NULL;
    bool diffusers = of_diffusers(j);
    json_decref(j);
    free(path);
    return diffusers ? "diffusion_pytorch_model" : "model";
}

static const char *dtype_word(const sc_build *b, const sc_dtype *dtypes) {
    static const char *const words[N_DTYPES] = {[FP32] = "float32", [BF16] = "bfloat16", [FP16] = "float16"};
    for (int i = 0; i < b->nparams; i++)
        if (dtypes[i] != N_DTYPES && b->params[i].trainable && words[dtypes[i]]) return words[dtypes[i]];
    for (int i = 0; i < b->nparams; i++)
        if (dtypes[i] != N_DTYPES && words[dtypes[i]]) return words[dtypes[i]];
    return "float32";
}

/* `path` in `folder` gets these bytes, aside and renamed. */
static bool put_file(const char *folder, const char *name, const void *bytes, size_t n) {
    sc_aside a;
    uint8_t *buffer = need(1, SC_ASIDE_BUFFER);
    char *path = need_text("%s/%s", folder, name);
    sc_aside_open(&a, path, buffer);
    sc_aside_write(&a, bytes, n);
    int error = sc_aside_commit(&a);
    if (error) complain("cannot export to %s: %s", path, strerror(error));
    free(buffer);
    free(path);
    return !error;
}

static bool put_json(const char *folder, const char *name, json_t *j) {
    char *text = json_dumps(j, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    bool ok = text && put_file(folder, name, text, strlen(text));
    if (!text) complain("cannot export %s/%s: out of memory", folder, name);
    free(text);
    json_decref(j);
    return ok;
}

/* A file that is not there is left out. */
static bool copy_file(const char *folder, const char *from, const char *name) {
    struct stat st;
    char why[256], *path = need_text("%s/%s", from, name);
    bool there = access(path, F_OK) == 0, ok = true;
    int fd = there ? sc_open_input(path, &st, why, sizeof why) : -1;
    if (there) {
        char *bytes = fd < 0 ? NULL : need((size_t)st.st_size + 1, 1);
        ok = fd >= 0 && sc_read_at(fd, bytes, (size_t)st.st_size, 0);
        if (!ok) complain("cannot read %s: %s", path, fd < 0 ? why : strerror(errno));
        ok = ok && put_file(folder, name, bytes, (size_t)st.st_size);
        free(bytes);
        if (fd >= 0) close(fd);
    }
    free(path);
    return ok;
}

static bool put_config(const char *folder, const char *from, const char *dtype) {
    json_error_t error;
    char *path = need_text("%s/config.json", from);
    json_t *j = access(path, R_OK) ? NULL : json_load_file(path, 0, &error);
    bool ok = true;
    if (!j) {
        note("%s has no config.json to copy: from_pretrained needs one beside %s", from, folder);
    } else {
        bool new = json_object_get(j, "dtype") != NULL;
        if (!of_diffusers(j)) json_object_set_new(j, new ? "dtype" : "torch_dtype", json_string(dtype));
        ok = put_json(folder, "config.json", j);
    }
    free(path);
    return ok;
}

/* What peft's LoraConfig needs: the rank and scale of the first adapter, and the modules that have one. */
static bool put_adapter_config(const char *folder, const char *from, const sc_build *b) {
    const sc_adapter_info *first = b->adapters;
    int64_t rank = b->params[first->a].shape[0];
    json_t *modules = json_array();
    for (int i = 0; i < b->nadapters; i++) {
        const char *path = b->params[b->adapters[i].weight].path, *dot = strrchr(path, '.');
        json_array_append_new(modules, json_stringn(path, (size_t)(dot ? dot - path : 0)));
    }
    json_t *j = json_pack("{s:s, s:s, s:s, s:i, s:f, s:o, s:f, s:s, s:b, s:b}", "peft_type", "LORA", "task_type",
                          "CAUSAL_LM", "base_model_name_or_path", from ? from : "", "r", (int)rank, "lora_alpha",
                          first->scale * (double)rank, "target_modules", modules, "lora_dropout", 0.0, "bias", "none",
                          "inference_mode", 1, "use_dora", first->lengths >= 0);
    return put_json(folder, "adapter_config.json", j);
}

bool export_folder_fill(const char *folder, const char *from, const sc_build *b, const sc_dtype *dtypes,
                        bool adapters) {
    static const char *const beside[] = {"generation_config.json",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "tokenizer.model",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "vocab.json",
                                         "merges.txt",
                                         "chat_template.jinja"};
    bool ok = true;
    if (adapters) return put_adapter_config(folder, from, b);
    if (!from) {
        note("no config.json beside the exported weights in %s: --weights DIR or --export-like DIR says where it is "
             "copied from",
             folder);
        return true;
    }
    for (size_t i = 0; i < sizeof beside / sizeof *beside && ok; i++) ok = copy_file(folder, from, beside[i]);
    return ok && put_config(folder, from, dtype_word(b, dtypes));
}
