/* Weights as plain safetensors. Import: each rank reads and converts the ranges that its slices hold. Export: rank 0
 * puts every parameter together from the ranks that hold it, piece by piece. Relies on: safetensors, state, aside,
 * target (sc_read_peer). Relied on by: train, main. */
#include "weights.h"
#include "aside.h"
#include "die.h"
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
struct Weights {
    const sc_build *b;
    StFile *files;
    int n;
    char *prefix; /* that tensors have before the paths of parameters: "transformer."; NULL: none */
};

static void add_file(Weights *w, const char *path) {
    char error[ST_ERROR];
    w->files = realloc(w->files, (size_t)(w->n + 1) * sizeof *w->files);
    if (!w->files) die("out of memory for a list of files");
    if (!st_open(&w->files[w->n], path, error)) die("%s: %s", path, error);
    w->n++;
}

static void add_pattern(Weights *w, const char *pattern) {
    glob_t g;
    if (access(pattern, F_OK) == 0 || glob(pattern, GLOB_TILDE, NULL, &g) != 0) {
        add_file(w, pattern); /* its message says what is wrong */
        return;
    }
    for (size_t i = 0; i < g.gl_pathc; i++) add_file(w, g.gl_pathv[i]);
    globfree(&g);
}

static const StTensor *find_name(const Weights *w, const char *name, const StFile **file) {
    for (int i = 0; i < w->n; i++) {
        const StTensor *t = st_find(&w->files[i], name);
        *file = &w->files[i];
        if (t) return t;
    }
    return NULL;
}

static const StTensor *find(const Weights *w, const char *path, const StFile **file) {
    const StTensor *t = find_name(w, path, file);
    if (t || !w->prefix) return t;
    char *name = need_text("%s%s", w->prefix, path);
    t = find_name(w, name, file);
    free(name);
    return t;
}

/* What stands before `path` in names of tensors, in new memory; NULL where nothing does, or not the same everywhere. */
static char *prefix_of(const Weights *w, const char *path) {
    char *prefix = NULL;
    for (int i = 0; i < w->n; i++)
        for (int k = 0; k < w->files[i].n; k++) {
            const char *name = w->files[i].tensors[k].name;
            size_t n = strlen(name), m = strlen(path);
            if (n <= m + 1 || name[n - m - 1] != '.' || strcmp(name + n - m, path)) continue;
            bool another = prefix && (strlen(prefix) != n - m || strncmp(prefix, name, n - m));
            if (!prefix) prefix = need_text("%.*s", (int)(n - m), name);
            if (!another) continue;
            free(prefix);
            return NULL;
        }
    return prefix;
}

/* A model within another, as whoever saved it had it: transformer.h.0..., module.h.0... for h.0... Taken where it finds
 * all that is not there by its own name, and that is most of the model. */
static void find_prefix(Weights *w) {
    const StFile *f;
    int own = 0, inner = 0;
    for (int i = 0; i < w->b->nparams; i++) {
        const char *path = w->b->params[i].path;
        if (w->b->params[i].buffer) continue;
        bool there = find_name(w, path, &f);
        if (!there && !w->prefix) w->prefix = prefix_of(w, path);
        if (there)
            own++;
        else if (find(w, path, &f))
            inner++;
        else
            inner = -w->b->nparams;
    }
    if (w->prefix && inner > own) {
        note("%s: tensors are named %s... there, and taken for the model's ...", w->files[0].path, w->prefix);
        return;
    }
    free(w->prefix);
    w->prefix = NULL;
}

static bool same_shape(const StTensor *t, const sc_param_info *p) {
    if (t->dims != p->dims) return false;
    for (int d = 0; d < p->dims; d++)
        if (t->shape[d] != p->shape[d]) return false;
    return true;
}

static const char *shape_text(char *s, size_t size, const int64_t *shape, int dims) {
    size_t n = (size_t)snprintf(s, size, "[");
    for (int d = 0; d < dims && n < size; d++)
        n += (size_t)snprintf(s + n, size - n, "%s%" PRId64, d ? "," : "", shape[d]);
    if (n < size) snprintf(s + n, size - n, "]");
    return s;
}

/* Characters that two names share at their beginning and at their end: a prefix or a renamed module leaves many. */
static size_t shared(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b), head = 0, tail = 0, most = n < m ? n : m;
    while (head < most && a[head] == b[head]) head++;
    while (tail < most - head && a[n - 1 - tail] == b[m - 1 - tail]) tail++;
    return head + tail;
}

static const char *similar(const Weights *w, const char *path) {
    const char *best = NULL;
    size_t most = 0;
    for (int i = 0; i < w->n; i++)
        for (int k = 0; k < w->files[i].n; k++) {
            size_t same = shared(path, w->files[i].tensors[k].name);
            if (same <= most) continue;
            most = same;
            best = w->files[i].tensors[k].name;
        }
    return best;
}

