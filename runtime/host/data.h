/* Token files: llm.c's and LLM.Q's shards, arrays of NumPy, Megatron's data and raw uint16/uint32, cut into windows.
 * Relies on: schema/formats.h, npy, shuffle, die.
 * Relied on by: loader, main (checks before any rank starts), the fuzzer. */
#ifndef HOST_DATA_H
#define HOST_DATA_H

#include "../sc.h"

enum { DATA_ERROR = 512, BIN_HEADER = 256 * 4 };

typedef struct {
    char *path;
    int fd, width;              /* width: bytes a token, 1, 2, 4 or 8 */
    bool is_signed, big_endian; /* of tokens */
    const char *what;           /* says how tokens are stored: "an array of NumPy"; NULL: nothing does, raw tokens */
    uint64_t tokens, at;        /* at: byte offset of the first token */
    int64_t row;                /* tokens of a row, where it is an array of several rows; 0: it is not */
    uint64_t device, inode;
    int64_t first, windows; /* windows of this file are first .. first + windows - 1 of the set */
    int input;              /* of an array: the model's input whose rows it holds; its windows are rows */
    char kind;              /* ... and its elements: 'i', 'u', 'f' or 'b' as numpy has them, 'B' for bf16 */
} TokenFile;

typedef struct {
    TokenFile *files;
    int n;
    uint64_t tokens;
    bool told_rows, told_width;
    bool arrays;                   /* the files are arrays of inputs (arrays.h), and a window is a row of each */
    int64_t span, stride, windows; /* a window is `span` tokens; the next one begins `stride` later */
} TokenSet;

/* Opens and checks one file. width: bytes a token of a file that does not say so itself; 0: such a file is refused
 * unless its name says uint16 or uint32. False: `error` says what was found and the remedy, without the path. */
bool token_file_open(TokenFile *f, const char *path, int width, char error[DATA_ERROR]);
void token_file_close(TokenFile *f);
/* What no vocabulary has, a negative number or one from 2^32 - 1 on, is read as UINT32_MAX. False: the file became
 * shorter. */
bool token_read(const TokenFile *f, uint64_t at, int64_t n, uint32_t *out);

/* Dies: the values of `input` (NULL: the model's vocabulary) end at limit - 1, and the token there is none of them. */
_Noreturn void token_refuse(const TokenFile *f, uint64_t at, const char *input, int64_t limit);

/* Expands the patterns (each sorted, a file named twice counts once), opens all, cuts windows. Dies on what is wrong.
 */
TokenSet token_set_open(const char *option, char *const *patterns, int n, int width, int64_t span, int64_t stride);
void token_set_close(TokenSet *s);
uint64_t token_set_left(const TokenSet *s); /* tokens that are in no window, as they are too few for another one */
bool token_sets_share(const TokenSet *a, const TokenSet *b, const char **path); /* a file that is in both */

/* Reads every token of a set of at most SCAN_BYTES and dies at the first that is not below `limit`. */
enum { SCAN_BYTES = 256 << 20 };
void token_set_scan(const TokenSet *s, int64_t limit);

/* The tokens of a window. *file and *at tell where they come from. */
void token_window(const TokenSet *s, int64_t window, uint32_t *out, const TokenFile **file, uint64_t *at);
/* The window that is global sample `sample` of a run: epochs in the random order of (seed, epoch). */
int64_t token_order(const TokenSet *s, uint64_t seed, int64_t sample);

#endif
