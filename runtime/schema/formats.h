/* What a file is, by its first bytes: the formats of tokens that programs read, and those that people take for them.
 * Relies on: nothing.
 * Relied on by: runtime/host/data.c and records.c, `shardc data`. */
#ifndef SC_SCHEMA_FORMATS_H
#define SC_SCHEMA_FORMATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { SC_FORMAT_HEAD = 4096 }; /* bytes that are enough to tell */

typedef enum { SC_LLMC16, SC_LLMC32, SC_NPY, SC_LLMQ, SC_FOREIGN, SC_TEXT, SC_JSON } sc_form;
#define SC_FORM_TOKENS(form) ((form) <= SC_LLMQ)

typedef struct {
    sc_form form;
    const char *name, *remedy; /* remedy: of a foreign one; says where its tokens or texts can be had */
    int at, n;                 /* the magic is n bytes there, */
    const char *magic;
    bool (*also)(const uint8_t *, size_t); /* and where that is short, this holds of the head too */
} sc_format;

static inline uint32_t sc_format_word(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* A magic of two or three bytes is a token that any vocabulary may have. These ask for as much more as makes raw tokens
 * that look alike one file in 10^9 or fewer. */
static inline bool sc_format_gzip(const uint8_t *p, size_t n) { /* deflate; flags, level, system that exist */
    return n >= 10 && p[3] < 0x20 && (p[8] == 0 || p[8] == 2 || p[8] == 4) && (p[9] <= 13 || p[9] == 255);
}
static inline bool sc_format_bzip2(const uint8_t *p, size_t n) {
    bool block = n >= 10 && !memcmp(p + 4, "1AY&SY", 6), end = n >= 10 && !memcmp(p + 4, "\x17rE8P\x90", 6);
    return n >= 10 && p[3] >= '1' && p[3] <= '9' && (block || end);
}
static inline bool sc_format_pickle(const uint8_t *p, size_t n) {
    static const char *const first[] = {"]q",           "}q",     "(X",    "(K", "(M", "(J", "\x8a\x0al\xfc",
                                        "ccollections", "cnumpy", "ctorch"};
    for (size_t i = 0; n >= 16 && i < sizeof first / sizeof *first; i++)
        if (!memcmp(p + 2, first[i], strlen(first[i])))
            return (p[1] == 2 || p[1] == 3) && (first[i][1] != 'q' || p[4] == 0);
    return n >= 11 && (p[1] == 4 || p[1] == 5) && p[2] == 0x95 && !p[8] && !p[9] && !p[10]; /* length of a frame */
}
static inline bool sc_format_npz(const uint8_t *p, size_t n) { /* the first member's name */
    size_t name = n >= 30 ? p[26] | (size_t)p[27] << 8 : 0;
    return name > 4 && 30 + name <= n && !memcmp(p + 30 + name - 4, ".npy", 4);
}
static inline bool sc_format_torch(const uint8_t *p, size_t n) {
    size_t name = n >= 30 ? p[26] | (size_t)p[27] << 8 : 0;
    return name > 8 && 30 + name <= n && !memcmp(p + 30 + name - 8, "data.pkl", 8);
}
static inline bool sc_format_safetensors(const uint8_t *p, size_t n) {
    bool length = n >= 12 && !p[4] && !p[5] && !p[6] && !p[7] && sc_format_word(p) >= 2;
    return length && (p[9] == '"' || p[9] == '}') && p[10] >= ' ' && p[11] >= ' ';
}
static inline bool sc_format_arrow(const uint8_t *p, size_t n) { /* a length, then where the table in it begins */
    uint32_t length = n >= 12 ? sc_format_word(p + 4) : 0;
    return length && length < 1 << 28 && length % 8 == 0 && sc_format_word(p + 8) < length;
}

#define SC_OF_ARRAY "write its tokens with numpy.save, or its texts as JSON lines for `shardc data`"

/* clang-format off */
static const sc_format sc_formats[] = {
    {SC_LLMC16, "tokens in llm.c's format", NULL, 0, 4, "\x88\xd8\x34\x01", NULL},          /* 20240520 */
    {SC_LLMC32, "tokens in llm.c's format", NULL, 0, 4, "\xa1\xd9\x34\x01", NULL},          /* 20240801 */
    {SC_NPY, "an array of NumPy", NULL, 0, 6, "\x93NUMPY", NULL},
    {SC_LLMQ, "tokens in LLM.Q's format", NULL, 0, 8, "BIN.TOK\n", NULL},
    {SC_FOREIGN, "llm.c's questions with answers", "give the .bin shards of tokens", 0, 4, "\x8a\xd8\x34\x01", NULL}, /* 20240522 */
    {SC_FOREIGN, "llm.c's model", "give the .bin shards of tokens", 0, 4, "\xc6\xd7\x34\x01", NULL},                 /* 20240326 */
    {SC_FOREIGN, "llm.c's tokenizer", "give the .bin shards of tokens", 0, 4, "\xc8\xd7\x34\x01", NULL},             /* 20240328 */
    {SC_FOREIGN, "llm.c's tokens with their bytes swapped", "write it on a little-endian machine", 0, 4, "\x01\x34\xd8\x88", NULL},
    {SC_FOREIGN, "llm.c's tokens with their bytes swapped", "write it on a little-endian machine", 0, 4, "\x01\x34\xd9\xa1", NULL},
    {SC_FOREIGN, "the index of Megatron's data", "give the .bin beside it", 0, 9, "MMIDIDX\0\0", NULL},
    {SC_FOREIGN, "the index of fairseq's data", SC_OF_ARRAY, 0, 8, "TNTIDX\0\0", NULL},
    {SC_FOREIGN, "a PackedDataset of LitGPT", SC_OF_ARRAY, 0, 7, "LITPKDS", NULL},
    {SC_FOREIGN, "compressed by gzip", "unpack it with gzip -d", 0, 3, "\x1f\x8b\x08", sc_format_gzip},
    {SC_FOREIGN, "compressed by bzip2", "unpack it with bzip2 -d", 0, 3, "BZh", sc_format_bzip2},
    {SC_FOREIGN, "compressed by xz", "unpack it with xz -d", 0, 6, "\xfd" "7zXZ\0", NULL},
    {SC_FOREIGN, "compressed by zstd", "unpack it with zstd -d", 0, 4, "\x28\xb5\x2f\xfd", NULL},
    {SC_FOREIGN, "compressed by lz4", "unpack it with lz4 -d", 0, 4, "\x04\x22\x4d\x18", NULL},
    {SC_FOREIGN, "compressed by zstd", "unpack it with zstd -d", 0, 4, "\x50\x2a\x4d\x18", NULL}, /* a frame to skip */
    {SC_FOREIGN, "compressed by snappy", "unpack it", 0, 10, "\xff\6\0\0sNaPpY", NULL},
    {SC_FOREIGN, "a rar archive", "unpack it", 0, 6, "Rar!\x1a\7", NULL},
    {SC_FOREIGN, "a 7z archive", "unpack it", 0, 6, "7z\xbc\xaf\x27\x1c", NULL},
    {SC_FOREIGN, "a .npz archive of NumPy", "write its array with numpy.save", 0, 4, "PK\3\4", sc_format_npz},
    {SC_FOREIGN, "a file of torch.save", "write its tokens with numpy.save", 0, 4, "PK\3\4", sc_format_torch},
    {SC_FOREIGN, "a zip archive", "unpack it", 0, 4, "PK\3\4", NULL},
    {SC_FOREIGN, "an empty zip archive", "give another file", 0, 4, "PK\5\6", NULL},
    {SC_FOREIGN, "a tar archive", "unpack it with tar -xf", 257, 5, "ustar", NULL},
    {SC_FOREIGN, "a pickle of Python", "write its tokens with numpy.save", 0, 1, "\x80", sc_format_pickle},
    {SC_FOREIGN, "a safetensors file", "write its tokens with numpy.save", 8, 1, "{", sc_format_safetensors},
    {SC_FOREIGN, "an HDF5 file", SC_OF_ARRAY, 0, 8, "\x89HDF\r\n\x1a\n", NULL},
    {SC_FOREIGN, "a Parquet file", SC_OF_ARRAY, 0, 4, "PAR1", NULL},
    {SC_FOREIGN, "an encrypted Parquet file", SC_OF_ARRAY, 0, 4, "PARE", NULL},
    {SC_FOREIGN, "an Arrow file", SC_OF_ARRAY, 0, 6, "ARROW1", NULL},
    {SC_FOREIGN, "an Arrow stream", SC_OF_ARRAY, 0, 4, "\xff\xff\xff\xff", sc_format_arrow},
    {SC_FOREIGN, "a Feather file", SC_OF_ARRAY, 0, 4, "FEA1", NULL},
    {SC_FOREIGN, "an Avro file", SC_OF_ARRAY, 0, 4, "Obj\1", NULL},
    {SC_FOREIGN, "a database of SQLite", SC_OF_ARRAY, 0, 16, "SQLite format 3\0", NULL},
    {SC_FOREIGN, "a database of LMDB", SC_OF_ARRAY, 16, 4, "\xde\xc0\xef\xbe", NULL},
    {SC_FOREIGN, "a GGUF model", "give files of tokens", 0, 4, "GGUF", NULL},
    {SC_FOREIGN, "a PDF file", "write its text with pdftotext", 0, 5, "%PDF-", NULL},
    {SC_FOREIGN, "a program or a library", "give files of tokens, or texts for `shardc data`", 0, 4, "\x7f" "ELF", NULL},
    {SC_FOREIGN, "a picture (PNG)", "give files of tokens, or texts for `shardc data`", 0, 8, "\x89PNG\r\n\x1a\n", NULL},
};
static const sc_format sc_format_utf16 = {SC_FOREIGN, "text in UTF-16", "convert it with iconv -f UTF-16 -t UTF-8", 0, 0, NULL, NULL};
static const sc_format sc_format_text = {SC_TEXT, "text", "`shardc data FILE -o train.bin` makes tokens of it, a byte each, or with --tokenizer DIR a model's", 0, 0, NULL, NULL};
static const sc_format sc_format_json = {SC_JSON, "JSON", "`shardc data FILE -o train.bin` makes tokens of the texts of JSON lines, a byte each, or with --tokenizer DIR a model's", 0, 0, NULL, NULL};
/* clang-format on */

/* Bytes of the character of UTF-8 at p; 0: it is none; more than n: cut off there. */
static inline size_t sc_utf8_length(const uint8_t *p, size_t n) {
    size_t more = *p < 0x80 ? 0 : *p < 0xc2 ? 9 : *p < 0xe0 ? 1 : *p < 0xf0 ? 2 : *p < 0xf5 ? 3 : 9;
    if (more == 9) return 0;
    for (size_t i = 1; i <= more && i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    if (more && n > 1) { /* overlong, surrogates, beyond U+10FFFF */
        uint8_t a = p[0], b = p[1];
        if ((a == 0xe0 && b < 0xa0) || (a == 0xed && b > 0x9f) || (a == 0xf0 && b < 0x90) || (a == 0xf4 && b > 0x8f))
            return 0;
    }
    return more + 1;
}

static inline size_t sc_utf8_bom(const uint8_t *p, size_t n) {
    return n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3) ? 3 : 0;
}

/* Characters of UTF-8 that people write, several of them: what raw tokens of eight bytes and more do not look like. */
static inline bool sc_format_is_text(const uint8_t *p, size_t n) {
    bool seen[256] = {false};
    int kinds = 0;
    if (n < 8) return false;
    for (size_t i = 0, k; i < n; i += k) {
        bool control = (p[i] < 0x20 && !(p[i] >= '\t' && p[i] <= '\r')) || p[i] == 0x7f;
        if (control || !(k = sc_utf8_length(p + i, n - i))) return false;
        kinds += !seen[p[i]];
        seen[p[i]] = true;
    }
    return kinds >= 5;
}

static inline bool sc_format_is_utf16(const uint8_t *p, size_t n) {
    bool big = n >= 8 && p[0] == 0xfe && p[1] == 0xff, spaces = false;
    if (n < 8 || (!big && (p[0] != 0xff || p[1] != 0xfe))) return false;
    for (size_t i = 2; i + 1 < n; i += 2) {
        unsigned unit = big ? (unsigned)p[i] << 8 | p[i + 1] : p[i] | (unsigned)p[i + 1] << 8;
        if ((unit < 0x20 && !(unit >= '\t' && unit <= '\r')) || unit == 0xffff) return false;
        spaces |= unit == ' ' || unit == '\n';
    }
    return spaces;
}

/* What a file is whose first n bytes these are (SC_FORMAT_HEAD, or the whole of a shorter one); NULL: raw, it seems. */
static inline const sc_format *sc_format_of(const uint8_t *p, size_t n) {
    for (const sc_format *f = sc_formats; f < sc_formats + sizeof sc_formats / sizeof *sc_formats; f++)
        if (n >= (size_t)(f->at + f->n) && !memcmp(p + f->at, f->magic, (size_t)f->n) && (!f->also || f->also(p, n)))
            return f;
    if (sc_format_is_utf16(p, n)) return &sc_format_utf16;
    if (!sc_format_is_text(p, n)) return NULL;
    size_t i = sc_utf8_bom(p, n);
    while (i < n && strchr(" \t\r\n", p[i])) i++;
    return i < n && (p[i] == '{' || p[i] == '[') ? &sc_format_json : &sc_format_text;
}

#endif
