/* Weights as plain safetensors. Import: each rank reads and converts the ranges that its slices hold. Export: rank 0
 * puts every parameter together from the ranks that hold it, piece by piece.
 * Relies on: args, safetensors, shard_index, state, file.h, folded, target (sc_read_peer).
 * Relied on by: run, train. */
#include "weights.h"
#include "../file.h"
#include "die.h"
#include "folded.h"
#include "shard_index.h"
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 18 }; /* elements converted at a time */

/* ── import ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    char *path; /* of the parameter that it is taken for: as the maps say, else its own name */
    const StTensor *t;
    const StFile *file;
    int place; /* in the order of the files */
    int map;   /* the --weights-map that made its path, from 1; 0: none */
    bool taken;
} Entry;

struct Weights {
    const sc_build *b;
    bool partial;
    StFile *files;
    int n;
    char *prefix;   /* that tensors have before the paths of parameters: "transformer."; NULL: none */
    Entry *entries; /* tensors of all files, by path */
    int nentries;
};

static void add_file(Weights *w, const char *path) {
    char error[ST_ERROR];
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

static void add_pattern(Weights *w, const char *pattern) {
    glob_t g;
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
/* What `name` is called by the map FILE=MODEL, in new memory; NULL: the map is for other names. */
static char *renamed(const char *map, const char *name) {
    const char *equals = strchr(map, '='), *to = equals + 1, *star = memchr(map, '*', (size_t)(equals - map));
    size_t n = strlen(name), head = (size_t)((star ? star : equals) - map),
           tail = star ? (size_t)(equals - star - 1) : 0;
    if (n < head + tail || (!star && n != head) || strncmp(map, name, head) ||
        (star && strncmp(star + 1, name + n - tail, tail)))
        return NULL;
    const char *there = strchr(to, '*');
    if (!there) return need_text("%s", to);
    return need_text("%.*s%.*s%s", (int)(there - to), to, (int)(n - head - tail), name + head, there + 1);
}

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
    for (int i = 0; i < w->n; i++) n += w->files[i].n;
    w->entries = need((size_t)n, sizeof *w->entries);
    for (int i = 0; i < w->n; i++)
        for (int k = 0; k < w->files[i].n; k++) {
            Entry *e = &w->entries[w->nentries];
            *e = (Entry){.t = &w->files[i].tensors[k], .file = &w->files[i], .place = w->nentries++};
            for (int m = 0; m < maps->n && !e->path; m++)
                if ((e->path = renamed(maps->at[m], e->t->name))) used[m]++, e->map = m + 1;
            if (!e->path) e->path = need_text("%s", e->t->name);
        }
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
    size_t n = strlen(e->t->name), m = strlen(e->path);
    return n >= m && !strcmp(e->t->name + n - m, e->path);
}

static Entry *find(const Weights *w, const char *path) {
    Entry *e = find_name(w, path);
    if (e || !w->prefix) return e;
    char *name = need_text("%s%s", w->prefix, path);
    e = find_name(w, name);
    free(name);
    return e && has_own_prefix(e) ? e : NULL;
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
 * where it finds more parameters than the plain names do, and, without --weights-partial, where none is then missing.
 */
static void find_prefix(Weights *w) {
    int own = 0, inner = 0, missing = 0;
    for (int i = 0; i < w->b->nparams; i++) {
        const char *path = w->b->params[i].path;
        if (w->b->params[i].buffer) continue;
        bool there = find_name(w, path);
        if (!there && !w->prefix) w->prefix = prefix_of(w, path);
        if (there)
            own++;
        else if (find(w, path))
            inner++;
        else
            missing++;
    }
    if (w->prefix && inner > own && (w->partial || !missing)) {
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

static bool take_param(const Weights *w, const sc_param_info *p) {
    char there[160], here[160];
    Entry *e = find(w, p->path);
    if (!e && !p->buffer && !w->partial) {
        const char *like = nearest(w, p->path);
        die("%s: no tensor '%s' there%s%.100s%s: a path of the model must be the tensor's name; --weights-map says "
            "which other name it has there, --weights-partial leaves it as initialised",
            w->files[0].path, p->path, like ? " (nearest: '" : "", like ? like : "", like ? "')" : "");
    }
    if (!e) return false;
    bool same_shape = e->t->dims == p->dims;
    for (int d = 0; d < p->dims && same_shape; d++) same_shape = e->t->shape[d] == p->shape[d];
    if (!same_shape)
        die("%s: '%s' is %s there and %s in this build: set the model's options to the weights'%s", e->file->path,
            p->path, shape_text(there, sizeof there, e->t->shape, e->t->dims),
            shape_text(here, sizeof here, p->shape, p->dims),
            w->partial ? ", or keep it out: --weights-map gives it a name that the model does not have" : "");
    if (e->t->sc_dtype < 0 || host_dtype_float((sc_dtype)e->t->sc_dtype) != host_dtype_float(p->dtype))
        die("%s: '%s' is %s there, which does not convert to %s", e->file->path, p->path, e->t->dtype,
            host_dtype_name(p->dtype));
    e->taken = true;
    return true;
}

static void take_params(const Weights *w) {
    const char **left = need((size_t)w->b->nparams, sizeof *left);
    int n = 0, buffers = 0, taken = 0;
    for (int i = 0; i < w->b->nparams; i++) {
        const sc_param_info *p = &w->b->params[i];
        bool there = take_param(w, p);
        taken += there;
        buffers += !there && p->buffer;
        if (!there && !p->buffer) left[n++] = p->path;
    }
    if (!taken)
        die("%s: it has no parameter of this model: neither '%s' nor any other; name other weights, or say with "
            "--weights-map what they are here",
            w->files[0].path, w->b->params[0].path);
    if (buffers) note("%d buffers are not in %s: they keep their initial values", buffers, w->files[0].path);
    if (n) {
        char *list = folded(left, n);
        note("--weights-partial: parameters that are not in %s and stay as initialised (%d): %s", w->files[0].path, n,
             list);
        free(list);
    }
    free(left);
}

/* ── tensors that are no parameters ──────────────────────────────────────────────────────────────────────────────────
 */
/* Tables that PyTorch's modules save and that a model computes by itself. A causal mask has a bias's name: its shape
 * tells it from one. */
static bool is_table(const StTensor *t) {
    static const char *const ends[] = {"attn.masked_bias",        "attention.masked_bias", "rotary_emb.inv_freq",
                                       "rotary_pos_emb.inv_freq", "position_ids",          "num_batches_tracked"};
    static const char *const masks[] = {"attn.bias", "attention.bias"};
    size_t n = strlen(t->name);
    bool mask = t->dims == 4 && t->shape[0] == 1 && t->shape[1] == 1 && t->shape[2] == t->shape[3];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n >= strlen(ends[i]) && !strcmp(t->name + n - strlen(ends[i]), ends[i])) return true;
    for (size_t i = 0; i < sizeof masks / sizeof *masks && mask; i++)
        if (n >= strlen(masks[i]) && !strcmp(t->name + n - strlen(masks[i]), masks[i])) return true;
    return false;
}

static void tell_unused(const Weights *w) {
    const char **tables = need((size_t)w->nentries, sizeof *tables),
               **others = need((size_t)w->nentries, sizeof *others);
    int ntables = 0, nothers = 0;
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
    }
    char *list = folded(others, nothers), *own = folded(tables, ntables);
    if (nothers && !w->partial)
        die("%s: tensors that are no parameters of this model (%d): %s; set the model's options to the weights', say "
            "with --weights-map what they are here, or leave them out with --weights-partial",
            w->files[0].path, nothers, list);
    if (nothers) note("--weights-partial: tensors of %s that are not used (%d): %s", w->files[0].path, nothers, list);
    if (ntables)
        note("tensors of %s that are not used (%d), masks, tables or copies that the model makes itself: %s",
             w->files[0].path, ntables, own);
    free(list);
    free(own);
    free(tables);
    free(others);
}

Weights *weights_open(const sc_build *b, const Options *o) {
    Weights *w = need(1, sizeof *w);
    w->b = b;
    w->partial = o->weights_partial;
    for (int i = 0; i < o->weights.n; i++) add_pattern(w, o->weights.at[i]);
    list_tensors(w, &o->weights_map);
    find_prefix(w);
    check_results(w, &o->weights_map);
    take_params(w);
    tell_unused(w);
    return w;
}

void weights_load(const Weights *w, sc_rank *r) {
    Piece *pieces;
    uint8_t *raw = need(CHUNK, 8), *out = need(CHUNK, 8);
    int npieces = state_pieces(w->b, sc_rank_index(r), &pieces);
    for (const Piece *p = pieces; p < pieces + npieces; p++) {
        if (p->kind != P_VALUE && p->kind != P_BUFFER) continue;
        const Entry *e = find(w, w->b->params[p->param].path);
        for (int64_t at = p->begin, n; e && at < p->end; at += n) {
            int64_t size = sc_size(p->dtype);
            n = p->end - at < CHUNK ? p->end - at : CHUNK;
            if (!st_read(e->file, e->t, at, n, raw)) refuse_unread(e);
            host_convert(p->dtype, out, (sc_dtype)e->t->sc_dtype, raw, n);
            sc_write(r, p->host, p->at + (uint64_t)((at - p->begin) * size), out, (size_t)(n * size));
        }
    }
    free(pieces);
    free(raw);
    free(out);
}

void weights_close(Weights *w) {
    if (!w) return;
    for (int i = 0; i < w->n; i++) st_close(&w->files[i]);
    for (int i = 0; i < w->nentries; i++) free(w->entries[i].path);
    free(w->files);
    free(w->entries);
    free(w->prefix);
    free(w);
}

/* ── export ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
struct Exporter {
    const sc_build *b;
    char *path, *temp, *head;
    size_t head_bytes;
    uint8_t *buffer, *chunk;
    int rank;
    Piece **pieces;       /* of each rank of the first replica */
    int *n, *next, ranks; /* next: where write_param stands in each list */
};

void exporter_check(const char *path) {
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        die("cannot export to %s: it is not a regular file; name another one with --export", path);
    sc_aside a;
    char *temp = need_text("%s.part", path);
    sc_aside_open(&a, path, temp, NULL);
    if (a.error) die("cannot export to %s: %s; name another file with --export", path, strerror(a.error));
    close(a.fd);
    unlink(temp);
    free(temp);
}

Exporter *exporter_new(const sc_build *b, const char *path, int rank) {
    Exporter *e = need(1, sizeof *e);
    StHead h;
    e->b = b;
    e->rank = rank;
    if (rank != 0) return e;
    e->path = need_text("%s", path);
    e->temp = need_text("%s.part", path);
    st_head_begin(&h, (const char *const[]){"format", "pt", "model", b->name, NULL}, NULL);
    for (int i = 0; i < b->nparams; i++)
        st_head_add(&h, b->params[i].path, state_dtype(b, i, P_VALUE), b->params[i].dims, b->params[i].shape);
    e->head = st_head_end(&h, &e->head_bytes);
    e->buffer = need(1, SC_ASIDE_BUFFER);
    e->chunk = need(1, SC_ASIDE_BUFFER);
    e->ranks = b->world;
    e->pieces = need((size_t)e->ranks, sizeof *e->pieces);
    e->n = need((size_t)e->ranks, sizeof *e->n);
    e->next = need((size_t)e->ranks, sizeof *e->next);
    for (int i = 0; i < e->ranks; i++) e->n[i] = state_pieces(b, i, &e->pieces[i]);
    return e;
}

void exporter_free(Exporter *e) {
    if (!e) return;
    for (int i = 0; i < e->ranks; i++) free(e->pieces[i]);
    free(e->pieces);
    free(e->n);
    free(e->next);
    free(e->path);
    free(e->temp);
    free(e->head);
    free(e->buffer);
    free(e->chunk);
    free(e);
}

/* Pieces of a rank are in the order of parameters, so each rank's list is walked once. */
static void write_param(Exporter *e, sc_rank *r, sc_aside *a, int param) {
    int64_t done = 0;
    int *next = e->next;
    for (int rank = 0; rank < e->ranks; rank++) {
        while (next[rank] < e->n[rank] && e->pieces[rank][next[rank]].param < param) next[rank]++;
        for (int i = next[rank]; i < e->n[rank] && e->pieces[rank][i].param == param; i++) {
            const Piece *p = &e->pieces[rank][i];
            if ((p->kind != P_VALUE && p->kind != P_BUFFER) || p->begin != done) continue; /* moments, other replicas */
            uint64_t at = p->at, left = (uint64_t)(p->end - p->begin) * (uint64_t)sc_size(p->dtype);
            while (left && !a->error) {
                size_t n = left < SC_ASIDE_BUFFER ? left : SC_ASIDE_BUFFER;
                sc_read_peer(r, rank, p->host, at, e->chunk, n);
                sc_aside_write(a, e->chunk, n);
                at += n;
                left -= n;
            }
            done = p->end;
        }
    }
}

void exporter_run(Exporter *e, sc_rank *r) {
    sc_barrier(r);
    if (e->rank == 0) {
        sc_aside a;
        memset(e->next, 0, (size_t)e->ranks * sizeof *e->next);
        sc_aside_open(&a, e->path, e->temp, e->buffer);
        sc_aside_write(&a, e->head, e->head_bytes);
        for (int i = 0; i < e->b->nparams && !a.error; i++) write_param(e, r, &a, i);
        int error = sc_aside_commit(&a);
        if (error) die("cannot export to %s: %s; what was there is untouched", e->path, strerror(error));
    }
    sc_barrier(r);
}
