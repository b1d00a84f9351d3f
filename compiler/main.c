/* The commands of shardc, and help that teaches. The commands are in cli/, their options in cli/command_line.c.
 * Relies on: cli/, system.h.
 * Relied on by: people. */
#include "base/version.h"
#include "cli/command_line.h"
#include "system.h"

#include <signal.h>

static int command_completions(Arena *a, const Options *o);
static int command_man(Arena *a, const Options *o);

static const Command commands[] = {
    {BUILD, "build", "MODEL.lua",
     "Compile a model to a training program: C sources, plan.json and a binary in build/NAME/. The C compiler is "
     "gcc, or what the environment variable CC names; lld links where it is installed."
     "\vExample:\n  shardc build models/gpt2.lua --world 2 --set size=124m\n  build/gpt2/gpt2 --data train.bin --steps "
     "20000",
     1, 1, command_build},
    {RUN, "run", "MODEL.lua|BINARY [-- PROGRAM OPTIONS]",
     "Build a model and run it at once; what follows -- goes to the program."
     "\vExample:\n  shardc run models/mlp.lua --world 2 -- --data train.bin --steps 100\n  shardc run models/mlp.lua "
     "-- --help",
     1, 1, command_run},
    {PREDICT, "predict", "MODEL.lua|PLAN.json|BINARY",
     "Predict memory to the byte and the time of a step, without the device. Exit 1 when it does not fit."
     "\vExample:\n  shardc predict models/llama3.lua --set size=8b --world 8 --device h200\n"
     "  shardc predict models/llama3.lua --set size=8b --device h200 \\\n"
     "      --sweep world=8..16384x2 --svg network.svg\n\n"
     "The arena is exact: the program allocates it once, at start. Library lines are what lies outside it.",
     1, 1, command_predict},
    {PLAN, "plan", "MODEL.lua",
     "Look for what to recompute, offload, keep gathered and hold on the host, so that the predicted step is fastest "
     "while the placed arena fits. Writes the choice as a policy file. Exit 1 where nothing fits."
     "\vExample:\n  shardc plan models/llama3.lua --set size=8b --world 4 --device h200 \\\n"
     "      --budget 60GiB -o 8b.lua\n"
     "  shardc build models/llama3.lua --set size=8b --world 4 --device h200 \\\n"
     "      --policy 8b.lua\n"
     "  shardc plan models/gpt2.lua --device h200 --curve=gpt2.svg\n\n"
     "Every plan is compiled, placed and simulated before it is chosen. The result is the fastest plan found: the "
     "search "
     "does not try every policy. Its estimate of the fastest may be wrong either way; that products and attention "
     "alone "
     "take so long is certain for every plan. On the cpu target activations are not offloaded, since its arena is host "
     "memory; one rank has nothing to reshard or to prefetch.",
     1, 1, command_plan},
    {INSPECT, "inspect", "MODEL.lua|PLAN.json|BINARY",
     "Print the schedule, an event a line: id, stream, op, phase, module, what it reads and writes, what it waits for, "
     "the line of Lua it comes from. --columns all adds addresses, times and why it waits. On a terminal the lines are "
     "a "
     "table; one of less than 120 columns leaves out what is read and written."
     " --format html makes a page of it: streams and memory over time, and who holds which bytes."
     "\vExample:\n  shardc inspect models/gpt2.lua --world 2 --program micro --module 'h.0.*'\n"
     "  shardc inspect models/gpt2.lua --world 2 --columns op,module,time\n"
     "  shardc inspect models/gpt2.lua --world 2 --columns op,waits,why\n"
     "  shardc inspect models/gpt2.lua --world 2 --format html -o gpt2.html\n"
     "  shardc inspect models/gpt2.lua --format json -o gpt2.plan.json\n"
     "  shardc inspect models/gpt2.lua --world 8 --device h200 \\\n"
     "      --format trace -o gpt2.trace.json\n"
     "  build/gpt2/gpt2 --data train.bin --steps 5 --trace run.json\n"
     "  shardc inspect build/gpt2/gpt2 --actual run.json",
     1, 1, command_inspect},
    {EXPLAIN, "explain", "MODEL.lua|PLAN.json|BINARY ID...",
     "Say of an event or a storage, by its id as inspect prints it: which pass made it and of what, its stream and its "
     "place there, what decided it, what it waits for and why, how much later it could end; of a storage who writes "
     "and "
     "reads it, why it lives so long, and what had and takes its bytes."
     "\vExample:\n  shardc explain models/gpt2.lua --world 2 e14 g1f\n"
     "  shardc explain models/gpt2.lua --world 2 --program eval e14.y\n"
     "  shardc inspect models/gpt2.lua --world 2 --explain\n\n"
     "A plan.json and a binary say neither who made an event nor what decided its place. --explain of inspect, predict "
     "and build prints what each pass changed.",
     2, INT32_MAX, command_explain},
    {VERIFY, "verify", "MODEL.lua|PLAN.json|BINARY",
     "Prove a schedule sound from the plan alone: reads after writes, no bytes reused while in use, one order of "
     "collectives, groups that make up the mesh, every parameter updated once, every succession of programs. Exit 1 "
     "and both events where it is not."
     "\vExample:\n  shardc verify build/gpt2/gpt2\n"
     "  shardc verify models/gpt2.lua --world 8 --device h200 --max-exposed-ms 1",
     0, 1, command_verify},
    {DIFF, "diff", "A [B]|A --vs [B]",
     "Say what differs between two plans: peak, step and exposed communication, by class and by module; events added, "
     "removed, moved, longer or shorter; storages that grew. A and B are models, plan.json files or binaries. Options "
     "before --vs hold for both, those after it for B alone, which is A once more unless it is given."
     "\vExample:\n  shardc diff models/gpt2.lua --world 4 --device h200 \\\n"
     "      --vs --set recompute=full\n"
     "  shardc diff before.plan.json after.plan.json --fail-if 'peak>+1%,step>+2%'\n"
     "  shardc diff before.plan.json models/gpt2.lua --world 4 --device h200\n"
     "  shardc diff models/gpt2.lua --world 4 --vs --set prefetch=2 \\\n"
     "      --format html -o diff.html\n\n"
     "Events of equal layers are one row. A row counts events; its times are sums. Exit 1 where a bound of --fail-if "
     "is "
     "missed, 0 otherwise.",
     1, 2, command_diff},
    {RUNS, "report", "LOG.jsonl...",
     "Show runs over each other, from the logs that programs write with --log: loss, validation, learning rate, speed, "
     "predicted and actual time of a step, restarts, and all that the model logs. With -o, as a page for a browser."
     "\vExample:\n  shardc report run.jsonl\n  shardc report a.jsonl b.jsonl -o runs.html\n"
     "  shardc report a.jsonl --traced build/gpt2/gpt2=trace.json -o run.html\n\n"
     "A program writes the same page while it runs: --log run.jsonl --report run.html.",
     1, INT32_MAX, command_report},
    {IMPORT, "import", "DIR [-o MODEL.lua]",
     "Write a model of a Hugging Face folder: its config.json becomes a Lua file, which calls the family of its "
     "model_type (models/families) with these fields. A field that changes the numbers is used, or refused by name. "
     "Prints the commands that predict and that train from the folder's weights, and the arrays of a sample where the "
     "model reads no tokens."
     "\vExample:\n  shardc import Llama-3.2-1B -o 1b.lua\n  shardc predict 1b.lua --set precision=bf16 --world 8 "
     "--device h200\n  shardc build 1b.lua && build/1b/1b --weights Llama-3.2-1B --data train.bin",
     1, 1, command_import},
    {DATA, "data", "FILE... -o OUT.bin",
     "Make tokens of files of text, in the format of llm.c's .bin: a byte each, or those of --tokenizer. Of JSON lines "
     "(FILE.jsonl, or what begins like them) the texts are taken. Files that are no text, such as archives, are "
     "refused. "
     "--chat and --pairs make rows of conversations, for tuning (models/tuning.md)."
     "\vExample:\n  shardc data book.txt notes.txt -o train.bin\n  shardc data held-out.txt -o val.bin\n  shardc data "
     "books.jsonl --separator 0 -o "
     "train.bin\n  shardc data <(zcat books.jsonl.gz) -o train.bin\n  shardc data books.jsonl --tokenizer Llama-3.2-1B "
     "-o train.bin\n  "
     "shardc data chat.jsonl --chat --tokenizer model -o rows.safetensors",
     1, INT32_MAX, command_data},
    {CALIBRATE, "calibrate", "[MODEL.lua]",
     "Measure the GPUs of this machine: writes a device profile, and the table of matmul algorithms. With a MODEL, no "
     "GPU is needed: prints its kernels as a list for --tasks, or makes a profile of its run (--from-trace)."
     "\vExample:\n  shardc calibrate models/gpt2.lua --set precision=bf16 -o gpt2.tasks\n"
     "  shardc calibrate --tasks gpt2.tasks --world 4 -o mine.lua\n"
     "  shardc predict models/gpt2.lua --device mine.lua\n\n"
     "  shardc run models/gpt2.lua -- --data train.bin --steps 20 --trace run.json\n"
     "  shardc calibrate models/gpt2.lua --from-trace run.json -o mine.lua",
     0, 1, command_calibrate},
    {PACK, "pack", "FILE.csv|MODEL.lua|PLAN.json|BINARY",
     "Find offsets for buffers whose lives are known, in as little memory as can be found, and say what is proven. "
     "FILE.csv has the columns id,lower,upper,size and, if wanted, alignment,gaps: a buffer lives from lower to just "
     "before upper, but not in its gaps (7-9 12-14@2:13: after @ the bytes that are needed in a gap). Of a model, the "
     "storages of one program are packed, with the events as time. Exit 1 when they do not fit."
     "\vExample:\n  shardc pack buffers.csv --capacity 1048576 -o packed.csv\n"
     "  shardc pack models/gpt2.lua --world 8 --device h200 -o gpt2.csv",
     1, 1, command_pack},
    {DOCTOR, "doctor", "",
     "Say what this machine has: processor, memory, limits, C compiler, libraries, shardc's runtime, GPUs and the "
     "profile "
     "of each, the CUDA toolkit. Of what is missing: what does not work without it, and the command that mends it. "
     "Exit "
     "1 where no program for the CPU can be built, or none for --device."
     "\vExample:\n  shardc doctor\n  shardc doctor --device h200\n  shardc doctor --format json\n\n"
     "absent is what was not asked for, MISSING what was: programs for the CPU, and for --device. Nothing is installed "
     "or "
     "changed. Programs are not run on a GPU.",
     0, 0, command_doctor},
    {SHELL, "completions", "bash|zsh|fish",
     "Print completions for a shell."
     "\vExample:\n  source <(shardc completions bash)\n  shardc completions fish > "
     "~/.config/fish/completions/shardc.fish",
     1, 1, command_completions},
    {MAN, "man", "", "Print this manual as a page for man.\vExample:\n  shardc man | man -l -", 0, 0, command_man},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

/* ── the tables, for who writes them down ────────────────────────────────────────────────────────────────────────── */
static Manual manual(Arena *a) {
    ManualCommand *c = NEW_ARRAY(a, ManualCommand, N_COMMANDS);
    for (int i = 0; i < N_COMMANDS; i++) c[i] = (ManualCommand){commands[i].name, commands[i].args, commands[i].doc};
    int n;
    const ManualOption *o = command_line_options(a, commands, N_COMMANDS, &n);
    return (Manual){c, N_COMMANDS, o, n};
}

static int command_completions(Arena *a, const Options *o) {
    Manual m = manual(a);
    manual_completions(stdout, a, &m, o->inputs.at[0]);
    cli_printed();
    return 0;
}

static int command_man(Arena *a, const Options *o) {
    Manual m = manual(a);
    manual_page(stdout, &m);
    cli_printed();
    return 0;
}

/* ── main ────────────────────────────────────────────────────────────────────────────────────────────────────────── */
static void usage(FILE *f) {
    fputs("shardc: ahead-of-time compiler for sharded training\n\n"
          "  shardc build MODEL.lua      compile a model to a training program\n"
          "  shardc run MODEL.lua -- ... build it and train\n"
          "  shardc predict INPUT        memory to the byte and time of a step\n"
          "  shardc plan MODEL.lua       fast policies within a budget of memory\n"
          "  shardc inspect INPUT        the schedule, an event a line\n"
          "  shardc explain INPUT ID     who made an event or a storage, and why\n"
          "  shardc verify INPUT         prove the schedule sound\n"
          "  shardc diff A B             what differs between two plans\n"
          "  shardc report LOG...        runs over each other, from their logs\n"
          "  shardc data FILE... -o OUT  make tokens of files\n"
          "  shardc import DIR           write a model of a Hugging Face folder\n"
          "  shardc calibrate            measure this machine's GPUs for predict\n"
          "  shardc pack FILE.csv        offsets for buffers whose lives are known\n"
          "  shardc doctor               what this machine has, and what it lacks\n"
          "  shardc completions SHELL    completions for bash, zsh or fish\n"
          "  shardc man                  this manual, for `man -l -`\n\n"
          "INPUT: a model, plan.json or built binary. `shardc COMMAND -h` explains each.\n"
          "First: shardc predict models/gpt2.lua --world 8 --device h200\n"
          "       shardc run models/mlp.lua --world 2 -- --data train.bin --steps 100\n",
          f);
}

static const Command *command_named(Arena *a, const char *name) {
    const char *names[N_COMMANDS];
    Str all = {.arena = a};
    for (int i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i].name;
        str_addf(&all, "%s%s", i == N_COMMANDS - 1 ? " and " : i ? ", " : "", names[i]);
        if (!strcmp(name, names[i])) return &commands[i];
    }
    const char *near = str_nearest(name, names, N_COMMANDS);
    if (near) fail_usage("there is no command \"%s\"; is it \"%s\"? `shardc -h` lists them", name, near);
    fail_usage("there is no command \"%s\": %s are; `shardc -h` explains them", name, all.s);
}

int main(int argc, char **argv) {
    sc_hold_standard_files();
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error of write, with a message */
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "help")) {
        usage(stdout);
        return 0;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("shardc %s\n", shardc_version);
        return 0;
    }
    Arena *arena = arena_new();
    const Command *command = command_named(arena, argv[1]);
    int code = command->run(arena, command_line_read(arena, command, argc, argv));
    cli_printed();
    arena_free(arena);
    return code;
}
