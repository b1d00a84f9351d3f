/* Every way in which a command line, a file or a saved state can be wrong: one message, and nothing is touched.
 * Relies on: host_run.h.
 * Relied on by: make test. */
#include "host_run.h"
#include <regex.h>

TestSuite(host_bad, .init = enter, .fini = leave, .timeout = 60);

/* ── bad input, one row each ─────────────────────────────────────────────────────────────────────────────────────────
 */
static void no_sample(MockBuild *m) {
    m->b.logits_program = -1;
}
static void no_eval(MockBuild *m) {
    m->programs[3].name = "other";
}
static void no_clip(MockBuild *m) {
    m->b.clip = 0;
}
static void no_total(MockBuild *m) {
    m->b.total = 0;
}
static void sgd(MockBuild *m) {
    m->b.optimizer = "sgd";
    for (int i = 0; i < 2; i++) m->units[i].has_m = m->units[i].has_v = 0;
}
static void momentum(MockBuild *m) {
    m->b.optimizer = "sgd";
    for (int i = 0; i < 2; i++) m->units[i].has_v = 0;
}
static void adam(MockBuild *m) {
    m->b.optimizer = "adam";
}
static void constant(MockBuild *m) {
    m->b.schedule = "constant";
}
static void wsd(MockBuild *m) {
    m->b.schedule = "wsd", m->b.decay_steps = 6;
}
static void function(MockBuild *m) {
    static const float factors[8] = {1, 1, 1, 1, 0.5f, 0.5f, 0.5f, 0};
    m->b.schedule = "function", m->b.factors = factors, m->b.warmup = 0;
}
static void two_sample_inputs(MockBuild *m) {
    m->inputs[1].in_sample = 1;
}
static void no_sample_input(MockBuild *m) {
    m->inputs[0].in_sample = 0;
}
static void odd_sample_input(MockBuild *m) {
    m->inputs[0].sample_shape[1] = 8;
}
static void no_inputs(MockBuild *m) {
    m->b.ninputs = 0, m->b.ncounts = 0;
}
static void other_shape(MockBuild *m) {
    m->params[1].shape[0] = 7, m->params[1].shape[1] = 10;
}
static void other_size(MockBuild *m) {
    m->params[0].numel = 380, m->params[0].shape[0] = 95, m->params[0].shape[1] = 4;
}
static void other_name(MockBuild *m) {
    m->params[3].path = "layers.0.weight";
}
static void other_hash(MockBuild *m) {
    m->b.plan_hash = 5;
}
static void other_dtype(MockBuild *m) {
    m->units[1].dtype = FP16;
}
static void for_cuda(MockBuild *m) {
    m->b.target = "cuda";
}
static void for_cuda_alone(MockBuild *m) {
    m->b.target = "cuda";
    m->b.host_bytes = 0;
}
static void int_param(MockBuild *m) {
    m->params[5].dtype = INT32;
}
static void small_buffer(MockBuild *m) {
    m->params[5].numel = 3;
}

static void far_group(MockBuild *m) {
    m->groups[1].lr = 1e14 * m->groups[0].lr;
}
static void near_group(MockBuild *m) {
    m->groups[1].weight_decay = 0.1 * m->groups[0].weight_decay;
}
static void far_batch(MockBuild *m) {
    for (int i = 0; i < 2; i++) m->inputs[i].shape[0] = 1 << 30;
}

typedef struct {
    int code;
    const char *line, *message;
    void (*change)(MockBuild *m);
} Case;

