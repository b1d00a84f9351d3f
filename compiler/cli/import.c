/* `shardc import`: the config.json of a Hugging Face folder becomes a Lua file that calls the family of its model_type
 * with these fields, and the commands that predict and train from the folder's weights.
 * Relies on: base/places.h, ir/training.h, cJSON, models/families. Relied on by: main.c. */
#include "../base/places.h"
#include "../ir/training.h"
#include "../plan/figures.h"
#include "cli.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CONFIG_MOST = 1 << 20, DEEPEST = 8, LINE = 110, SEQ = 4096 };

/* ── values, as Lua writes them ──────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    Str *out;
    const char *path; /* of config.json */
    bool has_null;
} Writer;

static void put_string(Str *s, const char *text) {
    str_add(s, "\"");
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p == '"' || *p == '\\' || iscntrl(*p))
            str_addf(s, "\\%03d", *p);
        else
            str_addf(s, "%c", *p);
    str_add(s, "\"");
}

static bool is_word(const char *name) {
    static const char *const kept[] = {"and",      "break",  "do",   "else", "elseif", "end",  "false", "for",
                                       "function", "goto",   "if",   "in",   "local",  "nil",  "not",   "or",
                                       "repeat",   "return", "then", "true", "until",  "while"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (!strcmp(name, kept[i])) return false;
    if (!*name || isdigit((unsigned char)*name)) return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && *name != '_') return false;
    return true;
}

static void put_value(Writer *w, const cJSON *v, const char *name, int depth) {
    Str *s = w->out;
    if (depth > DEEPEST) fail((Source){w->path, 0}, "'%s' is nested deeper than %d levels; remove it", name, DEEPEST);
    if (cJSON_IsNull(v)) {
        str_add(s, "config.null");
        w->has_null = true;
    } else if (cJSON_IsBool(v)) {
        str_add(s, cJSON_IsTrue(v) ? "true" : "false");
    } else if (cJSON_IsString(v)) {
        put_string(s, v->valuestring);
    } else if (cJSON_IsNumber(v)) {
        double x = v->valuedouble;
        if (!isfinite(x)) fail((Source){w->path, 0}, "'%s' is a number that no double holds; write a finite one", name);
        if (x == floor(x) && fabs(x) < 1e15)
            str_addf(s, "%.0f", x);
        else
            str_addf(s, "%.17g", x);
    } else {
        const char *between = "";
        str_add(s, "{ ");
        for (const cJSON *item = v->child; item; item = item->next, between = ", ") {
            str_add(s, between);
            if (cJSON_IsObject(v)) {
                if (is_word(item->string)) {
                    str_addf(s, "%s = ", item->string);
                } else {
                    str_add(s, "[");
                    put_string(s, item->string);
                    str_add(s, "] = ");
                }
            }
            put_value(w, item, item->string ? item->string : name, depth + 1);
        }
        str_add(s, v->child ? " }" : "}");
    }
}

/* ── the folder ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What families share is no family. */
static bool is_family(const char *name) {
    static const char *const shared[] = {"config", "decoder", "encoder", "labelled", "parts", "pictures", "training"};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (!strcmp(name, shared[i])) return false;
    return true;
}

/* "cohere2, gemma2, ...": a file each in models/families. */
static const char *families(Arena *a, const char *models) {
    VEC(char *) names = {0};
    DIR *d = opendir(path_join(a, models, "families", ""));
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (n <= 4 || strcmp(e->d_name + n - 4, ".lua")) continue;
        char *name = arena_printf(a, "%.*s", (int)n - 4, e->d_name);
        if (is_family(name)) push(&names, a, name);
    }
    if (d) closedir(d);
    qsort(names.at, (size_t)names.n, sizeof *names.at, by_name);
    Str s = {.arena = a};
    for (int i = 0; i < names.n; i++) str_addf(&s, "%s%s", i ? ", " : "", names.at[i]);
    return names.n ? s.s : "none";
}

