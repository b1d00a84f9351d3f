/* The safetensors files of an export: one, or shards of a chosen size and their index.
 * Relies on: safetensors, file.h.
 * Relied on by: export. */
#ifndef HOST_EXPORT_FILES_H
#define HOST_EXPORT_FILES_H

#include "safetensors.h"

typedef struct ExportFiles ExportFiles;
/* path: of the file, where it stays one; folder: where those of an earlier export are replaced, too, or NULL. stem:
 * what names in it begin with ("model"). most: bytes of data of a shard; 0: one file. A larger tensor has a shard for
 * itself. Memory is given by the first three functions alone. */
ExportFiles *export_files_new(const char *path, const char *folder, const char *stem, const char *model, int64_t most);
void export_files_add(ExportFiles *x, const char *name, sc_dtype d, int dims, const int64_t *shape);
void export_files_settle(ExportFiles *x); /* there are no more tensors */
int export_files_count(const ExportFiles *x);
/* The next bytes of data, in the order of tensors. Failures are kept, and later calls do nothing. */
void export_files_write(ExportFiles *x, const void *p, size_t n);
int export_files_error(const ExportFiles *x); /* errno of the first failure, or 0 */
/* Everything is written: the files take their names. Returns 0, or the first errno: then nothing of them is left. */
int export_files_commit(ExportFiles *x);
void export_files_drop(ExportFiles *x);          /* in a commit's place: nothing of them is left */
bool export_files_touched(const ExportFiles *x); /* a commit that failed has replaced or removed something */
void export_files_free(ExportFiles *x);

#endif
