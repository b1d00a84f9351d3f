/* Files of tokens in the formats of the field, and files that are taken for tokens: each is read by what its header
 * says, or refused by its name. Relies on: host_run.h, runtime/host/data.h, runtime/schema/formats.h. Relied on by:
 * make test. */
#include "../../runtime/schema/formats.h"
#include "host_run.h"

TestSuite(host_formats, .init = enter, .fini = leave, .timeout = 60);

/* ── helpers ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static void expect_bin(int width, const char *want) { /* of the file "x.bin" */
    TokenFile f;
    char error[DATA_ERROR] = "";
    bool ok = token_file_open(&f, "x.bin", width, error);
    cr_expect(want ? !ok && strstr(error, want) : ok, "got '%s', want '%s'", error, want ? want : "success");
    if (ok) token_file_close(&f);
}

/* What a child says that dies of f(s). */
static void expect_death(void (*f)(const TokenSet *), const TokenSet *s, const char *want) {
    int ends[2], status;
    char said[1024];
    cr_assert(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        f(s);
        _exit(0);
    }
    close(ends[1]);
    ssize_t n = read(ends[0], said, sizeof said - 1);
    said[n > 0 ? n : 0] = 0;
    close(ends[0]);
    cr_assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 1, "%s", said);
    cr_assert(strstr(said, want), "got '%s', want '%s'", said, want);
}
static void scan_200(const TokenSet *s) {
    token_set_scan(s, 200);
}

Test(host_formats, a_file_that_is_cut_short_before_it_is_looked_through) {
    write_file("x.u16", (uint16_t[100]){0}, 200);
    TokenSet s = token_set_open("--data", (char *[]){"x.u16"}, 1, 0, 17, 16);
    cr_assert(truncate("x.u16", 100) == 0);
    expect_death(scan_200, &s, "x.u16: cannot read token 0: No data available");
    token_set_close(&s);
}

/* ── NumPy, LLM.Q, Megatron ──────────────────────────────────────────────────────────────────────────────────────────
 */
/* As numpy.save writes it, but for what `dict` says; `bytes` bytes of data follow. */
static void write_npy(const char *path, int version, const char *dict, const void *data, size_t bytes) {
    uint8_t h[12] = "\x93NUMPY";
    size_t n = strlen(dict);
    h[6] = (uint8_t)version;
    memcpy(h + 8, &(uint32_t){(uint32_t)n}, 4);
    FILE *f = fopen(path, "w");
    fwrite(h, 1, version == 1 ? 10 : 12, f);
    fwrite(dict, 1, n, f);
    fwrite(data, 1, bytes, f);
    cr_assert(fclose(f) == 0);
}

static void expect_tokens(const char *path, int width, int n) { /* 300, 301 and so on */
    TokenFile f;
    char error[DATA_ERROR] = "";
    uint32_t *got = calloc((size_t)n + 1, 4);
    cr_assert(token_file_open(&f, path, width, error), "%s", error);
    cr_assert(f.tokens == (uint64_t)n && token_read(&f, 0, n, got), "%d tokens", (int)f.tokens);
    for (int i = 0; i < n; i++) cr_assert_eq(got[i], 300u + (unsigned)i);
    cr_assert(token_read(&f, 17, n - 17, got) && got[0] == 317 && !token_read(&f, 1, n, got));
    token_file_close(&f);
    free(got);
}

/* Elements 300, 301 ... of so many bytes. */
static uint8_t *numbers(int n, int width, bool big) {
    uint8_t *p = calloc((size_t)n, (size_t)width);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < width; k++)
            p[i * width + (big ? width - 1 - k : k)] = (uint8_t)(k < 4 ? (uint32_t)(300 + i) >> 8 * k : 0);
    return p;
}

