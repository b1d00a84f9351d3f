/* Saving the training state: every rank writes its pieces into a folder under a temporary name; when all have, the
 * folder gets its name, then the index names it, then the oldest folder goes. Nothing is allocated after saver_new.
 * A save has stages. What ranks tell each other is said between two stages by their own threads; within a stage a rank
 * works alone, on its own thread or in the background.
 * Relies on: background, state, safetensors (heads), file.h, target, zlib (crc32); flock.
 * Relied on by: train. */
#include "checkpoint.h"
#include "../file.h"
#include "background.h"
#include "die.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

enum { FOLDER = 64, INDEX_BYTES = 4096 /* at most, without the heads and the folders */ };

typedef char Folder[FOLDER];
typedef struct {
    Folder *at;
    int n;
} Folders;

struct Saver {
    const sc_build *b;
    char *dir, *model; /* model: as a JSON string */
    const char *given;
    int rank;
    Piece *pieces;
    int n;
    char *head, *index;
    size_t head_bytes, *text_at; /* text_at: where the head has the file's name, then each piece's checksum */
    size_t index_bytes;          /* room for the text */
    uint64_t run;                /* its id; 0: the first save gives it one */
    double *sums;                /* crc32 of every rank's head */
    uint8_t *buffer, *chunk;     /* SC_ASIDE_BUFFER bytes each */
    int keep;                    /* states that stay there, at most */
    Folders kept;                /* those that are there, oldest first; the index names the last */
    Background *background;      /* NULL: a rank's own thread does everything */
    uint8_t *copy;               /* of the state, for the background; `bytes` of it */
    uint64_t bytes;
    /* the save that has begun: while the background is busy all of the saver is its own */
    enum { NONE, PIECES, FILES, INDEX } stage; /* what is being done */
    sc_rank *r;
    Progress progress;
    Folder folder, part; /* its name, and that while it is written */
    sc_aside file;       /* the rank's */
    int error;           /* errno of the stage */
    char path[PATH_MAX], temp[PATH_MAX];
    char trouble[PATH_MAX + 256];
};

#define PATH(s, ...) (snprintf((s)->path, sizeof(s)->path, __VA_ARGS__), (s)->path)

/* ── before the run ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
static int make_folders(const char *dir) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", dir);
    for (char *p = path + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        if (mkdir(path, 0777) != 0 && errno != EEXIST) return errno;
        *p = '/';
    }
    return mkdir(path, 0777) == 0 || errno == EEXIST ? 0 : errno;
}

typedef struct {
    Folder folder;        /* what the index names; "" for none */
    Folders kept, before; /* older states, oldest first; what the index has replaced */
    int64_t step;
    double val_loss; /* infinite: not there */
} Index;

/* step-00000010, and of one step several: step-00000010.1; with `end` behind it. */
static bool is_folder_name(const char *name, const char *end) {
    size_t n = strlen(name), tail = strlen(end);
    if (n < FOLDER && n > 5 + tail && strncmp(name, "step-", 5) == 0 && strcmp(name + n - tail, end) == 0)
        return strspn(name + 5, "0123456789.") >= n - 5 - tail;
    return false;
}

static void add_folder(Folders *l, const char *name) {
    if (!name || !is_folder_name(name, "")) return;
    Folder *more = need((size_t)l->n + 1, sizeof *more);
    if (l->n) memcpy(more, l->at, (size_t)l->n * sizeof *more);
    free(l->at);
    l->at = more;
    snprintf(l->at[l->n++], FOLDER, "%s", name);
}

static bool has_folder(const Folders *l, const char *name) {
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->at[i], name) == 0) return true;
    return false;
}

static void free_names(Index *x) {
    free(x->kept.at);
    free(x->before.at);
    x->kept = x->before = (Folders){0};
}