static const Case cases[] = {
    {2, "--data a.bin --nonsense", "unrecognized option"},
    {2, "", "nothing to do"},
    {2, "a.bin", "belongs to no option"},
    {2, "--steps 3", "--steps 3 needs --data"},
    {2, "--data a.bin --steps x", "--steps wants a whole number from 0"},
    {2, "--data a.bin --steps -1", "--steps wants a whole number"},
    {2, "--data a.bin --steps 99999999999999999999", "--steps wants a whole number"},
    {2, "--data a.bin --lr nan", "--lr wants a number from 0 to 1e+30, not 'nan'"},
    {2, "--data a.bin --min-ratio 2", "--min-ratio wants a number from 0 to 1"},
    {2, "--data a.bin --betas 0.9", "--betas wants two numbers"},
    {2, "--data a.bin --betas 0.9,2", "--betas wants a number from 0 to below 1, not '2'"},
    {2, "--data a.bin --betas nan,0.9", "--betas wants a number from 0 to below 1, not 'nan'"},
    {2, "--data a.bin --momentum 1", "--momentum wants a number from 0 to below 1", sgd},
    {2, "--data a.bin --eps 0", "--eps wants a number above 0, at most 1e+30, not '0'"},
    {2, "--data a.bin --lr 1e39", "--lr wants a number from 0 to 1e+30, not '1e39'"},
    {2, "--data a.bin --weight-decay -0.1", "--weight-decay wants a number from 0 to 1e+30, not '-0.1'"},
    {2, "--data a.bin --lr 1e-46",
     "--lr wants 0 or a number from 1.18e-38 on, the least that fp32 holds in full, not "},
    {2, "--data a.bin --lr 1e-40", "--lr wants 0 or a number from 1.18e-38 on"},
    {2, "--data a.bin --clip 1e-46", "--clip wants 0 or a number from 1.18e-38 on"},
    {2, "--data a.bin --weight-decay 1e-46", "--weight-decay wants 0 or a number from 1.18e-38 on"},
    {2, "--data a.bin --betas 1e-46,0.9", "--betas wants 0 or a number from 1.18e-38 on"},
    {2, "--data a.bin --betas 0.9,0.99999999999", "--betas wants a number from 0 to below 1"},
    {2, "--data a.bin --eps 1e-40", "--eps wants a number from 1.18e-38 on, the least that fp32 holds in full, not "},
    {2, "--data a.bin --momentum 1e-300", "--momentum wants 0 or a number from 1.18e-38 on", sgd},
    {2, "--data a.bin --lr 1e-400", "--lr wants a number from 0 to 1e+30, not '1e-400'"},
    {2, "--data a.bin --lr 0x1p-3", "--lr wants a number from 0 to 1e+30, not '0x1p-3'"},
    {2, "--data a.bin --lr inf", "--lr wants a number from 0 to 1e+30, not 'inf'"},
    {2, "--data a.bin --lr 0.1x", "--lr wants a number from 0 to 1e+30, not '0.1x'"},
    {2, "--data a.bin --lr 0,1", "--lr wants a number from 0 to 1e+30, not '0,1'"},
    {2, "--data a.bin --min-ratio 1e-400", "--min-ratio wants a number from 0 to 1, not '1e-400'"},
    {2, "--data a.bin --stall-seconds 0x10", "--stall-seconds wants a number from 0 to 1e+09, not '0x10'"},
    {2, "--data a.bin --steps 0x10", "--steps wants a whole number from 0 to 281474976710656, not '0x10'"},
    {2, "--data a.bin --steps 5.0", "--steps wants a whole number from 0 to 281474976710656, not '5.0'"},
    {2, "--data a.bin --warmup 9223372036854775807", "--warmup wants a whole number from 0 to 281474976710656"},
    {2, "--data a.bin --total 1e6", "--total wants a whole number from 1 to 281474976710656"},
    {2, "--data a.bin --seed 9223372036854775808", "--seed wants a whole number from 0 to 9223372036854775807"},
    {2, "--data a.bin --accumulate 2147483649", "--accumulate wants a whole number from 1 to 1048576"},
    {1, "--data a.bin --lr 1e30",
     "--lr 1e+30: group 1, which keeps its ratio to it, gets 1e+44, and fp32 holds only 0 "
     "and numbers from 1.18e-38 to 3.4e+38 in full",
     far_group},
    {1, "--data a.bin --weight-decay 2e-38", "--weight-decay 2e-38: group 1, which keeps its ratio to it, gets 2e-39",
     near_group},
    {1, "--data a.bin --lr 1e-30 --min-ratio 1e-9", "--min-ratio 1e-09: the learning rate of 1e-30 ends at 1e-39"},
    {1, "--data a.bin --steps 281474976710656",
     "--steps 281474976710656 of 2.14748e+09 samples: there are more than "
     "can be counted; give fewer steps",
     far_batch},
    {2, "--data a.bin --delay-collectives x", "--delay-collectives wants a number from 0 to 1e+06, not 'x'"},
    {2, "--data a.bin --delay-collectives fetch=2",
     "--delay-collectives wants MS, gather=MS, reduce=MS or exchange=MS"},
    {2, "--data a.bin --data-dtype int8", "--data-dtype wants uint16 or uint32"},
    {2, "--data a.bin --save-every 2", "--save-every needs --save"},
    {2, "--data a.bin --eval-every 2", "--eval-every needs --val-data"},
    {2, "--data a.bin --eval-steps 2", "--eval-steps needs --val-data"},
    {2, "--data a.bin --top-k 3", "--top-k needs --sample N"},
    {2, "--data - --data-dtype uint16", "--data-dtype says what token files hold"},
    {2, "--data a.bin --dump x", "--dump needs --at-step N and -o FILE"},
    {2, "--data a.bin --at-step 3", "belong to --dump"},
    {2, "--data a.bin -o x", "belong to --dump"},
    {2, "--data a.bin --steps 2 --dump x --at-step 5 -o y", "--at-step 5 is beyond the last step 2"},
    {2, "--data a.bin --dump x --at-step 9 -o y", "--at-step 9 is beyond the last step 8"},
    {2, "--data a.bin --warmup 10 --total 5", "--warmup 10 is longer than the schedule, --total 5"},
    {2, "--data a.bin --warmup 10 --steps 20", "--warmup 10 is longer than the schedule, --total 8 (the model's)"},
    {2, "--data a.bin --total 1", "--warmup 2 (the model's) is longer than the schedule, --total 1"},
    {2, "--data a.bin --total 5",
     "--decay-steps 6 (the model's) is more than lies between --warmup 2 (the model's) and", wsd},
    {1, "--data a.bin --decay-steps 3", "--decay-steps: this binary's schedule is 'cosine', which has none"},
    {1, "--data a.bin --warmup 3", "--warmup: this binary's learning rate is lr times what optim.schedule's function",
     function},
    {1, "--data a.bin --total 3", "--steps N says how long to train (the last factor stays), or change the function",
     function},
    {1, "--data a.bin --decay-steps 3", "--decay-steps: this binary's learning rate is lr times", function},
    {2, "--data - --data a.bin", "--data - stands alone"},
    {2, "--resume state --weights w.st --data a.bin", "not both"},
    {2, "--data a.bin --resume auto",
     "--resume auto goes on from the state in --save DIR, if there is one: give --save"},
    {2, "--data a.bin --resume auto --save x --continue y",
     "--continue y is --resume y and --save y: leave --resume out"},
    {2, "--resume state --weights-map a=b --export x", "--weights-map needs --weights FILE..."},
    {2, "--data a.bin --weights-partial", "--weights-partial needs --weights FILE..."},
    {2, "--weights w.st --weights-map a.*=b --export x", "--weights-map wants FILE=MODEL, two names or two patterns"},
    {2, "--weights w.st --weights-map a --export x", "with one * each, not 'a'"},
    {2, "--weights w.st --weights-map =b --export x", "--weights-map wants FILE=MODEL"},
    {2, "--weights w.st --weights-map a*.*=*.*b --export x", "--weights-map wants FILE=MODEL"},
    {2, "--weights w.st --weights-map a=b=c --export x", "--weights-map wants FILE=MODEL"},
    {2, "--data a.bin --prompt x", "--prompt needs --sample"},
    {2, "--data a.bin", "how long?", no_total},
    {1, "--data a.bin --accumulate 2", "build it with `accumulate` > 1"},
    {1, "--data a.bin --threads 3",
     "--threads 3: the workspaces of this binary are for 2 threads a rank; give fewer, or build it with --device FILE"},
    {1, "--data a.bin --threads 3",
     "--threads 3: nothing of this binary is in host memory, and all is computed on the GPU; leave it out",
     for_cuda_alone},
    {1, "--data a.bin --clip 1", "built without clipping", no_clip},
    {1, "--data a.bin --momentum 0.9", "built without momentum", sgd},
    {1, "--data a.bin --momentum 0.9",
     "--momentum: this binary was built with optim.AdamW, which has none but --betas and --eps; build it with "
     "optim.SGD or optim.Muon { "},
    {1, "--data a.bin --momentum 0", "with optim.Adam, which has none but --betas and --eps", adam},
    {1, "--data a.bin --betas 0.9,0.99", "--betas: this binary was built with optim.SGD", momentum},
    {1, "--data a.bin --eps 1e-6",
     "--eps: this binary was built with optim.SGD, which has none; build it with optim.Adam or optim.AdamW or "
     "optim.Muon { eps",
     sgd},
    {1, "--data a.bin --steps 2 --total 9", "after the warm-up; --steps N says how long", constant},
    {1, "--data a.bin --steps 2 --min-ratio 0.1", "--min-ratio: this binary's learning rate", constant},
    {1, "--data a.bin --no-graph", "--no-graph: a CPU's program makes no graph; leave it out"},
    {1, "--data a.bin --share-gpus", "--share-gpus: a CPU's program has no GPU to share; leave it out"},
    {1, "--data a.bin --require-cudnn", "--require-cudnn: a CPU's program does without cuDNN; leave it out"},
    {1, "--libraries", "--libraries: a CPU's program loads no library of CUDA; leave it out"},
    {1, "--data a.bin --virtual-clock", "--virtual-clock: a GPU's events take the time that they take", for_cuda},
    {1, "--sample 3", "no sample program", no_sample},
    {1, "--sample 3", "takes 'targets' besides tokens", two_sample_inputs},
    {1, "--sample 3", "the sample program takes no tokens", no_sample_input},
    {1, "--sample 3", "takes 8 tokens and gives logits of 16 positions", odd_sample_input},
    {1, "--sample 3 --sample-format ids --prompt 1,x", "tokens are ids from 0 to 199"},
    {1, "--sample 3 --sample-format ids --prompt 200", "tokens are ids from 0 to 199"},
    {1, "--sample 3 --prompt \xe4", "byte 228 is not in the model's vocabulary of 200"},
    {1, "--data nowhere.bin", "nowhere.bin: no such file"},
    {1, "--data nowhere*.bin", "nowhere*.bin: no such file; --data takes files"},
    {1, "--data a.bin --val-data nowhere.bin", "nowhere.bin: no such file; --val-data takes files"},
    {1, "--data .", ".: it is a folder, not a file; quote a pattern"},
    {1, "--data /dev/null", "not a regular file"},
    {1, "--data empty", "empty: an empty file"},
    {1, "--data text.bin",
     "text.bin: it is text, and not tokens: `shardc data FILE -o train.bin` makes tokens of it, a byte each, "
     "or with --tokenizer DIR a model's"},
    {1, "--data text.bin --data-dtype uint16", "text.bin: it is text, and not tokens"},
    {1, "--data a.bin --val-data text.bin", "text.bin: it is text, and not tokens"},
    {1, "--data raw", "raw: not an llm.c token file (it begins with 65537, not 20240520 or 20240801)"},
    {1, "--data tiny.bin", "--data (1 file): 100 tokens make 6 windows of 17, but a step takes 8"},
    {1, "--data a.bin --val-data short.bin",
     "--val-data (1 file): 16 tokens make 0 windows of 17, but a validation takes 1"},
    {1, "--data big.bin", "big.bin: token 5 is 300, but the model's vocabulary ends at 199"},
    {1, "--data a.bin --val-data val.bin", "no eval program", no_eval},
    {1, "--data a.bin", "this model has no inputs", no_inputs},
    {1, "--data a.bin --save a.bin/state", "cannot save to a.bin/state: Not a directory"},
    {1, "--data a.bin --save a.bin", "cannot save to a.bin: Not a directory"},
    {1, "--data a.bin --save /proc/state", "cannot save to /proc/state: No such file"},
    {1, "--data a.bin --save state",
     "state holds a training state at step 2: go on with --resume state, or name another folder"},
    {1, "--data a.bin --resume state --save sgd", "sgd holds a training state at step 2"},
    {1, "--data a.bin --save foreign", "foreign/index.json is not the index of a checkpoint"},
    {1, "--data a.bin --export nowhere/x.st", "cannot export to nowhere/x.st: No such file"},
    {1, "--data a.bin --export state", "cannot export to state: it is not a regular file"},
    {1, "--data a.bin --log a.bin", "--log a.bin would write over what --data reads: name another file"},
    {1, "--data a*.bin --export ./a.bin", "--export ./a.bin would write over what --data reads"},
    {1, "--data a.bin --val-data val.bin --trace val.bin", "--trace val.bin would write over what --val-data reads"},
    {1, "--weights w.st --sample 3 --log w.st", "--log w.st would write over what --weights reads"},
    {1, "--data a.bin --log out.txt --export out.txt", "--log and --export are one file, out.txt: name another"},
    {1, "--data a.bin --log new.txt --trace state/../new.txt", "--log and --trace are one file, state/../new.txt"},
    {1, "--data a.bin --trace text.bin --dump x --at-step 1 -o ./text.bin", "-o and --trace are one file, text.bin"},
    {2, "--data a.bin --log=", "--log wants FILE, not ''"},
    {2, "--data a.bin --resume=", "--resume wants DIR, not ''"},
    {1, "--data a.bin --log nowhere/log", "cannot write the log nowhere/log: No such file"},
    {1, "--data a.bin --log state", "cannot write the log state: Is a directory"},
    {1, "--weights nowhere.st --export x", "nowhere.st: cannot open it: No such file"},
    {1, "--weights a.bin --export x", "a.bin: its header claims"},
    {1, "--weights w.st --export x", "w.st: 'head.weight' is [10,7] there and [7,10] in this build", other_shape},
    {1, "--weights w.st --export x", "no tensor 'layers.0.weight' there (nearest: 'layer.weight')", other_name},
    {1, "--weights w.st --export x", "'norm.mean' is F32 there, which does not convert to int32", int_param},
    {1, "--data a.bin --resume state --steps 4 --dump x --at-step 2 -o y",
     "--at-step 2: state stands at step 2 already; name a later step"},
    {1, "--resume nowhere --export x", "nowhere/index.json: no checkpoint there"},
    {1, "--data a.bin --resume nowhere --save nowhere", "nowhere/index.json: no checkpoint there"},
    {1, "--data a.bin --resume state --save a.bin", "cannot save to a.bin: Not a directory"},
    {1, "--resume a.bin --export x", "a.bin/index.json: no checkpoint there"},
    {1, "--resume foreign --export x", "not the index of a checkpoint"},
    {1, "--resume state --export x", "made by another model", other_hash},
    {1, "--resume state --export x", "no 'layers.0.weight' there: another model", other_name},
    {1, "--resume state --export x", "is BF16 there and F16 in this build", other_dtype},
    {1, "--resume state --export x", "has 384 elements there and 380 in this build", other_size},
    {1, "--resume state --export x", "'norm.mean' (buffer) has 4 elements there and 3", small_buffer},
    {1, "--resume sgd --export x",
     "sgd: made with the optimizer 'sgd', and this program was built with 'adamw': resume with the binary it was made "
     "with; to begin anew from its weights, --export them and use --weights"},
    {1, "--resume state --export x",
     "state: made with the optimizer 'adamw', and this program was built with 'sgd': resume with the binary", sgd},
    {1, "--resume sgd --export x", "sgd: no moment1 of 'embed.weight': made with another optimizer", momentum},
};

