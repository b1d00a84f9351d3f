/* From measurements to a device profile, as compiler/devices/device.c reads it: curves of bytes made to rise, figures
 * that cannot be measured here marked as what they are.
 * Relies on: calibrate.h.
 * Relied on by: main.c. */
#include "calibrate.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ── what the lines say ──────────────────────────────────────────────────────────────────────────────────────────────
 */
typedef struct {
    char op[64], variant[48], key[160];
    double flops, bytes, us;
    int merged; /* measurements in it */
} point;

typedef struct {
    char **lines;
    int n;
    point *points;
    int npoints;
} measured;

static double value(const measured *m, const char *name, double otherwise) {
    char start[80];
    snprintf(start, sizeof start, "value %s|", name);
    for (int i = 0; i < m->n; i++)
        if (!strncmp(m->lines[i], start, strlen(start))) return atof(m->lines[i] + strlen(start));
    return otherwise;
}

static bool split(char *text, char **field, int n) {
    for (int i = 0; i < n; i++)
        if (!(field[i] = strsep(&text, "|"))) return false;
    return true;
}

static void take_line(measured *m, const char *line) {
    char *copy = strdup(line), *f[6];
    point p = {.merged = 1};
    bool good = false;
    if (!strncmp(line, "kernel ", 7) && split(copy + 7, f, 6)) {
        snprintf(p.op, sizeof p.op, "%s", f[0]);
        snprintf(p.variant, sizeof p.variant, "%s", f[1]);
        snprintf(p.key, sizeof p.key, "%s", f[2]);
        p.flops = atof(f[3]), p.bytes = atof(f[4]), p.us = atof(f[5]);
        good = true;
    } else if (!strncmp(line, "collective ", 11) && split(copy + 11, f, 4)) {
        snprintf(p.op, sizeof p.op, "%s", f[0]);
        snprintf(p.variant, sizeof p.variant, "%s ranks", f[1]);
        p.bytes = atof(f[2]), p.us = atof(f[3]);
        good = true;
    }
    if (good && p.us > 0 && (p.bytes > 0 || *p.key)) m->points[m->npoints++] = p;
    free(copy);
}

static int by_kind(const void *a, const void *b) {
    const point *p = a, *q = b;
    int c = strcmp(p->op, q->op);
    if (!c) c = strcmp(p->variant, q->variant);
    if (!c && !*p->key && !*q->key) return (p->bytes > q->bytes) - (p->bytes < q->bytes);
    return c ? c : strcmp(p->key, q->key);
}

static bool same_curve(const point *p, const point *q) {
    return !strcmp(p->op, q->op) && !strcmp(p->variant, q->variant);
}

static void join(point *p, const point *q) { /* the mean of all that are in them */
    double n = p->merged, k = q->merged;
    p->us = (p->us * n + q->us * k) / (n + k);
    p->bytes = (p->bytes * n + q->bytes * k) / (n + k);
    p->merged += q->merged;
}

/* Equal sizes become one point; where time falls as bytes grow, neighbours are joined until it does not (pool adjacent
 * violators, Ayer et al. 1955). Sizes nearer than 3 % count as equal. */
static void make_monotonic(measured *m) {
    int n = 0;
    for (int i = 0; i < m->npoints; i++) {
        point p = m->points[i];
        while (n && same_curve(&m->points[n - 1], &p)) {
            const point *last = &m->points[n - 1];
            bool equal = *p.key ? !strcmp(last->key, p.key) : p.bytes < 1.03 * last->bytes || p.us < last->us;
            if (!equal) break;
            point both = *last;
            join(&both, &p);
            p = both;
            n--;
        }
        m->points[n++] = p;
    }
    m->npoints = n;
}

