/* Resuming: every file must be the one that the index names; the pieces of all files, sorted by (parameter, kind, first
 * element), must cover what the build needs; then every rank takes what its slices hold, whatever world the pieces were
 * written by. Buffers belong to a rank: rank r takes those of rank r modulo the old world. Moments may have been kept
 * in another of their dtypes: fp32 from bf16 or from 8 bits is exact, bf16 rounds to nearest, once, 8 bits code anew.
 * Relies on: state, safetensors, file.h, dtype, sc_moments8.h, jansson, zlib (crc32), target.
 * Relied on by: run (before ranks start), train. */
#include "../file.h"
#include "../sc_moments8.h"
#include "checkpoint.h"
#include "die.h"
#include "dtype.h"
#include "state.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    CHUNK = 1 << 20,
    WIDEST = 8,
    INDEX_MOST = 64 << 20
}; /* bytes: read at a time; of the widest element; an index */

typedef struct {
    char *path;
    PieceKind kind;
    int64_t begin, end;
    int ahead; /* of scales: Piece.ahead */
    int file;
    const StTensor *tensor;
    bool summed; /* not in checkpoints of before there were checksums */
    unsigned long sum;
} Entry;

struct Checkpoint {
    const sc_build *b;
    char *dir, *folder;
    Progress progress;
    json_t *given;
    int world;
    uint64_t plan_hash, run;
    unsigned long sum, *heads; /* crc32: of the index; of each file's head, or NULL: version 1 */
    StFile *files;
    Entry *entries;
    int n;
};

const Progress *checkpoint_progress(const Checkpoint *c) {
    return &c->progress;
}
int checkpoint_world(const Checkpoint *c) {
    return c->world;
}
const json_t *checkpoint_given(const Checkpoint *c) {
    return c->given;
}
uint64_t checkpoint_run(const Checkpoint *c) {
    return c ? c->run : 0;
}
unsigned long checkpoint_sum(const Checkpoint *c) {
    return c->sum;
}

/* ── the index ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
#define DAMAGED "damaged; resume from another checkpoint"
#define OTHER_MODEL "another model; resume with the binary it was made with"

static int64_t index_int(json_t *j, const char *path, const char *key) {
    json_t *v = json_object_get(j, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        die("%s: '%s' is missing or not a whole number: " DAMAGED, path, key);
    return json_integer_value(v);
}

/* Of steps or samples: few enough to be added up. */
static int64_t index_count(json_t *j, const char *path, const char *key) {
    int64_t n = index_int(j, path, key);
    if (n >> 53) die("%s: '%s' is %" PRId64 ": " DAMAGED, path, key, n);
    return n;
}

/* Read once: a run that saves there may replace the file. */
static char *index_read(const char *path, size_t *n) {
    char why[256], *text;
    struct stat st;
    int fd = sc_open_input(path, &st, why, sizeof why);
    if (fd < 0)
        die("%s: no checkpoint there: %s; --resume takes the folder that --save wrote; --continue DIR begins where "
            "there is none yet",
            path, why);
    if (st.st_size > INDEX_MOST)
        die("%s: not the index of a checkpoint: it is larger than 64 MiB; --resume takes the folder "
            "that --save wrote",
            path);
    *n = (size_t)st.st_size;
    text = need(*n + 1, 1);
    if (!sc_read_at(fd, text, *n, 0))
        die("cannot read %s: %s; resume from another checkpoint, or copy the file anew", path, strerror(errno));
    close(fd);
    return text;
}

/* A number of `digits` hexadecimal digits. */
static uint64_t index_hex(json_t *value, const char *path, const char *key, size_t digits) {
    const char *s = json_string_value(value);
    if (!s || strlen(s) != digits || strspn(s, "0123456789abcdef") != digits)
        die("%s: '%s' is missing or not a number of %zu hexadecimal digits: " DAMAGED, path, key, digits);
    return strtoull(s, NULL, 16);
}

