"""Holds nn.fully_shard against PyTorch's FSDP2 on a CPU (torch.distributed.fsdp.fully_shard, gloo), with equal weights and data:

    python tests/golden/fsdp2.py dtypes [FIRST LAST]     random models of nested units: the dtype of every value and parameter
    python tests/golden/fsdp2.py numbers [CASE...]       cases of fsdp2_cases.py: weights after one step and after all, losses, norms

`numbers` runs 1, 2 and 4 processes, and each case also by policies that are wrong in one dtype: we must be nearer to the right one
than to any that can be told from it. Exit code 1 where something differs that should not. CI has tests of its own for what this found.

Relies on: torch 2.15 or later, make all, fsdp2_models.py, fsdp2_cases.py, harness.py. Relied on by: people."""
import array
import math
import os
import re
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import FSDPModule  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(os.path.dirname(HERE), "program")]
import harness  # noqa: E402
from fsdp2_cases import cases, nested_units  # noqa: E402
from fsdp2_models import DTYPES, Net, join, loss_of, lua_of, shard  # noqa: E402

SEED, TOKENS, LOSSES = 5, 11, 1e-5


def join_group(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)


# ── dtypes ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def our_dtypes(case, path):
    text, sites = lua_of(case, probes=True)
    with open(path, "w") as f:
        f.write(text)
    p = subprocess.run([harness.SHARDC, "inspect", path, "--dump-after=precision"], capture_output=True, text=True)
    if not p.stdout.startswith("program train"):
        return None, p.stderr.strip().split("\n")[0]
    seen = {}
    for line in p.stdout[:p.stdout.index("program eval")].split("\n"):
        m = re.search(r"%\d+ (\w+)\[.* = exp\(.*:(\d+)$", line)
        if m and int(m[2]) in sites:
            seen.setdefault(sites[int(m[2])], []).append(m[1])
    return seen, None


def their_dtypes(case, mesh):
    seen = {}
    model = Net(case.model, "", seen)
    with torch.no_grad():
        for t in [*model.parameters(), *model.buffers()]:
            t.fill_(0.5)
    batch = {n: torch.zeros(shape, dtype=DTYPES[d]) for n, (d, shape) in case.inputs.items()}
    try:
        loss_of(case, shard(case, model, lambda _: mesh), batch, seen)
    except RuntimeError as e:
        return None, str(e).split("\n")[0]
    return seen, None


def compare_dtypes(first, last):
    join_group(0, 1, 29601)
    mesh, found, values = init_device_mesh("cpu", (1,)), {"equal": 0, "refused by both": 0, "refused by us: a norm of two dtypes": 0, "different": 0}, 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, last):
            case = nested_units(seed)
            (theirs, why), (ours, our_why) = their_dtypes(case, mesh), our_dtypes(case, os.path.join(folder, "model.lua"))
            if ours == theirs:
                found["equal" if ours else "refused by both"] += 1
                values += sum(map(len, (ours or {}).values()))
            elif theirs and not ours and "_norm: x " in our_why:
                found["refused by us: a norm of two dtypes"] += 1
            else:
                found["different"] += 1
                print("%d: PyTorch, shardc: %s" % (seed, (why, our_why) if not (ours and theirs) else {k: (theirs.get(k), ours.get(k)) for k in theirs if theirs[k] != ours.get(k)}))
    dist.destroy_process_group()
    print("%s; %d values" % (", ".join("%s %d" % x for x in found.items()), values))
    return found["different"]


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def weights(case):
    g, out = torch.Generator().manual_seed(SEED), {}
    for path, m in case.model.walk():
        for n, (shape, o) in m.params.items():
            t = torch.randn(shape, generator=g)
            t = 1 + 0.2 * t if n in ("g", "gain") else 0.2 * t if len(shape) == 1 else t if n == "emb" else t / math.sqrt(shape[-1])
            out[join(path, n)] = t.to(DTYPES[o.get("dtype", "fp32")])
    return out


def batches(case):
    """Of all ranks, a microbatch each; a rank sees no token twice: PyTorch adds up rows of an embedding's gradient in 16 bits."""
    g = torch.Generator().manual_seed(SEED + 1)
    for _ in range(case.steps * case.accumulate):
        yield {n: torch.cat([torch.randperm(TOKENS, generator=g)[:shape[0]] for _ in range(case.world)]).int() for n, (_, shape) in case.inputs.items()}