/* ── the profile ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static const struct {
    const char *gpu;
    double bf16, fp8, fp32; /* dense, sums in fp32; fp8: 0 where there is none */
} data_sheet[] = {
    {"B200", 2250e12, 4500e12, 75e12}, {"H200", 989e12, 1979e12, 67e12},  {"H100", 989e12, 1979e12, 67e12},
    {"A100", 312e12, 0, 19.5e12},      {"L40S", 362e12, 733e12, 91.6e12}, {"RTX 4090", 165.2e12, 330.3e12, 82.6e12},
};

static void put_flops(FILE *f, const measured *m, const char *gpu, bool quick) {
    double best = value(m, "flops.bf16", 0), exact = value(m, "flops.fp32", best / 10);
    double bf16 = best, fp8 = value(m, "flops.fp8", 0), fp32 = exact;
    for (size_t i = 0; i < sizeof data_sheet / sizeof *data_sheet; i++)
        if (strstr(gpu, data_sheet[i].gpu)) {
            bf16 = data_sheet[i].bf16, fp8 = data_sheet[i].fp8, fp32 = data_sheet[i].fp32;
            break;
        }
    if (bf16 <= 0 && quick) {
        fprintf(stderr,
                "sc_calibrate: --quick knows no data sheet of %s, by which to scale kernels; leave --quick out\n", gpu);
        exit(1);
    }
    if (bf16 <= 0) return;
    fprintf(f, "  flops = { bf16 = %g, fp16 = %g, ", bf16, bf16);
    if (fp8 > 0) fprintf(f, "fp8_e4m3 = %g, fp8_e5m2 = %g, ", fp8, fp8);
    fprintf(f, "fp32 = %g, fp64 = %g },\n  flops_source = \"%s\",\n", fp32, fp32 / 2,
            bf16 > best ? "NVIDIA's data sheet, dense" : "best product measured");
    if (!quick)
        fprintf(f, "  matmul_efficiency = %.3f, -- best bf16 product measured, %.0f TFLOP/s\n", best / bf16,
                best / 1e12);
}

static double best_rate(const measured *m, const char *op) {
    double best = 0;
    for (int i = 0; i < m->npoints; i++)
        if (!strcmp(m->points[i].op, op)) best = fmax(best, m->points[i].bytes / m->points[i].us * 1e6);
    return best;
}

static double least_time(const measured *m, const char *op) {
    double least = 0;
    for (int i = 0; i < m->npoints; i++)
        if (!strcmp(m->points[i].op, op) && (!least || m->points[i].us < least)) least = m->points[i].us;
    return least;
}

/* Of the most GPUs that were measured together: one alone does not show what the machine's memory gives. */
static void put_host(FILE *f, const measured *m) {
    double each = 40e9, up = 0, down = 0, both = 0;
    int ranks = 0, updated = 0, world;
    for (int i = 0; i < m->n; i++) {
        double x, y, z;
        if (sscanf(m->lines[i], "host copies|%d|%lf|%lf|%lf", &world, &x, &y, &z) == 4 && world > ranks)
            ranks = world, up = x, down = y, both = z;
        if (sscanf(m->lines[i], "host update|%d|%lf", &world, &x) == 2 && world > updated) updated = world, each = x;
    }
    if (updated)
        fprintf(f, "  host_optimizer_bandwidth = %.4g, -- a rank's of %d\n", each, updated);
    else
        fprintf(f, "  host_optimizer_bandwidth = %.4g, -- not measured\n", each);
    if (ranks > 1)
        fprintf(f, "  host_reads = %.4g, host_writes = %.4g, host_both = %.4g, -- %d GPUs at once\n", up, down, both,
                ranks);
}

/* Quick: what was not measured is the profile's that this one is like. So are the links' bandwidth, which few ranks do
 * not reach, and what collectives take from kernels, which whole steps tell best: the curves of collectives say more.
 */
