/* The command line of a training program.
 * Relies on: argp, sc.h.
 * Relied on by: run, train, sample, weights. */
#ifndef HOST_ARGS_H
#define HOST_ARGS_H

#include "../target.h"

enum { ARGS_ROWS = 80 }; /* of the table of options, at most */

typedef struct {
    char **at;
    int n;
} Names;

enum { EXPORT_KEPT, EXPORT_FP32, EXPORT_BF16, EXPORT_FP16, EXPORT_LOADED };

typedef struct {
    Names data, val_data, weights, weights_map, weights_copy;
    bool weights_partial;
    int data_width; /* bytes a token of raw files; 0: by their names */
    bool records;   /* --data - */
    int64_t steps;  /* -1: not given */
    const char *save, *resume, *export_path, *export_like, *log, *report;
    int export_dtype; /* EXPORT_... */
    bool export_adapters;
    int64_t shard_size; /* of what is exported, bytes; 0: one file */
    const char *go_on;  /* --continue: save and resume are this folder, which may hold no state yet */
    int64_t save_every, keep, eval_every, eval_steps, patience;
    bool eval_only, keep_best, save_in_background;
    double time_limit; /* hours; 0: none */
    bool has_seed;
    uint64_t seed;
    int64_t sample; /* tokens; 0: none */
    bool ema;       /* validate, sample and export the average of the weights */
    const char *prompt, *tokenizer, *chat_template;
    bool chat;
    int sample_ids; /* -1: by the vocabulary, 0 bytes, 1 ids */
    double temperature;
    int64_t top_k; /* 0: all */
    int accumulate, threads;
    double lr, beta1, beta2, eps, momentum, weight_decay, clip, min_ratio;
    int64_t warmup, total, decay_steps;
    bool quiet, allow_nan, libraries;
    sc_debug debug;
    bool given[ARGS_ROWS], taken[ARGS_ROWS]; /* by the command line; from the state that is resumed */
} Options;

/* Defaults come from the build. Usage errors end in exit 2, what the build cannot do in exit 1. */
void args_free(Options *o);
Options args_parse(const sc_build *b, int argc, char **argv);
/* After that, and after args_take of what a resumed state says: the number of steps, and what options mean together. */
void args_settle(const sc_build *b, Options *o);
/* By an option's name, without --. */
bool args_given(const Options *o, const char *name);
bool args_taken(const Options *o, const char *name);
void args_take(Options *o, const char *name);
bool args_has(const sc_build *b, const char *name); /* it changes something in this build */
bool args_allows(const char *name, double x);       /* a value that the command line may give */
/* The arguments that all ranks of a job must have alike, in new memory: a line for each option, such as "--lr 0.1", in
 * the order of the table. Says nothing about wrong arguments. */
char *args_terms(int argc, char **argv);
sc_group_info args_group(const sc_build *b, const Options *o, int i); /* of parameters, as the options have it */
bool threads_compute(const sc_build *b); /* CPU threads compute something: their number matters */

#endif
