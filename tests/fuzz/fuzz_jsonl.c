/* Fuzzes the reader of JSON lines: any line is refused with a message, or its text lies within it.
 * Relies on: compiler/cli/jsonl.c, libFuzzer.
 * Relied on by: make fuzz. */
#include "../../compiler/cli/jsonl.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    char error[JSONL_ERROR] = "", *line = malloc(size + !size), *text;
    size_t length;
    memcpy(line, bytes, size);
    bool good = jsonl_text(line, size, "text", &text, &length, error);
    if (good ? text < line || text + length > line + size : !error[0]) abort();
    free(line);
    return 0;
}
