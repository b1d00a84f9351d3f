/* Weights as plain safetensors, written: rank 0 puts every parameter together from the ranks that hold it, piece by
 * piece. Adapters are added to the matrices that they stand beside, or written by themselves, as peft reads them. A
 * folder gets config.json and the tokenizer's files of the folder that the weights came from.
 * Relies on: args, safetensors, state, file.h, weights, export_files, export_folder, target (sc_read_peer). Relied on
 * by: run, train.
 */
#include "export.h"
#include "../file.h"
#include "die.h"
#include "export_files.h"
#include "export_folder.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { WIDEST = 4 /* times as many bytes as before a conversion: fp64 of bf16 */ };

typedef struct {        /* whole, where an export needs it; else NULL */
    float *a, *b;       /* to add them up */
    float *lengths;     /* of each row, what its length is more than the weight's */
    double *own, *both; /* squares of the lengths of rows: the weight's, the sum's */
} Thin;

struct Exporter {
    const sc_build *b;
    const char *folder, *from; /* NULL: a file; no folder that the weights came from */
    bool apart;                /* adapters alone */
    char *path;
    ExportFiles *files;
    uint8_t *chunk, *out;
    float *sums;
    sc_dtype *dtypes; /* of each parameter in the file; N_DTYPES: it is not in it */
    const char *lost; /* a parameter that holds what its dtype there cannot; NULL: none */
    int rank;
    Thin *thin;           /* of each adapter */
    float **scales;       /* of each parameter that is kept in int8; else NULL */
    Piece **pieces;       /* of each rank of the first replica */
    int *n, *next, ranks; /* next: where each_piece stands in each list */
};

static const char *stem_of(const Options *o) {
    return o->export_adapters ? "adapter_model" : export_folder_stem(o);
}

/* The path of the safetensors file; *folder: what --export names, where that is a folder. In new memory. */
static char *path_of(const Options *o, const char **folder) {
    size_t n = strlen(o->export_path);
    bool is = n && o->export_path[n - 1] == '/';
    *folder = is ? o->export_path : NULL;
    return need_text("%s%s%s", o->export_path, is ? stem_of(o) : "", is ? ".safetensors" : "");
}

void exporter_check(const Options *o) {
    struct stat st;
    const char *folder;
    char *path = path_of(o, &folder);
    if (o->export_like && !folder)
        die("--export-like %s: files beside the weights go into a folder: --export %s/", o->export_like, path);
    if (o->export_like && (stat(o->export_like, &st) || !S_ISDIR(st.st_mode)))
        die("--export-like %s: there is no such folder; name a Hugging Face folder", o->export_like);
    if (folder && mkdir(folder, 0777) && errno != EEXIST)
        die("cannot export to %s: %s; name another folder with --export", folder, strerror(errno));
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        die("cannot export to %s: it is not a regular file; name another one with --export, or end it in / for a "
            "folder",
            path);
    int error = sc_aside_try(path);
    if (error) die("cannot export to %s: %s; name another file with --export", path, strerror(error));
    free(path);
}

/* ── what is in the file ─────────────────────────────────────────────────────────────────────────────────────────────
 */
static const sc_stored_info *stored_of(const sc_build *b, int param) {
    for (int i = 0; i < b->nstored; i++)
        if (b->stored[i].param == param) return &b->stored[i];
    return NULL;
}

/* The tensor of a parameter; in a folder, where published models have it one by one, the tensors that its bytes are. */
static void add_names(const Exporter *e, int param) {
    const sc_param_info *p = &e->b->params[param];
    const sc_stored_info *s = e->folder ? stored_of(e->b, param) : NULL;
    for (int64_t i = 0, n = s ? p->shape[0] * s->names : 1; i < n; i++) {
        const int64_t one[2] = {s ? p->shape[1] / s->names : 0, p->shape[2]};
        char *name =
            s ? need_text("%s.%lld.%s.weight", s->base, (long long)(s->first + i / s->names), s->name[i % s->names])
              : need_text("%s%s", e->apart ? "base_model.model." : "", p->path);
        export_files_add(e->files, name, e->dtypes[param], s ? 2 : p->dims, s ? one : p->shape);
        free(name);
    }
}

