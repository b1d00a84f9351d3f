"""The addresses in the emitted text are the plan's: the text of models with arenas beyond 4 GiB is compiled with words that only write
down what they are given, run, and compared with the plan, tensor by tensor. Names stand for addresses there, and C's `int` is narrow.

Relies on: harness.py, runtime/sc.h. Relied on by: run.py."""
import json
import os

from harness import ROOT, SHARDC, check, must, scratch

WORDS = r"""
#include "sc.h"
#include <stdio.h>
#include <string.h>
struct sc_rank { int program; };
static void tensor(sc_rank *r, int event, const sc_tensor *t) {
    int64_t last = 0;
    for (int d = 0; d < t->dims; d++) last += (t->shape[d] - 1) * t->stride[d];
#define SIZE(ID, NAME, BYTES, ...) BYTES,
    static const int size[] = {SC_DTYPES(SIZE)};
    printf("%d %d %d %llu %llu\n", r->program, event, t->host, (unsigned long long)t->at,
           (unsigned long long)(last + 1) * size[t->dtype]);
}
void sc_wait(sc_rank *r, sc_stream s, int event) {}
void sc_run(sc_rank *r, int event, sc_stream s, sc_kernel *k, const void *args, size_t size, int slots) {
    for (int i = 0; i < slots; i++)
        if (((const sc_tensor *)args)[i].there) tensor(r, event, (const sc_tensor *)args + i);
}
void sc_all_gather(sc_rank *r, int e, sc_stream s, int c, sc_tensor y, sc_tensor x) { tensor(r, e, &y), tensor(r, e, &x); }
void sc_reduce_scatter(sc_rank *r, int e, sc_stream s, int c, sc_tensor y, sc_tensor x) { tensor(r, e, &y), tensor(r, e, &x); }
void sc_all_to_all(sc_rank *r, int e, sc_stream s, int c, sc_tensor y, sc_tensor x) { tensor(r, e, &y), tensor(r, e, &x); }
void sc_copy_bytes(sc_rank *r, int e, sc_stream s, sc_tensor y, sc_tensor x) { tensor(r, e, &y), tensor(r, e, &x); }
void sc_sum_ranks(sc_rank *r, int e, sc_stream s, int c, sc_tensor y, sc_tensor x) { tensor(r, e, &y), tensor(r, e, &x); }
void sc_all_reduce(sc_rank *r, int e, sc_stream s, int c, sc_tensor x) { tensor(r, e, &x); }
int main(void) {
    for (int p = 0; p < sc_this_build.nprograms; p++) sc_this_build.programs[p].text(&(sc_rank){p});
    return 0;
}
"""


def addresses(model, world, *options):
    """The tensors that the text names, and the accesses of the plan: sets of (program, event, host, address, bytes)."""
    folder = scratch("addresses")
    must([SHARDC, "build", model, "--world", str(world), "--device", "h200", "--sources", "-o", os.path.join(folder, "x"), *options])
    with open(os.path.join(folder, "words.c"), "w") as f:
        f.write(WORDS)
    must(["gcc", "-std=gnu17", "-O0", "-I", os.path.join(ROOT, "runtime"), os.path.join(folder, "x.c"), os.path.join(folder, "words.c"),
          "-Wl,--unresolved-symbols=ignore-all", "-o", os.path.join(folder, "words")], cwd=folder)
    said = {tuple(map(int, line.split())) for line in must([os.path.join(folder, "words")]).splitlines()}
    with open(os.path.join(folder, "x.plan.json")) as f:
        plan = json.load(f)
    planned = set()
    for p, program in enumerate(plan["programs"]):
        for e, event in enumerate(program["events"]):
            for storage, offset, size in event["reads"] + event["writes"]:
                s = plan["storages"][storage]
                planned.add((p, e, int(s["arena"] == "host"), s["offset"] + offset, size))
    return said, planned


def compare(model, world, *options):
    said, planned = addresses(model, world, *options)
    most = max(a[3] for a in said)
    check(most > 1 << 32, "%s: the text reaches 0x%x only" % (model, most))
    # a store names the whole state and touches a part of it
    wrong = sorted(a for a in said - planned if not any(a[:3] == b[:3] and a[3] <= b[3] and b[3] + b[4] <= a[3] + a[4] for b in planned))
    check(not wrong, "%s: the text names bytes that the plan does not: %s" % (model, wrong[:5]))
    return "%d tensors, up to 0x%x" % (len(said), most)


def test_text_is_the_plan():
    return "; ".join([compare("models/gpt2.lua", 1, "--set", "size=1558m", "--set", "precision=bf16", "--set", "layers=6", "--set", "batch=32"),
                      compare("models/llama3.lua", 4, "--set", "size=8b", "--set", "precision=bf16", "--set", "layers=4", "--set", "seq=8192",
                              "--set", "offload=state")])
