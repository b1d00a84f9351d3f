/* Records from standard input. Rank 0 reads a step's records into shared memory that was made before the ranks started,
 * and checks them; after a barrier every rank copies its rows; another one lets rank 0 read on.
 * Relies on: sc_barrier, dtype, schema/formats.h.
 * Relied on by: loader. */
#include "records.h"
#include "../schema/formats.h"
#include "die.h"
#include "dtype.h"
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct Records {
    const sc_build *b;
    int ranks; /* whose samples a record holds */
    int accumulate, fd;
    int64_t limit; /* of inputs from tokens that have none of their own */
    int64_t bytes; /* of one record */
    int64_t count; /* records read so far */
    int64_t *part; /* bytes of each input on one rank */
    int in_step;   /* of the step to come: whole records read, */
    int64_t got;   /* bytes of the next one */
    volatile RecordsStep *state;
    uint8_t *shared;
};

sc_dtype input_record_dtype(const sc_input_info *in) {
    return in->record_dtype ? (sc_dtype)(in->record_dtype - 1) : in->dtype;
}

int64_t records_bytes(const Records *q) {
    return q->bytes;
}

Records *records_open(const sc_build *b, int accumulate, int64_t limit, int fd) {
    Records *q = need(1, sizeof *q);
    *q = (Records){.b = b,
                   .ranks = sc_samples_of(b, 0).of,
                   .accumulate = accumulate,
                   .fd = fd,
                   .limit = limit,
                   .part = need((size_t)b->ninputs, sizeof(int64_t))};
    for (int i = 0; i < b->ninputs; i++) {
        const sc_input_info *in = &b->inputs[i];
        if (in->sample_only) continue;
        q->part[i] = sc_size(input_record_dtype(in));
        for (int d = 0; d < in->dims; d++) q->part[i] *= in->shape[d];
        q->bytes += q->part[i] * q->ranks;
    }
    size_t size = (size_t)q->bytes * (size_t)accumulate + 64;
    void *p = sc_map_shared(size);
    if (!p) die("no memory for %zu bytes of records: %s", size, strerror(errno));
    q->state = p;
    q->shared = (uint8_t *)p + 64;
    return q;
}

void records_close(Records *q) {
    if (!q) return;
    sc_unmap((void *)q->state, (size_t)q->bytes * (size_t)q->accumulate + 64);
    free(q->part);
    free(q);
}

/* Fills the record as far as there is input. false: cut short, because a signal asks for something: any process of the
 * run may have got it. r: NULL before ranks run. */
static bool fill(Records *q, const sc_rank *r, uint8_t *dst) {
    while (q->got < q->bytes) {
        struct pollfd input = {q->fd, POLLIN, 0};
        int ready = !r;
        while (!ready && !sc_asked(r)) {
            ready = poll(&input, 1, 100);
            if (ready < 0) ready = errno != EINTR; /* read says why */
        }
        if (!ready) return false;
        ssize_t got = read(q->fd, dst + q->got, (size_t)(q->bytes - q->got));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) die("cannot read records from standard input: %s", strerror(errno));
        if (got == 0) break;
        q->got += got;
    }
    return true;
}

bool input_takes(const sc_build *b, int input, int64_t limit, int64_t x, int64_t *bound) {
    const sc_input_info *in = &b->inputs[input];
    bool tokens = in->from && strcmp(in->from, "tokens") == 0;
    *bound = in->limit || !tokens ? in->limit : limit;
    if (!host_dtype_integer(in->dtype) || *bound <= 0 || (x >= 0 && x < *bound)) return true;
    for (const sc_count_info *c = b->counts; c < b->counts + b->ncounts; c++)
        if (c->input == input && c->ignore == x) return true;
    return false;
}

