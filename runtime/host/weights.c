/* Weights as plain safetensors, read: each rank reads and converts the ranges that its slices hold.
 * Relies on: args, safetensors, shard_index, state, file.h, folded, weight_names.
 * Relied on by: run, train, export. */
#include "weights.h"
#include "../file.h"
#include "../schema/math.h"
#include "die.h"
#include "folded.h"
#include "shard_index.h"
#include "weight_names.h"
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 18 }; /* elements converted at a time */

/* ── import ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct { /* a part of a parameter that is stacked here */
    const StTensor *t;
    const StFile *file;
} Single;

typedef struct {
    char *path; /* of the parameter that it is taken for: as the maps say, else its own name */
    const StTensor *t;
    const StFile *file;
    int place; /* in the order of the files */
    int map;   /* the --weights-map that made its path, from 1; 0: none */
    bool taken;
    Single *singles; /* its parts in order, where t stands for all of them; else NULL */
} Entry;

struct Weights {
    const sc_build *b;
    const Names *copies; /* FROM=TO: parameters that begin as copies of others */
    bool partial;
    StFile *files;
    int n;
    char *prefix;   /* that tensors have before the paths of parameters: "transformer."; NULL: none */
    Entry *entries; /* tensors of all files, by path */
    int nentries;
};

static void add_file(Weights *w, const char *path) {
    char error[ST_ERROR];
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) die("%s: a folder within the pattern of --weights", path);
    w->files = realloc(w->files, (size_t)(w->n + 1) * sizeof *w->files);
    if (!w->files) die("out of memory for a list of files");
    if (!st_open(&w->files[w->n], path, error)) die("%s: %s", path, error);
    w->n++;
}

/* All files that the index of a model in several files names. false: it is no index. */
static bool add_shards(Weights *w, const char *index) {
    char **files;
    int n;
    if (!shard_index_read(index, &files, &n)) return false;
    for (int i = 0; i < n; i++) {
        if (access(files[i], F_OK) != 0)
            die("%s: %s, which it names, is not there: copy all %d files beside it", index, basename(files[i]), n);
        add_file(w, files[i]);
        free(files[i]);
    }
    free(files);
    return true;
}

/* What a Hugging Face folder names: its index, or its one file, or all of its files. false: it is no folder. */
static bool add_folder(Weights *w, const char *folder) {
    static const char *const names[] = {"model.safetensors.index.json", "model.safetensors",
                                        "diffusion_pytorch_model.safetensors.index.json",
                                        "diffusion_pytorch_model.safetensors"};
    struct stat st;
    glob_t g;
    if (stat(folder, &st) || !S_ISDIR(st.st_mode)) return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = need_text("%s/%s", folder, names[i]);
        bool there = access(path, F_OK) == 0;
        if (there && !add_shards(w, path)) add_file(w, path);
        free(path);
        if (there) return true;
    }
    char *all = need_text("%s/*.safetensors", folder);
    if (glob(all, 0, NULL, &g) != 0)
        die("%s: no model.safetensors.index.json, model.safetensors or other .safetensors in this folder; weights of "
            "torch.save are not read: save_pretrained writes safetensors",
            folder);
    for (size_t i = 0; i < g.gl_pathc; i++) add_file(w, g.gl_pathv[i]);
    globfree(&g);
    free(all);
    return true;
}

static void add_pattern(Weights *w, const char *pattern) {
    glob_t g;
    if (add_folder(w, pattern)) return;
    if (add_shards(w, pattern)) return;
    if (access(pattern, F_OK) == 0 || glob(pattern, GLOB_TILDE, NULL, &g) != 0) {
        add_file(w, pattern); /* its message says what is wrong */
        return;
    }
    for (size_t i = 0; i < g.gl_pathc; i++) add_file(w, g.gl_pathv[i]);
    globfree(&g);
}

