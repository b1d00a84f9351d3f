/* Uses: an index of one program. Where its ops stand, which operands are a value, and which are views of it. A pass
 * builds it once, and says what it changes. Relies on: ir.h. Relied on by: the passes up to fuse, offload. */
#ifndef SHARDC_USES_H
#define SHARDC_USES_H

#include "ir.h"

/* An operand of an op. In the list of a value stand the operands that are this value and, where it owns its bytes,
 * those of ops that are not views themselves and read a view of it: in program order, and behind these what was added.
 */
typedef struct User User;
struct User {
    Op *op;
    const Value *value; /* the operand */
    User *next;
};

typedef struct Uses Uses;
Uses *uses_new(const Graph *g, const Program *p);
void uses_free(Uses *u);

const User *uses_users(const Uses *u, const Value *v);
/* How many operands are v. A result of the program is used once more, by who runs it. */
int uses_count(const Uses *u, const Value *v);
int uses_through_views(const Uses *u, const Value *v); /* the others in the list of users */
Op *uses_only(const Uses *u, const Value *v);          /* the op that alone reads v, once; or NULL */
bool uses_is_result(const Uses *u, const Value *v);    /* v or a view of it is wanted whoever uses it */

/* Where an op stands in the program; -1: nowhere. */
int uses_position(const Uses *u, const Op *op);

void uses_add(Uses *u, Op *op); /* its operands, also of values that are younger than the index */
void uses_remove(Uses *u, const Op *op);
void uses_drop(Uses *u, const Op *op, const Value *operand); /* one operand of it */
void uses_place(Uses *u, const Op *op, int at);

/* One flag a value, by Value.id. */
bool *uses_value_flags(const Graph *g);
/* Flags what is wanted whoever uses it, and whose view that is: loss, logits, parameters' gradients (of g->train). */
void uses_flag_results(const Graph *g, const Program *p, bool *flags);

#endif
