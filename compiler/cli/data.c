/* `shardc data`: text becomes tokens, byte-level ones or those of a tokenizer, in llm.c's .bin format (256 int32:
 * 20240520, 1, count, then uint16 each; or 20240801, 7, count, then uint32). Relies on: base, jsonl.h,
 * schema/formats.h, runtime/text/helper.h. Relied on by: main.c; runtime/host reads what this writes. */
#include "../plan/figures.h"
#include "../plan/lines.h"
#include "jsonl.h"
#include "schema/formats.h"
#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MAGIC = 20240520, MAGIC_WIDE = 20240801, VERSION_WIDE = 7, HEADER = 256, CHUNK = 1 << 16 };

static bool holds_tokens(const char *head, size_t n) {
    uint32_t magic = n < 4 ? 0 : sc_format_word((const uint8_t *)head);
    return magic == MAGIC || magic == MAGIC_WIDE;
}

/* ── what is written ─────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    FILE *f;
    int separator;         /* or -1 */
    int64_t tokens, texts; /* texts: of JSON lines */
    bool between;          /* a text is complete, so that the next one is to be separated */
} Tokens;

static void check_room(const Tokens *to, int64_t more) {
    if (more > INT32_MAX - to->tokens)
        fail(NOWHERE,
             "more than %d tokens, which one .bin file cannot hold; make several: the loader reads train_*.bin",
             INT32_MAX);
}

static void put_bytes(Tokens *to, const char *bytes, size_t n) {
    unsigned char out[2 * CHUNK];
    const unsigned char separator[2] = {(unsigned char)to->separator, (unsigned char)(to->separator >> 8)};
    if (!n) return;
    bool separated = to->between && to->tokens && to->separator >= 0;
    if (separated) fwrite(separator, 1, 2, to->f);
    to->between = false;
    check_room(to, (int64_t)n + separated);
    to->tokens += (int64_t)n + separated;
    for (size_t k; n; n -= k, bytes += k) {
        k = n < CHUNK ? n : CHUNK;
        for (size_t i = 0; i < k; i++) {
            out[2 * i] = (unsigned char)bytes[i];
            out[2 * i + 1] = 0;
        }
        fwrite(out, 2, k, to->f);
    }
}

/* ── what is read ────────────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    FILE *f;
    const char *path;
    char *bytes; /* of which [at, end) are not taken yet */
    size_t at, end, room;
} Reader;

/* More of the file behind what is not taken yet. False: there is no more. */
static bool read_on(Reader *r) {
    if (r->at) memmove(r->bytes, r->bytes + r->at, r->end - r->at);
    r->end -= r->at;
    r->at = 0;
    if (r->room - r->end < CHUNK) {
        r->room = 2 * r->room + CHUNK;
        r->bytes = realloc(r->bytes, r->room);
        if (!r->bytes) fail(NOWHERE, "%s: no memory for a line of more than %zu bytes", r->path, r->end);
    }
    size_t n = fread(r->bytes + r->end, 1, r->room - r->end, r->f);
    if (ferror(r->f)) fail(NOWHERE, "cannot read %s: %s", r->path, strerror(errno));
    r->end += n;
    return n > 0;
}

/* false: there is none any more. The last one may lack its newline. */
static bool next_line(Reader *r, char **line, size_t *n) {
    size_t seen = 0;
    char *newline;
    while (!(newline = memchr(r->bytes + r->at + seen, '\n', r->end - r->at - seen))) {
        seen = r->end - r->at;
        if (!read_on(r)) break;
    }
    *line = r->bytes + r->at;
    *n = newline ? (size_t)(newline - *line) : r->end - r->at;
    r->at += *n + (newline != NULL);
    return *n || newline;
}

static void put_lines(Tokens *to, Reader *r, const char *key) {
    char *line, *text, error[JSONL_ERROR];
    size_t n, length;
    for (int number = 1; next_line(r, &line, &n); number++) {
        if (jsonl_blank(line, n)) continue;
        if (!jsonl_text(line, n, key, &text, &length, error))
            fail((Source){r->path, number}, "%s. JSON lines have an object a line%s; --as text takes the file as it is",
                 error, number == 1 && *line == '[' ? ", which `jq -c '.[]'` makes of a list" : "");
        to->between = true;
        to->texts++;
        put_bytes(to, text, length);
    }
}

static bool has_ending(const char *path, const char *ending) {
    size_t n = strlen(path), k = strlen(ending);
    return n > k && !strcasecmp(path + n - k, ending);
}

/* By its name, or because it begins with {" as no text does that people read. */
static bool is_jsonl(const Reader *r) {
    const char *p = r->bytes + r->at, *end = r->bytes + r->end;
    if (has_ending(r->path, ".jsonl") || has_ending(r->path, ".ndjson") || has_ending(r->path, ".json")) return true;
    while (p < end && *p && strchr(" \t\r\n", *p)) p++;
    if (p == end || *p++ != '{') return false;
    while (p < end && (*p == ' ' || *p == '\t')) p++;
    return p < end && *p == '"';
}

static void put_file(Tokens *to, const char *path, const Options *o) {
    struct stat st;
    Reader r = {.f = input_open(NOWHERE, path, &st), .path = path};
    bool bytes = o->as && !strcmp(o->as, "bytes"), text = o->as && !strcmp(o->as, "text"),
         lines = o->as && !bytes && !text;
    read_on(&r);
    const uint8_t *head = (const uint8_t *)r.bytes;
    const sc_format *f = bytes ? NULL : sc_format_of(head, r.end < SC_FORMAT_HEAD ? r.end : SC_FORMAT_HEAD);
    if (f && SC_FORM_TOKENS(f->form))
        fail(NOWHERE, "%s: it is %s: give it to a program as it is, with --data", path, f->name);
    if (f && f->form == SC_FOREIGN)
        fail(NOWHERE, "%s: it is %s, and not text: %s; --as bytes makes tokens of its bytes all the same", path,
             f->name, f->remedy);
    if (!bytes) r.at = sc_utf8_bom(head, r.end);
    to->between = true;
    if (lines || (!o->as && is_jsonl(&r))) {
        put_lines(to, &r, o->key);
    } else {
        if (S_ISREG(st.st_mode)) check_room(to, st.st_size); /* before it is read */
        do {
            put_bytes(to, r.bytes + r.at, r.end - r.at);
            r.at = r.end;
        } while (read_on(&r));
    }
    fclose(r.f);
    free(r.bytes);
}

