/* How long an event takes on a device: a roofline for kernels, bytes over bandwidth for what travels.
 * Relies on: device profiles; flops and bytes that order put into the event.
 * Relied on by: simulate, order. */
#include "../devices/device.h"

static Dtype operand_dtype(const Event *e) {
    const Op *op = e->op_ir;
    if (op && op->nin) return op->in[0]->dtype;
    return op && op->nout ? op->out[0]->dtype : FP32;
}

static double matrix_flops(const Device *d, Dtype t) {
    double f = d->flops[t] > 0 ? d->flops[t] : d->flops[FP32];
    return f * d->matmul_efficiency;
}

static double steps(double n) { /* of a tree over n members */
    double s = 0;
    for (; n > 1; n /= 2) s++;
    return s;
}

/* Every rank sends `bytes` round the group. Of a group that spans nodes each node's members share the way out: as many
 * network interfaces as the node has members in the group. */
static double collective_us(const Device *d, const Event *e, int world, int group) {
    if (group <= 1) return d->launch_us;
    double a_node = d->ranks_per_node > 0 ? d->ranks_per_node : world;
    /* A replicate group takes one rank of every shard group, so that neighbours in it lie world / group apart. */
    double here = e->comm == 1 ? a_node * group / world : a_node;
    if (here > group) here = group;
    if (here < 1) here = 1;
    double nodes = group / here, bandwidth = d->link_bandwidth, latency = d->link_latency_us * steps(here);
    if (nodes > 1) {
        double out = d->network_bandwidth * here;
        if (here == 1 || out < bandwidth) bandwidth = out;
        latency += d->network_latency_us * steps(nodes);
    }
    return d->launch_us + latency + e->bytes / bandwidth * 1e6;
}

int event_group(const Plan *p, const Event *e) {
    if (e->comm == 2 || !p->nunits) return p->world;
    const PlanUnit *u = &p->units[e->unit >= 0 && e->unit < p->nunits ? e->unit : 0];
    return e->comm == 1 ? u->replicas : u->shards;
}

double event_duration_us(const Device *d, const Event *e, int world, int group) {
    if (e->comm >= 0) return collective_us(d, e, world, group);
    double bandwidth = d->memory_bandwidth;
    if (e->stream == OFFLOAD || e->stream == FETCH) bandwidth = d->host_bandwidth;
    if (e->stream == HOST) bandwidth = d->host_optimizer_bandwidth;
    double us = e->bytes / bandwidth * 1e6;
    double math = e->stream == HOST ? 0 : e->flops / matrix_flops(d, operand_dtype(e)) * 1e6;
    if (math > us) us = math;
    return us > d->launch_us ? us : d->launch_us;
}