/* ── names ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int by_path(const void *a, const void *b) {
    const Entry *x = a, *y = b;
    int order = strcmp(x->path, y->path);
    return order ? order : x->place - y->place;
}

_Noreturn static void refuse_unread(const Entry *e) {
    die("%s: cannot read '%s': %s; copy the file anew", e->file->path, e->t->name, strerror(errno));
}

static bool same_bytes(const Entry *x, const Entry *y) {
    static uint8_t a[1 << 16], b[1 << 16];
    if (strcmp(x->t->dtype, y->t->dtype) || x->t->dims != y->t->dims ||
        memcmp(x->t->shape, y->t->shape, sizeof *x->t->shape * (size_t)x->t->dims))
        return false;
    for (int64_t at = 0, n; at < x->t->numel; at += n) {
        n = x->t->numel - at < (int64_t)sizeof a / 8 ? x->t->numel - at : (int64_t)sizeof a / 8;
        if (!st_read(x->file, x->t, at, n, a)) refuse_unread(x);
        if (!st_read(y->file, y->t, at, n, b)) refuse_unread(y);
        if (memcmp(a, b, (size_t)n * (size_t)((x->t->end - x->t->begin) / (uint64_t)x->t->numel))) return false;
    }
    return true;
}

static void list_tensors(Weights *w, const Names *maps) {
    int n = 0, *used = need((size_t)maps->n, sizeof *used);
    const char *wrapped = NULL;
    for (int i = 0; i < w->n; i++) n += w->files[i].n;
    w->entries = need((size_t)n, sizeof *w->entries);
    for (int i = 0; i < w->n; i++)
        for (int k = 0; k < w->files[i].n; k++) {
            Entry *e = &w->entries[w->nentries];
            *e = (Entry){.t = &w->files[i].tensors[k], .file = &w->files[i], .place = w->nentries++};
            for (int m = 0; m < maps->n && !e->path; m++)
                if ((e->path = weight_renamed(maps->at[m], e->t->name))) used[m]++, e->map = m + 1;
            if (!e->path) e->path = need_text("%s", e->t->name);
            char *path = weight_unwrapped(e->path);
            if (!path) continue;
            free(e->path);
            e->path = path;
            wrapped = e->t->name;
        }
    if (wrapped) note("%s: names there hold wrappers of modules ('%s'), which are left out", w->files[0].path, wrapped);
    qsort(w->entries, (size_t)w->nentries, sizeof *w->entries, by_path);
    for (int k = 0; k < maps->n; k++)
        if (!used[k])
            die("--weights-map '%s': no tensor of %s has such a name%s", maps->at[k], w->files[0].path,
                k ? ", or a map before this one matches it" : "");
    for (int i = 1; i < w->nentries; i++) {
        const Entry *x = &w->entries[i - 1], *y = x + 1;
        if (!strcmp(x->path, y->path) && !same_bytes(x, y))
            die("'%s' of %s and '%s' of %s are both called '%s' here, and differ: name other files, or give another "
                "--weights-map",
                x->t->name, x->file->path, y->t->name, y->file->path, x->path);
    }
    free(used);
}

static int path_of(const void *key, const void *entry) {
    return strcmp(key, ((const Entry *)entry)->path);
}

static Entry *find_name(const Weights *w, const char *name) {
    return w->nentries ? bsearch(name, w->entries, (size_t)w->nentries, sizeof *w->entries, path_of) : NULL;
}

/* The prefix in front of the path comes from the file, not from a map. */
static bool has_own_prefix(const Entry *e) {
    if (!e->map) return true;
    size_t n = strlen(e->t->name), m = strlen(e->path);
    return n >= m && !strcmp(e->t->name + n - m, e->path);
}

static Entry *find_own(const Weights *w, const char *path) {
    Entry *e = find_name(w, path);
    if (e || !w->prefix) return e;
    char *name = need_text("%s%s", w->prefix, path);
    e = find_name(w, name);
    free(name);
    return e && has_own_prefix(e) ? e : NULL;
}

/* safetensors' save_model writes tensors that share their memory once, and names the others in the metadata. */
static Entry *find_shared(const Weights *w, const char *path) {
    char *name = need_text("%s%s", w->prefix ? w->prefix : "", path);
    Entry *found = NULL;
    for (int i = 0; i < w->n && !found; i++) {
        const char *kept = st_metadata(&w->files[i], name);
        if (!kept) kept = st_metadata(&w->files[i], path);
        for (Entry *e = w->entries; kept && e < w->entries + w->nentries && !found; e++)
            if (e->file == &w->files[i] && !strcmp(e->t->name, kept)) found = e;
    }
    free(name);
    return found;
}

/* The path of the parameter that the one of this path is a frozen copy of; NULL: it is none. */
static const char *copied_path(const sc_build *b, const char *path) {
    for (int i = 0; i < b->nparams; i++)
        if (b->params[i].copies && !strcmp(b->params[i].path, path)) return b->params[b->params[i].copies - 1].path;
    return NULL;
}

/* What a parameter begins as: the tensor of its name, the one that shares its memory in the file, what --weights-copy
 * says, or what the parameter begins as whose copy it is. NULL: there is none. */
static Entry *find(const Weights *w, const char *path) {
    Entry *e = find_own(w, path);
    if (!e) e = find_shared(w, path);
    for (int i = 0; i < w->copies->n && !e; i++) {
        char *name = weight_copied_from(w->copies->at[i], path);
        if (name) e = find_own(w, name);
        free(name);
    }
    const char *copied = e ? NULL : copied_path(w->b, path);
    return copied ? find(w, copied) : e;
}

/* ── parameters that files have in parts ─────────────────────────────────────────────────────────────────────────────
 */
/* The tensor of a part of params[s->param]: NAME.weight of an index of its first dimension. */
static Entry *single_of(const Weights *w, const sc_stored_info *s, int64_t index, int name, char **path) {
    *path = need_text("%s.%" PRId64 ".%s.weight", s->base, s->first + index, s->name[name]);
    return find(w, *path);
}