static void write_text(const char *path, const char *text) {
    write_file(path, text, strlen(text));
}

static void prepare_cases(void) {
    write_data();
    write_bin("tiny.bin", 100, 1);
    write_bin("short.bin", 16, 1);
    write_text("empty", "");
    write_text("text.bin", "some text that is no token file");
    write_file("raw", (uint16_t[]){1, 1, 7, 9}, 8);
    write_bin("big.bin", 700, 1);
    FILE *f = fopen("big.bin", "r+");
    fseek(f, 1024 + 10, SEEK_SET);
    fwrite(&(uint16_t){300}, 2, 1, f);
    fclose(f);
    cr_assert_eq(mkdir("foreign", 0777), 0);
    write_text("foreign/index.json", "{\"metadata\": {}}");
    OK(2, "--data a.bin --steps 2 --save state --export w.st --quiet");
    cr_assert_eq(run((How){2, .change = sgd}, "--data a.bin --steps 2 --save sgd --quiet"), 0, "%s", err);
}

Test(host_bad, bad_input_is_one_message) {
    prepare_cases();
    cr_assert_eq(system("mkdir ../before_$$ && cp -r . ../before_$$ && mv ../before_$$ before"), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        int code = run((How){2, .change = c->change}, c->line);
        cr_expect(code == c->code, "%s: exit %d, not %d: %s", c->line, code, c->code, err);
        cr_expect(strstr(err, c->message), "%s:\n  got  %s  want %s", c->line, err, c->message);
        cr_expect(c->code == 2 || (lines_of(err) == 1 && strncmp(err, "mock: ", 6) == 0), "%s: %s", c->line, err);
    }
    cr_assert_eq(system("diff -r state before/state && diff -r foreign before/foreign && cmp w.st before/w.st && cmp "
                        "a.bin before/a.bin"),
                 0);
    cr_assert(access("nowhere", F_OK) != 0, "a folder was made for a run that did not begin");
    cr_assert_eq(run((How){2, .accumulate = 2}, "--data a.bin --accumulate 1"), 1);
    cr_assert(strstr(err, "at least 2 microbatches"), "%s", err);
}

