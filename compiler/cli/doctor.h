/* What `shardc doctor` finds on this machine: a list of facts, each with what does not work without it and the
 * command that mends it.
 * Relies on: base, device.h. Relied on by: doctor.c and the files beside it whose names begin with doctor_. */
#ifndef SHARDC_DOCTOR_H
#define SHARDC_DOCTOR_H

#include "../devices/device.h"

typedef enum { GROUP_MACHINE, GROUP_CPU, GROUP_CUDA, N_GROUPS } Group;
/* ABSENT: something that was not asked for does not work without it. MISSING: what was asked for does not. */
typedef enum { FOUND, DOUBTFUL, ABSENT, MISSING, N_CONDITIONS } Condition;

typedef struct {
    Group group;
    const char *name, *value;   /* "C compiler", "gcc 12.2.0" */
    const char *without, *mend; /* what does not work, the command that mends it; NULL: not said */
    Condition condition;
} Fact;

typedef struct {
    const char *name, *driver, *arch; /* "NVIDIA H200", "580.159", "sm_90"; NULL: not told */
    double bytes;                     /* of memory */
    const Device *profile;            /* built in; NULL: none is of this GPU */
    bool fits;                        /* the profile's memory is this GPU's */
} Gpu;

typedef struct {
    Arena *a;
    const Device *device;  /* --device; NULL: not given */
    bool cuda;             /* it is a GPU's */
    bool needed[N_GROUPS]; /* what was asked for needs the group: what is not there is MISSING */
    VEC(Fact) facts;
    VEC(Gpu) gpus;
    const char *no_gpu; /* why there is none */
    int cores;
    double memory, shared_memory; /* bytes, of which programs may have */
    /* Why programs for the CPU, or for the device or a GPU, cannot be built; NULL: they can. */
    const char *no_cpu_build, *no_cuda_build;
} Doctor;

/* Adds a fact, which is returned so that the rest of it can be set. */
Fact *doctor_found(Doctor *d, Group group, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The same of what is not there: ABSENT or, where its group is needed, MISSING. */
Fact *doctor_lacks(Doctor *d, Group group, const char *name, const char *without, const char *mend, const char *fmt,
                   ...) __attribute__((format(printf, 6, 7)));
const char *doctor_install(Doctor *d, const char *packages); /* the command that installs Debian packages */
const char *doctor_make(Doctor *d, const char *target);      /* the command that makes a library of shardc */

/* The looking, a group each. GPUs first: what they need of the machine depends on how many there are. */
void doctor_gpus(Doctor *d);
void doctor_machine(Doctor *d);
void doctor_cpu(Doctor *d);
void doctor_cuda(Doctor *d);

/* Runs a program without input for at most 20 seconds. Its output, standard error included, without white space at the
 * end; NULL: it could not be run, failed or took longer, and *why says which. args ends with NULL. */
char *doctor_ask(Arena *a, const char *const *args, const char **why);
/* Why programs cannot be built for a target and an architecture (NULL: the CPU's), as `shardc build` says it; NULL:
 * they can. */
const char *doctor_build(Arena *a, const char *target, const char *arch);

#endif