static void put_links(FILE *f, const measured *m, bool quick) {
    double link = best_rate(m, "all_gather"), host = value(m, "host_bandwidth", 25e9);
    if (!quick)
        fprintf(f, "  link_bandwidth = %.4g, link_latency_us = %.1f, -- %s\n", link > 0 ? link : host,
                link > 0 ? least_time(m, "all_gather") : 10,
                link > 0 ? "largest and smallest all-gather measured" : "one GPU: as if by way of the host");
    if (!quick)
        fprintf(f, "  network_bandwidth = 50e9, network_latency_us = 10, -- not measured: one 400 Gb/s port a GPU\n");
    fprintf(f, "  host_bandwidth = %.4g, -- pinned copy of 256 MiB\n", host);
    if (!quick) put_host(f, m);
}

static void put_head(FILE *f, const sc_wish *w, const measured *m) {
    char gpu[160] = "a GPU", day[32];
    int arch = 0, driver = 0, runtime = 0, gpus = 1, multiprocessors = 132;
    time_t now = time(NULL);
    strftime(day, sizeof day, "%Y-%m-%d", gmtime(&now));
    for (int i = 0; i < m->n; i++)
        if (sscanf(m->lines[i], "device %159[^|]|%d|%d|%d|%d|%d", gpu, &arch, &driver, &runtime, &gpus,
                   &multiprocessors) >= 4)
            break;
    fprintf(f, "-- %s, measured by sc_calibrate%s. Units: bytes, seconds, FLOP/s; *_us in microseconds.\n", gpu,
            w->quick ? " --quick" : "");
    fprintf(f, "return {\n  name = \"%s\", target = \"cuda\", arch = \"sm_%d\",\n", w->name, arch);
    fprintf(f, "  source = \"measured %s, CUDA %d.%d, driver for %d.%d\",%s\n", day, runtime / 1000,
            runtime % 1000 / 10, driver / 1000, driver % 1000 / 10, w->quick ? " like = \"h100\"," : "");
    fprintf(f, "  ranks_per_node = %d, multiprocessors = %d,\n", gpus, multiprocessors);
    fprintf(f, "  memory_bytes = %.0f, usable_bytes = %.0f,\n", value(m, "memory_bytes", value(m, "total_bytes", 0)),
            value(m, "total_bytes", 0));
    fprintf(f, "  memory_bandwidth = %.4g, -- largest copy, read and write\n", value(m, "memory_bandwidth", 1e12));
    if (value(m, "step_mhz", 0) > 0)
        fprintf(f, "  clock_mhz = %.0f, step_mhz = %.0f, -- the highest; sustained in products and copies\n",
                value(m, "clock_mhz", 0), value(m, "step_mhz", 0));
    put_flops(f, m, gpu, w->quick);
    put_links(f, m, w->quick);
    fprintf(f, "  launch_us = %.2f, -- a small kernel in a graph, after another\n", value(m, "launch_us", 2));
}

static void put_beside(FILE *f, const measured *m) {
    bool any = false;
    for (int i = 0; i < m->n; i++) {
        char op[40];
        int world, most = 0;
        double kernels, itself;
        if (sscanf(m->lines[i], "beside %39[^|]|%d|%lf|%lf", op, &world, &kernels, &itself) != 4) continue;
        for (int k = 0; k < m->n; k++) { /* of the largest world */
            char other[40];
            int n;
            if (sscanf(m->lines[k], "beside %39[^|]|%d|", other, &n) == 2 && n > most) most = n;
        }
        if (world != most) continue;
        if (!any)
            fprintf(f, "  beside = { -- shares by which kernels beside a collective take longer, and it itself\n");
        any = true;
        fprintf(f, "    %s = { kernels = %.3f, itself = %.3f },\n", op, fmax(kernels, 0), fmax(itself, 0));
    }
    if (any) fprintf(f, "  },\n");
}

