/* How long an event takes on a device: by what was measured of its kernel, or by a roofline: arithmetic over
 * throughput, bytes over bandwidth. Relies on: device profiles; flops and bytes that order put into the event. Relied
 * on by: simulate, order. */
#include "../devices/device.h"

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
static const Measured *words_of(const Measured *all, const char *variant) {
    for (size_t n = strlen(variant);; n--) {
        const Measured *m = all;
        while (m && (strncmp(m->variant, variant, n) || m->variant[n])) m = m->next;
        if (m || !n) return m;
        while (n > 1 && variant[n - 1] != ' ') n--;
    }
}

/* Of this variant, or of the one with the fewest words less at its end: "bf16 nt" for "bf16 nt gelu". What was measured
 * of no variant in fp16 takes as long as in bf16, whether it reads fp16 or makes it of 8 bits. */
static const Measured *variant_of(const Measured *all, const char *variant) {
    char other[MAX_VARIANT];
    const Measured *m = words_of(all, variant);
    const char *half = strstr(variant, "fp16");
    if (m || !half) return m;
    snprintf(other, sizeof other, "%s", variant);
    memcpy(other + (half - variant), "bf16", 4);
    return words_of(all, other);
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

/* Among points of other sizes: how far from the ideal (roofline and product_us) they were, weighted by the inverse
 * fourth power of the distance in powers of two (Shepard 1968), so that a point that is met exactly speaks alone. A
 * point whose roofline is shorter than a launch is all latency: it says nothing of events that are longer. 0: no point
 * says something. */
static double search_points(const Device *d, const Measured *m, Dtype t, const Cost *c) {
    double sum = 0, weights = 0, at[MAX_KEY], roofline = roofline_us(d, t, c->flops, c->bytes);
    for (int k = 0; k < m->nkey; k++) at[k] = log2(c->key[k] > 1 ? c->key[k] : 1);
    for (int i = 0; i < m->n; i++) {
        const Point *p = &m->points[i];
        double far = 0, its = roofline_us(d, t, p->flops, p->bytes);
        for (int k = 0; k < m->nkey; k++) far += (p->key[k] - at[k]) * (p->key[k] - at[k]);
        if (far > 0 && its < d->launch_us && roofline > d->launch_us) continue;
        double w = 1 / (far * far + 1e-9);
        sum += w * log(p->us / (its + d->product_us));
        weights += w;
    }
    return weights > 0 ? exp(sum / weights) * (roofline + d->product_us) : 0;
}

static double among_points(const Device *d, const Measured *m, Dtype t, const Cost *c) {
    uint64_t hash = (uint64_t)c->bytes * 0x9e3779b97f4a7c15u;
    for (int k = 0; k < c->nkey; k++) hash = (hash ^ (uint64_t)c->key[k]) * 0x9e3779b97f4a7c15u;
    Told *x = &m->told[(hash >> 32) % N_TOLD];
    bool same = x->us > 0 && x->flops == c->flops && x->bytes == c->bytes;
    for (int k = 0; k < c->nkey; k++) same = same && x->key[k] == c->key[k];
    if (same) return x->us;
    *x = (Told){.flops = c->flops, .bytes = c->bytes, .us = search_points(d, m, t, c)};
    memcpy(x->key, c->key, sizeof x->key);
    return x->us;
}

/* What members of a fused group take by themselves beyond what their bytes take: arithmetic that does not hide. */
static double arithmetic_us(const Device *d, const Op *op, const Measured *plain) {
    double us = 0;
    for (int i = 0; i < op->nbody; i++) {
        const Op *m = op->body[i];
        const Measured *own = variant_of(d->kernels[m->kind], "");
        if (!own || own->nkey || !op_info[m->kind].cost) continue;
        double bytes = op_info[m->kind].cost(m).bytes,
               more = on_curve(d, own, bytes, d->memory_bandwidth) - on_curve(d, plain, bytes, d->memory_bandwidth);
        if (more > 0) us += more;
    }
    return us;
}

static const Measured *kernels_of(const Device *d, const Op *op) {
    return d->kernels[op_timed_as(op->kind)];
}

Basis device_event_basis(const Device *d, const Event *e, const char **as) {
    const Op *op = e->op_ir;
    if (!op || e->comm >= 0 || e->stream == HOST || op_is(op, T_COPY)) return MEASURED_ITSELF;
    Cost c = op_info[op->kind].cost ? op_info[op->kind].cost(op) : (Cost){0};
    const Measured *all = kernels_of(d, op), *m = all ? variant_of(all, c.variant) : NULL;
    if (!m || (m->nkey && m->nkey != c.nkey)) return NOT_MEASURED;
    *as = m->variant;
    return m->nkey && strcmp(m->variant, c.variant) ? MEASURED_RELATED : MEASURED_ITSELF;
}

/* `bandwidth`: B/s of what the event's bytes go over. 0: nothing was measured that says something of it. */
static double measured_us(const Device *d, const Event *e, const char *variant, double bandwidth) {
    const Op *op = e->op_ir;
    if (!op) return 0;
    Cost c = !variant && op_info[op->kind].cost ? op_info[op->kind].cost(op) : (Cost){0};
    const Measured *all = kernels_of(d, op);
    if (!all) return 0;
    if (variant) {
        const Measured *m = variant_of(all, variant);
        return m ? on_curve(d, m, e->bytes, bandwidth) : 0;
    }
    const Measured *m = variant_of(all, c.variant);
    if (!m || (m->nkey && m->nkey != c.nkey)) return 0;
    if (m->nkey) return among_points(d, m, operand_dtype(e), &c);
    return on_curve(d, m, e->bytes, bandwidth) + arithmetic_us(d, op, m);
}

/* ── collectives ─────────────────────────────────────────────────────────────────────────────────────────────────────
 */
/* NCCL chooses an algorithm and a protocol by a model of its own, whose constants its source states (ncclTopoTuneModel
 * in src/graph/tuning.cc; these are of 2.19 to 2.27, for NVLink and a network of 400 Gb/s): the latency of a hop inside
 * a node and between two, and the share of the bandwidth that a protocol reaches. Ours is the same model, with the
 * profile's bandwidths, and its network_latency_us scaling the hops between nodes. */
typedef struct {
    double hop, cross, share; /* us, us, of the bandwidth */
} Protocol;
static const Protocol ring[] = {{0.6 * 1.8, 2.7, 0.25}, {1.9, 4.0, 0.92}, {3.4, 14.0, 1}}; /* LL, LL128, Simple */
static const Protocol tree[] = {{0.6 * 1.8, 5.0, 0.25}, {1.25, 8.5, 0.92}, {4.0, 14.0, 0.95}};
enum { PROTOCOLS = 3, HOPS_AT_US = 10 }; /* network_latency_us of the network that the constants are for */

typedef struct {
    double waiting, moving; /* us: for hops, for bytes */
} Way;

static Way best_way(Way best, const Protocol *p, double hops, double crossings, double moving) {
    for (int k = 0; k < PROTOCOLS; k++) {
        Way w = {hops * p[k].hop + crossings * p[k].cross, moving / p[k].share};
        if (best.waiting < 0 || w.waiting + w.moving < best.waiting + best.moving) best = w;
    }
    return best;
}

bool device_event_sums(const Event *e) {
    OpKind k = e->op ? op_by_name(e->op) : N_OPS;
    return k != N_OPS && op_info[k].traits & T_SUMS;
}

/* The sum that every rank has whole; of others a rank has its part. */
static bool sums_whole(const Event *e) {
    return device_event_sums(e) && e->nreads && e->nwrites && e->reads[0].size == e->writes[0].size;
}

/* Of a group that spans nodes. Rings pass every rank, once for a gather or a reduction and twice for a sum that all
 * have; bytes leave a node by as many interfaces (rails) as it has members in the group. A sum may take a tree: a chain
 * in the node, a binary tree over nodes, up and down. With one rank a node, gathers and reductions take trees too (PAT,
 * since 2.23). */
static Way across_nodes(const Device *d, const Event *e, double group, double here) {
    double nodes = group / here, out = d->network_bandwidth * here, far = d->network_latency_us / HOPS_AT_US;
    double moving = e->bytes / (here == 1 ? out : fmin(out, d->link_bandwidth)) * 1e6;
    double times = sums_whole(e) ? 2 : 1, levels = ceil(log2(nodes) - 1e-9);
    Way w = best_way((Way){-1, 0}, ring, times * (group - nodes), times * (nodes - 1) * far, moving);
    if (times == 2 || here == 1) w = best_way(w, tree, times * (here - 1), times * levels * far, moving);
    return w;
}

static double collective_us(const Device *d, const Event *e, int group, int here) {
    if (group <= 1) return d->launch_us;
    if (group == here) {
        char variant[32];
        snprintf(variant, sizeof variant, "%d ranks", group);
        double us = measured_us(d, e, variant, d->link_bandwidth);
        if (us > 0) return us;
        return d->launch_us + d->link_latency_us + (group - 2) * ring[1].hop + e->bytes / d->link_bandwidth * 1e6;
    }
    Way w = across_nodes(d, e, group, here);
    return d->launch_us + fmax(d->link_latency_us, d->network_latency_us) + w.waiting + w.moving;
}

int device_event_group(const Plan *p, const Event *e) {
    return e->comm < 0 ? 1 : p->comms[e->comm].axis->size;
}

static int ranks_a_node(const Plan *p) {
    return p->nodes > 1 ? p->world / p->nodes : p->world;
}

/* Where groups and nodes do not begin together, some node has only what both lengths are multiples of. */
int device_event_here(const Plan *p, const Event *e) {
    if (e->comm < 0) return 1;
    const Axis *a = p->comms[e->comm].axis;
    int common = a->size * a->stride;
    for (int rest = ranks_a_node(p); rest;) {
        int next = common % rest;
        common = rest;
        rest = next;
    }
    return common > a->stride ? common / a->stride : 1;
}

/* ── any event ───────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static double alone_us(const Device *d, const Event *e, int group, int here) {
    if (e->comm >= 0) return collective_us(d, e, group, here);
    double bandwidth = d->memory_bandwidth;
    if (e->op_ir ? op_is(e->op_ir, T_COPY) : e->stream == OFFLOAD || e->stream == FETCH) bandwidth = d->host_bandwidth;
    if (e->stream == HOST) bandwidth = d->host_optimizer_bandwidth;
    double us = e->stream == HOST ? 0 : measured_us(d, e, NULL, bandwidth);
    if (us > 0) return us;
    us = e->bytes / bandwidth * 1e6;
    double peak = peak_flops(d, operand_dtype(e)) * d->matmul_efficiency;
    double math = e->stream == HOST ? 0 : e->flops / peak * 1e6;
    return math > us ? math : us;
}

double device_event_us(const Device *d, const Event *e, int group, int here) {
    double us = alone_us(d, e, group, here);
    if (e->op_ir && group > 1)
        us *= 1 + d->beside[op_timed_as(e->op_ir->kind)].itself; /* kernels always run beside it */
    return fmax(fmax(us, d->launch_us), e->least_us);
}