static void read_index(Checkpoint *c) {
    json_error_t e;
    size_t n;
    char *path = need_text("%s/index.json", c->dir), *text = index_read(path, &n), end[64];
    json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!j)
        die("%s: not JSON: %s (line %d); resume from another checkpoint, or copy the file anew", path, e.text, e.line);
    const char *format = json_string_value(json_object_get(j, "format"));
    if (!format || strcmp(format, "shardc-checkpoint") != 0)
        die("%s: not the index of a checkpoint; --resume takes the folder that --save wrote", path);
    int64_t version = index_int(j, path, "version");
    if (version != 1 && version != 2)
        die("%s: version %" PRId64 " of the format; this program reads versions 1 and 2", path, version);
    c->progress = (Progress){.step = index_count(j, path, "step"),
                             .position = index_count(j, path, "position"),
                             .seed = (uint64_t)index_int(j, path, "seed"),
                             .adam_step = index_count(j, path, "adam_step"),
                             .global_batch = index_count(j, path, "global_batch"),
                             .tokens = json_object_get(j, "tokens") ? index_count(j, path, "tokens") : -1};
    const json_t *scale = json_object_get(j, "loss_scale"); /* there where the run that saved had a scaler */
    if (scale) {
        c->progress.scaler = (sc_scaler){.scale = (float)json_number_value(scale),
                                         .clean = (float)index_int(j, path, "clean_steps"),
                                         .skips = (float)index_int(j, path, "skipped_steps")};
        if (!(c->progress.scaler.scale > 0) || isinf(c->progress.scaler.scale))
            die("%s: 'loss_scale' is not a positive number: " DAMAGED, path);
    }
    int64_t world = index_int(j, path, "world");
    if (world < 1 || world > 1 << 20) die("%s: a world of %" PRId64 " ranks: " DAMAGED, path, world);
    c->world = (int)world;
    const char *folder = json_string_value(json_object_get(j, "folder"));
    if (!folder) die("%s: 'folder' is missing or not a text: " DAMAGED, path);
    if (!folder[0] || strchr(folder, '/') || strcmp(folder, "..") == 0)
        die("%s: the folder '%s' is not beside it: " DAMAGED, path, folder);
    c->folder = need_text("%s", folder);
    c->plan_hash = index_hex(json_object_get(j, "plan_hash"), path, "plan_hash", 16);
    if (version > 1) { /* which run the state is of, and which heads its files have */
        json_t *heads = json_object_get(j, "heads");
        c->run = index_hex(json_object_get(j, "run"), path, "run", 16);
        if (json_array_size(heads) != (size_t)c->world)
            die("%s: 'heads' has %zu checksums for %d files: " DAMAGED, path, json_array_size(heads), c->world);
        c->heads = need((size_t)c->world, sizeof *c->heads);
        for (int i = 0; i < c->world; i++)
            c->heads[i] = (unsigned long)index_hex(json_array_get(heads, (size_t)i), path, "heads", 8);
    }
    size_t tail = (size_t)snprintf(end, sizeof end, INDEX_SUM, 0ul);
    if (n >= tail) snprintf(end, sizeof end, INDEX_SUM, crc32(0, (const unsigned char *)text, (unsigned)(n - tail)));
    bool summed = version > 1 || json_object_get(j, "crc32"); /* in version 1 it may be missing */
    if (summed && (n < tail || memcmp(text + n - tail, end, tail) != 0))
        die("%s: its text is not the one that was saved (crc32): " DAMAGED ", or copy the file anew", path);
    c->sum = crc32(0, (const unsigned char *)text, (unsigned)n);
    json_decref(c->given);
    c->given = json_incref(json_object_get(j, "given"));
    json_decref(j);
    free(text);
    free(path);
}

