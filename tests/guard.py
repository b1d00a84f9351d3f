"""The guard of a change that must change nothing: plan.json of every model under ten policies, equal to the byte, and the bits of
the programs built from them.

  python3 tests/guard.py --build build --write before.json      # on the head before the change; two minutes
  python3 tests/guard.py --build build --against before.json    # after it: names what differs, exit 1
  --plans leaves the programs out (seconds); --only REGEX takes some rows, named MODEL/POLICY/WHAT; --keep DIR keeps the plans

A plan is that of `inspect --format json` for the CPU (world 2) and for h200 (world 8, sizes that are trained there). Bits are losses,
gradient norms and weights after three steps on the CPU, two ranks, at sizes that take seconds.

Relies on: build/shardc, build/libsc_cpu.a, models/. Relied on by: whoever moves code; no test."""
import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# What --set says of each model: at the size that is trained on GPUs, and at one for the CPU.
LARGE = {
    "mlp": {},
    "gpt2": dict(size="350m", batch=8),
    "llama3": dict(size="8b", seq=4096),
    "qwen2": dict(size="1.5b", seq=4096),
    "transformer": {},
}
SMALL = {
    "mlp": {},
    "gpt2": dict(layers=3, dim=64, heads=4, vocab=256, batch=4, seq=32),
    "llama3": dict(layers=3, batch=4, seq=32),
    "qwen2": dict(layers=3, batch=4, seq=32),
    "transformer": dict(layers=2, dim=64, heads=4, vocab=256, batch=4, seq=32),
}
POLICIES = {
    "default": {},
    "bf16": dict(precision="bf16"),
    "fp16": dict(precision="fp16"),
    "recompute": dict(precision="bf16", recompute="full"),
    "selective": dict(recompute="selective", dropout=0.1),
    "activations": dict(offload="activations", clip=0.0),
    "state": dict(precision="bf16", offload="state"),
    "whole": dict(reshard="false", prefetch=2),
    "narrow": dict(precision="bf16", gradients="bf16", moments="bf16", prefetch=3),
    "accumulate": dict(precision="bf16", accumulate=3, recompute="full", offload="activations"),
}
MLP_TAKES = ("precision",)  # the options that mlp.lua has


def rows():
    """(name, model, settings at GPU size, settings at CPU size)"""
    for model in LARGE:
        seen = []
        for policy, options in POLICIES.items():
            o = {k: v for k, v in options.items() if model != "mlp" or k in MLP_TAKES}
            if o in seen:
                continue  # mlp.lua has fewer options
            seen.append(o)
            yield "%s/%s" % (model, policy), model, dict(LARGE[model], **o), dict(SMALL[model], **o)


def settings(o):
    return [x for k, v in o.items() for x in ("--set", "%s=%s" % (k, v))]


def run(args):
    p = subprocess.run(args, capture_output=True, cwd=ROOT)
    if p.returncode:
        raise SystemExit("exit %d from: %s\n%s" % (p.returncode, " ".join(args), p.stderr.decode(errors="replace")[-2000:]))
    return p.stdout


def digest(*parts):
    h = hashlib.sha256()
    for p in parts:
        h.update(p)
    return h.hexdigest()[:24]


class Guard:
    def __init__(self, o, folder):
        self.shardc, self.plans, self.keep, self.folder = os.path.join(o.build, "shardc"), o.plans, o.keep, folder
        self.data = os.path.join(folder, "text.bin")
        run([self.shardc, "data", "LICENSE", "-o", self.data])

    def plan(self, name, model, world, device, o):
        text = run([self.shardc, "inspect", "models/%s.lua" % model, "--format", "json", "--world", str(world), "--device", device, *settings(o)])
        if self.keep:
            os.makedirs(self.keep, exist_ok=True)
            open(os.path.join(self.keep, name.replace("/", "-") + ".json"), "wb").write(text)
        return digest(text)

    def bits(self, name, model, o):
        folder = tempfile.mkdtemp(dir=self.folder)
        binary, log, weights = (os.path.join(folder, n) for n in ("program", "log.jsonl", "weights.safetensors"))
        run([self.shardc, "build", "models/%s.lua" % model, "--world", "2", "-o", binary, *settings(o)])
        run([binary, "--data", self.data, "--steps", "3", "--log", log, "--export", weights])
        numbers = [{k: line[k] for k in ("step", "loss", "grad_norm")} for line in map(json.loads, open(log)) if "loss" in line]
        return digest(json.dumps(numbers).encode(), open(weights, "rb").read())

    def measure(self, row):
        name, model, large, small = row
        found = {name + "/h200": self.plan(name + "/h200", model, 8, "h200", large),
                 name + "/cpu": self.plan(name + "/cpu", model, 2, "cpu", small)}
        if not self.plans:
            found[name + "/bits"] = self.bits(name, model, small)
        return found


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--build", default="build")
    a.add_argument("--write", metavar="FILE")
    a.add_argument("--against", metavar="FILE")
    a.add_argument("--plans", action="store_true")
    a.add_argument("--only", default="")
    a.add_argument("--keep", metavar="DIR")
    o = a.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        guard = Guard(o, folder)
        for x in pool.map(guard.measure, [r for r in rows() if re.search(o.only, r[0])]):
            found.update(x)
    if o.write:
        with open(o.write, "w") as f:
            json.dump(found, f, indent=1)
    bad = []
    if o.against:
        with open(o.against) as f:
            before = json.load(f)
        bad = [k for k in found if before.get(k) != found[k]]
        for k in bad:
            print("%s differs" % k)
    print("%d equal, %d different" % (len(found) - len(bad), len(bad)) if o.against else "%d rows" % len(found))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