/* Across nodes bytes leave by as many interfaces as the group has members there, as across_nodes has it. */
void device_event_peaks(const Device *d, const Plan *p, Event *e) {
    bool copies = e->op_ir ? op_is(e->op_ir, T_COPY) : e->stream == OFFLOAD || e->stream == FETCH;
    int group = device_event_group(p, e), here = device_event_here(p, e);
    e->over = OVER_MEMORY;
    e->peak_flops = device_event_is_arithmetic(e) ? peak_flops(d, operand_dtype(e)) : 0;
    e->peak_bytes = d->memory_bandwidth;
    if (copies) e->over = OVER_HOST, e->peak_bytes = d->host_bandwidth;
    if (e->stream == HOST) e->over = OVER_HOST, e->peak_bytes = d->host_optimizer_bandwidth;
    if (e->comm < 0) return;
    e->over = group > here ? OVER_NETWORK : OVER_LINK;
    e->peak_bytes = d->link_bandwidth;
    if (group <= here) return;
    double out = d->network_bandwidth * here;
    e->peak_bytes = here == 1 ? out : fmin(out, d->link_bandwidth);
}

/* ── clock ───────────────────────────────────────────────────────────────────────────────────────────────────────────
 */
bool device_event_is_arithmetic(const Event *e) {
    const Op *op = e->op_ir;
    return op && e->stream == COMPUTE && e->comm < 0 && op_info[op->kind].cost && op_info[op->kind].cost(op).nkey > 0;
}

