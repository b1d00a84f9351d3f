"""What every option of nn.fully_shard, nn.checkpoint, nn.training and the optimizers does: to numbers, to the schedule, or
in a message that refuses it.

Relies on: harness.py, surface/*.lua. Relied on by: run.py."""
import functools
import hashlib
import itertools
import json
import os
import re

from harness import NET, SHARDC, all_weights, build, check, close, command, corpus, events_of, floats, long, losses, microbatches, must, of_ranks, read_safetensors, run, same_run, scratch, settings, shardc, shared, steps

BATCH, STEPS = 16, 6
GROUPS = {"*.bias": 1, "*norm*": 1, "*.up.*": 2}  # surface/net.lua: the last match wins
BF16 = "mp_policy = { param_dtype = 'bf16', reduce_dtype = 'fp32' }"


def policy(**units):
    """A --policy file: root, block, down, or a module's path = the options of nn.fully_shard there. One text, one file."""
    match = {"root": "", "block": "blocks.*", "down": "blocks.*.down"}
    text = "return {\n%s}\n" % "".join("  { match = '%s', fully_shard = { %s } },\n" % (match.get(k, k), v) for k, v in units.items())
    return shared("policy-%s.lua" % hashlib.sha1(text.encode()).hexdigest()[:12], lambda path: open(path, "w").write(text))


def line(text):
    """The line of surface/net.lua that holds the text."""
    with open(NET) as f:
        return next(i for i, l in enumerate(f, 1) if text in l)


def everywhere(options):
    return dict(root=options, block=options, down=options)


