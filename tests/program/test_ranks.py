"""Collectives of a model's own: nn.all_gather, nn.all_reduce, nn.reduce_scatter, nn.all_to_all and nn.rank_slice, their gradients, and what
the plan makes of them. The reference is one rank, or fewer, with the whole batch: its gradients are held to central differences elsewhere
(test_gradients.py), and here all is fp64.

Relies on: harness.py, contrastive.lua, layers_summed.lua. Relied on by: run.py."""
import json
import os

from harness import SHARDC, TESTS, build, check, close, command, corpus, events_of, floats, of_ranks, planned, read_log, read_safetensors, relative, scratch, settings, shardc, steps, train
from test_golden import sum_files

CONTRASTIVE, LAYERS = (os.path.join(TESTS, n) for n in ("contrastive.lua", "layers_summed.lua"))
BATCH = 8  # rows of all ranks
WAYS = ("gather", "sum", "scatter", "exchange", "columns")
CLOSE = 1e-11  # of fp64, where ranks are summed in another order


def result(world, model=CONTRASTIVE, batch=BATCH, nsteps=4, **options):
    """Losses and norms of the steps, the gradients of step 1 and the last weights, in fp64."""
    binary = build(model, world=world, variant="fp64", precision="fp64", batch=batch // world, **options)
    folder = scratch("ranks")
    log, grads, final = (os.path.join(folder, n) for n in ("log.jsonl", "grads.safetensors", "final.safetensors"))
    train(binary, "--data", corpus(), "--steps", str(nsteps), "--log", log, "--export", final, "--dump", "*.grad", "--at-step", "1", "-o", grads)
    log = steps(read_log(log))
    return ([s["loss"] for s in log] + [s["grad_norm"] for s in log], {k: v for k, (_, v) in sum_files(of_ranks(grads, world)).items()},
            {k: list(floats(t)) for k, t in read_safetensors(final).items()})


def agree(a, b, what):
    worst = 0
    close(a[0], b[0], 2e-7, what + ": losses and norms")  # which are logged in fp32
    check(a[1].keys() == b[1].keys() and a[2].keys() == b[2].keys() and a[1], what + ": other parameters")
    for kind in (1, 2):
        for name in a[kind]:
            worst = max(worst, close(a[kind][name], b[kind][name], CLOSE, "%s: %s" % (what, name)))
    return worst


def apart(a, b, what):
    """Some gradient differs by more than rounding could: what the two compute is not the same."""
    check(any(relative(a[1][name], b[1][name]) > 1e-4 for name in a[1]), what)


def test_gradients_are_those_of_one_rank():
    whole = result(1, way="local")
    apart(whole, result(2, way="local"), "without an exchange the loss is the same")
    worst = max(agree(result(world, way=way), whole, "%s on %d ranks" % (way, world)) for way in WAYS for world in (2, 4))
    return "%d collectives in 2 worlds within %.0e of one rank" % (len(WAYS), worst)


def test_each_axis_of_the_mesh():
    """Shards of two replicas are two contrastive losses, each of half of the batch: as two ranks on their own."""
    halves = result(2, way="local")
    worst = max(agree(result(4, way=way, axis="shard", replicate=2), halves, way + " over shards") for way in WAYS)
    whole = result(1, way="local")
    worst = max([worst] + [agree(result(4, way=way, axis="replicate", replicate=4), whole, way + " over replicas") for way in ("gather", "exchange")])
    across = [result(4, way=way, axis="replicate", replicate=2) for way in WAYS]
    apart(across[0], halves, "replicas are the same ranks as shards")
    return "within %.0e" % max([worst] + [agree(x, across[0], "over replicas") for x in across[1:]])


def test_a_rank_alone_exchanges_nothing():
    check(not [e for e in events_of(planned(CONTRASTIVE, 1)) if "comm" in e], "one rank talks to itself")
    return "%.0e" % agree(result(1, way="gather"), result(1, way="local"), "one rank")


def test_recomputed_exchanges_change_no_bit():
    kept, again = (planned(CONTRASTIVE, 2, "--device", "h200", checkpoint=c) for c in (False, True))
    exchanges = lambda plan, phase: [e["id"] for e in events_of(plan) if e["stream"] == "exchange" and e["phase"] == phase]
    check(not exchanges(kept, "recompute") and len(exchanges(again, "recompute")) == 1, "recomputed: %s" % exchanges(again, "recompute"))
    runs = []
    for checkpoint in (False, True):
        folder = scratch("ranks")
        log, final = (os.path.join(folder, n) for n in ("log.jsonl", "final.safetensors"))
        train(build(CONTRASTIVE, world=2, precision="bf16", checkpoint=checkpoint), "--data", corpus(), "--steps", "5", "--log", log, "--export", final)
        runs.append(([s["loss"] for s in steps(read_log(log))], open(final, "rb").read()))
    check(runs[0] == runs[1], "recomputing across an exchange changes bits")


def test_sums_in_every_layer_are_pinned_and_right():
    whole, parts = (result(w, model=LAYERS) for w in (1, 2))
    apart(whole, parts, "the sums of layers take nothing of other ranks")
    agree(result(2, model=LAYERS, checkpoint=True), parts, "recomputed layers")
    with_, without = (planned(LAYERS, 4, "--device", "h200", exchange=e) for e in (True, False))
    events = events_of(with_)
    forward = [e for e in events if e["phase"] == "forward" and e["stream"] in ("compute", "exchange") and e["id"][0] == "e"]
    order = [int(e["id"][1:]) for e in forward]
    check(order == sorted(order), "forward kernels left the graph's order: %s" % order)
    exchanges = [e for e in events if e["stream"] == "exchange"]
    check(len(exchanges) == 8 and all(e["purpose"] == "exchange" and e["comm"] == "exchange over world" for e in exchanges), "exchanges: %d" % len(exchanges))
    index = {e["id"]: e for e in events}
    late = [(e["id"], w) for e in exchanges for w in e["waits"] if index[w]["stream"] in ("gather", "reduce")]
    check(not late, "exchanges wait for collectives of parameters: %s" % late)
    exposed = [next(p for p in plan["programs"] if p["name"] == "micro")["exposed_us"] for plan in (with_, without)]
    own = sum(e["duration_us"] for e in exchanges)
    check(0 < exposed[0] - exposed[1] <= own * 1.02, "%.1f us exposed beyond %.1f us, of exchanges that take %.1f us" % (exposed[0] - exposed[1], exposed[1], own))
    return "%d kernels in order; %.0f us more exposed, of exchanges that take %.0f us" % (len(forward), exposed[0] - exposed[1], own)


def test_verify_finds_what_is_missing():
    """An exchange that is not there, one whose reader does not wait, two of one chain that may start in either order."""
    folder, text = scratch("ranks"), shardc("inspect", LAYERS, "--world", "2", "--device", "h200", "--format", "json")

    def verdict(change):
        plan = json.loads(text)
        change(plan, events_of(plan))
        path = os.path.join(folder, "plan.json")
        with open(path, "w") as f:
            json.dump(plan, f)
        rc, out, err = command([SHARDC, "verify", path])
        return rc, " ".join((out + err).split())

    first = next(e["id"] for e in events_of(json.loads(text)) if e["stream"] == "exchange")

    def gone(plan, events):
        reads = next(e for e in events if e["id"] == first)
        events.remove(reads)
        for e in events:
            e["waits"] = sorted({w for x in e["waits"] for w in (reads["waits"] if x == first else [x])})
        others = [e["id"] for e in events]
        for s in plan["storages"]:
            for key in ("first", "last"):
                if s.get("program") == "micro" and s[key] == first:
                    s[key] = others[others.index(reads["waits"][0]) + (key == "first")]

    def unawaited(plan, events):
        for e in events:
            e["waits"] = [w for w in e["waits"] if w != first]

    def one_chain(plan, events):
        for g in plan["mesh"]["groups"]:
            g["chain"] = 0

    check(verdict(lambda plan, events: None)[0] == 0, "the plan itself is not sound")
    for change, says in ((gone, "which nothing has written"), (unawaited, first), (one_chain, "either order")):
        rc, out = verdict(change)
        check(rc == 1 and says in out, "%s: exit %d, %s" % (change.__name__, rc, out[:300]))


def test_times_and_reports_know_exchanges():
    """explain says what it is for, and a delay of exchanges alone makes the step longer."""
    said = shardc("explain", LAYERS, "e5", "--world", "4", "--device", "h200")
    check("to exchange" in said and "in the graph's order" in said, said)
    step = lambda *more: json.loads(shardc("predict", LAYERS, "--world", "4", "--device", "h200", "--format", "json", *more))["prediction"]["step_us"]
    check(step("--delay-collectives", "exchange=1") > step() + 8 * 900, "a delay of 1 ms of 8 exchanges in a row")


def test_bad_axes_and_sizes():
    said = {}
    for name, call in (("axis", "nn.all_gather(y, 'tensor')"), ("kind", "nn.all_reduce(y, 2)"), ("rows", "nn.reduce_scatter(y, 'world', 0)"),
                       ("dimension", "nn.all_to_all(y, nil, 3)"), ("gradient", "nn.all_gather(nn.rank_slice(x, nil, 1), nil, 1)")):
        path = os.path.join(scratch("ranks"), name + ".lua")
        text = open(CONTRASTIVE, encoding="utf-8").read().replace('if o.way == "local" then return x end', "local y = x:slice(0, 0, 3)\n  if true then return %s end" % call)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        rc, out, err = command([SHARDC, "inspect", path, "--world", "2", *settings({"way": "sum"})])
        check(rc == 1, "%s: exit %d" % (call, rc))
        said[name] = err
    for name, words in (("axis", "no axis of the mesh is the string \"tensor\"; write \"world\""), ("kind", "no axis of the mesh is the number 2"),
                        ("rows", "dimension 0 of"), ("dimension", "has no dimension 3"), ("gradient", "reshard has no gradient")):
        check(words in said[name] and ".lua:" in said[name], "%s: %s" % (name, said[name]))