/* An entry for a parameter that is stacked here and single in the files: experts, one by one. */
static void stack(Weights *w, const sc_stored_info *s) {
    const sc_param_info *p = &w->b->params[s->param];
    int64_t n = p->shape[0] * s->names;
    Single *all = need((size_t)n, sizeof *all);
    StTensor *t = need(1, sizeof *t);
    for (int64_t i = 0; i < n; i++) {
        char *path;
        Entry *e = single_of(w, s, i / s->names, (int)(i % s->names), &path);
        if (!e && !i) { /* they are missing, or there stacked */
            free(path);
            free(all);
            free(t);
            return;
        }
        if (!e)
            die("%s: no tensor '%s' there, of '%s', which this model stacks: copy all files of the model",
                w->files[0].path, path, p->path);
        if (e->t->dims != 2 || e->t->shape[0] * s->names != p->shape[1] || e->t->shape[1] != p->shape[2] ||
            (i && e->t->sc_dtype != all[0].t->sc_dtype))
            die("%s: '%s' is %s [%" PRId64 ",%" PRId64 "], where '%s' wants %d of [%" PRId64 ",%" PRId64
                "] of one dtype: name other weights, or set the model's sizes",
                e->file->path, e->t->name, e->t->dtype, e->t->dims > 0 ? e->t->shape[0] : 0,
                e->t->dims > 1 ? e->t->shape[1] : 0, p->path, s->names, p->shape[1] / s->names, p->shape[2]);
        e->taken = true;
        all[i] = (Single){e->t, e->file};
        free(path);
    }
    *t = *all[0].t;
    t->dims = p->dims;
    memcpy(t->shape, p->shape, sizeof *t->shape * (size_t)p->dims);
    t->numel = p->numel;
    Entry *more = realloc(w->entries, (size_t)(w->nentries + 1) * sizeof *more);
    if (!more) die("out of memory for a list of tensors");
    w->entries = more;
    w->entries[w->nentries++] = (Entry){.path = need_text("%s", p->path), .t = t, .file = all[0].file, .singles = all};
    qsort(w->entries, (size_t)w->nentries, sizeof *w->entries, by_path);
}

static void stack_all(Weights *w) {
    for (int i = 0; i < w->b->nstored; i++)
        if (!find(w, w->b->params[w->b->stored[i].param].path)) stack(w, &w->b->stored[i]);
}

static bool is_param(const Weights *w, const char *path, size_t n) {
    for (int i = 0; i < w->b->nparams; i++)
        if (strlen(w->b->params[i].path) == n && !strncmp(w->b->params[i].path, path, n)) return true;
    return false;
}

static void check_copies(const Weights *w) {
    for (int i = 0; i < w->copies->n; i++) {
        const char *copy = w->copies->at[i], *to = strchr(copy, '=') + 1, *from = copy;
        bool other = is_param(w, from, (size_t)(to - 1 - from)), some = false;
        if (strchr(copy, '*')) {
            for (int k = 0; k < w->b->nparams && !some; k++) {
                char *name = weight_copied_from(copy, w->b->params[k].path);
                some = name && is_param(w, name, strlen(name));
                free(name);
            }
            if (!some)
                die("--weights-copy '%s': the model has no two parameters of such names; both are patterns of its "
                    "paths",
                    copy);
            continue;
        }
        if (!other || !is_param(w, to, strlen(to)))
            die("--weights-copy '%s': the model has no parameter '%.*s'; both are paths of the model", copy,
                other ? (int)strlen(to) : (int)(to - 1 - from), other ? to : from);
        if (find_own(w, to))
            die("--weights-copy '%s': the weights have '%s' themselves; leave this option out", copy, to);
    }
}

/* The prefix of `path` in the names of tensors, in new memory; NULL: there is none, or there are several. */
static char *prefix_of(const Weights *w, const char *path) {
    char *prefix = NULL;
    for (int i = 0; i < w->nentries; i++) {
        const char *name = w->entries[i].path;
        size_t n = strlen(name), m = strlen(path);
        if (!has_own_prefix(&w->entries[i]) || n <= m + 1 || name[n - m - 1] != '.' || strcmp(name + n - m, path))
            continue;
        bool another = prefix && (strlen(prefix) != n - m || strncmp(prefix, name, n - m));
        if (!prefix) prefix = need_text("%.*s", (int)(n - m), name);
        if (!another) continue;
        free(prefix);
        return NULL;
    }
    return prefix;
}

/* Weights may have been saved from a larger model: transformer.h.0..., module.h.0... for h.0... The prefix is taken
 * where it finds more parameters than the plain names do, and, without --weights-partial, than are then missing.
 */
static void find_prefix(Weights *w) {
    int own = 0, inner = 0, missing = 0;
    for (int i = 0; i < w->b->nparams; i++) {
        const char *path = w->b->params[i].path;
        if (w->b->params[i].buffer || w->b->params[i].copies || scaled_by(w->b, i) >= 0) continue;
        bool there = find_name(w, path);
        if (!there && !w->prefix) w->prefix = prefix_of(w, path);
        if (there)
            own++;
        else if (find(w, path))
            inner++;
        else
            missing++;
    }
    if (w->prefix && inner > own && (w->partial || inner > missing)) {
        note("%s: the model's parameters have '%s' before their names there, which is dropped", w->files[0].path,
             w->prefix);
        return;
    }
    free(w->prefix);
    w->prefix = NULL;
}

