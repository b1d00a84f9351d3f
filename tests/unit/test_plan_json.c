/* The plan's JSON, both ways: what is written reads back the same, and no damaged plan does more than one diagnostic.
 * Relies on: small_plan.h, report.
 * Relied on by: make test. */
#include "plan/live.h"
#include "plan/plan_json.h"
#include "small_plan.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static Arena *arena;

static void setup(void) {
    arena = arena_new();
}

TestSuite(plan_json, .init = setup);

static void write_plan(FILE *f, const Plan *p) {
    plan_write_json(f, p);
}
static void predict_json(FILE *f, const Plan *p) {
    report_predict_json(f, p, NULL);
}
static void inspect(FILE *f, const Plan *p) {
    report_inspect_text(f, p, &(ReportOptions){.columns = COLUMNS_ALL});
}
static void predict(FILE *f, const Plan *p) {
    report_predict_text(f, p, report_moment(p, NULL), false);
}
static void findings(FILE *f, const Plan *p) {
    report_findings_text(f, p, verify(p->arena, p));
}
static void findings_json(FILE *f, const Plan *p) {
    report_findings_json(f, p, verify(p->arena, p), &(Findings){0});
}

static char *printed(void (*print)(FILE *, const Plan *), const Plan *p) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    print(f, p);
    fclose(f);
    return text;
}

static Plan *parsed(const char *text) {
    PlanError e = {0};
    Plan *p = plan_parse(arena, text, strlen(text), &e);
    cr_assert_not_null(p, "line %d: %s", e.line, e.text);
    return p;
}

static void same(const Plan *p) {
    void (*const prints[])(FILE *, const Plan *) = {write_plan,   inspect,  predict,
                                                    predict_json, findings, findings_json};
    const Plan *q = parsed(printed(write_plan, p));
    for (size_t i = 0; i < sizeof prints / sizeof *prints; i++)
        cr_expect_str_eq(printed(prints[i], q), printed(prints[i], p));
}

Test(plan_json, round_trip) {
    same(small_plan(arena));
}

Test(plan_json, round_trip_of_an_unsound_plan) {
    Plan *p = small_plan(arena);
    p->programs[P_MICRO].events[FORWARD_1].nwaits = 0;
    p->storages[MOMENT].offset = 512;
    same(p);
    cr_expect(strstr(printed(findings, p), "small: NOT SOUND"));
    cr_expect(strstr(printed(findings_json, p), "\"sound\":false"));
}

Test(plan_json, round_trip_of_corner_cases) {
    Plan *p = small_plan(arena);
    p->storages[ACT].arena = ARENA_HOST;
    p->storages[ACT].offset = 0;
    p->arena_bytes[ARENA_HOST] = 512;
    p->programs[P_MICRO].events[0].src = NOWHERE;
    p->programs[P_MICRO].events[0].module = "";
    p->programs[P_MICRO].events[0].start_us = 1.0 / 3;
    p->programs[P_MICRO].events[0].flops = 1e22;
    p->programs[P_MICRO].events[0].comm = 2;
    p->programs[P_MICRO].events[0].peak_bytes = 3e9;
    p->programs[P_MICRO].events[0].over = OVER_NETWORK;
    p->programs[P_MICRO].events[1].peak_flops = 1e15;
    p->host_up = 1e9;
    p->device_usable = 0;
    p->nlibrary = 0;
    same(p);
    cr_expect(strstr(printed(predict, p), "unknown"));
    p->device_usable = 1000;
    cr_expect_not(live_fits(p));
    cr_expect(strstr(printed(predict, p), "NO, short of 6.0 KiB"));
}

Test(plan_json, event_line) {
    char *text = printed(inspect, small_plan(arena));
    cr_expect(
        strstr(text,
               "\ne0 compute  to compute  matmul  forward layers.0  r tokens@0x00000800:256B g0f.0@0x00000a00:2.0KiB  "
               "w e0.0@0x00001200:512B  wait g0f  "
               "why g0f: all_gather layers.0 has written g0f.0  t 0.000ms +0.013ms  small.lua:7\n"),
        "%s", text);
}

Test(plan_json, filters) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    report_inspect_text(
        f, small_plan(arena),
        &(ReportOptions){.program = "micro", .module = "layers.*", .stream = "reduce", .columns = COLUMNS_DEFAULT});
    fclose(f);
    cr_expect(strstr(text, "\nr0 reduce"));
    cr_expect_not(strstr(text, "\ne0 compute"));
    cr_expect_not(strstr(text, "program eval"));
}