/* false: not the index of a checkpoint. Earlier programs kept one state, and wrote "before" as one text. */
static bool read_names(const char *path, Index *x) {
    struct stat st;
    char why[256];
    int fd = sc_open_input(path, &st, why, sizeof why);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    json_t *j = f ? json_loadf(f, 0, NULL) : NULL;
    if (f) fclose(f);
    const char *format = json_string_value(json_object_get(j, "format")),
               *folder = json_string_value(json_object_get(j, "folder"));
    const json_t *kept = json_object_get(j, "kept"), *before = json_object_get(j, "before");
    bool ours =
        format && strcmp(format, "shardc-checkpoint") == 0 && folder && strlen(folder) < FOLDER && !strchr(folder, '/');
    const json_t *loss = json_object_get(j, "val_loss");
    *x = (Index){.step = json_integer_value(json_object_get(j, "step")),
                 .val_loss = json_is_number(loss) ? json_number_value(loss) : INFINITY};
    if (ours) snprintf(x->folder, FOLDER, "%s", folder);
    for (size_t i = 0; ours && i < json_array_size(kept); i++)
        add_folder(&x->kept, json_string_value(json_array_get(kept, i)));
    for (size_t i = 0; ours && i < json_array_size(before); i++)
        add_folder(&x->before, json_string_value(json_array_get(before, i)));
    if (ours) add_folder(&x->before, json_string_value(before));
    json_decref(j);
    return ours;
}

/* What DIR/index.json says; all empty where there is none. Dies when the index is not ours. */
static Index read_current(const char *dir) {
    char path[PATH_MAX];
    Index x = {.val_loss = INFINITY};
    snprintf(path, sizeof path, "%s/index.json", dir);
    if (access(path, F_OK) != 0) {
        if (errno != ENOENT) die("cannot save to %s: %s; name another folder with --save", dir, strerror(errno));
    } else if (!read_names(path, &x)) {
        die("%s is not the index of a checkpoint: --save needs a folder of its own", path);
    }
    return x;
}

double saver_val_loss(const char *dir) {
    Index x = read_current(dir);
    free_names(&x);
    return x.val_loss;
}

/* A lock on the folder itself leaves no file behind, and the kernel frees it when the last process that may still write
 * there is gone: us and the ranks forked from us. Ranks of a run just killed may take a moment to go. Where the file
 * system has no locks, there is none. */
int saver_hold(const char *dir) {
    const struct timespec pause = {0, 50000000};
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return -1;
    if (fd < 0) die("cannot save to %s: %s; name another folder with --save", dir, strerror(errno));
    for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; i++) {
        if (i == 20) die("another run saves to %s: wait for it, or name another folder", dir);
        nanosleep(&pause, NULL);
    }
    return fd;
}

/* ── what killed runs have left ──────────────────────────────────────────────────────────────────────────────────────
 */
/* The files of a state, whatever world it is of. Its index goes first: half a state cannot be resumed. What is not ours
 * stays, and the folder with it. */
static void remove_left(const char *dir, const char *folder) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, folder);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !d) close(fd);
    if (d) unlinkat(fd, "index.json", 0);
    if (d) unlinkat(fd, "index.json.part", 0);
    for (struct dirent *e; d && (e = readdir(d));) {
        int rank, n = 0;
        bool ours = sscanf(e->d_name, "rank-%d.safetensors%n", &rank, &n) == 1 && n;
        if (ours && (!e->d_name[n] || strcmp(e->d_name + n, ".part") == 0)) unlinkat(fd, e->d_name, 0);
    }
    if (d) closedir(d);
    rmdir(path);
}

/* Removes the folders that were being written, the one that was about to be named, and those that were replaced. What
 * cannot be removed stays: it is in nobody's way. */