/* ── damaged checkpoints ─────────────────────────────────────────────────────────────────────────────────────────────
 */
/* As version 1 of the index was, which had no checksums of heads. */
#define OLD "sed -i 's/\"version\": 2/\"version\": 1/; s/\"crc32\"/\"crc23\"/' state/index.json && "

static const struct {
    const char *command, *message;
} damages[] = {
    {"truncate -s -4 state/step-00000002/rank-1.safetensors", "rank-1.safetensors: tensor"},
    {"truncate -s 3 state/step-00000002/rank-1.safetensors", "not a safetensors file; the checkpoint is damaged"},
    {"rm state/step-00000002/rank-0.safetensors", "rank-0.safetensors: cannot open it: No such file"},
    {OLD "cp state/step-00000002/rank-0.safetensors state/step-00000002/rank-1.safetensors",
     "are there twice: damaged"},
    {OLD "sed -i 's/\"world\": 2/\"world\": 1/' state/index.json", "there"},
    {"sed -i 's/\"world\": 2/\"world\": 1/' state/index.json", "'heads' has 2 checksums for 1 files: damaged"},
    {"printf '%4096s' >> state/index.json", "index.json: its text is not the one that was saved"},
    {"sed -i 's/\"world\": 2/\"world\": 0/' state/index.json", "a world of 0 ranks: damaged"},
    {"sed -i 's/\"step\": 2/\"step\": -2/' state/index.json", "'step' is missing or not a whole number"},
    {"sed -i 's/\"step\": 2/\"step\": \"2\"/' state/index.json", "'step' is missing or not a whole number"},
    {"sed -i 's/\"version\": 2/\"version\": 3/' state/index.json",
     "version 3 of the format; this program reads versions 1 and 2"},
    {"sed -i 's/\"version\": 2/\"version\": 1/' state/index.json", "its text is not the one that was saved"},
    {"sed -i 's/\"crc32\"/\"crc23\"/' state/index.json", "its text is not the one that was saved"},
    {"sed -i 's/\"run\": \"./\"run\": \"x/' state/index.json", "'run' is missing or not a number of 16"},
    {"sed -i 's/\"heads\": \\[\"./\"heads\": [\"x/' state/index.json", "'heads' is missing or not a number of 8"},
    {"rm state/index.json && mkdir state/index.json",
     "state/index.json: no checkpoint there: it is a folder, not a file"},
    {"truncate -s 65M state/index.json", "state/index.json: not the index of a checkpoint: it is larger than 64 MiB"},
    {"sed -i 's/plan_hash/plan_hush/' state/index.json", "'plan_hash' is missing"},
    {"sed -i 's/\"folder\"/\"foldre\"/' state/index.json", "'folder' is missing or not a text"},
    {"sed -i 's/\"0000/\"x000/' state/index.json", "'plan_hash' is missing or not a number of 16 hexadecimal digits"},
    {"sed -i 's/step-0/..\\/step-0/' state/index.json", "is not beside it"},
    {"truncate -s 30 state/index.json", "not JSON"},
    {"sed -i 's/\"position\": */&9223372036854775807, \"was\": /' state/index.json",
     "'position' is 9223372036854775807: damaged"},
    {OLD "sed -i 's/layer.bias@\\[0,3)#master/layer.bias@[1,4)#master/g' state/step-00000002/rank-*",
     "(master) are missing: damaged"},
    {OLD
     "sed -i 's/layer.bias@\\[0,3)#master/layer.bias@[0,3)#masterx/g; s/#moment1/#moment/g' state/step-00000002/rank-*",
     "damaged"},
    {OLD "sed -i 's/layer.bias@\\[0,3)#master/layer.bias@[0,9)#master/g' state/step-00000002/rank-*",
     "is no piece of a checkpoint"},
    {OLD "sed -i 's/norm.mean@\\[0,4)#buffer/norm.meen@[0,4)#buffer/g' state/step-00000002/rank-1*",
     "is there for 1 of 2 ranks"},
    {OLD "sed -i 's/#master\":\"crc32 /#master\":\"crc23 /' state/step-00000002/rank-0*", "is 'crc23 "},
    {OLD "sed -i 's/#master\":\"crc32 ./#master\":\"crc32 x/' state/step-00000002/rank-0*", "the checksum of '"},
};

