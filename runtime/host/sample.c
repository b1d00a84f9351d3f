/* Text from a trained model. Every rank runs the program (its gathers need all) on the same context, reads the same
 * logits, those of the position that the record names, and draws the same token; rank 0 prints it. The context is
 * aligned left; when it is full, the oldest token goes.
 * Relies on: target, shuffle (draws by position: the same seed gives the same text), text/helper.h (--tokenizer).
 * Relied on by: run, train. */
#include "sample.h"
#include "die.h"
#include "dtype.h"
#include "log.h"
#include "shuffle.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTE_VOCABULARY = 512, SAMPLE_STREAM = 0x53414d50 };

struct Sampler {
    const sc_build *b;
    const Options *o;
    const Prompt *prompt;
    const sc_input_info *input;
    int64_t length, vocabulary, n, drawn; /* n: tokens in the context */
    int64_t *context;
    void *staging, *raw;
    float *logits, *work;
};

/* ── drawing ─────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* The k-th largest of a (k from 1); reorders a. Hoare's selection. */
static float kth_largest(float *a, int64_t n, int64_t k) {
    int64_t lo = 0, hi = n - 1, want = k - 1;
    while (lo < hi) {
        float pivot = a[lo + (hi - lo) / 2];
        int64_t i = lo, j = hi;
        while (i <= j) {
            while (a[i] > pivot) i++;
            while (a[j] < pivot) j--;
            if (i > j) break;
            float t = a[i];
            a[i++] = a[j];
            a[j--] = t;
        }
        if (want <= j)
            hi = j;
        else if (want >= i)
            lo = i;
        else
            break;
    }
    return a[want];
}

int64_t sample_pick(const float *logits, int64_t n, double temperature, int64_t top_k, double u, float *work) {
    int64_t best = 0, last;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    if (temperature == 0) return best;
    last = best;
    float floor = -INFINITY;
    if (top_k > 0 && top_k < n) {
        memcpy(work, logits, (size_t)n * sizeof *work);
        floor = kth_largest(work, n, top_k);
    }
    double sum = 0, top = logits[best], at = 0;
    for (int64_t i = 0; i < n; i++)
        if (logits[i] >= floor) sum += exp((logits[i] - top) / temperature);
    for (int64_t i = 0; i < n; i++) {
        if (!(logits[i] >= floor)) continue;
        at += exp((logits[i] - top) / temperature);
        last = i;
        if (u * sum < at) break;
    }
    return last;
}

/* ── the prompt ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static bool prints_ids(const sc_build *b, const Options *o) {
    if (o->tokenizer) return false;
    return o->sample_ids >= 0 ? o->sample_ids : b->logits_shape[2] > BYTE_VOCABULARY;
}

static const sc_input_info *context_input(const sc_build *b) {
    const sc_input_info *found = NULL;
    for (int i = 0; i < b->ninputs; i++) {
        const sc_input_info *in = &b->inputs[i];
        if (!in->in_sample) continue;
        if (found || !host_dtype_integer(in->dtype))
            die("--sample: the sample program takes '%s' besides tokens; sampling needs one whose logits read tokens "
                "alone: write sample = { logits = function(m, b) return m(b.%s) end } in nn.training",
                in->name, found && host_dtype_integer(found->dtype) ? found->name : "tokens");
        found = in;
    }
    if (!found) die("--sample: the sample program takes no tokens; compute its logits from an input, m(b.tokens)");
    return found;
}

/* Tokens of the prompt; writes them where `out` is not NULL. */
static int64_t prompt_tokens(const sc_build *b, const Options *o, int64_t *out) {
    int64_t n = 0, vocabulary = b->logits_shape[2];
    bool ids = prints_ids(b, o);
    for (const char *p = o->prompt; p && *p; n++) {
        int64_t token = (unsigned char)*p;
        if (ids) {
            char *end;
            errno = 0;
            token = strtoll(p, &end, 10);
            if (end == p || errno || token < 0 || token >= vocabulary)
                die("--prompt '%s': this model's tokens are ids from 0 to %lld, separated by spaces or commas",
                    o->prompt, (long long)vocabulary - 1);
            for (p = end; isspace((unsigned char)*p) || *p == ',';) p++;
        } else if (token < vocabulary) {
            p++;
        } else {
            die("--prompt: byte %lld is not in the model's vocabulary of %lld; give ids, with --sample-format ids",
                (long long)token, (long long)vocabulary);
        }
        if (out) out[n] = token;
    }
    return n;
}

/* Tokens of the prompt as the tokenizer has them. */
static void tokenize(const sc_build *b, const Options *o, Prompt *p) {
    const char *text = o->prompt ? o->prompt : "";
    const char *const args[] = {"prompt", o->tokenizer, o->chat_template ? o->chat_template : "", o->chat ? "chat" : "",
                                text,     NULL};
    sc_text t;
    bool good = sc_text_start(&t, args) && sc_text_next(&t) == 1;
    if (!good) {
        sc_text_end(&t);
        die("--tokenizer %s: %s", o->tokenizer, *t.error ? t.error : "Python has failed; what it printed says why");
    }
    int64_t vocabulary = b->logits_shape[2];
    p->ids = need((size_t)t.n + 1, sizeof *p->ids);
    for (p->n = 0; p->n < t.n; p->n++) {
        p->ids[p->n] = t.ids[p->n];
        if (t.ids[p->n] >= vocabulary)
            die("--tokenizer %s: '%s' has token %u, and the model's vocabulary ends at %lld: it is another model's "
                "tokenizer",
                o->tokenizer, text, t.ids[p->n], (long long)vocabulary - 1);
    }
    memcpy(p->ends, t.ends, sizeof t.ends);
    sc_text_end(&t);
}

