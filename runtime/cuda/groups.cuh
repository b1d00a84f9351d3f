/* Rows by group: which rows the u-th tile of rows has, found on the device from the groups' counts.
 * Relies on: kernel.cuh.
 * Relied on by: k_grouped.cu, grouped_hopper.cuh, magnitude.cuh.
 *
 * A group's rows are cut into tiles of `tall` rows from its first one on; behind the last group come tiles of rows that
 * no group has. There are at most rows / tall + groups + 1 tiles, whatever the counts are, so that the grid is known
 * when the program is compiled. A count is cut to the rows that are left: none reaches outside. */
#ifndef SC_GROUPS_CUH
#define SC_GROUPS_CUH

#include "kernel.cuh"

typedef struct {
    int group, first, begin, end; /* of all groups' rows: the group's first, the tile's, behind its last; group -1: no
                                   * group's, to be cleared, or no rows at all */
} sc_rows_of;

static inline int64_t sc_group_tiles(int64_t rows, int64_t groups, int tall) {
    return rows / tall + groups + 1;
}

/* A whole warp calls it; every lane gets the result. */
SC_DEVICE sc_rows_of sc_find_rows(const int32_t *counts, int groups, int rows, int tall, int u, int lane) {
    int row = 0, tile = 0;
    for (int g0 = 0; g0 < groups; g0 += WARP) {
        int n = g0 + lane < groups ? counts[g0 + lane] : 0;
        n = n < 0 ? 0 : n < rows ? n : rows;
        int64_t sum = row + warp_sum_so_far((int64_t)n, lane);
        int last = sum < rows ? (int)sum : rows;
        int first = __shfl_up_sync(SC_ALL, last, 1);
        if (lane == 0) first = row;
        int tiles = (last - first + tall - 1) / tall, after = warp_sum_so_far(tiles, lane) + tile;
        unsigned mine = __ballot_sync(SC_ALL, u >= after - tiles && u < after);
        if (mine) {
            int from = __ffs((int)mine) - 1;
            first = __shfl_sync(SC_ALL, first, from), last = __shfl_sync(SC_ALL, last, from);
            int begin = first + (u - __shfl_sync(SC_ALL, after - tiles, from)) * tall;
            return {g0 + from, first, begin, begin + tall < last ? begin + tall : last};
        }
        row = __shfl_sync(SC_ALL, last, WARP - 1), tile = __shfl_sync(SC_ALL, after, WARP - 1);
    }
    int begin = row + (u - tile) * tall;
    if (begin >= rows) return {-1, 0, 0, 0};
    return {-1, row, begin, begin + tall < rows ? begin + tall : rows};
}

/* How many of the rows some group has. A whole warp calls it; every lane gets the result. */
SC_DEVICE int64_t sc_rows_taken(const int32_t *counts, int64_t groups, int64_t rows, int lane) {
    int64_t n = 0;
    for (int64_t g = lane; g < groups; g += WARP) n += counts[g] > 0 ? counts[g] : 0;
#pragma unroll
    for (int k = WARP / 2; k; k /= 2) n += __shfl_xor_sync(SC_ALL, n, k);
    return n < rows ? n : rows;
}

/* The rows of group g. */
SC_DEVICE sc_rows_of sc_group_rows(const int32_t *counts, int g, int rows, int lane) {
    int64_t before = 0;
    for (int i = lane; i < g; i += WARP) before += counts[i] > 0 ? counts[i] : 0;
#pragma unroll
    for (int k = WARP / 2; k; k /= 2) before += __shfl_xor_sync(SC_ALL, before, k);
    int first = before < rows ? (int)before : rows, n = counts[g] > 0 ? counts[g] : 0;
    return {g, first, first, n < rows - first ? first + n : rows};
}

#endif
