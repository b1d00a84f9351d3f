/* How long an event takes on a device: by what was measured of its kernel, or by a roofline: arithmetic over
 * throughput, bytes over bandwidth. Relies on: device profiles; flops and bytes that order put into the event. Relied
 * on by: simulate, order. */
#include "../ir/device.h"

#include <math.h>

static Dtype operand_dtype(const Event *e) {
    const Op *op = e->op_ir;
    if (op && op->nin) return op_operand(op)->dtype;
    return op && op->nout ? op_result(op)->dtype : FP32;
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

/* B/s beyond the curve's last point: the rate of the bytes there, without the time that the first point spends on no
 * bytes (a launch, where there is one point), and never above `bandwidth`. Where the bytes of the last point take less
 * than a launch at `bandwidth`, that point is all latency and tells no rate: then it is `bandwidth`. */
static double rate_beyond(const Device *d, const Measured *m, double bandwidth) {
    const Point *first = m->points, *last = &first[m->n - 1];
    double fixed = m->n > 1 ? fmax(first->us - first->bytes / bandwidth * 1e6, d->launch_us) : d->launch_us;
    if (last->bytes / bandwidth * 1e6 < d->launch_us || last->us <= fixed) return bandwidth;
    return fmin(bandwidth, last->bytes / (last->us - fixed) * 1e6);
}

/* Along the curve. Before its first point an event takes as long as there; one point alone is a rate down to 0 bytes.
 */
static double on_curve(const Device *d, const Measured *m, double bytes, double bandwidth) {
    const Point *p = m->points, *last = &p[m->n - 1];
    if (bytes > last->bytes) return last->us + (bytes - last->bytes) / rate_beyond(d, m, bandwidth) * 1e6;
    if (bytes <= p->bytes) return m->n > 1 ? p->us : p->us * bytes / p->bytes;
    p += FIRST(i, 1, m->n - 1, p[i].bytes > bytes);
    double share = (bytes - p[-1].bytes) / (p->bytes - p[-1].bytes);
    return p[-1].us + share * (p->us - p[-1].us);
}

/* Of flops and bytes at the device's peaks. */
static double roofline_us(const Device *d, Dtype t, double flops, double bytes) {
    return fmax(flops / peak_flops(d, t), bytes / d->memory_bandwidth) * 1e6;
}

/* Among points of other sizes: how far from the ideal (roofline and launch) they were, weighted by the inverse fourth
 * power of the distance in powers of two (Shepard 1968), so that a point that is met exactly speaks alone. A point
 * whose roofline is shorter than a launch is all latency: it says nothing of events that are longer. 0: no point says
 * something. */
static double among_points(const Device *d, const Measured *m, Dtype t, const Cost *c) {
    double sum = 0, weights = 0, at[MAX_KEY], roofline = roofline_us(d, t, c->flops, c->bytes);
    for (int k = 0; k < m->nkey; k++) at[k] = log2(c->key[k] > 1 ? c->key[k] : 1);
    for (int i = 0; i < m->n; i++) {
        const Point *p = &m->points[i];
        double far = 0, its = roofline_us(d, t, p->flops, p->bytes);
        for (int k = 0; k < m->nkey; k++) far += (p->key[k] - at[k]) * (p->key[k] - at[k]);
        if (far > 0 && its < d->launch_us && roofline > d->launch_us) continue;
        double w = 1 / (far * far + 1e-9);
        sum += w * log(p->us / (its + d->launch_us));
        weights += w;
    }
    return weights > 0 ? exp(sum / weights) * (roofline + d->launch_us) : 0;
}

/* What members of a fused group take by themselves beyond what their bytes take: arithmetic that does not hide. */
static double arithmetic_us(const Device *d, const Op *op, const Measured *plain) {
    double us = 0;
    for (int i = 0; i < op->nbody; i++) {
        const Op *m = op->body[i];
        const Measured *own = variant_of(d->kernels[0][m->kind], "");
        if (!own || own->nkey || !op_info[m->kind].cost) continue;
        double bytes = op_info[m->kind].cost(m).bytes,
               more = on_curve(d, own, bytes, d->memory_bandwidth) - on_curve(d, plain, bytes, d->memory_bandwidth);
        if (more > 0) us += more;
    }
    return us;
}

/* `bandwidth`: B/s of what the event's bytes go over. 0: nothing was measured that says something of it. */
static double measured_us(const Device *d, const Event *e, const char *variant, double bandwidth, bool deterministic) {
    const Op *op = e->op_ir;
    if (!op) return 0;
    const Measured *all = d->kernels[!deterministic][op->kind];
    if (!all) all = d->kernels[0][op->kind];
    if (!all) return 0;
    if (variant) {
        const Measured *m = variant_of(all, variant);
        return m ? on_curve(d, m, e->bytes, bandwidth) : 0;
    }
    Cost c = op_info[op->kind].cost ? op_info[op->kind].cost(op) : (Cost){0};
    const Measured *m = variant_of(all, c.variant);
    if (!m || (m->nkey && m->nkey != c.nkey)) return 0;
    if (m->nkey) return among_points(d, m, operand_dtype(e), &c);
    return on_curve(d, m, e->bytes, bandwidth) + arithmetic_us(d, op, m);
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
        double us = measured_us(d, e, variant, bandwidth, true);
        if (us > 0) return us;
    }
    return d->launch_us + latency + e->bytes / bandwidth * 1e6;
}

int device_event_group(const Plan *p, const Event *e) {
    return e->comm < 0 ? 1 : p->comms[e->comm].n;
}

static int ranks_a_node(const Plan *p) {
    return p->nodes > 1 ? p->world / p->nodes : p->world;
}

/* Where groups and nodes do not begin together, some node has only what both lengths are multiples of. */
int device_event_here(const Plan *p, const Event *e) {
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
    double bandwidth = d->memory_bandwidth;
    if (e->op_ir ? op_is(e->op_ir, T_COPY) : e->stream == OFFLOAD || e->stream == FETCH) bandwidth = d->host_bandwidth;
    if (e->stream == HOST) bandwidth = d->host_optimizer_bandwidth;
    double us = e->stream == HOST ? 0 : measured_us(d, e, NULL, bandwidth, deterministic);
    if (us > 0) return us;
    us = e->bytes / bandwidth * 1e6;
    double peak = peak_flops(d, operand_dtype(e)) * d->matmul_efficiency;
    double math = e->stream == HOST ? 0 : e->flops / peak * 1e6;
    return math > us ? math : us;
}

double device_event_us(const Device *d, const Event *e, int group, int here, bool deterministic) {
    double us = alone_us(d, e, group, here, deterministic);
    if (e->op_ir && group > 1) us *= 1 + d->beside[e->op_ir->kind].itself; /* kernels always run beside it */
    return fmax(fmax(us, d->launch_us), e->least_us);
}

/* The bus has its limit, and so has the memory that all ranks of a machine copy from and to. */
double device_copy_slows(const Device *d, const Plan *p, const Event *e, bool both_ways) {
    if (!e->op_ir || !op_is(e->op_ir, T_COPY)) return 1;
    double memory = both_ways ? d->host_both / 2 : e->stream == FETCH ? d->host_reads : d->host_writes;
    double bus = both_ways ? 1 + d->beside[e->op_ir->kind].itself : 1;
    return memory > 0 ? fmax(bus, d->host_bandwidth * ranks_a_node(p) / memory) : bus;
}

double device_event_slows(const Device *d, const Event *e) {
    return e->op_ir ? d->beside[e->op_ir->kind].kernels : 0;
}