/* A map that makes no parameter's name is a mistake, except where --weights-partial leaves tensors out by it. */
static void check_results(const Weights *w, const Names *maps) {
    const Entry **first = need((size_t)maps->n, sizeof *first);
    bool *meets = need((size_t)maps->n, sizeof *meets);
    for (int i = 0; i < w->nentries; i++)
        if (w->entries[i].map) first[w->entries[i].map - 1] = &w->entries[i];
    for (int k = 0; k < w->b->nparams; k++) {
        const Entry *e = find(w, w->b->params[k].path), *end = w->entries + w->nentries;
        const char *path = e ? e->path : NULL;
        while (e && e > w->entries && !strcmp(e[-1].path, path)) e--; /* several maps may make one name */
        for (; e && e < end && !strcmp(e->path, path); e++)
            if (e->map) meets[e->map - 1] = true;
    }
    for (int m = 0; m < maps->n && !w->partial; m++)
        if (!meets[m])
            die("--weights-map '%s': it turns '%s' of %s into '%s', and the model has no parameter of that name; "
                "what follows the = is a path of the model",
                maps->at[m], first[m]->t->name, first[m]->file->path, first[m]->path);
    free(first);
    free(meets);
}

/* ── the model's parameters ──────────────────────────────────────────────────────────────────────────────────────────
 */
static const char *shape_text(char *s, size_t size, const int64_t *shape, int dims) {
    size_t n = (size_t)snprintf(s, size, "[");
    for (int d = 0; d < dims && n < size; d++)
        n += (size_t)snprintf(s + n, size - n, "%s%" PRId64, d ? "," : "", shape[d]);
    if (n < size) snprintf(s + n, size - n, "]");
    return s;
}

/* The tensor whose name is nearest: most characters are the same at the beginning and at the end, as a prefix or a
 * renamed module leaves them. NULL: none has any. */
static const char *nearest(const Weights *w, const char *path) {
    const char *best = NULL;
    size_t most = 0, n = strlen(path);
    for (int i = 0; i < w->nentries; i++) {
        const char *other = w->entries[i].path;
        size_t m = strlen(other), head = 0, tail = 0, least = n < m ? n : m;
        while (head < least && path[head] == other[head]) head++;
        while (tail < least - head && path[n - 1 - tail] == other[m - 1 - tail]) tail++;
        if (head + tail <= most) continue;
        most = head + tail;
        best = w->entries[i].t->name;
    }
    return best;
}

