"""Makes the reference numbers of this folder with PyTorch on one thread of a CPU, in fp32:

    python tests/golden/make.py [NAME...]        (torch 2.x; no name: all cases of cases.py)

    NAME.weights.safetensors  initial values
    NAME.records              the batches of all steps, as `PROGRAM --data -` reads them: inputs by name, raw little-endian
    NAME.grads.safetensors    gradients of step 1, before clipping
    NAME.json                 options, losses, gradient norms, learning rates and what became of the weights

All is repeated in fp64; the distance, kept as "fp64" in NAME.json, is what fp32 itself leaves open. It must stay well
below the tests' tolerance, or the case would measure rounding, not the compiler.

fsdp2.py beside it holds sharded training against PyTorch's FSDP2.

Relies on: torch, cases.py, op_cases.py, harness.py (safetensors). Relied on by: people; the tests read what it wrote."""
import array
import copy
import json
import math
import os
import re
import sys
import tempfile

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(os.path.dirname(HERE), "program")]
import harness  # noqa: E402
from cases import CASES  # noqa: E402
from op_cases import model_file  # noqa: E402
from signs import PATTERNS, signed_sum  # noqa: E402

OPEN = 2e-6  # largest distance from fp64 that a case may have


# ── training, as a user of PyTorch writes it ─────────────────────────────────────────────────────────────────────────
def make_optimizer(case, model):
    """A group of its own for every parameter, with the options that the model file's groups give it."""
    groups = [{"params": [p], **case.group(n)} for n, p in model.named_parameters() if p.requires_grad]
    return case.optimizer(groups, lr=case.lr, foreach=False, **case.optimizer_options)


def make_schedule(case, optimizer):
    """PyTorch's own schedules. The cosine's end is each group's own rate times min_ratio, hence the factor, not eta_min."""
    s, after = torch.optim.lr_scheduler, case.total - case.warmup
    later = {"constant": lambda: s.ConstantLR(optimizer, 1.0),
             "linear": lambda: s.LinearLR(optimizer, 1.0, case.min_ratio, total_iters=after),
             "cosine": lambda: s.LambdaLR(optimizer, lambda t: case.min_ratio + (1 - case.min_ratio) * (1 + math.cos(math.pi * t / after)) / 2)}[case.schedule]()
    if not case.warmup:
        return later
    first = s.LinearLR(optimizer, 1 / case.warmup, 1.0, total_iters=case.warmup - 1)
    return s.SequentialLR(optimizer, [first, later], [case.warmup])


def train(case, model, batches):
    """Returns losses, norms before clipping, learning rates, what the model logs, and the gradients of step 1."""
    optimizer = make_optimizer(case, model)
    schedule = make_schedule(case, optimizer)
    out = {"losses": [], "grad_norms": [], "lrs": [], "logs": {}}
    model.train()
    for step, batch in enumerate(batches):
        optimizer.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        if step == 0:
            out["grads"] = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), case.clip or math.inf, foreach=False)
        out["losses"].append(loss.item())
        out["grad_norms"].append(norm.item())
        out["lrs"].append(optimizer.param_groups[0]["lr"])
        for name, x in getattr(model, "logs", {}).items():
            out["logs"].setdefault(name, []).append(x.item())
        optimizer.step()
        schedule.step()
    out["final"] = {n: t.detach().clone() for n, t in model.state_dict().items()}
    return out


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def fp32_bytes(t):
    return array.array("f", t.detach().float().flatten().tolist()).tobytes()


def save_tensors(path, tensors):
    harness.write_safetensors(path, {n: ("F32", list(t.shape), fp32_bytes(t)) for n, t in tensors.items()})


def declared(case):
    """Names of the inputs in the order in which the model file declares them, which is the order of a record."""
    with tempfile.TemporaryDirectory() as folder:
        text = open(model_file(case.file, folder)).read()
    return re.findall(r"(\w+)\s*=\s*(?:nn\.input|index)\(", text[text.index("batch ="):])


def record(case, batch):
    kinds = {torch.int32: "i", torch.float32: "f"}
    return b"".join(array.array(kinds[t.dtype], t.flatten().tolist()).tobytes() for t in in_order(case, batch).values())


def in_order(case, batch):
    ordered = {n: batch[n] for n in dict.fromkeys(declared(case)) if n in batch}
    assert len(ordered) == len(batch), "%s does not declare %s" % (case.file, set(batch) - set(ordered))
    return ordered


def text_of(about):
    """JSON with an entry a line, one more level down for tables of tensors."""
    def entry(x):
        if isinstance(x, dict) and any(isinstance(v, (dict, list)) for v in x.values()):
            return "{\n  %s}" % ",\n  ".join('"%s": %s' % (k, json.dumps(v)) for k, v in x.items())
        return json.dumps(x)
    return "{%s}\n" % ",\n ".join('"%s": %s' % (k, entry(v)) for k, v in about.items())


