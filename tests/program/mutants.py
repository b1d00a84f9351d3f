"""Mutants of plans: each is judged by the oracle and by `shardc verify`, and the two must agree; and no wait may be
superfluous: without it, the plan is refused.

    mutants.py --shardc build/shardc --count 1000 --seed 1 PLAN.json...

Relies on: oracle.py, `shardc verify --batch`.
Relied on by: test_verify.py."""
import argparse
import collections
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import oracle  # noqa: E402


def some_event(plan, r, wanted=lambda e: True):
    """(program, index) of an event for which `wanted`, programs being equally likely; None where there is none."""
    programs = [(p, [i for i, e in enumerate(p["events"]) if wanted(e)]) for p in plan["programs"]]
    programs = [x for x in programs if x[1]]
    if not programs:
        return None
    p, found = r.choice(programs)
    return p, r.choice(found)


def drop_wait(plan, r):
    p, e = some_event(plan, r, lambda e: e["waits"])
    p["events"][e]["waits"].pop(r.randrange(len(p["events"][e]["waits"])))


def redirect_wait(plan, r):
    p, e = some_event(plan, r, lambda e: e["waits"])
    waits = p["events"][e]["waits"]
    waits[r.randrange(len(waits))] = p["events"][max(0, min(len(p["events"]) - 1, e + r.randint(-8, 2)))]["id"]


def add_wait(plan, r):
    p, e = some_event(plan, r)
    p["events"][e]["waits"].append(p["events"][r.randint(0, e)]["id"])


def swap_in_stream(plan, r):
    p, e = some_event(plan, r)
    events = p["events"]
    later = [i for i in range(e + 1, len(events)) if events[i]["stream"] == events[e]["stream"]][:3]
    if later:
        i = r.choice(later)
        events[e], events[i] = events[i], events[e]


def swap_neighbours(plan, r):
    p, e = some_event(plan, r)
    if e + 1 < len(p["events"]):
        p["events"][e], p["events"][e + 1] = p["events"][e + 1], p["events"][e]


def move_to_stream(plan, r):
    p, e = some_event(plan, r)
    p["events"][e]["stream"] = r.choice(["compute", "gather", "reduce", "offload", "fetch", "host", "update"])


def shift_offset(plan, r):
    s = r.choice(plan["storages"])
    s["offset"] = max(0, s["offset"] + r.choice([-1, 1]) * r.choice([1, 256, 512, s["size"], r.choice(plan["storages"])["size"]]))


def take_offset(plan, r):
    s = r.choice(plan["storages"])
    s["offset"] = r.choice([t for t in plan["storages"] if t["arena"] == s["arena"]])["offset"]


def other_arena(plan, r):
    s = r.choice(plan["storages"])
    s["arena"] = "host" if s["arena"] == "device" else "device"


def change_life(plan, r):
    inner = [s for s in plan["storages"] if "program" in s]
    if inner:
        s = r.choice(inner)
        order = [e["id"] for p in plan["programs"] if p["name"] == s["program"] for e in p["events"]]
        key = r.choice(["first", "last"])
        s[key] = order[max(0, min(len(order) - 1, order.index(s[key]) + r.choice([-1, 1])))]


