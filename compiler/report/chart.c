/* chart: draws series as SVG by hand: axes, ticks at 1, 2 or 5 times a power of ten, lines, points with titles.
 * Relies on: chart.h.
 * Relied on by: cli/plan.c. Text is escaped: names come from users. */
#include "chart.h"

#include <math.h>

enum { WIDTH = 760, HEIGHT = 420, LEFT = 76, RIGHT = 24, TOP = 48, BOTTOM = 56 };
static const char *const colors[] = {"#2f6fdb", "#d9822b", "#2a9d5c", "#b0413e", "#7d5bbe", "#5f6b76"};

static const char *escaped(Arena *a, const char *text) {
    Str s = {.arena = a};
    for (const char *c = text; *c; c++) {
        const char *as = *c == '<' ? "&lt;" : *c == '>' ? "&gt;" : *c == '&' ? "&amp;" : *c == '"' ? "&quot;" : NULL;
        if (as)
            str_add(&s, as);
        else
            str_bytes(&s, c, 1);
    }
    return s.s ? s.s : "";
}

typedef struct {
    double low, high, step;
} Axis;

static Axis axis_over(const Chart *c, bool x) {
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->series[i].n; k++) {
            double v = x ? c->series[i].x[k] : c->series[i].y[k];
            low = fmin(low, v);
            high = fmax(high, v);
        }
    if (!(high >= low)) low = 0, high = 1;
    if (high <= low) low -= 0.5, high += 0.5;
    double raw = (high - low) / 6, power = pow(10, floor(log10(raw))), step = power;
    if (raw > power) step = 2 * power;
    if (raw > 2 * power) step = 5 * power;
    if (raw > 5 * power) step = 10 * power;
    return (Axis){floor(low / step) * step, ceil(high / step) * step, step};
}

static double at_x(const Axis *a, double v) {
    return LEFT + (v - a->low) / (a->high - a->low) * (WIDTH - LEFT - RIGHT);
}

static double at_y(const Axis *a, double v) {
    return HEIGHT - BOTTOM - (v - a->low) / (a->high - a->low) * (HEIGHT - TOP - BOTTOM);
}

static void ticks(FILE *f, const Axis *x, const Axis *y) {
    for (int i = 0; x->low + i * x->step <= x->high + x->step / 2; i++) {
        double v = x->low + i * x->step, p = at_x(x, v);
        fprintf(f,
                "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n",
                p, TOP, HEIGHT - BOTTOM, p, HEIGHT - BOTTOM + 18, fabs(v) < x->step / 1e6 ? 0 : v);
    }
    for (int i = 0; y->low + i * y->step <= y->high + y->step / 2; i++) {
        double v = y->low + i * y->step, p = at_y(y, v);
        fprintf(f, "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                LEFT, p, WIDTH - RIGHT, LEFT - 8, p + 4, fabs(v) < y->step / 1e6 ? 0 : v);
    }
}

static void series(FILE *f, Arena *a, const ChartSeries *s, const char *color, const Axis *x, const Axis *y) {
    for (int i = 0; i < s->n; i++) {
        if (!i) fprintf(f, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" d=\"", color);
        if (i && s->steps) fprintf(f, "H%.1f", at_x(x, s->x[i]));
        fprintf(f, "%c%.1f %.1f", i ? 'L' : 'M', at_x(x, s->x[i]), at_y(y, s->y[i]));
    }
    if (s->n) fprintf(f, "\"/>\n");
    for (int i = 0; i < s->n; i++)
        fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"><title>%s</title></circle>\n", at_x(x, s->x[i]),
                at_y(y, s->y[i]), color, s->label ? escaped(a, s->label[i]) : "");
}

void chart_svg(FILE *f, Arena *a, const Chart *c) {
    Axis x = axis_over(c, true), y = axis_over(c, false);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n"
            "<style>svg{background:#fff;color:#222;font:13px system-ui,sans-serif}text{fill:currentColor}"
            ".grid{stroke:currentColor;stroke-opacity:.15}@media(prefers-color-scheme:dark){svg{background:#16181c;"
            "color:#e6e6e6}}</style>\n<rect width=\"%d\" height=\"%d\" fill=\"none\"/>\n"
            "<text x=\"%d\" y=\"26\" font-size=\"16\" font-weight=\"600\">%s</text>\n",
            WIDTH, HEIGHT, escaped(a, c->title), WIDTH, HEIGHT, LEFT, escaped(a, c->title));
    ticks(f, &x, &y);
    fprintf(f,
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n"
            "<text transform=\"translate(20 %d) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, escaped(a, c->x), (TOP + HEIGHT - BOTTOM) / 2, escaped(a, c->y));
    enum { N_COLORS = sizeof colors / sizeof *colors };
    for (int i = 0; i < c->n; i++) series(f, a, &c->series[i], colors[i % N_COLORS], &x, &y);
    for (int i = 0, at = LEFT; i < c->n; i++) {
        if (!c->series[i].name) continue;
        fprintf(f, "<circle cx=\"%d\" cy=\"%d\" r=\"4\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n", at + 6,
                TOP - 10, colors[i % N_COLORS], at + 16, TOP - 6, escaped(a, c->series[i].name));
        at += 40 + 8 * (int)strlen(c->series[i].name);
    }
    fprintf(f, "</svg>\n");
}