static void remove_left_overs(const char *dir, const Index *current) {
    char path[PATH_MAX];
    Index next;
    for (int i = 0; i < current->before.n; i++)
        if (strcmp(current->before.at[i], current->folder) != 0 && !has_folder(&current->kept, current->before.at[i]))
            remove_left(dir, current->before.at[i]);
    snprintf(path, sizeof path, "%s/index.json.next", dir);
    if (access(path, F_OK) == 0 && read_names(path, &next)) {
        if (is_folder_name(next.folder, "") && strcmp(next.folder, current->folder) != 0 &&
            !has_folder(&current->kept, next.folder))
            remove_left(dir, next.folder);
        free_names(&next);
        unlink(path);
    }
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (is_folder_name(e->d_name, ".part")) remove_left(dir, e->d_name);
    if (d) closedir(d);
}

int saver_check(const char *dir, const char *resume, int held) {
    char probe[PATH_MAX];
    struct stat here, there;
    if (strlen(dir) > PATH_MAX - 128) die("--save: the path is longer than %d bytes", PATH_MAX - 128);
    int error = make_folders(dir);
    snprintf(probe, sizeof probe, "%s/.probe", dir);
    rmdir(probe); /* of a run that was killed right here */
    if (!error && mkdir(probe, 0777) != 0 && errno != EEXIST) error = errno;
    if (error) die("cannot save to %s: %s; name another folder with --save", dir, strerror(error));
    rmdir(probe);
    if (held < 0) held = saver_hold(dir);
    Index current = read_current(dir);
    if (strcmp(current.folder, ".") == 0)
        die("%s is one saved state, of step %" PRId64 ": name another folder with --save, and this one with --resume",
            dir, current.step);
    bool resumed = resume && fstat(held, &here) == 0 && stat(resume, &there) == 0 && here.st_dev == there.st_dev &&
                   here.st_ino == there.st_ino;
    if (current.folder[0] && !resumed)
        die("%s holds a training state at step %" PRId64 ": go on with --resume %s, or name another folder", dir,
            current.step, dir);
    if (flock(held, LOCK_EX | LOCK_NB) == 0) remove_left_overs(dir, &current);
    free_names(&current);
    return held;
}

/* The head comes first and the checksums are known last: they have a place in it, as metadata under the pieces' names;
 * so has the file's own name. */
static void make_head(Saver *s) {
    StHead h;
    char **metadata = need(2 * (size_t)s->n + 3, sizeof *metadata);
    metadata[0] = need_text(SHARD_KEY);
    metadata[1] = need_text("%*s", SHARD_WIDTH, "");
    for (int i = 0; i < s->n; i++) {
        const Piece *p = &s->pieces[i];
        char ahead[16] = "";
        if (p->ahead) snprintf(ahead, sizeof ahead, "+%d", p->ahead);
        metadata[2 * i + 2] = need_text("%s@[%" PRId64 ",%" PRId64 ")#%s%s", s->b->params[p->param].path, p->begin,
                                        p->end, piece_kind_name(p->kind), ahead);
        metadata[2 * i + 3] = need_text(PIECE_SUM, 0ul);
    }
    s->text_at = need((size_t)s->n + 1, sizeof *s->text_at);
    st_head_begin(&h, (const char *const *)metadata, s->text_at);
    for (int i = 0; i < s->n; i++)
        st_head_add(&h, metadata[2 * i + 2], s->pieces[i].dtype, 1, &(int64_t){s->pieces[i].end - s->pieces[i].begin});
    s->head = st_head_end(&h, &s->head_bytes);
    for (int i = 0; i < 2 * s->n + 2; i++) free(metadata[i]);
    free(metadata);
}

static uint64_t piece_bytes(const Piece *p) {
    return (uint64_t)(p->end - p->begin) * (uint64_t)sc_size(p->dtype);
}

/* Touched now: there shall be memory for it when it is written to. */
static void make_copy(Saver *s) {
    for (int i = 0; i < s->n; i++) s->bytes += piece_bytes(&s->pieces[i]);
    s->copy = need(s->bytes, 1);
    memset(s->copy, 0xff, s->bytes);
    if (!(s->background = background_new()))
        die("--save-in-background: cannot start a thread: %s; leave it out, or allow more threads", strerror(errno));
}

