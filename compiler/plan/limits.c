/* The roofline of an event, from the peaks that its device's profile gave it.
 * Relies on: limits.h.
 * Relied on by: report/explain.c, report/page_blocks.c. */
#include "limits.h"

Limit plan_limit(const Event *e) {
    Limit l = {0};
    double math = e->peak_flops > 0 ? e->flops / e->peak_flops * 1e6 : 0;
    double moving = e->peak_bytes > 0 ? e->bytes / e->peak_bytes * 1e6 : 0;
    if (e->duration_us <= 0 || (math <= 0 && moving <= 0)) return l;
    l.us = math > moving ? math : moving;
    l.flops_share = math / e->duration_us;
    l.bytes_share = moving / e->duration_us;
    l.bound = math > moving ? BOUND_ARITHMETIC : BOUND_BYTES;
    return l;
}

const char *plan_route(Route r) {
    static const char *const words[N_ROUTES] = {[OVER_MEMORY] = "memory",
                                                [OVER_HOST] = "the host's bus",
                                                [OVER_LINK] = "links of the node",
                                                [OVER_NETWORK] = "the network"};
    return words[r];
}
