/* Parts of the training program: random numbers, element types, schedules, token files, windows over ranks, safetensors
 * and the ways in which a file can be damaged. Relies on: runtime/host, mock_target, Criterion. Relied on by: make
 * test. */
#include "../../runtime/file.h"
#include "../../runtime/host/dtype.h"
#include "../../runtime/host/loader.h"
#include "../../runtime/host/log.h"
#include "../../runtime/host/progress.h"
#include "../../runtime/host/safetensors.h"
#include "../../runtime/host/sample.h"
#include "../../runtime/host/schedule.h"
#include "../../runtime/host/shuffle.h"
#include "../../runtime/host/state.h"
#include "mock_target.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

/* ── random numbers ──────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(host, uniform_numbers_are_below_one) {
    for (uint64_t i = 0; i < 1000; i++) cr_assert(host_uniform(1, i, 2) >= 0 && host_uniform(1, i, 2) < 1);
}

Test(host, shuffle_is_a_bijection) {
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4096, 4097};
    static uint8_t seen[4097];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, sizeof seen);
            for (int64_t i = 0; i < sizes[s]; i++) {
                int64_t x = shuffle_at(7, epoch, sizes[s], i);
                cr_assert(x >= 0 && x < sizes[s] && !seen[x]++);
            }
        }
    int same = 0, fixed = 0;
    for (int i = 0; i < 1000; i++) {
        same += shuffle_at(7, 0, 1000, i) == shuffle_at(7, 1, 1000, i);
        fixed += shuffle_at(8, 0, 1000, i) == i;
    }
    cr_assert(same < 10 && fixed < 10);
    int64_t huge = (int64_t)1 << 40;
    cr_assert(shuffle_at(1, 0, huge, 5) < huge && shuffle_at(1, 0, huge, 5) != shuffle_at(1, 0, huge, 6));
}

/* ── element types ───────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(host, narrow_floats_survive_a_round_trip) {
    static const sc_dtype types[] = {BF16, FP16, FP8_E4M3, FP8_E5M2};
    for (int k = 0; k < 4; k++)
        for (unsigned bits = 0; bits < 1u << 8 * sc_size(types[k]); bits++) {
            uint16_t in = (uint16_t)bits, back = 0;
            double x = host_get(types[k], &in, 0);
            host_put(types[k], &back, 0, x);
            if (isnan(x))
                cr_assert(isnan(host_get(types[k], &back, 0)));
            else
                cr_assert(in == back, "%s %x %x", host_dtype_name(types[k]), in, back);
        }
}

Test(host, rounding_is_to_nearest_even) {
    uint16_t h;
    static const struct {
        sc_dtype d;
        double x;
        unsigned bits;
    } cases[] = {
        {FP16, 1, 0x3c00},           {FP16, 65504, 0x7bff},       {FP16, 65519, 0x7bff},
        {FP16, 65520, 0x7c00},       {FP16, -1e9, 0xfc00},        {FP16, 0x1p-24, 1},
        {FP16, 0x1p-25, 0},          {FP16, 0x1.8p-25, 1},        {FP16, 0x1.8p-24, 2},
        {FP16, 1 + 0x1p-11, 0x3c00}, {FP16, 1 + 0x3p-11, 0x3c02}, {FP16, -0.0, 0x8000},
        {BF16, 1 + 0x1p-8, 0x3f80},  {BF16, 1 + 0x3p-8, 0x3f82},  {BF16, 0x1.ffp127, 0x7f80},
        {BF16, INFINITY, 0x7f80},    {BF16, 0x1p-133, 1},         {FP16, 0x1.ffcp-15, 0x3ff + 1},
        {FP16, 0x1.ff8p-15, 0x3ff},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        host_put(cases[i].d, &h, 0, cases[i].x);
        cr_expect(h == cases[i].bits, "%s(%a) is %x, not %x", host_dtype_name(cases[i].d), cases[i].x, h,
                  cases[i].bits);
    }
    uint8_t b;
    host_put(FP8_E4M3, &b, 0, 448);
    cr_assert(b == 0x7e);
    host_put(FP8_E4M3, &b, 0, 1000);
    cr_assert(b == 0x7f); /* no infinity: NaN */
    host_put(FP8_E4M3, &b, 0, INFINITY);
    cr_assert(b == 0x7f);
}