/* ── the pieces ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* "layers.0.weight@[0,128)#master", or "...#scale1+64": from the right, since a path may hold any character. */
static bool parse_name(const char *name, Entry *e) {
    const char *hash = strrchr(name, '#'), *at = NULL;
    for (const char *p = name; (p = strstr(p, "@[")); p++) at = p;
    if (!hash || !at || hash < at) return false;
    int used = 0;
    if (sscanf(at, "@[%" SCNd64 ",%" SCNd64 ")%n", &e->begin, &e->end, &used) != 2 || at + used != hash) return false;
    const char *plus = strchr(hash, '+');
    size_t n = plus ? (size_t)(plus - hash - 1) : strlen(hash + 1);
    int k = 0;
    for (const char *kind; k < P_KINDS; k++)
        if (strlen(kind = piece_kind_name((PieceKind)k)) == n && strncmp(hash + 1, kind, n) == 0) break;
    e->kind = (PieceKind)k;
    e->path = need_text("%.*s", (int)(at - name), name);
    if (plus && (sscanf(plus, "+%3d%n", &e->ahead, &used) != 1 || plus[used])) return false;
    bool may_follow = (k == P_SCALE1 || k == P_SCALE2) && e->ahead > 0 && e->ahead < SC_MOMENTS8_BLOCK;
    return k < P_KINDS && e->begin >= 0 && e->begin <= e->end && (!plus || may_follow);
}

static int by_place(const void *a, const void *b) {
    const Entry *x = a, *y = b;
    int c = strcmp(x->path, y->path);
    if (c) return c;
    if (x->kind != y->kind) return (int)x->kind - (int)y->kind;
    if (x->kind == P_BUFFER) return x->file - y->file;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static void add_entries(Checkpoint *c, int file) {
    StFile *f = &c->files[file];
    c->entries = realloc(c->entries, (size_t)(c->n + f->n + 1) * sizeof *c->entries);
    if (!c->entries) die("out of memory for the pieces of %s", c->dir);
    const Entry *lacks = NULL;
    int summed = 0;
    for (int i = 0; i < f->n; i++) {
        Entry *e = &c->entries[c->n++];
        *e = (Entry){.file = file, .tensor = &f->tensors[i]};
        if (!parse_name(f->tensors[i].name, e) || e->end - e->begin != f->tensors[i].numel)
            die("%s: the tensor '%.100s' is no piece of a checkpoint (path@[begin,end)#kind): " DAMAGED, f->path,
                f->tensors[i].name);
        const char *sum = st_metadata(f, e->tensor->name);
        int used = 0;
        e->summed = sum != NULL;
        if (sum && (sscanf(sum, "crc32 %8lx%n", &e->sum, &used) != 1 || sum[used]))
            die("%s: the checksum of '%s' is '%.40s': " DAMAGED, f->path, e->tensor->name, sum);
        summed += e->summed;
        if (!e->summed) lacks = e;
    }
    if (summed && lacks) /* a file was saved with sums of all or of none */
        die("%s: '%s' has no checksum, and others have: " DAMAGED, f->path, lacks->tensor->name);
}

static void close_files(Checkpoint *c, int n) {
    for (int i = 0; i < n; i++) st_close(&c->files[i]);
    for (int i = 0; i < c->n; i++) free(c->entries[i].path);
    free(c->entries);
    free(c->files);
    free(c->folder);
    free(c->heads);
    c->entries = NULL;
    c->heads = NULL;
    c->n = 0;
}

/* NULL, or why a rank's file is not the one that the index names. */
static char *why_strange(const Checkpoint *c, const StFile *f, int rank) {
    char want[SHARD_WIDTH + 1];
    const char *is = st_metadata(f, SHARD_KEY);
    if (!c->heads) return NULL;
    int n = snprintf(want, sizeof want, SHARD_NAME, rank, c->world, c->progress.step, c->run);
    if (is && strncmp(is, want, (size_t)n) == 0 && !is[n + strspn(is + n, " ")]) {
        if (f->head_sum == c->heads[rank]) return NULL;
        return need_text("its head is not the one that was saved as %s (crc32 " HEAD_SUM ", was " HEAD_SUM ")", want,
                         f->head_sum, c->heads[rank]);
    }
    if (!is || is[strspn(is, "abcdefghijklmnopqrstuvwxyz0123456789 ")])
        return need_text("it does not say of which run it is; the index names %s", want);
    for (n = (int)strlen(is); n > 0 && is[n - 1] == ' ';) n--;
    return need_text("it is %.*s; the index names %s", n, is, want);
}

/* Opens all files. NULL, or what is wrong with the first that cannot be opened: then none stays open. */
static char *open_files(Checkpoint *c) {
    char error[ST_ERROR], *wrong = NULL;
    int opened = 0;
    c->files = need((size_t)c->world, sizeof *c->files);
    while (opened < c->world && !wrong) {
        bool own = strcmp(c->folder, ".") == 0; /* the index lies beside the files */
        char *path = need_text("%s/%s%srank-%d.safetensors", c->dir, own ? "" : c->folder, own ? "" : "/", opened),
             *why = NULL;
        StFile *f = &c->files[opened];
        if (!st_open(f, path, error))
            wrong = need_text("%s: %s", path, error);
        else if ((why = why_strange(c, f, opened++)))
            wrong = need_text("%s: %s", path, why);
        else
            add_entries(c, opened - 1);
        free(why);
        free(path);
    }
    if (wrong)
        close_files(c, opened);
    else
        qsort(c->entries, (size_t)c->n, sizeof *c->entries, by_place);
    return wrong;
}

/* A run that saves there may have replaced the state since the index was read: then the index names another one by now.
 * Files that are open stay readable. */
static void open_state(Checkpoint *c) {
    char *wrong = NULL, *before = NULL;
    do {
        free(before);
        before = wrong;
        read_index(c);
        wrong = open_files(c);
        if (wrong && before && strcmp(wrong, before) == 0)
            die("%s; the checkpoint is damaged; copy the file anew, or resume from another one", wrong);
    } while (wrong);
    free(before);
}

/* The first entry of a parameter and kind; *n how many there are. */
static const Entry *entries_of(const Checkpoint *c, const char *path, PieceKind k, int *n) {
    int lo = 0, hi = c->n;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2, order = strcmp(c->entries[mid].path, path);
        if (order < 0 || (order == 0 && c->entries[mid].kind < k))
            lo = mid + 1;
        else
            hi = mid;
    }
    for (*n = 0; lo + *n < c->n && strcmp(c->entries[lo + *n].path, path) == 0 && c->entries[lo + *n].kind == k;) ++*n;
    return c->entries + lo;
}