def whole(t):
    return (t.full_tensor() if isinstance(t, DTensor) else t).detach().clone()


class Meshes:
    """A process group for each shape, made once: making them is collective."""

    def __init__(self, world):
        self.world, self.made = world, {}

    def of(self, m):
        replicate = m.get("replicate") or (self.world // m["shard"] if "shard" in m else 1)
        if replicate not in self.made:
            names = ("replicate%d" % replicate, "shard%d" % replicate)
            self.made[replicate] = init_device_mesh("cpu", (replicate, self.world // replicate), mesh_dim_names=names) if m else init_device_mesh("cpu", (self.world,))
        return self.made[replicate]


def clip(params, most):
    """clip_grad_norm_, which takes parameters of one mesh; of several, the same by hand. Returns the norm before."""
    grads = [p.grad for p in params if p.grad is not None]
    if len({str(getattr(x, "device_mesh", None)) for x in grads}) == 1:
        return whole(torch.nn.utils.clip_grad_norm_(params, most or math.inf, foreach=False)).item()
    norm = math.sqrt(sum((whole(x).double() ** 2).sum().item() for x in grads))
    for x in grads:
        x.mul_(min(1, (most or math.inf) / (norm + 1e-6)))
    return norm


def train(case, rank, meshes, change):
    """As a user of FSDP2 writes it. Returns losses, norms, scales, and the weights after the first step and the last."""
    model, world = Net(case.model, "", None), case.world
    with torch.no_grad():
        for n, t in [*model.named_parameters(), *model.named_buffers()]:
            t.copy_(weights(case)[n])
    shard(case, model, meshes.of, change)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = getattr(torch.optim, case.optimizer[0])(params, foreach=False, **case.optimizer[1])
    scaler = torch.amp.GradScaler("cpu", enabled=bool(case.scaler), **(case.scaler or {}))
    units = [(case_policy, m) for n, m in model.named_modules() if isinstance(m, FSDPModule) for case_policy in [m.m.policy]]
    out, data = {"losses": [], "norms": [], "scales": []}, batches(case)
    for step in range(case.steps):
        total = 0
        for micro in range(case.accumulate):
            last = micro == case.accumulate - 1
            batch = {n: t.chunk(world)[rank] for n, t in next(data).items()}
            for policy, m in units:
                m.set_requires_gradient_sync(last or policy.get("requires_gradient_sync", True), recurse=False)
                m.set_requires_all_reduce(last or policy.get("requires_all_reduce", True), recurse=False)
            loss = loss_of(case, model, batch) / case.accumulate
            scaler.scale(loss).backward()
            loss = loss.detach().float()
            dist.all_reduce(loss)
            total += loss.item() / world
        for p in params:  # ignored ones: their user averages them
            if p.grad is not None and not isinstance(p, DTensor):
                dist.all_reduce(p.grad)
                p.grad /= world
        if case.scaler:
            scaler.unscale_(optimizer)
            for found in scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values():
                dist.all_reduce(found, op=dist.ReduceOp.MAX)
        out["norms"].append(clip(params, case.clip))
        out["losses"].append(total)
        scaler.step(optimizer)
        scaler.update()
        out["scales"].append(scaler.get_scale())
        optimizer.zero_grad()
        if step == 0:
            out["first"] = {n: whole(p) for n, p in model.named_parameters()}
    return dict(out, final={n: whole(p) for n, p in model.named_parameters()})


def worker(rank, world, names, path):
    warnings.filterwarnings("ignore")
    join_group(rank, world, 29602 + world)
    meshes, out, tried = Meshes(world), {}, cases()
    for name in names:
        for variant, change in {"right": lambda p: p, **tried[name].variants}.items():
            try:
                out[name, variant] = train(tried[name], rank, meshes, change)
            except RuntimeError as e:
                out[name, variant] = str(e)
    if rank == 0:
        torch.save(out, path)
    dist.barrier()
    dist.destroy_process_group()


def raw(t):
    kind = {torch.float32: "f", torch.int32: "i"}.get(t.dtype)
    return array.array(kind or "h", (t if kind else t.contiguous().view(torch.int16)).flatten().tolist()).tobytes()


def ours(case, folder):
    at = lambda name: os.path.join(folder, name)
    with open(at("model.lua"), "w") as f:
        f.write(lua_of(case)[0])
    kinds = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
    harness.write_safetensors(at("weights"), {n: (kinds[t.dtype], list(t.shape), raw(t)) for n, t in weights(case).items()})
    with open(at("records"), "wb") as f:
        f.write(b"".join(raw(t) for b in batches(case) for t in b.values()))
    harness.shardc("build", at("model.lua"), "--world", str(case.world), "-o", at("model"))
    out = {}
    for key, steps in (("first", 1), ("final", case.steps)):
        more = ["--accumulate", str(case.accumulate)] if case.accumulate > 1 else []
        with open(at("records"), "rb") as f:
            harness.must([at("model"), "--data", "-", "--weights", at("weights"), "--steps", str(steps), "--log", at(key + ".log"), "--export", at(key), *more], stdin_file=f)
        out[key] = {n: torch.tensor(list(harness.floats(t))).view(t[1]) for n, t in harness.read_safetensors(at(key)).items()}
    log = harness.steps(harness.read_log(at("final.log")))
    return dict(out, losses=[s["loss"] for s in log], norms=[s["grad_norm"] for s in log], scales=[s.get("scale", 1.0) for s in log])


def apart(case, a, b):
    """Of what b's weights changed by."""
    start, d, all_of_it = weights(case), 0.0, 0.0
    for n, t in b.items():
        d += ((a[n].double() - t.double()) ** 2).sum().item()
        all_of_it += ((t.double() - start[n].double()) ** 2).sum().item()
    return math.sqrt(d / all_of_it) if all_of_it else math.sqrt(d)


def far(a, b):
    """The largest relative difference; what is not finite counts as equal to what is not (logged as null)."""
    finite = lambda x: x is not None and math.isfinite(x)
    return max(abs(x - y) / max(abs(y), 0.1) if finite(x) and finite(y) else float(finite(x) != finite(y)) for x, y in zip(a, b))


def judge(name, case, results, we):
    right, wrong = results[name, "right"], []
    if isinstance(right, str):
        return ["PyTorch: " + right], ""
    step, end = apart(case, we["first"], right["first"]), apart(case, we["final"], right["final"])
    loss, norm = far(we["losses"], right["losses"]), far(we["norms"], right["norms"])
    if step > case.bound:
        wrong.append("the first step is further than %.0e" % case.bound)
    if not case.because and max(loss, norm if not name.startswith("stored") else 0) > LOSSES:
        wrong.append("losses or norms differ")
    if we["scales"] != right["scales"]:
        wrong.append("scales are %s, FSDP2's %s" % (we["scales"], right["scales"]))
    told = {v: results[name, v]["first"] for v in case.variants if not isinstance(results[name, v], str) and apart(case, results[name, v]["first"], right["first"]) > 1e-6}
    nearest = {v: apart(case, we["first"], x) for v, x in told.items()}
    wrong += ["as near to: " + v for v, d in nearest.items() if d <= step]
    return wrong, "step %.1e, end %.1e, losses %.1e, norms %.1e%s" % (step, end, loss, norm, "".join("; %s %.1e" % x for x in nearest.items()))


def compare_numbers(names):
    tried, bad = cases(), 0
    names = [n for n in tried if not names or n in names]
    for world in (1, 2, 4):
        mine = [n for n in names if tried[n].world == world]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "torch")
            if mine:
                torch.multiprocessing.spawn(worker, (world, mine, path), world)
            results = torch.load(path) if mine else {}
            for name in mine:
                wrong, text = judge(name, tried[name], results, ours(tried[name], folder))
                bad += bool(wrong)
                print("%-4s %-26s %s%s%s" % ("FAIL" if wrong else "ok", name, text, " (%s)" % tried[name].because if tried[name].because else "", "".join("; " + w for w in wrong)), flush=True)
    print("%d cases, %d differ" % (len(names), bad))
    return bad


if __name__ == "__main__":
    what, rest = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    if what not in ("dtypes", "numbers"):
        sys.exit(__doc__)
    sys.exit(bool(compare_dtypes(*map(int, rest or (0, 300))) if what == "dtypes" else compare_numbers(rest)))