def arguments(world, units, o):
    """Of shardc, for commands that only read."""
    o = dict(dict(batch=BATCH // world // o.get("accumulate", 1)), **o)
    return [NET, "--world", str(world), *settings(o), *(["--policy", policy(**units)] if units else [])]


def program(world, units, **o):
    o = dict(dict(batch=BATCH // world // o.get("accumulate", 1)), **o)
    return build(NET, world=world, policy=policy(**units) if units else None, **o)


def go(world, units, *args, n=STEPS, **o):
    return run(program(world, units, **o), "--data", corpus(), "--steps", str(n), "--seed", "5", *microbatches(o), *args)


def plan(world, units, name="micro", **o):
    p = json.loads(shardc("inspect", *arguments(world, units, o), "--format", "json"))
    return p, events_of(p, name)


def position(events, id):
    """In issue order; -1: there is none."""
    return next((i for i, e in enumerate(events) if e["id"] == id), -1)


@functools.lru_cache(None)
def plain(**o):
    return go(1, None, **dict(o))


def agree(a, b, what):
    close(all_weights(a), all_weights(b), 1e-4, what + ": weights")
    return close(losses(a[0]), losses(b[0]), 1e-5, what + ": losses")


# ── meshes ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
MESHES = [(2, "mesh = { shard = 1 }"), (2, ""), (4, ""), (4, "mesh = { shard = 1 }"), (4, "mesh = { replicate = 2 }"), (4, "mesh = { shard = 2, replicate = 2 }")]


def test_meshes_agree_with_plain():
    worst = 0
    for world, mesh in MESHES:
        worst = max(worst, agree(go(world, everywhere(mesh)), plain(), "world %d, %s" % (world, mesh)))
    for world, mesh in MESHES[3:5]:
        worst = max(worst, agree(go(world, dict(root=mesh)), plain(), "one unit, world %d, %s" % (world, mesh)))
    worst = max(worst, agree(go(3, everywhere(""), batch=4), go(1, None, batch=12), "world 3"))
    return "%d meshes, nested units and one: losses within %.1e" % (len(MESHES) + 1, worst)


def test_ranks_hold_the_same_parameters():
    """What ranks gather (or, where one rank holds all, fetch) for the last step: bit for bit the same on all."""
    for world, mesh in MESHES:
        whole = "shard = 1" in mesh
        units = everywhere(", ".join(x for x in (mesh, "offload = { params = true }" if whole else "") if x))
        folder = scratch("ranks")
        out = os.path.join(folder, "x.safetensors")
        go(world, units, "--dump", "*g?f", "--at-step", str(STEPS), "-o", out)
        ranks = [open(path, "rb").read() for path in of_ranks(out, world)]
        check(len(ranks[0]) > 8000, "world %d, %s: only %d bytes dumped" % (world, mesh, len(ranks[0])))
        check(all(r == ranks[0] for r in ranks), "world %d, %s: ranks differ" % (world, mesh))
    return "%d meshes" % len(MESHES)


def test_accumulation_agrees_with_plain():
    worst = 0
    for world, mesh, accumulate in ((1, "", 4), (2, "", 2), (2, "mesh = { shard = 1 }", 4), (4, "mesh = { replicate = 2 }", 2)):
        worst = max(worst, agree(go(world, everywhere(mesh), accumulate=accumulate), plain(), "%d x %d" % (world, accumulate)))
    return "losses within %.1e" % worst


def test_a_dump_holds_what_the_last_microbatch_made():
    """Programs of a step hold values of the same names: each is there once, the last."""
    out = os.path.join(scratch("dump"), "x.safetensors")
    go(1, None, "--dump", "blocks.0*", "--at-step", "2", "-o", out, accumulate=2)
    with open(out, "rb") as f:
        names = [k for k, _ in json.loads(f.read(int.from_bytes(f.read(8), "little")), object_pairs_hook=lambda pairs: pairs)]
    check(len(set(names)) == len(names) > 5, "names: %s" % names)


# ── memory: no bit changes, but the schedule does ───────────────────────────────────────────────────────────────────────
def offload(params, grads, optimizer, more=""):
    b = lambda x: str(bool(x)).lower()
    return everywhere("%soffload = { params = %s, grads = %s, optimizer = %s }" % (more, b(params), b(grads), b(optimizer)))


def offloads(more, combinations, **o):
    a = go(2, everywhere(more), **o)
    for bits in combinations:
        same_run(a, go(2, offload(*bits, more=more + ", " if more else ""), **o), "offload %s, %s" % (bits, o))


ALL = [bits for bits in itertools.product((0, 1), repeat=3) if any(bits)]
ALONE = [bits for bits in ALL if sum(bits) == 1]


def test_offload_of_each_alone_is_bit_identical():
    offloads("", ALL)
    offloads(BF16, ALL)
    return "params, grads, optimizer: 7 combinations, fp32 and bf16"


def test_offload_with_accumulation_is_bit_identical():
    offloads("", ALONE, accumulate=2)
    offloads(BF16, [(1, 1, 1)], accumulate=3, batch=2)
    return "each alone with 2 microbatches, all together with 3"


def test_offload_moves_bytes_to_the_host():
    for more in ("", BF16 + ", "):
        base, _ = plan(2, offload(0, 0, 0, more), accumulate=2)
        for which, classes in (((1, 0, 0), ["parameters"]), ((0, 1, 0), ["gradients"]), ((0, 0, 1), ["optimizer state"])):
            p, _ = plan(2, offload(*which, more), accumulate=2)
            own = [s for s in p["storages"] if s["class"] in classes and s["name"].split("/")[-1] in
                   ("master", "wire", "moment1", "moment2", "gradient", "frozen", "frozen wire")]
            check(own and all(s["arena"] == "host" for s in own), "%s: %s" % (which, [s["name"] for s in own if s["arena"] != "host"]))
            check(p["arenas"]["device"]["bytes"] < base["arenas"]["device"]["bytes"], "%s: the device's arena did not shrink" % (which,))
    _, base = plan(2, offload(0, 0, 0))
    _, events = plan(2, offload(0, 1, 0))
    for unit in range(5):
        away, update = position(events, "o_grad%d" % unit), position(events, "u%d" % unit)
        check(0 <= position(events, "r%d" % unit) < away < update, "the kept gradient of unit %d" % unit)
        check(position(base, "o_grad%d" % unit) < 0, "no offload without the option")


def test_reshard_and_prefetch_change_the_schedule_only():
    a = go(2, everywhere(""))
    _, events = plan(2, everywhere(""))
    check(position(events, "g1b") > 0 and position(events, "g0b") < 0, "blocks are gathered again in the backward, the root is not")
    b, keep = plan(2, everywhere("reshard_after_forward = false"))
    check(all(position(keep, "g%db" % u) < 0 for u in range(5)), "reshard_after_forward = false: gathered once")
    same_run(a, go(2, everywhere("reshard_after_forward = false")), "reshard_after_forward = false")
    _, events = plan(2, everywhere("reshard_after_forward = true"))
    check(position(events, "g0b") > 0, "reshard_after_forward = true holds for the root too")
    check(position(events, "m_sum") > min(position(events, "r%d" % u) for u in range(5)), "sums of metrics hide behind the backward")
    same_run(a, go(2, everywhere("reshard_after_forward = true")), "reshard_after_forward = true")


def gathered_ahead(events, phase):
    """Events of compute between each gather of the phase and the first use of what it gathers, summed."""
    n = 0
    for i, e in enumerate(events):
        written = {w[0] for w in e["writes"]}
        later = [x for x in events[i:] if x["stream"] == "compute"] if re.fullmatch(r"g\d+" + phase, e["id"]) else []
        n += next((k for k, x in enumerate(later) if written & {r[0] for r in x["reads"]}), 0)
    return n


def test_prefetch_depths():
    units = lambda more: dict(root=more, block=more)
    a = go(2, units(""), layers=6)
    for phase, key in (("f", "forward"), ("b", "backward")):
        seen = []
        for depth in (0, 1, 3):
            u = units("prefetch = { %s = %d }" % (key, depth))
            seen.append(gathered_ahead(plan(2, u, layers=6)[1], phase))
            if depth == 3:
                same_run(a, go(2, u, layers=6), "prefetch %s = %d" % (key, depth))
        check(seen[0] < seen[1] < seen[2], "prefetch.%s 0, 1, 3 gather ahead: %s" % (key, seen))
    deep, shallow = (plan(2, units("prefetch = { forward = %d, backward = 1 }" % d), layers=6)[1] for d in (3, 0))
    check(gathered_ahead(deep, "b") == gathered_ahead(shallow, "b"), "the forward's depth is no matter of the backward")


def test_checkpoint_options():
    """Every way to recompute or offload gives the same bits; each leaves its mark on the schedule."""
    count = lambda events, key, value: sum(e[key] == value for e in events)
    a = go(2, everywhere(BF16), dropout=0.1)
    for how in ("wrapper", "save", "offload", "call", "nested"):
        same_run(a, go(2, everywhere(BF16), dropout=0.1, checkpoint=how), "checkpoint %s" % how)
    base = plan(2, everywhere(""))[1]
    found = {how: plan(2, everywhere(""), checkpoint=how)[1] for how in ("wrapper", "save", "offload", "call", "nested")}
    again = {how: count(e, "phase", "recompute") for how, e in found.items()}
    check(count(base, "phase", "recompute") == 0 and again["offload"] == 0 and again["wrapper"] > again["save"] > 0, "recomputed events: %s" % again)
    check(again["wrapper"] > again["call"] > 0, "a saved gelu is not made again: %s" % again)
    away = {how: count(e, "stream", "offload") for how, e in found.items()}
    check(count(base, "stream", "offload") == away["wrapper"] == away["call"] == 0 and away["offload"] > away["nested"] > 0, "offloads: %s" % away)
    check(again["wrapper"] > again["nested"] > 0, "recomputed within what only offloads: %s" % again)
    place = {w: [i for i, e in enumerate(found["offload"]) if e["stream"] == w and (w == "fetch" or e["phase"] == "forward")] for w in ("compute", "fetch")}
    check(min(place["fetch"]) > max(place["compute"]), "nothing comes back before the forward is over: %s" % place)


def test_everything_at_once():
    """Many options together, in any legal order of events and with dead bytes poisoned; and a step that is resumed."""
    units = everywhere(BF16 + ", offload = { params = true, grads = true, optimizer = true }, gradient_divide_factor = 3, prefetch = { backward = 2 }")
    for mesh, o in (("", dict(accumulate=2)), ("mesh = { replicate = 2 }, ", dict(clip=0))):
        kw = dict(o, checkpoint="nested", dropout=0.1, batch=2)
        u = {k: mesh + v for k, v in units.items()}
        a = go(2, u, **kw)
        same_run(a, go(2, u, "--poison", **kw), "poison")
        for seed in range(4):
            same_run(a, go(2, u, "--interleave", str(seed), **kw), "interleave %d" % seed)
        state = os.path.join(scratch("state"), "s")
        go(2, u, "--save", state, n=3, **kw)
        b = go(2, u, "--resume", state, **kw)
        check(losses(b[0]) == losses(a[0])[3:] and a[1] == b[1], "resumed after step 3")


def test_parameters_stored_in_16_bits():
    fp32 = losses(plain()[0])
    for dtype, name in (("bf16", "BF16"), ("fp16", "F16")):
        a = go(2, everywhere(""), dtype=dtype)
        check({x[0] for x in a[1].values()} == {name}, "weights are stored as " + name)
        close(losses(a[0]), fp32, 5e-2, dtype)
        for more in ("offload = { params = true }", "offload = { optimizer = true }") if dtype == "bf16" else ():
            same_run(a, go(2, everywhere(more), dtype=dtype), "%s, %s" % (dtype, more))
        wide = go(2, everywhere("mp_policy = { reduce_dtype = 'fp32' }"), dtype=dtype)
        check(losses(wide[0]) != losses(a[0]), "gradients reduced in fp32 are others")


# ── who trains ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_frozen_and_unreached_parameters_stay():
    for world, units in ((1, None), (2, everywhere("")), (4, everywhere("mesh = { replicate = 2 }, " + BF16))):
        binary = program(world, units)
        first = os.path.join(scratch("first"), "w.safetensors")
        must([binary, "--seed", "5", "--export", first])
        before, after = run(binary, "--steps", "0", "--data", corpus(), "--seed", "5")[1], go(world, units)[1]
        same = {k for k in before if before[k] == after[k]}
        check(same == {"idle", "blocks.0.fixed", "blocks.1.fixed"}, "world %d: unchanged are %s" % (world, sorted(same)))
        check(any(floats(before["idle"])), "it has initial values")
    p, events = plan(2, everywhere(""))
    sizes = {s["name"]: s["size"] for s in p["storages"]}
    pad = lambda n: (n + 511) // 512 * 512 * 4 // 2  # bytes of one of two shards
    for unit, trained, frozen in (("(root)", 256 * 13 + 2 * 256, 256), ("blocks.0", 512 + 256 * 3, 256)):
        for state in ("master", "moment1", "moment2"):
            check(sizes["%s/%s" % (unit, state)] == pad(trained), "%s/%s has %d bytes" % (unit, state, sizes["%s/%s" % (unit, state)]))
        check(sizes[unit + "/frozen"] == pad(frozen), "%s/frozen has %d bytes" % (unit, sizes[unit + "/frozen"]))
    check("idle.grad" not in str(events), "an unused parameter has no gradient")


def test_ignored_parameters():
    units = everywhere("ignored_params = { '*.fixed' }")
    for world in (2, 4):
        same_run(go(world, everywhere("")), go(world, units), "ignored frozen parameters at world %d" % world)
    state = {name: os.path.join(scratch("state"), name) for name in ("sharded", "whole")}
    made = dict(sharded=everywhere(""), whole=units)
    for name, u in made.items():
        go(2, u, "--save", state[name], n=3)
    for a, b in (("sharded", "whole"), ("whole", "sharded")):
        same_run(go(4, made[b], "--resume", state[a]), go(4, made[b], "--resume", state[b]), "a state saved %s goes on %s" % (a, b))
    p, _ = plan(4, units)
    whole = [s for s in p["storages"] if s["class"] == "buffers" and s["name"].endswith(".fixed")]
    check(len(whole) == 2 and not any("blocks.0/frozen" in s["name"] for s in p["storages"]), "whole on every rank")
    rc, _, err = command([SHARDC, "predict", *arguments(4, everywhere(BF16 + ", ignored_params = { '*.fixed' }"), {})])
    check(rc == 1 and re.search(r"net\.lua:%d: matmul.*fp32 ≠ bf16" % line("m.up(x)"), err), "ignored parameters are not cast: exit %d, %s" % (rc, err))


# ── gradients ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_gradient_divide_factor():
    o = dict(optimizer="sgd", clip=0, decay=0)
    cases = ((2, BF16 + ", ", 2), (4, "mesh = { replicate = 2 }, ", 1), (2, "mesh = { shard = 1 }, ", 1))
    for world, mesh, accumulate in cases:
        kw = dict(o, accumulate=accumulate, n=3)
        base = go(world, everywhere(mesh), **kw)
        same_run(base, go(world, everywhere(mesh + "gradient_divide_factor = %d" % world), **kw), "the world is the default")
        summed = go(world, everywhere(mesh + "gradient_divide_factor = 1"), **kw)
        faster = go(world, everywhere(mesh), "--lr", str(1e-2 * world), **kw)
        check(losses(summed[0]) == losses(faster[0]) and summed[1] == faster[1], "sums of gradients are averages at world times the rate")
        norms = [x["grad_norm"] / y["grad_norm"] for x, y in zip(steps(summed[0]), steps(faster[0]))]
        check(all(abs(n - world) < 1e-6 for n in norms), "and have world times the norm: %s" % norms)
    half = go(2, dict(everywhere(""), block="gradient_divide_factor = 4"), **o, n=1)
    base = go(2, everywhere(""), **o, n=1)
    start = go(2, everywhere(""), **o, n=0)
    for k, ratio in (("blocks.0.up.weight", 0.5), ("blocks.0.down.weight", 1), ("embed.weight", 1)):
        a, b, w = floats(half[1][k]), floats(base[1][k]), floats(start[1][k])
        close([x - z for x, z in zip(a, w)], [ratio * (y - z) for y, z in zip(b, w)], 1e-4, "of one unit only: " + k)


def test_clip_and_accumulate_are_built_in():
    loose, tight = go(2, everywhere(""), clip=0, optimizer="sgd"), go(2, everywhere(""), clip=0.1, optimizer="sgd")
    check(losses(loose[0])[0] == losses(tight[0])[0] and losses(loose[0])[-1] < losses(tight[0])[-1], "clipping at 0.1 slows SGD down")
    check(steps(loose[0])[0]["grad_norm"] == steps(tight[0])[0]["grad_norm"], "the norm is that before clipping")
    same_run(loose, go(2, everywhere(""), "--clip", "0", clip=0.1, optimizer="sgd"), "--clip 0")
    for o, args, said in ((dict(clip=0), ["--clip", "1"], "built without clipping"), (dict(), ["--accumulate", "2"], "accumulate"),
                          (dict(optimizer="sgd"), ["--momentum", "0.9"], "built without momentum")):
        rc, _, err = command([program(2, everywhere(""), **o), "--data", corpus(), "--steps", "1", *args])
        check(rc == 1 and said in err, "%s: exit %d, %s" % (args, rc, err[-300:]))


def test_deterministic_false_changes_nothing_on_the_cpu():
    same_run(go(2, everywhere(BF16), dropout=0.1), go(2, everywhere(BF16), dropout=0.1, deterministic=False), "deterministic = false")


# ── optimizers: PyTorch's formulas, in doubles ──────────────────────────────────────────────────────────────────────────
def group_of(path):
    found = 0
    for pattern, g in GROUPS.items():
        found = g if re.fullmatch(pattern.replace(".", r"\.").replace("*", ".*"), path) else found
    return found


def reference(kind, w, g, state, t, lr, decay, clip):
    """One parameter's elements after step t; changes state."""
    for i in range(len(w)):
        x = g[i] * clip
        if kind == "adamw":
            w[i] -= lr * decay * w[i]
        else:
            x += decay * w[i]
        if kind in ("adam", "adamw"):
            m, v = state.setdefault(i, (0.0, 0.0))
            m, v = 0.9 * m + 0.1 * x, 0.999 * v + 0.001 * x * x
            state[i] = m, v
            x = m / (1 - 0.9 ** t) / ((v / (1 - 0.999 ** t)) ** 0.5 + 1e-8)
        elif kind != "sgd":
            state[i] = b = 0.9 * state.get(i, 0.0) + x
            x = x + 0.9 * b if kind == "nesterov" else b
        w[i] -= lr * x


def optimizer_agrees(kind, clip, world, units):
    o = dict(optimizer=kind, clip=clip, decay=0.3)
    binary, folder = program(world, units, **o), scratch("optimizer")
    common = ["--data", corpus(), "--seed", "5"]
    weights = lambda n: run(binary, *common, "--steps", str(n))[1]
    w = {k: floats(v) for k, v in weights(0).items() if not re.search("fixed|idle", k)}
    states, log = {k: {} for k in w}, []
    for t in (1, 2, 3):
        dump = os.path.join(folder, "%d.safetensors" % t)
        log = run(binary, *common, "--steps", str(t), "--dump", "*.grad", "--at-step", str(t), "-o", dump)[0]
        grads = {k[:-5]: floats(v) for k, v in read_safetensors(dump).items()}
        check(grads.keys() == w.keys(), "gradients of %s" % sorted(grads.keys() ^ w.keys()))
        norm = sum(x * x for g in grads.values() for x in g) ** 0.5
        check(abs(norm / steps(log)[-1]["grad_norm"] - 1) < 1e-5, "the norm")
        factor = min(1, clip / (norm + 1e-6)) if clip else 1
        for k in w:
            g = group_of(k)
            reference(kind, w[k], grads[k], states[k], t, 1e-2 / (4 if g == 2 else 1), 0 if g == 1 else 0.3, factor)
    end = weights(3)
    for k in w:
        close(floats(end[k]), w[k], 2e-5 if kind.startswith("adam") else 2e-6, "%s, clip %g: %s" % (kind, clip, k))


def test_optimizers_follow_their_formulas():
    for kind in ("sgd", "momentum", "nesterov", "adam", "adamw"):
        for clip in (0, 0.5):
            optimizer_agrees(kind, clip, 1, None)
    return "5 optimizers, 3 groups, with and without clipping"


def test_schedules():
    """Warm-up and decay as logged, against the formulas; a group keeps its ratio (test_optimizers...)."""
    for text, factor in (("optim.constant { warmup = 3 }", lambda x: 1), ("optim.wsd { warmup = 3, total = 9, decay_steps = 3, min_ratio = 0.2 }", lambda x: 1 - 0.8 * max(0, 2 * x - 1)),
                         ("optim.schedule(function(step) return step < 3 and (step + 1) / 3 or 1 - 0.1 * (step - 3) end, { total = 10 })", lambda x: 1 - 0.6 * x), ("optim.linear { warmup = 3, total = 9, min_ratio = 0.2 }", lambda x: 1 - 0.8 * x),
                         ("optim.cosine { warmup = 3, total = 9, min_ratio = 0.2 }", lambda x: 0.2 + 0.4 * (1 + __import__("math").cos(__import__("math").pi * x)))):
        model = os.path.join(scratch("schedule"), "net.lua")
        with open(NET) as f, open(model, "w") as out:
            out.write(f.read().replace("clip_grad_norm =", "schedule = %s, clip_grad_norm =" % text))
        log, _ = run(build(model), "--data", corpus(), "--steps", "12")
        want = [1e-2 * ((t + 1) / 3 if t < 3 else factor(min(1, (t - 3) / 6))) for t in range(12)]
        close([x["lr"] for x in steps(log)], want, 1e-6, text)


# ── dtypes ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_mixed_precision_options_change_numbers():
    fp32 = losses(go(2, everywhere(""))[0])
    policies = {"param": everywhere("mp_policy = { param_dtype = 'bf16' }"), "reduce": everywhere("mp_policy = { param_dtype = 'bf16', reduce_dtype = 'bf16' }"),
                "fp16": everywhere("mp_policy = { param_dtype = 'fp16', reduce_dtype = 'fp32' }"),
                "reduce alone": everywhere("mp_policy = { reduce_dtype = 'bf16' }"),
                "output alone": dict(everywhere(""), root="mp_policy = { output_dtype = 'bf16' }")}
    found = {k: losses(go(2, v)[0]) for k, v in policies.items()}
    for k, v in found.items():
        close(v, fp32, 3e-2, "mp_policy " + k)
    check(len({tuple(v) for v in [fp32, *found.values()]}) == 1 + len(found), "each option has its own numbers: %s" % found)


@long
def test_gradients_made_in_16_bits():
    """grad_dtype = "bf16" (or "fp16"), summed in fp32: no memory policy changes a bit of it; on one rank the update reads bf16."""
    narrow = BF16.replace("reduce", "grad_dtype = 'bf16', reduce")
    for world, more in ((1, ""), (2, ""), (4, "mesh = { replicate = 2 }, "), (3, "gradient_divide_factor = 2, ")):
        o = dict(accumulate=2, batch=2) if world == 3 else {}
        a = go(world, everywhere(more + narrow), **o)
        wide = losses(go(world, everywhere(more + BF16), **o)[0])
        close(losses(a[0]), wide, 1e-2, "world %d" % world)
        check(losses(a[0]) != wide, "world %d: gradients were rounded" % world)
        for way in ("reshard_after_forward = false", "offload = { grads = true }", "offload = { params = true, optimizer = 'stream' }", "offload = { optimizer = 'host' }"):
            same_run(a, go(world, everywhere("%s%s, %s" % (more, narrow, way)), **o), "world %d, %s" % (world, way))
        for seed in range(3):
            same_run(a, go(world, everywhere(more + narrow), "--poison", "--interleave", str(seed), **o), "world %d, interleave %d" % (world, seed))
    fp16, half = (x.replace("bf16", "fp16") for x in (BF16, narrow))
    a, wide = go(2, everywhere(half)), losses(go(2, everywhere(fp16))[0])
    close(losses(a[0]), wide, 1e-3, "fp16")
    check(losses(a[0]) != wide, "fp16: gradients were rounded")
    same_run(a, go(2, everywhere(half + ", offload = { grads = true }"), "--poison", "--interleave", "0"), "fp16, offload")
    # whole gradients that wait are summed in fp32, and so they are made
    o = dict(accumulate=2, batch=2)
    late = [losses(go(2, everywhere("requires_gradient_sync = false, " + p), **o)[0]) for p in (BF16, narrow)]
    check(late[0] == late[1], "summed over microbatches before they are reduced: %s" % late)


def test_units_of_several_dtypes():
    """A module in bf16 within an fp32 root, as PyTorch has it: its inputs are cast unless cast_forward_inputs = false (then
    arithmetic with its parameters is done in the wider dtype), its output is what it is unless output_dtype says otherwise."""
    units = lambda more: dict(root="", scale="mp_policy = { param_dtype = 'bf16', reduce_dtype = 'fp32'%s }" % more)
    fp32 = losses(go(2, dict(root=""))[0])
    both, own = losses(go(2, units(", output_dtype = 'fp32'"))[0]), losses(go(2, units(", cast_forward_inputs = false"))[0])
    for name, x in (("inputs cast", both), ("inputs left", own)):
        close(x, fp32, 1e-2, name)
    check(both != fp32 and own != fp32 and both != own, "parameters alone, or inputs as well, are rounded")
    for more, said in (("", "x bf16.*bf16 ≠ fp32"), (", output_dtype = 'fp16'", "x fp16.*fp16 ≠ fp32")):
        rc, _, err = command([SHARDC, "predict", *arguments(2, units(more), {})])
        check(rc == 1 and re.search(r"net\.lua:%d: matmul: %s" % (line("self.head("), said), err), "the head is fp32: exit %d, %s" % (rc, err))


def test_batch_norm_under_mixed_precision():
    runs = {}
    for name, units in (("fp32", everywhere("")), ("bf16", everywhere(BF16))):
        o = dict(norm="batch")
        a = runs[name] = go(2, units, "--val-data", corpus("other", 9000, 2), **o)
        check(all(a[1]["blocks.0.norm.running_" + k][0] == "F32" for k in ("mean", "var")), "buffers keep their dtype")
        check(any("val_loss" in x for x in a[0]), "validation")
        for how in ("wrapper", "offload"):
            same_run(a, go(2, units, checkpoint=how, **o), "batch norm, %s: statistics are taken once" % how)
    for k in ("running_mean", "running_var"):
        a, b = (floats(runs[x][1]["blocks.1.norm." + k]) for x in ("bf16", "fp32"))
        close(a, b, 5e-2, k)
        check(k != "running_var" or max(abs(x - 1) for x in a) > 1e-3, "they move")
    close(losses(runs["bf16"][0]), losses(runs["fp32"][0]), 3e-2, "losses")


# ── validation ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_validation_does_not_depend_on_the_batch():
    """A batch counts by its targets, of which there are more in one than in another where a token is ignored."""
    model = os.path.join(scratch("ignored"), "net.lua")
    with open(NET) as f, open(model, "w") as out:
        out.write(f.read().replace("b.targets)", "b.targets, { ignore_index = %d })" % ord(" ")))
    args = ("--val-data", corpus("other", 16 * 8 + 1, 2), "--eval-steps", "0", "--seed", "5")
    found = [run(build(model, world=w, batch=b), *args)[0][-1]["val_loss"] for w, b in ((1, 16), (1, 2), (2, 2))]
    close(found, found[:1] * 3, 1e-6, "one batch, eight, four on two ranks")


# ── sampling ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_samples_do_not_depend_on_the_mesh():
    args = ("--data", corpus(), "--steps", "3", "--seed", "5", "--sample", "20", "--sample-format", "ids", "--prompt", "7 8", "--quiet", "--temperature", "0")
    texts = {must([program(w, u), *args]) for w, u in ((1, None), (2, everywhere("")), (4, everywhere("mesh = { replicate = 2 }")))}
    check(len(texts) == 1 and len(re.findall(r"\d+", *texts)) >= 20, "samples: %s" % texts)
    p, events = plan(2, everywhere(""), "sample")
    logits = [s for s in p["storages"] if s["name"] == "logits"]
    check(len(logits) == 1 and logits[0]["size"] == 4 * 256, "one position's logits are kept, not all")
    check(events[-1]["op"] == "pick", "by the last event")