static bool ends(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

#define DEQUANTIZE                                                                                                     \
    "quantized weights: dequantize them first (in transformers model.dequantize(), then save_pretrained), or take "    \
    "the "                                                                                                             \
    "release that is not quantized"

/* A tensor that only files of quantized weights have: GPTQ's and AWQ's, compressed-tensors', bitsandbytes', MXFP4's.
 * NULL: there is none. */
static const char *quantized(const Weights *w) {
    static const char *const marks[] = {
        ".qweight", ".qzeros", ".weight_packed", ".weight_scale_inv", ".weight.absmax", ".weight.quant_map", ".SCB"};
    for (int i = 0; i < w->nentries; i++) {
        const StTensor *t = w->entries[i].t;
        for (size_t k = 0; k < sizeof marks / sizeof *marks; k++)
            if (ends(t->name, marks[k])) return t->name;
        if (ends(t->name, "_blocks") && !strcmp(t->dtype, "U8")) return t->name;
    }
    return NULL;
}

/* A tensor of scales that stands beside e in its module: what is stored as e is then not yet the weight. */
static const char *scale_of(const Weights *w, const Entry *e) {
    const char *dot = strrchr(e->t->name, '.');
    size_t n = dot ? (size_t)(dot - e->t->name) + 1 : 0;
    for (int i = 0; i < w->nentries; i++) {
        const char *name = w->entries[i].t->name;
        if (w->entries[i].t != e->t && !strncmp(name, e->t->name, n) && !strchr(name + n, '.') &&
            strstr(name + n, "scale"))
            return name;
    }
    return NULL;
}

static bool is_fp8(const StTensor *t) {
    return t->sc_dtype == FP8_E4M3 || t->sc_dtype == FP8_E5M2;
}

/* Options of this project's models that set a size, by the field's names. */
static const char *size_options(const char *path) {
    static const struct {
        const char *part, *options;
    } hints[] = {{"wpe", " (learned positions: positions, and seq is at most that)"},
                 {"pos", " (learned positions: positions, and seq is at most that)"},
                 {"emb", " (rows: vocab)"},
                 {"wte", " (rows: vocab)"},
                 {"lm_head", " (rows: vocab)"},
                 {"shared", " (rows: vocab)"},
                 {"q_proj", " (heads, head_dim)"},
                 {"k_proj", " (kv_heads, head_dim)"},
                 {"v_proj", " (kv_heads, head_dim)"},
                 {"o_proj", " (heads, head_dim)"}};
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (strstr(path, hints[i].part)) return hints[i].options;
    return "";
}

static bool same_shape(const StTensor *t, const sc_param_info *p) {
    return t->dims == p->dims && !memcmp(t->shape, p->shape, sizeof *p->shape * (size_t)p->dims);
}

static void check_shape(const Weights *w, const Entry *e, const sc_param_info *p) {
    char there[160], here[160];
    if (same_shape(e->t, p)) return;
    shape_text(there, sizeof there, e->t->shape, e->t->dims);
    shape_text(here, sizeof here, p->shape, p->dims);
    if (p->dims == 2 && e->t->dims == 2 && e->t->shape[0] == p->shape[1] && e->t->shape[1] == p->shape[0])
        die("%s: '%s' is %s there and %s in this build: it lies the other way round: nn.Linear has [out,in], GPT-2's "
            "Conv1D [in,out]. Write the model with the module that the weights are of (models/gpt2.lua has Conv1D), or "
            "transpose the weights, square ones too: no shape shows how those lie",
            e->file->path, p->path, there, here);
    die("%s: '%s' is %s there and %s in this build: set the model's options to the weights'%s%s", e->file->path,
        p->path, there, here,
        w->partial ? ", or keep it out: --weights-map gives it a name that the model does not have" : "",
        size_options(p->path));
}

static void check_dtype(const Weights *w, const Entry *e, const sc_param_info *p) {
    bool number = e->t->sc_dtype >= 0, as_float = number && host_dtype_float((sc_dtype)e->t->sc_dtype);
    const char *scale = is_fp8(e->t) ? scale_of(w, e) : NULL;
    if (scale)
        die("%s: '%s' is %s there and has a scale beside it, '%s': " DEQUANTIZE, e->file->path, p->path, e->t->dtype,
            scale);
    bool wants_float = host_dtype_float(p->dtype) || p->scales;
    if (!number || as_float != wants_float)
        die("%s: '%s' is %s there, which does not convert to %s%s", e->file->path, p->path, e->t->dtype,
            host_dtype_name(p->dtype), wants_float ? "; integers are mostly " DEQUANTIZE : "");
}

/* The parameter that p may share its values with where the weights are tied: the only one of its shape, a matrix. */
static const char *tied_to(const Weights *w, const sc_param_info *p) {
    const char *found = NULL;
    for (int i = 0; i < w->b->nparams; i++) {
        const sc_param_info *x = &w->b->params[i];
        const Entry *e = x == p || x->dims != 2 ? NULL : find_own(w, x->path);
        if (!e || !same_shape(e->t, p)) continue;
        if (found) return NULL;
        found = x->path;
    }
    return found;
}

#define TIED "(tied=true in models/llama3.lua and qwen2.lua)"
#define UNTIED "(tied=false in models/llama3.lua and qwen2.lua)"

_Noreturn static void refuse_missing(const Weights *w, const sc_param_info **missing, int n) {
    const sc_param_info *p = missing[0];
    const char *file = w->files[0].path, *like = nearest(w, p->path), *mark = quantized(w), *tied = tied_to(w, p);
    const char **names = need((size_t)n, sizeof *names);
    for (int i = 0; i < n; i++) names[i] = missing[i]->path;
    char *more = n > 1 ? need_text("; %d are missing: %s", n, folded(names, n)) : need_text("%s", "");
    if (mark) die("%s: no tensor '%s' there, but '%s': " DEQUANTIZE "%s", file, p->path, mark, more);
    if (tied && n == 1)
        die("%s: no tensor '%s' there; '%s' has its shape, so these weights are tied, it seems: build the model with "
            "the "
            "two as one parameter " TIED ", or let it begin as a copy: --weights-copy %s=%s",
            file, p->path, tied, tied, p->path);
    size_t shorter = like && strlen(like) < strlen(p->path) ? strlen(p->path) - strlen(like) : 0;
    if (shorter && p->path[shorter - 1] == '.' && ends(p->path, like))
        die("%s: no tensor '%s' there, but '%s': --weights-map '*=%.*s*' puts the model's prefix before the names%s",
            file, p->path, like, (int)shorter, p->path, more);
    die("%s: no tensor '%s' there%s%.100s%s: a path of the model must be the tensor's name; --weights-map says which "
        "other name it has there, --weights-partial leaves it as initialised%s",
        file, p->path, like ? " (nearest: '" : "", like ? like : "", like ? "')" : "", more);
}

static void tell_left(const Weights *w, const sc_param_info **left, int n) {
    const char **names = need((size_t)n, sizeof *names), *tied = NULL;
    int head = 0;
    for (int i = 0; i < n; i++) {
        names[i] = left[i]->path;
        if (!tied && left[i]->dims == 2 && (tied = tied_to(w, left[i]))) head = i;
    }
    char *list = folded(names, n);
    char *hint = tied ? need_text("; '%s' has the shape of '%s': where these weights are tied, --weights-copy %s=%s",
                                  left[head]->path, tied, tied, left[head]->path)
                      : need_text("%s", "");
    note("--weights-partial: parameters that are not in %s and stay as initialised (%d): %s%s", w->files[0].path, n,
         list, hint);
    free(hint);
    free(list);
    free(names);
}

/* The adapter whose lengths of rows the parameter is; NULL: it is something else. */
static const sc_adapter_info *measured_by(const sc_build *b, int param) {
    bool thin;
    int i = adapter_of(b, param, &thin);
    return i >= 0 && b->adapters[i].lengths == param ? &b->adapters[i] : NULL;
}

/* Files have the lengths of rows, a program how much more they are than those of the weight. */
static void check_lengths(const Weights *w, const Entry *e, int param) {
    const sc_adapter_info *x = measured_by(w->b, param);
    if (x && !find(w, w->b->params[x->weight].path))
        die("%s: '%s' are the lengths of rows of '%s' with its adapter: name the file of that matrix with --weights, "
            "too",
            e->file->path, e->t->name, w->b->params[x->weight].path);
}

static void take_params(const Weights *w) {
    const sc_param_info **left = need((size_t)w->b->nparams, sizeof *left);
    int n = 0, buffers = 0, taken = 0, fp8 = 0, adapters = 0;
    for (int i = 0; i < w->b->nparams; i++) {
        const sc_param_info *p = &w->b->params[i];
        if (scaled_by(w->b, i) >= 0 || p->internal) continue; /* published weights have no scales */
        Entry *e = find(w, p->path);
        buffers += !e && p->buffer;
        bool thin; /* published weights have no adapters */
        adapter_of(w->b, i, &thin);
        adapters += !e && thin;
        if (!e && !p->buffer && !p->copies && !thin) left[n++] = p;
        if (!e) continue;
        check_shape(w, e, p);
        check_dtype(w, e, p);
        check_lengths(w, e, i);
        e->taken = true;
        taken++;
        fp8 += is_fp8(e->t);
    }
    if (n && !w->partial) refuse_missing(w, left, n);
    if (!taken)
        die("%s: it has no parameter of this model: neither '%s' nor any other; name other weights, or say with "
            "--weights-map what they are here",
            w->files[0].path, w->b->params[0].path);
    if (buffers) note("%d buffers are not in %s: they keep their initial values", buffers, w->files[0].path);
    if (adapters)
        note("%d parameters of adapters are not in %s: they keep their initial values", adapters, w->files[0].path);
    if (fp8) note("%d tensors are fp8 and have no scale beside them: they are read as they are", fp8);
    if (n) tell_left(w, left, n);
    free(left);
}

/* ── tensors that are no parameters ──────────────────────────────────────────────────────────────────────────────────
 */
/* Tables that PyTorch's modules save and that a model computes by itself. A causal mask has a bias's name: its shape
 * tells it from one. */
static bool is_table(const StTensor *t) {
    static const char *const tables[] = {"attn.masked_bias",        "attention.masked_bias", "rotary_emb.inv_freq",
                                         "rotary_pos_emb.inv_freq", "position_ids",          "num_batches_tracked"};
    static const char *const masks[] = {"attn.bias", "attention.bias"};
    bool mask = t->dims == 4 && t->shape[0] == 1 && t->shape[1] == 1 && t->shape[2] == t->shape[3];
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (ends(t->name, tables[i])) return true;
    for (size_t i = 0; i < sizeof masks / sizeof *masks && mask; i++)
        if (ends(t->name, masks[i])) return true;
    return false;
}

/* The tensor of a parameter that `t` has the shape of, a matrix's, where only that one has it: a head of its own beside
 * the embedding that the model ties its head to. NULL: there is none, or several. */
static const Entry *untied_from(const Weights *w, const StTensor *t) {
    const Entry *found = NULL;
    for (const Entry *x = w->entries; x < w->entries + w->nentries; x++) {
        if (!x->taken || t->dims != 2 || x->t->dims != 2 || memcmp(x->t->shape, t->shape, 2 * sizeof *t->shape))
            continue;
        if (found) return NULL;
        found = x;
    }
    return found;
}

static void tell_unused(const Weights *w) {
    const char **tables = need((size_t)w->nentries, sizeof *tables),
               **others = need((size_t)w->nentries, sizeof *others);
    int ntables = 0, nothers = 0;
    const Entry *head = NULL, *tied = NULL;
    for (int i = 0; i < w->nentries; i++) {
        const Entry *e = &w->entries[i];
        if (e->taken) continue;
        /* Or the same bytes as a tensor that was taken: output weights tied to the embedding, or one tensor in two
         * files. Vectors do not count unless their names agree: different ones are often equal, all zeros or all ones.
         */
        bool made = is_table(e->t);
        for (const Entry *x = w->entries; x < w->entries + w->nentries && !made; x++)
            made = x->taken && (e->t->dims > 1 || !strcmp(x->path, e->path)) && same_bytes(x, e);
        if (made)
            tables[ntables++] = e->t->name;
        else
            others[nothers++] = e->t->name;
        if (!made && !tied && (tied = untied_from(w, e->t))) head = e;
    }
    char *list = folded(others, nothers), *own = folded(tables, ntables);
    char *hint =
        tied ? need_text("; '%s' has the shape of '%s' and other values: where the model ties the two, build it "
                         "with two parameters " UNTIED,
                         head->t->name, tied->t->name)
             : need_text("%s", "");
    const char *mark = nothers ? quantized(w) : NULL;
    if (mark && !w->partial)
        die("%s: tensors that are no parameters of this model (%d): %s: " DEQUANTIZE, w->files[0].path, nothers, list);
    if (nothers == 1 && head && !w->partial)
        die("%s: '%s' is no parameter of this model; it has the shape of '%s' and other values, so these weights are "
            "not "
            "tied, it seems: build the model with two parameters " UNTIED ", or leave it out with --weights-partial",
            w->files[0].path, head->t->name, tied->t->name);
    if (nothers && !w->partial)
        die("%s: tensors that are no parameters of this model (%d): %s; set the model's options to the weights', say "
            "with --weights-map what they are here, or leave them out with --weights-partial%s",
            w->files[0].path, nothers, list, hint);
    if (nothers)
        note("--weights-partial: tensors of %s that are not used (%d): %s%s", w->files[0].path, nothers, list, hint);
    if (ntables)
        note("tensors of %s that are not used (%d), masks, tables or copies that the model makes itself: %s",
             w->files[0].path, ntables, own);
    free(hint);
    free(list);
    free(own);
    free(tables);
    free(others);
}

/* GPT-2's Conv1D stores [in,out], which no shape of a square matrix shows. Names and shapes of others beside them do:
 * the product that makes queries, keys and values, or the one that widens, lies along its rows. */
static void tell_turned(const Weights *w) {
    const char *conv = NULL, *square = NULL;
    for (int i = 0; i < w->nentries; i++) {
        const StTensor *t = w->entries[i].t;
        bool wide = t->dims == 2 && t->shape[1] > t->shape[0];
        if (wide && (ends(t->name, "c_attn.weight") || ends(t->name, "c_fc.weight"))) conv = t->name;
        if (w->entries[i].taken && t->dims == 2 && t->shape[0] == t->shape[1]) square = t->name;
    }
    if (conv && square && w->b->unproven && strstr(w->b->unproven, "[out,in]"))
        note("%s: '%s' is [in,out] there, as in GPT-2's Conv1D, and this model reads square matrices such as '%s' as "
             "[out,in]: transpose those first",
             w->files[0].path, conv, square);
}

Weights *weights_open(const sc_build *b, const Options *o) {
    Weights *w = need(1, sizeof *w);
    w->b = b;
    w->partial = o->weights_partial;
    w->copies = &o->weights_copy;
    for (int i = 0; i < o->weights.n; i++) add_pattern(w, o->weights.at[i]);
    list_tensors(w, &o->weights_map);
    find_prefix(w);
    check_results(w, &o->weights_map);
    check_copies(w);
    stack_all(w);
    take_params(w);
    tell_unused(w);
    tell_turned(w);
    return w;
}

/* Where fp16, say, cannot hold what the file does, training would begin with infinities. */
static void check_range(const Entry *e, sc_dtype to, const void *out, const void *raw, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double x = host_get((sc_dtype)e->t->sc_dtype, raw, i);
        if (isfinite(x) && !isfinite(host_get(to, out, i)))
            die("%s: '%s' holds %g, which %s cannot: store the parameter in fp32 or bf16 (dtype in the model file)",
                e->file->path, e->t->name, x, host_dtype_name(to));
    }
}

