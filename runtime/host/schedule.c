/* Learning rate over the steps of a run, as a factor of the base rate. With w = warmup, n = total, m = min_ratio:
 *     t < w        (t + 1) / w
 *     constant     1
 *     linear       1 - (1 - m) x                      x = (t - w) / (n - w), at most 1
 *     cosine       m + (1 - m) (1 + cos(pi x)) / 2
 *     wsd          1 - (1 - m) y                      y = (t - (n - d)) / d, at least 0, at most 1; d = decay_steps
 * A function of the model file is a table of what it returned; after its end the last factor stays.
 * Relies on: die (memory), progress (figures).
 * Relied on by: args, run, train. */
#include "schedule.h"
#include "die.h"
#include "progress.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool schedule_decays(const char *kind) {
    return strcmp(kind, "linear") == 0 || strcmp(kind, "cosine") == 0 || strcmp(kind, "wsd") == 0;
}

double schedule_factor(const Schedule *s, int64_t t) {
    if (s->factors) return s->factors[t < s->total ? t : s->total - 1];
    if (t < s->warmup) return (double)(t + 1) / (double)s->warmup;
    if (!schedule_decays(s->kind)) return 1;
    bool wsd = strcmp(s->kind, "wsd") == 0;
    int64_t from = wsd ? s->total - s->decay_steps : s->warmup;
    double x = s->total > from ? (double)(t - from) / (double)(s->total - from) : 1;
    if (x < 0) x = 0;
    if (x > 1) x = 1;
    if (wsd || strcmp(s->kind, "linear") == 0) return 1 - (1 - s->min_ratio) * x;
    return s->min_ratio + (1 - s->min_ratio) * 0.5 * (1 + cos(3.14159265358979323846 * x));
}

/* "lr 0.003 after 10 steps of warm-up, cosine to 0.0003 at step 20,000; 0.0003 at step 1, 0.003 at step 100" */
char *schedule_text(const Schedule *s, double lr, int64_t first, int64_t last) {
    char a[32], b[32], c[32], d[32];
    char *rises = s->warmup > 0 ? need_text(" after %s steps of warm-up", grouped((double)s->warmup, a))
                                : need_text("%s", ""),
         *falls = s->factors ? need_text(" times a function of %s steps", grouped((double)s->total, b))
                  : s->decay_steps
                      ? need_text(", linear over %s steps to %.4g at step %s", grouped((double)s->decay_steps, d),
                                  lr * s->min_ratio, grouped((double)s->total, b))
                  : schedule_decays(s->kind)
                      ? need_text(", %s to %.4g at step %s", s->kind, lr * s->min_ratio, grouped((double)s->total, b))
                      : need_text(", constant");
    char *text =
        need_text("lr %.4g%s%s; %.4g at step %s, %.4g at step %s", lr, rises, falls, lr * schedule_factor(s, first),
                  grouped((double)first + 1, a), lr * schedule_factor(s, last - 1), grouped((double)last, c));
    free(rises);
    free(falls);
    return text;
}

/* A run that ends in the warm-up, and one that goes on where a decaying rate has come to nothing. */
char *schedule_doubt(const Schedule *s, double lr, int64_t first, int64_t last) {
    char a[32], b[32], c[32];
    int64_t from = first > s->total ? first : s->total; /* steps before it have a rate */
    bool zero = s->factors ? s->factors[s->total - 1] == 0 : schedule_decays(s->kind) && s->min_ratio == 0;
    bool ends = zero && last > s->total && lr > 0;
    if (last < s->warmup && lr > 0) {
        int64_t fits = last / 10 > 0 ? last / 10 : 1;
        char *total = schedule_decays(s->kind) ? need_text(" --total %lld", (long long)last) : need_text("%s", "");
        char *text =
            need_text("the run ends at step %s, within the warm-up of %s steps: lr comes to %.3g, %.2g %% of %.4g; a "
                      "run of this length wants --warmup %lld%s, say",
                      grouped((double)last, a), grouped((double)s->warmup, b), lr * schedule_factor(s, last - 1),
                      100 * schedule_factor(s, last - 1), lr, (long long)fits, total);
        free(total);
        return text;
    }
    if (ends && s->factors)
        return need_text(
            "lr is 0 in steps %s to %s: the schedule's function ends with 0 at step %s; build the model with "
            "another, or give --steps %lld",
            grouped((double)from + 1, a), grouped((double)last, c), grouped((double)s->total, b), (long long)s->total);
    if (ends)
        return need_text("lr is 0 in steps %s to %s: the schedule falls to 0 at step %s; give --total %lld, or "
                         "--min-ratio above 0",
                         grouped((double)from + 1, a), grouped((double)last, c), grouped((double)s->total, b),
                         (long long)last);
    return NULL;
}