Saver *saver_new(const sc_build *b, const char *dir, int keep, bool background, int rank, uint64_t run,
                 const char *given) {
    Saver *s = need(1, sizeof *s);
    s->b = b;
    s->given = given;
    s->dir = need_text("%s", dir);
    size_t n;
    FILE *model = open_memstream(&s->model, &n);
    if (model) st_json_string(model, b->name);
    if (!model || ferror(model) || fclose(model) || !s->model) die("out of memory for a name");
    s->rank = rank;
    s->run = run;
    int all = state_pieces(b, rank, &s->pieces);
    for (int i = 0; i < all; i++)
        if (state_owned(b, rank, &s->pieces[i])) s->pieces[s->n++] = s->pieces[i];
    make_head(s);
    s->buffer = need(1, SC_ASIDE_BUFFER);
    s->chunk = need(1, SC_ASIDE_BUFFER);
    s->sums = need((size_t)b->world, sizeof *s->sums);
    Index x = read_current(dir);
    s->keep = keep;
    s->kept = (Folders){need((size_t)(x.kept.n + keep + 1), sizeof(Folder)), x.kept.n};
    if (x.kept.n) memcpy(s->kept.at, x.kept.at, (size_t)x.kept.n * sizeof(Folder));
    if (x.folder[0]) memcpy(s->kept.at[s->kept.n++], x.folder, FOLDER);
    s->index_bytes = INDEX_BYTES + strlen(given) + (size_t)b->world * sizeof "\"1c0ffee5\", " +
                     (size_t)(x.kept.n + keep + 1) * (FOLDER + sizeof "\"\", ");
    s->index = need(s->index_bytes, 1);
    free_names(&x);
    if (background) make_copy(s);
    return s;
}

uint64_t saver_copied(const Saver *s) {
    return s->bytes;
}

int saver_states(const Saver *s) {
    return s->kept.n;
}

int64_t saver_step(const Saver *s) {
    return s->progress.step;
}

void saver_free(Saver *s) {
    if (!s) return;
    background_free(s->background);
    free(s->copy);
    free(s->dir);
    free(s->model);
    free(s->pieces);
    free(s->head);
    free(s->text_at);
    free(s->sums);
    free(s->index);
    free(s->kept.at);
    free(s->buffer);
    free(s->chunk);
    free(s);
}

/* ── one save ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Files of a complete folder of ours, by their names: nothing else is ever removed. As in remove_left, which may
 * allocate, the index goes first. */
static void remove_folder(Saver *s, const char *folder) {
    unlink(PATH(s, "%s/%s/index.json", s->dir, folder));
    unlink(PATH(s, "%s/%s/index.json.part", s->dir, folder));
    for (int i = 0;; i++) {
        bool there = unlink(PATH(s, "%s/%s/rank-%d.safetensors", s->dir, folder, i)) == 0;
        there |= unlink(PATH(s, "%s/%s/rank-%d.safetensors.part", s->dir, folder, i)) == 0;
        if (!there && i >= s->b->world) break;
    }
    rmdir(PATH(s, "%s/%s", s->dir, folder));
}

/* The names of the step's folder, whole and while it is written: the first of its kind that nothing has, never over the
 * state that is named, nor over what someone has put there. */
static void name_folder(char folder[FOLDER], char temp[FOLDER], int64_t step, int n) {
    char more[16] = "";
    if (n) snprintf(more, sizeof more, ".%d", n);
    snprintf(folder, FOLDER, "step-%08" PRId64 "%s", step, more);
    snprintf(temp, FOLDER, "step-%08" PRId64 "%s.part", step, more);
}