Test(host, conversion) {
    float f[3] = {1.5f, -2, 1e20f}, back[3];
    uint16_t b[3];
    double d[3];
    int64_t l[3];
    int32_t i[3] = {1, -5, INT32_MAX};
    uint8_t t[3] = {0, 1, 7};
    host_convert(BF16, b, FP32, f, 3);
    host_convert(FP32, back, BF16, b, 3);
    cr_assert(back[0] == 1.5f && back[1] == -2 && fabsf(back[2] / 1e20f - 1) < 0.01f);
    host_convert(FP64, d, FP32, f, 3);
    host_convert(FP32, back, FP64, d, 3);
    cr_assert(memcmp(f, back, sizeof f) == 0);
    host_convert(INT64, l, INT32, i, 3);
    cr_assert(l[1] == -5 && l[2] == INT32_MAX);
    host_convert(INT32, i, INT64, l, 3);
    host_convert(INT32, i, BOOL, t, 3);
    cr_assert(i[0] == 0 && i[1] == 1);
    host_convert(BOOL, t, INT32, i, 3);
    host_convert(FP32, back, INT32, i, 3);
    cr_assert(back[1] == 1 && host_get_int(FP32, back, 1) == 1);
    host_put_int(FP32, back, 0, 3);
    host_put(INT32, i, 0, 4);
    cr_assert(back[0] == 3 && i[0] == 4);
    host_convert(FP32, back, FP32, f, 3);
    cr_assert(memcmp(f, back, sizeof f) == 0);
    for (int k = 0; k < N_DTYPES; k++)
        cr_assert(host_dtype_name((sc_dtype)k) && host_dtype_st((sc_dtype)k) && sc_size((sc_dtype)k));
}

/* ── schedule ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Inputs are narrowed by loops of their own: the same bits as through double, on ties and at the ends of the ranges. */
Test(host, narrow_loops_round_as_everything_does) {
    static const sc_dtype to[] = {FP16, BF16};
    for (int k = 0; k < 2; k++)
        for (uint32_t high = 0; high < 1 << 16; high++) {
            static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x0fff, 0x1000, 0x1001, 0x3000};
            float x[10];
            uint16_t fast[10], slow;
            for (int i = 0; i < 10; i++) {
                uint32_t bits = high << 16 | low[i];
                memcpy(&x[i], &bits, sizeof bits);
                if (isnan(x[i])) x[i] = 0;
            }
            host_convert(to[k], fast, FP32, x, 10);
            for (int i = 0; i < 10; i++) {
                host_put(to[k], &slow, 0, x[i]);
                cr_assert(fast[i] == slow, "%a to %s: %04x, not %04x", x[i], host_dtype_name(to[k]), fast[i], slow);
            }
        }
}

Test(host, schedules_follow_their_formulas) {
    Schedule s = {"cosine", 10, 110, 0, 0.1, NULL};
    cr_assert_float_eq(schedule_factor(&s, 0), 0.1, 1e-15);
    cr_assert_float_eq(schedule_factor(&s, 9), 1, 1e-15);
    cr_assert_float_eq(schedule_factor(&s, 10), 1, 1e-15);
    for (int t = 10; t <= 110; t++)
        cr_assert_float_eq(schedule_factor(&s, t), 0.1 + 0.9 * 0.5 * (1 + cos(M_PI * (t - 10) / 100.)), 1e-14);
    cr_assert_float_eq(schedule_factor(&s, 5000), 0.1, 1e-15);
    s.kind = "linear";
    for (int t = 10; t <= 110; t++) cr_assert_float_eq(schedule_factor(&s, t), 1 - 0.9 * (t - 10) / 100., 1e-14);
    cr_assert_float_eq(schedule_factor(&s, 111), 0.1, 1e-15);
    s.kind = "constant";
    cr_assert(schedule_factor(&s, 4) == 0.5 && schedule_factor(&s, 10) == 1 && schedule_factor(&s, 10000) == 1);
    s = (Schedule){"cosine", 0, 0, 0, 0.25, NULL};
    cr_assert_float_eq(schedule_factor(&s, 0), 0.25, 1e-15);
    s = (Schedule){"wsd", 10, 110, 40, 0.2, NULL};
    cr_assert(schedule_factor(&s, 4) == 0.5 && schedule_factor(&s, 10) == 1 && schedule_factor(&s, 70) == 1);
    for (int t = 70; t <= 110; t++) cr_assert_float_eq(schedule_factor(&s, t), 1 - 0.8 * (t - 70) / 40., 1e-14);
    cr_assert_float_eq(schedule_factor(&s, 500), 0.2, 1e-15);
    s = (Schedule){"function", 0, 3, 0, 0, (float[]){1, 0.5f, 0.25f}};
    cr_assert(schedule_factor(&s, 0) == 1 && schedule_factor(&s, 2) == 0.25 && schedule_factor(&s, 99) == 0.25);
}

