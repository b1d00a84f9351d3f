"""Promise P4 by brute force: is a plan sound? Nothing here is shared with the compiler, and nothing is clever.

Happens-before is a transitive closure; byte overlap compares all pairs; initialisation walks every path of programs.
Relies on: plan.json (DESIGN section 10), python3's standard library.
Relied on by: mutants.py, test_verify.py."""
import json
import sys

FOLLOWS = {  # what may come after each program: in builds that do not accumulate, in those that do
    False: {"": ["init"], "init": ["start"], "start": ["micro", "eval", "sample"], "micro": ["micro", "eval", "sample"],
            "eval": ["eval", "sample", "micro"], "sample": ["eval", "sample", "micro"]},
    True: {"": ["init"], "init": ["start"], "start": ["micro_first", "eval", "sample"],
           "micro_first": ["micro", "micro_last"], "micro": ["micro", "micro_last"],
           "micro_last": ["micro_first", "eval", "sample"],
           "eval": ["eval", "sample", "micro_first"], "sample": ["eval", "sample", "micro_first"]}}
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp64": 8, "fp8_e4m3": 1, "fp8_e5m2": 1, "int32": 4, "int64": 8, "bool": 1}


class Unsound(Exception):
    pass


def require(ok, text):
    if not ok:
        raise Unsound(text)


def overlap(a, b):  # of [offset, end)
    return max(a[0], b[0]) < min(a[1], b[1])


def less(ranges, cut):
    """The ranges without the bytes of one range."""
    out = []
    for lo, hi in ranges:
        if lo < min(hi, cut[0]):
            out.append((lo, min(hi, cut[0])))
        if max(lo, cut[1]) < hi:
            out.append((max(lo, cut[1]), hi))
    return out


def closure(events, index):
    """Per event, a bit for each event that happens before it."""
    before, last = [], {}
    for e, ev in enumerate(events):
        bits = 0
        for w in [index[x] for x in ev["waits"]]:
            require(w < e and events[w]["stream"] != ev["stream"], "wait of %s" % ev["id"])
            bits |= before[w] | 1 << w
        if ev["stream"] in last:
            bits |= before[last[ev["stream"]]] | 1 << last[ev["stream"]]
        before.append(bits)
        last[ev["stream"]] = e
    return before


def accesses(events):
    for e, ev in enumerate(events):
        for kind in ("reads", "writes"):
            for s, offset, size in ev[kind]:
                if size:
                    yield s, e, kind == "writes", (offset, offset + size)


def check_program(plan, program, entry):
    """`entry(storage)`: ranges that every way to this program has written."""
    events, storages = program["events"], plan["storages"]
    index = {ev["id"]: e for e, ev in enumerate(events)}
    before = closure(events, index)
    ordered = lambda a, b: before[b] >> a & 1
    touched = {}
    for ev in events:
        begins = [(s, offset) for s, offset, size in ev["writes"] if size]
        require(len(begins) == len(set(begins)), "%s writes two results to one place" % ev["id"])
    for s, e, write, where in accesses(events):
        st = storages[s]
        require(where[1] <= st["size"], "%s beyond %s" % (events[e]["id"], st["name"]))
        if "program" in st:
            require(st["program"] == program["name"], "%s of another program" % st["name"])
            require(index[st["first"]] <= e <= index[st["last"]], "%s outside its life" % st["name"])
        touched.setdefault(s, []).append((e, write, where))
    for s, all_of_it in touched.items():
        for i, (a, wa, x) in enumerate(all_of_it):
            for b, wb, y in all_of_it[:i]:
                require(a == b or not (wa or wb) or not overlap(x, y) or ordered(a, b) or ordered(b, a),
                        "%s and %s race on %s" % (events[a]["id"], events[b]["id"], storages[s]["name"]))
        for a, write, x in all_of_it:
            missing = [] if write else [x]
            for r in entry(s):
                missing = less(missing, r)
            for b, w, y in all_of_it:
                if w and ordered(b, a):
                    missing = less(missing, y)
            require(not missing, "%s reads %s before it is written" % (events[a]["id"], storages[s]["name"]))
    mask = {s: sum(1 << e for e in {x[0] for x in t}) for s, t in touched.items() if "program" in storages[s]}
    seen = {s: [before[e] for e in {x[0] for x in touched[s]}] for s in mask}
    ids = sorted(mask)
    for i, s in enumerate(ids):
        for t in ids[:i]:
            if shares(storages[s], storages[t]):
                require(all(mask[s] & ~b == 0 for b in seen[t]) or all(mask[t] & ~b == 0 for b in seen[s]),
                        "%s and %s share bytes" % (storages[s]["name"], storages[t]["name"]))
    chain_of = {g["name"]: g["chain"] for g in plan["mesh"]["groups"]}
    for chain in set(chain_of.values()):
        collectives = [e for e, ev in enumerate(events) if "comm" in ev and chain_of[ev["comm"]] == chain]
        for a, b in zip(collectives, collectives[1:]):
            require(ordered(a, b), "collectives %s and %s" % (events[a]["id"], events[b]["id"]))


def shares(a, b):
    return a["arena"] == b["arena"] and overlap((a["offset"], a["offset"] + a["size"]), (b["offset"], b["offset"] + b["size"]))


