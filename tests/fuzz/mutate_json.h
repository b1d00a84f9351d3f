/* A mutator for libFuzzer that knows what JSON is made of: numbers become telling numbers, and a piece of the text (a
 * value, a member) moves elsewhere; every other mutation is libFuzzer's own. `keep` bytes at the start are left alone.
 * Relies on: libFuzzer.
 * Relied on by: fuzz_plan.c, fuzz_safetensors.c. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);

static uint32_t draw(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Puts n bytes in the place of data[from, to). */
static size_t put(uint8_t *data, size_t size, size_t max, size_t from, size_t to, const void *text, size_t n) {
    if (size - (to - from) + n > max) return size;
    memmove(data + from + n, data + to, size - to);
    memcpy(data + from, text, n);
    return size - (to - from) + n;
}

static size_t mutate_number(uint8_t *data, size_t keep, size_t size, size_t max, uint32_t *state) {
    static const char *const numbers[] = {"0",
                                          "1",
                                          "-1",
                                          "2",
                                          "8",
                                          "256",
                                          "2147483647",
                                          "1e3",
                                          "2147483648",
                                          "4294967295",
                                          "4294967296",
                                          "0.5",
                                          "null",
                                          "9007199254740993",
                                          "-0",
                                          "9223372036854775807",
                                          "18446744073709551615",
                                          "[]",
                                          "{}",
                                          "true",
                                          "\"\""};
    size_t at = keep + draw(state) % (size - keep), end;
    while (at < size && (data[at] < '0' || data[at] > '9')) at++;
    for (end = at; end < size && data[end] >= '0' && data[end] <= '9'; end++) {}
    while (at > keep && data[at - 1] >= '0' && data[at - 1] <= '9') at--;
    const char *x = numbers[draw(state) % (sizeof numbers / sizeof *numbers)];
    return end > at ? put(data, size, max, at, end, x, strlen(x)) : size;
}

/* From one comma or bracket to the next: out, or to another such place. */
static size_t mutate_piece(uint8_t *data, size_t keep, size_t size, size_t max, uint32_t *state) {
    char piece[256];
    size_t places[2];
    for (int k = 0; k < 2; k++) {
        size_t at = keep + draw(state) % (size - keep);
        while (at < size && !strchr(",[]{}", data[at])) at++;
        if (at >= size) return size;
        places[k] = at;
    }
    size_t end = places[0] + 1;
    while (end < size && !strchr(",[]{}", data[end])) end++;
    size_t n = end - places[0];
    if (n > sizeof piece) return size;
    memcpy(piece, data + places[0], n);
    if (draw(state) % 3 == 0) return put(data, size, max, places[0], end, "", 0);
    return put(data, size, max, places[1], places[1], piece, n);
}

static size_t mutate_json(uint8_t *data, size_t keep, size_t size, size_t max, unsigned seed) {
    uint32_t state = seed;
    if (size > keep + 1) {
        uint32_t way = draw(&state) % 4;
        if (way == 0) return mutate_number(data, keep, size, max, &state);
        if (way == 1) return mutate_piece(data, keep, size, max, &state);
    }
    return LLVMFuzzerMutate(data, size, max);
}