/* Integers and booleans stay what they are. */
static sc_dtype exported(const sc_build *b, const Options *o, const Weights *w, int param) {
    static const sc_dtype asked[] = {[EXPORT_FP32] = FP32, [EXPORT_BF16] = BF16, [EXPORT_FP16] = FP16};
    bool thin;
    adapter_of(b, param, &thin);
    int scales = b->params[param].scales;
    sc_dtype kept = state_dtype(b, scales ? scales - 1 : param, P_VALUE);
    if (scaled_by(b, param) >= 0 || b->params[param].copies || b->params[param].internal) return N_DTYPES;
    if (thin != (o->export_adapters != 0)) return N_DTYPES;
    if (!host_dtype_float(kept) || o->export_dtype == EXPORT_KEPT) return kept;
    if (o->export_dtype == EXPORT_LOADED) return weights_dtype(w, b->params[param].path, kept);
    return asked[o->export_dtype];
}

Exporter *exporter_new(const sc_build *b, const Options *o, const Weights *w, int rank) {
    Exporter *e = need(1, sizeof *e);
    e->b = b;
    e->rank = rank;
    if (rank != 0) return e;
    e->path = path_of(o, &e->folder);
    e->from = export_folder_of(o);
    e->apart = o->export_adapters != 0;
    e->files = export_files_new(e->path, e->apart ? NULL : e->folder, stem_of(o), b->name, o->shard_size);
    e->dtypes = need((size_t)b->nparams, sizeof *e->dtypes);
    for (int i = 0; i < b->nparams; i++) {
        e->dtypes[i] = exported(b, o, w, i);
        if (e->dtypes[i] != N_DTYPES) add_names(e, i);
    }
    export_files_settle(e->files);
    e->chunk = need(1, SC_ASIDE_BUFFER);
    e->out = need(WIDEST, SC_ASIDE_BUFFER);
    e->sums = need(SC_ASIDE_BUFFER, sizeof *e->sums);
    e->thin = need((size_t)b->nadapters + 1, sizeof *e->thin);
    e->scales = need((size_t)b->nparams, sizeof *e->scales);
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
    for (int i = 0; e->thin && i < e->b->nadapters; i++) {
        free(e->thin[i].a);
        free(e->thin[i].b);
        free(e->thin[i].lengths);
        free(e->thin[i].own);
        free(e->thin[i].both);
    }
    for (int i = 0; e->scales && i < e->b->nparams; i++) free(e->scales[i]);
    free(e->scales);
    free(e->thin);
    free(e->pieces);
    free(e->n);
    free(e->next);
    free(e->path);
    export_files_free(e->files);
    free(e->chunk);
    free(e->out);
    free(e->sums);
    free(e->dtypes);
    free(e);
}

char *exporter_told(const Exporter *e, const Weights *w) {
    unsigned kept = 0, written = 0, loaded = w ? weights_dtypes(w) : 0;
    for (int i = 0; i < e->b->nparams; i++) {
        if (e->dtypes[i] == N_DTYPES) continue;
        kept |= 1u << state_dtype(e->b, i, P_VALUE);
        written |= 1u << e->dtypes[i];
    }
    bool as_kept = written == kept, other = loaded && (written & ~loaded);
    char *dtypes = dtypes_text(written), *before = dtypes_text(loaded);
    const char *how = e->apart ? ", the adapters alone" : e->b->nadapters ? ", adapters added to their matrices" : "";
    int files = export_files_count(e->files);
    char *many = files > 1 ? need_text("%s%d files", e->folder, files) : need_text("%s", e->path);
    char *text = need_text("%s in %s%s%s%s%s%s", many, dtypes, as_kept ? ", as the parameters are kept" : "", how,
                           other ? "; the weights were " : "", other ? before : "",
                           other ? " (--export-dtype loaded writes those)" : "");
    free(many);
    free(dtypes);
    free(before);
    return text;
}

/* ── parameters, piece by piece ──────────────────────────────────────────────────────────────────────────────────────
 */
/* The rank's piece of the parameter that begins at element `begin`, or NULL: moments and other replicas' copies are
 * none. Pieces of a rank are in the order of parameters, so each rank's list is walked once. */