def entries(plan, follows):
    """Per program, what is written on every way to it: all reachable (program, bytes written) states are walked."""
    programs = {p["name"]: p for p in plan["programs"]}
    cuts, wrote = {}, {}
    for name, p in programs.items():
        wrote[name] = [(s, x) for s, _, write, x in accesses(p["events"]) if write and "program" not in plan["storages"][s]]
        for s, (lo, hi) in wrote[name]:
            cuts.setdefault(s, set()).update((lo, hi))
    atoms = {s: [(s, lo, hi) for lo, hi in zip(sorted(c), sorted(c)[1:])] for s, c in cuts.items()}
    adds = {n: frozenset(a for s, x in w for a in atoms[s] if x[0] <= a[1] and a[2] <= x[1]) for n, w in wrote.items()}
    found, todo = set(), [(n, frozenset()) for n in follows[""] if n in programs]
    while todo:
        state = todo.pop()
        if state not in found:
            found.add(state)
            todo += [(n, state[1] | adds[state[0]]) for n in follows.get(state[0], []) if n in programs]
    for name in programs:
        require(any(n == name for n, _ in found), "no way to %s" % name)
    return {name: frozenset.intersection(*[s for n, s in found if n == name]) for name in programs}


def check_updates(plan, accumulating):
    updating = "micro_last" if accumulating else "micro"
    size = {a["name"]: a["size"] for a in plan["mesh"]["axes"]}
    for u in plan["units"]:
        if not u["numel"]:
            continue
        require("master" in u, "unit %s has no parameters" % u["path"])
        missing = [(0, u["numel"] // size[u["shard"]] * BYTES[u["dtype"]])]
        done = []
        for p in plan["programs"]:
            for s, e, write, x in accesses(p["events"]):
                if not write or s != u["master"]:
                    continue
                update = p["events"][e].get("update", False)
                require(p["name"] == updating if update else p["name"] == "init", "%s writes unit %s" % (p["events"][e]["id"], u["path"]))
                if update:
                    require(not any(overlap(x, y) for y in done), "unit %s is updated twice" % u["path"])
                    done.append(x)
                    missing = less(missing, x)
        require(max((hi for _, hi in done), default=0) <= u["numel"] // size[u["shard"]] * BYTES[u["dtype"]], "unit %s is updated beyond its end" % u["path"])
        require(not missing, "unit %s is not updated" % u["path"])


def check_mesh(plan):
    """How many ranks a plan is for stands in the mesh, along its axes, in every unit, and in the bytes of every collective."""
    world, axes = plan["mesh"]["world"], {a["name"]: (a["size"], a["stride"]) for a in plan["mesh"]["axes"]}
    group_axes = [g["axis"] for g in plan["mesh"]["groups"]]
    size_of = {g["name"]: axes[g["axis"]][0] for g in plan["mesh"]["groups"]}

    def make_up(*names):
        """Each axis stands as far apart as those of smaller strides span together."""
        span = 1
        for stride, n in sorted((axes[a][1], axes[a][0]) for a in names if axes[a][0] > 1):
            if stride != span:
                return False
            span *= n
        return span == world
    require(world % plan["mesh"]["nodes"] == 0, "nodes")
    require(list(axes)[:3] == group_axes[:3] == ["shard", "replicate", "world"], "axes or their groups are missing")
    for name, (n, apart) in axes.items():
        members = [{r for r in range(world) if r // (n * apart) == first // (n * apart) and r % apart == first % apart} for first in range(world)]
        require(all(len(m) == n for m in members), "axis %s" % name)
    require(axes["world"][0] == world and make_up("shard", "replicate"), "the mesh")
    for u in plan["units"]:
        require(make_up(u["shard"], u["replicate"]) and u["numel"] % axes[u["shard"]][0] == 0, "unit %s" % u["path"])
    collectives = [e for p in plan["programs"] for e in p["events"] if "comm" in e]
    require(world == 1 or collectives, "ranks are on their own")
    for e in collectives:
        a, b = sorted(sum(x[2] for x in e[kind]) for kind in ("reads", "writes"))
        require(a == b or b == a * size_of[e["comm"]], "bytes of %s" % e["id"])


def check(plan):
    check_mesh(plan)
    storages, programs = plan["storages"], plan["programs"]
    names = [p["name"] for p in programs]
    for i, s in enumerate(storages):
        require(s["id"] == i and s["offset"] >= 0 and s["offset"] + s["size"] <= plan["arenas"][s["arena"]]["bytes"], "%s outside" % s["name"])
        for t in storages[:i]:
            if "program" not in s or "program" not in t:
                require(not shares(s, t), "%s and %s share bytes" % (s["name"], t["name"]))
        if "program" in s:
            order = [e["id"] for e in programs[names.index(s["program"])]["events"]]
            require(order.index(s["first"]) <= order.index(s["last"]), "%s ends before it begins" % s["name"])
    accumulating = "micro_first" in names
    entry = entries(plan, FOLLOWS[accumulating])
    for p in programs:
        def written(s, name=p["name"]):
            if storages[s]["class"] in ("inputs", "record") and "program" not in storages[s]:
                return [(0, storages[s]["size"])]
            return [(lo, hi) for t, lo, hi in entry[name] if t == s]
        check_program(plan, p, written)
    check_updates(plan, accumulating or "micro_last" in names)


def verdict(plan):
    """None for a sound plan, else what is wrong with it."""
    try:
        check(plan)
    except Unsound as e:
        return str(e)
    return None


if __name__ == "__main__":
    for path in sys.argv[1:]:
        print(path, verdict(json.load(open(path))) or "sound")