def change(case, before, after):
    """Of each tensor what it changed by: the norm, and sums under patterns of signs. Where the gradient is zero, Adam makes
    large steps of its rounding errors: those elements are left out."""
    out = {}
    for n in before:
        d = known(after[n].double() - before[n].double(), case.zero_gradients.get(n, []))
        values = d.tolist()
        out[n] = {"norm": d.norm().item(), "sums": [signed_sum(values, k) for k in range(PATTERNS)]}
    return out


# ── distances ────────────────────────────────────────────────────────────────────────────────────────────────────────
def distance(a, b):
    a, b = torch.as_tensor(a).double().flatten(), torch.as_tensor(b).double().flatten()
    return ((a - b).norm() / b.norm()).item() if b.norm() > 0 else (a - b).norm().item()


def known(t, zero):
    """The elements whose gradient is not zero by mathematics."""
    keep = torch.ones(t.numel(), dtype=torch.bool)
    for begin, end in zero:
        keep[begin:end] = False
    return t.flatten()[keep]


def distances(case, a, b):
    """Of the fp32 run a from the fp64 run b."""
    zero = case.zero_gradients
    grads = {n: distance(known(a["grads"][n], zero.get(n, [])), known(g, zero.get(n, []))) for n, g in b["grads"].items() if known(g, zero.get(n, [])).numel()}
    final = {n: distance(known(a["final"][n], zero.get(n, [])), known(w, zero.get(n, []))) for n, w in b["final"].items()}
    return {"losses": distance(a["losses"], b["losses"]), "grad_norms": distance(a["grad_norms"], b["grad_norms"]),
            "worst_gradient": max(grads.values()), "worst_final_weights": max(final.values())}


def check_case(case, name, model, run, exact, apart):
    zero = case.zero_gradients
    largest = max(g.abs().max().item() for g in exact["grads"].values())
    for n, g in exact["grads"].items():
        rest = known(g, zero.get(n, []))
        kept = rest.norm().item()
        assert not rest.numel() or kept > 1e-9 * largest, "%s: the gradient of %s is zero; say so in zero_gradients" % (name, n)
        for begin, end in zero.get(n, []):
            assert g.flatten()[begin:end].abs().max().item() < 1e-12 * largest, "%s: %s[%d:%d] is not zero" % (name, n, begin, end)
    for k, x in apart.items():
        assert x < OPEN, "%s: %s lies %.2g from fp64, more than %.0e: choose another seed or a milder case" % (name, k, x, OPEN)
    if case.clip:
        clipped = sum(x > case.clip for x in run["grad_norms"])
        assert 0 < clipped < case.steps, "%s: %d of %d steps are clipped; both kinds must occur" % (name, clipped, case.steps)


def make(name, case):
    torch.manual_seed(case.seed)
    model = case.model(case.options)
    generator = torch.Generator().manual_seed(case.seed)
    case.initialize(model, generator)
    batches = [case.batch(generator) for _ in range(case.steps)]
    start = {n: t.detach().clone() for n, t in model.state_dict().items()}
    double = copy.deepcopy(model).double()
    run = train(case, model, batches)
    exact = train(case, double, [{k: t.double() if t.is_floating_point() else t for k, t in b.items()} for b in batches])
    apart = distances(case, run, exact)
    check_case(case, name, model, run, exact, apart)
    base = os.path.join(HERE, name)
    save_tensors(base + ".weights.safetensors", start)
    save_tensors(base + ".grads.safetensors", run["grads"])
    with open(base + ".records", "wb") as f:
        f.write(b"".join(record(case, b) for b in batches))
    first = batches[0]
    about = {
        "model": case.file, "options": case.options, "run": case.run_options(), "steps": case.steps,
        "inputs": [{"name": n, "shape": list(t.shape)} for n, t in in_order(case, first).items()],
        "torch": torch.__version__, "parameters": sum(p.numel() for p in model.parameters()), "fp64": apart,
        "zero_gradients": case.zero_gradients, "losses": run["losses"], "grad_norms": run["grad_norms"], "lrs": run["lrs"],
        "logs": run["logs"], "change": change(case, start, run["final"]),
    }
    with open(base + ".json", "w") as f:
        f.write(text_of(about))
    print("%-14s %6d parameters, loss %.4f -> %.4f, norm %.3g..%.3g; from fp64: %s" % (
        name, about["parameters"], run["losses"][0], run["losses"][-1], min(run["grad_norms"]), max(run["grad_norms"]),
        ", ".join("%s %.1e" % (k, x) for k, x in apart.items())))


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in sys.argv[1:] or CASES:
        make(name, CASES[name])


main()
