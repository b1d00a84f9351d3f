/* A rank's training state as pieces: which elements of which parameter lie at which bytes of its arenas.
 * Relies on: the tables of sc.h.
 * Relied on by: checkpoint, resume, weights, export. */
#ifndef HOST_STATE_H
#define HOST_STATE_H

#include "../target.h"

/* A moment in 8 bits is two pieces: its codes, and the scales of its blocks (sc_moments8.h). */
typedef enum { P_VALUE, P_MOMENT1, P_MOMENT2, P_BUFFER, P_AVERAGE, P_SCALE1, P_SCALE2, P_KINDS } PieceKind;
const char *piece_kind_name(PieceKind k); /* "master", "moment1", "moment2", "buffer", "average", "scale1", "scale2" */
static inline bool piece_is_moment(PieceKind k) {
    return k == P_MOMENT1 || k == P_MOMENT2;
}
static inline PieceKind piece_scales(PieceKind moment) {
    return moment == P_MOMENT1 ? P_SCALE1 : P_SCALE2;
}

typedef struct {
    int param;
    PieceKind kind;
    int64_t begin, end; /* elements of the parameter; of scales, its blocks */
    sc_dtype dtype;     /* as it lies in the arena */
    int host;
    uint64_t at; /* of element `begin` */
    int ahead;   /* of scales: elements of the parameter's first block that lie before the parameter */
} Piece;

/* All pieces of a rank, by parameter and kind. A parameter that its slice does not touch has none. */
int state_pieces(const sc_build *b, int rank, Piece **out);
bool state_averages(const sc_build *b);                       /* it keeps averages of the weights */
bool state_exists(const sc_build *b, int param, PieceKind k); /* the build keeps this kind for this parameter */
/* A rank of the first replica holds pieces that no lower rank holds; others hold copies, apart from buffers. */
bool state_owned(const sc_build *b, int rank, const Piece *p);
bool state_counts_steps(const sc_build *b);                      /* there is a count of updates at step_at */
const char *state_optimizer(const sc_build *b, int param);       /* the name of the one that updates it */
sc_dtype state_dtype(const sc_build *b, int param, PieceKind k); /* as it is kept */
/* Elements before the parameter in its first block of 256: it may be kept right behind another. */
int state_ahead(const sc_build *b, int param);
/* The adapter beside a parameter, or, *thin, that it is a matrix of; -1: there is none. */
int adapter_of(const sc_build *b, int param, bool *thin);
/* The int8 matrix whose rows the parameter scales; -1: it scales none. Files have the product of the two. */
int scaled_by(const sc_build *b, int param);

#endif