Prompt prompt_read(const sc_build *b, const Options *o) {
    const sc_input_info *in = context_input(b);
    Prompt p = {.ends = {SC_TEXT_NONE}};
    int64_t n = 1;
    for (int d = 0; d < (in->sample_dims ? in->sample_dims : in->dims); d++)
        n *= in->sample_dims ? in->sample_shape[d] : in->shape[d];
    if (in->sample_dims && n != b->logits_shape[1])
        die("--sample: the sample program takes %lld tokens and gives logits of %lld positions: let `logits` return "
            "those of every position, [1, %lld, vocab]",
            (long long)n, (long long)b->logits_shape[1], (long long)n);
    if (o->tokenizer) {
        tokenize(b, o, &p);
    } else {
        p.ids = need((size_t)prompt_tokens(b, o, NULL) + 1, sizeof *p.ids);
        p.n = prompt_tokens(b, o, p.ids);
    }
    if (p.n == 0) { /* a line begins: what ends a text, newline, or GPT-2's end of text where the vocabulary has it */
        int64_t start = p.ends[0] != SC_TEXT_NONE          ? (int64_t)p.ends[0]
                        : o->tokenizer || prints_ids(b, o) ? 50256
                                                           : '\n';
        p.ids[p.n++] = start < b->logits_shape[2] ? start : 0;
    }
    return p;
}

/* ── a run ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
Sampler *sampler_new(const sc_build *b, const Options *o, const Prompt *prompt) {
    Sampler *s = need(1, sizeof *s);
    int64_t length = b->logits_shape[1], vocabulary = b->logits_shape[2];
    *s = (Sampler){
        .b = b, .o = o, .prompt = prompt, .input = context_input(b), .length = length, .vocabulary = vocabulary};
    s->context = need((size_t)(length + prompt->n + 1), sizeof *s->context);
    s->staging = need((size_t)length, 8);
    s->raw = need((size_t)vocabulary, 8);
    s->logits = need((size_t)vocabulary, sizeof(float));
    s->work = need((size_t)vocabulary, sizeof(float));
    return s;
}

void sampler_free(Sampler *s) {
    if (!s) return;
    free(s->context);
    free(s->staging);
    free(s->raw);
    free(s->logits);
    free(s->work);
    free(s);
}

static void print_token(const Sampler *s, sc_text *text, int64_t token) {
    if (s->o->tokenizer) {
        if (!sc_text_show(text, (uint32_t)token))
            die("cannot print the sample: the Python in which the tokenizer works has ended");
    } else if (prints_ids(s->b, s->o))
        printf("%lld ", (long long)token);
    else if (token >= 256)
        fputs("\xef\xbf\xbd", stdout); /* no byte: U+FFFD */
    else
        putchar(iscntrl((int)token) && token != '\n' && token != '\t' ? '?' : (int)token);
}

static void flush(void) {
    if (fflush(stdout) || ferror(stdout)) die("cannot print the sample: %s", strerror(errno));
}

static void print_last(const Sampler *s, sc_text *text) {
    if (s->o->tokenizer && sc_text_end(text))
        die("cannot print the sample: the Python in which the tokenizer works has failed; what it printed says why");
    putchar('\n');
    flush();
}

static int64_t next_token(Sampler *s, sc_rank *r, sc_record *record) {
    const sc_input_info *in = s->input;
    int64_t drop = s->n > s->length ? s->n - s->length : 0;
    memmove(s->context, s->context + drop, (size_t)(s->n - drop) * sizeof *s->context);
    s->n -= drop;
    for (int64_t i = 0; i < s->length; i++) host_put_int(in->dtype, s->staging, i, i < s->n ? s->context[i] : 0);
    sc_write(r, 0, in->sample_dims ? in->sample_at : in->at, s->staging,
             (size_t)s->length * (size_t)sc_size(in->dtype));
    record->position = s->n - 1;
    sc_record_write(r, record);
    sc_run_program(r, s->b->logits_program);
    sc_read(r, 0, s->b->logits_at, s->raw, (size_t)s->vocabulary * (size_t)sc_size(s->b->logits_dtype));
    host_convert(FP32, s->logits, s->b->logits_dtype, s->raw, s->vocabulary);
    double u = host_uniform(record->seed, (uint64_t)s->drawn++, SAMPLE_STREAM);
    return sample_pick(s->logits, s->vocabulary, s->o->temperature, s->o->top_k, u, s->work);
}

static bool ends_sample(const Sampler *s, int64_t token) {
    for (int i = 0; i < SC_TEXT_ENDS && s->prompt->ends[i] != SC_TEXT_NONE; i++)
        if (s->prompt->ends[i] == token) return true;
    return false;
}

int sampler_run(Sampler *s, sc_rank *r, sc_record *record) {
    bool prints = sc_rank_index(r) == 0;
    int signal = 0;
    sc_text text = {.to = -1};
    s->drawn = 0;
    s->n = s->prompt->n;
    memcpy(s->context, s->prompt->ids, (size_t)s->n * sizeof *s->context);
    if (prints && s->o->tokenizer) {
        printed();
        if (!sc_text_shows(&text, s->o->tokenizer)) die("cannot print the sample: %s", text.error);
    }
    for (int64_t i = 0; prints && s->o->prompt && !s->o->chat && i < s->n; i++) print_token(s, &text, s->context[i]);
    for (int64_t i = 0; i < s->o->sample && !(signal = sc_heed(r, true)); i++) {
        int64_t token = next_token(s, r, record);
        s->context[s->n++] = token;
        if (ends_sample(s, token)) break;
        if (!prints) continue;
        print_token(s, &text, token);
        flush();
    }
    if (prints) print_last(s, &text);
    return signal;
}