/* n elements from `at` on, of one tensor or of those that are stacked. */
static void read_entry(const Entry *e, int64_t at, int64_t n, uint8_t *to) {
    int64_t each = e->singles ? e->singles[0].t->numel : e->t->numel, size = sc_size((sc_dtype)e->t->sc_dtype);
    for (int64_t many; n > 0; n -= many, at += many, to += many * size) {
        Single one = e->singles ? e->singles[at / each] : (Single){e->t, e->file};
        many = each - at % each < n ? each - at % each : n;
        if (!st_read(one.file, one.t, at % each, many, to)) refuse_unread(e);
    }
}

/* A row of the parameter's tensor in fp32 and, where it is kept in int8, the scale of the row as that is kept; else 1.
 */
static float read_row(const Weights *w, int param, int64_t row, float *to) {
    const sc_param_info *p = &w->b->params[param];
    const Entry *e = find(w, p->path);
    float most = 0;
    uint8_t scale[8], *raw = need((size_t)p->shape[1], 8);
    read_entry(e, row * p->shape[1], p->shape[1], raw);
    host_convert(FP32, to, (sc_dtype)e->t->sc_dtype, raw, p->shape[1]);
    free(raw);
    if (!p->scales) return 1;
    for (int64_t i = 0; i < p->shape[1]; i++) most = fmaxf(most, fabsf(to[i]));
    sc_dtype kept = state_dtype(w->b, p->scales - 1, P_VALUE);
    host_put(kept, scale, 0, most / 127);
    float s = (float)host_get(kept, scale, 0);
    return s > 0 ? s : 1; /* a row of zeros */
}

