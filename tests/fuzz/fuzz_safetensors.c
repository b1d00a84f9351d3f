/* Fuzzes the safetensors header reader: any bytes are refused with a message or give tensors that lie inside the data.
 * Relies on: runtime/host/safetensors.c, libFuzzer.
 * Relied on by: make fuzz. */
#include "../../runtime/host/safetensors.h"
#include "mutate_json.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

/* The length before the header follows it, mostly. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    uint64_t length, grown;
    if (size < 8) return LLVMFuzzerMutate(data, size, max);
    memcpy(&length, data, 8);
    size_t n = mutate_json(data, 8, size, max, seed);
    if (seed % 16 && n > 8 && length <= size - 8) {
        grown = length + n - size;
        memcpy(data, &grown, 8);
    }
    return n;
}

static void check(const StFile *f, uint64_t size) {
    uint64_t total = 0;
    for (int i = 0; i < f->n; i++) {
        const StTensor *t = &f->tensors[i];
        if (f->data_at + t->end > size || t->begin > t->end || t->dims > ST_DIMS || st_find(f, t->name) != t) abort();
        total += t->end - t->begin;
    }
    if (f->data_at + total != size) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    char error[ST_ERROR] = "";
    StFile f;
    if (st_parse(&f, bytes, size, error)) {
        check(&f, size);
        st_close(&f);
    } else if (!error[0] || memchr(error, 0, sizeof error) == NULL) {
        abort();
    }
    return 0;
}