static void check_input(const Records *q, int input, const uint8_t *p) {
    const sc_input_info *in = &q->b->inputs[input];
    sc_dtype dtype = input_record_dtype(in);
    int64_t n = q->part[input] * q->ranks / sc_size(dtype), bound;
    if (host_dtype_float(dtype)) {
        for (int64_t i = 0; i < n; i++)
            if (isnan(host_get(dtype, p, i)))
                die("record %lld on standard input: element %lld (from 0) of '%s' is NaN; correct the program that "
                    "writes the records",
                    (long long)q->count + 1, (long long)i, in->name);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t x = host_get_int(in->dtype, p, i);
        if (!input_takes(q->b, input, q->limit, x, &bound))
            die("record %lld on standard input: element %lld (from 0) of '%s' is %lld, outside 0..%lld: is the order "
                "of inputs the declared one, and the type %s?",
                (long long)q->count + 1, (long long)i, in->name, (long long)x, (long long)bound - 1,
                host_dtype_name(in->dtype));
    }
}

/* Foreign bytes are numbers too. Text is what a few small floats look like, but not many. */
static void check_format(const uint8_t *p, int64_t n) {
    enum { FLOATS = 64 };
    const sc_format *f = sc_format_of(p, n < SC_FORMAT_HEAD ? (size_t)n : SC_FORMAT_HEAD);
    if (!f || ((f->form == SC_TEXT || f->form == SC_JSON) && n < FLOATS)) return;
    die("standard input is %s, and not records: %s. A record is raw little-endian, each input in declared order",
        f->name, f->remedy ? f->remedy : "give files of tokens with --data FILE, or write the bytes of arrays alone");
}

static RecordsStep read_record(Records *q, const sc_rank *r, uint8_t *dst) {
    if (!fill(q, r, dst)) return RECORDS_CUT_SHORT;
    if (q->got == 0) return RECORDS_ENDED;
    if (q->count == 0) check_format(dst, q->got);
    if (q->got < q->bytes)
        die("standard input ended in the middle of record %lld, after %lld of %lld bytes: a record is one global "
            "microbatch, each input in declared order with %d times its first dimension",
            (long long)q->count + 1, (long long)q->got, (long long)q->bytes, q->ranks);
    for (int i = 0; i < q->b->ninputs; i++) {
        check_input(q, i, dst);
        dst += q->part[i] * q->ranks;
    }
    q->count++;
    q->got = 0;
    return RECORDS_READ;
}

void records_skip(Records *q, int64_t samples, int64_t batch) {
    int64_t per_record = batch * q->ranks;
    if (samples % per_record)
        die("the checkpoint stands at sample %lld, which is not a border of records of %lld samples: resume with the "
            "global batch it was made with",
            (long long)samples, (long long)per_record);
    int64_t n = samples / per_record;
    if (n)
        note("--resume: the first %lld records of standard input are read and skipped: the saved run has seen them",
             (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (read_record(q, NULL, q->shared) == RECORDS_ENDED)
            die("standard input ended after record %lld; resuming skips the %lld that the checkpoint has seen",
                (long long)q->count, (long long)n);
}

RecordsStep records_step(Records *q, sc_rank *r, int64_t step) {
    sc_barrier(r); /* everyone has taken its rows of the step before */
    if (sc_rank_index(r) == 0) {
        RecordsStep state = RECORDS_READ;
        for (; q->in_step < q->accumulate; q->in_step++)
            if ((state = read_record(q, r, q->shared + q->in_step * q->bytes)) != RECORDS_READ) break;
        if (state == RECORDS_READ) q->in_step = 0;
        if (state == RECORDS_ENDED && q->in_step) /* a step whose records are not all there does not happen */
            note("standard input ended within step %lld: its %d records are not used", (long long)step, q->in_step);
        *q->state = state;
    }
    sc_barrier(r);
    return *q->state;
}

void records_take(const Records *q, int place, int64_t micro, int input, void *dst) {
    const uint8_t *p = q->shared + micro * q->bytes;
    for (int i = 0; i < input; i++) p += q->part[i] * q->ranks;
    const sc_input_info *in = &q->b->inputs[input];
    sc_dtype from = input_record_dtype(in);
    host_convert(in->dtype, dst, from, p + place * q->part[input], q->part[input] / sc_size(from));
}