/* Elements [at, at + n) of a matrix in int8. */
static void pack(const Weights *w, int param, int64_t at, int64_t n, int8_t *to) {
    int64_t inputs = w->b->params[param].shape[1];
    float *row = need((size_t)inputs, sizeof *row);
    for (int64_t i = 0, many; i < n; i += many) {
        int64_t column = (at + i) % inputs;
        many = inputs - column < n - i ? inputs - column : n - i;
        float scale = read_row(w, param, (at + i) / inputs, row);
        for (int64_t k = 0; k < many; k++) to[i + k] = sc_to_int8(row[column + k] / scale);
    }
    free(row);
}

/* length[i] -= that of row `first` + i of the parameter as it is kept, for n rows. */
static void subtract_lengths(const Weights *w, int param, int64_t first, int64_t n, float *length) {
    const sc_param_info *p = &w->b->params[param];
    sc_dtype kept = state_dtype(w->b, param, P_VALUE);
    float *row = need((size_t)p->shape[1], sizeof *row);
    uint8_t *as_kept = need((size_t)p->shape[1], 8);
    for (int64_t i = 0; i < n; i++) {
        float scale = read_row(w, param, first + i, row);
        double squares = 0;
        for (int64_t k = 0; k < p->shape[1]; k++) {
            if (p->scales)
                row[k] = scale * sc_to_int8(row[k] / scale);
            else
                host_convert(kept, as_kept, FP32, &row[k], 1), row[k] = (float)host_get(kept, as_kept, 0);
            squares += (double)row[k] * row[k];
        }
        length[i] = (float)(length[i] - sqrt(squares));
    }
    free(row);
    free(as_kept);
}