/* ── token files ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static char folder[] = "/tmp/test_host_XXXXXX";
static void enter(void) {
    cr_assert(mkdtemp(folder) && chdir(folder) == 0);
}
static void leave(void) {
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert(chdir("/tmp") == 0 && system(command) == 0);
}
TestSuite(host_files, .init = enter, .fini = leave);

static void write_file(const char *path, const void *p, size_t n) {
    FILE *f = fopen(path, "w");
    cr_assert(f && fwrite(p, 1, n, f) == n && fclose(f) == 0);
}

static void write_bin(const char *path, int32_t magic, int32_t version, int32_t claimed, size_t bytes) {
    int32_t head[256] = {magic, version, claimed};
    FILE *f = fopen(path, "w");
    fwrite(head, 4, 256, f);
    for (size_t i = 0; i < bytes; i++) fputc((int)(i * 3 % 100 * (i % 2 == 0)), f);
    cr_assert(fclose(f) == 0);
}

static void expect_bin(int width, const char *want) { /* of the file "x.bin" */
    TokenFile f;
    char error[DATA_ERROR] = "";
    bool ok = token_file_open(&f, "x.bin", width, error);
    cr_expect(want ? !ok && strstr(error, want) : ok, "got '%s', want '%s'", error, want ? want : "success");
    if (ok) token_file_close(&f);
}

Test(host_files, bin_files_are_checked) {
    expect_bin(0, "cannot open it: No such file");
    write_bin("x.bin", 20240520, 1, 100, 200), expect_bin(0, NULL);
    write_bin("x.bin", 20240801, 7, 100, 400), expect_bin(0, NULL);
    write_bin("x.bin", 20240520, 1, 0, 0), expect_bin(0, NULL);
    write_bin("x.bin", 20240520, 1, 100, 199), expect_bin(0, "truncated; copy it again");
    write_bin("x.bin", 20240520, 1, 100, 201), expect_bin(0, "something was appended");
    write_bin("x.bin", 20240520, 2, 100, 200), expect_bin(0, "of version 2; this program reads version 1");
    write_bin("x.bin", 20240801, 1, 100, 200), expect_bin(0, "of version 1; this program reads version 7");
    write_bin("x.bin", 20240520, 1, -5, 200), expect_bin(0, "claims -5 tokens");
    write_bin("x.bin", 20240521, 1, 100, 200),
        expect_bin(2, "it begins with 20240521, not 20240520 or 20240801, and goes");
    write_bin("x.bin", 20240521, 1, 100, 400), expect_bin(4, "like an llm.c token file of 100 tokens: damaged");
    write_bin("x.bin", 20240521, 1, 0, 200), expect_bin(0, "not an llm.c token file (it begins with 20240521, not 2");
    write_bin("x.bin", 20240521, 1, 0, 200), expect_bin(2, NULL);
    write_bin("x.bin", 20240521, 1, 100, 201), expect_bin(2, "not a whole number of uint16 tokens");
    write_bin("x.bin", 20240521, 1, 100, 202), expect_bin(4, "not a whole number of uint32 tokens");
    write_file("x.bin", &(int32_t){20240520}, 4), expect_bin(0, "less than an llm.c header");
    write_file("x.bin", "", 0), expect_bin(0, "empty");
    write_file("x.bin", "a", 1), expect_bin(0, "not an llm.c token file");
    cr_assert(unlink("x.bin") == 0 && symlink("/", "x.bin") == 0);
    expect_bin(0, "a folder");
    cr_assert(unlink("x.bin") == 0 && symlink("/dev/zero", "x.bin") == 0);
    expect_bin(0, "not a regular file");
}

/* A file of the kernel says a size and holds less. */
Test(host_files, files_that_lie_about_their_size) {
    static const char path[] = "/sys/devices/system/cpu/online";
    TokenFile f;
    char error[DATA_ERROR] = "";
    if (access(path, R_OK) != 0) return;
    cr_expect(!token_file_open(&f, path, 2, error) && strstr(error, "cannot read it: No data available"), "%s", error);
}

Test(host_files, tokens_are_read_as_written) {
    TokenFile f;
    char error[DATA_ERROR];
    uint32_t got[50], wide[50];
    uint16_t half[50];
    for (int i = 0; i < 50; i++) half[i] = (uint16_t)(60000 + i), wide[i] = 100000u + (uint32_t)i;
    write_file("x.u16", half, sizeof half);
    write_file("x.u32", wide, sizeof wide);
    cr_assert(token_file_open(&f, "x.u16", 0, error) && token_read(&f, 3, 47, got));
    for (int i = 0; i < 47; i++) cr_assert_eq(got[i], 60003u + (unsigned)i);
    cr_assert(!token_read(&f, 4, 47, got));
    token_file_close(&f);
    cr_assert(token_file_open(&f, "x.u32", 0, error) && token_read(&f, 49, 1, got) && got[0] == 100049);
    cr_assert(truncate("x.u32", 100) == 0 && !token_read(&f, 40, 10, got));
    token_file_close(&f);
}

/* Token i of file k is k × 1000 + i: a window tells where it comes from. */
static void write_numbered(const char *path, int file, int n) {
    uint32_t *x = calloc((size_t)n, 4);
    for (int i = 0; i < n; i++) x[i] = (uint32_t)(file * 1000 + i);
    write_file(path, x, (size_t)n * 4);
    free(x);
}

