/* The command line: what was asked for, and one function for each command.
 * Relies on: base, plan.h.
 * Relied on by: main.c and the files beside this one. */
#ifndef SHARDC_CLI_H
#define SHARDC_CLI_H

#include "../devices/device.h"
#include "../report/report.h"

typedef VEC(const char *) Strings;
typedef struct Options Options;
struct Options {
    Strings inputs, set, policies;
    Strings keep;  /* plan: choices that stay */
    Strings limit; /* as given: the sandbox knows them */
    Strings sweep; /* predict: keys and their values */
    const char *target, *arch, *device, *out, *format, *dump_after, *variant;
    const char *program, *module, *stream;  /* inspect's filters */
    const char *columns;                    /* inspect: what a line says */
    const char *actual;                     /* inspect: traces of a run */
    Strings traced;                         /* report: PROGRAM=TRACES */
    const char *at, *by;                    /* predict: when, and a table of whom */
    double tokens, price;                   /* predict: to train on, and of a device's hour; 0: not given */
    const char *table, *tasks, *from_trace; /* calibrate: files */
    bool quick;                             /* calibrate: no kernels */
    const char *batch;                      /* verify: a file of plan paths, for the tests */
    int world, nodes, redzone;              /* world, nodes: 0 until given */
    int document_length;                    /* of attention's documents; 0: as the model says */
    int separator;                          /* data: a token between texts, or -1 */
    const char *tokenizer, *chat_template;  /* data: a tokenizer.json or its folder; a file, "none", or NULL */
    bool chat, pairs, no_pack, drop_long;   /* data: what lines are, how rows are filled */
    int seq;                                /* data: tokens of a row */
    const char *as, *key;       /* data: bytes, text or jsonl, NULL: as the file says; JSON's member with the text */
    double delay_us[N_STREAMS]; /* of collectives, by stream */
    bool delayed;
    double most_forward_ms, most_step_ms, most_exposed_ms; /* verify; -1: no bound */
    int64_t capacity, effort_millions;                     /* pack: bytes, -1: as few as can be; steps of search */
    bool sources;                                          /* build: compile nothing */
    int64_t budget;                                        /* plan, build, run: bytes of the device's arena; 0: none */
    bool explain;                 /* plan: every plan that was placed; predict, inspect, build: what passes changed */
    bool curve;                   /* plan: time over budget */
    const char *svg, *max, *best; /* predict: the sweep's picture; keys whose largest or best value is wanted */
    bool quiet;                   /* remarks are not printed */
    bool one_microbatch;          /* whatever the model accumulates: the planner's */
    const char *curve_svg;        /* a file for its picture, or NULL */
    char **rest;                  /* run: what follows --, for the program */
    int nrest;
    const Options *vs;   /* diff: the options of B, where --vs was given; these are those before it */
    const char *fail_if; /* diff: bounds */
    bool every;          /* diff: all rows, of text */
};

int command_build(Arena *a, const Options *o);
int command_run(Arena *a, const Options *o);
int command_predict(Arena *a, const Options *o);
int command_plan(Arena *a, const Options *o);
int command_explain(Arena *a, const Options *o);
int command_inspect(Arena *a, const Options *o);
int command_diff(Arena *a, const Options *o);
int command_report(Arena *a, const Options *o);
int command_verify(Arena *a, const Options *o);
int command_data(Arena *a, const Options *o);
void cli_data_chat(Arena *a, const Options *o); /* of --chat and --pairs; the inputs are there */
int command_import(Arena *a, const Options *o);
int command_calibrate(Arena *a, const Options *o);
int command_pack(Arena *a, const Options *o);
int command_doctor(Arena *a, const Options *o);

/* From a model (runs the whole pipeline), a plan.json or a built binary. */
Plan *cli_plan(Arena *a, const Options *o, const char *input);
bool cli_is_model(const char *path);                     /* ends in .lua */
void cli_check_program(const Plan *p, const char *name); /* fails naming the nearest where the plan has none of it */

/* A model under further policy entries ("" adds none), which stand over the model's and --policy's. estimate: see
 * PlannerCompile. */
Plan *cli_compile(Arena *a, const Options *o, const char *input, const char *entries, bool estimate);
const Device *cli_device(Arena *a, const Options *o);
const char *cli_device_name(const Options *o); /* or path, as device_load takes it */
/* The fastest plan that has at most --budget bytes; where none is given, those of the device. Fails where nothing fits.
 */
Plan *cli_planned(Arena *a, const Options *o, const char *input, const char **choice); /* choice: for people; or NULL */

/* The first option given that says how to compile a model, --world apart; NULL: none. */
const char *cli_model_option(const Options *o);
/* They are of no use with what is compiled already. */
void cli_refuse_model_options(const Options *o, const char *input);

/* Where a report goes: standard output, or the file of -o, renamed into place by cli_output_done. */
OutFile cli_output(Arena *a, const Options *o);
void cli_output_done(const Options *o, OutFile *f);
void cli_printed(void); /* ends a report on standard output: fails where it could not be written */
bool cli_as_json(const Options *o);
bool cli_as_csv(const Options *o);

bool cli_bytes(const char *text, int64_t *bytes); /* "60GiB", "80GB", "512MiB", "4096"; false: it is none of these */
/* The command line that compiles the same model with another command, quoted for a shell: "shardc plan m.lua --world
 * 8". */
const char *cli_again(Arena *a, const Options *o, const char *command);

/* predict with these options; they return the exit code. */
int cli_sweep(Arena *a, const Options *o);
int cli_max(Arena *a, const Options *o);
int cli_best(Arena *a, const Options *o);

/* The fastest plan that fits the device or --budget; NULL: none does, and `least` is the smallest arena found. */
Plan *cli_fastest(Arena *a, const Options *o, const char *input, int64_t *least);
Advice cli_advice(Arena *a, const Options *o, const Plan *p); /* for a plan that does not fit */

#endif
