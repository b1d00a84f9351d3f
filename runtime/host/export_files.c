/* The safetensors files of an export: one, or shards of a chosen size and their index, with the names that
 * save_pretrained gives them. All are written aside. Then they take the place of what an earlier export has left in the
 * folder, in an order in which a folder never holds shards of both: a run that is killed in between leaves the old
 * weights, the new ones, or a folder without an index, which from_pretrained refuses.
 * Relies on: safetensors, file.h, die, jansson. Relied on by: export. */
#include "export_files.h"
#include "../file.h"
#include "die.h"
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ONE "%s.safetensors"
#define INDEX ONE ".index.json"
#define SHARD "%s-%05d-of-%05d.safetensors"
#define DIGITS "[0-9][0-9][0-9][0-9][0-9]"

typedef struct {
    char *head; /* NULL: of the index, which has no data */
    size_t head_bytes;
    uint64_t bytes; /* of data */
    bool begun;     /* it may lie there under its temporary name */
    sc_aside aside;
} File;

struct ExportFiles {
    const char *path, *folder, *stem, *model;
    uint64_t most, total;
    StHead head; /* of the last file, while tensors are added */
    File *of;
    int n, at;     /* files without the index; the one that is written */
    uint64_t left; /* bytes that it still lacks */
    json_t *map;   /* the file of each tensor: its number, then its name */
    char *index;
    uint8_t *buffer;
    int error;
    bool opened, ended, touched;
};

/* ── which tensor lies where ─────────────────────────────────────────────────────────────────────────────────────────
 */
static void begin_file(ExportFiles *x) {
    x->of = realloc(x->of, (size_t)(x->n + 2) * sizeof *x->of); /* and the index */
    if (!x->of) die("out of memory for the files of --export");
    for (int i = x->n; i < x->n + 2; i++) x->of[i] = (File){.aside = {.fd = -1}};
    x->n++;
    st_head_begin(&x->head, (const char *const[]){"format", "pt", "model", x->model, NULL}, NULL);
}

static void end_file(ExportFiles *x) {
    File *f = &x->of[x->n - 1];
    f->bytes = x->head.offset;
    x->total += f->bytes;
    f->head = st_head_end(&x->head, &f->head_bytes);
}

ExportFiles *export_files_new(const char *path, const char *folder, const char *stem, const char *model, int64_t most) {
    ExportFiles *x = need(1, sizeof *x);
    *x = (ExportFiles){
        .path = path, .folder = folder, .stem = stem, .model = model, .most = most ? (uint64_t)most : UINT64_MAX};
    x->map = json_object();
    x->buffer = need(1, SC_ASIDE_BUFFER);
    begin_file(x);
    return x;
}

void export_files_add(ExportFiles *x, const char *name, sc_dtype d, int dims, const int64_t *shape) {
    uint64_t bytes = (uint64_t)sc_size(d);
    for (int i = 0; i < dims; i++) bytes *= (uint64_t)shape[i];
    if (x->head.offset && bytes > x->most - (x->head.offset < x->most ? x->head.offset : x->most)) {
        end_file(x);
        begin_file(x);
    }
    st_head_add(&x->head, name, d, dims, shape);
    json_object_set_new(x->map, name, json_integer(x->n));
}

void export_files_settle(ExportFiles *x) {
    const char *name;
    json_t *number;
    char file[128];
    end_file(x);
    if (x->n == 1) return;
    json_object_foreach(x->map, name, number) {
        snprintf(file, sizeof file, SHARD, x->stem, (int)json_integer_value(number), x->n);
        json_object_set_new(x->map, name, json_string(file));
    }
    json_t *j = json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)x->total, "weight_map", x->map);
    x->index = json_dumps(j, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    json_decref(j);
    if (!x->index) die("out of memory for the index of --export");
}

int export_files_count(const ExportFiles *x) {
    return x->n;
}

