/* The training state on disk. A folder DIR holds DIR/index.json, the folder that it names, and those of older states
 * ("kept", oldest first), as many as are asked for:
 *   DIR/step-00000010/rank-0.safetensors ...   tensors "layers.0.mlp.up.weight@[begin,end)#master",
 *                                              and as metadata under each tensor's name "crc32 1c0ffee5" of its bytes
 *                                              and as metadata "shard": "rank 0 of 2 at step 10 of run 8c1f..."
 * A moment in 8 bits (sc_moments8.h) is codes, "#moment1", and the scales of its blocks [begin,end), "#scale1". A block
 * is 256 elements of the parameter; where the parameter is kept behind another one its first block has fewer: of
 * "#scale1+64" 64 less, which are the other's, and both have the scale.
 *   DIR/step-00000010/index.json               the index of that state alone: its "folder" is "."
 * index.json is replaced last, by a rename: at every moment it names a complete state. It says which run and step the
 * state is of, what its run was given (settings.h), and has the crc32 of every file's head, by rank; it ends in the
 * crc32 of the text before that. Version 1 of the index had no run and no checksums of heads.
 * While a state is written its folder is called step-00000010.part; index.json.next is the index to come. A run that
 * was killed leaves those, or the folders that its index has replaced ("before"): the next --save there removes them.
 * Relies on: state, safetensors, file.h, jansson, target.
 * Relied on by: train, main. */
#ifndef HOST_CHECKPOINT_H
#define HOST_CHECKPOINT_H

#include "safetensors.h"
#include "state.h"
#include <inttypes.h>
#include <jansson.h>

typedef struct {
    int64_t step, position; /* steps done; samples seen */
    uint64_t seed;
    int64_t adam_step, global_batch;
    sc_scaler scaler; /* scale 0: there is none */
    int64_t tokens;   /* seen; -1: saved before they were counted */
    bool best;        /* the state is kept for its val_loss: */
    double val_loss;
} Progress;

#define PIECE_SUM "crc32 %08lx"
#define HEAD_SUM "%08lx"
#define INDEX_SUM ",\n  \"crc32\": \"%08lx\"\n}\n" /* its end */
#define SHARD_KEY "shard"
#define SHARD_NAME "rank %d of %d at step %" PRId64 " of run %016" PRIx64
enum { SHARD_WIDTH = 80 }; /* the name is followed by blanks: it is written into a head whose size is known */

/* ── saving ──────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct Saver Saver;
/* Before ranks start, and before the state to resume is read, which a run that saves there may remove. Dies when the
 * folder cannot be opened or is another run's at this moment. Returns a descriptor: the folder is ours until it is
 * closed here and in every rank forked since. -1: it is not there yet. */
int saver_hold(const char *dir);
/* Then: makes the folder where it is missing, holds it where `held` is -1, and dies when it cannot be written, is
 * someone else's, or holds a state that is not the one to resume (a folder, or NULL). Where nobody else can be writing
 * there, what killed runs have left is removed. Returns the descriptor. */
int saver_check(const char *dir, const char *resume, int held);
double saver_val_loss(const char *dir); /* of the best state that is there; infinite: there is none */
/* Allocates all that saving needs. The last `keep` states stay. background: saves are written by a thread of their own,
 * from a copy of the state. A run that was resumed keeps its id; 0: it has none yet. given: what it was given, an
 * object of JSON (settings_text), for rank 0. */
Saver *saver_new(const sc_build *b, const char *dir, int keep, bool background, int rank, uint64_t run,
                 const char *given);
uint64_t saver_copied(const Saver *s); /* bytes of this rank's copy; 0: not in the background */
void saver_free(Saver *s);
/* All of the following by all ranks, between programs, with the same answer on all of them. A save begins where none is
 * under way; what it writes is the state of that moment. false: it has failed. */
bool saver_begin(Saver *s, sc_rank *r, const Progress *p);
typedef enum { SAVER_IDLE, SAVER_BUSY, SAVER_SAVED, SAVER_FAILED } SaverState;
/* Takes the save that has begun as far as it goes now, or, with `wait`, to its end; without the background only with
 * `wait`. SAVED or FAILED: it has ended with that, and is told once; IDLE: none is under way. When one has failed the
 * states saved before are as they were. */
SaverState saver_go_on(Saver *s, sc_rank *r, bool wait);
bool saver_save(Saver *s, sc_rank *r, const Progress *p); /* begins, and waits; false: it has failed */
int saver_states(const Saver *s);                         /* that are in the folder now */
int64_t saver_step(const Saver *s);                       /* of the last save that has begun */
const char *saver_trouble(const Saver *s);                /* why the last one has failed, and what is left: a line */

/* ── resuming ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct Checkpoint Checkpoint;
/* Before ranks start: reads the index and every header; dies unless each element that the build needs is there. dir: of
 * --save, for its newest state, or a state's own folder in it. Of a state that another run replaces meanwhile the one
 * after it is taken. */
Checkpoint *checkpoint_open(const sc_build *b, const char *dir);
const Progress *checkpoint_progress(const Checkpoint *c);
int checkpoint_world(const Checkpoint *c);
const json_t *checkpoint_given(const Checkpoint *c); /* settings_text of the run that saved; NULL: it kept none */
uint64_t checkpoint_run(const Checkpoint *c);        /* 0 for NULL, and of version 1 */
unsigned long checkpoint_sum(const Checkpoint *c);   /* crc32 of its index */
/* What this rank's slices hold; dies where a tensor that it reads of is not as it was saved. */
void checkpoint_load(const Checkpoint *c, sc_rank *r);
void checkpoint_close(Checkpoint *c);

#endif