Test(plan_json, peak_by_class) {
    char *text = printed(predict, small_plan(arena));
    cr_expect(strstr(text, "  peak     at e1b0 backward layers.0 of micro, in KiB\n"
                           "           unsharded 2.0 · unsharded gradients 2.0 · parameters 1.0 ·\n"
                           "           optimizer state 1.0 · activations 0.5 · inputs 0.2 · record 0.2"),
              "%s", text);
}

/* ── damage ───────────────────────────────────────────────────────────────────────────────────────────────── */
static char *replaced(const char *text, const char *from, const char *to) {
    const char *at = strstr(text, from);
    cr_assert_not_null(at, "%s is not in the plan", from);
    return arena_printf(arena, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

static const struct {
    const char *from, *to, *says;
} damages[] = {
    {"\"format\":\"shardc-plan\"", "\"format\":\"other\"", "format: \"other\" is not a plan"},
    {"\"version\":6", "\"version\":2", "version: is 2, this shardc reads version 6; build the model again"},
    {"\"version\":6", "\"version\":\"3\"", "version: must be an integer"},
    {"\"version\":6,", "", "version: is missing"},
    {"\"world\":2", "\"world\":0", "mesh.world: 0 is not between"},
    {"\"nodes\":1", "\"nodes\":7", "mesh.nodes: 7 is not between"},
    {"\"mesh\":{", "\"mesh\":3,\"x\":{", "mesh: must be an object"},
    {"\"options\":{", "\"options\":[],\"x\":{", "options: must be an object"},
    {"\"options\":{", "\"options\":{\"n\":3,", "options: every option's value must be a string"},
    {"\"options\":{", "\"options\":{\"\\u0001\":\"\",", "options: an option's name holds a control character"},
    {"\"name\":\"cpu\"", "\"name\":7", "device.name: must be a string"},
    {"\"name\":\"cpu\"", "\"name\":\"c\\u0007u\"", "device.name: holds a control character"},
    {"\"tokens_per_step\":128", "\"tokens_per_step\":-1", "tokens_per_step: -1 is not a size"},
    {"\"tokens_per_step\":128", "\"tokens_per_step\":\"many\"", "tokens_per_step: must be a number"},
    {"\"bytes\":7168", "\"bytes\":9007199254740993", "arenas.device.bytes: 9007199254740992 is not between"},
    {"\"library\":[", "\"library\":[7,", "prediction.library[0]: must be an object"},
    {"\"units\":[", "\"units\":{},\"x\":[", "units: must be a list"},
    {"\"dtype\":\"fp32\"", "\"dtype\":\"fp33\"", "units[0].dtype: \"fp33\" is unknown; is it \"fp32\"?"},
    {"\"master\":0", "\"master\":10", "units[0].master: 10 is not between"},
    {"\"size\":2", "\"size\":0", "mesh.axes[0].size: 0 is not between"},
    {"\"size\":2", "\"size\":3", "mesh.axes[0].size: 3 is not between 1 and 2"},
    {"\"stride\":1", "\"stride\":2", "mesh.axes[0].stride: 2 is not between 1 and 1"},
    {"\"axis\":\"replicate\"", "\"axis\":\"repliced\"", "mesh.groups[1].axis: the mesh has no axis \"repliced\""},
    {"\"shard\":\"shard\"", "\"shard\":\"tensor\"", "units[0].shard: the mesh has no axis \"tensor\""},
    {"\"class\":\"unsharded\"", "\"class\":\"zzzzzzzz\"", "storages[4].class: \"zzzzzzzz\" is unknown"},
    {"\"id\":4,", "\"id\":5,", "storages[4].id: 5 is not between"},
    {"\"program\":\"micro\",\"first\"", "\"program\":\"macro\",\"first\"",
     "storages[4].program: there is no program \"macro\""},
    {"\"first\":\"g0f\"", "\"first\":\"g1f\"", "storages[4].first: there is no event \"g1f\""},
    {"\"first\":\"g0f\",\"last\":\"e0b0\"", "\"first\":\"e0b0\",\"last\":\"g0f\"",
     "storages[4].last: comes before the first event"},
    {"\"offset\":2560", "\"offset\":-2560", "storages[4].offset: -2560 is not between"},
    {"\"size\":2048", "\"size\":2048.5", "storages[4].size: must be an integer"},
    {"\"stream\":\"gather\"", "\"stream\":\"gathre\"",
     "programs[2].events[0].stream: \"gathre\" is unknown; is it \"gather\"?"},
    {"\"comm\":\"shard\"", "\"comm\":\"shart\"", "programs[2].events[0].comm: there is no group of ranks \"shart\""},
    {"\"update\":true", "\"update\":1", "programs[2].events[6].update: must be true or false"},
    {"\"waits\":[\"g0f\"]", "\"waits\":[\"g9f\"]", "programs[2].events[1].waits: there is no event \"g9f\""},
    {"\"waits\":[\"g0f\"]", "\"waits\":\"g0f\"", "programs[2].events[1].waits: must be a list"},
    {"\"reads\":[[0,0,1024]]", "\"reads\":[[0,0]]", "programs[2].events[0].reads[0]: must be [storage, offset, size]"},
    {"\"reads\":[[0,0,1024]]", "\"reads\":[[10,0,1024]]", "programs[2].events[0].reads[0]: 10 is not between 0 and 9"},
    {"\"source\":\"models/small.lua:7\"", "\"source\":\"models/small.lua\"",
     "programs[0].events[0].source: must be \"file:line\""},
    {"\"unit\":0", "\"unit\":1", "programs[2].events[0].unit: 1 is not between 0 and 0"},
    {"\"id\":\"e1\"", "\"id\":\"e0\"", "programs[0].events[1].id: \"e0\" stands twice"},
    {"\"id\":\"e1\"", "\"id\":\"\"", "programs[0].events[1].id: is empty"},
    {"\"name\":\"start\"", "\"name\":\"init\"", "programs[1].name: stands twice"},
    {"\"peak\":[2560,0]", "\"peak\":[2560]", "programs[0].peak: must be [device, host]"},
    {"\"peak_event\":\"e1\"", "\"peak_event\":\"e7\"", "programs[0].peak_event: there is no event \"e7\""},
    {"\"world\":2", "\"world\":2,\"world\":2", "mesh: two members have the name \"world\""},
    {"\"world\":2", "\"world\":2,\"a\\u0007\":1,\"a\\u0007\":2", "mesh: two members have the name \"?\""},
    {"\"options\":{", "\"options\":{\"n\":\"1\",\"n\":\"2\",", "options: two members have the name \"n\""},
};

Test(plan_json, damage_is_named) {
    const char *good = printed(write_plan, small_plan(arena));
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const char *text = replaced(good, damages[i].from, damages[i].to);
        PlanError e = {0};
        cr_expect_null(plan_parse(arena, text, strlen(text), &e), "%s is read", damages[i].to);
        cr_expect(e.text && strstr(e.text, damages[i].says), "%s: \"%s\" instead of \"%s\"", damages[i].to, e.text,
                  damages[i].says);
    }
}

Test(plan_json, sums_do_not_overflow) {
    Plan *p = small_plan(arena);
    Storage *many = NEW_ARRAY(arena, Storage, 2000);
    memcpy(many, p->storages, sizeof *many * N_SMALL_STORAGES);
    for (int i = N_SMALL_STORAGES; i < 2000; i++) {
        many[i] = many[MOMENT];
        many[i].id = i;
        many[i].size = 1000000000000000;
    }
    p->storages = many;
    p->nstorages = 2000;
    char *text = arena_strdup(arena, printed(write_plan, p)), *at = text;
    while ((at = strstr(at, "\"size\":1000000000000000"))) memcpy(at + 7, "9007199254740991", 16);
    PlanError e = {0};
    cr_expect_null(plan_parse(arena, text, strlen(text), &e));
    cr_expect(strstr(e.text, "overflow"), "%s", e.text);
}

static void refused(const char *text, const char *says) {
    PlanError e = {0};
    cr_expect_null(plan_parse(arena, text, strlen(text), &e));
    cr_expect(e.text && strstr(e.text, says), "\"%s\" instead of \"%s\"", e.text, says);
}

Test(plan_json, too_much_of_a_thing) {
    const char *good = printed(write_plan, small_plan(arena));
    enum { MANY = (1 << 22) + 1 };
    char *many = arena_alloc(arena, 2 * MANY + 20), *at = many + sprintf(many, "\"units\":[");
    for (int i = 0; i < MANY; i++, at += 2) memcpy(at, "0,", 2);
    refused(replaced(good, "\"units\":[", many), "units: has 4194306 entries, more than any plan");
    char *name = arena_printf(arena, "\"name\":\"%01048577d\"", 0);
    refused(replaced(good, "\"name\":\"cpu\"", name), "device.name: is longer than 1048576 bytes");
    Plan *p = small_plan(arena);
    p->programs = NEW_ARRAY(arena, PlanProgram, 65);
    for (int i = 0; i < 65; i++)
        p->programs[i] = (PlanProgram){.name = arena_printf(arena, "p%d", i), .peak_event = -1};
    p->nprograms = 65;
    p->nstorages = 0;
    p->nunits = 0;
    refused(printed(write_plan, p), "programs: has 65 entries, a plan has at most 64");
}

static const struct {
    const char *text, *says;
} broken[] = {
    {"", "it is empty"},
    {"<!doctype html>", "it is a page; give the model, the plan.json or the binary that it was made of"},
    {" \n", "column 2: from here on it is not JSON"},
    {"{\"a\":tru}", "column 6: from here on it is not JSON"},
    {"[1 2]", "column 4: from here on it is not JSON"},
    {"[1,]", "column 4: from here on it is not JSON"},
    {"{1:2}", "column 3: from here on it is not JSON"},
    {"{\"a\" 1}", "column 6: from here on it is not JSON"},
    {"{\"a\":1 \"b\":2}", "column 8: from here on it is not JSON"},
    {"{} x", "column 4: from here on it is not JSON"},
    {"{}\n\n {}", "column 2: from here on it is not JSON"},
    {"[-]", "column 2: from here on it is not JSON"},
    {"[1e+]", "from here on it is not JSON"},
    {"[\"abc", "from here on it is not JSON"},
    {"[\"abc\\", "from here on it is not JSON"},
    {"[\"\\q\"]", "from here on it is not JSON"},
    {"[\"\\ud83dx\"]", "from here on it is not JSON"},
    {"[\"\\ude00\"]", "from here on it is not JSON"},
    {"[]", "must be an object"},
    {"3", "must be an object"},
};

Test(plan_json, broken_text_is_named) {
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) refused(broken[i].text, broken[i].says);
    char deep[2000];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    refused(deep, "from here on it is not JSON");
    Str names = {.arena = arena};
    for (int i = 0; i <= 1000; i++) str_addf(&names, "%s\"n%d\":1", i ? "," : "{", i);
    str_add(&names, "}");
    refused(names.s, "has more than 1000 members");
}