static int free_name(Saver *s, int64_t step) {
    char folder[FOLDER], temp[FOLDER];
    struct stat st;
    for (int n = 0; n < 1000; n++) {
        name_folder(folder, temp, step, n);
        if (lstat(PATH(s, "%s/%s", s->dir, folder), &st) && lstat(PATH(s, "%s/%s", s->dir, temp), &st)) return n;
    }
    return 1000;
}

static void copy_pieces(Saver *s) {
    uint8_t *to = s->copy;
    for (const Piece *p = s->pieces; p < s->pieces + s->n; to += piece_bytes(p++))
        sc_read(s->r, p->host, p->at, to, piece_bytes(p));
}

/* All but the head, for which there is room. */
static void write_pieces(void *saver) {
    Saver *s = saver;
    const uint8_t *from = s->copy;
    sc_aside_open(&s->file, PATH(s, "%s/%s/rank-%d.safetensors", s->dir, s->part, s->rank), s->buffer);
    sc_aside_write(&s->file, s->head, s->head_bytes);
    for (int i = 0; i < s->n && !s->file.error; i++) {
        const Piece *p = &s->pieces[i];
        uint64_t left = piece_bytes(p), at = p->at;
        unsigned long sum = crc32(0, NULL, 0);
        while (left && !s->file.error) {
            size_t n = left < SC_ASIDE_BUFFER ? left : SC_ASIDE_BUFFER;
            const uint8_t *bytes = from ? from : s->chunk;
            if (!from) sc_read(s->r, p->host, at, s->chunk, n);
            sum = crc32(sum, bytes, (unsigned)n);
            sc_aside_write(&s->file, bytes, n);
            if (from) from += n;
            at += n;
            left -= n;
        }
        char text[32];
        int n = snprintf(text, sizeof text, PIECE_SUM, sum);
        memcpy(s->head + s->text_at[1 + i], text, (size_t)n);
    }
}

/* Writes the file's name into its head, and tells all ranks the checksums of all heads. */
static void put_name(Saver *s, sc_rank *r, int64_t step) {
    char text[SHARD_WIDTH + 1], padded[SHARD_WIDTH + 1];
    snprintf(text, sizeof text, SHARD_NAME, s->rank, s->b->world, step, s->run);
    snprintf(padded, sizeof padded, "%-*s", SHARD_WIDTH, text);
    memcpy(s->head + s->text_at[0], padded, SHARD_WIDTH);
    sc_host_gather(r, (double)crc32(0, (const unsigned char *)s->head, (unsigned)s->head_bytes), s->sums);
}

/* The first save gives the run its id: a hash (FNV-1a) of what it holds, the same on all ranks. Two runs that differ in
 * anything differ there, and a run that is repeated writes the same files. */
static void name_files(Saver *s) {
    put_name(s, s->r, s->progress.step);
    if (s->run) return;
    uint64_t h = 14695981039346656037u;
    for (int i = 0; i < s->b->world; i++) h = (h ^ (uint64_t)s->sums[i]) * 1099511628211u;
    s->run = h ? h : 1;
    put_name(s, s->r, s->progress.step);
}

static void end_file(void *saver) {
    Saver *s = saver;
    sc_aside_rewrite(&s->file, s->head, s->head_bytes);
    s->error = sc_aside_commit(&s->file);
}

static const char *current(const Saver *s) {
    return s->kept.n ? s->kept.at[s->kept.n - 1] : "";
}

/* Does state i go when `folder` is there? It does where that is the same step saved again, or where too many are there.
 */
static bool goes(const Saver *s, int i, const char *folder) {
    size_t n = strcspn(folder, ".");
    bool again = strncmp(current(s), folder, n) == 0 && (!current(s)[n] || current(s)[n] == '.');
    return i < s->kept.n - again + 1 - s->keep || (again && i == s->kept.n - 1);
}

