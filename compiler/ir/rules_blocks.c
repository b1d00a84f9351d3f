/* Rules of 8 bits by blocks: quantize_blocks, products of scaled operands, the gradients of those by blocks.
 * DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, 3.3. Relies on: rules.h, build.h. Relied on by:
 * ops.def, rules_matrix.c. */
#include "rules.h"

enum { SIDE = 128 /* elements that share a scale along a row, and rows that do in a square */, RUN = 4 };

static int64_t blocks_of(int64_t n) {
    return (n + SIDE - 1) / SIDE;
}

/* The scales of a matrix, as cuBLASLt reads them along its columns: runs of 16 bytes. */
static void scales_of(int64_t rows, int64_t cols, bool square, int64_t *shape) {
    shape[0] = square ? blocks_of(rows) : blocks_of(cols);
    shape[1] = square ? (blocks_of(cols) + RUN - 1) / RUN * RUN : rows;
}

void infer_quantize_blocks(Graph *g, Op *op) {
    const Value *x = op->quantize_blocks.x;
    int64_t rows = rule_rows(x), cols = x->shape[x->dims - 1], turned[] = {cols, rows}, scales[2], across[2];
    bool turn = op->quantize_blocks.turn != 0, square = op->quantize_blocks.square != 0;
    scales_of(rows, cols, square, scales);
    scales_of(cols, rows, square, across);
    rule_out(g, op, &op->quantize_blocks.y, FP8_E4M3, turn ? 2 : x->dims, turn ? turned : x->shape);
    rule_out(g, op, &op->quantize_blocks.scale, FP32, 2, turn ? across : scales);
    if (!op->quantize_blocks.both) return;
    rule_out(g, op, &op->quantize_blocks.turned, FP8_E4M3, 2, turned);
    rule_out(g, op, &op->quantize_blocks.turned_scale, FP32, 2, across);
}

/* Straight through, as quantize's. */
void grad_quantize_blocks(Builder *b, Op *op, OpParts *d) {
    bool turn = op->quantize_blocks.turn != 0;
    d->quantize_blocks.x = rule_grad_of_copies(b, turn ? NULL : d->quantize_blocks.y,
                                               turn ? d->quantize_blocks.y : d->quantize_blocks.turned);
}

Value *rule_scaled_product(Builder *b, Value *x, Value *scale_x, Value *y, Value *scale_y, bool square, Dtype d) {
    return BUILD(b, matmul, .a = x, .b = y, .scale_a = scale_x, .scale_b = scale_y, .trans_b = true, .square_b = square,
                 .dtype = 1 + d)
        ->matmul.y;
}

Value *rule_grad_of_copies(Builder *b, Value *straight, Value *across) {
    if (!across) return straight;
    const Op *turns = across->def && across->def->kind == OP_transpose ? across->def : NULL; /* the rules below do */
    Value *back = turns ? turns->transpose.a : build_transpose(b, across, (int[]){1, 0});
    return straight ? build_two(b, OP_add, straight, back) : back;
}

bool rule_is_turned(const Value *copy) {
    return INT_OF(copy->def, turn) != 0 || copy == RESULT_OF(copy->def, turned);
}

/* y = A Bᵀ, B in squares: dA = g B with the squares of Bᵀ, dB = gᵀ A, with blocks of both along the rows that are
 * summed over. g is e4m3, too: its blocks need no wider range. B is made of the parameter once more where
 * grad_of_quantized does so. */
void rule_grad_by_blocks(Builder *b, const Op *op, OpParts *d) {
    const Op *x = op->matmul.a->def, *w = op->matmul.b->def;
    Value *gy = d->matmul.y, *from = OPERAND_OF(w, x);
    bool trains = value_root(from)->param->requires_grad, turned = rule_is_turned(op->matmul.b);
    Dtype made = OPERAND_OF(x, x)->dtype;
    const Op *g = BUILD(b, quantize_blocks, .x = gy, .both = trains);
    const Op *again = INT_OF(w, both) ? NULL : BUILD(b, quantize_blocks, .x = from, .square = true, .turn = !turned);
    bool first = again || turned; /* of w's copies the backward reads */
    const Op *of = again ? again : w;
    d->matmul.a =
        rule_scaled_product(b, RESULT_OF(g, y), RESULT_OF(g, scale), first ? RESULT_OF(of, y) : RESULT_OF(of, turned),
                            first ? RESULT_OF(of, scale) : RESULT_OF(of, turned_scale), true, made);
    if (op->matmul.bias) d->matmul.bias = build_sum_to(b, gy, 1, &gy->shape[gy->dims - 1]);
    if (!trains) return;
    const Op *rows = turned ? x : g, *cols = turned ? g : x; /* the sums lie as w does */
    Value *dw = rule_scaled_product(b, RESULT_OF(rows, turned), RESULT_OF(rows, turned_scale), RESULT_OF(cols, turned),
                                    RESULT_OF(cols, turned_scale), false, made);
    d->matmul.b = turned ? build_transpose(b, dw, (int[]){1, 0}) : dw;
}