/* A frozen parameter that sharding ignores is kept as a buffer, so either kind may stand for the other. */
static const Entry *pieces_of(const Checkpoint *c, const sc_param_info *p, PieceKind k, int *n) {
    const Entry *e = entries_of(c, p->path, k, n);
    if (*n == 0 && k == P_BUFFER) return entries_of(c, p->path, P_VALUE, n);
    if (*n > 0 || k != P_VALUE || p->trainable) return e;
    e = entries_of(c, p->path, P_BUFFER, n);
    *n = *n > 0; /* the first rank's: all are alike */
    return e;
}

/* ── does it fit the build? ──────────────────────────────────────────────────────────────────────────────────────────
 */
/* Optimizers may keep the same moments and mean something else by them. */
static void check_optimizer(const Checkpoint *c) {
    const char *name = json_string_value(json_object_get(c->given, "optimizer"));
    const json_t *own = json_object_get(c->given, "optimizers"); /* of parameters that have another */
    for (int i = 0; i < c->b->nparams && name; i++) {
        const char *path = c->b->params[i].path, *here = state_optimizer(c->b, i);
        const char *there = json_string_value(json_object_get(own, path));
        if (!there) there = name;
        if (!c->b->params[i].trainable || !strcmp(there, here)) continue;
        char *of =
            strcmp(there, name) || strcmp(here, c->b->optimizer) ? need_text(" of '%s'", path) : need_text("%s", "");
        die("%s: made with the optimizer '%s'%s, and this program was built with '%s': resume with the binary it was "
            "made with; to begin anew from its weights, --export them and use --weights",
            c->dir, there, of, here);
    }
}