/* A plan whose text says `text` where tokens_per_step's 128 stands. */
static double number_read(const char *text) {
    const char *plan = replaced(printed(write_plan, small_plan(arena)), "\"tokens_per_step\":128",
                                arena_printf(arena, "\"tokens_per_step\":%s", text));
    PlanError e = {0};
    const Plan *p = plan_parse(arena, plan, strlen(plan), &e);
    cr_assert_not_null(p, "%s: %s", text, e.text);
    return p->tokens_per_step;
}

Test(plan_json, numbers_are_read_as_strtod_does) {
    const char *const texts[] = {"0",
                                 "-0.0",
                                 "0.1",
                                 "128.5",
                                 "1.285e2",
                                 "1E+2",
                                 "5e-324",
                                 "1.7e299",
                                 "9007199254740993",
                                 "9007199254740993.0",
                                 "0.30000000000000004",
                                 "123456789.12345678",
                                 "0.00000000000000000000001",
                                 "0.000000000000000000000012345",
                                 "1234567890.12345678901234567890123456789012345678901234567890123456789012345"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double is = number_read(texts[i]), should = strtod(texts[i], NULL);
        cr_expect(is == should, "%s is read as %.17g, not %.17g", texts[i], is, should);
    }
}

Test(plan_json, numbers_are_written_shortly_and_exactly) {
    Plan *p = small_plan(arena);
    uint64_t state = 1;
    for (int i = 0; i < 3000; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        double edge = strtod(arena_printf(arena, "1e%d", i % 21 - 5), NULL), part = (double)(state >> 11) / 0x1p53;
        double x = i % 3 == 0   ? edge * part
                   : i % 3 == 1 ? nextafter(edge, i % 2 ? 0 : 1e300)
                                : (double)(state >> 44) / 1e3;
        char text[40];
        snprintf(text, sizeof text, "%.15g", x);
        if (strtod(text, NULL) != x) snprintf(text, sizeof text, "%.17g", x);
        p->tokens_per_step = x;
        const char *is = printed(write_plan, p), *want = arena_printf(arena, "\"tokens_per_step\":%s,", text);
        cr_expect(strstr(is, want), "%.17g is not written as %s", x, text);
    }
}