Test(host_formats, arrays_of_numpy_are_read_by_their_header) {
    static const char *const dtypes[] = {"<u2", "<i2", ">u2", ">i2", "<u4", "<i4",
                                         ">u4", ">i4", "<u8", "<i8", ">u8", ">i8"};
    enum { N = 20000 };
    char dict[128];
    for (int k = 0; k < 12; k++) {
        int width = dtypes[k][2] - '0';
        uint8_t *p = numbers(N, width, *dtypes[k] == '>');
        snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }    \n", dtypes[k], N);
        for (int version = 1; version <= 3; version++) {
            write_npy("x_uint16.npy", version, dict, p, (size_t)(N * width));
            expect_tokens("x_uint16.npy", version == 2 ? 2 : 0, N);
        }
        free(p);
    }
    uint8_t *p = numbers(60, 4, false);
    static const char *const shapes[] = {"{\"shape\": (3, 20), \"fortran_order\": False, \"descr\": \"<u4\"}",
                                         "{'descr': '<i4', 'fortran_order': True, 'shape': (60L,)}\n",
                                         "{'descr': '=i4','fortran_order': True, 'shape': (60, 1), }",
                                         "{ 'descr' : 'u4' , 'fortran_order' : False , 'shape' : ( 3 , 4 , 5 ) }"};
    for (int k = 0; k < 4; k++) {
        write_npy("x.bin", 1, shapes[k], p, 240);
        expect_tokens("x.bin", 0, 60);
    }
    free(p);
    write_npy("x.bin", 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (), }", "a", 1), expect_bin(0, NULL);
}

Test(host_formats, arrays_of_numpy_that_hold_no_tokens) {
#define NPY(dict, bytes, want) write_npy("x.bin", 1, dict, (char[64]){0}, bytes), expect_bin(2, want)
#define DICT(descr, order, shape) "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }\n"
    NPY(DICT("'<u2'", "False", "(4,)"), 8, NULL);
    NPY(DICT("'<u2'", "False", "(4,)"), 7, "truncated; copy it again");
    NPY(DICT("'<u2'", "False", "(4,)"), 9, "something was appended");
    NPY(DICT("'<f4'", "False", "(4,)"), 16, "of dtype 'f4', not of integers");
    NPY(DICT("'>f8'", "False", "(4,)"), 32, "of dtype big-endian 'f8', not of integers");
    NPY(DICT("'|O'", "False", "(4,)"), 16, "of dtype 'O0', not of integers");
    NPY(DICT("'|b1'", "False", "(4,)"), 4, "of dtype 'b1', not of integers");
    NPY(DICT("'<U5'", "False", "(4,)"), 40, "not of integers");
    NPY(DICT("'<u3'", "False", "(4,)"), 12, "not of integers");
    NPY(DICT("[('a', '<u2'), ('b', '<u2')]", "False", "(4,)"), 16, "records of several fields");
    NPY(DICT("'<u2'", "True", "(2, 2)"), 8, "in Fortran order");
    NPY(DICT("'<u2'", "Maybe", "(4,)"), 8, "'fortran_order' in its header is neither True nor False");
    NPY(DICT("'<u2'", "False", "(4"), 8, "the shape in its header cannot be read");
    NPY(DICT("'<u2'", "False", "(-4,)"), 8, "the shape in its header cannot be read");
    NPY(DICT("'<u2'", "False", "(99999999999, 99999999999)"), 8, "the shape in its header cannot be read");
    NPY(DICT("'<u8'", "False", "(4611686018427387904,)"), 8, "its header says 4611686018427387904 tokens: damaged");
    NPY(DICT("'<u2", "False", "(4,)"), 8, "damaged");
    NPY(DICT("3", "False", "(4,)"), 8, "the dtype in its header cannot be read");
    NPY("{'descr': '<u2', 'shape': (4,), }", 8, "its header lacks 'fortran_order'");
    NPY("{'descr': '<u2', 'descr': '<u2', }", 8, "has 'descr', which does not belong there or is there twice");
    NPY(DICT("'<u2'", "False", "(4,)") "x", 8, "goes on after the dict");
    NPY("{'descr': '<u2' 'shape': (4,)}", 8, "no dict of Python");
    NPY("['descr']                     ", 8, "no dict of Python");
    NPY("{descr: '<u2', 'shape': (4,)}", 8, "no dict of Python");
    write_npy("x.bin", 4, DICT("'<u2'", "False", "(4,)"), "12345678", 8),
        expect_bin(0, "version 4.0, and this program");
    write_file("x.bin", "\x93NUMPY\1\0", 8), expect_bin(0, "8 bytes, less than a header");
    write_file("x.bin", "\x93NUMPY\1\0\xff\x0e{'de", 14), expect_bin(0, "ends within its header");
    write_file("x.bin", "\x93NUMPY\2\0\xff\xff\xff\xff{'de", 16), expect_bin(0, "claims to have 4294967295 bytes");
    write_file("x.bin", "\x93NUMPY\1\0\4\0{'\0e", 14), expect_bin(0, "holds a NUL");
}