def resize(plan, r):
    s = r.choice(plan["storages"])
    s["size"] = max(0, s["size"] + r.choice([-s["size"] // 2, -256, 256, s["size"]]))


def shrink_arena(plan, r):
    a = plan["arenas"][r.choice(["device", "host"])]
    a["bytes"] = max(0, a["bytes"] - r.choice([1, 256, a["bytes"] // 2]))


def drop_access(plan, r):
    kind = r.choice(["reads", "writes"])
    found = some_event(plan, r, lambda e: e[kind])
    if found:
        x = found[0]["events"][found[1]][kind]
        x.pop(r.randrange(len(x)))


def change_access(plan, r):
    kind = r.choice(["reads", "writes"])
    found = some_event(plan, r, lambda e: e[kind])
    if found:
        x = r.choice(found[0]["events"][found[1]][kind])
        how = r.randrange(4)
        if how == 0:
            x[0] = r.randrange(len(plan["storages"]))
        elif how == 1:
            x[1] += r.choice([4, 256])
        elif how == 2:
            x[2] = max(0, x[2] - r.choice([1, 4, x[2] // 2]))
        else:
            x[2] += r.choice([4, 256])


def join_results(plan, r):
    p, e = some_event(plan, r, lambda e: len(e["writes"]) > 1)
    writes = p["events"][e]["writes"]
    a, b = r.sample(range(len(writes)), 2)
    writes[a][:2] = writes[b][:2]


def drop_event(plan, r):
    p, e = some_event(plan, r)
    gone = p["events"].pop(e)["id"]
    others = [x["id"] for x in p["events"]]
    if p["peak_event"] == gone:
        p["peak_event"] = None
    for x in p["events"]:
        x["waits"] = [w for w in x["waits"] if w != gone]
    for s in plan["storages"]:
        for key in ("first", "last"):
            if s.get("program") == p["name"] and s[key] == gone:
                s[key] = others[max(0, min(len(others) - 1, e - (key == "last")))] if others else ""


def change_comm(plan, r):
    p, e = some_event(plan, r, r.choice([lambda e: True, lambda e: "comm" in e]) if any("comm" in e for p in plan["programs"] for e in p["events"]) else lambda e: True)
    ev = p["events"][e]
    if "comm" in ev:
        del ev["comm"]
    else:
        ev["comm"] = r.choice([g["name"] for g in plan["mesh"]["groups"]])


def change_mesh(plan, r):
    """One figure of it, or all figures as those of another world."""
    mesh = plan["mesh"]
    factor = r.choice([2, 3])
    how = r.randrange(6)
    if how == 0:
        mesh["world"] *= factor
    elif how == 1:
        mesh["nodes"] = mesh["world"]
    elif how == 2:
        a = r.choice(mesh["axes"])
        key, other = r.choice([("size", "stride"), ("stride", "size")])
        a[key] = max(1, min(a[key] * factor if r.random() < .5 else a[key] // 2, mesh["world"] // a[other]))
    elif how == 3:
        u = r.choice(plan["units"])
        u["shard"], u["replicate"] = u["replicate"], u["shard"]
    elif how == 4:
        g = r.choice(mesh["groups"])
        if r.random() < .5:
            g["chain"] = r.randrange(len(mesh["groups"]))
        else:
            g["axis"] = r.choice(mesh["axes"])["name"]
    else:
        mesh["world"] *= factor
        for a in mesh["axes"]:
            a["size" if a["name"] != "replicate" else "stride"] *= factor


def change_update(plan, r):
    found = some_event(plan, r, lambda e: e.get("update"))
    if found:
        ev = found[0]["events"][found[1]]
        if r.random() < .5:
            del ev["update"]
        else:
            w = r.choice(ev["writes"])
            w[2] //= 2


def change_class(plan, r):
    r.choice(plan["storages"])["class"] = r.choice(["inputs", "record", "buffers", "activations"])


def change_persistence(plan, r):
    s = r.choice(plan["storages"])
    if "program" in s:
        for key in ("program", "first", "last"):
            del s[key]
    else:
        p = r.choice([p for p in plan["programs"] if p["events"]])
        s.update(program=p["name"], first=p["events"][0]["id"], last=p["events"][-1]["id"])


def drop_program(plan, r):
    gone = r.randrange(len(plan["programs"]))
    name = plan["programs"][gone]["name"]
    if not any(s.get("program") == name for s in plan["storages"]):
        plan["programs"].pop(gone)
    else:
        plan["programs"][gone].update(events=[], peak_event=None)
        for s in plan["storages"]:
            if s.get("program") == name:
                for key in ("program", "first", "last"):
                    del s[key]


MUTATIONS = [drop_wait, drop_wait, redirect_wait, add_wait, swap_in_stream, swap_in_stream, swap_neighbours, move_to_stream,
             shift_offset, shift_offset, take_offset, other_arena, change_life, change_life, resize, shrink_arena,
             drop_access, drop_access, change_access, join_results, drop_event, change_comm, change_mesh, change_mesh, change_update, change_class,
             change_persistence, drop_program]


def mutants(texts, count, seed):
    """(kind, plan): the plans as they are, each without each of its waits, and random mutants."""
    for text in texts:
        yield "original", json.loads(text)
        base = json.loads(text)
        for p in base["programs"]:
            for ev in p["events"]:
                for w in list(ev["waits"]):
                    at = ev["waits"].index(w)
                    ev["waits"].pop(at)
                    yield "without a wait", base
                    ev["waits"].insert(at, w)
    r = random.Random(seed)
    for i in range(count):
        plan = json.loads(texts[i % len(texts)])
        mutation = r.choice(MUTATIONS)
        try:
            mutation(plan, r)
        except TypeError:  # no event of the wanted kind
            continue
        yield mutation.__name__, plan


def verify(shardc, paths, folder):
    names = os.path.join(folder, "list")
    with open(names, "w") as f:
        f.write("".join(p + "\n" for p in paths))
    out = subprocess.run([shardc, "verify", "--batch", names], capture_output=True, text=True, timeout=600)
    lines = out.stdout.splitlines()
    if out.returncode or len(lines) != len(paths):
        raise SystemExit("shardc verify --batch: exit %d after %d of %d plans\n%s" % (out.returncode, len(lines), len(paths), out.stderr[-2000:]))
    return lines


def compare(shardc, texts, count, seed, keep=None):
    """Returns (verdicts by kind, disagreements as text)."""
    tally, wrong = collections.Counter(), []
    batch, folder = [], keep or tempfile.mkdtemp(prefix="mutants-")
    os.makedirs(folder, exist_ok=True)

    def judge():
        paths = [os.path.join(folder, "%03d.json" % i) for i in range(len(batch))]
        for path, (_, text, _) in zip(paths, batch):
            with open(path, "w") as f:
                f.write(text)
        for (kind, _, truth), line, path in zip(batch, verify(shardc, paths, folder), paths):
            accepted = line.startswith("ok ")
            tally[kind, accepted] += 1
            expected = truth is None
            if accepted != expected:
                saved = os.path.join(folder, "wrong-%d.json" % len(wrong))
                os.rename(path, saved)
                wrong.append("%s: oracle: %s; verify: %s (%s)" % (kind, truth or "sound", line, saved))
            elif kind == "original" and not expected or kind == "without a wait" and expected:
                wrong.append("%s: both say %s" % (kind, truth or "sound"))
        batch.clear()

    for kind, plan in mutants(texts, count, seed):
        batch.append((kind, json.dumps(plan), oracle.verdict(plan)))
        if len(batch) == 200:
            judge()
    judge()
    if not keep and not wrong:
        shutil.rmtree(folder)
    return tally, wrong


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--shardc", default="build/shardc")
    a.add_argument("--count", type=int, default=1000)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--keep", help="folder for the plans")
    a.add_argument("plans", nargs="+")
    o = a.parse_args()
    tally, wrong = compare(o.shardc, [open(p).read() for p in o.plans], o.count, o.seed, o.keep)
    for kind in sorted({k for k, _ in tally}):
        print("%-20s accepted %4d  refused %4d" % (kind, tally[kind, True], tally[kind, False]))
    for w in wrong[:20]:
        print(w)
    print("%d plans, %d disagreements" % (sum(tally.values()), len(wrong)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
