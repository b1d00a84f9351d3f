/* Reads the variables that launchers set. The order in which launchers are tried matters: they run within each other.
 * Relies on: place.h, parent.h, number.h.
 * Relied on by: job.c. */
#include "place.h"
#include "../number.h"
#include "parent.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_IDS = 4, PORT = 29500 /* as torchrun has it */ };

typedef struct {
    const char *name, *option;
    const char *rank, *world, *local, *locals, *node, *nodes;
    const char *own; /* set by the launcher alone, never by hand; NULL: as `rank` */
    const char *ids[MOST_IDS];
} launcher;

/* The innermost one first: mpirun within srun, torchrun within either. */
static const launcher launchers[] = {
    {.name = "torchrun",
     .option = "--nproc-per-node",
     .rank = "RANK",
     .world = "WORLD_SIZE",
     .local = "LOCAL_RANK",
     .locals = "LOCAL_WORLD_SIZE",
     .node = "GROUP_RANK",
     .own = "TORCHELASTIC_RUN_ID",
     .ids = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
    {.name = "mpirun",
     .option = "-n",
     .rank = "OMPI_COMM_WORLD_RANK",
     .world = "OMPI_COMM_WORLD_SIZE",
     .local = "OMPI_COMM_WORLD_LOCAL_RANK",
     .locals = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .ids = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {.name = "srun",
     .option = "--ntasks",
     .rank = "SLURM_PROCID",
     .world = "SLURM_STEP_NUM_TASKS",
     .local = "SLURM_LOCALID",
     .node = "SLURM_NODEID",
     .nodes = "SLURM_STEP_NUM_NODES",
     .ids = {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
    {.name = "mpirun",
     .option = "-n",
     .rank = "PMI_RANK",
     .world = "PMI_SIZE",
     .local = "MPI_LOCALRANKID",
     .locals = "MPI_LOCALNRANKS",
     .ids = {"PMI_ID", "PMI_PORT"}},
};

int sc_place_number(const char *variable, int otherwise) {
    const char *text = variable ? getenv(variable) : NULL;
    int64_t x;
    return text && sc_read_whole(text, 0, 1 << 20, &x) ? (int)x : otherwise;
}

/* The launcher whose variables are set; NULL: none, or `wrong` says what is impossible in them. A process that took
 * such a pair for nothing would start all ranks, as would each of the others. One variable of a pair says nothing:
 * shells have WORLD_SIZE set. */
static const launcher *find(char *wrong, size_t n) {
    for (const launcher *l = launchers; l < launchers + sizeof launchers / sizeof *launchers; l++) {
        const char *rank = getenv(l->rank), *world = getenv(l->world);
        int ranks = sc_place_number(l->world, 0), k = sc_place_number(l->rank, -1);
        if (!rank || !*rank || !world || !*world) continue;
        if (ranks < 1)
            snprintf(wrong, n, "%s=%.40s is no number of ranks", l->world, world);
        else if (k < 0)
            snprintf(wrong, n, "%s=%.40s is no rank, a whole number from 0 on and below %s=%d", l->rank, rank, l->world,
                     ranks);
        else if (k >= ranks)
            snprintf(wrong, n, "%s=%d is not below %s=%d", l->rank, k, l->world, ranks);
        if (*wrong) return NULL;
        if (ranks > 1) return l;
    }
    return NULL;
}

/* Also where a launcher has started one rank: then this process starts the others. */
static bool certain(void) {
    bool any = false;
    for (const launcher *l = launchers; l < launchers + sizeof launchers / sizeof *launchers; l++) {
        const char *own = getenv(l->own ? l->own : l->rank), *rank = getenv(l->rank), *world = getenv(l->world);
        any |= own && *own && rank && *rank && world && *world;
    }
    return any;
}

static uint64_t mix(uint64_t h, const char *s) { /* FNV-1a */
    for (; s && *s; s++) h = (h ^ (unsigned char)*s) * 1099511628211u;
    return (h ^ 0xff) * 1099511628211u;
}

sc_place sc_place_find(void) {
    sc_place alone = {.world = 1, .locals = 1, .nodes = 1, .certain = certain()};
    if (alone.certain) sc_parent_find(true);
    const launcher *l = find(alone.wrong, sizeof alone.wrong);
    if (!l) return alone;
    sc_place p = {.launcher = l->name,
                  .rank_variable = l->rank,
                  .world_variable = l->world,
                  .option = l->option,
                  .certain = alone.certain,
                  .rank = sc_place_number(l->rank, 0),
                  .world = sc_place_number(l->world, 0),
                  .node = sc_place_number(l->node, 0),
                  .name = mix(14695981039346656037u, l->name)};
    char parent[32] = "";
    for (int i = 0; i < MOST_IDS && l->ids[i]; i++) p.name = mix(p.name, getenv(l->ids[i]));
    if (!strncmp(l->rank, "PMI", 3)) snprintf(parent, sizeof parent, "%d", sc_parent_process());
    p.name = mix(p.name, parent);
    int nodes = sc_place_number(l->nodes, 1);
    p.locals = sc_place_number(l->locals, p.world % (nodes ? nodes : 1) ? 0 : p.world / (nodes ? nodes : 1));
    p.nodes = p.locals && p.world % p.locals == 0 ? p.world / p.locals : 0;
    p.local = sc_place_number(l->local, p.nodes == 1 ? p.rank : 0);
    const char *given = getenv("MASTER_ADDR"), *list = getenv("SLURM_STEP_NODELIST");
    if (given && *given) {
        snprintf(p.host, sizeof p.host, "%.255s", given);
    } else if (list && *list) { /* "gpu[03-05,9]" begins with gpu03, "a,b" with a */
        size_t prefix = strcspn(list, "[,"), digits = 0;
        if (list[prefix] == '[') digits = strcspn(list + prefix + 1, "-,]");
        snprintf(p.host, sizeof p.host, "%.*s%.*s", (int)prefix, list, (int)digits,
                 list[prefix] ? list + prefix + 1 : "");
    }
    p.port = sc_place_number("SHARDC_PORT", sc_place_number("MASTER_PORT", PORT) + 1); /* torchrun listens there */
    return p;
}