/* The sum of what was measured under `name`, or under names that begin so, at this number of ranks; 0: nothing was. */
static double footprint_of(const measured *m, int ranks, const char *name) {
    int world = 0;
    double sum = 0;
    for (int i = 0; i < m->n; i++) {
        const char *bar = strchr(m->lines[i], '|');
        sscanf(m->lines[i], "world %d", &world);
        if (world == ranks && bar && !strncmp(m->lines[i], "library ", 8) &&
            !strncmp(m->lines[i] + 8, name, strlen(name)))
            sum += atof(bar + 1);
    }
    return sum;
}

static void put_library(FILE *f, const measured *m) {
    static const char *const code[] = {"libraries opened", "kernels", "matmul"};
    const double mib = 1 << 20;
    double context = footprint_of(m, 1, "context"), more = 0;
    if (context <= 0) return;
    for (int i = 0; i < 3; i++) more += footprint_of(m, 1, code[i]);
    fprintf(f, "  library = { -- what a process holds besides its arena\n");
    fprintf(f, "    { name = \"CUDA context\", bytes = %.0f * 2^20, tolerance = 4 * 2^20, source = \"measured\" },\n",
            context / mib);
    fprintf(f, "    { name = \"kernels\", bytes = %.0f * 2^20, tolerance = 4 * 2^20, source = \"measured\" },\n",
            more / mib);
    fprintf(f,
            "    { name = \"cuDNN\", bytes = %.0f * 2^20, tolerance = 8 * 2^20, source = \"measured\", ops = { "
            "\"attention\", \"attention_grad\" } },\n",
            footprint_of(m, 1, "attention") / mib);
    fprintf(f, "    { name = \"graphs\", per_event = %.0f, tolerance = 2 * 2^20, source = \"measured\" },\n",
            footprint_of(m, 1, "graph") / 2000);
    for (int ranks = 2; ranks <= 8; ranks *= 2)
        if (footprint_of(m, ranks, "NCCL") > 0)
            fprintf(
                f,
                "    { name = \"NCCL\", ranks = %d, further_gathers = %.0f * 2^20, further_sums = %.0f * 2^20, bytes "
                "= %.0f * 2^20, tolerance = 16 * 2^20, source = \"measured, two communicators\" },\n",
                ranks, fmax(footprint_of(m, ranks, "further gathers"), 0) / mib,
                fmax(footprint_of(m, ranks, "further sums"), 0) / mib, footprint_of(m, ranks, "NCCL") / mib);
    fprintf(f, "  },\n");
}

static void put_points(FILE *f, const measured *m) {
    fprintf(f, "  kernels = { -- { bytes, us } or { variant, flops, bytes, sizes..., us }\n");
    for (int i = 0; i < m->npoints; i++) {
        const point *p = &m->points[i];
        bool begins = !i || strcmp(p[-1].op, p->op), ends = i + 1 == m->npoints || strcmp(p[1].op, p->op);
        if (begins) fprintf(f, "    %s = {\n", p->op);
        fprintf(f, "      { ");
        if (*p->variant) fprintf(f, "\"%s\", ", p->variant);
        if (*p->key) fprintf(f, "%.6g, ", p->flops);
        fprintf(f, *p->key ? "%.6g, " : "%.0f, ", p->bytes);
        for (const char *c = p->key; *c; c++) *c == ',' ? (void)fputs(", ", f) : (void)fputc(*c, f);
        fprintf(f, "%s%.2f },\n", *p->key ? ", " : "", p->us);
        if (ends) fprintf(f, "    },\n");
    }
    fprintf(f, "  },\n");
}

void sc_profile_write(FILE *f, const sc_wish *w, char **lines, int n) {
    measured m = {lines, n, calloc((size_t)n + 1, sizeof(point)), 0};
    for (int i = 0; i < n; i++) take_line(&m, lines[i]);
    qsort(m.points, (size_t)m.npoints, sizeof *m.points, by_kind);
    make_monotonic(&m);
    put_head(f, w, &m);
    put_library(f, &m);
    if (!w->quick) put_beside(f, &m);
    put_points(f, &m);
    fprintf(f, "}\n");
    free(m.points);
}