static const Piece *piece_at(Exporter *e, int rank, int param, int64_t begin) {
    int *next = &e->next[rank];
    while (*next < e->n[rank] && e->pieces[rank][*next].param < param) (*next)++;
    for (int i = *next; i < e->n[rank] && e->pieces[rank][i].param == param; i++) {
        const Piece *p = &e->pieces[rank][i];
        if ((p->kind == P_VALUE || p->kind == P_BUFFER) && p->begin == begin) return p;
    }
    return NULL;
}

typedef void on_chunk(Exporter *e, void *to, const Piece *p, int64_t at, int64_t n);

/* Calls f for n elements of the parameter from element `at` on, which are in e->chunk, in order. Ranks hold a
 * parameter's pieces in their order, but those of experts that are spread over ranks take turns. */
static void each_chunk(Exporter *e, sc_rank *r, int param, on_chunk *f, void *to) {
    int64_t done = 0;
    for (int rank = 0, idle = 0; done < e->b->params[param].numel && idle < e->ranks; rank = (rank + 1) % e->ranks) {
        const Piece *p = piece_at(e, rank, param, done);
        idle++;
        if (!p) continue;
        int64_t size = sc_size(p->dtype), most = SC_ASIDE_BUFFER / size;
        for (int64_t at = p->begin, n; at < p->end; at += n) {
            n = p->end - at < most ? p->end - at : most;
            sc_read_peer(r, rank, p->host, p->at + (uint64_t)((at - p->begin) * size), e->chunk, (size_t)(n * size));
            f(e, to, p, at, n);
        }
        done = p->end;
        idle = 0;
    }
}

static void rewind_pieces(Exporter *e) {
    memset(e->next, 0, (size_t)e->ranks * sizeof *e->next);
}

/* sums[i] = element at + i, which is in e->chunk. */
static void widen(const Exporter *e, const Piece *p, int64_t at, int64_t n, float *sums) {
    const float *scales = e->scales[p->param];
    host_convert(FP32, sums, p->dtype, e->chunk, n);
    for (int64_t i = 0; scales && i < n; i++) sums[i] *= scales[(at + i) / e->b->params[p->param].shape[1]];
}

static void keep_floats(Exporter *e, void *to, const Piece *p, int64_t at, int64_t n) {
    host_convert(FP32, (float *)to + at, p->dtype, e->chunk, n);
}

static float *whole(Exporter *e, sc_rank *r, int param) {
    float *to = need((size_t)e->b->params[param].numel, sizeof *to);
    rewind_pieces(e);
    each_chunk(e, r, param, keep_floats, to);
    return to;
}

/* sums[i] += scale (b a)[at + i] */
static void add_adapter(const Exporter *e, int adapter, int64_t at, int64_t n, float *sums) {
    const sc_adapter_info *x = &e->b->adapters[adapter];
    int64_t rank = e->b->params[x->a].shape[0], inputs = e->b->params[x->a].shape[1];
    for (int64_t i = 0, many; i < n; i += many) {
        int64_t row = (at + i) / inputs, column = (at + i) % inputs;
        many = inputs - column < n - i ? inputs - column : n - i;
        for (int64_t k = 0; k < rank; k++) {
            float w = (float)x->scale * e->thin[adapter].b[row * rank + k];
            const float *a = e->thin[adapter].a + k * inputs + column;
            for (int64_t c = 0; c < many; c++) sums[i + c] += w * a[c];
        }
    }
}

/* Of the rows of a weight that n elements are of: squares, without its adapter and with it. */
static void measure(Exporter *e, void *to, const Piece *p, int64_t at, int64_t n) {
    Thin *t = to;
    int64_t inputs = e->b->params[p->param].shape[1];
    widen(e, p, at, n, e->sums);
    for (int64_t i = 0; i < n; i++) t->own[(at + i) / inputs] += (double)e->sums[i] * e->sums[i];
    if (e->apart) return;
    add_adapter(e, (int)(t - e->thin), at, n, e->sums);
    for (int64_t i = 0; i < n; i++) t->both[(at + i) / inputs] += (double)e->sums[i] * e->sums[i];
}