static const char *config_of(Arena *a, const char *given) {
    struct stat st;
    if (stat(given, &st)) {
        const char *slash = strchr(given, '/');
        bool hub = slash && slash != given && !strchr(slash + 1, '/') && *given != '.' && *given != '/' && slash[1];
        if (hub)
            fail(NOWHERE,
                 "%s is no folder here; if it is the name of a model on the Hugging Face Hub, download it first: "
                 "huggingface-cli download %s --local-dir %s",
                 given, given, slash + 1);
        fail(NOWHERE, "cannot read %s: %s", given, strerror(errno));
    }
    if (!S_ISDIR(st.st_mode)) return given;
    const char *path = path_join(a, given, "config.json", "");
    if (access(path, R_OK))
        fail(NOWHERE, "%s: %s; give the folder that save_pretrained wrote, or that was downloaded", path,
             strerror(errno));
    return path;
}

/* "llama-3b.lua", in this folder: what the model's folder is called. */
static const char *name_of(Arena *a, const char *folder) {
    char *name = arena_strdup(a, basename(path_real(a, folder)));
    for (char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_' && *p != '-' && *p != '.') *p = '_';
    return arena_printf(a, "%s.lua", *name && *name != '.' ? name : "model");
}

/* The families of what diffusers writes, which has no model_type but the name of a class. */
static const char *family_of_class(const cJSON *root) {
    static const char *const known[][2] = {{"DiTTransformer2DModel", "dit"}, {"Transformer2DModel", "dit"}};
    const cJSON *class = cJSON_GetObjectItemCaseSensitive(root, "_class_name");
    for (size_t i = 0; cJSON_IsString(class) && i < sizeof known / sizeof *known; i++)
        if (!strcmp(class->valuestring, known[i][0])) return known[i][1];
    return NULL;
}

static const char *model_type_of(Arena *a, const cJSON *root, const char *path, const char *models) {
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(root, "model_type");
    const char *family = family_of_class(root);
    if (!type && family) return family;
    if (!cJSON_IsString(type)) fail((Source){path, 0}, "it has no model_type; known are %s", families(a, models));
    const char *name = arena_strdup(a, type->valuestring);
    bool known = is_word(name) && is_family(name);
    if (!known || access(path_join(a, models, "families/", arena_printf(a, "%s.lua", name)), R_OK))
        fail((Source){path, 0}, "model_type '%.80s' has no family here; there are %s (models/families)", name,
             families(a, models));
    return name;
}

/* What people have written or changed the name of stays. */
static const char MARK[] = "Written by shardc import.";
static void keep_others(const char *path) {
    char head[256] = "";
    FILE *f = fopen(path, "rb");
    if (!f) return;
    size_t n = fread(head, 1, sizeof head - 1, f);
    fclose(f);
    if (n && !strstr(head, MARK))
        fail(NOWHERE, "%s is there already, and shardc import did not write it: give another name with -o", path);
}

static bool reads_arrays(const Graph *g) {
    for (int i = 0; i < g->inputs.n; i++)
        if (strcmp(g->inputs.at[i]->from, "tokens")) return true;
    return false;
}

/* What the file of samples, which is the user's, holds. */
static void tell_arrays(const Graph *g) {
    printf("\ntrain.safetensors (or a .npz; or NAME=FILE.npy for each) holds these arrays,\n"
           "N samples along the first dimension:\n");
    for (int i = 0; i < g->inputs.n; i++) {
        const Input *in = g->inputs.at[i];
        printf("  %-16s %s", in->name, dtype_name(in->dtype));
        printf("[N");
        for (int k = 1; k < in->dims; k++) printf(",%lld", (long long)in->shape[k]);
        printf("]\n");
    }
}

int command_import(Arena *a, const Options *o) {
    const char *given = o->inputs.at[0], *path = config_of(a, given), *models = places_models(a), *end = NULL;
    const char *folder = path_folder(a, path), *out = o->out ? o->out : name_of(a, folder);
    size_t n;
    if (!models) fail(NOWHERE, "models/families is not beside shardc; set SHARDC_HOME to the folder of shardc");
    const char *text = input_read(a, NOWHERE, path, CONFIG_MOST, &n);
    cJSON *root = cJSON_ParseWithLengthOpts(text, n, &end, false);
    if (!root || !cJSON_IsObject(root)) {
        int line = 1;
        for (const char *p = text; end && p < end && p < text + n; p++) line += *p == '\n';
        fail((Source){path, line}, "no JSON object: give the config.json of a Hugging Face model");
    }
    const char *type = model_type_of(a, root, path, models);
    const cJSON *positions = cJSON_GetObjectItemCaseSensitive(root, "max_position_embeddings");
    int longest = SEQ; /* of a row in the commands that are printed: not beyond the positions of the model */
    if (cJSON_IsNumber(positions) && positions->valuedouble >= 1 && positions->valuedouble < SEQ)
        longest = positions->valueint;
    Str fields = {.arena = a}, s = {.arena = a};
    Writer w = {&fields, path, false};
    for (const cJSON *v = root->child; v; v = v->next) {
        Str one = {.arena = a};
        w.out = &one;
        put_value(&w, v, v->string, 0);
        str_add(&fields, "  ");
        if (is_word(v->string)) {
            str_addf(&fields, "%s", v->string);
        } else {
            str_add(&fields, "[");
            put_string(&fields, v->string);
            str_add(&fields, "]");
        }
        str_addf(&fields, " = %s,\n", one.s);
    }
    const cJSON *predictors = cJSON_GetObjectItemCaseSensitive(root, "num_nextn_predict_layers");
    int more = !strcmp(type, "deepseek_v3") && cJSON_IsNumber(predictors) ? predictors->valueint : 0;
    cJSON_Delete(root);
    str_addf(&s,
             "-- A %s model, as its config.json says. %s Fields that this family does not use\n"
             "-- change nothing. Options of training (--set) are in models/families/training.lua.\n",
             type, MARK);
    if (w.has_null) str_add(&s, "local config = require \"families.config\"\n");
    str_addf(&s, "local family = require \"families.%s\"\n\nlocal training = family {\n%s}\nreturn training\n", type,
             fields.s ? fields.s : "");
    if (!cli_is_model(out)) fail_usage("import writes a .lua file: -o NAME.lua, not %s", out);
    keep_others(out);
    OutFile f = out_open(a, out);
    fputs(s.s, f.f);
    out_commit(&f);

    Options whole = *o; /* what the family refuses, it refuses now */
    whole.out = NULL;
    whole.quiet = true;
    const Plan *p = cli_plan(a, &whole, out);
    double parameters = 0;
    for (int i = 0; i < p->graph->params.n; i++) {
        const Param *x = p->graph->params.at[i];
        double n = x->split;
        for (int k = 0; k < x->dims; k++) n *= (double)x->shape[k];
        parameters += x->is_buffer ? 0 : n;
    }
    const char *name = arena_printf(a, "%.*s", (int)strlen(basename(out)) - 4, basename(out));
    printf("%s: %s of %s, %s parameters\n\n", out, type, path, figure_grouped(a, parameters));
    if (more > 0)
        printf("Not among them: %d layers of multi-token prediction, which --set mtp=0.3 trains, too. Without it\n"
               "--weights-partial leaves them out of the weights.\n\n",
               more);
    /* The file holds more than the model: what sees pictures, or those layers. */
    const char *partial = strcmp(type, "llama4") && more <= 0 ? "" : " --weights-partial";
    bool arrays = reads_arrays(p->graph);
    const char *seq = arrays ? "" : arena_printf(a, " --set seq=%d", longest);
    const char *plan = arena_printf(a, "--set precision=bf16%s --world 8 --device h200", seq);
    printf("shardc predict %s %s\n", out, plan);
    printf("shardc build %s %s && build/%s/%s --weights %s%s --data %s --steps 1000\n", out, plan, name, name, folder,
           partial, arrays ? "train.safetensors" : "'train*.bin'");
    if (arrays) tell_arrays(p->graph);
    return 0;
}