/* Without momentum, or of a state that does not say which optimizer it is of. */
static _Noreturn void other_optimizer(const Checkpoint *c, const char *has, PieceKind k, const char *path,
                                      const char *lacks) {
    die("%s: %s %s of '%s'%s: made with another optimizer; to begin anew from its weights, --export them and use "
        "--weights",
        c->dir, has, piece_kind_name(k), path, lacks);
}

/* The state lacks what this program keeps for itself, or another one kept it: it begins anew. */
static bool lacks_internal(const Entry *e, int n, const sc_param_info *p) {
    return p->internal && (n == 0 || e[n - 1].end != p->numel);
}

/* The n entries of a kind, in order, are all of its `all` elements. */
static void check_cover(const Checkpoint *c, const sc_param_info *p, PieceKind k, const Entry *e, int n, int64_t all) {
    bool buffers = k == P_BUFFER && e->kind == P_BUFFER; /* one of every rank, each whole */
    int64_t at = 0;
    if (buffers && n != c->world)
        die("%s: buffer '%s' is there for %d of %d ranks: " DAMAGED, c->dir, p->path, n, c->world);
    for (int i = 0; i < n; i++) {
        if (buffers) at = 0;
        if (e[i].begin != at)
            die("%s: elements %" PRId64 " to %" PRId64 " of '%s' (%s) are %s: " DAMAGED, c->files[e[i].file].path,
                e[i].begin < at ? e[i].begin : at, e[i].begin < at ? at : e[i].begin, p->path, piece_kind_name(k),
                e[i].begin < at ? "there twice" : "missing");
        at = e[i].end;
        if ((buffers || i == n - 1) && at != all)
            die("%s: '%s' (%s) has %" PRId64 " elements there and %" PRId64 " in this build: " OTHER_MODEL, c->dir,
                p->path, piece_kind_name(k), at, all);
    }
}

/* A parameter's first block may have fewer than 256 elements of it. */
static int64_t blocks_of(int64_t numel, int ahead) {
    return (ahead + numel + SC_MOMENTS8_BLOCK - 1) / SC_MOMENTS8_BLOCK;
}

/* Of a moment in 8 bits, its scales: as many as it has blocks. */
static void check_scales(const Checkpoint *c, const sc_param_info *p, PieceKind k) {
    int n;
    const Entry *e = entries_of(c, p->path, k, &n);
    for (int i = 0; i < n; i++)
        if (e[i].tensor->sc_dtype != FP32 || e[i].ahead != e->ahead)
            die("%s: '%s' (%s) is not as it was saved: " DAMAGED, c->files[e[i].file].path, p->path,
                piece_kind_name(k));
    if (n == 0) die("%s: no %s of '%s', whose moments are int8: " DAMAGED, c->dir, piece_kind_name(k), p->path);
    check_cover(c, p, k, e, n, blocks_of(p->numel, e->ahead));
}

static void check_param(const Checkpoint *c, int param, PieceKind k) {
    const sc_param_info *p = &c->b->params[param];
    int n = 0;
    bool moment = piece_is_moment(k);
    if (k == P_SCALE1 || k == P_SCALE2) return; /* with their moments */
    if (!state_exists(c->b, param, k)) {        /* a moment that is there would be taken for another optimizer's */
        if (moment && p->trainable) entries_of(c, p->path, k, &n);
        if (n > 0) other_optimizer(c, "the", k, p->path, " is there, and this program keeps none");
        return;
    }
    const Entry *e = pieces_of(c, p, k, &n);
    if (n == 0 && moment) other_optimizer(c, "no", k, p->path, "");
    if (n == 0 && k == P_AVERAGE)
        die("%s: no average of '%s' there: it was saved by a program without ema; resume with that one, or begin anew "
            "from its weights: --export them and use --weights",
            c->dir, p->path);
    if (lacks_internal(e, n, p)) return;
    if (n == 0) die("%s: no '%s' there: " OTHER_MODEL, c->dir, p->path);
    sc_dtype want = state_dtype(c->b, param, k);
    for (int i = 0; i < n; i++) {
        int there = e[i].tensor->sc_dtype;
        if (there != (int)want && !(moment && (there == FP32 || there == BF16 || there == INT8)))
            die("%s: '%s' (%s) is %s there and %s in this build: " OTHER_MODEL, c->files[e[i].file].path, p->path,
                piece_kind_name(k), e[i].tensor->dtype, host_dtype_st(want));
        if (there != e->tensor->sc_dtype && (there == INT8 || e->tensor->sc_dtype == INT8))
            die("%s: '%s' (%s) is %s there and %s in another file: " DAMAGED, c->files[e[i].file].path, p->path,
                piece_kind_name(k), e[i].tensor->dtype, e->tensor->dtype);
    }
    check_cover(c, p, k, e, n, p->numel);
    if (moment && e->tensor->sc_dtype == INT8) check_scales(c, p, piece_scales(k));
}