static bool check_param(const Weights *w, const sc_param_info *p) {
    char there[160], here[160];
    const StFile *f;
    const StTensor *t = find(w, p->path, &f);
    if (!t && p->buffer) return false;
    if (!t) {
        const char *like = similar(w, p->path);
        die("%s: no tensor '%s' there%s%.100s%s: a path of the model must be the tensor's name", w->files[0].path,
            p->path, like ? " (nearest: '" : "", like ? like : "", like ? "')" : "");
    }
    if (!same_shape(t, p))
        die("%s: '%s' is %s there and %s in this build: set the model's options to the weights'", f->path, p->path,
            shape_text(there, sizeof there, t->shape, t->dims), shape_text(here, sizeof here, p->shape, p->dims));
    if (t->sc_dtype < 0 || host_dtype_float((sc_dtype)t->sc_dtype) != host_dtype_float(p->dtype))
        die("%s: '%s' is %s there, which does not convert to %s", f->path, p->path, t->dtype,
            host_dtype_name(p->dtype));
    return true;
}

static bool is_param(const Weights *w, const char *name) {
    size_t n = w->prefix ? strlen(w->prefix) : 0;
    const char *inner = n && !strncmp(name, w->prefix, n) ? name + n : name;
    for (int i = 0; i < w->b->nparams; i++)
        if (!strcmp(w->b->params[i].path, name) || !strcmp(w->b->params[i].path, inner)) return true;
    return false;
}

static void tell_unused(const Weights *w) {
    const char *first = NULL;
    int unused = 0;
    for (int i = 0; i < w->n; i++)
        for (int k = 0; k < w->files[i].n; k++)
            if (!is_param(w, w->files[i].tensors[k].name)) {
                if (!unused++) first = w->files[i].tensors[k].name;
            }
    if (unused)
        note("%d tensors of %s are no parameters of this model and are not used ('%.80s'%s)", unused, w->files[0].path,
             first, unused > 1 ? ", ..." : "");
}

Weights *weights_open(const sc_build *b, char *const *patterns, int n) {
    Weights *w = need(1, sizeof *w);
    int missing = 0;
    w->b = b;
    for (int i = 0; i < n; i++) add_pattern(w, patterns[i]);
    find_prefix(w);
    for (int i = 0; i < b->nparams; i++) missing += !check_param(w, &b->params[i]);
    if (missing) note("%d buffers are not in %s: they keep their initial values", missing, w->files[0].path);
    tell_unused(w);
    return w;
}

static void load_piece(const Weights *w, sc_rank *r, const Piece *p, uint8_t *raw, uint8_t *out) {
    const StFile *f;
    const StTensor *t = find(w, w->b->params[p->param].path, &f);
    for (int64_t at = p->begin; t && at < p->end;) {
        int64_t n = p->end - at < CHUNK ? p->end - at : CHUNK, size = host_dtype_size(p->dtype);
        if (!st_read(f, t, at, n, raw)) die("%s: cannot read '%s': %s", f->path, t->name, strerror(errno));
        host_convert(p->dtype, out, (sc_dtype)t->sc_dtype, raw, n);
        sc_write(r, p->host, p->at + (uint64_t)((at - p->begin) * size), out, (size_t)(n * size));
        at += n;
    }
}

void weights_load(const Weights *w, sc_rank *r) {
    Piece *pieces;
    uint8_t *raw = need(CHUNK, 8), *out = need(CHUNK, 8);
    int n = state_pieces(w->b, sc_rank_index(r), &pieces);
    for (int i = 0; i < n; i++)
        if (pieces[i].kind == P_VALUE || pieces[i].kind == P_BUFFER) load_piece(w, r, &pieces[i], raw, out);
    free(pieces);
    free(raw);
    free(out);
}

void weights_close(Weights *w) {
    if (!w) return;
    for (int i = 0; i < w->n; i++) st_close(&w->files[i]);
    free(w->files);
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
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) die("cannot export to %s: it is not a regular file", path);
    char *temp = need_text("%s.part", path);
    FILE *f = fopen(temp, "w");
    if (!f) die("cannot export to %s: %s", path, strerror(errno));
    fclose(f);
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
    e->buffer = need(1, ASIDE_BUFFER);
    e->chunk = need(1, ASIDE_BUFFER);
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
static void write_param(Exporter *e, sc_rank *r, Aside *a, int param) {
    int64_t done = 0;
    int *next = e->next;
    for (int rank = 0; rank < e->ranks; rank++) {
        while (next[rank] < e->n[rank] && e->pieces[rank][next[rank]].param < param) next[rank]++;
        for (int i = next[rank]; i < e->n[rank] && e->pieces[rank][i].param == param; i++) {
            const Piece *p = &e->pieces[rank][i];
            if ((p->kind != P_VALUE && p->kind != P_BUFFER) || p->begin != done) continue; /* moments, other replicas */
            uint64_t at = p->at, left = (uint64_t)(p->end - p->begin) * (uint64_t)host_dtype_size(p->dtype);
            while (left && !a->error) {
                size_t n = left < ASIDE_BUFFER ? left : ASIDE_BUFFER;
                sc_read_peer(r, rank, p->host, at, e->chunk, n);
                aside_write(a, e->chunk, n);
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
        Aside a;
        memset(e->next, 0, (size_t)e->ranks * sizeof *e->next);
        aside_open(&a, e->path, e->temp, e->buffer);
        aside_write(&a, e->head, e->head_bytes);
        for (int i = 0; i < e->b->nparams && !a.error; i++) write_param(e, r, &a, i);
        int error = aside_commit(&a);
        if (error) die("cannot export to %s: %s; what was there is untouched", e->path, strerror(error));
    }
    sc_barrier(r);
}