/* ── writing aside ───────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void open_file(ExportFiles *x, int i) {
    char path[PATH_MAX];
    if (x->n == 1)
        snprintf(path, sizeof path, "%s", x->path);
    else if (i < x->n)
        snprintf(path, sizeof path, "%s" SHARD, x->folder, x->stem, i + 1, x->n);
    else
        snprintf(path, sizeof path, "%s" INDEX, x->folder, x->stem);
    sc_aside *a = &x->of[i].aside;
    sc_aside_open(a, path, x->buffer);
    const char *head = i < x->n ? x->of[i].head : x->index;
    sc_aside_write(a, head, i < x->n ? x->of[i].head_bytes : strlen(head));
    x->left = x->of[i].bytes;
    x->error = a->error;
    x->of[i].begun = a->fd >= 0 && !sc_aside_direct(a);
    x->at = i;
    x->opened = true;
}

static void close_file(ExportFiles *x) {
    int error = sc_aside_close(&x->of[x->at].aside);
    if (!x->error) x->error = error;
    x->opened = false;
}

void export_files_write(ExportFiles *x, const void *p, size_t n) {
    const uint8_t *from = p;
    while (n && !x->error) {
        if (!x->opened) open_file(x, x->at);
        size_t many = n < x->left ? n : (size_t)x->left;
        sc_aside_write(&x->of[x->at].aside, from, many);
        if (!x->error) x->error = x->of[x->at].aside.error;
        from += many;
        n -= many;
        x->left -= many;
        if (x->left || x->error || x->at == x->n - 1) continue;
        close_file(x);
        x->at++;
    }
}

int export_files_error(const ExportFiles *x) {
    return x->error;
}

/* ── taking their names ──────────────────────────────────────────────────────────────────────────────────────────────
 */
static void remove_path(ExportFiles *x, const char *path) {
    if (x->error) return;
    if (unlink(path) == 0)
        x->touched = true;
    else if (errno != ENOENT)
        x->error = errno;
}

static void remove_named(ExportFiles *x, const char *name) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", x->folder, name);
    remove_path(x, path);
}

static void remove_index(ExportFiles *x) {
    char name[128];
    snprintf(name, sizeof name, INDEX, x->stem);
    remove_named(x, name);
}

/* Shards of earlier exports, and what killed ones have left; those that shall have the name of a new one are gone. */
static void remove_shards(ExportFiles *x) {
    char ours[128], all[128], parts[160];
    snprintf(ours, sizeof ours, "%s-" DIGITS "-of-%05d.safetensors*", x->stem, x->n);
    snprintf(all, sizeof all, "%s-" DIGITS "-of-" DIGITS ".safetensors", x->stem);
    snprintf(parts, sizeof parts, "%s.part", all);
    DIR *d = x->error ? NULL : opendir(x->folder);
    if (!d && !x->error) x->error = errno;
    for (struct dirent *e; d && (e = readdir(d));) {
        bool shard = !fnmatch(all, e->d_name, 0) || !fnmatch(parts, e->d_name, 0);
        if (shard && fnmatch(ours, e->d_name, 0)) remove_named(x, e->d_name);
    }
    if (d) closedir(d);
}

static void rename_file(ExportFiles *x, File *f) {
    if (x->error) return;
    x->error = sc_aside_rename(&f->aside);
    if (!x->error) x->touched = true;
}

/* The index is what readers begin with: it goes first and comes last. */
static void replace_shards(ExportFiles *x) {
    char one[128];
    snprintf(one, sizeof one, ONE, x->stem);
    remove_index(x);
    for (int i = 0; i < x->n; i++) remove_path(x, x->of[i].aside.path); /* through a link: the file, not the link */
    remove_shards(x);
    for (int i = 0; i <= x->n; i++) rename_file(x, &x->of[i]);
    remove_named(x, one); /* transformers reads it rather than an index */
}

static void replace_one(ExportFiles *x) {
    rename_file(x, x->of);
    if (!x->folder) return;
    remove_index(x);
    remove_shards(x);
}

void export_files_drop(ExportFiles *x) {
    for (int i = 0; i <= x->n && !x->ended; i++) {
        sc_aside_drop(&x->of[i].aside);
        if (x->of[i].begun) unlink(x->of[i].aside.temp);
    }
    x->ended = true;
}

int export_files_commit(ExportFiles *x) {
    if (!x->opened && !x->error) open_file(x, x->at); /* there are tensors of no element alone */
    if (x->opened) close_file(x);
    if (x->n > 1 && !x->error) {
        open_file(x, x->n);
        close_file(x);
    }
    if (!x->error && x->n > 1) replace_shards(x);
    if (!x->error && x->n == 1) replace_one(x);
    if (x->error) export_files_drop(x);
    x->ended = true;
    return x->error;
}

bool export_files_touched(const ExportFiles *x) {
    return x->touched;
}

void export_files_free(ExportFiles *x) {
    if (!x) return;
    for (int i = 0; i <= x->n; i++) free(x->of[i].head);
    json_decref(x->map);
    free(x->index);
    free(x->of);
    free(x->buffer);
    free(x);
}