Test(host_bad, damaged_checkpoints) {
    write_data();
    OK(2, "--data a.bin --steps 2 --save good --quiet");
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        cr_assert_eq(system("rm -rf state && cp -r good state"), 0);
        cr_assert_eq(system(damages[i].command), 0);
        int code = run((How){2}, "--resume state --export x.st");
        cr_expect(code == 1 && strstr(err, damages[i].message) && lines_of(err) == 1, "%s: %d %s", damages[i].command,
                  code, err);
    }
    cr_assert(access("x.st", F_OK) != 0);
}

static void int8(MockBuild *m) {
    for (int i = 0; i < 2; i++) m->units[i].moments = INT8;
}

/* Moments in 8 bits: scales that are missing, shifted or of another dtype, and a rank's moments of another one. */
Test(host_bad, damaged_moments_of_8_bits) {
    static const struct {
        const char *command, *message;
    } all[] = {
        {OLD "sed -i 's/layer.bias@\\[\\([0-9,]*\\))#scale1/layer.bios@[\\1)#scale1/g' state/step-00000002/rank-*",
         "state: no scale1 of 'layer.bias', whose moments are int8: damaged"},
        {OLD "sed -i 's/layer.bias@\\[0,1)#scale2/layer.bias@[1,2)#scale2/g' state/step-00000002/rank-*",
         "'layer.bias' (scale2) are missing: damaged"},
        {OLD "sed -i 's/\\(layer.bias@[^#]*#scale2\":{\"dtype\":\"\\)F32/\\1I32/' state/step-00000002/rank-*",
         "'layer.bias' (scale2) is not as it was saved: damaged"},
        {OLD "sed -i 's/layer.bias@\\[0,1)#scale2/layer.@[0,1)#scale2+300/g' state/step-00000002/rank-*",
         "is no piece of a checkpoint"},
        {OLD "sed -i 's/layer.bias@\\[0,3)#master/layer.bi@[0,3)#master+3/g' state/step-00000002/rank-*",
         "is no piece of a checkpoint"},
        {OLD "cp wide/step-00000002/rank-1.safetensors state/step-00000002/rank-1.safetensors",
         "is F32 there and I8 in another file: damaged"},
    };
    write_data();
    OK(2, "--data a.bin --steps 2 --save wide --quiet");
    cr_assert_eq(run((How){2, .change = int8}, "--data a.bin --steps 2 --save good --quiet"), 0, "%s", err);
    cr_assert_eq(run((How){2, .change = int8}, "--resume good --export x.st"), 0, "%s", err);
    unlink("x.st");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cr_assert_eq(system("rm -rf state && cp -r good state"), 0);
        cr_assert_eq(system(all[i].command), 0);
        int code = run((How){2, .change = int8}, "--resume state --export x.st");
        cr_expect(code == 1 && strstr(err, all[i].message) && lines_of(err) == 1, "%s: %d %s", all[i].command, code,
                  err);
    }
    cr_assert(access("x.st", F_OK) != 0);
}

