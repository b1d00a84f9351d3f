/* Numbers as text. printf takes some hundred instructions for an integer and thousands for a fraction, and the plan of
 * a deep model prints millions, most of them the same few hundred: their texts are kept. Relies on: the C library.
 * Relied on by: plan.json and the emitter. */
#include "base.h"

#include <inttypes.h>

enum {
    KEPT_BITS = 11,
    LONGEST = 47, /* of a text that is kept */
    MOST = 400    /* a double without an exponent */
};

typedef struct {
    uint64_t bits;
    PrintNumber *print; /* NULL: nothing is kept here */
    unsigned char n;
    char text[LONGEST];
} Kept;

static Kept kept[1 << KEPT_BITS];

/* Of a constant length, longer than most: no call, no branch. */
static void add_kept(Str *b, const char *text, size_t room, size_t n) {
    if (b->n + room + 1 > b->cap) str_reserve(b, room);
    memcpy(b->s + b->n, text, room);
    b->n += n;
    b->s[b->n] = 0;
}

void str_number(Str *b, uint64_t bits, PrintNumber *print) {
    Kept *k = &kept[(bits ^ (uintptr_t)print) * 0x9e3779b97f4a7c15u >> (64 - KEPT_BITS)];
    if (k->bits != bits || k->print != print) {
        char text[MOST];
        size_t n = (size_t)print(text, sizeof text, bits);
        if (n > LONGEST) {
            str_bytes(b, text, n);
            return;
        }
        *k = (Kept){.bits = bits, .print = print, .n = (unsigned char)n};
        memcpy(k->text, text, n);
    }
    add_kept(b, k->text, LONGEST, k->n);
}

void str_real(Str *b, double x, PrintNumber *print) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    str_number(b, bits, print);
}

static int print_int(char *out, size_t size, uint64_t bits) {
    return snprintf(out, size, "%" PRId64, (int64_t)bits);
}

/* Numbers of storages, events and accesses: each comes several times, and its neighbours with it. */
enum { SMALL = 1000000, DIGITS = 7 };
static struct {
    char text[DIGITS];
    unsigned char n; /* 0: not printed yet */
} small[SMALL];

void str_int(Str *b, int64_t x) {
    if (x < 0 || x >= SMALL) {
        str_number(b, (uint64_t)x, print_int);
        return;
    }
    if (!small[x].n) small[x].n = (unsigned char)snprintf(small[x].text, DIGITS, "%d", (int)x);
    add_kept(b, small[x].text, DIGITS, small[x].n);
}
