/* What each kernel receives: one struct an op, with the names of its row in ops.def. Tensors come first (results, then
 * operands, then the workspace), so that whoever does not know the op can walk them; an absent one is all zeros.
 * Relies on: sc_tensor. Relied on by: sc.h; ../rows.sh, which tells a row from another by the line of its struct. */
#ifndef SC_SCHEMA_ARGS_H
#define SC_SCHEMA_ARGS_H

#define RESULT(name, flags) sc_tensor name;
#define RESULTS(name, n) sc_tensor name[n];
#define OPERAND(name, flags) sc_tensor name;
#define OPERANDS(name, n) sc_tensor name[n];
#define FLAG(name) int64_t name;
#define INT(name) int64_t name;
#define ENUM(name, type) int64_t name;
#define FLAGS(name, type) int64_t name;
#define AXIS(name) int64_t name;
#define NUMBERS(name) sc_numbers name;
#define FLOAT(name) double name;
#define FLOATS(name, n) double name[n];
#define OP(name, notation, results, operands, integers, floats, ...)                                                   \
    typedef struct {                                                                                                   \
        results operands sc_tensor work;                                                                               \
        const int64_t *table;                                                                                          \
        int64_t ntable;                                                                                                \
        integers floats                                                                                                \
    } sc_##name##_args;
#include "ops.def"

/* SC_SLOTS_matmul: how many tensors the struct begins with. */
#define RESULT(name, flags) +1
#define RESULTS(name, n) +n
#define OPERAND(name, flags) +1
#define OPERANDS(name, n) +n
#define OP(name, notation, results, operands, ...) SC_SLOTS_##name = 1 results operands,
enum {
#include "ops.def"
};

/* Room for any of them, of a size that no row changes. */
typedef union {
    sc_tensor t[SC_TENSORS];
    char room[SC_TENSORS * sizeof(sc_tensor) + 8 * (2 + SC_INTS + SC_FLOATS)];
} sc_args;
#define OP(name, ...) static_assert(sizeof(sc_##name##_args) <= sizeof(sc_args), #name " has too much");
#include "ops.def"

#endif