Test(host_files, windows_stay_inside_files) {
    write_numbered("a", 1, 100);
    write_numbered("b", 2, 10); /* too short for a window */
    write_numbered("c", 3, 17);
    write_numbered("d", 4, 900);
    TokenSet s = token_set_open("--data", (char *[]){"a", "[bc]", "./a", "d"}, 4, 4, 17, 16);
    cr_assert(s.n == 4 && s.tokens == 1027 && s.windows == 6 + 0 + 1 + 56);
    for (int64_t w = 0; w < s.windows; w++) {
        uint32_t t[17];
        const TokenFile *f;
        uint64_t at;
        token_window(&s, w, t, &f, &at);
        for (int i = 1; i < 17; i++) cr_assert_eq(t[i], t[0] + (uint32_t)i);
        cr_assert(at % 16 == 0 && t[0] % 1000 == at && (w < 6 ? t[0] < 1100 : w == 6 ? t[0] == 3000 : t[0] >= 4000));
    }
    token_set_close(&s);
}

/* A world's samples of one step, in a set of global window numbers, in order of (micro, rank, row). */
static void samples_of_step(int world, int accumulate, const TokenSet *set, int64_t step, int32_t *first_tokens) {
    MockBuild m;
    const sc_build *b = mock_build(&m, world, world, accumulate);
    int64_t batch = b->inputs[0].shape[0], n = 0;
    m.inputs[0].limit = m.inputs[1].limit = 5000;
    for (int micro = 0; micro < accumulate; micro++)
        for (int rank = 0; rank < world; rank++) {
            Loader l = loader_new(b, set, NULL, 42);
            loader_fill(&l, rank, micro, step * MOCK_BATCH + (micro * world + rank) * batch);
            const int32_t *x = l.staging[0], *y = l.staging[1];
            for (int64_t row = 0; row < batch; row++) {
                first_tokens[n++] = x[row * MOCK_SEQ];
                for (int i = 0; i < MOCK_SEQ; i++) cr_assert_eq(y[row * MOCK_SEQ + i], x[row * MOCK_SEQ + i] + 1);
            }
            cr_assert(loader_count(&l, &b->counts[0], batch) == batch * MOCK_SEQ &&
                      loader_counts_all(&l, &b->counts[0]));
            cr_assert_not(loader_counts_all(&l, &(sc_count_info){1, 1001}), "a token of the files may be ignored");
        }
    cr_assert_eq(n, MOCK_BATCH);
}

Test(host_files, worlds_share_the_global_batch) {
    static const int hows[][2] = {{1, 1}, {2, 1}, {4, 1}, {8, 1}, {1, 2}, {2, 4}, {4, 2}, {1, 8}};
    write_numbered("a", 1, 100);
    write_numbered("b", 2, 900);
    TokenSet s = token_set_open("--data", (char *[]){"a", "b"}, 2, 4, 17, 16);
    int64_t windows = s.windows, steps = 3 * windows / MOCK_BATCH;
    int seen[5000] = {0};
    for (int64_t step = 0; step < steps; step++) {
        int32_t one[MOCK_BATCH], other[MOCK_BATCH];
        samples_of_step(1, 1, &s, step, one);
        for (int k = 1; k < 8; k++) {
            samples_of_step(hows[k][0], hows[k][1], &s, step, other);
            cr_assert_arr_eq(one, other, sizeof one);
        }
        for (int i = 0; i < MOCK_BATCH; i++) {
            int epoch = (int)((step * MOCK_BATCH + i) / windows);
            cr_assert_eq(seen[one[i]]++, epoch, "every window once an epoch");
        }
    }
    int moved = 0;
    for (int64_t i = 0; i < windows; i++) moved += token_order(&s, 42, i) != token_order(&s, 42, windows + i);
    cr_assert_gt(moved, windows / 2, "each epoch has an order of its own");
    token_set_close(&s);
}

Test(host_files, layouts) {
    MockBuild m;
    mock_build(&m, 1, 1, 1);
    Layout l = layout_of(&m.b);
    cr_assert(l.batch == 8 && l.span == 17 && l.stride == 16 && l.limit == MOCK_VOCAB && l.tokens == 128 &&
              !l.not_token);
    m.inputs[1].limit = 0;
    m.inputs[0].limit = 0;
    cr_assert_eq(layout_of(&m.b).limit, MOCK_VOCAB); /* of the logits */
    m.inputs[1].shift = 16;
    l = layout_of(&m.b);
    cr_assert(l.span == 32 && l.stride == 16);
    m.inputs[1].shift = 0;
    l = layout_of(&m.b);
    cr_assert(l.span == 16 && l.stride == 16);
    m.inputs[0].from = "labels";
    m.inputs[0].tokens = 0;
    cr_assert_eq(layout_of(&m.b).tokens, 128); /* the other's */
    m.inputs[0].dtype = FP32;
    m.inputs[1].sample_only = 1;
    l = layout_of(&m.b);
    cr_assert(l.batch == 8 && l.span == 0 && l.tokens == 0 && strcmp(l.not_token, "tokens") == 0);
    m.inputs[0].dims = 0;
    cr_assert_eq(layout_of(&m.b).batch, 1);
}

