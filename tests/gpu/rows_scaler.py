"""Rows G1 to G5 on GPUs: what tests/program/test_rows_scaler.py shows of the CPU's programs, of CUDA's.

Relies on: runner.py, test_rows_scaler.py (the records, how states are read). Relied on by: run.py, build.py."""
import itertools
import os
import shutil
import tempfile

import test_rows_scaler as rows
from harness import check, close, floats, losses, read_log, read_safetensors, steps

NET, PARITY, SPARSE = ("tests/program/rows/%s.lua" % x for x in ("scaler", "scaler_parity", "sparse"))
HOST = dict(params=True, grads=True, state=True)
WORLDS = (1, 2, 4)
# Sums in another order: of fp32 losses and weights, of fp16's. An ulp in its initial weights moves the transformer's losses by up to 2e-4 in
# eight steps and its weights, as one vector, by 1e-2: what softmax and batch norm do not see has rounding for a gradient, and Adam makes whole
# steps of that.
NEAR = {"nested": (1e-4, 1e-3, 2e-2, 5e-2), "mixed": (1e-4, 1e-3, 2e-2, 5e-2), "transformer": (1e-3, 5e-2, 2e-2, 1e-1)}
NETS = {"nested": {}, "mixed": dict(init_scale=2048.0), "transformer": {}}
SIDES = {"whole": dict(mesh="replicated"), "plain": {}, "kept": dict(reshard=False), "away": dict(offload=True), "host": dict(offload=True, reshard=False)}


def parity_name(net, side, fp16, world):
    return "scaler-%s-%s-%s-w%d" % (net, side, "fp16" if fp16 else "fp32", world)


