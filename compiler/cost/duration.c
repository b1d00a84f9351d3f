/* How long an event takes on a device: by what was measured of its kernel, or by a roofline: arithmetic over
 * throughput, bytes over bandwidth. Relies on: device profiles; flops and bytes that order put into the event. Relied
 * on by: simulate, order. */
#include "../devices/device.h"

#include <math.h>

static Dtype operand_dtype(const Event *e) {
    const Op *op = e->op_ir;
    if (op && op->nin) return op->in[0]->dtype;
    return op && op->nout ? op->out[0]->dtype : FP32;
}

static double peak_flops(const Device *d, Dtype t) {
    return d->flops[t] > 0 ? d->flops[t] : d->flops[FP32];
}

/* ── measured ────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* Of this variant, or of the one with the fewest words less at its end: "bf16 nt" for "bf16 nt gelu". */
static const Measured *variant_of(const Measured *all, const char *variant) {
    for (size_t n = strlen(variant);; n--) {
        const Measured *m = all;
        while (m && (strncmp(m->variant, variant, n) || m->variant[n])) m = m->next;
        if (m || !n) return m;
        while (n > 1 && variant[n - 1] != ' ') n--;
    }
}

/* Along the curve; before its first point as long as there, beyond the last one at its rate. One point is a rate. */
static double on_curve(const Measured *m, double bytes) {
    const Point *p = m->points, *last = &p[m->n - 1];
    if (bytes <= p->bytes) return m->n > 1 ? p->us : p->us * bytes / p->bytes;
    if (bytes >= last->bytes) return last->us * bytes / last->bytes;
    int low = 0, high = m->n - 1;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        *(p[middle].bytes <= bytes ? &low : &high) = middle;
    }
    double share = (bytes - p[low].bytes) / (p[high].bytes - p[low].bytes);
    return p[low].us + share * (p[high].us - p[low].us);
}

static double ideal_us(const Device *d, Dtype t, double flops, double bytes) {
    return fmax(flops / peak_flops(d, t), bytes / d->memory_bandwidth) * 1e6 + d->launch_us;
}

/* Among points of other sizes: how far from the ideal they were, weighted by the inverse fourth power of the distance
 * in powers of two (Shepard 1968), so that a point that is met exactly speaks alone. */
static double among_points(const Device *d, const Measured *m, Dtype t, const Cost *c) {
    double sum = 0, weights = 0, at[MAX_KEY];
    for (int k = 0; k < m->nkey; k++) at[k] = log2(c->key[k] > 1 ? c->key[k] : 1);
    for (int i = 0; i < m->n; i++) {
        const Point *p = &m->points[i];
        double far = 0;
        for (int k = 0; k < m->nkey; k++) far += (p->key[k] - at[k]) * (p->key[k] - at[k]);
        double w = 1 / (far * far + 1e-9);
        sum += w * log(p->us / ideal_us(d, t, p->flops, p->bytes));
        weights += w;
    }
    return exp(sum / weights) * ideal_us(d, t, c->flops, c->bytes);
}

/* What members of a fused group take by themselves beyond what their bytes take: arithmetic that does not hide. */
static double arithmetic_us(const Device *d, const Op *op, const Measured *plain) {
    double us = 0;
    for (int i = 0; i < op->nbody; i++) {
        const Op *m = op->body[i];
        const Measured *own = variant_of(d->kernels[0][m->kind], "");
        if (!own || own->nkey || !op_info[m->kind].cost) continue;
        double bytes = op_info[m->kind].cost(m).bytes, more = on_curve(own, bytes) - on_curve(plain, bytes);
        if (more > 0) us += more;
    }
    return us;
}

/* 0: nothing was measured that says something of it. */
static double measured_us(const Device *d, const Event *e, const char *variant, bool deterministic) {
    const Op *op = e->op_ir;
    if (!op) return 0;
    const Measured *all = d->kernels[!deterministic][op->kind];
    if (!all) all = d->kernels[0][op->kind];
    if (!all) return 0;
    if (variant) {
        const Measured *m = variant_of(all, variant);
        return m ? on_curve(m, e->bytes) : 0;
    }
    Cost c = op_info[op->kind].cost ? op_info[op->kind].cost(op) : (Cost){0};
    const Measured *m = variant_of(all, c.variant);
    if (!m || (m->nkey && m->nkey != c.nkey)) return 0;
    if (m->nkey) return among_points(d, m, operand_dtype(e), &c);
    return on_curve(m, e->bytes) + arithmetic_us(d, op, m);
}