/* n elements of a parameter from `at` on, as they are kept. */
static void load_chunk(const Weights *w, const Piece *p, int64_t at, int64_t n, uint8_t *raw, uint8_t *out) {
    const Entry *e = find(w, w->b->params[p->param].path);
    const sc_adapter_info *measured = measured_by(w->b, p->param);
    if (w->b->params[p->param].scales) {
        pack(w, p->param, at, n, (int8_t *)out);
        return;
    }
    read_entry(e, at, n, raw);
    host_convert(p->dtype, out, (sc_dtype)e->t->sc_dtype, raw, n);
    if (measured) subtract_lengths(w, measured->weight, at, n, (float *)out);
    if (sc_size(p->dtype) < 4 && host_dtype_float(p->dtype)) check_range(e, p->dtype, out, raw, n);
}

/* The scales of n rows from `at` on of the matrix that the parameter scales. */
static void load_scales(const Weights *w, const Piece *p, int matrix, int64_t at, int64_t n, uint8_t *out) {
    float *row = need((size_t)w->b->params[matrix].shape[1], sizeof *row);
    for (int64_t i = 0; i < n; i++) host_put(p->dtype, out, i, read_row(w, matrix, at + i, row));
    free(row);
}

void weights_load(const Weights *w, sc_rank *r) {
    Piece *pieces;
    uint8_t *raw = need(CHUNK, 8), *out = need(CHUNK, 8);
    int npieces = state_pieces(w->b, sc_rank_index(r), &pieces);
    for (const Piece *p = pieces; p < pieces + npieces; p++) {
        if (p->kind != P_VALUE && p->kind != P_BUFFER) continue;
        int matrix = scaled_by(w->b, p->param);
        bool there = find(w, w->b->params[matrix < 0 ? p->param : matrix].path);
        for (int64_t at = p->begin, n; there && at < p->end; at += n) {
            int64_t size = sc_size(p->dtype);
            n = p->end - at < CHUNK ? p->end - at : CHUNK;
            if (matrix < 0)
                load_chunk(w, p, at, n, raw, out);
            else
                load_scales(w, p, matrix, at, n, out);
            sc_write(r, p->host, p->at + (uint64_t)((at - p->begin) * size), out, (size_t)(n * size));
        }
    }
    free(pieces);
    free(raw);
    free(out);
}

char *dtypes_text(unsigned used) {
    char *text = need_text("%s", "");
    for (int d = 0; d < N_DTYPES; d++) {
        if (!(used >> d & 1)) continue;
        char *longer = need_text("%s%s%s", text, *text ? " and " : "", host_dtype_name((sc_dtype)d));
        free(text);
        text = longer;
    }
    return text;
}

sc_dtype weights_dtype(const Weights *w, const char *path, sc_dtype otherwise) {
    const Entry *e = w ? find(w, path) : NULL;
    return e ? (sc_dtype)e->t->sc_dtype : otherwise;
}

unsigned weights_dtypes(const Weights *w) {
    unsigned used = 0;
    for (int i = 0; i < w->nentries; i++)
        if (w->entries[i].taken) used |= 1u << w->entries[i].t->sc_dtype;
    return used;
}

char *weights_told(const Weights *w) {
    int taken = 0;
    char *dtypes = dtypes_text(weights_dtypes(w));
    for (int i = 0; i < w->nentries; i++) taken += w->entries[i].taken;
    char *text = need_text("%d tensor%s of %s in %d file%s%s%s%s", taken, taken == 1 ? "" : "s", dtypes, w->n,
                           w->n == 1 ? "" : "s", w->b->unproven ? "; no shape shows: " : "",
                           w->b->unproven ? w->b->unproven : "", w->b->unproven ? " (compare with config.json)" : "");
    free(dtypes);
    return text;
}

void weights_close(Weights *w) {
    if (!w) return;
    for (int i = 0; i < w->n; i++) st_close(&w->files[i]);
    for (int i = 0; i < w->nentries; i++) {
        Entry *e = &w->entries[i];
        if (e->singles) free((StTensor *)e->t);
        free(e->singles);
        free(e->path);
    }
    free(w->files);
    free(w->entries);
    free(w->prefix);
    free(w);
}