/* It is kept there as this build keeps it: in 8 bits, in the same blocks. */
static bool same_codes(const Checkpoint *c, int param, PieceKind k) {
    const char *path = c->b->params[param].path;
    int n, scales;
    const Entry *e = entries_of(c, path, k, &n), *s = entries_of(c, path, piece_scales(k), &scales);
    return e->tensor->sc_dtype == INT8 && scales > 0 && s->ahead == state_ahead(c->b, param);
}

static void tell_converted(const Checkpoint *c) {
    for (int i = 0; i < c->n; i++) {
        const Entry *e = &c->entries[i];
        const sc_param_info *p = c->b->params;
        if (e->kind != P_MOMENT1) continue;
        while (p < c->b->params + c->b->nparams && strcmp(p->path, e->path) != 0) p++;
        int param = (int)(p - c->b->params);
        if (param == c->b->nparams || !state_exists(c->b, param, P_MOMENT1)) continue;
        sc_dtype here = state_dtype(c->b, param, P_MOMENT1);
        if (e->tensor->sc_dtype == (int)here) {
            if (here != INT8 || same_codes(c, param, P_MOMENT1)) continue;
            note("%s: the optimizer's moments are in other blocks of 256 elements there: coded anew", c->dir);
            return;
        }
        note("%s: the optimizer's moments are %s there and %s in this build: %s", c->dir,
             host_dtype_name((sc_dtype)e->tensor->sc_dtype), host_dtype_name(here),
             here == FP32   ? "taken as they are"
             : here == INT8 ? "coded in blocks of 256"
                            : "rounded to nearest");
        return;
    }
}

Checkpoint *checkpoint_open(const sc_build *b, const char *dir) {
    Checkpoint *c = need(1, sizeof *c);
    c->b = b;
    c->dir = need_text("%s", dir);
    open_state(c);
    check_optimizer(c);
    for (int i = 0; i < b->nparams; i++)
        for (int k = 0; k < P_KINDS; k++) check_param(c, i, (PieceKind)k);
    if (c->plan_hash != b->plan_hash)
        die("%s: made by another model (shapes or parameters differ): resume with the binary it was made with", dir);
    tell_converted(c);
    return c;
}

/* ── loading ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct { /* where elements go: to the bytes of a piece, or, `values`, to floats */
    sc_rank *r;
    const Piece *p;
    float *values;
    int64_t first;      /* which element values[0] is */
    const float *codes; /* by code, for values of 8 bits without their scales */
    uint8_t *converted; /* CHUNK bytes */
} Sink;

static void take(const Sink *s, sc_dtype there, const uint8_t *bytes, int64_t from, int64_t n) {
    if (s->values && there == INT8) {
        for (int64_t i = 0; i < n; i++) s->values[from - s->first + i] = s->codes[bytes[i]];
        return;
    }
    if (s->values) {
        host_convert(FP32, s->values + (from - s->first), there, bytes, n);
        return;
    }
    if (there != s->p->dtype) {
        host_convert(s->p->dtype, s->converted, there, bytes, n);
        bytes = s->converted;
    }
    int64_t size = sc_size(s->p->dtype);
    sc_write(s->r, s->p->host, s->p->at + (uint64_t)((from - s->p->begin) * size), bytes, (size_t)(n * size));
}