Test(host_formats, what_a_header_says_is_told_once) {
    uint8_t *p = numbers(240, 4, false);
    for (int i = 0; i < 240; i++) p[4 * i] = 7, p[4 * i + 1] = 0;
    write_npy("x.npy", 1, "{'descr': '<u4', 'fortran_order': False, 'shape': (12, 20), }\n", p, 960);
    write_npy("y.npy", 1, "{'descr': '<u4', 'fortran_order': False, 'shape': (240,), }\n", p, 960);
    free(p);
    OK(1, "--data x.npy y.npy --data-dtype uint16 --steps 1");
    cr_assert(
        strstr(err, "note: x.npy: an array of rows of 20 tokens; they are read one after the other, and windows cross "
                    "them\n") &&
            strstr(err, "note: x.npy: an array of NumPy, 4 bytes a token; --data-dtype holds for files that do not") &&
            lines_of(err) == 2,
        "%s", err);
    OK(1, "--data y.npy --data-dtype uint32 --steps 1");
    cr_assert_str_empty(err);
}

static void refuse_0(const TokenSet *s) {
    token_refuse(&s->files[0], 1, "ids", 50257);
}

Test(host_formats, tokens_that_no_vocabulary_has) {
    static const int64_t wide[20] = {3, -1, INT64_C(1) << 40, UINT32_MAX, INT64_MAX};
    uint32_t got[20];
    write_npy("x.npy", 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (20,), }\n", wide, sizeof wide);
    TokenSet s = token_set_open("--data", (char *[]){"x.npy"}, 1, 0, 17, 16);
    cr_assert(token_read(&s.files[0], 0, 20, got) && got[0] == 3 && got[19] == 0);
    for (int i = 1; i < 5; i++) cr_assert_eq(got[i], UINT32_MAX);
    expect_death(scan_200, &s, "x.npy: token 1 is -1, but the model's vocabulary ends at 199: another tokenizer; or");
    expect_death(refuse_0, &s, "x.npy: token 1 is -1, but 'ids' ends at 50256");
    token_set_close(&s);
}

static void write_llmq(int32_t version, int32_t width, int32_t tokens, int32_t masks, size_t bytes) {
    int32_t head[256] = {0, 0, version, width, tokens, 50257, masks};
    memcpy(head, "BIN.TOK\n", 8);
    uint8_t *p = numbers((int)bytes / 4 + 1, 4, false);
    FILE *f = fopen("x.bin", "w");
    fwrite(head, 4, 256, f);
    fwrite(p, 1, bytes, f);
    cr_assert(fclose(f) == 0);
    free(p);
}

Test(host_formats, files_of_llmq) {
    write_llmq(2, 4, 50, 0, 200), expect_tokens("x.bin", 2, 50);
    write_llmq(1, 4, 50, 1, 200), expect_tokens("x.bin", 0, 50);
    write_llmq(2, 4, 50, 0x2a2a2a2a, 200), expect_tokens("x.bin", 0, 50); /* stars, as its script fills the header */
    write_llmq(2, 4, 50, 1, 207), expect_bin(2, "an LLM.Q token file with masks");
    write_llmq(3, 4, 50, 0, 400), expect_bin(2, "an LLM.Q token file of version 3; this program reads 1 and 2");
    write_llmq(2, 2, 50, 0, 100), expect_bin(2, "its header claims 50 tokens of 2 bytes");
    write_llmq(2, 4, -1, 0, 100), expect_bin(2, "its header claims -1 tokens of 4 bytes");
    write_llmq(2, 4, 50, 0, 199), expect_bin(2, "truncated");
    write_llmq(2, 4, 50, 0, 204), expect_bin(2, "something was appended");
    cr_assert(truncate("x.bin", 1000) == 0);
    expect_bin(2, "less than an LLM.Q header");
}