Test(plan_json, escapes_are_read) {
    const char *text = replaced(printed(write_plan, small_plan(arena)), "\"name\":\"cpu\"",
                                "\"n\\u0061me\":\"\\\"\\\\\\/ \\u0041\\u00e9\\u20AC\\ud83d\\ude00 \xe2\x82\xac\"");
    PlanError e = {0};
    const Plan *p = plan_parse(arena, text, strlen(text), &e);
    cr_assert_not_null(p, "%s", e.text);
    cr_expect_str_eq(p->device, "\"\\/ A\u00e9\u20ac\U0001f600 \u20ac");
}

/* Every prefix, and every byte changed: a plan that is read may be printed and verified without harm. */
Test(plan_json, cut_and_flipped, .timeout = 60) {
    char *good = printed(write_plan, small_plan(arena));
    size_t n = strlen(good);
    for (size_t i = 0; i < n; i += 1 + i % 3) {
        Arena *a = arena_new();
        PlanError e = {0};
        cr_assert(i + 3 > n || !plan_parse(a, good, i, &e));
        char was = good[i];
        good[i] = "\"0{}[]9-,:\\\xff"[i % 12];
        const Plan *p = plan_parse(a, good, n, &e);
        if (p)
            free(printed(findings, p)), free(printed(inspect, p)), free(printed(predict, p)),
                free(printed(write_plan, p));
        good[i] = was;
        arena_free(a);
    }
}

