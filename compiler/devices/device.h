/* Device profiles: what a device can do, read from devices/<name>.lua.
 * Relies on: ops.h, plan.h.
 * Relied on by: lower/lower.h, cost/, schedule/, planner/, report/actual.h, cli/. */
#ifndef SHARDC_DEVICE_H
#define SHARDC_DEVICE_H

#include "../ir/ops.h"
#include "../plan/plan.h"

/* What was measured of an op's kernel. Points of a curve are in ascending order of bytes, and so are their times. */
typedef struct {
    double flops, bytes, key[MAX_KEY], us; /* key: log2 of Cost.key */
} Point;
typedef struct {
    double key[MAX_KEY], flops, bytes, us; /* Cost.key; us: 0 of an empty entry */
} Told;
typedef struct Measured Measured;
struct Measured {
    const char *variant; /* Cost.variant, "4 ranks" of a collective, or "" */
    int nkey;            /* 0: a curve over bytes */
    Point *points;
    int n;
    Told *told; /* what points of sizes have told before, by a hash of the key: plans ask for few kernels often */
    const Measured *next; /* another variant */
};
enum { N_TOLD = 256 };

typedef struct {
    LibraryLine line;
    double per_event;                     /* bytes for every event of every program */
    double further_gathers, further_sums; /* bytes of each communicator beyond one for gathers and one for sums */
    int ranks;     /* in plans of at least as many; of lines of one name, the one for the most ranks */
    OpKind ops[8]; /* in plans with an event of one of them; none: in all */
    int nops;
} DeviceLine;

/* What limits a GPU's clock. Arithmetic at full clock may draw more than the limit; the clock then falls until the
 * step's mean power is the limit. Energies are at full clock; that of arithmetic falls with the clock's `exponent`. */
typedef struct {
    double watts;                  /* the limit; 0: the clock never falls */
    double idle;                   /* W that are drawn whatever runs */
    double byte;                   /* J for a byte of memory traffic */
    double link;                   /* J for a byte that a collective moves; 0: not known */
    double flop[N_DTYPES];         /* J for a FLOP, by operand dtype; 0: as fp32 */
    double of_op[N_OPS][N_DTYPES]; /* the same of ops that differ from products, as attention does; 0: as a product's */
    double exponent;
} Power;

/* How far off times may be that flops and bytes alone tell, as a share: what a profile by data sheet states. */
#define UNMEASURED_OFF 0.30

/* Where a profile's times come from, the best first. */
typedef enum { MEASURED, DERIVED, DATA_SHEET, N_ORIGINS } Origin;

typedef struct {
    const char *name, *target;         /* "h200"; "cpu" or "cuda" */
    const char *arch;                  /* CUDA: "sm_90"; NULL: not known */
    const char *source;                /* "data sheet" or "measured 2026-11-20, ..." */
    const char *like;                  /* the profile whose measured kernels this one scales; NULL: none */
    const char *flops_source;          /* "NVIDIA's data sheet, dense"; NULL: not stated */
    const char *fp8_source;            /* "measured on H200, ...", where kernels in fp8 are another's; NULL: `source` */
    Origin kernels_from, network_from; /* of kernels' times, of those of collectives between nodes */
    double kernels_off, network_off;   /* how far from them a prediction may be, as a share */
    double fp8_off;                    /* likewise, of a step with products in fp8; 0: as others */
    double memory_bytes;               /* physical */
    double usable_bytes;               /* for one process: physical minus what the driver keeps */
    double flops[N_DTYPES];            /* peak matrix throughput by operand dtype, FLOP/s */
    double matmul_efficiency;          /* share of it that large products reach */
    double memory_bandwidth;           /* B/s of the largest copies; 0: the sheet's, derated as `like` is */
    double sheet_bandwidth;            /* B/s by the data sheet; 0: not stated */
    Power power;
    double clock_mhz;         /* the highest; 0: not known */
    double step_mhz;          /* sustained in the mix of products and copies that sc_calibrate measures; 0: not known */
    double link_bandwidth;    /* B/s a rank inside a node, one way */
    double network_bandwidth; /* B/s a rank between nodes */
    double link_latency_us, network_latency_us;
    double host_bandwidth;           /* B/s device to host, each way */
    double host_optimizer_bandwidth; /* B/s of the host optimizer over its state */
    /* B/s that a machine's memory gives to the copies of all its ranks together: up, down, and both at once; 0: as much
     * as they take */
    double host_reads, host_writes, host_both;
    double launch_us;  /* least time of one event */
    double product_us; /* what a product or an attention takes beside its roofline: filling and draining its pipeline */
    const Measured *kernels[N_OPS]; /* NULL: flops and bytes tell */
    struct {
        double kernels, itself;
    } beside[N_OPS]; /* of a collective or copy: shares by which kernels beside it take longer, and it beside them */
    int multiprocessors;    /* of a GPU; 132, an H100's, where the profile does not say */
    int ranks_per_node;     /* at most; a plan's nodes may have fewer. 0: any number */
    int threads;            /* CPU target: threads a rank; sizes workspaces */
    DeviceLine library[16]; /* outside the arena: context, libraries, communicators */
    int nlibrary;
} Device;

/* The compute capability of an architecture, times 10: 89 of "sm_89"; 0: not known. */
int device_capability(const char *arch);
/* GPUs before the first have no products in fp8; those of the second have some with fp32 scales of blocks. */
enum { FP8_CAPABILITY = 89, BLOCKS_CAPABILITY = 90 };
const Device *device_load(Arena *a, const char *name); /* fails naming the profiles there are */
/* The Lua of a profile, by its name or path; file: where it is from, for messages. */
const char *device_text(Arena *a, const char *name, const char **file, size_t *size);
/* Of arithmetic at full clock. By what was measured; else by a roofline of flops, bytes and launch. Of a collective:
 * ranks in its group, and how many of them stand on the node with the fewest. */
double device_event_us(const Device *d, const Event *e, int group, int here);
/* Sets peak_flops, peak_bytes and over of an event, by the profile: what no kernel exceeds but by caches. */
void device_event_peaks(const Device *d, const Plan *p, Event *e);
/* What a kernel's duration is by: measurements of its variant; of the variant `as`, which has fewer words; or of none,
 * so that its flops and bytes tell. Collectives, copies and what the host does have no variants: MEASURED_ITSELF. */
typedef enum { MEASURED_ITSELF, MEASURED_RELATED, NOT_MEASURED } Basis;
Basis device_event_basis(const Device *d, const Event *e, const char **as);
bool device_event_is_arithmetic(const Event *e); /* products, attention */
/* Of an event that takes `us` at full clock, the microseconds that grow as the clock falls: 0 of one that is bound by
 * memory, all of a product that is large enough. */
double device_event_clocked_us(const Device *d, const Event *e, double us);
/* By how much arithmetic takes longer when a program draws its power for `arithmetic` us at full clock (which a lower
 * clock stretches) and `other` us (which it does not, waiting included). */
double device_throttle(const Device *d, const PlanProgram *p, double arithmetic, double other);
double device_copy_slows(const Device *d, const Plan *p, const Event *e,
                         bool both_ways); /* a factor; of other events 1 */
/* A collective that adds up what ranks have, by what it does: rows of a sparse table are gathered among the sums. */
bool device_event_sums(const Event *e);
double device_event_slows(const Device *d, const Event *e); /* the share by which kernels beside it take longer */
void device_footprint(Plan *p, const Device *d);            /* sets p->library */
int device_event_group(const Plan *p, const Event *e);      /* ranks that take part in a collective */
int device_event_here(const Plan *p, const Event *e);       /* of them on the node with the fewest */

#endif