/* ── shards of other states ──────────────────────────────────────────────────────────────────────────────────────────
 */
static void expect_stranger(const char *what, const char *command, const char *pattern) {
    regex_t r;
    cr_assert_eq(system("rm -rf state && cp -r good state"), 0);
    cr_assert_eq(system(command), 0, "%s", command);
    int code = run((How){2}, "--resume state --export x.st");
    cr_assert_eq(regcomp(&r, pattern, REG_EXTENDED | REG_NOSUB), 0);
    cr_expect(code == 1 && lines_of(err) == 1 && regexec(&r, err, 0, NULL, 0) == 0, "%s: %d %s", what, code, err);
    regfree(&r);
}

#define FILE_1 "mock: state/step-00000004/rank-1.safetensors: "
#define NAMES "the index names rank 1 of 2 at step 4 of run [0-9a-f]{16}; the checkpoint is damaged; copy the file anew"

Test(host_bad, shards_of_other_states) {
    write_data();
    OK(2, "--data a.bin --steps 2 --save good --quiet");
    cr_assert_eq(system("cp -r good before"), 0);
    OK(2, "--data a.bin --steps 4 --resume good --save good --quiet");
    OK(2, "--data a.bin --steps 4 --seed 9 --save other --quiet");
    OK(2, "--data a.bin --steps 4 --resume before --lr 0.5 --save again --quiet");
    OK(4, "--data a.bin --steps 4 --save four --quiet");
    expect_stranger("another step", "cp before/step-00000002/rank-1* state/step-00000004",
                    FILE_1 "it is rank 1 of 2 at step 2 of run [0-9a-f]{16}; " NAMES);
    expect_stranger("another run", "cp other/step-00000004/rank-1* state/step-00000004",
                    FILE_1 "it is rank 1 of 2 at step 4 of run [0-9a-f]{16}; " NAMES);
    expect_stranger("another rank", "cp state/step-00000004/rank-0* state/step-00000004/rank-1.safetensors",
                    FILE_1 "it is rank 0 of 2 at step 4 of run [0-9a-f]{16}; " NAMES);
    expect_stranger(
        "two ranks swapped",
        "cd state/step-00000004 && mv rank-0* x && mv rank-1* rank-0.safetensors && mv x rank-1.safetensors",
        "rank-0.safetensors: it is rank 1 of 2 at step 4 of run [0-9a-f]{16}; the index names rank 0 of 2");
    expect_stranger("another world", "cp four/step-00000004/rank-1* state/step-00000004",
                    FILE_1 "it is rank 1 of 4 at step 4 of run [0-9a-f]{16}; " NAMES);
    expect_stranger("the same run, gone on with otherwise", "cp again/step-00000004/rank-1* state/step-00000004",
                    FILE_1 "its head is not the one that was saved as rank 1 of 2 at step 4 of run [0-9a-f]{16} "
                           "\\(crc32 [0-9a-f]{8}, was [0-9a-f]{8}\\); the checkpoint is damaged");
    expect_stranger("the index of one, the folder of another", "cp other/step-00000004/* state/step-00000004",
                    "rank-0.safetensors: it is rank 0 of 2 at step 4 of run [0-9a-f]{16}; the index names rank 0 of 2");
    expect_stranger("no name", "sed -i 's/\"shard\":/\"shart\":/' state/step-00000004/rank-1*",
                    FILE_1 "it does not say of which run it is; " NAMES);
    expect_stranger("a name for the terminal", "sed -i 's/\"rank 1 of/\"rank 1 [f/' state/step-00000004/rank-1*",
                    FILE_1 "it does not say of which run it is; " NAMES);
}

/* A run that is repeated, and one that is ended and resumed, write the same bytes. */
Test(host_bad, identities_are_determined) {
    write_data();
    OK(2, "--data a.bin --steps 4 --save a --save-every 2 --quiet");
    OK(2, "--data a.bin --steps 4 --save b --save-every 2 --quiet");
    OK(2, "--data a.bin --steps 2 --save c --quiet");
    OK(2, "--data a.bin --steps 4 --resume c --save c --quiet");
    cr_assert_eq(system("diff -r a b && diff -r a c"), 0);
}
