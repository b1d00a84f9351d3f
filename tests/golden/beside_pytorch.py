"""Random models (random_model.py) beside PyTorch on one thread of a CPU: losses, what nn.log_metric wrote, gradients of step 1 and final
weights of a few steps, from equal weights and data:

    python tests/golden/beside_pytorch.py --seed S --count N [--keep] [--seconds T]       (torch 2.x; after make)

What may differ is measured: PyTorch runs again with every result and every gradient off by half an ulp of its dtype, and what
that moves is, a few times over, what rounding may do. Models of fp32 are held to PyTorch in fp64. A model that shardc refuses is
printed with its message. Exit 1 where a model differs.

Relies on: torch, random_model.py, harness.py. Relied on by: people who changed the front end or lowering."""
import argparse
import array
import collections
import fnmatch
import math
import os
import shutil
import sys
import time

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(os.path.dirname(HERE), "program")]
import harness  # noqa: E402
from random_model import Machine, Model  # noqa: E402

Run = collections.namedtuple("Run", "values grads final")  # scalars by (name, step); tensors by path
VARIANTS = 5


# ── PyTorch ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def make_batches(model):
    """Of each step the microbatches of each rank: [step][microbatch][rank]."""
    generator = torch.Generator().manual_seed(model.seed + 2)
    return [[[model.batch(generator) for _ in range(model.world)] for _ in range(model.accumulate)] for _ in range(model.steps)]


def make_optimizer(model, leaves):
    groups = []
    for p, leaf in leaves:
        own = dict(model.optimizer)
        for g in model.groups:
            if any(fnmatch.fnmatchcase(p.full, pattern) for pattern in g["match"]):
                own = {**model.optimizer, **{k: v for k, v in g.items() if k != "match"}}
        groups.append({"params": [leaf], "lr": own["lr"], "weight_decay": own["weight_decay"]})
    more = {k: tuple(v) if isinstance(v, list) else v for k, v in model.optimizer.items() if k not in ("lr", "weight_decay")}
    return getattr(torch.optim, model.kind)(groups, lr=model.optimizer["lr"], foreach=False, **more)


def train(model, batches, double, noise, policies=True):
    machine = Machine(policies, double, noise)
    leaves = []
    for p in model.params:
        t = p.start.to(machine.dtype("fp32")).clone()
        machine.state[p.full] = t
        if not p.buffer and not p.frozen:
            leaves.append((p, t.requires_grad_()))
    optimizer = make_optimizer(model, leaves) if leaves else None
    values, grads = {}, {}
    for step, micros in enumerate(batches):
        parts = model.world * model.accumulate

        def count(targets, ignore):
            return sum((b["targets"] != ignore).sum().item() for m in micros for b in m) / parts
        machine.counts = count
        sums = collections.Counter()
        for _, leaf in leaves:
            leaf.grad = None
        for micro in micros:
            for batch in micro:
                machine.begin()
                given = {k: t.double() if double and t.is_floating_point() else t for k, t in batch.items()}
                outs = machine.call(model.net, [given[n] for n in ("tokens", "x", "z", "ids")])
                env = dict(zip(model.top.args, outs + [given["targets"], given["x"]]))
                for s in model.top.body:
                    machine.execute(s, env, model.top)
                loss = env[model.top.results[0]].to(machine.dtype("fp32")).reshape(())
                if loss.requires_grad:
                    (loss / parts).backward()
                sums["loss"] += loss.item() / parts
                for name, x in machine.logs.items():
                    sums[name] += x.double().item() / parts
        for name, x in sums.items():
            values[name, step] = torch.tensor([x], dtype=torch.float64)
        with_grad = [leaf for _, leaf in leaves if leaf.grad is not None]
        if step == 0:
            grads = {p.full: leaf.grad.clone().double() for p, leaf in leaves if leaf.grad is not None}
        norm = torch.nn.utils.clip_grad_norm_(with_grad, model.clip or math.inf, foreach=False) if with_grad else torch.zeros(())
        values["grad_norm", step] = norm.double().reshape(1)
        if optimizer:
            optimizer.step()
    return Run(values, grads, {k: t.detach().double() for k, t in machine.state.items()})


