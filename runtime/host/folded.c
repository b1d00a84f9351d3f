/* Folds paths that differ in numbers alone.
 * Relies on: folded.h, die.
 * Relied on by: weights. */
#include "folded.h"
#include "die.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 24 }; /* entries of a list; of the rest it gives the number */

typedef struct {
    char *form; /* with * for every number */
    const char *first;
    int n, numbers; /* names; numbers in each */
    long low, high; /* of the first number */
} Group;

/* The name with * for every part between dots that is a number. */
static Group group_of(const char *name) {
    Group g = {.form = need_text("%s", ""), .first = name, .n = 1};
    for (const char *part = name; part;) {
        size_t n = strcspn(part, "."), digits = strspn(part, "0123456789");
        bool number = n && digits == n && n < 10;
        char *form = need_text("%s%s%.*s", g.form, part == name ? "" : ".", number ? 1 : (int)n, number ? "*" : part);
        free(g.form);
        g.form = form;
        if (number && !g.numbers++) g.low = g.high = strtol(part, NULL, 10);
        part = part[n] ? part + n + 1 : NULL;
    }
    return g;
}

char *folded(const char *const *names, int n) {
    Group *groups = need((size_t)n, sizeof *groups);
    int ngroups = 0, left = n;
    for (int i = 0; i < n; i++) {
        Group g = group_of(names[i]);
        int k = 0;
        while (k < ngroups && strcmp(groups[k].form, g.form)) k++;
        if (k == ngroups) {
            groups[ngroups++] = g;
            continue;
        }
        groups[k].n++;
        if (g.low < groups[k].low) groups[k].low = g.low;
        if (g.high > groups[k].high) groups[k].high = g.high;
        free(g.form);
    }
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    for (int k = 0; f && k < ngroups && k < MOST; k++) {
        if (k) fputs(", ", f);
        const Group *g = &groups[k];
        const char *star = strchr(g->form, '*');
        if (g->n == 1)
            fputs(g->first, f);
        else if (g->numbers == 1 && g->high - g->low + 1 == g->n)
            fprintf(f, "%.*s%ld-%ld%s (%d)", (int)(star - g->form), g->form, g->low, g->high, star + 1, g->n);
        else
            fprintf(f, "%s (%d)", g->form, g->n);
        left -= g->n;
    }
    if (f && left) fprintf(f, " and %d more", left);
    if (!f || fclose(f) || !text) die("out of memory for a list of names");
    for (int k = 0; k < ngroups; k++) free(groups[k].form);
    free(groups);
    return text;
}