/* ── files ────────────────────────────────────────────────────────────────────────────────────────────────── */
static char *file_of(const char *head, const char *text, const char *tail) {
    char *path = arena_printf(arena, "/tmp/shardc_plan_%ld", (long)getpid());
    FILE *f = fopen(path, "w");
    fwrite("\177ELF\0\0\0", 1, *head ? 7 : 0, f);
    fprintf(f, "%s%s%s", head, text, tail);
    fclose(f);
    return path;
}

Test(plan_json, from_a_binary) {
    const Plan *p = small_plan(arena);
    char *text = printed(write_plan, p);
    const char *tails[] = {"\nSHARDC_PLAN_END", "SHARDC_PLAN_END"};
    for (int i = 0; i < 2; i++) {
        char *path = file_of("xSHARDC_PLAN_BEGIN ySHARDC_PLAN_BEGIN\n", text, tails[i]);
        cr_expect_str_eq(printed(inspect, plan_read(arena, path)), printed(inspect, p));
        unlink(path);
    }
}

static void says(const char *head, const char *text, const char *tail, const char *expected) {
    char *path = file_of(head, text, tail), said[1024] = "";
    int fd[2], status;
    cr_assert_eq(pipe(fd), 0);
    if (fork() == 0) {
        dup2(fd[1], 2);
        plan_read(arena, path);
        _exit(0);
    }
    close(fd[1]);
    for (ssize_t n, at = 0; (n = read(fd[0], said + at, sizeof said - 1 - (size_t)at)) > 0; at += n) {}
    wait(&status);
    unlink(path);
    cr_expect_eq(WEXITSTATUS(status), 1);
    cr_expect(strstr(said, expected), "\"%s\" instead of \"%s\"", said, expected);
}

Test(plan_json, file_diagnostics) {
    says("x", "", "", "this binary holds no plan");
    says("SHARDC_PLAN_BEGIN\n", "{\"format\":3", "", "the plan in this binary is cut off");
    says("", "{\n\"format\":\n}", "", ":3: not a plan of shardc: column 1: from here on it is not JSON");
    says("", "{}", "", ": not a plan of shardc: format: is missing");
}

Test(plan_json, numbers_are_what_printf_makes) {
    Str s = {.arena = arena};
    char expected[64];
    const int64_t many[] = {0, 9, 10, -1, -70000, 123456789, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        s.n = 0;
        str_int(&s, many[i]);
        str_hex(&s, (uint64_t)many[i], 1);
        str_hex(&s, (uint64_t)many[i], 8);
        snprintf(expected, sizeof expected, "%" PRId64 "0x%" PRIx64 "0x%08" PRIx64, many[i], (uint64_t)many[i],
                 (uint64_t)many[i]);
        cr_assert_str_eq(s.s, expected);
    }
}

/* A time as %.15g prints it, whatever way it was printed. */
Test(plan_json, times_have_fifteen_digits) {
    double start[] = {0,
                      1e-6,
                      0.25,
                      1,
                      2.5,
                      1.000001,
                      1234.56789,
                      18779.408942,
                      99999999.999999,
                      1e8,
                      1.0 / 3,
                      1e15 / 7.0,
                      12345.6789012345,
                      3 + 1e-15,
                      1e300,
                      4e-310};
    for (size_t i = 0; i < sizeof start / sizeof *start; i++) {
        Plan *p = small_plan(arena);
        p->programs[P_MICRO].events[GATHER_F].start_us = start[i];
        char text[60];
        snprintf(text, sizeof text, "\"start_us\":%.15g,", start[i]);
        cr_assert(strstr(printed(write_plan, p), text), "%s", text);
    }
}