/* ── state ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(host, pieces_cover_every_parameter_once) {
    static const int hows[][2] = {{1, 1}, {2, 2}, {4, 4}, {4, 2}, {8, 8}, {8, 4}};
    for (int h = 0; h < 6; h++) {
        MockBuild m;
        const sc_build *b = mock_build(&m, hows[h][0], hows[h][1], 1);
        int64_t held[MOCK_PARAMS][P_KINDS] = {{0}};
        for (int rank = 0; rank < b->world; rank++) {
            Piece *p;
            int n = state_pieces(b, rank, &p);
            for (int i = 0; i < n; i++) {
                cr_assert(p[i].begin < p[i].end && p[i].end <= b->params[p[i].param].numel);
                cr_assert(p[i].at + (uint64_t)(p[i].end - p[i].begin) * (uint64_t)sc_size(p[i].dtype) <=
                          (p[i].host ? b->host_bytes : b->arena_bytes));
                if (state_owned(b, rank, &p[i])) held[p[i].param][p[i].kind] += p[i].end - p[i].begin;
            }
            free(p);
        }
        for (int i = 0; i < b->nparams; i++)
            for (int k = 0; k < P_KINDS; k++) {
                int64_t want =
                    state_exists(b, i, (PieceKind)k) ? b->params[i].numel * (k == P_BUFFER ? b->world : 1) : 0;
                cr_assert_eq(held[i][k], want, "%s %s", b->params[i].path, piece_kind_name((PieceKind)k));
            }
        cr_assert(state_exists(b, 0, P_MOMENT2) && !state_exists(b, 2, P_MOMENT1) && state_exists(b, 5, P_BUFFER) &&
                  !state_exists(b, 5, P_VALUE));
    }
}

/* ── safetensors ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(host_files, safetensors_round_trip) {
    StHead h;
    size_t bytes;
    char error[ST_ERROR];
    StFile f;
    float x[6] = {1, 2, 3, 4, 5, 6}, got[6];
    size_t at[2];
    st_head_begin(&h, (const char *const[]){"format", "pt", "na\"me\n", "\\", NULL}, at);
    st_head_add(&h, "b", FP32, 2, (int64_t[]){2, 3});
    st_head_add(&h, "a \"quoted\" é\t", INT64, 0, NULL);
    st_head_add(&h, "none", BF16, 2, (int64_t[]){0, 5});
    char *head = st_head_end(&h, &bytes);
    cr_assert(bytes % 8 == 0 && !memcmp(head + at[0], "pt\"", 3) && !memcmp(head + at[1], "\\\\\"", 3));
    FILE *file = fopen("x.st", "w");
    fwrite(head, 1, bytes, file);
    fwrite(x, 4, 6, file);
    fwrite(&(int64_t){-9}, 8, 1, file);
    fclose(file);
    free(head);
    cr_assert(st_open(&f, "x.st", error), "%s", error);
    cr_assert_eq(f.n, 3);
    cr_assert_str_eq(st_metadata(&f, "format"), "pt");
    cr_assert_str_eq(st_metadata(&f, "na\"me\n"), "\\");
    cr_assert(!st_metadata(&f, "b"));
    const StTensor *b = st_find(&f, "b"), *a = st_find(&f, "a \"quoted\" é\t"), *none = st_find(&f, "none");
    cr_assert(b && a && none && !st_find(&f, "c") && b->sc_dtype == FP32 && b->dims == 2 && b->shape[1] == 3 &&
              b->numel == 6);
    cr_assert(st_read(&f, b, 2, 4, got) && memcmp(got, x + 2, 16) == 0);
    int64_t nine;
    cr_assert(st_read(&f, a, 0, 1, &nine) && nine == -9 && none->numel == 0 && st_read(&f, none, 0, 0, got));
    cr_assert(truncate("x.st", (off_t)bytes + 4) == 0 && !st_read(&f, b, 0, 6, got));
    st_close(&f);
    cr_assert(!st_open(&f, "x.st", error) && strstr(error, "outside"), "%s", error);
    cr_assert(!st_open(&f, "/", error) && strstr(error, "a folder, not a file"), "%s", error);
    cr_assert(!st_open(&f, "/dev/null", error) && strstr(error, "not a regular file"), "%s", error);
    cr_assert(!st_open(&f, "nowhere", error) && strstr(error, "cannot open it"), "%s", error);
    write_file("tiny", "abc", 3);
    cr_assert(!st_open(&f, "tiny", error) && strstr(error, "it has 3 bytes"), "%s", error);
}

static const struct {
    const char *json;
    int data;         /* bytes that follow */
    int64_t claim;    /* header length as written; 0: the true one */
    const char *want; /* NULL: fine */
} damages[] = {
    {"{}", 0, 0, NULL},
    {"{}   ", 0, 0, NULL},
    {"{\"__metadata__\":{\"a\":\"b\"}}", 0, 0, NULL},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, 0, NULL},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, 0, NULL},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},\"b\":{\"dtype\":\"I8\",\"shape\":[3],\"data_"
     "offsets\":[0,3]}}",
     3, 0, NULL},
    {"", 0, 0, "does not begin with '{'"},
    {"[]", 0, 0, "does not begin with '{'"},
    {" {}", 0, 0, "does not begin with '{'"},
    {"{}", 0, 3, "only 2 follow: truncated"},
    {"{}", 0, -1, "claims 18446744073709551615 bytes"},
    {"{}", 0, (100 << 20) + 1, "not a safetensors file"},
    {"{", 0, 0, "not JSON"},
    {"{}x", 0, 0, "not JSON"},
    {"{\"a\":1,\"a\":2}", 0, 0, "duplicate"},
    {"{\"a\\u0000b\":1}", 0, 0, "not JSON"},
    {"{\"\xff\":1}", 0, 0, "not JSON"},
    {"{\"a\":1}", 0, 0, "not described by an object"},
    {"{\"a\":null}", 0, 0, "not described by an object"},
    {"{\"__metadata__\":[]}", 0, 0, "__metadata__ is not an object"},
    {"{\"__metadata__\":{\"a\":1}}", 0, 0, "__metadata__ 'a' is not a string"},
    {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, 0, "has no dtype"},
    {"{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, 0, "has no dtype"},
    {"{\"a\":{\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, 0, "unknown dtype 'F31'"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, 0, "has no shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8, 0, "has no shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8, 0, "not a whole number"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, 0, "not a whole number"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", 8, 0, "has 9 dimensions"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}", 8, 0, "overflows"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, 0, "do not make"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,8]}}", 8, 0, "not JSON"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, 0, "has no data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8, 0, "has no data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]}}", 8, 0, "has no data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[\"0\",8]}}", 8, 0, "has no data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,16]}}", 8, 0, "outside the 8 bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8, 0, "outside the 8 bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, 0, "outside the 8 bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8, 0, "do not make the 8 bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_"
     "offsets\":[4,12]}}",
     12, 0, "overlaps"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_"
     "offsets\":[0,8]}}",
     8, 0, "overlaps"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12, 0, "4 bytes before tensor 'a'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9, 0, "1 bytes after the last"},
    {"{}", 9, 0, "9 bytes after the last"},
};