# ── shardc ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def blob(t):
    return array.array("i" if t.dtype == torch.int32 else "f", t.flatten().tolist()).tobytes()


class Refused(Exception):
    pass


def run_shardc(model, batches, folder):
    lua, weights, records = (os.path.join(folder, n) for n in ("model.lua", "weights.safetensors", "records"))
    log, dump, final = (os.path.join(folder, n) for n in ("log.jsonl", "grads.safetensors", "final.safetensors"))
    with open(lua, "w") as f:
        f.write(model.text())
    harness.write_safetensors(weights, {p.full: ("F32", p.shape, blob(p.start)) for p in model.params})
    with open(records, "wb") as f:
        for micros in batches:
            for micro in micros:
                f.write(b"".join(blob(torch.cat([b[n] for b in micro])) for n in model.inputs))
    binary = os.path.join(folder, "program", "program")
    rc, _, err = harness.command([harness.SHARDC, "build", lua, "--world", str(model.world), "-o", binary, "--redzone", "256"],
                                 env={"CC": harness.quick_cc()})
    if rc:
        raise Refused(err.replace(folder + "/", ""))
    args = ["--data", "-", "--weights", weights, "--steps", str(model.steps), "--log", log, "--export", final]
    if model.accumulate == 1:
        args += ["--dump", "*.grad", "--at-step", "1", "-o", dump]
    if model.seed % 5 == 0:
        args += ["--poison"]
    harness.train(binary, *args, records=records)
    values = {}
    for k, line in enumerate(harness.steps(harness.read_log(log))):
        for name in ["loss", "grad_norm", *model.logged]:
            if name in line:
                values[name, k] = torch.tensor([line[name] if line[name] is not None else math.nan], dtype=torch.float64)
    grads = {}
    if model.accumulate == 1:
        for rank in range(model.world):
            path = dump.replace(".safetensors", ".rank%d.safetensors" % rank) if rank else dump
            if os.path.exists(path):
                for k, t in harness.read_safetensors(path).items():
                    grads[k[:-5]] = grads.get(k[:-5], 0) + tensor(t)
    return Run(values, grads if model.accumulate == 1 else None, {k: tensor(t) for k, t in harness.read_safetensors(final).items()})


def tensor(t):
    return torch.tensor(list(harness.floats(t)), dtype=torch.float64).reshape(t[1])


# ── comparison ───────────────────────────────────────────────────────────────────────────────────────────────────────
class Bound:
    def __init__(self, model):
        self.times, self.relative, self.summed = (6, 3e-4, 4e-3) if model.half else (100, 2e-5, 2e-5)
        self.wrong, self.worst, self.open = [], 0, 0

    def hold(self, name, ours, base, variants, scale=0.0, floor=0.0, summed=False):
        """summed: of a tensor whose elements' roundings may all be alike, which no variant shows."""
        if ours is None or ours.shape != base.shape:
            self.wrong.append("%s: %s" % (name, "missing" if ours is None else "shape %s, not %s" % (list(ours.shape), list(base.shape))))
            return
        off, noise, size = (ours - base).norm().item(), max((v - base).norm().item() for v in variants), base.norm().item() + scale
        limit = self.times * noise + (self.summed if summed else self.relative) * size + floor
        self.worst = max(self.worst, off / limit if limit else 0)
        if size:
            self.open = max(self.open, noise / size)
        if not off <= limit:
            head = ", ".join("%.6g/%.6g" % (a, b) for a, b in list(zip(ours.flatten().tolist(), base.flatten().tolist()))[:4])
            self.wrong.append("%s is off by %.2g of %.2g, %.2g allowed: %s" % (name, off, size, limit, head))


