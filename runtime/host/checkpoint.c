/* Saving the training state: every rank writes its pieces into a folder under a temporary name; when all have, the
 * folder gets its name, then the index names it, then the folder before it goes. Nothing is allocated after saver_new.
 * Relies on: state, safetensors (heads), aside, target, zlib (crc32).
 * Relied on by: train. */
#include "checkpoint.h"
#include "aside.h"
#include "die.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

enum { FOLDER = 64 };

struct Saver {
    const sc_build *b;
    char *dir, *model; /* model: as a JSON string */
    int rank;
    Piece *pieces;
    int n;
    char *head;
    size_t head_bytes, *sum_at; /* sum_at: where the head has each piece's checksum */
    uint8_t *buffer, *chunk;    /* ASIDE_BUFFER bytes each */
    char current[FOLDER];       /* what the index names; "" for none */
    char path[PATH_MAX], temp[PATH_MAX];
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

/* The folder that DIR/index.json names, and the step of its state; "" where there is no index. Dies when the index is
 * not ours. */
static int64_t read_current(const char *dir, char current[FOLDER]) {
    char path[PATH_MAX];
    current[0] = 0;
    snprintf(path, sizeof path, "%s/index.json", dir);
    if (access(path, F_OK) != 0) {
        if (errno != ENOENT) die("cannot save to %s: %s; name another folder with --save", dir, strerror(errno));
        return 0;
    }
    json_t *j = json_load_file(path, 0, NULL);
    const char *format = json_string_value(json_object_get(j, "format")),
               *folder = json_string_value(json_object_get(j, "folder"));
    if (!format || strcmp(format, "shardc-checkpoint") != 0 || !folder || strlen(folder) >= FOLDER ||
        strchr(folder, '/'))
        die("%s is not the index of a checkpoint: --save needs a folder of its own", path);
    snprintf(current, FOLDER, "%s", folder);
    int64_t step = json_integer_value(json_object_get(j, "step"));
    json_decref(j);
    return step;
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

static bool same_folder(int fd, const char *path) {
    struct stat a, b;
    return path && fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int saver_check(const char *dir, const char *resume, int held) {
    char probe[PATH_MAX], current[FOLDER];
    if (strlen(dir) > PATH_MAX - 128) die("--save: the path is longer than %d bytes", PATH_MAX - 128);
    int error = make_folders(dir);
    snprintf(probe, sizeof probe, "%s/.probe-%d", dir, (int)getpid());
    if (!error && mkdir(probe, 0777) != 0) error = errno;
    if (error) die("cannot save to %s: %s; name another folder with --save", dir, strerror(error));
    rmdir(probe);
    if (held < 0) held = saver_hold(dir);
    int64_t step = read_current(dir, current);
    if (current[0] && !same_folder(held, resume))
        die("%s holds a training state at step %" PRId64 ": go on with --resume %s, or name another folder", dir, step,
            dir);
    return held;
}

/* The head comes first and the checksums are known last: they have a place in it, as metadata under the pieces' names.
 */
static void make_head(Saver *s) {
    StHead h;
    char **metadata = need(2 * (size_t)s->n + 1, sizeof *metadata);
    for (int i = 0; i < s->n; i++) {
        const Piece *p = &s->pieces[i];
        metadata[2 * i] = need_text("%s@[%" PRId64 ",%" PRId64 ")#%s", s->b->params[p->param].path, p->begin, p->end,
                                    piece_kind_name(p->kind));
        metadata[2 * i + 1] = need_text(PIECE_SUM, 0ul);
    }
    s->sum_at = need((size_t)s->n, sizeof *s->sum_at);
    st_head_begin(&h, (const char *const *)metadata, s->sum_at);
    for (int i = 0; i < s->n; i++)
        st_head_add(&h, metadata[2 * i], s->pieces[i].dtype, 1, &(int64_t){s->pieces[i].end - s->pieces[i].begin});
    s->head = st_head_end(&h, &s->head_bytes);
    for (int i = 0; i < 2 * s->n; i++) free(metadata[i]);
    free(metadata);
}

static void put_sum(Saver *s, int piece, unsigned long sum) {
    char text[32];
    int n = snprintf(text, sizeof text, PIECE_SUM, sum);
    memcpy(s->head + s->sum_at[piece], text, (size_t)n);
}

static char *json_text(const char *s) {
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    if (!f) die("out of memory for a name");
    st_json_string(f, s);
    bool whole = !ferror(f);
    if (fclose(f) != 0 || !whole || !text) die("out of memory for a name");
    return text;
}

Saver *saver_new(const sc_build *b, const char *dir, int rank) {
    Saver *s = need(1, sizeof *s);
    s->b = b;
    s->dir = need_text("%s", dir);
    s->model = json_text(b->name);
    s->rank = rank;
    int all = state_pieces(b, rank, &s->pieces);
    for (int i = 0; i < all; i++)
        if (state_owned(b, rank, &s->pieces[i])) s->pieces[s->n++] = s->pieces[i];
    make_head(s);
    s->buffer = need(1, ASIDE_BUFFER);
    s->chunk = need(1, ASIDE_BUFFER);
    read_current(dir, s->current);
    return s;
}

void saver_free(Saver *s) {
    if (!s) return;
    free(s->dir);
    free(s->model);
    free(s->pieces);
    free(s->head);
    free(s->sum_at);
    free(s->buffer);
    free(s->chunk);
    free(s);
}

/* ── one save ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Files of a folder of ours, by their names: nothing else is ever removed. */
static void remove_folder(Saver *s, const char *folder) {
    for (int i = 0;; i++) {
        bool there = unlink(PATH(s, "%s/%s/rank-%d.safetensors", s->dir, folder, i)) == 0;
        there |= unlink(PATH(s, "%s/%s/rank-%d.safetensors.part", s->dir, folder, i)) == 0;
        if (!there && i >= s->b->world) break;
    }
    rmdir(PATH(s, "%s/%s", s->dir, folder));
}

static int make_folder(Saver *s, const char *folder) {
    remove_folder(s, folder); /* left by a run that was killed while saving */
    return mkdir(PATH(s, "%s/%s", s->dir, folder), 0777) == 0 ? 0 : errno;
}

static int write_pieces(Saver *s, sc_rank *r, const char *folder) {
    Aside a;
    snprintf(s->temp, sizeof s->temp, "%s/%s/rank-%d.safetensors.part", s->dir, folder, s->rank);
    aside_open(&a, PATH(s, "%s/%s/rank-%d.safetensors", s->dir, folder, s->rank), s->temp, s->buffer);
    aside_write(&a, s->head, s->head_bytes);
    for (int i = 0; i < s->n && !a.error; i++) {
        const Piece *p = &s->pieces[i];
        uint64_t left = (uint64_t)(p->end - p->begin) * (uint64_t)host_dtype_size(p->dtype), at = p->at;
        unsigned long sum = crc32(0, NULL, 0);
        while (left && !a.error) {
            size_t n = left < ASIDE_BUFFER ? left : ASIDE_BUFFER;
            sc_read(r, p->host, at, s->chunk, n);
            sum = crc32(sum, s->chunk, (unsigned)n);
            aside_write(&a, s->chunk, n);
            at += n;
            left -= n;
        }
        put_sum(s, i, sum);
    }
    aside_rewrite(&a, s->head, s->head_bytes);
    return aside_commit(&a);
}

static int write_index(Saver *s, const Progress *p, const char *folder) {
    Aside a;
    char text[INDEX_BYTES], scaler[128] = "";
    if (p->scaler.scale > 0)
        snprintf(scaler, sizeof scaler,
                 "  \"loss_scale\": %.9g,\n  \"clean_steps\": %.0f,\n  \"skipped_steps\": %.0f,\n",
                 (double)p->scaler.scale, (double)p->scaler.clean, (double)p->scaler.skips);
    int n = snprintf(
        text, sizeof text,
        "{\n  \"format\": \"shardc-checkpoint\",\n  \"version\": 1,\n  \"model\": %.1000s,\n  \"folder\": \"%s\",\n"
        "  \"step\": %" PRId64 ",\n  \"position\": %" PRId64 ",\n  \"seed\": %" PRIu64 ",\n  \"adam_step\": %" PRId64
        ",\n%s  \"world\": %d,\n  \"global_batch\": %" PRId64 ",\n  \"plan_hash\": \"%016" PRIx64 "\"",
        s->model, folder, p->step, p->position, p->seed, p->adam_step, scaler, s->b->world, p->global_batch,
        s->b->plan_hash);
    unsigned long sum = crc32(0, (const unsigned char *)text, (unsigned)n);
    n += snprintf(text + n, sizeof text - (size_t)n, INDEX_SUM, sum);
    snprintf(s->temp, sizeof s->temp, "%s/index.json.part", s->dir);
    aside_open(&a, PATH(s, "%s/index.json", s->dir), s->temp, s->buffer);
    aside_write(&a, text, (size_t)n);
    return aside_commit(&a);
}

static void sync_folder(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

/* Rank 0, when every rank's file is complete: the folder gets its name, the index names it, the old folder goes. */
static int publish(Saver *s, const Progress *p, const char *temp, const char *folder) {
    remove_folder(s, folder); /* complete, but never named by the index */
    snprintf(s->temp, sizeof s->temp, "%s/%s", s->dir, temp);
    sync_folder(s->temp);
    if (rename(s->temp, PATH(s, "%s/%s", s->dir, folder)) != 0) return errno;
    int error = write_index(s, p, folder);
    if (error) {
        remove_folder(s, folder);
        return error;
    }
    sync_folder(s->dir);
    if (s->current[0]) remove_folder(s, s->current);
    return 0;
}

/* Ends all ranks with one message when any of them failed. Errors are errno values, mostly the same one everywhere. */
static void agree(Saver *s, sc_rank *r, int error, const char *temp) {
    double failed = sc_host_sum(r, error != 0), sum = sc_host_sum(r, error);
    if (failed == 0) return;
    if (s->rank == 0) remove_folder(s, temp);
    sc_barrier(r);
    int code = (int)(sum / failed);
    die("cannot save to %s: %s; %s%s", s->dir, code * failed == sum ? strerror(code) : "several ranks could not write",
        s->current[0] ? "the state saved before is untouched: "
                      : "nothing was left there; free space or name another folder with --save",
        s->current);
}

void saver_save(Saver *s, sc_rank *r, const Progress *p) {
    char folder[FOLDER], temp[FOLDER];
    snprintf(folder, sizeof folder, "step-%08" PRId64, p->step);
    snprintf(temp, sizeof temp, "step-%08" PRId64 ".part", p->step);
    if (strcmp(folder, s->current) == 0)
        strcat(folder, ".1"); /* the same step again: never over the state that is named */
    agree(s, r, s->rank == 0 ? make_folder(s, temp) : 0, temp);
    agree(s, r, write_pieces(s, r, temp), temp);
    agree(s, r, s->rank == 0 ? publish(s, p, temp, folder) : 0, temp);
    snprintf(s->current, sizeof s->current, "%s", folder);
}