/* As members of a list of JSON: the states that go, or those that stay. */
static size_t print_folders(const Saver *s, char *text, size_t room, const char *folder, bool going) {
    size_t n = 0;
    *text = 0;
    for (int i = 0; i < s->kept.n; i++)
        if (goes(s, i, folder) == going)
            n += (size_t)snprintf(text + n, room - n, "%s\"%s\"", n ? ", " : "", s->kept.at[i]);
    return n;
}

/* At DIR/`path`. folder: the new state's, or "." in the index that lies in it, which names no other state. */
static int write_index(Saver *s, const Progress *p, const char *path, const char *folder) {
    sc_aside a;
    char *text = s->index, scaler[128] = "", best[64] = "";
    if (p->best) snprintf(best, sizeof best, "  \"val_loss\": %.17g,\n", p->val_loss);
    if (p->scaler.scale > 0)
        snprintf(scaler, sizeof scaler,
                 "  \"loss_scale\": %.9g,\n  \"clean_steps\": %.0f,\n  \"skipped_steps\": %.0f,\n",
                 (double)p->scaler.scale, (double)p->scaler.clean, (double)p->scaler.skips);
    size_t n = (size_t)snprintf(
        text, s->index_bytes,
        "{\n  \"format\": \"shardc-checkpoint\",\n  \"version\": 2,\n  \"model\": %.1000s,\n  \"folder\": \"%s\",\n"
        "  \"step\": %" PRId64 ",\n  \"position\": %" PRId64 ",\n  \"tokens\": %" PRId64 ",\n  \"seed\": %" PRIu64
        ",\n  \"adam_step\": %" PRId64 ",\n%s%s  \"world\": %d,\n  \"global_batch\": %" PRId64
        ",\n  \"plan_hash\": \"%016" PRIx64 "\",\n  \"run\": \"%016" PRIx64 "\",\n  \"given\": %s,\n",
        s->model, folder, p->step, p->position, p->tokens, p->seed, p->adam_step, scaler, best, s->b->world,
        p->global_batch, s->b->plan_hash, s->run, s->given);
    for (int going = 0; going < 2 && folder[0] != '.'; going++) {
        n += (size_t)snprintf(text + n, s->index_bytes - n, "  \"%s\": [", going ? "before" : "kept");
        n += print_folders(s, text + n, s->index_bytes - n, folder, going);
        n += (size_t)snprintf(text + n, s->index_bytes - n, "],\n");
    }
    n += (size_t)snprintf(text + n, s->index_bytes - n, "  \"heads\": [");
    for (int i = 0; i < s->b->world; i++)
        n += (size_t)snprintf(text + n, s->index_bytes - n, "%s\"" HEAD_SUM "\"", i ? ", " : "",
                              (unsigned long)s->sums[i]);
    text[n++] = ']';
    unsigned long sum = crc32(0, (const unsigned char *)text, (unsigned)n);
    n += (size_t)snprintf(text + n, s->index_bytes - n, INDEX_SUM, sum);
    sc_aside_open(&a, PATH(s, "%s/%s", s->dir, path), s->buffer);
    sc_aside_write(&a, text, n);
    return sc_aside_commit(&a);
}