/* x.bin of 60 tokens in two sequences and the index of it. */
static void write_megatron(uint64_t version, uint8_t code, int width, int32_t last) {
    uint64_t counts[] = {2, 3}, documents[] = {0, 1, 2};
    uint8_t *p = numbers(60, width, false);
    write_file("x.bin", p, (size_t)(60 * width));
    free(p);
    FILE *f = fopen("x.idx", "w");
    fwrite("MMIDIDX\0", 1, 9, f);
    fwrite(&version, 8, 1, f);
    fwrite(&code, 1, 1, f);
    fwrite(counts, 8, 2, f);
    fwrite((int32_t[]){20, last}, 4, 2, f);
    fwrite((uint64_t[]){0, 20u * (unsigned)width}, 8, 2, f);
    fwrite(documents, 8, 3, f);
    cr_assert(fclose(f) == 0);
}

Test(host_formats, data_of_megatron) {
    static const struct {
        uint8_t code;
        int width;
    } types[] = {{8, 2}, {3, 2}, {4, 4}, {5, 8}};
    for (int k = 0; k < 4; k++) {
        write_megatron(1, types[k].code, types[k].width, 40);
        expect_tokens("x.bin", 0, 60);
        expect_tokens("x.bin", 4, 60); /* the index says it, not --data-dtype */
    }
    write_megatron(1, 7, 4, 40), expect_bin(0, "says that it holds no integers");
    write_megatron(1, 200, 4, 40), expect_bin(0, "says that it holds no integers");
    write_megatron(1, 8, 2, 41), expect_bin(0, "says 122 bytes, but it has 120");
    write_megatron(2, 8, 2, 40), expect_bin(2, "damaged or not of version 1");
    write_megatron(1, 8, 2, 40);
    cr_assert(truncate("x.idx", 40) == 0);
    expect_bin(2, "damaged or not of version 1");
    cr_assert(truncate("x.idx", 20) == 0);
    expect_bin(2, NULL); /* another file's */
    cr_assert(rename("x.idx", "x.bin") == 0);
    write_megatron(1, 8, 2, 40);
    cr_assert(rename("x.idx", "x.bin") == 0);
    expect_bin(2, "the index of Megatron's data, and not tokens: give the .bin");
}

/* ── what is taken for tokens ────────────────────────────────────────────────────────────────────────────────────────
 */