Test(host_files, damaged_safetensors_are_refused) {
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        uint8_t bytes[1024] = {0};
        char error[2][ST_ERROR] = {"", ""};
        size_t n = strlen(damages[i].json), size = 8 + n + (size_t)damages[i].data;
        uint64_t claim = damages[i].claim ? (uint64_t)damages[i].claim : n;
        StFile f;
        memcpy(bytes, &claim, 8);
        memcpy(bytes + 8, damages[i].json, n);
        write_file("x", bytes, size);
        bool parsed = st_parse(&f, bytes, size, error[0]);
        if (parsed) st_close(&f);
        bool opened = st_open(&f, "x", error[1]);
        if (opened) st_close(&f);
        cr_expect(parsed == !damages[i].want && opened == parsed, "%s: %s", damages[i].json, error[0]);
        if (damages[i].want)
            cr_expect(strstr(error[0], damages[i].want) && strcmp(error[0], error[1]) == 0, "%s: '%s', '%s', want '%s'",
                      damages[i].json, error[0], error[1], damages[i].want);
    }
    StFile f;
    char error[ST_ERROR];
    cr_assert(!st_parse(&f, (const uint8_t *)"abc", 3, error) && strstr(error, "it has 3 bytes"));
}

/* ── files written aside ─────────────────────────────────────────────────────────────────────────────────────────────
 */
static bool holds(const char *path, const char *text) { /* and nothing is left beside it */
    char command[256];
    snprintf(command, sizeof command, "test \"$(cat %s)\" = '%s' -a ! -e %s.part", path, text, path);
    return system(command) == 0;
}

