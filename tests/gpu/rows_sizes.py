"""Models of real size on 1, 2 and 4 GPUs: they train on text, the same first losses on every world within bf16's rounding, GPT-2 124M
in fp32 as the CPU's program; the memory of the process is what was predicted. The learning rate is one at which the loss falls from the
first step: where it climbs first, a rounding grows a thousandfold in 20 steps, on two kinds of CPU too.

Relies on: runner.py. Relied on by: run.py, by its name."""
import os
import tempfile

from harness import check, read_log, steps
from runner import agrees

SIZES = {"gpt2-124m": ("gpt2.lua", dict(size="124m", seq=1024), 8, "3e-4"), "llama3-1b": ("llama3.lua", dict(size="1b", seq=1024), 4, "2e-4"),
         "llama3-8b": ("llama3.lua", dict(size="8b", seq=1024, recompute="full"), 4, "2e-5")}  # model, options, samples of a step, learning rate
FP32 = dict(size="124m", seq=64, batch=1, precision="fp32")
PROGRAMS = {"sizes-%s-w%d" % (n, w): (file, w, dict(options, precision="bf16", clip=0.0, batch=samples // w))
            for n, (file, options, samples, _) in SIZES.items() for w in (1, 2, 4)}
PROGRAMS["sizes-fp32-w1"] = ("gpt2.lua", 1, FP32)
CPU = {"sizes-fp32-w1": ["--lr", "1e-4", "--warmup", "5"]}


def trained(r, name, world, rate):
    """The losses of 10 steps; the driver's figure for the fullest GPU, and the prediction. Alone there: the largest fill a GPU."""
    log = os.path.join(tempfile.mkdtemp(dir=r.work), "log.jsonl")
    r.start(name, world, "--data", r.text, "--steps", "10", "--seed", "7", "--lr", rate, "--warmup", "4", "--log", log, alone=True)
    told = [line for line in read_log(log) if "device_bytes_used" in line][-1]
    return [s["loss"] for s in steps(read_log(log))], told["device_bytes_predicted"], told["device_bytes_used"]


def size(r, name, world):
    losses, predicted, used = r.once(("sizes", name, world), lambda: trained(r, "sizes-%s-w%d" % (name, world), world, SIZES[name][3]))
    first = r.once(("sizes", name, 1), lambda: trained(r, "sizes-%s-w1" % name, 1, SIZES[name][3]))[0]
    each = [abs(a - b) / b for a, b in zip(losses, first)]
    check(losses[-1] < losses[0] - 0.5 and max(each[:4]) < 1e-3, "losses %s, on one GPU %s" % (losses, first))
    process = r.process(world, predicted, used)
    return "loss %.3f -> %.3f, the first four within %.1e of one GPU's, all ten %.1e; %s" % (losses[0], losses[-1], max(each[:4]), max(each), process)


def cases(r):
    yield "sizes.fp32-gpt2-124m-w1", 1, lambda: agrees(r, "sizes-fp32-w1", 1, FP32, *CPU["sizes-fp32-w1"])
    for name in SIZES:
        for world in 1, 2, 4:
            yield "sizes.%s-w%d" % (name, world), world, lambda a=(name, world): size(r, *a)