/* ── collectives ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static double steps(double n) { /* of a tree over n members */
    double s = 0;
    for (; n > 1; n /= 2) s++;
    return s;
}

/* Every rank sends `bytes` round the group. Of a group that spans nodes each node's members share the way out: as many
 * network interfaces as the node has members in the group. No step between nodes is sooner done than one in them: a
 * profile may have one latency as measured and the other as a data sheet has it. */
static double collective_us(const Device *d, const Event *e, int group, int here) {
    if (group <= 1) return d->launch_us;
    double nodes = (double)group / here, bandwidth = d->link_bandwidth, latency = d->link_latency_us * steps(here);
    if (nodes > 1) {
        double out = d->network_bandwidth * here;
        if (here == 1 || out < bandwidth) bandwidth = out;
        latency += fmax(d->network_latency_us, d->link_latency_us) * steps(nodes);
    } else {
        char variant[32];
        snprintf(variant, sizeof variant, "%d ranks", group);
        double us = measured_us(d, e, variant, true);
        if (us > 0) return us;
    }
    return d->launch_us + latency + e->bytes / bandwidth * 1e6;
}

int event_group(const Plan *p, const Event *e) {
    return e->comm < 0 ? 1 : p->comms[e->comm].n;
}

static int ranks_a_node(const Plan *p) {
    return p->nodes > 1 ? p->world / p->nodes : p->world;
}

/* Where groups and nodes do not begin together, some node has only what both lengths are multiples of. */
int event_here(const Plan *p, const Event *e) {
    if (e->comm < 0) return 1;
    const Comm *c = &p->comms[e->comm];
    int common = c->n * c->step;
    for (int rest = ranks_a_node(p); rest;) {
        int next = common % rest;
        common = rest;
        rest = next;
    }
    return common > c->step ? common / c->step : 1;
}

/* ── any event ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static double alone_us(const Device *d, const Event *e, int group, int here, bool deterministic) {
    if (e->comm >= 0) return collective_us(d, e, group, here);
    double us = e->stream == HOST ? 0 : measured_us(d, e, NULL, deterministic);
    if (us > 0) return us;
    double bandwidth = d->memory_bandwidth;
    if (e->op_ir ? op_is(e->op_ir, T_COPY) : e->stream == OFFLOAD || e->stream == FETCH) bandwidth = d->host_bandwidth;
    if (e->stream == HOST) bandwidth = d->host_optimizer_bandwidth;
    us = e->bytes / bandwidth * 1e6;
    double peak = peak_flops(d, operand_dtype(e)) * d->matmul_efficiency;
    double math = e->stream == HOST ? 0 : e->flops / peak * 1e6;
    return math > us ? math : us;
}

double event_duration_us(const Device *d, const Event *e, int group, int here, bool deterministic) {
    double us = alone_us(d, e, group, here, deterministic);
    if (e->op_ir && group > 1) us *= 1 + d->beside[e->op_ir->kind].itself; /* kernels always run beside it */
    return fmax(fmax(us, d->launch_us), e->least_us);
}

/* The bus has its limit, and so has the memory that all ranks of a machine copy from and to. */
double copy_slows(const Device *d, const Plan *p, const Event *e, bool both_ways) {
    if (!e->op_ir || !op_is(e->op_ir, T_COPY)) return 1;
    double memory = both_ways ? d->host_both / 2 : e->stream == FETCH ? d->host_reads : d->host_writes;
    double bus = both_ways ? 1 + d->beside[e->op_ir->kind].itself : 1;
    return memory > 0 ? fmax(bus, d->host_bandwidth * ranks_a_node(p) / memory) : bus;
}

double event_slows_others(const Device *d, const Event *e) {
    return e->op_ir ? d->beside[e->op_ir->kind].kernels : 0;
}