def compare(model, ours, base, variants):
    bound = Bound(model)
    for key, x in base.values.items():
        bound.hold("%s at step %d" % (key[0], key[1] + 1), ours.values.get(key), x, [v.values[key] for v in variants], scale=0.01 if key[0] != "grad_norm" else 0, floor=1e-8,
                   summed=key[0] == "grad_norm" or key[1] > 0)
    whole = base.values["grad_norm", 0].item()
    if ours.grads is not None:
        for k in base.grads.keys() | ours.grads.keys():
            if k not in base.grads:
                if ours.grads[k].norm().item() > 0:
                    bound.wrong.append("%s has a gradient" % k)
                continue
            if k not in ours.grads:
                if k in model.rows:  # ranks exchange its rows: nobody has all of it
                    continue
                if base.grads[k].norm().item() > 1e-12:
                    bound.wrong.append("%s has no gradient" % k)
                continue
            bound.hold(k + ".grad", ours.grads[k], base.grads[k], [v.grads[k] for v in variants], floor=(1e-4 if model.half else 1e-6) * whole + 1e-9, summed=True)
    start, dtypes = {p.full: p.start.double() for p in model.params}, {p.full: p.dtype for p in model.params}
    for k in base.final.keys() | ours.final.keys():
        if k not in base.final or k not in ours.final:
            bound.wrong.append("%s exported: %s, in PyTorch: %s" % (k, k in ours.final, k in base.final))
            continue
        rounding = 3e-6 if dtypes[k] == "fp32" else 2.0 ** -6  # PyTorch's weights are fp32 here
        bound.hold(k + " after all", ours.final[k] - start[k], base.final[k] - start[k], [v.final[k] - start[k] for v in variants],
                   floor=rounding * start[k].norm().item() + 3e-5, summed=True)
    return bound


def one(seed, keep):
    model = Model(seed)
    batches = make_batches(model)
    base = train(model, batches, not model.half, None)
    variants = [train(model, batches, False, torch.Generator().manual_seed(k)) for k in range(VARIANTS if model.half else 3)]
    if model.half:
        variants.append(train(model, batches, True, None, policies=False))
    if not base.grads or not all(math.isfinite(x.item()) for r in (base, *variants) for x in r.values.values()) or base.values["grad_norm", 0] > 1e4:
        return "wild", model, ""
    with harness.Scope():
        folder = harness.scratch("beside-pytorch")
        try:
            ours = run_shardc(model, batches, folder)
        except Refused as e:
            return "refused", model, str(e)
        except harness.Failure as e:
            return "failed", model, str(e)
        bound = compare(model, ours, base, variants)
        if keep and bound.wrong:
            shutil.copytree(folder, os.path.join(harness.BUILD, "beside_pytorch", str(seed)), dirs_exist_ok=True)
    if bound.wrong:
        return "differs", model, "\n".join(sorted(bound.wrong, key=lambda x: (".grad is" not in x, x))[:12])
    return "chaotic" if bound.open > 0.2 else "agrees", model, "%.2f of what is allowed, %.1e open" % (bound.worst, bound.open)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=20)
    p.add_argument("--seconds", type=float, default=math.inf)
    p.add_argument("--keep", action="store_true")
    p.add_argument("--verbose", action="store_true")
    o = p.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    counts, begin = collections.Counter(), time.time()
    for seed in range(o.seed, o.seed + o.count):
        if time.time() - begin > o.seconds:
            break
        try:
            state, model, text = one(seed, o.keep)
        except Exception as e:  # the generator's own
            counts["generator"] += 1
            print("seed %d: generator: %s: %s" % (seed, type(e).__name__, str(e)[:300]), flush=True)
            if o.verbose:
                raise
            continue
        counts[state] += 1
        if state not in ("agrees", "chaotic", "wild") or o.verbose:
            print("%s: %s\n  %s" % (state, model.title(), text.replace("\n", "\n  ")), flush=True)
    print("%d models in %.0f s: %s" % (sum(counts.values()), time.time() - begin, ", ".join("%d %s" % (n, k) for k, n in counts.most_common())))
    sys.exit(1 if counts["differs"] or counts["failed"] else 0)


main()