Test(host_files, aside_keeps_what_was_there) {
    uint8_t *buffer = malloc(SC_ASIDE_BUFFER), *big = calloc(3, SC_ASIDE_BUFFER);
    sc_aside a;
    write_file("x", "old", 3);
    sc_aside_open(&a, "x", buffer);
    sc_aside_write(&a, "new", 3);
    sc_aside_write(&a, big, 3 * SC_ASIDE_BUFFER);
    sc_aside_write(&a, big, SC_ASIDE_BUFFER);
    cr_assert(system("test $(cat x) = old -a -e x.part") == 0);
    sc_aside_drop(&a);
    cr_assert(holds("x", "old"));
    sc_aside_open(&a, "x", buffer);
    sc_aside_write(&a, "new", 3);
    cr_assert(sc_aside_commit(&a) == 0 && holds("x", "new"));
    sc_aside_open(&a, "nowhere/x", buffer);
    sc_aside_write(&a, "more", 4);
    cr_assert(sc_aside_commit(&a) == ENOENT && sc_aside_try("nowhere/x") == ENOENT);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){SC_ASIDE_BUFFER, RLIM_INFINITY});
    for (int print = 0; print < 2; print++) {
        sc_aside_open(&a, "x", buffer);
        FILE *f = print ? sc_aside_print(&a) : NULL;
        if (print) {
            fwrite(big, 3, SC_ASIDE_BUFFER, f);
            sc_aside_printed(&a, f);
        }
        sc_aside_write(&a, big, 3 * SC_ASIDE_BUFFER);
        sc_aside_write(&a, big, 3);
        cr_assert(sc_aside_commit(&a) == EFBIG && holds("x", "new"));
    }
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
    cr_assert(system("mkdir folder y.part") == 0);
    sc_aside_open(&a, "folder", buffer);
    cr_assert(sc_aside_commit(&a) == EISDIR && access("folder.part", F_OK) != 0);
    cr_assert(sc_aside_try("y") == EISDIR && sc_aside_try("x") == 0 && holds("x", "new"));
    free(buffer);
    free(big);
}

Test(host_files, aside_follows_links_and_leaves_devices) {
    sc_aside a;
    struct stat st;
    char far[PATH_MAX + 10];
    write_file("x", "old", 3);
    cr_assert(chmod("x", 0640) == 0 && symlink("x", "link") == 0 && symlink("/dev/full", "full") == 0);
    sc_aside_open(&a, "link", NULL);
    FILE *f = sc_aside_print(&a);
    fputs("new", f);
    sc_aside_printed(&a, f);
    cr_assert(sc_aside_commit(&a) == 0 && holds("x", "new"));
    cr_assert(lstat("link", &st) == 0 && S_ISLNK(st.st_mode) && stat("x", &st) == 0 && (st.st_mode & 07777) == 0640);
    for (int print = 0; print < 2; print++) {
        sc_aside_open(&a, print ? "full" : "/dev/full", NULL);
        f = print ? sc_aside_print(&a) : NULL;
        if (print) {
            fputs("new", f);
            sc_aside_printed(&a, f);
        } else {
            sc_aside_write(&a, "new", 3);
        }
        cr_assert(sc_aside_commit(&a) == ENOSPC && stat("/dev/full", &st) == 0 && S_ISCHR(st.st_mode));
    }
    memset(far, 'a', sizeof far - 1);
    far[sizeof far - 1] = 0;
    cr_assert_eq(sc_aside_try(far), ENAMETOOLONG);
}

Test(host_files, long_names_stay_whole) {
    char name[2][10001];
    for (int i = 0; i < 2; i++) {
        memset(name[i], '"', sizeof name[i] - 2);
        strcpy(name[i] + sizeof name[i] - 2, i ? "b" : "a");
    }
    const char *names[] = {"tab\there", name[0], name[1]};
    Log l = log_open("log", -1, names, 3);
    log_begin(&l, 1);
    for (int i = 0; i < 3; i++) log_number(&l, names[i], i ? i : -(double)INFINITY);
    log_end(&l);
    char *text = calloc(50000, 1);
    FILE *f = fopen("log", "r");
    cr_assert(text && f && fread(text, 1, 49999, f) == 40047 && fclose(f) == 0);
    cr_assert(strstr(text, "{\"step\": 1, \"tab\\u0009here\": null, \"\\\"") == text &&
              strstr(text, "\\\"a\": 1, \"\\\"") && !strcmp(text + 40047 - 9, "\\\"b\": 2}\n"));
    free(text);
    Log none = log_open(NULL, -1, names, 3);
    log_begin(&none, 1), log_number(&none, "x", 1), log_whole(&none, "y", 1), log_end(&none);
    write_file("log", "{\"step\": 1, \"x\": 1}\n{\"step\": 2, \"x\": 1}\n{\"step\": 3, \"x", 52);
    l = log_open("log", 2, names, 3);
    cr_assert_eq(l.size, 40);
}

