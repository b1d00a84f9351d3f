/* The index of weights in several files: {"metadata": {...}, "weight_map": {tensor: file, ...}}. Which tensor lies
 * where the files say themselves; of the index only their names are needed. Relies on: file.h, die, jansson. Relied on
 * by: weights. */
#include "shard_index.h"
#include "../file.h"
#include "die.h"
#include <jansson.h>
#include <stdlib.h>

enum { MOST_BYTES = 64 << 20 };

/* NULL: no JSON object there. */
static json_t *read_object(const char *path) {
    struct stat st;
    char why[256], first;
    int fd = sc_open_input(path, &st, why, sizeof why);
    if (fd < 0) return NULL;
    json_t *j = NULL;
    if (st.st_size > 0 && st.st_size <= MOST_BYTES && sc_read_at(fd, &first, 1, 0) && first == '{') {
        char *text = need((size_t)st.st_size, 1);
        if (sc_read_at(fd, text, (size_t)st.st_size, 0)) j = json_loadb(text, (size_t)st.st_size, 0, NULL);
        free(text);
    }
    close(fd);
    return j;
}

static void add_once(char ***files, int *n, char *path) {
    for (int i = 0; i < *n; i++)
        if (!strcmp((*files)[i], path)) {
            free(path);
            return;
        }
    *files = realloc(*files, (size_t)(*n + 1) * sizeof **files);
    if (!*files) die("out of memory for a list of files");
    (*files)[(*n)++] = path;
}

bool shard_index_read(const char *path, char ***files, int *n) {
    const char *tensor;
    json_t *file, *j = read_object(path), *map = json_object_get(j, "weight_map");
    bool is_index = json_is_object(map);
    *files = NULL;
    *n = 0;
    if (is_index && !json_object_size(map)) die("%s: its weight_map names no tensor: copy the index anew", path);
    json_object_foreach(map, tensor, file) {
        const char *name = json_string_value(file);
        if (!name || !*name || strchr(name, '/'))
            die("%s: its weight_map says of '%.80s' no name of a file beside it: copy the index anew", path, tensor);
        if (strlen(name) > 4 && !strcmp(name + strlen(name) - 4, ".bin"))
            die("%s: the index of files of torch.save ('%.80s'): save the model's tensors with "
                "safetensors.torch.save_file, or the model with save_pretrained",
                path, name);
        add_once(files, n, need_text("%.*s%s", (int)(basename(path) - path), path, name));
    }
    json_decref(j);
    return is_index;
}