/* Takes the elements [begin, end) of a parameter from a tensor. For its checksum all of the tensor is read. */
static void copy_range(const Checkpoint *c, const Entry *e, int64_t begin, int64_t end, const Sink *to,
                       uint8_t *chunk) {
    const StFile *f = &c->files[e->file];
    sc_dtype there = (sc_dtype)e->tensor->sc_dtype;
    int64_t read_size = sc_size(there), most = CHUNK / WIDEST, n;
    int64_t last = e->summed ? e->end : end;
    unsigned long sum = crc32(0, NULL, 0);
    for (int64_t at = e->summed ? e->begin : begin; at < last; at += n) {
        n = last - at < most ? last - at : most;
        if (!st_read(f, e->tensor, at - e->begin, n, chunk))
            die("%s: cannot read '%s': %s; resume from another checkpoint, or copy the file anew", f->path,
                e->tensor->name, strerror(errno));
        if (e->summed) sum = crc32(sum, chunk, (unsigned)(n * read_size));
        int64_t from = at > begin ? at : begin, last_of = at + n < end ? at + n : end;
        if (from >= last_of) continue;
        take(to, there, chunk + (from - at) * read_size, from, last_of - from);
    }
    if (e->summed && sum != e->sum)
        die("%s: the bytes of '%s' are not those that were saved (" PIECE_SUM ", was " PIECE_SUM "): " DAMAGED
            ", or copy the file anew",
            f->path, e->tensor->name, sum, e->sum);
}

/* Those of a kind that lie in [begin, end). */
static void copy_entries(const Checkpoint *c, const sc_param_info *p, PieceKind k, int64_t begin, int64_t end,
                         const Sink *to, uint8_t *chunk) {
    int n;
    const Entry *e = pieces_of(c, p, k, &n);
    for (int i = 0; i < n; i++) {
        int64_t from = e[i].begin > begin ? e[i].begin : begin, last = e[i].end < end ? e[i].end : end;
        if (from < last) copy_range(c, &e[i], from, last, to, chunk);
    }
}

/* ── moments of another dtype, or in other blocks ────────────────────────────────────────────────────────────────────
 */
/* A moment's elements [begin, end) as floats, whatever they are kept as. */
static void copy_values(const Checkpoint *c, const sc_param_info *p, PieceKind k, int64_t begin, int64_t end, float *to,
                        uint8_t *chunk) {
    float codes[SC_MOMENTS8_CODES];
    int n;
    for (int i = 0; i < SC_MOMENTS8_CODES; i++) codes[i] = sc_moments8_value(i, k == P_MOMENT1);
    copy_entries(c, p, k, begin, end, &(Sink){.values = to, .first = begin, .codes = codes}, chunk);
    if (entries_of(c, p->path, k, &n)->tensor->sc_dtype != INT8) return;
    PieceKind own = piece_scales(k);
    int ahead = entries_of(c, p->path, own, &n)->ahead;
    int64_t first = (ahead + begin) / SC_MOMENTS8_BLOCK, many = blocks_of(end, ahead) - first;
    float *scales = need((size_t)many, sizeof *scales);
    copy_entries(c, p, own, first, first + many, &(Sink){.values = scales, .first = first}, chunk);
    for (int64_t i = begin; i < end; i++) to[i - begin] *= scales[(ahead + i) / SC_MOMENTS8_BLOCK - first];
    free(scales);
}

/* A unit's moment in 8 bits from what is none, or has other blocks. A block may be that of two parameters, so the whole
 * shard is coded at once. */