Test(host_formats, foreign_formats_are_named) {
    static const struct {
        const char *want, *bytes;
        size_t n;
    } files[] = {
#define FILE_OF(want, text) {want, text, sizeof text - 1}
        FILE_OF("compressed by gzip, and not tokens: unpack it with gzip -d",
                "\x1f\x8b\x08\0\0\0\0\0\0\x03KLJN\4\0\0\0"),
        FILE_OF("compressed by bzip2", "BZh91AY&SY\0\0"),
        FILE_OF("compressed by bzip2", "BZh9\x17rE8P\x90\0\0"),
        FILE_OF("compressed by xz", "\xfd"
                                    "7zXZ\0\0\4"),
        FILE_OF("compressed by zstd", "\x28\xb5\x2f\xfd\4X\x19\0"),
        FILE_OF("compressed by lz4", "\x04\x22\x4d\x18\x64\x40"),
        FILE_OF("a 7z archive", "7z\xbc\xaf\x27\x1c\0\4"),
        FILE_OF("a .npz archive of NumPy, and not tokens: write its array with numpy.save",
                "PK\3\4\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\7\0\0\0arr.npy\x93NUMPY"),
        FILE_OF("a file of torch.save",
                "PK\3\4\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0archive/data.pkl"),
        FILE_OF("a zip archive", "PK\3\4\x14\0\0\0\0\0\0\0"),
        FILE_OF("an empty zip archive", "PK\5\6\0\0\0\0"),
        FILE_OF("a pickle of Python", "\x80\4\x95\x10\0\0\0\0\0\0\0]\x94(K\1K\2e."),
        FILE_OF("a pickle of Python", "\x80\2]q\0(K\1K\2K\3K\4K\5K\6e."),
        FILE_OF("a pickle of Python", "\x80\2\x8a\x0al\xfc\x9c\x46\xf9\x20j\xa8P\x19.\x80\2M\xe9\3."),
        FILE_OF("a safetensors file", "\x10\0\0\0\0\0\0\0{\"a\":1}         "),
        FILE_OF("an HDF5 file", "\x89HDF\r\n\x1a\n\0\0"),
        FILE_OF("a Parquet file", "PAR1\x15\4\x15\0"),
        FILE_OF("an Arrow file", "ARROW1\0\0"),
        FILE_OF("an Arrow stream", "\xff\xff\xff\xff\x90\1\0\0\x10\0\0\0\0\0"),
        FILE_OF("a Feather file", "FEA1\0\0\0\0"),
        FILE_OF("an Avro file", "Obj\1\4\x16"),
        FILE_OF("a database of SQLite", "SQLite format 3\0\x10\0"),
        FILE_OF("a GGUF model", "GGUF\3\0\0\0"),
        FILE_OF("a PDF file", "%PDF-1.7\n%\xe2\xe3"),
        FILE_OF("a program or a library", "\x7f"
                                          "ELF\2\1\1\0"),
        FILE_OF("a picture (PNG)", "\x89PNG\r\n\x1a\n\0\0"),
        FILE_OF("llm.c's questions with answers", "\x8a\xd8\x34\1\1\0\0\0"),
        FILE_OF("llm.c's model", "\xc6\xd7\x34\1\3\0\0\0"),
        FILE_OF("with their bytes swapped", "\1\x34\xd8\x88\0\0\0\1"),
        FILE_OF("a PackedDataset of LitGPT", "LITPKDS\1\0\0\0\0\0\0\0\1"),
        FILE_OF("the index of fairseq's data", "TNTIDX\0\0\1\0\0\0\0\0\0\0"),
        FILE_OF("JSON, and not tokens: `shardc data FILE", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n"),
        FILE_OF("JSON, and not tokens", "\xef\xbb\xbf [1, 23, 456]"),
        FILE_OF("text, and not tokens", "1,23,456\n7,8,9\n"),
        FILE_OF("text, and not tokens", "\xef\xbb\xbfGr\xc3\xbc\xc3\x9f"
                                        "e aus K\xc3\xb6ln"),
        FILE_OF("text in UTF-16, and not tokens: convert it with iconv", "\xff\xfeh\0e\0l\0l\0o\0 \0"),
        FILE_OF("text in UTF-16", "\xfe\xff\0h\0e\0l\0l\0o\0\n"),
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        for (int width = 0; width <= 4; width += 2)
            write_file("x.bin", files[i].bytes, files[i].n), expect_bin(width, files[i].want);
    char tar[1024] = "name";
    strcpy(tar + 257, "ustar");
    write_file("x.bin", tar, sizeof tar), expect_bin(2, "a tar archive");
    char lmdb[64] = {0};
    memcpy(lmdb + 16, "\xde\xc0\xef\xbe", 4);
    write_file("x.bin", lmdb, sizeof lmdb), expect_bin(2, "a database of LMDB");
}

/* Tokens that begin with a short magic, or have printable bytes for a while, are tokens all the same. */
Test(host_formats, raw_tokens_are_not_taken_for_something_else) {
    static const uint16_t starts[][6] = {{0x8b1f, 0x0908, 7, 7, 7, 7},
                                         {0x5a42, 0x3968, 7, 7, 7, 7},
                                         {0x0280, 0x715d, 7, 7, 7, 7},
                                         {0x2020, 0x6f68, 0x2c61, 0x7962, 0x7a63, 3},
                                         {0xfeff, 0x1234, 3, 20, 0x20, 10},
                                         {0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff},
                                         {0x4141, 0x4141, 0x4141, 0x4141, 0x4141, 0x4141}};
    write_file("x.bin", (uint32_t[]){40, 0, 0x227b, 7, 8, 9}, 24);
    expect_bin(4, NULL);
    uint64_t state = 1;
    for (size_t k = 0; k < sizeof starts / sizeof *starts; k++)
        write_file("x.bin", starts[k], sizeof *starts), expect_bin(2, NULL);
    for (int k = 0; k < 20000; k++) { /* as GPT-2's vocabulary has them */
        uint16_t tokens[16];
        for (int i = 0; i < 16; i++)
            tokens[i] = (uint16_t)((state = state * 6364136223846793005u + 1442695040888963407u) >> 33) % 50257;
        cr_assert_null(sc_format_of((const uint8_t *)tokens, sizeof tokens));
    }
}
