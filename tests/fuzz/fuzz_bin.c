/* Fuzzes the token file reader: any file is refused with a message, or all its tokens can be read and no more. The
 * first byte chooses --data-dtype. Relies on: runtime/host/data.c, libFuzzer, memfd. Relied on by: make fuzz. */
#include "../../runtime/host/data.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void read_all(const TokenFile *f) {
    uint32_t tokens[64];
    uint64_t at = 0;
    for (; at < f->tokens; at += 64) {
        int64_t n = f->tokens - at < 64 ? (int64_t)(f->tokens - at) : 64;
        if (!token_read(f, at, n, tokens)) abort();
    }
    if (token_read(f, f->tokens, 1, tokens)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    static int fd = -1;
    static char path[64];
    static const int widths[] = {0, 2, 4};
    char error[DATA_ERROR] = "";
    TokenFile f;
    if (fd < 0) {
        fd = memfd_create("bin", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (size < 1 || ftruncate(fd, 0) != 0 || pwrite(fd, bytes + 1, size - 1, 0) != (ssize_t)size - 1) return 0;
    if (token_file_open(&f, path, widths[bytes[0] % 3], error)) {
        read_all(&f);
        token_file_close(&f);
    } else if (!error[0]) {
        abort();
    }
    return 0;
}