double device_event_clocked_us(const Device *d, const Event *e, double us) {
    if (!device_event_is_arithmetic(e)) return 0;
    double busy = op_info[e->op_ir->kind].cost(e->op_ir).busy;
    double peak = peak_flops(d, operand_dtype(e)) * (busy > 0 ? busy : d->matmul_efficiency);
    return fmin(us, e->flops / peak * 1e6);
}

static double joules_a_flop(const Power *w, OpKind op, Dtype t) {
    if (w->of_op[op][t] > 0) return w->of_op[op][t];
    return w->flop[t] > 0 ? w->flop[t] : w->flop[FP32];
}

/* Mean power at a clock of 1/slower: E(slower) / T(slower), where T = arithmetic * slower + other. It falls as the
 * clock does, so bisection finds the clock at which it is the limit. */
double device_throttle(const Device *d, const PlanProgram *p, double arithmetic, double other) {
    const Power *w = &d->power;
    double flops = 0, bytes = 0, low = 1, high = 4;
    if (w->watts <= 0 || arithmetic + other <= 0) return 1;
    for (int i = 0; i < p->n; i++) {
        const Event *e = &p->events[i];
        if (e->comm >= 0) bytes += w->link * e->bytes;
        if (e->comm >= 0 || e->stream != COMPUTE) continue;
        Dtype t = operand_dtype(e);
        bytes += w->byte * e->bytes;
        if (device_event_is_arithmetic(e))
            flops +=
                joules_a_flop(w, e->op_ir->kind, t) * (e->flops + op_info[e->op_ir->kind].cost(e->op_ir).also_draws);
    }
    for (int k = 0; k < 40; k++) {
        double slower = k ? (low + high) / 2 : 1, joules = flops * pow(slower, -w->exponent) + bytes,
               seconds = (arithmetic * slower + other) * 1e-6;
        bool fits = w->idle + joules / seconds <= w->watts;
        if (!k && fits) return 1;
        *(fits ? &high : &low) = slower;
    }
    return high;
}

/* What shares something with the other of its kind meanwhile: gathers and reductions the network, by the part of their
 * time that bytes take; copies the bus and the memory that all ranks of a machine copy from and to. */
double device_copy_slows(const Device *d, const Plan *p, const Event *e, bool both_ways) {
    int group = device_event_group(p, e), here = device_event_here(p, e);
    if (e->comm >= 0 && both_ways && group > 1) {
        Way inside = {.waiting = d->launch_us, .moving = e->bytes / d->link_bandwidth * 1e6};
        Way w = group > here ? across_nodes(d, e, group, here) : inside;
        return 1 + w.moving / (w.moving + w.waiting + d->link_latency_us);
    }
    if (!e->op_ir || !op_is(e->op_ir, T_COPY)) return 1;
    double memory = both_ways ? d->host_both / 2 : e->stream == FETCH ? d->host_reads : d->host_writes;
    double bus = both_ways ? 1 + d->beside[e->op_ir->kind].itself : 1;
    return memory > 0 ? fmax(bus, d->host_bandwidth * ranks_a_node(p) / memory) : bus;
}

double device_event_slows(const Device *d, const Event *e) {
    return e->op_ir ? d->beside[op_timed_as(e->op_ir->kind)].kernels : 0;
}
