/* Editing a program's op list: insertions collected by position and carried out at once; operand substitution; cloning.
 * Relies on: ir.h.
 * Relied on by: qkv_fusion, autodiff, rematerialize, recompute, shard, offload. */
#ifndef SHARDC_EDIT_H
#define SHARDC_EDIT_H

#include "../ir/ir.h"

typedef struct Edit Edit;
Edit *edit_begin(Graph *g, Program *p);
void edit_before(Edit *e, int pos, Op *op); /* in the order of calls */
void edit_after(Edit *e, int pos, Op *op);
void edit_remove(Edit *e, int pos);
void edit_commit(Edit *e);

void edit_replace_operand(Op *op, Value *from, Value *to); /* in op and in a fused op's body */
/* *twins, unless NULL: the clones, by id of the value that each is a clone of. */
Program *edit_clone_program(Graph *g, const Program *p, const char *name, Value *const **twins);

#endif
