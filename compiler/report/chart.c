/* chart: draws series as SVG by hand: axes, ticks at 1, 2 or 5 times a power of ten, lines, points with titles.
 * Relies on: chart.h.
 * Relied on by: cli/plan.c, cli/sweep.c. Text is escaped: names come from users. */
#include "chart.h"
#include "visible.h"

#include <math.h>

enum { WIDTH = 760, PLOT = 316, LEFT = 76, RIGHT = 24, TOP = 48, BOTTOM = 56, LEGEND = 18 };
static const char *const colors[] = {"#2f6fdb", "#d9822b", "#2a9d5c", "#b0413e", "#7d5bbe", "#5f6b76"};
enum { N_COLORS = sizeof colors / sizeof *colors };

/* XML has no control characters, escaped or not; they and bytes that are not UTF-8 become U+FFFD. */
static const char *escaped(Arena *a, const char *text) {
    Str s = {.arena = a};
    size_t n = strlen(text);
    for (size_t i = 0, length; i < n; i += length) {
        const char *c = text + i;
        const char *as = *c == '<' ? "&lt;" : *c == '>' ? "&gt;" : *c == '&' ? "&amp;" : *c == '"' ? "&quot;" : NULL;
        length = sc_visible_character((const unsigned char *)c, n - i);
        if (as || !length)
            str_add(&s, as ? as : "\xef\xbf\xbd");
        else
            str_bytes(&s, c, length);
        length += !length;
    }
    return s.s ? s.s : "";
}

/* Ticks at low + i · step, or at low · step^i on a logarithmic axis. */
typedef struct {
    double low, high, step;
    bool log;
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
    if (x && c->log_x && high > low) return (Axis){low, high, exp2(ceil(log2(high / low) / 8)), true};
    if (high <= low) low -= 0.5, high += 0.5;
    double raw = (high - low) / 6, power = pow(10, floor(log10(raw))), step = power;
    if (raw > power) step = 2 * power;
    if (raw > 2 * power) step = 5 * power;
    if (raw > 5 * power) step = 10 * power;
    return (Axis){floor(low / step) * step, ceil(high / step) * step, step, false};
}

static double tick(const Axis *a, int i) {
    double v = a->log ? a->low * pow(a->step, i) : a->low + i * a->step;
    return fabs(v) < a->step / 1e6 ? 0 : v;
}

static bool has_tick(const Axis *a, int i) {
    return a->log ? tick(a, i) <= a->high * 1.000001 : a->low + i * a->step <= a->high + a->step / 2;
}

/* Where things are: the plot's upper edge lies below title and legend. */
typedef struct {
    Axis x, y;
    int top, bottom;
} Frame;

static double at_x(const Frame *f, double v) {
    const Axis *a = &f->x;
    double part = a->log ? log(v / a->low) / log(a->high / a->low) : (v - a->low) / (a->high - a->low);
    return LEFT + part * (WIDTH - LEFT - RIGHT);
}

static double at_y(const Frame *f, double v) {
    return f->bottom - (v - f->y.low) / (f->y.high - f->y.low) * PLOT;
}

static void ticks(FILE *f, const Frame *at) {
    for (int i = 0; has_tick(&at->x, i); i++) {
        double v = tick(&at->x, i), p = at_x(at, v);
        fprintf(
            f, "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.8g</text>\n",
            p, at->top, at->bottom, p, at->bottom + 18, v);
    }
    for (int i = 0; has_tick(&at->y, i); i++) {
        double v = tick(&at->y, i), p = at_y(at, v);
        fprintf(f,
                "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.8g</text>\n",
                LEFT, p, WIDTH - RIGHT, LEFT - 8, p + 4, v);
    }
}

static void series(FILE *f, Arena *a, const ChartSeries *s, const char *color, const Frame *at) {
    for (int i = 0; i < s->n; i++) {
        if (!i) fprintf(f, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" d=\"", color);
        if (i && s->steps) fprintf(f, "H%.1f", at_x(at, s->x[i]));
        fprintf(f, "%c%.1f %.1f", i ? 'L' : 'M', at_x(at, s->x[i]), at_y(at, s->y[i]));
    }
    if (s->n) fprintf(f, "\"/>\n");
    for (int i = 0; i < s->n; i++)
        fprintf(f,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" stroke=\"%s\" class=\"%s\" "
                "fill=\"%s\"><title>%s</title></circle>\n",
                at_x(at, s->x[i]), at_y(at, s->y[i]), color, s->hollow && s->hollow[i] ? "hollow" : "full", color,
                s->label ? escaped(a, s->label[i]) : "");
}

/* Writes the names, in as many rows as they take, or only counts the rows (f NULL). */
static int legend(FILE *f, Arena *a, const Chart *c, int y) {
    int at = LEFT, row = 0;
    for (int i = 0; i < c->n; i++) {
        const char *name = c->series[i].name;
        if (!name) continue;
        int wide = 40 + 8 * (int)strlen(name);
        if (at > LEFT && at + wide > WIDTH) at = LEFT, row++;
        if (f)
            fprintf(f, "<circle cx=\"%d\" cy=\"%d\" r=\"4\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n", at + 6,
                    y + row * LEGEND - 4, colors[i % N_COLORS], at + 16, y + row * LEGEND, escaped(a, name));
        at += wide;
    }
    return at > LEFT ? row : 0; /* the first row has room under the title */
}

static int height(const Chart *c) {
    return TOP + legend(NULL, NULL, c, 0) * LEGEND + PLOT + BOTTOM;
}

void chart_column(FILE *f, Arena *a, const Chart *c, int n) {
    int all = 0;
    for (int i = 0; i < n; i++) all += height(&c[i]);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n"
            "<style>svg{background:#fff;color:#222;font:13px system-ui,sans-serif}text{fill:currentColor}"
            ".grid{stroke:currentColor;stroke-opacity:.15}.hollow{fill-opacity:0}"
            "@media(prefers-color-scheme:dark){svg{background:#16181c;color:#e6e6e6}}</style>\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"none\"/>\n",
            WIDTH, all, escaped(a, c->title), WIDTH, all);
    for (int y = 0; n--; y += height(c++)) {
        Frame at = {axis_over(c, true), axis_over(c, false), height(c) - BOTTOM - PLOT, height(c) - BOTTOM};
        fprintf(f,
                "<g transform=\"translate(0 %d)\">\n"
                "<text x=\"%d\" y=\"26\" font-size=\"16\" font-weight=\"600\">%s</text>\n",
                y, LEFT, escaped(a, c->title));
        ticks(f, &at);
        fprintf(f,
                "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n"
                "<text transform=\"translate(20 %d) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
                (LEFT + WIDTH - RIGHT) / 2, at.bottom + 42, escaped(a, c->x), (at.top + at.bottom) / 2,
                escaped(a, c->y));
        for (int i = 0; i < c->n; i++) series(f, a, &c->series[i], colors[i % N_COLORS], &at);
        legend(f, a, c, TOP - 6);
        fprintf(f, "</g>\n");
    }
    fprintf(f, "</svg>\n");
}

void chart_svg(FILE *f, Arena *a, const Chart *c) {
    chart_column(f, a, c, 1);
}