/* ── sampling ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(host, picks) {
    float logits[5] = {0, 3, 1, 3, 2}, work[5];
    cr_assert_eq(sample_pick(logits, 5, 0, 0, 0.9, work), 1);
    cr_assert_eq(sample_pick(logits, 5, 1, 1, 0, work), 1);
    int counts[5] = {0};
    for (int i = 0; i < 100000; i++) counts[sample_pick(logits, 5, 1, 0, (i + 0.5) / 100000, work)]++;
    double sum = exp(0) + 2 * exp(3) + exp(1) + exp(2);
    for (int i = 0; i < 5; i++) cr_assert_float_eq(counts[i] / 100000., exp(logits[i]) / sum, 1e-4);
    memset(counts, 0, sizeof counts);
    for (int i = 0; i < 1000; i++) counts[sample_pick(logits, 5, 0.7, 3, (i + 0.5) / 1000, work)]++;
    cr_assert(counts[0] == 0 && counts[2] == 0 && counts[4] > 0);
    float broken[3] = {NAN, NAN, NAN};
    cr_assert_lt(sample_pick(broken, 3, 1, 2, 0.5, work), 3);
    float many[2000], room[2000];
    for (int i = 0; i < 2000; i++) many[i] = (float)(mock_number((uint64_t)i) * 8);
    for (int k = 1; k < 2000; k += 37) { /* the last one drawn is among the k likeliest */
        int64_t pick = sample_pick(many, 2000, 1, k, 0.999999, room), above = 0;
        for (int i = 0; i < 2000; i++) above += many[i] > many[pick];
        cr_assert_lt(above, k);
    }
}

/* ── progress ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Test(host, progress_is_plain_without_a_terminal) {
    cr_assert(freopen("/dev/null", "w", stdout));
    Bar b = bar_new(false, 1, 100, "tok/s");
    b.terminal = false;
    for (int i = 1; i <= 100; i++) bar_step(&b, &(BarStep){i, 1, 1, 1, 1e6, 4000, .now = 0.001 * i});
    cr_assert(!b.live && b.rate == 4000);
    double last = b.printed;
    bar_step(&b, &(BarStep){6, 1, 1, 1, 1e6, 4000, .now = last + 0.9});
    cr_assert(b.printed == last); /* not one of twenty */
    bar_step(&b, &(BarStep){7, 1, 1, 1, 1e6, 4000, .now = last + 1});
    cr_assert(b.printed == last + 1); /* a second of silence */
    b.terminal = true;
    bar_step(&b, &(BarStep){6, 1, 1, 1, 1e6, 1});
    cr_assert(b.live);
    bar_clear(&b);
    cr_assert(!b.live);
}

/* A million steps of 1/512 s: a twentieth of them is at 97 s. */
Test(host, progress_goes_by_time_too) {
    static const double expected[] = {0, 1, 3, 7, 15, 31, 61, 91, 49999 / 512.0, 49999 / 512.0 + 30};
    cr_assert(freopen("/dev/null", "w", stdout));
    Bar b = bar_new(false, 1, 1000000, "tok/s");
    double last = -1;
    int lines = 0;
    for (int i = 1; i <= 66000; i++) {
        bar_step(&b, &(BarStep){i, 1, 1, 1, 1e6, 1 / 512.0, .now = i / 512.0});
        if (b.printed == last) continue;
        last = b.printed;
        cr_assert(lines < 10 && last == expected[lines] + 1 / 512.0, "line %d at %g s", lines, last);
        lines++;
    }
    cr_assert_eq(lines, 10);
}

/* What `live` of a terminal's line, or a line that stays, is for these metrics; the caller frees it. */
static char *line_of(bool live, const BarMetric *metrics, int n, double loss) {
    FILE *f = freopen("line.txt", "w+", stdout);
    cr_assert(f);
    Bar b = bar_new(false, 1, 40, "tok/s");
    b.terminal = live;
    bar_step(&b, &(BarStep){live ? 3 : 4, loss, 1, 1e-3, 1234, 1, .metrics = metrics, .nmetrics = n});
    char *text = calloc(4096, 1);
    cr_assert(text);
    rewind(f);
    text[fread(text, 1, 4095, f)] = 0;
    return text;
}

Test(host_files, progress_shows_metrics) {
    const BarMetric hostile[] = {{"accuracy", 0.25},
                                 {"a name of more than twenty-four columns", 1},
                                 {"\033[31m\r\n\t\x80\xff", -1},
                                 {"\xe2\x80\xae"
                                  "abc",
                                  (double)NAN},
                                 {"日本語日本語日本語日本語日本語", (double)-INFINITY},
                                 {"twenty-four columns wide", 1e9},
                                 {"", -(double)NAN},
                                 {"g", 7},
                                 {"h", 8},
                                 {"i", 9}};
    char *line = line_of(false, hostile, 10, -(double)NAN);
    cr_assert_str_eq(line, "step  4/40  loss nan      norm 1        lr 1.00e-03  1,234 tok/s  left 0:36  accuracy 0.25"
                           "  a name of more than tw… 1  ?[31m????? -1  ?abc nan  日本語日本語日本語日本… -inf"
                           "  twenty-four columns wide 1e+09   nan  g 7  and 2 more\n");
    free(line);
    /* without a terminal's width 80 columns: step, loss, rate, time left, a bar, and what else fits */
    line = line_of(true, hostile, 1, 2.5);
    cr_assert_str_eq(line, "step  3/40  loss 2.5       1,234 tok/s  left 0:37  accuracy 0.25"
                           "\033[36m  ..........\033[0m");
    free(line);
}