/* Rows of a sum get their lengths; those of zeros stay as they are. */
static void lengthen(const Exporter *e, int adapter, int64_t at, int64_t n, float *sums) {
    const Thin *t = &e->thin[adapter];
    int64_t inputs = e->b->params[e->b->adapters[adapter].weight].shape[1];
    for (int64_t i = 0; i < n; i++) {
        int64_t row = (at + i) / inputs;
        if (t->both[row] > 0) sums[i] *= (float)((sqrt(t->own[row]) + t->lengths[row]) / sqrt(t->both[row]));
    }
}

/* n elements, as the file has them. */
static void write_chunk(Exporter *e, void *to, const Piece *p, int64_t at, int64_t n) {
    ExportFiles *files = to;
    bool thin;
    int adapter = adapter_of(e->b, p->param, &thin);
    sc_dtype dtype = e->dtypes[p->param], from = p->dtype;
    const void *chunk = e->chunk;
    if (export_files_error(files)) return;
    bool merges = adapter >= 0 && !thin;
    if (merges || e->scales[p->param]) {
        widen(e, p, at, n, e->sums);
        from = FP32;
        chunk = e->sums;
    }
    if (merges) {
        add_adapter(e, adapter, at, n, e->sums);
        if (e->thin[adapter].lengths) lengthen(e, adapter, at, n, e->sums);
    } else if (adapter >= 0 && e->b->adapters[adapter].lengths == p->param) {
        host_convert(FP32, e->sums, from, chunk, n);
        for (int64_t i = 0; i < n; i++) e->sums[i] = (float)(sqrt(e->thin[adapter].own[at + i]) + e->sums[i]);
        from = FP32;
        chunk = e->sums;
    }
    if (dtype == from) {
        export_files_write(files, chunk, (size_t)(n * sc_size(from)));
        return;
    }
    host_convert(dtype, e->out, from, chunk, n);
    for (int64_t i = 0; i < n && sc_size(dtype) < 4 && !e->lost; i++)
        if (isfinite(host_get(from, chunk, i)) && !isfinite(host_get(dtype, e->out, i)))
            e->lost = e->b->params[p->param].path;
    if (!e->lost) export_files_write(files, e->out, (size_t)(n * sc_size(dtype)));
}

static int write_files(Exporter *e, sc_rank *r) {
    for (int i = 0; i < e->b->nparams; i++)
        if (e->b->params[i].scales) e->scales[i] = whole(e, r, e->b->params[i].scales - 1);
    for (int i = 0; i < e->b->nadapters; i++) {
        const sc_adapter_info *x = &e->b->adapters[i];
        Thin *t = &e->thin[i];
        if (!e->apart) t->a = whole(e, r, x->a);
        if (!e->apart) t->b = whole(e, r, x->b);
        if (x->lengths < 0) continue;
        int64_t rows = e->b->params[x->weight].shape[0];
        t->lengths = whole(e, r, x->lengths);
        t->own = need((size_t)rows, sizeof *t->own);
        t->both = need((size_t)rows, sizeof *t->both);
        rewind_pieces(e);
        each_chunk(e, r, x->weight, measure, t);
    }
    rewind_pieces(e);
    for (int i = 0; i < e->b->nparams && !export_files_error(e->files) && !e->lost; i++)
        if (e->dtypes[i] != N_DTYPES) each_chunk(e, r, i, write_chunk, e->files);
    if (!e->lost) return export_files_commit(e->files);
    export_files_drop(e->files);
    return ERANGE;
}

bool exporter_run(Exporter *e, sc_rank *r) {
    int error = 0;
    sc_barrier(r);
    if (e->rank == 0) {
        error = write_files(e, r);
        if (error && e->lost)
            complain("cannot export to %s: '%s' holds a number that the dtype of --export-dtype cannot; export it in "
                     "bf16 or fp32; what was there is untouched",
                     e->path, e->lost);
        else if (error)
            complain("cannot export to %s: %s; %s", e->path, strerror(error),
                     export_files_touched(e->files) ? "what is there now is not to be used: export it again"
                                                    : "what was there is untouched");
        else if (e->folder && !export_folder_fill(e->folder, e->from, e->b, e->dtypes, e->apart))
            error = EIO;
    }
    sc_barrier(r);
    return !error;
}