static void sync_folder(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

static int rename_in(Saver *s, const char *from, const char *to) {
    snprintf(s->temp, sizeof s->temp, "%s/%s", s->dir, from);
    return rename(s->temp, PATH(s, "%s/%s", s->dir, to)) == 0 ? 0 : errno;
}

/* Rank 0, when every rank's file is complete: the folder gets an index of its own and its name, the index of all names
 * it, old folders go. The index to come is there before the folder has its name, so that a folder that no index names
 * is known as ours. */
static int publish(Saver *s, const Progress *p, const char *temp, const char *folder) {
    char own[FOLDER + 16];
    snprintf(own, sizeof own, "%s/index.json", temp);
    int error = write_index(s, p, own, ".");
    if (error) return error;
    sync_folder(PATH(s, "%s/%s", s->dir, temp));
    error = write_index(s, p, "index.json.next", folder);
    if (error) return error;
    error = rename_in(s, temp, folder);
    if (!error && (error = rename_in(s, "index.json.next", "index.json"))) remove_folder(s, folder);
    if (error) {
        unlink(PATH(s, "%s/index.json.next", s->dir));
        return error;
    }
    sync_folder(s->dir);
    for (int i = 0; i < s->kept.n; i++)
        if (goes(s, i, folder)) remove_folder(s, s->kept.at[i]);
    return 0;
}

static void name_state(void *saver) {
    Saver *s = saver;
    s->error = s->rank == 0 ? publish(s, &s->progress, s->part, s->folder) : 0;
}

/* false on all ranks when any of them failed. Errors are errno values, mostly the same one everywhere. */
static bool agree(Saver *s, sc_rank *r, int error, const char *temp) {
    double failed = sc_host_sum(r, error != 0), sum = sc_host_sum(r, error);
    if (failed == 0) return true;
    if (s->rank == 0) remove_folder(s, temp);
    sc_barrier(r);
    int code = (int)(sum / failed);
    bool kept = !access(PATH(s, "%s/index.json", s->dir), F_OK) && !access(PATH(s, "%s/%s", s->dir, current(s)), F_OK);
    const char *before = !s->kept.n ? "nothing was left there; free space or name another folder with --save"
                         : kept     ? "the state saved before is untouched: "
                                    : "the state saved before is there no longer: ";
    snprintf(s->trouble, sizeof s->trouble, "cannot save to %s: %s; %s%s", s->dir,
             code * failed == sum ? strerror(code) : "several ranks could not write", before, current(s));
    return false;
}

/* The list of the states that are there now. */
static void remember(Saver *s, const char *folder) {
    int first = 0, last = s->kept.n;
    while (first < last && goes(s, first, folder)) first++;
    while (last > first && goes(s, last - 1, folder)) last--;
    memmove(s->kept.at, s->kept.at + first, (size_t)(last - first) * sizeof(Folder));
    s->kept.n = last - first;
    snprintf(s->kept.at[s->kept.n++], FOLDER, "%s", folder);
}

const char *saver_trouble(const Saver *s) {
    return s->trouble;
}

static void work(Saver *s, int stage, void (*job)(void *)) {
    s->stage = stage;
    s->error = 0;
    if (s->background)
        background_begin(s->background, job, s);
    else
        job(s);
}

bool saver_begin(Saver *s, sc_rank *r, const Progress *p) {
    s->r = r;
    s->progress = *p;
    int n = (int)sc_host_sum(r, s->rank == 0 ? free_name(s, p->step) : 0);
    name_folder(s->folder, s->part, p->step, n);
    bool made = s->rank != 0 || mkdir(PATH(s, "%s/%s", s->dir, s->part), 0777) == 0;
    if (!agree(s, r, made ? 0 : errno, s->part)) return false;
    if (s->copy) copy_pieces(s);
    work(s, PIECES, write_pieces);
    return true;
}

/* A stage ends for all ranks at once: when the slowest has done its part. */
SaverState saver_go_on(Saver *s, sc_rank *r, bool wait) {
    while (s->stage != NONE) {
        if (wait && s->background) background_wait(s->background);
        if (!wait && sc_host_sum(r, background_busy(s->background)) > 0) return SAVER_BUSY;
        int stage = s->stage;
        s->stage = NONE;
        if (stage != PIECES && !agree(s, r, s->error, s->part)) return SAVER_FAILED;
        if (stage == INDEX) {
            remember(s, s->folder);
            return SAVER_SAVED;
        }
        if (stage == PIECES) name_files(s);
        work(s, stage + 1, stage == PIECES ? end_file : name_state);
    }
    return SAVER_IDLE;
}

bool saver_save(Saver *s, sc_rank *r, const Progress *p) {
    return saver_begin(s, r, p) && saver_go_on(s, r, true) == SAVER_SAVED;
}
