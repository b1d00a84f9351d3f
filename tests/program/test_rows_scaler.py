"""Rows G1 to G5: optim.GradScaler. Each function is named after its row; a row at world 2 and at world 4.

Relies on: harness.py, rows/scaler.lua. Relied on by: run.py."""
import array
import itertools
import json
import os
import random

from harness import ROOT, ROWS, Scope, build, check, close, events_of, floats, learned, losses, microbatches, of_ranks, planned, read_safetensors, read_state, run, scratch, shared, steps

NET = os.path.join(ROWS, "scaler.lua")
DIM, GLOBAL = 24, 16  # of rows/scaler.lua; samples of a step, whatever the world
HUGE = 1e30           # a gain whose gradient no fp16 holds


def records(n, gains=None, accumulate=1, folder=None):
    """A file of n steps. gains: {step, from 1: {sample: gain}}; the others have 1."""
    r = random.Random(3)
    path = os.path.join(folder or scratch("records"), "records")
    with open(path, "wb") as f:
        for step in range(1, n + 1):
            x = [[r.gauss(0, 1) for _ in range(DIM)] for _ in range(GLOBAL)]
            gain = [(gains or {}).get(step, {}).get(i, 1.0) for i in range(GLOBAL)]
            size = GLOBAL // accumulate
            for m in range(accumulate):
                for sample in x[m * size:(m + 1) * size]:
                    f.write(array.array("f", sample).tobytes())
                f.write(array.array("f", gain[m * size:(m + 1) * size]).tobytes())
    return path