static void put_header(FILE *f, int64_t tokens, bool wide) {
    unsigned char h[HEADER * 4] = {0};
    const uint32_t words[3] = {wide ? MAGIC_WIDE : MAGIC, wide ? VERSION_WIDE : 1, (uint32_t)tokens};
    for (int i = 0; i < 12; i++) h[i] = (unsigned char)(words[i / 4] >> 8 * (i % 4));
    fwrite(h, 1, sizeof h, f);
}

/* Tokens of a tokenizer; a text is ended by its end of text. Returns whether they are uint32. */
static bool put_tokenized(Arena *a, Tokens *to, const Options *o) {
    sc_text t;
    cli_text_begin(a, o, &t, "texts", o->key, o->as ? o->as : "");
    bool wide = t.vocabulary > UINT16_MAX + 1;
    put_header(to->f, 0, wide);
    while (cli_text_next(o, &t)) {
        check_room(to, t.n);
        to->tokens += t.n;
        to->texts++;
        for (int64_t i = 0; i < t.n; i++) {
            const unsigned char x[4] = {(unsigned char)t.ids[i], (unsigned char)(t.ids[i] >> 8),
                                        (unsigned char)(t.ids[i] >> 16), (unsigned char)(t.ids[i] >> 24)};
            fwrite(x, 1, wide ? 4 : 2, to->f);
        }
    }
    if (t.end == SC_TEXT_NONE)
        remark(NOWHERE, "no token stands between texts: nothing beside the tokenizer names an end of text (eos_token)");
    return wide;
}

static void check_usage(const Options *o) {
    bool rows = o->chat || o->pairs;
    if (!o->out) fail_usage("data wants the name of its output: shardc data FILE... -o train.bin");
    if (o->chat && o->pairs) fail_usage("--chat and --pairs: lines are one or the other; make a file of each");
    if (rows && !o->tokenizer)
        fail_usage("--%s needs --tokenizer PATH: the tokenizer.json of the model, or its folder",
                   o->chat ? "chat" : "pairs");
    if (!rows && (o->chat_template || o->no_pack || o->drop_long))
        fail_usage("--%s belongs to --chat and --pairs", o->chat_template ? "chat-template"
                                                         : o->no_pack     ? "no-pack"
                                                                          : "drop-long");
    if (o->tokenizer && o->separator >= 0)
        fail_usage("--separator: texts are ended by the tokenizer's own end of text; leave it out");
    if (o->tokenizer && o->as && !strcmp(o->as, "bytes"))
        fail_usage("--as bytes: a tokenizer reads text; leave it or --tokenizer out");
}

int command_data(Arena *a, const Options *o) {
    check_usage(o);
    for (int i = 0; i < o->inputs.n; i++) {
        const char *path = o->inputs.at[i];
        struct stat in;
        if (stat(path, &in)) fail(NOWHERE, "cannot read %s: %s", path, strerror(errno));
        if (S_ISDIR(in.st_mode))
            fail(NOWHERE, "cannot read %s: it is a folder; name its files, for example %s/*.txt", path, path);
        input_add(path);
    }
    input_keep(o->out);
    if (o->chat || o->pairs) {
        cli_data_chat(a, o);
        return 0;
    }
    cli_keep_others(o->out, holds_tokens, "tokens");
    OutFile out = out_open(a, o->out);
    if (!out.temp)
        fail(NOWHERE, "cannot write %s: the count of tokens goes to its beginning, so it must be a regular file",
             o->out);
    Tokens to = {.f = out.f, .separator = o->separator};
    bool wide = o->tokenizer && put_tokenized(a, &to, o);
    if (!o->tokenizer) put_header(out.f, 0, false);
    for (int i = 0; i < o->inputs.n && !o->tokenizer; i++) put_file(&to, o->inputs.at[i], o);
    if (!to.tokens)
        fail(NOWHERE, "no tokens to write: %s is empty", o->inputs.n == 1 ? o->inputs.at[0] : "every file given");
    if (fseeko(out.f, 0, SEEK_SET)) fail(NOWHERE, "cannot write %s: %s", o->out, strerror(errno));
    put_header(out.f, to.tokens, wide);
    out_commit(&out);
    if (to.texts > 1 && to.separator < 0 && !o->tokenizer)
        remark(NOWHERE, "no token stands between the texts of JSON lines: --separator TOKEN puts one there");
    Str s = {.arena = a};
    str_addf(&s, "%s: %s tokens from %d file%s", o->out, figure_grouped(a, (double)to.tokens), o->inputs.n,
             o->inputs.n == 1 ? "" : "s");
    if (o->tokenizer)
        str_addf(&s, ", %s text%s", figure_grouped(a, (double)to.texts), to.texts == 1 ? "" : "s");
    else if (to.texts)
        str_addf(&s, ", %s text%s of JSON lines", figure_grouped(a, (double)to.texts), to.texts == 1 ? "" : "s");
    str_addf(&s, o->tokenizer ? ", of %s" : ", a byte each", o->tokenizer);
    lines_sentence(stdout, 4, s.s);
    return 0;
}