PROGRAMS = {"scaler-w%d" % w: (NET, w, dict(batch=rows.GLOBAL // w, growth_interval=2)) for w in WORLDS}
PROGRAMS.update({"scaler-outputs-w%d" % w: (NET, w, dict(batch=rows.GLOBAL // w, explicit="outputs", init_scale=2.0)) for w in WORLDS})
PROGRAMS["scaler-host-w2"] = (NET, 2, dict(batch=rows.GLOBAL // 2, growth_interval=2, clip=1.0, **HOST))
PROGRAMS["scaler-hybrid-w4"] = (NET, 4, dict(batch=rows.GLOBAL // 8, growth_interval=2, replicate=2, accumulate=2, optimizer="momentum"))
PROGRAMS.update({parity_name(n, s, fp16, w): (PARITY, w, dict(net=n, fp16=fp16, batch=rows.GLOBAL // w, **NETS[n], **SIDES[s]))
                 for n, s, fp16, w in itertools.product(NETS, SIDES, (True, False), WORLDS[1:])})
for _w, _s in itertools.product(WORLDS, (True, False)):
    PROGRAMS["scaler-%s-w%d" % ("rows" if _s else "dense", _w)] = (SPARSE, _w, dict(batch=rows.GLOBAL // _w, sparse=_s, fp16=_w > 1))
for _w in WORLDS:
    for _scaled in True, False:
        PROGRAMS["scaler-%s-w%d" % ("twice" if _scaled else "once", _w)] = (SPARSE, _w, dict(batch=rows.GLOBAL // _w, optimizer="sgd", **dict(scaler=True, init_scale=2.0) if _scaled else {}))
    PROGRAMS["scaler-probe-w%d" % _w] = (SPARSE, _w, dict(batch=rows.GLOBAL // _w, probe=True, fp16=True, scaler=True, init_scale=float(_w), optimizer="sgd"))


def go(r, name, world, data, n, *args):
    """Steps, weights, the state saved at the end (None where --save was not asked for)."""
    folder = tempfile.mkdtemp(dir=r.work)
    log, weights, state = (os.path.join(folder, x) for x in ("log.jsonl", "weights.safetensors", "state"))
    r.start(name, world, "--data", "-", "--steps", str(n), "--seed", "5", "--log", log, "--export", weights, "--save", state, *args, stdin=data)
    result = steps(read_log(log)), read_safetensors(weights), rows.read_state(state)
    shutil.rmtree(folder)
    return result


def outputs(r, world):
    log = go(r, "scaler-outputs-w%d" % world, world, rows.records(3, folder=tempfile.mkdtemp(dir=r.work)), 3)[0]
    for name, step in itertools.product(("a", "list", "nested"), log):
        check(step[name] != 0 and abs(step[name + "_scaled"] / step[name] - 2) < 1e-8, "%s: %s scaled is %s" % (name, step[name], step[name + "_scaled"]))
    return "three structures, times 2"


def sparse(r, world):
    """One or two ranks add in one order only; NCCL's sum of four has an order of its own."""
    data = rows.sparse_records(4)
    a, b = (go(r, "scaler-%s-w%d" % (x, world), world, data, 4) for x in ("rows", "dense"))
    worst = close(losses(a[0]), losses(b[0]), 1e-2, "losses")
    if world < 4:
        check(a[1] == b[1] and losses(a[0]) == losses(b[0]), "rows are not dense")
    for k in a[1]:
        close(floats(a[1][k]), floats(b[1][k]), 2e-2, k)
    again = go(r, "scaler-rows-w%d" % world, world, data, 4)
    check(again[1] == a[1], "other bits when run again")
    return "beside the dense way: %s; the same bits again" % ("the same bits" if world < 4 else "losses within %.1e" % worst)


def unscale(r, world):
    """Scaled by 2.0, rows and all, then unscaled: the bits of no scaler at all."""
    data = rows.sparse_records(4)
    twice, once = (go(r, "scaler-%s-w%d" % (x, world), world, data, 4) for x in ("twice", "once"))
    check(twice[1] == once[1] and losses(twice[0]) == losses(once[0]), "scaling by 2 changed bits")
    check([s["grad_norm"] for s in twice[0]] == [s["grad_norm"] for s in once[0]], "the norm is not of unscaled rows")
    check(rows.scales(twice) == [2.0] * 4, "scales %s" % rows.scales(twice))
    return "halved exactly"


def overflows(r, world):
    for what, (tokens, gains, found) in rows.OVERFLOWS.items():
        a = go(r, "scaler-probe-w%d" % world, world, rows.sparse_records(1, tokens=tokens, gains=gains), 1)
        check(bool(rows.skipped(a)) == found, "%s: skipped %s" % (what, rows.skipped(a)))
    return "%d cases" % len(rows.OVERFLOWS)


def skips(r, name, world, gains, accumulate=1):
    more = ("--accumulate", str(accumulate)) if accumulate > 1 else ()
    data = rows.records(6, gains, accumulate, tempfile.mkdtemp(dir=r.work))
    before, after, whole = (go(r, name, world, data, n, *more) for n in (2, 3, 6))
    check(before[2][1] == after[2][1] and len(after[2][1]) > 10, "the skipped step changed the state")
    check(before[2][0]["adam_step"] == after[2][0]["adam_step"], "Adam's step was counted")
    check(rows.skipped(whole) == [3], "skipped %s" % rows.skipped(whole))
    check(rows.scales(whole) == [65536, 131072, 65536, 65536, 131072, 131072], "scales %s" % rows.scales(whole))
    again, direct, checked = (go(r, name, world, data, 6, *more, *x) for x in ((), ("--no-graph",), ("--check-finite",)))
    check(again[1] == direct[1] == checked[1] == whole[1], "other bits without the graph, or when run again")
    return "step 3 skipped, %d tensors of state unchanged; graph, no graph, --check-finite: the same bits" % len(after[2][1])


def parity(r, net, fp16, world):
    """Two ranks add in one order only, whatever the collective; four do not."""
    data = rows.parity_records(net)
    whole = go(r, parity_name(net, "whole", fp16, world), world, data, rows.STEPS5)
    plain, *others = (go(r, parity_name(net, s, fp16, world), world, data, rows.STEPS5) for s in SIDES if s != "whole")
    for other in others:
        check(plain[1] == other[1] and losses(plain[0]) == losses(other[0]) and rows.scales(plain) == rows.scales(other), "offload or reshard change bits")
    check(rows.scales(plain) == rows.scales(whole), "scales: %s, whole %s" % (rows.scales(plain), rows.scales(whole)))
    if world == 2:
        check(plain[1] == whole[1] and losses(plain[0]) == losses(whole[0]), "sharded is not whole")
    loss, weight = NEAR[net][2:] if fp16 else NEAR[net][:2]
    worst = close(losses(plain[0]), losses(whole[0]), loss, "losses")
    close(*([x for k in whole[1] for x in floats(w[1][k])] for w in (plain, whole)), weight, "weights")
    return "offload x reshard: the same bits; beside whole ones: %s; skipped %s" % ("the same bits" if world == 2 else "losses within %.1e" % worst, rows.skipped(plain))


def cases(r):
    everywhere, one = {3: {i: rows.HUGE for i in range(rows.GLOBAL)}}, {3: {0: rows.HUGE}}
    for w in WORLDS:
        yield "rows.G1-w%d" % w, w, lambda w=w: outputs(r, w)
        yield "rows.G3-w%d" % w, w, lambda w=w: skips(r, "scaler-w%d" % w, w, everywhere)
    for w in WORLDS:
        yield "rows.G2_sparse_is_dense-w%d" % w, w, lambda w=w: sparse(r, w)
        yield "rows.G2_overflows-w%d" % w, w, lambda w=w: overflows(r, w)
        yield "rows.G2_unscale-w%d" % w, w, lambda w=w: unscale(r, w)
    yield "rows.G3_host", 2, lambda: skips(r, "scaler-host-w2", 2, everywhere)
    yield "rows.G3_hybrid_accumulating", 4, lambda: skips(r, "scaler-hybrid-w4", 4, everywhere, 2)
    for w in WORLDS[1:]:
        yield "rows.G4-w%d" % w, w, lambda w=w: skips(r, "scaler-w%d" % w, w, one)
    yield "rows.G4_host", 2, lambda: skips(r, "scaler-host-w2", 2, one)
    for w, n, fp16 in itertools.product(WORLDS[1:], NETS, (True, False)):
        yield "rows.G5_%s_%s-w%d" % (n, "fp16" if fp16 else "fp32", w), w, lambda n=n, fp16=fp16, w=w: parity(r, n, fp16, w)
