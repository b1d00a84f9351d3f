/* Learning rate over the steps of a run, as a factor of the base rate. With w = warmup, n = total, m = min_ratio:
 *     t < w        (t + 1) / w
 *     constant     1
 *     linear       1 - (1 - m) x                      x = (t - w) / (n - w), at most 1
 *     cosine       m + (1 - m) (1 + cos(pi x)) / 2
 * Relies on: die (memory), progress (figures).
 * Relied on by: args, run, train. */
#include "schedule.h"
#include "die.h"
#include "progress.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool schedule_decays(const char *kind) {
    return strcmp(kind, "linear") == 0 || strcmp(kind, "cosine") == 0;
}

double schedule_factor(const Schedule *s, int64_t t) {
    if (t < s->warmup) return (double)(t + 1) / (double)s->warmup;
    if (!schedule_decays(s->kind)) return 1;
    double x = s->total > s->warmup ? (double)(t - s->warmup) / (double)(s->total - s->warmup) : 1;
    if (x > 1) x = 1;
    if (strcmp(s->kind, "linear") == 0) return 1 - (1 - s->min_ratio) * x;
    return s->min_ratio + (1 - s->min_ratio) * 0.5 * (1 + cos(3.14159265358979323846 * x));
}

/* "lr 0.003 after 10 steps of warm-up, cosine to 0.0003 at step 20,000; 0.0003 at step 1, 0.003 at step 100" */
char *schedule_text(const Schedule *s, double lr, int64_t first, int64_t last) {
    char a[32], b[32], c[32];
    char *rises = s->warmup > 0 ? need_text(" after %s steps of warm-up", grouped((double)s->warmup, a))
                                : need_text("%s", ""),
         *falls = schedule_decays(s->kind)
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
    bool ends = schedule_decays(s->kind) && s->min_ratio == 0 && last > s->total && lr > 0;
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
    if (ends)
        return need_text("lr is 0 in steps %s to %s: the schedule falls to 0 at step %s; give --total %lld, or "
                         "--min-ratio above 0",
                         grouped((double)from + 1, a), grouped((double)last, c), grouped((double)s->total, b),
                         (long long)last);
    return NULL;
}