static void code_unit(const Checkpoint *c, sc_rank *r, int unit, PieceKind k, const Piece *pieces, int npieces,
                      uint8_t *chunk) {
    const sc_unit_info *u = &c->b->units[unit];
    int64_t n = u->shard_numel;
    int host = k == P_MOMENT1 ? u->host_m : u->host_v;
    uint64_t at = k == P_MOMENT1 ? u->m : u->v;
    float *values = need((size_t)n, sizeof *values);
    uint8_t *state = need((size_t)sc_moments8_bytes(n), 1);
    for (const Piece *p = pieces; p < pieces + npieces; p++)
        if (p->kind == k && c->b->params[p->param].unit == unit)
            copy_values(c, &c->b->params[p->param], k, p->begin, p->end, values + (p->at - at), chunk);
    for (int64_t i = 0, block = SC_MOMENTS8_BLOCK; i < n; i += block)
        sc_moments8_scales(state, n)[i / block] = sc_moments8_code_block(state + i, values + i, block, k == P_MOMENT1);
    sc_write(r, host, at, state, (size_t)sc_moments8_bytes(n));
    free(state);
    free(values);
}

/* Which pieces are to be coded anew: those of units where any is. */
static void code_units(const Checkpoint *c, sc_rank *r, const Piece *pieces, int npieces, bool *done, uint8_t *chunk) {
    for (int unit = 0; unit < c->b->nunits; unit++)
        for (int k = P_MOMENT1; k <= P_MOMENT2; k++) {
            bool anew = false;
            for (int i = 0; i < npieces; i++) {
                const Piece *p = &pieces[i];
                if (c->b->params[p->param].unit != unit || (int)p->kind != k || p->dtype != INT8) continue;
                anew |= !same_codes(c, p->param, p->kind);
            }
            if (!anew) continue;
            code_unit(c, r, unit, (PieceKind)k, pieces, npieces, chunk);
            for (int i = 0; i < npieces; i++)
                done[i] |= c->b->params[pieces[i].param].unit == unit &&
                           ((int)pieces[i].kind == k || pieces[i].kind == piece_scales((PieceKind)k));
        }
}

void checkpoint_load(const Checkpoint *c, sc_rank *r) {
    Piece *pieces;
    uint8_t *chunk = need(2, CHUNK); /* as read; converted */
    int npieces = state_pieces(c->b, sc_rank_index(r), &pieces), n;
    bool *done = need((size_t)npieces + 1, sizeof *done);
    code_units(c, r, pieces, npieces, done, chunk);
    for (const Piece *p = pieces; p < pieces + npieces; p++) {
        const sc_param_info *param = &c->b->params[p->param];
        const Entry *e = pieces_of(c, param, p->kind, &n);
        Sink to = {.r = r, .p = p, .converted = chunk + CHUNK};
        if (done[p - pieces] || lacks_internal(e, n, param)) continue;
        if (piece_is_moment(p->kind) && p->dtype != INT8 && e->tensor->sc_dtype == INT8) {
            float *values = need((size_t)(p->end - p->begin), sizeof *values);
            copy_values(c, param, p->kind, p->begin, p->end, values, chunk);
            for (int64_t at = p->begin, some; at < p->end; at += some) {
                some = p->end - at < CHUNK / WIDEST ? p->end - at : CHUNK / WIDEST;
                take(&to, FP32, (const uint8_t *)(values + (at - p->begin)), at, some);
            }
            free(values);
        } else if (p->kind == P_BUFFER && e->kind == P_BUFFER) {
            copy_range(c, &e[sc_rank_index(r) % c->world], p->begin, p->end, &to, chunk);
        } else {
            copy_entries(c, param, p->kind, p->begin, p->end, &to, chunk);
        }
    }
    if (state_counts_steps(c->b)) sc_write(r, 0, c->b->step_at, &c->progress.adam_step, sizeof(int64_t));
    if (c->b->has_scaler && c->progress.scaler.scale > 0)
        sc_write(r, 0, c->b->scaler_at, &c->progress.scaler, sizeof c->progress.scaler);
    free(done);
    free(pieces);
    free(chunk);
}

void checkpoint_close(Checkpoint *c) {
    if (!c) return;
    close_files(c, c->world);
    json_decref(c->given);
    free(c->dir);
    free(c);
}