def program(world, **o):
    o = dict(dict(batch=GLOBAL // world // o.get("accumulate", 1)), **o)
    return build(NET, world=world, **o)


def stepped(binary, n, seed, data, *args):
    """The log's n steps, exported weights."""
    log, weights = run(binary, "--data", "-", "--steps", str(n), "--seed", str(seed), *args, records=data)
    return steps(log), weights


def go(world, *args, n=6, gains=None, data=None, **o):
    return stepped(program(world, **o), n, 5, data or records(n, gains, o.get("accumulate", 1)), *microbatches(o), *args)


def inspect(world, **o):
    return planned(NET, world, batch=GLOBAL // world, **o)


def scales(a):
    return [s["scale"] for s in a[0]]


def skipped(a):
    return [s["step"] for s in a[0] if s["skipped"]]


def checkpoint(world, step, gains, **o):
    """Every byte of the training state after `step` steps, by file and tensor, and the index."""
    folder = scratch("state")
    go(world, "--save", os.path.join(folder, "state"), n=step, gains=gains, **o)
    return read_state(os.path.join(folder, "state"))


# ── G1: one scale for outputs of any structure ──────────────────────────────────────────────────────────────────────────
def test_G1_outputs_of_different_structure():
    """scaler:scale { a = tensor, list = { ... }, nested = { deep = { ... } } }: each is multiplied by the one scale, 2.0, which
    is a state of the device; what the loss function scaled is not scaled again, and its loss is logged unscaled."""
    for world in (2, 4):
        o = dict(explicit="outputs", init_scale=2.0)
        log = go(world, n=3, **o)[0]
        for name, step in itertools.product(("a", "list", "nested"), log):
            check(step[name] != 0 and abs(step[name + "_scaled"] / step[name] - 2) < 1e-8, "world %d: %s: %s scaled is %s" % (world, name, step[name], step[name + "_scaled"]))
        plan = inspect(world, **o)
        scale = next(s for s in plan["storages"] if s["name"] == "loss scale")
        check(scale["arena"] == "device", "the scale: %s" % scale)
        events = events_of(plan)
        multiply = [e for e in events if e["op"] == "scale" and e["phase"] == "forward"]
        check(len(multiply) == 5, "world %d: %d events scale" % (world, len(multiply)))  # four outputs; the loss, back
        check(not any(scale["id"] == r[0] for e in events if e["op"] == "grad_seed" for r in e["reads"]), "the seed is scaled too")
    return "a tensor, a list, a table in a table"


def test_G1_scaling_the_loss_oneself_changes_no_bit():
    for world in (2, 4):
        mine, automatic = (go(world, explicit=e, clip=0.5, gains={3: {0: HUGE}}) for e in ("loss", "none"))
        check(mine[1] == automatic[1] and losses(mine[0]) == losses(automatic[0]), "world %d: other bits" % world)
        check(scales(mine) == scales(automatic) and skipped(mine) == [3], "world %d: other scales" % world)
    return "as the scaler does it by itself"


# ── G3: an infinite gradient ────────────────────────────────────────────────────────────────────────────────────────────
def test_G3_infinite_gradient_skips_the_step():
    """Step 3 overflows on every rank: the state after it is the one before it, bit for bit; the scale falls; then all goes on."""
    bad = {3: {i: HUGE for i in range(GLOBAL)}}
    host = dict(params=True, grads=True, state=True)
    cases = [(2, dict(optimizer="adamw")), (2, dict(optimizer="momentum", clip=1.0)), (2, dict(optimizer="adamw", clip=1.0, **host)),
             (4, dict(optimizer="sgd", **host)), (4, dict(optimizer="adam", clip=1.0)), (4, dict(optimizer="adamw", replicate=2, accumulate=2))]
    for world, o in cases:
        what = "world %d %s" % (world, o)
        before, after = checkpoint(world, 2, bad, **o), checkpoint(world, 3, bad, **o)
        check(before[1] == after[1] and len(before[1]) > 10, what + ": the skipped step changed the state")
        check(before[0]["adam_step"] == after[0]["adam_step"], what + ": Adam's step was counted")
        check((before[0]["loss_scale"], after[0]["loss_scale"]) == (65536, 32768), what + ": scales %s" % after[0])
        a = go(world, n=5, gains=bad, **o)
        check(skipped(a) == [3] and scales(a) == [65536, 65536, 32768, 32768, 32768], "%s: skipped %s, scales %s" % (what, skipped(a), scales(a)))
        b = go(world, "--check-finite", n=5, gains=bad, **o)
        check(b[1] == a[1], what + ": --check-finite")
        check(all(s["grad_norm"] is None or s["grad_norm"] < 1e3 for s in a[0]), what + ": the norm is not of unscaled gradients")
    return "%d cases" % len(cases)


def test_G3_gradient_that_only_fp16_cannot_hold():
    """Finite where the backward makes it, in fp32, and infinite in the dtype that a rank's gradients have."""
    gains, o = {3: {i: 1e6 for i in range(GLOBAL)}}, dict(param_dtype="fp32", reduce_dtype="fp32")
    for world in (1, 2, 4):
        half, whole = (go(world, n=4, gains=gains, **o, **more) for more in (dict(grad_dtype="fp16"), dict(without_fp16=True)))
        check(skipped(half) == [3] and not skipped(whole), "world %d: skipped %s and %s" % (world, skipped(half), skipped(whole)))
        close(losses(half[0])[:3], losses(whole[0])[:3], 1e-3, "until then")
        check(losses(half[0])[:3] != losses(whole[0])[:3], "world %d: gradients were rounded" % world)
    return "at three sizes of the world"


# ── G4: an infinite gradient on one rank only ───────────────────────────────────────────────────────────────────────────
def event_of(world, op, **o):
    """Id of the one event of this op in the step's program."""
    found = [e["id"] for e in events_of(inspect(world, **o)) if e["op"] == op]
    check(len(found) == 1, "world %d: events %s: %s" % (world, op, found))
    return found[0]


def dumped(world, pattern, step, gains, **o):
    """By rank: what --dump found."""
    out = os.path.join(scratch("dump"), "x.safetensors")
    go(world, "--dump", pattern, "--at-step", str(step), "-o", out, n=step, gains=gains, **o)
    return [read_safetensors(path) for path in of_ranks(out, world)]


def only(tensors):
    check(len(tensors) == 1, "dumped: %s" % sorted(tensors))
    return list(floats(next(iter(tensors.values()))))


def test_G4_infinite_gradient_on_one_rank():
    """Sample 0, which is rank 0's, overflows in step 4, the second clean one since the scale grew but for that: every rank skips, every
    rank's scale is the same before and after; it grows after growth_interval clean steps in a row, on all of them."""
    gains = {4: {0: HUGE}}
    cases = [(2, {}), (2, dict(replicate=2)), (2, dict(state=True)), (4, dict(clip=1.0)), (4, dict(replicate=2))]
    for world, o in cases:
        o = dict(o, growth_interval=2)
        what = "world %d %s" % (world, o)
        a = go(world, n=7, gains=gains, **o)
        check(skipped(a) == [4], "%s: skipped %s" % (what, skipped(a)))
        check(scales(a) == [65536, 131072, 131072, 65536, 65536, 131072, 131072], "%s: scales %s" % (what, scales(a)))
        told = [only({k: t for k, t in x.items() if t[1] == [2]}) for x in dumped(world, "*clip*", 4, gains, **o)]
        check(all(x == [0, 1] for x in told), "%s: coefficient and flag by rank: %s" % (what, told))
        seed = event_of(world, "grad_seed", **o)
        for step, scale in ((4, 131072), (5, 65536), (7, 131072)):
            seeds = [only(x) for x in dumped(world, "*/" + seed, step, gains, **o)]
            check(all(x == [scale / world] for x in seeds), "%s: the seed of step %d by rank: %s" % (what, step, seeds))
        before, after = checkpoint(world, 3, gains, **o), checkpoint(world, 4, gains, **o)
        check(before[1] == after[1], what + ": the skipped step changed a rank's state")
    return "%d cases" % len(cases)


def test_G4_scale_is_saved_and_resumed():
    """A run that is cut in two has the scales, the skips and the bits of one that is not; the growth counter survives too."""
    gains, o = {3: {1: HUGE}}, dict(growth_interval=3)
    plain = os.path.join(scratch("plain"), "state")
    go(2, "--save", plain, n=2, scaler=False, param_dtype="fp32", reduce_dtype="fp32")
    fresh = go(2, "--resume", plain, n=4, without_fp16=True, param_dtype="fp32", reduce_dtype="fp32", init_scale=512.0)
    check(scales(fresh) == [512, 512], "a state without a scale leaves the first one: %s" % scales(fresh))
    for world in (2, 4):
        whole = go(world, n=8, gains=gains, **o)
        for cut in (3, 4, 6):
            folder = os.path.join(scratch("cut"), "state")
            data = records(8, gains)
            go(world, "--save", folder, n=cut, data=data, **o)
            rest = go(world, "--resume", folder, "--save", folder, n=8, data=data, **o)
            check(read_state(folder)[0]["skipped_steps"] == 1, "skips are counted over both: %s" % read_state(folder)[0])
            check(scales(rest) == scales(whole)[cut:], "world %d, cut at %d: %s, not %s" % (world, cut, scales(rest), scales(whole)[cut:]))
            check(rest[1] == whole[1] and losses(rest[0]) == losses(whole[0])[cut:], "world %d, cut at %d: other bits" % (world, cut))
    return "scales %s" % scales(whole)


# ── G5: sharded is replicated ───────────────────────────────────────────────────────────────────────────────────────────
PARITY = os.path.join(ROWS, "scaler_parity.lua")
STEPS5 = 8


def parity_records(model):
    def make(path):
        r = random.Random(4)
        with open(path, "wb") as f:
            for _ in range(STEPS5):
                if model == "transformer":
                    for _ in range(3):
                        f.write(array.array("i", [r.randrange(40) for _ in range(GLOBAL * 6)]).tobytes())
                else:
                    f.write(array.array("f", [r.gauss(0, 1) for _ in range(GLOBAL * 16)]).tobytes())
                    f.write(array.array("f", [r.gauss(0, 1) for _ in range(GLOBAL * 4)]).tobytes())
    return shared("parity-" + model, make)


def parity_run(world, model, **o):
    return stepped(build(PARITY, world=world, net=model, batch=GLOBAL // world, **o), STEPS5, 7, parity_records(model))


def parity(model, overflows, init_scale=65536.0):
    """Sharded, whatever is offloaded or resharded, against whole on every rank: the same bits in every parameter and buffer, the
    same losses and scales. overflows: in fp16 the scale grows until a step is skipped."""
    o, grown = dict(init_scale=init_scale), [init_scale * 2 ** ((i + 1) // 2) for i in range(STEPS5)]
    cases = 0
    for world, fp16 in itertools.product((2, 4), (True, False)):
        with Scope():
            reference = parity_run(world, model, mesh="replicated", fp16=fp16, **o)
            check((len(skipped(reference)) > 0) == (fp16 and overflows), "%s, world %d, fp16 %s: skipped %s" % (model, world, fp16, skipped(reference)))
            check((scales(reference) == grown) == (not skipped(reference)), "%s: scales %s" % (model, scales(reference)))
            check(learned(losses(reference[0])), "%s learns nothing: %s" % (model, losses(reference[0])))
            for offload, reshard in itertools.product((False, True), (True, False)):
                what = "%s, world %d, fp16 %s, offload %s, reshard %s" % (model, world, fp16, offload, reshard)
                a = parity_run(world, model, fp16=fp16, offload=offload, reshard=reshard, **o)
                check(a[1] == reference[1], what + ": parameters differ")
                check(losses(a[0]) == losses(reference[0]) and scales(a) == scales(reference), what + ": losses or scales differ")
                cases += 1
    return "%d cases, %d tensors each" % (cases, len(reference[1]))


def test_G5_nested_units():
    return parity("nested", True)


def test_G5_mixed_trainable_and_frozen():
    return parity("mixed", False, init_scale=2048.0)


def test_G5_encoder_decoder_with_tied_embeddings_and_batch_norm():
    return parity("transformer", True)


# ── G2: gradients as rows ───────────────────────────────────────────────────────────────────────────────────────────────
SPARSE = os.path.join(ROWS, "sparse.lua")
SEQ, VOCAB = 5, 601  # of rows/sparse.lua


def sparse_records(n, accumulate=1, tokens=None, gains=None):
    """tokens, gains: of every step {(sample, position): value}; else tokens repeat, within a rank and between ranks."""
    r, path = random.Random(6), os.path.join(scratch("records"), "sparse")
    with open(path, "wb") as f:
        for _ in range(n):
            ids = [[r.choice((0, 1, VOCAB - 1, r.randrange(VOCAB), r.randrange(20))) for _ in range(SEQ)] for _ in range(GLOBAL)]
            gain = [[1.0 if gains is None else 0.0] * SEQ for _ in range(GLOBAL)]
            for (i, k), v in (tokens or {}).items():
                ids[i][k] = v
            for (i, k), v in (gains or {}).items():
                gain[i][k] = v
            size = GLOBAL // accumulate
            for a in range(accumulate):
                for kind, x in (("i", ids), ("f", gain)):
                    for sample in x[a * size:(a + 1) * size]:
                        f.write(array.array(kind, sample).tobytes())
    return path


def sparse_go(world, *args, n=4, data=None, **o):
    accumulate = o.get("accumulate", 1)
    binary = build(SPARSE, world=world, batch=GLOBAL // world // accumulate, **o)
    return stepped(binary, n, 5, data or sparse_records(n, accumulate), *microbatches(o), *args)


def test_G2_sparse_is_dense():
    """Rows exchanged and added up in rank, then token order: the bits of the dense way, in fp32 and fp16, whatever the mesh."""
    cases = [(w, dict(fp16=fp16)) for w in (1, 2, 4) for fp16 in (False, True)]
    cases += [(4, dict(replicate=2, fp16=True, scaler=True)), (2, dict(shard=1)), (4, dict(shard=1, fp16=True)), (2, dict(accumulate=2)),
              (4, dict(accumulate=2, replicate=2, reshard=False)), (2, dict(offload=True, fp16=True)), (4, dict(offload=True, accumulate=2))]
    for world, o in cases:
        with Scope():
            rows, dense = (sparse_go(world, sparse=s, **o) for s in (True, False))
            check(rows[1] == dense[1] and losses(rows[0]) == losses(dense[0]), "world %d, %s: other bits than the dense way" % (world, o))
            close([s["grad_norm"] for s in rows[0]], [s["grad_norm"] for s in dense[0]], 1e-5, "norms")
    return "%d cases" % len(cases)


def test_G2_fewer_bytes_on_the_wire_and_in_memory():
    told = []
    for world in (2, 4):
        plans = [planned(SPARSE, world, batch=1, sparse=s, vocab=20000, dim=64) for s in (True, False)]
        events = [events_of(x) for x in plans]
        wire = [sum(e["bytes"] for e in x if e["stream"] == "reduce" and e["phase"] == "backward") for x in events]
        linear = (64 * 16 + 16 + 16 * 3 + 3) * 4
        check(wire[0] < (world - 1) * SEQ * (64 + 1) * 4 + 3 * linear and wire[1] > 20000 * 64 * 4 * (world - 1) / world, "world %d: bytes %s" % (world, wire))
        exchanged = {e["id"]: e["bytes"] for e in events[0] if e["id"].startswith("x")}
        check(sorted(exchanged.values()) == [(world - 1) * SEQ * 4, (world - 1) * SEQ * 64 * 4], "exchanged: %s" % exchanged)
        arenas = [p["peak"]["bytes"] for p in plans]
        check(arenas[0] < arenas[1] - 20000 * 64 * 4 / 2, "arenas: %s" % arenas)
        told.append("world %d: %d B instead of %d, arena %.1f MiB instead of %.1f" % (world, wire[0], wire[1], arenas[0] / 2 ** 20, arenas[1] / 2 ** 20))
    return "; ".join(told)


def test_G2_unscale_halves_exactly():
    """Scaled by 2.0, rows and all, then unscaled: the bits of no scaler at all."""
    for world, optimizer in ((2, "sgd"), (4, "adam")):
        scaled, plain = (sparse_go(world, optimizer=optimizer, **o) for o in (dict(scaler=True, init_scale=2.0), {}))
        check(scaled[1] == plain[1] and losses(scaled[0]) == losses(plain[0]), "world %d: scaling by 2 changed bits" % world)
        check([s["grad_norm"] for s in scaled[0]] == [s["grad_norm"] for s in plain[0]], "the norm is not of unscaled rows")
    return "two optimizers"


LAST = GLOBAL - 1
OVERFLOWS = {  # tokens, gains, is an infinity found?
    "an infinite value": ({(0, 0): 7}, {(0, 0): float("inf")}, True),
    "two 2^15 at one index, on one rank": ({(0, 0): 7, (0, 1): 7}, {(0, 0): 2.0 ** 15, (0, 1): 2.0 ** 15}, True),
    "two 2^15 at one index, on two ranks": ({(0, 0): 7, (LAST, 3): 7}, {(0, 0): 2.0 ** 15, (LAST, 3): 2.0 ** 15}, True),
    "two 2^15 at two indices": ({(0, 0): 7, (0, 1): 8}, {(0, 0): 2.0 ** 15, (0, 1): 2.0 ** 15}, False),
    "2^15 and -2^15 at one index": ({(0, 0): 7, (0, 1): 7}, {(0, 0): 2.0 ** 15, (0, 1): -2.0 ** 15}, False),
}


def test_G2_infinity_and_overflow_are_found():
    """A seed of 1 (scale = world): the gradient of a row is the gains of its tokens, in fp16."""
    for world in (2, 4):
        o = dict(probe=True, fp16=True, scaler=True, init_scale=float(world), optimizer="sgd")
        start = sparse_go(world, n=0, **o)[1]
        for what, (tokens, gains, found) in OVERFLOWS.items():
            for sparse in (True, False):
                a = sparse_go(world, n=1, data=sparse_records(1, tokens=tokens, gains=gains), sparse=sparse, **o)
                check(bool(skipped(a)) == found, "world %d, sparse %s: %s: skipped %s" % (world, sparse, what, skipped(a)))
                check((a[1] == start) == (found or what.startswith("2^15 and")), "world %d, sparse %s: %s: the weights" % (world, sparse, what))
    return "%d cases, dense and sparse" % len(OVERFLOWS)


def test_G5_beside_pytorch():
    """PyTorch's own GradScaler on the same net, weights and data (tests/golden/scaler.py): the same steps skipped, the same scales,
    losses and norms as near as fp16 is."""
    golden = os.path.join(ROOT, "tests", "golden", "scaler")
    with open(golden + ".json") as f:
        torch = json.load(f)
    worst = 0
    for world in (1, 2, 4):
        log = go(world, "--weights", golden + ".weights.safetensors", n=len(torch["losses"]), gains={3: {0: HUGE}}, growth_interval=2, clip=1.0)[0]
        check([s["skipped"] for s in log] == torch["skipped"] and sum(torch["skipped"]) > 0, "world %d: skipped %s, PyTorch %s" % (world, [s["skipped"] for s in log], torch["skipped"]))
        check([s["scale"] for s in log] == torch["scales"], "world %d: scales %s, PyTorch's %s" % (world, [s["scale"] for s in log], torch["scales"]))
        for s, loss, norm in zip(log, torch["losses"], torch["grad_norms"]):
            off = max(abs(s["loss"] / loss - 1), abs(s["grad_norm"] / norm - 1) if norm else 0)
            check(off < 3e-2, "world %d, step %d: loss %g, norm %s; PyTorch has %g, %s" % (world, s["step"], s["loss"], s["grad_norm"], loss, norm))
            worst = max(worst, off)
    return "losses and norms within %.1e of PyTorch %s" % (worst, torch["torch"])
